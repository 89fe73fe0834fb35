// SPDX-License-Identifier: Apache-2.0
#include "planning/accuracy/published.h"

#include "base/assert.h"
#include "planning/accuracy/published_internal.h"
#include "planning/hardware/data_file.h"
#include "planning/step/step_time.h"

#include <string.h>
#include <strings.h>

#define COUNT_MAX 1000000000 /* upper limit of any count: GPUs, layers, sequences, tokens */

const char *ls_published_text(ls_published_reader *r, const char *column)
{
    return ls_csv_text(r->csv, r->row, column);
}

double ls_published_number(ls_published_reader *r, const char *column)
{
    double value = 0;
    if (ls_csv_f64(r->csv, r->row, column, 0, 1e18, 0, &value) != LS_OK && !r->flaw) {
        r->flaw = ls_arena_strdup(r->arena, ls_error_text());
    }
    return value;
}

int64_t ls_published_count(ls_published_reader *r, const char *column)
{
    int64_t value = 0;
    if (ls_csv_i64(r->csv, r->row, column, 0, COUNT_MAX, 0, &value) != LS_OK && !r->flaw) {
        r->flaw = ls_arena_strdup(r->arena, ls_error_text());
    }
    return value;
}

bool ls_published_has(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

void ls_published_assume(ls_published_reader *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (r->assumed.bytes > 0) {
        ls_text_append(&r->assumed, ", ");
    }
    ls_text_vprintf(&r->assumed, format, args);
    va_end(args);
}

/* ---- what was measured ---- */

static double convention_flops(ls_published_reader *r, const char *kind)
{
    const ls_setting *setting = &r->run->setting;
    const double sequences = (double)setting->global_batch;
    if (ls_published_has(kind, "hardware(96")) {
        const ls_model_config *c = &r->run->shape->config;
        const double h = (double)c->width, s = (double)setting->length, layers = (double)c->layers;
        return 96 * sequences * s * layers * h * h * (1 + s / (6 * h) + (double)c->vocab / (16 * layers * h));
    }
    const bool bridge = strncmp(r->run->source, "MBRIDGE", 7) == 0;
    return 3 * sequences *
           ls_shape_forward_flops(r->run->shape, setting->length,
                                  bridge ? LS_FLOPS_CAUSAL : LS_FLOPS_FULL_ATTENTION);
}

static double measured_step_s(ls_published_reader *r)
{
    const ls_setting *setting = &r->run->setting;
    const double gpus = (double)setting->gpus;
    const double tokens = (double)(setting->global_batch * setting->length);
    if (ls_published_number(r, "iter_time_s") > 0) {
        return ls_published_number(r, "iter_time_s");
    }
    if (ls_published_number(r, "tokens_per_s_total") > 0) {
        return tokens / ls_published_number(r, "tokens_per_s_total");
    }
    if (ls_published_number(r, "tokens_per_s_per_gpu") > 0) {
        return tokens / (ls_published_number(r, "tokens_per_s_per_gpu") * gpus);
    }
    const double flops = convention_flops(r, ls_published_text(r, "tflops_kind"));
    if (ls_published_number(r, "tflops_per_gpu") > 0) {
        return flops / (ls_published_number(r, "tflops_per_gpu") * 1e12 * gpus);
    }
    const double peak = ls_peak_flops(setting->node->accelerator, setting->precision);
    return ls_published_number(r, "mfu_pct") > 0
               ? flops / (ls_published_number(r, "mfu_pct") / 100 * peak * gpus)
               : 0;
}

/* Where only the HFU is known: the FLOPs include what the row's strategy recomputes, as our own HFU
 * does. */
static void measure_by_hardware_flops(ls_published_reader *r)
{
    ls_published_run *run = r->run;
    const double hfu = ls_published_number(r, "hfu_pct") / 100;
    if (run->measured_step_s > 0 || hfu <= 0) {
        return;
    }
    const ls_setting *setting = &run->setting;
    ls_estimate estimate;
    ls_estimate_compute(setting, &run->strategy, &estimate);
    run->measured_step_s =
        estimate.hardware_flops /
        (hfu * ls_peak_flops(setting->node->accelerator, setting->precision) * (double)setting->gpus);
    ls_published_assume(r, "its step from the HFU, with %s recompute",
                        ls_recompute_name(run->strategy.recompute));
}

/* ---- rows ---- */

static void read_batch(ls_published_reader *r)
{
    ls_setting *setting = &r->run->setting;
    const ls_strategy *s = &r->request.strategy;
    setting->global_batch = ls_published_count(r, "global_batch");
    if (setting->global_batch > 0) {
        return;
    }
    const int64_t data = s->dp > 0 ? s->dp : setting->gpus;
    const int64_t local = ls_published_count(r, "micro_batch") > 0 ? ls_published_count(r, "micro_batch") : 4;
    setting->global_batch = data * local;
    ls_published_assume(r, "a batch of %lld sequences", (long long)setting->global_batch);
}

static void read_length(ls_published_reader *r)
{
    r->run->setting.length = ls_published_count(r, "seq_len");
    if (r->run->setting.length == 0) {
        r->run->setting.length = 2048;
        ls_published_assume(r, "2048 tokens a sequence");
    }
}

static void finish_run(ls_published_reader *r)
{
    ls_published_run *run = r->run;
    if (r->flaw) {
        run->left_out = r->flaw; /* consequences of reading 0 there are not a reason */
    }
    if (run->left_out == NULL) {
        run->setting.shape = run->shape;
        run->setting.stack = &run->stack;
        run->given = r->request;
        ls_published_choose_blanks(r);
    }
    if (run->left_out == NULL) {
        measure_by_hardware_flops(r);
        run->left_out = r->flaw;
    }
    run->assumed = r->assumed.bytes > 0 ? ls_arena_strdup(r->arena, ls_text_string(&r->assumed)) : NULL;
    ls_text_clear(&r->assumed);
}

/* torchtitan's asynchronous tensor parallelism hides a quarter of the communication, according to
 * the only pair of runs that shows it. */
static void read_async_tensor(ls_published_reader *r)
{
    if (ls_published_has(r->run->model, "AsyncTP")) {
        const ls_status status = ls_stack_set(&r->run->stack, "tp_overlap=0.25");
        LS_ASSERT(status == LS_OK);
        ls_published_assume(r, "asynchronous tensor parallelism hides a quarter of its communication");
    }
}

static bool says_yes(const char *text)
{
    static const char *const words[] = {"1", "1.0", "true", "yes"};
    bool yes = false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        yes = yes || strcasecmp(text, words[i]) == 0;
    }
    return yes;
}

static void read_run(ls_published_reader *r)
{
    ls_published_run *run = r->run;
    run->source = ls_published_text(r, "source_id");
    run->model = ls_published_text(r, "model");
    run->accelerator = ls_published_text(r, "accelerator");
    run->fully_specified = says_yes(ls_published_text(r, "fully_specified"));
    run->stack_name = ls_published_text(r, "stack");
    const bool eager = ls_published_has(ls_published_text(r, "precision"), "eager") &&
                       ls_published_has(run->stack_name, "torchtitan");
    run->setting.gpus = ls_published_count(r, "n_accel");
    run->setting.precision = ls_published_read_precision(r);
    run->measured_memory_bytes = ls_published_number(r, "mem_gib") * 1073741824.0;
    if (run->setting.gpus < 1) {
        run->left_out = "how many accelerators it ran on is not given";
        return;
    }
    if (!ls_published_read_machine(r, run->accelerator, eager ? "torchtitan-eager" : run->stack_name) ||
        !ls_published_read_shape(r, ls_published_shape_text(r))) {
        return;
    }
    run->setting.shape = run->shape;
    if (!run->stack_name[0]) {
        run->stack_name = run->stack.name;
    }
    read_async_tensor(r);
    if (ls_published_has(ls_published_text(r, "precision"), "fp4")) {
        run->left_out = "NVFP4 is not modelled";
        return;
    }
    read_length(r);
    ls_published_read_strategy(r);
    if (run->left_out) {
        return;
    }
    read_batch(r);
    if (!r->flaw) {
        run->measured_step_s = measured_step_s(r);
    }
}

/* vTrain's header begins with "# GPUs", which would be a comment: what comes before the word is
 * passed over. */
static const char *past_hash(const char *text)
{
    static const char mark[] = "\xef\xbb\xbf";
    const char *at = strncmp(text, mark, 3) == 0 ? text + 3 : text;
    return strncmp(at, "# GPUs,", 7) == 0 ? at + 2 : text;
}

/* The column's name where it is not the first, or is in quotes. */
static const char *vtrain_gpus(const ls_csv *csv)
{
    return ls_csv_column(csv, "GPUs") >= 0 ? "GPUs" : "# GPUs";
}

static bool has_columns(const ls_csv *csv, const char *const *columns, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += ls_csv_column(csv, columns[i]) >= 0;
    }
    return found == count;
}

/* Required columns; any others may be missing, and their values are chosen. */
static bool is_vtrain(const ls_csv *csv)
{
    static const char *const needed[] = {"hidden size", "# layers", "global batch", "sequence length",
                                         "iteration time (ms)"};
    return ls_csv_column(csv, vtrain_gpus(csv)) >= 0 &&
           has_columns(csv, needed, sizeof(needed) / sizeof(needed[0]));
}

static bool is_ours(const ls_csv *csv)
{
    static const char *const needed[] = {"accelerator", "n_accel"};
    static const char *const models[] = {"model", "params_b", "layers"};
    static const char *const rates[] = {
        "iter_time_s", "tokens_per_s_total", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "hfu_pct",
        "mem_gib"};
    bool model = false, rate = false;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        model = model || ls_csv_column(csv, models[i]) >= 0;
    }
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        rate = rate || ls_csv_column(csv, rates[i]) >= 0;
    }
    return has_columns(csv, needed, sizeof(needed) / sizeof(needed[0])) && model && rate;
}

/* vTrain's cluster: nodes of eight A100 80 GB and four 200 Gb/s NICs. */
static const ls_node *vtrain_node(ls_published_reader *r, const ls_node *usual)
{
    ls_node *node = ls_arena_new(r->arena, ls_node, 1);
    *node = *usual;
    node->name = "vTrain's node";
    node->nic_bytes_ps = 12.5e9;
    return node;
}

static void read_vtrain_run(ls_published_reader *r)
{
    ls_published_run *run = r->run;
    const int64_t hidden = ls_published_count(r, "hidden size"), layers = ls_published_count(r, "# layers");
    run->source = "vTrain";
    run->model = ls_arena_printf(r->arena, "GPT %lld x %lld", (long long)layers, (long long)hidden);
    run->accelerator = "A100-SXM4-80GB";
    run->stack_name = "megatron-2023";
    run->fully_specified = true;
    run->setting.gpus = ls_published_count(r, vtrain_gpus(r->csv));
    run->setting.length = ls_published_count(r, "sequence length");
    run->setting.global_batch = ls_published_count(r, "global batch");
    run->setting.precision = LS_PLAN_FP16;
    run->measured_step_s = ls_published_number(r, "iteration time (ms)") / 1e3;
    int64_t heads = ls_published_count(r, "attention heads");
    if (r->flaw) {
        return;
    }
    if (run->setting.gpus < 1 || run->setting.length < 1 || run->setting.global_batch < 1) {
        run->left_out = "GPUs, global batch and sequence length must be 1 or more";
        return;
    }
    if (heads == 0) {
        heads = hidden >= 128 ? hidden / 128 : 1;
        ls_published_assume(r, "%lld heads", (long long)heads);
    }
    const char *text =
        ls_arena_printf(r->arena, "layers=%lld,hidden=%lld,heads=%lld,ffn=%lld,vocab=51200,mlp=gelu,tied=1",
                        (long long)layers, (long long)hidden, (long long)heads, (long long)(4 * hidden));
    if (!ls_published_read_machine(r, run->accelerator, run->stack_name) ||
        !ls_published_read_shape(r, text)) {
        return;
    }
    run->setting.node = vtrain_node(r, run->setting.node);
    r->request = (ls_strategy_request){.strategy = {.tp = ls_published_count(r, "tensor parallelism"),
                                                    .pp = ls_published_count(r, "pipeline parallelism"),
                                                    .dp = ls_published_count(r, "data parallelism"),
                                                    .cp = 1,
                                                    .ep = 1,
                                                    .vpp = 1,
                                                    .micro_batch = ls_published_count(r, "micro batch")},
                                       .has_zero = true,
                                       .has_recompute = true,
                                       .has_sequence_parallel = true,
                                       .has_schedule = true};
    ls_published_check_product(r);
}

/* Constants were fitted on every second row of a source, and every sixth of vTrain's. */
static void mark_held_out(ls_published *published, bool vtrain)
{
    const char *source = NULL;
    size_t place = 0;
    for (size_t i = 0; i < published->count; i++) {
        ls_published_run *run = &published->runs[i];
        place = source && strcmp(source, run->source) == 0 ? place + 1 : 0;
        source = run->source;
        run->held_out = place % (vtrain ? 6 : 2) != 0;
    }
}

/* At least one row must remain. */
static ls_status check_any_usable(const ls_published *published)
{
    for (size_t i = 0; i < published->count; i++) {
        if (!published->runs[i].left_out) {
            return LS_OK;
        }
    }
    if (published->count == 0) {
        return ls_fail(LS_ERR_DATA, "%s: the table has column names but no runs", published->name);
    }
    return ls_fail(LS_ERR_DATA,
                   "%s: none of its %zu runs can be predicted; the reason for the one on line %u: %s",
                   published->name, published->count, published->runs[0].line, published->runs[0].left_out);
}

ls_status ls_published_parse(ls_arena *arena, const ls_catalogue *catalogue, const char *text, size_t bytes,
                             const char *name, ls_published *published_out)
{
    const char *table = past_hash(text);
    ls_csv csv;
    LS_TRY(ls_csv_parse_rows(arena, table, bytes - (size_t)(table - text), name, &csv));
    const bool vtrain = is_vtrain(&csv);
    if (!vtrain && !is_ours(&csv)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: neither the columns of data/published_runs.csv (needed: accelerator, n_accel, "
                       "one of model, params_b, layers, and a measurement as iter_time_s) nor those of "
                       "vTrain's tables (needed: # GPUs, global batch, hidden size, # layers, sequence "
                       "length, iteration time (ms))",
                       name);
    }
    ls_published published = {.name = ls_arena_strdup(arena, name),
                              .runs = ls_arena_new(arena, ls_published_run, csv.row_count),
                              .count = csv.row_count};
    ls_published_reader r = {.arena = arena, .catalogue = catalogue, .csv = &csv};
    for (size_t i = 0; i < csv.row_count; i++) {
        r.row = &csv.rows[i];
        r.run = &published.runs[i];
        *r.run = (ls_published_run){.line = r.row->line,
                                    .source = "",
                                    .model = "",
                                    .accelerator = "",
                                    .stack_name = "",
                                    .left_out = r.row->flaw};
        r.request = (ls_strategy_request){0};
        r.flaw = NULL;
        if (!r.row->flaw) {
            vtrain ? read_vtrain_run(&r) : read_run(&r);
            finish_run(&r);
        }
    }
    ls_text_release(&r.assumed);
    ls_error_clear();
    LS_TRY(check_any_usable(&published));
    mark_held_out(&published, vtrain);
    *published_out = published;
    return LS_OK;
}

ls_status ls_published_shipped(ls_arena *arena, const ls_catalogue *catalogue, ls_published *published_out)
{
    const ls_embedded_file *file = ls_data_file_find("published_runs.csv");
    return ls_published_parse(arena, catalogue, file->text, file->bytes, file->name, published_out);
}
