// SPDX-License-Identifier: Apache-2.0
#include "env/real/real.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void real_stop(ls_env *env, int exit_code);

/* A simulated env has no loop of its own: its world runs it. */
static ls_real_env *real_of(ls_env *env)
{
    /* compares a call and not the table's address, because a test may use a table of its own */
    LS_ASSERT(env->calls->stop == real_stop);
    return (ls_real_env *)env;
}

/* ---- clock, random, timers ---- */

static uint64_t real_now_ns(ls_env *env)
{
    (void)env;
    return ls_clock_monotonic_ns();
}

static uint64_t real_boot_ns(ls_env *env)
{
    (void)env;
    return ls_clock_boot_ns();
}

static double real_wall_s(ls_env *env)
{
    (void)env;
    return ls_clock_wall_s();
}

static uint64_t real_random_u64(ls_env *env)
{
    (void)env;
    uint64_t value = 0;
    LS_ASSERT(getrandom(&value, sizeof value, 0) == sizeof value);
    return value;
}

static ls_env_id real_timer_set(ls_env *env, uint64_t delay_ns, ls_env_fire fire, void *context)
{
    ls_real_env *real = real_of(env);
    const ls_env_id id = real->next_id++;
    ls_env_queue_add(&real->timers, (ls_env_item){.due_ns = ls_clock_monotonic_ns() + delay_ns,
                                                  .id = id,
                                                  .fire = fire,
                                                  .context = context});
    return id;
}

static void real_timer_cancel(ls_env *env, ls_env_id timer)
{
    ls_env_queue_cancel(&real_of(env)->timers, timer, 0);
}

/* ---- watches ---- */

int ls_real_watch_add(ls_real_env *env, ls_real_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(env->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0) {
        return -errno;
    }
    watch->id = env->next_id++;
    watch->next = env->watches;
    env->watches = watch;
    return 0;
}

void ls_real_watch_change(ls_real_env *env, ls_real_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    LS_ASSERT(epoll_ctl(env->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) == 0);
}

void ls_real_watch_end(ls_real_env *env, ls_real_watch *watch)
{
    /* Closing alone is not enough: the descriptor leaves the epoll set only when its last copy
     * is closed, and a child between fork and exec holds a copy, so events could reach a watch
     * that is gone. */
    LS_ASSERT(epoll_ctl(env->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL) == 0);
    close(watch->fd);
    watch->fd = -1;
    env->some_ended = true;
}

ls_real_watch *ls_real_watch_find(ls_real_env *env, ls_env_id id,
                                  void (*ready)(ls_real_env *, ls_real_watch *, uint32_t))
{
    for (ls_real_watch *at = env->watches; at; at = at->next) {
        if (at->id == id && at->fd >= 0 && at->ready == ready) {
            return at;
        }
    }
    return NULL;
}

static void destroy_ended(ls_real_env *env)
{
    if (!env->some_ended) {
        return;
    }
    env->some_ended = false;
    for (ls_real_watch **at = &env->watches; *at;) {
        ls_real_watch *watch = *at;
        if (watch->fd >= 0) {
            at = &watch->next;
        } else {
            *at = watch->next;
            watch->destroy(watch);
        }
    }
}

/* ---- other libraries' descriptors ---- */

typedef struct foreign {
    /* a copy of the descriptor, so that the owner may close the original */
    ls_real_watch watch;
    ls_env_fire fire;
    void *context;
} foreign;

static void foreign_destroy(ls_real_watch *watch)
{
    free(watch);
}

static void foreign_ready(ls_real_env *env, ls_real_watch *watch, uint32_t events)
{
    (void)events;
    foreign *self = (foreign *)watch;
    env->calls++;
    self->fire(self->context);
}

int ls_env_real_watch(ls_env *env, int fd, ls_env_fire ready, void *context, ls_env_id *watch_out)
{
    foreign *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory to watch a file descriptor");
    *self = (foreign){
        .watch = {.ready = foreign_ready, .destroy = foreign_destroy}, .fire = ready, .context = context};
    self->watch.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    const int result = self->watch.fd < 0 ? -errno : ls_real_watch_add(real_of(env), &self->watch, EPOLLIN);
    if (result) {
        if (self->watch.fd >= 0) {
            close(self->watch.fd);
        }
        free(self);
        return result;
    }
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the watch, now on the list, is a part of *self */
    *watch_out = self->watch.id;
    return 0;
}

void ls_env_real_unwatch(ls_env *env, ls_env_id id)
{
    ls_real_watch *watch = ls_real_watch_find(real_of(env), id, foreign_ready);
    if (watch) {
        ls_real_watch_end(real_of(env), watch);
    }
}

/* ---- processes ---- */

typedef struct process {
    ls_real_watch watch;
    ls_env_exited exited;
    void *context;
    bool is_child;
} process;

static void process_destroy(ls_real_watch *watch)
{
    free(watch);
}

static void process_ready(ls_real_env *env, ls_real_watch *watch, uint32_t events)
{
    (void)events;
    process *self = (process *)watch;
    siginfo_t info = {0};
    /* readable means ended; only the parent learns the exit code */
    int exit_code = LS_ENV_EXIT_UNKNOWN;
    if (self->is_child) {
        if (waitid(P_PIDFD, (id_t)watch->fd, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
            return;
        }
        exit_code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    }
    ls_real_watch_end(env, watch);
    env->calls++;
    self->exited(self->context, watch->id, exit_code);
}

/* The child gets no signal blocked and none handled specially. fds: its standard input, output and
 * error; NULL: this process's. */
static int spawn(const char *const *argv, const int fds[3], pid_t *pid_out)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&files);
    for (int i = 0; fds && i < 3; i++) {
        posix_spawn_file_actions_adddup2(&files, fds[i], i);
    }
    const int error =
        posix_spawnp(pid_out, argv[0], &files, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return -error;
}

static int watch_process(ls_real_env *real, pid_t pid, bool is_child, ls_env_exited exited, void *context,
                         ls_env_id *process_out)
{
    process *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory for a process");
    *self = (process){
        .watch = {.ready = process_ready, .destroy = process_destroy},
        .exited = exited,
        .context = context,
        .is_child = is_child,
    };
    self->watch.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    const int result = self->watch.fd < 0 ? -errno : ls_real_watch_add(real, &self->watch, EPOLLIN);
    if (result) {
        if (self->watch.fd >= 0) {
            close(self->watch.fd);
        }
        free(self);
        return result;
    }
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the watch, now on the list, is a part of *self */
    *process_out = self->watch.id;
    return 0;
}

static int real_process_watch(ls_env *env, int32_t pid, ls_env_exited exited, void *context,
                              ls_env_id *process_out)
{
    return watch_process(real_of(env), (pid_t)pid, false, exited, context, process_out);
}

int ls_real_process_start(ls_env *env, const char *const *argv, const int fds[3], ls_env_exited exited,
                          void *context, ls_env_id *process_out)
{
    pid_t pid = 0;
    int error = spawn(argv, fds, &pid);
    if (error) {
        return error;
    }
    error = watch_process(real_of(env), pid, true, exited, context, process_out);
    if (error) { /* it can't be watched, so it must not keep running */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return error;
}

static int real_process_start(ls_env *env, const char *const *argv, ls_env_exited exited, void *context,
                              ls_env_id *process_out)
{
    return ls_real_process_start(env, argv, NULL, exited, context, process_out);
}

static int real_process_kill(ls_env *env, ls_env_id id, int signal_number)
{
    const ls_real_watch *watch = ls_real_watch_find(real_of(env), id, process_ready);
    if (!watch) {
        return -ESRCH;
    }
    return syscall(SYS_pidfd_send_signal, watch->fd, signal_number, NULL, 0) == 0 ? 0 : -errno;
}

/* ---- signals ---- */

static int real_signal_watch(ls_env *env, int signal_number, ls_env_fire fire, void *context)
{
    ls_real_env *real = real_of(env);
    if (signal_number < 1 || signal_number >= LS_ENV_SIGNALS) {
        return -EINVAL;
    }
    sigaddset(&real->signals, signal_number);
    if (pthread_sigmask(SIG_BLOCK, &real->signals, NULL) != 0) {
        return -EINVAL;
    }
    const int fd = signalfd(real->signal_fd, &real->signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    if (real->signal_fd < 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &real->signal_fd};
        if (epoll_ctl(real->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
            const int error = errno;
            close(fd);
            return -error;
        }
        real->signal_fd = fd;
    }
    real->signal_handlers[signal_number].fire = fire;
    real->signal_handlers[signal_number].context = context;
    return 0;
}

static void deliver_signals(ls_real_env *env)
{
    struct signalfd_siginfo info;
    while (read(env->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo < LS_ENV_SIGNALS && env->signal_handlers[info.ssi_signo].fire) {
            env->calls++;
            env->signal_handlers[info.ssi_signo].fire(env->signal_handlers[info.ssi_signo].context);
        }
    }
}

/* ---- the loop ---- */

static void real_stop(ls_env *env, int exit_code)
{
    real_of(env)->stopped = true;
    real_of(env)->exit_code = exit_code;
}

/* Milliseconds for epoll, rounded up so that a timer is due when it returns; -1: for ever. */
static int wait_ms(const ls_real_env *env, uint64_t wait_ns)
{
    const ls_env_item *first = ls_env_queue_first(&env->timers);
    if (first) {
        const uint64_t now_ns = ls_clock_monotonic_ns();
        const uint64_t until_ns = first->due_ns > now_ns ? first->due_ns - now_ns : 0;
        wait_ns = until_ns < wait_ns ? until_ns : wait_ns;
    }
    if (wait_ns == UINT64_MAX) {
        return -1;
    }
    const uint64_t ms = wait_ns / 1000000 + (wait_ns % 1000000 != 0);
    return ms > 3600 * 1000 ? 3600 * 1000 : (int)ms;
}

static void deliver_event(ls_real_env *env, const struct epoll_event *event)
{
    if (event->data.ptr == &env->signal_fd) {
        deliver_signals(env);
        return;
    }
    if (event->data.ptr == &env->disk) {
        ls_real_disk_deliver(env);
        return;
    }
    ls_real_watch *watch = event->data.ptr;
    if (watch->fd >= 0) { /* otherwise an earlier callback of this round ended it */
        watch->ready(env, watch, event->events);
    }
}

/* Only timers that existed at the start of the round: a timer that sets itself again must not
 * starve the links. */
static void fire_timers(ls_real_env *env)
{
    const uint64_t now_ns = ls_clock_monotonic_ns();
    const ls_env_id end_id = env->next_id;
    for (const ls_env_item *first = ls_env_queue_first(&env->timers); first && !env->stopped;
         first = ls_env_queue_first(&env->timers)) {
        if (first->due_ns > now_ns || first->id >= end_id) {
            return;
        }
        const ls_env_item item = ls_env_queue_pop(&env->timers);
        env->calls++;
        item.fire(item.context);
    }
}

size_t ls_env_poll(ls_env *env, uint64_t wait_ns)
{
    enum { EVENTS = 64 };
    ls_real_env *real = real_of(env);
    struct epoll_event events[EVENTS];
    const size_t calls_before = real->calls;
    const int count = epoll_wait(real->epoll_fd, events, EVENTS, wait_ms(real, wait_ns));
    for (int i = 0; i < count && !real->stopped; i++) {
        deliver_event(real, &events[i]);
    }
    fire_timers(real);
    destroy_ended(real);
    return real->calls - calls_before;
}

void ls_env_real_wake(ls_env *env)
{
    ls_real_disk_ring(&real_of(env)->disk);
}

static bool has_work(const ls_real_env *env)
{
    return env->timers.count > 0 || env->watches || env->disk.under_way > 0;
}

int ls_env_run(ls_env *env)
{
    ls_real_env *real = real_of(env);
    real->stopped = false;
    real->exit_code = 0;
    while (!real->stopped && has_work(real)) {
        ls_env_poll(env, UINT64_MAX);
    }
    return real->exit_code;
}

static const ls_env_calls real_calls = {
    .now_ns = real_now_ns,
    .boot_ns = real_boot_ns,
    .wall_s = real_wall_s,
    .random_u64 = real_random_u64,
    .timer_set = real_timer_set,
    .timer_cancel = real_timer_cancel,
    .net_listen = ls_real_net_listen,
    .net_address = ls_real_net_address,
    .net_connect = ls_real_net_connect,
    .net_send = ls_real_net_send,
    .net_close = ls_real_net_close,
    .disk_open = ls_real_disk_open,
    .disk_read = ls_real_disk_read,
    .disk_write = ls_real_disk_write,
    .disk_write_now = ls_real_disk_write_now,
    .disk_allocate = ls_real_disk_allocate,
    .disk_truncate = ls_real_disk_truncate,
    .disk_sync = ls_real_disk_sync,
    .disk_close = ls_real_disk_close,
    .disk_sync_dir = ls_real_disk_sync_dir,
    .disk_rename = ls_real_disk_rename,
    .disk_exchange = ls_real_disk_exchange,
    .disk_link = ls_real_disk_link,
    .disk_unlink = ls_real_disk_unlink,
    .disk_mkdir = ls_real_disk_mkdir,
    .disk_list = ls_real_disk_list,
    .process_start = real_process_start,
    .process_watch = real_process_watch,
    .process_kill = real_process_kill,
    .signal_watch = real_signal_watch,
    .stop = real_stop,
};

ls_status ls_env_real_create(ls_env **env_out)
{
    ls_real_env *env = calloc(1, sizeof *env);
    if (!env) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for an event loop");
    }
    *env = (ls_real_env){.base.calls = &real_calls, .next_id = 1, .signal_fd = -1};
    sigemptyset(&env->signals);
    env->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (env->epoll_fd < 0) {
        const int error = errno;
        free(env);
        return ls_fail_errno(error, "can't create an event loop");
    }
    int error = -ls_real_disk_init(&env->disk);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &env->disk};
    if (!error && epoll_ctl(env->epoll_fd, EPOLL_CTL_ADD, env->disk.event_fd, &event) != 0) {
        error = errno;
        ls_real_disk_release(&env->disk);
    }
    if (error) {
        close(env->epoll_fd);
        free(env);
        return ls_fail_errno(error, "can't create an event loop");
    }
    *env_out = &env->base;
    return LS_OK;
}

void ls_env_real_destroy(ls_env *env)
{
    if (!env) {
        return;
    }
    ls_real_env *real = real_of(env);
    ls_real_disk_release(&real->disk);
    for (ls_real_watch *at = real->watches; at; at = at->next) {
        if (at->fd >= 0) {
            ls_real_watch_end(real, at);
        }
    }
    real->some_ended = true;
    destroy_ended(real);
    ls_env_queue_release(&real->timers);
    if (real->signal_fd >= 0) {
        close(real->signal_fd);
    }
    close(real->epoll_fd);
    free(real);
}
