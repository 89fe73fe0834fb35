// SPDX-License-Identifier: Apache-2.0
/*
 * Dataset: files in, samples of T positions out. Each is a pure function of (seed, position).
 *
 *   patterns --> files --> tokens (cached) --> training stream   --> windows
 *                                          --> validation stream --> windows
 *
 * Packing. The documents of a source form one stream of tokens. Each document is followed by the
 * tokenizer's end-of-text token, if it has one. Window i of a stream is its tokens [i*T, i*T + T]:
 * T inputs and, shifted by one, T targets. Neighbouring windows share one token, so every token but
 * the first is a target exactly once. Tokens at the end that do not fill a window are not part of a
 * sample; ls_dataset_tokens reads them. A window may hold the end of one document and the beginning
 * of the next. With document_masks each document is then a record of its own (ls_sample), and its
 * last token has no target: the token after it begins another text. Otherwise the window is one
 * record, and attention sees the documents before.
 *
 *        T = 4
 *        stream   | a0 | a1 | a2 | a3 | a4 |<eos>| b0 | b1 | b2 |<eos>| c0 | ...
 *        window 0 | a0 | a1 | a2 | a3 | a4 |
 *        window 1                     | a4 |<eos>| b0 | b1 | b2 |
 *        window 2                                          | b2 |<eos>| c0 | ...
 *
 * Validation split (data/split.h). It depends only on the tokens and the fraction, not on T, seed,
 * batch or ranks, so runs with different settings are judged on the same text. Each source is cut
 * into up to 16 equal stripes, and the end of each stripe is validation. The cuts are moved to
 * document boundaries if the resulting share is between half and twice the wanted one, which is the
 * usual case with many documents. With one document, or a few long ones, the cuts stay inside
 * documents. No token is in both splits.
 *
 * Order. Training reads each source in a keyed random permutation of its windows, another one in
 * each epoch (data/order.h). Sources are mixed by weight (data/mixture.h). Validation is read in
 * file order and never shuffled. The trainer asks for position = step * global_batch + index.
 *
 * Records. Files of conversations, prompts and completions, questions and answers are not streams:
 * a recipe (data/conversation/recipe.h) makes samples of their records, and windows hold whole
 * samples (data/record_set.h), each a record of its own in ls_sample, with a target where the token
 * is trained. Records are held out by conversation, by a key or by time (data/held_out.h). All
 * files of a source hold either records or text.
 *
 * Thread-safety: a dataset does not change once it is open. Any number of threads may call every
 * function except open and close at once. ls_dataset_sample and ls_dataset_tokens allocate nothing.
 *
 * Ownership: the options and what they point to are borrowed only during ls_dataset_open. The
 * dataset owns its maps.
 */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "data/conversation/recipe.h"
#include "data/held_out.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_dataset ls_dataset;
typedef struct ls_tokenizer ls_tokenizer; /* tokenizer/tokenizer.h */

typedef enum ls_split { LS_SPLIT_TRAIN = 0, LS_SPLIT_VALIDATION = 1 } ls_split;

/* Files that belong together: one corpus. */
typedef struct ls_dataset_source {
    /* Paths, folders, or patterns with * ? [] {}. Each must match at least one file
     * (data/corpus.h). */
    const char *const *patterns;
    /* At least 1. */
    size_t pattern_count;
    /* For each pattern, the key or column that holds the document; NULL or an entry that is NULL or
     * "": options.field. */
    const char *const *fields;
    /* Relative share of the samples that come from this source, above 0. Ignored for one source. */
    double weight;
} ls_dataset_source;

/* Reports how far tokenising is. Called on the thread that opens the dataset, at most a few times
 * per second. */
typedef void (*ls_dataset_progress)(void *context, const char *path, uint64_t done_bytes,
                                    uint64_t total_bytes);

typedef struct ls_dataset_options {
    /* Training data. */
    const ls_dataset_source *sources;
    /* 0 to LS_MIXTURE_MAX. 0 is allowed only with validation_patterns, as `eval` uses it. */
    size_t source_count;

    /* Files that are validation data as a whole. validation_fraction must then be 0. */
    const char *const *validation_patterns;
    size_t validation_pattern_count;
    /* The key or column of each pattern, as `fields` of a source. NULL: `field` for all. */
    const char *const *validation_fields;

    /* Share of each source's tokens that is validation, 0 to 0.5. 0: no validation split. */
    double validation_fraction;

    /* Key or column that holds the document in JSON lines, JSON, CSV and TSV. NULL or "": "text".
     */
    const char *field;

    /* How records that are not text become samples. NULL: only text is read. */
    const ls_recipe *recipe;
    /* Which of them are held out together. */
    ls_held_out_rule held_out;
    /* Their samples share windows. */
    bool packing;

    /* NULL: only token files can be read. */
    const ls_tokenizer *tokenizer;
    /* Every id must be below it. 0: the tokenizer's size, or 2^31 - 1 without a tokenizer. */
    uint32_t vocab_size;
    /* T, tokens per sample, 1 to 2^24. */
    uint32_t context;

    /* Attention and positions restart with each document. */
    bool document_masks;

    /* Folder for tokenised text. NULL: $LOCKSTEP_HOME/cache/tokens, else ~/.lockstep/cache/tokens.
     * "": no cache. */
    const char *cache_dir;
    /* Threads that tokenise. 0: one per core. Never changes the result. */
    uint32_t threads;

    /* May be NULL, like the next two. */
    ls_dataset_progress progress;
    /* Receives a line for the user that says why opening takes long. */
    void (*tell)(void *context, const char *text);
    /* Called several times per second while tokenising, and while waiting for another process that
     * tokenises. A status other than LS_OK ends ls_dataset_open with that status. */
    ls_status (*stop)(void *context);
    /* The context of all three. */
    void *caller;
} ls_dataset_options;

/*
 * Opens the files, tokenises those that are not in the cache, and computes the splits.
 *
 * dataset_out: written only on success. The caller closes it with ls_dataset_close.
 * Errors, each with the file and the place in it:
 *   LS_ERR_NOT_FOUND  no file matches a pattern
 *   LS_ERR_DATA       an empty, truncated or binary file; broken UTF-8; a broken record, or one
 *                     without the field; a token id beyond the vocabulary; fewer than T+1 tokens in
 *                     a source, or fewer than 2 in validation
 *   LS_ERR_INVALID    an option outside its range; text without a tokenizer
 *   LS_ERR_MEMORY, LS_ERR_IO, and what `stop` returned
 *
 * A cache folder that can't be written is not an error: a warning is logged and the tokens are kept
 * in memory.
 */
LS_MUST_CHECK ls_status ls_dataset_open(const ls_dataset_options *options, ls_dataset **dataset_out);

/* Unmaps and frees. NULL is fine. */
void ls_dataset_close(ls_dataset *dataset);

/* LS_NO_TARGET: of a position that has no loss. LS_NO_RECORD: what padding belongs to. */
enum { LS_NO_TARGET = -1, LS_NO_RECORD = -1 };

/*
 * One row of a batch: where ls_dataset_sample writes it. Each array has T entries.
 *
 *   tokens    the inputs
 *   targets   the token after each input, or LS_NO_TARGET
 *   first     for position i, the index in this window of the first token of its record: attention
 *             sees [first[i], i], and i's position is i - first[i]. 0 everywhere unless
 *             ls_dataset_has_documents. Never falls. May be NULL: not wanted
 *   record    for position i, a number below 2^31 that names its record within its source; for
 *             text, where its document begins in the stream, or without document_masks the window's
 *             number, and where it begins for validation. May be NULL: not wanted
 *
 * Padding is a record of its own, LS_NO_RECORD, without targets.
 */
typedef struct ls_sample {
    int32_t *tokens;
    int32_t *targets;
    int32_t *first;
    int32_t *record;
} ls_sample;

/*
 * Reads one sample into the arrays of `sample`.
 *
 * LS_SPLIT_TRAIN: position is any number below 2^56, because epochs follow each other without end;
 * the seed chooses the order. LS_SPLIT_VALIDATION: position is below
 * ls_dataset_samples(dataset, LS_SPLIT_VALIDATION); the seed is ignored.
 *
 * Pure: the same arguments give the same tokens in every process, for any number of ranks. Every id
 * is below vocab_size.
 *
 * Errors: LS_ERR_DATA with the file's name if a cached block no longer matches its checksum,
 * because the file changed or the disk is failing. The arrays may then hold anything.
 */
LS_MUST_CHECK ls_status ls_dataset_sample(const ls_dataset *dataset, ls_split split, uint64_t seed,
                                          uint64_t position, const ls_sample *sample);

/*
 * The training sample at `position`, as for ls_dataset_sample, will be read soon: if its tokens are
 * streamed, they are fetched meanwhile. samples: how many the processes of this machine will read
 * in all; if these are most of a source, more is fetched at once (data/stream/token_reader.h). A
 * hint; returns at once.
 */
void ls_dataset_expect(const ls_dataset *dataset, uint64_t seed, uint64_t position, uint64_t samples);

/* Whether any tokens are streamed (data/stream/token_set.h). */
bool ls_dataset_is_streamed(const ls_dataset *dataset);

/* Whether attention and positions restart at `first` of each sample. */
bool ls_dataset_has_documents(const ls_dataset *dataset);

/* Where a sample of the training split comes from. */
typedef struct ls_dataset_draw {
    /* Index into options.sources. */
    uint32_t source;
    /* How many times the whole source was read before. */
    uint64_t epoch;
    /* Which window of the source. */
    uint64_t window;
} ls_dataset_draw;

/* Where the sample at `position` comes from. position and seed as for ls_dataset_sample. */
ls_dataset_draw ls_dataset_draw_at(const ls_dataset *dataset, uint64_t seed, uint64_t position);

/*
 * Reads `count` tokens of a split from `first` on, in file order. The evaluation of a whole file
 * needs it for the last, shorter window. Each source has its own training stream; validation is one
 * stream, and `source` is then 0. first + count must not exceed ls_dataset_stream_tokens. Errors:
 * as for ls_dataset_sample.
 */
LS_MUST_CHECK ls_status ls_dataset_tokens(const ls_dataset *dataset, ls_split split, uint32_t source,
                                          uint64_t first, uint64_t count, int32_t *tokens_out);

/*
 * Samples in one epoch of a split: the windows of all sources. 0 for validation if there is none or
 * it is shorter than a window; ls_dataset_tokens can still read it. With document_masks, the last
 * window of validation may be short; it is padded.
 */
uint64_t ls_dataset_samples(const ls_dataset *dataset, ls_split split);

/* Samples in one epoch of one training source. */
uint64_t ls_dataset_source_samples(const ls_dataset *dataset, uint32_t source);

/* Where in the validation stream the tokens split off from `source` end; they begin where those of
 * the source before it end. The records (ls_sample) of its validation samples are numbered below
 * it. 0 for all sources if validation has files of its own. */
uint64_t ls_dataset_validation_end(const ls_dataset *dataset, uint32_t source);

/* Tokens in a split, for all sources. */
uint64_t ls_dataset_token_count(const ls_dataset *dataset, ls_split split);

/* Tokens in one stream: a training source, or validation (source 0). */
uint64_t ls_dataset_stream_tokens(const ls_dataset *dataset, ls_split split, uint32_t source);

/*
 * Bytes of text per token of a split: nats per byte = nats per token / this. An end-of-text token
 * counts as a token of no bytes. Validation is measured by decoding the split, or its first 4 Mi
 * tokens. Training is the mean of each file weighted by its share, which is an estimate for a file
 * that is cut. Returns 0.0 if it is not known: token files carry no text, and can't be decoded
 * without a tokenizer.
 */
double ls_dataset_bytes_per_token(const ls_dataset *dataset, ls_split split);

/* Whether any of its files hold records. */
bool ls_dataset_has_records(const ls_dataset *dataset);

/* How many files the dataset has. */
uint64_t ls_dataset_file_count(const ls_dataset *dataset);

/* How many documents all files hold. */
uint64_t ls_dataset_document_count(const ls_dataset *dataset);

/* True if the last validation file is one that was tokenised here, so that its last token is the
 * tokenizer's end-of-text token, if it has one. */
bool ls_dataset_ends_document(const ls_dataset *dataset);

/*
 * The dataset's identity: the SHA-256, in 64 hex digits, of the content of the files in order, the
 * tokenizer, weights, T, fraction and split rule. Paths and the cache do not matter. Two datasets
 * with the same hash give the same samples.
 */
const char *ls_dataset_hash(const ls_dataset *dataset);

/* What reads its token sets, to share them with other hosts; NULL: it has none. */
ls_token_reader *ls_dataset_reader(const ls_dataset *dataset);

/*
 * The files that were fetched from buckets, for a later process that finds other data there: an
 * object that has, for each address, {"etag", "sha256"}; the digest is of the unpacked content. The
 * caller frees it. NULL: none, or more than LS_DATASET_SHARDS_MAX.
 */
enum { LS_DATASET_SHARDS_MAX = 1000 };
json_t *ls_dataset_shards(const ls_dataset *dataset);

#endif
