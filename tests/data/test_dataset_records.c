// SPDX-License-Identifier: Apache-2.0
/* Records of a dataset: windows, splits, what is left out, what is refused. */
#include "scratch.h"

#include "data/dataset.h"
#include "data/record_set.h"

typedef struct fixture {
    scratch s;
    ls_tokenizer *tokenizer;
    ls_recipe *recipe;
    ls_dataset *dataset;
    ls_text told;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    strcpy(f->s.folder, "/tmp/lockstep-data-XXXXXX");
    *state = f;
    return mkdtemp(f->s.folder) && make_tokenizer_with_end(&f->tokenizer) == LS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    ls_dataset_close(f->dataset);
    ls_recipe_destroy(f->recipe);
    ls_tokenizer_destroy(f->tokenizer);
    ls_text_release(&f->told);
    const ls_status status = ls_dir_remove(f->s.folder);
    ls_arena_release(&f->s.arena);
    free(f);
    return status == LS_OK ? 0 : -1;
}

static void hear(void *context, const char *text)
{
    fixture *f = context;
    ls_text_printf(&f->told, "%s\n", text);
}

/* How a dataset is opened. */
typedef struct setting {
    uint32_t context, threads;
    double fraction;
    bool no_packing, skip_bad;
    ls_held_out_rule rule;
} setting;

static ls_status open_records(fixture *f, const char *path, setting how)
{
    const ls_recipe_options recipe = {
        .keys = {.text = "text"}, .skip_bad = how.skip_bad, .template_date = "", .tokenizer = f->tokenizer};
    const ls_dataset_source source = {.patterns = &path, .pattern_count = 1, .weight = 1.0};
    ls_recipe_destroy(f->recipe);
    f->recipe = NULL;
    assert_int_equal(ls_recipe_create(&recipe, &f->recipe), LS_OK);
    const ls_dataset_options options = {.sources = &source,
                                        .source_count = 1,
                                        .validation_fraction = how.fraction,
                                        .recipe = f->recipe,
                                        .held_out = how.rule,
                                        .packing = !how.no_packing,
                                        .tokenizer = f->tokenizer,
                                        .context = how.context ? how.context : 64,
                                        .threads = how.threads ? how.threads : 1,
                                        .cache_dir = ls_path_join(&f->s.arena, f->s.folder, "cache"),
                                        .tell = hear,
                                        .caller = f};
    ls_dataset_close(f->dataset);
    f->dataset = NULL;
    ls_text_clear(&f->told);
    return ls_dataset_open(&options, &f->dataset);
}

/* `count` records: prompt "pNNN ", completion of 1 to 20 letters. */
static const char *write_records(fixture *f, const char *name, int count)
{
    static const char letters[] = "abcdefghijklmnopqrst";
    ls_text text = {0};
    for (int i = 0; i < count; i++) {
        ls_text_printf(
            &text,
            "{\"prompt\": \"p%d \", \"completion\": \"%.*s\", \"who\": \"w%d\", \"day\": \"2024-01-%02d\"}\n",
            i, 1 + i * 7 % 20, letters, i % 10, 1 + i % 28);
    }
    const char *path = scratch_text(&f->s, name, ls_text_string(&text));
    ls_text_release(&text);
    return path;
}

enum { CONTEXT_MAX = 128 };

typedef struct row {
    int32_t tokens[CONTEXT_MAX], targets[CONTEXT_MAX], first[CONTEXT_MAX], record[CONTEXT_MAX];
} row;

static void read_row(fixture *f, ls_split split, uint64_t seed, uint64_t position, row *r)
{
    const ls_sample sample = {r->tokens, r->targets, r->first, r->record};
    assert_int_equal(ls_dataset_sample(f->dataset, split, seed, position, &sample), LS_OK);
}

/* Checks the arrays of a row against each other; adds 1 to seen[record] for each record. */
static void check_row(const row *r, size_t context, int *seen)
{
    for (size_t i = 0; i < context; i++) {
        const bool begins = i == 0 || r->record[i] != r->record[i - 1] || r->first[i] != r->first[i - 1];
        assert_int_equal(r->first[i], begins ? (int32_t)i : r->first[i - 1]);
        if (r->record[i] == LS_NO_RECORD) {
            assert_int_equal(r->targets[i], LS_NO_TARGET);
            continue;
        }
        seen[r->record[i]] += begins;
        const bool inside = i + 1 < context && r->first[i + 1] == r->first[i];
        if (r->targets[i] != LS_NO_TARGET && inside) {
            assert_int_equal(r->targets[i], r->tokens[i + 1]);
        }
        if (!inside && r->targets[i] != LS_NO_TARGET) {
            assert_int_equal(r->targets[i], 0);
        }
    }
}

static void records_are_in_one_window_each(void **state)
{
    fixture *f = *state;
    const char *path = write_records(f, "a.jsonl", 200);
    for (int packing = 0; packing < 2; packing++) {
        assert_int_equal(open_records(f, path, (setting){.no_packing = !packing}), LS_OK);
        const uint64_t windows = ls_dataset_samples(f->dataset, LS_SPLIT_TRAIN);
        assert_true(packing ? windows < 80 : windows == 200);
        assert_true(ls_dataset_has_documents(f->dataset));
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            int seen[200] = {0};
            row r;
            for (uint64_t i = 0; i < windows; i++) {
                read_row(f, LS_SPLIT_TRAIN, 5, epoch * windows + i, &r);
                check_row(&r, 64, seen);
            }
            for (int i = 0; i < 200; i++) {
                assert_int_equal(seen[i], 1);
            }
        }
    }
}

static void records_change_company_in_each_epoch(void **state)
{
    fixture *f = *state;
    row a, b;
    assert_int_equal(open_records(f, write_records(f, "a.jsonl", 500), (setting){.fraction = 0.0}), LS_OK);
    const uint64_t windows = ls_dataset_samples(f->dataset, LS_SPLIT_TRAIN);
    uint64_t same = 0;
    for (uint64_t i = 0; i < windows; i++) {
        read_row(f, LS_SPLIT_TRAIN, 5, i, &a);
        for (uint64_t k = 0; k < windows && same <= windows / 10; k++) {
            read_row(f, LS_SPLIT_TRAIN, 5, windows + k, &b);
            same += memcmp(a.record, b.record, 64 * sizeof *a.record) == 0;
        }
    }
    assert_true(same <= windows / 10);
    /* Positions are pure. */
    read_row(f, LS_SPLIT_TRAIN, 5, 3, &a);
    read_row(f, LS_SPLIT_TRAIN, 5, 3, &b);
    assert_memory_equal(a.record, b.record, 64 * sizeof *a.record);
}

static void records_are_held_out_whole(void **state)
{
    fixture *f = *state;
    const char *path = write_records(f, "a.jsonl", 200);
    const setting settings[] = {{.fraction = 0.1}, {.fraction = 0.1, .rule = {.key = "who"}}};
    for (size_t s = 0; s < 2; s++) {
        int seen[200] = {0}, held[200] = {0}, both[10] = {0}, held_count = 0;
        row r;
        assert_int_equal(open_records(f, path, settings[s]), LS_OK);
        for (uint64_t i = 0; i < ls_dataset_samples(f->dataset, LS_SPLIT_TRAIN); i++) {
            read_row(f, LS_SPLIT_TRAIN, 1, i, &r);
            check_row(&r, 64, seen);
        }
        for (uint64_t i = 0; i < ls_dataset_samples(f->dataset, LS_SPLIT_VALIDATION); i++) {
            read_row(f, LS_SPLIT_VALIDATION, 1, i, &r);
            check_row(&r, 64, held);
        }
        for (int i = 0; i < 200; i++) {
            assert_int_equal(seen[i] + held[i], 1);
            held_count += held[i];
            both[i % 10] |= held[i] ? 2 : 1;
        }
        assert_int_equal(held_count, 20);
        for (int i = 0; i < 10 && s == 1; i++) {
            assert_int_not_equal(both[i], 3);
        }
    }
}

static void records_of_the_latest_time_are_held_out(void **state)
{
    fixture *f = *state;
    const char *path = write_records(f, "a.jsonl", 200);
    row r;
    int held[200] = {0};
    assert_int_equal(
        open_records(f, path, (setting){.fraction = 0.05, .rule = {.key = "day", .is_time = true}}), LS_OK);
    for (uint64_t i = 0; i < ls_dataset_samples(f->dataset, LS_SPLIT_VALIDATION); i++) {
        read_row(f, LS_SPLIT_VALIDATION, 1, i, &r);
        check_row(&r, 64, held);
    }
    for (int i = 0; i < 200; i++) {
        assert_int_equal(held[i], i % 28 >= 26);
    }
    assert_int_equal(
        open_records(f, path, (setting){.fraction = 0.05, .rule = {.key = "who", .is_time = true}}),
        LS_ERR_DATA);
    assert_error_has("the value of `who` (data.split_time) is no time");
}

static void records_do_not_depend_on_threads_or_the_cache(void **state)
{
    fixture *f = *state;
    const char *path = write_records(f, "a.jsonl", 3000);
    row a, b;
    char hash[LS_SHA256_HEX_BYTES];
    assert_int_equal(open_records(f, path, (setting){.fraction = 0.1}), LS_OK);
    strcpy(hash, ls_dataset_hash(f->dataset));
    read_row(f, LS_SPLIT_TRAIN, 9, 1234, &a);
    assert_int_equal(ls_dir_remove(ls_path_join(&f->s.arena, f->s.folder, "cache")), LS_OK);
    assert_int_equal(open_records(f, path, (setting){.fraction = 0.1, .threads = 3}), LS_OK);
    assert_string_equal(hash, ls_dataset_hash(f->dataset));
    read_row(f, LS_SPLIT_TRAIN, 9, 1234, &b);
    assert_memory_equal(a.tokens, b.tokens, 64 * sizeof *a.tokens);
    assert_memory_equal(a.targets, b.targets, 64 * sizeof *a.targets);
    assert_int_equal(open_records(f, path, (setting){.fraction = 0.1, .rule = {.key = "who"}}), LS_OK);
    assert_string_not_equal(hash, ls_dataset_hash(f->dataset));
}

static void records_that_are_bad_are_named_or_left_out(void **state)
{
    fixture *f = *state;
    ls_text text = {0};
    for (int i = 1; i <= 20; i++) {
        ls_text_append(&text, i % 7 == 3 ? "{\"prompt\": \"p\", \"completion\": 5.5}\n"
                              : i == 18  ? "{\"prompt\": \n"
                                         : "{\"prompt\": \"p\", \"completion\": \"c\"}\n");
    }
    const char *path = scratch_text(&f->s, "a.jsonl", ls_text_string(&text));
    ls_text_release(&text);
    assert_int_equal(open_records(f, path, (setting){.fraction = 0.0}), LS_ERR_DATA);
    assert_error_has("4 of 20 records cannot be used");
    assert_error_has("a.jsonl:3: the value of `completion` must be a string or a whole number");
    assert_error_has("a.jsonl:10:");
    assert_error_has("a.jsonl:17:");
    assert_error_has("a.jsonl:18: not valid JSON");
    assert_error_has("data.bad_records: skip");
    assert_int_equal(open_records(f, path, (setting){.skip_bad = true}), LS_OK);
    assert_int_equal(ls_dataset_document_count(f->dataset), 16);
    assert_non_null(strstr(ls_text_string(&f->told), "left out 4 records that cannot be used"));
}

static void records_of_two_forms_are_refused(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(
        &f->s, "a.jsonl",
        "{\"prompt\": \"p\", \"completion\": \"c\"}\n\n{\"question\": \"q\", \"answer\": \"a\"}\n");
    assert_int_equal(open_records(f, path, (setting){.skip_bad = true}), LS_ERR_DATA);
    assert_error_has(
        "a.jsonl:3: the record is question and answer, while that of line 1 is prompt and completion");
    path = scratch_text(&f->s, "b.jsonl", "{\"text\": \"t\"}\n{\"messages\": []}\n");
    assert_int_equal(open_records(f, path, (setting){.fraction = 0.0}), LS_ERR_DATA);
    assert_error_has("b.jsonl:2: the record has `messages` but no `text`, while that of line 1 is text");
    path = scratch_text(&f->s, "c.jsonl", "\n{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n");
    assert_int_equal(open_records(f, path, (setting){.fraction = 0.0}), LS_ERR_INVALID);
    assert_error_has("c.jsonl: the records are OpenAI's messages, which need a chat template");
}

static void records_that_are_too_long_are_cut_or_refused(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(&f->s, "a.jsonl",
                                    "{\"prompt\": \"p\", \"completion\": \"abcdefghijkl\"}\n"
                                    "{\"prompt\": \"p\", \"completion\": \"c\"}\n");
    row r;
    assert_int_equal(open_records(f, path, (setting){.context = 8, .no_packing = true}), LS_OK);
    assert_non_null(strstr(ls_text_string(&f->told), "cut off 1 sample longer than the context of 8 tokens"));
    assert_non_null(strstr(ls_text_string(&f->told), "the first is line 1 of"));
    int32_t last = LS_NO_TARGET;
    for (uint64_t i = 0; i < 2; i++) {
        read_row(f, LS_SPLIT_TRAIN, 1, i, &r);
        last = r.targets[7] > last ? r.targets[7] : last;
    }
    assert_int_equal(last, 'h' - 31);
    path = scratch_text(&f->s, "b.jsonl",
                        "{\"prompt\": \"p\", \"completion\": \"c\"}\n"
                        "{\"prompt\": \"abcdefghijkl\", \"completion\": \"c\"}\n");
    assert_int_equal(open_records(f, path, (setting){.context = 8}), LS_ERR_DATA);
    assert_error_has("1 record is longer than the context of 8 tokens, and nothing that is trained is left");
    assert_error_has("the record is in line 2 of");
    assert_int_equal(open_records(f, path, (setting){.context = 8, .skip_bad = true}), LS_OK);
    assert_int_equal(ls_dataset_samples(f->dataset, LS_SPLIT_TRAIN), 1);
}

static void a_run_that_never_trains_an_end_is_refused(void **state)
{
    fixture *f = *state;
    static const char long_records[] = "{\"prompt\": \"p\", \"completion\": \"abcdefghijkl\"}\n"
                                       "{\"prompt\": \"p\", \"completion\": \"mnopqrstuvwx\"}\n";
    const char *path = scratch_text(&f->s, "a.jsonl", long_records);
    for (int skip_bad = 0; skip_bad < 2; skip_bad++) {
        const setting how = {.context = 8, .skip_bad = skip_bad};
        assert_int_equal(open_records(f, path, how), LS_ERR_DATA);
        assert_error_has("2 of 2 training samples are longer than the context of 8 tokens");
        assert_error_has("the first is line 1 of");
        assert_error_has("raise model.context");
    }
    /* The tokens are the prompt, 12 letters and the end: 13 positions hold all of them. */
    assert_int_equal(open_records(f, path, (setting){.context = 12}), LS_ERR_DATA);
    assert_int_equal(open_records(f, path, (setting){.context = 13}), LS_OK);
    path = scratch_text(&f->s, "b.jsonl",
                        "{\"prompt\": \"p\", \"completion\": \"abcdefghijkl\"}\n"
                        "{\"prompt\": \"p\", \"completion\": \"c\"}\n");
    assert_int_equal(open_records(f, path, (setting){.context = 8}), LS_OK);
}

static void records_of_tables_and_packed_files_are_read(void **state)
{
    fixture *f = *state;
    row r;
    const char *path =
        scratch_text(&f->s, "a.csv", "id,completion,prompt\n1,\"say \"\"c\"\"\",p\n2,d,\"two\nlines\"\n");
    assert_int_equal(open_records(f, path, (setting){.no_packing = true}), LS_OK);
    assert_int_equal(ls_dataset_samples(f->dataset, LS_SPLIT_TRAIN), 2);
    read_row(f, LS_SPLIT_TRAIN, 1, 0, &r);
    path = scratch_text(
        &f->s, "a.json",
        "[{\"prompt\": \"p\",\n\"completion\": \"c\"},\n{\"prompt\": \"p\", \"completion\": \"d\"}]");
    assert_int_equal(open_records(f, path, (setting){.no_packing = true}), LS_OK);
    assert_int_equal(ls_dataset_samples(f->dataset, LS_SPLIT_TRAIN), 2);
}

static void records_have_numbers_that_fit(void **state)
{
    (void)state;
    const ls_record_set_options options = {.context = 8, .first_record = (uint64_t)INT32_MAX + 1};
    ls_record_set *set = NULL;
    assert_int_equal(ls_record_set_create(&options, &set), LS_ERR_INVALID);
    assert_null(set);
    assert_non_null(strstr(ls_error_text(), "there are 2147483648 samples of records"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_have_numbers_that_fit),
        cmocka_unit_test_setup_teardown(records_are_in_one_window_each, setup, teardown),
        cmocka_unit_test_setup_teardown(records_change_company_in_each_epoch, setup, teardown),
        cmocka_unit_test_setup_teardown(records_are_held_out_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(records_of_the_latest_time_are_held_out, setup, teardown),
        cmocka_unit_test_setup_teardown(records_do_not_depend_on_threads_or_the_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(records_that_are_bad_are_named_or_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(records_of_two_forms_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(records_that_are_too_long_are_cut_or_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_that_never_trains_an_end_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(records_of_tables_and_packed_files_are_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
