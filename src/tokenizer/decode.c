// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_internal.h"

#include "tokenizer/unicode.h"

#include <string.h>

static bool in_vocabulary(const ls_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (uint32_t)id < tokenizer->vocab_size;
}

/* The number of bytes to leave out of a piece at the beginning of a text. Sets *started if the
 * pieces after it are no longer at the beginning. */
static uint32_t bytes_to_strip(ls_strip strip, const ls_piece *piece, bool *started)
{
    uint32_t skip = 0;
    switch (strip) {
    case LS_STRIP_NONE:
    case LS_STRIP_FIRST_TOKEN:
        break;
    case LS_STRIP_ONE_SPACE:
    case LS_STRIP_ALL_SPACES:
        skip = piece->decoded_bytes > 0 && piece->decoded[0] == ' ';
        break;
    }
    *started = piece->decoded_bytes > skip || (skip > 0 && strip == LS_STRIP_ONE_SPACE);
    return skip;
}

/* Metaspace removes every space of the first token. */
static ls_status append_without_spaces(const ls_piece *piece, ls_text_buffer *text)
{
    LS_TRY(ls_text_buffer_reserve(text, piece->decoded_bytes));
    for (uint32_t i = 0; i < piece->decoded_bytes; i++) {
        if (piece->decoded[i] != ' ') {
            text->data[text->bytes++] = piece->decoded[i];
        }
    }
    text->data[text->bytes] = '\0';
    return LS_OK;
}

static ls_status append_piece(const ls_tokenizer *tokenizer, int32_t id, bool skip_special, bool *started,
                              ls_text_buffer *text)
{
    const ls_piece *piece = &tokenizer->pieces[id];
    if (piece->decoded_bytes == 0 || (skip_special && (piece->flags & LS_PIECE_SPECIAL))) {
        return LS_OK; /* also for an id without a name, in a gap of the vocabulary */
    }
    uint32_t skip = 0;
    if (!*started) {
        if (tokenizer->strip == LS_STRIP_FIRST_TOKEN && !(piece->flags & LS_PIECE_ADDED)) {
            *started = true;
            return append_without_spaces(piece, text);
        }
        /* The mark that sentencepiece prints for unknown text begins with a space of its own. */
        const bool unknown = id == tokenizer->unk && tokenizer->type == LS_TOKENIZER_SENTENCEPIECE;
        skip = bytes_to_strip(unknown ? LS_STRIP_NONE : tokenizer->strip, piece, started);
    }
    return ls_text_buffer_append(text, piece->decoded + skip, piece->decoded_bytes - skip);
}

static ls_status unknown_id(const ls_tokenizer *tokenizer, int32_t id, size_t position)
{
    return ls_fail(LS_ERR_DATA,
                   "can't decode: the token id at position %zu is %d; the vocabulary has the ids 0 to %u",
                   position, id, tokenizer->vocab_size - 1);
}

ls_status ls_tokenizer_decode(const ls_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              bool skip_special, ls_text_buffer *text)
{
    const size_t before = text->bytes;
    bool started = false;
    ls_status status = ls_text_buffer_reserve(text, 0);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        status = in_vocabulary(tokenizer, ids[i])
                     ? append_piece(tokenizer, ids[i], skip_special, &started, text)
                     : unknown_id(tokenizer, ids[i], i);
    }
    if (status != LS_OK) {
        text->bytes = before;
    }
    if (text->data) {
        text->data[text->bytes] = '\0';
    }
    return status;
}

/* ---- streaming ---- */

static const char replacement[] = "\xef\xbf\xbd";

/* Whether the bytes begin a character and more bytes could complete it. */
static bool is_incomplete(const char *text, size_t bytes)
{
    const unsigned char lead = (unsigned char)text[0];
    uint32_t c;
    return lead >= 0xc2 && lead <= 0xf4 && ls_utf8_decode(text, bytes, &c) == -(int)bytes;
}

/* Copies whole characters to `out`, keeps an incomplete one in the stream, and replaces all other
 * bytes. */
static ls_status flush_characters(ls_tokenizer_stream *stream, const ls_text_buffer *in, ls_text_buffer *out)
{
    size_t at = 0;
    stream->pending_bytes = 0;
    while (at < in->bytes) {
        const char *text = in->data + at;
        const size_t left = in->bytes - at;
        if (left < 4 && is_incomplete(text, left)) {
            memcpy(stream->pending, text, left);
            stream->pending_bytes = (uint8_t)left;
            return LS_OK;
        }
        uint32_t c;
        const int length = ls_utf8_decode(text, left, &c);
        LS_TRY(length > 0 ? ls_text_buffer_append(out, text, (size_t)length)
                          : ls_text_buffer_append(out, replacement, 3));
        at += (size_t)(length > 0 ? length : -length);
    }
    return LS_OK;
}

ls_status ls_tokenizer_stream_next(const ls_tokenizer *tokenizer, ls_tokenizer_stream *stream, int32_t id,
                                   bool skip_special, ls_text_buffer *text)
{
    if (!in_vocabulary(tokenizer, id)) {
        return unknown_id(tokenizer, id, 0);
    }
    const ls_tokenizer_stream before = *stream;
    const size_t before_bytes = text->bytes;
    ls_text_buffer joined = {0};
    ls_status status = ls_text_buffer_append(&joined, (const char *)stream->pending, stream->pending_bytes);
    if (status == LS_OK) {
        status = append_piece(tokenizer, id, skip_special, &stream->started, &joined);
    }
    if (status == LS_OK) {
        status = ls_text_buffer_reserve(text, 3 * joined.bytes);
    }
    if (status == LS_OK) {
        status = flush_characters(stream, &joined, text);
    }
    ls_text_buffer_release(&joined);
    if (status != LS_OK) {
        *stream = before;
        text->bytes = before_bytes;
    }
    return status;
}

ls_status ls_tokenizer_stream_end(ls_tokenizer_stream *stream, ls_text_buffer *text)
{
    if (stream->pending_bytes > 0) {
        LS_TRY(ls_text_buffer_append(text, replacement, 3));
    }
    *stream = (ls_tokenizer_stream){0};
    return LS_OK;
}
