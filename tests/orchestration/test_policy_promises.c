// SPDX-License-Identifier: Apache-2.0
/*
 * What the policy promises over time, in random worlds played to their end: a reserved start is never put off by who comes later, everybody starts,
 * and what was borrowed is given back.
 */
#include "policy_world.h"

#include "base/random.h"

enum { JOBS = 60 };

typedef struct play {
    world w;
    ls_random_key key;
    uint64_t draws;
    ls_policy_job jobs[JOBS + 1];
    uint64_t ends_ms[JOBS + 1], promised_ms[JOBS + 1]; /* 0: none */
    bool started[JOBS + 1], ended[JOBS + 1];
    uint32_t submitted;
} play;

static uint32_t draw(play *p, uint32_t bound)
{
    return (uint32_t)ls_random_below(p->key, p->draws++, 0, bound);
}

static ls_policy_job draw_job(play *p, uint64_t id)
{
    ls_policy_job job = a_job(id, 1 + draw(p, draw(p, 3) ? 6 : 24));
    job.expected_ms = (uint64_t)MINUTE * (1 + draw(p, 300));
    if (draw(p, 3) == 0) {
        job.required = job.ranks <= 8 ? LS_LEVEL_NODE : job.ranks <= 16 ? LS_LEVEL_LEAF : LS_LEVEL_SPINE;
    }
    if (draw(p, 5) == 0) {
        job.devices_per_node = 2;
        job.required = LS_LEVEL_CLUSTER;
        job.ranks = job.min_ranks = job.max_ranks = 2 + (job.ranks < 14 ? job.ranks : 14) / 2 * 2;
    }
    return job;
}

static void play_pass(play *p)
{
    ls_policy_reservation reserved[LS_RESERVATIONS_MAX];
    pass(&p->w);
    for (uint32_t i = 0; i < p->w.count; i++) {
        const ls_action *a = &p->w.actions[i];
        assert_int_equal(a->kind, LS_ACTION_START);
        if (p->promised_ms[a->job] && p->w.now > p->promised_ms[a->job]) {
            fail_msg("job %u was promised a start %u s ago", (unsigned)a->job,
                     (unsigned)((p->w.now - p->promised_ms[a->job]) / 1000));
        }
        p->started[a->job] = true;
        p->ends_ms[a->job] = p->w.now + p->jobs[a->job].expected_ms;
    }
    const uint32_t count = ls_policy_reservations(p->w.policy, reserved, LS_RESERVATIONS_MAX);
    for (uint32_t i = 0; i < count && i < 1;
         i++) { /* the first; those behind it may be put off by it, not by others */
        uint64_t *promised = &p->promised_ms[reserved[i].job];
        if (*promised && reserved[i].starts_ms > *promised) {
            fail_msg("job %u: its start is put off", (unsigned)reserved[i].job);
        }
        *promised = reserved[i].starts_ms;
    }
}

/* Plays until all have run; returns how many were promised a start. */
static uint32_t play_all(play *p)
{
    uint32_t left = JOBS, promises = 0;
    for (uint32_t turns = 0; left > 0; turns++) {
        assert_true(turns < 100 * JOBS); /* everybody starts */
        uint64_t next_ms = UINT64_MAX;
        for (uint32_t id = 1; id <= JOBS; id++) {
            if (p->started[id] && !p->ended[id] && p->ends_ms[id] < next_ms) {
                next_ms = p->ends_ms[id];
            }
        }
        const uint64_t arrival_ms =
            p->submitted < JOBS ? p->w.now + (uint64_t)MINUTE * draw(p, 40) : UINT64_MAX;
        p->w.now = next_ms < arrival_ms ? next_ms : arrival_ms;
        for (uint32_t id = 1; id <= JOBS; id++) {
            if (p->started[id] && !p->ended[id] && p->ends_ms[id] == p->w.now) {
                end(&p->w, id);
                p->ended[id] = true;
                left--;
            }
        }
        if (p->w.now == arrival_ms) {
            const uint64_t id = ++p->submitted;
            p->jobs[id] = draw_job(p, id);
            submit(&p->w, p->jobs[id]);
        }
        play_pass(p);
    }
    for (uint32_t id = 1; id <= JOBS; id++) {
        promises += p->promised_ms[id] != 0;
    }
    return promises;
}

static void reserved_starts_are_kept(void **state)
{
    (void)state;
    static play p;
    uint32_t promises = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ls_policy_settings s = plain_settings(seed % 2 ? LS_ORDER_EASY : LS_ORDER_FAIR);
        s.weight_size = s.weight_fair = 0; /* older is earlier */
        s.age_max_ms = 10000 * (uint64_t)HOUR;
        s.reservations = 1 + (uint32_t)(seed % 6);
        p = (play){.key = ls_random_stream(seed, LS_RANDOM_TEST)};
        world_open(&p.w, 8, 8, 2, &s);
        promises += play_all(&p);
        world_close(&p.w);
    }
    assert_true(promises > 60);
}

/* ---- borrowed quota ---- */

static uint32_t used_by(const uint32_t *account_of, const uint32_t *ranks, uint32_t account)
{
    uint32_t used = 0;
    for (uint32_t id = 1; id <= JOBS; id++) {
        used += account_of[id] == account ? ranks[id] : 0;
    }
    return used;
}

/* Carries out passes until one has nothing to do; ranks[id] are those that run. */
static void settle(world *w, uint32_t *ranks)
{
    for (uint32_t turns = 0;; turns++) {
        assert_true(turns < 1000);
        pass(w);
        if (w->count == 0) {
            return;
        }
        const uint32_t count = w->count;
        for (uint32_t i = 0; i < count; i++) {
            const ls_action *a = &w->actions[i];
            if (a->kind == LS_ACTION_START) {
                ranks[a->job] = a->ranks;
            } else {
                assert_int_equal(a->kind, LS_ACTION_PREEMPT);
                assert_int_equal(ls_policy_requeued(w->policy, w->now, a->job), LS_OK);
                ranks[a->job] = 0;
            }
        }
    }
}

static void borrowed_quota_is_given_back(void **state)
{
    (void)state;
    enum { ACCOUNTS = 3 };
    const uint32_t nominal[ACCOUNTS] = {8, 16, 8};
    uint32_t borrowed = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world w;
        ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
        s.preempt = true;
        s.las_thresholds_device_ms[0] = 0;
        s.preemptions_max = UINT32_MAX;
        const ls_random_key key = ls_random_stream(seed + 100, LS_RANDOM_TEST);
        uint32_t account_of[JOBS + 1] = {0}, ranks[JOBS + 1] = {0}, wanted[JOBS + 1] = {0};
        world_open(&w, 4, 8, 0, &s);
        for (uint32_t i = 0; i < ACCOUNTS; i++) {
            ls_policy_account a = ls_policy_account_default();
            a.quota[0] =
                (ls_quota){.nominal = nominal[i], .borrow_max = LS_UNLIMITED, .lend_max = LS_UNLIMITED};
            assert_int_equal(ls_policy_account_set(w.policy, w.now, i, &a), LS_OK);
        }
        for (uint32_t id = 1; id <= JOBS; id++) {
            const uint64_t random = ls_random_u64(key, id, 0);
            ls_policy_job job = a_job(id, 1 + random % 5);
            job.account = account_of[id] = id < 16 ? 0 : random / 8 % ACCOUNTS; /* 0 has it all at first */
            wanted[id] = job.ranks;
            submit(&w, job);
            w.now += MINUTE;
            if (random / 64 % 4 == 0 && id > 4 && ranks[id - 3]) {
                end(&w, id - 3);
                ranks[id - 3] = wanted[id - 3] = 0;
            }
            settle(&w, ranks);
            for (uint32_t a = 0; a < ACCOUNTS; a++) {
                const uint32_t used = used_by(account_of, ranks, a);
                borrowed += used > nominal[a];
                for (uint32_t k = 1; k <= id; k++) {
                    if (account_of[k] != a || ranks[k] || !wanted[k] || used + wanted[k] > nominal[a]) {
                        continue;
                    }
                    for (uint32_t b = 0; b < ACCOUNTS;
                         b++) { /* waits for what is its account's own: then nobody borrows */
                        assert_true(b == a || used_by(account_of, ranks, b) <= nominal[b]);
                    }
                }
            }
        }
        world_close(&w);
    }
    assert_true(borrowed > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserved_starts_are_kept),
        cmocka_unit_test(borrowed_quota_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
