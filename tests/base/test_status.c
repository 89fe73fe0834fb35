// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/status.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void status_exit_code_follows_design(void **state)
{
    (void)state;
    assert_int_equal(ls_status_exit_code(LS_OK), 0);
    assert_int_equal(ls_status_exit_code(LS_ERR_IO), 1);
    assert_int_equal(ls_status_exit_code(LS_ERR_INVALID), 2);
    assert_int_equal(ls_status_exit_code(LS_ERR_DATA), 3);
    assert_int_equal(ls_status_exit_code(LS_ERR_DISK), 4);
    assert_int_equal(ls_status_exit_code(LS_ERR_RANKS_LOST), 5);
    assert_int_equal(ls_status_exit_code(LS_ERR_MISMATCH), 6);
    assert_int_equal(ls_status_exit_code(LS_STOPPED), 75);
    assert_int_equal(ls_status_exit_code(LS_INTERRUPTED), 130);
}

static void fail_within_prepends_context(void **state)
{
    (void)state;
    assert_int_equal(ls_fail(LS_ERR_DATA, "byte %d is bad", 7), LS_ERR_DATA);
    assert_int_equal(ls_fail_within(LS_ERR_DATA, "file %s", "x"), LS_ERR_DATA);
    assert_string_equal(ls_error_text(), "file x: byte 7 is bad");
    assert_int_equal(ls_fail_errno(ENOSPC, "can't write y"), LS_ERR_DISK);
    assert_non_null(strstr(ls_error_text(), "can't write y: "));
}

static void arena_alloc_is_zeroed_and_aligned(void **state)
{
    (void)state;
    ls_arena arena = {0};
    for (size_t bytes = 0; bytes < 100000; bytes = bytes * 3 + 1) {
        unsigned char *memory = ls_arena_alloc(&arena, bytes);
        assert_int_equal((uintptr_t)memory % 16, 0);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(memory[i], 0);
        }
        memset(memory, 0xff, bytes);
    }
    assert_string_equal(ls_arena_printf(&arena, "%d-%s", 12, "x"), "12-x");
    ls_arena_release(&arena);
}

static void random_at_known_answers(void **state)
{
    (void)state;
    /* Known-answer vectors of the Random123 distribution for philox4x32-10. */
    ls_random_block zero = ls_random_at((ls_random_key){{0, 0}}, 0, 0);
    assert_int_equal(zero.word[0], 0x6627e8d5u);
    assert_int_equal(zero.word[1], 0xe169c58du);
    assert_int_equal(zero.word[2], 0xbc57ac4cu);
    assert_int_equal(zero.word[3], 0x9b00dbd8u);
    ls_random_block ones = ls_random_at((ls_random_key){{0xffffffffu, 0xffffffffu}}, UINT64_MAX, UINT64_MAX);
    assert_int_equal(ones.word[0], 0x408f276du);
    assert_int_equal(ones.word[1], 0x41c83b0eu);
    assert_int_equal(ones.word[2], 0xa20bc7c6u);
    assert_int_equal(ones.word[3], 0x6d5451fdu);
}

static void random_normal_has_unit_variance(void **state)
{
    (void)state;
    const ls_random_key key = ls_random_stream(1, LS_RANDOM_TEST);
    const int count = 200000;
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < count; i++) {
        const double x = ls_random_normal(key, (uint64_t)i, 0);
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / count) < 0.01);
    assert_true(fabs(squares / count - 1.0) < 0.02);
    assert_true(ls_random_below(key, 3, 4, 1) == 0);
    float many[50];
    ls_random_normals(key, 3, 0, 50, many);
    for (int i = 0; i < 50; i++) {
        assert_true(many[i] == ls_random_normal(key, 3 + (uint64_t)i, 0));
    }
    /* The same words through the C library. */
    for (uint64_t i = 0; i < 1000; i++) {
        const ls_random_block block = ls_random_at(key, i, 5);
        const double u = ((double)block.word[2] + 1.0) * 0x1p-32, v = (double)block.word[3] * 0x1p-32;
        const double radius = sqrt(-2.0 * log(u)),
                     angle = 2.0 * 3.14159265358979324 * v - 3.14159265358979324;
        assert_true(fabs(ls_random_normal(key, 4 * i + 2, 5) - radius * cos(angle)) < 1e-6);
        assert_true(fabs(ls_random_normal(key, 4 * i + 3, 5) - radius * sin(angle)) < 1e-6);
    }
}

static void hash_known_answers(void **state)
{
    (void)state;
    char hex[LS_SHA256_HEX_BYTES];
    ls_sha256_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(ls_crc32c(0, "123456789", 9), 0xe3069283u);
    char hex128[LS_HASH128_HEX_BYTES];
    assert_string_equal(ls_hash128_hex(ls_xxh3_128("", 0), hex128), "99aa06d3014798d86001c324468d497f");
    assert_string_equal(ls_hash128_hex(ls_xxh3_128("abc", 3), hex128), "06b05ab6733a618578af5f94892f3950");
    static unsigned char data[40000];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 31 + (i >> 8));
    }
    const uint32_t whole = ls_crc32c(0, data, sizeof data);
    for (size_t cut = 1; cut < sizeof data; cut += 3333) {
        const uint32_t first = ls_crc32c(0, data, cut);
        assert_int_equal(ls_crc32c(first, data + cut, sizeof data - cut), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_exit_code_follows_design),   cmocka_unit_test(fail_within_prepends_context),
        cmocka_unit_test(arena_alloc_is_zeroed_and_aligned), cmocka_unit_test(random_at_known_answers),
        cmocka_unit_test(random_normal_has_unit_variance),   cmocka_unit_test(hash_known_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
