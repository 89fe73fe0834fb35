// SPDX-License-Identifier: Apache-2.0
/*
 * Timeline: the flight files of a run as one Chrome trace, which Perfetto (ui.perfetto.dev) and
 * chrome://tracing display.
 *
 * Each rank is a process with one track of activities and one track of operations per communicator.
 * Arrows lead from the rank that arrived last at an operation to those that waited for it. Times of
 * several hosts are converted to the coordinator's clock with the measured offset. What is still
 * open, in a live or a killed run, is drawn up to the last known time.
 *
 * Format: a JSON object with traceEvents; phases X (slices), M (names), s and f (arrows); times in
 * microseconds since the first event.
 */
#ifndef LS_EXECUTION_HANG_TIMELINE_H
#define LS_EXECUTION_HANG_TIMELINE_H

#include "execution/hang/run_snapshot.h"

typedef struct ls_timeline_counts {
    uint64_t slices, operations, arrows;
    double seconds; /* from the first event to the last */
} ls_timeline_counts;

/* Writes the trace of all ranks to `path`, either complete or not at all. describe may be NULL.
 * Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_MEMORY, those of the readers. */
LS_MUST_CHECK ls_status ls_timeline_write(const ls_run_snapshot *run, const ls_describe *describe,
                                          const char *path, ls_timeline_counts *counts_out);

#endif
