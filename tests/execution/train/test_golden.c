// SPDX-License-Identifier: Apache-2.0
/*
 * Whole models against PyTorch: logits, losses and every parameter's gradient of
 * tests/golden/models, for each recompute setting, and the promises about bits: same for any thread
 * count, same for any recompute setting, same with the micro-batch's rows in one walk or two.
 */
#include "test.h"

#include "base/file.h"
#include "execution/executor/executor.h"
#include "execution/generate/generate.h"
#include "execution/integrity/op_trace.h"
#include "execution/train/model_file.h"
#include "storage/safetensors/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, LENGTH = 24 };

static const char *const names[] = {"gpt2",         "llama",   "llama_rope_scaling",
                                    "llama_biases", "mistral", "qwen2",
                                    "qwen3",        "mixtral", "qwen3_moe"};
enum { MODEL_COUNT = sizeof names / sizeof names[0] };

/* A golden model in memory. */
typedef struct golden {
    ls_model_file *file;
    ls_safetensors *expected;
    ls_queue *queue;
    ls_state state;
    int32_t tokens[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];
    const int32_t *first; /* NULL: no records */
    float losses[SEQUENCES * LENGTH];
} golden;

static void golden_open(golden *g, const char *name, uint32_t threads)
{
    char path[1024], expected[1100];
    snprintf(path, sizeof path, "%s/tests/golden/models/%s", LS_SOURCE_DIR, name);
    snprintf(expected, sizeof expected, "%s/golden.safetensors", path);
    g->first = NULL;
    assert_int_equal(ls_model_file_open(path, &g->file), LS_OK);
    assert_int_equal(ls_safetensors_open(expected, &g->expected), LS_OK);
    assert_int_equal(ls_queue_create_cpu(threads, &g->queue), LS_OK);
    assert_int_equal(ls_state_init(&g->state, g->queue, LS_F32, &g->file->layout, 1), LS_OK);
    assert_int_equal(ls_model_file_load(g->file, &g->file->layout, g->state.parameters), LS_OK);
    const int32_t *tokens = ls_safetensors_find(g->expected, "tokens")->data;
    for (int s = 0; s < SEQUENCES; s++) {
        memcpy(g->tokens + s * LENGTH, tokens + s * (LENGTH + 1), LENGTH * sizeof *tokens);
        memcpy(g->targets + s * LENGTH, tokens + s * (LENGTH + 1) + 1, LENGTH * sizeof *tokens);
    }
}

static void golden_close(golden *g)
{
    ls_state_release(&g->state);
    ls_queue_destroy(g->queue);
    ls_safetensors_close(g->expected);
    ls_model_file_close(g->file);
}

static void run_micro_batch(golden *g, ls_recompute recompute, uint32_t tensor_cut)
{
    ls_arena arena = {0};
    ls_plan plan;
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.recompute = recompute;
    options.tensor_cut = tensor_cut;
    assert_int_equal(ls_plan_build(&arena, &g->file->config, &g->file->layout, &options, &plan), LS_OK);
    ls_executor executor;
    assert_int_equal(ls_executor_init(&executor, g->queue, &plan, LENGTH), LS_OK);
    const ls_executor_batch batch = {.weights = g->state.parameters,
                                     .gradients = g->state.gradients[0],
                                     .tokens = g->tokens,
                                     .targets = g->targets,
                                     .first = g->first,
                                     .losses = g->losses};
    assert_int_equal(ls_executor_forward(&executor, &batch), LS_OK);
    assert_int_equal(ls_executor_backward(&executor, &batch), LS_OK);
    assert_int_equal(ls_queue_wait(g->queue), LS_OK);
    ls_executor_release(&executor);
    ls_arena_release(&arena);
}

/* Largest difference, relative to the largest expected magnitude of the tensor. */
static double worst_difference(const float *ours, const float *theirs, int64_t count)
{
    double scale = 1e-6, worst = 0.0;
    for (int64_t i = 0; i < count; i++) {
        scale = fmax(scale, fabs((double)theirs[i]));
        worst = fmax(worst, isnan(ours[i]) ? INFINITY : fabs((double)ours[i] - (double)theirs[i]));
    }
    return worst / scale;
}

static void check_gradients(const golden *g, const char *name)
{
    const ls_layout *layout = &g->file->layout;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        char key[256];
        snprintf(key, sizeof key, "grad.%s", p->name);
        const ls_safetensor *expected = ls_safetensors_find(g->expected, key);
        assert_non_null(expected);
        const double worst =
            worst_difference(g->state.gradients[0] + p->offset, expected->data, p->rows * p->cols);
        if (worst > 2e-5) {
            fail_msg("%s: gradient of %s is off by %g of its largest element", name, p->name, worst);
        }
    }
}

static void executor_matches_pytorch(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        golden g;
        golden_open(&g, names[m], 2);
        for (int recompute = LS_RECOMPUTE_NONE; recompute <= LS_RECOMPUTE_FULL; recompute++) {
            run_micro_batch(&g, (ls_recompute)recompute, 1);
            const float *losses = ls_safetensors_find(g.expected, "losses")->data;
            for (int i = 0; i < SEQUENCES * LENGTH; i++) {
                if (!(fabsf(g.losses[i] - losses[i]) < 2e-5f)) {
                    fail_msg("%s: loss of token %d is %.7f, PyTorch has %.7f", names[m], i,
                             (double)g.losses[i], (double)losses[i]);
                }
            }
            check_gradients(&g, names[m]);
        }
        golden_close(&g);
    }
}

/* One position at a time through the cache gives what the whole sequence gives at once. */
typedef struct generated_scores {
    double logprob[LENGTH];
    size_t count;
} generated_scores;

static bool take_score(void *context, int32_t token, const ls_text_scores *scores)
{
    (void)token;
    generated_scores *s = context;
    assert_true(s->count < LENGTH && (s->count == 0) == (scores == NULL));
    s->logprob[s->count++] = scores ? scores->logprob : 0.0;
    return true;
}

static void generator_logits_match_pytorch(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        golden g;
        golden_open(&g, names[m], 1);
        const int64_t vocab = g.file->config.vocab;
        const float *expected = ls_safetensors_find(g.expected, "logits")->data;
        ls_generator *generator = NULL;
        const ls_model_on_device model = {g.queue, &g.file->config, &g.file->layout, LS_F32,
                                          g.state.parameters};
        assert_int_equal(
            ls_generator_create(&model, &(ls_generator_options){.slots = 1, .rows = 5}, &generator), LS_OK);
        generated_scores scores = {.count = 0};
        const ls_text_request request = {.prompt = g.tokens,
                                         .prompt_count = LENGTH,
                                         .scores = true,
                                         .scores_prompt = true,
                                         .on_token = take_score,
                                         .context = &scores};
        assert_int_equal(ls_generator_run(generator, &request), LS_OK);
        assert_int_equal(scores.count, LENGTH);
        for (size_t i = 1; i < LENGTH; i++) {
            const float *row = expected + (int64_t)(i - 1) * vocab;
            double total = 0.0;
            for (int64_t v = 0; v < vocab; v++) {
                total += exp((double)row[v]);
            }
            const double want = (double)row[g.tokens[i]] - log(total);
            if (!(fabs(scores.logprob[i] - want) < 1e-4)) {
                fail_msg("%s: the score of token %zu is %.6f, PyTorch has %.6f", names[m], i,
                         scores.logprob[i], want);
            }
        }
        ls_generator_destroy(generator);
        golden_close(&g);
    }
}

static void executor_same_bits_for_threads_and_recompute(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        float *first = NULL;
        size_t bytes = 0;
        for (uint32_t threads = 1; threads <= 4; threads++) {
            golden g;
            golden_open(&g, names[m], threads);
            run_micro_batch(&g, (ls_recompute)(threads % 3), 1);
            bytes = (size_t)g.file->layout.float_count * sizeof(float);
            if (!first) {
                first = malloc(bytes);
                memcpy(first, g.state.gradients[0], bytes);
            } else if (memcmp(first, g.state.gradients[0], bytes) != 0) {
                fail_msg("%s: gradients with %u threads differ in their bits", names[m], threads);
            }
            golden_close(&g);
        }
        free(first);
    }
}

/* A cut changes the order of some sums: other bits, same numbers. */
static void executor_with_canonical_cut_matches_pytorch(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        golden g;
        golden_open(&g, names[m], 2);
        if (g.file->config.experts == 0) { /* experts are never cut */
            run_micro_batch(&g, LS_RECOMPUTE_NONE, (uint32_t)g.file->config.kv_heads);
            check_gradients(&g, names[m]);
        }
        golden_close(&g);
    }
}

/* Central differences in double on the loss of a tiny change: independent of PyTorch. */
static double loss_sum(golden *g)
{
    run_micro_batch(g, LS_RECOMPUTE_NONE, 1);
    double sum = 0.0;
    for (int i = 0; i < SEQUENCES * LENGTH; i++) {
        sum += (double)g->losses[i];
    }
    return sum;
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        golden g;
        golden_open(&g, names[m], 2);
        (void)loss_sum(&g);
        const ls_layout *layout = &g.file->layout;
        for (uint32_t i = 0; i < layout->parameter_count; i += 3) {
            const ls_parameter *p = &layout->parameters[i];
            /* Along the gradient's own direction the loss changes by |gradient|^2 per unit. */
            const int64_t count = p->rows * p->cols;
            float *gradient = malloc((size_t)count * sizeof *gradient);
            float *kept = malloc((size_t)count * sizeof *kept);
            memcpy(gradient, g.state.gradients[0] + p->offset, (size_t)count * sizeof *gradient);
            memcpy(kept, g.state.parameters + p->offset, (size_t)count * sizeof *kept);
            double square = 0.0;
            for (int64_t e = 0; e < count; e++) {
                square += (double)gradient[e] * (double)gradient[e];
            }
            const double step = 3e-3 / sqrt(square + 1e-12);
            double side[2];
            for (int s = 0; s < 2; s++) {
                for (int64_t e = 0; e < count; e++) {
                    g.state.parameters[p->offset + e] =
                        (float)((double)kept[e] + (s ? step : -step) * (double)gradient[e]);
                }
                side[s] = loss_sum(&g);
            }
            memcpy(g.state.parameters + p->offset, kept, (size_t)count * sizeof *kept);
            const double slope = (side[1] - side[0]) / (2.0 * step);
            if (!(fabs(slope - square) <= 3e-2 * square + 1e-3)) {
                fail_msg("%s: %s: slope along the gradient is %g, |gradient|^2 is %g", names[m], p->name,
                         slope, square);
            }
            free(gradient);
            free(kept);
        }
        golden_close(&g);
    }
}

/* ---- records ---- */

enum { RECORDS = 7 };
/* Where records begin among the 2 * 24 rows; the last one is padding. */
static const int record_at[RECORDS + 1] = {0, 5, 6, 23, 24, 35, 44, SEQUENCES *LENGTH};

/* Puts into the micro-batch record `number` alone, at the beginning of sequence `sequence`, or, if
 * that is -1, all records where they are. */
static void lay_out(golden *g, const golden *text, int number, int sequence, int32_t *first)
{
    for (int i = 0; i < SEQUENCES * LENGTH; i++) {
        g->tokens[i] = 0;
        g->targets[i] = -1;
        first[i] = 0;
    }
    for (int k = 0; k < RECORDS; k++) {
        const int rows = record_at[k + 1] - record_at[k];
        const int at = sequence < 0 ? record_at[k] : sequence * LENGTH;
        for (int i = 0; i < rows && (sequence < 0 || k == number); i++) {
            g->tokens[at + i] = text->tokens[record_at[k] + i];
            g->targets[at + i] = k + 1 < RECORDS ? text->targets[record_at[k] + i] : -1;
            first[at + i] = at % LENGTH;
        }
        for (int i = rows; i < LENGTH && sequence >= 0 && k == number; i++) {
            first[at + i] = rows;
        }
    }
    g->first = first;
}

/* Packed into one micro-batch, records have the losses, bit for bit, that each has alone, and the
 * sum of their gradients. */
static void records_packed_are_records_alone(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        golden text, packed, alone;
        int32_t first[2][SEQUENCES * LENGTH];
        golden_open(&text, names[m], 1);
        golden_open(&packed, names[m], 1 + (uint32_t)m % 3);
        golden_open(&alone, names[m], 1 + (uint32_t)(m + 1) % 3);
        lay_out(&packed, &text, 0, -1, first[0]);
        run_micro_batch(&packed, (ls_recompute)(m % 3), 1);
        const int64_t count = packed.file->layout.float_count;
        float *sum = calloc((size_t)count, sizeof *sum);
        for (int k = 0; k < RECORDS; k++) {
            const int sequence = k % SEQUENCES, rows = record_at[k + 1] - record_at[k];
            lay_out(&alone, &text, k, sequence, first[1]);
            run_micro_batch(&alone, (ls_recompute)((m + 1) % 3), 1);
            assert_memory_equal(packed.losses + record_at[k], alone.losses + sequence * LENGTH,
                                (size_t)rows * sizeof(float));
            for (int64_t i = 0; i < count; i++) {
                sum[i] += alone.state.gradients[0][i];
            }
        }
        for (int i = record_at[RECORDS - 1]; i < SEQUENCES * LENGTH; i++) {
            assert_true(packed.losses[i] == 0.0f);
        }
        assert_true(worst_difference(packed.state.gradients[0], sum, count) < 1e-5);
        free(sum);
        golden_close(&text);
        golden_close(&packed);
        golden_close(&alone);
    }
}

static bool look_until_nonfinite(void *text, const ls_op_range *range)
{
    ls_op_range_describe(range, text, 256);
    return range->nonfinite == 0;
}

static void find_nonfinite_names_the_layer(void **state)
{
    (void)state;
    golden g;
    golden_open(&g, "llama", 1);
    const ls_parameter *p = ls_layout_find(&g.file->layout, "model.layers.1.mlp.down_proj.weight");
    assert_non_null(p);
    g.state.parameters[p->offset] = INFINITY;
    ls_arena arena = {0};
    ls_plan plan;
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    assert_int_equal(ls_plan_build(&arena, &g.file->config, &g.file->layout, &options, &plan), LS_OK);
    ls_executor executor;
    assert_int_equal(ls_executor_init(&executor, g.queue, &plan, LENGTH), LS_OK);
    const ls_executor_batch batch = {.weights = g.state.parameters,
                                     .gradients = g.state.gradients[0],
                                     .tokens = g.tokens,
                                     .targets = g.targets,
                                     .losses = g.losses};
    bool ended = false;
    char text[256] = "";
    assert_int_equal(ls_op_trace_run(&executor, &batch, look_until_nonfinite, text, &ended), LS_OK);
    assert_true(ended);
    assert_non_null(strstr(text, "layer 1 linear forward"));
    ls_executor_release(&executor);
    ls_arena_release(&arena);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(executor_matches_pytorch),
        cmocka_unit_test(generator_logits_match_pytorch),
        cmocka_unit_test(executor_same_bits_for_threads_and_recompute),
        cmocka_unit_test(executor_with_canonical_cut_matches_pytorch),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(records_packed_are_records_alone),
        cmocka_unit_test(find_nonfinite_names_the_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
