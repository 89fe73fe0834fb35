// SPDX-License-Identifier: Apache-2.0
#include "config/run_file.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "model/rope.h"

#include <math.h>
#include <string.h>

enum {
    DEFAULT_STEPS = 1000,
    DEFAULT_LAYERS = 6,
    DEFAULT_HEADS = 6,
    DEFAULT_EXPERTS = 8,
    DEFAULT_EXPERTS_PER_TOKEN = 2,
    DEFAULT_WIDTH = 384,
    DEFAULT_CONTEXT = 256,
    IMPORTED_CONTEXT_MAX = 1024,
    FFN_MULTIPLE = 64,
    LEAF_TOKENS_MIN = 1024,
    MICRO_BATCH_TOKENS_MAX = 8192,
    WARMUP_STEPS_MAX = 100,
    FINETUNE_EPOCHS = 3,
    HASH_TOKENS = 8192, /* hashing the state costs about as much as computing 20 tokens */
};

/* Learning rates of a run from random weights and of one from model.from. The second, and
 * FINETUNE_EPOCHS, are those of Stanford Alpaca (Taori et al., 2023: 2e-5, 3 epochs); Llama 2 was
 * tuned with the same rate for 2 epochs (Touvron et al., 2023, section 3.1). */
static const double SCRATCH_LR = 1e-3, FINETUNE_LR = 2e-5;
/* Of adapters: Dettmers et al., "QLoRA", 2023, table 9, for models of up to 13 billion parameters.
 * */
static const double ADAPTER_LR = 2e-4;

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

/* ---- leaves and micro-batch ---- */

/* Mean over r = 1..max_ranks ranks of the share of time that ranks are busy: V leaves take ceil(V /
 * r) waves.
 */
static double leaves_balance(uint64_t leaves, uint64_t max_ranks)
{
    double sum = 0.0;
    for (uint64_t r = 1; r <= max_ranks; r++) {
        sum += (double)leaves / ((double)r * (double)((leaves + r - 1) / r));
    }
    return sum / (double)max_ranks;
}

/* The next divisor of `count` above `divisor`, 0 if there is none. Going through all of them
 * takes sqrt(count) steps, because a large one is found as the quotient of a small one. */
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

/* The best divisor within [min, max] that is a multiple of `multiple`; 0 if there is none. */
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
    enum { RANKS_MAX = 4096 }; /* beyond this, better balance is not worth the search */
    LS_ASSERT(global_batch >= 1 && micro_batch >= 1 && context >= 1 && max_ranks >= 1);
    const uint64_t count = global_batch % micro_batch == 0 ? global_batch / micro_batch : global_batch;
    /* most leaves with enough tokens each */
    const uint64_t enough = global_batch * context / LEAF_TOKENS_MIN;
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
        /* Each worker of local steps has a share of the batch to itself, divided like a batch. */
        const bool divides = train->global_batch % train->local.workers == 0;
        const uint64_t workers = divides ? train->local.workers : 1;
        train->leaves = workers * ls_run_file_auto_leaves(
                                      train->global_batch / workers, or_default(train->micro_batch, 1),
                                      context, or_default(run->job.max_ranks, LS_RUN_FILE_MAX_RANKS));
    }
    ls_run_file_resolve_groups(train);
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

static void resolve_experts(ls_run_model *model)
{
    model->experts = model->experts > 0 ? model->experts : DEFAULT_EXPERTS;
    model->experts_per_token =
        model->experts_per_token > 0 ? model->experts_per_token : DEFAULT_EXPERTS_PER_TOKEN;
    model->expert_ffn = model->expert_ffn > 0 ? model->expert_ffn : model->ffn;
}

/* Values that the family decides, for a model without model.from. */
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
        /* otherwise ls_run_file_check reports what is wrong */
        model->head_dim = model->width / model->heads;
    }
    if (model->ffn == LS_AUTO_U64) {
        model->ffn =
            family.swiglu ? ls_round_up_u64((8 * model->width + 2) / 3, FFN_MULTIPLE) : 4 * model->width;
    }
    if (ls_family_has_experts(family.family)) {
        resolve_experts(model);
    }
    model->tie_embeddings = or_default_switch(model->tie_embeddings, family.tied);
    model->qkv_bias = or_default_switch(model->qkv_bias, family.qkv_bias);
    model->qk_norm = or_default_switch(model->qk_norm, family.qk_norm);
    model->norm_eps = or_default_f64(model->norm_eps, family.norm_eps);
    model->rope_theta = or_default_f64(model->rope_theta, family.rope_theta);
    model->rope_scaling_factor = or_default_f64(model->rope_scaling_factor, 1.0);
    model->rope_scaling_original_context =
        or_default(model->rope_scaling_original_context, LS_RUN_FILE_ORIGINAL_CONTEXT);
    model->sliding_window = or_default(model->sliding_window, 0);
}

static void resolve_tokenizer(ls_run_file *run)
{
    if (run->tokenizer.kind == LS_TOKENIZER_AUTO) {
        run->tokenizer.kind = run->tokenizer.file[0] ? LS_TOKENIZER_FILE
                              : run->model.from[0]   ? LS_TOKENIZER_MODEL
                                                     : LS_TOKENIZER_BYTES;
    }
}

/* Resolves steps and the values that depend on them. Does nothing yet if epochs need the data, or
 * tokens need the imported context.
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
        train->epochs = run->model.from[0] ? FINETUNE_EPOCHS : 0.0;
        train->steps = run->model.from[0] ? LS_AUTO_U64 : DEFAULT_STEPS;
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
    run->train.optimizer.lr =
        or_default_f64(run->train.optimizer.lr, run->adapter.kind == LS_ADAPTER_LORA ? ADAPTER_LR
                                                : run->model.from[0]                 ? FINETUNE_LR
                                                                                     : SCRATCH_LR);
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

static ls_run_automatic automatic_of(const ls_run_train *train)
{
    return (ls_run_automatic){
        .length = train->steps == LS_AUTO_U64 && train->tokens == 0 && train->epochs == 0.0,
        .lr = train->optimizer.lr == LS_AUTO_F64,
        .schedule_steps = train->schedule.steps == LS_AUTO_U64,
        .warmup_steps = train->schedule.warmup_steps == LS_AUTO_U64,
        .leaves = train->leaves == LS_AUTO_U64,
    };
}

/* A run has one length. */
static ls_status check_lengths(const ls_document *doc, const char *const *overrides, size_t override_count,
                               const ls_run_train *train)
{
    const struct {
        bool is_given;
        const char *none;
    } lengths[] = {{train->steps != LS_AUTO_U64, "train.steps=auto"},
                   {train->tokens > 0, "train.tokens=0"},
                   {train->epochs > 0.0, "train.epochs=0"}};
    const char *of_file = "";
    int count = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        bool is_set = false;
        for (size_t k = 0; k < override_count; k++) {
            is_set = is_set || strncmp(overrides[k], lengths[i].none, strcspn(lengths[i].none, "=") + 1) == 0;
        }
        count += lengths[i].is_given;
        of_file = lengths[i].is_given && !is_set ? lengths[i].none : of_file;
    }
    return count <= 1
               ? LS_OK
               : ls_fail(LS_ERR_INVALID,
                         "%s: more than one of train.steps, train.tokens and train.epochs is given; keep "
                         "one%s%s",
                         doc->name,
                         override_count > 0 && of_file[0] ? "; to replace that of the file, add  --set " : "",
                         override_count > 0 ? of_file : "");
}

static ls_status load_document(const ls_document *doc, const char *const *overrides, size_t override_count,
                               ls_arena *arena, ls_run_file *run)
{
    const ls_option_table *table = ls_run_file_table();
    ls_options_defaults(table, run, arena);
    LS_TRY(ls_options_apply_document(table, run, doc, arena));
    if (run->job.command.count == 0 && run->data.train.count == 0 && override_count == 0 &&
        ls_document_line(doc, "job.command") > 0) {
        return ls_fail(LS_ERR_INVALID,
                       "job.command is an empty list; name a program and its arguments, as in  job: "
                       "{command: [python3, script.py]}, or name data to train on in data.train");
    }
    for (size_t i = 0; i < override_count; i++) {
        LS_TRY(ls_options_apply_assignment(table, run, overrides[i], "--set", arena));
    }
    if (run->name[0] == '\0') {
        run->name = name_of_file(arena, doc->name);
    }
    LS_TRY(check_lengths(doc, overrides, override_count, &run->train));
    run->model.from = ls_path_expand_home(arena, run->model.from);
    run->adapter.from = ls_path_expand_home(arena, run->adapter.from);
    run->tokenizer.file = ls_path_expand_home(arena, run->tokenizer.file);
    run->data.cache_dir = ls_path_expand_home(arena, run->data.cache_dir);
    run->data.template = ls_path_expand_home(arena, run->data.template);
    run->automatic = automatic_of(&run->train);
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

/* ---- values that become known later ---- */

ls_status ls_run_file_adopt_begun(ls_run_file *run, const ls_run_file *begun)
{
    const ls_run_automatic *automatic = &run->automatic;
    ls_run_file adopted = *run;
    ls_run_train *train = &adopted.train;
    if (!run->data.template_date[0]) {
        adopted.data.template_date = begun->data.template_date;
    }
    if (run->adapter.from[0] && strcmp(run->adapter.from, begun->adapter.from) == 0) {
        ls_run_adapter *adapter = &adopted.adapter;
        adapter->rank = adapter->rank == LS_RUN_FILE_RANK ? begun->adapter.rank : adapter->rank;
        adapter->alpha = begun->adapter.alpha;
        adapter->rslora = begun->adapter.rslora;
        adapter->targets = begun->adapter.targets;
    }
    if (run->model.from[0] && automatic->lr) {
        train->optimizer.lr = begun->train.optimizer.lr;
    }
    if (run->model.from[0] && automatic->length) {
        train->steps = begun->train.steps;
        train->epochs = 0.0;
    }
    if (automatic->schedule_steps) {
        train->schedule.steps = begun->train.schedule.steps;
    }
    if (automatic->warmup_steps && train->schedule.steps == begun->train.schedule.steps) {
        train->schedule.warmup_steps = begun->train.schedule.warmup_steps;
    }
    LS_TRY(ls_run_file_check(&adopted));
    *run = adopted;
    return LS_OK;
}

static ls_status agree(const char *key, uint64_t *value, int64_t imported)
{
    if (*value != LS_AUTO_U64 && *value != (uint64_t)imported) {
        return ls_fail(LS_ERR_INVALID,
                       "model.%s is %llu, but the model named in model.from has %lld; remove the key", key,
                       (unsigned long long)*value, (long long)imported);
    }
    *value = (uint64_t)imported;
    return LS_OK;
}

/* Of a number that is 0 unless it is set. */
static ls_status agree_if_set(const char *key, uint64_t *value, int64_t imported)
{
    *value = *value > 0 ? *value : LS_AUTO_U64;
    return agree(key, value, imported);
}

static ls_status agree_f64(const char *key, double *value, double imported)
{
    if (*value != LS_AUTO_F64 && *value != imported) {
        return ls_fail(LS_ERR_INVALID,
                       "model.%s is %g, but the model named in model.from has %g; remove the key", key,
                       *value, imported);
    }
    *value = imported;
    return LS_OK;
}

static ls_status agree_switch(const char *key, int *value, bool imported)
{
    if (*value != LS_AUTO && (*value == LS_YES) != imported) {
        return ls_fail(LS_ERR_INVALID,
                       "model.%s is %s, but the model named in model.from has %s; remove the key", key,
                       *value == LS_YES ? "true" : "false", imported ? "true" : "false");
    }
    *value = imported ? LS_YES : LS_NO;
    return LS_OK;
}

/* The rotary scaling of the run file, once it is adopted. */
static ls_rope_scaling rope_scaling_of(const ls_run_model *model)
{
    ls_rope_scaling scaling = ls_rope_scaling_of(model->rope_scaling_kind, model->rope_scaling_factor,
                                                 (int64_t)model->rope_scaling_original_context);
    scaling.low_freq_factor = model->rope_scaling_low_freq_factor;
    scaling.high_freq_factor = model->rope_scaling_high_freq_factor;
    return scaling;
}

/* Whether the run file's scaling is that of the model; a run file can't say more about one. */
static bool has_own_scaling(const ls_run_model *model, const ls_rope_scaling *imported)
{
    const ls_rope_scaling_kind kind = model->rope_scaling_kind;
    return kind != imported->kind ||
           (kind != LS_ROPE_NONE && model->rope_scaling_factor != imported->factor) ||
           (kind == LS_ROPE_LLAMA3 && (model->rope_scaling_low_freq_factor != imported->low_freq_factor ||
                                       model->rope_scaling_high_freq_factor != imported->high_freq_factor)) ||
           (kind != LS_ROPE_NONE && kind != LS_ROPE_LINEAR &&
            model->rope_scaling_original_context != (uint64_t)imported->original_context);
}

/* The context of the model before any scaling that it already has. */
static uint64_t original_context(const ls_model_config *config)
{
    const ls_rope_scaling *scaling = &config->rope_scaling;
    return scaling->kind == LS_ROPE_NONE     ? (uint64_t)config->context
           : scaling->kind == LS_ROPE_LINEAR ? (uint64_t)((double)config->context / scaling->factor + 0.5)
                                             : (uint64_t)scaling->original_context;
}

/* Scaling of the run file replaces that of the model. Without it the values of the model apply. */
static ls_status adopt_rope(ls_run_model *model, const ls_model_config *config)
{
    const ls_rope_scaling *imported = &config->rope_scaling;
    const uint64_t original = original_context(config);
    if (model->rope_scaling_kind == LS_ROPE_NONE) {
        model->rope_scaling_kind = imported->kind;
        model->rope_scaling_factor = imported->kind == LS_ROPE_NONE ? 1.0 : imported->factor;
        model->rope_scaling_original_context =
            imported->kind == LS_ROPE_NONE || imported->kind == LS_ROPE_LINEAR ? LS_RUN_FILE_ORIGINAL_CONTEXT
                                                                               : original;
        if (imported->kind == LS_ROPE_LLAMA3) {
            model->rope_scaling_low_freq_factor = imported->low_freq_factor;
            model->rope_scaling_high_freq_factor = imported->high_freq_factor;
        }
        return LS_OK;
    }
    if (!config->rotary) {
        return ls_fail(LS_ERR_INVALID,
                       "model.rope_scaling.kind is set, but the model named in model.from is %s, which has "
                       "learned position embeddings that cannot be scaled; remove model.rope_scaling",
                       ls_family_name(config->family));
    }
    model->rope_scaling_original_context = or_default(model->rope_scaling_original_context, original);
    if (model->rope_scaling_factor == LS_AUTO_F64) {
        const double factor = model->context == LS_AUTO_U64 ? 1.0 : (double)model->context / (double)original;
        model->rope_scaling_factor = factor > 1.0 ? factor : 1.0;
    }
    return LS_OK;
}

/* The longest context that the model can be trained with. */
static uint64_t longest_context(const ls_run_model *model, const ls_model_config *config)
{
    if (!has_own_scaling(model, &config->rope_scaling)) {
        return (uint64_t)ls_rope_reach(config);
    }
    const double original =
        (double)(model->rope_scaling_kind == LS_ROPE_LINEAR ? original_context(config)
                                                            : model->rope_scaling_original_context);
    /* Llama 3.1 goes beyond factor * original_context. */
    const bool any = model->rope_scaling_kind == LS_ROPE_LLAMA3 && model->rope_scaling_factor > 1.0;
    const double reach = any ? (double)(1 << 24) : ceil(model->rope_scaling_factor * original - 1e-6);
    return reach > (double)config->context ? (uint64_t)reach : (uint64_t)config->context;
}

static ls_status fail_context(const ls_run_model *model, const ls_model_config *config, uint64_t longest)
{
    const unsigned long long context = model->context;
    if (!config->rotary) {
        return ls_fail(LS_ERR_INVALID,
                       "model.context is %llu, but the model named in model.from is %s, whose learned "
                       "positions end at %lld; use at most that",
                       context, ls_family_name(config->family), (long long)config->context);
    }
    if (!has_own_scaling(model, &config->rope_scaling)) {
        return ls_fail(LS_ERR_INVALID,
                       "model.context is %llu, but the context of the model named in model.from is %llu; use "
                       "at most that, or lengthen it with model.rope_scaling: {kind: yarn}",
                       context, (unsigned long long)longest);
    }
    return ls_fail(LS_ERR_INVALID,
                   "model.context is %llu, but model.rope_scaling with factor %g lengthens the context to "
                   "%llu only; set model.rope_scaling.factor to auto",
                   context, model->rope_scaling_factor, (unsigned long long)longest);
}

static ls_status adopt_context(ls_run_model *model, const ls_model_config *config)
{
    const uint64_t longest = longest_context(model, config);
    if (model->context == LS_AUTO_U64) {
        model->context = longest < IMPORTED_CONTEXT_MAX ? longest : IMPORTED_CONTEXT_MAX;
    }
    return model->context <= longest ? LS_OK : fail_context(model, config, longest);
}

/* Only a larger vocabulary than the model's is possible. */
static ls_status check_vocab(const ls_run_model *model, int64_t imported)
{
    if (model->vocab < (uint64_t)imported) {
        return ls_fail(LS_ERR_INVALID,
                       "model.vocab is %llu, but the model named in model.from has a vocabulary of %lld; use "
                       "auto, or that number or more",
                       (unsigned long long)model->vocab, (long long)imported);
    }
    return LS_OK;
}

static ls_status adopt_model(ls_run_model *model, const ls_model_config *config)
{
    if (model->family != LS_FAMILY_COUNT && model->family != (int)config->family) {
        return ls_fail(LS_ERR_INVALID,
                       "model.family is %s, but the model named in model.from is %s; remove the key",
                       ls_family_name((ls_family)model->family), ls_family_name(config->family));
    }
    model->family = (int)config->family;
    LS_TRY(agree("layers", &model->layers, config->layers));
    LS_TRY(agree("heads", &model->heads, config->heads));
    LS_TRY(agree("kv_heads", &model->kv_heads, config->kv_heads));
    LS_TRY(agree("head_dim", &model->head_dim, config->head_dim));
    LS_TRY(agree("width", &model->width, config->width));
    LS_TRY(agree("ffn", &model->ffn, config->ffn));
    LS_TRY(agree_if_set("experts", &model->experts, config->experts));
    LS_TRY(agree_if_set("experts_per_token", &model->experts_per_token, config->experts_per_token));
    LS_TRY(agree_if_set("expert_ffn", &model->expert_ffn, config->expert_ffn));
    LS_TRY(check_vocab(model, config->vocab));
    LS_TRY(agree_switch("tie_embeddings", &model->tie_embeddings, config->tied));
    LS_TRY(agree_switch("qkv_bias", &model->qkv_bias, config->qkv_bias));
    LS_TRY(agree_switch("qk_norm", &model->qk_norm, config->qk_norm));
    LS_TRY(agree_f64("norm_eps", &model->norm_eps, config->norm_eps));
    LS_TRY(agree_f64("rope_theta", &model->rope_theta, config->rope_theta));
    LS_TRY(adopt_rope(model, config));
    LS_TRY(agree("sliding_window", &model->sliding_window, config->window));
    return adopt_context(model, config);
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

ls_status ls_run_file_change_model(const ls_run_file *run, ls_model_config *config)
{
    const ls_run_model *model = &run->model;
    ls_model_config changed = *config;
    LS_ASSERT(model->vocab != LS_AUTO_U64 && model->context != LS_AUTO_U64);
    changed.vocab = (int64_t)model->vocab;
    if (config->rotary && has_own_scaling(model, &config->rope_scaling)) {
        changed.rope_scaling = rope_scaling_of(model);
    }
    if (changed.rope_scaling.kind == LS_ROPE_DYNAMIC) {
        changed.context = ls_rope_reach(&changed);
    }
    if (changed.context < (int64_t)model->context) {
        changed.context = (int64_t)model->context;
    }
    LS_TRY(ls_model_config_check(&changed));
    *config = changed;
    return LS_OK;
}

ls_status ls_run_file_adopt_vocab(ls_run_file *run, uint64_t tokenizer_vocab)
{
    LS_ASSERT(tokenizer_vocab >= 1);
    if (run->model.vocab == LS_AUTO_U64) {
        run->model.vocab = tokenizer_vocab;
    }
    if (run->model.vocab < tokenizer_vocab) {
        return ls_fail(
            LS_ERR_INVALID,
            "model.vocab is %llu, but the tokenizer has %llu token ids; use auto, or that number or more",
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
    config.experts = (int64_t)model->experts;
    config.experts_per_token = (int64_t)model->experts_per_token;
    config.expert_ffn = (int64_t)model->expert_ffn;
    config.context = (int64_t)model->context;
    config.vocab = (int64_t)model->vocab;
    config.norm_eps = model->norm_eps;
    config.rope_theta = model->rope_theta;
    config.rope_scaling = rope_scaling_of(model);
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

/* Settings that have no effect on the bits get a fixed value, so that changing them does not
 * change the identity. */
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
    ls_run_compression *compression = &same.train.compression;
    if (compression->kind != LS_COMPRESSION_TOPK) {
        compression->ratio = 0.01; /* the default, which the identity leaves out */
    }
    if (compression->kind == LS_COMPRESSION_NONE) {
        compression->groups = LS_AUTO_U64;
    }
    if (same.tokenizer.kind != LS_TOKENIZER_TRAIN) {
        same.tokenizer.vocab = 0;
    }
    if (same.model.rope_scaling_kind != LS_ROPE_LLAMA3) {
        same.model.rope_scaling_low_freq_factor = 1.0;
        same.model.rope_scaling_high_freq_factor = 1.0;
    }
    if (same.model.rope_scaling_kind == LS_ROPE_NONE || same.model.rope_scaling_kind == LS_ROPE_LINEAR) {
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
