// SPDX-License-Identifier: Apache-2.0
/*
 * Own log: standard error of a daemon in the background is HOME/daemon.log. It has a largest size:
 * then it becomes daemon.log.1, and a new one begins. A file that was moved away or removed is
 * replaced by a new one, within a second or with SIGHUP.
 */
#ifndef LS_ORCHESTRATION_DAEMON_OWN_LOG_H
#define LS_ORCHESTRATION_DAEMON_OWN_LOG_H

#include "base/status.h"

#include <stdbool.h>

enum { LS_OWN_LOG_MIB = 32 };

/* Makes standard output and standard error of this process that file. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_own_log_open(const char *home);
/* Whether standard error is that file. Otherwise somebody else keeps what is printed. */
bool ls_own_log_is_used(const char *home);
/* For a log that is used: begins a new file where one is due. */
void ls_own_log_keep(const char *home);

#endif
