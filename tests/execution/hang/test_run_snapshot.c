// SPDX-License-Identifier: Apache-2.0
/* A run snapshot from flight files, the verdict, and the trace. The ranks are puppets; their
 * process is this one, or one that has ended. */
#include "test.h"

#include "comm/flight/flight_puppets.h"

#include "execution/hang/timeline.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MS = 1000000 };

typedef struct stage {
    char run_dir[64];
    puppets puppets;
    ls_arena arena;
    ls_run_snapshot run;
    ls_text sentence;
    const ls_culprit *culprit;
} stage;

static const puppet_op all_reduce = {
    .comm_id = 1, .slot = 1, .kind = LS_COMM_ALL_REDUCE, .count = 1000, .line = 120};

static void stage_init(stage *s, uint32_t ranks)
{
    memset(s, 0, sizeof *s);
    puppets_init(&s->puppets, ranks);
    /* The puppets' folder becomes RUN/flight. */
    snprintf(s->run_dir, sizeof s->run_dir, "%s.run", s->puppets.folder);
    char flight[80];
    assert_int_equal(ls_dir_create(s->run_dir), LS_OK);
    snprintf(flight, sizeof flight, "%s/flight", s->run_dir);
    assert_int_equal(rename(s->puppets.folder, flight), 0);
    assert_int_equal(symlink(flight, s->puppets.folder), 0);
    puppets_join_world(&s->puppets);
}

static void stage_release(stage *s)
{
    ls_run_snapshot_close(&s->run);
    for (uint32_t i = 0; i < s->puppets.count; i++) {
        ls_flight_close(s->puppets.flights[i]);
    }
    ls_text_release(&s->sentence);
    ls_arena_release(&s->arena);
    unlink(s->puppets.folder);
    assert_int_equal(ls_dir_remove(s->run_dir), LS_OK);
}

static ls_run_verdict look(stage *s)
{
    if (ls_run_snapshot_open(&s->arena, s->run_dir, &s->run) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return ls_run_snapshot_judge(&s->run, 5.0, NULL, &s->sentence, &s->culprit);
}

static void expect_sentence(const stage *s, const char *part)
{
    if (!strstr(ls_text_string(&s->sentence), part)) {
        fail_msg("'%s' is not in '%s'", part, ls_text_string(&s->sentence));
    }
}

static puppet_op at(uint64_t seq, uint64_t begin_ns)
{
    puppet_op op = all_reduce;
    op.seq = seq;
    op.begin_ns = begin_ns;
    return op;
}

static void all_do(stage *s, uint64_t seq, uint64_t ns)
{
    for (uint32_t rank = 0; rank < s->puppets.count; rank++) {
        /* The last rank arrives 5 ms after the others. */
        const uint64_t begin_ns = ns + (rank + 1 == s->puppets.count ? 5 * MS : 0);
        ls_flight_record *record = puppet_begin(&s->puppets, rank, at(seq, begin_ns));
        puppet_end(&s->puppets, rank, record, ns + 6 * MS, 0);
    }
}

static pid_t dead_process(int *wait_status_out)
{
    const pid_t child = fork();
    if (child == 0) {
        raise(SIGKILL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, wait_status_out, 0), child);
    return child;
}

static void run_snapshot_without_flight_files_is_not_found(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_run_snapshot run;
    char folder[] = "/tmp/lockstep-scene-XXXXXX", flight[64];
    assert_int_equal(ls_run_snapshot_open(&arena, "/nowhere", &run), LS_ERR_NOT_FOUND);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ls_run_snapshot_open(&arena, folder, &run), LS_ERR_NOT_FOUND);
    snprintf(flight, sizeof flight, "%s/flight", folder);
    assert_int_equal(ls_dir_create(flight), LS_OK);
    assert_int_equal(ls_run_snapshot_open(&arena, folder, &run), LS_ERR_NOT_FOUND);
    snprintf(flight, sizeof flight, "%s/flight/rank-0", folder);
    assert_int_equal(ls_file_write_atomic(flight, "abc", 3), LS_OK);
    assert_int_equal(ls_run_snapshot_open(&arena, folder, &run), LS_ERR_DATA);
    assert_int_equal(ls_dir_remove(folder), LS_OK);
    ls_arena_release(&arena);
}

static void run_snapshot_of_a_running_job_is_healthy(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    const uint64_t now_ns = ls_clock_monotonic_ns();
    for (uint64_t seq = 1; seq <= 10; seq++) {
        all_do(&s, seq, now_ns - (11 - seq) * 20 * MS);
    }
    assert_int_equal(look(&s), LS_VERDICT_HEALTHY);
    assert_true(s.run.is_live);
    assert_null(s.culprit);
    assert_int_equal(ls_arrivals_operations(s.run.arrivals), 10);
    stage_release(&s);
}

/* What `lockstep diagnose` lists: 50 operations, rank 1 arrives 24 ms after rank 0 at each. */
static void run_snapshot_names_the_straggler(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    for (uint64_t seq = 1; seq <= 50; seq++) {
        const uint64_t from = seq * 100 * MS;
        ls_flight_record *fast = puppet_begin(&s.puppets, 0, at(seq, from));
        ls_flight_record *slow = puppet_begin(&s.puppets, 1, at(seq, from + 24 * MS));
        puppet_end(&s.puppets, 0, fast, from + 25 * MS, 24 * MS);
        puppet_end(&s.puppets, 1, slow, from + 25 * MS, 0);
    }
    (void)look(&s);
    json_t *report = ls_arrivals_to_json(s.run.arrivals);
    assert_int_equal(json_integer_value(json_object_get(report, "operations")), 50);
    const json_t *first = json_array_get(json_object_get(report, "ranks"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "rank")), 1);
    assert_int_equal(json_integer_value(json_object_get(first, "last")), 50);
    assert_true(json_is_true(json_object_get(first, "straggler")));
    assert_float_equal(json_real_value(json_object_get(first, "cost_s")), 1.2, 1e-9);
    json_decref(report);
    stage_release(&s);
}

static void run_snapshot_of_a_live_hang_names_the_culprit(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 3);
    const uint64_t now_ns = ls_clock_monotonic_ns();
    (void)puppet_begin(&s.puppets, 0, at(1, now_ns - 20000ull * MS));
    (void)puppet_begin(&s.puppets, 2, at(1, now_ns - 10000ull * MS));
    assert_int_equal(look(&s), LS_VERDICT_HANG);
    assert_non_null(s.culprit);
    assert_int_equal(s.culprit->rank, 1);
    expect_sentence(&s, "rank 1 (");
    expect_sentence(&s, "ranks 0, 2 wait for it in all_reduce sum of 1000 f32");
    assert_true(ls_run_snapshot_waited_s(&s.run, s.culprit) > 19.9);
    stage_release(&s);
}

/* The team changed before the rank's first step: the communicator it joined again counts, not
 * the one it left. */
static void run_snapshot_of_a_rank_that_joined_again(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    const uint64_t now_ns = ls_clock_monotonic_ns();
    (void)puppet_begin(&s.puppets, 0, at(1, now_ns - 20000ull * MS));
    puppet_take(&s.puppets, 1);
    ls_flight_leave(1);
    assert_int_equal(puppet_join(&s.puppets, 1, 1, 1, 2, "world"), 2);
    assert_int_equal(look(&s), LS_VERDICT_HANG);
    assert_non_null(s.culprit);
    assert_int_equal(s.culprit->rank, 1);
    assert_int_not_equal(s.culprit->cause, LS_CAUSE_LEFT);
    stage_release(&s);
}

static void run_snapshot_of_a_finished_run(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        puppet_take(&s.puppets, rank);
        ls_flight_position(2000, 0);
    }
    all_do(&s, 1, 10 * MS);
    for (uint32_t rank = 0; rank < 2; rank++) {
        ls_flight_close(s.puppets.flights[rank]);
        s.puppets.flights[rank] = NULL;
    }
    assert_int_equal(look(&s), LS_VERDICT_FINISHED);
    expect_sentence(&s, "all 2 ranks ended well; the last step was 2000");
    assert_false(s.run.is_live);
    stage_release(&s);
}

/* Rank 1 was killed in its backward; the others waited, then their operation failed. */
static void run_snapshot_of_a_killed_rank_is_put_back(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 3);
    int wait_status = 0;
    const pid_t child = dead_process(&wait_status);
    all_do(&s, 1, 10 * MS);
    puppet_take(&s.puppets, 1);
    ls_flight_position(7, 1);
    ls_flight_activity(LS_ACTIVITY_BACKWARD, 3);
    ls_flight_mapped->header.pid = child;
    ls_flight_note_exit(puppet_path(&s.puppets, 1), wait_status);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        ls_flight_record *record = puppet_begin(&s.puppets, rank, at(2, 30 * MS));
        ls_flight_end(record, 40 * MS, UINT32_MAX, 0, LS_ERR_RANKS_LOST);
        ls_flight_last_words("rank 1 is gone");
        ls_flight_close(s.puppets.flights[rank]);
        s.puppets.flights[rank] = NULL;
    }
    assert_int_equal(look(&s), LS_VERDICT_DEAD);
    assert_int_equal(s.culprit->rank, 1);
    assert_int_equal(s.culprit->cause, LS_CAUSE_DEAD);
    expect_sentence(
        &s, "was killed by signal 9 (SIGKILL) in step 7, last seen in backward (plan step 3), leaf 1");
    expect_sentence(&s, "ranks 0, 2 wait for it in");
    stage_release(&s);
}

static void run_snapshot_of_a_run_killed_as_a_whole(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    int wait_status = 0;
    const pid_t child = dead_process(&wait_status);
    all_do(&s, 1, 10 * MS);
    for (uint32_t rank = 0; rank < 2; rank++) {
        puppet_take(&s.puppets, rank);
        ls_flight_mapped->header.pid = child;
    }
    assert_int_equal(look(&s), LS_VERDICT_GONE);
    expect_sentence(&s, "2 of 2 ranks ended in step");
    stage_release(&s);
}

/* Rank 1 was stopped inside; job.hang_timeout ended the run, and the agent killed what did not end
 * by itself. */
static void run_snapshot_of_a_hang_uses_the_runs_own_reason(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 3);
    int wait_status = 0;
    const pid_t child = dead_process(&wait_status);
    for (uint32_t rank = 0; rank < 3; rank++) {
        ls_flight_record *record = puppet_begin(&s.puppets, rank, at(1, 30 * MS));
        if (rank == 1) {
            ls_flight_mapped->header.pid = child;
            ls_flight_note_exit(puppet_path(&s.puppets, 1), wait_status);
            continue;
        }
        ls_flight_end(record, 3000ull * MS, UINT32_MAX, 0, LS_ERR_MISMATCH);
        ls_flight_last_words("hang: rank 1 (a, pid 7) is stopped, for 2.0 s\n    main at src/a.c:1");
        ls_flight_close(s.puppets.flights[rank]);
        s.puppets.flights[rank] = NULL;
    }
    assert_int_equal(look(&s), LS_VERDICT_HANG);
    assert_string_equal(ls_text_string(&s.sentence), "hang: rank 1 (a, pid 7) is stopped, for 2.0 s");
    assert_int_equal(s.run.graph.culprit_count, 1);
    assert_int_equal(s.culprit->rank, 1);
    assert_int_equal(s.culprit->cause, LS_CAUSE_STOPPED);
    stage_release(&s);
}

static void write_in_run(const stage *s, const char *name, const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", s->run_dir, name);
    assert_int_equal(ls_file_write_atomic(path, text, strlen(text)), LS_OK);
}

/* All were inside one operation when the trainer was killed, and they with it. */
static void run_snapshot_without_a_trainer_blames_no_rank(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    int wait_status = 0;
    char number[32];
    const pid_t child = dead_process(&wait_status), trainer = dead_process(&wait_status);
    snprintf(number, sizeof number, "%d\n", (int)trainer);
    write_in_run(&s, "lock", number);
    for (uint32_t rank = 0; rank < 2; rank++) {
        puppet_take(&s.puppets, rank);
        ls_flight_mapped->header.pid = child;
        (void)puppet_begin(&s.puppets, rank, at(1, 30 * MS));
    }
    assert_int_equal(look(&s), LS_VERDICT_GONE);
    expect_sentence(&s, "because the trainer (pid ");
    assert_null(s.culprit);
    assert_int_equal(s.run.graph.culprit_count, 0);
    stage_release(&s);
}

/* No rank left last words, but the run's events name the reason; events of an earlier start do
 * not count. */
static void run_snapshot_ignores_events_of_earlier_starts(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    int wait_status = 0;
    const pid_t child = dead_process(&wait_status);
    for (uint32_t rank = 0; rank < 2; rank++) {
        puppet_take(&s.puppets, rank);
        ls_flight_mapped->header.pid = child;
        ls_flight_mapped->header.start_wall_s = rank == 0 ? 1000.0 : 500.0;
    }
    snprintf(ls_flight_mapped->header.host, sizeof ls_flight_mapped->header.host, "clock-behind");
    write_in_run(&s, "events.jsonl",
                 "damaged\n"
                 "{\"time\":1000.5,\"event\":\"rank_lost\",\"cause\":\"rank 1 (a, pid 2) ended with signal "
                 "9 (Killed)\"}\n"
                 "{\"time\":999.5,\"event\":\"hang\",\"text\":\"hang: rank 0 (a, pid 1) is stopped\"}\n");
    assert_int_equal(look(&s), LS_VERDICT_DEAD);
    expect_sentence(&s, "dead: rank 1 (");
    assert_int_equal(s.run.ending.rank, 1);
    stage_release(&s);
}

/* Rank 1 was killed and another process took its place; the old flight file is kept under
 * another name. */
static void run_snapshot_of_a_recovered_run_names_no_rank(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    char kept[128];
    int wait_status = 0;
    puppet_take(&s.puppets, 1);
    ls_flight_mapped->header.pid = dead_process(&wait_status);
    ls_flight_note_exit(puppet_path(&s.puppets, 1), SIGKILL);
    snprintf(kept, sizeof kept, "%s.lost-1", puppet_path(&s.puppets, 1));
    assert_int_equal(rename(puppet_path(&s.puppets, 1), kept), 0);
    ls_flight_close(s.puppets.flights[1]);
    puppet_create(&s.puppets, 1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        ls_flight_close(s.puppets.flights[rank]);
        s.puppets.flights[rank] = NULL;
    }
    write_in_run(&s, "events.jsonl",
                 "{\"time\":9e9,\"event\":\"rank_lost\",\"cause\":\"rank 1 (a, pid 2) ended with signal 9 "
                 "(Killed)\"}\n"
                 "{\"time\":9e9,\"event\":\"recovered\",\"step\":3}\n");
    assert_int_equal(look(&s), LS_VERDICT_FINISHED);
    assert_int_equal(s.run.count, 2);
    assert_null(s.culprit);
    stage_release(&s);
}

static void inside_on_one_host_blames_no_network(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    const uint64_t now_ns = ls_clock_monotonic_ns();
    for (uint32_t rank = 0; rank < 2; rank++) {
        (void)puppet_begin(&s.puppets, rank, at(1, now_ns - 20000ull * MS));
        (void)puppet_begin(&s.puppets, rank, at(2, now_ns - 19000ull * MS));
    }
    assert_int_equal(look(&s), LS_VERDICT_HANG);
    expect_sentence(&s, "hang: ranks 0, 1 are all inside");
    expect_sentence(&s, "all are on one host");
    assert_null(strstr(ls_text_string(&s.sentence), "network"));
    ls_text waits = {0};
    ls_graph_append_waits(&s.run.graph, &waits);
    const char *first = strchr(ls_text_string(&waits), '\n');
    assert_non_null(first);
    assert_string_equal(strchr(first + 1, '\n'), "\n"); /* one line for each rank */
    ls_text_release(&waits);
    stage_release(&s);
}

static void add_step(ls_arrivals *arrivals, uint64_t seq, const uint64_t late_ns[3])
{
    ls_disagreement disagreement;
    for (uint32_t rank = 0; rank < 3; rank++) {
        const ls_arrival arrival = {.rank = rank,
                                    .comm_id = 1,
                                    .comm_size = 3,
                                    .kind = LS_COMM_ALL_REDUCE,
                                    .seq = seq,
                                    .begin_ns = seq * 100 * MS + late_ns[rank]};
        assert_false(ls_arrivals_add(arrivals, &arrival, &disagreement));
    }
}

static ls_straggler first_row(uint64_t steps, const uint64_t late_ns[3], const uint32_t *leaves)
{
    ls_straggler rows[3];
    double watched_s = 0.0;
    ls_arrivals *arrivals = ls_arrivals_create(3);
    if (leaves) {
        ls_arrivals_set_leaves(arrivals, leaves);
    }
    for (uint64_t seq = 1; seq <= steps; seq++) {
        add_step(arrivals, seq, late_ns);
    }
    ls_arrivals_report(arrivals, rows, &watched_s);
    ls_arrivals_destroy(arrivals);
    return rows[0];
}

static void straggler_is_nobody_for_its_share_of_leaves(void **state)
{
    (void)state;
    const uint64_t half_ns[3] = {0, 0, 48 * MS}, most_ns[3] = {0, 0, 70 * MS};
    const uint32_t leaves[3] = {1, 1, 2};
    assert_true(first_row(60, half_ns, NULL).is_straggler);
    assert_false(first_row(49, half_ns, NULL).is_straggler);
    const ls_straggler row = first_row(60, half_ns, leaves);
    assert_false(row.is_straggler);
    assert_int_equal(row.rank, 2);
    assert_int_equal(row.leaves, 2);
    assert_int_equal(row.all_leaves, 4);
    assert_true(row.has_more_leaves);
    assert_true(first_row(60, most_ns, leaves).is_straggler);
    const uint64_t little_ns[3] = {0, 0, 5 * MS};
    assert_false(first_row(60, little_ns, NULL).is_straggler); /* 0.6 s */
}

static void run_snapshot_of_a_mismatch_survives_the_ranks(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 3);
    all_do(&s, 1, 10 * MS);
    puppet_op other = at(2, 30 * MS);
    other.kind = LS_COMM_BARRIER;
    other.line = 99;
    for (uint32_t rank = 0; rank < 3; rank++) {
        ls_flight_record *record = puppet_begin(&s.puppets, rank, rank == 2 ? other : at(2, 30 * MS));
        ls_flight_end(record, 31 * MS, UINT32_MAX, 0, LS_ERR_MISMATCH);
        ls_flight_last_words("mismatch");
        ls_flight_close(s.puppets.flights[rank]);
        s.puppets.flights[rank] = NULL;
    }
    assert_int_equal(look(&s), LS_VERDICT_MISMATCH);
    expect_sentence(&s, "ranks disagree about operation 2 of world");
    expect_sentence(&s, "called barrier at src/model.c:99; 2 of 3 agree");
    stage_release(&s);
}

static void run_snapshot_ignores_files_of_an_earlier_start(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 3);
    puppet_take(&s.puppets, 2);
    ls_flight_mapped->header.epoch = 0; /* the others have 1 */
    assert_int_equal(look(&s), LS_VERDICT_HEALTHY);
    assert_int_equal(s.run.count, 2);
    stage_release(&s);
}

/* ---- trace ---- */

static const json_t *find_event(const json_t *events, const char *phase, const char *name, uint32_t rank)
{
    size_t i;
    json_t *event;
    json_array_foreach((json_t *)(uintptr_t)events, i, event)
    {
        const char *its_name = json_string_value(json_object_get(event, "name"));
        if (strcmp(json_string_value(json_object_get(event, "ph")), phase) == 0 && its_name &&
            strcmp(its_name, name) == 0 &&
            json_integer_value(json_object_get(event, "pid")) == (json_int_t)rank) {
            return event;
        }
    }
    return NULL;
}

static void check_event(const json_t *event)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    assert_non_null(phase);
    assert_true(json_is_integer(json_object_get(event, "pid")));
    assert_true(json_is_integer(json_object_get(event, "tid")));
    assert_true(json_is_string(json_object_get(event, "name")));
    if (strcmp(phase, "M") != 0) {
        assert_true(json_number_value(json_object_get(event, "ts")) >= 0);
    }
    if (strcmp(phase, "X") == 0) {
        assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
    }
}

static void timeline_is_a_chrome_trace(void **state)
{
    (void)state;
    stage s;
    stage_init(&s, 2);
    const uint64_t from = ls_clock_monotonic_ns() - 1000ull * MS;
    for (uint32_t rank = 0; rank < 2; rank++) {
        puppet_take(&s.puppets, rank);
        ls_flight_mapped->header.start_ns = from;
        ls_flight_mapped->spans[0] = (ls_flight_span){.begin_ns = from + 10 * MS,
                                                      .end_ns = from + 12 * MS,
                                                      .step = 4,
                                                      .leaf = 1,
                                                      .activity = LS_ACTIVITY_DATA};
        LS_FLIGHT_PUT(ls_flight_mapped->span_head, 1);
    }
    all_do(&s, 1, from + 20 * MS);
    /* Rank 1 lives on a host whose clock is 1 ms behind. */
    puppet_take(&s.puppets, 1);
    LS_FLIGHT_PUT(ls_flight_mapped->header.clock_offset_ns, 1 * MS);
    (void)puppet_begin(&s.puppets, 0, at(2, from + 50 * MS));

    assert_int_equal(look(&s), LS_VERDICT_HEALTHY);
    char path[96];
    snprintf(path, sizeof path, "%s/trace.json", s.run_dir);
    ls_timeline_counts counts;
    assert_int_equal(ls_timeline_write(&s.run, NULL, path, &counts), LS_OK);
    assert_int_equal(counts.slices, 4); /* two finished ones and the current one */
    assert_int_equal(counts.operations, 3);
    assert_int_equal(counts.arrows, 1);
    json_t *root = NULL;
    assert_int_equal(ls_json_load(path, 1 << 20, &root), LS_OK);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_true(json_array_size(events) > 8);
    for (size_t i = 0; i < json_array_size(events); i++) {
        check_event(json_array_get(events, i));
    }
    const json_t *first = find_event(events, "X", "all_reduce sum of 1000 f32", 0);
    const json_t *second = find_event(events, "X", "all_reduce sum of 1000 f32", 1);
    assert_non_null(first);
    assert_non_null(second);
    assert_float_equal(json_number_value(json_object_get(first, "ts")), 20000.0, 0.01);
    assert_float_equal(json_number_value(json_object_get(second, "ts")), 26000.0, 0.01);
    const json_t *data = find_event(events, "X", "data", 0);
    assert_float_equal(json_number_value(json_object_get(data, "dur")), 2000.0, 0.01);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(data, "args"), "step")), 4);
    assert_non_null(find_event(events, "s", "last to arrive", 1));
    assert_non_null(find_event(events, "f", "last to arrive", 0));
    json_decref(root);

    assert_int_equal(ls_timeline_write(&s.run, NULL, "/nowhere/trace.json", &counts), LS_ERR_NOT_FOUND);
    stage_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_snapshot_without_flight_files_is_not_found),
        cmocka_unit_test(run_snapshot_of_a_running_job_is_healthy),
        cmocka_unit_test(run_snapshot_names_the_straggler),
        cmocka_unit_test(run_snapshot_of_a_live_hang_names_the_culprit),
        cmocka_unit_test(run_snapshot_of_a_rank_that_joined_again),
        cmocka_unit_test(run_snapshot_of_a_finished_run),
        cmocka_unit_test(run_snapshot_of_a_killed_rank_is_put_back),
        cmocka_unit_test(run_snapshot_of_a_run_killed_as_a_whole),
        cmocka_unit_test(run_snapshot_of_a_hang_uses_the_runs_own_reason),
        cmocka_unit_test(run_snapshot_without_a_trainer_blames_no_rank),
        cmocka_unit_test(run_snapshot_ignores_events_of_earlier_starts),
        cmocka_unit_test(run_snapshot_of_a_recovered_run_names_no_rank),
        cmocka_unit_test(inside_on_one_host_blames_no_network),
        cmocka_unit_test(straggler_is_nobody_for_its_share_of_leaves),
        cmocka_unit_test(run_snapshot_of_a_mismatch_survives_the_ranks),
        cmocka_unit_test(run_snapshot_ignores_files_of_an_earlier_start),
        cmocka_unit_test(timeline_is_a_chrome_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
