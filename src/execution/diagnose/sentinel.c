// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/sentinel.h"

#include "base/assert.h"
#include "execution/diagnose/audit.h"
#include "execution/diagnose/guard.h"
#include "execution/diagnose/replicas.h"

#include <stdlib.h>
#include <string.h>

struct ls_sentinel {
    ls_sentinel_options options;
    uint32_t rank;  /* this process: whom to name */
    uint32_t parts; /* of the step */
    ls_audit audit;
    uint64_t filed[LS_CLAIM_COUNT]; /* step + 1 in which this process made the claim */
    ls_guard guard, frozen;
    ls_replicas replicas;
    uint32_t hosts;
    uint64_t step;
    ls_audit_roles roles; /* of this step */
    ls_step_fault fault;
};

/* ---- life ---- */

/* What this process updates it guards. */
static ls_status make_guard(ls_sentinel *sentinel)
{
    const ls_data_parallel *parallel = sentinel->options.parallel;
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
        ls_guard_init(&sentinel->guard, sentinel->options.state, true, pieces, buckets, count);
    ls_arena_release(&arena);
    return status;
}

/* Every host has all that is frozen: its parts take turns. */
static ls_status make_frozen_guard(ls_sentinel *sentinel)
{
    const ls_data_parallel *parallel = sentinel->options.parallel;
    const ls_layout *layout = sentinel->options.state->layout;
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
        ls_guard_init(&sentinel->frozen, sentinel->options.state, false, pieces, buckets, count);
    ls_arena_release(&arena);
    return status;
}

static ls_status make_guards(ls_sentinel *sentinel)
{
    LS_TRY(make_guard(sentinel));
    return make_frozen_guard(sentinel);
}

static void release_guards(ls_sentinel *sentinel)
{
    ls_guard_release(&sentinel->guard);
    ls_guard_release(&sentinel->frozen);
}

ls_status ls_sentinel_assign(ls_sentinel *sentinel)
{
    release_guards(sentinel);
    return sentinel->options.hash_every_steps > 0 ? make_guards(sentinel) : LS_OK;
}

ls_status ls_sentinel_create(const ls_sentinel_options *options, ls_sentinel **sentinel_out)
{
    ls_sentinel *sentinel = calloc(1, sizeof *sentinel);
    if (!sentinel) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the sentinel over a step");
    }
    sentinel->options = *options;
    sentinel->rank = ls_data_parallel_rank(options->parallel);
    sentinel->parts = ls_data_parallel_part_count(options->parallel);
    /* With ZeRO stage 3 hosts hold no copies of the weights that could be compared. */
    sentinel->hosts =
        ls_data_parallel_fetches(options->parallel) ? 1 : ls_data_parallel_place(options->parallel, 0).hosts;
    ls_status status = LS_OK;
    if (options->audit_every_steps > 0) {
        status = ls_audit_init(&sentinel->audit, options->state->layout);
    }
    if (status == LS_OK && options->hash_every_steps > 0) {
        status = make_guards(sentinel);
    }
    if (status == LS_OK && options->hash_every_steps > 0 && sentinel->hosts > 1) {
        status = ls_replicas_init(&sentinel->replicas, options->parallel, options->state->layout);
    }
    if (status != LS_OK) {
        ls_sentinel_destroy(sentinel);
        return status;
    }
    *sentinel_out = sentinel;
    return LS_OK;
}

void ls_sentinel_destroy(ls_sentinel *sentinel)
{
    if (sentinel) {
        ls_audit_release(&sentinel->audit);
        release_guards(sentinel);
        ls_replicas_release(&sentinel->replicas);
        free(sentinel);
    }
}

const ls_step_fault *ls_sentinel_fault(const ls_sentinel *sentinel)
{
    return &sentinel->fault;
}

uint32_t ls_sentinel_audited(const ls_sentinel *sentinel)
{
    return sentinel->roles.due ? sentinel->roles.leaf : LS_NO_LEAF;
}

/* ---- the audited leaf ---- */

static void flip_state(const ls_sentinel *sentinel, bool after)
{
    const ls_state *s = sentinel->options.state;
    ls_flip *flip = sentinel->options.flip;
    const int64_t count = s->layout->float_count, parameters = s->layout->parameter_floats;
    if (!flip || flip->after != after) {
        return;
    }
    ls_flip_apply(flip, LS_FLIP_PARAMETER, sentinel->step, sentinel->rank, LS_NO_LEAF, s->parameters,
                  parameters);
    ls_flip_apply(flip, LS_FLIP_M, sentinel->step, sentinel->rank, LS_NO_LEAF, s->m, count);
    ls_flip_apply(flip, LS_FLIP_V, sentinel->step, sentinel->rank, LS_NO_LEAF, s->v, count);
}

static void flip_gradient(const ls_sentinel *sentinel, uint32_t leaf, float *gradient)
{
    ls_flip_apply(sentinel->options.flip, LS_FLIP_GRADIENT, sentinel->step, sentinel->rank, leaf, gradient,
                  sentinel->options.state->layout->float_count);
}

/* The number here of part `part`, or LS_NO_PART when another process runs it. */
enum { LS_NO_PART = -1 };
static int32_t find_part(const ls_sentinel *sentinel, uint32_t part)
{
    for (uint32_t i = 0; i < ls_data_parallel_held(sentinel->options.parallel); i++) {
        if (ls_data_parallel_part(sentinel->options.parallel, i)->number == part) {
            return (int32_t)i;
        }
    }
    return LS_NO_PART;
}

static void file_claim(ls_sentinel *sentinel, int claim, const float *gradient, double loss_sum,
                       uint64_t tokens)
{
    ls_audit_claim(&sentinel->audit, claim, sentinel->options.state->queue, sentinel->rank, gradient,
                   loss_sum, tokens);
    sentinel->filed[claim] = sentinel->step + 1;
}

/* Computes the audited leaf once more, into buffer 0 of a part, and files it as `claim`. */
static ls_status compute_claim(ls_sentinel *sentinel, uint32_t index, int claim)
{
    const ls_layout *layout = sentinel->options.state->layout;
    float *gradient = ls_data_parallel_part(sentinel->options.parallel, index)->gradients[0];
    double loss_sum = 0.0;
    uint64_t tokens = 0;
    ls_audit_clear_padding(layout, gradient);
    LS_TRY(sentinel->options.compute(sentinel->options.context, index, sentinel->step, sentinel->roles.leaf,
                                     &loss_sum, &tokens));
    flip_gradient(sentinel, sentinel->roles.leaf, gradient);
    file_claim(sentinel, claim, gradient, loss_sum, tokens);
    ls_audit_clear_padding(layout, gradient);
    return LS_OK;
}

ls_status ls_sentinel_begin(ls_sentinel *sentinel, uint64_t step)
{
    const ls_sentinel_options *o = &sentinel->options;
    sentinel->step = step;
    sentinel->fault = (ls_step_fault){0};
    sentinel->roles = ls_audit_choose(o->seed, step, o->audit_every_steps, o->leaves, sentinel->parts);
    flip_state(sentinel, false);
    return sentinel->roles.due ? ls_data_parallel_hold(o->parallel) : LS_OK;
}

ls_status ls_sentinel_begin_part(ls_sentinel *sentinel, uint32_t index)
{
    ls_data_parallel *parallel = sentinel->options.parallel;
    const ls_part *part = ls_data_parallel_part(parallel, index);
    if (!sentinel->roles.due || sentinel->roles.checker != part->number ||
        ls_data_parallel_is_noted(parallel, index, LS_NOTE_CHECKER)) {
        return LS_OK;
    }
    LS_ASSERT(atomic_load(&part->stack->depth) == 0); /* it comes before the part's own leaves */
    LS_TRY(compute_claim(sentinel, index, LS_CLAIM_CHECKER));
    ls_data_parallel_note(parallel, index, LS_NOTE_CHECKER, sentinel->audit.claims[LS_CLAIM_CHECKER].whole);
    return LS_OK;
}

bool ls_sentinel_wants(const ls_sentinel *sentinel, uint32_t leaf)
{
    return sentinel->roles.due && sentinel->roles.leaf == leaf;
}

void ls_sentinel_leaf(ls_sentinel *sentinel, uint32_t index, uint32_t leaf, float *gradient, double loss_sum,
                      uint64_t tokens)
{
    flip_gradient(sentinel, leaf, gradient);
    if (ls_sentinel_wants(sentinel, leaf)) {
        file_claim(sentinel, LS_CLAIM_OWNER, gradient, loss_sum, tokens);
        ls_data_parallel_note(sentinel->options.parallel, index, LS_NOTE_OWNER,
                              sentinel->audit.claims[LS_CLAIM_OWNER].whole);
    }
}

/* ---- around the agreement ---- */

ls_status ls_sentinel_check_state(ls_sentinel *sentinel)
{
    uint32_t bucket = 0;
    ls_status status = ls_guard_check(&sentinel->guard, sentinel->rank, &bucket);
    if (status == LS_OK && sentinel->guard.taken) { /* no oftener */
        status = ls_guard_check(&sentinel->frozen, sentinel->rank, &bucket);
    }
    if (status != LS_OK) {
        sentinel->fault = (ls_step_fault){
            .kind = LS_STEP_FAULT_STATE, .leaf = LS_NO_LEAF, .bucket = bucket, .rank = sentinel->rank};
    }
    return status;
}

/* Copies of the weights are compared in the steps behind those after which the guard hashes, and in the first of all. */
static bool compares_weights(const ls_sentinel *sentinel)
{
    const uint64_t every_steps = sentinel->options.hash_every_steps;
    return sentinel->hosts > 1 && every_steps > 0 && sentinel->step % every_steps == 0;
}

ls_status ls_sentinel_before_agreement(ls_sentinel *sentinel)
{
    LS_TRY(ls_sentinel_check_state(sentinel));
    if (compares_weights(sentinel)) {
        const ls_state *state = sentinel->options.state;
        ls_data_parallel_note(sentinel->options.parallel, 0, LS_NOTE_WEIGHTS,
                              ls_replicas_hash(&sentinel->replicas, state->queue, state->parameters));
    }
    return LS_OK;
}

/* A part was taken over behind the claim: what is left of it is its hash. */
static void file_note(ls_sentinel *sentinel, int claim, uint32_t part)
{
    const ls_rank_note *note = ls_data_parallel_note_of(sentinel->options.parallel, part);
    ls_leaf_claim *c = &sentinel->audit.claims[claim];
    *c = (ls_leaf_claim){.rank = sentinel->rank,
                         .whole = claim == LS_CLAIM_OWNER ? note->owner : note->checker,
                         .buckets = c->buckets};
    memset(c->buckets, 0, sentinel->options.state->layout->bucket_count * sizeof *c->buckets);
}

/* All ranks get claim `claim` as the holder of part `from` has it. */
static ls_status share_claim(ls_sentinel *sentinel, int claim, uint32_t from)
{
    ls_leaf_claim *c = &sentinel->audit.claims[claim];
    ls_hash128 *buckets = c->buckets;
    if (claim != LS_CLAIM_JUDGE && find_part(sentinel, from) != LS_NO_PART &&
        sentinel->filed[claim] != sentinel->step + 1) {
        file_note(sentinel, claim, from);
    }
    LS_TRY(ls_data_parallel_tell(sentinel->options.parallel, from, c, sizeof *c));
    c->buckets = buckets; /* each has its own */
    return ls_data_parallel_tell(sentinel->options.parallel, from, buckets,
                                 sentinel->options.state->layout->bucket_count * sizeof *buckets);
}

/* The claim of a judge, for all; a judge that can't compute says so. */
static ls_status hear_judge(ls_sentinel *sentinel, uint32_t judge)
{
    const int32_t index = find_part(sentinel, judge);
    if (index != LS_NO_PART && compute_claim(sentinel, (uint32_t)index, LS_CLAIM_JUDGE) != LS_OK) {
        ls_audit_no_claim(&sentinel->audit, LS_CLAIM_JUDGE);
    }
    return share_claim(sentinel, LS_CLAIM_JUDGE, judge);
}

/* All ranks are here, each with the same verdict at the end. */
static ls_status judge_leaf(ls_sentinel *sentinel)
{
    LS_TRY(ls_data_parallel_hold(sentinel->options.parallel));
    const ls_audit_roles *roles = &sentinel->roles;
    LS_TRY(share_claim(sentinel, LS_CLAIM_OWNER, roles->owner));
    LS_TRY(share_claim(sentinel, LS_CLAIM_CHECKER, roles->checker));
    LS_TRY(hear_judge(sentinel, roles->judge));
    if (ls_audit_verdict(&sentinel->audit) == LS_VERDICT_OPEN) {
        /* With two ranks the owner judged itself and stays with its bits: now the checker. */
        LS_TRY(hear_judge(sentinel, roles->checker));
    }
    sentinel->fault = ls_audit_fault(&sentinel->audit, roles->leaf);
    return ls_audit_fail(&sentinel->audit, sentinel->step, roles->leaf);
}

ls_status ls_sentinel_after_agreement(ls_sentinel *sentinel)
{
    if (ls_data_parallel_weights_differ(sentinel->options.parallel)) {
        return ls_replicas_fail(&sentinel->replicas, sentinel->step, &sentinel->fault);
    }
    if (!sentinel->roles.due) {
        return LS_OK;
    }
    const ls_hash128 owner =
        ls_data_parallel_note_of(sentinel->options.parallel, sentinel->roles.owner)->owner;
    const ls_hash128 checker =
        ls_data_parallel_note_of(sentinel->options.parallel, sentinel->roles.checker)->checker;
    return ls_hash128_equal(owner, checker) ? LS_OK : judge_leaf(sentinel);
}

/* ---- around the update ---- */

void ls_sentinel_before_update(ls_sentinel *sentinel)
{
    ls_guard_forget(&sentinel->guard);
}

void ls_sentinel_after_update(ls_sentinel *sentinel)
{
    const uint64_t finished = sentinel->step + 1, every_steps = sentinel->options.hash_every_steps;
    if (every_steps > 0 && finished % every_steps == 0) {
        ls_guard_take(&sentinel->guard, finished);
        if (!sentinel->frozen.taken) {
            ls_guard_take(&sentinel->frozen, finished);
        }
        sentinel->frozen.finished = finished;
    }
    flip_state(sentinel, true);
}

bool ls_sentinel_state_sum(const ls_sentinel *sentinel, ls_hash128 *sum_out)
{
    if (!sentinel->guard.taken) {
        return false;
    }
    *sum_out = ls_guard_sum(&sentinel->guard);
    return true;
}
