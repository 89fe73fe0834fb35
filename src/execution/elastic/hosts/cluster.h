// SPDX-License-Identifier: Apache-2.0
/*
 * Cluster: the coordinator's side of a run on several hosts. A state machine over env (I6)
 * that runs beside the coordinator's member table (elastic/host/coordinator.h), in the trainer's
 * service thread.
 *
 *   trainer's host                                   other hosts
 *     control page ◀── read every 2 ms                 lockstep agent: control page, segment, ranks
 *     cluster ──────── store (comm/store/store.h) ────── one long-lived socket per agent
 *     ranks ────────── the same store ────────────────── ranks: a socket each; their communicator
 *                                                        meets there
 *
 * Orders are level-triggered: when the control page of the trainer's host changes (grant, stop,
 * quit, gather, abort), every agent is sent all of the orders, not the difference. An agent whose
 * link ends, or that is silent for the lease, counts as a lost host. Ranks talk to the store
 * themselves; agents relay nothing.
 *
 * The life of a cluster:
 *
 *   STARTING ── all ranks ready ──▶ RUNNING ── quit or abort in the control page ──▶ ENDING
 *      │                             │    ▲                                      until all agents
 *      │ deadline: abort      a loss │    │ a new cut                            have ended, or 6 s
 *      ▼                or a change  ▼    │
 *   aborted                         FENCED
 *                                     ▲
 *   RETURNING ── roll call is over ───┘      where a trainer that takes over begins
 *
 * Joining. While the run is under way, the host number of a host that was lost or has left is free.
 * An agent with that host's name (or, in a run without a list of hosts, any agent) takes it: a
 * person started it, or start_again did, with growing pauses between tries. Its ranks start behind
 * a fence of their own while the others compute; once all of them are ready, a soft fence follows,
 * and a cut that includes them. A rank that was lost on a host that is still there is started again
 * by its agent and joins a later cut in the same way.
 *
 * Taking over (job.lease). When the trainer is gone, agents whose link ended park their ranks and
 * connect again. The cluster of the next trainer recognises them by their host numbers
 * (cluster_return.c). It waits until all hosts of the newest cut have reported where they are, for
 * eight seconds at most, then raises a hard fence above every epoch that was reported. Hosts that
 * did not return count as lost; hosts that had no part yet join like any other. What the cluster
 * must know beforehand is in coordinator.log: the newest cut and the one before, durable before any
 * host hears of them.
 *
 * Ranks are numbered in order: those of the trainer's host first, then those of the hosts in the
 * list, or, without a list, of agents in the order in which they connect.
 */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_CLUSTER_H
#define LS_EXECUTION_ELASTIC_HOSTS_CLUSTER_H

#include "execution/elastic/host/coordinator.h"
#include "execution/elastic/host/coordinator_log.h"
#include "execution/hang/rank_snapshot.h"
#include "execution/team/reform.h"

typedef struct ls_cluster ls_cluster;

/* A host other than the trainer's. */
typedef struct ls_cluster_host {
    const char *name; /* what its agent says with --name */
    uint32_t slots;   /* ranks it runs, >= 1 */
} ls_cluster_host;

typedef struct ls_cluster_options {
    ls_env *env;
    const char *listen; /* "HOST:PORT", HOST numeric */
    const char *token;
    const ls_segment *segment; /* of the trainer's host; the orders are in its control page */
    uint64_t step;             /* finished steps */
    uint32_t threads;          /* per rank */
    const char *run_dir;
    /* borrowed for the cluster's life; NULL: people start the agents */
    const ls_cluster_host *hosts;
    uint32_t host_count;
    uint32_t slots_max; /* ranks of an agent that a person starts; 0: any number */
    /* for agents to connect; missing ones are logged from time to time */
    uint64_t start_timeout_ns;
    void *context;
    /* size of a host's exchange area */
    uint64_t (*exchange_bytes)(void *context, uint32_t local_ranks);
    void (*ready)(void *context, const ls_preflight_member *hello);
    void (*lost)(void *context, const char *host, const ls_rank_end *end);
    /* A rank of another host, or the cluster itself, found a reason to end the run. */
    void (*abort)(void *context, ls_status status, int32_t rank, const char *text);
    /* What ranks of other hosts were seen doing; times are on this host's clock. */
    void (*seen)(void *context, const ls_rank_snapshot *snapshots, uint32_t count);
    /* The answer to ls_cluster_ask_stack. */
    void (*stack)(void *context, uint32_t rank, bool is_stack, const char *text);
    /* Whether the command that starts the agent of host `host` in the list has ended before the
     * agent connected, and what it printed last. NULL: no agents are started from here. */
    bool (*start_failed)(void *context, uint32_t host, char text_out[512]);
    /* Host `host` of the list was lost: starts its command once more. NULL: lost hosts are not
     * started again. */
    void (*start_again)(void *context, uint32_t host);
    /* The fields from here to `log_folder` matter from ls_cluster_run on. lease: a host that
     * shows no sign of life for this long is lost. */
    uint64_t lease_ns;
    ls_reform_settings settings;
    /* The events rank_lost, recovered, rank_joined, rank_left and team; takes over `fields`.
     * NULL: events are dropped. */
    void (*event)(void *context, const char *name, json_t *fields);
    void (*forget)(void *context, uint32_t rank); /* a rank no longer exists */
    /* A process runs in this rank's slot again and takes part. NULL allowed. */
    void (*joined)(void *context, uint32_t rank);
    /* Starts a process for local rank `local` of the trainer's host. NULL: lost ranks are not
     * replaced. */
    ls_status (*start)(void *context, uint32_t local);
    /* All ranks are parked, and no state of all hosts is left: brings that of the newest checkpoint
     * to the trainer's host, *step_out finished steps. False: under way, asked again; what fails
     * aborts the run. `epoch`: of the fence; the state is brought anew for each. NULL: such a loss
     * ends the run. */
    bool (*restore)(void *context, uint64_t epoch, uint64_t *step_out);
    /* job.lease: how long agents wait for another trainer; 0: they end with this one. */
    uint64_t wait_ns;
    const char *log_folder; /* folder of coordinator.log, borrowed; NULL: no log */
    const char *identity;   /* identity of the run file, for the log; borrowed */
    /* What the log of the trainer before this one says; its agents will return. Borrowed until
     * ls_cluster_open has returned. NULL: the run begins. */
    const ls_log_state *left;
    bool is_fresh;  /* No rank of the trainer's host survived, so its memory is lost, too. */
    uint64_t heard; /* fresh: the trainer has the results of this many steps */
    /* Only the roll call: agents that return report where they are, and that is all
     * (ls_cluster_ask_roll). */
    bool only_asks;
    /* the roll call is over; from now on as after ls_cluster_run */
    void (*returned)(void *context);
    /* fresh: the result of a step that this trainer lacks; may come more than once */
    void (*result)(void *context, const ls_rank_result *result);
    /* Limits both the replacements of lost ranks on each host and the tries to bring a host
     * back. */
    uint32_t max_replacements;
    /* The last call, after ls_cluster_end: no process is left, or the time is up. */
    void (*ended)(void *context);
} ls_cluster_options;

/* Listens. Errors: those of ls_store_server_open, LS_ERR_MEMORY, LS_ERR_INVALID (the run file is
 * too long). */
LS_MUST_CHECK ls_status ls_cluster_open(const ls_cluster_options *options, ls_cluster **cluster_out);
/* NULL allowed; not from a callback. Take the log before closing the cluster, and close the log
 * once the env is gone: its disk calls may still be under way. */
void ls_cluster_close(ls_cluster *cluster);
/* NULL allowed; NULL when there is no log */
ls_coordinator_log *ls_cluster_take_log(ls_cluster *cluster);
const char *ls_cluster_address(const ls_cluster *cluster);
/* Asks the agent of this rank for the rank's stack. False when no agent has the rank. */
bool ls_cluster_ask_stack(ls_cluster *cluster, uint32_t rank, int32_t pid);
/* Has a rank of another host killed, or notes that the caller is about to kill one of this host;
 * it is then lost like any other rank. why: "was stopped for 60.2 s", for the event. False: the
 * run cannot go on without it. */
bool ls_cluster_kill(ls_cluster *cluster, uint32_t rank, int32_t pid, const char *why);
/* Ranks of the trainer's host. During the roll call, report each that lives as ready and each
 * that does not as lost. ls_cluster_rank_ready returns false when the rank was started from a
 * different program, run file or data set than the others; kill it then. */
bool ls_cluster_rank_ready(ls_cluster *cluster, uint32_t rank);
void ls_cluster_rank_lost(ls_cluster *cluster, const ls_rank_end *end);
/* All ranks are ready. From now on the loss of a host or a rank does not end the run
 * (docs/design/003-nothing-is-lost.md). */
void ls_cluster_run(ls_cluster *cluster);
/* With only_asks, after `returned`: whether the run can go on with the hosts that returned, and
 * up to which step (exclusive) steps were granted. */
bool ls_cluster_ask_roll(const ls_cluster *cluster, uint64_t *until_out);
/* The control page says quit or abort: waits until all agents have ended their ranks, then calls
 * `ended`. */
void ls_cluster_end(ls_cluster *cluster);

#endif
