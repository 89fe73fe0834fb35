// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/read_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int system_open(void *context, const char *path, int flags)
{
    (void)context;
    const int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int64_t system_read_at(void *context, int fd, void *data, size_t bytes, uint64_t offset)
{
    (void)context;
    const ssize_t got = pread(fd, data, bytes, (off_t)offset);
    return got < 0 ? -errno : got;
}

static int system_close(void *context, int fd)
{
    (void)context;
    return close(fd) != 0 ? -errno : 0;
}

const ls_read_calls *ls_read_calls_system(void)
{
    static const ls_read_calls SYSTEM = {
        .open = system_open, .read_at = system_read_at, .close = system_close};
    return &SYSTEM;
}
