// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated S3 behind storage/blob/world.h: one bucket in memory, a clock that only moves when
 * something waits, and faults drawn from a seed. It has what the real ones promise (whole objects,
 * if-none-match, parts) and does what networks do: requests that never arrive, arrive twice or
 * late, answers that are lost, cut, short, of another range, or errors, also after a 200.
 */
#ifndef LS_TESTS_STORAGE_BLOB_S3_WORLD_H
#define LS_TESTS_STORAGE_BLOB_S3_WORLD_H

#include "test.h"

#include "base/hash.h"
#include "base/text.h"
#include "storage/blob/blob.h"
#include "storage/blob/world.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIM_SECRET "never-shown-secret/+1"
#define SIM_BUCKET "s3://bucket"
enum { SIM_KEYS_MAX = 64, SIM_PARTS_MAX = 8, SIM_LATE_MAX = 4 };

typedef struct sim_bytes {
    unsigned char *data;
    size_t bytes;
    char etag[40];
} sim_bytes;

typedef struct sim_object {
    char key[160], sha256[LS_SHA256_HEX_BYTES], upload[16]; /* upload: its id; "": it is an object */
    sim_bytes body, parts[SIM_PARTS_MAX];
} sim_object;

typedef struct sim_request {
    char method[8], path[160], query[512], range[64], match[48], sha256[LS_SHA256_HEX_BYTES], source[160];
    bool only_new;
    unsigned char *body;
    size_t body_bytes;
} sim_request;

typedef struct sim_s3 {
    struct ls_blob_world world;
    sim_object objects[SIM_KEYS_MAX];
    size_t count;
    uint64_t random;
    double now_s;
    unsigned percent;  /* of requests that go wrong */
    bool is_late;      /* requests may be executed after later ones */
    bool refuses;      /* 403 among the faults */
    uint64_t requests; /* so far */
    uint64_t dies_at;  /* from this request on nothing is answered: the process is gone; 0: never */
    bool dies_after;   /* that one is still executed */
    unsigned uploads;
    sim_request late[SIM_LATE_MAX];
    size_t late_count;
} sim_s3;

static inline uint32_t sim_draw(void *context)
{
    sim_s3 *s = context;
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (uint32_t)(s->random >> 32);
}

static inline double sim_now(void *context)
{
    return ((sim_s3 *)context)->now_s;
}

static inline void sim_sleep(void *context, double seconds)
{
    ((sim_s3 *)context)->now_s += seconds;
}

/* ---- objects ---- */

static inline void sim_set(sim_bytes *to, const void *data, size_t bytes)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    free(to->data);
    to->data = malloc(bytes + 1);
    assert_non_null(to->data);
    memcpy(to->data, data ? data : "", bytes);
    to->bytes = bytes;
    assert_int_equal(EVP_Digest(to->data, bytes, digest, NULL, EVP_md5(), NULL), 1);
    to->etag[0] = '"';
    for (int i = 0; i < 16; i++) {
        snprintf(to->etag + 1 + 2 * i, 3, "%02x", digest[i]);
    }
    strcpy(to->etag + 33, "\"");
}

static inline sim_object *sim_find(sim_s3 *s, const char *key, const char *upload)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->objects[i].key, key) == 0 && strcmp(s->objects[i].upload, upload) == 0) {
            return &s->objects[i];
        }
    }
    return NULL;
}

static inline void sim_drop(sim_s3 *s, sim_object *object)
{
    free(object->body.data);
    for (int i = 0; i < SIM_PARTS_MAX; i++) {
        free(object->parts[i].data);
    }
    *object = s->objects[--s->count];
}

static inline sim_object *sim_make(sim_s3 *s, const char *key, const char *upload)
{
    sim_object *object = sim_find(s, key, upload);
    if (!object) {
        assert_true(s->count < SIM_KEYS_MAX);
        object = &s->objects[s->count++];
        *object = (sim_object){0};
        snprintf(object->key, sizeof object->key, "%s", key);
        snprintf(object->upload, sizeof object->upload, "%s", upload);
    }
    return object;
}

/* ---- requests ---- */

static inline void sim_decode(const char *text, size_t bytes, char *out, size_t room)
{
    size_t at = 0;
    for (size_t i = 0; i < bytes && at + 1 < room; i++) {
        if (text[i] == '%' && i + 2 < bytes + 1) {
            const char hex[3] = {text[i + 1], text[i + 2], '\0'};
            out[at++] = (char)strtoul(hex, NULL, 16);
            i += 2;
        } else {
            out[at++] = text[i];
        }
    }
    out[at] = '\0';
}

static inline bool sim_parameter(const sim_request *r, const char *name, char *out, size_t room)
{
    for (const char *at = r->query; *at;) {
        const size_t length = strcspn(at, "&"), name_bytes = strcspn(at, "=&");
        if (name_bytes == strlen(name) && strncmp(at, name, name_bytes) == 0) {
            const size_t skipped = name_bytes < length ? name_bytes + 1 : length;
            sim_decode(at + skipped, length - skipped, out, room);
            return true;
        }
        at += length + (at[length] == '&');
    }
    return false;
}

static inline sim_request sim_parse(const ls_http_request *request)
{
    sim_request r = {0};
    const char *path = strstr(request->url, "/bucket"), *query = strchr(path, '?');
    assert_non_null(path);
    path += strlen("/bucket");
    path += *path == '/';
    snprintf(r.method, sizeof r.method, "%s", request->method);
    sim_decode(path, query ? (size_t)(query - path) : strlen(path), r.path, sizeof r.path);
    snprintf(r.query, sizeof r.query, "%s", query ? query + 1 : "");
    for (size_t i = 0; request->headers[i]; i++) {
        const char *h = request->headers[i];
        assert_null(strstr(h, SIM_SECRET));
        if (strncmp(h, "range: bytes=", 13) == 0) {
            snprintf(r.range, sizeof r.range, "%s", h + 13);
        } else if (strncmp(h, "if-match: ", 10) == 0) {
            snprintf(r.match, sizeof r.match, "%s", h + 10);
        } else if (strncmp(h, "x-amz-meta-sha256: ", 19) == 0) {
            snprintf(r.sha256, sizeof r.sha256, "%s", h + 19);
        } else if (strncmp(h, "x-amz-copy-source: /bucket/", 27) == 0) {
            sim_decode(h + 27, strlen(h + 27), r.source, sizeof r.source);
        }
        r.only_new = r.only_new || strcmp(h, "if-none-match: *") == 0;
    }
    assert_null(strstr(request->url, SIM_SECRET));
    r.body_bytes = request->body_bytes;
    r.body = malloc(r.body_bytes + 1);
    assert_non_null(r.body);
    if (request->give) {
        assert_int_equal(request->give(request->context, 0, r.body, r.body_bytes), LS_OK);
    } else {
        memcpy(r.body, request->body ? request->body : "", r.body_bytes);
    }
    return r;
}

/* ---- answers ---- */

typedef struct sim_answer {
    int code;
    ls_text body;
    char etag[48], length[24], sha256[LS_SHA256_HEX_BYTES], range[96];
} sim_answer;

static inline void sim_error(sim_answer *a, int code, const char *name)
{
    a->code = code;
    ls_text_clear(&a->body);
    ls_text_printf(&a->body, "<Error><Code>%s</Code><Message>simulated</Message></Error>", name);
}

static inline void sim_list(sim_s3 *s, const sim_request *r, sim_answer *a)
{
    char prefix[200] = "", after[200] = "", text[8];
    sim_object *sorted[SIM_KEYS_MAX];
    size_t count = 0, shown = 0;
    const bool of_uploads = sim_parameter(r, "uploads", text, sizeof text);
    const bool by_folder = sim_parameter(r, "delimiter", text, sizeof text);
    sim_parameter(r, "prefix", prefix, sizeof prefix);
    sim_parameter(r, "continuation-token", after, sizeof after);
    for (size_t i = 0; i < s->count; i++) {
        sim_object *o = &s->objects[i];
        if ((o->upload[0] != '\0') == of_uploads && strncmp(o->key, prefix, strlen(prefix)) == 0 &&
            strcmp(o->key, after) > 0) {
            size_t at = count++;
            for (; at > 0 && strcmp(sorted[at - 1]->key, o->key) > 0; at--) {
                sorted[at] = sorted[at - 1];
            }
            sorted[at] = o;
        }
    }
    ls_text_append(&a->body, "<Result>");
    for (; shown < count && (of_uploads || by_folder || shown < 3); shown++) { /* few: lists go on */
        const sim_object *o = sorted[shown];
        const char *slash = by_folder ? strchr(o->key + strlen(prefix), '/') : NULL;
        if (slash) {
            const int bytes = (int)(slash + 1 - o->key);
            if (shown == 0 || strncmp(sorted[shown - 1]->key, o->key, (size_t)bytes) != 0) {
                ls_text_printf(&a->body, "<CommonPrefixes><Prefix>%.*s</Prefix></CommonPrefixes>", bytes,
                               o->key);
            }
        } else if (of_uploads) {
            ls_text_printf(&a->body, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", o->key,
                           o->upload);
        } else {
            ls_text_append(&a->body, "<Contents><Key>");
            for (const unsigned char *c = (const unsigned char *)o->key; *c; c++) {
                ls_text_printf(&a->body, isalnum(*c) || *c == '/' ? "%c" : "%%%02X", *c);
            }
            ls_text_printf(&a->body, "</Key><Size>%zu</Size></Contents>", o->body.bytes);
        }
    }
    if (shown < count) {
        ls_text_printf(&a->body,
                       "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>",
                       sorted[shown - 1]->key);
    }
    ls_text_append(&a->body, "</Result>");
}

static inline void sim_complete(sim_s3 *s, sim_object *upload, sim_answer *a)
{
    sim_object *object = sim_make(s, upload->key, "");
    size_t bytes = 0, at = 0;
    for (int i = 0; i < SIM_PARTS_MAX; i++) {
        bytes += upload->parts[i].bytes;
    }
    unsigned char *all = malloc(bytes + 1);
    assert_non_null(all);
    for (int i = 0; i < SIM_PARTS_MAX; i++) {
        memcpy(all + at, upload->parts[i].data ? upload->parts[i].data : all, upload->parts[i].bytes);
        at += upload->parts[i].bytes;
    }
    sim_set(&object->body, all, bytes);
    memcpy(object->sha256, upload->sha256, sizeof object->sha256);
    free(all);
    sim_drop(s, upload);
    ls_text_append(&a->body, "<Result><ETag>x</ETag></Result>");
}

static inline void sim_multipart(sim_s3 *s, const sim_request *r, sim_answer *a)
{
    char id[16] = "", number[16] = "0", text[8];
    if (sim_parameter(r, "uploads", text, sizeof text)) {
        snprintf(id, sizeof id, "u%u", ++s->uploads);
        memcpy(sim_make(s, r->path, id)->sha256, r->sha256, sizeof r->sha256);
        ls_text_printf(&a->body, "<Result><UploadId>%s</UploadId></Result>", id);
        return;
    }
    sim_parameter(r, "uploadId", id, sizeof id);
    sim_object *upload = sim_find(s, r->path, id);
    if (!upload) {
        sim_error(a, 404, "NoSuchUpload");
    } else if (strcmp(r->method, "PUT") == 0) {
        sim_parameter(r, "partNumber", number, sizeof number);
        const unsigned long index = strtoul(number, NULL, 10) - 1;
        assert_true(index < SIM_PARTS_MAX);
        sim_set(&upload->parts[index], r->body, r->body_bytes);
        snprintf(a->etag, sizeof a->etag, "%s", upload->parts[index].etag);
    } else if (strcmp(r->method, "GET") == 0) {
        ls_text_append(&a->body, "<Result>");
        for (int i = 0; i < SIM_PARTS_MAX; i++) {
            if (upload->parts[i].data) {
                ls_text_printf(&a->body,
                               "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%zu</Size></Part>",
                               i + 1, upload->parts[i].etag, upload->parts[i].bytes);
            }
        }
        ls_text_append(&a->body, "</Result>");
    } else if (strcmp(r->method, "DELETE") == 0) {
        sim_drop(s, upload);
        a->code = 204;
    } else {
        sim_complete(s, upload, a);
    }
}

static inline void sim_get(sim_s3 *s, const sim_request *r, sim_answer *a)
{
    const sim_object *o = sim_find(s, r->path, "");
    unsigned long long from = 0, to = 0;
    if (!o) {
        sim_error(a, 404, "NoSuchKey");
    } else if (r->match[0] && strcmp(r->match, o->body.etag) != 0) {
        sim_error(a, 412, "PreconditionFailed");
    } else {
        snprintf(a->etag, sizeof a->etag, "%s", o->body.etag);
        snprintf(a->length, sizeof a->length, "%zu", o->body.bytes);
        memcpy(a->sha256, o->sha256, sizeof a->sha256);
        if (strcmp(r->method, "GET") == 0) {
            assert_int_equal(sscanf(r->range, "%llu-%llu", &from, &to), 2);
            if (from >= o->body.bytes) {
                sim_error(a, 416, "InvalidRange");
                return;
            }
            to = to < o->body.bytes ? to : o->body.bytes - 1;
            a->code = 206;
            snprintf(a->range, sizeof a->range, "bytes %llu-%llu/%zu", from, to, o->body.bytes);
            ls_text_append_bytes(&a->body, o->body.data + from, (size_t)(to - from + 1));
        }
    }
}

/* What the server does, without any fault. */
static inline void sim_execute(sim_s3 *s, const sim_request *r, sim_answer *a)
{
    *a = (sim_answer){.code = 200};
    if (!r->path[0]) {
        sim_list(s, r, a);
    } else if (r->query[0]) {
        sim_multipart(s, r, a);
    } else if (strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0) {
        sim_get(s, r, a);
    } else if (strcmp(r->method, "DELETE") == 0) {
        sim_object *o = sim_find(s, r->path, "");
        a->code = 204;
        if (o) {
            sim_drop(s, o);
        }
    } else if (r->only_new && sim_find(s, r->path, "")) {
        sim_error(a, 412, "PreconditionFailed");
    } else if (r->source[0]) {
        const sim_object *from = sim_find(s, r->source, "");
        if (!from) {
            sim_error(a, 404, "NoSuchKey");
            return;
        }
        const sim_bytes body = from->body;
        sim_set(&sim_make(s, r->path, "")->body, body.data, body.bytes);
        ls_text_append(&a->body, "<Result><ETag>x</ETag></Result>");
    } else {
        sim_object *o = sim_make(s, r->path, "");
        sim_set(&o->body, r->body, r->body_bytes);
        memcpy(o->sha256, r->sha256, sizeof o->sha256);
        snprintf(a->etag, sizeof a->etag, "%s", o->body.etag);
    }
}

/* ---- faults ---- */

typedef enum sim_fault {
    SIM_GOOD,
    SIM_UNSENT,       /* no connection */
    SIM_LOST,         /* executed, but the answer does not come */
    SIM_TIMEOUT,      /* not executed, and nobody says so */
    SIM_TIMEOUT_DONE, /* executed, as before */
    SIM_500,
    SIM_503,
    SIM_429,
    SIM_403,
    SIM_CUT,   /* half of the answer, then an error */
    SIM_SHORT, /* half of the answer, and no error */
    SIM_OTHER_RANGE,
    SIM_TWICE,      /* executed twice */
    SIM_LATE_ERROR, /* 200, with an error in it */
    SIM_SLOW,
    SIM_REORDERED, /* executed after later ones, when its answer is not waited for any more */
    SIM_FAULTS,
} sim_fault;

/* Executes what arrives late, if its time has come. */
static inline void sim_arrive(sim_s3 *s, bool all)
{
    while (s->late_count > 0 && (all || sim_draw(s) % 3 == 0)) {
        sim_answer ignored;
        sim_execute(s, &s->late[--s->late_count], &ignored);
        ls_text_release(&ignored.body);
        free(s->late[s->late_count].body);
    }
}

static inline ls_status sim_deliver(const ls_http_request *request, sim_fault fault, const sim_answer *a,
                                    ls_http_answer *out)
{
    const bool is_half = fault == SIM_CUT || fault == SIM_SHORT;
    const size_t bytes = is_half ? a->body.bytes / 2 : a->body.bytes;
    *out = (ls_http_answer){.code = a->code};
    snprintf(out->wanted[0], sizeof out->wanted[0], "%s", a->etag);
    snprintf(out->wanted[1], sizeof out->wanted[1], "%s", a->length);
    snprintf(out->wanted[3], sizeof out->wanted[3], "%s", a->sha256);
    snprintf(out->content_range, sizeof out->content_range, "%s",
             fault == SIM_OTHER_RANGE && a->range[0] ? "bytes 7-9/10" : a->range);
    if (strcmp(request->method, "HEAD") == 0) {
        return LS_OK;
    }
    if (fault == SIM_OTHER_RANGE && a->range[0] && bytes > 0) {
        memset(a->body.data, 'x', bytes);
    }
    if (request->take && (a->code == 200 || a->code == 206)) {
        const size_t first = bytes / 3; /* in two pieces */
        LS_TRY(request->take(request->context, out, a->body.data, first));
        LS_TRY(request->take(request->context, out, a->body.data + first, bytes - first));
    } else {
        out->bytes = bytes < LS_HTTP_BODY_BYTES_MAX ? bytes : LS_HTTP_BODY_BYTES_MAX;
        memcpy(out->body, a->body.bytes ? a->body.data : "", out->bytes);
    }
    out->body[out->bytes] = '\0';
    return fault == SIM_CUT ? ls_fail(LS_ERR_IO, "simulated: cut off") : LS_OK;
}

static inline sim_fault sim_choose(sim_s3 *s, const sim_request *r)
{
    if (sim_draw(s) % 100 >= s->percent) {
        return SIM_GOOD;
    }
    const sim_fault fault = 1 + sim_draw(s) % (SIM_FAULTS - 1);
    if ((fault == SIM_403 && !s->refuses) ||
        (fault == SIM_REORDERED && (!(s->is_late || r->only_new) || s->late_count == SIM_LATE_MAX))) {
        return SIM_LOST;
    }
    /* S3 does so for what takes it long, and for nothing else. */
    return fault == SIM_LATE_ERROR && strcmp(r->method, "POST") != 0 && !r->source[0] ? SIM_500 : fault;
}

static inline ls_status sim_request_once(void *context, const ls_http_request *request, ls_http_answer *out)
{
    sim_s3 *s = context;
    sim_answer a = {0};
    sim_request r = sim_parse(request);
    const uint64_t number = ++s->requests;
    const bool is_dead = s->dies_at && number >= s->dies_at;
    const sim_fault fault =
        is_dead ? (number == s->dies_at && s->dies_after ? SIM_LOST : SIM_UNSENT) : sim_choose(s, &r);
    const bool is_done = fault != SIM_UNSENT && fault != SIM_TIMEOUT && fault != SIM_REORDERED &&
                         (fault < SIM_500 || fault > SIM_403) && fault != SIM_LATE_ERROR;
    static const struct {
        int code;
        const char *name;
    } errors[] = {[SIM_500] = {500, "InternalError"},
                  [SIM_503] = {503, "SlowDown"},
                  [SIM_429] = {429, "TooMany"},
                  [SIM_403] = {403, "AccessDenied"}};
    out->code = 0;
    out->bytes = 0;
    out->retry_after[0] = '\0';
    s->now_s += fault == SIM_TIMEOUT || fault == SIM_TIMEOUT_DONE || fault == SIM_REORDERED ? 30.0
                : fault == SIM_SLOW                                                         ? 5.0
                                                                                            : 0.01;
    sim_arrive(s, false);
    if (is_done) {
        sim_execute(s, &r, &a);
        if (fault == SIM_TWICE) {
            ls_text_release(&a.body);
            sim_execute(s, &r, &a);
        }
    } else if (fault >= SIM_500 && fault <= SIM_403) {
        sim_error(&a, errors[fault].code, errors[fault].name);
    } else if (fault == SIM_LATE_ERROR) {
        sim_error(&a, 200, "InternalError");
    }
    ls_status status = is_dead ? LS_STOPPED
                       : fault == SIM_UNSENT || fault == SIM_LOST
                           ? ls_fail(LS_ERR_IO, "simulated: no connection")
                       : fault == SIM_TIMEOUT || fault == SIM_TIMEOUT_DONE || fault == SIM_REORDERED
                           ? ls_fail(LS_ERR_TIMEOUT, "simulated: no answer")
                           : sim_deliver(request, fault, &a, out);
    if (fault == SIM_REORDERED) {
        s->late[s->late_count++] = r;
    } else {
        free(r.body);
    }
    ls_text_release(&a.body);
    return status;
}

/* ---- use ---- */

static inline void sim_begin(sim_s3 *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    s->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < 4; i++) {
        (void)sim_draw(s);
    }
    s->world = (struct ls_blob_world){.request = sim_request_once,
                                      .monotonic_s = sim_now,
                                      .sleep = sim_sleep,
                                      .random = sim_draw,
                                      .context = s};
}

static inline void sim_end(sim_s3 *s)
{
    sim_arrive(s, true);
    while (s->count > 0) {
        sim_drop(s, &s->objects[0]);
    }
}

/* A store of a process of its own. */
static inline ls_blob_store *sim_open(sim_s3 *s, const char *address, double patience_s)
{
    ls_blob_store *store = NULL;
    setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SIM_SECRET, 1);
    const ls_blob_options options = {.endpoint = "http://sim",
                                     .region = "us-east-1",
                                     .patience_s = patience_s,
                                     .threads = 1,
                                     .world = &s->world};
    assert_int_equal(ls_blob_open(address, &options, &store), LS_OK);
    return store;
}

#endif
