// SPDX-License-Identifier: Apache-2.0
/* The host segment: places, a second process's view, the abort word, and what a death between or
 * inside updates means. */
#include "test.h"

#include "base/file.h"
#include "comm/transport/tree.h"
#include "execution/train/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static ls_segment_plan small_plan(void)
{
    return (ls_segment_plan){.float_count = 1000,
                             .exchange_bytes = 5000,
                             .leaves = 7,
                             .ranks = 3,
                             .local_ranks = 3,
                             .epoch = 5,
                             .text = "name: x\n",
                             .text_bytes = 8};
}

static void path_of(const ls_segment *segment, char path_out[64])
{
    snprintf(path_out, 64, "/proc/%d/fd/%d", (int)getpid(), segment->fd);
}

static bool is_aligned(const void *memory)
{
    return (uintptr_t)memory % LS_SEGMENT_ALIGN == 0;
}

static void segment_places_follow_from_the_plan(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    /* control, text, exchange, seven flat buffers, and the gradients: room for any range of 7
     * leaves, and for pieces of sequences. */
    assert_int_equal(s.control->buffers, 6 + LS_SEQUENCE_CUT_MAX - 1);
    assert_int_equal(s.bytes, (3 + 7 + 3 * (6 + LS_SEQUENCE_CUT_MAX - 1)) * (uint64_t)LS_SEGMENT_ALIGN);
    assert_true(is_aligned(s.control) && is_aligned(s.exchange) && is_aligned(s.parameters) &&
                is_aligned(s.m) && is_aligned(s.v));
    for (uint32_t local = 0; local < 3; local++) {
        const ls_leaf_range range = ls_leaves_of_rank(7, 3, local);
        assert_int_equal(ls_segment_gradient_count(&s, local),
                         ls_tree_range_buffers(7, 0, range) + LS_SEQUENCE_CUT_MAX - 1);
        for (uint32_t i = 0; i < ls_segment_gradient_count(&s, local); i++) {
            float *gradient = ls_segment_gradient(&s, local, i);
            assert_true(is_aligned(gradient));
            gradient[999] = (float)(10 * local + i); /* none lies in another, or behind the end */
        }
    }
    for (uint32_t local = 0; local < 3; local++) {
        for (uint32_t i = 0; i < ls_segment_gradient_count(&s, local); i++) {
            assert_float_equal(ls_segment_gradient(&s, local, i)[999], (float)(10 * local + i), 0.0);
        }
    }
    assert_memory_equal(s.text, "name: x\n", 9); /* with a closing 0 */
    ls_segment_release(&s);
    ls_segment_release(&s); /* does nothing */
}

static void segment_has_buffers_for_any_cut(void **state)
{
    (void)state;
    for (uint32_t leaves = 1; leaves <= 48; leaves++) {
        const ls_segment_plan plan = {.float_count = 16,
                                      .exchange_bytes = 64,
                                      .leaves = leaves,
                                      .ranks = 1,
                                      .local_ranks = 1,
                                      .text = ""};
        ls_segment s;
        assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
        for (uint32_t parts = 1; parts <= leaves; parts++) {
            for (uint32_t i = 0; i < parts; i++) {
                assert_true(ls_tree_range_buffers(leaves, 0, ls_leaves_of_rank(leaves, parts, i)) <=
                            s.control->buffers);
            }
        }
        ls_segment_release(&s);
    }
}

static void segment_pages_come_with_the_first_touch(void **state)
{
    (void)state;
    ls_segment_plan plan = small_plan();
    plan.float_count = 64 << 20; /* 256 MiB each */
    ls_segment s;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    assert_true(s.bytes > (uint64_t)2 << 30);
    assert_true(ls_segment_touched_bytes(&s) < 16 << 20);
    s.v[(64 << 20) - 1] = 1.0f;
    assert_true(ls_segment_touched_bytes(&s) > 0);
    assert_int_equal(ftruncate(s.fd, 4096), -1); /* sealed */
    ls_segment_release(&s);
}

static void segment_is_one_memory_in_two_processes(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    char path[64];
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    path_of(&s, path);
    const pid_t child = fork();
    if (child == 0) {
        ls_segment mine;
        bool good = ls_segment_attach(path, &mine) == LS_OK && mine.control->epoch == 5 &&
                    mine.map != s.map && memcmp(mine.text, "name: x", 7) == 0 &&
                    mine.control->team.parts == 3;
        if (good) {
            mine.parameters[3] = 4.5f;
            ls_segment_gradient(&mine, 2, 1)[7] = 8.5f;
            good = ls_control_abort(mine.control, LS_ERR_DATA, 2, "rank 2 can't read");
            ls_segment_release(&mine);
        }
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_float_equal(s.parameters[3], 4.5, 0.0);
    assert_float_equal(ls_segment_gradient(&s, 2, 1)[7], 8.5, 0.0);
    assert_int_equal(ls_control_aborted(s.control), LS_ERR_DATA);
    assert_string_equal(ls_error_text(), "rank 2 can't read");
    ls_segment_release(&s);
}

static void expect_refused(int fd, const char *what)
{
    char path[64];
    ls_segment s = {.fd = -7};
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    if (ls_segment_attach(path, &s) != LS_ERR_DATA || s.fd != -7) {
        fail_msg("%s was taken for a segment", what);
    }
}

static void segment_attach_refuses_what_is_none(void **state)
{
    (void)state;
    ls_segment s;
    assert_int_equal(ls_segment_attach("/proc/self/fd/12345", &s), LS_ERR_NOT_FOUND);
    const int empty = memfd_create("x", MFD_CLOEXEC);
    expect_refused(empty, "an empty file");
    assert_int_equal(ftruncate(empty, 8 << 20), 0);
    expect_refused(empty, "zeroes");
    close(empty);

    const ls_segment_plan plan = small_plan();
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    ls_control *c = s.control;
    const ls_control good = *c;
    c->version++;
    expect_refused(s.fd, "another version");
    *c = good;
    c->local_ranks = LS_LOCAL_RANKS_MAX + 1;
    expect_refused(s.fd, "too many ranks");
    *c = good;
    c->float_count = UINT64_C(1) << 60;
    expect_refused(s.fd, "buffers behind the end");
    *c = good;
    c->leaves = 0;
    expect_refused(s.fd, "fewer leaves than ranks");
    *c = good;
    c->gradients_at += 64;
    expect_refused(s.fd, "gradients elsewhere");
    *c = good;
    ls_segment_release(&s);
}

static void control_keeps_the_first_abort(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    assert_int_equal(ls_control_aborted(s.control), LS_OK);
    const uint32_t news = ls_word_get(&s.control->news), orders = ls_word_get(&s.control->orders);
    assert_true(ls_control_abort(s.control, LS_ERR_RANKS_LOST, 1, "first"));
    assert_false(ls_control_abort(s.control, LS_ERR_TIMEOUT, 2, "second"));
    assert_int_equal(ls_control_aborted(s.control), LS_ERR_RANKS_LOST);
    assert_string_equal(ls_error_text(), "first");
    assert_int_equal(atomic_load(&s.control->abort_rank), 1);
    assert_int_not_equal(ls_word_get(&s.control->news), news);
    assert_int_not_equal(ls_word_get(&s.control->orders), orders);
    char longer[2 * LS_RANK_TEXT_BYTES];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    ls_segment_release(&s);
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    assert_true(ls_control_abort(s.control, LS_ERR_DATA, -1, longer));
    assert_int_equal(strlen(s.control->abort_text), LS_RANK_TEXT_BYTES - 1);
    ls_segment_release(&s);
}

/* A process that is killed while it aborts the run must not keep others from doing so. */
static void control_abort_outlives_who_claimed_it(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    atomic_store(&s.control->abort_claim, 77);
    assert_false(ls_control_abort(s.control, LS_ERR_DATA, 1, "second"));
    ls_control_drop_claim(s.control, 0);
    ls_control_drop_claim(s.control, 78);
    assert_false(ls_control_abort(s.control, LS_ERR_DATA, 1, "second"));
    ls_control_drop_claim(s.control, 77);
    assert_true(ls_control_abort(s.control, LS_ERR_DATA, 1, "third"));
    ls_control_drop_claim(s.control, getpid()); /* it has given its reason */
    assert_false(ls_control_abort(s.control, LS_ERR_DATA, 1, "fourth"));
    assert_int_equal(ls_control_aborted(s.control), LS_ERR_DATA);
    assert_string_equal(ls_error_text(), "third");
    ls_segment_release(&s);
}

static void control_grants_never_shrink(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    ls_control_grant(s.control, 10);
    ls_control_grant(s.control, 4);
    assert_int_equal(atomic_load(&s.control->until), 10);
    ls_segment_release(&s);
}

static void set_marks(ls_segment *s, uint64_t begun0, uint64_t done0, uint64_t begun2, uint64_t done2)
{
    for (uint32_t local = 0; local < 3; local++) {
        ls_part_marks *part = &s->control->parts[local];
        atomic_store(&part->begun, local == 2 ? begun2 : begun0);
        atomic_store(&part->done, local == 2 ? done2 : done0);
    }
}

static void control_is_consistent_between_updates_alone(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    uint64_t finished = 99;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    set_marks(&s, 4, 4, 4, 4);
    assert_true(ls_control_is_consistent(s.control, &finished));
    assert_int_equal(finished, 4);
    finished = 99;
    set_marks(&s, 4, 4, 5, 4); /* rank 2 died in its update */
    assert_false(ls_control_is_consistent(s.control, &finished));
    set_marks(&s, 5, 5, 4, 4); /* before its update, when the others had done theirs */
    assert_false(ls_control_is_consistent(s.control, &finished));
    set_marks(&s, 5, 4, 5, 5); /* the others died */
    assert_false(ls_control_is_consistent(s.control, &finished));
    assert_int_equal(finished, 99);
    set_marks(&s, 5, 5, 5, 5); /* all updates are through, at the end-of-step barrier */
    assert_true(ls_control_is_consistent(s.control, &finished));
    assert_int_equal(finished, 5);
    ls_segment_release(&s);
}

/* A rank that leaves its place behind a raised limit while the fence becomes a hard one is still
 * parked, or seen as not parked: never neither. */
static void control_unpark_looks_once_more(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    ls_control *control = s.control;
    ls_control_fence(control, 6, false);
    assert_true(ls_control_is_fenced(control, 0));
    ls_control_park(control, 1, 5);
    assert_true(ls_control_is_parked(control, 1) && !ls_control_is_parked(control, 0));
    assert_false(ls_control_unpark(control, 1, 0));
    assert_true(ls_control_is_parked(control, 1));
    ls_control_limit(control, 1);
    ls_control_fence(control, 6, true);
    assert_false(ls_control_unpark(control, 1, 0)); /* hard: whatever the limit */
    assert_true(ls_control_is_parked(control, 1));
    ls_control_fence(control, 7, true); /* raised again: who is parked stays so */
    assert_true(ls_control_is_parked(control, 1));
    ls_team team;
    ls_control_read_team(control, &team);
    team.epoch = 7;
    ls_control_team(control, &team);
    assert_false(ls_control_is_parked(control, 1) || ls_control_is_fenced(control, 0));
    ls_control_fence(control, 8, false);
    /* held up since before the team changed: it has to see that one first */
    ls_control_park(control, 1, 5);
    assert_false(ls_control_is_parked(control, 1));
    ls_control_park(control, 1, 7);
    assert_true(ls_control_is_parked(control, 1));
    ls_control_limit(control, 1);
    assert_true(ls_control_unpark(control, 1, 0));
    assert_false(ls_control_is_parked(control, 1));
    ls_segment_release(&s);
}

/* Ranks without an agent: one fence for all of them, hard, never below one that stands. */
static void control_fence_alone_raises_one(void **state)
{
    (void)state;
    ls_segment s;
    const ls_segment_plan plan = {
        .float_count = 100, .leaves = 4, .ranks = 2, .local_ranks = 2, .epoch = 5, .text = ""};
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    ls_control *c = s.control;
    ls_control_fence_alone(c);
    assert_int_equal(atomic_load(&c->fence), 6);
    assert_int_equal(atomic_load(&c->hard), 1);
    assert_int_equal(atomic_load(&c->interrupt), 1);
    ls_control_fence(c, 9, true); /* another agent has come */
    ls_control_fence_alone(c);
    assert_int_equal(atomic_load(&c->fence), 9);

    ls_team team = c->team;
    team.epoch = 9;
    ls_control_team(c, &team);
    assert_int_equal(atomic_load(&c->hard) + atomic_load(&c->interrupt), 0);
    ls_control_fence(c, 12, false); /* gone again, with a soft one standing */
    ls_control_fence_alone(c);
    assert_int_equal(atomic_load(&c->fence), 12);
    assert_int_equal(atomic_load(&c->hard), 1);
    assert_int_equal(atomic_load(&c->interrupt), 1);
    ls_segment_release(&s);
}

static void control_results_are_found(void **state)
{
    (void)state;
    ls_segment s;
    const ls_segment_plan plan = {
        .float_count = 100, .leaves = 4, .ranks = 2, .local_ranks = 2, .epoch = 1, .text = ""};
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    ls_segment_begin_at(&s, 40);
    assert_int_equal(ls_control_results_from(s.control), 40);
    assert_null(ls_control_with_result(s.control, 39));
    for (uint64_t step = 40; step < 43; step++) { /* rank 1 was there first, rank 0 went further */
        ls_control_result(s.control, step < 41 ? 1 : 0, &(ls_rank_result){.step = step, .end_ns = 1});
    }
    assert_int_equal(ls_control_results_from(s.control), 40);
    assert_ptr_equal(ls_control_with_result(s.control, 40), &s.control->slots[1]);
    assert_ptr_equal(ls_control_with_result(s.control, 42), &s.control->slots[0]);
    assert_null(ls_control_with_result(s.control, 43));
    ls_segment_release(&s);
}

static void control_team_changes_behind_a_fence(void **state)
{
    (void)state;
    const ls_segment_plan plan = small_plan();
    ls_segment s;
    assert_int_equal(ls_segment_create(&plan, &s), LS_OK);
    ls_control *c = s.control;
    assert_int_equal(atomic_load(&c->team_epoch), 5);
    assert_false(ls_control_is_fenced(c, 7));

    ls_control_fence(c, 6, false);
    ls_control_limit(c, 3);
    assert_false(ls_control_is_fenced(c, 2)); /* step 2 is still run */
    assert_true(ls_control_is_fenced(c, 3));
    assert_int_equal(atomic_load(&c->interrupt), 0);
    ls_control_park(c, 0, 5);
    assert_true(ls_control_is_parked(c, 0));
    assert_false(ls_control_is_parked(c, 1));

    /* a rank dies meanwhile: who is parked touches nothing, and stays so */
    ls_control_fence(c, 7, true);
    assert_true(ls_control_is_parked(c, 0));
    assert_true(ls_control_is_fenced(c, 2));
    assert_int_not_equal(atomic_load(&c->interrupt), 0);

    ls_team team;
    ls_control_read_team(c, &team);
    team.epoch = 7;
    team.holder[2] = 0;
    ls_control_team(c, &team);
    assert_false(ls_control_is_fenced(c, 2));
    assert_false(ls_control_is_parked(c, 0));
    assert_int_equal(atomic_load(&c->interrupt), 0);
    ls_control_read_team(c, &team);
    assert_int_equal(team.holder[2], 0);
    assert_int_equal(team.cut, 5);

    assert_true(ls_control_abort(c, LS_ERR_DATA, -1, "bad"));
    ls_control_fence(c, 8, true);
    team.epoch = 8;
    ls_control_team(c, &team);
    assert_int_not_equal(atomic_load(&c->interrupt), 0); /* the abort stays */
    ls_segment_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segment_places_follow_from_the_plan),
        cmocka_unit_test(segment_has_buffers_for_any_cut),
        cmocka_unit_test(segment_pages_come_with_the_first_touch),
        cmocka_unit_test(segment_is_one_memory_in_two_processes),
        cmocka_unit_test(segment_attach_refuses_what_is_none),
        cmocka_unit_test(control_keeps_the_first_abort),
        cmocka_unit_test(control_abort_outlives_who_claimed_it),
        cmocka_unit_test(control_grants_never_shrink),
        cmocka_unit_test(control_is_consistent_between_updates_alone),
        cmocka_unit_test(control_fence_alone_raises_one),
        cmocka_unit_test(control_results_are_found),
        cmocka_unit_test(control_team_changes_behind_a_fence),
        cmocka_unit_test(control_unpark_looks_once_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
