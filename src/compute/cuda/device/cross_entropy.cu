// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/cross_entropy.h"

#include "compute/cuda/device/quick_math.h"
#include "compute/cuda/device/runs.h"

enum {
    THREADS = LS_CROSS_ENTROPY_THREADS,
    WARPS = THREADS / 32,
    /* Units that a thread loads at once. */
    BATCH = 4,
    IGNORED = -1,
};

/* Below every logit that counts, and a number that can be subtracted from any. */
#define LOWEST    (-1e30f)
#define LOG2_OF_E 1.44269504f

/* The sum of exp(x - top) over some x, of which top is the largest. */
struct exp_sum {
    float top, sum;
};

LS_DEVICE float exp_of(float x)
{
    return quick_exp2(x * LOG2_OF_E);
}

LS_DEVICE void raise_top(exp_sum &s, float top)
{
    s.sum *= exp_of(s.top - top);
    s.top = top;
}

template <int WIDTH> LS_DEVICE void add_terms(exp_sum &s, const float (&x)[WIDTH])
{
    float top = s.top;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        top = fmaxf(top, x[j]);
    }
    if (top > s.top) {
        raise_top(s, top);
    }
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int j = 0; j < WIDTH; j += 2) {
        even += exp_of(x[j] - s.top);
        odd += exp_of(x[j + 1] - s.top);
    }
    s.sum += even + odd;
}

/* Reduces over the block in a fixed order; all threads get the result. `of_warp` is shared. */
template <class Combine> LS_DEVICE float reduce(float x, float *of_warp, Combine combine)
{
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        x = combine(x, __shfl_xor_sync(~0u, x, apart));
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = x;
    }
    __syncthreads();
    x = of_warp[threadIdx.x % WARPS];
#pragma unroll
    for (int apart = WARPS / 2; apart > 0; apart /= 2) {
        x = combine(x, __shfl_xor_sync(~0u, x, apart));
    }
    return x;
}

struct larger {
    __device__ float operator()(float a, float b) const
    {
        return fmaxf(a, b);
    }
};

struct sum_of {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

LS_DEVICE exp_sum sum_over_block(exp_sum s)
{
    __shared__ float tops[WARPS], sums[WARPS];
    raise_top(s, reduce(s.top, tops, larger()));
    s.sum = reduce(s.sum, sums, sum_of());
    return s;
}

/* A row of logits, and the units of it that are kept in shared memory. */
template <class T> struct row_of {
    static constexpr int WIDTH = 16 / sizeof(T);
    T *logits;
    uint4 *kept;
    int64_t cols, stride, units, kept_units;
    bool aligned;
};

LS_DEVICE void unpack(uint4 from, float (&x)[8])
{
    x[0] = first_of(from.x);
    x[1] = second_of(from.x);
    x[2] = first_of(from.y);
    x[3] = second_of(from.y);
    x[4] = first_of(from.z);
    x[5] = second_of(from.z);
    x[6] = first_of(from.w);
    x[7] = second_of(from.w);
}

LS_DEVICE void unpack(uint4 from, float (&x)[4])
{
    x[0] = __uint_as_float(from.x);
    x[1] = __uint_as_float(from.y);
    x[2] = __uint_as_float(from.z);
    x[3] = __uint_as_float(from.w);
}

/* Up to a unit of elements, one by one. */
LS_DEVICE uint4 gather_unit(const float *from, int64_t left)
{
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        words[j] = j < left ? __float_as_uint(from[j]) : 0u;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

LS_DEVICE uint4 gather_unit(const bf16 *from, int64_t left)
{
    uint32_t words[4] = {};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        words[j / 2] |= (j < left ? (uint32_t)from[j].bits : 0u) << j % 2 * 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* The bits of a unit; what lies past the last column is undefined. */
template <class T> LS_DEVICE uint4 load_unit(const row_of<T> &row, int64_t unit)
{
    const int64_t col = unit * row_of<T>::WIDTH, left = row.cols - col;
    if (left <= 0) {
        return make_uint4(0, 0, 0, 0);
    }
    return row.aligned ? *(const uint4 *)(row.logits + col) : gather_unit(row.logits + col, left);
}

/* Columns past the last count as -infinity, whose exponential is 0. */
template <int WIDTH> LS_DEVICE void mask_padding(int64_t left, float (&x)[WIDTH])
{
    if (left < WIDTH) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            x[j] = j < left ? x[j] : __uint_as_float(0xff800000u);
        }
    }
}

template <class T> LS_DEVICE exp_sum sum_row(const row_of<T> &row)
{
    exp_sum s = {LOWEST, 0.0f};
    for (int64_t unit = threadIdx.x; unit < row.units; unit += BATCH * THREADS) {
        uint4 bits[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            bits[k] = load_unit(row, unit + k * THREADS);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float x[row_of<T>::WIDTH];
            if (unit + k * THREADS < row.kept_units) {
                row.kept[unit + k * THREADS] = bits[k];
            }
            unpack(bits[k], x);
            mask_padding(row.cols - (unit + k * THREADS) * row_of<T>::WIDTH, x);
            add_terms(s, x);
        }
    }
    return sum_over_block(s);
}

/* What the gradient of a row is made of. */
struct gradient_of {
    float top, inverse_sum;
    int32_t target;
};

/* Replaces a unit of logits by its gradient; columns past the last become 0. */
template <class T>
LS_DEVICE void store_gradient(const row_of<T> &row, gradient_of g, int64_t unit, uint4 bits)
{
    constexpr int WIDTH = row_of<T>::WIDTH;
    const int64_t col = unit * WIDTH;
    float x[WIDTH];
    unpack(bits, x);
    mask_padding(row.cols - col, x);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        x[j] = exp_of(x[j] - g.top) * g.inverse_sum;
    }
    if ((uint64_t)(g.target - col) < (uint64_t)WIDTH) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            x[j] -= col + j == g.target ? 1.0f : 0.0f;
        }
    }
    store_part(row.logits + col, row.stride - col, row.aligned, x);
}

/* What is not in shared memory comes first, because the first pass has just read it. */
template <class T> LS_DEVICE void store_gradients(const row_of<T> &row, gradient_of g)
{
    for (int64_t unit = row.kept_units + threadIdx.x; unit < row.units; unit += BATCH * THREADS) {
        uint4 bits[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            bits[k] = load_unit(row, unit + k * THREADS);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (unit + k * THREADS < row.units) {
                store_gradient(row, g, unit + k * THREADS, bits[k]);
            }
        }
    }
    for (int64_t unit = threadIdx.x; unit < row.kept_units && unit < row.units; unit += THREADS) {
        store_gradient(row, g, unit, row.kept[unit]);
    }
}

template <class T> LS_DEVICE void store_zeros(const row_of<T> &row)
{
    const float zeros[row_of<T>::WIDTH] = {};
    for (int64_t unit = threadIdx.x; unit < row.units; unit += THREADS) {
        const int64_t col = unit * row_of<T>::WIDTH;
        store_part(row.logits + col, row.stride - col, row.aligned, zeros);
    }
}

template <class T> LS_DEVICE void cross_entropy(const ls_cross_entropy_args &args, uint4 *kept)
{
    __shared__ int32_t shared_target;
    constexpr int WIDTH = row_of<T>::WIDTH;
    const int64_t r = blockIdx.x;
    const row_of<T> row = {(T *)args.logits + r * args.stride,
                           kept,
                           args.cols,
                           args.stride,
                           (args.stride + WIDTH - 1) / WIDTH,
                           args.kept_units,
                           args.aligned != 0};
    /* The target comes from memory of the host while the row is read. */
    const int32_t read_target = threadIdx.x == 0 ? args.targets[r] : 0;
    const exp_sum s = sum_row(row);
    if (threadIdx.x == 0) {
        const bool is_ignored = read_target == IGNORED;
        if (!is_ignored && (read_target < 0 || read_target >= args.cols)) {
            __trap();
        }
        args.losses[r] = is_ignored ? 0.0f : logf(s.sum) + (s.top - to_float(row.logits[read_target]));
        shared_target = read_target;
    }
    if (!args.with_gradient) {
        return;
    }
    __syncthreads();
    const int32_t target = shared_target;
    if (target == IGNORED) {
        store_zeros(row);
    } else {
        store_gradients(row, gradient_of{s.top, __fdiv_rn(1.0f, s.sum), target});
    }
}

LS_KERNEL __launch_bounds__(THREADS, 2) cross_entropy_f32(ls_cross_entropy_args args)
{
    LS_SHARED(uint4, kept);
    cross_entropy<float>(args, kept);
}
LS_KERNEL_EXPORT(cross_entropy_f32)

LS_KERNEL __launch_bounds__(THREADS, 2) cross_entropy_bf16(ls_cross_entropy_args args)
{
    LS_SHARED(uint4, kept);
    cross_entropy<bf16>(args, kept);
}
LS_KERNEL_EXPORT(cross_entropy_bf16)
