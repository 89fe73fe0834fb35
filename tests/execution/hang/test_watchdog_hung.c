// SPDX-License-Identifier: Apache-2.0
/* Ranks that hang are handed over to be ended; slow ranks are not. */
#include "test.h"

#include "execution/hang/watchdog_world.h"

static void hung_world_init(world *w, uint32_t ranks)
{
    world_init(w, ranks);
    w->hang_timeout_s = 10;
    w->hands_over = true;
}

static pid_t stopped_process(world *w, uint32_t rank)
{
    const pid_t child = give_process(w, rank, 60);
    int wait_status = 0;
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &wait_status, WUNTRACED), child);
    return child;
}

static void end_process(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void does(world *w, uint32_t rank, ls_activity activity, uint64_t since_ns)
{
    puppet_take(&w->puppets, rank);
    ls_flight_activity(activity, 0);
    ls_flight_mapped->now.since_ns = since_ns;
}

static void hung_rank_is_handed_over(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 3);
    does(&w, 1, LS_ACTIVITY_DATA, 0);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    (void)puppet_begin(&w.puppets, 2, at(all_reduce, 1, MS));
    run_until(&w, 9 * second);
    assert_int_equal(w.hung_count, 0);
    assert_int_equal(w.event_count, 1);
    run_until(&w, 11 * second);
    assert_int_equal(w.hung_count, 1);
    assert_int_equal(w.hung_rank[0], 1);
    assert_int_equal(w.hung_pid[0], getpid());
    expect_in(w.hung, "made no progress for 10.");
    expect_in(w.hung, "s (job.hang_timeout is 10 s)");
    assert_string_equal(w.names[1], "hung");
    assert_int_equal(json_integer_value(json_object_get(w.events[1], "rank")), 1);
    assert_string_equal(text_of(&w, 1, "why"), "data");
    expect_in(text_of(&w, 1, "text"), "rank 1 (");
    expect_in(text_of(&w, 1, "text"), "is drawing samples");
    expect_in(text_of(&w, 1, "text"), "ranks 0, 2 wait for it in all_reduce sum of 1000 f32");
    assert_true(json_real_value(json_object_get(w.events[1], "waited_s")) >= 10.0);
    run_until(&w, 100 * second);
    assert_int_equal(w.hung_count, 1); /* called once: ls_watchdog_leave reports when it is gone */
    assert_int_equal(w.fatal_count, 0);
    world_release(&w);
}

static void hung_rank_that_cant_be_ended_ends_the_run(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 2);
    w.refuses = true;
    does(&w, 1, LS_ACTIVITY_DATA, 0);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    run_until(&w, 12 * second);
    assert_int_equal(w.hung_count, 1);
    assert_int_equal(w.fatal_count, 1);
    expect_in(w.fatal, "hang: rank 1 (");
    expect_in(w.fatal, "job.hang_timeout is 10 s");
    world_release(&w);
}

/* Waited for much longer than the timeout, but never at the same activity for long. */
static void slow_rank_that_moves_is_late_and_no_more(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 2);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    for (uint64_t s = 0; s < 60; s += 6) {
        does(&w, 1, LS_ACTIVITY_FORWARD, s * second);
        run_until(&w, (s + 6) * second);
    }
    assert_int_equal(w.event_count, 1);
    assert_string_equal(w.names[0], "late");
    assert_int_equal(w.hung_count + w.fatal_count, 0);
    world_release(&w);
}

static void two_stopped_ranks_are_both_handed_over(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 3);
    const pid_t one = stopped_process(&w, 1), two = stopped_process(&w, 2);
    does(&w, 2, LS_ACTIVITY_BACKWARD, 0);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    (void)puppet_begin(&w.puppets, 1, at(all_reduce, 1, MS)); /* stopped inside the operation */
    run_until(&w, 13 * second);
    end_process(one);
    end_process(two);
    assert_int_equal(w.hung_count, 2);
    assert_int_equal(w.hung_rank[0] + w.hung_rank[1], 3);
    assert_true(w.hung_pid[0] + w.hung_pid[1] == one + two);
    assert_int_equal(w.fatal_count, 0);
    world_release(&w);
}

/* No rank is inside an operation, as when the other ranks are parked. */
static void stopped_rank_hangs_by_itself(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 2);
    const pid_t child = stopped_process(&w, 1);
    does(&w, 1, LS_ACTIVITY_BACKWARD, 0);
    does(&w, 0, LS_ACTIVITY_BACKWARD, 0); /* its process runs, and no rank waits for it */
    world_start(&w);
    run_until(&w, 10 * second);
    assert_int_equal(w.hung_count, 0);
    run_until(&w, 60 * second);
    end_process(child);
    assert_int_equal(w.hung_count, 1);
    assert_int_equal(w.hung_rank[0], 1);
    assert_true(w.hung_ns[0] > 11 * second && w.hung_ns[0] < 12 * second);
    expect_in(w.hung, "was stopped for 11.");
    assert_int_equal(w.fatal_count, 0);
    world_release(&w);
}

static void idle_rank_hangs_when_it_is_wanted(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 2);
    const pid_t child = stopped_process(&w, 1);
    does(&w, 0, LS_ACTIVITY_IDLE, 0);
    does(&w, 1, LS_ACTIVITY_IDLE, 0);
    world_start(&w);
    run_until(&w, 100 * second); /* as when the trainer saves */
    assert_int_equal(w.hung_count, 0);
    w.wanted = 2;
    run_until(&w, 110 * second);
    assert_int_equal(w.hung_count, 0);
    run_until(&w, 112 * second);
    end_process(child);
    assert_int_equal(w.hung_count, 1);
    assert_int_equal(w.hung_rank[0], 1);
    world_release(&w);
}

static void stop_that_ends_in_time_is_forgotten(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 2);
    const pid_t child = give_process(&w, 1, 60);
    int wait_status = 0;
    does(&w, 1, LS_ACTIVITY_BACKWARD, 0);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    for (uint64_t round = 1; round <= 5; round++) {
        kill(child, SIGSTOP);
        assert_int_equal(waitpid(child, &wait_status, WUNTRACED), child);
        run_until(&w, (round * 9 - 1) * second);
        kill(child, SIGCONT);
        assert_int_equal(waitpid(child, &wait_status, WCONTINUED), child);
        does(&w, 1, LS_ACTIVITY_BACKWARD, (round * 9 - 1) * second); /* it makes progress */
        run_until(&w, round * 9 * second);
    }
    end_process(child);
    assert_int_equal(w.hung_count + w.fatal_count, 0);
    world_release(&w);
}

static void traced_rank_is_spared_on_request(void **state)
{
    (void)state;
    for (int spare = 0; spare < 2; spare++) {
        world w;
        hung_world_init(&w, 2);
        w.here = 1;
        w.spare_traced = spare;
        world_start(&w);
        does(&w, 1, LS_ACTIVITY_BACKWARD, 0);
        (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
        far_until(&w, 1, LS_PROCESS_TRACED, 30 * second);
        assert_int_equal(w.hung_count, spare ? 0 : 1);
        assert_int_equal(w.fatal_count, 0);
        assert_string_equal(text_of(&w, 0, "why"), "traced");
        world_release(&w);
    }
}

/* Its agent sends nothing for a while, then that the rank is unchanged: the time in between does
 * not count. */
static void far_rank_hangs_by_what_was_seen(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 2);
    w.here = 1;
    world_start(&w);
    does(&w, 1, LS_ACTIVITY_BACKWARD, 0);
    does(&w, 0, LS_ACTIVITY_IDLE, 0);
    far_until(&w, 1, LS_PROCESS_STOPPED, 5 * second);
    run_until(&w, 60 * second);
    far_until(&w, 1, LS_PROCESS_STOPPED, 62 * second);
    assert_int_equal(w.hung_count, 0);
    far_until(&w, 1, LS_PROCESS_STOPPED, 70 * second);
    assert_int_equal(w.hung_count, 1);
    assert_int_equal(w.hung_rank[0], 1);
    world_release(&w);
}

/* A rank is lost, the others continue without it, then another process takes its place. */
static void rank_that_left_is_waited_for_by_nobody(void **state)
{
    (void)state;
    world w;
    hung_world_init(&w, 3);
    world_start(&w);
    ls_flight_record *zero = puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    ls_flight_record *two = puppet_begin(&w.puppets, 2, at(all_reduce, 1, MS));
    run_until(&w, 200 * MS);
    ls_watchdog_leave(w.watch, 1);
    run_until(&w, 9 * second);
    /* the two ranks are inside, and the reason cannot be seen */
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "why"), "inside");
    puppet_end(&w.puppets, 0, zero, 9 * second, 0);
    puppet_end(&w.puppets, 2, two, 9 * second, 0);
    run_until(&w, 9 * second + 200 * MS);
    assert_int_equal(w.event_count, 2);

    ls_flight_close(w.puppets.flights[1]); /* it ended well: waiting for it is hopeless */
    puppet_create(&w.puppets, 1);
    assert_int_equal(puppet_join(&w.puppets, 1, 1, 1, 3, "world"), 1);
    does(&w, 1, LS_ACTIVITY_DATA, 9 * second);
    ls_watchdog_join(w.watch, 1);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 2, 9 * second));
    (void)puppet_begin(&w.puppets, 2, at(all_reduce, 2, 9 * second));
    run_until(&w, 15 * second);
    assert_int_equal(w.event_count, 3);
    assert_string_equal(text_of(&w, 2, "why"), "data");
    run_until(&w, 25 * second);
    assert_int_equal(w.hung_count, 1);
    assert_int_equal(w.hung_rank[0], 1);
    assert_int_equal(w.fatal_count, 0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hung_rank_is_handed_over),
        cmocka_unit_test(hung_rank_that_cant_be_ended_ends_the_run),
        cmocka_unit_test(slow_rank_that_moves_is_late_and_no_more),
        cmocka_unit_test(two_stopped_ranks_are_both_handed_over),
        cmocka_unit_test(stopped_rank_hangs_by_itself),
        cmocka_unit_test(idle_rank_hangs_when_it_is_wanted),
        cmocka_unit_test(stop_that_ends_in_time_is_forgotten),
        cmocka_unit_test(traced_rank_is_spared_on_request),
        cmocka_unit_test(far_rank_hangs_by_what_was_seen),
        cmocka_unit_test(rank_that_left_is_waited_for_by_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
