// SPDX-License-Identifier: Apache-2.0
/*
 * A run snapshot: all flight files of a run, read once, while it runs or after its end. `lockstep
 * diagnose` and `lockstep trace` work on it.
 *
 * After its end no rank waits any more, so the snapshot is put back to the moment of the end: a
 * rank whose last operation failed, or that was killed inside one, counts as waiting in it, unless
 * it is the rank that the run itself names as the reason (execution/hang/run_ending.h).
 */
#ifndef LS_EXECUTION_HANG_RUN_SNAPSHOT_H
#define LS_EXECUTION_HANG_RUN_SNAPSHOT_H

#include "execution/hang/arrivals.h"
#include "execution/hang/run_ending.h"
#include "execution/hang/wait_graph.h"

typedef enum ls_run_verdict {
    LS_VERDICT_HEALTHY,  /* it runs, and no rank waits for long */
    LS_VERDICT_FINISHED, /* all ranks ended well */
    LS_VERDICT_HANG,
    LS_VERDICT_MISMATCH,
    /* A rank's process ended while the others needed it. Takes precedence over the hang it
     * causes. */
    LS_VERDICT_DEAD,
    LS_VERDICT_FAILED, /* ranks ended with an error */
    /* All ranks ended without last words: the trainer was killed, or the machine lost power. */
    LS_VERDICT_GONE,
} ls_run_verdict;

const char *ls_verdict_name(ls_run_verdict verdict);

typedef struct ls_run_snapshot {
    uint32_t size;  /* ranks of the run */
    uint32_t count; /* how many of them have a flight file */
    ls_flight_reader **readers;
    ls_rank_snapshot *snapshots; /* as the ranks are now */
    ls_rank_snapshot *then;      /* as they were when the run ended; while it runs, snapshots */
    bool is_live;                /* some rank's process exists, or may exist on another host */
    /* The coordinator's clock; after the end, the last time that any rank recorded. */
    uint64_t now_ns;
    ls_arrivals *arrivals;
    bool disagrees;
    ls_disagreement disagreement;
    ls_graph graph;
    ls_ending ending; /* only after the end */
    /* While the run is live, the process that started the ranks of this host; after the end, the
     * one named in the lock. 0: unknown. */
    int32_t trainer_pid;
    ls_process_state trainer;
    bool is_trainer; /* false: trainer_pid is an agent or the user's own program */
    char **problems; /* files that cannot be read */
    uint32_t problem_count;
} ls_run_snapshot;

/*
 * Reads `run_dir`/flight. Ignores files left by an earlier start of the run (with another epoch
 * than the newest file). Errors: LS_ERR_NOT_FOUND (no such folder, or no file in it), LS_ERR_DATA
 * (no file can be read).
 */
LS_MUST_CHECK ls_status ls_run_snapshot_open(ls_arena *arena, const char *run_dir, ls_run_snapshot *run_out);
void ls_run_snapshot_close(ls_run_snapshot *run);

/* For how many seconds `culprit` has been waited for at run->now_ns. */
double ls_run_snapshot_waited_s(const ls_run_snapshot *run, const ls_culprit *culprit);

/*
 * Judges the run and appends the verdict to `text`: one or two sentences that begin with its name
 * ("dead: rank 1 ..."). hang_s: a wait this long is a hang whatever the cause; 0.25 s suffice if
 * the cause is certain (ls_cause_is_certain). culprit_out: the culprit named in the text, or NULL.
 */
ls_run_verdict ls_run_snapshot_judge(const ls_run_snapshot *run, double hang_s, const ls_describe *describe,
                                     ls_text *text, const ls_culprit **culprit_out);

#endif
