// SPDX-License-Identifier: Apache-2.0
/*
 * Coordinator: who belongs to the gang, and what happens when a member is late, differs, fails, is lost, comes or goes. One per run; a state
 * machine over base/env (DESIGN I6) that hears from agents, the one of this host and those of others.
 *
 *   STARTING ── all members ready and of one mind ──▶ RUNNING ── end asked, or abort ──▶ ENDING
 *      └── deadline: who did not come is named ──▶ abort
 *
 * One host: it keeps the membership. It gathers facts from the control page and its own table, asks elastic/membership.h what is to be done,
 * does it, and asks again: a rank that is lost is taken over and replaced, one that is wanted or no longer wanted joins or leaves at a step
 * boundary, and only what can't be mended ends the run. Level-triggered (I5): what is to be done follows from what is the case, whatever
 * order things were heard in.
 *
 * Several hosts (options.segment NULL): a loss ends the run.
 *
 * The first reason of an abort stays.
 */
#ifndef LS_EXECUTION_ELASTIC_COORDINATOR_H
#define LS_EXECUTION_ELASTIC_COORDINATOR_H

#include "base/env.h"
#include "base/json.h"
#include "execution/elastic/agent.h"

typedef enum ls_gang_phase {
    LS_GANG_STARTING,
    LS_GANG_RUNNING,
    LS_GANG_ENDING, /* aborted, or told to end */
} ls_gang_phase;

typedef struct ls_coordinator_options {
    ls_env *env;
    uint32_t ranks; /* at first */
    uint64_t epoch;
    bool is_running; /* several hosts: ranks go on that were there before it; `running` is not called */
    uint64_t start_timeout_ns; /* 0: 60 s */

    /* One host. The segment's places are those ranks may have, its team the first one: of places 0..ranks-1. */
    const ls_segment *segment; /* NULL: several hosts */
    uint32_t min_ranks;        /* fewer that live or come end the run; more than `ranks` counts as `ranks` */
    uint32_t max_replacements;
    uint64_t hang_timeout_ns; /* for a rank that shows no sign of life behind a fence; 0: never */

    void *context;
    /* All are ready: steps may be granted. */
    void (*running)(void *context);
    /* Everything must end for this reason; called once. rank: whose fault, -1: nobody's. */
    void (*abort)(void *context, ls_status status, int32_t rank, const char *text);

    /* One host; the calls of its agent (elastic/agent.h). start: LS_OK, or an error whose text is this thread's. */
    ls_status (*start)(void *context, uint32_t local);
    void (*kill)(void *context, uint32_t local);
    /* Takes the place of a coordinator that is gone: ranks are there already. adopt: whether there is one in that place (ls_agent_adopt_rank). NULL:
     * none are. */
    bool (*adopt)(void *context, uint32_t local);
    /* Whether the process is stopped (SIGSTOP), so that no more need be waited for it; NULL: nobody knows. */
    bool (*is_stopped)(void *context, uint32_t local);
    /* The log (elastic/coordinator_log.h) is kept in this folder, borrowed; NULL: none is. An epoch is durable there before its team is published. */
    const char *log_folder;
    const char *identity; /* of the run file, for the log; borrowed */
    bool log_is_needed;   /* without it the run ends (LS_ERR_DISK): somebody is to be able to take over */
    uint64_t (*start_time)(void *context, int32_t pid); /* for the log: of a process; NULL: 0 */

    /* A hard fence stands: who sleeps inside a step should look at it at once. NULL: they do by themselves. */
    void (*fenced)(void *context);
    /* Everyone is parked, `team` is to come. recover: what the dead holder of local part `part` left half said is taken back. recut: nothing
     * of the old cut is left. NULL: there is nothing. */
    void (*recover)(void *context, uint32_t part);
    void (*recut)(void *context, const ls_team *team);
    /* rank_lost, recovered, rank_joined, rank_left, team; takes over `fields`. NULL: nobody hears them. */
    void (*event)(void *context, const char *name, json_t *fields);
} ls_coordinator_options;

typedef struct ls_coordinator ls_coordinator;

LS_MUST_CHECK ls_status ls_coordinator_create(const ls_coordinator_options *options,
                                              ls_coordinator **coordinator_out);
/* Once its env is gone, or never ran. NULL allowed. */
void ls_coordinator_destroy(ls_coordinator *coordinator);
/* The run is over: `done` is called when the log says so, or can't. After the last rank has ended. */
void ls_coordinator_finish(ls_coordinator *coordinator, void (*done)(void *context));

/* One host: starts the ranks, through options.start, and whatever else is to be done. */
void ls_coordinator_begin(ls_coordinator *coordinator);

ls_gang_phase ls_coordinator_phase(const ls_coordinator *coordinator);

/* A member is ready, and made of this. Twice, out of range or after the end: without effect. */
void ls_coordinator_hello(ls_coordinator *coordinator, const ls_preflight_member *hello);
/* What it said; once all are ready, from any thread. */
const ls_preflight_member *ls_coordinator_member(const ls_coordinator *coordinator, uint32_t rank);
/* A member is gone without having been told to end. host: where it was. */
void ls_coordinator_lost(ls_coordinator *coordinator, const char *host, const ls_rank_end *end);
/* One host: a member has left as it was told to. */
void ls_coordinator_left(ls_coordinator *coordinator, uint32_t rank, int32_t pid);

/* One host: whether the team in force names it and it lives. */
bool ls_coordinator_holds_part(const ls_coordinator *coordinator, uint32_t rank);

/*
 * One host, while it runs: there should be so many ranks, from the next step boundary at which they are ready. Those that leave are the
 * highest. Errors: LS_ERR_INVALID outside [min_ranks, places].
 */
LS_MUST_CHECK ls_status ls_coordinator_resize(ls_coordinator *coordinator, uint32_t ranks);
/* The same for one rank: it leaves and its place stays empty. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_coordinator_leave(ls_coordinator *coordinator, uint32_t rank);
/* Kills a rank that is of no use: it is taken over as if it had died. why: "hangs in ..."; becomes part of the cause. */
void ls_coordinator_kill(ls_coordinator *coordinator, uint32_t rank, const char *why);

#endif
