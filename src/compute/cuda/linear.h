// SPDX-License-Identifier: Apache-2.0
/*
 * Linear layers on an NVIDIA GPU: the functions of compute/kernels/linear.h as products of
 * compute/cuda/matmul.h.
 *
 * The canonical cut is not there yet: a forward_cut or backward_input_cut above 1 is
 * LS_ERR_UNSUPPORTED.
 */
#ifndef LS_COMPUTE_CUDA_LINEAR_H
#define LS_COMPUTE_CUDA_LINEAR_H

#include "compute/kernels/linear.h"

LS_MUST_CHECK ls_status ls_cuda_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                               const ls_tensor *y);

LS_MUST_CHECK ls_status ls_cuda_linear_backward_input(ls_queue *queue, const ls_linear *linear,
                                                      const ls_tensor *dy, const ls_tensor *dx,
                                                      bool accumulate);

LS_MUST_CHECK ls_status ls_cuda_linear_backward_weight(ls_queue *queue, const ls_linear *linear,
                                                       const ls_tensor *x, const ls_tensor *dy,
                                                       const ls_tensor *dweight, const ls_tensor *dbias,
                                                       bool accumulate);

#endif
