// SPDX-License-Identifier: Apache-2.0
/* Properties of the schedules for all small pipelines. */
#include "test.h"

#include "model/pipeline.h"

#include <math.h>
#include <string.h>

enum { STAGES_MOST = 7, CHUNKS_MOST = 3, MICRO_BATCHES_MOST = 20, RUNS_MOST = STAGES_MOST * CHUNKS_MOST };

typedef void (*look_fn)(const ls_pipeline *pipeline, ls_arena *arena);

/* Every kind, number of stages, chunks and micro-batches. */
static void each_pipeline(look_fn look)
{
    ls_pipeline p;
    for (p.stages = 1; p.stages <= STAGES_MOST; p.stages++) {
        for (p.micro_batches = 1; p.micro_batches <= MICRO_BATCHES_MOST; p.micro_batches++) {
            for (p.chunks = 1; p.chunks <= CHUNKS_MOST; p.chunks++) {
                for (int kind = 0; kind < LS_PIPELINE_KIND_COUNT; kind++) {
                    p.kind = (ls_pipeline_kind)kind;
                    ls_arena arena = {0};
                    if (ls_pipeline_check(&p) == LS_OK) {
                        look(&p, &arena);
                    }
                    ls_arena_release(&arena);
                }
            }
        }
    }
}

static void has_all_in_order(const ls_pipeline *p, ls_arena *arena)
{
    for (uint32_t stage = 0; stage < p->stages; stage++) {
        const ls_pipeline_work *list = ls_pipeline_list(arena, p, stage);
        uint32_t done[CHUNKS_MOST][4] = {0};
        for (uint32_t i = 0; i < ls_pipeline_length(p); i++) {
            const ls_pipeline_work *w = &list[i];
            assert_true(w->chunk < p->chunks);
            assert_int_equal(w->micro_batch, done[w->chunk][w->pass]++);
            const uint32_t *d = done[w->chunk];
            assert_true(d[LS_PIPELINE_BACKWARD] <= d[LS_PIPELINE_FORWARD]);
            assert_true(d[LS_PIPELINE_BACKWARD_INPUT] <= d[LS_PIPELINE_FORWARD]);
            assert_true(d[LS_PIPELINE_BACKWARD_WEIGHT] <= d[LS_PIPELINE_BACKWARD_INPUT]);
        }
        for (uint32_t c = 0; c < p->chunks; c++) {
            const bool splits = ls_pipeline_splits_backward(p);
            const uint32_t m = p->micro_batches;
            assert_int_equal(done[c][LS_PIPELINE_FORWARD], m);
            assert_int_equal(done[c][LS_PIPELINE_BACKWARD], splits ? 0 : m);
            assert_int_equal(done[c][LS_PIPELINE_BACKWARD_INPUT], splits ? m : 0);
            assert_int_equal(done[c][LS_PIPELINE_BACKWARD_WEIGHT], splits ? m : 0);
        }
    }
}

static void list_has_every_pass_once_in_order(void **state)
{
    (void)state;
    each_pipeline(has_all_in_order);
}

/* ---- sends that wait ---- */

/* Values sent and taken, by the run of layers that made them and the direction. */
typedef struct links {
    const ls_pipeline *pipeline;
    uint32_t sent[RUNS_MOST][2], taken[RUNS_MOST][2];
    bool is_sending[STAGES_MOST]; /* the pass is done, its value is not sent */
    uint32_t at[STAGES_MOST];
} links;

/* Values that `from` has sent towards `to` on this way and that were not taken. */
static uint32_t on_link(const links *l, uint32_t from, uint32_t to, int way)
{
    const uint32_t runs = l->pipeline->stages * l->pipeline->chunks;
    uint32_t count = 0;
    for (uint32_t run = from; run < runs; run += l->pipeline->stages) {
        const uint32_t next = way == 0 ? run + 1 : run - 1;
        if (next < runs && next % l->pipeline->stages == to) {
            count += l->sent[run][way] - l->taken[run][way];
        }
    }
    return count;
}

/* One move of a stage: takes what its next pass needs, or sends what the last one made. */
static bool move(links *l, uint32_t stage, const ls_pipeline_work *list)
{
    const ls_pipeline *p = l->pipeline;
    if (l->at[stage] == ls_pipeline_length(p)) {
        return false;
    }
    const ls_pipeline_work *w = &list[l->at[stage]];
    const uint32_t run = w->chunk * p->stages + stage, last = p->stages * p->chunks - 1;
    const int way = w->pass == LS_PIPELINE_FORWARD ? 0 : 1;
    const bool talks = w->pass != LS_PIPELINE_BACKWARD_WEIGHT;
    const bool receives = talks && run != (way == 0 ? 0 : last);
    const bool sends = talks && run != (way == 0 ? last : 0);
    if (!l->is_sending[stage]) {
        const uint32_t from = way == 0 ? run - 1 : run + 1;
        if (receives && l->sent[from][way] <= w->micro_batch) {
            return false;
        }
        if (receives) {
            assert_int_equal(l->taken[from][way]++, w->micro_batch);
        }
        l->is_sending[stage] = sends;
        l->at[stage] += !sends;
        return true;
    }
    const uint32_t to = (way == 0 ? run + 1 : run - 1) % p->stages;
    if (on_link(l, stage, to, way) > 0) {
        return false;
    }
    l->sent[run][way]++;
    l->is_sending[stage] = false;
    l->at[stage]++;
    return true;
}

static void ends_with_sends_that_wait(const ls_pipeline *p, ls_arena *arena)
{
    const ls_pipeline_work *lists[STAGES_MOST];
    for (uint32_t s = 0; s < p->stages; s++) {
        lists[s] = ls_pipeline_list(arena, p, s);
    }
    links l = {.pipeline = p};
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t s = 0; s < p->stages; s++) {
            moved = move(&l, s, lists[s]) || moved;
        }
    }
    for (uint32_t s = 0; s < p->stages; s++) {
        if (l.at[s] != ls_pipeline_length(p)) {
            fail_msg("kind %d, %u stages, %u chunks, %u micro-batches: stage %u waits for ever in entry %u",
                     (int)p->kind, p->stages, p->chunks, p->micro_batches, s, l.at[s]);
        }
    }
}

static void list_never_waits_in_a_circle(void **state)
{
    (void)state;
    each_pipeline(ends_with_sends_that_wait);
}

/* ---- time ---- */

static ls_pipeline_times times_of(const ls_pipeline *p, ls_arena *arena, ls_pipeline_costs each)
{
    ls_pipeline_costs costs[STAGES_MOST];
    for (uint32_t s = 0; s < p->stages; s++) {
        costs[s] = each;
    }
    return ls_pipeline_run(arena, p, costs, p->stages);
}

static void idles_as_the_formula_says(const ls_pipeline *p, ls_arena *arena)
{
    const double f = 1.0, b = 1.25, w = 0.75, whole = f + b + w;
    const ls_pipeline_times t =
        times_of(p, arena, (ls_pipeline_costs){.forward_s = f, .input_s = b, .weight_s = w});
    const double stages = p->stages, m = p->micro_batches;
    assert_float_equal(t.total_s, t.idle_s + m * whole, 1e-9);
    if (p->kind == LS_PIPELINE_ZERO_BUBBLE) {
        if (p->micro_batches >= p->stages) {
            assert_float_equal(t.idle_s, (stages - 1.0) * (f + b - w), 1e-9);
        }
    } else if (p->chunks == 1 || p->micro_batches % p->stages == 0) {
        assert_float_equal(t.idle_s, (stages - 1.0) * whole / p->chunks, 1e-9);
        /* the share of the step that 1F1B is known for */
        if (p->chunks == 1) {
            assert_float_equal(t.idle_s / t.total_s, (stages - 1.0) / (m + stages - 1.0), 1e-9);
        }
    } else {
        /* no worse than with the empty places filled */
        const double full = ceil(m / stages) * stages;
        assert_true(t.total_s <= full * whole + (stages - 1.0) * whole / p->chunks + 1e-9);
    }
}

static void run_idles_as_the_formula_says(void **state)
{
    (void)state;
    each_pipeline(idles_as_the_formula_says);
}

static void run_counts_the_slowest_stage_and_cores(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_pipeline p = {LS_PIPELINE_ONE_BY_ONE, 2, 1, 3};
    /*
     *   stage 0   F0 F1 ..... B0 F2 B1 .. B2     1 second each way
     *   stage 1   .  F0 F0 B0 B0 F1 F1 ...       2 seconds each way
     */
    const ls_pipeline_costs costs[] = {{.forward_s = 1.0, .input_s = 0.5, .weight_s = 0.5},
                                       {.forward_s = 2.0, .input_s = 1.0, .weight_s = 1.0}};
    ls_pipeline_times t = ls_pipeline_run(&arena, &p, costs, 2.0);
    assert_float_equal(t.total_s, 1.0 + 3.0 * 4.0 + 1.0, 1e-9);
    assert_float_equal(t.idle_s, 2.0, 1e-9);
    /* On one core there is always something to do. On one and a half, the 4 seconds in which stage 0
     * computes beside stage 1 take a third longer. */
    t = ls_pipeline_run(&arena, &p, costs, 1.0);
    assert_float_equal(t.total_s, 3.0 * (2.0 + 4.0), 1e-9);
    t = ls_pipeline_run(&arena, &p, costs, 1.5);
    assert_float_equal(t.total_s, 14.0 + 4.0 / 3.0, 1e-9);
    ls_arena_release(&arena);
}

/* ---- memory ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void holds_as_many_as_it_says(const ls_pipeline *p, ls_arena *arena)
{
    for (uint32_t s = 0; s < p->stages; s++) {
        const uint32_t slots = ls_pipeline_slots(p, ls_pipeline_list(arena, p, s)), m = p->micro_batches;
        if (p->kind == LS_PIPELINE_ALL_FORWARD) {
            assert_int_equal(slots, m);
        } else if (p->kind == LS_PIPELINE_ZERO_BUBBLE) {
            assert_true(slots <= least(m, p->stages));
        } else if (p->chunks == 1) {
            assert_int_equal(slots, least(m, p->stages - s));
        } else {
            assert_true(slots <= least(m, 2 * p->stages));
        }
    }
}

static void slots_are_within_bounds(void **state)
{
    (void)state;
    each_pipeline(holds_as_many_as_it_says);
}

static void zero_bubble_idles_a_third_with_the_memory_of_1f1b(void **state)
{
    (void)state;
    const ls_pipeline_costs unit = {.forward_s = 1.0, .input_s = 1.0, .weight_s = 1.0};
    for (uint32_t stages = 2; stages <= STAGES_MOST; stages++) {
        ls_arena arena = {0};
        ls_pipeline p = {LS_PIPELINE_ONE_BY_ONE, stages, 1, 3 * stages};
        const double idle_s = times_of(&p, &arena, unit).idle_s;
        const uint32_t slots = ls_pipeline_slots(&p, ls_pipeline_list(&arena, &p, 0));
        p.kind = LS_PIPELINE_ZERO_BUBBLE;
        assert_true(times_of(&p, &arena, unit).idle_s <= idle_s / 3.0 + 1e-9);
        for (uint32_t s = 0; s < stages; s++) {
            assert_true(ls_pipeline_slots(&p, ls_pipeline_list(&arena, &p, s)) <= slots);
        }
        ls_arena_release(&arena);
    }
}

static void check_names_what_is_wrong(void **state)
{
    (void)state;
    const struct {
        ls_pipeline pipeline;
        const char *text;
    } cases[] = {
        {{LS_PIPELINE_ONE_BY_ONE, 0, 1, 1}, "stages is 0; it must be 1 to 1024"},
        {{LS_PIPELINE_ONE_BY_ONE, 1025, 1, 1}, "stages is 1025"},
        {{LS_PIPELINE_ONE_BY_ONE, 2, 0, 1}, "chunks per stage is 0"},
        {{LS_PIPELINE_ONE_BY_ONE, 2, 1, 0}, "micro-batches is 0"},
        {{LS_PIPELINE_KIND_COUNT, 2, 1, 1}, "kind of schedule is 3; it must be 0 to 2"},
        {{LS_PIPELINE_ZERO_BUBBLE, 2, 2, 4}, "2 chunks per stage (interleaving) need schedule 1f1b"},
        {{LS_PIPELINE_ONE_BY_ONE, 1, 2, 4}, "2 stages or more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ls_pipeline_check(&cases[i].pipeline), LS_ERR_INVALID);
        assert_non_null(strstr(ls_error_text(), cases[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_has_every_pass_once_in_order),
        cmocka_unit_test(list_never_waits_in_a_circle),
        cmocka_unit_test(run_idles_as_the_formula_says),
        cmocka_unit_test(run_counts_the_slowest_stage_and_cores),
        cmocka_unit_test(slots_are_within_bounds),
        cmocka_unit_test(zero_bubble_idles_a_third_with_the_memory_of_1f1b),
        cmocka_unit_test(check_names_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
