// SPDX-License-Identifier: Apache-2.0
/* New jobs: who may submit, how many, to which folder; a refusal leaves nothing behind. */
#include "orchestration/control/controller_world.h"

/* A sweep that is refused leaves nothing: no rows, no journal, no account; and the queue keeps
 * working. */
static void refused_sweep_leaves_nothing(void **state)
{
    (void)state;
    const uint64_t before = submit(1, "");
    const uint32_t orders = w.order_count;
    assert_int_equal(call(LS_VERB_SWEEP,
                          "{'file': 'job: {command: [run], account: fresh}', 'directory': '/tmp',"
                          " 'set': {'parallel.ranks': [1, 2, 99]}}"),
                     400);
    assert_int_equal(w.order_count, orders);
    assert_int_equal(w.rows, 0);
    assert_null(ls_controller_job(w.controller, before + 1));
    assert_int_equal(call_as(0, LS_VERB_ACCOUNTS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "accounts")), 1);
    assert_int_equal(call(LS_VERB_SUBMIT,
                          "{'file': 'parallel: {ranks: 99}\\njob: {command: [run], account: x}',"
                          " 'directory': '/tmp'}"),
                     400);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNTS, "{}"), 200);
    assert_int_equal(json_array_size(json_object_get(w.answer, "accounts")), 1);
    const uint64_t next = submit(3, "");
    assert_state(next, STARTING);
    assert_int_equal(count_orders(LS_DO_START, next), 1);
    starts(before);
    ends(before, 0);
    starts(next);
    ends(next, 0);
    assert_state(next, SUCCEEDED);
}

static const char *run_dir_of(const char *request)
{
    assert_int_equal(call(LS_VERB_SUBMIT, request), 201);
    return json_string_value(json_object_get(w.answer, "run_dir"));
}

/* Jobs of a sweep never share a folder with an earlier run; a single run continues in its own. */
static void runs_have_folders_of_their_own(void **state)
{
    (void)state;
    static const char plain[] = "{'file': 'name: t\\ndata: {train: [x]}', 'directory': '/tmp'}";
    assert_string_equal(run_dir_of(plain), "/tmp/runs/t");
    assert_string_equal(run_dir_of(plain), "/tmp/runs/t-2"); /* the first has not ended */
    assert_string_equal(
        run_dir_of("{'file': 'name: u\\ndata: {train: [x]}', 'directory': '/', 'avoid': ['u', 'u-3']}"),
        "/runs/u-3-2");
    assert_int_equal(call(LS_VERB_SUBMIT, "{'file': 'data: {train: [x]}', 'directory': '/', 'avoid': [7]}"),
                     400);
    starts(1);
    ends(1, 0);
    assert_string_equal(run_dir_of(plain), "/tmp/runs/t"); /* it continues there */
    assert_int_equal(call(LS_VERB_SWEEP,
                          "{'file': 'name: s\\ndata: {train: [x]}', 'directory': '/tmp', 'avoid': ['s-6'],"
                          " 'set': {'train.seed': [1, 2]}}"),
                     201);
    assert_string_equal(job(5)->run_dir, "/tmp/runs/s-5");
    assert_string_equal(job(6)->run_dir, "/tmp/runs/s-6-2");
}

/* A submission of bob's, with a line under job. */
static int bob_submits(const char *more)
{
    char text[512];
    snprintf(text, sizeof text, "{'file': 'job: {command: [run]%s%s}', 'directory': '/tmp'}",
             more[0] ? ", " : "", more);
    return call_as(1001, LS_VERB_SUBMIT, text);
}

static void accounts_are_for_their_users(void **state)
{
    (void)state;
    assert_int_equal(bob_submits(""), 201);
    assert_string_equal(job(1)->account, "bob");
    assert_int_equal(bob_submits("account: ann"), 403);  /* another user's */
    assert_int_equal(bob_submits("account: root"), 403); /* not used by anyone yet */
    assert_int_equal(bob_submits("account: mine"), 201); /* created when first used */
    assert_int_equal(
        call(LS_VERB_SUBMIT, "{'file': 'job: {command: [run], account: mine}', 'directory': '/tmp'}"), 403);
    assert_non_null(strstr(json_string_value(json_object_get(w.answer, "error")), "accounts mine --users"));
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'mine', 'users': ['bob', 'ann']}"), 200);
    assert_int_equal(
        call(LS_VERB_SUBMIT, "{'file': 'job: {command: [run], account: mine}', 'directory': '/tmp'}"), 201);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'all', 'weight': 2}"), 200);
    assert_int_equal(bob_submits("account: all"), 201);
    assert_int_equal(
        call_as(0, LS_VERB_SUBMIT, "{'file': 'job: {command: [run], account: bob}', 'directory': '/tmp'}"),
        201);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'x', 'users': ['a b']}"), 400);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'x', 'users': 'bob'}"), 400);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'mine', 'users': []}"), 400);
    assert_non_null(
        strstr(json_string_value(json_object_get(w.answer, "error")), "Use null to let everyone"));
    assert_int_equal(call_as(1002, LS_VERB_SUBMIT,
                             "{'file': 'job: {command: [run], account: mine}', 'directory': '/tmp'}"),
                     403); /* as closed as it was */
    /* only administrators see the members */
    assert_int_equal(call_as(1001, LS_VERB_ACCOUNTS, "{}"), 200);
    const json_t *first = json_array_get(json_object_get(w.answer, "accounts"), 0);
    assert_true(json_is_null(json_object_get(first, "users")));
    assert_string_equal(json_string_value(json_object_get(first, "open_to")), "others");
    assert_string_equal(json_string_value(json_object_get(first, "priority_max")), "high");
}

/* User cyd is unknown before the first call: the account's name can be taken, and is given back at
 * the first call. */
static void own_account_is_got_back(void **state)
{
    (void)state;
    static const char cyds[] = "{'file': 'job: {command: [run], account: cyd}', 'directory': '/tmp'}";
    assert_int_equal(bob_submits("account: cyd"), 201);
    assert_int_equal(call_as(1002, LS_VERB_SUBMIT, cyds), 201);
    assert_int_equal(bob_submits("account: cyd"), 403);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'cyd', 'users': null}"), 200);
    assert_int_equal(call_as(1002, LS_VERB_SUBMIT, cyds), 201); /* it was open */
    assert_int_equal(bob_submits("account: cyd"), 403);
    /* members that an administrator added stay, even without the owner */
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'cyd', 'users': ['ann', 'bob']}"), 200);
    assert_int_equal(call_as(1002, LS_VERB_SUBMIT, cyds), 201);
    assert_int_equal(bob_submits("account: cyd"), 201);
}

/* An account with a higher priority is closed until it has members; an account that an
 * administrator's job names first belongs to the administrator. */
static void special_account_is_closed_until_users_are_named(void **state)
{
    (void)state;
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'vip', 'priority_max': 'high'}"), 200);
    assert_int_equal(bob_submits("account: vip, priority: high"), 403);
    assert_int_equal(bob_submits("account: vip"), 403);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'vip', 'users': ['bob']}"), 200);
    assert_int_equal(bob_submits("account: vip, priority: high"), 201);
    assert_int_equal(
        call_as(0, LS_VERB_SUBMIT, "{'file': 'job: {command: [run], account: roots}', 'directory': '/tmp'}"),
        201);
    assert_int_equal(bob_submits("account: roots"), 403);
}

static void priority_goes_as_far_as_the_account(void **state)
{
    (void)state;
    assert_int_equal(bob_submits("priority: high"), 403);
    assert_int_equal(bob_submits("priority: low"), 201);
    assert_int_equal(call_as(1001, LS_VERB_PRIORITY, "{'job': 1, 'priority': 'normal'}"), 200);
    assert_int_equal(call_as(1001, LS_VERB_PRIORITY, "{'job': 1, 'priority': 'high'}"), 403);
    assert_int_equal(job(1)->priority, LS_PRIORITY_NORMAL);
    assert_int_equal(call_as(0, LS_VERB_PRIORITY, "{'job': 1, 'priority': 'high'}"), 200);
    assert_int_equal(call_as(1001, LS_VERB_PRIORITY, "{'job': 1, 'priority': 'low'}"), 200);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'bob', 'priority_max': 'urgent'}"), 400);
    assert_int_equal(call_as(0, LS_VERB_ACCOUNT, "{'account': 'bob', 'priority_max': 'high'}"), 200);
    assert_int_equal(bob_submits("priority: high"), 201);
}

/* One user cannot fill the queue; an administrator is only subject to the limits in total. */
static void users_have_limits(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(bob_submits("hold: true"), 201);
    }
    assert_int_equal(bob_submits(""), 429);
    const char *error = json_string_value(json_object_get(w.answer, "error"));
    assert_non_null(strstr(error, "user bob has 20 jobs"));
    assert_non_null(strstr(error, "user_jobs_max"));
    assert_int_equal(call_as(1001, LS_VERB_CANCEL, "{'job': 1}"), 200);
    assert_int_equal(bob_submits(""), 201);
    char request[1800];
    const char *head = "{'file': 'job: {command: [run], hold: true} # ";
    memset(request, 'x', sizeof request);
    memcpy(request, head, strlen(head));
    snprintf(request + sizeof request - 40, 40, "', 'directory': '/tmp'}");
    int accepted = 0;
    while (accepted < 19 && call(LS_VERB_SUBMIT, request) == 201) {
        accepted++;
    }
    assert_int_equal(accepted, 19); /* each has less than 2 KiB */
    for (int id = 22; id < 22 + accepted; id++) {
        snprintf(request, 64, "{'job': %d}", id);
        assert_int_equal(call(LS_VERB_CANCEL, request), 200);
    }
    assert_int_equal(call(LS_VERB_SUBMIT, "{'file': 'job: {command: [run]}', 'directory': '/tmp'}"), 201);
}

static void large_requests_are_limited_too(void **state)
{
    (void)state;
    json_t *request = json_pack("{s:s, s:s, s:{s:s}}", "file", "job: {command: [run], hold: true}",
                                "directory", "/tmp", "environment", "BIG", "");
    char *value = calloc(1, 40001);
    memset(value, 'v', 40000);
    json_object_set_new(json_object_get(request, "environment"), "BIG", json_string(value));
    const ls_caller bob = {.uid = 1001, .gid = 1001, .user = "bob"},
                    root = {.user = "root", .is_admin = true};
    static const struct {
        bool is_root;
        int status;
        const char *says;
    } wanted[] = {
        {false, 201, NULL}, {false, 429, "user_bytes_max"}, {true, 201, NULL}, {true, 429, " (bytes_max"}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        ls_controller_call(w.controller, wanted[i].is_root ? &root : &bob, LS_VERB_SUBMIT, request,
                           take_reply, &w);
        turn();
        assert_int_equal(w.status, wanted[i].status);
        assert_true(!wanted[i].says ||
                    strstr(json_string_value(json_object_get(w.answer, "error")), wanted[i].says));
    }
    free(value);
    json_decref(request);
}

/* A text of `bytes` bytes that repeats `part`; the caller frees it. */
static char *repeated(const char *part, size_t bytes)
{
    ls_text text = {0};
    while (text.bytes + strlen(part) <= bytes) {
        ls_text_append(&text, part);
    }
    return text.data;
}

static int ask(ls_verb verb, const json_t *request)
{
    const ls_caller root = {.user = "root", .is_admin = true};
    ls_controller_call(w.controller, &root, verb, request, take_reply, &w);
    turn();
    return w.status;
}

/* What a short request asks for needs no hundreds of megabytes of the daemon, and none that stays
 * after its end. */
static void requests_need_little_memory(void **state)
{
    (void)state;
    char *folder = repeated("/d", 3000), *items = repeated("a,", 10000), *names = repeated("a1,", 60),
         *value = repeated("v", 4000), *comment = repeated("#", 60000);
    const struct {
        const char *file, *set, *directory, *says;
        int status;
    } wanted[] = {
        {"job: {command: [run], metrics: [%sa]}", items, folder, "paths of job.metrics", 400},
        {"job: {command: [run], metrics: [%s/a]}", items, "/", "paths of job.metrics", 400},
        {"job: {command: [run], share: [%sa]}", items, "/tmp", "names in job.share", 400},
        {"job: {command: [%sa]}", items, "/tmp", NULL, 201},
        {"job: {command: [run], metrics: [%sa]}", names, folder, "paths of job.metrics", 400},
        {"job: {command: [run], metrics: [%sa]}", names, "/tmp", NULL, 201},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        ls_text file = {0};
        ls_text_append_bytes(&file, wanted[i].file, strcspn(wanted[i].file, "%"));
        ls_text_append(&file, wanted[i].set);
        ls_text_append(&file, strchr(wanted[i].file, '%') + 2);
        json_t *request = json_pack("{s:s, s:s}", "file", file.data, "directory", wanted[i].directory);
        assert_int_equal(ask(LS_VERB_SUBMIT, request), wanted[i].status);
        assert_true(!wanted[i].says ||
                    strstr(json_string_value(json_object_get(w.answer, "error")), wanted[i].says));
        json_decref(request);
        ls_text_release(&file);
    }
    json_t *set = json_array(), *values = json_array();
    for (int i = 0; i < 300; i++) {
        json_array_append_new(values, json_integer(i));
    }
    for (int i = 0; i < 18; i++) {
        json_array_append_new(set, json_sprintf("name=%s", value));
    }
    json_array_append_new(set, json_string("name=a"));
    json_t *request =
        json_pack("{s:s, s:s, s:o}", "file", "job: {command: [run]}", "directory", "/tmp", "set", set);
    assert_int_equal(ask(LS_VERB_SUBMIT, request), 400);
    assert_non_null(strstr(json_string_value(json_object_get(w.answer, "error")), "overrides"));
    json_decref(request);
    request = json_pack("{s:o, s:s, s:{s:o}}", "file", json_sprintf("job: {command: [run]} %s", comment),
                        "directory", "/tmp", "set", "train.seed", values);
    assert_int_equal(ask(LS_VERB_SWEEP, request), 400);
    assert_non_null(strstr(json_string_value(json_object_get(w.answer, "error")), "KiB together"));
    json_decref(request);
    free(folder), free(items), free(names), free(value), free(comment);
}

static void after_is_of_jobs_that_there_are(void **state)
{
    (void)state;
    assert_int_equal(bob_submits("after: [99999]"), 400);
    assert_non_null(strstr(json_string_value(json_object_get(w.answer, "error")), "there is no job 99999"));
    const uint64_t anns = submit(1, "");
    char more[64];
    snprintf(more, sizeof more, "after: [%llu]", (unsigned long long)anns);
    assert_int_equal(bob_submits(more), 201); /* any user's job, as with Slurm */
    starts(anns);
    ends(anns, 0);
    assert_state(anns + 1, STARTING);
    assert_int_equal(on(LS_VERB_RELEASE, submit(1, "")), 409); /* is not held */
}

static void ended_jobs_are_let_go_unless_waited_for(void **state)
{
    (void)state;
    const uint64_t first = submit(1, ""), second = submit(1, "");
    starts(first);
    assert_false(ls_controller_let_go(w.controller, first)); /* runs */
    const uint64_t waits = submit(1, "after: [1], hold: true");
    ends(first, 0);
    assert_false(ls_controller_let_go(w.controller, first));
    assert_int_equal(on(LS_VERB_CANCEL, waits), 200);
    assert_true(ls_controller_let_go(w.controller, first));
    assert_null(ls_controller_job(w.controller, first));
    assert_int_equal(on(LS_VERB_SHOW, first), 404);
    assert_true(ls_controller_let_go(w.controller, 77)); /* not in memory */
    starts(second);
    ends(second, 0);
    assert_state(second, SUCCEEDED);
    assert_int_equal(submit(1, ""), waits + 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(refused_sweep_leaves_nothing),
        CASE(runs_have_folders_of_their_own),
        CASE(accounts_are_for_their_users),
        CASE(own_account_is_got_back),
        CASE(special_account_is_closed_until_users_are_named),
        CASE(priority_goes_as_far_as_the_account),
        CASE(users_have_limits),
        CASE(large_requests_are_limited_too),
        CASE(requests_need_little_memory),
        CASE(after_is_of_jobs_that_there_are),
        CASE(ended_jobs_are_let_go_unless_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
