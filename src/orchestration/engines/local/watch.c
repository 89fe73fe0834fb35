// SPDX-License-Identifier: Apache-2.0
/* Processes of jobs, in the kernel's books. */
#include "orchestration/engines/local/local_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENVIRON_BYTES_MAX = 256 * 1024 };

static ssize_t read_proc(pid_t pid, const char *name, char *data, size_t limit)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    size_t bytes = 0;
    for (ssize_t got = 1; got > 0 && bytes<limit - 1; bytes += got> 0 ? (size_t)got : 0) {
        got = read(fd, data + bytes, limit - 1 - bytes);
    }
    close(fd);
    data[bytes] = '\0';
    return (ssize_t)bytes;
}

typedef struct process_stat {
    char state;
    pid_t session;
    uint64_t cpu_ticks;
} process_stat;

static bool read_stat(pid_t pid, process_stat *stat_out)
{
    char text[1024];
    unsigned long long user = 0, system = 0;
    long session = 0;
    if (read_proc(pid, "stat", text, sizeof text) <= 0) {
        return false;
    }
    const char *behind_name = strrchr(text, ')');
    if (!behind_name || sscanf(behind_name + 1, " %c %*d %*d %ld %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                               &stat_out->state, &session, &user, &system) != 4) {
        return false;
    }
    stat_out->session = (pid_t)session;
    stat_out->cpu_ticks = user + system;
    return true;
}

/* Calls `each` with every process there is. */
static void walk(void (*each)(void *context, pid_t pid), void *context)
{
    DIR *folder = opendir("/proc");
    if (!folder) {
        return;
    }
    for (const struct dirent *item; (item = readdir(folder));) {
        char *end = NULL;
        const long pid = strtol(item->d_name, &end, 10);
        if (pid > 1 && *end == '\0') {
            each(context, (pid_t)pid);
        }
    }
    closedir(folder);
}

/* ---- how busy ---- */

typedef struct look_list {
    ls_local_look *looks;
    uint32_t count;
} look_list;

static int compare_sessions(const void *key, const void *item)
{
    const pid_t wanted = *(const pid_t *)key, there = ((const ls_local_look *)item)->session;
    return (wanted > there) - (wanted < there);
}

static void add_process(void *context, pid_t pid)
{
    const look_list *list = context;
    process_stat stat;
    if (!read_stat(pid, &stat)) {
        return;
    }
    ls_local_look *look =
        bsearch(&stat.session, list->looks, list->count, sizeof *list->looks, compare_sessions);
    if (look && pid != stat.session) { /* the runner itself is no part of the job */
        look->cpu_ms += stat.cpu_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
    }
}

void ls_local_look_all(ls_local_look *looks, uint32_t count)
{
    look_list list = {looks, count};
    for (uint32_t i = 0; i < count; i++) {
        looks[i].cpu_ms = 0;
    }
    walk(add_process, &list);
}

/* ---- what is left ---- */

typedef struct hunt {
    pid_t self;
    const char *variable; /* "LOCKSTEP_JOB_DIR=..." */
    char *data;
    uint32_t count;
} hunt;

static bool has_variable(const hunt *h, pid_t pid)
{
    const ssize_t bytes = read_proc(pid, "environ", h->data, ENVIRON_BYTES_MAX);
    for (const char *at = h->data; bytes > 0 && at < h->data + bytes; at += strlen(at) + 1) {
        if (strcmp(at, h->variable) == 0) {
            return true;
        }
    }
    return false;
}

static void kill_leftover(void *context, pid_t pid)
{
    hunt *h = context;
    process_stat stat;
    if (pid == h->self || !read_stat(pid, &stat) || stat.state == 'Z' || stat.state == 'X') {
        return;
    }
    /* Held on to before it is asked who it is: the number may be another's a moment later. */
    const int held = (int)syscall(SYS_pidfd_open, pid, 0);
    if (held >= 0) {
        h->count += has_variable(h, pid) && syscall(SYS_pidfd_send_signal, held, SIGKILL, NULL, 0) == 0;
        close(held);
    }
}

uint32_t ls_local_kill_leftovers(const char *folder)
{
    char variable[LS_LOCAL_PATH_BYTES + 32];
    snprintf(variable, sizeof variable, "LOCKSTEP_JOB_DIR=%s", folder);
    hunt h = {.self = getpid(), .variable = variable, .data = malloc(ENVIRON_BYTES_MAX)};
    if (h.data) {
        walk(kill_leftover, &h);
        free(h.data);
    }
    return h.count;
}
