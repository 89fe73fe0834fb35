// SPDX-License-Identifier: Apache-2.0
/*
 * Daemon: one process, one thread, one loop (docs/design/004-one-queue.md).
 *
 * What comes in from the API, the engine and the clock is handed to the controller. What a turn of
 * the controller changes is written in one transaction; only then are its orders carried out and
 * its answers sent. Everything is under one folder:
 *
 *   HOME/lock                     held while a daemon runs (daemon/home_lock.h)
 *   HOME/lockstep.db              the store
 *   HOME/config.yaml              settings (daemon/settings.h)
 *   HOME/jobs/N/                  run file, tickets and logs of job N
 *   HOME/socket, address, token   where and how to reach it (api/server.h)
 */
#ifndef LS_ORCHESTRATION_DAEMON_DAEMON_H
#define LS_ORCHESTRATION_DAEMON_DAEMON_H

#include "base/status.h"
#include "orchestration/daemon/settings.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct ls_daemon ls_daemon;

/*
 * Locks the folder, opens the store, finds out what became of jobs that ran, and starts to listen.
 * Nothing else is done before ls_daemon_run. home: absolute; made if it does not exist. program:
 * this program, absolute. Errors: LS_ERR_FAILED (another daemon has the folder, with its process
 * number), LS_ERR_DISK, LS_ERR_DATA, LS_ERR_INVALID.
 */
LS_MUST_CHECK ls_status ls_daemon_create(const char *home, const char *program,
                                         const ls_daemon_settings *settings, ls_daemon **daemon_out);

/*
 * Whether ls_daemon_create would accept the settings, without starting, writing or locking
 * anything: accounts, address, certificate and key, and whether the engine answers.
 * Errors: as for ls_daemon_create.
 */
LS_MUST_CHECK ls_status ls_daemon_check(const char *home, const ls_daemon_settings *settings);

/* Runs until LS_VERB_DOWN or SIGTERM. Jobs keep running. */
void ls_daemon_run(ls_daemon *daemon);
void ls_daemon_destroy(ls_daemon *daemon);

/* One line for whoever starts it, about what does not work on this machine; "": all does. */
const char *ls_daemon_note(const ls_daemon *daemon);
/* "http://127.0.0.1:8421"; "" without TCP. */
const char *ls_daemon_address(const ls_daemon *daemon);

#endif
