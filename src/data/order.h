// SPDX-License-Identifier: Apache-2.0
/*
 * Sample order: a keyed permutation of [0, count) that is computed, not stored.
 *
 * Training needs every sample once per epoch, in an order that looks random, differs between epochs, and can
 * be asked for at any position by any rank, thread or resumed process (DESIGN I1). A shuffled index array
 * would cost 8 bytes per sample and would have to be rebuilt on resume; here position -> sample is a small
 * Feistel network, so a resume is a number and memory is O(1).
 *
 * The domain is a grid of a columns and b rows, a = ceil(sqrt(count)), b = ceil(count / a), so a*b is less than
 * count + a. A sample is (l, r) = (sample % a, sample / a). Each round adds a keyed random function of one half
 * to the other:
 *
 *       l = (l + F(round, r)) mod a        then        r = (r + F(round + 1, l)) mod b
 *
 * which can be undone whatever F is, so it permutes the grid. A result outside [0, count) is sent through again
 * ("cycle walking") until it is inside: that ends, because the start of the cycle is inside, and it leaves a
 * permutation of [0, count).
 *
 * Sources: Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988;
 * Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002 (generalised Feistel, cycle
 * walking).
 *
 * Statistical quality for shuffling, not a cipher. Pure, thread-safe, no allocation; well below a
 * microsecond.
 */
#ifndef LS_DATA_ORDER_H
#define LS_DATA_ORDER_H

#include "base/random.h"

#include <stdint.h>

typedef struct ls_order {
    uint64_t count;    /* samples, 1 to 2^62 */
    uint64_t columns;  /* a */
    uint64_t rows;     /* b */
    ls_random_key key; /* of this (seed, stream) */
} ls_order;

/*
 * The family of permutations of [0, count) for (seed, stream). stream: tells apart several orders under one
 * seed (one per corpus of a mixture), any value. count is 1 to 2^62.
 */
ls_order ls_order_make(uint64_t seed, uint64_t stream, uint64_t count);

/*
 * The sample at `position` of `epoch`: a bijection of [0, count) for each epoch, and another one for each
 * epoch. position: below count. epoch: below 2^56.
 */
uint64_t ls_order_at(const ls_order *order, uint64_t epoch, uint64_t position);

#endif
