// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/norm.h"

#include "compute/cpu/simd/simd.h"

extern const ls_norm_kernels LS_ISA_NAME(ls_norm_kernels);

enum { STRIDE4 = 4 * LS_LANES };

LS_SIMD float sum4(vf s0, vf s1, vf s2, vf s3)
{
    return vf_sum(vf_add(vf_add(s0, s1), vf_add(s2, s3)));
}

/* Sum of x: vector number i goes to accumulator i % 4. */
LS_SIMD float row_sum(const float *x, int64_t n)
{
    vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + STRIDE4 <= n; i += STRIDE4) {
        s[0] = vf_add(s[0], vf_load(x + i));
        s[1] = vf_add(s[1], vf_load(x + i + 16));
        s[2] = vf_add(s[2], vf_load(x + i + 32));
        s[3] = vf_add(s[3], vf_load(x + i + 48));
    }
    for (int k = 0; i < n; i += LS_LANES, k++) {
        s[k] = vf_add(s[k], vf_load_tail(x + i, n - i));
    }
    return sum4(s[0], s[1], s[2], s[3]);
}

LS_SIMD vf square_about(vf x, vf mean, vf sum)
{
    const vf d = vf_sub(x, mean);
    return vf_fma(d, d, sum);
}

/* Sum of (x - mean)^2. Lanes past the end are loaded as the mean, so that they add nothing. */
LS_SIMD float row_squares(const float *x, float mean_of_row, int64_t n)
{
    const vf mean = vf_set(mean_of_row);
    vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + STRIDE4 <= n; i += STRIDE4) {
        s[0] = square_about(vf_load(x + i), mean, s[0]);
        s[1] = square_about(vf_load(x + i + 16), mean, s[1]);
        s[2] = square_about(vf_load(x + i + 32), mean, s[2]);
        s[3] = square_about(vf_load(x + i + 48), mean, s[3]);
    }
    for (int k = 0; i < n; i += LS_LANES, k++) {
        const int64_t left = n - i;
        const vf v =
            left >= LS_LANES ? vf_load(x + i) : vf_select(vm_first(left), vf_load_part(x + i, left), mean);
        s[k] = square_about(v, mean, s[k]);
    }
    return sum4(s[0], s[1], s[2], s[3]);
}

static void row_add(const float *a, const float *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += LS_LANES) {
        const int64_t left = n - i;
        vf_store_tail(out + i, vf_add(vf_load_tail(a + i, left), vf_load_tail(b + i, left)), left);
    }
}

LS_SIMD float reciprocal_root(float x)
{
    return vf_lane0(vf_div(vf_set(1.0f), vf_sqrt(vf_set(x))));
}

/* y = (x - mean) rstd weight + bias; for RMS mean is 0 and subtracting it is exact. */
static void normalise(const ls_norm_row *norm, const float *x, float mean, float rstd, float *y)
{
    const vf m = vf_set(mean), r = vf_set(rstd);
    const int64_t n = norm->width;
    for (int64_t i = 0; i < n; i += LS_LANES) {
        const int64_t left = n - i;
        const vf hat = vf_mul(vf_sub(vf_load_tail(x + i, left), m), r);
        const vf w = vf_load_tail(norm->weight + i, left);
        const vf v = norm->bias ? vf_fma(hat, w, vf_load_tail(norm->bias + i, left)) : vf_mul(hat, w);
        vf_store_tail(y + i, v, left);
    }
}

static void forward(const ls_norm_row *norm, const float *a, const float *b, float *sum, float *y,
                    float *mean, float *rstd)
{
    const int64_t n = norm->width;
    const float *x = a;
    if (b) {
        row_add(a, b, sum, n * norm->groups);
        x = sum;
    }
    for (int64_t g = 0; g < norm->groups; g++) {
        const float *xg = x + g * n;
        const float m = norm->is_layer ? row_sum(xg, n) / (float)n : 0.0f;
        const float r = reciprocal_root(row_squares(xg, m, n) / (float)n + norm->eps);
        normalise(norm, xg, m, r, y + g * n);
        if (mean) {
            mean[g] = m;
        }
        rstd[g] = r;
    }
}

/*
 * With hat = (x - mean) rstd and h = dy weight:
 *   dx = rstd (h - average(h) - hat average(h hat))      the middle term for layer norm only
 *   dweight += dy hat, dbias += dy
 */
static void backward_group(const ls_norm_row *norm, const float *x, const float *dy, float mean, float rstd,
                           float *dx, bool accumulate, float *dweight, float *dbias)
{
    const int64_t n = norm->width;
    const vf m = vf_set(mean), r = vf_set(rstd);
    vf sum_h[2] = {vf_zero(), vf_zero()}, sum_hat[2] = {vf_zero(), vf_zero()};
    int64_t i = 0;
    for (int k = 0; i < n; i += LS_LANES, k ^= 1) {
        const int64_t left = n - i;
        const vf hat = vf_mul(vf_sub(vf_load_tail(x + i, left), m), r);
        const vf h = vf_mul(vf_load_tail(dy + i, left), vf_load_tail(norm->weight + i, left));
        sum_h[k] = vf_add(sum_h[k], h);
        sum_hat[k] = vf_fma(h, hat, sum_hat[k]);
    }
    const float average_h = norm->is_layer ? vf_sum(vf_add(sum_h[0], sum_h[1])) / (float)n : 0.0f;
    const vf mean_h = vf_set(average_h);
    const vf mean_hat = vf_set(vf_sum(vf_add(sum_hat[0], sum_hat[1])) / (float)n);
    for (i = 0; i < n; i += LS_LANES) {
        const int64_t left = n - i;
        const vf hat = vf_mul(vf_sub(vf_load_tail(x + i, left), m), r);
        const vf g = vf_load_tail(dy + i, left);
        const vf h = vf_mul(g, vf_load_tail(norm->weight + i, left));
        vf_store_tail(dweight + i, vf_fma(g, hat, vf_load_tail(dweight + i, left)), left);
        vf_store_tail(dbias + i, vf_add(g, vf_load_tail(dbias + i, left)), left);
        const vf d = vf_mul(r, vf_fnma(hat, mean_hat, vf_sub(h, mean_h)));
        vf_store_tail(dx + i, accumulate ? vf_add(vf_load_tail(dx + i, left), d) : d, left);
    }
}

static void backward(const ls_norm_row *norm, const float *x, const float *dy, const float *mean,
                     const float *rstd, float *dx, bool accumulate, float *dweight, float *dbias)
{
    const int64_t n = norm->width;
    for (int64_t g = 0; g < norm->groups; g++) {
        backward_group(norm, x + g * n, dy + g * n, mean ? mean[g] : 0.0f, rstd[g], dx + g * n, accumulate,
                       dweight, dbias);
    }
}

static void combine(const float *parts, int64_t count, int64_t stride, int64_t width, float *out,
                    bool accumulate)
{
    for (int64_t i = 0; i < width; i += LS_LANES) {
        const int64_t left = width - i;
        vf s = accumulate ? vf_load_tail(out + i, left) : vf_zero();
        for (int64_t p = 0; p < count; p++) {
            s = vf_add(s, vf_load_tail(parts + p * stride + i, left));
        }
        vf_store_tail(out + i, s, left);
    }
}

const ls_norm_kernels LS_ISA_NAME(ls_norm_kernels) = {
    .forward = forward,
    .backward = backward,
    .combine = combine,
};
