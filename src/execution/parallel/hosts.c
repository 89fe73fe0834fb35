// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/hosts.h"

#include "base/assert.h"
#include "comm/flight/flight.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_FLOATS = 1 << 18, TEXT_BYTES = 1024 };

typedef struct posting {
    ls_transfer transfer;
    uint32_t group;
    float *flat;
    const void *in; /* of an exchange */
    void *out;
    uint64_t bytes;
    const ls_state_sources *sources; /* of a collect */
    float *flats[3];
} posting;

/*
 * The lanes of one direction, and the staging memory through which their slices pass:
 *
 *   stage   | group 0: lane 0 | lane 1 | ... | group 1: lane 0 | lane 1 | ...
 *   lane    | bucket: node 0, node 1, ... | next bucket of the group: node 0, node 1, ... |
 *
 * So what one lane sends in one group is contiguous, and one all-to-all moves a group. Groups do
 * not share memory (except with `fetches`), so a group can be filled while another travels.
 */
typedef struct side {
    ls_lane *lanes;
    uint32_t count;
    float *stage;
    uint64_t stage_floats;
    uint64_t *at; /* [group * count + lane]: the first float in stage */
} side;

struct ls_hosts {
    const ls_layout *layout;
    ls_comm *comm, *leaders; /* leaders: of the hosts' first ranks; NULL on others */
    uint32_t ranks, rank, self;
    uint32_t buddy, ward; /* hosts: the one with the shadow of this host, and the one it shadows */
    bool fetches, shadows;
    ls_mesh_host *table;
    uint32_t host_count;
    ls_host_leaves *leaves; /* [host * stage_count + stage] */
    uint32_t stage_count;
    uint32_t *order, *stage_at, bucket_count; /* by position: the bucket, the stage of its layers */
    uint32_t *group_past, group_count;
    uint32_t *group_of; /* by position */
    side out, in;

    /*
     * The thread, and a queue with one writer and one reader. The caller fills jobs[n % job_room]
     * and then posts n to `posted`; the thread runs the job and then posts n to `done`. Posting a
     * word orders everything stored before it, so neither side needs a lock: the thread reads a job
     * only after `posted` has reached it, and the caller reuses its place only after `done` has.
     */
    pthread_t thread;
    bool has_thread;
    ls_word posted, done;
    uint64_t posted_count;
    _Atomic bool quits;
    posting *jobs;
    uint32_t job_room;
    uint64_t *counts; /* four per rank: what ls_comm_blocks points to */
    /* of the first failed transfer; written before `done` reaches it, so every waiter may read
     * it */
    ls_status status;
    char text[TEXT_BYTES];
};

/* ---- hosts and ranks ---- */

static uint32_t host_of(const ls_hosts *h, uint32_t rank)
{
    uint32_t i = 0;
    while (i + 1 < h->host_count && h->table[i + 1].first_rank <= rank) {
        i++;
    }
    return i;
}

/* The rank of host `host` that handles the slices of `owner`; on the owner's own host the owner. */
static uint32_t handler(const ls_hosts *h, uint32_t host, uint32_t owner)
{
    const uint32_t home = host_of(h, owner);
    const uint32_t local = owner - h->table[home].first_rank;
    return h->table[host].first_rank + local % h->table[host].rank_count;
}

/* Every rank gathers the first rank of everybody's host, and derives the same table of hosts,
 * leaves and canonical nodes from it. From here on no rank needs to ask another who owns or handles
 * what. */
static ls_status find_hosts(ls_hosts *h, const ls_hosts_options *o)
{
    int32_t *firsts = calloc(o->ranks, sizeof *firsts);
    h->table = calloc(o->ranks, sizeof *h->table);
    if (!firsts || !h->table) {
        free(firsts);
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u ranks", o->ranks);
    }
    const int32_t first = (int32_t)o->first_rank;
    ls_status status = ls_comm_all_gather(o->comm, &first, firsts, 1, LS_I32, NULL);
    for (uint32_t r = 0; r < o->ranks && status == LS_OK; r++) {
        const bool opens = firsts[r] == (int32_t)r;
        if (!opens && (r == 0 || firsts[r] != firsts[r - 1])) {
            status =
                ls_fail(LS_ERR_INVALID,
                        "rank %u reports that its host begins at rank %d, but the ranks of a host must be "
                        "consecutive",
                        r, firsts[r]);
            break;
        }
        h->host_count += opens;
        ls_mesh_host *host = &h->table[h->host_count - 1];
        host->first_rank = (uint32_t)firsts[r];
        host->rank_count++;
    }
    free(firsts);
    LS_TRY(status);
    h->self = host_of(h, h->rank);
    h->buddy = (h->self + 1) % h->host_count;
    h->ward = (h->self + h->host_count - 1) % h->host_count;
    LS_ASSERT(h->table[h->self].rank_count == o->local_ranks);
    return LS_OK;
}

/* Which nodes come from which host. */
static ls_status find_leaves(ls_hosts *h, const ls_hosts_options *o)
{
    h->stage_count = ls_mesh_crew(o->mesh) / ls_mesh_stage_ranks(o->mesh);
    h->leaves = calloc((size_t)h->host_count * h->stage_count, sizeof *h->leaves);
    if (!h->leaves) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of the leaves of %u hosts", h->host_count);
    }
    for (uint32_t host = 0; host < h->host_count; host++) {
        for (uint32_t stage = 0; stage < h->stage_count; stage++) {
            ls_host_leaves *l = &h->leaves[host * h->stage_count + stage];
            l->leaves = ls_mesh_leaves_of_host(o->mesh, o->leaves, o->ranks, h->table[host], stage);
            l->node_count = l->leaves.count > 0 ? ls_tree_cover(o->leaves, l->leaves, l->nodes) : 0;
        }
    }
    for (uint32_t at = 0; at < h->bucket_count; at++) {
        h->stage_at[at] = o->stages && h->stage_count > 1 ? o->stages[h->order[at]] : 0;
        LS_ASSERT(h->stage_at[at] < h->stage_count);
    }
    return LS_OK;
}

/* ---- lanes, groups and stages ---- */

static uint64_t slice_floats(const ls_hosts *h, uint32_t owner, uint32_t at)
{
    return (uint64_t)ls_slice_of(h->layout, h->order[at], h->ranks, owner).count;
}

static uint32_t group_first(const ls_hosts *h, uint32_t group)
{
    return group > 0 ? h->group_past[group - 1] : 0;
}

/* Floats that `owner` owns in the group. */
static uint64_t group_floats(const ls_hosts *h, uint32_t owner, uint32_t group)
{
    uint64_t floats = 0;
    for (uint32_t at = group_first(h, group); at < h->group_past[group]; at++) {
        floats += slice_floats(h, owner, at);
    }
    return floats;
}

/* Nodes per slice that a lane carries in a reduce. */
static uint32_t copies_of(const ls_hosts *h, const side *s, uint32_t lane, uint32_t at)
{
    const uint32_t from = s == &h->out ? h->self : s->lanes[lane].host;
    return h->leaves[from * h->stage_count + h->stage_at[at]].node_count;
}

/* Floats that a lane carries in the reduce of the group, in the buckets before position `at`. */
static uint64_t reduced_before(const ls_hosts *h, const side *s, uint32_t lane, uint32_t group, uint32_t at)
{
    uint64_t floats = 0;
    for (uint32_t i = group_first(h, group); i < at; i++) {
        floats += copies_of(h, s, lane, i) * slice_floats(h, s->lanes[lane].owner, i);
    }
    return floats;
}

static uint64_t reduced_floats(const ls_hosts *h, const side *s, uint32_t lane, uint32_t group)
{
    return reduced_before(h, s, lane, group, h->group_past[group]);
}

/* One in lane per other host, because each of them has one handler for this rank's slices. One out
 * lane per rank of another host that this rank handles; there may be none, or several if the other
 * host has more ranks. */
static ls_status find_lanes(ls_hosts *h)
{
    h->out.lanes = calloc(h->ranks, sizeof *h->out.lanes);
    h->in.lanes = calloc(h->host_count, sizeof *h->in.lanes);
    if (!h->out.lanes || !h->in.lanes) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u ranks", h->ranks);
    }
    for (uint32_t host = 0; host < h->host_count; host++) {
        const ls_mesh_host *other = &h->table[host];
        if (host == h->self) {
            continue;
        }
        h->in.lanes[h->in.count++] =
            (ls_lane){.peer = handler(h, host, h->rank), .owner = h->rank, .host = host};
        for (uint32_t r = other->first_rank; r < other->first_rank + other->rank_count; r++) {
            if (handler(h, h->self, r) == h->rank) {
                h->out.lanes[h->out.count++] = (ls_lane){.peer = r, .owner = r, .host = host};
            }
        }
    }
    return LS_OK;
}

/* Joins buckets into groups of at least a megabyte, because small transfers waste the network; the
 * remainder joins the last group. All ranks cut the same groups, since they know the same
 * layout. */
static void cut_groups(ls_hosts *h)
{
    int64_t floats = 0;
    for (uint32_t at = 0; at < h->bucket_count; at++) {
        floats += h->layout->buckets[h->order[at]].count;
        h->group_of[at] = h->group_count;
        if (floats >= GROUP_FLOATS || h->fetches) {
            h->group_past[h->group_count++] = at + 1;
            floats = 0;
        }
    }
    if (floats > 0 && h->group_count > 0) {
        for (uint32_t at = h->group_past[h->group_count - 1]; at < h->bucket_count; at++) {
            h->group_of[at] = h->group_count - 1;
        }
        h->group_past[h->group_count - 1] = h->bucket_count;
    } else if (floats > 0) {
        h->group_past[h->group_count++] = h->bucket_count;
    }
}

static ls_status make_stage(ls_hosts *h, side *s)
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
            const uint64_t reduced = h->fetches ? 0 : reduced_floats(h, s, l, g);
            const uint64_t moved = group_floats(h, s->lanes[l].owner, g);
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
static float *stage_at(const ls_hosts *h, const side *s, uint32_t lane, uint32_t at, uint32_t node)
{
    const uint32_t group = h->group_of[at], owner = s->lanes[lane].owner;
    return s->stage + s->at[group * s->count + lane] + reduced_before(h, s, lane, group, at) +
           node * slice_floats(h, owner, at);
}

float *ls_hosts_sent(const ls_hosts *hosts, uint32_t out_lane, uint32_t at, uint32_t node)
{
    return stage_at(hosts, &hosts->out, out_lane, at, node);
}

const float *ls_hosts_received(const ls_hosts *hosts, uint32_t in_lane, uint32_t at, uint32_t node)
{
    return stage_at(hosts, &hosts->in, in_lane, at, node);
}

/* ---- one transfer ---- */

/* Copies the slices of a lane between the flat buffer and its place in the stage: one value per
 * float, not one per node as in a reduce. */
static void copy_slices(const ls_hosts *h, const side *s, uint32_t lane, uint32_t group, float *flat,
                        bool into_stage)
{
    const uint32_t owner = s->lanes[lane].owner;
    float *staged = s->stage + s->at[group * s->count + lane];
    for (uint32_t at = group_first(h, group); at < h->group_past[group]; at++) {
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
static bool is_used(const ls_hosts *h, const side *s, uint32_t lane, ls_transfer transfer)
{
    const uint32_t host = s->lanes[lane].host;
    const bool to_buddy = host == (s == &h->in ? h->buddy : h->ward);
    switch (transfer) {
    case LS_TRANSFER_REDUCE:
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
static void fill_blocks(const ls_hosts *h, const side *s, const posting *job, uint64_t *counts,
                        uint64_t *offsets)
{
    memset(counts, 0, h->ranks * sizeof *counts);
    memset(offsets, 0, h->ranks * sizeof *offsets);
    for (uint32_t l = 0; l < s->count; l++) {
        const ls_lane *lane = &s->lanes[l];
        if (is_used(h, s, l, job->transfer)) {
            counts[lane->peer] = job->transfer == LS_TRANSFER_REDUCE
                                     ? reduced_floats(h, s, l, job->group)
                                     : group_floats(h, lane->owner, job->group);
            offsets[lane->peer] = s->at[job->group * s->count + l];
        }
    }
}

static void copy_side(const ls_hosts *h, const side *s, const posting *job, bool into_stage)
{
    for (uint32_t l = 0; l < s->count && job->flat; l++) {
        if (is_used(h, s, l, job->transfer)) {
            copy_slices(h, s, l, job->group, job->flat, into_stage);
        }
    }
}

/* Sends the range of a bucket that the parts of a source owned from the first rank of the host that
 * has it to the first rank of host 0. The parts are consecutive, so it is one contiguous range. */
static ls_status collect_bucket(ls_hosts *h, const posting *job, const ls_state_source *source,
                                uint32_t bucket)
{
    const uint32_t parts = job->sources->parts, past = source->first_part + source->part_count;
    const ls_slice first = ls_slice_of(h->layout, bucket, parts, source->first_part);
    const ls_slice last = ls_slice_of(h->layout, bucket, parts, past - 1);
    const uint64_t count = (uint64_t)(last.offset + last.count - first.offset);
    for (int i = 0; i < 3 && count > 0; i++) {
        float *at = job->flats[i] + first.offset;
        if (h->self == source->host) {
            LS_TRY(ls_comm_send(h->leaders, at, count, LS_F32, 0, NULL));
        } else {
            LS_TRY(ls_comm_receive(h->leaders, at, count, LS_F32, source->host, NULL));
        }
    }
    return LS_OK;
}

static ls_status collect(ls_hosts *h, const posting *job)
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

static ls_status run_job(ls_hosts *h, const posting *job)
{
    if (job->transfer == LS_TRANSFER_EXCHANGE) {
        return ls_comm_all_gather(h->leaders, job->in, job->out, job->bytes, LS_U8, NULL);
    }
    if (job->transfer == LS_TRANSFER_COLLECT) {
        return collect(h, job);
    }
    if (job->transfer == LS_TRANSFER_FROZEN) {
        return ls_comm_broadcast(h->leaders, job->flat, job->bytes / sizeof(float), LS_F32, 0, NULL);
    }
    /* Reduce and scatter go from handlers to owners, the others from owners to handlers. An out
     * lane leads from a handler to an owner, so its direction says which side sends. */
    const bool to_owners = job->transfer == LS_TRANSFER_REDUCE || job->transfer == LS_TRANSFER_SCATTER;
    const side *from = to_owners ? &h->out : &h->in, *to = to_owners ? &h->in : &h->out;
    uint64_t *counts = h->counts;
    const uint32_t n = h->ranks;
    fill_blocks(h, from, job, counts, counts + n);
    fill_blocks(h, to, job, counts + 2 * n, counts + 3 * n);
    const ls_comm_blocks blocks = {.send_counts = counts,
                                   .send_offsets = counts + n,
                                   .receive_counts = counts + 2 * n,
                                   .receive_offsets = counts + 3 * n};
    copy_side(h, from, job, true);
    LS_TRY(ls_comm_all_to_all_blocks(h->comm, from->stage, to->stage, &blocks, LS_F32, NULL));
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
static void post(ls_hosts *h, const posting *job)
{
    const uint64_t n = h->posted_count + 1;
    LS_ASSERT((uint32_t)n - ls_word_get(&h->done) < h->job_room);
    h->jobs[n % h->job_room] = *job;
    h->posted_count = n;
    ls_word_post(&h->posted, (uint32_t)n);
}

void ls_hosts_post(ls_hosts *h, ls_transfer transfer, uint32_t group, float *flat)
{
    post(h, &(posting){.transfer = transfer, .group = group, .flat = flat});
}

void ls_hosts_post_collect(ls_hosts *h, const ls_state_sources *sources, float *const flats[3])
{
    LS_ASSERT(h->leaders);
    post(h, &(posting){.transfer = LS_TRANSFER_COLLECT,
                       .sources = sources,
                       .flats = {flats[0], flats[1], flats[2]}});
}

void ls_hosts_post_frozen(ls_hosts *h, float *frozen, uint64_t count)
{
    LS_ASSERT(h->leaders);
    post(h, &(posting){.transfer = LS_TRANSFER_FROZEN, .flat = frozen, .bytes = count * sizeof(float)});
}

void ls_hosts_post_exchange(ls_hosts *h, const void *in, void *out, uint64_t bytes)
{
    LS_ASSERT(h->leaders);
    post(h, &(posting){.transfer = LS_TRANSFER_EXCHANGE, .in = in, .out = out, .bytes = bytes});
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
    LS_TRY(find_hosts(h, options));
    LS_TRY(find_leaves(h, options));
    cut_groups(h);
    LS_TRY(find_lanes(h));
    LS_TRY(make_stage(h, &h->out));
    LS_TRY(make_stage(h, &h->in));
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
    return copies_of(hosts, &hosts->in, in_lane, at);
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
    return handler(hosts, hosts->self, owner);
}

bool ls_hosts_is_ward(const ls_hosts *hosts, uint32_t owner)
{
    return hosts->shadows && host_of(hosts, owner) == hosts->ward;
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
