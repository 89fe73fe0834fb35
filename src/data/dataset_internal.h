// SPDX-License-Identifier: Apache-2.0
/* What a dataset is made of; for dataset*.c only. */
#ifndef LS_DATA_DATASET_INTERNAL_H
#define LS_DATA_DATASET_INTERNAL_H

#include "base/arena.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/mixture.h"
#include "data/record_set.h"
#include "data/split.h"
#include "storage/cache/cache.h"

/* A group of files: a training source, or the files given for validation. */
typedef struct ls_dataset_part {
    ls_corpus_file *files;
    /* file_count of them. */
    ls_tokens *tokens;
    size_t file_count;
    /* How many of the tokens are open. */
    size_t opened_count;
    double weight;
    /* The training tokens. */
    ls_stream stream;
    /* Its files hold records: the samples to train on, and those held out. NULL: text. */
    ls_record_set *records, *held_out;
    /* Where its part of the validation stream ends. */
    uint64_t validation_end;
    /* Samples in the stream. */
    uint64_t window_count;
} ls_dataset_part;

struct ls_dataset {
    ls_arena arena;
    /* Pins what is mapped. */
    ls_cache *cache;
    /* NULL: nothing is streamed. */
    ls_token_reader *reader;
    uint32_t context;
    ls_dataset_part *sources;
    uint32_t source_count;
    /* The files of options.validation_patterns. */
    ls_dataset_part given_validation;
    ls_mixture mixture;
    ls_stream validation;
    bool has_records;
    double validation_bytes_per_token;
    bool document_masks;
    char hash[LS_SHA256_HEX_BYTES];
};

/* The part holds records, not text. */
bool ls_dataset_is_records(const ls_dataset_part *part);

/* Finds out the forms of the part's files. Errors: those of ls_corpus_detect; LS_ERR_INVALID for
 * records that need a chat template where there is none, and for text among records. */
LS_MUST_CHECK ls_status ls_dataset_detect(ls_dataset *d, const ls_dataset_options *o,
                                          const ls_dataset_part *part);

/* Makes the sets of all parts that hold records, after the streams of the others, and tells the
 * user about them. Errors: those of ls_record_set_create; LS_ERR_DATA if no record is left to train
 * on, or none that has the end of an answer. */
LS_MUST_CHECK ls_status ls_dataset_make_records(ls_dataset *d, const ls_dataset_options *o);

/* Windows and positions of all records that are held out. */
uint64_t ls_dataset_held_out_windows(const ls_dataset *d);
uint64_t ls_dataset_held_out_positions(const ls_dataset *d);
/* Reads one of these windows. */
LS_MUST_CHECK ls_status ls_dataset_read_held_out(const ls_dataset *d, uint64_t window,
                                                 const ls_sample *sample);

/* Documents of all files: samples, if they hold records. */
uint64_t ls_dataset_part_documents(const ls_dataset_part *part);

#endif
