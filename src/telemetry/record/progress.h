// SPDX-License-Identifier: Apache-2.0
/*
 * Progress: what a person sees while a run is training.
 *
 *   step 620/1000  --------------------  62 %  loss 1.4321  val 1.4512  lr 0.0005  norm 0.62
 *                  52,310 tok/s  MFU 61 %  312 MiB  1m12s left
 *
 * On a terminal that line is rewritten in place, at most ten times a second. In a narrow terminal
 * it has no bar, and then fewer numbers. Elsewhere a plain line is printed every `every_steps`
 * steps, at the first and last step, and after half a minute without one. NO_COLOR removes the
 * colours; the bar is ASCII where the locale is not UTF-8. Times are wall time: the time left
 * includes evaluations and checkpoints at the pace of the last steps.
 *
 * Used by one thread.
 */
#ifndef LS_TELEMETRY_RECORD_PROGRESS_H
#define LS_TELEMETRY_RECORD_PROGRESS_H

#include "base/emit.h"

#include <stdio.h>

typedef struct ls_progress ls_progress;

typedef struct ls_progress_options {
    FILE *out;            /* stdout, or stderr with --json; borrowed */
    uint64_t steps;       /* of the run */
    uint64_t first_step;  /* steps already done by an earlier process */
    uint64_t every_steps; /* between plain lines; 0: about 20 lines per run */
} ls_progress_options;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_progress_create(const ls_progress_options *options, ls_progress **progress_out);
/* Ends the line. NULL allowed. */
void ls_progress_destroy(ls_progress *progress);

void ls_progress_step(ls_progress *progress, const ls_step_metrics *metrics);
/* Remembers the newest validation loss. */
void ls_progress_validation(ls_progress *progress, double val_loss);
/* Another activity than training ("evaluating", "saving"), shown on a terminal until the next step;
 * NULL ends it. */
void ls_progress_activity(ls_progress *progress, const char *what);
/* Advice of ls_goodput_advice, shown after the numbers as far as there is room, and once in full.
 * NULL: none. Copied. */
void ls_progress_advice(ls_progress *progress, const char *advice);
/* Prints a line above the progress line. Control characters in it are replaced, as it may be text
 * that a model wrote. */
void ls_progress_print(ls_progress *progress, const char *format, ...) LS_PRINTF(2, 3);

#endif
