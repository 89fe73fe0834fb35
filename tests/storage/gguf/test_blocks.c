// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of GGUF against readers written here from the layout alone, against bytes of the package
 * gguf 0.19 (hashes), and against the squared errors of ggml's quantiser (llama.cpp of 2026-11),
 * both for the same numbers.
 */
#include "test.h"

#include "base/half.h"
#include "base/hash.h"
#include "storage/gguf/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 256 * 64 };

/* ---- readers: one number of a block, as the format defines it ---- */

static float half_at(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, 2);
    return ls_f32_from_f16(half);
}

/* Number i of eight 6-bit scales (lows: of the minima after them), packed in 12 bytes. */
static int packed_six(const unsigned char *p, int i, int lows)
{
    if (i < 4) {
        return p[i + 4 * lows] & 63;
    }
    const int low = lows ? p[i + 4] >> 4 : p[i + 4] & 15;
    return low | (p[i - 4 + 4 * lows] >> 6) << 4;
}

static float read_affine(const unsigned char *b, const unsigned char *qs, const unsigned char *qh, int i)
{
    const int part = i / 32, byte = i / 64 * 32 + i % 32;
    int q = part % 2 ? qs[byte] >> 4 : qs[byte] & 15;
    if (qh) {
        q |= (qh[i % 32] >> part & 1) << 4;
    }
    return half_at(b) * (float)packed_six(b + 4, part, 0) * (float)q -
           half_at(b + 2) * (float)packed_six(b + 4, part, 1);
}

static float read_q6_k(const unsigned char *b, int i)
{
    const int half = i / 128, within = i % 128, quarter = within / 32, l = within % 32;
    const unsigned char *ql = b + 64 * half, *qh = b + 128 + 32 * half;
    const int low = ql[l + 32 * (quarter % 2)] >> (4 * (quarter / 2)) & 15;
    const int q = (low | (qh[l] >> (2 * quarter) & 3) << 4) - 32;
    return half_at(b + 208) * (float)(int8_t)b[192 + i / 16] * (float)q;
}

static int read_five(const unsigned char *high, const unsigned char *low, int i)
{
    uint32_t bits;
    memcpy(&bits, high, 4);
    return (i < 16 ? low[i] & 15 : low[i - 16] >> 4) | (int)(bits >> i & 1) << 4;
}

static float read_number(ls_block_type type, const unsigned char *b, int i)
{
    float value;
    uint16_t half;
    switch (type) {
    case LS_BLOCK_F32:
        memcpy(&value, b, 4);
        return value;
    case LS_BLOCK_F16:
        return half_at(b);
    case LS_BLOCK_BF16:
        memcpy(&half, b, 2);
        return ls_f32_from_bf16(half);
    case LS_BLOCK_Q8_0:
        return half_at(b) * (float)(int8_t)b[2 + i];
    case LS_BLOCK_Q5_0:
        return half_at(b) * (float)(read_five(b + 2, b + 6, i) - 16);
    case LS_BLOCK_Q5_1:
        return half_at(b) * (float)read_five(b + 4, b + 8, i) + half_at(b + 2);
    case LS_BLOCK_Q4_K:
        return read_affine(b, b + 16, NULL, i);
    case LS_BLOCK_Q5_K:
        return read_affine(b, b + 48, b + 16, i);
    case LS_BLOCK_Q6_K:
        return read_q6_k(b, i);
    }
    return NAN;
}

static double squared_error(ls_block_type type, const float *x, size_t count)
{
    unsigned char *bytes = malloc(ls_block_row_bytes(type, count));
    const size_t each = ls_block_elements(type), size = ls_block_row_bytes(type, each);
    double sum = 0.0;
    ls_block_encode(type, x, count, bytes);
    for (size_t i = 0; i < count; i++) {
        const double e = (double)read_number(type, bytes + i / each * size, (int)(i % each)) - (double)x[i];
        sum += e * e;
    }
    free(bytes);
    return sum;
}

/* ---- numbers ---- */

enum { UNIFORM, CUBES, SHIFTED };

static float *draw(int kind)
{
    float *x = malloc(NUMBERS * sizeof *x);
    uint32_t s = 12345;
    for (int i = 0; i < NUMBERS; i++) {
        s = s * 1664525u + 1013904223u;
        const float u = (float)((int32_t)(s >> 8) - 8388608) * 0x1p-23f;
        x[i] = kind == UNIFORM ? u : kind == CUBES ? u * u * u : (u + 0.5f) * 0.25f;
    }
    return x;
}

static const ls_block_type all_types[] = {LS_BLOCK_F32,  LS_BLOCK_F16,  LS_BLOCK_BF16,
                                          LS_BLOCK_Q8_0, LS_BLOCK_Q5_0, LS_BLOCK_Q5_1,
                                          LS_BLOCK_Q4_K, LS_BLOCK_Q5_K, LS_BLOCK_Q6_K};
enum { TYPES = sizeof all_types / sizeof all_types[0] };

/* ---- cases ---- */

static void block_row_bytes_are_those_of_the_format(void **state)
{
    (void)state;
    const uint64_t bytes[TYPES] = {1024, 512, 512, 272, 176, 192, 144, 176, 210};
    for (int i = 0; i < TYPES; i++) {
        assert_int_equal(ls_block_row_bytes(all_types[i], 256), bytes[i]);
    }
    assert_string_equal(ls_block_name(LS_BLOCK_Q5_K), "Q5_K");
}

static void block_encode_q8_0_by_hand(void **state)
{
    (void)state;
    float x[32] = {127.0f, -63.5f, 1.5f, -1.5f, 0.4f};
    unsigned char out[34];
    ls_block_encode(LS_BLOCK_Q8_0, x, 32, out);
    assert_int_equal(out[0] | out[1] << 8, 0x3c00); /* d = 1 */
    assert_int_equal((int8_t)out[2], 127);
    assert_int_equal((int8_t)out[3], -64); /* halves away from zero */
    assert_int_equal((int8_t)out[4], 2);
    assert_int_equal((int8_t)out[5], -2);
    assert_int_equal((int8_t)out[6], 0);
}

static void block_encode_q5_by_hand(void **state)
{
    (void)state;
    float x[32] = {-16.0f, 15.0f, 1.0f};
    unsigned char out[24];
    ls_block_encode(LS_BLOCK_Q5_0, x, 32, out);
    assert_float_equal(half_at(out), 1.0f, 0.0f);
    assert_int_equal(read_five(out + 2, out + 6, 0), 0);
    assert_int_equal(read_five(out + 2, out + 6, 1), 31);
    assert_int_equal(read_five(out + 2, out + 6, 2), 17);
    for (int i = 0; i < 32; i++) {
        x[i] = 2.0f + 0.5f * (float)i;
    }
    ls_block_encode(LS_BLOCK_Q5_1, x, 32, out);
    assert_float_equal(half_at(out), 0.5f, 0.0f);
    assert_float_equal(half_at(out + 2), 2.0f, 0.0f);
    assert_int_equal(read_five(out + 4, out + 8, 31), 31);
}

static void block_encode_simple_types_have_the_bytes_of_the_definition(void **state)
{
    (void)state;
    static const struct {
        ls_block_type type;
        const char *hash;
    } known[] = {
        {LS_BLOCK_F16, "83138d2890fc21e5cf57eeff1bfc331e67058bbdc8628e1c72581bddf4a7f6d9"},
        {LS_BLOCK_BF16, "965152e57944abcbf6676a2c8d3f0852547095cc80ea5f017439f7062844e4d6"},
        {LS_BLOCK_Q8_0, "8ccea339172516116493ad4aa6688bdf25e6abe530a47d0df43fca51756539aa"},
        {LS_BLOCK_Q5_0, "71aaee08e6fea1d31b1395af69ff79b34f06cf357550138d71c3758508bf7f20"},
        {LS_BLOCK_Q5_1, "3d7846aa9f053af6ccb6cdadfa9e97d635e7e4235f41da032a51362e4d120a17"},
    };
    float *x = draw(CUBES);
    unsigned char *out = malloc(NUMBERS * 4);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char hash[LS_SHA256_HEX_BYTES];
        ls_block_encode(known[i].type, x, NUMBERS, out);
        ls_sha256_hex(out, ls_block_row_bytes(known[i].type, NUMBERS), hash);
        assert_string_equal(hash, known[i].hash);
    }
    free(out);
    free(x);
}

/* At most a thousandth above the squared error of ggml; the search should be below it. */
static void block_encode_k_types_err_no_more_than_ggml(void **state)
{
    (void)state;
    static const struct {
        ls_block_type type;
        double errors[3];
    } known[] = {
        {LS_BLOCK_Q4_K, {16.1490695, 11.9689893, 1.00152775}},
        {LS_BLOCK_Q5_K, {4.1165939, 3.20593247, 0.251967885}},
        {LS_BLOCK_Q6_K, {0.949468846, 0.705804673, 0.130099768}},
    };
    for (int kind = UNIFORM; kind <= SHIFTED; kind++) {
        float *x = draw(kind);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            const double error = squared_error(known[i].type, x, NUMBERS);
            assert_true(error > 0.5 * known[i].errors[kind]); /* the reader reads */
            assert_true(error <= 1.001 * known[i].errors[kind]);
        }
        free(x);
    }
}

/* Numbers that a block can hold are found: scales 1, 63 and between, minima 0 and 63, all codes. */
static void block_encode_k_types_find_exact_blocks(void **state)
{
    (void)state;
    float x[256];
    double size = 0.0;
    for (int i = 0; i < 256; i++) {
        const int part = i / 32, scale = 7 + 8 * part, low = part % 2 ? 64 - part : 0;
        x[i] = 0.125f * (float)scale * (float)(i % 16) - 0.5f * (float)low;
        size += (double)(x[i] * x[i]);
    }
    assert_true(squared_error(LS_BLOCK_Q4_K, x, 256) < 1e-9 * size);
    for (int i = 0; i < 256; i++) {
        const int scale = i / 16 == 3 ? -128 : 40 + 5 * (i / 16);
        x[i] = 0.25f * (float)scale * (float)(i % 16 == 0 ? -32 : 4 * (i % 16) - 29);
        size += (double)(x[i] * x[i]);
    }
    assert_true(squared_error(LS_BLOCK_Q6_K, x, 256) < 1e-9 * size);
}

static void block_encode_takes_all_finite_numbers(void **state)
{
    (void)state;
    const float sizes[] = {0.0f, 1e-45f, 1e-38f, 1e-30f, 1e-7f, 1.0f, 6e4f};
    const float *u = draw(UNIFORM);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        for (int shape = 0; shape < 4; shape++) {
            float x[256];
            double squares = 0.0;
            for (int i = 0; i < 256; i++) {
                /* all signs; one sign; all equal; one number alone */
                const float v = shape == 0 ? u[i] : shape == 1 ? -fabsf(u[i]) : shape == 2 ? 1.0f : i == 77;
                x[i] = v * sizes[k];
                squares += (double)x[i] * (double)x[i];
            }
            for (int i = 0; i < TYPES; i++) {
                /* No worse than zeros, but for the steps of a float16 near 0. */
                const double error = squared_error(all_types[i], x, 256);
                assert_true(isfinite(error) && error <= squares + 256 * 1e-13);
            }
        }
    }
    free((void *)(uintptr_t)u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_row_bytes_are_those_of_the_format),
        cmocka_unit_test(block_encode_q8_0_by_hand),
        cmocka_unit_test(block_encode_q5_by_hand),
        cmocka_unit_test(block_encode_simple_types_have_the_bytes_of_the_definition),
        cmocka_unit_test(block_encode_k_types_err_no_more_than_ggml),
        cmocka_unit_test(block_encode_k_types_find_exact_blocks),
        cmocka_unit_test(block_encode_takes_all_finite_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
