// SPDX-License-Identifier: Apache-2.0
/*
 * Membership: what is to be done next about the ranks of a host, as a pure function of what is the case (DESIGN I5).
 *
 *   facts  (places and their processes, parts and their holders, fence)  ──▶ ls_membership_next ──▶ one action
 *      ▲                                                                                              │
 *      └──────────────────────────── elastic/coordinator.c gathers, carries out ◀─────────────────────┘
 *
 * No history: whatever happened, in whatever order, the same facts have the same answer, so a second death in the middle of a recovery, a
 * coordinator that starts again, or a rank that comes and goes need no case of their own. The caller carries the action out, looks again,
 * and asks again until there is nothing to do.
 *
 *   a part's holder has died            hard fence; all that could write are parked; its part goes to who has least; same cut, same step
 *   nobody is left to hold it           a replacement is waited for; none can come: the end
 *   who computes is not who should      soft fence; all stand behind the same step; the step is cut anew
 *   fewer than min_ranks live or come   the step that runs is finished first, then the end; when nobody is left to do it, by one more process
 *
 * Why it is safe. Only a process that knows a team acts in it. `bound` is who may: it lived before the fence was raised and the team in
 * force names it. A new team needs all bound processes parked, or dead and reaped; so two processes never hold a part at once.
 */
#ifndef LS_EXECUTION_ELASTIC_MEMBERSHIP_H
#define LS_EXECUTION_ELASTIC_MEMBERSHIP_H

#include "execution/elastic/segment.h"

typedef enum ls_place_state {
    LS_PLACE_EMPTY,  /* no process */
    LS_PLACE_COMING, /* starts */
    LS_PLACE_READY,  /* has passed the pre-flight check */
    LS_PLACE_KILLED, /* was sent SIGKILL; its exit has not been seen */
} ls_place_state;

/* A place for a rank. */
typedef struct ls_place {
    ls_place_state state;
    bool wanted;    /* there should be one */
    bool startable; /* empty: a process may be started now */
    bool hopeful;   /* empty: one may be started now or later */
    bool fresh;     /* its process was started behind the fence that stands: it knows no team */
    bool parked;
    bool late;    /* has not come, parked, left, or died in its time */
    bool leaving; /* was told to */
} ls_place;

typedef struct ls_part_facts {
    uint32_t holder; /* the place */
    bool orphan;     /* its holder has died since it was given it */
    uint64_t entered, done;
} ls_part_facts;

typedef struct ls_membership_facts {
    bool begun;    /* all were ready once: steps are granted */
    bool stopping; /* the step that runs is given up, and the run ends */
    bool ending;   /* aborted, or told to end */
    bool deadly;   /* some work kills whoever does it */
    bool
        may_finish; /* nobody may be replaced any more, but one process may be started to finish the step that was interrupted */
    bool finishing; /* it was: behind that step the run ends */
    uint32_t min_ranks;
    uint32_t places, parts;
    uint64_t epoch, cut, first_step; /* of the team in force */
    uint64_t fence, limit;
    bool hard;
    uint64_t told; /* most finished steps that a rank has told the results of */
    ls_place place[LS_LOCAL_RANKS_MAX];
    ls_part_facts part[LS_LOCAL_RANKS_MAX];
} ls_membership_facts;

typedef enum ls_membership_do {
    LS_MEMBERSHIP_WAIT,  /* nothing, until something changes */
    LS_MEMBERSHIP_START, /* a process in place `rank` */
    LS_MEMBERSHIP_KILL,  /* the process in place `rank` */
    LS_MEMBERSHIP_LEAVE, /* tell it to end: it holds nothing */
    LS_MEMBERSHIP_FENCE, /* raise one: `epoch`, `hard` */
    LS_MEMBERSHIP_LIMIT, /* raise it to `step` */
    LS_MEMBERSHIP_TEAM, /* publish `team`. Its cut is its epoch: a new cut; else orphan parts are recovered first */
    LS_MEMBERSHIP_BEGIN, /* all are ready, in the team in force: compare what they are made of, grant steps */
    LS_MEMBERSHIP_END,   /* for the reason in `end` */
} ls_membership_do;

typedef enum ls_membership_end {
    LS_MEMBERSHIP_TOO_FEW,    /* fewer than min_ranks live or come */
    LS_MEMBERSHIP_DEADLY,     /* as the fact */
    LS_MEMBERSHIP_UNKILLABLE, /* place `rank` was killed and does not die: nobody else may touch the state */
} ls_membership_end;

typedef struct ls_membership_action {
    ls_membership_do what;
    uint32_t rank;
    bool hard;
    uint64_t epoch, step;
    ls_team team; /* of one host: first_part 0, local_parts = parts */
    ls_membership_end end;
} ls_membership_action;

void ls_membership_next(const ls_membership_facts *facts, ls_membership_action *action_out);

/* Whether the process in `place` may act in the team in force (see above). */
bool ls_membership_is_bound(const ls_membership_facts *facts, uint32_t place);

#endif
