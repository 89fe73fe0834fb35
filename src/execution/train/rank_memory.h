// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of V leaves at a given number of ranks: speed, memory, imbalance. Pure arithmetic over a
 * session's plan.
 *
 * The slowest rank has ceil(V / N) leaves, so a step takes ceil(V / N) * N / V times as long as
 * with an even split; some ranks are idle for the rest of it. Each rank needs as many flat gradient
 * buffers as the tree over its leaves holds at once (transport/tree.h); weights and moments exist
 * once per host.
 */
#ifndef LS_EXECUTION_TRAIN_RANK_MEMORY_H
#define LS_EXECUTION_TRAIN_RANK_MEMORY_H

#include "base/text.h"
#include "execution/train/session.h"

typedef struct ls_ranks_cost {
    uint32_t ranks;
    uint32_t leaves_min, leaves_max; /* of a rank, with a mesh together with its crew */
    double imbalance;                /* time of a step relative to an even split, >= 1 */
    double idle;                     /* share of the ranks' time without a leaf, 0..1 */
    uint32_t buffers_max, buffers;   /* gradient buffers of a rank, of all */
    uint64_t gradient_bytes;         /* of all ranks */
    /* largest memory of a rank: gradients, activations, tables, process */
    uint64_t rank_bytes;
    uint64_t host_bytes; /* total on this host, including the trainer */
} ls_ranks_cost;

/* ranks: 1..leaves, with a mesh whole crews, at most one per leaf, all on this host. One rank means
 * the training process itself, unless the session has separate rank processes. */
ls_ranks_cost ls_ranks_cost_of(const ls_session *session, uint32_t ranks);

/* Prints a table over rank counts up to job.max_ranks; the one in use is marked. */
void ls_ranks_cost_describe(const ls_session *session, ls_text *text);
json_t *ls_ranks_cost_to_json(const ls_ranks_cost *cost);

#endif
