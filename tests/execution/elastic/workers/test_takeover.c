// SPDX-License-Identifier: Apache-2.0
/* Ranks that die inside a step, at every place, and are taken over: real processes on a real
 * segment, with a small driver in place of the agent. The result has the bits of a single
 * undisturbed process. */
#include "test.h"

#include "execution/parallel/data_parallel_world.h"

#include "base/random.h"
#include "execution/parallel/exchange.h"
#include "execution/train/segment.h"

#include <errno.h>

enum { STEPS = 3, FAULT_STEP = 2, TAKEOVER_RANKS = 4, NOBODY = 0xffff };

/* ---- a rank ---- */

/* What a process does to itself. */
typedef struct plan_of_death {
    bool dies, dies_with_more; /* at once, or as soon as it computes another rank's part, too */
    ls_fault_injection_phase phase, phase_with_more;
    uint64_t nth;
} plan_of_death;

typedef struct team_world {
    world world; /* the model, and one process to compare with */
    ls_segment segment;
    ls_control *control;
    uint32_t ranks;
    pid_t pids[TAKEOVER_RANKS];
    plan_of_death deaths[TAKEOVER_RANKS];
    uint32_t death_count, put_back, fences;
    uint64_t random; /* numbers drawn */
    uint64_t seed;
    bool keeps; /* every step keeps the state before it in the snapshot */
} team_world;

typedef struct member {
    team_world *w;
    uint32_t local;
    ls_team team;
    ls_queue *queue;
    ls_executor executor;
    ls_state state;
    ls_data_parallel *parallel;
    ls_stepper *stepper;
    ls_fault_injection fault_injection;
    uint64_t step;
    bool has_run;
} member;

static float *segment_gradient(void *context, uint32_t part, uint32_t index)
{
    return ls_segment_gradient(&((const member *)context)->w->segment, part, index);
}

static ls_step_marks part_marks(void *context, uint32_t part)
{
    ls_part_marks *marks = &((const member *)context)->w->control->parts[part];
    return (ls_step_marks){.entered = &marks->entered, .begun = &marks->begun, .done = &marks->done};
}

static ls_status why_ended(void *context)
{
    LS_TRY(ls_control_aborted(((const member *)context)->w->control));
    return ls_fail(LS_FENCED, "fenced");
}

static void leave_team(member *m)
{
    ls_stepper_destroy(m->stepper);
    ls_data_parallel_destroy(m->parallel);
    m->stepper = NULL;
    m->parallel = NULL;
}

static uint32_t parts_held(const member *m)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->team.local_parts; i++) {
        count += m->team.holder[i] == m->local;
    }
    return count;
}

static ls_status make_stepper(member *m)
{
    team_world *w = m->w;
    const ls_data_parallel_options options = {.plan = &w->world.model.plan,
                                              .epoch = m->team.cut,
                                              .leaves = w->world.shape.leaves,
                                              .parts = m->team.parts,
                                              .local_parts = m->team.local_parts,
                                              .rank = m->local,
                                              .holders = m->team.holder,
                                              .room = w->ranks,
                                              .threads = ls_queue_threads(m->queue),
                                              .gradient = segment_gradient,
                                              .sums = w->segment.sums,
                                              .context = m,
                                              .exchange = w->segment.exchange,
                                              .timeout_s = 30.0,
                                              .abort = &w->control->interrupt,
                                              .aborted = why_ended,
                                              .fault_injection = &m->fault_injection,
                                              .marks = part_marks};
    LS_TRY(ls_data_parallel_create(&options, &m->parallel));
    ls_step_settings settings = settings_of(&w->world.shape);
    settings.parallel = m->parallel;
    settings.fault_injection = &m->fault_injection;
    return ls_stepper_create(&m->executor, &m->state, &settings, &m->stepper);
}

static void arm(member *m, bool dies, ls_fault_injection_phase phase, uint64_t nth)
{
    if (dies) {
        m->fault_injection = (ls_fault_injection){
            .kind = LS_FAULT_INJECTION_DIE, .step = FAULT_STEP, .phase = phase, .nth = nth ? nth : 1};
    }
}

static ls_status join_team(member *m)
{
    const uint64_t cut = m->team.cut;
    const uint32_t before = m->parallel ? parts_held(m) : 0;
    ls_control_read_team(m->w->control, &m->team);
    const uint32_t now = parts_held(m);
    if (m->team.cut == cut && now > before && before > 0) {
        const plan_of_death *death = &m->w->deaths[m->local];
        arm(m, death->dies_with_more, death->phase_with_more, 1);
    }
    if (m->team.cut == cut && m->has_run && m->parallel && now > 0) {
        LS_TRY(ls_data_parallel_assign(m->parallel, m->team.holder, m->team.epoch));
        return ls_stepper_assign(m->stepper);
    }
    leave_team(m);
    m->has_run = false;
    m->step = m->team.step;
    return now > 0 ? make_stepper(m) : LS_OK;
}

static bool has_something_to_do(void *context)
{
    const member *m = context;
    const ls_control *control = m->w->control;
    return atomic_load(&control->team_epoch) != m->team.epoch || atomic_load(&control->quit) != 0 ||
           ls_control_is_fenced(control, m->step) || (m->parallel && atomic_load(&control->until) > m->step);
}

static bool has_other_team(void *context)
{
    const member *m = context;
    return atomic_load(&m->w->control->team_epoch) != m->team.epoch;
}

static ls_status run_one_step(member *m)
{
    ls_rank_result result = {.step = m->step};
    if (m->w->keeps) {
        ls_stepper_keep(m->stepper, m->w->segment.snapshot);
    }
    m->has_run = true;
    ls_fault_injection_at(&m->fault_injection, LS_PHASE_BEGIN, m->step);
    const ls_status status = ls_stepper_run(m->stepper, m->step, 1e-2, &result.result);
    if (status != LS_OK) {
        return status == LS_FENCED ? LS_OK : status;
    }
    m->step++;
    result.end_ns = 1; /* a slot without a result for a step is all zeros */
    ls_control_result(m->w->control, m->local, &result);
    return LS_OK;
}

static ls_status live(member *m)
{
    ls_control *control = m->w->control;
    const ls_wait wait = {0};
    while (atomic_load(&control->quit) == 0) {
        if (atomic_load(&control->team_epoch) != m->team.epoch) {
            LS_TRY(join_team(m));
        } else if (ls_control_is_fenced(control, m->step)) {
            ls_control_park(control, m->local, m->team.epoch);
            (void)ls_wait_for(&control->orders, has_other_team, m, &wait);
        } else if (m->parallel && atomic_load(&control->until) > m->step) {
            LS_TRY(run_one_step(m));
        } else {
            (void)ls_wait_for(&control->orders, has_something_to_do, m, &wait);
        }
    }
    return LS_OK;
}

static int member_main(team_world *w, uint32_t local, bool is_replacement)
{
    member m = {.w = w, .local = local};
    const plan_of_death *death = &w->deaths[local];
    arm(&m, death->dies && !is_replacement, death->phase, death->nth);
    m.state = (ls_state){.layout = &w->world.model.layout,
                         .borrowed = true,
                         .parameters = w->segment.parameters,
                         .m = w->segment.m,
                         .v = w->segment.v};
    if (ls_queue_create_cpu(w->world.threads, &m.queue) != LS_OK ||
        ls_executor_init(&m.executor, m.queue, &w->world.model.plan, LENGTH) != LS_OK) {
        return 2;
    }
    m.state.queue = m.queue;
    const ls_status status = live(&m);
    if (status != LS_OK) {
        fprintf(stderr, "rank %u, step %llu: %s\n", local, (unsigned long long)m.step, ls_error_text());
        return 1;
    }
    leave_team(&m);
    ls_executor_release(&m.executor);
    ls_queue_destroy(m.queue);
    return 0;
}

static void start_member(team_world *w, uint32_t local, bool is_replacement)
{
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        _exit(member_main(w, local, is_replacement));
    }
    w->pids[local] = pid;
}

/* ---- the driver: what an agent does ---- */

static uint32_t draw_number(team_world *w, uint32_t bound)
{
    return (uint32_t)ls_random_below(ls_random_stream(w->seed, LS_RANDOM_TEST), w->random++, 0, bound);
}

/* Bits of the ranks that have died since the last look. */
static uint32_t look_for_deaths(team_world *w)
{
    uint32_t dead = 0;
    for (uint32_t i = 0; i < w->ranks; i++) {
        int status = 0;
        if (w->pids[i] == 0 || waitpid(w->pids[i], &status, WNOHANG) != w->pids[i]) {
            continue;
        }
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        w->pids[i] = 0;
        w->death_count++;
        dead |= 1u << i;
    }
    return dead;
}

static bool all_parked(const team_world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        if (w->pids[i] != 0 && !ls_control_is_parked(w->control, i)) {
            return false;
        }
    }
    return true;
}

static void fence(team_world *w, bool hard)
{
    w->fences++;
    ls_control_fence(w->control, atomic_load(&w->control->team_epoch) + 1, hard);
    ls_data_parallel_wake(w->segment.exchange);
}

static uint16_t next_living(team_world *w)
{
    const uint32_t from = draw_number(w, w->ranks);
    for (uint32_t i = 0; i < w->ranks; i++) {
        if (w->pids[(from + i) % w->ranks] != 0) {
            return (uint16_t)((from + i) % w->ranks);
        }
    }
    return NOBODY;
}

static uint64_t step_to_go_on_with(const team_world *w)
{
    uint64_t entered = 0;
    for (uint32_t i = 0; i < w->control->team.local_parts; i++) {
        const uint64_t one = atomic_load(&w->control->parts[i].entered);
        entered = one > entered ? one : entered;
    }
    return entered > w->control->team.first_step ? entered - 1 : entered;
}

/* A part whose last leaf is not finished has no final gradients: no rank may read them while
 * they are computed again. */
static void assert_nothing_torn_is_ready(const team_world *w, uint32_t part, const ls_recovered *found)
{
    const ls_exchange *exchange = w->segment.exchange;
    const ls_exchange_slot *slot = &exchange->slots[part];
    const uint32_t depth = atomic_load(&slot->stack.depth);
    const ls_leaf_range last = depth > 0 ? slot->stack.nodes[depth - 1].leaves : (ls_leaf_range){0};
    if (found->entered > 0 && !found->claimed &&
        last.first + last.count < slot->range.first + slot->range.count) {
        assert_int_equal(ls_word_get(&slot->counters[LS_COUNT_READY].word),
                         atomic_load(&slot->round) * w->world.model.layout.bucket_count);
    }
}

/* A rank died: fence, recover, and give its parts to others, or to replacements when none is
 * left. */
static void take_over(team_world *w)
{
    fence(w, true);
    while (!all_parked(w)) {
        (void)look_for_deaths(w); /* a second death: no longer waited for */
        usleep(500);
    }
    ls_team team = w->control->team;
    const bool nobody_left = next_living(w) == NOBODY;
    const ls_recovery recovery = {
        .exchange = w->segment.exchange,
        .flats = {w->segment.parameters, w->segment.m, w->segment.v},
        .snapshot = {w->segment.snapshot[0], w->segment.snapshot[1], w->segment.snapshot[2]},
    };
    for (uint32_t part = 0; part < team.local_parts; part++) {
        if (w->pids[team.holder[part]] == 0) {
            /* an interrupted recovery is done again */
            for (int again = 0; again < 2; again++) {
                const ls_recovered found = ls_data_parallel_recover_part(&recovery, part);
                assert_nothing_torn_is_ready(w, part, &found);
                w->put_back += found.blocks;
            }
            team.holder[part] = nobody_left ? team.holder[part] : next_living(w);
        }
    }
    team.epoch++;
    team.step = step_to_go_on_with(w);
    ls_control_team(w->control, &team);
    for (uint32_t i = 0; i < w->ranks && nobody_left; i++) {
        start_member(w, i, true);
    }
}

/* Whether step `step` has a result, from any rank. */
static const ls_step_result *find_result(const team_world *w, uint64_t step)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        const ls_rank_slot *slot = ls_segment_slot(&w->segment, i);
        const ls_rank_result *result = &slot->results[step % LS_RANK_RESULTS];
        if (atomic_load(&slot->finished) > step && result->step == step && result->end_ns != 0) {
            return &result->result;
        }
    }
    return NULL;
}

static bool all_at(const team_world *w, uint64_t step)
{
    const ls_team *team = &w->control->team;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        const ls_rank_slot *slot = ls_segment_slot(&w->segment, team->holder[i]);
        if (w->pids[team->holder[i]] == 0 || atomic_load(&slot->finished) < step) {
            return false;
        }
    }
    return true;
}

/* Waits until all have finished the steps below `step`. */
static void run_until(team_world *w, uint64_t step)
{
    ls_control_grant(w->control, step);
    while (!all_at(w, step)) {
        if (look_for_deaths(w)) {
            take_over(w);
        }
        usleep(200);
    }
}

/* Between two steps: another cut, part i held by rank holders[i]. */
static void cut_anew(team_world *w, uint64_t step, uint32_t parts, const uint16_t *holders)
{
    ls_team team = {.epoch = w->control->team.epoch + 1,
                    .cut = w->control->team.epoch + 1,
                    .first_step = step,
                    .step = step,
                    .parts = parts,
                    .local_parts = parts};
    memcpy(team.holder, holders, parts * sizeof *holders);
    fence(w, false);
    while (!all_parked(w)) {
        assert_int_equal(look_for_deaths(w), 0);
        usleep(200);
    }
    ls_data_parallel_clear(w->segment.exchange);
    ls_control_begin_cut(w->control, step);
    ls_control_team(w->control, &team);
}

static void open_team(team_world *w, uint32_t ranks, uint32_t leaves, uint32_t threads, uint64_t seed)
{
    *w = (team_world){.ranks = ranks, .seed = seed};
    world_init(&w->world, &tiny, leaves, 1, threads, STEPS);
    const ls_segment_plan plan = {
        .float_count = (uint64_t)w->world.model.layout.float_count,
        .exchange_bytes = ls_data_parallel_exchange_bytes(&w->world.model.layout, ranks),
        .leaves = leaves,
        .ranks = ranks,
        .local_ranks = ranks,
        .epoch = 1,
        .text = "tiny",
        .text_bytes = 4,
    };
    assert_int_equal(ls_segment_create(&plan, &w->segment), LS_OK);
    w->control = w->segment.control;
    init_weights(&w->world, w->segment.parameters);
    ls_segment_begin_at(&w->segment, 0);
}

static void close_team(team_world *w)
{
    ls_control_quit(w->control);
    for (uint32_t i = 0; i < w->ranks; i++) {
        int status = 0;
        if (w->pids[i] != 0) {
            assert_int_equal(waitpid(w->pids[i], &status, 0), w->pids[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
    }
    ls_segment_release(&w->segment);
    world_release(&w->world);
}

static void compare_with_one(const team_world *w)
{
    alone one;
    const size_t bytes = flat_bytes(&w->world);
    alone_init(&one, (world *)(uintptr_t)&w->world, 1);
    for (uint64_t step = 0; step < STEPS; step++) {
        if (w->keeps && step + 1 == STEPS) {
            assert_memory_equal(w->segment.snapshot[0], one.state.parameters, bytes);
            assert_memory_equal(w->segment.snapshot[1], one.state.m, bytes);
            assert_memory_equal(w->segment.snapshot[2], one.state.v, bytes);
        }
        ls_step_result want;
        assert_int_equal(ls_stepper_run(one.stepper, step, 1e-2, &want), LS_OK);
        const ls_step_result *got = find_result(w, step);
        assert_non_null(got);
        assert_memory_equal(&got->loss, &want.loss, sizeof want.loss);
        assert_memory_equal(&got->grad_norm, &want.grad_norm, sizeof want.grad_norm);
        assert_int_equal(got->tokens, want.tokens);
    }
    assert_memory_equal(w->segment.parameters, one.state.parameters, bytes);
    assert_memory_equal(w->segment.m, one.state.m, bytes);
    assert_memory_equal(w->segment.v, one.state.v, bytes);
    alone_release(&one);
}

static void run_and_compare(team_world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        start_member(w, i, false);
    }
    run_until(w, STEPS);
    compare_with_one(w);
}

/* ---- tests ---- */

static const uint32_t leaf_counts[] = {4, 5, 7, 8, 11};

static void takeover_at_every_place_has_the_bits_of_one(void **state)
{
    (void)state;
    uint32_t cases = 0, deaths = 0, put_back = 0;
    for (uint32_t ranks = 2; ranks <= TAKEOVER_RANKS; ranks++) {
        for (uint32_t victim = 0; victim < ranks; victim++) {
            for (int phase = LS_PHASE_BEGIN; phase < LS_PHASES; phase++, cases++) {
                team_world w;
                open_team(&w, ranks, leaf_counts[cases % 5], 1 + cases % 2, 100 + cases);
                w.keeps = cases % 3 == 0;
                w.deaths[victim] =
                    (plan_of_death){.dies = true, .phase = (ls_fault_injection_phase)phase, .nth = 1};
                run_and_compare(&w);
                /* Some parts have nothing to merge or to add up, and an audited leaf hands its
                 * buckets over at the end. */
                const bool may_miss = phase == LS_PHASE_MERGE || phase == LS_PHASE_READY ||
                                      phase == LS_PHASE_SUM || phase == LS_PHASE_BLOCK;
                if (w.death_count != 1 && !may_miss) {
                    fail_msg("phase %d, rank %u of %u: %u deaths", phase, victim, ranks, w.death_count);
                }
                deaths += w.death_count;
                put_back += w.put_back;
                close_team(&w);
            }
        }
    }
    print_message("seeds 100 to %u: %u ranks killed, %u blocks put back, all with the bits of one process\n",
                  99 + cases, deaths, put_back);
    assert_true(put_back > 0 && deaths > cases * 9 / 10);
}

/* The rank that takes over dies as well, at another place or the same. */
static void takeover_of_a_takeover_has_the_bits_of_one(void **state)
{
    (void)state;
    uint32_t cases = 0, deaths = 0;
    for (int first = LS_PHASE_BEGIN; first < LS_PHASES; first++) {
        for (int offset = 0; offset < LS_PHASES; offset += 4, cases++) {
            team_world w;
            open_team(&w, 3, leaf_counts[cases % 5], 1, 300 + cases);
            w.deaths[cases % 3] =
                (plan_of_death){.dies = true, .phase = (ls_fault_injection_phase)first, .nth = 1};
            for (uint32_t i = 0; i < 3; i++) {
                w.deaths[i].dies_with_more = i != cases % 3;
                w.deaths[i].phase_with_more = (ls_fault_injection_phase)((first + offset) % LS_PHASES);
            }
            run_and_compare(&w);
            deaths += w.death_count;
            close_team(&w);
        }
    }
    print_message("seeds 300 to %u: %u ranks killed\n", 299 + cases, deaths);
    assert_true(deaths > cases);
}

/* All die, one after the other; replacements find the step as they left it. */
static void takeover_by_replacements_has_the_bits_of_one(void **state)
{
    (void)state;
    for (int phase = LS_PHASE_BEGIN; phase < LS_PHASES; phase++) {
        team_world w;
        open_team(&w, 3, leaf_counts[phase % 5], 1, 500 + (uint64_t)phase);
        for (uint32_t i = 0; i < 3; i++) {
            w.deaths[i] = (plan_of_death){.dies = true, .phase = (ls_fault_injection_phase)phase, .nth = 1};
            w.deaths[i].dies_with_more = true;
            w.deaths[i].phase_with_more = LS_PHASE_BLOCK;
        }
        run_and_compare(&w);
        close_team(&w);
    }
}

/* Ranks join and leave between steps: the step is cut anew each time. */
static void takeover_cut_anew_between_steps_has_the_bits_of_one(void **state)
{
    (void)state;
    static const uint16_t cuts[][4] = {{2, 0, 0, 0}, {3, 1, 0, 2}, {0, 1, 2, 3}};
    static const uint32_t parts[] = {1, 3, 4};
    for (uint32_t trial = 0; trial < 3; trial++) {
        team_world w;
        open_team(&w, 4, leaf_counts[trial], 1, 600 + trial);
        w.deaths[1] = (plan_of_death){.dies = trial == 1, .phase = LS_PHASE_SUM, .nth = 1};
        for (uint32_t i = 0; i < w.ranks; i++) {
            start_member(&w, i, false);
        }
        for (uint64_t step = 0; step < STEPS; step++) {
            const uint32_t cut = (uint32_t)(step + trial) % 3;
            uint16_t holders[4];
            for (uint32_t i = 0; i < parts[cut]; i++) {
                holders[i] = w.pids[cuts[cut][i]] ? cuts[cut][i] : next_living(&w);
            }
            cut_anew(&w, step, parts[cut], holders);
            run_until(&w, step + 1);
        }
        compare_with_one(&w);
        close_team(&w);
    }
}

/* The tests of test_data_parallel have no fences: taking over changes nothing for them. */
static void takeover_undisturbed_is_what_it_was(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 5, 3, 1, 3);
    compare_world(&w);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takeover_undisturbed_is_what_it_was),
        cmocka_unit_test(takeover_at_every_place_has_the_bits_of_one),
        cmocka_unit_test(takeover_of_a_takeover_has_the_bits_of_one),
        cmocka_unit_test(takeover_by_replacements_has_the_bits_of_one),
        cmocka_unit_test(takeover_cut_anew_between_steps_has_the_bits_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
