// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "storage/safetensors/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file image: length word, header text, `data_bytes` bytes 0, 1, 2, ... */
static unsigned char *make_image(const char *header, size_t data_bytes, size_t *bytes_out)
{
    const uint64_t header_bytes = strlen(header);
    unsigned char *image = malloc(8 + header_bytes + data_bytes + 1);
    memcpy(image, &header_bytes, 8);
    memcpy(image + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) {
        image[8 + header_bytes + i] = (unsigned char)i;
    }
    *bytes_out = 8 + header_bytes + data_bytes;
    return image;
}

static void expect_refused(const char *header, size_t data_bytes, const char *message_part)
{
    size_t bytes = 0;
    unsigned char *image = make_image(header, data_bytes, &bytes);
    ls_safetensors *untouched = (ls_safetensors *)&bytes, *file = untouched;
    assert_int_equal(ls_safetensors_open_memory(image, bytes, "bad.safetensors", &file), LS_ERR_DATA);
    assert_ptr_equal(file, untouched);
    if (!strstr(ls_error_text(), message_part) || !strstr(ls_error_text(), "bad.safetensors")) {
        fail_msg("\"%s\" does not say \"%s\"", ls_error_text(), message_part);
    }
    free(image);
}

static void safetensors_open_good_file_gives_sorted_tensors(void **state)
{
    (void)state;
    size_t bytes = 0;
    unsigned char *image = make_image("{\"__metadata__\":{\"format\":\"pt\"},"
                                      "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                                      "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
                                      "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}   ",
                                      9, &bytes);
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open_memory(image, bytes, "good", &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), 3);
    assert_string_equal(ls_safetensors_at(file, 0)->name, "a");
    assert_string_equal(ls_safetensors_at(file, 1)->name, "b");
    const ls_safetensor *b = ls_safetensors_find(file, "b");
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->bytes, 8);
    assert_int_equal(((const unsigned char *)b->data)[7], 7);
    assert_int_equal(ls_safetensors_find(file, "a")->rank, 0);
    assert_null(ls_safetensors_find(file, "empty")->data);
    assert_null(ls_safetensors_find(file, "c"));
    ls_safetensors_close(file);
    free(image);
}

static void safetensors_open_bad_structure_is_refused(void **state)
{
    (void)state;
    expect_refused("[]      ", 0, "begin with {");
    expect_refused("", 0, "begin with {");
    expect_refused("{\"a\":", 0, "not valid JSON");
    expect_refused("{\"a\":1}", 0, "must be an object");
    expect_refused("{\"__metadata__\":{\"x\":1}}", 0, "__metadata__.x");
    expect_refused("{\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "empty name");
    expect_refused("{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "tensor a: unknown dtype \"F99\"");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
                   "unknown field \"x\"");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", 1, "shape[0]");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
                   "at most 8");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                   "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                   2, "duplicate");
}

static void safetensors_open_bad_offsets_are_refused(void **state)
{
    (void)state;
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2,
                   "tensor a: data_offsets");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[-1,1]}}", 2,
                   "tensor a: data_offsets");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1,
                   "tensor a ends at byte 2");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
                   "shape [2] and type F32");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
                   "64 bits");
    /* 2^61 elements of 8 bytes are 2^64: must not wrap to 0. */
    expect_refused("{\"a\":{\"dtype\":\"I64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
                   "do not match its data_offsets");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                   3, "tensor b starts at byte 1 of the data and overlaps a");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                   3, "before tensor b");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 2, "end at byte 1");
}

static void safetensors_open_huge_or_cut_header_is_refused(void **state)
{
    (void)state;
    unsigned char image[32] = {0};
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open_memory(image, 7, "short", &file), LS_ERR_DATA);
    memset(image, 0xFF, 8);
    assert_int_equal(ls_safetensors_open_memory(image, sizeof image, "huge", &file), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "at most 100000000"));
    const uint64_t beyond = 25;
    memcpy(image, &beyond, 8);
    assert_int_equal(ls_safetensors_open_memory(image, sizeof image, "cut", &file), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "truncated"));
    assert_null(file);
}

/* What the safetensors package for Python (0.8.0) writes for these tensors, byte for byte. */
static void safetensors_header_equals_hugging_face(void **state)
{
    (void)state;
    static const char EXPECTED[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a2\":{\"dtype\":\"I64\",\"shape\":[3],\"data_"
        "offsets\":[0,24]},"
        "\"z\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[24,32]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[32,56]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[56,56]},"
        "\"i32\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[56,60]},"
        "\"bf\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[60,62]},"
        "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[62,66]},"
        "\"i16\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[66,68]},"
        "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[68,69]},"
        "\"u\\\"\\n\\u0001/\\\\\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[69,72]},"
        "\"bo\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[72,75]}}";
    const ls_safetensor tensors[] = {
        {.name = "b", .dtype = LS_ST_F32, .rank = 2, .shape = {2, 3}},
        {.name = "a", .dtype = LS_ST_I8, .rank = 1, .shape = {1}},
        {.name = "z", .dtype = LS_ST_F64},
        {.name = "h", .dtype = LS_ST_F16, .rank = 1, .shape = {2}},
        {.name = "e", .dtype = LS_ST_F32, .rank = 2, .shape = {0, 3}},
        {.name = "a2", .dtype = LS_ST_I64, .rank = 1, .shape = {3}},
        {.name = "u\"\n\x01/\\", .dtype = LS_ST_U8, .rank = 1, .shape = {3}},
        {.name = "bo", .dtype = LS_ST_BOOL, .rank = 1, .shape = {3}},
        {.name = "i16", .dtype = LS_ST_I16, .rank = 1, .shape = {1}},
        {.name = "i32", .dtype = LS_ST_I32, .rank = 1, .shape = {1}},
        {.name = "bf", .dtype = LS_ST_BF16, .rank = 1, .shape = {1}},
    };
    ls_arena arena = {0};
    ls_st_header header = {0};
    assert_int_equal(ls_safetensors_header(&arena, tensors, 11, 8, &header), LS_OK);
    const size_t text_bytes = sizeof EXPECTED - 1, padded = (text_bytes + 7) / 8 * 8;
    assert_int_equal(header.bytes, 8 + padded);
    uint64_t length = 0;
    memcpy(&length, header.data, 8);
    assert_int_equal(length, padded);
    assert_memory_equal(header.data + 8, EXPECTED, text_bytes);
    for (size_t i = 8 + text_bytes; i < header.bytes; i++) {
        assert_int_equal(header.data[i], ' ');
    }
    assert_int_equal(header.order[0], 5);
    assert_int_equal(ls_safetensors_header(&arena, tensors, 11, 4096, &header), LS_OK);
    assert_int_equal(header.bytes, 4096);
    ls_arena_release(&arena);
}

static void safetensors_header_bad_names_are_refused(void **state)
{
    (void)state;
    const ls_safetensor twice[] = {{.name = "a", .dtype = LS_ST_U8}, {.name = "a", .dtype = LS_ST_F32}};
    const ls_safetensor reserved = {.name = "__metadata__"}, empty = {.name = ""};
    const ls_safetensor deep = {.name = "d", .rank = 9};
    ls_arena arena = {0};
    ls_st_header header = {0};
    assert_int_equal(ls_safetensors_header(&arena, twice, 2, 8, &header), LS_ERR_INVALID);
    assert_int_equal(ls_safetensors_header(&arena, &reserved, 1, 8, &header), LS_ERR_INVALID);
    assert_int_equal(ls_safetensors_header(&arena, &empty, 1, 8, &header), LS_ERR_INVALID);
    assert_int_equal(ls_safetensors_header(&arena, &deep, 1, 8, &header), LS_ERR_INVALID);
    assert_null(header.data);
    ls_arena_release(&arena);
}

/* ---- conversion ---- */

static float to_f32(ls_st_dtype dtype, uint64_t bits)
{
    const ls_safetensor tensor = {
        .name = "x", .dtype = dtype, .data = &bits, .bytes = ls_st_dtype_bytes(dtype)};
    float value = 0;
    assert_int_equal(ls_safetensor_to_f32(&tensor, &value), LS_OK);
    return value;
}

static uint16_t from_f32(ls_st_dtype dtype, float value)
{
    uint16_t bits = 0;
    assert_int_equal(ls_safetensor_from_f32(dtype, &value, 1, &bits), LS_OK);
    return bits;
}

static void safetensor_to_f32_known_values(void **state)
{
    (void)state;
    assert_true(to_f32(LS_ST_F16, 0x3C00) == 1.0f);
    assert_true(to_f32(LS_ST_F16, 0xC000) == -2.0f);
    assert_true(to_f32(LS_ST_F16, 0x7BFF) == 65504.0f);
    assert_true(to_f32(LS_ST_F16, 0x0001) == 0x1p-24f);
    assert_true(to_f32(LS_ST_F16, 0x03FF) == 1023 * 0x1p-24f);
    assert_true(isinf(to_f32(LS_ST_F16, 0x7C00)) && isnan(to_f32(LS_ST_F16, 0x7E01)));
    assert_true(to_f32(LS_ST_F16, 0x8000) == 0.0f && signbit(to_f32(LS_ST_F16, 0x8000)));
    assert_true(to_f32(LS_ST_BF16, 0x3FC0) == 1.5f);
    const double third = 1.0 / 3;
    uint64_t bits;
    memcpy(&bits, &third, 8);
    assert_true(to_f32(LS_ST_F64, bits) == 1.0f / 3);
    const ls_safetensor whole = {.name = "ids", .dtype = LS_ST_I64, .data = &bits, .bytes = 8};
    float untouched = 7;
    assert_int_equal(ls_safetensor_to_f32(&whole, &untouched), LS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ls_error_text(), "ids"));
    assert_true(untouched == 7);
}

static void safetensor_from_f32_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(from_f32(LS_ST_F16, 65519.0f), 0x7BFF);
    assert_int_equal(from_f32(LS_ST_F16, 65520.0f), 0x7C00);
    assert_int_equal(from_f32(LS_ST_F16, 1e9f), 0x7C00);
    assert_int_equal(from_f32(LS_ST_F16, -INFINITY), 0xFC00);
    assert_int_equal(from_f32(LS_ST_F16, 0x1p-25f), 0x0000); /* a tie goes to even: zero */
    assert_int_equal(from_f32(LS_ST_F16, 0x1.000002p-25f), 0x0001);
    /* rounds up into the normal numbers */
    assert_int_equal(from_f32(LS_ST_F16, 0x1.FFCp-15f), 0x0400);
    assert_int_equal(from_f32(LS_ST_F16, -0.0f), 0x8000);
    assert_int_equal(from_f32(LS_ST_F16, 1.0f + 0x1p-11f), 0x3C00);
    assert_int_equal(from_f32(LS_ST_F16, 1.0f + 0x3p-11f), 0x3C02);
    assert_int_equal(from_f32(LS_ST_BF16, 1.0f + 0x1p-8f), 0x3F80);
    assert_int_equal(from_f32(LS_ST_BF16, 1.0f + 0x3p-8f), 0x3F82);
    assert_true(isnan(to_f32(LS_ST_F16, from_f32(LS_ST_F16, NAN))));
    assert_true(isnan(to_f32(LS_ST_BF16, from_f32(LS_ST_BF16, NAN))));
    float one = 1;
    assert_int_equal(ls_safetensor_from_f32(LS_ST_I32, &one, 1, &(int32_t){0}), LS_ERR_UNSUPPORTED);
}

static void safetensor_half_types_survive_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float half = to_f32(LS_ST_F16, bits), brain = to_f32(LS_ST_BF16, bits);
        assert_true(isnan(half) || from_f32(LS_ST_F16, half) == bits);
        assert_true(isnan(brain) || from_f32(LS_ST_BF16, brain) == bits);
    }
}

/* ---- files ---- */

static int folder_create(void **state)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/ls-safetensors-XXXXXX");
    *state = mkdtemp(folder);
    return *state ? 0 : -1;
}

static int folder_remove(void **state)
{
    return ls_dir_remove(*state) == LS_OK ? 0 : -1;
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(ls_file_write_atomic(path, text, strlen(text)), LS_OK);
}

static void safetensors_write_then_open_gives_same_bytes(void **state)
{
    ls_arena arena = {0};
    const char *path = ls_path_join(&arena, *state, "model.safetensors");
    const float a[3] = {1, 2, 3};
    const uint16_t b[2] = {0x3F80, 0x4000};
    const ls_safetensor tensors[] = {
        {.name = "b", .dtype = LS_ST_BF16, .rank = 1, .shape = {2}, .data = b},
        {.name = "a", .dtype = LS_ST_F32, .rank = 2, .shape = {3, 1}, .data = a}};
    assert_int_equal(ls_safetensors_write(path, tensors, 2), LS_OK);
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open(*state, &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), 2);
    assert_memory_equal(ls_safetensors_find(file, "a")->data, a, sizeof a);
    assert_memory_equal(ls_safetensors_find(file, "b")->data, b, sizeof b);
    assert_string_equal(ls_safetensors_find(file, "b")->path, path);
    ls_safetensors_close(file);
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(ls_dir_list(&arena, *state, &names, &count), LS_OK);
    assert_int_equal(count, 1); /* no temporary file stays */
    assert_int_equal(ls_safetensors_write("/nowhere/x.safetensors", tensors, 2), LS_ERR_NOT_FOUND);
    ls_arena_release(&arena);
}

static void safetensors_open_shards_follows_the_index(void **state)
{
    ls_arena arena = {0};
    const float one = 1, two = 2, other = 3;
    const ls_safetensor first[] = {{.name = "a", .dtype = LS_ST_F32, .data = &one},
                                   {.name = "b", .dtype = LS_ST_F32, .data = &other}};
    const ls_safetensor second = {.name = "b", .dtype = LS_ST_F32, .data = &two};
    assert_int_equal(ls_safetensors_write(ls_path_join(&arena, *state, "x-1.safetensors"), first, 2), LS_OK);
    assert_int_equal(ls_safetensors_write(ls_path_join(&arena, *state, "x-2.safetensors"), &second, 1),
                     LS_OK);
    const char *index = ls_path_join(&arena, *state, "model.safetensors.index.json");
    write_text(index,
               "{\"metadata\":{},\"weight_map\":{\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"}}");
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open(*state, &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), 2);
    assert_true(*(const float *)ls_safetensors_find(file, "b")->data == 2);
    ls_safetensors_close(file);

    file = NULL;
    write_text(index, "{\"weight_map\":{\"a\":\"x-1.safetensors\",\"c\":\"x-2.safetensors\"}}");
    assert_int_equal(ls_safetensors_open(index, &file), LS_ERR_DATA);
    assert_non_null(
        strstr(ls_error_text(), "tensor c in the file x-2.safetensors, but that file does not have it"));
    write_text(index, "{\"weight_map\":{\"a\":\"x-3.safetensors\"}}");
    assert_int_equal(ls_safetensors_open(index, &file), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "x-3.safetensors"));
    write_text(index, "{\"weight_map\":{\"a\":\"../x-1.safetensors\"}}");
    assert_int_equal(ls_safetensors_open(index, &file), LS_ERR_DATA);
    write_text(index, "{}");
    assert_int_equal(ls_safetensors_open(index, &file), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "weight_map"));
    assert_null(file);
    ls_arena_release(&arena);
}

static void safetensors_open_missing_is_not_found(void **state)
{
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open("/nowhere/x.safetensors", &file), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_safetensors_open(*state, &file), LS_ERR_NOT_FOUND);
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_open_good_file_gives_sorted_tensors),
        cmocka_unit_test(safetensors_open_bad_structure_is_refused),
        cmocka_unit_test(safetensors_open_bad_offsets_are_refused),
        cmocka_unit_test(safetensors_open_huge_or_cut_header_is_refused),
        cmocka_unit_test(safetensors_header_equals_hugging_face),
        cmocka_unit_test(safetensors_header_bad_names_are_refused),
        cmocka_unit_test(safetensor_to_f32_known_values),
        cmocka_unit_test(safetensor_from_f32_rounds_to_nearest_even),
        cmocka_unit_test(safetensor_half_types_survive_a_round_trip),
        cmocka_unit_test_setup_teardown(safetensors_write_then_open_gives_same_bytes, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(safetensors_open_shards_follows_the_index, folder_create,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(safetensors_open_missing_is_not_found, folder_create, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
