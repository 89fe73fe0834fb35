// SPDX-License-Identifier: Apache-2.0
/*
 * Shard: one input file, read in pieces of about a MiB that threads work on. Pieces are cut by the
 * content alone and taken in order, so what is made of them does not depend on the threads.
 */
#ifndef LS_DATA_PREPARATION_INPUT_SHARD_H
#define LS_DATA_PREPARATION_INPUT_SHARD_H

#include "base/hash.h"
#include "data/preparation/pipeline.h"
#include "data/preparation/raw_document.h"
#include "data/preparation/step_scratch.h"

enum { LS_SHARD_THREADS_MAX = 256 };

typedef struct ls_shard_walk ls_shard_walk;

/* A piece, and what its thread keeps for the next one. */
typedef struct ls_shard_piece {
    const ls_shard_walk *walk;
    /* Number of its first document in the shard, and how many there are. */
    uint64_t first, count;
    ls_step_scratch scratch;
    ls_raw_document raw;
    /* Filled by `work`, taken and emptied by `take`. */
    ls_text out, more;
    /* Of the caller, from `create`. */
    void *own;
    /* Private. */
    const ls_records *records;
    ls_record_cursor cursor;
    size_t end;
    ls_status status;
    char *error_text;
} ls_shard_piece;

struct ls_shard_walk {
    const ls_data_pipeline *pipeline;
    /* Number of the file. */
    size_t unit;
    uint32_t threads;
    /* Where packed files are unpacked to. */
    const char *folder;
    /* Called for each piece, on any thread. */
    ls_status (*work)(void *context, ls_shard_piece *piece);
    /* Called for each piece in order, on the thread of ls_shard_walk. */
    ls_status (*take)(void *context, ls_shard_piece *piece);
    void *context;
    /* Of the walk: of the file as it is on the disk; its documents. */
    ls_hash128 digest;
    uint64_t file_bytes, count;
};

/*
 * Walks over a shard. pieces: `threads` of them, all zero before the first walk; they keep their
 * memory. Errors: those of ls_corpus_map, ls_corpus_unpack and ls_records_next, LS_ERR_MEMORY,
 * and what the callbacks return.
 */
LS_MUST_CHECK ls_status ls_shard_walk_run(ls_shard_walk *walk, ls_shard_piece *pieces);

/* The next record of a piece; data is NULL after the last. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_shard_next(ls_shard_piece *piece, ls_record *record_out);

/* Reads a record into piece->raw. removal_out and errors: those of ls_raw_document_read. */
LS_MUST_CHECK ls_status ls_shard_read(ls_shard_piece *piece, const ls_record *record,
                                      ls_removal *removal_out);

/* Frees what pieces keep but `own`. */
void ls_shard_pieces_release(ls_shard_piece *pieces, uint32_t count);

#endif
