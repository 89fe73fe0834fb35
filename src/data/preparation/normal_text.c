// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/normal_text.h"

#include "base/octets.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

/* ---- NFC ------------------------------------------------------------------------------------- */

static ls_status compose_part(ls_step_scratch *scratch, const char *text, size_t bytes, ls_text *out)
{
    const size_t needed = bytes * LS_UNICODE_ROOM;
    if (scratch->code_point_capacity < needed) {
        uint32_t *c = realloc(scratch->code_points, 2 * needed * sizeof *c);
        if (!c) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory to normalise %zu bytes", bytes);
        }
        scratch->code_points = c;
        scratch->code_point_capacity = 2 * needed;
    }
    size_t count = 0;
    for (size_t at = 0; at < bytes; count++) {
        at += ls_utf8_valid_decode(text + at, &scratch->code_points[count]);
    }
    count = ls_unicode_normalise(scratch->code_points, count, scratch->code_point_capacity, true);
    for (size_t i = 0; i < count; i++) {
        char utf8[4];
        ls_text_append_bytes(out, utf8, ls_utf8_encode(scratch->code_points[i], utf8));
    }
    return LS_OK;
}

static bool is_stable_at(const char *text, size_t at, unsigned *length_out)
{
    uint32_t c;
    *length_out = ls_utf8_valid_decode(text + at, &c);
    return c < 0x80 || !(ls_unicode_of(c) & LS_UNICODE_UNSTABLE);
}

/* Part by part: each begins with a character that never combines with one before it. */
static ls_status compose(ls_step_scratch *scratch, ls_passage *passage)
{
    const char *text = passage->text;
    ls_text *out = ls_scratch_spare(scratch, passage);
    unsigned length = 1;
    size_t copied = 0, part = 0;
    bool is_changed = false;
    for (size_t at = 0; at <= passage->bytes; at += length) {
        const bool is_stable = at == passage->bytes || is_stable_at(text, at, &length);
        if (is_stable && is_changed) {
            ls_text_append_bytes(out, text + copied, part - copied);
            LS_TRY(compose_part(scratch, text + part, at - part, out));
            copied = at;
            is_changed = false;
        }
        if (at == passage->bytes) {
            break;
        }
        part = is_stable ? at : part;
        is_changed = is_changed || !is_stable;
    }
    ls_text_append_bytes(out, text + copied, passage->bytes - copied);
    ls_scratch_take(scratch, out, passage);
    return LS_OK;
}

/* ---- blanks and control characters ----------------------------------------------------------- */

typedef enum sort { CONTENT, SPACE, LINE_END, NOTHING } sort;

/* What the character at `at` is; its length. */
static sort sort_of(const char *text, size_t at, size_t bytes, unsigned *length_out)
{
    const unsigned char byte = (unsigned char)text[at];
    uint32_t c = byte;
    *length_out = 1;
    if (byte == '\r' && at + 1 < bytes && text[at + 1] == '\n') {
        *length_out = 2;
        return LINE_END;
    }
    if (byte == '\n' || byte == '\r') {
        return LINE_END;
    }
    if (byte >= 0x80) {
        *length_out = ls_utf8_valid_decode(text + at, &c);
    }
    if (c == ' ' || c == '\t') {
        return SPACE;
    }
    if (c < 0x20 || (c >= 0x7f && c < 0xa0 && c != 0x85) || c == 0xFEFF) {
        return NOTHING;
    }
    if (c == 0x85 || c == 0x2028 || c == 0x2029) {
        return LINE_END;
    }
    return c >= 0x80 && (ls_unicode_of(c) & LS_UNICODE_SPACE) ? SPACE : CONTENT;
}

/* Bytes that are certain to be content: printable ASCII, and leads of characters that are no
 * blanks. */
static bool is_plain(unsigned char byte)
{
    return byte > ' ' && byte != 0x7f &&
           (byte < 0xc2 || (byte > 0xc2 && byte != 0xe1 && byte != 0xe2 && byte != 0xe3 && byte != 0xef));
}

/* The end of the run of content from `at` on; a single space between plain bytes is part of it. */
static size_t find_run_end(const char *text, size_t at, size_t bytes)
{
    unsigned length;
    while (at < bytes) {
        const unsigned char byte = (unsigned char)text[at];
        if (ls_octets_are_tidy(text, at, bytes)) {
            at += 8;
        } else if (is_plain(byte) ||
                   (byte == ' ' && at + 1 < bytes && is_plain((unsigned char)text[at + 1]) &&
                    (unsigned char)text[at + 1] < 0x80)) {
            at++;
        } else if (byte >= 0x80 && sort_of(text, at, bytes, &length) == CONTENT) {
            at += length;
        } else {
            break;
        }
    }
    return at;
}

/* Blanks and line ends since the last content. */
typedef struct gap {
    uint32_t line_ends;
    size_t spaces_at, spaces_bytes;
} gap;

static void write_gap(const char *text, const gap *g, ls_text *out)
{
    const bool is_first = out->bytes == 0;
    if (!is_first) {
        ls_text_append_bytes(out, "\n\n", g->line_ends < 2 ? g->line_ends : 2);
    }
    if (g->line_ends == 0 && !is_first && g->spaces_bytes > 0) {
        ls_text_append_bytes(out, " ", 1);
    } else if (g->line_ends > 0 && !is_first) {
        ls_text_append_bytes(out, text + g->spaces_at, g->spaces_bytes);
    }
}

/* Whether the gap text[from, to) is tidy already. */
static bool is_tidy(const char *text, size_t from, size_t to, const gap *g)
{
    const size_t bytes = to - from;
    if (from == 0 || bytes == 0) {
        return bytes == 0;
    }
    return g->line_ends == 0 ? bytes == 1 && text[from] == ' '
                             : g->line_ends <= 2 && bytes == g->line_ends + g->spaces_bytes &&
                                   memcmp(text + from, "\n\n", g->line_ends) == 0;
}

/* Returns how many bytes of the text are the result; SIZE_MAX: it is in `out`. */
static size_t tidy(const char *text, size_t bytes, ls_text *out)
{
    gap g = {0};
    unsigned length;
    size_t end = 0;
    bool differs = false;
    for (size_t at = 0; at < bytes; at += length) {
        switch (sort_of(text, at, bytes, &length)) {
        case CONTENT:
            if (!differs && !is_tidy(text, end, at, &g)) {
                differs = true;
                ls_text_append_bytes(out, text, end);
            }
            end = find_run_end(text, at, bytes);
            length = (unsigned)(end - at);
            if (differs) {
                write_gap(text, &g, out);
                ls_text_append_bytes(out, text + at, length);
            }
            g = (gap){0};
            break;
        case SPACE:
            g.spaces_at = g.spaces_bytes == 0 ? at : g.spaces_at;
            g.spaces_bytes = at + length - g.spaces_at;
            break;
        case LINE_END:
            g.line_ends++;
            g.spaces_bytes = 0;
            break;
        default:
            break;
        }
    }
    return differs ? SIZE_MAX : end;
}

/* Only line ends and control characters. */
static void clean(const char *text, size_t bytes, ls_text *out)
{
    unsigned length;
    for (size_t at = 0; at < bytes; at += length) {
        const sort what = sort_of(text, at, bytes, &length);
        if (what == LINE_END) {
            ls_text_append_bytes(out, "\n", 1);
        } else if (what == CONTENT) {
            const size_t end = find_run_end(text, at, bytes);
            ls_text_append_bytes(out, text + at, end - at);
            length = (unsigned)(end - at);
        } else if (what == SPACE) {
            ls_text_append_bytes(out, text + at, length);
        }
    }
}

ls_status ls_normal_text(const ls_step *step, ls_step_scratch *scratch, ls_passage *passage)
{
    if (step->normalise.nfc && !ls_unicode_is_stable(passage->text, passage->bytes)) {
        LS_TRY(compose(scratch, passage));
    }
    ls_text *out = ls_scratch_spare(scratch, passage);
    size_t same = SIZE_MAX;
    if (step->normalise.blanks) {
        same = tidy(passage->text, passage->bytes, out);
    } else {
        clean(passage->text, passage->bytes, out);
        const bool is_same =
            out->bytes == passage->bytes && memcmp(ls_text_string(out), passage->text, passage->bytes) == 0;
        same = is_same ? passage->bytes : SIZE_MAX;
    }
    if (same == SIZE_MAX) {
        ls_scratch_take(scratch, out, passage);
    } else {
        passage->bytes = same;
    }
    return LS_OK;
}

/* ---- the form that is compared --------------------------------------------------------------- */

ls_hash128 ls_exact_hash(const ls_step *step, ls_step_scratch *scratch, const ls_passage *passage)
{
    if (!step->exact.normalised) {
        return ls_xxh3_128(passage->text, passage->bytes);
    }
    ls_text *folded = ls_scratch_spare(scratch, passage);
    ls_text_append_bytes(folded, passage->text, passage->bytes);
    size_t used = 0;
    bool has_gap = false;
    for (size_t at = 0; at < passage->bytes;) {
        const unsigned char byte = (unsigned char)passage->text[at];
        if (!has_gap && (used > 0 || byte != ' ') && ls_octets_are_tidy(passage->text, at, passage->bytes)) {
            const uint64_t octets = ls_octets_load(passage->text + at, 8);
            const uint64_t lower = htole64(octets | ls_octets_within(octets, 'A', 'Z') >> 2);
            memcpy(folded->data + used, &lower, 8);
            used += 8;
            at += 8;
            continue;
        }
        uint32_t c = byte;
        const unsigned length = byte < 0x80 ? 1 : ls_utf8_valid_decode(passage->text + at, &c);
        if ((byte <= ' ' || byte >= 0x80) && ls_is_blank(c)) {
            has_gap = true;
            at += length;
            continue;
        }
        if (has_gap && used > 0) {
            folded->data[used++] = ' ';
        }
        has_gap = false;
        for (const size_t end = at + length; at < end; at++) {
            const unsigned char b = (unsigned char)passage->text[at];
            folded->data[used++] = (char)(b + ((unsigned)(b - 'A') < 26 ? 32 : 0));
        }
    }
    return ls_xxh3_128(ls_text_string(folded), used);
}
