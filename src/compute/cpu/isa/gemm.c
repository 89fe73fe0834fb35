// SPDX-License-Identifier: Apache-2.0
/*
 * The matrix product of one tile.
 *
 * The value of an element of C: the inner dimension of each range is cut into blocks of BLOCK.
 * Inside a block the element is a chain of fused multiply-adds, in order, from zero. The block sums
 * are added to C in order, and the bias comes last. Registers, panels and tiles do not change the
 * bits. BLOCK does, and is part of the determinism class.
 *
 *             columns of the tile
 *            +-------+-------+-------+    A  the rows of a micro tile, each value broadcast; 12 KB,
 *      BLOCK | panel | panel | panel |       which stay in L1
 *            |   0   |   1   |   2   |    B  packed in panels of PANEL columns, streamed from L2
 *            +-------+-------+-------+    C  ROWS x PANEL sums, in registers for a whole block
 *   +------+ +-------+-------+-------+
 *   | rows | | micro |       |       |    one micro tile is one call of micro()
 *   +------+ +-------+-------+-------+
 *
 * Loop order: blocks of k; pack B once; groups of rows; panels. After Goto and van de Geijn,
 * "Anatomy of high-performance matrix multiplication", 2008, with L1 and L2 exchanged, because on
 * wide vectors the rows of A are the smaller part.
 */
#include "compute/cpu/isa/gemm.h"

#include "compute/cpu/isa/unpack.h"
#include "compute/cpu/simd/transpose.h"

#include <string.h>

extern const ls_gemm_kernels LS_ISA_NAME(ls_gemm_kernels);

/* The micro tile. Its ROWS x (VECTORS * 16) sums, one row of B and one broadcast value must fit
 * into the registers. */
#if defined(LS_ISA_avx512)
enum { ROWS = 8, VECTORS = 3 };
#elif defined(LS_ISA_avx2)
enum { ROWS = 6, VECTORS = 1 };
#else
enum { ROWS = 4, VECTORS = 1 };
#endif

enum {
    /* Part of the determinism class. */
    BLOCK = 384,
    PANEL = VECTORS * LS_LANES,
    /* Rows of a transposed A that are packed together. */
    GROUP = 8 * ROWS,
    /* Rows of A up to which B is not packed into panels: packed matrices, and floats. */
    DIRECT_ROWS = ROWS,
    THIN_ROWS = 8,
    /* Floats that are prefetched ahead in rows of B^T longer than THIN_STRIDE. */
    THIN_STRIDE = 8192,
    THIN_AHEAD = 256,
    /* Rows of B that are prefetched ahead of packing. */
    PACK_AHEAD = 8,
    /* Rows of a panel that are prefetched ahead of the micro tile. */
    PREFETCH_ROWS = 12,
};

/* Loops over the sums must be unrolled completely. Otherwise the sums are in memory and the product
 * runs at a third of its speed. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* -- the micro tile -- */

/* Where a micro tile's A lies: element (i, k) is data[i * row_step + k * k_step]. */
typedef struct a_rows {
    const float *data;
    int64_t row_step;
} a_rows;

/* What happens to C. */
typedef struct c_part {
    float *data;
    int64_t stride;
    int64_t columns;   /* 1 .. vectors * 16 */
    const float *bias; /* of these columns, added last; NULL: none */
    bool add;          /* C += instead of C = */
} c_part;

LS_SIMD void store_row(vf *sum, int vectors, const c_part *c, int row)
{
    float *to = c->data + row * c->stride;
    UNROLL for (int v = 0; v < vectors; v++)
    {
        const int64_t left = c->columns - v * LS_LANES;
        vf value = sum[v];
        if (c->add) {
            value = vf_add(vf_load_tail(to + v * LS_LANES, left), value);
        }
        if (c->bias) {
            value = vf_add(value, vf_load_tail(c->bias + v * LS_LANES, left));
        }
        vf_store_tail(to + v * LS_LANES, value, left);
    }
}

LS_SIMD void micro(int rows, int vectors, int64_t k_step, int64_t count, a_rows a, const float *b,
                   const c_part *c)
{
    vf sum[ROWS][VECTORS];
    UNROLL for (int i = 0; i < rows; i++)
    {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            __builtin_prefetch(c->data + i * c->stride + v * LS_LANES, 1);
            sum[i][v] = vf_zero();
        }
    }
    const float *low = a.data;
    const float *high = a.data + 4 * a.row_step;
    for (int64_t k = 0; k < count; k++) {
        vf row[VECTORS];
        UNROLL for (int v = 0; v < vectors; v++)
        {
            row[v] = vf_load(b + v * LS_LANES);
            __builtin_prefetch(b + PREFETCH_ROWS * vectors * LS_LANES + v * LS_LANES);
        }
        UNROLL for (int i = 0; i < rows; i++)
        {
            const vf x = vf_set(i < 4 ? low[i * a.row_step] : high[(i - 4) * a.row_step]);
            UNROLL for (int v = 0; v < vectors; v++)
            {
                sum[i][v] = vf_fma(x, row[v], sum[i][v]);
            }
        }
        b += vectors * LS_LANES;
        low += k_step;
        high += k_step;
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        store_row(sum[i], vectors, c, i);
    }
}

typedef void (*micro_fn)(int64_t count, a_rows a, const float *b, const c_part *c);

/* Every micro tile that edges can ask for: rows 1 .. 8 (those beyond ROWS unused), vectors 1 ..
 * 3. */
#define MICRO(name, r, v, step, row_step_)                                                                   \
    static void micro_##name##_##r##x##v(int64_t count, a_rows a, const float *b, const c_part *c)           \
    {                                                                                                        \
        a.row_step = (row_step_);                                                                            \
        micro((r) <= ROWS ? (r) : ROWS, (v) <= VECTORS ? (v) : VECTORS, step, count, a, b, c);               \
    }
#define MICRO_ROWS(name, v, step, row_step_)                                                                 \
    MICRO(name, 1, v, step, row_step_)                                                                       \
    MICRO(name, 2, v, step, row_step_)                                                                       \
    MICRO(name, 3, v, step, row_step_)                                                                       \
    MICRO(name, 4, v, step, row_step_)                                                                       \
    MICRO(name, 5, v, step, row_step_)                                                                       \
    MICRO(name, 6, v, step, row_step_)                                                                       \
    MICRO(name, 7, v, step, row_step_)                                                                       \
    MICRO(name, 8, v, step, row_step_)
#define MICRO_ALL(name, step, row_step_)                                                                     \
    MICRO_ROWS(name, 1, step, row_step_)                                                                     \
    MICRO_ROWS(name, 2, step, row_step_)                                                                     \
    MICRO_ROWS(name, 3, step, row_step_)
#define MICRO_TABLE_ROWS(name, v)                                                                            \
    {                                                                                                        \
        micro_##name##_1x##v, micro_##name##_2x##v, micro_##name##_3x##v, micro_##name##_4x##v,              \
            micro_##name##_5x##v, micro_##name##_6x##v, micro_##name##_7x##v, micro_##name##_8x##v           \
    }
#define MICRO_TABLE(name)                                                                                    \
    {                                                                                                        \
        MICRO_TABLE_ROWS(name, 1), MICRO_TABLE_ROWS(name, 2), MICRO_TABLE_ROWS(name, 3)                      \
    }

/* A in rows (k next to each other), and A packed in groups of ROWS (rows next to each other). */
MICRO_ALL(rows, 1, a.row_step)
MICRO_ALL(packed, ROWS, 1)

static const micro_fn micro_of_rows[3][8] = MICRO_TABLE(rows);
static const micro_fn micro_of_packed[3][8] = MICRO_TABLE(packed);

/* -- packing -- */

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Vectors of the next panel when `left` columns remain: as wide as possible, but never one vector
 * alone after a full panel, because a lone one has too few sums to hide the latency of the
 * multiply-add. */
static int panel_vectors(int64_t left)
{
    const int64_t vectors = (left + LS_LANES - 1) / LS_LANES;
    return (int)(VECTORS == 3 && vectors == 4 ? 2 : min64(vectors, VECTORS));
}

/* One panel of a B whose columns are next to each other. Rows lie pages apart, where the processor
 * doesn't see a stream: it is told. */
LS_SIMD void pack_panel(const float *from, int64_t stride, int64_t count, int vectors, int64_t columns,
                        float *to)
{
    const bool whole = columns >= vectors * LS_LANES;
    for (int64_t k = 0; k < count; k++) {
        const float *row = from + k * stride;
        for (int v = 0; v <= vectors; v++) {
            __builtin_prefetch(row + PACK_AHEAD * stride + v * LS_LANES);
        }
        UNROLL for (int v = 0; v < vectors; v++)
        {
            const float *part = row + v * LS_LANES;
            vf_store(to + v * LS_LANES, whole ? vf_load(part) : vf_load_tail(part, columns - v * LS_LANES));
        }
        to += vectors * LS_LANES;
    }
}

static void pack_b_rows(const float *from, int64_t stride, int64_t count, int64_t columns, float *to)
{
    for (int64_t left = columns; left > 0;) {
        const int vectors = panel_vectors(left);
        if (vectors == VECTORS) {
            pack_panel(from, stride, count, VECTORS, left, to);
        } else if (vectors == 2) {
            pack_panel(from, stride, count, 2, left, to);
        } else {
            pack_panel(from, stride, count, 1, left, to);
        }
        from += vectors * LS_LANES;
        to += count * vectors * LS_LANES;
        left -= vectors * LS_LANES;
    }
}

/* 16 columns of a transposed B, as rows of `from`: `to` is one vector of a panel whose rows are
 * `to_stride` apart. */
static void pack_b_vector(const float *from, int64_t stride, int64_t count, int64_t columns, float *to,
                          int64_t to_stride)
{
    for (int64_t k = 0; k < count; k += LS_LANES) {
        vf block[LS_LANES];
        UNROLL for (int i = 0; i < LS_LANES; i++)
        {
            const float *row = from + i * stride + k;
            block[i] = i < columns ? vf_load_tail(row, count - k) : vf_zero();
        }
        vf_transpose(block);
        const int64_t end = min64(count - k, LS_LANES);
        UNROLL for (int i = 0; i < LS_LANES; i++)
        {
            if (i < end) {
                vf_store(to + (k + i) * to_stride, block[i]);
            }
        }
    }
}

static void pack_b_transposed(const float *from, int64_t stride, int64_t count, int64_t columns, float *to)
{
    for (int64_t left = columns; left > 0;) {
        const int vectors = panel_vectors(left);
        for (int v = 0; v < vectors; v++) {
            pack_b_vector(from + v * LS_LANES * stride, stride, count, left - v * LS_LANES, to + v * LS_LANES,
                          vectors * LS_LANES);
        }
        from += vectors * LS_LANES * stride;
        to += count * vectors * LS_LANES;
        left -= vectors * LS_LANES;
    }
}

/* The packed matrix that holds row *row_inout, which becomes a row of that matrix. */
static const ls_packed *packed_of_row(const ls_gemm_operand *b, int64_t *row_inout)
{
    const ls_packed *packed = b->packed;
    while (*row_inout >= packed->rows) {
        *row_inout -= packed->rows;
        packed++;
    }
    return packed;
}

/* `left` columns of a packed B^T, at most 16, as one vector of a panel. A group of rows is one
 * vector, unless the columns cross from one matrix to the next or begin inside of a group. */
static void pack_b_packed_vector(const ls_gemm_operand *b, int64_t column, int64_t left, int64_t first,
                                 int64_t count, float *to, int64_t to_stride)
{
    int64_t row = column;
    const ls_packed *packed = packed_of_row(b, &row);
    if (row % LS_PACKED_GROUP == 0 && row + left <= packed->rows) {
        unpack_group(packed, row, first, first + count, to, to_stride);
        return;
    }
    for (int64_t i = 0; i < LS_LANES; i++) {
        row = column + (i < left ? i : 0);
        packed = packed_of_row(b, &row);
        for (int64_t k = 0; k < count; k++) {
            to[k * to_stride + i] = ls_packed_value(packed, row, first + k);
        }
    }
}

static void pack_b_packed_transposed(const ls_gemm_operand *b, const ls_gemm_rect *rect, int64_t first,
                                     int64_t count, float *to)
{
    int64_t column = rect->column;
    for (int64_t left = rect->columns; left > 0;) {
        const int vectors = panel_vectors(left);
        for (int v = 0; v < vectors; v++) {
            pack_b_packed_vector(b, column + v * LS_LANES, min64(left - v * LS_LANES, LS_LANES), first, count,
                                 to + v * LS_LANES, vectors * LS_LANES);
        }
        to += count * vectors * LS_LANES;
        column += vectors * LS_LANES;
        left -= vectors * LS_LANES;
    }
}

/* Rows of a group of 16 that become rows of B from `k` on. */
typedef struct packed_rows {
    const float *column; /* 16 rows of one column after the other */
    int64_t low, high;   /* the rows that are wanted */
    int64_t k;
} packed_rows;

static void pack_b_group(const packed_rows *group, int64_t count, int64_t columns, float *to)
{
    const float *from = group->column;
    for (int64_t left = columns; left > 0;) {
        const int vectors = panel_vectors(left);
        for (int v = 0; v < vectors; v++) {
            vf block[LS_LANES];
            UNROLL for (int i = 0; i < LS_LANES; i++)
            {
                block[i] = v * LS_LANES + i < left ? vf_load(from + i * LS_LANES) : vf_zero();
            }
            vf_transpose(block);
            float *row = to + (group->k * vectors + v) * LS_LANES;
            UNROLL for (int i = 0; i < LS_LANES; i++)
            {
                if (i >= group->low && i < group->high) {
                    vf_store(row + (i - group->low) * vectors * LS_LANES, block[i]);
                }
            }
            from += LS_LANES * LS_LANES;
        }
        to += count * vectors * LS_LANES;
        left -= vectors * LS_LANES;
    }
}

/* `space` holds 16 floats for each column. */
static void pack_b_packed_rows(const ls_gemm_operand *b, const ls_gemm_rect *rect, int64_t first,
                               int64_t count, float *to, float *space)
{
    const int64_t column = rect->column, columns = rect->columns;
    for (int64_t k = 0; k < count;) {
        int64_t row = first + k;
        const ls_packed *packed = packed_of_row(b, &row);
        packed_rows group = {.column = space, .low = row % LS_PACKED_GROUP, .k = k};
        group.high = min64(LS_PACKED_GROUP, group.low + min64(count - k, packed->rows - row));
        unpack_group(packed, row - group.low, column, column + columns, space, LS_LANES);
        pack_b_group(&group, count, columns, to);
        k += group.high - group.low;
    }
}

/* A transposed A (rows next to each other) in groups of ROWS: to[group][k][row]. */
static void pack_a_transposed(const float *from, int64_t stride, int64_t count, int64_t rows, float *to)
{
    const int64_t whole = rows / ROWS, rest = rows % ROWS;
    for (int64_t k = 0; k < count; k++) {
        const float *row = from + k * stride;
        for (int64_t group = 0; group < whole; group++) {
            memcpy(to + (group * count + k) * ROWS, row + group * ROWS, ROWS * sizeof(float));
        }
        for (int64_t i = 0; i < rest; i++) {
            to[(whole * count + k) * ROWS + i] = row[whole * ROWS + i];
        }
    }
}

/* -- the tile -- */

/* One block of k: packed B, and the C it is added to. */
typedef struct block_job {
    const ls_gemm *gemm;
    const ls_gemm_rect *rect;
    int64_t first, count; /* inner indices */
    bool add;             /* C holds something already */
    bool last;            /* the bias is due */
    const float *b;
    float *a_space;
} block_job;

/* One group of at most ROWS rows, starting at row `row` of C, over all panels. */
static void run_rows(const block_job *job, const micro_fn table[3][8], a_rows a, int64_t row, int64_t rows)
{
    const ls_gemm *g = job->gemm;
    const float *panel = job->b;
    c_part c = {.stride = g->c_stride, .add = job->add};
    for (int64_t done = 0; done < job->rect->columns;) {
        const int64_t left = job->rect->columns - done, column = job->rect->column + done;
        const int vectors = panel_vectors(left);
        c.data = g->c + row * g->c_stride + column;
        c.columns = min64(left, vectors * LS_LANES);
        c.bias = job->last && g->bias ? g->bias + column : NULL;
        table[vectors - 1][rows - 1](job->count, a, panel, &c);
        panel += job->count * vectors * LS_LANES;
        done += vectors * LS_LANES;
    }
}

static void run_block_rows(const block_job *job)
{
    const ls_gemm_operand *operand = &job->gemm->a;
    const int64_t end = job->rect->row + job->rect->rows;
    for (int64_t row = job->rect->row; row < end; row += ROWS) {
        const int64_t rows = min64(end - row, ROWS);
        const a_rows a = {operand->data + row * operand->stride + job->first, operand->stride};
        run_rows(job, micro_of_rows, a, row, rows);
    }
}

static void run_block_transposed(const block_job *job)
{
    const ls_gemm_operand *operand = &job->gemm->a;
    const int64_t end = job->rect->row + job->rect->rows;
    for (int64_t group = job->rect->row; group < end; group += GROUP) {
        const int64_t group_rows = min64(end - group, GROUP);
        pack_a_transposed(operand->data + job->first * operand->stride + group, operand->stride, job->count,
                          group_rows, job->a_space);
        for (int64_t done = 0; done < group_rows; done += ROWS) {
            const a_rows a = {job->a_space + done * job->count, 1};
            run_rows(job, micro_of_packed, a, group + done, min64(group_rows - done, ROWS));
        }
    }
}

static int64_t packed_floats(int64_t columns)
{
    const int64_t vectors = (columns + LS_LANES - 1) / LS_LANES;
    return vectors * LS_LANES * BLOCK + PREFETCH_ROWS * PANEL;
}

static int64_t scratch_floats(int64_t columns)
{
    const int64_t group = (columns + LS_LANES - 1) / LS_LANES * LS_LANES * LS_PACKED_GROUP;
    return packed_floats(columns) + (group > GROUP * BLOCK ? group : GROUP * BLOCK);
}

/* Packs the block's B into panels. Packed matrices need 16 floats of A's space for each column; it
 * is free, because only gradients of weights have a transposed A. */
static void pack_b(const block_job *job, float *to)
{
    const ls_gemm_operand *b = &job->gemm->b;
    const int64_t column = job->rect->column, columns = job->rect->columns;
    if (b->packed_count > 0 && b->transposed) {
        pack_b_packed_transposed(b, job->rect, job->first, job->count, to);
    } else if (b->packed_count > 0) {
        pack_b_packed_rows(b, job->rect, job->first, job->count, to, job->a_space);
    } else if (b->transposed) {
        pack_b_transposed(b->data + column * b->stride + job->first, b->stride, job->count, columns, to);
    } else {
        pack_b_rows(b->data + job->first * b->stride + column, b->stride, job->count, columns, to);
    }
}

static void run_block(block_job *job, float *scratch)
{
    job->a_space = scratch + packed_floats(job->rect->columns);
    pack_b(job, scratch);
    job->b = scratch;
    if (job->gemm->a.transposed) {
        run_block_transposed(job);
    } else {
        run_block_rows(job);
    }
}

/* -- few rows of A, B^T of floats: straight from its rows -- */

/* 16 rows of B^T, turned in registers 16 by 16. The product waits for B from memory; panels would
 * only take it there and back once more. */
LS_SIMD void micro_thin(int rows, int64_t count, a_rows a, const float *b, int64_t stride, const c_part *c)
{
    /* the same place of the next 16 rows; of longer rows the cache can't hold so many */
    const int64_t ahead = stride <= THIN_STRIDE ? LS_LANES * stride : THIN_AHEAD;
    vf sum[THIN_ROWS];
    UNROLL for (int i = 0; i < rows; i++)
    {
        sum[i] = vf_zero();
    }
    for (int64_t k = 0; k < count; k += LS_LANES) {
        vf block[LS_LANES];
        UNROLL for (int j = 0; j < LS_LANES; j++)
        {
            /* columns beyond the last read the first again, and are not stored */
            const float *row = b + (j < c->columns ? j : 0) * stride + k;
            __builtin_prefetch(row + ahead);
            block[j] = vf_load_tail(row, count - k);
        }
        vf_transpose(block);
        UNROLL for (int j = 0; j < LS_LANES; j++)
        {
            if (k + j < count) {
                UNROLL for (int i = 0; i < rows; i++)
                {
                    const vf x = vf_set(a.data[i * a.row_step + k + j]);
                    sum[i] = vf_fma(x, block[j], sum[i]);
                }
            }
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        store_row(&sum[i], 1, c, i);
    }
}

#define THIN(r)                                                                                              \
    static void thin_##r(int64_t count, a_rows a, const float *b, int64_t stride, const c_part *c)           \
    {                                                                                                        \
        micro_thin(r, count, a, b, stride, c);                                                               \
    }
THIN(1)
THIN(2)
THIN(3)
THIN(4)
THIN(5)
THIN(6)
THIN(7)
THIN(8)

static void (*const thin_of[THIN_ROWS])(int64_t count, a_rows a, const float *b, int64_t stride,
                                        const c_part *c) = {thin_1, thin_2, thin_3, thin_4,
                                                            thin_5, thin_6, thin_7, thin_8};

static bool is_thin(const ls_gemm *gemm, const ls_gemm_rect *rect)
{
    return gemm->b.packed_count == 0 && gemm->b.transposed && !gemm->a.transposed && rect->rows <= THIN_ROWS;
}

/* 16 columns at a time, through all blocks: their rows of B^T are read from end to end. */
static void tile_thin(const ls_gemm *gemm, const ls_gemm_rect *rect)
{
    for (int64_t done = 0; done < rect->columns; done += LS_LANES) {
        const int64_t column = rect->column + done;
        c_part c = {.data = gemm->c + rect->row * gemm->c_stride + column,
                    .stride = gemm->c_stride,
                    .columns = min64(rect->columns - done, LS_LANES),
                    .add = gemm->accumulate};
        for (uint32_t i = 0; i < gemm->range_count; i++) {
            const int64_t end = gemm->range[i].first + gemm->range[i].count;
            for (int64_t k = gemm->range[i].first; k < end; k += BLOCK) {
                const a_rows a = {gemm->a.data + rect->row * gemm->a.stride + k, gemm->a.stride};
                const bool last = i + 1 == gemm->range_count && k + BLOCK >= end;
                c.bias = last && gemm->bias ? gemm->bias + column : NULL;
                thin_of[rect->rows - 1](min64(end - k, BLOCK), a, gemm->b.data + column * gemm->b.stride + k,
                                        gemm->b.stride, &c);
                c.add = true;
            }
        }
    }
}

/* -- few rows of A, packed B: straight from the codes -- */

/* The codes of 16 columns of a packed B^T. */
typedef struct packed_vector {
    const ls_packed *packed;
    int64_t row;
    const uint8_t *codes;
} packed_vector;

/* The inner indices [first, end) of a micro tile; both are even. */
typedef struct packed_range {
    const packed_vector *b;
    int64_t first, end;
} packed_range;

LS_SIMD vf packed_scales(ls_packed_kind kind, const packed_vector *b, int64_t k)
{
    return kind == LS_PACKED_NF4    ? unpack_scales(b->packed, b->row, k)
           : kind == LS_PACKED_INT8 ? vf_load(b->packed->scales + b->row)
                                    : vf_zero();
}

LS_SIMD void micro_direct(ls_packed_kind kind, int rows, int vectors, const packed_range *range, a_rows a,
                          const c_part *c)
{
    vf sum[DIRECT_ROWS][VECTORS], scale[VECTORS];
    UNROLL for (int i = 0; i < rows * vectors; i++)
    {
        sum[i / vectors][i % vectors] = vf_zero();
    }
    const int64_t run = kind == LS_PACKED_NF4 ? unpack_run(range->b->packed) : range->end;
    for (int64_t k = range->first; k < range->end;) {
        UNROLL for (int v = 0; v < vectors; v++)
        {
            scale[v] = packed_scales(kind, &range->b[v], k);
        }
        for (const int64_t next = min64(range->end, (k / run + 1) * run); k < next; k += 2) {
            UNROLL for (int v = 0; v < vectors; v++)
            {
                vf pair[2];
                unpack_pair(kind, range->b[v].codes, k, scale[v], pair);
                UNROLL for (int i = 0; i < rows; i++)
                {
                    const float *x = a.data + i * a.row_step + k;
                    sum[i][v] = vf_fma(vf_set(x[0]), pair[0], sum[i][v]);
                    sum[i][v] = vf_fma(vf_set(x[1]), pair[1], sum[i][v]);
                }
            }
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        store_row(sum[i], vectors, c, i);
    }
}

typedef void (*direct_fn)(const packed_range *range, a_rows a, const c_part *c);

#define DIRECT(kind, r, v)                                                                                   \
    static void direct_##kind##_##r##x##v(const packed_range *range, a_rows a, const c_part *c)              \
    {                                                                                                        \
        micro_direct(LS_PACKED_##kind, (r) <= ROWS ? (r) : ROWS, (v) <= VECTORS ? (v) : VECTORS, range, a,   \
                     c);                                                                                     \
    }
#define DIRECT_ROWS_OF(kind, v)                                                                              \
    DIRECT(kind, 1, v)                                                                                       \
    DIRECT(kind, 2, v)                                                                                       \
    DIRECT(kind, 3, v)                                                                                       \
    DIRECT(kind, 4, v)                                                                                       \
    DIRECT(kind, 5, v)                                                                                       \
    DIRECT(kind, 6, v)                                                                                       \
    DIRECT(kind, 7, v)                                                                                       \
    DIRECT(kind, 8, v)
#define DIRECT_ALL(kind)                                                                                     \
    DIRECT_ROWS_OF(kind, 1)                                                                                  \
    DIRECT_ROWS_OF(kind, 2)                                                                                  \
    DIRECT_ROWS_OF(kind, 3)
#define DIRECT_TABLE_ROWS(kind, v)                                                                           \
    {                                                                                                        \
        direct_##kind##_1x##v, direct_##kind##_2x##v, direct_##kind##_3x##v, direct_##kind##_4x##v,          \
            direct_##kind##_5x##v, direct_##kind##_6x##v, direct_##kind##_7x##v, direct_##kind##_8x##v       \
    }
#define DIRECT_TABLE(kind)                                                                                   \
    {                                                                                                        \
        DIRECT_TABLE_ROWS(kind, 1), DIRECT_TABLE_ROWS(kind, 2), DIRECT_TABLE_ROWS(kind, 3)                   \
    }

DIRECT_ALL(BF16)
DIRECT_ALL(INT8)
DIRECT_ALL(NF4)

static const direct_fn direct_of[LS_PACKED_KINDS][3][8] = {[LS_PACKED_BF16] = DIRECT_TABLE(BF16),
                                                           [LS_PACKED_INT8] = DIRECT_TABLE(INT8),
                                                           [LS_PACKED_NF4] = DIRECT_TABLE(NF4)};

/* Few rows of A do not repay panels. Every vector must be a group, and pairs of columns must share
 * their scales. */
static bool is_direct(const ls_gemm *gemm, const ls_gemm_rect *rect)
{
    const ls_gemm_operand *b = &gemm->b;
    if (b->packed_count == 0 || !b->transposed || rect->rows > DIRECT_ROWS || b->packed->cols % 2 != 0) {
        return false;
    }
    for (uint32_t i = 0; i < gemm->range_count; i++) {
        if (gemm->range[i].first % 2 != 0 || gemm->range[i].count % 2 != 0) {
            return false;
        }
    }
    for (int64_t done = 0; done < rect->columns; done += LS_LANES) {
        int64_t row = rect->column + done;
        const ls_packed *packed = packed_of_row(b, &row);
        if (row % LS_PACKED_GROUP != 0 || row + min64(rect->columns - done, LS_LANES) > packed->rows) {
            return false;
        }
    }
    return true;
}

/* All blocks of one panel, which lie one after the other in memory. */
static void run_direct_panel(const ls_gemm *gemm, const ls_gemm_rect *rect, const packed_vector *b,
                             int vectors)
{
    const direct_fn run = direct_of[b->packed->kind][vectors - 1][rect->rows - 1];
    const a_rows a = {gemm->a.data + rect->row * gemm->a.stride, gemm->a.stride};
    c_part c = {.data = gemm->c + rect->row * gemm->c_stride + rect->column,
                .stride = gemm->c_stride,
                .columns = rect->columns,
                .add = gemm->accumulate};
    for (uint32_t i = 0; i < gemm->range_count; i++) {
        const int64_t end = gemm->range[i].first + gemm->range[i].count;
        for (int64_t k = gemm->range[i].first; k < end; k += BLOCK) {
            const packed_range range = {.b = b, .first = k, .end = min64(end, k + BLOCK)};
            const bool last = i + 1 == gemm->range_count && range.end == end;
            c.bias = last && gemm->bias ? gemm->bias + rect->column : NULL;
            run(&range, a, &c);
            c.add = true;
        }
    }
}

static void tile_direct(const ls_gemm *gemm, const ls_gemm_rect *rect)
{
    for (int64_t done = 0; done < rect->columns;) {
        const int64_t left = rect->columns - done;
        const int vectors = panel_vectors(left);
        ls_gemm_rect panel = *rect;
        panel.column += done;
        panel.columns = min64(left, vectors * LS_LANES);
        packed_vector b[VECTORS];
        for (int v = 0; v < vectors; v++) {
            b[v].row = panel.column + v * LS_LANES;
            b[v].packed = packed_of_row(&gemm->b, &b[v].row);
            b[v].codes = unpack_codes(b[v].packed, b[v].row);
        }
        run_direct_panel(gemm, &panel, b, vectors);
        done += vectors * LS_LANES;
    }
}

static void tile(const ls_gemm *gemm, const ls_gemm_rect *rect, float *scratch)
{
    if (is_thin(gemm, rect)) {
        tile_thin(gemm, rect);
        return;
    }
    if (is_direct(gemm, rect)) {
        tile_direct(gemm, rect);
        return;
    }
    block_job job = {.gemm = gemm, .rect = rect, .add = gemm->accumulate};
    for (uint32_t i = 0; i < gemm->range_count; i++) {
        const int64_t end = gemm->range[i].first + gemm->range[i].count;
        for (job.first = gemm->range[i].first; job.first < end; job.first += BLOCK) {
            job.count = min64(end - job.first, BLOCK);
            job.last = i + 1 == gemm->range_count && job.first + job.count == end;
            run_block(&job, scratch);
            job.add = true;
        }
    }
}

/* -- the limit -- */

static double burst(int64_t rounds, float *sink_out)
{
    vf sum[ROWS][VECTORS];
    const vf x = vf_set(*sink_out), y = vf_set(1.0f - *sink_out);
    UNROLL for (int i = 0; i < ROWS; i++)
    {
        UNROLL for (int v = 0; v < VECTORS; v++)
        {
            /* no two alike: each must be computed */
            sum[i][v] = vf_add(vf_iota(), vf_set((float)(i * VECTORS + v)));
        }
    }
    for (int64_t round = 0; round < rounds; round++) {
        UNROLL for (int i = 0; i < ROWS; i++)
        {
            UNROLL for (int v = 0; v < VECTORS; v++)
            {
                sum[i][v] = vf_fma(x, sum[i][v], y);
            }
        }
    }
    vf total = vf_zero();
    UNROLL for (int i = 0; i < ROWS; i++)
    {
        UNROLL for (int v = 0; v < VECTORS; v++)
        {
            total = vf_add(total, sum[i][v]);
        }
    }
    *sink_out = vf_sum(total);
    return 2.0 * LS_LANES * ROWS * VECTORS * (double)rounds;
}

const ls_gemm_kernels LS_ISA_NAME(ls_gemm_kernels) = {
    .row_grain = ROWS,
    .column_grain = PANEL,
    .scratch_floats = scratch_floats,
    .tile = tile,
    .burst = burst,
};
