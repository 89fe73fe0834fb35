// SPDX-License-Identifier: Apache-2.0
#include "base/user.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

void ls_user_name(uint32_t uid, char name[LS_USER_NAME_BYTES])
{
    char buffer[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r((uid_t)uid, &entry, buffer, sizeof buffer, &found) == 0 && found && found->pw_name[0] &&
        strlen(found->pw_name) < LS_USER_NAME_BYTES) {
        memcpy(name, found->pw_name, strlen(found->pw_name) + 1);
    } else {
        snprintf(name, LS_USER_NAME_BYTES, "%" PRIu32, uid);
    }
}
