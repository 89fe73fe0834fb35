// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/experts.h"

#include "compute/cpu/simd/simd_math.h"

extern const ls_experts_kernels LS_ISA_NAME(ls_experts_kernels);

static void softmax(float *x, int64_t count)
{
    float top = x[0];
    for (int64_t i = 1; i < count; i++) {
        top = x[i] > top ? x[i] : top;
    }
    vf sums = vf_zero();
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const int64_t left = count - i < LS_LANES ? count - i : LS_LANES;
        const vf e = vf_exp(vf_sub(vf_load_part(x + i, left), vf_set(top)));
        vf_store_part(x + i, e, left);
        sums = vf_add(sums, vf_select(vm_first(left), e, vf_zero()));
    }
    const vf sum = vf_set(vf_sum(sums));
    for (int64_t i = 0; i < count; i += LS_LANES) {
        vf_store_tail(x + i, vf_div(vf_load_tail(x + i, count - i), sum), count - i);
    }
}

static void scaled(const float *x, float factor, bool add, float *out, int64_t count)
{
    const vf f = vf_set(factor);
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const int64_t left = count - i;
        const vf v = vf_load_tail(x + i, left);
        vf_store_tail(out + i, add ? vf_fma(f, v, vf_load_tail(out + i, left)) : vf_mul(f, v), left);
    }
}

static float dot(const float *a, const float *b, int64_t count)
{
    vf sums = vf_zero();
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const int64_t left = count - i;
        sums = vf_fma(vf_load_tail(a + i, left), vf_load_tail(b + i, left), sums);
    }
    return vf_sum(sums);
}

const ls_experts_kernels LS_ISA_NAME(ls_experts_kernels) = {
    .softmax = softmax,
    .scaled = scaled,
    .dot = dot,
};
