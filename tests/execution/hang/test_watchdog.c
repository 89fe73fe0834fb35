// SPDX-License-Identifier: Apache-2.0
/* What the watchdog reports about ranks that are late, differ, or wait in a circle. */
#include "test.h"

#include "execution/hang/watchdog_world.h"

#include "execution/hang/stack.h"

static void watchdog_names_who_is_late_and_when_it_came(void **state)
{
    (void)state;
    world w;
    world_init(&w, 3);
    puppet_take(&w.puppets, 1);
    ls_flight_position(3, 2);
    ls_flight_activity(LS_ACTIVITY_BACKWARD, 17);
    world_start(&w);
    ls_flight_record *zero = puppet_begin(&w.puppets, 0, at(all_reduce, 1, 10 * MS));
    ls_flight_record *two = puppet_begin(&w.puppets, 2, at(all_reduce, 1, 20 * MS));
    run_until(&w, 900 * MS);
    assert_int_equal(w.event_count, 0); /* no history: at least a second */
    run_until(&w, 5 * second);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(w.names[0], "late");
    assert_int_equal(json_integer_value(json_object_get(w.events[0], "rank")), 1);
    assert_int_equal(json_integer_value(json_object_get(w.events[0], "pid")), getpid());
    assert_int_equal(json_array_size(json_object_get(w.events[0], "waiting")), 2);
    assert_int_equal(json_integer_value(json_object_get(w.events[0], "step")), 3);
    assert_string_equal(text_of(&w, 0, "why"), "compute");
    assert_string_equal(text_of(&w, 0, "site"), "src/model.c:120");
    expect_in(text_of(&w, 0, "text"),
              "is in backward (plan step 17) of step 3, leaf 2; ranks 0, 2 wait for it in "
              "all_reduce sum of 1000 f32 (number 1 of world) at src/model.c:120");
    ls_flight_record *one = puppet_begin(&w.puppets, 1, at(all_reduce, 1, 5 * second));
    puppet_end(&w.puppets, 0, zero, 5 * second + MS, 5 * second);
    puppet_end(&w.puppets, 1, one, 5 * second + MS, 0);
    puppet_end(&w.puppets, 2, two, 5 * second + MS, 5 * second);
    run_until(&w, 6 * second);
    assert_int_equal(w.event_count, 2);
    assert_string_equal(w.names[1], "late_over");
    assert_int_equal(w.fatal_count, 0);
    world_release(&w);
}

static void watchdog_knows_what_is_usual_at_a_site(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    world_start(&w);
    uint64_t now = 10 * MS;
    for (uint64_t seq = 1; seq <= 20; seq++, now += 2 * MS) {
        all_do(&w, seq, now, MS / 10);
    }
    run_until(&w, now);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 21, now));
    run_until(&w, now + 240 * MS);
    assert_int_equal(w.event_count, 0);
    run_until(&w, now + 400 * MS);
    assert_int_equal(w.event_count, 1);
    world_release(&w);

    /* Where ranks usually wait for 100 ms, a rank is late after 8 times that. */
    world_init(&w, 2);
    world_start(&w);
    now = 10 * MS;
    for (uint64_t seq = 1; seq <= 20; seq++, now += 2 * MS) {
        all_do(&w, seq, now, 100 * MS);
    }
    run_until(&w, now);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 21, now));
    run_until(&w, now + 790 * MS);
    assert_int_equal(w.event_count, 0);
    run_until(&w, now + 1200 * MS);
    assert_int_equal(w.event_count, 1);
    world_release(&w);
}

static void watchdog_is_silent_about_ranks_without_orders(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    puppet_take(&w.puppets, 0);
    ls_flight_activity(LS_ACTIVITY_IDLE, 0);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 1, at(all_reduce, 1, MS));
    run_until(&w, 500 * second);
    assert_int_equal(w.event_count, 0);
    assert_int_equal(w.fatal_count, 0);
    world_release(&w);
}

static void watchdog_ends_a_hang_after_its_time(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    puppet_take(&w.puppets, 1);
    ls_flight_activity(LS_ACTIVITY_DATA, 0);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    run_until(&w, 59 * second);
    assert_int_equal(w.fatal_count, 0);
    run_until(&w, 62 * second);
    assert_int_equal(w.fatal_count, 1);
    expect_in(w.fatal, "hang: rank 1 (");
    expect_in(w.fatal, "is drawing samples");
    expect_in(w.fatal,
              "rank 0 waits for it in all_reduce sum of 1000 f32 (number 1 of world) at src/model.c:120");
    expect_in(w.fatal, "job.hang_timeout is 60 s");
    run_until(&w, 200 * second);
    assert_int_equal(w.fatal_count, 1);
    world_release(&w);
}

static void watchdog_finds_an_order_deadlock(void **state)
{
    (void)state;
    world w;
    world_init(&w, 3);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(puppet_join(&w.puppets, rank, 8, rank, 2, "rows"), 2);
        assert_int_equal(puppet_join(&w.puppets, rank, 9, rank, 2, "columns"), 3);
    }
    world_start(&w);
    puppet_op rows = {.comm_id = 8, .slot = 2, .kind = LS_COMM_ALL_GATHER, .count = 7, .line = 1};
    puppet_op columns = {.comm_id = 9, .slot = 3, .kind = LS_COMM_BARRIER, .line = 2};
    (void)puppet_begin(&w.puppets, 0, at(rows, 1, MS));
    (void)puppet_begin(&w.puppets, 1, at(columns, 1, 2 * MS));
    (void)puppet_begin(&w.puppets, 2, at(all_reduce, 1, 3 * MS));
    run_until(&w, 3 * second);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "why"), "deadlock");
    assert_true(w.times_ns[0] < 400 * MS);
    assert_int_equal(w.fatal_count, 1);
    assert_true(w.fatal_ns < 1200 * MS);
    expect_in(w.fatal, "order deadlock: ");
    expect_in(w.fatal, "rank 0 waits for rank 1 in all_gather of 7 f32 (number 1 of rows) at src/model.c:1");
    expect_in(w.fatal, "rank 1 waits for rank 0 in barrier (number 1 of columns) at src/model.c:2");
    expect_in(w.fatal, "rank 2 waits for them");
    world_release(&w);
}

/* Snapshots of ranks on different hosts are of different moments. */
static void watchdog_takes_an_old_snapshot_of_a_pair_for_no_circle(void **state)
{
    (void)state;
    puppet_op receive = {
        .comm_id = 1, .slot = 1, .kind = LS_COMM_RECEIVE, .count = 9, .is_pair = true, .line = 1};
    puppet_op send = receive;
    send.kind = LS_COMM_SEND;
    send.line = 2;
    for (int circle = 0; circle < 2; circle++) {
        world w;
        world_init(&w, 2);
        world_start(&w);
        receive.peer = 1;
        (void)puppet_begin(&w.puppets, 0, at(receive, 12, MS));
        receive.peer = 0;
        /* of an earlier turn of the same pair, or a circle: each receives */
        (void)puppet_begin(&w.puppets, 1, circle ? at(receive, 1, 2 * MS) : at(send, 10, 2 * MS));
        run_until(&w, 5 * second);
        assert_int_equal(w.fatal_count, circle);
        world_release(&w);
    }
}

static void watchdog_finds_a_mismatch(void **state)
{
    (void)state;
    world w;
    world_init(&w, 3);
    world_start(&w);
    all_do(&w, 1, MS, 0);
    puppet_op other = all_reduce;
    other.count = 999;
    other.line = 7;
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 2, 3 * MS));
    (void)puppet_begin(&w.puppets, 1, at(other, 2, 3 * MS));
    (void)puppet_begin(&w.puppets, 2, at(all_reduce, 2, 3 * MS));
    run_until(&w, 300 * MS);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(w.names[0], "mismatch");
    assert_int_equal(json_array_size(json_object_get(w.events[0], "sides")), 2);
    assert_int_equal(w.fatal_count, 1);
    expect_in(w.fatal, "ranks disagree about operation 2 of world: rank 0 (");
    expect_in(w.fatal, "called all_reduce sum of 1000 f32 at src/model.c:120; rank 1 (");
    expect_in(w.fatal, "called all_reduce sum of 999 f32 at src/model.c:7");
    expect_in(w.fatal, "2 of 3 agree on all_reduce sum of 1000 f32: look at the others");
    world_release(&w);
}

static void watchdog_says_that_a_rank_is_stopped_and_where(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    w.stacks = true;
    const pid_t child = give_process(&w, 1, 60);
    assert_int_equal(kill(child, SIGSTOP), 0);
    int wait_status = 0;
    assert_int_equal(waitpid(child, &wait_status, WUNTRACED), child);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    run_until(&w, 500 * MS);
    /* After its stack was read it is still stopped, or stops again at once. */
    ls_process_state state_after = ls_process_look(child, 0);
    for (int i = 0; i < 100 && state_after != LS_PROCESS_STOPPED; i++) {
        usleep(10000);
        state_after = ls_process_look(child, 0);
    }
    kill(child, SIGKILL);
    waitpid(child, &wait_status, 0);
    assert_int_equal(state_after, LS_PROCESS_STOPPED);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "why"), "stopped");
    json_t *stack = json_object_get(w.events[0], "stack");
    if (!stack) { /* without ptrace or libdw the report says so */
        assert_true(strlen(text_of(&w, 0, "no_stack")) > 0);
        print_message("no stack: %s\n", text_of(&w, 0, "no_stack"));
    }
    /* Whether stopped in its loop or still in fork, this function is on its stack. */
    bool found = !stack;
    for (size_t i = 0; i < json_array_size(stack); i++) {
        found = found ||
                strstr(json_string_value(json_array_get(stack, i)), "tests/execution/hang/test_watchdog.c:");
    }
    assert_true(found);
    world_release(&w);
}

static void watchdog_says_that_a_rank_is_dead(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    const pid_t child = give_process(&w, 1, 60);
    int wait_status = 0;
    kill(child, SIGKILL);
    waitpid(child, &wait_status, 0);
    ls_flight_note_exit(puppet_path(&w.puppets, 1), wait_status);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    run_until(&w, 500 * MS);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "why"), "dead");
    expect_in(text_of(&w, 0, "text"), "was killed by signal 9 (SIGKILL)");
    world_release(&w);
}

static void watchdog_gives_up_on_a_rank_that_has_finished(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    ls_flight_close(w.puppets.flights[1]);
    w.puppets.flights[1] = NULL;
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    run_until(&w, 2 * second);
    assert_string_equal(text_of(&w, 0, "why"), "finished");
    assert_int_equal(w.fatal_count, 1);
    expect_in(w.fatal, "has finished and will not call again; rank 0 waits for it");
    world_release(&w);
}

static void watchdog_names_a_rank_that_never_started(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    ls_flight_close(w.puppets.flights[1]);
    w.puppets.flights[1] = NULL;
    assert_int_equal(unlink(puppet_path(&w.puppets, 1)), 0);
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    run_until(&w, 2 * second);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "why"), "not_started");
    expect_in(text_of(&w, 0, "text"), "rank 1 has not started; rank 0 waits for it");
    world_release(&w);
}

/* Rank 0 has handed over the gradients of a layer and computes the next one: it does not wait for
 * rank 1, which is slower. */
static void watchdog_tells_overlap_from_waiting(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    world_start(&w);
    puppet_op bucket = {.comm_id = 1, .slot = 1, .kind = LS_COMM_TREE_REDUCE, .count = 1000, .line = 5};
    (void)puppet_begin(&w.puppets, 0, at(bucket, 1, MS));
    puppet_take(&w.puppets, 0);
    ls_flight_activity(LS_ACTIVITY_BACKWARD, 3);
    ls_flight_mapped->now.since_ns = 2 * MS;
    run_until(&w, 3 * second);
    assert_int_equal(w.event_count, 0);
    /* Now it has nothing left to do. */
    puppet_take(&w.puppets, 0);
    ls_flight_activity(LS_ACTIVITY_COMM, 0);
    ls_flight_mapped->now.since_ns = 3 * second;
    run_until(&w, 3 * second + 900 * MS);
    assert_int_equal(w.event_count, 0);
    run_until(&w, 10 * second);
    assert_int_equal(w.event_count, 1);
    assert_int_equal(json_integer_value(json_object_get(w.events[0], "rank")), 1);
    expect_in(text_of(&w, 0, "text"), "rank 0 waits for it in tree_reduce sum of 1000 f32");
    world_release(&w);
}

/* Two of four ranks are here: the others must not be reported as not started. */
static void watchdog_of_one_host_knows_what_it_cant_see(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    w.ranks = 4;
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(puppet_join(&w.puppets, rank, 5, rank, 4, "everybody"), 2);
    }
    world_start(&w);
    puppet_op op = {.comm_id = 5, .slot = 2, .kind = LS_COMM_ALL_REDUCE, .count = 10, .line = 5};
    (void)puppet_begin(&w.puppets, 0, at(op, 1, MS));
    (void)puppet_begin(&w.puppets, 1, at(op, 1, MS));
    run_until(&w, 3 * second);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "why"), "inside");
    expect_in(text_of(&w, 0, "text"),
              "ranks 0, 1 wait in all_reduce sum of 10 f32 (number 1 of everybody) at "
              "src/model.c:5 for 2 ranks on other hosts");
    world_release(&w);
}

/* The ranks that wait for it are on other hosts. */
static void watchdog_of_one_host_names_a_stopped_rank_that_nobody_here_waits_for(void **state)
{
    (void)state;
    world w;
    world_init(&w, 1);
    w.ranks = 2;
    const pid_t child = give_process(&w, 0, 60);
    int wait_status = 0;
    kill(child, SIGSTOP);
    waitpid(child, &wait_status, WUNTRACED);
    world_start(&w);
    run_until(&w, second);
    kill(child, SIGKILL);
    waitpid(child, &wait_status, 0);
    run_until(&w, 2 * second);
    assert_int_equal(w.event_count, 2);
    assert_string_equal(text_of(&w, 0, "why"), "stopped");
    assert_string_equal(w.names[1], "late_over");
    world_release(&w);
}

/* Rank 0 is here and waits for rank 1, which is stopped on another host. */
static void far_init(world *w)
{
    world_init(w, 2);
    w->here = 1;
    w->stacks = w->can_ask = true;
    world_start(w);
    run_until(w, 10 * MS);
    (void)puppet_begin(&w->puppets, 0, at(all_reduce, 1, 10 * MS));
}

static void watchdog_names_a_rank_of_another_host_with_its_stack(void **state)
{
    (void)state;
    world w;
    far_init(&w);
    far_until(&w, 1, LS_PROCESS_STOPPED, 240 * MS);
    assert_int_equal(w.asked, 0);
    far_until(&w, 1, LS_PROCESS_STOPPED, 450 * MS);
    assert_int_equal(w.asked, 1);
    assert_int_equal(w.event_count, 0);
    ls_watchdog_answer(w.watch, 1, true, "inner at src/a.c:1\nouter at src/b.c:2\n");
    far_until(&w, 1, LS_PROCESS_STOPPED, 550 * MS);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(w.names[0], "late");
    assert_string_equal(text_of(&w, 0, "why"), "stopped");
    assert_int_equal(json_integer_value(json_object_get(w.events[0], "rank")), 1);
    const json_t *stack = json_object_get(w.events[0], "stack");
    assert_int_equal(json_array_size(stack), 2);
    assert_string_equal(json_string_value(json_array_get(stack, 1)), "outer at src/b.c:2");
    far_until(&w, 1, LS_PROCESS_STOPPED, 62 * second);
    assert_int_equal(w.asked, 1);
    assert_int_equal(w.event_count, 1);
    assert_int_equal(w.fatal_count, 1);
    assert_true(w.fatal_ns > 60 * second);
    expect_in(w.fatal, "hang: rank 1 (");
    expect_in(w.fatal, "is stopped");
    expect_in(w.fatal, "    inner at src/a.c:1");
    world_release(&w);
}

static void watchdog_does_not_wait_long_for_a_stack(void **state)
{
    (void)state;
    world w;
    far_init(&w);
    far_until(&w, 1, LS_PROCESS_STOPPED, 2 * second);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "no_stack"), "its host did not answer in time");
    assert_true(w.times_ns[0] > 900 * MS && w.times_ns[0] < 1200 * MS);
    world_release(&w);

    far_init(&w);
    w.can_ask = false;
    far_until(&w, 1, LS_PROCESS_STOPPED, 400 * MS);
    assert_int_equal(w.event_count, 1);
    assert_true(strlen(text_of(&w, 0, "no_stack")) > 0);
    world_release(&w);
}

static void watchdog_believes_what_it_was_told_for_a_while_only(void **state)
{
    (void)state;
    world w;
    far_init(&w);
    far_until(&w, 1, LS_PROCESS_STOPPED, 2 * second);
    run_until(&w, 10 * second); /* its agent sends nothing more */
    assert_int_equal(w.event_count, 3);
    assert_string_equal(text_of(&w, 0, "why"), "stopped");
    assert_string_equal(text_of(&w, 1, "why"), "inside");
    expect_in(text_of(&w, 1, "text"), "for 1 rank on other hosts");
    assert_string_equal(w.names[2], "late_over");
    world_release(&w);
}

static void watchdog_hears_of_ranks_of_other_hosts_that_wait_for_one_of_this(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    w.here = 1;
    puppet_take(&w.puppets, 0);
    ls_flight_activity(LS_ACTIVITY_DATA, 0);
    world_start(&w);
    run_until(&w, 10 * MS);
    (void)puppet_begin(&w.puppets, 1, at(all_reduce, 1, 10 * MS));
    far_until(&w, 1, LS_PROCESS_ALIVE, 900 * MS);
    assert_int_equal(w.event_count, 0);
    far_until(&w, 1, LS_PROCESS_ALIVE, 2 * second);
    assert_int_equal(w.event_count, 1);
    assert_string_equal(text_of(&w, 0, "why"), "data");
    expect_in(text_of(&w, 0, "text"), "rank 1 waits for it in all_reduce");
    world_release(&w);
}

static void watchdog_that_only_sees_names_nobody_late(void **state)
{
    (void)state;
    world w;
    world_init(&w, 2);
    w.only_sees = true;
    world_start(&w);
    (void)puppet_begin(&w.puppets, 0, at(all_reduce, 1, MS));
    run_until(&w, 100 * second);
    assert_int_equal(w.event_count, 0);
    assert_int_equal(w.fatal_count, 0);
    assert_true(w.looks > 900);
    assert_int_equal(w.seen, 2);
    world_release(&w);
}

static void stack_refuses_what_has_ended(void **state)
{
    (void)state;
    ls_text text = {0};
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    int wait_status = 0;
    waitpid(child, &wait_status, 0);
    assert_int_equal(ls_stack_take(child, 12, &text), LS_ERR_NOT_FOUND);
    assert_int_equal(text.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watchdog_names_who_is_late_and_when_it_came),
        cmocka_unit_test(watchdog_knows_what_is_usual_at_a_site),
        cmocka_unit_test(watchdog_is_silent_about_ranks_without_orders),
        cmocka_unit_test(watchdog_ends_a_hang_after_its_time),
        cmocka_unit_test(watchdog_finds_an_order_deadlock),
        cmocka_unit_test(watchdog_takes_an_old_snapshot_of_a_pair_for_no_circle),
        cmocka_unit_test(watchdog_finds_a_mismatch),
        cmocka_unit_test(watchdog_says_that_a_rank_is_stopped_and_where),
        cmocka_unit_test(watchdog_says_that_a_rank_is_dead),
        cmocka_unit_test(watchdog_gives_up_on_a_rank_that_has_finished),
        cmocka_unit_test(watchdog_names_a_rank_that_never_started),
        cmocka_unit_test(watchdog_tells_overlap_from_waiting),
        cmocka_unit_test(watchdog_of_one_host_knows_what_it_cant_see),
        cmocka_unit_test(watchdog_of_one_host_names_a_stopped_rank_that_nobody_here_waits_for),
        cmocka_unit_test(watchdog_names_a_rank_of_another_host_with_its_stack),
        cmocka_unit_test(watchdog_does_not_wait_long_for_a_stack),
        cmocka_unit_test(watchdog_believes_what_it_was_told_for_a_while_only),
        cmocka_unit_test(watchdog_hears_of_ranks_of_other_hosts_that_wait_for_one_of_this),
        cmocka_unit_test(watchdog_that_only_sees_names_nobody_late),
        cmocka_unit_test(stack_refuses_what_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
