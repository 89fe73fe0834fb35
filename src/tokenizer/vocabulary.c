// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary.h"

#include "tokenizer/tokenizer_internal.h"

#include <string.h>

static const char MARK[] = "\xe2\x96\x81"; /* stands for a space */

static ls_status refuse(const char *what)
{
    return ls_fail(LS_ERR_UNSUPPORTED, "the tokenizer can't be stored as lists of tokens: %s", what);
}

/* ---- what all kinds share ---- */

/* U+2581 becomes a space: tokens that users defined are compared with the text itself. */
static const char *plain_text(ls_arena *arena, const char *text)
{
    char *copy = ls_arena_alloc(arena, strlen(text) + 1), *to = copy;
    for (const char *at = text; *at;) {
        const bool space = strncmp(at, MARK, 3) == 0;
        *to++ = space ? ' ' : *at;
        at += space ? 3 : 1;
    }
    return copy;
}

static ls_token_type type_of(const ls_tokenizer *tokenizer, uint32_t id)
{
    const ls_piece *piece = &tokenizer->pieces[id];
    const uint32_t flags = piece->flags;
    unsigned byte;
    if ((int32_t)id == tokenizer->unk) {
        return LS_TOKEN_UNKNOWN;
    }
    if (flags & LS_PIECE_SPECIAL) {
        return LS_TOKEN_CONTROL;
    }
    if (flags & LS_PIECE_ADDED) {
        return LS_TOKEN_USER_DEFINED;
    }
    return tokenizer->byte_fallback && ls_byte_piece(piece->text, piece->bytes, &byte) ? LS_TOKEN_BYTE
                                                                                       : LS_TOKEN_NORMAL;
}

static void list_tokens(const ls_tokenizer *tokenizer, ls_arena *arena, ls_vocabulary *out)
{
    out->count = tokenizer->vocab_size;
    out->texts = ls_arena_new(arena, const char *, out->count);
    out->types = ls_arena_new(arena, ls_token_type, out->count);
    for (uint32_t id = 0; id < out->count; id++) {
        const char *text = tokenizer->pieces[id].text;
        out->types[id] = text ? type_of(tokenizer, id) : LS_TOKEN_UNUSED;
        out->texts[id] = !text                                     ? ls_arena_printf(arena, "[PAD%u]", id)
                         : out->types[id] == LS_TOKEN_USER_DEFINED ? plain_text(arena, text)
                                                                   : text;
    }
}

/* A template may add one bos before a text and one eos after it, nothing else. */
static ls_status read_template(const ls_tokenizer *tokenizer, ls_vocabulary *out)
{
    const bool before = tokenizer->prefix_count == 1 && tokenizer->prefix[0] == tokenizer->bos;
    const bool after = tokenizer->suffix_count == 1 && tokenizer->suffix[0] == tokenizer->eos;
    if ((tokenizer->prefix_count > 0 && !before) || (tokenizer->suffix_count > 0 && !after)) {
        return refuse("its post_processor adds other tokens than bos before a text and eos after it");
    }
    out->adds_bos = before || (tokenizer->type == LS_TOKENIZER_SENTENCEPIECE && tokenizer->bos >= 0);
    out->adds_eos = after;
    return LS_OK;
}

/* ---- byte-level BPE ---- */

/* NULL: a split that has no name. */
static const char *split_name(const ls_tokenizer *tokenizer)
{
    const ls_splitter *steps = tokenizer->splitters;
    const size_t count = tokenizer->splitter_count;
    if (tokenizer->type == LS_TOKENIZER_BYTES) {
        return "gpt-2"; /* without merges no split changes an id */
    }
    if (count == 2 && steps[0].kind == LS_SPLITTER_DIGITS && steps[0].individual &&
        steps[1].kind == LS_SPLITTER_PATTERN && steps[1].pattern == LS_PATTERN_GPT2) {
        return "smollm";
    }
    if (count != 1 || steps[0].kind != LS_SPLITTER_PATTERN) {
        return NULL;
    }
    switch (steps[0].pattern) {
    case LS_PATTERN_GPT2:
        return "gpt-2";
    case LS_PATTERN_CL100K: /* two names for one pattern: with and without ignore_merges */
        return tokenizer->ignore_merges ? "llama-bpe" : "dbrx";
    case LS_PATTERN_QWEN:
        return "qwen2";
    case LS_PATTERN_O200K:
        return "gpt-4o";
    case LS_PATTERN_UNKNOWN:
        break;
    }
    return NULL;
}

static ls_status check_byte_level(const ls_tokenizer *tokenizer, ls_vocabulary *out)
{
    const char *split = out->split;
    if (!split) {
        return refuse("llama.cpp has no name for its pre_tokenizer; those of GPT-2, Llama 3, Qwen 2, GPT-4o "
                      "and SmolLM have one");
    }
    if (tokenizer->ignore_merges && strcmp(split, "llama-bpe") != 0) {
        return refuse("llama.cpp has no name for its pre_tokenizer together with ignore_merges");
    }
    for (size_t i = 0; i < tokenizer->normaliser_count; i++) {
        if (tokenizer->normalisers[i].kind != LS_NORMALISE_NFC) {
            return refuse("its normalizer changes the text, which llama.cpp does not do for this kind");
        }
        out->difference = "llama.cpp does not put characters together (NFC) as the tokenizer does: text with "
                          "accents as characters of their own gets other ids there";
    }
    return LS_OK;
}

static ls_status list_byte_level(const ls_tokenizer *tokenizer, ls_arena *arena, ls_vocabulary *out)
{
    out->byte_level = true;
    out->split = split_name(tokenizer);
    LS_TRY(check_byte_level(tokenizer, out));
    const ls_merge *merges = ls_merge_table_sorted(&tokenizer->merges, arena, &out->merge_count);
    out->merges = ls_arena_new(arena, const char *, out->merge_count + 1);
    for (size_t i = 0; i < out->merge_count; i++) {
        out->merges[i] = ls_arena_printf(arena, "%s %s", tokenizer->pieces[merges[i].pair >> 32].text,
                                         tokenizer->pieces[(uint32_t)merges[i].pair].text);
    }
    return LS_OK;
}

/* ---- scores ---- */

static ls_status check_sentencepiece(const ls_tokenizer *tokenizer, ls_vocabulary *out)
{
    const ls_sentencepiece *settings = &tokenizer->sentencepiece;
    if (settings->trie || settings->remove_extra_whitespaces || !settings->escape_whitespaces ||
        settings->whitespace_suffix) {
        return refuse("its tokenizer.model normalises text (other characters, spaces removed or moved), "
                      "which llama.cpp does not do");
    }
    out->space_prefix = settings->add_dummy_prefix;
    return LS_OK;
}

/* tokenizer.json of Llama 2 and the like: spaces become U+2581, with or without one in front. */
static ls_status check_characters(const ls_tokenizer *tokenizer, ls_vocabulary *out)
{
    bool replaced = false;
    for (size_t i = 0; i < tokenizer->normaliser_count; i++) {
        const ls_normaliser *step = &tokenizer->normalisers[i];
        if (step->kind == LS_NORMALISE_PREPEND && strcmp(step->to, MARK) == 0) {
            out->space_prefix = true;
        } else if (step->kind == LS_NORMALISE_REPLACE && strcmp(step->from, " ") == 0 &&
                   strcmp(step->to, MARK) == 0) {
            replaced = true;
        } else {
            return refuse("its normalizer does more than writing spaces as U+2581");
        }
    }
    for (size_t i = 0; i < tokenizer->splitter_count; i++) {
        const ls_splitter *step = &tokenizer->splitters[i];
        if (step->kind != LS_SPLITTER_METASPACE || step->split || strcmp(step->replacement, MARK) != 0) {
            return refuse("its pre_tokenizer splits text, which llama.cpp does not do for this kind");
        }
        replaced = true;
        if (step->prepend != LS_PREPEND_NEVER) {
            out->space_prefix = true;
            out->difference = "llama.cpp puts a space before every text, the tokenizer not before one that "
                              "begins with a space, nor after a special token";
        }
    }
    return replaced ? LS_OK : refuse("its normalizer does not write spaces as U+2581");
}

/*
 * Scores that join as the merges do: a token's is minus the rank of its first merge. This is right
 * when merges of one token follow each other and every way to cut a token in two tokens is a merge.
 */
static ls_status score_by_merges(const ls_tokenizer *tokenizer, ls_arena *arena, ls_vocabulary *out)
{
    size_t count = 0;
    const ls_merge *merges = ls_merge_table_sorted(&tokenizer->merges, arena, &count);
    bool *seen = ls_arena_new(arena, bool, out->count);
    for (size_t i = 0; i < count; i++) {
        const int32_t id = merges[i].id;
        if (seen[id] && merges[i - 1].id != id) {
            return refuse("the merges of a token do not follow each other, so no score can stand for them");
        }
        out->scores[id] = seen[id] ? out->scores[id] : -(float)i;
        seen[id] = true;
    }
    for (uint32_t id = 0; id < out->count; id++) {
        const ls_piece *piece = &tokenizer->pieces[id];
        const uint32_t bytes = out->types[id] == LS_TOKEN_NORMAL ? piece->bytes : 0;
        for (uint32_t cut = 1; cut < bytes; cut++) {
            const int32_t left = ls_string_map_get(&tokenizer->model, piece->text, cut);
            const int32_t right =
                left < 0 ? -1 : ls_string_map_get(&tokenizer->model, piece->text + cut, bytes - cut);
            if (right >= 0 && !ls_merge_find(&tokenizer->merges, left, right)) {
                return refuse("it lacks merges that joining by scores would make");
            }
        }
    }
    return LS_OK;
}

static ls_status list_scored(const ls_tokenizer *tokenizer, ls_arena *arena, ls_vocabulary *out)
{
    const bool sentencepiece = tokenizer->type == LS_TOKENIZER_SENTENCEPIECE;
    LS_TRY(sentencepiece ? check_sentencepiece(tokenizer, out) : check_characters(tokenizer, out));
    if (!tokenizer->byte_fallback) {
        return refuse("it has no tokens for single bytes, without which llama.cpp fails on other characters");
    }
    out->scores = ls_arena_new(arena, float, out->count);
    for (uint32_t id = 0; id < out->count; id++) {
        out->scores[id] = tokenizer->pieces[id].score;
    }
    return sentencepiece ? LS_OK : score_by_merges(tokenizer, arena, out);
}

ls_status ls_tokenizer_vocabulary(const ls_tokenizer *tokenizer, ls_arena *arena,
                                  ls_vocabulary *vocabulary_out)
{
    ls_vocabulary out = {.unknown = tokenizer->unk};
    const bool bytes = tokenizer->type == LS_TOKENIZER_BYTES || tokenizer->type == LS_TOKENIZER_BYTE_LEVEL;
    list_tokens(tokenizer, arena, &out);
    LS_TRY(read_template(tokenizer, &out));
    LS_TRY(bytes ? list_byte_level(tokenizer, arena, &out) : list_scored(tokenizer, arena, &out));
    *vocabulary_out = out;
    return LS_OK;
}
