// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_internal.h"

#include "base/assert.h"
#include "tokenizer/unicode.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/*
 * The word cache. The words of a text repeat, so most of them are found here. Each slot is one
 * cache line: a word of up to 15 bytes, its length in the 16th byte, and its ids. A new word
 * replaces the one in its slot, so the cache never needs to be cleared. Words of 0 bytes are never
 * looked up, so zeroed slots match nothing.
 */
enum { CACHE_WORD_BYTES = 15, CACHE_IDS = 11 };
/* Slots, as powers of two, of a cache for many texts and for one. A short text would pay more for
 * clearing a large one than it gains. */
enum { CACHE_BITS = 15, CACHE_BITS_ONCE = 8, SHORT_BYTES = 1 << 16 };

typedef struct cache_slot {
    uint64_t word[2];
    int32_t ids[CACHE_IDS];
    uint32_t count;
} cache_slot;
static_assert(sizeof(cache_slot) == 64, "a slot is one cache line");

struct ls_tokenizer_scratch {
    const ls_tokenizer *tokenizer;
    cache_slot *cache;
    uint32_t cache_bits;
    ls_bpe_work work;
    /* Ids with the loose characters of sentencepiece replaced. */
    ls_token_buffer expanded;
    /* The text with U+FFFD in place of invalid UTF-8. */
    ls_text_buffer valid;
    /* Normalisers use the two in turn. */
    ls_text_buffer normalised[2];
    ls_regex_work *regex;
    /* For splitters that change the text. */
    ls_text_buffer prefixed[LS_TOKENIZER_STEPS_MAX];
};

typedef struct encoder {
    const ls_tokenizer *tokenizer;
    ls_tokenizer_scratch *scratch;
    ls_token_buffer *ids;
} encoder;

static ls_status create_scratch(const ls_tokenizer *tokenizer, uint32_t cache_bits,
                                ls_tokenizer_scratch **scratch_out)
{
    ls_tokenizer_scratch *scratch = calloc(1, sizeof *scratch);
    const size_t cache_bytes = sizeof(cache_slot) << cache_bits;
    void *cache = NULL;
    if (scratch && posix_memalign(&cache, 64, cache_bytes) == 0) {
        memset(cache, 0, cache_bytes);
        scratch->tokenizer = tokenizer;
        scratch->cache = cache;
        scratch->cache_bits = cache_bits;
        *scratch_out = scratch;
        return LS_OK;
    }
    free(scratch);
    return ls_fail(LS_ERR_MEMORY, "not enough memory for a tokenizer's cache of encoded words (%zu bytes)",
                   cache_bytes);
}

ls_status ls_tokenizer_scratch_create(const ls_tokenizer *tokenizer, ls_tokenizer_scratch **scratch_out)
{
    return create_scratch(tokenizer, CACHE_BITS, scratch_out);
}

void ls_tokenizer_scratch_destroy(ls_tokenizer_scratch *scratch)
{
    if (!scratch) {
        return;
    }
    ls_bpe_work_release(&scratch->work);
    ls_regex_work_destroy(scratch->regex);
    ls_token_buffer_release(&scratch->expanded);
    ls_text_buffer_release(&scratch->valid);
    for (int i = 0; i < 2; i++) {
        ls_text_buffer_release(&scratch->normalised[i]);
    }
    for (int i = 0; i < LS_TOKENIZER_STEPS_MAX; i++) {
        ls_text_buffer_release(&scratch->prefixed[i]);
    }
    free(scratch->cache);
    free(scratch);
}

/* ---- one word ---- */

/* Word and length as 16 bytes. The text may be read up to `end`. */
static inline void load_word(const char *word, size_t bytes, const char *end, uint64_t key[2])
{
    key[0] = key[1] = 0;
    if (end - word >= 16) {
        memcpy(key, word, 16);
        /* Little-endian: the first byte is the lowest. A shift by 64 bits would be undefined. */
        const unsigned low_bits = bytes >= 8 ? 64 : 8 * (unsigned)bytes;
        const unsigned high_bits = bytes > 8 ? 8 * (unsigned)(bytes - 8) : 0;
        key[0] &= low_bits == 64 ? UINT64_MAX : (UINT64_C(1) << low_bits) - 1;
        key[1] &= (UINT64_C(1) << high_bits) - 1;
    } else {
        memcpy(key, word, bytes);
    }
    key[1] |= (uint64_t)bytes << 56;
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the word cache masks words as little-endian numbers");

static inline cache_slot *cache_at(ls_tokenizer_scratch *scratch, const uint64_t key[2])
{
    const unsigned __int128 product =
        (unsigned __int128)(key[0] ^ UINT64_C(0x9e3779b97f4a7c15)) * (key[1] ^ UINT64_C(0xd6e8feb86659fd93));
    const uint64_t mixed = ((uint64_t)product ^ (uint64_t)(product >> 64)) * UINT64_C(0x9e3779b97f4a7c15);
    return &scratch->cache[mixed >> (64 - scratch->cache_bits)];
}

/* Appends the ids of the bytes of a character that the vocabulary lacks; returns false if not every
 * byte has an id. */
static bool fall_back_to_bytes(const ls_tokenizer *tokenizer, const char *text, size_t bytes,
                               ls_token_buffer *ids)
{
    if (!tokenizer->byte_fallback) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (tokenizer->byte_ids[(unsigned char)text[i]] < 0) {
            return false;
        }
    }
    for (size_t i = 0; i < bytes; i++) {
        ids->ids[ids->count++] = tokenizer->byte_ids[(unsigned char)text[i]];
    }
    return true;
}

/* The symbol of the character at `text`, or -1 if the vocabulary lacks it; *bytes_out: its
 * length. */
static inline int32_t symbol_at(const ls_tokenizer *tokenizer, const char *text, size_t *bytes_out)
{
    const unsigned char byte = (unsigned char)*text;
    if (tokenizer->type == LS_TOKENIZER_BYTE_LEVEL) {
        *bytes_out = 1;
        return tokenizer->byte_ids[byte];
    }
    if (byte < 0x80) {
        *bytes_out = 1;
        return tokenizer->ascii_symbols[byte];
    }
    uint32_t c;
    *bytes_out = ls_utf8_valid_decode(text, &c);
    return ls_string_map_get(&tokenizer->model, text, *bytes_out);
}

/* Appends the word's symbols. Unknown characters are treated exactly as by Hugging Face, because
 * the ids must be equal: even that an unknown token is appended after the bytes of the next
 * character. */
static void append_symbols(const encoder *e, const char *word, size_t bytes)
{
    const ls_tokenizer *tokenizer = e->tokenizer;
    ls_token_buffer *ids = e->ids;
    bool unknown = false;
    for (size_t at = 0, length; at < bytes; at += length) {
        const int32_t symbol = symbol_at(tokenizer, word + at, &length);
        if (symbol >= 0) {
            if (unknown) {
                ids->ids[ids->count++] = tokenizer->unk;
            }
            unknown = false;
            ids->ids[ids->count++] = symbol;
        } else if (!fall_back_to_bytes(tokenizer, word + at, length, ids) && tokenizer->unk >= 0) {
            if (unknown && !tokenizer->fuse_unk) {
                ids->ids[ids->count++] = tokenizer->unk;
            }
            unknown = true;
        }
    }
    if (unknown) {
        ids->ids[ids->count++] = tokenizer->unk;
    }
}

/* Sentencepiece: loose characters that were not joined into a piece are unknown. */
static ls_status expand_loose(const encoder *e, size_t from)
{
    const ls_tokenizer *tokenizer = e->tokenizer;
    ls_token_buffer *expanded = &e->scratch->expanded;
    expanded->count = 0;
    LS_TRY(ls_token_buffer_reserve(expanded, 4 * (e->ids->count - from)));
    for (size_t i = from; i < e->ids->count; i++) {
        const int32_t id = e->ids->ids[i];
        if ((uint32_t)id < tokenizer->vocab_size) {
            expanded->ids[expanded->count++] = id;
            continue;
        }
        const ls_piece *loose = &tokenizer->loose[(uint32_t)id - tokenizer->vocab_size];
        if (!fall_back_to_bytes(tokenizer, loose->text, loose->bytes, expanded) && tokenizer->unk >= 0) {
            expanded->ids[expanded->count++] = tokenizer->unk;
        }
    }
    LS_TRY(ls_token_buffer_reserve(e->ids, expanded->count));
    memcpy(e->ids->ids + from, expanded->ids, expanded->count * sizeof *expanded->ids);
    e->ids->count = from + expanded->count;
    return LS_OK;
}

/* The caller has made room for bytes + CACHE_IDS ids. */
static ls_status merge_word(const encoder *e, const char *word, size_t bytes)
{
    const ls_tokenizer *tokenizer = e->tokenizer;
    const size_t from = e->ids->count;
    if (tokenizer->ignore_merges) {
        const int32_t whole = ls_string_map_get(&tokenizer->model, word, bytes);
        if (whole >= 0) {
            e->ids->ids[e->ids->count++] = whole;
            return LS_OK;
        }
    }
    append_symbols(e, word, bytes);
    size_t count = e->ids->count - from;
    LS_TRY(ls_bpe_merge(&tokenizer->merges, &e->scratch->work, e->ids->ids + from, &count));
    e->ids->count = from + count;
    return tokenizer->loose_count > 0 ? expand_loose(e, from) : LS_OK;
}

static ls_status encode_word(const encoder *e, const char *word, size_t bytes, const char *end)
{
    ls_token_buffer *ids = e->ids;
    if (ids->capacity - ids->count < bytes + CACHE_IDS) {
        LS_TRY(ls_token_buffer_reserve(ids, bytes + CACHE_IDS));
    }
    if (bytes == 0 || bytes > CACHE_WORD_BYTES) {
        return merge_word(e, word, bytes);
    }
    uint64_t key[2];
    load_word(word, bytes, end, key);
    cache_slot *slot = cache_at(e->scratch, key);
    if (slot->word[0] == key[0] && slot->word[1] == key[1]) {
        memcpy(ids->ids + ids->count, slot->ids, sizeof slot->ids);
        ids->count += slot->count;
        return LS_OK;
    }
    const size_t from = ids->count;
    LS_TRY(merge_word(e, word, bytes));
    const size_t count = ids->count - from;
    if (count <= CACHE_IDS) {
        memcpy(slot->word, key, sizeof key);
        memcpy(slot->ids, ids->ids + from, count * sizeof *ids->ids);
        slot->count = (uint32_t)count;
    }
    return LS_OK;
}

static const char metaspace[] = "\xe2\x96\x81";
enum { METASPACE_BYTES = 3 };

static bool is_metaspace(const char *text, const char *end)
{
    return end - text >= METASPACE_BYTES && memcmp(text, metaspace, METASPACE_BYTES) == 0;
}

/* Where the part that begins at `at` may end: before a space that follows another character, and
 * before and after characters that are `alone`. */
static const char *cut_after(const ls_tokenizer *tokenizer, const char *at, const char *end)
{
    if ((unsigned char)*at < 128 && tokenizer->alone[(unsigned char)*at]) {
        return at + 1;
    }
    while (is_metaspace(at, end)) {
        at += METASPACE_BYTES;
    }
    for (; at < end; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (byte < 128 ? tokenizer->alone[byte]
                       : byte == (unsigned char)metaspace[0] && is_metaspace(at, end)) {
            break;
        }
    }
    return at;
}

/*
 * A word of characters may be the whole text. It is cut where no merge can reach across, which does
 * not change the ids but saves time and memory: the parts are words that repeat.
 */
static ls_status encode_long_word(const encoder *e, const char *word, size_t bytes)
{
    const char *end = word + bytes;
    if (!e->tokenizer->cut_at_space) {
        return encode_word(e, word, bytes, end);
    }
    while (word < end) {
        const char *stop = cut_after(e->tokenizer, word, end);
        LS_TRY(encode_word(e, word, (size_t)(stop - word), end));
        word = stop;
    }
    return LS_OK;
}

/* ---- words of a piece ---- */

static ls_status split_piece(const encoder *e, size_t step, const char *text, size_t bytes, bool first);

static ls_status split_by_pattern(const encoder *e, size_t step, const char *text, size_t bytes, bool first)
{
    const ls_split_pattern pattern = e->tokenizer->splitters[step].pattern;
    const bool last = step + 1 == e->tokenizer->splitter_count;
    for (size_t at = 0; at < bytes;) {
        const size_t stop = ls_split_next(pattern, text, at, bytes);
        LS_DCHECK(stop > at && stop <= bytes);
        LS_TRY(last ? encode_word(e, text + at, stop - at, text + bytes)
                    : split_piece(e, step + 1, text + at, stop - at, first && at == 0));
        at = stop;
    }
    return LS_OK;
}

/* Pieces of a text between the matches of a pattern: the current one, which may still grow. */
typedef struct regex_pieces {
    const encoder *e;
    size_t step;
    const char *text;
    bool first;
    ls_regex_span piece;
    bool was_match;
} regex_pieces;

static ls_status flush_piece(const regex_pieces *p)
{
    const bool removed = p->was_match && p->e->tokenizer->splitters[p->step].behaviour == LS_SPLIT_REMOVED;
    const size_t bytes = p->piece.stop - p->piece.start;
    return bytes == 0 || removed ? LS_OK
                                 : split_piece(p->e, p->step + 1, p->text + p->piece.start, bytes,
                                               p->first && p->piece.start == 0);
}

/* Adds [start, stop), which follows on the current piece, to it or begins another one. */
static ls_status add_piece(regex_pieces *p, size_t start, size_t stop, bool found)
{
    const ls_splitter *splitter = &p->e->tokenizer->splitters[p->step];
    const bool is_match = found != splitter->invert;
    const bool begun = p->piece.stop > p->piece.start;
    const bool joins = splitter->behaviour == LS_SPLIT_CONTIGUOUS ? is_match == p->was_match
                       : splitter->behaviour == LS_SPLIT_MERGED_WITH_PREVIOUS
                           ? is_match && !p->was_match
                           : splitter->behaviour == LS_SPLIT_MERGED_WITH_NEXT && !is_match && p->was_match;
    if (!begun || !joins) {
        LS_TRY(flush_piece(p));
        p->piece.start = start;
    }
    p->piece.stop = stop;
    p->was_match = is_match;
    return LS_OK;
}

static ls_status split_by_regex(const encoder *e, size_t step, const char *text, size_t bytes, bool first)
{
    const ls_regex *regex = &e->tokenizer->splitters[step].regex;
    regex_pieces pieces = {.e = e, .step = step, .text = text, .first = first};
    size_t done = 0;
    for (size_t from = 0; from <= bytes;) {
        ls_regex_span found;
        LS_TRY(ls_regex_next(regex, &e->scratch->regex, text, bytes, from, &found));
        if (found.start == SIZE_MAX) {
            break;
        }
        if (found.start > done) {
            LS_TRY(add_piece(&pieces, done, found.start, false));
        }
        LS_TRY(add_piece(&pieces, found.start, found.stop, true));
        done = from = found.stop;
        if (found.start == found.stop) { /* search on behind the next character */
            uint32_t c;
            from += from < bytes ? ls_utf8_valid_decode(text + from, &c) : 1;
        }
    }
    if (done < bytes) {
        LS_TRY(add_piece(&pieces, done, bytes, false));
    }
    return flush_piece(&pieces);
}

static ls_status split_digits(const encoder *e, size_t step, const char *text, size_t bytes, bool first)
{
    const bool individual = e->tokenizer->splitters[step].individual;
    size_t start = 0;
    bool was_number = false;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        const unsigned length = ls_utf8_valid_decode(text + at, &c);
        const bool number = ls_unicode_is_number(ls_unicode_of(c));
        if (at > start && (number != was_number || (number && individual))) {
            LS_TRY(split_piece(e, step + 1, text + start, at - start, first && start == 0));
            start = at;
        }
        was_number = number;
        at += length;
    }
    return start < bytes ? split_piece(e, step + 1, text + start, bytes - start, first && start == 0) : LS_OK;
}

/* ByteLevel with add_prefix_space: puts a space before the text unless it begins with one. */
static ls_status put_space_in_front(const encoder *e, size_t step, const char *text, size_t bytes, bool first)
{
    if (bytes == 0 || text[0] == ' ') {
        return split_piece(e, step + 1, text, bytes, first);
    }
    ls_text_buffer *prefixed = &e->scratch->prefixed[step];
    prefixed->bytes = 0;
    LS_TRY(ls_text_buffer_append(prefixed, " ", 1));
    LS_TRY(ls_text_buffer_append(prefixed, text, bytes));
    return split_piece(e, step + 1, prefixed->data, prefixed->bytes, first);
}

static ls_status split_metaspace(const encoder *e, size_t step, const char *text, size_t bytes, bool first)
{
    const ls_splitter *splitter = &e->tokenizer->splitters[step];
    const char *mark = splitter->replacement;
    const uint32_t mark_bytes = splitter->replacement_bytes;
    if (bytes == 0) {
        return LS_OK;
    }
    ls_text_buffer *out = &e->scratch->prefixed[step];
    out->bytes = 0;
    const bool has_mark = text[0] == ' ' || (bytes >= mark_bytes && memcmp(text, mark, mark_bytes) == 0);
    if (!has_mark &&
        (splitter->prepend == LS_PREPEND_ALWAYS || (splitter->prepend == LS_PREPEND_FIRST && first))) {
        LS_TRY(ls_text_buffer_append(out, mark, mark_bytes));
    }
    const ls_normaliser spaces = {
        .kind = LS_NORMALISE_REPLACE, .from = " ", .from_bytes = 1, .to = mark, .to_bytes = mark_bytes};
    bool changed;
    LS_TRY(ls_normaliser_apply(&spaces, text, bytes, out, &changed));
    if (!splitter->split) {
        return split_piece(e, step + 1, out->data, out->bytes, first);
    }
    for (size_t at = 0; at < out->bytes;) {
        const size_t from = at + 1;
        const char *found =
            from < out->bytes ? memmem(out->data + from, out->bytes - from, mark, mark_bytes) : NULL;
        const size_t stop = found ? (size_t)(found - out->data) : out->bytes;
        LS_TRY(split_piece(e, step + 1, out->data + at, stop - at, first && at == 0));
        at = stop;
    }
    return LS_OK;
}

/* Passes text[0, bytes) to splitter number `step`, or after the last one to the model, as a word.
 * first: the piece is at the beginning of the whole text. The recursion is as deep as the number of
 * splitters. */
static ls_status split_piece(const encoder *e, size_t step, const char *text, size_t bytes, bool first)
{
    if (step == e->tokenizer->splitter_count) {
        return encode_long_word(e, text, bytes);
    }
    switch (e->tokenizer->splitters[step].kind) {
    case LS_SPLITTER_PATTERN:
        return split_by_pattern(e, step, text, bytes, first);
    case LS_SPLITTER_REGEX:
        return split_by_regex(e, step, text, bytes, first);
    case LS_SPLITTER_DIGITS:
        return split_digits(e, step, text, bytes, first);
    case LS_SPLITTER_SPACE_PREFIX:
        return put_space_in_front(e, step, text, bytes, first);
    case LS_SPLITTER_METASPACE:
        return split_metaspace(e, step, text, bytes, first);
    }
    return LS_OK;
}

/* ---- pieces of a text ---- */

static ls_status append_id(const encoder *e, int32_t id)
{
    LS_TRY(ls_token_buffer_reserve(e->ids, 1));
    e->ids->ids[e->ids->count++] = id;
    return LS_OK;
}

typedef ls_status (*piece_function)(const encoder *e, const char *text, size_t bytes, bool first);

/* Appends the ids of the added tokens that `matcher` finds, and calls `between` for the text
 * between them. */
static ls_status split_added(const encoder *e, const ls_matcher *matcher, piece_function between,
                             const char *text, size_t bytes, bool first)
{
    size_t search_at = 0, done = 0;
    ls_match match;
    while (ls_matcher_next(matcher, text, bytes, &search_at, done, &match)) {
        if (match.start > done) {
            LS_TRY(between(e, text + done, match.start - done, first && done == 0));
        }
        LS_TRY(append_id(e, match.id));
        done = match.stop;
    }
    return done < bytes ? between(e, text + done, bytes - done, first && done == 0) : LS_OK;
}

static ls_status encode_normalised(const encoder *e, const char *text, size_t bytes, bool first)
{
    return split_piece(e, 0, text, bytes, first);
}

static ls_status encode_raw(const encoder *e, const char *text, size_t bytes, bool first)
{
    const ls_tokenizer *tokenizer = e->tokenizer;
    int side = 0;
    for (size_t i = 0; i < tokenizer->normaliser_count; i++) {
        ls_text_buffer *out = &e->scratch->normalised[side];
        out->bytes = 0;
        bool changed;
        LS_TRY(ls_normaliser_apply(&tokenizer->normalisers[i], text, bytes, out, &changed));
        if (changed) {
            text = out->data;
            bytes = out->bytes;
            side = !side;
        }
    }
    return split_added(e, &tokenizer->added_normalised, encode_normalised, text, bytes, first);
}

ls_status ls_text_make_valid(ls_text_buffer *out, const char *text, size_t bytes)
{
    out->bytes = 0;
    for (size_t at = 0; at < bytes;) {
        const size_t valid = ls_utf8_valid_prefix(text + at, bytes - at);
        LS_TRY(ls_text_buffer_append(out, text + at, valid));
        at += valid;
        if (at < bytes) {
            uint32_t c;
            at += (size_t)-ls_utf8_decode(text + at, bytes - at, &c);
            LS_TRY(ls_text_buffer_append(out, "\xef\xbf\xbd", 3));
        }
    }
    return LS_OK;
}

static ls_status encode_hugging_face(const encoder *e, const char *text, size_t bytes)
{
    LS_ASSERT(e->scratch);
    if (ls_utf8_valid_prefix(text, bytes) < bytes) {
        LS_TRY(ls_text_make_valid(&e->scratch->valid, text, bytes));
        text = e->scratch->valid.data;
        bytes = e->scratch->valid.bytes;
    }
    return split_added(e, &e->tokenizer->added, encode_raw, text, bytes, true);
}

/* ---- sentencepiece ---- */

/* Makes one unknown token of consecutive ones. */
static void join_unknowns(const encoder *e, size_t from)
{
    size_t written = from;
    for (size_t i = from; i < e->ids->count; i++) {
        const int32_t id = e->ids->ids[i];
        if (id != e->tokenizer->unk || written == from || e->ids->ids[written - 1] != id) {
            e->ids->ids[written++] = id;
        }
    }
    e->ids->count = written;
}

static ls_status encode_between(const encoder *e, const char *text, size_t bytes, bool first)
{
    (void)first;
    return encode_long_word(e, text, bytes);
}

static ls_status encode_sentencepiece(const encoder *e, const char *text, size_t bytes)
{
    LS_ASSERT(e->scratch);
    ls_text_buffer *normalised = &e->scratch->normalised[0];
    const size_t from = e->ids->count;
    normalised->bytes = 0;
    LS_TRY(ls_sentencepiece_normalise(e->tokenizer, text, bytes, normalised));
    if (normalised->bytes > 0) {
        LS_TRY(
            split_added(e, &e->tokenizer->added, encode_between, normalised->data, normalised->bytes, true));
    }
    join_unknowns(e, from);
    return LS_OK;
}

/* ---- whole texts ---- */

static ls_status encode_bytes(const encoder *e, const char *text, size_t bytes)
{
    LS_TRY(ls_token_buffer_reserve(e->ids, bytes));
    int32_t *ids = e->ids->ids + e->ids->count;
    for (size_t i = 0; i < bytes; i++) {
        ids[i] = (unsigned char)text[i];
    }
    e->ids->count += bytes;
    return LS_OK;
}

static ls_status encode_text(const encoder *e, const char *text, size_t bytes)
{
    if (bytes == 0) {
        return LS_OK;
    }
    switch (e->tokenizer->type) {
    case LS_TOKENIZER_BYTES:
        return encode_bytes(e, text, bytes);
    case LS_TOKENIZER_SENTENCEPIECE:
        return encode_sentencepiece(e, text, bytes);
    default:
        return encode_hugging_face(e, text, bytes);
    }
}

static ls_status append_ids(const encoder *e, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        LS_TRY(append_id(e, ids[i]));
    }
    return LS_OK;
}

static ls_status encode_all(const encoder *e, const char *text, size_t bytes, bool add_special)
{
    const ls_tokenizer *tokenizer = e->tokenizer;
    if (add_special) {
        LS_TRY(append_ids(e, tokenizer->prefix, tokenizer->prefix_count));
    }
    LS_TRY(encode_text(e, text, bytes));
    return add_special ? append_ids(e, tokenizer->suffix, tokenizer->suffix_count) : LS_OK;
}

ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, ls_tokenizer_scratch *scratch, const char *text,
                              size_t bytes, bool add_special, ls_token_buffer *ids)
{
    LS_ASSERT(!scratch || scratch->tokenizer == tokenizer);
    ls_tokenizer_scratch *own = NULL;
    if (!scratch && tokenizer->type != LS_TOKENIZER_BYTES) {
        LS_TRY(create_scratch(tokenizer, bytes < SHORT_BYTES ? CACHE_BITS_ONCE : CACHE_BITS, &own));
        scratch = own;
    }
    const encoder e = {.tokenizer = tokenizer, .scratch = scratch, .ids = ids};
    const size_t before = ids->count;
    const ls_status status = encode_all(&e, text, bytes, add_special);
    if (status != LS_OK) {
        ids->count = before;
    }
    ls_tokenizer_scratch_destroy(own);
    return status;
}
