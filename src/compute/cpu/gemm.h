// SPDX-License-Identifier: Apache-2.0
/*
 * The matrix product on the CPU: C = A B, in all orientations that a linear layer needs.
 *
 * Internal to compute/; other code calls kernels/linear.h. Everything is float32.
 *
 * An element of C depends only on its row of A, its column of B and the list of ranges. The other
 * rows and columns, the place in the matrix and the number of threads do not change its bits.
 */
#ifndef LS_COMPUTE_CPU_GEMM_H
#define LS_COMPUTE_CPU_GEMM_H

#include "compute/cpu/isa/gemm.h"
#include "compute/queue.h"

/* Runs the product on the queue's threads and waits. CPU queues only. m, n and every range are at
 * least 1. Errors: LS_ERR_MEMORY if the queue's scratch can't grow. */
LS_MUST_CHECK ls_status ls_gemm_run(ls_queue *queue, const ls_gemm *gemm);

#endif
