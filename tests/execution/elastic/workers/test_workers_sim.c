// SPDX-License-Identifier: Apache-2.0
/* Agent and coordinator in the simulated world: ranks that start late, differ, fail, die or hang
 * at moments drawn from a seed. Whatever happens, the end comes within the grace, is reported
 * once, after the last process is gone, with the first reason. */
#include "test.h"

#include "execution/elastic/host/coordinator_internal.h"
#include "sim/env/sim_env.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MS    1000000ull
#define S     (1000 * MS)
#define GRACE (500 * MS)

#define CHECK(seed, condition)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fail_msg("seed %llu: not true: %s", (unsigned long long)(seed), #condition);                     \
        }                                                                                                    \
    } while (0)

enum { RANKS_MAX = 8 };

typedef enum fault {
    /* was started from something else */
    /* aborts with an error of its own and ends */
    NO_FAULT,
    /* killed from outside */
    DIES,
    /* never ready, and does not end when told to */
    HANGS,
    /* the same, and SIGKILL does not end it: it is blocked in the kernel */
    STAYS,
    DIFFERS,
    FAILS,
    /* ends with exit code 0 without having been told to */
    LEAVES,
    FAULT_COUNT
} fault;

/* One run of the workers, and what was heard of it. */
typedef struct world {
    ls_sim *sim;
    uint64_t seed;
    ls_segment segment;
    uint32_t ranks;
    fault fault;
    uint32_t victim;
    ls_env *env, *rank_envs[RANKS_MAX];
    ls_env_calls calls;
    ls_agent *agent;
    ls_coordinator *coordinator;
    uint32_t running, aborts, ends, losses;
    ls_status status;
    int32_t blamed;
    uint64_t abort_ns, ended_ns;
    char text[2048];
} world;

/* ---- a rank: becomes ready after a while, then makes steps until told to end ---- */

typedef struct puppet {
    world *w;
    ls_env *env;
    uint32_t rank;
    uint64_t steps;
} puppet;

static bool hangs(const world *w)
{
    return w->fault == HANGS || w->fault == STAYS;
}

static void puppet_step(void *context)
{
    puppet *p = context;
    ls_control *control = p->w->segment.control;
    const bool stuck = hangs(p->w) && p->rank == p->w->victim;
    if (!stuck && (atomic_load(&control->abort) != 0 || atomic_load(&control->quit) != 0)) {
        ls_control_phase(control, p->rank, LS_RANK_ENDING);
        ls_env_stop(p->env, atomic_load(&control->abort) != 0 ? 5 : 0);
        return;
    }
    if (p->steps++ == 3 && p->rank == p->w->victim) {
        if (p->w->fault == FAILS) {
            ls_control_abort(control, LS_ERR_DATA, (int32_t)p->rank, "rank can't read its data");
            ls_env_stop(p->env, 3);
            return;
        }
        if (p->w->fault == LEAVES) {
            ls_env_stop(p->env, 0);
            return;
        }
    }
    ls_env_timer_set(p->env, 1 * MS + ls_env_random_u64(p->env) % (5 * MS), puppet_step, p);
}

static void puppet_ready(void *context)
{
    puppet *p = context;
    ls_rank_slot *slot = ls_segment_slot(&p->w->segment, p->rank);
    const bool is_victim = p->rank == p->w->victim;
    if (!(is_victim && hangs(p->w))) {
        slot->preflight =
            (ls_preflight){.version = LS_PREFLIGHT_VERSION, .part_count = LS_PREFLIGHT_PART_COUNT};
        slot->preflight.hash[LS_PREFLIGHT_OP_PLAN][0] = is_victim && p->w->fault == DIFFERS;
        ls_control_phase(p->w->segment.control, p->rank, LS_RANK_READY);
    }
    puppet_step(p);
}

static void puppet_program(ls_env *env, const char *const *argv, void *context)
{
    world *w = context;
    size_t count = 0;
    while (argv[count]) {
        count++;
    }
    puppet *p = ls_sim_alloc(env, sizeof *p);
    *p = (puppet){.w = w, .env = env, .rank = (uint32_t)strtoul(argv[count - 1], NULL, 10)};
    w->rank_envs[p->rank] = env;
    atomic_store(&ls_segment_slot(&w->segment, p->rank)->pid, (int32_t)(1000 + p->rank));
    ls_control_phase(w->segment.control, p->rank, LS_RANK_STARTING);
    ls_env_timer_set(env, ls_env_random_u64(env) % (200 * MS), puppet_ready, p);
}

/* ---- the foreground process ---- */

static void on_ready(void *context, uint32_t rank)
{
    world *w = context;
    const ls_rank_slot *slot = ls_segment_slot(&w->segment, rank);
    const ls_preflight_member hello = {
        .rank = rank, .pid = atomic_load(&slot->pid), .host = "node", .preflight = slot->preflight};
    ls_coordinator_hello(w->coordinator, &hello);
    /* a second hello of the same rank has no effect */
    ls_coordinator_hello(w->coordinator, &hello);
}

static void on_lost(void *context, const ls_rank_end *end)
{
    world *w = context;
    w->losses++;
    ls_coordinator_lost(w->coordinator, "node", end);
}

static void on_running(void *context)
{
    ((world *)context)->running++;
}

static void on_abort(void *context, ls_status status, int32_t rank, const char *text)
{
    world *w = context;
    w->aborts++;
    ls_control_abort(w->segment.control, status, rank, text);
}

static void on_ended(void *context)
{
    world *w = context;
    w->ends++;
    w->ended_ns = ls_env_now_ns(w->env);
}

/* In the place of a call of the env's table: the victim does not die. */
static int kill_in_vain(ls_env *env, ls_env_id process, int signal_number)
{
    (void)env, (void)process, (void)signal_number;
    return 0;
}

static void foreground(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *w = context;
    static const char *const rank_argv[] = {"rank", "--rank", NULL};
    w->env = env;
    if (w->fault == STAYS) {
        w->calls = *env->calls;
        w->calls.process_kill = kill_in_vain;
        env->calls = &w->calls;
    }
    const ls_coordinator_options coordinator = {.env = env,
                                                .ranks = w->ranks,
                                                .epoch = 1,
                                                .start_timeout_ns = 2 * S,
                                                .context = w,
                                                .running = on_running,
                                                .abort = on_abort};
    CHECK(w->seed, ls_coordinator_create(&coordinator, &w->coordinator) == LS_OK);
    const ls_agent_options agent = {.env = env,
                                    .segment = &w->segment,
                                    .argv = rank_argv,
                                    .grace_ns = GRACE,
                                    .context = w,
                                    .ready = on_ready,
                                    .lost = on_lost,
                                    .ended = on_ended};
    CHECK(w->seed, ls_agent_start(&agent, &w->agent) == LS_OK);
}

/* ---- worlds ---- */

static void world_init(world *w, uint64_t seed, fault kind)
{
    *w = (world){.seed = seed, .fault = kind};
    w->sim = ls_sim_create(&(ls_sim_settings){.seed = seed});
    w->ranks = 1 + (uint32_t)(ls_sim_random_u64(w->sim) % RANKS_MAX);
    w->ranks = kind == DIFFERS && w->ranks < 3 ? 3 : w->ranks;
    w->victim = (uint32_t)(ls_sim_random_u64(w->sim) % w->ranks);
    const ls_segment_plan plan = {.float_count = 16,
                                  .leaves = RANKS_MAX,
                                  .ranks = w->ranks,
                                  .local_ranks = w->ranks,
                                  .epoch = 1,
                                  .text = "",
                                  .text_bytes = 0};
    CHECK(seed, ls_segment_create(&plan, &w->segment) == LS_OK);
    ls_sim_program_add(w->sim, "rank", puppet_program, w);
    ls_sim_start(w->sim, ls_sim_host_add(w->sim, "node"), foreground, w);
}

static void world_release(world *w)
{
    ls_agent_destroy(w->agent);
    ls_coordinator_destroy(w->coordinator);
    ls_sim_destroy(w->sim);
    ls_segment_release(&w->segment);
}

static void run_until(world *w, uint64_t until_ns)
{
    CHECK(w->seed, ls_sim_run(w->sim, until_ns, 1000000) < 1000000);
}

static void check_ended(world *w, uint64_t by_ns)
{
    CHECK(w->seed, w->ends == 1);
    CHECK(w->seed, w->ended_ns <= by_ns);
    for (uint32_t rank = 0; rank < w->ranks; rank++) {
        CHECK(w->seed, w->rank_envs[rank] && !ls_sim_is_running(w->rank_envs[rank]));
    }
}

static void workers_run_until_told_to_end(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        world w;
        world_init(&w, seed, NO_FAULT);
        run_until(&w, 1 * S);
        CHECK(seed, w.running == 1 && w.aborts == 0 && w.ends == 0);
        CHECK(seed, w.coordinator->phase == LS_WORKERS_RUNNING);
        ls_control_quit(w.segment.control); /* as the trainer does, from another thread */
        run_until(&w, 2 * S);
        check_ended(&w, 1 * S + 100 * MS);
        CHECK(seed, w.aborts == 0 && w.losses == 0);
        world_release(&w);
    }
}

static void workers_name_a_rank_that_dies(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        world w;
        world_init(&w, seed, DIES);
        const uint64_t when_ns = 1 * MS + ls_sim_random_u64(w.sim) % (600 * MS);
        run_until(&w, when_ns);
        ls_sim_signal(w.rank_envs[w.victim], SIGKILL);
        run_until(&w, when_ns + 10 * MS);
        char wanted[64];
        snprintf(wanted, sizeof wanted, "rank %u (node, pid %u) ended with signal 9", w.victim,
                 1000 + w.victim);
        CHECK(seed, w.aborts == 1 && w.losses == 1);
        CHECK(seed, ls_control_aborted(w.segment.control) == LS_ERR_RANKS_LOST);
        CHECK(seed, strstr(ls_error_text(), wanted));
        CHECK(seed, atomic_load(&w.segment.control->abort_rank) == (int32_t)w.victim);
        /* A second death on the way out changes nothing. */
        ls_sim_signal(w.rank_envs[(w.victim + 1) % w.ranks], SIGKILL);
        run_until(&w, when_ns + 2 * S);
        check_ended(&w, when_ns + 10 * MS + GRACE + 50 * MS);
        CHECK(seed, w.aborts == 1 && w.losses == 1);
        world_release(&w);
    }
}

static void workers_end_for_every_fault(void **state)
{
    (void)state;
    static const struct {
        fault kind;
        ls_status status;
        const char *text;
        uint64_t by_ns;
    } cases[] = {
        {HANGS, LS_ERR_TIMEOUT, "did not become ready", 2 * S + GRACE + 50 * MS},
        {DIFFERS, LS_ERR_MISMATCH, "op plan", 300 * MS + GRACE},
        {FAILS, LS_ERR_DATA, "can't read its data", 300 * MS + GRACE},
        {LEAVES, LS_ERR_RANKS_LOST, "exit code 0", 300 * MS + GRACE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint64_t seed = 1; seed <= 50; seed++) {
            world w;
            world_init(&w, seed, cases[i].kind);
            run_until(&w, 4 * S);
            check_ended(&w, cases[i].by_ns);
            CHECK(seed, ls_control_aborted(w.segment.control) == cases[i].status);
            CHECK(seed, strstr(ls_error_text(), cases[i].text));
            CHECK(seed, (w.running == 0) == (cases[i].kind == HANGS || cases[i].kind == DIFFERS) ||
                            cases[i].kind == FAILS || cases[i].kind == LEAVES);
            world_release(&w);
        }
    }
}

/* Not even a process that cannot be killed keeps the run from its end. */
static void workers_end_without_a_rank_that_does_not_die(void **state)
{
    (void)state;
    world w;
    world_init(&w, 3, STAYS);
    run_until(&w, 2 * S + GRACE + 29 * S);
    assert_int_equal(w.ends, 0);
    run_until(&w, 2 * S + GRACE + 31 * S);
    assert_int_equal(w.ends, 1);
    assert_true(ls_sim_is_running(w.rank_envs[w.victim]));
    assert_int_equal(ls_control_aborted(w.segment.control), LS_ERR_TIMEOUT);
    ls_sim_signal(w.rank_envs[w.victim], SIGKILL); /* it does end later: nothing is said twice */
    run_until(&w, 60 * S);
    assert_int_equal(w.ends, 1);
    world_release(&w);
}

/* Missing ranks are named, and no others. */
static void workers_name_missing_ranks(void **state)
{
    (void)state;
    world w;
    world_init(&w, 3, HANGS);
    run_until(&w, 4 * S);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %u of %u did not become ready within 2 s", w.victim, w.ranks);
    assert_int_equal(ls_control_aborted(w.segment.control), LS_ERR_TIMEOUT);
    assert_non_null(strstr(ls_error_text(), wanted));
    world_release(&w);
}

static void exit_text_names_signals(void **state)
{
    (void)state;
    char text[64];
    assert_string_equal(ls_exit_text(3, text), "exit code 3");
    assert_string_equal(ls_exit_text(128 + 9, text), "signal 9 (Killed)");
    assert_string_equal(ls_exit_text(128 + 11, text), "signal 11 (Segmentation fault)");
}

static void rank_doing_follows_its_marks(void **state)
{
    (void)state;
    const ls_segment_plan plan = {
        .float_count = 16, .exchange_bytes = 64, .leaves = 2, .ranks = 2, .local_ranks = 2, .text = ""};
    ls_segment segment;
    assert_int_equal(ls_segment_create(&plan, &segment), LS_OK);
    ls_control *control = segment.control;
    ls_rank_slot *slot = ls_segment_slot(&segment, 1);
    ls_part_marks *part = &control->parts[1];
    char text[96];
    ls_rank_doing(control, 1, text);
    assert_string_equal(text, "starting");
    atomic_store(&slot->phase, LS_RANK_STARTING);
    ls_rank_doing(control, 1, text);
    assert_string_equal(text, "opening its model and data");
    atomic_store(&slot->phase, LS_RANK_READY);
    ls_rank_doing(control, 1, text);
    assert_string_equal(text, "waiting for orders after step 0");
    atomic_store(&part->entered, 1);
    ls_rank_doing(control, 1, text);
    assert_string_equal(text, "computing step 1");
    atomic_store(&part->begun, 1);
    ls_rank_doing(control, 1, text);
    assert_string_equal(text, "updating weights in step 1");
    atomic_store(&part->done, 1);
    ls_rank_doing(control, 1, text);
    assert_string_equal(text, "waiting for others at the end of step 1");
    atomic_store(&slot->finished, 1);
    ls_rank_doing(control, 1, text);
    assert_string_equal(text, "waiting for orders after step 1");
    ls_segment_release(&segment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_run_until_told_to_end),
        cmocka_unit_test(workers_name_a_rank_that_dies),
        cmocka_unit_test(workers_end_for_every_fault),
        cmocka_unit_test(workers_name_missing_ranks),
        cmocka_unit_test(exit_text_names_signals),
        cmocka_unit_test(rank_doing_follows_its_marks),
        cmocka_unit_test(workers_end_without_a_rank_that_does_not_die),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
