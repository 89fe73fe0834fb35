// SPDX-License-Identifier: Apache-2.0
/*
 * A tokenizer as lists of tokens and merges, which is how other programs store one (GGUF).
 *
 * Such a program has two kinds of tokenizers. One splits text by a pattern that it knows by name,
 * then applies ranked merges to bytes. The other joins the two neighbours whose union is the token
 * with the highest score. A tokenizer that neither kind reproduces is refused, because a file of it
 * would give other ids without a word.
 *
 * Thread-safe.
 */
#ifndef LS_TOKENIZER_VOCABULARY_H
#define LS_TOKENIZER_VOCABULARY_H

#include "base/arena.h"
#include "tokenizer/tokenizer.h"

/* The numbers are those of SentencePiece and of GGUF. */
typedef enum ls_token_type {
    LS_TOKEN_NORMAL = 1,
    LS_TOKEN_UNKNOWN,
    LS_TOKEN_CONTROL, /* never part of a text: <s>, <|im_end|> */
    LS_TOKEN_USER_DEFINED,
    LS_TOKEN_UNUSED,
    LS_TOKEN_BYTE, /* "<0x0A>" */
} ls_token_type;

typedef struct ls_vocabulary {
    /* Merges over bytes, otherwise scores. */
    bool byte_level;
    /* Byte level only: the name by which llama.cpp knows the split pattern ("gpt-2", "llama-bpe",
     * "dbrx", "qwen2", "gpt-4o", "smollm"). Static. */
    const char *split;
    uint32_t count;
    /* By id, count each. An id without a name is "[PAD<id>]", LS_TOKEN_UNUSED. Normal tokens of
     * byte-level BPE are in its alphabet ("Ġthe"), all others are plain text. */
    const char **texts;
    ls_token_type *types;
    float *scores; /* NULL with byte_level */
    /* Byte level only: "left right", by rank. */
    const char **merges;
    size_t merge_count;
    int32_t unknown; /* -1: none */
    /* Scores only: a space comes before the text. */
    bool space_prefix;
    /* With special tokens (add_special of ls_tokenizer_encode), bos comes before a text and eos
     * after it. */
    bool adds_bos, adds_eos;
    /* For which texts other programs give other ids, a sentence; NULL: for none. */
    const char *difference;
} ls_vocabulary;

/*
 * vocabulary_out: lists and texts are in `arena` or belong to the tokenizer.
 * Errors: LS_ERR_UNSUPPORTED naming the part that no such list expresses: a split pattern without a
 * name, a normalisation, merges that differ from joining by scores.
 */
LS_MUST_CHECK ls_status ls_tokenizer_vocabulary(const ls_tokenizer *tokenizer, ls_arena *arena,
                                                ls_vocabulary *vocabulary_out);

#endif
