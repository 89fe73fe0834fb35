// SPDX-License-Identifier: Apache-2.0
#include "execution/run/saver.h"

#include "base/assert.h"
#include "base/json.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SAVER_NICE = 10 };

struct ls_saver {
    pthread_t thread;
    bool busy;   /* a job was started and its outcome has not been taken */
    bool joined; /* there is no thread to join: the job ran on the calling thread */
    atomic_bool done;
    ls_save_job job;
    ls_save_outcome outcome; /* valid once done */
};

void ls_save_job_release(ls_save_job *job)
{
    json_decref((json_t *)(uintptr_t)job->meta.extra);
    ls_arena_release(&job->arena);
    *job = (ls_save_job){0};
}

static ls_status prune(ls_save_job *job, const char *root, const ls_checkpoint_prune_options *options)
{
    uint64_t *removed = NULL;
    size_t count = 0;
    return ls_checkpoint_prune(&job->arena, root, options, &removed, &count);
}

static void run_state(ls_save_job *job, ls_save_outcome *outcome)
{
    ls_checkpoint_saved saved = {0};
    outcome->has_state = true;
    outcome->status = ls_run_log_flush(job->log);
    if (outcome->status == LS_OK) {
        outcome->status = ls_checkpoint_save(&job->save, &saved);
    }
    outcome->bytes = saved.bytes;
    outcome->write_s = saved.wall_s;
    if (outcome->status == LS_OK) {
        outcome->prune_status = prune(job, job->save.root, &job->prune);
    }
}

/* The copy of the weights is a convenience: its errors are reported but never end the run. */
static void run_weights(ls_save_job *job, ls_save_outcome *outcome)
{
    ls_checkpoint_saved saved = {0};
    outcome->has_weights = true;
    outcome->weights_status = ls_checkpoint_save(&job->weights, &saved);
    outcome->weights_bytes = saved.bytes;
    if (outcome->weights_status == LS_OK && job->weights_prune.keep_last > 0) {
        outcome->weights_status = prune(job, job->weights.root, &job->weights_prune);
    }
    if (outcome->weights_status != LS_OK) {
        snprintf(outcome->weights_text, sizeof outcome->weights_text, "%s", ls_error_text());
    }
}

void ls_save_job_run(ls_save_job *job, ls_save_outcome *outcome_out)
{
    ls_save_outcome outcome = {.step = job->meta.step, .stall_s = job->stall_s};
    job->save.meta = job->weights.meta = &job->meta;
    if (!job->without_state) {
        run_state(job, &outcome);
    }
    if (outcome.status != LS_OK || outcome.prune_status != LS_OK) {
        snprintf(outcome.text, sizeof outcome.text, "%s", ls_error_text());
    }
    if (job->weights.root) {
        run_weights(job, &outcome);
    }
    ls_save_job_release(job);
    *outcome_out = outcome;
}

static void *saver_main(void *argument)
{
    ls_saver *saver = argument;
    /* On Linux each thread has its own priority and passes it on to the threads it starts. A
     * failure does no harm. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), SAVER_NICE);
    ls_save_job_run(&saver->job, &saver->outcome);
    atomic_store_explicit(&saver->done, true, memory_order_release);
    return NULL;
}

ls_status ls_saver_create(ls_saver **saver_out)
{
    ls_saver *saver = calloc(1, sizeof *saver);
    if (!saver) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to save checkpoints");
    }
    *saver_out = saver;
    return LS_OK;
}

void ls_saver_destroy(ls_saver *saver)
{
    ls_save_outcome outcome;
    if (saver) {
        (void)ls_saver_take(saver, true, &outcome);
        free(saver);
    }
}

bool ls_saver_is_busy(const ls_saver *saver)
{
    return saver->busy;
}

void ls_saver_begin(ls_saver *saver, ls_save_job *job)
{
    LS_ASSERT(!saver->busy);
    saver->job = *job;
    *job = (ls_save_job){0};
    saver->busy = true;
    atomic_store(&saver->done, false);
    saver->joined = pthread_create(&saver->thread, NULL, saver_main, saver) != 0;
    if (saver->joined) {
        ls_save_job_run(&saver->job, &saver->outcome);
        atomic_store(&saver->done, true);
    }
}

bool ls_saver_take(ls_saver *saver, bool wait, ls_save_outcome *outcome_out)
{
    if (!saver->busy || (!wait && !atomic_load_explicit(&saver->done, memory_order_acquire))) {
        return false;
    }
    if (!saver->joined) {
        LS_ASSERT(pthread_join(saver->thread, NULL) == 0);
    }
    saver->busy = false;
    *outcome_out = saver->outcome;
    return true;
}
