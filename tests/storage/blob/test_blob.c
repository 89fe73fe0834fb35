// SPDX-License-Identifier: Apache-2.0
/*
 * Signatures against the examples that AWS publishes (Amazon S3 API reference, "Signature
 * Calculations for the Authorization Header"; AWS SigV4 test suite), the XML walk, files of
 * profiles, and blobs in a folder. A server is in tests/cli/data/blob.test.sh.
 */
#include "test.h"

#include "base/file.h"
#include "storage/blob/blob.h"
#include "storage/blob/credentials.h"
#include "storage/blob/sigv4.h"
#include "storage/blob/xml.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EMPTY        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- signatures ---- */

static void check_signature(const ls_sigv4_request *request, const char *id, const char *secret,
                            const char *wanted)
{
    ls_sigv4_key key;
    ls_text text = {0};
    ls_sigv4_derive(secret, request->time, request->region, request->service, &key);
    ls_sigv4_append_authorization(request, id, &key, &text);
    const char *signature = strstr(ls_text_string(&text), "Signature=");
    assert_non_null(signature);
    assert_string_equal(signature + strlen("Signature="), wanted);
    ls_text_release(&text);
}

static void check_s3(const char *method, const char *path, const char *query, const ls_sigv4_header *headers,
                     size_t count, const char *payload, const char *wanted)
{
    ls_sigv4_header all[8] = {{"host", "examplebucket.s3.amazonaws.com"},
                              {"x-amz-date", "20130524T000000Z"},
                              {"x-amz-content-sha256", payload}};
    for (size_t i = 0; i < count; i++) {
        all[3 + i] = headers[i];
    }
    const ls_sigv4_request request = {.method = method,
                                      .path = path,
                                      .query = query,
                                      .headers = all,
                                      .header_count = 3 + count,
                                      .payload_sha256 = payload,
                                      .time = "20130524T000000Z",
                                      .region = "us-east-1",
                                      .service = "s3"};
    check_signature(&request, "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", wanted);
}

static void sigv4_sign_s3_examples(void **state)
{
    (void)state;
    const ls_sigv4_header range = {"range", "bytes=0-9"};
    check_s3("GET", "/test.txt", "", &range, 1, EMPTY,
             "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    const ls_sigv4_header put[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                   {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    char payload[LS_SHA256_HEX_BYTES];
    ls_sha256_hex("Welcome to Amazon S3.", 21, payload);
    check_s3("PUT", "/test%24file.text", "", put, 2, payload,
             "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    check_s3("GET", "/", "lifecycle=", NULL, 0, EMPTY,
             "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    ls_sigv4_header list[] = {{"prefix", "J"}, {"max-keys", "2"}};
    ls_text query = {0};
    ls_sigv4_append_query(&query, list, COUNT(list));
    check_s3("GET", "/", ls_text_string(&query), NULL, 0, EMPTY,
             "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    ls_text_release(&query);
}

static void sigv4_sign_suite(void **state)
{
    (void)state;
    const ls_sigv4_header headers[] = {{"x-amz-date", "20150830T123600Z"}, {"host", "example.amazonaws.com"}};
    ls_sigv4_request request = {.method = "GET",
                                .path = "/",
                                .query = "",
                                .headers = headers,
                                .header_count = 2,
                                .payload_sha256 = EMPTY,
                                .time = "20150830T123600Z",
                                .region = "us-east-1",
                                .service = "service"};
    const char *secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    check_signature(&request, "AKIDEXAMPLE", secret,
                    "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    request.query = "Param1=value1&Param2=value2";
    check_signature(&request, "AKIDEXAMPLE", secret,
                    "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

static void sigv4_encode_and_time(void **state)
{
    (void)state;
    ls_text text = {0};
    ls_sigv4_append_encoded(&text, "a b+c/=~\xc3\xa4", false);
    assert_string_equal(ls_text_string(&text), "a%20b%2Bc%2F%3D~%C3%A4");
    ls_text_clear(&text);
    ls_sigv4_append_encoded(&text, "a/b c", true);
    assert_string_equal(ls_text_string(&text), "a/b%20c");
    ls_text_release(&text);
    char time[LS_SIGV4_TIME_BYTES];
    ls_sigv4_time(1369353600.9, time);
    assert_string_equal(time, "20130524T000000Z");
    ls_sigv4_time(-1.0, time);
    assert_string_equal(time, "19700101T000000Z");
    assert_true(ls_aws_time_parse("2013-05-24T00:00:00Z") == 1369353600.0);
    assert_true(ls_aws_time_parse("2013-05-24T00:00:00.000Z") == 1369353600.0);
    assert_true(ls_aws_time_parse("2013-05-24") == 0.0 && ls_aws_time_parse("") == 0.0);
}

/* ---- XML ---- */

static ls_status gather(void *context, const char *name, const char *text)
{
    ls_text_printf(context, "%s=%s;", name, text);
    return LS_OK;
}

static void check_xml(const char *xml, const char *wanted)
{
    ls_text text = {0};
    const ls_status status = ls_xml_walk(xml, strlen(xml), "the answer", gather, &text);
    if (wanted) {
        assert_int_equal(status, LS_OK);
        assert_string_equal(ls_text_string(&text), wanted);
    } else {
        assert_int_equal(status, LS_ERR_DATA);
        assert_non_null(strstr(ls_error_text(), "the answer is not the XML of an object store"));
    }
    ls_text_release(&text);
}

static void xml_walk_cases(void **state)
{
    (void)state;
    check_xml("<?xml version='1.0'?>\n<A x='1'><B>b&amp;&#65;&#x263a;</B><!-- > --><C/></A>\n",
              "B=b&A\xe2\x98\xba;C=;A=;");
    static const char *const bad[] = {"",
                                      "text",
                                      "<A>",
                                      "<A></B>",
                                      "<A></A><B></B>",
                                      "<A>&no;</A>",
                                      "<A>&#0;</A>",
                                      "<A>&#1114112;</A>",
                                      "<!DOCTYPE a><A/>",
                                      "<A",
                                      "</A>",
                                      "< A></A>",
                                      "<A>&#x;</A>",
                                      "<A><![CDATA[x]]></A>",
                                      "<A>&#-1;</A>",
                                      "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        check_xml(bad[i], NULL);
    }
}

/* ---- profiles ---- */

static void profile_value_cases(void **state)
{
    (void)state;
    static const char text[] =
        "# a comment\n[default]\nregion = eu-west-1 \n  nested = 1\n\n[profile a]\nregion=x\n"
        "s3 =\n  region = y\nlast = z";
    struct {
        const char *section, *key, *wanted;
    } cases[] = {{"default", "region", "eu-west-1"}, {"profile a", "region", "x"}, {"profile a", "last", "z"},
                 {"default", "nested", NULL},        {"b", "region", NULL},        {"default", "last", NULL}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *value = ls_aws_profile_value(text, cases[i].section, cases[i].key);
        if (cases[i].wanted) {
            assert_non_null(value);
            assert_string_equal(value, cases[i].wanted);
        } else {
            assert_null(value);
        }
        free(value);
    }
}

/* ---- keys and addresses ---- */

static void blob_check_key_cases(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "a/b.c", "...", "..a/b..", "\xc3\xa4 +=&"};
    static const char *const bad[] = {"",     "/a",     "a/",  "a//b", ".",   "..",
                                      "../a", "a/../b", "a/.", "a\nb", "a\\b"};
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(ls_blob_check_key(good[i]), LS_OK);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(ls_blob_check_key(bad[i]), LS_ERR_INVALID);
    }
    char deep[LS_BLOB_KEY_BYTES_MAX + 2];
    memset(deep, 'a', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(ls_blob_check_key(deep), LS_ERR_INVALID);
}

static void blob_open_bad_addresses(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hidden-secret", 1);
    struct {
        const char *address, *endpoint, *says;
    } cases[] = {{"", NULL, "not the address"},
                 {"ftp://x", NULL, "s3:// or in a folder"},
                 {"s3://", NULL, "3 to 63"},
                 {"s3://No", NULL, "3 to 63"},
                 {"s3://bucket/a/../b", NULL, ". or .."},
                 {"s3://bucket", "host:80", "http://HOST:PORT"},
                 {"s3://bucket", "http://user:word@host", "http://HOST:PORT"},
                 {"s3://bucket", "http://host/path", "http://HOST:PORT"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        ls_blob_store *store = NULL;
        const ls_blob_options options = {.endpoint = cases[i].endpoint};
        assert_int_equal(ls_blob_open(cases[i].address, &options, &store), LS_ERR_INVALID);
        assert_null(store);
        assert_non_null(strstr(ls_error_text(), cases[i].says));
        assert_null(strstr(ls_error_text(), "hidden"));
        assert_null(strstr(ls_error_text(), "user:word"));
    }
}

/* ---- a folder ---- */

typedef struct place {
    char path[64];
    ls_blob_store *store;
    ls_arena arena;
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    snprintf(p->path, sizeof p->path, "/tmp/ls-blob-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    assert_int_equal(ls_blob_open(p->path, NULL, &p->store), LS_OK);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    ls_blob_close(p->store);
    assert_int_equal(ls_dir_remove(p->path), LS_OK);
    ls_arena_release(&p->arena);
    free(p);
    return 0;
}

static void folder_put_get_remove(void **state)
{
    place *p = *state;
    char *data = NULL;
    size_t bytes = 0;
    bool stored = true;
    assert_int_equal(ls_blob_get(p->store, &p->arena, "a/b", 10, &data, &bytes), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_blob_put(p->store, "a/b", "hello", 5), LS_OK);
    assert_int_equal(ls_blob_put_new(p->store, "a/b", "other", 5, &stored), LS_OK);
    assert_false(stored);
    assert_int_equal(ls_blob_put_new(p->store, "a/c", "other", 5, &stored), LS_OK);
    assert_true(stored);
    assert_int_equal(ls_blob_get(p->store, &p->arena, "a/b", 10, &data, &bytes), LS_OK);
    assert_int_equal(bytes, 5);
    assert_string_equal(data, "hello");
    assert_int_equal(ls_blob_get(p->store, &p->arena, "a/b", 4, &data, &bytes), LS_ERR_DATA);
    char part[3];
    assert_int_equal(ls_blob_read(p->store, "a/b", "", 2, part, 3), LS_OK);
    assert_memory_equal(part, "llo", 3);
    assert_int_equal(ls_blob_read(p->store, "a/b", "", 3, part, 3), LS_ERR_DATA);
    assert_int_equal(ls_blob_copy(p->store, "a/b", "d/e"), LS_OK);
    assert_int_equal(ls_blob_remove(p->store, "a/b"), LS_OK);
    assert_int_equal(ls_blob_remove(p->store, "a/b"), LS_OK);
    assert_int_equal(ls_blob_remove(p->store, "a/c"), LS_OK);
    assert_false(ls_path_exists(ls_path_join(&p->arena, p->path, "a")));
    assert_int_equal(ls_blob_put(p->store, "../x", "", 0), LS_ERR_INVALID);
}

/* In a folder of several users, a link might lead to what only the reader may read. */
static void folder_links_are_no_blobs(void **state)
{
    place *p = *state;
    char *data = NULL;
    size_t bytes = 0;
    ls_blob_entry entry;
    assert_int_equal(ls_blob_put(p->store, "a/b", "hello", 5), LS_OK);
    assert_int_equal(symlink("b", ls_path_join(&p->arena, p->path, "a/c")), 0);
    assert_int_equal(ls_blob_get(p->store, &p->arena, "a/c", 10, &data, &bytes), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "is a link"));
    assert_int_equal(ls_blob_stat(p->store, "a/c", &entry), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_blob_put(p->store, "a/c", "other", 5), LS_OK); /* replaces the link */
    assert_int_equal(ls_blob_get(p->store, &p->arena, "a/b", 10, &data, &bytes), LS_OK);
    assert_string_equal(data, "hello");
}

static void folder_list_and_abandon(void **state)
{
    place *p = *state;
    static const char *const keys[] = {"a/1", "a/2/x", "ab", "b"};
    ls_blob_entry *e = NULL;
    size_t count = 0;
    for (size_t i = 0; i < COUNT(keys); i++) {
        assert_int_equal(ls_blob_put(p->store, keys[i], "x", 1), LS_OK);
    }
    const char *left = ls_path_join(&p->arena, p->path, "a/.tmp-77");
    assert_int_equal(ls_file_write_atomic(left, "half", 4), LS_OK);
    assert_int_equal(ls_blob_list(p->store, &p->arena, "", true, &e, &count), LS_OK);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(e[i].key, keys[i]);
    }
    assert_int_equal(ls_blob_list(p->store, &p->arena, "a", false, &e, &count), LS_OK);
    assert_int_equal(count, 2);
    assert_true(e[0].is_folder && strcmp(e[0].key, "a/") == 0 && strcmp(e[1].key, "ab") == 0);
    assert_int_equal(ls_blob_list(p->store, &p->arena, "a/", false, &e, &count), LS_OK);
    assert_int_equal(count, 2);
    assert_string_equal(e[1].key, "a/2/");
    assert_int_equal(ls_blob_list(p->store, &p->arena, "../", true, &e, &count), LS_ERR_INVALID);
    assert_int_equal(ls_blob_abandon(p->store, "b"), LS_OK);
    assert_true(ls_path_exists(left));
    assert_int_equal(ls_blob_abandon(p->store, "a/"), LS_OK);
    assert_false(ls_path_exists(left));
}

static void folder_put_file_same_digest_sends_nothing(void **state)
{
    place *p = *state;
    const char *path = ls_path_join(&p->arena, p->path, "source");
    assert_int_equal(ls_file_write_atomic(path, "hello", 5), LS_OK);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char hex[LS_SHA256_HEX_BYTES];
    uint64_t sent = 0;
    ls_sha256_hex("hello", 5, hex);
    assert_int_equal(ls_blob_put_file(p->store, "x/y", fd, path, 5, hex, &sent), LS_OK);
    assert_int_equal(sent, 5);
    assert_int_equal(ls_blob_put_file(p->store, "x/y", fd, path, 5, hex, &sent), LS_OK);
    assert_int_equal(sent, 0);
    assert_int_equal(ls_blob_put(p->store, "x/y", "hellO", 5), LS_OK);
    assert_int_equal(ls_blob_put_file(p->store, "x/y", fd, path, 5, hex, &sent), LS_OK);
    assert_int_equal(sent, 5);
    close(fd);
    const char *back = ls_path_join(&p->arena, p->path, "back");
    ls_blob_entry entry;
    assert_int_equal(ls_blob_stat(p->store, "x/y", &entry), LS_OK);
    assert_int_equal(ls_blob_get_file(p->store, &entry, back), LS_OK);
    assert_int_equal(entry.bytes, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sigv4_sign_s3_examples),
        cmocka_unit_test(sigv4_sign_suite),
        cmocka_unit_test(sigv4_encode_and_time),
        cmocka_unit_test(xml_walk_cases),
        cmocka_unit_test(profile_value_cases),
        cmocka_unit_test(blob_check_key_cases),
        cmocka_unit_test(blob_open_bad_addresses),
        cmocka_unit_test_setup_teardown(folder_put_get_remove, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folder_links_are_no_blobs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folder_list_and_abandon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folder_put_file_same_digest_sends_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
