// SPDX-License-Identifier: Apache-2.0
/*
 * Small numeric helpers: least, largest, clamp, round up; sorting, quantile and median of doubles.
 *
 * Pure functions, safe to call from any thread.
 */
#ifndef LS_BASE_MATH_H
#define LS_BASE_MATH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t ls_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t ls_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline int64_t ls_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ls_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* `value` moved into [low, high]; low <= high. */
static inline uint64_t ls_clamp_u64(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The smallest multiple of `unit` that is >= value; unit >= 1. The result must fit. */
static inline uint64_t ls_round_up_u64(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* The same for value >= 0. */
static inline int64_t ls_round_up_i64(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Sorts in place, smallest first. The values must not contain NAN. */
void ls_sort_f64(double *values, size_t count);

/*
 * Quantile of sorted values by linear interpolation between neighbours: share 0 is the first value,
 * 1 the last, 0.5 the median. count >= 1, 0 <= share <= 1.
 */
double ls_quantile_f64(const double *sorted, size_t count, double share);

/* Median; sorts `values` in place. If the count is even, the mean of the two middle values.
 * count >= 1. */
double ls_median_f64(double *values, size_t count);

#endif
