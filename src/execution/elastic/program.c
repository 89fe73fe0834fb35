// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"
#include "execution/elastic/agent.h"
#include "execution/elastic/cluster_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

ls_status ls_program_hash(uint64_t *hash_out)
{
    struct stat info;
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return ls_fail_errno(error, "can't read the program that runs (/proc/self/exe)");
    }
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    close(fd);
    if (map == MAP_FAILED) {
        return ls_fail_errno(error, "can't read the program that runs (/proc/self/exe)");
    }
    *hash_out = ls_xxh3(map, (size_t)info.st_size, 0);
    munmap(map, (size_t)info.st_size);
    return LS_OK;
}

void ls_program_path(char path_out[LS_PROGRAM_BYTES])
{
    static const char running[] = "/proc/self/exe";
    struct stat by_name, by_kernel;
    const ssize_t bytes = readlink(running, path_out, LS_PROGRAM_BYTES - 1);
    path_out[bytes > 0 ? bytes : 0] = '\0';
    if (bytes <= 0 || stat(path_out, &by_name) != 0 || stat(running, &by_kernel) != 0 ||
        by_name.st_dev != by_kernel.st_dev || by_name.st_ino != by_kernel.st_ino) {
        snprintf(path_out, LS_PROGRAM_BYTES, "%s", running);
    }
}
