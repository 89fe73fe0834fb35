// SPDX-License-Identifier: Apache-2.0
/*
 * Progress: what a person sees while a run goes on.
 *
 * On a terminal one line is rewritten in place (step, bar, loss, validation loss, tokens/s, MFU, memory, time left); elsewhere a plain
 * line appears every `every_steps` steps, and at the first and last one. NO_COLOR and the terminal's width are respected.
 *
 * Used by one thread.
 */
#ifndef LS_TELEMETRY_PROGRESS_H
#define LS_TELEMETRY_PROGRESS_H

#include "base/emit.h"

#include <stdio.h>

typedef struct ls_progress ls_progress;

typedef struct ls_progress_options {
    FILE *out;              /* stdout, or stderr with --json; borrowed */
    uint64_t steps;         /* of the run */
    uint64_t first_step;    /* steps already done by an earlier process */
    uint64_t every_steps;   /* plain lines; 0: about 20 in a run */
    double gemm_peak_flops; /* what MFU is measured against; for the first line */
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
/* Advice of ls_goodput_advice to show behind the line; NULL: none. */
void ls_progress_advice(ls_progress *progress, const char *advice);
/* Prints a line of its own above the progress line. */
void ls_progress_print(ls_progress *progress, const char *format, ...) LS_PRINTF(2, 3);

#endif
