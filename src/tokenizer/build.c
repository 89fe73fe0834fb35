// SPDX-License-Identifier: Apache-2.0
/* The last steps of all loaders: tables derived from names and merges, and the usual names of
 * special tokens. */
#include "tokenizer/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

static const char metaspace[] = "\xe2\x96\x81";

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

bool ls_byte_piece(const char *text, size_t bytes, unsigned *byte_out)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex_digit(text[3]) < 0 ||
        hex_digit(text[4]) < 0) {
        return false;
    }
    *byte_out = (unsigned)(hex_digit(text[3]) * 16 + hex_digit(text[4]));
    return true;
}

/* Whether the piece has a space mark after another character. */
static bool has_inner_space(const ls_piece *piece)
{
    const char *at = piece->text;
    while (strncmp(at, metaspace, 3) == 0) {
        at += 3;
    }
    return strstr(at, metaspace) != NULL;
}

static bool can_cut_at_space(const ls_tokenizer *tokenizer)
{
    if (tokenizer->ignore_merges || ls_string_map_get(&tokenizer->model, metaspace, 3) < 0) {
        return false;
    }
    for (size_t i = 0; tokenizer->merges.slots && i <= tokenizer->merges.mask; i++) {
        const ls_merge *merge = &tokenizer->merges.slots[i];
        if (merge->pair != LS_MERGE_FREE && has_inner_space(&tokenizer->pieces[merge->id])) {
            return false;
        }
    }
    return true;
}

static bool joins_byte_token(const ls_tokenizer *tokenizer, uint64_t pair)
{
    unsigned byte;
    const ls_piece *left = &tokenizer->pieces[pair >> 32];
    const ls_piece *right = &tokenizer->pieces[(uint32_t)pair];
    return (pair >> 32 < tokenizer->vocab_size && ls_byte_piece(left->text, left->bytes, &byte)) ||
           ((uint32_t)pair < tokenizer->vocab_size && ls_byte_piece(right->text, right->bytes, &byte));
}

/* Finds the ASCII characters around which words may be cut: no merge makes a text that contains
 * them, and they are never unknown, so they are never fused with neighbours. */
static void find_alone(ls_tokenizer *tokenizer)
{
    bool all_bytes = tokenizer->byte_fallback;
    for (int byte = 0; byte < 256; byte++) {
        all_bytes = all_bytes && tokenizer->byte_ids[byte] >= 0;
    }
    for (int c = 0; c < 128; c++) {
        tokenizer->alone[c] = tokenizer->cut_at_space && (all_bytes || tokenizer->ascii_symbols[c] >= 0);
    }
    for (size_t i = 0; i <= tokenizer->merges.mask; i++) {
        const ls_merge *merge = &tokenizer->merges.slots[i];
        const unsigned char *text = merge->pair == LS_MERGE_FREE
                                        ? (const unsigned char *)""
                                        : (const unsigned char *)tokenizer->pieces[merge->id].text;
        for (; *text; text++) {
            if (*text < 128) {
                tokenizer->alone[*text] = false;
            }
        }
        /* Merges of byte tokens join characters although their names do not show it. */
        if (merge->pair != LS_MERGE_FREE && joins_byte_token(tokenizer, merge->pair)) {
            memset(tokenizer->alone, 0, sizeof tokenizer->alone);
            return;
        }
    }
}

static void fill_bytes(ls_tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8] = {(char)byte};
        if (tokenizer->type == LS_TOKENIZER_BYTE_LEVEL) {
            tokenizer->byte_ids[byte] = ls_string_map_get(&tokenizer->model, name, 1);
        } else if (tokenizer->type == LS_TOKENIZER_CHARACTERS) {
            snprintf(name, sizeof name, "<0x%02X>", byte);
            tokenizer->byte_ids[byte] = ls_string_map_get(&tokenizer->model, name, 6);
        }
    }
}

void ls_tokenizer_complete(ls_tokenizer *tokenizer)
{
    if (!tokenizer->merges.slots) {
        ls_merge_table_init(&tokenizer->merges, &tokenizer->arena, 0);
    }
    if (tokenizer->type == LS_TOKENIZER_BYTES) {
        for (int byte = 0; byte < 256; byte++) {
            char *raw = ls_arena_alloc(&tokenizer->arena, 1);
            *raw = (char)byte;
            tokenizer->byte_ids[byte] = byte;
            tokenizer->pieces[byte].decoded = raw;
            tokenizer->pieces[byte].decoded_bytes = 1;
        }
        return;
    }
    fill_bytes(tokenizer);
    for (int c = 0; c < 128; c++) {
        const char text = (char)c;
        tokenizer->ascii_symbols[c] = ls_string_map_get(&tokenizer->model, &text, 1);
    }
    tokenizer->cut_at_space = tokenizer->type != LS_TOKENIZER_BYTE_LEVEL && can_cut_at_space(tokenizer);
    find_alone(tokenizer);
}

static int32_t first_known(const ls_tokenizer *tokenizer, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t id = ls_tokenizer_id(tokenizer, names[i]);
        if (id >= 0 && (tokenizer->pieces[id].flags & LS_PIECE_SPECIAL)) {
            return id;
        }
    }
    return -1;
}

void ls_tokenizer_guess_specials(ls_tokenizer *tokenizer)
{
    static const char *const bos[] = {"<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>",
                                      "<|endoftext|>"};
    static const char *const eos[] = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|im_end|>"};
    if (tokenizer->bos < 0) {
        tokenizer->bos = first_known(tokenizer, bos, sizeof bos / sizeof *bos);
    }
    if (tokenizer->eos < 0) {
        tokenizer->eos = first_known(tokenizer, eos, sizeof eos / sizeof *eos);
    }
}
