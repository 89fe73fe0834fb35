// SPDX-License-Identifier: Apache-2.0
/*
 * What tests of kernels for GPUs share. They run on whatever LOCKSTEP_CUDA_DRIVER names (in ctest the
 * processor: tests/compute/cuda_on_cpu), or on a GPU where it is not set, and are skipped where there
 * is neither.
 *
 * A cuda_matrix has the same numbers twice: in the device's memory, float32 or bfloat16, with gaps
 * between its rows, and as doubles on the host, rounded to the same type. Outputs begin as NaNs, and
 * so do the gaps, which have to stay as they are.
 */
#ifndef LS_TESTS_COMPUTE_CUDA_TEST_H
#define LS_TESTS_COMPUTE_CUDA_TEST_H

#include "test.h"

#include "base/random.h"
#include "base/status.h"
#include "compute/queue.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_OK(expression)                                                                                  \
    do {                                                                                                     \
        const ls_status cuda_ok_ = (expression);                                                             \
        if (cuda_ok_ != LS_OK) {                                                                             \
            fail_msg("%s: %s: %s", #expression, ls_status_name(cuda_ok_), ls_error_text());                  \
        }                                                                                                    \
    } while (0)

/* How often a kernel runs on the same numbers. The thread sanitizer sees races in the first run, and
 * is slow; the other builds compare the bits. */
#ifdef __SANITIZE_THREAD__
enum { CUDA_RUNS = 1 };
#else
enum { CUDA_RUNS = 2 };
#endif

/* ---- the queue ---- */

/* The queue of all tests of a program; ends the program with 77 where there is no device. */
static inline ls_queue *cuda_queue(void)
{
    static ls_queue *queue;
    if (!queue) {
        const ls_status status = ls_queue_create_cuda(&(ls_cuda_options){.device = 0}, &queue);
        if (status == LS_ERR_DEVICE) {
            printf("skipped: %s\n", ls_error_text());
            exit(77);
        }
        CUDA_OK(status);
    }
    return queue;
}

/* ---- numbers ---- */

/* Uniform in [-1, 1). */
static inline double cuda_uniform(uint64_t seed, uint64_t index)
{
    return 2.0 * ls_random_uniform64(ls_random_stream(seed, LS_RANDOM_TEST), index, 0) - 1.0;
}

static inline int64_t cuda_between(uint64_t seed, uint64_t index, int64_t low, int64_t high)
{
    return low + (int64_t)ls_random_below(ls_random_stream(seed, LS_RANDOM_TEST), index, 1,
                                          (uint64_t)(high - low + 1));
}

static inline float cuda_from_bf16(uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

/* To nearest, ties to even. */
static inline uint16_t cuda_to_bf16(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    if (isnan(x)) {
        return 0x7fff;
    }
    return (uint16_t)((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}

/* x as the type would keep it. */
static inline double cuda_rounded(ls_dtype dtype, double x)
{
    return dtype == LS_BF16 ? cuda_from_bf16(cuda_to_bf16((float)x)) : (double)(float)x;
}

static inline double *cuda_doubles(int64_t count)
{
    double *x = calloc((size_t)count + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* ||x - wanted|| / ||wanted||; NaN when a number of x is one. */
static inline double cuda_relative_error(const double *x, const double *wanted, int64_t count)
{
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        difference += (x[i] - wanted[i]) * (x[i] - wanted[i]);
        norm += wanted[i] * wanted[i];
    }
    return sqrt(difference) / (norm > 0.0 ? sqrt(norm) : 1.0);
}

static inline double cuda_tolerance(ls_dtype dtype)
{
    return dtype == LS_BF16 ? 1e-2 : 1e-5;
}

/* ---- matrices ---- */

typedef struct cuda_matrix {
    /* On the device. */
    ls_tensor t;
    /* On the host, dense: rows x cols. What it was filled with, until cuda_matrix_read. */
    double *x;
    /* Memory of the device, in bytes. */
    size_t bytes;
} cuda_matrix;

/* What gaps and outputs are made of: a NaN that no arithmetic gives. */
enum { CUDA_POISON_F32 = 0x7fc5a5a5, CUDA_POISON_BF16 = 0x7fc5 };

static inline void cuda_put(void *bytes, ls_dtype dtype, int64_t at, double value)
{
    if (dtype == LS_BF16) {
        ((uint16_t *)bytes)[at] = cuda_to_bf16((float)value);
    } else {
        ((float *)bytes)[at] = (float)value;
    }
}

static inline double cuda_get(const void *bytes, ls_dtype dtype, int64_t at)
{
    return dtype == LS_BF16 ? cuda_from_bf16(((const uint16_t *)bytes)[at])
                            : (double)((const float *)bytes)[at];
}

static inline void cuda_poison(void *bytes, ls_dtype dtype, size_t size)
{
    if (dtype == LS_BF16) {
        for (size_t i = 0; i < size / 2; i++) {
            ((uint16_t *)bytes)[i] = CUDA_POISON_BF16;
        }
    } else {
        for (size_t i = 0; i < size / 4; i++) {
            ((uint32_t *)bytes)[i] = CUDA_POISON_F32;
        }
    }
}

/* Copies the numbers of the host to the device; gaps become poison. */
static inline void cuda_matrix_write(cuda_matrix *m)
{
    void *bytes = malloc(m->bytes);
    assert_non_null(bytes);
    cuda_poison(bytes, m->t.dtype, m->bytes);
    for (int64_t r = 0; r < m->t.rows; r++) {
        for (int64_t c = 0; c < m->t.cols; c++) {
            cuda_put(bytes, m->t.dtype, r * m->t.stride + c, m->x[r * m->t.cols + c]);
        }
    }
    CUDA_OK(ls_queue_move(cuda_queue(), m->t.data, bytes, m->bytes));
    CUDA_OK(ls_queue_wait(cuda_queue()));
    free(bytes);
}

/* A matrix of numbers uniform in [-scale, scale); scale 0: an output, all poison. gap: elements between
 * rows. */
static inline cuda_matrix cuda_matrix_make(ls_dtype dtype, int64_t rows, int64_t cols, int64_t gap,
                                           uint64_t seed, double scale)
{
    cuda_matrix m = {.t = ls_tensor_of(NULL, dtype, rows, cols)};
    m.t.stride = cols + gap;
    m.bytes = (size_t)(rows * m.t.stride * ls_dtype_bytes(dtype));
    m.x = cuda_doubles(rows * cols);
    CUDA_OK(ls_device_alloc(cuda_queue(), m.bytes, &m.t.data));
    for (int64_t i = 0; i < rows * cols; i++) {
        m.x[i] = scale > 0.0 ? cuda_rounded(dtype, scale * cuda_uniform(seed, (uint64_t)i)) : (double)NAN;
    }
    cuda_matrix_write(&m);
    return m;
}

static inline void cuda_matrix_free(cuda_matrix *m)
{
    ls_device_free(cuda_queue(), m->t.data, m->bytes);
    free(m->x);
    *m = (cuda_matrix){0};
}

/* The bytes on the device, gaps and all; freed by the caller. */
static inline void *cuda_matrix_bytes(const cuda_matrix *m)
{
    void *bytes = malloc(m->bytes + 1);
    assert_non_null(bytes);
    CUDA_OK(ls_queue_move(cuda_queue(), bytes, m->t.data, m->bytes));
    CUDA_OK(ls_queue_wait(cuda_queue()));
    return bytes;
}

/* Waits and reads what the device has into m->x. The gaps must be untouched. */
static inline void cuda_matrix_read(cuda_matrix *m)
{
    unsigned char *bytes = cuda_matrix_bytes(m);
    unsigned char *gaps = malloc(m->bytes + 1);
    assert_non_null(gaps);
    cuda_poison(gaps, m->t.dtype, m->bytes);
    const int64_t size = ls_dtype_bytes(m->t.dtype);
    for (int64_t r = 0; r < m->t.rows; r++) {
        for (int64_t c = 0; c < m->t.cols; c++) {
            m->x[r * m->t.cols + c] = cuda_get(bytes, m->t.dtype, r * m->t.stride + c);
        }
        const int64_t gap = (r * m->t.stride + m->t.cols) * size;
        if (memcmp(bytes + gap, gaps + gap, (size_t)((m->t.stride - m->t.cols) * size)) != 0) {
            fail_msg("the gap after row %lld of (%lld, %lld), stride %lld, was written", (long long)r,
                     (long long)m->t.rows, (long long)m->t.cols, (long long)m->t.stride);
        }
    }
    free(gaps);
    free(bytes);
}

/* Reads m and compares it with `wanted`, dense; `what` names it in messages. */
static inline void cuda_matrix_check(cuda_matrix *m, const double *wanted, double tolerance, const char *what)
{
    cuda_matrix_read(m);
    const double error = cuda_relative_error(m->x, wanted, m->t.rows * m->t.cols);
    if (!(error <= tolerance)) {
        int64_t at = 0;
        for (int64_t i = 0; i < m->t.rows * m->t.cols; i++) {
            if (!(fabs(m->x[i] - wanted[i]) <= fabs(m->x[at] - wanted[at]))) {
                at = i;
            }
        }
        fail_msg("%s (%lld, %lld) %s: relative error %.3g, more than %.3g; worst at (%lld, %lld): %.9g, "
                 "wanted %.9g",
                 what, (long long)m->t.rows, (long long)m->t.cols, m->t.dtype == LS_BF16 ? "bf16" : "float32",
                 error, tolerance, (long long)(at / m->t.cols), (long long)(at % m->t.cols), m->x[at],
                 wanted[at]);
    }
}

/* Runs fn(context) CUDA_RUNS times, from the same contents of the outputs, and wants the same bits in
 * them. */
static inline void cuda_same_bits(void (*fn)(void *context), void *context, cuda_matrix *const *outputs,
                                  int count)
{
    enum { OUTPUTS_MAX = 16 };
    void *before[OUTPUTS_MAX], *first[OUTPUTS_MAX];
    assert_true(count <= OUTPUTS_MAX);
    if (CUDA_RUNS == 1) {
        fn(context);
        return;
    }
    for (int i = 0; i < count; i++) {
        before[i] = cuda_matrix_bytes(outputs[i]);
    }
    fn(context);
    for (int i = 0; i < count; i++) {
        first[i] = cuda_matrix_bytes(outputs[i]);
        CUDA_OK(ls_queue_move(cuda_queue(), outputs[i]->t.data, before[i], outputs[i]->bytes));
    }
    fn(context);
    for (int i = 0; i < count; i++) {
        void *second = cuda_matrix_bytes(outputs[i]);
        if (memcmp(first[i], second, outputs[i]->bytes) != 0) {
            fail_msg("output %d differs between two runs on the same numbers", i);
        }
        free(second);
        free(first[i]);
        free(before[i]);
    }
}

/* ---- shared memory: tokens, targets, losses ---- */

static inline void *cuda_shared(size_t bytes)
{
    void *memory = NULL;
    CUDA_OK(ls_shared_alloc(cuda_queue(), bytes, &memory));
    return memory;
}

/* Shared memory with the first tokens of records of `longest` tokens, in sequences of `length`.
 * longest 0: NULL. */
static inline int32_t *cuda_records(int64_t rows, int64_t length, int64_t longest)
{
    int32_t *first = longest > 0 ? cuda_shared((size_t)rows * sizeof *first) : NULL;
    for (int64_t r = 0; r < rows && first; r++) {
        first[r] = (int32_t)(r % length / longest * longest);
    }
    return first;
}

#endif
