// SPDX-License-Identifier: Apache-2.0
/* One epoch of a job: what has become of it, and the reports about it. */
#include "orchestration/engines/local/local_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "env/user/user_read.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* pause after a start for which the machine was short of something */
#define START_AGAIN_NS (5 * UINT64_C(1000000000))
/* pause before looking again at what is about to happen: the lock of a killed runner is dropped */
#define LOOK_AGAIN_NS 20000000u
/* the same when the files of a job cannot be read, or its processes do not end */
#define TROUBLE_NS 1000000000u
/* between the first two rounds of killing what is left of a job; doubled with each round */
#define HUNT_AGAIN_NS 1000000u
/* so many rounds a runner is kept, stopped, so that what it has adopted is found */
enum { ROUNDS_WITH_RUNNER = 20 };

struct later {
    struct later *next;
    ls_engine_report report;
    char text[512], error[LS_TICKET_ERROR_BYTES];
};

static void hunt_now(track *t);

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

static later *new_report(const track *t, ls_engine_report value)
{
    later *item = calloc(1, sizeof *item);
    LS_ASSERT(item && "not enough memory for a report");
    item->report = value;
    item->report.job = t->job;
    item->report.epoch = t->epoch;
    snprintf(item->text, sizeof item->text, "%s", value.text ? value.text : "");
    snprintf(item->error, sizeof item->error, "%s", value.error ? value.error : "");
    return item;
}

static void send(local_engine *e, later *item)
{
    *e->last = item;
    e->last = &item->next;
    if (!e->deliver_timer) {
        e->deliver_timer = ls_env_timer_set(e->settings.env, 0, deliver, e);
    }
}

void ls_local_report(local_engine *e, ls_engine_report value)
{
    const track none = {.engine = e};
    send(e, new_report(&none, value));
}

void ls_track_report(track *t, ls_engine_report value)
{
    send(t->engine, new_report(t, value));
}

void ls_track_report_end(track *t, ls_engine_report value)
{
    if (!t->told_end) {
        t->told_end = true;
        t->end = new_report(t, value);
        hunt_now(t);
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
    LS_ASSERT(t && "not enough memory for a job");
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
                 .user = strdup(job->user ? job->user : ""),
                 .devices = ls_local_devices(job),
                 .rank_cpus = job->spec.cpus_per_rank
                                  ? job->spec.cpus_per_rank
                                  : ls_job_rank_threads(job, e->machine.node.cpus, e->machine.node.devices),
                 .rank_memory_mib = job->spec.memory_mib_per_rank,
                 .saved_s = job->saved_s,
                 .progress = {.steps = job->stop_step ? job->stop_step : job->spec.steps},
                 .watch = -1};
    e->tracks = t;
    return t;
}

void ls_track_limit(const track *t, uint32_t ranks)
{
    if (t->group.text[0]) {
        ls_local_group_limit(&t->group,
                             &(ls_local_limits){.ranks = ranks,
                                                .cpus = ranks * t->rank_cpus,
                                                .memory_bytes = (uint64_t)ranks * t->rank_memory_mib << 20});
    }
}

void ls_track_destroy(track *t)
{
    const ls_env_id timers[] = {t->look_timer,      t->hunt_timer, t->resize_timer,
                                t->give_back_timer, t->step_timer, t->deadline_timer};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        if (timers[i]) {
            ls_env_timer_cancel(env_of(t), timers[i]);
        }
    }
    ls_user_files_forget(t->engine->settings.files, t->save_question);
    ls_user_files_forget(t->engine->settings.files, t->step_question);
    free(t->end);
    free(t->run_dir);
    free(t->user);
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
    ls_folder_watch_unwatch(gone);
    /* its runner may still be in the group: a sweep removes it later */
    (void)ls_local_group_remove(&gone->group);
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

static void look_in(track *t, uint64_t delay_ns)
{
    if (!t->look_timer) {
        t->look_timer = ls_env_timer_set(env_of(t), delay_ns, look_timer_fired, t);
    }
}

void ls_track_look_later(track *t)
{
    look_in(t, LOOK_AGAIN_NS);
}

/* Its files cannot be read or renamed: perhaps later. Said once, until it was possible again. */
static void look_after_trouble(track *t)
{
    if (!t->told_trouble) {
        ls_log_error("job %" PRIu64 ": %s; trying again every second", t->job, ls_error_text());
        t->told_trouble = true;
    }
    look_in(t, TROUBLE_NS);
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
    if (t) { /* a file says how its job ended */
        t->runner_code = exit_code;
        t->process = 0;
        t->is_runner_gone = true;
        ls_track_look(t);
        if (t->hunt_timer) { /* it was the last that was left, perhaps */
            hunt_now(t);
        }
    }
}

static void tell_started(track *t, const ls_ticket_state *state)
{
    if (state->is_running && !t->told_started) {
        ls_local_divide_energy(t->engine); /* without it so far */
        t->told_started = true;
        t->started_s = state->started_s;
        ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_STARTED, .time_s = state->started_s});
        /* its progress is not known until it is looked at */
        if (t->is_adopted) {
            ls_track_look_for_steps(t);
        }
    }
}

/* Whether the process named by the claim is the runner: it belongs to the user, and started when
 * the claim says. Its number comes from a file of the job's user, who could have named any
 * process. */
static bool is_runner(const track *t, const ls_ticket_state *state)
{
    return ls_local_is_of_user(state->pid, t->uid) &&
           (state->ticks == 0 || ls_process_ticks(state->pid) == state->ticks);
}

/* Watches a runner that this process did not start, or whose number was not known yet. */
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
        t->process = 0;                /* its events are ignored */
        t->is_runner_gone = true;
    }
    if (t->is_runner_gone) {
        ls_track_look_later(t);
    }
}

/* It was seen running, and now its files are gone. */
static void folder_is_gone(track *t)
{
    char text[LS_LOCAL_PATH_BYTES + 96];
    snprintf(text, sizeof text,
             "the folder %s was removed while the job ran, and with it the log and how the job ended",
             t->folder.text);
    ls_track_report_end(
        t, (ls_engine_report){
               .kind = LS_ENGINE_ENDED, .exit_code = 128 + SIGKILL, .cause = LS_CAUSE_LOST, .text = text});
}

/* Its runner ended before it took the ticket. */
static void did_not_begin(track *t)
{
    char text[256] = "the process that runs the job ended before the job started";
    const bool is_short = t->runner_code == ls_status_exit_code(LS_ERR_DISK);
    if (is_short || t->runner_code == LS_USER_EXIT_UNKNOWN) {
        ls_log_warn("job %" PRIu64 " cannot start for now: %s", t->job,
                    is_short ? "its runner found no space on the disk"
                             : "the database of users does not answer");
        ls_track_give_back(t);
        return;
    }
    if (t->runner_code == LS_USER_EXIT_ANOTHER) {
        snprintf(text, sizeof text,
                 "user number %u no longer belongs to user %.100s, who submitted the job: it was not started",
                 t->uid, t->user);
    }
    ls_track_report_end(
        t,
        (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 1, .cause = LS_CAUSE_START, .text = text});
}

/* No runner has taken the ticket, and the runner is gone or was started by an earlier daemon. */
static void withdraw(track *t)
{
    bool taken = false;
    if (ls_ticket_withdraw(t->folder.text, t->epoch, &taken) != LS_OK) {
        look_after_trouble(t);
    } else if (taken) {
        ls_track_look_later(t);
    } else if (t->told_started) {
        folder_is_gone(t);
    } else if (t->is_adopted) {
        ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_NEVER});
    } else if (t->is_stopping) {
        ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 128 + SIGTERM});
    } else {
        did_not_begin(t);
    }
}

static const char lost_text[] = "the process that runs the job died without reporting how the job ended";

static void is_lost(track *t)
{
    if (t->process) {
        return; /* its end will be reported */
    }
    if (t->is_stopping) { /* it was to end anyway */
        ls_track_report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                                  .exit_code = 128 + SIGKILL,
                                                  .cause = LS_CAUSE_LOST,
                                                  .text = lost_text});
        return;
    }
    t->told_end = true;
    ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_LOST, .text = lost_text});
}

static ls_engine_report end_of(const ls_ticket_state *state)
{
    return (ls_engine_report){.kind = LS_ENGINE_ENDED,
                              .time_s = state->end.ended_s,
                              .exit_code = state->end.code,
                              .cause = state->end.cause,
                              .text = state->end.text,
                              .error = state->end.error,
                              .result = state->end.result};
}

void ls_track_look(track *t)
{
    ls_ticket_state state;
    /*
     * While its devices wait to be given back, it has no ticket and no runner; that is not an end.
     */
    if (t->told_end || (t->give_back_timer && !t->is_stopping)) {
        return;
    }
    if (ls_ticket_look(t->folder.text, t->epoch, t->is_runner_gone, &state) != LS_OK) {
        look_after_trouble(t);
        return;
    }
    t->told_trouble = false;
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
        ls_track_look_for_alerts(t);
        watch_runner(t, &state);
        break;
    case LS_TICKET_GONE:
        is_lost(t);
        break;
    case LS_TICKET_ENDED:
        tell_started(t, &state);
        ls_track_look_for_alerts(t);
        ls_track_report_end(t, end_of(&state));
        break;
    }
}

/* ---- what is left ---- */

/*
 * An end is believed only when nothing of the job is alive. Its runner, and the files from which
 * its end is read, are in the hands of the job's user: a job may stop or kill its runner and
 * write down an end of its own while it goes on computing.
 */
static void hunt_timer_fired(void *context)
{
    track *t = context;
    t->hunt_timer = 0;
    hunt_now(t);
}

/* Without a control group, the descendants of the runner come first: what has left its session
 * and cleared its environment is known only as long as the runner is there. Returns whether it
 * still is. */
static bool kill_runner(track *t)
{
    if (!t->process) {
        return false;
    }
    if (!t->is_grouped && t->hunts < ROUNDS_WITH_RUNNER && t->pid > 0 &&
        ls_local_is_of_user(t->pid, t->uid)) {
        (void)ls_env_process_kill(env_of(t), t->process, SIGSTOP);
        if (ls_local_kill_descendants(t->pid, t->uid) > 0) {
            return true;
        }
    }
    (void)ls_env_process_kill(env_of(t), t->process, SIGKILL);
    return true;
}

static bool kill_others(const track *t)
{
    const bool is_left = t->group.text[0] && ls_local_group_kill(&t->group);
    /* nothing of it can be outside its group, so there is no need to look at every process of the
     * machine */
    return t->is_grouped ? is_left : ls_local_kill_leftovers(t->folder.text) > 0 || is_left;
}

/* Whether a runner holds the claim that is not known yet. Takes over an end that was written
 * meanwhile. */
static bool is_held(track *t)
{
    ls_ticket_state state;
    if (ls_ticket_look(t->folder.text, t->epoch, t->is_runner_gone, &state) != LS_OK) {
        return false;
    }
    if (state.stage == LS_TICKET_ENDED && !t->end) {
        t->end = new_report(t, end_of(&state));
    }
    if (state.stage == LS_TICKET_RUNS) {
        watch_runner(t, &state);
    }
    return state.stage == LS_TICKET_RUNS;
}

static void hunt_now(track *t)
{
    if (t->hunt_timer) {
        ls_env_timer_cancel(env_of(t), t->hunt_timer);
        t->hunt_timer = 0;
    }
    const bool has_runner = kill_runner(t), has_others = kill_others(t);
    if (is_held(t) || has_runner || has_others) {
        const uint64_t delay_ns = (uint64_t)HUNT_AGAIN_NS << (t->hunts < 10 ? t->hunts : 10);
        t->hunts++;
        t->hunt_timer =
            ls_env_timer_set(env_of(t), delay_ns < TROUBLE_NS ? delay_ns : TROUBLE_NS, hunt_timer_fired, t);
        return;
    }
    ls_local_divide_energy(t->engine);
    t->is_hunted = t->told_end = true;
    if (!t->end) {
        t->end =
            new_report(t, (ls_engine_report){
                              .kind = LS_ENGINE_ENDED,
                              .exit_code = 128 + SIGKILL,
                              .cause = LS_CAUSE_LOST,
                              .text = t->is_overdue ? "the daemon killed it: it did not end in time" : NULL});
    }
    t->end->report.energy_mj = ls_track_take_energy(t);
    send(t->engine, t->end);
    t->end = NULL;
    (void)ls_local_group_remove(&t->group);
}

void ls_track_hunt(track *t)
{
    if (!t->hunt_timer && !t->is_hunted) {
        t->hunt_timer = ls_env_timer_set(env_of(t), 0, hunt_timer_fired, t);
    }
}

static void deadline_is_over(void *context)
{
    track *t = context;
    t->deadline_timer = 0;
    if (!t->is_hunted) {
        ls_log_warn("job %" PRIu64 " was told to end and did not end in time: killing all of it", t->job);
        t->is_overdue = true;
        ls_track_hunt(t);
    }
}

void ls_track_set_deadline(track *t, double time_s)
{
    const uint64_t due_ns = ls_env_now_ns(env_of(t)) + (uint64_t)(1e9 * time_s);
    if (t->deadline_timer && t->deadline_ns <= due_ns) {
        return;
    }
    if (t->deadline_timer) {
        ls_env_timer_cancel(env_of(t), t->deadline_timer);
    }
    t->deadline_ns = due_ns;
    t->deadline_timer = ls_env_timer_set(env_of(t), (uint64_t)(1e9 * time_s), deadline_is_over, t);
}
