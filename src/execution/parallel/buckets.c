// SPDX-License-Identifier: Apache-2.0
/*
 * Gradients become sums. A bucket passes through these states, in `order`, on each part:
 *
 *   computed --> ready     final in all buffers of the part, and posted
 *            --> taken     ready on all local parts, and this part has read what it needs from
 *                          their buffers: its own slice, or, with several hosts, the slices it
 *                          handles
 *            --> summed    its own slice is added up over all leaves of the step
 *            --> dropped   taken by all local parts; with stage 2 the gradients are released
 *
 * With one host, taking and summing are the same. With several, taking makes the host's share of
 * each node and a reduce transfer carries it to the owner; the owner sums a group when its transfer
 * has arrived.
 *
 * Why the bits come out the same: the order of additions is a program (ls_node_sum) computed from
 * the tree alone. Whether a bucket is summed early between two backward steps or late in the
 * agreement, by this process or one that took over its part, the inputs are final and the program
 * is the same. So summing twice is harmless as well: it writes the same values to the same place.
 *
 * Why no lock is needed: a gradient buffer is written by its part only until "ready" is posted, and
 * read by the others only after that. Posting orders the stores before it. The next step's leaves
 * write to the buffers again only after the end of this step, where all parts have met.
 */
#include "execution/parallel/data_parallel_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "execution/parallel/compressed.h"
#include "execution/parallel/fetch.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };

/* Counters are never reset, because another part may be about to read them. They continue from
 * round to round: a round begins at round * bucket_count, even if the one before it was given up
 * early. */
static uint32_t count_at(const ls_data_parallel *p, uint32_t buckets)
{
    return p->view.round * p->bucket_count + buckets;
}

/* Some part gave up this round. Sums are not needed then, but all counters still advance as usual,
 * so that the parts reach the agreement, where they learn the reason. */
static bool is_given_up(const ls_data_parallel *p)
{
    return atomic_load(&p->view.exchange->given_up) == p->view.round + 1;
}

static const ls_stage_sums *stage_at(const ls_data_parallel *p, uint32_t at)
{
    return &p->stages[p->order[at].stage];
}

/* The local inputs of canonical node `node` of this host. */
static const float *const *local_inputs_at(const ls_data_parallel *p, const ls_stage_sums *stage,
                                           uint32_t node, int64_t offset)
{
    for (uint32_t i = 0; i < stage->node_sums[node].sum.input_count; i++) {
        p->inputs[i] = stage->local_inputs[stage->node_first[node] + i] + offset;
    }
    return p->inputs;
}

/* Adds up what other hosts receive: the canonical nodes of this host, over the slices that this
 * rank handles. */
static ls_status sum_for_others(ls_data_parallel *p, ls_queue *queue, uint32_t at)
{
    const ls_lane *lanes;
    const uint32_t lane_count = ls_hosts_out_lanes(p->hosts, &lanes);
    const ls_stage_sums *stage = stage_at(p, at);
    const ls_host_leaves *own = ls_hosts_leaves(p->hosts, ls_hosts_self(p->hosts), p->order[at].stage);
    for (uint32_t l = 0; l < lane_count; l++) {
        const ls_slice slice = ls_slice_of(p->layout, p->order[at].bucket, p->parts, lanes[l].owner);
        for (uint32_t k = 0; k < stage->node_count && slice.count > 0; k++) {
            const float *const *inputs = local_inputs_at(p, stage, k, slice.offset);
            float *out = ls_hosts_sent(p->hosts, l, at, k);
            LS_TRY(ls_hosts_is_packed(p->hosts, k)
                       ? ls_compressed_pack(p->compressed, queue, own->nodes[k], slice, inputs, out)
                       : ls_tree_sum_run(queue, &stage->node_sums[k].sum, inputs, slice.count, out, NULL));
        }
    }
    return LS_OK;
}

/* The inputs of the whole sum over the owned slice of the bucket at `at`, in the order of leaves.
 * Hosts hold consecutive ranges of leaves, so these are: the nodes received from hosts before this
 * one, the local nodes, the nodes received from hosts after it. */
static const float *const *whole_inputs_at(const ls_data_parallel *p, uint32_t at, int64_t offset)
{
    const ls_lane *lanes = NULL;
    const uint32_t lane_count = p->hosts ? ls_hosts_in_lanes(p->hosts, &lanes) : 0;
    const uint32_t self = p->hosts ? ls_hosts_self(p->hosts) : 0;
    uint32_t n = 0, l = 0;
    for (; l < lane_count && lanes[l].host < self; l++) {
        for (uint32_t k = 0; k < ls_hosts_received_nodes(p->hosts, l, at); k++) {
            p->inputs[n++] = ls_hosts_received(p->hosts, l, at, k);
        }
    }
    const ls_stage_sums *stage = stage_at(p, at);
    for (uint32_t i = 0; i < stage->local_count; i++) {
        p->inputs[n++] = stage->local_inputs[i] + offset;
    }
    for (; l < lane_count; l++) {
        for (uint32_t k = 0; k < ls_hosts_received_nodes(p->hosts, l, at); k++) {
            p->inputs[n++] = ls_hosts_received(p->hosts, l, at, k);
        }
    }
    LS_DCHECK(n == stage->whole.sum.input_count);
    return p->inputs;
}

static void end_record(ls_data_parallel *p, const ls_own_part *own, uint32_t at, ls_status status)
{
    ls_ready_bucket *ready = &p->order[at];
    /* A process with several parts records only the first: the record is about the process. */
    if (own == p->own) {
        ls_flight_end(ready->record, 0, UINT32_MAX, ready->wait_ns, status);
        ready->record = NULL;
    }
}

/* Adds up an owned slice, or its beginning. */
static ls_status sum_slice(ls_data_parallel *p, ls_queue *queue, uint32_t at, const ls_slice *slice)
{
    const float *const *inputs = whole_inputs_at(p, at, slice->offset);
    float *out = p->target + slice->offset;
    double *square_sums = p->block_sums + slice->first_block;
    return p->compressed
               ? ls_compressed_sum_own(p->compressed, queue, at, slice, inputs, out, square_sums)
               : ls_tree_sum_run(queue, &stage_at(p, at)->whole.sum, inputs, slice->count, out, square_sums);
}

/* Fault injection: adds up half of the slice and dies. */
static ls_status sum_half_and_die(ls_data_parallel *p, ls_queue *queue, uint32_t at, const ls_slice *slice)
{
    ls_slice half = *slice;
    half.count /= 2;
    LS_TRY(sum_slice(p, queue, at, &half));
    p->fault_injection->met--;
    ls_fault_injection_at(p->fault_injection, LS_PHASE_SUM, p->view.step);
    return LS_OK;
}

/* Adds up the owned slice of the bucket at `at`. */
static ls_status sum_own(ls_data_parallel *p, ls_own_part *own, ls_queue *queue, uint32_t at)
{
    const ls_slice *slice = &own->slices[p->order[at].bucket];
    ls_status status = LS_OK;
    if (slice->count > 0 && !is_given_up(p)) {
        if (ls_fault_injection_is_due(p->fault_injection, LS_PHASE_SUM, p->view.step)) {
            LS_TRY(sum_half_and_die(p, queue, at, slice));
        }
        const uint32_t others = stage_at(p, at)->whole.sum.input_count - own->node_count;
        p->read_bytes += others * (uint64_t)slice->count * sizeof(float);
        status = sum_slice(p, queue, at, slice);
    }
    if (status == LS_OK && p->parts > 1) {
        /* others read the sums; a process alone waits before it agrees */
        status = ls_queue_wait(queue);
    }
    end_record(p, own, at, status);
    return status;
}

/* ---- releasing memory ---- */

/* Releases the pages that lie completely in floats [first, past) of a shared mapping; they read as
 * zero afterwards. madvise fails for other memory, which simply stays, so the error is ignored. */
static void drop_floats(float *flat, int64_t first, int64_t past)
{
    const uintptr_t begin = ((uintptr_t)(flat + first) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    const uintptr_t end = (uintptr_t)(flat + past) / PAGE_BYTES * PAGE_BYTES;
    if (begin < end) {
        (void)madvise((void *)begin, end - begin, MADV_REMOVE);
    }
}

/* Sums that overwrite gradient buffer 0: releases the bucket except the slices that the part
 * updates with. */
static void drop_beside_sums(const ls_data_parallel *p, const ls_own_part *own, uint32_t bucket)
{
    const ls_bucket *b = &p->layout->buckets[bucket];
    const int64_t past = b->offset + b->count;
    for (int64_t from = b->offset; from < past;) {
        const ls_owned_slice *next = NULL;
        for (uint32_t i = 0; i < own->part.slice_count; i++) {
            const ls_owned_slice *kept = &own->updates[i];
            next = kept->bucket == bucket && kept->offset >= from && (!next || kept->offset < next->offset)
                       ? kept
                       : next;
        }
        drop_floats(p->target, from, next ? next->offset : past);
        from = next ? next->offset + next->count : past;
    }
}

/* Releases the gradients of a bucket that all local parts have taken. */
static void drop_gradients(const ls_data_parallel *p, const ls_own_part *own, uint32_t bucket)
{
    const ls_bucket *b = &p->layout->buckets[bucket];
    for (uint32_t i = p->has_sums ? 0 : 1; i < own->part.gradient_count; i++) {
        drop_floats(own->part.gradients[i], b->offset, b->offset + b->count);
    }
    if (!p->has_sums) {
        drop_beside_sums(p, own, bucket);
    }
}

void ls_data_parallel_drop_taken(ls_data_parallel *p)
{
    for (uint32_t i = 0; i < p->own_count && p->zero >= 2; i++) {
        ls_own_part *own = &p->own[i];
        while (!own->is_ahead && own->dropped_count < own->taken_count &&
               ls_exchange_has(&p->view, LS_COUNT_TAKEN, count_at(p, own->dropped_count + 1))) {
            drop_gradients(p, own, p->order[own->dropped_count++].bucket);
        }
    }
}

void ls_data_parallel_drop_sums(const ls_data_parallel *p)
{
    for (uint32_t i = 0; i < p->own_count && p->zero >= 2; i++) {
        const ls_own_part *own = &p->own[i];
        for (uint32_t k = 0; k < own->part.slice_count && !own->is_ahead; k++) {
            drop_floats(p->target, own->updates[k].offset, own->updates[k].offset + own->updates[k].count);
        }
    }
}

/* Shadows stay: this host keeps them current. */
void ls_drop_handled(const ls_data_parallel *p, uint32_t bucket, float *flat)
{
    const ls_lane *lanes;
    const uint32_t lane_count = ls_hosts_out_lanes(p->hosts, &lanes);
    for (uint32_t l = 0; l < lane_count; l++) {
        const ls_slice slice = ls_slice_of(p->layout, bucket, p->parts, lanes[l].owner);
        if (slice.count > 0 && !ls_hosts_shadows(p->hosts, l)) {
            drop_floats(flat, slice.offset, slice.offset + slice.count);
        }
    }
}

/* On host 0, after the trainer has used the complete state: releases the slices that this rank
 * handles. */
void ls_data_parallel_drop_gathered(const ls_data_parallel *p)
{
    for (uint32_t b = 0; b < p->bucket_count; b++) {
        ls_drop_handled(p, b, p->gathered[1]);
        ls_drop_handled(p, b, p->gathered[2]);
        if (p->zero >= 3) {
            ls_drop_handled(p, b, p->gathered[0]);
        }
    }
}

/* ---- buckets ---- */

/* Posts that the first `count` buckets of a part are final. The flight record of a bucket begins
 * here, because from here on the part waits for the others. */
static void say_ready(ls_data_parallel *p, ls_own_part *own, uint32_t count)
{
    for (uint32_t i = own->ready_count; i < count && own == p->own; i++) {
        const uint32_t bucket = p->order[i].bucket;
        const uint64_t floats = (uint64_t)p->layout->buckets[bucket].count;
        p->order[i].wait_ns = 0;
        p->order[i].record = ls_data_parallel_record(p, LS_COMM_TREE_REDUCE, i, p->fingerprint ^ (bucket + 1),
                                                     floats, __LINE__);
    }
    if (count > own->ready_count) {
        own->ready_count = count;
        ls_exchange_count_part(&p->view, own->local, LS_COUNT_READY, count_at(p, count));
    }
}

static bool post_reduce(ls_data_parallel *p)
{
    if (p->posted_groups == ls_hosts_groups(p->hosts) ||
        ls_hosts_group_past(p->hosts, p->posted_groups) > p->own->taken_count) {
        return false;
    }
    ls_hosts_post(p->hosts, LS_TRANSFER_REDUCE, p->posted_groups, NULL);
    p->reduce_number[p->posted_groups++] = ls_hosts_posted(p->hosts);
    return true;
}

static bool post_sums(ls_data_parallel *p)
{
    if (p->told_groups == ls_hosts_groups(p->hosts) ||
        ls_hosts_group_past(p->hosts, p->told_groups) > p->own->summed_count) {
        return false;
    }
    const ls_transfer transfer = p->compressed  ? LS_TRANSFER_SUMS
                                 : p->zero == 0 ? LS_TRANSFER_SPREAD
                                                : LS_TRANSFER_SHADOW;
    ls_hosts_post(p->hosts, transfer, p->told_groups++, p->target);
    return true;
}

/* Posts whatever is complete. All ranks must post the same transfers in the same order, although
 * they reach this point at different times, so the order is fixed: the sums of group g follow the
 * reduce of group g + 1. That leaves one reduce in progress while the sums are being made. */
static void post_whole_groups(ls_data_parallel *p)
{
    enum { AHEAD = 2 };
    const uint32_t groups = ls_hosts_groups(p->hosts);
    for (bool posted = true; posted;) {
        const bool sums_next =
            ls_tells_sums(p) && (p->posted_groups >= p->told_groups + AHEAD || p->posted_groups == groups);
        posted = sums_next ? post_sums(p) : post_reduce(p);
    }
}

/* Takes the next bucket, which is final on all local parts. With several hosts, the others may
 * release their gradients only after sum_group: an owner still reads the local nodes there. */
static ls_status take_bucket(ls_data_parallel *p, ls_own_part *own, ls_queue *queue)
{
    const uint32_t at = own->taken_count;
    ls_flight_activity(LS_ACTIVITY_REDUCE, p->order[at].bucket);
    if (!p->hosts) {
        LS_TRY(sum_own(p, own, queue, at));
        own->summed_count = at + 1;
    } else if (!is_given_up(p)) {
        LS_TRY(sum_for_others(p, queue, at));
        LS_TRY(ls_queue_wait(queue));
    }
    own->taken_count = at + 1;
    if (p->hosts) {
        post_whole_groups(p);
    } else {
        ls_exchange_count_part(&p->view, own->local, LS_COUNT_TAKEN, count_at(p, own->taken_count));
    }
    return LS_OK;
}

/* Adds up the owned slices of a group whose nodes have arrived from the other hosts. */
static ls_status sum_group(ls_data_parallel *p, ls_queue *queue, uint32_t group)
{
    ls_own_part *own = p->own;
    while (own->summed_count < ls_hosts_group_past(p->hosts, group)) {
        ls_flight_activity(LS_ACTIVITY_REDUCE, p->order[own->summed_count].bucket);
        LS_TRY(sum_own(p, own, queue, own->summed_count++));
    }
    ls_exchange_count(&p->view, LS_COUNT_TAKEN, count_at(p, own->summed_count));
    post_whole_groups(p);
    return LS_OK;
}

/* The group of the first bucket that is not summed yet. */
static uint32_t next_group(const ls_data_parallel *p)
{
    uint32_t group = 0;
    while (ls_hosts_group_past(p->hosts, group) <= p->own->summed_count) {
        group++;
    }
    return group;
}

/* Takes all buckets that can be taken without waiting. */
static ls_status take_what_is_ready(ls_data_parallel *p, ls_queue *queue)
{
    for (uint32_t i = 0; i < p->own_count; i++) {
        ls_own_part *own = &p->own[i];
        while (!own->is_ahead && own->taken_count < own->ready_count &&
               ls_exchange_has(&p->view, LS_COUNT_READY, count_at(p, own->taken_count + 1))) {
            LS_TRY(take_bucket(p, own, queue));
        }
    }
    return LS_OK;
}

ls_status ls_data_parallel_after_step(ls_data_parallel *p, uint32_t index, ls_queue *queue,
                                      uint32_t plan_step)
{
    ls_own_part *own = &p->own[index];
    uint32_t ready = own->ready_count;
    while (ready < p->bucket_count && p->order[ready].last_step <= plan_step) {
        ready++;
    }
    say_ready(p, own, ready);
    if (ready > 0) {
        ls_fault_injection_at(p->fault_injection, LS_PHASE_READY, p->view.step);
    }
    LS_TRY(take_what_is_ready(p, queue));
    while (p->hosts && own->summed_count < p->bucket_count) {
        const uint32_t group = next_group(p);
        if (group >= p->posted_groups || !ls_hosts_is_done(p->hosts, p->reduce_number[group])) {
            break;
        }
        LS_TRY(sum_group(p, queue, group));
    }
    ls_data_parallel_drop_taken(p);
    return LS_OK;
}

/* A transfer failed because a host or a rank is gone. This rank learns that from its connection
 * before the agents and the coordinator do, which will raise a fence or end the run. So it waits
 * for their decision; only if none comes is the failure an error of the step. */
static ls_status await_fence(ls_data_parallel *p, ls_status status, const char *what)
{
    enum { WAIT_S = 20 };
    if (status == LS_OK || !p->view.abort) {
        return status;
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", ls_error_text());
    ls_word never = {0}; /* nobody posts it: the wait ends by abort, look or deadline */
    ls_wait wait = ls_exchange_wait(&p->view);
    wait.spins = 0;
    wait.deadline_ns = ls_clock_monotonic_ns() + WAIT_S * UINT64_C(1000000000);
    return ls_wait_until(&never, 1, &wait) == LS_WAIT_TIMEOUT ? ls_fail(status, "%s", text)
                                                              : ls_exchange_fail_transfer(&p->view, what);
}

/* Waits for transfers between hosts. */
ls_status ls_data_parallel_await(ls_data_parallel *p, ls_hosts *hosts, uint64_t count, const char *what)
{
    if (ls_hosts_is_done(hosts, count)) {
        bool aborted;
        return await_fence(p, ls_hosts_await(hosts, count, &(ls_wait){0}, &aborted), what);
    }
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    const ls_wait wait = ls_exchange_wait(&p->view);
    bool aborted = false;
    const ls_status status = ls_hosts_await(hosts, count, &wait, &aborted);
    p->view.wait_ns += ls_clock_monotonic_ns() - begin_ns;
    return aborted ? ls_exchange_fail_transfer(&p->view, what) : await_fence(p, status, what);
}

static ls_status take_rest(ls_data_parallel *p, ls_own_part *own, ls_queue *queue)
{
    while (own->taken_count < p->bucket_count) {
        const uint32_t at = own->taken_count;
        ls_ready_bucket *ready = &p->order[at];
        char what[48];
        snprintf(what, sizeof what, "gradients of bucket %u", ready->bucket);
        const uint64_t waited_ns = p->view.wait_ns;
        const ls_status status = ls_exchange_await(&p->view, LS_COUNT_READY, count_at(p, at + 1), what);
        ready->wait_ns = p->view.wait_ns - waited_ns;
        if (status != LS_OK) {
            end_record(p, own, at, status);
            return status;
        }
        LS_TRY(take_bucket(p, own, queue));
    }
    return LS_OK;
}

/* Posts all parts of this process as ready before waiting for any: a process with two parts would
 * otherwise wait for itself. */
static ls_status take_rest_of_all(ls_data_parallel *p, ls_queue *queue)
{
    for (uint32_t i = 0; i < p->own_count; i++) {
        if (!p->own[i].is_ahead) {
            say_ready(p, &p->own[i], p->bucket_count);
        }
    }
    for (uint32_t i = 0; i < p->own_count; i++) {
        if (!p->own[i].is_ahead) {
            LS_TRY(take_rest(p, &p->own[i], queue));
        }
    }
    return LS_OK;
}

ls_status ls_data_parallel_sum_rest(ls_data_parallel *p, ls_queue *queue)
{
    LS_TRY(ls_fetch_rest(p->fetch));
    LS_TRY(take_rest_of_all(p, queue));
    while (p->hosts && p->own->summed_count < p->bucket_count) {
        const uint32_t group = next_group(p);
        LS_TRY(ls_data_parallel_await(p, p->hosts, p->reduce_number[group], "gradients of the other hosts"));
        LS_TRY(sum_group(p, queue, group));
    }
    ls_data_parallel_drop_taken(p);
    /* The sums must have arrived before this rank enters the agreement. Then an agreement means
     * that every host has the sums of everything it keeps, and can complete the step alone if a
     * host is lost (ls_data_parallel_break). */
    return p->hosts && ls_tells_sums(p) ? ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts),
                                                                 "gradient sums of the other hosts")
                                        : LS_OK;
}
