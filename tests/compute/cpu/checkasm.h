// SPDX-License-Identifier: Apache-2.0
/*
 * How a kernel is checked:
 *   1. ck_same_bits runs it with every instruction set of this processor and with 1, 2, 3 and 4
 *      threads, and
 * wants the same bits in every output, and canary words around and between the rows of every output
 * untouched;
 *   2. ck_close compares the outputs with a plain float64 computation, within a stated bound;
 *   3. ck_gradient makes float64 gradients by central differences, so that backward kernels are
 *      checked
 * against the forward definition and not against a second derivation of the same formula. The
 * canaries are NaNs: a kernel that reads past its rows and uses what it read gives itself away.
 */
#ifndef LS_TESTS_COMPUTE_CHECKASM_H
#define LS_TESTS_COMPUTE_CHECKASM_H

#include "test.h"

#include "base/random.h"
#include "compute/queue.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CK_GUARD = 32, CK_THREADS_MAX = 4, CK_OUTPUTS_MAX = 8 };
static const uint32_t ck_canary = 0x7fc5a5a5u;

/* A float32 tensor with guard words around it and in the gap of each row, and the contents it
 * started with.
 */
typedef struct ck_tensor {
    ls_tensor t;
    float *block, *initial;
    size_t floats;
} ck_tensor;

static inline float ck_canary_float(void)
{
    float f;
    memcpy(&f, &ck_canary, sizeof f);
    return f;
}

/* Pseudo-random numbers of a test: pure functions of (seed, index). */
static inline double ck_uniform(uint64_t seed, uint64_t index)
{
    return ls_random_uniform64(ls_random_stream(seed, LS_RANDOM_TEST), index, 0);
}

static inline int64_t ck_between(uint64_t seed, uint64_t index, int64_t low, int64_t high)
{
    return low + (int64_t)ls_random_below(ls_random_stream(seed, LS_RANDOM_TEST), index, 1,
                                          (uint64_t)(high - low + 1));
}

/* (rows, cols) with `gap` floats between rows, uniform in [-scale, scale] (scale 0: zeros). */
static inline ck_tensor ck_make(int64_t rows, int64_t cols, int64_t gap, uint64_t seed, double scale)
{
    const int64_t stride = cols + gap;
    ck_tensor c = {.floats = (size_t)(rows * stride + 2 * CK_GUARD)};
    c.block = malloc(c.floats * sizeof(float));
    c.initial = malloc(c.floats * sizeof(float));
    assert_non_null(c.block);
    assert_non_null(c.initial);
    for (size_t i = 0; i < c.floats; i++) {
        c.block[i] = ck_canary_float();
    }
    c.t = ls_tensor_f32(c.block + CK_GUARD, rows, cols);
    c.t.stride = stride;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            const double u = 2.0 * ck_uniform(seed, (uint64_t)(r * cols + j)) - 1.0;
            ls_tensor_row(&c.t, r)[j] = (float)(scale * u);
        }
    }
    memcpy(c.initial, c.block, c.floats * sizeof(float));
    return c;
}

static inline void ck_free(ck_tensor *c)
{
    free(c->block);
    free(c->initial);
    *c = (ck_tensor){0};
}

static inline float ck_at(const ck_tensor *c, int64_t row, int64_t col)
{
    return ls_tensor_row(&c->t, row)[col];
}

/* What the tensor started with, as float64 (rows * cols, dense); freed by the caller. */
static inline double *ck_initial(const ck_tensor *c)
{
    double *x = malloc((size_t)(c->t.rows * c->t.cols + 1) * sizeof *x);
    for (int64_t r = 0; r < c->t.rows; r++) {
        for (int64_t j = 0; j < c->t.cols; j++) {
            x[r * c->t.cols + j] = c->initial[CK_GUARD + r * c->t.stride + j];
        }
    }
    return x;
}

static inline double *ck_zeros(int64_t count)
{
    double *x = calloc((size_t)count + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static inline void ck_check_canaries(const ck_tensor *c, const char *what)
{
    for (size_t i = 0; i < c->floats; i++) {
        const int64_t at = (int64_t)i - CK_GUARD;
        const bool inside = at >= 0 && at < c->t.rows * c->t.stride && at % c->t.stride < c->t.cols;
        uint32_t bits;
        memcpy(&bits, &c->block[i], sizeof bits);
        if (!inside && bits != ck_canary) {
            fail_msg("%s: wrote outside its rows, at float %lld of (%lld, %lld) stride %lld", what,
                     (long long)at, (long long)c->t.rows, (long long)c->t.cols, (long long)c->t.stride);
        }
    }
}

/* |x - want| <= absolute + relative |want| everywhere; want is dense (rows, cols). */
static inline void ck_close(const ck_tensor *c, const double *want, double absolute, double relative,
                            const char *what)
{
    for (int64_t r = 0; r < c->t.rows; r++) {
        for (int64_t j = 0; j < c->t.cols; j++) {
            const double x = ck_at(c, r, j), w = want[r * c->t.cols + j];
            if (!(fabs(x - w) <= absolute + relative * fabs(w))) {
                fail_msg("%s[%lld][%lld] of (%lld, %lld) is %.9g, float64 says %.9g, off by %.3g", what,
                         (long long)r, (long long)j, (long long)c->t.rows, (long long)c->t.cols, x, w, x - w);
            }
        }
    }
}

/* gradient[i] = d loss / d x[i] by central differences; x is restored. */
static inline void ck_gradient(double (*loss)(const void *context), const void *context, double *x,
                               int64_t count, double *gradient)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < count; i++) {
        const double kept = x[i];
        x[i] = kept + h;
        const double above = loss(context);
        x[i] = kept - h;
        const double below = loss(context);
        x[i] = kept;
        gradient[i] = (above - below) / (2.0 * h);
    }
}

/* A queue of `threads` threads with instruction set `isa`, NULL when the processor lacks it; kept
 * until the end. */
static inline ls_queue *ck_queue(int isa, uint32_t threads)
{
    static const char *const names[] = {"generic", "avx2", "avx512"};
    static ls_queue *queues[3][CK_THREADS_MAX + 1];
    static bool absent[3];
    if (absent[isa] || queues[isa][threads]) {
        return queues[isa][threads];
    }
    setenv("LS_ISA", names[isa], 1);
    const ls_status status = ls_queue_create_cpu(threads, &queues[isa][threads]);
    unsetenv("LS_ISA");
    if (status != LS_OK) {
        assert_int_equal(status, LS_ERR_UNSUPPORTED);
        absent[isa] = true;
        print_message("skipping %s: %s\n", names[isa], ls_error_text());
    }
    return queues[isa][threads];
}

typedef void (*ck_run)(ls_queue *queue, void *context);

/* Runs the kernel in every way; the outputs are reset before each run and must agree with the first
 * one's bits. */
static inline void ck_same_bits(ck_run run, void *context, ck_tensor *const *outputs, int count,
                                const char *what)
{
    float *first[CK_OUTPUTS_MAX] = {0};
    assert_true(count <= CK_OUTPUTS_MAX);
    for (int isa = 0; isa < 3; isa++) {
        for (uint32_t threads = 1; threads <= CK_THREADS_MAX; threads++) {
            ls_queue *queue = ck_queue(isa, threads);
            if (!queue) {
                break;
            }
            for (int i = 0; i < count; i++) {
                memcpy(outputs[i]->block, outputs[i]->initial, outputs[i]->floats * sizeof(float));
            }
            run(queue, context);
            for (int i = 0; i < count; i++) {
                const size_t bytes = outputs[i]->floats * sizeof(float);
                ck_check_canaries(outputs[i], what);
                if (!first[i]) {
                    first[i] = malloc(bytes);
                    memcpy(first[i], outputs[i]->block, bytes);
                } else if (memcmp(first[i], outputs[i]->block, bytes) != 0) {
                    size_t at = 0;
                    while (memcmp(&first[i][at], &outputs[i]->block[at], sizeof(float)) == 0) {
                        at++;
                    }
                    fail_msg(
                        "%s: output %d (%lld, %lld) differs between generic with 1 thread and set %d with %u "
                        "threads, first at float %zu: %.9g and %.9g",
                        what, i, (long long)outputs[i]->t.rows, (long long)outputs[i]->t.cols, isa, threads,
                        at - CK_GUARD, first[i][at], outputs[i]->block[at]);
                }
            }
        }
    }
    for (int i = 0; i < count; i++) {
        free(first[i]);
    }
}

#endif
