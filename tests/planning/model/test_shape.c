// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "planning/folder.h"
#include "planning/model/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ls_shape parse(const char *text)
{
    ls_shape shape;
    if (ls_shape_parse(&arena, text, &shape) != LS_OK) {
        fail_msg("%s: %s", text, ls_error_text());
    }
    return shape;
}

/* The nine models of the notes, and the rest as transformers counts the parameters of the same
 * sizes. */
static void shape_parameters_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        long long parameters;
    } cases[] = {
        {"gpt2", 124439808},         {"gpt2-xl", 1557611200},       {"gpt3-175b", 174604259328},
        {"llama2-7b", 6738415616},   {"llama2-70b", 68976648192},   {"llama3-8b", 8030261248},
        {"llama3-70b", 70553706496}, {"llama3-405b", 405853388800}, {"mixtral-8x7b", 46702792704},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_shape shape = parse(cases[i].name);
        if (shape.parameters != cases[i].parameters) {
            fail_msg("%s: %lld", cases[i].name, (long long)shape.parameters);
        }
    }
    assert_int_equal(parse("mixtral-8x7b").active_parameters, 12879925248);
    assert_int_equal(parse("llama3-8b").active_parameters, 8030261248);
}

/* Every preset that the runtime can train adds up the way it is laid out, and its FLOPs are those of the op plan, to
 * the last bit. */
static void shape_presets_agree_with_the_op_plan(void **state)
{
    (void)state;
    int mixtures = 0;
    for (const char *const *name = ls_shape_presets(); *name; name++) {
        const ls_shape shape = parse(*name);
        assert_string_equal(shape.name, *name);
        if (shape.moe.experts != shape.config.experts) {
            continue; /* latent attention, shared experts, dense layers: only planned */
        }
        mixtures += shape.moe.experts > 0;
        ls_arena scratch = {0};
        ls_layout layout;
        ls_layout_build(&scratch, &shape.config, &layout);
        assert_int_equal(layout.element_count, shape.parameters);
        ls_plan plan;
        const ls_plan_options options = {.sequences = 1, .length = 512, .losses = true, .tensor_cut = 1};
        assert_int_equal(ls_plan_build(&scratch, &shape.config, &layout, &options, &plan), LS_OK);
        const ls_plan_flops flops = ls_plan_count_flops(&plan);
        assert_true(ls_shape_forward_flops(&shape, 512, LS_FLOPS_FULL_ATTENTION) == flops.forward);
        assert_true(ls_shape_forward_flops(&shape, 512, LS_FLOPS_CAUSAL) == flops.causal_forward);
        ls_arena_release(&scratch);
    }
    assert_true(mixtures >= 4);
}

static void shape_flops_follow_the_papers(void **state)
{
    (void)state;
    /* 96 B s L h^2 (1 + s/6h + V/16Lh) counts a recomputed forward: a quarter of it is the forward,
     * but for the head, counted once less. */
    const ls_shape gpt = parse("gpt-22b");
    const double B = 1.0, s = 2048.0, L = 48.0, h = 6144.0, V = 51200.0;
    const double forward = ls_shape_forward_flops(&gpt, 2048, LS_FLOPS_FULL_ATTENTION);
    const double model = 72.0 * B * s * L * h * h * (1.0 + s / (6.0 * h) + V / (12.0 * L * h));
    assert_true(fabs(3.0 * forward / model - 1.0) < 1e-12);
    const ls_shape llama = parse("llama3-8b");
    assert_true(ls_shape_forward_flops(&llama, 10, LS_FLOPS_6N) == 2.0 * 8030261248.0 * 10.0);
    assert_string_equal(ls_flop_convention_name(LS_FLOPS_CAUSAL), "causal");
}

static double saved_bytes(const ls_shape *shape, bool cut)
{
    double bytes = 0.0;
    for (uint32_t i = 0; i < shape->saved_count; i++) {
        bytes += shape->saved[i].cut == cut && !shape->saved[i].statistic ? 2.0 * shape->saved[i].cols : 0.0;
    }
    return bytes;
}

/* Korthikanti's sbh(10 + 24/t): two of the 10 are dropout masks, the rest are the values that the
 * op plan keeps. */
static void shape_saved_values_are_those_of_the_papers(void **state)
{
    (void)state;
    const ls_shape gpt = parse("gpt-22b");
    assert_true(saved_bytes(&gpt, false) == 8.0 * 6144.0);
    assert_true(saved_bytes(&gpt, true) == 24.0 * 6144.0);
    const ls_shape llama = parse("llama2-7b");
    assert_true(saved_bytes(&llama, false) == 8.0 * 4096.0);
    assert_true(saved_bytes(&llama, true) == 2.0 * (3.0 * 4096.0 + 4096.0 + 3.0 * 11008.0));
    uint32_t entries = 0;
    for (uint32_t i = 0; i < llama.saved_count; i++) {
        entries += llama.saved[i].entry;
    }
    assert_int_equal(entries, 1);
}

static void shape_linears_hold_the_matrices(void **state)
{
    (void)state;
    for (const char *const *name = ls_shape_presets(); *name; name++) {
        const ls_shape shape = parse(*name);
        int64_t matrices = 0, experts = 0;
        for (uint32_t i = 0; i < shape.linear_count; i++) {
            const ls_shape_linear *l = &shape.linears[i];
            *(l->expert ? &experts : &matrices) += l->in * l->out;
            assert_int_equal(l->row_cut, strstr(l->name, "down") || strcmp(l->name, "output") == 0
                                             ? !l->replicated
                                             : false);
        }
        assert_int_equal(matrices, shape.layer_matrices);
        assert_int_equal((experts + shape.moe.expert_vectors) * shape.moe.experts, shape.layer_experts);
    }
}

static void shape_parse_reads_sizes_and_fills_in_the_rest(void **state)
{
    (void)state;
    const ls_shape gpt = parse("layers=96,hidden=12288,heads=96,kv_heads=96,ffn=49152,vocab=51200,mlp=gelu");
    assert_int_equal(gpt.parameters, parse("gpt-175b").parameters);
    assert_string_equal(gpt.name, "layers=96,hidden=12288,heads=96,kv_heads=96,head_dim=128,ffn=49152,"
                                  "vocab=51200,mlp=gelu,seq=2048,tied=1,dropout=0.1");
    const ls_shape llama = parse("layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,seq=8192");
    assert_int_equal(llama.parameters, parse("llama3-8b").parameters);
    assert_true(llama.config.swiglu);
    const ls_shape mixtral = parse("layers=32,hidden=4096,heads=32,kv_heads=8,expert_ffn=14336,experts=8");
    assert_int_equal(mixtral.parameters, parse("mixtral-8x7b").parameters);
    /* Two matrices in the MLP and fewer key heads: no family of the runtime, but a plan can be
     * made. */
    const ls_shape falcon = parse("layers=2,hidden=128,heads=4,kv_heads=1,ffn=512,vocab=100,mlp=gelu,tied=1");
    const int64_t layer = 128 * 128 * 2 + 2 * 128 * 32 + 2 * 128 * 512 + 2 * 128;
    assert_int_equal(falcon.parameters, 2 * layer + 128 + 100 * 128);
    assert_false(falcon.config.swiglu);
    assert_int_equal(parse("layers=2,hidden=128,heads=4").config.ffn, 384);
    assert_int_equal(parse("layers=2,hidden=100,heads=3,head_dim=64").config.head_dim, 64);
}

static void shape_parse_reads_config_json(void **state)
{
    (void)state;
    static const char mixtral[] = "{\"model_type\": \"mixtral\", \"hidden_size\": 4096, "
                                  "\"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
                                  " \"num_key_value_heads\": 8, \"intermediate_size\": 14336, "
                                  "\"vocab_size\": 32000, \"sliding_window\": null,"
                                  " \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
                                  "\"router_aux_loss_coef\": 0.02, \"rope_theta\": 1e6}";
    static const char deepseek[] =
        "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"num_hidden_layers\": 61, "
        "\"num_attention_heads\": 128,"
        " \"num_key_value_heads\": 128, \"intermediate_size\": 18432, \"vocab_size\": 129280, "
        "\"n_routed_experts\": 256,"
        " \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 2048, \"n_shared_experts\": 1,"
        " \"first_k_dense_replace\": 3, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": "
        "128,"
        " \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"max_position_embeddings\": 163840,"
        " \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40}, \"quantization_config\": "
        "{\"quant_method\": \"fp8\"}}";
    static const char qwen[] = "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, "
                               "\"num_hidden_layers\": 48, \"num_attention_heads\": 32,"
                               " \"num_key_value_heads\": 4, \"head_dim\": 128, \"intermediate_size\": 6144, "
                               "\"moe_intermediate_size\": 768,"
                               " \"num_experts\": 128, \"num_experts_per_tok\": 8, \"vocab_size\": 151936, "
                               "\"decoder_sparse_step\": 1,"
                               " \"mlp_only_layers\": [], \"tie_word_embeddings\": false}";
    static const char llama[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32,"
        " \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"vocab_size\": 128256}";
    assert_int_equal(parse(write_file("mixtral.json", mixtral)).parameters, 46702792704);
    assert_int_equal(parse(write_file("deepseek.json", deepseek)).parameters,
                     parse("deepseek-v3").parameters);
    assert_int_equal(parse(write_file("qwen.json", qwen)).parameters, parse("qwen3-30b-a3b").parameters);
    write_file("config.json", llama);
    assert_int_equal(parse(folder).parameters, 8030261248);
}

static void shape_parse_takes_an_unknown_config_for_a_llama_and_says_so(void **state)
{
    (void)state;
    static const char strange[] = "{\"model_type\": \"strange\", \"hidden_size\": 4096, "
                                  "\"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
                                  " \"num_key_value_heads\": 8, \"intermediate_size\": 14336, "
                                  "\"vocab_size\": 128256, \"hidden_act\": \"odd\","
                                  " \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}";
    const ls_shape shape = parse(write_file("strange.json", strange));
    assert_int_equal(shape.parameters, 8030261248);
    assert_non_null(strstr(shape.name, "(strange, read as a Llama of its sizes)"));
    static const char parts[] =
        "{\"model_type\": \"seeing\", \"text_config\": {\"model_type\": \"llama\","
        " \"hidden_size\": 4096, \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
        " \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"vocab_size\": 128256}}";
    assert_int_equal(parse(write_file("parts.json", parts)).parameters, 8030261248);
    static const char *const refused[] = {
        "{\"model_type\": \"strange\", \"hidden_size\": 4096}",
        "{\"hidden_size\": 4096}",
        "[1, 2]",
        "{\"model_type\": \"mixtral\", \"num_local_experts\": \"eight\"}",
        "{\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 2}",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ls_shape untouched = {.name = "untouched"};
        assert_int_not_equal(ls_shape_parse(&arena, write_file("refused.json", refused[i]), &untouched),
                             LS_OK);
        assert_non_null(strstr(ls_error_text(), "refused.json"));
        assert_string_equal(untouched.name, "untouched");
    }
}

static void shape_parse_reads_run_files(void **state)
{
    (void)state;
    const char *path =
        write_file("run.yaml", "model: {family: llama, layers: 6, heads: 6, width: 384, ffn: 1024}\n"
                               "tokenizer: {kind: bytes}\ndata: {train: [x.txt]}\n");
    const ls_shape shape = parse(path);
    assert_int_equal(shape.config.vocab, 256);
    assert_int_equal(shape.parameters, 6 * (4 * 384 * 384 + 3 * 384 * 1024 + 2 * 384) + 384 + 2 * 256 * 384);
    path = write_file("file.yaml", "tokenizer: {kind: file, file: t.json}\ndata: {train: [x.txt]}\n");
    ls_shape untouched = {.name = "untouched"};
    assert_int_equal(ls_shape_parse(&arena, path, &untouched), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "model.vocab"));
    assert_string_equal(untouched.name, "untouched");
}

static void shape_parse_refuses_with_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
        ls_status status;
    } cases[] = {
        {"lama3-70b", "nearest: llama3-70b", LS_ERR_NOT_FOUND},
        {"lama3", "llama3-8b, llama3-70b", LS_ERR_NOT_FOUND},
        {"mixtral", "nearest: mixtral-8x7b", LS_ERR_NOT_FOUND},
        {"", "is unknown", LS_ERR_NOT_FOUND},
        {"nosuch/config.json", "nosuch/config.json", LS_ERR_NOT_FOUND},
        {"layers=2,hidden=64", "heads is missing", LS_ERR_INVALID},
        {"layers=2,hidden=64,heads=5", "heads 5 does not divide hidden 64", LS_ERR_INVALID},
        {"layers=0,hidden=64,heads=4", "layers is \"0\"", LS_ERR_INVALID},
        {"layers=-3,hidden=64,heads=4", "layers is \"-3\"", LS_ERR_INVALID},
        {"layers=2,hidden=64,heads=4,kvheads=2", "nearest: kv_heads", LS_ERR_INVALID},
        {"layers=2,hidden=64,heads=4,mlp=tanh", "mlp is \"tanh\"", LS_ERR_INVALID},
        {"layers=2,hidden=64,heads=4,kv_heads=3", "kv_heads is 3, but heads, 4, must be a multiple of it",
         LS_ERR_INVALID},
        {"layers=2,hidden=64,heads=4,experts=4,active=5", "active is 5", LS_ERR_INVALID},
        {"layers=2,hidden=64,heads=4,active=5", "only when experts is above 0", LS_ERR_INVALID},
        {"layers=2,hidden=64,heads=4,dropout=1", "dropout is \"1\"", LS_ERR_INVALID},
        {"layers=2,,heads=4", "is not of the form key=value", LS_ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_shape shape = {.name = "untouched"};
        const ls_status status = ls_shape_parse(&arena, cases[i].text, &shape);
        if (status != cases[i].status || !strstr(ls_error_text(), cases[i].error)) {
            fail_msg("%s: %d %s", cases[i].text, (int)status, ls_error_text());
        }
        assert_string_equal(shape.name, "untouched");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_parameters_are_exact),
        cmocka_unit_test(shape_presets_agree_with_the_op_plan),
        cmocka_unit_test(shape_flops_follow_the_papers),
        cmocka_unit_test(shape_saved_values_are_those_of_the_papers),
        cmocka_unit_test(shape_linears_hold_the_matrices),
        cmocka_unit_test(shape_parse_reads_sizes_and_fills_in_the_rest),
        cmocka_unit_test(shape_parse_reads_config_json),
        cmocka_unit_test(shape_parse_takes_an_unknown_config_for_a_llama_and_says_so),
        cmocka_unit_test(shape_parse_reads_run_files),
        cmocka_unit_test(shape_parse_refuses_with_what_is_allowed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
