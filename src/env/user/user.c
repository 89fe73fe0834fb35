// SPDX-License-Identifier: Apache-2.0
#include "env/user/user.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ls_user_is_listed(const char *path, const char *name)
{
    const size_t bytes = strlen(name);
    char *line = NULL;
    size_t room = 0;
    bool is_there = false;
    FILE *list = fopen(path, "re");
    while (list && bytes > 0 && !is_there && getline(&line, &room, list) >= 0) {
        is_there = strncmp(line, name, bytes) == 0 && line[bytes] == ':';
    }
    free(line);
    if (list) {
        fclose(list);
    }
    return is_there;
}

uint32_t ls_user_name_and_group(uint32_t uid, char name[LS_USER_NAME_BYTES])
{
    char buffer[4096];
    struct passwd entry, *found = NULL;
    const bool is_there = getpwuid_r((uid_t)uid, &entry, buffer, sizeof buffer, &found) == 0 && found != NULL;
    if (is_there && found->pw_name[0] && strlen(found->pw_name) < LS_USER_NAME_BYTES) {
        memcpy(name, found->pw_name, strlen(found->pw_name) + 1);
    } else {
        snprintf(name, LS_USER_NAME_BYTES, "%" PRIu32, uid);
    }
    return is_there ? (uint32_t)found->pw_gid : UINT32_MAX;
}

void ls_user_name(uint32_t uid, char name[LS_USER_NAME_BYTES])
{
    (void)ls_user_name_and_group(uid, name);
}
