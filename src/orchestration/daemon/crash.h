// SPDX-License-Identifier: Apache-2.0
/*
 * Crash on request, for tests: LS_TEST_CRASH=N in the daemon's environment kills it (as kill -9
 * does) at the N-th point it passes, counted from 1. A turn that writes something has a point
 * before the transaction, after it, after each order, and after the answers. Without the variable
 * nothing happens.
 */
#ifndef LS_ORCHESTRATION_DAEMON_CRASH_H
#define LS_ORCHESTRATION_DAEMON_CRASH_H

void ls_crash_point(void);

#endif
