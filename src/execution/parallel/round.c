// SPDX-License-Identifier: Apache-2.0
/*
 * A round: one attempt at a step, from entering it to leaving it; and moving the state between
 * hosts between steps.
 *
 *   place in the round     0 ------------- LS_MEET_AGREE ----- unnamed ------------- LS_MEET_END
 *   slot of a part         entered         claim complete      (only if it failed)   is_updated
 *   marks of a part        entered         begun ... done                            finished
 *
 * A part that enters a step looks at its slot first: if the slot says that the part is in this step
 * already, its former holder died and this process continues there; nothing of the slot is reset.
 */
#include "execution/parallel/data_parallel_internal.h"

#include "base/assert.h"
#include "execution/parallel/compressed.h"
#include "execution/parallel/crew_room.h"
#include "execution/parallel/fetch.h"

#include <stdio.h>
#include <string.h>

static void mark(_Atomic uint64_t *counter, uint64_t value)
{
    if (counter) {
        atomic_store(counter, value);
    }
}

/* ---- entering ---- */

/* The round after the last one whose end the part has reached. The result is the same if this is
 * asked again before the round is entered. */
static uint32_t next_round(const ls_exchange_slot *slot)
{
    const uint32_t round = atomic_load(&slot->round);
    return ls_meeting_reached(slot, ls_meeting_number(round, LS_MEET_END)) ? round + 1 : round;
}

/* Whether the part is inside this step, or has ended it with an update. A step that was given up
 * starts over instead. */
static bool is_in_step(const ls_exchange_slot *slot, uint64_t step)
{
    return atomic_load(&slot->entered) == step + 1 &&
           (atomic_load(&slot->is_updated) != 0 ||
            !ls_meeting_reached(slot, ls_meeting_number(atomic_load(&slot->round), LS_MEET_END)));
}

/* `entered` is 0 while the slot is being prepared and is stored last: a process that dies in
 * between leaves a slot that is between two steps, and the next holder begins again. */
static void begin_part(ls_data_parallel *p, const ls_own_part *own, uint64_t step)
{
    ls_exchange_slot *slot = own->slot;
    atomic_store(&slot->entered, 0);
    atomic_store(&slot->round, next_round(slot));
    atomic_store(&slot->is_updated, 0);
    atomic_store(&slot->noted, 0);
    atomic_store(&slot->stack.depth, 0);
    slot->range = own->part.leaves;
    slot->bucket_count = p->bucket_count;
    ls_exchange_claim *claim = &slot->claims[step & 1];
    /* clears up to the first byte of the text: that empties the text, and the rest is long */
    memset(claim, 0, offsetof(ls_exchange_claim, report.text) + 1);
    claim->step = step;
    claim->fingerprint = p->fingerprint;
    claim->rank = p->view.first_rank + p->view.rank;
    atomic_store(&slot->entered, step + 1);
}

/* The number of buckets that a counter has reached in this round. */
static uint32_t buckets_at(const ls_data_parallel *p, const ls_own_part *own, ls_counter counter)
{
    const uint32_t base = atomic_load(&own->slot->round) * p->bucket_count;
    const int32_t count = (int32_t)(ls_word_get(&own->slot->counters[counter].word) - base);
    LS_ASSERT(count <= (int32_t)p->bucket_count);
    return count > 0 ? (uint32_t)count : 0;
}

/* Returns the round of step `step`. A part can be one step ahead of the others this process runs:
 * its former holder had ended this step and entered the next before it died. */
static uint32_t enter_part(ls_data_parallel *p, ls_own_part *own, uint64_t step)
{
    const ls_exchange_slot *slot = own->slot;
    own->is_ahead = p->can_resume && atomic_load(&slot->entered) > step + 1;
    if (own->is_ahead) {
        LS_ASSERT(atomic_load(&slot->entered) == step + 2);
        p->is_resumed = true;
        return atomic_load(&slot->round) - 1;
    }
    own->ready_count = own->taken_count = own->summed_count = own->dropped_count = 0;
    if (p->can_resume && is_in_step(slot, step)) {
        p->is_resumed = true;
        own->ready_count = buckets_at(p, own, LS_COUNT_READY);
        own->taken_count = own->summed_count = buckets_at(p, own, LS_COUNT_TAKEN);
    } else {
        begin_part(p, own, step);
        mark(own->marks.entered, step + 1);
    }
    p->active[p->active_count++] = own->local;
    return atomic_load(&slot->round);
}

void ls_data_parallel_enter(ls_data_parallel *p, uint64_t step, uint64_t fingerprint)
{
    if (p->was_gathered) {
        ls_data_parallel_drop_gathered(p);
    }
    p->was_gathered = false;
    p->fingerprint = fingerprint;
    p->view.step = step;
    p->view.wait_ns = 0;
    p->read_bytes = 0;
    p->sent_before = p->hosts ? ls_hosts_get_sent(p->hosts) : (ls_hosts_sent_so_far){0};
    p->is_resumed = false;
    p->active_count = 0;
    for (uint32_t i = 0; i < p->own_count; i++) {
        const uint32_t round = enter_part(p, &p->own[i], step);
        LS_ASSERT(i == 0 || round == p->view.round);
        p->view.round = round;
    }
    /* With several hosts, the transfers between steps have used some unnamed places of this
     * round. */
    if (!p->hosts) {
        p->view.place = 0;
        p->view.arrivals = p->view.round;
    }
    p->posted_groups = p->told_groups = p->spread_groups = 0;
    p->fault = (ls_step_fault){0};
    if (p->compressed) {
        ls_compressed_enter(p->compressed, step);
    }
    if (p->crew_room) {
        /* the epoch grows when a step is continued, the round when another one begins */
        ls_crew_room_enter(p->crew_room, (p->team_epoch << 32 | p->view.round) + 1, fingerprint);
    }
}

bool ls_data_parallel_computes(const ls_data_parallel *p, uint32_t index)
{
    const ls_own_part *own = &p->own[index];
    return !own->is_ahead && ls_claim_of(p, own->local)->status == LS_OK &&
           !ls_meeting_reached(own->slot, ls_meeting_number(p->view.round, LS_MEET_AGREE));
}

bool ls_data_parallel_is_ahead(const ls_data_parallel *p, uint32_t index)
{
    return p->own[index].is_ahead;
}

void ls_data_parallel_give_up(ls_data_parallel *p, uint32_t index, ls_status status,
                              const ls_step_fault *fault)
{
    LS_ASSERT(status != LS_OK && ls_data_parallel_computes(p, index));
    ls_exchange_claim *claim = ls_claim_of(p, p->own[index].local);
    if (fault) {
        claim->report.fault = *fault;
    }
    snprintf(claim->report.text, sizeof claim->report.text, "%s", ls_error_text());
    /* after the claim is complete: parts that see it skip their sums and go to the agreement */
    claim->status = status;
    atomic_store(&p->view.exchange->given_up, p->view.round + 1);
    if (p->crew_room) {
        ls_crew_room_give_up(p->crew_room);
    }
}

ls_status ls_data_parallel_meet(ls_data_parallel *p, ls_meeting meeting, const char *what, uint32_t *last_out)
{
    return ls_exchange_meet_parts(&p->view, p->active, p->active_count, meeting, what, last_out);
}

/* ---- the update ---- */

/* Posts the next groups of updated weights, up to those that end at position `past`, to the hosts
 * that do not make the same update themselves. */
static void spread(ls_data_parallel *p, float *flat, uint32_t past)
{
    while (p->hosts && !p->is_broken && ls_hosts_spreads(p->hosts) &&
           p->spread_groups < ls_hosts_groups(p->hosts) &&
           ls_hosts_group_past(p->hosts, p->spread_groups) <= past) {
        ls_hosts_post(p->hosts, p->compressed ? LS_TRANSFER_CHANGES : LS_TRANSFER_SPREAD, p->spread_groups++,
                      flat);
    }
}

ls_status ls_data_parallel_begin_update(ls_data_parallel *p)
{
    for (uint32_t i = 0; i < p->own_count; i++) {
        if (!p->own[i].is_ahead) {
            mark(p->own[i].marks.begun, p->view.step + 1);
        }
    }
    return LS_OK;
}

void ls_data_parallel_updated(ls_data_parallel *p, uint32_t index, float *parameters, uint32_t slice)
{
    const ls_own_part *own = &p->own[index];
    if (p->zero > 0 && p->zero < 3) {
        spread(p, parameters,
               slice + 1 < own->part.slice_count ? own->update_at[slice + 1] : p->bucket_count);
    }
}

ls_packed_change ls_data_parallel_change(const ls_data_parallel *p, uint32_t index, uint32_t slice)
{
    const ls_own_part *own = &p->own[index];
    return p->compressed
               ? ls_compressed_change(p->compressed, own->update_at[slice], own->updates[slice].offset)
               : (ls_packed_change){0};
}

/* `done` is stored only after the weights of the other hosts have arrived: until then this host's
 * copy of the parameters is a mix of two steps. */
ls_status ls_data_parallel_end_update(ls_data_parallel *p, float *parameters)
{
    if (p->hosts && !p->is_broken && p->zero > 0 && p->zero < 3) {
        spread(p, parameters, p->bucket_count);
        LS_TRY(ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts), "weights of the other hosts"));
    }
    for (uint32_t i = 0; i < p->own_count; i++) {
        if (!p->own[i].is_ahead) {
            mark(p->own[i].marks.done, p->view.step + 1);
        }
    }
    return LS_OK;
}

ls_status ls_data_parallel_leave(ls_data_parallel *p, bool updated)
{
    ls_data_parallel_drop_taken(p);
    ls_data_parallel_drop_sums(p);
    for (uint32_t i = 0; i < p->own_count; i++) {
        if (!p->own[i].is_ahead) {
            atomic_store(&p->own[i].slot->is_updated, updated);
        }
    }
    /* is_updated is stored before the part reaches the end: is_in_step of a new holder needs it. */
    LS_TRY(ls_data_parallel_meet(p, LS_MEET_END, "the end of the step", NULL));
    ls_fetch_leave(p->fetch);
    for (uint32_t i = 0; i < p->own_count && updated; i++) {
        mark(p->own[i].marks.finished, p->view.step + 1);
    }
    return LS_OK;
}

void ls_data_parallel_break(ls_data_parallel *p)
{
    if (p->hosts) {
        if (p->crew_room) {
            ls_crew_room_break(p->crew_room);
        }
        ls_hosts_break(p->hosts);
        ls_fetch_break(p->fetch);
        p->is_broken = true;
    }
}

/* ---- between steps ---- */

static ls_status move_all(ls_data_parallel *p, ls_transfer transfer, float *flat)
{
    for (uint32_t g = 0; g < ls_hosts_groups(p->hosts); g++) {
        ls_hosts_post(p->hosts, transfer, g, flat);
    }
    return ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts), "the state of the other hosts");
}

/* Host 0 now holds slices that it does not keep. They are released at the next step, not here,
 * because the trainer reads them in between. */
static void remember_gathered(ls_data_parallel *p, const ls_state *state)
{
    p->gathered[0] = state->parameters;
    p->gathered[1] = state->m;
    p->gathered[2] = state->v;
    p->was_gathered = p->zero > 0 && ls_hosts_self(p->hosts) == 0;
}

/* Every host keeps all frozen parameters, with any stage; they have no owner. */
static ls_status distribute_frozen(ls_data_parallel *p, const ls_state *state)
{
    const uint64_t count = (uint64_t)(state->layout->parameter_floats - state->layout->float_count);
    if (count == 0 || p->view.local != 0) {
        return LS_OK;
    }
    ls_hosts_post_frozen(p->hosts, state->frozen, count);
    return ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts), "the frozen weights");
}

/* Scatter first brings the slices to their owners; spread and shadow then copy from the owners to
 * the hosts that keep them. */
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
    if (p->compressed && state->residual_step > 0) { /* before the first step they are zeros */
        LS_TRY(ls_compressed_scatter(p->compressed, state->residual_step));
    }
    LS_TRY(distribute_frozen(p, state));
    remember_gathered(p, state);
    return ls_exchange_meet(&p->view, "the state of the other hosts", NULL);
}

/* With stage 0 and without compression the host of the trainer has all of the state and does not
 * wait for the others: it may begin the next step while some of their ranks are still to be told of
 * this gather. So those ranks must not wait for each other here, because some of them may be in the
 * next step already. */
ls_status ls_data_parallel_gather(ls_data_parallel *p, const ls_state *state)
{
    if (!p->hosts || (p->zero == 0 && !p->compressed)) {
        return LS_OK;
    }
    if (p->zero >= 3) {
        LS_TRY(move_all(p, LS_TRANSFER_GATHER, state->parameters));
    }
    if (p->zero > 0) {
        LS_TRY(move_all(p, LS_TRANSFER_GATHER, state->m));
        LS_TRY(move_all(p, LS_TRANSFER_GATHER, state->v));
    }
    if (p->compressed) {
        LS_TRY(ls_compressed_gather(p->compressed, state->residual_step));
    }
    remember_gathered(p, state);
    return ls_exchange_meet(&p->view, "the state of the other hosts", NULL);
}
