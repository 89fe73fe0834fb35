// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/half.h"
#include "model/huggingface_export.h"
#include "model/models.h"
#include "model/rope.h"
#include "storage/safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN LS_SOURCE_DIR "/tests/golden/models/"

static const char *const golden_names[] = {"gpt2",         "llama",   "llama_rope_scaling",
                                           "llama_biases", "mistral", "qwen2",
                                           "qwen3",        "mixtral", "qwen3_moe"};
enum { GOLDEN_COUNT = sizeof golden_names / sizeof *golden_names };

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/lockstep-hf-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return ls_dir_remove(scratch) == LS_OK ? 0 : -1;
}

static void ok(ls_status status)
{
    if (status != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
}

static void expect_text(const char *part)
{
    if (!strstr(ls_error_text(), part)) {
        fail_msg("\"%s\" does not say \"%s\"", ls_error_text(), part);
    }
}

static ls_model_config parse(const char *text)
{
    ls_model_config config;
    ok(ls_hf_config_parse(text, strlen(text), "config.json", &config));
    return config;
}

static void expect_refused(ls_status expected, const char *text, const char *part)
{
    const ls_model_config before = small_config(LS_FAMILY_LLAMA);
    ls_model_config config = before;
    assert_int_equal(ls_hf_config_parse(text, strlen(text), "config.json", &config), expected);
    assert_true(ls_model_config_equal(&config, &before));
    expect_text("config.json");
    expect_text(part);
}

/* ---- config.json ---- */

/* What make_models.py asked for. */
static ls_model_config golden_config(int index)
{
    static const ls_family families[GOLDEN_COUNT] = {LS_FAMILY_GPT2,  LS_FAMILY_LLAMA,   LS_FAMILY_LLAMA,
                                                     LS_FAMILY_LLAMA, LS_FAMILY_MISTRAL, LS_FAMILY_QWEN2,
                                                     LS_FAMILY_QWEN3, LS_FAMILY_MIXTRAL, LS_FAMILY_QWEN3_MOE};
    static const int64_t kv_heads[GOLDEN_COUNT] = {4, 4, 2, 1, 2, 2, 2, 2, 2};
    const bool mixtral = index == 7, qwen3 = index == 6 || index == 8;
    ls_model_config c = small_config(families[index]);
    c.layers = 2;
    c.kv_heads = kv_heads[index];
    c.ffn = index == 0 ? 128 : 48;
    c.context = index == 0 ? 48 : 64;
    c.head_dim = index == 2 || index == 4 || qwen3 ? 16 : 8;
    c.norm_eps = index <= 1 || mixtral ? 1e-5 : 1e-6;
    c.rope_theta = index == 2 ? 500000.0 : mixtral ? 1e6 : 10000.0;
    c.rope_scaling = index == 2   ? (ls_rope_scaling){LS_ROPE_LLAMA3, 8.0, 1.0, 4.0, 16}
                     : index == 3 ? (ls_rope_scaling){.kind = LS_ROPE_LINEAR, .factor = 4.0}
                                  : c.rope_scaling;
    c.tied = index == 0 || index == 2 || index == 5;
    c.window = index == 4 ? 7 : index == 5 ? 9 : 0;
    c.window_first_layer = index == 5 ? 1 : 0;
    c.bos_id = index == 5 ? 3 : qwen3 ? -1 : 1;
    c.eos_id = index == 5 ? 4 : qwen3 ? -1 : 2;
    if (mixtral) {
        c.expert_ffn = 48;
    }
    if (index == 8) {
        c.experts = 5;
        c.experts_per_token = 3;
        c.expert_ffn = 24;
        c.normalise_experts = false;
    }
    if (index == 3) {
        c.qkv_bias = c.output_bias = c.mlp_bias = true;
    }
    return c;
}

static void config_load_reads_what_transformers_wrote(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        ls_arena arena = {0};
        ls_model_config config;
        ok(ls_hf_config_load(ls_arena_printf(&arena, GOLDEN "%s", golden_names[i]), &config));
        const ls_model_config expected = golden_config(i);
        if (!ls_model_config_equal(&config, &expected)) {
            fail_msg("%s", golden_names[i]);
        }
        ls_arena_release(&arena);
    }
    ls_model_config untouched;
    assert_int_equal(ls_hf_config_load("/nowhere/at/all", &untouched), LS_ERR_NOT_FOUND);
}

static void change_all_that_is_optional(ls_model_config *config, bool dynamic)
{
    config->pad_id = 3;
    config->eos_id = 5;
    config->more_eos[0] = 6;
    config->more_eos[1] = 4;
    config->more_eos_count = 2;
    if (config->rotary) {
        config->rope_scaling = ls_rope_scaling_of(dynamic ? LS_ROPE_DYNAMIC : LS_ROPE_YARN, 3.0, 10);
        config->rope_scaling.attention_factor += 0.125;
        config->rope_scaling.beta_fast = 20.0;
        config->context = 30;
    }
}

static void config_json_parses_back_to_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT + 2 * LS_FAMILY_COUNT; i++) {
        ls_model_config config = i < GOLDEN_COUNT
                                     ? golden_config(i)
                                     : small_config((ls_family)((i - GOLDEN_COUNT) % LS_FAMILY_COUNT));
        if (i >= GOLDEN_COUNT + LS_FAMILY_COUNT) {
            change_all_that_is_optional(&config, i % 2 == 0);
        }
        json_t *json = ls_hf_config_json(&config);
        char *text = json_dumps(json, 0);
        const ls_model_config back = parse(text);
        assert_true(ls_model_config_equal(&config, &back));
        free(text);
        json_decref(json);
    }
}

/* Published files in the older spelling. */
static void config_parse_reads_the_older_spelling(void **state)
{
    (void)state;
    ls_model_config c =
        parse("{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"bos_token_id\":128000,"
              "\"eos_token_id\":[128001,128008,128009],\"hidden_act\":\"silu\",\"hidden_size\":4096,"
              "\"intermediate_size\":14336,\"max_position_embeddings\":131072,\"mlp_bias\":false,"
              "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_"
              "heads\":8,"
              "\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":8.0,\"low_freq_"
              "factor\":1.0,"
              "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
              "\"rope_theta\":500000.0,\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"vocab_"
              "size\":128256}");
    assert_int_equal(c.head_dim, 128);
    int32_t eos[LS_MORE_EOS_MAX + 1];
    assert_int_equal(ls_model_config_eos(&c, eos), 3);
    assert_true(eos[0] == 128001 && eos[1] == 128008 && eos[2] == 128009);
    assert_int_equal(c.rope_scaling.kind, LS_ROPE_LLAMA3);
    assert_int_equal(c.rope_scaling.original_context, 8192);
    assert_true(c.rope_theta == 500000.0);

    c = parse(
        "{\"model_type\":\"mistral\",\"rope_theta\":10000,\"sliding_window\":4096,\"num_key_value_heads\":8,"
        "\"rms_norm_eps\":1e-05,\"head_dim\":null,\"max_position_embeddings\":32768}");
    assert_int_equal(c.window, 4096);
    assert_int_equal(c.ffn, 14336);
    assert_int_equal(c.head_dim, 128);
    c = parse("{\"model_type\":\"mistral\",\"sliding_window\":null}");
    assert_int_equal(c.window, 0);

    c = parse("{\"model_type\":\"qwen2\",\"hidden_size\":896,\"intermediate_size\":4864,\"max_position_"
              "embeddings\":32768,"
              "\"max_window_layers\":21,\"num_attention_heads\":14,\"num_hidden_layers\":24,\"num_key_value_"
              "heads\":2,"
              "\"rope_theta\":1000000.0,\"sliding_window\":32768,\"tie_word_embeddings\":true,"
              "\"use_sliding_window\":false,\"vocab_size\":151936}");
    assert_int_equal(c.window, 0);
    assert_int_equal(c.window_first_layer, 0);
    assert_true(c.tied && c.qkv_bias && !c.output_bias);

    c = parse("{\"model_type\":\"gpt2\",\"n_ctx\":1024,\"vocab_size\":50257}");
    assert_int_equal(c.ffn, 3072);
    assert_int_equal(c.eos_id, 50256);
    assert_true(c.tied);

    c = parse(
        "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"vocab_size\":2}");
    assert_int_equal(c.rope_scaling.kind, LS_ROPE_LINEAR);
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.eos_id, -1); /* the class says 2, the vocabulary ends at 1 */
}

static void config_parse_reads_rotary_scaling(void **state)
{
    (void)state;
    /* As published with Qwen2.5: the context is not raised. */
    ls_model_config c =
        parse("{\"model_type\":\"qwen2\",\"max_position_embeddings\":32768,\"rope_scaling\":{\"factor\":4.0,"
              "\"original_max_position_embeddings\":32768,\"type\":\"yarn\"}}");
    ls_rope_scaling wanted = ls_rope_scaling_of(LS_ROPE_YARN, 4.0, 32768);
    assert_memory_equal(&c.rope_scaling, &wanted, sizeof wanted);
    assert_int_equal(c.context, 32768);
    assert_int_equal(ls_rope_reach(&c), 131072);

    c = parse("{\"model_type\":\"llama\",\"max_position_embeddings\":4096,\"rope_parameters\":{\"rope_type\":"
              "\"yarn\",\"rope_theta\":5e5,\"factor\":null,\"original_max_position_embeddings\":1024,"
              "\"beta_fast\":16,\"beta_slow\":2,\"mscale\":0.5,\"mscale_all_dim\":2,\"truncate\":false}}");
    assert_true(c.rope_scaling.factor == 4.0 && c.rope_scaling.beta_fast == 16.0);
    assert_true(c.rope_scaling.beta_slow == 2.0 && c.rope_scaling.fractional_bounds);
    assert_true(c.rope_scaling.attention_factor ==
                ls_rope_attention_factor(4.0, 0.5) / ls_rope_attention_factor(4.0, 2.0));
    assert_true(c.rope_theta == 5e5);

    c = parse("{\"model_type\":\"llama\",\"max_position_embeddings\":2048,\"rope_scaling\":{\"type\":"
              "\"dynamic\",\"factor\":2.5}}");
    assert_int_equal(c.rope_scaling.kind, LS_ROPE_DYNAMIC);
    assert_int_equal(c.rope_scaling.original_context, 2048);
    assert_int_equal(c.context, 5120);
}

/* Ids of special tokens, as numbers, lists and null, and those of generation_config.json. */
static void config_parse_reads_special_ids(void **state)
{
    (void)state;
    ls_model_config c = parse("{\"model_type\":\"llama\",\"vocab_size\":100,\"bos_token_id\":null,"
                              "\"eos_token_id\":[200,7,7,8],\"pad_token_id\":9}");
    assert_true(c.bos_id == -1 && c.eos_id == 7 && c.more_eos_count == 1 && c.more_eos[0] == 8 &&
                c.pad_id == 9);
    ls_arena arena = {0};
    const char *path = ls_path_join(&arena, scratch, "generation_config.json");
    static const char text[] = "{\"eos_token_id\": [8, 10], \"max_length\": 1000000000000000019884624838656}";
    ok(ls_file_write_atomic(path, text, sizeof text - 1));
    ok(ls_hf_generation_config_load(path, &c));
    assert_true(c.more_eos_count == 2 && c.more_eos[1] == 10);
    ls_arena_release(&arena);
    c = parse(
        "{\"model_type\":\"qwen2\",\"vocab_size\":100,\"eos_token_id\":1000000000000000019884624838656}");
    assert_int_equal(c.eos_id, -1);
}

static void config_parse_refuses_what_it_cannot_do(void **state)
{
    (void)state;
    const ls_status no = LS_ERR_UNSUPPORTED;
    expect_refused(LS_ERR_DATA, "[]", "must be a JSON object");
    expect_refused(LS_ERR_DATA, "{", "config.json");
    expect_refused(LS_ERR_DATA, "{}", "model_type is missing");
    expect_refused(no, "{\"model_type\":\"bert\"}", "model_type is \"bert\"; supported are gpt2, llama");
    expect_refused(no, "{\"model_type\":\"gpt2\",\"activation_function\":\"relu\"}",
                   "activation_function is \"relu\", only \"gelu_new\"");
    expect_refused(no, "{\"model_type\":\"gpt2\",\"activation_function\":\"gelu\"}",
                   "activation_function is \"gelu\"");
    expect_refused(no, "{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}",
                   "scale_attn_by_inverse_layer_idx is true, only false");
    expect_refused(no, "{\"model_type\":\"gpt2\",\"scale_attn_weights\":false}",
                   "scale_attn_weights is false, only true");
    expect_refused(no, "{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}",
                   "hidden_act is \"gelu\", only \"silu\"");
    expect_refused(no, "{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"gptq\"}}",
                   "quantization_config is set (gptq)");
    expect_refused(no, "{\"model_type\":\"mistral\",\"attention_bias\":true}", "attention_bias is true");
    expect_refused(no, "{\"model_type\":\"llama\",\"partial_rotary_factor\":0.5}",
                   "partial_rotary_factor is 0.5");
    expect_refused(no,
                   "{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":4}}",
                   "rope_type is \"longrope\"; supported are");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":\"dynamic\"}}",
                   "rope_type is dynamic, so the number factor is needed");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"hidden_size\":1000000000000000000000}",
                   "hidden_size is 1e+21, allowed is 1 to");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"eos_token_id\":[1,\"x\"]}",
                   "eos_token_id must be a token id");
    expect_refused(no,
                   "{\"model_type\":\"llama\",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
                   "at most 16 are supported");
    expect_refused(no, "{\"model_type\":\"llama\",\"rope_parameters\":{\"full_attention\":{}}}",
                   "full_attention");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\"}}",
                   "so the number factor is needed");
    expect_refused(LS_ERR_DATA,
                   "{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}",
                   "so the number low_freq_factor is needed");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"hidden_size\":\"big\"}",
                   "hidden_size must be a whole number");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"num_attention_heads\":0}",
                   "num_attention_heads is 0");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"num_key_value_heads\":5}",
                   "kv_heads is 5, but heads");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"llama\",\"bos_token_id\":\"x\"}",
                   "bos_token_id must be a token id");
    expect_refused(
        no,
        "{\"model_type\":\"qwen2\",\"num_hidden_layers\":3,\"use_sliding_window\":true,\"layer_types\":"
        "[\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
        "layer_types[2] is full_attention after sliding_attention at 1");
    expect_refused(
        no, "{\"model_type\":\"qwen3\",\"num_hidden_layers\":1,\"layer_types\":[\"sliding_attention\"]}",
        "but sliding_window, the size");
    expect_refused(
        no, "{\"model_type\":\"qwen3\",\"num_hidden_layers\":1,\"layer_types\":[\"linear_attention\"]}",
        "linear_attention");
    expect_refused(LS_ERR_DATA, "{\"model_type\":\"qwen3\",\"num_hidden_layers\":2,\"layer_types\":[]}",
                   "list of 2 strings");
}

/* ---- tensors ---- */

typedef struct model {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    float *flat;
} model;

static model load_golden(int index)
{
    model m = {.config = golden_config(index)};
    ls_layout_build(&m.arena, &m.config, &m.layout);
    m.flat = malloc((size_t)m.layout.float_count * sizeof(float));
    memset(m.flat, 0xff, (size_t)m.layout.float_count * sizeof(float));
    ok(ls_hf_load_parameters(ls_arena_printf(&m.arena, GOLDEN "%s", golden_names[index]), &m.config,
                             &m.layout, m.flat));
    return m;
}

static void release(model *m)
{
    free(m->flat);
    ls_arena_release(&m->arena);
}

static ls_hf_export_options export_of(const model *m, const char *folder)
{
    return (ls_hf_export_options){
        .folder = folder, .config = &m->config, .layout = &m->layout, .flat = m->flat, .dtype = LS_ST_F32};
}

static void export_gives_every_tensor_its_bytes_back(void **state)
{
    (void)state;
    const ls_hf_file tokenizer = {.name = "tokenizer.json", .data = "{}\n", .bytes = 3};
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        model m = load_golden(i);
        const char *folder = ls_arena_printf(&m.arena, "%s/export-%s", scratch, golden_names[i]);
        ls_hf_export_options options = export_of(&m, folder);
        options.files = &tokenizer;
        options.file_count = 1;
        ok(ls_hf_export(&options));
        ls_safetensors *before = NULL, *after = NULL;
        ok(ls_safetensors_open(ls_arena_printf(&m.arena, GOLDEN "%s", golden_names[i]), &before));
        ok(ls_safetensors_open(folder, &after));
        assert_int_equal(ls_safetensors_count(before), m.layout.parameter_count);
        assert_int_equal(ls_safetensors_count(after), m.layout.parameter_count);
        for (size_t k = 0; k < ls_safetensors_count(before); k++) {
            const ls_safetensor *a = ls_safetensors_at(before, k), *b = ls_safetensors_at(after, k);
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->dtype, b->dtype);
            assert_int_equal(a->rank, b->rank);
            assert_memory_equal(a->shape, b->shape, a->rank * sizeof *a->shape);
            assert_memory_equal(a->data, b->data, a->bytes);
        }
        ls_safetensors_close(before);
        ls_safetensors_close(after);
        ls_model_config config;
        ok(ls_hf_config_load(folder, &config));
        assert_true(ls_model_config_equal(&config, &m.config));
        assert_true(ls_path_exists(ls_path_join(&m.arena, folder, "tokenizer.json")));
        release(&m);
    }
}

static char *config_of(model *m, const char *folder)
{
    char *text = NULL;
    size_t bytes = 0;
    ok(ls_file_read(&m->arena, ls_path_join(&m->arena, folder, "config.json"), 1 << 20, &text, &bytes));
    return text;
}

/* The same weights, rounded, in every dtype and cut into any number of files. */
static void export_rounds_and_cuts(void **state)
{
    (void)state;
    model m = load_golden(4);
    static const ls_st_dtype dtypes[] = {LS_ST_F32, LS_ST_BF16, LS_ST_F16};
    static const char *const names[] = {"\"float32\"", "\"bfloat16\"", "\"float16\""};
    static const uint64_t sizes[] = {0, 1, 5000, UINT64_C(1) << 40};
    const size_t floats = (size_t)m.layout.float_count;
    float *again = malloc(floats * sizeof *again);
    for (int i = 0; i < 12; i++) {
        const ls_st_dtype dtype = dtypes[i % 3];
        ls_hf_export_options options = export_of(&m, ls_arena_printf(&m.arena, "%s/cut-%d", scratch, i));
        options.dtype = dtype;
        options.shard_bytes = sizes[i / 3];
        ok(ls_hf_export(&options));
        ok(ls_hf_load_parameters(options.folder, &m.config, &m.layout, again));
        for (size_t k = 0; k < floats; k++) {
            const float x = m.flat[k];
            const float wanted = dtype == LS_ST_F32   ? x
                                 : dtype == LS_ST_F16 ? ls_f32_from_f16(ls_f16_from_f32(x))
                                                      : ls_f32_from_bf16(ls_bf16_from_f32(x));
            assert_true(again[k] == wanted);
        }
        assert_non_null(strstr(config_of(&m, options.folder), names[i % 3]));
        const bool cut = options.shard_bytes == 1 || options.shard_bytes == 5000;
        assert_int_equal(ls_path_exists(ls_path_join(&m.arena, options.folder, "model.safetensors")), !cut);
        const char *index = ls_path_join(&m.arena, options.folder, "model.safetensors.index.json");
        assert_int_equal(ls_path_exists(index), cut);
        const char *first =
            ls_arena_printf(&m.arena, "model-00001-of-%05u.safetensors", m.layout.parameter_count);
        if (options.shard_bytes == 1) {
            assert_true(ls_path_exists(ls_path_join(&m.arena, options.folder, first)));
        }
    }
    free(again);
    release(&m);
}

static void export_names_a_weight_that_is_too_large(void **state)
{
    (void)state;
    model m = load_golden(4);
    const ls_parameter *p = &m.layout.parameters[2];
    ls_hf_export_options options = export_of(&m, ls_arena_printf(&m.arena, "%s/large", scratch));
    m.flat[p->offset + 3] = -65519.0f;
    options.dtype = LS_ST_F16;
    ok(ls_hf_export(&options));
    ok(ls_dir_remove(options.folder));
    m.flat[p->offset + 3] = -65520.0f;
    assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
    expect_text(p->name);
    expect_text("too large for float16");
    m.flat[p->offset + 3] = 3.4e38f;
    options.dtype = LS_ST_BF16;
    assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
    expect_text("too large for bfloat16");
    assert_false(ls_path_exists(options.folder));
    release(&m);
}

/* A folder with other files is refused; a model is replaced as a whole or stays as it was. */
static void export_never_mixes_models(void **state)
{
    (void)state;
    model m = load_golden(4);
    const char *folder = ls_arena_printf(&m.arena, "%s/swap", scratch);
    const char *old = ls_path_join(&m.arena, folder, "chat_template.jinja");
    ls_hf_export_options options = export_of(&m, ls_arena_printf(&m.arena, "%s//", folder));
    ok(ls_dir_create(folder)); /* an empty one is as good as none */
    ok(ls_hf_export(&options));
    ok(ls_file_write_atomic(old, "old", 3));
    assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
    expect_text("is not empty");
    expect_text("--replace");
    options.replace = true;
    /* A failure loses nothing and leaves nothing behind. */
    const float kept = m.flat[0];
    m.flat[0] = 1e9f;
    options.dtype = LS_ST_F16;
    assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
    m.flat[0] = kept;
    assert_true(ls_path_exists(old));
    ok(ls_hf_export(&options));
    assert_false(ls_path_exists(old));
    assert_non_null(strstr(config_of(&m, folder), "float16"));
    char **names = NULL;
    size_t count = 0;
    ok(ls_dir_list(&m.arena, scratch, &names, &count));
    for (size_t i = 0; i < count; i++) {
        assert_null(strstr(names[i], ".tmp."));
    }
    /* What is not part of a model is not lost. */
    const char *const others[] = {"thesis.txt", "model-1-of-2.safetensors", "README.md"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const char *path = ls_path_join(&m.arena, folder, others[i]);
        ok(ls_file_write_atomic(path, "x", 1));
        assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
        expect_text(ls_arena_printf(&m.arena, "holds %s, which is not part of an exported model", others[i]));
        expect_text("would be lost: move it away or export to another folder");
        assert_true(ls_path_exists(path));
        assert_int_equal(unlink(path), 0);
    }
    ok(ls_file_write_atomic(ls_path_join(&m.arena, folder, "model-00001-of-00002.safetensors"), "x", 1));
    ok(ls_hf_export(&options));
    /* What is not a model is not replaced. */
    ok(ls_dir_create(ls_path_join(&m.arena, folder, "checkpoints")));
    assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
    expect_text("holds checkpoints, which would be lost");
    options.folder = ls_arena_printf(&m.arena, "%s/notes", scratch);
    ok(ls_dir_create(options.folder));
    ok(ls_file_write_atomic(ls_path_join(&m.arena, options.folder, "thesis.txt"), "x", 1));
    assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
    expect_text("no config.json");
    release(&m);
}

static void load_clears_the_padding(void **state)
{
    (void)state;
    model m = load_golden(6);
    const ls_parameter *last = &m.layout.parameters[m.layout.parameter_count - 1];
    for (int64_t i = last->offset + last->rows * last->cols; i < m.layout.float_count; i++) {
        assert_true(m.flat[i] == 0.0f);
    }
    release(&m);
}

/* The tensors of a golden model, to be changed and written to the scratch folder. */
typedef struct draft {
    model m;
    ls_safetensor tensors[64];
    size_t count;
    const char *path;
} draft;

static draft make_draft(int index)
{
    draft d = {.m = load_golden(index)};
    for (uint32_t i = 0; i < d.m.layout.parameter_count; i++) {
        const ls_parameter *p = &d.m.layout.parameters[i];
        d.tensors[d.count++] = (ls_safetensor){
            .name = p->name,
            .dtype = LS_ST_F32,
            .rank = (uint32_t)p->shape_rank,
            .shape = {(uint64_t)(p->shape_rank == 1 ? p->cols : p->rows), (uint64_t)p->cols},
            .data = d.m.flat + p->offset,
        };
    }
    d.path = ls_arena_printf(&d.m.arena, "%s/draft.safetensors", scratch);
    return d;
}

static ls_safetensor *draft_find(draft *d, const char *name)
{
    for (size_t i = 0; i < d->count; i++) {
        if (strcmp(d->tensors[i].name, name) == 0) {
            return &d->tensors[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Writes the draft and reads it into a fresh buffer. */
static ls_status draft_load(draft *d, float **flat_out)
{
    ok(ls_safetensors_write(d->path, d->tensors, d->count));
    float *flat = malloc((size_t)d->m.layout.float_count * sizeof(float));
    const ls_status status = ls_hf_load_parameters(d->path, &d->m.config, &d->m.layout, flat);
    if (status == LS_OK && flat_out) {
        *flat_out = flat;
    } else {
        free(flat);
    }
    return status;
}

static void expect_same_floats(draft *d)
{
    float *flat = NULL;
    ok(draft_load(d, &flat));
    assert_memory_equal(flat, d->m.flat, (size_t)d->m.layout.float_count * sizeof(float));
    free(flat);
}

static void load_accepts_names_without_prefix_and_old_buffers(void **state)
{
    (void)state;
    static const unsigned char mask[4];
    static const float frequencies[4];
    draft d = make_draft(0);
    for (size_t i = 0; i < d.count; i++) {
        d.tensors[i].name += strlen("transformer.");
    }
    d.tensors[d.count++] = (ls_safetensor){
        .name = "h.0.attn.bias", .dtype = LS_ST_BOOL, .rank = 4, .shape = {1, 1, 2, 2}, .data = mask};
    d.tensors[d.count++] =
        (ls_safetensor){.name = "h.0.attn.masked_bias", .dtype = LS_ST_F32, .data = frequencies};
    expect_same_floats(&d);
    release(&d.m);
    d = make_draft(1);
    d.tensors[d.count++] = (ls_safetensor){.name = "model.layers.0.self_attn.rotary_emb.inv_freq",
                                           .dtype = LS_ST_F32,
                                           .rank = 1,
                                           .shape = {4},
                                           .data = frequencies};
    expect_same_floats(&d);
    release(&d.m);
}

static void load_widens_half_precision(void **state)
{
    (void)state;
    draft d = make_draft(1);
    const size_t floats = (size_t)d.m.layout.float_count;
    uint16_t *halves = malloc(floats * sizeof *halves);
    for (size_t i = 0; i < d.count; i++) {
        const ls_st_dtype dtype = i % 2 ? LS_ST_BF16 : LS_ST_F16;
        const ls_parameter *p = &d.m.layout.parameters[i];
        ok(ls_safetensor_from_f32(dtype, d.m.flat + p->offset, (size_t)(p->rows * p->cols),
                                  halves + p->offset));
        d.tensors[i].dtype = dtype;
        d.tensors[i].data = halves + p->offset;
    }
    float *flat = NULL;
    ok(draft_load(&d, &flat));
    bool rounded = false;
    for (size_t i = 0; i < floats; i++) {
        const float error = flat[i] > d.m.flat[i] ? flat[i] - d.m.flat[i] : d.m.flat[i] - flat[i];
        const float size = d.m.flat[i] > 0 ? d.m.flat[i] : -d.m.flat[i];
        assert_true(error <= size / 256.0f + 1e-7f);
        rounded |= error > 0;
    }
    assert_true(rounded);
    free(flat);
    free(halves);
    release(&d.m);
}

static void load_names_the_tensor_that_does_not_fit(void **state)
{
    (void)state;
    draft d = make_draft(3);
    ls_safetensor *bias = draft_find(&d, "model.layers.1.self_attn.k_proj.bias");
    bias->name = "model.layers.1.self_attn.kk_proj.bias";
    assert_int_equal(draft_load(&d, NULL), LS_ERR_DATA);
    expect_text("tensor model.layers.1.self_attn.k_proj.bias is missing");
    bias->name = "model.layers.1.self_attn.k_proj.bias";

    ls_safetensor *up = draft_find(&d, "model.layers.0.mlp.up_proj.weight");
    up->shape[0] = 32;
    up->shape[1] = 48;
    assert_int_equal(draft_load(&d, NULL), LS_ERR_DATA);
    expect_text("tensor model.layers.0.mlp.up_proj.weight has shape [32, 48], but by the model's config.json "
                "it must have [48, 32]");
    up->shape[0] = 48;
    up->shape[1] = 32;

    d.tensors[d.count++] = (ls_safetensor){.name = "model.layers.2.mlp.up_proj.bias",
                                           .dtype = LS_ST_F32,
                                           .rank = 1,
                                           .shape = {1},
                                           .data = d.m.flat};
    assert_int_equal(draft_load(&d, NULL), LS_ERR_DATA);
    expect_text("tensor model.layers.2.mlp.up_proj.bias is not part of a llama model");
    d.count--;

    bias->dtype = LS_ST_I32;
    assert_int_equal(draft_load(&d, NULL), LS_ERR_UNSUPPORTED);
    expect_text("model.layers.1.self_attn.k_proj.bias");
    bias->dtype = LS_ST_F32;
    expect_same_floats(&d);
    release(&d.m);
}

static void load_tied_head_must_equal_the_table(void **state)
{
    (void)state;
    draft d = make_draft(5);
    ls_safetensor head = *draft_find(&d, "model.embed_tokens.weight");
    head.name = "lm_head.weight";
    d.tensors[d.count++] = head;
    expect_same_floats(&d);
    d.tensors[d.count - 1].data = (const float *)head.data + 1;
    assert_int_equal(draft_load(&d, NULL), LS_ERR_DATA);
    expect_text("lm_head.weight differs from model.embed_tokens.weight, but tie_word_embeddings in "
                "config.json is true");
    release(&d.m);
}

static void load_and_export_refuse_bad_folders(void **state)
{
    (void)state;
    model m = load_golden(4);
    const char *folder = ls_arena_printf(&m.arena, "%s/pickled", scratch);
    ok(ls_dir_create(folder));
    assert_int_equal(ls_hf_load_parameters(folder, &m.config, &m.layout, m.flat), LS_ERR_NOT_FOUND);
    ok(ls_file_write_atomic(ls_path_join(&m.arena, folder, "pytorch_model.bin"), "x", 1));
    assert_int_equal(ls_hf_load_parameters(folder, &m.config, &m.layout, m.flat), LS_ERR_UNSUPPORTED);
    expect_text("safe_serialization=True");
    ls_hf_export_options options = export_of(&m, GOLDEN "mistral");
    assert_int_equal(ls_hf_export(&options), LS_ERR_INVALID);
    expect_text("is not empty");
    assert_false(ls_path_exists(GOLDEN "mistral/model.safetensors"));
    release(&m);
}

/* transformers itself loads what was exported above and gives the golden logits. */
static void export_loads_in_transformers(void **state)
{
    (void)state;
    static const char program[] =
        "import sys, torch, transformers\n"
        "from safetensors.torch import load_file\n"
        "ours, golden = sys.argv[1:]\n"
        "model, info = transformers.AutoModelForCausalLM.from_pretrained(ours, output_loading_info=True)\n"
        "assert not info['missing_keys'] and not info['unexpected_keys'], info\n"
        "golden = load_file(golden)\n"
        "logits = model.eval()(input_ids=golden['tokens'][:, :-1].long()).logits\n"
        "error = (logits - golden['logits']).abs().max().item()\n"
        "sys.exit(0 if error < 1e-4 else f'{ours}: logits differ by {error}')\n";
    const char *python = getenv("LOCKSTEP_PEER_PYTHON");
    if (!python) {
        skip();
    }
    ls_arena arena = {0};
    const char *script = ls_arena_printf(&arena, "%s/peer.py", scratch);
    ok(ls_file_write_atomic(script, program, sizeof program - 1));
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        const char *command = ls_arena_printf(&arena, "%s %s %s/export-%s " GOLDEN "%s/golden.safetensors",
                                              python, script, scratch, golden_names[i], golden_names[i]);
        assert_int_equal(system(command), 0);
    }
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_load_reads_what_transformers_wrote),
        cmocka_unit_test(config_json_parses_back_to_the_same),
        cmocka_unit_test(config_parse_reads_the_older_spelling),
        cmocka_unit_test(config_parse_reads_rotary_scaling),
        cmocka_unit_test(config_parse_reads_special_ids),
        cmocka_unit_test(config_parse_refuses_what_it_cannot_do),
        cmocka_unit_test(export_gives_every_tensor_its_bytes_back),
        cmocka_unit_test(export_rounds_and_cuts),
        cmocka_unit_test(export_names_a_weight_that_is_too_large),
        cmocka_unit_test(export_never_mixes_models),
        cmocka_unit_test(load_clears_the_padding),
        cmocka_unit_test(load_accepts_names_without_prefix_and_old_buffers),
        cmocka_unit_test(load_widens_half_precision),
        cmocka_unit_test(load_names_the_tensor_that_does_not_fit),
        cmocka_unit_test(load_tied_head_must_equal_the_table),
        cmocka_unit_test(load_and_export_refuse_bad_folders),
        cmocka_unit_test(export_loads_in_transformers),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
