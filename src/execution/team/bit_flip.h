// SPDX-License-Identifier: Apache-2.0
/*
 * Bit flips: one bit is flipped at a chosen place, so that tests can check that silent corruption
 * is found and named.
 *
 *   LS_TEST_FAULT="flip=gradient,step=12,rank=1,leaf=3,at=12345,bit=30,times=1"
 *
 *   flip    gradient (of a leaf, as soon as it is computed), parameter, m or v (as the step begins)
 *   step    as metrics.jsonl counts them
 *   rank    the rank that does it (0)
 *   leaf    gradient: of which leaf (default: any)
 *   at      index of the float in the flat buffer, modulo its size (0)
 *   bit     0 to 31 (30)
 *   after   parameter, m and v: 1 flips after the step's update instead (0)
 *   times   how often (1); an audit computes a leaf again, so 2 is a fault that recurs
 *
 * Debug builds and rank processes read the variable; other commands ignore it.
 */
#ifndef LS_EXECUTION_TEAM_BIT_FLIP_H
#define LS_EXECUTION_TEAM_BIT_FLIP_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_bit_flip_kind {
    LS_BIT_FLIP_GRADIENT,
    LS_BIT_FLIP_PARAMETER,
    LS_BIT_FLIP_M,
    LS_BIT_FLIP_V
} ls_bit_flip_kind;

typedef struct ls_bit_flip {
    ls_bit_flip_kind kind;
    uint64_t step;       /* 1-based */
    uint32_t rank, leaf; /* leaf: UINT32_MAX: any leaf */
    uint64_t at;
    uint32_t bit;
    bool after;
    uint32_t times; /* flips still to come */
} ls_bit_flip;

/* Parses the text above. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_bit_flip_parse(const char *text, ls_bit_flip *flip_out);

/* The flip that LS_TEST_FAULT asks for; times is 0 when it is not set or asks for something
 * else. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_bit_flip_from_environment(ls_bit_flip *flip_out);

/* Where in a run a buffer has just been computed. */
typedef struct ls_bit_flip_site {
    ls_bit_flip_kind kind;
    uint64_t step; /* 0-based */
    uint32_t rank;
    uint32_t leaf; /* of a gradient; else ignored */
} ls_bit_flip_site;

/* Flips the bit in flat[0, count) when `site` is the one that was asked for. flip may be NULL. */
void ls_bit_flip_apply(ls_bit_flip *flip, const ls_bit_flip_site *site, float *flat, int64_t count);

#endif
