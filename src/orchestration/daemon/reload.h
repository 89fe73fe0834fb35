// SPDX-License-Identifier: Apache-2.0
/*
 * Reading config.yaml again while the daemon runs (SIGHUP, `lockstep reload`).
 *
 * Limits, accounts, prices and the like take effect at once. What the daemon was built with at its
 * start (engine, devices, address, certificate, order of the queue) keeps its value, and is named,
 * so that no change of the file is lost unnoticed. A file with an error changes nothing.
 */
#ifndef LS_ORCHESTRATION_DAEMON_RELOAD_H
#define LS_ORCHESTRATION_DAEMON_RELOAD_H

#include "base/json.h"
#include "orchestration/daemon/settings.h"

typedef struct ls_reload {
    /* Holds the strings of `file`. */
    ls_arena arena;
    /* As the file was at the start of the daemon, and as it is now. */
    ls_daemon_settings begun, file;
} ls_reload;

/* Remembers the file's settings. path: of config.yaml, which may be absent. Errors: those of
 * ls_daemon_settings_load. */
LS_MUST_CHECK ls_status ls_reload_open(ls_reload *reload, const char *path);
void ls_reload_close(ls_reload *reload);

/*
 * Reads the file again. answer_out: {"config": path, "changed": [keys that take effect now],
 * "restart": [keys that differ from the start of the daemon and need a restart]}, which the caller
 * drops; reload->file then has the new settings. Errors: LS_ERR_INVALID with file and line; nothing
 * has changed then.
 */
LS_MUST_CHECK ls_status ls_reload_read(ls_reload *reload, const char *path, json_t **answer_out);

#endif
