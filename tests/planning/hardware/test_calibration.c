// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/calibrations.h"

#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static void assert_near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fabs(want)) {
        fail_msg("%.12g, not %.12g", got, want);
    }
}

/* ---- between points ---- */

static void grid_seconds_a_power_law_is_exact_everywhere(void **state)
{
    (void)state;
    const ls_work_info *info = ls_work_info_of(LS_WORK_GEMM_NT);
    const ls_work_grid grid = power_law(&arena, LS_WORK_GEMM_NT, 1e-9);
    const double sizes[][3] = {{16, 16, 16}, {256, 256, 256}, {16, 100, 37},
                               {5, 16, 256}, {4096, 2, 70},   {1e4, 1e4, 1e4}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_near(ls_work_grid_seconds(info, &grid, sizes[i]),
                    1e-9 * sizes[i][0] * sizes[i][1] * sizes[i][2]);
    }
}

static void grid_seconds_beyond_the_last_point_follow_the_axis(void **state)
{
    (void)state;
    const double attention[] = {512, 64}, norm[] = {1024, 99999};
    const ls_work_info *a = ls_work_info_of(LS_WORK_ATTENTION_FORWARD),
                       *n = ls_work_info_of(LS_WORK_NORM_FORWARD);
    ls_work_grid grid = power_law(&arena, LS_WORK_ATTENTION_FORWARD, 1e-9);
    assert_near(ls_work_grid_seconds(a, &grid, attention), 1e-9 * 512 * 512 * 64);
    grid = power_law(&arena, LS_WORK_NORM_FORWARD, 1e-9);
    assert_near(ls_work_grid_seconds(n, &grid, norm), 1e-9 * 1024); /* columns don't matter there */
}

static void grid_seconds_takes_a_kink_from_its_own_segment(void **state)
{
    (void)state;
    double seconds[] = {1e-6, 2e-6, 20e-6};
    const ls_work_grid grid = {.counts = {3, 1, 1}, .points = {{10, 20, 200}}, .seconds = seconds};
    const ls_work_info *info = ls_work_info_of(LS_WORK_COPY);
    const double sizes[] = {10, 20, 63.245553203367585, 200, 400};
    const double want[] = {1e-6, 2e-6, 6.3245553203367585e-6, 20e-6, 40e-6};
    for (size_t i = 0; i < 5; i++) {
        assert_near(ls_work_grid_seconds(info, &grid, &sizes[i]), want[i]);
    }
}

/* ---- between settings ---- */

static void calibration_seconds_by_threads_and_workers(void **state)
{
    (void)state;
    const ls_calibration c = power_machine(&arena);
    const double size = 256.0;
    assert_near(ls_calibration_seconds(&c, 1, 1, LS_WORK_COPY, &size), 256e-9);
    assert_near(ls_calibration_seconds(&c, 1, 4, LS_WORK_COPY, &size), 512e-9);
    assert_near(ls_calibration_seconds(&c, 1, 2, LS_WORK_COPY, &size), 256e-9 * (4.0 / 3.0));
    assert_near(ls_calibration_seconds(&c, 4, 1, LS_WORK_COPY, &size), 64e-9);
    /* half way in powers of 2 */
    assert_near(ls_calibration_seconds(&c, 2, 1, LS_WORK_COPY, &size), 128e-9);
    assert_near(ls_calibration_seconds(&c, 9, 1, LS_WORK_COPY, &size), 64e-9);
}

static void calibration_seconds_more_than_cores_share_them(void **state)
{
    (void)state;
    const ls_calibration c = power_machine(&arena);
    const double size = 256.0;
    assert_near(ls_calibration_seconds(&c, 1, 8, LS_WORK_COPY, &size), 1024e-9);
    assert_near(ls_calibration_seconds(&c, 4, 2, LS_WORK_COPY, &size), 128e-9);
}

static void calibration_seconds_are_never_below_a_launch(void **state)
{
    (void)state;
    ls_calibration c = power_machine(&arena);
    c.settings[0].launch_s = 5e-6;
    const double small = 4.0, large = 1e6;
    assert_near(ls_calibration_seconds(&c, 1, 1, LS_WORK_COPY, &small), 5e-6);
    assert_near(ls_calibration_seconds(&c, 1, 1, LS_WORK_COPY, &large), 1e-3);
}

static void calibration_exchange_between_sizes_and_ranks(void **state)
{
    (void)state;
    ls_calibration c = power_machine(&arena);
    assert_near(ls_calibration_exchange_s(&c, 2, 64), 1e-6);
    assert_near(ls_calibration_exchange_s(&c, 2, 564), 2e-6);
    assert_near(ls_calibration_exchange_s(&c, 7, 8), 1e-6);
    assert_near(ls_calibration_exchange_s(&c, 2, 2128), 6e-6);
    c.exchange_count = 0;
    assert_true(ls_calibration_exchange_s(&c, 2, 64) == 0.0);
}

/* ---- the file ---- */

static ls_status parse(json_t *root, ls_calibration *c)
{
    return ls_calibration_parse(&arena, root, "c.json", c);
}

static void calibration_parse_reads_what_was_written(void **state)
{
    (void)state;
    const ls_calibration c = power_machine(&arena);
    json_t *root = ls_calibration_to_json(&c), *again = NULL;
    ls_calibration read;
    assert_int_equal(parse(root, &read), LS_OK);
    assert_string_equal(read.device, c.device);
    assert_int_equal(read.setting_count, 3);
    assert_int_equal(read.settings[1].workers, 4);
    assert_near(read.disk_read_bytes_ps, 2e9);
    const double sizes[] = {100, 100, 100};
    const double seconds = ls_calibration_seconds(&read, 4, 1, LS_WORK_GEMM_TN, sizes);
    assert_true(fabs(seconds / 0.25e-3 - 1.0) < 1e-3); /* four digits are kept */
    again = ls_calibration_to_json(&read);
    assert_true(json_equal(root, again));
    json_decref(root);
    json_decref(again);
}

/* One thing wrong each; the error says what. */
static void calibration_parse_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *pointer[6], *value, *says;
    } cases[] = {
        {{"format"}, "\"something\"", "not a calibration of version 1"},
        {{"version"}, "2", "not a calibration of version 1"},
        {{"device"}, "7", "device"},
        {{"cores"}, "0", "cores"},
        {{"settings"}, "[]", "\"settings\" has 0 measurements"},
        {{"settings", "0", "threads"}, "2", "the measurement with one thread in one process is missing"},
        {{"settings", "0", "work", "copy"}, "null", "copy was not measured"},
        {{"settings", "0", "work", "copy", "elements"}, "[256, 16]", "number 2 of elements is 16"},
        {{"settings", "0", "work", "copy", "elements"}, "[]", "copy.elements has 0 points"},
        {{"settings", "0", "work", "copy", "seconds"}, "[1e-9]", "has 1 numbers instead of 2"},
        {{"settings", "0", "work", "copy", "seconds"}, "[1e-9, 0]", "number 2 of copy is 0"},
        {{"settings", "0", "work", "copy", "seconds"}, "[1e-9, \"x\"]", "number 2 of copy"},
        {{"settings", "0", "launch_s"}, "-1", "launch_s"},
        {{"exchanges", "0", "ranks"}, "0", "ranks"},
        {{"disk", "write_bytes_ps"}, "\"fast\"", "write_bytes_ps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_calibration c = power_machine(&arena);
        json_t *root = ls_calibration_to_json(&c), *at = root;
        size_t depth = 0;
        for (; cases[i].pointer[depth + 1]; depth++) {
            at = json_is_array(at) ? json_array_get(at, 0) : json_object_get(at, cases[i].pointer[depth]);
        }
        json_object_set_new(at, cases[i].pointer[depth], json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        ls_calibration read = {.cores = 77};
        assert_int_equal(parse(root, &read), LS_ERR_DATA);
        assert_int_equal(read.cores, 77);
        if (!strstr(ls_error_text(), cases[i].says)) {
            fail_msg("case %zu: '%s' has no '%s'", i, ls_error_text(), cases[i].says);
        }
        json_decref(root);
    }
    json_t *array = json_array();
    ls_calibration read;
    assert_int_equal(parse(array, &read), LS_ERR_DATA);
    json_decref(array);
}

static void calibration_is_of_one_machine(void **state)
{
    (void)state;
    const ls_calibration c = power_machine(&arena);
    char why[200] = "";
    assert_true(ls_calibration_is_of(&c, "Paper, generic", 4, "cpu-fma-2", why, sizeof why));
    assert_false(ls_calibration_is_of(&c, "Stone, generic", 4, "cpu-fma-2", why, sizeof why));
    assert_string_equal(why, "it was measured on Paper, generic, this is Stone, generic");
    assert_false(ls_calibration_is_of(&c, "Paper, generic", 8, "cpu-fma-2", why, sizeof why));
    assert_non_null(strstr(why, "4 cores, this machine has 8"));
    assert_false(ls_calibration_is_of(&c, "Paper, generic", 4, "cpu-fma-3", why, sizeof why));
    assert_non_null(strstr(why, "kernels cpu-fma-2"));
}

/* Rough and disturbed measurements say so, survive the file, and widen what is predicted from
 * them. */
static void calibration_doubt_is_kept_and_widens(void **state)
{
    (void)state;
    const struct {
        bool quick;
        double undisturbed, low, high;
        const char *text;
    } cases[] = {
        {false, 1.0, 1.0, 1.0, ""},
        {true, 0.95, 1.0 / 1.5, 1.5, "quick calibration: calibrate again"},
        {false, 0.36, 0.36, 1.0,
         "calibration on a busy machine (it had 36 % of the time): calibrate again when it is quiet"},
        {true, 0.36, 0.24, 1.5,
         "quick calibration on a busy machine (it had 36 % of the time): calibrate again when it is quiet"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_calibration c = power_machine(&arena), read;
        double low = 0.0, high = 0.0;
        char text[160];
        c.quick = cases[i].quick;
        c.undisturbed = cases[i].undisturbed;
        json_t *root = ls_calibration_to_json(&c);
        assert_int_equal(parse(root, &read), LS_OK);
        json_decref(root);
        assert_int_equal(ls_calibration_doubt(&read, text, sizeof text), cases[i].text[0] != '\0');
        assert_string_equal(text, cases[i].text);
        ls_calibration_spread(&read, &low, &high);
        assert_float_equal(low, cases[i].low, 1e-9);
        assert_float_equal(high, cases[i].high, 1e-9);
    }
}

#define arena_case(function) cmocka_unit_test_teardown(function, release_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        arena_case(grid_seconds_a_power_law_is_exact_everywhere),
        arena_case(grid_seconds_beyond_the_last_point_follow_the_axis),
        arena_case(grid_seconds_takes_a_kink_from_its_own_segment),
        arena_case(calibration_seconds_by_threads_and_workers),
        arena_case(calibration_seconds_more_than_cores_share_them),
        arena_case(calibration_seconds_are_never_below_a_launch),
        arena_case(calibration_exchange_between_sizes_and_ranks),
        arena_case(calibration_parse_reads_what_was_written),
        arena_case(calibration_parse_refuses),
        arena_case(calibration_is_of_one_machine),
        arena_case(calibration_doubt_is_kept_and_widens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
