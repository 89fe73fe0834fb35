// SPDX-License-Identifier: Apache-2.0
/*
 * Cluster: the coordinator's side of several hosts. A state machine over base/env (DESIGN I6) beside the coordinator's member table
 * (elastic/coordinator.h), in the trainer's service thread.
 *
 *   trainer's host                                     other hosts
 *     control page ◀── orders are read every few ms      lockstep agent: control page, segment, ranks
 *     cluster ──────── rendezvous store (comm/store.h), one long-lived socket per agent ────────
 *     ranks ────────── the same store, one socket each: their communicator meets there ──────── ranks
 *
 * Orders are level-triggered: whatever changes in this host's control page (grant, stop, quit, gather, abort) goes to every agent whole.
 * An agent whose link ends, or that is silent for the lease, is a lost host. Ranks talk to the store themselves; agents relay nothing.
 *
 * The way back. While the run goes on, the place of a host that was lost or has left is free: an agent of its name, or of a run without a list
 * any, takes it: one that somebody starts there, or whom start_again brings, with growing pauses between tries. Its ranks start behind a fence of their own while the others compute; when they are ready, a soft fence, and a cut with them.
 * A rank that was lost on a host that lives is started again by its agent, and is in a later cut the same way.
 *
 * The trainer comes back (job.lease). Agents whose link ends park their ranks and connect again, and a new cluster in the place of the one
 * that is gone takes them by their places (cluster_return.c):
 *
 *   RETURNING ── all hosts of the newest cut have said where they are, or RETURN_NS ──▶ a hard fence above every epoch ──▶ RUNNING
 *      hosts that did not come are lost, like any other; those that had no part yet join like any other
 *
 * What it has to know, it has from coordinator.log: the newest cut and the one before, durable before any host hears of them.
 *
 * Ranks are given out in order: the trainer's host has the first ones, then the hosts of the list in its order, or without a list, agents in
 * the order in which they come.
 */
#ifndef LS_EXECUTION_ELASTIC_CLUSTER_H
#define LS_EXECUTION_ELASTIC_CLUSTER_H

#include "execution/diagnose/sight.h"
#include "execution/elastic/coordinator.h"
#include "execution/elastic/coordinator_log.h"
#include "execution/elastic/reform.h"

typedef struct ls_cluster ls_cluster;

/* A host other than the trainer's. */
typedef struct ls_cluster_host {
    const char *name; /* agents say it with --name */
    uint32_t slots;   /* its ranks, >= 1 */
} ls_cluster_host;

typedef struct ls_cluster_options {
    ls_env *env;
    const char *listen; /* "HOST:PORT", HOST a number */
    const char *token;
    const ls_segment *segment; /* of the trainer's host; its control page has the orders */
    uint64_t step;             /* finished */
    uint32_t threads;          /* per rank */
    const char *run_dir;
    const ls_cluster_host *hosts; /* borrowed for its life; NULL: agents that people start */
    uint32_t host_count;
    uint64_t start_timeout_ns; /* for agents to come; who is missing is logged now and then */
    void *context;
    uint64_t (*exchange_bytes)(void *context, uint32_t local_ranks); /* of a host's segment */
    void (*ready)(void *context, const ls_preflight_member *hello);
    void (*lost)(void *context, const char *host, const ls_rank_end *end);
    /* A rank of another host, or the cluster itself, has a reason to end everything. */
    void (*abort)(void *context, ls_status status, int32_t rank, const char *text);
    /* What ranks of other hosts are seen doing; times are on this host's clock. */
    void (*seen)(void *context, const ls_sight *sights, uint32_t count);
    /* The answer to ls_cluster_ask_stack. */
    void (*stack)(void *context, uint32_t rank, bool is_stack, const char *text);
    /* Whether the command that started agent `host` of the list has ended without it, and its words; NULL: nobody started any. */
    bool (*start_failed)(void *context, uint32_t host, char text_out[512]);
    /* Starts that command once more: host `host` of the list was lost. NULL: nobody does. */
    void (*start_again)(void *context, uint32_t host);
    /* From ls_cluster_run on. lease: a host that gives no sign of life for so long is lost. */
    uint64_t lease_ns;
    ls_reform_settings settings;
    /* rank_lost, recovered, rank_joined, rank_left, team; takes over `fields`. NULL: nobody hears them. */
    void (*event)(void *context, const char *name, json_t *fields);
    void (*forget)(void *context, uint32_t rank); /* a rank is no more */
    void (*joined)(void *context,
                   uint32_t rank); /* its place has a process again, which takes part. NULL allowed */
    /* Starts a process in the place of local rank `local` of the trainer's host. NULL: nobody does. */
    ls_status (*start)(void *context, uint32_t local);
    /* job.lease: agents wait so long for another trainer; 0: they end with this one. */
    uint64_t wait_ns;
    const char *log_folder; /* where coordinator.log is kept, borrowed; NULL: none is */
    const char *identity;   /* of the run file, for the log; borrowed */
    /* What a trainer before this one left, whose agents return; borrowed until ls_cluster_open has returned. NULL: the run begins. */
    const ls_log_state *left;
    bool is_fresh;  /* none of its ranks on this host is left, and its memory is gone with them */
    uint64_t heard; /* fresh: finished steps whose results are known here */
    bool only_asks; /* who returns is asked where he is, and nothing more: ls_cluster_ask_roll */
    void (*returned)(void *context); /* as after ls_cluster_run */
    void (*result)(void *context,
                   const ls_rank_result *result); /* fresh: one more; may come more than once */
    uint32_t max_replacements;    /* of ranks, for each host; and tries to bring a host back, likewise */
    void (*ended)(void *context); /* after ls_cluster_end: nobody is left, or the time is up; the last call */
} ls_cluster_options;

/* Listens. Errors: as ls_store_server_open, LS_ERR_MEMORY, LS_ERR_INVALID (a run file that is too long). */
LS_MUST_CHECK ls_status ls_cluster_open(const ls_cluster_options *options, ls_cluster **cluster_out);
/* NULL allowed; not from a callback. The log, NULL when none was kept, is taken before, and closed once the env is gone. */
void ls_cluster_close(ls_cluster *cluster);
ls_coordinator_log *ls_cluster_take_log(ls_cluster *cluster); /* NULL allowed */
const char *ls_cluster_address(const ls_cluster *cluster);
/* Asks the agent that has the rank for its stack. False when there is no such agent. */
bool ls_cluster_ask_stack(ls_cluster *cluster, uint32_t rank, int32_t pid);
/* Has the process of a rank of another host ended, or notes that one of this host is about to be: it is lost like any other rank. why: "was
 * stopped for 60.2 s"; for the event. False: the run can't go on without it. */
bool ls_cluster_kill(ls_cluster *cluster, uint32_t rank, int32_t pid, const char *why);
/* Ranks of the trainer's host; while agents return, those that live are ready, those that don't are lost. Ready: false when it is not made of what
 * the others are; it is to be ended. */
bool ls_cluster_rank_ready(ls_cluster *cluster, uint32_t rank);
void ls_cluster_rank_lost(ls_cluster *cluster, const ls_rank_end *end);
/* All ranks are ready: from now on the loss of a host, or of a rank, does not end the run (docs/design/003-nothing-is-lost.md). */
void ls_cluster_run(ls_cluster *cluster);
/* With only_asks, once `returned` was called: whether the run can go on with the hosts that are there, and steps that were granted. */
bool ls_cluster_ask_roll(const ls_cluster *cluster, uint64_t *until_out);
/* The control page says quit or abort: waits until all agents have ended their ranks, then calls `ended`. */
void ls_cluster_end(ls_cluster *cluster);

#endif
