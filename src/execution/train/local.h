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
 * The differences are added in the fixed tree over the workers (comm/transport/tree.h). The workers
 * belong to the run's identity, not to its ranks: all of this is a function of the state and the
 * step, whoever computes it.
 *
 * A step of the run is cut into turns: one for each worker in order, and one more for the outer
 * step at the end of a round. A turn is what ls_stepper_run does in one call and what ranks count:
 * they share each turn as they share the step of a run without workers, and recover in it by the
 * same means. Without local steps each step is one turn.
 *
 * Pure functions.
 */
#ifndef LS_EXECUTION_TRAIN_LOCAL_H
#define LS_EXECUTION_TRAIN_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_local {
    uint64_t steps;   /* H; 0: no local steps */
    uint32_t workers; /* W; 1 without local steps */
    float outer_lr, outer_momentum;
    bool resets; /* a worker's moments are zero when a round begins, and its AdamW counts from 1 */
} ls_local;

typedef struct ls_local_turn {
    uint64_t step; /* 0-based */
    uint32_t worker;
    bool is_outer; /* the outer step, after step `step` */
    bool begins;   /* the worker's first step of a round */
    bool is_first; /* the first turn of the step: the state before it is that between two steps */
} ls_local_turn;

/* The turn with this number, 0-based. */
ls_local_turn ls_local_turn_at(const ls_local *local, uint64_t turn);
/* The number of turns before step `step`: after that many finished steps. */
uint64_t ls_local_turns(const ls_local *local, uint64_t step);

/* AdamW's count of a worker's steps: 1 for the first. */
uint64_t ls_local_adamw_step(const ls_local *local, const ls_local_turn *turn);

/* The mean of a number of each worker, added in the tree over the workers. */
double ls_local_mean(const double *values, uint32_t workers);

/* Writes the sum over the workers of (shared - worker's parameters), in the tree over the workers,
 * for `count` elements. workers: the first of `worker_count` arrays, each `stride` after the one
 * before. shared NULL: the sum of the arrays themselves. Returns the first worker with a term that
 * is not finite; worker_count: none. */
uint32_t ls_local_differences(const float *shared, const float *workers, int64_t stride,
                              uint32_t worker_count, int64_t count, float *sum_out);

/* The outer step of `count` elements; scale turns a sum of differences into their mean. */
void ls_local_outer(const ls_local *local, float scale, int64_t count, const float *sum, float *shared,
                    float *momentum);

#endif
