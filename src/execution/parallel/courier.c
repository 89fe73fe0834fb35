// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/courier.h"

#include "base/assert.h"
#include "execution/executor/crew.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t GIVEN_UP = UINT64_MAX; /* instead of a number of bytes */

typedef struct letter {
    uint64_t attempt, fingerprint, bytes;
} letter;

struct ls_courier {
    ls_comm *comm;
    uint32_t peer;
    bool sends, has_thread;
    ls_courier_channel channel;
    pthread_t thread;
    ls_word looks; /* something has changed for the thread */
    _Atomic bool quits;
    pthread_mutex_t lock;
    /* With the lock held: the stage's attempt, whether it has given it up, and the values carried
     * in it. */
    uint64_t attempt, fingerprint;
    bool gives_up;
    uint32_t carried;
    /* The attempt that the other end has given up. */
    _Atomic uint64_t given_up;
    /* Of the thread's failure: the text before the status. */
    _Atomic uint32_t status;
    char text[512];
};

static void fail(ls_courier *c, ls_status status)
{
    snprintf(c->text, sizeof c->text, "%s", ls_error_text());
    atomic_store(&c->status, (uint32_t)status);
}

static char *place_of(const ls_courier *c, uint32_t number)
{
    return c->channel.values + number % LS_CREW_SENDS_AHEAD * c->channel.value_bytes;
}

/* ---- sending ---- */

/* What is to be sent next: true with the letter and the number of its value. */
static bool next_letter(ls_courier *c, uint64_t *told, letter *out, uint32_t *number_out)
{
    pthread_mutex_lock(&c->lock);
    const uint32_t number = c->carried + 1;
    const bool tells = c->gives_up && *told != c->attempt;
    const bool is_sent = !c->gives_up && c->attempt > 0 && ls_word_reached(c->channel.sent, number);
    *out = (letter){.attempt = c->attempt, .fingerprint = c->fingerprint, .bytes = GIVEN_UP};
    if (is_sent) {
        out->bytes = atomic_load(&c->channel.bytes[number % LS_CREW_SENDS_AHEAD]);
    }
    *told = tells ? c->attempt : *told;
    *number_out = number;
    pthread_mutex_unlock(&c->lock);
    return tells || is_sent;
}

/* The value has left this host, or has arrived: the other word of the channel follows. */
static void finish(ls_courier *c, uint64_t attempt, uint32_t number)
{
    pthread_mutex_lock(&c->lock);
    if (c->attempt == attempt) {
        c->carried = number;
        ls_word_post(c->sends ? c->channel.received : c->channel.sent, number);
    }
    pthread_mutex_unlock(&c->lock);
}

static ls_status send_letters(ls_courier *c)
{
    uint64_t told = 0;
    while (!atomic_load(&c->quits)) {
        const uint32_t seen = ls_word_get(&c->looks);
        letter head;
        uint32_t number;
        if (!next_letter(c, &told, &head, &number)) {
            (void)ls_wait_until(&c->looks, seen + 1, &(ls_wait){0});
            continue;
        }
        LS_TRY(ls_comm_send(c->comm, &head, sizeof head, LS_U8, c->peer, NULL));
        if (head.bytes != GIVEN_UP) {
            LS_TRY(ls_comm_send(c->comm, place_of(c, number), head.bytes, LS_U8, c->peer, NULL));
            finish(c, head.attempt, number);
        }
    }
    return LS_OK;
}

/* ---- receiving ---- */

typedef enum what { KEEP, TAKE, DROP, MISMATCH } what;

/* KEEP: until the stage has entered the attempt, or has made place. */
static what judge(ls_courier *c, const letter *head)
{
    pthread_mutex_lock(&c->lock);
    const uint32_t number = c->carried + 1;
    const bool has_place = ls_word_reached(c->channel.received, number - LS_CREW_SENDS_AHEAD);
    const what is = head->attempt > c->attempt                  ? KEEP
                    : head->attempt < c->attempt || c->gives_up ? DROP
                    : head->fingerprint != c->fingerprint       ? MISMATCH
                    : head->bytes == GIVEN_UP || has_place      ? TAKE
                                                                : KEEP;
    pthread_mutex_unlock(&c->lock);
    return is;
}

/* A value that is dropped may overwrite a place: the stage has left the attempt and reads none. */
static ls_status receive_value(ls_courier *c, const letter *head, what is)
{
    pthread_mutex_lock(&c->lock);
    const uint32_t number = c->carried + 1;
    pthread_mutex_unlock(&c->lock);
    if (head->bytes > c->channel.value_bytes) {
        return ls_fail(LS_ERR_MISMATCH,
                       "a value of %llu bytes came from another host, where %llu is the most",
                       (unsigned long long)head->bytes, (unsigned long long)c->channel.value_bytes);
    }
    LS_TRY(ls_comm_receive(c->comm, place_of(c, number), head->bytes, LS_U8, c->peer, NULL));
    if (is == TAKE) {
        atomic_store(&c->channel.bytes[number % LS_CREW_SENDS_AHEAD], head->bytes);
        finish(c, head->attempt, number);
    }
    return LS_OK;
}

static ls_status receive_letters(ls_courier *c)
{
    while (!atomic_load(&c->quits)) {
        letter head;
        LS_TRY(ls_comm_receive(c->comm, &head, sizeof head, LS_U8, c->peer, NULL));
        what is = KEEP;
        while (is == KEEP && !atomic_load(&c->quits)) {
            const uint32_t seen = ls_word_get(&c->looks);
            is = judge(c, &head);
            if (is == KEEP) {
                (void)ls_wait_until(&c->looks, seen + 1, &(ls_wait){0});
            }
        }
        if (is == MISMATCH) {
            return ls_fail(LS_ERR_MISMATCH,
                           "stages on two hosts are not in the same step with the same settings: all ranks "
                           "must be started from one run file by one binary");
        }
        if (is != KEEP && head.bytes != GIVEN_UP) {
            LS_TRY(receive_value(c, &head, is));
        } else if (is == TAKE) {
            atomic_store(&c->given_up, head.attempt);
        }
    }
    return LS_OK;
}

/* ---- life ---- */

static void *serve(void *context)
{
    ls_courier *c = context;
    const ls_status status = c->sends ? send_letters(c) : receive_letters(c);
    if (status != LS_OK) {
        fail(c, status);
    }
    return NULL;
}

ls_status ls_courier_open(ls_comm *comm, uint32_t peer, bool sends, ls_courier_channel channel,
                          ls_courier **courier_out)
{
    ls_courier *c = calloc(1, sizeof *c);
    if (!c) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the values that stages send to another host");
    }
    c->comm = comm;
    c->peer = peer;
    c->sends = sends;
    c->channel = channel;
    pthread_mutex_init(&c->lock, NULL);
    sigset_t all, before;
    sigfillset(&all); /* signals go to the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->has_thread = pthread_create(&c->thread, NULL, serve, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!c->has_thread) {
        ls_courier_close(c);
        return ls_fail(LS_ERR_MEMORY,
                       "cannot start a thread for the values that stages send to another host");
    }
    *courier_out = c;
    return LS_OK;
}

void ls_courier_close(ls_courier *c)
{
    if (!c) {
        return;
    }
    if (c->has_thread) {
        atomic_store(&c->quits, true);
        ls_courier_look(c);
        ls_comm_abort(c->comm, "a stage ended");
        pthread_join(c->thread, NULL);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- for the stage ---- */

void ls_courier_enter(ls_courier *c, uint64_t attempt, uint64_t fingerprint)
{
    pthread_mutex_lock(&c->lock);
    c->attempt = attempt;
    c->fingerprint = fingerprint;
    c->gives_up = false;
    c->carried = 0;
    ls_word_post(c->channel.sent, 0);
    ls_word_post(c->channel.received, 0);
    pthread_mutex_unlock(&c->lock);
    ls_courier_look(c);
}

void ls_courier_look(ls_courier *c)
{
    ls_word_add(&c->looks, 1);
}

void ls_courier_give_up(ls_courier *c)
{
    pthread_mutex_lock(&c->lock);
    c->gives_up = true;
    pthread_mutex_unlock(&c->lock);
    ls_courier_look(c);
}

bool ls_courier_is_given_up(const ls_courier *c)
{
    return c->attempt > 0 && atomic_load(&c->given_up) == c->attempt;
}

ls_status ls_courier_status(const ls_courier *c)
{
    const ls_status status = (ls_status)atomic_load(&c->status);
    return status == LS_OK ? LS_OK : ls_fail(status, "%s", c->text);
}
