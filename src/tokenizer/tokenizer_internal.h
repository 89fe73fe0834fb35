// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of the tokenizer, for the files of this folder only.
 *
 *   tokenizer.c        objects, accessors, the bytes tokenizer
 *   vocab_files.c      paths, folders, GPT-2's files
 *   tokenizer_json.c   reads tokenizer.json
 *   sentencepiece.c    reads tokenizer.model; its normalisation
 *   build.c            the last steps of all loaders
 *   encode.c           text -> pieces -> words -> ids; the word cache
 *   added_tokens.c     finds added tokens in text
 *   normalise.c        normalisation of pieces
 *   pre_tokenize.c     splits pieces into words
 *   bpe.c              merges the symbols of a word
 *   decode.c           ids -> text
 *   train_bpe.c        the trainer
 *   save.c             writes tokenizer.json
 *   vocabulary.c       lists of tokens and merges for other programs
 *   unicode.c          UTF-8, categories, normal forms
 */
#ifndef LS_TOKENIZER_TOKENIZER_INTERNAL_H
#define LS_TOKENIZER_TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "tokenizer/tokenizer.h"

enum {
    LS_TOKENIZER_VOCAB_MAX = 1 << 24,
    /* Bytes. */
    LS_TOKENIZER_FILE_MAX = 256 << 20,
    /* Normalisers, and pre-tokenizers, of a file. */
    LS_TOKENIZER_STEPS_MAX = 8,
};

/* ---- a map from strings to numbers: open addressing, borrowed keys ---- */

typedef struct ls_string_slot {
    /* NULL: the slot is free. */
    const char *key;
    uint32_t bytes;
    int32_t value;
    uint64_t hash;
} ls_string_slot;

typedef struct ls_string_map {
    ls_string_slot *slots;
    size_t mask;
    size_t count;
} ls_string_map;

/* Makes room for `expected` keys; put adds room if there are more. */
void ls_string_map_init(ls_string_map *map, ls_arena *arena, size_t expected);
/* Returns false, and changes nothing, if the key exists. */
bool ls_string_map_put(ls_string_map *map, ls_arena *arena, const char *key, size_t bytes, int32_t value);
/* Returns -1 if the key does not exist. */
int32_t ls_string_map_get(const ls_string_map *map, const char *key, size_t bytes);

/* ---- merging ---- */

typedef struct ls_merge {
    /* left << 32 | right, or LS_MERGE_FREE: the slot is free. */
    uint64_t pair;
    /* Smaller ranks are merged first. */
    uint32_t rank;
    /* The symbol that replaces the pair. */
    int32_t id;
} ls_merge;

#define LS_MERGE_FREE UINT64_MAX
enum { LS_RANK_NONE = 0xffffffff };

typedef struct ls_merge_table {
    ls_merge *slots;
    /* There are 2^(64 - shift) slots. */
    unsigned shift;
    size_t mask;
} ls_merge_table;

void ls_merge_table_init(ls_merge_table *table, ls_arena *arena, size_t expected);
/* At most `expected` pairs may be put. A pair that exists is replaced, as in Hugging Face. */
void ls_merge_table_put(ls_merge_table *table, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* The pairs in the order of their ranks, in `arena`. */
const ls_merge *ls_merge_table_sorted(const ls_merge_table *table, ls_arena *arena, size_t *count_out);

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

/* Working memory for long words: a linked list of symbols and a heap of candidates. */
typedef struct ls_bpe_node {
    /* -1: joined to the node before. */
    int32_t id;
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
 * Joins pairs of ids[0, *count) in place until there is none left: always the pair with the
 * smallest rank, of these the leftmost. Words of up to 64 symbols need no memory; longer ones take
 * O(n log n) time. Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_bpe_merge(const ls_merge_table *table, ls_bpe_work *work, int32_t *ids,
                                     size_t *count);
void ls_bpe_work_release(ls_bpe_work *work);

/* ---- words of a pattern ---- */

typedef enum ls_split_pattern {
    LS_PATTERN_GPT2,
    /* Llama 3: numbers in groups of three digits. */
    LS_PATTERN_CL100K,
    /* The same with single digits. */
    LS_PATTERN_QWEN,
    /* Words are split where upper case follows lower case. */
    LS_PATTERN_O200K,
    LS_PATTERN_UNKNOWN,
} ls_split_pattern;

ls_split_pattern ls_split_pattern_of(const char *regex);
/* The end of the word that begins at `at` < `end`. The text is valid UTF-8. Every byte belongs to
 * exactly one word. */
size_t ls_split_next(ls_split_pattern pattern, const char *text, size_t at, size_t end);

/* ---- any other pattern ---- */

/* Of the library pcre2. All zero: none. */
typedef struct ls_regex {
    void *code;
} ls_regex;

/* Bytes [start, stop) of a text; both SIZE_MAX: no match. */
typedef struct ls_regex_span {
    size_t start, stop;
} ls_regex_span;

/* Compiles a pattern in the syntax of tokenizer.json (Oniguruma's), or with `plain` a text that
 * stands for itself. `name`: the file, for errors. Errors: LS_ERR_UNSUPPORTED, naming what pcre2
 * would not read in the same way. */
LS_MUST_CHECK ls_status ls_regex_compile(const char *source, bool plain, const char *name,
                                         ls_regex *regex_out);
void ls_regex_release(ls_regex *regex);

/* Working memory of one thread; *work is NULL at first. */
typedef struct ls_regex_work ls_regex_work;
void ls_regex_work_destroy(ls_regex_work *work);

/* The first match from `from` on, in valid text. Its work is limited. Errors: LS_ERR_MEMORY;
 * LS_ERR_DATA when a limit is reached. */
LS_MUST_CHECK ls_status ls_regex_next(const ls_regex *regex, ls_regex_work **work, const char *text,
                                      size_t bytes, size_t from, ls_regex_span *span_out);

/* ---- added tokens ---- */

enum { LS_ADDED_SINGLE_WORD = 1, LS_ADDED_LSTRIP = 2, LS_ADDED_RSTRIP = 4 };

typedef struct ls_added_pattern {
    const char *text;
    uint32_t bytes;
    int32_t id;
    uint32_t flags;
} ls_added_pattern;

/* A trie of patterns; `edges` maps (node, byte) to a node. */
typedef struct ls_matcher {
    bool empty;
    /* Whether a pattern begins with a byte. */
    bool first[256];
    /* The first byte if all patterns have the same, otherwise -1. */
    int single_first;
    ls_merge_table edges;
    /* By node: index of the pattern that ends there, or -1. */
    int32_t *leaf;
    ls_added_pattern *patterns;
    size_t pattern_count;
} ls_matcher;

void ls_matcher_init(ls_matcher *matcher, ls_arena *arena, const ls_added_pattern *patterns, size_t count);

/* Bytes [start, stop) of the text become `id`. */
typedef struct ls_match {
    size_t start, stop;
    int32_t id;
} ls_match;

/* The index of the longest pattern at `at`; -1: none. */
int32_t ls_matcher_at(const ls_matcher *matcher, const char *text, size_t at, size_t bytes);

/* Finds the next valid match from *search_at on, which is advanced. Text before `done` is used
 * already. single_word, lstrip and rstrip have the meaning of Hugging Face. */
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
    /* Replace: `from` by `to`. Prepend: `to`. */
    const char *from, *to;
    uint32_t from_bytes, to_bytes;
} ls_normaliser;

LS_MUST_CHECK ls_status ls_normaliser_apply(const ls_normaliser *step, const char *text, size_t bytes,
                                            ls_text_buffer *out, bool *changed_out);

typedef enum ls_splitter_kind {
    LS_SPLITTER_PATTERN,
    LS_SPLITTER_REGEX,
    LS_SPLITTER_DIGITS,
    LS_SPLITTER_SPACE_PREFIX,
    LS_SPLITTER_METASPACE
} ls_splitter_kind;
typedef enum ls_prepend { LS_PREPEND_NEVER, LS_PREPEND_FIRST, LS_PREPEND_ALWAYS } ls_prepend;

/* What becomes of the matches of a pattern, and of the text between them: words each, matches left
 * out, joined with their like, with the text before or with the text after. */
typedef enum ls_split_behaviour {
    LS_SPLIT_ISOLATED,
    LS_SPLIT_REMOVED,
    LS_SPLIT_CONTIGUOUS,
    LS_SPLIT_MERGED_WITH_PREVIOUS,
    LS_SPLIT_MERGED_WITH_NEXT
} ls_split_behaviour;

typedef struct ls_splitter {
    ls_splitter_kind kind;
    ls_split_pattern pattern;
    /* Regex. invert: matches count as text between, and the other way round. */
    ls_regex regex;
    ls_split_behaviour behaviour;
    bool invert;
    /* Digits: each on its own. */
    bool individual;
    /* Metaspace. */
    ls_prepend prepend;
    bool split;
    const char *replacement;
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
    /* skip_special leaves it out. */
    LS_PIECE_SPECIAL = 1,
    LS_PIECE_ADDED = 2,
    LS_PIECE_BYTE = 4,
};

typedef struct ls_piece {
    /* Zero-terminated; NULL: the id has no name. */
    const char *text;
    uint32_t bytes;
    /* Its text when decoded, other than at the beginning. */
    uint32_t decoded_bytes;
    const char *decoded;
    /* Sentencepiece only. */
    float score;
    uint32_t flags;
} ls_piece;

/* What decoding removes from the beginning. */
typedef enum ls_strip {
    LS_STRIP_NONE,
    /* One space of the whole text. */
    LS_STRIP_ONE_SPACE,
    /* Every space of the first token (Metaspace). */
    LS_STRIP_FIRST_TOKEN,
    /* Every space before the first text (sentencepiece, remove_extra_whitespaces). */
    LS_STRIP_ALL_SPACES,
} ls_strip;

/* The normaliser of sentencepiece. */
typedef struct ls_sentencepiece {
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_suffix;
    /* The double array of precompiled_charsmap; NULL: no replacements. */
    const uint32_t *trie;
    size_t trie_units;
    /* Zero-terminated strings to which the trie refers. */
    const char *normalized;
    size_t normalized_bytes;
} ls_sentencepiece;

struct ls_tokenizer {
    ls_tokenizer_type type;
    ls_arena arena;
    ls_piece *pieces;
    uint32_t vocab_size;
    /* Ids by name, including added tokens. */
    ls_string_map names;
    /* Ids by piece of the model; byte-level: by raw bytes. */
    ls_string_map model;
    ls_merge_table merges;
    /* Byte-level: symbols of bytes. Otherwise: ids of <0xNN>. -1: none. */
    int32_t byte_ids[256];
    /* Characters: symbols of ASCII characters. -1: none. */
    int32_t ascii_symbols[128];
    bool byte_fallback, fuse_unk, ignore_merges;
    /* ASCII characters that occur in no merge: words may be cut around them. */
    bool alone[128];
    /* No merge joins another character with a following U+2581: words may be cut there and
     * cached. */
    bool cut_at_space;
    /* Sentencepiece: characters that occur in pieces but are not pieces themselves. Their symbols
     * are numbered from vocab_size on. */
    ls_piece *loose;
    uint32_t loose_count;
    int32_t bos, eos, unk;

    ls_normaliser normalisers[LS_TOKENIZER_STEPS_MAX];
    size_t normaliser_count;
    ls_splitter splitters[LS_TOKENIZER_STEPS_MAX];
    size_t splitter_count;
    /* Added tokens that are found before normalisation (sentencepiece: user-defined symbols), and
     * those found after it. */
    ls_matcher added;
    ls_matcher added_normalised;
    /* What the post-processor adds. */
    int32_t *prefix, *suffix;
    size_t prefix_count, suffix_count;
    ls_strip strip;
    ls_sentencepiece sentencepiece;

    const char *source_name;
    const char *source;
    size_t source_bytes;
    char hash[LS_SHA256_HEX_BYTES];
};

/* An empty tokenizer without special tokens. NULL: no memory. */
ls_tokenizer *ls_tokenizer_new(ls_tokenizer_type type);
/* Creates the pieces [0, vocab_size) without names. */
void ls_tokenizer_set_vocab_size(ls_tokenizer *tokenizer, uint32_t vocab_size);
/* Gives an id a name, which is copied. `name`: the file, for errors. Errors: LS_ERR_DATA if the id
 * has a name already. */
LS_MUST_CHECK ls_status ls_tokenizer_name_piece(ls_tokenizer *tokenizer, int32_t id, const char *text,
                                                size_t bytes, const char *name);
/* Copies the source and computes the hash. Call this last. */
void ls_tokenizer_set_source(ls_tokenizer *tokenizer, const char *source_name, const void *data,
                             size_t bytes);

/* The byte for which a character of the byte-level alphabet stands; -1: not in the alphabet. */
int ls_byte_level_byte(uint32_t c);
/* The raw bytes of a byte-level name; false if a character is not in the alphabet. `out` has room
 * for `bytes`. */
bool ls_byte_level_decode(const char *text, size_t bytes, char *out, size_t *out_bytes);
/* The byte-level name of raw bytes; `out` has room for 2 * bytes. Returns its length. */
size_t ls_byte_level_encode(const char *raw, size_t bytes, char *out);

/* Reads a name such as "<0x0A>", which stands for the byte 10; returns false for other names. */
bool ls_byte_piece(const char *text, size_t bytes, unsigned *byte_out);

/* Sets bos and eos to tokens with the usual names, where they are -1. */
void ls_tokenizer_guess_specials(ls_tokenizer *tokenizer);
/* Derives byte_ids, ascii_symbols, alone and cut_at_space from the pieces and merges. */
void ls_tokenizer_complete(ls_tokenizer *tokenizer);

/* Writes the text to `out`, with U+FFFD in place of each maximal invalid part. */
LS_MUST_CHECK ls_status ls_text_make_valid(ls_text_buffer *out, const char *text, size_t bytes);

/* Normalises a whole text as sentencepiece does, including invalid UTF-8. */
LS_MUST_CHECK ls_status ls_sentencepiece_normalise(const ls_tokenizer *tokenizer, const char *text,
                                                   size_t bytes, ls_text_buffer *out);

LS_MUST_CHECK ls_status ls_tokenizer_parse_json(const char *text, size_t bytes, const char *name,
                                                ls_tokenizer **tokenizer_out);
LS_MUST_CHECK ls_status ls_tokenizer_parse_sentencepiece(const void *data, size_t bytes, const char *name,
                                                         ls_tokenizer **tokenizer_out);

/* Adds the added tokens that tokenizer_config.json and added_tokens.json of the folder list; the
 * tokenizer may be replaced. Errors: LS_ERR_DATA when ids do not agree; LS_ERR_UNSUPPORTED when
 * the kind of tokenizer takes none. */
LS_MUST_CHECK ls_status ls_tokenizer_add_beside(const char *folder, ls_tokenizer **tokenizer);

/* Makes room for `bytes` more bytes and the terminating zero. */
LS_MUST_CHECK ls_status ls_text_buffer_reserve(ls_text_buffer *buffer, size_t bytes);
LS_MUST_CHECK ls_status ls_text_buffer_append(ls_text_buffer *buffer, const char *data, size_t bytes);

#endif
