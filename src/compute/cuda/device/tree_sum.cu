// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/tree_sum.h"

#include "compute/cuda/device/runs.h"

enum {
    THREADS = LS_TREE_SUM_THREADS,
    /* Runs of four elements that a thread has: THREADS apart, so that threads share cache lines. */
    RUNS = LS_TREE_SUM_BLOCK / 4 / THREADS,
    WARPS = THREADS / 32,
};

/* Where run `k` of this thread begins. */
LS_DEVICE int64_t run_begin(int k)
{
    return (int64_t)blockIdx.x * LS_TREE_SUM_BLOCK + (k * THREADS + threadIdx.x) * 4;
}

/* A stack of runs. The top is stack[0], so that every element is a register with a fixed name: a
 * push moves all others. */
template <int DEPTH> LS_DEVICE void push(float (&stack)[DEPTH][4], const float (&x)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int d = DEPTH - 1; d > 0; d--) {
            stack[d][j] = stack[d - 1][j];
        }
        stack[0][j] = x[j];
    }
}

template <int DEPTH> LS_DEVICE void add_top_two(float (&stack)[DEPTH][4])
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        stack[0][j] = __fadd_rn(stack[1][j], stack[0][j]);
#pragma unroll
        for (int d = 1; d + 1 < DEPTH; d++) {
            stack[d][j] = stack[d + 1][j];
        }
    }
}

/* The sum of run `k`. BATCH loads are under way at once. */
template <int DEPTH, class Args> LS_DEVICE void sum_in_order(const Args &args, int k, float (&sum)[1][4])
{
    constexpr int BATCH = 4;
    const ls_tree_sum_call &call = args.call;
    const int64_t at = run_begin(k), left = call.count - at;
    float stack[DEPTH][4] = {};
#pragma unroll 1
    for (uint32_t i = 0; i < call.input_count; i += BATCH) {
        float x[BATCH][4];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (i + b < call.input_count) {
                load_part(args.inputs[i + b] + at, left, call.aligned, x[b]);
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (i + b < call.input_count) {
                push(stack, x[b]);
                for (uint32_t n = args.additions[i + b]; n > 0; n--) {
                    add_top_two(stack);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        sum[0][j] = stack[0][j];
    }
}

/* One input, or the sum of two: nearly all calls. All loads are under way at once. */
template <int INPUTS> LS_DEVICE void sum_at_once(const ls_tree_sum_few &args, float (&sum)[RUNS][4])
{
    float right[RUNS][4];
#pragma unroll
    for (int k = 0; k < RUNS; k++) {
        const int64_t at = run_begin(k), left = args.call.count - at;
        load_part(args.inputs[0] + at, left, args.call.aligned, sum[k]);
        if (INPUTS == 2) {
            load_part(args.inputs[1] + at, left, args.call.aligned, right[k]);
        }
    }
#pragma unroll
    for (int e = 0; INPUTS == 2 && e < RUNS * 4; e++) {
        sum[e / 4][e % 4] = __fadd_rn(sum[e / 4][e % 4], right[e / 4][e % 4]);
    }
}

/* Stores runs k, k + 1, ... and returns `squares` plus theirs. */
template <int COUNT>
LS_DEVICE double store_runs(const ls_tree_sum_call &call, int k, const float (&sum)[COUNT][4], double squares)
{
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const int64_t at = run_begin(k + n);
        if (!call.only_squares) {
            store_part(call.out + at, call.count - at, call.aligned, sum[n]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            squares = fma((double)sum[n][j], (double)sum[n][j], squares);
        }
    }
    return squares;
}

/* Adds over the threads of the block: a tree within each warp, then the warps in order. */
LS_DEVICE void store_squares(double *to, double squares)
{
    __shared__ double of_warp[WARPS];
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        squares += __shfl_xor_sync(~0u, squares, apart);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = squares;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double all = 0.0;
        for (int w = 0; w < WARPS; w++) {
            all += of_warp[w];
        }
        to[blockIdx.x] = all;
    }
}

template <int INPUTS> LS_DEVICE void tree_sum_of(const ls_tree_sum_few &args)
{
    float sum[RUNS][4];
    sum_at_once<INPUTS>(args, sum);
    const double squares = store_runs(args.call, 0, sum, 0.0);
    if (args.call.square_sums) {
        store_squares(args.call.square_sums, squares);
    }
}

template <int DEPTH, class Args> LS_DEVICE void tree_sum(const Args &args)
{
    double squares = 0.0;
#pragma unroll 1
    for (int k = 0; k < RUNS; k++) {
        float sum[1][4];
        sum_in_order<DEPTH>(args, k, sum);
        squares = store_runs(args.call, k, sum, squares);
    }
    if (args.call.square_sums) {
        store_squares(args.call.square_sums, squares);
    }
}

LS_KERNEL tree_sum_1(const __grid_constant__ ls_tree_sum_few args)
{
    tree_sum_of<1>(args);
}
LS_KERNEL_EXPORT(tree_sum_1)

LS_KERNEL tree_sum_2(const __grid_constant__ ls_tree_sum_few args)
{
    tree_sum_of<2>(args);
}
LS_KERNEL_EXPORT(tree_sum_2)

/* Few inputs, and a stack of up to 4, 8 or 16. */
LS_KERNEL tree_sum_few_4(const __grid_constant__ ls_tree_sum_few args)
{
    tree_sum<4>(args);
}
LS_KERNEL_EXPORT(tree_sum_few_4)

LS_KERNEL tree_sum_few_8(const __grid_constant__ ls_tree_sum_few args)
{
    tree_sum<8>(args);
}
LS_KERNEL_EXPORT(tree_sum_few_8)

LS_KERNEL __launch_bounds__(THREADS, 2) tree_sum_few_16(const __grid_constant__ ls_tree_sum_few args)
{
    tree_sum<16>(args);
}
LS_KERNEL_EXPORT(tree_sum_few_16)

LS_KERNEL __launch_bounds__(THREADS, 2) tree_sum_many(const __grid_constant__ ls_tree_sum_many args)
{
    tree_sum<16>(args);
}
LS_KERNEL_EXPORT(tree_sum_many)
