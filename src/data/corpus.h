// SPDX-License-Identifier: Apache-2.0
/*
 * Corpus files: expands patterns to paths and determines the kind of each file.
 *
 * The kind follows from the suffix, or else from the first bytes:
 *   .jsonl .ndjson     JSON lines (data/records.h)
 *   .json              JSON: an array of objects, or objects one after another
 *   .csv .tsv          tables whose first row names the columns
 *   .parquet           Parquet, whose rows are JSON lines (data/parquet/parquet.h)
 *   .bin and .idx      token file of llm.c, nanoGPT or Megatron (data/token_file.h)
 *   anything else      token file if it begins with llm.c's magic number; else text, one document
 *                      per file
 *
 * A token set (data/stream/token_set.h) is named by its token-index.json, or by the folder that
 * this lies in, and means the files that it was made from.
 *
 * All but token files and Parquet may be packed with gzip or zstd; the suffix before .gz or .zst
 * then decides about the kind. Formats that hold no plain text (PDF, images, programs, archives,
 * ...) are refused by name.
 *
 * Thread-safe.
 */
#ifndef LS_DATA_CORPUS_H
#define LS_DATA_CORPUS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"
#include "data/conversation/conversation.h"
#include "data/stream/shard.h"
#include "data/stream/token_set.h"
#include "data/unpack.h"

#include <stdbool.h>
#include <stddef.h>

/* The numbers are part of cache keys and of the hashes of datasets. */
typedef enum ls_corpus_kind {
    LS_CORPUS_TEXT,
    LS_CORPUS_JSONL,
    LS_CORPUS_TOKENS,
    LS_CORPUS_JSON,
    LS_CORPUS_CSV,
    LS_CORPUS_TSV,
    LS_CORPUS_KIND_LAST = LS_CORPUS_TSV,
} ls_corpus_kind;

typedef struct ls_corpus_file {
    /* Or the address of a shard. */
    const char *path;
    /* It lies in a bucket, and is fetched when it is mapped. NULL: a file of this machine. */
    const ls_shard *shard;
    /* A file of a token set; kind and field are those of the file it was made from. NULL: none. */
    const ls_token_shard *streamed;
    /* Of a shard that is Megatron's x.bin: its x.idx. */
    const ls_shard *index;
    ls_corpus_kind kind;
    ls_packing packing;
    /* Key or column that holds the document. NULL: "text". */
    const char *field;
    /* Form of its records; LS_RECORD_TEXT: each is a document. */
    ls_record_form form;
    /* Line of the first record. 0: not looked at. */
    uint64_t form_line;
} ls_corpus_file;

/* What to look for. All is borrowed. */
typedef struct ls_corpus_query {
    /* Paths, folders, or patterns with * ? [] {}. "~/" at the beginning is the home folder. Or
     * s3://BUCKET/KEY, where KEY is an object, a folder, or a pattern with * ? []. */
    const char *const *patterns;
    size_t pattern_count;
    /* Key or column that holds the document. NULL or "": "text". */
    const char *field;
    /* The same for each pattern, or NULL: `field` for all. An entry may be NULL or "". */
    const char *const *fields;
    /* Folder of the cache that shards are fetched into. NULL: the default. */
    const char *cache_folder;
    /* Receives a line for the user about files of a folder that are skipped. May be NULL. */
    void (*tell)(void *context, const char *text);
    void *context;
} ls_corpus_query;

/*
 * Expands patterns in the given order; the files of one pattern are sorted by name. A file that is
 * named twice is taken once. Megatron's x.idx means its x.bin. A folder means the files in it and
 * in its folders, sorted by name, that have a suffix of the list above, .txt, .md or .rst; hidden
 * ones are skipped, and so are others, which `tell` is told of. Everything is allocated in
 * `arena`; fields are borrowed from the query.
 *
 * Errors: LS_ERR_NOT_FOUND for a pattern that matches nothing and a folder without data;
 * LS_ERR_INVALID for a device or no patterns; LS_ERR_DATA for an empty file and a format that is
 * not text.
 */
LS_MUST_CHECK ls_status ls_corpus_expand(ls_arena *arena, const ls_corpus_query *query,
                                         ls_corpus_file **files_out, size_t *count_out);

/* "text", "JSON lines", "token file", ... */
const char *ls_corpus_kind_name(ls_corpus_kind kind);

/* The key or column of the document, "text" unless another one is named; never NULL. */
const char *ls_corpus_field(const ls_corpus_file *file);

/* True if the field decides about the documents, and is not the default: it is then part of their
 * identity. */
bool ls_corpus_field_matters(const ls_corpus_file *file);

/* Whether files of this kind hold records. */
bool ls_corpus_has_records(ls_corpus_kind kind);

/* Maps a file; one in a bucket after fetching it (ls_shard_map). The caller closes it with
 * ls_file_map_close. Errors: those of ls_file_map_open and ls_shard_map; LS_ERR_DATA for a shard
 * whose content is not of the kind that its name says: names are all that is known of shards
 * before. */
LS_MUST_CHECK ls_status ls_corpus_map(const ls_corpus_file *file, ls_file_map *map_out);

/* Unpacks the mapped file if it is packed, and checks that what it holds may be text. In every
 * case the caller closes *map; if the file was packed, it is then the content. Errors: those of
 * ls_unpack; LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_corpus_unpack(const ls_corpus_file *file, const ls_unpack_options *options,
                                         ls_file_map *map);

#endif
