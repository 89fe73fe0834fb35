// SPDX-License-Identifier: Apache-2.0
/*
 * exp, log and the logistic function on vectors of 16 floats. They do not use the C library, so the
 * bits do not depend on it, and they have no branches. tests/compute/cpu/test_math.c checks them
 * against float64 over their whole range.
 *
 *   vf_exp      within 1.2 ulp for -87.3 <= x <= 88.37; 0 below -87.7; infinity above 88.38, though
 *               the true limit is 88.72; denormal results, between -87.7 and -87.3, are rounded as
 *               the processor does; exp(0) is exactly 1; NaN gives NaN
 *   vf_log      within 1.2 ulp for normal x > 0; NaN for infinity and NaN; undefined for zero,
 *               subnormal and negative x, which no caller passes
 *   vf_sigmoid  1 / (1 + exp(-x)), relative error below 4e-7 for |x| <= 80; 0 and 1 beyond; no
 *               overflow
 *
 * The polynomials are minimax fits by iterated reweighted least squares (Lawson), weighted for
 * relative error.
 */
#ifndef LS_COMPUTE_CPU_SIMD_SIMD_MATH_H
#define LS_COMPUTE_CPU_SIMD_SIMD_MATH_H

#include "compute/cpu/simd/simd.h"

/*
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r).
 * Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits. So (bits + 127) << 23 is
 * 2^n, with 0 for n = -127 and infinity for n = 128.
 */
LS_SIMD vf vf_exp(vf x)
{
    const vf magic = vf_set(12582912.0f);
    /* The constant comes first so that NaN passes through. */
    x = vf_min(vf_set(88.8f), vf_max(vf_set(-88.0f), x));
    const vf shifted = vf_fma(x, vf_set(1.44269504f), magic);
    const vf n = vf_sub(shifted, magic);
    vf r = vf_fnma(n, vf_set(0.693359375f), x);
    r = vf_fnma(n, vf_set(-2.12194440e-4f), r);
    vf q = vf_set(1.381459879e-03f);
    q = vf_fma(q, r, vf_set(8.368716575e-03f));
    q = vf_fma(q, r, vf_set(4.166838899e-02f));
    q = vf_fma(q, r, vf_set(1.666652113e-01f));
    q = vf_fma(q, r, vf_set(4.999999404e-01f));
    const vf p = vf_add(vf_fma(vf_mul(r, r), q, r), vf_set(1.0f));
    const vf power = vf_from_bits(vi_shift_left_23(vi_add(vf_bits(shifted), vi_set(127))));
    return vf_mul(p, power);
}

/* log(x) = e ln 2 + log(1 + f), 1 + f in [sqrt 1/2, sqrt 2); log(1 + f) = f - f^2 / 2 + f^3
 * q(f). */
LS_SIMD vf vf_log(vf x)
{
    const vi bits = vf_bits(x);
    const vi e = vi_shift_right_23(vi_sub(bits, vi_set(0x3f3504f3)));
    const vf f = vf_sub(vf_from_bits(vi_sub(bits, vi_shift_left_23(e))), vf_set(1.0f));
    const vf n = vi_to_vf(e);
    vf q = vf_set(-7.634496689e-02f);
    q = vf_fma(q, f, vf_set(1.276157647e-01f));
    q = vf_fma(q, f, vf_set(-1.316018254e-01f));
    q = vf_fma(q, f, vf_set(1.420175731e-01f));
    q = vf_fma(q, f, vf_set(-1.662335694e-01f));
    q = vf_fma(q, f, vf_set(2.000122666e-01f));
    q = vf_fma(q, f, vf_set(-2.500081956e-01f));
    q = vf_fma(q, f, vf_set(3.333333135e-01f));
    const vf f2 = vf_mul(f, f);
    vf y = vf_mul(vf_mul(q, f), f2);
    y = vf_fma(n, vf_set(-2.12194440e-4f), y);
    y = vf_fnma(vf_set(0.5f), f2, y);
    y = vf_fma(n, vf_set(0.693359375f), vf_add(f, y));
    /* The bits of a NaN were used like those of a number. x - x makes the result NaN again. */
    return vf_add(y, vf_sub(x, x));
}

LS_SIMD vf vf_sigmoid(vf x)
{
    const vf one = vf_set(1.0f);
    return vf_div(one, vf_add(one, vf_exp(vf_sub(vf_zero(), x))));
}

#endif
