// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/cross_entropy.h"

#include "compute/cpu/simd/simd_math.h"

extern const ls_cross_entropy_kernels LS_ISA_NAME(ls_cross_entropy_kernels);

/* Elements summed before the sum is added to the row's: keeps the rounding error of 256k terms near
 * that of 1k. */
enum { SUM_BLOCK = 1024 };

static float row_top(const float *x, int64_t n)
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

static float row(float *logits, int64_t vocab, int32_t target, bool with_gradient)
{
    const float top = row_top(logits, vocab), target_logit = logits[target];
    vf sums = vf_zero();
    for (int64_t i = 0; i < vocab; i += SUM_BLOCK) {
        const int64_t n = vocab - i < SUM_BLOCK ? vocab - i : SUM_BLOCK;
        sums = vf_add(sums, with_gradient ? block_exp(logits + i, n, vf_set(top), true)
                                          : block_exp(logits + i, n, vf_set(top), false));
    }
    const float sum = vf_sum(sums);
    const float loss = vf_lane0(vf_log(vf_set(sum))) + (top - target_logit);
    if (with_gradient) {
        const vf inverse = vf_set(1.0f / sum);
        for (int64_t i = 0; i < vocab; i += LS_LANES) {
            const int64_t left = vocab - i;
            vf_store_tail(logits + i, vf_mul(vf_load_tail(logits + i, left), inverse), left);
        }
        logits[target] -= 1.0f;
    }
    return loss;
}

const ls_cross_entropy_kernels LS_ISA_NAME(ls_cross_entropy_kernels) = {.row = row};
