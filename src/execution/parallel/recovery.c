// SPDX-License-Identifier: Apache-2.0
/*
 * Repairs a part whose process died. Run by the process that watches the ranks, on the shared
 * memory alone, while all ranks of the host are parked.
 *
 * Where the process died           What the memory shows             What is done
 *   computing a leaf               the stack without that leaf       it is computed again
 *   last leaf, buckets posted      ready > base, leaves missing      "ready" is withdrawn
 *   adding up a slice              taken not advanced                it is added up again
 *   updating a block               in hand, not done                 old values are put back
 *   between agreement and end      claim made, some blocks done      the new holder updates the rest
 *
 * Everything here is idempotent: the watcher may die as well, and its successor starts over.
 */
#include "execution/parallel/exchange.h"

#include <string.h>

static uint32_t put_back_blocks(const ls_recovery *recovery, ls_exchange *exchange, uint32_t part)
{
    const uint32_t room = atomic_load(&exchange->room);
    const _Atomic uint64_t *done =
        ls_exchange_block_words(exchange, room, atomic_load(&exchange->block_count));
    ls_undo *undo = ls_exchange_undo(exchange, room, part);
    uint32_t blocks = 0;
    for (uint32_t worker = 0; worker < atomic_load(&exchange->workers); worker++) {
        blocks += ls_undo_put_back(&undo[worker], done, recovery->flats, recovery->snapshot);
    }
    return blocks;
}

/* slot: of a part that computes alone, or of the leader of a crew. */
static bool has_all_leaves(const ls_exchange_slot *slot)
{
    const uint32_t depth = atomic_load(&slot->stack.depth);
    const ls_leaf_range last = depth > 0 ? slot->stack.nodes[depth - 1].leaves : (ls_leaf_range){0};
    return depth > 0 && last.first + last.count == slot->range.first + slot->range.count;
}

/* The last leaf will be computed again and overwrites buckets that were posted as final, so no part
 * may read them until they are posted again. Parts that have already read them keep their sums: the
 * leaf will have the same bits. */
static void take_back_ready(ls_exchange_slot *slot, const ls_exchange_slot *leader)
{
    if (!has_all_leaves(leader)) {
        const uint32_t base = atomic_load(&slot->round) * slot->bucket_count;
        ls_word *ready = &slot->counters[LS_COUNT_READY].word;
        if (ls_word_reached(ready, base)) {
            ls_word_post(ready, base);
        }
    }
}

static bool is_computing(const ls_exchange_slot *slot)
{
    return atomic_load(&slot->entered) > 0 &&
           !ls_meeting_reached(slot, ls_meeting_number(atomic_load(&slot->round), LS_MEET_AGREE));
}

/* A member that has not entered yet has posted nothing of this step. One whose leader has not
 * entered yet has not either: its counters are at the base of its round or below. */
void ls_data_parallel_rewind_crews(void *area)
{
    ls_exchange *exchange = area;
    const uint32_t crew = atomic_load(&exchange->crew);
    for (uint32_t i = 0; crew > 1 && i < atomic_load(&exchange->local_parts); i++) {
        ls_exchange_slot *slot = &exchange->slots[i];
        if (is_computing(slot)) {
            take_back_ready(slot, &exchange->slots[i - i % crew]);
        }
    }
}

/* After the agreement of a failing step, parts exchange reports at unnamed places, which are
 * counted and hold no data that could be continued. All parts are moved back to the agreement and
 * repeat these meetings from the first. */
static void take_back_talks(ls_exchange *exchange)
{
    for (uint32_t i = 0; i < atomic_load(&exchange->local_parts); i++) {
        ls_exchange_slot *slot = &exchange->slots[i];
        const uint32_t place = atomic_load(&slot->reached) % LS_MEET_PLACES;
        if (place > LS_MEET_AGREE && place < LS_MEET_END) {
            atomic_fetch_sub(&slot->reached, place - LS_MEET_AGREE);
        }
    }
}

ls_recovered ls_data_parallel_recover_part(const ls_recovery *recovery, uint32_t part)
{
    ls_exchange *exchange = recovery->exchange;
    if (part >= atomic_load(&exchange->room)) {
        return (ls_recovered){0}; /* no step has begun yet */
    }
    ls_exchange_slot *slot = &exchange->slots[part];
    const uint32_t round = atomic_load(&slot->round);
    const ls_recovered found = {
        .entered = atomic_load(&slot->entered),
        .claimed = ls_meeting_reached(slot, ls_meeting_number(round, LS_MEET_AGREE)),
        .finished = ls_meeting_reached(slot, ls_meeting_number(round, LS_MEET_END)),
        .blocks = put_back_blocks(recovery, exchange, part),
    };
    if (found.entered > 0 && !found.claimed && atomic_load(&exchange->crew) <= 1) {
        take_back_ready(slot, slot);
    }
    take_back_talks(exchange);
    return found;
}

static void wake(ls_exchange *exchange, uint32_t local)
{
    for (int c = 0; c < LS_COUNTERS; c++) {
        ls_word_wake(&exchange->slots[local].counters[c].word);
    }
}

void ls_data_parallel_wake(void *area)
{
    ls_exchange *exchange = area;
    ls_word_wake(&exchange->meetings);
    for (uint32_t i = 0; i < atomic_load(&exchange->local_parts); i++) {
        wake(exchange, i);
    }
}

void ls_data_parallel_clear(void *area)
{
    ls_exchange *exchange = area;
    const uint32_t room = atomic_load(&exchange->room);
    const uint32_t workers = atomic_load(&exchange->workers);
    const int64_t blocks = atomic_load(&exchange->block_count);
    for (uint32_t part = 0; part < room; part++) {
        ls_undo *undo = ls_exchange_undo(exchange, room, part);
        for (uint32_t worker = 0; worker < workers; worker++) {
            atomic_store(&undo[worker].in_hand, 0);
        }
    }
    memset(ls_exchange_block_sums(exchange, room), 0, (size_t)blocks * (sizeof(double) + sizeof(uint64_t)));
    memset(exchange->slots, 0, room * sizeof *exchange->slots);
    memset(exchange, 0, sizeof *exchange);
}
