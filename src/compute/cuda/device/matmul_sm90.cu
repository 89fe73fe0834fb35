// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products in bfloat16 with the tensor cores of compute capability 9.0.
 *
 * A block stays for many tiles of C, 128 x 256 each. One thread of the first warp group copies
 * tiles of A and B with the engine, LS_MATMUL_SM90_STAGES steps of 64 along k ahead; it is already
 * at the next tile of C while the two others, each with 64 rows, write this one:
 *
 *     engine    A, B step s+3      full[]   >
 *     group 1   rows   0 .. 63     wgmma of step s      < empty[]
 *     group 2   rows  64 .. 127    wgmma of step s
 *
 * A tile of an operand keeps the order of its matrix in memory. If k runs along the rows it is one
 * panel of 64 columns (hopper.h); otherwise panels of 64 rows lie one after another.
 */
#include "compute/cuda/device/matmul_sm90.h"

#include "compute/cuda/device/hopper.h"

enum {
    TILE_M = LS_MATMUL_SM90_TILE_M,
    TILE_N = LS_MATMUL_SM90_TILE_N,
    TILE_K = LS_MATMUL_SM90_TILE_K,
    STAGES = LS_MATMUL_SM90_STAGES,
    GROUPS = 2,
    GROUP_ROWS = 64,
    GROUP_THREADS = 128,
    SUMS = TILE_N / 2,
    A_BYTES = TILE_M * TILE_K * 2,
    B_BYTES = TILE_N * TILE_K * 2,
    STAGE_BYTES = A_BYTES + B_BYTES,
    /* 64 rows of 128 bytes. */
    PANEL_BYTES = 64 * PANEL_ROW_BYTES,
    STEP_K = 16,
};
static_assert((int)TILE_M == GROUPS * GROUP_ROWS && (int)TILE_K == (int)PANEL_COLUMNS,
              "the tiles of the drawing");

/* ---- D (64, 256) += A (64, 16) B (16, 256) ---- */

#ifdef __CUDACC__
#define LS_REGISTERS_128                                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "            \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, "        \
    "%39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "        \
    "%58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "        \
    "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "        \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "           \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "             \
    "%127}"
#define LS_FLOATS_128(d)                                                                                     \
    LS_FLOATS_16(d, 0), LS_FLOATS_16(d, 16), LS_FLOATS_16(d, 32), LS_FLOATS_16(d, 48), LS_FLOATS_16(d, 64),  \
        LS_FLOATS_16(d, 80), LS_FLOATS_16(d, 96), LS_FLOATS_16(d, 112)

template <bool A_COLUMNS, bool B_COLUMNS>
LS_DEVICE void multiply_256(float (&d)[SUMS], operand a, operand b, int accumulate)
{
    asm volatile(LS_WGMMA_BEGIN("%130") "m64n256k16.f32.bf16.bf16 " LS_REGISTERS_128
                                        ", %128, %129, p, 1, 1, %131, %132;\n}"
                 : LS_FLOATS_128(d)
                 : "l"(operand_whole(a)), "l"(operand_whole(b)), "r"(accumulate), "n"((int)A_COLUMNS),
                   "n"((int)B_COLUMNS));
}
#else
template <bool A_COLUMNS, bool B_COLUMNS>
LS_DEVICE void multiply_256(float (&d)[SUMS], operand a, operand b, int accumulate)
{
    ::cuda_on_cpu::product_ask<TILE_N, B_COLUMNS, A_COLUMNS>(d, nullptr, operand_whole(a), operand_whole(b),
                                                             accumulate);
}
#endif

/* ---- which work a block does ---- */

/* A tile of C and a range of k. */
struct work_item {
    int row, col, k_begin, steps, piece;
};

LS_DEVICE int tiles_of(int length, int tile)
{
    return (length + tile - 1) / tile;
}

LS_DEVICE int work_count(const ls_matmul_sm90 &p)
{
    return tiles_of(p.m, TILE_M) * tiles_of(p.n, TILE_N) * p.pieces;
}

LS_DEVICE work_item work_item_of(const ls_matmul_sm90 &p, int number)
{
    const int tiles_m = tiles_of(p.m, TILE_M), tiles_n = tiles_of(p.n, TILE_N);
    const int at = number % (tiles_m * tiles_n);
    const int first_row = at / (LS_MATMUL_SM90_TILE_ROWS * tiles_n) * LS_MATMUL_SM90_TILE_ROWS;
    const int rows = min(tiles_m - first_row, (int)LS_MATMUL_SM90_TILE_ROWS),
              in_band = at - first_row * tiles_n;
    work_item w;
    w.piece = number / (tiles_m * tiles_n);
    w.row = (first_row + in_band % rows) * TILE_M;
    w.col = in_band / rows * TILE_N;
    w.k_begin = w.piece * p.k_piece;
    w.steps = tiles_of(min(p.k - w.k_begin, p.k_piece), TILE_K);
    return w;
}

/* ---- the stages ---- */

struct stage_barriers {
    uint64_t full[STAGES], empty[STAGES];
};

/* A place in the ring of stages. */
struct ring {
    int stage;
    uint32_t phase;
};

LS_DEVICE void advance(ring &place)
{
    place.stage++;
    if (place.stage == STAGES) {
        place.stage = 0;
        place.phase ^= 1;
    }
}

/* ---- the thread that copies ---- */

template <bool ROWS_ARE_K>
LS_DEVICE void copy_operand(unsigned char *to, const ls_tensor_map *map, uint64_t *barrier, int outer,
                            int length, int k)
{
    if constexpr (ROWS_ARE_K) {
        for (int panel = 0; panel < length / PANEL_COLUMNS; panel++) {
            tma_load_2d(to + panel * PANEL_BYTES, map, barrier, outer + panel * PANEL_COLUMNS, k);
        }
    } else {
        tma_load_2d(to, map, barrier, k, outer);
    }
}

template <bool A_TRANSPOSED, bool B_TRANSPOSED>
LS_DEVICE void copy_tiles(const ls_matmul_sm90 &p, unsigned char *shared, stage_barriers *barriers)
{
    ring place = {0, 0};
    for (int number = (int)blockIdx.x; number < work_count(p); number += (int)gridDim.x) {
        const work_item w = work_item_of(p, number);
        for (int step = 0; step < w.steps; step++) {
            unsigned char *stage = shared + place.stage * STAGE_BYTES;
            uint64_t *full = &barriers->full[place.stage];
            mbarrier_wait(&barriers->empty[place.stage], place.phase ^ 1);
            mbarrier_arrive_expect(full, STAGE_BYTES);
            const int k = w.k_begin + step * TILE_K;
            copy_operand<A_TRANSPOSED>(stage, &p.a, full, w.row, TILE_M, k);
            copy_operand<!B_TRANSPOSED>(stage + A_BYTES, &p.b, full, w.col, TILE_N, k);
            advance(place);
        }
    }
}

/* ---- the groups that multiply ---- */

template <bool A_TRANSPOSED, bool B_TRANSPOSED>
LS_DEVICE void multiply_step(float (&sums)[SUMS], const unsigned char *stage, int group, bool accumulate)
{
    /* Either way the group's rows of A begin 64 rows or one panel after those of the other. */
    const unsigned char *a_tile = stage + group * PANEL_BYTES, *b_tile = stage + A_BYTES;
    const operand a = A_TRANSPOSED ? operand_columns(a_tile, PANEL_BYTES) : operand_rows(a_tile);
    const operand b = B_TRANSPOSED ? operand_rows(b_tile) : operand_columns(b_tile, PANEL_BYTES);
    const uint32_t a_step = A_TRANSPOSED ? STEP_K * PANEL_ROW_BYTES : STEP_K * 2;
    const uint32_t b_step = B_TRANSPOSED ? STEP_K * 2 : STEP_K * PANEL_ROW_BYTES;
#pragma unroll
    for (int i = 0; i < TILE_K / STEP_K; i++) {
        multiply_256<A_TRANSPOSED, !B_TRANSPOSED>(sums, operand_advance(a, i * a_step),
                                                  operand_advance(b, i * b_step), accumulate || i > 0);
    }
}

/* One step is always under way: the stage of the step before is given back when the next has
 * begun. */
template <bool A_TRANSPOSED, bool B_TRANSPOSED>
LS_DEVICE void multiply_tile(float (&sums)[SUMS], unsigned char *shared, stage_barriers *barriers,
                             ring &place, int steps, int group)
{
    /* Each warp gives a stage back for itself: it waits for its own part of a product. */
    const bool speaks = threadIdx.x % 32 == 0;
    int before = 0;
    for (int step = 0; step < steps; step++) {
        mbarrier_wait(&barriers->full[place.stage], place.phase);
        wgmma_fence();
        multiply_step<A_TRANSPOSED, B_TRANSPOSED>(sums, shared + place.stage * STAGE_BYTES, group, step > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0 && speaks) {
            mbarrier_arrive(&barriers->empty[before]);
        }
        before = place.stage;
        advance(place);
    }
    wgmma_wait<0>();
    wgmma_hold(sums);
    if (speaks) {
        mbarrier_arrive(&barriers->empty[before]);
    }
}

/* ---- from registers to C ---- */

/* Words of four lanes change places: lane t gets word t of each lane, in the order of the lanes. */
LS_DEVICE void transpose_quad(uint32_t (&w)[4])
{
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2) {
        const bool upper = t & bit;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!(i & bit)) {
                const uint32_t mine = upper ? w[i] : w[i | bit];
                const uint32_t theirs = __shfl_xor_sync(0xffffffffu, mine, bit);
                (upper ? w[i] : w[i | bit]) = theirs;
            }
        }
    }
}

/* Two neighbours of a row, where nothing is aligned or not all is inside. */
template <class T> LS_DEVICE void write_pair(const ls_matmul_sm90 &p, T *c, int col, float x, float y)
{
    if (col < p.n) {
        c[0] = from_float<T>(p.accumulate ? x + to_float(c[0]) : x);
    }
    if (col + 1 < p.n) {
        c[1] = from_float<T>(p.accumulate ? y + to_float(c[1]) : y);
    }
}

template <class T> LS_DEVICE void add_bias(const ls_matmul_sm90 &p, float (&sums)[SUMS], int col)
{
    const T *bias = (const T *)p.bias;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; j++) {
        const int at = col + j * 8;
        const float x = at < p.n ? to_float(bias[at]) : 0.0f,
                    y = at + 1 < p.n ? to_float(bias[at + 1]) : 0.0f;
        sums[j * 4] += x;
        sums[j * 4 + 1] += y;
        sums[j * 4 + 2] += x;
        sums[j * 4 + 3] += y;
    }
}

/* Rows of float32: the four lanes of a row write 32 bytes together. */
LS_DEVICE void write_whole(float *c, const float (&sums)[SUMS], int half)
{
#pragma unroll
    for (int j = 0; j < TILE_N / 8; j++) {
        *(float2 *)(c + j * 8) = make_float2(sums[j * 4 + half * 2], sums[j * 4 + half * 2 + 1]);
    }
}

/* Rows of bfloat16: a lane writes 16 bytes, four lanes of a row 64. c: where the lane's pairs
 * begin. */
LS_DEVICE void write_whole(bf16 *c, const float (&sums)[SUMS], int half)
{
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[i] = to_bf16x2(sums[(j + i) * 4 + half * 2], sums[(j + i) * 4 + half * 2 + 1]);
        }
        transpose_quad(w);
        *(uint4 *)(c - t * 2 + (j + t) * 8) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

template <class T>
LS_DEVICE void write_tile(const ls_matmul_sm90 &p, float (&sums)[SUMS], const work_item &w, int group)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int first_row = w.row + group * GROUP_ROWS + warp * 16, col = w.col + lane % 4 * 2;
    if (p.bias) {
        add_bias<T>(p, sums, col);
    }
    const bool whole = p.c_aligned && !p.accumulate && first_row + 16 <= p.m && w.col + TILE_N <= p.n;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first_row + lane / 4 + half * 8;
        T *c = (T *)p.c + ((int64_t)w.piece * p.m + row) * p.c_stride + col;
        if (whole) {
            write_whole(c, sums, half);
        } else if (row < p.m) {
#pragma unroll
            for (int j = 0; j < TILE_N / 8; j++) {
                write_pair<T>(p, c + j * 8, col + j * 8, sums[j * 4 + half * 2], sums[j * 4 + half * 2 + 1]);
            }
        }
    }
}

template <bool A_TRANSPOSED, bool B_TRANSPOSED, class T>
LS_DEVICE void compute_tiles(const ls_matmul_sm90 &p, unsigned char *shared, stage_barriers *barriers,
                             int group)
{
    ring place = {0, 0};
    float sums[SUMS];
    for (int number = (int)blockIdx.x; number < work_count(p); number += (int)gridDim.x) {
        const work_item w = work_item_of(p, number);
        multiply_tile<A_TRANSPOSED, B_TRANSPOSED>(sums, shared, barriers, place, w.steps, group);
        write_tile<T>(p, sums, w, group);
    }
}

/* ---- the kernels ---- */

template <bool A_TRANSPOSED, bool B_TRANSPOSED, class T>
LS_DEVICE void product(const ls_matmul_sm90 &p, unsigned char *shared)
{
    stage_barriers *barriers = (stage_barriers *)(shared + STAGES * STAGE_BYTES);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(&barriers->full[i], 1);
            mbarrier_init(&barriers->empty[i], GROUPS * GROUP_THREADS / 32);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    const int group = (int)threadIdx.x / GROUP_THREADS - 1;
    if (group < 0) {
        registers_shrink<24>();
        if (threadIdx.x == 0) {
            copy_tiles<A_TRANSPOSED, B_TRANSPOSED>(p, shared, barriers);
        }
    } else {
        registers_grow<240>();
        compute_tiles<A_TRANSPOSED, B_TRANSPOSED, T>(p, shared, barriers, group);
    }
}

#define SM90_KERNEL(name, a_transposed, b_transposed, type)                                                  \
    LS_KERNEL __launch_bounds__(LS_MATMUL_SM90_THREADS, 1) name(const __grid_constant__ ls_matmul_sm90 p)    \
    {                                                                                                        \
        LS_SHARED(unsigned char, shared);                                                                    \
        product<a_transposed, b_transposed, type>(p, shared);                                                \
    }                                                                                                        \
    LS_KERNEL_EXPORT(name)

SM90_KERNEL(matmul_sm90_nn_f32, false, false, float)
SM90_KERNEL(matmul_sm90_nt_f32, false, true, float)
SM90_KERNEL(matmul_sm90_tn_f32, true, false, float)
SM90_KERNEL(matmul_sm90_tt_f32, true, true, float)
SM90_KERNEL(matmul_sm90_nn_bf16, false, false, bf16)
SM90_KERNEL(matmul_sm90_nt_bf16, false, true, bf16)
SM90_KERNEL(matmul_sm90_tn_bf16, true, false, bf16)
SM90_KERNEL(matmul_sm90_tt_bf16, true, true, bf16)
