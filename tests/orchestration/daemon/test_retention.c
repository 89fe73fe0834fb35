// SPDX-License-Identifier: Apache-2.0
/* Removal of ended jobs: a store, a controller, and an env whose timers and processes end on the
 * test's command. */
#include "orchestration/control/controller_world.h"

#include "env/env.h"
#include "orchestration/control/job_store.h"
#include "orchestration/daemon/retention.h"

#include <signal.h>
#include <unistd.h>

enum { TIMERS_MAX = 4, PROCESSES_MAX = 8 };
#define HOUR_NS (UINT64_C(3600) * 1000000000)

static struct small_env {
    ls_env base;
    struct {
        ls_env_id id;
        ls_env_fire fire;
        void *context;
        uint64_t delay_ns;
    } timers[TIMERS_MAX];
    struct {
        ls_env_id id;
        ls_env_exited exited;
        void *context;
        uint64_t job;
        bool is_killed;
    } processes[PROCESSES_MAX];
    ls_env_id next;
    uint32_t started;
} e;

static ls_job_store *store;
static ls_retention *retention;
static char folder[64];

static double wall_s(ls_env *env)
{
    (void)env;
    return w.now_s;
}

static ls_env_id timer_set(ls_env *env, uint64_t delay_ns, ls_env_fire fire, void *context)
{
    (void)env;
    for (int i = 0; i < TIMERS_MAX; i++) {
        if (!e.timers[i].id) {
            e.timers[i].id = ++e.next;
            e.timers[i].fire = fire;
            e.timers[i].context = context;
            e.timers[i].delay_ns = delay_ns;
            return e.next;
        }
    }
    fail_msg("too many timers");
    return 0;
}

static void timer_cancel(ls_env *env, ls_env_id timer)
{
    (void)env;
    for (int i = 0; i < TIMERS_MAX; i++) {
        e.timers[i].id = e.timers[i].id == timer ? 0 : e.timers[i].id;
    }
}

static int process_start(ls_env *env, const char *const *argv, ls_env_exited exited, void *context,
                         ls_env_id *process_out)
{
    (void)env;
    bool stays_on_disk = false;
    const char *path = NULL;
    for (; *argv; argv++) {
        stays_on_disk = stays_on_disk || strcmp(*argv, "--one-file-system") == 0;
        path = *argv;
    }
    assert_true(stays_on_disk);
    for (int i = 0; i < PROCESSES_MAX; i++) {
        if (!e.processes[i].id) {
            e.processes[i].id = *process_out = ++e.next;
            e.processes[i].exited = exited;
            e.processes[i].context = context;
            e.processes[i].job = strtoull(strrchr(path, '/') + 1, NULL, 10);
            e.processes[i].is_killed = false;
            e.started++;
            return 0;
        }
    }
    return -1;
}

static int process_kill(ls_env *env, ls_env_id process, int signal_number)
{
    (void)env;
    assert_int_equal(signal_number, SIGKILL);
    for (int i = 0; i < PROCESSES_MAX; i++) {
        e.processes[i].is_killed = e.processes[i].is_killed || e.processes[i].id == process;
    }
    return 0;
}

static const ls_env_calls env_calls = {.wall_s = wall_s,
                                       .timer_set = timer_set,
                                       .timer_cancel = timer_cancel,
                                       .process_start = process_start,
                                       .process_kill = process_kill};

/* The only timer there is, or the only one that is not for the next look. How long it was set
 * for. */
static uint64_t fire_shortest(void)
{
    int best = -1;
    for (int i = 0; i < TIMERS_MAX; i++) {
        if (e.timers[i].id && (best < 0 || e.timers[i].delay_ns < e.timers[best].delay_ns)) {
            best = i;
        }
    }
    assert_true(best >= 0);
    const uint64_t delay_ns = e.timers[best].delay_ns;
    e.timers[best].id = 0;
    e.timers[best].fire(e.timers[best].context);
    return delay_ns;
}

/* Is the folder of that job being removed? */
static bool removes(uint64_t id)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        if (e.processes[i].id && e.processes[i].job == id && !e.processes[i].is_killed) {
            return true;
        }
    }
    return false;
}

static void rm_ends(uint64_t id, int exit_code)
{
    for (int i = 0; i < PROCESSES_MAX; i++) {
        if (e.processes[i].id && e.processes[i].job == id) {
            const ls_env_id process = e.processes[i].id;
            e.processes[i].id = 0;
            e.processes[i].exited(e.processes[i].context, process, exit_code);
            return;
        }
    }
    fail_msg("no process removes folder %llu", (unsigned long long)id);
}

static ls_job *find_old(void *context, uint64_t id)
{
    (void)context;
    ls_job *old = NULL;
    return ls_job_store_find(store, id, &old) == LS_OK ? old : NULL;
}

static bool has_row(uint64_t id)
{
    ls_job *old = find_old(NULL, id);
    ls_job_destroy(old);
    return old != NULL;
}

/* Into the store, as it is. */
static void store_job(uint64_t id, bool is_new)
{
    ls_job *one = (ls_job *)(uintptr_t)job(id);
    const ls_transition line = {
        .job = id, .from = LS_JOB_QUEUED, .to = one->state, .time_s = w.now_s, .text = ""};
    const ls_turn turn_of_one = {.time_s = w.now_s,
                                 .created = &one,
                                 .created_count = is_new,
                                 .changed = &one,
                                 .changed_count = 1,
                                 .transitions = &line,
                                 .transition_count = 1,
                                 .must_be_written = true};
    assert_int_equal(ls_job_store_write(store, &turn_of_one), LS_OK);
}

/* `count` jobs that have ended, and one that waits. */
static void make_jobs(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t id = submit(1, "");
        store_job(id, true);
        starts(id);
        ends(id, 0);
        store_job(id, false);
    }
    store_job(submit(1, "hold: true"), true);
}

static void keep(uint64_t jobs)
{
    retention = ls_retention_create(&(ls_retention_settings){
        .env = &e.base, .store = store, .controller = w.controller, .home = folder, .jobs_kept = jobs});
}

static int set_up_store(void **state)
{
    char path[128];
    w_old_job = find_old;
    assert_int_equal(set_up(state), 0);
    memset(&e, 0, sizeof e);
    e.base.calls = &env_calls;
    snprintf(folder, sizeof folder, "/tmp/lockstep-keep-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/lockstep.db", folder);
    assert_int_equal(ls_job_store_open(path, &store), LS_OK);
    return 0;
}

static int tear_down_store(void **state)
{
    static const char *const names[] = {"lockstep.db", "lockstep.db-wal", "lockstep.db-shm"};
    char path[128];
    ls_retention_destroy(retention);
    retention = NULL;
    ls_job_store_close(store);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return tear_down(state);
}

static void folder_that_stays_holds_up_no_other(void **state)
{
    (void)state;
    make_jobs(5);
    keep(1);
    fire_shortest();
    assert_true(removes(1));
    rm_ends(1, 1); /* can't be removed */
    assert_true(removes(2));
    rm_ends(2, 0);
    assert_true(removes(3));
    fire_shortest(); /* takes too long, and is killed */
    assert_false(removes(3));
    assert_true(removes(4));
    rm_ends(4, 0);
    assert_true(has_row(1) && !has_row(2) && has_row(3) && !has_row(4) && has_row(5) && has_row(6));
    rm_ends(3, -9); /* late: it changes nothing */
    assert_false(removes(1));
    fire_shortest(); /* the next round */
    rm_ends(1, 0);
    rm_ends(3, 0);
    assert_true(!has_row(1) && !has_row(3) && has_row(5) && has_row(6));
    assert_int_equal(e.started, 6);
}

static void more_than_one_look_takes_go_in_one_round(void **state)
{
    (void)state;
    make_jobs(40);
    keep(1);
    fire_shortest();
    for (uint64_t id = 1; id < 40; id++) {
        if (id == 33) {
            assert_true(!has_row(2) && has_row(33));
            assert_true(fire_shortest() < HOUR_NS / 3600); /* soon */
        }
        rm_ends(id, id == 1 ? 1 : 0);
    }
    assert_true(has_row(1) && !has_row(2) && !has_row(39) && has_row(40));
    assert_true(fire_shortest() > HOUR_NS / 3600); /* a round is over */
    assert_true(removes(1));
    rm_ends(1, 0);
    assert_false(has_row(1));
}

/* A disk that hangs has a few processes that can't even be killed, not one more each time. */
static void disk_that_hangs_is_not_asked_for_ever(void **state)
{
    (void)state;
    make_jobs(20);
    keep(1);
    for (int i = 0; i < 30; i++) {
        fire_shortest();
    }
    assert_int_equal(e.started, 4);
    rm_ends(1, -9);
    rm_ends(2, -9);
    fire_shortest();
    assert_true(e.started > 4);
}

static void job_that_comes_meanwhile_keeps_what_it_waits_for(void **state)
{
    (void)state;
    make_jobs(3);
    keep(1);
    fire_shortest();
    assert_true(removes(1));
    submit(1, "after: [1], hold: true"); /* is accepted: job 1 has succeeded */
    rm_ends(1, 0);
    rm_ends(2, 0);
    assert_true(has_row(1) && !has_row(2));
    fire_shortest();
    assert_false(removes(1));
}

static void jobs_that_are_waited_for_hide_no_others(void **state)
{
    enum { WAITED = 300, EACH = 50 };
    (void)state;
    make_jobs(WAITED + 3);
    for (int first = 1; first <= WAITED; first += EACH) {
        char more[1024] = "hold: true, after: [";
        for (int i = 0; i < EACH; i++) {
            snprintf(more + strlen(more), sizeof more - strlen(more), "%s%d", i ? "," : "", first + i);
        }
        snprintf(more + strlen(more), sizeof more - strlen(more), "]");
        submit(1, more);
    }
    keep(1);
    for (int i = 0; i < 3 && !removes(WAITED + 1); i++) {
        fire_shortest();
    }
    assert_true(removes(WAITED + 1));
    rm_ends(WAITED + 1, 0);
    rm_ends(WAITED + 2, 0);
    assert_true(!has_row(WAITED + 1) && !has_row(WAITED + 2) && has_row(WAITED + 3) && has_row(1));
}

int main(void)
{
#define STORED(name) cmocka_unit_test_setup_teardown(name, set_up_store, tear_down_store)
    const struct CMUnitTest tests[] = {
        STORED(folder_that_stays_holds_up_no_other),
        STORED(more_than_one_look_takes_go_in_one_round),
        STORED(disk_that_hangs_is_not_asked_for_ever),
        STORED(job_that_comes_meanwhile_keeps_what_it_waits_for),
        STORED(jobs_that_are_waited_for_hide_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
