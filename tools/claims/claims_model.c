// SPDX-License-Identifier: Apache-2.0
/* Claims about what a model needs, how it is split, and what happens at scale. */
#include "claims_internal.h"
#include "planning/money/failure.h"
#include "planning/step/memory.h"
#include "planning/step/scaling.h"

#include <inttypes.h>
#include <math.h>

#define PARAMETERS      70e9
#define GIB             1073741824.0
#define DEADLOCK        "No measurement was found that the figure could come from."
#define LLAMA_3_HOURS   30.84e6 /* H100 hours of 405B, its model card */
#define LLAMA_3_TOKENS  15.6e12
#define LLAMA_3_UTILITY 0.40

static ls_setting setting_of(const ls_claim_desk *desk, const ls_shape *shape, int64_t gpus)
{
    return (ls_setting){.shape = shape,
                        .node = desk->h100,
                        .stack = &desk->stack,
                        .gpus = gpus,
                        .length = 4096,
                        .global_batch = 1024};
}

static const ls_strategy whole = {.tp = 1, .pp = 1, .dp = 1, .cp = 1, .ep = 1, .vpp = 1, .micro_batch = 1};

static ls_memory_parts parts_with(const ls_claim_desk *desk, ls_plan_optimizer optimizer,
                                  ls_strategy strategy)
{
    ls_setting setting = setting_of(desk, &desk->llama_70b, 8);
    ls_memory_parts parts;
    setting.optimizer = optimizer;
    ls_memory_parts_compute(&setting, &strategy, 0, &parts);
    return parts;
}

static ls_status check_weights(const ls_claim_desk *desk, ls_claim *claim)
{
    const double bytes = parts_with(desk, LS_PLAN_ADAMW, whole).weight_bytes;
    const double gb = ls_claim_put(claim, "weights_GB", bytes * PARAMETERS / 1e9);
    ls_claim_say(desk, claim, ls_claim_compare(140.0, gb), "%.0f bytes a parameter in bf16: %.0f GB.", bytes,
                 gb);
    return LS_OK;
}

static ls_status check_optimizer(const ls_claim_desk *desk, ls_claim *claim)
{
    const double full = ls_claim_put(
        claim, "adamw_GB", parts_with(desk, LS_PLAN_ADAMW, whole).optimizer_bytes * PARAMETERS / 1e9);
    const double moments =
        ls_claim_put(claim, "moments_GB",
                     parts_with(desk, LS_PLAN_ADAMW_NO_MASTER, whole).optimizer_bytes * PARAMETERS / 1e9);
    const double master = ls_claim_put(claim, "master_GB", full - moments);
    ls_claim_say(desk, claim, ls_claim_compare(280.0, full),
                 "Adam in mixed precision keeps an fp32 copy of the weights and two moments: %.0f GB. The "
                 "moments alone are %.0f GB; %.0f GB are the fp32 copy alone, or moments in bf16.",
                 full, moments, master);
    return LS_OK;
}

/* Weights, gradients and optimizer over the weights. */
static double times_weights(const ls_memory_parts *p, double gradient_bytes)
{
    return (p->weight_bytes + gradient_bytes + p->optimizer_bytes) / p->weight_bytes;
}

static ls_status check_terabytes(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_memory_parts adamw = parts_with(desk, LS_PLAN_ADAMW, whole);
    const ls_memory_parts bits8 = parts_with(desk, LS_PLAN_ADAMW_8BIT, whole);
    const double mixed = ls_claim_put(claim, "mixed", times_weights(&adamw, 2.0));
    const double main = ls_claim_put(claim, "fp32_gradients", times_weights(&adamw, 4.0));
    const double eight = ls_claim_put(claim, "8bit", times_weights(&bits8, 2.0));
    const double pure = ls_claim_put(claim, "pure_bf16", (2.0 + 2.0 + 4.0) / adamw.weight_bytes);
    const double weights_tb = adamw.weight_bytes * PARAMETERS / 1e12;
    const double tb = ls_claim_put(claim, "mixed_TB", mixed * weights_tb);
    const double main_tb = ls_claim_put(claim, "fp32_gradients_TB", main * weights_tb);
    ls_claim_say(
        desk, claim, ls_claim_compare(5.0, mixed),
        "Too low. Weights, gradients and Adam's state are %.0f times the weights, %.2f TB, or %.0f times, "
        "%.2f TB, where gradients are summed in fp32, as in Megatron; activations come on top. %.0f times is "
        "possible with 8-bit Adam and an fp32 copy, %.0f times with everything in bf16. Terabytes are right.",
        mixed, tb, main, main_tb, eight, pure);
    return LS_OK;
}

/* What plain data parallelism needs at least of a GPU, however many there are. */
static double plain_gib(const ls_claim_desk *desk)
{
    const ls_setting setting = setting_of(desk, &desk->llama_70b, 1024);
    ls_strategy strategy = whole;
    ls_memory_estimate memory;
    strategy.dp = 1024;
    strategy.recompute = LS_RECOMPUTE_FULL;
    ls_memory_compute(&setting, &strategy, &memory);
    return memory.total / GIB;
}

static ls_status check_data_parallel(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_setting setting = setting_of(desk, &desk->llama_70b, 64);
    ls_search_options plain = {0};
    ls_search_result *result = ls_arena_new(desk->arena, ls_search_result, 1);
    ls_strategy_request cut = {0};
    ls_estimate estimate;
    char text[192];
    LS_TRY(ls_strategy_parse("tp=1,pp=1,cp=1,ep=1,zero=0", &plain.request));
    LS_TRY(ls_strategy_parse("tp=8,pp=4,cp=1,ep=1,vpp=1,mb=1,zero=1,recompute=none", &cut));
    const bool fits = ls_search_run(&setting, &plain, result) == LS_OK;
    ls_error_clear();
    const ls_strategy strategy = ls_strategy_resolve(&cut, setting.gpus);
    ls_estimate_compute(&setting, &strategy, &estimate);
    ls_strategy_describe(&strategy, text, sizeof text);
    ls_claim_put(claim, "fits", fits);
    const double gib = ls_claim_put(claim, "plain_GiB", plain_gib(desk));
    const double split = ls_claim_put(claim, "split_GiB", estimate.memory.total / GIB);
    ls_claim_say(
        desk, claim, fits ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD,
        "Copies make training faster, not smaller: with plain data parallelism each GPU needs at least %s "
        "GiB, on 64 GPUs or on a thousand, and has 80. The model has to be split: %s needs %.1f GiB.",
        ls_claim_grouped(desk, gib), text, split);
    return LS_OK;
}

static ls_status check_tensor_parallel(const ls_claim_desk *desk, ls_claim *claim)
{
    ls_strategy tensor = whole, pipeline = whole;
    tensor.tp = pipeline.pp = 8;
    const ls_memory_parts all = parts_with(desk, LS_PLAN_ADAMW, whole);
    const ls_memory_parts t = parts_with(desk, LS_PLAN_ADAMW, tensor),
                          p = parts_with(desk, LS_PLAN_ADAMW, pipeline);
    const double layers = ls_claim_put(claim, "tensor_layers", t.layers);
    const double share = ls_claim_put(claim, "tensor_share", t.matrix_parameters / all.matrix_parameters);
    const double stage = ls_claim_put(claim, "pipeline_layers", p.layers);
    ls_claim_say(desk, claim, layers < all.layers ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD,
                 "That is pipeline parallelism: with eight stages a GPU has %.0f of the %.0f layers. Tensor "
                 "parallelism splits each matrix: a GPU has 1/%.0f of all %.0f layers.",
                 stage, all.layers, 1.0 / share, layers);
    return LS_OK;
}

/* ---- at scale ---- */

static ls_status check_sync(const ls_claim_desk *desk, ls_claim *claim)
{
    ls_setting setting = setting_of(desk, &desk->llama_405b, 1024);
    setting.length = 8192;
    setting.global_batch = 2048;
    ls_scaling *scaling = ls_arena_new(desk->arena, ls_scaling, 1);
    const ls_scaling_options options = {.gpus_min = 1024, .gpus_max = 131072, .tokens = 1e12};
    LS_TRY(ls_scaling_compute(&setting, &options, scaling));
    static const struct {
        int64_t gpus;
        const char *speed, *data, *bubble;
    } looked_at[] = {{8192, "8k", "8k_data", "8k_bubble"},
                     {16384, "16k", "16k_data", "16k_bubble"},
                     {131072, "128k", "128k_data", "128k_bubble"}};
    double data = 0.0, bubble = 0.0, speed[3] = {0};
    for (size_t i = 0, k = 0; i < scaling->count; i++) {
        const ls_scaling_point *point = &scaling->points[i];
        if (k < 3 && point->gpus == looked_at[k].gpus && point->fits) {
            const ls_time_estimate *time = &point->estimate.time;
            speed[k] = ls_claim_put(claim, looked_at[k].speed, point->efficiency);
            const double d =
                ls_claim_put(claim, looked_at[k].data, time->terms_s[LS_TERM_DATA] / time->step_s);
            const double b =
                ls_claim_put(claim, looked_at[k].bubble, time->terms_s[LS_TERM_BUBBLE] / time->step_s);
            data = k == 0 ? d : data;
            bubble = k == 0 ? b : bubble;
            k++;
        }
    }
    ls_claim_put(claim, "knee_gpus", (double)scaling->knee_gpus);
    ls_claim_say(
        desk, claim, data > 0.5 ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD,
        "Not where the model is split and the exchange overlaps with computation, as is usual at that size: "
        "for 405B and 16.8 million tokens per step on 8,192 GPUs, %.1f %% of a step waits for gradients, and "
        "%.1f %% is pipeline bubble. Speed per GPU relative to 1,024 GPUs: %.2f on 8,192, %.2f on 16,384, "
        "%.2f on 131,072. Plain data parallelism of a fixed batch is different.",
        100 * data, 100 * bubble, speed[0], speed[1], speed[2]);
    return LS_OK;
}

static ls_status check_marginal(const ls_claim_desk *desk, ls_claim *claim)
{
    const double perfect = ls_claim_put(claim, "perfect_percent", 100.0 / 16384.0);
    ls_claim_say(desk, claim, LS_CLAIM_DEPENDS,
                 "True of any system, and therefore meaningless: with perfect scaling one more GPU adds %.4f "
                 "%%. The useful question is how much of its worth the next GPU adds; `lockstep plan "
                 "llama3-405b --gpus h100:16384 --scaling` prints where that falls below one half.",
                 perfect);
    return LS_OK;
}

static ls_status check_llama_hours(const ls_claim_desk *desk, ls_claim *claim)
{
    ls_failure_estimate failure;
    ls_failure_compute(
        &(ls_failure_setting){.gpus = 16384, .gpus_per_node = 8, .parameters = 405e9, .stall_s = 10.0},
        &failure);
    const double length = 8192.0;
    const double flops =
        3.0 * ls_shape_forward_flops(&desk->llama_405b, 8192, LS_FLOPS_6N) / length * LLAMA_3_TOKENS;
    const double rate = LLAMA_3_UTILITY * failure.goodput * desk->h100->accelerator->bf16_flops;
    ls_claim_put(claim, "flops", flops);
    const double goodput = ls_claim_put(claim, "goodput", failure.goodput);
    const double hours = ls_claim_put(claim, "hours", flops / rate / 3600.0);
    ls_claim_say(desk, claim, ls_claim_compare(LLAMA_3_HOURS, hours),
                 "6 N D = %.2e FLOPs at 40 %% MFU and a goodput of %.3f: %.1f M hours, %.0f %% from the "
                 "30.84 M of the model card.",
                 flops, goodput, hours / 1e6, 100 * fabs(hours / LLAMA_3_HOURS - 1.0));
    return LS_OK;
}

static ls_status check_failures(const ls_claim_desk *desk, ls_claim *claim)
{
    ls_failure_estimate failure;
    ls_failure_compute(
        &(ls_failure_setting){.gpus = 16384, .gpus_per_node = 8, .parameters = 405e9, .stall_s = 10.0},
        &failure);
    const double hours = ls_claim_put(claim, "mtbf_hours", failure.mtbf_s / 3600.0);
    const double goodput = ls_claim_put(claim, "goodput", failure.goodput);
    ls_claim_put(claim, "interval_min", failure.interval_s / 60.0);
    ls_claim_say(desk, claim, failure.goodput > 0.9 ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD,
                 "At the rate that Meta counted, a failure occurs every %.2f hours, a checkpoint is due "
                 "every %.1f minutes, and %.1f %% of the time is productive.",
                 hours, failure.interval_s / 60.0, 100 * goodput);
    return LS_OK;
}

static const ls_claim_row model_rows[] = {
    {"weights", "The weights of a 70B model are 140 GB.", "bf16.",
     "src/planning/step/memory.h:ls_memory_parts_compute", check_weights, NULL},
    {"optimizer", "Its optimizer is another 280 GB.", "AdamW, mixed precision.",
     "src/planning/step/memory.h:ls_memory_parts_compute", check_optimizer, NULL},
    {"terabytes", "Training it takes three to five times the weights: terabytes.", "Without activations.",
     "src/planning/step/memory.h:ls_memory_parts_compute", check_terabytes, NULL},
    {"data-parallel", "The only solution is data parallelism: a copy of the model on each GPU.",
     "Llama 2 70B, H100 of 80 GB, AdamW, full recompute where it is a copy.",
     "src/planning/step/search.h:ls_search_run src/planning/step/memory.h:ls_memory_compute",
     check_data_parallel, NULL},
    {"tensor-parallel", "Tensor parallelism puts the first layers on one GPU and the next ones on another.",
     "Llama 2 70B over eight GPUs.", "src/planning/step/memory.h:ls_memory_parts_compute",
     check_tensor_parallel, NULL},
};
const ls_claim_area ls_claims_models = {"Models and how they are split", model_rows,
                                        sizeof model_rows / sizeof model_rows[0]};

static const ls_claim_row scale_rows[] = {
    {"sync", "From 8,192 GPUs on exchanging gradients takes longer than computing.",
     "Llama 3 405B, 2,048 sequences of 8,192 tokens, H100, megatron-core, the best strategy at each size.",
     "src/planning/step/scaling.h:ls_scaling_compute", check_sync, NULL},
    {"marginal", "Beyond 16,384 GPUs each one adds less than 0.1 %.", "",
     "src/planning/step/scaling.h:ls_scaling_compute", check_marginal, NULL},
    {"405b-hours", "Llama 3.1 405B took 31 million GPU-hours.",
     "15.6 trillion tokens, 40 % MFU, 16,384 GPUs, checkpoints that stall 10 s.",
     "src/planning/model/shape.h:ls_shape_forward_flops src/planning/money/failure.h:ls_failure_compute",
     check_llama_hours, NULL},
    {"llama-goodput", "16,384 GPUs, 7.8 failures a day, and still more than 90 % of the time was training.",
     "419 unexpected interruptions in 54 days (The Llama 3 Herd of Models, table 5); checkpoints that stall "
     "10 s, 10 minutes to restart.",
     "src/planning/money/failure.h:ls_failure_compute", check_failures, NULL},
    {"deadlocks", "60 to 70 % of failed distributed runs are deadlocks.", "", "", NULL,
     DEADLOCK " Of Llama 3's 466 interruptions 419 were unexpected, and 58.7 % of those GPU-related: "
              "hardware, not deadlock."},
    {"wasted-compute",
     "A market survey: 45 % of projects fail for infrastructure; a large laboratory wastes a quarter of its "
     "compute.",
     "", "", NULL, DEADLOCK},
    {"alpa", "Alpa is NVIDIA's.", "", "", NULL,
     "Nothing to compute. As far as is known, Alpa came from Berkeley, Google and others; that was not "
     "checked again."},
    {"aws-optimizer", "AWS has had a \"Distributed Training Optimizer\" since January 2025.", "", "", NULL,
     "No product of that name was found; the closest is SageMaker HyperPod with its recipes."},
    {"hypercomputer", "Google's \"Hypercomputer 2.0 fault tolerance\" ends lost work.", "", "", NULL,
     "Not found under that name. Google does publish ML Productivity Goodput, scheduling * runtime * "
     "program, which the planner uses."},
};
const ls_claim_area ls_claims_scale = {"At scale", scale_rows, sizeof scale_rows / sizeof scale_rows[0]};
