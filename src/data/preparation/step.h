// SPDX-License-Identifier: Apache-2.0
/*
 * Steps of a preparation: their settings, and why each of them removes documents.
 *
 *   step               what it does                                          changes  removes
 *   normalise          Unicode NFC, line ends, control characters, blanks    text
 *   language           keeps documents in the languages that are named                documents
 *   gopher_quality     the quality rules of Gopher                                    documents
 *   gopher_repetition  the repetition rules of Gopher                                 documents
 *   c4                 the rules of C4                                       text     documents
 *   fineweb            the rules that FineWeb added                                   documents
 *   dedup_lines        removes lines that an earlier document has too        text
 *   dedup_exact        removes documents with the text of an earlier one              documents
 *   dedup_minhash      removes documents similar to an earlier one                    documents
 *   pii                masks or drops private data                           text     documents
 *   decontaminate      drops documents that hold text of evaluation files             documents
 *
 * Sources of the rules: Rae et al., "Scaling language models", 2021, table A1; Raffel et al.,
 * "Exploring the limits of transfer learning", 2020; Penedo et al., "The FineWeb datasets", 2024;
 * where the papers leave room, the definitions of the program datatrove.
 *
 * Plain data; strings live in the arena of the pipeline.
 */
#ifndef LS_DATA_PREPARATION_STEP_H
#define LS_DATA_PREPARATION_STEP_H

#include "base/options.h"
#include "base/status.h"
#include "base/text.h"
#include "data/corpus.h"

#include <stdbool.h>
#include <stdint.h>

/* The numbers are part of files in the scratch folder. LS_STEP_READ comes before those of every
 * pipeline: it drops what cannot be read. */
typedef enum ls_step_kind {
    LS_STEP_READ,
    LS_STEP_NORMALISE,
    LS_STEP_LANGUAGE,
    LS_STEP_GOPHER_QUALITY,
    LS_STEP_GOPHER_REPETITION,
    LS_STEP_C4,
    LS_STEP_FINEWEB,
    LS_STEP_DEDUP_LINES,
    LS_STEP_DEDUP_EXACT,
    LS_STEP_DEDUP_MINHASH,
    LS_STEP_PII,
    LS_STEP_DECONTAMINATE,
    LS_STEP_KINDS,
} ls_step_kind;

enum { LS_MINHASH_HASHES_MAX = 256, LS_REASONS_MAX = 16 };

/* A step with its settings; only those of its kind are set. */
typedef struct ls_step {
    ls_step_kind kind;
    const char *name;
    struct {
        bool nfc, blanks;
    } normalise;
    struct {
        const char *model;
        ls_option_strings keep;
        double probability_min;
    } language;
    struct {
        uint64_t words_min, words_max, stop_words_min;
        double length_min, length_max, symbols_max, bullets_max, ellipses_max, alphabetic_min;
    } gopher;
    struct {
        uint64_t sentences_min, line_words_min, word_length_max;
        bool terminal, javascript, bracket, policy;
    } c4;
    struct {
        double punctuated_min, short_max, duplicates_max, breaks_max;
        uint64_t short_length;
    } fineweb;
    struct {
        uint64_t length_min;
    } lines;
    struct {
        bool normalised;
    } exact;
    struct {
        uint64_t ngram, bands, rows;
    } minhash;
    struct {
        int action;
        ls_option_strings kinds;
    } pii;
    struct {
        ls_option_strings against;
        uint64_t ngram;
        ls_corpus_file *files; /* of `against` (file_count), once the pipeline is loaded */
        size_t file_count;
    } decontaminate;
} ls_step;

enum { LS_PII_MASK, LS_PII_DROP };

/* Why a document was removed: a reason of its step (1 is the first), and a number that belongs to
 * it: a float's bits, or an index. */
typedef struct ls_removal {
    uint8_t reason;
    uint32_t detail;
} ls_removal;

/* A removal with a measured value. */
ls_removal ls_removal_of(uint8_t reason, double value);

/* Reasons, by step. */
enum { LS_READ_BROKEN = 1, LS_READ_NO_TEXT, LS_READ_NOT_UTF8, LS_READ_TOO_LONG };
enum { LS_LANGUAGE_OTHER = 1, LS_LANGUAGE_UNSURE };
enum {
    LS_GOPHER_SHORT = 1,
    LS_GOPHER_LONG,
    LS_GOPHER_SHORT_WORDS,
    LS_GOPHER_LONG_WORDS,
    LS_GOPHER_HASHES,
    LS_GOPHER_ELLIPSES,
    LS_GOPHER_BULLETS,
    LS_GOPHER_END_ELLIPSES,
    LS_GOPHER_ALPHABETIC,
    LS_GOPHER_STOP_WORDS,
};
enum {
    LS_REPETITION_EMPTY = 1,
    LS_REPETITION_PARAGRAPHS,
    LS_REPETITION_PARAGRAPH_CHARACTERS,
    LS_REPETITION_LINES,
    LS_REPETITION_LINE_CHARACTERS,
    /* 2 to 4 words. */
    LS_REPETITION_TOP,
    /* 5 to 10 words. */
    LS_REPETITION_DUPLICATE = LS_REPETITION_TOP + 3,
};
enum { LS_C4_LOREM_IPSUM = 1, LS_C4_BRACKET, LS_C4_SENTENCES };
enum {
    LS_FINEWEB_EMPTY = 1,
    LS_FINEWEB_PUNCTUATION,
    LS_FINEWEB_SHORT_LINES,
    LS_FINEWEB_DUPLICATES,
    LS_FINEWEB_BREAKS,
};
enum { LS_DEDUP_COPY = 1 };
enum { LS_PII_FOUND = 1 };
enum { LS_CONTAMINATED = 1 };

/* "gopher_quality". */
const char *ls_step_kind_name(ls_step_kind kind);
/* The kind of that name, LS_STEP_KINDS if there is none. */
ls_step_kind ls_step_kind_find(const char *name);
/* The names of all kinds but LS_STEP_READ, separated by ", ". */
void ls_step_kinds_append(ls_text *text);

/* The settings of a kind: rows of ls_step. */
const ls_option_table *ls_step_table(ls_step_kind kind);

/* The short name of a reason, for counts: "words_few"; and a sentence with its number:
 * "34 words, fewer than words_min". */
const char *ls_step_reason(ls_step_kind kind, uint8_t reason);
void ls_step_reason_append(ls_step_kind kind, ls_removal removal, ls_text *text);

/* Whether the step compares documents with each other. */
bool ls_step_is_dedup(ls_step_kind kind);

#endif
