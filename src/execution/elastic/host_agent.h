// SPDX-License-Identifier: Apache-2.0
/*
 * `lockstep agent`: one process per host other than the trainer's. It says hello to the coordinator, makes its host's segment from what it
 * is told, starts and watches that host's ranks, puts orders into its control page, and reports what becomes of them.
 *
 * Its end is that of its ranks: told to, on an abort, when the coordinator goes away (the run is over with it), or by SIGINT and SIGHUP,
 * which end the whole run. With job.lease it parks its ranks when the coordinator goes away, and tries to reach another one at the same
 * address that long: whoever started it may be gone by then, too. On SIGTERM, or a notice that the machine will be taken away (elastic/notice.h), its host leaves: it takes no part in
 * the next cut of the step, and when the others have all they need, its ranks end and it returns LS_OK; the run goes on. Nothing is left
 * behind: ranks die with it, the segment with the last of them.
 *
 * The run directory and the data are read under the trainer's paths: they are on a file system that all hosts share, or copies are there.
 * (Data that differ are found before the first step: their hash is part of the run's identity, which ranks compare.)
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_AGENT_H
#define LS_EXECUTION_ELASTIC_HOST_AGENT_H

#include "base/env.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_host_agent_options {
    const char *coordinator; /* "HOST:PORT", HOST a number or a name */
    const char *token;
    const char *name; /* in the run's file of hosts; "": none */
    uint32_t slots;   /* ranks it takes at most; 0: as many as are left */
    bool
        is_spare; /* no ranks: only stays until the run is over (a second process of a host that a launcher started) */
    double timeout_s; /* for the coordinator to be there; 0: 60 */
    /* For tests. */
    const char *program; /* that ranks are started with; NULL: the one that runs */
    bool no_watch;       /* nor notices */
} ls_host_agent_options;

/* The agent alone, over any env, which it stops when it has ended. coordinator: HOST is a number. */
typedef struct ls_host_agent ls_host_agent;
LS_MUST_CHECK ls_status ls_host_agent_open(ls_env *env, const ls_host_agent_options *options,
                                           ls_host_agent **agent_out);
void ls_host_agent_close(ls_host_agent *agent); /* NULL allowed; not from a callback */
/* This host is to go, the run is not: it hands over and ends. Before it trains: everything ends. */
void ls_host_agent_leave(ls_host_agent *agent);
/* How it ended: as ls_host_agent_run. */
LS_MUST_CHECK ls_status ls_host_agent_status(const ls_host_agent *agent);

/*
 * Serves one run. LS_OK when it ended well. Errors: LS_ERR_TIMEOUT (no coordinator), LS_ERR_INVALID (wrong token, a peer that is none, a name
 * that is not in the list, no rank left), LS_ERR_RANKS_LOST (the coordinator went away), or the reason of the run's abort.
 */
LS_MUST_CHECK ls_status ls_host_agent_run(const ls_host_agent_options *options);

#endif
