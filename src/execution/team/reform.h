// SPDX-License-Identifier: Apache-2.0
/*
 * Reform: how a run on several hosts continues with other hosts, or with other ranks
 * (docs/design/003-nothing-is-lost.md). The table of hosts, what hosts report once their ranks are
 * parked, and what follows from it. No I/O and no clock: the coordinator's side of the cluster
 * (elastic/hosts/cluster.h) brings messages in and carries orders out; tests ask it directly.
 *
 *              a loss (hard), a host or rank that joins or leaves (soft)
 *   RUNNING ─────────────────────────────────────▶ FENCED ── all are parked ──▶ decide
 *      ▲                                             ▲  │
 *      │                                             │  │ some hosts agreed on the step
 *      │                                             └──┤ that was interrupted: all finish it
 *      │                                                │
 *      └──────────────── form a new cut ────────────────┘
 *
 * Level-triggered: what to do follows from the table of hosts, again and again, until nothing is
 * left to do. Whatever happens meanwhile, such as a second loss, raises a higher fence, and all
 * hosts report anew.
 *
 * Which host has which part of the state. In a cut, the parts of a host are kept by that host; with
 * shadows also by the next one; with ZeRO 0 by all. A new cut counts once some host reports that
 * all hosts have what they keep in it (`held`); until then the cut before counts, whose ranges no
 * host has given up.
 */
#ifndef LS_EXECUTION_TEAM_REFORM_H
#define LS_EXECUTION_TEAM_REFORM_H

#include "base/status.h"
#include "lockstep/comm.h"

enum { LS_REFORM_HOSTS_MAX = LS_COMM_SIZE_MAX, LS_REFORM_NO_HOST = 0xffff };

/* What a host reports about itself: the whole of it whenever some of it has changed. */
typedef struct ls_host_status {
    uint64_t fence; /* the epoch it is fenced for; 0: it is not fenced */
    uint64_t cut;   /* the cut its ranks work in */
    /* the newest cut in which, as far as it knows, all hosts have what they keep */
    uint64_t held;
    uint64_t entered;  /* steps that its furthest part has entered */
    uint64_t finished; /* steps that its slowest part has finished */
    uint64_t agreed;   /* n: it has the verdict on step n - 1; 0: none */
    uint32_t parked;   /* all its living ranks are parked for that fence */
    uint32_t ranks;    /* its ranks that live and are ready */
    /* Lost ranks that are being replaced. */
    uint32_t coming;
    /* Of the ranks, those with a part in the team in force. Only with one of them is the host's
     * memory what it should be. */
    uint32_t bound;
} ls_host_status;

/* How the parts of a cut are distributed: the hosts that have parts, in order. A host number is
 * the index in the table of hosts, for the whole run. */
typedef struct ls_cut_host {
    uint16_t host, first_part, part_count;
    /* In a list of sources: the host that has this host's state; LS_REFORM_NO_HOST: no living
     * host does. */
    uint16_t holder;
} ls_cut_host;

typedef struct ls_cut {
    uint64_t epoch; /* epoch in which it was made */
    uint64_t step;  /* finished steps */
    uint32_t parts, host_count;
    ls_cut_host hosts[LS_REFORM_HOSTS_MAX];
} ls_cut;

typedef struct ls_reform_settings {
    uint32_t parts_max; /* the most parts there can be, whole crews */
    /* Ranks that compute a leaf together (parallel/mesh.h), and those of them that share memory, so
     * that a host has a multiple of them. 0 counts as 1. */
    uint32_t crew, stage_ranks;
    uint32_t min_ranks; /* fewer ranks end the run; at least 1 */
    /* With local steps, the turns of a round (train/local.h), which take the place of steps: hosts
     * are apart within a round, so members change at its end, and a hard fence costs what was done
     * since the newest checkpoint. 0: hosts agree on every step. */
    uint64_t round;
    uint32_t zero;
    bool shadow;
} ls_reform_settings;

typedef struct ls_reform_host {
    bool is_here;    /* its agent answers */
    bool is_leaving; /* it gets no part in the next cut */
    ls_host_status status;
} ls_reform_host;

/* What is to be done next. */
typedef enum ls_reform_what {
    LS_REFORM_WAIT, /* for statuses, or for replacements without which no crew is complete */
    /* All run the steps below `step`, then park: some have entered step `step` - 1 already. */
    LS_REFORM_LIMIT,
    /* Hosts that have not finished `step` steps do so, with the verdict that host `from` has. */
    LS_REFORM_FINISH,
    LS_REFORM_FORM,       /* a new cut after `step` steps */
    LS_REFORM_CHECKPOINT, /* no state of all hosts is left: back to a checkpoint */
    /* Too few ranks are left, or none with a part on host 0, where the trainer is. */
    LS_REFORM_END,
} ls_reform_what;

typedef struct ls_reform_decision {
    ls_reform_what what;
    uint64_t step;
    uint32_t from;
} ls_reform_decision;

/* The fence that all hosts were ordered to raise. */
typedef struct ls_reform_fence {
    uint64_t epoch;
    bool hard; /* ranks park inside a step, and their communicators are broken */
    /* Only a step that was agreed on is run: `limit` stays, whatever was entered before. */
    bool is_finishing;
    uint64_t limit; /* steps below it are run */
} ls_reform_fence;

/* Pure. hosts[0..count): by host number. cuts: those that may be held, the newest first
 * (cut_count is 1 or 2). */
ls_reform_decision ls_reform_decide(const ls_reform_settings *settings, const ls_reform_host *hosts,
                                    uint32_t count, const ls_cut *const *cuts, uint32_t cut_count,
                                    const ls_reform_fence *fence);

/* Which of the cuts is held. */
const ls_cut *ls_reform_held(const ls_reform_host *hosts, uint32_t count, const ls_cut *const *cuts,
                             uint32_t cut_count);

/* Fills in which host has the state of each host of `cut`, among those that have a part in a cut
 * made now. Returns whether all of it is somewhere. */
bool ls_reform_find_holders(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count,
                            ls_cut *cut);

/* The number of parts a host has. */
uint32_t ls_reform_parts(const ls_cut *cut, uint32_t host);

/* Makes a cut among the hosts that are here, in the order of their numbers: a part for each
 * rank, as long as there are leaves; of crews, as many as can be complete. They lie within hosts
 * unless that costs one. part_count: the parts it would have; 0: no crew is complete. */
uint32_t ls_reform_part_count(const ls_reform_settings *settings, const ls_reform_host *hosts,
                              uint32_t count);
void ls_reform_cut(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count,
                   uint64_t epoch, uint64_t step, ls_cut *cut_out);

#endif
