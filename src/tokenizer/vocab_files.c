// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_internal.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- GPT-2's two files ---- */

/* Reads vocab.json: { "Ġthe": 262, ... } */
static ls_status read_gpt2_vocabulary(ls_tokenizer *tokenizer, const json_t *vocab, const char *name)
{
    const size_t count = json_object_size(vocab);
    if (count == 0 || count > LS_TOKENIZER_VOCAB_MAX / 2) {
        return ls_fail(LS_ERR_DATA,
                       "%s must be a JSON object that gives the id of each token, with at least one token",
                       name);
    }
    ls_tokenizer_set_vocab_size(tokenizer, (uint32_t)count);
    ls_string_map_init(&tokenizer->model, &tokenizer->arena, count);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value)
    {
        const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= (json_int_t)count) {
            return ls_fail(LS_ERR_DATA,
                           "%s: the id of the token \"%.80s\" must be a whole number from 0 to %zu", name,
                           key, count - 1);
        }
        LS_TRY(ls_tokenizer_name_piece(tokenizer, (int32_t)id, key, strlen(key), name));
        ls_piece *piece = &tokenizer->pieces[id];
        char *raw = ls_arena_alloc(&tokenizer->arena, piece->bytes + 1);
        size_t raw_bytes;
        if (ls_byte_level_decode(piece->text, piece->bytes, raw, &raw_bytes)) {
            piece->decoded = raw;
            piece->decoded_bytes = (uint32_t)raw_bytes;
            ls_string_map_put(&tokenizer->model, &tokenizer->arena, raw, raw_bytes, (int32_t)id);
        }
    }
    return LS_OK;
}

/* The id of a name that has no terminating zero. */
static int32_t id_of(const ls_tokenizer *tokenizer, const char *text, size_t bytes)
{
    return ls_string_map_get(&tokenizer->names, text, bytes);
}

static ls_status read_gpt2_merge(ls_tokenizer *tokenizer, const char *line, size_t bytes, uint32_t rank,
                                 const char *name, unsigned line_number)
{
    const char *space = memchr(line, ' ', bytes);
    const size_t left_bytes = space ? (size_t)(space - line) : 0;
    const size_t right_bytes = space ? bytes - left_bytes - 1 : 0;
    if (left_bytes == 0 || right_bytes == 0 || memchr(space + 1, ' ', right_bytes)) {
        return ls_fail(LS_ERR_DATA,
                       "%s:%u: a merge must be two tokens with one space between them, not \"%.*s\"", name,
                       line_number, (int)(bytes > 80 ? 80 : bytes), line);
    }
    ls_arena scratch = {0};
    char *joined = ls_arena_alloc(&scratch, bytes);
    memcpy(joined, line, left_bytes);
    memcpy(joined + left_bytes, space + 1, right_bytes);
    const int32_t left = id_of(tokenizer, line, left_bytes);
    const int32_t right = id_of(tokenizer, space + 1, right_bytes);
    const int32_t id = id_of(tokenizer, joined, left_bytes + right_bytes);
    ls_arena_release(&scratch);
    if (left < 0 || right < 0 || id < 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s:%u: the merge \"%.*s\" uses or forms a token that is not in the vocabulary", name,
                       line_number, (int)(bytes > 80 ? 80 : bytes), line);
    }
    ls_merge_table_put(&tokenizer->merges, left, right, rank, id);
    return LS_OK;
}

static ls_status read_gpt2_merges(ls_tokenizer *tokenizer, const char *text, size_t bytes, const char *name)
{
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    ls_merge_table_init(&tokenizer->merges, &tokenizer->arena, lines);
    uint32_t rank = 0;
    unsigned line_number = 0;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t stop = end ? (size_t)(end - text) : bytes;
        size_t length = stop - at;
        length -= length > 0 && text[stop - 1] == '\r';
        line_number++;
        const bool version = length >= 8 && memcmp(text + at, "#version", 8) == 0;
        if (length > 0 && !version) {
            LS_TRY(read_gpt2_merge(tokenizer, text + at, length, rank++, name, line_number));
        }
        at = stop + 1;
    }
    return LS_OK;
}

/* Makes the token that ends documents an added token, as in the tokenizer.json for these files. */
static void add_end_of_text(ls_tokenizer *tokenizer)
{
    static const char name[] = "<|endoftext|>";
    const int32_t id = ls_tokenizer_id(tokenizer, name);
    if (id < 0) {
        return;
    }
    ls_piece *piece = &tokenizer->pieces[id];
    piece->flags = LS_PIECE_SPECIAL | LS_PIECE_ADDED;
    piece->decoded = piece->text;
    piece->decoded_bytes = piece->bytes;
    const ls_added_pattern pattern = {.text = piece->text, .bytes = piece->bytes, .id = id};
    ls_matcher_init(&tokenizer->added, &tokenizer->arena, &pattern, 1);
}

static ls_status fill_gpt2(ls_tokenizer *tokenizer, const char *vocab_path, const char *merges_path)
{
    json_t *vocab;
    LS_TRY(ls_json_load(vocab_path, LS_TOKENIZER_FILE_MAX, &vocab));
    ls_status status = read_gpt2_vocabulary(tokenizer, vocab, vocab_path);
    json_decref(vocab);
    LS_TRY(status);
    ls_file_map map;
    LS_TRY(ls_file_map_open(merges_path, &map));
    status = map.bytes <= LS_TOKENIZER_FILE_MAX
                 ? read_gpt2_merges(tokenizer, (const char *)map.data, map.bytes, merges_path)
                 : ls_fail(LS_ERR_DATA, "%s has %zu bytes; at most %d are allowed", merges_path, map.bytes,
                           LS_TOKENIZER_FILE_MAX);
    ls_file_map_close(&map);
    LS_TRY(status);
    tokenizer->splitters[0] = (ls_splitter){.kind = LS_SPLITTER_PATTERN, .pattern = LS_PATTERN_GPT2};
    tokenizer->splitter_count = 1;
    ls_tokenizer_complete(tokenizer);
    add_end_of_text(tokenizer);
    ls_tokenizer_guess_specials(tokenizer);
    char *json;
    size_t bytes;
    LS_TRY(ls_tokenizer_write_json(tokenizer, &json, &bytes));
    ls_tokenizer_set_source(tokenizer, "tokenizer.json", json, bytes);
    free(json);
    return LS_OK;
}

static ls_status load_gpt2(const char *vocab_path, const char *merges_path, ls_tokenizer **tokenizer_out)
{
    ls_tokenizer *tokenizer = ls_tokenizer_new(LS_TOKENIZER_BYTE_LEVEL);
    if (!tokenizer) {
        return LS_ERR_MEMORY;
    }
    const ls_status status = fill_gpt2(tokenizer, vocab_path, merges_path);
    if (status != LS_OK) {
        ls_tokenizer_destroy(tokenizer);
        return status;
    }
    *tokenizer_out = tokenizer;
    return LS_OK;
}

/* ---- tokenizer_config.json, special_tokens_map.json ---- */

/* The id of "eos_token" or another key, whose value is a string or an object with `content`. -1:
 * null; -2: the key is missing. */
static int32_t configured_id(const ls_tokenizer *tokenizer, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    if (!value) {
        return -2;
    }
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    return text ? ls_tokenizer_id(tokenizer, text) : -1;
}

/* Reads bos and eos as set by the makers of the model. A file that cannot be read is an error,
 * since another eos would give another data set. */
static ls_status read_config(ls_tokenizer *tokenizer, const char *path)
{
    json_t *config;
    LS_TRY(ls_json_load(path, LS_TOKENIZER_FILE_MAX, &config));
    const int32_t bos = configured_id(tokenizer, config, "bos_token");
    const int32_t eos = configured_id(tokenizer, config, "eos_token");
    json_decref(config);
    tokenizer->bos = bos == -2 ? tokenizer->bos : bos;
    tokenizer->eos = eos == -2 ? tokenizer->eos : eos;
    return LS_OK;
}

/* What tokenizer_config.json says comes last and wins. */
static ls_status read_configs(ls_arena *arena, ls_tokenizer *tokenizer, const char *folder)
{
    static const char *const names[] = {"special_tokens_map.json", "tokenizer_config.json"};
    bool found = false;
    for (int i = 0; i < 2; i++) {
        const char *path = ls_path_join(arena, folder, names[i]);
        if (ls_path_exists(path)) {
            LS_TRY(read_config(tokenizer, path));
            found = true;
        }
    }
    if (found) {
        ls_tokenizer_set_source(tokenizer, tokenizer->source_name, tokenizer->source,
                                tokenizer->source_bytes);
    }
    return LS_OK;
}

/* ---- files and folders ---- */

ls_status ls_tokenizer_parse(const void *data, size_t bytes, const char *name, ls_tokenizer **tokenizer_out)
{
    const char *text = data;
    size_t at = 0;
    while (at < bytes && strchr(" \t\r\n", text[at]) && text[at] != '\0') {
        at++;
    }
    if (at == bytes) {
        return ls_fail(LS_ERR_DATA, "%s is empty; it must be a tokenizer.json or a tokenizer.model", name);
    }
    /* A SentencePiece model begins with a piece: the byte 0x0a, which is also white space, and then
     * a length, which may be '{'. So after a line feed both formats are tried. */
    if (text[at] == '{') {
        const ls_status status = ls_tokenizer_parse_json(text, bytes, name, tokenizer_out);
        if (status == LS_OK || text[0] != '\n') {
            return status;
        }
    }
    return ls_tokenizer_parse_sentencepiece(data, bytes, name, tokenizer_out);
}

static ls_status load_file(const char *path, ls_tokenizer **tokenizer_out)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    ls_status status;
    if (map.bytes > LS_TOKENIZER_FILE_MAX) {
        status = ls_fail(LS_ERR_DATA, "%s has %zu bytes; a tokenizer may have at most %d", path, map.bytes,
                         LS_TOKENIZER_FILE_MAX);
    } else {
        status = ls_tokenizer_parse(map.data, map.bytes, path, tokenizer_out);
    }
    ls_file_map_close(&map);
    return status;
}

/* The file of merges that belongs to a vocabulary: "merges.txt" to "vocab.json", "x-vocab.bpe" to
 * "x-encoder.json". NULL: none. */
static char *merges_beside(ls_arena *arena, const char *path)
{
    static const char *const pairs[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};
    for (int i = 0; i < 2; i++) {
        if (ls_path_has_suffix(path, pairs[i][0])) {
            const size_t stem = strlen(path) - strlen(pairs[i][0]);
            char *merges = ls_arena_printf(arena, "%.*s%s", (int)stem, path, pairs[i][1]);
            return ls_path_exists(merges) ? merges : NULL;
        }
    }
    return NULL;
}

static ls_status load_any_file(ls_arena *arena, const char *path, ls_tokenizer **tokenizer_out)
{
    const char *merges = merges_beside(arena, path);
    ls_tokenizer *tokenizer = NULL;
    LS_TRY(merges ? load_gpt2(path, merges, &tokenizer) : load_file(path, &tokenizer));
    const char *folder = ls_path_dirname(arena, path);
    ls_status status = ls_tokenizer_add_beside(folder, &tokenizer);
    if (status == LS_OK) {
        status = read_configs(arena, tokenizer, folder);
    }
    if (status != LS_OK) {
        ls_tokenizer_destroy(tokenizer);
        return status;
    }
    *tokenizer_out = tokenizer;
    return LS_OK;
}

static ls_status load_folder(ls_arena *arena, const char *folder, ls_tokenizer **tokenizer_out)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "encoder.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = ls_path_join(arena, folder, names[i]);
        if (ls_path_exists(path) && (i < 2 || merges_beside(arena, path))) {
            return load_any_file(arena, path, tokenizer_out);
        }
    }
    return ls_fail(LS_ERR_NOT_FOUND,
                   "no tokenizer in %s: it has neither tokenizer.json nor tokenizer.model, nor vocab.json "
                   "with merges.txt, nor encoder.json with vocab.bpe",
                   folder);
}

ls_status ls_tokenizer_load(const char *path, ls_tokenizer **tokenizer_out)
{
    ls_arena arena = {0};
    const ls_status status = ls_path_is_dir(path) ? load_folder(&arena, path, tokenizer_out)
                                                  : load_any_file(&arena, path, tokenizer_out);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_tokenizer_open(const char *name, ls_tokenizer **tokenizer_out)
{
    return strcmp(name, "bytes") == 0 ? ls_tokenizer_create_bytes(tokenizer_out)
                                      : ls_tokenizer_load(name, tokenizer_out);
}
