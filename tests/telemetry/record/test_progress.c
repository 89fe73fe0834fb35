// SPDX-License-Identifier: Apache-2.0
/* The progress line in a pseudo terminal of a given width, and in a file. */
#include "telemetry/record/run_dir.h"

#include "telemetry/record/progress.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

static ls_step_metrics step_metrics(uint64_t step)
{
    return (ls_step_metrics){.step = step,
                             .loss = 1.25f,
                             .tokens_per_s = 52310.0,
                             .step_s = 0.5,
                             .mfu = 0.61,
                             .rss_bytes = 312u << 20};
}

/* ---- a file ---- */

static char *plain_lines(run_dir *run, uint64_t steps, uint64_t every_steps, const char *advice)
{
    const char *path = ls_path_join(&run->arena, run->path, "out");
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    ls_progress *progress = NULL;
    const ls_progress_options options = {.out = out, .steps = steps, .every_steps = every_steps};
    assert_int_equal(ls_progress_create(&options, &progress), LS_OK);
    ls_progress_advice(progress, advice);
    for (uint64_t step = 1; step <= steps; step++) {
        const ls_step_metrics m = step_metrics(step);
        ls_progress_step(progress, &m);
    }
    ls_progress_destroy(progress);
    assert_int_equal(fclose(out), 0);
    return run_dir_read(run, "out");
}

static void progress_plain_first_every_and_last(void **state)
{
    run_dir *run = *state;
    const char *text = plain_lines(run, 25, 10, NULL);
    assert_int_equal(count_lines(text), 4);
    assert_int_equal(
        strncmp(text, "step 1/25   4 %  loss 1.2500  52,310 tok/s  MFU 61 %  312 MiB  12s left\n", 70), 0);
    assert_non_null(strstr(text, "\nstep 10/25  40 %  loss "));
    assert_non_null(strstr(text, "\nstep 25/25 100 %  loss "));
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\r'));
    assert_int_equal(count_lines(plain_lines(run, 100, 0, NULL)), 21);
}

/* On several hosts a step may seem to end as soon as it begins. */
static void progress_plain_smooths_mfu_with_speed(void **state)
{
    run_dir *run = *state;
    FILE *out = fopen(ls_path_join(&run->arena, run->path, "out"), "we");
    ls_progress *progress = NULL;
    const ls_progress_options options = {.out = out, .steps = 21};
    assert_int_equal(ls_progress_create(&options, &progress), LS_OK);
    for (uint64_t step = 1; step <= 21; step++) {
        ls_step_metrics m = step_metrics(step);
        m.tokens_per_s *= step == 21 ? 5.0 : 1.0;
        m.mfu *= step == 21 ? 5.0 : 1.0;
        ls_progress_step(progress, &m);
    }
    ls_progress_destroy(progress);
    assert_int_equal(fclose(out), 0);
    /* the mean of 20 (the first step is left out): 52,310 (19 + 5) / 20, 61 % (19 + 5) / 20 */
    assert_non_null(strstr(run_dir_read(run, "out"), "  62,772 tok/s  MFU 73 %"));
}

static void progress_plain_shows_rate_and_norm(void **state)
{
    run_dir *run = *state;
    const char *path = ls_path_join(&run->arena, run->path, "out");
    FILE *out = fopen(path, "we");
    ls_progress *progress = NULL;
    const ls_progress_options options = {.out = out, .steps = 2};
    assert_int_equal(ls_progress_create(&options, &progress), LS_OK);
    ls_step_metrics m = step_metrics(1);
    m.lr = 5e-4;
    m.grad_norm = 0.62149;
    m.link_bytes = 2350000;
    m.dense_bytes = 129000000;
    m.saved_s = 75.0;
    m.residual_norm = 0.125;
    ls_progress_step(progress, &m);
    ls_progress_destroy(progress);
    assert_int_equal(fclose(out), 0);
    const char *text = run_dir_read(run, "out");
    assert_non_null(strstr(text, "loss 1.2500  lr 0.0005  norm 0.621  52,310 tok/s"));
    assert_non_null(strstr(text, "  2.35 MB sent (54.9x less, 1m15s saved)  left over 0.125  "));
}

static void progress_plain_says_advice_in_full(void **state)
{
    run_dir *run = *state;
    const char *text = plain_lines(run, 1, 1, "61 % busy: 28 % waiting for data, try more");
    assert_non_null(strstr(text, "  in 0s  61 % busy: 28 % waiting for data, try more\n"));
}

/* What a model writes must not ring the bell, move the cursor or rename the window. */
static void progress_print_disarms_control_characters(void **state)
{
    run_dir *run = *state;
    const char *path = ls_path_join(&run->arena, run->path, "out");
    FILE *out = fopen(path, "we");
    ls_progress *progress = NULL;
    const ls_progress_options options = {.out = out, .steps = 1};
    assert_int_equal(ls_progress_create(&options, &progress), LS_OK);
    ls_progress_print(progress, "%s",
                      "a\033]0;x\007b\nc\td\xc2\x9b"
                      "2J\xc3\xa9\x7f\r");
    ls_progress_destroy(progress);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(run_dir_read(run, "out"), "a\u00b7]0;x\u00b7b\nc\td\u00b72J\u00e9\u00b7\u00b7\n");
}

static void progress_without_output_is_silent(void **state)
{
    (void)state;
    ls_progress *progress = NULL;
    const ls_progress_options options = {.steps = 2};
    assert_int_equal(ls_progress_create(&options, &progress), LS_OK);
    const ls_step_metrics m = step_metrics(1);
    ls_progress_step(progress, &m);
    ls_progress_validation(progress, 1.0);
    ls_progress_activity(progress, "saving");
    ls_progress_print(progress, "x");
    ls_progress_destroy(progress);
    ls_progress_destroy(NULL);
}

/* ---- a terminal ---- */

typedef struct terminal {
    int master;
    FILE *out;
    char text[16384];
} terminal;

/* False where the system has no pseudo terminals. */
static bool terminal_open(terminal *t, int columns)
{
    int slave = -1;
    const struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = 24};
    if (openpty(&t->master, &slave, NULL, NULL, &size) != 0) {
        return false;
    }
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    t->out = fdopen(slave, "w");
    return true;
}

/* All that was drawn so far. */
static const char *terminal_read(terminal *t)
{
    fcntl(t->master, F_SETFL, O_NONBLOCK);
    size_t bytes = 0;
    for (ssize_t got; (got = read(t->master, t->text + bytes, sizeof t->text - 1 - bytes)) > 0;) {
        bytes += (size_t)got;
    }
    t->text[bytes] = '\0';
    return t->text;
}

/* The last line drawn, without escape sequences; its width in columns. */
static int last_line(const char *text, char *out, size_t out_bytes)
{
    const char *at = strrchr(text, '\r');
    size_t count = 0;
    int width = 0;
    for (at = at ? at + 1 : text; *at && *at != '\n' && count + 1 < out_bytes; at++) {
        if (*at == '\033') {
            at += strcspn(at, "mK");
            continue;
        }
        out[count++] = *at;
        width += ((unsigned char)*at & 0xc0) != 0x80;
    }
    out[count] = '\0';
    return width;
}

static void draw_one(terminal *t, const char *advice, char *line, size_t line_bytes, int *width_out)
{
    ls_progress *progress = NULL;
    const ls_progress_options options = {.out = t->out, .steps = 1000};
    assert_int_equal(ls_progress_create(&options, &progress), LS_OK);
    ls_progress_advice(progress, advice);
    const ls_step_metrics m = step_metrics(620);
    ls_progress_validation(progress, 1.4512);
    ls_progress_step(progress, &m);
    *width_out = last_line(terminal_read(t), line, line_bytes);
    ls_progress_destroy(progress);
    fclose(t->out);
    close(t->master);
}

static void progress_line_fits_every_width(void **state)
{
    (void)state;
    static const char advice[] = "61 % busy: 28 % waiting for data, try data on a local disk";
    for (int columns = 8; columns <= 220; columns += 4) {
        terminal t;
        if (!terminal_open(&t, columns)) {
            skip();
        }
        char line[1024];
        int width = 0;
        draw_one(&t, columns % 8 ? advice : NULL, line, sizeof line, &width);
        assert_true(width < columns);
        assert_true(columns < 20 || strstr(line, "1.2500"));
        assert_true(columns < 100 ||
                    (strstr(line, "val 1.4512") && strstr(line, "tok/s") && strstr(line, "left")));
        assert_true(columns < 180 || columns % 8 == 0 || strstr(line, "try data on a local disk"));
    }
}

static void progress_no_color_has_no_colors(void **state)
{
    (void)state;
    terminal t;
    if (!terminal_open(&t, 120)) {
        skip();
    }
    char line[1024];
    int width = 0;
    setenv("NO_COLOR", "1", 1);
    draw_one(&t, NULL, line, sizeof line, &width);
    unsetenv("NO_COLOR");
    assert_null(strstr(t.text, "\033[1m"));
    assert_null(strstr(t.text, "\033[36m"));
    assert_non_null(strstr(t.text, "\r\033[K")); /* still rewritten in place */
    assert_non_null(strstr(line, "step 620/1000  ━━━━━━━━━━━━────────  62 %  loss 1.2500"));
}

#define run_case(function) cmocka_unit_test_setup_teardown(function, run_dir_setup, run_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        run_case(progress_plain_first_every_and_last),
        run_case(progress_plain_smooths_mfu_with_speed),
        run_case(progress_plain_shows_rate_and_norm),
        run_case(progress_plain_says_advice_in_full),
        run_case(progress_print_disarms_control_characters),
        cmocka_unit_test(progress_without_output_is_silent),
        cmocka_unit_test(progress_line_fits_every_width),
        cmocka_unit_test(progress_no_color_has_no_colors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
