// SPDX-License-Identifier: Apache-2.0
/* up, reload and down: start the daemon of the queue, give it new settings, stop it. */
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "compute/queue.h"
#include "env/user/user.h"
#include "execution/calibrate/calibrate.h"
#include "orchestration/client/client.h"
#include "orchestration/daemon/daemon.h"
#include "orchestration/daemon/home_lock.h"
#include "orchestration/daemon/home_trust.h"
#include "orchestration/daemon/own_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct up_settings {
    bool foreground, check, json;
    const char *engine, *listen;
    uint64_t slots;
} up_settings;

static const ls_option up_options[] = {
    LS_ROW_BOOL(up_settings, foreground, "stay in this terminal and print the log; Ctrl-C stops the daemon"),
    LS_ROW_BOOL(up_settings, check,
                "check config.yaml, the options, the address, the TLS files and the engine, and start "
                "nothing; exit code 2 for an error"),
    LS_ROW_TEXT(
        up_settings, engine, "NAME",
        "what starts the jobs: local (this machine) or slurm; default: as in config.yaml, otherwise local"),
    LS_ROW_U64(up_settings, slots, "auto", 0, 4096,
               "number of devices that this machine offers to jobs; auto: as in config.yaml, otherwise its "
               "GPUs, otherwise one per core",
               .allow_auto = true),
    LS_ROW_TEXT_OR(
        up_settings, listen, "auto", "HOST:PORT",
        "address at which the daemon serves its API and web page; auto: as in config.yaml, otherwise "
        "127.0.0.1:7600, or a free port if that one is taken; \"\": only the Unix socket"),
    LS_ROW_JSON(up_settings),
};

/* ---- where ---- */

static ls_status find_home(ls_arena *arena, const char **home_out)
{
    char *home = ls_home_path(arena, "");
    if (!home) {
        return ls_fail(LS_ERR_INVALID, "no folder for the queue: set LOCKSTEP_HOME or HOME");
    }
    home = ls_path_trim(arena, home);
    const bool is_new = !ls_path_exists(home);
    LS_TRY(ls_dir_create(home));
    if (is_new && chmod(home, 0700) != 0) { /* the umask may let others write it */
        return ls_fail_errno(errno, "can't restrict access to %s to its owner", home);
    }
    char *absolute = realpath(home, NULL);
    if (!absolute) {
        return ls_fail_errno(errno, "can't find %s", home);
    }
    *home_out = ls_arena_strdup(arena, absolute);
    free(absolute);
    return LS_OK;
}

/* A user who is not the owner of the folder needs no daemon there: root's serves every user. */
static ls_status check_owner(const char *home)
{
    struct stat info;
    char name[LS_USER_NAME_BYTES] = "another user";
    if (geteuid() == 0 || stat(home, &info) != 0 || info.st_uid == geteuid()) {
        return LS_OK;
    }
    ls_user_name(info.st_uid, name);
    return ls_fail(LS_ERR_INVALID,
                   info.st_uid == 0
                       ? "%s belongs to %s, whose daemon serves every user of this machine, so "
                         "'up' is not needed. For a queue of your own, set LOCKSTEP_HOME"
                       : "%s belongs to %s: only that user can start a daemon there. For a queue "
                         "of your own, set LOCKSTEP_HOME",
                   home, name);
}

static ls_status find_program(ls_arena *arena, const char **program_out)
{
    char path[4096];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
    if (bytes <= 0) {
        return ls_fail_errno(errno, "can't find the path of this program");
    }
    *program_out = ls_arena_strndup(arena, path, (size_t)bytes);
    return LS_OK;
}

static ls_status read_settings(const ls_invocation *invocation, const char *home,
                               ls_daemon_settings *settings_out)
{
    const up_settings *up = invocation->settings;
    const ls_option_table *table = ls_daemon_settings_table();
    ls_arena *arena = invocation->arena;
    LS_TRY(ls_daemon_settings_load(ls_path_join(arena, home, "config.yaml"), arena, settings_out));
    if (up->engine[0]) {
        LS_TRY(ls_options_apply_value(table, settings_out, "engine", up->engine, "--engine", arena));
    }
    if (strcmp(up->listen, "auto") != 0) {
        LS_TRY(ls_options_apply_value(table, settings_out, "listen", up->listen, "--listen", arena));
    }
    if (up->slots != LS_AUTO_U64) {
        settings_out->slots = up->slots;
    }
    return LS_OK;
}

/* ---- up ---- */

/* note: what does not work on this machine; "": all does. */
static void print_up(const up_settings *settings, const char *home, const char *address, const char *note,
                     pid_t pid)
{
    if (settings->json) {
        json_t *root = json_pack("{s:s, s:s, s:I, s:s}", "home", home, "address", address, "pid",
                                 (json_int_t)pid, "note", note);
        ls_print_json(root);
        json_decref(root);
    } else {
        printf("the queue is up: %s%s%s (process %ld)\n", home, address[0] ? ", " : "", address, (long)pid);
        if (note[0]) {
            printf("note: %s\n", note);
        }
    }
    fflush(stdout);
}

static ls_status run_here(const ls_invocation *invocation, const char *home, const char *program,
                          const ls_daemon_settings *settings, int ready)
{
    const up_settings *up = invocation->settings;
    ls_daemon *daemon = NULL;
    LS_TRY(ls_daemon_create(home, program, settings, &daemon));
    if (ready >= 0) {
        dprintf(ready, "+%s\n%s", ls_daemon_address(daemon), ls_daemon_note(daemon));
        close(ready);
    } else {
        print_up(up, home, ls_daemon_address(daemon), ls_daemon_note(daemon), getpid());
    }
    ls_daemon_run(daemon);
    ls_daemon_destroy(daemon);
    return LS_OK;
}

/* In the process that becomes the daemon: detaches from the terminal. */
static ls_status run_detached(const ls_invocation *invocation, const char *home, const char *program,
                              const ls_daemon_settings *settings, int ready)
{
    setsid();
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || chdir("/") != 0) {
        return ls_fail_errno(errno, "can't open /dev/null");
    }
    dup2(null, 0);
    LS_TRY(ls_own_log_open(home));
    ls_log_init(&(ls_log_settings){.level = LS_LOG_INFO, .rank = -1});
    return run_here(invocation, home, program, settings, ready);
}

/* Reads the daemon's report: "+ADDRESS" and a line for people when it is up, "-CODE TEXT" when it
 * could not start. */
static ls_status wait_until_up(const ls_invocation *invocation, const char *home, int ready, pid_t pid)
{
    char text[4096];
    size_t bytes = 0;
    for (ssize_t got = 1; got > 0 && bytes<sizeof text - 1; bytes += got> 0 ? (size_t)got : 0) {
        got = read(ready, text + bytes, sizeof text - 1 - bytes);
    }
    text[bytes] = '\0';
    if (text[0] == '+') {
        char *note = strchr(text, '\n');
        if (note) {
            *note++ = '\0';
        }
        print_up(invocation->settings, home, text + 1, note ? note : "", pid);
        return LS_OK;
    }
    char *end = text;
    const long code = text[0] == '-' ? strtol(text + 1, &end, 10) : LS_ERR_FAILED;
    return ls_fail(code > LS_OK && code <= LS_ERR_MISMATCH ? (ls_status)code : LS_ERR_FAILED, "%s",
                   text[0] == '-' ? end + 1 : "the daemon ended during its start; see daemon.log");
}

static ls_status start_detached(const ls_invocation *invocation, const char *home, const char *program,
                                const ls_daemon_settings *settings)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) {
        return ls_fail_errno(errno, "can't make a pipe to start the daemon");
    }
    fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) {
        return ls_fail_errno(errno, "can't start the daemon's process");
    }
    if (pid == 0) {
        close(ready[0]);
        const ls_status status = run_detached(invocation, home, program, settings, ready[1]);
        if (status != LS_OK) { /* it did not start: the pipe is still open */
            dprintf(ready[1], "-%d %s", (int)status, ls_error_text());
        }
        _exit(ls_status_exit_code(status));
    }
    close(ready[1]);
    const ls_status status = wait_until_up(invocation, home, ready[0], pid);
    close(ready[0]);
    return status;
}

/* The daemon has an open file per running job and per connection. Jobs get the limit that the
 * daemon was started with (cli/queue/runner.c). */
static void raise_file_limit(void)
{
    struct rlimit files;
    char before[32];
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        snprintf(before, sizeof before, "%llu", (unsigned long long)files.rlim_cur);
        setenv("LOCKSTEP_FILES", before, 1);
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* The result of 'lockstep calibrate' on this machine; NULL when there is none. */
static const ls_calibration *find_calibration(ls_arena *arena)
{
    ls_queue *queue = NULL;
    ls_calibration *calibration = ls_arena_new(arena, ls_calibration, 1);
    char why_not[400];
    if (ls_queue_create_cpu(1, &queue) != LS_OK) {
        return NULL;
    }
    const bool found = ls_calibration_find(arena, queue, calibration, why_not, sizeof why_not);
    ls_queue_destroy(queue);
    return found ? calibration : NULL;
}

/* What the daemon would refuse at its start, without starting it. */
static ls_status check_settings(const ls_invocation *invocation, const char *home,
                                const ls_daemon_settings *settings)
{
    const up_settings *up = invocation->settings;
    const char *path = ls_path_join(invocation->arena, home, "config.yaml");
    const bool is_there = ls_path_exists(path);
    LS_TRY(ls_daemon_check(home, settings));
    if (up->json) {
        json_t *root = json_pack("{s:s, s:b}", "config", path, "exists", is_there);
        ls_print_json(root);
        json_decref(root);
    } else {
        printf(is_there ? "%s is valid\n" : "there is no %s: all settings have their defaults\n", path);
    }
    return LS_OK;
}

static ls_status run_up(const ls_invocation *invocation)
{
    const up_settings *up = invocation->settings;
    const char *home = NULL, *program = NULL;
    ls_daemon_settings settings;
    LS_TRY(find_home(invocation->arena, &home));
    LS_TRY(check_owner(home));
    LS_TRY(ls_home_trust(home)); /* before its configuration is read */
    LS_TRY(find_program(invocation->arena, &program));
    LS_TRY(read_settings(invocation, home, &settings));
    if (up->check) {
        return check_settings(invocation, home, &settings);
    }
    settings.calibration = find_calibration(invocation->arena);
    raise_file_limit();
    return up->foreground ? run_here(invocation, home, program, &settings, -1)
                          : start_detached(invocation, home, program, &settings);
}

const ls_command ls_command_up = {
    .name = "up",
    LS_WORDS("", 0, 0),
    .summary = "start the job queue of this machine",
    .details = "Starts the daemon that runs submitted jobs as devices and policy allow. Its\n"
               "files are in $LOCKSTEP_HOME (default ~/.lockstep), settings in config.yaml and\n"
               "the log in daemon.log. Jobs continue to run when the daemon stops or dies, and\n"
               "it takes care of them again after its next start. A daemon of root runs each job\n"
               "as the user who submitted it.\n"
               "\n"
               "Examples:\n"
               "  lockstep up\n"
               "  lockstep up --slots 4\n"
               "  lockstep up --engine slurm\n"
               "      jobs go to the Slurm of this machine",
    LS_SETTINGS(up_settings, up_options),
    .run = run_up,
};

/* ---- reload ---- */

typedef struct reload_settings {
    bool json;
} reload_settings;

static const ls_option reload_options[] = {LS_ROW_JSON(reload_settings)};

static void print_keys(const char *what, const json_t *keys)
{
    size_t i;
    json_t *key;
    bool has_accounts = false;
    printf("%s:", what);
    json_array_foreach(keys, i, key)
    {
        printf("%s %s", i > 0 ? "," : "", json_string_value(key));
        has_accounts = has_accounts || strcmp(json_string_value(key), "accounts.list") == 0;
    }
    printf("\n");
    if (has_accounts) {
        printf("an account that was removed from accounts.list keeps its limits; 'lockstep accounts NAME' "
               "with options changes them\n");
    }
}

static ls_status run_reload(const ls_invocation *invocation)
{
    const reload_settings *settings = invocation->settings;
    json_t *answer = NULL;
    LS_TRY(ls_queue_post(json_object(), &answer, "/v1/reload"));
    const json_t *changed = json_object_get(answer, "changed"), *restart = json_object_get(answer, "restart");
    if (settings->json) {
        ls_print_json(answer);
    } else if (json_array_size(changed) + json_array_size(restart) == 0) {
        printf("%s has no new settings\n", ls_queue_string(answer, "config"));
    } else {
        if (json_array_size(changed) > 0) {
            print_keys("changed", changed);
        }
        if (json_array_size(restart) > 0) {
            print_keys("changed in the file, but only used after 'lockstep down' and 'lockstep up'", restart);
        }
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_reload = {
    .name = "reload",
    .words = "",
    .summary = "make the daemon of the queue read config.yaml again",
    .details = "Limits, accounts, prices and most other settings take effect at once, and jobs are\n"
               "not affected. The engine, the devices, the address and a few more are only read at\n"
               "the start of the daemon; those that differ are named. A file with an error changes\n"
               "nothing; 'lockstep up --check' finds it beforehand. The signal HUP does the same.\n"
               "\n"
               "Example:\n"
               "  lockstep reload",
    LS_SETTINGS(reload_settings, reload_options),
    .run = run_reload,
};

/* ---- down ---- */

typedef struct down_settings {
    bool cancel, json;
    uint64_t timeout;
} down_settings;

static const ls_option down_options[] = {
    LS_ROW_BOOL(down_settings, cancel, "cancel all jobs first and wait until they have ended"),
    LS_ROW_U64(down_settings, timeout, "120", 1, 86400,
               "maximum number of seconds to wait until the daemon has stopped"),
    LS_ROW_JSON(down_settings),
};

/* "jobs 4, 7 have not ended, and it exits when they have"; what is left when the daemon stays. */
static void append_left(ls_text *text)
{
    enum { NAMED_MAX = 8 };
    const ls_client_request request = {.method = "GET", .path = "/v1/jobs", .timeout_s = 2.0};
    json_t *answer = NULL;
    if (ls_client_ask(&request, &answer) != LS_OK) {
        ls_error_clear();
        ls_text_append(text, "it does not answer requests");
        return;
    }
    const json_t *jobs = json_object_get(answer, "jobs");
    const size_t count = json_array_size(jobs);
    for (size_t i = 0; i < count && i < NAMED_MAX; i++) {
        ls_text_printf(text, "%s%lld",
                       i > 0        ? ", "
                       : count == 1 ? "job "
                                    : "jobs ",
                       (long long)ls_queue_integer(json_array_get(jobs, i), "job"));
    }
    if (count > NAMED_MAX) {
        ls_text_printf(text, " and %zu more", count - NAMED_MAX);
    }
    ls_text_append(text, count == 0   ? "all jobs have ended"
                         : count == 1 ? " has not ended, and it exits when it has"
                                      : " have not ended, and it exits when they have");
    json_decref(answer);
}

static ls_status wait_for_end(int process, const down_settings *settings, pid_t pid)
{
    struct pollfd end = {.fd = process, .events = POLLIN};
    int got;
    while ((got = poll(&end, 1, (int)(1000 * settings->timeout))) < 0 && errno == EINTR) {
    }
    if (got > 0) {
        return LS_OK;
    }
    ls_text left = {0};
    if (settings->cancel) {
        ls_text_append(&left, ": ");
        append_left(&left);
    }
    const ls_status status =
        ls_fail(LS_ERR_TIMEOUT, "after %llu s the daemon (process %ld) is still running%s",
                (unsigned long long)settings->timeout, (long)pid, ls_text_string(&left));
    ls_text_release(&left);
    return status;
}

static ls_status end_daemon(const down_settings *settings, pid_t pid, int process)
{
    if (!settings->cancel) { /* a signal works even when the API does not answer */
        if (syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0) != 0) {
            return ls_fail_errno(errno, "can't stop the daemon (process %ld)", (long)pid);
        }
        return wait_for_end(process, settings, pid);
    }
    json_t *body = json_pack("{s:b}", "cancel", 1), *answer = NULL;
    const ls_client_request request = {.method = "POST", .path = "/v1/down", .body = body, .timeout_s = 30.0};
    const ls_status status = ls_client_ask(&request, &answer);
    json_decref(body);
    json_decref(answer);
    LS_TRY(status);
    return wait_for_end(process, settings, pid);
}

/* Numbers of running and waiting jobs; -1 when the daemon does not answer. */
static void count_jobs(int64_t *running_out, int64_t *waiting_out)
{
    const ls_client_request request = {.method = "GET", .path = "/v1/status", .timeout_s = 2.0};
    json_t *answer = NULL, *count = NULL;
    const char *state = NULL;
    *running_out = *waiting_out = -1;
    if (ls_client_ask(&request, &answer) != LS_OK) {
        ls_error_clear(); /* the signal works without an answer */
        return;
    }
    *running_out = *waiting_out = 0;
    json_object_foreach(json_object_get(answer, "states"), state, count)
    {
        if (!ls_queue_has_ended(state)) {
            *(ls_queue_waits(state) ? waiting_out : running_out) += json_integer_value(count);
        }
    }
    json_decref(answer);
}

static void print_down(const down_settings *settings, int64_t running, int64_t waiting)
{
    if (settings->cancel) {
        printf("the queue is down, and its jobs have ended\n");
    } else if (running < 0) {
        printf("the queue is down; running jobs continue\n");
    } else if (running + waiting == 0) {
        printf("the queue is down; no jobs were running or waiting\n");
    } else {
        printf("the queue is down: %lld running job%s, %lld waiting job%s until 'lockstep up'\n",
               (long long)running, running == 1 ? " continues" : "s continue", (long long)waiting,
               waiting == 1 ? " stays" : "s stay");
    }
}

/* The number in the lock is what its holder wrote there: root must not end any process whose number
 * another user writes into a folder of their own. */
static ls_status check_holder(const char *home, pid_t pid)
{
    struct stat folder, process;
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld", (long)pid);
    if (geteuid() != 0 || stat(home, &folder) != 0 || folder.st_uid == 0 || stat(path, &process) != 0 ||
        process.st_uid == folder.st_uid) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID,
                   "%s/lock names process %ld as the daemon, but that process does not belong to the owner "
                   "of the folder: it cannot be the daemon and is not stopped",
                   home, (long)pid);
}

static ls_status run_down(const ls_invocation *invocation)
{
    const down_settings *settings = invocation->settings;
    const char *home = NULL;
    LS_TRY(find_home(invocation->arena, &home));
    pid_t pid = 0, still = 0;
    LS_TRY(ls_home_holder(home, &pid));
    const int process = (int)syscall(SYS_pidfd_open, pid, 0);
    /* asked twice: the process id still belongs to the daemon */
    ls_status status = ls_home_holder(home, &still);
    if (status == LS_OK && (process < 0 || still != pid)) {
        status = ls_fail(LS_ERR_NOT_FOUND, "no daemon runs for the queue in %s", home);
    }
    status = status != LS_OK ? status : check_holder(home, pid);
    int64_t running = -1, waiting = -1;
    if (status == LS_OK && !settings->cancel) {
        count_jobs(&running, &waiting);
    }
    status = status != LS_OK ? status : end_daemon(settings, pid, process);
    if (process >= 0) {
        close(process);
    }
    if (status == LS_OK && settings->json) {
        json_t *root = json_pack("{s:s, s:I}", "home", home, "pid", (json_int_t)pid);
        ls_print_json(root);
        json_decref(root);
    } else if (status == LS_OK) {
        print_down(settings, running, waiting);
    }
    return status;
}

const ls_command ls_command_down = {
    .name = "down",
    LS_WORDS("", 0, 0),
    .summary = "stop the daemon of the queue; running jobs continue",
    .details = "Running jobs continue, and waiting jobs stay in the queue until 'lockstep up'.\n"
               "With --cancel all jobs are cancelled first: they save and end.\n"
               "\n"
               "Example:\n"
               "  lockstep down",
    LS_SETTINGS(down_settings, down_options),
    .run = run_down,
};
