// SPDX-License-Identifier: Apache-2.0
/* plan: this machine, as `lockstep calibrate` measured it. Its step time comes from the op plan that the trainer would walk, not from the formulas of clusters. */
#include "cli/plan.h"
#include "compute/queue.h"
#include "execution/calibrate/calibrate.h"
#include "planning/step/own_time.h"

#include <math.h>
#include <unistd.h>

#define GEMM_SIDE    1024.0 /* of the product whose rate MFU is counted against */
#define MICRO_MOST   4
#define MICRO_TOKENS 4096 /* a micro-batch is no larger than this, when it need not be */

/* The machine as a node of the catalogue; its power is not known. */
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

static int64_t choose_micro_batch(int64_t global_batch, int64_t length)
{
    int64_t best = 1;
    for (int64_t b = 2; b <= MICRO_MOST; b++) {
        best = global_batch % b == 0 && b * length <= MICRO_TOKENS ? b : best;
    }
    return best;
}

static void fill_memory(const ls_memory_plan *plan, double capacity, ls_estimate *estimate)
{
    ls_memory_estimate *m = &estimate->memory;
    *m = (ls_memory_estimate){.weights = (double)plan->parameters,
                              .gradients = (double)(plan->gradients + plan->tree),
                              .optimizer = (double)plan->optimizer,
                              .activations = (double)(plan->activations + plan->logits),
                              .buffers = (double)plan->other,
                              .total = (double)plan->total,
                              .capacity = capacity};
    m->buffers += m->total - (m->weights + m->gradients + m->optimizer + m->activations + m->buffers);
    estimate->fit = ls_memory_judge(m);
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

/* How our trainer would run it: as the run file says, else one rank with a thread on each core. */
static ls_own_run own_run(const ls_run_file *file, const ls_calibration *calibration, int64_t global_batch,
                          int64_t micro)
{
    if (!file) {
        return (ls_own_run){.leaves = 1,
                            .micro_batches = (uint32_t)(global_batch / micro),
                            .ranks = 1,
                            .threads = calibration->cores};
    }
    const uint32_t leaves = (uint32_t)file->train.leaves;
    const uint32_t ranks = file->parallel.ranks == LS_AUTO_U64 ? 1 : (uint32_t)file->parallel.ranks;
    const uint32_t share = calibration->cores / ranks;
    return (ls_own_run){.leaves = leaves,
                        .micro_batches = (uint32_t)(global_batch / leaves / micro),
                        .ranks = ranks,
                        .threads = file->train.threads != LS_AUTO_U64 ? (uint32_t)file->train.threads
                                   : share > 0                        ? share
                                                                      : 1};
}

/* False: our trainer can't run this model. run: the file it came in, with this batch, or NULL. */
static bool estimate_here(ls_arena *arena, const ls_calibration *calibration, double peak_flops,
                          const ls_setting *setting, const ls_run_file *file, ls_estimate *estimate)
{
    const ls_shape *shape = setting->shape;
    const ls_model_config *config = &shape->config;
    if (shape->moe.experts > 0 || shape->latent.kv_rank > 0 || setting->length > config->context ||
        ls_model_config_check(config) != LS_OK) {
        ls_error_clear();
        return false;
    }
    const int64_t micro =
        file ? (int64_t)file->train.micro_batch : choose_micro_batch(setting->global_batch, setting->length);
    const ls_plan_options options = {.sequences = micro,
                                     .length = setting->length,
                                     .training = true,
                                     .losses = true,
                                     .recompute =
                                         file ? (ls_recompute)file->train.recompute : LS_RECOMPUTE_NONE,
                                     .tensor_cut = file ? (uint32_t)file->train.tensor_cut : 1};
    ls_layout *layout = ls_arena_new(arena, ls_layout, 1);
    ls_plan plan;
    ls_layout_build(arena, config, layout);
    if (ls_plan_build(arena, config, layout, &options, &plan) != LS_OK) {
        ls_error_clear();
        return false;
    }
    ls_own_run run = own_run(file, calibration, setting->global_batch, micro);
    run.plan = &plan;
    const ls_memory_plan memory = ls_plan_memory(&plan, run.leaves);
    ls_own_time time;
    ls_own_time_compute(calibration, &run, &time);
    *estimate = (ls_estimate){
        .strategy = {.tp = 1, .pp = 1, .dp = 1, .cp = 1, .ep = 1, .vpp = 1, .micro_batch = micro}};
    fill_memory(&memory, setting->node->accelerator->memory_bytes, estimate);
    fill_time(&time, &plan, setting->global_batch / micro, peak_flops, estimate);
    return true;
}

static double measure_peak(const ls_calibration *calibration)
{
    const double sizes[LS_WORK_AXES_MAX] = {GEMM_SIDE, GEMM_SIDE, GEMM_SIDE};
    return 2.0 * pow(GEMM_SIDE, 3.0) /
           ls_calibration_seconds(calibration, calibration->cores, 1, LS_WORK_GEMM_NT, sizes);
}

/* The machine's calibration; NULL: there is none, which is said. */
static const ls_calibration *find_calibration(ls_plan_answer *answer)
{
    ls_queue *queue = NULL;
    char why[512] = "";
    ls_calibration *calibration = ls_arena_new(answer->arena, ls_calibration, 1);
    if (ls_queue_create_cpu(1, &queue) != LS_OK) {
        ls_error_clear();
        return NULL;
    }
    const bool found = ls_calibration_find(answer->arena, queue, calibration, why, sizeof why);
    ls_queue_destroy(queue);
    if (!found) {
        ls_assumptions_add(&answer->assumptions, LS_PLAN_NOT_HERE "%s", why);
    }
    return found ? calibration : NULL;
}

const ls_node *ls_plan_describe_here(ls_plan_answer *answer)
{
    if (!answer->here) {
        answer->here = find_calibration(answer);
    }
    return answer->here ? describe_here(answer->arena, measure_peak(answer->here)) : NULL;
}

bool ls_plan_estimate_here(ls_plan_answer *answer, const ls_setting *setting, ls_estimate *estimate)
{
    const ls_run_file *run = answer->run;
    const bool is_as_written = run && setting->global_batch == (int64_t)run->train.global_batch &&
                               setting->length == (int64_t)run->model.context;
    return answer->here && estimate_here(answer->arena, answer->here, measure_peak(answer->here), setting,
                                         is_as_written ? run : NULL, estimate);
}
