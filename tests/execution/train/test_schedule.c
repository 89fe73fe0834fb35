// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/train/schedule.h"

#include <math.h>

static ls_schedule schedule_of(ls_schedule_kind kind)
{
    return (ls_schedule){.kind = kind,
                         .lr = 1.0,
                         .steps = 100,
                         .warmup_steps = 10,
                         .final_fraction = 0.1,
                         .decay_fraction = 0.2};
}

static void schedule_lr_warms_up_in_equal_steps(void **state)
{
    (void)state;
    for (int kind = LS_SCHEDULE_COSINE; kind <= LS_SCHEDULE_WSD; kind++) {
        const ls_schedule s = schedule_of((ls_schedule_kind)kind);
        assert_float_equal(ls_schedule_lr(&s, 0), 0.1, 1e-12);
        assert_float_equal(ls_schedule_lr(&s, 4), 0.5, 1e-12);
        assert_float_equal(ls_schedule_lr(&s, 9), 1.0, 1e-12);
        assert_float_equal(ls_schedule_lr(&s, 10), 1.0, 1e-12);
    }
}

static void schedule_lr_cosine_is_a_cosine(void **state)
{
    (void)state;
    const ls_schedule s = schedule_of(LS_SCHEDULE_COSINE);
    for (uint64_t step = 10; step <= 120; step++) {
        const double x = step >= 100 ? 1.0 : (double)(step - 10) / 90.0;
        const double want = 0.1 + 0.9 * 0.5 * (1.0 + cos(3.14159265358979323846 * x));
        assert_float_equal(ls_schedule_lr(&s, step), want, 1e-13);
    }
}

static void schedule_lr_linear_halves_in_the_middle(void **state)
{
    (void)state;
    const ls_schedule s = schedule_of(LS_SCHEDULE_LINEAR);
    assert_float_equal(ls_schedule_lr(&s, 55), 0.55, 1e-12);
    assert_float_equal(ls_schedule_lr(&s, 100), 0.1, 1e-12);
    assert_float_equal(ls_schedule_lr(&s, 1000), 0.1, 1e-12);
}

static void schedule_lr_wsd_stays_then_decays(void **state)
{
    (void)state;
    const ls_schedule s = schedule_of(LS_SCHEDULE_WSD);
    assert_float_equal(ls_schedule_lr(&s, 80), 1.0, 1e-12);
    assert_float_equal(ls_schedule_lr(&s, 90), 0.55, 1e-12);
    assert_float_equal(ls_schedule_lr(&s, 100), 0.1, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule_lr_warms_up_in_equal_steps),
        cmocka_unit_test(schedule_lr_cosine_is_a_cosine),
        cmocka_unit_test(schedule_lr_linear_halves_in_the_middle),
        cmocka_unit_test(schedule_lr_wsd_stays_then_decays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
