// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/retention.h"

#include "base/assert.h"
#include "base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_NS (UINT64_C(1000000000))       /* after the start */
#define MORE_NS  (UINT64_C(100000000))        /* while a round is not finished */
#define NEXT_NS  (UINT64_C(600) * 1000000000) /* between two rounds */
/* For one folder; the rest of it is tried again in the next round. */
#define LIMIT_NS (UINT64_C(60) * 1000000000)

enum { FOUND_MAX = 256, GONE_MAX = 32, STUCK_MAX = 4, PATH_BYTES = LS_JOB_PATH_BYTES_MAX + 32 };

struct ls_retention {
    ls_retention_settings settings;
    char *home;
    ls_env_id timer, limit, process; /* 0: none */
    uint64_t behind;                 /* jobs up to this number were looked at in this round */
    bool is_round_over;              /* no job follows */
    bool was_said;                   /* the log says how many jobs will be removed */
    uint64_t chosen[GONE_MAX];       /* their folders are removed one after the other, up to `at` */
    uint32_t chosen_count, at;
    uint64_t gone[GONE_MAX]; /* those of them that were removed */
    uint32_t gone_count;
    uint32_t stuck; /* processes that were killed and have not ended, because a disk hangs */
};

static void look(void *context);
static void remove_next(ls_retention *r);

/* ---- rows ---- */

static void look_in(ls_retention *r, uint64_t delay_ns)
{
    r->timer = ls_env_timer_set(r->settings.env, delay_ns, look, r);
}

/* A round goes through all jobs once; what could not be removed is tried again in the next. */
static void look_again(ls_retention *r)
{
    look_in(r, r->is_round_over ? NEXT_NS : MORE_NS);
    r->behind = r->is_round_over ? 0 : r->behind;
}

/* A job may have been submitted meanwhile that waits for one of these: its row is kept. */
static void remove_rows(ls_retention *r)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->gone_count; i++) {
        if (ls_controller_let_go(r->settings.controller, r->gone[i])) {
            r->gone[count++] = r->gone[i];
        }
    }
    if (count > 0 && ls_job_store_remove(r->settings.store, r->gone, count) != LS_OK) {
        ls_log_warn("can't remove ended jobs from the database: %s", ls_error_text());
    } else if (count > 0) {
        ls_log_info("removed %u ended job%s, %" PRIu64 " to %" PRIu64, count, count == 1 ? "" : "s",
                    r->gone[0], r->gone[count - 1]);
    }
}

/* ---- folders ---- */

static void end_limit(ls_retention *r)
{
    if (r->limit) {
        ls_env_timer_cancel(r->settings.env, r->limit);
        r->limit = 0;
    }
}

/* The row of a folder that could not be removed is kept; the others go on. */
static void folder_is_gone(void *context, ls_env_id process, int exit_code)
{
    ls_retention *r = context;
    if (process != r->process) {
        r->stuck--; /* it had been given up */
        return;
    }
    end_limit(r);
    r->process = 0;
    if (exit_code == 0) {
        r->gone[r->gone_count++] = r->chosen[r->at];
    } else {
        ls_log_warn("can't remove the folder of ended job %" PRIu64 " under %s/jobs (rm exited with %d)",
                    r->chosen[r->at], r->home, exit_code);
    }
    r->at++;
    remove_next(r);
}

/* A process in a system call on a disk that hangs does not end even when it is killed: it is not
 * waited for. */
static void took_too_long(void *context)
{
    ls_retention *r = context;
    r->limit = 0;
    ls_log_warn("the folder of ended job %" PRIu64 " under %s/jobs was not removed within %d s",
                r->chosen[r->at], r->home, (int)(LIMIT_NS / 1000000000));
    (void)ls_env_process_kill(r->settings.env, r->process, SIGKILL);
    r->stuck++;
    r->process = 0;
    r->at++;
    remove_next(r);
}

/* rm does not follow links, even if folders are swapped while it runs; other mounted file systems
 * are left alone. */
static int remove_folder(ls_retention *r, uint64_t job)
{
    char path[PATH_BYTES], logged[PATH_BYTES];
    const char *const argv[] = {"/bin/rm", "-rf", "--one-file-system", "--", path, logged, NULL};
    snprintf(path, sizeof path, "%s/jobs/%" PRIu64, r->home, job);
    snprintf(logged, sizeof logged, "%s/logged/%" PRIu64 ".jsonl", r->home, job);
    return ls_env_process_start(r->settings.env, argv, folder_is_gone, r, &r->process);
}

static void remove_next(ls_retention *r)
{
    if (r->at < r->chosen_count && r->stuck < STUCK_MAX && remove_folder(r, r->chosen[r->at]) == 0) {
        r->limit = ls_env_timer_set(r->settings.env, LIMIT_NS, took_too_long, r);
        return;
    }
    /* too many hang: the round ends here */
    r->is_round_over = r->is_round_over || r->at < r->chosen_count;
    remove_rows(r);
    look_again(r);
}

/* ---- looking ---- */

/* Logged once, before anything is removed: the limits may not be what the owner expects. */
static void say_what_goes(ls_retention *r, double before_s)
{
    uint64_t count = 0;
    double newest_s = 0.0;
    char day[32] = "?";
    const ls_job_expiry expiry = {.kept = r->settings.jobs_kept, .before_s = before_s};
    if (r->was_said || ls_job_store_expired_sum(r->settings.store, &expiry, &count, &newest_s) != LS_OK) {
        return;
    }
    const time_t second = (time_t)newest_s;
    struct tm parts;
    if (gmtime_r(&second, &parts)) {
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    r->was_said = true;
    ls_log_info("%" PRIu64 " ended job%s to remove, with folders; the latest ended at %s "
                "(keep.jobs and keep.time in config.yaml)",
                count, count == 1 ? "" : "s", day);
}

static void look(void *context)
{
    ls_retention *r = context;
    const double before_s =
        r->settings.time_s > 0.0 ? ls_env_wall_s(r->settings.env) - r->settings.time_s : 0.0;
    const ls_job_expiry expiry = {.kept = r->settings.jobs_kept, .before_s = before_s};
    uint64_t found[FOUND_MAX];
    uint32_t count = 0, i = 0;
    r->timer = 0;
    r->chosen_count = r->gone_count = r->at = 0;
    if (ls_job_store_expired(r->settings.store, &expiry, r->behind, FOUND_MAX, found, &count) != LS_OK) {
        ls_log_warn("can't look for jobs to remove: %s", ls_error_text());
        count = 0;
    }
    for (; i < count && r->chosen_count < GONE_MAX; i++) {
        r->behind = found[i];
        if (ls_controller_let_go(r->settings.controller, found[i])) {
            r->chosen[r->chosen_count++] = found[i];
        }
    }
    r->is_round_over = i == count && count < FOUND_MAX;
    if (r->chosen_count > 0) {
        say_what_goes(r, before_s);
    }
    remove_next(r);
}

ls_retention *ls_retention_create(const ls_retention_settings *settings)
{
    ls_retention *r = calloc(1, sizeof *r);
    LS_ASSERT(r && "not enough memory for a daemon");
    r->settings = *settings;
    r->home = strdup(settings->home);
    LS_ASSERT(r->home && "not enough memory for a daemon");
    look_in(r, FIRST_NS);
    return r;
}

void ls_retention_configure(ls_retention *r, uint64_t jobs_kept, double time_s)
{
    r->settings.jobs_kept = jobs_kept;
    r->settings.time_s = time_s;
}

void ls_retention_destroy(ls_retention *r)
{
    if (r) {
        if (r->timer) {
            ls_env_timer_cancel(r->settings.env, r->timer);
        }
        end_limit(r);
        free(r->home);
        free(r);
    }
}
