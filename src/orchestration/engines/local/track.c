// SPDX-License-Identifier: Apache-2.0
/* One epoch of a job: what has become of it, and reports. */
#include "orchestration/engines/local/local_internal.h"

#include "base/assert.h"
#include "base/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_AGAIN_NS (5 * UINT64_C(1000000000)) /* behind a start for which something was too little */
#define LOOK_AGAIN_NS                                                                                        \
    20000000u /* at what is on its way: a runner that was killed and whose lock is not dropped yet, leftovers */

struct later {
    struct later *next;
    ls_engine_report report;
    char text[512], error[LS_TICKET_ERROR_BYTES];
};

/* ---- reports ---- */

static void deliver(void *context)
{
    local_engine *e = context;
    e->deliver_timer = 0;
    while (e->first) {
        later *item = e->first;
        e->first = item->next;
        if (!e->first) {
            e->last = &e->first;
        }
        item->report.text = item->text[0] ? item->text : NULL;
        item->report.error = item->error[0] ? item->error : NULL;
        e->settings.hear(e->settings.hear_context, &item->report);
        free(item);
    }
}

void ls_track_report(track *t, ls_engine_report value)
{
    local_engine *e = t->engine;
    later *item = calloc(1, sizeof *item);
    LS_ASSERT(item && "out of memory for a report");
    item->report = value;
    item->report.job = t->job;
    item->report.epoch = t->epoch;
    snprintf(item->text, sizeof item->text, "%s", value.text ? value.text : "");
    snprintf(item->error, sizeof item->error, "%s", value.error ? value.error : "");
    *e->last = item;
    e->last = &item->next;
    if (!e->deliver_timer) {
        e->deliver_timer = ls_env_timer_set(e->settings.env, 0, deliver, e);
    }
}

void ls_track_report_end(track *t, ls_engine_report value)
{
    if (!t->told_end) {
        t->told_end = true;
        ls_track_report(t, value);
    }
}

void ls_local_reports_drop(local_engine *e)
{
    while (e->first) {
        later *item = e->first;
        e->first = item->next;
        free(item);
    }
    if (e->deliver_timer) {
        ls_env_timer_cancel(e->settings.env, e->deliver_timer);
    }
}

/* ---- tracks ---- */

static track *find(const local_engine *e, const ls_job *job)
{
    for (track *t = e->tracks; t; t = t->next) {
        if (t->job == job->id && t->epoch == job->epoch) {
            return t;
        }
    }
    return NULL;
}

track *ls_track_of(local_engine *e, const ls_job *job)
{
    track *t = find(e, job);
    if (t) {
        return t;
    }
    t = calloc(1, sizeof *t);
    LS_ASSERT(t && "out of memory for a job");
    *t = (track){.next = e->tracks,
                 .engine = e,
                 .job = job->id,
                 .epoch = job->epoch,
                 .uid = job->uid,
                 .gid = job->gid,
                 .ranks = job->ranks_now,
                 .folder = ls_local_folder(e->home, job->id),
                 .group = ls_local_group(&e->groups, job->id, job->epoch),
                 .run_dir = strdup(job->run_dir),
                 .devices = ls_local_devices(job),
                 .saved_s = job->saved_s,
                 .progress = {.steps = job->spec.steps},
                 .watch = -1};
    e->tracks = t;
    return t;
}

void ls_track_destroy(track *t)
{
    const ls_env_id timers[] = {t->look_timer, t->hunt_timer, t->resize_timer, t->give_back_timer,
                                t->step_timer};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        if (timers[i]) {
            ls_env_timer_cancel(env_of(t), timers[i]);
        }
    }
    ls_user_files_forget(t->engine->settings.files, t->save_question);
    ls_user_files_forget(t->engine->settings.files, t->step_question);
    free(t->run_dir);
    free(t);
}

void ls_track_remove(track *gone)
{
    for (track **at = &gone->engine->tracks; *at; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    }
    ls_notices_unwatch(gone);
    (void)ls_local_group_remove(&gone->group); /* its runner may still be in it: then a sweep finds it */
    ls_track_destroy(gone);
}

track *ls_track_by_process(const local_engine *e, ls_env_id process)
{
    for (track *t = e->tracks; t; t = t->next) {
        if (t->process == process || t->resizer == process) {
            return t;
        }
    }
    return NULL;
}

static void look_timer_fired(void *context)
{
    track *t = context;
    t->look_timer = 0;
    ls_track_look(t);
}

void ls_track_look_later(track *t)
{
    if (!t->look_timer) {
        t->look_timer = ls_env_timer_set(env_of(t), LOOK_AGAIN_NS, look_timer_fired, t);
    }
}

static void give_back(void *context)
{
    track *t = context;
    t->give_back_timer = 0;
    ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_NEVER});
}

void ls_track_give_back(track *t)
{
    if (!t->give_back_timer) {
        t->give_back_timer = ls_env_timer_set(env_of(t), START_AGAIN_NS, give_back, t);
    }
}

/* ---- what has become of an epoch ---- */

void ls_track_runner_exited(void *context, ls_env_id process, int exit_code)
{
    track *t = ls_track_by_process(context, process);
    if (t) { /* how its job ended is in a file */
        t->was_short = exit_code == ls_status_exit_code(LS_ERR_DISK);
        t->process = 0;
        t->is_runner_gone = true;
        ls_track_look(t);
        if (t->told_end) {
            (void)ls_local_group_remove(&t->group);
        }
    }
}

static void tell_started(track *t, const ls_ticket_state *state)
{
    if (state->is_running && !t->told_started) {
        t->told_started = true;
        t->started_s = state->started_s;
        ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_STARTED, .time_s = state->started_s});
        if (t->is_adopted) { /* how long it will still take is known to nobody until somebody looks */
            ls_track_look_for_steps(t);
        }
    }
}

/* The number is from a file of the job's user, who could name any process there. */
static bool is_of_user(pid_t pid, uint32_t uid)
{
    char path[64], text[1024];
    unsigned owner = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    const char *line = strstr(text, "\nUid:");
    return line && sscanf(line, "\nUid: %u", &owner) == 1 && owner == uid;
}

/* The claim's number is that of its runner: it has its user, and began when the claim says. */
static bool is_runner(const track *t, const ls_ticket_state *state)
{
    return is_of_user(state->pid, t->uid) &&
           (state->ticks == 0 || ls_process_ticks(state->pid) == state->ticks);
}

/* A runner that this process did not start, or whose number was not known yet. */
static void watch_runner(track *t, const ls_ticket_state *state)
{
    t->pid = state->pid;
    t->is_grouped = t->is_grouped || ls_local_group_has(&t->group, state->pid);
    if (t->process || t->is_child) {
        return;
    }
    if (ls_env_process_watch(env_of(t), state->pid, ls_track_runner_exited, t->engine, &t->process) != 0) {
        t->process = 0;
        t->is_runner_gone = true;
    } else if (!is_runner(t, state)) { /* or it has just ended */
        t->process = 0;                /* what is heard of it is nobody's */
        t->is_runner_gone = true;
    }
    if (t->is_runner_gone) {
        ls_track_look_later(t);
    }
}

/* Nobody has taken the ticket, and its runner is gone or was a former daemon's. */
static void withdraw(track *t)
{
    bool taken = false;
    if (ls_ticket_withdraw(t->folder.text, t->epoch, &taken) != LS_OK) {
        ls_log_error("%s", ls_error_text());
        ls_track_look_later(t);
    } else if (taken) {
        ls_track_look_later(t);
    } else if (t->is_adopted) {
        ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_NEVER});
    } else if (t->is_stopping) {
        ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 128 + SIGTERM});
    } else if (t->was_short) {
        ls_log_warn("job %" PRIu64 " can't begin for now: its runner found no room on the disk", t->job);
        ls_track_give_back(t);
    } else {
        ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                                  .exit_code = 1,
                                                  .cause = LS_CAUSE_START,
                                                  .text = "its runner ended before it began"});
    }
}

static void is_lost(track *t)
{
    if (t->process) {
        return; /* its end will be heard of */
    }
    if (!t->told_end) {
        t->told_end = true;
        ls_track_report(
            t, (ls_engine_report){.kind = LS_ENGINE_LOST, .text = "what ran it ended without a word"});
    }
}

void ls_track_look(track *t)
{
    ls_ticket_state state;
    /* While its devices wait to be given back it has no ticket and no runner: that is no end. */
    if (t->told_end || (t->give_back_timer && !t->is_stopping)) {
        return;
    }
    if (ls_ticket_look(t->folder.text, t->epoch, t->is_runner_gone, &state) != LS_OK) {
        ls_log_error("job %" PRIu64 ": %s", t->job, ls_error_text());
        ls_track_look_later(t);
        return;
    }
    switch (state.stage) {
    case LS_TICKET_NOTHING:
        if (!t->process) {
            withdraw(t);
        }
        break;
    case LS_TICKET_WAITS:
        if (!t->process) {
            withdraw(t);
        }
        break;
    case LS_TICKET_RUNS:
        tell_started(t, &state);
        watch_runner(t, &state);
        break;
    case LS_TICKET_GONE:
        is_lost(t);
        break;
    case LS_TICKET_ENDED:
        tell_started(t, &state);
        ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                                  .time_s = state.end.ended_s,
                                                  .exit_code = state.end.code,
                                                  .cause = state.end.cause,
                                                  .text = state.end.text,
                                                  .error = state.end.error});
        break;
    }
}

/* ---- what is left ---- */

static void hunt_once(track *t);

static void hunt_timer_fired(void *context)
{
    track *t = context;
    t->hunt_timer = 0;
    hunt_once(t);
}

static bool kill_all(const track *t)
{
    const bool is_left = t->group.text[0] && ls_local_group_kill(&t->group);
    /* Nothing of it can be outside of its group, and every process of the machine would be asked. */
    return t->is_grouped ? is_left : ls_local_kill_leftovers(t->folder.text) > 0 || is_left;
}

static void hunt_once(track *t)
{
    ls_ticket_state state;
    const bool is_held = ls_ticket_look(t->folder.text, t->epoch, t->is_runner_gone, &state) == LS_OK &&
                         state.stage == LS_TICKET_RUNS;
    if (kill_all(t) || t->process || is_held) {
        t->hunt_timer = ls_env_timer_set(env_of(t), LOOK_AGAIN_NS, hunt_timer_fired, t);
        return;
    }
    t->is_hunted = true;
    t->told_end = true;
    ls_track_report(
        t, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 128 + SIGKILL, .cause = LS_CAUSE_LOST});
}

void ls_track_hunt(track *t)
{
    if (!t->hunt_timer && !t->is_hunted) {
        t->hunt_timer = ls_env_timer_set(env_of(t), 0, hunt_timer_fired, t);
    }
}
