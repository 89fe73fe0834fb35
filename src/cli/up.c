// SPDX-License-Identifier: Apache-2.0
/* up and down: the queue's daemon. */
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue.h"
#include "compute/queue.h"
#include "execution/calibrate/calibrate.h"
#include "orchestration/client/client.h"
#include "orchestration/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct up_settings {
    bool foreground, json;
    const char *engine, *listen;
    uint64_t slots;
} up_settings;

#define FIELD(name) .offset = offsetof(up_settings, name)

static const ls_option up_options[] = {
    {.key = "foreground",
     .type = LS_OPTION_BOOL,
     FIELD(foreground),
     .default_text = "false",
     .help = "stay in this terminal, with its log; Ctrl-C ends it"},
    {.key = "engine",
     .type = LS_OPTION_STRING,
     FIELD(engine),
     .default_text = "\"\"",
     .value_name = "NAME",
     .help = "who runs jobs: local or slurm; default: config.yaml, else local"},
    {.key = "slots",
     .type = LS_OPTION_U64,
     FIELD(slots),
     .default_text = "auto",
     .allow_auto = true,
     .min = 0,
     .max = 4096,
     .help = "devices of this machine; auto: config.yaml, else its GPUs, else one per core"},
    {.key = "listen",
     .type = LS_OPTION_STRING,
     FIELD(listen),
     .default_text = "auto",
     .value_name = "HOST:PORT",
     .help = "address of the API and the page; auto: config.yaml, else 127.0.0.1 and any port; \"\": none"},
    LS_ROW_JSON(up_settings),
};
static const ls_option_table up_table = LS_OPTIONS(up_options);

/* ---- where ---- */

static ls_status find_home(ls_arena *arena, const char **home_out)
{
    char *home = ls_home_path(arena, "");
    if (!home) {
        return ls_fail(LS_ERR_INVALID, "neither LOCKSTEP_HOME nor HOME is set: where is the queue to live?");
    }
    size_t bytes = strlen(home);
    while (bytes > 1 && home[bytes - 1] == '/') {
        home[--bytes] = '\0';
    }
    LS_TRY(ls_dir_create(home));
    char *absolute = realpath(home, NULL);
    if (!absolute) {
        return ls_fail_errno(errno, "can't find %s", home);
    }
    *home_out = ls_arena_strdup(arena, absolute);
    free(absolute);
    return LS_OK;
}

static ls_status find_program(ls_arena *arena, const char **program_out)
{
    char path[4096];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
    if (bytes <= 0) {
        return ls_fail_errno(errno, "can't find this program");
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

static void print_up(const up_settings *settings, const char *home, const char *address, pid_t pid)
{
    if (settings->json) {
        json_t *root = json_pack("{s:s, s:s, s:I}", "home", home, "address", address, "pid", (json_int_t)pid);
        ls_print_json(root);
        json_decref(root);
    } else {
        printf("the queue is up: %s%s%s (process %ld)\n", home, address[0] ? ", " : "", address, (long)pid);
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
        dprintf(ready, "+%s", ls_daemon_address(daemon));
        close(ready);
    } else {
        print_up(up, home, ls_daemon_address(daemon), getpid());
    }
    ls_daemon_run(daemon);
    ls_daemon_destroy(daemon);
    return LS_OK;
}

/* In the process that becomes the daemon: nothing of the terminal's. */
static ls_status run_behind(const ls_invocation *invocation, const char *home, const char *program,
                            const ls_daemon_settings *settings, int ready)
{
    setsid();
    const char *path = ls_path_join(invocation->arena, home, "daemon.log");
    const int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600),
              null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || null < 0 || chdir("/") != 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    ls_log_init(&(ls_log_settings){.level = LS_LOG_INFO, .rank = -1});
    return run_here(invocation, home, program, settings, ready);
}

/* Reads what the daemon says: "+ADDRESS" when it is up, "-CODE TEXT" when it could not be. */
static ls_status wait_until_up(const ls_invocation *invocation, const char *home, int ready, pid_t pid)
{
    char text[4096];
    size_t bytes = 0;
    for (ssize_t got = 1; got > 0 && bytes<sizeof text - 1; bytes += got> 0 ? (size_t)got : 0) {
        got = read(ready, text + bytes, sizeof text - 1 - bytes);
    }
    text[bytes] = '\0';
    if (text[0] == '+') {
        print_up(invocation->settings, home, text + 1, pid);
        return LS_OK;
    }
    char *end = text;
    const long code = text[0] == '-' ? strtol(text + 1, &end, 10) : LS_ERR_FAILED;
    return ls_fail(code > LS_OK && code <= LS_ERR_MISMATCH ? (ls_status)code : LS_ERR_FAILED, "%s",
                   text[0] == '-' ? end + 1 : "the daemon ended before it was up; see daemon.log");
}

static ls_status start_behind(const ls_invocation *invocation, const char *home, const char *program,
                              const ls_daemon_settings *settings)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) {
        return ls_fail_errno(errno, "can't make a pipe");
    }
    fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) {
        return ls_fail_errno(errno, "can't start a process");
    }
    if (pid == 0) {
        close(ready[0]);
        const ls_status status = run_behind(invocation, home, program, settings, ready[1]);
        if (status != LS_OK) { /* before it was up: the pipe is still open */
            dprintf(ready[1], "-%d %s", (int)status, ls_error_text());
        }
        _exit(ls_status_exit_code(status));
    }
    close(ready[1]);
    const ls_status status = wait_until_up(invocation, home, ready[0], pid);
    close(ready[0]);
    return status;
}

/* Each job that runs is a file of the daemon's, each connection another. Jobs begin with what the daemon was given (cli/runner.c). */
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

/* What this machine was measured to do, by 'lockstep calibrate'; NULL: it was not. */
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

static ls_status run_up(const ls_invocation *invocation)
{
    const up_settings *up = invocation->settings;
    const char *home = NULL, *program = NULL;
    ls_daemon_settings settings;
    LS_TRY(find_home(invocation->arena, &home));
    LS_TRY(find_program(invocation->arena, &program));
    LS_TRY(read_settings(invocation, home, &settings));
    settings.calibration = find_calibration(invocation->arena);
    raise_file_limit();
    return up->foreground ? run_here(invocation, home, program, &settings, -1)
                          : start_behind(invocation, home, program, &settings);
}

const ls_command ls_command_up = {
    .name = "up",
    .words = "",
    .summary = "start the queue of this machine",
    .details = "Starts the daemon that runs submitted jobs, one after the other or side by side, as devices "
               "and policy allow. Everything it has is in\n"
               "$LOCKSTEP_HOME (default ~/.lockstep): config.yaml holds its settings, daemon.log what it "
               "says. Jobs go on when it ends, however it\n"
               "ends, and it finds them again when it is started again. Started by root, it runs each job as "
               "the user who submits it.\n"
               "\nExamples:\n"
               "  lockstep up                        in the background\n"
               "  lockstep up --slots 4              four CPU slots\n"
               "  lockstep up --engine slurm         jobs go to the Slurm of this machine",
    .words_min = 0,
    .words_max = 0,
    .options = &up_table,
    .settings_bytes = sizeof(up_settings),
    .run = run_up,
};

/* ---- down ---- */

typedef struct down_settings {
    bool cancel, json;
    uint64_t timeout;
} down_settings;

static const ls_option down_options[] = {
    {.key = "cancel",
     .type = LS_OPTION_BOOL,
     .offset = offsetof(down_settings, cancel),
     .default_text = "false",
     .help = "cancel all jobs first, and wait until they have ended"},
    {.key = "timeout",
     .type = LS_OPTION_U64,
     .offset = offsetof(down_settings, timeout),
     .default_text = "120",
     .min = 1,
     .max = 86400,
     .help = "seconds to wait at most"},
    LS_ROW_JSON(down_settings),
};
static const ls_option_table down_table = LS_OPTIONS(down_options);

static ls_status wait_for_end(int process, const down_settings *settings, pid_t pid)
{
    struct pollfd end = {.fd = process, .events = POLLIN};
    int got;
    while ((got = poll(&end, 1, (int)(1000 * settings->timeout))) < 0 && errno == EINTR) {
    }
    return got > 0 ? LS_OK
                   : ls_fail(LS_ERR_TIMEOUT, "behind %llu s the daemon (process %ld) is still there%s",
                             (unsigned long long)settings->timeout, (long)pid,
                             settings->cancel ? ": some jobs have not ended yet" : "");
}

static ls_status end_daemon(const down_settings *settings, pid_t pid, int process)
{
    if (!settings->cancel) { /* a signal, so that it works when the API does not */
        if (syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0) != 0) {
            return ls_fail_errno(errno, "can't end the daemon (process %ld)", (long)pid);
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

/* How many jobs are in states of a kind; -1: the daemon does not say. */
static void count_jobs(int64_t *running_out, int64_t *waiting_out)
{
    const ls_client_request request = {.method = "GET", .path = "/v1/status", .timeout_s = 2.0};
    json_t *answer = NULL, *count = NULL;
    const char *state = NULL;
    *running_out = *waiting_out = -1;
    if (ls_client_ask(&request, &answer) != LS_OK) {
        ls_error_clear(); /* a signal ends it all the same */
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
        printf("the queue is down; jobs that run go on\n");
    } else if (running + waiting == 0) {
        printf("the queue is down; no job ran or waited\n");
    } else {
        printf("the queue is down: %lld job%s, and %lld that wait%s until 'lockstep up'\n",
               (long long)running, running == 1 ? " goes on" : "s go on", (long long)waiting,
               waiting == 1 ? "s stays" : " stay");
    }
}

static ls_status run_down(const ls_invocation *invocation)
{
    const down_settings *settings = invocation->settings;
    const char *home = NULL;
    LS_TRY(find_home(invocation->arena, &home));
    pid_t pid = 0, still = 0;
    LS_TRY(ls_daemon_find(home, &pid));
    const int process = (int)syscall(SYS_pidfd_open, pid, 0);
    ls_status status = ls_daemon_find(home, &still); /* the second look: the number is still its */
    if (status == LS_OK && (process < 0 || still != pid)) {
        status = ls_fail(LS_ERR_NOT_FOUND, "no daemon runs on %s", home);
    }
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
    .words = "",
    .summary = "end the queue's daemon; jobs go on",
    .details = "Jobs that run go on, and those that wait stay where they are, until 'lockstep up'. With "
               "--cancel all are cancelled first: they save,\n"
               "and end.",
    .words_min = 0,
    .words_max = 0,
    .options = &down_table,
    .settings_bytes = sizeof(down_settings),
    .run = run_down,
};
