// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/preemption_notice.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { NOTICES_MAX = 8 };
#define FILE_POLL_S 0.1

struct ls_preemption_watch {
    bool drop_absent;
    double poll_s;
    char *file;
    ls_preemption_asker askers[LS_PREEMPTION_SOURCES];
    bool complained[LS_PREEMPTION_SOURCES];
    _Atomic uint32_t sources, cancel, waiting; /* waiting: notices that were not taken yet */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t count, taken; /* number of notices; under lock */
    ls_preemption_notice notices[NOTICES_MAX];
};

/* ---- the thread ---- */

static void put(ls_preemption_watch *watch, const ls_preemption_notice *notice)
{
    pthread_mutex_lock(&watch->lock);
    if (watch->count < NOTICES_MAX) {
        watch->notices[watch->count++] = *notice;
        atomic_fetch_add(&watch->waiting, 1);
    }
    pthread_mutex_unlock(&watch->lock);
}

static void drop(ls_preemption_watch *watch, ls_preemption_source source)
{
    atomic_fetch_and(&watch->sources, ~(1u << source));
}

/* A source that was asked for is reported once when it does not answer. Sources that were only
 * guessed (spot machines) are dropped quietly. */
static void note_absence(ls_preemption_watch *watch, ls_preemption_source source, bool is_first)
{
    if (atomic_load(&watch->cancel) != 0) {
        return;
    }
    if (watch->drop_absent && is_first && source != LS_PREEMPTION_FILE) {
        ls_log_info("preemption notices from %s will not be noticed: %s", ls_preemption_source_name(source),
                    ls_error_text());
        drop(watch, source);
    } else if (!watch->complained[source]) {
        watch->complained[source] = true;
        ls_log_warn("preemption notices from %s cannot be read for now: %s",
                    ls_preemption_source_name(source), ls_error_text());
    }
}

static void look(ls_preemption_watch *watch, ls_preemption_source source, bool is_first)
{
    ls_preemption_notice notice;
    switch (ls_preemption_look(source, &watch->askers[source], &notice)) {
    case LS_PREEMPTION_SEEN:
        put(watch, &notice);
        if (notice.leave) {
            drop(watch, source); /* it has nothing more to announce */
        }
        break;
    case LS_PREEMPTION_ABSENT:
        note_absence(watch, source, is_first);
        break;
    default:
        break;
    }
    ls_error_clear();
}

/* False when the watch is to end. */
static bool sleep_for(ls_preemption_watch *watch, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double end_s = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + seconds;
    until.tv_sec = (time_t)floor(end_s);
    until.tv_nsec = (long)(1e9 * (end_s - floor(end_s)));
    pthread_mutex_lock(&watch->lock);
    int waited = 0;
    while (atomic_load(&watch->cancel) == 0 && waited == 0) {
        waited = pthread_cond_clockwait(&watch->wake, &watch->lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&watch->lock);
    return atomic_load(&watch->cancel) == 0;
}

static void *run(void *context)
{
    ls_preemption_watch *watch = context;
    double next_s[LS_PREEMPTION_SOURCES] = {0};
    for (bool goes_on = true; goes_on;) {
        double wake_s = ls_clock_monotonic_s() + 3600.0;
        for (int s = 0; s < LS_PREEMPTION_SOURCES && atomic_load(&watch->cancel) == 0; s++) {
            const double now_s = ls_clock_monotonic_s();
            if (!(ls_preemption_watch_sources(watch) & 1u << s)) {
                continue;
            }
            if (now_s >= next_s[s]) {
                look(watch, (ls_preemption_source)s, next_s[s] == 0.0);
                next_s[s] = ls_clock_monotonic_s() +
                            (s == LS_PREEMPTION_FILE ? fmin(FILE_POLL_S, watch->poll_s) : watch->poll_s);
            }
            wake_s = fmin(wake_s, next_s[s]);
        }
        goes_on = sleep_for(watch, fmax(0.001, wake_s - ls_clock_monotonic_s()));
    }
    return NULL;
}

/* ---- from outside ---- */

static ls_status start_thread(ls_preemption_watch *watch)
{
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->wake, NULL);
    sigset_t all, before; /* signals are for the main thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&watch->thread, NULL, run, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? ls_fail_errno(error, "cannot start the thread that looks for preemption notices, which "
                                        "announce that this machine will be taken away")
                 : LS_OK;
}

static void destroy(ls_preemption_watch *watch)
{
    pthread_cond_destroy(&watch->wake);
    pthread_mutex_destroy(&watch->lock);
    free(watch->file);
    free(watch);
}

ls_status ls_preemption_watch_start(const ls_preemption_options *options, ls_preemption_watch **watch_out)
{
    ls_preemption_watch *watch = calloc(1, sizeof *watch);
    char *file = watch && options->file ? strdup(options->file) : NULL;
    if (!watch || (options->file && !file)) {
        free(watch);
        return ls_fail(LS_ERR_MEMORY, "not enough memory to look for preemption notices, which announce that "
                                      "this machine will be taken away");
    }
    watch->file = file;
    watch->drop_absent = options->drop_absent;
    watch->poll_s = options->poll_s > 0.0 ? options->poll_s : 2.0;
    const uint32_t file_bit = 1u << LS_PREEMPTION_FILE;
    atomic_store(&watch->sources, file ? options->sources | file_bit : options->sources & ~file_bit);
    for (int s = 0; s < LS_PREEMPTION_SOURCES; s++) {
        ls_preemption_asker_init(&watch->askers[s], (ls_preemption_source)s, file, &watch->cancel);
    }
    const ls_status status = start_thread(watch);
    if (status != LS_OK) {
        destroy(watch);
        return status;
    }
    *watch_out = watch;
    return LS_OK;
}

static uint32_t asked_sources(const ls_run_job *job)
{
    uint32_t sources = 0;
    for (uint64_t i = 0; i < job->notice.count; i++) {
        /* ls_run_file_check has checked the names */
        sources |= 1u << ls_preemption_source_named(job->notice.items[i]);
    }
    return sources;
}

/* A file in a folder that does not exist could never appear. */
static ls_status check_folder(const char *file)
{
    ls_arena arena = {0};
    const char *folder = ls_path_dirname(&arena, file);
    const ls_status status =
        ls_path_is_dir(folder) ? LS_OK
                               : ls_fail(LS_ERR_INVALID,
                                         "job.notice_file is %s, but the folder %s does not exist, so the "
                                         "notice could never appear; create the folder, or name a file in an "
                                         "existing one",
                                         file, folder);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_preemption_watch_for(const ls_run_job *job, ls_preemption_watch **watch_out)
{
    *watch_out = NULL;
    const char *environment = getenv("LOCKSTEP_NOTICE_FILE");
    const char *file = job->notice_file[0]             ? job->notice_file
                       : environment && environment[0] ? environment
                                                       : NULL;
    uint32_t sources = asked_sources(job);
    if ((sources & 1u << LS_PREEMPTION_FILE) && !file) {
        return ls_fail(LS_ERR_INVALID, "job.notice includes the source 'file', but no file is named: set "
                                       "job.notice_file or the environment variable LOCKSTEP_NOTICE_FILE");
    }
    LS_TRY(file ? check_folder(file) : LS_OK);
    if (file && ls_path_is_dir(file)) {
        return ls_fail(LS_ERR_INVALID,
                       "job.notice_file is %s, which is a folder; name a file that does not exist yet, such "
                       "as %s/leave: creating it later tells the run to leave this machine",
                       file, file);
    }
    const bool guess = sources == 0 && job->spot;
    if (guess) {
        sources = 1u << LS_PREEMPTION_AWS | 1u << LS_PREEMPTION_GCP | 1u << LS_PREEMPTION_AZURE;
    }
    if (sources == 0 && !file) {
        return LS_OK;
    }
    const ls_preemption_options options = {
        .sources = sources, .drop_absent = guess, .file = file, .poll_s = job->notice_poll_s};
    return ls_preemption_watch_start(&options, watch_out);
}

bool ls_preemption_watch_take(ls_preemption_watch *watch, ls_preemption_notice *notice_out)
{
    if (!watch || atomic_load_explicit(&watch->waiting, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&watch->lock);
    const bool found = watch->taken < watch->count;
    if (found) {
        *notice_out = watch->notices[watch->taken++];
        atomic_fetch_sub(&watch->waiting, 1);
    }
    pthread_mutex_unlock(&watch->lock);
    return found;
}

uint32_t ls_preemption_watch_sources(const ls_preemption_watch *watch)
{
    return atomic_load(&watch->sources);
}

void ls_preemption_watch_stop(ls_preemption_watch *watch)
{
    if (!watch) {
        return;
    }
    pthread_mutex_lock(&watch->lock);
    atomic_store(&watch->cancel, 1);
    pthread_cond_signal(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    destroy(watch);
}
