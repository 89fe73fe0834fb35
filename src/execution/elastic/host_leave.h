// SPDX-License-Identifier: Apache-2.0
/*
 * How a host of several leaves: from a notice (elastic/notice.h), or SIGTERM to its agent, to what its status says. The coordinator gives it
 * no part in the next cut (cluster_reform.c), and lets its agent end once the others have all they need.
 *
 * Whoever ends a whole run (a scheduler) tells all its processes at once: then it is the trainer's to decide, if that comes within a moment.
 *
 * For the loop's thread of the agent.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_LEAVE_H
#define LS_EXECUTION_ELASTIC_HOST_LEAVE_H

#include "execution/elastic/cluster_wire.h"
#include "execution/elastic/notice.h"

typedef struct ls_host_leave {
    ls_notice_watch *notices; /* NULL: nobody is asked */
    uint64_t told_ns;         /* when it was told; 0: it was not */
    bool leaving;             /* the coordinator is asked to do without this host */
    bool said;                /* it was told so */
    double grace_s;           /* 0: not known */
    char source[16];          /* who told */
} ls_host_leave;

/* Asks whom the run file and the environment of this host name. After whatever changes the environment. Errors: as ls_notice_watch_for. */
LS_MUST_CHECK ls_status ls_host_leave_open(ls_host_leave *leave, const char *run_file, size_t bytes);
void ls_host_leave_close(ls_host_leave *leave);

/* Told by a signal. now_ns: of the env. */
void ls_host_leave_tell(ls_host_leave *leave, uint64_t now_ns);
/* Often. ends: the run ends anyway. Whether the coordinator has something to hear that was not said yet. */
bool ls_host_leave_look(ls_host_leave *leave, uint64_t now_ns, bool ends);
/* What the next status says. */
void ls_host_leave_say(ls_host_leave *leave, ls_cluster_status *status);

#endif
