// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/svg_axes.h"

#include <math.h>
#include <string.h>

static void assert_tick(ls_svg_tick_format *format, double value, double step, const char *wanted)
{
    char text[32];
    format(value, step, text, sizeof text);
    assert_string_equal(text, wanted);
}

static void ticks_are_short(void **state)
{
    (void)state;
    assert_tick(ls_svg_tick_seconds, 0.2, 0.2, "0.2 s");
    assert_tick(ls_svg_tick_seconds, 40, 20, "40 s"); /* 20 s are no round part of a minute */
    assert_tick(ls_svg_tick_seconds, 90, 30, "1.5 min");
    assert_tick(ls_svg_tick_seconds, 0, 0.005, "0 ms");
    assert_tick(ls_svg_tick_seconds, 7200, 0, "2 h");
    assert_tick(ls_svg_tick_percent, 0.9985, 0.0005, "99.85 %");
    assert_tick(ls_svg_tick_percent, 0.5, 0.1, "50 %");
    assert_tick(ls_svg_tick_dollars, 1.5e6, 5e5, "$1.5M");
    assert_tick(ls_svg_tick_dollars, 0, 5e5, "$0");
}

static void axes_place_values(void **state)
{
    (void)state;
    const ls_svg_axes axes = {.left = 10,
                              .top = 20,
                              .width = 100,
                              .height = 200,
                              .x_min = 1,
                              .x_max = 100,
                              .y_min = 0,
                              .y_max = 4,
                              .log_x = true};
    assert_float_equal(ls_svg_axes_x(&axes, 10), 60, 1e-9);
    assert_float_equal(ls_svg_axes_y(&axes, 1), 170, 1e-9);
    assert_float_equal(ls_svg_axes_y_inside(&axes, 9), 20, 1e-9);
    assert_true(isnan(ls_svg_axes_x(&axes, 0)));
    assert_true(isnan(ls_svg_axes_y(&axes, NAN)));
}

/* A line is cut off where it leaves the frame; what is not finite makes a gap. */
static void axes_cut_lines(void **state)
{
    (void)state;
    const ls_svg_axes axes = {.width = 100, .height = 100, .x_max = 4, .y_max = 1};
    const double x[] = {0, 1, 2, 3, 4}, y[] = {0, 2, NAN, 0.5, 0.5};
    ls_text text = {0};
    ls_svg_axes_line(&axes, x, y, 5, (ls_svg_ink){.color = 0}, &text);
    assert_non_null(strstr(ls_text_string(&text), "d=\"M0.0 100.0L12.5 0.0M75.0 50.0L100.0 50.0\""));
    ls_text_release(&text);
    const double above[] = {2, 3, 2, 3, 2};
    ls_svg_axes_line(&axes, x, above, 5, (ls_svg_ink){.color = 0}, &text);
    ls_svg_axes_dot(&axes, 1, 2, 3, (ls_svg_ink){.color = 0}, &text);
    ls_svg_axes_dot(&axes, NAN, 0.5, 3, (ls_svg_ink){.color = 0}, &text);
    ls_svg_axes_mark(&axes, 5, 0, &text);
    assert_int_equal(text.bytes, 0);
    ls_text_release(&text);
}

static void paragraph_breaks_lines(void **state)
{
    (void)state;
    ls_text text = {0};
    const double y = ls_svg_paragraph(&text, 0, 10, 50, -1, "one two three four");
    assert_float_equal(y, 10 + 3 * 14, 1e-9);
    assert_non_null(strstr(ls_text_string(&text), ">one two<"));
    assert_non_null(strstr(ls_text_string(&text), ">four<"));
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_short),
        cmocka_unit_test(axes_place_values),
        cmocka_unit_test(axes_cut_lines),
        cmocka_unit_test(paragraph_breaks_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
