// SPDX-License-Identifier: Apache-2.0
/*
 * Workers: the ranks that compute the steps of one run, as the trainer sees them.
 *
 *   lockstep train --ranks 4            the process a person starts: trainer, coordinator, and
 *     │                                 agent of this host
 *     ├─ main thread: trainer           loop, evaluation, samples, checkpoints, metrics: as with
 *     │                                 one rank, on the shared state
 *     ├─ service thread: coordinator    an env loop: store, membership; watches for ranks that are
 *     │                                 late or differ; aborts
 *     ├─ lockstep rank 0 (process)  ┐
 *     ├─ ...                        ├── map the host's segment (weights, moments, gradients),
 *     └─ lockstep rank 3 (process)  ┘   compute leaves, update their slices
 *   other hosts: lockstep agent         one for each host: starts and watches its ranks, owns that
 *                                       host's segment
 *
 * The segment (train/segment.h) is a memfd of the agent that all ranks of the host map; it outlives
 * any rank. Weights exist once on each host. The trainer reads and writes them between steps, when
 * all ranks wait: it initialises, restores, evaluates, samples and saves.
 *
 * Ranks run ahead without asking: the trainer grants steps up to a number (until the next
 * evaluation, sample or checkpoint), and results come back through a ring. A rank enters every step
 * that was granted, so that no rank waits for another in vain; giving up a step is agreed on inside
 * it.
 *
 *   ls_workers_create      makes the segment: the state can be restored or initialised in it
 *   ls_workers_launch      starts processes, which open their data while the trainer goes on
 *   ls_workers_wait        until all are ready and agree
 *   ls_workers_step ...    returns results, in order
 *   ls_workers_destroy
 *
 * On one host a rank that dies is replaced and its work taken over (elastic/host/coordinator.h):
 * ls_workers_step returns the result all the same, and events report what happened. On several
 * hosts others continue with its part of the state, and if none has that, all with the newest
 * checkpoint: `restore` brings it, and what had been done since is done again before
 * ls_workers_step or ls_workers_gather returns.
 *
 * When the run ends with an error (a rank differs or failed, too few are left), all ranks have
 * ended before ls_workers_step reports it: no process writes to the state any more.
 *
 * One ls_workers for each process. The functions are called from the trainer's thread.
 */
#ifndef LS_EXECUTION_ELASTIC_WORKERS_WORKERS_H
#define LS_EXECUTION_ELASTIC_WORKERS_WORKERS_H

#include "execution/elastic/hosts/launch.h"
#include "execution/executor/state.h"
#include "execution/train/segment.h"
#include "execution/train/session.h"
#include "execution/train/step.h"

typedef struct ls_workers ls_workers;

typedef struct ls_workers_options {
    /* Borrowed. Its run file is also that of the ranks; job.min_ranks, max_ranks,
     * max_replacements and hang_timeout apply to the workers. */
    const ls_session *session;
    const char *run_dir;    /* flight/ is created here */
    uint32_t ranks;         /* 2..leaves */
    uint32_t threads;       /* per rank */
    double start_timeout_s; /* for hosts to connect and ranks to be ready; 0: 60 s */
    /* asked while waiting; true: the current step is given up */
    bool (*should_stop)(void *context);
    void *stop_context;
    /* Events of the service thread (late, late_over, mismatch), delivered on the trainer's
     * thread while it waits or takes results. Takes over `fields`. */
    void (*event)(void *context, const char *name, json_t *fields);
    void *event_context;
    /* Called in these two: writes the state of the newest checkpoint to that of ls_workers_state;
     * *step_out: finished steps. What fails ends the run. NULL: such a loss ends it. */
    ls_status (*restore)(void *context, uint64_t *step_out);
    void *restore_context;
    const ls_workers_hosts *hosts; /* borrowed; NULL: this host only */
    /* adopt: finished steps whose results were written down; later results can be asked for */
    uint64_t heard;
    /* Take over ranks that an earlier trainer of this run left running (job.lease), if there are
     * any. */
    bool adopt;
} ls_workers_options;

/* Makes the segment; starts no process. Errors: LS_ERR_MEMORY, LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_workers_create(const ls_workers_options *options, ls_workers **workers_out);

/* Whether it took over ranks that run already. Their state is that after `*finished_out` steps,
 * or they are on the way to the next. The results of the last LS_RANK_RESULTS steps can be asked
 * for once more. */
bool ls_workers_is_adopted(const ls_workers *workers, uint64_t *finished_out);
/* Whether, in addition, those ranks are only on other hosts: the segment of this host was made
 * anew and is empty. */
bool ls_workers_is_fresh(const ls_workers *workers);

/* Steps below this number may be run. */
uint64_t ls_workers_granted(const ls_workers *workers);

/* Parameters and moments in the segment, without gradient buffers. */
void ls_workers_state(ls_workers *workers, ls_queue *queue, const ls_layout *layout, ls_state *state_out);

/* The segment's room for another copy of parameters and moments, to which only the trainer
 * writes. */
void ls_workers_snapshot(ls_workers *workers, ls_queue *queue, const ls_layout *layout, ls_state *state_out);

/* The next step is to keep the state before it, that after `step` finished steps, in the
 * snapshot; when the step is over, the snapshot is complete. Call it before granting that step.
 * False: not possible, because the state is spread over several hosts. */
bool ls_workers_keep(ls_workers *workers, uint64_t step);

/* Starts the service thread and the ranks. step: finished steps of the state that ranks will
 * find when they are granted a step. A tokenizer that the run trained must be in run_dir by now.
 * Errors: LS_ERR_IO, LS_ERR_MEMORY, LS_ERR_DISK. */
LS_MUST_CHECK ls_status ls_workers_launch(ls_workers *workers, uint64_t step);

/* Waits until all ranks have passed the pre-flight check (same configuration, op plan,
 * determinism class). Errors: LS_ERR_MISMATCH (which rank differs), LS_ERR_TIMEOUT (which rank
 * is missing), LS_ERR_RANKS_LOST (a rank ended), a rank's own error, LS_STOPPED when should_stop
 * returns true. */
LS_MUST_CHECK ls_status ls_workers_wait(ls_workers *workers);

/* A rank, after ls_workers_wait. */
typedef struct ls_workers_member {
    uint32_t rank;
    int32_t pid;
    const char *host;
} ls_workers_member;
uint32_t ls_workers_ranks(const ls_workers *workers);
ls_workers_member ls_workers_member_at(const ls_workers *workers, uint32_t rank);
uint64_t ls_workers_epoch(const ls_workers *workers);
/* Adds epoch, parts, ranks_total and the `ranks` of this host to `object`, from the control page
 * as it is now. Any thread. */
void ls_workers_append_team(const ls_workers *workers, json_t *object);

/*
 * The result of step `step`. Ranks may compute up to, not including, step `until` without waiting
 * for the next call (step < until). After the result of step until - 1 all ranks wait, and the
 * state belongs to the trainer. Grants cannot be taken back: to get the state before `until` is
 * reached, call ls_workers_stop and then this function until it returns an error.
 *
 * seconds_out: from begin to end of the step, on rank 0. Errors: those of ls_stepper_run;
 * LS_STOPPED when the step was given up after ls_workers_stop (the state is that before the step,
 * and the workers do nothing more); LS_ERR_RANKS_LOST, LS_ERR_MISMATCH or LS_ERR_TIMEOUT, with who
 * and where: see ls_workers_is_consistent.
 */
LS_MUST_CHECK ls_status ls_workers_step(ls_workers *workers, uint64_t step, uint64_t until,
                                        ls_step_result *result_out, double *seconds_out);

/* Brings the state after step `step`, the last one granted and finished, together on this host
 * from the owners on other hosts. Call it before the trainer reads the moments; on one host
 * there is nothing to do. Errors: the reason of an abort. */
LS_MUST_CHECK ls_status ls_workers_gather(ls_workers *workers, uint64_t step);

/* After an error: whether no rank was in the middle of an update, so that the state is that
 * after `*finished_out` steps. */
bool ls_workers_is_consistent(const ls_workers *workers, uint64_t *finished_out);

/* Several hosts, after LS_ERR_RANKS_LOST: which rank was lost, and how long before that was
 * noticed it gave its last sign of life (it died at some moment in that time). False when the
 * error was not the loss of a single rank. */
bool ls_workers_lost(const ls_workers *workers, uint32_t *rank_out, double *silent_s_out);

/* Between steps, before the state after `step` steps is saved: checks that it still is what the
 * ranks left, as far as they hashed it (on several hosts nothing is checked). Errors:
 * LS_ERR_MISMATCH, with *fault_out set; LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_workers_check_state(ls_workers *workers, const ls_state *state, uint64_t step,
                                               ls_step_fault *fault_out);

/* After the last step: passes events on. If a rank was lost in that step, waits for the event that
 * says how it was finished, at most half a second. */
void ls_workers_settle(ls_workers *workers);

/* One host: the run is to have `ranks` ranks, from the next step boundary at which they are
 * ready. The highest leave. Takes effect while steps run; the events rank_joined, rank_left and
 * team report it. Any thread. Errors: LS_ERR_INVALID outside [job.min_ranks, slots], or on
 * several hosts. */
LS_MUST_CHECK ls_status ls_workers_resize(ls_workers *workers, uint32_t ranks);
/* The same for one rank, whose slot stays empty. */
LS_MUST_CHECK ls_status ls_workers_leave(ls_workers *workers, uint32_t rank);
/* How many ranks there may be: job.max_ranks, limited by the leaves; on several hosts as many as
 * there are. */
uint32_t ls_workers_slots(const ls_workers *workers);

/* Asks the ranks to give up the step they are in. Safe in a signal handler. */
void ls_workers_stop(ls_workers *workers);

/* Memory of all ranks of this host and of the segment so far, without that of the trainer
 * itself. */
uint64_t ls_workers_memory(const ls_workers *workers);
/* Of a rank of this host: its result of step `step`, and its peak memory outside the segment.
 * False: it has none. */
bool ls_workers_rank(const ls_workers *workers, uint32_t local, uint64_t step, ls_step_result *result_out,
                     uint64_t *private_bytes_out);

/* Ends ranks and agents (politely, then with SIGKILL) and the service thread, and frees the
 * segment. NULL allowed. */
void ls_workers_destroy(ls_workers *workers);

#endif
