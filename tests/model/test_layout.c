// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "model/layout.h"
#include "model/models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_refused(const ls_model_config *config, const char *message_part)
{
    assert_int_equal(ls_model_config_check(config), LS_ERR_INVALID);
    if (!strstr(ls_error_text(), message_part)) {
        fail_msg("\"%s\" does not say \"%s\"", ls_error_text(), message_part);
    }
}

static void config_check_every_family_accepts_its_defaults(void **state)
{
    (void)state;
    for (int family = 0; family < LS_FAMILY_COUNT; family++) {
        const ls_model_config config = small_config(family);
        assert_int_equal(ls_model_config_check(&config), LS_OK);
        ls_family parsed = LS_FAMILY_COUNT;
        assert_int_equal(ls_family_of_model_type(ls_family_model_type(family), &parsed), LS_OK);
        assert_int_equal(parsed, family);
    }
    ls_family untouched = LS_FAMILY_QWEN2;
    assert_int_equal(ls_family_of_model_type("bert", &untouched), LS_ERR_INVALID);
    assert_int_equal(untouched, LS_FAMILY_QWEN2);
}

static void config_check_bad_values_are_named(void **state)
{
    (void)state;
    ls_model_config c = small_config(LS_FAMILY_LLAMA);
    c.layers = 0;
    expect_refused(&c, "layers is 0, allowed is 1 to 1024");
    c = small_config(LS_FAMILY_LLAMA);
    c.kv_heads = 3;
    expect_refused(&c, "kv_heads is 3, but heads, 4, must be a multiple of it");
    c = small_config(LS_FAMILY_LLAMA);
    c.head_dim = 7;
    expect_refused(&c, "head_dim is 7");
    c = small_config(LS_FAMILY_LLAMA);
    c.norm_eps = NAN;
    expect_refused(&c, "norm_eps");
    c = small_config(LS_FAMILY_LLAMA);
    c.window = 16;
    expect_refused(&c, "window is 16, allowed is 0 to 0");
    c = small_config(LS_FAMILY_LLAMA);
    c.output_bias = true;
    expect_refused(&c, "output_bias");
    c = small_config(LS_FAMILY_LLAMA);
    c.rope_scaling = (ls_rope_scaling){LS_ROPE_LLAMA3, 8.0, 4.0, 1.0, 8192};
    expect_refused(&c, "high_freq_factor is 1, it must be larger than low_freq_factor 4");
    c = small_config(LS_FAMILY_LLAMA);
    c.eos_id = 70;
    expect_refused(&c, "eos_id is 70, allowed is -1 to 69");
    c = small_config(LS_FAMILY_GPT2);
    c.kv_heads = 2;
    expect_refused(&c, "must be equal to heads, 4");
    c = small_config(LS_FAMILY_GPT2);
    c.width = 48;
    expect_refused(&c, "equal to width 48");
    c = small_config(LS_FAMILY_QWEN3);
    c.qk_norm = false;
    expect_refused(&c, "qk_norm is false, but for the family qwen3 it must be true");
    c = small_config(LS_FAMILY_QWEN2);
    c.window_first_layer = 1;
    expect_refused(&c, "window_first_layer");
    c.window = 8;
    assert_int_equal(ls_model_config_check(&c), LS_OK);
    assert_int_equal(ls_model_config_window(&c, 0), 0);
    assert_int_equal(ls_model_config_window(&c, 1), 8);
}

static void config_equal_notices_each_field(void **state)
{
    (void)state;
    const ls_model_config a = small_config(LS_FAMILY_LLAMA);
    ls_model_config b = a;
    assert_true(ls_model_config_equal(&a, &b));
    b.eos_id = 3;
    assert_false(ls_model_config_equal(&a, &b));
    b = a;
    b.tied = true;
    assert_false(ls_model_config_equal(&a, &b));
    b = a;
    b.rope_scaling.factor = 2.0; /* means nothing without scaling */
    assert_true(ls_model_config_equal(&a, &b));
    b.rope_scaling.kind = LS_ROPE_LINEAR;
    assert_false(ls_model_config_equal(&a, &b));
}

/* Every promise of the header that holds for any family. */
static void check_layout(const ls_model_config *config)
{
    ls_arena arena = {0};
    ls_layout layout;
    ls_layout_build(&arena, config, &layout);
    assert_int_equal(layout.bucket_count, config->layers + 2);
    int64_t end = 0, elements = 0;
    for (uint32_t i = 0; i < layout.parameter_count; i++) {
        const ls_parameter *p = &layout.parameters[i];
        const ls_bucket *bucket = &layout.buckets[p->bucket];
        assert_true(p->offset >= end);
        assert_true(p->offset - end < LS_BUCKET_PAD);
        assert_true(p->offset >= bucket->offset &&
                    p->offset + p->rows * p->cols <= bucket->offset + bucket->count);
        assert_int_equal(p->decay, p->shape_rank == 2);
        assert_ptr_equal(ls_layout_find(&layout, p->name), p);
        end = p->offset + p->rows * p->cols;
        elements += p->rows * p->cols;
    }
    assert_int_equal(elements, layout.element_count);
    int64_t next = 0;
    for (uint32_t i = 0; i < layout.bucket_count; i++) {
        assert_int_equal(layout.buckets[i].offset, next);
        assert_int_equal(layout.buckets[i].count % LS_BUCKET_PAD, 0);
        next += layout.buckets[i].count;
    }
    assert_int_equal(next, layout.float_count);
    assert_null(ls_layout_find(&layout, "nothing"));
    const uint32_t *order = ls_layout_by_name(&arena, &layout);
    for (uint32_t i = 1; i < layout.parameter_count; i++) {
        assert_true(strcmp(layout.parameters[order[i - 1]].name, layout.parameters[order[i]].name) < 0);
    }
    ls_arena_release(&arena);
}

/* Runs of whole buckets, one after the other, the border where it is nearest to an equal cut. */
static void layout_run_cuts_at_the_nearest_bucket(void **state)
{
    (void)state;
    enum { BUCKETS = 6 };
    static const int64_t counts[BUCKETS] = {9, 4, 4, 4, 4, 1},
                         sizes[4][4] = {{26}, {13, 13}, {9, 8, 9}, {9, 4, 8, 5}};
    ls_bucket buckets[BUCKETS];
    ls_layout layout = {.buckets = buckets, .bucket_count = BUCKETS};
    for (int i = 0; i < BUCKETS; i++) {
        buckets[i] = (ls_bucket){.offset = layout.float_count, .count = 1024 * counts[i]};
        layout.float_count += buckets[i].count;
    }
    static const int64_t largest[4] = {26, 13, 9, 9};
    for (uint32_t runs = 1; runs <= 4; runs++) {
        int64_t next = 0, count;
        for (uint32_t i = 0; i < runs; i++) {
            assert_int_equal(ls_layout_run(&layout, runs, i, &count), next);
            assert_int_equal(count, 1024 * sizes[runs - 1][i]);
            next += count;
        }
        assert_int_equal(ls_layout_largest_run(&layout, runs), 1024 * largest[runs - 1]);
    }
    /* as many runs as buckets: one in each, however unequal */
    int64_t count;
    assert_int_equal(ls_layout_run(&layout, BUCKETS, 5, &count), 1024 * 25);
    assert_int_equal(count, 1024);
}

static void layout_build_every_family_keeps_its_promises(void **state)
{
    (void)state;
    for (int family = 0; family < LS_FAMILY_COUNT; family++) {
        ls_model_config config = small_config(family);
        check_layout(&config);
        config.tied = !config.tied;
        check_layout(&config);
    }
}

/* Sizes of published models: the counts of their papers and cards. */
static void layout_build_published_models_have_their_parameter_counts(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_layout layout;
    ls_model_config gpt2;
    ls_model_config_defaults(LS_FAMILY_GPT2, &gpt2);
    gpt2.layers = 12, gpt2.heads = gpt2.kv_heads = 12, gpt2.head_dim = 64, gpt2.width = 768;
    gpt2.ffn = 3072, gpt2.context = 1024, gpt2.vocab = 50257;
    ls_layout_build(&arena, &gpt2, &layout);
    assert_int_equal(layout.element_count, 124439808);

    ls_model_config llama;
    ls_model_config_defaults(LS_FAMILY_LLAMA, &llama);
    llama.layers = 32, llama.heads = 32, llama.kv_heads = 8, llama.head_dim = 128, llama.width = 4096;
    llama.ffn = 14336, llama.context = 8192, llama.vocab = 128256;
    ls_layout_build(&arena, &llama, &layout);
    assert_int_equal(layout.element_count, 8030261248);

    ls_model_config qwen3;
    ls_model_config_defaults(LS_FAMILY_QWEN3, &qwen3);
    qwen3.layers = 28, qwen3.heads = 16, qwen3.kv_heads = 8, qwen3.head_dim = 128, qwen3.width = 1024;
    qwen3.ffn = 3072, qwen3.context = 40960, qwen3.vocab = 151936, qwen3.tied = true;
    ls_layout_build(&arena, &qwen3, &layout);
    assert_int_equal(layout.element_count, 596049920);
    ls_arena_release(&arena);
}

static int64_t offset_of(const ls_layout *layout, const char *name)
{
    const ls_parameter *p = ls_layout_find(layout, name);
    assert_non_null(p);
    return p->offset;
}

static void layout_build_fused_tensors_are_adjacent(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_layout layout;
    ls_model_config config = small_config(LS_FAMILY_QWEN2);
    ls_layout_build(&arena, &config, &layout);
    const int64_t q = offset_of(&layout, "model.layers.1.self_attn.q_proj.weight");
    assert_int_equal(offset_of(&layout, "model.layers.1.self_attn.k_proj.weight"), q + 32 * 32);
    assert_int_equal(offset_of(&layout, "model.layers.1.self_attn.v_proj.weight"), q + 48 * 32);
    const int64_t bias = offset_of(&layout, "model.layers.1.self_attn.q_proj.bias");
    assert_int_equal(offset_of(&layout, "model.layers.1.self_attn.k_proj.bias"), bias + 32);
    assert_int_equal(offset_of(&layout, "model.layers.1.self_attn.v_proj.bias"), bias + 48);
    assert_int_equal(offset_of(&layout, "model.layers.1.mlp.up_proj.weight"),
                     offset_of(&layout, "model.layers.1.mlp.gate_proj.weight") + 96 * 32);
    assert_int_equal(ls_layout_find(&layout, "model.layers.1.mlp.down_proj.weight")->cols, 96);
    assert_non_null(ls_layout_find(&layout, "lm_head.weight"));
    config = small_config(LS_FAMILY_GPT2);
    ls_layout_build(&arena, &config, &layout);
    assert_int_equal(ls_layout_find(&layout, "transformer.h.2.attn.c_attn.weight")->rows, 32);
    assert_int_equal(ls_layout_find(&layout, "transformer.h.2.attn.c_attn.weight")->cols, 96);
    assert_null(ls_layout_find(&layout, "lm_head.weight"));
    ls_arena_release(&arena);
}

static double standard_deviation(const float *x, int64_t count)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    return sqrt(squares / (double)count - sum / (double)count * (sum / (double)count));
}

static void parameter_init_gives_the_spread_asked_for(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_layout layout;
    const ls_model_config config = small_config(LS_FAMILY_GPT2);
    ls_layout_build(&arena, &config, &layout);
    float *flat = calloc((size_t)layout.float_count, sizeof *flat);
    for (uint32_t i = 0; i < layout.parameter_count; i++) {
        ls_parameter_init(&layout, i, &(ls_init_rule){7, 0.5, config.layers}, 0,
                          layout.parameters[i].rows * layout.parameters[i].cols, flat);
    }
    const ls_parameter *fc = ls_layout_find(&layout, "transformer.h.0.mlp.c_fc.weight");
    const ls_parameter *proj = ls_layout_find(&layout, "transformer.h.0.mlp.c_proj.weight");
    assert_float_equal((float)standard_deviation(flat + fc->offset, 32 * 96), 0.5f, 0.03f);
    assert_float_equal((float)standard_deviation(flat + proj->offset, 32 * 96), (float)(0.5 / sqrt(6.0)),
                       0.015f);
    assert_true(flat[ls_layout_find(&layout, "transformer.ln_f.weight")->offset + 31] == 1.0f);
    assert_true(flat[ls_layout_find(&layout, "transformer.ln_f.bias")->offset] == 0.0f);
    assert_true(flat[fc->offset] != flat[proj->offset]);
    free(flat);
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_check_every_family_accepts_its_defaults),
        cmocka_unit_test(config_check_bad_values_are_named),
        cmocka_unit_test(config_equal_notices_each_field),
        cmocka_unit_test(layout_run_cuts_at_the_nearest_bucket),
        cmocka_unit_test(layout_build_every_family_keeps_its_promises),
        cmocka_unit_test(layout_build_published_models_have_their_parameter_counts),
        cmocka_unit_test(layout_build_fused_tensors_are_adjacent),
        cmocka_unit_test(parameter_init_gives_the_spread_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
