// SPDX-License-Identifier: Apache-2.0
/* The state machine of jobs, with an engine that does nothing by itself: orders are inspected, and
 * what happens is reported by hand. */
#include "orchestration/control/controller_world.h"

/* ---- cases ---- */

static void job_runs_to_its_end(void **state)
{
    (void)state;
    const uint64_t id = submit(2, "");
    assert_state(id, STARTING);
    assert_int_equal(job(id)->epoch, 1);
    assert_int_equal(count_orders(LS_DO_START, id), 1);
    w.now_s += 1.0;
    starts(id);
    assert_state(id, RUNNING);
    w.now_s += 3600.0;
    /* of an epoch that does not exist */
    report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED, .epoch = 7});
    assert_state(id, RUNNING);
    ends(id, 0);
    assert_state(id, SUCCEEDED);
    assert_int_equal(count_orders(LS_DO_FORGET, id), 1);
    assert_int_equal(job(id)->exit_code, 0);
    /* Two devices for an hour, at 2 each. */
    assert_int_equal(call(LS_VERB_USAGE, "{}"), 200);
    const json_t *total = json_object_get(w.answer, "total");
    assert_float_equal(json_number_value(json_object_get(total, "allocated_h")), 2.0, 0.01);
    assert_float_equal(json_number_value(json_object_get(total, "cost")), 4.0, 0.02);
    ends(id, 1); /* reported again: nothing happens */
    assert_state(id, SUCCEEDED);
}

static void job_that_fails_says_why(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "");
    starts(id);
    report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                  .exit_code = 4,
                                  .cause = LS_CAUSE_MEMORY,
                                  .text = "rank 0 ended with exit code 4"});
    assert_state(id, FAILED);
    assert_int_equal(job(id)->cause, LS_CAUSE_MEMORY);
    assert_string_equal(job(id)->text, "rank 0 ended with exit code 4");
    const uint64_t other = submit(1, "");
    report(other,
           (ls_engine_report){
               .kind = LS_ENGINE_ENDED, .exit_code = 1, .cause = LS_CAUSE_START, .text = "no such folder"});
    assert_state(other, FAILED);
    assert_int_equal(job(other)->cause, LS_CAUSE_START);
}

static void job_that_never_fits_is_refused(void **state)
{
    (void)state;
    assert_int_equal(
        call(LS_VERB_SUBMIT, "{'file': 'parallel: {ranks: 5}\\njob: {command: [run]}', 'directory': '/tmp'}"),
        400);
    assert_non_null(json_string_value(json_object_get(w.answer, "error")));
    static const char *const bad[] = {
        "{}",
        "{'file': 'job: {command: [run]}'}",
        "{'file': 'job: {command: [run]}', 'directory': 'relative'}",
        "{'file': 'job: {command: [run]}', 'directory': '/a/../b'}",
        "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'name': '../x'}",
        "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'name': 'a\\u001b[2J'}",
        "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'account': 'a b'}",
        "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'ranks': 0}",
        "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'ranks': '1'}",
        "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'after': [99]}",
        "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'shell': 'sh'}",
        "{'file': 'job: {comand: [true]}', 'directory': '/tmp'}",
        "{'file': 7, 'directory': '/tmp'}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (call(LS_VERB_SUBMIT, bad[i]) != 400) {
            fail_msg("%s was answered with %d", bad[i], w.status);
        }
    }
    assert_int_equal(count_jobs(), 0);
}

static void job_waits_for_devices_and_is_told_why(void **state)
{
    (void)state;
    const uint64_t first = submit(3, ""), second = submit(2, "");
    assert_state(first, STARTING);
    assert_state(second, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, second), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "gang");
    assert_int_equal(json_integer_value(json_object_get(w.answer, "needed")), 2);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "available")), 1);
    starts(first);
    ends(first, 0);
    assert_state(second, STARTING);
}

static void cancel_ends_a_job_in_every_state(void **state)
{
    (void)state;
    const uint64_t running = submit(4, ""), queued = submit(1, ""), held = submit(1, "hold: true");
    assert_state(held, HELD);
    assert_int_equal(on(LS_VERB_CANCEL, queued), 200);
    assert_state(queued, CANCELLED);
    assert_int_equal(on(LS_VERB_CANCEL, held), 200);
    assert_state(held, CANCELLED);
    assert_int_equal(on(LS_VERB_CANCEL, held), 409);    /* twice */
    assert_int_equal(on(LS_VERB_CANCEL, running), 200); /* STARTING */
    assert_state(running, STOPPING);
    assert_int_equal(count_orders(LS_DO_STOP, running), 1);
    assert_int_equal(count_orders(LS_DO_KILL, running), 0);
    assert_int_equal(on(LS_VERB_CANCEL, running), 200); /* twice: without a grace period */
    assert_int_equal(count_orders(LS_DO_KILL, running), 1);
    starts(running); /* it was about to start */
    assert_state(running, STOPPING);
    ends(running, 143);
    assert_state(running, CANCELLED);
    assert_int_equal(on(LS_VERB_CANCEL, 99), 404);
    assert_int_equal(call(LS_VERB_CANCEL, "{}"), 400);
    const uint64_t lost = submit(1, "");
    starts(lost);
    report(lost, (ls_engine_report){.kind = LS_ENGINE_LOST});
    assert_state(lost, RECOVERING);
    assert_int_equal(on(LS_VERB_CANCEL, lost), 200);
    report(lost, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137, .cause = LS_CAUSE_LOST});
    assert_state(lost, CANCELLED);
}

static void hold_gives_devices_back_and_release_begins_anew(void **state)
{
    (void)state;
    const uint64_t id = submit(2, "restartable: true"), fixed = submit(1, "");
    starts(id);
    starts(fixed);
    assert_int_equal(on(LS_VERB_HOLD, fixed), 409); /* it could not continue */
    assert_int_equal(on(LS_VERB_HOLD, id), 200);
    assert_state(id, PREEMPTING);
    assert_int_equal(on(LS_VERB_HOLD, id), 200);
    ends(id, 75);
    assert_state(id, HELD);
    assert_int_equal(job(id)->share_count, 0);
    assert_int_equal(on(LS_VERB_RELEASE, id), 200);
    assert_state(id, STARTING);
    assert_int_equal(job(id)->epoch, 2);
    /* Released before it has stopped: it is queued again at once. */
    starts(id);
    on(LS_VERB_HOLD, id);
    assert_int_equal(on(LS_VERB_RELEASE, id), 200);
    ends(id, 75);
    assert_state(id, STARTING);
    assert_int_equal(job(id)->epoch, 3);
}

static void preemption_saves_requeues_and_ends_by_what_a_job_can(void **state)
{
    (void)state;
    const uint64_t soft = submit(4, "restartable: true, priority: low");
    starts(soft);
    w.now_s += 3600.0;
    const uint64_t urgent = submit(4, "priority: high");
    assert_state(soft, PREEMPTING);
    assert_state(urgent, QUEUED);
    w.now_s += 1.0;
    ends(soft, 143); /* a program that does not save ends by the signal */
    assert_state(soft, QUEUED);
    assert_state(urgent, STARTING);
    assert_int_equal(job(soft)->preemptions, 1);
    assert_true(job(soft)->lost_device_ms > 0);
    starts(urgent);
    ends(urgent, 0);
    assert_state(soft, STARTING);
    assert_int_equal(job(soft)->epoch, 2);
}

static void lost_jobs_begin_again_within_a_budget(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "restarts_max: 2");
    for (uint32_t epoch = 1; epoch <= 3; epoch++) {
        assert_int_equal(job(id)->epoch, epoch);
        starts(id);
        w.now_s += 10.0;
        report(id, (ls_engine_report){.kind = LS_ENGINE_LOST});
        assert_state(id, RECOVERING);
        assert_int_equal(count_orders(LS_DO_KILL, id), epoch);
        report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137, .cause = LS_CAUSE_LOST});
    }
    assert_state(id, FAILED);
    assert_int_equal(job(id)->cause, LS_CAUSE_LOST);
    assert_true(job(id)->lost_device_ms >= 30000);
}

static void time_limit_ends_a_job(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "time_limit: 100s");
    starts(id);
    const double due_s = ls_controller_next_s(w.controller);
    assert_true(due_s > w.now_s && due_s <= w.now_s + 100.1);
    w.now_s += 101.0;
    turn();
    assert_state(id, STOPPING);
    ends(id, 143);
    assert_state(id, FAILED);
    assert_int_equal(job(id)->cause, LS_CAUSE_LIMIT);
}

static const char *last_word(uint64_t id)
{
    return job(id)->text ? job(id)->text : "";
}

/* What `ps` and the page show. */
static const char *short_why(uint64_t id)
{
    assert_int_equal(call(LS_VERB_LIST, "{'all': true}"), 200);
    const json_t *jobs = json_object_get(w.answer, "jobs"), *item;
    size_t i;
    json_array_foreach(jobs, i, item)
    {
        if ((uint64_t)json_integer_value(json_object_get(item, "job")) == id) {
            const char *why = json_string_value(json_object_get(item, "why"));
            return why ? why : "";
        }
    }
    return "";
}

/* However it reacts to the signal, it reached its limit. */
static void time_limit_is_the_reason_whatever_a_program_says(void **state)
{
    (void)state;
    static const int codes[] = {0, 7, 75};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        const uint64_t id = submit(1, "time_limit: 100s, restartable: true");
        starts(id);
        w.now_s += 101.0;
        turn();
        assert_state(id, STOPPING);
        report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                      .exit_code = codes[i],
                                      .cause = codes[i] == 7 ? LS_CAUSE_PROGRAM : LS_CAUSE_NONE,
                                      .text = codes[i] == 7 ? "ended with exit code 7" : NULL});
        assert_state(id, FAILED);
        assert_int_equal(job(id)->cause, LS_CAUSE_LIMIT);
        assert_int_equal(job(id)->exit_code, codes[i]);
        assert_non_null(strstr(last_word(id), "time limit of 1 min 40 s"));
        assert_string_equal(short_why(id), last_word(id));
    }
    assert_non_null(strstr(last_word(2), "; ended with exit code 7"));
    assert_non_null(strstr(last_word(3), "saved first"));
}

/* The run watches its limit itself and may be first; a finished run has succeeded. */
static void training_at_its_time_limit_says_where_it_goes_on(void **state)
{
    (void)state;
    static const char file[] = "{'file': 'name: t\\ndata: {train: [x]}\\njob: {time_limit: 100s}', "
                               "'directory': '/tmp'}";
    assert_int_equal(call(LS_VERB_SUBMIT, file), 201);
    starts(1);
    w.now_s += 99.9;
    ends(1, 75);
    assert_state(1, FAILED);
    assert_int_equal(job(1)->cause, LS_CAUSE_LIMIT);
    assert_non_null(strstr(last_word(1), "to continue in /tmp/runs/t"));
    assert_int_equal(call(LS_VERB_SUBMIT, file), 201);
    starts(2);
    w.now_s += 101.0;
    turn();
    ends(2, 0);
    assert_state(2, SUCCEEDED);
    /* told to stop long before its limit: it continues */
    assert_int_equal(call(LS_VERB_SUBMIT, file), 201);
    starts(3);
    w.now_s += 80.0;
    ends(3, 75);
    assert_state(3, STARTING);
}

/* Who ended it and why stay, whatever its processes report. */
static void reasons_stay(void **state)
{
    (void)state;
    const uint64_t stopped = submit(1, ""), lost = submit(1, ""), never = submit(1, "");
    starts(stopped);
    on(LS_VERB_CANCEL, stopped);
    report(stopped, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY, .busy_permille = 0});
    w.now_s += 40.0;
    /* idle by now */
    report(stopped, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY, .busy_permille = 0});
    report(stopped, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                       .exit_code = 7,
                                       .cause = LS_CAUSE_PROGRAM,
                                       .text = "ended with exit code 7"});
    assert_state(stopped, CANCELLED);
    assert_string_equal(last_word(stopped), "cancelled by ann; ended with exit code 7");
    starts(lost);
    report(lost, (ls_engine_report){.kind = LS_ENGINE_LOST, .text = "node n3 is gone"});
    on(LS_VERB_CANCEL, lost);
    report(lost, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137, .cause = LS_CAUSE_LOST});
    assert_state(lost, CANCELLED);
    assert_string_equal(last_word(lost), "cancelled by ann");
    on(LS_VERB_CANCEL, never);
    report(never, (ls_engine_report){.kind = LS_ENGINE_NEVER});
    assert_string_equal(last_word(never), "cancelled by ann; it had not started");
    const uint64_t again = submit(1, "");
    starts(again);
    report(again, (ls_engine_report){.kind = LS_ENGINE_LOST, .text = "node n3 is gone"});
    const uint64_t all = submit(4, "");
    report(again, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137, .cause = LS_CAUSE_LOST});
    assert_state(again, STARTING);
    on(LS_VERB_CANCEL, again);
    report(again, (ls_engine_report){.kind = LS_ENGINE_NEVER});
    starts(all);
    const uint64_t fixed = submit(1, "restarts_max: 0");
    ends(all, 0);
    starts(fixed);
    report(fixed, (ls_engine_report){.kind = LS_ENGINE_LOST, .text = "node n3 is gone"});
    report(fixed, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137, .cause = LS_CAUSE_LOST});
    assert_state(fixed, FAILED);
    assert_non_null(strstr(last_word(fixed), "node n3 is gone; "));
}

/* restartable: false means one start, and an end with 75 is explained. */
static void what_may_not_be_restarted_starts_once(void **state)
{
    (void)state;
    const uint64_t once = submit(1, "restartable: false, restarts_max: 3");
    starts(once);
    report(once, (ls_engine_report){.kind = LS_ENGINE_LOST, .text = "node n3 is gone"});
    report(once, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137, .cause = LS_CAUSE_LOST});
    assert_state(once, FAILED);
    assert_string_equal(last_word(once),
                        "node n3 is gone; it may not be restarted (job.restartable, job.restarts_max)");
    const uint64_t never = submit(1, ""), again = submit(1, "restartable: true, restarts_max: 1");
    ends(never, 75);
    assert_state(never, FAILED);
    assert_non_null(strstr(last_word(never), "may not be started again (job.restartable)"));
    starts(again);
    ends(again, 75);
    assert_state(again, STARTING);
    ends(again, 75);
    assert_state(again, FAILED);
    assert_non_null(strstr(last_word(again), "after 1 of 1 restarts (job.restarts_max)"));
}

/* The reason in a list is that of `why`: the first stage that fails. */
static void short_reasons_are_those_of_why(void **state)
{
    (void)state;
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'few', 'quota': 1, 'borrow': 0}"), 200);
    const uint64_t one = submit(1, "account: few");
    const uint64_t quota = submit(1, "account: few");
    const uint64_t member = submit(1, "group: {name: g, running_max: 1}");
    const uint64_t group = submit(1, "group: {name: g, running_max: 1}");
    const uint64_t after = submit(1, "after: [1], after_any: true");
    const uint64_t later = submit(1, "begin: 1h");
    const uint64_t held = submit(1, "hold: true"), gang = submit(4, "");
    const struct {
        uint64_t id;
        const char *stage, *words;
    } wanted[] = {
        {quota, "quota", "account few may use 0 more devices now, and it needs 1"},
        {group, "group", "its group may run 1 job at a time, and 1 is running"},
        {after, "dependency", "it waits for job 1 to end"},
        {later, "begin", "it may begin in 1 h 00 min"},
        {held, "hold", "held"},
        {gang, "gang", "it needs 4 devices at once, and 2 are free"},
    };
    assert_state(one, STARTING);
    assert_state(member, STARTING);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s", short_why(wanted[i].id));
        if (!strstr(text, wanted[i].words)) {
            fail_msg("'%s' instead of '%s'", text, wanted[i].words);
        }
        assert_int_equal(on(LS_VERB_WHY, wanted[i].id), 200);
        assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), wanted[i].stage);
        assert_string_equal(json_string_value(json_object_get(w.answer, "text")), text);
    }
}

/* It waits, and also says why it stopped running. */
static void preempted_jobs_say_for_whom(void **state)
{
    (void)state;
    const uint64_t soft = submit(4, "restartable: true, priority: low");
    starts(soft);
    w.now_s += 3600.0;
    submit(4, "priority: high");
    assert_string_equal(short_why(soft), "preempted for job 2");
    ends(soft, 75);
    assert_non_null(strstr(short_why(soft), "it needs 4 devices at once"));
    assert_non_null(strstr(short_why(soft), "(last: preempted for job 2)"));
}

static void start_that_does_not_come_is_lost(void **state)
{
    (void)state;
    const uint64_t id = submit(1, "");
    w.now_s += 61.0;
    assert_true(ls_controller_has_work(w.controller));
    turn();
    assert_state(id, RECOVERING);
    report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137, .cause = LS_CAUSE_LOST});
    assert_state(id, STARTING);
    assert_int_equal(job(id)->epoch, 2);
    report(id, (ls_engine_report){.kind = LS_ENGINE_NEVER});
    assert_state(id, STARTING);
    assert_int_equal(job(id)->epoch, 3);
    assert_int_equal(job(id)->restarts, 1); /* a start that never began does not count */
}

static void dependencies_start_fail_and_chain(void **state)
{
    (void)state;
    char more[128];
    const uint64_t first = submit(1, "");
    snprintf(more, sizeof more, "after: [%llu]", (unsigned long long)first);
    const uint64_t second = submit(1, more);
    snprintf(more, sizeof more, "after: [%llu]", (unsigned long long)second);
    const uint64_t third = submit(1, more);
    snprintf(more, sizeof more, "after: [%llu], after_any: true", (unsigned long long)second);
    const uint64_t any = submit(1, more);
    assert_state(second, QUEUED);
    on(LS_VERB_WHY, second);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "dependency");
    starts(first);
    ends(first, 0);
    assert_state(second, STARTING);
    starts(second);
    ends(second, 1);
    assert_state(third, FAILED);
    assert_int_equal(job(third)->cause, LS_CAUSE_DEPENDENCY);
    assert_state(any, STARTING);
    snprintf(more, sizeof more, "{'file': 'job: {command: [run], after: [%llu]}', 'directory': '/tmp'}",
             (unsigned long long)second);
    assert_int_equal(call(LS_VERB_SUBMIT, more), 400); /* has failed already */
}

static void sweep_is_one_group_with_a_limit(void **state)
{
    (void)state;
    assert_int_equal(call(LS_VERB_SWEEP,
                          "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'running_max': 2,"
                          " 'set': {'job.cpus': [1, 2], 'job.priority': ['low', 'high']}}"),
                     201);
    assert_int_equal(json_array_size(json_object_get(w.answer, "jobs")), 4);
    uint32_t starting = 0;
    assert_int_equal(count_jobs(), 4);
    for (uint32_t id = 1; id <= 4; id++) {
        starting += job(id)->state == LS_JOB_STARTING;
    }
    assert_int_equal(starting, 2);
    /* one point is wrong: no job is accepted */
    assert_int_equal(
        call(LS_VERB_SWEEP,
             "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'set': {'parallel.ranks': [1, 99]}}"),
        400);
    assert_int_equal(count_jobs(), 4);
    assert_int_equal(call(LS_VERB_SWEEP, "{'file': 'job: {command: [run]}', 'directory': '/tmp', 'set': {}}"),
                     400);
}

/* An elastic training run: shrunk for another job, grown again. */
static void elastic_jobs_shrink_and_grow(void **state)
{
    (void)state;
    assert_int_equal(call(LS_VERB_SUBMIT,
                          "{'file': 'data: {train: [x]}\\ntrain: {global_batch: 8, leaves: 8}\\njob: "
                          "{elastic: true, min_ranks: 2,"
                          " max_ranks: 4, priority: low}\\nparallel: {ranks: 4}', 'directory': '/tmp'}"),
                     201);
    const uint64_t id = 1;
    assert_string_equal(job(id)->run_dir, "/tmp/runs/run");
    starts(id);
    w.now_s += 3600.0;
    const uint64_t urgent = submit(2, "priority: high");
    assert_state(id, RESIZING);
    assert_int_equal(job(id)->ranks_next, 2);
    assert_int_equal(count_orders(LS_DO_RESIZE, id), 1);
    w.now_s += 1.0;
    report(id, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = 2});
    assert_state(id, RUNNING);
    assert_int_equal(job(id)->ranks_now, 2);
    assert_int_equal(__builtin_popcountll(job(id)->shares[0].devices), 2);
    assert_state(urgent, STARTING);
    assert_true((job(id)->shares[0].devices & job(urgent)->shares[0].devices) == 0);
    /* resized on request */
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 1, 'ranks': 9}"), 400);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 2, 'ranks': 3}"), 409);
    starts(urgent);
    ends(urgent, 0);
}

static void others_see_little_and_change_nothing(void **state)
{
    (void)state;
    const uint64_t id = submit(1, ""), shared = submit(1, "share: [bob]");
    char text[64];
    snprintf(text, sizeof text, "{'job': %llu}", (unsigned long long)id);
    static const ls_verb verbs[] = {LS_VERB_SHOW, LS_VERB_WHY,     LS_VERB_EVENTS, LS_VERB_CANCEL,
                                    LS_VERB_HOLD, LS_VERB_RELEASE, LS_VERB_RESIZE, LS_VERB_PRIORITY};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        assert_int_equal(call_as(1001, verbs[i], text), 403);
    }
    assert_int_equal(call_as(1001, LS_VERB_LIST, "{}"), 200);
    const json_t *item = json_array_get(json_object_get(w.answer, "jobs"), 0);
    assert_true(json_is_null(json_object_get(item, "name")));
    assert_null(json_object_get(item, "user"));
    assert_int_equal(json_integer_value(json_object_get(item, "ranks")), 1);
    snprintf(text, sizeof text, "{'job': %llu}", (unsigned long long)shared);
    assert_int_equal(call_as(1001, LS_VERB_CANCEL, text), 200);
    assert_int_equal(call_as(0, LS_VERB_CANCEL, "{'job': 1}"), 200);
    assert_int_equal(call_as(1001, LS_VERB_DOWN, "{}"), 403);
    assert_int_equal(call_as(1001, LS_VERB_ACCOUNT, "{'account': 'x', 'weight': 9}"), 403);
}

/* The numbers of the jobs of a list, "1 2 3", and where the next page begins. */
static const char *listed(const char *arguments)
{
    static char text[256];
    assert_int_equal(call(LS_VERB_LIST, arguments), 200);
    const json_t *jobs = json_object_get(w.answer, "jobs"), *next = json_object_get(w.answer, "before");
    size_t bytes = 0;
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%s%d", i > 0 ? " " : "",
                                  (int)json_integer_value(json_object_get(json_array_get(jobs, i), "job")));
    }
    if (json_is_integer(next)) {
        snprintf(text + bytes, sizeof text - bytes, " next %d", (int)json_integer_value(next));
    }
    return text;
}

static void list_never_drops_who_waits_or_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) { /* 1 to 4 run, 5 and 6 wait */
        submit(1, "");
    }
    static const uint64_t order[] = {3, 2, 4, 5};
    for (size_t i = 0; i < 4; i++) {
        w.now_s += 10.0;
        starts(order[i]);
        ends(order[i], order[i] == 2);
    }
    assert_string_equal(listed("{}"), "1 6");
    assert_string_equal(listed("{'limit': 1}"), "1 6");
    assert_string_equal(listed("{'all': true}"), "1 2 3 4 5 6");
    /* the two that ended last */
    assert_string_equal(listed("{'all': true, 'limit': 2}"), "1 4 5 6 next 4");
    assert_string_equal(listed("{'before': 4, 'limit': 1}"), "2 next 2");
    assert_string_equal(listed("{'before': 2, 'limit': 1}"), "3");
    assert_string_equal(listed("{'before': 3}"), "");
    assert_string_equal(listed("{'ended': true}"), "5 4 2 3");
    assert_string_equal(listed("{'ended': true, 'limit': 3}"), "5 4 2 next 2");
    assert_string_equal(listed("{'state': 'FAILED'}"), "2");
    assert_int_equal(call(LS_VERB_LIST, "{'before': 1}"), 404); /* it runs */
    assert_int_equal(call(LS_VERB_LIST, "{'before': 99}"), 404);
    assert_int_equal(call(LS_VERB_LIST, "{'state': 'runs'}"), 400);
    assert_non_null(strstr(json_string_value(json_object_get(w.answer, "error")), "RUNNING, RESIZING"));
    /* only users who may see a job can filter by its owner */
    assert_int_equal(call_as(1001, LS_VERB_LIST, "{'all': true, 'user': 'ann'}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "jobs")), 0);
}

static void quota_limits_an_account(void **state)
{
    (void)state;
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'ann', 'quota': 1, 'borrow': 0}"), 200);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'a/b'}"), 400);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'ann', 'weight': 0}"), 400);
    const uint64_t first = submit(1, ""), second = submit(1, "");
    assert_state(first, STARTING);
    assert_state(second, QUEUED);
    on(LS_VERB_WHY, second);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "quota");
    call_as(0, LS_VERB_ACCOUNT, "{'account': 'ann', 'quota': null}");
    assert_state(second, STARTING);
}

static void full_disk_refuses_and_loses_nothing(void **state)
{
    (void)state;
    const uint64_t running = submit(1, "");
    starts(running);
    const uint32_t orders = w.order_count;
    w.disk_is_full = true;
    /* the transaction fails */
    call(LS_VERB_SUBMIT, "{'file': 'job: {command: [run]}', 'directory': '/tmp'}");
    assert_int_equal(w.status, 507);
    ls_controller_report(w.controller,
                         &(ls_engine_report){.kind = LS_ENGINE_ENDED, .job = running, .epoch = 1});
    turn(); /* still full */
    assert_int_equal(w.order_count, orders);
    assert_int_equal(call(LS_VERB_LIST, "{}"), 200); /* questions are answered */
    assert_int_equal(on(LS_VERB_PRIORITY, running), 507);
    w.disk_is_full = false;
    turn();
    assert_state(running, SUCCEEDED);
    assert_state(2, CANCELLED);
    assert_int_equal(job(2)->cause, LS_CAUSE_DISK);
    assert_int_equal(count_orders(LS_DO_START, 2), 0);
    assert_state(submit(1, ""), STARTING);
}

/* What only stops a job does not wait for the disk, which that job may have filled. */
static void full_disk_stops_jobs_all_the_same(void **state)
{
    (void)state;
    const uint64_t cancelled = submit(1, ""), limited = submit(1, "time_limit: 60s"), fresh = submit(1, "");
    starts(cancelled);
    starts(limited);
    starts(fresh);
    ends(fresh, 0);
    w.disk_is_full = true;
    assert_int_equal(on(LS_VERB_CANCEL, cancelled), 507); /* the turn fails */
    assert_non_null(strstr(json_string_value(json_object_get(w.answer, "error")), "the job is cancelled; "));
    assert_int_equal(count_orders(LS_DO_STOP, cancelled), 1);
    assert_state(cancelled, STOPPING);
    w.now_s += 61.0; /* while the queue cannot be changed */
    turn();
    assert_int_equal(count_orders(LS_DO_STOP, limited), 1);
    turn();
    assert_int_equal(on(LS_VERB_CANCEL, cancelled), 507); /* again: the grace period ends */
    assert_int_equal(count_orders(LS_DO_KILL, cancelled), 1);
    report(cancelled, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 137});
    report(limited, (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 143});
    w.disk_is_full = false;
    turn();
    assert_state(cancelled, CANCELLED);
    assert_state(limited, FAILED);
    assert_int_equal(job(limited)->cause, LS_CAUSE_LIMIT);
    assert_int_equal(count_orders(LS_DO_STOP, cancelled) + count_orders(LS_DO_STOP, limited), 2);
}

/* A wall clock that jumps ends no job, bills nothing and begins nothing; times are shown as it has
 * them. */
static void a_clock_that_jumps_changes_nothing(void **state)
{
    (void)state;
    const double day_s = 86400.0;
    const uint64_t limited = submit(1, "time_limit: 30s"), later = submit(1, "begin: 1h");
    starts(limited);
    w.now_s += 2.0;
    w.ahead_s = day_s;
    turn();
    assert_state(limited, RUNNING);
    assert_state(later, QUEUED);
    assert_int_equal(on(LS_VERB_SHOW, limited), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "ran_s")), 2.0, 0.01);
    assert_float_equal(json_number_value(json_object_get(w.answer, "started")), w.now_s - 2.0 + day_s, 0.01);
    const uint64_t after = submit(1, "");
    report(after, (ls_engine_report){.kind = LS_ENGINE_STARTED, .time_s = w.now_s + day_s});
    assert_float_equal(job(after)->started_s, w.now_s, 0.01);
    const uint64_t forged = submit(1, ""); /* a time long before it had devices */
    report(forged, (ls_engine_report){.kind = LS_ENGINE_STARTED, .time_s = w.now_s + day_s - 1e8});
    assert_float_equal(job(forged)->started_s, w.now_s, 0.01);
    w.now_s += 3.0;
    ends(limited, 0);
    assert_float_equal(job(limited)->ended_s, w.now_s + day_s, 0.01);
    assert_float_equal(job(limited)->ended_s - job(limited)->started_s, 5.0, 0.01);
    assert_int_equal(job(limited)->allocated_device_ms, 5000);
    assert_int_equal(on(LS_VERB_SHOW, limited), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "ended")), w.now_s + day_s, 0.01);
}

static void idle_devices_are_told(void **state)
{
    (void)state;
    const uint64_t id = submit(2, "");
    starts(id);
    for (int i = 0; i < 4; i++) {
        w.now_s += 10.0;
        report(id, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY, .busy_permille = 3});
    }
    assert_int_equal(call(LS_VERB_LIST, "{}"), 200);
    const json_t *item = json_array_get(json_object_get(w.answer, "jobs"), 0);
    assert_true(json_number_value(json_object_get(item, "idle_s")) >= 30.0);
    assert_non_null(strstr(job(id)->text, "have been idle"));
    assert_int_equal(job(id)->idle_device_ms, 2 * 40000);
    w.now_s += 10.0;
    report(id, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY, .busy_permille = 900});
    call(LS_VERB_LIST, "{}");
    item = json_array_get(json_object_get(w.answer, "jobs"), 0);
    assert_true(json_is_null(json_object_get(item, "idle_s")));
}

/* Every state that a crash can leave behind: rows come back, and the engine is asked before
 * anything is started. */
static void restart_adopts_what_had_devices(void **state)
{
    (void)state;
    const uint64_t running = submit(1, ""), starting = submit(1, ""), stopping = submit(1, ""),
                   waiting = submit(4, ""), held = submit(1, "hold: true");
    starts(running);
    starts(stopping);
    on(LS_VERB_CANCEL, stopping);
    const uint32_t count = count_jobs();
    restart();
    assert_int_equal(count_orders(LS_DO_ADOPT, running), 1);
    assert_int_equal(count_orders(LS_DO_ADOPT, starting), 1);
    assert_int_equal(count_orders(LS_DO_ADOPT, stopping), 1);
    assert_int_equal(count_orders(LS_DO_STOP, stopping), 1);
    assert_int_equal(count_orders(LS_DO_START, waiting), 0); /* their devices are taken */
    assert_state(held, HELD);
    report(starting, (ls_engine_report){.kind = LS_ENGINE_NEVER}); /* its ticket was never taken */
    assert_state(starting, STARTING);
    assert_int_equal(job(starting)->epoch, 2);
    starts(starting);
    ends(starting, 0);
    ends(running, 0);
    ends(stopping, 75);
    assert_state(stopping, CANCELLED);
    assert_state(waiting, STARTING);
    assert_int_equal(submit(1, "hold: true"), count + 1);
}

/* Fewer devices than before: accepted jobs keep their place and say what they wait for; so do the
 * jobs that depend on them. */
static void restart_with_fewer_devices_keeps_jobs(void **state)
{
    (void)state;
    const uint64_t busy = submit(4, ""), large = submit(4, "priority: high"), after = submit(1, "after: [2]"),
                   doomed = submit(1, "after: [2]"), small = submit(1, "");
    starts(busy);
    w.engine.node.devices = w.engine.node.island_devices = 2;
    restart();
    assert_state(large, QUEUED);
    assert_non_null(strstr(short_why(large), "it needs 4 devices, but there are only 2 now"));
    assert_int_equal(on(LS_VERB_WHY, large), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "impossible");
    assert_int_equal(on(LS_VERB_WHY, after), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "dependency");
    /* of a job that keeps running */
    const uint64_t late = submit(1, "after: [1], after_any: true");
    assert_state(late, QUEUED);
    ends(busy, 0);
    assert_state(late, STARTING);
    assert_state(small, STARTING);
    assert_state(large, QUEUED);
    assert_state(after, QUEUED);
    assert_int_equal(on(LS_VERB_HOLD, large), 200);
    assert_int_equal(on(LS_VERB_RELEASE, large), 200);
    assert_int_equal(on(LS_VERB_CANCEL, doomed), 200);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 2, 'ranks': 2}"), 200);
    starts(late);
    ends(late, 0);
    starts(small);
    ends(small, 0);
    assert_state(large, STARTING);
    assert_state(after, QUEUED);
    starts(large);
    ends(large, 1);
    assert_state(after, FAILED);
    assert_int_equal(job(after)->cause, LS_CAUSE_DEPENDENCY);
    /* With as many as before it runs as it was. */
    w.engine.node.devices = w.engine.node.island_devices = 4;
    restart();
    const uint64_t again = submit(4, "hold: true");
    w.engine.node.devices = w.engine.node.island_devices = 2;
    restart();
    assert_int_equal(on(LS_VERB_RELEASE, again), 200);
    assert_state(again, QUEUED);
    char more[64];
    snprintf(more, sizeof more, "after: [%llu]", (unsigned long long)again);
    const uint64_t waits = submit(1, more);
    assert_state(waits, QUEUED);
    w.engine.node.devices = w.engine.node.island_devices = 4;
    restart();
    assert_state(again, STARTING);
    w.engine.node.devices = w.engine.node.island_devices = 2;
    report(again, (ls_engine_report){.kind = LS_ENGINE_NEVER});
    restart();
    assert_int_equal(on(LS_VERB_CANCEL, again), 200);
}

static void down_waits_for_cancelled_jobs(void **state)
{
    (void)state;
    const uint64_t id = submit(1, ""), waiting = submit(4, "");
    starts(id);
    assert_false(ls_controller_is_down(w.controller));
    assert_int_equal(call_as(0, LS_VERB_DOWN, "{'cancel': true}"), 202);
    assert_state(waiting, CANCELLED);
    assert_state(id, STOPPING);
    assert_false(ls_controller_is_down(w.controller));
    assert_int_equal(call(LS_VERB_SUBMIT, "{'file': 'job: {command: [run]}', 'directory': '/tmp'}"), 503);
    ends(id, 143);
    assert_true(ls_controller_is_down(w.controller));
}

static void deciding_engine_gets_jobs_when_others_have_ended(void **state)
{
    (void)state;
    const uint64_t first = submit(4, ""), any = submit(1, "after: [1], after_any: true");
    const uint64_t second = submit(1, "after: [1]"), third = submit(1, "after: [3]");
    assert_int_equal(count_orders(LS_DO_START, first), 1);
    assert_int_equal(count_orders(LS_DO_START, second), 0);
    assert_state(second, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, second), 200);
    assert_string_equal(json_string_value(json_object_get(w.answer, "stage")), "dependency");
    assert_string_equal(json_string_value(json_object_get(w.answer, "text")),
                        "it waits for job 1 to succeed");
    assert_int_equal(json_array_size(json_object_get(w.answer, "blockers")), 1);
    assert_int_equal(on(LS_VERB_HOLD, second), 200);
    starts(first);
    ends(first, 0);
    assert_int_equal(count_orders(LS_DO_START, any), 1);
    assert_int_equal(count_orders(LS_DO_START, second), 0);
    assert_int_equal(on(LS_VERB_RELEASE, second), 200);
    assert_int_equal(count_orders(LS_DO_START, second), 1);
    starts(second);
    ends(second, 3);
    assert_state(third, FAILED);
    assert_int_equal(job(third)->cause, LS_CAUSE_DEPENDENCY);
    assert_int_equal(count_orders(LS_DO_START, third), 0);
}

static void deciding_engine_refuses_what_it_never_could(void **state)
{
    (void)state;
    const char *const wide = "{'file': 'job: {command: [run]}', 'ranks': 5, 'directory': '/tmp'}";
    assert_int_equal(call(LS_VERB_SUBMIT, wide), 400);
    const uint64_t first = submit(4, "");
    starts(first);
    ends(first, 1);
    const char *const behind = "{'file': 'job: {command: [run], after: [1]}', 'directory': '/tmp'}";
    assert_int_equal(call(LS_VERB_SUBMIT, behind), 400);
    assert_int_equal(submit(1, ""), first + 1);
}

/* The machine has fewer devices than a running job was given: those that are left stay with it
 * until it ends. */
static void adopted_job_keeps_what_is_left_of_its_devices(void **state)
{
    (void)state;
    const uint64_t id = submit(4, "");
    starts(id);
    ls_job *copy = NULL;
    json_t *record = ls_job_record_json(job(id));
    assert_int_equal(ls_job_create(id, json_deep_copy(job(id)->request), &copy), LS_OK);
    ls_job_set_user(copy, job(id)->uid, job(id)->gid, job(id)->user);
    ls_job_set_account(copy, job(id)->account);
    assert_int_equal(ls_job_record_read(copy, record), LS_OK);
    json_decref(record);
    ls_controller_destroy(w.controller);
    w.engine.node.devices = w.engine.node.island_devices = 2;
    assert_int_equal(create(&w.controller), LS_OK);
    ls_controller_restore(w.controller, copy);
    ls_controller_restored(w.controller, id + 1);
    turn();
    const uint64_t next = submit(2, "");
    assert_state(id, RUNNING);
    assert_state(next, QUEUED);
    assert_int_equal(on(LS_VERB_WHY, next), 200);
    const json_t *blocker = json_array_get(json_object_get(w.answer, "blockers"), 0);
    assert_int_equal(json_integer_value(json_object_get(blocker, "job")), id);
    assert_int_equal(call(LS_VERB_STATUS, "{}"), 200);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "devices_used")), 2);
    ends(id, 0);
    assert_state(next, STARTING);
}

/* What other accounts do not lend is never available. */
static void what_others_do_not_lend_is_refused(void **state)
{
    (void)state;
    ls_account vision = ls_account_default();
    snprintf(vision.name, sizeof vision.name, "vision");
    vision.quota = 2;
    vision.lend = 1;
    assert_int_equal(ls_controller_set_account(w.controller, &vision), LS_OK);
    assert_int_equal(
        call(LS_VERB_SUBMIT, "{'file': 'parallel: {ranks: 4}\\njob: {command: [run]}', 'directory': '/tmp'}"),
        400);
    assert_non_null(strstr(json_string_value(json_object_get(w.answer, "error")), "other accounts keep 1"));
    assert_state(submit(3, ""), STARTING);
}

static double hours_waited(uint64_t id)
{
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    return json_number_value(json_object_get(json_object_get(w.answer, "usage"), "waiting_h"));
}

/* Only time in which it could have run counts as waiting; a resize of a waiting job changes its
 * size. */
static void waits_that_no_machine_shortens_do_not_count(void **state)
{
    (void)state;
    const uint64_t first = submit(4, "");
    starts(first);
    assert_int_equal(call(LS_VERB_SUBMIT, "{'file': 'parallel: {ranks: 1}\\njob: {command: [run]}', "
                                          "'directory': '/tmp', 'after': [1], 'priority': 'normal'}"),
                     201);
    const uint64_t next = first + 1, other = submit(4, "");
    w.now_s += 3600.0;
    assert_float_equal(hours_waited(next), 0.0, 1e-6);
    assert_float_equal(hours_waited(other), 4.0, 1e-3);
    assert_int_equal(on(LS_VERB_WHY, next), 200);
    assert_null(strstr(json_string_value(json_object_get(w.answer, "text")), "is not stopped"));
    const uint64_t held = submit(1, "hold: true");
    assert_int_equal(on(LS_VERB_WHY, held), 200);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "rank")), 0);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "pending")), 2);
    assert_int_equal(call(LS_VERB_RESIZE, "{'job': 3, 'ranks': 2}"), 200);
    assert_int_equal(on(LS_VERB_SHOW, other), 200);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "min_ranks")), 2);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "max_ranks")), 2);
}

/* ran_s is the time it ran, without the waiting after it. */
static void what_it_ran_is_no_wait(void **state)
{
    (void)state;
    const uint64_t id = submit(2, "restartable: true");
    starts(id);
    w.now_s += 10.0;
    assert_int_equal(on(LS_VERB_HOLD, id), 200);
    ends(id, 75);
    assert_state(id, HELD);
    w.now_s += 100.0;
    assert_int_equal(on(LS_VERB_CANCEL, id), 200);
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "ran_s")), 10.0, 0.01);
    const uint64_t whole = submit(2, "");
    starts(whole);
    w.now_s += 20.0;
    ends(whole, 0);
    assert_int_equal(on(LS_VERB_SHOW, whole), 200);
    assert_float_equal(json_number_value(json_object_get(w.answer, "ran_s")), 20.0, 0.01);
}

int main(void)
{
#define DECIDING(name) cmocka_unit_test_setup_teardown(name, set_up_deciding, tear_down)
#define CASE(name)     cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(job_runs_to_its_end),
        CASE(job_that_fails_says_why),
        CASE(job_that_never_fits_is_refused),
        CASE(job_waits_for_devices_and_is_told_why),
        CASE(cancel_ends_a_job_in_every_state),
        CASE(hold_gives_devices_back_and_release_begins_anew),
        CASE(preemption_saves_requeues_and_ends_by_what_a_job_can),
        CASE(lost_jobs_begin_again_within_a_budget),
        CASE(time_limit_ends_a_job),
        CASE(time_limit_is_the_reason_whatever_a_program_says),
        CASE(training_at_its_time_limit_says_where_it_goes_on),
        CASE(reasons_stay),
        CASE(what_may_not_be_restarted_starts_once),
        CASE(short_reasons_are_those_of_why),
        CASE(preempted_jobs_say_for_whom),
        CASE(start_that_does_not_come_is_lost),
        CASE(dependencies_start_fail_and_chain),
        CASE(sweep_is_one_group_with_a_limit),
        CASE(elastic_jobs_shrink_and_grow),
        CASE(others_see_little_and_change_nothing),
        CASE(list_never_drops_who_waits_or_runs),
        CASE(quota_limits_an_account),
        CASE(full_disk_refuses_and_loses_nothing),
        CASE(full_disk_stops_jobs_all_the_same),
        CASE(a_clock_that_jumps_changes_nothing),
        CASE(idle_devices_are_told),
        CASE(restart_adopts_what_had_devices),
        CASE(restart_with_fewer_devices_keeps_jobs),
        CASE(adopted_job_keeps_what_is_left_of_its_devices),
        CASE(what_others_do_not_lend_is_refused),
        CASE(waits_that_no_machine_shortens_do_not_count),
        CASE(what_it_ran_is_no_wait),
        CASE(down_waits_for_cancelled_jobs),
        DECIDING(deciding_engine_gets_jobs_when_others_have_ended),
        DECIDING(deciding_engine_refuses_what_it_never_could),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
