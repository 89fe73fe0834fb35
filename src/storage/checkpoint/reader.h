// SPDX-License-Identifier: Apache-2.0
/*
 * Reading the data files of a checkpoint block by block; each block is checked before it is used.
 * Shared by loading, verifying, hashing and repairing; public part:
 * storage/checkpoint/checkpoint.h.
 *
 * Large files that are not in the page cache are read past it (O_DIRECT): it saves a copy, and the
 * page cache keeps its content. Files that are cached, and small ones, are read through it.
 */
#ifndef LS_STORAGE_CHECKPOINT_READER_H
#define LS_STORAGE_CHECKPOINT_READER_H

#include "storage/checkpoint/block_pool.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/manifest.h"

typedef struct ls_reader_file {
    int fd;      /* -1: not open */
    bool direct; /* opened with O_DIRECT: whole sectors only */
} ls_reader_file;

typedef struct ls_checkpoint_reader {
    const ls_checkpoint *checkpoint;
    const ls_manifest *manifest;
    const ls_read_calls *calls;
    ls_arena arena;
    ls_reader_file *files;
    /* tensors, file after file, each in order of offset: "positions" below */
    size_t *members;
    size_t *file_first;      /* per file: its first position; [file_count] = tensor_count */
    unsigned char **targets; /* per tensor: destination of its bytes; NULL: not wanted */
    ls_sha256 *sha256;       /* per file, verify only */
    ls_sha256 state;         /* state hash only */
    size_t parameter_count;  /* tensors of kind value: the first ones of the table */
    size_t state_parameter;  /* state hash: next parameter and kind to be hashed */
    ls_manifest_kind state_kind;
    bool state_is_closed;             /* the step follows parameters and moments */
    struct state_visit *state_visits; /* per block, in their order */
} ls_checkpoint_reader;

/* calls: NULL for the system's. Must be released even after an error. */
void ls_reader_init(ls_checkpoint_reader *reader, const ls_checkpoint *checkpoint,
                    const ls_read_calls *calls);
void ls_reader_release(ls_checkpoint_reader *reader);

/* Opens file `file`, unless it is open, and checks its header. Errors: LS_ERR_DATA naming the file,
 * LS_ERR_IO, LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_reader_open_file(ls_checkpoint_reader *reader, size_t file);

/* Reads and checks the header of a file that could be opened, whatever ls_reader_open_file
 * returned for it. buffer: from ls_reader_header_buffer, which returns NULL without memory; the
 * caller frees it. Errors: as above. */
LS_MUST_CHECK ls_status ls_reader_header(ls_checkpoint_reader *reader, size_t file, unsigned char *buffer);
unsigned char *ls_reader_header_buffer(const ls_checkpoint_reader *reader, size_t file);

/* Reads and checks a block of an open file: an ls_block_work's prepare, with the reader as context.
 * Any thread. buffer: page-aligned, LS_CHECKPOINT_BLOCK_BYTES. Errors: LS_ERR_DATA naming file,
 * block, offset and tensor; LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_reader_block(void *context, const ls_block *block, unsigned char *buffer);

/* ---- which tensors lie in a block ---- */

/* The part of a tensor that lies in a block. */
typedef struct ls_block_slice {
    size_t tensor;
    uint64_t tensor_offset; /* bytes into the tensor */
    size_t block_offset;    /* bytes into the block */
    size_t bytes;
} ls_block_slice;

/* The slice of tensor `index` in `block`; false if they don't overlap. */
bool ls_reader_slice(const ls_checkpoint_reader *reader, size_t index, const ls_block *block,
                     ls_block_slice *slice_out);
/* The position of the first tensor of the block's file that ends after the block starts; the
 * following ones come in order. */
size_t ls_reader_first_position(const ls_checkpoint_reader *reader, const ls_block *block);
/* True while the tensor at `position` is in the block's file and starts before the block ends. */
bool ls_reader_in_reach(const ls_checkpoint_reader *reader, size_t position, const ls_block *block);

#endif
