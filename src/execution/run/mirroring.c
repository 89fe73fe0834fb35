// SPDX-License-Identifier: Apache-2.0
#include "execution/run/mirroring.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MIRRORING_NICE = 19, RETRY_S = 30, NO_STEP = 0, OUTCOMES_MAX = 8 };

struct ls_mirroring {
    ls_mirroring_options options;
    ls_arena arena;
    ls_blob_store *store;
    _Atomic uint32_t cancel;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock */
    uint64_t wanted, done; /* steps; NO_STEP: none */
    uint64_t failed;       /* the newest that was tried in vain */
    bool ends;
    ls_mirrored outcomes[OUTCOMES_MAX]; /* oldest first */
    size_t outcome_count;
};

static void copy_one(ls_mirroring *m, uint64_t step, ls_mirrored *outcome)
{
    size_t removed = 0;
    const double start_s = ls_clock_monotonic_s();
    *outcome = (ls_mirrored){.step = step};
    ls_error_clear();
    outcome->status = ls_mirror_put(m->store, m->options.root, step, &outcome->sent_bytes);
    const bool bad =
        outcome->status != LS_OK || ls_mirror_prune(m->store, &m->options.rules, &removed) != LS_OK;
    if (bad) {
        snprintf(outcome->text, sizeof outcome->text, "%s", ls_error_text());
    }
    outcome->seconds = ls_clock_monotonic_s() - start_s;
}

/* Waits, under the lock, until there is something to do. After a failure the same step is tried
 * again when RETRY_S have passed. */
static void await_work(ls_mirroring *m)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RETRY_S;
    bool timed_out = false;
    while (!m->ends && (m->wanted == m->done || (m->wanted == m->failed && !timed_out))) {
        if (m->wanted == m->done) {
            pthread_cond_wait(&m->changed, &m->lock);
        } else {
            timed_out = pthread_cond_clockwait(&m->changed, &m->lock, CLOCK_MONOTONIC, &until) != 0;
        }
    }
}

/* Removes the oldest outcome. */
static void drop_oldest(ls_mirroring *m)
{
    m->outcome_count--;
    memmove(m->outcomes, m->outcomes + 1, m->outcome_count * sizeof *m->outcomes);
}

static void *mirroring_main(void *argument)
{
    ls_mirroring *m = argument;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), MIRRORING_NICE);
    pthread_mutex_lock(&m->lock);
    for (await_work(m); !m->ends; await_work(m)) {
        ls_mirrored outcome;
        const uint64_t step = m->wanted;
        pthread_mutex_unlock(&m->lock);
        copy_one(m, step, &outcome);
        pthread_mutex_lock(&m->lock);
        const bool failed = outcome.status != LS_OK;
        m->failed = failed ? step : NO_STEP;
        m->done = failed ? m->done : step;
        /* One that was pruned while a newer one waits is no failure. */
        if (!failed || step == m->wanted) {
            if (m->outcome_count == OUTCOMES_MAX) {
                drop_oldest(m);
            }
            m->outcomes[m->outcome_count++] = outcome;
        }
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

ls_status ls_mirroring_start(const ls_mirroring_options *options, ls_mirroring **mirroring_out)
{
    ls_mirroring *m = calloc(1, sizeof *m);
    if (!m) {
        return ls_fail(LS_ERR_MEMORY, "no memory to mirror checkpoints");
    }
    m->options = *options;
    m->options.root = ls_arena_strdup(&m->arena, options->root);
    ls_status status =
        ls_blob_open(options->address, &(ls_blob_options){.cancel = &m->cancel, .threads = 2}, &m->store);
    pthread_cond_init(&m->changed, NULL);
    pthread_mutex_init(&m->lock, NULL);
    if (status == LS_OK && pthread_create(&m->thread, NULL, mirroring_main, m) != 0) {
        status = ls_fail(LS_ERR_MEMORY, "no thread to mirror checkpoints");
    }
    if (status != LS_OK) {
        ls_blob_close(m->store);
        ls_arena_release(&m->arena);
        free(m);
        return status;
    }
    *mirroring_out = m;
    return LS_OK;
}

void ls_mirroring_want(ls_mirroring *m, uint64_t step)
{
    pthread_mutex_lock(&m->lock);
    m->wanted = step;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

bool ls_mirroring_take(ls_mirroring *m, bool wait, ls_mirrored *mirrored_out)
{
    pthread_mutex_lock(&m->lock);
    while (wait && m->wanted != m->done && m->wanted != m->failed) {
        pthread_cond_wait(&m->changed, &m->lock); /* ends: requests have deadlines */
    }
    const bool taken = m->outcome_count > 0;
    if (taken) {
        *mirrored_out = m->outcomes[0];
        drop_oldest(m);
    }
    pthread_mutex_unlock(&m->lock);
    return taken;
}

void ls_mirroring_stop(ls_mirroring *m)
{
    if (!m) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    m->ends = true;
    atomic_store(&m->cancel, 1);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    LS_ASSERT(pthread_join(m->thread, NULL) == 0);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    ls_blob_close(m->store);
    ls_arena_release(&m->arena);
    free(m);
}
