// SPDX-License-Identifier: Apache-2.0
/* Synchronisation, and the verdict when it fails. See comm/shm/shm.h. */
#include "comm/shm/shm.h"

#include "base/clock.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    /* With 128 or 400, two ranks on busy cores took 1.5 to 3 times as long. */
    SPINS_MIN = 16,
    /* Every SPINS_PROBE waits the full length is tried again. */
    SPINS_PROBE = 64,
    /* Time spent yielding the core before sleeping. */
    YIELD_NS = 50 * 1000,
    /* A yield of this length means that another program had the core; the next YIELD_PAUSE waits
     * then sleep at once. */
    YIELD_SLICE_NS = 1000 * 1000,
    YIELD_PAUSE = 256,
    /* Time for the other ranks to arrive, so that a mismatch can name the majority. */
    GRACE_NS = 100 * 1000 * 1000,
};

/* ---- the verdict ---- */

bool shm_is_over(const ls_shm *shm)
{
    return atomic_load_explicit(&shm->control->is_over, memory_order_acquire) != 0;
}

static ls_status take_verdict(const ls_shm *shm)
{
    char text[SHM_TEXT_BYTES];
    memcpy(text, shm->control->text, sizeof text);
    text[sizeof text - 1] = 0;
    return ls_fail((ls_status)shm->control->status, "%s", text);
}

ls_status shm_judge(ls_shm *shm, ls_status status)
{
    shm_control *control = shm->control;
    if (atomic_fetch_add(&control->verdict_writers, 1) == 0) {
        control->status = (uint32_t)status;
        snprintf(control->text, sizeof control->text, "%s", ls_error_text());
        atomic_store(&control->is_over, 1);
        ls_word_add(&control->bell, 1);
        return status;
    }
    for (int i = 0; i < 1000 && !shm_is_over(shm); i++) {
        /* Another rank is writing the verdict. If it died doing so, this rank uses its own
         * reason. */
        usleep(1000);
    }
    return shm_is_over(shm) ? take_verdict(shm) : status;
}

/* ---- claims ---- */

void shm_claim(ls_shm *shm, const ls_comm_op *op)
{
    shm_place *place = &shm->places[shm->transport.rank];
    if (op->site.file != shm->claimed_file) {
        ls_comm_claim_fill(&place->claim, op, &shm->transport);
        shm->claimed_file = op->site.file;
    } else {
        ls_comm_claim *claim = &place->claim;
        claim->seq = op->seq;
        claim->fingerprint = op->fingerprint;
        claim->count = op->count;
        claim->peer = op->peer;
        claim->kind = (uint8_t)op->kind;
        claim->dtype = (uint8_t)op->dtype;
        claim->reduction = (uint8_t)op->reduction;
        claim->flags = (uint8_t)op->flags;
        claim->line = op->site.line;
    }
    atomic_store_explicit(&place->is_inside, 1, memory_order_release);
}

/* "its last call is barrier (call 16, a.c:33), which it has left" */
static void last_words(const ls_shm *shm, uint32_t rank, char *out, size_t room)
{
    const shm_place *place = &shm->places[rank];
    ls_comm_claim claim;
    memcpy(&claim, &place->claim, sizeof claim);
    if (claim.seq == 0) {
        snprintf(out, room, "it has made no call yet");
        return;
    }
    char what[LS_COMM_WORDS_BYTES];
    ls_comm_claim_words(&claim, what);
    snprintf(out, room, "its last call is %s (call %" PRIu64 ", %.*s:%" PRIu32 "), %s", what, claim.seq,
             (int)sizeof claim.file - 1, claim.file, claim.line,
             atomic_load(&place->is_inside) ? "in which it still is" : "which it has left");
}

/* ---- waits ---- */

static bool has_come(const ls_shm *shm, uint32_t rank, uint32_t tick)
{
    return (int32_t)(atomic_load_explicit(&shm->flags[rank].tick, memory_order_acquire) - tick) >= 0;
}

static bool is_missing(const shm_look *look, uint32_t rank)
{
    const ls_shm *shm = look->shm;
    if (rank == shm->transport.rank) {
        return false;
    }
    return look->peer == UINT32_MAX ? !has_come(shm, rank, shm->tick) : rank == look->peer;
}

static bool is_gone(const ls_shm *shm, uint32_t rank, bool ask_kernel)
{
    if (atomic_load(&shm->flags[rank].has_left)) {
        return true;
    }
    struct pollfd peer = {.fd = shm->pidfds[rank], .events = POLLIN};
    return ask_kernel && peer.fd >= 0 && poll(&peer, 1, 0) > 0;
}

/* Whether a rank that has arrived made another call, no matter which ranks are missing. */
static bool any_differs(const ls_shm *shm)
{
    const uint64_t fingerprint = shm_offer_of(shm, shm->transport.rank)->fingerprint;
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        if (has_come(shm, rank, shm->tick) && shm_offer_of(shm, rank)->fingerprint != fingerprint) {
            return true;
        }
    }
    return false;
}

/* Returns true while waiting makes sense: no missing rank is gone, no rank made another call, and
 * no communicator from which this one was split has failed. */
static bool look_around(void *context)
{
    shm_look *look = context;
    const ls_shm *shm = look->shm;
    for (const ls_shm *above = shm->parent; above; above = above->parent) {
        if (shm_is_over(above)) {
            return false;
        }
    }
    look->has_differing = look->peer == UINT32_MAX && any_differs(shm);
    if (look->has_differing) {
        return false;
    }
    /* Not before the first sleep, with which most waits end. */
    const bool ask_kernel = look->looks++ > 0;
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        if (is_missing(look, rank) && is_gone(shm, rank, ask_kernel)) {
            look->lost = rank;
            /* Its last act may have been to arrive. */
            return !is_missing(look, rank);
        }
    }
    return true;
}

ls_wait shm_wait_of(ls_shm *shm, const ls_comm_op *op, uint32_t peer, shm_look *look)
{
    *look = (shm_look){.shm = shm, .peer = peer, .lost = UINT32_MAX};
    return (ls_wait){.deadline_ns = op->deadline_ns,
                     .spins = peer == UINT32_MAX ? 0 : shm->spins,
                     .abort = &shm->control->is_over,
                     .look = look_around,
                     .context = look};
}

static ls_status fail_lost(const ls_comm_op *op, const shm_look *look)
{
    char what[LS_COMM_WORDS_BYTES], who[LS_COMM_WHO_BYTES], last[256];
    const ls_shm *shm = look->shm;
    ls_comm_op_words(op, what);
    ls_comm_member_words(&shm->transport, look->lost, who);
    last_words(shm, look->lost, last, sizeof last);
    const bool has_left = atomic_load(&shm->flags[look->lost].has_left);
    return ls_fail(LS_ERR_RANKS_LOST, "%s (call %" PRIu64 ", %s:%" PRIu32 "): %s %s; %s", what, op->seq,
                   op->site.file ? op->site.file : "?", op->site.line, who,
                   has_left ? "has left the group" : "has died", last);
}

static ls_status fail_late(const ls_comm_op *op, const shm_look *look)
{
    enum { NAMED_MAX = 5 };
    const ls_shm *shm = look->shm;
    char what[LS_COMM_WORDS_BYTES], who[LS_COMM_WHO_BYTES], last[256], text[1600];
    uint32_t missing = 0;
    size_t used = 0;
    ls_comm_op_words(op, what);
    text[0] = 0;
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        if (!is_missing(look, rank) || missing++ >= NAMED_MAX) {
            continue;
        }
        ls_comm_member_words(&shm->transport, rank, who);
        last_words(shm, rank, last, sizeof last);
        const int length = snprintf(text + used, sizeof text - used, "; %s did not arrive, %s", who, last);
        used += length > 0 && (size_t)length < sizeof text - used ? (size_t)length : 0;
    }
    return ls_fail(LS_ERR_TIMEOUT,
                   "%s (call %" PRIu64 ", %s:%" PRIu32 ") ran out of time; %" PRIu32 " of %" PRIu32
                   " ranks are missing%s",
                   what, op->seq, op->site.file ? op->site.file : "?", op->site.line, missing,
                   shm->transport.size, text);
}

ls_status shm_fail_wait(const ls_comm_op *op, ls_wait_result result, const shm_look *look)
{
    ls_shm *shm = look->shm;
    if (result == LS_WAIT_ABORTED) {
        return take_verdict(shm);
    }
    for (const ls_shm *above = shm->parent; above; above = above->parent) {
        if (shm_is_over(above)) {
            return shm_judge(shm, take_verdict(above));
        }
    }
    return shm_judge(shm, result == LS_WAIT_TIMEOUT ? fail_late(op, look) : fail_lost(op, look));
}

/* ---- arriving ---- */

typedef struct arrival {
    const ls_shm *shm;
    /* All ranks below have arrived. */
    uint32_t next;
    /* The rank last found missing. */
    uint32_t late;
    /* Rank `next` has arrived with another call. */
    bool has_differing;
} arrival;

static bool all_have_come(void *context)
{
    arrival *a = context;
    const ls_shm *shm = a->shm;
    const uint32_t parity = shm->tick & 1;
    const uint64_t fingerprint = shm->flags[shm->transport.rank].offers[parity].fingerprint;
    for (; a->next < shm->transport.size; a->next++) {
        if (!has_come(shm, a->next, shm->tick)) {
            a->late = a->next;
            return false;
        }
        if (shm->flags[a->next].offers[parity].fingerprint != fingerprint) {
            a->has_differing = true;
            return true;
        }
    }
    return true;
}

static bool all_ticks_reached(void *context)
{
    const ls_shm *shm = context;
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        if (!has_come(shm, rank, shm->tick)) {
            return false;
        }
    }
    return true;
}

/* Two ranks have made different calls. The others get a moment to arrive, so that the verdict can
 * name the majority. */
static ls_status fail_differing(ls_shm *shm)
{
    ls_comm_claim claims[LS_COMM_SIZE_MAX];
    uint32_t count = 0;
    const ls_wait wait = {.deadline_ns = ls_clock_monotonic_ns() + GRACE_NS, .abort = &shm->control->is_over};
    if (ls_wait_for(&shm->control->bell, all_ticks_reached, shm, &wait) == LS_WAIT_ABORTED) {
        return take_verdict(shm);
    }
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        if (has_come(shm, rank, shm->tick)) {
            memcpy(&claims[count++], &shm->places[rank].claim, sizeof claims[0]);
        }
    }
    return shm_judge(shm, ls_comm_fail_mismatch(&shm->transport, claims, count));
}

/*
 * Spins for as long as this has paid so far. If it was in vain, the others are not running (other
 * programs have their cores) or are far behind: the next spin is half as long, which frees the core
 * for them sooner. After a success the next spin may be twice as long as this one needed. From time
 * to time the full length is tried; otherwise two ranks that take turns sleeping would never notice
 * that they need not.
 */
static bool spin(ls_shm *shm, arrival *a)
{
    const bool is_probe = ++shm->waits % SPINS_PROBE == 0;
    const uint32_t limit = is_probe ? shm->spins_max : shm->spins;
    for (uint32_t i = 0; i < limit; i++) {
        ls_wait_pause();
        if (all_have_come(a)) {
            const uint32_t wanted = 2 * i + SPINS_MIN;
            shm->spins = wanted > shm->spins_max ? shm->spins_max : wanted > shm->spins ? wanted : shm->spins;
            return true;
        }
    }
    shm->spins = shm->spins / 2 > SPINS_MIN   ? shm->spins / 2
                 : shm->spins_max < SPINS_MIN ? shm->spins_max
                                              : SPINS_MIN;
    return false;
}

/*
 * For more ranks than cores: yielding the core to the next rank costs a fifth of sleeping and being
 * woken, as long as only ranks want the core. Another program would keep it for a whole time slice;
 * after a yield of that length the next waits sleep at once.
 */
static bool yield(ls_shm *shm, arrival *a)
{
    if (shm->spins_max > 0 || (shm->sleeps_at_once > 0 && shm->sleeps_at_once-- > 0)) {
        return false;
    }
    const uint64_t start_ns = ls_clock_monotonic_ns();
    uint64_t now_ns = start_ns;
    while (now_ns - start_ns < YIELD_NS) {
        const uint64_t before_ns = now_ns;
        sched_yield();
        if (all_have_come(a)) {
            return true;
        }
        now_ns = ls_clock_monotonic_ns();
        if (now_ns - before_ns > YIELD_SLICE_NS) {
            shm->sleeps_at_once = YIELD_PAUSE;
            return false;
        }
    }
    return false;
}

static ls_status wait_for_others(ls_shm *shm, ls_comm_op *op, arrival *a)
{
    if (spin(shm, a) || yield(shm, a)) {
        return LS_OK; /* too short to be worth reading the clock twice */
    }
    shm_look look;
    const ls_wait wait = shm_wait_of(shm, op, UINT32_MAX, &look);
    const uint64_t start_ns = ls_clock_monotonic_ns();
    const ls_wait_result result = ls_wait_for(&shm->control->bell, all_have_come, a, &wait);
    op->wait_ns += ls_clock_monotonic_ns() - start_ns;
    if (result == LS_WAIT_REFUSED && look.has_differing) {
        return fail_differing(shm);
    }
    return result == LS_WAIT_DONE ? LS_OK : shm_fail_wait(op, result, &look);
}

ls_status shm_arrive(ls_shm *shm, ls_comm_op *op, shm_ref in, shm_ref out)
{
    if (shm_is_over(shm)) {
        return take_verdict(shm);
    }
    const uint32_t rank = shm->transport.rank, tick = ++shm->tick;
    shm_flag *mine = &shm->flags[rank];
    mine->offers[tick & 1] = (shm_offer){.fingerprint = op->fingerprint, .in = in, .out = out};
    atomic_store(&mine->tick, tick);

    arrival a = {.shm = shm, .late = rank};
    if (!all_have_come(&a)) {
        LS_TRY(wait_for_others(shm, op, &a));
    } else if (!a.has_differing && atomic_load(&shm->control->bell.sleepers) != 0) {
        ls_word_add(&shm->control->bell, 1);
    }
    op->last_rank = a.late;
    return a.has_differing ? fail_differing(shm) : LS_OK;
}

const shm_offer *shm_offer_of(const ls_shm *shm, uint32_t rank)
{
    return &shm->flags[rank].offers[shm->tick & 1];
}
