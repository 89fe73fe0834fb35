// SPDX-License-Identifier: Apache-2.0
/* Quotas, preemption, elastic jobs: hand-worked cases, and the cheapest victims against all
 * subsets. */
#include "orchestration/policy/policy_world.h"

static ls_policy_settings with_preemption(void)
{
    ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    s.preempt = true;
    s.restart_cost_ms = MINUTE;
    s.las_thresholds_device_ms[0] = 0; /* only priorities and quotas count */
    return s;
}

static ls_policy_job with_priority(uint64_t id, uint32_t ranks, uint8_t priority)
{
    ls_policy_job job = a_job(id, ranks);
    job.priority = priority;
    return job;
}

static ls_policy_job elastic(uint64_t id, uint32_t min, uint32_t ranks, uint32_t max)
{
    ls_policy_job job = a_job(id, ranks);
    job.min_ranks = min;
    job.max_ranks = max;
    return job;
}

static void requeue(world *w, uint64_t job)
{
    assert_int_equal(ls_policy_requeued(w->policy, w->now, job), LS_OK);
    check(w);
}

static void set_quota(world *w, uint32_t account, uint64_t nominal, uint64_t borrow, uint64_t lend)
{
    ls_policy_account a = ls_policy_account_default();
    a.quota[0] = (ls_quota){.nominal = nominal, .borrow_max = borrow, .lend_max = lend};
    assert_int_equal(ls_policy_account_set(w->policy, w->now, account, &a), LS_OK);
}

static ls_policy_job of_account(uint64_t id, uint32_t ranks, uint32_t account)
{
    ls_policy_job job = a_job(id, ranks);
    job.account = account;
    return job;
}

/* ---- preemption ---- */

/* 1 and 2 have 4 each; 1 saved a minute ago, 2 never: stopping 1 loses (1 + 1) x 4, stopping 2 (30
 * + 1) x 4 device-minutes. */
static void victim_is_who_loses_least(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 1, 8, 0, &s);
    submit(&w, with_priority(1, 4, 0));
    submit(&w, with_priority(2, 4, 0));
    pass(&w);
    w.now += 29 * MINUTE;
    assert_int_equal(ls_policy_checkpointed(w.policy, w.now, 1), LS_OK);
    w.now += MINUTE;
    submit(&w, with_priority(3, 4, 1));
    pass(&w);
    assert_int_equal(w.count, 1);
    assert_int_equal(w.actions[0].kind, LS_ACTION_PREEMPT);
    assert_int_equal(w.actions[0].job, 1);
    assert_int_equal(w.actions[0].for_job, 3);
    assert_int_equal(why(&w, 3).stage, LS_WHY_STARTING);
    assert_int_equal(why(&w, 3).blockers[0].job, 1);
    pass(&w);
    assert_int_equal(w.count, 0); /* it is told once, and 3 waits for it */
    submit(&w, with_priority(4, 4, 2));
    requeue(&w, 1);
    pass(&w);
    assert_true(starts(&w, 3)); /* what was freed for 3 is 3's, whoever came in between .. */
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 2)); /* .. who gets his from the other */
    world_close(&w);
}

static void victims_are_guarded(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = with_preemption();
    s.min_run_ms = 10 * MINUTE;
    s.preemptions_max = 1;
    s.preemption_window_ms = 10 * (uint64_t)HOUR;
    world_open(&w, 1, 8, 0, &s);
    submit(&w, with_priority(1, 8, 0));
    pass(&w);
    w.now += 9 * MINUTE;
    submit(&w, with_priority(2, 8, 1));
    pass(&w);
    assert_int_equal(w.count, 0);
    assert_int_equal(ls_policy_next_ms(w.policy, w.now), w.now + MINUTE); /* then it may */
    w.now += MINUTE;
    pass(&w);
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 1));
    requeue(&w, 1);
    pass(&w);
    assert_true(starts(&w, 2));
    end(&w, 2);
    pass(&w);
    w.now += HOUR;
    submit(&w, with_priority(3, 8, 1));
    pass(&w);
    assert_int_equal(w.count, 0); /* once within the window */
    w.now += 10 * (uint64_t)HOUR;
    pass(&w);
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 1));
    world_close(&w);
}

/* High waits for low: low does not save, has only just started, was stopped too often; then it is
 * stopped. */
static void why_names_what_keeps_a_lower_job(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = with_preemption();
    s.min_run_ms = 10 * MINUTE;
    s.preemptions_max = 1;
    s.preemption_window_ms = HOUR;
    for (int i = 0; i < 2; i++) {
        world_open(&w, 1, 8, 0, &s);
        ls_policy_job low = with_priority(1, 8, 0);
        low.preemptible = i > 0;
        submit(&w, low);
        pass(&w);
        submit(&w, with_priority(2, 8, 2));
        pass(&w);
        assert_int_equal(why(&w, 2).stage, LS_WHY_GANG);
        assert_int_equal(why(&w, 2).blockers[0].job, 1);
        assert_int_equal(why(&w, 2).blockers[0].kept, i == 0 ? LS_KEPT_UNSAVED : LS_KEPT_YOUNG);
        w.now += 10 * MINUTE;
        pass(&w);
        assert_int_equal(w.count, i);
        if (i == 0) {
            world_close(&w);
        }
    }
    requeue(&w, 1);
    pass(&w);
    end(&w, 2);
    pass(&w);
    submit(&w, with_priority(3, 8, 2));
    w.now += 20 * MINUTE;
    pass(&w);
    assert_int_equal(why(&w, 3).blockers[0].kept, LS_KEPT_OFTEN);
    submit(&w, with_priority(4, 8, 0));
    pass(&w);
    assert_int_equal(why(&w, 4).blockers[0].kept, LS_KEPT_NOT); /* its equal */
    world_close(&w);
}

/* 8 devices: a gang of 4 and four of 1, all the same since their start. One device is wanted: of
 * the small ones, not of the gang, whoever is younger. */
static void gangs_are_not_stopped_for_one_device(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 1, 8, 0, &s);
    for (uint64_t id = 1; id <= 5; id++) {
        submit(&w, with_priority(id, id == 5 ? 4 : 1, 0));
    }
    pass(&w);
    w.now += HOUR;
    submit(&w, with_priority(6, 1, 1));
    pass(&w);
    assert_int_equal(w.count, 1);
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 4));
    world_close(&w);
}

static void nobody_is_stopped_when_it_would_not_be_enough(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 2, 8, 0, &s);
    submit(&w, with_priority(1, 4, 0));
    submit(&w, with_priority(2, 8, 1));
    pass(&w);
    w.now += HOUR;
    ls_policy_job job = with_priority(3, 16, 1);
    submit(&w, job);
    pass(&w);
    assert_int_equal(w.count, 0); /* 4 free and 4 of 1 are not 16 */
    world_close(&w);
}

/* 8 must be on one node. On node 0 three jobs of low priority, on node 1 one that costs more than
 * each of them, but less than all three. */
static void victims_are_of_one_place(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 2, 8, 0, &s);
    submit(&w, with_priority(1, 3, 0));
    submit(&w, with_priority(2, 3, 0));
    submit(&w, with_priority(3, 2, 0));
    submit(&w, with_priority(4, 8, 0));
    pass(&w);
    w.now += 10 * MINUTE;
    assert_int_equal(ls_policy_checkpointed(w.policy, w.now, 1), LS_OK);
    assert_int_equal(ls_policy_checkpointed(w.policy, w.now, 4), LS_OK);
    w.now += MINUTE; /* 1: 2 x 3, 2: 12 x 3, 3: 12 x 2, 4: 2 x 8 device-minutes */
    ls_policy_job job = with_priority(5, 8, 2);
    job.required = LS_LEVEL_NODE;
    submit(&w, job);
    pass(&w);
    assert_int_equal(w.count, 1);
    assert_int_equal(w.actions[0].job, 4);
    world_close(&w);
}

static void tiers_shrink_then_requeue_then_end(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = with_preemption();
    s.elastic = true;
    world_open(&w, 2, 8, 0, &s);
    ls_policy_job job = elastic(1, 2, 6, 6);
    job.priority = 0;
    submit(&w, job);
    job = with_priority(2, 4, 0);
    job.spot = true; /* goes before 1 */
    submit(&w, job);
    job = with_priority(3, 6, 0);
    job.preemptible = false;
    job.spot = true;
    submit(&w, job);
    pass(&w);
    assert_int_equal(w.count, 3);
    w.now += HOUR;
    submit(&w, with_priority(4, 3, 1));
    pass(&w);
    assert_int_equal(w.count, 1);
    assert_int_equal(w.actions[0].kind, LS_ACTION_SHRINK);
    assert_int_equal(w.actions[0].job, 1);
    assert_int_equal(w.actions[0].ranks, 3); /* gives 3, not all the 4 it could */
    assert_int_equal(ls_policy_resized(w.policy, w.now, 1), LS_OK);
    pass(&w);
    assert_true(starts(&w, 4));
    submit(&w, with_priority(5, 4, 1));
    pass(&w); /* 1 can give one more: 2 has to go */
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 2));
    assert_null(find_action(&w, LS_ACTION_SHRINK, 1)); /* which was enough alone */
    requeue(&w, 2);
    pass(&w);
    submit(&w, with_priority(6, 9, 1));
    pass(&w); /* all that is left: 1 and the one that can't save */
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 1));
    assert_non_null(find_action(&w, LS_ACTION_END, 3));
    world_close(&w);
}

/* Jobs that can't save are not ended for a higher priority unless they said they could live with
 * it. */
static void who_cannot_save_is_left_alone(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 1, 8, 0, &s);
    ls_policy_job job = with_priority(1, 8, 0);
    job.preemptible = false;
    submit(&w, job);
    pass(&w);
    w.now += HOUR;
    submit(&w, with_priority(2, 8, 2));
    pass(&w);
    assert_int_equal(w.count, 0);
    world_close(&w);
}

static void claim_that_is_cancelled_frees_what_it_had(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 1, 8, 0, &s);
    submit(&w, with_priority(1, 4, 0));
    pass(&w);
    w.now += HOUR;
    submit(&w, with_priority(2, 8, 1));
    pass(&w);
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 1));
    submit(&w, with_priority(3, 4, 0));
    pass(&w);
    assert_int_equal(w.count, 0); /* the free four are 2's */
    end(&w, 2);
    pass(&w);
    assert_true(starts(&w, 3));
    requeue(&w, 1);
    pass(&w);
    assert_true(starts(&w, 1));
    world_close(&w);
}

/* Every set of victims that would do, against the one that is chosen, for jobs of 1 to 4 devices on
 * two nodes. */
static void victims_cost_no_more_than_the_cheapest_set(void **state)
{
    (void)state;
    uint64_t chosen_sum = 0, best_sum = 0;
    for (uint32_t seed = 0; seed < 200; seed++) {
        world w;
        const ls_policy_settings s = with_preemption();
        uint32_t random = seed * 2654435761u + 12345, ranks[8], count = 0, used = 0;
        uint64_t cost[8];
        world_open(&w, 2, 8, 0, &s);
        for (; count < 8; count++) {
            random = random * 1664525u + 1013904223u;
            ranks[count] = 1 + (random >> 28) % 4;
            if (used + ranks[count] > 16) {
                break;
            }
            used += ranks[count];
            submit(&w, with_priority(count + 1, ranks[count], 0));
        }
        pass(&w);
        for (uint32_t i = 0; i < count; i++) { /* in the order of their checkpoints */
            w.now += MINUTE * (1 + (random >> i) % 5);
            assert_int_equal(ls_policy_checkpointed(w.policy, w.now, i + 1), LS_OK);
            cost[i] = w.now;
        }
        for (uint32_t i = 0; i < count; i++) {
            cost[i] = (w.now - cost[i] + MINUTE) * ranks[i];
        }
        const uint32_t needed = 6;
        submit(&w, with_priority(100, needed + 16 - used, 1));
        pass(&w);
        uint64_t chosen = 0, best = UINT64_MAX;
        for (uint32_t i = 0; i < w.count; i++) {
            chosen += cost[w.actions[i].job - 1];
        }
        for (uint32_t set = 1; set < 1u << count; set++) {
            uint32_t freed = 0;
            uint64_t sum = 0;
            for (uint32_t i = 0; i < count; i++) {
                freed += set >> i & 1 ? ranks[i] : 0;
                sum += set >> i & 1 ? cost[i] : 0;
            }
            best = freed >= needed && sum < best ? sum : best;
        }
        assert_true(chosen >= best && chosen <= 2 * best);
        chosen_sum += chosen;
        best_sum += best;
        world_close(&w);
    }
    assert_true(chosen_sum * 100 <= best_sum * 110); /* greedy; in all within a tenth */
}

/* ---- service queues ---- */

static void newcomers_interrupt_who_had_much(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = with_preemption();
    s.order = LS_ORDER_LAS;
    s.las_thresholds_device_ms[0] = 8 * (uint64_t)HOUR;
    world_open(&w, 1, 8, 0, &s);
    submit(&w, a_job(1, 8));
    pass(&w);
    w.now += 30 * MINUTE;
    submit(&w, a_job(2, 8));
    pass(&w);
    assert_int_equal(w.count, 0);
    /* 8 device-hours are full */
    assert_int_equal(ls_policy_next_ms(w.policy, w.now), w.now + 30 * MINUTE);
    w.now += 30 * MINUTE;
    pass(&w);
    assert_non_null(find_action(&w, LS_ACTION_PREEMPT, 1));
    requeue(&w, 1);
    pass(&w);
    assert_true(starts(&w, 2));
    w.now += 2 * HOUR;
    pass(&w);
    assert_int_equal(w.count, 0); /* both are in the later queue: nobody is stopped for his equal */
    world_close(&w);
}

/* ---- quotas ---- */

static void quota_is_borrowed_and_given_back(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 2, 8, 0, &s);
    set_quota(&w, 0, 8, 8, 8);
    set_quota(&w, 1, 8, 8, 8);
    for (uint64_t id = 1; id <= 4; id++) {
        submit(&w, of_account(id, 4, 0));
    }
    pass(&w);
    assert_int_equal(w.count, 4); /* 8 of its own, 8 of account 1 */
    w.now += HOUR;
    submit(&w, of_account(5, 4, 1));
    submit(&w, of_account(6, 4, 1));
    pass(&w);
    assert_int_equal(w.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(w.actions[i].kind, LS_ACTION_PREEMPT);
        requeue(&w, w.actions[i].job);
    }
    pass(&w);
    assert_true(starts(&w, 5) && starts(&w, 6));
    submit(&w, of_account(7, 4, 1)); /* beyond its own: nobody has to give */
    w.now += HOUR;
    pass(&w);
    assert_int_equal(w.count, 0);
    world_close(&w);
}

/* Account 0 has 4 more than its own 8, 3 (without a quota) the other 4. For its own 8 account 1
 * could have 4 from 0, and no more: so nobody is stopped. */
static void quota_is_never_reclaimed_below_what_is_theirs(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_preemption();
    world_open(&w, 2, 8, 0, &s);
    set_quota(&w, 0, 8, LS_UNLIMITED, 8);
    set_quota(&w, 1, 8, 0, 8);
    for (uint64_t id = 1; id <= 4; id++) {
        submit(&w, of_account(id, 4, id < 4 ? 0 : 3));
    }
    pass(&w);
    assert_int_equal(w.count, 4);
    w.now += HOUR;
    submit(&w, of_account(5, 8, 1));
    pass(&w);
    assert_int_equal(w.count, 0);
    submit(&w, of_account(6, 4, 1));
    pass(&w);
    assert_int_equal(w.count, 1);
    assert_int_equal(w.actions[0].kind, LS_ACTION_PREEMPT);
    assert_int_equal(w.actions[0].for_job, 6);
    assert_in_range(w.actions[0].job, 1, 3);
    world_close(&w);
}

static void quota_lends_no_more_than_it_says(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 2, 8, 0, &s);
    set_quota(&w, 0, 8, 8, 8);
    set_quota(&w, 1, 8, 8, 3);
    submit(&w, of_account(1, 8, 0));
    submit(&w, of_account(2, 4, 0));
    submit(&w, of_account(3, 3, 0));
    pass(&w);
    assert_true(starts(&w, 1) && !starts(&w, 2) && starts(&w, 3)); /* 3 are lent */
    const ls_why answer = why(&w, 2);
    assert_int_equal(answer.stage, LS_WHY_QUOTA);
    assert_int_equal(answer.needed, 4);
    assert_int_equal(answer.available, 0);
    submit(&w, of_account(4, 5, 1)); /* what was not lent is there at once */
    pass(&w);
    assert_true(starts(&w, 4));
    world_close(&w);
}

static void quota_of_cores_counts_too(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 2, 8, 0, &s);
    ls_policy_account account = ls_policy_account_default();
    account.quota[LS_RESOURCE_CPUS] = (ls_quota){.nominal = 16, .borrow_max = 0, .lend_max = 0};
    assert_int_equal(ls_policy_account_set(w.policy, w.now, 0, &account), LS_OK);
    ls_policy_job job = a_job(1, 4);
    job.cpus_per_rank = 4;
    submit(&w, job);
    job = a_job(2, 1);
    job.cpus_per_rank = 1;
    submit(&w, job);
    submit(&w, a_job(3, 1));
    pass(&w);
    assert_true(starts(&w, 1) && !starts(&w, 2) && starts(&w, 3));
    assert_int_equal(why(&w, 2).stage, LS_WHY_QUOTA);
    world_close(&w);
}

/* Account 0 runs all devices without cores, account 1 few with nearly all cores: the dominant share
 * of 1 is larger, so 0 comes first. */
static void fairness_is_by_the_dominant_share(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 1, 8, 0, &s); /* 64 cores */
    submit(&w, of_account(1, 3, 0));
    ls_policy_job job = of_account(2, 2, 1);
    job.cpus_per_rank = 30;
    submit(&w, job);
    pass(&w);
    w.now += 100 * (uint64_t)HOUR;
    end(&w, 1);
    end(&w, 2);
    submit(&w, of_account(3, 8, 1));
    submit(&w, of_account(4, 8, 0));
    pass(&w);
    assert_true(starts(&w, 4));
    world_close(&w);
}

/* ---- elastic ---- */

static const uint32_t steep[] = {1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000};
static const uint32_t flat[] = {1000, 1500, 1600, 1650, 1660, 1665, 1668, 1670};

static ls_policy_settings with_growth(void)
{
    ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    s.elastic = true;
    s.resize_pause_ms = 10 * MINUTE;
    s.resize_gain_permille = 100;
    return s;
}

static void growth_goes_to_who_gains_most(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_growth();
    world_open(&w, 1, 8, 0, &s);
    ls_policy_job job = elastic(1, 1, 1, 8);
    job.gain_permille = flat;
    job.gain_count = 8;
    submit(&w, job);
    job = elastic(2, 1, 1, 8);
    job.gain_permille = steep;
    job.gain_count = 8;
    submit(&w, job);
    pass(&w);
    assert_int_equal(ls_policy_started(w.policy, w.now, 1), LS_OK);
    assert_int_equal(ls_policy_started(w.policy, w.now, 2), LS_OK);
    w.now += 10 * MINUTE - 1;
    pass(&w);
    assert_int_equal(w.count, 0); /* too soon */
    w.now += 1;
    pass(&w);
    const ls_action *grow = find_action(&w, LS_ACTION_GROW, 2);
    assert_int_equal(w.count, 1);
    assert_non_null(grow);
    assert_int_equal(grow->ranks, 7);
    assert_int_equal(ls_policy_resized(w.policy, w.now, 2), LS_OK);
    end(&w, 2);
    pass(&w);
    grow = find_action(&w, LS_ACTION_GROW, 1);
    assert_int_equal(grow->ranks, 8); /* alone it may have all: 67 % more */
    world_close(&w);
}

static void growth_waits_for_those_who_wait(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_growth();
    world_open(&w, 1, 8, 0, &s);
    submit(&w, elastic(1, 2, 2, 8));
    pass(&w);
    assert_int_equal(ls_policy_started(w.policy, w.now, 1), LS_OK);
    w.now += HOUR;
    submit(&w, a_job(2, 7));
    pass(&w);
    assert_int_equal(w.count, 0); /* what it can't use now it may use later */
    assert_int_equal(ls_policy_hold(w.policy, w.now, 2, true), LS_OK);
    pass(&w);
    assert_int_equal(find_action(&w, LS_ACTION_GROW, 1)->ranks, 8);
    world_close(&w);
}

static void growth_is_not_worth_a_little(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_growth();
    const uint32_t nearly[] = {1000, 1020, 1040};
    world_open(&w, 1, 8, 0, &s);
    ls_policy_job job = elastic(1, 1, 1, 3);
    job.gain_permille = nearly;
    job.gain_count = 3;
    submit(&w, job);
    pass(&w);
    assert_int_equal(ls_policy_started(w.policy, w.now, 1), LS_OK);
    w.now += HOUR;
    pass(&w);
    assert_int_equal(w.count, 0);
    world_close(&w);
}

static void elastic_job_starts_with_what_there_is(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_growth();
    world_open(&w, 1, 8, 0, &s);
    submit(&w, a_job(1, 3));
    ls_policy_job job = elastic(2, 2, 8, 8);
    job.ranks_multiple = 2;
    submit(&w, job);
    pass(&w);
    assert_int_equal(find_action(&w, LS_ACTION_START, 2)->ranks, 4);
    world_close(&w);
}

static void resize_by_name_shrinks_and_grows(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = with_growth();
    s.resize_pause_ms = HOUR;
    world_open(&w, 2, 8, 0, &s);
    submit(&w, elastic(1, 2, 6, 12));
    pass(&w);
    assert_int_equal(ls_policy_started(w.policy, w.now, 1), LS_OK);
    assert_int_equal(ls_policy_change(w.policy, w.now, 1, LS_CHANGE_RANKS, 3), LS_OK);
    pass(&w);
    const ls_action *action = find_action(&w, LS_ACTION_SHRINK, 1);
    assert_int_equal(action->ranks, 3);
    assert_int_equal(ls_policy_count(w.policy).devices_free, 10); /* until it is done */
    assert_int_equal(ls_policy_resized(w.policy, w.now, 1), LS_OK);
    assert_int_equal(ls_policy_count(w.policy).devices_free, 13);
    assert_int_equal(ls_policy_change(w.policy, w.now, 1, LS_CHANGE_RANKS, 10), LS_OK);
    pass(&w);
    action = find_action(&w, LS_ACTION_GROW, 1);
    assert_int_equal(action->ranks, 10);
    assert_int_equal(action->shares[0].devices, 0xff); /* its own node first */
    world_close(&w);
}

/* Two on each node: growing by two takes another node, though its own have more free. */
static void growth_keeps_devices_per_node(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = with_growth();
    world_open(&w, 3, 8, 0, &s);
    ls_policy_job job = elastic(1, 2, 2, 8);
    job.devices_per_node = job.ranks_multiple = 2;
    submit(&w, job);
    pass(&w);
    assert_int_equal(ls_policy_started(w.policy, w.now, 1), LS_OK);
    w.now += HOUR;
    pass(&w);
    const ls_action *action = find_action(&w, LS_ACTION_GROW, 1);
    assert_int_equal(action->ranks, 6);
    assert_int_equal(action->share_count, 3);
    world_close(&w);
}

/* An equal that waits gets what an elastic job can spare. */
static void elastic_job_makes_room_for_its_equals(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = with_growth();
    s.preempt = true;
    world_open(&w, 1, 8, 0, &s);
    submit(&w, elastic(1, 2, 8, 8));
    pass(&w);
    w.now += HOUR;
    submit(&w, a_job(2, 5));
    pass(&w);
    const ls_action *action = find_action(&w, LS_ACTION_SHRINK, 1);
    assert_non_null(action);
    assert_int_equal(action->ranks, 3);
    assert_int_equal(ls_policy_resized(w.policy, w.now, 1), LS_OK);
    pass(&w);
    assert_true(starts(&w, 2));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(victim_is_who_loses_least),
        cmocka_unit_test(victims_are_guarded),
        cmocka_unit_test(why_names_what_keeps_a_lower_job),
        cmocka_unit_test(gangs_are_not_stopped_for_one_device),
        cmocka_unit_test(nobody_is_stopped_when_it_would_not_be_enough),
        cmocka_unit_test(victims_are_of_one_place),
        cmocka_unit_test(tiers_shrink_then_requeue_then_end),
        cmocka_unit_test(who_cannot_save_is_left_alone),
        cmocka_unit_test(claim_that_is_cancelled_frees_what_it_had),
        cmocka_unit_test(victims_cost_no_more_than_the_cheapest_set),
        cmocka_unit_test(newcomers_interrupt_who_had_much),
        cmocka_unit_test(quota_is_borrowed_and_given_back),
        cmocka_unit_test(quota_is_never_reclaimed_below_what_is_theirs),
        cmocka_unit_test(quota_lends_no_more_than_it_says),
        cmocka_unit_test(quota_of_cores_counts_too),
        cmocka_unit_test(fairness_is_by_the_dominant_share),
        cmocka_unit_test(growth_goes_to_who_gains_most),
        cmocka_unit_test(growth_waits_for_those_who_wait),
        cmocka_unit_test(growth_is_not_worth_a_little),
        cmocka_unit_test(elastic_job_starts_with_what_there_is),
        cmocka_unit_test(resize_by_name_shrinks_and_grows),
        cmocka_unit_test(growth_keeps_devices_per_node),
        cmocka_unit_test(elastic_job_makes_room_for_its_equals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
