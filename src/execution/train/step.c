// SPDX-License-Identifier: Apache-2.0
#include "execution/train/step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "comm/flight/flight.h"
#include "execution/train/step_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- turns ---- */

float *ls_stepper_flat(const ls_stepper *stepper, uint32_t flat)
{
    const ls_state *state = stepper->state;
    float *const flats[3] = {state->parameters, state->m, state->v};
    return state->workers && !stepper->turn.is_outer ? ls_state_worker(state, stepper->turn.worker, flat)
                                                     : flats[flat];
}

const void *ls_stepper_weights(const ls_stepper *stepper)
{
    const ls_local_turn *turn = &stepper->turn;
    const bool takes_all =
        turn->begins && !turn->mixes && (turn->step == 0 || stepper->settings.local.fragments == 1);
    return stepper->state->workers && !takes_all ? ls_stepper_flat(stepper, 0)
                                                 : ls_state_weights(stepper->state);
}

/* ---- update ---- */

/* Fault injection: dies in the middle of a block. */
static void die_in_block(void *context)
{
    ls_stepper *stepper = context;
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_BLOCK, stepper->step);
}

/* With workers: whether the turn updates the slice at `offset`, and what of its round a worker
 * begins. */
static bool enter_fragment(const ls_stepper *stepper, int64_t offset, ls_update_options *options)
{
    const ls_local *local = &stepper->settings.local;
    const ls_local_turn *turn = &stepper->turn;
    const uint32_t fragment = ls_local_fragment_at(local, stepper->state->layout, offset);
    if (turn->is_outer) {
        return fragment == turn->fragment;
    }
    const bool begins = turn->begins && (fragment == turn->fragment || turn->step == 0);
    options->from = begins ? stepper->state->parameters : NULL;
    options->resets = begins && local->resets;
    options->adamw.step = ls_local_adamw_step(local, turn, fragment);
    return true;
}

static ls_status update_part(ls_stepper *stepper, uint32_t index, ls_update_options *options)
{
    const ls_part *part = ls_data_parallel_part(stepper->parallel, index);
    options->record = part->undo;
    for (uint32_t i = 0; i < part->slice_count; i++) {
        ls_flight_activity(LS_ACTIVITY_UPDATE, part->slices[i].bucket);
        options->change = ls_data_parallel_change(stepper->parallel, index, i);
        if (!stepper->state->workers || enter_fragment(stepper, part->slices[i].offset, options)) {
            LS_TRY(ls_update_run(stepper->updates[index], i, options));
        }
        ls_data_parallel_updated(stepper->parallel, index, stepper->state->parameters, i);
    }
    return LS_OK;
}

/* Updates this process' share of parameters and moments. */
static ls_status update_parameters(ls_stepper *stepper, uint64_t step, double lr, float gradient_scale)
{
    const ls_state *state = stepper->state;
    const ls_step_settings *s = &stepper->settings;
    const ls_local_turn *turn = &stepper->turn;
    ls_update_options options = {
        .queue = state->queue,
        .target = step + 1,
        .adamw = {.lr = (float)lr,
                  .beta1 = s->beta1,
                  .beta2 = s->beta2,
                  .eps = s->eps,
                  .weight_decay = s->weight_decay,
                  .gradient_scale = gradient_scale,
                  .step = turn->step + 1,
                  .is_update = ls_compression_normalises(s->compression.kind)},
        .parameters = ls_state_master(state),
        .flats = {ls_stepper_flat(stepper, 0), ls_stepper_flat(stepper, 1), ls_stepper_flat(stepper, 2)},
        .shift = ls_stepper_flat(stepper, 0) - state->parameters,
        .mixes = turn->mixes,
        .outer = turn->is_outer ? &s->local : NULL,
        .applies = turn->applies,
        .gradients = ls_data_parallel_sums(stepper->parallel),
        .snapshot = {stepper->snapshot[0], stepper->snapshot[1], stepper->snapshot[2]},
    };
    if (s->fault_injection && s->fault_injection->phase == LS_PHASE_BLOCK) {
        options.halfway = die_in_block;
        options.context = stepper;
    }
    LS_TRY(ls_data_parallel_begin_update(stepper->parallel));
    ls_fault_injection_at(s->fault_injection, LS_PHASE_UPDATE, step);
    for (uint32_t i = 0; i < stepper->update_count; i++) {
        if (!ls_data_parallel_is_ahead(stepper->parallel, i)) {
            LS_TRY(update_part(stepper, i, &options));
        }
    }
    return ls_data_parallel_end_update(stepper->parallel, state->parameters);
}

/* ---- the step ---- */

/* A hash of everything that must be equal on ranks that are in the same step. */
static uint64_t fingerprint_of(const ls_stepper *stepper, uint64_t step, double lr)
{
    const ls_step_settings *s = &stepper->settings;
    const uint64_t counts[] = {step,
                               s->local.steps,
                               s->local.workers,
                               s->local.form.kind,
                               s->local.delay,
                               s->local.fragments,
                               s->leaves,
                               s->global_batch,
                               s->micro_batch,
                               (uint64_t)stepper->state->layout->float_count,
                               s->seed,
                               s->audit_every_steps,
                               s->pipeline ? s->pipeline->stages : 1,
                               s->pipeline ? s->pipeline->chunks : 1,
                               s->pipeline ? (uint64_t)s->pipeline->kind : 0};
    const double numbers[] = {lr, s->clip_norm, s->beta1, s->beta2, s->eps, s->weight_decay};
    return ls_xxh3(numbers, sizeof numbers, ls_xxh3(counts, sizeof counts, 0));
}

static ls_status compute_part(ls_stepper *stepper, uint64_t step)
{
    LS_TRY(ls_sdc_monitor_begin_part(stepper->sdc_monitor, stepper->index));
    if (ls_data_parallel_holds(stepper->parallel)) {
        LS_TRY(ls_data_parallel_hold(stepper->parallel));
    }
    stepper->fetches = ls_data_parallel_fetches(stepper->parallel);
    const ls_status status = ls_stepper_run_leaves(stepper, step);
    stepper->fetches = false;
    return status;
}

/* Computes the leaves that are left of this process' parts. */
static ls_status compute_parts(ls_stepper *stepper, uint64_t step)
{
    LS_TRY(ls_sdc_monitor_begin(stepper->sdc_monitor, step));
    bool computes = false;
    for (stepper->index = 0; stepper->index < ls_data_parallel_held(stepper->parallel); stepper->index++) {
        if (ls_data_parallel_computes(stepper->parallel, stepper->index)) {
            computes = true;
            LS_TRY(compute_part(stepper, step));
        }
    }
    return computes ? ls_sdc_monitor_before_agreement(stepper->sdc_monitor) : LS_OK;
}

/* Everything up to the agreement. An error of a part does not end the step here: the other ranks
 * wait in the agreement, so the parts give up and still take part in it. All ranks then leave the
 * step with the same error. Only a fence ends the step at once, because it ends the others' waits
 * too. */
static ls_status compute(ls_stepper *stepper, uint64_t step, ls_agreement *agreement_out)
{
    const ls_status status = compute_parts(stepper, step);
    if (status == LS_FENCED) {
        return status;
    }
    for (uint32_t i = 0; i < ls_data_parallel_held(stepper->parallel) && status != LS_OK; i++) {
        if (ls_data_parallel_computes(stepper->parallel, i)) {
            ls_data_parallel_give_up(stepper->parallel, i, status,
                                     ls_sdc_monitor_fault(stepper->sdc_monitor));
        }
    }
    const ls_status agreed = ls_data_parallel_agree(stepper->parallel, stepper->state->queue, agreement_out);
    ls_stepper_lap(stepper, &stepper->result.reduce_s);
    if (agreed != LS_OK && agreed != LS_FENCED) {
        stepper->result.fault = *ls_data_parallel_fault(stepper->parallel);
    }
    return agreed;
}

/* After the agreement: whether the sums may be used for an update. The same result on all ranks, so
 * either all of them update or none. */
static ls_status check_sums(ls_stepper *stepper, uint64_t step, uint64_t tokens, double loss, double norm)
{
    const ls_status status = ls_sdc_monitor_after_agreement(stepper->sdc_monitor);
    if (status != LS_OK) {
        stepper->result.fault = *ls_sdc_monitor_fault(stepper->sdc_monitor);
        return status;
    }
    if (tokens == 0) {
        return ls_fail(LS_ERR_DATA,
                       "step %llu: none of its %u sequences has a token with a loss, so there is nothing to "
                       "learn from: raise train.global_batch, or give records with longer answers",
                       (unsigned long long)stepper->turn.step + 1, stepper->settings.global_batch);
    }
    if (stepper->turn.is_outer && !isfinite(norm)) {
        return ls_stepper_explain_outer(stepper);
    }
    return isfinite(loss) && isfinite(norm) ? LS_OK : ls_stepper_explain_nonfinite(stepper, step, loss, norm);
}

/* What sums are divided by: a mean over the tokens; of G groups that were normalised alone, and
 * whose noise adds up to sqrt(G), a number of the size of one. */
static double divisor_of(const ls_step_settings *s, uint64_t tokens)
{
    return ls_compression_normalises(s->compression.kind) ? sqrt((double)s->leaves / s->group)
                                                          : (double)tokens;
}

/* From `begun` to `done` (update_parameters) the state is in between two steps; every error is
 * found before that, which is why a failed step leaves the state as it was. */
static ls_status run_step(ls_stepper *stepper, uint64_t step, double lr)
{
    ls_agreement sums;
    LS_TRY(compute(stepper, step, &sums));
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_AGREED, step);
    const double loss = sums.loss_sum / (double)sums.tokens;
    const double divisor = divisor_of(&stepper->settings, sums.tokens);
    const double norm = sqrt(sums.square_sum) / divisor;
    const ls_status status = check_sums(stepper, step, sums.tokens, loss, norm);
    if (status == LS_FENCED) {
        return status;
    }
    if (status != LS_OK) {
        LS_TRY(ls_data_parallel_leave(stepper->parallel, false));
        return status;
    }
    const double clip_norm = stepper->settings.clip_norm;
    const bool clips =
        !stepper->turn.is_outer && !ls_compression_normalises(stepper->settings.compression.kind);
    const double clip = clip_norm > 0.0 && norm > clip_norm && clips ? clip_norm / (norm + 1e-6) : 1.0;
    ls_sdc_monitor_before_update(stepper->sdc_monitor);
    LS_TRY(update_parameters(stepper, step, lr, (float)(clip / divisor)));
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_UPDATED, step);
    ls_sdc_monitor_after_update(stepper->sdc_monitor);
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_END, step);
    LS_TRY(ls_data_parallel_leave(stepper->parallel, true));
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_FINISHED, step);
    ls_stepper_lap(stepper, &stepper->result.optimizer_s);

    stepper->result.loss = (float)loss;
    stepper->result.grad_norm = norm;
    stepper->result.residual_norm = sqrt(sums.left_over) / divisor;
    stepper->result.tokens = sums.tokens;
    stepper->result.wait_s = ls_data_parallel_wait_s(stepper->parallel);
    stepper->result.traffic = ls_data_parallel_traffic(stepper->parallel);
    stepper->stage_wait_s += stepper->result.traffic.stage_wait_s;
    stepper->result.stage_wait_s = stepper->stage_wait_s;
    stepper->result.audited = ls_sdc_monitor_audited(stepper->sdc_monitor);
    stepper->result.state_is_hashed =
        ls_sdc_monitor_state_sum(stepper->sdc_monitor, &stepper->result.state_sum);
    return LS_OK;
}

ls_status ls_stepper_run(ls_stepper *stepper, uint64_t step, double lr, ls_step_result *result_out)
{
    ls_data_parallel_enter(stepper->parallel, step, fingerprint_of(stepper, step, lr));
    stepper->result = (ls_step_result){0};
    stepper->step = step;
    stepper->turn = ls_local_turn_at(&stepper->settings.local, step);
    ls_fault_injection_at(stepper->settings.fault_injection, LS_PHASE_ENTER, step);
    stepper->last_s = ls_clock_monotonic_s();
    stepper->last_wait_s = ls_data_parallel_wait_s(stepper->parallel);
    const ls_status status = run_step(stepper, step, lr);
    /* After a fence the step is continued, and its update must still keep the old values. */
    if (status != LS_FENCED) {
        memset(stepper->snapshot, 0, sizeof stepper->snapshot);
    }
    if (status == LS_OK) {
        *result_out = stepper->result;
    } else {
        result_out->fault = stepper->result.fault;
    }
    return status;
}

void ls_stepper_keep(ls_stepper *stepper, float *const snapshot[3])
{
    memcpy(stepper->snapshot, snapshot, sizeof stepper->snapshot);
}

ls_status ls_stepper_check_state(ls_stepper *stepper, ls_step_fault *fault_out)
{
    const ls_status status = ls_sdc_monitor_check_state(stepper->sdc_monitor);
    if (status != LS_OK) {
        *fault_out = *ls_sdc_monitor_fault(stepper->sdc_monitor);
    }
    return status;
}

/* ---- life ---- */

static size_t rows_of(const ls_stepper *stepper)
{
    return (size_t)stepper->settings.micro_batch * (size_t)stepper->length;
}

static size_t shared_bytes(const ls_stepper *stepper)
{
    return rows_of(stepper) * (4 * sizeof(int32_t) + sizeof(float)) +
           stepper->settings.micro_batch * sizeof(uint32_t);
}

static ls_status alloc_buffers(ls_stepper *stepper)
{
    const size_t rows = rows_of(stepper);
    void *shared = NULL;
    LS_TRY(ls_shared_alloc(stepper->state->queue, shared_bytes(stepper), &shared));
    int32_t *ids = shared;
    stepper->rows = (ls_sample){.tokens = ids, .targets = ids + rows, .record = ids + 2 * rows};
    stepper->rows.first = stepper->settings.documents ? ids + 3 * rows : NULL;
    stepper->losses = (float *)(ids + 4 * rows);
    stepper->pass = (uint32_t *)(stepper->losses + rows);
    return LS_OK;
}

static void release_updates(ls_stepper *stepper)
{
    for (uint32_t i = 0; i < stepper->update_count; i++) {
        ls_update_destroy(stepper->updates[i]);
    }
    free(stepper->updates);
    stepper->updates = NULL;
    stepper->update_count = 0;
}

static ls_status make_updates(ls_stepper *stepper)
{
    const uint32_t count = ls_data_parallel_held(stepper->parallel);
    stepper->updates = calloc(count, sizeof *stepper->updates);
    if (!stepper->updates) {
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory for the optimizer's tables of %u shares of the parameters", count);
    }
    for (; stepper->update_count < count; stepper->update_count++) {
        const ls_part *part = ls_data_parallel_part(stepper->parallel, stepper->update_count);
        LS_TRY(ls_update_create(stepper->state->layout, part->slices, part->slice_count,
                                &stepper->updates[stepper->update_count]));
    }
    return LS_OK;
}

ls_status ls_stepper_assign(ls_stepper *stepper)
{
    release_updates(stepper);
    LS_TRY(make_updates(stepper));
    return ls_sdc_monitor_assign(stepper->sdc_monitor);
}

static float *own_gradient(void *context, uint32_t part, uint32_t index)
{
    (void)part;
    return ((const ls_state *)context)->gradients[index];
}

/* A single process: the same code with one part and a private exchange area. */
static ls_status make_alone(ls_stepper *stepper)
{
    const uint64_t bytes = ls_data_parallel_exchange_bytes(stepper->state->layout, 0);
    LS_TRY(ls_shared_alloc(stepper->state->queue, bytes, &stepper->exchange));
    const ls_data_parallel_options options = {
        .plan = stepper->executor->plan,
        .leaves = stepper->settings.leaves,
        .group = stepper->settings.group,
        .compression = stepper->settings.compression,
        .changes = stepper->settings.changes,
        .compression_warmup = stepper->settings.compression_warmup,
        .beta1 = stepper->settings.beta1,
        .beta2 = stepper->settings.beta2,
        .eps = stepper->settings.group_eps,
        .residuals = stepper->state->residuals,
        .parts = 1,
        .local_parts = 1,
        .is_alone = true,
        .gradient = own_gradient,
        .context = stepper->state,
        .exchange = stepper->exchange,
    };
    LS_TRY(ls_data_parallel_create(&options, &stepper->alone));
    stepper->parallel = stepper->alone;
    return LS_OK;
}

static ls_status make_sdc_monitor(ls_stepper *stepper)
{
    const ls_step_settings *s = &stepper->settings;
    const ls_sdc_monitor_options options = {
        .state = stepper->state,
        .parallel = stepper->parallel,
        .seed = s->seed,
        /* a rank of a crew cannot compute a leaf alone */
        .audit_every_steps = ls_data_parallel_crew(stepper->parallel) ? 0 : s->audit_every_steps,
        .hash_every_steps = s->hash_every_steps,
        .leaves = s->leaves,
        .flip = s->flip,
        .compute = ls_stepper_compute_alone,
        .context = stepper,
    };
    return ls_sdc_monitor_create(&options, &stepper->sdc_monitor);
}

static ls_status prepare(ls_stepper *stepper)
{
    LS_TRY(alloc_buffers(stepper));
    if (stepper->parallel == NULL) {
        LS_ASSERT(stepper->state->gradient_count == ls_plan_memory(stepper->executor->plan,
                                                                   stepper->settings.leaves,
                                                                   stepper->settings.group, 0)
                                                        .tree_buffers);
        LS_TRY(make_alone(stepper));
    }
    LS_TRY(make_sdc_monitor(stepper));
    if (stepper->state->workers) {
        LS_TRY(ls_outer_sum_create(stepper->state, &stepper->settings.local, &stepper->outer));
    }
    return make_updates(stepper);
}

ls_status ls_stepper_create(ls_executor *executors, ls_state *state, const ls_step_settings *settings,
                            ls_stepper **stepper_out)
{
    LS_ASSERT(settings->leaves >= 1 && settings->global_batch % settings->leaves == 0);
    LS_ASSERT(settings->global_batch / settings->leaves % settings->micro_batch == 0);
    LS_ASSERT(executors->plan->options.training &&
              executors->plan->options.sequences == settings->micro_batch);
    ls_stepper *stepper = calloc(1, sizeof *stepper);
    if (!stepper) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the training step");
    }
    stepper->executor = executors;
    stepper->settings = *settings;
    stepper->state = state;
    stepper->parallel = settings->parallel;
    stepper->length = executors->plan->options.length;
    const ls_status status = prepare(stepper);
    if (status != LS_OK) {
        ls_stepper_destroy(stepper);
        return status;
    }
    *stepper_out = stepper;
    return LS_OK;
}

void ls_stepper_destroy(ls_stepper *stepper)
{
    if (!stepper) {
        return;
    }
    ls_sdc_monitor_destroy(stepper->sdc_monitor);
    ls_outer_sum_destroy(stepper->outer);
    ls_data_parallel_destroy(stepper->alone);
    ls_shared_free(stepper->state->queue, stepper->exchange,
                   ls_data_parallel_exchange_bytes(stepper->state->layout, 0));
    ls_shared_free(stepper->state->queue, stepper->rows.tokens, shared_bytes(stepper));
    release_updates(stepper);
    free(stepper);
}
