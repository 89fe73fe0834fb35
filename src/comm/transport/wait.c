// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/wait.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint32_t ls_wait_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (uint32_t)cores : 1;
}

uint32_t ls_wait_spins(uint32_t waiters, uint32_t cores)
{
    return waiters <= cores ? LS_WAIT_SPINS : 0;
}

/* ---- posting ---- */

static void wake_all(ls_word *word)
{
    /* Without FUTEX_PRIVATE_FLAG: the sleepers are in other processes. */
    syscall(SYS_futex, &word->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ls_word_wake(ls_word *word)
{
    if (atomic_load(&word->sleepers) != 0) {
        wake_all(word);
    }
}

void ls_word_post(ls_word *word, uint32_t value)
{
    atomic_store(&word->value, value);
    ls_word_wake(word);
}

uint32_t ls_word_add(ls_word *word, uint32_t delta)
{
    const uint32_t value = atomic_fetch_add(&word->value, delta) + delta;
    ls_word_wake(word);
    return value;
}

/* ---- waiting ---- */

static bool is_aborted(const ls_wait *wait)
{
    return wait->abort && atomic_load_explicit(wait->abort, memory_order_acquire) != 0;
}

/* The reason to end a wait whose condition is not met; LS_WAIT_DONE: there is none. */
static ls_wait_result look_around(const ls_wait *wait)
{
    if (is_aborted(wait)) {
        return LS_WAIT_ABORTED;
    }
    if (wait->look && !wait->look(wait->context)) {
        return LS_WAIT_REFUSED;
    }
    if (wait->deadline_ns != LS_WAIT_NEVER && ls_clock_monotonic_ns() >= wait->deadline_ns) {
        return LS_WAIT_TIMEOUT;
    }
    return LS_WAIT_DONE;
}

static void sleep_slice(ls_word *word, uint32_t seen, const ls_wait *wait)
{
    uint64_t slice_ns = LS_WAIT_SLICE_NS;
    if (wait->deadline_ns != LS_WAIT_NEVER) {
        const uint64_t now_ns = ls_clock_monotonic_ns();
        const uint64_t left_ns = wait->deadline_ns > now_ns ? wait->deadline_ns - now_ns : 0;
        slice_ns = left_ns < slice_ns ? left_ns : slice_ns;
    }
    const struct timespec slice = {.tv_nsec = (long)slice_ns};
    syscall(SYS_futex, &word->value, FUTEX_WAIT, seen, &slice, NULL, 0);
}

ls_wait_result ls_wait_for(ls_word *word, bool (*met)(void *context), void *context, const ls_wait *wait)
{
    for (uint32_t i = 0; i <= wait->spins; i++) {
        if (met(context)) {
            return LS_WAIT_DONE;
        }
        ls_wait_pause();
    }
    for (;;) {
        const ls_wait_result ended = look_around(wait);
        if (ended != LS_WAIT_DONE) {
            /* What is waited for may have happened just before the reason to give up. */
            return met(context) ? LS_WAIT_DONE : ended;
        }
        atomic_fetch_add(&word->sleepers, 1);
        /* Orders the count before the last check, whichever loads `met` uses. */
        atomic_thread_fence(memory_order_seq_cst);
        const uint32_t seen = atomic_load(&word->value);
        bool is_met = met(context);
        if (!is_met && !is_aborted(wait)) {
            sleep_slice(word, seen, wait);
            is_met = met(context);
        }
        atomic_fetch_sub(&word->sleepers, 1);
        if (is_met) {
            return LS_WAIT_DONE;
        }
    }
}

typedef struct reach {
    const ls_word *word;
    uint32_t value;
} reach;

static bool is_reached(void *context)
{
    const reach *r = context;
    return ls_word_reached(r->word, r->value);
}

ls_wait_result ls_wait_until(ls_word *word, uint32_t value, const ls_wait *wait)
{
    return ls_wait_for(word, is_reached, &(reach){.word = word, .value = value}, wait);
}
