// SPDX-License-Identifier: Apache-2.0
/*
 * Content hashes of files, remembered.
 *
 * The identity of a dataset is the SHA-256 of its files, and every rank of every run asks for it. For a corpus of 100 GB that is
 * a minute of reading before the first step, so the hash of a large file is kept in the cache folder and believed as long as
 * the file's device, inode, size, modification time and change time are what they were. Change time can't be set by hand, so an
 * edit that keeps the size and puts the modification time back is noticed too. Files changed in the last two seconds are not
 * remembered: a second edit within the clock's resolution would go unseen.
 *
 * Thread-safe, also between processes. A note that can't be read or written is no error: the file is hashed again.
 */
#ifndef LS_DATA_CONTENT_HASH_H
#define LS_DATA_CONTENT_HASH_H

#include "base/file.h"
#include "base/hash.h"

#include <stddef.h>

/* Smaller files are hashed each time: that takes less than 50 ms. */
enum { LS_CONTENT_HASH_REMEMBER_BYTES = 64 << 20 };

/*
 * SHA-256 of a mapped file, 64 hex digits.
 *
 * folder: where notes are kept; "" for none. path: of the mapped file. remember_bytes: files of at least this size are remembered
 * (LS_CONTENT_HASH_REMEMBER_BYTES; tests take less).
 */
void ls_content_hash(const char *folder, const char *path, ls_file_map map, size_t remember_bytes,
                     char hex_out[LS_SHA256_HEX_BYTES]);

#endif
