// SPDX-License-Identifier: Apache-2.0
/*
 * Daemon: one process, one thread, one loop (docs/design/004-one-queue.md).
 *
 * What comes in from the API, from the engine and from the clock is handed to
 * the controller; what comes out of a turn is written in one transaction, and
 * only then ordered and answered. Everything is under one folder:
 *
 *   HOME/lock          locked as long as a daemon runs, with its number in it:
 * a second one refuses HOME/lockstep.db   the store HOME/config.yaml   settings
 * (daemon/settings.h) HOME/jobs/N/       run file, tickets, logs of job N
 *   HOME/socket, address, token    how it is asked (api/server.h)
 */
#ifndef LS_ORCHESTRATION_DAEMON_DAEMON_H
#define LS_ORCHESTRATION_DAEMON_DAEMON_H

#include "base/status.h"
#include "orchestration/daemon/settings.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct ls_daemon ls_daemon;

/*
 * Locks the folder, opens the store, finds out what became of jobs that ran,
 * and opens the doors. Nothing is done before ls_daemon_run. home: absolute,
 * made when it is not there. program: this program, absolute. Errors:
 * LS_ERR_FAILED when another daemon has the folder (with its number),
 * LS_ERR_DISK, LS_ERR_DATA, LS_ERR_INVALID.
 */
LS_MUST_CHECK ls_status ls_daemon_create(const char *home, const char *program,
                                         const ls_daemon_settings *settings, ls_daemon **daemon_out);

/* Until it is told to end: by LS_VERB_DOWN or SIGTERM. Jobs go on. */
void ls_daemon_run(ls_daemon *daemon);
void ls_daemon_destroy(ls_daemon *daemon);

/* "http://127.0.0.1:8421", "" without TCP. */
const char *ls_daemon_address(const ls_daemon *daemon);

/*
 * Who has the folder: a process number. Errors: LS_ERR_NOT_FOUND (no daemon runs there), LS_ERR_INVALID (the folder is another user's, with his
 * name), LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_daemon_find(const char *home, pid_t *pid_out);

#endif
