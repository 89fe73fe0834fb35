// SPDX-License-Identifier: Apache-2.0
/*
 * Coordinator: who belongs to the workers of a run, and what happens when a member is late,
 * differs, fails, is lost, joins or leaves. One for each run; a state machine over env (I6)
 * that hears from agents, that of this host and those of others.
 *
 *   STARTING ── all members are ready and agree ──▶ RUNNING ── end asked, or abort ──▶ ENDING
 *      └── deadline: missing ranks are named ──▶ abort
 *
 * One host: the coordinator keeps the membership. It gathers facts from the control page and its
 * own table, asks team/membership.h what is to be done, does it, and asks again. A lost rank's work
 * is taken over and the rank replaced; a rank that is wanted, or no longer wanted, joins or leaves
 * at a step boundary; only what cannot be repaired ends the run. Level-triggered (I5): what is to
 * be done follows from the present facts, in whatever order things were heard.
 *
 *   exit, hello, timer ──▶ gather facts ──▶ ls_membership_next ──▶ carry out ──┐
 *                              ▲                                               │ until the answer
 *                              └───────────────────────────────────────────────┘ is WAIT or END
 *
 * Several hosts (options.segment is NULL): it only waits until all ranks are ready and compares
 * them. What a loss means is then decided by elastic/hosts/cluster.h, or before that it ends the
 * run.
 *
 * The first reason for an abort is the one that is kept.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_COORDINATOR_H
#define LS_EXECUTION_ELASTIC_HOST_COORDINATOR_H

#include "base/json.h"
#include "env/env.h"
#include "execution/elastic/host/agent.h"
#include "execution/parallel/mesh.h"

typedef enum ls_workers_phase {
    LS_WORKERS_STARTING,
    LS_WORKERS_RUNNING,
    LS_WORKERS_ENDING, /* aborted, or told to end */
} ls_workers_phase;

typedef struct ls_coordinator_options {
    ls_env *env;
    uint32_t ranks; /* when the run begins */
    uint64_t epoch;
    /* Several hosts: the ranks run already, from before this coordinator; `running` is not
     * called. */
    bool is_running;
    uint64_t start_timeout_ns; /* 0: 60 s */

    /* One host. The slots of the segment are the ranks the run may come to have; its first team
     * are the ranks 0..ranks-1. */
    const ls_segment *segment; /* NULL: several hosts */
    /* The run ends when fewer ranks live or are about to start. More than `ranks` counts as
     * `ranks`. */
    uint32_t min_ranks;
    ls_mesh mesh; /* how ranks divide the model; zeros: they do not */
    uint32_t max_replacements;
    /* How long a rank may show no sign of life while a fence is up; 0: for ever. */
    uint64_t hang_timeout_ns;

    void *context;
    /* All ranks are ready: steps may be granted. */
    void (*running)(void *context);
    /* The run must end for this reason; called once. rank: at fault, or -1. */
    void (*abort)(void *context, ls_status status, int32_t rank, const char *text);

    /* One host; calls to its agent (elastic/host/agent.h). start: LS_OK, or an error whose text
     * is in this thread's error buffer. */
    ls_status (*start)(void *context, uint32_t local);
    void (*kill)(void *context, uint32_t local);
    /* For a coordinator that succeeds one that is gone and left ranks running. Returns whether
     * this slot has one (ls_agent_adopt_rank). NULL: none were left. */
    bool (*adopt)(void *context, uint32_t local);
    /* Whether the process is stopped (SIGSTOP), so that waiting longer is no use. NULL: not
     * known. */
    bool (*is_stopped)(void *context, uint32_t local);
    /* Folder of the log (elastic/host/coordinator_log.h), borrowed; NULL: no log. An epoch is
     * durable there before its team is published. */
    const char *log_folder;
    const char *identity; /* identity of the run file, for the log; borrowed */
    /* Without a log the run ends (LS_ERR_DISK), because another trainer could not take over. */
    bool log_is_needed;
    /* start time of a process, for the log; NULL: 0 */
    uint64_t (*start_time)(void *context, int32_t pid);

    /* A hard fence is up: ranks that sleep inside a step should look at it at once. NULL: they
     * look by themselves. */
    void (*fenced)(void *context);
    /* All ranks are parked and `team` is about to be published. recover: takes back what the
     * dead holder of local part `part` had half announced. rewind: the team has the same cut, so
     * interrupted crews compute their leaf again. recut: clears everything of the old cut. NULL:
     * nothing to do. */
    void (*recover)(void *context, uint32_t part);
    void (*rewind)(void *context);
    void (*recut)(void *context, const ls_team *team);
    /* The events rank_lost, recovered, rank_joined, rank_left and team; takes over `fields`.
     * NULL: events are dropped. */
    void (*event)(void *context, const char *name, json_t *fields);
} ls_coordinator_options;

typedef struct ls_coordinator ls_coordinator;

LS_MUST_CHECK ls_status ls_coordinator_create(const ls_coordinator_options *options,
                                              ls_coordinator **coordinator_out);
/* After its env is gone, or never ran. NULL allowed. */
void ls_coordinator_destroy(ls_coordinator *coordinator);
/* The run is over: `done` is called when the log says so, or cannot be written. Call it after
 * the last rank has ended. */
void ls_coordinator_finish(ls_coordinator *coordinator, void (*done)(void *context));

/* One host: starts the ranks, through options.start, and whatever else is due. */
void ls_coordinator_begin(ls_coordinator *coordinator);

/* A member is ready, and this is what it was started from. No effect when it comes twice, is out
 * of range or comes after the end. */
void ls_coordinator_hello(ls_coordinator *coordinator, const ls_preflight_member *hello);
/* What it said; once all are ready, from any thread. */
const ls_preflight_member *ls_coordinator_member(const ls_coordinator *coordinator, uint32_t rank);
/* A member ended without having been told to. host: where it ran. */
void ls_coordinator_lost(ls_coordinator *coordinator, const char *host, const ls_rank_end *end);
/* One host: a member has left, as it was told to. */
void ls_coordinator_left(ls_coordinator *coordinator, uint32_t rank, int32_t pid);

/* One host: whether it lives and has a part in the team in force. */
bool ls_coordinator_holds_part(const ls_coordinator *coordinator, uint32_t rank);

/* One host, RUNNING: the run is to have `ranks` ranks, a multiple of the crew, from the next step
 * boundary at which they are ready. The highest leave. Errors: LS_ERR_INVALID outside [min_ranks,
 * slots]. */
LS_MUST_CHECK ls_status ls_coordinator_resize(ls_coordinator *coordinator, uint32_t ranks);
/* The same for one rank: it leaves, and its slot stays empty. Errors: LS_ERR_INVALID, also for a
 * rank of a crew. */
LS_MUST_CHECK ls_status ls_coordinator_leave(ls_coordinator *coordinator, uint32_t rank);
/* Kills a rank that is of no use; its work is taken over as if it had died. why: "hangs in ...",
 * which becomes part of the cause. */
void ls_coordinator_kill(ls_coordinator *coordinator, uint32_t rank, const char *why);

#endif
