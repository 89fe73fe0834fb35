// SPDX-License-Identifier: Apache-2.0
/* Processes of jobs, as /proc shows them. */
#include "orchestration/engines/local/local_internal.h"

#include "base/assert.h"

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
    pid_t parent, session;
    uint64_t cpu_ticks;
} process_stat;

static bool read_stat(pid_t pid, process_stat *stat_out)
{
    char text[1024];
    unsigned long long user = 0, system = 0;
    long parent = 0, session = 0;
    if (read_proc(pid, "stat", text, sizeof text) <= 0) {
        return false;
    }
    const char *behind_name = strrchr(text, ')');
    if (!behind_name || sscanf(behind_name + 1, " %c %ld %*d %ld %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                               &stat_out->state, &parent, &session, &user, &system) != 5) {
        return false;
    }
    stat_out->parent = (pid_t)parent;
    stat_out->session = (pid_t)session;
    stat_out->cpu_ticks = user + system;
    return true;
}

/* Calls `each` for every process of the machine. */
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
    if (look && pid != stat.session) { /* the runner itself is not part of the job */
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
    /* held by a pidfd before it is looked at: its number may belong to another process a moment
     * later */
    const int held = (int)syscall(SYS_pidfd_open, pid, 0);
    if (held >= 0) {
        h->count += has_variable(h, pid) && syscall(SYS_pidfd_send_signal, held, SIGKILL, NULL, 0) == 0;
        close(held);
    }
}

/* ---- descendants ---- */

bool ls_local_is_of_user(pid_t pid, uint32_t uid)
{
    char text[1024];
    unsigned owner = 0;
    const char *line = read_proc(pid, "status", text, sizeof text) > 0 ? strstr(text, "\nUid:") : NULL;
    return line && sscanf(line, "\nUid: %u", &owner) == 1 && owner == uid;
}

typedef struct family_member {
    pid_t pid, parent;
    bool is_of_it;
} family_member;

typedef struct family {
    family_member *members;
    size_t count, capacity;
} family;

static void add_member(void *context, pid_t pid)
{
    family *all = context;
    process_stat stat;
    if (!read_stat(pid, &stat) || stat.state == 'Z' || stat.state == 'X') {
        return;
    }
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 512;
        all->members = realloc(all->members, all->capacity * sizeof *all->members);
        LS_ASSERT(all->members && "not enough memory for a list of processes");
    }
    all->members[all->count++] = (family_member){.pid = pid, .parent = stat.parent};
}

static int compare_members(const void *a, const void *b)
{
    const pid_t x = ((const family_member *)a)->pid, y = ((const family_member *)b)->pid;
    return (x > y) - (x < y);
}

static bool is_child_of(const family *all, const family_member *member, pid_t ancestor)
{
    const family_member key = {.pid = member->parent};
    const family_member *parent = bsearch(&key, all->members, all->count, sizeof key, compare_members);
    return member->parent == ancestor || (parent && parent->is_of_it);
}

/* Held by a pidfd before it is looked at again, as above. */
static bool kill_member(const family_member *member, uint32_t uid)
{
    process_stat now;
    const int held = (int)syscall(SYS_pidfd_open, member->pid, 0);
    const bool is_killed = held >= 0 && read_stat(member->pid, &now) && now.parent == member->parent &&
                           ls_local_is_of_user(member->pid, uid) &&
                           syscall(SYS_pidfd_send_signal, held, SIGKILL, NULL, 0) == 0;
    if (held >= 0) {
        close(held);
    }
    return is_killed;
}

uint32_t ls_local_kill_descendants(pid_t parent, uint32_t uid)
{
    family all = {0};
    uint32_t killed = 0;
    walk(add_member, &all);
    if (all.count > 0) {
        qsort(all.members, all.count, sizeof *all.members, compare_members);
    }
    for (bool is_more = true; is_more;) { /* one generation after the other */
        is_more = false;
        for (size_t i = 0; i < all.count; i++) {
            family_member *member = &all.members[i];
            if (!member->is_of_it && is_child_of(&all, member, parent)) {
                member->is_of_it = is_more = true;
            }
        }
    }
    for (size_t i = 0; i < all.count; i++) {
        killed += all.members[i].is_of_it && kill_member(&all.members[i], uid);
    }
    free(all.members);
    return killed;
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
