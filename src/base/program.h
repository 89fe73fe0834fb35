// SPDX-License-Identifier: Apache-2.0
/*
 * Program: other programs that answer a question (sbatch, squeue, nvidia-smi) and end.
 *
 * What a program prints goes into memory that it shares with this process, so that nobody has to read while it runs and a program that prints a lot never waits for us. Its standard
 * input is what the caller gives, or empty. It is killed when its time is over. No shell: argv goes as it is.
 *
 *   ls_program_start   for a loop: the outcome comes as a callback. Real env only
 *   ls_program_run     waits for it
 */
#ifndef LS_BASE_PROGRAM_H
#define LS_BASE_PROGRAM_H

#include "base/arena.h"
#include "base/env.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { LS_PROGRAM_OUTPUT_BYTES_MAX = 256 * 1024 * 1024 }; /* of each stream; what is beyond is cut off */

typedef struct ls_program {
    const char *const *argv; /* argv[0] is looked up in PATH; ends with NULL; copied */
    const char *input;       /* what it reads; NULL: nothing */
    double timeout_s;        /* > 0 */
} ls_program;

typedef struct ls_program_result {
    int exit_code; /* 0..255, or 128 + signal */
    bool timed_out;
    const char *output, *error; /* zero-terminated; of a started program valid during the callback only */
    size_t output_bytes, error_bytes;
} ls_program_result;

typedef void (*ls_program_done)(void *context, const ls_program_result *result);

/* `done` is called once when it has ended, from the loop. Errors: LS_ERR_NOT_FOUND (no such program), LS_ERR_IO; `done` is then not called. */
LS_MUST_CHECK ls_status ls_program_start(ls_env *env, const ls_program *program, ls_program_done done,
                                         void *context);

/* The same, waiting; the texts of result_out are in the arena. A program that fails is LS_OK: look at exit_code. Errors: as above, and LS_ERR_TIMEOUT. */
LS_MUST_CHECK ls_status ls_program_run(const ls_program *program, ls_arena *arena,
                                       ls_program_result *result_out);

#endif
