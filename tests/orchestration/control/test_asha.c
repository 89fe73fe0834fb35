// SPDX-License-Identifier: Apache-2.0
/* Which trials of a sweep train on: by hand, and over random histories. */
#include "test.h"

#include "orchestration/control/asha.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS_MAX = 64 };

static void asha_make_powers_of_eta(void **state)
{
    (void)state;
    const ls_asha four = ls_asha_make(100, 4, 6400, 0);
    assert_int_equal(four.rung_count, 4);
    assert_int_equal(four.rungs[0], 100);
    assert_int_equal(four.rungs[2], 1600);
    assert_int_equal(four.rungs[3], 6400);
    const ls_asha uneven = ls_asha_make(10, 3, 100, 0);
    assert_int_equal(uneven.rung_count, 4); /* 10, 30, 90, 100 */
    assert_int_equal(uneven.rungs[3], 100);
    const ls_asha whole = ls_asha_make(0, 4, 6400, 77);
    assert_int_equal(whole.rung_count, 1);
    assert_int_equal(whole.budget_steps, 0);
    const ls_asha long_run = ls_asha_make(1, 2, UINT64_MAX, 0);
    assert_int_equal(long_run.rung_count, LS_ASHA_RUNGS_MAX);
    assert_true(long_run.rungs[LS_ASHA_RUNGS_MAX - 1] == UINT64_MAX);
}

/* Trials that have reached rung 0 with these results, and are paused there. */
static void pause_all(ls_trial *trials, const double *results, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        trials[i] = (ls_trial){.state = LS_TRIAL_PAUSED, .reached = 1, .results = {results[i]}};
    }
}

static void asha_decide_early_when_nothing_can_change_it(void **state)
{
    (void)state;
    const ls_asha asha = ls_asha_make(10, 2, 40, 0);
    ls_asha_decision out[4];
    ls_trial trials[4] = {0};
    const double first[] = {3.0, 1.0, 2.0};
    pause_all(trials, first, 3);
    trials[3].state = LS_TRIAL_ACTIVE;
    /* Of 3, one goes on, the best. The worst may not be among the best 2 of 4 whatever the fourth
     * does; the other may be. */
    assert_int_equal(ls_asha_decide(&asha, trials, 4, out), 2);
    assert_int_equal(out[0].trial, 1);
    assert_int_equal(out[0].choice, LS_ASHA_GO_ON);
    assert_int_equal(out[1].trial, 0);
    assert_int_equal(out[1].choice, LS_ASHA_STOP);
    assert_int_equal(out[1].place, 3);
    assert_int_equal(out[1].of, 3);
    assert_int_equal(out[1].go_on, 2);
    trials[3] = (ls_trial){.state = LS_TRIAL_PAUSED, .reached = 1, .results = {NAN}};
    trials[1].state = LS_TRIAL_ACTIVE;
    trials[0].state = LS_TRIAL_STOPPED;
    assert_int_equal(ls_asha_decide(&asha, trials, 4, out), 2);
    assert_int_equal(out[0].trial, 2);
    assert_int_equal(out[0].choice, LS_ASHA_GO_ON);
    assert_int_equal(out[1].trial, 3); /* what has no result is worst */
    assert_int_equal(out[1].choice, LS_ASHA_STOP);
}

static void asha_decide_lets_one_reach_the_end(void **state)
{
    (void)state;
    const ls_asha asha = ls_asha_make(10, 4, 40, 0);
    ls_asha_decision out[2];
    ls_trial trials[2] = {0};
    const double results[] = {2.0, 2.0};
    pause_all(trials, results, 2);
    assert_int_equal(ls_asha_decide(&asha, trials, 2, out), 2);
    assert_int_equal(out[0].trial, 0); /* of equal ones the first */
    assert_int_equal(out[0].choice, LS_ASHA_GO_ON);
    assert_int_equal(out[1].choice, LS_ASHA_STOP);
}

static void asha_decide_keeps_to_its_budget(void **state)
{
    (void)state;
    const ls_asha asha = ls_asha_make(10, 2, 40, 60);
    ls_asha_decision out[4];
    ls_trial trials[4] = {0};
    const double results[] = {4.0, 3.0, 2.0, 1.0};
    pause_all(trials, results, 4);
    assert_int_equal(ls_asha_steps(&asha, trials, 4), 40);
    assert_int_equal(ls_asha_decide(&asha, trials, 4, out), 4);
    assert_int_equal(out[0].choice, LS_ASHA_GO_ON);
    assert_int_equal(out[1].choice, LS_ASHA_GO_ON);
    trials[2].state = trials[3].state = LS_TRIAL_ACTIVE;
    assert_int_equal(ls_asha_steps(&asha, trials, 4), 60);
    trials[0].state = trials[1].state = LS_TRIAL_STOPPED;
    trials[3] = (ls_trial){.state = LS_TRIAL_PAUSED, .reached = 2, .results = {1.0, 1.0}};
    trials[2].state = LS_TRIAL_FAILED; /* its steps count, because they may have been computed */
    assert_int_equal(ls_asha_steps(&asha, trials, 4), 60);
    assert_int_equal(ls_asha_decide(&asha, trials, 4, out), 1);
    assert_int_equal(out[0].choice, LS_ASHA_BUDGET);
}

/* A sweep played to its end: trials arrive in random order, some fail. */
typedef struct history {
    ls_asha asha;
    ls_trial trials[TRIALS_MAX];
    double quality[TRIALS_MAX];
    uint32_t count;
    uint64_t random;
} history;

static uint32_t draw(history *h, uint32_t below)
{
    h->random = h->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(h->random >> 33) % below;
}

static uint32_t active(const history *h)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        count += h->trials[i].state == LS_TRIAL_ACTIVE;
    }
    return count;
}

/* One of the active trials reaches its next rung, or fails. */
static void let_one_arrive(history *h, uint32_t failures_percent)
{
    uint32_t left = draw(h, active(h)), index = 0;
    while (h->trials[index].state != LS_TRIAL_ACTIVE || left-- > 0) {
        index++;
    }
    ls_trial *trial = &h->trials[index];
    if (draw(h, 100) < failures_percent) {
        trial->state = LS_TRIAL_FAILED;
        return;
    }
    /* the further it has trained, the less its result deceives */
    trial->results[trial->reached] = h->quality[index] + draw(h, 1000) * 1e-3 / (1 << trial->reached);
    trial->reached++;
    trial->state = trial->reached == h->asha.rung_count ? LS_TRIAL_FINISHED : LS_TRIAL_PAUSED;
}

static void apply(history *h)
{
    ls_asha_decision out[TRIALS_MAX], again[TRIALS_MAX];
    const uint32_t count = ls_asha_decide(&h->asha, h->trials, h->count, out);
    assert_int_equal(ls_asha_decide(&h->asha, h->trials, h->count, again), count);
    assert_memory_equal(out, again, count * sizeof *out); /* the same state, the same decisions */
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(h->trials[out[i].trial].state, LS_TRIAL_PAUSED);
        h->trials[out[i].trial].state = out[i].choice == LS_ASHA_GO_ON ? LS_TRIAL_ACTIVE : LS_TRIAL_STOPPED;
    }
    if (count > 0) {
        apply(h); /* one decision may lead to the next */
    }
    if (h->asha.budget_steps > 0) {
        assert_true(ls_asha_steps(&h->asha, h->trials, h->count) <= h->asha.budget_steps);
    }
}

/* What must hold when nothing is active any more. */
static void check_end(const history *h, uint32_t failures_percent)
{
    for (uint32_t rung = 0; rung + 1 < h->asha.rung_count; rung++) {
        uint32_t here = 0, further = 0;
        for (uint32_t i = 0; i < h->count; i++) {
            const ls_trial *trial = &h->trials[i];
            here += trial->reached > rung;
            const bool left =
                trial->reached > rung + 1 || (trial->reached == rung + 1 && trial->state == LS_TRIAL_FAILED);
            further += left;
            /* the best of those that came must have been let on */
            if (trial->reached > rung && h->asha.budget_steps == 0 &&
                ls_asha_place(h->trials, h->count, rung, i) <= here / h->asha.eta) {
                assert_true(left);
            }
        }
        assert_true(here == 0 || further > 0 || h->asha.budget_steps > 0);
    }
    for (uint32_t i = 0; i < h->count; i++) {
        assert_true(h->trials[i].state != LS_TRIAL_ACTIVE && h->trials[i].state != LS_TRIAL_PAUSED);
    }
    if (failures_percent == 0 && h->asha.budget_steps == 0) {
        bool any = false;
        for (uint32_t i = 0; i < h->count; i++) {
            any = any || h->trials[i].state == LS_TRIAL_FINISHED;
        }
        assert_true(any);
    }
}

static void play(uint64_t seed)
{
    history h = {.random = seed};
    const uint32_t failures_percent = draw(&h, 3) * 10;
    h.count = 1 + draw(&h, TRIALS_MAX);
    h.asha = ls_asha_make(1 + draw(&h, 20), 2 + draw(&h, 4), 21 + draw(&h, 2000), 0);
    if (draw(&h, 2)) {
        h.asha.budget_steps = h.count * h.asha.rungs[0] + draw(&h, 2000);
    }
    for (uint32_t i = 0; i < h.count; i++) {
        h.quality[i] = draw(&h, 1000) * 1e-3;
    }
    while (active(&h) > 0) {
        let_one_arrive(&h, failures_percent);
        if (draw(&h, 3) > 0 || active(&h) == 0) { /* several may arrive before the next decision */
            apply(&h);
        }
    }
    check_end(&h, failures_percent);
}

static void asha_decide_random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        play(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asha_make_powers_of_eta),
        cmocka_unit_test(asha_decide_early_when_nothing_can_change_it),
        cmocka_unit_test(asha_decide_lets_one_reach_the_end),
        cmocka_unit_test(asha_decide_keeps_to_its_budget),
        cmocka_unit_test(asha_decide_random_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
