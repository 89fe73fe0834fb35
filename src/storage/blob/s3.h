// SPDX-License-Identifier: Apache-2.0
/* Between the files of the S3 store: one signed request, tried again until it is answered. */
#ifndef LS_STORAGE_BLOB_S3_H
#define LS_STORAGE_BLOB_S3_H

#include "env/http_client.h"
#include "storage/blob/blob_internal.h"
#include "storage/blob/sigv4.h"

typedef struct ls_s3_call {
    const char *method;
    const char *key;        /* NULL: the bucket itself */
    ls_sigv4_header *query; /* parameters; sorted by the call */
    size_t query_count;
    const ls_sigv4_header *headers; /* further ones, in lower case; signed */
    size_t header_count;            /* at most 4 */
    const void *body;               /* with body_bytes > 0 */
    size_t body_bytes;
    /* In place of `body`: gives bytes [offset, offset + bytes) of it, as often as asked, so that a
     * part of a file is never in memory as a whole. NULL: none. */
    ls_status (*give)(void *context, uint64_t offset, void *data, size_t bytes);
    /* Takes the body of an answer 200 or 206. It is called again from the beginning when a request
     * is tried again: `begin` then resets it. Either may be NULL. */
    ls_status (*take)(void *context, const ls_http_answer *head, const void *data, size_t bytes);
    void (*begin)(void *context);
    void *context;
    int also; /* a further code that is an answer, not an error (404, 412); 0: none */
} ls_s3_call;

/* of answer->wanted */
enum { LS_S3_ETAG, LS_S3_LENGTH, LS_S3_MODIFIED, LS_S3_SHA256, LS_S3_ENCRYPTION };

/*
 * Sends the request and tries again while it fails for a reason that passes. LS_OK: the code is
 * 200 to 206, or `also`. answer_out: one on the heap, it is large. tries_out: how often it was
 * sent; may be NULL. Errors: those of storage/blob/blob.h.
 */
LS_MUST_CHECK ls_status ls_s3_do(ls_blob_store *store, const ls_s3_call *call, ls_http_answer *answer_out,
                                 unsigned *tries_out);

/* The same for an answer whose body is XML: gives its elements to `element` (may be NULL), those of
 * an error with code 200 (which S3 sends when it fails late) excepted: that is tried again. */
LS_MUST_CHECK ls_status ls_s3_ask(ls_blob_store *store, const ls_s3_call *call,
                                  ls_status (*element)(void *context, const char *name, const char *text),
                                  void *context);

const char *ls_s3_bucket(const ls_blob_store *store);

/* storage/blob/s3_upload.c: members of the table. */
LS_MUST_CHECK ls_status ls_s3_put_file(ls_blob_store *store, const char *key, int fd, const char *path,
                                       uint64_t bytes, const char *sha256, uint64_t *sent_out);
LS_MUST_CHECK ls_status ls_s3_abandon(ls_blob_store *store, const char *prefix);
/* storage/blob/s3_calls.c */
LS_MUST_CHECK ls_status ls_s3_stat(ls_blob_store *store, const char *key, ls_blob_entry *entry_out);
extern const ls_blob_calls ls_s3_calls;
void ls_s3_close(ls_blob_store *store);

#endif
