// SPDX-License-Identifier: Apache-2.0
/*
 * Layer norm and RMS norm, optionally with the residual addition before it in the same pass.
 *
 * A row of `cols` features is normalised in `groups` groups of cols / groups features. All groups
 * use the same weight (cols / groups). groups is 1 for the norms of a block and the number of heads
 * for QK-norm. Statistics are (n, groups).
 *
 *   layer: y = (x - mean) * rstd * weight + bias     rstd = 1 / sqrt(var + eps)
 *   rms:   y = x * rstd * weight                     rstd = 1 / sqrt(mean(x^2) + eps)
 *
 * var is the biased variance of the group.
 *
 * Sources: Ba, Kiros and Hinton, "Layer normalization", 2016; Zhang and Sennrich, "Root mean square
 * layer normalization", 2019.
 */
#ifndef LS_COMPUTE_KERNELS_NORM_H
#define LS_COMPUTE_KERNELS_NORM_H

#include "compute/queue.h"

typedef enum ls_norm_kind { LS_NORM_LAYER, LS_NORM_RMS } ls_norm_kind;

typedef struct ls_norm {
    ls_norm_kind kind;
    float eps;
    /* At least 1. Divides cols. */
    int64_t groups;
    /* (1, cols / groups). */
    ls_tensor weight;
    /* (1, cols / groups), for layer norm only. data NULL: no bias. */
    ls_tensor bias;
} ls_norm;

/* y (n, cols) = norm(x). Also writes mean (n, groups), absent for RMS, and rstd (n, groups), which
 * backward needs. y may be x. */
LS_MUST_CHECK ls_status ls_norm_forward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                        const ls_tensor *y, const ls_tensor *mean, const ls_tensor *rstd);

/* sum (n, cols) = a + b, then y = norm(sum), in one pass. sum may be a or b. */
LS_MUST_CHECK ls_status ls_norm_forward_residual(ls_queue *queue, const ls_norm *norm, const ls_tensor *a,
                                                 const ls_tensor *b, const ls_tensor *sum, const ls_tensor *y,
                                                 const ls_tensor *mean, const ls_tensor *rstd);

/*
 * The gradient. x (n, cols) is the input of forward. dx (n, cols) is written, or added to with
 * accumulate_input, which the residual stream needs. dx may be dy without accumulate_input. dweight
 * and dbias (1, cols / groups) are sums over rows and groups; they are written, or added to with
 * accumulate_weight. An absent one is skipped. workspace: ls_norm_workspace_floats(queue, n, cols,
 * groups) elements of float32.
 */
LS_MUST_CHECK ls_status ls_norm_backward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x,
                                         const ls_tensor *dy, const ls_tensor *mean, const ls_tensor *rstd,
                                         const ls_tensor *dx, bool accumulate_input, const ls_tensor *dweight,
                                         const ls_tensor *dbias, bool accumulate_weight,
                                         const ls_tensor *workspace);

/* Floats of workspace that ls_norm_backward needs. queue NULL: on a queue of the CPU. */
int64_t ls_norm_workspace_floats(const ls_queue *queue, int64_t n, int64_t cols, int64_t groups);

#endif
