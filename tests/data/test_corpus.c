// SPDX-License-Identifier: Apache-2.0
#include "data/scratch.h"

#include "data/corpus.h"
#include "data/jsonl.h"
#include "data/records.h"
#include "data/text.h"
#include "tokenizer/unicode.h"

#include <stdbool.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static ls_status expand(scratch *s, const char *const *patterns, size_t pattern_count,
                        ls_corpus_file **files_out, size_t *count_out)
{
    const ls_corpus_query query = {.patterns = patterns, .pattern_count = pattern_count};
    return ls_corpus_expand(&s->arena, &query, files_out, count_out);
}

static void corpus_expand_sorts_drops_repeats_and_tells_kinds(void **state)
{
    scratch *s = *state;
    scratch_text(s, "b.txt", "b");
    scratch_text(s, "a.txt", "a");
    scratch_text(s, "c.jsonl", "{}");
    scratch_text(s, "d.json", "[]");
    scratch_text(s, "e.csv", "text");
    scratch_text(s, "f.TSV", "text");
    scratch_text(s, "m.bin", "xx");
    scratch_text(s, "m.idx", "xx");
    const int32_t magic[2] = {20240520, 1};
    scratch_write(s, "noname", magic, sizeof magic);
    const char *all = ls_path_join(&s->arena, s->folder, "*");
    const char *first = ls_path_join(&s->arena, s->folder, "b.txt");
    const char *patterns[] = {first, all};
    const char *fields[] = {"content", NULL};
    const ls_corpus_query query = {
        .patterns = patterns, .pattern_count = 2, .field = "body", .fields = fields};
    ls_corpus_file *files;
    size_t count = 0;
    assert_int_equal(ls_corpus_expand(&s->arena, &query, &files, &count), LS_OK);
    const char *names[] = {"b.txt", "a.txt", "c.jsonl", "d.json", "e.csv", "f.TSV", "m.bin", "noname"};
    const ls_corpus_kind kinds[] = {LS_CORPUS_TEXT, LS_CORPUS_TEXT, LS_CORPUS_JSONL,  LS_CORPUS_JSON,
                                    LS_CORPUS_CSV,  LS_CORPUS_TSV,  LS_CORPUS_TOKENS, LS_CORPUS_TOKENS};
    assert_int_equal(count, 8);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(ls_path_basename(files[i].path), names[i]);
        assert_int_equal(files[i].kind, kinds[i]);
        assert_int_equal(files[i].packing, LS_PACKING_NONE);
        assert_string_equal(ls_corpus_field(&files[i]), i == 0 ? "content" : "body");
        assert_int_equal(ls_corpus_field_matters(&files[i]), i >= 2 && i <= 5);
    }
}

static void corpus_expand_refuses_what_is_not_there(void **state)
{
    scratch *s = *state;
    ls_corpus_file *files = NULL;
    size_t count = 77;
    const char *missing = ls_path_join(&s->arena, s->folder, "*.txt");
    assert_int_equal(expand(s, &missing, 1, &files, &count), LS_ERR_NOT_FOUND);
    assert_error_has("no file matches");
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    const char *relative = "surely/not/here.txt";
    assert_int_equal(expand(s, &relative, 1, &files, &count), LS_ERR_NOT_FOUND);
    assert_error_has(ls_arena_printf(&s->arena, "no file matches surely/not/here.txt in %s", here));
    const char *empty = scratch_text(s, "empty.txt", "");
    assert_int_equal(expand(s, &empty, 1, &files, &count), LS_ERR_DATA);
    assert_error_has("empty.txt is empty");
    assert_int_equal(expand(s, &empty, 0, &files, &count), LS_ERR_INVALID);
    assert_int_equal(count, 77);
}

static void keep_text(void *context, const char *text)
{
    snprintf(context, 512, "%s", text);
}

static void corpus_expand_reads_folders(void **state)
{
    scratch *s = *state;
    static const char *const names[] = {"z.txt",         "a/b/x.jsonl", "a/m.md",
                                        "a/.hidden.txt", ".git/y.txt",  "k.py"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = ls_path_join(&s->arena, s->folder, names[i]);
        assert_int_equal(ls_dir_create(ls_path_dirname(&s->arena, path)), LS_OK);
        scratch_text(s, names[i], "{\"text\": \"x\"}");
    }
    ls_corpus_file *files = NULL;
    size_t count = 0;
    const char *folder = s->folder;
    char told[512] = "";
    const ls_corpus_query query = {
        .patterns = &folder, .pattern_count = 1, .tell = keep_text, .context = told};
    assert_int_equal(ls_corpus_expand(&s->arena, &query, &files, &count), LS_OK);
    assert_non_null(strstr(told, "1 file of other kinds is not read, for example"));
    static const char *const wanted[] = {"a/b/x.jsonl", "a/m.md", "z.txt"};
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(files[i].path, ls_path_join(&s->arena, s->folder, wanted[i]));
    }
    setenv("HOME", s->folder, 1);
    const char *home = "~/a";
    assert_int_equal(expand(s, &home, 1, &files, &count), LS_OK);
    assert_int_equal(count, 2);
    const char *other = "~nobody/a";
    assert_int_equal(expand(s, &other, 1, &files, &count), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_dir_create(ls_path_join(&s->arena, s->folder, "none")), LS_OK);
    const char *none = "~/none";
    assert_int_equal(expand(s, &none, 1, &files, &count), LS_ERR_NOT_FOUND);
    assert_error_has("holds no data");
    /* A link to its parent ends the search. */
    assert_int_equal(symlink("..", ls_path_join(&s->arena, s->folder, "none/up")), 0);
    assert_int_equal(expand(s, &none, 1, &files, &count), LS_ERR_INVALID);
    assert_error_has("nested more than");
}

/* ---- formats that are not text ---- */

static void corpus_expand_refuses_formats_by_name(void **state)
{
    scratch *s = *state;
    static const struct {
        const char *data;
        size_t bytes;
        const char *part;
    } cases[] = {
        {"%PDF-1.4\nplain words", 20, "PDF; extract its text"},
        {"\x89PNG\r\n\x1a\n....", 12, "PNG"},
        {"\xff\xd8\xff\xe0....", 8, "JPEG"},
        {"\x7f"
         "ELF\2\1\1",
         7, "ELF"},
        {"PK\x03\x04....", 8, "zip archive (also .docx"},
        {"SQLite format 3\0....", 20, "SQLite"},
        {"PAR1\x15\0\x15", 7, "Parquet"},
        {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 8, "old Office"},
        {"\xff\xfe"
         "a\0",
         4, "UTF-16"},
        {"{\\rtf1 words}", 13, "RTF"},
        {"\xfd\x37zXZ\0....", 10, "unxz"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const char *const names[] = {"x.txt", "x.jsonl", "x.csv", "x.json", "x"};
        for (size_t k = 0; k < 5; k++) {
            const char *path = scratch_write(s, names[k], cases[i].data, cases[i].bytes);
            ls_corpus_file *files = NULL;
            size_t count = 0;
            assert_int_equal(expand(s, &path, 1, &files, &count), LS_ERR_DATA);
            assert_error_has(cases[i].part);
            assert_error_has(path);
        }
    }
    /* A text may begin like this. */
    static const char *const texts[] = {"PAR1 is a name", "RIFF, raff", "ID3 is a tag", "BZh"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *path = scratch_text(s, "text.txt", texts[i]);
        ls_corpus_file *files = NULL;
        size_t count = 0;
        assert_int_equal(expand(s, &path, 1, &files, &count), LS_OK);
    }
}

/* ---- packed files ---- */

static size_t gzip_into(const char *text, size_t bytes, unsigned char *out, size_t room)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text,
                  .avail_in = (uInt)bytes,
                  .next_out = out,
                  .avail_out = (uInt)room};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static size_t zstd_into(const char *text, size_t bytes, unsigned char *out, size_t room)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)));
    const size_t packed = ZSTD_compress2(context, out, room, text, bytes);
    assert_false(ZSTD_isError(packed));
    ZSTD_freeCCtx(context);
    return packed;
}

typedef size_t (*packer)(const char *text, size_t bytes, unsigned char *out, size_t room);

static ls_status unpack_file(const char *path, uint64_t limit, const char *wanted, size_t wanted_bytes)
{
    ls_file_map packed, content = {0};
    assert_int_equal(ls_file_map_open(path, &packed), LS_OK);
    const ls_status status =
        ls_unpack(path, packed, &(ls_unpack_options){.folder = "", .limit_bytes = limit}, &content);
    if (status == LS_OK) {
        assert_int_equal(content.bytes, wanted_bytes);
        assert_memory_equal(content.data, wanted, wanted_bytes);
    }
    ls_file_map_close(&content);
    ls_file_map_close(&packed);
    return status;
}

static void unpack_gives_the_content_or_says_why_not(void **state)
{
    scratch *s = *state;
    enum { BYTES = 3 << 20, ROOM = 4 << 20 };
    char *text = malloc(2 * BYTES);
    unsigned char *out = malloc(2 * ROOM);
    uint32_t random = 1;
    for (size_t i = 0; i < BYTES; i++) {
        random = random * 1664525u + 1013904223u;
        text[i] = (char)('a' + (random >> 24) % 26);
    }
    memcpy(text + BYTES, text, BYTES);
    const packer packers[] = {gzip_into, zstd_into};
    for (size_t k = 0; k < 2; k++) {
        const size_t one = packers[k](text, BYTES, out, ROOM);
        const size_t two = one + packers[k](text + BYTES, BYTES, out + one, ROOM);
        const char *path = scratch_write(s, "x.gz", out, two);
        assert_int_equal(unpack_file(path, 0, text, 2 * BYTES), LS_OK);
        /* Cut anywhere: in the header, in the data, at the last byte, in the second member. */
        const size_t cuts[] = {4, 9, one / 2, one - 1, one + 3, two - 1};
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            path = scratch_write(s, "cut.gz", out, cuts[i]);
            assert_int_equal(unpack_file(path, 0, NULL, 0), LS_ERR_DATA);
            assert_error_has("cut.gz is truncated");
        }
        memcpy(out + two, "more", 4);
        path = scratch_write(s, "tail.gz", out, two + 4);
        assert_int_equal(unpack_file(path, 0, NULL, 0), LS_ERR_DATA);
        assert_error_has("tail.gz is damaged");
        out[one / 2] ^= 0x10;
        out[one / 2 + 1] ^= 0x10;
        path = scratch_write(s, "flip.gz", out, two);
        assert_int_equal(unpack_file(path, 0, NULL, 0), LS_ERR_DATA);
        assert_error_has("flip.gz is ");
    }
    memset(text, 'x', BYTES);
    const char *bomb = scratch_write(s, "bomb.gz", out, gzip_into(text, BYTES, out, ROOM));
    assert_int_equal(unpack_file(bomb, 1 << 20, NULL, 0), LS_ERR_DATA);
    assert_error_has("unpacks to more than 1048576");
    assert_int_equal(unpack_file(bomb, 0, text, BYTES), LS_OK);
    assert_int_equal(ls_unpack_limit(0), 256 << 20);
    assert_int_equal(ls_unpack_limit(UINT64_C(1) << 30), UINT64_C(200) << 30);
    free(text);
    free(out);
}

static void corpus_expand_sees_through_packing(void **state)
{
    scratch *s = *state;
    unsigned char out[4096];
    const char *line = "{\"text\": \"a\"}\n";
    static const struct {
        const char *name;
        ls_corpus_kind kind;
    } cases[] = {{"a.jsonl.gz", LS_CORPUS_JSONL}, {"b.csv.gz", LS_CORPUS_CSV}, {"c.json.gz", LS_CORPUS_JSON},
                 {"d.txt.gz", LS_CORPUS_TEXT},    {"e.gz", LS_CORPUS_TEXT},    {"f.txt", LS_CORPUS_TEXT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path =
            scratch_write(s, cases[i].name, out, gzip_into(line, strlen(line), out, sizeof out));
        ls_corpus_file *files = NULL;
        size_t count = 0;
        assert_int_equal(expand(s, &path, 1, &files, &count), LS_OK);
        assert_int_equal(files[0].kind, cases[i].kind);
        assert_int_equal(files[0].packing, LS_PACKING_GZIP);
    }
    ls_corpus_file *files = NULL;
    size_t count = 0;
    const char *plain = scratch_text(s, "plain.txt.gz", "not packed");
    assert_int_equal(expand(s, &plain, 1, &files, &count), LS_ERR_DATA);
    assert_error_has("does not hold gzip data, although its suffix says so");
    const char *tokens = scratch_write(s, "t.bin.gz", out, gzip_into(line, strlen(line), out, sizeof out));
    assert_int_equal(expand(s, &tokens, 1, &files, &count), LS_ERR_DATA);
    assert_error_has("decompress it first");
}

/* ---- records ---- */

/* Reads all documents of `text`, joined with | in `out`. */
static ls_status read_all(ls_corpus_kind kind, const char *field, const char *text, size_t bytes, char *out)
{
    const ls_corpus_file file = {.path = "f", .kind = kind, .field = field};
    ls_records records;
    LS_TRY(ls_records_open(&file, text, bytes, &records));
    ls_record_cursor cursor = records.first;
    out[0] = '\0';
    while (cursor.at < bytes) {
        ls_record record;
        ls_record_document document;
        LS_TRY(ls_records_next(&records, &cursor, &record));
        if (record.data) {
            LS_TRY(ls_records_read(&records, &record, &document));
            strncat(out, document.text, document.bytes);
            strcat(out, "|");
            ls_record_document_release(&document);
        }
    }
    return LS_OK;
}

typedef struct records_case {
    ls_corpus_kind kind;
    const char *field, *text, *wanted;
} records_case;

static void records_are_read(void **state)
{
    (void)state;
    static const records_case cases[] = {
        {LS_CORPUS_JSONL, NULL, "\xef\xbb\xbf{\"text\": \"a\"}\n\n {\"text\": \"b\"}\r\n", "a|b|"},
        {LS_CORPUS_JSONL, "body", "{\"body\": \"a\", \"text\": \"no\"}", "a|"},
        {LS_CORPUS_JSON, NULL, "[]", ""},
        {LS_CORPUS_JSON, NULL,
         " [ {\"text\": \"a]}\\\"{\", \"n\": [1, {\"x\": {}}]}\n,{\n\"text\":\n\"b\"} ]\n", "a]}\"{|b|"},
        {LS_CORPUS_JSON, NULL, "{\"text\": \"a\"}\n{\"text\":\n \"b\"}{\"text\": \"c\"}\n", "a|b|c|"},
        {LS_CORPUS_JSON, "t", "{\"t\": \"only\"}", "only|"},
        {LS_CORPUS_CSV, NULL, "text\na\nb", "a|b|"},
        {LS_CORPUS_CSV, NULL, "\xef\xbb\xbfid,text\r\n1,a b \r\n\r\n2,\"x, \"\"y\"\"\r\nz\"\r\n",
         "a b |x, \"y\"\r\nz|"},
        {LS_CORPUS_CSV, "the body", "\"the body\",n\n\"\",1\n5\" disk,2\n", "|5\" disk|"},
        {LS_CORPUS_CSV, NULL, "text,b\n,\n", "|"},
        {LS_CORPUS_CSV, NULL, "text\n\"\"\n\"a\"\r", "|a|"},
        {LS_CORPUS_TSV, NULL, "a\ttext\n1,2\tx, y\n", "x, y|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[256];
        const records_case *c = &cases[i];
        assert_int_equal(read_all(c->kind, c->field, c->text, strlen(c->text), out), LS_OK);
        assert_string_equal(out, c->wanted);
    }
}

static void records_refuse_what_is_broken(void **state)
{
    (void)state;
    static const records_case cases[] = {
        {LS_CORPUS_JSON, NULL, "\"text\"", "f:1: '\"' stands where [ or { is needed"},
        {LS_CORPUS_JSON, NULL, "[", "f:1: the file ends here, but an object {...} or ] is needed"},
        {LS_CORPUS_JSON, NULL, "[\"a\"]", "f:1: '\"' stands where an object {...} or ]"},
        {LS_CORPUS_JSON, NULL, "[{\"text\": \"a\"}\n", "f:2: the file ends here, but a comma or ]"},
        {LS_CORPUS_JSON, NULL, "[{\"text\": \"a\"},\n]", "f:2: ']' stands where an object"},
        {LS_CORPUS_JSON, NULL, "[{\"text\": \"a\"} {\"text\": \"b\"}]", "'{' stands where a comma"},
        {LS_CORPUS_JSON, NULL, "[{\"text\": \"a\"}]\nx", "f:2: 'x' stands where the end of the file"},
        {LS_CORPUS_JSON, NULL, "[\n{\"text\": \"a", "f:2: the object that begins here has no end"},
        {LS_CORPUS_JSON, NULL, "[\n{\"text\": \"a\",\n\"b\": nul}]", "f:3: not valid JSON"},
        {LS_CORPUS_JSON, NULL, "{\"data\": [], \"v\": 1}", "no key `text`; its keys: data, v. Name the key"},
        {LS_CORPUS_JSON, NULL, "{\"instruction\": \"a\", \"output\": \"b\"}",
         "`instruction` but no `text`: it is not plain text"},
        {LS_CORPUS_JSON, "body", "{\"text\": \"a\"}", "no key `body`"},
        {LS_CORPUS_CSV, NULL, "a,b\n1,2\n", "f:1: the first row names no column `text`; its columns: a, b."},
        {LS_CORPUS_CSV, NULL, "text,b\n1,2\n\n3\n",
         "f:4: the row has 1 cell, but the first row names 2 columns"},
        {LS_CORPUS_CSV, NULL, "text\n\"a\nb\n\"c\n", "f:4: 'c' follows the quote that ends a cell"},
        {LS_CORPUS_CSV, NULL, "text\nx\n\"a\nb", "f:3: the quote that begins a cell here is never closed"},
        {LS_CORPUS_CSV, NULL, "text\na\xff\n", "f:2: broken UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[256];
        const records_case *c = &cases[i];
        assert_int_equal(read_all(c->kind, c->field, c->text, strlen(c->text), out), LS_ERR_DATA);
        assert_error_has(c->wanted);
    }
}

/* Whatever the bytes are, cutting them into records ends, and never reads past them. */
static void records_end_on_any_bytes(void **state)
{
    (void)state;
    static const char alphabet[] = "{}[]\",\\\n\r\t :text\"1\xc3";
    static const ls_corpus_kind kinds[] = {LS_CORPUS_JSONL, LS_CORPUS_JSON, LS_CORPUS_CSV, LS_CORPUS_TSV};
    uint32_t random = 7;
    for (int i = 0; i < 20000; i++) {
        char text[48], out[256];
        size_t bytes = (size_t)i % sizeof text;
        for (size_t k = 0; k < bytes; k++) {
            random = random * 1664525u + 1013904223u;
            text[k] = alphabet[(random >> 20) % (sizeof alphabet - 1)];
        }
        if (i % 3 && bytes >= 6) {
            memcpy(text, i % 2 ? "text\n\"" : "[{\"text", 6);
        }
        /* A copy of exactly this size, so that AddressSanitizer sees what is read past it. */
        char *copy = malloc(bytes ? bytes : 1);
        memcpy(copy, text, bytes);
        const ls_status status = read_all(kinds[i % 4], NULL, copy, bytes, out);
        assert_true(status == LS_OK || status == LS_ERR_DATA);
        free(copy);
    }
}

static void utf8_valid_bytes_knows_the_edges(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t valid;
    } cases[] = {
        {"", 0},
        {"plain ascii, longer than eight bytes", 36},
        {"\xc2\x80", 2},                 /* U+0080 */
        {"\xdf\xbf", 2},                 /* U+07FF */
        {"\xe0\xa0\x80", 3},             /* U+0800 */
        {"\xed\x9f\xbf", 3},             /* U+D7FF */
        {"\xee\x80\x80", 3},             /* U+E000 */
        {"\xf0\x90\x80\x80", 4},         /* U+10000 */
        {"\xf4\x8f\xbf\xbf", 4},         /* U+10FFFF */
        {"abcdefghij\xc3\xa4 \xff", 13}, /* stray byte after good text */
        {"\x80", 0},                     /* continuation alone */
        {"\xc0\xaf", 0},                 /* overlong */
        {"\xc1\xbf", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xed\xa0\x80", 0},     /* surrogate */
        {"\xf4\x90\x80\x80", 0}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"a\xe2\x82", 1}, /* cut off */
        {"a\xe2\x82z", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ls_utf8_valid_prefix(cases[i].text, strlen(cases[i].text)), cases[i].valid);
    }
}

static void text_check_names_the_offset_and_a_remedy(void **state)
{
    (void)state;
    assert_int_equal(ls_text_check("ab\0cd", 5, "x.txt", false), LS_ERR_DATA);
    assert_error_has("x.txt is not text: it has a NUL byte at offset 2");
    assert_int_equal(ls_text_check("one\ntwo\xe4\n", 9, "x.txt", true), LS_ERR_DATA);
    assert_error_has("x.txt:2: broken UTF-8, byte 0xe4 at offset 7");
    assert_int_equal(ls_text_check("one\ntwo\xe4\n", 9, "x.txt", false), LS_OK);
    assert_int_equal(ls_text_check("", 0, "x.txt", true), LS_OK);
}

/* Reads the document of line 12 of a file. */
static ls_status read_line(const char *line, size_t bytes, ls_record_document *got)
{
    const ls_corpus_file file = {.path = "f.jsonl", .kind = LS_CORPUS_JSONL};
    ls_records records;
    assert_int_equal(ls_records_open(&file, line, bytes, &records), LS_OK);
    return ls_records_read(&records, &(ls_record){.data = line, .bytes = bytes, .line = 12}, got);
}

static void expect_line(const char *line, const char *text, size_t text_bytes)
{
    ls_record_document got = {0};
    assert_int_equal(read_line(line, strlen(line), &got), LS_OK);
    assert_int_equal(got.bytes, text_bytes);
    assert_memory_equal(got.text, text, text_bytes);
    ls_record_document_release(&got);
}

static void records_read_line_finds_the_text(void **state)
{
    (void)state;
    expect_line("{\"text\": \"hello\"}", "hello", 5);
    expect_line("{\"id\": 123456789012345678901234567890, \"text\": \"a\\n\\u00e4\\ud83d\\ude00\"}\r",
                "a\n\xc3\xa4\xf0\x9f\x98\x80", 8);
    expect_line("{\"text\": \"\"}", "", 0);
    assert_true(ls_jsonl_is_blank(" \t\r", 3));
    assert_true(ls_jsonl_is_blank("", 0));
    assert_false(ls_jsonl_is_blank(" x", 2));
}

static void expect_left_out(const char *line)
{
    ls_record_document got = {.text = "x", .bytes = 77};
    assert_int_equal(read_line(line, strlen(line), &got), LS_OK);
    assert_null(got.text);
    assert_int_equal(got.bytes, 0);
    ls_record_document_release(&got);
}

static void records_read_line_bears_what_programs_write(void **state)
{
    (void)state;
    expect_left_out("{\"text\": null}");
    expect_left_out("{\"text\": \"a\\ud83d\"}");
    expect_left_out("{\"text\": \"\\ude00\\ud83d b\"}");
    expect_left_out("{\"text\": \"a\\u0000b\"}");
    expect_line("{\"score\": NaN, \"text\": \"NaN \\\"Infinity\"}", "NaN \"Infinity", 13);
    expect_line("{\"text\": \"a\", \"x\": [-Infinity, Infinity,NaN]}", "a", 1);
    expect_line("{\"author\": \"\\uD83D\", \"text\": \"\\ud83d\\ude00 \\\\ud83d\"}",
                "\xf0\x9f\x98\x80 \\ud83d", 11);
    expect_line("{\"text\": \"\\ufffd\"}", "\xef\xbf\xbd", 3); /* written by the author */
}

static void expect_refused_line(const char *line, size_t bytes, const char *part)
{
    ls_record_document got = {.bytes = 77};
    assert_int_equal(read_line(line, bytes, &got), LS_ERR_DATA);
    assert_error_has("f.jsonl:12: ");
    assert_error_has(part);
    assert_null(got.root);
    assert_null(got.text);
    assert_int_equal(got.bytes, 77);
}

static void records_read_line_refuses_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"{\"text\": \"cut", "not valid JSON"},
        {"{\"text\": \"a\"} {\"text\": \"b\"}", "not valid JSON"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate"},
        {"{\"text\": \"a\", \"x\": nan}", "not valid JSON"},
        {"[1, 2]", "must be one JSON object"},
        {"\"text\"", "must be one JSON object"},
        {"{\"content\": \"a\"}", "no key `text`"},
        {"{\"text\": 7}", "`text` must be a string"},
        {"{\"messages\": []}", "`messages` but no `text`"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}", "`prompt` but no `text`"},
        {"{\"text\": \"a\xff\"}", "broken UTF-8, byte 0xff in column 12"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused_line(cases[i].line, strlen(cases[i].line), cases[i].part);
    }
    expect_refused_line("{\"text\": \"a\0\"}", 14, "NUL byte");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        CASE(corpus_expand_sorts_drops_repeats_and_tells_kinds),
        CASE(corpus_expand_refuses_what_is_not_there),
        CASE(corpus_expand_reads_folders),
        CASE(corpus_expand_refuses_formats_by_name),
        CASE(unpack_gives_the_content_or_says_why_not),
        CASE(corpus_expand_sees_through_packing),
        CASE(records_are_read),
        CASE(records_refuse_what_is_broken),
        CASE(records_end_on_any_bytes),
        CASE(utf8_valid_bytes_knows_the_edges),
        CASE(text_check_names_the_offset_and_a_remedy),
        CASE(records_read_line_finds_the_text),
        CASE(records_read_line_bears_what_programs_write),
        CASE(records_read_line_refuses_bad_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
