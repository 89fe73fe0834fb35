// SPDX-License-Identifier: Apache-2.0
/*
 * Runner: the process that outlives the daemon and is the parent of a job's ranks (the hidden command `runner`).
 *
 * It becomes the user that submitted, takes the ticket (engines/local/ticket.h), starts the ranks with the job's own environment and nothing of the
 * daemon's, copies what they print into `log` (and, with several, into log.RANK), passes SIGTERM on, and ends what outlives its grace. One rank that
 * fails ends the others. A time limit is kept here, so that it holds while no daemon runs: SIGTERM at it, SIGKILL a grace later. Nothing survives it: ranks get SIGKILL when it dies, and it is the one to whom their orphans fall.
 *
 * What the ticket holds:
 *
 *   {"job", "epoch", "user", "directory", "argv": [..], "processes", "ranks_per_node", "devices": [..], "gpus": bool, "grace_s", "limit_s", "variables": ["NAME=VALUE"],
 *    "group_signal": bool, "home"}
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_RUNNER_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_RUNNER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_runner_options {
    const char *folder; /* of the job, absolute */
    uint32_t epoch;
    bool
        switches_user; /* started by root: becomes uid and gid, with the groups of that user, before it touches anything */
    uint32_t uid, gid;
    const char *group; /* control group that it enters first; NULL: none */
} ls_runner_options;

/* Becomes another user for good. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_runner_switch_user(uint32_t uid, uint32_t gid);

/*
 * Runs one epoch to its end. How it ended is in exit-E; LS_OK also when there was no ticket to take. Errors are those that could not be written down: the
 * daemon finds the job lost.
 */
LS_MUST_CHECK ls_status ls_runner_run(const ls_runner_options *options);

#endif
