// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "telemetry/record/alert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct {
    uint32_t count;
    ls_alert_kind kind;
    char text[LS_ALERT_TEXT_BYTES];
} told;

static void tell(void *context, ls_alert_kind kind, const char *text)
{
    (void)context;
    told.count++;
    told.kind = kind;
    snprintf(told.text, sizeof told.text, "%s", text);
}

static const ls_run_alerts rules = {.not_finite = true,
                                    .loss_spike = 8.0,
                                    .stall_s = 60.0,
                                    .utilisation = 0.7,
                                    .utilisation_for_s = 100.0,
                                    .disk_bytes = 1 << 30};

static ls_alert_watch begin(void)
{
    ls_alert_watch watch = {.tell = tell};
    memset(&told, 0, sizeof told);
    ls_alert_watch_begin(&watch, &rules);
    return watch;
}

static void names_are_read_back(void **state)
{
    (void)state;
    for (int kind = 0; kind < LS_ALERT_KINDS; kind++) {
        assert_int_equal(ls_alert_named(ls_alert_name((ls_alert_kind)kind)), kind);
    }
    assert_int_equal(ls_alert_named("<b>"), LS_ALERT_OTHER);
    assert_int_equal(ls_alert_named(NULL), LS_ALERT_OTHER);
}

/* Losses of 2.0, give or take 0.1: 2.7 is usual enough, 3.5 is a spike, told once until it is over. */
static void losses_that_jump_are_told_once(void **state)
{
    (void)state;
    ls_alert_watch watch = begin();
    uint64_t step = 0;
    for (; step < 100; step++) {
        ls_alert_watch_step(&watch, step, step % 2 ? 2.1 : 1.9, (double)step + 1.0);
    }
    ls_alert_watch_step(&watch, step++, 2.7, 101.0);
    assert_int_equal(told.count, 0);
    for (int i = 0; i < 5; i++) {
        ls_alert_watch_step(&watch, step++, 3.5, 102.0);
    }
    assert_int_equal(told.count, 1);
    assert_int_equal(told.kind, LS_ALERT_LOSS_SPIKE);
    assert_non_null(strstr(told.text, "rose to 3.5 at step 101"));
    ls_alert_watch_step(&watch, step++, 2.0, 103.0);
    ls_alert_watch_step(&watch, step++, 9.0, 104.0);
    assert_int_equal(told.count, 2);
}

static void first_losses_are_no_spikes(void **state)
{
    (void)state;
    ls_alert_watch watch = begin();
    ls_alert_watch_step(&watch, 1, 1.0, 1.0);
    ls_alert_watch_step(&watch, 2, 100.0, 2.0);
    ls_alert_watch_step(&watch, 3, NAN, 3.0);
    assert_int_equal(told.count, 0);
}

static void stalls_are_told_once_each(void **state)
{
    (void)state;
    ls_alert_watch watch = begin();
    const ls_goodput time = {.seconds = {[LS_TIME_COMPUTE] = 1e9}};
    ls_alert_watch_tick(&watch, &time, 1000.0); /* nothing has begun */
    ls_alert_watch_step(&watch, 7, NAN, 1000.0);
    ls_alert_watch_tick(&watch, &time, 1059.0);
    assert_int_equal(told.count, 0);
    ls_alert_watch_tick(&watch, &time, 1060.0);
    ls_alert_watch_tick(&watch, &time, 1075.0);
    assert_int_equal(told.count, 1);
    assert_string_equal(told.text, "no step has ended for 1 min 00 s, since step 7 (alerts.stall)");
    ls_alert_watch_step(&watch, 8, NAN, 1076.0);
    ls_alert_watch_tick(&watch, &time, 1136.0);
    assert_int_equal(told.count, 2);
}

/* 60 of 100 seconds computing, 30 waiting for data. */
static void low_utilisation_names_what_took_the_time(void **state)
{
    (void)state;
    ls_alert_watch watch = begin();
    ls_goodput time = {.seconds = {[LS_TIME_STARTUP] = 500.0}};
    ls_alert_watch_step(&watch, 1, NAN, 1000.0);
    ls_alert_watch_tick(&watch, &time, 1000.0);
    for (int i = 1; i <= 10; i++) {
        time.seconds[LS_TIME_COMPUTE] += 6.0;
        time.seconds[LS_TIME_DATA] += 3.0;
        time.seconds[LS_TIME_CHECKPOINT] += 1.0;
        ls_alert_watch_step(&watch, 1, NAN, 1000.0 + 10.0 * i);
        ls_alert_watch_tick(&watch, &time, 1000.0 + 10.0 * i);
        assert_int_equal(told.count, i == 10);
    }
    assert_int_equal(told.kind, LS_ALERT_UTILISATION);
    assert_non_null(strstr(told.text, "only 60 %"));
    assert_non_null(strstr(told.text, "30 % was spent waiting for data"));
}

static void full_disks_are_told(void **state)
{
    (void)state;
    ls_alert_watch watch = begin();
    ls_alert_watch_disk(&watch, "/runs", 1 << 30);
    assert_int_equal(told.count, 0);
    ls_alert_watch_disk(&watch, "/runs", (1 << 30) - 1);
    ls_alert_watch_disk(&watch, "/runs", (1 << 30) + 1);
    ls_alert_watch_disk(&watch, "/runs", 1);
    assert_int_equal(told.count, 1);
    ls_alert_watch_disk(&watch, "/runs", UINT64_C(2) << 30);
    ls_alert_watch_disk(&watch, "/runs", 1);
    assert_int_equal(told.count, 2);
}

static void happenings_follow_the_rules(void **state)
{
    (void)state;
    ls_alert_watch watch = begin();
    ls_alert_watch_happened(&watch, LS_ALERT_RANKS, "rank 1 was lost"); /* not in these rules */
    assert_int_equal(told.count, 0);
    ls_alert_watch_happened(&watch, LS_ALERT_NOT_FINITE, "nan");
    ls_alert_watch_happened(&watch, LS_ALERT_CAP, "5 of 5");
    assert_int_equal(told.count, 2);
    assert_string_equal(told.text, "5 of 5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_back),
        cmocka_unit_test(losses_that_jump_are_told_once),
        cmocka_unit_test(first_losses_are_no_spikes),
        cmocka_unit_test(stalls_are_told_once_each),
        cmocka_unit_test(low_utilisation_names_what_took_the_time),
        cmocka_unit_test(full_disks_are_told),
        cmocka_unit_test(happenings_follow_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
