// SPDX-License-Identifier: Apache-2.0
/*
 * Flips: one bit turned over at a chosen place, so that tests can see silent corruption found and named.
 *
 *   LS_TEST_FAULT="flip=gradient,step=12,rank=1,leaf=3,at=12345,bit=30,times=1"
 *
 *   flip    gradient (of a leaf, as soon as it is computed), parameter, m or v (as the step begins)
 *   step    as metrics.jsonl counts them
 *   rank    who does it (0)
 *   leaf    gradient: of which leaf; left out: of any
 *   at      float in the flat buffer, modulo its size (0)
 *   bit     0 to 31 (30)
 *   after   parameter, m and v: 1: behind the step's update instead (0)
 *   times   how often (1); a leaf is computed again by an audit, so 2 is a fault that comes back
 *
 * Debug builds and rank processes read the variable; a program that is used does not.
 */
#ifndef LS_EXECUTION_DIAGNOSE_FLIP_H
#define LS_EXECUTION_DIAGNOSE_FLIP_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_flip_kind { LS_FLIP_GRADIENT, LS_FLIP_PARAMETER, LS_FLIP_M, LS_FLIP_V } ls_flip_kind;

typedef struct ls_flip {
    ls_flip_kind kind;
    uint64_t step;       /* 1-based */
    uint32_t rank, leaf; /* leaf: UINT32_MAX: any */
    uint64_t at;
    uint32_t bit;
    bool after;
    uint32_t times; /* still to come; 0: nothing happens any more */
} ls_flip;

/* Reads the text above. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_flip_parse(const char *text, ls_flip *flip_out);

/* The one that LS_TEST_FAULT asks for; times is 0 when it is not set or asks for something else than a flip. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_flip_from_environment(ls_flip *flip_out);

/* Turns the bit over in flat[0, count) when kind, step (0-based), rank and leaf are those asked for. flip may be NULL. */
void ls_flip_apply(ls_flip *flip, ls_flip_kind kind, uint64_t step, uint32_t rank, uint32_t leaf, float *flat,
                   int64_t count);

#endif
