// SPDX-License-Identifier: Apache-2.0
/*
 * Status codes and error text.
 *
 * Every function that can fail returns an ls_status that must be checked. Codes are grouped by who
 * has to act, which also decides the exit code of the program. The function that detects a failure
 * writes the error text with ls_fail(); its callers may add context with ls_fail_within(); only
 * the command line prints it.
 *
 * A good error text names what failed, the value seen, the allowed range and what to do next.
 *
 * Thread-safety: each thread has its own error text. A thread that waits for the work of another
 * one has to carry that thread's text over (ls_error_text).
 */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#include <stddef.h>

typedef enum ls_status {
    LS_OK = 0,

    /* ---- The request cannot be carried out as given: exit code 2 ---- */

    /* An option, a key, a value or a combination is not allowed. */
    LS_ERR_INVALID,
    /* A file or name that the user gave does not exist. */
    LS_ERR_NOT_FOUND,
    /* Understood, but this build or model cannot do it. */
    LS_ERR_UNSUPPORTED,

    /* ---- The data cannot be used: exit code 3 ---- */

    /* Corrupt, truncated, or not of the kind it claims to be. */
    LS_ERR_DATA,

    /* ---- The machine lacks something: exit code 4 ---- */

    LS_ERR_MEMORY,
    /* The disk is full or read-only. */
    LS_ERR_DISK,
    LS_ERR_DEVICE,

    /* ---- The run failed: exit codes 1, 5 and 6 ---- */

    /* A system call failed for a reason not listed above. */
    LS_ERR_IO,
    /* The work itself failed: the loss is not finite, a child process ended with an error. */
    LS_ERR_FAILED,
    LS_ERR_TIMEOUT,
    /* More ranks were lost than can be recovered. */
    LS_ERR_RANKS_LOST,
    /* Ranks do not do the same: a diagnosed hang or mismatch. */
    LS_ERR_MISMATCH,

    /* ---- Stopped on request, with the state saved: exit codes 75 and 130 ---- */

    /* By a preemption notice or SIGTERM: run the program again to continue. */
    LS_STOPPED,
    /* By SIGINT. */
    LS_INTERRUPTED,

    /* Between layers of the program, never its result: work was interrupted because the ranks that
     * do it are changing; it will be resumed. */
    LS_FENCED,
} ls_status;

#define LS_MUST_CHECK        __attribute__((warn_unused_result))
#define LS_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The short name of a code ("invalid", "data", ...), never NULL. */
const char *ls_status_name(ls_status status);

/* The program's exit code for a status: 0, 1, 2, 3, 4, 5, 6, 75 or 130. */
int ls_status_exit_code(ls_status status);

/* Replaces this thread's error text and returns `status`: write `return ls_fail(...)`. */
ls_status ls_fail(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* Like ls_fail, with ": <strerror(errno_value)>" appended. Returns LS_ERR_DISK for ENOSPC, EDQUOT,
 * EFBIG and EROFS, LS_ERR_MEMORY for ENOMEM, LS_ERR_NOT_FOUND for ENOENT, otherwise LS_ERR_IO. */
ls_status ls_fail_errno(int errno_value, const char *format, ...) LS_PRINTF(2, 3);

/* Puts "<context>: " before this thread's error text and returns `status` unchanged. */
ls_status ls_fail_within(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* This thread's error text, "" if nothing has failed. Valid until the next ls_fail* on this
 * thread. */
const char *ls_error_text(void);
void ls_error_clear(void);

/* Returns from the calling function when `expression` is not LS_OK. */
#define LS_TRY(expression)                                                                                   \
    do {                                                                                                     \
        const ls_status ls_try_status_ = (expression);                                                       \
        if (ls_try_status_ != LS_OK) {                                                                       \
            return ls_try_status_;                                                                           \
        }                                                                                                    \
    } while (0)

/* Like LS_TRY, but jumps to `label` with `status_variable` set, for functions that have to undo
 * what they began. */
#define LS_TRY_GOTO(status_variable, expression, label)                                                      \
    do {                                                                                                     \
        (status_variable) = (expression);                                                                    \
        if ((status_variable) != LS_OK) {                                                                    \
            goto label;                                                                                      \
        }                                                                                                    \
    } while (0)

#endif
