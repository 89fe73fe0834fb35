// SPDX-License-Identifier: Apache-2.0
/*
 * Reform: how a run on several hosts goes on with other hosts, or other ranks (docs/design/003-nothing-is-lost.md). Who is there, what they
 * say once their ranks are parked, and what follows from it. No I/O, no clock: the coordinator's side of the cluster (elastic/cluster.h)
 * carries messages in and orders out; tests ask it directly.
 *
 *              lost (hard), comes or leaves (soft)
 *   RUNNING ─────────────────────────────────────▶ FENCED ── all have parked ──▶ decide
 *      ▲                                             ▲  │
 *      │                                   a step that some have agreed on is finished by all
 *      └──────────── form: a new cut ────────────────┴──┘
 *
 * Level-triggered: what to do follows from the table of hosts, again and again, until nothing is left to do. Whatever happens meanwhile, a
 * second loss say, raises a higher fence, and all say anew what they have.
 *
 * Who holds what. In a cut, the parts of a host are kept by that host, and by the next one with shadows, by all with ZeRO 0. A new cut counts
 * once somebody says that the state is where it says (`held`); until then the one before does, whose ranges nobody has given up.
 */
#ifndef LS_EXECUTION_ELASTIC_REFORM_H
#define LS_EXECUTION_ELASTIC_REFORM_H

#include "base/status.h"
#include "lockstep/comm.h"

enum { LS_REFORM_HOSTS_MAX = LS_COMM_SIZE_MAX, LS_REFORM_NOBODY = 0xffff };

/* What a host says of itself; the whole of it whenever some of it changed. */
typedef struct ls_host_status {
    uint64_t fence;    /* the epoch that it is fenced for; 0: none */
    uint64_t cut;      /* its ranks work in */
    uint64_t held;     /* the newest cut of which it knows that all hosts have what they keep */
    uint64_t entered;  /* steps, the most of its parts */
    uint64_t finished; /* the least */
    uint64_t agreed;   /* n: it has the verdict on step n - 1; 0: none */
    uint32_t parked;   /* all its ranks that live are, for that fence */
    uint32_t ranks;    /* of it that live and are ready */
    uint32_t
        bound; /* those of them that hold a part in the team in force: by them its memory is what it should be */
} ls_host_status;

/* How the parts of a cut lie on hosts: those with parts, in order. Host numbers are places in the table of hosts, for the whole run. */
typedef struct ls_cut_host {
    uint16_t host, first_part, part_count;
    uint16_t
        holder; /* in a list of sources: the host that has its state; LS_REFORM_NOBODY: none that lives */
} ls_cut_host;

typedef struct ls_cut {
    uint64_t epoch; /* in which it was made */
    uint64_t step;  /* finished steps */
    uint32_t parts, host_count;
    ls_cut_host hosts[LS_REFORM_HOSTS_MAX];
} ls_cut;

typedef struct ls_reform_settings {
    uint32_t leaves;    /* the most parts */
    uint32_t min_ranks; /* fewer end the run; at least 1 */
    uint32_t zero;
    bool shadow;
} ls_reform_settings;

typedef struct ls_reform_host {
    bool is_here;    /* its agent answers */
    bool is_leaving; /* gets no part in the next cut */
    ls_host_status status;
} ls_reform_host;

/* What is to be done next. */
typedef enum ls_reform_what {
    LS_REFORM_WAIT,  /* for statuses */
    LS_REFORM_LIMIT, /* all run the steps below `step`, then park: some have entered that one's predecessor */
    LS_REFORM_FINISH, /* hosts that have not finished `step` steps do, with the verdict that host `from` has */
    LS_REFORM_FORM,   /* a new cut behind `step` steps */
    LS_REFORM_CHECKPOINT, /* part of the state is nowhere: back to a checkpoint */
    LS_REFORM_END,        /* too few ranks, or none that holds a part beside the trainer, on host 0 */
} ls_reform_what;

typedef struct ls_reform_decision {
    ls_reform_what what;
    uint64_t step;
    uint32_t from;
} ls_reform_decision;

/* What all were ordered. */
typedef struct ls_reform_fence {
    uint64_t epoch;
    bool hard;         /* they park inside a step, and their communicators are broken */
    bool is_finishing; /* only a step that was agreed on is run: `limit` stays, whatever was entered before */
    uint64_t limit;    /* steps below it are run */
} ls_reform_fence;

/* Pure. hosts[0..count): by place. cuts: those that may be held, the newest first (cut_count 1 or 2). */
ls_reform_decision ls_reform_decide(const ls_reform_settings *settings, const ls_reform_host *hosts,
                                    uint32_t count, const ls_cut *const *cuts, uint32_t cut_count,
                                    const ls_reform_fence *fence);

/* The cut that is held, of those that may be. */
const ls_cut *ls_reform_held(const ls_reform_host *hosts, uint32_t count, const ls_cut *const *cuts,
                             uint32_t cut_count);

/* Fills in who has the state of each host of `cut`. Whether all of it is somewhere. */
bool ls_reform_find_holders(const ls_reform_settings *settings, const ls_reform_host *hosts, ls_cut *cut);

/* Parts of a host; 0: it has none. */
uint32_t ls_reform_parts(const ls_cut *cut, uint32_t host);

/* The cut among the hosts that are here, in the order of their places: a part for each rank, as far as leaves go round. */
void ls_reform_cut(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count,
                   uint64_t epoch, uint64_t step, ls_cut *cut_out);

#endif
