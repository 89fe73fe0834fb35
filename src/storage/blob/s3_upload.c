// SPDX-License-Identifier: Apache-2.0
/*
 * Files to S3. A small one is one request. A large one goes in parts, several at once:
 *
 *   find an unfinished upload of the key, or begin one
 *   list its parts; those with the length and MD5 of the file's stay
 *   send the others
 *   complete: the object appears
 *
 * So an interrupted upload goes on where it stopped, without any record on this side. If the server
 * makes its ETags in another way (encryption with keys of its own), all parts are sent again.
 */
#include "storage/blob/s3.h"

#include "base/assert.h"
#include "base/file.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    uint64_t bytes; /* as listed by the server; 0: it has none */
    char etag[80];
} part;

typedef struct upload {
    ls_blob_store *store;
    const char *key, *path;
    int fd;
    uint64_t bytes, part_bytes;
    size_t count;
    part *parts;
    const char *id;
    _Atomic uint64_t sent;
    /* while lists are read */
    ls_arena arena;
    uint64_t number, next_number;
    part listed;
    bool is_truncated;
} upload;

/* ---- parts ---- */

/* Bytes of the file from `from` on: the body of a request. */
typedef struct piece {
    const upload *u;
    uint64_t from;
    size_t bytes;
} piece;

static ls_status give_piece(void *context, uint64_t offset, void *data, size_t bytes)
{
    const piece *p = context;
    return ls_file_pread_all(p->u->fd, p->u->path, data, bytes, p->from + offset);
}

/* Whether the bytes have this MD5. False if they can't be read: sending them tells why. */
static bool md5_matches(const piece *p, const char *etag)
{
    unsigned char digest[EVP_MAX_MD_SIZE], data[64 << 10];
    unsigned int count = 0;
    char hex[2 * EVP_MAX_MD_SIZE + 1] = "";
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool good = hash && EVP_DigestInit_ex(hash, EVP_md5(), NULL) == 1;
    for (size_t at = 0; good && at < p->bytes; at += sizeof data) {
        const size_t bytes = p->bytes - at < sizeof data ? p->bytes - at : sizeof data;
        good = give_piece((void *)p, at, data, bytes) == LS_OK && EVP_DigestUpdate(hash, data, bytes) == 1;
    }
    good = good && EVP_DigestFinal_ex(hash, digest, &count) == 1;
    EVP_MD_CTX_free(hash);
    for (unsigned i = 0; i < count; i++) {
        snprintf(hex + 2 * (size_t)i, 3, "%02x", digest[i]);
    }
    const char *begin = etag + (etag[0] == '"');
    return good && strncmp(begin, hex, strlen(hex)) == 0 && strcspn(begin, "\"") == strlen(hex);
}

/* Sends the piece as the body of `call`, and adds its bytes to those sent. */
static ls_status put_piece(upload *u, ls_s3_call call, piece *p, ls_http_answer *answer)
{
    call.method = "PUT";
    call.key = u->key;
    call.give = give_piece;
    call.context = p;
    call.body_bytes = p->bytes;
    LS_TRY(answer ? ls_s3_do(u->store, &call, answer, NULL)
                  : ls_fail(LS_ERR_MEMORY, "no memory for an answer of S3"));
    atomic_fetch_add(&u->sent, p->bytes);
    return LS_OK;
}

static ls_status put_part(upload *u, uint64_t index, piece *p)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, index + 1);
    ls_sigv4_header query[] = {{"partNumber", number}, {"uploadId", u->id}};
    ls_http_answer *answer = calloc(1, sizeof *answer);
    ls_status status = put_piece(u, (ls_s3_call){.query = query, .query_count = 2}, p, answer);
    if (status == LS_OK && !answer->wanted[LS_S3_ETAG][0]) {
        status = ls_fail(LS_ERR_DATA, "the answer for part %s of %s has no ETag", number, u->key);
    } else if (status == LS_OK) {
        snprintf(u->parts[index].etag, sizeof u->parts[index].etag, "%.79s", answer->wanted[LS_S3_ETAG]);
    }
    free(answer);
    return status;
}

static ls_status do_part(void *context, uint64_t index)
{
    upload *u = context;
    const uint64_t from = index * u->part_bytes, left = u->bytes - from;
    piece p = {u, from, (size_t)(left < u->part_bytes ? left : u->part_bytes)};
    const part *there = &u->parts[index];
    return there->bytes == p.bytes && md5_matches(&p, there->etag) ? LS_OK : put_part(u, index, &p);
}

/* ---- what an earlier call left ---- */

/* Unfinished uploads below a prefix. */
typedef struct uploads {
    ls_arena arena;
    const char **keys, **ids, *key, *id;
    size_t count;
} uploads;

enum { UPLOADS_MAX = 1000 }; /* as many as one answer lists */

static ls_status take_upload(void *context, const char *name, const char *text)
{
    uploads *l = context;
    if (strcmp(name, "Key") == 0) {
        l->key = ls_arena_strdup(&l->arena, text);
    } else if (strcmp(name, "UploadId") == 0) {
        l->id = ls_arena_strdup(&l->arena, text);
    } else if (strcmp(name, "Upload") == 0 && l->key && l->id && l->count < UPLOADS_MAX) {
        l->keys[l->count] = l->key;
        l->ids[l->count++] = l->id;
    }
    return LS_OK;
}

/* The caller releases the arena of the list, also after an error. */
static ls_status list_uploads(ls_blob_store *store, const char *prefix, uploads *list)
{
    ls_sigv4_header query[] = {{"uploads", ""}, {"prefix", prefix}};
    const ls_s3_call call = {.method = "GET", .query = query, .query_count = 2};
    list->keys = ls_arena_new(&list->arena, const char *, UPLOADS_MAX);
    list->ids = ls_arena_new(&list->arena, const char *, UPLOADS_MAX);
    return ls_s3_ask(store, &call, take_upload, list);
}

static ls_status find_upload(upload *u)
{
    uploads list = {0};
    const ls_status status = list_uploads(u->store, u->key, &list);
    for (size_t i = 0; i < list.count; i++) {
        u->id = strcmp(list.keys[i], u->key) == 0 ? ls_arena_strdup(&u->arena, list.ids[i]) : u->id;
    }
    ls_arena_release(&list.arena);
    return status;
}

static ls_status take_part(void *context, const char *name, const char *text)
{
    upload *u = context;
    if (strcmp(name, "PartNumber") == 0) {
        u->number = strtoull(text, NULL, 10);
    } else if (strcmp(name, "ETag") == 0) {
        snprintf(u->listed.etag, sizeof u->listed.etag, "%.79s", text);
    } else if (strcmp(name, "Size") == 0) {
        u->listed.bytes = strtoull(text, NULL, 10);
    } else if (strcmp(name, "Part") == 0) {
        if (u->number >= 1 && u->number <= u->count) {
            u->parts[u->number - 1] = u->listed;
        }
        u->listed = (part){0};
    } else if (strcmp(name, "IsTruncated") == 0) {
        u->is_truncated = strcmp(text, "true") == 0;
    } else if (strcmp(name, "NextPartNumberMarker") == 0) {
        u->next_number = strtoull(text, NULL, 10);
    }
    return LS_OK;
}

static ls_status list_parts(upload *u)
{
    uint64_t from = 0;
    do {
        char marker[24];
        snprintf(marker, sizeof marker, "%" PRIu64, from);
        ls_sigv4_header query[] = {{"uploadId", u->id}, {"part-number-marker", marker}};
        const ls_s3_call call = {.method = "GET", .key = u->key, .query = query, .query_count = 2};
        u->is_truncated = false;
        LS_TRY(ls_s3_ask(u->store, &call, take_part, u));
        if (u->is_truncated && u->next_number <= from) {
            return ls_fail(LS_ERR_DATA, "the list of the parts of %s repeats itself", u->key);
        }
        from = u->next_number;
    } while (u->is_truncated);
    return LS_OK;
}

/* ---- beginning and ending ---- */

static ls_status take_begun(void *context, const char *name, const char *text)
{
    upload *u = context;
    if (strcmp(name, "UploadId") == 0) {
        u->id = ls_arena_strdup(&u->arena, text);
    }
    return LS_OK;
}

static ls_status begin(upload *u, const char *sha256)
{
    ls_sigv4_header query[] = {{"uploads", ""}};
    const ls_sigv4_header header = {"x-amz-meta-sha256", sha256};
    const ls_s3_call call = {.method = "POST",
                             .key = u->key,
                             .query = query,
                             .query_count = 1,
                             .headers = &header,
                             .header_count = sha256 ? 1 : 0};
    LS_TRY(ls_s3_ask(u->store, &call, take_begun, u));
    return u->id ? LS_OK : ls_fail(LS_ERR_DATA, "the answer for %s does not name the upload", u->key);
}

static ls_status complete(upload *u)
{
    ls_text body = {0};
    ls_text_append(&body, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < u->count; i++) {
        ls_text_printf(&body, "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
        ls_text_append_escaped(&body, u->parts[i].etag);
        ls_text_append(&body, "</ETag></Part>");
    }
    ls_text_append(&body, "</CompleteMultipartUpload>");
    ls_sigv4_header query[] = {{"uploadId", u->id}};
    const ls_s3_call call = {.method = "POST",
                             .key = u->key,
                             .query = query,
                             .query_count = 1,
                             .body = body.data,
                             .body_bytes = body.bytes};
    ls_status status = ls_s3_ask(u->store, &call, NULL, NULL);
    ls_text_release(&body);
    if (status == LS_ERR_NOT_FOUND) {
        /* The answer of an earlier try was lost: the upload is gone because it is complete. */
        ls_blob_entry entry;
        status = ls_s3_stat(u->store, u->key, &entry);
        if (status == LS_OK && entry.bytes != u->bytes) {
            status =
                ls_fail(LS_ERR_DATA, "the upload of %s was aborted by another process; try again", u->key);
        }
    }
    return status;
}

static ls_status send_parts(upload *u, const char *sha256)
{
    LS_TRY(find_upload(u));
    const bool goes_on = u->id != NULL;
    if (goes_on) {
        LS_TRY(list_parts(u));
    } else {
        LS_TRY(begin(u, sha256));
    }
    LS_TRY(ls_blob_each_part(u->store->threads, u->count, do_part, u));
    LS_TRY(complete(u));
    ls_blob_entry there;
    if (!goes_on || !sha256) {
        return LS_OK;
    }
    LS_TRY(ls_s3_stat(u->store, u->key, &there));
    if (strcmp(there.sha256, sha256) == 0) {
        return LS_OK;
    }
    /* The upload was begun for another content of this name, whose digest it carries: once more. */
    memset(u->parts, 0, u->count * sizeof *u->parts);
    LS_TRY(begin(u, sha256));
    LS_TRY(ls_blob_each_part(u->store->threads, u->count, do_part, u));
    return complete(u);
}

static ls_status send_whole(upload *u, const char *sha256)
{
    piece p = {u, 0, (size_t)u->bytes};
    const ls_sigv4_header header = {"x-amz-meta-sha256", sha256};
    ls_http_answer *answer = calloc(1, sizeof *answer);
    const ls_status status =
        put_piece(u, (ls_s3_call){.headers = &header, .header_count = sha256 ? 1 : 0}, &p, answer);
    free(answer);
    return status;
}

ls_status ls_s3_put_file(ls_blob_store *store, const char *key, int fd, const char *path, uint64_t bytes,
                         const char *sha256, uint64_t *sent_out)
{
    ls_blob_entry there;
    if (sha256) {
        const ls_status status = ls_s3_stat(store, key, &there);
        if (status == LS_OK && there.bytes == bytes && strcmp(there.sha256, sha256) == 0) {
            return LS_OK;
        }
        if (status != LS_OK && status != LS_ERR_NOT_FOUND) {
            return status;
        }
    }
    upload u = {.store = store,
                .key = key,
                .path = path,
                .fd = fd,
                .bytes = bytes,
                .part_bytes = ls_blob_part_bytes(bytes)};
    u.count = (size_t)((bytes + u.part_bytes - 1) / u.part_bytes);
    u.parts = calloc(u.count + 1, sizeof *u.parts);
    LS_ASSERT(u.parts != NULL);
    const ls_status status = u.count > 1 ? send_parts(&u, sha256) : send_whole(&u, sha256);
    *sent_out = atomic_load(&u.sent);
    free(u.parts);
    ls_arena_release(&u.arena);
    return status;
}

/* ---- giving up ---- */

ls_status ls_s3_abandon(ls_blob_store *store, const char *prefix)
{
    uploads list = {0};
    ls_http_answer *answer = calloc(1, sizeof *answer);
    ls_status status =
        answer ? list_uploads(store, prefix, &list) : ls_fail(LS_ERR_MEMORY, "no memory for S3");
    for (size_t i = 0; status == LS_OK && i < list.count; i++) {
        ls_sigv4_header id[] = {{"uploadId", list.ids[i]}};
        const ls_s3_call remove = {
            .method = "DELETE", .key = list.keys[i], .query = id, .query_count = 1, .also = 404};
        status = ls_s3_do(store, &remove, answer, NULL);
    }
    free(answer);
    ls_arena_release(&list.arena);
    return status;
}
