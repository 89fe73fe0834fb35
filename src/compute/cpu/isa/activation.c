// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/activation.h"

#include "compute/cpu/simd/simd_math.h"

extern const ls_activation_kernels LS_ISA_NAME(ls_activation_kernels);

/* 2 sqrt(2 / pi) and 0.044715 times it: z = 2 u, u the argument of tanh. Since 1 + tanh(u) = 2
 * sigmoid(2 u), gelu(x) = x sigmoid(z), which loses nothing where tanh(u) is close to -1. */
static const float gelu_c1 = 1.5957691216f, gelu_c3 = 0.0713548163f;

LS_SIMD vf gelu_gate(vf x)
{
    const vf z = vf_mul(x, vf_fma(vf_mul(x, x), vf_set(gelu_c3), vf_set(gelu_c1)));
    return vf_sigmoid(z);
}

static void gelu(const float *x, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const vf v = vf_load_tail(x + i, count - i);
        vf_store_tail(y + i, vf_mul(v, gelu_gate(v)), count - i);
    }
}

/* gelu' = s + x s (1 - s) z',  z' = c1 + 3 c3 x^2. */
static void gelu_backward(const float *x, const float *dy, float *dx, int64_t count)
{
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const vf v = vf_load_tail(x + i, count - i), s = gelu_gate(v);
        const vf slope = vf_fma(vf_mul(v, v), vf_set(3.0f * gelu_c3), vf_set(gelu_c1));
        const vf bend = vf_mul(vf_mul(v, s), vf_mul(vf_sub(vf_set(1.0f), s), slope));
        vf_store_tail(dx + i, vf_mul(vf_load_tail(dy + i, count - i), vf_add(s, bend)), count - i);
    }
}

static void swiglu(const float *gate, const float *up, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const vf g = vf_load_tail(gate + i, count - i);
        const vf silu = vf_mul(g, vf_sigmoid(g));
        vf_store_tail(y + i, vf_mul(silu, vf_load_tail(up + i, count - i)), count - i);
    }
}

/* silu' = s (1 + g (1 - s)). */
static void swiglu_backward(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                            int64_t count)
{
    const vf one = vf_set(1.0f);
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const int64_t left = count - i;
        const vf g = vf_load_tail(gate + i, left), u = vf_load_tail(up + i, left);
        const vf d = vf_load_tail(dy + i, left), s = vf_sigmoid(g);
        const vf slope = vf_mul(s, vf_fma(g, vf_sub(one, s), one));
        vf_store_tail(dgate + i, vf_mul(vf_mul(d, u), slope), left);
        vf_store_tail(dup + i, vf_mul(d, vf_mul(g, s)), left);
    }
}

const ls_activation_kernels LS_ISA_NAME(ls_activation_kernels) = {
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
};
