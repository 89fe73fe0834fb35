// SPDX-License-Identifier: Apache-2.0
/*
 * Membership: what is to be done next about the ranks of a host, as a pure function of the present
 * facts (invariant I5).
 *
 *   facts (slots and their processes, parts     ──▶ ls_membership_next ──▶ one action
 *          and their holders, fence)                                          │
 *     ▲                                                                       │
 *     └────────── elastic/host/coordinator.c gathers them, carries it out ◀───┘
 *
 * There is no history: the same facts have the same answer, whatever happened in whatever order. So
 * a second death in the middle of a recovery, a coordinator that starts again, or a rank that joins
 * and leaves need no case of their own. The caller carries the action out, looks again, and asks
 * again until nothing is left to do.
 *
 *   the holder of a part has died      hard fence; every process that could write is parked; the
 *                                      part goes to the rank with the fewest; same cut, same step
 *   no rank is left to hold it         wait for a replacement; when none is possible, end the run
 *   the ranks that compute are not     soft fence; all ranks stop after the same step; the step is
 *   the ranks that should              cut anew
 *   fewer than min_ranks are left      finish the current step first, then end the run; when no
 *                                      rank is left to finish it, start one more process for that
 *
 * Crews (parallel/mesh.h). The parts of a crew are held by the slots of one block of `crew` slots,
 * each always by the same slot, because a process is made for its place in the mesh. So an orphan
 * part waits for the replacement in its slot, and a team consists of the blocks whose ranks are all
 * usable.
 *
 * Why this is safe. Only a process that knows a team acts in it. A process is `bound` when it may
 * act in the team in force: it lived before the fence was raised, and the team names its slot. A
 * new team is published only when every bound process is parked, or dead and reaped; so two
 * processes never hold a part at the same time.
 */
#ifndef LS_EXECUTION_TEAM_MEMBERSHIP_H
#define LS_EXECUTION_TEAM_MEMBERSHIP_H

#include "execution/team/team.h"

#include <stdbool.h>

typedef enum ls_slot_state {
    LS_SLOT_EMPTY,    /* no process */
    LS_SLOT_STARTING, /* being started */
    LS_SLOT_READY,    /* has passed the pre-flight check */
    LS_SLOT_KILLED,   /* was sent SIGKILL; its exit has not been seen */
} ls_slot_state;

/* A slot for a rank. */
typedef struct ls_slot_facts {
    ls_slot_state state;
    bool wanted;    /* there should be a process */
    bool startable; /* empty: a process may be started now */
    bool hopeful;   /* empty: a process may be started now or later */
    /* Its process was started after the fence that is up was raised: it knows no team. */
    bool fresh;
    bool parked;
    bool late;    /* has not become ready, parked, left or died in time */
    bool leaving; /* was told to leave */
} ls_slot_facts;

typedef struct ls_part_facts {
    uint32_t holder; /* a slot */
    bool orphan;     /* its holder has died since it got the part */
    uint64_t entered, done;
} ls_part_facts;

typedef struct ls_membership_facts {
    bool begun;    /* all ranks were ready once: steps are granted */
    bool stopping; /* the current step is given up, and the run ends */
    bool ending;   /* aborted, or told to end */
    bool deadly;   /* some work crashes every rank that does it */
    /* No more replacements are allowed, but one process may be started to finish the step that
     * was interrupted. */
    bool may_finish;
    bool finishing; /* that process was started: after its step the run ends */
    uint32_t min_ranks;
    uint32_t crew; /* ranks that compute a leaf together; 0 counts as 1 */
    uint32_t slots, parts;
    uint64_t epoch, cut, first_step; /* of the team in force */
    uint64_t fence, limit;
    bool hard;
    uint64_t reported; /* the most finished steps of which a rank has reported the results */
    ls_slot_facts slot[LS_LOCAL_RANKS_MAX];
    ls_part_facts part[LS_LOCAL_RANKS_MAX];
} ls_membership_facts;

typedef enum ls_membership_do {
    LS_MEMBERSHIP_WAIT,  /* nothing, until something changes */
    LS_MEMBERSHIP_START, /* start a process in slot `rank` */
    LS_MEMBERSHIP_KILL,  /* kill the process in slot `rank` */
    LS_MEMBERSHIP_LEAVE, /* tell the process in slot `rank` to end; it has no part */
    LS_MEMBERSHIP_FENCE, /* raise a fence: `epoch`, `hard` */
    LS_MEMBERSHIP_LIMIT, /* raise the limit of the fence to `step` */
    /* Publish `team`. A new cut if its cut is its epoch; else recover the orphan parts first. */
    LS_MEMBERSHIP_TEAM,
    /* All ranks of the team are ready: compare what they were started from, then grant steps. */
    LS_MEMBERSHIP_BEGIN,
    LS_MEMBERSHIP_END, /* end the run, for the reason in `end` */
} ls_membership_do;

typedef enum ls_membership_end {
    LS_MEMBERSHIP_TOO_FEW, /* fewer than min_ranks live or are about to start */
    LS_MEMBERSHIP_DEADLY,  /* the fact `deadly` */
    /* The process in slot `rank` was killed and does not die: no other may touch the state. */
    LS_MEMBERSHIP_UNKILLABLE,
} ls_membership_end;

typedef struct ls_membership_action {
    ls_membership_do what;
    uint32_t rank;
    bool hard;
    uint64_t epoch, step;
    ls_team team; /* of one host: first_part is 0, local_parts = parts */
    ls_membership_end end;
} ls_membership_action;

void ls_membership_next(const ls_membership_facts *facts, ls_membership_action *action_out);

/* Whether the process in `slot` is bound (see above). */
bool ls_membership_is_bound(const ls_membership_facts *facts, uint32_t slot);

#endif
