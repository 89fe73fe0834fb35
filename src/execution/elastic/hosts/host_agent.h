// SPDX-License-Identifier: Apache-2.0
/*
 * `lockstep agent`: one process for each host other than the trainer's. It says HELLO to the
 * coordinator, makes its host's segment from the answer, starts that host's ranks and watches them,
 * writes the coordinator's orders into its control page, and reports what happens to the ranks. \
 * It ends with its ranks: when told to, on an abort, when the coordinator goes away (the run is
 * then over for it), or on SIGINT and SIGHUP, which end the whole run. With job.lease it parks its
 * ranks when the coordinator goes away and tries for that long to reach another one at the same
 * address; the process that started the agent may be gone by then. On SIGTERM, or on a notice that
 * the machine will be taken away (elastic/host/preemption_notice.h), its host leaves: it gets no
 * part in the next cut of the step, and once the others have all they need, its ranks end and it
 * returns LS_OK, while the run continues. Nothing is left behind: the ranks die with the agent, and
 * the segment with the last of them.
 *
 * The run directory and the data are read under the trainer's paths: they are on a file system
 * that all hosts share, or each host has copies. (Different data are found before the first
 * step: their hash is part of the run's identity, which ranks compare.)
 */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_HOST_AGENT_H
#define LS_EXECUTION_ELASTIC_HOSTS_HOST_AGENT_H

#include "base/status.h"
#include "env/env.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_host_agent_options {
    const char *coordinator; /* "HOST:PORT", HOST a number or a name */
    const char *token;
    const char *name; /* its name in the run's file of hosts; "": none */
    uint32_t slots;   /* ranks it can run; 0: as many as are left */
    /* Runs no ranks and only stays until the run is over: a second process that a launcher
     * started on the host. */
    bool is_spare;
    /* A trainer started it and reads its stderr: until it has joined it ends with that trainer. */
    bool has_starter;
    double timeout_s; /* how long to wait for the coordinator; 0: 60 s */
    /* For tests. */
    const char *program; /* program to start ranks with; NULL: the running one */
    bool no_watch;       /* no watchdog, and no notices */
} ls_host_agent_options;

/* The agent alone, over any env; it stops the env when it has ended. HOST in `coordinator` must
 * be numeric. */
typedef struct ls_host_agent ls_host_agent;
LS_MUST_CHECK ls_status ls_host_agent_open(ls_env *env, const ls_host_agent_options *options,
                                           ls_host_agent **agent_out);
void ls_host_agent_close(ls_host_agent *agent); /* NULL allowed; not from a callback */

/* Serves one run. LS_OK: it ended well. Errors: LS_ERR_TIMEOUT (no coordinator), LS_ERR_INVALID
 * (wrong token, a peer that is not a coordinator, a name that is not in the list, no rank left),
 * LS_ERR_RANKS_LOST (the coordinator went away), or the reason of the run's abort. */
LS_MUST_CHECK ls_status ls_host_agent_run(const ls_host_agent_options *options);

#endif
