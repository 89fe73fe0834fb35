// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "compute/cuda/blocks.h"
#include "compute/cuda/device/tree_sum.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/tree_sum.h"

_Static_assert((int)LS_TREE_SUM_BLOCK == (int)LS_NORM_BLOCK, "a block of threads has one block of the norm");
_Static_assert((int)LS_TREE_SUM_MANY == (int)LS_TREE_SUM_INPUTS_MAX, "a kernel takes every program");
_Static_assert(LS_TREE_SUM_DEPTH_MAX <= 16, "the kernels have no deeper stack");

/* Writes the program in the form that kernels read. */
static void put_in_order(const ls_tree_sum *sum, const float *const *inputs, const float **ordered,
                         uint8_t *additions)
{
    uint32_t pushed = 0;
    for (uint32_t i = 0; i < sum->length; i++) {
        if (sum->program[i] == LS_TREE_SUM_ADD) {
            LS_ASSERT(pushed > 0);
            additions[pushed - 1]++;
            continue;
        }
        LS_ASSERT(sum->program[i] < sum->input_count && pushed < sum->input_count);
        ordered[pushed] = inputs[sum->program[i]];
        additions[pushed++] = 0;
    }
}

static bool all_are_aligned(const ls_tree_sum *sum, const float *const *inputs, const float *out)
{
    bool aligned = ls_cuda_is_aligned(out, 16);
    for (uint32_t i = 0; i < sum->input_count; i++) {
        aligned = aligned && ls_cuda_is_aligned(inputs[i], 16);
    }
    return aligned;
}

static const char *kernel_of(const ls_tree_sum *sum)
{
    if (sum->input_count <= 2) {
        return sum->input_count == 1 ? "tree_sum_1" : "tree_sum_2";
    }
    if (sum->input_count > LS_TREE_SUM_FEW) {
        return "tree_sum_many";
    }
    return sum->depth <= 4 ? "tree_sum_few_4" : sum->depth <= 8 ? "tree_sum_few_8" : "tree_sum_few_16";
}

ls_status ls_cuda_tree_sum(ls_queue *queue, const ls_tree_sum *sum, const float *const *inputs, int64_t count,
                           float *out, double *square_sums)
{
    const bool only_squares = sum->input_count == 1 && inputs[0] == out;
    if (count == 0 || (only_squares && !square_sums)) {
        return LS_OK;
    }
    const ls_tree_sum_call call = {.count = count,
                                   .out = out,
                                   .square_sums = square_sums,
                                   .input_count = sum->input_count,
                                   .aligned = all_are_aligned(sum, inputs, out),
                                   .only_squares = only_squares};
    const ls_cuda_kernel kernel = {"tree_sum", kernel_of(sum)};
    const ls_cuda_grid grid = {.x = ls_cuda_blocks(count, LS_TREE_SUM_BLOCK), .threads = LS_TREE_SUM_THREADS};
    if (sum->input_count <= LS_TREE_SUM_FEW) {
        ls_tree_sum_few few = {.call = call};
        put_in_order(sum, inputs, few.inputs, few.additions);
        return ls_cuda_launch(ls_cuda_of(queue), kernel, grid, &few);
    }
    ls_tree_sum_many many = {.call = call};
    put_in_order(sum, inputs, many.inputs, many.additions);
    return ls_cuda_launch(ls_cuda_of(queue), kernel, grid, &many);
}
