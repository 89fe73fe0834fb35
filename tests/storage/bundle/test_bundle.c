// SPDX-License-Identifier: Apache-2.0
/* Bundles: signatures of ours and of minisign, archives with long files, names. */
#include "base/file.h"
#include "storage/bundle/bundle.h"
#include "storage/bundle/tar.h"
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Made by minisign 0.10 from the file "abc\n", with both forms of signatures. */
static const char minisign_key[] =
    "untrusted comment: minisign public key\nRWTEi30OC0vpDkuMFtXV3cGqkITgH3gZhXiV/YiAxkKxn4/liJZeyloG\n";
static const char minisign_hashed[] =
    "untrusted comment: signature from minisign secret key\n"
    "RUTEi30OC0vpDrg3O8HXTojIPWbVY177//BikMBflWEBNvfceTl+jH8HP1bthGdxYS3jcj08l44v0ZcsDOBnXFxq0afECqAf7gY=\n"
    "trusted comment: a trusted comment\n"
    "o/V/y9FIYwRu8BIf8LOhx1FZ8zzmSR5sxlxz8usm224+8MiNswmo7bdroM/sZYm65NYlB3YHUhinCF7SEa0CCw==\n";
static const char minisign_plain[] =
    "untrusted comment: signature from minisign secret key\n"
    "RWTEi30OC0vpDlz3838q+gKDoPDKH+PnZw/hHviwsT3Llcb/+q+S/Cf29HCUABonvYaC6EuiBEwvjv7JykSD+fGKdCi4DMPkYQc=\n"
    "trusted comment: a trusted comment\n"
    "2MrsWttQ9OZXLglYYdObc1L11jtbxgJznloGHgDbgQI7C9omjUMzs1mzdiWj6FTaB9lpLi0ilrIJcqrY24baCw==\n";
/* A key of this test alone. */
static const char private_pem[] = "-----BEGIN PRIVATE KEY-----\n"
                                  "MC4CAQAwBQYDK2VwBCIEIMsFlTGLa02ZZmg/VGvmAorgroT2PJBBBZKLd2T/lG39\n"
                                  "-----END PRIVATE KEY-----\n";

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-bundle-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

static const char *place(ls_arena *arena, const char *name, const char *text)
{
    const char *path = ls_path_join(arena, folder, name);
    assert_int_equal(ls_file_write_atomic(path, text, strlen(text)), LS_OK);
    return path;
}

static void signature_check_of_minisign(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_public_key key;
    ls_signature s;
    const char *const texts[] = {minisign_hashed, minisign_plain};
    assert_int_equal(ls_public_key_load(place(&arena, "key.pub", minisign_key), &key), LS_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ls_signature_parse(texts[i], strlen(texts[i]), "s", &s), LS_OK);
        assert_int_equal(s.of_digest, i == 0);
        assert_int_equal(ls_signature_check(&s, &key, "abc\n", 4), LS_OK);
        assert_int_equal(ls_signature_check(&s, &key, "abd\n", 4), LS_ERR_DATA);
        assert_int_equal(ls_signature_check(&s, &key, "abc\n", 3), LS_ERR_DATA);
        s.comment[0] ^= 1;
        assert_int_equal(ls_signature_check(&s, &key, "abc\n", 4), LS_ERR_DATA);
        assert_non_null(strstr(ls_error_text(), "comment"));
        s.comment[0] ^= 1;
        key.name[0] ^= 1;
        assert_int_equal(ls_signature_check(&s, &key, "abc\n", 4), LS_ERR_DATA);
        key.name[0] ^= 1;
        key.bytes[0] ^= 1;
        assert_int_equal(ls_signature_check(&s, &key, "abc\n", 4), LS_ERR_DATA);
        key.bytes[0] ^= 1;
    }
    ls_arena_release(&arena);
}

/* Every byte of a signature's file counts, but for the comment that nobody signs and line ends. */
static void signature_make_each_byte_counts(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_signing_key *key = NULL;
    ls_public_key public;
    ls_signature s;
    ls_text text = {0};
    assert_int_equal(ls_signing_key_open(place(&arena, "key.pem", private_pem), &key), LS_OK);
    ls_signing_key_public(key, &public);
    assert_int_equal(ls_signature_make(key, "abc\n", 4, "a comment", &text), LS_OK);
    assert_int_equal(ls_signature_parse(text.data, text.bytes, "s", &s), LS_OK);
    assert_string_equal(s.comment, "a comment");
    assert_int_equal(ls_signature_check(&s, &public, "abc\n", 4), LS_OK);
    for (size_t i = strcspn(text.data, "\n") + 1 + 14; i < text.bytes; i++) {
        const char was = text.data[i];
        text.data[i] = was == 'A' ? 'Q' : 'A';
        const bool good = was != '\n' && was != '=' &&
                          ls_signature_parse(text.data, text.bytes, "s", &s) == LS_OK &&
                          ls_signature_check(&s, &public, "abc\n", 4) == LS_OK;
        assert_false(good);
        text.data[i] = was;
    }
    for (size_t i = 0; i < text.bytes - 1; i++) {
        assert_int_equal(ls_signature_parse(text.data, i, "s", &s), LS_ERR_DATA);
    }
    ls_text_release(&text);
    ls_signing_key_close(key);
    ls_arena_release(&arena);
}

/* Lengths around the end of what eight octal digits hold. */
static void tar_begin_lengths(void **state)
{
    (void)state;
    const uint64_t lengths[] = {0, 511, (UINT64_C(1) << 33) - 1, UINT64_C(1) << 33, UINT64_C(1) << 50};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        ls_tar_writer *writer = NULL;
        ls_tar_reader *reader = NULL;
        const char *name = NULL;
        uint64_t bytes = 0;
        const int fd = open(folder, O_TMPFILE | O_RDWR, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ls_tar_create(fd, "x", false, &writer), LS_OK);
        assert_int_equal(ls_tar_begin(writer, "a/b", lengths[i]), LS_OK);
        ls_tar_destroy(writer);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(ls_tar_open(fd, "x", &reader), LS_OK);
        assert_int_equal(ls_tar_next(reader, &name, &bytes), LS_OK);
        assert_string_equal(name, "a/b");
        assert_int_equal(bytes, lengths[i]);
        assert_int_equal(ls_tar_next(reader, &name, &bytes), LS_ERR_DATA);
        assert_non_null(strstr(ls_error_text(), "truncated"));
        ls_tar_close(reader);
        close(fd);
    }
}

static void bundle_check_name_cases(void **state)
{
    (void)state;
    const char *const good[] = {"a", "run/run.yaml", "...", ".a", "a b/\xc3\xa9"};
    const char *const bad[] = {"",     "/",    "/a",    "a/",   "a//b", ".",          "..",
                               "a/..", "../a", "a/./b", "a\\b", "a\nb", "BUNDLE.json"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(ls_bundle_check_name(good[i]), LS_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_bundle_check_name(bad[i]), LS_ERR_INVALID);
    }
}

static void bundle_pack_file_that_changes(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_bundle_file file = {.name = "a", .path = place(&arena, "source", "one")};
    ls_bundle bundle = {.about = json_object(), .files = &file, .count = 1};
    assert_int_equal(ls_bundle_measure(&bundle), LS_OK);
    for (int longer = 0; longer < 2; longer++) {
        place(&arena, "source", longer ? "four" : "two");
        for (int archive = 0; archive < 2; archive++) {
            const char *path = ls_path_join(&arena, folder, archive ? "x.tar.zst" : "x");
            assert_int_equal(ls_bundle_pack(&bundle, path, NULL), LS_ERR_DATA);
            assert_non_null(strstr(ls_error_text(), "has changed while it was packed"));
            assert_false(ls_path_exists(path));
        }
    }
    json_decref(bundle.about);
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(signature_check_of_minisign, set_up, tear_down),
        cmocka_unit_test_setup_teardown(signature_make_each_byte_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tar_begin_lengths, set_up, tear_down),
        cmocka_unit_test(bundle_check_name_cases),
        cmocka_unit_test_setup_teardown(bundle_pack_file_that_changes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
