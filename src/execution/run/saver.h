// SPDX-License-Identifier: Apache-2.0
/*
 * The saver: a thread that writes one checkpoint while steps continue, and then prunes old ones.
 *
 *   steps    | n      | n+1    | n+2    | n+3 ...
 *   state    |     ==copy==> snapshot               the state after step n
 *   saver             |-- hash, write, sync, rename --| prune |
 *
 * At most one checkpoint is written at a time. The thread, and the threads it starts, run at a
 * lower priority (nice 10) than those that compute.
 *
 * If a save fails the run continues: older checkpoints are unchanged, so only time is at risk, and
 * a full disk may be emptied. But a run that can no longer save works in vain: the third failure in
 * a row ends it, and so does a failure to save the last state, which no later save would make good.
 *
 * To be used by one thread, the trainer's.
 */
#ifndef LS_EXECUTION_RUN_SAVER_H
#define LS_EXECUTION_RUN_SAVER_H

#include "base/arena.h"
#include "storage/checkpoint/checkpoint.h"
#include "telemetry/record/run_log.h"

#include <stdbool.h>

enum { LS_SAVER_FAILURES_MAX = 3, LS_SAVER_TEXT_BYTES = 1024 };

/* One checkpoint to be written. All it points to lives in its arena, except for the values of the
 * tensors, which must not change until it is written. */
typedef struct ls_save_job {
    ls_arena arena;
    ls_checkpoint_meta meta;
    ls_checkpoint_save_options save; /* save.meta is set by ls_saver_begin and ls_save_job_run */
    ls_checkpoint_prune_options prune;
    bool without_state;                        /* only the weights are saved */
    ls_checkpoint_save_options weights;        /* root NULL: no separate copy of the weights */
    ls_checkpoint_prune_options weights_prune; /* keep_last 0: keep all */
    /* Borrowed. It is flushed first, so that the metrics of a checkpoint's steps are on disk before
     * the checkpoint is. */
    ls_run_log *log;
    double stall_s; /* how long steps waited for it so far */
} ls_save_job;

/* How a job ended. */
typedef struct ls_save_outcome {
    uint64_t step;
    bool has_state, has_weights; /* what was to be saved */
    ls_status status;            /* of saving the state */
    ls_status weights_status;    /* of saving the weights alone */
    ls_status prune_status;      /* of pruning after a state was saved */
    uint64_t bytes, weights_bytes;
    double stall_s, write_s;
    char text[LS_SAVER_TEXT_BYTES], weights_text[LS_SAVER_TEXT_BYTES]; /* error texts */
} ls_save_outcome;

/* Runs a job on the calling thread and releases it. */
void ls_save_job_run(ls_save_job *job, ls_save_outcome *outcome_out);
void ls_save_job_release(ls_save_job *job);

typedef struct ls_saver ls_saver;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_saver_create(ls_saver **saver_out);
/* Waits for the checkpoint being written. NULL is allowed. */
void ls_saver_destroy(ls_saver *saver);

/* Whether a checkpoint is being written, or its outcome has not been taken yet. */
bool ls_saver_is_busy(const ls_saver *saver);
/* Takes over the job and starts it. Must not be called while busy. If no thread can be started, the
 * job runs on the calling thread. */
void ls_saver_begin(ls_saver *saver, ls_save_job *job);
/* Takes the outcome of the job. wait: waits for it. Returns false if there is none (yet). */
bool ls_saver_take(ls_saver *saver, bool wait, ls_save_outcome *outcome_out);

#endif
