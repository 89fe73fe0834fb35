// SPDX-License-Identifier: Apache-2.0
/*
 * Time log: where the wall time of a run went, over all its starts. The file is RUN/time.jsonl.
 *
 * A start is one process that trained in the run directory. While it trains, it writes lines like
 * this one, with all numbers counted since that start began:
 *
 *   {"start": 2, "begun": 1764000000.123456, "step": 812, "restored": 800, "unfinished_s": 0.03,
 *   "startup": 0.41, "compute": 93.2, ...}
 *
 * The member cost_usd is there when the price of a device is known, energy_j when the machine
 * counts its energy. The last line is overwritten in
 * place, at most every 100 ms, until it covers a slice of time (a 256th of the start's age, at
 * least 100 ms); then a new line follows. So a killed process leaves
 * an account that is a tenth of a second old, or as old as its last kernel call was long, and a
 * week takes a few thousand lines. Each line is enough for the totals of its start; a torn or
 * damaged one only makes the picture coarser. The last line of a start that ended by itself has
 * "ended" (its status) and "away" (whether it expects to be started again).
 *
 * Time between two starts is `down` after a start that was lost, failed, or was told to leave
 * (SIGTERM, a preemption notice), and `paused` after one that had ended or was interrupted by a
 * person. The step in which a start was lost is lost work; steps that the next start repeats are
 * lost work there (trainer.c). So the classes of all starts and the gaps between them add up to the
 * time from the beginning of the first start to the end of the last one. Times within a start are
 * monotonic; the wall clock says only when it began.
 *
 * The log is not synced: after a power failure its end may be missing, and counts as down.
 *
 * Written by one thread of the process that holds the lock of the run directory; read by anyone, at
 * any time.
 */
#ifndef LS_TELEMETRY_RECORD_TIME_LOG_H
#define LS_TELEMETRY_RECORD_TIME_LOG_H

#include "base/arena.h"
#include "base/status.h"
#include "telemetry/record/goodput.h"

#include <stdint.h>

typedef struct ls_time_log ls_time_log;

/*
 * Adds a start to the log of `dir`. goodput: the account of this process, borrowed, and read at
 * each note. begun_s: when the process began, seconds since 1970. restored: number of finished
 * steps that it continues from. Errors: LS_ERR_MEMORY, LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_time_log_open(const char *dir, ls_goodput *goodput, double begun_s,
                                         uint64_t restored, ls_time_log **log_out);

/* Brings the log up to date. Cheap enough to be called between micro-batches: most calls only read
 * the clock. A write error ends the log with a warning, not the run. NULL allowed. */
void ls_time_log_note(ls_time_log *log);
/* The same, however recent the last line is: for what is rare and told elsewhere, too. */
void ls_time_log_write(ls_time_log *log);
/* Reports that a step begins, and that it was finished or given up (step: number of finished
 * steps), so that its work can no longer be lost. NULL allowed. */
void ls_time_log_step_begins(ls_time_log *log);
void ls_time_log_step_ends(ls_time_log *log, uint64_t step);

/* Writes the last line of this start. status: as in the summary. away: the time until the next
 * start counts as `down`, otherwise as `paused`. NULL allowed. */
void ls_time_log_end(ls_time_log *log, const char *status, bool away);
void ls_time_log_close(ls_time_log *log);

/* ---- reading ---- */

typedef struct ls_time_start {
    double begun_s;  /* seconds since 1970 */
    ls_goodput time; /* a step that was lost in the middle counts as lost work */
    /* from its end to the beginning of the next start; 0 for the last one */
    double until_gap_s;
    uint64_t restored, step; /* finished steps at its beginning and end */
    bool has_ended, away;
    char status[16]; /* "" when it did not end by itself, or is the last one and still runs */
} ls_time_start;

/* A piece of time, in order; the gaps between starts are slices too. Seconds are >= 0. */
typedef struct ls_time_slice {
    double begun_s; /* since the beginning of the first start */
    double seconds[LS_TIME_CLASS_COUNT];
} ls_time_slice;

typedef struct ls_time_history {
    ls_arena arena;
    ls_time_start *starts;
    size_t start_count;
    ls_time_slice *slices;
    size_t slice_count;
    ls_goodput total;      /* all starts and the gaps between them */
    uint64_t highest_step; /* that any start finished */
} ls_time_history;

/* Reads the log of `dir`; without a file there are no starts. Lines that are not whole are skipped.
 * Release in any case. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_time_history_load(const char *dir, ls_time_history *history_out);
/* The same of the bytes of such a file. */
void ls_time_history_parse(const char *text, size_t bytes, ls_time_history *history_out);
void ls_time_history_release(ls_time_history *history);

/* [{"begun", "wall_s", "restored", "step", "status", "until_next_s"}, ...]; status is "lost" for a
 * start that did not end by itself. */
json_t *ls_time_history_to_json(const ls_time_history *history);

#endif
