// SPDX-License-Identifier: Apache-2.0
/*
 * A gang: the ranks that compute the steps of one run, as the trainer sees them.
 *
 *   lockstep train --ranks 4            the process a person starts: coordinator, agent of this host, and trainer
 *     ├─ main thread: trainer           loop, evaluation, samples, checkpoints, metrics: as with one rank, on the shared state
 *     ├─ service thread: coordinator    base/env loop: store, membership, watches ranks, late and mismatched ones, aborts
 *     ├─ lockstep rank 0 (process)  ┐
 *     ├─ ...                        ├── map the host's segment: weights, moments, gradients; compute leaves; update their slices
 *     └─ lockstep rank 3 (process)  ┘
 *   other hosts: lockstep agent         one per host: starts and watches its ranks, owns that host's segment
 *
 * The segment (elastic/segment.h) is a memfd of the agent that all ranks of the host map; it outlives any rank. Weights exist once per
 * host. The trainer reads and writes them between steps, when all ranks wait: it initialises, restores, evaluates, samples and saves.
 *
 * Ranks run ahead without asking: the trainer grants steps up to a number (until the next evaluation, sample or checkpoint). Results come
 * back through a ring. A rank enters any step that is granted, so that nobody waits in vain; that a step is given up is agreed in it.
 *
 *   ls_gang_create      the segment: the state can be restored or initialised in it
 *   ls_gang_launch      processes start; they open their data while the trainer goes on
 *   ls_gang_wait        all are ready and of one mind
 *   ls_gang_step ...    results, in order
 *   ls_gang_destroy
 *
 * On one host a rank that dies is taken over and replaced (elastic/coordinator.h): ls_gang_step returns the result all the same, events tell.
 *
 * When it ends badly (a rank differs, failed, too few are left), all ranks have ended before ls_gang_step says so: nobody writes the state any more.
 *
 * One gang per process. Functions are called from the trainer's thread.
 */
#ifndef LS_EXECUTION_ELASTIC_GANG_H
#define LS_EXECUTION_ELASTIC_GANG_H

#include "execution/elastic/launch.h"
#include "execution/elastic/segment.h"
#include "execution/state.h"
#include "execution/train/session.h"
#include "execution/train/step.h"

typedef struct ls_gang ls_gang;

typedef struct ls_gang_options {
    const ls_session *
        session; /* borrowed; its run file is the ranks', job.min_ranks, max_ranks, max_replacements, hang_timeout are the gang's */
    const char *run_dir;                /* flight/ is made here */
    uint32_t ranks;                     /* 2..leaves */
    uint32_t threads;                   /* per rank */
    double start_timeout_s;             /* for all to be ready, for hosts to come; 0: 60 */
    bool (*should_stop)(void *context); /* asked while waiting; true: the step that runs is given up */
    void *stop_context;
    /* Events of the service thread (late, late_over, mismatch), told on the trainer's thread while it waits or takes results; fields are taken
     * over. */
    void (*event)(void *context, const char *name, json_t *fields);
    void *event_context;
    const ls_gang_hosts *hosts; /* borrowed; NULL: this host alone */
    uint64_t
        heard;  /* adopt: finished steps whose results were noted down; those behind it can be asked for */
    bool adopt; /* take over ranks that a trainer of this run left behind (job.lease), if there are any */
} ls_gang_options;

/* Makes the segment; no process yet. Errors: LS_ERR_MEMORY, LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_gang_create(const ls_gang_options *options, ls_gang **gang_out);

/* Whether it took over ranks that are there already; their state is that after `*finished_out` steps or they are on the way to the next. The results of the
 * last LS_RANK_RESULTS steps can be asked for once more. */
bool ls_gang_is_adopted(const ls_gang *gang, uint64_t *finished_out);
/* And whether they are on other hosts alone: the segment of this one was made anew, and is empty. */
bool ls_gang_is_fresh(const ls_gang *gang);

/* Steps below it may be run. */
uint64_t ls_gang_granted(const ls_gang *gang);

/* Parameters and moments in the segment, without gradient buffers. */
void ls_gang_state(ls_gang *gang, ls_queue *queue, const ls_layout *layout, ls_state *state_out);

/* Where the segment has room for another copy of parameters and moments, which nobody but the trainer writes. */
void ls_gang_snapshot(ls_gang *gang, ls_queue *queue, const ls_layout *layout, ls_state *state_out);

/*
 * The next step is to keep the state before it, that after `step` finished steps, in the snapshot; when that step is over, it is there whole.
 * Called before it is granted. False when it can't: the state is spread over several hosts.
 */
bool ls_gang_keep(ls_gang *gang, uint64_t step);

/*
 * Starts service thread and ranks; step: finished steps of the state that they will find once they are granted a step. The tokenizer a run
 * trained is in run_dir by now. Errors: LS_ERR_IO, LS_ERR_MEMORY, LS_ERR_DISK.
 */
LS_MUST_CHECK ls_status ls_gang_launch(ls_gang *gang, uint64_t step);

/*
 * Until all ranks have passed the pre-flight check (same configuration, op plan, determinism class). Errors: LS_ERR_MISMATCH (who differs),
 * LS_ERR_TIMEOUT (who did not come), LS_ERR_RANKS_LOST (a rank ended), a rank's own error, LS_STOPPED when should_stop says so.
 */
LS_MUST_CHECK ls_status ls_gang_wait(ls_gang *gang);

/* Who is in it, once it has been waited for. */
typedef struct ls_gang_member {
    uint32_t rank;
    int32_t pid;
    const char *host;
} ls_gang_member;
uint32_t ls_gang_ranks(const ls_gang *gang);
ls_gang_member ls_gang_member_at(const ls_gang *gang, uint32_t rank);
uint64_t ls_gang_epoch(const ls_gang *gang);
/* Adds epoch, parts, ranks_total and `ranks` of this host to `object`, as its control page says at this moment. Any thread. */
void ls_gang_append_team(const ls_gang *gang, json_t *object);

/*
 * The result of step `step`; ranks may compute up to, not including, step `until` without waiting for the next call (step < until).
 * After the result of step until - 1 all ranks wait and the state is the trainer's. Grants are not taken back: to have the state before
 * `until` is reached, ls_gang_stop and go on calling until it returns an error.
 *
 * seconds_out: from begin to end of the step, on rank 0.
 * Errors: as ls_stepper_run; LS_STOPPED after ls_gang_stop when the step was given up: the state is as before it, and the gang does no
 * more; LS_ERR_RANKS_LOST, LS_ERR_MISMATCH, LS_ERR_TIMEOUT with who and where: see ls_gang_is_consistent.
 */
LS_MUST_CHECK ls_status ls_gang_step(ls_gang *gang, uint64_t step, uint64_t until, ls_step_result *result_out,
                                     double *seconds_out);

/*
 * Brings the state of step `step`, the last one granted and finished, together on this host: what the owners on other hosts have of it.
 * Before the trainer reads the moments; with one host there is nothing to do. Errors: the reason of an abort.
 */
LS_MUST_CHECK ls_status ls_gang_gather(ls_gang *gang, uint64_t step);

/* After an error: whether no rank was in the middle of an update, so that the state is that after `*finished_out` steps. */
bool ls_gang_is_consistent(const ls_gang *gang, uint64_t *finished_out);

/* Several hosts, after LS_ERR_RANKS_LOST: which rank was lost, and how long before it was noticed it had given its last sign of life (it died at some
 * moment in that time). False when it is not a single rank's loss. */
bool ls_gang_lost(const ls_gang *gang, uint32_t *rank_out, double *silent_s_out);

/*
 * Between steps, before the state after `step` steps is saved: whether it still is what the ranks left, as far as they hashed it (on several
 * hosts it is not looked at). Errors: LS_ERR_MISMATCH, with *fault_out set; LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_gang_check_state(ls_gang *gang, const ls_state *state, uint64_t step,
                                            ls_step_fault *fault_out);

/*
 * One host: from the next step boundary at which they are ready there are to be `ranks` ranks. Those that leave are the highest. Takes effect while
 * the gang runs, told by events rank_joined, rank_left and team. Any thread. Errors: LS_ERR_INVALID outside [job.min_ranks, places], or on several
 * hosts.
 */
LS_MUST_CHECK ls_status ls_gang_resize(ls_gang *gang, uint32_t ranks);
/* The same for one rank, whose place stays empty. */
LS_MUST_CHECK ls_status ls_gang_leave(ls_gang *gang, uint32_t rank);
/* Ranks there may be: job.max_ranks, bounded by the leaves; on several hosts as many as there are. */
uint32_t ls_gang_places(const ls_gang *gang);

/* Asks ranks to give up the step they are in. Safe in a signal handler. */
void ls_gang_stop(ls_gang *gang);

/* Memory of all ranks of this host and of the segment so far, without the trainer's own. */
uint64_t ls_gang_memory(const ls_gang *gang);

/* Ends ranks and agents (politely, then with SIGKILL), the service thread, and frees the segment. NULL allowed. */
void ls_gang_destroy(ls_gang *gang);

#endif
