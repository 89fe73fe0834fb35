// SPDX-License-Identifier: Apache-2.0
/*
 * Linear layers: Y = X W^T + b and its two gradients.
 *
 * X (n, in), Y (n, out). The weight keeps the layout of its Hugging Face file: LS_WEIGHT_OUT_IN is (out, in),
 * as torch's nn.Linear; LS_WEIGHT_IN_OUT is (in, out), as GPT-2's Conv1D. Everything is float32.
 *
 * Results depend on the shapes alone, never on the thread count.
 *
 * Canonical cut (DESIGN I1). The sums a tensor-parallel run must add across ranks are taken in the same
 * pieces by every run: `cut` = t pieces of the inner dimension, each summed alone, combined in the fixed
 * binary tree over pieces. Forward cuts `in` (row parallel: attention output, MLP down); backward_input cuts
 * `out` (column parallel: qkv, gate|up), where piece i of a fused weight is the i-th t-th of every segment.
 * cut = 1 is the plain product.
 */
#ifndef LS_COMPUTE_KERNELS_LINEAR_H
#define LS_COMPUTE_KERNELS_LINEAR_H

#include "compute/queue.h"

typedef enum ls_weight_layout { LS_WEIGHT_OUT_IN, LS_WEIGHT_IN_OUT } ls_weight_layout;

enum { LS_LINEAR_SEGMENTS_MAX = 3 };

typedef struct ls_linear {
    ls_tensor weight; /* (out, in) or (in, out) by layout */
    ls_tensor bias;   /* (1, out); data NULL: none */
    ls_weight_layout layout;
    uint32_t forward_cut;                    /* pieces of `in` in forward, >= 1 */
    uint32_t backward_input_cut;             /* pieces of `out` in backward_input, >= 1 */
    uint32_t segment_count;                  /* fused outputs (q, k, v): 1..LS_LINEAR_SEGMENTS_MAX */
    int64_t segment[LS_LINEAR_SEGMENTS_MAX]; /* widths that add up to out */
    ls_tensor workspace; /* ls_linear_workspace_floats() elements; may be absent when both cuts are 1 */
} ls_linear;

/* Floats of workspace that forward and backward_input need for n rows: 0 when both cuts are 1. */
int64_t ls_linear_workspace_floats(int64_t n, int64_t in, int64_t out, uint32_t forward_cut,
                                   uint32_t backward_input_cut);

/* y (n, out) = x (n, in) W^T + b. */
LS_MUST_CHECK ls_status ls_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                          const ls_tensor *y);

/* dx (n, in) = dy (n, out) W, or dx += when accumulate. */
LS_MUST_CHECK ls_status ls_linear_backward_input(ls_queue *queue, const ls_linear *linear,
                                                 const ls_tensor *dy, const ls_tensor *dx, bool accumulate);

/* dweight = dy^T x in the weight's layout, dbias = column sums of dy, or += when accumulate; absent: skipped. */
LS_MUST_CHECK ls_status ls_linear_backward_weight(ls_queue *queue, const ls_linear *linear,
                                                  const ls_tensor *x, const ls_tensor *dy,
                                                  const ls_tensor *dweight, const ls_tensor *dbias,
                                                  bool accumulate);

#endif
