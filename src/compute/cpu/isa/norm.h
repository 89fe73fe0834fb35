// SPDX-License-Identifier: Apache-2.0
/* One row of layer or RMS norm. See compute/kernels/norm.h. */
#ifndef LS_COMPUTE_CPU_ISA_NORM_H
#define LS_COMPUTE_CPU_ISA_NORM_H

#include <stdbool.h>
#include <stdint.h>

/* What the rows of one call share. */
typedef struct ls_norm_row {
    bool is_layer; /* else RMS: no mean, no bias */
    float eps;
    int64_t groups, width;      /* a row is groups * width floats */
    const float *weight, *bias; /* (width); bias may be NULL */
} ls_norm_row;

typedef struct ls_norm_kernels {
    /* y = norm(a + b), sum = a + b; b and sum NULL: y = norm(a). mean and rstd: one per group; mean
     * may be NULL. */
    void (*forward)(const ls_norm_row *norm, const float *a, const float *b, float *sum, float *y,
                    float *mean, float *rstd);
    /* dx = or += gradient; dweight and dbias (width) are added to. mean NULL for RMS. */
    void (*backward)(const ls_norm_row *norm, const float *x, const float *dy, const float *mean,
                     const float *rstd, float *dx, bool accumulate, float *dweight, float *dbias);
    /* out[c] = (accumulate ? out[c] : 0) + part[0][c] + part[1][c] + ..., parts `stride` floats
     * apart. */
    void (*combine)(const float *parts, int64_t count, int64_t stride, int64_t width, float *out,
                    bool accumulate);
} ls_norm_kernels;

#endif
