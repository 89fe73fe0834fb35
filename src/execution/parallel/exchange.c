// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/exchange.h"

#include "base/assert.h"
#include "base/clock.h"
#include "comm/flight/flight.h"
#include "execution/parallel/slices.h"

#include <stdio.h>

/* The area of a single process has one slot and no undo entries. */
uint64_t ls_exchange_bytes(const ls_layout *layout, uint32_t room)
{
    const uint64_t blocks = (uint64_t)ls_blocks_before(layout, layout->bucket_count);
    const uint64_t slots = room > 0 ? room : 1;
    return sizeof(ls_exchange) + slots * sizeof(ls_exchange_slot) +
           room * (uint64_t)LS_UNDO_WORKERS * sizeof(ls_undo) + blocks * (sizeof(double) + sizeof(uint64_t));
}

ls_undo *ls_exchange_undo(ls_exchange *exchange, uint32_t room, uint32_t local)
{
    ls_undo *first = (ls_undo *)(void *)&exchange->slots[room];
    return first + (size_t)local * LS_UNDO_WORKERS;
}

double *ls_exchange_block_sums(ls_exchange *exchange, uint32_t room)
{
    return room > 0 ? (double *)(void *)ls_exchange_undo(exchange, room, room)
                    : (double *)(void *)&exchange->slots[1];
}

_Atomic uint64_t *ls_exchange_block_words(ls_exchange *exchange, uint32_t room, int64_t block_count)
{
    return (_Atomic uint64_t *)(void *)(ls_exchange_block_sums(exchange, room) + block_count);
}

ls_wait ls_exchange_wait(const ls_exchange_view *view)
{
    return (ls_wait){
        .deadline_ns = ls_clock_monotonic_ns() + (uint64_t)(view->timeout_s * 1e9),
        .spins = view->spins,
        .abort = view->abort,
        .look = view->look,
        .context = view->context,
    };
}

/* ---- errors: naming the ranks that did not arrive ---- */

/* counter LS_COUNTERS means a meeting. */
static bool is_missing(const ls_exchange_slot *slot, ls_counter counter, uint32_t count)
{
    return counter == LS_COUNTERS ? !ls_meeting_reached(slot, count)
                                  : !ls_word_reached(&slot->counters[counter].word, count);
}

static uint32_t rank_of(const ls_exchange_view *view, uint32_t local)
{
    return view->first_rank + (view->holders ? view->holders[local] : local);
}

/* "1, 3, 4"; as many as fit. */
static void name_missing(const ls_exchange_view *view, ls_counter counter, uint32_t count, char *text,
                         size_t text_bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < view->local_parts && used + 16 < text_bytes; i++) {
        if (is_missing(&view->exchange->slots[i], counter, count)) {
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%u", used > 0 ? ", " : "",
                                     rank_of(view, i));
        }
    }
}

/* The error of a wait that was ended from outside; LS_OK when it ended at its deadline. */
static ls_status fail_ended(const ls_exchange_view *view, ls_wait_result result, const char *what,
                            const char *missing)
{
    if (result == LS_WAIT_TIMEOUT) {
        return LS_OK;
    }
    const ls_status status =
        result == LS_WAIT_ABORTED && view->aborted ? view->aborted(view->context) : LS_OK;
    if (status != LS_OK) {
        return status;
    }
    return ls_fail(LS_ERR_RANKS_LOST, "step %llu: the run was ended while rank %u waited for %s%s%s",
                   (unsigned long long)view->step + 1, view->first_rank + view->rank, what,
                   missing[0] ? " of rank " : "", missing);
}

static ls_status fail_wait(const ls_exchange_view *view, ls_wait_result result, ls_counter counter,
                           uint32_t count, const char *what)
{
    char missing[256];
    name_missing(view, counter, count, missing, sizeof missing);
    /* LS_OK here means that the deadline passed: that is the error below */
    LS_TRY(fail_ended(view, result, what, missing));
    return ls_fail(LS_ERR_TIMEOUT, "step %llu: rank %u gave up after it had waited %.3g s for %s%s%s",
                   (unsigned long long)view->step + 1, view->first_rank + view->rank, view->timeout_s, what,
                   missing[0] ? " of rank " : "", missing);
}

/* The wait for a transfer does not tell why it ended, so abort and look are checked again here. */
ls_status ls_exchange_fail_transfer(const ls_exchange_view *view, const char *what)
{
    const bool aborted = view->abort && atomic_load(view->abort) != 0;
    const bool refused = view->look && !view->look(view->context);
    const ls_wait_result result = aborted ? LS_WAIT_ABORTED : refused ? LS_WAIT_REFUSED : LS_WAIT_TIMEOUT;
    LS_TRY(fail_ended(view, result, what, ""));
    return ls_fail(LS_ERR_TIMEOUT, "step %llu: rank %u gave up after it had waited %.3g s for %s",
                   (unsigned long long)view->step + 1, view->first_rank + view->rank, view->timeout_s, what);
}

/* ---- waits ---- */

void ls_exchange_count_part(ls_exchange_view *view, uint32_t local, ls_counter counter, uint32_t count)
{
    ls_word_post(&view->exchange->slots[local].counters[counter].word, count);
}

void ls_exchange_count(ls_exchange_view *view, ls_counter counter, uint32_t count)
{
    ls_exchange_count_part(view, view->local, counter, count);
}

bool ls_exchange_has(const ls_exchange_view *view, ls_counter counter, uint32_t count)
{
    for (uint32_t i = 0; i < view->local_parts; i++) {
        if (is_missing(&view->exchange->slots[i], counter, count)) {
            return false;
        }
    }
    return true;
}

ls_status ls_exchange_await(ls_exchange_view *view, ls_counter counter, uint32_t count, const char *what)
{
    if (ls_exchange_has(view, counter, count)) {
        return LS_OK;
    }
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    const ls_wait wait = ls_exchange_wait(view);
    ls_wait_result result = LS_WAIT_DONE;
    ls_flight_activity(LS_ACTIVITY_COMM, 0);
    /* Counters only grow, so a part that has arrived stays arrived: waiting for one part after the
     * other takes no longer than waiting for all at once. */
    for (uint32_t i = 0; i < view->local_parts && result == LS_WAIT_DONE; i++) {
        result = ls_wait_until(&view->exchange->slots[i].counters[counter].word, count, &wait);
    }
    view->wait_ns += ls_clock_monotonic_ns() - begin_ns;
    return result == LS_WAIT_DONE ? LS_OK : fail_wait(view, result, counter, count, what);
}

/* ---- meetings ---- */

/* Records a meeting as an operation on a communicator of this host's parts. The agreement, which
 * passes last_out, has a record of its own. */
static ls_flight_record *record_meeting(ls_exchange_view *view, const char *what)
{
    if (!ls_flight_mapped || view->local_parts == 1) {
        return NULL;
    }
    const uint32_t comm_id = LS_EXCHANGE_COMM + view->first_part + ((uint32_t)(view->epoch & 0x3fff) << 10);
    if (view->flight_slot == 0) {
        view->flight_slot = ls_flight_join(comm_id, view->local, view->local_parts, "meetings");
    }
    const ls_flight_call call = {
        .seq = view->arrivals,
        .comm_id = comm_id,
        .peer = UINT32_MAX,
        .site = ls_flight_site(what, 0),
        .kind = LS_COMM_BARRIER,
        .slot = view->flight_slot,
    };
    return ls_flight_begin(&call);
}

/* The check before the store keeps `reached` from moving back: a process that takes over a part
 * repeats meetings that the former holder has already passed. Returns whether this one is new. */
static bool reach(ls_exchange_view *view, uint32_t local, uint32_t number)
{
    ls_exchange_slot *slot = &view->exchange->slots[local];
    if (ls_meeting_reached(slot, number)) {
        return false;
    }
    atomic_store(&slot->reached, number);
    return true;
}

/* The condition of a wait for a meeting. */
typedef struct appointment {
    const ls_exchange_view *view;
    uint32_t number;
} appointment;

static bool all_are_here(void *context)
{
    const appointment *m = context;
    for (uint32_t i = 0; i < m->view->local_parts; i++) {
        if (!ls_meeting_reached(&m->view->exchange->slots[i], m->number)) {
            return false;
        }
    }
    return true;
}

/*
 * A barrier that survives the death of any participant.
 *
 *   each part:   reached = number;   then: have all reached it?   yes: meetings += 1 (wakes all)
 *                                                                 no:  sleep on `meetings`
 *
 * Why a sleeper is always woken: the store and the loads that follow it are sequentially
 * consistent, so in their one total order the part that stores last sees the stores of all others,
 * and wakes them. There is no count of arrivals that a process dying halfway could leave wrong; a
 * part that is taken over stores the same number again. If the waking part dies between its store
 * and the wake, the sleepers check the condition themselves after LS_WAIT_SLICE_NS.
 */
static ls_wait_result arrive(ls_exchange_view *view, const uint32_t *own, uint32_t count, uint32_t number)
{
    appointment m = {view, number};
    bool is_new = false;
    for (uint32_t i = 0; i < count; i++) {
        is_new = reach(view, own[i], number) || is_new;
    }
    if (all_are_here(&m)) {
        if (is_new) {
            atomic_store(&view->exchange->last, own[0]);
            ls_word_add(&view->exchange->meetings, 1);
        }
        return LS_WAIT_DONE;
    }
    const ls_wait wait = ls_exchange_wait(view);
    return ls_wait_for(&view->exchange->meetings, all_are_here, &m, &wait);
}

ls_status ls_exchange_meet_parts(ls_exchange_view *view, const uint32_t *own, uint32_t count,
                                 ls_meeting meeting, const char *what, uint32_t *last_out)
{
    const uint32_t place = meeting == LS_MEET_NEXT ? ++view->place : (uint32_t)meeting;
    LS_ASSERT(place <= LS_MEET_END);
    const uint32_t number = ls_meeting_number(view->round, place);
    view->place = place;
    /* seq of the flight record: every rank counts the same meetings, so numbers match across
     * ranks */
    view->arrivals += last_out == NULL;
    ls_flight_record *record = last_out ? NULL : record_meeting(view, what);
    ls_flight_activity(LS_ACTIVITY_COMM, 0);
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    const ls_wait_result result = arrive(view, own, count, number);
    const uint64_t wait_ns = ls_clock_monotonic_ns() - begin_ns;
    const bool met = result == LS_WAIT_DONE;
    const uint32_t last = atomic_load(&view->exchange->last);
    view->wait_ns += wait_ns;
    ls_flight_end(record, 0, met ? last : UINT32_MAX, wait_ns, met ? LS_OK : LS_ERR_FAILED);
    if (!met) {
        return fail_wait(view, result, LS_COUNTERS, number, what);
    }
    /* Past the end, every part is in the next round, whose places are numbered from 0 again. */
    if (place == LS_MEET_END) {
        view->round++;
        view->place = 0;
    }
    if (last_out) {
        *last_out = view->first_part + last;
    }
    return LS_OK;
}

ls_status ls_exchange_meet(ls_exchange_view *view, const char *what, uint32_t *last_out)
{
    return ls_exchange_meet_parts(view, &view->local, 1, LS_MEET_NEXT, what, last_out);
}
