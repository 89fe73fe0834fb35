// SPDX-License-Identifier: Apache-2.0
/*
 * Dataset: files in, samples of T+1 tokens out, each a pure function of (seed, position).
 *
 *   patterns -> files -> tokens (cached) -> training stream, validation stream -> windows
 *
 * Packing. The documents of a source follow each other in one stream of tokens, each document followed by the
 * tokenizer's end-of-text token where it has one. Window i of a stream are its tokens [i*T, i*T + T]: T
 * inputs and, shifted by one, T targets. Neighbouring windows share one token, so that every token but the
 * first is a target exactly once. What is left at the end and does not fill a window is not used in this form
 * (ls_dataset_tokens reads it). A window may hold the end of one document and the beginning of the next;
 * attention is not masked between them (document masking is not there yet).
 *
 *        stream   a0 a1 a2 a3 a4 <eos> b0 b1 b2 <eos> c0 ...          T = 4
 *        window 0 a0 a1 a2 a3 a4
 *        window 1             a4 <eos> b0 b1 b2
 *        window 2                            b2 <eos> c0 ...
 *
 * Validation split (data/split.h). It depends on the tokens and the fraction only: not on T, seed, batch or
 * ranks, so runs with different settings are judged on the same text. Each source is cut in up to 16 equal
 * stripes and the end of each stripe is validation. Cuts are moved to document boundaries when the share that
 * results is between half and twice what was asked for (the usual case: many documents); else, with one or
 * few long documents, they stay inside documents. No token is in both splits.
 *
 * Order. Training walks through each source in a keyed random permutation of its windows per epoch
 * (data/order.h); sources are mixed by weight (data/mixture.h). Validation is read in file order, never
 * shuffled. The trainer asks for position = step * global_batch + index.
 *
 * Thread-safety: a dataset does not change after it was opened; every function but open and close may be
 * called from any number of threads at once. ls_dataset_sample and ls_dataset_tokens allocate nothing.
 *
 * Ownership: the options and what they point to are borrowed during ls_dataset_open only. The dataset owns
 * its maps.
 */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_dataset ls_dataset;
typedef struct ls_tokenizer ls_tokenizer; /* data/tokenizer.h */

typedef enum ls_split { LS_SPLIT_TRAIN = 0, LS_SPLIT_VALIDATION = 1 } ls_split;

/* Files that belong together: one corpus. */
typedef struct ls_dataset_source {
    const char *const *patterns; /* paths, or patterns with * ? [] {}; each must match at least one file */
    size_t pattern_count;        /* >= 1 */
    double weight; /* > 0, relative: share of the samples drawn from this source; ignored with one source */
} ls_dataset_source;

/* Tells how far tokenising is; called from the opening thread, a few times per second at most. */
typedef void (*ls_dataset_progress)(void *context, const char *path, uint64_t done_bytes,
                                    uint64_t total_bytes);

typedef struct ls_dataset_options {
    const ls_dataset_source *sources; /* training data */
    size_t source_count; /* 0 to LS_MIXTURE_MAX; 0 only with validation_patterns (what `eval` does) */

    /* Files that are validation as a whole; then validation_fraction must be 0. */
    const char *const *validation_patterns;
    size_t validation_pattern_count;

    double validation_fraction; /* 0 to 0.5 of each source's tokens; 0: no validation split */

    const ls_tokenizer *tokenizer; /* NULL: only token files can be read */
    uint32_t vocab_size; /* ids must be below it; 0: the tokenizer's, and without a tokenizer 2^31 - 1 */
    uint32_t context;    /* T, tokens per sample, 1 to 2^24 */

    /* For tokenised text. NULL: $LOCKSTEP_HOME/cache/tokens, else ~/.lockstep/cache/tokens; "": none. */
    const char *cache_dir;
    uint32_t threads; /* for tokenising, 0: as many as there are cores; never changes the result */

    /* All three may be NULL. tell: a line for people: why it takes so long. stop: asked several times per second while tokenising and while
     * waiting for another process that does; anything but LS_OK ends the opening with it. */
    ls_dataset_progress progress;
    void (*tell)(void *context, const char *text);
    ls_status (*stop)(void *context);
    void *caller; /* the context of all of them */
} ls_dataset_options;

/*
 * Opens the files, tokenises what is not in the cache, and works out splits.
 *
 * dataset_out: the caller closes it with ls_dataset_close. Written only on success.
 * Errors, each naming the file and where in it:
 *   LS_ERR_NOT_FOUND  no file matches a pattern
 *   LS_ERR_DATA       empty, truncated or binary file; broken UTF-8; broken JSON line or one without `text`;
 *                     token id beyond the vocabulary; fewer than T+1 tokens in a source, or 2 in validation
 *   LS_ERR_INVALID    an option outside its range; text without a tokenizer
 *   LS_ERR_MEMORY, LS_ERR_IO, and what `stop` said
 *
 * A cache folder that can't be written is not an error: a warning is logged and the tokens are kept in memory.
 */
LS_MUST_CHECK ls_status ls_dataset_open(const ls_dataset_options *options, ls_dataset **dataset_out);

/* Unmaps and frees. NULL is fine. */
void ls_dataset_close(ls_dataset *dataset);

/*
 * One sample. tokens_out: (T+1): inputs are [0, T), targets are [1, T+1).
 *
 * LS_SPLIT_TRAIN: any position below 2^56; epochs follow each other without end. seed chooses the order.
 * LS_SPLIT_VALIDATION: position below ls_dataset_samples(dataset, LS_SPLIT_VALIDATION); the seed is ignored.
 *
 * Pure: the same arguments give the same tokens in every process, for any number of ranks. Every id is below
 * vocab_size.
 *
 * Errors: LS_ERR_DATA when a cached block does not match its checksum any more (the file changed or the disk
 * lies), naming the file; tokens_out may then hold anything.
 */
LS_MUST_CHECK ls_status ls_dataset_sample(const ls_dataset *dataset, ls_split split, uint64_t seed,
                                          uint64_t position, int32_t *tokens_out);

/*
 * Where the sample at `position` of the training split comes from; for reports ("epoch 1.3 of 2 sources").
 */
typedef struct ls_dataset_draw {
    uint32_t source; /* index into options.sources */
    uint64_t epoch;  /* how many times the whole source was read before */
    uint64_t window; /* which window of the source */
} ls_dataset_draw;
ls_dataset_draw ls_dataset_draw_at(const ls_dataset *dataset, uint64_t seed, uint64_t position);

/*
 * `count` tokens of a split from `first` on, in file order; what evaluation of a whole file needs for its
 * last, shorter window. The training stream is that of source `source`; validation is one stream (source is
 * then 0). first + count must not exceed ls_dataset_stream_tokens. Errors as for ls_dataset_sample.
 */
LS_MUST_CHECK ls_status ls_dataset_tokens(const ls_dataset *dataset, ls_split split, uint32_t source,
                                          uint64_t first, uint64_t count, int32_t *tokens_out);

/* T of the options. */
uint32_t ls_dataset_context(const ls_dataset *dataset);
/*
 * Samples of one epoch: windows of all sources together. Validation: 0 when there is none, and when it is
 * shorter than a window (it can still be read with ls_dataset_tokens).
 */
uint64_t ls_dataset_samples(const ls_dataset *dataset, ls_split split);
/* The same for one source of the training split. */
uint64_t ls_dataset_source_samples(const ls_dataset *dataset, uint32_t source);
/* Tokens in a split, all sources together. */
uint64_t ls_dataset_token_count(const ls_dataset *dataset, ls_split split);
/* Tokens of one stream: a training source, or validation (source 0). */
uint64_t ls_dataset_stream_tokens(const ls_dataset *dataset, ls_split split, uint32_t source);
/*
 * Bytes of text per token of a split, for nats per byte = nats per token / this; end-of-text tokens count as
 * tokens of no bytes. Validation: measured by decoding the split (its first 4 Mi tokens when it is longer).
 * Training: each file's mean weighted by its share, an estimate where a file is cut. 0.0 when not known: token
 * files carry no text, and without a tokenizer they can't be decoded.
 */
double ls_dataset_bytes_per_token(const ls_dataset *dataset, ls_split split);
/* Files, documents in all of them. */
uint64_t ls_dataset_file_count(const ls_dataset *dataset);
uint64_t ls_dataset_document_count(const ls_dataset *dataset);
/* True when validation was split off between documents, false when inside them. */
bool ls_dataset_split_by_document(const ls_dataset *dataset);

/*
 * Identity: SHA-256, 64 hex digits, over the content of the files in order, tokenizer, weights, T, fraction
 * and split rule. Not over paths or cache. Two datasets with the same hash give the same samples.
 */
const char *ls_dataset_hash(const ls_dataset *dataset);

#endif
