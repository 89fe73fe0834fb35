// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/local/local_internal.h"
#include "orchestration/engines/local/runner_internal.h"
#include "orchestration/engines/run_result.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define AGAIN_S     0.2 /* pause between two rounds of killing what is left */
#define SAY_AGAIN_S 1.0 /* pause before a write to a full disk is tried again */

/* Starts a session of its own, closes the daemon's descriptors, and adopts orphans of the ranks. */
static ls_status become_runner(int *signals_out)
{
    setsid();
    umask(077);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) {
        return ls_fail_errno(errno, "cannot open /dev/null");
    }
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    close_range(3, ~0u, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGQUIT);
    sigaddset(&wanted, SIGCHLD);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGHUP, SIG_IGN);
    *signals_out = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    return *signals_out < 0 ? ls_fail_errno(errno, "the job's runner cannot set up its handling of signals")
                            : LS_OK;
}

/* ---- ending ranks ---- */

static void signal_ranks(ls_local_job *job, int number)
{
    for (uint32_t i = 0; i < job->processes; i++) {
        ls_local_rank *rank = &job->ranks[i];
        if (rank->pid > 0) {
            rank->was_killed = true;
            /*
             * a training run signals its ranks itself; another program may be a shell around them
             */
            kill(job->signals_group || number == SIGKILL ? -rank->pid : rank->pid, number);
        }
    }
}

/*
 * Kills all children, including orphans that this process adopted. Returns whether there were any.
 */
static bool kill_children(void)
{
    char path[64], text[16384];
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    FILE *file = fopen(path, "re");
    const size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    text[got] = '\0';
    bool any = false;
    char *at = text;
    for (long pid = strtol(at, &at, 10); pid > 1; pid = strtol(at, &at, 10)) {
        kill((pid_t)pid, SIGKILL);
        any = true;
    }
    return any;
}

/* Kills what is left after the ranks: nothing of the job outlives them. */
static void end_leftovers(void)
{
    for (int round = 0; round < 1000; round++) {
        kill_children();
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (pid < 0) {
            return; /* no children left */
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

/* ---- waiting ---- */

typedef struct ending {
    /* told to end: by the daemon, because a rank failed, or by its time limit */
    bool is_told;
    bool is_limit;       /* by its time limit first */
    double kill_at_s;    /* 0: never */
    double term_at_s;    /* when the time limit is reached; 0: none */
    double say_at_s;     /* when to try again to report that it runs; 0: that is done */
    int first;           /* the rank that failed first; -1: none */
    bool first_was_told; /* and that was after it was told to end */
} ending;

static int code_of(const ls_local_rank *rank)
{
    return WIFEXITED(rank->status) ? WEXITSTATUS(rank->status) : 128 + WTERMSIG(rank->status);
}

static void begin_end(ls_local_job *job, ending *e)
{
    if (!e->is_told) {
        e->is_told = true;
        signal_ranks(job, SIGTERM);
        e->kill_at_s = ls_clock_boot_s() + job->grace_s;
    }
}

/* SIGTERM at the limit, then a grace period in which it can save, as when it is stopped. */
static void set_limit(const ls_local_job *job, ending *e)
{
    if (job->limit_s > 0.0) {
        e->term_at_s = ls_clock_boot_s() + job->limit_s;
    }
}

/* Reports that the ranks run; on a full disk it tries again while the job runs. */
static void say_running(const ls_local_job *job, ending *e)
{
    const bool is_said = ls_ticket_say_running(job->folder, job->epoch) == LS_OK;
    e->say_at_s = is_said ? 0.0 : ls_clock_boot_s() + SAY_AGAIN_S;
}

/* Does what is due by time. */
static void keep_time(ls_local_job *job, ending *e)
{
    const double now_s = ls_clock_boot_s();
    if (e->say_at_s > 0.0 && now_s >= e->say_at_s) {
        say_running(job, e);
    }
    if (e->term_at_s > 0.0 && now_s >= e->term_at_s && !e->is_told) {
        e->is_limit = true;
        begin_end(job, e);
    }
    if (e->kill_at_s > 0.0 && job->running > 0 && now_s >= e->kill_at_s) {
        signal_ranks(job, SIGKILL);
        kill_children();
        e->kill_at_s = now_s + AGAIN_S;
    }
}

static void reap(ls_local_job *job, ending *e)
{
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (uint32_t i = 0; i < job->processes; i++) {
            ls_local_rank *rank = &job->ranks[i];
            if (rank->pid != pid) {
                continue; /* otherwise it was an orphan */
            }
            kill(-pid, SIGKILL); /* what is left in its process group */
            rank->pid = 0;
            rank->status = status;
            rank->has_ended = true;
            job->running--;
            if (code_of(rank) != 0 && e->first < 0) {
                e->first = (int)i;
                e->first_was_told = e->is_told;
            }
        }
    }
    if (e->first >= 0 && job->running > 0) {
        begin_end(job, e);
    }
}

static void take_signals(ls_local_job *job, int signals, ending *e)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            reap(job, e);
        } else if (info.ssi_signo == SIGQUIT) {
            e->is_told = true;
            signal_ranks(job, SIGKILL);
            e->kill_at_s = ls_clock_boot_s() + AGAIN_S;
        } else {
            begin_end(job, e);
        }
    }
}

static int wait_ms(const ending *e)
{
    const double times_s[] = {e->kill_at_s, e->is_told ? 0.0 : e->term_at_s, e->say_at_s};
    double next_s = 0.0;
    for (size_t i = 0; i < sizeof times_s / sizeof times_s[0]; i++) {
        next_s = times_s[i] > 0.0 && (next_s <= 0.0 || times_s[i] < next_s) ? times_s[i] : next_s;
    }
    if (next_s <= 0.0) {
        return -1;
    }
    const double left_s = next_s - ls_clock_boot_s();
    return left_s > 0.0 ? (int)(1e3 * (left_s < 3600.0 ? left_s : 3600.0)) + 1 : 0;
}

static void copy_ready(ls_local_job *job, const struct pollfd *fds, uint32_t count, const uint32_t *owners)
{
    for (uint32_t i = 0; i < count; i++) {
        if (fds[i].revents) {
            ls_local_rank_copy(job, owners[i]);
        }
    }
}

/* Waits until all ranks have ended. */
static void wait_for_ranks(ls_local_job *job, int signals, ending *e)
{
    struct pollfd *fds = ls_arena_new(&job->arena, struct pollfd, job->processes + 1);
    uint32_t *owners = ls_arena_new(&job->arena, uint32_t, job->processes);
    while (job->running > 0) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < job->processes; i++) {
            if (job->ranks[i].output >= 0) {
                owners[count] = i;
                fds[count++] = (struct pollfd){.fd = job->ranks[i].output, .events = POLLIN};
            }
        }
        fds[count] = (struct pollfd){.fd = signals, .events = POLLIN};
        if (poll(fds, count + 1, wait_ms(e)) < 0 && errno != EINTR) {
            begin_end(job, e);
        }
        copy_ready(job, fds, count, owners);
        take_signals(job, signals, e);
        keep_time(job, e);
    }
}

/* Reads what is still in the pipes. */
static void drain(ls_local_job *job)
{
    for (uint32_t i = 0; i < job->processes; i++) {
        for (int round = 0; job->ranks[i].output >= 0 && round < 1000; round++) {
            struct pollfd fd = {.fd = job->ranks[i].output, .events = POLLIN};
            if (poll(&fd, 1, 0) <= 0) {
                break;
            }
            ls_local_rank_copy(job, i);
        }
        ls_local_rank_close(job, i);
    }
}

/* ---- the end ---- */

static void append(ls_ticket_exit *end, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(ls_ticket_exit *end, const char *format, ...)
{
    const size_t bytes = strlen(end->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(end->text + bytes, sizeof end->text - bytes, format, arguments);
    va_end(arguments);
}

static void say_how(const ls_local_job *job, const ending *e, ls_ticket_exit *end)
{
    const ls_local_rank *first = &job->ranks[e->first];
    const int number = WIFSIGNALED(first->status) ? WTERMSIG(first->status) : 0;
    if (job->processes > 1) {
        append(end, "rank %d ", e->first);
    }
    if (number > 0) {
        append(end, "was ended by signal %d (%s)%s", number, strsignal(number),
               number == SIGKILL && !first->was_killed ? ", perhaps because the machine ran out of memory"
                                                       : "");
    } else {
        append(end, "ended with exit code %d", end->code);
    }
}

/* Programs that could not write often do not say so. */
static void say_full(const char *folder, const char *what, ls_ticket_exit *end)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) == 0 && disk.f_blocks > 0 &&
        (disk.f_bavail == 0 || (disk.f_files > 0 && disk.f_favail == 0))) {
        append(end, "; the disk that holds %s is full", what);
    }
}

/* Whether a training run ended for lack of memory and not of disk space: both are exit code 4. */
static bool is_short_of_memory(const ls_local_job *job, const ls_ticket_exit *end)
{
    return !job->signals_group && end->code == 4 && strcasestr(end->error, "memory") != NULL;
}

static ls_ticket_exit verdict(const ls_local_job *job, const ending *e)
{
    ls_ticket_exit end = {.ended_s = ls_clock_wall_s()};
    bool has_saved = false, all_well = true;
    for (uint32_t i = 0; i < job->processes; i++) {
        const int code = code_of(&job->ranks[i]);
        has_saved = has_saved || code == 75;
        all_well =
            all_well && (code == 0 || code == 75 || (job->ranks[i].was_killed && code == 128 + SIGTERM));
    }
    if (job->log.error) {
        append(&end, "its log is incomplete: %s", strerror(job->log.error));
    }
    if (e->first < 0) {
        end.cause = e->is_limit ? LS_CAUSE_LIMIT : LS_CAUSE_NONE;
        return end;
    }
    const ls_local_rank *first = &job->ranks[e->first];
    end.text[0] = '\0';
    end.code = has_saved && all_well ? 75 : code_of(first);
    if (e->is_limit) {
        end.cause = LS_CAUSE_LIMIT;
        say_how(job, e, &end);
    } else if (end.code != 75) {
        const ls_job_log *log = first->log.fd >= 0 ? &first->log : &job->log;
        if (!e->first_was_told) { /* otherwise what it printed is not why it ended */
            ls_local_last_words(log->fd, log->start, end.error);
        }
        end.cause = is_short_of_memory(job, &end) ? LS_CAUSE_MEMORY : LS_CAUSE_PROGRAM;
        say_how(job, e, &end);
        say_full(job->folder, "its log", &end);
        say_full(job->directory, job->directory, &end);
    }
    return end;
}

static void could_not_start(ls_local_job *job, ls_ticket_exit *end)
{
    *end = (ls_ticket_exit){.code = 1, .cause = LS_CAUSE_START, .ended_s = ls_clock_wall_s()};
    snprintf(end->text, sizeof end->text, "%s", ls_error_text());
    signal_ranks(job, SIGKILL);
    if (job->log.fd >= 0) {
        char line[sizeof end->text + 16];
        const int bytes = snprintf(line, sizeof line, "lockstep: %s\n", end->text);
        ls_job_log_append(&job->log, line, (size_t)bytes);
    }
}

/* Runs the job after the ticket was taken. */
static ls_status run_job(ls_local_job *job, int signals)
{
    ls_ticket_exit end;
    ending e = {.first = -1};
    const double begun_s = ls_clock_wall_s();
    ls_status status = ls_local_job_read(job);
    if (status == LS_OK) {
        status = ls_local_ranks_start(job);
    }
    if (status == LS_OK) {
        set_limit(job, &e);
        say_running(job, &e);
        wait_for_ranks(job, signals, &e);
        drain(job);
        end = verdict(job, &e);
        end.result = ls_run_result_read(job->run_dir, begun_s);
    } else {
        could_not_start(job, &end);
    }
    end_leftovers();
    /* On a full disk wait until there is room: a job without a recorded end is restarted. */
    for (int round = 0;
         (status = ls_ticket_say_exit(job->folder, job->epoch, &end)) == LS_ERR_DISK && round < 3600;
         round++) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    }
    return status;
}

ls_status ls_runner_run(const ls_runner_options *options)
{
    int signals = -1;
    if (options->group) {
        ls_local_group_enter(options->group); /* while it still may */
    }
    LS_TRY(become_runner(&signals));
    ls_local_job job = {.folder = options->folder, .epoch = options->epoch, .log.fd = -1};
    ls_status status = ls_ticket_take(options->folder, options->epoch, &job.ticket);
    if (status == LS_OK && job.ticket) {
        status = run_job(&job, signals);
    }
    json_decref(job.ticket);
    ls_arena_release(&job.arena);
    return status;
}
