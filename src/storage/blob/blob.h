// SPDX-License-Identifier: Apache-2.0
/*
 * Blobs: named byte strings in a folder or in S3, behind one interface.
 *
 *   s3://bucket/prefix     objects prefix/KEY of a bucket; with an endpoint (AWS_ENDPOINT_URL) they
 *                          are ENDPOINT/bucket/KEY, else https://bucket.s3.REGION.amazonaws.com/KEY
 *   DIR                    files DIR/KEY; new folders in a DIR that is for a group (chmod g+ws)
 *                          are for that group
 *
 * A key is a path: parts of letters and other characters between slashes; no empty part, no "." or
 * "..", no control characters, no backslash, at most 1,000 bytes. A blob is whole or not there: a
 * folder gets a file by rename (or by link, when it must not exist) after its bytes are synced,
 * and S3 shows an object when its last byte has come.
 *
 * Requests to S3 that fail for a reason that passes (connections, 429, 5xx) are tried again after
 * growing, random pauses, until `patience_s` have passed since the first try. What is sent is
 * signed with its SHA-256, so that the server notices damage on the way; what is read has the
 * asked length and is of one version of the object; whoever stored a digest must compare it.
 *
 * Thread-safe: one store serves any number of threads.
 */
#ifndef LS_STORAGE_BLOB_BLOB_H
#define LS_STORAGE_BLOB_BLOB_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LS_BLOB_KEY_BYTES_MAX = 1000, LS_BLOB_THREADS_MAX = 64, LS_BLOB_WHOLE_BYTES_MAX = 1 << 30 };

typedef struct ls_blob_store ls_blob_store;

typedef struct ls_blob_options {
    const char *endpoint; /* NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else AWS itself */
    const char *region;   /* NULL: that of the environment or profile, else us-east-1 */
    double patience_s;    /* 0: 120 */
    unsigned threads;     /* requests at once for one large file, 1 to LS_BLOB_THREADS_MAX; 0: 4 */
    /* when it is not 0, requests are given up within a second with LS_STOPPED; NULL: never */
    const _Atomic uint32_t *cancel;
    const struct ls_blob_world *world; /* borrowed; NULL: the real one (storage/blob/world.h) */
} ls_blob_options;

typedef struct ls_blob_entry {
    const char *key; /* of a folder: with a slash at its end */
    uint64_t bytes;
    double modified_s; /* seconds since 1970 */
    bool is_folder;    /* what a list that is not recursive shows in place of the keys below */
    char etag[80];     /* names the version, "" in a folder */
    /* ls_blob_stat: encrypted with a key of the server's user; the etag is then no hash */
    bool is_encrypted;
    /* ls_blob_stat: as stored by ls_blob_put_file; "" if not known */
    char sha256[LS_SHA256_HEX_BYTES];
} ls_blob_entry;

/*
 * address: see above. A folder need not exist. options: copied but for `cancel` and `world`; NULL:
 * defaults.
 * Nothing is sent yet, but credentials are looked for. Errors: LS_ERR_INVALID naming what is wrong
 * with the address, endpoint or region; those of ls_aws_credentials_find.
 */
LS_MUST_CHECK ls_status ls_blob_open(const char *address, const ls_blob_options *options,
                                     ls_blob_store **store_out);
void ls_blob_close(ls_blob_store *store); /* NULL is allowed */

/* Whether `address` begins with s3://. */
bool ls_blob_is_remote(const char *address);
/* The address the store was opened with, without slashes at its end. */
const char *ls_blob_address(const ls_blob_store *store);
/* LS_ERR_INVALID, naming the key and what is wrong with it. */
LS_MUST_CHECK ls_status ls_blob_check_key(const char *key);

/*
 * Errors of all functions below: LS_ERR_INVALID (key, signature refused, clock, region),
 * LS_ERR_NOT_FOUND (key, bucket), LS_ERR_FAILED (no rights, any other answer), LS_ERR_IO,
 * LS_ERR_TIMEOUT, LS_ERR_DISK, LS_ERR_DATA (an answer that is not what was asked for), LS_STOPPED
 * when cancelled.
 */

/* Stores `bytes` bytes, replacing what was there. */
LS_MUST_CHECK ls_status ls_blob_put(ls_blob_store *store, const char *key, const void *data, size_t bytes);

/* Stores them only if there is no such key. stored_out: false if there is one, also one that was
 * stored at the same moment; true if this call, or a try of it whose answer was
 * lost, stored it. */
LS_MUST_CHECK ls_status ls_blob_put_new(ls_blob_store *store, const char *key, const void *data, size_t bytes,
                                        bool *stored_out);

/* Reads all of a blob of at most `limit_bytes` (<= LS_BLOB_WHOLE_BYTES_MAX) into `arena`,
 * zero-terminated. */
LS_MUST_CHECK ls_status ls_blob_get(ls_blob_store *store, ls_arena *arena, const char *key,
                                    size_t limit_bytes, char **data_out, size_t *bytes_out);

/* Reads bytes [offset, offset + bytes) of the version `etag` ("": any). A blob that is shorter, or
 * has another version now, is LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_blob_read(ls_blob_store *store, const char *key, const char *etag, uint64_t offset,
                                     void *data, size_t bytes);

/* Reads all of the version that ls_blob_stat or ls_blob_list showed into the empty file `fd`, large
 * ones in parts, several at once. path: for messages. */
LS_MUST_CHECK ls_status ls_blob_read_file(ls_blob_store *store, const ls_blob_entry *entry, int fd,
                                          const char *path);

/* Size, time and version; the entry's key is `key`. */
LS_MUST_CHECK ls_status ls_blob_stat(ls_blob_store *store, const char *key, ls_blob_entry *entry_out);

/*
 * All keys that begin with `prefix` ("": all), sorted by bytes, in `arena`. Not recursive: keys
 * with a slash after the prefix are shown as one folder each. A folder or bucket without any is an
 * empty list; a bucket that does not exist is LS_ERR_NOT_FOUND.
 */
LS_MUST_CHECK ls_status ls_blob_list(ls_blob_store *store, ls_arena *arena, const char *prefix,
                                     bool recursive, ls_blob_entry **entries_out, size_t *count_out);

/* Removes a blob; one that is not there is LS_OK. */
LS_MUST_CHECK ls_status ls_blob_remove(ls_blob_store *store, const char *key);

/* Copies within the store, without the bytes passing through here. At most 5 GiB in S3. */
LS_MUST_CHECK ls_status ls_blob_copy(ls_blob_store *store, const char *from, const char *to);

/*
 * Stores an open file of `bytes` bytes. path: for messages. sha256: of its bytes, 64 digits; NULL:
 * not known. If the blob is there with that digest and length, nothing is sent. A large file goes
 * in parts, several at once; parts that an interrupted call has sent are found and not sent again.
 * sent_out: bytes sent by this call; may be NULL.
 */
LS_MUST_CHECK ls_status ls_blob_put_file(ls_blob_store *store, const char *key, int fd, const char *path,
                                         uint64_t bytes, const char *sha256, uint64_t *sent_out);

/* The same to the file `path`, which is whole or as it was. */
LS_MUST_CHECK ls_status ls_blob_get_file(ls_blob_store *store, const ls_blob_entry *entry, const char *path);

/* Gives up what interrupted calls of ls_blob_put_file left below `prefix`: parts that cost money
 * without being visible. */
LS_MUST_CHECK ls_status ls_blob_abandon(ls_blob_store *store, const char *prefix);

/* Calls `part` for parts 0 .. count - 1, on up to `threads` threads (<= LS_BLOB_THREADS_MAX); after
 * the first error no further part begins, and that error, with its text, is the result. */
LS_MUST_CHECK ls_status ls_blob_each_part(unsigned threads, uint64_t count,
                                          ls_status (*part)(void *context, uint64_t index), void *context);

#endif
