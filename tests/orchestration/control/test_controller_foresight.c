// SPDX-License-Identifier: Apache-2.0
/* Predictions about jobs from their steps, and what happened. */
#include "orchestration/control/controller_world.h"

#include <math.h>

/* A training run of 40 steps on all four devices. */
static uint64_t submit_run(void)
{
    assert_int_equal(call(LS_VERB_SUBMIT,
                          "{'file': 'data: {train: [x]}\\ntrain: {steps: 40, global_batch: 8, leaves: 8}\\n"
                          "job: {max_ranks: 4}\\nparallel: {ranks: 4}', 'directory': '/tmp'}"),
                     201);
    return (uint64_t)json_integer_value(json_object_get(w.answer, "job"));
}

static double number_in(const char *object, const char *key)
{
    return json_number_value(json_object_get(json_object_get(w.answer, object), key));
}

/* Steps predict when a run ends, which is when the next one starts; both are kept with what
 * happened. */
static void steps_foretell_ends_and_starts(void **state)
{
    (void)state;
    const uint64_t id = submit_run();
    assert_int_equal(job(id)->spec.steps, 40);
    starts(id);
    const uint64_t next = submit(4, "");
    assert_int_equal(on(LS_VERB_WHY, next), 200);
    assert_true(json_is_null(json_object_get(w.answer, "eta_s"))); /* not known */
    const double began_s = w.now_s;
    w.now_s += 100.0;
    report(id, (ls_engine_report){.kind = LS_ENGINE_PROGRESS, .step = 10, .steps = 40, .left_s = 300.0});
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    assert_float_equal(number_in("foresight", "end"), began_s + 400.0, 0.01);
    assert_float_equal(json_number_value(json_object_get(w.answer, "ends")), began_s + 400.0, 0.01);
    assert_int_equal(on(LS_VERB_WHY, next), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "eta_s")), 300.0, 0.01);
    const json_t *blocker = json_array_get(json_object_get(w.answer, "blockers"), 0);
    assert_float_equal(json_number_value(json_object_get(blocker, "ends")), began_s + 400.0, 0.01);
    /* It becomes slower: the current prediction moves, the first one stays. */
    w.now_s += 100.0;
    report(id, (ls_engine_report){.kind = LS_ENGINE_PROGRESS, .step = 15, .steps = 40, .left_s = 250.0});
    assert_int_equal(on(LS_VERB_WHY, next), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "eta_s")), 250.0, 0.01);
    assert_int_equal(on(LS_VERB_SHOW, next), 200);
    assert_float_equal(number_in("foresight", "start"), began_s + 400.0, 0.01);
    w.now_s += 250.0;
    ends(id, 0);
    assert_state(next, STARTING);
    assert_int_equal(on(LS_VERB_SHOW, next), 200);
    assert_float_equal(number_in("foresight", "started"), began_s + 450.0, 0.01);
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    assert_float_equal(number_in("foresight", "ended"), began_s + 450.0, 0.01);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "step")), 40);
    assert_int_equal(call(LS_VERB_USAGE, "{}"), 200);
    const json_t *seen = json_object_get(w.answer, "foresight");
    const json_t *starts_seen = json_object_get(seen, "starts"), *ends_seen = json_object_get(seen, "ends");
    assert_int_equal(json_integer_value(json_object_get(starts_seen, "count")), 1);
    assert_float_equal(json_number_value(json_object_get(starts_seen, "error_median_s")), 50.0, 0.01);
    assert_float_equal(json_number_value(json_object_get(ends_seen, "ratio_median")), 350.0 / 300.0, 1e-3);
}

/* What is known about a run survives the daemon, both with devices and waiting with some of its
 * steps done. */
static void steps_are_known_behind_a_restart(void **state)
{
    (void)state;
    const uint64_t id = submit_run(), next = submit(4, "");
    starts(id);
    w.now_s += 100.0;
    report(id, (ls_engine_report){.kind = LS_ENGINE_PROGRESS, .step = 10, .steps = 40, .left_s = 300.0});
    ls_controller *after = NULL;
    assert_int_equal(create(&after), LS_OK);
    for (uint64_t i = id; i <= next; i++) {
        ls_job *copy = NULL;
        json_t *record = ls_job_record_json(job(i));
        assert_int_equal(ls_job_create(i, json_deep_copy(job(i)->request), &copy), LS_OK);
        ls_job_set_user(copy, job(i)->uid, job(i)->gid, job(i)->user);
        ls_job_set_account(copy, job(i)->account);
        assert_int_equal(ls_job_record_read(copy, record), LS_OK);
        json_decref(record);
        ls_controller_restore(after, copy);
    }
    w.now_s += 60.0;
    ls_controller_destroy(w.controller);
    w.controller = after;
    ls_controller_restored(w.controller, next + 1);
    turn();
    turn();
    assert_int_equal(on(LS_VERB_WHY, next), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "eta_s")), 240.0, 0.01);
    /* stopped with its work saved: it needs what was left */
    assert_int_equal(on(LS_VERB_HOLD, id), 200);
    w.now_s += 40.0;
    ends(id, 75);
    assert_state(id, HELD);
    assert_float_equal(job(id)->left_s, 200.0, 0.01);
}

/* Whatever run time a run reports, its end is a valid time. */
static void ends_are_numbers(void **state)
{
    (void)state;
    static const double said_s[] = {1e308, (double)INFINITY, (double)NAN, 1e18};
    for (size_t i = 0; i < sizeof said_s / sizeof said_s[0]; i++) {
        const uint64_t id = submit_run();
        starts(id);
        report(id,
               (ls_engine_report){.kind = LS_ENGINE_PROGRESS, .step = 1, .steps = 40, .left_s = said_s[i]});
        assert_int_equal(on(LS_VERB_SHOW, id), 200);
        const json_t *ends_at = json_object_get(w.answer, "ends");
        assert_true(json_is_null(ends_at) || json_number_value(ends_at) <= w.now_s + 1e9);
        assert_true(job(id)->left_s <= 1e9);
        ls_job *copy = NULL;
        json_t *record = ls_job_record_json(job(id));
        assert_int_equal(ls_job_create(id, json_deep_copy(job(id)->request), &copy), LS_OK);
        assert_int_equal(ls_job_record_read(copy, record), LS_OK);
        json_decref(record);
        ls_job_destroy(copy);
        ends(id, 0);
    }
}

/* Jobs whose start cannot be predicted do not keep others from being asked about. */
static void starts_are_asked_in_turns(void **state)
{
    (void)state;
    enum { HOPELESS = 8 };
    const uint64_t id = submit_run();
    starts(id);
    uint64_t behind = 0;
    for (int i = 0; i < HOPELESS; i++) { /* each waits for the one before, whose run time is not known */
        char after[32];
        snprintf(after, sizeof after, "after: [%u]", (unsigned)(behind ? behind : id));
        behind = submit(4, after);
    }
    const uint64_t next = submit(1, "");
    for (int i = 0; i < 6; i++) {
        w.now_s += 2.0;
        report(id, (ls_engine_report){
                       .kind = LS_ENGINE_PROGRESS, .step = 11 + (uint64_t)i, .steps = 40, .left_s = 300.0});
    }
    assert_true(job(behind)->foresight.start_s == 0.0);
    assert_true(job(next)->foresight.start_s > 0.0);
}

/* Two ranks are 1.5 times as fast as one, four 3 times; all of it takes 600 s at the ranks that are
 * asked for. */
static void plan_of_paper(void *context, ls_job *new_job)
{
    (void)context;
    if (new_job->spec.command.count == 0) {
        new_job->plan = (ls_job_plan){.run_s = 600.0,
                                      .low = 0.5,
                                      .high = 3.0,
                                      .curve_count = 4,
                                      .curve = {1000, 1500, 2000, 3000},
                                      .source = "paper"};
    }
}

static int set_up_with_plans(void **state)
{
    (void)set_up(state);
    ls_controller_destroy(w.controller);
    ls_controller_settings settings = default_settings();
    settings.resize_pause_s = settings.min_run_s = 0.0;
    settings.price_per_device_h = 3.0;
    settings.currency = "USD";
    const ls_controller_calls calls = {.context = &w,
                                       .now_s = fake_now_s,
                                       .journal = fake_journal,
                                       .old_job = old_job,
                                       .old_state = old_state,
                                       .foresee = plan_of_paper};
    assert_int_equal(ls_controller_create(&settings, &w.engine.base, &calls, &w.controller), LS_OK);
    ls_controller_restored(w.controller, 1);
    return 0;
}

/* Before a run has made a step, its plan says when it ends, at the ranks that it has; then its
 * steps do. */
static void plan_is_known_before_the_first_step(void **state)
{
    (void)state;
    const uint64_t blocker = submit(2, "");
    assert_int_equal(call(LS_VERB_SUBMIT,
                          "{'file': 'data: {train: [x]}\\ntrain: {steps: 40, global_batch: 8, leaves: 8}\\n"
                          "job: {elastic: true, min_ranks: 1, max_ranks: 4}\\nparallel: {ranks: 4}', "
                          "'directory': '/tmp'}"),
                     201);
    const uint64_t id = 2;
    starts(blocker);
    starts(id);
    assert_int_equal(job(id)->ranks_now, 2);
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    /* 600 s at four ranks are 1,200 s at two. */
    assert_float_equal(json_number_value(json_object_get(w.answer, "ends")), w.now_s + 1200.0, 0.01);
    assert_string_equal(json_string_value(json_object_get(w.answer, "ends_from")), "plan");
    const json_t *plan = json_object_get(json_object_get(w.answer, "foresight"), "plan");
    assert_float_equal(json_number_value(json_object_get(json_object_get(plan, "speeds"), "4")), 3.0, 1e-9);
    /* The policy has it, too. */
    const uint64_t next = submit(4, "");
    assert_int_equal(on(LS_VERB_WHY, next), 200);
    const json_t *blockers = json_object_get(w.answer, "blockers");
    bool is_seen = false;
    for (size_t i = 0; i < json_array_size(blockers); i++) {
        const json_t *item = json_array_get(blockers, i);
        if (json_integer_value(json_object_get(item, "job")) == (json_int_t)id) {
            assert_float_equal(json_number_value(json_object_get(item, "ends")), w.now_s + 1200.0, 0.1);
            assert_string_equal(json_string_value(json_object_get(item, "ends_from")), "plan");
            is_seen = true;
        }
    }
    assert_true(is_seen);
    assert_int_equal(on(LS_VERB_CANCEL, next), 200);
    /* Half of it done in 600 s, then four ranks: twice as fast. */
    w.now_s += 600.0;
    ends(blocker, 0);
    assert_state(id, RESIZING);
    report(id, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = 4});
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "ends")), w.now_s + 300.0, 0.01);
    /* A record keeps it. */
    ls_job *copy = NULL;
    json_t *record = ls_job_record_json(job(id));
    assert_int_equal(ls_job_create(id, json_deep_copy(job(id)->request), &copy), LS_OK);
    assert_int_equal(ls_job_record_read(copy, record), LS_OK);
    assert_float_equal(copy->plan.run_s, 600.0, 1e-9);
    assert_int_equal(copy->plan.curve_count, 4);
    assert_memory_equal(copy->plan.curve, job(id)->plan.curve, 4 * sizeof copy->plan.curve[0]);
    assert_string_equal(copy->plan.source, "paper");
    json_decref(record);
    ls_job_destroy(copy);
    report(id, (ls_engine_report){.kind = LS_ENGINE_PROGRESS, .step = 30, .steps = 40, .left_s = 100.0});
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "ends_from")), "steps");
}

/* Four devices for 600 s at 3 USD an hour, before the first of them is there. */
static void why_says_what_a_waiting_run_will_cost(void **state)
{
    (void)state;
    const uint64_t blocker = submit(4, "");
    assert_int_equal(call(LS_VERB_SUBMIT,
                          "{'file': 'data: {train: [x]}\\ntrain: {steps: 40, global_batch: 8, "
                          "leaves: 8}\\nparallel: {ranks: 4}', 'directory': '/tmp'}"),
                     201);
    starts(blocker);
    assert_int_equal(on(LS_VERB_WHY, 2), 200);
    const json_t *estimate = json_object_get(w.answer, "estimate");
    assert_float_equal(json_number_value(json_object_get(estimate, "cost")), 2.0, 1e-9);
    assert_float_equal(json_number_value(json_object_get(estimate, "low")), 1.0, 1e-9);
    assert_float_equal(json_number_value(json_object_get(estimate, "high")), 6.0, 1e-9);
    const uint64_t program = submit(1, "");
    assert_int_equal(on(LS_VERB_WHY, program), 200);
    assert_true(json_is_null(json_object_get(w.answer, "estimate")));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(steps_foretell_ends_and_starts),
        CASE(steps_are_known_behind_a_restart),
        CASE(ends_are_numbers),
        CASE(starts_are_asked_in_turns),
        cmocka_unit_test_setup_teardown(plan_is_known_before_the_first_step, set_up_with_plans, tear_down),
        cmocka_unit_test_setup_teardown(why_says_what_a_waiting_run_will_cost, set_up_with_plans, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
