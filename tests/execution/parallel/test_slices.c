// SPDX-License-Identifier: Apache-2.0
/*
 * Slices of buckets: every float has one owner, norm blocks are whole, shares are even.
 */
#include "test.h"

#include "compute/kernels/elementwise.h"
#include "execution/parallel/slices.h"

static void layout_of(ls_layout *layout, ls_bucket *buckets, const int64_t *counts, uint32_t bucket_count)
{
    *layout = (ls_layout){.buckets = buckets, .bucket_count = bucket_count};
    for (uint32_t b = 0; b < bucket_count; b++) {
        buckets[b] = (ls_bucket){.offset = layout->float_count, .count = counts[b]};
        layout->float_count += counts[b];
    }
}

static void check(const ls_layout *layout, uint32_t ranks)
{
    int64_t next = 0, next_block = 0, shares[1024] = {0};
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        const int64_t end = layout->buckets[b].offset + layout->buckets[b].count;
        int64_t fewest = INT64_MAX, most = 0;
        assert_int_equal(ls_blocks_before(layout, b), next_block);
        for (uint32_t r = 0; r < ranks; r++) {
            const ls_slice s = ls_slice_of(layout, b, ranks, r);
            assert_int_equal(s.first_block, next_block);
            assert_int_equal(s.block_count, (s.count + LS_NORM_BLOCK - 1) / LS_NORM_BLOCK);
            if (s.count > 0) {
                assert_int_equal(s.offset, next);
                assert_int_equal((s.offset - layout->buckets[b].offset) % LS_NORM_BLOCK, 0);
                assert_true(s.count % LS_NORM_BLOCK == 0 || s.offset + s.count == end);
            }
            next += s.count;
            next_block += s.block_count;
            shares[r] += s.block_count;
            fewest = s.block_count < fewest ? s.block_count : fewest;
            most = s.block_count > most ? s.block_count : most;
        }
        assert_int_equal(next, end);
        assert_true(most - fewest <= 1);
    }
    int64_t fewest = INT64_MAX, most = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        fewest = shares[r] < fewest ? shares[r] : fewest;
        most = shares[r] > most ? shares[r] : most;
    }
    assert_true(most - fewest <= 1);
    assert_int_equal(next, layout->float_count);
}

static void slice_of_gives_every_block_one_owner(void **state)
{
    (void)state;
    const int64_t models[][6] = {
        {1024, 1024, 1024, 1024, 1024, 1024},
        {4096, 8192, 12288, 4096, 1024, 2048},
        {98304, 1772544, 1772544, 1772544, 1772544, 1024},
        {4096 * 7 + 1024, 4096 * 5, 1024, 4096 * 1000 + 3072, 4096, 4096 * 3},
    };
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        ls_layout layout;
        ls_bucket buckets[6];
        layout_of(&layout, buckets, models[m], 6);
        for (uint32_t ranks = 1; ranks <= 1024; ranks += ranks < 70 ? 1 : 53) {
            check(&layout, ranks);
        }
        check(&layout, 1024);
    }
}

static void slice_of_the_drawing(void **state)
{
    (void)state;
    ls_layout layout;
    ls_bucket buckets[3];
    layout_of(&layout, buckets, (int64_t[]){5 * 4096, 5 * 4096, 1024}, 3);
    const int64_t want[3][3] = {{2, 2, 1}, {2, 1, 2}, {0, 1, 0}};
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(ls_slice_of(&layout, b, 3, r).block_count, want[b][r]);
        }
    }
    assert_int_equal(ls_slice_of(&layout, 2, 3, 1).count, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slice_of_gives_every_block_one_owner),
        cmocka_unit_test(slice_of_the_drawing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
