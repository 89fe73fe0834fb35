// SPDX-License-Identifier: Apache-2.0
/*
 * Fault injection: makes a rank slow, hang or die at a chosen step, so that tests can check that it
 * is found and named. Bit flips (team/bit_flip.h) use the same variable.
 *
 *   LS_TEST_FAULT="do=delay,rank=1,ms=20,step=5"
 *
 *   do      delay (before every step from `step` on), hang (in that step, for ever), die (SIGKILL
 *           to itself in that step), stop (SIGSTOP to itself)
 *   rank    the rank that does it (0)
 *   step    as metrics.jsonl counts them (1)
 *   ms      delay: milliseconds (20)
 *   at      die, stop and hang: where in the step. begin (before it; the default), enter (it is
 *           entered), plan (before a step of the op plan), leaf (in the backward pass of a leaf),
 *           merge (while two nodes are added), ready (in the last backward pass, after some buckets
 *           were announced as final), sum (while a bucket is summed), claim (before the agreement),
 *           agreed, update (before the first block), block (in the middle of a block), updated, end
 *           (before the last meeting), finished
 *   nth     at=plan, leaf, sum and block: the how-many-th of the process (1)
 *
 * Only rank processes (the hidden command `rank`) read the variable, and replacements do not; other
 * commands ignore it.
 */
#ifndef LS_EXECUTION_TEAM_FAULT_INJECTION_H
#define LS_EXECUTION_TEAM_FAULT_INJECTION_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_fault_injection_kind {
    LS_FAULT_INJECTION_NONE,
    LS_FAULT_INJECTION_DELAY,
    LS_FAULT_INJECTION_HANG,
    LS_FAULT_INJECTION_DIE,
    LS_FAULT_INJECTION_STOP
} ls_fault_injection_kind;

typedef enum ls_fault_injection_phase {
    LS_PHASE_BEGIN,
    LS_PHASE_ENTER,
    LS_PHASE_PLAN,
    LS_PHASE_LEAF,
    LS_PHASE_MERGE,
    LS_PHASE_READY,
    LS_PHASE_SUM,
    LS_PHASE_CLAIM,
    LS_PHASE_AGREED,
    LS_PHASE_UPDATE,
    LS_PHASE_BLOCK,
    LS_PHASE_UPDATED,
    LS_PHASE_END,
    LS_PHASE_FINISHED,
    LS_PHASES
} ls_fault_injection_phase;

typedef struct ls_fault_injection {
    ls_fault_injection_kind kind;
    uint32_t rank;
    uint64_t step; /* 1-based */
    uint64_t ms;
    ls_fault_injection_phase phase;
    uint64_t nth, met; /* met: how often this point was passed in that step */
} ls_fault_injection;

/*
 * Parses "key=value,key=value,...", at most 255 characters. `read` takes one pair into `fault` and
 * returns false when it does not understand it; usage: what to write, for the error. Errors:
 * LS_ERR_INVALID.
 */
typedef bool ls_test_fault_read(const char *key, const char *value, void *fault);
LS_MUST_CHECK ls_status ls_test_fault_parse(const char *text, const char *usage, ls_test_fault_read *read,
                                            void *fault);

/* The fault that LS_TEST_FAULT asks for; kind is NONE when it is not set or asks for something
 * else. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_fault_injection_from_environment(ls_fault_injection *fault_out);

/* Rank `rank` begins step `step` (0-based): does what was asked for. In the flight recorder it
 * looks like drawing samples. */
void ls_fault_injection_meet(const ls_fault_injection *fault, uint32_t rank, uint64_t step);

/* at: this process is at a point of step `step` (0-based); does what was asked for there,
 * whatever its rank. NULL: nothing. is_due: whether it is about to, for points that need
 * preparation; counts as passing the point. */
void ls_fault_injection_at(ls_fault_injection *fault, ls_fault_injection_phase phase, uint64_t step);
bool ls_fault_injection_is_due(ls_fault_injection *fault, ls_fault_injection_phase phase, uint64_t step);

#endif
