// SPDX-License-Identifier: Apache-2.0
/* Packing: every sample once, no window too full, few left empty. */
#include "test.h"

#include "base/random.h"
#include "data/bins.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW_MAX = 4096 };

/* Packs, checks that each rank of each length is in one window, and returns the share of positions
 * that are filled. */
static double pack(const uint64_t *counts, uint32_t window)
{
    ls_bins *bins = NULL;
    assert_int_equal(ls_bins_create(counts, window, &bins), LS_OK);
    unsigned char *seen[WINDOW_MAX + 1] = {NULL};
    uint64_t total = 0, positions = 0, found = 0;
    for (uint32_t n = 1; n <= window; n++) {
        seen[n] = calloc(counts[n] + 1, 1);
        total += counts[n];
        positions += counts[n] * n;
    }
    for (uint64_t w = 0; w < ls_bins_count(bins); w++) {
        const ls_bins_slot *slots = NULL;
        uint64_t repeat = 0, filled = 0;
        const size_t count = ls_bins_window(bins, w, &slots, &repeat);
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            for (uint32_t k = 0; k < slots[i].count; k++, found++) {
                const uint64_t rank = slots[i].rank + repeat * slots[i].count + k;
                assert_true(rank < counts[slots[i].length]);
                assert_int_equal(seen[slots[i].length][rank]++, 0);
                filled += slots[i].length;
            }
        }
        assert_true(filled <= window);
    }
    assert_int_equal(found, total);
    const double full = total ? (double)positions / (double)ls_bins_count(bins) / window : 0.0;
    for (uint32_t n = 1; n <= window; n++) {
        free(seen[n]);
    }
    ls_bins_destroy(bins);
    return full;
}

static void bins_hold_each_sample_once(void **state)
{
    (void)state;
    uint64_t counts[WINDOW_MAX + 1] = {0};
    counts[10] = 1;
    assert_true(pack(counts, 10) == 1.0);
    counts[10] = 3;
    counts[5] = 5;
    counts[1] = 4;
    pack(counts, 10);
    counts[7] = 1000;
    counts[3] = 1001;
    assert_true(pack(counts, 10) > 0.99);
}

static void bins_of_no_samples_are_empty(void **state)
{
    (void)state;
    const uint64_t counts[9] = {0};
    ls_bins *bins = NULL;
    assert_int_equal(ls_bins_create(counts, 8, &bins), LS_OK);
    assert_int_equal(ls_bins_count(bins), 0);
    ls_bins_destroy(bins);
}

/* Lengths as of conversations: many short ones, few long ones. */
static void bins_are_nearly_full(void **state)
{
    (void)state;
    static const uint32_t windows[] = {1024, 2048, 4096};
    const ls_random_key key = ls_random_stream(1, LS_RANDOM_TEST);
    for (size_t w = 0; w < 3; w++) {
        uint64_t counts[WINDOW_MAX + 1] = {0};
        for (uint64_t i = 0; i < 20000; i++) {
            const double u = ls_random_uniform64(key, i, 0), v = ls_random_uniform64(key, i, 1);
            counts[(uint32_t)(20 + 900 * u * v)]++;
        }
        const double full = pack(counts, windows[w]);
        if (full < 0.99) {
            fail_msg("windows of %u are %.2f %% full", windows[w], 100 * full);
        }
    }
}

/* Two or three samples in a window: each way of packing loses where the other one gains. */
static void bins_of_few_samples_are_packed_the_better_way(void **state)
{
    (void)state;
    enum { WINDOW = 512, SAMPLES = 7000 };
    const ls_random_key key = ls_random_stream(3, LS_RANDOM_TEST);
    uint64_t uneven[WINDOW + 1] = {0}, even[WINDOW + 1] = {0};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        double u[4];
        for (uint64_t k = 0; k < 4; k++) {
            u[k] = ls_random_uniform64(key, i, k);
        }
        uneven[(uint32_t)(75 + 200 * (u[0] * u[1] + u[2] * u[3]))]++;
        even[(uint32_t)(75 + 130 * (u[0] + u[1]) - 25 * u[2])]++;
    }
    assert_true(pack(uneven, WINDOW) > 0.993); /* 0.985 with the most unequal pairs */
    assert_true(pack(even, WINDOW) > 0.973);   /* 0.965 with the most equal ones */
}

static void bins_of_any_lengths_hold(void **state)
{
    (void)state;
    const ls_random_key key = ls_random_stream(2, LS_RANDOM_TEST);
    for (uint64_t round = 0; round < 60; round++) {
        uint64_t counts[WINDOW_MAX + 1] = {0};
        const uint32_t window = 1 + (uint32_t)ls_random_below(key, round, 0, 200);
        for (uint32_t n = 1; n <= window; n++) {
            const uint64_t draw = ls_random_below(key, round, n, 8);
            counts[n] = draw < 4 ? 0 : draw * draw * (1 + ls_random_below(key, round, n + 1000, 9));
        }
        pack(counts, window);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_hold_each_sample_once),
        cmocka_unit_test(bins_of_no_samples_are_empty),
        cmocka_unit_test(bins_are_nearly_full),
        cmocka_unit_test(bins_of_few_samples_are_packed_the_better_way),
        cmocka_unit_test(bins_of_any_lengths_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
