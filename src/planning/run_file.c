// SPDX-License-Identifier: Apache-2.0
#include "planning/run_file.h"

#include "base/assert.h"
#include "base/file.h"

#include <math.h>
#include <string.h>

enum {
    DEFAULT_STEPS = 1000,
    DEFAULT_LAYERS = 6,
    DEFAULT_HEADS = 6,
    DEFAULT_WIDTH = 384,
    DEFAULT_CONTEXT = 256,
    IMPORTED_CONTEXT_MAX = 1024,
    FFN_MULTIPLE = 64,
    LEAF_TOKENS_MIN = 1024,
    MICRO_BATCH_TOKENS_MAX = 8192,
    WARMUP_STEPS_MAX = 100,
    HASH_TOKENS = 8192, /* hashing the state costs about as much as computing 20 tokens */
};

static uint64_t or_default(uint64_t value, uint64_t default_value)
{
    return value == LS_AUTO_U64 ? default_value : value;
}

static double or_default_f64(double value, double default_value)
{
    return value == LS_AUTO_F64 ? default_value : value;
}

static int or_default_switch(int value, bool default_value)
{
    return value == LS_AUTO ? (default_value ? LS_YES : LS_NO) : value;
}

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* ---- leaves and micro-batch ---- */

/* Mean over r = 1..max_ranks ranks of the share of time that ranks are busy: V leaves take ceil(V / r) waves.
 */
static double leaves_balance(uint64_t leaves, uint64_t max_ranks)
{
    double sum = 0.0;
    for (uint64_t r = 1; r <= max_ranks; r++) {
        sum += (double)leaves / ((double)r * (double)((leaves + r - 1) / r));
    }
    return sum / (double)max_ranks;
}

/* Walks the divisors of `count` upwards: the next one above `divisor`, 0 when there is none. All of them take sqrt(count) steps: a large one is
 * found by what it leaves. */
static uint64_t next_divisor(uint64_t count, uint64_t divisor)
{
    uint64_t d = divisor + 1;
    for (; d * d <= count; d++) {
        if (count % d == 0) {
            return d;
        }
    }
    for (uint64_t other = count / d; other >= 1; other--) {
        if (count % other == 0) {
            return count / other;
        }
    }
    return 0;
}

/* The best divisor within [min, max] that is a multiple of `multiple`; 0 when there is none. */
static uint64_t best_leaves(uint64_t count, uint64_t min, uint64_t max, uint64_t multiple, uint64_t max_ranks)
{
    uint64_t best = 0;
    double best_balance = 0.0;
    for (uint64_t d = next_divisor(count, 0); d && d <= max; d = next_divisor(count, d)) {
        if (d < min || d % multiple != 0) {
            continue;
        }
        const double balance = leaves_balance(d, max_ranks);
        if (balance >= 0.9) {
            return d;
        }
        if (balance > best_balance) {
            best = d;
            best_balance = balance;
        }
    }
    return best;
}

uint64_t ls_run_file_auto_leaves(uint64_t global_batch, uint64_t micro_batch, uint64_t context,
                                 uint64_t max_ranks)
{
    enum { RANKS_MAX = 4096 }; /* balance beyond is not worth the walk */
    LS_ASSERT(global_batch >= 1 && micro_batch >= 1 && context >= 1 && max_ranks >= 1);
    const uint64_t count = global_batch % micro_batch == 0 ? global_batch / micro_batch : global_batch;
    const uint64_t enough =
        global_batch * context / LEAF_TOKENS_MIN; /* most leaves with enough tokens each */
    const uint64_t ranks = max_ranks < RANKS_MAX ? max_ranks : RANKS_MAX;
    uint64_t leaves = best_leaves(count, max_ranks, enough, max_ranks, ranks);
    if (!leaves) {
        leaves = best_leaves(count, max_ranks, enough, 1, ranks);
    }
    if (!leaves && max_ranks <= count) {
        leaves = next_divisor(count, max_ranks - 1);
    }
    return leaves ? leaves : count;
}

uint64_t ls_run_file_auto_micro_batch(uint64_t leaf_sequences, uint64_t context)
{
    uint64_t best = 1;
    for (uint64_t d = 1; d <= leaf_sequences && d * context <= MICRO_BATCH_TOKENS_MAX; d++) {
        if (leaf_sequences % d == 0) {
            best = d;
        }
    }
    return best;
}

static void resolve_batch(ls_run_file *run)
{
    ls_run_train *train = &run->train;
    const uint64_t context = or_default(run->model.context, IMPORTED_CONTEXT_MAX);
    if (train->leaves == LS_AUTO_U64) {
        train->leaves =
            ls_run_file_auto_leaves(train->global_batch, or_default(train->micro_batch, 1), context,
                                    or_default(run->job.max_ranks, LS_RUN_FILE_MAX_RANKS));
    }
    if (train->micro_batch == LS_AUTO_U64) {
        const uint64_t leaf = train->global_batch / train->leaves;
        train->micro_batch = leaf ? ls_run_file_auto_micro_batch(leaf, context) : 1;
    }
    if (train->hash_every_steps == LS_AUTO_U64) {
        const uint64_t step_tokens = train->global_batch * context;
        train->hash_every_steps =
            step_tokens < HASH_TOKENS ? (HASH_TOKENS + step_tokens - 1) / step_tokens : 1;
    }
}

/* ---- the rest of auto ---- */

/* What the family decides, for a model without model.from. */
static void resolve_model(ls_run_model *model)
{
    if (model->from[0]) {
        return;
    }
    model->family = model->family == LS_FAMILY_COUNT ? LS_FAMILY_LLAMA : model->family;
    ls_model_config family;
    ls_model_config_defaults((ls_family)model->family, &family);
    model->layers = or_default(model->layers, DEFAULT_LAYERS);
    model->heads = or_default(model->heads, DEFAULT_HEADS);
    model->kv_heads = or_default(model->kv_heads, model->heads);
    model->width = or_default(model->width, DEFAULT_WIDTH);
    model->context = or_default(model->context, DEFAULT_CONTEXT);
    if (model->head_dim == LS_AUTO_U64 && model->width % model->heads == 0) {
        model->head_dim = model->width / model->heads; /* else ls_run_file_check says what is wrong */
    }
    if (model->ffn == LS_AUTO_U64) {
        model->ffn = family.swiglu ? round_up((8 * model->width + 2) / 3, FFN_MULTIPLE) : 4 * model->width;
    }
    model->tie_embeddings = or_default_switch(model->tie_embeddings, family.tied);
    model->qkv_bias = or_default_switch(model->qkv_bias, family.qkv_bias);
    model->qk_norm = or_default_switch(model->qk_norm, family.qk_norm);
    model->norm_eps = or_default_f64(model->norm_eps, family.norm_eps);
    model->rope_theta = or_default_f64(model->rope_theta, family.rope_theta);
}

static void resolve_tokenizer(ls_run_file *run)
{
    if (run->tokenizer.kind == LS_TOKENIZER_AUTO) {
        run->tokenizer.kind = run->tokenizer.file[0] ? LS_TOKENIZER_FILE
                              : run->model.from[0]   ? LS_TOKENIZER_MODEL
                                                     : LS_TOKENIZER_BYTES;
    }
}

/* Steps, and what hangs on them. Does nothing yet when epochs need the data or tokens the imported context.
 */
static void resolve_length(ls_run_file *run)
{
    ls_run_train *train = &run->train;
    if (train->steps == LS_AUTO_U64 && train->tokens > 0 && run->model.context != LS_AUTO_U64) {
        const uint64_t step_tokens = train->global_batch * run->model.context;
        train->steps = (train->tokens + step_tokens - 1) / step_tokens;
        train->tokens = 0;
    }
    if (train->steps == LS_AUTO_U64 && train->tokens == 0 && train->epochs == 0.0) {
        train->steps = DEFAULT_STEPS;
    }
    if (train->steps == LS_AUTO_U64) {
        return;
    }
    train->schedule.steps = or_default(train->schedule.steps, train->steps);
    const uint64_t tenth = train->schedule.steps / 10;
    train->schedule.warmup_steps =
        or_default(train->schedule.warmup_steps, tenth < WARMUP_STEPS_MAX ? tenth : WARMUP_STEPS_MAX);
}

static void resolve(ls_run_file *run)
{
    resolve_model(&run->model);
    resolve_tokenizer(run);
    run->data.validation_fraction =
        or_default_f64(run->data.validation_fraction, run->data.validation.count > 0 ? 0.0 : 0.05);
    resolve_batch(run);
    resolve_length(run);
    const uint64_t ranks = or_default(run->parallel.ranks, 1);
    run->job.max_ranks =
        or_default(run->job.max_ranks, ranks > LS_RUN_FILE_MAX_RANKS ? ranks : LS_RUN_FILE_MAX_RANKS);
}

/* ---- loading ---- */

/* "path/shakespeare.yaml" -> "shakespeare". */
static const char *name_of_file(ls_arena *arena, const char *path)
{
    const char *base = ls_path_basename(path);
    const char *dot = strrchr(base, '.');
    return dot && dot > base ? ls_arena_strndup(arena, base, (size_t)(dot - base))
                             : ls_arena_strdup(arena, base);
}

static ls_status load_document(const ls_document *doc, const char *const *overrides, size_t override_count,
                               ls_arena *arena, ls_run_file *run)
{
    const ls_option_table *table = ls_run_file_table();
    ls_options_defaults(table, run, arena);
    LS_TRY(ls_options_apply_document(table, run, doc, arena));
    for (size_t i = 0; i < override_count; i++) {
        LS_TRY(ls_options_apply_assignment(table, run, overrides[i], "--set", arena));
    }
    if (run->name[0] == '\0') {
        run->name = name_of_file(arena, doc->name);
    }
    const ls_run_train *train = &run->train;
    const int lengths = (train->steps != LS_AUTO_U64) + (train->tokens > 0) + (train->epochs > 0.0);
    if (lengths > 1) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: more than one of train.steps, train.tokens and train.epochs is given; "
                       "keep one",
                       doc->name);
    }
    resolve(run);
    const ls_status status = ls_run_file_check(run);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "%s", doc->name);
}

ls_status ls_run_file_load(const char *path, const char *const *overrides, size_t override_count,
                           ls_arena *arena, ls_run_file *run_out)
{
    ls_document doc;
    LS_TRY(ls_yaml_load(path, &doc));
    ls_run_file run;
    const ls_status status = load_document(&doc, overrides, override_count, arena, &run);
    ls_document_release(&doc);
    LS_TRY(status);
    *run_out = run;
    return LS_OK;
}

ls_status ls_run_file_parse(const char *text, size_t bytes, const char *name, const char *const *overrides,
                            size_t override_count, ls_arena *arena, ls_run_file *run_out)
{
    ls_document doc;
    LS_TRY(ls_yaml_parse(text, bytes, name, &doc));
    ls_run_file run;
    const ls_status status = load_document(&doc, overrides, override_count, arena, &run);
    ls_document_release(&doc);
    LS_TRY(status);
    *run_out = run;
    return LS_OK;
}

/* ---- what becomes known later ---- */

static ls_status agree(const char *key, uint64_t *value, int64_t imported)
{
    if (*value != LS_AUTO_U64 && *value != (uint64_t)imported) {
        return ls_fail(LS_ERR_INVALID,
                       "model.%s is %llu, but the model of model.from has %lld; remove the key", key,
                       (unsigned long long)*value, (long long)imported);
    }
    *value = (uint64_t)imported;
    return LS_OK;
}

static ls_status agree_f64(const char *key, double *value, double imported)
{
    if (*value != LS_AUTO_F64 && *value != imported) {
        return ls_fail(LS_ERR_INVALID, "model.%s is %g, but the model of model.from has %g; remove the key",
                       key, *value, imported);
    }
    *value = imported;
    return LS_OK;
}

static ls_status agree_switch(const char *key, int *value, bool imported)
{
    if (*value != LS_AUTO && (*value == LS_YES) != imported) {
        return ls_fail(LS_ERR_INVALID, "model.%s is %s, but the model of model.from has %s; remove the key",
                       key, *value == LS_YES ? "true" : "false", imported ? "true" : "false");
    }
    *value = imported ? LS_YES : LS_NO;
    return LS_OK;
}

static ls_status adopt_context(ls_run_model *model, int64_t imported)
{
    if (model->context == LS_AUTO_U64) {
        model->context = imported < IMPORTED_CONTEXT_MAX ? (uint64_t)imported : IMPORTED_CONTEXT_MAX;
    }
    if (model->context > (uint64_t)imported) {
        return ls_fail(LS_ERR_INVALID,
                       "model.context is %llu, but the model of model.from allows at most %lld",
                       (unsigned long long)model->context, (long long)imported);
    }
    return LS_OK;
}

static ls_status adopt_model(ls_run_model *model, const ls_model_config *config)
{
    if (model->family != LS_FAMILY_COUNT && model->family != (int)config->family) {
        return ls_fail(LS_ERR_INVALID,
                       "model.family is %s, but the model of model.from is %s; remove the key",
                       ls_family_name((ls_family)model->family), ls_family_name(config->family));
    }
    model->family = (int)config->family;
    LS_TRY(agree("layers", &model->layers, config->layers));
    LS_TRY(agree("heads", &model->heads, config->heads));
    LS_TRY(agree("kv_heads", &model->kv_heads, config->kv_heads));
    LS_TRY(agree("head_dim", &model->head_dim, config->head_dim));
    LS_TRY(agree("width", &model->width, config->width));
    LS_TRY(agree("ffn", &model->ffn, config->ffn));
    LS_TRY(agree("vocab", &model->vocab, config->vocab));
    LS_TRY(agree_switch("tie_embeddings", &model->tie_embeddings, config->tied));
    LS_TRY(agree_switch("qkv_bias", &model->qkv_bias, config->qkv_bias));
    LS_TRY(agree_switch("qk_norm", &model->qk_norm, config->qk_norm));
    LS_TRY(agree_f64("norm_eps", &model->norm_eps, config->norm_eps));
    LS_TRY(agree_f64("rope_theta", &model->rope_theta, config->rope_theta));
    /* These have definite defaults, so that disagreement can't be told from silence: the import's values
     * hold. */
    model->rope_scaling_kind = config->rope_scaling.kind;
    if (config->rope_scaling.kind != LS_ROPE_NONE) {
        model->rope_scaling_factor = config->rope_scaling.factor;
    }
    if (config->rope_scaling.kind == LS_ROPE_LLAMA3) {
        model->rope_scaling_low_freq_factor = config->rope_scaling.low_freq_factor;
        model->rope_scaling_high_freq_factor = config->rope_scaling.high_freq_factor;
        model->rope_scaling_original_context = (uint64_t)config->rope_scaling.original_context;
    }
    model->sliding_window = (uint64_t)config->window;
    return adopt_context(model, config->context);
}

ls_status ls_run_file_adopt_model(ls_run_file *run, const ls_model_config *config)
{
    LS_ASSERT(run->model.from[0]);
    ls_run_file adopted = *run;
    LS_TRY(adopt_model(&adopted.model, config));
    resolve_length(&adopted);
    LS_TRY(ls_run_file_check(&adopted));
    *run = adopted;
    return LS_OK;
}

ls_status ls_run_file_adopt_vocab(ls_run_file *run, uint64_t tokenizer_vocab)
{
    LS_ASSERT(tokenizer_vocab >= 1);
    if (run->model.vocab == LS_AUTO_U64) {
        run->model.vocab = tokenizer_vocab;
    }
    if (run->model.vocab < tokenizer_vocab) {
        return ls_fail(LS_ERR_INVALID,
                       "model.vocab is %llu, but the tokenizer has %llu ids; use auto or at least that",
                       (unsigned long long)run->model.vocab, (unsigned long long)tokenizer_vocab);
    }
    return LS_OK;
}

bool ls_run_file_adopt_own_vocab(ls_run_file *run)
{
    if (run->model.vocab == LS_AUTO_U64 && run->tokenizer.kind == LS_TOKENIZER_BYTES) {
        run->model.vocab = 256;
    } else if (run->model.vocab == LS_AUTO_U64 && run->tokenizer.kind == LS_TOKENIZER_TRAIN) {
        run->model.vocab = run->tokenizer.vocab;
    }
    return run->model.vocab != LS_AUTO_U64;
}

ls_status ls_run_file_adopt_data(ls_run_file *run, uint64_t epoch_sequences)
{
    LS_ASSERT(epoch_sequences >= 1);
    ls_run_file adopted = *run;
    if (adopted.train.steps == LS_AUTO_U64 && adopted.train.epochs > 0.0) {
        const double steps =
            adopted.train.epochs * (double)epoch_sequences / (double)adopted.train.global_batch;
        adopted.train.steps = steps < 1.0 ? 1 : (uint64_t)llround(steps);
        adopted.train.epochs = 0.0;
        resolve_length(&adopted);
        LS_TRY(ls_run_file_check(&adopted));
    }
    *run = adopted;
    return LS_OK;
}

ls_status ls_run_file_model_config(const ls_run_file *run, ls_model_config *config_out)
{
    const ls_run_model *model = &run->model;
    LS_ASSERT(model->family != LS_FAMILY_COUNT && model->vocab != LS_AUTO_U64);
    ls_model_config config;
    ls_model_config_defaults((ls_family)model->family, &config);
    config.layers = (int64_t)model->layers;
    config.heads = (int64_t)model->heads;
    config.kv_heads = (int64_t)model->kv_heads;
    config.head_dim = (int64_t)model->head_dim;
    config.width = (int64_t)model->width;
    config.ffn = (int64_t)model->ffn;
    config.context = (int64_t)model->context;
    config.vocab = (int64_t)model->vocab;
    config.norm_eps = model->norm_eps;
    config.rope_theta = model->rope_theta;
    config.rope_scaling = (ls_rope_scaling){
        .kind = model->rope_scaling_kind,
        .factor = model->rope_scaling_factor,
        .low_freq_factor = model->rope_scaling_low_freq_factor,
        .high_freq_factor = model->rope_scaling_high_freq_factor,
        .original_context = (int64_t)model->rope_scaling_original_context,
    };
    config.qkv_bias = model->qkv_bias == LS_YES;
    config.qk_norm = model->qk_norm == LS_YES;
    config.tied = model->tie_embeddings == LS_YES;
    config.window = (int64_t)model->sliding_window;
    config.init_std = model->init_std;
    LS_TRY(ls_model_config_check(&config));
    *config_out = config;
    return LS_OK;
}

/* ---- saving and identity ---- */

void ls_run_file_append(const ls_run_file *run, ls_text *text)
{
    ls_text_append(text, "# The complete settings of this run, with every automatic value resolved.\n");
    ls_options_append_yaml(ls_run_file_table(), run, false, text);
}

ls_status ls_run_file_save(const ls_run_file *run, const char *path)
{
    ls_text text = {0};
    ls_run_file_append(run, &text);
    const ls_status status = ls_file_write_atomic(path, text.data, text.bytes);
    ls_text_release(&text);
    return status;
}

/* Settings that have no effect on the bits get one value, so that changing them is not a difference. */
static ls_run_file canonical(const ls_run_file *run)
{
    ls_run_file same = *run;
    ls_run_schedule *schedule = &same.train.schedule;
    if (schedule->kind == LS_SCHEDULE_CONSTANT) {
        schedule->steps = 1;
        schedule->final_lr_fraction = 1.0;
    }
    if (schedule->kind != LS_SCHEDULE_WSD) {
        schedule->decay_fraction = 0.0;
    }
    if (same.tokenizer.kind != LS_TOKENIZER_TRAIN) {
        same.tokenizer.vocab = 0;
    }
    if (same.model.rope_scaling_kind != LS_ROPE_LLAMA3) {
        same.model.rope_scaling_low_freq_factor = 1.0;
        same.model.rope_scaling_high_freq_factor = 1.0;
        same.model.rope_scaling_original_context = 1;
    }
    return same;
}

void ls_run_file_identity(const ls_run_file *run, const char *data_hash, char hex_out[LS_SHA256_HEX_BYTES])
{
    const ls_run_file same = canonical(run);
    ls_text text = {0};
    ls_options_append_yaml(ls_run_file_table(), &same, true, &text);
    ls_text_printf(&text, "data_hash: %s\n", data_hash ? data_hash : "none");
    ls_sha256_hex(text.data, text.bytes, hex_out);
    ls_text_release(&text);
}

size_t ls_run_file_diff(const ls_run_file *in_run, const ls_run_file *now, ls_text *text)
{
    const ls_option_table *table = ls_run_file_table();
    const ls_run_file a = canonical(in_run), b = canonical(now);
    ls_text a_value = {0}, b_value = {0};
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        if (!option->identity) {
            continue;
        }
        ls_text_clear(&a_value);
        ls_text_clear(&b_value);
        ls_options_append_value(option, &a, &a_value);
        ls_options_append_value(option, &b, &b_value);
        const bool is_known = strcmp(ls_text_string(&b_value), "auto") != 0;
        if (is_known && strcmp(ls_text_string(&a_value), ls_text_string(&b_value)) != 0) {
            ls_text_printf(text, "%s: %s in the run, %s now\n", option->key, ls_text_string(&a_value),
                           ls_text_string(&b_value));
            count++;
        }
    }
    ls_text_release(&a_value);
    ls_text_release(&b_value);
    return count;
}
