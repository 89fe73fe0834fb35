// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of the tokenizer: what its files share. Nobody else includes this.
 *
 *   tokenizer.c               objects, accessors, the bytes tokenizer
 *   tokenizer_json.c          tokenizer.json -> ls_tokenizer           tokenizer_files.c    paths, folders,
 * GPT-2's files tokenizer_sentencepiece.c tokenizer.model -> ls_tokenizer tokenizer_encode.c        text ->
 * pieces -> words -> ids           tokenizer_split.c    words of a pattern tokenizer_bpe.c           merging,
 * the word cache                  tokenizer_normalise.c tokenizer_added.c         tokens found in raw text
 * tokenizer_decode.c   ids -> text tokenizer_train.c         the trainer tokenizer_save.c     ->
 * tokenizer.json
 */
#ifndef LS_DATA_TOKENIZER_INTERNAL_H
#define LS_DATA_TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "data/tokenizer.h"

enum {
    LS_TOKENIZER_VOCAB_MAX = 1 << 24,
    LS_TOKENIZER_FILE_MAX = 256 << 20,
    LS_TOKENIZER_STEPS_MAX = 8, /* normalisers, and pre-tokenizers, of one file */
};

/* ---- strings to numbers: open addressing, keys borrowed ---- */

typedef struct ls_string_slot {
    const char *key; /* NULL: free */
    uint32_t bytes;
    int32_t value;
    uint64_t hash;
} ls_string_slot;

typedef struct ls_string_map {
    ls_string_slot *slots;
    size_t mask;
    size_t count;
} ls_string_map;

/* Room for `expected` keys; put grows it if there are more. */
void ls_string_map_init(ls_string_map *map, ls_arena *arena, size_t expected);
/* False when the key is there already: its value is then left as it was. */
bool ls_string_map_put(ls_string_map *map, ls_arena *arena, const char *key, size_t bytes, int32_t value);
/* -1 when it is not there. */
int32_t ls_string_map_get(const ls_string_map *map, const char *key, size_t bytes);

/* ---- merging ---- */

typedef struct ls_merge {
    uint64_t pair; /* left << 32 | right; LS_MERGE_FREE: free slot */
    uint32_t rank; /* smaller first */
    int32_t id;    /* what the pair becomes */
} ls_merge;

#define LS_MERGE_FREE UINT64_MAX
enum { LS_RANK_NONE = 0xffffffff };

typedef struct ls_merge_table {
    ls_merge *slots;
    unsigned shift; /* slot count = 2^(64 - shift) */
    size_t mask;
} ls_merge_table;

void ls_merge_table_init(ls_merge_table *table, ls_arena *arena, size_t expected);
/* At most `expected` pairs. A pair that is there already is replaced, as in Hugging Face. */
void ls_merge_table_put(ls_merge_table *table, int32_t left, int32_t right, uint32_t rank, int32_t id);

static inline uint64_t ls_merge_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline const ls_merge *ls_merge_find(const ls_merge_table *table, int32_t left, int32_t right)
{
    const uint64_t pair = ls_merge_pair(left, right);
    size_t at = (size_t)((pair * UINT64_C(0x9e3779b97f4a7c15)) >> table->shift);
    while (table->slots[at].pair != pair) {
        if (table->slots[at].pair == LS_MERGE_FREE) {
            return NULL;
        }
        at = (at + 1) & table->mask;
    }
    return &table->slots[at];
}

/* Working memory of long words: a linked list of symbols and a heap of candidates. */
typedef struct ls_bpe_node {
    int32_t id; /* -1: joined to the one before */
    uint32_t previous, next;
} ls_bpe_node;

typedef struct ls_bpe_candidate {
    uint32_t rank, at;
    int32_t id;
} ls_bpe_candidate;

typedef struct ls_bpe_work {
    ls_bpe_node *nodes;
    size_t node_capacity;
    ls_bpe_candidate *heap;
    size_t heap_count, heap_capacity;
} ls_bpe_work;

/*
 * Joins pairs in ids[0, *count) in place, always the one of the smallest rank and of these the leftmost,
 * until there is none. A word of up to 64 symbols needs no memory; longer ones O(n log n) time. Errors:
 * LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_bpe_merge(const ls_merge_table *table, ls_bpe_work *work, int32_t *ids,
                                     size_t *count);
void ls_bpe_work_release(ls_bpe_work *work);

/* ---- words of a pattern ---- */

typedef enum ls_split_pattern {
    LS_PATTERN_GPT2,
    LS_PATTERN_CL100K, /* Llama 3: numbers in threes */
    LS_PATTERN_QWEN,   /* the same, digits one by one */
    LS_PATTERN_O200K,  /* words split where case rises */
    LS_PATTERN_UNKNOWN,
} ls_split_pattern;

ls_split_pattern ls_split_pattern_of(const char *regex);
/* End of the word that begins at `at` < `end`; text is valid UTF-8. Every byte belongs to exactly one word.
 */
size_t ls_split_next(ls_split_pattern pattern, const char *text, size_t at, size_t end);

/* ---- tokens found in raw text ---- */

enum { LS_ADDED_SINGLE_WORD = 1, LS_ADDED_LSTRIP = 2, LS_ADDED_RSTRIP = 4 };

typedef struct ls_added_pattern {
    const char *text;
    uint32_t bytes;
    int32_t id;
    uint32_t flags;
} ls_added_pattern;

/* Trie of patterns; `edges` maps (node, byte) to a node. */
typedef struct ls_matcher {
    bool empty;
    bool first[256];  /* bytes that begin a pattern */
    int single_first; /* the byte when there is only one, else -1 */
    ls_merge_table edges;
    int32_t *leaf; /* per node: index into patterns, -1 */
    ls_added_pattern *patterns;
    size_t pattern_count;
} ls_matcher;

void ls_matcher_init(ls_matcher *matcher, ls_arena *arena, const ls_added_pattern *patterns, size_t count);

/* One match: bytes [start, stop) of the text become `id`. */
typedef struct ls_match {
    size_t start, stop;
    int32_t id;
} ls_match;

/* The longest pattern at `at`: its index, or -1. */
int32_t ls_matcher_at(const ls_matcher *matcher, const char *text, size_t at, size_t bytes);

/* The next match that counts, searching from *search_at, which moves on; text before `done` is taken. Hugging
 * Face's rules for single_word, lstrip and rstrip. */
bool ls_matcher_next(const ls_matcher *matcher, const char *text, size_t bytes, size_t *search_at,
                     size_t done, ls_match *match_out);

/* ---- steps ---- */

typedef enum ls_normaliser_kind {
    LS_NORMALISE_NFC,
    LS_NORMALISE_NFD,
    LS_NORMALISE_PREPEND,
    LS_NORMALISE_REPLACE
} ls_normaliser_kind;

typedef struct ls_normaliser {
    ls_normaliser_kind kind;
    const char *from, *to; /* replace: from -> to; prepend: to */
    uint32_t from_bytes, to_bytes;
} ls_normaliser;

LS_MUST_CHECK ls_status ls_normaliser_apply(const ls_normaliser *step, const char *text, size_t bytes,
                                            ls_text_buffer *out, bool *changed_out);

typedef enum ls_splitter_kind {
    LS_SPLITTER_PATTERN,
    LS_SPLITTER_DIGITS,
    LS_SPLITTER_SPACE_PREFIX,
    LS_SPLITTER_METASPACE
} ls_splitter_kind;
typedef enum ls_prepend { LS_PREPEND_NEVER, LS_PREPEND_FIRST, LS_PREPEND_ALWAYS } ls_prepend;

typedef struct ls_splitter {
    ls_splitter_kind kind;
    ls_split_pattern pattern;
    bool individual;         /* digits one by one */
    ls_prepend prepend;      /* metaspace */
    bool split;              /* metaspace */
    const char *replacement; /* metaspace */
    uint32_t replacement_bytes;
} ls_splitter;

/* ---- the tokenizer ---- */

typedef enum ls_tokenizer_type {
    LS_TOKENIZER_BYTES,
    LS_TOKENIZER_BYTE_LEVEL,
    LS_TOKENIZER_CHARACTERS,
    LS_TOKENIZER_SENTENCEPIECE
} ls_tokenizer_type;

enum {
    LS_PIECE_SPECIAL = 1, /* skip_special leaves it out */
    LS_PIECE_ADDED = 2,
    LS_PIECE_BYTE = 4,
};

typedef struct ls_piece {
    const char *text; /* zero-terminated; NULL: the id has no name */
    uint32_t bytes;
    uint32_t decoded_bytes;
    const char *decoded; /* what it decodes to inside a text */
    float score;         /* sentencepiece */
    uint32_t flags;
} ls_piece;

/* What decoding strips from the front. */
typedef enum ls_strip {
    LS_STRIP_NONE,
    LS_STRIP_ONE_SPACE,   /* one space of the whole text */
    LS_STRIP_FIRST_TOKEN, /* every space of the first token (Metaspace) */
    LS_STRIP_ALL_SPACES,  /* every space up to the first text (sentencepiece, remove_extra_whitespaces) */
} ls_strip;

/* sentencepiece's normaliser */
typedef struct ls_sentencepiece {
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_suffix;
    const uint32_t *trie; /* of precompiled_charsmap; NULL: identity */
    size_t trie_units;
    const char *normalized; /* zero-terminated strings the trie points into */
    size_t normalized_bytes;
} ls_sentencepiece;

struct ls_tokenizer {
    ls_tokenizer_type type;
    ls_arena arena;
    ls_piece *pieces;
    uint32_t vocab_size;
    ls_string_map names; /* name -> id, added tokens included */
    ls_string_map model; /* piece of the model -> id; byte-level: raw bytes */
    ls_merge_table merges;
    int32_t byte_ids[256];      /* byte-level: symbol of a byte, -1: none. Else: id of <0xNN> */
    int32_t ascii_symbols[128]; /* characters: symbol of an ASCII character, -1 */
    bool byte_fallback, fuse_unk, ignore_merges;
    bool alone[128];   /* ASCII characters that no merge contains: words are cut around them too */
    bool cut_at_space; /* no merge joins x and U+2581: words may be cut there, and cached */
    /* sentencepiece: characters that are parts of pieces but none themselves; they have the ids from
     * vocab_size on */
    ls_piece *loose;
    uint32_t loose_count;
    int32_t bos, eos, unk;

    ls_normaliser normalisers[LS_TOKENIZER_STEPS_MAX];
    size_t normaliser_count;
    ls_splitter splitters[LS_TOKENIZER_STEPS_MAX];
    size_t splitter_count;
    ls_matcher added;            /* found before normalising; user-defined symbols of sentencepiece */
    ls_matcher added_normalised; /* found after */
    int32_t *prefix, *suffix;    /* post-processor */
    size_t prefix_count, suffix_count;
    ls_strip strip;
    ls_sentencepiece sentencepiece;

    const char *source_name;
    const char *source;
    size_t source_bytes;
    char hash[LS_SHA256_HEX_BYTES];
};

/* An empty tokenizer with no special tokens. NULL: no memory. */
ls_tokenizer *ls_tokenizer_new(ls_tokenizer_type type);
/* Makes pieces [0, vocab_size) without names. */
void ls_tokenizer_set_vocab_size(ls_tokenizer *tokenizer, uint32_t vocab_size);
/* Names an id; copies the text. Errors: LS_ERR_DATA when the id is named already. `name`: the file. */
LS_MUST_CHECK ls_status ls_tokenizer_name_piece(ls_tokenizer *tokenizer, int32_t id, const char *text,
                                                size_t bytes, const char *name);
/* Keeps a copy of the source and computes the hash. Call last. */
void ls_tokenizer_set_source(ls_tokenizer *tokenizer, const char *source_name, const void *data,
                             size_t bytes);

/* The byte-level alphabet: the character that stands for a byte, and back (-1: not of the alphabet). */
uint32_t ls_byte_level_char(unsigned char byte);
int ls_byte_level_byte(uint32_t c);
/* The raw bytes of a byte-level name; false when a character is not of the alphabet. out: room for `bytes`.
 */
bool ls_byte_level_decode(const char *text, size_t bytes, char *out, size_t *out_bytes);
/* The name of raw bytes; room for 2 * bytes. Returns its length. */
size_t ls_byte_level_encode(const char *raw, size_t bytes, char *out);

/* "<0x0A>" is the byte 10; false for any other name. */
bool ls_byte_piece(const char *text, size_t bytes, unsigned *byte_out);

/* Sets bos and eos by the names in use, where they are -1. */
void ls_tokenizer_guess_specials(ls_tokenizer *tokenizer);
/* Fills byte_ids, ascii_symbols, decoded texts and cut_at_space from pieces and merges. */
void ls_tokenizer_complete(ls_tokenizer *tokenizer);

/* `out` becomes the text with U+FFFD in place of each maximal invalid part. */
LS_MUST_CHECK ls_status ls_text_make_valid(ls_text_buffer *out, const char *text, size_t bytes);

/* sentencepiece's own normalisation of a whole text, invalid UTF-8 included. */
LS_MUST_CHECK ls_status ls_sentencepiece_normalise(const ls_tokenizer *tokenizer, const char *text,
                                                   size_t bytes, ls_text_buffer *out);

LS_MUST_CHECK ls_status ls_tokenizer_parse_json(const char *text, size_t bytes, const char *name,
                                                ls_tokenizer **tokenizer_out);
LS_MUST_CHECK ls_status ls_tokenizer_parse_sentencepiece(const void *data, size_t bytes, const char *name,
                                                         ls_tokenizer **tokenizer_out);
/* The tokenizer.json of a tokenizer, malloc'd. */
LS_MUST_CHECK ls_status ls_tokenizer_write_json(const ls_tokenizer *tokenizer, char **text_out,
                                                size_t *bytes_out);

/* Makes room for `bytes` more and the zero. */
LS_MUST_CHECK ls_status ls_text_buffer_reserve(ls_text_buffer *buffer, size_t bytes);
LS_MUST_CHECK ls_status ls_text_buffer_append(ls_text_buffer *buffer, const char *data, size_t bytes);

#endif
