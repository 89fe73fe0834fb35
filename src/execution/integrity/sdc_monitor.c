// SPDX-License-Identifier: Apache-2.0
#include "execution/integrity/sdc_monitor.h"

#include "base/assert.h"
#include "execution/integrity/audit.h"
#include "execution/integrity/guard.h"
#include "execution/integrity/replicas.h"

#include <stdlib.h>
#include <string.h>

struct ls_sdc_monitor {
    ls_sdc_monitor_options options;
    uint32_t rank;  /* of this process, for error texts */
    uint32_t parts; /* number of parts of the step */
    ls_audit audit;
    uint64_t filed[LS_CLAIM_COUNT]; /* step + 1 of the step in which this process made the claim */
    ls_guard guard, frozen;
    ls_replicas replicas;
    uint32_t hosts;
    uint64_t step;
    ls_audit_roles roles; /* of this step */
    ls_step_fault fault;
};

/* ---- life ---- */

/* A process guards what it updates. */
static ls_status make_guard(ls_sdc_monitor *monitor)
{
    const ls_data_parallel *parallel = monitor->options.parallel;
    uint32_t count = 0, most = 0;
    for (uint32_t i = 0; i < ls_data_parallel_held(parallel); i++) {
        most += ls_data_parallel_part(parallel, i)->slice_count;
    }
    ls_arena arena = {0};
    ls_flat_piece *pieces = ls_arena_new(&arena, ls_flat_piece, (size_t)most + 1);
    uint32_t *buckets = ls_arena_new(&arena, uint32_t, (size_t)most + 1);
    for (uint32_t i = 0; i < ls_data_parallel_held(parallel); i++) {
        const ls_part *part = ls_data_parallel_part(parallel, i);
        for (uint32_t k = 0; k < part->slice_count; k++) {
            pieces[count] = (ls_flat_piece){part->slices[k].offset, part->slices[k].count};
            buckets[count++] = part->slices[k].bucket;
        }
    }
    const ls_status status =
        ls_guard_init(&monitor->guard, monitor->options.state, true, pieces, buckets, count);
    ls_arena_release(&arena);
    return status;
}

/* Every host has all frozen parameters: its parts guard their buckets in turn. */
static ls_status make_frozen_guard(ls_sdc_monitor *monitor)
{
    const ls_data_parallel *parallel = monitor->options.parallel;
    const ls_layout *layout = monitor->options.state->layout;
    ls_arena arena = {0};
    ls_flat_piece *pieces = ls_arena_new(&arena, ls_flat_piece, (size_t)layout->frozen_buckets + 1);
    uint32_t *buckets = ls_arena_new(&arena, uint32_t, (size_t)layout->frozen_buckets + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < ls_data_parallel_held(parallel); i++) {
        const ls_rank_place place =
            ls_data_parallel_place(parallel, ls_data_parallel_part(parallel, i)->number);
        for (uint32_t k = 0; k < layout->frozen_buckets; k++) {
            if (k % place.local_ranks == place.local) {
                const ls_bucket *bucket = &layout->buckets[layout->bucket_count + k];
                pieces[count] = (ls_flat_piece){bucket->offset, bucket->count};
                buckets[count++] = layout->bucket_count + k;
            }
        }
    }
    const ls_status status =
        ls_guard_init(&monitor->frozen, monitor->options.state, false, pieces, buckets, count);
    ls_arena_release(&arena);
    return status;
}

static ls_status make_guards(ls_sdc_monitor *monitor)
{
    LS_TRY(make_guard(monitor));
    return make_frozen_guard(monitor);
}

static void release_guards(ls_sdc_monitor *monitor)
{
    ls_guard_release(&monitor->guard);
    ls_guard_release(&monitor->frozen);
}

ls_status ls_sdc_monitor_assign(ls_sdc_monitor *monitor)
{
    release_guards(monitor);
    return monitor->options.hash_every_steps > 0 ? make_guards(monitor) : LS_OK;
}

ls_status ls_sdc_monitor_create(const ls_sdc_monitor_options *options, ls_sdc_monitor **monitor_out)
{
    ls_sdc_monitor *monitor = calloc(1, sizeof *monitor);
    if (!monitor) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to check the steps for silent data corruption");
    }
    monitor->options = *options;
    monitor->rank = ls_data_parallel_rank(options->parallel);
    monitor->parts = ls_data_parallel_part_count(options->parallel);
    /* With ZeRO stage 3, hosts hold no copies of the weights to compare. */
    monitor->hosts =
        ls_data_parallel_fetches(options->parallel) ? 1 : ls_data_parallel_place(options->parallel, 0).hosts;
    ls_status status = LS_OK;
    if (options->audit_every_steps > 0) {
        status = ls_audit_init(&monitor->audit, options->state->queue, options->state->layout);
    }
    if (status == LS_OK && options->hash_every_steps > 0) {
        status = make_guards(monitor);
    }
    if (status == LS_OK && options->hash_every_steps > 0 && monitor->hosts > 1) {
        status = ls_replicas_init(&monitor->replicas, options->parallel, options->state->layout);
    }
    if (status != LS_OK) {
        ls_sdc_monitor_destroy(monitor);
        return status;
    }
    *monitor_out = monitor;
    return LS_OK;
}

void ls_sdc_monitor_destroy(ls_sdc_monitor *monitor)
{
    if (monitor) {
        ls_audit_release(&monitor->audit);
        release_guards(monitor);
        ls_replicas_release(&monitor->replicas);
        free(monitor);
    }
}

const ls_step_fault *ls_sdc_monitor_fault(const ls_sdc_monitor *monitor)
{
    return &monitor->fault;
}

uint32_t ls_sdc_monitor_audited(const ls_sdc_monitor *monitor)
{
    return monitor->roles.due ? monitor->roles.leaf : LS_NO_LEAF;
}

/* ---- the audited leaf ---- */

static void flip_state(const ls_sdc_monitor *monitor, bool after)
{
    const ls_state *s = monitor->options.state;
    ls_bit_flip *flip = monitor->options.flip;
    const int64_t count = s->layout->float_count, parameters = s->layout->parameter_floats;
    if (!flip || flip->after != after) {
        return;
    }
    ls_bit_flip_site site = {.step = monitor->step, .rank = monitor->rank, .leaf = LS_NO_LEAF};
    site.kind = LS_BIT_FLIP_PARAMETER;
    ls_bit_flip_apply(flip, &site, s->parameters, parameters);
    site.kind = LS_BIT_FLIP_M;
    ls_bit_flip_apply(flip, &site, s->m, count);
    site.kind = LS_BIT_FLIP_V;
    ls_bit_flip_apply(flip, &site, s->v, count);
}

static void flip_gradient(const ls_sdc_monitor *monitor, uint32_t leaf, float *gradient)
{
    const ls_bit_flip_site site = {
        .kind = LS_BIT_FLIP_GRADIENT, .step = monitor->step, .rank = monitor->rank, .leaf = leaf};
    ls_bit_flip_apply(monitor->options.flip, &site, gradient, monitor->options.state->layout->float_count);
}

/* The index of part `part` in this process; LS_NO_PART if another process runs it. */
enum { LS_NO_PART = -1 };
static int32_t find_part(const ls_sdc_monitor *monitor, uint32_t part)
{
    for (uint32_t i = 0; i < ls_data_parallel_held(monitor->options.parallel); i++) {
        if (ls_data_parallel_part(monitor->options.parallel, i)->number == part) {
            return (int32_t)i;
        }
    }
    return LS_NO_PART;
}

static void file_claim(ls_sdc_monitor *monitor, int claim, const float *gradient, double loss_sum,
                       uint64_t tokens)
{
    ls_audit_claim(&monitor->audit, claim, monitor->rank, gradient, loss_sum, tokens);
    monitor->filed[claim] = monitor->step + 1;
}

/* Computes the audited leaf again into buffer 0 of a part, and records the result as `claim`. */
static ls_status compute_claim(ls_sdc_monitor *monitor, uint32_t index, int claim)
{
    const ls_layout *layout = monitor->options.state->layout;
    float *gradient = ls_data_parallel_part(monitor->options.parallel, index)->gradients[0];
    double loss_sum = 0.0;
    uint64_t tokens = 0;
    ls_queue *queue = monitor->options.state->queue;
    LS_TRY(ls_audit_clear_padding(queue, layout, gradient));
    LS_TRY(monitor->options.compute(monitor->options.context, index, monitor->step, monitor->roles.leaf,
                                    &loss_sum, &tokens));
    flip_gradient(monitor, monitor->roles.leaf, gradient);
    file_claim(monitor, claim, gradient, loss_sum, tokens);
    return ls_audit_clear_padding(queue, layout, gradient);
}

ls_status ls_sdc_monitor_begin(ls_sdc_monitor *monitor, uint64_t step)
{
    const ls_sdc_monitor_options *o = &monitor->options;
    monitor->step = step;
    monitor->fault = (ls_step_fault){0};
    monitor->roles = ls_audit_choose(o->seed, step, o->audit_every_steps, o->leaves, monitor->parts);
    flip_state(monitor, false);
    return monitor->roles.due ? ls_data_parallel_hold(o->parallel) : LS_OK;
}

ls_status ls_sdc_monitor_begin_part(ls_sdc_monitor *monitor, uint32_t index)
{
    ls_data_parallel *parallel = monitor->options.parallel;
    const ls_part *part = ls_data_parallel_part(parallel, index);
    if (!monitor->roles.due || monitor->roles.checker != part->number ||
        ls_data_parallel_is_noted(parallel, index, LS_NOTE_CHECKER)) {
        return LS_OK;
    }
    /* buffer 0 is free only before the part's own leaves */
    LS_ASSERT(atomic_load(&part->stack->depth) == 0);
    LS_TRY(compute_claim(monitor, index, LS_CLAIM_CHECKER));
    ls_data_parallel_note(parallel, index, LS_NOTE_CHECKER, monitor->audit.claims[LS_CLAIM_CHECKER].whole);
    return LS_OK;
}

bool ls_sdc_monitor_wants(const ls_sdc_monitor *monitor, uint32_t leaf)
{
    return monitor->roles.due && monitor->roles.leaf == leaf;
}

void ls_sdc_monitor_leaf(ls_sdc_monitor *monitor, uint32_t index, uint32_t leaf, float *gradient,
                         double loss_sum, uint64_t tokens)
{
    flip_gradient(monitor, leaf, gradient);
    if (ls_sdc_monitor_wants(monitor, leaf)) {
        file_claim(monitor, LS_CLAIM_OWNER, gradient, loss_sum, tokens);
        ls_data_parallel_note(monitor->options.parallel, index, LS_NOTE_OWNER,
                              monitor->audit.claims[LS_CLAIM_OWNER].whole);
    }
}

/* ---- around the agreement ---- */

ls_status ls_sdc_monitor_check_state(ls_sdc_monitor *monitor)
{
    uint32_t bucket = 0;
    ls_status status = ls_guard_check(&monitor->guard, monitor->rank, &bucket);
    /* only in steps after which hashes were taken */
    if (status == LS_OK && monitor->guard.taken) {
        status = ls_guard_check(&monitor->frozen, monitor->rank, &bucket);
    }
    if (status == LS_ERR_MISMATCH) {
        monitor->fault = (ls_step_fault){
            .kind = LS_STEP_FAULT_STATE, .leaf = LS_NO_LEAF, .bucket = bucket, .rank = monitor->rank};
    }
    return status;
}

/* The hosts' weights are compared in each step that follows a guarded update, and in the first
 * step. */
static bool compares_weights(const ls_sdc_monitor *monitor)
{
    const uint64_t every_steps = monitor->options.hash_every_steps;
    return monitor->hosts > 1 && every_steps > 0 && monitor->step % every_steps == 0;
}

ls_status ls_sdc_monitor_before_agreement(ls_sdc_monitor *monitor)
{
    LS_TRY(ls_sdc_monitor_check_state(monitor));
    if (compares_weights(monitor)) {
        const ls_state *state = monitor->options.state;
        const ls_master parameters = ls_state_master(state);
        ls_data_parallel_note(monitor->options.parallel, 0, LS_NOTE_WEIGHTS,
                              ls_replicas_hash(&monitor->replicas, state->queue, &parameters));
    }
    return LS_OK;
}

/* The part was taken over after its claim was made: only the hash of the claim is left. */
static void file_note(ls_sdc_monitor *monitor, int claim, uint32_t part)
{
    const ls_rank_note *note = ls_data_parallel_note_of(monitor->options.parallel, part);
    ls_leaf_claim *c = &monitor->audit.claims[claim];
    *c = (ls_leaf_claim){.rank = monitor->rank,
                         .whole = claim == LS_CLAIM_OWNER ? note->owner : note->checker,
                         .buckets = c->buckets};
    memset(c->buckets, 0, monitor->options.state->layout->bucket_count * sizeof *c->buckets);
}

/* Sends claim `claim` of the holder of part `from` to all ranks. */
static ls_status share_claim(ls_sdc_monitor *monitor, int claim, uint32_t from)
{
    ls_leaf_claim *c = &monitor->audit.claims[claim];
    ls_hash128 *buckets = c->buckets;
    if (claim != LS_CLAIM_JUDGE && find_part(monitor, from) != LS_NO_PART &&
        monitor->filed[claim] != monitor->step + 1) {
        file_note(monitor, claim, from);
    }
    LS_TRY(ls_data_parallel_tell(monitor->options.parallel, from, c, sizeof *c));
    c->buckets = buckets; /* the pointer is private to each process */
    return ls_data_parallel_tell(monitor->options.parallel, from, buckets,
                                 monitor->options.state->layout->bucket_count * sizeof *buckets);
}

/* Makes the claim of a judge known to all ranks. A judge that cannot compute the leaf reports
 * that. */
static ls_status hear_judge(ls_sdc_monitor *monitor, uint32_t judge)
{
    const int32_t index = find_part(monitor, judge);
    if (index != LS_NO_PART && compute_claim(monitor, (uint32_t)index, LS_CLAIM_JUDGE) != LS_OK) {
        ls_audit_no_claim(&monitor->audit, LS_CLAIM_JUDGE);
    }
    return share_claim(monitor, LS_CLAIM_JUDGE, judge);
}

/* Collective: at the end all ranks have the same verdict. */
static ls_status judge_leaf(ls_sdc_monitor *monitor)
{
    LS_TRY(ls_data_parallel_hold(monitor->options.parallel));
    const ls_audit_roles *roles = &monitor->roles;
    LS_TRY(share_claim(monitor, LS_CLAIM_OWNER, roles->owner));
    LS_TRY(share_claim(monitor, LS_CLAIM_CHECKER, roles->checker));
    LS_TRY(hear_judge(monitor, roles->judge));
    if (ls_audit_verdict(&monitor->audit) == LS_VERDICT_OPEN) {
        /* Two ranks: the owner got the same bits again, so now the checker computes the leaf
         * again. */
        LS_TRY(hear_judge(monitor, roles->checker));
    }
    monitor->fault = ls_audit_fault(&monitor->audit, roles->leaf);
    return ls_audit_fail(&monitor->audit, monitor->step, roles->leaf);
}

ls_status ls_sdc_monitor_after_agreement(ls_sdc_monitor *monitor)
{
    if (ls_data_parallel_weights_differ(monitor->options.parallel)) {
        return ls_replicas_fail(&monitor->replicas, monitor->step, &monitor->fault);
    }
    if (!monitor->roles.due) {
        return LS_OK;
    }
    const ls_hash128 owner = ls_data_parallel_note_of(monitor->options.parallel, monitor->roles.owner)->owner;
    const ls_hash128 checker =
        ls_data_parallel_note_of(monitor->options.parallel, monitor->roles.checker)->checker;
    return ls_hash128_equal(owner, checker) ? LS_OK : judge_leaf(monitor);
}

/* ---- around the update ---- */

void ls_sdc_monitor_before_update(ls_sdc_monitor *monitor)
{
    ls_guard_forget(&monitor->guard);
}

void ls_sdc_monitor_after_update(ls_sdc_monitor *monitor)
{
    const uint64_t finished = monitor->step + 1, every_steps = monitor->options.hash_every_steps;
    if (every_steps > 0 && finished % every_steps == 0) {
        ls_guard_take(&monitor->guard, finished);
        if (!monitor->frozen.taken) {
            ls_guard_take(&monitor->frozen, finished);
        }
        monitor->frozen.finished = finished;
    }
    flip_state(monitor, true);
}

bool ls_sdc_monitor_state_sum(const ls_sdc_monitor *monitor, ls_hash128 *sum_out)
{
    if (!monitor->guard.taken) {
        return false;
    }
    *sum_out = ls_guard_sum(&monitor->guard);
    return true;
}
