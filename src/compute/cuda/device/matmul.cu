// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products: bfloat16 on tensor cores, and a plain version for everything else.
 *
 * Tensor cores. A block computes 128 x 128 of C with four warps of 64 x 64 each. Tiles of A and B
 * travel from global to shared memory by cp.async, LS_MATMUL_STAGES - 1 tiles ahead; fragments
 * travel from shared memory to registers by ldmatrix, one step of 16 along k ahead:
 *
 *     global   tile t+3          cp.async, no thread waits
 *     shared   tiles t+1, t+2    landed or landing
 *     shared   tile t            ldmatrix of step s+1
 *     registers                  mma of step s
 *
 * A tile keeps the order of its matrix in memory. If k runs along the rows, its rows are 32 of k
 * long (64 bytes); otherwise they are 128 long (256 bytes) and ldmatrix transposes. In both cases
 * the 16-byte pieces of a row are permuted by the row, so that the 8 rows of an ldmatrix fall into
 * different banks.
 *
 * Parts of a tile outside the matrix are zeros, which add nothing.
 */
#include "compute/cuda/device/matmul.h"

#include "compute/cuda/device/device.h"
#include "compute/cuda/device/ptx.h"

enum {
    TILE_M = LS_MATMUL_TILE_M,
    TILE_N = LS_MATMUL_TILE_N,
    TILE_K = LS_MATMUL_TILE_K,
    STAGES = LS_MATMUL_STAGES,
    THREADS = LS_MATMUL_THREADS,
    WARP_TILE = 64,
    OPERAND_BYTES = TILE_M * TILE_K * 2,
    STAGE_BYTES = 2 * OPERAND_BYTES,
    STEP_K = 16,
};
static_assert(TILE_M == TILE_N && TILE_K == 2 * STEP_K, "both operands have tiles of one size, of two steps");
static_assert(LS_MATMUL_SHARED_BYTES >= TILE_M * TILE_N * 4, "the tile of C fits in shared memory");

/* The part of C that a block computes, and the range of k. */
struct block_tile {
    int64_t row, col, k_begin, k_end;
};

/* Blocks that follow one another share tiles of A and B: they go down LS_MATMUL_TILE_ROWS rows of
 * tiles, then to the next column. */
LS_DEVICE block_tile find_tile(const ls_matmul_arguments &p, int tile_m, int tile_n)
{
    const unsigned tiles_m = (unsigned)((p.m + tile_m - 1) / tile_m);
    const unsigned tiles_n = (unsigned)((p.n + tile_n - 1) / tile_n);
    const unsigned band = blockIdx.x / (LS_MATMUL_TILE_ROWS * tiles_n);
    const unsigned in_band = blockIdx.x % (LS_MATMUL_TILE_ROWS * tiles_n);
    const unsigned first_row = band * LS_MATMUL_TILE_ROWS;
    const unsigned rows = min(tiles_m - first_row, (unsigned)LS_MATMUL_TILE_ROWS);
    block_tile tile;
    tile.row = (int64_t)(first_row + in_band % rows) * tile_m;
    tile.col = (int64_t)(in_band / rows) * tile_n;
    tile.k_begin = blockIdx.z * p.k_piece;
    tile.k_end = tile.k_begin + p.k_piece < p.k ? tile.k_begin + p.k_piece : p.k;
    return tile;
}

/* ---- from global to shared memory ---- */

/*
 * How a thread copies its four 16-byte pieces of each tile of an operand. ROWS_ARE_K: the matrix in
 * memory has k down its rows, and the tile is (32, 128); otherwise it is (128, 32).
 */
template <bool ROWS_ARE_K> struct tile_copy {
    static const int ROW_BYTES = ROWS_ARE_K ? TILE_M * 2 : TILE_K * 2;
    static const int PIECES = ROW_BYTES / 16;
    /* Rows between two pieces of a thread. */
    static const int ROW_STEP = THREADS / PIECES;

    const bf16 *from;
    int64_t stride;
    /* Row and column in the matrix of the thread's first piece; the matrix ends at rows, cols. */
    int64_t row, col, rows, cols;
    uint32_t to;

    __device__ __forceinline__ void begin(const void *matrix, int64_t matrix_stride, int64_t outer,
                                          int64_t outer_end, const block_tile &tile)
    {
        const int tile_row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
        stride = matrix_stride;
        row = (ROWS_ARE_K ? tile.k_begin : outer) + tile_row;
        col = (ROWS_ARE_K ? outer : tile.k_begin) + piece * 8;
        rows = ROWS_ARE_K ? tile.k_end : outer_end;
        cols = ROWS_ARE_K ? outer_end : tile.k_end;
        from = (const bf16 *)matrix + row * stride + col;
        const int place = ROWS_ARE_K ? piece ^ (tile_row & 7) : piece ^ (tile_row >> 1 & 3);
        to = (uint32_t)(tile_row * ROW_BYTES + place * 16);
    }

    /* Copies this thread's pieces of the current tile and moves on by one tile. */
    __device__ __forceinline__ void next(unsigned char *stage)
    {
        const int64_t left = cols - col;
        const int bytes = left >= 8 ? 16 : left > 0 ? (int)left * 2 : 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool inside = row + i * ROW_STEP < rows;
            cp_async_16_part(stage + to + i * ROW_STEP * ROW_BYTES, from + i * ROW_STEP * stride,
                             inside ? bytes : 0);
        }
        row += ROWS_ARE_K ? TILE_K : 0;
        col += ROWS_ARE_K ? 0 : TILE_K;
        from += ROWS_ARE_K ? stride * TILE_K : (int64_t)TILE_K;
    }
};

/* ---- from shared memory to registers ---- */

/* The byte in a tile of the 16-byte piece that holds (row, col), col a multiple of 8. */
template <bool ROWS_ARE_K> LS_DEVICE uint32_t piece_at(int row, int col)
{
    const int piece = col / 8;
    return ROWS_ARE_K ? (uint32_t)(row * TILE_M * 2 + (piece ^ (row & 7)) * 16)
                      : (uint32_t)(row * TILE_K * 2 + (piece ^ (row >> 1 & 3)) * 16);
}

/* A 16 x 16 block of A, rows from `row`, k from `k`: the four registers of mma's first operand. */
template <bool A_TRANSPOSED>
LS_DEVICE void load_a(uint32_t (&a)[4], const unsigned char *tile, int row, int k, int lane)
{
    if (A_TRANSPOSED) {
        ldmatrix_x4_trans(a,
                          tile + piece_at<true>(k + (lane & 7) + (lane >> 4) * 8, row + (lane >> 3 & 1) * 8));
    } else {
        ldmatrix_x4(a, tile + piece_at<false>(row + (lane & 15), k + (lane >> 4) * 8));
    }
}

/* A 16 x 16 block of B, k from `k`, columns from `col`: mma's second operand for columns 0 to 7 in
 * b[0], b[1], and for columns 8 to 15 in b[2], b[3]. */
template <bool B_TRANSPOSED>
LS_DEVICE void load_b(uint32_t (&b)[4], const unsigned char *tile, int col, int k, int lane)
{
    if (B_TRANSPOSED) {
        ldmatrix_x4(b, tile + piece_at<false>(col + (lane & 7) + (lane >> 4) * 8, k + (lane >> 3 & 1) * 8));
    } else {
        ldmatrix_x4_trans(b, tile + piece_at<true>(k + (lane & 15), col + (lane >> 4) * 8));
    }
}

/* The operands of a warp for one step of 16 along k: 64 rows and 64 columns. */
struct fragments {
    uint32_t a[4][4], b[4][4];
};

template <bool A_TRANSPOSED, bool B_TRANSPOSED>
LS_DEVICE void load_fragments(fragments &f, const unsigned char *stage, int row, int col, int k)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        load_a<A_TRANSPOSED>(f.a[i], stage, row + i * 16, k, lane);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        load_b<B_TRANSPOSED>(f.b[j], stage + OPERAND_BYTES, col + j * 16, k, lane);
    }
}

LS_DEVICE void multiply(float (&sum)[4][8][4], const fragments &f)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            mma_bf16_16816(sum[i][j], f.a[i], f.b[j / 2] + j % 2 * 2);
        }
    }
}

/* ---- from registers to C ---- */

/* The tile of C in shared memory: pairs of 16-byte pieces of a row are permuted by the row. */
LS_DEVICE float *staged(float *tile, int row, int col)
{
    return tile + row * TILE_N + ((col / 4 ^ (row & 7) * 2) * 4 + col % 4);
}

LS_DEVICE void stage_sums(float *tile, const float (&sum)[4][8][4], int row, int col)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int r = row + i * 16 + lane / 4, c = col + j * 8 + lane % 4 * 2;
            *(float2 *)staged(tile, r, c) = make_float2(sum[i][j][0], sum[i][j][1]);
            *(float2 *)staged(tile, r + 8, c) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
    }
}

/* 16 bytes of C, as float32. */
template <class T> struct sixteen_bytes;
template <> struct sixteen_bytes<float> {
    static const int COUNT = 4;
    static __device__ __forceinline__ void load(float *x, const float *from)
    {
        const float4 v = *(const float4 *)from;
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    }
    static __device__ __forceinline__ void store(float *to, const float *x)
    {
        *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
    }
};
template <> struct sixteen_bytes<bf16> {
    static const int COUNT = 8;
    static __device__ __forceinline__ void load(float *x, const bf16 *from)
    {
        const uint4 v = *(const uint4 *)from;
        x[0] = first_of(v.x), x[1] = second_of(v.x), x[2] = first_of(v.y), x[3] = second_of(v.y);
        x[4] = first_of(v.z), x[5] = second_of(v.z), x[6] = first_of(v.w), x[7] = second_of(v.w);
    }
    static __device__ __forceinline__ void store(bf16 *to, const float *x)
    {
        *(uint4 *)to = make_uint4(to_bf16x2(x[0], x[1]), to_bf16x2(x[2], x[3]), to_bf16x2(x[4], x[5]),
                                  to_bf16x2(x[6], x[7]));
    }
};

/* Writes the staged tile row by row, 16 bytes per thread where C allows it. */
template <class T> LS_DEVICE void write_tile(const ls_matmul_arguments &p, float *tile, const block_tile &at)
{
    const int COUNT = sixteen_bytes<T>::COUNT, PIECES = TILE_N / COUNT, ROW_STEP = THREADS / PIECES;
    const int col = threadIdx.x % PIECES * COUNT;
    const int64_t left = p.n - (at.col + col);
    if (left <= 0) {
        return;
    }
    const int count = left < COUNT ? (int)left : COUNT;
    const bool whole = p.c_aligned && count == COUNT;
    const T *bias_at = (const T *)p.bias + at.col + col;
    float bias[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        bias[i] = p.bias && i < count ? to_float(bias_at[i]) : 0.0f;
    }
#pragma unroll 4
    for (int row = threadIdx.x / PIECES; row < TILE_M; row += ROW_STEP) {
        if (at.row + row >= p.m) {
            break;
        }
        T *c = (T *)p.c + ((int64_t)blockIdx.z * p.m + at.row + row) * p.c_stride + at.col + col;
        float x[COUNT], before[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            sixteen_bytes<float>::load(x + i, staged(tile, row, col + i));
        }
        if (whole && p.accumulate) {
            sixteen_bytes<T>::load(before, c);
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const float other = !p.accumulate ? bias[i]
                                : whole       ? before[i]
                                : i < count   ? to_float(c[i])
                                              : 0.0f;
            x[i] += other;
        }
        if (whole) {
            sixteen_bytes<T>::store(c, x);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                if (i < count) {
                    c[i] = from_float<T>(x[i]);
                }
            }
        }
    }
}

/* ---- the kernels on tensor cores ---- */

template <bool A_TRANSPOSED, bool B_TRANSPOSED, class T>
LS_DEVICE void tensor_core_product(const ls_matmul_arguments &p)
{
    LS_SHARED(unsigned char, shared);
    const block_tile tile = find_tile(p, TILE_M, TILE_N);
    const int tiles = (int)((tile.k_end - tile.k_begin + TILE_K - 1) / TILE_K);
    const int warp = threadIdx.x / 32, row = warp / 2 * WARP_TILE, col = warp % 2 * WARP_TILE;
    tile_copy<A_TRANSPOSED> a;
    tile_copy<!B_TRANSPOSED> b;
    a.begin(p.a, p.a_stride, tile.row, p.m, tile);
    b.begin(p.b, p.b_stride, tile.col, p.n, tile);

    for (int t = 0; t < STAGES - 1; t++) {
        if (t < tiles) {
            a.next(shared + t * STAGE_BYTES);
            b.next(shared + t * STAGE_BYTES + OPERAND_BYTES);
        }
        cp_async_commit();
    }
    cp_async_wait<STAGES - 2>();
    __syncthreads();

    float sum[4][8][4] = {};
    fragments now, then;
    load_fragments<A_TRANSPOSED, B_TRANSPOSED>(now, shared, row, col, 0);
    int read = 0, write = STAGES - 1;
    for (int t = 0; t < tiles; t++) {
        /* The stage to write was read in the step before, and all threads have met since. */
        if (t + STAGES - 1 < tiles) {
            a.next(shared + write * STAGE_BYTES);
            b.next(shared + write * STAGE_BYTES + OPERAND_BYTES);
        }
        cp_async_commit();
        load_fragments<A_TRANSPOSED, B_TRANSPOSED>(then, shared + read * STAGE_BYTES, row, col, STEP_K);
        multiply(sum, now);

        cp_async_wait<STAGES - 2>();
        __syncthreads();
        write = read;
        read = read + 1 == STAGES ? 0 : read + 1;
        if (t + 1 < tiles) {
            load_fragments<A_TRANSPOSED, B_TRANSPOSED>(now, shared + read * STAGE_BYTES, row, col, 0);
        }
        multiply(sum, then);
    }

    stage_sums((float *)shared, sum, row, col);
    __syncthreads();
    write_tile<T>(p, (float *)shared, tile);
}

#define TENSOR_CORE_KERNEL(name, a_transposed, b_transposed, type)                                           \
    LS_KERNEL __launch_bounds__(THREADS, 2) name(ls_matmul_arguments p)                                      \
    {                                                                                                        \
        tensor_core_product<a_transposed, b_transposed, type>(p);                                            \
    }                                                                                                        \
    LS_KERNEL_EXPORT(name)

TENSOR_CORE_KERNEL(matmul_bf16_nn_f32, false, false, float)
TENSOR_CORE_KERNEL(matmul_bf16_nt_f32, false, true, float)
TENSOR_CORE_KERNEL(matmul_bf16_tn_f32, true, false, float)
TENSOR_CORE_KERNEL(matmul_bf16_tt_f32, true, true, float)
TENSOR_CORE_KERNEL(matmul_bf16_nn_bf16, false, false, bf16)
TENSOR_CORE_KERNEL(matmul_bf16_nt_bf16, false, true, bf16)
TENSOR_CORE_KERNEL(matmul_bf16_tn_bf16, true, false, bf16)
TENSOR_CORE_KERNEL(matmul_bf16_tt_bf16, true, true, bf16)

/* ---- plain kernels: any alignment, any stride, float32 without tensor cores ---- */

enum {
    PLAIN_TILE = LS_MATMUL_PLAIN_TILE,
    PLAIN_K = 16,
    PLAIN_THREADS = LS_MATMUL_PLAIN_THREADS,
    /* A thread computes 4 x 4 of C. */
    PLAIN_SIDE = 4,
    /* 4 more floats than the tile, so that rows begin in different banks. */
    PLAIN_ROW = PLAIN_TILE + 4,
};

struct plain_tiles {
    float a[PLAIN_K][PLAIN_ROW], b[PLAIN_K][PLAIN_ROW];
};
static_assert(sizeof(plain_tiles) == LS_MATMUL_PLAIN_SHARED_BYTES, "what the host asks for");

/* Copies a tile, 64 long and 16 deep along k, to to[k][outer] as float32, zeros outside the matrix.
 * Neighbouring threads read neighbouring elements. */
template <class T>
LS_DEVICE void plain_copy(float (&to)[PLAIN_K][PLAIN_ROW], const T *matrix, int64_t stride, bool rows_are_k,
                          int64_t outer, int64_t outer_end, int64_t k, int64_t k_end)
{
    for (int i = threadIdx.x; i < PLAIN_TILE * PLAIN_K; i += PLAIN_THREADS) {
        const int o = rows_are_k ? i % PLAIN_TILE : i / PLAIN_K;
        const int d = rows_are_k ? i / PLAIN_TILE : i % PLAIN_K;
        const bool inside = outer + o < outer_end && k + d < k_end;
        const int64_t at = rows_are_k ? (k + d) * stride + outer + o : (outer + o) * stride + k + d;
        to[d][o] = inside ? to_float(matrix[at]) : 0.0f;
    }
}

template <class C> LS_DEVICE void plain_write(const ls_matmul_arguments &p, int64_t row, int64_t col, float x)
{
    C *c = (C *)p.c + ((int64_t)blockIdx.z * p.m + row) * p.c_stride + col;
    if (p.accumulate) {
        x += to_float(*c);
    } else if (p.bias) {
        x += to_float(((const C *)p.bias)[col]);
    }
    *c = from_float<C>(x);
}

template <class T, class C> LS_DEVICE void plain_product(const ls_matmul_arguments &p)
{
    LS_SHARED(plain_tiles, tiles);
    const block_tile tile = find_tile(p, PLAIN_TILE, PLAIN_TILE);
    const int row = threadIdx.x / 16 * PLAIN_SIDE, col = threadIdx.x % 16 * PLAIN_SIDE;
    float sum[PLAIN_SIDE][PLAIN_SIDE] = {};
    for (int64_t k = tile.k_begin; k < tile.k_end; k += PLAIN_K) {
        plain_copy(tiles->a, (const T *)p.a, p.a_stride, p.a_transposed != 0, tile.row, p.m, k, tile.k_end);
        plain_copy(tiles->b, (const T *)p.b, p.b_stride, p.b_transposed == 0, tile.col, p.n, k, tile.k_end);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < PLAIN_K; d++) {
#pragma unroll
            for (int i = 0; i < PLAIN_SIDE; i++) {
#pragma unroll
                for (int j = 0; j < PLAIN_SIDE; j++) {
                    sum[i][j] = __fmaf_rn(tiles->a[d][row + i], tiles->b[d][col + j], sum[i][j]);
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < PLAIN_SIDE; i++) {
        for (int j = 0; j < PLAIN_SIDE; j++) {
            if (tile.row + row + i < p.m && tile.col + col + j < p.n) {
                plain_write<C>(p, tile.row + row + i, tile.col + col + j, sum[i][j]);
            }
        }
    }
}

#define PLAIN_KERNEL(name, type, c_type)                                                                     \
    LS_KERNEL __launch_bounds__(PLAIN_THREADS) name(ls_matmul_arguments p)                                   \
    {                                                                                                        \
        plain_product<type, c_type>(p);                                                                      \
    }                                                                                                        \
    LS_KERNEL_EXPORT(name)

PLAIN_KERNEL(matmul_plain_f32_f32, float, float)
PLAIN_KERNEL(matmul_plain_bf16_f32, bf16, float)
PLAIN_KERNEL(matmul_plain_bf16_bf16, bf16, bf16)

/* ---- the sum of the pieces ---- */

/* A thread adds up to 4 neighbours of a row. */
template <class T> LS_DEVICE void combine(const ls_matmul_combine_arguments &p)
{
    const int64_t fours = (p.n + 3) / 4;
    const int64_t index = (int64_t)blockIdx.x * LS_MATMUL_COMBINE_THREADS + threadIdx.x;
    if (index >= p.m * fours) {
        return;
    }
    const int64_t row = index / fours, col = index % fours * 4;
    const int count = p.n - col < 4 ? (int)(p.n - col) : 4;
    const bool whole = p.n % 4 == 0;
    const float *from = p.pieces + row * p.n + col;
    float x[4] = {};
    for (int piece = 0; piece < p.piece_count; piece++, from += p.m * p.n) {
        float y[4] = {};
        if (whole) {
            sixteen_bytes<float>::load(y, from);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                y[i] = i < count ? from[i] : 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[i] = piece == 0 ? y[i] : x[i] + y[i];
        }
    }
    T *c = (T *)p.c + row * p.c_stride + col;
    const T *other = p.accumulate ? c : p.bias ? (const T *)p.bias + col : nullptr;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i < count) {
            c[i] = from_float<T>(other ? x[i] + to_float(other[i]) : x[i]);
        }
    }
}

LS_KERNEL matmul_combine_f32(ls_matmul_combine_arguments p)
{
    combine<float>(p);
}
LS_KERNEL_EXPORT(matmul_combine_f32)

LS_KERNEL matmul_combine_bf16(ls_matmul_combine_arguments p)
{
    combine<bf16>(p);
}
LS_KERNEL_EXPORT(matmul_combine_bf16)

/* ---- are two results equal? ---- */

LS_KERNEL matmul_compare(ls_matmul_compare_arguments p)
{
    const int64_t step = (int64_t)gridDim.x * LS_MATMUL_COMPARE_THREADS;
    uint32_t differences = 0;
    for (int64_t i = (int64_t)blockIdx.x * LS_MATMUL_COMPARE_THREADS + threadIdx.x; i < p.count; i += step) {
        differences += p.a[i] != p.b[i];
    }
    if (differences) {
        atomicAdd(p.differences, differences);
    }
}
LS_KERNEL_EXPORT(matmul_compare)
