// SPDX-License-Identifier: Apache-2.0
/* SHA-256 against known digests and OpenSSL's, whatever pieces the data come in and whoever is
 * hashed beside them. */
#include "test.h"

#include "base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_BYTES = 5000 };
static unsigned char data[DATA_BYTES];

static void fill_data(void)
{
    uint32_t random = 1;
    for (int i = 0; i < DATA_BYTES; i++) {
        random = random * 1664525 + 1013904223;
        data[i] = (unsigned char)(random >> 24);
    }
}

static void expect_digest(const char *hex, const void *bytes, size_t count)
{
    unsigned char digest[LS_SHA256_BYTES];
    char expected[LS_SHA256_HEX_BYTES];
    assert_int_equal(EVP_Digest(bytes, count, digest, NULL, EVP_sha256(), NULL), 1);
    for (int i = 0; i < LS_SHA256_BYTES; i++) {
        snprintf(expected + 2 * i, 3, "%02x", digest[i]);
    }
    assert_string_equal(hex, expected);
}

static void sha256_known_digests(void **state)
{
    (void)state;
    char hex[LS_SHA256_HEX_BYTES];
    ls_sha256_hex("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    ls_sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* Every length around the borders of blocks, cut at every place. */
static void sha256_every_cut_gives_one_digest(void **state)
{
    (void)state;
    char hex[LS_SHA256_HEX_BYTES];
    for (size_t bytes = 0; bytes < 200; bytes++) {
        for (size_t cut = 0; cut <= bytes; cut++) {
            ls_sha256 hash, copy;
            ls_sha256_init(&hash);
            ls_sha256_update(&hash, data, cut);
            ls_sha256_copy(&copy, &hash);
            ls_sha256_update(&hash, data + cut, bytes - cut);
            ls_sha256_finish(&hash, hex);
            expect_digest(hex, data, bytes);
            ls_sha256_finish(&copy, hex);
            expect_digest(hex, data, cut);
        }
    }
}

static void sha256_two_streams_are_as_one_and_one(void **state)
{
    (void)state;
    char hex[LS_SHA256_HEX_BYTES];
    for (size_t i = 0; i < 400; i++) {
        /* bytes before, so that tails are full or not */
        const size_t begin_a = i * 7 % 130, begin_b = i * 13 % 190;
        const size_t bytes_a = i * 31 % 3000, bytes_b = i * 97 % 2500;
        ls_sha256 a, b;
        ls_sha256_init(&a);
        ls_sha256_init(&b);
        ls_sha256_update(&a, data, begin_a);
        ls_sha256_update(&b, data, begin_b);
        ls_sha256_update_two(&a, data + begin_a, bytes_a, &b, data + begin_b, bytes_b);
        ls_sha256_finish(&a, hex);
        expect_digest(hex, data, begin_a + bytes_a);
        ls_sha256_finish(&b, hex);
        expect_digest(hex, data, begin_b + bytes_b);
    }
}

int main(void)
{
    fill_data();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_known_digests),
        cmocka_unit_test(sha256_every_cut_gives_one_digest),
        cmocka_unit_test(sha256_two_streams_are_as_one_and_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
