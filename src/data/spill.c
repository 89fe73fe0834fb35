// SPDX-License-Identifier: Apache-2.0
#include "data/spill.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t BYTES_MIN = 1 << 16;

ls_status ls_spill_reserve(ls_spill *spill, const char *folder, uint64_t bytes)
{
    if (bytes <= spill->bytes) {
        return LS_OK;
    }
    uint64_t larger = 2 * spill->bytes > BYTES_MIN ? 2 * spill->bytes : BYTES_MIN;
    larger = larger > bytes ? larger : bytes;
    if (spill->fd_plus_one == 0) {
        int fd = -1;
        LS_TRY(ls_file_open_temporary(folder, &fd));
        spill->fd_plus_one = fd + 1;
    }
    const int fd = spill->fd_plus_one - 1;
    /* Room on the disk is taken now: a write to a map could only end the process. */
    const int full = posix_fallocate(fd, (off_t)spill->bytes, (off_t)(larger - spill->bytes));
    if (full != 0) {
        return ls_fail_errno(full, "can't make a temporary file of %llu bytes", (unsigned long long)larger);
    }
    void *data = spill->data ? mremap(spill->data, spill->bytes, larger, MREMAP_MAYMOVE)
                             : mmap(NULL, larger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return ls_fail_errno(errno, "can't map a temporary file of %llu bytes", (unsigned long long)larger);
    }
    spill->data = data;
    spill->bytes = larger;
    return LS_OK;
}

void ls_spill_release(ls_spill *spill)
{
    if (spill->data) {
        munmap(spill->data, spill->bytes);
    }
    if (spill->fd_plus_one > 0) {
        close(spill->fd_plus_one - 1);
    }
    *spill = (ls_spill){0};
}
