// SPDX-License-Identifier: Apache-2.0
/*
 * The host segment: the memory that all processes of one run on one host share. It is one memfd,
 * created by the agent of the host.
 *
 *   offset            area         contents
 *   0                +-----------+
 *                    | control   | ls_control: the trainer's orders, the team and its fence, the
 *                    |           | abort word, and one ls_rank_slot per local rank
 *   text_at          +-----------+
 *                    | text      | the resolved run file, which ranks parse instead of a file
 *   exchange_at      +-----------+
 *                    | exchange  | what parts tell each other inside a step (execution/parallel)
 *   state_at         +-----------+
 *                    | parameters| the trained ones, followed by the frozen ones
 *   moments_at       +-----------+
 *                    | m         | moments, once per host like the parameters
 *                    | v         |
 *                    | sums      | the owners' gradient sums; separate from the gradients, so that
 *                                a
 *                    |           | sum can be computed again
 *                    | snapshot  | parameters, m and v before an update, while that state is being
 *                    | (3 areas) | saved (docs/design/003-nothing-is-lost.md)
 *                    | residuals | with compression (executor/state.h), twice
 *                    |           | (executor/state.h)
 *   gradients_at     +-----------+
 *                    | part 0    | `buffers` flat buffers per local part: as many as any cut may
 *                    | part 1    | need
 *                    | ...       |
 *   workers_at       +-----------+
 *                    | worker 0  | with local steps (train/local.h): parameters, m and v of each
 *                    | ...       | worker
 *   bytes            +-----------+
 *
 * Each area begins at a multiple of 2 MiB, in the file and in memory; from moments_at on they are
 * flat_bytes apart. A page is allocated, zeroed, when it is first touched, so unused buffers cost
 * nothing. The memfd is sealed against resizing, outlives any rank, and is freed with the last
 * process that maps it: nothing remains, however the processes end.
 *
 * Ranks and parts. A rank is a slot for a process; its number stays the same for the whole run. A
 * part is a share of the step: some leaves, and slices of every bucket. The team says into how many
 * parts the step is cut and which rank holds which part. Normally rank i holds part i; when a rank
 * dies, another one holds its part until the end of the step, and then the step is cut anew.
 *
 * Ranks of a host are consecutive: [first_rank, first_rank + local_ranks). `local` below is a
 * rank's position in that range.
 *
 * Many processes write to the control page at once; the comment of each group of members names its
 * writer. No call here blocks.
 */
#ifndef LS_EXECUTION_TRAIN_SEGMENT_H
#define LS_EXECUTION_TRAIN_SEGMENT_H

#include "base/json.h"
#include "comm/transport/wait.h"
#include "execution/executor/state.h"
#include "execution/team/reform.h"
#include "execution/team/team.h"
#include "execution/train/preflight.h"
#include "execution/train/step.h"
#include "lockstep/comm.h"

#include <stddef.h>

enum {
    LS_SEGMENT_VERSION = 7,
    LS_SEGMENT_ALIGN = 2 << 20,
    /* how many steps ranks may be ahead of the trainer; a power of two */
    LS_RANK_RESULTS = 64,
    LS_RANK_TEXT_BYTES = 2048,
    LS_HOST_NAME_BYTES = 64,
};
#define LS_SEGMENT_MAGIC UINT64_C(0x746e656d6765736c) /* "lsegment" */

/* The phase of a rank's process. It only moves forward. */
typedef enum ls_rank_phase {
    LS_RANK_EMPTY,    /* not started, or too early to report anything */
    LS_RANK_STARTING, /* opening its session */
    LS_RANK_READY,    /* waiting for the first grant, or working */
    LS_RANK_ENDING,   /* failed, or ordered to end: from now on it writes to its own slot only */
} ls_rank_phase;

typedef struct ls_rank_result {
    uint64_t step;
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC of its host */
    ls_step_result result;
} ls_rank_result;

/*
 * Progress of a part, whichever rank runs it; it outlives its holders. In step s (0-based)
 * `entered` becomes s + 1 at the start, `begun` becomes s + 1 before the first store to parameters
 * or moments, and `done` becomes s + 1 after the last one. So if begun == done == n for all parts,
 * the state is exactly the state after n steps.
 */
typedef struct ls_part_marks {
    _Alignas(64) _Atomic uint64_t entered;
    _Atomic uint64_t begun, done;
} ls_part_marks;

/* Written by the rank itself unless the member says otherwise. Steps are counted as finished steps,
 * as everywhere. */
typedef struct ls_rank_slot {
    /* an ls_rank_phase */
    _Alignas(64) _Atomic uint32_t phase;
    _Atomic int32_t pid;
    /* number of processes started in this slot; 2 or more: the process replaces an earlier one */
    _Atomic uint32_t starts;
    /* start time of the process from /proc/PID/stat, because the kernel may reuse its pid */
    _Atomic uint64_t pid_start;
    /* what must agree between ranks; valid from LS_RANK_READY on */
    ls_preflight preflight;
    /* number of finished steps, with all parts it held */
    _Alignas(64) _Atomic uint64_t finished;
    /* the last value of `gather` whose transfer it has completed */
    _Atomic uint32_t gathered;
    /* An epoch. While it is above team_epoch, the rank touches no shared memory but its slot. */
    _Atomic uint64_t parked;
    /* set by the agent: end, because the rank holds no part any more */
    _Atomic uint32_t leave;
    /* it received SIGTERM */
    _Atomic uint32_t asks_to_leave;
    /* n: step n - 1 was given up and no rank updated; 0: none */
    _Atomic uint64_t gave_up;
    /* last sign of life, CLOCK_MONOTONIC */
    _Atomic uint64_t alive_ns;
    /* peak memory outside the segment, bytes */
    _Atomic uint64_t private_bytes;
    /* the ls_status it ended with; valid with LS_RANK_ENDING */
    _Alignas(64) _Atomic uint32_t status;
    /* fault of a step that failed; written before the abort */
    ls_step_fault fault;
    /* its error text */
    char text[LS_RANK_TEXT_BYTES];
    /* the result of step s is at s % LS_RANK_RESULTS, valid once finished > s */
    ls_rank_result results[LS_RANK_RESULTS];
} ls_rank_slot;

typedef struct ls_control {
    /* ---- written once, by the creator of the segment ---- */

    uint64_t magic;
    uint32_t version, control_bytes;
    /* epoch of the membership */
    uint64_t epoch;
    /* size of the whole segment */
    uint64_t bytes;
    /* how long ranks wait for another agent after theirs has died; 0: they end with it */
    uint64_t lease_ns;
    /* floats of a flat buffer, and the distance from one buffer to the next */
    uint64_t float_count, flat_bytes;
    /* floats after the trained ones in `parameters` */
    uint64_t frozen_floats;
    uint64_t text_at, text_bytes, exchange_at, exchange_bytes, state_at, moments_at, gradients_at, workers_at;
    /* leaves: of a step, with workers of one of them; buffers: gradient buffers per part; crew:
     * ranks that compute a leaf together; group: leaves of a group whose gradients are compressed,
     * 0: none */
    uint32_t leaves, buffers, crew, workers, group;
    /* rank slots: of the run, and of this host */
    uint32_t ranks, first_rank, local_ranks;
    /* The process that watches the ranks: changes when another agent takes over. agent_start: like
     * pid_start. */
    _Atomic int32_t agent_pid;
    _Atomic uint64_t agent_start;
    char host[LS_HOST_NAME_BYTES];
    /* address at which the ranks of several hosts meet; "": all ranks are on this host */
    char coordinator[LS_COMM_ADDRESS_BYTES];
    /* with a lease, on the trainer's host: the secret for the next trainer */
    char token[LS_COMM_TOKEN_BYTES];

    /* ---- orders, written by the trainer ---- */

    /* changes with each order: ranks sleep on it */
    _Alignas(64) ls_word orders;
    /* steps below this one may be run */
    _Atomic uint64_t until;
    /* give up the current step; checked between micro-batches */
    _Atomic uint32_t stop;
    /* The update that follows this many finished steps keeps the values before it in the snapshot.
     * 0: none. */
    _Atomic uint64_t keep;
    /* end after the current step */
    _Atomic uint32_t quit;
    /* A counter. When it changes, the state of all hosts is wanted on the trainer's host, as it is
     * after the last granted step. */
    _Atomic uint32_t gather;

    /* ---- the team, and the fence at which it changes; written by the agent ---- */

    /* epoch of `team`; stored after the team itself */
    _Alignas(64) _Atomic uint64_t team_epoch;
    /* The epoch of the next team. While it is above team_epoch, a fence is up: ranks park once they
     * have run all steps below `limit`, so that all of them stop after the same step. */
    _Atomic uint64_t fence;
    _Atomic uint64_t limit;
    /* A rank is dead: waits inside a step end too, with LS_FENCED. */
    _Atomic uint32_t hard;
    /* nonzero during an abort or a hard fence: the one word that waits inside a step check */
    _Atomic uint32_t interrupt;
    /* odd while `team` is being written (a sequence lock, see ls_control_read_team) */
    _Atomic uint32_t team_edits;
    ls_team team;
    /* Several hosts, set with a new cut. moves: whether the state must be moved before the first
     * step of the cut. sources: the cut whose hosts have the state. */
    uint32_t moves;
    ls_cut sources;
    /* written by ranks: the newest cut of which all hosts have received what they keep */
    _Atomic uint64_t held;
    /* The team that is being copied into `team`: complete whenever team_edits is odd, so that
     * another agent can finish the copy. */
    ls_team team_spare;
    /* To be added to CLOCK_MONOTONIC of this host for that of the trainer's. */
    _Atomic int64_t clock_offset_ns;
    /* pids of the processes that hold the parts */
    int32_t team_pids[LS_LOCAL_RANKS_MAX];
    ls_part_marks parts[LS_LOCAL_RANKS_MAX];

    /* ---- news, written by ranks ---- */

    /* changes with each result, phase and abort: the trainer sleeps on it */
    _Alignas(64) ls_word news;

    /* ---- the abort, written by the first process that claims it ---- */

    /* 0, or the ls_status that is the reason. Every wait of ranks and trainer checks it. */
    _Alignas(64) _Atomic uint32_t abort;
    /* the process that writes, or has written, the reason; 0: none */
    _Atomic uint32_t abort_claim;
    /* the rank at fault, -1: none */
    _Atomic int32_t abort_rank;
    _Atomic uint64_t abort_ns;
    char abort_text[LS_RANK_TEXT_BYTES];

    /* local_ranks of them */
    _Alignas(64) ls_rank_slot slots[];
} ls_control;

enum { LS_SEGMENT_WORKERS_MAX = 1024 };

/* What a segment is made for. */
typedef struct ls_segment_plan {
    uint64_t float_count;    /* of the layout */
    uint64_t frozen_floats;  /* parameter_floats - float_count */
    uint64_t exchange_bytes; /* size of the exchange area, see execution/parallel */
    uint32_t leaves, ranks;  /* of the run, on all hosts */
    uint32_t group;          /* leaves of a group whose gradients are compressed; 0: none */
    uint32_t crew;           /* of the mesh (parallel/mesh.h); 0 counts as 1 */
    uint32_t workers;        /* of local steps (train/local.h); 0: none */
    uint32_t first_rank, local_ranks;
    /* The first team, whose parts the first local ranks hold. parts 0: one part per rank.
     * local_parts 0: this host has no parts. */
    uint32_t parts, first_part, local_parts;
    uint64_t epoch;
    uint64_t lease_ns; /* job.lease */
    const char *text;  /* the resolved run file; copied */
    size_t text_bytes;
} ls_segment_plan;

typedef struct ls_segment {
    int fd;
    void *map;
    uint64_t bytes;
    ls_control *control;
    const char *text;
    void *exchange;
    float *parameters, *m, *v;
    float *sums;
    float *snapshot[3]; /* parameters, m, v */
    float *residuals;   /* flat after flat */
} ls_segment;

/* Its pages are allocated when they are first touched. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_segment_create(const ls_segment_plan *plan, ls_segment *segment_out);
/* Maps the segment of another process. path: /proc/PID/fd/N of its memfd. Errors: LS_ERR_DATA when
 * the file is not a complete segment of this version, LS_ERR_NOT_FOUND, LS_ERR_MEMORY,
 * LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_segment_attach(const char *path, ls_segment *segment_out);
void ls_segment_release(ls_segment *segment);

/* Before any rank runs: declares that the state will be the one after `step` steps. */
void ls_segment_begin_at(ls_segment *segment, uint64_t step);

/* Flat gradient buffer `index` of local part `part`, and how many the part needs in the team's
 * cut. */
float *ls_segment_gradient(const ls_segment *segment, uint32_t part, uint32_t index);
uint32_t ls_segment_gradient_count(const ls_segment *segment, uint32_t part);
static inline ls_rank_slot *ls_segment_slot(const ls_segment *segment, uint32_t local)
{
    return &segment->control->slots[local];
}

/* Whether the segment was made for a model with this layout. */
bool ls_segment_fits(const ls_segment *segment, const ls_layout *layout);
/* The state in the segment, with the gradient buffers of local part `local`, or without any when it
 * is LS_SEGMENT_NO_RANK. ls_state_release leaves the segment's memory alone. */
enum { LS_SEGMENT_NO_RANK = 0xffffffff };
void ls_segment_state(const ls_segment *segment, uint32_t local, ls_queue *queue, const ls_layout *layout,
                      ls_state *state_out);

/* Bytes of the segment that any process has touched so far. */
uint64_t ls_segment_touched_bytes(const ls_segment *segment);

/* ---- the control page ---- */

/* For all processes: */

/*
 * Aborts the run: every wait that checks control->abort ends. The first reason is kept; returns
 * whether this was the first. rank: the rank at fault, -1: none. Any thread of any process; not
 * from a signal handler.
 */
bool ls_control_abort(ls_control *control, ls_status status, int32_t rank, const char *text);
/* For the agent: process `pid` of this host is gone. If it died between claiming the abort and
 * giving the reason, others may claim it again. */
void ls_control_drop_claim(ls_control *control, int32_t pid);
/* LS_OK, or the reason of the abort as this thread's error. */
LS_MUST_CHECK ls_status ls_control_aborted(const ls_control *control);

/* For the trainer: orders. Safe in a signal handler. */
void ls_control_grant(ls_control *control, uint64_t until);
void ls_control_stop(ls_control *control);
void ls_control_quit(ls_control *control);
void ls_control_gather(ls_control *control, uint32_t count);

/*
 * For the agent: changing the team.
 *
 *   1. Raise a fence (epoch: one above any before).
 *   2. Wait until ls_control_is_parked of every living process that may act on the current team.
 *   3. Write the next team, which lifts the fence.
 *
 * A fence that is up can be raised again, to a hard one or for a later epoch; ranks that are parked
 * stay parked.
 *
 * A soft fence must stop all ranks after the same step, although they can be one step apart and the
 * agent cannot know which of them is about to enter the next one. So a rank parks between two steps
 * wherever it is, unless the limit is above that. When all ranks wait and some part has entered a
 * later step, the agent raises the limit to that step and the others catch up.
 */
void ls_control_fence(ls_control *control, uint64_t epoch, bool hard);
/* While a soft fence is up: ranks still run the steps below `step`. */
void ls_control_limit(ls_control *control, uint64_t step);
/* For a rank of a run with several hosts whose agent is gone, while the rank itself is not parked:
 * raises a hard fence unless one is up. Another agent may arrive at the same time; it raises a
 * fence above this one. */
void ls_control_fence_alone(ls_control *control);
bool ls_control_is_parked(const ls_control *control, uint32_t local);
/* Orders a rank that holds no part to end. */
void ls_control_leave(ls_control *control, uint32_t local);
void ls_control_team(ls_control *control, const ls_team *team);
/* For an agent that replaces one that died: completes the publication that the old agent may have
 * left half done. */
void ls_control_mend_team(ls_control *control);
/* Before a process is started in this slot: counts it, and clears what the process before it wrote
 * there, except its results. */
void ls_control_clear_slot(ls_control *control, uint32_t local);
/* At a new cut, with all ranks parked: marks all parts as having finished `step` steps. */
void ls_control_begin_cut(ls_control *control, uint64_t step);

/*
 * For a rank: whether a fence asks it to park, when it has finished `finished` steps and is not
 * inside one (inside a step, pass limit as finished). How a rank parks:
 *
 *   while (ls_control_is_fenced(control, finished)) {
 *       ls_control_park(control, local, team.epoch);
 *       wait on `orders` until team_epoch has changed, or the fence no longer asks (higher limit);
 *       if (team_epoch has changed) {
 *           read the team and rebuild; forget the current step unless team.cut is the same;
 *       } else if (ls_control_unpark(control, local, finished)) {
 *           break;
 *       }
 *   }
 *   if (team_epoch differs from that of the team it knows) read the team and start over;
 *
 * The fence is checked before the team. A process that was started while a fence was up, in a slot
 * that the current team names, has read that team but must not act on it. In this order it sees
 * either the fence or the changed team_epoch.
 */
bool ls_control_is_fenced(const ls_control *control, uint64_t finished);
/* team_epoch: of the team that the rank knows. The rank counts as parked while that team is the
 * current one, whichever fence is up. If another team was published in the meantime, the mark has
 * no effect, and the agent waits until the rank has seen that team. */
void ls_control_park(ls_control *control, uint32_t local, uint64_t team_epoch);
/* When the fence no longer asks and the team is the same. true: the rank may continue; false: the
 * fence was raised in the meantime, and the rank is still parked. */
LS_MUST_CHECK bool ls_control_unpark(ls_control *control, uint32_t local, uint64_t finished);
/* Copies the published team, never a half-written one; any time. Not for a process that may outlive
 * the agent: an agent that dies while writing leaves the team odd until the next agent arrives, if
 * one does, and this call would loop. */
void ls_control_read_team(const ls_control *control, ls_team *team_out);
/* One attempt: false, with *team_out undefined, while the team is being written. */
LS_MUST_CHECK bool ls_control_try_team(const ls_control *control, ls_team *team_out);

/* Adds the team and the ranks to a JSON object, for people and other programs: epoch, parts,
 * ranks_total, ranks [{rank, pid, phase, finished, parts, silent_ms}]. Any process, any time. */
void ls_control_append_team(const ls_control *control, json_t *object);

/* For a rank: reports to the trainer. */
void ls_control_phase(ls_control *control, uint32_t local, ls_rank_phase phase);
void ls_control_result(ls_control *control, uint32_t local, const ls_rank_result *result);
void ls_control_gave_up(ls_control *control, uint32_t local, uint64_t step);

/* The lowest slot that has the result of step `step`, whichever process wrote it; NULL: no slot has
 * it. */
const ls_rank_slot *ls_control_with_result(const ls_control *control, uint64_t step);
/* The first step from which on the results of all finished steps are available. */
uint64_t ls_control_results_from(const ls_control *control);

/*
 * Whether no part of this host is in the middle of an update; if so, the state is the one after
 * *finished_out steps. Meaningful only when no process writes any more: all ranks are waiting or
 * have ended.
 */
bool ls_control_is_consistent(const ls_control *control, uint64_t *finished_out);

#endif
