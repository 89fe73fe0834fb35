// SPDX-License-Identifier: Apache-2.0
#include "execution/run/run_dir.h"

#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static ls_status move_aside(ls_arena *arena, const char *path, const char **moved_out)
{
    for (int i = 1; i < 100000; i++) {
        const char *aside = ls_arena_printf(arena, "%s.old-%d", path, i);
        if (ls_path_exists(aside)) {
            continue;
        }
        if (rename(path, aside) != 0) {
            return ls_fail_errno(errno, "cannot move %s aside to %s", path, aside);
        }
        *moved_out = aside;
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID,
                   "cannot move %s aside: %s.old-1 to %s.old-99999 all exist; remove some of them", path,
                   path, path);
}

static ls_status take_lock(ls_arena *arena, const char *path, int *fd_out)
{
    const char *name = ls_path_join(arena, path, "lock");
    const int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return ls_fail_errno(errno, "cannot create %s", name);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        char holder[300] = "";
        const ssize_t got = pread(fd, holder, sizeof holder - 1, 0);
        holder[got > 0 ? strcspn(holder, "\n") : 0] = '\0';
        close(fd);
        if (error != EWOULDBLOCK) {
            return ls_fail_errno(error, "cannot lock %s", name);
        }
        return ls_fail(LS_ERR_INVALID,
                       "%s is in use by process %s: wait for it, stop it, or choose another --run-dir", path,
                       holder[0] ? holder : "(unknown)");
    }
    char holder[300], host[256] = "this host";
    gethostname(host, sizeof host - 1);
    const int bytes = snprintf(holder, sizeof holder, "%d on %s\n", (int)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, holder, (size_t)bytes, 0) != bytes) {
        ls_log_debug("cannot write the process number to %s", name);
    }
    *fd_out = fd;
    return LS_OK;
}

/* Whether a run that ended before it wrote run.yaml may have left this file. */
static bool is_left_over(const char *name)
{
    static const char *const ours[] = {"run.yaml.tmp.", "tokenizer.json", "time.jsonl", "control",
                                       "coordinator.log"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (strncmp(name, ours[i], strlen(ours[i])) == 0) {
            return true;
        }
    }
    return strcmp(name, "lock") == 0 || strcmp(name, "flight") == 0;
}

/* Fails if the folder holds files but no run: it then belongs to something else. */
static ls_status check_foreign(ls_arena *arena, const char *path)
{
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(arena, path, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (!is_left_over(names[i])) {
            return ls_fail(
                LS_ERR_INVALID,
                "%s is not a run directory: it holds '%s' but no run.yaml. Choose another --run-dir", path,
                names[i]);
        }
    }
    return LS_OK;
}

ls_status ls_run_dir_open(ls_arena *arena, const char *path, ls_run_mode mode, ls_run_dir *dir_out)
{
    const char *run_yaml = ls_path_join(arena, path, "run.yaml");
    const bool had_run = ls_path_exists(run_yaml);
    if (!had_run && mode == LS_RUN_RESUME) {
        return ls_fail(LS_ERR_INVALID,
                       "nothing to resume: %s has no run.yaml. Leave out --resume to begin a new run", path);
    }
    int lock_fd = -1;
    const bool is_there = ls_path_exists(path);
    if (is_there) {
        if (!had_run) {
            LS_TRY(check_foreign(arena, path));
        }
        LS_TRY(take_lock(arena, path, &lock_fd));
    }
    if (lock_fd < 0) {
        LS_TRY(ls_dir_create(path));
        LS_TRY(take_lock(arena, path, &lock_fd));
    }
    *dir_out = (ls_run_dir){
        .path = ls_arena_strdup(arena, path),
        .checkpoints = ls_path_join(arena, path, "checkpoints"),
        .lock_fd = lock_fd,
        .had_run = had_run && mode != LS_RUN_FRESH,
        .replace = had_run && mode == LS_RUN_FRESH,
        .is_new = !is_there,
    };
    return LS_OK;
}

ls_status ls_run_dir_settle(ls_arena *arena, ls_run_dir *dir, const char **moved_out)
{
    *moved_out = NULL;
    dir->is_new = false;
    if (!dir->replace) {
        return LS_OK;
    }
    LS_TRY(move_aside(arena, dir->path, moved_out));
    ls_run_dir_close(dir); /* the lock went with the old folder */
    LS_TRY(ls_dir_create(dir->path));
    dir->replace = false;
    return take_lock(arena, dir->path, &dir->lock_fd);
}

void ls_run_dir_close(ls_run_dir *dir)
{
    char lock[PATH_MAX];
    if (dir->is_new && snprintf(lock, sizeof lock, "%s/lock", dir->path) < (int)sizeof lock) {
        (void)unlink(lock);
        (void)rmdir(dir->path); /* fails if something else was put into it */
        dir->is_new = false;
    }
    if (dir->lock_fd >= 0) {
        close(dir->lock_fd);
    }
    dir->lock_fd = -1;
}

ls_status ls_run_dir_begun(ls_arena *arena, const ls_run_dir *dir, ls_run_file *begun_out)
{
    const char *path = ls_path_join(arena, dir->path, "run.yaml");
    const ls_status status = ls_run_file_load(path, NULL, 0, arena, begun_out);
    return status == LS_OK
               ? LS_OK
               : ls_fail_within(
                     status, "the earlier run in %s cannot be read; --fresh moves it aside and starts over",
                     dir->path);
}

ls_status ls_run_dir_check_identity(const ls_run_dir *dir, const ls_run_file *begun, const ls_run_file *now)
{
    ls_text differences = {0};
    const size_t count = ls_run_file_diff(begun, now, &differences);
    if (count == 0) {
        ls_text_release(&differences);
        return LS_OK;
    }
    const ls_status result =
        ls_fail(LS_ERR_INVALID,
                "%s holds another run; %zu setting%s that affect%s the result differ%s:\n%sUse the old "
                "value%s, another --run-dir, or --fresh to start over (the old run is moved aside)",
                dir->path, count, count == 1 ? "" : "s", count == 1 ? "s" : "", count == 1 ? "s" : "",
                ls_text_string(&differences), count == 1 ? "" : "s");
    ls_text_release(&differences);
    return result;
}
