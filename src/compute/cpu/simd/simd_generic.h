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

/* A function that computes each of its lanes, number i, by one expression. */
#define LS_SIMD_EACH(type, name, lanes, arguments, expression)                                               \
    LS_SIMD type name arguments                                                                              \
    {                                                                                                        \
        type r;                                                                                              \
        for (int i = 0; i < (lanes); i++) {                                                                  \
            r.lane[i] = (expression);                                                                        \
        }                                                                                                    \
        return r;                                                                                            \
    }

LS_SIMD_EACH(vf, vf_set, 16, (float x), x)
LS_SIMD_OP(vf, vf_zero, (void), vf_set(0.0f))
LS_SIMD_EACH(vf, vf_load, 16, (const float *p), p[i])

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

LS_SIMD_EACH(vm, vm_first, 16, (int64_t count), i < count)
LS_SIMD_EACH(vf, vf_load_part, 16, (const float *p, int64_t count), i < count ? p[i] : 0.0f)

LS_SIMD void vf_store_part(float *p, vf a, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        p[i] = a.lane[i];
    }
}

LS_SIMD_EACH(vf, vf_add, 16, (vf a, vf b), a.lane[i] + b.lane[i])
LS_SIMD_EACH(vf, vf_sub, 16, (vf a, vf b), a.lane[i] - b.lane[i])
LS_SIMD_EACH(vf, vf_mul, 16, (vf a, vf b), a.lane[i] * b.lane[i])
LS_SIMD_EACH(vf, vf_div, 16, (vf a, vf b), a.lane[i] / b.lane[i])
LS_SIMD_EACH(vf, vf_sqrt, 16, (vf a), sqrtf(a.lane[i]))
LS_SIMD_EACH(vf, vf_fma, 16, (vf a, vf b, vf c), fmaf(a.lane[i], b.lane[i], c.lane[i]))
LS_SIMD_EACH(vf, vf_fnma, 16, (vf a, vf b, vf c), fmaf(-a.lane[i], b.lane[i], c.lane[i]))
LS_SIMD_EACH(vf, vf_max, 16, (vf a, vf b), a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
LS_SIMD_EACH(vf, vf_min, 16, (vf a, vf b), a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i])
LS_SIMD_EACH(vm, vf_lt, 16, (vf a, vf b), a.lane[i] < b.lane[i])
LS_SIMD_EACH(vm, vf_le, 16, (vf a, vf b), a.lane[i] <= b.lane[i])
LS_SIMD_EACH(vm, vm_and, 16, (vm a, vm b), a.lane[i] && b.lane[i])
LS_SIMD_EACH(vf, vf_select, 16, (vm m, vf yes, vf no), m.lane[i] ? yes.lane[i] : no.lane[i])
LS_SIMD_OP(float, vf_lane0, (vf a), a.lane[0])

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

LS_SIMD_EACH(vi, vi_set, 16, (int32_t x), x)
LS_SIMD_EACH(vi, vi_add, 16, (vi a, vi b), (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]))
LS_SIMD_EACH(vi, vi_sub, 16, (vi a, vi b), (int32_t)((uint32_t)a.lane[i] - (uint32_t)b.lane[i]))
LS_SIMD_EACH(vi, vi_shift_left_23, 16, (vi a), (int32_t)((uint32_t)a.lane[i] << 23))
LS_SIMD_EACH(vi, vi_shift_right_23, 16, (vi a), a.lane[i] >> 23)
LS_SIMD_EACH(vi, vi_shift_right_4, 16, (vi a), a.lane[i] >> 4)
LS_SIMD_EACH(vi, vi_shift_left_16, 16, (vi a), (int32_t)((uint32_t)a.lane[i] << 16))
LS_SIMD_EACH(vi, vi_load_u8, 16, (const uint8_t *p), p[i])
LS_SIMD_EACH(vi, vi_load_s8, 16, (const uint8_t *p), (int8_t)p[i])
LS_SIMD_EACH(vi, vi_load_u16, 16, (const uint16_t *p), p[i])
LS_SIMD_EACH(vf, vf_lookup, 16, (vf table, vi index), table.lane[index.lane[i] & 15])
LS_SIMD_EACH(vf, vi_to_vf, 16, (vi a), (float)a.lane[i])

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

LS_SIMD_EACH(vd, vd_zero, 8, (void), 0.0)
LS_SIMD_EACH(vd, vd_low, 8, (vf a), a.lane[i])
LS_SIMD_EACH(vd, vd_high, 8, (vf a), a.lane[i + 8])
LS_SIMD_EACH(vd, vd_add, 8, (vd a, vd b), a.lane[i] + b.lane[i])
LS_SIMD_EACH(vd, vd_fma, 8, (vd a, vd b, vd c), fma(a.lane[i], b.lane[i], c.lane[i]))

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
