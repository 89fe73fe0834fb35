// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/cross_entropy.h"

#include "compute/cpu/simd/simd_math.h"

extern const ls_cross_entropy_kernels LS_ISA_NAME(ls_cross_entropy_kernels);

/* Elements summed before the sum is added to the row's: keeps the rounding error of 256k terms near
 * that of 1k. */
enum { SUM_BLOCK = 1024 };

static float top_of(const float *x, int64_t n)
{
    vf top[4];
    top[0] = top[1] = top[2] = top[3] = vf_set(x[0]);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        top[0] = vf_max(vf_load(x + i), top[0]);
        top[1] = vf_max(vf_load(x + i + 16), top[1]);
        top[2] = vf_max(vf_load(x + i + 32), top[2]);
        top[3] = vf_max(vf_load(x + i + 48), top[3]);
    }
    for (; i < n; i++) {
        top[0] = vf_max(vf_set(x[i]), top[0]);
    }
    return vf_top(vf_max(vf_max(top[0], top[1]), vf_max(top[2], top[3])));
}

/* Sum of exp(x - top) over a block, two accumulators; keep: the terms replace x. */
LS_SIMD vf block_exp(float *x, int64_t n, vf top, bool keep)
{
    vf s0 = vf_zero(), s1 = vf_zero();
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const vf e0 = vf_exp(vf_sub(vf_load(x + i), top));
        const vf e1 = vf_exp(vf_sub(vf_load(x + i + 16), top));
        if (keep) {
            vf_store(x + i, e0);
            vf_store(x + i + 16, e1);
        }
        s0 = vf_add(s0, e0);
        s1 = vf_add(s1, e1);
    }
    for (; i < n; i += LS_LANES) {
        const int64_t left = n - i < LS_LANES ? n - i : LS_LANES;
        vf e = vf_exp(vf_sub(vf_load_part(x + i, left), top));
        e = vf_select(vm_first(left), e, vf_zero());
        if (keep) {
            vf_store_part(x + i, e, left);
        }
        s0 = vf_add(s0, e);
    }
    return vf_add(s0, s1);
}

static float sum_exp(float *x, int64_t n, float top, bool keep)
{
    vf sums = vf_zero();
    for (int64_t i = 0; i < n; i += SUM_BLOCK) {
        const int64_t count = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;
        sums = vf_add(sums, keep ? block_exp(x + i, count, vf_set(top), true)
                                 : block_exp(x + i, count, vf_set(top), false));
    }
    return vf_sum(sums);
}

static float loss(float sum, float top, float target_logit)
{
    return vf_lane0(vf_log(vf_set(sum))) + (top - target_logit);
}

static void scale(float *x, int64_t n, float factor)
{
    const vf f = vf_set(factor);
    for (int64_t i = 0; i < n; i += LS_LANES) {
        const int64_t left = n - i;
        vf_store_tail(x + i, vf_mul(vf_load_tail(x + i, left), f), left);
    }
}

const ls_cross_entropy_kernels LS_ISA_NAME(ls_cross_entropy_kernels) = {
    .top = top_of,
    .sum_exp = sum_exp,
    .loss = loss,
    .scale = scale,
};
