// SPDX-License-Identifier: Apache-2.0
#include "env/user/user_helper.h"

#include "base/assert.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_S = 30 };

typedef struct helper {
    struct helper *next;
    ls_user_identity user;
    pid_t pid;
    int fd;
    time_t idle_since_s;
} helper;

struct ls_user_helpers {
    pthread_mutex_t lock;
    helper *idle; /* the one used last comes first */
    size_t idle_count;
    bool has_warned; /* that none can be started */
};

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* ---- starting and ending ---- */

ls_status ls_user_helper_find(char *path_out, size_t bytes)
{
    char own[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (!slash) {
        return ls_fail(LS_ERR_NOT_FOUND, "can't read /proc/self/exe, which leads to the folder where the "
                                         "helper program lockstep-as-user is installed");
    }
    *slash = '\0';
    static const char *const places[] = {"", "/../libexec/lockstep"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path_out, bytes, "%s%s/lockstep-as-user", own, places[i]);
        if (access(path_out, X_OK) == 0) {
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_NOT_FOUND,
                   "lockstep-as-user is neither in %s nor in %s/../libexec/lockstep: a daemon that runs as "
                   "root needs it to act for other users",
                   own, own);
}

/* Nothing of the daemon reaches the helper: no signal masks, no environment, no descriptors but its
 * socket (all others are close-on-exec). Returns 0 or an errno value. */
static int spawn(const char *path, helper *h, int its_end)
{
    char uid[16], gid[16];
    snprintf(uid, sizeof uid, "%" PRIu32, h->user.uid);
    snprintf(gid, sizeof gid, "%" PRIu32, h->user.gid);
    char *const argv[] = {"lockstep-as-user", "read", uid, gid, NULL}, *const environment[] = {NULL};
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
    posix_spawn_file_actions_adddup2(&files, its_end, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const int error = posix_spawn(&h->pid, path, &files, &attributes, argv, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return error;
}

/* NULL: it can't be started, with the reason in this thread's error text. */
static helper *start(ls_user_identity user)
{
    char path[PATH_MAX];
    int ends[2];
    if (ls_user_helper_find(path, sizeof path) != LS_OK) {
        return NULL;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        (void)!ls_fail_errno(errno, "cannot create a socket to talk to %s", path);
        return NULL;
    }
    helper *h = calloc(1, sizeof *h);
    LS_ASSERT(h && "not enough memory for a helper");
    *h = (helper){.user = user, .fd = ends[0]};
    const int error = spawn(path, h, ends[1]);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        free(h);
        (void)!ls_fail_errno(error, "can't start %s", path);
        return NULL;
    }
    return h;
}

/* Its user may have stopped it, so that closing the socket would not be enough. */
static void end(helper *h)
{
    close(h->fd);
    kill(h->pid, SIGKILL);
    while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    free(h);
}

/* ---- those that wait for the next request ---- */

static helper *take_idle(ls_user_helpers *all, ls_user_identity user)
{
    helper *found = NULL;
    pthread_mutex_lock(&all->lock);
    for (helper **at = &all->idle; *at && !found; at = found ? at : &(*at)->next) {
        if ((*at)->user.uid == user.uid && (*at)->user.gid == user.gid) {
            found = *at;
            *at = found->next;
            all->idle_count--;
        }
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

/* Takes out those at the end of the list that are too old or too many. To be ended without the
 * lock: another thread must not wait for that. */
static helper *take_old(ls_user_helpers *all, time_t used_before_s)
{
    size_t count = 0;
    helper **at = &all->idle;
    while (*at && count < LS_USER_HELPERS_IDLE_MAX && (*at)->idle_since_s >= used_before_s) {
        at = &(*at)->next;
        count++;
    }
    helper *old = *at;
    *at = NULL;
    all->idle_count = count;
    return old;
}

static void end_list(helper *list)
{
    while (list) {
        helper *next = list->next;
        end(list);
        list = next;
    }
}

static void keep(ls_user_helpers *all, helper *h)
{
    pthread_mutex_lock(&all->lock);
    h->idle_since_s = now_s();
    h->next = all->idle;
    all->idle = h;
    all->idle_count++;
    helper *old = all->idle_count > LS_USER_HELPERS_IDLE_MAX ? take_old(all, 0) : NULL;
    pthread_mutex_unlock(&all->lock);
    end_list(old);
}

void ls_user_helpers_trim(ls_user_helpers *all)
{
    pthread_mutex_lock(&all->lock);
    helper *old = take_old(all, now_s() - IDLE_S);
    pthread_mutex_unlock(&all->lock);
    end_list(old);
}

/* ---- one request ---- */

static bool send_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t part = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part <= 0) {
            return false;
        }
        done += (size_t)part;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        const ssize_t part = recv(fd, (char *)data + got, bytes - got, 0);
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part <= 0) {
            return false;
        }
        got += (size_t)part;
    }
    return true;
}

/* A helper that waited may have been killed by its user meanwhile. */
static bool is_alive(const helper *h)
{
    char byte;
    return recv(h->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Never takes more bytes than were asked for: the helper is the user's process by now, and its
 * answer is not trusted. */
static bool exchange(const helper *h, const ls_user_read *what, const char *path, ls_user_read_result *r,
                     char **data_out)
{
    if (!send_all(h->fd, what, sizeof *what) || !send_all(h->fd, path, what->path_bytes) ||
        !receive_all(h->fd, r, sizeof *r) || r->bytes > what->bytes || r->bytes > LS_USER_READ_BYTES_MAX) {
        return false;
    }
    if (r->bytes == 0) {
        return true;
    }
    char *data = malloc(r->bytes + 1);
    if (!data || !receive_all(h->fd, data, r->bytes)) {
        free(data);
        return false;
    }
    data[r->bytes] = '\0';
    *data_out = data;
    return true;
}

static void warn_once(ls_user_helpers *all)
{
    pthread_mutex_lock(&all->lock);
    const bool is_first = !all->has_warned;
    all->has_warned = true;
    pthread_mutex_unlock(&all->lock);
    if (is_first) {
        ls_log_error("files of other users can't be read: %s", ls_error_text());
    }
}

void ls_user_helpers_read(ls_user_helpers *all, ls_user_identity user, const ls_user_read *what,
                          const char *path, ls_user_read_result *r, char **data_out)
{
    const size_t path_bytes = strlen(path);
    *data_out = NULL;
    *r = (ls_user_read_result){.error = ENAMETOOLONG};
    if (path_bytes >= PATH_MAX) {
        return;
    }
    ls_user_read request = *what;
    request.magic = LS_USER_READ_MAGIC;
    request.path_bytes = (uint32_t)path_bytes;
    helper *h = take_idle(all, user);
    while (h && !is_alive(h)) {
        end(h);
        h = take_idle(all, user);
    }
    h = h ? h : start(user);
    if (!h) {
        warn_once(all);
        r->error = ENOSYS;
    } else if (exchange(h, &request, path, r, data_out)) {
        keep(all, h);
    } else {
        end(h);
        *r = (ls_user_read_result){.error = EIO};
    }
}

/* ---- life ---- */

ls_user_helpers *ls_user_helpers_create(void)
{
    ls_user_helpers *all = calloc(1, sizeof *all);
    LS_ASSERT(all && "not enough memory for helpers");
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

void ls_user_helpers_destroy(ls_user_helpers *all)
{
    end_list(all->idle);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
