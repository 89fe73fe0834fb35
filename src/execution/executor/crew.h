// SPDX-License-Identifier: Apache-2.0
/*
 * The crew: the ranks that compute one leaf together, as one member sees it.
 *
 * stage 0 members 0 1 | 2 3 tensor groups 0 1 and 2 3: each member computes its pieces of every |
 * | | | | product, and `reduce` adds the partial sums | context groups 0 2 and 1 3: each has its
 * pieces of every sequence v send, receive stage 1 members 0 1 | 2 3 the next layers
 *
 * The executor and the runner of stages call these functions between kernels; whoever creates the
 * crew decides what carries the bytes (shared memory: execution/parallel/crew_room.h). A process
 * that computes alone has no crew: a NULL pointer in ls_executor_batch.
 *
 * Order. All members of a group make the same calls of reduce, gather, gather_rows,
 * scatter_rows and exchange in the same order.
 * The n-th send of a stage to another on one way meets the n-th receive there; member i of a stage
 * talks to member i of the other.
 *
 * Exactness. reduce adds as the tree over members does: an interval [a, b) splits at a plus the
 * largest power of two below b - a. With a degree that divides the cut, and each member adding its
 * own pieces in the tree first, every degree gives the bits of one member that holds all pieces.
 *
 * Waits. Each call waits for the others at most until a deadline or a fence. Errors: LS_FENCED when
 * the team changes, LS_ERR_TIMEOUT with the ranks that did not come, LS_ERR_MISMATCH when members
 * call with other shapes or take other sizes than they are given. After an error the crew is not
 * used again.
 *
 * Buffers are the caller's: float32 in host memory, rows of `values->stride` floats. They may be
 * reused when a call returns. No call allocates.
 */
#ifndef LS_EXECUTION_EXECUTOR_CREW_H
#define LS_EXECUTION_EXECUTOR_CREW_H

#include "compute/tensor.h"
#include "lockstep/status.h"

#include <stddef.h>

/* Which members take part in a sum or gather. */
typedef enum ls_crew_group { LS_CREW_TENSOR, LS_CREW_CONTEXT, LS_CREW_EXPERT, LS_CREW_GROUPS } ls_crew_group;

/* Adjacent floats that a member gives to another, or takes from it. */
typedef struct ls_crew_block {
    float *data;
    int64_t count;
} ls_crew_block;

typedef enum ls_crew_reduction { LS_CREW_SUM, LS_CREW_MAX } ls_crew_reduction;

/* Activations travel to later layers, their gradients to earlier ones. */
typedef enum ls_crew_way { LS_CREW_FORWARD, LS_CREW_BACKWARD, LS_CREW_WAYS } ls_crew_way;

typedef struct ls_crew {
    void *context; /* first argument of the calls */
    /* Of the tensor group: a power of two, and this member's number. */
    uint32_t tensor_degree, tensor_member;
    /* Of the context group: the same. */
    uint32_t context_degree, context_member;
    /* Of the expert group, whose members compute different leaves: the same. */
    uint32_t expert_degree, expert_member;
    uint32_t stages, stage;

    /* In place, over a group: all its members get the same bits. */
    ls_status (*reduce)(void *context, ls_crew_group group, ls_crew_reduction reduction,
                        const ls_tensor *values);
    /* all_out: the `own` of each member of the group in order, `bytes` each; must not overlap own.
     * */
    ls_status (*gather)(void *context, ls_crew_group group, const void *own, size_t bytes, void *all_out);
    /* Matrices of rows of which each member of the tensor group has its piece, that of
     * tensor_member of tensor_degree (base/pieces.h). gather_rows writes all rows of `all`,
     * scatter_rows the rows of the member of the sum of `values` over the group. All are
     * contiguous and do not overlap. */
    ls_status (*gather_rows)(void *context, const ls_tensor *own, const ls_tensor *all);
    ls_status (*scatter_rows)(void *context, const ls_tensor *values, const ls_tensor *own);
    /* Between the members of the expert group: give[i] goes to member i, take[i] is filled by it.
     * What one gives another must have the size that the other takes. */
    ls_status (*exchange)(void *context, const ls_crew_block *give, const ls_crew_block *take);
    /* Sends to another stage. Returns when the values have been copied; that needs a wait only
     * while LS_CREW_SENDS_AHEAD values sent there on this way have not been received. */
    ls_status (*send)(void *context, ls_crew_way way, uint32_t to_stage, const ls_tensor *values);
    ls_status (*receive)(void *context, ls_crew_way way, uint32_t from_stage, const ls_tensor *values);
} ls_crew;

enum { LS_CREW_SENDS_AHEAD = 2 };

#endif
