// SPDX-License-Identifier: Apache-2.0
/*
 * Control groups of jobs (cgroup version 2):
 *
 *   MOUNT/the daemon's own/lockstep-HASH/         of the queue of one home; its path is kept in
 *                                                 HOME/group, because a later daemon may be in
 *                                                 another group
 *                                        job-N-E  the runner and everything it starts
 */
#include "orchestration/engines/local/local_internal.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* So many processes and threads may a job have: more than any that works, less than a machine. */
enum { PROCESSES_OF_JOB = 4096, PROCESSES_OF_RANK = 1024 };

static bool write_word(const char *folder, const char *name, const char *word)
{
    char path[LS_LOCAL_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool good = fd >= 0 && write(fd, word, strlen(word)) == (ssize_t)strlen(word);
    const int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return good;
}

static bool read_text(const char *folder, const char *name, char *text, size_t limit)
{
    char path[LS_LOCAL_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, limit - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Reads the number after `key` at the start of a line. */
static bool read_number(const char *folder, const char *name, const char *key, uint64_t *value_out)
{
    char text[4096];
    if (!read_text(folder, name, text, sizeof text)) {
        return false;
    }
    const size_t bytes = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, key, bytes) == 0 && line[bytes] == ' ') {
            *value_out = strtoull(line + bytes + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

/* ---- where ---- */

/* The group of a process, from its line "0::/the/path". */
static bool path_of_process(pid_t pid, char *path, size_t limit)
{
    char folder[64], text[LS_LOCAL_PATH_BYTES];
    snprintf(folder, sizeof folder, "/proc/%ld", (long)pid);
    if (!read_text(folder, "cgroup", text, sizeof text)) {
        return false;
    }
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    line = line ? strstr(line, "0::") + 3 : NULL;
    if (!line) {
        return false;
    }
    snprintf(path, limit, "%.*s", (int)strcspn(line, "\n"), line);
    return path[0] == '/';
}

static bool find_mount(char *path, size_t limit)
{
    char line[LS_LOCAL_PATH_BYTES], folder[1024], type[64];
    FILE *mounts = fopen("/proc/self/mounts", "re");
    bool found = false;
    while (mounts && !found && fgets(line, sizeof line, mounts)) {
        found = sscanf(line, "%*s %1023s %63s", folder, type) == 2 && strcmp(type, "cgroup2") == 0 &&
                !strchr(folder, '\\'); /* a name with escapes is not supported */
    }
    if (mounts) {
        fclose(mounts);
    }
    if (found) {
        snprintf(path, limit, "%s", folder);
    }
    return found;
}

/* Whether processes can be moved into the group; tried with one that ends at once. */
static bool takes_processes(const char *group)
{
    char probe[LS_LOCAL_PATH_BYTES + 16];
    int status = -1;
    snprintf(probe, sizeof probe, "%s/probe", group);
    if (mkdir(probe, 0755) != 0 && errno != EEXIST) {
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(write_word(probe, "cgroup.procs", "0") ? 0 : 1);
    }
    const bool is_in = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    const bool can_kill = write_word(probe, "cgroup.kill", "1"); /* since Linux 5.14 */
    for (int round = 0; rmdir(probe) != 0 && errno == EBUSY && round < 1000; round++) {
        usleep(1000); /* its process has not quite ended yet */
    }
    return is_in && can_kill;
}

/* Passes the controllers on to the groups in `folder`, as far as it has them itself. The kernel
 * refuses that for a group with processes of its own. */
static void pass_on(const char *folder)
{
    static const char *const words[] = {"+memory", "+pids", "+cpu"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        (void)!write_word(folder, "cgroup.subtree_control", words[i]);
    }
}

/* Whether jobs' groups in `groups` can have limits. */
static bool has_limits(const char *groups)
{
    char text[512];
    return read_text(groups, "cgroup.subtree_control", text, sizeof text) && strstr(text, "memory") &&
           strstr(text, "pids");
}

static bool use_known(const char *home, ls_local_path *groups)
{
    if (!read_text(home, "group", groups->text, sizeof groups->text)) {
        return false;
    }
    groups->text[strcspn(groups->text, "\n")] = '\0';
    if (groups->text[0] != '/' || !takes_processes(groups->text)) {
        return false;
    }
    pass_on(groups->text);
    return true;
}

static bool make_in(const char *parent, const char *home, ls_local_path *groups)
{
    snprintf(groups->text, sizeof groups->text, "%.3900s/lockstep-%016" PRIx64, parent,
             ls_xxh3(home, strlen(home), 0));
    if ((mkdir(groups->text, 0755) != 0 && errno != EEXIST) || !takes_processes(groups->text)) {
        return false;
    }
    pass_on(parent);
    pass_on(groups->text);
    return true;
}

/* Below the daemon's own group; or at the top, where root gets controllers that the daemon's own
 * group, which has a process in it, cannot pass on. */
static bool make_new(const char *home, ls_local_path *groups)
{
    char mount[1024], own[2048], parent[LS_LOCAL_PATH_BYTES], file[LS_LOCAL_PATH_BYTES + 16];
    ls_local_path top;
    if (!find_mount(mount, sizeof mount) || !path_of_process(getpid(), own, sizeof own)) {
        return false;
    }
    snprintf(parent, sizeof parent, "%s%s", mount, strcmp(own, "/") == 0 ? "" : own);
    bool is_made = make_in(parent, home, groups);
    if (geteuid() == 0 && strcmp(own, "/") != 0 && !(is_made && has_limits(groups->text)) &&
        make_in(mount, home, &top)) {
        const bool is_better = !is_made || has_limits(top.text);
        (void)rmdir(is_better ? groups->text : top.text);
        *groups = is_better ? top : *groups;
        is_made = true;
    }
    snprintf(file, sizeof file, "%s/group", home);
    return is_made && ls_file_write_atomic(file, groups->text, strlen(groups->text)) == LS_OK;
}

ls_local_path ls_local_groups_open(const char *home, char note[LS_LOCAL_NOTE_BYTES])
{
    ls_local_path groups;
    note[0] = '\0';
    if (use_known(home, &groups) || make_new(home, &groups)) {
        ls_log_info("control groups of jobs are in %s", groups.text);
        if (!has_limits(groups.text)) {
            snprintf(note, LS_LOCAL_NOTE_BYTES,
                     "limits of jobs on memory, processes and CPU are not enforced: %.200s lacks the control "
                     "group controllers memory and pids",
                     groups.text);
        }
    } else {
        groups.text[0] = '\0';
        snprintf(note, LS_LOCAL_NOTE_BYTES,
                 "limits of jobs on memory, processes and CPU are not enforced: the daemon cannot create "
                 "control groups (version 2) here");
        ls_log_info(
            "cannot create control groups here: leftover processes of a job are found by their environment");
    }
    if (note[0]) {
        ls_log_info("%s", note);
    }
    return groups;
}

/* ---- one ---- */

ls_local_path ls_local_group(const ls_local_path *groups, uint64_t job, uint32_t epoch)
{
    ls_local_path path = {.text = ""};
    if (groups->text[0]) {
        snprintf(path.text, sizeof path.text, "%.4000s/job-%" PRIu64 "-%u", groups->text, job, epoch);
    }
    return path;
}

bool ls_local_group_make(const ls_local_path *group)
{
    return group->text[0] && (mkdir(group->text, 0755) == 0 || errno == EEXIST);
}

void ls_local_group_limit(const ls_local_path *group, const ls_local_limits *limits)
{
    char word[32];
    const uint64_t weight = 10 * (uint64_t)limits->cpus;
    snprintf(word, sizeof word, "%" PRIu64, limits->memory_bytes);
    (void)!write_word(group->text, "memory.max", limits->memory_bytes > 0 ? word : "max");
    snprintf(word, sizeof word, "%u", PROCESSES_OF_JOB + PROCESSES_OF_RANK * limits->ranks);
    (void)!write_word(group->text, "pids.max", word);
    snprintf(word, sizeof word, "%" PRIu64, weight < 1 ? 1 : weight > 10000 ? 10000 : weight);
    (void)!write_word(group->text, "cpu.weight", word);
}

void ls_local_group_enter(const char *group)
{
    (void)!write_word(group, "cgroup.procs", "0");
}

bool ls_local_group_has(const ls_local_path *group, pid_t pid)
{
    char path[LS_LOCAL_PATH_BYTES];
    if (!group->text[0] || !path_of_process(pid, path, sizeof path)) {
        return false;
    }
    const size_t bytes = strlen(path), all = strlen(group->text);
    return bytes > 1 && bytes <= all && strcmp(group->text + all - bytes, path) == 0;
}

bool ls_local_group_kill(const ls_local_path *group)
{
    uint64_t populated = 0;
    (void)!write_word(group->text, "cgroup.kill", "1");
    return read_number(group->text, "cgroup.events", "populated", &populated) && populated != 0;
}

bool ls_local_group_cpu_ms(const ls_local_path *group, uint64_t *cpu_ms_out)
{
    uint64_t us = 0;
    if (!read_number(group->text, "cpu.stat", "usage_usec", &us)) {
        return false;
    }
    *cpu_ms_out = us / 1000;
    return true;
}

bool ls_local_group_remove(const ls_local_path *group)
{
    return !group->text[0] || rmdir(group->text) == 0 || errno == ENOENT;
}

static bool is_tracked(const local_engine *e, const char *name)
{
    uint64_t job = 0;
    uint32_t epoch = 0;
    if (sscanf(name, "job-%" SCNu64 "-%" SCNu32, &job, &epoch) != 2) {
        return true; /* not one of our groups */
    }
    const track *t = e->tracks;
    while (t && (t->job != job || t->epoch != epoch)) {
        t = t->next;
    }
    return t != NULL;
}

void ls_local_groups_sweep(const local_engine *e)
{
    DIR *folder = e->groups.text[0] ? opendir(e->groups.text) : NULL;
    for (const struct dirent *item; folder && (item = readdir(folder));) {
        /* a group with a track may be empty because its runner is about to enter it */
        if (!is_tracked(e, item->d_name)) {
            (void)unlinkat(dirfd(folder), item->d_name, AT_REMOVEDIR);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

void ls_local_groups_close(const local_engine *e)
{
    if (e->groups.text[0]) {
        ls_local_groups_sweep(e);
        (void)rmdir(e->groups.text); /* fails while something still runs in it */
    }
}
