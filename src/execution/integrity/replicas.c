// SPDX-License-Identifier: Apache-2.0
#include "execution/integrity/replicas.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Frozen weights are compared as well. */
static uint32_t all_buckets(const ls_layout *layout)
{
    return layout->bucket_count + layout->frozen_buckets;
}

/* Buckets are assigned to the ranks of a host in turn. */
static bool is_share_of(ls_rank_place place, uint32_t bucket)
{
    return bucket % place.local_ranks == place.local;
}

ls_status ls_replicas_init(ls_replicas *r, ls_data_parallel *parallel, const ls_layout *layout)
{
    *r = (ls_replicas){
        .parallel = parallel, .layout = layout, .rank = ls_data_parallel_part(parallel, 0)->number};
    const ls_rank_place place = ls_data_parallel_place(parallel, r->rank);
    ls_arena arena = {0};
    ls_flat_piece *pieces = ls_arena_new(&arena, ls_flat_piece, all_buckets(layout));
    uint32_t count = 0;
    for (uint32_t b = 0; b < all_buckets(layout); b++) {
        if (is_share_of(place, b)) {
            pieces[count++] = (ls_flat_piece){layout->buckets[b].offset, layout->buckets[b].count};
        }
    }
    const ls_status status = ls_flat_hasher_init(&r->hasher, pieces, count);
    ls_arena_release(&arena);
    LS_TRY(status);
    r->pieces = calloc((size_t)count + 1, sizeof *r->pieces);
    r->buckets = calloc(all_buckets(layout), sizeof *r->buckets);
    if (!r->pieces || !r->buckets) {
        ls_replicas_release(r);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the hashes of %u buckets (groups of parameters)",
                       all_buckets(layout));
    }
    return LS_OK;
}

void ls_replicas_release(ls_replicas *r)
{
    ls_flat_hasher_release(&r->hasher);
    free(r->pieces);
    free(r->buckets);
    *r = (ls_replicas){0};
}

ls_hash128 ls_replicas_hash(ls_replicas *r, ls_queue *queue, const ls_master *parameters)
{
    const ls_rank_place place = ls_data_parallel_place(r->parallel, r->rank);
    ls_flat_hasher_run(&r->hasher, queue, parameters, r->pieces);
    ls_hash128 sum = {0};
    uint32_t piece = 0;
    for (uint32_t b = 0; b < all_buckets(r->layout); b++) {
        if (!is_share_of(place, b)) {
            continue;
        }
        r->buckets[b] = r->pieces[piece++];
        /* Includes the number of the bucket, so that two exchanged buckets are noticed. */
        const uint64_t named[] = {r->buckets[b].low, r->buckets[b].high, b};
        const ls_hash128 hash = ls_xxh3_128(named, sizeof named);
        sum.low += hash.low;
        sum.high += hash.high;
    }
    return sum;
}

/* ---- finding the host that differs ---- */

/* Distributes the hashes (hosts, buckets) of all hosts to all ranks. */
static ls_status tell_all(const ls_replicas *r, uint32_t ranks, ls_hash128 *hashes)
{
    const uint32_t count = all_buckets(r->layout);
    ls_hash128 *heard = calloc(count, sizeof *heard);
    if (!heard) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the hashes of %u buckets (groups of parameters)",
                       count);
    }
    ls_status status = LS_OK;
    for (uint32_t rank = 0; rank < ranks && status == LS_OK; rank++) {
        const ls_rank_place place = ls_data_parallel_place(r->parallel, rank);
        memcpy(heard, r->buckets, count * sizeof *heard);
        status = ls_data_parallel_tell(r->parallel, rank, heard, count * sizeof *heard);
        for (uint32_t b = place.local; b < count && status == LS_OK; b += place.local_ranks) {
            hashes[place.host * count + b] = heard[b];
        }
    }
    free(heard);
    return status;
}

static uint32_t hosts_with(const ls_replicas *r, const ls_hash128 *hashes, uint32_t hosts, uint32_t bucket,
                           ls_hash128 hash)
{
    uint32_t same = 0;
    for (uint32_t h = 0; h < hosts; h++) {
        same += ls_hash128_equal(hashes[h * all_buckets(r->layout) + bucket], hash);
    }
    return same;
}

/* The most frequent hash; *count_out: the number of hosts that have it. */
static ls_hash128 common_hash(const ls_replicas *r, const ls_hash128 *hashes, uint32_t hosts, uint32_t bucket,
                              uint32_t *count_out)
{
    ls_hash128 best = {0};
    *count_out = 0;
    for (uint32_t h = 0; h < hosts; h++) {
        const ls_hash128 hash = hashes[h * all_buckets(r->layout) + bucket];
        const uint32_t count = hosts_with(r, hashes, hosts, bucket, hash);
        if (count > *count_out) {
            best = hash;
            *count_out = count;
        }
    }
    return best;
}

static uint32_t first_rank_of(const ls_replicas *r, uint32_t host)
{
    uint32_t rank = 0;
    while (ls_data_parallel_place(r->parallel, rank).host != host) {
        rank++;
    }
    return rank;
}

static void append_host(const ls_replicas *r, uint32_t host, ls_hash128 hash, ls_text *text)
{
    char hex[LS_HASH128_HEX_BYTES];
    const uint32_t first = first_rank_of(r, host);
    const uint32_t last = first + ls_data_parallel_place(r->parallel, first).local_ranks - 1;
    ls_text_printf(text, "host %u (ranks %u to %u) has %s", host, first, last, ls_hash128_hex(hash, hex));
}

/* Names the first bucket that differs, each host's hash of it, and the host in the minority. */
static ls_status fail_differing(const ls_replicas *r, const ls_hash128 *hashes, uint32_t hosts, uint64_t step,
                                ls_step_fault *fault_out)
{
    const uint32_t buckets = all_buckets(r->layout);
    uint32_t bucket = 0, most = hosts;
    ls_hash128 common = {0};
    for (bucket = 0; bucket < buckets; bucket++) {
        common = common_hash(r, hashes, hosts, bucket, &most);
        if (most < hosts) {
            break;
        }
    }
    if (bucket == buckets) {
        return ls_fail(LS_ERR_MISMATCH,
                       "step %" PRIu64 ": silent corruption: the hashes of the weights differed between "
                       "hosts, but agreed when they were compared in detail",
                       step + 1);
    }
    char name[32];
    ls_text text = {0};
    ls_text_printf(&text,
                   "step %" PRIu64
                   ": silent corruption: the hosts have different weights in %s (bucket %u) before "
                   "the step: ",
                   step + 1, ls_bucket_name(r->layout, bucket, name), bucket);
    uint32_t odd = LS_NO_RANK;
    for (uint32_t h = 0; h < hosts; h++) {
        const ls_hash128 hash = hashes[h * buckets + bucket];
        ls_text_append(&text, h > 0 ? ", " : "");
        append_host(r, h, hash, &text);
        odd = odd == LS_NO_RANK && !ls_hash128_equal(hash, common) ? h : odd;
    }
    const bool is_known = 2 * most > hosts;
    if (is_known) {
        ls_text_printf(&text, "; most agree: HOST %u IS WRONG", odd);
    }
    ls_text_append(
        &text, ". A transfer, a stray write or failing memory changed a copy; the state can't be trusted");
    *fault_out = (ls_step_fault){.kind = LS_STEP_FAULT_STATE,
                                 .leaf = LS_NO_LEAF,
                                 .bucket = bucket,
                                 .rank = is_known ? first_rank_of(r, odd) : LS_NO_RANK};
    const ls_status status = ls_fail(LS_ERR_MISMATCH, "%s", ls_text_string(&text));
    ls_text_release(&text);
    return status;
}

ls_status ls_replicas_fail(ls_replicas *r, uint64_t step, ls_step_fault *fault_out)
{
    const uint32_t hosts = ls_data_parallel_place(r->parallel, r->rank).hosts;
    ls_hash128 *hashes = calloc((size_t)hosts * all_buckets(r->layout), sizeof *hashes);
    if (!hashes) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the hashes that %u hosts report", hosts);
    }
    *fault_out = (ls_step_fault){.kind = LS_STEP_FAULT_STATE, .leaf = LS_NO_LEAF, .rank = LS_NO_RANK};
    ls_status status = tell_all(r, ls_data_parallel_part_count(r->parallel), hashes);
    if (status == LS_OK) {
        status = fail_differing(r, hashes, hosts, step, fault_out);
    }
    free(hashes);
    return status;
}
