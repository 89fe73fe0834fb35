// SPDX-License-Identifier: Apache-2.0
/* The log of a job, which must fill neither its own limit nor the disk. */
#include "orchestration/engines/local/runner_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    COPY_BYTES = 64 * 1024,
    LINE_BYTES_MAX = 4096,     /* a cut looks that far for the beginning of a line */
    LOOK_BYTES = 256 * 1024,   /* written between two looks at the free space */
    SMALLEST_BYTES = 64 * 1024 /* a smaller log is not cut */
};
#define LEFT_FREE_BYTES (64.0 * 1048576.0) /* at most, of a large disk */
#define LEFT_FREE_PART  0.05

ls_status ls_job_log_open(const char *folder, const char *name, uint64_t bytes_max, ls_job_log *log_out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "cannot open %s", path);
    }
    *log_out = (ls_job_log){.fd = fd, .bytes_max = bytes_max, .start = lseek(fd, 0, SEEK_END)};
    return LS_OK;
}

/* The beginning of the first line at or after `from`, if one begins soon. */
static off_t line_at(int fd, off_t from)
{
    char text[LINE_BYTES_MAX];
    const ssize_t got = from > 0 ? pread(fd, text, sizeof text, from - 1) : 0;
    const char *end = got > 0 ? memchr(text, '\n', (size_t)got) : NULL;
    return end ? from + (end - text) : from;
}

/* Moves [from, end) to `to`, which is before it. */
static bool move_down(int fd, off_t from, off_t end, off_t to)
{
    char data[COPY_BYTES];
    while (from < end) {
        const size_t wanted = end - from < COPY_BYTES ? (size_t)(end - from) : COPY_BYTES;
        const ssize_t got = pread(fd, data, wanted, from);
        if (got <= 0 || pwrite(fd, data, (size_t)got, to) != got) {
            return false;
        }
        from += got;
        to += got;
    }
    return ftruncate(fd, to) == 0;
}

/*
 *   before   head | line | middle ............ | tail     `limit` bytes or a little more
 *   after    head | line | tail                           half of that
 */
static void cut(ls_job_log *log, off_t size, uint64_t limit)
{
    char line[128];
    const off_t quarter = (off_t)(limit / 4);
    const bool is_first = log->line_at == 0;
    const off_t head = is_first ? line_at(log->fd, quarter) : log->line_at;
    const off_t from = line_at(log->fd, size - quarter);
    const off_t middle = is_first ? head : head + log->line_bytes;
    if (from <= middle) {
        return;
    }
    const uint64_t dropped = log->dropped + (uint64_t)(from - middle);
    const int bytes =
        snprintf(line, sizeof line,
                 "[lockstep: %15" PRIu64 " bytes were dropped here (job.log_max, or a disk that "
                 "was nearly full)]\n",
                 dropped);
    if (from <= head + bytes || pwrite(log->fd, line, (size_t)bytes, head) != bytes ||
        !move_down(log->fd, from, size, head + bytes)) {
        return;
    }
    log->line_at = head;
    log->line_bytes = bytes;
    log->dropped = dropped;
    if (log->start > head) {
        log->start = log->start > from ? log->start - from + head + bytes : head + bytes;
    }
}

/* A log takes no more of the disk when little is left: others need it, and so does the queue. */
static bool is_disk_short(ls_job_log *log, size_t bytes)
{
    struct statvfs disk;
    log->unlooked += bytes;
    if (log->unlooked < LOOK_BYTES) {
        return false;
    }
    log->unlooked = 0;
    if (fstatvfs(log->fd, &disk) != 0 || disk.f_blocks == 0) {
        return false;
    }
    const double unit = (double)disk.f_frsize, part = LEFT_FREE_PART * unit * (double)disk.f_blocks;
    return unit * (double)disk.f_bavail < (part < LEFT_FREE_BYTES ? part : LEFT_FREE_BYTES);
}

static bool write_at(int fd, const char *data, size_t bytes, off_t at)
{
    while (bytes > 0) {
        const ssize_t wrote = pwrite(fd, data, bytes, at);
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        data += wrote > 0 ? wrote : 0;
        at += wrote > 0 ? wrote : 0;
        bytes -= wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

void ls_job_log_append(ls_job_log *log, const void *data, size_t bytes)
{
    off_t size = lseek(log->fd, 0, SEEK_END);
    const bool is_long = (uint64_t)size + bytes > log->bytes_max;
    if ((is_disk_short(log, bytes) || is_long) && size >= SMALLEST_BYTES) {
        cut(log, size, is_long ? log->bytes_max : (uint64_t)size);
        size = lseek(log->fd, 0, SEEK_END);
    }
    if (write_at(log->fd, data, bytes, size)) {
        return;
    }
    log->error = errno;
    if (size >= SMALLEST_BYTES) { /* makes room by dropping the middle, then tries once more */
        cut(log, size, (uint64_t)size);
        (void)write_at(log->fd, data, bytes, lseek(log->fd, 0, SEEK_END));
    }
}
