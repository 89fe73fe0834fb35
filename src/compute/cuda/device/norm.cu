// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/norm.h"

#include "compute/cuda/device/eight.h"
#include "compute/cuda/device/team.h"

/* The unit of a thread, and its place in the team. */
struct place {
    uint32_t row, group;
    int lane;
    /* False past the last unit: such a thread only takes part in sums. */
    bool is_live;
};

LS_DEVICE place place_of(const ls_norm_units &units, uint32_t unit, uint32_t end)
{
    const uint32_t groups = (uint32_t)units.groups;
    place p;
    p.is_live = unit < end;
    p.row = !p.is_live ? 0 : groups == 1 ? unit : unit / groups;
    p.group = p.is_live ? unit - p.row * groups : 0;
    p.lane = (int)threadIdx.x % units.team;
    return p;
}

/* The first element of the unit. */
template <class T> LS_DEVICE T *unit_of(const ls_norm_units &units, const place &p, T *rows, int64_t stride)
{
    return rows + p.row * stride + (int64_t)p.group * (uint32_t)units.width;
}

/* Elements of the unit from the thread's octet k on; 0 or less: the octet is past the end. */
LS_DEVICE int octet_count(const ls_norm_units &units, const place &p, int k)
{
    return p.is_live ? units.width - (p.lane + k * units.team) * 8 : 0;
}

template <class T, int N>
LS_DEVICE void load_octets(const ls_norm_units &units, const place &p, const T *unit, eight<T> (&to)[N])
{
    if (units.vector) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            load_eight(unit + (p.lane + k * units.team) * 8, octet_count(units, p, k), true, to[k]);
        }
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) {
            load_some(unit + (p.lane + k * units.team) * 8, octet_count(units, p, k), to[k]);
        }
    }
}

template <class T, int N>
LS_DEVICE void store_octet(const ls_norm_units &units, const place &p, T *unit, int k, const eight<T> &from)
{
    store_eight(unit + (p.lane + k * units.team) * 8, octet_count(units, p, k), units.vector != 0, from);
}

/* x = a + b, rounded to T, and written to the sum. */
template <class T, int N>
LS_DEVICE void add_residual(const ls_norm_forward_args &args, const place &p, eight<T> (&x)[N])
{
    eight<T> other[N];
    load_octets(args.units, p, unit_of(args.units, p, (const T *)args.b, args.b_stride), other);
    T *sum = unit_of(args.units, p, (T *)args.sum, args.sum_stride);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float left[8], right[8];
        unpack(x[k], left);
        unpack(other[k], right);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            left[i] += right[i];
        }
        pack(left, x[k]);
        store_octet<T, N>(args.units, p, sum, k, x[k]);
    }
}

template <class T, int N> LS_DEVICE float sum_of(const eight<T> (&x)[N])
{
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
        float value[8];
        unpack(x[k], value);
        sum +=
            ((value[0] + value[1]) + (value[2] + value[3])) + ((value[4] + value[5]) + (value[6] + value[7]));
    }
    return sum;
}

/* The sum of (x - mean)^2 over the elements that there are. */
template <class T, int N>
LS_DEVICE float squares_of(const ls_norm_units &units, const place &p, const eight<T> (&x)[N], float mean)
{
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int count = octet_count(units, p, k);
        float value[8];
        unpack(x[k], value);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float d = i < count ? value[i] - mean : 0.0f;
            sum += d * d;
        }
    }
    return sum;
}

template <class T, int N> LS_DEVICE void forward(const ls_norm_forward_args &args)
{
    __shared__ team_scratch<float> scratch;
    const ls_norm_units &units = args.units;
    const uint32_t teams = blockDim.x / units.team;
    const place p = place_of(units, blockIdx.x * teams + threadIdx.x / units.team, units.count);
    eight<T> x[N], weight[N], bias[N] = {};
    load_octets(units, p, unit_of(units, p, (const T *)args.a, args.a_stride), x);
    if (args.b) {
        add_residual<T, N>(args, p, x);
    }
    load_octets(units, p, (const T *)args.weight, weight);
    if (args.bias) {
        load_octets(units, p, (const T *)args.bias, bias);
    }
    const float scale = 1.0f / (float)units.width;
    float mean = 0.0f;
    if (units.is_layer) {
        mean = team_sum(sum_of(x), units.team, &scratch, 0) * scale;
    }
    const float squares = team_sum(squares_of(units, p, x, mean), units.team, &scratch, 1);
    const float rstd = 1.0f / sqrtf(squares * scale + units.eps);
    T *y = unit_of(units, p, (T *)args.y, args.y_stride);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float value[8], w[8], b[8];
        unpack(x[k], value);
        unpack(weight[k], w);
        unpack(bias[k], b);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            value[i] = (value[i] - mean) * rstd * w[i] + b[i];
        }
        pack(value, x[k]);
        store_octet<T, N>(units, p, y, k, x[k]);
    }
    if (p.lane == 0 && p.is_live) {
        args.rstd[p.row * args.rstd_stride + p.group] = rstd;
        if (units.is_layer) {
            args.mean[p.row * args.mean_stride + p.group] = mean;
        }
    }
}

/* What backward reads of one unit. */
template <class T, int N> struct unit_inputs {
    eight<T> x[N], dy[N], dx[N];
    float mean, rstd;
};

template <class T, int N>
LS_DEVICE void load_inputs(const ls_norm_backward_args &args, const place &p, unit_inputs<T, N> &in)
{
    const ls_norm_units &units = args.units;
    load_octets(units, p, unit_of(units, p, (const T *)args.x, args.x_stride), in.x);
    load_octets(units, p, unit_of(units, p, (const T *)args.dy, args.dy_stride), in.dy);
    if (args.accumulate) {
        load_octets(units, p, unit_of(units, p, (const T *)args.dx, args.dx_stride), in.dx);
    }
    in.mean = units.is_layer && p.is_live ? args.mean[p.row * args.mean_stride + p.group] : 0.0f;
    in.rstd = p.is_live ? args.rstd[p.row * args.rstd_stride + p.group] : 0.0f;
}

/* Sums over rows, in the registers of a thread. RMS norm has no bias. */
template <int N, bool LAYER> struct weight_sums {
    float dweight[N][8], dbias[LAYER ? N : 1][8];
};

/* One octet: adds to the sums over rows, and returns the sums of dy w and dy w xhat. */
template <class T, int N, bool LAYER>
LS_DEVICE float2 octet_sums(const unit_inputs<T, N> &in, int k, const float (&w)[8],
                            weight_sums<N, LAYER> &sums)
{
    float x[8], dy[8];
    float2 sum = {0.0f, 0.0f};
    unpack(in.x[k], x);
    unpack(in.dy[k], dy);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float hat = (x[i] - in.mean) * in.rstd, d = dy[i] * w[i];
        sums.dweight[k][i] += dy[i] * hat;
        if (LAYER) {
            sums.dbias[k][i] += dy[i];
            sum.x += d;
        }
        sum.y += d * hat;
    }
    return sum;
}

/* dx = rstd (dy w - mean(dy w) - xhat mean(dy w xhat)), the means in `means`. */
template <class T, int N>
LS_DEVICE void octet_dx(const unit_inputs<T, N> &in, int k, const float (&w)[8], float2 means,
                        bool accumulate, eight<T> &out)
{
    float x[8], dy[8], dx[8];
    unpack(in.x[k], x);
    unpack(in.dy[k], dy);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float hat = (x[i] - in.mean) * in.rstd;
        dx[i] = in.rstd * (dy[i] * w[i] - means.x - hat * means.y);
    }
    if (accumulate) {
        float old[8];
        unpack(in.dx[k], old);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            dx[i] += old[i];
        }
    }
    pack(dx, out);
}

template <class T, int N, bool LAYER>
LS_DEVICE void unit_backward(const ls_norm_backward_args &args, const place &p, unit_inputs<T, N> &in,
                             const eight<T> (&weight)[N], weight_sums<N, LAYER> &sums,
                             team_scratch<float2> *scratch, int half)
{
    const ls_norm_units &units = args.units;
    float w[8];
    float2 sum = {0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < N; k++) {
        unpack(weight[k], w);
        add_to(sum, octet_sums<T, N, LAYER>(in, k, w, sums));
    }
    sum = team_sum(sum, units.team, scratch, half);
    const float scale = 1.0f / (float)units.width;
    const float2 means = {sum.x * scale, sum.y * scale};
    T *dx = unit_of(units, p, (T *)args.dx, args.dx_stride);
#pragma unroll
    for (int k = 0; k < N; k++) {
        eight<T> out;
        forget(in.x[k]);
        forget(in.dy[k]);
        unpack(weight[k], w);
        octet_dx<T, N>(in, k, w, means, args.accumulate != 0, out);
        store_octet<T, N>(units, p, dx, k, out);
    }
}

/* Adds what the teams of the block hold, in the order of the teams, and writes the sums. `shared`
 * is (teams, width) floats. */
template <int N>
LS_DEVICE void combine_teams(const ls_norm_units &units, const float (&sums)[N][8], float *shared, float *out)
{
    const int team = (int)threadIdx.x / units.team, lane = (int)threadIdx.x % units.team;
    const int teams = (int)blockDim.x / units.team;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int first = (lane + k * units.team) * 8;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (first + i < units.width) {
                shared[team * units.width + first + i] = sums[k][i];
            }
        }
    }
    __syncthreads();
    for (int c = (int)threadIdx.x; c < units.width; c += (int)blockDim.x) {
        float sum = shared[c];
        for (int t = 1; t < teams; t++) {
            sum += shared[t * units.width + c];
        }
        out[c] = sum;
    }
}

template <class T, int N, bool LAYER> LS_DEVICE void backward(const ls_norm_backward_args &args)
{
    __shared__ team_scratch<float2> scratch;
    LS_SHARED(float, shared);
    /* The next unit is loaded while this one is computed, where there are registers for it. */
    const bool ahead = N == 2 && sizeof(T) == 2;
    /* So does the weight stay; else every unit loads it from the cache. */
    const bool hold_weight = N <= 2 || sizeof(T) == 4;
    const ls_norm_units &units = args.units;
    const uint32_t teams = blockDim.x / units.team;
    const uint32_t first = blockIdx.x * args.tile_units;
    const uint32_t end = first + args.tile_units < units.count ? first + args.tile_units : units.count;
    const place any = {0, 0, (int)threadIdx.x % units.team, true};
    eight<T> weight[N];
    weight_sums<N, LAYER> sums = {};
    unit_inputs<T, N> in, next;
    uint32_t unit = first + threadIdx.x / units.team;
    if (hold_weight) {
        load_octets(units, any, (const T *)args.weight, weight);
    }
    if (ahead) {
        load_inputs(args, place_of(units, unit, end), next);
    }
    int half = 0;
    for (uint32_t base = first; base < end; base += teams) {
        if (ahead) {
            in = next;
            load_inputs(args, place_of(units, unit + teams, end), next);
        } else {
            load_inputs(args, place_of(units, unit, end), in);
        }
        if (!hold_weight) {
            load_octets(units, any, (const T *)args.weight, weight);
        }
        unit_backward<T, N, LAYER>(args, place_of(units, unit, end), in, weight, sums, &scratch, half);
        unit += teams;
        half ^= 1;
    }
    float *part = args.parts + (int64_t)blockIdx.x * (LAYER ? 2 : 1) * units.width;
    combine_teams<N>(units, sums.dweight, shared, part);
    if constexpr (LAYER) {
        combine_teams<N>(units, sums.dbias, shared, part + units.width);
    }
}

/* `blocks` limits the registers, so that the tiles that compute/cuda/norm.c makes run in one wave:
 * 512 threads on each multiprocessor. */
#define NORM_KERNELS(T, name, octets, threads, blocks)                                                       \
    LS_KERNEL __launch_bounds__(threads, blocks) norm_forward_##name##_##octets(ls_norm_forward_args args)   \
    {                                                                                                        \
        forward<T, octets>(args);                                                                            \
    }                                                                                                        \
    LS_KERNEL_EXPORT(norm_forward_##name##_##octets)                                                         \
    LS_KERNEL __launch_bounds__(threads, blocks)                                                             \
        norm_backward_layer_##name##_##octets(ls_norm_backward_args args)                                    \
    {                                                                                                        \
        backward<T, octets, true>(args);                                                                     \
    }                                                                                                        \
    LS_KERNEL_EXPORT(norm_backward_layer_##name##_##octets)                                                  \
    LS_KERNEL __launch_bounds__(threads, blocks)                                                             \
        norm_backward_rms_##name##_##octets(ls_norm_backward_args args)                                      \
    {                                                                                                        \
        backward<T, octets, false>(args);                                                                    \
    }                                                                                                        \
    LS_KERNEL_EXPORT(norm_backward_rms_##name##_##octets)

NORM_KERNELS(bf16, bf16, 2, LS_NORM_TEAM_MAX, 1)
NORM_KERNELS(bf16, bf16, 3, LS_NORM_BLOCK_THREADS, 4)
NORM_KERNELS(float, f32, 2, LS_NORM_TEAM_MAX, 1)
NORM_KERNELS(float, f32, 3, LS_NORM_BLOCK_THREADS, 2)
