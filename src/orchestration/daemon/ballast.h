// SPDX-License-Identifier: Apache-2.0
/*
 * Ballast: a file beside the database that only takes up room. Jobs of others may fill the disk;
 * the daemon then gives up its ballast, and can still write down what it has to.
 */
#ifndef LS_ORCHESTRATION_DAEMON_BALLAST_H
#define LS_ORCHESTRATION_DAEMON_BALLAST_H

#include <stdbool.h>

enum { LS_BALLAST_MIB = 8 };

/* Makes HOME/ballast unless it is there, or the disk has less than twice as much room. Returns
 * whether it is there. */
bool ls_ballast_fill(const char *home);
/* Removes it. Returns whether that made room. */
bool ls_ballast_release(const char *home);

/* Releases it if the disk is so full that a daemon could not start. */
bool ls_ballast_make_room(const char *home);

#endif
