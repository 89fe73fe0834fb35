// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/run_dir.h"

#include "base/random.h"
#include "telemetry/record/curve.h"
#include "telemetry/record/metrics_reader.h"
#include "telemetry/record/run_log.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static ls_step_metrics metrics_of(uint64_t step)
{
    return (ls_step_metrics){.step = step,
                             .loss = 4.0f / (float)step,
                             .lr = 1e-3,
                             .grad_norm = 0.5,
                             .tokens = 100,
                             .step_s = 0.25,
                             .tokens_per_s = 400.0};
}

static void write_steps(ls_run_log *log, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) {
        const ls_step_metrics m = metrics_of(step);
        assert_int_equal(ls_run_log_step(log, &m), LS_OK);
    }
}

static void write_event(ls_run_log *log, const char *name, uint64_t step, double val_loss)
{
    json_t *fields = json_pack("{s:I, s:f}", "step", (json_int_t)step, "val_loss", val_loss);
    assert_int_equal(ls_run_log_event(log, name, fields), LS_OK);
}

/* curve_hash of steps 1..last of metrics_of. */
static void expected_hash(uint64_t last, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_curve curve;
    ls_curve_init(&curve);
    for (uint64_t step = 1; step <= last; step++) {
        ls_curve_add(&curve, step, metrics_of(step).loss);
    }
    ls_curve_hash(&curve, hex_out);
    ls_curve_release(&curve);
}

static ls_run_log *open_log(const run_dir *run, uint64_t restored_step, ls_run_totals *totals)
{
    ls_run_log *log = NULL;
    assert_int_equal(ls_run_log_open(run->path, restored_step, &log, totals), LS_OK);
    return log;
}

/* ---- the curve ---- */

static void curve_hash_of_hand_laid_bytes(void **state)
{
    (void)state;
    /* (1, 1.0f), (2, -2.5f): step as u64, then float32 bits, little-endian. */
    static const unsigned char bytes[24] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f,
                                            2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0xc0};
    char expected[LS_SHA256_HEX_BYTES], seen[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(bytes, sizeof bytes, expected);
    ls_curve curve;
    ls_curve_init(&curve);
    ls_curve_add(&curve, 1, 1.0f);
    ls_curve_hash(&curve, seen); /* a result in the middle disturbs nothing */
    ls_curve_add(&curve, 2, -2.5f);
    ls_curve_hash(&curve, seen);
    ls_curve_release(&curve);
    assert_string_equal(seen, expected);
}

/* Every finite float32 must come back from the text with its bits. */
static void run_log_loss_keeps_its_bits(void **state)
{
    run_dir *run = *state;
    static const float edges[] = {0.0f,    -0.0f,    1.0f / 3.0f,    FLT_MIN, FLT_TRUE_MIN,
                                  FLT_MAX, -FLT_MAX, 0x1.fffffep-1f, 1e-45f};
    enum { EDGES = sizeof edges / sizeof edges[0], COUNT = 20000 };
    const ls_random_key key = ls_random_stream(7, LS_RANDOM_TEST);
    static float losses[COUNT];
    ls_run_log *log = open_log(run, 0, NULL);
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint32_t bits = ls_random_at(key, i, 0).word[0];
        memcpy(&losses[i], &bits, sizeof bits);
        losses[i] = i < EDGES ? edges[i] : isfinite(losses[i]) ? losses[i] : 3.25f;
        const ls_step_metrics m = {.step = i + 1, .loss = losses[i]};
        assert_int_equal(ls_run_log_step(log, &m), LS_OK);
    }
    char before[LS_SHA256_HEX_BYTES], after[LS_SHA256_HEX_BYTES];
    ls_run_log_curve_hash(log, before);
    ls_run_log_close(log);
    const char *text = run_dir_read(run, "metrics.jsonl");
    ls_line_reader reader = {.text = text, .bytes = strlen(text)};
    for (uint64_t i = 0; i < COUNT; i++) {
        ls_step_metrics m;
        assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_GOOD);
        assert_int_equal(m.step, i + 1);
        assert_memory_equal(&m.loss, &losses[i], sizeof m.loss);
    }
    log = open_log(run, COUNT, NULL);
    ls_run_log_curve_hash(log, after);
    ls_run_log_close(log);
    assert_string_equal(after, before);
}

/* ---- resuming ---- */

static void run_log_open_cuts_back_to_restored_step(void **state)
{
    run_dir *run = *state;
    ls_run_log *log = open_log(run, 0, NULL);
    write_steps(log, 1, 4);
    write_event(log, "evaluation", 2, 3.0);
    write_event(log, "evaluation", 4, 2.0);
    write_steps(log, 5, 10);
    write_event(log, "evaluation", 6, 1.0);
    assert_int_equal(ls_run_log_event(log, "note", json_object()), LS_OK); /* of no step */
    ls_run_log_close(log);

    ls_run_totals totals = {0};
    log = open_log(run, 5, &totals);
    assert_int_equal(totals.steps, 5);
    assert_int_equal(totals.tokens, 500);
    assert_int_equal(totals.highest_step, 10);
    assert_true(totals.step_s == 1.25 && totals.last_loss == 4.0f / 5.0f);
    assert_true(totals.has_val_loss && totals.last_val_loss == 2.0 && totals.best_val_loss == 2.0);
    assert_int_equal(totals.best_step, 4);
    assert_int_equal(count_lines(run_dir_read(run, "metrics.jsonl")), 5);
    assert_int_equal(count_lines(run_dir_read(run, "events.jsonl")), 3);

    /* Going on gives the file and the hash of a run that never stopped. */
    write_steps(log, 6, 10);
    char expected[LS_SHA256_HEX_BYTES], seen[LS_SHA256_HEX_BYTES];
    expected_hash(10, expected);
    ls_run_log_curve_hash(log, seen);
    assert_string_equal(seen, expected);
    assert_int_equal(count_lines(run_dir_read(run, "metrics.jsonl")), 10);
    assert_int_equal(ls_run_log_flush(log), LS_OK);
    ls_run_log_close(log);
}

static void run_log_open_at_zero_begins_anew(void **state)
{
    run_dir *run = *state;
    ls_run_log *log = open_log(run, 0, NULL);
    write_steps(log, 1, 3);
    write_event(log, "evaluation", 3, 1.0);
    ls_run_log_close(log);
    ls_run_totals totals = {.steps = 9};
    log = open_log(run, 0, &totals);
    assert_int_equal(totals.steps, 0);
    assert_false(totals.has_val_loss);
    assert_string_equal(run_dir_read(run, "metrics.jsonl"), "");
    assert_string_equal(run_dir_read(run, "events.jsonl"), "");
    char expected[LS_SHA256_HEX_BYTES], seen[LS_SHA256_HEX_BYTES];
    ls_sha256_hex("", 0, expected);
    ls_run_log_curve_hash(log, seen);
    assert_string_equal(seen, expected);
    ls_run_log_close(log);
}

/* Cutting the file anywhere behind the restored step, in the middle of a line too, changes
 * nothing. */
static void run_log_open_tolerates_every_torn_end(void **state)
{
    run_dir *run = *state;
    ls_run_log *log = open_log(run, 0, NULL);
    write_steps(log, 1, 3);
    ls_run_log_close(log);
    const char *whole = run_dir_read(run, "metrics.jsonl");
    const char *third = strchr(strchr(whole, '\n') + 1, '\n') + 1;
    char expected[LS_SHA256_HEX_BYTES], seen[LS_SHA256_HEX_BYTES];
    expected_hash(2, expected);
    const size_t third_at = (size_t)(third - whole), whole_bytes = strlen(whole);
    for (size_t bytes = third_at; bytes <= whole_bytes; bytes += 7) {
        const char *path = ls_path_join(&run->arena, run->path, "metrics.jsonl");
        assert_int_equal(ls_file_write_atomic(path, whole, bytes), LS_OK);
        log = open_log(run, 2, NULL);
        ls_run_log_curve_hash(log, seen);
        assert_string_equal(seen, expected);
        ls_run_log_close(log);
        assert_int_equal(strlen(run_dir_read(run, "metrics.jsonl")), third_at);
    }
}

static void run_log_open_missing_steps_give_up_the_hash_alone(void **state)
{
    run_dir *run = *state;
    run_dir_write(run, "metrics.jsonl",
                  "{\"step\": 1, \"loss\": 4.0, \"tokens\": 100}\n"
                  "{\"step\": 2, \"lo\x01\n"
                  "{\"step\": 3, \"loss\": 2.0, \"tokens\": 100}\n"
                  "{\"step\": 3, \"loss\": 9.0, \"tokens\": 100}\n");
    ls_run_totals totals = {0};
    ls_run_log *log = open_log(run, 3, &totals);
    assert_int_equal(totals.steps, 2);
    assert_int_equal(totals.tokens, 300);
    assert_true(totals.last_loss == 2.0f);
    char seen[LS_SHA256_HEX_BYTES] = "x";
    ls_run_log_curve_hash(log, seen);
    assert_string_equal(seen, "");
    write_steps(log, 4, 4);
    ls_run_log_curve_hash(log, seen);
    assert_string_equal(seen, "");
    ls_run_log_close(log);
    assert_int_equal(count_lines(run_dir_read(run, "metrics.jsonl")), 3);
}

/* ---- writing ---- */

static void run_log_event_has_time_and_name_first(void **state)
{
    run_dir *run = *state;
    ls_run_log *log = open_log(run, 0, NULL);
    json_t *fields = json_pack("{s:s, s:s}", "text", "a \"b\"\n\xc3\xa9", "event", "forged");
    assert_int_equal(ls_run_log_event(log, "sample", fields), LS_OK);
    ls_run_log_close(log);
    const char *text = run_dir_read(run, "events.jsonl");
    assert_int_equal(strncmp(text, "{\"time\":1", 9), 0);
    assert_non_null(strstr(text, ",\"event\":\"sample\",\"text\":\"a \\\"b\\\"\\n"));
    assert_null(strstr(text, "forged"));
    assert_int_equal(count_lines(text), 1);
}

/* A file that may not grow further stands for a full disk. */
static void run_log_first_error_is_kept(void **state)
{
    run_dir *run = *state;
    ls_run_log *log = open_log(run, 0, NULL);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 1000, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ls_status status = LS_OK;
    uint64_t step = 0;
    while (status == LS_OK && step < 100) {
        const ls_step_metrics m = metrics_of(++step);
        status = ls_run_log_step(log, &m);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, LS_ERR_DISK);
    assert_non_null(strstr(ls_error_text(), "metrics.jsonl"));
    /* There is room again, but a line behind a torn one would be lost with it: nothing more is
     * written. */
    const ls_step_metrics m = metrics_of(step + 1);
    assert_int_equal(ls_run_log_step(log, &m), LS_ERR_DISK);
    assert_int_equal(ls_run_log_status(log), LS_ERR_DISK);
    assert_non_null(strstr(ls_error_text(), "metrics.jsonl"));
    ls_run_log_close(log);
    assert_int_equal(strlen(run_dir_read(run, "metrics.jsonl")), 1000);
    log = open_log(run, step - 1, NULL);
    char expected[LS_SHA256_HEX_BYTES], seen[LS_SHA256_HEX_BYTES];
    expected_hash(step - 1, expected);
    ls_run_log_curve_hash(log, seen);
    assert_string_equal(seen, expected);
    ls_run_log_close(log);
}

static void run_log_open_missing_folder_fails(void **state)
{
    run_dir *run = *state;
    ls_run_log *log = NULL;
    ls_run_totals totals = {.steps = 77};
    assert_int_equal(ls_run_log_open(ls_path_join(&run->arena, run->path, "none"), 0, &log, &totals),
                     LS_ERR_NOT_FOUND);
    assert_null(log);
    assert_int_equal(totals.steps, 77);
}

static void run_log_is_the_sink_of_emit(void **state)
{
    run_dir *run = *state;
    ls_run_log *log = open_log(run, 0, NULL);
    const ls_step_metrics m = metrics_of(1);
    ls_emit_step(&m); /* nobody listens yet */
    ls_run_log_install(log);
    ls_emit_step(&m);
    ls_emit_event("hello", NULL);
    ls_emit_install(NULL);
    ls_emit_event("unheard", json_pack("{s:i}", "step", 1));
    assert_int_equal(ls_run_log_status(log), LS_OK);
    ls_run_log_close(log);
    assert_int_equal(count_lines(run_dir_read(run, "metrics.jsonl")), 1);
    assert_int_equal(count_lines(run_dir_read(run, "events.jsonl")), 1);
}

#define run_case(function) cmocka_unit_test_setup_teardown(function, run_dir_setup, run_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curve_hash_of_hand_laid_bytes),
        run_case(run_log_loss_keeps_its_bits),
        run_case(run_log_open_cuts_back_to_restored_step),
        run_case(run_log_open_at_zero_begins_anew),
        run_case(run_log_open_tolerates_every_torn_end),
        run_case(run_log_open_missing_steps_give_up_the_hash_alone),
        run_case(run_log_event_has_time_and_name_first),
        run_case(run_log_first_error_is_kept),
        run_case(run_log_open_missing_folder_fails),
        run_case(run_log_is_the_sink_of_emit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
