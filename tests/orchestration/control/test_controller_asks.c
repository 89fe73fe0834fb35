// SPDX-License-Identifier: Apache-2.0
/* What a run file asks of the queue reaches the policy, each key by what it changes. */
#include "orchestration/control/controller_world.h"

static int set_up_spot(void **state)
{
    (void)set_up(state);
    ls_controller_destroy(w.controller);
    w.engine.node.spot = true;
    assert_int_equal(create(&w.controller), LS_OK);
    ls_controller_restored(w.controller, 1);
    return 0;
}

/* A machine that may be taken away is for jobs that can live with it. */
static void spot_nodes_are_for_spot_jobs(void **state)
{
    (void)state;
    assert_int_equal(call(LS_VERB_SUBMIT, "{'file': 'job: {command: [run]}', 'directory': '/tmp'}"), 400);
    assert_non_null(json_string_value(json_object_get(w.answer, "error")));
    const uint64_t id = submit(1, "spot: true");
    assert_state(id, STARTING);
    assert_int_equal(call(LS_VERB_NODES, "{}"), 200);
    assert_true(json_is_true(json_object_get(json_array_get(json_object_get(w.answer, "nodes"), 0), "spot")));
}

/* Of two running jobs of the same priority, the one that allows it is stopped. */
static void spot_jobs_leave_first(void **state)
{
    (void)state;
    const uint64_t firm = submit(2, "restartable: true"), spot = submit(2, "spot: true, restartable: true");
    starts(firm);
    starts(spot);
    w.now_s += 3600.0;
    const uint64_t next = submit(2, "");
    assert_state(firm, RUNNING);
    assert_state(spot, PREEMPTING);
    ends(spot, 75);
    assert_state(next, STARTING);
    assert_state(spot, QUEUED);
}

/* A job with a near deadline comes before one that was submitted earlier. */
static void deadlines_raise_a_job(void **state)
{
    (void)state;
    const uint64_t blocker = submit(4, "");
    starts(blocker);
    const uint64_t first = submit(4, ""), urgent = submit(4, "deadline: 2h, time_limit: 1h");
    w.now_s += 3000.0;
    ends(blocker, 0);
    assert_state(urgent, STARTING);
    assert_state(first, QUEUED);
}

/* Small jobs start before a gang whose start time is known, if they end before it. */
static void short_jobs_run_before_a_reserved_start(void **state)
{
    (void)state;
    const uint64_t blocker = submit(3, "time_limit: 1h");
    starts(blocker);
    const uint64_t gang = submit(4, "priority: high, time_limit: 1h");
    assert_state(gang, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, gang), 200);
    assert_true(json_is_true(json_object_get(w.answer, "eta_is_reserved")));
    assert_float_equal(json_number_value(json_object_get(w.answer, "eta_s")), 3600.0, 1.0);
    const uint64_t slow = submit(1, "time_limit: 2h");
    assert_state(slow, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, slow), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "reservation");
    const uint64_t quick = submit(1, "time_limit: 30m");
    assert_state(quick, STARTING);
    assert_state(slow, QUEUED);
}

/* Jobs of a group run one after the other, and a job waits for them that does not mind how they
 * end. */
static void groups_and_dependents_wait(void **state)
{
    (void)state;
    const uint64_t first = submit(1, "group: {name: g, running_max: 1}"),
                   second = submit(1, "group: {name: g, running_max: 1}");
    char more[64];
    snprintf(more, sizeof more, "after: [%llu], after_any: true", (unsigned long long)first);
    const uint64_t behind = submit(1, more), later = submit(1, "begin: 10m");
    assert_state(first, STARTING);
    assert_state(second, QUEUED);
    assert_state(behind, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, second), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "group");
    starts(first);
    ends(first, 1);
    assert_state(second, STARTING);
    assert_state(behind, STARTING);
    assert_state(later, QUEUED);
    assert_float_equal(ls_controller_next_s(w.controller), w.now_s + 600.0, 601.0);
    w.now_s += 600.0;
    turn();
    assert_state(later, STARTING);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(spot_nodes_are_for_spot_jobs, set_up_spot, tear_down),
        CASE(spot_jobs_leave_first),
        CASE(deadlines_raise_a_job),
        CASE(short_jobs_run_before_a_reserved_start),
        CASE(groups_and_dependents_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
