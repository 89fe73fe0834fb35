// SPDX-License-Identifier: Apache-2.0
/* What cluster.c (agents come, orders, the end) and cluster_reform.c (hosts and ranks are lost, come and go) share. */
#ifndef LS_EXECUTION_ELASTIC_CLUSTER_INTERNAL_H
#define LS_EXECUTION_ELASTIC_CLUSTER_INTERNAL_H

#include "execution/comm/store.h"
#include "execution/elastic/cluster.h"
#include "execution/elastic/cluster_wire.h"
#include "execution/elastic/host_side.h"

enum { LS_CLUSTER_AGENTS_MAX = LS_COMM_SIZE_MAX - 1, LS_CLUSTER_BEAT_NS = 100 * 1000 * 1000 };
/* The place of a host whose memory is gone, in cuts that had it: nobody takes it. */
enum { LS_CLUSTER_NO_PLACE = LS_CLUSTER_AGENTS_MAX };

/* What is being recovered from, for the event that says so. */
typedef struct ls_cluster_loss {
    bool is_open;   /* no step has been finished since */
    uint64_t at_ns; /* when it was noticed */
    uint64_t step;  /* the cut behind it begins with */
    bool formed, finished;
    uint32_t rank_count, ranks[LS_COMM_SIZE_MAX];
    char cause[640]; /* of the first */
} ls_cluster_loss;

/* An agent's place is one above its index: the trainer's host has place 0. */
typedef struct ls_cluster_agent {
    uint64_t client; /* of the store's server */
    bool used, gone, ended, is_spare;
    bool is_joining;   /* its ranks start while the others compute */
    bool told_leaving; /* it wants to leave, and that was heard */
    bool has_returned; /* to this trainer, and said where it is */
    uint32_t first_rank, count;
    uint64_t orders_sent;             /* version */
    int64_t clock_offset_ns;          /* to be added to its clock, see find_clock */
    uint64_t clock_ns;                /* when that was found; 0: never */
    uint64_t heard_ns;                /* the last message */
    char name[LS_CLUSTER_NAME_BYTES]; /* for texts */
    ls_step_verdict verdict;          /* of its status */
    uint64_t until, results_from;     /* likewise, of one that returns */
} ls_cluster_agent;

/* How a lost host of the list is brought back. */
typedef struct ls_cluster_comeback {
    bool is_starting;         /* a command runs that should bring its agent */
    uint32_t tries, failures; /* tries: all; failures: since it was here last */
    uint64_t at_ns;           /* the next try, or when the one that runs is given up; 0: not known yet */
} ls_cluster_comeback;

struct ls_cluster {
    ls_cluster_options options;
    ls_control *control;
    ls_store_server *server;
    uint64_t program;
    char folder[LS_CLUSTER_PATH_BYTES], run_dir[LS_CLUSTER_PATH_BYTES]; /* absolute */
    uint32_t given;                                                     /* ranks below it have a host */
    uint32_t agent_count;
    ls_cluster_agent *agents; /* host i of the list is agents[i]; spares and agents without a list follow */
    ls_cluster_comeback *comebacks; /* of the hosts of the list */
    ls_cluster_orders orders;
    uint64_t orders_version, start_deadline_ns, say_ns, end_deadline_ns;
    ls_env_id timer;
    ls_sight *sights; /* LS_SIGHTS_MAX, of a message */
    bool aborted, ending, told_ended;

    /* Members, once all were ready: cluster_reform.c. */
    bool running;
    ls_host_side side;     /* of this host */
    ls_reform_host *hosts; /* by place */
    ls_cut *cuts[2];       /* the newest, and the one that counts until that is held */
    uint64_t epoch;        /* of the team in force, or of the fence */
    bool fenced;
    ls_reform_fence fence; /* epoch: as above */
    uint64_t beat_ns, tick_ns;
    uint64_t fenced_ns; /* when the fence was raised */
    ls_cluster_loss loss;
    int32_t killed_pid; /* of the rank that was told to end last, and why */
    char killed_why[128];
    ls_coordinator_log *log; /* NULL: none is kept */
    bool log_is_open;
    ls_log_cuts *logged; /* what it was told last */
    uint32_t log_pending;
    void (*end_logged)(void *context);
    bool is_returning; /* until return_ns at most */
    uint64_t return_ns;
    uint64_t told;                     /* results are wanted from here on; UINT64_MAX: none */
    uint64_t run;                      /* hash of run directory and run file */
    bool takes_part[LS_COMM_SIZE_MAX]; /* by rank */
    int32_t came[LS_COMM_SIZE_MAX];    /* process of one that is ready and not in a cut yet; 0: none */
};

/* Ends everything for this reason. */
void ls_cluster_abort_all(ls_cluster *cluster, ls_status status, int32_t rank, const char *text);

/* ---- cluster_join.c ---- */

/* Which place an agent takes; NULL when it was refused. */
ls_cluster_agent *ls_cluster_place(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello);
void ls_cluster_seat(ls_cluster *cluster, ls_cluster_agent *agent);
/* It won't come: the others have not noticed. */
void ls_cluster_drop_joiner(ls_cluster *cluster, ls_cluster_agent *agent, const char *why);
/* A rank is ready while the run goes on. */
void ls_cluster_rank_came(ls_cluster *cluster, ls_cluster_agent *agent, const ls_preflight_member *hello);
/* Who is ready gets a cut. */
void ls_cluster_admit(ls_cluster *cluster);
void ls_cluster_tell_joined(ls_cluster *cluster);
/* Agents of hosts that were lost are started again. */
void ls_cluster_bring_back(ls_cluster *cluster);

/* ---- cluster_return.c ---- */

LS_MUST_CHECK ls_status ls_cluster_return_init(ls_cluster *cluster);
/* Whether the log has this cut and the one that counts until it is held, durably; else it will. */
bool ls_cluster_is_durable(ls_cluster *cluster, const ls_cut *cut, const ls_cut *held);
/* The run has ended; `done` is called when the log says so, or can't. */
void ls_cluster_end_log(ls_cluster *cluster, void (*done)(void *context));
/* An agent that had a place under the trainer before this one. */
void ls_cluster_take_back(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello);
/* A rank of one that returns, or of this host. has_part: in the team that its host has. */
void ls_cluster_rank_lives(ls_cluster *cluster, uint32_t rank, int32_t pid, bool has_part);
void ls_cluster_rank_is_gone(ls_cluster *cluster, uint32_t rank);
/* Its link ended again. */
void ls_cluster_unseat(ls_cluster *cluster, ls_cluster_agent *agent);
void ls_cluster_return_tick(ls_cluster *cluster);

/* ---- cluster_reform.c ---- */

void ls_cluster_note_lost(ls_cluster *cluster, uint32_t rank, const char *cause, uint64_t silent_ns);

void ls_cluster_tell_event(ls_cluster *cluster, const char *name, json_t *fields);
void ls_cluster_raise_fence(ls_cluster *cluster, uint64_t epoch, bool hard);
/* Whether all that have a part in the newest cut have what they keep in it. */
bool ls_cluster_is_cut_held(const ls_cluster *cluster);

LS_MUST_CHECK ls_status ls_cluster_reform_init(ls_cluster *cluster);
void ls_cluster_reform_release(ls_cluster *cluster);

/* Every few milliseconds: leases, the trainer's own host, what is to be done next. */
void ls_cluster_reform_tick(ls_cluster *cluster);
void ls_cluster_receive_status(ls_cluster *cluster, ls_cluster_agent *agent, const ls_cluster_status *status);
/* A host is gone, or a rank of one. cause: for the event. */
void ls_cluster_host_lost(ls_cluster *cluster, ls_cluster_agent *agent, const char *cause);
void ls_cluster_far_rank_lost(ls_cluster *cluster, ls_cluster_agent *agent, const ls_rank_end *end);

#endif
