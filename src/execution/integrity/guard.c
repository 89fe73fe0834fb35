// SPDX-License-Identifier: Apache-2.0
#include "execution/integrity/guard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const buffer_names[3] = {"parameters", "first moments", "second moments"};

static ls_master buffer_of(const ls_guard *guard, uint32_t index)
{
    const ls_state *state = guard->state;
    return index == 0 ? ls_state_master(state) : (ls_master){.values = index == 1 ? state->m : state->v};
}

static void hash_buffer(ls_guard *guard, uint32_t index, ls_hash128 *hashes_out)
{
    const ls_master buffer = buffer_of(guard, index);
    ls_flat_hasher_run(&guard->hasher, guard->state->queue, &buffer, hashes_out);
}

ls_status ls_guard_init(ls_guard *guard, const ls_state *state, bool moments, const ls_flat_piece *pieces,
                        const uint32_t *buckets, uint32_t piece_count)
{
    *guard = (ls_guard){.state = state, .buffers = moments ? 3 : 1};
    LS_TRY(ls_flat_hasher_init(&guard->hasher, pieces, piece_count));
    const size_t count = (size_t)piece_count + 1;
    guard->buckets = calloc(count, sizeof *guard->buckets);
    guard->now = calloc(count, sizeof *guard->now);
    bool all = guard->buckets && guard->now;
    for (uint32_t i = 0; i < guard->buffers; i++) {
        guard->kept[i] = calloc(count, sizeof *guard->kept[i]);
        all = all && guard->kept[i];
    }
    if (!all) {
        ls_guard_release(guard);
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory for the hashes that show whether the training state was corrupted");
    }
    memcpy(guard->buckets, buckets, piece_count * sizeof *buckets);
    return LS_OK;
}

void ls_guard_release(ls_guard *guard)
{
    ls_flat_hasher_release(&guard->hasher);
    free(guard->buckets);
    free(guard->now);
    for (int i = 0; i < 3; i++) {
        free(guard->kept[i]);
    }
    *guard = (ls_guard){0};
}

void ls_guard_take(ls_guard *guard, uint64_t finished)
{
    for (uint32_t i = 0; i < guard->buffers; i++) {
        hash_buffer(guard, i, guard->kept[i]);
        if (guard->hasher.status != LS_OK) { /* nothing to compare with; the device says so again */
            guard->taken = false;
            return;
        }
    }
    guard->finished = finished;
    guard->taken = true;
}

ls_hash128 ls_guard_sum(const ls_guard *guard)
{
    ls_hash128 sum = {0};
    for (uint64_t i = 0; i < guard->buffers; i++) {
        for (uint32_t p = 0; p < guard->hasher.piece_count; p++) {
            const ls_hash128 kept = guard->kept[i][p];
            const uint64_t named[] = {kept.low, kept.high, i, (uint64_t)guard->hasher.pieces[p].offset};
            const ls_hash128 hash = ls_xxh3_128(named, sizeof named);
            sum.low += hash.low;
            sum.high += hash.high;
        }
    }
    return sum;
}

void ls_guard_forget(ls_guard *guard)
{
    guard->taken = false;
}

static ls_status changed(const ls_guard *guard, uint32_t buffer, uint32_t piece, uint32_t rank)
{
    char name[32], then[LS_HASH128_HEX_BYTES], now[LS_HASH128_HEX_BYTES], host[128] = "localhost";
    const ls_flat_piece *p = &guard->hasher.pieces[piece];
    gethostname(host, sizeof host - 1);
    return ls_fail(
        LS_ERR_MISMATCH,
        "step %" PRIu64 ": silent corruption: the %s of %s (bucket %u, floats %" PRId64 " to %" PRId64
        ") are no longer what the update of step %" PRIu64 " left: %s then, %s now, on rank %u "
        "(%s, process %d). A stray write or failing memory changed them; the state cannot be trusted",
        guard->finished + 1, buffer_names[buffer],
        ls_bucket_name(guard->state->layout, guard->buckets[piece], name), guard->buckets[piece], p->offset,
        p->offset + p->count - 1, guard->finished, ls_hash128_hex(guard->kept[buffer][piece], then),
        ls_hash128_hex(guard->now[piece], now), rank, host, (int)getpid());
}

ls_status ls_guard_check(ls_guard *guard, uint32_t rank, uint32_t *bucket_out)
{
    for (uint32_t i = 0; guard->taken && i < guard->buffers; i++) {
        hash_buffer(guard, i, guard->now);
        if (guard->hasher.status != LS_OK) {
            return ls_fail_within(guard->hasher.status, "the state could not be hashed");
        }
        for (uint32_t p = 0; p < guard->hasher.piece_count; p++) {
            if (!ls_hash128_equal(guard->now[p], guard->kept[i][p])) {
                *bucket_out = guard->buckets[p];
                return changed(guard, i, p, rank);
            }
        }
    }
    return LS_OK;
}
