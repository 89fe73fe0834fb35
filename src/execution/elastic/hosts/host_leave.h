// SPDX-License-Identifier: Apache-2.0
/*
 * How one host of several leaves: from a preemption notice (elastic/host/preemption_notice.h), or
 * SIGTERM to its agent, to what its status says. The coordinator gives it no part in the next cut
 * (cluster_reform.c) and lets its agent end once the others have all they need.
 *
 * A scheduler that ends a whole run signals all its processes at once. So the agent waits a
 * moment: if the trainer ends the run in that time, the host does not ask to leave.
 *
 * For the loop's thread of the agent.
 */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_HOST_LEAVE_H
#define LS_EXECUTION_ELASTIC_HOSTS_HOST_LEAVE_H

#include "execution/elastic/host/preemption_notice.h"
#include "execution/elastic/hosts/cluster_wire.h"

typedef struct ls_host_leave {
    ls_preemption_watch *notices; /* NULL: no source of notices */
    uint64_t noticed_ns;          /* when a notice or signal came; 0: none has */
    bool leaving;                 /* the coordinator is to do without this host */
    bool was_sent;                /* the coordinator was told */
    double grace_s;               /* 0: not known */
    char source[16];              /* where the notice came from */
} ls_host_leave;

/* Starts to look for notices where the run file and the environment of this host say. Call it
 * after anything that changes the environment. Errors: those of ls_preemption_watch_for. */
LS_MUST_CHECK ls_status ls_host_leave_open(ls_host_leave *leave, const char *run_file, size_t bytes);
void ls_host_leave_close(ls_host_leave *leave);

/* SIGTERM came. now_ns: of the env. */
void ls_host_leave_signal(ls_host_leave *leave, uint64_t now_ns);
/* Call it often. ends: the run ends anyway. Returns whether the coordinator must be told
 * something new. */
bool ls_host_leave_look(ls_host_leave *leave, uint64_t now_ns, bool ends);
/* Fills in the part of the next status that is about leaving. */
void ls_host_leave_fill(ls_host_leave *leave, ls_cluster_status *status);

#endif
