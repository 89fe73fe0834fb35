// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions of several buffers along the fixed tree over their numbers.
 *
 * The work goes block by block, so that the intermediate sums stay in the first-level cache. Eight
 * consecutive buffers are a whole node of the tree (eight is a power of two), which is summed in
 * registers. These nodes are then joined the way a binary counter carries: after node number n
 * (counted from 1), join the two topmost nodes once for each factor of two in n. The nodes left at
 * the end are joined from the right.
 *
 *   after node   1    2       3          4
 *   stack        a    (ab)    (ab) c     ((ab)(cd))
 */
#include "comm/transport/reduce.h"

#include "base/assert.h"
#include "base/half.h"
#include "compute/cpu/isa/reduce.h"
#include "compute/cpu/kernels.h"

#include <string.h>

enum {
    /* Elements; a block of eight float32 inputs is 16 KiB. */
    BLOCK = 512,
    /* Depth of the stack for 1,024 buffers. */
    DEPTH = 11,
};

const ls_reduce_kernels *ls_comm_kernels(void)
{
    /* All threads choose the same table, so it does not matter which one stores it. */
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

/* Integers are added as unsigned numbers (`wide`), which wrap around. */
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
    default: /* bf16 and f16 have been converted to float32 */
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

/* What is reduced. */
typedef struct task {
    ls_dtype dtype;
    ls_comm_reduction reduction;
    const void *const *inputs;
    uint32_t input_count;
    void *out;
} task;

/* Elements [from, from + count) of the task. */
typedef struct part {
    uint64_t from, count;
} part;

/* Loads the next node of a part: the sum of up to eight float32 inputs beginning at `first`; for
 * other types and reductions a single input. Returns the number of inputs used. */
static uint32_t node_load(const task *t, uint32_t first, part at, block *node)
{
    const uint64_t offset = at.from * ls_dtype_bytes(t->dtype), count = at.count;
    if (t->dtype != LS_F32 || t->reduction != LS_COMM_SUM) {
        block_load(t->dtype, (const char *)t->inputs[first] + offset, node, count);
        return 1;
    }
    const uint32_t left = t->input_count - first,
                   taken = left < LS_REDUCE_INPUTS_MAX ? left : LS_REDUCE_INPUTS_MAX;
    const float *in[LS_REDUCE_INPUTS_MAX];
    for (uint32_t k = 0; k < taken; k++) {
        in[k] = (const float *)(const void *)((const char *)t->inputs[first + k] + offset);
    }
    float *const out[1] = {node->f32};
    ls_comm_kernels()->sum(in, taken, out, 1, (int64_t)count, false);
    return taken;
}

static void reduce_part(const task *t, part at)
{
    /* A stack of `depth` nodes; the first at.count elements of each are in use. */
    block nodes[DEPTH];
    uint32_t depth = 0;
    for (uint32_t first = 0, node = 1; first < t->input_count; node++) {
        first += node_load(t, first, at, &nodes[depth]);
        depth++;
        for (uint32_t done = node; done % 2 == 0; done /= 2) {
            join(t->dtype, t->reduction, &nodes[depth - 2], &nodes[depth - 1], &nodes[depth - 2], at.count);
            depth--;
        }
    }
    for (; depth > 1; depth--) {
        join(t->dtype, t->reduction, &nodes[depth - 2], &nodes[depth - 1], &nodes[depth - 2], at.count);
    }
    block_store(t->dtype, &nodes[0], (char *)t->out + at.from * ls_dtype_bytes(t->dtype), at.count);
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
    const task t = {
        .dtype = dtype, .reduction = reduction, .inputs = inputs, .input_count = input_count, .out = out};
    for (uint64_t from = 0; from < count; from += BLOCK) {
        const uint64_t left = count - from;
        reduce_part(&t, (part){.from = from, .count = left < BLOCK ? left : BLOCK});
    }
}
