// SPDX-License-Identifier: Apache-2.0
/*
 * Time log: where the wall time of a run went, over all its starts. RUN/time.jsonl.
 *
 * A start is one process that trained in the run directory. While it trains it writes lines like this one, all numbers as they are since
 * that start began:
 *
 *   {"start": 2, "begun": 1764000000.123456, "step": 812, "restored": 800, "unfinished_s": 0.03, "startup": 0.41, "compute": 93.2, ...}
 *
 * The last line is written over in place, at most every 100 ms, until it covers a slice of time (a 256th of the start's age, at least 100
 * ms); then a new one begins. So a process that is killed leaves an account that is a tenth of a second old, or as old as it was in one
 * kernel for, and a week has some thousand lines. Each line is enough for the start's totals; a torn or damaged one only makes the picture
 * coarser. The last line of a start that ended by itself has "ended": its status, and "away": whether it means to be run again.
 *
 * Between two starts nobody trains: `down` after a start that was lost, failed, or was told to leave (SIGTERM, a notice: "run me again"),
 * `paused` after one that had ended or was interrupted by a person. Of a start that was lost, the step it was in is lost work; steps that
 * the next one does again are lost work there (trainer.c). So classes of all starts and the times between them add up to the time from the
 * first start's begin to the last one's end. Times of a start are monotonic; only where it stands is by the wall clock.
 *
 * The log is not synced: after a power cut some of its end may be missing, and counts as down.
 *
 * Writing: one process (who holds the run directory's lock), one thread. Reading: any time, anyone.
 */
#ifndef LS_TELEMETRY_TIME_LOG_H
#define LS_TELEMETRY_TIME_LOG_H

#include "base/arena.h"
#include "base/status.h"
#include "telemetry/goodput.h"

#include <stdint.h>

typedef struct ls_time_log ls_time_log;

/*
 * Begins another start in `dir`. goodput: borrowed, of this process, and read at each note. begun_s: seconds since 1970 when the process
 * began. restored: finished steps it goes on from. Errors: LS_ERR_MEMORY, LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_time_log_open(const char *dir, ls_goodput *goodput, double begun_s,
                                         uint64_t restored, ls_time_log **log_out);

/* Brings the log up to now. Cheap enough to be called between micro-batches: mostly it only looks at the clock. An error of writing ends
 * the log with a warning, not the run. NULL allowed. */
void ls_time_log_note(ls_time_log *log);
/* A step begins, or is finished (step: finished steps), or was given up: what it computed is no longer at stake. NULL allowed. */
void ls_time_log_step_begins(ls_time_log *log);
void ls_time_log_step_ends(ls_time_log *log, uint64_t step);

/* The last line of this start. status: as in the summary. away: what comes until the next start is `down`, else `paused`. NULL allowed. */
void ls_time_log_end(ls_time_log *log, const char *status, bool away);
void ls_time_log_close(ls_time_log *log);

/* ---- reading ---- */

typedef struct ls_time_start {
    double begun_s;          /* seconds since 1970 */
    ls_goodput time;         /* a step that was lost in the middle counts as lost work */
    double until_gap_s;      /* from its end to the next start's begin; 0 for the last one */
    uint64_t restored, step; /* finished steps at its begin and end */
    bool has_ended, away;
    char status[16]; /* "" when it did not end by itself (or still runs, the last one) */
} ls_time_start;

/* A piece of the whole, in order of time; times between starts are slices, too. Seconds are >= 0. */
typedef struct ls_time_slice {
    double begun_s; /* since the first start's begin */
    double seconds[LS_TIME_CLASS_COUNT];
} ls_time_slice;

typedef struct ls_time_history {
    ls_arena arena;
    ls_time_start *starts;
    size_t start_count;
    ls_time_slice *slices;
    size_t slice_count;
    ls_goodput total;      /* all starts and what is between them */
    uint64_t highest_step; /* ever finished, by any start */
} ls_time_history;

/* What `dir` has; no file is no start. Lines that are not whole are left out. Release in any case. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_time_history_load(const char *dir, ls_time_history *history_out);
void ls_time_history_release(ls_time_history *history);

/* [{"begun", "wall_s", "restored", "step", "status", "until_next_s"}, ...]; status is "lost" for a start that did not end by itself. */
json_t *ls_time_history_to_json(const ls_time_history *history);

#endif
