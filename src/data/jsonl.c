// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

#include "base/text.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

bool ls_jsonl_is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

ls_status ls_jsonl_check(const ls_jsonl_line *line)
{
    if (memchr(line->data, 0, line->bytes)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: the line contains a NUL byte: the file is binary or damaged",
                       line->path, (ull)line->number);
    }
    const size_t valid = ls_utf8_valid_prefix(line->data, line->bytes);
    if (valid < line->bytes) {
        return ls_fail(
            LS_ERR_DATA,
            "%s:%llu: broken UTF-8, byte 0x%02x in column %zu: the file must be UTF-8; convert it, "
            "for example with `iconv -f LATIN1 -t UTF-8`",
            line->path, (ull)line->number, (unsigned char)line->data[valid], valid + 1);
    }
    return LS_OK;
}

static const char *field_of(const ls_jsonl_line *line)
{
    return line->field ? line->field : LS_FIELD_DEFAULT;
}

/* Fails with the keys that the object has. */
static ls_status fail_with_keys(json_t *root, const ls_jsonl_line *line)
{
    enum { KEYS_MAX = 8 };
    ls_text keys = {0};
    const char *key;
    json_t *value;
    size_t count = 0;
    json_object_foreach(root, key, value)
    {
        if (count++ < KEYS_MAX) {
            ls_text_append(&keys, keys.bytes ? ", " : "");
            ls_text_append_printable(&keys, key, strnlen(key, 40), "");
        }
    }
    const ls_status status = ls_fail(
        LS_ERR_DATA,
        "%s:%llu: the object has no key `%s`; its keys: %s%s. Name the key that holds the document with "
        "data.field (run file) or --field",
        line->path, (ull)line->number, field_of(line), count ? ls_text_string(&keys) : "none",
        count > KEYS_MAX ? ", ..." : "");
    ls_text_release(&keys);
    return status;
}

/* Says why an object without the field can't be used. */
static ls_status fail_without_field(json_t *root, const ls_jsonl_line *line)
{
    static const char *const tuning_keys[] = {"messages", "conversations", "prompt", "completion",
                                              "instruction"};
    for (size_t i = 0; i < sizeof tuning_keys / sizeof tuning_keys[0]; i++) {
        if (!json_object_get(root, tuning_keys[i])) {
            continue;
        }
        if (line->first > 0) {
            return ls_fail(
                LS_ERR_DATA,
                "%s:%llu: the record has `%s` but no `%s`, while that of line %llu is text: a file "
                "holds records of one form; move the others to a file of their own",
                line->path, (ull)line->number, tuning_keys[i], field_of(line), (ull)line->first);
        }
        return ls_fail(LS_ERR_DATA,
                       "%s:%llu: the record has `%s` but no `%s`: it is not plain text. Training reads it as "
                       "a conversation; to use one of its keys as plain text, name the key with "
                       "data.field (run file) or --field",
                       line->path, (ull)line->number, tuning_keys[i], field_of(line));
    }
    return fail_with_keys(root, line);
}

static ls_status find_text(json_t *root, const ls_jsonl_line *line, const json_t **text_out)
{
    const json_t *text = json_object_get(root, field_of(line));
    if (!json_is_object(root)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: a line must be one JSON object with a key `%s`", line->path,
                       (ull)line->number, field_of(line));
    }
    if (!text) {
        return fail_without_field(root, line);
    }
    if (!json_is_string(text) && !json_is_null(text)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: the value of key `%s` must be a string", line->path,
                       (ull)line->number, field_of(line));
    }
    *text_out = text;
    return LS_OK;
}

/* ---- what JSON or Unicode does not allow ---- */

/* U+FFFD, which takes the place of what is no character. */
static const char replacement[] = "\xef\xbf\xbd";

/* The value of the four hexadecimal digits of an escape, "\\uXXXX"; -1 if it is none. */
static long escape_at(const char *text, size_t bytes)
{
    char digits[5] = "";
    if (bytes < 6 || text[0] != '\\' || text[1] != 'u') {
        return -1;
    }
    memcpy(digits, text + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

/* At a backslash: replaces an escape that is no character. Returns the bytes that were read. */
static size_t mend_escape(char *text, size_t bytes)
{
    const long code = escape_at(text, bytes);
    if (code < 0) {
        return bytes < 2 ? bytes : 2;
    }
    const bool is_high = code >= 0xd800 && code < 0xdc00;
    const long low = is_high && bytes > 6 ? escape_at(text + 6, bytes - 6) : -1;
    if (low >= 0xdc00 && low < 0xe000) {
        return 12;
    }
    if (code == 0 || (code >= 0xd800 && code < 0xe000)) {
        memcpy(text + 2, "fffd", 4);
    }
    return 6;
}

/* Outside a string: replaces a number that JSON does not have. Returns the bytes that were read. */
static size_t mend_number(char *text, size_t bytes)
{
    static const char *const words[] = {"NaN", "Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t length = strlen(words[i]);
        if (bytes >= length && memcmp(text, words[i], length) == 0) {
            memset(text, ' ', length);
            text[0] = '0';
            return length;
        }
    }
    return 1;
}

/* Replaces what JSON or Unicode does not allow by something of the same length. */
static void mend(char *text, size_t bytes)
{
    bool in_string = false;
    for (size_t at = 0; at < bytes;) {
        if (text[at] == '"') {
            in_string = !in_string;
            at++;
        } else if (in_string) {
            at += text[at] == '\\' ? mend_escape(text + at, bytes - at) : 1;
        } else {
            at += mend_number(text + at, bytes - at);
        }
    }
}

enum { PARSE_FLAGS = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY };

static json_t *parse(const char *data, size_t bytes, json_error_t *error)
{
    /* Whole numbers are read as reals, so that an id of more than 64 bits under another key is no
     * reason to refuse the line. */
    return json_loadb(data, bytes, PARSE_FLAGS | JSON_DECODE_INT_AS_REAL, error);
}

/* NULL: it is not JSON even so. */
static json_t *parse_mended(const ls_jsonl_line *line)
{
    json_error_t ignored;
    char *copy = malloc(line->bytes + 1);
    if (!copy) {
        return NULL;
    }
    memcpy(copy, line->data, line->bytes);
    mend(copy, line->bytes);
    json_t *root = parse(copy, line->bytes, &ignored);
    free(copy);
    return root;
}

static ls_status fail_parse(const ls_jsonl_line *line, const json_error_t *error)
{
    return ls_fail(LS_ERR_DATA, "%s:%llu: not valid JSON: %s (column %d)", line->path,
                   (ull)line->number + (error->line > 1 ? (ull)error->line - 1 : 0), error->text,
                   error->column);
}

ls_status ls_jsonl_parse(const ls_jsonl_line *line, json_t **root_out)
{
    LS_TRY(ls_jsonl_check(line));
    json_error_t error, ignored;
    json_t *root = json_loadb(line->data, line->bytes, PARSE_FLAGS, &error);
    root = root ? root : parse(line->data, line->bytes, &ignored);
    if (!root) {
        root = parse_mended(line);
        char *text = root ? json_dumps(root, JSON_ENCODE_ANY) : NULL;
        const bool is_broken = text && strstr(text, replacement);
        free(text);
        if (is_broken) {
            json_decref(root);
            return ls_fail(
                LS_ERR_DATA,
                "%s:%llu: the record has characters that are not Unicode (half a surrogate pair, NUL)",
                line->path, (ull)line->number);
        }
    }
    if (!root) {
        return fail_parse(line, &error);
    }
    *root_out = root;
    return LS_OK;
}

ls_status ls_jsonl_read(const ls_jsonl_line *line, ls_jsonl_document *document_out)
{
    LS_TRY(ls_jsonl_check(line));
    json_error_t error;
    json_t *root = parse(line->data, line->bytes, &error);
    const bool is_mended = !root;
    root = root ? root : parse_mended(line);
    if (!root) {
        return fail_parse(line, &error);
    }
    const json_t *text = NULL;
    const ls_status status = find_text(root, line, &text);
    if (status != LS_OK) {
        json_decref(root);
        return status;
    }
    /* A replaced character is in the document, or under another key only. */
    const bool has_text =
        json_is_string(text) && !(is_mended && strstr(json_string_value(text), replacement));
    *document_out = (ls_jsonl_document){.root = root,
                                        .text = has_text ? json_string_value(text) : NULL,
                                        .bytes = has_text ? json_string_length(text) : 0};
    return LS_OK;
}
