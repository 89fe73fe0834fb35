// SPDX-License-Identifier: Apache-2.0
/* Caps of jobs and budgets of accounts. A device costs 2 USD an hour (controller_world.h). */
#include "orchestration/control/controller_world.h"

#include <math.h>

#define HOUR_S 3600.0
#define DAY_S  86400.0

static void create_again(double price, const char *currency)
{
    ls_controller_destroy(w.controller);
    assert_int_equal(create(&w.controller), LS_OK);
    ls_controller_settings settings = default_settings();
    settings.price_per_device_h = price;
    settings.currency = currency;
    ls_controller_configure(w.controller, &settings);
    ls_controller_restored(w.controller, 1);
}

static const char *error_text(void)
{
    return json_string_value(json_object_get(w.answer, "error"));
}

static int submit_capped(void)
{
    return call(LS_VERB_SUBMIT,
                "{'file': 'name: w\\njob: {command: [run], max_cost: 5}\\n', 'directory': '/tmp'}");
}

/* Without a price, or with prices in another currency, a cap can't be kept. */
static void caps_need_a_price_in_usd(void **state)
{
    (void)state;
    assert_int_equal(submit_capped(), 201);
    create_again(0.0, "USD");
    assert_int_equal(submit_capped(), 400);
    assert_non_null(strstr(error_text(), "money.price"));
    create_again(2.0, "EUR");
    assert_int_equal(submit_capped(), 400);
    assert_non_null(strstr(error_text(), "EUR"));
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': 5}"), 400);
    assert_non_null(strstr(error_text(), "EUR"));
}

static void wait_for(double seconds)
{
    w.now_s += seconds;
    assert_true(ls_controller_has_work(w.controller));
    turn();
}

/* At its cap a job saves and is held; a raised cap lets it continue, a release does not. */
static void capped_jobs_are_held_until_the_cap_is_raised(void **state)
{
    (void)state;
    const uint64_t id = submit(2, "restartable: true, max_cost: 8");
    starts(id);
    assert_float_equal(ls_controller_next_s(w.controller), w.now_s + 2 * HOUR_S, 1.0);
    w.now_s += 2 * HOUR_S - 10.0;
    turn();
    assert_state(id, RUNNING);
    wait_for(10.0);
    assert_state(id, PREEMPTING);
    assert_int_equal(count_orders(LS_DO_STOP, id), 1);
    w.now_s += 9.0;
    ends(id, 75);
    assert_state(id, HELD);
    assert_string_equal(ls_job_cause_name(job(id)->cause), "budget");
    assert_string_equal(job(id)->text,
                        "stopped by its cap: 8.01 of 8.00 USD; raise it with 'lockstep change 1 --max-cost "
                        "16.00'");
    assert_int_equal(on(LS_VERB_RELEASE, id), 409);
    assert_non_null(strstr(error_text(), "stopped by its cap"));
    assert_int_equal(call(LS_VERB_CHANGE, "{'job': 1, 'max_cost': 8.01}"), 200);
    assert_state(id, HELD); /* what that allows is gone before it has started */
    restart();
    assert_state(id, HELD);
    assert_int_equal(call(LS_VERB_CHANGE, "{'job': 1, 'max_cost': 10}"), 200);
    assert_state(id, STARTING);
    starts(id);
    assert_int_equal(call(LS_VERB_CHANGE, "{'job': 1, 'max_cost': null}"), 200);
    w.now_s += 1000 * HOUR_S;
    turn();
    assert_state(id, RUNNING);
}

/* A run that sees its cap first ends with 75, a moment before the queue does. */
static void runs_that_stop_at_their_cap_are_held(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "restartable: true, max_cost: 2"), other = submit(1, "restartable: true");
    starts(id);
    starts(other);
    w.now_s += HOUR_S - 1.0;
    ends(id, 75);
    ends(other, 75);
    assert_state(id, HELD);
    assert_state(other, STARTING);
    assert_int_equal(job(id)->hold, LS_HOLD_CAP);
}

/* The runner of a job ends it at its cap; the queue may have told it to at the same moment. */
static void runners_that_stop_a_job_at_its_cap_are_no_time_limit(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "restartable: true, max_cost: 2");
    starts(id);
    wait_for(HOUR_S);
    assert_state(id, PREEMPTING);
    report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 75, .cause = LS_CAUSE_LIMIT});
    assert_state(id, HELD);
}

/* A program that cannot continue is ended, unless it says that it can. */
static void programs_end_at_their_cap(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "max_cost: 2"), able = submit(1, "max_cost: 2");
    starts(id);
    starts(able);
    wait_for(HOUR_S);
    assert_state(id, STOPPING);
    ends(id, 143);
    assert_state(id, FAILED);
    assert_string_equal(ls_job_cause_name(job(id)->cause), "budget");
    ends(able, 75);
    assert_state(able, HELD);
}

/* The account's budget holds all of its jobs, and nobody else's, until it is raised. */
static void budgets_hold_all_jobs_of_an_account(void **state)
{
    (void)state;
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': 8}"), 200);
    const uint64_t a = submit(2, "restartable: true, account: lab"), other = submit(1, "restartable: true");
    const uint64_t waits = submit(2, "account: lab");
    starts(a);
    starts(other);
    assert_float_equal(ls_controller_next_s(w.controller), w.now_s + 1.6 * HOUR_S, 1.0);
    wait_for(2 * HOUR_S);
    assert_state(a, PREEMPTING);
    assert_state(waits, HELD);
    assert_state(other, RUNNING);
    ends(a, 75);
    assert_state(a, HELD);
    assert_non_null(strstr(job(a)->text,
                           "budget of account lab: 8.00 of 8.00 USD this month; it continues on "
                           "1970-02-01"));
    assert_state(submit(1, "account: lab"), HELD);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': 50}"), 200);
    assert_state(a, STARTING);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': -1}"), 400);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': 0}"), 400);
    assert_int_equal(call(LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': 500}"), 403);
}

/* A new month begins with nothing spent, also for a job that ran over its beginning. */
static void budgets_begin_anew_with_the_month(void **state)
{
    (void)state;
    const double february_s = 31 * DAY_S;
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'lab', 'budget': 8}"), 200);
    w.now_s = february_s - HOUR_S;
    const uint64_t a = submit(2, "restartable: true, account: lab");
    starts(a);
    w.now_s = february_s + HOUR_S;
    turn(); /* 4 USD in January, 4 in February */
    assert_state(a, RUNNING);
    wait_for(HOUR_S);
    assert_state(a, PREEMPTING);
    ends(a, 75);
    assert_state(a, HELD);
    assert_float_equal(ls_controller_next_s(w.controller), 59 * DAY_S, 1.0);
    w.now_s = 59 * DAY_S;
    turn();
    assert_state(a, STARTING);
}

static double number_of(const char *key)
{
    assert_int_equal(call_as(0, LS_VERB_ACCOUNTS, "{}"), 200);
    const json_t *accounts = json_object_get(w.answer, "accounts");
    for (size_t i = 0; i < json_array_size(accounts); i++) {
        const json_t *account = json_array_get(accounts, i);
        if (strcmp(json_string_value(json_object_get(account, "account")), "ann") == 0) {
            return json_number_value(json_object_get(account, key));
        }
    }
    fail();
    return 0.0;
}

/* Jobs of random lengths at random times: the end of the month is foreseen within 10 %. */
static void months_are_forecast_within_a_tenth(void **state)
{
    (void)state;
    const double begin_s = 31 * DAY_S, end_s = 59 * DAY_S, days[] = {10, 15, 20, 25};
    double forecasts[4] = {0};
    uint64_t random = 7;
    w.now_s = 5 * DAY_S;
    for (size_t asked = 0; w.now_s < end_s - 1.0;) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const double busy_s = HOUR_S * (0.2 + 2.6 * (double)(random >> 40) / (1 << 24));
        const double pause_s = HOUR_S * 2.0 * (double)(random >> 16 & 0xffffff) / (1 << 24);
        const uint64_t id = submit(1 + (uint32_t)(random >> 62), "");
        starts(id);
        w.now_s = fmin(end_s - 1.0, w.now_s + busy_s);
        ends(id, 0);
        w.now_s = fmin(end_s - 1.0, w.now_s + pause_s);
        if (asked < 4 && w.now_s >= begin_s + days[asked] * DAY_S) {
            forecasts[asked++] = number_of("month_forecast");
        }
    }
    const double spent = number_of("month_cost");
    assert_true(spent > 100.0);
    for (size_t i = 0; i < 4; i++) {
        assert_float_equal(forecasts[i] / spent, 1.0, 0.1);
    }
}

enum { HISTORY_JOBS = 80 };

/* A second way to count: devices times the time between two events. */
static double devices_held(double held_s[HISTORY_JOBS + 1], uint64_t newest, double span_s)
{
    double sum_s = 0.0;
    for (uint64_t id = 1; id <= newest; id++) {
        if (job(id)->state == LS_JOB_RUNNING) {
            held_s[id] += span_s * job(id)->ranks_now;
            sum_s += span_s * job(id)->ranks_now;
        }
    }
    return sum_s;
}

static double sum_of(const json_t *rows, const char *key)
{
    double sum = 0.0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        sum += json_number_value(json_object_get(json_array_get(rows, i), key));
    }
    return sum;
}

/* Jobs of three accounts that begin and end at random times: each is charged to the second, and the
 * accounts add up to what the machine gave. */
static void accounts_add_up_to_the_machine(void **state)
{
    (void)state;
    static const char *const accounts[] = {"account: a", "account: b", "account: c"};
    double held_s[HISTORY_JOBS + 1] = {0}, machine_s = 0.0;
    uint64_t newest = 0, random = 11;
    while (newest < HISTORY_JOBS) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const double span_s = 900.0 * (double)(random >> 40) / (1 << 24);
        w.now_s += span_s;
        machine_s += devices_held(held_s, newest, span_s);
        uint64_t oldest = 0, waiting = 0;
        for (uint64_t id = newest; id > 0; id--) {
            oldest = job(id)->state == LS_JOB_RUNNING ? id : oldest;
            waiting += job(id)->state == LS_JOB_QUEUED;
        }
        if (oldest > 0 && (waiting > 6 || (random >> 18 & 1))) {
            ends(oldest, (int)(random >> 19 & 1));
        } else {
            newest = submit(1 + (uint32_t)(random >> 62), accounts[(random >> 10) % 3]);
        }
        for (uint64_t id = 1; id <= newest; id++) {
            if (job(id)->state == LS_JOB_STARTING) {
                starts(id);
            }
        }
    }
    assert_true(machine_s > 10 * HOUR_S);
    for (uint64_t id = 1; id <= newest; id++) {
        assert_int_equal(on(LS_VERB_SHOW, id), 200);
        const json_t *usage = json_object_get(w.answer, "usage");
        assert_float_equal(json_number_value(json_object_get(usage, "allocated_h")) * HOUR_S, held_s[id],
                           1.0);
    }
    assert_int_equal(call(LS_VERB_USAGE, "{}"), 200);
    const json_t *rows = json_object_get(w.answer, "accounts");
    assert_float_equal(sum_of(rows, "allocated_h") * HOUR_S, machine_s, 1e-3 * machine_s);
    assert_float_equal(sum_of(rows, "cost"), 2.0 / HOUR_S * machine_s, 2e-3 / HOUR_S * machine_s);
}

static double shown(uint64_t id, const char *key)
{
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    return json_number_value(json_object_get(w.answer, key));
}

/* A device of a node of kind "fast" costs 6 USD an hour, and any other one 2. */
static void use_kinds(void)
{
    static const char *const prices[] = {"fast=6"};
    ls_controller_settings settings = default_settings();
    settings.price_per_device_h = 2.0;
    settings.kind_prices = (ls_option_strings){.items = (void *)(uintptr_t)prices, .count = 1};
    w.engine.node.kind = "fast";
    ls_controller_configure(w.controller, &settings);
}

/* Each start is charged at the price of the nodes it had; the cap holds for all of them. */
static void kinds_of_nodes_have_prices(void **state)
{
    (void)state;
    use_kinds();
    const uint64_t id = submit(1, "restartable: true, max_cost: 9");
    starts(id);
    assert_float_equal(ls_controller_next_s(w.controller), w.now_s + 1.5 * HOUR_S, 1.0);
    w.now_s += HOUR_S;
    w.engine.node.kind = "slow";
    ends(id, 75);
    starts(id);
    assert_string_equal(job(id)->kind, "slow");
    assert_float_equal(shown(id, "cost"), 6.0, 1e-6);
    assert_float_equal(ls_job_spent_usd(job(id)), 6.0, 1e-6);
    assert_float_equal(ls_controller_next_s(w.controller), w.now_s + 1.5 * HOUR_S, 1.0);
    wait_for(1.5 * HOUR_S);
    assert_state(id, PREEMPTING);
    assert_float_equal(shown(id, "cost"), 9.0, 1e-6);
    assert_float_equal(number_of("month_cost"), 9.0, 1e-6);
    ends(id, 75);
    assert_int_equal(call(LS_VERB_USAGE, "{}"), 200);
    const json_t *total = json_object_get(w.answer, "total");
    assert_float_equal(json_number_value(json_object_get(total, "cost")), 9.0, 1e-6);
    assert_float_equal(json_number_value(json_object_get(total, "allocated_h")), 2.5, 1e-6);
    restart();
    assert_float_equal(shown(id, "cost"), 9.0, 1e-6);
}

/* Where the engine places the jobs, it says on which node one has begun. */
static void engines_that_decide_name_the_node(void **state)
{
    (void)state;
    use_kinds();
    const uint64_t id = submit(2, ""), other = submit(2, "");
    report(id, (ls_engine_report){.kind = LS_ENGINE_STARTED, .node = "far"});
    w.engine.node.kind = "slow";
    report(other, (ls_engine_report){.kind = LS_ENGINE_STARTED, .node = "far"});
    w.now_s += HOUR_S;
    turn();
    assert_float_equal(shown(id, "cost"), 12.0, 1e-6);
    assert_string_equal(json_string_value(json_object_get(w.answer, "kind")), "fast");
    assert_float_equal(shown(other, "cost"), 4.0, 1e-6);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(caps_need_a_price_in_usd),
        TEST(capped_jobs_are_held_until_the_cap_is_raised),
        TEST(runs_that_stop_at_their_cap_are_held),
        TEST(runners_that_stop_a_job_at_its_cap_are_no_time_limit),
        TEST(programs_end_at_their_cap),
        TEST(budgets_hold_all_jobs_of_an_account),
        TEST(budgets_begin_anew_with_the_month),
        TEST(months_are_forecast_within_a_tenth),
        TEST(accounts_add_up_to_the_machine),
        TEST(kinds_of_nodes_have_prices),
        cmocka_unit_test_setup_teardown(engines_that_decide_name_the_node, set_up_deciding, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
