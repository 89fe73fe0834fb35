// SPDX-License-Identifier: Apache-2.0
/* Alerts of the queue, and what follows when devices do nothing. */
#include "orchestration/control/controller_world.h"

static uint32_t count_alerts(const char *kind)
{
    uint32_t count = 0;
    assert_int_equal(call_as(0, LS_VERB_ALERTS, "{}"), 200);
    const json_t *list = json_object_get(w.answer, "alerts");
    for (size_t i = 0; i < json_array_size(list); i++) {
        count += strcmp(json_string_value(json_object_get(json_array_get(list, i), "kind")), kind) == 0;
    }
    return count;
}

static const char *last_text(void)
{
    assert_int_equal(call_as(0, LS_VERB_ALERTS, "{}"), 200);
    const json_t *list = json_object_get(w.answer, "alerts");
    return json_string_value(json_object_get(json_array_get(list, json_array_size(list) - 1), "text"));
}

static void configure(double idle_stop_s, double busy_for_s)
{
    ls_controller_settings settings = default_settings();
    settings.price_per_device_h = 2.0;
    settings.idle_s = 30.0;
    settings.idle_stop_s = idle_stop_s;
    settings.idle_interactive_s = 60.0;
    settings.busy_for_s = busy_for_s;
    settings.busy_below = 0.7;
    ls_controller_configure(w.controller, &settings);
}

static uint64_t submit_run(const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "{'file': 'name: r\\ndata: {train: [a.txt]}\\njob: {%s}\\n', 'directory': '/tmp'}", more);
    assert_int_equal(call(LS_VERB_SUBMIT, text), 201);
    const uint64_t id = (uint64_t)json_integer_value(json_object_get(w.answer, "job"));
    starts(id);
    return id;
}

static void step(uint64_t id, uint64_t number, double left_s)
{
    report(id,
           (ls_engine_report){.kind = LS_ENGINE_PROGRESS, .step = number, .steps = 100, .left_s = left_s});
}

/* A run without a step for ten minutes is told once, by the time alone; a step ends that. */
static void stalls_are_told_once(void **state)
{
    (void)state;
    const uint64_t id = submit_run("hold: false"), calm = submit_run("hold: false}\\nalerts: {stall: 0");
    w.now_s += 5000.0;
    turn(); /* it has not begun */
    step(calm, 1, 0.0);
    step(id, 1, 0.0);
    w.now_s += 300.0;
    step(id, 1, 0.0); /* the same step is no step */
    w.now_s += 300.0;
    assert_true(ls_controller_has_work(w.controller));
    turn();
    assert_int_equal(count_alerts("stall"), 1);
    assert_non_null(strstr(last_text(), "no step has ended for 10 min"));
    restart();
    w.now_s += 5000.0;
    turn();
    assert_int_equal(count_alerts("stall"), 0); /* what was told stays told */
    step(id, 2, 0.0);
    w.now_s += 600.0;
    turn();
    assert_int_equal(count_alerts("stall"), 1);
}

static void deadlines_that_will_be_missed_are_told(void **state)
{
    (void)state;
    const uint64_t id = submit_run("deadline: 1h");
    step(id, 1, 3000.0);
    assert_int_equal(count_alerts("deadline"), 0);
    step(id, 2, 4200.0);
    step(id, 3, 4200.0);
    assert_int_equal(count_alerts("deadline"), 1);
    assert_non_null(strstr(last_text(), "10 min 00 s after its deadline"));
}

static void busy(uint64_t id, uint32_t permille)
{
    w.now_s += 10.0;
    report(id, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY, .busy_permille = permille});
}

static void low_utilisation_is_told(void **state)
{
    (void)state;
    configure(0.0, 100.0);
    const uint64_t id = submit_run("hold: false");
    for (int i = 0; i < 11; i++) {
        busy(id, 500);
    }
    assert_int_equal(count_alerts("utilisation"), 1);
    assert_non_null(strstr(last_text(), "busy for 50 %"));
    for (int i = 0; i < 10; i++) {
        busy(id, 400);
    }
    assert_int_equal(count_alerts("utilisation"), 1);
}

/* Told after 30 s, stopped after 100: a run is held until it is released, a program ends. */
static void idle_jobs_are_told_and_stopped(void **state)
{
    (void)state;
    configure(100.0, 0.0);
    const uint64_t id = submit_run("hold: false"), program = submit(1, "");
    starts(program);
    for (int i = 0; i < 4; i++) {
        busy(id, 0);
        busy(program, 0);
    }
    assert_int_equal(count_alerts("idle"), 2);
    assert_non_null(strstr(last_text(), "it is stopped in"));
    assert_state(id, RUNNING);
    for (int i = 0; i < 4; i++) {
        busy(id, 0);
        busy(program, 0);
    }
    assert_state(id, PREEMPTING);
    assert_state(program, STOPPING);
    ends(id, 75);
    ends(program, 143);
    assert_state(id, HELD);
    assert_state(program, FAILED);
    assert_string_equal(ls_job_cause_name(job(id)->cause), "idle");
    assert_non_null(strstr(job(id)->text, "did nothing for"));
    assert_int_equal(on(LS_VERB_RELEASE, id), 200);
    assert_state(id, STARTING);
}

static uint64_t submit_shell(void)
{
    assert_int_equal(call(LS_VERB_SUBMIT, "{'file': 'name: sh\\njob: {command: [sh], interactive: true, "
                                          "restartable: false}\\n', 'directory': '/tmp'}"),
                     201);
    const uint64_t id = (uint64_t)json_integer_value(json_object_get(w.answer, "job"));
    starts(id);
    return id;
}

/* A shell that is typed into is used; one that is not gives its device back, however it ends, and is
 * started anew for the asking. Released before it has ended, it goes straight on. */
static void interactive_jobs_give_back_and_return(void **state)
{
    (void)state;
    configure(0.0, 0.0);
    const uint64_t used = submit_shell(), left = submit_shell();
    for (int i = 0; i < 8; i++) {
        busy(left, 0);
        report(used, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY, .time_s = w.now_s - 5.0});
    }
    assert_state(used, RUNNING);
    assert_state(left, PREEMPTING);
    assert_int_equal(count_alerts("idle"), 2); /* both devices do nothing */
    ends(left, 1);
    assert_state(left, HELD);
    assert_non_null(strstr(job(left)->text, "'lockstep release 2', starts it anew"));
    assert_int_equal(on(LS_VERB_RELEASE, left), 200);
    starts(left);
    for (int i = 0; i < 8; i++) {
        busy(left, 0);
    }
    assert_state(left, PREEMPTING);
    assert_int_equal(on(LS_VERB_RELEASE, left), 200);
    ends(left, 0);
    starts(left);
    assert_int_equal(on(LS_VERB_CANCEL, left), 200);
    ends(left, 1);
    assert_state(left, CANCELLED);
}

/* What a job says of itself is shown to those who may see the job, without control characters, and
 * once in each start. */
static void jobs_tell_of_themselves(void **state)
{
    (void)state;
    const uint64_t id = submit_run("hold: false");
    const ls_engine_report nan = {.kind = LS_ENGINE_ALERT,
                                  .alert = LS_ALERT_NOT_FINITE,
                                  .alert_number = 1,
                                  .text = "<b>\x1b[31mnot a number\n</b>"};
    const ls_engine_report other = {
        .kind = LS_ENGINE_ALERT, .alert = LS_ALERT_OTHER, .alert_number = 2, .text = "other"};
    report(id, nan);
    report(id, nan);
    assert_int_equal(count_alerts("not_finite"), 1);
    assert_null(strchr(last_text(), '\x1b'));
    assert_null(strchr(last_text(), '\n'));
    assert_int_equal(call_as(1001, LS_VERB_ALERTS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "alerts")), 0);
    assert_int_equal(call(LS_VERB_ALERTS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "alerts")), 1);
    assert_int_equal(call(LS_VERB_ALERTS, "{'after': 1}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "alerts")), 0);
    assert_int_equal(call(LS_VERB_LIST, "{}"), 200);
    assert_non_null(strstr(
        json_string_value(json_object_get(json_array_get(json_object_get(w.answer, "jobs"), 0), "why")),
        "alert: <b>"));
    report(id, other);
    assert_int_equal(count_alerts("other"), 1);
    restart();
    report(id, other); /* the engine begins anew, the job does not */
    assert_int_equal(count_alerts("other"), 0);
}

/* A budget is told at 80 % and at 100 %, and leaves with the turn. */
static void budgets_are_told_twice(void **state)
{
    (void)state;
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': 8}"), 200);
    const uint64_t id = submit(4, "restartable: true, account: lab");
    starts(id);
    w.now_s += 0.8 * 3600.0;
    ls_turn value;
    ls_controller_turn(w.controller, &value);
    assert_int_equal(value.alert_count, 1);
    assert_string_equal(value.alerts[0].account, "lab");
    assert_string_equal(value.alerts[0].text,
                        "account lab has used 6.40 of its budget of 8.00 USD for this month");
    ls_controller_turn_done(w.controller);
    w.now_s += 0.1 * 3600.0;
    turn();
    assert_int_equal(count_alerts("budget"), 1);
    w.now_s += 0.1 * 3600.0;
    turn();
    w.now_s += 0.1 * 3600.0;
    turn();
    assert_int_equal(count_alerts("budget"), 2);
}

/* A text is cut between characters: in the middle of one it would be lost, with its history. */
static void long_alerts_are_cut_between_characters(void **state)
{
    (void)state;
    const uint64_t id = submit_run("hold: false");
    for (size_t i = 0; i < 3; i++) {
        ls_text text = {0};
        ls_text_append_bytes(&text, "\x01\x01\x01", 3);
        ls_text_append_bytes(&text, "aaa", i);
        while (text.bytes < 400) {
            ls_text_append(&text, "é€");
        }
        report(id, (ls_engine_report){.kind = LS_ENGINE_ALERT,
                                      .alert_number = (uint32_t)i + 1,
                                      .alert = LS_ALERT_OTHER,
                                      .text = ls_text_string(&text)});
        assert_int_equal(count_alerts("other"), i + 1);
        assert_int_equal(strncmp(last_text(), "\\x01\\x01\\x01aaa", 12 + i), 0);
        assert_in_range(strlen(last_text()), LS_ALERT_TEXT_BYTES - 5, LS_ALERT_TEXT_BYTES - 1);
        ls_text_release(&text);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(long_alerts_are_cut_between_characters),
        TEST(stalls_are_told_once),
        TEST(deadlines_that_will_be_missed_are_told),
        TEST(low_utilisation_is_told),
        TEST(idle_jobs_are_told_and_stopped),
        TEST(interactive_jobs_give_back_and_return),
        TEST(jobs_tell_of_themselves),
        TEST(budgets_are_told_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
