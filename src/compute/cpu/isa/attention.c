// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/attention.h"

#include "compute/cpu/simd/simd_math.h"

#include <stdbool.h>
#include <string.h>

extern const ls_attention_kernels LS_ISA_NAME(ls_attention_kernels);

enum { BLOCK = LS_ATTENTION_BLOCK };

/* Vectors of B that are held in registers for 4 rows of A: 16 accumulators of one register, or 4 of
 * two registers. */
#if defined(LS_ISA_avx512)
enum { PANEL = 4 };
#else
enum { PANEL = 1 };
#endif

static const float masked_score = -1e30f;

/* ---- products -------------------------------------------------------------------------------- */

/*
 * C += A B on packed operands. Every element of C is one chain of fused multiply-adds over k, in
 * order.
 *
 * This is not the product of isa/gemm.c, because that one is made for large matrices: it packs B
 * into panels, cuts the inner dimension into blocks and adds a bias. Here the operands are blocks
 * of 64 positions that are already packed and padded in scratch memory, the scores are needed
 * transposed, and the inner dimension is never cut. With isa/gemm.c each small product would be
 * packed a second time, and an inner dimension above its block size would give other bits.
 */

/* Element (m, k) of A is data[m * row + k * col]. */
typedef struct operand {
    const float *data;
    int64_t row, col;
} operand;

LS_SIMD void tile(int rows, int vectors, operand a, const float *b, int64_t b_stride, float *c,
                  int64_t c_stride, int64_t depth, bool clear)
{
    vf acc[4][4];
    for (int m = 0; m < rows; m++) {
        for (int v = 0; v < vectors; v++) {
            acc[m][v] = clear ? vf_zero() : vf_load(c + m * c_stride + v * LS_LANES);
        }
    }
    for (int64_t k = 0; k < depth; k++) {
        vf bk[4];
        for (int v = 0; v < vectors; v++) {
            bk[v] = vf_load(b + k * b_stride + v * LS_LANES);
        }
        for (int m = 0; m < rows; m++) {
            const vf am = vf_set(a.data[m * a.row + k * a.col]);
            for (int v = 0; v < vectors; v++) {
                acc[m][v] = vf_fma(am, bk[v], acc[m][v]);
            }
        }
    }
    for (int m = 0; m < rows; m++) {
        for (int v = 0; v < vectors; v++) {
            vf_store(c + m * c_stride + v * LS_LANES, acc[m][v]);
        }
    }
}

/* 4 rows of C, `cols` columns (a multiple of 16). */
static void strip(operand a, const float *b, int64_t b_stride, float *c, int64_t c_stride, int64_t cols,
                  int64_t depth, bool clear)
{
    int64_t n = 0;
    for (; n + PANEL * LS_LANES <= cols; n += PANEL * LS_LANES) {
        tile(4, PANEL, a, b + n, b_stride, c + n, c_stride, depth, clear);
    }
#if defined(LS_ISA_avx512)
    switch ((cols - n) / LS_LANES) {
    case 3:
        tile(4, 3, a, b + n, b_stride, c + n, c_stride, depth, clear);
        break;
    case 2:
        tile(4, 2, a, b + n, b_stride, c + n, c_stride, depth, clear);
        break;
    case 1:
        tile(4, 1, a, b + n, b_stride, c + n, c_stride, depth, clear);
        break;
    }
#endif
}

/* C (rows, cols) = or += A (rows, depth) B (depth, cols); rows a multiple of 4, cols of 16. */
static void product(operand a, const float *b, int64_t b_stride, float *c, int64_t c_stride, int64_t rows,
                    int64_t cols, int64_t depth, bool clear)
{
    for (int64_t m = 0; m < rows; m += 4) {
        strip(a, b, b_stride, c + m * c_stride, c_stride, cols, depth, clear);
        a.data += 4 * a.row;
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* to (rows_padded, pad(cols)) = factor * from, zeros around. */
static void pack_rows(ls_attention_rows from, int64_t first, int64_t rows, int64_t rows_padded, int64_t cols,
                      float factor, float *to)
{
    const int64_t width = ls_attention_pad(cols);
    const vf f = vf_set(factor);
    for (int64_t r = 0; r < rows_padded; r++) {
        const float *row = from.data + (first + r) * from.stride;
        for (int64_t i = 0; i < width; i += LS_LANES) {
            const int64_t left = cols - i;
            vf_store(to + r * width + i, r < rows ? vf_mul(vf_load_tail(row + i, left), f) : vf_zero());
        }
    }
}

/* to[d][r] = packed[r][d] for d < cols; rows of `to` are BLOCK floats. */
static void transpose(const float *packed, int64_t rows_padded, int64_t cols, float *to)
{
    const int64_t width = ls_attention_pad(cols);
    for (int64_t d0 = 0; d0 < cols; d0 += 16) {
        const int64_t end = d0 + 16 < cols ? d0 + 16 : cols;
        for (int64_t r = 0; r < rows_padded; r++) {
            for (int64_t d = d0; d < end; d++) {
                to[d * BLOCK + r] = packed[r * width + d];
            }
        }
    }
}

/* ---- the shape of one block of scores -------------------------------------------------------- */

/* Queries p0 .. p0 + queries - 1 (positions) against keys j0 .. j0 + keys - 1; both counts padded
 * to 16. */
typedef struct score_block {
    int64_t p0, queries, j0, keys, window;
} score_block;

/* First query column that key rows g .. g + 15 reach, a multiple of 16; everything to its left is
 * masked. */
static int64_t first_query(const score_block *b, int64_t g)
{
    const int64_t ahead = b->j0 + g - b->p0;
    return ahead <= 0 ? 0 : ahead / 16 * 16;
}

/* Key rows that query columns c .. c + 15 reach, a multiple of 16; everything below is masked. */
static int64_t key_rows(const score_block *b, int64_t c)
{
    const int64_t last = b->p0 + c + 15 - b->j0;
    if (last < 0) {
        return 0;
    }
    const int64_t rows = (last / 16 + 1) * 16; /* the groups g with first_query(g) <= c */
    return rows < b->keys ? rows : b->keys;
}

/* Whether some query of columns c .. c + 15 may not see some of the first `rows` keys. */
static bool has_mask(const score_block *b, int64_t c, int64_t rows)
{
    const bool later = b->j0 + rows - 1 > b->p0 + c;
    return later || (b->window > 0 && b->j0 < b->p0 + c + 15 - b->window + 1);
}

/* Which lanes (positions) see key j: j <= position < j + window. Positions below 2^24 are exact in
 * float. */
LS_SIMD vm visible(const score_block *b, vf position, int64_t j)
{
    const vm causal = vf_le(vf_set((float)(b->j0 + j)), position);
    const int64_t end = b->window > 0 ? b->j0 + j + b->window : (int64_t)1 << 30;
    return vm_and(causal, vf_lt(position, vf_set((float)end)));
}

/* s[j][i] = k_j . q_i (or v_j . do_i) wherever anything is visible. */
static void scores(const score_block *b, const float *rows, int64_t width, int64_t depth,
                   const float *columns, float *s)
{
    for (int64_t g = 0; g < b->keys; g += 16) {
        const int64_t c = first_query(b, g);
        if (c < b->queries) {
            product((operand){rows + g * width, width, 1}, columns + c, BLOCK, s + g * BLOCK + c, BLOCK, 16,
                    b->queries - c, depth, true);
        }
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Running softmax of 16 queries: scores become probabilities relative to the new maximum; returns
 * the factor for what was summed before. */
LS_SIMD vf soften(const score_block *b, int64_t c, int64_t rows, float *s, float *top, float *sum,
                  bool masked)
{
    const vf position = vf_add(vf_iota(), vf_set((float)(b->p0 + c)));
    const vf before = vf_load(top + c);
    vf most = before;
    for (int64_t j = 0; j < rows; j++) {
        vf x = vf_load(s + j * BLOCK + c);
        if (masked) {
            x = vf_select(visible(b, position, j), x, vf_set(masked_score));
        }
        most = vf_max(x, most);
    }
    vf total = vf_zero();
    for (int64_t j = 0; j < rows; j++) {
        vf e = vf_exp(vf_sub(vf_load(s + j * BLOCK + c), most));
        if (masked) {
            e = vf_select(visible(b, position, j), e, vf_zero());
        }
        vf_store(s + j * BLOCK + c, e);
        total = vf_add(total, e);
    }
    const vf factor = vf_exp(vf_sub(before, most));
    vf_store(top + c, most);
    vf_store(sum + c, vf_fma(vf_load(sum + c), factor, total));
    return factor;
}

static void rescale(float *o, int64_t width, const float *factors, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        const vf f = vf_set(factors[i]);
        for (int64_t d = 0; d < width; d += LS_LANES) {
            vf_store(o + i * width + d, vf_mul(vf_load(o + i * width + d), f));
        }
    }
}

/* Adds one block of keys: s holds its scores, o (queries, width) the sum so far. */
static void forward_block(const score_block *b, int64_t rows_used, const float *v, int64_t width, float *s,
                          float *o, float *top, float *sum, float *factors)
{
    for (int64_t c = 0; c < b->queries; c += 16) {
        const int64_t rows = key_rows(b, c);
        if (rows == 0) {
            continue;
        }
        const vf factor = has_mask(b, c, rows) ? soften(b, c, rows, s, top, sum, true)
                                               : soften(b, c, rows, s, top, sum, false);
        vf_store(factors, factor);
        const int64_t left = (rows_used - c + 3) / 4 * 4, used = left < 16 ? left : 16;
        rescale(o + c * width, width, factors, used);
        product((operand){s + c, 1, BLOCK}, v, width, o + c * width, width, used, width, rows, false);
    }
}

static int64_t first_key(const ls_attention_head *head, int64_t p0)
{
    const int64_t first = head->window > 0 ? p0 - head->window + 1 : 0;
    return first > 0 ? first / BLOCK * BLOCK : 0;
}

static void forward_store(const ls_attention_head *head, int64_t i0, int64_t queries, const float *o,
                          const float *top, float *sum)
{
    const int64_t width = ls_attention_pad(head->head_dim);
    for (int64_t i = 0; i < queries; i++) {
        float *out = head->out.data + (i0 + i) * head->out.stride;
        const vf inverse = vf_set(1.0f / sum[i]);
        for (int64_t d = 0; d < head->head_dim; d += LS_LANES) {
            vf_store_tail(out + d, vf_mul(vf_load(o + i * width + d), inverse), head->head_dim - d);
        }
    }
    if (!head->lse.data) {
        return;
    }
    for (int64_t c = 0; c < queries; c += 16) {
        vf_store(sum + c, vf_add(vf_load(top + c), vf_log(vf_load(sum + c))));
    }
    for (int64_t i = 0; i < queries; i++) {
        head->lse.data[(i0 + i) * head->lse.stride] = sum[i];
    }
}

static void forward(const ls_attention_head *head, int64_t block, float *scratch)
{
    const int64_t dim = head->head_dim, width = ls_attention_pad(dim), i0 = block * BLOCK;
    const int64_t queries = head->queries - i0 < BLOCK ? head->queries - i0 : BLOCK;
    const int64_t padded = ls_attention_pad(queries);
    float *qt = scratch, *k = qt + BLOCK * width, *v = k + BLOCK * width, *o = v + BLOCK * width;
    float *s = o + BLOCK * width, *top = s + BLOCK * BLOCK, *sum = top + BLOCK, *factors = sum + BLOCK;
    pack_rows(head->q, i0, queries, padded, dim, head->scale, o); /* o is free until now */
    transpose(o, padded, dim, qt);
    memset(o, 0, (size_t)(padded * width) * sizeof *o);
    for (int64_t i = 0; i < padded; i++) {
        top[i] = masked_score;
        sum[i] = 0.0f;
    }
    const int64_t p0 = head->first + i0, end = p0 + queries;
    for (int64_t j0 = first_key(head, p0); j0 < end; j0 += BLOCK) {
        const int64_t keys = end - j0 < BLOCK ? end - j0 : BLOCK;
        const score_block b = {p0, padded, j0, ls_attention_pad(keys), head->window};
        pack_rows(head->k, j0, keys, b.keys, dim, 1.0f, k);
        pack_rows(head->v, j0, keys, b.keys, dim, 1.0f, v);
        scores(&b, k, width, dim, qt, s);
        forward_block(&b, queries, v, width, s, o, top, sum, factors);
    }
    forward_store(head, i0, queries, o, top, sum);
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct backward_scratch {
    float *k, *v, *dk, *dv;       /* (length, width): the whole head */
    float *q, *qt, *dout, *doutt; /* this block of queries, row major and transposed; q is scaled */
    float *dq;                    /* (64, width) */
    float *s, *ds;                /* (keys, queries) */
    float *lse, *delta;
} backward_scratch;

static backward_scratch backward_layout(const ls_attention_head *head, float *scratch)
{
    const int64_t width = ls_attention_pad(head->head_dim);
    const int64_t all = ls_attention_pad(head->first + head->queries) * width, some = BLOCK * width;
    backward_scratch w = {.k = scratch, .v = scratch + all, .dk = scratch + 2 * all, .dv = scratch + 3 * all};
    w.q = scratch + 4 * all;
    w.qt = w.q + some;
    w.dout = w.qt + some;
    w.doutt = w.dout + some;
    w.dq = w.doutt + some;
    w.s = w.dq + some;
    w.ds = w.s + BLOCK * BLOCK;
    w.lse = w.ds + BLOCK * BLOCK;
    w.delta = w.lse + BLOCK;
    return w;
}

/* delta_i = out_i . dout_i; padded queries get an infinite lse, so that their probabilities are
 * 0. */
static void backward_rows(const ls_attention_head *head, int64_t i0, int64_t queries, int64_t padded,
                          const backward_scratch *w)
{
    const int64_t dim = head->head_dim, width = ls_attention_pad(dim);
    for (int64_t i = 0; i < padded; i++) {
        w->lse[i] = -masked_score;
        w->delta[i] = 0.0f;
        if (i >= queries) {
            continue;
        }
        const float *out = head->out.data + (i0 + i) * head->out.stride;
        vf sum = vf_zero();
        for (int64_t d = 0; d < dim; d += LS_LANES) {
            sum = vf_fma(vf_load_tail(out + d, dim - d), vf_load(w->dout + i * width + d), sum);
        }
        w->lse[i] = head->lse.data[(i0 + i) * head->lse.stride];
        w->delta[i] = vf_sum(sum);
    }
}

/* s becomes P = exp(s - lse), ds becomes dS = P (dP - delta), for 16 queries. */
LS_SIMD void differentiate(const score_block *b, int64_t c, int64_t rows, const backward_scratch *w,
                           bool masked)
{
    const vf position = vf_add(vf_iota(), vf_set((float)(b->p0 + c)));
    const vf lse = vf_load(w->lse + c), delta = vf_load(w->delta + c);
    for (int64_t j = 0; j < rows; j++) {
        float *s = w->s + j * BLOCK + c, *ds = w->ds + j * BLOCK + c;
        vf p = vf_exp(vf_sub(vf_load(s), lse));
        if (masked) {
            p = vf_select(visible(b, position, j), p, vf_zero());
        }
        vf_store(s, p);
        vf_store(ds, vf_mul(p, vf_sub(vf_load(ds), delta)));
    }
}

static void backward_block(const score_block *b, int64_t dim, const backward_scratch *w)
{
    const int64_t width = ls_attention_pad(dim), at = b->j0 * width;
    scores(b, w->k + at, width, dim, w->qt, w->s);
    scores(b, w->v + at, width, dim, w->doutt, w->ds);
    for (int64_t c = 0; c < b->queries; c += 16) {
        const int64_t rows = key_rows(b, c);
        if (has_mask(b, c, rows)) {
            differentiate(b, c, rows, w, true);
        } else {
            differentiate(b, c, rows, w, false);
        }
        product((operand){w->ds + c, 1, BLOCK}, w->k + at, width, w->dq + c * width, width, 16, width, rows,
                false);
    }
    for (int64_t g = 0; g < b->keys; g += 16) {
        const int64_t c = first_query(b, g), depth = b->queries - c, row = at + g * width;
        if (depth > 0) {
            product((operand){w->s + g * BLOCK + c, BLOCK, 1}, w->dout + c * width, width, w->dv + row, width,
                    16, width, depth, false);
            product((operand){w->ds + g * BLOCK + c, BLOCK, 1}, w->q + c * width, width, w->dk + row, width,
                    16, width, depth, false);
        }
    }
}

static void unpack_rows(const float *packed, int64_t rows, int64_t cols, float factor, ls_attention_rows to,
                        int64_t first)
{
    const int64_t width = ls_attention_pad(cols);
    const vf f = vf_set(factor);
    for (int64_t r = 0; r < rows; r++) {
        float *row = to.data + (first + r) * to.stride;
        for (int64_t i = 0; i < cols; i += LS_LANES) {
            vf_store_tail(row + i, vf_mul(vf_load(packed + r * width + i), f), cols - i);
        }
    }
}

static void backward(const ls_attention_head *head, float *scratch)
{
    const int64_t dim = head->head_dim, width = ls_attention_pad(dim);
    const int64_t length = head->first + head->queries;
    const int64_t length_padded = ls_attention_pad(length);
    const backward_scratch w = backward_layout(head, scratch);
    pack_rows(head->k, 0, length, length_padded, dim, 1.0f, w.k);
    pack_rows(head->v, 0, length, length_padded, dim, 1.0f, w.v);
    memset(w.dk, 0, (size_t)(length_padded * width) * sizeof *w.dk);
    memset(w.dv, 0, (size_t)(length_padded * width) * sizeof *w.dv);
    for (int64_t i0 = 0; i0 < head->queries; i0 += BLOCK) {
        const int64_t left = head->queries - i0, queries = left < BLOCK ? left : BLOCK;
        const int64_t padded = ls_attention_pad(queries), p0 = head->first + i0, end = p0 + queries;
        pack_rows(head->q, i0, queries, padded, dim, head->scale, w.q);
        pack_rows(head->dout, i0, queries, padded, dim, 1.0f, w.dout);
        transpose(w.q, padded, dim, w.qt);
        transpose(w.dout, padded, dim, w.doutt);
        backward_rows(head, i0, queries, padded, &w);
        memset(w.dq, 0, (size_t)(padded * width) * sizeof *w.dq);
        for (int64_t j0 = first_key(head, p0); j0 < end; j0 += BLOCK) {
            const int64_t keys = end - j0 < BLOCK ? ls_attention_pad(end - j0) : BLOCK;
            const score_block b = {p0, padded, j0, keys, head->window};
            backward_block(&b, dim, &w);
        }
        unpack_rows(w.dq, queries, dim, head->scale, head->dq, i0);
    }
    unpack_rows(w.dk, length, dim, 1.0f, head->dk, 0);
    unpack_rows(w.dv, length, dim, 1.0f, head->dv, 0);
}

const ls_attention_kernels LS_ISA_NAME(ls_attention_kernels) = {.forward = forward, .backward = backward};
