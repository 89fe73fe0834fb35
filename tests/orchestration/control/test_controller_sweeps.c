// SPDX-License-Identifier: Apache-2.0
/* Sweeps: jobs that pause, train on, and stop; what a daemon that died finds again. */
#include "orchestration/control/controller_world.h"

#include <math.h>

#define RUN "name: s\\ntrain: {steps: 90, global_batch: 1, leaves: 1}\\ndata: {train: [/t.txt]}\\n"

/* Four jobs with asha.first 10 and eta 2, numbers 1 to 4; `more`: more lines of the run file. */
static int sweep(const char *more)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{'file': '" RUN "%s', 'directory': '/tmp', 'set': {'train.optimizer.lr': ['1', '2'], "
             "'train.seed': ['1', '2']}}",
             more);
    return call(LS_VERB_SWEEP, text);
}

#define ASHA "asha: {first: 10, eta: 2}\\n"

static void reaches(uint64_t id, uint64_t step, double val_loss)
{
    if (job(id)->state == LS_JOB_STARTING) {
        starts(id);
    }
    report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                  .result = {.step = step, .loss = 5.0, .val_loss = val_loss}});
}

static const json_t *show(uint64_t id)
{
    assert_int_equal(on(LS_VERB_SWEEP_OF, id), 200);
    return w.answer;
}

static const char *trial(uint64_t id)
{
    uint64_t known = 1; /* a job in memory */
    while (!ls_controller_job(w.controller, known)) {
        known++;
    }
    const json_t *trials = json_object_get(show(known), "trials");
    return json_string_value(json_object_get(json_array_get(trials, id - 1), "trial"));
}

static void sweep_pauses_promotes_and_stops(void **state)
{
    (void)state;
    assert_int_equal(sweep(ASHA), 201);
    assert_int_equal(job(1)->stop_step, 10);
    reaches(1, 10, 3.0);
    assert_state(1, HELD);
    assert_true(job(1)->paused);
    reaches(2, 10, 2.0);
    assert_state(2, STARTING); /* the best of two, at once: there is a free device */
    assert_int_equal(job(2)->stop_step, 20);
    assert_int_equal(job(2)->epoch, 2);
    assert_string_equal(job(2)->text ? job(2)->text : "", "");
    reaches(3, 10, 4.0);
    assert_state(3, CANCELLED); /* two are better, and only two of four train on */
    assert_int_equal(job(3)->cause, LS_CAUSE_SWEEP);
    assert_string_equal(
        job(3)->text, "stopped at step 10 of 90: val_loss 4 is place 3 of 3, and at most 2 of all train on");
    reaches(4, 10, 3.5);
    assert_state(4, CANCELLED);
    assert_state(1, STARTING);
    reaches(2, 20, 1.5);
    reaches(1, 20, 1.6);
    assert_state(1, CANCELLED);
    assert_int_equal(job(2)->stop_step, 40);
    reaches(2, 40, 1.0);
    assert_int_equal(job(2)->stop_step, 80);
    reaches(2, 80, 0.9);
    assert_int_equal(job(2)->stop_step, 0); /* the last: to its end */
    reaches(2, 90, 0.8);
    assert_state(2, SUCCEEDED);
    const json_t *answer = show(2), *best = json_object_get(answer, "best");
    assert_true(json_is_true(json_object_get(answer, "ended")));
    assert_int_equal(json_integer_value(json_object_get(best, "job")), 2);
    assert_int_equal(json_integer_value(json_object_get(best, "second")), 1);
    assert_float_equal(json_number_value(json_object_get(best, "lead")), 0.1, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(best, "lead_step")), 20);
    assert_int_equal(json_integer_value(json_object_get(answer, "steps")), 10 + 10 + 20 + 90);
}

/* A daemon that dies after any event decides as one that lives. */
static void sweep_survives_restarts(void **state)
{
    (void)state;
    assert_int_equal(sweep(ASHA), 201);
    for (uint64_t id = 1; id <= 4; id++) {
        reaches(id, 10, 5.0 - (double)id);
        restart();
    }
    assert_string_equal(trial(1), "stopped");
    assert_string_equal(trial(2), "active"); /* it was the best of two */
    assert_string_equal(trial(3), "active");
    assert_string_equal(trial(4), "active");
    assert_int_equal(job(4)->stop_step, 20);
    assert_float_equal(job(4)->result.val_loss, 1.0, 0.0);
    restart();
    assert_string_equal(trial(4), "active");
    json_t *damaged = json_pack("{s:i, s:i}", "first", 1, "count", 4);
    assert_int_equal(ls_controller_restore_sweep(w.controller, damaged), LS_ERR_DATA);
    json_decref(damaged);
}

static void sweep_is_stopped_by_failures_alike(void **state)
{
    (void)state;
    assert_int_equal(sweep("job: {restartable: false}\\n"), 201);
    const char *const errors[] = {"no file 17", "no file 4", "no file 123"};
    for (uint64_t id = 1; id <= 3; id++) {
        starts(id);
        report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                      .exit_code = 3,
                                      .cause = LS_CAUSE_PROGRAM,
                                      .text = errors[id - 1]});
    }
    assert_state(4, STOPPING);
    assert_int_equal(count_orders(LS_DO_STOP, 4), 1);
    ends(4, 143);
    assert_state(4, CANCELLED);
    assert_int_equal(job(4)->cause, LS_CAUSE_SWEEP);
    assert_non_null(strstr(job(4)->text, "3 jobs in a row failed alike (no file #)"));
    assert_non_null(strstr(json_string_value(json_object_get(show(1), "text")), "failed alike"));
    assert_string_equal(trial(4), "stopped");
}

/* Diverged runs are results; failures that differ, or with a success between, are none. */
static void sweep_goes_on_after_other_failures(void **state)
{
    (void)state;
    assert_int_equal(sweep(ASHA), 201);
    for (uint64_t id = 1; id <= 3; id++) {
        starts(id);
        report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                      .exit_code = 1,
                                      .cause = LS_CAUSE_PROGRAM,
                                      .text = "the loss of step 3 is not finite"});
        assert_string_equal(trial(id), "failed");
    }
    reaches(4, 10, 3.0);
    assert_state(4, STARTING); /* the only one left is the best */
}

static void sweep_keeps_what_users_say(void **state)
{
    (void)state;
    assert_int_equal(sweep(ASHA), 201);
    reaches(1, 10, 3.0);
    assert_int_equal(on(LS_VERB_RELEASE, 1), 409);
    assert_int_equal(on(LS_VERB_WHY, 1), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "hold");
    assert_int_equal(on(LS_VERB_HOLD, 1), 200);
    reaches(2, 10, 4.0);
    assert_state(1, HELD); /* it may train on, but its user holds it */
    assert_string_equal(trial(1), "active");
    assert_int_equal(on(LS_VERB_RELEASE, 1), 200);
    assert_state(1, STARTING);
    assert_int_equal(on(LS_VERB_CANCEL, 2), 200);
    assert_state(2, CANCELLED);
    assert_string_equal(trial(2), "failed");
    assert_int_equal(call_as(1001, LS_VERB_SWEEP_OF, "{'job': 1}"), 403);
    assert_int_equal(call_as(1001, LS_VERB_SWEEPS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "sweeps")), 0);
    assert_int_equal(call(LS_VERB_SWEEPS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "sweeps")), 1);
}

static size_t count_sweeps(void)
{
    assert_int_equal(call(LS_VERB_SWEEPS, "{}"), 200);
    return json_array_size(json_object_get(w.answer, "sweeps"));
}

/* Otherwise the daemon's memory grows with each sweep that ever was. */
static void sweep_goes_with_the_records_of_its_jobs(void **state)
{
    (void)state;
    assert_int_equal(sweep(""), 201);
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(on(LS_VERB_CANCEL, id), 200);
        ends(id, 143);
    }
    assert_false(ls_controller_let_go(w.controller, 4)); /* runs */
    assert_int_equal(count_sweeps(), 1);
    assert_int_equal(on(LS_VERB_CANCEL, 4), 200);
    ends(4, 143);
    assert_true(ls_controller_let_go(w.controller, 1));
    assert_int_equal(count_sweeps(), 1);
    assert_int_equal(sweep(""), 201);
    assert_true(ls_controller_let_go(w.controller, 4));
    assert_int_equal(count_sweeps(), 1);
    assert_int_equal(on(LS_VERB_SWEEP_OF, 5), 200); /* the other one */
}

/* Results are what a program of the job's user says: the lead and the noise of such are no numbers.
 * Bytes are as little to be believed. */
static void sweep_shows_any_results(void **state)
{
    (void)state;
    json_t *huge = json_pack("{s:I, s:I}", "stored_bytes", INT64_MAX, "sent_bytes", INT64_MAX);
    assert_true(ls_job_result_read(huge).stored_bytes < UINT64_C(1) << 51);
    json_decref(huge);
    assert_int_equal(sweep(ASHA), 201);
    reaches(1, 10, 1.5e308);
    reaches(2, 10, -1.5e308);
    assert_int_equal(json_array_size(json_object_get(show(1), "trials")), 4);
    const json_t *best = json_object_get(w.answer, "best");
    assert_int_equal(json_integer_value(json_object_get(best, "job")), 2);
    assert_true(json_is_null(json_object_get(best, "lead")));
    assert_int_equal(call_as(1000, LS_VERB_SWEEPS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "sweeps")), 1);
}

static void sweep_needs_what_it_compares_by(void **state)
{
    (void)state;
    assert_int_equal(sweep(ASHA), 201);
    reaches(1, 10, NAN);
    assert_state(1, FAILED);
    assert_non_null(strstr(job(1)->text, "its run has no val_loss at step 10"));
    assert_string_equal(trial(1), "failed");
}

static void refused(const char *more, const char *why)
{
    assert_int_equal(sweep(more), 400);
    const char *error = json_string_value(json_object_get(w.answer, "error"));
    if (!strstr(error, why)) {
        fail_msg("'%s' does not say '%s'", error, why);
    }
    assert_int_equal(count_jobs(), 0);
}

static void sweep_refuses_bad_settings(void **state)
{
    (void)state;
    refused("asha: {first: 90}\\n", "asha.first is 90, but must be less than train.steps, which is 90");
    refused("asha: {first: 10, budget_steps: 39}\\n", "4 jobs of 10 steps each");
    refused("asha: {first: 10, eta: 1}\\n", "asha.eta");
    refused("asha: {first: 10, metric: accuracy}\\n", "asha.metric");
    refused("asha: {first: 10}\\njob: {command: [run]}\\n", "job.command runs a program");
    refused("asha: {frist: 10}\\n", "asha.f");
    assert_int_equal(call(LS_VERB_SWEEP, "{'file': '" RUN ASHA "', 'directory': '/tmp', 'set': "
                                         "{'train.steps': ['90', '80']}}"),
                     400);
    assert_int_equal(count_jobs(), 0);
    assert_int_equal(call(LS_VERB_SWEEPS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "sweeps")), 0);
}

/* Slurm gets each part of a trial as a job of its own: a paused one is not handed over. */
static void sweep_on_an_engine_that_decides(void **state)
{
    (void)state;
    assert_int_equal(sweep(ASHA), 201);
    for (uint64_t id = 1; id <= 2; id++) {
        assert_true(job(id)->handed_over);
        report(id, (ls_engine_report){.kind = LS_ENGINE_STARTED});
        reaches(id, 10, 5.0 - (double)id);
    }
    assert_state(1, HELD);
    assert_true(job(1)->paused && !job(1)->handed_over);
    assert_state(2, QUEUED);
    assert_true(job(2)->handed_over);
    assert_int_equal(job(2)->epoch, 2);
    assert_int_equal(job(2)->stop_step, 20);
    assert_int_equal(sweep(""), 201);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(sweep_pauses_promotes_and_stops),
        CASE(sweep_survives_restarts),
        CASE(sweep_is_stopped_by_failures_alike),
        CASE(sweep_goes_on_after_other_failures),
        CASE(sweep_keeps_what_users_say),
        CASE(sweep_goes_with_the_records_of_its_jobs),
        CASE(sweep_shows_any_results),
        CASE(sweep_needs_what_it_compares_by),
        CASE(sweep_refuses_bad_settings),
        cmocka_unit_test_setup_teardown(sweep_on_an_engine_that_decides, set_up_deciding, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
