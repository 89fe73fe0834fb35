// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/job_files.h"
#include "orchestration/engines/local/local_internal.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "env/user/user_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

static const ls_engine_calls local_calls;
static local_engine *local_of(ls_engine *engine)
{
    LS_ASSERT(engine->calls == &local_calls);
    return (local_engine *)engine;
}

/* ---- orders ---- */

static const ls_engine_node *local_nodes(ls_engine *engine, uint32_t *count_out)
{
    *count_out = 1;
    return &local_of(engine)->machine.node;
}

static const ls_engine_device *local_devices(ls_engine *engine, uint32_t *count_out)
{
    return ls_local_read_devices(local_of(engine), count_out);
}

int ls_track_spawn(track *t, const char *group, const char *const *extra, ls_env_exited exited,
                   ls_env_id *process_out)
{
    const local_engine *e = t->engine;
    char epoch[16], uid[16], gid[16], helper[LS_LOCAL_PATH_BYTES];
    const char *argv[24];
    size_t count = 0;
    const bool is_other = t->uid != geteuid();
    if (is_other) { /* lockstep-as-user becomes that user, and then the runner */
        if (ls_user_helper_find(helper, sizeof helper) != LS_OK) {
            return -ENOSYS;
        }
        snprintf(uid, sizeof uid, "%u", t->uid);
        snprintf(gid, sizeof gid, "%u", t->gid);
        const char *const as_user[] = {helper, "run", uid, gid, t->user, group ? group : "-"};
        memcpy(argv, as_user, sizeof as_user);
        count = sizeof as_user / sizeof as_user[0];
    }
    snprintf(epoch, sizeof epoch, "%u", t->epoch);
    const char *const runner[] = {e->program, "runner", t->folder.text, epoch};
    memcpy(argv + count, runner, sizeof runner);
    count += sizeof runner / sizeof runner[0];
    if (group && !is_other) {
        argv[count++] = "--group";
        argv[count++] = group;
    }
    for (; extra && *extra; extra++) {
        argv[count++] = *extra;
    }
    argv[count] = NULL;
    return ls_env_process_start(e->settings.env, argv, exited, (void *)(uintptr_t)e, process_out);
}

static void could_not_start(track *t, const char *text)
{
    ls_track_report_end(
        t,
        (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 1, .cause = LS_CAUSE_START, .text = text});
}

/* The machine is short of something for now, which is not the job's fault: it waits again, after a
 * pause during which no other job is tried in its place. */
static bool is_for_now(ls_status status, int error)
{
    return status == LS_ERR_DISK || status == LS_ERR_MEMORY || error == EMFILE || error == ENFILE ||
           error == EAGAIN || error == ENOMEM;
}

static void could_not_start_now(track *t)
{
    ls_log_warn("job %" PRIu64 " cannot be started for now: %s", t->job, ls_error_text());
    bool taken = false;
    (void)!ls_ticket_withdraw(t->folder.text, t->epoch, &taken);
    ls_track_give_back(t);
}

/* Removes tracks of earlier epochs, which are over. */
static void remove_earlier(local_engine *e, const ls_job *job)
{
    for (track *t = e->tracks, *next; t; t = next) {
        next = t->next;
        if (t->job == job->id && t->epoch < job->epoch) {
            ls_track_remove(t);
        }
    }
}

static void local_start(ls_engine *engine, const ls_job *job)
{
    local_engine *e = local_of(engine);
    remove_earlier(e, job);
    track *t = ls_track_of(e, job);
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
    ls_folder_watch_watch(t);
    t->is_child = true;
    const bool has_group = ls_local_group_make(&t->group);
    ls_track_limit(t, t->ranks);
    const int error =
        -ls_track_spawn(t, has_group ? t->group.text : NULL, NULL, ls_track_runner_exited, &t->process);
    if (error) {
        if (error != ENOSYS) {
            ls_fail_errno(error, "cannot start %s", e->program);
        }
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
    track *t = ls_track_of(local_of(engine), job);
    t->is_adopted = true;
    ls_folder_watch_watch(t);
    ls_track_look(t);
}

static void local_stop(ls_engine *engine, const ls_job *job, ls_engine_stop_kind kind)
{
    track *t = ls_track_of(local_of(engine), job);
    t->is_stopping = true;
    if (job->state == LS_JOB_RECOVERING) {
        ls_track_hunt(t);
        return;
    }
    if (t->process) {
        ls_env_process_kill(env_of(t), t->process, kind == LS_STOP_KILL ? SIGQUIT : SIGTERM);
    } else {
        ls_track_look_later(t);
    }
    /* The runner is a process of the job's user, who can stop or kill it. */
    ls_track_set_deadline(t,
                          t->engine->settings.patience_s + (kind == LS_STOP_KILL ? 0.0 : job->spec.grace_s));
}

static void local_resize(ls_engine *engine, const ls_job *job)
{
    track *t = ls_track_of(local_of(engine), job);
    ls_local_divide_energy(t->engine); /* up to now it had the devices from before */
    t->devices = ls_local_devices(job);
    ls_track_limit(t, job->ranks_next > t->ranks ? job->ranks_next : t->ranks);
    ls_track_resize(t, job->ranks_next);
}

/* ---- the end ---- */

static void local_forget(ls_engine *engine, const ls_job *job)
{
    local_engine *e = local_of(engine);
    const ls_local_path folder = ls_local_folder(e->home, job->id);
    for (track *t = e->tracks, *next; t; t = next) {
        next = t->next;
        if (t->job == job->id) {
            ls_track_remove(t);
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
        ls_track_destroy(t);
    }
    ls_local_groups_close(e);
    ls_nvml_close(e->gpus);
    ls_rapl_close(e->rapl);
    ls_local_reports_drop(e);
    ls_folder_watch_close(e);
    if (e->look_timer) {
        ls_env_timer_cancel(e->settings.env, e->look_timer);
    }
    free(e->home);
    free(e->program);
    free(e);
}

/* ---- life ---- */

static const ls_engine_calls local_calls = {
    .name = "local",
    .nodes = local_nodes,
    .devices = local_devices,
    .start = local_start,
    .adopt = local_adopt,
    .stop = local_stop,
    .resize = local_resize,
    .forget = local_forget,
    .destroy = local_destroy,
};

static ls_status open_engine(local_engine *e)
{
    e->gpus = e->settings.slots == 0 ? ls_nvml_open() : NULL;
    e->rapl = ls_rapl_open(NULL);
    LS_TRY(ls_local_machine_read(e->settings.slots, e->gpus, &e->machine));
    e->machine.node.spot = e->settings.spot;
    if (e->machine.has_gpus && !e->gpus) {
        ls_log_warn("libnvidia-ml.so.1 was not found: whether jobs use their devices is estimated from their "
                    "CPU time");
    }
    LS_TRY(ls_jobs_folder_make(e->home));
    LS_TRY(ls_folder_watch_open(e));
    e->groups = ls_local_groups_open(e->home, e->note);
    e->look_timer =
        ls_env_timer_set(e->settings.env, (uint64_t)(1e9 * e->settings.look_s), ls_local_look_at_jobs, e);
    return LS_OK;
}

const char *ls_local_engine_note(const ls_engine *engine)
{
    return ((const local_engine *)engine)->note;
}

ls_status ls_local_engine_create(const ls_local_settings *settings, ls_engine **engine_out)
{
    local_engine *e = calloc(1, sizeof *e);
    LS_ASSERT(e && "not enough memory for an engine");
    e->base.calls = &local_calls;
    e->settings = *settings;
    e->home = strdup(settings->home);
    e->program = strdup(settings->program);
    LS_ASSERT(e->home && e->program);
    e->settings.home = e->home;
    e->settings.program = e->program;
    e->settings.patience_s = settings->patience_s > 0.0 ? settings->patience_s : LS_LOCAL_PATIENCE_S;
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
