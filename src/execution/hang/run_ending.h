// SPDX-License-Identifier: Apache-2.0
/*
 * How a run ended, according to what the run itself recorded. The waits-for graph shows which ranks
 * waited when everything stopped; why it stopped is known to the processes that stopped it, and
 * they have written it down:
 *
 *   last words of the ranks   the text of the abort, the same in all ranks that could still read it
 *   exit statuses             written to the flight file by the process that started the rank
 *   events.jsonl              rank_lost, unless a recovered follows; hang; ended
 *   lock                      the pid of the trainer
 *
 * The sources are listed from most to least reliable: a stopped rank is killed when the run ends
 * because of it, so its exit status says less than the last words of the others. Events of an
 * earlier start of the run (older than the oldest flight file) are ignored.
 */
#ifndef LS_EXECUTION_HANG_RUN_ENDING_H
#define LS_EXECUTION_HANG_RUN_ENDING_H

#include "base/arena.h"
#include "execution/hang/rank_snapshot.h"

typedef enum ls_ending_kind {
    LS_ENDING_UNKNOWN,
    LS_ENDING_DEAD, /* a rank's process ended, and the run with it */
    LS_ENDING_HANG, /* job.hang_timeout was exceeded, or a wait could not end */
    LS_ENDING_MISMATCH,
    LS_ENDING_TRAINER_GONE /* the process that started the ranks was killed */
} ls_ending_kind;

typedef struct ls_ending {
    ls_ending_kind kind;
    uint32_t rank; /* the rank named as the reason; UINT32_MAX: none */
    /* LS_ENDING_HANG: whether that rank's process was stopped or traced; otherwise unknown. */
    ls_process_state process;
    char text[LS_FLIGHT_TEXT_BYTES]; /* one line as the run wrote it, or "" */
} ls_ending;

/* What the run directory records about the end. */
typedef struct ls_run_account {
    int32_t trainer_pid; /* from the lock; 0: none */
    bool has_ended;      /* there is an event `ended` */
    char status[16];     /* in that event: as in telemetry/record/summary.h */
    uint64_t step;
    ls_ending ending; /* according to the events */
} ls_run_account;

/* Reads the lock and the events since `since_s` (seconds since 1970). Missing or damaged parts are
 * skipped. */
void ls_run_account_read(ls_arena *arena, const char *run_dir, double since_s, ls_run_account *account_out);

/* Finds out how the run ended. snapshots and readers: of all its ranks, none of which runs any
 * more. */
void ls_ending_find(const ls_run_account *account, ls_flight_reader *const *readers,
                    const ls_rank_snapshot *snapshots, uint32_t count, ls_ending *ending_out);

/* Recognises the error text of a run: "rank 1 (vm, pid 7) ended with signal 9 ...", "hang: rank 1
 * (...) is stopped ...". */
void ls_ending_from_text(const char *text, ls_ending *ending_out);

#endif
