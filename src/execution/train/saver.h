// SPDX-License-Identifier: Apache-2.0
/*
 * The saver: a thread that writes one checkpoint while steps go on, and then prunes old ones.
 *
 *   steps    | n      | n+1    | n+2    | n+3 ...
 *   state    |     ==copy==> snapshot               what the state was behind step n
 *   saver             |-- hash, write, sync, rename --| prune |
 *
 * At most one checkpoint is in flight. It runs at a lower priority than what computes (nice 10), and so do the threads it starts.
 *
 * When a save fails the run goes on: the older checkpoints are as they were, and what is at risk is time, not the result; a disk that was
 * full may be emptied. But a run that can't save any more works for nothing, so the third failure in a row ends it, and so does the one
 * of the last state, which nothing would save later.
 *
 * Used by one thread, the trainer's.
 */
#ifndef LS_EXECUTION_TRAIN_SAVER_H
#define LS_EXECUTION_TRAIN_SAVER_H

#include "base/arena.h"
#include "storage/checkpoint.h"
#include "telemetry/run_log.h"

#include <stdbool.h>

enum { LS_SAVER_FAILURES_MAX = 3, LS_SAVER_TEXT_BYTES = 1024 };

/* One checkpoint to be written. All it points to lives in its arena, but for the tensors' values, which must not change meanwhile. */
typedef struct ls_save_job {
    ls_arena arena;
    ls_checkpoint_meta meta;
    ls_checkpoint_save_options save; /* save.meta is set by ls_saver_begin and ls_save_job_run */
    ls_checkpoint_prune_options prune;
    bool without_state;                        /* only the weights are wanted */
    ls_checkpoint_save_options weights;        /* root NULL: not wanted */
    ls_checkpoint_prune_options weights_prune; /* keep_last 0: all stay */
    ls_run_log *log; /* borrowed: the metrics of a checkpoint's steps are on disk before the checkpoint is */
    double stall_s;  /* what the steps waited for it */
} ls_save_job;

/* How it ended. */
typedef struct ls_save_outcome {
    uint64_t step;
    bool has_state, has_weights; /* what was to be saved */
    ls_status status;            /* of the state */
    ls_status weights_status;
    ls_status prune_status; /* of what came behind it */
    uint64_t bytes, weights_bytes;
    double stall_s, write_s;
    char text[LS_SAVER_TEXT_BYTES], weights_text[LS_SAVER_TEXT_BYTES]; /* of the errors */
} ls_save_outcome;

/* Runs a job here, and releases it. */
void ls_save_job_run(ls_save_job *job, ls_save_outcome *outcome_out);
void ls_save_job_release(ls_save_job *job);

typedef struct ls_saver ls_saver;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_saver_create(ls_saver **saver_out);
/* Waits for what is in flight. NULL is fine. */
void ls_saver_destroy(ls_saver *saver);

/* Whether a checkpoint is in flight, or its outcome not yet taken. */
bool ls_saver_is_busy(const ls_saver *saver);
/* Takes the job over. Not while it is busy. When no thread can be started it runs at once. */
void ls_saver_begin(ls_saver *saver, ls_save_job *job);
/* The outcome of what was in flight; wait: until there is one. False when there is none (yet). */
bool ls_saver_take(ls_saver *saver, bool wait, ls_save_outcome *outcome_out);

#endif
