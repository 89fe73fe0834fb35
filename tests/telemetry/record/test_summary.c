// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/run_dir.h"

#include "telemetry/record/summary.h"

#include <math.h>

static ls_summary some_summary(void)
{
    return (ls_summary){.run = "small",
                        .run_dir = "runs/small",
                        .status = "finished",
                        .step = 20,
                        .steps = 20,
                        .loss = 1.5,
                        .val_loss = NAN,
                        .val_loss_per_byte = NAN,
                        .tokens = 2000,
                        .tokens_per_s = 400.0,
                        .mfu = NAN,
                        .hfu = NAN,
                        .peak_rss_bytes = 3u << 20,
                        .wall_s = 5.5,
                        .first_step_s = 0.25,
                        .goodput = 0.9,
                        .curve_hash = "abc",
                        .predicted_memory_bytes = 2u << 20,
                        .predicted_step_s = NAN};
}

static void summary_has_every_member_of_the_design(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "run",          "status",     "code",      "step",     "loss",    "val_loss",       "tokens",
        "tokens_per_s", "mfu",        "hfu",       "wall_s",   "goodput", "peak_rss_bytes", "state_hash",
        "curve_hash",   "recoveries", "predicted", "cost_usd", "energy_j"};
    const ls_summary summary = some_summary();
    json_t *object = ls_summary_to_json(&summary);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        assert_non_null(json_object_get(object, keys[i]));
    }
    assert_true(json_is_null(json_object_get(object, "val_loss")));
    assert_true(json_is_null(json_object_get(object, "mfu")));
    assert_true(json_is_null(json_object_get(object, "state_hash")));
    assert_true(json_is_null(json_object_get(object, "cost_usd")));
    assert_int_equal(json_array_size(json_object_get(object, "recoveries")), 0);
    const json_t *predicted = json_object_get(object, "predicted");
    assert_int_equal(json_integer_value(json_object_get(predicted, "memory_bytes")), 2 << 20);
    assert_true(json_is_null(json_object_get(predicted, "step_s")));
    json_decref(object);
}

static void summary_save_and_load_is_the_same(void **state)
{
    run_dir *run = *state;
    const ls_summary summary = some_summary();
    json_t *loaded = NULL, *expected = ls_summary_to_json(&summary);
    assert_int_equal(ls_summary_load(run->path, &loaded), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_summary_save(&summary, run->path), LS_OK);
    assert_int_equal(ls_summary_load(run->path, &loaded), LS_OK);
    assert_true(json_equal(loaded, expected));
    json_decref(loaded);
    json_decref(expected);
    run_dir_write(run, "summary.json", "[1]");
    loaded = NULL;
    assert_int_equal(ls_summary_load(run->path, &loaded), LS_ERR_DATA);
    run_dir_write(run, "summary.json", "{\"run\": \"cut");
    assert_int_equal(ls_summary_load(run->path, &loaded), LS_ERR_DATA);
    assert_null(loaded);
}

static void summary_print_leaves_out_what_is_not_known(void **state)
{
    run_dir *run = *state;
    const ls_summary summary = some_summary();
    json_t *object = ls_summary_to_json(&summary);
    FILE *out = fopen(ls_path_join(&run->arena, run->path, "out"), "we");
    ls_summary_print(object, out);
    json_t *empty = json_object();
    ls_summary_print(empty, out); /* a damaged file is no reason to crash */
    json_decref(empty);
    fclose(out);
    json_decref(object);
    const char *text = run_dir_read(run, "out");
    assert_non_null(strstr(text, "small finished: step 20 of 20 in 5.5 s, 90 % of it training\n"));
    assert_non_null(strstr(text, "  loss        training 1.5000\n"));
    assert_non_null(strstr(text, "  machine     400 tokens/s, peak memory 3 MiB (planned 2)\n"));
    assert_non_null(strstr(text, "  state_hash  -\n  curve_hash  abc\n  run         runs/small\n"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "null"));
}

/* Bytes that are those of the plan are said to be; those of an axis that is not divided are left
 * out. */
static void summary_print_compares_a_mesh_with_its_plan(void **state)
{
    run_dir *run = *state;
    ls_summary summary = some_summary();
    summary.mesh = json_pack("{s:i, s:i, s:i, s:i, s:f, s:{s:i, s:i, s:i}, s:[i, i]}", "data", 1, "pipeline",
                             2, "context", 1, "tensor", 1, "bubble", 0.131, "sent_bytes", "tensor", 0,
                             "pipeline", 3 << 20, "data", 1 << 20, "rank_memory_bytes", 8 << 20, 6 << 20);
    summary.predicted_mesh =
        json_pack("{s:f, s:{s:i, s:i, s:i}, s:[i, i]}", "bubble", 0.104, "sent_bytes", "tensor", 0,
                  "pipeline", 3 << 20, "data", 2 << 20, "rank_memory_bytes", 9 << 20, 6 << 20);
    json_t *object = ls_summary_to_json(&summary);
    FILE *out = fopen(ls_path_join(&run->arena, run->path, "out"), "we");
    ls_summary_print(object, out);
    fclose(out);
    const char *text = run_dir_read(run, "out");
    assert_non_null(strstr(text, "  mesh        data 1 x pipeline 2 x context 1 x tensor 1; largest rank 8.0 "
                                 "MiB (planned 9.0); stages idle 13.1 % (planned 10.4)\n"));
    assert_non_null(
        strstr(text, "  exchanged   pipeline 3.00 MiB per step (as planned), data 1.00 MiB per step\n"));
    json_decref(object);
    json_decref(summary.mesh);
    json_decref(summary.predicted_mesh);
}

#define run_case(function) cmocka_unit_test_setup_teardown(function, run_dir_setup, run_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary_has_every_member_of_the_design),
        run_case(summary_save_and_load_is_the_same),
        run_case(summary_print_leaves_out_what_is_not_known),
        run_case(summary_print_compares_a_mesh_with_its_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
