// SPDX-License-Identifier: Apache-2.0
/* User: names of user numbers. Thread-safe. */
#ifndef LS_ENV_USER_USER_H
#define LS_ENV_USER_USER_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_USER_NAME_BYTES = 64 };

/* Does `path`, a file like /etc/passwd, have a line for that user? Lines may have any length. No
 * other source of names is asked. */
bool ls_user_is_listed(const char *path, const char *name);

/* The name of a user, or the number if there is no name. May block on the name service (LDAP): not
 * to be called from an event loop. */
void ls_user_name(uint32_t uid, char name[LS_USER_NAME_BYTES]);

/* The same with the user's primary group; UINT32_MAX if the user has no entry. */
uint32_t ls_user_name_and_group(uint32_t uid, char name[LS_USER_NAME_BYTES]);

#endif
