// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/data_parallel_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "execution/parallel/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert((int)LS_TREE_ADD == (int)LS_TREE_SUM_ADD, "programs of the tree are programs of the kernel");
_Static_assert((int)LS_TREE_INPUTS_MAX == (int)LS_TREE_SUM_INPUTS_MAX, "and have room for as many inputs");

static const double default_timeout_s = 600.0;
enum { PAGE_BYTES = 4096 };

uint32_t ls_data_parallel_buffers(uint32_t leaves, uint32_t ranks, uint32_t rank)
{
    return ls_tree_range_buffers(leaves, ls_leaves_of_rank(leaves, ranks, rank));
}

uint64_t ls_data_parallel_exchange_bytes(const ls_layout *layout, uint32_t local_ranks)
{
    return ls_exchange_bytes(layout, local_ranks);
}

uint32_t ls_data_parallel_rank(const ls_data_parallel *parallel)
{
    return parallel->rank;
}

uint32_t ls_data_parallel_ranks(const ls_data_parallel *parallel)
{
    return parallel->ranks;
}

ls_leaf_range ls_data_parallel_leaves(const ls_data_parallel *parallel)
{
    return parallel->leaves;
}

uint32_t ls_data_parallel_slices(const ls_data_parallel *parallel, const ls_owned_slice **slices_out)
{
    *slices_out = parallel->updates;
    return parallel->update_count;
}

ls_undo_record ls_data_parallel_undo(const ls_data_parallel *parallel)
{
    return parallel->undo;
}

double ls_data_parallel_wait_s(const ls_data_parallel *parallel)
{
    return 1e-9 * (double)parallel->view.wait_ns;
}

ls_flight_record *ls_data_parallel_record(ls_data_parallel *p, ls_comm_kind kind, uint64_t fingerprint,
                                          uint64_t count, uint32_t line)
{
    p->sequence++;
    if (!ls_flight_mapped || p->ranks == 1) {
        return NULL;
    }
    const ls_flight_call call = {
        .seq = p->sequence,
        .fingerprint = fingerprint,
        .count = count,
        .comm_id = p->comm_id,
        .peer = UINT32_MAX,
        .site = ls_flight_site(__FILE__, line),
        .kind = (uint8_t)kind,
        .dtype = LS_F32,
        .reduction = LS_COMM_SUM,
        .slot = p->flight_slot,
    };
    return ls_flight_begin(&call);
}

/* ---- sums ---- */

ls_status ls_node_sum_init(ls_node_sum *sum, uint32_t leaves, uint32_t first, const ls_leaf_range *nodes,
                           uint32_t count)
{
    ls_leaf_range *shifted = calloc(count, sizeof *shifted);
    sum->program = calloc(2 * (size_t)count, sizeof *sum->program);
    if (!shifted || !sum->program) {
        free(shifted);
        return ls_fail(LS_ERR_MEMORY, "no memory for the order of %u sums", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        shifted[i] = (ls_leaf_range){nodes[i].first - first, nodes[i].count};
    }
    uint32_t depth = 0;
    const uint32_t length = ls_tree_program(leaves, shifted, count, sum->program, &depth);
    sum->sum = (ls_tree_sum){.program = sum->program, .length = length, .depth = depth, .input_count = count};
    free(shifted);
    return LS_OK;
}

/* Ready counts go on from step to step: after `round` steps all buckets of each have been counted. */
static uint32_t count_at(const ls_data_parallel *p, uint32_t buckets)
{
    return (p->round - 1) * p->bucket_count + buckets;
}

static bool is_given_up(const ls_data_parallel *p)
{
    return atomic_load(&p->view.exchange->given_up) == p->round;
}

static const float *const *local_inputs_at(const ls_data_parallel *p, uint32_t first, uint32_t count,
                                           int64_t offset)
{
    for (uint32_t i = 0; i < count; i++) {
        p->inputs[i] = p->local_inputs[first + i] + offset;
    }
    return p->inputs;
}

/* What other hosts get: the canonical nodes of this one over the slices that this rank handles. */
static ls_status sum_for_others(ls_data_parallel *p, ls_queue *queue, uint32_t at)
{
    const ls_lane *lanes;
    const uint32_t lane_count = ls_hosts_out_lanes(p->hosts, &lanes);
    for (uint32_t l = 0; l < lane_count; l++) {
        const ls_slice slice = ls_slice_of(p->layout, p->order[at].bucket, p->ranks, lanes[l].owner);
        for (uint32_t k = 0; k < lanes[l].copies && slice.count > 0; k++) {
            const ls_tree_sum *sum = &p->node_sums[k].sum;
            LS_TRY(ls_tree_sum_run(queue, sum,
                                   local_inputs_at(p, p->node_first[k], sum->input_count, slice.offset),
                                   slice.count, ls_hosts_sent(p->hosts, l, at, k), NULL));
        }
    }
    return LS_OK;
}

/* The inputs of the whole sum over own slice of the bucket at `at`, in the order of the tree. */
static const float *const *whole_inputs_at(const ls_data_parallel *p, uint32_t at, int64_t offset)
{
    const ls_lane *lanes = NULL;
    const uint32_t lane_count = p->hosts ? ls_hosts_in_lanes(p->hosts, &lanes) : 0;
    const uint32_t self = p->hosts ? ls_hosts_self(p->hosts) : 0;
    uint32_t n = 0, l = 0;
    for (; l < lane_count && lanes[l].host < self; l++) {
        for (uint32_t k = 0; k < lanes[l].copies; k++) {
            p->inputs[n++] = ls_hosts_received(p->hosts, l, at, k);
        }
    }
    for (uint32_t i = 0; i < p->local_count; i++) {
        p->inputs[n++] = p->local_inputs[i] + offset;
    }
    for (; l < lane_count; l++) {
        for (uint32_t k = 0; k < lanes[l].copies; k++) {
            p->inputs[n++] = ls_hosts_received(p->hosts, l, at, k);
        }
    }
    LS_DCHECK(n == p->whole.sum.input_count);
    return p->inputs;
}

/* Adds up own slice of the bucket at `at`, into own buffer 0. */
static ls_status sum_own(ls_data_parallel *p, ls_queue *queue, uint32_t at)
{
    ls_ready_bucket *ready = &p->order[at];
    const ls_slice *slice = &p->slices[ready->bucket];
    ls_status status = LS_OK;
    if (slice->count > 0 && !is_given_up(p)) {
        status = ls_tree_sum_run(queue, &p->whole.sum, whole_inputs_at(p, at, slice->offset), slice->count,
                                 p->target + slice->offset, p->block_sums + slice->first_block);
    }
    if (status == LS_OK) {
        status = ls_queue_wait(queue);
    }
    ls_flight_end(ready->record, 0, UINT32_MAX, ready->wait_ns, status);
    ready->record = NULL;
    return status;
}

/* ---- giving memory back ---- */

/* Pages that lie in [first, past) whole. Only shared mappings can do that; elsewhere the memory stays, as without the wish. */
void ls_drop_floats(float *flat, int64_t first, int64_t past)
{
    const uintptr_t begin = ((uintptr_t)(flat + first) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    const uintptr_t end = (uintptr_t)(flat + past) / PAGE_BYTES * PAGE_BYTES;
    if (begin < end) {
        (void)madvise((void *)begin, end - begin, MADV_REMOVE);
    }
}

/* Own gradients of a bucket that everyone has taken, but not the sums that this rank updates with. */
static void drop_gradients(const ls_data_parallel *p, uint32_t bucket)
{
    const ls_bucket *b = &p->layout->buckets[bucket];
    const int64_t past = b->offset + b->count;
    for (uint32_t i = 1; i < p->own_buffer_count; i++) {
        ls_drop_floats(p->own_buffers[i], b->offset, past);
    }
    for (int64_t from = b->offset; from < past;) {
        const ls_owned_slice *next = NULL;
        for (uint32_t i = 0; i < p->update_count; i++) {
            const ls_owned_slice *kept = &p->updates[i];
            next = kept->bucket == bucket && kept->offset >= from && (!next || kept->offset < next->offset)
                       ? kept
                       : next;
        }
        ls_drop_floats(p->target, from, next ? next->offset : past);
        from = next ? next->offset + next->count : past;
    }
}

static void drop_some(ls_data_parallel *p)
{
    while (p->zero >= 2 && p->dropped_count < p->taken_count &&
           ls_exchange_has(&p->view, LS_COUNT_TAKEN, count_at(p, p->dropped_count + 1))) {
        drop_gradients(p, p->order[p->dropped_count++].bucket);
    }
}

/* The slices of a bucket that this rank holds for owners on other hosts. */
void ls_drop_handled(const ls_data_parallel *p, uint32_t bucket, float *flat)
{
    const ls_lane *lanes;
    const uint32_t lane_count = ls_hosts_out_lanes(p->hosts, &lanes);
    for (uint32_t l = 0; l < lane_count; l++) {
        const ls_slice slice = ls_slice_of(p->layout, bucket, p->ranks, lanes[l].owner);
        if (slice.count > 0 && !ls_hosts_shadows(p->hosts, l)) {
            ls_drop_floats(flat, slice.offset, slice.offset + slice.count);
        }
    }
}

/* On host 0, after the trainer had the whole state: what this rank handled there. */
static void drop_gathered(const ls_data_parallel *p)
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

/* `count` buckets of this rank are final. Its operation on each begins here: what it owes the others is done. */
static void say_ready(ls_data_parallel *p, uint32_t count)
{
    for (uint32_t i = p->ready_count; i < count; i++) {
        const uint32_t bucket = p->order[i].bucket;
        const uint64_t floats = (uint64_t)p->layout->buckets[bucket].count;
        p->order[i].wait_ns = 0;
        p->order[i].record = ls_data_parallel_record(
            p, LS_COMM_TREE_REDUCE, p->slot->claim.fingerprint ^ (bucket + 1), floats, __LINE__);
    }
    if (count > p->ready_count) {
        p->ready_count = count;
        ls_exchange_count(&p->view, LS_COUNT_READY, count_at(p, count));
    }
}

/* Whether own sums go to other hosts, which make the same update. */
static bool tells_sums(const ls_data_parallel *p)
{
    return p->zero == 0 || p->shadow;
}

static bool post_reduce(ls_data_parallel *p)
{
    if (p->posted_groups == ls_hosts_groups(p->hosts) ||
        ls_hosts_group_past(p->hosts, p->posted_groups) > p->taken_count) {
        return false;
    }
    ls_hosts_post(p->hosts, LS_TRANSFER_REDUCE, p->posted_groups, NULL);
    p->reduce_number[p->posted_groups++] = ls_hosts_posted(p->hosts);
    return true;
}

static bool post_sums(ls_data_parallel *p)
{
    if (p->told_groups == ls_hosts_groups(p->hosts) ||
        ls_hosts_group_past(p->hosts, p->told_groups) > p->summed_count) {
        return false;
    }
    ls_hosts_post(p->hosts, p->zero == 0 ? LS_TRANSFER_SPREAD : LS_TRANSFER_SHADOW, p->told_groups++,
                  p->target);
    return true;
}

/* All ranks post the same transfers in the same order: the sums of a group go out behind the reduce of the next one but one, so that a
 * reduce is under way while they are made. */
static void post_whole_groups(ls_data_parallel *p)
{
    enum { AHEAD = 2 };
    const uint32_t groups = ls_hosts_groups(p->hosts);
    for (bool posted = true; posted;) {
        const bool sums_next =
            tells_sums(p) && (p->posted_groups >= p->told_groups + AHEAD || p->posted_groups == groups);
        posted = sums_next ? post_sums(p) : post_reduce(p);
    }
}

/* The next bucket, final on all local ranks: takes from their buffers what this rank has to. */
static ls_status take_bucket(ls_data_parallel *p, ls_queue *queue)
{
    const uint32_t at = p->taken_count;
    ls_flight_activity(LS_ACTIVITY_REDUCE, p->order[at].bucket);
    if (!p->hosts) {
        LS_TRY(sum_own(p, queue, at));
        p->summed_count = at + 1;
    } else if (!is_given_up(p)) {
        LS_TRY(sum_for_others(p, queue, at));
        LS_TRY(ls_queue_wait(queue));
    }
    p->taken_count = at + 1;
    if (p->hosts) {
        post_whole_groups(p);
    } else if (p->zero >= 2) {
        ls_exchange_count(&p->view, LS_COUNT_TAKEN, count_at(p, p->taken_count));
    }
    return LS_OK;
}

/* Adds up own slices of the group whose parts have come from the other hosts. */
static ls_status sum_group(ls_data_parallel *p, ls_queue *queue, uint32_t group)
{
    while (p->summed_count < ls_hosts_group_past(p->hosts, group)) {
        ls_flight_activity(LS_ACTIVITY_REDUCE, p->order[p->summed_count].bucket);
        LS_TRY(sum_own(p, queue, p->summed_count++));
    }
    ls_exchange_count(&p->view, LS_COUNT_TAKEN, count_at(p, p->summed_count));
    post_whole_groups(p);
    return LS_OK;
}

static uint32_t next_group(const ls_data_parallel *p)
{
    uint32_t group = 0;
    while (ls_hosts_group_past(p->hosts, group) <= p->summed_count) {
        group++;
    }
    return group;
}

ls_status ls_data_parallel_after_step(ls_data_parallel *p, ls_queue *queue, uint32_t plan_step)
{
    uint32_t ready = p->ready_count;
    while (ready < p->bucket_count && p->order[ready].last_step <= plan_step) {
        ready++;
    }
    say_ready(p, ready);
    while (p->taken_count < p->ready_count &&
           ls_exchange_has(&p->view, LS_COUNT_READY, count_at(p, p->taken_count + 1))) {
        LS_TRY(take_bucket(p, queue));
    }
    while (p->hosts && p->summed_count < p->bucket_count) {
        const uint32_t group = next_group(p);
        if (group >= p->posted_groups || !ls_hosts_is_done(p->hosts, p->reduce_number[group])) {
            break;
        }
        LS_TRY(sum_group(p, queue, group));
    }
    drop_some(p);
    return LS_OK;
}

/* A transfer that failed: a host or a rank is gone, as this one learns before those who decide what follows. They raise a fence, or end the run;
 * if they do neither, it is an error. */
static ls_status await_fence(ls_data_parallel *p, ls_status status, const char *what)
{
    enum { WAIT_S = 20 };
    if (status == LS_OK || !p->view.abort) {
        return status;
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", ls_error_text());
    ls_word never = {0};
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

void ls_data_parallel_break(ls_data_parallel *p)
{
    if (p->hosts) {
        ls_hosts_break(p->hosts);
        ls_fetch_break(p->fetch);
    }
}

static ls_status take_rest(ls_data_parallel *p, ls_queue *queue)
{
    say_ready(p, p->bucket_count);
    while (p->taken_count < p->bucket_count) {
        ls_ready_bucket *ready = &p->order[p->taken_count];
        char what[48];
        snprintf(what, sizeof what, "gradients of bucket %u", ready->bucket);
        const uint64_t waited_ns = p->view.wait_ns;
        const ls_status status =
            ls_exchange_await(&p->view, LS_COUNT_READY, count_at(p, p->taken_count + 1), what);
        ready->wait_ns = p->view.wait_ns - waited_ns;
        if (status != LS_OK) {
            ls_flight_end(ready->record, 0, UINT32_MAX, ready->wait_ns, status);
            return status;
        }
        LS_TRY(take_bucket(p, queue));
    }
    return LS_OK;
}

ls_status ls_data_parallel_sum_rest(ls_data_parallel *p, ls_queue *queue)
{
    LS_TRY(ls_fetch_rest(p->fetch));
    LS_TRY(take_rest(p, queue));
    while (p->summed_count < p->bucket_count) {
        const uint32_t group = next_group(p);
        LS_TRY(ls_data_parallel_await(p, p->hosts, p->reduce_number[group], "gradients of the other hosts"));
        LS_TRY(sum_group(p, queue, group));
    }
    drop_some(p);
    /* Once anyone has agreed on the step, all hosts have the sums of all they keep. */
    return p->hosts && tells_sums(p) ? ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts),
                                                              "gradient sums of the other hosts")
                                     : LS_OK;
}

bool ls_data_parallel_fetches(const ls_data_parallel *p)
{
    return p->fetch != NULL;
}

ls_status ls_data_parallel_before_step(ls_data_parallel *p, uint32_t plan_step)
{
    return p->fetch ? ls_fetch_before(p->fetch, plan_step) : LS_OK;
}

ls_status ls_data_parallel_hold(ls_data_parallel *p)
{
    return p->fetch ? ls_fetch_hold(p->fetch) : LS_OK;
}

/* ---- the step ---- */

static void mark(_Atomic uint64_t *counter, uint64_t value)
{
    if (counter) {
        atomic_store(counter, value);
    }
}

void ls_data_parallel_enter(ls_data_parallel *p, uint64_t step, uint64_t fingerprint)
{
    mark(p->marks.entered, step + 1);
    if (p->was_gathered) {
        drop_gathered(p);
    }
    p->was_gathered = false;
    p->view.step = step;
    p->view.wait_ns = 0;
    p->round++;
    p->ready_count = p->taken_count = p->summed_count = p->dropped_count = 0;
    p->posted_groups = p->told_groups = p->spread_groups = 0;
    p->fault = (ls_step_fault){0};
    p->slot->claim = (ls_claim){.step = step, .fingerprint = fingerprint, .rank = p->rank};
}

void ls_data_parallel_give_up(ls_data_parallel *p, ls_status status, const ls_step_fault *fault)
{
    LS_ASSERT(status != LS_OK);
    ls_claim *claim = &p->slot->claim;
    if (fault) {
        claim->report.fault = *fault;
    }
    claim->status = status;
    snprintf(claim->report.text, sizeof claim->report.text, "%s", ls_error_text());
    atomic_store(&p->view.exchange->given_up, p->round);
}

/* Posts the next groups of own weights to the hosts that have not made the same update, up to those that end at position `past`. */
static void spread(ls_data_parallel *p, float *flat, uint32_t past)
{
    while (p->hosts && ls_hosts_spreads(p->hosts) && p->spread_groups < ls_hosts_groups(p->hosts) &&
           ls_hosts_group_past(p->hosts, p->spread_groups) <= past) {
        ls_hosts_post(p->hosts, LS_TRANSFER_SPREAD, p->spread_groups++, flat);
    }
}

ls_status ls_data_parallel_begin_update(ls_data_parallel *p)
{
    mark(p->marks.begun, p->view.step + 1);
    return LS_OK;
}

void ls_data_parallel_updated(ls_data_parallel *p, float *parameters, uint32_t index)
{
    if (p->zero > 0 && p->zero < 3) {
        spread(p, parameters, index + 1 < p->update_count ? p->update_at[index + 1] : p->bucket_count);
    }
}

ls_status ls_data_parallel_end_update(ls_data_parallel *p, float *parameters)
{
    if (p->hosts && p->zero > 0 && p->zero < 3) {
        spread(p, parameters, p->bucket_count);
        LS_TRY(ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts), "weights of the other hosts"));
    }
    mark(p->marks.done, p->view.step + 1);
    return LS_OK;
}

ls_status ls_data_parallel_leave(ls_data_parallel *p, bool updated)
{
    if (p->zero >= 2) {
        drop_some(p);
        ls_drop_floats(p->target, 0, p->layout->float_count);
    }
    LS_TRY(ls_exchange_meet(&p->view, "the end of the step", NULL));
    ls_fetch_leave(p->fetch);
    if (updated) {
        mark(p->marks.finished, p->view.step + 1);
    }
    return LS_OK;
}

/* ---- between steps ---- */

static ls_status move_all(ls_data_parallel *p, ls_transfer transfer, float *flat)
{
    for (uint32_t g = 0; g < ls_hosts_groups(p->hosts); g++) {
        ls_hosts_post(p->hosts, transfer, g, flat);
    }
    return ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts), "the state of the other hosts");
}

static void remember_gathered(ls_data_parallel *p, const ls_state *state)
{
    p->gathered[0] = state->parameters;
    p->gathered[1] = state->m;
    p->gathered[2] = state->v;
    p->was_gathered = p->zero > 0 && ls_hosts_self(p->hosts) == 0;
}

ls_status ls_data_parallel_distribute(ls_data_parallel *p, const ls_state *state)
{
    if (!p->hosts) {
        return LS_OK;
    }
    float *const flats[] = {state->parameters, state->m, state->v};
    for (int i = 0; i < 3; i++) {
        LS_TRY(move_all(p, LS_TRANSFER_SCATTER, flats[i]));
        if (i == 0 ? p->zero < 3 : p->zero == 0) {
            LS_TRY(move_all(p, LS_TRANSFER_SPREAD, flats[i]));
        }
        if (p->shadow) {
            LS_TRY(move_all(p, LS_TRANSFER_SHADOW, flats[i]));
        }
    }
    remember_gathered(p, state);
    return ls_exchange_meet(&p->view, "the state of the other hosts", NULL);
}

ls_status ls_data_parallel_gather(ls_data_parallel *p, const ls_state *state)
{
    if (!p->hosts) {
        return LS_OK;
    }
    if (p->zero >= 3) {
        LS_TRY(move_all(p, LS_TRANSFER_GATHER, state->parameters));
    }
    if (p->zero > 0) {
        LS_TRY(move_all(p, LS_TRANSFER_GATHER, state->m));
        LS_TRY(move_all(p, LS_TRANSFER_GATHER, state->v));
    }
    remember_gathered(p, state);
    return ls_exchange_meet(&p->view, "the state of the other hosts", NULL);
}

/* ---- life ---- */

static ls_status make_inputs(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    for (uint32_t local = 0; local < options->local_ranks; local++) {
        const ls_leaf_range leaves =
            ls_leaves_of_rank(options->leaves, options->ranks, options->first_rank + local);
        ls_leaf_range nodes[LS_TREE_NODES_MAX];
        const uint32_t count = ls_tree_handover(options->leaves, leaves, nodes);
        for (uint32_t i = 0; i < count; i++) {
            p->local_nodes[p->local_count] = nodes[i];
            p->local_inputs[p->local_count++] = options->gradient(options->context, local, i);
        }
    }
    p->own_buffer_count = ls_data_parallel_buffers(options->leaves, p->ranks, p->rank);
    for (uint32_t i = 0; i < p->own_buffer_count; i++) {
        p->own_buffers[i] = options->gradient(options->context, options->local, i);
    }
    p->target = p->own_buffers[0];
    return LS_OK;
}

static int by_last_step(const void *a, const void *b)
{
    const ls_ready_bucket *x = a, *y = b;
    if (x->last_step != y->last_step) {
        return x->last_step < y->last_step ? -1 : 1;
    }
    return x->bucket < y->bucket ? -1 : 1;
}

static void order_buckets(ls_data_parallel *p, const ls_plan *plan)
{
    for (uint32_t b = 0; b < p->bucket_count; b++) {
        p->order[b] = (ls_ready_bucket){.bucket = b, .last_step = ls_plan_last_gradient_step(plan, b)};
        p->slices[b] = ls_slice_of(p->layout, b, p->ranks, p->rank);
    }
    qsort(p->order, p->bucket_count, sizeof *p->order, by_last_step);
}

static void add_update(ls_data_parallel *p, uint32_t at, uint32_t owner)
{
    const uint32_t bucket = p->order[at].bucket;
    const ls_slice slice = ls_slice_of(p->layout, bucket, p->ranks, owner);
    if (slice.count > 0) {
        p->update_at[p->update_count] = at;
        p->updates[p->update_count++] =
            (ls_owned_slice){.offset = slice.offset, .count = slice.count, .bucket = bucket};
    }
}

/* Own slices; with several hosts also those that this rank handles, all when every host updates everything, or those it shadows. */
static ls_status make_updates(ls_data_parallel *p)
{
    const ls_lane *lanes = NULL;
    const uint32_t lane_count = p->hosts && tells_sums(p) ? ls_hosts_out_lanes(p->hosts, &lanes) : 0;
    const size_t room = (size_t)p->bucket_count * (lane_count + 1);
    p->updates = calloc(room, sizeof *p->updates);
    p->update_at = calloc(room, sizeof *p->update_at);
    if (!p->updates || !p->update_at) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %zu slices", room);
    }
    for (uint32_t at = 0; at < p->bucket_count; at++) {
        add_update(p, at, p->rank);
        for (uint32_t l = 0; l < lane_count; l++) {
            if (p->zero == 0 || ls_hosts_shadows(p->hosts, l)) {
                add_update(p, at, lanes[l].owner);
            }
        }
    }
    return LS_OK;
}

static ls_status alloc_tables(ls_data_parallel *p)
{
    p->local_inputs = calloc(LS_TREE_INPUTS_MAX, sizeof *p->local_inputs);
    p->local_nodes = calloc(LS_TREE_INPUTS_MAX, sizeof *p->local_nodes);
    p->inputs = calloc(LS_TREE_INPUTS_MAX, sizeof *p->inputs);
    p->order = calloc(p->bucket_count, sizeof *p->order);
    p->slices = calloc(p->bucket_count, sizeof *p->slices);
    if (!p->local_inputs || !p->local_nodes || !p->inputs || !p->order || !p->slices) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the tables of data parallelism (%u buckets)",
                       p->bucket_count);
    }
    return LS_OK;
}

static ls_exchange_view view_of(const ls_data_parallel_options *options)
{
    const uint32_t waiters = options->local_ranks * (options->threads > 0 ? options->threads : 1);
    return (ls_exchange_view){
        .exchange = options->exchange,
        .local = options->local,
        .local_ranks = options->local_ranks,
        .first_rank = options->first_rank,
        .epoch = options->epoch,
        .spins = ls_wait_spins(waiters, ls_wait_cores()),
        .timeout_s = options->timeout_s > 0.0 ? options->timeout_s : default_timeout_s,
        .abort = options->abort,
        .aborted = options->aborted,
        .look = options->look,
        .context = options->context,
    };
}

/* Other hosts: lanes to them, and the nodes that go over the wire. */
static ls_status open_hosts(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    if (options->local_ranks == options->ranks) {
        return LS_OK;
    }
    LS_ASSERT(options->comm);
    uint32_t *order = calloc(p->bucket_count, sizeof *order);
    if (!order) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u buckets", p->bucket_count);
    }
    for (uint32_t i = 0; i < p->bucket_count; i++) {
        order[i] = p->order[i].bucket;
    }
    const ls_hosts_options hosts = {.layout = p->layout,
                                    .comm = options->comm,
                                    .leaves = options->leaves,
                                    .ranks = p->ranks,
                                    .rank = p->rank,
                                    .first_rank = options->first_rank,
                                    .local_ranks = options->local_ranks,
                                    .order = order,
                                    .shadows = p->shadow};
    const ls_status status = ls_hosts_create(&hosts, &p->hosts);
    free(order);
    LS_TRY(status);
    p->reduce_number = calloc(ls_hosts_groups(p->hosts), sizeof *p->reduce_number);
    return p->reduce_number ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a table of groups");
}

/* The canonical nodes of this host, each over its share of the local nodes. */
static ls_status make_node_sums(ls_data_parallel *p, const ls_host *host)
{
    p->node_sums = calloc(host->node_count, sizeof *p->node_sums);
    p->node_first = calloc(host->node_count, sizeof *p->node_first);
    if (!p->node_sums || !p->node_first) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the order of %u sums", host->node_count);
    }
    uint32_t from = 0;
    for (uint32_t k = 0; k < host->node_count; k++) {
        const ls_leaf_range node = host->nodes[k];
        uint32_t count = 0;
        while (from + count < p->local_count &&
               p->local_nodes[from + count].first < node.first + node.count) {
            count++;
        }
        p->node_first[k] = from;
        LS_TRY(ls_node_sum_init(&p->node_sums[k], node.count, node.first, p->local_nodes + from, count));
        from += count;
    }
    return LS_OK;
}

static ls_status make_whole_sum(ls_data_parallel *p)
{
    ls_leaf_range *nodes = calloc(LS_TREE_INPUTS_MAX, sizeof *nodes);
    if (!nodes) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the order of sums");
    }
    uint32_t count = 0;
    const uint32_t host_count = p->hosts ? ls_hosts_count(p->hosts) : 1;
    for (uint32_t i = 0; i < host_count; i++) {
        const bool here = !p->hosts || i == ls_hosts_self(p->hosts);
        const ls_leaf_range *from = here ? p->local_nodes : ls_hosts_table(p->hosts)[i].nodes;
        const uint32_t more = here ? p->local_count : ls_hosts_table(p->hosts)[i].node_count;
        LS_ASSERT(count + more <= LS_TREE_INPUTS_MAX);
        memcpy(nodes + count, from, more * sizeof *nodes);
        count += more;
    }
    const ls_status status = ls_node_sum_init(&p->whole, p->leaf_count, 0, nodes, count);
    free(nodes);
    return status;
}

static ls_status prepare(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    LS_TRY(alloc_tables(p));
    LS_TRY(make_inputs(p, options));
    order_buckets(p, options->plan);
    LS_TRY(open_hosts(p, options));
    if (p->hosts) {
        LS_TRY(make_node_sums(p, &ls_hosts_table(p->hosts)[ls_hosts_self(p->hosts)]));
    }
    LS_TRY(make_whole_sum(p));
    LS_TRY(make_updates(p));
    if (p->hosts && p->zero >= 3 && ls_hosts_spreads(p->hosts)) {
        LS_TRY(ls_fetch_create(p, options, &p->fetch));
    }
    return ls_agreement_init(p);
}

ls_status ls_data_parallel_create(const ls_data_parallel_options *options, ls_data_parallel **parallel_out)
{
    LS_ASSERT(options->ranks >= 1 && options->ranks <= options->leaves);
    LS_ASSERT(options->local < options->local_ranks && options->local_ranks <= options->ranks);
    LS_ASSERT(options->exchange && (uintptr_t)options->exchange % 64 == 0);
    ls_data_parallel *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "no memory for data parallelism");
    }
    p->layout = options->plan->layout;
    p->bucket_count = p->layout->bucket_count;
    p->ranks = options->ranks;
    p->rank = options->first_rank + options->local;
    p->comm_id = (uint32_t)LS_DATA_PARALLEL_COMM + (uint32_t)(options->epoch & 0xffffff);
    p->zero = options->zero;
    p->shadow = options->shadow && options->zero > 0 && options->local_ranks < options->ranks;
    p->leaf_count = options->leaves;
    p->leaves = ls_leaves_of_rank(options->leaves, p->ranks, p->rank);
    p->marks = options->marks;
    p->view = view_of(options);
    p->slot = &p->view.exchange->slots[options->local];
    const uint32_t room = options->is_alone ? 0 : options->local_ranks;
    p->block_sums = ls_exchange_block_sums(p->view.exchange, room);
    p->block_count = ls_blocks_before(p->layout, p->bucket_count);
    if (!options->is_alone) {
        p->undo.done = ls_exchange_block_words(p->view.exchange, room, p->block_count);
        p->undo.undo = ls_exchange_undo(p->view.exchange, room, options->local);
    }
    const ls_status status = prepare(p, options);
    if (status != LS_OK) {
        ls_data_parallel_destroy(p);
        return status;
    }
    if (p->ranks > 1) {
        p->flight_slot = ls_flight_join(p->comm_id, p->rank, p->ranks, "steps");
    }
    *parallel_out = p;
    return LS_OK;
}

void ls_data_parallel_destroy(ls_data_parallel *p)
{
    if (!p) {
        return;
    }
    ls_flight_leave(p->flight_slot);
    ls_flight_leave(p->view.flight_slot);
    for (uint32_t k = 0;
         p->hosts && p->node_sums && k < ls_hosts_table(p->hosts)[ls_hosts_self(p->hosts)].node_count; k++) {
        free(p->node_sums[k].program);
    }
    ls_agreement_release(p);
    ls_fetch_destroy(p->fetch);
    ls_hosts_destroy(p->hosts);
    free(p->whole.program);
    free(p->node_sums);
    free(p->node_first);
    free(p->reduce_number);
    free(p->local_inputs);
    free(p->local_nodes);
    free(p->inputs);
    free(p->order);
    free(p->slices);
    free(p->updates);
    free(p->update_at);
    free(p);
}
