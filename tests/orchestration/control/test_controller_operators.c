// SPDX-License-Identifier: Apache-2.0
/* What operators ask of the queue: other sizes and terms for jobs, pauses, drained nodes,
 * maintenance. */
#include "orchestration/control/controller_world.h"

static const char elastic[] =
    "{'file': 'data: {train: [x]}\\ntrain: {global_batch: 8, leaves: 8}\\njob: {elastic: true, min_ranks: 1, "
    "max_ranks: 4}\\nparallel: {ranks: 4}', 'directory': '/tmp'}";

static int number(const char *key)
{
    return (int)json_integer_value(json_object_get(w.answer, key));
}

static const char *words(const char *key)
{
    const char *text = json_string_value(json_object_get(w.answer, key));
    return text ? text : "";
}

static bool says(const char *key, const char *part)
{
    const bool is_there = strstr(words(key), part) != NULL;
    if (!is_there) {
        print_message("%s: '%s' instead of '%s'\n", key, words(key), part);
    }
    return is_there;
}

/* ---- resize ---- */

static void resize_says_what_it_does_and_keeps_a_maximum(void **state)
{
    (void)state;
    assert_int_equal(call(LS_VERB_SUBMIT, elastic), 201);
    starts(1);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 1, 'ranks': 1}"), 200);
    assert_int_equal(number("ranks"), 1);
    assert_int_equal(number("ranks_now"), 4);
    assert_int_equal(number("max_ranks"), 4);
    assert_true(says("text", "it has 4 ranks and changes to 1"));
    assert_true(says("text", "it may grow to 4 while devices are idle"));
    assert_state(1, RESIZING);
    report(1, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = 1});
    assert_int_equal(job(1)->ranks_now, 1);
    w.now_s += 3600.0; /* idle devices go to it */
    turn();
    assert_state(1, RESIZING);
    report(1, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = 4});
    assert_int_equal(job(1)->ranks_now, 4);

    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 1, 'max_ranks': 2}"), 200);
    assert_int_equal(number("max_ranks"), 2);
    assert_state(1, RESIZING);
    report(1, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = 2});
    w.now_s += 3600.0;
    turn();
    assert_state(1, RUNNING); /* it keeps two, although two are idle */
    restart();
    assert_int_equal(ls_job_ranks_max(job(1)), 2);
    w.now_s += 3600.0;
    turn();
    assert_int_equal(job(1)->ranks_now, 2);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 1, 'max_ranks': 4}"), 200);
    w.now_s += 3600.0;
    turn();
    assert_int_equal(job(1)->ranks_next, 4);
}

static void resize_refuses_what_makes_no_sense(void **state)
{
    (void)state;
    assert_int_equal(call(LS_VERB_SUBMIT, elastic), 201);
    const uint64_t fixed = submit(1, "");
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 1}"), 400);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 1, 'ranks': 3, 'max_ranks': 2}"), 400);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 1, 'max_ranks': 9}"), 400); /* leaves */
    assert_int_equal(fixed, 2);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 2, 'max_ranks': 2}"), 409);
    assert_int_equal(ls_job_ranks_max(job(1)), 4);
}

/* ---- other terms ---- */

static void waiting_jobs_take_other_terms(void **state)
{
    (void)state;
    const uint64_t first = submit(4, ""), second = submit(1, "hold: true"),
                   third = submit(1, "time_limit: 1h");
    starts(first);
    assert_state(third, QUEUED);
    assert_int_equal(
        call(LS_VERB_CHANGE,
             "{'job': 3, 'time_limit_s': 7200, 'account': 'ann.2', 'after': [2], 'priority': 'low'}"),
        200);
    assert_float_equal(job(third)->spec.time_limit_s, 7200.0, 0.0);
    assert_string_equal(job(third)->account, "ann.2");
    assert_int_equal(job(third)->priority, LS_PRIORITY_LOW);
    restart(); /* the terms are in its request */
    assert_float_equal(job(third)->spec.time_limit_s, 7200.0, 0.0);
    assert_string_equal(job(third)->account, "ann.2");
    assert_int_equal(job(third)->priority, LS_PRIORITY_LOW);
    report(first, (ls_engine_report){.kind = LS_ENGINE_STARTED});
    ends(first, 0);
    assert_state(third, QUEUED); /* for job 2 */
    assert_int_equal(on(LS_VERB_WHY, third), 200);
    assert_string_equal(words("stage"), "dependency");
    assert_int_equal(call(LS_VERB_CHANGE, "{'job': 3, 'after': []}"), 200);
    assert_state(third, STARTING);
    assert_state(second, HELD);
}

/* Otherwise a user could make the daemon's memory and the time of each change grow without end. */
static void requests_do_not_grow_with_changes(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "hold: true");
    for (int i = 0; i < 50; i++) {
        assert_int_equal(call(LS_VERB_CHANGE, "{'job': 1, 'time_limit_s': 7200, 'max_cost': 5, 'after': []}"),
                         200);
    }
    assert_int_equal(job(id)->spec.set.count, 3);
    assert_float_equal(job(id)->spec.time_limit_s, 7200.0, 0.0);
    assert_int_equal(call(LS_VERB_CHANGE, "{'job': 1, 'max_cost': null}"), 200);
    assert_int_equal(job(id)->spec.set.count, 3);
    assert_float_equal(job(id)->spec.max_cost_usd, 0.0, 0.0);
}

static void changes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    const uint64_t first = submit(4, ""), failed = submit(1, "hold: true"), waits = submit(2, "");
    starts(first);
    assert_int_equal(on(LS_VERB_CANCEL, failed), 200);
    static const struct {
        const char *arguments;
        int status;
        const char *error;
    } cases[] = {
        {"{'job': 3}", 400, "the request changes nothing"},
        {"{'job': 1, 'time_limit_s': 5}", 409, "job 1 is RUNNING: only a waiting job can be changed"},
        {"{'job': 3, 'after': [4]}", 400, "job 3 cannot wait for job 4"},
        {"{'job': 3, 'after': [3]}", 400, "job 3 cannot wait for job 3"},
        {"{'job': 3, 'after': [2]}", 400, "job 2 did not succeed"},
        {"{'job': 3, 'account': 'bob'}", 403, "you may not use account bob"},
        {"{'job': 3, 'account': '../x'}", 400, "the account of a job is '../x'"},
        {"{'job': 3, 'time_limit_s': -1}", 400, "time_limit_s must be a number of seconds"},
        {"{'job': 3, 'time_limit_s': 'x'}", 400, "time_limit_s must be a number of seconds"},
        {"{'job': 3, 'priority': 'urgent'}", 400, "priority must be low, normal or high"},
        {"{'job': 3, 'account': 'other', 'priority': 'high'}", 403, "priority is high, but account other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(call(LS_VERB_CHANGE, cases[i].arguments), cases[i].status);
        assert_true(says("error", cases[i].error));
    }
    assert_string_equal(job(waits)->account, "ann");
    assert_float_equal(job(waits)->spec.time_limit_s, 0.0, 0.0);
    assert_int_equal(call_as(1001, LS_VERB_CHANGE, "{'job': 3, 'time_limit_s': 5}"), 403);
    ends(first, 0);
    assert_state(waits, STARTING);
}

/* ---- pauses and drained nodes ---- */

static void paused_queue_starts_nothing(void **state)
{
    (void)state;
    const uint64_t runs = submit(1, "restartable: true, priority: low");
    starts(runs);
    w.now_s += 3600.0;
    assert_int_equal(call(LS_VERB_PAUSE, "{}"), 403);
    assert_int_equal(call_as(0, LS_VERB_PAUSE, "{'reason': 'new disks'}"), 200);
    const uint64_t waits = submit(1, "");
    assert_state(waits, QUEUED);
    assert_state(runs, RUNNING);
    assert_int_equal(on(LS_VERB_WHY, waits), 200);
    assert_string_equal(words("stage"), "paused");
    assert_true(says("text", "the queue is paused (by root: new disks) until 'lockstep resume'"));
    const uint64_t urgent = submit(4, "priority: high"); /* nobody is stopped for it */
    assert_state(urgent, QUEUED);
    assert_state(runs, RUNNING);
    assert_int_equal(on(LS_VERB_CANCEL, urgent), 200);
    assert_int_equal(call(LS_VERB_STATUS, "{}"), 200);
    json_t *upkeep = json_deep_copy(json_object_get(w.answer, "upkeep"));
    restart(); /* without the record of it, the job starts; with it, the next one does not */
    assert_int_equal(ls_controller_restore_upkeep(w.controller, upkeep), LS_OK);
    json_decref(upkeep);
    const uint64_t next = submit(1, "");
    assert_state(next, QUEUED);
    assert_int_equal(call_as(0, LS_VERB_RESUME, "{}"), 200);
    assert_state(next, STARTING);
    assert_int_equal(call_as(0, LS_VERB_RESUME, "{}"), 409);
}

static void drained_nodes_keep_what_runs(void **state)
{
    (void)state;
    const uint64_t runs = submit(1, "");
    starts(runs);
    assert_int_equal(call_as(0, LS_VERB_DRAIN, "{'node': 'there'}"), 404);
    assert_int_equal(call_as(0, LS_VERB_DRAIN, "{'reason': 'noise'}"), 200);
    const uint64_t waits = submit(1, "");
    assert_state(waits, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, waits), 200);
    assert_true(says("text", "none is free; node here is drained (by root: noise)"));
    assert_int_equal(call(LS_VERB_NODES, "{}"), 200);
    const json_t *node = json_array_get(json_object_get(w.answer, "nodes"), 0);
    assert_string_equal(json_string_value(json_object_get(node, "state")), "draining");
    ends(runs, 0);
    assert_int_equal(call(LS_VERB_NODES, "{}"), 200);
    node = json_array_get(json_object_get(w.answer, "nodes"), 0);
    assert_string_equal(json_string_value(json_object_get(node, "state")), "drained");
    /* it goes and returns, and is drained still */
    ls_controller_report(w.controller, &(ls_engine_report){.kind = LS_ENGINE_NODE, .text = "here"});
    ls_controller_report(w.controller,
                         &(ls_engine_report){.kind = LS_ENGINE_NODE, .text = "here", .is_up = true});
    turn();
    assert_state(waits, QUEUED);
    assert_int_equal(call_as(0, LS_VERB_UNDRAIN, "{'node': 'here'}"), 200);
    assert_state(waits, STARTING);
}

/* ---- maintenance ---- */

static int maintain(double in_s, double for_s)
{
    char text[128];
    snprintf(text, sizeof text, "{'begin': %.1f, 'end': %.1f, 'reason': 'disks'}", w.now_s + in_s,
             w.now_s + in_s + for_s);
    return call_as(0, LS_VERB_MAINTAIN, text);
}

static void nothing_runs_in_maintenance(void **state)
{
    (void)state;
    assert_int_equal(maintain(-10.0, 5.0), 400);
    assert_int_equal(maintain(3600.0, 600.0), 200);
    const uint64_t endless = submit(1, ""), brief = submit(1, "time_limit: 30m");
    const uint64_t saves = submit(1, "restartable: true"), slow = submit(1, "time_limit: 2h");
    assert_state(endless, QUEUED);
    assert_state(brief, STARTING);
    assert_state(saves, STARTING);
    assert_state(slow, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, slow), 200);
    assert_string_equal(words("stage"), "maintenance");
    assert_true(says("text",
                     "maintenance begins in 1 h 00 min (by root: disks), and nothing says that the job ends "
                     "before"));
    assert_float_equal(json_number_value(json_object_get(w.answer, "eta_s")), 4200.0, 1.0);
    const json_t *changes = json_object_get(w.answer, "counterfactuals");
    assert_string_equal(json_string_value(json_object_get(json_array_get(changes, 0), "text")),
                        "would start now with a time limit of 1 h 00 min");
    starts(brief);
    starts(saves);
    assert_true(ls_controller_next_s(w.controller) > 0.0);
    w.now_s += 3600.0;
    turn();
    assert_state(saves, PREEMPTING);
    assert_string_equal(job(saves)->text, "stopped for maintenance");
    ends(saves, 75);
    assert_state(saves, QUEUED);
    assert_state(brief, STOPPING); /* its limit was over before */
    ends(brief, 143);
    assert_int_equal(on(LS_VERB_WHY, saves), 200);
    assert_true(says("text", "there is maintenance for another 10 min 00 s (by root: disks)"));
    w.now_s += 600.0;
    turn();
    assert_state(saves, STARTING);
    assert_state(endless, STARTING);
}

static void maintenance_is_called_off(void **state)
{
    (void)state;
    const uint64_t runs = submit(1, "");
    starts(runs);
    assert_int_equal(maintain(60.0, 600.0), 200);
    assert_int_equal(maintain(3600.0, 600.0), 200);
    w.now_s += 61.0;
    turn();
    assert_state(runs, STOPPING); /* it can't continue later */
    assert_int_equal(job(runs)->cause, LS_CAUSE_PREEMPTED);
    ends(runs, 143);
    assert_state(runs, FAILED);
    assert_true(strstr(job(runs)->text, "stopped for maintenance") != NULL);
    const uint64_t waits = submit(1, "time_limit: 5m");
    assert_state(waits, QUEUED);
    assert_int_equal(call_as(0, LS_VERB_MAINTAIN_NOT, "{'window': 7}"), 404);
    assert_int_equal(call(LS_VERB_MAINTAIN_NOT, "{'window': 1}"), 403);
    assert_int_equal(call_as(0, LS_VERB_MAINTAIN_NOT, "{'window': 1}"), 200);
    assert_state(waits, STARTING);
}

static void slurm_has_its_own_words_for_it(void **state)
{
    (void)state;
    static const ls_verb verbs[] = {LS_VERB_PAUSE, LS_VERB_RESUME, LS_VERB_DRAIN, LS_VERB_UNDRAIN};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        assert_int_equal(call_as(0, verbs[i], "{}"), 409);
        assert_true(says("error", "scontrol update"));
    }
    assert_int_equal(maintain(60.0, 600.0), 409);
    assert_true(says("error", "scontrol create reservation"));
}

/* ---- the same request twice ---- */

static void same_key_makes_one_job(void **state)
{
    (void)state;
    const char *request = "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'key': 'k 1'}";
    assert_int_equal(call(LS_VERB_SUBMIT, request), 201);
    assert_int_equal(number("job"), 1);
    assert_int_equal(call(LS_VERB_SUBMIT, request), 200);
    assert_int_equal(number("job"), 1);
    assert_int_equal(call_as(1001, LS_VERB_SUBMIT, request), 201); /* bob's key */
    assert_int_equal(number("job"), 2);
    starts(1);
    ends(1, 0); /* also after its end */
    assert_int_equal(call(LS_VERB_SUBMIT, request), 200);
    assert_int_equal(number("job"), 1);
    assert_string_equal(words("state"), "SUCCEEDED");
    /* a repetition of what was not written is not accepted either */
    w.disk_is_full = true;
    call(LS_VERB_SUBMIT, "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'key': 'k 2'}");
    assert_int_equal(w.status, 507);
    w.disk_is_full = false;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(resize_says_what_it_does_and_keeps_a_maximum),
        CASE(resize_refuses_what_makes_no_sense),
        CASE(waiting_jobs_take_other_terms),
        CASE(requests_do_not_grow_with_changes),
        CASE(changes_that_make_no_sense_are_refused),
        CASE(paused_queue_starts_nothing),
        CASE(drained_nodes_keep_what_runs),
        CASE(nothing_runs_in_maintenance),
        CASE(maintenance_is_called_off),
        CASE(same_key_makes_one_job),
        cmocka_unit_test_setup_teardown(slurm_has_its_own_words_for_it, set_up_deciding, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
