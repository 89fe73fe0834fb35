// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/adamw.h"

#include "compute/cuda/device/runs.h"

enum { THREADS = LS_ADAMW_THREADS, RUNS = LS_ADAMW_RUNS };

LS_DEVICE int64_t run_begin(int k)
{
    return ((int64_t)blockIdx.x * (THREADS * RUNS) + k * THREADS + threadIdx.x) * 4;
}

/* The parameters of a run, in the form that the kernel is for. */
struct values_form {
    LS_DEVICE void load(const ls_adamw_args &args, int64_t at, float (&p)[4])
    {
        load_part(args.values + at, args.count - at, args.aligned, p);
    }

    LS_DEVICE void store(const ls_adamw_args &args, int64_t at, const float (&p)[4])
    {
        store_part(args.values + at, args.count - at, args.aligned, p);
    }
};

/* bits = (weight << 16) + rest, where weight = (bits + 0x8000) >> 16. */
LS_DEVICE float join(uint32_t weight, uint32_t rest)
{
    return __uint_as_float((weight << 16) + (uint32_t)(int32_t)(int16_t)(uint16_t)rest);
}

LS_DEVICE uint32_t weight_of(float value)
{
    return (__float_as_uint(value) + 0x8000u) >> 16;
}

LS_DEVICE uint32_t rest_of(float value)
{
    return __float_as_uint(value) & 0xffffu;
}

struct split_form {
    LS_DEVICE void load(const ls_adamw_args &args, int64_t at, float (&p)[4])
    {
        if (args.aligned && at + 4 <= args.count) {
            const uint2 weights = *(const uint2 *)(args.weights + at);
            const uint2 rests = *(const uint2 *)(args.rests + at);
            p[0] = join(weights.x & 0xffffu, rests.x);
            p[1] = join(weights.x >> 16, rests.x >> 16);
            p[2] = join(weights.y & 0xffffu, rests.y);
            p[3] = join(weights.y >> 16, rests.y >> 16);
            return;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool inside = at + j < args.count;
            p[j] = inside ? join(args.weights[at + j], (uint16_t)args.rests[at + j]) : 0.0f;
        }
    }

    LS_DEVICE void store(const ls_adamw_args &args, int64_t at, const float (&p)[4])
    {
        if (args.aligned && at + 4 <= args.count) {
            *(uint2 *)(args.weights + at) =
                make_uint2(weight_of(p[0]) | weight_of(p[1]) << 16, weight_of(p[2]) | weight_of(p[3]) << 16);
            *(uint2 *)(args.rests + at) =
                make_uint2(rest_of(p[0]) | rest_of(p[1]) << 16, rest_of(p[2]) | rest_of(p[3]) << 16);
            return;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (at + j < args.count) {
                args.weights[at + j] = (uint16_t)weight_of(p[j]);
                args.rests[at + j] = (int16_t)(uint16_t)rest_of(p[j]);
            }
        }
    }
};

/*
 * m' = beta1 m + (1 - beta1) g,  v' = beta2 v + (1 - beta2) g^2,
 * p' = p (1 - lr wd) - step_size m' / (sqrt(v') inverse_root_v + eps),
 * rounded where compute/cpu/isa/adamw.c rounds, so that both devices give the same bits.
 */
LS_DEVICE void update(const ls_adamw_args &args, float gradient, float &p, float &m, float &v)
{
    const float g = __fmul_rn(gradient, args.gradient_scale);
    m = __fmaf_rn(args.beta1, m, __fmul_rn(args.one_minus_beta1, g));
    v = __fmaf_rn(args.beta2, v, __fmul_rn(args.one_minus_beta2, __fmul_rn(g, g)));
    const float divisor = __fmaf_rn(__fsqrt_rn(v), args.inverse_root_v, args.eps);
    const float change = __fdiv_rn(__fmul_rn(args.step_size, m), divisor);
    p = __fsub_rn(__fmul_rn(p, args.one_minus_decay), change);
}

template <class Form> LS_DEVICE void adamw(const ls_adamw_args &args)
{
    float p[RUNS][4], g[RUNS][4], m[RUNS][4], v[RUNS][4];
#pragma unroll
    for (int k = 0; k < RUNS; k++) {
        const int64_t at = run_begin(k), left = args.count - at;
        load_part(args.gradients + at, left, args.aligned, g[k]);
        load_part(args.m + at, left, args.aligned, m[k]);
        load_part(args.v + at, left, args.aligned, v[k]);
        Form::load(args, at, p[k]);
    }
#pragma unroll
    for (int k = 0; k < RUNS; k++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            update(args, g[k][j], p[k][j], m[k][j], v[k][j]);
        }
        const int64_t at = run_begin(k), left = args.count - at;
        store_part(args.m + at, left, args.aligned, m[k]);
        store_part(args.v + at, left, args.aligned, v[k]);
        Form::store(args, at, p[k]);
    }
}

LS_KERNEL adamw_values(ls_adamw_args args)
{
    adamw<values_form>(args);
}
LS_KERNEL_EXPORT(adamw_values)

LS_KERNEL adamw_split(ls_adamw_args args)
{
    adamw<split_form>(args);
}
LS_KERNEL_EXPORT(adamw_split)
