// SPDX-License-Identifier: Apache-2.0
/*
 * ASHA: which trials of a sweep train on, and which stop.
 *
 * Trials train to a first rung of steps and pause there. Of those that have reached a rung, the
 * best 1/eta go on, from their checkpoint, to the next one, which is eta times as far:
 *
 *   rung     steps            trials (eta 4)
 *   0        first            o o o o o o o o o o o o o o o o
 *   1        first * eta      o o o o
 *   2        train.steps      o
 *
 * Nothing waits for the slowest trial: a decision is made as soon as no later result can be needed
 * for it. A trial goes on when it is among the best n/eta of the n that have reached its rung so
 * far, and stops when so many are better that it cannot be among them whatever the others do. When
 * all that can come to a rung have come, at least one of them goes on.
 * Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, algorithm
 * 2; there a trial is not stopped but waits for ever.
 *
 * Pure: the state of all trials goes in, decisions come out, and the same state gives the same
 * decisions. One may lead to the next: it is asked again until there is none.
 */
#ifndef LS_ORCHESTRATION_CONTROL_ASHA_H
#define LS_ORCHESTRATION_CONTROL_ASHA_H

#include <stdbool.h>
#include <stdint.h>

/* With eta 2 and the first rung at one step, 2^31 steps. */
enum { LS_ASHA_RUNGS_MAX = 32 };

typedef enum ls_trial_state {
    LS_TRIAL_ACTIVE,   /* waits for devices, or trains, on its way to its next rung */
    LS_TRIAL_PAUSED,   /* has reached a rung that is not the last */
    LS_TRIAL_STOPPED,  /* will not go on */
    LS_TRIAL_FINISHED, /* has trained to its end */
    LS_TRIAL_FAILED,   /* failed, or was cancelled */
    LS_TRIAL_STATES
} ls_trial_state;

typedef struct ls_trial {
    ls_trial_state state;
    uint32_t reached;                  /* number of rungs it has reached */
    double results[LS_ASHA_RUNGS_MAX]; /* at these rungs; lower is better, NaN is worst */
} ls_trial;

typedef struct ls_asha {
    uint64_t rungs[LS_ASHA_RUNGS_MAX]; /* steps, ascending; the last is the whole run */
    uint32_t rung_count;               /* 1: trials are not compared before their end */
    uint32_t eta;                      /* 2 or more */
    uint64_t budget_steps;             /* of all trials together; 0: no limit */
} ls_asha;

typedef enum ls_asha_choice {
    LS_ASHA_GO_ON,
    LS_ASHA_STOP,   /* too many are better */
    LS_ASHA_BUDGET, /* it would go on, but too few steps are left */
} ls_asha_choice;

typedef struct ls_asha_decision {
    uint32_t trial;
    ls_asha_choice choice;
    uint32_t place, of; /* its place, from 1, among so many that have reached its rung */
    uint32_t go_on;     /* STOP: how many of the trials of this rung go on at most */
} ls_asha_decision;

/* "active", ... */
const char *ls_trial_state_name(ls_trial_state state);

/* Rungs at first, first * eta, ... below `steps`, and at `steps`. first: 1 or more; 0: only at
 * `steps`. Rungs beyond LS_ASHA_RUNGS_MAX are left out. */
ls_asha ls_asha_make(uint64_t first, uint32_t eta, uint64_t steps, uint64_t budget_steps);

/* The most steps that trials have computed, or will have before the next decisions: what a trial
 * computed before it failed is not known, and counts up to its next rung. */
uint64_t ls_asha_steps(const ls_asha *asha, const ls_trial *trials, uint32_t count);

/* The place, from 1, of a trial among those that have reached the rung, as it has. Of equal results
 * the trial with the lower number is the better one. */
uint32_t ls_asha_place(const ls_trial *trials, uint32_t count, uint32_t rung, uint32_t trial);

/* Decides about paused trials, best first, those of higher rungs first. out: room for `count`.
 * Returns the number of decisions. */
uint32_t ls_asha_decide(const ls_asha *asha, const ls_trial *trials, uint32_t count, ls_asha_decision *out);

#endif
