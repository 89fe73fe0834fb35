// SPDX-License-Identifier: Apache-2.0
/* Energy: what jobs and accounts have used adds up to what the machine has used. */
#include "orchestration/control/controller_world.h"

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void tell(uint64_t id, ls_engine_report_kind kind, uint64_t energy_mj)
{
    ls_engine_report value = {.kind = kind, .energy_mj = energy_mj, .busy_permille = 900};
    if (id > 0) {
        report(id, value);
        return;
    }
    ls_controller_report(w.controller, &value);
    turn();
}

static void usage_adds_up(double machine_j, double free_j)
{
    assert_int_equal(call(LS_VERB_USAGE, "{}"), 200);
    const json_t *machine = json_object_get(w.answer, "machine"),
                 *accounts = json_object_get(w.answer, "accounts");
    double sum_j = 0.0;
    for (size_t i = 0; i < json_array_size(accounts); i++) {
        sum_j += number(json_array_get(accounts, i), "energy_j");
    }
    assert_float_equal(number(machine, "energy_j"), machine_j, 1e-9);
    assert_float_equal(number(machine, "free_energy_j"), free_j, 1e-9);
    assert_float_equal(sum_j + free_j, machine_j, 1e-3 * machine_j);
    assert_float_equal(number(json_object_get(w.answer, "total"), "energy_j"), sum_j, 1e-9);
}

static void energy_adds_up(void **state)
{
    (void)state;
    assert_int_equal(call(LS_VERB_USAGE, "{}"), 200);
    assert_true(json_is_null(json_object_get(w.answer, "machine"))); /* nothing was measured */
    const uint64_t own = submit(1, ""), team = submit(2, "account: team");
    starts(own);
    starts(team);
    tell(own, LS_ENGINE_ACTIVITY, 1500);
    tell(team, LS_ENGINE_ACTIVITY, 3000);
    tell(0, LS_ENGINE_FREE_ENERGY, 1500);
    usage_adds_up(6.0, 1.5);
    report(own, (ls_engine_report){.kind = LS_ENGINE_ENDED, .energy_mj = 500}); /* its last second */
    usage_adds_up(6.5, 1.5);
    assert_int_equal(on(LS_VERB_SHOW, own), 200);
    assert_float_equal(number(json_object_get(w.answer, "usage"), "energy_j"), 2.0, 1e-9);
    report(team, (ls_engine_report){.kind = LS_ENGINE_PROGRESS, .step = 10, .steps = 20});
    assert_int_equal(on(LS_VERB_SHOW, team), 200);
    const json_t *rates = json_object_get(w.answer, "rates");
    assert_float_equal(number(rates, "step_energy_j"), 0.3, 1e-9);
    assert_true(json_is_null(json_object_get(rates, "million_tokens_energy_j"))); /* a program has none */
    assert_int_equal(call_as(0, LS_VERB_PAUSE, "{}"), 200);
    assert_null(json_object_get(w.answer, "free_energy_mj")); /* not part of the upkeep people see */
}

static void energy_of_ended_jobs_is_kept(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "");
    starts(id);
    tell(id, LS_ENGINE_ACTIVITY, 700);
    json_t *record = ls_job_record_json(job(id));
    assert_int_equal(json_integer_value(json_object_get(record, "energy")), 700);
    json_decref(record);
    ends(id, 0);
    tell(id, LS_ENGINE_ACTIVITY, 9000); /* of an epoch that is over */
    usage_adds_up(0.7, 0.0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(energy_adds_up),
        CASE(energy_of_ended_jobs_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
