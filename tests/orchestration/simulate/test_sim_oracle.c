// SPDX-License-Identifier: Apache-2.0
/* Pooled mode against the table of another implementation, on Philly's trace. Needs the shared
 * data, and is skipped without them. */
#include "test.h"

#include "base/file.h"
#include "orchestration/simulate/pooled.h"
#include "orchestration/simulate/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SKIPPED = 77 };

static ls_arena arena;

/* The folder of test files that are not part of the product. */
static const char *shared_data(void)
{
    const char *given = getenv("LS_SHARED_DATA");
    return given ? given : LS_SOURCE_DIR "/../shared/data";
}

/* Average JCT and wait, 99 % of waits, of an oracle written independently; its printed digits, some
 * of them rounded twice (3.3745 -> 3.375 -> 3.38). */
static const struct {
    uint32_t gpus;
    double jct_wait_p99[LS_POOLED_COUNT][3];
} table[] = {
    {384,
     {{464.1, 460.5, 712},
      {162.6, 159.0, 648},
      {428.8, 425.2, 694},
      {14.79, 11.14, 106},
      {15.04, 11.39, 106}}},
    {512,
     {{135.8, 132.2, 242}, {36.4, 32.8, 147}, {121.3, 117.6, 232}, {7.02, 3.38, 25.1}, {6.89, 3.25, 24.5}}},
    {640,
     {{12.86, 9.21, 36.1}, {7.96, 4.31, 30.5}, {10.94, 7.29, 33.2}, {4.83, 1.18, 12.3}, {4.84, 1.19, 12.5}}},
};

static void pooled_run_gives_the_oracle_table_on_philly(void **state)
{
    (void)state;
    const char *path = ls_path_join(&arena, shared_data(), "philly.csv");
    ls_trace trace;
    assert_int_equal(ls_trace_load(&arena, path, LS_TRACE_AUTO, &trace), LS_OK);
    assert_int_equal(trace.format, LS_TRACE_PHILLY);
    assert_int_equal(trace.job_count, 82247);
    for (size_t row = 0; row < sizeof table / sizeof table[0]; row++) {
        for (ls_pooled_policy policy = 0; policy < LS_POOLED_COUNT; policy++) {
            ls_arena work = {0};
            ls_sim_run run;
            ls_sim_summary s;
            ls_pooled_run(&work, &trace, table[row].gpus, policy, &run);
            ls_sim_summarise(&work, &run, &s);
            const double *printed = table[row].jct_wait_p99[policy];
            const double got[] = {s.all.jct_h, s.all.wait_h, s.all.wait_p99_h};
            for (int i = 0; i < 3; i++) {
                /* The table has one digit behind the point from 100 h on, or none. */
                const double unit = i == 2 && printed[i] >= 100.0  ? 1.0
                                    : i == 2 || printed[0] >= 30.0 ? 0.1
                                                                   : 0.01;
                if (fabs(got[i] - printed[i]) > 0.56 * unit) {
                    fail_msg("%u GPUs, %s: %.4f, the table has %.2f", table[row].gpus, run.policy, got[i],
                             printed[i]);
                }
            }
            ls_arena_release(&work);
        }
    }
}

int main(void)
{
    const char *path = ls_path_join(&arena, shared_data(), "philly.csv");
    const bool there = ls_path_exists(path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooled_run_gives_the_oracle_table_on_philly),
    };
    if (!there) {
        printf("skipped: no %s\n", path);
    }
    const int failed = there ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
    ls_arena_release(&arena);
    return failed;
}
