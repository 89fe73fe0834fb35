// SPDX-License-Identifier: Apache-2.0
/*
 * Training: from a run file to a finished run directory.
 *
 * ls_train opens everything (session.h), takes or begins the run directory, and goes step by step: compute, log, now and then evaluate,
 * sample and save. A step is a pure function of state and step number, so a run that was interrupted anywhere and resumed from its
 * newest checkpoint has the same state_hash and curve_hash as one that was not.
 *
 * SIGINT and SIGTERM give up the step that is running (the state is that of the last finished one), save, and return LS_INTERRUPTED or
 * LS_STOPPED; a second SIGINT ends the process, and its ranks, at once. Call from the main thread, one run at a time in a process.
 */
#ifndef LS_EXECUTION_TRAIN_TRAINER_H
#define LS_EXECUTION_TRAIN_TRAINER_H

#include "base/json.h"
#include "execution/elastic/launch.h"
#include "execution/train/run_dir.h"

#include <stdio.h>

typedef struct ls_train_options {
    const char *config; /* run file */
    const char *const *overrides;
    size_t override_count; /* key=value */
    const char *run_dir;   /* NULL: runs/<name> */
    ls_run_mode mode;
    uint64_t threads;           /* per rank; 0: as the run file says */
    uint64_t ranks;             /* processes that compute; 0: as the run file says */
    const ls_gang_hosts *hosts; /* several hosts, with `ranks` ranks; NULL: this one */
    double start_timeout_s;     /* for ranks and hosts to be ready; 0: chosen */
    uint64_t stop_step;         /* train until this step, the schedule unchanged; 0: to train.steps */
    bool dry_run;               /* only plan */
    FILE *out;                  /* for people */
    double start_s;             /* monotonic time the process began */
} ls_train_options;

/*
 * Trains. result_out: the summary (telemetry/summary.h), or with dry_run the plan (ls_session_to_json); the caller drops it. Written also
 * when the run was stopped or failed after it began; NULL otherwise.
 *
 * Errors: those of the run file, data and model; LS_ERR_MEMORY before the first step; LS_ERR_DISK when a checkpoint can't be saved (older ones
 * stay); LS_ERR_FAILED when the loss is not finite; with several ranks LS_ERR_RANKS_LOST (one died), LS_ERR_MISMATCH, LS_ERR_TIMEOUT, or a
 * rank's own error: all name the rank, and what was finished is saved; LS_STOPPED, LS_INTERRUPTED.
 */
LS_MUST_CHECK ls_status ls_train(const ls_train_options *options, json_t **result_out);

#endif
