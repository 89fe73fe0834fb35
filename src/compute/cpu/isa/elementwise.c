// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/elementwise.h"

#include "compute/cpu/simd/simd.h"

extern const ls_elementwise_kernels LS_ISA_NAME(ls_elementwise_kernels);

static void add(const float *a, const float *b, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const int64_t left = count - i;
        vf_store_tail(out + i, vf_add(vf_load_tail(a + i, left), vf_load_tail(b + i, left)), left);
    }
}

static void fill(float *out, float value, int64_t count)
{
    const vf v = vf_set(value);
    for (int64_t i = 0; i < count; i += LS_LANES) {
        vf_store_tail(out + i, v, count - i);
    }
}

static double square_sum(const float *x, int64_t count)
{
    vd low = vd_zero(), high = vd_zero();
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const vf v = vf_load_tail(x + i, count - i);
        low = vd_fma(vd_low(v), vd_low(v), low);
        high = vd_fma(vd_high(v), vd_high(v), high);
    }
    return vd_sum(vd_add(low, high));
}

static int64_t find_nonfinite(const float *x, int64_t count)
{
    enum { BLOCK = 1024 };
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int64_t end = begin + BLOCK < count ? begin + BLOCK : count;
        /* 0 * v is NaN exactly when v is not finite; NaN stays. */
        vf bad = vf_zero();
        for (int64_t i = begin; i < end; i += LS_LANES) {
            bad = vf_fma(vf_load_tail(x + i, end - i), vf_zero(), bad);
        }
        if (vf_sum(bad) == 0.0f) {
            continue;
        }
        for (int64_t i = begin; i < end; i++) {
            if (!(x[i] - x[i] == 0.0f)) {
                return i;
            }
        }
    }
    return -1;
}

const ls_elementwise_kernels LS_ISA_NAME(ls_elementwise_kernels) = {
    .add = add,
    .fill = fill,
    .square_sum = square_sum,
    .find_nonfinite = find_nonfinite,
};
