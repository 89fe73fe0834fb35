// SPDX-License-Identifier: Apache-2.0
#include "planning/check/accuracy.h"

#include <string.h>

/* Signed errors, predicted / measured - 1, of the published runs: what tests/planning/test_accuracy.c prints and holds these against. Pairs of fewer than eight runs have no row of
 * their own. Runs with blanks, which we filled, say more about how the blanks were filled than fully specified ones do: their bands are wide. */
static const ls_band_row rows[] = {
    {"megatron-2021", "a100", true, false, -0.063, 0.003, 0.037, "19 runs of megatron-2021 on a100"},
    {"megatron-2023", "a100", true, false, -0.079, -0.008, 0.126, "1,440 runs of megatron-2023 on a100"},
    {"fsdp", "a100", true, false, -0.040, 0.001, 0.042, "139 runs of fsdp on a100"},
    {"fsdp", "h100", true, false, -0.031, 0.005, 0.028, "52 runs of fsdp on h100"},
    {"torchtitan-fsdp2", "h100", true, false, -0.038, -0.002, 0.024, "10 runs of torchtitan-fsdp2 on h100"},
    {"megatron-core", "h100", false, false, -0.089, -0.017, 0.084,
     "17 runs with blanks of megatron-core on h100"},
    {"megatron-core", "b200", false, false, -0.146, -0.024, 0.256,
     "32 runs with blanks of megatron-core on b200"},
    {"maxtext", "tpu-v5p", false, false, -0.039, 0.044, 0.112, "8 runs with blanks of maxtext on tpu-v5p"},
    {NULL, NULL, false, true, -0.366, 0.113, 0.242, "13 runs of mixtures of experts, with blanks"},
    {NULL, NULL, false, false, -0.140, -0.017, 0.254, "93 runs with blanks, of all stacks"},
};

const ls_band_row *ls_accuracy_band_rows(size_t *count_out)
{
    *count_out = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

static const ls_band_row *find_row(const ls_stack *stack, bool experts)
{
    const ls_band_row *row = rows;
    while (row->experts != experts || (row->stack && (strcmp(row->stack, stack->name) != 0 ||
                                                      strcmp(row->generation, stack->generation) != 0))) {
        row++;
    }
    return row;
}

ls_band ls_accuracy_band(const ls_setting *setting, double step_s)
{
    const ls_band_row *row = find_row(setting->stack, setting->shape->moe.experts > 0);
    /* measured = predicted / (1 + error) */
    return (ls_band){step_s / (1 + row->p90), step_s / (1 + row->p50), step_s / (1 + row->p10), row->from};
}
