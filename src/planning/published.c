// SPDX-License-Identifier: Apache-2.0
#include "planning/published.h"

#include "base/assert.h"
#include "base/csv.h"
#include "planning/data_file.h"
#include "planning/memory.h"
#include "planning/search.h"
#include "planning/step_time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What one file's rows are read with. */
typedef struct reader {
    ls_arena *arena;
    const ls_catalogue *catalogue;
    const ls_csv *csv;
    const ls_csv_row *row;
    ls_published_run *run;
    ls_strategy_request request;
    ls_text assumed;
    ls_status status;  /* of the first cell that is no number */
    const char *error; /* its message: later rows may fail in other ways */
} reader;

static const char *text_of(reader *r, const char *column)
{
    return ls_csv_text(r->csv, r->row, column);
}

static double number(reader *r, const char *column)
{
    double value = 0;
    const ls_status status = ls_csv_f64(r->csv, r->row, column, 0, 1e18, 0, &value);
    if (status != LS_OK && r->status == LS_OK) {
        r->status = status;
        r->error = ls_arena_strdup(r->arena, ls_error_text());
    }
    return value;
}

static int64_t count(reader *r, const char *column)
{
    return (int64_t)(number(r, column) + 0.5);
}

static bool has(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

static void assume(reader *r, const char *format, ...) LS_PRINTF(2, 3);
static void assume(reader *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (r->assumed.bytes > 0) {
        ls_text_append(&r->assumed, ", ");
    }
    ls_text_vprintf(&r->assumed, format, args);
    va_end(args);
}

/* ---- model ---- */

/* Models whose sizes sources don't repeat, by a part of their name. */
static const char *const known_models[][2] = {
    {"Qwen3_30B", "layers=48,hidden=2048,heads=32,kv_heads=4,head_dim=128,ffn=6144,vocab=151936,mlp=swiglu,"
                  "experts=128,active=8,expert_ffn=768"},
    {"Qwen3_235B", "layers=94,hidden=4096,heads=64,kv_heads=4,head_dim=128,ffn=12288,vocab=151936,mlp=swiglu,"
                   "experts=128,active=8,expert_ffn=1536"},
    {"GPT OSS 120B", "layers=36,hidden=2880,heads=64,kv_heads=8,head_dim=64,ffn=2880,vocab=201088,mlp=swiglu,"
                     "experts=128,active=4,expert_ffn=2880"},
    {"DeepSeek-V3", "deepseek-v3"},
};

static double multiple(double value, double of)
{
    return fmax(1, round(value / of)) * of;
}

/* A model of which only the parameters are known: layers of 128 wide heads, 128 times as wide as deep, such that the row's strategy can cut it. */
static const char *guess_sizes(reader *r, double parameters)
{
    const double heads_of = fmax(1, number(r, "tp")), layers_of = fmax(1, number(r, "pp"));
    const double hidden = multiple(cbrt(parameters * 128 / 12), 128 * heads_of);
    const double layers = multiple(parameters / (12 * hidden * hidden), layers_of);
    assume(r, "sizes from the parameters: %.0f layers of width %.0f", layers, hidden);
    return ls_arena_printf(r->arena,
                           "layers=%.0f,hidden=%.0f,heads=%.0f,ffn=%.0f,vocab=51200,mlp=gelu,tied=1", layers,
                           hidden, hidden / 128, 4 * hidden);
}

static const char *shape_text(reader *r)
{
    const int64_t layers = count(r, "layers"), hidden = count(r, "hidden");
    for (size_t i = 0; i < sizeof(known_models) / sizeof(known_models[0]); i++) {
        if (has(r->run->model, known_models[i][0])) {
            return known_models[i][1];
        }
    }
    const double parameters = number(r, "params_b") * 1e9;
    if (layers == 0 || hidden == 0) {
        return parameters > 0 ? guess_sizes(r, parameters) : NULL;
    }
    const int64_t heads = count(r, "heads") > 0 ? count(r, "heads") : hidden / 128;
    const int64_t kv_heads = count(r, "kv_heads") > 0 ? count(r, "kv_heads") : heads;
    const bool llama = has(r->run->model, "llama") || has(r->run->model, "qwen") ||
                       has(r->run->model, "mistral") || kv_heads != heads;
    const int64_t ffn = count(r, "ffn") > 0 ? count(r, "ffn")
                        : llama             ? (hidden * 8 / 3 + 63) / 64 * 64
                                            : 4 * hidden;
    const int64_t vocab = count(r, "vocab") > 0 ? count(r, "vocab") : 50304;
    return ls_arena_printf(
        r->arena,
        "layers=%lld,hidden=%lld,heads=%lld,kv_heads=%lld,ffn=%lld,vocab=%lld,mlp=%s,tied=%d,seq=%lld",
        (long long)layers, (long long)hidden, (long long)heads, (long long)kv_heads, (long long)ffn,
        (long long)vocab, llama ? "swiglu" : "gelu", !llama, (long long)fmax(1, number(r, "seq_len")));
}

/* Where a source is unsure of the layers and its parameters say otherwise, those are right: 0, or the layers there must be. */
static int64_t layers_by_parameters(reader *r, const ls_shape *shape)
{
    const double parameters = number(r, "params_b") * 1e9, layers = (double)shape->config.layers;
    const double layer = (double)(shape->layer_matrices + shape->layer_vectors + shape->layer_experts);
    const double must = layers + (parameters - (double)shape->parameters) / layer;
    const bool unsure = strstr(text_of(r, "unsure_cells"), "layers") != NULL && shape->moe.experts == 0;
    return unsure && parameters > 0 && fabs(must / layers - 1) > 0.1 && must > 1 ? (int64_t)(must + 0.5) : 0;
}

static bool read_shape(reader *r, const char *text)
{
    ls_shape *shape = ls_arena_new(r->arena, ls_shape, 1);
    if (!text || ls_shape_parse(r->arena, text, shape) != LS_OK) {
        r->run->left_out =
            text ? ls_arena_strdup(r->arena, ls_error_text()) : "no sizes of the model are known";
        return false;
    }
    r->run->shape = shape;
    const int64_t layers = layers_by_parameters(r, shape);
    const char *rest = strchr(text, ',');
    if (layers > 0 && rest && strncmp(text, "layers=", 7) == 0) {
        assume(r, "%lld layers, as the parameters say", (long long)layers);
        return read_shape(r, ls_arena_printf(r->arena, "layers=%lld%s", (long long)layers, rest));
    }
    return true;
}

/* ---- machine ---- */

static bool read_machine(reader *r, const char *accelerator_name, const char *stack_name)
{
    const ls_accelerator *accelerator = NULL;
    if (ls_catalogue_find_accelerator(r->catalogue, accelerator_name, &accelerator) != LS_OK ||
        ls_stack_find(stack_name, accelerator, &r->run->stack, NULL) != LS_OK) {
        r->run->left_out = ls_arena_strdup(r->arena, ls_error_text());
        return false;
    }
    r->run->setting.node = ls_catalogue_usual_node(r->catalogue, r->arena, accelerator);
    return true;
}

static ls_plan_precision read_precision(reader *r)
{
    const char *text = text_of(r, "precision");
    if (has(text, "fp8") || has(text, "fp4")) {
        return LS_PLAN_FP8;
    }
    return has(text, "fp16") ? LS_PLAN_FP16 : has(text, "fp32") ? LS_PLAN_FP32 : LS_PLAN_BF16;
}

/* ---- strategy ---- */

static void read_sharding(reader *r)
{
    const char *text = text_of(r, "sharding");
    r->request.has_zero = *text != '\0';
    r->request.strategy.zero = has(text, "FULL_SHARD") || has(text, "FSDP") || has(text, "ZeRO-3") ? 3
                               : has(text, "SHARD_GRAD_OP") || has(text, "ZeRO-2")                 ? 2
                               : has(text, "ZeRO-1") || has(text, "dist-optimizer")                ? 1
                                                                                                   : 0;
}

static void read_recompute(reader *r)
{
    const char *text = text_of(r, "recompute");
    r->request.has_recompute = *text != '\0';
    r->request.strategy.recompute = has(text, "full")        ? LS_RECOMPUTE_FULL
                                    : has(text, "selective") ? LS_RECOMPUTE_SELECTIVE
                                                             : LS_RECOMPUTE_NONE;
    /* Stacks since 2022 split norms along the sequence wherever they split matrices. */
    const bool old = strcmp(r->run->stack.name, "megatron-2021") == 0;
    r->request.has_sequence_parallel = true;
    r->request.strategy.sequence_parallel =
        r->request.strategy.tp > 1 && (has(text, "sequence-parallel") || !old);
}

/* torchtitan's batch is what a rank gets per step; a pipeline splits it into as many micro-batches as it has stages. */
static void split_local_batch(reader *r)
{
    ls_strategy *s = &r->request.strategy;
    if (strncmp(r->run->stack.name, "torchtitan", 10) != 0 || s->pp <= 1 || s->micro_batch < s->pp) {
        return;
    }
    s->micro_batch /= s->pp;
    assume(r, "local batch in %lld micro-batches, torchtitan's default", (long long)s->pp);
    if (s->vpp == 0) {
        s->vpp = has(r->run->model, "interleaved") ? 2 : 1;
        assume(r, "%lld virtual stages", (long long)s->vpp);
    }
}

static void read_strategy(reader *r)
{
    ls_strategy *s = &r->request.strategy;
    *s = (ls_strategy){.tp = count(r, "tp"),
                       .pp = count(r, "pp"),
                       .dp = count(r, "dp"),
                       .cp = count(r, "cp"),
                       .ep = count(r, "ep"),
                       .vpp = count(r, "vpp"),
                       .micro_batch = count(r, "micro_batch")};
    r->request.has_schedule = true;
    read_sharding(r);
    read_recompute(r);
    if (s->pp == 1) {
        s->vpp = 1;
    }
    if (r->run->shape->moe.experts == 0) {
        s->ep = 1;
    }
    if (s->tp > 0 && s->pp > 0 && s->cp == 0) {
        const int64_t model = s->tp * s->pp;
        s->cp =
            s->dp > 0 && r->run->setting.gpus > model * s->dp ? r->run->setting.gpus / (model * s->dp) : 1;
    }
    if (s->tp > 0 && s->pp > 0) {
        s->dp = r->run->setting.gpus / (s->tp * s->pp * s->cp);
    }
    split_local_batch(r);
    if (s->vpp == 0 && strcmp(r->run->stack.name, "megatron-2021") == 0 && s->zero > 0) {
        s->vpp = 1;
        assume(r, "no interleaving: sharded means Megatron-DeepSpeed, which has none");
    }
}

/* What other programs count differently: layers of embedding and head as virtual stages, experts over the tensor parallel ranks too. */
static void fit_to_our_rules(reader *r)
{
    ls_strategy *s = &r->request.strategy;
    const int64_t layers = r->run->shape->config.layers;
    if (s->pp > 1 && s->pp * s->vpp > layers && s->pp <= layers) {
        s->vpp = layers / s->pp;
        assume(r, "%lld virtual stages, one to a layer", (long long)s->vpp);
    }
    if (s->ep > 1 && s->dp > 0 && s->cp > 0 && s->ep > s->dp * s->cp) {
        s->ep = s->dp * s->cp;
        assume(r, "experts over %lld", (long long)s->ep);
    }
}

static bool is_open_but_recompute(const ls_strategy_request *request)
{
    ls_strategy_request closed = *request;
    closed.has_recompute = true;
    return !ls_strategy_is_complete(&closed);
}

/* How much more than the memory a run that fitted may take by our count: we may be off by a tenth, fp8 keeps inputs of products in one byte, and what has a Grace CPU
 * beside it (GB200, GB300) can keep activations there. */
static double known_to_fit(const ls_setting *setting)
{
    if (strncmp(setting->node->accelerator->name, "GB", 2) == 0) {
        return 2.5;
    }
    return setting->precision == LS_PLAN_FP8 ? 1.4 : 1.1;
}

/* A run that is known to have fitted, of which only recompute is open, recomputed no more than it had to. */
static void choose_recompute(reader *r)
{
    static const ls_recompute kinds[] = {LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL};
    static const char *const names[] = {"no", "selective", "full"};
    for (size_t i = 0; i < 3; i++) {
        ls_memory_estimate memory;
        r->request.strategy.recompute = kinds[i];
        ls_memory_compute(&r->run->setting, &r->request.strategy, &memory);
        if (memory.total <= known_to_fit(&r->run->setting) * memory.capacity || i == 2) {
            assume(r, "%s recompute", names[i]);
            break;
        }
    }
    r->request.has_recompute = true;
}

/* By our memory it fits nowhere, and yet it ran: what takes the least, where the cut is known. */
static void ran_anyway(reader *r)
{
    ls_strategy *s = &r->request.strategy;
    if (s->tp == 0 || s->pp == 0 || s->dp == 0) {
        r->run->left_out = ls_arena_strdup(r->arena, ls_error_text());
        return;
    }
    *s = (ls_strategy){.tp = s->tp,
                       .pp = s->pp,
                       .dp = s->dp,
                       .cp = s->cp,
                       .ep = s->ep > 0 ? s->ep : 1,
                       .vpp = s->vpp > 0 ? s->vpp : 1,
                       .micro_batch = s->micro_batch > 0 ? s->micro_batch : 1,
                       .zero = r->request.has_zero ? s->zero : r->run->stack.distributed_optimizer,
                       .recompute = r->request.has_recompute ? s->recompute : LS_RECOMPUTE_FULL,
                       .sequence_parallel = s->sequence_parallel};
    r->run->strategy = *s;
    assume(r, "what takes the least memory, for by our count nothing fits");
}

/* What is still open is chosen by search: the fastest that fits. */
static void choose_blanks(reader *r)
{
    ls_published_run *run = r->run;
    fit_to_our_rules(r);
    if (!r->request.has_recompute && !is_open_but_recompute(&r->request)) {
        choose_recompute(r);
    }
    if (ls_strategy_is_complete(&r->request)) {
        run->strategy = r->request.strategy;
        return;
    }
    static _Thread_local ls_search_result result;
    const ls_search_options options = {.request = r->request};
    if (ls_search_run(&run->setting, &options, &result) != LS_OK) {
        ran_anyway(r);
        return;
    }
    run->strategy = result.best.strategy;
    char text[160];
    ls_strategy_describe(&run->strategy, text, sizeof(text));
    assume(r, "the fastest that fits: %s", text);
}

/* ---- what was measured ---- */

static double convention_flops(reader *r, const char *kind)
{
    const ls_setting *setting = &r->run->setting;
    const double sequences = (double)setting->global_batch;
    if (has(kind, "hardware(96")) {
        const ls_model_config *c = &r->run->shape->config;
        const double h = (double)c->width, s = (double)setting->length, layers = (double)c->layers;
        return 96 * sequences * s * layers * h * h * (1 + s / (6 * h) + (double)c->vocab / (16 * layers * h));
    }
    const bool bridge = strncmp(r->run->source, "MBRIDGE", 7) == 0;
    return 3 * sequences *
           ls_shape_forward_flops(r->run->shape, setting->length,
                                  bridge ? LS_FLOPS_CAUSAL : LS_FLOPS_FULL_ATTENTION);
}

static double measured_step_s(reader *r)
{
    const ls_setting *setting = &r->run->setting;
    const double gpus = (double)setting->gpus;
    const double tokens = (double)(setting->global_batch * setting->length);
    if (number(r, "iter_time_s") > 0) {
        return number(r, "iter_time_s");
    }
    if (number(r, "tokens_per_s_total") > 0) {
        return tokens / number(r, "tokens_per_s_total");
    }
    if (number(r, "tokens_per_s_per_gpu") > 0) {
        return tokens / (number(r, "tokens_per_s_per_gpu") * gpus);
    }
    const double flops = convention_flops(r, text_of(r, "tflops_kind"));
    if (number(r, "tflops_per_gpu") > 0) {
        return flops / (number(r, "tflops_per_gpu") * 1e12 * gpus);
    }
    const double peak = ls_peak_flops(setting->node->accelerator, setting->precision);
    return number(r, "mfu_pct") > 0 ? flops / (number(r, "mfu_pct") / 100 * peak * gpus) : 0;
}

/* ---- rows ---- */

static void read_batch(reader *r)
{
    ls_setting *setting = &r->run->setting;
    const ls_strategy *s = &r->request.strategy;
    setting->global_batch = count(r, "global_batch");
    if (setting->global_batch > 0) {
        return;
    }
    const int64_t data = s->dp > 0 ? s->dp : setting->gpus;
    const int64_t local = count(r, "micro_batch") > 0 ? count(r, "micro_batch") : 4;
    setting->global_batch = data * local;
    assume(r, "a batch of %lld sequences", (long long)setting->global_batch);
}

static void read_length(reader *r)
{
    r->run->setting.length = count(r, "seq_len");
    if (r->run->setting.length == 0) {
        r->run->setting.length = 2048;
        assume(r, "2048 tokens a sequence");
    }
}

static void finish_run(reader *r)
{
    ls_published_run *run = r->run;
    if (run->left_out == NULL) {
        run->setting.shape = run->shape;
        run->setting.stack = &run->stack;
        choose_blanks(r);
    }
    run->assumed = r->assumed.bytes > 0 ? ls_arena_strdup(r->arena, ls_text_string(&r->assumed)) : NULL;
    ls_text_clear(&r->assumed);
}

/* torchtitan's asynchronous tensor parallelism: a quarter of the communication hides, by the one pair of runs that tell. */
static void read_async_tensor(reader *r)
{
    if (has(r->run->model, "AsyncTP")) {
        const ls_status status = ls_stack_set(&r->run->stack, "tp_overlap=0.25");
        LS_ASSERT(status == LS_OK);
        assume(r, "asynchronous tensor parallelism hides a quarter of its communication");
    }
}

static void read_run(reader *r)
{
    ls_published_run *run = r->run;
    run->source = text_of(r, "source_id");
    run->model = text_of(r, "model");
    run->accelerator = text_of(r, "accelerator");
    run->fully_specified = strcmp(text_of(r, "fully_specified"), "1") == 0;
    run->stack_name = text_of(r, "stack");
    const bool eager = has(text_of(r, "precision"), "eager") && has(run->stack_name, "torchtitan");
    run->setting.gpus = count(r, "n_accel");
    run->setting.precision = read_precision(r);
    run->measured_memory_bytes = number(r, "mem_gib") * 1073741824.0;
    if (!read_machine(r, run->accelerator, eager ? "torchtitan-eager" : run->stack_name) ||
        !read_shape(r, shape_text(r))) {
        return;
    }
    run->setting.shape = run->shape;
    read_async_tensor(r);
    if (has(text_of(r, "precision"), "fp4")) {
        run->left_out = "NVFP4 is not modelled";
        return;
    }
    read_length(r);
    read_strategy(r);
    read_batch(r);
    run->measured_step_s = measured_step_s(r);
}

static const char *const vtrain_columns[] = {"GPUs",
                                             "global batch",
                                             "micro batch",
                                             "hidden size",
                                             "attention heads",
                                             "# layers",
                                             "sequence length",
                                             "tensor parallelism",
                                             "data parallelism",
                                             "pipeline parallelism",
                                             "iteration time (ms)"};

/* vTrain's header begins with "# GPUs", which would be a comment: what comes before the word is passed over. */
static const char *past_hash(const char *text)
{
    static const char mark[] = "\xef\xbb\xbf";
    const char *at = strncmp(text, mark, 3) == 0 ? text + 3 : text;
    return strncmp(at, "# GPUs,", 7) == 0 ? at + 2 : text;
}

static bool is_vtrain(const ls_csv *csv)
{
    for (size_t i = 0; i < sizeof(vtrain_columns) / sizeof(vtrain_columns[0]); i++) {
        if (ls_csv_column(csv, vtrain_columns[i]) < 0) {
            return false;
        }
    }
    return true;
}

/* vTrain's cluster: nodes of eight A100 80 GB and four 200 Gb/s NICs. */
static const ls_node *vtrain_node(reader *r, const ls_node *usual)
{
    ls_node *node = ls_arena_new(r->arena, ls_node, 1);
    *node = *usual;
    node->name = "vTrain's node";
    node->nic_bytes_ps = 12.5e9;
    return node;
}

static void read_vtrain_run(reader *r)
{
    ls_published_run *run = r->run;
    const int64_t hidden = count(r, "hidden size"), layers = count(r, "# layers");
    run->source = "vTrain";
    run->model = ls_arena_printf(r->arena, "GPT %lld x %lld", (long long)layers, (long long)hidden);
    run->accelerator = "A100-SXM4-80GB";
    run->stack_name = "megatron-2023";
    run->fully_specified = true;
    run->setting.gpus = count(r, "GPUs");
    run->setting.length = count(r, "sequence length");
    run->setting.global_batch = count(r, "global batch");
    run->setting.precision = LS_PLAN_FP16;
    const char *text =
        ls_arena_printf(r->arena, "layers=%lld,hidden=%lld,heads=%lld,ffn=%lld,vocab=51200,mlp=gelu,tied=1",
                        (long long)layers, (long long)hidden, (long long)count(r, "attention heads"),
                        (long long)(4 * hidden));
    if (!read_machine(r, run->accelerator, run->stack_name) || !read_shape(r, text)) {
        return;
    }
    run->setting.node = vtrain_node(r, run->setting.node);
    r->request = (ls_strategy_request){.strategy = {.tp = count(r, "tensor parallelism"),
                                                    .pp = count(r, "pipeline parallelism"),
                                                    .dp = count(r, "data parallelism"),
                                                    .cp = 1,
                                                    .ep = 1,
                                                    .vpp = 1,
                                                    .micro_batch = count(r, "micro batch")},
                                       .has_zero = true,
                                       .has_recompute = true,
                                       .has_sequence_parallel = true,
                                       .has_schedule = true};
    run->measured_step_s = number(r, "iteration time (ms)") / 1e3;
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

ls_status ls_published_parse(ls_arena *arena, const ls_catalogue *catalogue, const char *text, size_t bytes,
                             const char *name, ls_published *published_out)
{
    const char *table = past_hash(text);
    ls_csv csv;
    LS_TRY(ls_csv_parse(arena, table, bytes - (size_t)(table - text), name, &csv));
    const bool vtrain = is_vtrain(&csv);
    if (!vtrain && (ls_csv_column(&csv, "n_accel") < 0 || ls_csv_column(&csv, "stack") < 0)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: neither the columns of data/published_runs.csv (n_accel, stack, ...) nor those "
                       "of vTrain's tables (# GPUs, global batch, ...)",
                       name);
    }
    ls_published published = {.name = ls_arena_strdup(arena, name),
                              .runs = ls_arena_new(arena, ls_published_run, csv.row_count),
                              .count = csv.row_count};
    reader r = {.arena = arena, .catalogue = catalogue, .csv = &csv, .status = LS_OK};
    for (size_t i = 0; i < csv.row_count && r.status == LS_OK; i++) {
        r.row = &csv.rows[i];
        r.run = &published.runs[i];
        r.run->line = r.row->line;
        r.request = (ls_strategy_request){0};
        vtrain ? read_vtrain_run(&r) : read_run(&r);
        finish_run(&r);
    }
    ls_text_release(&r.assumed);
    if (r.status != LS_OK) {
        return ls_fail(r.status, "%s", r.error);
    }
    mark_held_out(&published, vtrain);
    *published_out = published;
    return LS_OK;
}

ls_status ls_published_shipped(ls_arena *arena, const ls_catalogue *catalogue, ls_published *published_out)
{
    const ls_data_file *file = ls_data_file_find("published_runs.csv");
    return ls_published_parse(arena, catalogue, file->text, file->bytes, file->name, published_out);
}
