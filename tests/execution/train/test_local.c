// SPDX-License-Identifier: Apache-2.0
/* Local steps against independent code: workers as runs of their own, and the outer step by hand. */
#include "test.h"

#include "execution/train/local.h"
#include "step_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* AdamW's count of each fragment; with moments that become zero it begins anew. */
static void check_counts(const ls_local *local, const ls_local_turn *turn, uint64_t counts[])
{
    for (uint32_t f = 0; f < local->fragments; f++) {
        counts[f] = local->resets && turn->begins && turn->fragment == f ? 1 : counts[f] + 1;
        assert_int_equal(ls_local_adamw_step(local, turn, f), counts[f]);
    }
}

static void check_turns(const ls_local *local)
{
    enum { FRAGMENTS_MAX = 8 };
    uint64_t turn = 0, counts[FRAGMENTS_MAX] = {0};
    const uint64_t span = local->steps > 0 ? local->steps / local->fragments : UINT64_MAX;
    for (uint64_t step = 0; step < 14; step++) {
        assert_int_equal(ls_local_turns(local, step), turn);
        for (uint32_t worker = 0; worker < local->workers; worker++, turn++) {
            const ls_local_turn t = ls_local_turn_at(local, turn);
            assert_true(t.step == step && t.worker == worker && !t.is_outer && !t.makes && !t.applies);
            assert_true(t.is_first == (worker == 0));
            assert_true(t.begins == (local->steps > 0 && step % span == 0));
            assert_true(t.mixes == (t.begins && step > 0 && local->delay > 0));
            assert_true(!t.begins || step == 0 || t.fragment == (step / span - 1) % local->fragments);
            if (local->steps > 0 && worker == 0) {
                check_counts(local, &t, counts);
            }
        }
        const bool makes = local->steps > 0 && (step + 1 + local->delay) % span == 0;
        const bool applies = local->steps > 0 && (step + 1) % span == 0;
        if (makes || applies) {
            const ls_local_turn t = ls_local_turn_at(local, turn++);
            assert_true(t.step == step && t.is_outer && !t.is_first && !t.begins);
            assert_true(t.makes == makes && t.applies == applies);
            assert_int_equal(t.fragment, step / span % local->fragments);
        }
    }
}

static void turns_and_steps_agree(void **state)
{
    (void)state;
    check_turns(&(ls_local){.workers = 1});
    for (uint32_t fragments = 1; fragments <= 3; fragments++) {
        for (uint64_t span = 1; span <= 3; span++) {
            for (uint32_t i = 0; i < 10 * span; i++) {
                const ls_local local = {.steps = span * fragments,
                                        .workers = i % 5 + 1,
                                        .delay = i / 10,
                                        .resets = i % 2,
                                        .fragments = fragments};
                check_turns(&local);
            }
        }
    }
}

static void means_are_added_in_the_tree(void **state)
{
    (void)state;
    const double big = 1e17, values[5] = {1.0, big, -big, 1.0, 3.0};
    /* ((1 + big) + (-big + 1)) + 3: neither 1 counts beside `big` */
    assert_true(ls_local_mean(values, 5) == 3.0 / 5.0);
    assert_true(ls_local_mean(values, 1) == 1.0);
}

/* ---- a whole run ---- */

enum { STEPS = 4, ROUNDS = 2, WORKERS = 3, LEAVES = 2, BATCH = 4, FLOATS_MAX = 1 << 14 };
static const double LR = 1e-2;

/* The samples of one worker: batches of its own, one in each step of the run. */
typedef struct worker_view {
    uint32_t worker;
} worker_view;

static ls_status draw_of_worker(void *context, uint64_t position, const ls_sample *sample)
{
    const worker_view *view = context;
    const uint64_t step = position / BATCH, in_batch = position % BATCH;
    return draw(NULL, (step * WORKERS + view->worker) * BATCH + in_batch, sample);
}

typedef struct reference {
    bench workers[WORKERS];
    worker_view views[WORKERS];
    float shared[FLOATS_MAX], momentum[FLOATS_MAX], d[WORKERS][FLOATS_MAX];
} reference;

/* What is left of numbers that are sent as whole multiples of a scale for each block of them. */
static void round_all(float *x, int64_t count, int64_t block, float levels)
{
    for (int64_t at = 0; at < count; at += block) {
        const int64_t past = at + block < count ? at + block : count;
        float most = 0.0f;
        for (int64_t i = at; i < past; i++) {
            most = fmaxf(most, fabsf(x[i]));
        }
        for (int64_t i = at; i < past && most > 0.0f; i++) {
            x[i] = rintf(x[i] * (levels / most)) * (most / levels);
        }
    }
}

static void round_as(const ls_local *local, float *x, int64_t count)
{
    if (local->form.kind == LS_COMPRESSION_INT8) {
        round_all(x, count, 256, 127.0f);
    } else if (local->form.kind == LS_COMPRESSION_INT4) {
        round_all(x, count, 128, 7.0f);
    }
}

/* The mean of the workers' differences, in d[0]. */
static void make_outer(reference *r, const ls_local *local, int64_t begin, int64_t past)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        for (int64_t i = begin; i < past; i++) {
            r->d[w][i] = r->shared[i] - r->workers[w].state.parameters[i];
        }
        round_as(local, r->d[w] + begin, past - begin);
    }
    for (int64_t i = begin; i < past; i++) {
        r->d[0][i] = (r->d[0][i] + r->d[1][i]) + r->d[2][i];
    }
    round_as(local, r->d[0] + begin, past - begin);
}

static void apply_outer(reference *r, const ls_local *local, int64_t begin, int64_t past)
{
    for (int64_t i = begin; i < past; i++) {
        const float g = r->d[0][i] * (float)(1.0 / WORKERS);
        r->momentum[i] = local->outer_momentum * r->momentum[i] + g;
        r->shared[i] -= local->outer_lr * (g + local->outer_momentum * r->momentum[i]);
    }
}

/* A round that is delayed, or of a fragment, begins with a step whose gradient is that of the
 * parameters before the shared ones change them. It is made with a learning rate of 0 here, so that
 * a run of its own can do it. */
static double lr_of(const ls_local *local, uint64_t step)
{
    const bool is_late = local->delay > 0 || local->fragments > 1;
    return is_late && step > 0 && step % (STEPS / local->fragments) == 0 ? 0.0 : LR;
}

/* The floats of the fragment whose round ends next at step `step`: the first, and past the last. */
static int64_t ending_at(const bench *b, const ls_local *local, uint64_t step, int64_t *past_out)
{
    const uint64_t fragment = step / (STEPS / local->fragments) % local->fragments;
    int64_t count;
    const int64_t begin = ls_layout_run(&b->layout, local->fragments, (uint32_t)fragment, &count);
    *past_out = begin + count;
    return begin;
}

static void run_worker(reference *r, const ls_local *local, bench *worker, uint64_t step)
{
    ls_step_result result;
    const bool begins = step % (STEPS / local->fragments) == 0;
    const bool is_late = local->delay > 0 || local->fragments > 1;
    int64_t past = 0;
    float *own = worker->state.parameters;
    if (begins && (!is_late || step == 0)) {
        memcpy(own, r->shared, flat_bytes(worker));
    }
    assert_int_equal(ls_stepper_run(worker->stepper, step, lr_of(local, step), &result), LS_OK);
    int64_t i = begins && is_late && step > 0 ? ending_at(worker, local, step - 1, &past) : 0;
    for (; i < past; i++) {
        own[i] = local->delay > 0 ? 0.5f * (own[i] + r->shared[i]) : r->shared[i];
    }
}

/* Each worker is a run without local steps, which takes over the shared parameters. */
static void run_reference(reference *r, const ls_local *local)
{
    const bench *first = &r->workers[0];
    const int64_t floats = first->layout.float_count;
    const uint64_t span = STEPS / local->fragments;
    assert_true(floats <= FLOATS_MAX);
    memcpy(r->shared, first->state.parameters, flat_bytes(first));
    for (uint64_t step = 0; step < STEPS * ROUNDS; step++) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            run_worker(r, local, &r->workers[w], step);
        }
        int64_t past;
        const int64_t begin = ending_at(first, local, step, &past);
        if ((step + 1 + local->delay) % span == 0) {
            make_outer(r, local, begin, past);
        }
        if ((step + 1) % span == 0) {
            apply_outer(r, local, begin, past);
        }
    }
}

static void make_local(bench *b, const ls_local *local)
{
    bench_init(b, LEAVES, BATCH, 1, 2);
    ls_stepper_destroy(b->stepper);
    assert_int_equal(ls_state_add_workers(&b->state, local->workers), LS_OK);
    b->settings.local = *local;
    assert_int_equal(ls_stepper_create(&b->executor, &b->state, &b->settings, &b->stepper), LS_OK);
}

static void check_run(const ls_local *settings)
{
    const ls_local local = *settings;
    reference *r = calloc(1, sizeof *r);
    bench b;
    for (uint32_t w = 0; w < WORKERS; w++) {
        bench_init(&r->workers[w], LEAVES, BATCH, 1, 1);
        ls_stepper_destroy(r->workers[w].stepper);
        r->views[w].worker = w;
        r->workers[w].settings.sample = draw_of_worker;
        r->workers[w].settings.sample_context = &r->views[w];
        assert_int_equal(ls_stepper_create(&r->workers[w].executor, &r->workers[w].state,
                                           &r->workers[w].settings, &r->workers[w].stepper),
                         LS_OK);
    }
    run_reference(r, &local);
    make_local(&b, &local);
    double first = 0.0, last = 0.0;
    const uint64_t turns = ls_local_turns(&local, STEPS * ROUNDS);
    for (uint64_t turn = 0; turn < turns; turn++) {
        ls_step_result result;
        const ls_local_turn which = ls_local_turn_at(&local, turn);
        assert_int_equal(ls_stepper_run(b.stepper, turn, lr_of(&local, which.step), &result), LS_OK);
        first = turn == 0 ? (double)result.loss : first;
        last = which.is_outer ? last : (double)result.loss;
    }
    assert_true(last < first);
    assert_memory_equal(b.state.parameters, r->shared, flat_bytes(&b));
    assert_memory_equal(b.state.m, r->momentum, flat_bytes(&b));
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_memory_equal(ls_state_worker(&b.state, w, 1), r->workers[w].state.m, flat_bytes(&b));
        assert_memory_equal(ls_state_worker(&b.state, w, 2), r->workers[w].state.v, flat_bytes(&b));
        bench_release(&r->workers[w]);
    }
    bench_release(&b);
    free(r);
}

static void a_run_is_that_of_separate_workers(void **state)
{
    (void)state;
    static const ls_compression_kind kinds[] = {LS_COMPRESSION_NONE, LS_COMPRESSION_INT8,
                                                LS_COMPRESSION_INT4};
    for (uint32_t fragments = 1; fragments <= 2; fragments++) {
        for (uint64_t i = 0; i < 3 * STEPS / fragments; i++) {
            const ls_local local = {.steps = STEPS,
                                    .workers = WORKERS,
                                    .outer_lr = 0.7f,
                                    .outer_momentum = 0.9f,
                                    .delay = i / 3,
                                    .form = {.kind = kinds[i % 3]},
                                    .fragments = fragments};
            check_run(&local);
        }
    }
}

/* A worker whose parameters are not finite is named before the shared ones change. */
static void an_outer_step_that_is_not_finite_is_refused(void **state)
{
    (void)state;
    const ls_local local = {.steps = 1, .workers = 2, .outer_lr = 1.0f, .fragments = 1};
    bench b;
    make_local(&b, &local);
    ls_step_result result;
    assert_int_equal(ls_stepper_run(b.stepper, 0, LR, &result), LS_OK);
    assert_int_equal(ls_stepper_run(b.stepper, 1, LR, &result), LS_OK);
    float *before = malloc(flat_bytes(&b));
    memcpy(before, b.state.parameters, flat_bytes(&b));
    ls_state_worker(&b.state, 1, 0)[5] = NAN;
    assert_int_equal(ls_stepper_run(b.stepper, 2, LR, &result), LS_ERR_FAILED);
    assert_non_null(strstr(ls_error_text(), "step 1: the outer gradient of round 1 is not finite"));
    assert_non_null(strstr(ls_error_text(), "worker 1"));
    assert_memory_equal(b.state.parameters, before, flat_bytes(&b));
    free(before);
    bench_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_and_steps_agree),
        cmocka_unit_test(means_are_added_in_the_tree),
        cmocka_unit_test(a_run_is_that_of_separate_workers),
        cmocka_unit_test(an_outer_step_that_is_not_finite_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
