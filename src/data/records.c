// SPDX-License-Identifier: Apache-2.0
#include "data/records.h"

#include "base/log.h"
#include "base/text.h"
#include "data/jsonl.h"
#include "data/text.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

static ls_jsonl_line line_of(const ls_records *r, const ls_record *record)
{
    return (ls_jsonl_line){
        .path = r->file->path, .number = record->line, .data = record->data, .bytes = record->bytes};
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

static ls_record next_line(const ls_records *r, ls_record_cursor *cursor)
{
    while (cursor->at < r->bytes) {
        const char *at = r->data + cursor->at;
        const char *newline = memchr(at, '\n', r->bytes - cursor->at);
        const size_t bytes = newline ? (size_t)(newline - at) : r->bytes - cursor->at;
        const ls_record record = {.data = at, .bytes = bytes, .line = cursor->line};
        cursor->at += bytes + (newline != NULL);
        cursor->line++;
        if (!ls_jsonl_is_blank(at, bytes)) {
            return record;
        }
    }
    return (ls_record){0};
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The character at the cursor, after white space; 0 at the end. */
static char skip_space(const ls_records *r, ls_record_cursor *cursor)
{
    for (; cursor->at < r->bytes; cursor->at++) {
        const char c = r->data[cursor->at];
        if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
            return c ? c : ' ';
        }
        cursor->line += c == '\n';
    }
    return 0;
}

static ls_status fail_json(const ls_records *r, const ls_record_cursor *cursor, const char *wanted)
{
    if (cursor->at >= r->bytes) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: the file ends here, but %s is needed: the file is truncated",
                       r->file->path, (ull)cursor->line, wanted);
    }
    const unsigned char c = (unsigned char)r->data[cursor->at];
    const char seen[] = {'\'', (char)c, '\'', '\0'};
    return ls_fail(
        LS_ERR_DATA,
        "%s:%llu: %s stands where %s is needed: a .json file holds an array of objects, or objects one "
        "after another",
        r->file->path, (ull)cursor->line, c > ' ' && c < 127 ? seen : "something else", wanted);
}

/* Moves past the object at the cursor. What is inside is checked when the record is read. */
static bool skip_object(const ls_records *r, ls_record_cursor *cursor)
{
    size_t depth = 0;
    bool in_string = false;
    for (; cursor->at < r->bytes; cursor->at++) {
        const char c = r->data[cursor->at];
        cursor->line += c == '\n';
        if (in_string) {
            in_string = c != '"';
            cursor->at += c == '\\';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            cursor->at++;
            return true;
        }
    }
    cursor->at = r->bytes;
    return false;
}

/* After an element of an array: moves past the comma, or stays at the closing bracket. */
static ls_status skip_comma(const ls_records *r, ls_record_cursor *cursor)
{
    const char c = skip_space(r, cursor);
    if (c == ']') {
        return LS_OK;
    }
    if (c != ',') {
        return fail_json(r, cursor, "a comma or ]");
    }
    cursor->at++;
    return skip_space(r, cursor) == '{' ? LS_OK : fail_json(r, cursor, "an object {...}");
}

static ls_status next_object(const ls_records *r, ls_record_cursor *cursor, ls_record *record_out)
{
    *record_out = (ls_record){0};
    if (cursor->at == r->bytes) {
        return LS_OK;
    }
    const char c = skip_space(r, cursor);
    if (c == 0 && !r->in_array) {
        return LS_OK;
    }
    if (c == ']' && r->in_array) {
        cursor->at++;
        return skip_space(r, cursor) == 0 ? LS_OK : fail_json(r, cursor, "the end of the file");
    }
    if (c != '{') {
        return fail_json(r, cursor, r->in_array ? "an object {...} or ]" : "an object {...}");
    }
    const ls_record_cursor begin = *cursor;
    if (!skip_object(r, cursor)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: the object that begins here has no end: the file is truncated",
                       r->file->path, (ull)begin.line);
    }
    *record_out = (ls_record){.data = r->data + begin.at, .bytes = cursor->at - begin.at, .line = begin.line};
    return r->in_array ? skip_comma(r, cursor) : LS_OK;
}

static ls_status open_json(ls_records *r)
{
    const char c = skip_space(r, &r->first);
    if (c != '[' && c != '{') {
        return fail_json(r, &r->first, "[ or {");
    }
    r->in_array = c == '[';
    r->first.at += r->in_array;
    ls_record_cursor after = r->first;
    return skip_space(r, &after) ? LS_OK : fail_json(r, &after, "an object {...} or ]");
}

/* ---- CSV ------------------------------------------------------------------------------------- */

typedef struct cell {
    /* Without the quotes around it; quotes inside are still doubled. */
    const char *data;
    size_t bytes;
    bool quoted;
    /* The last one of its row. */
    bool last;
} cell;

/* The offset of the quote that ends the cell whose text begins at `at`; r->bytes: there is none. */
static size_t closing_quote(const ls_records *r, size_t at)
{
    while (at < r->bytes) {
        const char *quote = memchr(r->data + at, '"', r->bytes - at);
        at = quote ? (size_t)(quote - r->data) : r->bytes;
        if (at + 1 >= r->bytes || r->data[at + 1] != '"') {
            return at;
        }
        at += 2;
    }
    return r->bytes;
}

static ls_status next_quoted_cell(const ls_records *r, ls_record_cursor *cursor, cell *cell_out)
{
    const size_t begin = cursor->at + 1, end = closing_quote(r, begin);
    if (end >= r->bytes) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: the quote that begins a cell here is never closed",
                       r->file->path, (ull)cursor->line);
    }
    *cell_out = (cell){.data = r->data + begin, .bytes = end - begin, .quoted = true};
    for (size_t i = begin; i < end; i++) {
        cursor->line += r->data[i] == '\n';
    }
    cursor->at = end + 1;
    return LS_OK;
}

static void next_plain_cell(const ls_records *r, ls_record_cursor *cursor, cell *cell_out)
{
    const size_t begin = cursor->at;
    while (cursor->at < r->bytes && r->data[cursor->at] != r->delimiter && r->data[cursor->at] != '\n') {
        cursor->at++;
    }
    const bool ends_line = cursor->at == r->bytes || r->data[cursor->at] == '\n';
    const bool has_return = ends_line && cursor->at > begin && r->data[cursor->at - 1] == '\r';
    *cell_out = (cell){.data = r->data + begin, .bytes = cursor->at - begin - has_return};
}

/* Reads the cell at the cursor and moves past its delimiter or line end. */
static ls_status next_cell(const ls_records *r, ls_record_cursor *cursor, cell *cell_out)
{
    if (cursor->at < r->bytes && r->data[cursor->at] == '"') {
        LS_TRY(next_quoted_cell(r, cursor, cell_out));
        const bool has_return = cursor->at < r->bytes && r->data[cursor->at] == '\r';
        cursor->at += has_return && (cursor->at + 1 == r->bytes || r->data[cursor->at + 1] == '\n');
    } else {
        next_plain_cell(r, cursor, cell_out);
    }
    cell_out->last = cursor->at == r->bytes || r->data[cursor->at] == '\n';
    if (!cell_out->last && r->data[cursor->at] != r->delimiter) {
        return ls_fail(
            LS_ERR_DATA,
            "%s:%llu: '%c' follows the quote that ends a cell; a %s or the end of the line is needed, "
            "and a quote inside a quoted cell is written twice",
            r->file->path, (ull)cursor->line, r->data[cursor->at],
            r->delimiter == ','   ? "comma"
            : r->delimiter == ';' ? "semicolon"
                                  : "tab");
    }
    cursor->line += cursor->at < r->bytes && cell_out->last;
    cursor->at += cursor->at < r->bytes;
    return LS_OK;
}

static ls_status next_row(const ls_records *r, ls_record_cursor *cursor, ls_record *record_out)
{
    *record_out = (ls_record){0};
    while (cursor->at < r->bytes) {
        const ls_record_cursor begin = *cursor;
        cell c = {0};
        bool blank = true;
        while (!c.last) {
            LS_TRY(next_cell(r, cursor, &c));
            blank = blank && c.last && c.bytes == 0 && !c.quoted;
        }
        if (!blank) {
            *record_out =
                (ls_record){.data = r->data + begin.at, .bytes = cursor->at - begin.at, .line = begin.line};
            return LS_OK;
        }
    }
    return LS_OK;
}

/* The text of a cell with its doubled quotes made single, in `out` of at least c->bytes. */
static size_t unquote(const cell *c, char *out)
{
    size_t bytes = 0;
    for (size_t i = 0; i < c->bytes; i++) {
        out[bytes++] = c->data[i];
        i += c->quoted && c->data[i] == '"';
    }
    return bytes;
}

/* The text of a cell in memory of its own; NULL: there is no memory. */
static char *copy_cell(const cell *c, size_t *bytes_out)
{
    char *copy = malloc(c->bytes + 1);
    if (copy) {
        *bytes_out = unquote(c, copy);
        copy[*bytes_out] = '\0';
    }
    return copy;
}

static ls_status fail_cells(const ls_records *r, const ls_record *record, uint32_t count)
{
    return ls_fail(LS_ERR_DATA, "%s:%llu: the row has %u cell%s, but the first row names %u column%s",
                   r->file->path, (ull)record->line, count, count == 1 ? "" : "s", r->column_count,
                   r->column_count == 1 ? "" : "s");
}

/* Sets the value of one column; of columns with one name, the first counts. */
static bool set_member(json_t *object, const cell *name, const cell *value)
{
    size_t key_bytes = 0, bytes = 0;
    char *key = copy_cell(name, &key_bytes), *text = copy_cell(value, &bytes);
    const bool done = key && text &&
                      (json_object_getn(object, key, key_bytes) ||
                       json_object_setn_new(object, key, key_bytes, json_stringn(text, bytes)) == 0);
    free(key);
    free(text);
    return done;
}

static ls_status row_object(const ls_records *r, const ls_record *record, json_t *object)
{
    const ls_jsonl_line line = line_of(r, record);
    LS_TRY(ls_jsonl_check(&line));
    ls_record_cursor cursor = {.at = (size_t)(record->data - r->data), .line = record->line};
    ls_record_cursor header = {.at = r->header_at, .line = 1};
    cell name = {0}, value = {0};
    uint32_t count = 0;
    for (; !value.last; count++) {
        LS_TRY(name.last ? LS_OK : next_cell(r, &header, &name));
        LS_TRY(next_cell(r, &cursor, &value));
        if (count < r->column_count && !set_member(object, &name, &value)) {
            return ls_fail(LS_ERR_DATA, "%s:%llu: a cell or the name of its column cannot be read",
                           r->file->path, (ull)record->line);
        }
    }
    return count == r->column_count ? LS_OK : fail_cells(r, record, count);
}

static ls_status fail_without_column(const ls_records *r, const ls_text *names, uint64_t line)
{
    return ls_fail(LS_ERR_DATA,
                   "%s:%llu: the first row names no column `%s`; its columns: %s. Name the column that holds "
                   "the document with data.field (run file) or --field",
                   r->file->path, (ull)line, ls_corpus_field(r->file), ls_text_string(names));
}

static ls_status find_column(ls_records *r, ls_text *names)
{
    const ls_record_cursor begin = r->first;
    const char *field = ls_corpus_field(r->file);
    bool found = false;
    for (cell c = {0}; !c.last; r->column_count++) {
        LS_TRY(next_cell(r, &r->first, &c));
        char name[256];
        const bool fits = c.bytes <= sizeof name;
        const size_t bytes = fits ? unquote(&c, name) : 0;
        if (fits && !found && bytes == strlen(field) && memcmp(name, field, bytes) == 0) {
            found = true;
        }
        if (r->column_count < 8) {
            ls_text_append(names, names->bytes ? ", " : "");
            ls_text_append_printable(names, c.data, c.bytes < 40 ? c.bytes : 40, "");
        }
    }
    r->header_at = begin.at;
    return found || r->file->form != LS_RECORD_TEXT ? LS_OK : fail_without_column(r, names, begin.line);
}

/* Spreadsheets write semicolons where a comma is the decimal point. */
static ls_status open_csv(ls_records *r)
{
    ls_text names = {0};
    const char *row = r->data + r->first.at;
    const size_t left = r->bytes - r->first.at;
    const char *end = memchr(row, '\n', left);
    const size_t length = end ? (size_t)(end - row) : left;
    const bool is_semicolons = !memchr(row, ',', length) && memchr(row, ';', length);
    r->delimiter = r->file->kind == LS_CORPUS_TSV ? '\t' : is_semicolons ? ';' : ',';
    const ls_status status = find_column(r, &names);
    ls_text_release(&names);
    return status;
}

/* ---- all formats ----------------------------------------------------------------------------- */

ls_status ls_records_open(const ls_corpus_file *file, const char *data, size_t bytes, ls_records *records_out)
{
    ls_records r = {.file = file,
                    .data = data,
                    .bytes = bytes,
                    .first = {.at = ls_text_mark_bytes(data, bytes), .line = 1}};
    if (file->kind == LS_CORPUS_JSON) {
        LS_TRY(open_json(&r));
    } else if (file->kind == LS_CORPUS_CSV || file->kind == LS_CORPUS_TSV) {
        LS_TRY(open_csv(&r));
    }
    *records_out = r;
    return LS_OK;
}

ls_status ls_records_next(const ls_records *records, ls_record_cursor *cursor, ls_record *record_out)
{
    switch (records->file->kind) {
    case LS_CORPUS_JSON:
        return next_object(records, cursor, record_out);
    case LS_CORPUS_CSV:
    case LS_CORPUS_TSV:
        return next_row(records, cursor, record_out);
    default:
        *record_out = next_line(records, cursor);
        return LS_OK;
    }
}

static bool is_table(const ls_records *r)
{
    return r->file->kind == LS_CORPUS_CSV || r->file->kind == LS_CORPUS_TSV;
}

static ls_status read_object(const ls_records *r, const ls_record *record, json_t **object_out,
                             bool *is_mended_out)
{
    const ls_jsonl_line line = line_of(r, record);
    *is_mended_out = false;
    if (!is_table(r)) {
        return ls_jsonl_parse(&line, object_out, is_mended_out);
    }
    json_t *object = json_object();
    const ls_status status = row_object(r, record, object);
    if (status != LS_OK) {
        json_decref(object);
        return status;
    }
    *object_out = object;
    return LS_OK;
}

ls_status ls_records_object(const ls_records *records, const ls_record *record, json_t **object_out)
{
    bool is_mended = false;
    json_t *object = NULL;
    LS_TRY(read_object(records, record, &object, &is_mended));
    char *text = is_mended ? json_dumps(object, JSON_ENCODE_ANY) : NULL;
    const bool is_broken = text && strstr(text, LS_JSONL_REPLACEMENT);
    free(text);
    if (is_broken) {
        json_decref(object);
        return ls_fail(LS_ERR_DATA,
                       "%s:%llu: the record has characters that are not Unicode (half a surrogate pair, NUL)",
                       records->file->path, (ull)record->line);
    }
    *object_out = object;
    return LS_OK;
}

/* ---- documents ------------------------------------------------------------------------------- */

static ls_status fail_with_keys(const ls_records *r, const ls_record *record, const json_t *root)
{
    ls_text keys = {0};
    ls_record_keys(root, &keys);
    const ls_status status = ls_fail(
        LS_ERR_DATA,
        "%s:%llu: the object has no key `%s`; its keys: %s. Name the key that holds the document with "
        "data.field (run file) or --field",
        r->file->path, (ull)record->line, ls_corpus_field(r->file), ls_text_string(&keys));
    ls_text_release(&keys);
    return status;
}

/* Says why an object without the field can't be used. */
static ls_status fail_without_field(const ls_records *r, const ls_record *record, const json_t *root)
{
    static const char *const tuning_keys[] = {"messages", "conversations", "prompt", "completion",
                                              "instruction"};
    for (size_t i = 0; i < sizeof tuning_keys / sizeof tuning_keys[0]; i++) {
        if (!json_object_get(root, tuning_keys[i])) {
            continue;
        }
        if (r->file->form_line > 0) {
            return ls_fail(
                LS_ERR_DATA,
                "%s:%llu: the record has `%s` but no `%s`, while that of line %llu is text: a file "
                "holds records of one form; move the others to a file of their own",
                r->file->path, (ull)record->line, tuning_keys[i], ls_corpus_field(r->file),
                (ull)r->file->form_line);
        }
        return ls_fail(LS_ERR_DATA,
                       "%s:%llu: the record has `%s` but no `%s`: it is not plain text. Training reads it as "
                       "a conversation; to use one of its keys as plain text, name the key with "
                       "data.field (run file) or --field",
                       r->file->path, (ull)record->line, tuning_keys[i], ls_corpus_field(r->file));
    }
    return fail_with_keys(r, record, root);
}

static ls_status find_text(const ls_records *r, const ls_record *record, const json_t *root,
                           const json_t **text_out)
{
    const json_t *text = json_object_get(root, ls_corpus_field(r->file));
    if (!json_is_object(root)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: a line must be one JSON object with a key `%s`", r->file->path,
                       (ull)record->line, ls_corpus_field(r->file));
    }
    if (!text) {
        return fail_without_field(r, record, root);
    }
    if (!json_is_string(text) && !json_is_null(text)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: the value of key `%s` must be a string", r->file->path,
                       (ull)record->line, ls_corpus_field(r->file));
    }
    *text_out = text;
    return LS_OK;
}

ls_status ls_records_read(const ls_records *records, const ls_record *record,
                          ls_record_document *document_out)
{
    bool is_mended = false;
    json_t *root = NULL;
    const json_t *text = NULL;
    LS_TRY(read_object(records, record, &root, &is_mended));
    const ls_status status = find_text(records, record, root, &text);
    if (status != LS_OK) {
        json_decref(root);
        return status;
    }
    /* A replaced character is in the document, or under another key only. */
    const bool has_text =
        json_is_string(text) && !(is_mended && strstr(json_string_value(text), LS_JSONL_REPLACEMENT));
    *document_out = (ls_record_document){.root = root,
                                         .text = has_text ? json_string_value(text) : NULL,
                                         .bytes = has_text ? json_string_length(text) : 0};
    return LS_OK;
}

void ls_record_document_release(ls_record_document *document)
{
    json_decref(document->root);
    *document = (ls_record_document){0};
}

void ls_records_left_add(ls_records_left *left, uint64_t count, uint64_t first_line)
{
    if (left->count == 0) {
        left->first_line = first_line;
    }
    left->count += count;
}

void ls_records_left_tell(const ls_records_left *left, const char *path)
{
    if (left->count > 0) {
        ls_log_warn("data: left out %llu record%s of %s whose text is null or has characters that are not "
                    "Unicode (half a surrogate pair, NUL); the first is in line %llu",
                    (ull)left->count, left->count == 1 ? "" : "s", path, (ull)left->first_line);
    }
}
