// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the real env: its parts and how they meet in the loop (env/real/real.c).
 *
 *   real.c   loop, timers, signals, processes
 *   net.c    links over TCP and Unix sockets
 *   disk.c   the disk's worker thread
 */
#ifndef LS_ENV_REAL_REAL_H
#define LS_ENV_REAL_REAL_H

#include "env/env.h"
#include "env/real/event_queue.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

enum { LS_ENV_SIGNALS = 65 };

typedef struct ls_real_env ls_real_env;

/* Something with a file descriptor that epoll watches. The first member of a link, a listener, a
 * process. */
typedef struct ls_real_watch {
    struct ls_real_watch *next; /* all watches of the env */
    ls_env_id id;
    int fd; /* -1: ended */
    /* epoll's events */
    void (*ready)(ls_real_env *env, struct ls_real_watch *watch, uint32_t events);
    /* frees it; called outside callbacks, once fd is -1 */
    void (*destroy)(struct ls_real_watch *watch);
} ls_real_watch;

typedef struct ls_disk_job ls_disk_job;

typedef struct ls_real_disk {
    bool started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool quit;
    ls_disk_job *todo, **todo_end; /* under lock */
    ls_disk_job *done, **done_end; /* under lock */
    size_t under_way;              /* loop's thread only: issued, callback not run */
    int event_fd;                  /* readable while `done` is not empty, and after a wake-up */
} ls_real_disk;

struct ls_real_env {
    ls_env base;
    int epoll_fd;
    ls_env_id next_id;
    ls_env_queue timers;
    ls_real_watch *watches;
    bool some_ended; /* a watch waits to be destroyed */
    size_t calls;    /* callbacks run */
    bool stopped;
    int exit_code;
    int signal_fd;
    sigset_t signals;
    struct {
        ls_env_fire fire;
        void *context;
    } signal_handlers[LS_ENV_SIGNALS];
    ls_real_disk disk;
};

/* Adds a watch under a new id. 0 or minus an errno value; the watch is then still the caller's. */
int ls_real_watch_add(ls_real_env *env, ls_real_watch *watch, uint32_t events);
void ls_real_watch_change(ls_real_env *env, ls_real_watch *watch, uint32_t events);
/* Closes the descriptor; the memory is freed by the loop. */
void ls_real_watch_end(ls_real_env *env, ls_real_watch *watch);
/* NULL if the id is unknown or ended. `ready` identifies the kind. */
ls_real_watch *ls_real_watch_find(ls_real_env *env, ls_env_id id,
                                  void (*ready)(ls_real_env *, ls_real_watch *, uint32_t));

/* process_start of the table, with the descriptors that become standard input, output and error;
 * NULL: those of this process. */
int ls_real_process_start(ls_env *env, const char *const *argv, const int fds[3], ls_env_exited exited,
                          void *context, ls_env_id *process_out);

int ls_real_net_listen(ls_env *env, const char *address, const ls_env_link_events *events,
                       ls_env_id *listener_out);
const char *ls_real_net_address(ls_env *env, ls_env_id listener);
ls_env_id ls_real_net_connect(ls_env *env, const char *address, const ls_env_link_events *events);
int ls_real_net_send(ls_env *env, ls_env_id link, const void *data, size_t bytes);
void ls_real_net_close(ls_env *env, ls_env_id link);

/* 0 or minus an errno value. */
int ls_real_disk_init(ls_real_disk *disk);
void ls_real_disk_release(ls_real_disk *disk);
/* Makes the loop look at what is done. */
void ls_real_disk_ring(const ls_real_disk *disk);
/* Runs the callbacks of completed calls. */
void ls_real_disk_deliver(ls_real_env *env);

void ls_real_disk_open(ls_env *env, const char *path, ls_env_open_mode mode, ls_env_done done, void *context);
void ls_real_disk_read(ls_env *env, int64_t file, void *data, size_t bytes, uint64_t offset, ls_env_done done,
                       void *context);
void ls_real_disk_write(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset,
                        ls_env_done done, void *context);
int64_t ls_real_disk_write_now(ls_env *env, int64_t file, const void *data, size_t bytes, uint64_t offset);
void ls_real_disk_allocate(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context);
void ls_real_disk_truncate(ls_env *env, int64_t file, uint64_t bytes, ls_env_done done, void *context);
void ls_real_disk_sync(ls_env *env, int64_t file, ls_env_done done, void *context);
void ls_real_disk_close(ls_env *env, int64_t file, ls_env_done done, void *context);
void ls_real_disk_sync_dir(ls_env *env, const char *path, ls_env_done done, void *context);
void ls_real_disk_rename(ls_env *env, const char *from, const char *to, ls_env_done done, void *context);
void ls_real_disk_exchange(ls_env *env, const char *a, const char *b, ls_env_done done, void *context);
void ls_real_disk_link(ls_env *env, const char *from, const char *to, ls_env_done done, void *context);
void ls_real_disk_unlink(ls_env *env, const char *path, ls_env_done done, void *context);
void ls_real_disk_mkdir(ls_env *env, const char *path, ls_env_done done, void *context);
void ls_real_disk_list(ls_env *env, const char *path, ls_env_listed listed, void *context);

#endif
