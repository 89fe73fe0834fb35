// SPDX-License-Identifier: Apache-2.0
#include "execution/serve/answer_text.h"

#include <string.h>

enum { FOLLOWED = 8 }; /* tokens of a prompt that can matter for the text after it */

static bool has_text(const ls_tokenizer *tokenizer, int32_t token)
{
    return token >= 0 && (uint32_t)token < ls_tokenizer_vocab_size(tokenizer);
}

ls_status ls_answer_text_follow(ls_answer_text *a, const int32_t *prompt, size_t count)
{
    for (size_t i = count > FOLLOWED ? count - FOLLOWED : 0; i < count; i++) {
        if (has_text(a->tokenizer, prompt[i])) {
            LS_TRY(ls_tokenizer_stream_next(a->tokenizer, &a->stream, prompt[i], true, &a->text));
        }
    }
    a->text.bytes = 0;
    return LS_OK;
}

/* Looks for stops that end after byte `from`; the one that begins first cuts the text. */
static void find_stop(ls_answer_text *a, size_t from)
{
    size_t end = a->text.bytes;
    for (size_t i = 0; i < a->stop_count; i++) {
        const size_t bytes = strlen(a->stops[i]), begin = from >= bytes ? from - bytes + 1 : 0;
        const char *found = memmem(a->text.data + begin, a->text.bytes - begin, a->stops[i], bytes);
        if (found) {
            const size_t at = (size_t)(found - a->text.data);
            end = at < end ? at : end;
            a->is_stopped = true;
        }
    }
    a->text.bytes = end;
}

/* Bytes at the end of the text with which a stop begins. */
static size_t held_bytes(const ls_answer_text *a)
{
    size_t held = 0;
    for (size_t i = 0; i < a->stop_count; i++) {
        const size_t whole = strlen(a->stops[i]);
        size_t bytes = whole - 1 < a->text.bytes ? whole - 1 : a->text.bytes;
        while (bytes > held && memcmp(a->text.data + a->text.bytes - bytes, a->stops[i], bytes) != 0) {
            bytes--;
        }
        held = bytes > held ? bytes : held;
    }
    return held;
}

static void show(ls_answer_text *a, size_t before, bool all)
{
    if (a->stop_count > 0 && a->text.bytes > before) {
        find_stop(a, before);
    }
    a->shown_bytes = a->text.bytes - (all || a->is_stopped ? 0 : held_bytes(a));
}

ls_status ls_answer_text_add(ls_answer_text *a, int32_t token)
{
    const size_t before = a->text.bytes;
    if (a->is_stopped || !has_text(a->tokenizer, token)) {
        return LS_OK;
    }
    LS_TRY(ls_tokenizer_stream_next(a->tokenizer, &a->stream, token, true, &a->text));
    show(a, before, false);
    return LS_OK;
}

ls_status ls_answer_text_end(ls_answer_text *a)
{
    const size_t before = a->text.bytes;
    if (!a->is_stopped) {
        LS_TRY(ls_tokenizer_stream_end(&a->stream, &a->text));
        show(a, before, true);
    }
    return LS_OK;
}

void ls_answer_text_release(ls_answer_text *a)
{
    ls_text_buffer_release(&a->text);
}

void ls_answer_token_name(const ls_tokenizer *tokenizer, int32_t token, ls_text *name)
{
    ls_tokenizer_stream stream = {.started = true};
    ls_text_buffer text = {0};
    if (!has_text(tokenizer, token) ||
        ls_tokenizer_stream_next(tokenizer, &stream, token, false, &text) != LS_OK) {
        ls_text_printf(name, "id:%d", token);
    } else if (stream.pending_bytes == 0 && !(text.bytes > 0 && strstr(text.data, "\xef\xbf\xbd"))) {
        ls_text_append_bytes(name, text.data ? text.data : "", text.bytes);
    } else {
        text.bytes = 0;
        const bool has_bytes = ls_tokenizer_decode(tokenizer, &token, 1, false, &text) == LS_OK;
        ls_text_append(name, "bytes:");
        for (size_t i = 0; has_bytes && i < text.bytes; i++) {
            ls_text_printf(name, "\\x%02x", (unsigned char)text.data[i]);
        }
    }
    ls_text_buffer_release(&text);
}
