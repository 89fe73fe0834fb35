// SPDX-License-Identifier: Apache-2.0
/*
 * Terminal: an interactive job. The person's terminal and the job's program meet at a socket that
 * the person's process made, so the daemon and the job's runner need not know about it.
 *
 *   submit --pty                              the job, when it has its devices
 *   keyboard, screen <--> socket listens  <-->  job-terminal: connects, opens a pseudo-terminal,
 *                                               runs the program in it
 *
 * Packets on the socket (SOCK_SEQPACKET), first byte: 'd' what was typed or is to be shown, 'w'
 * rows and columns (two 16-bit numbers), 'x' the program's exit code. If one side goes away, the
 * other notices at once: a program without its person gets SIGHUP, as when a terminal is closed.
 *
 * What is typed is also noted in the job's folder, so that the queue knows whether the job is used.
 * Both ends are on one machine and belong to the same user, which is checked. Not thread-safe.
 */
#ifndef LS_ORCHESTRATION_CLIENT_TERMINAL_H
#define LS_ORCHESTRATION_CLIENT_TERMINAL_H

#include "base/status.h"

#include <stdbool.h>

typedef struct ls_pty ls_pty;

/* Makes a socket in a new folder that only this user can enter. Errors: LS_ERR_INVALID if standard
 * input or output is not a terminal; LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_pty_listen(ls_pty **terminal_out);
/* Path of the socket, for ls_pty_serve. */
const char *ls_pty_path(const ls_pty *terminal);
/* Waits for the job to connect. connected_out: false after timeout_s seconds, or a signal.
 * Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_pty_accept(ls_pty *terminal, double timeout_s, bool *connected_out);
/* Shows the program in this terminal until it ends. code_out: its exit code, 128 + N after signal
 * N, or -1 if the job ended without a word. A later start of the job can be accepted afterwards.
 * Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_pty_attach(ls_pty *terminal, int *code_out);
/* Removes the socket and its folder. NULL is fine. */
void ls_pty_close(ls_pty *terminal);

/*
 * In the job: runs `argv`, which ends with NULL, in a pseudo-terminal that is shown at `path`.
 * code_out: as above; 129 after the person went away. SIGTERM ends the program with SIGHUP.
 * Errors: LS_ERR_NOT_FOUND if the person no longer waits; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_pty_serve(const char *path, char *const argv[], int *code_out);

#endif
