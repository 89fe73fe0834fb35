// SPDX-License-Identifier: Apache-2.0
/* Starts agents of other hosts over ssh: one command per host, and one thread that passes on
 * what they print. */
#include "base/assert.h"
#include "base/clock.h"
#include "execution/elastic/hosts/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 32, LINE_BYTES = 400, LOOK_MS = 50 };

/* The command for a host: LOCKSTEP_SSH split at spaces, options if it is ssh, the host and a
 * shell line. */
typedef struct command {
    char *words[WORDS_MAX];
    char text[4096], line[2048];
} command;

typedef struct started {
    const char *name;
    command made;
    pid_t pid;
    int fd;     /* its output; -1: closed */
    bool again; /* to be killed, if it still runs, and started once more */
    bool ended;
    int status; /* of waitpid */
    size_t line_bytes;
    char line[LINE_BYTES], last[LINE_BYTES];
} started;

struct ls_starter {
    pthread_t thread;
    pthread_mutex_t lock; /* guards again, ended, status and last of all hosts */
    _Atomic bool stop;
    char token[LS_COMM_TOKEN_BYTES];
    uint32_t count;
    started hosts[];
};

/* ---- commands ---- */

static ls_status make_command(const ls_host_entry *host, const char *coordinator, const char *program,
                              command *out)
{
    const char *ssh = getenv("LOCKSTEP_SSH");
    size_t count = 0;
    char *rest = NULL;
    if (!ssh || strspn(ssh, " ") == strlen(ssh)) {
        ssh = "ssh";
    }
    if (strlen(ssh) >= sizeof out->text) {
        return ls_fail(LS_ERR_INVALID,
                       "LOCKSTEP_SSH, the command that reaches other hosts, may have at most %zu characters",
                       sizeof out->text - 1);
    }
    memcpy(out->text, ssh, strlen(ssh) + 1);
    for (char *word = strtok_r(out->text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (count == WORDS_MAX - 8) {
            return ls_fail(LS_ERR_INVALID,
                           "LOCKSTEP_SSH, the command that reaches other hosts, may have at most %d words",
                           WORDS_MAX - 8);
        }
        out->words[count++] = word;
    }
    const char *base = strrchr(out->words[0], '/') ? strrchr(out->words[0], '/') + 1 : out->words[0];
    if (strcmp(base, "ssh") == 0) {
        out->words[count++] = (char *)"-T";
        out->words[count++] = (char *)"-oBatchMode=yes";
        out->words[count++] = (char *)"-oConnectTimeout=10";
    }
    const int bytes = snprintf(out->line, sizeof out->line,
                               "exec '%s' agent --coordinator '%s' --name '%s' --slots %u --token-file -",
                               program, coordinator, host->name, host->slots);
    if (bytes < 0 || (size_t)bytes >= sizeof out->line || strchr(program, '\'')) {
        return ls_fail(LS_ERR_INVALID,
                       "other hosts cannot start lockstep by its path %s: the path is too long or has an "
                       "apostrophe; install lockstep elsewhere",
                       program);
    }
    out->words[count++] = (char *)host->address;
    out->words[count++] = out->line;
    out->words[count] = NULL;
    return LS_OK;
}

/* Runs in the child after fork: only async-signal-safe calls. */
_Noreturn static void become(const command *made, int in, int out, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_IGN); /* on Ctrl-C the trainer ends the agents in order */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(out, 2) >= 0) {
        execvp(made->words[0], made->words);
        dprintf(2, "cannot run %s: %s\n", made->words[0], strerror(errno));
    }
    _exit(127);
}

static ls_status start_one(const char *token, started *out)
{
    int in[2], said[2];
    if (pipe2(in, O_CLOEXEC) != 0) {
        return ls_fail_errno(errno,
                             "cannot start the agent (the process that starts and watches ranks) of host %s",
                             out->name);
    }
    if (pipe2(said, O_CLOEXEC) != 0) {
        const int error = errno;
        close(in[0]);
        close(in[1]);
        return ls_fail_errno(error,
                             "cannot start the agent (the process that starts and watches ranks) of host %s",
                             out->name);
    }
    const pid_t parent = getpid();
    out->pid = fork();
    if (out->pid == 0) {
        become(&out->made, in[0], said[1], parent);
    }
    const int error = errno;
    close(said[1]);
    out->fd = said[0];
    if (out->pid > 0) {
        char line[LS_COMM_TOKEN_BYTES + 1];
        const int bytes = snprintf(line, sizeof line, "%s\n", token);
        /* It fits into the pipe, whose reading end is still open here: no SIGPIPE. */
        (void)!write(in[1], line, (size_t)bytes);
    }
    close(in[0]);
    close(in[1]);
    return out->pid > 0
               ? LS_OK
               : ls_fail_errno(
                     error, "cannot start the agent (the process that starts and watches ranks) of host %s",
                     out->name);
}

/* ---- what they print ---- */

static void pass_line_on(ls_starter *starter, started *host)
{
    host->line[host->line_bytes] = '\0';
    if (host->line_bytes > 0) {
        fprintf(stderr, "[%s] %s\n", host->name, host->line);
        pthread_mutex_lock(&starter->lock);
        memcpy(host->last, host->line, sizeof host->last);
        pthread_mutex_unlock(&starter->lock);
    }
    host->line_bytes = 0;
}

static void take_output(ls_starter *starter, started *host)
{
    char bytes[4096];
    const ssize_t got = read(host->fd, bytes, sizeof bytes);
    if (got <= 0) {
        close(host->fd);
        host->fd = -1;
    }
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] == '\n' || host->line_bytes == LINE_BYTES - 1) {
            pass_line_on(starter, host);
        }
        if (bytes[i] != '\n' && bytes[i] != '\r') { /* lines of ssh itself end with both */
            host->line[host->line_bytes++] = bytes[i] >= ' ' || bytes[i] == '\t' ? bytes[i] : '?';
        }
    }
    if (host->fd < 0) {
        pass_line_on(starter, host);
    }
}

/* Reaps those that have ended. An end is reported only after all output was read. */
static void collect(ls_starter *starter)
{
    for (uint32_t i = 0; i < starter->count; i++) {
        started *host = &starter->hosts[i];
        int status = 0;
        pthread_mutex_lock(&starter->lock);
        const bool is_over = host->ended || host->again;
        pthread_mutex_unlock(&starter->lock);
        if (is_over) {
            continue;
        }
        if (host->fd < 0 && waitpid(host->pid, &status, WNOHANG) == host->pid) {
            pthread_mutex_lock(&starter->lock);
            host->ended = true;
            host->status = status;
            host->pid = 0; /* the number may be reused */
            pthread_mutex_unlock(&starter->lock);
        }
    }
}

/* A command that still runs is killed first. */
static void start_again(ls_starter *starter, started *host)
{
    if (host->pid > 0) {
        kill(host->pid, SIGKILL);
        waitpid(host->pid, NULL, 0);
        host->pid = 0;
    }
    if (host->fd >= 0) {
        close(host->fd);
        host->fd = -1;
    }
    host->line_bytes = 0;
    const ls_status status = start_one(starter->token, host);
    pthread_mutex_lock(&starter->lock);
    host->again = false;
    if (status != LS_OK) {
        host->ended = true;
        host->status = 127 << 8;
        snprintf(host->last, sizeof host->last, "%s", ls_error_text());
    }
    pthread_mutex_unlock(&starter->lock);
}

static void look_for_orders(ls_starter *starter)
{
    for (uint32_t i = 0; i < starter->count; i++) {
        pthread_mutex_lock(&starter->lock);
        const bool again = starter->hosts[i].again;
        pthread_mutex_unlock(&starter->lock);
        if (again) {
            start_again(starter, &starter->hosts[i]);
        }
    }
}

static void *watch_hosts(void *context)
{
    ls_starter *starter = context;
    struct pollfd *fds = calloc(starter->count, sizeof *fds);
    LS_ASSERT(fds && "not enough memory for the outputs of agents");
    while (!atomic_load(&starter->stop)) {
        for (uint32_t i = 0; i < starter->count; i++) {
            fds[i] = (struct pollfd){.fd = starter->hosts[i].fd, .events = POLLIN};
        }
        if (poll(fds, starter->count, LOOK_MS) > 0) {
            for (uint32_t i = 0; i < starter->count; i++) {
                if (fds[i].revents) {
                    take_output(starter, &starter->hosts[i]);
                }
            }
        }
        collect(starter);
        look_for_orders(starter);
    }
    free(fds);
    return NULL;
}

/* What to look at first, after an exit code of ssh or of the shell there. */
static const char *advice(int status)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return code == 255                  ? " (ssh must get there without a password or a question)"
           : code == 126 || code == 127 ? " (is lockstep there, under the same path as here?)"
                                        : "";
}

bool ls_starter_has_ended(ls_starter *starter, uint32_t index, char text_out[512])
{
    started *host = &starter->hosts[index];
    pthread_mutex_lock(&starter->lock);
    const bool ended = host->ended;
    if (ended) {
        snprintf(text_out, 512, "its command ended with %s %d%s%s%s",
                 WIFSIGNALED(host->status) ? "signal" : "exit code",
                 WIFSIGNALED(host->status) ? WTERMSIG(host->status) : WEXITSTATUS(host->status),
                 advice(host->status), host->last[0] ? ": " : "", host->last);
    }
    pthread_mutex_unlock(&starter->lock);
    return ended;
}

void ls_starter_again(ls_starter *starter, uint32_t index)
{
    started *host = &starter->hosts[index];
    pthread_mutex_lock(&starter->lock);
    host->again = true;
    host->ended = false;
    host->last[0] = '\0';
    pthread_mutex_unlock(&starter->lock);
}

/* ---- life ---- */

static void end_all(ls_starter *starter)
{
    for (uint32_t i = 0; i < starter->count; i++) {
        started *host = &starter->hosts[i];
        if (host->pid > 0) {
            kill(host->pid, SIGKILL);
            waitpid(host->pid, &host->status, 0);
        }
        if (host->fd >= 0) {
            close(host->fd);
        }
    }
    pthread_mutex_destroy(&starter->lock);
    free(starter);
}

ls_status ls_starter_start(const ls_workers_hosts *hosts, const char *coordinator, bool are_there,
                           ls_starter **starter_out)
{
    char program[1024] = "";
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    ls_starter *starter = calloc(1, sizeof *starter + hosts->other_count * sizeof starter->hosts[0]);
    if (!starter || bytes <= 0) {
        free(starter);
        return ls_fail(LS_ERR_MEMORY, "not enough memory to start agents on %u hosts", hosts->other_count);
    }
    pthread_mutex_init(&starter->lock, NULL);
    snprintf(starter->token, sizeof starter->token, "%s", hosts->token);
    ls_status status = LS_OK;
    for (uint32_t i = 0; i < hosts->other_count && status == LS_OK; i++) {
        started *host = &starter->hosts[i];
        *host = (started){.name = hosts->others[i].name, .fd = -1, .ended = are_there};
        starter->count++;
        status = make_command(&hosts->others[i], coordinator, program, &host->made);
        if (status == LS_OK && !are_there) {
            status = start_one(starter->token, host);
        }
    }
    if (status == LS_OK) {
        const int error = pthread_create(&starter->thread, NULL, watch_hosts, starter);
        status = error ? ls_fail_errno(
                             error, "cannot start the thread that reads what the agents on other hosts print")
                       : LS_OK;
    }
    if (status != LS_OK) {
        end_all(starter);
        return status;
    }
    *starter_out = starter;
    return LS_OK;
}

void ls_starter_stop(ls_starter *starter)
{
    if (!starter) {
        return;
    }
    const double end_s = ls_clock_monotonic_s() + 2.0;
    bool all_ended = false;
    while (!all_ended && ls_clock_monotonic_s() < end_s) {
        char text[512];
        all_ended = true;
        for (uint32_t i = 0; i < starter->count; i++) {
            all_ended = all_ended && ls_starter_has_ended(starter, i, text);
        }
        if (!all_ended) {
            poll(NULL, 0, LOOK_MS / 5);
        }
    }
    atomic_store(&starter->stop, true);
    pthread_join(starter->thread, NULL);
    end_all(starter);
}
