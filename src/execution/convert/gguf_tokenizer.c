// SPDX-License-Identifier: Apache-2.0
#include "execution/convert/gguf_tokenizer.h"

#include "tokenizer/vocabulary.h"

#include <inttypes.h>
#include <string.h>

/* An export has the template in this file, wherever it came from. */
static ls_status add_template(ls_gguf *gguf, ls_arena *arena, const ls_hf_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(files[i].name, "chat_template.jinja") == 0) {
            const char *text = ls_arena_strndup(arena, files[i].data, files[i].bytes);
            if (strlen(text) < files[i].bytes || !ls_text_check_utf8(text, files[i].bytes, NULL)) {
                return ls_fail(LS_ERR_DATA, "chat_template.jinja is not UTF-8 text");
            }
            ls_gguf_add_string(gguf, "tokenizer.chat_template", text);
        }
    }
    return LS_OK;
}

/* ---- tokens ---- */

/* As many tokens as the table of embeddings has rows. */
static ls_status pad(ls_arena *arena, const ls_model_file *file, ls_vocabulary *v)
{
    const uint32_t rows = (uint32_t)file->config.vocab;
    if (v->count > rows) {
        return ls_fail(LS_ERR_INVALID,
                       "the tokenizer has %u tokens, but the model only %u: ids from %u on "
                       "have no embedding",
                       v->count, rows, rows);
    }
    const char **texts = ls_arena_new(arena, const char *, rows);
    ls_token_type *types = ls_arena_new(arena, ls_token_type, rows);
    float *scores = ls_arena_new(arena, float, rows);
    for (uint32_t id = 0; id < rows; id++) {
        const bool known = id < v->count;
        texts[id] = known ? v->texts[id] : ls_arena_printf(arena, "[PAD%u]", id);
        types[id] = known ? v->types[id] : LS_TOKEN_UNUSED;
        scores[id] = known && v->scores ? v->scores[id] : -10000.0f;
    }
    v->texts = texts;
    v->types = types;
    v->scores = v->scores ? scores : NULL;
    v->count = rows;
    return LS_OK;
}

static void add_lists(ls_gguf *gguf, ls_arena *arena, const ls_vocabulary *v)
{
    int32_t *types = ls_arena_new(arena, int32_t, v->count);
    for (uint32_t id = 0; id < v->count; id++) {
        types[id] = (int32_t)v->types[id];
    }
    ls_gguf_add_string(gguf, "tokenizer.ggml.model", v->byte_level ? "gpt2" : "llama");
    ls_gguf_add_string(gguf, "tokenizer.ggml.pre", v->byte_level ? v->split : "default");
    ls_gguf_add_strings(gguf, "tokenizer.ggml.tokens", v->texts, v->count);
    ls_gguf_add_i32s(gguf, "tokenizer.ggml.token_type", types, v->count);
    if (v->byte_level) {
        ls_gguf_add_strings(gguf, "tokenizer.ggml.merges", v->merges, v->merge_count);
    } else {
        ls_gguf_add_f32s(gguf, "tokenizer.ggml.scores", v->scores, v->count);
        ls_gguf_add_bool(gguf, "tokenizer.ggml.add_space_prefix", v->space_prefix);
    }
}

/* ---- special ids ---- */

static void add_id(ls_gguf *gguf, const char *key, int64_t id)
{
    if (id >= 0) {
        ls_gguf_add_u32(gguf, key, (uint32_t)id);
    }
}

/* Without an end, llama.cpp takes a token that is part of texts as one. */
static int32_t harmless_end(const ls_model_file *file, const ls_vocabulary *v, ls_gguf_notes *notes)
{
    enum { NO_UTF8 = 0xff }; /* a byte that no text has */
    for (uint32_t id = 0; id < v->count; id++) {
        if (v->types[id] == LS_TOKEN_UNUSED || v->types[id] == LS_TOKEN_CONTROL) {
            return (int32_t)id;
        }
    }
    if (strcmp(ls_tokenizer_kind(file->tokenizer), "bytes") == 0) {
        ls_gguf_note(
            notes,
            "no token ends a text, so answers end only at their maximum length; as end token the file names "
            "byte 255, which no text has, because llama.cpp would otherwise choose a token itself");
        return NO_UTF8;
    }
    ls_gguf_note(notes, "no token ends a text: llama.cpp will end answers at a token of its own choice");
    return -1;
}

static void add_ids(ls_gguf *gguf, const ls_model_file *file, const ls_vocabulary *v, ls_gguf_notes *notes)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    enum { KEYS = sizeof keys / sizeof keys[0] };
    const int32_t bos = ls_tokenizer_bos(file->tokenizer), eos = ls_tokenizer_eos(file->tokenizer);
    int32_t stops[LS_MODEL_STOPS_MAX + 1];
    size_t count = ls_model_stops(&file->config, file->tokenizer, stops);
    for (size_t i = count; i-- > 1;) {
        if (stops[i] == eos) { /* to the front */
            stops[i] = stops[i - 1];
            stops[i - 1] = eos;
        }
    }
    if (count == 0) {
        stops[count] = harmless_end(file, v, notes);
        count += stops[count] >= 0;
    }
    for (size_t i = 0; i < count && i < KEYS; i++) {
        add_id(gguf, keys[i], stops[i]);
    }
    if (count > KEYS) {
        ls_gguf_note(notes,
                     "%zu tokens end a text, but a GGUF file has room for three: give the others to the "
                     "server as stop texts (the Modelfile has all of them)",
                     count);
    }
    add_id(gguf, "tokenizer.ggml.bos_token_id", bos >= 0 ? bos : file->config.bos_id);
    add_id(gguf, "tokenizer.ggml.unknown_token_id", v->unknown);
    add_id(gguf, "tokenizer.ggml.padding_token_id", file->config.pad_id);
    ls_gguf_add_bool(gguf, "tokenizer.ggml.add_bos_token", v->adds_bos);
    ls_gguf_add_bool(gguf, "tokenizer.ggml.add_eos_token", v->adds_eos);
}

ls_status ls_gguf_tokenizer_keys(ls_gguf *gguf, const ls_model_file *file, const ls_hf_file *files,
                                 size_t count, ls_gguf_notes *notes)
{
    ls_vocabulary vocabulary;
    LS_TRY(ls_tokenizer_vocabulary(file->tokenizer, notes->arena, &vocabulary));
    LS_TRY(pad(notes->arena, file, &vocabulary));
    add_lists(gguf, notes->arena, &vocabulary);
    if (vocabulary.difference) {
        ls_gguf_note(notes, "%s", vocabulary.difference);
    }
    add_ids(gguf, file, &vocabulary, notes);
    return add_template(gguf, notes->arena, files, count);
}
