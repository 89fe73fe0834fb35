// SPDX-License-Identifier: Apache-2.0
/*
 * Timeline: the flight files of a run as one Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
 *
 * A process per rank with a track of activities and one per communicator of operations; arrows lead from the rank that came last to an
 * operation to those that waited for it. Times of several hosts are put on the coordinator's clock as far as its offset was measured.
 * What is still open, at the end of a live or a killed run, is drawn up to the last moment known.
 *
 * Format: JSON object with traceEvents; phases X (slices), M (names), s and f (arrows); times in microseconds from the first event.
 */
#ifndef LS_EXECUTION_DIAGNOSE_TIMELINE_H
#define LS_EXECUTION_DIAGNOSE_TIMELINE_H

#include "execution/diagnose/scene.h"

typedef struct ls_timeline_counts {
    uint64_t slices, operations, arrows;
    double seconds; /* from the first event to the last */
} ls_timeline_counts;

/* Writes the trace of all ranks to `path`, whole or not at all. describe may be NULL. Errors: LS_ERR_DISK, LS_ERR_IO, those of readers. */
LS_MUST_CHECK ls_status ls_timeline_write(const ls_scene *scene, const ls_describe *describe,
                                          const char *path, ls_timeline_counts *counts_out);

#endif
