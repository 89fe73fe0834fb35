// SPDX-License-Identifier: Apache-2.0
/* How a run on several hosts continues: the decision alone, on tables of hosts. */
#include "test.h"

#include "execution/team/reform.h"

#include <string.h>

enum { HOSTS = 3 };

/* Three hosts of two ranks in one cut after step 10, all parked for fence 5, in step 12, which
 * none has agreed on. */
typedef struct table {
    ls_reform_settings settings;
    ls_reform_host hosts[HOSTS];
    ls_cut cut;
    ls_reform_fence fence;
} table;

static table three_hosts(uint32_t zero)
{
    table t = {.settings = {.parts_max = 12, .min_ranks = 1, .zero = zero, .shadow = true},
               .fence = {.epoch = 5, .hard = true}};
    for (uint32_t i = 0; i < HOSTS; i++) {
        t.hosts[i] = (ls_reform_host){.is_here = true,
                                      .status = {.fence = 5,
                                                 .cut = 3,
                                                 .held = 3,
                                                 .entered = 12,
                                                 .finished = 11,
                                                 .agreed = 11,
                                                 .parked = 1,
                                                 .ranks = 2,
                                                 .bound = 2}};
    }
    ls_reform_cut(&t.settings, t.hosts, HOSTS, 3, 10, &t.cut);
    return t;
}

static ls_reform_decision decide(const table *t)
{
    const ls_cut *cuts[] = {&t->cut};
    return ls_reform_decide(&t->settings, t->hosts, HOSTS, cuts, 1, &t->fence);
}

static void reform_waits_until_all_are_parked(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.hosts[1].status.parked = 0;
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
    t.hosts[1].status.parked = 1;
    t.hosts[1].status.fence = 4; /* its status is for an earlier fence */
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
    t.hosts[1].is_here = false; /* dead ranks are not waited for */
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
}

static void reform_lets_all_run_to_the_same_step(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.fence = (ls_reform_fence){.epoch = 5, .limit = 11};
    t.hosts[2].status.parked = 0; /* it is in step 12 and waits for the others */
    const ls_reform_decision next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_LIMIT);
    assert_int_equal(next.step, 12);
    t.fence.limit = 12;
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
}

static void reform_computes_a_step_again_that_nobody_agreed_on(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.hosts[2].is_here = false;
    const ls_reform_decision next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FORM);
    assert_int_equal(next.step, 11);
}

static void reform_finishes_a_step_that_one_agreed_on(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.hosts[2].is_here = false;
    t.hosts[1].status.agreed = 12;
    ls_reform_decision next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FINISH);
    assert_int_equal(next.step, 12);
    assert_int_equal(next.from, 1);
    t.hosts[1].status.finished = 12; /* it has even updated */
    next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FINISH);
    assert_int_equal(next.step, 12);
    t.hosts[0].status.finished = t.hosts[0].status.agreed = 12;
    next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FORM);
    assert_int_equal(next.step, 12);
}

static void reform_does_not_wait_for_a_host_without_ranks(void **state)
{
    (void)state;
    table t = three_hosts(1);
    /* two have updated; the rank of the third died before it did */
    for (uint32_t i = 0; i < 2; i++) {
        t.hosts[i].status.finished = t.hosts[i].status.agreed = 12;
    }
    t.hosts[2].status.bound = 0; /* one that was started later may be ready */
    ls_reform_decision next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FORM);
    assert_int_equal(next.step, 12);
    t.hosts[2].status.fence = 4; /* its status for this fence is not known yet */
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
}

/* Host 2 was to have a part again, but lost one of its ranks before it heard that. */
static void reform_waits_for_what_a_newcomer_says_and_no_more(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.hosts[2].status = (ls_host_status){/* from before the loss */
                                         .fence = 4,
                                         .cut = 1,
                                         .finished = UINT64_MAX,
                                         .parked = 1,
                                         .ranks = 2};
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
    t.hosts[2].status.fence = 5;
    t.hosts[2].status.ranks = 1;
    ls_reform_decision next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FORM);
    assert_int_equal(next.step, 11);
    t.hosts[0].status.cut = t.hosts[1].status.cut = 1; /* nor have the others heard of that cut */
    next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FORM);
    assert_int_equal(next.step, 10);
    /* It is here, in no cut, and has not reported for this fence: its ranks are not known. */
    t = three_hosts(0);
    t.cut.host_count = 2;
    t.hosts[2].status = (ls_host_status){.fence = 4, .cut = 1, .finished = UINT64_MAX, .ranks = 2};
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
    t.hosts[2].status.fence = 5;
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
}

static void reform_needs_an_owner_or_its_shadow(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.hosts[1].is_here = t.hosts[2].is_here = false; /* host 2 has the shadow of host 1 */
    assert_int_equal(decide(&t).what, LS_REFORM_CHECKPOINT);
    t.settings.zero = 0; /* every host has everything */
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
    t = three_hosts(3);
    t.hosts[2].is_here = false; /* its shadow is with host 0 */
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
    t.settings.shadow = false;
    assert_int_equal(decide(&t).what, LS_REFORM_CHECKPOINT);
}

/* With local steps hosts agree on nothing within a round, here of nine turns. */
static void reform_changes_members_at_the_end_of_a_round(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.settings.round = 9;
    t.settings.shadow = false;
    assert_int_equal(decide(&t).what, LS_REFORM_CHECKPOINT); /* the fence is hard */
    t.fence.hard = false;
    ls_reform_decision next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_LIMIT);
    assert_int_equal(next.step, 18);
    t.hosts[1].status.fence = 4; /* it may be further than it said */
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
    t.hosts[1].status.fence = 5;
    t.fence.limit = 18;
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
    for (uint32_t i = 0; i < HOSTS; i++) {
        t.hosts[i].status.entered = t.hosts[i].status.finished = t.hosts[i].status.agreed = 18;
    }
    next = decide(&t);
    assert_int_equal(next.what, LS_REFORM_FORM);
    assert_int_equal(next.step, 18);
    t.fence.limit = 0; /* all were there by chance */
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
    t.hosts[2].status.parked = 0; /* unless one does something there, such as a gather */
    assert_int_equal(decide(&t).step, 27);
}

static void reform_ends_with_too_few_ranks(void **state)
{
    (void)state;
    table t = three_hosts(0);
    t.settings.min_ranks = 5;
    t.hosts[2].is_here = false;
    assert_int_equal(decide(&t).what, LS_REFORM_END);
    t.settings.min_ranks = 4;
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
    t.hosts[1].is_leaving = true; /* its ranks no longer count */
    assert_int_equal(decide(&t).what, LS_REFORM_END);
}

static void reform_ends_without_a_rank_beside_the_trainer(void **state)
{
    (void)state;
    table t = three_hosts(0);
    t.hosts[0].status.bound = 0; /* others are ready, but have nothing */
    assert_int_equal(decide(&t).what, LS_REFORM_END);
    t.cut.hosts[0].host = 2; /* a trainer that took over without them, and was in no cut */
    t.cut.host_count = 1;
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
}

static void cut_gives_a_part_to_each_rank_in_order(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.hosts[1].is_leaving = true;
    t.hosts[2].status.ranks = 3;
    ls_cut cut;
    ls_reform_cut(&t.settings, t.hosts, HOSTS, 6, 12, &cut);
    assert_int_equal(cut.parts, 5);
    assert_int_equal(cut.host_count, 2);
    assert_int_equal(cut.hosts[0].host, 0);
    assert_int_equal(cut.hosts[1].host, 2);
    assert_int_equal(cut.hosts[1].first_part, 2);
    assert_int_equal(cut.hosts[1].part_count, 3);
    t.settings.parts_max = 4; /* a part has at least a leaf */
    ls_reform_cut(&t.settings, t.hosts, HOSTS, 6, 12, &cut);
    assert_int_equal(cut.parts, 4);
    assert_int_equal(cut.hosts[1].part_count, 2);
}

/* Crews of four: within hosts if that costs none; else stages on different hosts. */
static void cut_has_whole_crews(void **state)
{
    (void)state;
    const struct {
        uint32_t ranks[HOSTS], stage_ranks, parts[HOSTS];
    } cases[] = {
        {{4, 4, 4}, 1, {4, 4, 4}}, {{5, 4, 6}, 1, {4, 4, 4}}, {{2, 2, 2}, 1, {2, 2, 0}},
        {{2, 3, 4}, 2, {2, 2, 4}}, {{3, 3, 3}, 2, {2, 2, 0}}, {{1, 3, 3}, 2, {0, 2, 2}},
        {{3, 0, 0}, 1, {0, 0, 0}}, {{6, 6, 6}, 4, {4, 4, 4}}, {{2, 4, 1}, 1, {2, 2, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        table t = three_hosts(1);
        uint32_t all = 0;
        ls_cut cut;
        t.settings.crew = 4;
        t.settings.stage_ranks = cases[i].stage_ranks;
        for (uint32_t h = 0; h < HOSTS; h++) {
            t.hosts[h].status.ranks = cases[i].ranks[h];
            all += cases[i].parts[h];
        }
        ls_reform_cut(&t.settings, t.hosts, HOSTS, 6, 12, &cut);
        assert_int_equal(cut.parts, all);
        assert_int_equal(ls_reform_part_count(&t.settings, t.hosts, HOSTS), all);
        for (uint32_t h = 0; h < HOSTS; h++) {
            assert_int_equal(ls_reform_parts(&cut, h), cases[i].parts[h]);
        }
    }
}

static void reform_waits_for_replacements_that_a_crew_needs(void **state)
{
    (void)state;
    table t = three_hosts(0);
    t.settings.crew = t.settings.stage_ranks = 2;
    t.hosts[0].status.ranks = t.hosts[0].status.bound = 1; /* the trainer's host has no crew */
    assert_int_equal(decide(&t).what, LS_REFORM_END);
    t.hosts[0].status.coming = 1;
    assert_int_equal(decide(&t).what, LS_REFORM_WAIT);
    t.hosts[0].status.ranks = 2;
    assert_int_equal(decide(&t).what, LS_REFORM_FORM);
    t.hosts[0].status.bound = 0;
    assert_int_equal(decide(&t).what, LS_REFORM_END); /* its memory is lost */
}

static void holders_are_owners_or_shadows_that_live(void **state)
{
    (void)state;
    table t = three_hosts(1);
    t.hosts[2].is_here = false;
    assert_true(ls_reform_find_holders(&t.settings, t.hosts, HOSTS, &t.cut));
    assert_int_equal(t.cut.hosts[1].holder, 1);
    assert_int_equal(t.cut.hosts[2].holder, 0);
    t.hosts[1].status.bound = 0; /* its agent lives, but no rank is left to send what it has */
    assert_false(ls_reform_find_holders(&t.settings, t.hosts, HOSTS, &t.cut));
    assert_int_equal(t.cut.hosts[1].holder, LS_REFORM_NO_HOST); /* its shadow was with host 2 */
    t.hosts[1].status.bound = 2;
    t.hosts[0].is_here = false;
    assert_false(ls_reform_find_holders(&t.settings, t.hosts, HOSTS, &t.cut));
    assert_int_equal(t.cut.hosts[0].holder, 1);
    assert_int_equal(t.cut.hosts[2].holder, LS_REFORM_NO_HOST);
}

/* A new cut counts once some host reports that the state is where the cut says. */
static void held_cut_is_the_one_before_until_the_new_one_stands(void **state)
{
    (void)state;
    table t = three_hosts(1);
    ls_cut next;
    ls_reform_cut(&t.settings, t.hosts, HOSTS, 5, 12, &next);
    const ls_cut *cuts[] = {&next, &t.cut};
    assert_ptr_equal(ls_reform_held(t.hosts, HOSTS, cuts, 2), &t.cut);
    t.hosts[1].status.held = 5;
    assert_ptr_equal(ls_reform_held(t.hosts, HOSTS, cuts, 2), &next);
    t.hosts[1].is_here = false;
    assert_ptr_equal(ls_reform_held(t.hosts, HOSTS, cuts, 2), &t.cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reform_waits_until_all_are_parked),
        cmocka_unit_test(reform_lets_all_run_to_the_same_step),
        cmocka_unit_test(reform_computes_a_step_again_that_nobody_agreed_on),
        cmocka_unit_test(reform_finishes_a_step_that_one_agreed_on),
        cmocka_unit_test(reform_does_not_wait_for_a_host_without_ranks),
        cmocka_unit_test(reform_waits_for_what_a_newcomer_says_and_no_more),
        cmocka_unit_test(reform_needs_an_owner_or_its_shadow),
        cmocka_unit_test(reform_changes_members_at_the_end_of_a_round),
        cmocka_unit_test(reform_ends_with_too_few_ranks),
        cmocka_unit_test(reform_ends_without_a_rank_beside_the_trainer),
        cmocka_unit_test(cut_gives_a_part_to_each_rank_in_order),
        cmocka_unit_test(cut_has_whole_crews),
        cmocka_unit_test(reform_waits_for_replacements_that_a_crew_needs),
        cmocka_unit_test(holders_are_owners_or_shadows_that_live),
        cmocka_unit_test(held_cut_is_the_one_before_until_the_new_one_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
