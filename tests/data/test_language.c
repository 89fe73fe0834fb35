// SPDX-License-Identifier: Apache-2.0
/*
 * Models of fastText: hand-worked ones, and those of tests/fuzz/corpus/fasttext, which fastText
 * 0.9.2 trained, with the answers of its predict-prob. bench/language_peer.py compares many more.
 */
#include "data/scratch.h"

#include "base/text.h"
#include "data/language/language.h"

#include <math.h>

typedef struct made {
    int32_t version, model, loss, labels;
    bool has_codes;
    int8_t kind; /* of the last label */
} made;

static const made PLAIN = {.version = 12, .model = 3, .loss = 3, .labels = 2, .kind = 1};

static void put_i32(ls_text *t, int32_t value)
{
    ls_text_append_bytes(t, &value, sizeof value);
}

static void put_i64(ls_text *t, int64_t value)
{
    ls_text_append_bytes(t, &value, sizeof value);
}

static void put_floats(ls_text *t, const float *values, size_t count)
{
    ls_text_append_bytes(t, values, count * sizeof *values);
}

static void put_entry(ls_text *t, const char *word, int64_t count, int8_t kind)
{
    ls_text_append_bytes(t, word, strlen(word) + 1);
    put_i64(t, count);
    ls_text_append_bytes(t, &kind, 1);
}

/* Rows (0, 0) of "</s>" and (2, -4) of "cat", as codes: centroid 5 is (1, -2), norm 7 is 2. */
static void put_codes(ls_text *t)
{
    float centroids[512] = {[10] = 1, [11] = -2}, norms[256] = {[7] = 2};
    ls_text_append_bytes(t, "\1\1", 2);
    put_i64(t, 2);
    put_i64(t, 2);
    put_i32(t, 2);
    ls_text_append_bytes(t, "\0\5", 2);
    const int32_t quantiser[4] = {2, 1, 2, 2}, of_norms[4] = {1, 1, 1, 1};
    ls_text_append_bytes(t, quantiser, sizeof quantiser);
    put_floats(t, centroids, 512);
    ls_text_append_bytes(t, "\0\7", 2);
    ls_text_append_bytes(t, of_norms, sizeof of_norms);
    put_floats(t, norms, 256);
}

static void make(const made *m, ls_text *t)
{
    const int32_t settings[] = {793712314, m->version, 2, 5, 5, 1, 5, 1, m->loss, m->model, 0, 0, 0, 100};
    const double sampling = 1e-4;
    const float input[] = {0, 0, 2, -4}, output[] = {1, 0, 0, 1};
    ls_text_clear(t);
    ls_text_append_bytes(t, settings, sizeof settings);
    ls_text_append_bytes(t, &sampling, sizeof sampling);
    put_i32(t, 2 + m->labels);
    put_i32(t, 2);
    put_i32(t, m->labels);
    put_i64(t, 9);
    put_i64(t, -1);
    put_entry(t, "</s>", 5, 0);
    put_entry(t, "cat", 4, 0);
    put_entry(t, "__label__en", 3, 1);
    put_entry(t, "__label__fr", 2, m->kind);
    if (m->has_codes) {
        put_codes(t);
    } else {
        ls_text_append_bytes(t, "\0", 1);
        put_i64(t, 2);
        put_i64(t, 2);
        put_floats(t, input, 4);
    }
    ls_text_append_bytes(t, "\0", 1);
    put_i64(t, 2);
    put_i64(t, 2);
    put_floats(t, output, 4);
}

static void assert_language(const ls_language_model *model, const char *text, const char *label,
                            double probability, double within)
{
    ls_language language = {0};
    ls_language_predict(model, text, strlen(text), &language);
    assert_string_equal(language.label, label);
    if (!(fabs(language.probability - probability) <= within)) {
        fail_msg("%s: %.7f, not %.7f", text, language.probability, probability);
    }
}

static void language_predicts_hand_worked(void **state)
{
    scratch *s = *state;
    ls_text t = {0};
    /* "cat" and the end of the line: hidden is (1, -2), so that en gets 1 and fr -2. The tree's
     * root has en on its right, and the row of en. */
    static const struct {
        int32_t loss;
        bool has_codes;
        double cat, nothing;
    } cases[] = {{3, false, 0.9525741, 0.5},
                 {3, true, 0.9525741, 0.5},
                 {1, false, 0.7310586, 0.5},
                 {4, true, 0.7310586, 0.5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        made m = PLAIN;
        m.loss = cases[i].loss;
        m.has_codes = cases[i].has_codes;
        make(&m, &t);
        ls_language_model *model = NULL;
        assert_int_equal(ls_language_open(scratch_write(s, "m.bin", t.data, t.bytes), &model), LS_OK);
        assert_language(model, "cat", "en", cases[i].cat + 1e-5, 2e-7);
        assert_language(model, "\tcat\n</s> cat cat", "en", cases[i].cat + 1e-5, 2e-7);
        /* Labels in a text are no words. */
        assert_language(model, "__label__fr __label__x cat", "en", cases[i].cat + 1e-5, 2e-7);
        if (m.loss == 3) {
            assert_language(model, "cats", "en", 0.5 + 1e-5, 2e-7);
        }
        assert_true(ls_language_knows(model, "fr") && ls_language_knows(model, "__label__en"));
        assert_false(ls_language_knows(model, "cat") || ls_language_knows(model, ""));
        ls_language_close(model);
    }
    ls_text_release(&t);
}

static void language_predicts_as_fasttext(void **state)
{
    (void)state;
    static const char *const texts[] = {"the cat", "un chien et le chat", "der Katzen Hund",
                                        "something else"};
    static const struct {
        const char *name, *labels[4];
        double probabilities[4];
    } models[] = {
        {"each", {"en", "de", "en", "en"}, {1, 0.622469, 0.637041, 1}},
        {"softmax", {"en", "fr", "de", "en"}, {0.999888, 0.996556, 0.958229, 0.97054}},
        {"tree", {"en", "fr", "de", "de"}, {0.97697, 0.985097, 0.946913, 0.973776}},
        {"pruned", {"en", "fr", "de", "de"}, {0.984293, 0.997072, 0.983618, 0.445386}},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[512];
        ls_language_model *model = NULL;
        snprintf(path, sizeof path, LS_SOURCE_DIR "/tests/fuzz/corpus/fasttext/%s", models[i].name);
        assert_int_equal(ls_language_open(path, &model), LS_OK);
        for (size_t k = 0; k < 4; k++) {
            assert_language(model, texts[k], models[i].labels[k], models[i].probabilities[k], 1e-6);
        }
        ls_language_close(model);
    }
}

static void assert_refused(scratch *s, const ls_text *t, size_t bytes, ls_status wanted, const char *part)
{
    ls_language_model *model = NULL;
    const char *path = scratch_write(s, "bad.bin", t->data, bytes);
    assert_int_equal(ls_language_open(path, &model), wanted);
    assert_null(model);
    assert_error_has("bad.bin");
    assert_error_has(part);
}

static void language_open_refuses(void **state)
{
    scratch *s = *state;
    ls_text t = {0};
    ls_language_model *model = NULL;
    assert_int_equal(ls_language_open("/nowhere/lid.bin", &model), LS_ERR_NOT_FOUND);
    static const struct {
        made m;
        ls_status status;
        const char *part;
    } cases[] = {
        {{13, 3, 3, 2, false, 1}, LS_ERR_UNSUPPORTED, "version 13"},
        {{12, 1, 3, 2, false, 1}, LS_ERR_UNSUPPORTED, "word vectors"},
        {{12, 3, 5, 2, false, 1}, LS_ERR_DATA, "loss"},
        {{12, 3, 3, 200, false, 1}, LS_ERR_DATA, "numbers of words and labels"},
        {{12, 3, 3, 2, false, 0}, LS_ERR_DATA, "words, then labels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make(&cases[i].m, &t);
        assert_refused(s, &t, t.bytes, cases[i].status, cases[i].part);
    }
    make(&PLAIN, &t);
    ls_text_append(&t, "x");
    assert_refused(s, &t, t.bytes, LS_ERR_DATA, "follows its end");
    for (size_t bytes = 1; bytes < t.bytes - 1; bytes++) {
        assert_refused(s, &t, bytes, LS_ERR_DATA, "");
    }
    ls_text_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(language_predicts_hand_worked, scratch_setup, scratch_teardown),
        cmocka_unit_test(language_predicts_as_fasttext),
        cmocka_unit_test_setup_teardown(language_open_refuses, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
