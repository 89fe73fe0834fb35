// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/tree_sum.h"

#include "compute/cpu/isa/elementwise.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"
#include "compute/kernels/elementwise.h"

#include <string.h>

enum {
    /* Floats that go through the whole program at once. They are few, so that all inputs are read
     * in parallel and the processor prefetches each. With a page of each at a time, 7 inputs take
     * 2.5 times as long. */
    CHUNK = 64,
    /* Norm blocks of a tile. */
    TILE_BLOCKS = 4,
    TILE = TILE_BLOCKS * LS_NORM_BLOCK,
};
_Static_assert(LS_NORM_BLOCK % CHUNK == 0, "a norm block is whole chunks");

typedef struct tree_job {
    const ls_elementwise_kernels *kernels;
    const ls_tree_sum *sum;
    const float *const *inputs;
    int64_t count;
    float *out;
    double *square_sums;
} tree_job;

/* Computes elements [at, at + count) of the sum. Inputs are read in place, never copied. */
static void sum_chunk(const ls_elementwise_kernels *kernels, const ls_tree_sum *sum,
                      const float *const *inputs, int64_t at, int64_t count, float *out)
{
    _Alignas(64) float partial[LS_TREE_SUM_DEPTH_MAX][CHUNK];
    const float *stack[LS_TREE_SUM_DEPTH_MAX];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < sum->length; i++) {
        if (sum->program[i] != LS_TREE_SUM_ADD) {
            stack[depth++] = inputs[sum->program[i]] + at;
            continue;
        }
        float *to = i + 1 == sum->length ? out : partial[depth - 2];
        kernels->add(stack[depth - 2], stack[depth - 1], to, count);
        stack[depth - 2] = to;
        depth--;
    }
    if (stack[0] != out) {
        memcpy(out, stack[0], (size_t)count * sizeof *out);
    }
}

void ls_cpu_tree_sum_block(const ls_elementwise_kernels *kernels, const ls_tree_sum *sum,
                           const float *const *inputs, int64_t at, int64_t count, float *out)
{
    for (int64_t c = 0; c < count; c += CHUNK) {
        sum_chunk(kernels, sum, inputs, at + c, ls_min64(CHUNK, count - c), out + c);
    }
}

static void tile_sum(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const tree_job *job = context;
    const int64_t past = ls_min64((tile + 1) * TILE, job->count);
    for (int64_t at = tile * TILE; at < past; at += LS_NORM_BLOCK) {
        const int64_t block_past = ls_min64(at + LS_NORM_BLOCK, past);
        ls_cpu_tree_sum_block(job->kernels, job->sum, job->inputs, at, block_past - at, job->out + at);
        if (job->square_sums) {
            job->square_sums[at / LS_NORM_BLOCK] = job->kernels->square_sum(job->out + at, block_past - at);
        }
    }
}

ls_status ls_cpu_tree_sum(ls_queue *queue, const ls_tree_sum *sum, const float *const *inputs, int64_t count,
                          float *out, double *square_sums)
{
    tree_job job = {.kernels = ls_queue_kernels(queue)->elementwise,
                    .sum = sum,
                    .inputs = inputs,
                    .count = count,
                    .out = out,
                    .square_sums = square_sums};
    ls_queue_run_tiles(queue, ls_ceil_div(count, TILE), tile_sum, &job);
    return LS_OK;
}
