// SPDX-License-Identifier: Apache-2.0
/*
 * Content hashes of files, remembered between runs.
 *
 * The identity of a dataset is the SHA-256 of its files, and every rank of every run needs it. For
 * a corpus of 100 GB that is a minute of reading before the first step, so the hash of a large file
 * is kept as a note in the cache folder. The note is valid as long as the file's device, inode,
 * size, modification time and change time are unchanged. A program can't set the change time, so an
 * edit that keeps the size and restores the modification time is noticed too. Files changed in the
 * last two seconds are not remembered, because a second edit within the clock's resolution would
 * not be noticed.
 *
 * Thread-safe, also between processes. It is not an error if a note can't be read or written: the
 * file is then hashed again.
 */
#ifndef LS_DATA_CONTENT_HASH_H
#define LS_DATA_CONTENT_HASH_H

#include "base/file.h"
#include "base/hash.h"
#include "data/stream/shard.h"

#include <stdbool.h>
#include <stddef.h>

/* Smaller files are hashed each time, which takes less than 50 ms. */
enum { LS_CONTENT_HASH_REMEMBER_BYTES = 64 << 20 };

/*
 * The SHA-256 of a mapped file, in 64 hex digits.
 *
 * folder: where notes are kept; "" for none. path: the mapped file. remember_bytes: files of at
 * least this size are remembered; LS_CONTENT_HASH_REMEMBER_BYTES except in tests.
 */
void ls_content_hash(const char *folder, const char *path, ls_file_map map, size_t remember_bytes,
                     char hex_out[LS_SHA256_HEX_BYTES]);

/*
 * The same for what a packed file unpacks to, whose bytes are not at hand: the note says what they
 * hashed to when the file was unpacked. packed: the mapped file as it is on the disk.
 *
 * recall: returns false if there is no valid note; hex_out is then untouched.
 */
bool ls_content_recall_unpacked(const char *folder, const char *path, ls_file_map packed,
                                char hex_out[LS_SHA256_HEX_BYTES]);
void ls_content_remember_unpacked(const char *folder, const char *path, ls_file_map packed, const char *hex);

/*
 * The same for the content, unpacked, of an object in a bucket, which is known by its address, etag
 * and size. If the note is of another version of it, recall logs that the object has changed.
 */
bool ls_content_recall_shard(const char *folder, const ls_shard *shard, char hex_out[LS_SHA256_HEX_BYTES]);
void ls_content_remember_shard(const char *folder, const ls_shard *shard, const char *hex);

#endif
