// SPDX-License-Identifier: Apache-2.0
/*
 * The generator: a text has the same tokens and the same scores, bit for bit, alone and beside
 * others that join and leave, however its prompt is cut, with any number of threads, and when a slot
 * holds its beginning already. Its scores are those of the forward pass of training.
 */
#include "test.h"

#include "compute/kernels/shape.h"
#include "execution/executor/state.h"
#include "execution/generate/generate.h"
#include "model/models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 9, TOKENS_MAX = 128 };

typedef struct fixture {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    ls_queue *queue;
    ls_state state;
} fixture;

static void open_model(fixture *f, ls_family family, uint32_t threads)
{
    *f = (fixture){.config = small_config(family)};
    ls_layout_build(&f->arena, &f->config, &f->layout);
    assert_int_equal(ls_queue_create_cpu(threads, &f->queue), LS_OK);
    assert_int_equal(ls_state_init(&f->state, f->queue, LS_F32, &f->layout, 0), LS_OK);
    assert_int_equal(ls_state_init_weights(&f->state, f->queue, &f->config, 3), LS_OK);
}

static void close_model(fixture *f)
{
    ls_state_release(&f->state);
    ls_queue_destroy(f->queue);
    ls_arena_release(&f->arena);
}

static ls_generator *open_generator(const fixture *f, ls_generator_options options)
{
    ls_generator *generator = NULL;
    const ls_model_on_device model = {.queue = f->queue,
                                      .config = &f->config,
                                      .layout = &f->layout,
                                      .type = LS_F32,
                                      .weights = ls_state_weights(&f->state)};
    if (ls_generator_create(&model, &options, &generator) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return generator;
}

/* ---- what a text said ---- */

typedef struct record {
    int32_t tokens[TOKENS_MAX];
    double logprobs[TOKENS_MAX]; /* 1: none */
    size_t count, refuses_at;    /* 0: never */
    int ends;
    ls_text_end end;
} record;

static bool on_token(void *context, int32_t token, const ls_text_scores *scores)
{
    record *r = context;
    assert_true(r->count < TOKENS_MAX && r->ends == 0);
    r->logprobs[r->count] = scores ? scores->logprob : 1.0;
    r->tokens[r->count++] = token;
    return r->count != r->refuses_at;
}

static void on_end(void *context, ls_text_end end)
{
    record *r = context;
    r->ends++;
    r->end = end;
}

/* Text number i: prompts of 1 to 49 tokens, some alike at the beginning. */
static ls_text_request request_of(int i, int32_t prompt[TOKENS_MAX], record *r)
{
    static const size_t counts[TEXTS] = {1, 5, 49, 7, 30, 2, 31, 17, 3};
    for (size_t k = 0; k < counts[i]; k++) {
        prompt[k] = (int32_t)((k * 11 + 5 + (k > 20 ? (size_t)i : 0)) % 70);
    }
    *r = (record){0};
    return (ls_text_request){
        .prompt = prompt,
        .prompt_count = counts[i],
        .count = (uint64_t)(4 + i),
        .sampling = {.temperature = i % 3 ? 1.0 : 0.0, .top_p = 1.0, .seed = (uint64_t)i},
        .scores = true,
        .scores_prompt = i % 2 == 1,
        .top_count = 3,
        .on_token = on_token,
        .on_end = on_end,
        .context = r};
}

static void expect_same(const record *a, const record *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->tokens, b->tokens, a->count * sizeof a->tokens[0]);
    assert_memory_equal(a->logprobs, b->logprobs, a->count * sizeof a->logprobs[0]);
    assert_int_equal(a->end, b->end);
    assert_int_equal(b->ends, 1);
}

/* Every text alone, in a generator that reads prompts at once. */
static void run_alone(const fixture *f, record alone[TEXTS])
{
    for (int i = 0; i < TEXTS; i++) {
        int32_t prompt[TOKENS_MAX];
        const ls_text_request request = request_of(i, prompt, &alone[i]);
        ls_generator *g = open_generator(f, (ls_generator_options){.slots = 1});
        assert_int_equal(ls_generator_run(g, &request), LS_OK);
        assert_int_equal(alone[i].end, LS_TEXT_FULL);
        const size_t scored = request.scores_prompt ? request.prompt_count : 0;
        assert_int_equal(alone[i].count, scored + request.count);
        ls_generator_destroy(g);
    }
}

/* All of them through few slots: a text joins as soon as one is free, every other step. */
static void run_together(const fixture *f, ls_generator_options options, record together[TEXTS])
{
    ls_generator *g = open_generator(f, options);
    int next = 0;
    for (int step = 0; next < TEXTS || ls_generator_texts(g) > 0; step++) {
        if (next < TEXTS && step % 2 == 0 && ls_generator_texts(g) < (size_t)options.slots) {
            int32_t prompt[TOKENS_MAX];
            size_t slot = 0;
            const ls_text_request request = request_of(next, prompt, &together[next]);
            assert_int_equal(ls_generator_start(g, &request, &slot), LS_OK);
            next++;
        }
        if (ls_generator_texts(g) > 0) {
            assert_int_equal(ls_generator_step(g), LS_OK);
        }
    }
    ls_generator_destroy(g);
}

static void generator_gives_the_same_bits_alone_and_beside_others(void **state)
{
    (void)state;
    static const ls_family families[] = {LS_FAMILY_GPT2, LS_FAMILY_LLAMA, LS_FAMILY_QWEN3};
    static const ls_generator_options options[] = {{.slots = 4},
                                                   {.slots = 8, .rows = 8},
                                                   {.slots = 2, .rows = 2}, /* prompts cut to one row */
                                                   {.slots = 3, .rows = 7, .scored = 2},
                                                   {.slots = 4, .keeps_texts = true}};
    for (size_t k = 0; k < sizeof families / sizeof families[0]; k++) {
        fixture one, two;
        record alone[TEXTS], together[TEXTS];
        open_model(&one, families[k], 1);
        open_model(&two, families[k], 2);
        run_alone(&one, alone);
        for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
            run_together(i % 2 ? &one : &two, options[i], together);
            for (int text = 0; text < TEXTS; text++) {
                expect_same(&alone[text], &together[text]);
            }
        }
        close_model(&one);
        close_model(&two);
    }
}

static void generator_scores_as_training_does(void **state)
{
    (void)state;
    fixture f;
    open_model(&f, LS_FAMILY_LLAMA, 2);
    int32_t prompt[TOKENS_MAX];
    record r;
    ls_text_request request = request_of(2, prompt, &r);
    const int64_t length = (int64_t)request.prompt_count - 1;
    request.scores_prompt = true;
    request.count = 0;
    ls_generator *g = open_generator(&f, (ls_generator_options){.slots = 2, .rows = 9, .scored = 4});
    assert_int_equal(ls_generator_run(g, &request), LS_OK);
    assert_int_equal(r.count, request.prompt_count);
    assert_int_equal(r.end, LS_TEXT_FULL);

    ls_plan plan;
    ls_executor executor;
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = 1;
    options.length = length;
    options.losses = true;
    float losses[TOKENS_MAX];
    assert_int_equal(ls_plan_build(&f.arena, &f.config, &f.layout, &options, &plan), LS_OK);
    assert_int_equal(ls_executor_init(&executor, f.queue, &plan, length), LS_OK);
    const ls_executor_batch batch = {
        .weights = ls_state_weights(&f.state), .tokens = prompt, .targets = prompt + 1, .losses = losses};
    assert_int_equal(ls_executor_forward(&executor, &batch), LS_OK);
    for (int64_t i = 0; i < length; i++) {
        assert_float_equal(r.logprobs[i + 1], -losses[i], 2e-6);
    }
    ls_executor_release(&executor);
    ls_generator_destroy(g);
    close_model(&f);
}

static void generator_forgets_a_text_that_leaves(void **state)
{
    (void)state;
    fixture f;
    open_model(&f, LS_FAMILY_LLAMA, 1);
    record alone[TEXTS], gone, stays;
    run_alone(&f, alone);
    ls_generator *g = open_generator(&f, (ls_generator_options){.slots = 2, .rows = 4, .keeps_texts = true});
    int32_t prompt[TOKENS_MAX];
    size_t slot = 0, other = 0;
    ls_text_request request = request_of(2, prompt, &gone);
    assert_int_equal(ls_generator_start(g, &request, &slot), LS_OK);
    request = request_of(8, prompt, &stays);
    assert_int_equal(ls_generator_start(g, &request, &other), LS_OK);
    assert_int_equal(ls_generator_step(g), LS_OK);
    ls_generator_cancel(g, slot); /* in the middle of its prompt */
    assert_int_equal(ls_generator_texts(g), 1);
    while (ls_generator_texts(g) > 0) {
        assert_int_equal(ls_generator_step(g), LS_OK);
    }
    assert_int_equal(gone.ends, 0);
    expect_same(&alone[8], &stays);
    request = request_of(2, prompt, &gone); /* what was read of it before is used */
    assert_int_equal(ls_generator_run(g, &request), LS_OK);
    expect_same(&alone[2], &gone);
    ls_generator_destroy(g);
    close_model(&f);
}

static void generator_ends_at_a_stop_and_where_it_is_told(void **state)
{
    (void)state;
    fixture f;
    open_model(&f, LS_FAMILY_LLAMA, 1);
    record alone[TEXTS], r;
    run_alone(&f, alone);
    int32_t prompt[TOKENS_MAX];
    ls_generator *g = open_generator(&f, (ls_generator_options){.slots = 1});
    ls_text_request request = request_of(4, prompt, &r);
    const int32_t stop = alone[4].tokens[2];
    size_t first = 0;
    while (alone[4].tokens[first] != stop) {
        first++;
    }
    request.stops = &stop;
    request.stop_count = 1;
    assert_int_equal(ls_generator_run(g, &request), LS_OK);
    assert_int_equal(r.end, LS_TEXT_STOPPED);
    assert_int_equal(r.count, first);
    request = request_of(4, prompt, &r);
    request.stops = &stop;
    request.stop_count = 1;
    request.reports_stop = true;
    assert_int_equal(ls_generator_run(g, &request), LS_OK);
    assert_int_equal(r.end, LS_TEXT_STOPPED);
    assert_int_equal(r.count, first + 1);
    assert_int_equal(r.tokens[first], stop);
    request = request_of(4, prompt, &r);
    r.refuses_at = 2;
    assert_int_equal(ls_generator_run(g, &request), LS_OK);
    assert_int_equal(r.end, LS_TEXT_REFUSED);
    assert_int_equal(r.count, 2);
    assert_memory_equal(r.tokens, alone[4].tokens, 2 * sizeof r.tokens[0]);
    ls_generator_destroy(g);
    close_model(&f);
}

/* Beyond the capacity a text goes on from its newest half: as a new text with that half as prompt. */
static void generator_slides_when_it_is_full(void **state)
{
    (void)state;
    fixture f;
    open_model(&f, LS_FAMILY_LLAMA, 1);
    int32_t prompt[TOKENS_MAX], half[TOKENS_MAX];
    record all, rest;
    ls_text_request request = request_of(1, prompt, &all);
    request.sampling.temperature = 0.0;
    request.scores_prompt = false;
    request.count = 20;
    ls_generator *g = open_generator(&f, (ls_generator_options){.slots = 1, .capacity = 12});
    assert_int_equal(ls_generator_run(g, &request), LS_OK);
    assert_int_equal(all.count, 20);
    /* 5 + 7 tokens fill it; the 8th new one follows the newest 6 */
    memcpy(half, all.tokens + 1, 7 * sizeof half[0]);
    request = request_of(1, half, &rest);
    memcpy(half, all.tokens + 1, 7 * sizeof half[0]);
    request.prompt_count = 7;
    request.sampling.temperature = 0.0;
    request.scores_prompt = false;
    request.count = 5;
    assert_int_equal(ls_generator_run(g, &request), LS_OK);
    assert_memory_equal(rest.tokens, all.tokens + 8, 5 * sizeof half[0]);
    ls_generator_destroy(g);
    close_model(&f);
}

static void generator_refuses_bad_prompts(void **state)
{
    (void)state;
    fixture f;
    open_model(&f, LS_FAMILY_LLAMA, 1);
    int32_t prompt[TOKENS_MAX];
    record r;
    size_t slot = 77;
    ls_generator *g = open_generator(&f, (ls_generator_options){.slots = 1, .capacity = 20});
    ls_text_request request = request_of(3, prompt, &r);
    request.prompt_count = 0;
    assert_int_equal(ls_generator_start(g, &request, &slot), LS_ERR_INVALID);
    request = request_of(3, prompt, &r);
    prompt[4] = 70;
    assert_int_equal(ls_generator_start(g, &request, &slot), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "token id 70"));
    prompt[4] = -1;
    assert_int_equal(ls_generator_start(g, &request, &slot), LS_ERR_INVALID);
    request = request_of(2, prompt, &r); /* 49 tokens */
    request.scores_prompt = true;
    assert_int_equal(ls_generator_start(g, &request, &slot), LS_ERR_INVALID);
    assert_int_equal(slot, 77);
    assert_int_equal(ls_generator_texts(g), 0);
    ls_generator_destroy(g);
    f.config.context = 1;
    const ls_model_on_device model = {.queue = f.queue,
                                      .config = &f.config,
                                      .layout = &f.layout,
                                      .type = LS_F32,
                                      .weights = ls_state_weights(&f.state)};
    ls_generator *none = NULL;
    assert_int_equal(ls_generator_create(&model, &(ls_generator_options){.slots = 1}, &none), LS_ERR_INVALID);
    assert_null(none);
    close_model(&f);
}

static void text_score_names_the_likeliest(void **state)
{
    (void)state;
    const float logits[5] = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f};
    const double all = log(1.0 + 2.0 * exp(2.0) + exp(1.0) + exp(-1.0));
    ls_text_scores s;
    ls_text_score(logits, 5, 2, 3, &s);
    assert_float_equal(s.logprob, 1.0 - all, 1e-12);
    assert_int_equal(s.top_count, 3);
    assert_int_equal(s.top[0], 1); /* of equal ones the smaller id */
    assert_int_equal(s.top[1], 3);
    assert_int_equal(s.top[2], 2);
    assert_float_equal(s.top_logprob[1], 2.0 - all, 1e-12);
    ls_text_score(logits, 5, 4, 0, &s);
    assert_int_equal(s.top_count, 0);
    ls_text_score(logits, 5, 4, 20, &s);
    assert_int_equal(s.top_count, 5);
    assert_int_equal(s.top[4], 4);
}

static void sampling_at_a_tiny_temperature_is_greedy(void **state)
{
    (void)state;
    const float logits[4] = {0.0f, 2.0f, 1.0f, -1.0f};
    static const double temperatures[] = {0.0, 1e-310, 1e-12, 1e-6};
    int32_t order[4];
    for (size_t i = 0; i < sizeof temperatures / sizeof temperatures[0]; i++) {
        for (uint32_t top_k = 0; top_k < 3; top_k++) {
            const ls_sampling sampling = {
                .temperature = temperatures[i], .top_k = top_k, .top_p = top_k == 2 ? 0.9 : 1.0, .seed = 3};
            assert_int_equal(ls_sampling_draw(&sampling, logits, 4, i, order), 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator_gives_the_same_bits_alone_and_beside_others),
        cmocka_unit_test(generator_scores_as_training_does),
        cmocka_unit_test(generator_forgets_a_text_that_leaves),
        cmocka_unit_test(generator_ends_at_a_stop_and_where_it_is_told),
        cmocka_unit_test(generator_slides_when_it_is_full),
        cmocka_unit_test(generator_refuses_bad_prompts),
        cmocka_unit_test(text_score_names_the_likeliest),
        cmocka_unit_test(sampling_at_a_tiny_temperature_is_greedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
