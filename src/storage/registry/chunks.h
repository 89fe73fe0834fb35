// SPDX-License-Identifier: Apache-2.0
/*
 * Chunks: pieces of files, each kept once however many files have it.
 *
 *   chunks/AB/<sha256>   the bytes of a chunk, compressed by zstd if that makes them smaller
 *   files/AB/<sha256>    which chunks a file is made of, in order: "<sha256> <bytes>" per line
 *
 * Where a file is cut depends on its bytes alone (ls_chunks_cut), so files that share a part share
 * its chunks. All writes are put-if-absent of content that its name determines: any number of
 * writers, killed at any moment, leave only whole chunks and lists of chunks that are there.
 */
#ifndef LS_STORAGE_REGISTRY_CHUNKS_H
#define LS_STORAGE_REGISTRY_CHUNKS_H

#include "storage/blob/blob.h"
#include "storage/registry/entry.h"

enum {
    /* A cut falls between the limits, on average 1 MiB after the one before. */
    LS_CHUNK_BYTES_MIN = 256 << 10,
    LS_CHUNK_BYTES_USUAL = 1 << 20,
    LS_CHUNK_BYTES_MAX = 4 << 20,
    /* of a .safetensors file: a tensor of this size has chunks of its own */
    LS_CHUNK_TENSOR_BYTES = 32 << 10,
};

typedef struct ls_chunk {
    char sha256[LS_SHA256_HEX_BYTES];
    uint64_t offset, bytes;
} ls_chunk;

typedef struct ls_chunk_list {
    ls_chunk *chunks;
    size_t count;
} ls_chunk_list;

/*
 * Cuts `data` where a rolling hash of the last 64 bytes has zeros (gear hash, with a mask that is
 * harder before the usual size and easier after it). Source: Xia et al., "FastCDC", USENIX ATC
 * 2016. The data of a .safetensors file are first cut at the borders of tensors, of which small
 * ones stay together: a tensor that did not change has the chunks it had. Digests are not filled
 * in. Pure.
 */
void ls_chunks_cut(ls_arena *arena, const unsigned char *data, size_t bytes, ls_chunk_list *list_out);

/* The text of a list in `arena`, and back. bytes: of the file, to be the sum of the chunks. where:
 * for messages. Errors: LS_ERR_DATA. */
const char *ls_chunks_encode(ls_arena *arena, const ls_chunk_list *list);
LS_MUST_CHECK ls_status ls_chunks_decode(ls_arena *arena, const char *text, uint64_t bytes, const char *where,
                                         ls_chunk_list *list_out);

/* What storing did, added up over files. */
typedef struct ls_chunks_stored {
    uint64_t bytes;     /* of the files */
    uint64_t new_bytes; /* what their new chunks take */
} ls_chunks_stored;

typedef struct ls_chunk_store ls_chunk_store;

/* blobs: outlives it. threads: chunks at once. */
ls_chunk_store *ls_chunk_store_create(ls_blob_store *blobs, unsigned threads);
void ls_chunk_store_destroy(ls_chunk_store *store); /* NULL is allowed */

/* Stores the file `path` unless one with this digest is there. Errors: LS_ERR_DATA if it does not
 * have the size and digest of `file`; those of the store. */
LS_MUST_CHECK ls_status ls_chunks_put(ls_chunk_store *store, const char *path,
                                      const ls_registry_entry_file *file, ls_chunks_stored *stored);

/* Writes the file to `path`; every chunk is checked, and the whole. Errors: LS_ERR_DATA naming the
 * file and the chunk that is damaged or missing; those of the store. */
LS_MUST_CHECK ls_status ls_chunks_get(ls_chunk_store *store, const ls_registry_entry_file *file,
                                      const char *path);

/* The chunks of a file, in `arena`. Errors: LS_ERR_DATA, also when there is no list. */
LS_MUST_CHECK ls_status ls_chunks_list(ls_chunk_store *store, ls_arena *arena,
                                       const ls_registry_entry_file *file, ls_chunk_list *list_out);

/* Whether there is a list of the file's chunks. */
bool ls_chunks_has(ls_chunk_store *store, const ls_registry_entry_file *file);

/* Reads and compares every chunk of a file that this store object has not checked before. Errors:
 * as for ls_chunks_get. */
LS_MUST_CHECK ls_status ls_chunks_verify(ls_chunk_store *store, const ls_registry_entry_file *file);

#endif
