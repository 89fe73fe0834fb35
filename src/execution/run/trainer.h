// SPDX-License-Identifier: Apache-2.0
/*
 * Training: from a run file to a finished run directory.
 *
 * ls_train opens everything (session.h), resumes or begins the run in its directory, and then
 * repeats: compute a step, log it, and evaluate, sample and save when due. A step is a pure
 * function of state and step number, so a run that was interrupted anywhere and resumed from its
 * newest checkpoint has the same state_hash and curve_hash as one that was not interrupted.
 *
 * SIGINT, SIGTERM and SIGHUP make it give up the current step (the state is then that of the last
 * finished one), save, and return LS_INTERRUPTED or LS_STOPPED; a second SIGINT ends the process
 * and its ranks at once. Call it from the main thread, for one run at a time in a process.
 */
#ifndef LS_EXECUTION_RUN_TRAINER_H
#define LS_EXECUTION_RUN_TRAINER_H

#include "base/json.h"
#include "execution/elastic/hosts/launch.h"
#include "execution/run/run_dir.h"

#include <stdio.h>

typedef struct ls_train_options {
    const char *config;           /* run file */
    const char *const *overrides; /* "key=value" */
    size_t override_count;
    const char *run_dir; /* NULL: runs/<name> */
    ls_run_mode mode;
    uint64_t threads;              /* per rank; 0: as in the run file */
    uint64_t ranks;                /* processes that compute; 0: as in the run file */
    const ls_workers_hosts *hosts; /* hosts that share the ranks; NULL: this host only */
    double start_timeout_s;        /* for ranks and hosts to get ready; 0: automatic */
    uint64_t stop_step;            /* stop here, the schedule unchanged; 0: train.steps */
    bool dry_run;                  /* only print the plan */
    FILE *out;                     /* text for people; NULL: none */
    double start_s;                /* monotonic time when the process began */
} ls_train_options;

/*
 * Trains. result_out: the summary (telemetry/record/summary.h), or with dry_run the plan
 * (ls_session_to_json); the caller drops it. It is also set if the run was stopped or failed after
 * it began; otherwise it is NULL.
 *
 * Errors: those of the run file, data and model; LS_ERR_MEMORY before the first step; LS_ERR_DISK
 * if a checkpoint cannot be saved (older ones are kept); LS_ERR_FAILED if the loss is not finite;
 * LS_STOPPED, LS_INTERRUPTED. With several ranks also LS_ERR_RANKS_LOST (too few are left),
 * LS_ERR_MISMATCH, LS_ERR_TIMEOUT, or a rank's own error: all name the rank, and the finished steps
 * are saved.
 */
LS_MUST_CHECK ls_status ls_train(const ls_train_options *options, json_t **result_out);

#endif
