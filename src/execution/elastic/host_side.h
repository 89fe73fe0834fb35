// SPDX-License-Identifier: Apache-2.0
/*
 * A host's side of a change of members among several hosts: fences, what it says of itself, finishing a step, a new cut
 * (elastic/reform.h). The trainer's host and the agents of others do the same to their segments. Nothing here blocks or waits.
 *
 * For the loop's thread of the process that has the segment.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_SIDE_H
#define LS_EXECUTION_ELASTIC_HOST_SIDE_H

#include "execution/elastic/reform.h"
#include "execution/elastic/segment.h"

typedef struct ls_host_side {
    const ls_segment *segment;
    uint32_t place;                    /* in the table of hosts */
    bool lives[LS_LOCAL_RANKS_MAX];    /* local ranks that are ready and have not ended */
    bool is_empty[LS_LOCAL_RANKS_MAX]; /* lost, and nobody was started in their place */
    bool had_rank;
    ls_preflight preflight; /* of the first that was ready */
    uint32_t replaced;      /* processes that were started in the place of others */
    uint64_t started_ns;    /* the last of them */
} ls_host_side;

void ls_host_side_init(ls_host_side *side, const ls_segment *segment, uint32_t place);
/* False: a replacement that is not made of what the first rank here was (the program has changed, say). It does not count and is to be ended. */
bool ls_host_side_ready(ls_host_side *side, uint32_t local);
void ls_host_side_lost(ls_host_side *side, uint32_t local);
/* In the team in force. */
bool ls_host_side_has_part(const ls_host_side *side, uint32_t local);

void ls_host_side_status(const ls_host_side *side, ls_host_status *status_out);

/* Gathers that all ranks of this host that live and have a part have taken part in; and what those of all hosts have, before a new cut. */
uint32_t ls_host_side_gathered(const ls_host_side *side);
void ls_host_side_set_gathered(ls_host_side *side, uint32_t gathered);

/*
 * Whether a process is to be started in the place of a rank that was lost, of `most` in all: when no fence stands and the team in force does
 * without it. The more there were, the longer it waits. The place counts as taken then.
 */
bool ls_host_side_next_start(ls_host_side *side, uint32_t most, uint64_t now_ns, uint32_t *local_out);

/* Raises a fence, or makes the one that stands harder or later; what is not above the team in force is out of date and does nothing. */
void ls_host_side_fence(ls_host_side *side, uint64_t epoch, bool hard, uint64_t limit);

/*
 * Parked for `epoch`: with the same cut, all that have not yet finish `step` steps, with the verdict of those that agreed on the last of them;
 * then they park for epoch + 1. What ranks that ended held goes to others of this host.
 */
void ls_host_side_finish(ls_host_side *side, uint64_t epoch, uint64_t step, const ls_step_verdict *verdict);

/* Parked for cut->epoch: the new cut. The ranks of a host that has no part in it are spares. moves: the state has to be brought to where it belongs first,
 * from the holders of `held`. */
void ls_host_side_form(ls_host_side *side, const ls_cut *cut, const ls_cut *held, bool moves);

#endif
