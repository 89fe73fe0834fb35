// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/daemon.h"

#include "base/assert.h"
#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "base/user.h"
#include "base/user_files.h"
#include "orchestration/api/server.h"
#include "orchestration/control/job_store.h"
#include "orchestration/daemon/crash.h"
#include "orchestration/daemon/forecast.h"
#include "orchestration/daemon/retention.h"
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
#include <unistd.h>

#define RETRY_NS       UINT64_C(1000000000)       /* of what could not be written */
#define FILES_LIMIT_NS (5 * UINT64_C(1000000000)) /* of a look at a path that a user chose: it hangs, then */

struct ls_daemon {
    char home[LS_JOB_PATH_BYTES_MAX], program[LS_JOB_PATH_BYTES_MAX];
    ls_daemon_settings settings;
    int lock;
    ls_env *env;
    ls_user_files *files;
    ls_job_store *store;
    ls_engine *engine;
    ls_controller *controller;
    ls_api *api;
    ls_retention *retention;
    uint64_t retry_ns; /* nothing is written before; 0: at once */
    ls_forecast_kept forecast;
    bool has_stopped;
};

/* ---- the folder ---- */

static ls_status path_in(const ls_daemon *d, const char *name, char path[LS_JOB_PATH_BYTES_MAX])
{
    const int bytes = snprintf(path, LS_JOB_PATH_BYTES_MAX, "%s/%s", d->home, name);
    return bytes < LS_JOB_PATH_BYTES_MAX ? LS_OK : ls_fail(LS_ERR_INVALID, "%s is too long a path", d->home);
}

static pid_t read_holder(int fd)
{
    char text[32] = "";
    long pid = 0;
    const ssize_t bytes = pread(fd, text, sizeof text - 1, 0);
    return bytes > 0 && sscanf(text, "%ld", &pid) == 1 && pid > 0 ? (pid_t)pid : 0;
}

static ls_status is_of_another(const char *home)
{
    struct stat info;
    char name[LS_USER_NAME_BYTES] = "another user";
    if (stat(home, &info) == 0) {
        ls_user_name(info.st_uid, name);
    }
    return ls_fail(LS_ERR_INVALID, "%s belongs to user %s: a daemon there is ended by that user or by root",
                   home, name);
}

ls_status ls_daemon_find(const char *home, pid_t *pid_out)
{
    char path[LS_JOB_PATH_BYTES_MAX];
    snprintf(path, sizeof path, "%s/lock", home);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno != ENOENT) {
        return errno == EACCES ? is_of_another(home) : ls_fail_errno(errno, "can't open %s", path);
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    pid_t pid = 0;
    if (fd >= 0) {
        if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
            pid = read_holder(fd);
        }
        close(fd);
    }
    if (pid <= 0) {
        return ls_fail(LS_ERR_NOT_FOUND, "no daemon runs on %s", home);
    }
    *pid_out = pid;
    return LS_OK;
}

/*
 * Whether a process is on its way out: killed and in its last system call, closing its files, or a zombie. The kernel closes the files of an ending process one after the other,
 * so that its socket can be gone a while before its locks are.
 */
static bool is_ending(pid_t pid)
{
    enum { EXITING = 0x4 /* PF_EXITING of the kernel, in the flags of /proc/PID/stat */ };
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (bytes <= 0) {
        return true;
    }
    text[bytes] = 0;
    /* Behind the name, which may hold anything: state, five numbers, flags; then, up to field 31, what is not needed, and the signals that wait. */
    char state = 0;
    unsigned flags = 0;
    unsigned long waiting = 0;
    const char *at = strrchr(text, ')');
    if (!at || sscanf(at + 1,
                      " %c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %*u "
                      "%*d %*u %*u %*u %*u %*u %*u %lu",
                      &state, &flags, &waiting) < 2) {
        return false;
    }
    return state == 'Z' || state == 'X' || (flags & EXITING) || (waiting & 1ul << (SIGKILL - 1));
}

/* Takes the lock, waiting for a holder that is ending. Holder's number, 0 when it is ours now. */
static pid_t take_lock(int fd)
{
    enum { TRIES = 500, PAUSE_US = 20000 };
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    for (int i = 0; fcntl(fd, F_OFD_SETLK, &lock) != 0; i++) {
        const pid_t holder = read_holder(fd);
        if (i == TRIES || holder == 0 || !is_ending(holder)) {
            return holder ? holder : -1;
        }
        usleep(PAUSE_US);
    }
    return 0;
}

/* Held until the process ends. */
static ls_status lock_folder(ls_daemon *d)
{
    char path[LS_JOB_PATH_BYTES_MAX], text[32];
    LS_TRY(ls_dir_create(d->home));
    LS_TRY(path_in(d, "lock", path));
    d->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock < 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    const pid_t holder = take_lock(d->lock);
    if (holder != 0) {
        return ls_fail(LS_ERR_FAILED,
                       "a daemon runs on %s already, with process number %ld; "
                       "'lockstep down' ends it",
                       d->home, (long)holder);
    }
    /* Others may pass through to their own jobs' folders of a root's daemon, and
   * see nothing. */
    if (chmod(d->home, geteuid() == 0 ? 0711 : 0700) != 0) {
        return ls_fail_errno(errno, "can't close %s to others", d->home);
    }
    const int bytes = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(d->lock, 0) != 0) {
        return ls_fail_errno(errno, "can't write %s", path);
    }
    return ls_file_pwrite_all(d->lock, path, text, (size_t)bytes, 0);
}

/* ---- calls of the controller ---- */

static double now_s(void *context)
{
    return ls_env_wall_s(((ls_daemon *)context)->env);
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

/* Of this machine's own list: to ask a network who there is could take as long as it likes, and the loop waits for nobody. Others have their account as
 * soon as they have used it, whoever did before. */
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
        if (t->from == t->to) { /* something of it changed, not its state */
            ls_log_info("job %" PRIu64 " stays %s, epoch %u cause %s%s%s", t->job, ls_job_state_name(t->to),
                        t->epoch, ls_job_cause_name(t->cause), t->text[0] ? ": " : "", t->text);
            continue;
        }
        ls_log_info("job %" PRIu64 " %s to %s, epoch %u cause %s%s%s", t->job, ls_job_state_name(t->from),
                    ls_job_state_name(t->to), t->epoch, ls_job_cause_name(t->cause), t->text[0] ? ": " : "",
                    t->text);
    }
}

static ls_status write_turn(ls_daemon *d, const ls_turn *turn)
{
    if (!turn->must_be_written) {
        return LS_OK;
    }
    ls_crash_point();
    LS_TRY(ls_job_store_write(d->store, turn));
    ls_crash_point();
    return LS_OK;
}

static void was_not_written(ls_daemon *d)
{
    char text[512];
    snprintf(text, sizeof text, "%s", ls_error_text());
    if (d->retry_ns == 0) {
        ls_log_error("the queue can't write, and changes nothing until it can: %s", text);
    }
    ls_controller_turn_failed(d->controller, text);
    ls_controller_pause(d->controller, text);
    d->retry_ns = ls_env_now_ns(d->env) + RETRY_NS;
}

/* They outlive the turn. */
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
        ls_controller_pause(d->controller, NULL);
        d->retry_ns = 0;
    }
    log_transitions(turn);
    for (uint32_t i = 0; i < turn->order_count; i++) {
        carry_out(d, &turn->orders[i]);
        ls_crash_point();
    }
    ls_arena arena = {0};
    const uint32_t count = turn->transition_count;
    const ls_transition *transitions = copy_transitions(turn, &arena);
    ls_controller_turn_done(d->controller);
    for (uint32_t i = 0; i < count; i++) { /* who hears of one may ask at once: that is for the next turn */
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

static void take_turn(ls_daemon *d)
{
    ls_turn turn;
    const uint64_t begin_ns = ls_env_now_ns(d->env);
    ls_controller_turn(d->controller, &turn);
    if (write_turn(d, &turn) == LS_OK) {
        was_written(d, &turn);
    } else {
        was_not_written(d);
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
    const double next_s = ls_controller_next_s(d->controller), left_s = next_s - ls_env_wall_s(d->env);
    if (next_s <= 0.0) {
        return UINT64_MAX;
    }
    return left_s > 0.0 ? (uint64_t)(1e9 * (left_s < 3600.0 ? left_s : 3600.0)) : 0;
}

void ls_daemon_run(ls_daemon *d)
{
    while (!d->has_stopped) {
        /* While nothing can be written, what is asked is refused by the turn that
     * comes with the next retry. */
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
}

/* ---- life ---- */

static void hear(void *context, const ls_engine_report *report)
{
    ls_controller_report(((ls_daemon *)context)->controller, report);
}

static void api_call(void *context, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                     ls_controller_reply reply, void *reply_context)
{
    ls_controller_call(((ls_daemon *)context)->controller, caller, verb, arguments, reply, reply_context);
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

static void signalled(void *context)
{
    ls_daemon *d = context;
    d->has_stopped = true;
}

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

/* What the file says of accounts wins over what was there. */
static ls_status set_accounts(ls_daemon *d)
{
    for (uint64_t i = 0; i < d->settings.accounts.count; i++) {
        ls_account account;
        LS_TRY(ls_daemon_account_parse(d->settings.accounts.items[i], &account));
        LS_TRY(ls_controller_set_account(d->controller, &account));
    }
    return LS_OK;
}

static ls_status open_controller(ls_daemon *d)
{
    const ls_controller_settings settings = ls_daemon_controller_settings(&d->settings);
    const ls_controller_calls calls = {.context = d,
                                       .now_s = now_s,
                                       .journal = read_journal,
                                       .old_job = read_old_job,
                                       .is_user = is_user,
                                       .foresee = foresee};
    char path[LS_JOB_PATH_BYTES_MAX];
    uint64_t next = 1;
    LS_TRY(path_in(d, "lockstep.db", path));
    LS_TRY(ls_job_store_open(path, &d->store));
    LS_TRY(ls_controller_create(&settings, d->engine, &calls, &d->controller));
    LS_TRY(ls_job_store_restore(d->store, settings.ended_max, d->controller, &next));
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

static ls_status open_api(ls_daemon *d)
{
    const ls_api_settings settings = {
        .env = d->env,
        .home = d->home,
        .files = d->files,
        .listen = d->settings.listen,
        .certificate = d->settings.certificate[0] ? d->settings.certificate : NULL,
        .key = d->settings.key[0] ? d->settings.key : NULL,
        .all_users = geteuid() == 0,
        .calls = {.context = d, .call = api_call, .forget = api_forget, .may_read = api_may_read},
    };
    return ls_api_create(&settings, &d->api);
}

static ls_status open_all(ls_daemon *d)
{
    umask(077);
    LS_TRY(lock_folder(d));
    LS_TRY(ls_env_real_create(&d->env));
    if (ls_env_signal_watch(d->env, SIGTERM, signalled, d) != 0 ||
        ls_env_signal_watch(d->env, SIGINT, signalled, d) != 0) {
        return ls_fail(LS_ERR_IO, "can't watch signals");
    }
    LS_TRY(ls_user_files_create(d->env, FILES_LIMIT_NS, &d->files));
    LS_TRY(open_engine(d));
    LS_TRY(open_controller(d));
    return open_api(d);
}

ls_status ls_daemon_create(const char *home, const char *program, const ls_daemon_settings *settings,
                           ls_daemon **daemon_out)
{
    ls_daemon *d = calloc(1, sizeof *d);
    LS_ASSERT(d && "out of memory for a daemon");
    d->lock = -1;
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
    ls_controller_destroy(d->controller);
    if (d->engine) {
        d->engine->calls->destroy(d->engine);
    }
    ls_job_store_close(d->store);
    ls_user_files_destroy(d->files);
    ls_env_real_destroy(d->env);
    if (d->lock >= 0) {
        close(d->lock);
    }
    free(d);
}

const char *ls_daemon_address(const ls_daemon *d)
{
    return ls_api_address(d->api);
}
