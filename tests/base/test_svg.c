// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every tag that opens is closed, attributes are quoted, and no number is NaN or infinite. Enough
 * of XML for our own text. */
static void assert_well_formed(const char *svg)
{
    char stack[32][16];
    size_t depth = 0;
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    for (const char *at = strchr(svg, '<'); at; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        assert_non_null(end);
        char name[16] = {0};
        assert_int_equal(sscanf(at + 1 + (at[1] == '/'), "%15[a-z]", name), 1);
        if (at[1] == '/') {
            assert_true(depth > 0);
            assert_string_equal(stack[--depth], name);
        } else if (end[-1] != '/') {
            assert_true(depth < 32);
            snprintf(stack[depth++], sizeof stack[0], "%s", name);
        }
        size_t quotes = 0;
        for (const char *c = at; c < end; c++) {
            quotes += *c == '"';
        }
        assert_int_equal(quotes % 2, 0);
    }
    assert_int_equal(depth, 0);
}

/* LS_SVG_SAMPLES=FOLDER keeps the figures to look at. */
static void keep_sample(const char *name, const ls_text *text)
{
    const char *folder = getenv("LS_SVG_SAMPLES");
    if (!folder) {
        return;
    }
    char path[512];
    snprintf(path, sizeof path, "%s/%s.svg", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(ls_text_string(text), file);
    fclose(file);
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static void svg_ticks_are_nice(void **state)
{
    (void)state;
    double first = 0.0;
    assert_float_equal(ls_svg_ticks(0, 10, 5, &first), 2.0, 1e-12);
    assert_float_equal(first, 0.0, 1e-12);
    assert_float_equal(ls_svg_ticks(1.3, 4.4, 5, &first), 0.5, 1e-12);
    assert_float_equal(first, 1.5, 1e-12);
    assert_float_equal(ls_svg_ticks(-0.03, 0.04, 5, &first), 0.01, 1e-12);
    assert_float_equal(first, -0.03, 1e-12);
    assert_true(ls_svg_ticks(5, 5, 5, &first) > 0.0);
}

static void svg_line_chart_draws_series(void **state)
{
    (void)state;
    enum { POINTS = 5000 };
    static double x[POINTS], raw[POINTS], smooth[POINTS];
    srand(1);
    double mean = 0.0;
    for (int i = 0; i < POINTS; i++) {
        x[i] = i * 0.4;
        raw[i] = 1.3 + 4.2 * exp(-i / 300.0) + 0.15 * ((double)rand() / RAND_MAX - 0.5);
        mean = i == 0 ? raw[i] : 0.98 * mean + 0.02 * raw[i];
        smooth[i] = mean;
    }
    const double eval_x[] = {200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 1999};
    const double eval_y[] = {3.5, 2.4, 1.9, 1.66, 1.55, 1.49, 1.45, 1.43, 1.42, 1.415};
    const ls_svg_series series[] = {
        {.name = "raw", .x = x, .y = raw, .count = POINTS, .faint = true},
        {.name = "train", .x = x, .y = smooth, .count = POINTS},
        {.name = "validation", .x = eval_x, .y = eval_y, .count = 10},
    };
    const ls_svg_chart chart = {
        .title = "Loss", .x_label = "step", .y_label = "nats per token", .series = series, .series_count = 3};
    ls_text text = {0};
    ls_svg_line_chart(&chart, &text);
    assert_well_formed(ls_text_string(&text));
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-line"), 3);
    assert_non_null(strstr(ls_text_string(&text), ">validation</text>"));
    assert_null(strstr(ls_text_string(&text), ">raw</text>"));
    /* 10,000 points take no more than the columns they span */
    assert_true(text.bytes < 100 * 1000);
    keep_sample("loss", &text);

    const ls_svg_chart log_chart = {.title = "Loss, logarithmic",
                                    .x_label = "step",
                                    .series = series + 1,
                                    .series_count = 1,
                                    .log_y = true};
    ls_text_clear(&text);
    ls_svg_line_chart(&log_chart, &text);
    assert_well_formed(ls_text_string(&text));
    assert_non_null(strstr(ls_text_string(&text), ">5</text>"));
    keep_sample("log", &text);
    ls_text_release(&text);
}

static void svg_line_chart_speed_from_zero(void **state)
{
    (void)state;
    double x[60], y[60];
    for (int i = 0; i < 60; i++) {
        x[i] = i * 1e5;
        y[i] = 23456.0 + 900.0 * sin(i * 0.7);
    }
    const ls_svg_series series = {.name = "tokens/s", .x = x, .y = y, .count = 60};
    const ls_svg_chart chart = {.title = "Speed",
                                .x_label = "tokens",
                                .y_label = "tokens per second",
                                .series = &series,
                                .series_count = 1,
                                .from_zero = true,
                                .width = 480,
                                .height = 240};
    ls_text text = {0};
    ls_svg_line_chart(&chart, &text);
    assert_well_formed(ls_text_string(&text));
    assert_non_null(strstr(ls_text_string(&text), ">20k</text>"));
    assert_non_null(strstr(ls_text_string(&text), ">0</text>"));
    keep_sample("speed", &text);
    ls_text_release(&text);
}

static void svg_line_chart_skips_what_is_not_finite(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3, 4, NAN, 6}, y[] = {1, 2, NAN, INFINITY, 2, 3, -1};
    const ls_svg_series series = {.name = "a", .x = x, .y = y, .count = 7};
    const ls_svg_chart chart = {.series = &series, .series_count = 1};
    ls_text text = {0};
    ls_svg_line_chart(&chart, &text);
    assert_well_formed(ls_text_string(&text));
    const char *path = strstr(ls_text_string(&text), "class=\"ls-line");
    assert_non_null(path);
    char line[400];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(path, "\n"), path);
    assert_int_equal(count_of(line, "M"), 3); /* 0-1, 4, 6: two gaps */

    const ls_svg_series nothing = {.name = "b", .x = x + 5, .y = y + 5, .count = 1};
    const ls_svg_chart empty = {.title = "x < y & z", .series = &nothing, .series_count = 1};
    ls_text_clear(&text);
    ls_svg_line_chart(&empty, &text);
    assert_well_formed(ls_text_string(&text));
    assert_non_null(strstr(ls_text_string(&text), "no data yet"));
    assert_non_null(strstr(ls_text_string(&text), "x &lt; y &amp; z"));
    ls_text_release(&text);
}

static void svg_line_chart_flat_and_single(void **state)
{
    (void)state;
    const double x[] = {7, 7}, y[] = {0, 0};
    const ls_svg_series series = {.name = "a", .x = x, .y = y, .count = 1};
    const ls_svg_chart chart = {.series = &series, .series_count = 1};
    ls_text text = {0};
    ls_svg_line_chart(&chart, &text);
    assert_well_formed(ls_text_string(&text));
    assert_int_equal(count_of(ls_text_string(&text), "<circle"), 1);
    ls_text_release(&text);
}

static void svg_stacked_bars_scale_to_the_longest(void **state)
{
    (void)state;
    const char *const bars[] = {"1 thread", "2 threads", "3 threads"};
    const char *const parts[] = {"forward", "backward", "optimizer", "waiting for data", "checkpoint"};
    const double values[] = {210, 420, 35, 12, 3, 108, 216, 20, 14, 3, 80, NAN, 16, -5, 3};
    const ls_svg_bars figure = {.title = "Where a step's time goes",
                                .unit = "ms",
                                .bar_names = bars,
                                .part_names = parts,
                                .values = values,
                                .bar_count = 3,
                                .part_count = 5};
    ls_text text = {0};
    ls_svg_stacked_bars(&figure, &text);
    assert_well_formed(ls_text_string(&text));
    assert_non_null(strstr(ls_text_string(&text), ">680 ms</text>"));
    assert_non_null(strstr(ls_text_string(&text), ">99 ms</text>")); /* NAN and -5 count as 0 */
    keep_sample("bars", &text);
    ls_text_release(&text);
}

static void svg_drawing_of_a_tree(void **state)
{
    (void)state;
    ls_text text = {0};
    ls_svg_begin(&text, 560, 300, "the tree of leaves");
    ls_svg_label(&text, 16, 28, LS_SVG_START, 1, "Four leaves, one sum");
    for (int i = 0; i < 4; i++) {
        char label[32];
        snprintf(label, sizeof label, "leaf %d", i);
        ls_svg_box(&text, (ls_svg_rect){30 + 130 * i, 230, 100, 40}, 0, label);
        ls_svg_arrow(&text, 80 + 130 * i, 230, i < 2 ? 145 : 405, 180);
    }
    ls_svg_box(&text, (ls_svg_rect){95, 140, 100, 40}, 2, "0 + 1");
    ls_svg_box(&text, (ls_svg_rect){355, 140, 100, 40}, 2, "2 + 3");
    ls_svg_arrow(&text, 145, 140, 275, 90);
    ls_svg_arrow(&text, 405, 140, 275, 90);
    ls_svg_box(&text, (ls_svg_rect){215, 50, 120, 40}, 1, "gradient");
    ls_svg_label(&text, 350, 74, LS_SVG_START, -1, "divided once, here");
    ls_svg_box(&text, (ls_svg_rect){NAN, 0, 1, 1}, 0, "left out");
    ls_svg_end(&text);
    assert_well_formed(ls_text_string(&text));
    assert_null(strstr(ls_text_string(&text), "left out"));
    keep_sample("tree", &text);
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(svg_ticks_are_nice),
        cmocka_unit_test(svg_line_chart_draws_series),
        cmocka_unit_test(svg_line_chart_speed_from_zero),
        cmocka_unit_test(svg_line_chart_skips_what_is_not_finite),
        cmocka_unit_test(svg_line_chart_flat_and_single),
        cmocka_unit_test(svg_stacked_bars_scale_to_the_longest),
        cmocka_unit_test(svg_drawing_of_a_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
