// SPDX-License-Identifier: Apache-2.0
/*
 * Linear layers: Y = X W^T + b and its two gradients.
 *
 * X is (n, in), Y is (n, out). The weight keeps the layout of its Hugging Face file:
 * LS_WEIGHT_OUT_IN is (out, in), like torch's nn.Linear; LS_WEIGHT_IN_OUT is (in, out), like
 * GPT-2's Conv1D. Element types: compute/tensor.h.
 *
 * The bits depend only on the values, the shapes and the determinism class, never on the thread
 * count.
 *
 * Canonical cut. A tensor-parallel run adds sums across ranks, and every run must take these sums
 * in the same pieces to get the same bits. So the inner dimension is cut into t pieces; each is
 * summed alone, and the sums are combined in the fixed binary tree over the pieces. Forward cuts
 * `in` (row parallel: attention output, MLP down). backward_input cuts `out` (column parallel: qkv,
 * gate|up, head); piece i of a fused weight is part i of t of every segment (base/pieces.h). A cut
 * of 1 is the plain product.
 *
 * A member of a tensor group has a node of that tree: some pieces. It calls these functions with a
 * view of its part of the weight and with the number of its pieces as the cut, and gets the bits
 * that the node has in the whole product.
 */
#ifndef LS_COMPUTE_KERNELS_LINEAR_H
#define LS_COMPUTE_KERNELS_LINEAR_H

#include "compute/kernels/packed.h"
#include "compute/queue.h"

enum { LS_LINEAR_SEGMENTS_MAX = 3 };

typedef struct ls_linear {
    /* (out, in) or (in, out), by layout. */
    ls_tensor weight;
    /* Instead of weight.data: one packed matrix (out, in) per tensor of the file, all of one kind,
     * in their order along out; the rows add up to out. weight then has data NULL and keeps its
     * shape. The products have the bits that they would have with the unpacked float32 weight.
     * There is no dweight. On a GPU: LS_ERR_UNSUPPORTED. */
    const ls_packed *packed;
    /* 0: not packed. Otherwise 1 to LS_LINEAR_SEGMENTS_MAX. */
    uint32_t packed_count;
    /* (1, out). data NULL: no bias. */
    ls_tensor bias;
    ls_weight_layout layout;
    /* Pieces of `in` in forward, at least 1. */
    uint32_t forward_cut;
    /* Pieces of `out` in backward_input, at least 1. */
    uint32_t backward_input_cut;
    /* Fused outputs, for example q, k and v. 1 to LS_LINEAR_SEGMENTS_MAX. */
    uint32_t segment_count;
    /* Their widths, which add up to out. */
    int64_t segment[LS_LINEAR_SEGMENTS_MAX];
    /* What lies between them: rows of an (out, in) weight, columns of an (in, out) one, and
     * elements of bias and dbias, that are left out before each segment. A member of a tensor
     * group has a part of q, a part of k and a part of v. The weight is then larger than (out,
     * in). All 0 with packed matrices and on a GPU. */
    int64_t skip[LS_LINEAR_SEGMENTS_MAX];
    /* On a GPU: columns of y and dy that products may use, at least out; 0: out. Forward may write
     * any finite values into the columns of y from out on, backward_input expects zeros in those of
     * dy, and both may read as many rows of an (out, in) weight, whatever they hold, if it is
     * finite. So a vocabulary of 50,257 costs no more than one of 50,304. */
    int64_t padded_out;
    /* ls_linear_workspace_floats() elements of float32. May be absent if both cuts are 1. */
    ls_tensor workspace;
} ls_linear;

/* The widths of the layer. */
static inline int64_t ls_linear_in(const ls_linear *linear)
{
    return linear->layout == LS_WEIGHT_OUT_IN ? linear->weight.cols : linear->weight.rows;
}

static inline int64_t ls_linear_out(const ls_linear *linear)
{
    int64_t out = 0;
    for (uint32_t s = 0; s < linear->segment_count; s++) {
        out += linear->segment[s];
    }
    return out;
}

/* Floats of workspace that forward and backward_input need for n rows. 0 if both cuts are 1. */
int64_t ls_linear_workspace_floats(int64_t n, int64_t in, int64_t out, uint32_t forward_cut,
                                   uint32_t backward_input_cut);

/* y (n, out) = x (n, in) W^T + b. */
LS_MUST_CHECK ls_status ls_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                          const ls_tensor *y);

/* dx (n, in) = dy (n, out) W, or dx += with accumulate. */
LS_MUST_CHECK ls_status ls_linear_backward_input(ls_queue *queue, const ls_linear *linear,
                                                 const ls_tensor *dy, const ls_tensor *dx, bool accumulate);

/* dweight = dy^T x in the weight's layout and dbias = column sums of dy, both float32, or += with
 * accumulate. An absent one is skipped. They have the shapes of weight and bias; what lies between
 * segments is not touched. */
LS_MUST_CHECK ls_status ls_linear_backward_weight(ls_queue *queue, const ls_linear *linear,
                                                  const ls_tensor *x, const ls_tensor *dy,
                                                  const ls_tensor *dweight, const ls_tensor *dbias,
                                                  bool accumulate);

#endif
