// SPDX-License-Identifier: Apache-2.0
/*
 * ZeRO stage 3 across hosts: weights of a bucket come before it is used and go behind it. For execution/parallel alone.
 *
 *   use           0        1        2        3        4        5          of one micro-batch: stretches of plan steps that read the weights of
 *   bucket        0        1        2        3        2        1  ...     one bucket
 *   transfer      |--1--|  |--2--|  |--3--| ...                           the next use's weights travel while this one computes
 *
 * All ranks of all hosts go through the same uses, as many rounds as the rank with the most micro-batches has; who has nothing left to compute
 * takes part in the transfers alone. A use begins when all local ranks have received their share, and a share's pages are given back when all
 * local ranks are behind the use, unless the bucket is about to be used again.
 */
#ifndef LS_EXECUTION_PARALLEL_FETCH_H
#define LS_EXECUTION_PARALLEL_FETCH_H

#include "execution/parallel/data_parallel.h"

typedef struct ls_fetch ls_fetch;

/* Collective over all hosts. */
LS_MUST_CHECK ls_status ls_fetch_create(ls_data_parallel *parallel, const ls_data_parallel_options *options,
                                        ls_fetch **fetch_out);
void ls_fetch_destroy(ls_fetch *fetch); /* NULL allowed, as in the calls below */

LS_MUST_CHECK ls_status ls_fetch_before(ls_fetch *fetch, uint32_t plan_step);
/* Takes part in what is left of the step's transfers. */
LS_MUST_CHECK ls_status ls_fetch_rest(ls_fetch *fetch);
LS_MUST_CHECK ls_status ls_fetch_hold(ls_fetch *fetch);
void ls_fetch_break(ls_fetch *fetch);
/* All local ranks are at the end of the step. */
void ls_fetch_leave(ls_fetch *fetch);

#endif
