// SPDX-License-Identifier: Apache-2.0
/* Linear layers as matrix products (cpu/gemm.h), and the canonical cut as a tree of them. */
#include "compute/kernels/linear.h"

#include "base/pieces.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/shape.h"

/* -- operands -- */

/* The weight as the (out, in) or, transposed, the (in, out) operand of a product. */
static ls_gemm_operand weight_operand(const ls_linear *linear, bool as_out_in)
{
    if (linear->packed_count > 0) {
        return (ls_gemm_operand){
            .transposed = !as_out_in, .packed = linear->packed, .packed_count = linear->packed_count};
    }
    return (ls_gemm_operand){.data = linear->weight.data,
                             .stride = linear->weight.stride,
                             .transposed = as_out_in != (linear->layout == LS_WEIGHT_OUT_IN)};
}

static ls_gemm_operand tensor_operand(const ls_tensor *t, bool transposed)
{
    return (ls_gemm_operand){.data = t->data, .stride = t->stride, .transposed = transposed};
}

/* Outputs that are adjacent in the weight. */
typedef struct out_part {
    int64_t first, width; /* columns of y */
    int64_t at;           /* outputs of the weight */
} out_part;

/* The parts of a layer: one if its segments are adjacent. Returns how many. */
static uint32_t out_parts(const ls_linear *linear, out_part parts_out[LS_LINEAR_SEGMENTS_MAX])
{
    uint32_t count = 0;
    out_part next = {0};
    for (uint32_t s = 0; s < linear->segment_count; s++) {
        next.at += linear->skip[s];
        if (count == 0 || linear->skip[s] > 0) {
            parts_out[count++] = next;
        }
        parts_out[count - 1].width += linear->segment[s];
        next.first += linear->segment[s];
        next.at += linear->segment[s];
    }
    return count;
}

/* Outputs of the weight from `at` on, in or across the rows of a matrix like it. */
static ls_tensor part_of_weight(const ls_linear *linear, ls_tensor t, const out_part *part)
{
    return linear->layout == LS_WEIGHT_OUT_IN ? ls_tensor_rows(t, part->at, part->width)
                                              : ls_tensor_columns(t, part->at, part->width);
}

/* -- the canonical cut: pieces in a fixed binary tree -- */

/* A product whose inner dimension is cut: piece i of t takes the i-th t-th of every segment. */
typedef struct cut_product {
    ls_gemm gemm; /* everything but ranges and destination */
    uint32_t pieces;
    uint32_t segment_count;
    const int64_t *segment;
    const int64_t *skip; /* inner indices that only B has before each segment; NULL: none */
} cut_product;

/* to (rows, cols) += from, then + bias; either may be NULL. */
typedef struct add_job {
    float *to;
    int64_t to_stride;
    const float *from;
    int64_t from_stride;
    const float *bias;
    int64_t rows, cols;
} add_job;

enum { ADD_ROWS = 16 };

static void add_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const add_job *job = context;
    const int64_t first = tile * ADD_ROWS;
    const int64_t end = first + ADD_ROWS < job->rows ? first + ADD_ROWS : job->rows;
    for (int64_t row = first; row < end; row++) {
        float *to = job->to + row * job->to_stride;
        const float *from = job->from ? job->from + row * job->from_stride : NULL;
        for (int64_t col = 0; from && col < job->cols; col++) {
            to[col] += from[col];
        }
        for (int64_t col = 0; job->bias && col < job->cols; col++) {
            to[col] += job->bias[col];
        }
    }
}

static void add_matrix(ls_queue *queue, add_job job)
{
    ls_queue_run_tiles(queue, (job.rows + ADD_ROWS - 1) / ADD_ROWS, add_tile, &job);
}

/* The product as one call per range, which has the bits of one call for all of them. */
static ls_status run_ranges(ls_queue *queue, const ls_gemm *gemm, const int64_t *skip)
{
    ls_gemm part = *gemm;
    part.range_count = 1;
    for (uint32_t s = 0; s < gemm->range_count; s++) {
        part.b.data += skip[s] * (part.b.transposed ? 1 : part.b.stride);
        part.range[0] = gemm->range[s];
        part.accumulate = gemm->accumulate || s > 0;
        LS_TRY(ls_gemm_run(queue, &part));
    }
    return LS_OK;
}

static ls_status run_piece(ls_queue *queue, const cut_product *product, uint32_t piece, float *to,
                           int64_t stride)
{
    ls_gemm gemm = product->gemm;
    int64_t start = 0;
    for (uint32_t s = 0; s < product->segment_count; s++) {
        const int64_t size = product->segment[s];
        const int64_t first = ls_piece_first(size, product->pieces, piece);
        const int64_t end = ls_piece_first(size, product->pieces, piece + 1);
        gemm.range[s] = (ls_gemm_range){.first = start + first, .count = end - first};
        start += size;
    }
    gemm.range_count = product->segment_count;
    gemm.c = to;
    gemm.c_stride = stride;
    return product->skip ? run_ranges(queue, &gemm, product->skip) : ls_gemm_run(queue, &gemm);
}

/* Writes the tree sum of pieces [first, first + count) to `to`; `spare` holds one (m, n) matrix per
 * level. */
static ls_status run_tree(ls_queue *queue, const cut_product *product, uint32_t first, uint32_t count,
                          float *to, int64_t stride, float *spare)
{
    if (count == 1) {
        return run_piece(queue, product, first, to, stride);
    }
    const int64_t m = product->gemm.m, n = product->gemm.n;
    const uint32_t split = ls_pieces_left(count);
    LS_TRY(run_tree(queue, product, first, split, to, stride, spare));
    LS_TRY(run_tree(queue, product, first + split, count - split, spare, n, spare + m * n));
    add_matrix(
        queue,
        (add_job){.to = to, .to_stride = stride, .from = spare, .from_stride = n, .rows = m, .cols = n});
    return LS_OK;
}

/* The whole product; `workspace` is needed when it has more than one piece. */
static ls_status run_cut(ls_queue *queue, cut_product product, const ls_tensor *to,
                         const ls_tensor *workspace)
{
    if (product.pieces == 1) {
        return run_piece(queue, &product, 0, to->data, to->stride);
    }
    const int64_t m = product.gemm.m, n = product.gemm.n;
    const bool accumulate = product.gemm.accumulate;
    const float *bias = product.gemm.bias;
    product.gemm.accumulate = false;
    product.gemm.bias = NULL;

    float *sum = workspace->data;
    add_job finish = {.to = to->data, .to_stride = to->stride, .bias = bias, .rows = m, .cols = n};
    if (accumulate) {
        LS_TRY(run_tree(queue, &product, 0, product.pieces, sum, n, sum + m * n));
        finish.from = sum;
        finish.from_stride = n;
    } else {
        LS_TRY(run_tree(queue, &product, 0, product.pieces, to->data, to->stride, sum));
    }
    if (finish.from || bias) {
        add_matrix(queue, finish);
    }
    return LS_OK;
}

/* -- column sums -- */

/* dbias (1, out): each column summed down its rows, in blocks of SUM_ROWS that are added in
 * order. */
typedef struct column_sums {
    const ls_tensor *dy;
    float *sum;
    bool accumulate;
} column_sums;

enum { SUM_COLS = 64, SUM_ROWS = 64 };

static void column_sums_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const column_sums *job = context;
    const int64_t first = tile * SUM_COLS, rows = job->dy->rows;
    const int64_t width = job->dy->cols - first < SUM_COLS ? job->dy->cols - first : SUM_COLS;
    float total[SUM_COLS] = {0};

    for (int64_t block = 0; block < rows; block += SUM_ROWS) {
        const int64_t end = block + SUM_ROWS < rows ? block + SUM_ROWS : rows;
        float partial[SUM_COLS] = {0};
        for (int64_t row = block; row < end; row++) {
            const float *dy = ls_tensor_row(job->dy, row) + first;
            for (int64_t col = 0; col < width; col++) {
                partial[col] += dy[col];
            }
        }
        for (int64_t col = 0; col < width; col++) {
            total[col] += partial[col];
        }
    }
    float *sum = job->sum + first;
    for (int64_t col = 0; col < width; col++) {
        sum[col] = job->accumulate ? sum[col] + total[col] : total[col];
    }
}

/* -- the three products -- */

ls_status ls_cpu_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                const ls_tensor *y)
{
    const int64_t in = ls_linear_in(linear);
    out_part parts[LS_LINEAR_SEGMENTS_MAX];
    const uint32_t count = out_parts(linear, parts);
    for (uint32_t i = 0; i < count; i++) {
        const ls_tensor part_y = ls_tensor_columns(*y, parts[i].first, parts[i].width);
        cut_product product = {.gemm = {.m = x->rows,
                                        .n = parts[i].width,
                                        .a = tensor_operand(x, false),
                                        .b = weight_operand(linear, false),
                                        .bias = linear->bias.data},
                               .pieces = linear->forward_cut,
                               .segment_count = 1,
                               .segment = &in};
        if (parts[i].at > 0) {
            product.gemm.b.data += parts[i].at * (product.gemm.b.transposed ? product.gemm.b.stride : 1);
            product.gemm.bias += linear->bias.data ? parts[i].at : 0;
        }
        LS_TRY(run_cut(queue, product, &part_y, &linear->workspace));
    }
    return LS_OK;
}

static bool has_gaps(const ls_linear *linear)
{
    return linear->skip[0] > 0 || linear->skip[1] > 0 || linear->skip[2] > 0;
}

ls_status ls_cpu_linear_backward_input(ls_queue *queue, const ls_linear *linear, const ls_tensor *dy,
                                       const ls_tensor *dx, bool accumulate)
{
    const int64_t n = dy->rows, in = ls_linear_in(linear);

    const cut_product product = {.gemm = {.m = n,
                                          .n = in,
                                          .a = tensor_operand(dy, false),
                                          .b = weight_operand(linear, true),
                                          .accumulate = accumulate},
                                 .pieces = linear->backward_input_cut,
                                 .segment_count = linear->segment_count,
                                 .segment = linear->segment,
                                 .skip = has_gaps(linear) ? linear->skip : NULL};
    return run_cut(queue, product, dx, &linear->workspace);
}

static ls_status run_weight_gradient(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                     const ls_tensor *dy, const ls_tensor *dweight, bool accumulate)
{
    const bool out_in = linear->layout == LS_WEIGHT_OUT_IN;
    const ls_gemm gemm = {.m = dweight->rows,
                          .n = dweight->cols,
                          .range = {{.first = 0, .count = x->rows}},
                          .range_count = 1,
                          .a = tensor_operand(out_in ? dy : x, true),
                          .b = tensor_operand(out_in ? x : dy, false),
                          .c = dweight->data,
                          .c_stride = dweight->stride,
                          .accumulate = accumulate};
    return ls_gemm_run(queue, &gemm);
}

ls_status ls_cpu_linear_backward_weight(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                        const ls_tensor *dy, const ls_tensor *dweight, const ls_tensor *dbias,
                                        bool accumulate)
{
    out_part parts[LS_LINEAR_SEGMENTS_MAX];
    const uint32_t count = out_parts(linear, parts);
    for (uint32_t i = 0; i < count; i++) {
        const ls_tensor part_dy = ls_tensor_columns(*dy, parts[i].first, parts[i].width);
        if (ls_tensor_is_present(dweight)) {
            const ls_tensor to = part_of_weight(linear, *dweight, &parts[i]);
            LS_TRY(run_weight_gradient(queue, linear, x, &part_dy, &to, accumulate));
        }
        if (ls_tensor_is_present(dbias)) {
            float *sum = (float *)dbias->data + parts[i].at;
            column_sums sums = {.dy = &part_dy, .sum = sum, .accumulate = accumulate};
            ls_queue_run_tiles(queue, ls_ceil_div(parts[i].width, SUM_COLS), column_sums_tile, &sums);
        }
    }
    return LS_OK;
}
