// SPDX-License-Identifier: Apache-2.0
#include "execution/setup/new_run.h"

#include "base/file.h"
#include "base/math.h"
#include "compute/queue.h"
#include "execution/run/trainer.h"
#include "execution/setup/survey.h"
#include "execution/train/memory.h"
#include "execution/train/session.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_SHARE 0.6 /* of what is available: other programs and later starts need some */
#define GEMM_SHARE   0.5 /* of the rate of large products that a training step reaches */
enum { CONTEXT_UNIT = 64, TEXT_CONTEXT = 1024, TOKENS_PER_PARAMETER = 20, SMALL_MODEL = 20000000 };
enum { PACKED = 8, PACKED_CONTEXT = 2048 };

static const char DATA_KEYS[] = "data."; /* that --set takes */
static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";

const char *const ls_new_names[LS_NEW_KINDS + 1] = {"finetune", "chat", "scratch", NULL};

/* For models without a template: no words that a tokenizer would need as tokens of their own. */
static const char plain_template[] =
    "{%- for message in messages %}\n"
    "{%- if message['role'] == 'assistant' %}{{ 'Answer: ' + message['content'] + eos_token }}\n"
    "{%- else %}{{ 'Question: ' + message['content'] + '\\n' }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ 'Answer:' }}{%- endif %}";

/* Models for training from nothing. */
static const struct size {
    uint64_t parameters, layers, heads, width, ffn, context, vocab;
} sizes[] = {
    {110000000, 12, 12, 768, 2048, 1024, 16384}, {30000000, 8, 8, 512, 1408, 512, 8192},
    {8000000, 6, 6, 288, 768, 256, 4096},        {2500000, 5, 4, 192, 512, 256, 1024},
    {1000000, 4, 4, 128, 384, 128, 512},
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* How weights are trained. */
static const struct way {
    const char *name, *base;
    bool is_adapter, recomputes;
    const char *why;
} ways[] = {
    {"full", NULL, false, false, "all weights are trained: with their moments they fit into memory"},
    {"lora", "fp32", true, false, "training all weights would need too much memory, so adapters are trained"},
    {"lora", "bf16", true, false,
     "adapters, on weights kept in 16 bits: in float32 they need too much memory"},
    {"qlora", "nf4", true, false,
     "adapters, on weights kept in 4 bits: in 16 bits they need too much memory"},
    {"qlora", "nf4", true, true,
     "adapters, on weights in 4 bits, one sequence at a time with recomputed "
     "activations: the least memory there is"},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

typedef struct new_run {
    ls_arena *arena;
    const ls_new_options *options;
    const char *name, *file, *template, *data, *model; /* paths; template "": the model's own */
    ls_survey survey;
    uint64_t parameters, model_context;
    const struct way *way;
    const struct size *size; /* NULL: of the model */
    uint64_t context, batch, steps, available;
    double epochs, lr, tokens;
} new_run;

/* ---- choices ---- */

static void choose_size(new_run *n)
{
    n->size = &sizes[SIZES - 1];
    for (size_t i = SIZES; i-- > 0 && (double)sizes[i].parameters <= n->tokens / 2.0;) {
        n->size = &sizes[i];
    }
    n->parameters = n->size->parameters;
    n->context = n->size->context;
    n->lr = n->parameters < 5000000 ? 3e-3 : n->parameters < SMALL_MODEL ? 1e-3 : 6e-4;
    n->batch = 16;
    n->epochs = fmin(10.0, (double)(TOKENS_PER_PARAMETER * n->parameters) / n->tokens);
}

static void choose_tuning(new_run *n)
{
    const ls_survey *v = &n->survey;
    const uint64_t several = ls_min_u64(PACKED * v->median, PACKED_CONTEXT);
    const uint64_t needed =
        v->form == LS_RECORD_TEXT ? TEXT_CONTEXT : ls_max_u64(ls_max_u64(v->longest, 2) - 1, several);
    n->context = ls_min_u64(ls_round_up_u64(needed, CONTEXT_UNIT), n->model_context);
    const double windows = n->tokens / (double)n->context;
    n->batch = 4;
    while (n->batch < 32 && (double)(2 * n->batch) <= windows / 20.0) {
        n->batch *= 2;
    }
    const double samples = (double)v->samples * v->scale;
    n->epochs = samples < 1e3 ? 5 : samples < 1e4 ? 3 : samples < 1e5 ? 2 : 1;
    if (v->form == LS_RECORD_TEXT) {
        n->epochs = n->tokens < 1e7 ? 3 : 1;
    } else if (n->parameters < SMALL_MODEL && samples < 2e3) {
        n->epochs = 10;
    }
    n->lr = ls_tuning_rate((double)n->parameters, n->way->is_adapter);
}

/* ---- the run file ---- */

/* The path as it stays valid in any folder; a pattern or what does not exist is left as it is. */
static const char *whole_path(ls_arena *arena, const char *path)
{
    char *real = path[0] ? realpath(path, NULL) : NULL;
    const char *whole = ls_arena_strdup(arena, real ? real : path);
    free(real);
    return whole;
}

static void append_head(const new_run *n, ls_text *text)
{
    ls_text_printf(
        text,
        "# Written by lockstep new %s. Every key has a default: 'lockstep train --keys' lists them "
        "all.\n",
        ls_new_names[n->options->kind]);
    ls_text_printf(text, "name: %s\n", n->name);
}

static void append_model(const new_run *n, ls_text *text)
{
    const struct size *s = n->size;
    if (s) {
        ls_text_printf(text,
                       "\n# About %s parameters for %s tokens of text.\nmodel:\n  family: llama\n  layers: "
                       "%" PRIu64 "\n  heads: %" PRIu64 "\n  width: %" PRIu64 "\n  ffn: %" PRIu64
                       "\n  context: %" PRIu64 "\n",
                       ls_quantity_of((double)n->parameters).text, ls_quantity_of(n->tokens).text, s->layers,
                       s->heads, s->width, s->ffn, s->context);
        ls_text_printf(text, "tokenizer: {kind: train, vocab: %" PRIu64 "}\n", s->vocab);
        return;
    }
    ls_text_append(text, "\nmodel:\n  from: ");
    ls_text_append_quoted(text, n->model);
    ls_text_append(text, "\n");
    if (n->survey.form != LS_RECORD_TEXT) {
        ls_text_printf(text,
                       "  # The longest record has %" PRIu64 " tokens; half have at most %" PRIu64 ".\n",
                       n->survey.longest, n->survey.median);
    }
    ls_text_printf(text, "  context: %" PRIu64 "\n", n->context);
    if (n->way->is_adapter) {
        ls_text_printf(
            text,
            "\n# %s.\nadapter:\n  kind: lora\n  rank: 16\n  alpha: 32\n  base: %s   # or fp32, bf16, "
            "int8, nf4\n",
            n->way->why, n->way->base);
    } else {
        ls_text_printf(
            text, "\n# %s.\n# To train a small adapter instead: adapter: {kind: lora, rank: 16, alpha: 32}\n",
            n->way->why);
    }
}

static bool is_set(const new_run *n, const char *key)
{
    const size_t bytes = strlen(key);
    for (size_t i = 0; i < n->options->set_count; i++) {
        if (strncmp(n->options->set[i], key, bytes) == 0 && n->options->set[i][bytes] == '=') {
            return true;
        }
    }
    return false;
}

/* What the user decided, "data.KEY=VALUE". */
static void append_set(const new_run *n, ls_text *text)
{
    for (size_t i = 0; i < n->options->set_count; i++) {
        const char *key = n->options->set[i] + sizeof DATA_KEYS - 1, *value = strchr(key, '=') + 1;
        const bool is_path = strncmp(key, "template=", 9) == 0 && ls_path_exists(value);
        ls_text_printf(text, "  %.*s: ", (int)(value - 1 - key), key);
        if (!is_path && value[strspn(value, PLAIN)] == '\0') {
            ls_text_append(text, value); /* a number, a truth or a word must not be quoted */
        } else {
            ls_text_append_quoted(text, is_path ? whole_path(n->arena, value) : value);
        }
        ls_text_append(text, "\n");
    }
}

static void append_data(const new_run *n, ls_text *text)
{
    const ls_survey *v = &n->survey;
    const bool is_chat = v->form != LS_RECORD_TEXT && v->form != LS_RECORD_PROMPT;
    ls_text_printf(text, "\n# %s%.0f %s.\ndata:\n  train: [", v->scale > 1.0 ? "About " : "",
                   (double)v->records * v->scale,
                   v->form == LS_RECORD_TEXT ? (v->records == 1 ? "document" : "documents") : "records");
    ls_text_append_quoted(text, n->data);
    ls_text_append(text, "]\n");
    if (n->template[0]) {
        ls_text_append(
            text, "  # The model has no chat template of its own; this one asks and answers.\n  template: ");
        ls_text_append_quoted(text, n->template);
        ls_text_append(text, "\n");
    }
    append_set(n, text);
    if (is_chat && !is_set(n, "data.loss_on")) {
        ls_text_append(text,
                       "  loss_on: assistant        # the answers are learned, the questions are not\n");
    }
    if (is_set(n, "data.validation_fraction")) {
        return;
    }
    ls_text_printf(text, "  validation_fraction: %s %s\n", n->size || v->samples > 2000 ? "0.05" : "0.1 ",
                   is_chat ? "   # held out, whole conversations" : "   # held out");
}

static void append_training(const new_run *n, ls_text *text)
{
    const uint64_t evaluations = ls_max_u64(n->steps / 10, 1), saves = ls_max_u64(n->steps / 4, 1);
    ls_text_printf(text, "\n# About %" PRIu64 " steps.\ntrain:\n  epochs: %.3g\n", n->steps, n->epochs);
    ls_text_printf(text,
                   "  global_batch: %" PRIu64 "          # sequences of %" PRIu64 " tokens in each step\n",
                   n->batch, n->context);
    if (n->way->recomputes) {
        ls_text_append(text, "  micro_batch: 1\n  recompute: full\n");
    }
    ls_text_printf(text, "  optimizer: {lr: %.2g, weight_decay: %s}\n", n->lr, n->size ? "0.1" : "0.01");
    ls_text_printf(text, "checkpoint: {every_steps: %" PRIu64 ", keep_last: 2, keep_best: 1}\n", saves);
    if (n->size) {
        ls_text_printf(text,
                       "eval: {every_steps: %" PRIu64 ", batches: 8}\nsample: {every_steps: %" PRIu64
                       ", prompt: \"The \", max_tokens: 60}\n",
                       evaluations, saves);
    } else {
        ls_text_printf(text,
                       "# Ends when four evaluations in a row have not lowered the held-out loss.\n"
                       "eval: {every_steps: %" PRIu64 ", batches: 8, patience: 4}\n",
                       evaluations);
    }
}

static ls_status write_file(const new_run *n)
{
    ls_text text = {0};
    append_head(n, &text);
    append_model(n, &text);
    append_data(n, &text);
    append_training(n, &text);
    const ls_status status = ls_file_write_atomic(n->file, text.data, text.bytes);
    ls_text_release(&text);
    return status;
}

/* ---- what it costs ---- */

static uint64_t plan_u64(const json_t *plan, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(plan, key));
}

/* Writes the run file for a way and plans it. */
static ls_status try_way(new_run *n, const struct way *way, json_t **plan_out)
{
    n->way = way;
    n->size ? choose_size(n) : choose_tuning(n);
    n->steps = (uint64_t)ceil(n->tokens * n->epochs / (double)(n->context * n->batch));
    LS_TRY(write_file(n));
    const ls_train_options options = {.config = n->file, .dry_run = true};
    const ls_status status = ls_train(&options, plan_out);
    if (status != LS_OK) {
        json_decref(*plan_out);
        *plan_out = NULL;
        return status;
    }
    n->steps = plan_u64(*plan_out, "steps");
    return write_file(n);
}

static bool is_roomy(const new_run *n, const json_t *plan)
{
    const json_t *memory = json_object_get(plan, "memory_bytes");
    return (double)plan_u64(memory, "total") <= MEMORY_SHARE * (double)n->available;
}

/* The first way that leaves room; for training from nothing the first that fits. */
static ls_status choose_way(new_run *n, json_t **plan_out)
{
    const size_t count = n->size ? 1 : WAYS;
    for (size_t i = 0; i < count; i++) {
        const ls_status status = try_way(n, &ways[i], plan_out);
        const bool is_last = i + 1 == count;
        if (status == LS_OK && (is_last || is_roomy(n, *plan_out))) {
            return LS_OK;
        }
        if (status != LS_OK && (status != LS_ERR_MEMORY || is_last)) {
            return status;
        }
        json_decref(*plan_out);
        *plan_out = NULL;
        ls_error_clear();
    }
    return LS_OK;
}

/* Seconds of all steps: measured where this machine was calibrated, else from the FLOPs. */
static json_t *time_of(const new_run *n, const json_t *plan, bool *is_measured_out)
{
    const json_t *step = json_object_get(json_object_get(plan, "predicted"), "step_s");
    const char *device = json_string_value(json_object_get(plan, "determinism"));
    *is_measured_out = json_is_number(step);
    if (*is_measured_out) {
        return json_real(json_number_value(step) * (double)n->steps);
    }
    const double flops = json_number_value(json_object_get(json_object_get(plan, "flops_per_step"), "step"));
    ls_queue *queue = NULL;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (!device || strncmp(device, "cpu", 3) != 0 ||
        ls_queue_create_cpu(cores > 0 ? (uint32_t)cores : 1, &queue) != LS_OK) {
        ls_error_clear();
        return json_null();
    }
    const double peak = ls_queue_gemm_peak_flops(queue, LS_F32);
    ls_queue_destroy(queue);
    return peak > 0.0 ? json_real(flops * (double)n->steps / (GEMM_SHARE * peak)) : json_null();
}

static json_t *commands_of(const new_run *n)
{
    json_t *list = json_array();
    const char *next = n->options->kind == LS_NEW_CHAT ? "chat runs/%s" : "sample runs/%s --prompt \"The \"";
    if (!n->size) {
        json_array_append_new(list, json_sprintf("lockstep data show %s", n->file));
    }
    json_array_append_new(list, json_sprintf("lockstep train %s", n->file));
    char *last = ls_arena_printf(n->arena, next, n->name);
    json_array_append_new(list, json_sprintf("lockstep %s", last));
    return list;
}

static json_t *result_of(const new_run *n, const json_t *plan)
{
    const ls_survey *v = &n->survey;
    bool is_measured = false;
    json_t *time = time_of(n, plan, &is_measured);
    json_t *records = json_pack(
        "{s:s, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "form", ls_record_form_name(v->form),
        "unread", v->unread, "records", (json_int_t)v->records, "samples", (json_int_t)v->samples, "tokens",
        (json_int_t)v->tokens, "trained", (json_int_t)v->trained, "median", (json_int_t)v->median, "high",
        (json_int_t)v->high, "longest", (json_int_t)v->longest, "too_long", (json_int_t)v->too_long, "bad",
        (json_int_t)v->bad, "scale", v->scale);
    return json_pack(
        "{s:s, s:s, s:s, s:s?, s:o, s:s, s:s, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:o, s:b, "
        "s:o}",
        "kind", ls_new_names[n->options->kind], "file", n->file, "name", n->name, "template",
        n->template[0] ? n->template : v->template_name, "records", records, "way", n->way->name, "base",
        n->way->base ? n->way->base : "fp32", "context", (json_int_t)n->context, "global_batch",
        (json_int_t)n->batch, "epochs", n->epochs, "lr", n->lr, "steps", (json_int_t)n->steps, "parameters",
        (json_int_t)plan_u64(plan, "parameters"), "trained_parameters",
        (json_int_t)plan_u64(plan, "trained_parameters"), "memory_bytes",
        (json_int_t)plan_u64(json_object_get(plan, "memory_bytes"), "total"), "available_bytes",
        (json_int_t)n->available, "time_s", time, "measured", is_measured, "commands", commands_of(n));
}

/* ---- the whole ---- */

/* Takes a look at the data, with a template of our own where one is needed. */
static ls_status survey(new_run *n, ls_model_file *model)
{
    bool needs_template = false;
    ls_survey_options options = {.data = n->data,
                                 .template = "",
                                 .model = model,
                                 .limit = n->model_context + 1,
                                 .set = n->options->set,
                                 .set_count = n->options->set_count};
    LS_TRY(ls_survey_take(n->arena, &options, &n->survey, &needs_template));
    if (!needs_template) {
        return LS_OK;
    }
    if (ls_tokenizer_eos(model->tokenizer) < 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s has no chat template, and its tokenizer (%s) has no token that ends a text, so that "
            "no answer would end: take a model whose tokenizer has one",
            n->model, ls_tokenizer_kind(model->tokenizer));
    }
    n->template = ls_path_join(n->arena, n->options->dir, "chat_template.jinja");
    LS_TRY(ls_file_write_atomic(n->template, plain_template, sizeof plain_template - 1));
    n->template = options.template = whole_path(n->arena, n->template);
    return ls_survey_take(n->arena, &options, &n->survey, &needs_template);
}

static ls_status check_form(const new_run *n)
{
    const bool is_text = n->survey.form == LS_RECORD_TEXT;
    if (n->options->kind == LS_NEW_CHAT && (is_text || n->survey.form == LS_RECORD_PROMPT)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s holds %s, not conversations: use 'lockstep new finetune', or records "
                       "with messages%s%s",
                       n->options->data, ls_record_form_name(n->survey.form),
                       n->survey.unread ? "; data.prompt_field and data.completion_field name the keys of a "
                                          "question and its answer, and besides text the records have "
                                        : "",
                       n->survey.unread ? n->survey.unread : "");
    }
    if (n->survey.samples + n->survey.bad == 0) {
        return ls_fail(LS_ERR_DATA, "%s has nothing to train on", n->options->data);
    }
    return LS_OK;
}

static ls_status look(new_run *n)
{
    if (n->options->kind == LS_NEW_SCRATCH) {
        bool needs_template;
        const ls_survey_options options = {
            .data = n->data, .template = "", .set = n->options->set, .set_count = n->options->set_count};
        LS_TRY(ls_survey_take(n->arena, &options, &n->survey, &needs_template));
        n->size = &sizes[0];
        n->tokens = (double)n->survey.tokens * n->survey.scale / 3.5; /* bytes of a token, about */
        return check_form(n);
    }
    ls_model_file *model = NULL;
    LS_TRY(ls_model_file_open(n->model, &model));
    n->parameters = (uint64_t)model->layout.parameter_floats;
    n->model_context = (uint64_t)model->config.context;
    ls_status status = model->tokenizer
                           ? survey(n, model)
                           : ls_fail(LS_ERR_INVALID, "%s has no tokenizer: add its tokenizer.json", n->model);
    ls_model_file_close(model);
    LS_TRY(status);
    n->tokens = (double)n->survey.tokens * n->survey.scale;
    return check_form(n);
}

static ls_status check_options(const ls_new_options *o)
{
    const bool is_scratch = o->kind == LS_NEW_SCRATCH;
    if (!o->data[0]) {
        return ls_fail(LS_ERR_INVALID, "--data FILE is missing: the text or the records to train on");
    }
    for (size_t i = 0; i < o->set_count; i++) {
        const char *key = o->set[i];
        if (strncmp(key, DATA_KEYS, sizeof DATA_KEYS - 1) != 0 || strncmp(key, "data.train=", 11) == 0) {
            return ls_fail(
                LS_ERR_INVALID,
                "--set %s: 'lockstep new' takes keys that begin with data. except data.train, which "
                "is --data; change other keys in the run file that it writes",
                key);
        }
    }
    if (is_scratch && o->model[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "new scratch trains from nothing: leave out --model, or use 'lockstep new "
                       "finetune'");
    }
    if (!is_scratch && !o->model[0]) {
        return ls_fail(LS_ERR_INVALID, "--model DIR is missing: the model to train further, a Hugging Face "
                                       "directory, a checkpoint or a run");
    }
    return LS_OK;
}

/* Makes DIR, or takes one that is empty. */
static ls_status make_dir(ls_arena *arena, const char *dir)
{
    char **names = NULL;
    size_t count = 0;
    if (ls_path_exists(dir)) {
        LS_TRY(ls_dir_list(arena, dir, &names, &count));
    }
    if (count > 0) {
        return ls_fail(LS_ERR_INVALID, "%s is not empty: choose another DIR", dir);
    }
    return ls_dir_create(dir);
}

ls_status ls_new_run(ls_arena *arena, const ls_new_options *options, json_t **result_out)
{
    new_run n = {.arena = arena,
                 .options = options,
                 .name = ls_path_basename(ls_path_trim(arena, options->dir)),
                 .file = ls_path_join(arena, options->dir, "train.yaml"),
                 .template = "",
                 .data = whole_path(arena, options->data),
                 .model = whole_path(arena, options->model),
                 .available = ls_memory_available()};
    json_t *plan = NULL;
    LS_TRY(check_options(options));
    LS_TRY(make_dir(arena, options->dir));
    ls_status status = look(&n);
    status = status == LS_OK ? choose_way(&n, &plan) : status;
    if (status == LS_OK) {
        *result_out = result_of(&n, plan);
    } else {
        const char *why = ls_arena_strdup(arena, ls_error_text());
        const char *hint = strstr(why, "data.prompt_field")
                               ? ". Such keys are set with --set data.prompt_field=KEY --set "
                                 "data.completion_field=KEY"
                           : strstr(why, "data.bad_records") || strstr(why, "data.format")
                               ? ". Such a key is set with --set, as in --set data.bad_records=skip"
                               : "";
        const bool is_removed = ls_dir_remove(options->dir) == LS_OK;
        (void)ls_fail(status, "%s%s%s", why, hint,
                      is_removed ? "" : " (and the new folder could not be removed)");
    }
    json_decref(plan);
    return status;
}
