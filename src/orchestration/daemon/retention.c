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

#define FIRST_NS (UINT64_C(1000000000))       /* behind the start */
#define MORE_NS  (UINT64_C(100000000))        /* when there was more than one look takes */
#define NEXT_NS  (UINT64_C(600) * 1000000000) /* else */
#define LIMIT_NS                                                                                             \
    (UINT64_C(60) * 1000000000) /* for one folder; what is left of it is tried again at the next round */

enum { FOUND_MAX = 256, GONE_MAX = 32, STUCK_MAX = 4, PATH_BYTES = LS_JOB_PATH_BYTES_MAX + 32 };

struct ls_retention {
    ls_retention_settings settings;
    char *home;
    ls_env_id timer, limit, process; /* 0: none */
    uint64_t behind;                 /* jobs up to this number were looked at in this round */
    bool is_round_over;              /* and there is none behind it */
    bool was_said;                   /* what will go, in this daemon's life */
    uint64_t chosen[GONE_MAX];       /* their folders are removed one after the other, up to `at` */
    uint32_t chosen_count, at;
    uint64_t gone[GONE_MAX]; /* of these: removed */
    uint32_t gone_count;
    uint32_t stuck; /* processes that were killed and have not ended: a disk hangs */
};

static void look(void *context);
static void remove_next(ls_retention *r);

/* ---- rows ---- */

static void look_in(ls_retention *r, uint64_t delay_ns)
{
    r->timer = ls_env_timer_set(r->settings.env, delay_ns, look, r);
}

/* A round goes once through all jobs; what could not be removed is tried again with the next. */
static void look_again(ls_retention *r)
{
    look_in(r, r->is_round_over ? NEXT_NS : MORE_NS);
    r->behind = r->is_round_over ? 0 : r->behind;
}

/* Somebody may have come meanwhile who waits for one of them: its row stays. */
static void remove_rows(ls_retention *r)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->gone_count; i++) {
        if (ls_controller_let_go(r->settings.controller, r->gone[i])) {
            r->gone[count++] = r->gone[i];
        }
    }
    if (count > 0 && ls_job_store_remove(r->settings.store, r->gone, count) != LS_OK) {
        ls_log_warn("ended jobs can't be forgotten: %s", ls_error_text());
    } else if (count > 0) {
        ls_log_info("%u ended jobs were forgotten, %" PRIu64 " to %" PRIu64, count, r->gone[0],
                    r->gone[count - 1]);
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

/* A folder that could not be removed keeps its row, and keeps no other. */
static void folder_is_gone(void *context, ls_env_id process, int exit_code)
{
    ls_retention *r = context;
    if (process != r->process) {
        r->stuck--; /* it was given up */
        return;
    }
    end_limit(r);
    r->process = 0;
    if (exit_code == 0) {
        r->gone[r->gone_count++] = r->chosen[r->at];
    } else {
        ls_log_warn("the folder of ended job %" PRIu64 " under %s/jobs can't be removed (rm ended with %d)",
                    r->chosen[r->at], r->home, exit_code);
    }
    r->at++;
    remove_next(r);
}

/* A process in the middle of a system call of a disk that hangs does not end even then: nobody waits for it. */
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

/* rm goes through folders without following links, whatever happens to them meanwhile; what is mounted there stays. */
static int remove_folder(ls_retention *r, uint64_t job)
{
    char path[PATH_BYTES];
    const char *const argv[] = {"/bin/rm", "-rf", "--one-file-system", "--", path, NULL};
    snprintf(path, sizeof path, "%s/jobs/%" PRIu64, r->home, job);
    return ls_env_process_start(r->settings.env, argv, folder_is_gone, r, &r->process);
}

static void remove_next(ls_retention *r)
{
    if (r->at < r->chosen_count && r->stuck < STUCK_MAX && remove_folder(r, r->chosen[r->at]) == 0) {
        r->limit = ls_env_timer_set(r->settings.env, LIMIT_NS, took_too_long, r);
        return;
    }
    r->is_round_over = r->is_round_over || r->at < r->chosen_count; /* no more for now */
    remove_rows(r);
    look_again(r);
}

/* ---- looking ---- */

/* Once, before anything goes: a new version may have other limits than who runs this thinks. */
static void say_what_goes(ls_retention *r, double before_s)
{
    uint64_t count = 0;
    double newest_s = 0.0;
    char day[32] = "?";
    if (r->was_said || ls_job_store_expired_sum(r->settings.store, r->settings.jobs_kept, before_s, &count,
                                                &newest_s) != LS_OK) {
        return;
    }
    const time_t second = (time_t)newest_s;
    struct tm parts;
    if (gmtime_r(&second, &parts)) {
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    r->was_said = true;
    ls_log_info("forgetting %" PRIu64
                " jobs, with their folders, that ended up to %s: keep.jobs, keep.time in config.yaml",
                count, day);
}

static void look(void *context)
{
    ls_retention *r = context;
    const double before_s =
        r->settings.time_s > 0.0 ? ls_env_wall_s(r->settings.env) - r->settings.time_s : 0.0;
    uint64_t found[FOUND_MAX];
    uint32_t count = 0, i = 0;
    r->timer = 0;
    r->chosen_count = r->gone_count = r->at = 0;
    if (ls_job_store_expired(r->settings.store, r->settings.jobs_kept, before_s, r->behind, FOUND_MAX, found,
                             &count) != LS_OK) {
        ls_log_warn("can't look for jobs to forget: %s", ls_error_text());
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
    LS_ASSERT(r && "out of memory for a daemon");
    r->settings = *settings;
    r->home = strdup(settings->home);
    LS_ASSERT(r->home && "out of memory for a daemon");
    look_in(r, FIRST_NS);
    return r;
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
