// SPDX-License-Identifier: Apache-2.0
/*
 * Status codes and error text.
 *
 * Every function that can fail returns an ls_status that must be looked at. Codes are grouped by who has to act, which is
 * also what decides the exit code of the program. The first function to decide that something failed writes the error text
 * with ls_fail(); callers on the way up may add context with ls_fail_within(); only cli/ prints it.
 *
 * A good error text says what failed, the value seen, the range allowed and what to do next.
 *
 * Thread-safety: the error text is per thread. Who runs work on another thread carries its text back (ls_error_text).
 */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#include <stddef.h>

typedef enum ls_status {
    LS_OK = 0,

    /* What the user asked for can't be done as asked: exit code 2. */
    LS_ERR_INVALID,     /* bad option, key, value or combination */
    LS_ERR_NOT_FOUND,   /* a file or name the user gave does not exist */
    LS_ERR_UNSUPPORTED, /* understood, but this build or model can't do it */

    /* Data that can't be used: exit code 3. */
    LS_ERR_DATA, /* corrupt, truncated, not what it says it is */

    /* The machine has too little: exit code 4. */
    LS_ERR_MEMORY,
    LS_ERR_DISK, /* full or read-only */
    LS_ERR_DEVICE,

    /* The run: exit codes 1, 5, 6. */
    LS_ERR_IO,     /* a system call failed for another reason */
    LS_ERR_FAILED, /* the work itself failed: loss not finite, a child ended badly */
    LS_ERR_TIMEOUT,
    LS_ERR_RANKS_LOST, /* more ranks lost than can be recovered */
    LS_ERR_MISMATCH,   /* diagnosed hang or mismatch between ranks */

    /* Asked to stop; state is saved: exit codes 75 and 130. */
    LS_STOPPED,     /* by notice or SIGTERM: run me again */
    LS_INTERRUPTED, /* by SIGINT */

    /* Between layers of the program, never its result: a step was left in the middle because who computes it changes; it goes on. */
    LS_FENCED,
} ls_status;

#define LS_MUST_CHECK        __attribute__((warn_unused_result))
#define LS_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The short name of a code ("invalid", "data", ...), never NULL. */
const char *ls_status_name(ls_status status);

/* The exit code of DESIGN section 6 for a code: 0, 1, 2, 3, 4, 5, 6, 75 or 130. */
int ls_status_exit_code(ls_status status);

/* Replaces this thread's error text and returns `status`, so that `return ls_fail(...)` reads as one thought. */
ls_status ls_fail(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* Like ls_fail, with ": <strerror(errno_value)>" appended; ENOSPC, EDQUOT, EFBIG and EROFS become LS_ERR_DISK,
 * ENOMEM LS_ERR_MEMORY, ENOENT LS_ERR_NOT_FOUND, everything else LS_ERR_IO. */
ls_status ls_fail_errno(int errno_value, const char *format, ...) LS_PRINTF(2, 3);

/* Puts "<context>: " before this thread's error text and returns `status` unchanged. */
ls_status ls_fail_within(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* This thread's error text; "" when nothing failed. Valid until the next ls_fail* on this thread. */
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

/* Like LS_TRY, jumping to `label` with `status_variable` set, for functions that must undo what they began. */
#define LS_TRY_GOTO(status_variable, expression, label)                                                      \
    do {                                                                                                     \
        (status_variable) = (expression);                                                                    \
        if ((status_variable) != LS_OK) {                                                                    \
            goto label;                                                                                      \
        }                                                                                                    \
    } while (0)

#endif
