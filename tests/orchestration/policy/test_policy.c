// SPDX-License-Identifier: Apache-2.0
/* The order of waiting jobs, gates, limits, backfill: cases worked by hand. Nodes have 8 devices,
 * leaves 2 nodes, spines 2 leaves. */
#include "orchestration/policy/policy_world.h"

/* ---- order ---- */

static void order_fifo_stops_at_who_does_not_fit(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO);
    world_open(&w, 1, 8, 0, &s);
    submit(&w, a_job(1, 6));
    submit(&w, a_job(2, 4));
    submit(&w, a_job(3, 1));
    pass(&w);
    assert_true(starts(&w, 1));
    assert_int_equal(w.count, 1);
    assert_int_equal(why(&w, 2).stage, LS_WHY_GANG);
    assert_int_equal(why(&w, 3).stage, LS_WHY_PRIORITY);
    assert_int_equal(why(&w, 3).blockers[0].job, 2);
    world_close(&w);
}

static void order_fifo_skip_goes_on(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 1, 8, 0, &s);
    submit(&w, a_job(1, 6));
    submit(&w, a_job(2, 4));
    submit(&w, a_job(3, 1));
    pass(&w);
    assert_true(starts(&w, 1) && starts(&w, 3) && !starts(&w, 2));
    world_close(&w);
}

static void order_sjf_takes_the_shortest(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_SJF_ORACLE);
    world_open(&w, 1, 8, 0, &s);
    const uint64_t lengths[] = {9, 3, 5};
    for (uint64_t i = 0; i < 3; i++) {
        ls_policy_job job = a_job(i + 1, 8);
        job.expected_ms = lengths[i] * HOUR;
        submit(&w, job);
    }
    pass(&w);
    assert_true(starts(&w, 2));
    end(&w, 2);
    pass(&w);
    assert_true(starts(&w, 3));
    world_close(&w);
}

static void order_las_takes_who_had_least(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = plain_settings(LS_ORDER_LAS);
    s.las_thresholds_device_ms[0] = 8 * (uint64_t)HOUR;
    s.age_max_ms = 100 * (uint64_t)HOUR;
    world_open(&w, 1, 8, 0, &s);
    submit(&w, a_job(1, 8));
    pass(&w);
    w.now += 2 * HOUR; /* 16 device-hours: the later queue */
    assert_int_equal(ls_policy_requeued(w.policy, w.now, 1), LS_OK);
    submit(&w, a_job(2, 8));
    pass(&w);
    assert_true(starts(&w, 2));
    /* a job that has waited for age_max_ms counts as new again, and is older */
    submit(&w, a_job(3, 8));
    w.now += s.age_max_ms;
    end(&w, 2);
    pass(&w);
    assert_true(starts(&w, 1));
    world_close(&w);
}

static void order_fair_sums_its_factors(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    s.weight_priority = 1000;
    s.weight_fair = 100;
    s.weight_age = 10;
    s.weight_size = 1;
    s.age_max_ms = 100 * MINUTE;
    world_open(&w, 1, 8, 0, &s);
    ls_policy_job job = a_job(1, 8);
    submit(&w, job);
    job = a_job(2, 4);
    job.priority = 2;
    submit(&w, job);
    job = a_job(3, 8);
    job.held = true;
    submit(&w, job);
    w.now += 25 * MINUTE;
    const ls_why one = why(&w, 1), two = why(&w, 2);
    assert_int_equal(one.factors[0], 1000 * 32768);
    assert_int_equal(one.factors[1], 100 * 65536); /* nothing used yet */
    assert_int_equal(one.factors[2], 10 * 16384);  /* a quarter of the age */
    assert_int_equal(one.factors[3], 0);           /* all of the cluster */
    assert_int_equal(two.factors[0], 1000 * 65536);
    /* log2(8 / 4) of log2(8), and less by a quarter of the age */
    assert_int_equal(two.factors[3], 65536 / 3 * 3 / 4);
    pass(&w);
    assert_true(starts(&w, 2) && !starts(&w, 1));
    assert_int_equal(why(&w, 1).rank, 1);
    assert_int_equal(why(&w, 3).rank, 0); /* held */
    assert_int_equal(why(&w, 3).pending, 1);
    world_close(&w);
}

/* Account 0 had the whole cluster for one half-life, account 1 nothing: the same jobs of 1 go
 * first. Half-lives later 0 has nearly caught up. */
static void order_fair_halves_what_was_used(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    s.half_life_ms = 256 * (uint64_t)MINUTE;
    world_open(&w, 1, 8, 0, &s);
    submit(&w, a_job(1, 8));
    pass(&w);
    w.now += s.half_life_ms;
    end(&w, 1);
    ls_policy_usage usage;
    assert_int_equal(ls_policy_usage_get(w.policy, w.now, 0, &usage), LS_OK);
    /* 2^20 x (integral of 2^-(t/H)) = 2^20 x H x 0.5 / ln 2 = 0.7213 x 2^20 x H, and the first of
     * 256 steps counts in full. */
    const uint64_t expected = (uint64_t)(1 << 20) * s.half_life_ms / 10000 * 7213;
    assert_in_range(usage.share_ms[0], expected - expected / 200, expected + expected / 200);
    const uint64_t before = usage.share_ms[0];
    w.now += s.half_life_ms;
    assert_int_equal(ls_policy_usage_get(w.policy, w.now, 0, &usage), LS_OK);
    assert_in_range(usage.share_ms[0], before / 2 - before / 1000000, before / 2 + before / 1000000);
    submit(&w, a_job(2, 8));
    ls_policy_job other = a_job(3, 8);
    other.account = 1;
    submit(&w, other);
    pass(&w);
    assert_true(starts(&w, 3));
    world_close(&w);
}

/* A job with as little slack as run time left goes before an older one. */
static void order_deadline_raises(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 1, 8, 0, &s);
    submit(&w, a_job(1, 8));
    ls_policy_job job = a_job(2, 8);
    w.now += MINUTE;
    job.expected_ms = HOUR;
    job.deadline_ms = w.now + HOUR + 10 * MINUTE;
    submit(&w, job);
    w.now += 9 * MINUTE;
    pass(&w);
    assert_true(starts(&w, 2));
    world_close(&w);
}

/* ---- gates ---- */

static void gate_holds_dependencies_begin_and_groups(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 1, 8, 0, &s);
    ls_policy_job job = a_job(1, 1);
    job.held = true;
    submit(&w, job);
    const uint64_t after[] = {1};
    job = a_job(2, 1);
    job.after = after;
    job.after_count = 1;
    submit(&w, job);
    job = a_job(3, 1);
    job.begin_ms = w.now + HOUR;
    submit(&w, job);
    for (uint64_t id = 4; id <= 6; id++) {
        job = a_job(id, 1);
        job.group = 7;
        job.group_running_max = 2;
        submit(&w, job);
    }
    pass(&w);
    assert_int_equal(w.count, 2);
    assert_true(starts(&w, 4) && starts(&w, 5));
    assert_int_equal(why(&w, 1).stage, LS_WHY_HOLD);
    assert_int_equal(why(&w, 2).stage, LS_WHY_DEPENDENCY);
    assert_int_equal(why(&w, 2).blockers[0].job, 1);
    assert_int_equal(why(&w, 3).stage, LS_WHY_BEGIN);
    assert_int_equal(why(&w, 3).eta_ms, w.now + HOUR);
    assert_int_equal(why(&w, 6).stage, LS_WHY_GROUP);
    assert_int_equal(why(&w, 6).blocker_count, 2);
    assert_int_equal(ls_policy_next_ms(w.policy, w.now), w.now + HOUR);
    assert_int_equal(ls_policy_hold(w.policy, w.now, 1, false), LS_OK);
    end(&w, 4);
    w.now += HOUR;
    pass(&w);
    assert_true(starts(&w, 1) && starts(&w, 3) && starts(&w, 6));
    end(&w, 1);
    pass(&w);
    assert_true(starts(&w, 2));
    world_close(&w);
}

static void gate_failed_dependency_cannot_start(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 1, 8, 0, &s);
    const uint64_t after[] = {1};
    submit(&w, a_job(1, 1));
    for (uint64_t id = 2; id <= 3; id++) {
        ls_policy_job job = a_job(id, 1);
        job.after = after;
        job.after_count = 1;
        job.after_any = id == 3;
        submit(&w, job);
    }
    pass(&w);
    assert_int_equal(ls_policy_ended(w.policy, w.now, 1, false), LS_OK);
    pass(&w);
    assert_non_null(find_action(&w, LS_ACTION_CANNOT, 2));
    assert_true(starts(&w, 3));
    assert_int_equal(ls_policy_ended(w.policy, w.now, 2, false), LS_ERR_NOT_FOUND);
    world_close(&w);
}

static void limit_ends_a_job_once(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 1, 8, 0, &s);
    ls_policy_job job = a_job(1, 1);
    job.limit_ms = HOUR;
    submit(&w, job);
    pass(&w);
    w.now += MINUTE;
    assert_int_equal(ls_policy_started(w.policy, w.now, 1), LS_OK); /* counts from here */
    assert_int_equal(ls_policy_next_ms(w.policy, w.now), w.now + HOUR);
    w.now += HOUR - 1;
    pass(&w);
    assert_int_equal(w.count, 0);
    w.now += 1;
    pass(&w);
    assert_int_equal(w.count, 1);
    assert_non_null(find_action(&w, LS_ACTION_END, 1));
    pass(&w);
    assert_int_equal(w.count, 0);
    world_close(&w);
}

/* ---- reservations ---- */

/* 8 devices: 1 has 6 until 10 h. 2 wants 8: reserved for 10 h. 3 wants 2 for 9 h: is gone by then.
 * 4 wants 2 for 11 h: would delay 2. */
static void backfill_never_delays_the_reserved(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_EASY);
    world_open(&w, 1, 8, 0, &s);
    const struct {
        uint32_t ranks, hours;
    } jobs[] = {{6, 10}, {8, 5}, {2, 11}, {2, 9}};
    for (uint64_t i = 0; i < 4; i++) {
        ls_policy_job job = a_job(i + 1, jobs[i].ranks);
        job.expected_ms = (uint64_t)jobs[i].hours * HOUR;
        submit(&w, job);
    }
    pass(&w);
    assert_true(starts(&w, 1) && starts(&w, 4));
    assert_int_equal(w.count, 2);
    ls_policy_reservation r;
    assert_int_equal(ls_policy_reservations(w.policy, &r, 1), 1);
    assert_int_equal(r.job, 2);
    assert_int_equal(r.starts_ms, w.now + 10 * (uint64_t)HOUR);
    const ls_why two = why(&w, 2), three = why(&w, 3);
    assert_int_equal(two.stage, LS_WHY_GANG);
    assert_true(two.eta_is_reserved);
    assert_int_equal(two.eta_ms, r.starts_ms);
    assert_int_equal(three.stage, LS_WHY_GANG); /* 4 has taken the two */
    world_close(&w);
}

/* A job that should have ended at 10 h goes on running: the job that waits for it starts when it
 * ends, and until then no pass is due. */
static void overdue_ends_do_not_call_for_passes(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_EASY);
    world_open(&w, 1, 8, 0, &s);
    for (uint64_t id = 1; id <= 2; id++) {
        ls_policy_job job = a_job(id, 8);
        job.expected_ms = 10 * (uint64_t)HOUR;
        submit(&w, job);
    }
    pass(&w);
    const uint64_t end_ms = w.now + 10 * (uint64_t)HOUR;
    assert_int_equal(ls_policy_next_ms(w.policy, w.now), end_ms);
    w.now = end_ms + MINUTE;
    pass(&w);
    assert_true(why(&w, 2).eta_is_reserved);
    assert_int_equal(ls_policy_next_ms(w.policy, w.now), UINT64_MAX);
    world_close(&w);
}

/* Two nodes; the head needs all of node-level 8, so that only one node is kept for it and long jobs
 * may use what the other has free. */
static void reservation_keeps_places_not_counts(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_EASY);
    world_open(&w, 2, 8, 0, &s);
    const struct {
        uint32_t ranks, hours;
    } jobs[] = {{7, 10}, {7, 20}, {8, 5}, {1, 100}, {1, 100}};
    for (uint64_t i = 0; i < 5; i++) {
        ls_policy_job job = a_job(i + 1, jobs[i].ranks);
        job.expected_ms = (uint64_t)jobs[i].hours * HOUR;
        job.required = LS_LEVEL_NODE;
        submit(&w, job);
    }
    pass(&w);
    assert_true(starts(&w, 1) && starts(&w, 2) && starts(&w, 4) && !starts(&w, 5));
    assert_int_equal(find_action(&w, LS_ACTION_START, 4)->shares[0].node,
                     find_action(&w, LS_ACTION_START, 2)->shares[0].node);
    assert_int_equal(why(&w, 5).stage, LS_WHY_RESERVATION);
    assert_int_equal(why(&w, 5).blockers[0].job, 3);
    world_close(&w);
}

/* No end is known, and there is no end of small jobs that come first: after patience_ms devices are
 * kept for the large job as they become free. */
static void large_job_without_predictions_is_not_starved(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    s.patience_ms = HOUR;
    s.weight_size = 0;
    s.weight_age = 1;
    world_open(&w, 1, 8, 0, &s);
    uint64_t running[64], next = 2;
    uint32_t count = 0;
    submit(&w, a_job(1, 7));
    pass(&w);
    submit(&w, a_job(1000, 8));
    running[count++] = 1;
    bool started = false;
    int turns = 0;
    for (; turns < 30 && !started; turns++) {
        w.now += 10 * MINUTE;
        submit(&w, a_job(next++, 1));
        submit(&w, a_job(next++, 1));
        pass(&w);
        for (uint32_t i = 0; i < w.count; i++) {
            started = started || w.actions[i].job == 1000;
            running[count++] = w.actions[i].job;
        }
        end(&w, running[--count]);
        if (count == 0 && !started) {
            pass(&w);
            started = starts(&w, 1000);
            running[count++] = started ? 1000 : w.actions[0].job;
        }
    }
    assert_true(started);
    assert_in_range(turns, 6, 9); /* an hour, and those that ran */
    world_close(&w);
}

/* ---- refusals ---- */

static void submit_refuses_what_can_never_run(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 2, 8, 1, &s);
    ls_policy_job job = a_job(1, 17);
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "needs 17 devices, and there are only 16 that it may use"));
    job = a_job(1, 9);
    job.required = LS_LEVEL_NODE;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(), "this job can never run here: it needs 9 devices in one node, and "
                                         "the largest has only 8 that it may use");
    job = a_job(1, 1);
    job.cpus_per_rank = 1 << 10;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(),
                        "this job can never run here: it needs 1 device with 1024 cores, and there "
                        "are only 0 that it may use");
    ls_policy_account poor = ls_policy_account_default();
    poor.quota[LS_RESOURCE_DEVICES] = (ls_quota){.nominal = 2};
    assert_int_equal(ls_policy_account_set(w.policy, w.now, 1, &poor), LS_OK);
    job = a_job(1, 3);
    job.account = 1;
    job.memory_mib_per_rank = 64;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    assert_string_equal(
        ls_error_text(),
        "this job can never run here: it needs 3 devices with 64 MiB each, and its account can "
        "use at most 2, including what it may borrow from other accounts");
    job = a_job(1, 4);
    job.kind = 3;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    job = a_job(1, 4);
    job.cpus_per_rank = 65;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    job = a_job(1, 4);
    job.min_ranks = 5;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    job = a_job(0, 4);
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    ls_policy_account account = ls_policy_account_default();
    account.quota[0] = (ls_quota){.nominal = 4, .borrow_max = 2, .lend_max = 0};
    assert_int_equal(ls_policy_account_set(w.policy, w.now, 2, &account), LS_OK);
    job = a_job(1, 7);
    job.account = 2;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "its account can use at most 6"));
    assert_int_equal(ls_policy_count(w.policy).pending, 0);
    job = a_job(1, 11);
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "other accounts keep 6 of all 16 devices for themselves"));
    submit(&w, a_job(1, 10));
    job = a_job(1, 1);
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    world_close(&w);
}

static void restore_brings_running_jobs_back(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 2, 8, 0, &s);
    const ls_share shares[] = {{.node = 1, .devices = 0x0f}};
    const ls_policy_running running = {.shares = shares, .share_count = 1, .ranks = 4, .started_ms = 500};
    const ls_policy_job one = a_job(1, 4), two = a_job(2, 4);
    assert_int_equal(ls_policy_restore_running(w.policy, w.now, &one, &running), LS_OK);
    /* taken */
    assert_int_equal(ls_policy_restore_running(w.policy, w.now, &two, &running), LS_ERR_INVALID);
    check(&w);
    assert_int_equal(ls_policy_count(w.policy).devices_free, 12);
    submit(&w, a_job(3, 4));
    pass(&w);
    assert_int_equal(find_action(&w, LS_ACTION_START, 3)->shares[0].devices, 0xf0);
    end(&w, 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_fifo_stops_at_who_does_not_fit),
        cmocka_unit_test(order_fifo_skip_goes_on),
        cmocka_unit_test(order_sjf_takes_the_shortest),
        cmocka_unit_test(order_las_takes_who_had_least),
        cmocka_unit_test(order_fair_sums_its_factors),
        cmocka_unit_test(order_fair_halves_what_was_used),
        cmocka_unit_test(order_deadline_raises),
        cmocka_unit_test(gate_holds_dependencies_begin_and_groups),
        cmocka_unit_test(gate_failed_dependency_cannot_start),
        cmocka_unit_test(limit_ends_a_job_once),
        cmocka_unit_test(backfill_never_delays_the_reserved),
        cmocka_unit_test(overdue_ends_do_not_call_for_passes),
        cmocka_unit_test(reservation_keeps_places_not_counts),
        cmocka_unit_test(large_job_without_predictions_is_not_starved),
        cmocka_unit_test(submit_refuses_what_can_never_run),
        cmocka_unit_test(restore_brings_running_jobs_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
