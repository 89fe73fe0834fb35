// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/daemon.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "env/env.h"
#include "env/user/user.h"
#include "env/user/user_files.h"
#include "orchestration/api/server.h"
#include "orchestration/control/job_store.h"
#include "orchestration/daemon/ballast.h"
#include "orchestration/daemon/crash.h"
#include "orchestration/daemon/forecast.h"
#include "orchestration/daemon/home_lock.h"
#include "orchestration/daemon/home_trust.h"
#include "orchestration/daemon/messenger.h"
#include "orchestration/daemon/own_log.h"
#include "orchestration/daemon/queue_clock.h"
#include "orchestration/daemon/reload.h"
#include "orchestration/daemon/retention.h"
#include "orchestration/daemon/service.h"
#include "orchestration/engines/job_files.h"
#include "orchestration/engines/local/local.h"
#include "orchestration/engines/slurm/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char homeless_text[] =
    "the daemon's folder was removed or replaced while the daemon runs: nothing is started until it is back";

/* After a turn could not be written, the next one is tried this much later. */
#define RETRY_NS UINT64_C(1000000000)
/* A read under a path that a user chose counts as hung after this time. */
#define FILES_LIMIT_NS (5 * UINT64_C(1000000000))

/* Between two looks at its own folder. */
#define UPKEEP_NS UINT64_C(1000000000)

/* Signals that would end the process without a line in its log. */
static const int watched_signals[] = {SIGTERM, SIGINT,  SIGQUIT,   SIGHUP,  SIGUSR1, SIGUSR2,
                                      SIGALRM, SIGPROF, SIGVTALRM, SIGPOLL, SIGPWR,  SIGXCPU};
enum { SIGNALS = sizeof watched_signals / sizeof watched_signals[0] };

struct ls_daemon {
    char home[LS_JOB_PATH_BYTES_MAX], program[LS_JOB_PATH_BYTES_MAX];
    ls_daemon_settings settings;
    ls_reload reload;
    ls_home_lock lock;
    ls_home_lock shared_lock; /* of LS_SHARED_HOME; not held: not ours */
    bool is_homeless;         /* the folder is not the one that was locked any more */
    bool has_own_log;         /* standard error is HOME/daemon.log */
    bool has_ballast;
    ls_queue_clock clock;
    double told_ahead_s; /* by which the clock of the wall is known to be ahead */
    ls_env_id upkeep_timer;
    struct heard {
        ls_daemon *daemon;
        int number;
    } signals[SIGNALS];
    ls_env *env;
    ls_user_files *files;
    ls_job_store *store;
    ls_engine *engine;
    ls_controller *controller;
    ls_api *api;
    ls_retention *retention;
    ls_messenger *messenger;
    bool told_disk;    /* that little space is left for its folder */
    uint64_t retry_ns; /* time before which nothing is written; 0: at once */
    ls_forecast_kept forecast;
    bool has_stopped;
};

static ls_status path_in(const ls_daemon *d, const char *name, char path[LS_JOB_PATH_BYTES_MAX])
{
    const int bytes = snprintf(path, LS_JOB_PATH_BYTES_MAX, "%s/%s", d->home, name);
    return bytes < LS_JOB_PATH_BYTES_MAX
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "the path of the daemon's folder, %s, is too long", d->home);
}

/* ---- calls of the controller ---- */

static double now_s(void *context)
{
    return ls_queue_clock_now_s(&((ls_daemon *)context)->clock);
}

static double ahead_s(void *context)
{
    return ls_queue_clock_ahead_s(&((ls_daemon *)context)->clock);
}

static json_t *read_journal(void *context, uint64_t job, uint64_t after, uint32_t limit)
{
    json_t *entries = NULL;
    return ls_job_store_journal(((ls_daemon *)context)->store, job, after, limit, &entries) == LS_OK ? entries
                                                                                                     : NULL;
}

static ls_job *read_old_job(void *context, uint64_t id)
{
    ls_job *job = NULL;
    return ls_job_store_find(((ls_daemon *)context)->store, id, &job) == LS_OK ? job : NULL;
}

static ls_job_state read_old_state(void *context, uint64_t id)
{
    return ls_job_store_state(((ls_daemon *)context)->store, id);
}

static json_t *used(void *context, double since_s)
{
    json_t *rows = NULL;
    return ls_job_store_used(((ls_daemon *)context)->store, since_s, &rows) == LS_OK ? rows : NULL;
}

static uint64_t keyed_job(void *context, uint32_t uid, const char *key)
{
    return ls_job_store_keyed(((ls_daemon *)context)->store, uid, key);
}

/* Looks at this machine's own list only: asking a network could take any time, and the loop must
 * not wait. Users who are not in the list get their account when they first use it. */
static bool is_user(void *context, const char *name)
{
    (void)context;
    return ls_user_is_listed("/etc/passwd", name);
}

static void foresee(void *context, ls_job *job)
{
    ls_daemon *d = context;
    uint32_t count = 0;
    const ls_engine_node *node = d->engine->calls->nodes(d->engine, &count);
    if (d->settings.calibration && count > 0) {
        ls_daemon_forecast(d->settings.calibration, ls_job_rank_threads(job, node->cpus, node->devices),
                           &d->forecast, job);
    }
}

/* ---- a turn ---- */

static void carry_out(ls_daemon *d, const ls_engine_order *order)
{
    const ls_engine_calls *calls = d->engine->calls;
    switch (order->kind) {
    case LS_DO_START:
        calls->start(d->engine, order->job);
        break;
    case LS_DO_STOP:
        calls->stop(d->engine, order->job, LS_STOP_SAVE);
        break;
    case LS_DO_KILL:
        calls->stop(d->engine, order->job, LS_STOP_KILL);
        break;
    case LS_DO_RESIZE:
        calls->resize(d->engine, order->job);
        break;
    case LS_DO_ADOPT:
        calls->adopt(d->engine, order->job);
        break;
    case LS_DO_CHANGE:
        if (calls->change) {
            calls->change(d->engine, order->job);
        }
        break;
    case LS_DO_FORGET:
        calls->forget(d->engine, order->job);
        break;
    }
}

static void log_transitions(const ls_turn *turn)
{
    for (uint32_t i = 0; i < turn->transition_count; i++) {
        const ls_transition *t = &turn->transitions[i];
        char cause[64] = "", start[32] = "";
        if (t->job == 0) { /* about the queue as a whole */
            ls_log_info("%s", t->text);
            continue;
        }
        if (t->from == t->to) { /* something else changed than its state */
            ls_log_info("job %" PRIu64 " %s", t->job, t->text);
            continue;
        }
        if (t->epoch > 0) {
            snprintf(start, sizeof start, ", start %u", t->epoch);
        }
        if (t->cause != LS_CAUSE_NONE) {
            snprintf(cause, sizeof cause, ", cause %s", ls_job_cause_name(t->cause));
        }
        ls_log_info("job %" PRIu64 " %s%s%s%s%s", t->job, ls_job_state_name(t->to), start, cause,
                    t->text[0] ? ": " : "", t->text);
    }
}

static ls_status write_turn(ls_daemon *d, const ls_turn *turn)
{
    if (!turn->must_be_written) {
        return LS_OK;
    }
    ls_crash_point();
    ls_status status = ls_job_store_write(d->store, turn);
    if (status == LS_ERR_DISK && d->has_ballast && ls_ballast_release(d->home)) {
        d->has_ballast = false;
        ls_log_warn("the disk that holds %s is full: the daemon uses its reserve of %d MiB", d->home,
                    LS_BALLAST_MIB);
        status = ls_job_store_write(d->store, turn);
    }
    LS_TRY(status);
    ls_crash_point();
    return LS_OK;
}

static void was_not_written(ls_daemon *d, const ls_turn *turn)
{
    char text[512];
    snprintf(text, sizeof text, "%s", ls_error_text());
    if (d->retry_ns == 0) {
        ls_log_error("the queue can't write to its database and refuses changes until it can: %s", text);
    }
    for (uint32_t i = 0; i < turn->order_count; i++) {
        if (ls_turn_is_urgent(turn, i)) {
            carry_out(d, &turn->orders[i]);
        }
    }
    ls_controller_turn_failed(d->controller, text);
    ls_controller_pause(d->controller, text);
    d->retry_ns = ls_env_now_ns(d->env) + RETRY_NS;
}

/* The copies outlive the turn. */
static const ls_transition *copy_transitions(const ls_turn *turn, ls_arena *arena)
{
    ls_transition *copies = ls_arena_new(arena, ls_transition, turn->transition_count + 1);
    for (uint32_t i = 0; i < turn->transition_count; i++) {
        copies[i] = turn->transitions[i];
        copies[i].text = ls_arena_strdup(arena, turn->transitions[i].text);
    }
    return copies;
}

static void was_written(ls_daemon *d, const ls_turn *turn)
{
    if (d->retry_ns > 0 && turn->must_be_written) {
        ls_log_warn("the queue can write again");
        ls_controller_pause(d->controller, d->is_homeless ? homeless_text : NULL);
        d->retry_ns = 0;
    }
    log_transitions(turn);
    for (uint32_t i = 0; i < turn->alert_count; i++) {
        ls_messenger_send(d->messenger, &turn->alerts[i]);
    }
    for (uint32_t i = 0; i < turn->order_count; i++) {
        carry_out(d, &turn->orders[i]);
        ls_crash_point();
    }
    ls_arena arena = {0};
    const uint32_t count = turn->transition_count;
    const ls_transition *transitions = copy_transitions(turn, &arena);
    ls_controller_turn_done(d->controller);
    /* A listener may ask something at once: that is for the next turn. */
    for (uint32_t i = 0; i < count; i++) {
        const ls_job *job = ls_controller_job(d->controller, transitions[i].job);
        if (job) {
            ls_api_tell(d->api, &transitions[i], job);
        }
    }
    ls_arena_release(&arena);
    if (turn->must_be_written) {
        ls_crash_point();
    }
}

/*
 * One turn: what came in since the last one is decided in memory, then written in one transaction,
 * and only then acted on and answered. The order is what makes a crash harmless: whatever a client
 * was told, or the engine was ordered, is on the disk; what is not on the disk was never acted on.
 */
static void take_turn(ls_daemon *d)
{
    ls_turn turn;
    const uint64_t begin_ns = ls_env_now_ns(d->env);
    ls_controller_turn(d->controller, &turn);
    if (write_turn(d, &turn) == LS_OK) {
        was_written(d, &turn);
    } else {
        was_not_written(d, &turn);
    }
    ls_api_took(d->api, 1e-9 * (double)(ls_env_now_ns(d->env) - begin_ns));
}

/* How long the loop may sleep. */
static uint64_t sleep_ns(const ls_daemon *d)
{
    const uint64_t now_ns = ls_env_now_ns(d->env);
    if (d->retry_ns > 0) {
        return d->retry_ns > now_ns ? d->retry_ns - now_ns : 0;
    }
    const double next_s = ls_controller_next_s(d->controller),
                 left_s = next_s - ls_queue_clock_now_s(&d->clock);
    if (next_s <= 0.0) {
        return UINT64_MAX;
    }
    return left_s > 0.0 ? (uint64_t)(1e9 * (left_s < 3600.0 ? left_s : 3600.0)) : 0;
}

void ls_daemon_run(ls_daemon *d)
{
    ls_service_tell("READY=1");
    while (!d->has_stopped) {
        /* While nothing can be written, requests wait for the turn of the next retry, which refuses
         * them. */
        const bool may_write = ls_env_now_ns(d->env) >= d->retry_ns;
        if (may_write && ls_controller_has_work(d->controller)) {
            take_turn(d);
            ls_env_poll(d->env, 0);
        } else {
            ls_env_poll(d->env, sleep_ns(d));
        }
        if (ls_controller_is_down(d->controller) && !ls_controller_has_work(d->controller)) {
            d->has_stopped = true;
        }
    }
    ls_service_tell("STOPPING=1");
}

/* ---- life ---- */

static void hear(void *context, const ls_engine_report *report)
{
    ls_controller_report(((ls_daemon *)context)->controller, report);
}

/* ---- settings ---- */

/* The accounts of config.yaml override those of the database. */
static ls_status set_accounts(ls_daemon *d)
{
    LS_TRY(ls_daemon_lists_check(&d->settings));
    for (uint64_t i = 0; i < d->settings.accounts.count; i++) {
        ls_account account;
        LS_TRY(ls_daemon_account_parse(d->settings.accounts.items[i], &account));
        LS_TRY(ls_controller_set_account(d->controller, &account));
    }
    return LS_OK;
}

static ls_status read_settings_again(ls_daemon *d, json_t **answer_out)
{
    char path[LS_JOB_PATH_BYTES_MAX];
    LS_TRY(ls_home_trust(d->home));
    LS_TRY(path_in(d, "config.yaml", path));
    LS_TRY(ls_reload_read(&d->reload, path, answer_out));
    d->settings.accounts = d->reload.file.accounts;
    const ls_controller_settings settings = ls_daemon_controller_settings(&d->reload.file);
    ls_controller_configure(d->controller, &settings);
    ls_retention_configure(d->retention, d->reload.file.jobs_kept, d->reload.file.kept_s);
    const ls_messenger_settings messages = ls_daemon_messenger_settings(&d->reload.file);
    ls_messenger_configure(d->messenger, &messages);
    d->settings.disk_bytes = d->reload.file.disk_bytes;
    return set_accounts(d);
}

/* {"config", "changed", "restart"}, or {"error"}. */
static json_t *reload(ls_daemon *d)
{
    json_t *answer = NULL;
    if (d->has_own_log && !d->is_homeless) {
        ls_own_log_keep(d->home);
    }
    if (read_settings_again(d, &answer) != LS_OK) {
        ls_log_error("the settings were not read again: %s", ls_error_text());
        json_t *error = json_pack("{s:s}", "error", ls_error_text());
        json_decref(answer);
        return error ? error : json_pack("{s:s}", "error", "the settings can't be read");
    }
    char *text = json_dumps(answer, JSON_COMPACT);
    ls_log_info("the settings were read again: %s", text ? text : "");
    free(text);
    return answer;
}

static void api_call(void *context, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                     ls_controller_reply reply, void *reply_context)
{
    ls_daemon *d = context;
    const bool reloads = verb == LS_VERB_RELOAD && (caller->is_admin || caller->uid == 0);
    json_t *done = reloads ? reload(d) : NULL;
    ls_controller_call(d->controller, caller, verb, done ? done : arguments, reply, reply_context);
    json_decref(done);
}

static void api_forget(void *context, void *reply_context)
{
    ls_controller_forget(((ls_daemon *)context)->controller, reply_context);
}

static bool api_may_read(void *context, const ls_caller *caller, uint64_t id)
{
    const ls_daemon *d = context;
    const ls_job *job = ls_controller_job(d->controller, id);
    ls_job *old = job ? NULL : read_old_job(context, id);
    job = job ? job : old;
    const bool may = job && ls_job_is_open_to(job, caller->uid, caller->user, caller->is_admin);
    ls_job_destroy(old);
    return may;
}

/* ---- once a second, and signals ---- */

/*
 * Two daemons on one path would give the same devices away twice. One whose folder was removed, or
 * covered by another disk, starts nothing any more; the folder may come back.
 */
static void watch_home(ls_daemon *d)
{
    const bool is_there = ls_home_lock_is_there(d->home, &d->lock);
    if (is_there != d->is_homeless) {
        return;
    }
    d->is_homeless = !is_there;
    if (d->is_homeless) {
        ls_log_error("%s: %s", d->home, homeless_text);
    } else {
        ls_log_warn("%s is back: jobs are started again", d->home);
    }
    if (d->retry_ns == 0) {
        ls_controller_pause(d->controller, d->is_homeless ? homeless_text : NULL);
    }
}

static void watch_disk(ls_daemon *d)
{
    struct statvfs disk;
    char text[LS_ALERT_TEXT_BYTES];
    const uint64_t least = d->settings.disk_bytes;
    if (least == 0 || statvfs(d->home, &disk) != 0) {
        return;
    }
    const uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (left < least && !d->told_disk) {
        snprintf(text, sizeof text,
                 "the disk of the queue's folder, %.160s, has only %" PRIu64 " MiB left, less than %" PRIu64
                 " MiB (alerts.disk)",
                 d->home, left >> 20, least >> 20);
        ls_controller_alert(d->controller, LS_ALERT_DISK, text);
        d->told_disk = true;
    }
    d->told_disk = d->told_disk && left < least + least / 8; /* not again for every freed block */
}

static void watch_clock(ls_daemon *d)
{
    const double now_ahead_s = ls_queue_clock_ahead_s(&d->clock), moved_s = now_ahead_s - d->told_ahead_s;
    if (moved_s > 1.0 || moved_s < -1.0) {
        ls_log_warn("the clock of this machine was moved by %+.0f s: times are shown by the new clock, and "
                    "time limits and usage are not affected",
                    moved_s);
        d->told_ahead_s = now_ahead_s;
    }
}

static void keep_up(void *context)
{
    ls_daemon *d = context;
    d->upkeep_timer = ls_env_timer_set(d->env, UPKEEP_NS, keep_up, d);
    watch_clock(d);
    watch_home(d);
    if (d->is_homeless) {
        return;
    }
    watch_disk(d);
    if (d->has_own_log) {
        ls_own_log_keep(d->home);
    }
    if (!d->has_ballast && d->retry_ns == 0) {
        d->has_ballast = ls_ballast_fill(d->home);
    }
}

static void signalled(void *context)
{
    const struct heard *heard = context;
    ls_daemon *d = heard->daemon;
    switch (heard->number) {
    case SIGTERM:
    case SIGINT:
    case SIGQUIT:
        ls_log_info("stopping, because of SIG%s; running jobs continue", sigabbrev_np(heard->number));
        d->has_stopped = true;
        break;
    case SIGHUP:
        json_decref(reload(d));
        ls_log_info("SIGHUP: %s", d->has_own_log ? "the log file was opened again" : "there is no log file");
        break;
    default:
        ls_log_info("SIG%s is ignored", sigabbrev_np(heard->number));
        break;
    }
}

static ls_status watch_signals(ls_daemon *d)
{
    for (size_t i = 0; i < SIGNALS; i++) {
        d->signals[i] = (struct heard){.daemon = d, .number = watched_signals[i]};
        if (ls_env_signal_watch(d->env, watched_signals[i], signalled, &d->signals[i]) != 0) {
            return ls_fail(LS_ERR_IO, "the daemon can't set up its handling of signals");
        }
    }
    return LS_OK;
}

/* ---- opening ---- */

static ls_status open_engine(ls_daemon *d)
{
    const ls_local_settings local = {
        .env = d->env,
        .files = d->files,
        .home = d->home,
        .program = d->program,
        .slots = (uint32_t)d->settings.slots,
        .spot = d->settings.spot,
        .look_s = d->settings.look_s,
        .hear = hear,
        .hear_context = d,
    };
    const ls_slurm_settings slurm = {
        .home = d->home, .program = d->program, .use_accounts = d->settings.slurm_accounts};
    return d->settings.engine == LS_ENGINE_SLURM ? ls_slurm_engine_create(d->env, &slurm, hear, d, &d->engine)
                                                 : ls_local_engine_create(&local, &d->engine);
}

static ls_status name_way_back(ls_status status, const char *path)
{
    char text[512];
    snprintf(text, sizeof text, "%s", ls_error_text());
    if (status == LS_ERR_DISK) {
        return ls_fail(status, "%s. Is the disk full? Free some space on it, then start the daemon again",
                       text);
    }
    return status != LS_ERR_DATA
               ? status
               : ls_fail(
                     LS_ERR_DATA,
                     "%s. Put back a copy of the database, or move %s* away to begin with an empty queue; "
                     "see 'Backup' in docs/orchestration.md",
                     text, path);
}

static ls_status open_controller(ls_daemon *d)
{
    const ls_controller_settings settings = ls_daemon_controller_settings(&d->settings);
    const ls_controller_calls calls = {.context = d,
                                       .now_s = now_s,
                                       .ahead_s = ahead_s,
                                       .journal = read_journal,
                                       .old_job = read_old_job,
                                       .old_state = read_old_state,
                                       .keyed_job = keyed_job,
                                       .used = used,
                                       .is_user = is_user,
                                       .foresee = foresee};
    char path[LS_JOB_PATH_BYTES_MAX];
    uint64_t next = 1;
    LS_TRY(path_in(d, "lockstep.db", path));
    LS_TRY(name_way_back(ls_job_store_open(path, &d->store), path));
    LS_TRY(ls_controller_create(&settings, d->engine, &calls, &d->controller));
    LS_TRY(name_way_back(ls_job_store_restore(d->store, settings.ended_max, d->controller, &next), path));
    /* a database that was lost does not give the folders of old jobs to new ones */
    const uint64_t highest = ls_jobs_folder_highest(d->home);
    next = highest >= next ? highest + 1 : next;
    LS_TRY(set_accounts(d));
    ls_controller_restored(d->controller, next);
    d->retention = ls_retention_create(&(ls_retention_settings){
        .env = d->env,
        .store = d->store,
        .controller = d->controller,
        .home = d->home,
        .jobs_kept = d->settings.jobs_kept,
        .time_s = d->settings.kept_s,
    });
    return LS_OK;
}

/* A daemon of root's has a second socket, at a fixed place where all users find it. It belongs to
 * the first such daemon of the machine; another one serves those who set LOCKSTEP_HOME. */
static void take_shared_home(ls_daemon *d)
{
    if (geteuid() != 0) {
        return;
    }
    const ls_status status = ls_home_lock_take(LS_SHARED_HOME, &d->shared_lock);
    if (status == LS_OK && ls_home_trust(LS_SHARED_HOME) == LS_OK) {
        return;
    }
    ls_log_warn("no socket at %s: users find this daemon only with LOCKSTEP_HOME=%s: %s", LS_SHARED_HOME,
                d->home, ls_error_text());
    ls_error_clear();
    ls_home_lock_drop(&d->shared_lock);
}

static ls_status open_api(ls_daemon *d)
{
    bool owner_needs_token = false, users_need_token = false;
    ls_daemon_token_needs(&d->settings, &owner_needs_token, &users_need_token);
    take_shared_home(d);
    char metrics[LS_JOB_PATH_BYTES_MAX];
    LS_TRY(path_in(d, "metrics", metrics));
    const ls_api_settings settings = {
        .env = d->env,
        .home = d->home,
        .metrics = metrics,
        .files = d->files,
        .shared = d->shared_lock.file >= 0 ? LS_SHARED_HOME : NULL,
        .listen = d->settings.listen,
        .certificate = d->settings.certificate[0] ? d->settings.certificate : NULL,
        .key = d->settings.key[0] ? d->settings.key : NULL,
        .all_users = geteuid() == 0,
        .owner_needs_token = owner_needs_token,
        .users_need_token = users_need_token,
        .calls = {.context = d, .call = api_call, .forget = api_forget, .may_read = api_may_read},
    };
    return ls_api_create(&settings, &d->api);
}

static ls_status open_all(ls_daemon *d)
{
    umask(077);
    LS_TRY(ls_home_lock_take(d->home, &d->lock));
    if (ls_ballast_make_room(d->home)) {
        ls_log_warn("the disk that holds %s is full: the daemon starts with its reserve of %d MiB", d->home,
                    LS_BALLAST_MIB);
    }
    LS_TRY(ls_env_real_create(&d->env));
    LS_TRY(watch_signals(d));
    LS_TRY(ls_user_files_create(d->env, FILES_LIMIT_NS, &d->files));
    d->clock = ls_queue_clock_open(d->env, d->home);
    char config[LS_JOB_PATH_BYTES_MAX];
    LS_TRY(path_in(d, "config.yaml", config));
    LS_TRY(ls_reload_open(&d->reload, config));
    const ls_messenger_settings messages = ls_daemon_messenger_settings(&d->settings);
    LS_TRY(ls_messenger_check(&messages));
    d->messenger = ls_messenger_create();
    ls_messenger_configure(d->messenger, &messages);
    LS_TRY(open_engine(d));
    LS_TRY(open_controller(d));
    LS_TRY(open_api(d));
    d->has_own_log = ls_own_log_is_used(d->home);
    keep_up(d);
    return LS_OK;
}

ls_status ls_daemon_check(const char *home, const ls_daemon_settings *settings)
{
    const ls_messenger_settings messages = ls_daemon_messenger_settings(settings);
    LS_TRY(ls_daemon_lists_check(settings));
    LS_TRY(ls_messenger_check(&messages));
    LS_TRY(ls_api_check(&(ls_api_settings){
        .home = home,
        .listen = settings->listen,
        .certificate = settings->certificate[0] ? settings->certificate : NULL,
        .key = settings->key[0] ? settings->key : NULL,
    }));
    return settings->engine == LS_ENGINE_SLURM ? ls_slurm_engine_check() : LS_OK;
}

ls_status ls_daemon_create(const char *home, const char *program, const ls_daemon_settings *settings,
                           ls_daemon **daemon_out)
{
    ls_daemon *d = calloc(1, sizeof *d);
    LS_ASSERT(d && "not enough memory for a daemon");
    d->lock = d->shared_lock = (ls_home_lock){.file = -1, .name = -1};
    d->settings = *settings;
    snprintf(d->home, sizeof d->home, "%s", home);
    snprintf(d->program, sizeof d->program, "%s", program);
    const ls_status status = open_all(d);
    if (status != LS_OK) {
        ls_daemon_destroy(d);
        return status;
    }
    *daemon_out = d;
    return LS_OK;
}

void ls_daemon_destroy(ls_daemon *d)
{
    if (!d) {
        return;
    }
    if (d->api) {
        ls_api_destroy(d->api);
    }
    ls_retention_destroy(d->retention);
    ls_messenger_destroy(d->messenger);
    ls_controller_destroy(d->controller);
    if (d->engine) {
        d->engine->calls->destroy(d->engine);
    }
    ls_job_store_close(d->store);
    ls_user_files_destroy(d->files);
    ls_env_real_destroy(d->env);
    ls_home_lock_drop(&d->shared_lock);
    ls_home_lock_drop(&d->lock);
    ls_reload_close(&d->reload);
    free(d);
}

const char *ls_daemon_note(const ls_daemon *d)
{
    return d->settings.engine == LS_ENGINE_LOCAL ? ls_local_engine_note(d->engine) : "";
}

const char *ls_daemon_address(const ls_daemon *d)
{
    return ls_api_address(d->api);
}
