// SPDX-License-Identifier: Apache-2.0
/* This machine, as `lockstep calibrate` measured it. Its step time comes from the op plan that the
 * trainer would execute, not from the formulas for clusters. */
#include "planning/answer/answer_internal.h"
#include "planning/step/memory_own.h"
#include "planning/step/own_time.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define GEMM_SIDE    1024.0 /* side of the matrix product whose rate counts as the peak */
#define MICRO_MOST   4
#define MICRO_TOKENS 4096 /* largest micro-batch in tokens, unless a larger one is needed */

/* The machine as a node of the catalogue. Its power is not known. */
static const ls_node *describe_here(ls_arena *arena, double peak_flops)
{
    ls_accelerator *accelerator = ls_arena_new(arena, ls_accelerator, 1);
    ls_node *node = ls_arena_new(arena, ls_node, 1);
    *accelerator = (ls_accelerator){
        .name = LS_PLAN_HERE,
        .aliases = "",
        .generation = "cpu",
        .class = LS_CLASS_CPU,
        .bf16_flops = peak_flops,
        .tf32_flops = peak_flops,
        .memory_bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE),
        .scaleup_domain = 1,
        .price = {.date = "", .confidence = ""},
        .rent_hour = {.date = "", .confidence = ""},
        .notes = "",
    };
    *node = (ls_node){.name = LS_PLAN_HERE,
                      .aliases = "",
                      .accelerator = accelerator,
                      .count = 1,
                      .price = {.date = "", .confidence = ""},
                      .rent_hour = {.date = "", .confidence = ""},
                      .notes = ""};
    return node;
}

static double measure_peak(const ls_calibration *calibration)
{
    const double sizes[LS_WORK_AXES_MAX] = {GEMM_SIDE, GEMM_SIDE, GEMM_SIDE};
    return 2.0 * pow(GEMM_SIDE, 3.0) /
           ls_calibration_seconds(calibration, calibration->cores, 1, LS_WORK_GEMM_NT, sizes);
}

/* ---- what can be asked of it ---- */

static ls_status refuse(const char *option, const char *value, const char *allowed)
{
    return ls_fail(LS_ERR_UNSUPPORTED, "%s is %s; on this machine Lockstep trains with %s", option, value,
                   allowed);
}

static ls_status check_strategy(const ls_strategy_request *request)
{
    const ls_strategy *s = &request->strategy;
    const struct {
        const char *key;
        int64_t degree;
    } degrees[] = {{"tp", s->tp}, {"pp", s->pp}, {"dp", s->dp},
                   {"cp", s->cp}, {"ep", s->ep}, {"vpp", s->vpp}};
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        if (degrees[i].degree > 1) {
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "--strategy: %s is %" PRId64 "; this is a single machine, so tp, pp, dp, cp, ep "
                           "and vpp must be 1; only mb and recompute can be set",
                           degrees[i].key, degrees[i].degree);
        }
    }
    if (request->has_schedule && (s->schedule == LS_PIPELINE_ZB_H1 || s->schedule == LS_PIPELINE_ZB_H2)) {
        return refuse("--schedule", ls_pipeline_schedule_name(s->schedule),
                      "one pipeline stage, for which there is no schedule to choose");
    }
    return LS_OK;
}

/* Refuses what the trainer cannot do on this machine. */
static ls_status check_options(const ls_plan_answer *answer, const ls_strategy_request *request,
                               const ls_setting *setting)
{
    static const char *const precisions[] = {"bf16", "fp16", "fp8", "fp32", "tf32"};
    static const char *const optimizers[] = {"adamw", "adamw-no-master", "adamw-8bit", "sgd", "muon"};
    const char *stack = answer->asked->stack;
    if (setting->precision != LS_PLAN_FP32) {
        return refuse("the precision", precisions[setting->precision], "fp32 (--precision fp32)");
    }
    if (setting->optimizer != LS_PLAN_ADAMW) {
        return refuse("--optimizer", optimizers[setting->optimizer], "adamw");
    }
    if (stack[0] && strcmp(stack, "lockstep") != 0) {
        return refuse("--stack", stack, "itself, as it was calibrated (--stack lockstep, or leave it out)");
    }
    return check_strategy(request);
}

static ls_status check_model(const ls_setting *setting)
{
    const ls_shape *shape = setting->shape;
    if (shape->moe.experts != shape->config.experts || shape->latent.kv_rank > 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s cannot be trained on this machine: Lockstep trains no models with latent "
                       "attention, with shared experts, or with experts in only some layers; to plan it for "
                       "other hardware, give --gpus KIND:COUNT",
                       shape->name);
    }
    if (setting->length > shape->config.context) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "sequences of %" PRId64
            " tokens are longer than the context of %s: on this machine give --seq of at most %" PRId64,
            setting->length, shape->name, shape->config.context);
    }
    const ls_status checked = ls_model_config_check(&shape->config);
    return checked == LS_OK
               ? LS_OK
               : ls_fail_within(LS_ERR_UNSUPPORTED, "%s can be planned but not trained here", shape->name);
}

/* ---- its step ---- */

static int64_t choose_micro_batch(int64_t global_batch, int64_t length)
{
    int64_t best = 1;
    for (int64_t b = 2; b <= MICRO_MOST; b++) {
        best = global_batch % b == 0 && b * length <= MICRO_TOKENS ? b : best;
    }
    return best;
}

static void fill_time(const ls_own_time *time, const ls_plan *plan, int64_t micro_batches, double peak_flops,
                      ls_estimate *estimate)
{
    const ls_plan_flops flops = ls_plan_count_flops(plan);
    estimate->time.step_s = time->step_s;
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        estimate->time.terms_s[i] = time->terms_s[i];
    }
    estimate->time.micro_batches = micro_batches;
    estimate->tokens_ps = time->tokens_ps;
    estimate->model_flops = (double)micro_batches * (flops.forward + flops.backward);
    estimate->hardware_flops = estimate->model_flops + (double)micro_batches * flops.recomputed;
    estimate->tflops_per_gpu = 1e-12 * estimate->model_flops / time->step_s;
    estimate->mfu = estimate->model_flops / time->step_s / peak_flops;
    estimate->hfu = estimate->hardware_flops / time->step_s / peak_flops;
}

/* How Lockstep would run it: as in the run file, else one rank with one thread per core. The micro-
 * batch must divide a leaf. */
static ls_status fill_run(const ls_run_file *file, const ls_calibration *calibration, int64_t global_batch,
                          int64_t micro, ls_own_run *run)
{
    /* without a file: as steps of 8192 tokens and more have it */
    *run = (ls_own_run){.leaves = 1, .ranks = 1, .threads = calibration->cores, .hash_every_steps = 1};
    if (file) {
        run->hash_every_steps = file->train.hash_every_steps;
        run->leaves = (uint32_t)file->train.leaves;
        run->ranks = file->parallel.ranks == LS_AUTO_U64 ? 1 : (uint32_t)file->parallel.ranks;
        const uint32_t share = calibration->cores / run->ranks;
        run->threads = file->train.threads != LS_AUTO_U64 ? (uint32_t)file->train.threads
                       : share > 0                        ? share
                                                          : 1;
    }
    const int64_t leaf = global_batch / run->leaves;
    if (leaf % micro != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "--strategy: mb (the micro-batch) is %" PRId64 ", which does not divide the %" PRId64
                       " sequences of a %s",
                       micro, leaf,
                       run->leaves > 1 ? "share of the batch (train.leaves)" : "step (--global-batch)");
    }
    run->micro_batches = (uint32_t)(leaf / micro);
    return LS_OK;
}

/* One way to run it. */
typedef struct own_way {
    int64_t micro;
    ls_recompute recompute;
} own_way;

/* What to run. What neither the file nor the request gives is open. */
typedef struct own_case {
    const ls_setting *setting;
    const ls_run_file *file; /* NULL: no file, or its batch or length was changed */
    const ls_strategy_request *request;
} own_case;

static ls_status estimate_way(ls_plan_answer *answer, const own_case *asked, own_way way, ls_plan_own *own,
                              ls_estimate *estimate)
{
    const ls_setting *setting = asked->setting;
    const ls_run_file *file = asked->file;
    const ls_strategy_request *request = asked->request;
    ls_arena *arena = answer->arena;
    const ls_plan_options options = {.sequences = way.micro,
                                     .length = setting->length,
                                     .training = true,
                                     .losses = true,
                                     .recompute = way.recompute,
                                     .tensor_cut = file ? (uint32_t)file->train.tensor_cut : 1,
                                     .sequence_cut = file ? (uint32_t)file->train.sequence_cut : 1};
    const ls_layout *layout = setting->shape == &answer->shape ? answer->trained : NULL;
    ls_layout *whole = ls_arena_new(arena, ls_layout, 1);
    ls_plan *plan = ls_arena_new(arena, ls_plan, 1);
    if (!layout) {
        ls_layout_build(arena, &setting->shape->config, whole);
        layout = whole;
    }
    LS_TRY(ls_plan_build(arena, &setting->shape->config, layout, &options, plan));
    LS_TRY(fill_run(file, answer->here, setting->global_batch, way.micro, &own->run));
    own->run.plan = plan;
    own->memory = ls_plan_memory(plan, own->run.leaves, file ? ls_run_file_group(file) : 0,
                                 file ? ls_run_file_residuals(file) : 0);
    ls_own_time time;
    ls_own_time_compute(answer->here, &own->run, &time);
    *estimate = (ls_estimate){
        .strategy = {.tp = 1,
                     .pp = 1,
                     .dp = 1,
                     .cp = 1,
                     .ep = 1,
                     .vpp = 1,
                     .micro_batch = way.micro,
                     .zero = request->has_zero ? request->strategy.zero : 0,
                     .recompute = way.recompute,
                     .schedule = request->has_schedule ? request->strategy.schedule : LS_PIPELINE_1F1B},
        .memory = ls_own_memory_estimate(&own->memory, setting->node->accelerator->memory_bytes)};
    estimate->fit = ls_memory_judge(&estimate->memory);
    fill_time(&time, plan, setting->global_batch / way.micro, measure_peak(answer->here), estimate);
    return LS_OK;
}

/* Lists the ways in the order in which they are tried until one fits; what was given is kept.
 * Returns how many. */
static size_t list_ways(const ls_strategy_request *request, const ls_run_file *file,
                        const ls_setting *setting, own_way ways[4])
{
    const int64_t usual =
        file ? (int64_t)file->train.micro_batch : choose_micro_batch(setting->global_batch, setting->length);
    const int64_t given = request->strategy.micro_batch;
    const bool open = !given && !file;
    const ls_recompute first = request->has_recompute ? request->strategy.recompute
                               : file                 ? (ls_recompute)file->train.recompute
                                                      : LS_RECOMPUTE_NONE;
    size_t count = 0;
    ways[count++] = (own_way){given ? given : usual, first};
    if (open && usual > 1) {
        ways[count++] = (own_way){1, first};
    }
    for (int kind = first + 1; kind <= LS_RECOMPUTE_FULL && !request->has_recompute && !file; kind++) {
        ways[count++] = (own_way){given ? given : 1, (ls_recompute)kind};
    }
    return count;
}

/* Begins the assumption that says why this machine has no numbers. */
#define NOT_HERE "this machine is not compared: "

/* The machine's calibration; NULL: there is none, and an assumption says why. */
static const ls_calibration *find_calibration(ls_plan_answer *answer)
{
    char why[512] = "";
    ls_calibration *calibration = ls_arena_new(answer->arena, ls_calibration, 1);
    if (!answer->given->find_calibration) {
        return NULL;
    }
    if (answer->given->find_calibration(answer->arena, calibration, why, sizeof why)) {
        return calibration;
    }
    if (why[0]) {
        ls_assumptions_add(&answer->assumptions, NOT_HERE "%s", why);
    }
    return NULL;
}

const char *ls_plan_why_not_here(const ls_assumptions *assumptions)
{
    const size_t prefix = strlen(NOT_HERE);
    for (size_t i = 0; i < assumptions->count; i++) {
        if (strncmp(assumptions->items[i], NOT_HERE, prefix) == 0) {
            return assumptions->items[i] + prefix;
        }
    }
    return "this machine cannot be measured";
}

bool ls_plan_is_here(const ls_plan_answer *answer, const ls_node *node)
{
    return answer->here && strcmp(node->name, LS_PLAN_HERE) == 0;
}

const ls_node *ls_plan_describe_here(ls_plan_answer *answer)
{
    if (!answer->here) {
        answer->here = find_calibration(answer);
    }
    if (!answer->here) {
        return NULL;
    }
    char doubt[160];
    if (ls_calibration_doubt(answer->here, doubt, sizeof doubt)) {
        ls_assumptions_add(&answer->assumptions,
                           "the measured times of this machine: %s (lockstep calibrate)", doubt);
    }
    ls_assumptions_add(&answer->assumptions,
                       "the power that this machine draws is unknown: the cost excludes its energy");
    return describe_here(answer->arena, measure_peak(answer->here));
}

ls_status ls_plan_estimate_here(ls_plan_answer *answer, const ls_setting *setting, ls_plan_own *own,
                                ls_estimate *estimate)
{
    static const ls_strategy_request open = {.has_zero = false};
    const bool is_own = setting->shape == &answer->shape; /* otherwise another run of a portfolio */
    const ls_strategy_request *request = is_own ? &answer->request : &open;
    const ls_run_file *run = is_own ? answer->run : NULL;
    const bool is_as_written = run && setting->global_batch == (int64_t)run->train.global_batch &&
                               setting->length == (int64_t)run->model.context;
    own_way ways[4];
    LS_TRY(check_options(answer, request, setting));
    LS_TRY(check_model(setting));
    const own_case asked = {setting, is_as_written ? run : NULL, request};
    const size_t count = list_ways(request, asked.file, setting, ways);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(estimate_way(answer, &asked, ways[i], own, estimate));
        if (estimate->fit != LS_FIT_NO) {
            break;
        }
    }
    return LS_OK;
}

ls_status ls_plan_evaluate_here(ls_plan_answer *answer)
{
    ls_plan_own *own = ls_arena_new(answer->arena, ls_plan_own, 1);
    LS_TRY(ls_plan_estimate_here(answer, &answer->setting, own, &answer->estimate));
    answer->own = own;
    const ls_strategy *s = &answer->estimate.strategy;
    const ls_strategy_request *request = &answer->request;
    if (!request->strategy.micro_batch || !request->has_recompute) {
        ls_assumptions_add(&answer->assumptions,
                           "micro-batches of %" PRId64 ", %s recompute (--strategy mb=N,recompute=KIND)",
                           s->micro_batch,
                           s->recompute == LS_RECOMPUTE_NONE ? "no" : ls_recompute_name(s->recompute));
    }
    ls_assumptions_add(&answer->assumptions, "%u rank%s of %u thread%s, %u lea%s", own->run.ranks,
                       own->run.ranks == 1 ? "" : "s", own->run.threads, own->run.threads == 1 ? "" : "s",
                       own->run.leaves, own->run.leaves == 1 ? "f" : "ves");
    return LS_OK;
}

bool ls_plan_explain_here(const ls_plan_answer *answer, const char *term, ls_text *text)
{
    const ls_calibration *c = answer->here;
    if (strcmp(term, "constants") == 0) {
        ls_text_printf(text,
                       "%s, %u cores, as `lockstep calibrate` measured it (%s, %.0f s, %.0f %% of them its "
                       "own): measured kernel times in place of constants\n",
                       c->device, c->cores, c->date, c->took_s, 100.0 * c->undisturbed);
        ls_text_printf(text, "peak for MFU: a matrix product of side %.0f reaches %.4g GFLOP/s\n", GEMM_SIDE,
                       1e-9 * measure_peak(c));
        return true;
    }
    /* "optimizer" is a term of both. */
    const bool is_time = ls_own_time_explain(c, &answer->own->run, term, text);
    return ls_own_memory_explain(&answer->own->memory, answer->estimate.memory.capacity, term, text) ||
           is_time;
}
