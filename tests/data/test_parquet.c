// SPDX-License-Identifier: Apache-2.0
/*
 * Parquet: the files of tests/golden/make_parquet.py, whole and damaged. bench/parquet_peer.py
 * compares many more with pyarrow.
 */
#include "data/scratch.h"

#include "base/text.h"
#include "data/parquet/parquet.h"
#include "data/parquet/snappy.h"
#include "data/record_walk.h"

static const char *const NAMES[] = {"plain", "snappy", "gzip_2", "zstd_groups", "deltas"};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0] };

static const char LINES[] =
    "{\"text\":\"A \\\"quote\\\" and\\na line\",\"id\":-1,\"p\":0.1,\"ok\":true,\"raw\":\"plain\","
    "\"messages\":[{\"role\":\"user\",\"content\":\"2 + 2?\"},{\"role\":\"assistant\",\"content\":\"4\"}]}\n"
    "{\"text\":null,\"id\":9007199254740993,\"p\":3.0,\"ok\":null,\"raw\":null,\"messages\":[]}\n"
    "{\"text\":\"A \\\"quote\\\" and\\na path\",\"id\":null,\"p\":null,\"ok\":false,\"raw\":null,"
    "\"messages\":null}\n"
    "{\"text\":\"caf\xc3\xa9\",\"id\":7,\"p\":1e-07,\"ok\":true,\"raw\":\"\","
    "\"messages\":[{\"role\":\"user\",\"content\":null},null]}\n";

/* A file of the corpus, in memory that can be changed. */
static unsigned char *load(scratch *s, const char *name, size_t *bytes_out)
{
    char *data = NULL;
    const char *path = ls_arena_printf(&s->arena, LS_SOURCE_DIR "/tests/fuzz/corpus/parquet/%s", name);
    assert_int_equal(ls_file_read(&s->arena, path, 1 << 16, &data, bytes_out), LS_OK);
    return (unsigned char *)data;
}

static ls_status read_lines(const unsigned char *data, size_t bytes, ls_text *lines)
{
    ls_parquet *parquet = NULL;
    bool done = false;
    ls_text_clear(lines);
    ls_error_clear();
    ls_status status = ls_parquet_open("f.parquet", (ls_file_map){.data = data, .bytes = bytes}, &parquet);
    while (status == LS_OK && !done) {
        status = ls_parquet_read(parquet, lines->bytes + 1, lines, &done);
    }
    ls_parquet_close(parquet);
    return status;
}

static void parquet_reads_every_layout(void **state)
{
    scratch *s = *state;
    ls_text lines = {0};
    for (size_t i = 0; i < NAME_COUNT; i++) {
        size_t bytes = 0;
        const unsigned char *data = load(s, NAMES[i], &bytes);
        assert_int_equal(read_lines(data, bytes, &lines), LS_OK);
        assert_string_equal(ls_text_string(&lines), LINES);
        assert_true(ls_parquet_has_magic(data, bytes));
    }
    assert_false(ls_parquet_has_magic("PAR1 is a name", 14));
    ls_text_release(&lines);
}

static void parquet_names_what_is_damaged(void **state)
{
    scratch *s = *state;
    ls_text lines = {0};
    size_t bytes = 0;
    unsigned char *data = load(s, "plain", &bytes);
    unsigned char *word = memmem(data, bytes, "\x09\0\0\0assistant", 13);
    assert_non_null(word);
    word += 4;
    word[0] ^= 4;
    assert_int_equal(read_lines(data, bytes, &lines), LS_ERR_DATA);
    assert_error_has("f.parquet: column `messages.list.element.role`, row group 1: the checksum of a page");
    word[0] ^= 4;
    memcpy(data + bytes - 4, "PARE", 4);
    assert_int_equal(read_lines(data, bytes, &lines), LS_ERR_UNSUPPORTED);
    assert_error_has("encrypted");
    for (size_t cut = 0; cut < bytes; cut++) {
        assert_int_equal(read_lines(data, cut, &lines), LS_ERR_DATA);
        assert_error_has("f.parquet");
    }
    ls_text_release(&lines);
}

/* A third of all bits: what is read is what was written, or the file is refused. Only what no checksum covers
 * may change a line: names, types and what they mean. */
static void parquet_survives_flipped_bits(void **state)
{
    scratch *s = *state;
    ls_text lines = {0};
    size_t statistics = 0, counts = 0, codecs = 0;
    for (size_t i = 0; i < NAME_COUNT; i++) {
        size_t bytes = 0;
        uint32_t footer = 0;
        unsigned char *data = load(s, NAMES[i], &bytes);
        memcpy(&footer, data + bytes - 8, sizeof footer);
        for (size_t bit = 4 * 8; bit < bytes * 8; bit += 3) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            const ls_status status = read_lines(data, bytes, &lines);
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(status == LS_OK || status == LS_ERR_DATA || status == LS_ERR_UNSUPPORTED);
            if (status != LS_OK) {
                assert_error_has("f.parquet");
                statistics += strstr(ls_error_text(), "nulls, but its statistics say") != NULL;
                counts += strstr(ls_error_text(), "but the footer says") != NULL;
                codecs += strstr(ls_error_text(), "its compression is LZ4_RAW (7)") != NULL;
            } else if (bit / 8 < bytes - 8 - footer) {
                assert_string_equal(ls_text_string(&lines), LINES);
            }
        }
    }
    assert_true(statistics > 0 && counts > 0 && codecs > 0);
    ls_text_release(&lines);
}

static void snappy_unpacks(void **state)
{
    (void)state;
    unsigned char to[64];
    /* A literal "ab", then copies: 4 bytes from 2 before, and 6 from 6 before with two bytes. */
    static const unsigned char good[] = {12, 1 << 2, 'a', 'b', 1, 2, 5 << 2 | 2, 6, 0};
    assert_true(ls_snappy_unpack(good, sizeof good, to, 12));
    assert_memory_equal(to, "abababababab", 12);
    assert_false(ls_snappy_unpack(good, sizeof good, to, 11));
    for (size_t cut = 0; cut < sizeof good; cut++) {
        assert_false(ls_snappy_unpack(good, cut, to, 12));
    }
    static const unsigned char before[] = {6, 1 << 2, 'a', 'b', 1, 3}, zero[] = {6, 1 << 2, 'a', 'b', 1, 0};
    static const unsigned char longer[] = {2, 2 << 2, 'a', 'b', 'c'};
    assert_false(ls_snappy_unpack(before, sizeof before, to, 6));
    assert_false(ls_snappy_unpack(zero, sizeof zero, to, 6));
    assert_false(ls_snappy_unpack(longer, sizeof longer, to, 2));
}

static ls_status collect(void *context, const ls_walked *walked, ls_status read)
{
    ls_text *seen = context;
    assert_int_equal(read, LS_OK);
    ls_text_printf(seen, "%d:%.*s|", (int)walked->line, (int)walked->bytes, walked->text);
    return LS_OK;
}

/* A file among others: its rows are the records of the same JSON lines. */
static void parquet_is_walked_as_records(void **state)
{
    scratch *s = *state;
    ls_text seen = {0};
    size_t bytes = 0, count = 0;
    ls_corpus_file *files = NULL;
    const unsigned char *data = load(s, "zstd_groups", &bytes);
    scratch_write(s, "a.parquet", data, bytes);
    const char *folder = s->folder;
    const ls_corpus_query query = {.patterns = &folder, .pattern_count = 1};
    assert_int_equal(ls_corpus_expand(&s->arena, &query, &files, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(files[0].kind, LS_CORPUS_JSONL);
    const ls_form_keys keys = {.format = LS_FORMAT_TEXT, .text = "text"};
    ls_record_walk walk = {.keys = &keys, .on_record = collect, .context = &seen};
    assert_int_equal(ls_records_walk(&walk, files, count), LS_OK);
    assert_string_equal(ls_text_string(&seen),
                        "1:A \"quote\" and\na line|3:A \"quote\" and\na path|4:caf\xc3\xa9|");
    scratch_write(s, "a.parquet", "{\"text\":\"no\"}\n", 14);
    assert_int_equal(ls_corpus_expand(&s->arena, &query, &files, &count), LS_ERR_DATA);
    assert_error_has("does not hold Parquet data");
    ls_text_release(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parquet_reads_every_layout, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(parquet_names_what_is_damaged, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(parquet_survives_flipped_bits, scratch_setup, scratch_teardown),
        cmocka_unit_test(snappy_unpacks),
        cmocka_unit_test_setup_teardown(parquet_is_walked_as_records, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
