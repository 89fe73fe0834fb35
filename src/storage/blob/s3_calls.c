// SPDX-License-Identifier: Apache-2.0
/* The calls of a store over S3, except those that send files (s3_upload.c). */
#include "storage/blob/s3.h"

#include "base/assert.h"
#include "storage/blob/credentials.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static ls_status new_answer(ls_http_answer **answer_out)
{
    *answer_out = calloc(1, sizeof **answer_out);
    return *answer_out ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for an answer of S3");
}

/* ---- reading ---- */

typedef struct reading {
    const ls_blob_sink *sink;
    size_t bytes, got;
    char range[64]; /* "bytes 0-9/", which Content-Range must begin with */
    const char *key;
} reading;

static void begin_read(void *context)
{
    ((reading *)context)->got = 0;
}

static ls_status take_read(void *context, const ls_http_answer *head, const void *data, size_t bytes)
{
    reading *r = context;
    if (head->code != 206 || strncmp(head->content_range, r->range, strlen(r->range)) != 0) {
        return ls_fail(LS_ERR_DATA,
                       "the answer for %s has a different range than requested: '%.60s' instead of "
                       "'%s'",
                       r->key, head->content_range, r->range);
    }
    if (bytes > r->bytes - r->got) {
        return ls_fail(LS_ERR_DATA, "the answer for %s is longer than the %zu bytes asked for", r->key,
                       r->bytes);
    }
    LS_TRY(ls_blob_sink_put(r->sink, r->got, data, bytes));
    r->got += bytes;
    return LS_OK;
}

static ls_status s3_read(ls_blob_store *store, const char *key, const char *etag, uint64_t offset,
                         size_t bytes, const ls_blob_sink *sink)
{
    char range[80];
    reading r = {.sink = sink, .bytes = bytes, .key = key};
    const uint64_t last = offset + bytes - 1;
    snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, offset, last);
    snprintf(r.range, sizeof r.range, "bytes %" PRIu64 "-%" PRIu64 "/", offset, last);
    const ls_sigv4_header headers[] = {{"range", range}, {"if-match", etag}};
    const ls_s3_call call = {.method = "GET",
                             .key = key,
                             .headers = headers,
                             .header_count = *etag ? 2 : 1,
                             .take = take_read,
                             .begin = begin_read,
                             .context = &r};
    ls_http_answer *answer = NULL;
    LS_TRY(new_answer(&answer));
    ls_status status = ls_s3_do(store, &call, answer, NULL);
    if (status == LS_OK && r.got != bytes) {
        status = ls_fail(LS_ERR_DATA, "the answer for %s has %zu bytes instead of %zu", key, r.got, bytes);
    }
    free(answer);
    return status;
}

static double http_time(const char *text)
{
    struct tm parts = {0};
    return strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &parts) ? (double)timegm(&parts) : 0.0;
}

ls_status ls_s3_stat(ls_blob_store *store, const char *key, ls_blob_entry *entry_out)
{
    const ls_s3_call call = {.method = "HEAD", .key = key};
    ls_http_answer *answer = NULL;
    LS_TRY(new_answer(&answer));
    ls_status status = ls_s3_do(store, &call, answer, NULL);
    if (status == LS_OK) {
        ls_blob_entry entry = {.modified_s = http_time(answer->wanted[LS_S3_MODIFIED])};
        char *rest = NULL;
        entry.bytes = strtoull(answer->wanted[LS_S3_LENGTH], &rest, 10);
        snprintf(entry.etag, sizeof entry.etag, "%.79s", answer->wanted[LS_S3_ETAG]);
        snprintf(entry.sha256, sizeof entry.sha256, "%.64s", answer->wanted[LS_S3_SHA256]);
        entry.is_encrypted = strstr(answer->wanted[LS_S3_ENCRYPTION], "kms") != NULL;
        if (rest == answer->wanted[LS_S3_LENGTH] || *rest || entry.bytes > INT64_MAX) {
            status = ls_fail(LS_ERR_DATA, "the answer for %s has no Content-Length", key);
        } else {
            *entry_out = entry;
        }
    }
    free(answer);
    return status;
}

/* ---- writing ---- */

/* Whether the blob is exactly this. */
static bool equals(ls_blob_store *store, const char *key, const void *data, size_t bytes)
{
    ls_blob_entry entry;
    void *there = malloc(bytes + 1);
    const bool same =
        there && ls_s3_stat(store, key, &entry) == LS_OK && entry.bytes == bytes &&
        (bytes == 0 || s3_read(store, key, entry.etag, 0, bytes, &(ls_blob_sink){.data = there}) == LS_OK) &&
        memcmp(there, data, bytes) == 0;
    free(there);
    return same;
}

static ls_status s3_put(ls_blob_store *store, const char *key, const void *data, size_t bytes,
                        bool *stored_out)
{
    const ls_sigv4_header only_new = {"if-none-match", "*"};
    const ls_s3_call call = {.method = "PUT",
                             .key = key,
                             .headers = &only_new,
                             .header_count = stored_out ? 1 : 0,
                             .body = data,
                             .body_bytes = bytes,
                             .also = stored_out ? 412 : 0};
    ls_http_answer *answer = NULL;
    unsigned tries = 0;
    LS_TRY(new_answer(&answer));
    const ls_status status = ls_s3_do(store, &call, answer, &tries);
    if (status == LS_OK && stored_out) {
        /* A try whose answer was lost may be the one that stored it. */
        *stored_out = answer->code != 412 || (tries > 1 && equals(store, key, data, bytes));
    }
    free(answer);
    return status;
}

static ls_status s3_remove(ls_blob_store *store, const char *key)
{
    const ls_s3_call call = {.method = "DELETE", .key = key, .also = 404};
    ls_http_answer *answer = NULL;
    LS_TRY(new_answer(&answer));
    ls_status status = ls_s3_do(store, &call, answer, NULL);
    if (status == LS_OK && answer->code == 404 && strstr(answer->body, "<Code>NoSuchBucket</Code>")) {
        status = ls_fail(LS_ERR_NOT_FOUND, "there is no bucket %s", ls_s3_bucket(store));
    }
    free(answer);
    return status;
}

static ls_status s3_copy(ls_blob_store *store, const char *from, const char *to)
{
    ls_text source = {0};
    ls_text_printf(&source, "/%s/", ls_s3_bucket(store));
    ls_sigv4_append_encoded(&source, from, true);
    const ls_sigv4_header header = {"x-amz-copy-source", ls_text_string(&source)};
    const ls_s3_call call = {.method = "PUT", .key = to, .headers = &header, .header_count = 1};
    const ls_status status = ls_s3_ask(store, &call, NULL, NULL);
    ls_text_release(&source);
    return status;
}

/* ---- lists ---- */

typedef struct listing {
    ls_arena *arena;
    ls_blob_entries list;
    ls_blob_entry entry; /* being read */
    const char *prefix;  /* of a folder, being read */
    const char *next;    /* where the next answer goes on; NULL: it was the last */
    bool is_truncated;
} listing;

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Keys come encoded, because XML has no place for all their characters. */
static char *decoded(ls_arena *arena, const char *text)
{
    char *out = ls_arena_strdup(arena, text), *to = out;
    for (const char *at = out; *at; at++) {
        const int high = *at == '%' ? hex_digit(at[1]) : -1, low = high >= 0 ? hex_digit(at[2]) : -1;
        *to++ = low >= 0 ? (char)(16 * high + low) : *at == '+' ? ' ' : *at;
        at += low >= 0 ? 2 : 0;
    }
    *to = '\0';
    return out;
}

static ls_status take_listed(void *context, const char *name, const char *text)
{
    listing *l = context;
    if (strcmp(name, "Key") == 0) {
        l->entry.key = decoded(l->arena, text);
    } else if (strcmp(name, "Size") == 0) {
        l->entry.bytes = strtoull(text, NULL, 10);
    } else if (strcmp(name, "LastModified") == 0) {
        l->entry.modified_s = ls_aws_time_parse(text);
    } else if (strcmp(name, "ETag") == 0) {
        snprintf(l->entry.etag, sizeof l->entry.etag, "%.79s", text);
    } else if (strcmp(name, "Contents") == 0 && l->entry.key) {
        ls_blob_entries_add(&l->list, &l->entry);
        l->entry = (ls_blob_entry){0};
    } else if (strcmp(name, "Prefix") == 0) {
        l->prefix = decoded(l->arena, text);
    } else if (strcmp(name, "CommonPrefixes") == 0 && l->prefix) {
        ls_blob_entries_add(&l->list, &(ls_blob_entry){.key = l->prefix, .is_folder = true});
    } else if (strcmp(name, "IsTruncated") == 0) {
        l->is_truncated = strcmp(text, "true") == 0;
    } else if (strcmp(name, "NextContinuationToken") == 0) {
        l->next = ls_arena_strdup(l->arena, text);
    }
    return LS_OK;
}

static ls_status list_once(ls_blob_store *store, listing *l, const char *prefix, bool recursive)
{
    ls_sigv4_header query[5] = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", prefix}};
    size_t count = 3;
    if (!recursive) {
        query[count++] = (ls_sigv4_header){"delimiter", "/"};
    }
    if (l->next) {
        query[count++] = (ls_sigv4_header){"continuation-token", l->next};
    }
    const ls_s3_call call = {.method = "GET", .query = query, .query_count = count};
    const char *before = l->next;
    l->is_truncated = false;
    l->next = NULL;
    LS_TRY(ls_s3_ask(store, &call, take_listed, l));
    if (l->is_truncated && (!l->next || (before && strcmp(before, l->next) == 0))) {
        return ls_fail(LS_ERR_DATA, "the list of s3://%s is truncated and %s", ls_s3_bucket(store),
                       l->next ? "repeats itself" : "has no continuation token");
    }
    return LS_OK;
}

static ls_status s3_list(ls_blob_store *store, ls_arena *arena, const char *prefix, bool recursive,
                         ls_blob_entry **entries_out, size_t *count_out)
{
    listing l = {.arena = arena};
    ls_status status = LS_OK;
    do {
        status = list_once(store, &l, prefix, recursive);
    } while (status == LS_OK && l.next && l.is_truncated);
    for (size_t i = 0; status == LS_OK && i < l.list.count; i++) {
        if (strncmp(l.list.entries[i].key, prefix, strlen(prefix)) != 0) {
            status = ls_fail(LS_ERR_DATA, "the list of s3://%s has a key that does not begin with '%s'",
                             ls_s3_bucket(store), prefix);
        }
    }
    if (status != LS_OK) {
        free(l.list.entries);
        return status;
    }
    ls_blob_entries_take(&l.list, arena, entries_out, count_out);
    return LS_OK;
}

const ls_blob_calls ls_s3_calls = {.put = s3_put,
                                   .read = s3_read,
                                   .stat = ls_s3_stat,
                                   .list = s3_list,
                                   .remove = s3_remove,
                                   .copy = s3_copy,
                                   .put_file = ls_s3_put_file,
                                   .abandon = ls_s3_abandon,
                                   .close = ls_s3_close};
