// SPDX-License-Identifier: Apache-2.0
/*
 * Attention in float32 products, for every element type and head size, and the row sums that
 * backward begins with.
 *
 * A block of 256 threads computes 64 x 64 tiles: thread (y, x) of 16 x 16 holds rows 4 y .. 4 y + 3
 * of columns 4 x .. 4 x + 3. Head sizes are cut into parts of 64 columns; what is missing is 0.
 */
#include "compute/cuda/device/attention_records.h"
#include "compute/cuda/device/attention_vector.h"
#include "compute/cuda/device/device.h"

#include <math.h>

enum {
    TILE = LS_ATTENTION_PLAIN_TILE,
    THREADS = LS_ATTENTION_PLAIN_THREADS,
    STRIDE = LS_ATTENTION_PLAIN_STRIDE,
    PARTS = 256 / TILE,
};
static constexpr float LOG2_E = 1.4426950408889634f;

/* `rows` rows of the `cols` columns of one head, beginning at a row. */
template <class T> struct matrix {
    const T *data;
    int64_t stride;
    int rows, cols;
};

template <class T>
LS_DEVICE matrix<T> matrix_of(const void *data, int64_t stride, int64_t row, int rows, int head, int cols)
{
    return {(const T *)data + row * stride + (int64_t)head * cols, stride, rows, cols};
}

template <class T> LS_DEVICE float element(const matrix<T> &a, int row, int col)
{
    return row < a.rows && col < a.cols ? to_float(a.data[row * a.stride + col]) : 0.0f;
}

/* to[col][row] = a[row][first_col + col] */
template <class T> LS_DEVICE void load_transposed(float *to, const matrix<T> &a, int first_col)
{
    /* A warp takes 8 rows of 4 columns: few bank conflicts, whole sectors over four steps. */
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const int row = i % 8 + i / 32 % 8 * 8, col = i / 8 % 4 + i / 256 * 4;
        to[col * STRIDE + row] = element(a, row, first_col + col);
    }
}

/* to[row][col] = a[row][first_col + col] */
template <class T> LS_DEVICE void load(float *to, const matrix<T> &a, int first_col)
{
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        to[i / TILE * STRIDE + i % TILE] = element(a, i / TILE, first_col + i % TILE);
    }
}

/* to[col][row] = c */
LS_DEVICE void store_transposed(float *to, const float (&c)[4][4])
{
    const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        *(float4 *)(to + (x + j) * STRIDE + y) = make_float4(c[0][j], c[1][j], c[2][j], c[3][j]);
    }
}

/* c += the transpose of left (depth, row) times right (depth, col) */
LS_DEVICE void multiply(float (&c)[4][4], const float *left, const float *right)
{
    left += threadIdx.x / 16 * 4;
    right += threadIdx.x % 16 * 4;
#pragma unroll 4
    for (int k = 0; k < TILE; k++) {
        const float4 l = *(const float4 *)(left + k * STRIDE), r = *(const float4 *)(right + k * STRIDE);
        const float rows[4] = {l.x, l.y, l.z, l.w}, cols[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            c[i / 4][i % 4] = fmaf(rows[i / 4], cols[i % 4], c[i / 4][i % 4]);
        }
    }
}

/* c = left times the transpose of right, over all columns */
template <class T>
LS_DEVICE void product_of_rows(float (&c)[4][4], const matrix<T> &left, const matrix<T> &right, float *shared)
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        c[i / 4][i % 4] = 0.0f;
    }
    for (int col = 0; col < left.cols; col += TILE) {
        __syncthreads();
        load_transposed(shared, left, col);
        load_transposed(shared + TILE * STRIDE, right, col);
        __syncthreads();
        multiply(c, shared, shared + TILE * STRIDE);
    }
}

/* sums (one tile per part of the columns) += p times right, where the third tile of shared memory
 * holds p transposed */
template <class T>
LS_DEVICE void product_of_tile(float (&sums)[PARTS][4][4], const matrix<T> &right, float *shared)
{
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        if (part * TILE < right.cols) {
            __syncthreads();
            load(shared, right, part * TILE);
            __syncthreads();
            multiply(sums[part], shared + 2 * TILE * STRIDE, shared);
        }
    }
}

LS_DEVICE void sums_clear(float (&sums)[PARTS][4][4])
{
#pragma unroll
    for (int i = 0; i < PARTS * 16; i++) {
        sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
    }
}

/* to[row][col] = sums * factor[row of this thread] */
template <class T>
LS_DEVICE void sums_store(const matrix<T> &to, const float (&sums)[PARTS][4][4], const float (&factor)[4])
{
    const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < PARTS * 16; i++) {
        const int row = y + i / 4 % 4, col = i / 16 * TILE + x + i % 4;
        if (row < to.rows && col < to.cols) {
            ((T *)to.data)[row * to.stride + col] =
                from_float<T>(sums[i / 16][i / 4 % 4][i % 4] * factor[i / 4 % 4]);
        }
    }
}

/* Of values that the 16 threads of a row hold. */
LS_DEVICE float row_max(float x)
{
    for (int step = 8; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    }
    return x;
}

LS_DEVICE float row_sum(float x)
{
    for (int step = 8; step > 0; step /= 2) {
        x += __shfl_xor_sync(~0u, x, step);
    }
    return x;
}

/* Which tile of which head a block computes. */
struct place {
    int sequence, head, first;
};

LS_DEVICE place place_of_block()
{
    return {(int)blockIdx.z, (int)blockIdx.y, (int)blockIdx.x * TILE};
}

/* Scores of one row of this thread become probabilities relative to the largest score so far.
 * Returns by how much the sums before shrink. */
LS_DEVICE float softmax_step(float (&s)[4], float &top, float &sum, float factor)
{
    const float high = fmaxf(top, row_max(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]))));
    const float base = high == -INFINITY ? 0.0f : high;
    const float shrink = exp2f((top - base) * factor);
    float added = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        s[j] = exp2f((s[j] - base) * factor);
        added += s[j];
    }
    sum = sum * shrink + row_sum(added);
    top = high;
    return shrink;
}

template <class T> LS_DEVICE void forward(const ls_attention_args &a)
{
    LS_SHARED(float, shared);
    const place at = place_of_block();
    const int kv_head = at.head / (a.heads / a.kv_heads), y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
    const int64_t row = (int64_t)at.sequence * a.length + at.first;
    const int position = a.past + at.first, last = a.past + min(at.first + TILE, a.length) - 1;
    const matrix<T> q = matrix_of<T>(a.q, a.q_stride, row, a.length - at.first, at.head, a.head_dim);
    float out[PARTS][4][4], s[4][4], top[4], sum[4], factor[4];
    sums_clear(out);
    for (int i = 0; i < 4; i++) {
        top[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    const int begin = record_begin(a, at.sequence, at.first);
    for (int key = max(begin, position - a.reach + 1) / TILE * TILE; key <= last; key += TILE) {
        const int64_t first = (int64_t)at.sequence * a.keys + key;
        const matrix<T> k = matrix_of<T>(a.k, a.k_stride, first, a.keys - key, kv_head, a.head_dim);
        const matrix<T> v = matrix_of<T>(a.v, a.v_stride, first, a.keys - key, kv_head, a.head_dim);
        product_of_rows(s, q, k, shared);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int hidden = record_begin(a, at.sequence, at.first + y + i) - key - x;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int distance = position + y + i - key - x - j;
                s[i][j] = distance < 0 || distance >= a.reach || j < hidden ? -INFINITY : s[i][j];
            }
            const float shrink = softmax_step(s[i], top[i], sum[i], a.scale * LOG2_E);
#pragma unroll
            for (int j = 0; j < PARTS * 4; j++) {
                out[j / 4][i][j % 4] *= shrink;
            }
        }
        store_transposed(shared + 2 * TILE * STRIDE, s);
        product_of_tile(out, v, shared);
    }
    for (int i = 0; i < 4; i++) {
        factor[i] = 1.0f / sum[i];
        if (a.lse && x == 0 && y + i < q.rows) {
            a.lse[(row + y + i) * a.lse_stride + at.head] = top[i] * a.scale + logf(sum[i]);
        }
    }
    sums_store(matrix_of<T>(a.out, a.out_stride, row, q.rows, at.head, a.head_dim), out, factor);
}

/* What attention_keys and attention_queries read of the queries of a tile. */
template <class T> struct query_tile {
    matrix<T> q, dout;
    const float *lse2, *dots;
};

template <class T>
LS_DEVICE query_tile<T> query_tile_of(const ls_attention_gradient_args &g, int sequence, int head, int query)
{
    const ls_attention_args &a = g.forward;
    const int64_t row = (int64_t)sequence * a.length + query;
    const int64_t number = ((int64_t)sequence * a.heads + head) * g.padded + query;
    return {matrix_of<T>(a.q, a.q_stride, row, a.length - query, head, a.head_dim),
            matrix_of<T>(g.dout, g.dout_stride, row, a.length - query, head, a.head_dim), g.lse2 + number,
            g.dots + number};
}

/* p = exp(s - lse). distance: query minus key; in_record: query minus the first key of its
 * record. */
LS_DEVICE float probability(const ls_attention_args &a, float s, float lse2, int distance, int in_record)
{
    return distance < 0 || distance >= a.reach || distance > in_record ? 0.0f
                                                                       : exp2f(s * (a.scale * LOG2_E) - lse2);
}

template <class T> LS_DEVICE void keys_backward(const ls_attention_gradient_args &g)
{
    LS_SHARED(float, shared);
    const ls_attention_args &a = g.forward;
    const place at = place_of_block();
    const int group = a.heads / a.kv_heads, y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
    const int64_t row = (int64_t)at.sequence * a.length + at.first;
    const int rows = a.length - at.first, last = at.first + TILE - 1;
    const int end = min(record_end(a, at.sequence, last), min(a.length, last + a.reach));
    const matrix<T> k = matrix_of<T>(a.k, a.k_stride, row, rows, at.head, a.head_dim);
    const matrix<T> v = matrix_of<T>(a.v, a.v_stride, row, rows, at.head, a.head_dim);
    float dk[PARTS][4][4], dv[PARTS][4][4], p[4][4], ds[4][4];
    sums_clear(dk);
    sums_clear(dv);
    for (int head = at.head * group; head < (at.head + 1) * group; head++) {
        for (int query = at.first; query < end; query += TILE) {
            const query_tile<T> tile = query_tile_of<T>(g, at.sequence, head, query);
            product_of_rows(p, k, tile.q, shared);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const int column = query + x + i % 4, distance = column - at.first - y - i / 4;
                const int in_record = column - record_begin(a, at.sequence, column);
                p[i / 4][i % 4] = probability(a, p[i / 4][i % 4], tile.lse2[x + i % 4], distance, in_record);
            }
            store_transposed(shared + 2 * TILE * STRIDE, p);
            product_of_tile(dv, tile.dout, shared);
            product_of_rows(ds, v, tile.dout, shared);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                ds[i / 4][i % 4] = p[i / 4][i % 4] * (ds[i / 4][i % 4] - tile.dots[x + i % 4]);
            }
            store_transposed(shared + 2 * TILE * STRIDE, ds);
            product_of_tile(dk, tile.q, shared);
        }
    }
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f}, scale[4] = {a.scale, a.scale, a.scale, a.scale};
    sums_store(matrix_of<T>(g.dk, g.dk_stride, row, rows, at.head, a.head_dim), dk, scale);
    sums_store(matrix_of<T>(g.dv, g.dv_stride, row, rows, at.head, a.head_dim), dv, one);
}

template <class T> LS_DEVICE void queries_backward(const ls_attention_gradient_args &g)
{
    LS_SHARED(float, shared);
    const ls_attention_args &a = g.forward;
    const place at = place_of_block();
    const int kv_head = at.head / (a.heads / a.kv_heads), y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
    const query_tile<T> tile = query_tile_of<T>(g, at.sequence, at.head, at.first);
    float dq[PARTS][4][4], p[4][4], ds[4][4];
    sums_clear(dq);
    const int begin = record_begin(a, at.sequence, at.first);
    for (int key = max(begin, at.first - a.reach + 1) / TILE * TILE; key < min(at.first + TILE, a.length);
         key += TILE) {
        const int64_t first = (int64_t)at.sequence * a.length + key;
        const matrix<T> k = matrix_of<T>(a.k, a.k_stride, first, a.length - key, kv_head, a.head_dim);
        const matrix<T> v = matrix_of<T>(a.v, a.v_stride, first, a.length - key, kv_head, a.head_dim);
        product_of_rows(p, tile.q, k, shared);
        product_of_rows(ds, tile.dout, v, shared);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int row = y + i / 4, distance = at.first + row - key - x - i % 4;
            const int in_record = at.first + row - record_begin(a, at.sequence, at.first + row);
            const float probable = probability(a, p[i / 4][i % 4], tile.lse2[row], distance, in_record);
            ds[i / 4][i % 4] = probable * (ds[i / 4][i % 4] - tile.dots[row]);
        }
        store_transposed(shared + 2 * TILE * STRIDE, ds);
        product_of_tile(dq, k, shared);
    }
    const float scale[4] = {a.scale, a.scale, a.scale, a.scale};
    const int64_t row = (int64_t)at.sequence * a.length + at.first;
    sums_store(matrix_of<T>(g.dq, g.dq_stride, row, tile.q.rows, at.head, a.head_dim), dq, scale);
}

/*
 * lse2 and dots of 32 queries of a head: eight threads sum a row. Heads follow each other, since
 * their lse lie beside each other.
 */
template <class T> LS_DEVICE void dots(const ls_attention_gradient_args &g)
{
    constexpr int COUNT = 16 / sizeof(T);
    const ls_attention_args &a = g.forward;
    const int tiles = g.padded / 32, head = blockIdx.x % a.heads, number = blockIdx.x / a.heads;
    const int sequence = number / tiles, query = number % tiles * 32 + (int)threadIdx.x / 8;
    const bool there = query < a.length;
    const int64_t row = (int64_t)sequence * a.length + query;
    float sum = 0.0f;
    for (int col = (int)threadIdx.x % 8 * COUNT; there && col < a.head_dim; col += 8 * COUNT) {
        float out[COUNT], dout[COUNT];
        const int64_t at = (int64_t)head * a.head_dim + col;
        const int count = a.head_dim - col;
        vector_unpack(out, vector_load((const T *)a.out + row * a.out_stride + at, count, g.aligned));
        vector_unpack(dout, vector_load((const T *)g.dout + row * g.dout_stride + at, count, g.aligned));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sum = fmaf(out[i], dout[i], sum);
        }
    }
    for (int step = 4; step > 0; step /= 2) {
        sum += __shfl_xor_sync(~0u, sum, step);
    }
    if (threadIdx.x % 8 == 0) {
        const int64_t at = ((int64_t)sequence * a.heads + head) * g.padded + query;
        g.lse2[at] = there ? a.lse[row * a.lse_stride + head] * LOG2_E : INFINITY;
        g.dots[at] = sum;
    }
}

LS_KERNEL __launch_bounds__(256) attention_dots_float(ls_attention_gradient_args g)
{
    dots<float>(g);
}
LS_KERNEL_EXPORT(attention_dots_float)

LS_KERNEL __launch_bounds__(256) attention_dots_bf16(ls_attention_gradient_args g)
{
    dots<bf16>(g);
}
LS_KERNEL_EXPORT(attention_dots_bf16)

LS_KERNEL __launch_bounds__(THREADS) attention_forward_float(ls_attention_args a)
{
    forward<float>(a);
}
LS_KERNEL_EXPORT(attention_forward_float)

LS_KERNEL __launch_bounds__(THREADS) attention_forward_bf16(ls_attention_args a)
{
    forward<bf16>(a);
}
LS_KERNEL_EXPORT(attention_forward_bf16)

LS_KERNEL __launch_bounds__(THREADS) attention_keys_float(ls_attention_gradient_args g)
{
    keys_backward<float>(g);
}
LS_KERNEL_EXPORT(attention_keys_float)

LS_KERNEL __launch_bounds__(THREADS) attention_keys_bf16(ls_attention_gradient_args g)
{
    keys_backward<bf16>(g);
}
LS_KERNEL_EXPORT(attention_keys_bf16)

LS_KERNEL __launch_bounds__(THREADS) attention_queries_float(ls_attention_gradient_args g)
{
    queries_backward<float>(g);
}
LS_KERNEL_EXPORT(attention_queries_float)

LS_KERNEL __launch_bounds__(THREADS) attention_queries_bf16(ls_attention_gradient_args g)
{
    queries_backward<bf16>(g);
}
LS_KERNEL_EXPORT(attention_queries_bf16)
