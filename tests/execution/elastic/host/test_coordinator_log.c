// SPDX-License-Identifier: Apache-2.0
/* The coordinator's log: what was durable is read again, whatever the disk does; anything after
 * the good records is reported and cut off. */
#include "test.h"

#include "execution/elastic/host/coordinator_log.h"
#include "sim/env/sim_env.h"

#include <stdlib.h>
#include <string.h>

#define S 1000000000ull

typedef struct desk {
    ls_sim *sim;
    ls_sim_host host;
    ls_env *env;
    ls_coordinator_log *log;
    uint32_t opened, failed, durable, records;
    ls_log_state before;
    ls_log_state now; /* read by `look` */
    char data[1 << 20];
    int64_t bytes;
} desk;

static void on_opened(void *context, const ls_log_state *before)
{
    desk *d = context;
    d->opened++;
    d->before = *before;
}

static void on_failed(void *context, int error)
{
    assert_true(error < 0);
    ((desk *)context)->failed++;
}

static void on_durable(void *context)
{
    ((desk *)context)->durable++;
}

static void on_made(void *context, int64_t result)
{
    (void)context;
    (void)result;
}

static void program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    desk *d = context;
    d->env = env;
    ls_env_disk_mkdir(env, "run", on_made, d);
    ls_env_disk_sync_dir(env, "", on_made, d);
    const ls_coordinator_log_options options = {.env = env,
                                                .folder = "run",
                                                .run = {.identity = "abc", .pid = 42, .start_time = 7},
                                                .context = d,
                                                .opened = on_opened,
                                                .failed = on_failed};
    assert_int_equal(ls_coordinator_log_open(&options, &d->log), LS_OK);
}

static void run_for(desk *d, uint64_t ns)
{
    assert_true(ls_sim_run(d->sim, ls_sim_now_ns(d->sim) + ns, 1000000) < 1000000);
}

static desk *desk_create(uint64_t seed)
{
    desk *d = calloc(1, sizeof *d);
    d->sim = ls_sim_create(&(ls_sim_settings){.seed = seed});
    d->host = ls_sim_host_add(d->sim, "node");
    return d;
}

static void desk_start(desk *d)
{
    ls_coordinator_log_close(d->log);
    d->log = NULL;
    d->opened = d->failed = d->durable = 0;
    ls_sim_start(d->sim, d->host, program, d);
}

static void desk_destroy(desk *d)
{
    ls_coordinator_log_close(d->log);
    ls_sim_destroy(d->sim);
    free(d);
}

static void put_epoch(desk *d, uint64_t epoch, uint64_t step, uint32_t count)
{
    ls_log_member members[LS_LOG_MEMBERS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        members[i] = (ls_log_member){.rank = i, .pid = (int32_t)(100 * epoch + i), .start_time = i};
    }
    const ls_log_epoch entry = {.epoch = epoch, .step = step, .members = members, .count = count};
    ls_coordinator_log_epoch(d->log, &entry, on_durable, d);
}

/* ---- reading the disk ---- */

static void on_read(void *context, int64_t result)
{
    ((desk *)context)->bytes = result;
}

static void on_open_to_read(void *context, int64_t result)
{
    desk *d = context;
    d->bytes = result;
    if (result >= 0) {
        ls_env_disk_read(d->env, result, d->data, sizeof d->data, 0, on_read, d);
    }
}

static void reader(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    desk *d = context;
    d->env = env;
    ls_env_disk_open(env, "run/coordinator.log", LS_ENV_READ, on_open_to_read, d);
}

static void look_after_crash(desk *d)
{
    ls_sim_disk_fail(d->sim, d->host, 0, 0);
    ls_sim_host_crash(d->sim, d->host);
    ls_sim_start(d->sim, d->host, reader, d);
    run_for(d, S);
    ls_log_read(d->data, d->bytes > 0 ? (size_t)d->bytes : 0, &d->now);
}

/* ---- cases ---- */

static void log_says_what_was_written(void **state)
{
    (void)state;
    desk *d = desk_create(1);
    desk_start(d);
    run_for(d, S);
    assert_int_equal(d->opened, 1);
    assert_int_equal(d->before.records, 0);
    put_epoch(d, 1, 0, 3);
    ls_coordinator_log_steps(d->log, 4);
    run_for(d, S);
    put_epoch(d, 2, 5, 2);
    ls_coordinator_log_steps(d->log, 9);
    run_for(d, S);
    assert_int_equal(d->durable, 2);
    look_after_crash(d);
    assert_null(d->now.wrong);
    assert_int_equal(d->now.epoch, 2);
    assert_int_equal(d->now.step, 9);
    assert_int_equal(d->now.member_count, 2);
    assert_int_equal(d->now.members[1].pid, 201);
    assert_int_equal(d->now.run.pid, 42);
    assert_false(d->now.ended);

    desk_start(d); /* the successor knows it all */
    run_for(d, S);
    assert_int_equal(d->before.epoch, 2);
    assert_int_equal(d->before.step, 9);
    ls_coordinator_log_end(d->log, 12, on_durable, d);
    run_for(d, S);
    assert_int_equal(d->durable, 1);
    look_after_crash(d);
    assert_true(d->now.ended);
    assert_int_equal(d->now.step, 12);
    assert_int_equal(d->now.epoch, 2);
    desk_destroy(d);
}

static ls_log_cuts some_cuts(void)
{
    ls_log_cuts cuts = {.newest = {.epoch = 3, .step = 17, .parts = 3, .host_count = 2},
                        .held = {.epoch = 1, .step = 4, .parts = 1, .host_count = 1}};
    cuts.newest.hosts[0] = (ls_cut_host){.host = 0, .part_count = 1};
    cuts.newest.hosts[1] = (ls_cut_host){.host = 2, .first_part = 1, .part_count = 2, .holder = 2};
    cuts.held.hosts[0] = (ls_cut_host){.host = 1, .part_count = 1};
    cuts.hosts[2] = (ls_log_host){.first_rank = 3, .count = 2};
    return cuts;
}

/* The successor has the cuts. A cut that is not valid ends the good prefix; what was written
 * before it stays. */
static void log_keeps_the_last_cuts(void **state)
{
    (void)state;
    desk *d = desk_create(1);
    const ls_log_cuts cuts = some_cuts();
    ls_log_cuts bad = cuts;
    desk_start(d);
    run_for(d, S);
    ls_coordinator_log_cuts(d->log, &cuts);
    put_epoch(d, 3, 17, 1);
    run_for(d, S);
    assert_int_equal(d->durable, 1);
    look_after_crash(d);
    assert_null(d->now.wrong);
    assert_memory_equal(&d->now.cuts, &cuts, sizeof cuts);
    assert_int_equal(d->now.epoch, 3);

    desk_start(d);
    run_for(d, S);
    assert_memory_equal(&d->before.cuts, &cuts, sizeof cuts);
    bad.newest.epoch = 4;
    bad.newest.hosts[1].part_count = 3; /* parts 1 to 3 of 3 */
    ls_coordinator_log_cuts(d->log, &bad);
    put_epoch(d, 4, 17, 1);
    run_for(d, S);
    look_after_crash(d);
    assert_non_null(d->now.wrong);
    assert_memory_equal(&d->now.cuts, &cuts, sizeof cuts);
    assert_int_equal(d->now.epoch, 3);
    desk_destroy(d);
}

/* Whichever call fails, and however: after a crash everything that was reported durable is
 * there, or the loss of the log was reported. */
static void log_survives_a_fault_at_every_disk_call(void **state)
{
    (void)state;
    static const int errors[] = {5, 28, LS_SIM_SHORT_WRITE};
    for (size_t kind = 0; kind < 3; kind++) {
        bool reached = true;
        for (uint64_t call = 1; reached; call++) {
            desk *d = desk_create(call);
            desk_start(d);
            const uint64_t before = ls_sim_disk_calls(d->sim, d->host);
            ls_sim_disk_fail(d->sim, d->host, call, errors[kind]);
            run_for(d, S);
            for (uint32_t epoch = 1; epoch <= 3 && !d->failed && d->opened; epoch++) {
                put_epoch(d, epoch, epoch, 2);
                ls_coordinator_log_steps(d->log, epoch + 1);
                run_for(d, S / 2);
            }
            reached = ls_sim_disk_calls(d->sim, d->host) - before >= call;
            const uint32_t durable = d->durable, failed = d->failed;
            assert_true(durable == 3 || failed == 1);
            /* a single failure is repaired, after the folder and the old log were read */
            assert_int_equal(failed, call <= 3 ? failed : 0);
            look_after_crash(d);
            assert_true(d->now.epoch >= durable);
            desk_destroy(d);
        }
    }
}

static void log_is_lost_on_a_disk_that_stays_full(void **state)
{
    (void)state;
    desk *d = desk_create(3);
    desk_start(d);
    run_for(d, S);
    put_epoch(d, 1, 0, 2);
    run_for(d, S);
    ls_sim_disk_capacity(d->sim, d->host, 1);
    put_epoch(d, 2, 1, 2);
    run_for(d, S);
    assert_int_equal(d->failed, 1);
    assert_int_equal(d->durable, 1);
    put_epoch(d, 3, 1, 2); /* cut off in the middle */
    run_for(d, S);
    assert_int_equal(d->durable, 1);
    look_after_crash(d);
    assert_int_equal(d->now.epoch, 1);
    desk_destroy(d);
}

/* A crash at any moment leaves a prefix of what was written, and never less than was durable. */
static void log_after_a_crash_is_a_prefix(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        desk *d = desk_create(seed);
        desk_start(d);
        run_for(d, S);
        uint32_t written = 0;
        for (; written < 8; written++) {
            put_epoch(d, written + 1, written, 1 + written % 3);
            run_for(d, ls_sim_random_u64(d->sim) % 12000000);
        }
        const uint32_t durable = d->durable;
        look_after_crash(d);
        assert_true(d->now.epoch >= durable && d->now.epoch <= written);
        desk_start(d);
        run_for(d, S);
        assert_int_equal(d->before.epoch, d->now.epoch);
        put_epoch(d, 20, 9, 1);
        run_for(d, S);
        look_after_crash(d);
        assert_null(d->now.wrong); /* opening the log cuts a torn tail off */
        assert_int_equal(d->now.epoch, 20);
        desk_destroy(d);
    }
}

static void log_does_not_grow_by_steps_for_ever(void **state)
{
    (void)state;
    desk *d = desk_create(5);
    desk_start(d);
    run_for(d, S);
    put_epoch(d, 1, 0, 2);
    for (uint64_t step = 1; step <= 10000; step++) {
        ls_coordinator_log_steps(d->log, step);
        run_for(d, S / 4);
    }
    look_after_crash(d);
    assert_true(d->now.good_bytes < 200000);
    assert_int_equal(d->now.step, 10000);
    assert_int_equal(d->now.member_count, 2);
    desk_destroy(d);
}

static void reader_names_what_is_wrong(void **state)
{
    (void)state;
    desk *d = desk_create(6);
    desk_start(d);
    run_for(d, S);
    put_epoch(d, 1, 0, 3);
    run_for(d, S);
    look_after_crash(d);
    const size_t bytes = (size_t)d->bytes;
    for (size_t cut = 0; cut <= bytes; cut++) { /* torn anywhere */
        ls_log_read(d->data, cut, &d->now);
        assert_int_equal(d->now.good_bytes == cut, d->now.wrong == NULL);
    }
    /* with any bit flipped, no record is taken for another */
    for (size_t at = 0; at < bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            d->data[at] ^= (char)(1 << bit);
            ls_log_read(d->data, bytes, &d->now);
            assert_non_null(d->now.wrong);
            assert_true(d->now.good_bytes <= at);
            d->data[at] ^= (char)(1 << bit);
        }
    }
    ls_log_read(d->data, bytes, &d->now);
    assert_null(d->now.wrong);
    desk_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_says_what_was_written),
        cmocka_unit_test(log_keeps_the_last_cuts),
        cmocka_unit_test(log_survives_a_fault_at_every_disk_call),
        cmocka_unit_test(log_is_lost_on_a_disk_that_stays_full),
        cmocka_unit_test(log_after_a_crash_is_a_prefix),
        cmocka_unit_test(log_does_not_grow_by_steps_for_ever),
        cmocka_unit_test(reader_names_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
