// SPDX-License-Identifier: Apache-2.0
/*
 * Op trace: a micro-batch step by step, with the range of everything that each step of the plan wrote.
 *
 * The kernels are those of training, called in the same order with the same arguments, so what is seen is what training computed; only the
 * looking is slow (each value is read once by one thread). One line per output: the first with an element that is not finite is where a
 * loss went wrong.
 *
 *   forward    activations (out[]); the head: losses, and in training its gradients
 *   backward   input gradients (din[]), and the gradients of parameters as they stand then: with batch->accumulate they hold the sum over
 *              the micro-batches so far
 *
 * Logits exist a chunk at a time and are not shown. Used by one thread, like the walk.
 */
#ifndef LS_EXECUTION_DIAGNOSE_OP_TRACE_H
#define LS_EXECUTION_DIAGNOSE_OP_TRACE_H

#include "execution/walk.h"

/* What one step of the plan wrote into one value or parameter gradient. */
typedef struct ls_op_range {
    uint32_t step;     /* of the plan */
    const char *op;    /* "linear" */
    const char *phase; /* "forward", "backward", "weight gradient" */
    int32_t layer;     /* -1: outside the layers */
    bool
        is_gradient; /* `name` is a parameter, and this is its gradient; else a value of the plan, or "losses" */
    const char *name;         /* belongs to plan or layout */
    int64_t rows, cols;       /* as seen: fused tensors are shown by their parts */
    double min, max;          /* of the finite elements; 0 when there are none */
    double rms;               /* root of the mean square of the finite elements */
    int64_t nonfinite;        /* elements that are not finite */
    int64_t bad_row, bad_col; /* the first of these; -1 */
} ls_op_range;

/* Sees one output; false ends the trace. */
typedef bool (*ls_op_range_fn)(void *context, const ls_op_range *range);

/* Runs forward and backward of `batch` (a training plan's) and shows every output. *ended_out: whether `fn` ended it early; gradients are
 * then half done. Errors: those of the kernels. */
LS_MUST_CHECK ls_status ls_op_trace_run(ls_walk *walk, const ls_walk_batch *batch, ls_op_range_fn fn,
                                        void *context, bool *ended_out);

/* "layer 3 attention forward, value 'layer 3 attention out'"; with an element that is not finite also ", row 17, column 4". */
void ls_op_range_describe(const ls_op_range *range, char *text_out, size_t text_bytes);

/* Runs the trace up to the first output with an element that is not finite; *found_out: whether there is one, described in text_out. */
LS_MUST_CHECK ls_status ls_op_trace_find_nonfinite(ls_walk *walk, const ls_walk_batch *batch, bool *found_out,
                                                   char *text_out, size_t text_bytes);

/* Minimum, maximum, rms and what is not finite of a matrix; the other fields are left as they are. */
void ls_op_range_measure(const ls_tensor *t, ls_op_range *range);

#endif
