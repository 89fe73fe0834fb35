// SPDX-License-Identifier: Apache-2.0
/*
 * Faults on request: a rank that is slow, hangs or dies at a chosen step, so that tests can see it named. Beside flips (diagnose/flip.h) in
 * the same variable:
 *
 *   LS_TEST_FAULT="do=delay,rank=1,ms=20,step=5"
 *
 *   do      delay (before every step from `step` on), hang (in that step, for good), die (kill -9 of itself in that step), stop (SIGSTOP of itself)
 *   rank    who does it (0)
 *   step    as metrics.jsonl counts them (1)
 *   ms      delay: milliseconds (20)
 *   at      die, stop and hang: where in the step. begin (before it; as if nothing were said), enter (it is entered), leaf (in the backward of a
 *           leaf), merge (in the middle of adding two nodes up), ready (in the last backward, some buckets said to be final), sum (in the middle of
 *           one), claim (before the agreement), agreed, update (before the first block), block (in the middle of one), updated, end (before
 *           the last meeting), finished
 *   nth     at=leaf, sum and block: of which one of the process (1)
 *
 * Only rank processes (the hidden command `rank`) read it, and none that replaces another: a program that is used does not.
 */
#ifndef LS_EXECUTION_DIAGNOSE_SABOTAGE_H
#define LS_EXECUTION_DIAGNOSE_SABOTAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_sabotage_kind {
    LS_SABOTAGE_NONE,
    LS_SABOTAGE_DELAY,
    LS_SABOTAGE_HANG,
    LS_SABOTAGE_DIE,
    LS_SABOTAGE_STOP
} ls_sabotage_kind;

typedef enum ls_sabotage_phase {
    LS_PHASE_BEGIN,
    LS_PHASE_ENTER,
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
} ls_sabotage_phase;

typedef struct ls_sabotage {
    ls_sabotage_kind kind;
    uint32_t rank;
    uint64_t step; /* 1-based */
    uint64_t ms;
    ls_sabotage_phase phase;
    uint64_t nth, met; /* met: how often it has come by in that step */
} ls_sabotage;

/* Reads the text above. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_sabotage_parse(const char *text, ls_sabotage *sabotage_out);

/* The one that LS_TEST_FAULT asks for; kind is NONE when it is not set or asks for something else. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_sabotage_from_environment(ls_sabotage *sabotage_out);

/* Rank `rank` begins step `step` (0-based): does what was asked for. It shows as drawing samples in the flight recorder. */
void ls_sabotage_meet(const ls_sabotage *sabotage, uint32_t rank, uint64_t step);

/* This process is at a point of step `step` (0-based): does what was asked for there, whatever its rank. sabotage may be NULL: nothing. Whether
 * it will: for points that take preparation. */
void ls_sabotage_at(ls_sabotage *sabotage, ls_sabotage_phase phase, uint64_t step);
bool ls_sabotage_is_due(ls_sabotage *sabotage, ls_sabotage_phase phase, uint64_t step);

#endif
