// SPDX-License-Identifier: Apache-2.0
/*
 * Sample order: a keyed permutation of [0, count) that is computed, not stored.
 *
 * Training needs every sample once per epoch, in an order that looks random and differs between
 * epochs. Any rank, thread or resumed process must be able to compute it at any position. A
 * shuffled index array would cost 8 bytes per sample and would have to be rebuilt on resume. Here a
 * small Feistel network maps position to sample, so resuming needs one number, and memory is O(1).
 *
 * The domain is a grid of a columns and b rows, with a = ceil(sqrt(count)) and b = ceil(count / a),
 * so a*b is less than count + a. A sample is (l, r) = (sample % a, sample / a). Each round adds a
 * keyed random function of one half to the other half:
 *
 *       l = (l + F(round, r)) mod a        then        r = (r + F(round + 1, l)) mod b
 *
 * A round can be undone whatever F is, so it permutes the grid. A result outside [0, count) goes
 * through the network again until it is inside ("cycle walking"). That ends, because the start of
 * the cycle is inside, and the result is a permutation of [0, count).
 *
 * Sources: Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom
 * functions", 1988; Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002
 * (generalised Feistel, cycle walking).
 *
 * This shuffles well but is not a cipher. Pure and thread-safe; allocates nothing. Takes well below
 * a microsecond.
 */
#ifndef LS_DATA_ORDER_H
#define LS_DATA_ORDER_H

#include "base/random.h"

#include <stdint.h>

typedef struct ls_order {
    /* Samples, 1 to 2^62. */
    uint64_t count;
    /* a and b above. */
    uint64_t columns;
    uint64_t rows;
    /* From (seed, stream). */
    ls_random_key key;
} ls_order;

/*
 * The family of permutations of [0, count) for (seed, stream). stream is any value; it makes
 * several orders under one seed different, one per corpus of a mixture. count is 1 to 2^62.
 */
ls_order ls_order_make(uint64_t seed, uint64_t stream, uint64_t count);

/*
 * The sample at `position` of `epoch`. Each epoch is another permutation of [0, count). position is
 * below count, epoch below 2^56.
 */
uint64_t ls_order_at(const ls_order *order, uint64_t epoch, uint64_t position);

#endif
