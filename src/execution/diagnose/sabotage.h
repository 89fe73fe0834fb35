// SPDX-License-Identifier: Apache-2.0
/*
 * Faults on request: a rank that is slow, hangs or dies at a chosen step, so that tests can see it named. Beside flips (diagnose/flip.h) in
 * the same variable:
 *
 *   LS_TEST_FAULT="do=delay,rank=1,ms=20,step=5"
 *
 *   do      delay (before every step from `step` on), hang (before that step, for good), die (kill -9 of itself before that step)
 *   rank    who does it (0)
 *   step    as metrics.jsonl counts them (1)
 *   ms      delay: milliseconds (20)
 *
 * Only rank processes (the hidden command `rank`) read it: a program that is used does not.
 */
#ifndef LS_EXECUTION_DIAGNOSE_SABOTAGE_H
#define LS_EXECUTION_DIAGNOSE_SABOTAGE_H

#include "base/status.h"

#include <stdint.h>

typedef enum ls_sabotage_kind {
    LS_SABOTAGE_NONE,
    LS_SABOTAGE_DELAY,
    LS_SABOTAGE_HANG,
    LS_SABOTAGE_DIE
} ls_sabotage_kind;

typedef struct ls_sabotage {
    ls_sabotage_kind kind;
    uint32_t rank;
    uint64_t step; /* 1-based */
    uint64_t ms;
} ls_sabotage;

/* Reads the text above. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_sabotage_parse(const char *text, ls_sabotage *sabotage_out);

/* The one that LS_TEST_FAULT asks for; kind is NONE when it is not set or asks for something else. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_sabotage_from_environment(ls_sabotage *sabotage_out);

/* Rank `rank` begins step `step` (0-based): does what was asked for. It shows as drawing samples in the flight recorder. */
void ls_sabotage_meet(const ls_sabotage *sabotage, uint32_t rank, uint64_t step);

#endif
