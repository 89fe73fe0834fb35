// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/own_log.h"

#include "orchestration/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct log_path {
    char text[LS_JOB_PATH_BYTES_MAX + 16];
} log_path;

static log_path path_in(const char *home, const char *name)
{
    log_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", home, name);
    return path;
}

ls_status ls_own_log_open(const char *home)
{
    const log_path path = path_in(home, "daemon.log");
    const int fd = open(path.text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open %s", path.text);
    }
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return LS_OK;
}

bool ls_own_log_is_used(const char *home)
{
    struct stat there, here;
    return stat(path_in(home, "daemon.log").text, &there) == 0 && fstat(STDERR_FILENO, &here) == 0 &&
           there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

void ls_own_log_keep(const char *home)
{
    struct stat here;
    const bool is_there = ls_own_log_is_used(home);
    const bool is_long = fstat(STDERR_FILENO, &here) == 0 && here.st_size > (off_t)LS_OWN_LOG_MIB << 20;
    if (is_there && is_long) {
        (void)rename(path_in(home, "daemon.log").text, path_in(home, "daemon.log.1").text);
    }
    if ((!is_there || is_long) && ls_own_log_open(home) != LS_OK) {
        ls_error_clear(); /* the old one is still open */
    }
}
