// SPDX-License-Identifier: Apache-2.0
/*
 * The stack of another process: where in its code a late rank is.
 *
 * Uses elfutils' libdw, which reads the process's memory maps, attaches to the main thread with
 * ptrace for the few milliseconds it takes to walk its frames, and lets it continue; a process that
 * was stopped stays stopped. The system decides whether this is permitted: a parent process may
 * unless ptrace is disabled altogether.
 *
 * Does not work for a process blocked in the kernel (state D), which cannot be attached to. Call
 * from one thread at a time.
 */
#ifndef LS_EXECUTION_HANG_STACK_H
#define LS_EXECUTION_HANG_STACK_H

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

enum { LS_STACK_FRAMES = 12 };

/*
 * Appends one line per function, innermost first, at most `frames_max`: "ls_wait_until at
 * src/comm/transport/wait.c:120". Inlined functions have lines of their own. A frame without
 * debugging information has only the symbol or the address.
 *
 * Errors, each with its reason: LS_ERR_UNSUPPORTED (not permitted, built without libdw, or the
 * process is blocked in the kernel), LS_ERR_NOT_FOUND (no such process), LS_ERR_FAILED. `text` is
 * then unchanged.
 */
LS_MUST_CHECK ls_status ls_stack_take(int32_t pid, uint32_t frames_max, ls_text *text);

#endif
