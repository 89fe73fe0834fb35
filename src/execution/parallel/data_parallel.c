// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/data_parallel.h"

#include "base/assert.h"
#include "compute/kernels/tree_sum.h"
#include "execution/comm/flight.h"
#include "execution/parallel/exchange.h"
#include "execution/parallel/slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)LS_TREE_ADD == (int)LS_TREE_SUM_ADD, "programs of the tree are programs of the kernel");
_Static_assert((int)LS_TREE_INPUTS_MAX == (int)LS_TREE_SUM_INPUTS_MAX, "and have room for as many inputs");

static const double default_timeout_s = 600.0;

/* A bucket in the order in which backward leaves them. */
typedef struct ready_bucket {
    uint32_t bucket;
    uint32_t last_step; /* plan step behind which it is final */
    ls_flight_record *record;
    uint64_t wait_ns;
} ready_bucket;

struct ls_data_parallel {
    const ls_layout *layout;
    ls_exchange_view view;
    ls_exchange_slot *slot; /* own */
    double *block_sums;
    int64_t block_count;
    ls_leaf_range leaves;
    uint32_t ranks, rank;
    ls_step_marks marks;

    /* The nodes of all ranks in order, where they lie, and how to add them. */
    uint32_t input_count;
    const float **inputs;
    ls_leaf_range *nodes;
    uint16_t *program;
    ls_tree_sum sum;
    float *target; /* own gradient buffer 0: sums of own slices replace what is there */

    ready_bucket *order; /* per bucket */
    uint32_t bucket_count;
    ls_slice *slices; /* own, per bucket */
    ls_owned_slice *owned;
    uint32_t owned_count;

    /* The step that runs. */
    uint32_t round;         /* steps entered */
    uint32_t ready_count;   /* buckets of this rank that are final */
    uint32_t reduced_count; /* buckets done with */
    bool gave_up;
    ls_step_fault fault; /* of the agreement that failed */
    uint64_t sequence;   /* operations begun */
    uint8_t flight_slot;
};

uint32_t ls_data_parallel_buffers(uint32_t leaves, uint32_t ranks, uint32_t rank)
{
    return ls_tree_range_buffers(leaves, ls_leaves_of_rank(leaves, ranks, rank));
}

uint64_t ls_data_parallel_exchange_bytes(const ls_layout *layout, uint32_t local_ranks)
{
    const uint64_t blocks = (uint64_t)ls_blocks_before(layout, layout->bucket_count);
    return sizeof(ls_exchange) + local_ranks * sizeof(ls_exchange_slot) + blocks * sizeof(double);
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
    *slices_out = parallel->owned;
    return parallel->owned_count;
}

double ls_data_parallel_wait_s(const ls_data_parallel *parallel)
{
    return 1e-9 * (double)parallel->view.wait_ns;
}

/* ---- records ---- */

static ls_flight_record *begin_record(ls_data_parallel *p, ls_comm_kind kind, uint64_t fingerprint,
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
        .comm_id = LS_DATA_PARALLEL_COMM,
        .peer = UINT32_MAX,
        .site = ls_flight_site(__FILE__, line),
        .kind = (uint8_t)kind,
        .dtype = LS_F32,
        .reduction = LS_COMM_SUM,
        .slot = p->flight_slot,
    };
    return ls_flight_begin(&call);
}

/* ---- buckets ---- */

/* Ready counts go on from step to step: after `round` steps all buckets of each have been counted. */
static uint32_t count_at(const ls_data_parallel *p, uint32_t buckets)
{
    return (p->round - 1) * p->bucket_count + buckets;
}

static bool is_given_up(const ls_data_parallel *p)
{
    return atomic_load(&p->view.exchange->given_up) == p->round;
}

/* Adds up this rank's slice of the bucket, from the buffers of all ranks into its own. */
static ls_status reduce_bucket(ls_data_parallel *p, ls_queue *queue, ready_bucket *ready)
{
    const ls_slice *slice = &p->slices[ready->bucket];
    ls_status status = LS_OK;
    if (slice->count > 0 && !is_given_up(p)) {
        ls_flight_activity(LS_ACTIVITY_REDUCE, ready->bucket);
        status = ls_tree_sum_run(queue, &p->sum, p->inputs, slice->offset, slice->count,
                                 p->target + slice->offset, p->block_sums + slice->first_block);
        if (status == LS_OK) {
            status = ls_queue_wait(queue);
        }
    }
    ls_flight_end(ready->record, 0, UINT32_MAX, ready->wait_ns, status);
    ready->record = NULL;
    return status;
}

/* The next `count` buckets of this rank are final. Its operation on each begins here: what it owes the others is done. */
static void say_ready(ls_data_parallel *p, uint32_t count)
{
    for (uint32_t i = p->ready_count; i < count; i++) {
        const uint32_t bucket = p->order[i].bucket;
        const uint64_t floats = (uint64_t)p->layout->buckets[bucket].count;
        p->order[i].wait_ns = 0;
        p->order[i].record =
            begin_record(p, LS_COMM_TREE_REDUCE, p->slot->fingerprint ^ (bucket + 1), floats, __LINE__);
    }
    if (count > p->ready_count) {
        p->ready_count = count;
        ls_word_post(&p->slot->ready, count_at(p, count));
    }
}

ls_status ls_data_parallel_after_step(ls_data_parallel *p, ls_queue *queue, uint32_t plan_step)
{
    uint32_t ready = p->ready_count;
    while (ready < p->bucket_count && p->order[ready].last_step <= plan_step) {
        ready++;
    }
    say_ready(p, ready);
    while (p->reduced_count < p->ready_count &&
           ls_exchange_is_ready(&p->view, count_at(p, p->reduced_count + 1))) {
        LS_TRY(reduce_bucket(p, queue, &p->order[p->reduced_count++]));
    }
    return LS_OK;
}

static ls_status reduce_rest(ls_data_parallel *p, ls_queue *queue)
{
    say_ready(p, p->bucket_count);
    while (p->reduced_count < p->bucket_count) {
        ready_bucket *ready = &p->order[p->reduced_count];
        char what[48];
        snprintf(what, sizeof what, "gradients of bucket %u", ready->bucket);
        const uint64_t waited_ns = p->view.wait_ns;
        const ls_status status = ls_exchange_await_ready(&p->view, count_at(p, p->reduced_count + 1), what);
        ready->wait_ns = p->view.wait_ns - waited_ns;
        if (status != LS_OK) {
            ls_flight_end(ready->record, 0, UINT32_MAX, ready->wait_ns, status);
            return status;
        }
        p->reduced_count++;
        LS_TRY(reduce_bucket(p, queue, ready));
    }
    return LS_OK;
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
    p->view.step = step;
    p->view.wait_ns = 0;
    p->round++;
    p->ready_count = p->reduced_count = 0;
    p->gave_up = false;
    p->fault = (ls_step_fault){0};
    p->slot->step = step;
    p->slot->fingerprint = fingerprint;
    p->slot->status = LS_OK;
    p->slot->note = (ls_rank_note){0};
    p->slot->report.text[0] = 0;
    p->slot->report.fault = (ls_step_fault){0};
}

void ls_data_parallel_give_up(ls_data_parallel *p, ls_status status, const ls_step_fault *fault)
{
    LS_ASSERT(status != LS_OK);
    if (fault) {
        p->slot->report.fault = *fault;
    }
    p->gave_up = true;
    p->slot->status = status;
    snprintf(p->slot->report.text, sizeof p->slot->report.text, "%s", ls_error_text());
    atomic_store(&p->view.exchange->given_up, p->round);
}

/* The ranks' fingerprints differ: who says what. */
static ls_status fail_mismatch(const ls_data_parallel *p)
{
    const ls_exchange_slot *slots = p->view.exchange->slots;
    uint32_t best = 0, best_count = 0;
    for (uint32_t i = 0; i < p->view.local_ranks; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; k < p->view.local_ranks; k++) {
            same += slots[k].fingerprint == slots[i].fingerprint;
        }
        if (same > best_count) {
            best = i;
            best_count = same;
        }
    }
    char others[256];
    size_t used = 0;
    others[0] = 0;
    for (uint32_t i = 0; i < p->view.local_ranks && used + 64 < sizeof others; i++) {
        if (slots[i].fingerprint != slots[best].fingerprint) {
            used += (size_t)snprintf(others + used, sizeof others - used,
                                     "%srank %u (step %llu, settings %016llx)", used > 0 ? ", " : "",
                                     p->view.first_rank + i, (unsigned long long)slots[i].step + 1,
                                     (unsigned long long)slots[i].fingerprint);
        }
    }
    return ls_fail(
        LS_ERR_MISMATCH,
        "step %llu: ranks are not in the same step with the same settings: %u of %u ranks (rank %u among "
        "them) have step %llu, settings %016llx; %s differ. They must be started from one run file "
        "by one binary",
        (unsigned long long)p->view.step + 1, best_count, p->view.local_ranks, p->view.first_rank + best,
        (unsigned long long)slots[best].step + 1, (unsigned long long)slots[best].fingerprint, others);
}

/* What the ranks' slots say: a mismatch, an error of one of them, or that one was asked to stop. */
static ls_status verdict(ls_data_parallel *p)
{
    const ls_exchange_slot *slots = p->view.exchange->slots;
    const ls_exchange_slot *stopped = NULL;
    for (uint32_t i = 0; i < p->view.local_ranks; i++) {
        if (slots[i].fingerprint != slots[0].fingerprint) {
            return fail_mismatch(p);
        }
    }
    for (uint32_t i = 0; i < p->view.local_ranks; i++) {
        const ls_status status = (ls_status)slots[i].status;
        if (status == LS_STOPPED || status == LS_INTERRUPTED) {
            stopped = stopped ? stopped : &slots[i];
        } else if (status != LS_OK) {
            p->fault = slots[i].report.fault;
            return i == p->view.local
                       ? ls_fail(status, "%.*s", LS_DATA_PARALLEL_TEXT_BYTES, slots[i].report.text)
                       : ls_fail(status, "rank %u: %.*s", p->view.first_rank + i, LS_DATA_PARALLEL_TEXT_BYTES,
                                 slots[i].report.text);
        }
    }
    return stopped ? (ls_status)stopped->status : LS_OK;
}

/* The tree over the losses of all nodes, as over their gradients. */
static void add_losses(const ls_data_parallel *p, double *loss_sum_out, uint64_t *tokens_out)
{
    ls_leaf_sum stack[LS_TREE_SUM_DEPTH_MAX];
    const ls_exchange_slot *slot = p->view.exchange->slots;
    uint32_t depth = 0, next = 0;
    for (uint32_t i = 0; i < p->sum.length; i++) {
        if (p->program[i] == LS_TREE_ADD) {
            depth--;
            stack[depth - 1].loss_sum += stack[depth].loss_sum;
            stack[depth - 1].tokens += stack[depth].tokens;
            continue;
        }
        /* Inputs come in the order of ranks, each with its own in order. */
        if (next == slot->sum_count) {
            slot++;
            next = 0;
        }
        LS_ASSERT(slot->sums[next].leaves.first == p->nodes[p->program[i]].first);
        stack[depth++] = slot->sums[next++];
    }
    *loss_sum_out = stack[0].loss_sum;
    *tokens_out = stack[0].tokens;
}

static void publish_sums(ls_data_parallel *p, const ls_leaf_sum *sums, uint32_t count)
{
    LS_ASSERT(count <= LS_TREE_NODES_MAX);
    p->slot->sum_count = count;
    memcpy(p->slot->sums, sums, count * sizeof *sums);
}

ls_status ls_data_parallel_agree(ls_data_parallel *p, ls_queue *queue, const ls_leaf_sum *sums,
                                 uint32_t count, ls_agreement *agreement_out)
{
    LS_TRY(reduce_rest(p, queue));
    publish_sums(p, sums, count);
    ls_flight_record *record =
        begin_record(p, LS_COMM_STEP, p->slot->fingerprint, (uint64_t)p->block_count, __LINE__);
    const uint64_t waited_ns = p->view.wait_ns;
    uint32_t last = UINT32_MAX;
    const ls_status met = ls_exchange_meet(&p->view, "the agreement", &last);
    ls_flight_end(record, 0, last, p->view.wait_ns - waited_ns, met);
    LS_TRY(met);
    const ls_status status = verdict(p);
    if (status != LS_OK) {
        /* All have come to the same verdict; nobody begins another step before all have read the slots. */
        LS_TRY(ls_exchange_meet(&p->view, "the end of a step that was given up", NULL));
        return status;
    }

    ls_agreement agreement = {0};
    add_losses(p, &agreement.loss_sum, &agreement.tokens);
    for (int64_t i = 0; i < p->block_count; i++) {
        agreement.square_sum += p->block_sums[i];
    }
    *agreement_out = agreement;
    return LS_OK;
}

ls_status ls_data_parallel_report(ls_data_parallel *p, ls_leaf_report *report_inout)
{
    p->slot->report = *report_inout;
    LS_TRY(ls_exchange_meet(&p->view, "the report on values that are not finite", NULL));
    const ls_exchange_slot *slots = p->view.exchange->slots;
    uint32_t i = 0;
    while (i + 1 < p->view.local_ranks && slots[i].report.text[0] == 0) {
        i++;
    }
    *report_inout = slots[i].report;
    return LS_OK;
}

const ls_step_fault *ls_data_parallel_fault(const ls_data_parallel *p)
{
    return &p->fault;
}

void ls_data_parallel_note(ls_data_parallel *p, const ls_rank_note *note)
{
    p->slot->note = *note;
}

const ls_rank_note *ls_data_parallel_note_of(const ls_data_parallel *p, uint32_t rank)
{
    LS_ASSERT(rank >= p->view.first_rank && rank - p->view.first_rank < p->view.local_ranks);
    return &p->view.exchange->slots[rank - p->view.first_rank].note;
}

ls_status ls_data_parallel_tell(ls_data_parallel *p, uint32_t from, void *data, size_t bytes)
{
    LS_ASSERT(from >= p->view.first_rank && from - p->view.first_rank < p->view.local_ranks);
    char *shared = p->view.exchange->slots[from - p->view.first_rank].report.text;
    const size_t most = sizeof p->slot->report.text;
    for (size_t at = 0; at < bytes; at += most) {
        const size_t part = bytes - at < most ? bytes - at : most;
        if (from == p->rank) {
            memcpy(shared, (char *)data + at, part);
        }
        LS_TRY(ls_exchange_meet(&p->view, "what a rank has to tell", NULL));
        memcpy((char *)data + at, shared, part);
        LS_TRY(ls_exchange_meet(&p->view, "what a rank has told", NULL));
    }
    return LS_OK;
}

void ls_data_parallel_begin_update(ls_data_parallel *p)
{
    mark(p->marks.begun, p->view.step + 1);
}

void ls_data_parallel_end_update(ls_data_parallel *p)
{
    mark(p->marks.done, p->view.step + 1);
}

ls_status ls_data_parallel_leave(ls_data_parallel *p, bool updated)
{
    LS_TRY(ls_exchange_meet(&p->view, "the end of the step", NULL));
    if (updated) {
        mark(p->marks.finished, p->view.step + 1);
    }
    return LS_OK;
}

/* ---- life ---- */

static void fill_inputs(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    for (uint32_t local = 0; local < options->local_ranks; local++) {
        const ls_leaf_range leaves =
            ls_leaves_of_rank(options->leaves, options->ranks, options->first_rank + local);
        ls_leaf_range nodes[LS_TREE_NODES_MAX];
        const uint32_t count = ls_tree_handover(options->leaves, leaves, nodes);
        for (uint32_t i = 0; i < count; i++) {
            p->nodes[p->input_count] = nodes[i];
            p->inputs[p->input_count++] = options->gradient(options->context, local, i);
        }
    }
    uint32_t depth = 0;
    const uint32_t length = ls_tree_program(options->leaves, p->nodes, p->input_count, p->program, &depth);
    p->sum =
        (ls_tree_sum){.program = p->program, .length = length, .depth = depth, .input_count = p->input_count};
    p->target = options->gradient(options->context, options->local, 0);
}

static int by_last_step(const void *a, const void *b)
{
    const ready_bucket *x = a, *y = b;
    if (x->last_step != y->last_step) {
        return x->last_step < y->last_step ? -1 : 1;
    }
    return x->bucket < y->bucket ? -1 : 1;
}

static void fill_buckets(ls_data_parallel *p, const ls_plan *plan)
{
    for (uint32_t b = 0; b < p->bucket_count; b++) {
        p->order[b] = (ready_bucket){.bucket = b, .last_step = ls_plan_last_gradient_step(plan, b)};
        const ls_slice slice = ls_slice_of(p->layout, b, p->ranks, p->rank);
        p->slices[b] = slice;
        if (slice.count > 0) {
            p->owned[p->owned_count++] =
                (ls_owned_slice){.offset = slice.offset, .count = slice.count, .bucket = b};
        }
    }
    qsort(p->order, p->bucket_count, sizeof *p->order, by_last_step);
}

static ls_status alloc_tables(ls_data_parallel *p)
{
    p->inputs = calloc(LS_TREE_INPUTS_MAX, sizeof *p->inputs);
    p->nodes = calloc(LS_TREE_INPUTS_MAX, sizeof *p->nodes);
    p->program = calloc(LS_TREE_PROGRAM_MAX, sizeof *p->program);
    p->order = calloc(p->bucket_count, sizeof *p->order);
    p->slices = calloc(p->bucket_count, sizeof *p->slices);
    p->owned = calloc(p->bucket_count, sizeof *p->owned);
    if (!p->inputs || !p->nodes || !p->program || !p->order || !p->slices || !p->owned) {
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
        .spins = ls_wait_spins(waiters, ls_wait_cores()),
        .timeout_s = options->timeout_s > 0.0 ? options->timeout_s : default_timeout_s,
        .abort = options->abort,
        .aborted = options->aborted,
        .context = options->context,
    };
}

ls_status ls_data_parallel_create(const ls_data_parallel_options *options, ls_data_parallel **parallel_out)
{
    LS_ASSERT(options->ranks >= 1 && options->ranks <= options->leaves);
    LS_ASSERT(options->local < options->local_ranks && options->local_ranks == options->ranks);
    LS_ASSERT(options->exchange && (uintptr_t)options->exchange % 64 == 0);
    ls_data_parallel *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "no memory for data parallelism");
    }
    p->layout = options->plan->layout;
    p->bucket_count = p->layout->bucket_count;
    p->ranks = options->ranks;
    p->rank = options->first_rank + options->local;
    p->leaves = ls_leaves_of_rank(options->leaves, p->ranks, p->rank);
    p->marks = options->marks;
    p->view = view_of(options);
    p->slot = &p->view.exchange->slots[options->local];
    p->block_sums = ls_exchange_block_sums(p->view.exchange, options->local_ranks);
    p->block_count = ls_blocks_before(p->layout, p->bucket_count);
    const ls_status status = alloc_tables(p);
    if (status != LS_OK) {
        ls_data_parallel_destroy(p);
        return status;
    }
    fill_inputs(p, options);
    fill_buckets(p, options->plan);
    if (p->ranks > 1) {
        p->flight_slot = ls_flight_join(LS_DATA_PARALLEL_COMM, p->rank, p->ranks, "steps");
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
    free(p->inputs);
    free(p->nodes);
    free(p->program);
    free(p->order);
    free(p->slices);
    free(p->owned);
    free(p);
}
