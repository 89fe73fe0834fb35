// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/compress.h"

#include "compute/cpu/isa/adamw.h"
#include "compute/cpu/isa/compress.h"
#include "compute/cpu/isa/elementwise.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <string.h>

enum { BLOCK = LS_COMPRESSION_BLOCK };

typedef struct compress_job {
    const ls_compress_kernels *compress;
    const ls_elementwise_kernels *elementwise;
    const ls_adamw_kernels *adamw;
    const ls_compressed_sum *sum;
    int64_t count;
    float *out;
    double *square_sums;
} compress_job;

/* The packed block that begins at number `at`; NULL stays NULL. */
static unsigned char *packed_at(const ls_compression *compression, unsigned char *packed, int64_t at)
{
    return packed ? packed + ls_compressed_bytes(compression, (uint64_t)at) : NULL;
}

/* Packs x, to which the residual is added first, and leaves in x what the other end will see. */
static void pack_block(const compress_job *job, const ls_compression *compression,
                       const ls_compressed_term *term, int64_t at, int64_t count, float *x)
{
    ls_exact_sum *left_over = job->sum ? job->sum->left_over : NULL;
    unsigned char scratch[BLOCK * sizeof(float)], *packed = packed_at(compression, term->packed_out, at);
    if (term->residual) {
        job->elementwise->add(x, term->residual + at, x, count);
    }
    const uint64_t bytes = ls_compressed_bytes(compression, (uint64_t)count);
    if (packed) {
        /* what rounds the size up */
        memset(packed + bytes - sizeof(uint32_t), 0, sizeof(uint32_t));
    }
    job->compress->pack(compression, x, count, packed ? packed : scratch,
                        term->residual_out ? term->residual_out + at : NULL);
    if (left_over && term->residual_out) {
        const double square = job->elementwise->square_sum(term->residual_out + at, count);
        ls_exact_sum_add(&left_over[at / BLOCK], ls_exact_sum_of(square));
    }
}

/* AdamW's update of zeros. */
static void normalise(const compress_job *job, const ls_compressed_term *term, int64_t at, int64_t count,
                      float *x)
{
    float update[BLOCK] = {0}, *m = term->moments_out[0] + at, *v = term->moments_out[1] + at;
    memcpy(m, term->moments[0] + at, (size_t)count * sizeof *m);
    memcpy(v, term->moments[1] + at, (size_t)count * sizeof *v);
    job->adamw->update(job->sum->normal, update, x, m, v, count);
    memcpy(x, update, (size_t)count * sizeof *x);
}

static void term_block(const compress_job *job, uint32_t index, int64_t at, int64_t count, float *x)
{
    const ls_compression *compression = &job->sum->compression;
    const ls_compressed_term *term = &job->sum->terms[index];
    if (term->packed) {
        const uint64_t before = ls_compressed_bytes(compression, (uint64_t)at);
        job->compress->unpack(compression, term->packed + before, count, x);
        return;
    }
    ls_cpu_tree_sum_block(job->elementwise, term->sum, term->inputs, at, count, x);
    for (int64_t i = 0; i < count && term->minuend; i++) {
        x[i] = term->minuend[at + i] - x[i];
    }
    if (term->moments[0]) {
        normalise(job, term, at, count, x);
    }
    pack_block(job, compression, term, at, count, x);
}

static void tile_compress(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const compress_job *job = context;
    const ls_tree_sum *order = job->sum->order;
    _Alignas(64) float stack[LS_TREE_SUM_DEPTH_MAX][BLOCK];
    const int64_t at = tile * BLOCK, count = ls_min64(BLOCK, job->count - at);
    uint32_t depth = 0;
    for (uint32_t i = 0; i < order->length; i++) {
        if (order->program[i] == LS_TREE_SUM_ADD) {
            job->elementwise->add(stack[depth - 2], stack[depth - 1], stack[depth - 2], count);
            depth--;
        } else {
            term_block(job, order->program[i], at, count, stack[depth++]);
        }
    }
    if (job->sum->whole) {
        pack_block(job, &job->sum->again, job->sum->whole, at, count, stack[0]);
    }
    if (job->out) {
        memcpy(job->out + at, stack[0], (size_t)count * sizeof(float));
    }
    if (job->square_sums) {
        job->square_sums[tile] = job->elementwise->square_sum(stack[0], count);
    }
}

ls_status ls_cpu_compressed_sum(ls_queue *queue, const ls_compressed_sum *sum, int64_t count, float *out,
                                double *square_sums)
{
    compress_job job = {.compress = ls_queue_kernels(queue)->compress,
                        .elementwise = ls_queue_kernels(queue)->elementwise,
                        .adamw = ls_queue_kernels(queue)->adamw,
                        .sum = sum,
                        .count = count,
                        .out = out,
                        .square_sums = square_sums};
    ls_queue_run_tiles(queue, ls_ceil_div(count, BLOCK), tile_compress, &job);
    return LS_OK;
}

void ls_cpu_compress_change(ls_queue *queue, const ls_compression *compression,
                            const ls_compressed_term *change, const float *old, int64_t count, float *weights)
{
    const compress_job job = {.compress = ls_queue_kernels(queue)->compress,
                              .elementwise = ls_queue_kernels(queue)->elementwise};
    _Alignas(64) float x[BLOCK];
    for (int64_t i = 0; i < count; i++) {
        x[i] = weights[i] - old[i];
    }
    pack_block(&job, compression, change, 0, count, x);
    job.elementwise->add(old, x, weights, count);
}

void ls_cpu_decompress(ls_queue *queue, const ls_compression *compression, const unsigned char *packed,
                       int64_t count, float *out, bool adds)
{
    const ls_cpu_kernels *kernels = ls_queue_kernels(queue);
    _Alignas(64) float x[BLOCK];
    for (int64_t at = 0; at < count; at += BLOCK) {
        const uint64_t before = ls_compressed_bytes(compression, (uint64_t)at);
        const int64_t here = ls_min64(BLOCK, count - at);
        kernels->compress->unpack(compression, packed + before, here, adds ? x : out + at);
        if (adds) {
            kernels->elementwise->add(out + at, x, out + at, here);
        }
    }
}
