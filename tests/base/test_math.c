// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/math.h"

static void clamp_keeps_inside_and_moves_to_the_limits(void **state)
{
    (void)state;
    assert_int_equal(ls_clamp_u64(5, 2, 9), 5);
    assert_int_equal(ls_clamp_u64(1, 2, 9), 2);
    assert_int_equal(ls_clamp_u64(10, 2, 9), 9);
    assert_int_equal(ls_min_u64(3, 4), 3);
    assert_int_equal(ls_max_u64(3, 4), 4);
    assert_int_equal(ls_min_i64(-3, 4), -3);
    assert_int_equal(ls_max_i64(-3, -4), -3);
}

static void round_up_stays_on_multiples(void **state)
{
    (void)state;
    assert_int_equal(ls_round_up_u64(0, 8), 0);
    assert_int_equal(ls_round_up_u64(8, 8), 8);
    assert_int_equal(ls_round_up_u64(9, 8), 16);
    assert_int_equal(ls_round_up_i64(15, 1), 15);
    assert_int_equal(ls_round_up_i64(15, 7), 21);
}

static void quantile_lies_on_the_line_between_neighbours(void **state)
{
    (void)state;
    const double sorted[] = {1.0, 2.0, 4.0, 8.0};
    assert_true(ls_quantile_f64(sorted, 4, 0.0) == 1.0);
    assert_true(ls_quantile_f64(sorted, 4, 1.0) == 8.0);
    assert_true(ls_quantile_f64(sorted, 4, 0.5) == 3.0);
    assert_true(ls_quantile_f64(sorted, 1, 0.9) == 1.0);
}

static void median_sorts_and_takes_the_middle(void **state)
{
    (void)state;
    double odd[] = {9.0, 1.0, 5.0}, even[] = {4.0, 1.0, 3.0, 2.0};
    assert_true(ls_median_f64(odd, 3) == 5.0);
    assert_true(odd[0] == 1.0 && odd[2] == 9.0);
    assert_true(ls_median_f64(even, 4) == 2.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clamp_keeps_inside_and_moves_to_the_limits),
        cmocka_unit_test(round_up_stays_on_multiples),
        cmocka_unit_test(quantile_lies_on_the_line_between_neighbours),
        cmocka_unit_test(median_sorts_and_takes_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
