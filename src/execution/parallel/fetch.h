// SPDX-License-Identifier: Apache-2.0
/*
 * ZeRO stage 3 across hosts: the weights of a bucket arrive before it is used and are released
 * after it. For execution/parallel only.
 *
 *   use        0        1        2        3        4        5      of one micro-batch: ranges of plan
 *   bucket     0        1        2        3        2        1      steps that read weights of one
 *                                                                  bucket
 *   transfer   |--1--|  |--2--|  |--3--|  ...                      the weights of the next use travel
 *                                                                  while this one computes
 *
 * All ranks of all hosts go through the same uses, as many rounds as the rank with the most
 * micro-batches has; a rank that has nothing left to compute only takes part in the transfers. A
 * use begins when all local ranks have received their share. A share's pages are released when all
 * local ranks have finished the use, unless the bucket is about to be used again.
 */
#ifndef LS_EXECUTION_PARALLEL_FETCH_H
#define LS_EXECUTION_PARALLEL_FETCH_H

#include "execution/parallel/data_parallel.h"

/* With a pipeline, stages use different buckets at the same time. All weights are then held during
 * the leaves (ls_fetch_hold), and there are no uses. */
static inline bool ls_fetch_is_whole(ls_mesh mesh)
{
    return mesh.pipeline > 1;
}

typedef struct ls_fetch ls_fetch;

/* Collective over all hosts. */
LS_MUST_CHECK ls_status ls_fetch_create(ls_data_parallel *parallel, const ls_data_parallel_options *options,
                                        ls_fetch **fetch_out);
/* NULL allowed, here and in rest, break and leave. */
void ls_fetch_destroy(ls_fetch *fetch);

LS_MUST_CHECK ls_status ls_fetch_before(ls_fetch *fetch, uint32_t plan_step);
/* Takes part in the remaining transfers of the step. */
LS_MUST_CHECK ls_status ls_fetch_rest(ls_fetch *fetch);
LS_MUST_CHECK ls_status ls_fetch_hold(ls_fetch *fetch);
void ls_fetch_break(ls_fetch *fetch);
/* To be called when all local ranks are at the end of the step. */
void ls_fetch_leave(ls_fetch *fetch);

#endif
