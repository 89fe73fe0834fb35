// SPDX-License-Identifier: Apache-2.0
/*
 * Env: everything the control plane can do to the outside world, as one table of calls (I6).
 *
 * Membership, checkpoint commit, scheduler and diagnosis are state machines: they never block and
 * never ask the system directly. They issue a call here and get its outcome later, as a callback
 * from one single-threaded loop. There are two tables behind the same calls: the real one
 * (ls_env_real_create) over epoll, and the simulated one (sim/env/sim_env.h), which has a virtual
 * clock, a disk that can tear and forget, a network that can lose and cut, and replays any failure
 * from its seed.
 *
 *     state machine ── ls_env_disk_sync(env, file, synced, self) ──▶ env
 *           ▲                                                         │  (worker thread, or the
 *           │                                                         │  simulator's queue)
 *           └────────────── synced(self, 0 or -errno) ◀── loop ───────┘
 *
 * Rules, the same for both tables:
 *  - A callback never runs inside the call that asked for it; always later, from ls_env_run or
 *    ls_env_poll.
 *  - Outcomes are numbers: >= 0 is success, below 0 is minus an errno value. ls_fail_errno turns
 *    one into an error text.
 *  - Paths and messages are copied; buffers of disk_read and disk_write stay the caller's and must
 *    live until the callback.
 *  - Disk calls of one env run one after the other, in the order they were issued.
 *  - Ids are never reused; 0 is not an id. The id of something that has ended is accepted and has
 *    no effect.
 *  - Everything is called from the loop's thread. (The real env uses a worker thread for the disk,
 *    which callers never see.)
 *
 * What the disk promises is what POSIX promises and no more: written data is safe after disk_sync
 * of the file; a name (created, renamed, removed) is safe after disk_sync_dir of its folder. The
 * simulator takes everything else away at a crash.
 *
 * What a link promises: a message arrives whole or not at all, and after `closed` nothing more
 * arrives. Over TCP messages of one link come in order and once; but those in flight when a link
 * breaks may or may not have been received, and who sends them again on a new link makes doubles. A
 * state machine that must work in the simulator's hostile mode can't rely on more than "whole or
 * not at all".
 */
#ifndef LS_ENV_ENV_H
#define LS_ENV_ENV_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_env ls_env;
typedef uint64_t ls_env_id;

/* result: >= 0, or minus an errno value. */
typedef void (*ls_env_done)(void *context, int64_t result);
typedef void (*ls_env_fire)(void *context);
/* names: sorted by bytes, without . and ..; valid during the call. count is 0 when result < 0. */
typedef void (*ls_env_listed)(void *context, int64_t result, const char *const *names, size_t count);
/* exit_code: 0..255, or 128 + signal; LS_ENV_EXIT_UNKNOWN for a process that another process
 * started. */
typedef void (*ls_env_exited)(void *context, ls_env_id process, int exit_code);

/* Events of a link. All three are required. */
typedef struct ls_env_link_events {
    void *context;
    void (*opened)(void *context, ls_env_id link);
    /* data is valid during the call. */
    void (*received)(void *context, ls_env_id link, const void *data, size_t bytes);
    /* The last call for a link, unless this side closed it. error: 0 when the peer closed, else
     * minus an errno value. */
    void (*closed)(void *context, ls_env_id link, int error);
} ls_env_link_events;

typedef enum ls_env_open_mode {
    LS_ENV_READ,     /* an existing file */
    LS_ENV_WRITE,    /* an existing file, to read and write */
    LS_ENV_CREATE,   /* a new file to write; an existing file is emptied */
    LS_ENV_NEW,      /* a new file to write; -EEXIST if the name exists */
    LS_ENV_NEW_BULK, /* the same, past the page cache (O_DIRECT) if the file system supports it */
} ls_env_open_mode;

enum {
    LS_ENV_EXIT_UNKNOWN = -1,
    /* of one message */
    LS_ENV_MESSAGE_BYTES_MAX = 16 * 1024 * 1024,
    LS_ENV_SEND_BYTES_MAX = 64 * 1024 * 1024, /* bytes waiting to be sent on one link */
};

/* The calls. ls_env_NAME(env, ...) below is the member NAME of the env. */
typedef struct ls_env_calls {
    /* Monotonic nanoseconds; constant while callbacks of one moment run in the simulator. */
    uint64_t (*now_ns)(ls_env *env);
    /* Nanoseconds since the machine was started, the time it was suspended included: for how long
     * something took or may take, over hours and restarts of this process. */
    uint64_t (*boot_ns)(ls_env *env);
    /* Seconds since 1970, for time stamps that people read. May jump; never used for time-outs. */
    double (*wall_s)(ls_env *env);
    uint64_t (*random_u64)(ls_env *env);
    /* Calls `fire` once, `delay_ns` from now or slightly later. Timers due at the same moment fire
     * in the order in which they were set. */
    ls_env_id (*timer_set)(ls_env *env, uint64_t delay_ns, ls_env_fire fire, void *context);
    void (*timer_cancel)(ls_env *env, ls_env_id timer);

    /*
     * Accepts links at `address`: "HOST:PORT" (port 0: any free one) or "unix:PATH". Each accepted
     * link gets `opened` and then the other events. Returns 0 or minus an errno value (-EADDRINUSE,
     * -EINVAL for an address that can't be read).
     */
    int (*net_listen)(ls_env *env, const char *address, const ls_env_link_events *events,
                      ls_env_id *listener_out);
    /* The address that others can connect to, with the port filled in. Valid until the listener is
     * closed; NULL if it is not a listener. */
    const char *(*net_address)(ls_env *env, ls_env_id listener);
    /* Begins to connect; `opened` or `closed` follows. Host names are looked up only when they are
     * numbers or "localhost". */
    ls_env_id (*net_connect)(ls_env *env, const char *address, const ls_env_link_events *events);
    /* Queues one message of 0 to LS_ENV_MESSAGE_BYTES_MAX bytes. 0, -ENOTCONN before opened or
     * after closed, -EMSGSIZE, or -ENOBUFS when LS_ENV_SEND_BYTES_MAX bytes wait already. 0 does
     * not mean that the peer has it. */
    int (*net_send)(ls_env *env, ls_env_id link, const void *data, size_t bytes);
    /* Closes a link or a listener; no event follows on this side. What was queued on a link is
     * still sent if possible. */
    void (*net_close)(ls_env *env, ls_env_id link);

    /* Outcome: a file number for the calls below; in the real env a file descriptor. Mode of new
     * files 0644. */
    void (*disk_open)(ls_env *env, const char *path, ls_env_open_mode mode, ls_env_done done, void *context);
    /* Outcome: bytes read, fewer only at the end of the file. */
    void (*disk_read)(ls_env *env, int64_t file, void *data, size_t bytes, uint64_t offset, ls_env_done done,
                      void *context);
    /* Outcome: bytes written, possibly fewer than asked, as pwrite(2). */
    void (*disk_write)(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset,
                       ls_env_done done, void *context);
    /*
     * A write that is done when it returns: bytes written, possibly fewer, or minus an errno value.
     * The one call that blocks, for bulk data; in the real env from any thread, several at once at
     * distinct offsets, and behind calls that have completed.
     */
    int64_t (*disk_write_now)(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset);
    /* Makes the file at least `bytes` long and reserves the blocks, so that a full disk is noticed
     * before the data are written. Does nothing and gives 0 if the file system can't reserve. */
    void (*disk_allocate)(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context);
    /* Sets the length. */
    void (*disk_truncate)(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context);
    /* After a failed sync the content of the file is unknown: write a new one. */
    void (*disk_sync)(ls_env *env, int64_t file, ls_env_done done, void *context);
    void (*disk_close)(ls_env *env, int64_t file, ls_env_done done, void *context);
    void (*disk_sync_dir)(ls_env *env, const char *path, ls_env_done done, void *context);
    /* Files or folders; an existing file, or an empty folder, at `to` is replaced in one step. */
    void (*disk_rename)(ls_env *env, const char *from, const char *to, ls_env_done done, void *context);
    /* Swaps two names in one step; both must exist. -EINVAL if the file system can't. */
    void (*disk_exchange)(ls_env *env, const char *a, const char *b, ls_env_done done, void *context);
    /* A second name for a file, which exists until the last of its names is removed. -EEXIST if
     * `to` exists; -EPERM, -EOPNOTSUPP, -EMLINK, -EXDEV and others if the file system can't. */
    void (*disk_link)(ls_env *env, const char *from, const char *to, ls_env_done done, void *context);
    /* A file or an empty folder. */
    void (*disk_unlink)(ls_env *env, const char *path, ls_env_done done, void *context);
    /* -EEXIST if the name exists. The parent must exist. */
    void (*disk_mkdir)(ls_env *env, const char *path, ls_env_done done, void *context);
    void (*disk_list)(ls_env *env, const char *path, ls_env_listed listed, void *context);

    /* Starts argv[0] (looked up in PATH; argv ends with NULL); `exited` is called once when it has
     * ended. Returns 0 or minus an errno value, then nothing follows. */
    int (*process_start)(ls_env *env, const char *const *argv, ls_env_exited exited, void *context,
                         ls_env_id *process_out);
    /* Watches a process that another one, now gone, has started: `exited` is called once when it
     * has ended. Its number may have been reused, so the caller must check the identity of the
     * process after this call, which keeps the number from being reused again. 0, or minus an errno
     * value (-ESRCH: no such process); in that case `exited` is not called. */
    int (*process_watch)(ls_env *env, int32_t pid, ls_env_exited exited, void *context,
                         ls_env_id *process_out);
    /* Sends a signal to a process this env started or watches; `exited` follows if that ends it. 0,
     * or -ESRCH if it has already ended. */
    int (*process_kill)(ls_env *env, ls_env_id process, int signal_number);
    /* From now on `signal_number` calls `fire` instead of having its default effect. 0 or minus an
     * errno value. */
    int (*signal_watch)(ls_env *env, int signal_number, ls_env_fire fire, void *context);

    /* Ends ls_env_run after the current callback; in the simulator this process exits. */
    void (*stop)(ls_env *env, int exit_code);
} ls_env_calls;

/* The first member of every env. */
struct ls_env {
    const ls_env_calls *calls;
};

#define LS_ENV_CALL(member, env, ...)   ((env)->calls->member((env), __VA_ARGS__))
#define ls_env_now_ns(env)              ((env)->calls->now_ns(env))
#define ls_env_boot_ns(env)             ((env)->calls->boot_ns(env))
#define ls_env_wall_s(env)              ((env)->calls->wall_s(env))
#define ls_env_random_u64(env)          ((env)->calls->random_u64(env))
#define ls_env_timer_set(env, ...)      LS_ENV_CALL(timer_set, env, __VA_ARGS__)
#define ls_env_timer_cancel(env, ...)   LS_ENV_CALL(timer_cancel, env, __VA_ARGS__)
#define ls_env_net_listen(env, ...)     LS_ENV_CALL(net_listen, env, __VA_ARGS__)
#define ls_env_net_address(env, ...)    LS_ENV_CALL(net_address, env, __VA_ARGS__)
#define ls_env_net_connect(env, ...)    LS_ENV_CALL(net_connect, env, __VA_ARGS__)
#define ls_env_net_send(env, ...)       LS_ENV_CALL(net_send, env, __VA_ARGS__)
#define ls_env_net_close(env, ...)      LS_ENV_CALL(net_close, env, __VA_ARGS__)
#define ls_env_disk_open(env, ...)      LS_ENV_CALL(disk_open, env, __VA_ARGS__)
#define ls_env_disk_read(env, ...)      LS_ENV_CALL(disk_read, env, __VA_ARGS__)
#define ls_env_disk_write(env, ...)     LS_ENV_CALL(disk_write, env, __VA_ARGS__)
#define ls_env_disk_write_now(env, ...) LS_ENV_CALL(disk_write_now, env, __VA_ARGS__)
#define ls_env_disk_allocate(env, ...)  LS_ENV_CALL(disk_allocate, env, __VA_ARGS__)
#define ls_env_disk_truncate(env, ...)  LS_ENV_CALL(disk_truncate, env, __VA_ARGS__)
#define ls_env_disk_sync(env, ...)      LS_ENV_CALL(disk_sync, env, __VA_ARGS__)
#define ls_env_disk_close(env, ...)     LS_ENV_CALL(disk_close, env, __VA_ARGS__)
#define ls_env_disk_sync_dir(env, ...)  LS_ENV_CALL(disk_sync_dir, env, __VA_ARGS__)
#define ls_env_disk_rename(env, ...)    LS_ENV_CALL(disk_rename, env, __VA_ARGS__)
#define ls_env_disk_exchange(env, ...)  LS_ENV_CALL(disk_exchange, env, __VA_ARGS__)
#define ls_env_disk_link(env, ...)      LS_ENV_CALL(disk_link, env, __VA_ARGS__)
#define ls_env_disk_unlink(env, ...)    LS_ENV_CALL(disk_unlink, env, __VA_ARGS__)
#define ls_env_disk_mkdir(env, ...)     LS_ENV_CALL(disk_mkdir, env, __VA_ARGS__)
#define ls_env_disk_list(env, ...)      LS_ENV_CALL(disk_list, env, __VA_ARGS__)
#define ls_env_process_start(env, ...)  LS_ENV_CALL(process_start, env, __VA_ARGS__)
#define ls_env_process_watch(env, ...)  LS_ENV_CALL(process_watch, env, __VA_ARGS__)
#define ls_env_process_kill(env, ...)   LS_ENV_CALL(process_kill, env, __VA_ARGS__)
#define ls_env_signal_watch(env, ...)   LS_ENV_CALL(signal_watch, env, __VA_ARGS__)
#define ls_env_stop(env, ...)           LS_ENV_CALL(stop, env, __VA_ARGS__)

/* ---- the real env ---- */

/*
 * An env for this machine. Create it and watch signals before other threads start: a watched signal
 * is blocked in the calling thread and those it starts afterwards, and must not be unblocked
 * elsewhere. Processes it starts get the default mask. Errors: LS_ERR_IO. The caller destroys it
 * with ls_env_real_destroy.
 */
LS_MUST_CHECK ls_status ls_env_real_create(ls_env **env_out);

/* Waits for disk calls under way (their callbacks are not run), closes links and files. Children
 * are left alone. */
void ls_env_real_destroy(ls_env *env);

/*
 * Calls `ready` as long as descriptor `fd` is readable: this makes another library's loop (for
 * example an epoll descriptor) part of this one. The descriptor stays the caller's. Returns 0 or
 * minus an errno value.
 */
int ls_env_real_watch(ls_env *env, int fd, ls_env_fire ready, void *context, ls_env_id *watch_out);
void ls_env_real_unwatch(ls_env *env, ls_env_id watch);

/* Runs callbacks until ls_env_stop; returns its exit code. Also returns, with 0, when nothing is
 * left that could ever cause a callback. */
int ls_env_run(ls_env *env);

/* Runs the callbacks that are due, waiting at most `wait_ns` for the first one; 0 does not wait.
 * A training loop calls it at a step boundary. Returns the number of callbacks that ran. */
size_t ls_env_poll(ls_env *env, uint64_t wait_ns);

/* Makes ls_env_poll return, or the next call of it if none is under way, so that it sees what
 * another thread has changed. From any thread; cannot fail. */
void ls_env_real_wake(ls_env *env);

#endif
