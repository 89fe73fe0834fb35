// SPDX-License-Identifier: Apache-2.0
/*
 * Layer norm and RMS norm, with the residual addition in front fused in.
 *
 * A row of `cols` features is normalised in `groups` groups of cols / groups features each, all with the same
 * weight (cols / groups): groups is 1 for the norms of a block and the number of heads for QK-norm.
 * Statistics are (n, groups).
 *
 *   layer: y = (x - mean) * rstd * weight + bias     rstd = 1 / sqrt(var + eps), var over the group, biased
 *   rms:   y = x * rstd * weight                     rstd = 1 / sqrt(mean(x^2) + eps)
 *
 * Sources: Ba, Kiros and Hinton, "Layer normalization", 2016; Zhang and Sennrich, "Root mean square layer
 * normalization", 2019.
 */
#ifndef LS_COMPUTE_KERNELS_NORM_H
#define LS_COMPUTE_KERNELS_NORM_H

#include "compute/queue.h"

typedef enum ls_norm_kind { LS_NORM_LAYER, LS_NORM_RMS } ls_norm_kind;

typedef struct ls_norm {
    ls_norm_kind kind;
    float eps;
    int64_t groups;   /* >= 1, divides cols */
    ls_tensor weight; /* (1, cols / groups) */
    ls_tensor bias;   /* (1, cols / groups); layer norm only; data NULL: none */
} ls_norm;

/* y (n, cols) = norm(x); mean (n, groups; absent for RMS) and rstd (n, groups) are kept for backward. y may
 * be x. */
LS_MUST_CHECK ls_status ls_norm_forward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                        const ls_tensor *y, const ls_tensor *mean, const ls_tensor *rstd);

/* sum (n, cols) = a + b, then y = norm(sum), in one pass. sum may be a or b. */
LS_MUST_CHECK ls_status ls_norm_forward_residual(ls_queue *queue, const ls_norm *norm, const ls_tensor *a,
                                                 const ls_tensor *b, const ls_tensor *sum, const ls_tensor *y,
                                                 const ls_tensor *mean, const ls_tensor *rstd);

/*
 * Gradient. x (n, cols) is the input of forward. dx (n, cols) = ..., or += when accumulate_input (the
 * residual stream). dx may be dy when not accumulating. dweight and dbias (1, cols / groups) = sums over rows
 * (and groups), or += when accumulate_weight; absent: skipped. workspace: float32,
 * ls_norm_workspace_floats(n, cols, groups) elements.
 */
LS_MUST_CHECK ls_status ls_norm_backward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                         const ls_tensor *dy, const ls_tensor *mean, const ls_tensor *rstd,
                                         const ls_tensor *dx, bool accumulate_input, const ls_tensor *dweight,
                                         const ls_tensor *dbias, bool accumulate_weight,
                                         const ls_tensor *workspace);

int64_t ls_norm_workspace_floats(int64_t n, int64_t cols, int64_t groups);

#endif
