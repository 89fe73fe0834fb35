// SPDX-License-Identifier: Apache-2.0
#include "env/user/user_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opening must not block on a FIFO, act on a device, or follow a link. */
static int open_path(const ls_user_read *what, const char *path)
{
    const int flags = !what->is_folder  ? O_RDONLY | O_NONBLOCK | O_NOCTTY
                      : what->bytes > 0 ? O_RDONLY | O_DIRECTORY
                                        : O_PATH | O_DIRECTORY;
    return open(path, flags | O_NOFOLLOW | O_CLOEXEC);
}

static size_t read_all(int fd, char *data, size_t bytes, uint64_t offset)
{
    size_t got = 0;
    while (got < bytes) {
        const ssize_t part = pread(fd, data + got, bytes - got, (off_t)(offset + got));
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part <= 0) {
            break;
        }
        got += (size_t)part;
    }
    data[got] = '\0';
    return got;
}

static void read_part(const ls_user_read *what, int fd, ls_user_read_result *r, char **data_out)
{
    const uint64_t size = r->file_bytes, offset = what->offset;
    r->offset = what->from_end ? (offset < size ? size - offset : 0) : offset;
    if (what->bytes == 0 || r->offset >= size) {
        return;
    }
    /* No more than the file had when it was opened, so that a small file costs little memory. */
    uint64_t bytes = what->bytes < size - r->offset ? what->bytes : size - r->offset;
    bytes = bytes < LS_USER_READ_BYTES_MAX ? bytes : LS_USER_READ_BYTES_MAX;
    char *data = malloc(bytes + 1);
    if (!data) {
        r->error = ENOMEM;
        return;
    }
    r->bytes = read_all(fd, data, bytes, r->offset);
    *data_out = data;
}

static void read_names(const ls_user_read *what, int fd, ls_user_read_result *r, char **data_out)
{
    const size_t most = what->bytes < LS_USER_READ_BYTES_MAX ? what->bytes : LS_USER_READ_BYTES_MAX;
    const int copy = dup(fd);
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
    char *data = folder ? malloc(most + 1) : NULL;
    if (!data) {
        r->error = errno;
    }
    for (const struct dirent *entry; data && (entry = readdir(folder));) {
        const size_t bytes = strlen(entry->d_name) + 1;
        if (r->bytes + bytes > most) {
            break;
        }
        memcpy(data + r->bytes, entry->d_name, bytes);
        r->bytes += bytes;
        data[r->bytes] = '\0';
    }
    if (folder) {
        closedir(folder);
    } else if (copy >= 0) {
        close(copy);
    }
    *data_out = data;
}

void ls_user_read_path(const ls_user_read *what, const char *path, ls_user_read_result *r, char **data_out)
{
    struct stat info;
    *r = (ls_user_read_result){0};
    *data_out = NULL;
    const int fd = open_path(what, path);
    if (fd < 0) {
        r->error = errno == ELOOP || errno == ENOTDIR || errno == ENXIO ? EPERM : errno;
        return;
    }
    if (fstat(fd, &info) != 0) {
        r->error = errno;
    } else if (what->is_folder ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode)) {
        r->error = EPERM;
    } else {
        r->owner = info.st_uid;
        r->modified_s = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
        if (!what->is_folder) {
            r->file_bytes = (uint64_t)info.st_size;
            read_part(what, fd, r, data_out);
        } else {
            r->offset = what->from_end ? 0 : what->offset;
            if (what->bytes > 0) {
                read_names(what, fd, r, data_out);
            }
        }
    }
    close(fd);
}
