// SPDX-License-Identifier: Apache-2.0
#include "planning/step/evidence.h"

#include "planning/step/step_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const ls_evidence table[] = {
    {"megatron-2021", "a100", 19, 0, 3, 3, 3072, 3072},
    {"megatron-2021", "v100", 0, 10, 0, 3, 0, 64},
    {"megatron-2023", "a100", 1440, 0, 3, 3, 8, 8}, /* vTrain's, which don't ship */
    {"megatron-core", "h100", 0, 29, 0, 35, 0, 6144},
    {"megatron-core", "b200", 0, 32, 0, 55, 0, 256},
    {"fsdp", "a100", 139, 2, 16, 16, 128, 2048},
    {"fsdp", "h100", 52, 0, 48, 48, 512, 512},
    {"torchtitan-fsdp2", "h100", 10, 8, 49, 55, 512, 512},
    {"torchtitan-eager", "h100", 2, 0, 0, 0, 128, 128},
    {"llm.c", "a100", 0, 1, 0, 0, 0, 8},
    {"llm.c", "h100", 2, 0, 0, 0, 8, 8},
    {"nanotron", "h100", 0, 14, 0, 3, 0, 512},
    {"deepseek", "h100", 0, 1, 0, 0, 0, 2048},
    {"maxtext", "tpu-v5p", 0, 8, 0, 0, 0, 2048},
};

const ls_evidence *ls_evidence_find(const ls_stack *stack)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].stack, stack->name) == 0 && strcmp(table[i].generation, stack->generation) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

unsigned ls_evidence_features(const ls_setting *setting, const ls_strategy *s)
{
    const ls_plan_precision precision = setting->precision;
    const bool fp32 = precision == LS_PLAN_FP32 || precision == LS_PLAN_TF32;
    return (s->tp > 1 ? LS_FEATURE_TENSOR : 0u) | (s->pp > 1 ? LS_FEATURE_PIPELINE : 0u) |
           (s->cp > 1 ? LS_FEATURE_CONTEXT : 0u) |
           (s->cp > 1 && setting->length / s->cp < LS_EVIDENCE_PART_TOKENS ? LS_FEATURE_SHORT_CONTEXT : 0u) |
           (s->zero >= 2 ? LS_FEATURE_FSDP : 0u) | (precision == LS_PLAN_FP8 ? LS_FEATURE_FP8 : 0u) |
           (fp32 ? LS_FEATURE_FP32 : 0u) |
           (s->schedule != LS_PIPELINE_1F1B && s->pp > 1 ? LS_FEATURE_SCHEDULE : 0u);
}

unsigned ls_evidence_missing(const ls_evidence *evidence, unsigned features)
{
    return evidence ? features & ~evidence->features : features;
}

void ls_evidence_describe(unsigned features, char *text, size_t bytes)
{
    static const char *const names[LS_FEATURE_BITS] = {"tensor parallelism",
                                                       "pipelines",
                                                       "context parallelism",
                                                       "parts of a sequence below 4,096 tokens",
                                                       "ZeRO-2 and 3",
                                                       "fp8",
                                                       "fp32",
                                                       "schedules other than 1F1B"};
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < LS_FEATURE_BITS && used < bytes; i++) {
        if (features >> i & 1u) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", names[i]);
        }
    }
}

bool ls_evidence_is_borrowed(const ls_setting *setting)
{
    return strcmp(setting->node->accelerator->generation, setting->stack->generation) != 0;
}

bool ls_evidence_is_guess(const ls_stack *stack)
{
    return strcmp(stack->name, "lockstep") == 0;
}

/* ---- what an answer must say ---- */

static void assume_constants(const ls_setting *setting, const ls_strategy *strategy, ls_assumptions *list)
{
    const ls_stack *stack = setting->stack;
    const ls_evidence *evidence = ls_evidence_find(stack);
    const unsigned missing = ls_evidence_missing(evidence, ls_evidence_features(setting, strategy));
    char names[256];
    ls_evidence_describe(missing, names, sizeof names);
    if (ls_evidence_is_guess(stack)) {
        ls_assumptions_add(list,
                           "GUESS: no step of stack %s on %s was ever measured; it could take half as long "
                           "or twice as long (--stack fsdp and megatron-core rest on measured runs, --gpus "
                           "here:1 on this machine's calibration)",
                           stack->name, setting->node->accelerator->name);
    } else if (!evidence) {
        ls_assumptions_add(list, "no run of %s on %s is in the error table: constants %s; the band is wider",
                           stack->name, stack->generation, stack->source);
    } else if (missing) {
        ls_assumptions_add(list,
                           "measured under %s on %s in fewer than %d runs, or never: %s; the band is wider",
                           stack->name, stack->generation, LS_EVIDENCE_RUNS, names);
    }
    if (evidence && setting->gpus > 4 * evidence->gpus) {
        ls_assumptions_add(list, "the largest measured run of %s on %s had %" PRId64 " GPUs", stack->name,
                           stack->generation, evidence->gpus);
    }
}

void ls_evidence_assume(const ls_setting *setting, const ls_strategy *s, ls_assumptions *list)
{
    const ls_accelerator *accelerator = setting->node->accelerator;
    assume_constants(setting, s, list);
    if (setting->shape->moe.experts > 0) {
        ls_assumptions_add(list, "all experts receive equally many tokens (balanced routing)");
    }
    if (s->zero >= 2 && s->dp * s->cp > 1) {
        ls_assumptions_add(
            list, "ZeRO-%d gathers layers; gathering the embedding and the head is not counted", s->zero);
    }
    if (setting->precision == LS_PLAN_FP32 && accelerator->class == LS_CLASS_GPU) {
        ls_assumptions_add(
            list,
            "fp32 products run on the vector units, %s%.3g TFLOP/s (--precision tf32 on the matrix units)",
            accelerator->fp32_flops > 0 ? "" : "at a sixteenth of the bf16 peak, ",
            ls_peak_flops(accelerator, LS_PLAN_FP32) / 1e12);
    }
}
