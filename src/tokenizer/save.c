// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_internal.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/*
 * The tree is built with jansson, which keeps the order of keys. A failed allocation gives NULL,
 * which packing and dumping pass on, so one check at the end is enough.
 */

static json_t *added_token(const ls_tokenizer *tokenizer, int32_t id)
{
    const ls_piece *piece = &tokenizer->pieces[id];
    return json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", piece->text,
                     (size_t)piece->bytes, "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0,
                     "special", (piece->flags & LS_PIECE_SPECIAL) != 0);
}

static json_t *added_tokens(const ls_tokenizer *tokenizer)
{
    json_t *list = json_array();
    for (uint32_t id = 0; id < tokenizer->vocab_size; id++) {
        const bool unknown = (int32_t)id == tokenizer->unk && tokenizer->type == LS_TOKENIZER_SENTENCEPIECE;
        if (unknown || (tokenizer->pieces[id].flags & (LS_PIECE_ADDED | LS_PIECE_SPECIAL))) {
            json_array_append_new(list, added_token(tokenizer, (int32_t)id));
        }
    }
    return list;
}

static json_t *vocabulary(const ls_tokenizer *tokenizer)
{
    json_t *vocab = json_object();
    for (uint32_t id = 0; id < tokenizer->vocab_size; id++) {
        if (tokenizer->pieces[id].text) {
            json_object_set_new(vocab, tokenizer->pieces[id].text, json_integer(id));
        }
    }
    return vocab;
}

static json_t *merges(const ls_tokenizer *tokenizer)
{
    ls_arena arena = {0};
    size_t count;
    const ls_merge *list = ls_merge_table_sorted(&tokenizer->merges, &arena, &count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        const char *left = ls_tokenizer_piece(tokenizer, (int32_t)(list[i].pair >> 32));
        const char *right = ls_tokenizer_piece(tokenizer, (int32_t)(uint32_t)list[i].pair);
        /* Every version reads one string; tokens with spaces need the newer form. */
        const bool spaces = strchr(left, ' ') || strchr(right, ' ');
        json_array_append_new(array,
                              spaces ? json_pack("[s, s]", left, right) : json_sprintf("%s %s", left, right));
    }
    ls_arena_release(&arena);
    return array;
}

static json_t *byte_level(bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", (int)use_regex);
}

/* Puts the sections together; NULL becomes null. */
static json_t *assemble(const ls_tokenizer *tokenizer, json_t *normaliser, json_t *splitter,
                        json_t *processor, json_t *decoder, const char *unknown)
{
    const bool characters = tokenizer->type == LS_TOKENIZER_SENTENCEPIECE;
    json_t *model =
        json_pack("{s:s, s:n, s:s?, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                  "unk_token", unknown, "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                  characters, "byte_fallback", (int)tokenizer->byte_fallback, "ignore_merges", 0, "vocab",
                  vocabulary(tokenizer), "merges", merges(tokenizer));
    return json_pack("{s:s, s:n, s:n, s:o, s:o?, s:o?, s:o?, s:o?, s:o}", "version", "1.0", "truncation",
                     "padding", "added_tokens", added_tokens(tokenizer), "normalizer", normaliser,
                     "pre_tokenizer", splitter, "post_processor", processor, "decoder", decoder, "model",
                     model);
}

/* The normalisation of sentencepiece, written as the converters of transformers do for Llama 2. */
static json_t *sentencepiece_root(const ls_tokenizer *tokenizer)
{
    const char *mark = "\xe2\x96\x81";
    json_t *replace =
        json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", mark);
    json_t *normaliser = replace;
    if (tokenizer->sentencepiece.add_dummy_prefix) {
        normaliser = json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type",
                               "Prepend", "prepend", mark, replace);
    }
    json_t *decoders = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern",
                                 "String", mark, "content", " ", "type", "ByteFallback", "type", "Fuse");
    if (tokenizer->sentencepiece.add_dummy_prefix) {
        json_array_append_new(decoders, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ",
                                                  "start", 1, "stop", 0));
    }
    json_t *processor = NULL;
    if (tokenizer->bos >= 0) {
        const char *bos = tokenizer->pieces[tokenizer->bos].text;
        processor = json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}],"
                              " s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}],"
                              " s:{s:{s:s, s:[i], s:[s]}}}",
                              "type", "TemplateProcessing", "single", "SpecialToken", "id", bos, "type_id", 0,
                              "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", bos,
                              "type_id", 0, "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", bos,
                              "type_id", 1, "Sequence", "id", "B", "type_id", 1, "special_tokens", bos, "id",
                              bos, "ids", (int)tokenizer->bos, "tokens", bos);
    }
    return assemble(tokenizer, normaliser, NULL, processor,
                    json_pack("{s:s, s:o}", "type", "Sequence", "decoders", decoders),
                    ls_tokenizer_piece(tokenizer, tokenizer->unk));
}

ls_status ls_tokenizer_write_json(const ls_tokenizer *tokenizer, char **text_out, size_t *bytes_out)
{
    json_t *root;
    if (tokenizer->type == LS_TOKENIZER_SENTENCEPIECE) {
        const ls_sentencepiece *settings = &tokenizer->sentencepiece;
        if (settings->trie || settings->remove_extra_whitespaces || !settings->escape_whitespaces ||
            settings->whitespace_suffix || tokenizer->loose_count > 0) {
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "this tokenizer.model normalises text in a way that a tokenizer.json cannot "
                           "express; use the tokenizer.model itself");
        }
        root = sentencepiece_root(tokenizer);
    } else {
        const bool regex = tokenizer->splitter_count > 0;
        root = assemble(tokenizer, NULL, byte_level(regex), byte_level(true), byte_level(true), NULL);
    }
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for writing a tokenizer.json");
    }
    *text_out = text;
    *bytes_out = strlen(text);
    return LS_OK;
}

ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *path)
{
    if (strcmp(tokenizer->source_name, "tokenizer.json") == 0) {
        return ls_file_write_atomic(path, tokenizer->source, tokenizer->source_bytes);
    }
    char *text;
    size_t bytes;
    LS_TRY(ls_tokenizer_write_json(tokenizer, &text, &bytes));
    const ls_status status = ls_file_write_atomic(path, text, bytes);
    free(text);
    return status;
}
