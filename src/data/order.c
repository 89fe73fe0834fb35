// SPDX-License-Identifier: Apache-2.0
#include "data/order.h"

#include "base/assert.h"

/* Four rounds are enough for large grids (Luby and Rackoff), but small grids need more to be even.
 * The worst bias of a (position, sample) cell with 5 samples over 200,000 epochs is 5.7 % for 6
 * rounds, 3.3 % for 8, 1.8 % for 10, and 0.9 % for 12, which is noise. The value is part of the
 * reproducibility contract. */
enum { ROUND_COUNT = 12 };

static uint64_t ceil_sqrt(uint64_t value)
{
    uint64_t low = 0, high = UINT64_C(1) << 31; /* value <= 2^62, so the root is at most 2^31 */
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (middle * middle < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

ls_order ls_order_make(uint64_t seed, uint64_t stream, uint64_t count)
{
    LS_ASSERT(count >= 1 && count <= UINT64_C(1) << 62);
    const uint64_t columns = ceil_sqrt(count);
    const ls_random_block block = ls_random_at(ls_random_stream(seed, LS_RANDOM_ORDER), stream, UINT64_MAX);
    return (ls_order){.count = count,
                      .columns = columns,
                      .rows = (count + columns - 1) / columns,
                      .key = {{block.word[0], block.word[1]}}};
}

/* One pass of the network over the whole grid. */
static uint64_t permute_grid(const ls_order *order, uint64_t epoch, uint64_t cell)
{
    uint64_t left = cell % order->columns, right = cell / order->columns;
    for (uint64_t round = 0; round < ROUND_COUNT; round += 2) {
        left =
            (left + ls_random_below(order->key, right, epoch << 8 | round, order->columns)) % order->columns;
        right =
            (right + ls_random_below(order->key, left, epoch << 8 | (round + 1), order->rows)) % order->rows;
    }
    return right * order->columns + left;
}

uint64_t ls_order_at(const ls_order *order, uint64_t epoch, uint64_t position)
{
    LS_ASSERT(position < order->count && epoch < UINT64_C(1) << 56);
    uint64_t cell = position;
    do {
        cell = permute_grid(order, epoch, cell);
    } while (cell >= order->count);
    return cell;
}
