// SPDX-License-Identifier: Apache-2.0
/*
 * Softmax cross-entropy on a GPU (kernels/cross_entropy.h).
 */
#ifndef LS_COMPUTE_CUDA_CROSS_ENTROPY_H
#define LS_COMPUTE_CUDA_CROSS_ENTROPY_H

#include "compute/kernels/cross_entropy.h"

/*
 * logits are float32 or bfloat16; targets and losses are shared memory. The columns between
 * logits->cols and logits->stride are padding, whose values do not count. With with_gradient they
 * become 0, so that products may read them. Errors: LS_ERR_UNSUPPORTED if the vocabulary is cut.
 */
LS_MUST_CHECK ls_status ls_cuda_cross_entropy(ls_queue *queue, const ls_vocabulary_cut *cut,
                                              const ls_tensor *logits, const int32_t *targets, float *losses,
                                              bool with_gradient);

#endif
