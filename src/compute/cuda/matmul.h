// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products on an NVIDIA GPU: C = A B, C = A B + bias, or C += A B.
 *
 * The products come from cuBLASLt (compute/cuda/cublaslt.h), or from our own kernels
 * (compute/cuda/device/matmul.cu) where it is missing, has no fitting algorithm, or
 * LS_CUDA_PRODUCTS=own.
 *
 * The bits depend only on the shapes, strides, types and values, the model of the GPU, and the
 * version of the library. cuBLASLt's algorithm is the first of its own ranking that does not cut
 * the inner dimension among blocks; nothing is timed. Our own kernels cut long inner dimensions at
 * places that depend on the shape, and add the pieces in order.
 */
#ifndef LS_COMPUTE_CUDA_MATMUL_H
#define LS_COMPUTE_CUDA_MATMUL_H

#include "compute/cuda/queue_cuda.h"

/* Who computes a product. */
typedef enum ls_matmul_way {
    /* cuBLASLt where the queue has it, else our own kernels. */
    LS_MATMUL_DEFAULT,
    LS_MATMUL_OWN,
    /* Our own kernels for compute capability 9.0, where the GPU and the operands allow them. */
    LS_MATMUL_OWN_SM90,
    /* cuBLASLt; a long inner dimension is cut into pieces (compute/cuda/matmul_pieces.h). */
    LS_MATMUL_CUBLASLT,
    /* cuBLASLt, the inner dimension whole. */
    LS_MATMUL_CUBLASLT_WHOLE,
    /* cuBLASLt, its first algorithm that leaves the inner dimension whole or itself adds pieces of
     * it in float32 by a second kernel. */
    LS_MATMUL_CUBLASLT_RANKED,
} ls_matmul_way;

/* An operand: the row-major matrix at `data`, or its transpose. */
typedef struct ls_matmul_operand {
    const void *data;
    /* Elements from one row in memory to the next. */
    int64_t stride;
    bool transposed;
} ls_matmul_operand;

/* C (m, n) = A (m, k) B (k, n) + bias, or C += A B. All of at least 1. */
typedef struct ls_matmul {
    int64_t m, n, k;
    ls_matmul_operand a, b;
    /* Of A and B: LS_F32 or LS_BF16. Sums are taken in float32. */
    ls_dtype dtype;
    void *c;
    int64_t c_stride;
    /* LS_F32, or LS_BF16 if A and B are. */
    ls_dtype c_dtype;
    /* (n), of C's type, NULL: none. Not with accumulate. */
    const void *bias;
    bool accumulate;
    ls_matmul_way way;
} ls_matmul;

/*
 * Enqueues a product. A queue with tf32 may round float32 operands to TF32.
 *
 * Errors: LS_ERR_DEVICE, LS_ERR_MEMORY, LS_ERR_UNSUPPORTED (the way asked for is not there); the
 * text names the product.
 */
LS_MUST_CHECK ls_status ls_cuda_matmul(ls_queue_cuda *queue, const ls_matmul *product);

/* Enqueues a count of the 4-byte words in which two blocks of device memory differ: *differences
 * +=, in memory that the device can write. For tests that a product is repeatable. */
LS_MUST_CHECK ls_status ls_cuda_matmul_compare(ls_queue_cuda *queue, const void *a, const void *b,
                                               size_t bytes, uint32_t *differences);

/* Finds cuBLASLt and sets queue->blas and queue->matmuls. The queue's context is current. Errors:
 * those of ls_cublaslt_load; LS_ERR_MEMORY; LS_ERR_DEVICE. */
LS_MUST_CHECK ls_status ls_cuda_matmuls_create(ls_queue_cuda *queue);
void ls_cuda_matmuls_destroy(ls_queue_cuda *queue);

/* What the bits of products depend on, for the determinism class: "own1" or
 * "lt130100-132sm" (the version of cuBLASLt, and the multiprocessors that its ranking looks at). */
void ls_cuda_matmuls_class(const ls_queue_cuda *queue, char *text, size_t bytes);

/* A digest of the algorithms chosen so far and the products they were chosen for, in any order. Two
 * runs with equal digests used the same algorithms. 0: none. */
uint64_t ls_cuda_matmuls_digest(const ls_queue_cuda *queue);

#endif
