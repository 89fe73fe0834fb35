// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/home_lock.h"

#include "base/file.h"
#include "base/hash.h"
#include "env/user/user.h"
#include "orchestration/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { TRIES = 500, PAUSE_US = 20000 }; /* for a holder that is about to end */

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
    return ls_fail(LS_ERR_INVALID, "%s belongs to user %s: only that user or root can stop a daemon there",
                   home, name);
}

ls_status ls_home_holder(const char *home, pid_t *pid_out)
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
        return ls_fail(LS_ERR_NOT_FOUND, "no daemon runs with %s as its folder", home);
    }
    *pid_out = pid;
    return LS_OK;
}

/*
 * Field `number` of the text of /proc/PID/stat, counted from 1 as proc(5) does, from 3 on: the ones
 * after the process's name, which is in parentheses and may hold anything. NULL: there are fewer.
 */
static const char *stat_field(const char *text, int number)
{
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < number; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at;
}

/*
 * Is the process about to end: killed and in its last system call, closing its files, or a zombie?
 * The kernel closes the files of an ending process one after the other, so its socket can be gone a
 * while before its lock is.
 */
static bool is_ending(pid_t pid)
{
    enum { STATE = 3, FLAGS = 9, PENDING_SIGNALS = 31 }; /* fields */
    enum { EXITING = 0x4 };                              /* PF_EXITING of the kernel */
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
    const char *state = stat_field(text, STATE), *flags = stat_field(text, FLAGS),
               *signals = stat_field(text, PENDING_SIGNALS);
    return state && flags && signals &&
           (*state == 'Z' || *state == 'X' || (strtoul(flags, NULL, 10) & EXITING) ||
            (strtoul(signals, NULL, 10) & 1ul << (SIGKILL - 1)));
}

/* Takes the lock, waiting for a holder that is about to end. Returns 0 when the lock is ours, else
 * the holder's process number, or -1 if that is unknown. */
static pid_t take_lock(int fd)
{
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

/* ---- the name in the kernel ---- */

/* The process that listens there; 0: none, or one of another user, who could only be in our way. */
static pid_t name_holder(const struct sockaddr_un *address, socklen_t bytes)
{
    struct ucred peer = {0};
    socklen_t peer_bytes = sizeof peer;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool is_known = fd >= 0 && connect(fd, (const struct sockaddr *)address, bytes) == 0 &&
                          getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is_known && (peer.uid == geteuid() || peer.uid == 0) ? peer.pid : 0;
}

/* Takes the name of the path, waiting for a holder that is about to end. Returns 0, or the
 * holder. A name that cannot be had for another reason is done without: fd_out -1. */
static pid_t take_name(const char *home, int *fd_out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *path = realpath(home, NULL);
    const int text = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "lockstep-%u-%016" PRIx64,
                              (unsigned)geteuid(), path ? ls_xxh3(path, strlen(path), 0) : 0);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)text);
    free(path);
    *fd_out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int i = 0; *fd_out >= 0 && bind(*fd_out, (const struct sockaddr *)&address, bytes) != 0; i++) {
        const pid_t holder = errno == EADDRINUSE ? name_holder(&address, bytes) : 0;
        if (i == TRIES || holder == 0 || !is_ending(holder)) {
            close(*fd_out);
            *fd_out = -1;
            return holder;
        }
        usleep(PAUSE_US);
    }
    if (*fd_out >= 0) {
        (void)listen(*fd_out, 1); /* so that others can ask who it is */
    }
    return 0;
}

/* ---- both ---- */

/* With the lock: writes our number into it. */
static ls_status take_over(const char *home, const char *path, int fd)
{
    char text[32];
    /* Users of a daemon of root may pass through to the folders of their jobs, and list nothing. */
    if (chmod(home, geteuid() == 0 ? 0711 : 0700) != 0) {
        return ls_fail_errno(errno, "can't restrict access to %s to its owner", home);
    }
    const int bytes = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0) {
        return ls_fail_errno(errno, "can't write %s", path);
    }
    return ls_file_pwrite_all(fd, path, text, (size_t)bytes, 0);
}

static ls_status is_held(const char *home, pid_t holder)
{
    return ls_fail(LS_ERR_FAILED,
                   "a daemon already runs with %s as its folder; its process number is %ld, and 'lockstep "
                   "down' stops it",
                   home, (long)holder);
}

ls_status ls_home_lock_take(const char *home, ls_home_lock *lock_out)
{
    char path[LS_JOB_PATH_BYTES_MAX];
    ls_home_lock lock = {.name = -1};
    LS_TRY(ls_dir_create(home));
    if (snprintf(path, sizeof path, "%s/lock", home) >= (int)sizeof path) {
        return ls_fail(LS_ERR_INVALID, "the path of the daemon's folder, %s, is too long", home);
    }
    lock.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock.file < 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    pid_t holder = take_lock(lock.file);
    ls_status status = holder != 0 ? is_held(home, holder) : LS_OK;
    if (status == LS_OK && (holder = take_name(home, &lock.name)) != 0) {
        status = ls_fail(LS_ERR_FAILED,
                         "the daemon with process number %ld still runs with %s as its folder, although the "
                         "files there were removed or replaced: stop it first, with 'kill %ld'",
                         (long)holder, home, (long)holder);
    }
    if (status == LS_OK) {
        status = take_over(home, path, lock.file);
    }
    if (status != LS_OK) {
        ls_home_lock_drop(&lock);
        return status;
    }
    *lock_out = lock;
    return LS_OK;
}

void ls_home_lock_drop(ls_home_lock *lock)
{
    if (lock->file >= 0) {
        close(lock->file);
    }
    if (lock->name >= 0) {
        close(lock->name);
    }
    lock->file = lock->name = -1;
}

bool ls_home_lock_is_there(const char *home, const ls_home_lock *lock)
{
    char path[LS_JOB_PATH_BYTES_MAX + 8];
    struct stat there, held;
    snprintf(path, sizeof path, "%s/lock", home);
    if (fstat(lock->file, &held) != 0 || lstat(path, &there) != 0) {
        /* a file system that does not answer is no other one */
        return errno != ENOENT && errno != ENOTDIR;
    }
    return there.st_dev == held.st_dev && there.st_ino == held.st_ino;
}
