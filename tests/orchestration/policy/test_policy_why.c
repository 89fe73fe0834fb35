// SPDX-License-Identifier: Apache-2.0
/* Why a job waits, and that what it says comes true: each counterfactual is done, and the next pass
 * starts the job. */
#include "orchestration/policy/policy_world.h"

#include "base/random.h"
#include "orchestration/policy/policy_stream.h"

/* The change of that kind; fails when why does not offer it. */
static uint64_t offered(const ls_why *answer, ls_change_kind kind)
{
    for (uint32_t i = 0; i < answer->change_count; i++) {
        if (answer->changes[i].kind == kind) {
            return answer->changes[i].value;
        }
    }
    fail_msg("no '%s' among %u changes of stage %s", ls_change_name(kind), answer->change_count,
             ls_why_stage_name(answer->stage));
    return 0;
}

static void apply_and_start(world *w, uint64_t job, ls_change_kind kind)
{
    const ls_why answer = why(w, job);
    assert_int_equal(ls_policy_change(w->policy, w->now, job, kind, offered(&answer, kind)), LS_OK);
    pass(w);
    assert_true(starts(w, job));
}

/* 16 devices on two nodes; 5 run on one: 11 are free. */
static void open_with_eleven_free(world *w)
{
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(w, 2, 8, 0, &s);
    ls_policy_job job = a_job(1, 5);
    job.expected_ms = 3 * (uint64_t)HOUR;
    submit(w, job);
    pass(w);
}

static void why_says_with_how_many_ranks_it_starts(void **state)
{
    (void)state;
    world w;
    open_with_eleven_free(&w);
    submit(&w, a_job(2, 14));
    pass(&w);
    const ls_why answer = why(&w, 2);
    assert_int_equal(answer.stage, LS_WHY_GANG);
    assert_int_equal(answer.needed, 14);
    assert_int_equal(answer.available, 11);
    assert_int_equal(answer.free_most[LS_LEVEL_NODE], 8);
    assert_int_equal(answer.blocker_count, 1);
    assert_int_equal(answer.blockers[0].job, 1);
    assert_int_equal(answer.blockers[0].ends_ms, 1000 + 3 * (uint64_t)HOUR);
    assert_int_equal(answer.eta_ms, answer.blockers[0].ends_ms);
    assert_true(answer.eta_is_reserved);
    assert_int_equal(offered(&answer, LS_CHANGE_RANKS), 11);
    apply_and_start(&w, 2, LS_CHANGE_RANKS);
    world_close(&w);
}

static void why_says_at_which_level_it_starts(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 4, 8, 2, &s);
    ls_policy_job job = a_job(1, 5);
    submit(&w, job);
    job = a_job(2, 5);
    job.devices_per_node = 5;
    submit(&w, job);
    pass(&w);                 /* 3 and 3 free in leaf 0 */
    submit(&w, a_job(3, 12)); /* and 4 in leaf 1 */
    pass(&w);
    job = a_job(4, 8);
    job.required = LS_LEVEL_LEAF;
    submit(&w, job);
    pass(&w);
    const ls_why answer = why(&w, 4);
    assert_int_equal(answer.stage, LS_WHY_PLACEMENT);
    assert_int_equal(answer.available, 6);
    assert_int_equal(offered(&answer, LS_CHANGE_REQUIRED), LS_LEVEL_SPINE);
    assert_int_equal(offered(&answer, LS_CHANGE_RANKS), 6);
    apply_and_start(&w, 4, LS_CHANGE_REQUIRED);
    world_close(&w);
}

static void why_says_with_what_limit_it_starts(void **state)
{
    (void)state;
    world w;
    open_with_eleven_free(&w);
    ls_policy_job job = a_job(2, 16);
    job.priority = 2;
    submit(&w, job);
    submit(&w, a_job(3, 2));
    pass(&w);
    assert_int_equal(w.count, 0);
    const ls_why answer = why(&w, 3);
    assert_int_equal(answer.stage, LS_WHY_RESERVATION);
    assert_int_equal(answer.blockers[0].job, 2);
    assert_int_equal(offered(&answer, LS_CHANGE_LIMIT), 3 * (uint64_t)HOUR);
    apply_and_start(&w, 3, LS_CHANGE_LIMIT);
    world_close(&w);
}

static void why_says_that_priority_would_do(void **state)
{
    (void)state;
    world w;
    open_with_eleven_free(&w);
    submit(&w, a_job(2, 16));
    ls_policy_job job = a_job(3, 2);
    job.priority = 0;
    submit(&w, job);
    pass(&w);
    apply_and_start(&w, 3, LS_CHANGE_PRIORITY);
    world_close(&w);
}

static void why_says_what_holds_it(void **state)
{
    (void)state;
    world w;
    open_with_eleven_free(&w);
    ls_policy_job job = a_job(2, 2);
    job.held = true;
    submit(&w, job);
    job = a_job(3, 2);
    job.begin_ms = w.now + HOUR;
    submit(&w, job);
    for (uint64_t id = 4; id <= 5; id++) {
        job = a_job(id, 2);
        job.group = 9;
        job.group_running_max = 1;
        submit(&w, job);
    }
    pass(&w);
    apply_and_start(&w, 2, LS_CHANGE_HELD);
    apply_and_start(&w, 3, LS_CHANGE_BEGIN);
    apply_and_start(&w, 5, LS_CHANGE_GROUP);
    world_close(&w);
}

static void why_says_what_its_account_lacks(void **state)
{
    (void)state;
    world w;
    open_with_eleven_free(&w);
    ls_policy_account account = ls_policy_account_default();
    account.quota[0] = (ls_quota){.nominal = 6, .borrow_max = 2, .lend_max = 0};
    assert_int_equal(ls_policy_account_set(w.policy, w.now, 1, &account), LS_OK);
    for (uint64_t id = 2; id <= 3; id++) {
        ls_policy_job job = a_job(id, 5);
        job.account = 1;
        submit(&w, job);
    }
    pass(&w);
    assert_true(starts(&w, 2));
    const ls_why answer = why(&w, 3);
    assert_int_equal(answer.stage, LS_WHY_QUOTA);
    assert_int_equal(answer.needed, 5);
    assert_int_equal(answer.available, 3);
    assert_int_equal(answer.blockers[0].job, 2);
    assert_int_equal(offered(&answer, LS_CHANGE_QUOTA), 2);
    assert_int_equal(offered(&answer, LS_CHANGE_RANKS), 3);
    account.quota[0].nominal += 2;
    assert_int_equal(ls_policy_account_set(w.policy, w.now, 1, &account), LS_OK);
    pass(&w);
    assert_true(starts(&w, 3));
    world_close(&w);
}

static void why_says_that_another_node_would_do(void **state)
{
    (void)state;
    world w = {0};
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open_kinds(&w, &s);
    ls_policy_job job = a_job(1, 4);
    job.kind = 0;
    submit(&w, job);
    job.id = 2;
    job.ranks = job.min_ranks = job.max_ranks = 8;
    submit(&w, job);
    pass(&w);
    const ls_why answer = why(&w, 2);
    assert_int_equal(answer.stage, LS_WHY_GANG);
    assert_int_equal(answer.available, 4);
    offered(&answer, LS_CHANGE_SPOT);
    offered(&answer, LS_CHANGE_RANKS);
    assert_int_equal(answer.changes[0].kind, LS_CHANGE_KIND);
    apply_and_start(&w, 2, LS_CHANGE_KIND);
    world_close(&w);
}

static void why_knows_what_can_never_run(void **state)
{
    (void)state;
    world w;
    open_with_eleven_free(&w);
    ls_policy_job job = a_job(2, 8);
    job.account = 1;
    submit(&w, job);
    ls_policy_account account = ls_policy_account_default();
    account.quota[0] = (ls_quota){.nominal = 4, .borrow_max = 0, .lend_max = 0};
    assert_int_equal(ls_policy_account_set(w.policy, w.now, 1, &account), LS_OK);
    pass(&w);
    assert_int_equal(why(&w, 2).stage, LS_WHY_IMPOSSIBLE);
    ls_why answer;
    assert_int_equal(ls_policy_why(w.policy, w.now, 77, &answer), LS_ERR_NOT_FOUND);
    world_close(&w);
}

/* ---- of random states, every counterfactual ---- */

typedef struct promise {
    uint64_t job, value;
    ls_change_kind kind;
} promise;

/* Runs a stream, asks for all that wait; the promise number `want` is kept: returns how many there
 * are. */
static uint32_t keep_promise(const uint8_t *bytes, size_t count, uint32_t want)
{
    static stream s;
    uint32_t seen = 0;
    promise p = {0};
    stream_open(&s, bytes, count, false);
    while (s.at < s.count) {
        stream_step(&s);
    }
    for (int i = 0; i < STREAM_JOBS;
         i++) { /* told to stop or to change: done, so that nothing is under way */
        if (s.jobs[i].here) {
            stream_report(&s, &s.jobs[i]);
        }
    }
    for (uint32_t before = UINT32_MAX;
         before != s.starts + s.stops + s.resizes;) { /* until a pass does nothing more */
        before = s.starts + s.stops + s.resizes;
        stream_pass(&s);
    }
    for (int i = 0; i < STREAM_JOBS; i++) {
        ls_why answer;
        if (!s.jobs[i].here || s.jobs[i].running ||
            ls_policy_why(s.policy, s.now, s.jobs[i].spec.id, &answer) != LS_OK) {
            continue;
        }
        for (uint32_t k = 0; k < answer.change_count; k++) {
            if (answer.changes[k].kind != LS_CHANGE_QUOTA && seen++ == want) {
                p = (promise){.job = s.jobs[i].spec.id,
                              .kind = answer.changes[k].kind,
                              .value = answer.changes[k].value};
            }
        }
    }
    if (p.job) {
        const ls_action *actions = NULL;
        uint32_t actions_count = 0;
        bool started = false;
        assert_int_equal(ls_policy_change(s.policy, s.now, p.job, p.kind, p.value), LS_OK);
        ls_policy_pass(s.policy, s.now, &actions, &actions_count);
        for (uint32_t i = 0; i < actions_count; i++) {
            /* or its devices are being freed: with fewer it could have started, it gets all it
             * wants */
            started = started || actions[i].for_job == p.job ||
                      (actions[i].kind == LS_ACTION_START && actions[i].job == p.job);
        }
        if (!started) {
            fail_msg("job %u with %s = %u was to start and did not", (unsigned)p.job, ls_change_name(p.kind),
                     (unsigned)p.value);
        }
        stream_check(&s);
    }
    ls_policy_destroy(s.policy);
    return seen;
}

static void what_why_promises_the_next_pass_does(void **state)
{
    (void)state;
    enum { WORLDS = 150, BYTES = 1500 };
    static uint8_t bytes[BYTES];
    uint32_t kept = 0;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        const ls_random_key key = ls_random_stream(seed + 5000, LS_RANDOM_TEST);
        for (uint64_t i = 0; i < BYTES; i++) {
            bytes[i] = (uint8_t)ls_random_u64(key, i, 0);
        }
        const uint32_t count = keep_promise(bytes, BYTES, UINT32_MAX);
        for (uint32_t i = 0; i < count && i < 12; i++) {
            keep_promise(bytes, BYTES, i);
            kept++;
        }
    }
    print_message("%u counterfactuals came true\n", kept);
    assert_true(kept > WORLDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(why_says_with_how_many_ranks_it_starts),
        cmocka_unit_test(why_says_at_which_level_it_starts),
        cmocka_unit_test(why_says_with_what_limit_it_starts),
        cmocka_unit_test(why_says_that_priority_would_do),
        cmocka_unit_test(why_says_what_holds_it),
        cmocka_unit_test(why_says_what_its_account_lacks),
        cmocka_unit_test(why_says_that_another_node_would_do),
        cmocka_unit_test(why_knows_what_can_never_run),
        cmocka_unit_test(what_why_promises_the_next_pass_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
