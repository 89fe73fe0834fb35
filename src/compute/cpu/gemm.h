// SPDX-License-Identifier: Apache-2.0
/*
 * The matrix product of the CPU: C = A B, in all the orientations that a linear layer needs.
 *
 * Internal to compute/: kernels/linear.h is what others call. Everything is float32.
 *
 * What is promised (DESIGN I1, I2): an element of C is a function of its row of A, its column of B and the
 * list of ranges alone. Neither the other rows and columns of the product, nor the place in the matrix, nor
 * the number of threads changes its bits.
 */
#ifndef LS_COMPUTE_CPU_GEMM_H
#define LS_COMPUTE_CPU_GEMM_H

#include "compute/queue.h"

/* One operand: element (row, column) is data[row * stride + column], or data[column * stride + row] when
 * `transposed`. */
typedef struct ls_gemm_operand {
    const float *data;
    int64_t stride;
    bool transposed;
} ls_gemm_operand;

/* Inner indices [first, first + count). */
typedef struct ls_gemm_range {
    int64_t first, count;
} ls_gemm_range;

enum { LS_GEMM_RANGES_MAX = 3 };

/*
 * C (m, n) = A (m, k) B (k, n) + bias, or += without the bias.
 *
 * The inner dimension is given as ranges (the parts of a fused weight that one piece of a canonical cut
 * takes); they are added in the order given, as if by one call per range.
 */
typedef struct ls_gemm {
    int64_t m, n;
    ls_gemm_range range[LS_GEMM_RANGES_MAX];
    uint32_t range_count; /* 1..LS_GEMM_RANGES_MAX */
    ls_gemm_operand a, b;
    float *c; /* row-major; must not overlap a, b or bias */
    int64_t c_stride;
    const float *bias; /* n values added to every row at the end; NULL: none */
    bool accumulate;   /* C += instead of C = */
} ls_gemm;

/* Runs the product on the queue's threads and waits. CPU queues only; m, n and every range at least 1.
 * Errors: LS_ERR_MEMORY, when the queue's scratch can't grow. */
LS_MUST_CHECK ls_status ls_gemm_run(ls_queue *queue, const ls_gemm *gemm);

#endif
