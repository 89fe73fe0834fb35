// SPDX-License-Identifier: Apache-2.0
/*
 * Local steps: workers train apart for a while, then meet (DiLoCo, arXiv 2311.08105).
 *
 *   round of H = 3 steps, W = 2 workers, V = 8 leaves
 *
 *   step         0          1          2         outer
 *   worker 0   leaves 0-3  leaves 0-3  leaves 0-3  \
 *                                                   shared parameters -= f(mean of the differences)
 *   worker 1   leaves 4-7  leaves 4-7  leaves 4-7  /
 *   turn         0   1      2   3      4   5       6
 *
 * Each worker begins a round with the shared parameters, and makes H AdamW steps with parameters
 * and moments of its own on its own part of each batch: the V / W leaves of worker w. After the
 * last step, with g = mean over the workers of (shared - worker's parameters),
 *
 *   momentum = outer_momentum * momentum + g
 *   shared  -= outer_lr * (g + outer_momentum * momentum)        Nesterov's, as PyTorch's SGD has it
 *
 * With a delay of D steps g is made D steps before the end of the round, from the parameters of
 * then, and applied at the end. Workers go on meanwhile, and do not stop for the exchange: in its
 * first update of the next round a worker becomes the mean of its own and the shared parameters,
 * before AdamW's step, whose gradient is that of its own. Until it is applied, g is in the place of
 * the shared parameters' second moments.
 *
 *   H = 3, D = 1       step 0   step 1   make g   step 2   apply g
 *
 * With F fragments the parameters are cut into F runs of buckets (ls_layout_run), each with rounds
 * of H steps of its own: those of fragment f end H / F steps after those of fragment f - 1, so that
 * less is sent at a time. Its first round has (f + 1) H / F steps. A worker takes a fragment over,
 * or becomes the mean with it, in its first update of the fragment's next round; the gradient of
 * that step is that of its own parameters, with and without a delay. D is below H / F: of one
 * fragment g is applied before that of the next is made.
 *
 *   H = 4, F = 2       step 0   step 1   fragment 0   step 2   step 3   fragment 1   step 4 ...
 *
 * Source: Douillard et al., "Streaming DiLoCo", 2025 (arXiv 2501.18512), with alpha 1/2.
 *
 * The differences are added in the fixed tree over the workers (comm/transport/tree.h). The workers
 * belong to the run's identity, not to its ranks: all of this is a function of the state and the
 * step, whoever computes it.
 *
 * A step of the run is cut into turns: one for each worker in order, and one more for the outer
 * step at the end of a round of a fragment; with a delay, two: where g is made, and where it is
 * applied. A turn is what ls_stepper_run does in one call and what ranks count: they share each
 * turn as they share the step of a run without workers, and recover in it by the same means.
 * Without local steps each step is one turn.
 *
 * Pure functions, but for ls_outer_sum, which one thread uses at a time; it allocates in create.
 */
#ifndef LS_EXECUTION_TRAIN_LOCAL_H
#define LS_EXECUTION_TRAIN_LOCAL_H

#include "base/compression.h"
#include "execution/executor/state.h"

typedef struct ls_local {
    uint64_t steps;   /* H; 0: no local steps */
    uint32_t workers; /* W; 1 without local steps */
    float outer_lr, outer_momentum;
    ls_compression form; /* of differences and their sum */
    uint64_t delay;      /* D, below steps / fragments */
    uint32_t fragments;  /* F, divides steps; with steps > 0 at least 1, at most the buckets */
    /* A worker's moments are zero when a round begins, and its AdamW counts from 1. */
    bool resets;
} ls_local;

typedef struct ls_local_turn {
    uint64_t step; /* 0-based */
    uint32_t worker;
    bool is_outer; /* no worker's: after step `step`, one or both of */
    bool makes;    /*   the outer gradient is made */
    bool applies;  /*   and the shared parameters change */
    bool begins;   /* the worker's first step of a round: it takes over the shared parameters */
    bool mixes;    /* half of them, half its own */
    bool is_first; /* the first turn of the step: the state before it is that between two steps */
    /* of an outer turn; whose round begins. The first step of a run begins a round of each */
    uint32_t fragment;
} ls_local_turn;

/* The turn with this number, 0-based. */
ls_local_turn ls_local_turn_at(const ls_local *local, uint64_t turn);
/* The number of turns before step `step`: after that many finished steps. */
uint64_t ls_local_turns(const ls_local *local, uint64_t step);

/* AdamW's count of a worker's steps of a fragment: 1 for the first. */
uint64_t ls_local_adamw_step(const ls_local *local, const ls_local_turn *turn, uint32_t fragment);

/* The fragment with the float at `offset`. */
uint32_t ls_local_fragment_at(const ls_local *local, const ls_layout *layout, int64_t offset);

/* The mean of a number of each worker, added in the tree over the workers. */
double ls_local_mean(const double *values, uint32_t workers);

/*
 * The sum over the workers of (shared - worker's parameters), added in the tree over the workers.
 * With a form that packs (base/compression.h) each difference is packed and unpacked before, and
 * the sum once more: `out` is what every host sees. Blocks of the form begin at multiples of
 * LS_COMPRESSION_BLOCK from the first float of a fragment, so `at` is one of these.
 */
typedef struct ls_outer_sum ls_outer_sum;
/* state: borrowed. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_outer_sum_create(const ls_state *state, const ls_local *local,
                                            ls_outer_sum **sum_out);
void ls_outer_sum_destroy(ls_outer_sum *sum); /* NULL allowed */

/* Packs `count` floats from `at` on of one worker's difference, ls_compressed_bytes(count). */
LS_MUST_CHECK ls_status ls_outer_sum_pack(ls_outer_sum *sum, uint32_t worker, int64_t at, int64_t count,
                                          unsigned char *packed_out);
/* Adds the workers up. packed: their packed differences, one after the other; NULL: they are here.
 * out, packed_out: `count` floats, and the packed sum; NULL: not wanted. */
LS_MUST_CHECK ls_status ls_outer_sum_add(ls_outer_sum *sum, int64_t at, int64_t count,
                                         const unsigned char *packed, float *out, unsigned char *packed_out);

/*
 * Of a host that exchanges outer gradients with others: the floats of `count` that each of `hosts`
 * adds up, the last ones fewer: whole blocks; how many of these travel at a time; and its buffers
 * in bytes, of what it sends for its `own` workers (with a delay all of a fragment), what it
 * receives at a time, and its part of the sum.
 */
enum { LS_OUTER_PIECE = 1 << 18 };
int64_t ls_outer_share(int64_t count, uint32_t hosts);
typedef struct ls_outer_buffers {
    uint64_t out, in, sum;
} ls_outer_buffers;
ls_outer_buffers ls_outer_buffers_of(const ls_local *local, const ls_layout *layout, uint32_t hosts,
                                     uint32_t own);

/* The first of `count` workers with a parameter that is not finite; the number of all workers:
 * none. */
uint32_t ls_local_not_finite(const ls_state *state, uint32_t first, uint32_t count);

/* The outer step of `count` elements; scale turns the sum into g. */
void ls_local_outer(const ls_local *local, float scale, int64_t count, const float *sum, float *shared,
                    float *momentum);

#endif
