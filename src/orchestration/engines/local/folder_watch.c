// SPDX-License-Identifier: Apache-2.0
/*
 * When to look at a job's folder: the runner's files, running-E and exit-E, and alerts.jsonl appear
 * by rename, and inotify reports that.
 *
 * The number of watches is limited, some file systems have none, and a full queue of events loses
 * what follows. So a job without a watch is polled, and after a loss all jobs are looked at once,
 * at most LOOKS_PER_ROUND in a round.
 */
#include "orchestration/engines/local/local_internal.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define ROUND_NS UINT64_C(20000000)   /* between two rounds, while jobs wait to be looked at */
#define SWEEP_NS UINT64_C(1000000000) /* between two sweeps over jobs without a watch */
enum { LOOKS_PER_ROUND = 32 };

static void try_to_watch(track *t)
{
    local_engine *e = t->engine;
    t->watch = inotify_add_watch(e->notify, t->folder.text, IN_MOVED_TO | IN_ONLYDIR);
    if (t->watch < 0 && errno != ENOENT && !e->told_watchless) {
        e->told_watchless = true;
        ls_log_warn("job %" PRIu64 ": cannot watch its folder, so it is polled every second: %s%s", t->job,
                    strerror(errno), errno == ENOSPC ? " (fs.inotify.max_user_watches)" : "");
    }
}

/* ---- again and again ---- */

static void set_round(local_engine *e, uint64_t delay_ns);

static bool is_open(const track *t)
{
    return !t->told_end;
}

/* Looks at some of the jobs that must be looked at. false: none is left. */
static bool look_at_some(local_engine *e)
{
    uint32_t looks = 0;
    for (track *t = e->tracks; t; t = t->next) {
        if (!t->must_look || !is_open(t)) {
            continue;
        }
        if (looks++ == LOOKS_PER_ROUND) {
            return true;
        }
        t->must_look = false;
        if (t->watch < 0) {
            try_to_watch(t); /* before the look, so that nothing is missed between the two */
        }
        ls_track_look(t);
    }
    return false;
}

static void round_is_due(void *context)
{
    local_engine *e = context;
    bool any = false;
    e->round_timer = 0;
    if (look_at_some(e)) {
        set_round(e, ROUND_NS);
        return;
    }
    for (track *t = e->tracks; t; t = t->next) {
        t->must_look = is_open(t) && t->watch < 0;
        any = any || t->must_look;
    }
    if (any) {
        set_round(e, SWEEP_NS);
    }
}

static void set_round(local_engine *e, uint64_t delay_ns)
{
    if (!e->round_timer) {
        e->round_timer = ls_env_timer_set(e->settings.env, delay_ns, round_is_due, e);
    }
}

/* Starts a round over all jobs now. */
static void look_at_all(local_engine *e)
{
    for (track *t = e->tracks; t; t = t->next) {
        t->must_look = is_open(t);
    }
    if (e->round_timer) {
        ls_env_timer_cancel(e->settings.env, e->round_timer);
        e->round_timer = 0;
    }
    set_round(e, 0);
}

/* ---- what is heard ---- */

static void hear(local_engine *e, const struct inotify_event *event)
{
    const bool is_word = event->len > 0 &&
                         (strncmp(event->name, "running-", 8) == 0 || strncmp(event->name, "exit-", 5) == 0 ||
                          strcmp(event->name, LS_LOCAL_ALERTS) == 0);
    /* the folder or its watch was removed */
    const bool is_over = (event->mask & IN_IGNORED) != 0;
    for (track *t = e->tracks; t && (is_word || is_over); t = t->next) {
        if (t->watch == event->wd && is_over) {
            t->watch = -1;
            t->must_look = is_open(t);
            set_round(e, SWEEP_NS);
        } else if (t->watch == event->wd) {
            t->is_heard = true;
        }
    }
}

static void folder_changed(void *context)
{
    local_engine *e = context;
    _Alignas(struct inotify_event) char data[16384];
    const ssize_t bytes = read(e->notify, data, sizeof data);
    for (ssize_t at = 0; at < bytes;) {
        const struct inotify_event *event = (const struct inotify_event *)(data + at);
        at += (ssize_t)(sizeof *event + event->len);
        if (event->mask & IN_Q_OVERFLOW) {
            ls_log_warn("inotify lost events of job folders: looking at all jobs");
            look_at_all(e);
        } else {
            hear(e, event);
        }
    }
    for (track *t = e->tracks; t; t = t->next) {
        if (t->is_heard) {
            t->is_heard = false;
            ls_track_look(t);
        }
    }
}

/* ---- life ---- */

void ls_folder_watch_watch(track *t)
{
    try_to_watch(t);
    if (t->watch < 0) {
        t->must_look = true;
        set_round(t->engine, SWEEP_NS);
    }
}

void ls_folder_watch_unwatch(track *t)
{
    bool is_shared = false; /* all epochs of a job share one folder and one watch */
    for (const track *other = t->engine->tracks; other; other = other->next) {
        is_shared = is_shared || (other != t && other->watch == t->watch);
    }
    if (t->watch >= 0 && !is_shared) {
        inotify_rm_watch(t->engine->notify, t->watch);
    }
    t->watch = -1;
}

ls_status ls_folder_watch_open(local_engine *e)
{
    e->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (e->notify < 0) {
        return ls_fail_errno(errno, "cannot watch the folders of jobs for changes (inotify)");
    }
    const int error = -ls_env_real_watch(e->settings.env, e->notify, folder_changed, e, &e->notify_watch);
    if (error) {
        e->notify_watch = 0;
        return ls_fail_errno(error, "cannot watch the folders of jobs for changes (inotify)");
    }
    return LS_OK;
}

void ls_folder_watch_close(local_engine *e)
{
    if (e->notify_watch) {
        ls_env_real_unwatch(e->settings.env, e->notify_watch);
    }
    if (e->notify >= 0) {
        close(e->notify);
    }
    if (e->round_timer) {
        ls_env_timer_cancel(e->settings.env, e->round_timer);
    }
}
