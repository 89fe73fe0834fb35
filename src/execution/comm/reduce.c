// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions of several buffers in the fixed tree over their numbers.
 *
 * Buffers are taken in blocks that fit the first cache. Runs of eight buffers are whole nodes of the tree (eight is a power of two), so a
 * node of eight is summed in registers, and the nodes like a binary counter: after node g, join as often as g + 1 has zeros below its
 * lowest one; what is left over joins from the right.
 */
#include "execution/comm/reduce.h"

#include "base/assert.h"
#include "base/half.h"
#include "compute/cpu/isa/reduce.h"
#include "compute/cpu/kernels.h"

#include <string.h>

enum {
    BLOCK = 512, /* elements; eight inputs of them are 16 KB of float32 */
    DEPTH = 11,  /* of the counter: 1,024 buffers */
};

const ls_reduce_kernels *ls_comm_kernels(void)
{
    /* Every thread that comes here finds the same table, so the race is harmless. */
    static const ls_reduce_kernels *_Atomic chosen;
    const ls_reduce_kernels *kernels = chosen;
    if (!kernels) {
        const ls_cpu_kernels *table = NULL;
        if (ls_cpu_kernels_select(&table) != LS_OK) {
            return NULL;
        }
        kernels = table->reduce;
        chosen = kernels;
    }
    return kernels;
}

uint64_t ls_dtype_bytes(ls_dtype dtype)
{
    static const uint8_t bytes[LS_DTYPE_COUNT] = {
        [LS_F32] = 4, [LS_BF16] = 2, [LS_F16] = 2, [LS_I32] = 4, [LS_I64] = 8, [LS_U8] = 1};
    return (unsigned)dtype < LS_DTYPE_COUNT ? bytes[dtype] : 0;
}

const char *ls_dtype_name(ls_dtype dtype)
{
    static const char *const names[LS_DTYPE_COUNT] = {[LS_F32] = "f32", [LS_BF16] = "bf16", [LS_F16] = "f16",
                                                      [LS_I32] = "i32", [LS_I64] = "i64",   [LS_U8] = "u8"};
    return (unsigned)dtype < LS_DTYPE_COUNT ? names[dtype] : "unknown type";
}

const char *ls_comm_reduction_name(ls_comm_reduction reduction)
{
    static const char *const names[] = {[LS_COMM_SUM] = "sum", [LS_COMM_MAX] = "max", [LS_COMM_MIN] = "min"};
    return (unsigned)reduction <= LS_COMM_MIN ? names[reduction] : "unknown reduction";
}

/* ---- two operands ---- */

/* Wraps around, as unsigned numbers do. */
#define DEFINE_JOIN(name, type, wide)                                                                        \
    static void join_##name(ls_comm_reduction reduction, const type *a, const type *b, type *out,            \
                            uint64_t count)                                                                  \
    {                                                                                                        \
        switch (reduction) {                                                                                 \
        case LS_COMM_SUM:                                                                                    \
            for (uint64_t i = 0; i < count; i++) {                                                           \
                out[i] = (type)((wide)a[i] + (wide)b[i]);                                                    \
            }                                                                                                \
            break;                                                                                           \
        case LS_COMM_MAX:                                                                                    \
            for (uint64_t i = 0; i < count; i++) {                                                           \
                out[i] = a[i] > b[i] ? a[i] : b[i];                                                          \
            }                                                                                                \
            break;                                                                                           \
        case LS_COMM_MIN:                                                                                    \
            for (uint64_t i = 0; i < count; i++) {                                                           \
                out[i] = a[i] < b[i] ? a[i] : b[i];                                                          \
            }                                                                                                \
            break;                                                                                           \
        }                                                                                                    \
    }

DEFINE_JOIN(f32, float, float)
DEFINE_JOIN(i32, int32_t, uint32_t)
DEFINE_JOIN(i64, int64_t, uint64_t)

static void join(ls_dtype dtype, ls_comm_reduction reduction, const void *a, const void *b, void *out,
                 uint64_t count)
{
    switch (dtype) {
    case LS_I32:
        join_i32(reduction, a, b, out, count);
        break;
    case LS_I64:
        join_i64(reduction, a, b, out, count);
        break;
    default: /* bf16 and f16 are float32 on the way */
        join_f32(reduction, a, b, out, count);
        break;
    }
}

/* ---- blocks ---- */

typedef union block {
    float f32[BLOCK];
    int32_t i32[BLOCK];
    int64_t i64[BLOCK];
} block;

static void block_load(ls_dtype dtype, const void *from, block *to, uint64_t count)
{
    const uint16_t *halves = from;
    switch (dtype) {
    case LS_BF16:
        for (uint64_t i = 0; i < count; i++) {
            to->f32[i] = ls_f32_from_bf16(halves[i]);
        }
        break;
    case LS_F16:
        for (uint64_t i = 0; i < count; i++) {
            to->f32[i] = ls_f32_from_f16(halves[i]);
        }
        break;
    default:
        memcpy(to, from, count * ls_dtype_bytes(dtype));
        break;
    }
}

static void block_store(ls_dtype dtype, const block *from, void *to, uint64_t count)
{
    uint16_t *halves = to;
    switch (dtype) {
    case LS_BF16:
        for (uint64_t i = 0; i < count; i++) {
            halves[i] = ls_bf16_from_f32(from->f32[i]);
        }
        break;
    case LS_F16:
        for (uint64_t i = 0; i < count; i++) {
            halves[i] = ls_f16_from_f32(from->f32[i]);
        }
        break;
    default:
        memcpy(to, from, count * ls_dtype_bytes(dtype));
        break;
    }
}

/* Node number `group` of a block: the tree over up to eight inputs from `first`. */
static uint32_t node_load(ls_dtype dtype, ls_comm_reduction reduction, const void *const *inputs,
                          uint32_t first, uint32_t input_count, uint64_t from, uint64_t count, block *node)
{
    const uint64_t offset = from * ls_dtype_bytes(dtype);
    if (dtype != LS_F32 || reduction != LS_COMM_SUM) {
        block_load(dtype, (const char *)inputs[first] + offset, node, count);
        return 1;
    }
    const uint32_t left = input_count - first,
                   taken = left < LS_REDUCE_INPUTS_MAX ? left : LS_REDUCE_INPUTS_MAX;
    const float *in[LS_REDUCE_INPUTS_MAX];
    for (uint32_t k = 0; k < taken; k++) {
        in[k] = (const float *)(const void *)((const char *)inputs[first + k] + offset);
    }
    float *const out[1] = {node->f32};
    ls_comm_kernels()->sum(in, taken, out, 1, (int64_t)count, false);
    return taken;
}

static void reduce_block(ls_dtype dtype, ls_comm_reduction reduction, const void *const *inputs,
                         uint32_t input_count, uint64_t from, uint64_t count, void *out)
{
    block nodes[DEPTH]; /* the first `count` elements of those below `depth` are there */
    uint32_t depth = 0;
    for (uint32_t first = 0, node = 1; first < input_count; node++) {
        first += node_load(dtype, reduction, inputs, first, input_count, from, count, &nodes[depth]);
        depth++;
        for (uint32_t done = node; done % 2 == 0; done /= 2) {
            join(dtype, reduction, &nodes[depth - 2], &nodes[depth - 1], &nodes[depth - 2], count);
            depth--;
        }
    }
    for (; depth > 1; depth--) {
        join(dtype, reduction, &nodes[depth - 2], &nodes[depth - 1], &nodes[depth - 2], count);
    }
    block_store(dtype, &nodes[0], (char *)out + from * ls_dtype_bytes(dtype), count);
}

void ls_comm_reduce_tree(ls_dtype dtype, ls_comm_reduction reduction, const void *const *inputs,
                         uint32_t input_count, uint64_t count, void *out)
{
    LS_ASSERT(input_count >= 1 && input_count <= LS_COMM_SIZE_MAX && (unsigned)dtype < LS_U8);
    if (dtype == LS_F32 && reduction == LS_COMM_SUM && input_count <= LS_REDUCE_INPUTS_MAX) {
        const float *in[LS_REDUCE_INPUTS_MAX];
        for (uint32_t k = 0; k < input_count; k++) {
            in[k] = inputs[k];
        }
        float *const outs[1] = {out};
        ls_comm_kernels()->sum(in, input_count, outs, 1, (int64_t)count, false);
        return;
    }
    for (uint64_t from = 0; from < count; from += BLOCK) {
        const uint64_t left = count - from;
        reduce_block(dtype, reduction, inputs, input_count, from, left < BLOCK ? left : BLOCK, out);
    }
}
