// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/rotary.h"

#include "compute/cpu/simd/simd.h"

extern const ls_rotary_kernels LS_ISA_NAME(ls_rotary_kernels);

static void rotate(float *x, int64_t heads, int64_t half, const float *cosine, const float *sine,
                   float direction)
{
    for (int64_t i = 0; i < half; i += LS_LANES) {
        const int64_t left = half - i;
        const vf c = vf_load_tail(cosine + i, left);
        const vf s = vf_mul(vf_load_tail(sine + i, left), vf_set(direction));
        for (int64_t h = 0; h < heads; h++) {
            float *first = x + h * 2 * half + i, *second = first + half;
            const vf a = vf_load_tail(first, left), b = vf_load_tail(second, left);
            vf_store_tail(first, vf_fnma(b, s, vf_mul(a, c)), left);
            vf_store_tail(second, vf_fma(a, s, vf_mul(b, c)), left);
        }
    }
}

const ls_rotary_kernels LS_ISA_NAME(ls_rotary_kernels) = {.rotate = rotate};
