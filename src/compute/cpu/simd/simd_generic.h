// SPDX-License-Identifier: Apache-2.0
/* compute/cpu/simd/simd.h in plain C, for processors without the others and as their check. Where
 * the processor has no fused multiply-add, fmaf is a slow library call: right, not fast. */
#ifndef LS_COMPUTE_CPU_SIMD_SIMD_GENERIC_H
#define LS_COMPUTE_CPU_SIMD_SIMD_GENERIC_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct vf {
    float lane[16];
} vf;
typedef struct vi {
    int32_t lane[16];
} vi;
typedef struct vd {
    double lane[8];
} vd;
typedef struct vm {
    bool lane[16];
} vm;

#define LS_SIMD_EACH(count, expression)                                                                      \
    for (int i = 0; i < (count); i++) {                                                                      \
        r.lane[i] = (expression);                                                                            \
    }                                                                                                        \
    return r

LS_SIMD vf vf_set(float x)
{
    vf r;
    LS_SIMD_EACH(16, x);
}

LS_SIMD vf vf_zero(void)
{
    return vf_set(0.0f);
}

LS_SIMD vf vf_load(const float *p)
{
    vf r;
    LS_SIMD_EACH(16, p[i]);
}

LS_SIMD void vf_store(float *p, vf a)
{
    for (int i = 0; i < 16; i++) {
        p[i] = a.lane[i];
    }
}

LS_SIMD void vf_stream(float *p, vf a)
{
    vf_store(p, a);
}

LS_SIMD void vf_fence(void)
{
}

LS_SIMD vm vm_first(int64_t count)
{
    vm r;
    LS_SIMD_EACH(16, i < count);
}

LS_SIMD vf vf_load_part(const float *p, int64_t count)
{
    vf r;
    LS_SIMD_EACH(16, i < count ? p[i] : 0.0f);
}

LS_SIMD void vf_store_part(float *p, vf a, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        p[i] = a.lane[i];
    }
}

LS_SIMD vf vf_add(vf a, vf b)
{
    vf r;
    LS_SIMD_EACH(16, a.lane[i] + b.lane[i]);
}

LS_SIMD vf vf_sub(vf a, vf b)
{
    vf r;
    LS_SIMD_EACH(16, a.lane[i] - b.lane[i]);
}

LS_SIMD vf vf_mul(vf a, vf b)
{
    vf r;
    LS_SIMD_EACH(16, a.lane[i] * b.lane[i]);
}

LS_SIMD vf vf_div(vf a, vf b)
{
    vf r;
    LS_SIMD_EACH(16, a.lane[i] / b.lane[i]);
}

LS_SIMD vf vf_sqrt(vf a)
{
    vf r;
    LS_SIMD_EACH(16, sqrtf(a.lane[i]));
}

LS_SIMD vf vf_fma(vf a, vf b, vf c)
{
    vf r;
    LS_SIMD_EACH(16, fmaf(a.lane[i], b.lane[i], c.lane[i]));
}

LS_SIMD vf vf_fnma(vf a, vf b, vf c)
{
    vf r;
    LS_SIMD_EACH(16, fmaf(-a.lane[i], b.lane[i], c.lane[i]));
}

LS_SIMD vf vf_max(vf a, vf b)
{
    vf r;
    LS_SIMD_EACH(16, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}

LS_SIMD vf vf_min(vf a, vf b)
{
    vf r;
    LS_SIMD_EACH(16, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}

LS_SIMD vm vf_lt(vf a, vf b)
{
    vm r;
    LS_SIMD_EACH(16, a.lane[i] < b.lane[i]);
}

LS_SIMD vm vf_le(vf a, vf b)
{
    vm r;
    LS_SIMD_EACH(16, a.lane[i] <= b.lane[i]);
}

LS_SIMD vm vm_and(vm a, vm b)
{
    vm r;
    LS_SIMD_EACH(16, a.lane[i] && b.lane[i]);
}

LS_SIMD vf vf_select(vm m, vf yes, vf no)
{
    vf r;
    LS_SIMD_EACH(16, m.lane[i] ? yes.lane[i] : no.lane[i]);
}

LS_SIMD float vf_lane0(vf a)
{
    return a.lane[0];
}

LS_SIMD float vf_sum(vf a)
{
    for (int width = 8; width >= 1; width /= 2) {
        for (int i = 0; i < width; i++) {
            a.lane[i] = a.lane[i] + a.lane[i + width];
        }
    }
    return a.lane[0];
}

LS_SIMD float vf_top(vf a)
{
    for (int width = 8; width >= 1; width /= 2) {
        for (int i = 0; i < width; i++) {
            a.lane[i] = a.lane[i] > a.lane[i + width] ? a.lane[i] : a.lane[i + width];
        }
    }
    return a.lane[0];
}

LS_SIMD vi vi_set(int32_t x)
{
    vi r;
    LS_SIMD_EACH(16, x);
}

LS_SIMD vi vi_add(vi a, vi b)
{
    vi r;
    LS_SIMD_EACH(16, (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]));
}

LS_SIMD vi vi_sub(vi a, vi b)
{
    vi r;
    LS_SIMD_EACH(16, (int32_t)((uint32_t)a.lane[i] - (uint32_t)b.lane[i]));
}

LS_SIMD vi vi_shift_left_23(vi a)
{
    vi r;
    LS_SIMD_EACH(16, (int32_t)((uint32_t)a.lane[i] << 23));
}

LS_SIMD vi vi_shift_right_23(vi a)
{
    vi r;
    LS_SIMD_EACH(16, a.lane[i] >> 23);
}

LS_SIMD vi vi_shift_right_4(vi a)
{
    vi r;
    LS_SIMD_EACH(16, a.lane[i] >> 4);
}

LS_SIMD vi vi_shift_left_16(vi a)
{
    vi r;
    LS_SIMD_EACH(16, (int32_t)((uint32_t)a.lane[i] << 16));
}

LS_SIMD vi vi_load_u8(const uint8_t *p)
{
    vi r;
    LS_SIMD_EACH(16, p[i]);
}

LS_SIMD vi vi_load_s8(const uint8_t *p)
{
    vi r;
    LS_SIMD_EACH(16, (int8_t)p[i]);
}

LS_SIMD vi vi_load_u16(const uint16_t *p)
{
    vi r;
    LS_SIMD_EACH(16, p[i]);
}

LS_SIMD vf vf_lookup(vf table, vi index)
{
    vf r;
    LS_SIMD_EACH(16, table.lane[index.lane[i] & 15]);
}

LS_SIMD vf vi_to_vf(vi a)
{
    vf r;
    LS_SIMD_EACH(16, (float)a.lane[i]);
}

LS_SIMD vi vf_bits(vf a)
{
    vi r;
    memcpy(&r, &a, sizeof r);
    return r;
}

LS_SIMD vf vf_from_bits(vi a)
{
    vf r;
    memcpy(&r, &a, sizeof r);
    return r;
}

LS_SIMD vd vd_zero(void)
{
    vd r;
    LS_SIMD_EACH(8, 0.0);
}

LS_SIMD vd vd_low(vf a)
{
    vd r;
    LS_SIMD_EACH(8, a.lane[i]);
}

LS_SIMD vd vd_high(vf a)
{
    vd r;
    LS_SIMD_EACH(8, a.lane[i + 8]);
}

LS_SIMD vd vd_add(vd a, vd b)
{
    vd r;
    LS_SIMD_EACH(8, a.lane[i] + b.lane[i]);
}

LS_SIMD vd vd_fma(vd a, vd b, vd c)
{
    vd r;
    LS_SIMD_EACH(8, fma(a.lane[i], b.lane[i], c.lane[i]));
}

LS_SIMD double vd_sum(vd a)
{
    for (int width = 4; width >= 1; width /= 2) {
        for (int i = 0; i < width; i++) {
            a.lane[i] = a.lane[i] + a.lane[i + width];
        }
    }
    return a.lane[0];
}

#endif
