// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of the host agent share:
 *   host_agent.c        the link, the ranks, joining, orders, the end
 *   host_agent_watch.c  what ranks are doing, their stacks, killing them
 *   host_agent_run.c    the agent as a process of its own
 */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_HOST_AGENT_INTERNAL_H
#define LS_EXECUTION_ELASTIC_HOSTS_HOST_AGENT_INTERNAL_H

#include "comm/store/store_link.h"
#include "execution/elastic/hosts/cluster_wire.h"
#include "execution/elastic/hosts/host_agent.h"
#include "execution/elastic/hosts/host_leave.h"
#include "execution/elastic/hosts/host_side.h"
#include "execution/hang/rank_snapshot_wire.h"
#include "execution/hang/watchdog.h"

enum { LS_HOST_AGENT_GROUPS_MAX = LS_LOCAL_RANKS_MAX / LS_RANK_SNAPSHOTS_MAX };

struct ls_host_agent {
    ls_host_agent_options options;
    ls_env *env;
    ls_store_link *link; /* closed only at the end */
    char address[LS_COMM_ADDRESS_BYTES], program[4096], segment_path[64], threads[16],
        run_dir[LS_CLUSTER_PATH_BYTES];
    const char *argv[10]; /* command line of a rank */
    bool link_lost, joined, abort_told, ended;
    ls_segment segment;
    ls_control *control;
    ls_agent *agent;
    ls_watchdog *watch;
    struct {
        uint64_t hash, at_ns;
        /* what was last sent of each group of LS_RANK_SNAPSHOTS_MAX ranks */
    } sent[LS_HOST_AGENT_GROUPS_MAX];
    ls_host_side side;
    /* heard: the coordinator's last message; sent: the last status */
    uint64_t lease_ns, heard_ns, sent_ns;
    uint64_t clock_ns; /* when the offset of this host's clock was measured; 0: not yet */
    uint64_t epoch;    /* the highest the coordinator has named */
    bool has_run;      /* a step was granted */
    /* job.lease: how long to wait for another trainer. */
    uint64_t wait_ns, run;
    uint64_t results_wanted; /* the next step whose result the trainer lacks; UINT64_MAX: none */
    /* The link is lost, and no other trainer has given an order for the change of members yet. */
    bool is_returning;
    char lost_text[400];
    ls_host_leave leave;
    ls_host_status last_status;
    ls_status status;
    char text[LS_RANK_TEXT_BYTES];
};

/* Does nothing while there is no link; warns when the message is lost. */
void ls_host_agent_send(ls_host_agent *self, const void *message, size_t bytes);
/* Ends everything for a reason of this host; the coordinator and the ranks are told. */
void ls_host_agent_give_up(ls_host_agent *self, ls_status status, int32_t rank, const char *text);

/* The host is to leave while the run continues; before the first step everything ends. */
void ls_host_agent_leave(ls_host_agent *self);
/* Ends the whole run, for a signal. */
void ls_host_agent_interrupt(ls_host_agent *self);
/* How it ended, once the env has stopped: as ls_host_agent_run. */
LS_MUST_CHECK ls_status ls_host_agent_result(const ls_host_agent *self);

/* host_agent_watch.c */
LS_MUST_CHECK ls_status ls_host_agent_start_watch(ls_host_agent *self, const ls_cluster_join *join);
/* Handlers of ASK and KILL. */
bool ls_host_agent_answer(void *receiver, const ls_cluster_received *message);
bool ls_host_agent_kill_rank(void *receiver, const ls_cluster_received *message);

#endif
