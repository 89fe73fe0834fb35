// SPDX-License-Identifier: Apache-2.0
/*
 * The stack of another process: where a rank that does not come is in its code.
 *
 * Over elfutils' libdw, which reads the process's memory maps, stops the main thread for as long as it takes to walk its frames
 * (a few milliseconds; PTRACE_ATTACH, also of a process that is stopped already, which stays so) and lets it go. Who may do that
 * is the system's decision: a parent may where ptrace is not forbidden altogether.
 *
 * Not for processes blocked in the kernel (state D): they could not be stopped. One thread at a time.
 */
#ifndef LS_EXECUTION_DIAGNOSE_STACK_H
#define LS_EXECUTION_DIAGNOSE_STACK_H

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

enum { LS_STACK_FRAMES = 12 };

/*
 * Appends one line per function, innermost first, at most `frames_max`: "ls_wait_until at src/execution/comm/wait.c:120". Functions that
 * were inlined have lines of their own. Frames without debugging information have the symbol, or the address, alone.
 *
 * Errors: LS_ERR_UNSUPPORTED (not permitted, this build has no libdw, the process is blocked in the kernel), LS_ERR_NOT_FOUND (no such
 * process), LS_ERR_FAILED; with the reason. `text` is then untouched.
 */
LS_MUST_CHECK ls_status ls_stack_take(int32_t pid, uint32_t frames_max, ls_text *text);

#endif
