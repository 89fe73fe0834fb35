// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "telemetry/record/goodput.h"

#include <math.h>
#include <string.h>

#define assert_seconds(seen, expected) assert_true(fabs((seen) - (expected)) < 1e-9)

static void goodput_classes_add_up_to_the_wall(void **state)
{
    (void)state;
    ls_goodput goodput;
    ls_goodput_begin(&goodput, 100.0);
    double now_s = 100.0;
    for (int i = 0; i < 1000; i++) {
        now_s += 0.001 * (double)(i % 7);
        ls_goodput_enter_at(&goodput, (ls_time_class)(i % LS_TIME_CLASS_COUNT), now_s);
        ls_goodput_move(&goodput, LS_TIME_COMPUTE, LS_TIME_DATA, 0.0005 * (double)(i % 5));
        assert_seconds(ls_goodput_wall_s(&goodput), now_s - 100.0);
        for (int c = 0; c < LS_TIME_CLASS_COUNT; c++) {
            assert_true(goodput.seconds[c] >= 0.0);
        }
    }
}

static void goodput_enter_books_the_class_that_ends(void **state)
{
    (void)state;
    ls_goodput goodput;
    ls_goodput_begin(&goodput, 0.0);
    ls_goodput_enter_at(&goodput, LS_TIME_COMPUTE, 2.0);
    ls_goodput_enter_at(&goodput, LS_TIME_EVALUATION, 8.0);
    ls_goodput_enter_at(&goodput, LS_TIME_COMPUTE, 7.0); /* a clock that went back adds nothing */
    ls_goodput_update_at(&goodput, 10.0);
    assert_seconds(goodput.seconds[LS_TIME_STARTUP], 2.0);
    assert_seconds(goodput.seconds[LS_TIME_COMPUTE], 8.0);
    assert_seconds(goodput.seconds[LS_TIME_EVALUATION], 0.0);
    assert_seconds(ls_goodput_fraction(&goodput), 0.8);
}

static void goodput_move_takes_no_more_than_there_is(void **state)
{
    (void)state;
    ls_goodput goodput = {.seconds = {[LS_TIME_COMPUTE] = 3.0}};
    ls_goodput_move(&goodput, LS_TIME_COMPUTE, LS_TIME_DATA, 5.0);
    assert_seconds(goodput.seconds[LS_TIME_COMPUTE], 0.0);
    assert_seconds(goodput.seconds[LS_TIME_DATA], 3.0);
    ls_goodput_move(&goodput, LS_TIME_DATA, LS_TIME_COMPUTE, -1.0);
    assert_seconds(goodput.seconds[LS_TIME_DATA], 3.0);
}

static void goodput_advice_names_the_largest_loss(void **state)
{
    (void)state;
    char text[256] = "untouched";
    const ls_goodput waits = {.seconds = {[LS_TIME_COMPUTE] = 61.0,
                                          [LS_TIME_DATA] = 28.0,
                                          [LS_TIME_CHECKPOINT] = 6.0,
                                          [LS_TIME_OTHER] = 5.0}};
    assert_true(ls_goodput_advice(&waits, text, sizeof text));
    assert_string_equal(
        text, "61 % busy: 28 % waiting for data, try data on a local disk, or more memory for its cache");
    char small[12] = "";
    assert_true(ls_goodput_advice(&waits, small, sizeof small)); /* cut, never beyond */
    assert_string_equal(small, "61 % busy: ");
}

static void goodput_advice_keeps_quiet(void **state)
{
    (void)state;
    char text[256] = "untouched";
    const ls_goodput busy = {.seconds = {[LS_TIME_COMPUTE] = 70.0, [LS_TIME_DATA] = 30.0}};
    const ls_goodput young = {
        .seconds = {[LS_TIME_STARTUP] = 60.0, [LS_TIME_COMPUTE] = 4.0, [LS_TIME_DATA] = 6.0}};
    const ls_goodput nothing = {0};
    assert_false(ls_goodput_advice(&busy, text, sizeof text));
    assert_false(ls_goodput_advice(&young, text, sizeof text));
    assert_false(ls_goodput_advice(&nothing, text, sizeof text));
    assert_string_equal(text, "untouched");
}

/* Each class can be the largest loss, and then has words for it. */
static void goodput_advice_knows_every_class(void **state)
{
    (void)state;
    for (int c = 0; c < LS_TIME_CLASS_COUNT; c++) {
        assert_true(strlen(ls_time_class_label((ls_time_class)c)) > 3);
        if (c == LS_TIME_COMPUTE || c == LS_TIME_PAUSED) {
            continue;
        }
        ls_goodput goodput = {.seconds = {[LS_TIME_COMPUTE] = 20.0}};
        goodput.seconds[c] = 80.0;
        char text[256] = "";
        assert_int_equal(ls_goodput_advice(&goodput, text, sizeof text),
                         c != LS_TIME_STARTUP || 20.0 > LS_GOODPUT_GRACE_S);
        assert_int_equal(strncmp(text, "20 % busy: 80 % ", 16), 0);
        assert_true(strlen(strstr(text, ", try ")) > 10);
    }
}

/* What nobody wanted to run is no loss. */
static void goodput_fraction_leaves_pauses_out(void **state)
{
    (void)state;
    char text[256] = "untouched";
    const ls_goodput paused = {
        .seconds = {[LS_TIME_COMPUTE] = 75.0, [LS_TIME_DOWN] = 25.0, [LS_TIME_PAUSED] = 1e6}};
    assert_seconds(ls_goodput_fraction(&paused), 0.75);
    assert_seconds(ls_goodput_wall_s(&paused), 1e6 + 100.0);
    assert_false(ls_goodput_advice(&paused, text, sizeof text));
}

static void goodput_describe_begins_with_the_largest(void **state)
{
    (void)state;
    char text[256] = "", small[12] = "";
    const ls_goodput time = {.seconds = {[LS_TIME_STARTUP] = 1.0,
                                         [LS_TIME_COMPUTE] = 70.0,
                                         [LS_TIME_RECOVERY] = 28.8,
                                         [LS_TIME_OTHER] = 0.2}};
    ls_goodput_describe(&time, text, sizeof text);
    assert_string_equal(text, "70 % training, 29 % recovering, 1 % starting up");
    ls_goodput_describe(&time, small, sizeof small); /* cut, never beyond */
    assert_string_equal(small, "70 % traini");
    ls_goodput_describe(&(ls_goodput){0}, text, sizeof text);
    assert_string_equal(text, "");
}

static void goodput_json_round_trip(void **state)
{
    (void)state;
    ls_goodput goodput = {0}, back;
    for (int c = 0; c < LS_TIME_CLASS_COUNT; c++) {
        goodput.seconds[c] = 0.1 * c;
    }
    json_t *object = ls_goodput_to_json(&goodput);
    json_object_set_new(object, "data", json_string("damaged"));
    json_object_set_new(object, "other", json_real(-4.0));
    ls_goodput_from_json(object, &back);
    json_decref(object);
    assert_seconds(back.seconds[LS_TIME_WAITING], 0.1 * LS_TIME_WAITING);
    assert_seconds(back.seconds[LS_TIME_DATA], 0.0);
    assert_seconds(back.seconds[LS_TIME_OTHER], 0.0);
    ls_goodput_from_json(NULL, &back);
    assert_seconds(ls_goodput_wall_s(&back), 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodput_classes_add_up_to_the_wall),
        cmocka_unit_test(goodput_enter_books_the_class_that_ends),
        cmocka_unit_test(goodput_move_takes_no_more_than_there_is),
        cmocka_unit_test(goodput_advice_names_the_largest_loss),
        cmocka_unit_test(goodput_advice_keeps_quiet),
        cmocka_unit_test(goodput_advice_knows_every_class),
        cmocka_unit_test(goodput_fraction_leaves_pauses_out),
        cmocka_unit_test(goodput_describe_begins_with_the_largest),
        cmocka_unit_test(goodput_json_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
