// SPDX-License-Identifier: Apache-2.0
/*
 * How a run ended, by its own account. The waits-for graph shows who waited when everything stopped; why it stopped is known to those who
 * stopped it, and they have written it down:
 *
 *   last words of the ranks   the text of the abort, the same for all that could still read it
 *   exit statuses             noted in the flight file by whoever started the rank
 *   events.jsonl              rank_lost, unless a recovered follows; hang, ended
 *   lock                      the number of the trainer's process
 *
 * In this order of worth: a rank that was stopped is killed when the run ends for it, so that its exit status says less than the words of
 * the others. Events of an earlier start of the run (older than the oldest flight file) are passed over.
 */
#ifndef LS_EXECUTION_DIAGNOSE_ENDING_H
#define LS_EXECUTION_DIAGNOSE_ENDING_H

#include "base/arena.h"
#include "execution/diagnose/sight.h"

typedef enum ls_ending_kind {
    LS_ENDING_UNKNOWN,
    LS_ENDING_DEAD, /* a rank's process ended, and the run with it */
    LS_ENDING_HANG, /* job.hang_timeout, or a wait that could not end */
    LS_ENDING_MISMATCH,
    LS_ENDING_TRAINER_GONE /* the process that started the ranks ended without a word */
} ls_ending_kind;

typedef struct ls_ending {
    ls_ending_kind kind;
    uint32_t rank; /* whom it names; UINT32_MAX: nobody */
    ls_process_state
        process; /* LS_ENDING_HANG: what that rank's process was then, stopped or traced; else unknown */
    char text[LS_FLIGHT_TEXT_BYTES]; /* in the run's own words, one line; "" */
} ls_ending;

/* What the run directory says by itself. */
typedef struct ls_run_account {
    int32_t trainer_pid; /* as the lock has it; 0: there is none */
    bool has_ended;      /* the event `ended` is there */
    char status[16];     /* of it: "finished", "stopped", "interrupted", "failed" */
    uint64_t step;
    ls_ending ending; /* by its events */
} ls_run_account;

/* Reads lock and events since `since_s` (seconds since 1970). What is missing or damaged is left out. */
void ls_run_account_read(ls_arena *arena, const char *run_dir, double since_s, ls_run_account *account_out);

/* sights: of ranks none of which runs any more, with their readers. */
void ls_ending_find(const ls_run_account *account, ls_flight_reader *const *readers, const ls_sight *sights,
                    uint32_t count, ls_ending *ending_out);

/* Reads what an error text of a run says: "rank 1 (vm, pid 7) ended with signal 9 ...", "hang: rank 1 (...) is stopped ...". */
void ls_ending_from_text(const char *text, ls_ending *ending_out);

#endif
