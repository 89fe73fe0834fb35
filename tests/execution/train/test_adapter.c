// SPDX-License-Identifier: Apache-2.0
/*
 * Adapters: a model with one computes what the model with merged weights does, its gradients are
 * those of the merged weights times the other factor (in float64), in every family, for any layers,
 * with the same bits for each recompute setting; and a packed base has the bits of the float32 base
 * that it unpacks to.
 */
#include "test.h"

#include "base/file.h"
#include "base/random.h"
#include "compute/kernels/dropout.h"
#include "compute/kernels/packed.h"
#include "execution/executor/executor.h"
#include "execution/executor/state.h"
#include "execution/train/adapter_file.h"
#include "model/models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, LENGTH = 16, ROWS = SEQUENCES * LENGTH, TARGETS_MAX = 3 };

typedef struct model {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    ls_plan plan;
    ls_queue *queue;
    ls_executor executor;
    ls_state state;
    int32_t tokens[ROWS], targets[ROWS];
    float losses[ROWS];
} model;

/* adapter NULL: the plain model. */
static void model_open(model *m, const ls_model_config *config, ls_recompute recompute,
                       const ls_adapter *adapter, ls_base_kind kind)
{
    *m = (model){.config = *config};
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    const ls_base base = ls_base_of_kind(kind);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.recompute = recompute;
    if (adapter) {
        assert_int_equal(ls_layout_build_adapter(&m->arena, config, adapter, &base, &m->layout), LS_OK);
    } else {
        ls_layout_build(&m->arena, config, &m->layout);
    }
    assert_int_equal(ls_plan_build(&m->arena, &m->config, &m->layout, &options, &m->plan), LS_OK);
    ls_plan_check(&m->plan);
    assert_int_equal(ls_queue_create_cpu(1, &m->queue), LS_OK);
    assert_int_equal(ls_executor_init(&m->executor, m->queue, &m->plan, LENGTH), LS_OK);
    assert_int_equal(ls_state_init(&m->state, m->queue, LS_F32, &m->layout, 1), LS_OK);
    for (int i = 0; i < ROWS; i++) {
        m->tokens[i] = (i * 7 + 3) % (int32_t)config->vocab;
        m->targets[i] = (i * 5 + 1) % (int32_t)config->vocab;
    }
}

static void model_close(model *m)
{
    ls_executor_release(&m->executor);
    ls_state_release(&m->state);
    ls_queue_destroy(m->queue);
    ls_arena_release(&m->arena);
}

static void run(model *m, bool accumulate)
{
    static const uint32_t pass[SEQUENCES] = {1, 1};
    static const int32_t record[ROWS] = {0};
    const ls_executor_batch batch = {.record = record,
                                     .pass = pass,
                                     .dropout_seed = 4,
                                     .weights = m->state.parameters,
                                     .gradients = m->state.gradients[0],
                                     .accumulate = accumulate,
                                     .more = !accumulate, /* two micro-batches make a leaf */
                                     .tokens = m->tokens,
                                     .targets = m->targets,
                                     .losses = m->losses};
    assert_int_equal(ls_executor_forward(&m->executor, &batch), LS_OK);
    assert_int_equal(ls_executor_backward(&m->executor, &batch), LS_OK);
}

static float *values_of(const model *m, const ls_parameter *p)
{
    return m->state.parameters + p->offset;
}

static float *gradient_of(const model *m, const ls_parameter *p)
{
    return m->state.gradients[0] + p->offset;
}

/* Weights of both models: those of the plain one are drawn, and the base of the other are the same;
 * A and B are drawn, too. */
static void fill(model *plain, model *adapted)
{
    assert_int_equal(ls_state_init_weights(&plain->state, plain->queue, &plain->config, 3), LS_OK);
    for (uint32_t i = 0; i < adapted->layout.parameter_count; i++) {
        const ls_parameter *p = &adapted->layout.parameters[i];
        const ls_parameter *q = ls_layout_find(&plain->layout, p->name);
        const int64_t count = p->rows * p->cols;
        for (int64_t k = 0; k < count && p->frozen; k++) {
            values_of(plain, q)[k] *= q->shape_rank == 2 ? 4.0f : 1.0f;
        }
        if (p->frozen) {
            memcpy(values_of(adapted, p), values_of(plain, q), (size_t)count * sizeof(float));
        } else {
            ls_random_normals(ls_random_stream(9, LS_RANDOM_TEST), 0, i, (size_t)count,
                              values_of(adapted, p));
            for (int64_t k = 0; k < count; k++) {
                values_of(adapted, p)[k] *= 0.1f;
            }
        }
    }
}

/* Calls `visit` for each linear layer with an adapter. */
typedef struct linear {
    model *plain, *adapted;
    const ls_parameter *weight, *a, *b;
    int64_t in, out;
    bool in_out;
} linear;

static int each_linear(model *plain, model *adapted, void (*visit)(const linear *l))
{
    int count = 0;
    for (uint32_t i = 0; i < plain->layout.parameter_count; i++) {
        const ls_parameter *w = &plain->layout.parameters[i];
        if (!ls_path_has_suffix(w->name, ".weight")) {
            continue;
        }
        const ls_parameter *a =
            ls_layout_find(&adapted->layout, ls_adapter_name(&plain->arena, w->name, 'A'));
        const ls_parameter *b =
            ls_layout_find(&adapted->layout, ls_adapter_name(&plain->arena, w->name, 'B'));
        assert_int_equal(a != NULL, b != NULL);
        if (a) {
            const bool in_out = plain->config.family == LS_FAMILY_GPT2;
            visit(&(linear){plain, adapted, w, a, b, a->cols, b->rows, in_out});
            assert_int_equal(w->rows, in_out ? a->cols : b->rows);
            assert_int_equal(w->cols, in_out ? b->rows : a->cols);
            count++;
        }
    }
    return count;
}

static float *weight_at(const linear *l, float *values, int64_t out, int64_t in)
{
    return &values[l->in_out ? in * l->out + out : out * l->in + in];
}

static void merge(const linear *l)
{
    const ls_adapter *adapter = l->adapted->layout.adapter;
    const double scale = (double)ls_adapter_scale(adapter);
    const float *a = values_of(l->adapted, l->a), *b = values_of(l->adapted, l->b);
    for (int64_t o = 0; o < l->out; o++) {
        for (int64_t i = 0; i < l->in; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < adapter->rank; r++) {
                sum += (double)b[o * adapter->rank + r] * (double)a[r * l->in + i];
            }
            *weight_at(l, values_of(l->plain, l->weight), o, i) += (float)(scale * sum);
        }
    }
}

static void expect_near(const char *name, const float *found, const double *wanted, int64_t count)
{
    double largest = 0.0;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(wanted[i]));
    }
    assert_true(largest > 0.0);
    for (int64_t i = 0; i < count; i++) {
        if (!(fabs((double)found[i] - wanted[i]) <= 2e-5 * largest)) {
            fail_msg("%s: element %lld is %g, not %g", name, (long long)i, (double)found[i], wanted[i]);
        }
    }
}

/* dB = scale dW A^T and dA = scale B^T dW. */
static void expect_gradients(const linear *l)
{
    const ls_adapter *adapter = l->adapted->layout.adapter;
    const int64_t rank = adapter->rank;
    const double scale = (double)ls_adapter_scale(adapter);
    const float *a = values_of(l->adapted, l->a), *b = values_of(l->adapted, l->b);
    double *da = calloc((size_t)(rank * l->in), sizeof *da),
           *db = calloc((size_t)(rank * l->out), sizeof *db);
    for (int64_t o = 0; o < l->out; o++) {
        for (int64_t i = 0; i < l->in; i++) {
            const double dw = scale * (double)*weight_at(l, gradient_of(l->plain, l->weight), o, i);
            for (int64_t r = 0; r < rank; r++) {
                da[r * l->in + i] += dw * (double)b[o * rank + r];
                db[o * rank + r] += dw * (double)a[r * l->in + i];
            }
        }
    }
    expect_near(l->a->name, gradient_of(l->adapted, l->a), da, rank * l->in);
    expect_near(l->b->name, gradient_of(l->adapted, l->b), db, rank * l->out);
    free(da);
    free(db);
}

static void compare_with_merged(const ls_model_config *config, ls_recompute recompute,
                                const ls_adapter *adapter, int linears)
{
    model plain, adapted;
    model_open(&plain, config, LS_RECOMPUTE_NONE, NULL, LS_BASE_FP32);
    model_open(&adapted, config, recompute, adapter, LS_BASE_FP32);
    fill(&plain, &adapted);
    assert_int_equal(each_linear(&plain, &adapted, merge), linears);
    for (int i = 0; i < 2; i++) { /* the second is added to the first */
        run(&plain, i > 0);
        run(&adapted, i > 0);
        each_linear(&plain, &adapted, expect_gradients);
    }
    for (int i = 0; i < ROWS; i++) {
        assert_float_equal(plain.losses[i], adapted.losses[i], 1e-5);
    }
    model_close(&plain);
    model_close(&adapted);
}

static void adapter_computes_what_merged_weights_do(void **state)
{
    (void)state;
    static const char *const gpt2[][TARGETS_MAX] = {{"all-linear"}, {"c_attn", "c_fc"}, {"h.1.*"}};
    static const int gpt2_counts[] = {12, 6, 4};
    static const char *const others[][TARGETS_MAX] = {
        {"all-linear"}, {"q_proj", "v_proj"}, {"k_proj", "up_proj", "layers.2"}, {"*.o_proj"}};
    static const int counts[] = {21, 6, 11, 3};
    /* Routers and experts get none. */
    static const char *const experts[][TARGETS_MAX] = {{"all-linear"}, {"q_proj", "layers.2"}};
    static const int expert_counts[] = {12, 6};
    for (int family = 0; family < LS_FAMILY_COUNT; family++) {
        const ls_model_config config = small_config(family);
        const bool is_gpt2 = family == LS_FAMILY_GPT2;
        const bool has_experts = config.experts > 0;
        const size_t cases = is_gpt2       ? sizeof gpt2 / sizeof *gpt2
                             : has_experts ? sizeof experts / sizeof *experts
                                           : sizeof others / sizeof *others;
        for (size_t i = 0; i < cases; i++) {
            ls_adapter adapter = {.rank = 3, .alpha = 5.0, .rslora = i == 1};
            adapter.targets = is_gpt2 ? gpt2[i] : has_experts ? experts[i] : others[i];
            while (adapter.target_count < TARGETS_MAX && adapter.targets[adapter.target_count]) {
                adapter.target_count++;
            }
            for (ls_recompute r = LS_RECOMPUTE_NONE; r <= LS_RECOMPUTE_FULL; r++) {
                compare_with_merged(&config, r, &adapter,
                                    is_gpt2       ? gpt2_counts[i]
                                    : has_experts ? expert_counts[i]
                                                  : counts[i]);
            }
        }
    }
}

static void adapter_recompute_does_not_change_bits(void **state)
{
    (void)state;
    const ls_model_config config = small_config(LS_FAMILY_QWEN3);
    const ls_adapter adapter = {.rank = 4, .alpha = 8.0};
    model plain, models[3];
    model_open(&plain, &config, LS_RECOMPUTE_NONE, NULL, LS_BASE_FP32);
    for (int r = 0; r < 3; r++) {
        model_open(&models[r], &config, (ls_recompute)r, &adapter, LS_BASE_FP32);
        fill(&plain, &models[r]);
        memcpy(models[r].state.parameters, models[0].state.parameters,
               (size_t)models[0].layout.parameter_floats * sizeof(float));
        run(&models[r], false);
        assert_memory_equal(models[r].losses, models[0].losses, sizeof models[0].losses);
        assert_memory_equal(models[r].state.gradients[0], models[0].state.gradients[0],
                            (size_t)models[0].layout.float_count * sizeof(float));
    }
    assert_true(models[2].plan.arena_floats < models[0].plan.arena_floats);
    for (int r = 0; r < 3; r++) {
        model_close(&models[r]);
    }
    model_close(&plain);
}

/* Packs the base of `fp32` into that of `packed`, and gives `fp32` the values it is read as. */
static void pack_base(const model *fp32, const model *packed)
{
    for (uint32_t i = 0; i < packed->layout.parameter_count; i++) {
        const ls_parameter *p = &packed->layout.parameters[i];
        const ls_parameter *q = ls_layout_find(&fp32->layout, p->name);
        if (!p->packed) {
            memcpy(values_of(packed, p), values_of(fp32, q), (size_t)(p->rows * p->cols) * sizeof(float));
            continue;
        }
        const bool in_out = packed->config.family == LS_FAMILY_GPT2;
        const ls_weight_layout layout = in_out ? LS_WEIGHT_IN_OUT : LS_WEIGHT_OUT_IN;
        const ls_packed memory = ls_packed_of((ls_packed_kind)packed->layout.base, in_out ? p->cols : p->rows,
                                              in_out ? p->rows : p->cols, values_of(packed, p));
        const ls_tensor matrix = ls_tensor_f32(values_of(fp32, q), p->rows, p->cols);
        assert_int_equal(ls_packed_pack(&memory, &matrix, layout), LS_OK);
        ls_packed_unpack(&memory, layout, &matrix);
    }
}

static void adapter_packed_base_has_the_bits_of_what_it_unpacks_to(void **state)
{
    (void)state;
    static const ls_family families[] = {LS_FAMILY_GPT2, LS_FAMILY_LLAMA};
    const ls_adapter adapter = {.rank = 4, .alpha = 8.0};
    for (int f = 0; f < 2; f++) {
        const ls_model_config config = small_config(families[f]);
        int64_t floats = INT64_MAX;
        for (ls_base_kind kind = LS_BASE_BF16; kind <= LS_BASE_NF4; kind++) {
            model plain, fp32, packed;
            model_open(&plain, &config, LS_RECOMPUTE_NONE, NULL, LS_BASE_FP32);
            model_open(&fp32, &config, LS_RECOMPUTE_NONE, &adapter, LS_BASE_FP32);
            model_open(&packed, &config, LS_RECOMPUTE_NONE, &adapter, kind);
            fill(&plain, &fp32);
            pack_base(&fp32, &packed);
            run(&fp32, false);
            run(&packed, false);
            assert_memory_equal(fp32.losses, packed.losses, sizeof fp32.losses);
            assert_memory_equal(fp32.state.gradients[0], packed.state.gradients[0],
                                (size_t)fp32.layout.float_count * sizeof(float));
            assert_true(packed.layout.parameter_floats < floats);
            floats = packed.layout.parameter_floats;
            model_close(&plain);
            model_close(&fp32);
            model_close(&packed);
        }
    }
}

static void adapter_costs_no_weight_gradient_of_the_base(void **state)
{
    (void)state;
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const ls_adapter adapter = {.rank = 2, .alpha = 4.0};
    model plain, adapted;
    model_open(&plain, &config, LS_RECOMPUTE_NONE, NULL, LS_BASE_FP32);
    model_open(&adapted, &config, LS_RECOMPUTE_NONE, &adapter, LS_BASE_FP32);
    for (uint32_t i = 0; i < adapted.plan.step_count; i++) {
        const ls_plan_step step = adapted.plan.steps[i];
        assert_false(step.phase == LS_PHASE_BACKWARD_WEIGHT &&
                     adapted.plan.ops[step.op].kind != LS_OP_ADAPTER);
    }
    const ls_memory_plan memory = ls_plan_memory(&adapted.plan, 1, 0, 0);
    assert_int_equal(memory.gradients, (uint64_t)adapted.layout.float_count * sizeof(float));
    assert_true(memory.gradients * 4 < ls_plan_memory(&plain.plan, 1, 0, 0).gradients);
    const ls_plan_flops f = ls_plan_count_flops(&adapted.plan), g = ls_plan_count_flops(&plain.plan);
    assert_true(f.backward < 0.75 * g.backward && f.forward > g.forward);
    model_close(&plain);
    model_close(&adapted);
}

static void adapter_begins_as_nothing(void **state)
{
    (void)state;
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const ls_adapter adapter = {.rank = 4, .alpha = 8.0};
    const ls_init_rule rule = {.seed = 5, .std = 0.02, .layers = 3};
    model m;
    model_open(&m, &config, LS_RECOMPUTE_NONE, &adapter, LS_BASE_FP32);
    for (uint32_t i = 0; i < m.layout.trained_count; i++) {
        const ls_parameter *p = &m.layout.parameters[i];
        const bool is_a = strstr(p->name, ".lora_A.") != NULL;
        double largest = 0.0, sum = 0.0;
        ls_parameter_init(&m.layout, i, &rule, 0, p->rows * p->cols, m.state.parameters);
        for (int64_t k = 0; k < p->rows * p->cols; k++) {
            largest = fmax(largest, fabs((double)values_of(&m, p)[k]));
            sum += (double)values_of(&m, p)[k];
        }
        const double bound = 1.0 / sqrt((double)p->cols);
        assert_true(is_a ? largest > 0.9 * bound && largest <= bound : largest == 0.0);
        assert_true(fabs(sum) <= 0.3 * bound * (double)(p->rows * p->cols));
    }
    model_close(&m);
}

static double loss_of(model *m)
{
    double sum = 0.0;
    run(m, false);
    for (int i = 0; i < ROWS; i++) {
        sum += (double)m->losses[i];
    }
    return sum;
}

/* The gradient with dropout is the slope of the loss along it, with the same mask; and the bits do
 * not depend on what is computed again. */
static void dropout_gradients_are_those_of_the_same_mask(void **state)
{
    (void)state;
    for (int family = 0; family < LS_FAMILY_COUNT; family++) {
        const ls_model_config config = small_config(family);
        const ls_adapter adapter = {.rank = 3, .alpha = 6.0, .dropout = 0.3};
        model plain, m, again[2];
        model_open(&plain, &config, LS_RECOMPUTE_NONE, NULL, LS_BASE_FP32);
        model_open(&m, &config, LS_RECOMPUTE_NONE, &adapter, LS_BASE_FP32);
        fill(&plain, &m);
        run(&m, false);
        const size_t bytes = (size_t)m.layout.float_count * sizeof(float);
        for (int i = 0; i < 2; i++) {
            model_open(&again[i], &config, i == 0 ? LS_RECOMPUTE_SELECTIVE : LS_RECOMPUTE_FULL, &adapter,
                       LS_BASE_FP32);
            fill(&plain, &again[i]);
            memcpy(again[i].state.parameters, m.state.parameters,
                   (size_t)m.layout.parameter_floats * sizeof(float));
            run(&again[i], false);
            assert_memory_equal(again[i].state.gradients[0], m.state.gradients[0], bytes);
            model_close(&again[i]);
        }
        float *gradient = malloc(bytes), *at = malloc(bytes);
        double norm = 0.0;
        memcpy(gradient, m.state.gradients[0], bytes);
        memcpy(at, m.state.parameters, bytes);
        for (int64_t i = 0; i < m.layout.float_count; i++) {
            norm += (double)gradient[i] * (double)gradient[i];
        }
        double losses[2];
        /* of the difference; so short that no token gets other experts */
        const double length = (config.experts > 0 ? 2e-4 : 2e-3) / sqrt(norm);
        for (int side = 0; side < 2; side++) {
            for (int64_t i = 0; i < m.layout.float_count; i++) {
                m.state.parameters[i] = at[i] + (float)((side == 0 ? -length : length) * (double)gradient[i]);
            }
            losses[side] = loss_of(&m);
        }
        const double slope = (losses[1] - losses[0]) / (2.0 * length);
        assert_true(fabs(slope - norm) < 0.01 * norm);
        free(gradient);
        free(at);
        model_close(&plain);
        model_close(&m);
    }
}

/* Rows 2..7 of a sequence are record 5; alone, they are rows 0..5 of one. */
static void dropout_is_the_same_alone_and_packed(void **state)
{
    (void)state;
    enum { COLS = 50, PACKED = 8, ALONE = 6 };
    const int32_t record[PACKED] = {4, 4, 5, 5, 5, 5, 5, 5}, first[PACKED] = {0, 0, 2, 2, 2, 2, 2, 2};
    const int32_t alone_record[ALONE] = {5, 5, 5, 5, 5, 5};
    const uint32_t pass = 3, other_pass = 4;
    float x[PACKED * COLS], y[PACKED * COLS], alone[ALONE * COLS], other[ALONE * COLS];
    ls_queue *queue = NULL;
    assert_int_equal(ls_queue_create_cpu(2, &queue), LS_OK);
    for (int i = 0; i < PACKED * COLS; i++) {
        x[i] = 1.0f;
    }
    ls_dropout d = {.key = ls_random_stream(7, LS_RANDOM_DROPOUT),
                    .probability = 0.25,
                    .length = PACKED,
                    .record = record,
                    .first = first,
                    .pass = &pass,
                    .site = 9};
    const ls_tensor from = ls_tensor_f32(x, PACKED, COLS), into = ls_tensor_f32(y, PACKED, COLS);
    assert_int_equal(ls_dropout_apply(queue, &d, &from, &into, false), LS_OK);
    d.length = ALONE;
    d.record = alone_record;
    d.first = NULL;
    const ls_tensor six = ls_tensor_rows(from, 0, ALONE), there = ls_tensor_f32(alone, ALONE, COLS);
    assert_int_equal(ls_dropout_apply(queue, &d, &six, &there, false), LS_OK);
    assert_memory_equal(alone, y + 2 * COLS, sizeof alone);
    d.pass = &other_pass;
    const ls_tensor elsewhere = ls_tensor_f32(other, ALONE, COLS);
    assert_int_equal(ls_dropout_apply(queue, &d, &six, &elsewhere, false), LS_OK);
    assert_memory_not_equal(alone, other, sizeof alone);

    int zeros = 0;
    for (int i = 0; i < PACKED * COLS; i++) {
        assert_true(y[i] == 0.0f || fabsf(y[i] - 4.0f / 3.0f) < 1e-6f);
        zeros += y[i] == 0.0f;
    }
    assert_in_range(zeros, 70, 130); /* 100 of 400, and three standard deviations */
    assert_int_equal(ls_dropout_apply(queue, &d, &six, &elsewhere, true), LS_OK);
    ls_queue_destroy(queue);
}

static void adapter_targets_that_match_nothing_are_named(void **state)
{
    (void)state;
    static const char *const targets[] = {"q_proj", "c_attn"};
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const ls_adapter adapter = {.rank = 4, .alpha = 8.0, .targets = targets, .target_count = 2};
    const ls_base base = ls_base_of_kind(LS_BASE_FP32);
    ls_arena arena = {0};
    ls_layout layout = {.parameter_count = 77};
    assert_int_equal(ls_layout_build_adapter(&arena, &config, &adapter, &base, &layout), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "\"c_attn\" matches no linear layer"));
    assert_non_null(strstr(ls_error_text(), "q_proj, k_proj"));
    assert_int_equal(layout.parameter_count, 77);
    ls_arena_release(&arena);
}

static void adapter_config_refuses_what_is_not_plain_lora(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"use_dora\": true}", "use_dora is true"},
        {"{\"peft_type\": \"IA3\", \"r\": 8}", "peft_type is \"IA3\""},
        {"{\"r\": 8, \"rank_pattern\": {\"q_proj\": 4}}", "rank_pattern"},
        {"{\"r\": 8, \"bias\": \"all\"}", "bias is \"all\""},
        {"{\"r\": 8, \"modules_to_save\": [\"lm_head\"]}", "modules_to_save"},
        {"{\"r\": 8, \"init_lora_weights\": \"pissa_niter_16\"}", "init_lora_weights is \"pissa_niter_16\""},
        {"{\"r\": 8, \"init_lora_weights\": \"olora\"}", "path_initial_model_for_weight_conversion"},
        {"{\"r\": 0}", "r"},
        {"{\"r\": 8, \"lora_alpha\": -1}", "lora_alpha"},
        {"[]", "must be a JSON object"},
    };
    ls_arena arena = {0};
    ls_adapter adapter = {.rank = 77};
    const char *base = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_status status =
            ls_adapter_config_parse(&arena, cases[i].text, strlen(cases[i].text), "a.json", &adapter, &base);
        assert_int_not_equal(status, LS_OK);
        assert_non_null(strstr(ls_error_text(), cases[i].said));
        assert_int_equal(adapter.rank, 77);
    }
    const char *good = "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"use_rslora\": true, "
                       "\"base_model_name_or_path\": \"x\", \"bias\": \"none\", \"rank_pattern\": {}}";
    assert_int_equal(ls_adapter_config_parse(&arena, good, strlen(good), "a.json", &adapter, &base), LS_OK);
    assert_int_equal(adapter.rank, 8);
    assert_true(adapter.rslora);
    assert_string_equal(base, "x");
    assert_float_equal(ls_adapter_scale(&adapter), 16.0 / sqrt(8.0), 1e-6);
    static const char *const inits[] = {"true", "false", "null", "\"gaussian\"", "\"eva\"", "\"orthogonal\""};
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "{\"r\": 8, \"init_lora_weights\": %s}", inits[i]);
        assert_int_equal(ls_adapter_config_parse(&arena, text, strlen(text), "a.json", &adapter, &base),
                         LS_OK);
    }
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapter_computes_what_merged_weights_do),
        cmocka_unit_test(adapter_recompute_does_not_change_bits),
        cmocka_unit_test(adapter_packed_base_has_the_bits_of_what_it_unpacks_to),
        cmocka_unit_test(adapter_costs_no_weight_gradient_of_the_base),
        cmocka_unit_test(adapter_begins_as_nothing),
        cmocka_unit_test(dropout_gradients_are_those_of_the_same_mask),
        cmocka_unit_test(dropout_is_the_same_alone_and_packed),
        cmocka_unit_test(adapter_targets_that_match_nothing_are_named),
        cmocka_unit_test(adapter_config_refuses_what_is_not_plain_lora),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
