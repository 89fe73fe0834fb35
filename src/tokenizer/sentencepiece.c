// SPDX-License-Identifier: Apache-2.0
/*
 * Reads SentencePiece's tokenizer.model: a protocol buffer with a list of pieces and the settings
 * of the trainer and the normaliser. Only BPE models are supported. The library joins the two
 * neighbours whose texts together are the piece with the highest score. Here this becomes a table
 * of pairs, ranked by score, so that one merging loop serves all kinds of tokenizers.
 *
 * Field numbers: sentencepiece_model.proto of google/sentencepiece.
 */
#include "tokenizer/tokenizer_internal.h"

#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE_BYTES_MAX = 512,
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN,
    TYPE_CONTROL,
    TYPE_USER_DEFINED,
    TYPE_UNUSED,
    TYPE_BYTE
};
enum { MODEL_BPE = 2 };

/* ---- protocol buffers ---- */

typedef struct message {
    const unsigned char *at, *end;
} message;

typedef struct field {
    uint32_t number, wire_type;
    /* A varint, or a fixed number of 32 or 64 bits. */
    uint64_t value;
    /* Of wire type 2. */
    message bytes;
} field;

static bool read_varint(message *m, uint64_t *value_out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        const unsigned char byte = *m->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(message *m, unsigned bytes, uint64_t *value_out)
{
    if ((size_t)(m->end - m->at) < bytes) {
        return false;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)m->at[i] << (8 * i);
    }
    m->at += bytes;
    *value_out = value;
    return true;
}

/* Reads the next field of a message that has bytes left. Returns false if it is malformed. */
static bool read_field(message *m, field *f)
{
    uint64_t key, length;
    if (!read_varint(m, &key) || key >> 3 == 0 || key >> 32) {
        return false;
    }
    *f = (field){.number = (uint32_t)(key >> 3), .wire_type = (uint32_t)(key & 7)};
    switch (f->wire_type) {
    case 0:
        return read_varint(m, &f->value);
    case 1:
        return read_fixed(m, 8, &f->value);
    case 2:
        if (!read_varint(m, &length) || length > (size_t)(m->end - m->at)) {
            return false;
        }
        f->bytes = (message){.at = m->at, .end = m->at + length};
        m->at += length;
        return true;
    case 5:
        return read_fixed(m, 4, &f->value);
    default:
        return false;
    }
}

static ls_status malformed(const char *name)
{
    return ls_fail(LS_ERR_DATA,
                   "%s is neither a tokenizer.json nor a SentencePiece model: its structure is broken", name);
}

/* ---- the model ---- */

typedef struct loader {
    ls_tokenizer *tokenizer;
    const char *name;
    uint8_t *types;
    uint32_t piece_count;
    uint64_t model_type;
    const char *bos_piece, *eos_piece;
} loader;

static ls_status read_piece(loader *l, message m, int32_t id)
{
    const unsigned char *text = NULL;
    size_t bytes = 0;
    uint32_t score_bits = 0;
    uint64_t type = TYPE_NORMAL;
    while (m.at < m.end) {
        field f;
        if (!read_field(&m, &f)) {
            return malformed(l->name);
        }
        if (f.number == 1 && f.wire_type == 2) {
            text = f.bytes.at;
            bytes = (size_t)(f.bytes.end - f.bytes.at);
        } else if (f.number == 2 && f.wire_type == 5) {
            score_bits = (uint32_t)f.value;
        } else if (f.number == 3 && f.wire_type == 0) {
            type = f.value;
        }
    }
    if (bytes == 0 || bytes > PIECE_BYTES_MAX || memchr(text, 0, bytes) ||
        ls_utf8_valid_prefix((const char *)text, bytes) < bytes) {
        return ls_fail(
            LS_ERR_DATA,
            "%s: piece (token) %d must be valid UTF-8 of 1 to %d bytes without zero bytes; it has %zu bytes",
            l->name, id, PIECE_BYTES_MAX, bytes);
    }
    if (type < TYPE_NORMAL || type > TYPE_BYTE || type == TYPE_UNUSED) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: piece (token) %d has the type number %llu, which is not supported", l->name, id,
                       (unsigned long long)type);
    }
    LS_TRY(ls_tokenizer_name_piece(l->tokenizer, id, (const char *)text, bytes, l->name));
    if (ls_string_map_get(&l->tokenizer->names, (const char *)text, bytes) != id) {
        return ls_fail(LS_ERR_DATA, "%s: the piece (token) \"%s\" occurs twice, with the ids %d and %d",
                       l->name, l->tokenizer->pieces[id].text,
                       ls_string_map_get(&l->tokenizer->names, (const char *)text, bytes), id);
    }
    memcpy(&l->tokenizer->pieces[id].score, &score_bits, sizeof score_bits);
    l->types[id] = (uint8_t)type;
    return LS_OK;
}

static ls_status read_trainer(loader *l, message m)
{
    ls_tokenizer *tokenizer = l->tokenizer;
    while (m.at < m.end) {
        field f;
        if (!read_field(&m, &f)) {
            return malformed(l->name);
        }
        const size_t bytes = f.wire_type == 2 ? (size_t)(f.bytes.end - f.bytes.at) : 0;
        if (f.wire_type == 0 && f.number == 3) {
            l->model_type = f.value;
        } else if (f.wire_type == 0 && f.number == 24) {
            tokenizer->sentencepiece.whitespace_suffix = f.value != 0;
        } else if (f.wire_type == 0 && f.number == 35) {
            tokenizer->byte_fallback = f.value != 0;
        } else if (f.wire_type == 2 && f.number == 46) {
            l->bos_piece = ls_arena_strndup(&tokenizer->arena, (const char *)f.bytes.at, bytes);
        } else if (f.wire_type == 2 && f.number == 47) {
            l->eos_piece = ls_arena_strndup(&tokenizer->arena, (const char *)f.bytes.at, bytes);
        }
    }
    return LS_OK;
}

/* precompiled_charsmap: the size of the trie in bytes, the trie (a double array of 32-bit units),
 * and the strings to which it refers. */
static ls_status read_charsmap(loader *l, message m)
{
    ls_sentencepiece *settings = &l->tokenizer->sentencepiece;
    uint64_t trie_bytes;
    if (m.at == m.end) {
        return LS_OK;
    }
    if (!read_fixed(&m, 4, &trie_bytes) || trie_bytes == 0 || trie_bytes % 4 != 0 ||
        trie_bytes >= (size_t)(m.end - m.at)) {
        return ls_fail(LS_ERR_DATA, "%s is damaged: its table of character replacements is not valid",
                       l->name);
    }
    settings->trie_units = trie_bytes / 4;
    uint32_t *trie = ls_arena_alloc(&l->tokenizer->arena, trie_bytes);
    memcpy(trie, m.at, trie_bytes);
    settings->trie = trie;
    settings->normalized_bytes = (size_t)(m.end - m.at) - trie_bytes;
    settings->normalized =
        ls_arena_strndup(&l->tokenizer->arena, (const char *)m.at + trie_bytes, settings->normalized_bytes);
    return LS_OK;
}

static ls_status read_normaliser_spec(loader *l, message m)
{
    ls_sentencepiece *settings = &l->tokenizer->sentencepiece;
    while (m.at < m.end) {
        field f;
        if (!read_field(&m, &f)) {
            return malformed(l->name);
        }
        if (f.wire_type == 2 && f.number == 2) {
            LS_TRY(read_charsmap(l, f.bytes));
        } else if (f.wire_type == 0 && f.number == 3) {
            settings->add_dummy_prefix = f.value != 0;
        } else if (f.wire_type == 0 && f.number == 4) {
            settings->remove_extra_whitespaces = f.value != 0;
        } else if (f.wire_type == 0 && f.number == 5) {
            settings->escape_whitespaces = f.value != 0;
        }
    }
    return LS_OK;
}

/* The first pass: checks the structure and counts the pieces. */
static ls_status count_pieces(loader *l, message m)
{
    while (m.at < m.end) {
        field f;
        if (!read_field(&m, &f)) {
            return malformed(l->name);
        }
        l->piece_count += f.number == 1 && f.wire_type == 2;
    }
    if (l->piece_count == 0) {
        return ls_fail(LS_ERR_DATA, "%s is not a SentencePiece model: it has no pieces (tokens)", l->name);
    }
    return l->piece_count <= LS_TOKENIZER_VOCAB_MAX / 2
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s has %u pieces (tokens); at most %d are allowed", l->name,
                         l->piece_count, LS_TOKENIZER_VOCAB_MAX / 2);
}

static ls_status read_sections(loader *l, message m)
{
    int32_t id = 0;
    while (m.at < m.end) {
        field f;
        if (!read_field(&m, &f)) {
            return malformed(l->name);
        }
        if (f.wire_type != 2) {
            continue;
        }
        if (f.number == 1) {
            LS_TRY(read_piece(l, f.bytes, id++));
        } else if (f.number == 2) {
            LS_TRY(read_trainer(l, f.bytes));
        } else if (f.number == 3) {
            LS_TRY(read_normaliser_spec(l, f.bytes));
        }
    }
    if (l->model_type != MODEL_BPE) {
        static const char *const names[] = {"?", "unigram", "BPE", "word", "char"};
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: the SentencePiece model type \"%s\" is not supported; only BPE is", l->name,
                       l->model_type < 5 ? names[l->model_type] : names[0]);
    }
    return LS_OK;
}

/* ---- pieces ---- */

static size_t character_count(const ls_piece *piece)
{
    size_t count = 0;
    for (uint32_t i = 0; i < piece->bytes; i++) {
        count += ((unsigned char)piece->text[i] & 0xc0) != 0x80;
    }
    return count;
}

/* The decoded text of a piece: U+2581 becomes a space. */
static void decode_spaces(ls_tokenizer *tokenizer, ls_piece *piece)
{
    static const char mark[] = "\xe2\x96\x81";
    if (!strstr(piece->text, mark)) {
        return;
    }
    char *out = ls_arena_alloc(&tokenizer->arena, piece->bytes + 1);
    uint32_t written = 0;
    for (uint32_t at = 0; at < piece->bytes;) {
        const bool space = strncmp(piece->text + at, mark, 3) == 0;
        out[written++] = space ? ' ' : piece->text[at];
        at += space ? 3 : 1;
    }
    piece->decoded = out;
    piece->decoded_bytes = written;
}

static ls_status sort_piece(loader *l, int32_t id, ls_added_pattern *user_defined, size_t *user_defined_count)
{
    ls_tokenizer *tokenizer = l->tokenizer;
    ls_piece *piece = &tokenizer->pieces[id];
    unsigned byte;
    switch (l->types[id]) {
    case TYPE_USER_DEFINED:
        user_defined[(*user_defined_count)++] =
            (ls_added_pattern){.text = piece->text, .bytes = piece->bytes, .id = id};
        decode_spaces(tokenizer, piece);
        break;
    case TYPE_NORMAL:
        decode_spaces(tokenizer, piece);
        break;
    case TYPE_UNKNOWN:
        if (tokenizer->unk >= 0) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: two pieces, %d and %d, are marked as the token for unknown text; only one is allowed",
                l->name, tokenizer->unk, id);
        }
        tokenizer->unk = id;
        piece->decoded = " \xe2\x81\x87 ";
        piece->decoded_bytes = 5;
        break;
    case TYPE_CONTROL:
        piece->flags |= LS_PIECE_SPECIAL;
        piece->decoded_bytes = 0;
        break;
    default:
        if (!ls_byte_piece(piece->text, piece->bytes, &byte)) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: piece %d stands for one byte, so its name must be <0x00> to <0xFF>, not \"%s\"", l->name,
                id, piece->text);
        }
        char *raw = ls_arena_alloc(&tokenizer->arena, 1);
        *raw = (char)byte;
        piece->decoded = raw;
        piece->decoded_bytes = 1;
        piece->flags |= LS_PIECE_BYTE;
        tokenizer->byte_ids[byte] = id;
        return LS_OK;
    }
    /* Control and unknown pieces are not matched in text unless they are a single character. */
    if (l->types[id] == TYPE_NORMAL || l->types[id] == TYPE_USER_DEFINED || character_count(piece) == 1) {
        ls_string_map_put(&tokenizer->model, &tokenizer->arena, piece->text, piece->bytes, id);
    }
    return LS_OK;
}

static ls_status sort_pieces(loader *l)
{
    ls_tokenizer *tokenizer = l->tokenizer;
    memset(tokenizer->byte_ids, 0xff, sizeof tokenizer->byte_ids);
    ls_string_map_init(&tokenizer->model, &tokenizer->arena, l->piece_count);
    ls_added_pattern *user_defined = ls_arena_new(&tokenizer->arena, ls_added_pattern, l->piece_count);
    size_t user_defined_count = 0;
    for (uint32_t id = 0; id < l->piece_count; id++) {
        LS_TRY(sort_piece(l, (int32_t)id, user_defined, &user_defined_count));
    }
    if (tokenizer->unk < 0) {
        return ls_fail(
            LS_ERR_DATA,
            "%s: no piece is marked as the token for unknown text; a SentencePiece model needs one", l->name);
    }
    for (int byte = 0; tokenizer->byte_fallback && byte < 256; byte++) {
        if (tokenizer->byte_ids[byte] < 0) {
            return ls_fail(
                LS_ERR_DATA,
                "%s writes unknown characters as bytes (byte_fallback) but lacks the piece <0x%02X>", l->name,
                byte);
        }
    }
    ls_matcher_init(&tokenizer->added, &tokenizer->arena, user_defined, user_defined_count);
    return LS_OK;
}

/* ---- merges ---- */

/* The symbol of a part of a piece, which is a piece or a single character; a character that is not
 * a piece becomes loose. -1: this part cannot occur. */
static int32_t part_symbol(loader *l, const char *text, size_t bytes)
{
    ls_tokenizer *tokenizer = l->tokenizer;
    const int32_t id = ls_string_map_get(&tokenizer->model, text, bytes);
    uint32_t c;
    if (id >= 0 || ls_utf8_valid_decode(text, &c) != bytes) {
        return id;
    }
    const int32_t symbol = (int32_t)(tokenizer->vocab_size + tokenizer->loose_count);
    tokenizer->loose[tokenizer->loose_count++] = (ls_piece){.text = text, .bytes = (uint32_t)bytes};
    ls_string_map_put(&tokenizer->model, &tokenizer->arena, text, bytes, symbol);
    return symbol;
}

static void add_splits(loader *l, int32_t id, uint32_t rank)
{
    const ls_piece *piece = &l->tokenizer->pieces[id];
    uint32_t c;
    for (uint32_t at = ls_utf8_valid_decode(piece->text, &c); at < piece->bytes;
         at += ls_utf8_valid_decode(piece->text + at, &c)) {
        const int32_t left = part_symbol(l, piece->text, at);
        const int32_t right = part_symbol(l, piece->text + at, piece->bytes - at);
        if (left >= 0 && right >= 0) {
            ls_merge_table_put(&l->tokenizer->merges, left, right, rank, id);
        }
    }
}

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *left = a, *right = b;
    if (left->score != right->score) {
        return left->score > right->score ? -1 : 1;
    }
    return left->id - right->id;
}

/* Equal scores get equal ranks; of these the leftmost pair is joined first, as in the library. */
static ls_status build_merges(loader *l)
{
    ls_tokenizer *tokenizer = l->tokenizer;
    scored *order = ls_arena_new(&tokenizer->arena, scored, l->piece_count);
    size_t count = 0, splits = 0;
    for (uint32_t id = 0; id < l->piece_count; id++) {
        const ls_piece *piece = &tokenizer->pieces[id];
        if (l->types[id] != TYPE_NORMAL && l->types[id] != TYPE_USER_DEFINED) {
            continue;
        }
        if (!(piece->score == piece->score)) {
            return ls_fail(LS_ERR_DATA, "%s: the score of piece %u is not a number", l->name, id);
        }
        order[count++] = (scored){.score = piece->score, .id = (int32_t)id};
        splits += character_count(piece);
    }
    qsort(order, count, sizeof *order, by_score);
    ls_merge_table_init(&tokenizer->merges, &tokenizer->arena, splits);
    tokenizer->loose = ls_arena_new(&tokenizer->arena, ls_piece, splits);
    uint32_t rank = 0;
    for (size_t i = 0; i < count; i++) {
        rank += i > 0 && order[i].score != order[i - 1].score;
        add_splits(l, order[i].id, rank);
    }
    return LS_OK;
}

static int32_t control_id(const loader *l, const char *piece)
{
    const int32_t id = ls_tokenizer_id(l->tokenizer, piece);
    return id >= 0 && l->types[id] == TYPE_CONTROL ? id : -1;
}

static ls_status fill(loader *l, message model)
{
    ls_tokenizer *tokenizer = l->tokenizer;
    LS_TRY(count_pieces(l, model));
    ls_tokenizer_set_vocab_size(tokenizer, l->piece_count);
    l->types = ls_arena_alloc(&tokenizer->arena, l->piece_count);
    tokenizer->sentencepiece = (ls_sentencepiece){
        .add_dummy_prefix = true, .remove_extra_whitespaces = true, .escape_whitespaces = true};
    LS_TRY(read_sections(l, model));
    LS_TRY(sort_pieces(l));
    LS_TRY(build_merges(l));
    tokenizer->fuse_unk = true;
    tokenizer->bos = control_id(l, l->bos_piece);
    tokenizer->eos = control_id(l, l->eos_piece);
    if (tokenizer->bos >= 0) {
        tokenizer->prefix = ls_arena_new(&tokenizer->arena, int32_t, 1);
        tokenizer->prefix[0] = tokenizer->bos;
        tokenizer->prefix_count = 1;
    }
    tokenizer->strip = tokenizer->sentencepiece.remove_extra_whitespaces ? LS_STRIP_ALL_SPACES
                       : tokenizer->sentencepiece.add_dummy_prefix       ? LS_STRIP_ONE_SPACE
                                                                         : LS_STRIP_NONE;
    ls_tokenizer_complete(tokenizer);
    return LS_OK;
}

ls_status ls_tokenizer_parse_sentencepiece(const void *data, size_t bytes, const char *name,
                                           ls_tokenizer **tokenizer_out)
{
    ls_tokenizer *tokenizer = ls_tokenizer_new(LS_TOKENIZER_SENTENCEPIECE);
    if (!tokenizer) {
        return LS_ERR_MEMORY;
    }
    loader l = {
        .tokenizer = tokenizer, .name = name, .model_type = 1, .bos_piece = "<s>", .eos_piece = "</s>"};
    const message model = {.at = data, .end = (const unsigned char *)data + bytes};
    const ls_status status = fill(&l, model);
    if (status != LS_OK) {
        ls_tokenizer_destroy(tokenizer);
        return status;
    }
    ls_tokenizer_set_source(tokenizer, "tokenizer.model", data, bytes);
    *tokenizer_out = tokenizer;
    return LS_OK;
}

/* ---- normalising ---- */

/* The longest key of the double array at the beginning of the text: its length (0: none), and its
 * replacement in *out. A unit has the offset of its children in bits 10 and up, a factor 256 for it
 * in bit 9, "has a value" in bit 8 and its byte below; the value is in the child for byte 0. */
static size_t replacement_at(const ls_sentencepiece *settings, const char *text, size_t bytes,
                             const char **out)
{
    size_t longest = 0;
    uint32_t unit = settings->trie[0];
    size_t node = (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
    for (size_t i = 0; i < bytes; i++) {
        node ^= (unsigned char)text[i];
        if (node >= settings->trie_units) {
            break;
        }
        unit = settings->trie[node];
        if ((unit & (1u << 31 | 0xff)) != (unsigned char)text[i]) {
            break;
        }
        node ^= (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
        if (((unit >> 8) & 1) && node < settings->trie_units) {
            const size_t value = settings->trie[node] & 0x7fffffff;
            if (value < settings->normalized_bytes) {
                longest = i + 1;
                *out = settings->normalized + value;
            }
        }
    }
    return longest;
}

/* The normal form of the first user-defined symbol, key of the table or character of the text.
 * Returns the number of bytes that it replaces. */
static size_t normalise_prefix(const ls_tokenizer *tokenizer, const char *text, size_t bytes,
                               const char **out, size_t *out_bytes)
{
    *out = text;
    if (!tokenizer->added.empty) {
        const int32_t found = ls_matcher_at(&tokenizer->added, text, 0, bytes);
        if (found >= 0) {
            return *out_bytes = tokenizer->added.patterns[found].bytes;
        }
    }
    if (tokenizer->sentencepiece.trie) {
        const size_t taken = replacement_at(&tokenizer->sentencepiece, text, bytes, out);
        if (taken > 0) {
            *out_bytes = strlen(*out);
            return taken;
        }
    }
    uint32_t c;
    const int length = ls_utf8_decode(text, bytes, &c);
    if (length < 0) {
        *out = "\xef\xbf\xbd";
        *out_bytes = 3;
        return 1;
    }
    return *out_bytes = (size_t)length;
}

static ls_status append_escaped(const ls_tokenizer *tokenizer, const char *text, size_t bytes,
                                ls_text_buffer *out)
{
    LS_TRY(ls_text_buffer_reserve(out, 3 * bytes));
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ' && tokenizer->sentencepiece.escape_whitespaces) {
            memcpy(out->data + out->bytes, "\xe2\x96\x81", 3);
            out->bytes += 3;
        } else {
            out->data[out->bytes++] = text[i];
        }
    }
    return LS_OK;
}

static size_t skip_leading_spaces(const ls_tokenizer *tokenizer, const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        const char *normal;
        size_t normal_bytes;
        const size_t taken = normalise_prefix(tokenizer, text + at, bytes - at, &normal, &normal_bytes);
        if (normal_bytes != 1 || *normal != ' ') {
            break;
        }
        at += taken;
    }
    return at;
}

static void strip_trailing_spaces(const ls_tokenizer *tokenizer, ls_text_buffer *out, size_t from)
{
    const char *space = tokenizer->sentencepiece.escape_whitespaces ? "\xe2\x96\x81" : " ";
    const size_t bytes = strlen(space);
    while (out->bytes - from >= bytes && memcmp(out->data + out->bytes - bytes, space, bytes) == 0) {
        out->bytes -= bytes;
    }
}

ls_status ls_sentencepiece_normalise(const ls_tokenizer *tokenizer, const char *text, size_t bytes,
                                     ls_text_buffer *out)
{
    const ls_sentencepiece *settings = &tokenizer->sentencepiece;
    const size_t from = out->bytes;
    size_t at = settings->remove_extra_whitespaces ? skip_leading_spaces(tokenizer, text, bytes) : 0;
    if (at == bytes) {
        return LS_OK;
    }
    if (settings->add_dummy_prefix && !settings->whitespace_suffix) {
        LS_TRY(append_escaped(tokenizer, " ", 1, out));
    }
    bool after_space = settings->remove_extra_whitespaces;
    while (at < bytes) {
        const char *normal;
        size_t normal_bytes;
        at += normalise_prefix(tokenizer, text + at, bytes - at, &normal, &normal_bytes);
        while (after_space && normal_bytes > 0 && *normal == ' ') {
            normal++;
            normal_bytes--;
        }
        if (normal_bytes > 0) {
            LS_TRY(append_escaped(tokenizer, normal, normal_bytes, out));
            after_space = settings->remove_extra_whitespaces && normal[normal_bytes - 1] == ' ';
        }
    }
    if (settings->remove_extra_whitespaces) {
        strip_trailing_spaces(tokenizer, out, from);
    }
    if (settings->add_dummy_prefix && settings->whitespace_suffix) {
        LS_TRY(append_escaped(tokenizer, " ", 1, out));
    }
    return LS_OK;
}
