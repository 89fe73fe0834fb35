// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/accuracy/own_runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static const ls_own_run_row some_row = {.time = "2026-11-21T20:30:00Z",
                                        .run = "small",
                                        .model = "llama",
                                        .device = "Paper, generic",
                                        .calibration = "2026-11-21T20:10:00Z",
                                        .parameters = 10738560,
                                        .layers = 6,
                                        .width = 384,
                                        .ranks = 2,
                                        .threads = 1,
                                        .tokens_per_step = 1024,
                                        .steps = 500,
                                        .predicted = {0.25, 4096.0, 3e8, 0.5},
                                        .measured = {0.5, 2048.0, 2e8, NAN}};

static void own_runs_parse_reads_what_was_written(void **state)
{
    (void)state;
    ls_own_run_row bare = some_row, *rows = NULL;
    bare.calibration = NULL;
    bare.predicted = (ls_own_run_side){NAN, NAN, 3e8, NAN};
    json_t *objects[] = {ls_own_run_to_json(&some_row), ls_own_run_to_json(&bare)};
    char text[4096] = "";
    for (int i = 0; i < 2; i++) {
        char *line = json_dumps(objects[i], JSON_COMPACT);
        strcat(text, line);
        strcat(text, "\n");
        free(line);
        json_decref(objects[i]);
    }
    size_t count = 0, bad = 0;
    ls_own_runs_parse(&arena, text, strlen(text), &rows, &count, &bad);
    assert_int_equal(count, 2);
    assert_int_equal(bad, 0);
    assert_string_equal(rows[0].calibration, some_row.calibration);
    assert_int_equal(rows[0].parameters, 10738560);
    assert_true(rows[0].predicted.step_s == 0.25 && rows[0].measured.step_s == 0.5);
    assert_true(isnan(rows[0].measured.checkpoint_stall_s));
    assert_null(rows[1].calibration);
    assert_true(isnan(rows[1].predicted.step_s) && rows[1].predicted.memory_bytes == 3e8);
}

static void own_runs_parse_leaves_out_what_is_torn(void **state)
{
    (void)state;
    static const char text[] = "{\"time\": \"t\", \"run\": \"a\", \"model\": \"llama\", \"device\": \"d\", "
                               "\"measured\": {\"step_s\": 1}}\n"
                               "\n"
                               "{\"time\": \"t\", \"run\": \"b\", \"model\": \"llama\", \"device\": \"d\", "
                               "\"measured\": {\"step_s\": -1}}\n"
                               "[1, 2]\n"
                               "\0\0\0\n"
                               "{\"time\": \"t\", \"run\": \"c\", \"model\": \"llama\", \"device\": \"d\", "
                               "\"measured\": {\"step_s\": 2}}\n"
                               "{\"time\": \"t\", \"run\": \"cut of";
    ls_own_run_row *rows = NULL;
    size_t count = 0, bad = 0;
    ls_own_runs_parse(&arena, text, sizeof text - 1, &rows, &count, &bad);
    assert_int_equal(count, 2);
    assert_int_equal(bad, 4);
    assert_string_equal(rows[1].run, "c");
    ls_own_runs_parse(&arena, "", 0, &rows, &count, &bad);
    assert_int_equal(count + bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(own_runs_parse_reads_what_was_written, release_arena),
        cmocka_unit_test_teardown(own_runs_parse_leaves_out_what_is_torn, release_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
