// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/internal.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

int ls_api_open_job_file(const char *folder, const char *name, uint32_t uid, uint64_t *bytes_out)
{
    ls_arena arena = {0};
    /* A FIFO must not stop the loop, a device not be touched, a link not be followed. */
    const int fd =
        open(ls_path_join(&arena, folder, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    const int error = errno;
    ls_arena_release(&arena);
    if (fd < 0) {
        return error == ELOOP ? -EPERM : -error;
    }
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != uid) {
        close(fd);
        return -EPERM;
    }
    *bytes_out = (uint64_t)info.st_size;
    return fd;
}

void ls_api_job_folder(const ls_api *api, uint64_t job, ls_text *out)
{
    ls_text_printf(out, "%s/jobs/%" PRIu64, api->home, job);
}

uint64_t ls_api_tail_offset(int fd, uint64_t bytes, uint64_t lines)
{
    enum { BLOCK = 64 * 1024, BLOCKS_MAX = 16 };
    char block[BLOCK];
    uint64_t end = bytes;
    for (int i = 0; i < BLOCKS_MAX && end > 0; i++) {
        const size_t wanted = end < BLOCK ? (size_t)end : BLOCK;
        if (pread(fd, block, wanted, (off_t)(end - wanted)) != (ssize_t)wanted) {
            break;
        }
        for (size_t at = wanted; at-- > 0;) {
            /* The last byte of the file ends its last line, and begins none. */
            if (block[at] == '\n' && end - wanted + at + 1 < bytes && --lines == 0) {
                return end - wanted + at + 1;
            }
        }
        end -= wanted;
    }
    return end;
}
