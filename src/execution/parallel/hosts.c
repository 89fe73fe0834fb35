// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/hosts_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "comm/flight/flight.h"
#include "compute/kernels/compress.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- stages ---- */

static ls_status make_stage(ls_hosts *h, ls_hosts_side *s)
{
    s->at = calloc((size_t)h->group_count * s->count + 1, sizeof *s->at);
    if (!s->at) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %u data streams between hosts",
                       s->count);
    }
    for (uint32_t g = 0; g < h->group_count; g++) {
        /* with fetches, only one group is in the stage at a time */
        uint64_t at = h->fetches ? 0 : s->stage_floats;
        for (uint32_t l = 0; l < s->count; l++) {
            s->at[g * s->count + l] = at;
            const uint64_t reduced = h->fetches ? 0 : ls_hosts_reduced_floats(h, s, l, g);
            const uint64_t moved = ls_hosts_group_floats(h, s->lanes[l].owner, g);
            at += reduced > moved ? reduced : moved;
        }
        s->stage_floats = at > s->stage_floats ? at : s->stage_floats;
    }
    s->stage = calloc(s->stage_floats + 1, sizeof *s->stage);
    if (!s->stage) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %llu bytes of data on their way between hosts",
                       (unsigned long long)(s->stage_floats * sizeof(float)));
    }
    return LS_OK;
}

/* See the drawing at `side`. The owner and the handler compute the same offsets within a lane, so
 * the bytes need no description on the wire. */
static float *stage_at(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, uint32_t at, uint32_t node)
{
    const uint32_t group = h->group_of[at], owner = s->lanes[lane].owner;
    return s->stage + s->at[group * s->count + lane] + ls_hosts_reduced_before(h, s, lane, group, at) +
           ls_hosts_nodes_floats(h, ls_hosts_leaves_of(h, s, lane, at), owner, at, node);
}

float *ls_hosts_sent(const ls_hosts *hosts, uint32_t out_lane, uint32_t at, uint32_t node)
{
    return stage_at(hosts, &hosts->out, out_lane, at, node);
}

const float *ls_hosts_received(const ls_hosts *hosts, uint32_t in_lane, uint32_t at, uint32_t node)
{
    return stage_at(hosts, &hosts->in, in_lane, at, node);
}

bool ls_hosts_is_packed(const ls_hosts *hosts, uint32_t node)
{
    const ls_host_leaves *own = &hosts->leaves[hosts->self * hosts->stage_count];
    return node - own->first_packed < own->packed_count;
}

unsigned char *ls_hosts_packed_sum(const ls_hosts *hosts, uint32_t at)
{
    return (unsigned char *)(hosts->packed_sums + hosts->packed_at[at]);
}

void ls_hosts_compress(ls_hosts *h, ls_compression nodes, ls_compression sums)
{
    LS_ASSERT(ls_hosts_is_done(h, h->posted_count));
    h->compression = nodes;
    h->sums = sums;
}

ls_hosts_sent_so_far ls_hosts_get_sent(const ls_hosts *hosts)
{
    return (ls_hosts_sent_so_far){atomic_load(&hosts->sent_bytes), atomic_load(&hosts->dense_bytes),
                                  atomic_load(&hosts->sent_ns)};
}

static ls_status make_packed_sums(ls_hosts *h)
{
    uint64_t floats = 0;
    h->packed_at = calloc(h->bucket_count, sizeof *h->packed_at);
    for (uint32_t at = 0; h->packed_at && at < h->bucket_count; at++) {
        h->packed_at[at] = floats;
        floats += ls_hosts_packed_floats(h, &h->sums, h->rank, at);
    }
    h->packed_sums = calloc(floats + 1, sizeof *h->packed_sums);
    return h->packed_at && h->packed_sums
               ? LS_OK
               : ls_fail(LS_ERR_MEMORY, "not enough memory for %llu bytes of packed gradients",
                         (unsigned long long)(floats * sizeof(float)));
}

/* ---- one transfer ---- */

/* What the owner has packed into the stage of an in lane; or what a handler received, into its
 * host's flat buffer: sums as they are, changes added to it. */
static void copy_sums(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, const ls_posting *job,
                      bool into_stage)
{
    const uint32_t owner = s->lanes[lane].owner;
    float *staged = s->stage + s->at[job->group * s->count + lane];
    for (uint32_t at = ls_hosts_group_first(h, job->group); at < h->group_past[job->group]; at++) {
        const ls_slice slice = ls_slice_of(h->layout, h->order[at], h->ranks, owner);
        const uint64_t floats = ls_hosts_packed_floats(h, &h->sums, owner, at);
        if (into_stage) {
            memcpy(staged, h->packed_sums + h->packed_at[at], floats * sizeof *staged);
        } else {
            ls_decompress(h->queue, &h->sums, (const unsigned char *)staged, slice.count,
                          job->flat + slice.offset, job->transfer == LS_TRANSFER_CHANGES);
        }
        staged += floats;
    }
}

static bool is_packed(ls_transfer transfer)
{
    return transfer == LS_TRANSFER_SUMS || transfer == LS_TRANSFER_CHANGES;
}

/* Copies the slices of a lane between the flat buffer and its place in the stage: one value per
 * float, not one per node as in a reduce. */
static void copy_slices(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, uint32_t group, float *flat,
                        bool into_stage)
{
    const uint32_t owner = s->lanes[lane].owner;
    float *staged = s->stage + s->at[group * s->count + lane];
    for (uint32_t at = ls_hosts_group_first(h, group); at < h->group_past[group]; at++) {
        const ls_slice slice = ls_slice_of(h->layout, h->order[at], h->ranks, owner);
        const size_t bytes = (size_t)slice.count * sizeof(float);
        if (bytes == 0) {
            continue;
        }
        if (into_stage) {
            memcpy(staged, flat + slice.offset, bytes);
        } else {
            memcpy(flat + slice.offset, staged, bytes);
        }
        staged += slice.count;
    }
}

/* Whether the lane takes part in a transfer. Both ends must decide alike, or the counts of the
 * all-to-all would not match: an in lane of the owner and the out lane of the handler describe the
 * same pair of hosts. Gather and scatter have host 0 at the handler's end, a shadow the buddy. */
static bool is_used(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, ls_transfer transfer)
{
    const uint32_t host = s->lanes[lane].host;
    const bool to_buddy = host == (s == &h->in ? h->buddy : h->ward);
    switch (transfer) {
    case LS_TRANSFER_REDUCE:
    case LS_TRANSFER_SUMS:
    case LS_TRANSFER_CHANGES:
        return true;
    case LS_TRANSFER_SPREAD:
        return !h->shadows || !to_buddy;
    case LS_TRANSFER_SHADOW:
        return to_buddy;
    default:
        return s == &h->in ? host == 0 : h->self == 0;
    }
}

/* Fills in counts and offsets per rank for the lanes of a side. */
static void fill_blocks(const ls_hosts *h, const ls_hosts_side *s, const ls_posting *job, uint64_t *counts,
                        uint64_t *offsets)
{
    memset(counts, 0, h->ranks * sizeof *counts);
    memset(offsets, 0, h->ranks * sizeof *offsets);
    for (uint32_t l = 0; l < s->count; l++) {
        const ls_lane *lane = &s->lanes[l];
        if (is_used(h, s, l, job->transfer)) {
            counts[lane->peer] =
                job->transfer == LS_TRANSFER_REDUCE ? ls_hosts_reduced_floats(h, s, l, job->group)
                : is_packed(job->transfer)          ? ls_hosts_sums_floats(h, lane->owner, job->group)
                                                    : ls_hosts_group_floats(h, lane->owner, job->group);
            offsets[lane->peer] = s->at[job->group * s->count + l];
        }
    }
}

/* Adds what this rank sends to the counts, and what it would be without compression. */
static void count_sent(ls_hosts *h, const ls_hosts_side *from, const ls_posting *job, const uint64_t *counts)
{
    for (uint32_t r = 0; r < h->ranks; r++) {
        atomic_fetch_add(&h->sent_bytes, counts[r] * sizeof(float));
    }
    for (uint32_t l = 0; l < from->count; l++) {
        const uint32_t nodes = job->transfer == LS_TRANSFER_REDUCE ? h->leaves[h->self].dense_count : 1;
        if (is_used(h, from, l, job->transfer)) {
            const uint64_t floats = ls_hosts_group_floats(h, from->lanes[l].owner, job->group);
            atomic_fetch_add(&h->dense_bytes, nodes * floats * sizeof(float));
        }
    }
}

static void copy_side(const ls_hosts *h, const ls_hosts_side *s, const ls_posting *job, bool into_stage)
{
    for (uint32_t l = 0; l < s->count && job->flat; l++) {
        if (is_packed(job->transfer)) {
            copy_sums(h, s, l, job, into_stage);
        } else if (is_used(h, s, l, job->transfer)) {
            copy_slices(h, s, l, job->group, job->flat, into_stage);
        }
    }
}

/* Sends the range of a bucket that the parts of a source owned from the first rank of the host that
 * has it to the first rank of host 0. The parts are consecutive, so it is one contiguous range. */
static ls_status collect_bucket(ls_hosts *h, const ls_posting *job, const ls_state_source *source,
                                uint32_t bucket)
{
    const uint32_t parts = job->sources->parts, past = source->first_part + source->part_count;
    const ls_slice first = ls_slice_of(h->layout, bucket, parts, source->first_part);
    const ls_slice last = ls_slice_of(h->layout, bucket, parts, past - 1);
    const uint64_t count = (uint64_t)(last.offset + last.count - first.offset);
    for (int i = 0; i < 3 && job->flats[i] && count > 0; i++) {
        float *at = job->flats[i] + first.offset;
        if (h->self == source->host) {
            LS_TRY(ls_comm_send(h->leaders, at, count, LS_F32, 0, NULL));
        } else {
            LS_TRY(ls_comm_receive(h->leaders, at, count, LS_F32, source->host, NULL));
        }
    }
    return LS_OK;
}

static ls_status collect(ls_hosts *h, const ls_posting *job)
{
    for (uint32_t s = 0; s < job->sources->count; s++) {
        const ls_state_source *source = &job->sources->source[s];
        const bool takes_part = source->host != 0 && (h->self == 0 || h->self == source->host);
        for (uint32_t b = 0; b < h->bucket_count && takes_part; b++) {
            LS_TRY(collect_bucket(h, job, source, b));
        }
    }
    return LS_OK;
}

/* An exchange of all leaders, most of whom have nothing to say, and not a send and a receive: over
 * a slow link a receiver is busy long after the sender has gone on, which looks like a deadlock. */
static ls_status send_flat(ls_hosts *h, const ls_posting *job)
{
    const uint64_t count = job->bytes / sizeof(float);
    const uint32_t n = h->host_count;
    uint64_t *counts = h->counts;
    memset(counts, 0, 4 * (size_t)n * sizeof *counts);
    if (h->self == job->from) {
        counts[job->to] = count;
    } else if (h->self == job->to) {
        counts[2 * n + job->from] = count;
    }
    const ls_comm_blocks blocks = {.send_counts = counts,
                                   .send_offsets = counts + n,
                                   .receive_counts = counts + 2 * n,
                                   .receive_offsets = counts + 3 * n};
    return ls_comm_all_to_all_blocks(h->leaders, job->flat, job->flat, &blocks, LS_F32, NULL);
}

static ls_status run_job(ls_hosts *h, const ls_posting *job)
{
    if (job->transfer == LS_TRANSFER_EXCHANGE) {
        return ls_comm_all_gather(h->leaders, job->in, job->out, job->bytes, LS_U8, NULL);
    }
    if (job->transfer == LS_TRANSFER_COLLECT) {
        return collect(h, job);
    }
    if (job->transfer == LS_TRANSFER_FLAT) {
        return send_flat(h, job);
    }
    if (job->transfer == LS_TRANSFER_FROZEN) {
        return ls_comm_broadcast(h->leaders, job->flat, job->bytes / sizeof(float), LS_F32, 0, NULL);
    }
    /* Reduce and scatter go from handlers to owners, the others from owners to handlers. An out
     * lane leads from a handler to an owner, so its direction says which side sends. */
    const bool to_owners = job->transfer == LS_TRANSFER_REDUCE || job->transfer == LS_TRANSFER_SCATTER;
    const ls_hosts_side *from = to_owners ? &h->out : &h->in, *to = to_owners ? &h->in : &h->out;
    uint64_t *counts = h->counts;
    const uint32_t n = h->ranks;
    fill_blocks(h, from, job, counts, counts + n);
    fill_blocks(h, to, job, counts + 2 * n, counts + 3 * n);
    const ls_comm_blocks blocks = {.send_counts = counts,
                                   .send_offsets = counts + n,
                                   .receive_counts = counts + 2 * n,
                                   .receive_offsets = counts + 3 * n};
    count_sent(h, from, job, counts);
    copy_side(h, from, job, true);
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    LS_TRY(ls_comm_all_to_all_blocks(h->comm, from->stage, to->stage, &blocks, LS_F32, NULL));
    atomic_fetch_add(&h->sent_ns, ls_clock_monotonic_ns() - begin_ns);
    copy_side(h, to, job, false);
    return LS_OK;
}

/* ---- the thread ---- */

/* After a failure the thread still takes every job, without running it: `done` keeps moving, so
 * nobody waits for a transfer that can no longer happen. */
static void *serve(void *context)
{
    ls_hosts *h = context;
    const ls_wait forever = {0};
    for (uint64_t n = 1;; n++) {
        (void)ls_wait_until(&h->posted, (uint32_t)n, &forever);
        if (atomic_load(&h->quits)) {
            return NULL;
        }
        if (h->status == LS_OK) {
            const ls_status status = run_job(h, &h->jobs[n % h->job_room]);
            if (status != LS_OK) {
                snprintf(h->text, sizeof h->text, "%s", ls_error_text());
                h->status = status;
            }
        }
        ls_word_post(&h->done, (uint32_t)n);
    }
}

/* The queue has room for all transfers that can be in progress at once, so a full queue is a bug
 * and not a reason to wait. */
static void post(ls_hosts *h, const ls_posting *job)
{
    const uint64_t n = h->posted_count + 1;
    LS_ASSERT((uint32_t)n - ls_word_get(&h->done) < h->job_room);
    h->jobs[n % h->job_room] = *job;
    h->posted_count = n;
    ls_word_post(&h->posted, (uint32_t)n);
}

void ls_hosts_post(ls_hosts *h, ls_transfer transfer, uint32_t group, float *flat)
{
    post(h, &(ls_posting){.transfer = transfer, .group = group, .flat = flat});
}

void ls_hosts_post_collect(ls_hosts *h, const ls_state_sources *sources, float *const flats[3])
{
    LS_ASSERT(h->leaders);
    post(h, &(ls_posting){.transfer = LS_TRANSFER_COLLECT,
                          .sources = sources,
                          .flats = {flats[0], flats[1], flats[2]}});
}

void ls_hosts_post_frozen(ls_hosts *h, float *frozen, uint64_t count)
{
    LS_ASSERT(h->leaders);
    post(h, &(ls_posting){.transfer = LS_TRANSFER_FROZEN, .flat = frozen, .bytes = count * sizeof(float)});
}

void ls_hosts_post_flat(ls_hosts *h, float *flat, uint64_t count, uint32_t from, uint32_t to)
{
    LS_ASSERT(h->leaders && from != to);
    post(h, &(ls_posting){.transfer = LS_TRANSFER_FLAT,
                          .flat = flat,
                          .bytes = count * sizeof(float),
                          .from = from,
                          .to = to});
}

void ls_hosts_post_exchange(ls_hosts *h, const void *in, void *out, uint64_t bytes)
{
    LS_ASSERT(h->leaders);
    post(h, &(ls_posting){.transfer = LS_TRANSFER_EXCHANGE, .in = in, .out = out, .bytes = bytes});
}

uint64_t ls_hosts_posted(const ls_hosts *hosts)
{
    return hosts->posted_count;
}

bool ls_hosts_is_done(const ls_hosts *hosts, uint64_t count)
{
    return ls_word_reached(&hosts->done, (uint32_t)count);
}

ls_status ls_hosts_await(ls_hosts *h, uint64_t count, const ls_wait *wait, bool *aborted_out)
{
    if (!ls_hosts_is_done(h, count)) {
        /* The transfer overlapped with computing so far; from here on this rank waits for it. */
        ls_flight_activity(LS_ACTIVITY_COMM, 0);
    }
    *aborted_out = ls_wait_until(&h->done, (uint32_t)count, wait) != LS_WAIT_DONE;
    if (*aborted_out) {
        return LS_ERR_TIMEOUT;
    }
    return h->status == LS_OK ? LS_OK : ls_fail(h->status, "%s", h->text);
}

static ls_status start_thread(ls_hosts *h)
{
    sigset_t all, before;
    /* The thread inherits a mask with all signals blocked: they go to the main thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    h->has_thread = pthread_create(&h->thread, NULL, serve, h) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return h->has_thread ? LS_OK
                         : ls_fail(LS_ERR_MEMORY, "cannot start the thread for transfers between hosts");
}

/* Aborting a communicator ends the calls in progress on this rank with an error; the peers notice
 * the closed connections. */
static void abort_transfers(ls_hosts *h, const char *why)
{
    if (!ls_hosts_is_done(h, h->posted_count)) {
        ls_comm_abort(h->comm, why);
        if (h->leaders) {
            ls_comm_abort(h->leaders, why);
        }
    }
}

void ls_hosts_break(ls_hosts *h)
{
    const ls_wait forever = {0};
    abort_transfers(h, "a host or a rank was lost");
    (void)ls_wait_until(&h->done, (uint32_t)h->posted_count, &forever);
}

static void end_thread(ls_hosts *h)
{
    if (!h->has_thread) {
        return;
    }
    abort_transfers(h, "the rank ended in the middle of a transfer");
    /* `quits` is set before the word that wakes the thread, which checks it before the next job */
    atomic_store(&h->quits, true);
    ls_word_post(&h->posted, (uint32_t)(h->posted_count + 1));
    pthread_join(h->thread, NULL);
}

/* ---- life ---- */

static ls_status alloc_tables(ls_hosts *h, const uint32_t *order)
{
    const uint32_t buckets = h->bucket_count;
    h->job_room = 4 * buckets + 8;
    h->order = calloc(buckets, sizeof *h->order);
    h->stage_at = calloc(buckets, sizeof *h->stage_at);
    h->group_past = calloc(buckets, sizeof *h->group_past);
    h->group_of = calloc(buckets, sizeof *h->group_of);
    h->jobs = calloc(h->job_room, sizeof *h->jobs);
    h->counts = calloc(4 * (size_t)h->ranks, sizeof *h->counts);
    if (!h->order || !h->stage_at || !h->group_past || !h->group_of || !h->jobs || !h->counts) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the tables of transfers between hosts");
    }
    memcpy(h->order, order, buckets * sizeof *order);
    return LS_OK;
}

static ls_status prepare(ls_hosts *h, const ls_hosts_options *options)
{
    LS_TRY(alloc_tables(h, options->order));
    LS_TRY(ls_hosts_find(h, options));
    LS_TRY(ls_hosts_find_leaves(h, options));
    ls_hosts_cut_groups(h);
    LS_TRY(ls_hosts_find_lanes(h));
    LS_TRY(make_stage(h, &h->out));
    LS_TRY(make_stage(h, &h->in));
    if (h->group > 0) {
        LS_TRY(make_packed_sums(h));
    }
    const bool leads = h->rank == h->table[h->self].first_rank;
    LS_TRY(ls_comm_split(h->comm, leads ? 0 : -1, (int32_t)h->rank, &h->leaders));
    return start_thread(h);
}

ls_status ls_hosts_create(const ls_hosts_options *options, ls_hosts **hosts_out)
{
    LS_ASSERT(ls_comm_size(options->comm) == options->ranks && ls_comm_rank(options->comm) == options->rank);
    ls_hosts *h = calloc(1, sizeof *h);
    if (!h) {
        return ls_fail(LS_ERR_MEMORY, "no memory for transfers between hosts");
    }
    h->layout = options->layout;
    h->bucket_count = options->layout->bucket_count;
    h->comm = options->comm;
    h->ranks = options->ranks;
    h->rank = options->rank;
    h->fetches = options->fetches;
    h->shadows = options->shadows;
    h->group = options->group;
    h->compression = options->compression;
    h->sums = options->sums;
    h->queue = options->queue;
    const ls_status status = prepare(h, options);
    if (status != LS_OK) {
        ls_hosts_destroy(h);
        return status;
    }
    *hosts_out = h;
    return LS_OK;
}

void ls_hosts_destroy(ls_hosts *h)
{
    if (!h) {
        return;
    }
    end_thread(h);
    ls_comm_close(h->leaders);
    free(h->out.lanes);
    free(h->out.stage);
    free(h->out.at);
    free(h->in.lanes);
    free(h->in.stage);
    free(h->in.at);
    free(h->order);
    free(h->stage_at);
    free(h->leaves);
    free(h->group_past);
    free(h->group_of);
    free(h->packed_sums);
    free(h->packed_at);
    free(h->jobs);
    free(h->counts);
    free(h->table);
    free(h);
}

/* ---- queries ---- */

uint32_t ls_hosts_count(const ls_hosts *hosts)
{
    return hosts->host_count;
}

const ls_mesh_host *ls_hosts_table(const ls_hosts *hosts)
{
    return hosts->table;
}

const ls_host_leaves *ls_hosts_leaves(const ls_hosts *hosts, uint32_t host, uint32_t stage)
{
    return &hosts->leaves[host * hosts->stage_count + stage];
}

uint32_t ls_hosts_sent_nodes(const ls_hosts *hosts, uint32_t at)
{
    return hosts->leaves[hosts->self * hosts->stage_count + hosts->stage_at[at]].node_count;
}

uint32_t ls_hosts_received_nodes(const ls_hosts *hosts, uint32_t in_lane, uint32_t at)
{
    return ls_hosts_leaves_of(hosts, &hosts->in, in_lane, at)->node_count;
}

uint32_t ls_hosts_self(const ls_hosts *hosts)
{
    return hosts->self;
}

uint32_t ls_hosts_out_lanes(const ls_hosts *hosts, const ls_lane **lanes_out)
{
    *lanes_out = hosts->out.lanes;
    return hosts->out.count;
}

uint32_t ls_hosts_in_lanes(const ls_hosts *hosts, const ls_lane **lanes_out)
{
    *lanes_out = hosts->in.lanes;
    return hosts->in.count;
}

uint32_t ls_hosts_handler(const ls_hosts *hosts, uint32_t owner)
{
    return ls_hosts_handler_on(hosts, hosts->self, owner);
}

bool ls_hosts_is_ward(const ls_hosts *hosts, uint32_t owner)
{
    return hosts->shadows && ls_hosts_host_of(hosts, owner) == hosts->ward;
}

bool ls_hosts_shadows(const ls_hosts *hosts, uint32_t out_lane)
{
    return hosts->shadows && hosts->out.lanes[out_lane].host == hosts->ward;
}

bool ls_hosts_spreads(const ls_hosts *hosts)
{
    return !hosts->shadows || hosts->host_count > 2;
}

uint32_t ls_hosts_groups(const ls_hosts *hosts)
{
    return hosts->group_count;
}

uint32_t ls_hosts_group_past(const ls_hosts *hosts, uint32_t group)
{
    return hosts->group_past[group];
}
