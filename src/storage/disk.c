// SPDX-License-Identifier: Apache-2.0
#include "storage/disk.h"

#include "base/assert.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int system_open(void *context, const char *path, int flags)
{
    (void)context;
    const int fd = open(path, flags | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : fd;
}

static int system_allocate(void *context, int fd, uint64_t bytes)
{
    (void)context;
    return fallocate(fd, 0, 0, (off_t)bytes) != 0 ? -errno : 0;
}

static int64_t system_write_at(void *context, int fd, const void *data, size_t bytes, uint64_t offset)
{
    (void)context;
    const ssize_t wrote = pwrite(fd, data, bytes, (off_t)offset);
    return wrote < 0 ? -errno : wrote;
}

static int system_truncate(void *context, int fd, uint64_t bytes)
{
    (void)context;
    return ftruncate(fd, (off_t)bytes) != 0 ? -errno : 0;
}

static int system_sync(void *context, int fd)
{
    (void)context;
    return fsync(fd) != 0 ? -errno : 0;
}

static int system_close(void *context, int fd)
{
    (void)context;
    return close(fd) != 0 ? -errno : 0;
}

static int system_make_dir(void *context, const char *path)
{
    (void)context;
    return mkdir(path, 0755) != 0 ? -errno : 0;
}

static int system_sync_dir(void *context, const char *path)
{
    (void)context;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    const int error = fsync(fd) != 0 ? errno : 0;
    close(fd);
    /* Some file systems have no fsync for folders; their renames are as durable as they get. */
    return error == EINVAL ? 0 : -error;
}

static int system_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to) != 0 ? -errno : 0;
}

static int system_exchange(void *context, const char *a, const char *b)
{
    (void)context;
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) != 0 ? -errno : 0;
}

static int remove_visit(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path) != 0 && errno != ENOENT ? errno : 0;
}

static int system_remove(void *context, const char *path)
{
    (void)context;
    const int result = nftw(path, remove_visit, 16, FTW_DEPTH | FTW_PHYS);
    if (result == -1) {
        return errno == ENOENT ? 0 : -errno;
    }
    return -result;
}

const ls_disk *ls_disk_system(void)
{
    static const ls_disk SYSTEM = {
        .open = system_open,
        .allocate = system_allocate,
        .write_at = system_write_at,
        .truncate = system_truncate,
        .sync = system_sync,
        .close = system_close,
        .make_dir = system_make_dir,
        .sync_dir = system_sync_dir,
        .rename = system_rename,
        .exchange = system_exchange,
        .remove = system_remove,
    };
    return &SYSTEM;
}

ls_status ls_disk_write_all(const ls_disk *disk, int fd, const char *path, const void *data, size_t bytes,
                            uint64_t offset, size_t alignment_bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const int64_t wrote =
            disk->write_at(disk->context, fd, (const char *)data + done, bytes - done, offset + done);
        if (wrote == -EINTR) {
            continue;
        }
        const size_t next = wrote < 0 ? done : done + (size_t)wrote;
        const size_t aligned = next == bytes ? next : next - next % alignment_bytes;
        if (aligned == done) { /* an error, or no progress */
            return ls_fail_errno(wrote < 0 ? (int)-wrote : EIO, "can't write %s at byte %llu", path,
                                 (unsigned long long)(offset + done));
        }
        done = aligned;
    }
    return LS_OK;
}

ls_status ls_disk_write_file(const ls_disk *disk, const char *path, const void *data, size_t bytes)
{
    const int fd = disk->open(disk->context, path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0) {
        return ls_fail_errno(-fd, "can't create %s", path);
    }
    ls_status status = ls_disk_write_all(disk, fd, path, data, bytes, 0, 1);
    const int synced = status == LS_OK ? disk->sync(disk->context, fd) : 0;
    if (synced < 0) {
        status = ls_fail_errno(-synced, "can't flush %s to disk", path);
    }
    const int closed = disk->close(disk->context, fd);
    if (closed < 0 && status == LS_OK) {
        status = ls_fail_errno(-closed, "can't close %s", path);
    }
    return status;
}
