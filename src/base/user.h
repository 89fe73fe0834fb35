// SPDX-License-Identifier: Apache-2.0
/* User: what the numbers of users are called. Thread-safe. */
#ifndef LS_BASE_USER_H
#define LS_BASE_USER_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_USER_NAME_BYTES = 64 };

/* Is there a line of that user in `path`, written as /etc/passwd is? Of any length. Asks nobody else. */
bool ls_user_is_listed(const char *path, const char *name);

/* The name of a user, or the number when there is none. May wait for whoever knows names here (LDAP): not for a loop. */
void ls_user_name(uint32_t uid, char name[LS_USER_NAME_BYTES]);

#endif
