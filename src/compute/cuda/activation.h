// SPDX-License-Identifier: Apache-2.0
/*
 * Activations on a GPU: the functions of compute/kernels/activation.h for ls_backend.
 */
#ifndef LS_COMPUTE_CUDA_ACTIVATION_H
#define LS_COMPUTE_CUDA_ACTIVATION_H

#include "compute/kernels/activation.h"

LS_MUST_CHECK ls_status ls_cuda_gelu_forward(ls_queue *queue, const ls_tensor *x, const ls_tensor *y);
LS_MUST_CHECK ls_status ls_cuda_gelu_backward(ls_queue *queue, const ls_tensor *x, const ls_tensor *dy,
                                              const ls_tensor *dx);
LS_MUST_CHECK ls_status ls_cuda_swiglu_forward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *y);
LS_MUST_CHECK ls_status ls_cuda_swiglu_backward(ls_queue *queue, const ls_tensor *gate_up,
                                                const ls_tensor *dy, const ls_tensor *dgate_up);

#endif
