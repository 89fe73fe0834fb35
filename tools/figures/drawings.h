// SPDX-License-Identifier: Apache-2.0
/*
 * Drawings: the figures of the guide, made with the layers of the program that they explain.
 *
 * Each appends one self-contained SVG figure (base/svg.h) to a text: 440 units wide, so that it can
 * be read on a phone, and as high as necessary. `lockstep-figures` prints them, and a test compares the
 * files under docs/guide with what these functions make.
 *
 * Pure; thread-safe for separate texts.
 */
#ifndef LS_FIGURES_DRAWINGS_H
#define LS_FIGURES_DRAWINGS_H

#include "base/arena.h"
#include "base/json.h"
#include "base/svg.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_STEP_DRAWING_LEAVES_MAX = 16, LS_STEP_DRAWING_SEQUENCES_MAX = 8 };

typedef struct ls_step_drawing {
    uint32_t leaves; /* 1..LS_STEP_DRAWING_LEAVES_MAX */
    /* 1..leaves; rank k computes the leaves from leaves * k / ranks on */
    uint32_t ranks;
    uint32_t sequences_per_leaf; /* 1..LS_STEP_DRAWING_SEQUENCES_MAX */
    uint32_t micro_batch;        /* sequences at once; divides sequences_per_leaf */
} ls_step_drawing;

/*
 * One training step from top to bottom: the batch cut into leaves, who computes which leaf in which
 * wave, the tree that adds the leaves up, and the update.
 *
 * A wave is what all ranks compute side by side: one leaf each. The tree is that of
 * execution/train/step.h: an interval [a, b) of leaves splits at the largest power of two below its
 * length. Sums that one rank can make alone have its colour, the others are grey.
 *
 * Errors: LS_ERR_INVALID when a number is outside its range; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_step(const ls_step_drawing *step, ls_text *text);

/*
 * The anatomy of a progress line (telemetry/record/progress.h): the line in pieces, and for each
 * piece what it means, what is good, and what is not. `line` is a plain one, as in a log, with two
 * spaces between its numbers.
 *
 * Errors: LS_ERR_INVALID when the line has no known piece; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_progress(const char *line, ls_text *text);

typedef struct ls_audit_drawing {
    uint32_t leaves;                /* 1..LS_STEP_DRAWING_LEAVES_MAX */
    uint32_t ranks;                 /* 2..leaves */
    uint32_t leaf;                  /* that is audited */
    uint32_t owner, checker, judge; /* ranks */
} ls_audit_drawing;

/*
 * A leaf audit and the guard of the state (execution/integrity/audit.h, guard.h): who computes the
 * leaf, what is compared, who judges.
 *
 * Errors: LS_ERR_INVALID when a number is outside its range; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_audit(const ls_audit_drawing *audit, ls_text *text);

/* ---- ranks (ranks.c) ---- */

enum {
    LS_RANKS_DRAWING_RANKS_MAX = 8,
    LS_RANKS_DRAWING_HOSTS_MAX = 3,
    LS_RING_DRAWING_RANKS_MAX = 4,
    LS_REPORT_DRAWING_RANKS_MAX = 6,
};

typedef struct ls_ranks_drawing {
    uint32_t hosts;  /* 1..LS_RANKS_DRAWING_HOSTS_MAX, divides ranks */
    uint32_t ranks;  /* 1..LS_RANKS_DRAWING_RANKS_MAX, at most leaves */
    uint32_t leaves; /* rank k computes the leaves from leaves * k / ranks on */
} ls_ranks_drawing;

/*
 * A run on several ranks: the processes of each host, what each computes, the segment that they
 * share, and whose slice is whose. Errors: LS_ERR_INVALID when a number is outside its range;
 * nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_ranks(const ls_ranks_drawing *ranks, ls_text *text);

/*
 * Three ways to add the buffers of `ranks` ranks: a ring, direct exchange in the order of the tree,
 * and straight from shared memory. Errors: LS_ERR_INVALID when ranks is not
 * 2..LS_RING_DRAWING_RANKS_MAX; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_ring(uint32_t ranks, ls_text *text);

/*
 * Out of step: what a report describes: different operations, a late rank, a dead rank, and a
 * circle of ranks that wait. Ranks over time, drawn for `ranks` of them. Errors: LS_ERR_INVALID when ranks is not
 * 3..LS_REPORT_DRAWING_RANKS_MAX; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_report(uint32_t ranks, ls_text *text);

/* ---- a split model (split.c) ---- */

enum {
    LS_SPLIT_DRAWING_GPUS_MAX = 4,
    LS_PIPELINE_DRAWING_STAGES_MAX = 6,
    LS_PIPELINE_DRAWING_MICRO_BATCHES_MAX = 12,
};

/*
 * Ways to split a model over `gpus` GPUs: data parallel, sharded, tensor parallel, pipeline, and
 * with four of them two at once. Who holds what, and what is sent. Errors: LS_ERR_INVALID when gpus
 * is not 2..LS_SPLIT_DRAWING_GPUS_MAX; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_split(uint32_t gpus, ls_text *text);

/*
 * A pipeline over time: with half the micro-batches, with all of them first forward, and in turn
 * (1F1B). Starts follow from which stage waits for which; a backward takes as long as two forwards.
 * Errors: LS_ERR_INVALID when a number is outside 2..its maximum; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_pipeline(uint32_t stages, uint32_t micro_batches, ls_text *text);

/* ---- a run's own trace (stages.c) ---- */

/*
 * The leaf of a run with stages that took the shortest time, from the trace that `lockstep trace`
 * writes, below what the lists of its stages give if each pass takes as long as such a pass usually did.
 * Schedule 1F1B, one crew without groups. arena: for tables.
 *
 * Errors: LS_ERR_INVALID when the trace has no such leaf; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_stages(ls_arena *arena, const json_t *trace, ls_text *text);

/* ---- a run's own events (takeover.c) ---- */

enum { LS_TAKEOVER_DRAWING_RANKS_MAX = 8 };

/*
 * The first loss of a rank in a run, from top to bottom: which ranks compute, when the loss is
 * noticed, when the work is handed over and finished, and when a replacement is present. Everything
 * is read from `events`, the bytes of an events.jsonl; damaged lines are skipped. Ranks from
 * LS_TAKEOVER_DRAWING_RANKS_MAX on are mentioned, but have no column.
 *
 * Errors: LS_ERR_INVALID when no rank was lost; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_takeover(const char *events, size_t bytes, ls_text *text);

/* ---- a queue's own events (queue.c) ---- */

enum { LS_QUEUE_DRAWING_DEVICES_MAX = 16 };

/*
 * A queue over time, from left to right: which job has which devices, in the colour of its account,
 * how many wait, and the first that was stopped for another. `events`: the data of a daemon's
 * /v1/events, one JSON object per line (job, state, from, time, ranks, name, account). Events do not
 * name devices; a job is drawn on the lowest free ones.
 *
 * Errors: LS_ERR_INVALID when no job started; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_queue(const char *events, size_t bytes, ls_text *text);

/* Right answers in [0, 1], with the interval of the sample. */
typedef struct ls_record_share {
    double share, low, high;
} ls_record_share;

typedef struct ls_record_drawing {
    const char *const *tokens; /* (count) */
    size_t count;
    size_t first_learned;      /* 1..count - 1 */
    const char *measured;      /* what `shares` are of */
    ls_record_share shares[2]; /* before, after */
} ls_record_drawing;

/*
 * A record as a model sees it: tokens, those that are learned in colour; and the share of right
 * answers before and after training on such records.
 *
 * Errors: LS_ERR_INVALID without a token of each kind; nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_drawing_record(const ls_record_drawing *drawing, ls_text *text);

#endif
