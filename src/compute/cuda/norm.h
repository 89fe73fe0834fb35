// SPDX-License-Identifier: Apache-2.0
/*
 * Norms on a GPU: the functions of compute/kernels/norm.h for ls_backend. A group has at most 8192
 * elements (asserted). The sums for dweight and dbias are taken over fixed tiles of rows, and the
 * tiles are added in order.
 */
#ifndef LS_COMPUTE_CUDA_NORM_H
#define LS_COMPUTE_CUDA_NORM_H

#include "compute/kernels/norm.h"

LS_MUST_CHECK ls_status ls_cuda_norm_forward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                             const ls_tensor *y, const ls_tensor *mean,
                                             const ls_tensor *rstd);

LS_MUST_CHECK ls_status ls_cuda_norm_forward_residual(ls_queue *queue, const ls_norm *norm,
                                                      const ls_tensor *a, const ls_tensor *b,
                                                      const ls_tensor *sum, const ls_tensor *y,
                                                      const ls_tensor *mean, const ls_tensor *rstd);

LS_MUST_CHECK ls_status ls_cuda_norm_backward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                              const ls_tensor *dy, const ls_tensor *mean,
                                              const ls_tensor *rstd, const ls_tensor *dx,
                                              bool accumulate_input, const ls_tensor *dweight,
                                              const ls_tensor *dbias, bool accumulate_weight,
                                              const ls_tensor *workspace);

int64_t ls_cuda_norm_workspace(int64_t n, int64_t cols, int64_t groups);

#endif
