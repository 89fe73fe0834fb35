// SPDX-License-Identifier: Apache-2.0
/*
 * Op trace: runs a micro-batch step by step and reports the range of everything that each step of
 * the plan wrote.
 *
 * The kernels are those of training, called in the same order with the same arguments, so the trace
 * sees what training computed. Only the inspection is slow: one thread reads each value once. There
 * is one report per output; the first with an element that is not finite is the origin of a bad
 * loss.
 *
 *   forward    activations (out[]); of the head: losses, and in training its gradients
 *   backward   input gradients (din[]), and the parameter gradients at that moment: with
 *              batch->accumulate, the sum over the micro-batches so far
 *
 * Logits exist one chunk at a time and are not reported. Used by one thread, like the executor.
 */
#ifndef LS_EXECUTION_INTEGRITY_OP_TRACE_H
#define LS_EXECUTION_INTEGRITY_OP_TRACE_H

#include "execution/executor/executor.h"

/* What one step of the plan wrote into one value or parameter gradient. */
typedef struct ls_op_range {
    uint32_t step;     /* of the plan */
    const char *op;    /* "linear" */
    const char *phase; /* "forward", "backward", "weight gradient" */
    int32_t layer;     /* -1: outside the layers */
    /* true: the gradient of parameter `name`; false: a value of the plan, or "losses" */
    bool is_gradient;
    const char *name;         /* belongs to plan or layout */
    int64_t rows, cols;       /* of the reported part: fused tensors are reported part by part */
    double min, max;          /* of the finite elements; 0 when there are none */
    double rms;               /* root of the mean square of the finite elements */
    int64_t nonfinite;        /* elements that are not finite */
    int64_t bad_row, bad_col; /* the first of these; -1: none */
} ls_op_range;

/* Called with each output; false ends the trace. */
typedef bool (*ls_op_range_fn)(void *context, const ls_op_range *range);

/* Runs forward and backward of `batch` with a training plan and reports every output. *ended_out:
 * whether `fn` ended the trace early; gradients are incomplete then. Errors: those of the
 * kernels. */
LS_MUST_CHECK ls_status ls_op_trace_run(ls_executor *executor, const ls_executor_batch *batch,
                                        ls_op_range_fn fn, void *context, bool *ended_out);

/* "layer 3 attention forward, value 'layer 3 attention out'"; with an element that is not finite
 * also ", row 17, column 4". */
void ls_op_range_describe(const ls_op_range *range, char *text_out, size_t text_bytes);

/* Measures minimum, maximum, rms and non-finite elements of a matrix; leaves the other fields
 * alone. */
void ls_op_range_measure(const ls_tensor *t, ls_op_range *range);

#endif
