// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting on words in memory shared by processes: first spinning, then sleeping, always with a
 * deadline and always attentive to an abort (invariant I3).
 *
 *   ls_word word;                        in shared memory, zeroed; give a busy word its own cache
 *                                        line
 *   ls_word_post(&word, step);           announces "I have reached `step`" and wakes sleepers
 *   ls_wait_until(&word, step, &wait);   returns when the word has reached `step`
 *
 * Words count upwards and may wrap around: a word has reached a value if their difference, taken as
 * a signed number, is not negative.
 *
 * A wait first checks the word `spins` times with short pauses, then sleeps in FUTEX_WAIT for
 * slices of LS_WAIT_SLICE_NS. Spinning pays only if every waiting process has its own core;
 * ls_wait_spins decides that. After each slice the wait checks the abort word, the deadline, and
 * the caller's own `look` (is the peer alive?).
 *
 * A post costs a system call only if somebody sleeps. No wake-up is lost:
 *
 *   sleeper:  sleepers += 1;   read value;     sleep if still unmet (the futex compares once more)
 *   poster:   store value;     read sleepers;  wake if not 0
 *
 * All four accesses are in one total order, so the sleeper sees the value or the poster sees the
 * sleeper. A process that dies asleep leaves `sleepers` too high: later posts make needless system
 * calls, nothing worse.
 *
 * Thread-safe: many threads and processes may post and wait on one word.
 */
#ifndef LS_COMM_TRANSPORT_WAIT_H
#define LS_COMM_TRANSPORT_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    /* The longest sleep without a check. */
    LS_WAIT_SLICE_NS = 20 * 1000 * 1000,
    /* About 40 us: longer than two ranks drift apart in a step of equal work. */
    LS_WAIT_SPINS = 2000,
    /* deadline_ns of a wait that only an abort or `look` ends. */
    LS_WAIT_NEVER = 0,
};

typedef struct ls_word {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} ls_word;

typedef enum ls_wait_result {
    LS_WAIT_DONE,
    /* The deadline has passed. */
    LS_WAIT_TIMEOUT,
    /* *abort is not 0. */
    LS_WAIT_ABORTED,
    /* `look` returned false. */
    LS_WAIT_REFUSED,
} ls_wait_result;

/* How to wait. All zero: sleep at once, without a deadline and without an abort. */
typedef struct ls_wait {
    /* On CLOCK_MONOTONIC (ls_clock_monotonic_ns), or LS_WAIT_NEVER. */
    uint64_t deadline_ns;
    uint32_t spins;
    /* The wait ends when this is not 0. NULL: no abort. */
    const _Atomic uint32_t *abort;
    /* Called before the first sleep and after each slice; false ends the wait. NULL: not called. */
    bool (*look)(void *context);
    void *context;
} ls_wait;

/* Spins for `waiters` processes of this host that share `cores` cores: 0 if there are more
 * processes than cores. */
uint32_t ls_wait_spins(uint32_t waiters, uint32_t cores);
/* Number of cores on which this process may run. */
uint32_t ls_wait_cores(void);

/* Between two checks of a word: leaves the core to its other hardware thread. */
static inline void ls_wait_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Stores `value` and wakes sleepers. A process that sees the value also sees everything written
 * before the call. */
void ls_word_post(ls_word *word, uint32_t value);
/* Adds `delta`, returns the new value, wakes sleepers. */
uint32_t ls_word_add(ls_word *word, uint32_t delta);
/* Wakes sleepers without changing the word, so that they check the abort word at once. */
void ls_word_wake(ls_word *word);

static inline uint32_t ls_word_get(const ls_word *word)
{
    return atomic_load_explicit(&word->value, memory_order_acquire);
}

static inline bool ls_word_reached(const ls_word *word, uint32_t value)
{
    return (int32_t)(ls_word_get(word) - value) >= 0;
}

/* Waits until the word has reached `value`. */
ls_wait_result ls_wait_until(ls_word *word, uint32_t value, const ls_wait *wait);

/* Waits until met(context) is true. Whenever the condition may have become true, `word` must have
 * changed; it may also change at other times. */
ls_wait_result ls_wait_for(ls_word *word, bool (*met)(void *context), void *context, const ls_wait *wait);

#endif
