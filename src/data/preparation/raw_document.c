// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/raw_document.h"

#include "base/json.h"
#include "base/octets.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

/* A place in the text of a record. */
typedef struct scan {
    const char *at, *end;
} scan;

static void skip_blanks(scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')) {
        s->at++;
    }
}

static bool take(scan *s, char c)
{
    skip_blanks(s);
    const bool is_there = s->at < s->end && *s->at == c;
    s->at += is_there;
    return is_there;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* What a character means after a backslash; \0: it must not be there. */
static const char escapes[256] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b', ['f'] = '\f',
                                  ['n'] = '\n', ['r'] = '\r',  ['t'] = '\t', ['u'] = 'u'};

/* From behind the opening quote to behind the closing one. */
static bool skip_string(scan *s, bool *has_escape_out)
{
    *has_escape_out = false;
    while ((s->at += ls_json_plain_bytes(s->at, s->end)) < s->end) {
        const unsigned char c = (unsigned char)*s->at++;
        if (c == '"') {
            return true;
        }
        if (c < 0x20) {
            return false;
        }
        if (c == '\\') {
            *has_escape_out = true;
            if (s->at == s->end || !escapes[(unsigned char)*s->at]) {
                return false;
            }
            s->at++;
        }
    }
    return false;
}

static bool read_hex(const char *at, const char *end, uint32_t *value_out)
{
    uint32_t value = 0;
    if (end - at < 4) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        const char c = at[i];
        const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                               : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                               : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                      : 16;
        if (digit > 15) {
            return false;
        }
        value = value << 4 | digit;
    }
    *value_out = value;
    return true;
}

/* \uXXXX, after the u; halves of a pair alone and NUL become the replacement character. Returns the
 * bytes that were written; 0: it is no number. */
static unsigned decode_unicode(scan *s, bool *is_mended, char *out)
{
    uint32_t c, low;
    if (!read_hex(s->at, s->end, &c)) {
        return 0;
    }
    s->at += 4;
    if (c >= 0xd800 && c < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u' &&
        read_hex(s->at + 2, s->end, &low) && low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        s->at += 6;
    }
    if (c == 0 || (c >= 0xd800 && c < 0xe000)) {
        c = LS_UNICODE_REPLACEMENT;
        *is_mended = true;
    }
    return ls_utf8_encode(c, out);
}

/* Decodes the content of a string that skip_string has passed: in place, it becomes no longer. */
static bool decode_string(const char *at, const char *end, bool *is_mended, ls_text *out)
{
    ls_text_clear(out);
    ls_text_append_bytes(out, at, (size_t)(end - at));
    char *to = out->data;
    for (scan s = {out->data, out->data + out->bytes}; s.at < s.end;) {
        const char *escape = memchr(s.at, '\\', (size_t)(s.end - s.at));
        const size_t plain = (size_t)((escape ? escape : s.end) - s.at);
        memmove(to, s.at, plain);
        to += plain;
        if (!escape) {
            break;
        }
        s.at = escape + 2;
        if (escape[1] != 'u') {
            *to++ = escapes[(unsigned char)escape[1]];
            continue;
        }
        const unsigned bytes = decode_unicode(&s, is_mended, to);
        if (bytes == 0) {
            return false;
        }
        to += bytes;
    }
    *to = '\0';
    out->bytes = (size_t)(to - out->data);
    return true;
}

/* ---- objects --------------------------------------------------------------------------------- */

/* The string under a key; at is NULL until it is found. */
typedef struct found {
    const char *field;
    const char *at, *end;
    bool has_escape;
} found;

static bool skip_value(scan *s, int depth, found *text);

/* After the opening bracket. text: what to look for among the members, or NULL. */
static bool skip_members(scan *s, bool is_object, int depth, found *text)
{
    const char close = is_object ? '}' : ']';
    bool has_escape;
    if (take(s, close)) {
        return true;
    }
    do {
        found *wanted = NULL;
        if (is_object) {
            if (!take(s, '"')) {
                return false;
            }
            const char *key = s->at;
            if (!skip_string(s, &has_escape)) {
                return false;
            }
            const size_t bytes = (size_t)(s->at - 1 - key);
            const bool is_field =
                text && !text->at && strlen(text->field) == bytes && memcmp(key, text->field, bytes) == 0;
            wanted = is_field ? text : NULL;
            if (!take(s, ':')) {
                return false;
            }
        }
        if (!skip_value(s, depth, wanted)) {
            return false;
        }
    } while (take(s, ','));
    return take(s, close);
}

static bool skip_digits(scan *s)
{
    const char *from = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        s->at++;
    }
    return s->at > from;
}

static bool skip_number(scan *s)
{
    s->at += s->at < s->end && *s->at == '-';
    if (!skip_digits(s)) {
        return false;
    }
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!skip_digits(s)) {
            return false;
        }
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        s->at += s->at < s->end && (*s->at == '+' || *s->at == '-');
        return skip_digits(s);
    }
    return true;
}

/* text: where to note the value if it is a string, or NULL. */
static bool skip_value(scan *s, int depth, found *text)
{
    static const char *const words[] = {"null", "true", "false"};
    bool has_escape;
    skip_blanks(s);
    if (s->at == s->end || depth >= DEPTH_MAX) {
        return false;
    }
    if (*s->at == '"') {
        const char *from = ++s->at;
        if (!skip_string(s, &has_escape)) {
            return false;
        }
        if (text) {
            *text = (found){text->field, from, s->at - 1, has_escape};
        }
        return true;
    }
    if (*s->at == '{' || *s->at == '[') {
        s->at++;
        return skip_members(s, s->at[-1] == '{', depth + 1, NULL);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t bytes = strlen(words[i]);
        if ((size_t)(s->end - s->at) >= bytes && memcmp(s->at, words[i], bytes) == 0) {
            s->at += bytes;
            return true;
        }
    }
    return skip_number(s);
}

/* Finds the field of an object. Returns false if it is not an object in JSON; text->at is NULL if
 * there is no string under the field. */
static bool find_text(const char *data, size_t bytes, const char *field, found *text)
{
    scan s = {data, data + bytes};
    *text = (found){.field = field};
    if (!take(&s, '{') || !skip_members(&s, true, 0, text)) {
        return false;
    }
    skip_blanks(&s);
    return s.at == s.end;
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Replaces what is not UTF-8, so that text is the copy. */
static void make_valid(const char **text, size_t *bytes, ls_text *copy)
{
    static const char replacement[] = "\xef\xbf\xbd";
    ls_text made = {0};
    for (size_t at = 0; at < *bytes;) {
        const size_t good = ls_utf8_valid_prefix(*text + at, *bytes - at);
        ls_text_append_bytes(&made, *text + at, good);
        at += good;
        if (at < *bytes) {
            uint32_t c;
            const int length = ls_utf8_decode(*text + at, *bytes - at, &c);
            ls_text_append(&made, replacement);
            at += (size_t)(length < 0 ? -length : length);
        }
    }
    ls_text_release(copy);
    *copy = made;
    *text = ls_text_string(copy);
    *bytes = copy->bytes;
}

/* The text of a raw document must not be longer than `most`. */
static void cut(ls_raw_document *raw, uint64_t most)
{
    if (raw->bytes > most) {
        raw->bytes = ls_utf8_previous(raw->text, (size_t)most);
        raw->whole = NULL;
    }
}

static ls_removal judge_length(const ls_data_pipeline *pipeline, uint64_t bytes)
{
    const bool is_long = bytes > pipeline->document_bytes_max && pipeline->long_documents == LS_LONG_DROP;
    return is_long ? ls_removal_of(LS_READ_TOO_LONG, (double)bytes / 1048576.0) : (ls_removal){0};
}

/* Cuts the object `data`. */
static ls_removal cut_object(ls_raw_document *raw, const ls_data_pipeline *pipeline, const char *data,
                             size_t bytes)
{
    found text;
    bool is_mended = false;
    const bool is_valid = ls_utf8_valid_prefix(data, bytes) == bytes;
    if (!is_valid && pipeline->invalid_utf8 == LS_UTF8_DROP) {
        return (ls_removal){.reason = LS_READ_NOT_UTF8};
    }
    if (!is_valid) {
        make_valid(&data, &bytes, &raw->record);
    }
    if (!find_text(data, bytes, pipeline->field, &text)) {
        return (ls_removal){.reason = LS_READ_BROKEN};
    }
    if (!text.at || text.at == text.end) {
        return (ls_removal){.reason = LS_READ_NO_TEXT};
    }
    raw->text = text.at;
    raw->bytes = (size_t)(text.end - text.at);
    const ls_removal removal = judge_length(pipeline, raw->bytes);
    if (removal.reason) {
        return removal;
    }
    if (text.has_escape) {
        if (!decode_string(text.at, text.end, &is_mended, &raw->decoded)) {
            return (ls_removal){.reason = LS_READ_BROKEN};
        }
        raw->text = ls_text_string(&raw->decoded);
        raw->bytes = raw->decoded.bytes;
    }
    if (is_mended && pipeline->invalid_utf8 == LS_UTF8_DROP) {
        return (ls_removal){.reason = LS_READ_NOT_UTF8};
    }
    raw->before = data;
    raw->before_bytes = (size_t)(text.at - 1 - data);
    raw->after = text.end + 1;
    raw->after_bytes = (size_t)(data + bytes - raw->after);
    raw->whole = is_mended ? NULL : data;
    raw->whole_bytes = bytes;
    cut(raw, pipeline->document_bytes_max);
    return (ls_removal){0};
}

/* A whole file. */
static ls_removal cut_text(ls_raw_document *raw, const ls_data_pipeline *pipeline, const ls_record *record)
{
    raw->text = record->data;
    raw->bytes = record->bytes;
    const ls_removal removal = judge_length(pipeline, raw->bytes);
    if (removal.reason) {
        return removal;
    }
    cut(raw, pipeline->document_bytes_max);
    if (ls_utf8_valid_prefix(raw->text, raw->bytes) < raw->bytes) {
        if (pipeline->invalid_utf8 == LS_UTF8_DROP) {
            return (ls_removal){.reason = LS_READ_NOT_UTF8};
        }
        make_valid(&raw->text, &raw->bytes, &raw->decoded);
    }
    raw->before = "{\"text\":";
    raw->before_bytes = strlen(raw->before);
    raw->after = "}";
    raw->after_bytes = 1;
    return (ls_removal){.reason = raw->bytes == 0 ? LS_READ_NO_TEXT : 0};
}

/* Records that are not one line of JSON each are written as such. */
static ls_status flatten(ls_raw_document *raw, const ls_records *records, const ls_record *record,
                         ls_record *flat_out)
{
    json_t *object = NULL;
    const ls_status status = ls_records_object(records, record, &object);
    *flat_out = (ls_record){.data = "", .line = record->line};
    if (status != LS_OK) {
        return status == LS_ERR_DATA ? LS_OK : status;
    }
    char *line = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (!line) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a record");
    }
    ls_text_clear(&raw->record);
    ls_text_append(&raw->record, line);
    free(line);
    *flat_out = (ls_record){ls_text_string(&raw->record), raw->record.bytes, record->line};
    return LS_OK;
}

ls_status ls_raw_document_read(ls_raw_document *raw, const ls_data_pipeline *pipeline,
                               const ls_records *records, const ls_record *record, ls_removal *removal_out)
{
    ls_record flat = *record;
    *raw =
        (ls_raw_document){.line = record->line, .text = "", .decoded = raw->decoded, .record = raw->record};
    if (!records) {
        *removal_out = cut_text(raw, pipeline, record);
        return LS_OK;
    }
    const bool is_too_long = record->bytes / 8 > pipeline->document_bytes_max;
    if (is_too_long) {
        *removal_out = ls_removal_of(LS_READ_TOO_LONG, (double)record->bytes / 1048576.0);
        return LS_OK;
    }
    if (records->file->kind != LS_CORPUS_JSONL) {
        LS_TRY(flatten(raw, records, record, &flat));
    }
    *removal_out = cut_object(raw, pipeline, flat.data, flat.bytes);
    raw->is_verbatim = raw->whole == record->data;
    return LS_OK;
}

void ls_raw_document_append(const ls_raw_document *raw, const char *text, size_t bytes, ls_text *out)
{
    const bool is_same = raw->whole && text == raw->text && bytes == raw->bytes;
    if (is_same) {
        ls_text_append_bytes(out, raw->whole, raw->whole_bytes);
    } else {
        ls_text_append_bytes(out, raw->before, raw->before_bytes);
        ls_text_append_json(out, text, bytes);
        ls_text_append_bytes(out, raw->after, raw->after_bytes);
    }
    ls_text_append(out, "\n");
}

void ls_raw_document_release(ls_raw_document *raw)
{
    ls_text_release(&raw->decoded);
    ls_text_release(&raw->record);
    *raw = (ls_raw_document){0};
}
