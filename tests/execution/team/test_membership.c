// SPDX-License-Identifier: Apache-2.0
/* What is to be done about ranks, as a function of facts: named cases, and what must hold for
 * any facts. */
#include "test.h"

#include "base/random.h"
#include "execution/team/membership.h"

#include <string.h>

/* Three ranks compute step 8; nothing is wrong. */
static ls_membership_facts three_at_work(void)
{
    ls_membership_facts f = {.begun = true,
                             .min_ranks = 1,
                             .slots = 4,
                             .parts = 3,
                             .epoch = 5,
                             .cut = 5,
                             .first_step = 4,
                             .fence = 5,
                             .reported = 7};
    for (uint32_t i = 0; i < 3; i++) {
        f.slot[i] = (ls_slot_facts){.state = LS_SLOT_READY, .wanted = true};
        f.part[i] = (ls_part_facts){.holder = i, .entered = 8, .done = 7};
    }
    return f;
}

static ls_membership_action next(const ls_membership_facts *facts)
{
    ls_membership_action action;
    ls_membership_next(facts, &action);
    return action;
}

static void dies(ls_membership_facts *f, uint32_t slot, bool hopeful)
{
    f->slot[slot] = (ls_slot_facts){.wanted = true, .startable = hopeful, .hopeful = hopeful};
    for (uint32_t i = 0; i < f->parts; i++) {
        f->part[i].orphan = f->part[i].orphan || f->part[i].holder == slot;
    }
}

static void nothing_to_do_while_all_is_well(void **state)
{
    (void)state;
    const ls_membership_facts f = three_at_work();
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
}

static void a_death_is_fenced_then_adopted_in_the_same_cut(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    dies(&f, 1, false);
    ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_FENCE);
    assert_true(a.hard && a.epoch == 6);
    f.fence = 6;
    f.hard = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT); /* two compute on until they would wait */
    f.slot[0].parked = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    f.slot[2].parked = true;
    a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_TEAM);
    assert_int_equal(a.team.epoch, 6);
    assert_int_equal(a.team.cut, 5);
    assert_int_equal(a.team.step, 7);
    assert_int_equal(a.team.parts, 3);
    assert_int_equal(a.team.holder[0], 0);
    assert_int_equal(a.team.holder[1], 0);
    assert_int_equal(a.team.holder[2], 2);
}

static void a_replacement_is_started_behind_the_fence(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    dies(&f, 1, true);
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_FENCE); /* first: the team names its slot */
    f.fence = 6;
    f.hard = true;
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_START);
    assert_int_equal(a.rank, 1);
    f.slot[1] = (ls_slot_facts){.state = LS_SLOT_STARTING, .wanted = true, .fresh = true};
    f.slot[0].parked = f.slot[2].parked = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_TEAM); /* not waited for */
}

static void a_death_between_steps_needs_no_adoption(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    dies(&f, 0, false);
    f.fence = 6;
    f.hard = true;
    f.slot[1].parked = f.slot[2].parked = true;
    for (uint32_t i = 0; i < 3; i++) {
        f.part[i].entered = f.part[i].done = 8;
    }
    /* all parts are done, but the result was not reported: it will be */
    assert_int_equal(next(&f).team.cut, 5);
    f.reported = 8;
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_TEAM);
    assert_int_equal(a.team.cut, 6);
    assert_int_equal(a.team.parts, 2);
    assert_int_equal(a.team.step, 8);
    assert_int_equal(a.team.first_step, 8);
    assert_int_equal(a.team.holder[0], 1);
    assert_int_equal(a.team.holder[1], 2);
}

/* Two crews of two. */
static ls_membership_facts crews_at_work(void)
{
    ls_membership_facts f = three_at_work();
    f.crew = 2;
    f.parts = 4;
    f.slot[3] = f.slot[2];
    f.part[3] = f.part[2];
    f.part[3].holder = 3;
    return f;
}

static void a_member_of_a_crew_is_replaced_in_its_slot(void **state)
{
    (void)state;
    ls_membership_facts f = crews_at_work();
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    dies(&f, 1, true);
    f.fence = 6;
    f.hard = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_START);
    f.slot[1] = (ls_slot_facts){.state = LS_SLOT_STARTING, .wanted = true, .fresh = true};
    f.slot[0].parked = f.slot[2].parked = f.slot[3].parked = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT); /* no other rank can compute its pieces */
    f.slot[1].state = LS_SLOT_READY;
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_TEAM);
    assert_int_equal(a.team.cut, 5);
    assert_int_equal(a.team.parts, 4);
    assert_int_equal(a.team.holder[1], 1);
    /* it cannot be replaced: nobody else finishes the step */
    dies(&f, 1, false);
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_END);
}

static void a_crew_that_is_not_complete_gets_no_part(void **state)
{
    (void)state;
    ls_membership_facts f = crews_at_work();
    dies(&f, 3, false);
    f.fence = 6;
    f.hard = true;
    f.reported = 8;
    for (uint32_t i = 0; i < 4; i++) {
        f.slot[i].parked = i < 3;
        f.part[i].entered = f.part[i].done = 8;
    }
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_TEAM);
    assert_int_equal(a.team.cut, 6);
    assert_int_equal(a.team.parts, 2);
    assert_int_equal(a.team.holder[0], 0);
    assert_int_equal(a.team.holder[1], 1);
    dies(&f, 1, false); /* no crew is complete, and none will be */
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_END);
}

static void a_killed_process_is_waited_for(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    dies(&f, 0, false);
    f.fence = 6;
    f.hard = true;
    f.slot[1].parked = true;
    f.slot[2].late = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_KILL);
    /* parked or not */
    f.slot[2] = (ls_slot_facts){.state = LS_SLOT_KILLED, .wanted = true, .parked = true};
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    f.slot[2].late = true;
    assert_int_equal(next(&f).end, LS_MEMBERSHIP_UNKILLABLE);
    dies(&f, 2, false);
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_TEAM);
    assert_int_equal(a.team.holder[0], 1);
    assert_int_equal(a.team.holder[2], 1);
}

static void one_more_finishes_what_was_interrupted(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    for (uint32_t i = 0; i < 3; i++) {
        dies(&f, i, false);
    }
    f.fence = 6;
    f.hard = f.may_finish = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_START);
    f.finishing = true;
    f.slot[0] = (ls_slot_facts){.state = LS_SLOT_STARTING, .wanted = true, .fresh = true};
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    f.slot[0].state = LS_SLOT_READY;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_TEAM);
    f.epoch = 6;
    f.hard = f.slot[0].fresh = false;
    for (uint32_t i = 0; i < 3; i++) {
        f.part[i] = (ls_part_facts){.holder = 0, .entered = 8, .done = 8};
    }
    f.reported = 8;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_FENCE); /* and after that step the run ends */
    f.fence = 7;
    f.slot[0].parked = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_END);
}

static void all_lost_waits_for_a_replacement_or_ends(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    for (uint32_t i = 0; i < 3; i++) {
        dies(&f, i, false);
    }
    f.fence = 6;
    f.hard = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_END);
    f.slot[1] = (ls_slot_facts){.state = LS_SLOT_STARTING, .wanted = true, .fresh = true};
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    f.slot[1].state = LS_SLOT_READY;
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_TEAM);
    assert_int_equal(a.team.cut, 5);
    assert_int_equal(a.team.holder[0], 1);
}

static void soft_fences_stop_all_behind_the_same_step(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    f.slot[3] = (ls_slot_facts){.state = LS_SLOT_READY, .wanted = true}; /* one more */
    ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_FENCE);
    assert_false(a.hard);
    f.fence = 6;
    a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_LIMIT);
    assert_int_equal(a.step, 8); /* the step they are in is finished */
    f.limit = 8;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    for (uint32_t i = 0; i < 3; i++) {
        f.slot[i].parked = true;
        f.part[i].done = 8;
    }
    f.reported = 8;
    f.part[2].entered = 9; /* it was faster than the fence */
    f.slot[2].parked = false;
    a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_LIMIT);
    assert_int_equal(a.step, 9);
    f.limit = 9;
    for (uint32_t i = 0; i < 3; i++) {
        f.part[i].entered = f.part[i].done = 9;
        f.slot[i].parked = true;
    }
    f.reported = 9;
    a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_TEAM);
    assert_int_equal(a.team.parts, 4);
    assert_int_equal(a.team.first_step, 9);
}

static void too_few_finish_their_step_first(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    f.min_ranks = 3;
    dies(&f, 2, false);
    f.fence = 6;
    f.hard = true;
    f.slot[0].parked = f.slot[1].parked = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_TEAM);
    f.epoch = 6; /* they have it */
    f.part[2] = (ls_part_facts){.holder = 0, .entered = 8, .done = 7};
    f.hard = f.slot[0].parked = f.slot[1].parked = false;
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_FENCE);
    assert_false(a.hard);
    f.fence = 7;
    f.limit = 8;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    for (uint32_t i = 0; i < 3; i++) {
        f.part[i].done = 8;
    }
    f.reported = 8;
    f.slot[0].parked = f.slot[1].parked = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_END);
    assert_int_equal(next(&f).end, LS_MEMBERSHIP_TOO_FEW);
}

static void who_is_not_wanted_leaves_when_it_holds_nothing(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    f.slot[1].wanted = false;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_FENCE);
    f.parts = 2;
    f.part[1].holder = 2;
    const ls_membership_action a = next(&f);
    assert_int_equal(a.what, LS_MEMBERSHIP_LEAVE);
    assert_int_equal(a.rank, 1);
    f.slot[1].leaving = true;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
}

static void before_all_are_ready_nothing_is_cut(void **state)
{
    (void)state;
    ls_membership_facts f = three_at_work();
    f.begun = false;
    f.reported = 0;
    f.first_step = 0;
    for (uint32_t i = 0; i < 3; i++) {
        f.part[i].entered = f.part[i].done = 0;
        f.slot[i] = (ls_slot_facts){.wanted = true, .startable = true, .hopeful = true};
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(next(&f).what, LS_MEMBERSHIP_START);
        assert_int_equal(next(&f).rank, i);
        f.slot[i] = (ls_slot_facts){.state = LS_SLOT_STARTING, .wanted = true};
    }
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    f.slot[0].state = f.slot[1].state = LS_SLOT_READY;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_WAIT);
    f.slot[2].state = LS_SLOT_READY;
    assert_int_equal(next(&f).what, LS_MEMBERSHIP_BEGIN);
}

/* ---- any facts ---- */

typedef struct dice {
    ls_random_key key;
    uint64_t count;
} dice;

static uint64_t roll(dice *d, uint64_t sides)
{
    return ls_random_u64(d->key, d->count++, 0) % sides;
}

/* Facts that may occur, with everything varied: at most one part per leaf, and the part of a
 * dead holder is an orphan. */
static ls_membership_facts any_facts(dice *d)
{
    ls_membership_facts f = {.begun = roll(d, 8) > 0,
                             .stopping = roll(d, 8) == 0,
                             .ending = roll(d, 16) == 0,
                             .deadly = roll(d, 16) == 0,
                             .may_finish = roll(d, 2),
                             .finishing = roll(d, 8) == 0,
                             .min_ranks = 1 + (uint32_t)roll(d, 3),
                             .slots = 1 + (uint32_t)roll(d, 4),
                             .epoch = 5,
                             .cut = 3 + roll(d, 3),
                             .first_step = 6};
    f.parts = 1 + (uint32_t)roll(d, f.slots);
    f.fence = 5 + roll(d, 3);
    f.hard = f.fence > f.epoch && roll(d, 2);
    f.limit = roll(d, 2) ? 0 : 6 + roll(d, 3);
    f.reported = 6 + roll(d, 3);
    for (uint32_t i = 0; i < f.slots; i++) {
        ls_slot_facts *p = &f.slot[i];
        *p = (ls_slot_facts){
            .state = (ls_slot_state)roll(d, 4), .wanted = roll(d, 4) > 0, .late = roll(d, 8) == 0};
        const bool lives = p->state != LS_SLOT_EMPTY;
        p->hopeful = p->wanted && roll(d, 2);
        p->startable = !lives && p->hopeful && roll(d, 2);
        p->fresh = lives && f.fence > f.epoch && roll(d, 3) == 0;
        p->parked = lives && f.fence > f.epoch && roll(d, 2);
    }
    for (uint32_t i = 0; i < f.parts; i++) {
        ls_part_facts *p = &f.part[i];
        p->holder = (uint32_t)roll(d, f.slots);
        const ls_slot_facts *holder = &f.slot[p->holder];
        p->orphan = holder->state == LS_SLOT_EMPTY || holder->fresh;
        p->done = 6 + roll(d, 2);
        p->entered = p->done + (p->done == 6 ? roll(d, 2) : 0);
    }
    return f;
}

static void check_team(const ls_membership_facts *f, const ls_membership_action *a)
{
    assert_true(f->fence > f->epoch && a->team.epoch == f->fence);
    assert_true(a->team.parts >= 1 && a->team.parts <= f->slots && a->team.local_parts == a->team.parts);
    for (uint32_t i = 0; i < f->slots; i++) { /* no rank can continue in the old team */
        if (ls_membership_is_bound(f, i)) {
            assert_true(f->slot[i].parked && f->slot[i].state != LS_SLOT_KILLED);
        }
    }
    for (uint32_t i = 0; i < a->team.parts; i++) {
        const ls_slot_facts *holder = &f->slot[a->team.holder[i]];
        const bool keeps = a->team.cut == f->cut && i < f->parts && !f->part[i].orphan &&
                           f->part[i].holder == a->team.holder[i];
        assert_true(holder->state == LS_SLOT_READY || (keeps && holder->state != LS_SLOT_EMPTY));
    }
    bool boundary = true;
    for (uint32_t i = 0; i < f->parts; i++) {
        boundary = boundary && f->part[i].entered == f->part[0].done && f->part[i].done == f->part[0].done;
    }
    assert_int_equal(a->team.cut == a->team.epoch, boundary && f->reported >= f->part[0].done);
    /* a soft fence never moves a part within a step */
    assert_true(f->hard || a->team.cut == a->team.epoch);
}

static void check_any(const ls_membership_facts *f)
{
    const ls_membership_action a = next(f), again = next(f);
    bool orphans = false;
    for (uint32_t i = 0; i < f->parts; i++) {
        orphans = orphans || f->part[i].orphan;
    }
    assert_memory_equal(&a, &again, sizeof a);
    assert_true(!f->ending || a.what == LS_MEMBERSHIP_WAIT);
    switch (a.what) {
    case LS_MEMBERSHIP_TEAM:
        check_team(f, &a);
        break;
    case LS_MEMBERSHIP_START:
        assert_true(f->slot[a.rank].state == LS_SLOT_EMPTY && (f->slot[a.rank].startable || f->may_finish));
        assert_true(!orphans || (f->hard && f->fence > f->epoch));
        break;
    case LS_MEMBERSHIP_KILL:
        assert_true(f->slot[a.rank].state == LS_SLOT_STARTING || f->slot[a.rank].state == LS_SLOT_READY);
        break;
    case LS_MEMBERSHIP_LEAVE:
        assert_true(f->slot[a.rank].state == LS_SLOT_READY && !f->slot[a.rank].wanted);
        for (uint32_t i = 0; i < f->parts; i++) {
            assert_true(f->part[i].holder != a.rank);
        }
        break;
    case LS_MEMBERSHIP_FENCE:
        assert_true(a.epoch > f->epoch && a.epoch >= f->fence);
        assert_true(!(f->fence > f->epoch && f->hard)); /* no hard fence is up */
        assert_true(a.hard == orphans);
        break;
    case LS_MEMBERSHIP_LIMIT:
        assert_true(f->fence > f->epoch && !f->hard && a.step > f->limit);
        break;
    case LS_MEMBERSHIP_BEGIN:
        assert_true(!f->begun && f->fence <= f->epoch && !orphans);
        break;
    case LS_MEMBERSHIP_END:
    case LS_MEMBERSHIP_WAIT:
        break;
    }
}

static void whatever_is_the_case_no_part_has_two_holders(void **state)
{
    (void)state;
    dice d = {.key = ls_random_stream(1, LS_RANDOM_SIMULATION)};
    for (uint32_t i = 0; i < 100000; i++) {
        const ls_membership_facts f = any_facts(&d);
        check_any(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_do_while_all_is_well),
        cmocka_unit_test(a_death_is_fenced_then_adopted_in_the_same_cut),
        cmocka_unit_test(a_replacement_is_started_behind_the_fence),
        cmocka_unit_test(a_death_between_steps_needs_no_adoption),
        cmocka_unit_test(a_member_of_a_crew_is_replaced_in_its_slot),
        cmocka_unit_test(a_crew_that_is_not_complete_gets_no_part),
        cmocka_unit_test(a_killed_process_is_waited_for),
        cmocka_unit_test(one_more_finishes_what_was_interrupted),
        cmocka_unit_test(all_lost_waits_for_a_replacement_or_ends),
        cmocka_unit_test(soft_fences_stop_all_behind_the_same_step),
        cmocka_unit_test(too_few_finish_their_step_first),
        cmocka_unit_test(who_is_not_wanted_leaves_when_it_holds_nothing),
        cmocka_unit_test(before_all_are_ready_nothing_is_cut),
        cmocka_unit_test(whatever_is_the_case_no_part_has_two_holders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
