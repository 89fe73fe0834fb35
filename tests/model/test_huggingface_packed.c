// SPDX-License-Identifier: Apache-2.0
/*
 * Models that bitsandbytes packed: those of tests/golden/packed_models have the values that it
 * computes with, and each part that is missing or wrong is named.
 */
#include "test.h"

#include "base/file.h"
#include "base/hash.h"
#include "model/huggingface.h"
#include "model/huggingface_packed.h"
#include "storage/safetensors/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN LS_SOURCE_DIR "/tests/golden/packed_models/"
#define MATRIX "model.layers.0.mlp.down_proj."

enum { TENSORS_MAX = 100 };

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/lockstep-hf-packed-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return ls_dir_remove(scratch) == LS_OK ? 0 : -1;
}

static void expect_text(const char *part)
{
    if (!strstr(ls_error_text(), part)) {
        fail_msg("\"%s\" does not say \"%s\"", ls_error_text(), part);
    }
}

/* Reads the parameters in `path` of the model that GOLDEN `kind` describes. */
static ls_status load(const char *kind, const char *path, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_arena arena = {0};
    ls_model_config config;
    ls_layout layout;
    ls_sha256 hash;
    assert_int_equal(ls_hf_config_load(ls_arena_printf(&arena, GOLDEN "%s", kind), &config), LS_OK);
    assert_true(config.quantised);
    ls_layout_build(&arena, &config, &layout);
    float *flat = malloc((size_t)layout.parameter_floats * sizeof *flat);
    assert_non_null(flat);
    const ls_status status = ls_hf_load_parameters(path, &config, &layout, flat);
    const uint32_t *order = ls_layout_by_name(&arena, &layout);
    ls_sha256_init(&hash);
    for (uint32_t i = 0; i < layout.parameter_count && status == LS_OK; i++) {
        const ls_parameter *p = &layout.parameters[order[i]];
        ls_sha256_update(&hash, flat + p->offset, (size_t)(p->rows * p->cols) * sizeof *flat);
    }
    ls_sha256_finish(&hash, hex_out);
    free(flat);
    ls_arena_release(&arena);
    return status;
}

static void packed_models_have_the_values_of_bitsandbytes(void **state)
{
    (void)state;
    static const char *const kinds[] = {"nf4", "nf4_single", "int8"};
    for (int i = 0; i < 3; i++) {
        char path[400], want[LS_SHA256_HEX_BYTES] = {0}, got[LS_SHA256_HEX_BYTES];
        snprintf(path, sizeof path, GOLDEN "%s/values.sha256", kinds[i]);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fread(want, 1, sizeof want - 1, file), sizeof want - 1);
        fclose(file);
        snprintf(path, sizeof path, GOLDEN "%s", kinds[i]);
        assert_int_equal(load(kinds[i], path, got), LS_OK);
        assert_string_equal(got, want);
    }
}

/* Writes the tensors of GOLDEN `kind` with one changed or, with data NULL, left out. */
static void write_edited(const char *kind, const ls_safetensor *edit, const char *path)
{
    ls_safetensors *file = NULL;
    ls_safetensor tensors[TENSORS_MAX];
    size_t count = 0;
    char from[400];
    snprintf(from, sizeof from, GOLDEN "%s", kind);
    assert_int_equal(ls_safetensors_open(from, &file), LS_OK);
    bool found = false;
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        tensors[count] = *ls_safetensors_at(file, i);
        if (strcmp(tensors[count].name, edit->name) == 0) {
            found = true;
            tensors[count] = *edit;
        }
        count += tensors[count].data ? 1 : 0;
    }
    assert_true(found);
    assert_int_equal(ls_safetensors_write(path, tensors, count), LS_OK);
    ls_safetensors_close(file);
}

static void expect_refused(const char *kind, const ls_safetensor *edit, ls_status expected, const char *part)
{
    char path[128], hex[LS_SHA256_HEX_BYTES];
    snprintf(path, sizeof path, "%s/model.safetensors", scratch);
    write_edited(kind, edit, path);
    assert_int_equal(load(kind, path, hex), expected);
    expect_text(edit->name);
    expect_text(part);
}

static void packed_matrix_without_a_part_is_refused(void **state)
{
    (void)state;
    static const char *const nf4[] = {"absmax", "nested_quant_map", "quant_map"};
    for (int i = 0; i < 3; i++) {
        char name[100];
        snprintf(name, sizeof name, MATRIX "weight.%s", nf4[i]);
        expect_refused("nf4", &(ls_safetensor){.name = name}, LS_ERR_DATA, "is missing");
    }
    expect_refused("nf4", &(ls_safetensor){.name = MATRIX "weight.quant_state.bitsandbytes__nf4"},
                   LS_ERR_UNSUPPORTED, "only nf4 of bitsandbytes");
    /* Without the nested scales, codes of scales are not scales. */
    expect_refused("nf4_single",
                   &(ls_safetensor){.name = MATRIX "weight.absmax",
                                    .dtype = LS_ST_U8,
                                    .rank = 1,
                                    .shape = {24},
                                    .data = (uint8_t[24]){0}},
                   LS_ERR_DATA, "24 elements of F32");
    expect_refused("int8", &(ls_safetensor){.name = MATRIX "SCB"}, LS_ERR_DATA, "is missing");
}

static void packed_matrix_with_a_wrong_part_is_refused(void **state)
{
    (void)state;
    float scales[32] = {[3] = NAN}, levels[16];
    memcpy(levels, ls_nf4_levels, sizeof levels);
    levels[7] = 0.01f;
    expect_refused(
        "nf4",
        &(ls_safetensor){
            .name = MATRIX "weight.quant_map", .dtype = LS_ST_F32, .rank = 1, .shape = {16}, .data = levels},
        LS_ERR_UNSUPPORTED, "element 7");
    expect_refused(
        "int8",
        &(ls_safetensor){.name = MATRIX "SCB", .dtype = LS_ST_F32, .rank = 1, .shape = {32}, .data = scales},
        LS_ERR_DATA, "element 3");
    expect_refused(
        "int8",
        &(ls_safetensor){.name = MATRIX "SCB", .dtype = LS_ST_F32, .rank = 1, .shape = {31}, .data = scales},
        LS_ERR_DATA, "32 elements of F32");
    expect_refused(
        "int8", &(ls_safetensor){.name = MATRIX "weight_format", .dtype = LS_ST_U8, .data = (uint8_t[1]){2}},
        LS_ERR_UNSUPPORTED, "is 2: only 0");
    expect_refused("int8",
                   &(ls_safetensor){.name = MATRIX "weight",
                                    .dtype = LS_ST_I8,
                                    .rank = 2,
                                    .shape = {48, 32},
                                    .data = (int8_t[48 * 32]){0}},
                   LS_ERR_DATA, "");
}

static void expect_state_refused(const char *json, ls_status expected, const char *part)
{
    char path[128], hex[LS_SHA256_HEX_BYTES];
    const ls_safetensor edit = {.name = MATRIX "weight.quant_state.bitsandbytes__nf4",
                                .dtype = LS_ST_U8,
                                .rank = 1,
                                .shape = {strlen(json)},
                                .data = json};
    snprintf(path, sizeof path, "%s/model.safetensors", scratch);
    write_edited("nf4", &edit, path);
    assert_int_equal(load("nf4", path, hex), expected);
    expect_text(MATRIX "weight");
    expect_text(part);
}

static void packed_matrix_with_a_wrong_state_is_refused(void **state)
{
    (void)state;
    expect_state_refused("{", LS_ERR_DATA, "");
    expect_state_refused("{\"quant_type\":\"nf4\",\"blocksize\":128,\"shape\":[32,48]}", LS_ERR_UNSUPPORTED,
                         "blocks of 128");
    expect_state_refused("{\"quant_type\":\"fp4\",\"blocksize\":64,\"shape\":[32,48]}", LS_ERR_UNSUPPORTED,
                         "fp4");
    expect_state_refused("{\"quant_type\":\"nf4\",\"blocksize\":64,\"shape\":[32,49]}", LS_ERR_DATA,
                         "do not fit the shape");
    expect_state_refused("{\"quant_type\":\"nf4\",\"blocksize\":64,\"shape\":[4294967296,4294967296]}",
                         LS_ERR_DATA, "do not fit the shape");
    expect_state_refused("{\"quant_type\":\"nf4\",\"blocksize\":64,\"shape\":[48,32],"
                         "\"nested_blocksize\":256,\"nested_offset\":0.1}",
                         LS_ERR_DATA, "[48, 32]");
    expect_state_refused("{\"quant_type\":\"nf4\",\"blocksize\":64,\"shape\":[32,48],"
                         "\"nested_blocksize\":128,\"nested_offset\":0.1}",
                         LS_ERR_DATA, "nested_blocksize");
}

static void quantization_of_other_kinds_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"awq\"}}",
        "{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"bitsandbytes\","
        "\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"fp4\"}}",
        "{\"model_type\":\"gpt2\",\"quantization_config\":{\"quant_method\":\"bitsandbytes\","
        "\"load_in_8bit\":true}}"};
    static const char *const parts[] = {"(awq)", "(bitsandbytes, fp4)", "not for gpt2"};
    for (int i = 0; i < 3; i++) {
        ls_model_config config;
        assert_int_equal(ls_hf_config_parse(texts[i], strlen(texts[i]), "config.json", &config),
                         LS_ERR_UNSUPPORTED);
        expect_text(parts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_models_have_the_values_of_bitsandbytes),
        cmocka_unit_test(packed_matrix_without_a_part_is_refused),
        cmocka_unit_test(packed_matrix_with_a_wrong_part_is_refused),
        cmocka_unit_test(packed_matrix_with_a_wrong_state_is_refused),
        cmocka_unit_test(quantization_of_other_kinds_is_refused),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
