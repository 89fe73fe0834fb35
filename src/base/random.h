// SPDX-License-Identifier: Apache-2.0
/*
 * Counter-based random numbers: Philox 4x32 with 10 rounds.
 *
 * There is no generator state. A number is a pure function of a key and a counter, so any rank,
 * thread or resumed process that asks for number i of a stream gets the same bits (invariant I1). A
 * stream is named by a seed and a purpose; inside a stream the 128-bit counter is (index, sub).
 *
 * Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 *
 * Pure and thread-safe.
 */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_random_key {
    uint32_t word[2];
} ls_random_key;

typedef struct ls_random_block {
    uint32_t word[4];
} ls_random_block;

/* What a stream is for. Values are part of the reproducibility contract: append, never renumber. */
typedef enum ls_random_purpose {
    LS_RANDOM_INIT = 1,    /* parameter initialisation: index = element, sub = tensor number */
    LS_RANDOM_ORDER = 2,   /* sample order: Feistel round keys */
    LS_RANDOM_MIXTURE = 3, /* which corpus a position draws from */
    LS_RANDOM_SAMPLE = 4,  /* text generation: index = token position */
    LS_RANDOM_DROPOUT = 5, /* index = element, sub = (step, position, op) */
    LS_RANDOM_TEST = 6,
    /* sim/env/sim_env.h: index = draws so far */
    LS_RANDOM_SIMULATION = 7,
    /* execution/integrity/audit.h: index = step */
    LS_RANDOM_AUDIT = 8,
} ls_random_purpose;

/* The key of stream (seed, purpose). */
ls_random_key ls_random_stream(uint64_t seed, ls_random_purpose purpose);

/* 128 random bits: block number (index, sub) of the stream. */
ls_random_block ls_random_at(ls_random_key key, uint64_t index, uint64_t sub);

/* 64 random bits. */
uint64_t ls_random_u64(ls_random_key key, uint64_t index, uint64_t sub);

/* Uniform in [0, 1), 53 bits. */
double ls_random_uniform64(ls_random_key key, uint64_t index, uint64_t sub);

/* Uniform in [0, bound), bound >= 1; the bias is below bound / 2^64. */
uint64_t ls_random_below(ls_random_key key, uint64_t index, uint64_t sub, uint64_t bound);

/* Standard normal number `index` of a stream, by Box-Muller over our own logarithm, sine and
 * cosine, so the bits do not depend on the C library. Numbers 4 i .. 4 i + 3 come from block (i,
 * sub). */
float ls_random_normal(ls_random_key key, uint64_t index, uint64_t sub);

/* Numbers first .. first + count - 1: the same bits, four per block, about 20 ns each. */
void ls_random_normals(ls_random_key key, uint64_t first, uint64_t sub, size_t count, float *out);

#endif
