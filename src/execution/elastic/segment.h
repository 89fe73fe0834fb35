// SPDX-License-Identifier: Apache-2.0
/*
 * The host segment: the memory that all processes of one run on one host share, one memfd made by the host's agent.
 *
 *   control     orders from the trainer, the abort word, and one slot per local rank: what it does, how far it is, its results
 *   text        the resolved run file, which ranks parse instead of reading one
 *   exchange    what ranks say to each other inside a step (execution/parallel)
 *   parameters, m, v      once per host
 *   gradients   per local rank as many flat buffers as its leaves need (ls_tree_range_buffers)
 *
 * Each part begins at a multiple of 2 MiB in file and memory. Pages come with the first touch and are zero. The memfd is sealed against
 * resizing, outlives any rank, and vanishes with the last process that maps it: nothing is left behind, however they end.
 *
 * Ranks of a host are consecutive: [first_rank, first_rank + local_ranks). `local` below is a rank's position in that range.
 *
 * The control page is written by many processes at once; each field says by whom. Nothing here blocks.
 */
#ifndef LS_EXECUTION_ELASTIC_SEGMENT_H
#define LS_EXECUTION_ELASTIC_SEGMENT_H

#include "execution/comm/wait.h"
#include "execution/diagnose/preflight.h"
#include "execution/state.h"
#include "execution/train/step.h"
#include "lockstep/comm.h"

#include <stddef.h>

enum {
    LS_SEGMENT_VERSION = 1,
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
 * What a rank says of itself; written by it alone. Counts of steps are "finished steps", as everywhere: while step s (0-based) runs,
 * entered is s + 1; before the first store to parameters or moments begun becomes s + 1; behind the last one done becomes s + 1; behind the
 * end-of-step barrier finished becomes s + 1. A state in which begun == done == n for all ranks is exactly that after n steps.
 */
typedef struct ls_rank_slot {
    _Alignas(64) _Atomic uint32_t phase; /* an ls_rank_phase */
    _Atomic int32_t pid;
    ls_preflight preflight; /* what has to agree between ranks; valid from LS_RANK_READY on */
    _Alignas(64) _Atomic uint64_t entered;
    _Atomic uint64_t begun, done, finished;
    _Atomic uint32_t gathered;               /* the last `gather` it has taken part in */
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
    uint64_t float_count, flat_bytes; /* of one flat buffer, and from one to the next */
    uint64_t text_at, text_bytes, exchange_at, exchange_bytes, state_at, gradients_at;
    uint32_t leaves, ranks, first_rank, local_ranks;
    int32_t agent_pid;
    char host[LS_HOST_NAME_BYTES];
    char coordinator
        [LS_COMM_ADDRESS_BYTES]; /* where the ranks of several hosts meet; "": all are on this one */

    /* The trainer's orders; `orders` changes with each. */
    _Alignas(64) ls_word orders;
    _Atomic uint64_t until; /* steps below it may be run */
    _Atomic uint32_t stop;  /* give up the step that runs: looked at between micro-batches */
    _Atomic uint32_t quit;  /* end, when the step that runs is through */
    _Atomic uint32_t
        gather; /* counts: the state of all hosts is wanted on the trainer's, behind the last granted step */

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
    uint64_t exchange_bytes; /* zeroed memory for execution/parallel */
    uint32_t leaves, ranks;  /* of the run, on all hosts */
    uint32_t first_rank, local_ranks;
    uint64_t epoch;
    const char *text; /* the resolved run file; copied */
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
    uint32_t gradient_first[LS_LOCAL_RANKS_MAX + 1]; /* index of each local rank's first gradient buffer */
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

/* Flat gradient buffer `index` of local rank `local`, and how many it has. */
float *ls_segment_gradient(const ls_segment *segment, uint32_t local, uint32_t index);
uint32_t ls_segment_gradient_count(const ls_segment *segment, uint32_t local);
static inline ls_rank_slot *ls_segment_slot(const ls_segment *segment, uint32_t local)
{
    return &segment->control->slots[local];
}

/* The state in the segment, with the gradient buffers of `local`, or with none when it is LS_SEGMENT_NO_RANK. ls_state_release leaves the
 * segment's memory alone. */
enum { LS_SEGMENT_NO_RANK = 0xffffffff };
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

/* A rank's words. */
void ls_control_phase(ls_control *control, uint32_t local, ls_rank_phase phase);
void ls_control_result(ls_control *control, uint32_t local, const ls_rank_result *result);
void ls_control_gave_up(ls_control *control, uint32_t local, uint64_t step);

/*
 * Whether no rank of this host is in the middle of an update: then the state is that after *finished_out steps. Meaningful when nobody
 * writes any more: all ranks wait, or have ended.
 */
bool ls_control_is_consistent(const ls_control *control, uint64_t *finished_out);

#endif
