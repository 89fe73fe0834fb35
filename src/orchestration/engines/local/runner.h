// SPDX-License-Identifier: Apache-2.0
/*
 * Runner: the process that outlives the daemon and is the parent of a job's ranks (the hidden
 * command `runner`).
 *
 * It runs as the user who submitted the job: a daemon of root starts it through lockstep-as-user
 * (src/as_user/as_user.c). It takes the ticket (ticket.h), and starts the ranks with
 * the job's own environment and nothing of the daemon's. It copies what they print to `log` (and
 * with several ranks to log.RANK), passes SIGTERM on, and kills what outlives its grace period. One
 * rank that fails ends the others. It enforces the time limit, so that the limit holds while no
 * daemon runs: SIGTERM at the limit, SIGKILL a grace period later. Nothing survives the runner:
 * ranks get SIGKILL when it dies, and their orphans become its children.
 *
 * The ticket holds:
 *
 *   {"job", "epoch", "user", "directory", "argv": [..], "processes", "ranks_per_node",
 *    "devices": [..], "gpus": bool, "grace_s", "limit_s", "variables": ["NAME=VALUE"],
 *    "group_signal": bool, "cpus", "umask", "log_max", "image", "image_options": [..],
 *    "price", "spent", "run_dir", "energy_part", "storage_price"}
 *
 * price: USD for a device and an hour; spent: USD that the job has cost before this start. A
 * training run learns them from LOCKSTEP_PRICE and LOCKSTEP_SPENT, and keeps job.max_cost itself;
 * and from LOCKSTEP_STORAGE_PRICE the price of a GB for a month, for checkpoint.budget.
 * run_dir: of a job of a sweep, whose result is written down with its end. energy_part: its part of
 * the machine's devices (LOCKSTEP_ENERGY_PART).
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_RUNNER_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_RUNNER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_runner_options {
    const char *folder; /* folder of the job, absolute */
    uint32_t epoch;
    const char *group; /* control group to enter first; NULL: none */
} ls_runner_options;

/* Runs one epoch to its end. How it ended is in exit-E. LS_OK also when there was no ticket to
 * take. Errors are those that could not be written down; the daemon then finds the job lost. */
LS_MUST_CHECK ls_status ls_runner_run(const ls_runner_options *options);

#endif
