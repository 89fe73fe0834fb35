// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"
#include "base/yaml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ls_document parse(const char *text)
{
    ls_document doc = {0};
    const ls_status status = ls_yaml_parse(text, strlen(text), "a.yaml", &doc);
    if (status != LS_OK) {
        fail_msg("unexpected error: %s", ls_error_text());
    }
    return doc;
}

/* The text must be refused with an error that begins "a.yaml:LINE:" and contains `part`. */
static void refuse(const char *text, int line, const char *part)
{
    ls_document doc = {.name = "untouched"};
    assert_int_equal(ls_yaml_parse(text, strlen(text), "a.yaml", &doc), LS_ERR_INVALID);
    assert_string_equal(doc.name, "untouched");
    assert_null(doc.root);
    char start[32];
    snprintf(start, sizeof start, "a.yaml:%d: ", line);
    if (strncmp(ls_error_text(), start, strlen(start)) != 0 || !strstr(ls_error_text(), part)) {
        fail_msg("wanted \"%s...%s\", got: %s", start, part, ls_error_text());
    }
}

static void yaml_parse_follows_core_schema(void **state)
{
    (void)state;
    ls_document doc =
        parse("integer: 12\nminus: -3\nhex: 0x1f\noctal: 0o17\nreal: 1.0e-3\npoint: .5\nbare: 1e9\n"
              "yes: true\nno: False\nnone: ~\nempty:\nduration: 2h\nquoted: \"12\"\nsingle: 'true'\n"
              "norway: no\nsexagesimal: 1:30\nzero: 010\nblock: |\n  a\n  b\ndot: '.'\nsign: +\n");
    const json_t *root = doc.root;
    assert_int_equal(json_integer_value(json_object_get(root, "integer")), 12);
    assert_int_equal(json_integer_value(json_object_get(root, "minus")), -3);
    assert_int_equal(json_integer_value(json_object_get(root, "hex")), 31);
    assert_int_equal(json_integer_value(json_object_get(root, "octal")), 15);
    assert_int_equal(json_integer_value(json_object_get(root, "zero")), 10);
    assert_true(json_is_real(json_object_get(root, "real")));
    assert_true(json_real_value(json_object_get(root, "real")) == 1.0e-3);
    assert_true(json_real_value(json_object_get(root, "point")) == 0.5);
    assert_true(json_real_value(json_object_get(root, "bare")) == 1e9);
    assert_true(json_is_true(json_object_get(root, "yes")));
    assert_true(json_is_false(json_object_get(root, "no")));
    assert_true(json_is_null(json_object_get(root, "none")));
    assert_true(json_is_null(json_object_get(root, "empty")));
    assert_string_equal(json_string_value(json_object_get(root, "duration")), "2h");
    assert_string_equal(json_string_value(json_object_get(root, "quoted")), "12");
    assert_string_equal(json_string_value(json_object_get(root, "single")), "true");
    assert_string_equal(json_string_value(json_object_get(root, "norway")), "no");
    assert_string_equal(json_string_value(json_object_get(root, "sexagesimal")), "1:30");
    assert_string_equal(json_string_value(json_object_get(root, "block")), "a\nb\n");
    ls_document_release(&doc);
}

static void yaml_parse_remembers_lines(void **state)
{
    (void)state;
    ls_document doc =
        parse("# a comment\nname: x\ntrain:\n  steps: 3\n\n  schedule: {kind: cosine,\n    warmup: 2}\n"
              "data:\n  - a.txt\n  - path: b.txt\n    weight: 2\n");
    assert_int_equal(ls_document_line(&doc, "name"), 2);
    assert_int_equal(ls_document_line(&doc, "train"), 3);
    assert_int_equal(ls_document_line(&doc, "train.steps"), 4);
    assert_int_equal(ls_document_line(&doc, "train.schedule.kind"), 6);
    assert_int_equal(ls_document_line(&doc, "train.schedule.warmup"), 7);
    assert_int_equal(ls_document_line(&doc, "data.0"), 9);
    assert_int_equal(ls_document_line(&doc, "data.1.weight"), 11);
    assert_int_equal(ls_document_line(&doc, "data.2"), 0);
    assert_int_equal(ls_document_line(&doc, "train.step"), 0);
    assert_int_equal(ls_document_line(&doc, "name.x"), 0);
    ls_document_release(&doc);
}

static void yaml_parse_refuses_what_hides_mistakes(void **state)
{
    (void)state;
    refuse("a: 1\nb: 2\na: 3\n", 3, "key a is here twice, first on line 1");
    refuse("a: &x 1\nb: 2\n", 1, "anchors");
    refuse("a: {b: &x [1]}\n", 1, "anchors");
    refuse("a: 1\nb: !!str 2\n", 2, "tags");
    refuse("a: 1\n---\nb: 2\n", 2, "a second document");
    refuse("a: .nan\n", 1, "finite");
    refuse("a: 1e999\n", 1, "finite");
    refuse("a: 99999999999999999999\n", 1, "64 bits");
    refuse("[a]: 1\n", 1, "a key must be a plain word");
    refuse("a: \"x\\0y\"\n", 1, "zero byte");
    refuse("a: 1\n  b: 2\n", 1, "not valid YAML");
    refuse("a: [1, 2\n", 2, "not valid YAML");
    refuse("a: 1\nb: \"\xff\"\n", 2, "not valid UTF-8");
    refuse("a: \"\xed\xa0\x80\"\n", 1, "not valid UTF-8");
    refuse("a: \"\xc0\xaf\"\n", 1, "not valid UTF-8");
    refuse("a: 1\n%x\n", 2, "directives");
}

static void yaml_parse_alias_bomb_is_refused_at_once(void **state)
{
    (void)state;
    refuse("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", 1, "anchors");
    ls_document doc = {0};
    assert_int_equal(ls_yaml_parse("a: *b\n", 6, "a.yaml", &doc), LS_ERR_INVALID);
}

static void yaml_parse_depth_limit_is_exact(void **state)
{
    (void)state;
    ls_text text = {0};
    ls_text_repeat(&text, '[', LS_YAML_DEPTH);
    ls_text_repeat(&text, ']', LS_YAML_DEPTH);
    ls_document doc = parse(ls_text_string(&text));
    ls_document_release(&doc);
    ls_text_clear(&text);
    ls_text_repeat(&text, '[', LS_YAML_DEPTH + 1);
    ls_text_repeat(&text, ']', LS_YAML_DEPTH + 1);
    refuse(ls_text_string(&text), 1, "more than 64 levels deep");
    ls_text_release(&text);
}

static void yaml_parse_refuses_empty_and_binary(void **state)
{
    (void)state;
    ls_document doc = {0};
    assert_int_equal(ls_yaml_parse("", 0, "a.yaml", &doc), LS_ERR_INVALID);
    assert_int_equal(ls_yaml_parse("# only a comment\n", 17, "a.yaml", &doc), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "empty"));
    assert_int_equal(ls_yaml_parse("a: 1\0", 5, "a.yaml", &doc), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "not a text file"));
    assert_int_equal(ls_yaml_load("/does/not/exist.yaml", &doc), LS_ERR_NOT_FOUND);
}

static void text_f64_round_trips(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.1, "0.1"}, {1.0e-8, "1e-08"}, {3.0, "3"}, {-0.25, "-0.25"}, {1.0 / 3.0, "0.3333333333333333"}};
    ls_text text = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_text_clear(&text);
        ls_text_append_f64(&text, cases[i].value);
        assert_string_equal(ls_text_string(&text), cases[i].text);
    }
    ls_text_clear(&text);
    ls_text_append_quoted(&text, "a\"b\\c\n\x01");
    assert_string_equal(ls_text_string(&text), "\"a\\\"b\\\\c\\n\\u0001\"");
    ls_text_clear(&text);
    ls_text_append_escaped(&text, "<a & \"b'>");
    assert_string_equal(ls_text_string(&text), "&lt;a &amp; &quot;b&#39;&gt;");
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_parse_follows_core_schema),
        cmocka_unit_test(yaml_parse_remembers_lines),
        cmocka_unit_test(yaml_parse_refuses_what_hides_mistakes),
        cmocka_unit_test(yaml_parse_alias_bomb_is_refused_at_once),
        cmocka_unit_test(yaml_parse_depth_limit_is_exact),
        cmocka_unit_test(yaml_parse_refuses_empty_and_binary),
        cmocka_unit_test(text_f64_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
