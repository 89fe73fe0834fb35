// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of the cluster share:
 *   cluster.c         agents connect, orders go out, messages come in, the end
 *   cluster_start.c   waiting for the agents of all hosts
 *   cluster_join.c    host numbers; hosts and ranks that join a run under way
 *   cluster_reform.c  losses, departures, fences and new cuts
 *   cluster_return.c  the log, and taking over from a trainer that is gone
 */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_CLUSTER_INTERNAL_H
#define LS_EXECUTION_ELASTIC_HOSTS_CLUSTER_INTERNAL_H

#include "comm/store/store.h"
#include "execution/elastic/hosts/cluster.h"
#include "execution/elastic/hosts/cluster_wire.h"
#include "execution/elastic/hosts/host_side.h"

enum { LS_CLUSTER_AGENTS_MAX = LS_COMM_SIZE_MAX - 1, LS_CLUSTER_BEAT_NS = 100 * 1000 * 1000 };
/* Stands for a host in cuts of the past whose memory is lost; no agent ever has this number. */
enum { LS_CLUSTER_NO_HOST = LS_CLUSTER_AGENTS_MAX };

/* A recovery under way, for the event `recovered`. */
typedef struct ls_cluster_loss {
    bool is_open;   /* no step has been finished since the loss */
    uint64_t at_ns; /* when the loss was noticed */
    uint64_t step;  /* finished steps at the cut that follows the loss */
    bool formed, finished;
    bool returned; /* to a checkpoint */
    uint32_t rank_count, ranks[LS_COMM_SIZE_MAX];
    char cause[640]; /* of the first loss */
} ls_cluster_loss;

/* Host numbers: 0 is the trainer's host, agents[i] has host number i + 1. */
typedef struct ls_cluster_agent {
    uint64_t client; /* its number at the store's server */
    bool used, gone, ended, is_spare;
    bool is_joining;    /* its ranks start while the others compute */
    bool leave_handled; /* it asked to leave, and that was handled */
    bool has_returned;  /* reported to this trainer during the roll call */
    uint32_t first_rank, count;
    uint64_t orders_sent;             /* version of the orders it was sent last */
    int64_t clock_offset_ns;          /* to be added to times on its clock, see find_clock */
    uint64_t clock_ns;                /* when the offset was found; 0: never */
    uint64_t heard_ns;                /* when its last message came */
    char name[LS_CLUSTER_NAME_BYTES]; /* for messages to people */
    ls_step_verdict verdict;          /* of its last status */
    uint64_t until, results_from;     /* of its last status, during the roll call */
} ls_cluster_agent;

/* How a lost host of the list is brought back. */
typedef struct ls_cluster_comeback {
    bool is_starting;         /* the command that starts its agent runs */
    uint32_t tries, failures; /* tries: in all; failures: since the host was last here */
    /* When the next try is due, or when the one under way is given up; 0: not decided yet. */
    uint64_t at_ns;
} ls_cluster_comeback;

struct ls_cluster {
    ls_cluster_options options;
    ls_control *control;
    ls_store_server *server;
    uint64_t program;
    char folder[LS_CLUSTER_PATH_BYTES], run_dir[LS_CLUSTER_PATH_BYTES]; /* absolute */
    /* ranks below this number belong to a host */
    uint32_t given;
    uint32_t agent_count;
    /* agents[i] is host i of the list; agents without a list and spares follow */
    ls_cluster_agent *agents;
    ls_cluster_comeback *comebacks; /* for each host of the list */
    ls_cluster_orders orders;
    uint64_t orders_version, start_deadline_ns, log_missing_ns, end_deadline_ns;
    ls_env_id timer;
    ls_rank_snapshot *snapshots; /* room for one message: LS_RANK_SNAPSHOTS_MAX */
    bool aborted, ending, has_ended;

    /* From here on: members, once all ranks were ready (cluster_reform.c). */
    bool running;
    ls_host_side side;     /* of the trainer's host */
    ls_reform_host *hosts; /* by host number */
    ls_cut *cuts[2];       /* [0]: the newest; [1]: the one that counts until the newest is held */
    uint64_t epoch;        /* of the team in force, or of the fence that is up */
    bool fenced;
    ls_reform_fence fence; /* fence.epoch equals `epoch` */
    uint64_t beat_ns, tick_ns;
    uint64_t fenced_ns; /* when the fence was raised */
    /* Crews: no cut can be made without hosts that are being brought back. */
    bool waits_for_hosts;
    ls_cluster_loss loss;
    int32_t killed_pid; /* the rank that was killed last, and why */
    char killed_why[128];
    ls_coordinator_log *log; /* NULL: no log is kept */
    bool log_is_open;
    ls_log_cuts *logged; /* the last cuts written to it */
    uint32_t log_pending;
    void (*end_logged)(void *context);
    bool is_returning; /* the roll call, which ends at return_ns at the latest */
    uint64_t return_ns;
    /* Ask for results from this step on; UINT64_MAX: none are missing. */
    uint64_t results_wanted;
    uint64_t run;                      /* hash of the run directory and the run file */
    bool takes_part[LS_COMM_SIZE_MAX]; /* by rank: works in the newest cut */
    /* By rank: the process of a rank that is ready but in no cut yet; 0: none. */
    int32_t waiting_pid[LS_COMM_SIZE_MAX];
};

/* Ends the run for this reason. */
void ls_cluster_abort_all(ls_cluster *cluster, ls_status status, int32_t rank, const char *text);

/* ---- cluster_start.c ---- */

/* From opening the cluster until missing agents are logged for the first time. */
#define LS_CLUSTER_LOG_MISSING_NS (2 * UINT64_C(1000000000))
/* Before the run: logs missing agents from time to time, and ends the run at the deadline. */
void ls_cluster_wait_tick(ls_cluster *cluster, uint64_t now);

/* ---- cluster_join.c ---- */

/* Decides which host of the run an agent is; NULL when it was refused. */
ls_cluster_agent *ls_cluster_assign_host(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello);
void ls_cluster_take_host(ls_cluster *cluster, ls_cluster_agent *agent);
/* A host that was about to join will not; the others never noticed it. */
/* Whether a lost host is being brought back, or will be. */
bool ls_cluster_may_return(const ls_cluster *cluster);
void ls_cluster_drop_joiner(ls_cluster *cluster, ls_cluster_agent *agent, const char *why);
/* A rank became ready while the run is under way. */
void ls_cluster_rank_came(ls_cluster *cluster, ls_cluster_agent *agent, const ls_preflight_member *hello);
/* Raises a soft fence when hosts or ranks that became ready can have a part. */
void ls_cluster_admit(ls_cluster *cluster);
void ls_cluster_tell_joined(ls_cluster *cluster);
/* Starts the agents of lost hosts again. */
void ls_cluster_bring_back(ls_cluster *cluster);

/* ---- cluster_return.c ---- */

LS_MUST_CHECK ls_status ls_cluster_return_init(ls_cluster *cluster);
/* Whether the log holds this cut and the one that counts until it is held. If not, they are
 * being written: ask again. */
bool ls_cluster_is_durable(ls_cluster *cluster, const ls_cut *cut, const ls_cut *held);
/* The run has ended: writes that to the log and calls `done`, also when the log cannot be
 * written. */
void ls_cluster_end_log(ls_cluster *cluster, void (*done)(void *context));
/* An agent that had a host number under the trainer before this one. */
void ls_cluster_take_back(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello);
/* During the roll call. has_part: in the team its host worked in last. */
void ls_cluster_rank_lives(ls_cluster *cluster, uint32_t rank, int32_t pid, bool has_part);
void ls_cluster_rank_is_gone(ls_cluster *cluster, uint32_t rank);
/* Its link ended during the roll call. */
void ls_cluster_forget_return(ls_cluster *cluster, ls_cluster_agent *agent);
void ls_cluster_return_tick(ls_cluster *cluster);

/* ---- cluster_reform.c ---- */

void ls_cluster_note_lost(ls_cluster *cluster, uint32_t rank, const char *cause, uint64_t silent_ns);

void ls_cluster_tell_event(ls_cluster *cluster, const char *name, json_t *fields);
void ls_cluster_raise_fence(ls_cluster *cluster, uint64_t epoch, bool hard);
/* Whether every host with a part in the newest cut has the state it keeps there. */
bool ls_cluster_is_cut_held(const ls_cluster *cluster);

LS_MUST_CHECK ls_status ls_cluster_reform_init(ls_cluster *cluster);
void ls_cluster_reform_release(ls_cluster *cluster);

/* Every 2 ms: leases, the state of the trainer's own host, and what is to be done next. */
void ls_cluster_reform_tick(ls_cluster *cluster);
void ls_cluster_receive_status(ls_cluster *cluster, ls_cluster_agent *agent, const ls_cluster_status *status);
/* A host, or a rank of one, is gone. cause: for the event. */
void ls_cluster_host_lost(ls_cluster *cluster, ls_cluster_agent *agent, const char *cause);
void ls_cluster_far_rank_lost(ls_cluster *cluster, ls_cluster_agent *agent, const ls_rank_end *end);

#endif
