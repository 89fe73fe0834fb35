// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/job_files.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

ls_status ls_jobs_folder_make(const char *home)
{
    char jobs[PATH_MAX];
    snprintf(jobs, sizeof jobs, "%s/jobs", home);
    if (mkdir(jobs, 0711) != 0 && errno != EEXIST) {
        return ls_fail_errno(errno, "cannot create %s", jobs);
    }
    if (geteuid() == 0 && chmod(jobs, 0711) != 0) {
        return ls_fail_errno(errno, "cannot make %s searchable for other users (chmod o+x)", jobs);
    }
    return LS_OK;
}

uint64_t ls_jobs_folder_highest(const char *home)
{
    char path[4096];
    uint64_t highest = 0;
    snprintf(path, sizeof path, "%s/jobs", home);
    DIR *folder = opendir(path);
    for (const struct dirent *item; folder && (item = readdir(folder));) {
        char *end = NULL;
        const unsigned long long number = strtoull(item->d_name, &end, 10);
        highest = *end == '\0' && number > highest && number < INT64_MAX ? number : highest;
    }
    if (folder) {
        closedir(folder);
    }
    return highest;
}

ls_status ls_job_folder_make(const char *folder, uid_t uid, gid_t gid)
{
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return ls_fail_errno(errno, "cannot create %s", folder);
    }
    if (uid != geteuid() && lchown(folder, uid, gid) != 0) {
        return ls_fail_errno(errno, "cannot change the owner of %s to user %u", folder, (unsigned)uid);
    }
    return LS_OK;
}

ls_status ls_job_file_write(const char *path, const void *data, size_t bytes, uid_t uid, gid_t gid)
{
    char draft[PATH_MAX];
    snprintf(draft, sizeof draft, "%s.new", path);
    unlink(draft);
    const int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "cannot create %s", draft);
    }
    ls_status status = ls_file_write_all(fd, draft, data, bytes);
    if (status == LS_OK && uid != geteuid() && fchown(fd, uid, gid) != 0) {
        status = ls_fail_errno(errno, "cannot change the owner of %s to user %u", draft, (unsigned)uid);
    }
    if (close(fd) != 0 && status == LS_OK) {
        status = ls_fail_errno(errno, "cannot write %s", draft);
    }
    if (status == LS_OK && rename(draft, path) != 0) {
        status = ls_fail_errno(errno, "cannot rename the finished temporary file to %s", path);
    }
    if (status != LS_OK) {
        unlink(draft);
    }
    return status;
}

ssize_t ls_job_file_read(const char *path, int flags, char *data, size_t limit, int *fd_out)
{
    const int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0) {
        return -1;
    }
    ssize_t bytes = -1;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        errno = EINVAL;
    } else {
        bytes = pread(fd, data, limit - 1, 0);
        data[bytes > 0 ? bytes : 0] = '\0';
    }
    if (fd_out && bytes >= 0) {
        *fd_out = fd;
    } else {
        const int error = errno;
        close(fd);
        errno = error;
    }
    return bytes;
}
