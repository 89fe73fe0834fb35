// SPDX-License-Identifier: Apache-2.0
/*
 * Clocks for measuring. The control plane does not use these: it asks its env (env/env.h), so that
 * it can be simulated.
 */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic nanoseconds since an arbitrary point. */
static inline uint64_t ls_clock_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Monotonic seconds since an arbitrary point. */
static inline double ls_clock_monotonic_s(void)
{
    return 1e-9 * (double)ls_clock_monotonic_ns();
}

/* Nanoseconds since the machine was started, the time it was suspended included. */
static inline uint64_t ls_clock_boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The same in seconds. */
static inline double ls_clock_boot_s(void)
{
    return 1e-9 * (double)ls_clock_boot_ns();
}

/* Seconds that this thread has used a processor. */
static inline double ls_clock_thread_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds since 1970 (UTC), for time stamps that people and other programs read. */
static inline double ls_clock_wall_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
