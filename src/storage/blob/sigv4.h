// SPDX-License-Identifier: Apache-2.0
/*
 * AWS Signature Version 4: the Authorization header of a request.
 *
 *   canonical request = method, path, query, the signed headers, their names, hash of the payload
 *   text to sign      = "AWS4-HMAC-SHA256", time, scope, SHA-256 of the canonical request
 *   key               = HMAC chain over "AWS4" + secret: day, region, service, "aws4_request"
 *
 * Source: AWS, "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API reference, whose
 * examples are the tests' vectors.
 *
 * Pure and thread-safe.
 */
#ifndef LS_STORAGE_BLOB_SIGV4_H
#define LS_STORAGE_BLOB_SIGV4_H

#include "base/hash.h"
#include "base/text.h"

enum {
    LS_SIGV4_HEADERS_MAX = 8,
    LS_SIGV4_TIME_BYTES = 17, /* "20130524T000000Z" and the zero */
};

typedef struct ls_sigv4_header {
    const char *name;  /* lower case */
    const char *value; /* without blanks at its ends */
} ls_sigv4_header;

typedef struct ls_sigv4_request {
    const char *method;
    const char *path;               /* encoded, begins with '/' (ls_sigv4_append_encoded) */
    const char *query;              /* encoded and sorted (ls_sigv4_append_query); "" for none */
    const ls_sigv4_header *headers; /* all that are signed, `host` among them; in any order */
    size_t header_count;            /* <= LS_SIGV4_HEADERS_MAX */
    const char *payload_sha256;     /* 64 hex digits, or "UNSIGNED-PAYLOAD" */
    const char *time;               /* ls_sigv4_time */
    const char *region, *service;
} ls_sigv4_request;

/* A key for one day, region and service. */
typedef struct ls_sigv4_key {
    unsigned char bytes[LS_SHA256_BYTES];
} ls_sigv4_key;

/* "20130524T000000Z" for seconds since 1970; below 0 and beyond the year 9999: as at 0. */
void ls_sigv4_time(double seconds, char time_out[LS_SIGV4_TIME_BYTES]);

/* The signing key of the day that `time` begins with. */
void ls_sigv4_derive(const char *secret, const char *time, const char *region, const char *service,
                     ls_sigv4_key *key_out);

/* Appends the value of the Authorization header. */
void ls_sigv4_append_authorization(const ls_sigv4_request *request, const char *key_id,
                                   const ls_sigv4_key *key, ls_text *text);

/* Appends with all bytes but A-Z a-z 0-9 - . _ ~ as %XX; '/' too, unless keep_slash. */
void ls_sigv4_append_encoded(ls_text *text, const char *string, bool keep_slash);

/* Appends "a=1&b=" from `count` pairs of names and values, encoded, sorted by their encoded names;
 * sorts `pairs`. */
void ls_sigv4_append_query(ls_text *text, ls_sigv4_header *pairs, size_t count);

#endif
