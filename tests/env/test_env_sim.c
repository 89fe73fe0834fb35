// SPDX-License-Identifier: Apache-2.0
/* The simulated env: the machines of env_machine.h, unmodified, through crashes, full disks and a
 * bad network. */
#include "test.h"

#include "env/env_machine.h"
#include "sim/env/sim_env.h"

#include <signal.h>
#include <stdlib.h>

#define MS 1000000ull
#define S  (1000 * MS)

/* Every failure names the seed that replays it. */
#define CHECK(seed, condition)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fail_msg("seed %llu: not true: %s", (unsigned long long)(seed), #condition);                     \
        }                                                                                                    \
    } while (0)

static void store_result(void *context, int64_t result)
{
    *(int64_t *)context = result;
}

/* ---- commit and load ---- */

typedef struct one_commit {
    unsigned value;
    int64_t result;
} one_commit;

static void commit_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    one_commit *self = context;
    commit_start(ls_sim_alloc(env, sizeof(commit)), env, "run", self->value, store_result, &self->result);
}

static void load_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    load_start(ls_sim_alloc(env, sizeof(load)), env, "run", store_result, context);
}

static void mkdir_synced(void *context, int64_t result)
{
    (void)context;
    assert_int_equal(result, 0);
}

static void mkdir_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    (void)context;
    ls_env_disk_mkdir(env, "run", mkdir_synced, NULL);
    ls_env_disk_sync_dir(env, "/", mkdir_synced, NULL);
}

/* Runs to the end of all events; a program that never ends is a failure. */
static void settle(ls_sim *sim, uint64_t seed)
{
    const uint64_t events = ls_sim_run(sim, ls_sim_now_ns(sim) + 60 * S, 1000000);
    CHECK(seed, events < 1000000);
}

static ls_sim *world_with_folder(uint64_t seed, ls_sim_host *host_out)
{
    ls_sim *sim = ls_sim_create(&(ls_sim_settings){.seed = seed});
    *host_out = ls_sim_host_add(sim, "a");
    ls_sim_start(sim, *host_out, mkdir_program, NULL);
    settle(sim, seed);
    return sim;
}

static int64_t load_value(ls_sim *sim, ls_sim_host host, uint64_t seed)
{
    int64_t value = 99;
    ls_sim_start(sim, host, load_program, &value);
    CHECK(seed, value == 99); /* never from inside the call */
    settle(sim, seed);
    return value;
}

static int64_t commit_value(ls_sim *sim, ls_sim_host host, unsigned value, uint64_t seed)
{
    one_commit job = {.value = value, .result = 99};
    ls_sim_start(sim, host, commit_program, &job);
    settle(sim, seed);
    return job.result;
}

static void sim_commit_then_load(void **state)
{
    (void)state;
    ls_sim_host host = 0;
    ls_sim *sim = world_with_folder(1, &host);
    assert_int_equal(load_value(sim, host, 1), -1);
    assert_int_equal(commit_value(sim, host, 41, 1), 0);
    assert_int_equal(load_value(sim, host, 1), 41);
    ls_sim_host_crash(sim, host);
    assert_int_equal(load_value(sim, host, 1), 41);
    ls_sim_destroy(sim);
}

static void sim_commit_survives_an_error_at_every_call(void **state)
{
    (void)state;
    const int errors[] = {ENOSPC, EIO, EROFS, LS_SIM_SHORT_WRITE};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ls_sim_host host = 0;
        ls_sim *sim = world_with_folder(seed, &host);
        assert_int_equal(commit_value(sim, host, 1, seed), 0);
        const uint64_t calls_before = ls_sim_disk_calls(sim, host);
        assert_int_equal(commit_value(sim, host, 2, seed), 0);
        const uint64_t calls = ls_sim_disk_calls(sim, host) - calls_before;
        assert_int_equal(calls, 6); /* open, write, sync, close, rename, sync_dir */
        unsigned last = 2;
        for (uint64_t call = 1; call <= calls; call++) {
            for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
                ls_sim_disk_fail(sim, host, call, errors[e]);
                const int64_t result = commit_value(sim, host, ++last, seed);
                CHECK(seed, result == (errors[e] == LS_SIM_SHORT_WRITE ? 0 : -errors[e]));
                ls_sim_disk_fail(sim, host, 0, 0);
                const int64_t found = load_value(sim, host, seed);
                CHECK(seed, found == last || (result != 0 && found >= 1 && found < last));
            }
        }
        ls_sim_destroy(sim);
    }
}

static void sim_full_disk_keeps_the_old_value(void **state)
{
    (void)state;
    ls_sim_host host = 0;
    ls_sim *sim = world_with_folder(1, &host);
    assert_int_equal(commit_value(sim, host, 7, 1), 0);
    ls_sim_disk_capacity(sim, host, 25);
    assert_int_equal(commit_value(sim, host, 8, 1), -ENOSPC);
    assert_int_equal(load_value(sim, host, 1), 7);
    ls_sim_destroy(sim);
}

/* ---- crashes at random moments ---- */

/* Commits 1, 2, 3, ... for ever and notes what was acknowledged. */
typedef struct committer {
    ls_env *env;
    commit now;
    load first;
    unsigned value;
    unsigned *acknowledged; /* outside the process: survives it */
    unsigned *begun;
    int64_t *found;
} committer;

static void committer_next(committer *self);

static void committer_committed(void *context, int64_t result)
{
    committer *self = context;
    if (result == 0) {
        *self->acknowledged = self->value;
    }
    committer_next(self);
}

static void committer_next(committer *self)
{
    *self->begun = ++self->value;
    commit_start(&self->now, self->env, "run", self->value, committer_committed, self);
}

static void committer_loaded(void *context, int64_t value)
{
    committer *self = context;
    *self->found = value;
    self->value = value < 0 ? 0 : (unsigned)value;
    committer_next(self);
}

typedef struct history {
    unsigned acknowledged, begun;
    int64_t found;
} history;

static void committer_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    history *seen = context;
    committer *self = ls_sim_alloc(env, sizeof *self);
    self->env = env;
    self->acknowledged = &seen->acknowledged;
    self->begun = &seen->begun;
    self->found = &seen->found;
    load_start(&self->first, env, "run", committer_loaded, self);
}

/* Returns false when an acknowledged value was lost or a torn one was found. */
static bool survives_crashes(uint64_t seed, int crashes)
{
    ls_sim_host host = 0;
    ls_sim *sim = world_with_folder(seed, &host);
    history seen = {0};
    bool good = true;
    for (int i = 0; i < crashes && good; i++) {
        seen.found = 99;
        ls_sim_start(sim, host, committer_program, &seen);
        const unsigned acknowledged = seen.acknowledged, begun = seen.begun;
        ls_sim_run(sim, ls_sim_now_ns(sim) + 20 * MS + ls_sim_random_u64(sim) % (60 * MS), 100000);
        if (seen.found == 99) {
            ls_sim_host_crash(sim, host);
            continue; /* the crash came before the load was done */
        }
        const int64_t least = acknowledged ? (int64_t)acknowledged : -1;
        good = seen.found >= least && seen.found <= (int64_t)begun && seen.found != -2;
        ls_sim_host_crash(sim, host);
    }
    ls_sim_destroy(sim);
    return good;
}

static void sim_acknowledged_commits_survive_crashes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        CHECK(seed, survives_crashes(seed, 8));
    }
}

/* A disk call table in which one promise is quietly not asked for: the simulator must notice within
 * a few seeds. */
static void skip_sync(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    (void)file;
    char nothing;
    /* completes with 0, makes nothing durable */
    env->calls->disk_read(env, file, &nothing, 0, 0, done, context);
}

static void skip_sync_dir(ls_env *env, const char *path, ls_env_done done, void *context)
{
    env->calls->disk_rename(env, path, path, done, context); /* onto itself: nothing */
}

static ls_env_calls careless_calls;

static void careless_program(ls_env *env, const char *const *argv, void *context)
{
    env->calls = &careless_calls;
    committer_program(env, argv, context);
}

static void keep_calls_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    *(ls_env_calls *)context = *env->calls;
}

static unsigned count_losses(bool without_sync, bool without_sync_dir)
{
    unsigned losses = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ls_sim_host host = 0;
        ls_sim *sim = world_with_folder(seed, &host);
        ls_sim_start(sim, host, keep_calls_program, &careless_calls);
        careless_calls.disk_sync = without_sync ? skip_sync : careless_calls.disk_sync;
        careless_calls.disk_sync_dir = without_sync_dir ? skip_sync_dir : careless_calls.disk_sync_dir;
        history seen = {0};
        ls_sim_start(sim, host, careless_program, &seen);
        ls_sim_run(sim, ls_sim_now_ns(sim) + 100 * MS, 100000);
        ls_sim_host_crash(sim, host);
        const int64_t found = load_value(sim, host, seed);
        losses += found < (int64_t)seen.acknowledged;
        ls_sim_destroy(sim);
    }
    return losses;
}

static void sim_catches_a_missing_sync(void **state)
{
    (void)state;
    assert_int_equal(count_losses(false, false), 0);
    assert_true(count_losses(true, false) > 5);
    assert_true(count_losses(false, true) > 5);
}

/* ---- single calls ---- */

typedef struct calls {
    ls_env *env;
    int64_t file, reserved, cut, synced, again, swapped, made;
    char read[8];
    int64_t got, wrote_now;
} calls;

static void calls_opened(void *context, int64_t result)
{
    calls *self = context;
    self->file = result;
    ls_env_disk_allocate(self->env, result, 8192, store_result, &self->reserved);
    self->wrote_now = ls_env_disk_write_now(self->env, result, "xyz", 3, 2);
    ls_env_disk_truncate(self->env, result, 4, store_result, &self->cut);
    ls_env_disk_read(self->env, result, self->read, sizeof self->read, 0, store_result, &self->got);
    ls_env_disk_sync(self->env, result, store_result, &self->synced);
    ls_env_disk_exchange(self->env, "run/a", "run/b", store_result, &self->swapped);
    ls_env_disk_open(self->env, "run/b", LS_ENV_NEW, store_result, &self->again);
}

static void calls_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    calls *self = context;
    self->env = env;
    ls_env_disk_mkdir(env, "run/b", store_result, &self->made);
    ls_env_disk_open(env, "run/a", LS_ENV_NEW, calls_opened, self);
}

static void sim_files_are_new_reserved_cut_and_exchanged(void **state)
{
    (void)state;
    ls_sim_host host = 0;
    ls_sim *sim = world_with_folder(1, &host);
    calls seen = {0};
    ls_sim_start(sim, host, calls_program, &seen);
    settle(sim, 1);
    assert_true(seen.file >= 0 && seen.made == 0 && seen.reserved == 0 && seen.cut == 0 && seen.synced == 0);
    assert_int_equal(seen.wrote_now, 3);
    assert_int_equal(seen.got, 4);
    assert_memory_equal(seen.read, "\0\0xy", 4);
    assert_int_equal(seen.swapped, 0);
    assert_int_equal(seen.again, -EEXIST);
    ls_sim_destroy(sim);
}

/* A file with two names: counted once, there until both are gone, and one that was not made durable
 * goes with the power. */
typedef struct linking {
    ls_env *env;
    int64_t file, wrote, synced, linked, taken, missing, folder, unlinked, kept;
    bool links;
} linking;

static void linking_opened(void *context, int64_t result)
{
    linking *self = context;
    self->file = result;
    ls_env_disk_write(self->env, result, "abc", 3, 0, store_result, &self->wrote);
    ls_env_disk_sync(self->env, result, store_result, &self->synced);
    ls_env_disk_sync_dir(self->env, "run", store_result, &self->folder);
    ls_env_disk_link(self->env, "run/a", "run/b", store_result, &self->linked);
    ls_env_disk_link(self->env, "run/a", "run/b", store_result, &self->taken);
    ls_env_disk_link(self->env, "run/none", "run/c", store_result, &self->missing);
    ls_env_disk_unlink(self->env, "run/a", store_result, &self->unlinked);
}

static void linking_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    linking *self = context;
    self->env = env;
    if (self->links) {
        ls_env_disk_open(env, "run/a", LS_ENV_NEW, linking_opened, self);
    } else {
        ls_env_disk_open(env, "run/b", LS_ENV_READ, store_result, &self->kept);
    }
}

static void sim_link_is_a_second_name_and_a_crash_may_forget_it(void **state)
{
    (void)state;
    int kept = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        ls_sim_host host = 0;
        ls_sim *sim = world_with_folder(seed, &host);
        linking seen = {.links = true};
        ls_sim_start(sim, host, linking_program, &seen);
        settle(sim, 1);
        assert_true(seen.linked == 0 && seen.taken == -EEXIST && seen.missing == -ENOENT &&
                    seen.unlinked == 0);
        assert_int_equal(ls_sim_disk_used(sim, host), 3);
        ls_sim_host_crash(sim, host);
        linking after = {.kept = -1};
        ls_sim_start(sim, host, linking_program, &after);
        settle(sim, 1);
        assert_int_equal(ls_sim_disk_used(sim, host), 3); /* under one name, or under both */
        kept += after.kept >= 0;
        assert_true(ls_sim_disk_rot(sim, host, after.kept >= 0 ? "run/b" : "run/a"));
        assert_false(ls_sim_disk_rot(sim, host, "run/none"));
        ls_sim_destroy(sim);
    }
    assert_true(kept > 5 && kept < 35);
}

/* What a failed sync could not write is lost, though it can still be read, and a sync that succeeds
 * later does not bring it back. */
typedef struct forgetful {
    ls_env *env;
    int64_t file;
    int64_t wrote, first, second, got;
    char seen[4];
} forgetful;

static void forgetful_opened(void *context, int64_t result)
{
    forgetful *self = context;
    self->file = result;
    ls_env_disk_write(self->env, result, "abc", 4, 0, store_result, &self->wrote);
    ls_env_disk_sync(self->env, result, store_result, &self->first);
    ls_env_disk_sync(self->env, result, store_result, &self->second);
    ls_env_disk_read(self->env, result, self->seen, 4, 0, store_result, &self->got);
    ls_env_disk_sync_dir(self->env, "run", store_result, &self->wrote);
}

static void forgetful_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    forgetful *self = context;
    self->env = env;
    ls_env_disk_open(env, "run/a", LS_ENV_NEW, forgetful_opened, self);
}

static void read_opened(void *context, int64_t result)
{
    forgetful *self = context;
    ls_env_disk_read(self->env, result, self->seen, 4, 0, store_result, &self->got);
}

static void read_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    forgetful *self = context;
    self->env = env;
    ls_env_disk_open(env, "run/a", LS_ENV_READ, read_opened, self);
}

static void sim_failed_sync_forgets(void **state)
{
    (void)state;
    int lost = 0, kept = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ls_sim_host host = 0;
        ls_sim *sim = world_with_folder(seed, &host);
        forgetful before = {0}, after = {0};
        ls_sim_disk_fail(sim, host, 3, EIO);
        ls_sim_start(sim, host, forgetful_program, &before);
        settle(sim, seed);
        CHECK(seed, before.first == -EIO && before.second == 0 && before.got == 4);
        CHECK(seed, memcmp(before.seen, "abc", 4) == 0);
        ls_sim_host_crash(sim, host);
        ls_sim_start(sim, host, read_program, &after);
        settle(sim, seed);
        lost += after.got == 0;
        kept += after.got == 4 && memcmp(after.seen, "abc", 4) == 0;
        ls_sim_destroy(sim);
    }
    assert_true(lost > 0 && kept > 0 && lost + kept == 20);
}

/* At whatever call the power goes, it is never done and never answered. */
static void sim_power_cut_at_every_call(void **state)
{
    (void)state;
    for (uint64_t call = 1; call <= 6; call++) {
        ls_sim_host host = 0;
        ls_sim *sim = world_with_folder(call, &host);
        assert_int_equal(commit_value(sim, host, 1, call), 0);
        ls_sim_disk_fail(sim, host, call, LS_SIM_POWER_CUT);
        assert_int_equal(commit_value(sim, host, 2, call), 99);
        const int64_t found = load_value(sim, host, call);
        /* the last one only makes the rename sure */
        assert_true(found == 1 || (found == 2 && call == 6));
        ls_sim_disk_fail_on(sim, host, 1, EROFS);
        assert_int_equal(commit_value(sim, host, 3, call), -EROFS);
        assert_int_equal(load_value(sim, host, call), -EROFS);
        ls_sim_disk_fail(sim, host, 0, 0);
        assert_int_equal(load_value(sim, host, call), found);
        ls_sim_destroy(sim);
    }
}

/* ---- network ---- */

static void set_flag(void *context)
{
    *(bool *)context = true;
}

typedef struct pair {
    echo_server server;
    counter_client client;
    bool finished;
} pair;

static void server_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    assert_int_equal(server_start(&((pair *)context)->server, env, "a:7000"), 0);
}

static void client_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    pair *both = context;
    client_start(&both->client, env, "a:7000", 50, set_flag, &both->finished);
}

static uint64_t count_over_network(const ls_sim_settings *settings, bool with_cuts)
{
    ls_sim *sim = ls_sim_create(settings);
    const ls_sim_host a = ls_sim_host_add(sim, "a"), b = ls_sim_host_add(sim, "b");
    pair both = {0};
    ls_sim_start(sim, a, server_program, &both);
    ls_sim_start(sim, b, client_program, &both);
    for (int i = 0; i < 10 && with_cuts && !both.finished; i++) {
        ls_sim_run(sim, ls_sim_now_ns(sim) + ls_sim_random_u64(sim) % (10 * MS), 100000);
        ls_sim_cut(sim, a, b, i % 2 == 0);
    }
    ls_sim_cut(sim, a, b, false);
    ls_sim_run(sim, ls_sim_now_ns(sim) + 100 * S, 1000000);
    CHECK(settings->seed, both.finished);
    CHECK(settings->seed, both.server.largest == 50);
    const uint64_t trace = ls_sim_trace_hash(sim);
    ls_sim_destroy(sim);
    return trace;
}

static void sim_counter_reaches_goal_whatever_the_network_does(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        count_over_network(&(ls_sim_settings){.seed = seed}, false);
        count_over_network(&(ls_sim_settings){.seed = seed}, true);
        count_over_network(
            &(ls_sim_settings){.seed = seed, .net_drop = 0.2, .net_duplicate = 0.2, .net_reorder = true},
            true);
    }
}

static void sim_same_seed_same_history(void **state)
{
    (void)state;
    const ls_sim_settings one = {.seed = 1, .net_drop = 0.1}, two = {.seed = 2, .net_drop = 0.1};
    const uint64_t first = count_over_network(&one, true);
    assert_true(first == count_over_network(&one, true));
    assert_true(first != count_over_network(&two, true));
}

static void ignore_link(void *context, ls_env_id link)
{
    (void)context;
    (void)link;
}

static void ignore_message(void *context, ls_env_id link, const void *data, size_t bytes)
{
    (void)context;
    (void)link;
    (void)data;
    (void)bytes;
}

static void store_error(void *context, ls_env_id link, int error)
{
    (void)link;
    *(int *)context = error;
}

static void connect_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    const ls_env_link_events events = {context, ignore_link, ignore_message, store_error};
    ls_env_net_connect(env, "a:7000", &events);
}

static void sim_net_failures_are_told(void **state)
{
    (void)state;
    ls_sim *sim = ls_sim_create(&(ls_sim_settings){.seed = 5});
    const ls_sim_host a = ls_sim_host_add(sim, "a"), b = ls_sim_host_add(sim, "b");
    int refused = 1, timed_out = 1, reset = 1;
    ls_sim_start(sim, b, connect_program, &refused);
    settle(sim, 5);
    assert_int_equal(refused, -ECONNREFUSED);
    ls_sim_cut(sim, a, b, true);
    ls_sim_start(sim, b, connect_program, &timed_out);
    settle(sim, 5);
    assert_int_equal(timed_out, -ETIMEDOUT);
    ls_sim_cut(sim, a, b, false);
    pair both = {0};
    ls_env *server = ls_sim_start(sim, a, server_program, &both);
    ls_sim_start(sim, b, connect_program, &reset);
    ls_sim_run(sim, ls_sim_now_ns(sim) + 100 * MS, 1000);
    assert_int_equal(both.server.links, 1);
    assert_int_equal(reset, 1);
    ls_sim_signal(server, SIGKILL);
    settle(sim, 5);
    assert_int_equal(reset, 0); /* the peer's end closes its links */
    ls_sim_destroy(sim);
}

/* ---- processes and signals ---- */

typedef struct family {
    ls_env *child;
    ls_env_id sleeper;
    int quick_code, sleeper_code;
    bool noticed;
} family;

static void child_program(ls_env *env, const char *const *argv, void *context)
{
    family *seen = context;
    if (argv[1] && strcmp(argv[1], "quick") == 0) {
        ls_env_stop(env, 3);
        return;
    }
    seen->child = env;
    assert_int_equal(ls_env_signal_watch(env, SIGTERM, set_flag, &seen->noticed), 0);
    ls_env_timer_set(env, 3600 * S, set_flag, &seen->noticed);
}

static void store_quick(void *context, ls_env_id process, int exit_code)
{
    (void)process;
    ((family *)context)->quick_code = exit_code;
}

static void store_sleeper(void *context, ls_env_id process, int exit_code)
{
    (void)process;
    ((family *)context)->sleeper_code = exit_code;
}

static void parent_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    family *seen = context;
    ls_env_id quick = 0;
    assert_int_equal(
        ls_env_process_start(env, (const char *[]){"child", "quick", NULL}, store_quick, seen, &quick), 0);
    assert_int_equal(
        ls_env_process_start(env, (const char *[]){"child", NULL}, store_sleeper, seen, &seen->sleeper), 0);
    assert_int_equal(ls_env_process_start(env, (const char *[]){"nobody", NULL}, store_quick, seen, &quick),
                     -ENOENT);
}

static void sim_processes_and_signals_are_events(void **state)
{
    (void)state;
    ls_sim *sim = ls_sim_create(&(ls_sim_settings){.seed = 9});
    const ls_sim_host host = ls_sim_host_add(sim, "a");
    family seen = {.quick_code = -1, .sleeper_code = -1};
    ls_sim_program_add(sim, "child", child_program, &seen);
    ls_env *parent = ls_sim_start(sim, host, parent_program, &seen);
    ls_sim_run(sim, 10 * MS, 1000);
    assert_int_equal(seen.quick_code, 3);
    assert_int_equal(ls_env_process_kill(parent, seen.sleeper, SIGTERM), 0);
    ls_sim_run(sim, 20 * MS, 1000);
    assert_true(seen.noticed && ls_sim_is_running(seen.child)); /* watched: an event, not an end */
    assert_int_equal(ls_env_process_kill(parent, seen.sleeper, SIGKILL), 0);
    ls_sim_run(sim, 30 * MS, 1000);
    assert_int_equal(seen.sleeper_code, 128 + SIGKILL);
    assert_int_equal(ls_env_process_kill(parent, seen.sleeper, SIGKILL), -ESRCH);
    assert_int_equal(ls_env_signal_watch(parent, SIGKILL, set_flag, NULL), -EINVAL);
    ls_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sim_commit_then_load),
        cmocka_unit_test(sim_commit_survives_an_error_at_every_call),
        cmocka_unit_test(sim_full_disk_keeps_the_old_value),
        cmocka_unit_test(sim_acknowledged_commits_survive_crashes),
        cmocka_unit_test(sim_catches_a_missing_sync),
        cmocka_unit_test(sim_files_are_new_reserved_cut_and_exchanged),
        cmocka_unit_test(sim_link_is_a_second_name_and_a_crash_may_forget_it),
        cmocka_unit_test(sim_failed_sync_forgets),
        cmocka_unit_test(sim_power_cut_at_every_call),
        cmocka_unit_test(sim_counter_reaches_goal_whatever_the_network_does),
        cmocka_unit_test(sim_same_seed_same_history),
        cmocka_unit_test(sim_net_failures_are_told),
        cmocka_unit_test(sim_processes_and_signals_are_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
