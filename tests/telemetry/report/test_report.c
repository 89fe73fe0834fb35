// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/run_dir.h"

#include "telemetry/record/run_log.h"
#include "telemetry/record/summary.h"
#include "telemetry/report/report.h"
#include "telemetry/report/report_data.h"

#include <math.h>

#define assert_has(text, part)                                                                               \
    do {                                                                                                     \
        if (!strstr(text, part)) {                                                                           \
            fail_msg("the page lacks \"%s\"", part);                                                         \
        }                                                                                                    \
    } while (0)
#define assert_lacks(text, part)                                                                             \
    do {                                                                                                     \
        if (strstr(text, part)) {                                                                            \
            fail_msg("the page has \"%s\"", part);                                                           \
        }                                                                                                    \
    } while (0)

static void write_steps(run_dir *run, uint64_t steps)
{
    ls_run_log *log = NULL;
    assert_int_equal(ls_run_log_open(run->path, 0, &log, NULL), LS_OK);
    for (uint64_t step = 1; step <= steps; step++) {
        const ls_step_metrics m = {.step = step,
                                   .loss = 1.0f + 4.0f / (float)step,
                                   .lr = 1e-3,
                                   .grad_norm = 1.0,
                                   .tokens = 100,
                                   .tokens_per_s = 1000.0,
                                   .step_s = 0.1,
                                   .forward_s = 0.03,
                                   .backward_s = 0.06,
                                   .wait_s = 0.008,
                                   .mfu = 0.5,
                                   .rss_bytes = 5u << 20};
        assert_int_equal(ls_run_log_step(log, &m), LS_OK);
    }
    assert_int_equal(ls_run_log_event(log, "rank_started", json_pack("{s:i}", "rank", 0)), LS_OK);
    ls_run_log_close(log);
}

static char *page_of(run_dir *run)
{
    const ls_status status = ls_report_write(run->path, ls_path_join(&run->arena, run->path, "report.html"));
    if (status != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return run_dir_read(run, "report.html");
}

/* Every element that is opened is closed, in order, and nothing is loaded or run. */
static void check_page(const char *page)
{
    static const char *const empty[] = {"meta", "link", "br", "!doctype"};
    char stack[64][24];
    size_t depth = 0;
    for (const char *at = page; (at = strchr(at, '<')); at++) {
        const bool closing = at[1] == '/';
        const char *name = at + 1 + closing;
        const size_t bytes = strcspn(name, " />\n");
        assert_true(bytes > 0 && bytes < sizeof stack[0]);
        const char *end = strchr(name, '>');
        assert_non_null(end);
        bool is_empty = end[-1] == '/';
        for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
            is_empty = is_empty || (strlen(empty[i]) == bytes && memcmp(name, empty[i], bytes) == 0);
        }
        if (closing) {
            assert_true(depth > 0);
            depth--;
            if (strlen(stack[depth]) != bytes || memcmp(stack[depth], name, bytes) != 0) {
                fail_msg("<%s> is closed by </%.*s>", stack[depth], (int)bytes, name);
            }
        } else if (!is_empty) {
            assert_true(depth < 64);
            snprintf(stack[depth++], sizeof stack[0], "%.*s", (int)bytes, name);
        }
    }
    assert_int_equal(depth, 0);
    assert_lacks(page, "<script");
    assert_lacks(page, "src=");
    assert_lacks(page, "@import");
    assert_lacks(page, "url(");
    assert_lacks(page, "nan");
    assert_has(page, "default-src 'none'");
}

static void report_of_a_run_that_goes_on(void **state)
{
    run_dir *run = *state;
    write_steps(run, 300);
    const char *page = page_of(run);
    check_page(page);
    assert_has(page, ">running</span>");
    assert_has(page, "<b>300</b>");
    assert_has(page, "Is it learning?");
    assert_has(page, "Loss, the last three quarters closer");
    assert_has(page, "Time of a step");
    assert_lacks(page, "Predicted and measured");
}

static void report_of_a_finished_run_has_its_result(void **state)
{
    run_dir *run = *state;
    write_steps(run, 20);
    json_t *time = json_pack("{s:f, s:f}", "compute", 40.0, "data", 60.0);
    const ls_summary summary = {.run = "small",
                                .run_dir = run->path,
                                .status = "finished",
                                .step = 20,
                                .steps = 20,
                                .loss = 1.2,
                                .val_loss = 1.2345,
                                .val_loss_per_byte = NAN,
                                .tokens = 2000,
                                .tokens_per_s = 83999.7,
                                .mfu = 0.5,
                                .hfu = 0.5,
                                .wall_s = 100.0,
                                .goodput = 0.4,
                                .state_hash = "0123456789abcdef",
                                .predicted_memory_bytes = 4u << 20,
                                .peak_rss_bytes = 5u << 20,
                                .time = time};
    assert_int_equal(ls_summary_save(&summary, run->path), LS_OK);
    json_decref(time);
    assert_has(page_of(run), ">running</span>"); /* no end was written: a later start goes on */
    ls_run_log *log = NULL;
    assert_int_equal(ls_run_log_open(run->path, 20, &log, NULL), LS_OK);
    assert_int_equal(ls_run_log_event(log, "ended", json_pack("{s:i}", "step", 20)), LS_OK);
    ls_run_log_close(log);
    const char *page = page_of(run);
    check_page(page);
    assert_has(page, ">finished</span>");
    assert_has(page, "<b>1.2345</b>");
    assert_has(page, "<b>84,000</b>");
    assert_has(page, "0123456789abcdef");
    assert_has(page, "40 % busy: 60 % waiting for data, try ");
    assert_has(page, "Where the time went");
    assert_has(page, "<td class=\"n\">4 MiB</td><td class=\"n\">5 MiB</td><td class=\"n\">1.25</td>");
}

static void report_shows_what_compression_saves(void **state)
{
    run_dir *run = *state;
    write_steps(run, 2);
    assert_lacks(page_of(run), "Left over by compression");
    ls_run_log *log = NULL;
    assert_int_equal(ls_run_log_open(run->path, 2, &log, NULL), LS_OK);
    for (uint64_t step = 3; step <= 5; step++) {
        const ls_step_metrics m = {.step = step,
                                   .loss = 1.0f,
                                   .link_bytes = 2u << 20,
                                   .dense_bytes = 110u << 20,
                                   .saved_s = step == 3 ? -5.0 : 20.0,
                                   .residual_norm = 0.5};
        assert_int_equal(ls_run_log_step(log, &m), LS_OK);
    }
    ls_run_log_close(log);
    const char *page = page_of(run);
    check_page(page);
    assert_has(page, "Left over by compression");
    assert_has(page, "<b>2 MiB</b>");
    assert_has(page, "<b>55x</b>");
    assert_has(page, "<b>35 s</b><span>saved by sending less, about");
}

static void report_escapes_everything(void **state)
{
    run_dir *run = *state;
    static const char evil[] = "</pre></td><script>alert('x')</script>&\"";
    ls_run_log *log = NULL;
    assert_int_equal(ls_run_log_open(run->path, 0, &log, NULL), LS_OK);
    assert_int_equal(ls_run_log_event(log, "sample", json_pack("{s:i, s:s}", "step", 0, "text", evil)),
                     LS_OK);
    assert_int_equal(ls_run_log_event(log, "checkpoint", json_pack("{s:i, s:s}", "step", 1, "path", evil)),
                     LS_OK);
    assert_int_equal(ls_run_log_event(log, evil, json_pack("{s:[s], s:s}", evil, evil, "k", evil)), LS_OK);
    assert_int_equal(ls_run_log_event(log, "ended", json_object()), LS_OK);
    ls_run_log_close(log);
    run_dir_write(run, "run.yaml", evil);
    const ls_summary summary = {.run = evil, .run_dir = evil, .status = evil, .state_hash = "</code><b>"};
    assert_int_equal(ls_summary_save(&summary, run->path), LS_OK);
    const char *page = page_of(run);
    check_page(page);
    assert_has(page, "&lt;script&gt;");
    assert_lacks(page, "</code><b>");
}

/* Any beginning of the files is a run that is still going. */
static void report_takes_torn_and_damaged_files(void **state)
{
    run_dir *run = *state;
    write_steps(run, 3);
    const char *metrics = run_dir_read(run, "metrics.jsonl");
    const size_t whole = strlen(metrics);
    const char *path = ls_path_join(&run->arena, run->path, "metrics.jsonl");
    for (size_t bytes = 0; bytes <= whole; bytes += 37) {
        assert_int_equal(ls_file_write_atomic(path, metrics, bytes), LS_OK);
        check_page(page_of(run));
    }
    run_dir_write(run, "metrics.jsonl",
                  "{\"step\":5,\"loss\":1}\n{\"step\":5,\"loss\":2}\n{\"step\":4,\"loss\":3}\nxx\n");
    run_dir_write(
        run, "events.jsonl",
        "{}\n{\"event\":\"evaluation\"}\n{\"event\":\"sample\"}\n{\"event\":\"checkpoint\"}\n"
        "{\"event\":\"evaluation\",\"step\":3,\"val_loss\":1e999}\n{\"event\":\"ended\",\"time\":1e300}\n");
    run_dir_write(
        run, "summary.json",
        "{\"status\": 3, \"predicted\": {\"memory_bytes\": -1}, \"tokens\": \"x\", \"steps\": 1e300}");
    run_dir_write(run, "run.yaml", "name: [broken");
    const char *page = page_of(run);
    check_page(page);
    assert_has(page, "<b>5</b><span>steps</span>");
}

static void report_of_no_run_fails(void **state)
{
    run_dir *run = *state;
    const char *path = ls_path_join(&run->arena, run->path, "out.html");
    assert_int_equal(ls_report_write(run->path, path), LS_ERR_NOT_FOUND);
    assert_false(ls_path_exists(path));
}

/* ---- arithmetic ---- */

static void report_smooth_by_hand(void **state)
{
    (void)state;
    double values[40], smooth[40];
    for (int i = 0; i < 40; i++) {
        values[i] = i;
    }
    ls_report_smooth(values, 40, 2, smooth);
    assert_true(smooth[0] == 0.0 && smooth[7] == 7.0);            /* nothing on either side yet */
    assert_true(smooth[20] == 20.0 && smooth[36] == 36.0);        /* a line stays a line */
    assert_true(fabs(smooth[39] - (37 + 38 + 39) / 3.0) < 1e-12); /* at the end: what is there */
    values[20] = NAN;
    ls_report_smooth(values, 40, 2, smooth);
    assert_true(fabs(smooth[20] - (18 + 19 + 21 + 22) / 4.0) < 1e-12);
    const double nothing[2] = {NAN, NAN};
    ls_report_smooth(nothing, 2, 2, smooth);
    assert_true(isnan(smooth[0]) && isnan(smooth[1]));
    assert_true(isnan(ls_report_mean(nothing, 2, 5)));
    assert_true(ls_report_mean(values, 4, 2) == 2.5);
}

static void report_data_parts_add_up_to_the_step(void **state)
{
    run_dir *run = *state;
    write_steps(run, 4);
    ls_report_data data;
    assert_int_equal(ls_report_data_load(run->path, &data), LS_OK);
    assert_int_equal(data.count, 4);
    assert_int_equal(data.tokens, 400);
    double sum_s = 0.0;
    for (int part = 0; part < LS_STEP_PARTS; part++) {
        sum_s += data.parts_s[3][part];
    }
    assert_true(fabs(sum_s - 0.1) < 1e-9);
    assert_string_equal(ls_step_part_names[5], "waiting for ranks");
    assert_true(fabs(data.parts_s[3][5] - 0.008) < 1e-9 && fabs(data.parts_s[3][6] - 0.002) < 1e-9);
    assert_true(data.running);
    ls_report_data_release(&data);
}

#define run_case(function) cmocka_unit_test_setup_teardown(function, run_dir_setup, run_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        run_case(report_of_a_run_that_goes_on),        run_case(report_of_a_finished_run_has_its_result),
        run_case(report_shows_what_compression_saves), run_case(report_escapes_everything),
        run_case(report_takes_torn_and_damaged_files), run_case(report_of_no_run_fails),
        cmocka_unit_test(report_smooth_by_hand),       run_case(report_data_parts_add_up_to_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
