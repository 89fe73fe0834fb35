// SPDX-License-Identifier: Apache-2.0
/*
 * What V leaves cost at a rank count: speed, memory, imbalance. Pure arithmetic over a session's plan.
 *
 * The slowest rank has ceil(V / N) leaves, so a step takes ceil(V / N) * N / V of what an even split would; the rest of the time some ranks
 * are idle. Gradients wait in as many flat buffers per rank as the tree over its leaves needs at once (parallel/tree.h); weights and moments
 * exist once per host.
 */
#ifndef LS_EXECUTION_ELASTIC_COST_H
#define LS_EXECUTION_ELASTIC_COST_H

#include "base/text.h"
#include "execution/train/session.h"

typedef struct ls_ranks_cost {
    uint32_t ranks;
    uint32_t leaves_min, leaves_max; /* of a rank */
    double imbalance;                /* time of a step beside an even split's, >= 1 */
    double idle;                     /* share of the ranks' time that they have no leaf, 0..1 */
    uint32_t buffers_max, buffers;   /* gradient buffers of a rank, of all */
    uint64_t gradient_bytes;         /* of all ranks */
    uint64_t rank_bytes;             /* of the fullest rank: its gradients, activations, tables, process */
    uint64_t host_bytes;             /* of everything on this host, the trainer included */
} ls_ranks_cost;

/* ranks: 1..leaves, all on this host. For one rank: the process that trains, unless the session is of a gang. */
ls_ranks_cost ls_ranks_cost_of(const ls_session *session, uint32_t ranks);

/* A table over rank counts up to job.max_ranks, the one in use marked. */
void ls_ranks_cost_describe(const ls_session *session, ls_text *text);
json_t *ls_ranks_cost_to_json(const ls_ranks_cost *cost);

#endif
