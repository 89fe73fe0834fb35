// SPDX-License-Identifier: Apache-2.0
/*
 * Signals that ask a run to stop: SIGINT (a person), SIGTERM (a scheduler) and SIGHUP (a closed
 * terminal).
 *
 * The handler only stores which signal arrived; the trainer checks between micro-batches. A second
 * SIGINT ends the process at once.
 */
#ifndef LS_EXECUTION_RUN_SIGNALS_H
#define LS_EXECUTION_RUN_SIGNALS_H

#include "base/status.h"

/* Installs the handlers and forgets earlier signals. */
void ls_signals_install(void);
/* Restores the default handling. */
void ls_signals_restore(void);
/* LS_OK, LS_INTERRUPTED or LS_STOPPED. */
ls_status ls_signals_status(void);

#endif
