// SPDX-License-Identifier: Apache-2.0
/* A host's side of a change of members among several hosts (team/reform.h): fences, what the
 * host reports, finishing a step, a new cut. The trainer's host and the agents of the others do
 * the same to their own segments. Nothing here blocks or waits.
 *
 * For the loop's thread of the process that owns the segment. */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_HOST_SIDE_H
#define LS_EXECUTION_ELASTIC_HOSTS_HOST_SIDE_H

#include "execution/team/reform.h"
#include "execution/train/segment.h"

typedef struct ls_host_side {
    const ls_segment *segment;
    uint32_t host_index;               /* number in the table of hosts */
    bool lives[LS_LOCAL_RANKS_MAX];    /* local ranks that became ready and have not ended */
    bool is_empty[LS_LOCAL_RANKS_MAX]; /* lost and not replaced yet */
    /* Started behind a fence, while the team in force names the one before it in this slot: it has
     * no part before the next cut. */
    bool is_late[LS_LOCAL_RANKS_MAX];
    bool is_starting[LS_LOCAL_RANKS_MAX]; /* a replacement that is not ready yet */
    bool had_rank;
    ls_preflight preflight;              /* of the first rank that was ready */
    uint32_t replaced, replacements_max; /* replacements started so far, and at most */
    uint64_t started_ns;                 /* when the last of them was started */
} ls_host_side;

void ls_host_side_init(ls_host_side *side, const ls_segment *segment, uint32_t host_index,
                       uint32_t replacements_max);
/* False: a replacement that was started from something else than the first rank here (the
 * program has changed, say). It does not count; kill it. */
bool ls_host_side_ready(ls_host_side *side, uint32_t local);
void ls_host_side_lost(ls_host_side *side, uint32_t local);
/* Whether it has a part in the team in force. */
bool ls_host_side_has_part(const ls_host_side *side, uint32_t local);

void ls_host_side_status(const ls_host_side *side, ls_host_status *status_out);

/* gathered: how many gathers all living ranks of this host with a part have completed.
 * set_gathered: before a new cut, what the ranks of all hosts have. */
uint32_t ls_host_side_gathered(const ls_host_side *side);
void ls_host_side_set_gathered(ls_host_side *side, uint32_t gathered);

/* Whether a lost rank should be replaced now: at most replacements_max in all, each after a longer
 * pause than the one before, and none while a fence is up or the team in force names the rank.
 * With crews also behind a fence: the next cut may have to wait for it. When true, the slot counts
 * as taken. */
bool ls_host_side_next_start(ls_host_side *side, uint64_t now_ns, uint32_t *local_out);

/* Raises a fence, or makes the one that is up harder or its limit later. An epoch that is not
 * above the team in force is out of date and has no effect. */
void ls_host_side_fence(ls_host_side *side, uint64_t epoch, bool hard, uint64_t limit);

/* All are parked for `epoch`. With the same cut, the parts that have not finished `step` steps
 * do so, with the verdict of those that agreed on the last of them; then they park for epoch +
 * 1. Parts of ranks that ended go to others of this host. */
void ls_host_side_finish(ls_host_side *side, uint64_t epoch, uint64_t step, const ls_step_verdict *verdict);

/* All are parked for cut->epoch: the new cut. Ranks of a host without parts in it become spares.
 * moves: the state must first be brought to where it belongs, from the holders that `held`
 * names. */
void ls_host_side_form(ls_host_side *side, const ls_cut *cut, const ls_cut *held, bool moves);

#endif
