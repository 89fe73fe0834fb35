// SPDX-License-Identifier: Apache-2.0
/*
 * Progress: what a person sees while a run goes on.
 *
 *   step 620/1000  --------------------  62 %  loss 1.4321  val 1.4512  52,310 tok/s  MFU 61 %  312 MiB  1m12s left
 *
 * On a terminal that line is rewritten in place, at most ten times a second, and loses its bar, then numbers, as the terminal gets
 * narrower. Elsewhere a plain line appears every `every_steps` steps, at the first and last one, and after half a minute without any.
 * NO_COLOR takes the colours away; the bar is ASCII where the locale is not UTF-8. Times are those of a wall clock: the time left counts
 * evaluations and checkpoints at the pace of the last steps.
 *
 * Used by one thread.
 */
#ifndef LS_TELEMETRY_PROGRESS_H
#define LS_TELEMETRY_PROGRESS_H

#include "base/emit.h"

#include <stdio.h>

typedef struct ls_progress ls_progress;

typedef struct ls_progress_options {
    FILE *out;            /* stdout, or stderr with --json; borrowed */
    uint64_t steps;       /* of the run */
    uint64_t first_step;  /* steps already done by an earlier process */
    uint64_t every_steps; /* plain lines; 0: about 20 in a run */
} ls_progress_options;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_progress_create(const ls_progress_options *options, ls_progress **progress_out);
/* Ends the line; NULL is fine. */
void ls_progress_destroy(ls_progress *progress);

void ls_progress_step(ls_progress *progress, const ls_step_metrics *metrics);
/* Remembers the newest validation loss. */
void ls_progress_validation(ls_progress *progress, double val_loss);
/* What goes on beside training ("evaluating", "saving"), shown on a terminal until the next step; NULL ends it. */
void ls_progress_activity(ls_progress *progress, const char *what);
/* Advice of ls_goodput_advice, shown behind the numbers as far as there is room, and once in full; NULL: none. Copied. */
void ls_progress_advice(ls_progress *progress, const char *advice);
/* Prints a line of its own above the progress line. Control characters in it are replaced: it may be what a model wrote. */
void ls_progress_print(ls_progress *progress, const char *format, ...) LS_PRINTF(2, 3);

#endif
