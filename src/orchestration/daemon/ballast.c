// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/ballast.h"

#include "orchestration/job/job.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BALLAST_BYTES ((off_t)LS_BALLAST_MIB << 20)

typedef struct ballast_path {
    char text[LS_JOB_PATH_BYTES_MAX + 16];
} ballast_path;

static ballast_path path_in(const char *home)
{
    ballast_path path;
    snprintf(path.text, sizeof path.text, "%s/ballast", home);
    return path;
}

/* Less than this is too little to start with. */
#define START_BYTES (1 << 20)

static bool has_room(const char *home, double bytes)
{
    struct statvfs disk;
    return statvfs(home, &disk) == 0 && (double)disk.f_bavail * (double)disk.f_frsize >= bytes;
}

bool ls_ballast_fill(const char *home)
{
    const ballast_path path = path_in(home);
    struct stat info;
    if (lstat(path.text, &info) == 0 && info.st_size == BALLAST_BYTES) {
        return true;
    }
    if (!has_room(home, 2.0 * (double)BALLAST_BYTES)) {
        return false;
    }
    const int fd = open(path.text, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool is_full = fd >= 0 && posix_fallocate(fd, 0, BALLAST_BYTES) == 0;
    if (fd >= 0) {
        close(fd);
    }
    if (fd >= 0 && !is_full) {
        unlink(path.text);
    }
    return is_full;
}

bool ls_ballast_release(const char *home)
{
    return unlink(path_in(home).text) == 0;
}

bool ls_ballast_make_room(const char *home)
{
    return !has_room(home, START_BYTES) && ls_ballast_release(home);
}
