// SPDX-License-Identifier: Apache-2.0
/*
 * The host segment: the memory that all processes of one run on one host share, one memfd made by the host's agent.
 *
 *   control     orders from the trainer, the abort word, and one slot per local rank: what it does, how far it is, its results
 *   text        the resolved run file, which ranks parse instead of reading one
 *   exchange    what ranks say to each other inside a step (execution/parallel)
 *   parameters, m, v      once per host
 *   sums        the owners' sums of the gradients; apart from the gradients, so that a sum can be made again
 *   snapshot    parameters, m and v as they were behind a step that is being saved (docs/design/003-nothing-is-lost.md)
 *   gradients   per local part as many flat buffers as any cut may need; taken with the first touch, as all of it
 *
 * Ranks and parts. A rank is a place for a process; its number is its name as long as the run lasts. A part is a share of the step: some
 * leaves, and slices of every bucket. The team says in how many parts the step is cut and which rank holds which. Undisturbed, part i is
 * held by rank i; when a rank dies another holds its part to the end of the step, then the step is cut anew.
 *
 * Each area begins at a multiple of 2 MiB in file and memory. Pages come with the first touch and are zero. The memfd is sealed against
 * resizing, outlives any rank, and vanishes with the last process that maps it: nothing is left behind, however they end.
 *
 * Ranks of a host are consecutive: [first_rank, first_rank + local_ranks). `local` below is a rank's position in that range.
 *
 * The control page is written by many processes at once; each field says by whom. Nothing here blocks.
 */
#ifndef LS_EXECUTION_ELASTIC_SEGMENT_H
#define LS_EXECUTION_ELASTIC_SEGMENT_H

#include "base/json.h"
#include "execution/comm/wait.h"
#include "execution/diagnose/preflight.h"
#include "execution/elastic/reform.h"
#include "execution/state.h"
#include "execution/train/step.h"
#include "lockstep/comm.h"

#include <stddef.h>

enum {
    LS_SEGMENT_VERSION = 3,
    LS_SEGMENT_ALIGN = 2 << 20,
    LS_LOCAL_RANKS_MAX = 256,
    LS_RANK_RESULTS = 64, /* a power of two: steps that ranks may be ahead of the trainer */
    LS_RANK_TEXT_BYTES = 2048,
    LS_HOST_NAME_BYTES = 64,
};
#define LS_SEGMENT_MAGIC UINT64_C(0x746e656d6765736c) /* "lsegment" */

/* Where a rank is in its life. Only forward. */
typedef enum ls_rank_phase {
    LS_RANK_EMPTY,    /* not started, or not yet come so far as to say anything */
    LS_RANK_STARTING, /* opens its session */
    LS_RANK_READY,    /* waits for the first grant, or works */
    LS_RANK_ENDING,   /* failed, or was told to end: touches nothing but its slot any more */
} ls_rank_phase;

typedef struct ls_rank_result {
    uint64_t step;
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC of its host */
    ls_step_result result;
} ls_rank_result;

/*
 * Who computes: one epoch of the membership, as far as it concerns this host. Written by the host's agent alone, while every rank that lives
 * is parked, or before any rank runs.
 */
typedef struct ls_team {
    uint64_t epoch;
    uint64_t cut;        /* epoch in which the step was cut into these parts: it changes between steps only */
    uint64_t first_step; /* finished steps when it was cut */
    uint64_t step;  /* finished steps when it was published: its parts go on with this one, or begin it */
    uint32_t parts; /* on all hosts, 1..leaves */
    uint32_t first_part, local_parts;    /* of this host */
    uint16_t holder[LS_LOCAL_RANKS_MAX]; /* local rank that runs local part i */
} ls_team;

/*
 * How far a part is, whoever runs it; it outlives its holders. While step s (0-based) runs, entered is s + 1; before
 * the first store to parameters or moments begun becomes s + 1; behind the last one done becomes s + 1. A state in which begun == done ==
 * n for all parts is exactly that after n steps.
 */
typedef struct ls_part_marks {
    _Alignas(64) _Atomic uint64_t entered;
    _Atomic uint64_t begun, done;
} ls_part_marks;

/* What a rank says of itself; written by it alone. Counts of steps are "finished steps", as everywhere. */
typedef struct ls_rank_slot {
    _Alignas(64) _Atomic uint32_t phase; /* an ls_rank_phase */
    _Atomic int32_t pid;
    _Atomic uint32_t starts;    /* processes that were started in this place; 2 and more: it replaces one */
    _Atomic uint64_t pid_start; /* of that process, as /proc/PID/stat has it: its number may be used again */
    ls_preflight preflight;     /* what has to agree between ranks; valid from LS_RANK_READY on */
    _Alignas(64) _Atomic uint64_t finished; /* steps behind whose end it is, with all parts it held */
    _Atomic uint32_t gathered;              /* the last `gather` it has taken part in */
    _Atomic uint64_t parked; /* an epoch: below it, it touches nothing shared until team_epoch is another */
    _Atomic uint32_t leave;  /* by the agent: end, once no part is held */
    _Atomic uint32_t asks_to_leave;          /* it was sent SIGTERM */
    _Atomic uint64_t gave_up;                /* n: step n - 1 was given up, no rank updated; 0: none */
    _Atomic uint64_t alive_ns;               /* last sign of life, CLOCK_MONOTONIC */
    _Atomic uint64_t private_bytes;          /* most memory beside the segment so far */
    _Alignas(64) _Atomic uint32_t status;    /* an ls_status it ended with; valid with LS_RANK_ENDING */
    ls_step_fault fault;                     /* of a step that failed. Written before the abort */
    char text[LS_RANK_TEXT_BYTES];           /* its error text */
    ls_rank_result results[LS_RANK_RESULTS]; /* of step s at s % LS_RANK_RESULTS, once finished > s */
} ls_rank_slot;

typedef struct ls_control {
    /* Written once by who made the segment. */
    uint64_t magic;
    uint32_t version, control_bytes;
    uint64_t epoch;                   /* of the membership */
    uint64_t bytes;                   /* of the whole segment */
    uint64_t lease_ns;                /* ranks wait so long for another agent; 0: they end with theirs */
    uint64_t float_count, flat_bytes; /* of one flat buffer, and from one to the next */
    uint64_t frozen_floats;           /* behind those of `parameters` */
    uint64_t text_at, text_bytes, exchange_at, exchange_bytes, state_at, moments_at, gradients_at;
    uint32_t leaves, buffers;                /* buffers: gradient buffers of a part */
    uint32_t ranks, first_rank, local_ranks; /* places for ranks: of the run, and of this host */
    _Atomic int32_t agent_pid;               /* who watches the ranks: changes when another takes its place */
    _Atomic uint64_t agent_start;            /* as pid_start */
    char host[LS_HOST_NAME_BYTES];
    char coordinator
        [LS_COMM_ADDRESS_BYTES];     /* where the ranks of several hosts meet; "": all are on this one */
    char token[LS_COMM_TOKEN_BYTES]; /* of the trainer's host, with a lease: for the next trainer */

    /* The trainer's orders; `orders` changes with each. */
    _Alignas(64) ls_word orders;
    _Atomic uint64_t until; /* steps below it may be run */
    _Atomic uint32_t stop;  /* give up the step that runs: looked at between micro-batches */
    _Atomic uint64_t
        keep; /* the update behind so many finished steps keeps what was before it in the snapshot; 0: none */
    _Atomic uint32_t quit; /* end, when the step that runs is through */
    _Atomic uint32_t
        gather; /* counts: the state of all hosts is wanted on the trainer's, behind the last granted step */

    /* The team, and the fence behind which it changes. By the agent. */
    _Alignas(64) _Atomic uint64_t team_epoch; /* of `team`, written behind it */
    _Atomic uint64_t fence; /* the epoch that is to come: while it is above team_epoch, ranks park ... */
    _Atomic uint64_t limit; /* ... once they have run the steps below this: all stop behind the same one */
    _Atomic uint32_t hard;  /* a rank is dead: waits inside a step end as well, with LS_FENCED */
    _Atomic uint32_t interrupt;  /* not 0 with an abort or a hard fence: what waits inside a step look at */
    _Atomic uint32_t team_edits; /* odd while `team` is written: ls_control_read_team */
    ls_team team;
    /* Several hosts. By the agent, with a new cut: whether the state has to be brought to where it belongs before its first step, and the
     * cut whose hosts have it. */
    uint32_t moves;
    ls_cut sources;
    _Atomic uint64_t held; /* by ranks: the newest cut of which all hosts have what they keep */
    ls_team team_spare;    /* what is written to it: whole, when team_edits is odd */
    int32_t team_pids[LS_LOCAL_RANKS_MAX]; /* of the processes that hold the parts */
    ls_part_marks parts[LS_LOCAL_RANKS_MAX];

    /* What ranks tell the trainer; changes with each result, phase and abort. */
    _Alignas(64) ls_word news;

    /* The end of everything: the first who claims it writes status and text. Every wait of ranks and trainer looks at `abort`. */
    _Alignas(64) _Atomic uint32_t abort; /* 0, or the ls_status why */
    _Atomic uint32_t abort_claim;
    _Atomic int32_t abort_rank; /* whose fault, -1: nobody's */
    _Atomic uint64_t abort_ns;
    char abort_text[LS_RANK_TEXT_BYTES];

    _Alignas(64) ls_rank_slot slots[]; /* local_ranks */
} ls_control;

/* What a segment is made for. */
typedef struct ls_segment_plan {
    uint64_t float_count;    /* of the layout */
    uint64_t frozen_floats;  /* parameter_floats - float_count */
    uint64_t exchange_bytes; /* zeroed memory for execution/parallel */
    uint32_t leaves, ranks;  /* of the run, on all hosts */
    uint32_t first_rank, local_ranks;
    uint32_t parts, first_part,
        local_parts; /* of the first team, held by the first local ranks; parts 0: as the ranks. local_parts 0: this host has none of them */
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
} ls_segment;

/* Bytes a segment of this plan has; its pages are taken when they are touched. */
uint64_t ls_segment_bytes(const ls_segment_plan *plan);

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_segment_create(const ls_segment_plan *plan, ls_segment *segment_out);
/* Maps one that another process made. path: /proc/PID/fd/N of its memfd. Errors: LS_ERR_DATA when it is none of this version or not whole,
 * LS_ERR_NOT_FOUND, LS_ERR_MEMORY, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_segment_attach(const char *path, ls_segment *segment_out);
void ls_segment_release(ls_segment *segment);

/* Before any rank runs: the state will be that after `step` steps. */
void ls_segment_begin_at(ls_segment *segment, uint64_t step);

/* Flat gradient buffer `index` of local part `part`, and how many it needs in the team's cut. */
float *ls_segment_gradient(const ls_segment *segment, uint32_t part, uint32_t index);
uint32_t ls_segment_gradient_count(const ls_segment *segment, uint32_t part);
static inline ls_rank_slot *ls_segment_slot(const ls_segment *segment, uint32_t local)
{
    return &segment->control->slots[local];
}

/* The state in the segment, with the gradient buffers of local part `local`, or with none when it is LS_SEGMENT_NO_RANK. ls_state_release leaves the
 * segment's memory alone. */
enum { LS_SEGMENT_NO_RANK = 0xffffffff };
/* Whether it was made for a model laid out like this. */
bool ls_segment_fits(const ls_segment *segment, const ls_layout *layout);
void ls_segment_state(const ls_segment *segment, uint32_t local, ls_queue *queue, const ls_layout *layout,
                      ls_state *state_out);

/* Bytes of the segment that have been touched by anyone. */
uint64_t ls_segment_touched_bytes(const ls_segment *segment);

/* ---- the control page ---- */

/*
 * Aborts: every wait that looks at control->abort ends. The first reason stays; returns whether this was it. rank: whose fault, -1: nobody's.
 * Any thread of any process; not from a signal handler.
 */
bool ls_control_abort(ls_control *control, ls_status status, int32_t rank, const char *text);
/* LS_OK, or the reason of the abort as this thread's error. */
LS_MUST_CHECK ls_status ls_control_aborted(const ls_control *control);

/* The trainer's orders. Safe in a signal handler. */
void ls_control_grant(ls_control *control, uint64_t until);
void ls_control_stop(ls_control *control);
void ls_control_quit(ls_control *control);
void ls_control_gather(ls_control *control, uint32_t count);

/*
 * The agent's. Changing the team: raise a fence (epoch: one above any before), wait until ls_control_is_parked of every process that lives
 * and may act on the team in force, write the next team, which lifts it. A fence can be raised again, harder or for a later epoch, while it
 * stands: who is parked stays so.
 *
 * Soft fences stop all behind the same step though ranks are up to one step apart, and nobody knows who enters next: a rank parks where it
 * is between two steps, unless the limit is above that. When all wait and some part has entered a later step, the limit is raised to it.
 */
void ls_control_fence(ls_control *control, uint64_t epoch, bool hard);
/* With a fence up and not hard: ranks still run the steps below it. */
void ls_control_limit(ls_control *control, uint64_t step);
/* A rank's, on a host of several whose agent is gone, while it is not parked itself: a hard fence, unless one stands. Another agent may come at
 * the same time; it raises a fence above. */
void ls_control_fence_alone(ls_control *control);
bool ls_control_is_parked(const ls_control *control, uint32_t local);
void ls_control_leave(ls_control *control, uint32_t local); /* holds no part: it is to end */
void ls_control_team(ls_control *control, const ls_team *team);
/* An agent that takes the place of one that is gone: finishes what it may have been about to publish. */
void ls_control_mend_team(ls_control *control);
/* Before a process is started in this place: it is counted, and what the one before it said of itself is gone, but for its results. */
void ls_control_clear_slot(ls_control *control, uint32_t local);
/* At a new cut, everyone parked: all parts have finished `step` steps. */
void ls_control_begin_cut(ls_control *control, uint64_t step);

/*
 * A rank's. Whether a fence asks it to park, having finished `finished` steps and not being inside one (inside: pass limit as finished).
 *
 *   while (ls_control_is_fenced(control, finished)) {
 *       ls_control_park(control, local, team.epoch);
 *       ... wait on `orders` until team_epoch is another, or the fence no longer asks (a higher limit) ...
 *       if team_epoch is another: read the team, rebuild, forget the step it was in unless team.cut is the same
 *       else if (ls_control_unpark(control, local, finished)) break;
 *   }
 *   if team_epoch is another than that of the team it knows: read the team, begin here again
 *
 * In this order, the fence first: a process that was started behind a fence, in a place that the team in force names, has read that team and
 * must not act on it. It either sees the fence, or that the team is another.
 */
bool ls_control_is_fenced(const ls_control *control, uint64_t finished);
/* team_epoch: of the team it knows. It has parked as long as that is the one in force, whichever fence stands: when another was published
 * meanwhile the mark says nothing, and the agent waits until the rank has seen that team. */
void ls_control_park(ls_control *control, uint32_t local, uint64_t team_epoch);
/* The fence asks no longer, with the same team: true, and the rank may go on; false: it was raised meanwhile, the rank is still parked. */
LS_MUST_CHECK bool ls_control_unpark(ls_control *control, uint32_t local, uint64_t finished);
/* Copies the team whose epoch is published: whole, at any time. Not for who may outlive the agent: one that dies while it writes leaves the team
 * to the next agent, if one comes. */
void ls_control_read_team(const ls_control *control, ls_team *team_out);
/* One try: false, and *team_out is of no use, when the team is being written. */
LS_MUST_CHECK bool ls_control_try_team(const ls_control *control, ls_team *team_out);

/* Adds what the page says of team and ranks to a JSON object, for people and other programs: epoch, parts, ranks_total, ranks [{rank, pid, phase,
 * finished, parts, silent_ms}]. Any process, any time. */
void ls_control_append_team(const ls_control *control, json_t *object);

/* A rank's words. */
void ls_control_phase(ls_control *control, uint32_t local, ls_rank_phase phase);
void ls_control_result(ls_control *control, uint32_t local, const ls_rank_result *result);
void ls_control_gave_up(ls_control *control, uint32_t local, uint64_t step);

/* The lowest place that has the result of step `step`, whichever process it had then; NULL: none has. */
const ls_rank_slot *ls_control_with_result(const ls_control *control, uint64_t step);
/* The first step from which on the results of all that are finished are there. */
uint64_t ls_control_results_from(const ls_control *control);

/*
 * Whether no part of this host is in the middle of an update: then the state is that after *finished_out steps. Meaningful when nobody
 * writes any more: all ranks wait, or have ended.
 */
bool ls_control_is_consistent(const ls_control *control, uint64_t *finished_out);

#endif
