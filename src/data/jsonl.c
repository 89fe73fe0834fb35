// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

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

/* ---- what JSON or Unicode does not allow ---- */

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
    json_t *root = json_loadb(copy, line->bytes, PARSE_FLAGS | JSON_DECODE_INT_AS_REAL, &ignored);
    free(copy);
    return root;
}

ls_status ls_jsonl_parse(const ls_jsonl_line *line, json_t **root_out, bool *is_mended_out)
{
    json_error_t error, ignored;
    LS_TRY(ls_jsonl_check(line));
    json_t *root = json_loadb(line->data, line->bytes, PARSE_FLAGS, &error);
    /* Whole numbers as reals: an id of more than 64 bits is no reason to refuse the line. */
    root = root ? root : json_loadb(line->data, line->bytes, PARSE_FLAGS | JSON_DECODE_INT_AS_REAL, &ignored);
    *is_mended_out = !root;
    root = root ? root : parse_mended(line);
    if (!root) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: not valid JSON: %s (column %d)", line->path,
                       (ull)line->number + (error.line > 1 ? (ull)error.line - 1 : 0), error.text,
                       error.column);
    }
    *root_out = root;
    return LS_OK;
}
