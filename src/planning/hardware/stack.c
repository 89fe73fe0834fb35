// SPDX-License-Identifier: Apache-2.0
#include "planning/hardware/stack.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A stack on a generation: the constants of `from` (an earlier row; NULL: none), with these
 * changes. */
typedef struct pair {
    const char *name, *generation, *from, *constants, *source;
} pair;

/* Where the values come from: notes and commands in docs/planning-accuracy.md. Constants were
 * fitted on every second row of a source in data/published_runs.csv; the others are held out, and
 * the error table is printed for both. */
static const pair pairs[] = {
    {"megatron-2021", "a100", NULL,
     "gemm_efficiency=0.8 gemm_fp8_efficiency=0.55 gemm_k_half=128 flash=0 attention_efficiency=0.45 "
     "attention_half_length=0 memory_efficiency=0.8 "
     "elementwise_factor=1 loss_bytes=40 logit_bytes=10 saved_factor=1 optimizer_bytes=38 launch_s=2e-5 "
     "layer_kernels=36 "
     "kernel_s=4e-6 "
     "fixed_s=0.01 micro_batch_s=0 "
     "scaleup_efficiency=0.75 nic_efficiency=0.8 scaleup_alpha_s=8e-6 nic_alpha_s=2e-5 nics_per_gather=0 "
     "in_network_reduction=0 tp_overlap=0 dp_overlap=0 "
     "fsdp_overlap=0 pp_overlap=0 dp_floor=0.1 recompute_share=1 selective_matmul=0 straggler_sigma=0.002 "
     "power_w=0 context_bytes=1.5e9 allocator_slack=0.05 "
     "gradient_bytes=4 reduce_bytes=4 distributed_optimizer=0",
     "physics and general A100 figures; none fitted"},
    {"megatron-2021", "v100", "megatron-2021/a100", "gemm_efficiency=0.62 straggler_sigma=0.002",
     "taken over from another generation; product efficiency from BigScience's V100 rows"},
    {"megatron-2023", "a100", "megatron-2021/a100",
     "gemm_efficiency=0.79 gemm_k_half=70 attention_efficiency=0.46 elementwise_factor=1.48 loss_bytes=107 "
     "launch_s=2.72e-5 kernel_s=2.8e-5 fixed_s=0.001 micro_batch_s=2e-4 "
     "scaleup_alpha_s=4.4e-5",
     "vTrain's single-node runs: fitted on every sixth"},
    {"megatron-core", "a100", "megatron-2021/a100",
     "flash=1 attention_efficiency=0.5 attention_half_length=500 tp_overlap=0.5 dp_overlap=1 pp_overlap=0.5 "
     "selective_matmul=0 distributed_optimizer=1 fixed_s=0.02",
     "taken over"},
    {"megatron-core", "h100", "megatron-core/a100",
     "gemm_efficiency=0.66 attention_efficiency=0.45 gemm_fp8_efficiency=0.65 power_w=700",
     "Megatron-Core 0.8's H100 table (blanks chosen) and, fp8, Megatron-Bridge's"},
    {"megatron-core", "b200", "megatron-core/h100", "power_w=0", "Megatron-Bridge's tables"},
    {"fsdp", "a100", "megatron-2021/a100",
     "flash=1 gemm_efficiency=0.765 attention_efficiency=0.336 attention_half_length=500 loss_bytes=21 "
     "logit_bytes=12 "
     "fixed_s=0.018 nics_per_gather=1.39 dp_floor=0.147 dp_overlap=1 "
     "fsdp_overlap=0.75 recompute_share=0.79 reduce_bytes=2 gradient_bytes=2",
     "MosaicML's tables for A100: fitted on every second run"},
    {"fsdp", "h100", "fsdp/a100",
     "gemm_efficiency=0.665 gemm_fp8_efficiency=0.502 attention_efficiency=0.189 loss_bytes=24 fixed_s=0.044 "
     "nics_per_gather=5.4 dp_floor=0.72 recompute_share=0.806 power_w=700",
     "MosaicML's tables for H100: fitted on every second run"},
    {"torchtitan-fsdp2", "h100", "fsdp/h100",
     "gemm_efficiency=0.73 gemm_fp8_efficiency=0.76 attention_efficiency=0.23 nics_per_gather=0 "
     "dp_floor=0.3 recompute_share=1 selective_matmul=0.5 reduce_bytes=4 loss_bytes=105 fixed_s=0.026",
     "torchtitan's tables of December 2024 and H200: fitted on every second run"},
    {"torchtitan-eager", "h100", "torchtitan-fsdp2/h100", "elementwise_factor=2.3",
     "torchtitan's table, the runs without torch.compile"},
    {"deepspeed-zero3-2021", "a100", "megatron-2021/a100",
     "fsdp_overlap=0.55 dp_floor=0.1 nics_per_gather=0.94 reduce_bytes=2",
     "six runs of the comparison with ZeRO-3 in Narayanan et al. 2021, from memory"},
    {"llm.c", "a100", "megatron-2021/a100",
     "flash=1 attention_efficiency=0.5 attention_half_length=500 launch_s=5e-6 elementwise_factor=0.85 "
     "loss_bytes=10 fixed_s=0.003 "
     "dp_overlap=0.5 reduce_bytes=2 gradient_bytes=2",
     "taken over"},
    {"llm.c", "h100", "llm.c/a100", "gemm_efficiency=0.7 attention_efficiency=0.45 power_w=700",
     "llm.c's two documented runs"},
    {"nanotron", "h100", "megatron-core/h100",
     "tp_overlap=0 dp_overlap=0 pp_overlap=0 gemm_efficiency=0.6 fixed_s=0.03 saved_factor=1.5 "
     "logit_bytes=14",
     "nanotron's heat map; what it keeps from the memory of the same runs"},
    {"deepseek", "h100", "megatron-core/h100", "pp_overlap=1 gemm_fp8_efficiency=0.5", "taken over"},
    {"maxtext", "tpu-v5p", "megatron-core/h100",
     "gemm_efficiency=0.87 fsdp_overlap=0.9 launch_s=0 kernel_s=1e-6 tp_overlap=0.8 power_w=0",
     "MaxText's tables"},
    {"lockstep", "cpu", "megatron-core/a100",
     "gemm_efficiency=0.7 launch_s=0 kernel_s=2e-6 fixed_s=0.001 tp_overlap=0 context_bytes=5e7 "
     "allocator_slack=0.01 gradient_bytes=4 reduce_bytes=4",
     "guessed, not measured: where this machine was calibrated `plan --gpus here:1` uses its own times"},
};
enum { PAIR_COUNT = sizeof(pairs) / sizeof(pairs[0]) };

typedef enum value_kind { VALUE_F64, VALUE_INT, VALUE_BOOL } value_kind;

typedef struct constant {
    const char *name;
    size_t offset;
    value_kind kind;
    double max; /* the least allowed value is 0 */
    const char *what;
} constant;

#define F64(name, max, what)                                                                                 \
    {                                                                                                        \
#name, offsetof(ls_stack, name), VALUE_F64, max, what                                                \
    }

static const constant constants_table[] = {
    F64(gemm_efficiency, 1, "best rate of a matrix product over the peak"),
    F64(gemm_fp8_efficiency, 1, "best rate of an fp8 matrix product over the fp8 peak"),
    F64(gemm_k_half, 1e6, "inner size at which a product reaches half of its best rate"),
    {"flash", offsetof(ls_stack, flash), VALUE_BOOL, 1, "1: attention is one kernel"},
    F64(attention_efficiency, 1, "attention's rate over the peak"),
    F64(attention_half_length, 1e6, "tokens at which flash attention reaches half of that"),
    F64(memory_efficiency, 1, "share of the memory bandwidth that kernels reach"),
    F64(elementwise_factor, 100, "bytes that elementwise kernels move, over those of one fused pass"),
    F64(loss_bytes, 1e4, "bytes the loss moves per logit"),
    F64(logit_bytes, 1e3, "bytes of memory per logit at the peak of the loss"),
    F64(saved_factor, 10, "bytes kept for the backward, over those that fused kernels keep"),
    F64(optimizer_bytes, 1e4, "bytes an optimizer step moves per parameter"),
    F64(launch_s, 1, "seconds the CPU needs to launch a kernel"),
    F64(layer_kernels, 1e4, "kernels of a layer's forward"),
    F64(kernel_s, 1, "seconds of GPU time per kernel in addition to its work"),
    F64(fixed_s, 1e3, "further seconds per step"),
    F64(micro_batch_s, 1e3, "further seconds per micro-batch"),
    F64(scaleup_efficiency, 2, "share of the scale-up network's rate that is reached"),
    F64(nic_efficiency, 2, "share of the NIC's rate that is reached"),
    F64(scaleup_alpha_s, 1, "latency inside a node, seconds"),
    F64(nic_alpha_s, 1, "latency between nodes, seconds"),
    F64(nics_per_gather, 64, "NICs of a node that a sharded gather uses, 0: all"),
    {"in_network_reduction", offsetof(ls_stack, in_network_reduction), VALUE_BOOL, 1,
     "1: switches reduce in the network (SHARP, NVLS)"},
    F64(tp_overlap, 1, "share of tensor parallel communication that is hidden"),
    F64(dp_overlap, 1, "share of the last backward under which gradients travel"),
    F64(fsdp_overlap, 1, "share of a layer's computation under which its shards travel"),
    F64(pp_overlap, 1, "share of pipeline sends that is hidden"),
    F64(dp_floor, 1, "share of data parallel traffic that is never hidden"),
    F64(recompute_share, 1, "share of a layer's forward that full recompute repeats"),
    F64(selective_matmul, 1, "share of a layer's products that selective recompute repeats"),
    F64(straggler_sigma, 1, "relative spread of a GPU's step time"),
    F64(power_w, 1e5, "TDP these constants were measured at, W; 0: any"),
    F64(context_bytes, 1e12, "memory of runtime and communicators per GPU"),
    F64(allocator_slack, 10, "further memory of the allocator, as a share of allocations"),
    {"gradient_bytes", offsetof(ls_stack, gradient_bytes), VALUE_INT, 8, "bytes of a gradient in memory"},
    F64(reduce_bytes, 8, "bytes of a gradient on the network"),
    {"distributed_optimizer", offsetof(ls_stack, distributed_optimizer), VALUE_BOOL, 1,
     "ZeRO-1 is the default"},
};
enum { CONSTANT_COUNT = sizeof(constants_table) / sizeof(constants_table[0]) };

static const constant *find_constant(const char *name, size_t bytes)
{
    for (size_t i = 0; i < CONSTANT_COUNT; i++) {
        if (strlen(constants_table[i].name) == bytes && memcmp(constants_table[i].name, name, bytes) == 0) {
            return &constants_table[i];
        }
    }
    return NULL;
}

static void put(ls_stack *stack, const constant *entry, double value)
{
    void *at = (char *)stack + entry->offset;
    switch (entry->kind) {
    case VALUE_F64:
        *(double *)at = value;
        break;
    case VALUE_INT:
        *(int *)at = (int)value;
        break;
    case VALUE_BOOL:
        *(bool *)at = value != 0;
        break;
    }
}

static double get(const ls_stack *stack, const constant *entry)
{
    const void *at = (const char *)stack + entry->offset;
    switch (entry->kind) {
    case VALUE_INT:
        return *(const int *)at;
    case VALUE_BOOL:
        return *(const bool *)at;
    case VALUE_F64:
        break;
    }
    return *(const double *)at;
}

ls_status ls_stack_set(ls_stack *stack, const char *constants)
{
    ls_stack changed = *stack;
    for (const char *word = constants; *word;) {
        const size_t name_bytes = strcspn(word, "= ");
        const constant *entry = find_constant(word, name_bytes);
        if (!entry || word[name_bytes] != '=') {
            return ls_fail(LS_ERR_INVALID,
                           "stack constant %.*s: write NAME=NUMBER; 'lockstep plan MODEL --explain "
                           "constants' lists the names",
                           (int)strcspn(word, " "), word);
        }
        char *end = NULL;
        errno = 0;
        const double value = strtod(word + name_bytes + 1, &end);
        if (errno || end == word + name_bytes + 1 || (*end && *end != ' ') ||
            !(value >= 0 && value <= entry->max)) {
            return ls_fail(LS_ERR_INVALID, "stack constant %.*s: a number from 0 to %g is needed",
                           (int)strcspn(word, " "), word, entry->max);
        }
        put(&changed, entry, value);
        word = end + strspn(end, " ");
    }
    *stack = changed;
    return LS_OK;
}

static const pair *find_pair(const char *name, const char *generation)
{
    for (size_t i = 0; i < PAIR_COUNT; i++) {
        if (strcmp(pairs[i].name, name) == 0 &&
            (!generation || strcmp(pairs[i].generation, generation) == 0)) {
            return &pairs[i];
        }
    }
    return NULL;
}

static const pair *parent_of(const pair *child)
{
    const char *slash = strchr(child->from, '/');
    char name[64];
    const size_t bytes = (size_t)(slash - child->from);
    LS_ASSERT(bytes < sizeof(name));
    memcpy(name, child->from, bytes);
    name[bytes] = '\0';
    const pair *parent = find_pair(name, slash + 1);
    LS_ASSERT(parent && parent < child);
    return parent;
}

static void fill(ls_stack *stack, const pair *row)
{
    if (row->from) {
        fill(stack, parent_of(row));
    }
    const ls_status status = ls_stack_set(stack, row->constants);
    LS_ASSERT(status == LS_OK);
    stack->name = row->name;
    stack->generation = row->generation;
    stack->source = row->source;
}

const char *const *ls_stack_names(void)
{
    static const char *const names[] = {"megatron-2021",
                                        "megatron-2023",
                                        "megatron-core",
                                        "fsdp",
                                        "torchtitan-fsdp2",
                                        "torchtitan-eager",
                                        "deepspeed-zero3-2021",
                                        "llm.c",
                                        "nanotron",
                                        "deepseek",
                                        "maxtext",
                                        "lockstep",
                                        NULL};
    return names;
}

/* The row of a stack that is closest to a generation on which it was never measured: the last one
 * of the same kind of machine, else the last one. */
static const pair *nearest_pair(const char *name, const ls_accelerator *accelerator)
{
    static const char *const newer[] = {"b200", "rtx5090", "mi300x", "ada", "h100"};
    const pair *best = NULL;
    for (size_t i = 0; i < PAIR_COUNT; i++) {
        if (strcmp(pairs[i].name, name) == 0) {
            best = best ? best : &pairs[i];
            for (size_t k = 0; k < sizeof(newer) / sizeof(newer[0]); k++) {
                if (strcmp(accelerator->generation, newer[k]) == 0) {
                    best = &pairs[i];
                }
            }
        }
    }
    return best;
}

static const char *canonical_name(const char *name)
{
    static const char *const others[][2] = {
        {"megatron", "megatron-core"},
        {"megatron-bridge", "megatron-core"},
        {"mbridge", "megatron-core"},
        {"nemo", "megatron-core"},
        {"torchtitan", "torchtitan-fsdp2"},
        {"fsdp2", "torchtitan-fsdp2"},
        {"pytorch", "fsdp"},
        {"deepspeed", "deepspeed-zero3-2021"},
        {"zero3", "deepspeed-zero3-2021"},
        {"llmc", "llm.c"},
        {"llm-foundry", "fsdp"},
        {"picotron", "nanotron"},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(name, others[i][0]) == 0) {
            return others[i][1];
        }
    }
    return name;
}

static ls_status unknown_stack(const char *name)
{
    char list[512] = "";
    for (const char *const *n = ls_stack_names(); *n; n++) {
        strncat(list, n == ls_stack_names() ? "" : ", ", sizeof(list) - strlen(list) - 1);
        strncat(list, *n, sizeof(list) - strlen(list) - 1);
    }
    return ls_fail(LS_ERR_NOT_FOUND, "the training software (stack) %s is unknown; allowed are %s", name,
                   list);
}

ls_status ls_stack_find(const char *name, const ls_accelerator *accelerator, ls_stack *stack_out,
                        const char **taken_from_out)
{
    const char *known = canonical_name(name);
    const pair *row = find_pair(known, accelerator->generation);
    const bool exact = row != NULL;
    row = row ? row : nearest_pair(known, accelerator);
    if (!row) {
        return unknown_stack(name);
    }
    ls_stack stack = {0};
    fill(&stack, row);
    *stack_out = stack;
    if (taken_from_out) {
        *taken_from_out = exact ? NULL : row->generation;
    }
    return LS_OK;
}

bool ls_stack_of_pair(const char *name, const char *generation, ls_stack *stack_out)
{
    const pair *row = find_pair(name, generation);
    if (row) {
        *stack_out = (ls_stack){0};
        fill(stack_out, row);
    }
    return row != NULL;
}

bool ls_stack_pair_at(size_t index, const char **name_out, const char **generation_out)
{
    if (index < PAIR_COUNT) {
        *name_out = pairs[index].name;
        *generation_out = pairs[index].generation;
    }
    return index < PAIR_COUNT;
}

void ls_stack_explain(const ls_stack *stack, ls_text *text)
{
    ls_text_printf(text, "constants of %s on %s\n", stack->name, stack->generation);
    for (size_t i = 0; i < CONSTANT_COUNT; i++) {
        ls_text_printf(text, "  %-22s %-10.6g %s\n", constants_table[i].name, get(stack, &constants_table[i]),
                       constants_table[i].what);
    }
    ls_text_printf(text, "source: %s\n", stack->source);
}
