// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_internal.h"

#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

/* A list of code points with the room that normalisation needs. */
typedef struct code_points {
    uint32_t *c;
    size_t capacity;
} code_points;

static ls_status make_room(code_points *list, size_t count)
{
    const size_t needed = count * LS_UNICODE_ROOM;
    if (list->capacity >= needed) {
        return LS_OK;
    }
    const size_t capacity = needed < 1024 ? 1024 : 2 * needed;
    uint32_t *c = realloc(list->c, capacity * sizeof *c);
    if (!c) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for normalising %zu characters", count);
    }
    list->c = c;
    list->capacity = capacity;
    return LS_OK;
}

/* Normalises text[0, bytes), which has `count` characters. */
static ls_status normalise_part(code_points *list, const char *text, size_t bytes, size_t count, bool compose,
                                ls_text_buffer *out)
{
    LS_TRY(make_room(list, count));
    size_t written = 0;
    for (size_t at = 0; at < bytes; written++) {
        at += ls_utf8_valid_decode(text + at, &list->c[written]);
    }
    written = ls_unicode_normalise(list->c, written, list->capacity, compose);
    LS_TRY(ls_text_buffer_reserve(out, 4 * written));
    for (size_t i = 0; i < written; i++) {
        out->bytes += ls_utf8_encode(list->c[i], out->data + out->bytes);
    }
    return LS_OK;
}

/*
 * Normalises part by part. Each part begins with a character that never combines with one before
 * it, so the normalised parts together are the normalised text. When composing, a part of one
 * stable character is simply copied.
 */
static ls_status normalise_canonical(const char *text, size_t bytes, bool compose, ls_text_buffer *out)
{
    code_points list = {0};
    ls_status status = LS_OK;
    for (size_t at = 0; status == LS_OK && at < bytes;) {
        uint32_t c;
        size_t stop = at + ls_utf8_valid_decode(text + at, &c);
        const bool first_stable = !(ls_unicode_of(c) & LS_UNICODE_UNSTABLE);
        size_t count = 1;
        while (stop < bytes) {
            const unsigned length = ls_utf8_valid_decode(text + stop, &c);
            if (!(ls_unicode_of(c) & LS_UNICODE_UNSTABLE)) {
                break;
            }
            stop += length;
            count++;
        }
        const bool copy = count == 1 && first_stable && compose;
        status = copy ? ls_text_buffer_append(out, text + at, stop - at)
                      : normalise_part(&list, text + at, stop - at, count, compose, out);
        at = stop;
    }
    free(list.c);
    return status;
}

static ls_status replace_all(const ls_normaliser *step, const char *text, size_t bytes, ls_text_buffer *out)
{
    size_t at = 0;
    while (at < bytes) {
        const char *found = memmem(text + at, bytes - at, step->from, step->from_bytes);
        const size_t stop = found ? (size_t)(found - text) : bytes;
        LS_TRY(ls_text_buffer_append(out, text + at, stop - at));
        if (found) {
            LS_TRY(ls_text_buffer_append(out, step->to, step->to_bytes));
        }
        at = found ? stop + step->from_bytes : bytes;
    }
    return LS_OK;
}

ls_status ls_normaliser_apply(const ls_normaliser *step, const char *text, size_t bytes, ls_text_buffer *out,
                              bool *changed_out)
{
    *changed_out = false;
    switch (step->kind) {
    case LS_NORMALISE_NFC:
        if (ls_unicode_is_stable(text, bytes)) {
            return LS_OK;
        }
        *changed_out = true;
        return normalise_canonical(text, bytes, true, out);
    case LS_NORMALISE_NFD:
        *changed_out = true;
        return normalise_canonical(text, bytes, false, out);
    case LS_NORMALISE_PREPEND:
        if (bytes == 0) {
            return LS_OK;
        }
        *changed_out = true;
        LS_TRY(ls_text_buffer_append(out, step->to, step->to_bytes));
        return ls_text_buffer_append(out, text, bytes);
    case LS_NORMALISE_REPLACE:
        *changed_out = true;
        return replace_all(step, text, bytes, out);
    }
    return LS_OK;
}
