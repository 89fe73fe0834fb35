// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/home_trust.h"

#include "env/user/user.h"
#include "orchestration/job/job.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether only the owner is in the group: it has the owner's name and no other members. */
static bool is_private_group(const struct stat *info)
{
    char buffer[4096], name[LS_USER_NAME_BYTES];
    struct group entry, *group = NULL;
    ls_user_name((uint32_t)info->st_uid, name);
    if (getgrgid_r(info->st_gid, &entry, buffer, sizeof buffer, &group) != 0 || !group ||
        strcmp(group->gr_name, name) != 0) {
        return false;
    }
    for (char **member = group->gr_mem; *member; member++) {
        if (strcmp(*member, name) != 0) {
            return false;
        }
    }
    return true;
}

static ls_status has_wrong_owner(const char *path, const struct stat *info)
{
    char owner[LS_USER_NAME_BYTES], own[LS_USER_NAME_BYTES];
    ls_user_name((uint32_t)info->st_uid, owner);
    ls_user_name((uint32_t)geteuid(), own);
    return ls_fail(LS_ERR_INVALID,
                   "%s belongs to user %s (mode %04o), who could use it to give orders to a daemon of user "
                   "%s: set LOCKSTEP_HOME to a folder of user %s, or run 'chown %s %s'",
                   path, owner, (unsigned)info->st_mode & 07777, own, own, own, path);
}

static ls_status is_writable(const char *path, const struct stat *info)
{
    char owner[LS_USER_NAME_BYTES];
    ls_user_name((uint32_t)info->st_uid, owner);
    const bool by_all = (info->st_mode & S_IWOTH) != 0;
    return ls_fail(LS_ERR_INVALID,
                   "%s (owner %s, group %ld, mode %04o) can be written by %s, who could use it to give "
                   "orders to the daemon: run 'chmod %s %s', or set LOCKSTEP_HOME to another folder",
                   path, owner, (long)info->st_gid, (unsigned)info->st_mode & 07777,
                   by_all ? "every user" : "users of that group", by_all ? "go-w" : "g-w", path);
}

/* is_above: a folder on the way to what is trusted. */
static ls_status check_one(const char *path, bool is_above)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return ls_fail_errno(errno, "can't look at %s", path);
    }
    if (info.st_uid != 0 && info.st_uid != geteuid()) {
        return has_wrong_owner(path, &info);
    }
    const bool is_sticky = is_above && S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX);
    const bool is_safe =
        is_sticky || (!(info.st_mode & S_IWOTH) && (!(info.st_mode & S_IWGRP) || is_private_group(&info)));
    return is_safe ? LS_OK : is_writable(path, &info);
}

/* The path, and every folder above it. */
static ls_status check_path(const char *path)
{
    char part[LS_JOB_PATH_BYTES_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        return ls_fail(LS_ERR_INVALID, "the path %s is too long", path);
    }
    LS_TRY(check_one(part, false));
    for (char *slash; (slash = strrchr(part, '/')) != NULL;) {
        slash[slash == part] = '\0'; /* of /a, / stays */
        LS_TRY(check_one(part, true));
        if (slash == part) {
            break;
        }
    }
    return LS_OK;
}

ls_status ls_home_trust(const char *home)
{
    static const char *const names[] = {"config.yaml",     "token", "lockstep.db", "lockstep.db-wal",
                                        "lockstep.db-shm", "lock",  "daemon.log",  "jobs"};
    LS_TRY(check_path(home));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[LS_JOB_PATH_BYTES_MAX];
        if (snprintf(path, sizeof path, "%s/%s", home, names[i]) >= (int)sizeof path) {
            return ls_fail(LS_ERR_INVALID, "the path of the daemon's folder, %s, is too long", home);
        }
        char *real = realpath(path, NULL); /* a link to a file elsewhere counts as that file */
        if (!real && errno == ENOENT) {
            continue;
        }
        const ls_status status = real ? check_path(real) : ls_fail_errno(errno, "can't look at %s", path);
        free(real);
        LS_TRY(status);
    }
    return LS_OK;
}
