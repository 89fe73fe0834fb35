// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/calibrate/calibrate.h"
#include "execution/calibrate/probe.h"

#include <math.h>

static void settled_counts_what_is_near_the_fastest(void **state)
{
    (void)state;
    const double one[] = {3.0}, many[] = {9.0, 1.04, 1.0, 1.2, 50.0, 1.09};
    assert_true(ls_calibrate_settled_s(one, 1) == 3.0);
    assert_true(fabs(ls_calibrate_settled_s(many, 6) - (1.0 + 1.04 + 1.09) / 3.0) < 1e-12);
}

/* A small and an odd size; targets of cross entropy are below 256. */
static void sizes_for(ls_work work, bool odd, double sizes_out[LS_WORK_AXES_MAX])
{
    const bool is_attention = work == LS_WORK_ATTENTION_FORWARD || work == LS_WORK_ATTENTION_BACKWARD;
    sizes_out[0] = is_attention ? (odd ? 33 : 16) : odd ? 2100 : 4096;
    sizes_out[1] = work == LS_WORK_CROSS_ENTROPY ? (odd ? 300 : 256) : odd && !is_attention ? 3 : 16;
    sizes_out[2] = odd ? 48 : 64;
}

/* Nine calls use the window twice, so that a sanitizer would see an overrun. */
static void try_kernel(ls_probe_bench *bench, ls_work work, bool odd)
{
    double sizes[LS_WORK_AXES_MAX], seconds = -1.0;
    sizes_for(work, odd, sizes);
    assert_int_equal(ls_probe_begin(bench, work, sizes), LS_OK);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(ls_probe_run(bench, 0.0, &seconds), LS_OK);
        assert_true(seconds > 0.0 && seconds < 60.0);
    }
}

static void probe_runs_every_kernel(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        ls_probe_bench *bench = NULL;
        assert_int_equal(ls_probe_bench_create(threads, threads > 1, &bench), LS_OK);
        for (int work = 0; work < LS_WORK_COUNT; work++) {
            try_kernel(bench, (ls_work)work, false);
            try_kernel(bench, (ls_work)work, true);
        }
        assert_true(ls_probe_launch_s(bench) >= 0.0);
        assert_true(ls_probe_undisturbed(bench) > 0.0 && ls_probe_undisturbed(bench) <= 1.0);
        ls_probe_bench_destroy(bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settled_counts_what_is_near_the_fastest),
        cmocka_unit_test(probe_runs_every_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
