// SPDX-License-Identifier: Apache-2.0
/*
 * Record set: the samples of records as windows of T positions.
 *
 * A sample of n tokens takes n - 1 positions, because the last token is only a target. One that is
 * longer than a window is cut off at the window's end. Samples share windows (data/bins.h), or each
 * has its own; what is left of a window is padding. Each sample is a record of its own in
 * ls_sample, so that attention and positions begin anew with it; targets are the tokens that are
 * trained.
 *
 * Which samples meet in a window is a pure function of seed, epoch and lengths: windows are dealt
 * in a keyed random order, and the samples of each length are permuted among their places, both
 * anew in each epoch. Without a shuffle both stay in the order of the files.
 *
 * Memory: 4 bytes for each sample, and 8 for each length. The tokens are mapped.
 *
 * Thread-safety: any number of threads may read a set that is made. Reading allocates nothing.
 */
#ifndef LS_DATA_RECORD_SET_H
#define LS_DATA_RECORD_SET_H

#include "base/status.h"
#include "data/conversation/recipe.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_record_set ls_record_set;

/* Which samples a set has. Borrowed as long as the set is open. */
typedef struct ls_record_set_options {
    /* Their tokens, all with origins. */
    const ls_tokens *files;
    const ls_corpus_file *names;
    size_t file_count;
    /* What made the samples. */
    const ls_recipe *recipe;
    /* T. */
    uint32_t context;
    /* Samples share windows. */
    bool packing;
    /* The samples that are held out, or those that are not; all if has_threshold is false and
     * held_out is. */
    bool has_threshold, held_out;
    uint64_t threshold;
    /* Leave out samples that have nothing trained within the window; otherwise they are an error.
     * */
    bool skip_bad;
    /* Added to the numbers of records. */
    uint64_t first_record;
} ls_record_set_options;

/* Counts of a set. */
typedef struct ls_record_counts {
    uint64_t samples, windows;
    /* Positions that hold tokens. */
    uint64_t positions;
    /* Samples with a target that ends an answer. */
    uint64_t end_count;
    /* Samples that are cut off, and the file and line of the first; samples that are left out. */
    uint64_t long_count, left_count;
    const char *long_path;
    uint64_t long_line, long_tokens;
} ls_record_counts;

/*
 * Makes a set. It may be empty. Errors: LS_ERR_DATA if samples have nothing trained within a
 * window, with their number and the place of the first; what ls_tokens_read returns; LS_ERR_INVALID
 * for more than 2^31 samples; LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_record_set_create(const ls_record_set_options *options, ls_record_set **set_out);
void ls_record_set_destroy(ls_record_set *set);

const ls_record_counts *ls_record_set_counts(const ls_record_set *set);

/* The order of an epoch. */
typedef struct ls_record_shuffle {
    uint64_t seed, epoch;
    /* Number of the source: sources have different orders. */
    uint32_t source;
} ls_record_shuffle;

/* Writes a window. shuffle: NULL for the order of the files. Errors: those of ls_tokens_read. */
LS_MUST_CHECK ls_status ls_record_set_read(const ls_record_set *set, const ls_record_shuffle *shuffle,
                                           uint64_t window, const ls_sample *sample);

#endif
