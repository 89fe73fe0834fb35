// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting on words in memory that processes share: spin, then sleep, never past a deadline and never on an abort unseen (DESIGN I3).
 *
 *   ls_word word;                                       in the shared memory, zeroed; a cache line of its own where it is busy
 *   ls_word_post(&word, step);                          "I have reached `step`"; wakes whoever sleeps
 *   ls_wait_until(&word, step, &wait)                   returns when the word has reached `step`
 *
 * Words count upwards and may wrap: reached means that the difference, taken as a signed number, is not negative.
 *
 * How a wait goes: `spins` looks with a pause between them, then FUTEX_WAIT in slices of
 * LS_WAIT_SLICE_NS. Spinning pays only when every waiting process has a core of its own; ls_wait_spins decides that. After each slice the
 * wait looks at the abort word, the deadline, and the caller's own look (is the peer alive?). A post costs a system call only when
 * somebody sleeps: the sleeper counts itself before its last look, the poster stores before it looks at the count, both in one total order.
 * A process that dies asleep leaves the count too high, which costs system calls and nothing else.
 *
 * Thread-safe: all of this is for words that many write.
 */
#ifndef LS_EXECUTION_COMM_WAIT_H
#define LS_EXECUTION_COMM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    LS_WAIT_SLICE_NS = 20 * 1000 * 1000, /* the longest sleep without a look */
    LS_WAIT_SPINS = 2000, /* some 40 us: longer than two ranks are apart in a step of equal work */
    LS_WAIT_NEVER = 0,    /* deadline_ns of a wait that only an abort or the look ends */
};

typedef struct ls_word {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} ls_word;

typedef enum ls_wait_result {
    LS_WAIT_DONE,
    LS_WAIT_TIMEOUT, /* the deadline came */
    LS_WAIT_ABORTED, /* *abort is not 0 */
    LS_WAIT_REFUSED, /* look said so */
} ls_wait_result;

/* How to wait. A zeroed one sleeps at once and has neither deadline nor abort. */
typedef struct ls_wait {
    uint64_t deadline_ns; /* CLOCK_MONOTONIC (ls_clock_monotonic_ns); LS_WAIT_NEVER: none */
    uint32_t spins;
    const _Atomic uint32_t *abort; /* ends the wait when it becomes anything but 0; NULL: none */
    bool (*look)(
        void *
            context); /* called before the first sleep and after each slice; false ends the wait; NULL: none */
    void *context;
} ls_wait;

/* Spins that suit `waiters` processes on this host which may run on `cores`: none when they are more than the cores. */
uint32_t ls_wait_spins(uint32_t waiters, uint32_t cores);
/* Cores that this process may run on. */
uint32_t ls_wait_cores(void);

/* Between two looks at a word: lets the processor do something else. */
static inline void ls_wait_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Stores `value` and wakes sleepers. What was written before is seen by who sees the value. */
void ls_word_post(ls_word *word, uint32_t value);
/* Adds `delta`, returns the new value, wakes sleepers. */
uint32_t ls_word_add(ls_word *word, uint32_t delta);
/* Wakes sleepers without a change, so that they look at the abort word at once. */
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

/* The same for a condition over many words that all end in a change of `word` (which may change without it). */
ls_wait_result ls_wait_for(ls_word *word, bool (*met)(void *context), void *context, const ls_wait *wait);

#endif
