// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/job_files.h"
#include "orchestration/engines/local/local_internal.h"
#include "orchestration/engines/local/progress.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "planning/run_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define START_AGAIN_NS (5 * UINT64_C(1000000000)) /* behind a start for which something was too little */
#define LOOK_AGAIN_NS                                                                                        \
    20000000u /* at what is on its way: a runner that was killed and whose lock is not dropped yet, leftovers */
enum { STEPS_TAIL_BYTES = 8 * 1024 };
enum { RESIZE_TRIES = 20, RESIZE_AGAIN_MS = 500 };

struct local_engine;

/* One epoch of a job. */
typedef struct track {
    struct track *next;
    struct local_engine *engine;
    uint64_t job;
    uint32_t epoch, uid, gid, ranks;
    ls_local_path folder;
    char *run_dir;
    ls_env_id process; /* of the runner; 0: not known */
    pid_t pid;
    int watch; /* inotify's; -1: none */
    bool is_child;
    bool told_started, told_end, is_adopted, is_stopping, is_hunted;
    bool is_runner_gone; /* its runner has ended, or what called itself so is not its user's */
    bool was_short;      /* its runner ended because something was too little, the disk above all */
    ls_env_id timer;
    ls_env_id resizer; /* process; 0: none */
    uint32_t resize_to, resize_tries;
    uint64_t cpu_ms;
    double looked_s, saved_s;
    uint64_t save_question; /* about its checkpoints; 0: none is open */
    uint64_t step_question; /* about its steps */
    ls_env_id step_timer;   /* until the next look at them, while it is not known how long it takes */
    double started_s;
    ls_local_progress progress;
    bool has_cpu;
} track;

/* A report that waits for the loop. */
typedef struct later {
    struct later *next;
    ls_engine_report report;
    char text[512], error[LS_TICKET_ERROR_BYTES];
} later;

typedef struct local_engine {
    ls_engine base;
    ls_local_settings settings;
    char *home, *program;
    ls_local_machine machine;
    track *tracks;
    later *first, **last;
    ls_env_id deliver_timer, look_timer;
    int notify;
    ls_env_id notify_watch;
} local_engine;

static const ls_engine_calls local_calls;
static void look(track *t);
static void give_back(void *context);
static void look_for_steps(track *t);

static local_engine *local_of(ls_engine *engine)
{
    LS_ASSERT(engine->calls == &local_calls);
    return (local_engine *)engine;
}

static ls_env *env_of(const track *t)
{
    return t->engine->settings.env;
}

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

/* Never inside an order. */
static void report(track *t, ls_engine_report value)
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

static void report_end(track *t, ls_engine_report value)
{
    if (!t->told_end) {
        t->told_end = true;
        report(t, value);
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

static void watch_folder(track *t)
{
    t->watch = inotify_add_watch(t->engine->notify, t->folder.text, IN_MOVED_TO | IN_ONLYDIR);
}

static track *add_track(local_engine *e, const ls_job *job)
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
                 .run_dir = strdup(job->run_dir),
                 .saved_s = job->saved_s,
                 .progress = {.steps = job->spec.steps},
                 .watch = -1};
    e->tracks = t;
    return t;
}

static void destroy_track(track *t)
{
    ls_env *env = env_of(t);
    if (t->timer) {
        ls_env_timer_cancel(env, t->timer);
    }
    if (t->save_question) {
        ls_user_files_forget(t->engine->settings.files, t->save_question);
    }
    if (t->step_timer) {
        ls_env_timer_cancel(env, t->step_timer);
    }
    if (t->step_question) {
        ls_user_files_forget(t->engine->settings.files, t->step_question);
    }
    free(t->run_dir);
    free(t);
}

/* What is heard of its processes from now on is nobody's. */
static void remove_track(track *gone)
{
    local_engine *e = gone->engine;
    bool has_folder = false;
    for (track **at = &e->tracks; *at;) {
        if (*at == gone) {
            *at = gone->next;
        } else {
            has_folder = has_folder || ((*at)->job == gone->job && (*at)->watch >= 0);
            at = &(*at)->next;
        }
    }
    if (gone->watch >= 0 && !has_folder) { /* epochs of a job share it */
        inotify_rm_watch(e->notify, gone->watch);
    }
    destroy_track(gone);
}

static track *by_process(const local_engine *e, ls_env_id process)
{
    for (track *t = e->tracks; t; t = t->next) {
        if (t->process == process || t->resizer == process) {
            return t;
        }
    }
    return NULL;
}

static void timer_fired(void *context)
{
    track *t = context;
    t->timer = 0;
    look(t);
}

static void look_later(track *t)
{
    if (!t->timer) {
        t->timer = ls_env_timer_set(env_of(t), LOOK_AGAIN_NS, timer_fired, t);
    }
}

/* ---- what has become of an epoch ---- */

static void runner_exited(void *context, ls_env_id process, int exit_code)
{
    track *t = by_process(context, process);
    if (t) { /* how its job ended is in a file */
        t->was_short = exit_code == ls_status_exit_code(LS_ERR_DISK);
        t->process = 0;
        t->is_runner_gone = true;
        look(t);
    }
}

static void tell_started(track *t, const ls_ticket_state *state)
{
    if (state->is_running && !t->told_started) {
        t->told_started = true;
        t->started_s = state->started_s;
        report(t, (ls_engine_report){.kind = LS_ENGINE_STARTED, .time_s = state->started_s});
        if (t->is_adopted) { /* how long it will still take is known to nobody until somebody looks */
            look_for_steps(t);
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

/* A runner that this process did not start, or whose number was not known yet. */
static void watch_runner(track *t, pid_t pid)
{
    if (t->process || t->is_child) {
        return;
    }
    t->pid = pid;
    if (ls_env_process_watch(env_of(t), pid, runner_exited, t->engine, &t->process) != 0) {
        t->process = 0;
        t->is_runner_gone = true;
    } else if (!is_of_user(pid, t->uid)) { /* or it has just ended */
        t->process = 0;                    /* what is heard of it is nobody's */
        t->is_runner_gone = true;
    }
    if (t->is_runner_gone) {
        look_later(t);
    }
}

/* Nobody has taken the ticket, and its runner is gone or was a former daemon's. */
static void withdraw(track *t)
{
    bool taken = false;
    if (ls_ticket_withdraw(t->folder.text, t->epoch, &taken) != LS_OK) {
        ls_log_error("%s", ls_error_text());
        look_later(t);
    } else if (taken) {
        look_later(t);
    } else if (t->is_adopted) {
        report_end(t, (ls_engine_report){.kind = LS_ENGINE_NEVER});
    } else if (t->is_stopping) {
        report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 128 + SIGTERM});
    } else if (t->was_short) {
        ls_log_warn("job %" PRIu64 " can't begin for now: its runner found no room on the disk", t->job);
        t->timer = ls_env_timer_set(env_of(t), START_AGAIN_NS, give_back, t);
    } else {
        report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED,
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
        report(t, (ls_engine_report){.kind = LS_ENGINE_LOST, .text = "what ran it ended without a word"});
    }
}

static void look(track *t)
{
    ls_ticket_state state;
    if (t->told_end) {
        return;
    }
    if (ls_ticket_look(t->folder.text, t->epoch, t->is_runner_gone, &state) != LS_OK) {
        ls_log_error("job %" PRIu64 ": %s", t->job, ls_error_text());
        look_later(t);
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
        watch_runner(t, state.pid);
        break;
    case LS_TICKET_GONE:
        is_lost(t);
        break;
    case LS_TICKET_ENDED:
        tell_started(t, &state);
        report_end(t, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                         .time_s = state.end.ended_s,
                                         .exit_code = state.end.code,
                                         .cause = state.end.cause,
                                         .text = state.end.text,
                                         .error = state.end.error});
        break;
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
        const bool is_word = event->len > 0 && (strncmp(event->name, "running-", 8) == 0 ||
                                                strncmp(event->name, "exit-", 5) == 0);
        for (track *t = e->tracks; t && is_word; t = t->next) {
            if (t->watch == event->wd) {
                look(t);
            }
        }
    }
}

/* ---- orders ---- */

static const ls_engine_node *local_nodes(ls_engine *engine, uint32_t *count_out)
{
    *count_out = 1;
    return &local_of(engine)->machine.node;
}

/* extra: words behind the folder and epoch; ends with NULL. */
static int spawn_runner(track *t, const char *const *extra, ls_env_exited exited, ls_env_id *process_out)
{
    const local_engine *e = t->engine;
    char epoch[16], uid[16], gid[16];
    const char *argv[16] = {e->program, "runner", t->folder.text, epoch};
    size_t count = 4;
    snprintf(epoch, sizeof epoch, "%u", t->epoch);
    if (t->uid != geteuid()) {
        snprintf(uid, sizeof uid, "%u", t->uid);
        snprintf(gid, sizeof gid, "%u", t->gid);
        argv[count++] = "--uid";
        argv[count++] = uid;
        argv[count++] = "--gid";
        argv[count++] = gid;
    }
    for (; extra && *extra; extra++) {
        argv[count++] = *extra;
    }
    return ls_env_process_start(e->settings.env, argv, exited, (void *)(uintptr_t)e, process_out);
}

static void could_not_start(track *t, const char *text)
{
    report_end(t, (ls_engine_report){
                      .kind = LS_ENGINE_ENDED, .exit_code = 1, .cause = LS_CAUSE_START, .text = text});
}

static void give_back(void *context)
{
    track *t = context;
    t->timer = 0;
    report_end(t, (ls_engine_report){.kind = LS_ENGINE_NEVER});
}

/* The machine has too little of something for now, which is no fault of the job's: it waits again, after a pause in which nobody else is tried in its place. */
static bool is_for_now(ls_status status, int error)
{
    return status == LS_ERR_DISK || status == LS_ERR_MEMORY || error == EMFILE || error == ENFILE ||
           error == EAGAIN || error == ENOMEM;
}

static void could_not_start_now(track *t)
{
    ls_log_warn("job %" PRIu64 " can't be started for now: %s", t->job, ls_error_text());
    bool taken = false;
    (void)!ls_ticket_withdraw(t->folder.text, t->epoch, &taken);
    t->timer = ls_env_timer_set(env_of(t), START_AGAIN_NS, give_back, t);
}

/* Earlier epochs are over. */
static void remove_earlier(local_engine *e, const ls_job *job)
{
    for (track *t = e->tracks, *next; t; t = next) {
        next = t->next;
        if (t->job == job->id && t->epoch < job->epoch) {
            remove_track(t);
        }
    }
}

static void local_start(ls_engine *engine, const ls_job *job)
{
    local_engine *e = local_of(engine);
    remove_earlier(e, job);
    track *t = add_track(e, job);
    errno = 0;
    const ls_status status = ls_local_folder_write(&e->settings, &e->machine, job);
    if (status != LS_OK) {
        if (is_for_now(status, errno)) {
            could_not_start_now(t);
        } else {
            could_not_start(t, ls_error_text());
        }
        return;
    }
    watch_folder(t);
    t->is_child = true;
    const int error = -spawn_runner(t, NULL, runner_exited, &t->process);
    if (error) {
        ls_fail_errno(error, "can't start %s", e->program);
        if (is_for_now(LS_OK, error)) {
            could_not_start_now(t);
            return;
        }
        bool taken = false;
        (void)!ls_ticket_withdraw(t->folder.text, t->epoch, &taken);
        could_not_start(t, ls_error_text());
    }
}

static void local_adopt(ls_engine *engine, const ls_job *job)
{
    track *t = add_track(local_of(engine), job);
    t->is_adopted = true;
    watch_folder(t);
    look(t);
}

/* Kills what is left of a job whose runner is gone, until nothing is. */
static void hunt(void *context)
{
    track *t = context;
    t->timer = 0;
    ls_ticket_state state;
    const bool is_held = ls_ticket_look(t->folder.text, t->epoch, t->is_runner_gone, &state) == LS_OK &&
                         state.stage == LS_TICKET_RUNS;
    if (ls_local_kill_leftovers(t->folder.text) > 0 || t->process || is_held) {
        t->timer = ls_env_timer_set(env_of(t), LOOK_AGAIN_NS, hunt, t);
        return;
    }
    t->is_hunted = true;
    t->told_end = true;
    report(t,
           (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 128 + SIGKILL, .cause = LS_CAUSE_LOST});
}

static void local_stop(ls_engine *engine, const ls_job *job, ls_engine_stop_kind kind)
{
    track *t = add_track(local_of(engine), job);
    t->is_stopping = true;
    if (job->state == LS_JOB_RECOVERING) {
        if (t->process) {
            ls_env_process_kill(env_of(t), t->process, SIGKILL);
        }
        if (!t->timer && !t->is_hunted) {
            t->timer = ls_env_timer_set(env_of(t), 0, hunt, t);
        }
    } else if (t->process) {
        ls_env_process_kill(env_of(t), t->process, kind == LS_STOP_KILL ? SIGQUIT : SIGTERM);
    } else {
        look_later(t);
    }
}

/* ---- resizing: the run is asked as anybody asks it ---- */

static void ask_resize(track *t);

static void resize_again(void *context)
{
    track *t = context;
    t->timer = 0;
    if (!t->told_end) {
        ask_resize(t);
    }
}

static void resizer_exited(void *context, ls_env_id process, int exit_code)
{
    track *t = by_process(context, process);
    if (!t) {
        return;
    }
    t->resizer = 0;
    if (exit_code == 0) {
        t->ranks = t->resize_to;
        ls_local_progress_restart(&t->progress);
        report(t, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = t->resize_to});
    } else if (exit_code == 2 && ++t->resize_tries < RESIZE_TRIES && !t->told_end) {
        t->timer = ls_env_timer_set(env_of(t), RESIZE_AGAIN_MS * UINT64_C(1000000), resize_again,
                                    t); /* it may not listen yet */
    } else {
        char text[64];
        snprintf(text, sizeof text, "'lockstep resize' ended with exit code %d", exit_code);
        report(t, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = t->ranks, .text = text});
    }
}

static void ask_resize(track *t)
{
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%u", t->resize_to);
    const char *const extra[] = {"--resize", t->run_dir, "--ranks", ranks, NULL};
    if (spawn_runner(t, extra, resizer_exited, &t->resizer) != 0) {
        t->resizer = 0;
        report(t, (ls_engine_report){.kind = LS_ENGINE_RESIZED,
                                     .ranks = t->ranks,
                                     .text = "'lockstep resize' can't be started"});
    }
}

static void local_resize(ls_engine *engine, const ls_job *job)
{
    track *t = add_track(local_of(engine), job);
    t->resize_to = job->ranks_next;
    t->resize_tries = 0;
    if (!t->resizer) {
        ask_resize(t);
    }
}

/* ---- the end ---- */

static void local_forget(ls_engine *engine, const ls_job *job)
{
    local_engine *e = local_of(engine);
    const ls_local_path folder = ls_local_folder(e->home, job->id);
    for (track *t = e->tracks, *next; t; t = next) {
        next = t->next;
        if (t->job == job->id) {
            remove_track(t);
        }
    }
    for (uint32_t epoch = job->epoch > 16 ? job->epoch - 16 : 1; epoch <= job->epoch; epoch++) {
        ls_ticket_clear(folder.text, epoch);
    }
}

static void local_destroy(ls_engine *engine)
{
    local_engine *e = local_of(engine);
    while (e->tracks) {
        track *t = e->tracks;
        e->tracks = t->next;
        destroy_track(t);
    }
    while (e->first) {
        later *item = e->first;
        e->first = item->next;
        free(item);
    }
    if (e->notify_watch) {
        ls_env_real_unwatch(e->settings.env, e->notify_watch);
    }
    if (e->notify >= 0) {
        close(e->notify);
    }
    if (e->deliver_timer) {
        ls_env_timer_cancel(e->settings.env, e->deliver_timer);
    }
    if (e->look_timer) {
        ls_env_timer_cancel(e->settings.env, e->look_timer);
    }
    free(e->home);
    free(e->program);
    free(e);
}

/* ---- what jobs do ---- */

static int by_session(const void *a, const void *b)
{
    const ls_local_look *x = a, *y = b;
    return (x->session > y->session) - (x->session < y->session);
}

static void hear_of_checkpoints(void *context, const ls_user_file_answer *answer)
{
    track *t = context;
    t->save_question = 0;
    if (answer->error == 0 && answer->modified_s > t->saved_s && !t->told_end) {
        t->saved_s = answer->modified_s;
        report(t, (ls_engine_report){.kind = LS_ENGINE_SAVED, .time_s = t->saved_s});
    }
}

/* Checkpoints are folders: the newest name in theirs is a save. It may lie anywhere, also where nothing answers. */
static void look_for_save(track *t)
{
    if (t->run_dir[0] && !t->save_question) {
        const ls_user_file folder = {
            .folder = t->run_dir, .name = "checkpoints", .uid = t->uid, .gid = t->gid, .is_folder = true};
        t->save_question = ls_user_files_ask(t->engine->settings.files, &folder, hear_of_checkpoints, t);
    }
}

/* How long a run is that is told so in passes over its data, which it has read by now. */
static void hear_of_run_file(void *context, const ls_user_file_answer *answer)
{
    track *t = context;
    ls_arena arena = {0};
    ls_run_file run;
    t->step_question = 0;
    if (answer->error == 0 &&
        ls_run_file_parse(answer->data, answer->bytes, "run.yaml", NULL, 0, &arena, &run) == LS_OK &&
        run.train.steps != LS_AUTO_U64) {
        t->progress.steps = run.train.steps;
    }
    ls_error_clear();
    ls_arena_release(&arena);
}

static void look_for_length(track *t)
{
    const ls_user_file file = {.folder = t->run_dir,
                               .name = "run.yaml",
                               .uid = t->uid,
                               .gid = t->gid,
                               .bytes = LS_JOB_FILE_BYTES_MAX};
    t->step_question = ls_user_files_ask(t->engine->settings.files, &file, hear_of_run_file, t);
}

static void look_for_steps_again(void *context)
{
    track *t = context;
    t->step_timer = 0;
    if (!t->told_end) {
        look_for_steps(t);
    }
}

static void hear_of_steps(void *context, const ls_user_file_answer *answer)
{
    track *t = context;
    t->step_question = 0;
    /* What an earlier start wrote says nothing of this one. */
    if (answer->error != 0 || answer->modified_s < t->started_s || t->told_end) {
        return;
    }
    const double now_s = ls_env_wall_s(env_of(t));
    if (!ls_local_progress_feed(&t->progress, answer->data, answer->bytes, answer->modified_s, now_s)) {
        return;
    }
    const double left_s = ls_local_progress_left_s(&t->progress, now_s);
    report(t, (ls_engine_report){.kind = LS_ENGINE_PROGRESS,
                                 .step = t->progress.step,
                                 .steps = t->progress.steps,
                                 .left_s = left_s});
    if (t->progress.steps == 0) {
        look_for_length(t);
    }
    if (left_s <= 0.0 && !t->step_timer) {
        t->step_timer = ls_env_timer_set(env_of(t), LS_LOCAL_PROGRESS_SPAN_NS, look_for_steps_again, t);
    }
}

static void look_for_steps(track *t)
{
    if (t->run_dir[0] && !t->step_question) {
        const ls_user_file file = {.folder = t->run_dir,
                                   .name = "metrics.jsonl",
                                   .uid = t->uid,
                                   .gid = t->gid,
                                   .from_end = true,
                                   .offset = STEPS_TAIL_BYTES,
                                   .bytes = STEPS_TAIL_BYTES};
        t->step_question = ls_user_files_ask(t->engine->settings.files, &file, hear_of_steps, t);
    }
}

static void tell_activity(track *t, uint64_t cpu_ms, double now_s)
{
    const double span_s = now_s - t->looked_s;
    if (t->has_cpu && span_s > 0.0 && t->ranks > 0) {
        /* Processes that ended take their time with them: then it seems less, and is not told. */
        const uint64_t used_ms = cpu_ms > t->cpu_ms ? cpu_ms - t->cpu_ms : 0;
        const double busy = (double)used_ms / (span_s * t->ranks);
        if (cpu_ms >= t->cpu_ms) {
            report(t, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY,
                                         .busy_permille = busy > 1000.0 ? 1000 : (uint32_t)busy});
        }
    }
    t->cpu_ms = cpu_ms;
    t->looked_s = now_s;
    t->has_cpu = true;
}

static void look_at_jobs(void *context)
{
    local_engine *e = context;
    ls_env *env = e->settings.env;
    uint32_t count = 0;
    for (const track *t = e->tracks; t; t = t->next) {
        count += t->told_started && !t->told_end;
    }
    ls_local_look *looks = calloc(count + 1, sizeof *looks);
    LS_ASSERT(looks && "out of memory for a look");
    count = 0;
    for (const track *t = e->tracks; t; t = t->next) {
        if (t->told_started && !t->told_end) {
            looks[count++].session = t->pid;
        }
    }
    qsort(looks, count, sizeof *looks, by_session);
    if (count > 0) {
        ls_local_look_all(looks, count);
    }
    const double now_s = 1e-9 * (double)ls_env_now_ns(env);
    for (track *t = e->tracks; t; t = t->next) {
        const ls_local_look key = {.session = t->pid};
        const ls_local_look *found =
            t->told_started && !t->told_end ? bsearch(&key, looks, count, sizeof *looks, by_session) : NULL;
        if (found) {
            tell_activity(t, found->cpu_ms, now_s);
            look_for_save(t);
            look_for_steps(t);
        }
    }
    free(looks);
    e->look_timer = ls_env_timer_set(env, (uint64_t)(1e9 * e->settings.look_s), look_at_jobs, e);
}

/* ---- life ---- */

static const ls_engine_calls local_calls = {
    .name = "local",
    .nodes = local_nodes,
    .start = local_start,
    .adopt = local_adopt,
    .stop = local_stop,
    .resize = local_resize,
    .forget = local_forget,
    .destroy = local_destroy,
};

static ls_status open_engine(local_engine *e)
{
    LS_TRY(ls_local_machine_read(e->settings.slots, &e->machine));
    LS_TRY(ls_jobs_folder_make(e->home));
    e->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (e->notify < 0) {
        return ls_fail_errno(errno, "can't watch folders");
    }
    const int error = -ls_env_real_watch(e->settings.env, e->notify, folder_changed, e, &e->notify_watch);
    if (error) {
        e->notify_watch = 0;
        return ls_fail_errno(error, "can't watch folders");
    }
    e->look_timer = ls_env_timer_set(e->settings.env, (uint64_t)(1e9 * e->settings.look_s), look_at_jobs, e);
    return LS_OK;
}

ls_status ls_local_engine_create(const ls_local_settings *settings, ls_engine **engine_out)
{
    local_engine *e = calloc(1, sizeof *e);
    LS_ASSERT(e && "out of memory for an engine");
    e->base.calls = &local_calls;
    e->settings = *settings;
    e->home = strdup(settings->home);
    e->program = strdup(settings->program);
    LS_ASSERT(e->home && e->program);
    e->settings.home = e->home;
    e->settings.program = e->program;
    e->notify = -1;
    e->last = &e->first;
    const ls_status status = open_engine(e);
    if (status != LS_OK) {
        local_destroy(&e->base);
        return status;
    }
    *engine_out = &e->base;
    return LS_OK;
}
