// SPDX-License-Identifier: Apache-2.0
/* A folder in which every call hangs: a FUSE file system that nobody serves, as a network that does
 * not answer. */
#ifndef LS_TESTS_HANGING_MOUNT_H
#define LS_TESTS_HANGING_MOUNT_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

/* Returns the descriptor whose end is its end; -1: none to be had here. */
static inline int hanging_mount(const char *path)
{
    char options[96];
    const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other", fd,
             geteuid(), getegid());
    if (fd >= 0 && mount("lockstep", path, "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* What hangs in it fails now. */
static inline void hanging_mount_end(const char *path, int fd)
{
    umount2(path, MNT_DETACH);
    close(fd);
}

#endif
