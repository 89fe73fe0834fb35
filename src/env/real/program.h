// SPDX-License-Identifier: Apache-2.0
/*
 * Program: runs other programs that answer a question (sbatch, squeue, nvidia-smi) and end.
 *
 * A program prints into memory that it shares with this process, so that we need not read while it
 * runs, and a program that prints a lot never waits for us. Its standard input is the text the
 * caller gives, or empty. It is killed when its time is over. No shell is involved: argv is passed
 * as it is.
 *
 *   ls_program_start   for a loop: the outcome comes as a callback. Real env only
 *   ls_program_run     waits for it
 */
#ifndef LS_ENV_REAL_PROGRAM_H
#define LS_ENV_REAL_PROGRAM_H

#include "base/arena.h"
#include "base/status.h"
#include "env/env.h"

#include <stdbool.h>
#include <stddef.h>

/* limit of each output stream; the rest is cut off */
enum { LS_PROGRAM_OUTPUT_BYTES_MAX = 256 * 1024 * 1024 };

typedef struct ls_program {
    const char *const *argv; /* argv[0] is looked up in PATH; ends with NULL; copied */
    const char *input;       /* its standard input; NULL: empty */
    double timeout_s;        /* > 0 */
} ls_program;

typedef struct ls_program_result {
    int exit_code; /* 0..255, or 128 + signal */
    bool timed_out;
    /* zero-terminated; of a started program valid during the callback only */
    const char *output, *error;
    size_t output_bytes, error_bytes;
} ls_program_result;

typedef void (*ls_program_done)(void *context, const ls_program_result *result);

/* `done` is called once when it has ended, from the loop. Errors: LS_ERR_NOT_FOUND (no such
 * program), LS_ERR_IO; `done` is then not called. */
LS_MUST_CHECK ls_status ls_program_start(ls_env *env, const ls_program *program, ls_program_done done,
                                         void *context);

/* The same, but waits; the texts of result_out are in the arena. A program that fails is LS_OK:
 * check exit_code. Errors: as above, and LS_ERR_TIMEOUT. */
LS_MUST_CHECK ls_status ls_program_run(const ls_program *program, ls_arena *arena,
                                       ls_program_result *result_out);

#endif
