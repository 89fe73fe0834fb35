// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/folded_words.h"
#include "data/preparation/normal_text.h"
#include "data/preparation/private_data.h"
#include "data/preparation/quality.h"
#include "data/preparation/raw_document.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ls_step step_of(ls_step_kind kind, ls_arena *arena)
{
    ls_step step = {.kind = kind};
    ls_options_defaults(ls_step_table(kind), &step, arena);
    return step;
}

static void tables_are_valid(void **state)
{
    (void)state;
    for (int kind = LS_STEP_READ; kind < LS_STEP_KINDS; kind++) {
        ls_options_check(ls_step_table((ls_step_kind)kind), sizeof(ls_step));
        assert_int_equal(ls_step_kind_find(ls_step_kind_name((ls_step_kind)kind)),
                         kind == LS_STEP_READ ? LS_STEP_KINDS : kind);
    }
}

/* ---- normalise ------------------------------------------------------------------------------- */

static void check_normal(const ls_step *step, const char *text, const char *expected)
{
    ls_step_scratch scratch = {0};
    ls_passage passage = {text, strlen(text)};
    assert_int_equal(ls_normal_text(step, &scratch, &passage), LS_OK);
    assert_int_equal(passage.bytes, strlen(expected));
    assert_memory_equal(passage.text, expected, passage.bytes);
    ls_scratch_release(&scratch);
}

static void normal_text_is_tidy(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_step step = step_of(LS_STEP_NORMALISE, &arena);
    check_normal(&step, "", "");
    check_normal(&step, "as it is\n\n  indented", "as it is\n\n  indented");
    check_normal(&step, "\xef\xbb\xbf a \x01\x7f b\r\nc \r\r\n\n\nd\t\t e  \n", "a b\nc\n\nd e");
    check_normal(&step,
                 "a\u00a0\u2003b\u2028c\xc2\x85"
                 "d",
                 "a b\nc\nd");
    check_normal(&step, "e\u0301 and a\u030a\u0323 \u2126", "\u00e9 and \u1ea1\u030a \u03a9");
    step.normalise.nfc = step.normalise.blanks = false;
    check_normal(&step, " a  b\r\n\r\n\r\ne\u0301\x02", " a  b\n\n\ne\u0301");
    ls_arena_release(&arena);
}

static void exact_hash_ignores_case_and_blanks(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_step_scratch scratch = {0};
    ls_step step = step_of(LS_STEP_DEDUP_EXACT, &arena);
    const ls_passage a = {"Some  Text\n", 11}, b = {" some text", 10}, c = {"some texts", 10};
    assert_true(ls_hash128_equal(ls_exact_hash(&step, &scratch, &a), ls_exact_hash(&step, &scratch, &b)));
    assert_false(ls_hash128_equal(ls_exact_hash(&step, &scratch, &b), ls_exact_hash(&step, &scratch, &c)));
    step.exact.normalised = false;
    assert_false(ls_hash128_equal(ls_exact_hash(&step, &scratch, &a), ls_exact_hash(&step, &scratch, &b)));
    ls_scratch_release(&scratch);
    ls_arena_release(&arena);
}

/* Texts are read eight bytes at a time: blanks before one shift it. */
static void results_do_not_depend_on_the_place(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_step_scratch first = {0}, scratch = {0};
    const ls_step exact = step_of(LS_STEP_DEDUP_EXACT, &arena), normal = step_of(LS_STEP_NORMALISE, &arena);
    const char *text = "A Commemoration,  of extraordinarily\n\nlong WORDS.  Caf\u00e9 isn't 3.5km at "
                       "counterrevolutionaries\u2026 \u4e2d\u6587 (end)";
    const ls_passage whole = {text, strlen(text)};
    const ls_hash128 hash = ls_exact_hash(&exact, &first, &whole);
    assert_int_equal(ls_scratch_words(&first, &whole), LS_OK);
    assert_int_equal(ls_fold_words(&first, text, whole.bytes), LS_OK);
    for (size_t shift = 1; shift < 17; shift++) {
        char moved[256] = "                ";
        strcpy(moved + shift, text);
        ls_passage passage = {moved, shift + whole.bytes};
        ls_scratch_begin(&scratch, shift);
        assert_true(ls_hash128_equal(ls_exact_hash(&exact, &scratch, &passage), hash));
        assert_int_equal(ls_scratch_words(&scratch, &passage), LS_OK);
        assert_int_equal(ls_fold_words(&scratch, moved, passage.bytes), LS_OK);
        assert_int_equal(scratch.words.count, first.words.count);
        for (size_t i = 0; i < first.words.count; i++) {
            assert_int_equal(scratch.words.items[i].hash, first.words.items[i].hash);
            assert_int_equal(scratch.words.items[i].at, first.words.items[i].at + shift);
        }
        assert_int_equal(scratch.folded_count, first.folded_count);
        assert_memory_equal(scratch.folded, first.folded, first.folded_count * sizeof *first.folded);
        assert_int_equal(ls_normal_text(&normal, &scratch, &passage), LS_OK);
        assert_int_equal(passage.bytes, whole.bytes - 2);
    }
    ls_scratch_release(&first);
    ls_scratch_release(&scratch);
    ls_arena_release(&arena);
}

/* ---- private data ---------------------------------------------------------------------------- */

static void check_mask(const char *text, const char *expected, uint64_t count)
{
    uint32_t kinds = 0;
    ls_arena arena = {0};
    ls_step_scratch scratch = {0};
    const ls_step step = step_of(LS_STEP_PII, &arena);
    ls_passage passage = {text, strlen(text)};
    assert_int_equal(ls_private_kinds(&step, "test", &kinds), LS_OK);
    assert_int_equal(ls_private_mask(kinds, &scratch, &passage), count);
    assert_int_equal(passage.bytes, strlen(expected));
    assert_memory_equal(passage.text, expected, passage.bytes);
    ls_scratch_release(&scratch);
    ls_arena_release(&arena);
}

static void private_data_is_masked(void **state)
{
    (void)state;
    check_mask("Mail ada.l+x@mail.example.org.", "Mail [MAIL].", 1);
    check_mask("a@b, @name, x@y.z1", "a@b, @name, x@y.z1", 0);
    check_mask("+49 30 123456, (212) 555-0100, 212.555.0100", "[PHONE], [PHONE], [PHONE]", 3);
    check_mask("in 2019-2021 1000000 people, v1.2.3.4.5, +5", "in 2019-2021 1000000 people, v1.2.3.4.5, +5",
               0);
    check_mask("4111-1111-1111-1111 or 5500000000000004", "[CARD] or [CARD]", 2);
    check_mask("4111 1111 1111 1112", "4111 1111 1111 1112", 0);
    check_mask("DE89 3704 0044 0532 0130 00 GB82WEST12345698765432", "[IBAN] [IBAN]", 2);
    check_mask("DE88 3704 0044 0532 0130 00", "DE88 3704 0044 0532 0130 00", 0);
    check_mask("8.8.8.8 192.168.1.1 300.1.1.1", "[IP] 192.168.1.1 300.1.1.1", 1);
    check_mask("key AKIAIOSFODNN7EXAMPLE, sk-abcdefghijklmnopqrstuvwx.", "key [KEY], [KEY].", 2);
    check_mask("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nx", "[KEY]\nx", 1);
    check_mask("-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----", 0);
}

/* ---- similar documents ----------------------------------------------------------------------- */

/* Two texts of `words` words of which `same` at the beginning are equal. */
static double band_agreement(const ls_step *step, unsigned words, unsigned same, unsigned seed)
{
    ls_step_scratch scratch = {0};
    uint64_t keys[2][LS_MINHASH_HASHES_MAX];
    for (int side = 0; side < 2; side++) {
        ls_text text = {0};
        for (unsigned i = 0; i < words; i++) {
            ls_text_printf(&text, "w%u%s%u ", i, i < same ? "s" : side ? "a" : "b", seed);
        }
        ls_scratch_begin(&scratch, (uint64_t)side);
        assert_int_equal(ls_fold_words(&scratch, text.data, text.bytes), LS_OK);
        assert_int_equal(scratch.folded_count, words);
        assert_true(ls_minhash_keys(step, &scratch, keys[side]));
        ls_text_release(&text);
    }
    unsigned equal = 0;
    for (size_t band = 0; band < step->minhash.bands; band++) {
        equal += keys[0][band] == keys[1][band];
    }
    ls_scratch_release(&scratch);
    return (double)equal / (double)step->minhash.bands;
}

/* With one row in a band, bands agree with the probability of the Jaccard similarity. */
static void minhash_estimates_jaccard(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_step step = step_of(LS_STEP_DEDUP_MINHASH, &arena);
    step.minhash.bands = 64;
    step.minhash.rows = 1;
    for (unsigned same = 50; same < 500; same += 150) {
        double sum = 0.0;
        for (unsigned seed = 0; seed < 40; seed++) {
            sum += band_agreement(&step, 500, same, seed);
        }
        const double shared = same - 4.0, jaccard = shared / (2.0 * 496.0 - shared);
        assert_true(fabs(sum / 40.0 - jaccard) < 0.04);
    }
    ls_arena_release(&arena);
}

static void folded_words_ignore_form(void **state)
{
    (void)state;
    ls_step_scratch a = {0}, b = {0};
    const char *one = "The \u00c9t\u00e9, isn\u2019t it? \u4e2d\u6587 42",
               *two = "the\n- e\u0301TE\u0301 isn't it \u4e2d \u6587 (42)";
    assert_int_equal(ls_fold_words(&a, one, strlen(one)), LS_OK);
    assert_int_equal(ls_fold_words(&b, two, strlen(two)), LS_OK);
    assert_int_equal(a.folded_count, 8);
    assert_int_equal(b.folded_count, 8);
    for (size_t i = 0; i < 8; i++) {
        /* The accent as a letter of its own is left out, so only the composed form keeps it. */
        assert_true(i == 1 || a.folded[i] == b.folded[i]);
    }
    ls_scratch_release(&a);
    ls_scratch_release(&b);
}

/* ---- records --------------------------------------------------------------------------------- */

static void raw_document_keeps_the_rest(void **state)
{
    (void)state;
    ls_corpus_file file = {.path = "x.jsonl", .kind = LS_CORPUS_JSONL};
    const ls_data_pipeline pipeline = {.field = "text", .document_bytes_max = 1 << 20};
    ls_raw_document raw = {0};
    ls_removal removal;
    ls_records records;
    ls_text out = {0};
    const char *line =
        "{\"id\": [1, {\"text\": 2}], \"text\": \"a\\u00e9\\n\\ud83d\\ude00\\ud83d\", \"x\": null}";
    assert_int_equal(ls_records_open(&file, line, strlen(line), &records), LS_OK);
    const ls_record record = {line, strlen(line), 1};
    assert_int_equal(ls_raw_document_read(&raw, &pipeline, &records, &record, &removal), LS_OK);
    assert_int_equal(removal.reason, 0);
    assert_string_equal(raw.text, "a\u00e9\n\U0001f600\ufffd");
    ls_raw_document_append(&raw, "new\t\"", 5, &out);
    assert_string_equal(ls_text_string(&out),
                        "{\"id\": [1, {\"text\": 2}], \"text\": \"new\\u0009\\\"\", \"x\": null}\n");
    static const char *const broken[] = {
        "{\"text\": \"a\"",        "{\"text\": \"a\"} x", "[1]", "{\"text\": \"\\x\"}",
        "{\"text\": \"\\u12g4\"}", "{\"text\": tru}",     "",    "{\"a\": 1e, \"text\": \"\"}"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        const ls_record bad = {broken[i], strlen(broken[i]), 1};
        assert_int_equal(ls_raw_document_read(&raw, &pipeline, &records, &bad, &removal), LS_OK);
        assert_int_equal(removal.reason, LS_READ_BROKEN);
    }
    ls_raw_document_release(&raw);
    ls_text_release(&out);
}

static void long_documents_are_cut_or_dropped(void **state)
{
    (void)state;
    ls_corpus_file file = {.path = "x.jsonl", .kind = LS_CORPUS_JSONL};
    ls_data_pipeline pipeline = {.field = "text", .document_bytes_max = 4};
    ls_raw_document raw = {0};
    ls_removal removal;
    ls_records records;
    const char *line = "{\"text\": \"abc\u00e9def\"}";
    assert_int_equal(ls_records_open(&file, line, strlen(line), &records), LS_OK);
    const ls_record record = {line, strlen(line), 1};
    assert_int_equal(ls_raw_document_read(&raw, &pipeline, &records, &record, &removal), LS_OK);
    assert_int_equal(removal.reason, LS_READ_TOO_LONG);
    pipeline.long_documents = LS_LONG_CUT;
    assert_int_equal(ls_raw_document_read(&raw, &pipeline, &records, &record, &removal), LS_OK);
    assert_int_equal(removal.reason, 0);
    assert_int_equal(raw.bytes, 3);
    ls_raw_document_release(&raw);
}

/* ---- quality --------------------------------------------------------------------------------- */

static void c4_removes_lines(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_step_scratch scratch = {0};
    ls_step step = step_of(LS_STEP_C4, &arena);
    step.c4.sentences_min = 2;
    const char *text = "Menu\nA first[12] line ends here.\nWe use cookies on this page.\nThe second one, "
                       "too![edit]\nand so on...";
    ls_passage passage = {text, strlen(text)};
    ls_removal removal;
    assert_int_equal(ls_c4_apply(&step, &scratch, true, &passage, &removal), LS_OK);
    assert_int_equal(removal.reason, 0);
    const char *left = "A first line ends here.\nThe second one, too!";
    assert_int_equal(passage.bytes, strlen(left));
    assert_memory_equal(passage.text, left, passage.bytes);
    step.c4.sentences_min = 3;
    assert_int_equal(ls_c4_apply(&step, &scratch, true, &passage, &removal), LS_OK);
    assert_int_equal(removal.reason, LS_C4_SENTENCES);
    ls_scratch_release(&scratch);
    ls_arena_release(&arena);
}

static void repetition_is_found(void **state)
{
    (void)state;
    ls_step_scratch scratch = {0};
    ls_text text = {0};
    for (int i = 0; i < 20; i++) {
        ls_text_printf(&text,
                       "own%d words%d of%d this%d line%d here%d.\nbut this line comes again and again.\n", i,
                       i, i, i, i, i);
    }
    ls_passage passage = {text.data, text.bytes};
    ls_removal removal;
    assert_int_equal(ls_repetition_judge(&scratch, &passage, &removal), LS_OK);
    assert_int_equal(removal.reason, LS_REPETITION_LINES);
    for (size_t i = 0; i < text.bytes; i++) {
        text.data[i] = text.data[i] == '\n' ? ' ' : text.data[i];
    }
    assert_int_equal(ls_repetition_judge(&scratch, &passage, &removal), LS_OK);
    assert_int_equal(removal.reason, LS_REPETITION_TOP + 2);
    ls_text_release(&text);
    ls_scratch_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_valid),
        cmocka_unit_test(normal_text_is_tidy),
        cmocka_unit_test(exact_hash_ignores_case_and_blanks),
        cmocka_unit_test(results_do_not_depend_on_the_place),
        cmocka_unit_test(private_data_is_masked),
        cmocka_unit_test(minhash_estimates_jaccard),
        cmocka_unit_test(folded_words_ignore_form),
        cmocka_unit_test(raw_document_keeps_the_rest),
        cmocka_unit_test(long_documents_are_cut_or_dropped),
        cmocka_unit_test(c4_removes_lines),
        cmocka_unit_test(repetition_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
