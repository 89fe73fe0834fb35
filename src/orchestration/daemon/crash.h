// SPDX-License-Identifier: Apache-2.0
/*
 * Crashes on request, so that tests can see what one costs: LS_TEST_CRASH=N in
 * the daemon's environment kills it (as kill -9 does) at the N-th point that it
 * passes, counted from 1. Points are, in each turn that writes something:
 * before the transaction, behind it, behind each order, and behind the answers.
 * Without the variable nothing happens.
 */
#ifndef LS_ORCHESTRATION_DAEMON_CRASH_H
#define LS_ORCHESTRATION_DAEMON_CRASH_H

void ls_crash_point(void);

#endif
