// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_internal.h"

#include "base/assert.h"
#include "tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- string map ---- */

void ls_string_map_init(ls_string_map *map, ls_arena *arena, size_t expected)
{
    size_t slots = 16;
    while (slots < 2 * expected) {
        slots *= 2;
    }
    *map = (ls_string_map){.slots = ls_arena_new(arena, ls_string_slot, slots), .mask = slots - 1};
}

static ls_string_slot *find_slot(const ls_string_map *map, const char *key, size_t bytes, uint64_t hash)
{
    for (size_t at = hash & map->mask;; at = (at + 1) & map->mask) {
        ls_string_slot *slot = &map->slots[at];
        if (!slot->key ||
            (slot->hash == hash && slot->bytes == bytes && memcmp(slot->key, key, bytes) == 0)) {
            return slot;
        }
    }
}

static void grow(ls_string_map *map, ls_arena *arena)
{
    const ls_string_map old = *map;
    ls_string_map_init(map, arena, old.mask + 1);
    map->count = old.count;
    for (size_t i = 0; i <= old.mask; i++) {
        const ls_string_slot *slot = &old.slots[i];
        if (slot->key) {
            *find_slot(map, slot->key, slot->bytes, slot->hash) = *slot;
        }
    }
}

bool ls_string_map_put(ls_string_map *map, ls_arena *arena, const char *key, size_t bytes, int32_t value)
{
    if (!map->slots || 2 * map->count > map->mask) {
        if (map->slots) {
            grow(map, arena);
        } else {
            ls_string_map_init(map, arena, 16);
        }
    }
    const uint64_t hash = ls_xxh3(key, bytes, 0);
    ls_string_slot *slot = find_slot(map, key, bytes, hash);
    if (slot->key) {
        return false;
    }
    *slot = (ls_string_slot){.key = key, .bytes = (uint32_t)bytes, .value = value, .hash = hash};
    map->count++;
    return true;
}

int32_t ls_string_map_get(const ls_string_map *map, const char *key, size_t bytes)
{
    if (!map->slots) {
        return -1;
    }
    const ls_string_slot *slot = find_slot(map, key, bytes, ls_xxh3(key, bytes, 0));
    return slot->key ? slot->value : -1;
}

/* ---- buffers ---- */

/* A capacity of at least `needed`, which grows by half; 0 on overflow. */
static size_t grown(size_t capacity, size_t needed)
{
    size_t bigger = capacity < 64 ? 64 : capacity;
    while (bigger < needed) {
        if (bigger > SIZE_MAX / 4) {
            return 0;
        }
        bigger += bigger / 2;
    }
    return bigger;
}

ls_status ls_token_buffer_reserve(ls_token_buffer *buffer, size_t count)
{
    if (buffer->capacity - buffer->count >= count) {
        return LS_OK;
    }
    const size_t capacity = count > SIZE_MAX / 16 ? 0 : grown(buffer->capacity, buffer->count + count);
    int32_t *ids = capacity ? realloc(buffer->ids, capacity * sizeof *ids) : NULL;
    if (!ids) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %zu token ids", buffer->count + count);
    }
    buffer->ids = ids;
    buffer->capacity = capacity;
    return LS_OK;
}

void ls_token_buffer_release(ls_token_buffer *buffer)
{
    free(buffer->ids);
    *buffer = (ls_token_buffer){0};
}

ls_status ls_text_buffer_reserve(ls_text_buffer *buffer, size_t bytes)
{
    if (buffer->capacity > buffer->bytes && buffer->capacity - buffer->bytes > bytes) {
        return LS_OK;
    }
    const size_t capacity = bytes > SIZE_MAX / 16 ? 0 : grown(buffer->capacity, buffer->bytes + bytes + 1);
    char *data = capacity ? realloc(buffer->data, capacity) : NULL;
    if (!data) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %zu bytes of text", buffer->bytes + bytes);
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return LS_OK;
}

ls_status ls_text_buffer_append(ls_text_buffer *buffer, const char *data, size_t bytes)
{
    LS_TRY(ls_text_buffer_reserve(buffer, bytes));
    if (bytes > 0) {
        memcpy(buffer->data + buffer->bytes, data, bytes);
    }
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = '\0';
    return LS_OK;
}

void ls_text_buffer_release(ls_text_buffer *buffer)
{
    free(buffer->data);
    *buffer = (ls_text_buffer){0};
}

/* ---- the byte-level alphabet ---- */

/*
 * GPT-2 writes each byte as a printable character: the printable ones of Latin-1 stand for
 * themselves, the other 68 become U+0100 and so on, in order.
 */
static bool prints(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static uint32_t byte_level_char(unsigned char byte)
{
    if (prints(byte)) {
        return byte;
    }
    unsigned before = 0;
    for (unsigned i = 0; i < byte; i++) {
        before += !prints(i);
    }
    return 0x100 + before;
}

int ls_byte_level_byte(uint32_t c)
{
    if (c < 0x100) {
        return prints(c) ? (int)c : -1;
    }
    /* 0x100 to 0x120 are the bytes 0 to 0x20; 0x121 to 0x142 are 0x7f to 0xa0; 0x143 is 0xad. */
    if (c <= 0x120) {
        return (int)(c - 0x100);
    }
    if (c <= 0x142) {
        return (int)(c - 0x121 + 0x7f);
    }
    return c == 0x143 ? 0xad : -1;
}

bool ls_byte_level_decode(const char *text, size_t bytes, char *out, size_t *out_bytes)
{
    size_t written = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        const int length = ls_utf8_decode(text + at, bytes - at, &c);
        const int byte = length < 0 ? -1 : ls_byte_level_byte(c);
        if (byte < 0) {
            return false;
        }
        out[written++] = (char)byte;
        at += (size_t)length;
    }
    *out_bytes = written;
    return true;
}

size_t ls_byte_level_encode(const char *raw, size_t bytes, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes; i++) {
        written += ls_utf8_encode(byte_level_char((unsigned char)raw[i]), out + written);
    }
    return written;
}

/* ---- objects ---- */

ls_tokenizer *ls_tokenizer_new(ls_tokenizer_type type)
{
    ls_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) {
        ls_fail(LS_ERR_MEMORY, "not enough memory for a tokenizer");
        return NULL;
    }
    tokenizer->type = type;
    tokenizer->bos = tokenizer->eos = tokenizer->unk = -1;
    tokenizer->added.empty = tokenizer->added_normalised.empty = true;
    return tokenizer;
}

void ls_tokenizer_set_vocab_size(ls_tokenizer *tokenizer, uint32_t vocab_size)
{
    LS_ASSERT(vocab_size <= LS_TOKENIZER_VOCAB_MAX);
    tokenizer->vocab_size = vocab_size;
    tokenizer->pieces = ls_arena_new(&tokenizer->arena, ls_piece, vocab_size);
    ls_string_map_init(&tokenizer->names, &tokenizer->arena, vocab_size);
}

ls_status ls_tokenizer_name_piece(ls_tokenizer *tokenizer, int32_t id, const char *text, size_t bytes,
                                  const char *name)
{
    LS_ASSERT(id >= 0 && (uint32_t)id < tokenizer->vocab_size);
    ls_piece *piece = &tokenizer->pieces[id];
    if (piece->text) {
        return ls_fail(LS_ERR_DATA, "%s: the tokens \"%s\" and \"%.*s\" have the same id %d", name,
                       piece->text, (int)(bytes > 80 ? 80 : bytes), text, id);
    }
    piece->text = ls_arena_strndup(&tokenizer->arena, text, bytes);
    piece->bytes = (uint32_t)bytes;
    piece->decoded = piece->text;
    piece->decoded_bytes = piece->bytes;
    ls_string_map_put(&tokenizer->names, &tokenizer->arena, piece->text, bytes, id);
    return LS_OK;
}

void ls_tokenizer_set_source(ls_tokenizer *tokenizer, const char *source_name, const void *data, size_t bytes)
{
    char *copy = ls_arena_alloc(&tokenizer->arena, bytes + 1);
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    tokenizer->source_name = source_name;
    tokenizer->source = copy;
    tokenizer->source_bytes = bytes;

    char specials[64];
    const int length = snprintf(specials, sizeof specials, "lockstep tokenizer 1 bos %d eos %d\n",
                                tokenizer->bos, tokenizer->eos);
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, specials, (size_t)length);
    ls_sha256_update(&hash, data, bytes);
    ls_sha256_finish(&hash, tokenizer->hash);
}

void ls_tokenizer_destroy(ls_tokenizer *tokenizer)
{
    if (tokenizer) {
        for (size_t i = 0; i < tokenizer->splitter_count; i++) {
            ls_regex_release(&tokenizer->splitters[i].regex);
        }
        ls_arena_release(&tokenizer->arena);
        free(tokenizer);
    }
}

static ls_status name_bytes(ls_tokenizer *tokenizer)
{
    ls_tokenizer_set_vocab_size(tokenizer, 256);
    for (int byte = 0; byte < 256; byte++) {
        const char raw = (char)byte;
        char name[2];
        const size_t bytes = ls_byte_level_encode(&raw, 1, name);
        LS_TRY(ls_tokenizer_name_piece(tokenizer, byte, name, bytes, "bytes"));
    }
    ls_tokenizer_complete(tokenizer);
    char *json;
    size_t json_bytes;
    LS_TRY(ls_tokenizer_write_json(tokenizer, &json, &json_bytes));
    ls_tokenizer_set_source(tokenizer, "tokenizer.json", json, json_bytes);
    free(json);
    return LS_OK;
}

ls_status ls_tokenizer_create_bytes(ls_tokenizer **tokenizer_out)
{
    ls_tokenizer *tokenizer = ls_tokenizer_new(LS_TOKENIZER_BYTES);
    if (!tokenizer) {
        return LS_ERR_MEMORY;
    }
    const ls_status status = name_bytes(tokenizer);
    if (status != LS_OK) {
        ls_tokenizer_destroy(tokenizer);
        return status;
    }
    *tokenizer_out = tokenizer;
    return LS_OK;
}

/* ---- properties ---- */

uint32_t ls_tokenizer_vocab_size(const ls_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t ls_tokenizer_bos(const ls_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t ls_tokenizer_eos(const ls_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

const char *ls_tokenizer_piece(const ls_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (uint32_t)id < tokenizer->vocab_size ? tokenizer->pieces[id].text : NULL;
}

int32_t ls_tokenizer_id(const ls_tokenizer *tokenizer, const char *piece)
{
    return ls_string_map_get(&tokenizer->names, piece, strlen(piece));
}

const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer)
{
    static const char *const names[] = {"bytes", "byte-level BPE", "BPE with byte fallback",
                                        "SentencePiece BPE"};
    return names[tokenizer->type];
}

const char *ls_tokenizer_hash(const ls_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

void ls_tokenizer_source(const ls_tokenizer *tokenizer, const char **name_out, const void **data_out,
                         size_t *bytes_out)
{
    *name_out = tokenizer->source_name;
    *data_out = tokenizer->source;
    *bytes_out = tokenizer->source_bytes;
}

bool ls_text_check_utf8(const char *text, size_t bytes, size_t *offset_out)
{
    const size_t valid = bytes > 0 ? ls_utf8_valid_prefix(text, bytes) : 0;
    if (valid < bytes && offset_out) {
        *offset_out = valid;
    }
    return valid == bytes;
}
