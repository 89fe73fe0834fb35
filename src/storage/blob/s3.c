// SPDX-License-Identifier: Apache-2.0
/* Requests to S3: where they go, how they are signed, which are tried again, what errors mean. */
#include "storage/blob/s3.h"

#include "base/clock.h"
#include "storage/blob/credentials.h"
#include "storage/blob/world.h"
#include "storage/blob/xml.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

enum { SESSIONS_MAX = 64, CALL_HEADERS_MAX = 4 };
static const double CONNECT_S = 10.0, STALL_S = 30.0, PAUSE_S = 0.1, PAUSE_MAX_S = 10.0, RENEW_S = 300.0;

typedef struct s3_store {
    ls_blob_store base;
    const char *bucket;
    const char *origin; /* "https://bucket.s3.eu-west-1.amazonaws.com" */
    const char *host;   /* of it, with a port that is not the usual one */
    const char *folder; /* "", or "/bucket" when the host does not name it */
    char region[LS_AWS_REGION_BYTES_MAX + 1];
    /* under lock */
    pthread_mutex_t lock;
    ls_aws_credentials credentials;
    ls_sigv4_key key;
    char key_day[9]; /* the day of `key`; "": there is none */
    ls_http_session *sessions[SESSIONS_MAX];
    size_t session_count;
} s3_store;

const char *ls_s3_bucket(const ls_blob_store *store)
{
    return ((const s3_store *)store)->bucket;
}

/* ---- opening ---- */

/* Where requests go: a given endpoint takes the bucket in the path, AWS in the name. */
static ls_status choose_endpoint(s3_store *s, const char *given)
{
    ls_arena *arena = &s->base.arena;
    const char *const variables[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"};
    const char *endpoint = given && *given ? given : NULL;
    for (size_t i = 0; !endpoint && i < 2; i++) {
        const char *value = getenv(variables[i]);
        endpoint = value && *value ? value : NULL;
    }
    if (!endpoint) {
        /* No certificate covers a name with a further dot. */
        const bool has_dot = strchr(s->bucket, '.') != NULL;
        s->host = has_dot ? ls_arena_printf(arena, "s3.%s.amazonaws.com", s->region)
                          : ls_arena_printf(arena, "%s.s3.%s.amazonaws.com", s->bucket, s->region);
        s->origin = ls_arena_printf(arena, "https://%s", s->host);
        s->folder = has_dot ? ls_arena_printf(arena, "/%s", s->bucket) : "";
        return LS_OK;
    }
    const bool is_tls = strncmp(endpoint, "https://", 8) == 0;
    const char *host = endpoint + (is_tls ? 8 : 7);
    const size_t bytes = strlen(endpoint) > 8 ? strcspn(host, "/") : 0;
    if ((!is_tls && strncmp(endpoint, "http://", 7) != 0) || bytes == 0 ||
        strcspn(host, "@?# \t\r\n") < bytes || strspn(host + bytes, "/") != strlen(host + bytes)) {
        return ls_fail(LS_ERR_INVALID, "the endpoint of S3 (AWS_ENDPOINT_URL or --endpoint) is not valid; it "
                                       "must be http://HOST:PORT or https://HOST:PORT, without a path, user "
                                       "or password");
    }
    const char *usual = is_tls ? ":443" : ":80";
    const size_t short_bytes =
        bytes > strlen(usual) && strncmp(host + bytes - strlen(usual), usual, strlen(usual)) == 0
            ? bytes - strlen(usual)
            : bytes;
    s->host = ls_arena_strndup(arena, host, short_bytes);
    s->origin = ls_arena_strndup(arena, endpoint, (size_t)(host - endpoint) + bytes);
    s->folder = ls_arena_printf(arena, "/%s", s->bucket);
    return LS_OK;
}

static ls_status check_bucket(const char *bucket)
{
    const size_t bytes = strlen(bucket);
    if (bytes < 3 || bytes > 63 || strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != bytes ||
        strstr(bucket, "..") || bucket[0] == '.' || bucket[0] == '-') {
        return ls_fail(
            LS_ERR_INVALID,
            "s3://%.80s: the bucket's name must have 3 to 63 characters a-z, 0-9, '.', '_' and '-', "
            "and begin with a letter or digit",
            bucket);
    }
    return LS_OK;
}

static ls_status set_up(s3_store *s, const char *bucket_and_prefix, const ls_blob_options *options)
{
    const size_t bytes = strcspn(bucket_and_prefix, "/");
    const char *prefix = bucket_and_prefix + bytes;
    prefix += strspn(prefix, "/");
    s->bucket = ls_arena_strndup(&s->base.arena, bucket_and_prefix, bytes);
    LS_TRY(check_bucket(s->bucket));
    if (*prefix) {
        LS_TRY(ls_blob_check_key(prefix));
    }
    s->base.prefix = *prefix ? ls_arena_printf(&s->base.arena, "%s/", prefix) : "";
    if (options->region && *options->region) {
        snprintf(s->region, sizeof s->region, "%s", options->region);
    } else {
        LS_TRY(ls_aws_region_find(s->region));
    }
    LS_TRY(choose_endpoint(s, options->endpoint));
    return ls_aws_credentials_find(s->region, &s->credentials);
}

ls_status ls_blob_s3_open(const char *bucket_and_prefix, const ls_blob_options *options,
                          ls_blob_store **store_out)
{
    s3_store *s = calloc(1, sizeof *s);
    if (!s) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the store s3://%s", bucket_and_prefix);
    }
    s->base.calls = &ls_s3_calls;
    pthread_mutex_init(&s->lock, NULL);
    const ls_status status = set_up(s, bucket_and_prefix, options);
    if (status != LS_OK) {
        ls_blob_close(&s->base);
        return status;
    }
    *store_out = &s->base;
    return LS_OK;
}

void ls_s3_close(ls_blob_store *store)
{
    s3_store *s = (s3_store *)store;
    for (size_t i = 0; i < s->session_count; i++) {
        ls_http_session_destroy(s->sessions[i]);
    }
    pthread_mutex_destroy(&s->lock);
    explicit_bzero(s, sizeof *s); /* keys */
    free(s);
}

/* ---- one request ---- */

static ls_http_session *take_session(s3_store *s)
{
    pthread_mutex_lock(&s->lock);
    ls_http_session *session = s->session_count > 0 ? s->sessions[--s->session_count] : NULL;
    pthread_mutex_unlock(&s->lock);
    return session ? session : ls_http_session_create();
}

static void give_session(s3_store *s, ls_http_session *session)
{
    pthread_mutex_lock(&s->lock);
    const bool is_kept = session && s->session_count < SESSIONS_MAX;
    if (is_kept) {
        s->sessions[s->session_count++] = session;
    }
    pthread_mutex_unlock(&s->lock);
    if (!is_kept) {
        ls_http_session_destroy(session);
    }
}

/* The signing key of the day of `time`; credentials that end soon are fetched again. id_out,
 * token_out: copies in `arena`. */
static ls_status current_key(s3_store *s, ls_arena *arena, const char *time, ls_sigv4_key *key_out,
                             const char **id_out, const char **token_out)
{
    ls_status status = LS_OK;
    pthread_mutex_lock(&s->lock);
    if (s->credentials.expires_s > 0.0 && s->credentials.expires_s < ls_clock_wall_s() + RENEW_S) {
        status = ls_aws_credentials_find(s->region, &s->credentials);
        s->key_day[0] = '\0';
    }
    if (status == LS_OK && strncmp(s->key_day, time, 8) != 0) {
        ls_sigv4_derive(s->credentials.secret, time, s->region, "s3", &s->key);
        snprintf(s->key_day, sizeof s->key_day, "%.8s", time);
    }
    *key_out = s->key;
    *id_out = ls_arena_strdup(arena, s->credentials.id);
    *token_out = ls_arena_strdup(arena, s->credentials.token);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static ls_status hash_body(const ls_s3_call *call, char hex_out[LS_SHA256_HEX_BYTES])
{
    enum { PIECE_BYTES = 64 << 10 };
    ls_sha256 hash;
    ls_status status = LS_OK;
    if (!call->give) {
        ls_sha256_hex(call->body_bytes ? call->body : "", call->body_bytes, hex_out);
        return LS_OK;
    }
    unsigned char piece[PIECE_BYTES];
    ls_sha256_init(&hash);
    for (size_t at = 0; status == LS_OK && at < call->body_bytes; at += PIECE_BYTES) {
        const size_t bytes = call->body_bytes - at < PIECE_BYTES ? call->body_bytes - at : PIECE_BYTES;
        status = call->give(call->context, at, piece, bytes);
        ls_sha256_update(&hash, piece, status == LS_OK ? bytes : 0);
    }
    ls_sha256_finish(&hash, hex_out);
    return status;
}

/* The signed headers of a request as lines for libcurl. */
static ls_status sign(s3_store *s, ls_arena *arena, const ls_s3_call *call, const char *path,
                      const char *query, const char **lines)
{
    char time[LS_SIGV4_TIME_BYTES], payload[LS_SHA256_HEX_BYTES];
    ls_sigv4_key key;
    const char *id = NULL, *token = NULL;
    ls_sigv4_time(ls_clock_wall_s(), time);
    LS_TRY(current_key(s, arena, time, &key, &id, &token));
    LS_TRY(hash_body(call, payload));
    ls_sigv4_header headers[LS_SIGV4_HEADERS_MAX] = {
        {"host", s->host}, {"x-amz-content-sha256", payload}, {"x-amz-date", time}};
    size_t count = 3;
    if (*token) {
        headers[count++] = (ls_sigv4_header){"x-amz-security-token", token};
    }
    for (size_t i = 0; i < call->header_count; i++) {
        headers[count++] = call->headers[i];
    }
    const ls_sigv4_request request = {.method = call->method,
                                      .path = path,
                                      .query = query,
                                      .headers = headers,
                                      .header_count = count,
                                      .payload_sha256 = payload,
                                      .time = time,
                                      .region = s->region,
                                      .service = "s3"};
    ls_text authorization = {0};
    ls_sigv4_append_authorization(&request, id, &key, &authorization);
    for (size_t i = 0; i < count; i++) {
        lines[i] = ls_arena_printf(arena, "%s: %s", headers[i].name, headers[i].value);
    }
    lines[count++] = ls_arena_printf(arena, "Authorization: %s", ls_text_string(&authorization));
    lines[count++] = "User-Agent: lockstep";
    lines[count] = NULL;
    ls_text_release(&authorization);
    return LS_OK;
}

static ls_status send_once(s3_store *s, const ls_s3_call *call, const char *path, const char *query,
                           ls_http_answer *answer)
{
    static const char *const wanted[] = {[LS_S3_ETAG] = "etag:",
                                         [LS_S3_LENGTH] = "content-length:",
                                         [LS_S3_MODIFIED] = "last-modified:",
                                         [LS_S3_SHA256] = "x-amz-meta-sha256:",
                                         [LS_S3_ENCRYPTION] = "x-amz-server-side-encryption:"};
    ls_arena arena = {0};
    const char *lines[LS_SIGV4_HEADERS_MAX + 4];
    ls_status status = sign(s, &arena, call, path, query, lines);
    if (status == LS_OK) {
        ls_http_session *session = take_session(s);
        const bool has_body =
            call->body || strcmp(call->method, "PUT") == 0 || strcmp(call->method, "POST") == 0;
        const ls_http_request request = {
            .method = call->method,
            .url = ls_arena_printf(&arena, "%s%s%s%s", s->origin, path, *query ? "?" : "", query),
            .headers = lines,
            .connect_timeout_s = CONNECT_S,
            .stall_s = STALL_S,
            .cancel = s->base.cancel,
            .take = call->take,
            .context = call->context,
            .uses_proxies = strncmp(s->origin, "https://", 8) == 0,
            .body = call->body_bytes ? call->body
                    : has_body       ? ""
                                     : NULL,
            .body_bytes = call->body_bytes,
            .give = call->give,
            .wanted = wanted,
            .session = session};
        status = s->base.world->request(s->base.world->context, &request, answer);
        give_session(s, session);
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- what an error means ---- */

typedef struct s3_error {
    char code[64], message[256], region[LS_AWS_REGION_BYTES_MAX + 1], server_time[32];
} s3_error;

static ls_status take_error(void *context, const char *name, const char *text)
{
    s3_error *e = context;
    if (strcmp(name, "Code") == 0) {
        snprintf(e->code, sizeof e->code, "%s", text);
    } else if (strcmp(name, "Message") == 0) {
        snprintf(e->message, sizeof e->message, "%s", text);
    } else if (strcmp(name, "Region") == 0) {
        snprintf(e->region, sizeof e->region, "%s", text);
    } else if (strcmp(name, "ServerTime") == 0) {
        snprintf(e->server_time, sizeof e->server_time, "%s", text);
    }
    return LS_OK;
}

static bool is_code(const s3_error *e, const char *code)
{
    return strcmp(e->code, code) == 0;
}

/* Refusals whose reason is known. what: "s3://bucket/key". LS_OK: none of them. */
static ls_status explain_refusal(const s3_store *s, const s3_error *e, int code, const char *what)
{
    if (is_code(e, "SignatureDoesNotMatch") || is_code(e, "InvalidAccessKeyId")) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: %s refuses the signature (%s): the access key or the secret key is wrong. They "
                       "come from %s",
                       what, s->host, e->code, s->credentials.source);
    }
    if (is_code(e, "RequestTimeTooSkewed")) {
        const double server = ls_aws_time_parse(e->server_time);
        const char *by =
            server > 0.0 ? ls_duration_of(fabs(server - ls_clock_wall_s())).text : "more than 15 min";
        return ls_fail(LS_ERR_INVALID,
                       "%s: the clock of this machine differs from that of %s by %s, and signatures "
                       "are valid for 15 min: set the clock",
                       what, s->host, by);
    }
    if (is_code(e, "ExpiredToken") || is_code(e, "InvalidToken")) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: the session token from %s has expired or is not valid (%s): renew it", what,
                       s->credentials.source, e->code);
    }
    if (e->region[0] || is_code(e, "PermanentRedirect") || is_code(e, "AuthorizationHeaderMalformed") ||
        code == 301) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: the bucket is in region %s, and the request was for %s: set AWS_REGION "
                       "or --region%s",
                       what, e->region[0] ? e->region : "(not told)", s->region,
                       e->region[0] ? "" : ", or AWS_ENDPOINT_URL");
    }
    return LS_OK;
}

static ls_status explain(const s3_store *s, const ls_s3_call *call, const ls_http_answer *answer)
{
    ls_arena arena = {0};
    s3_error e = {0};
    const char *what =
        ls_arena_printf(&arena, "s3://%s%s%s", s->bucket, call->key ? "/" : "", call->key ? call->key : "");
    if (ls_xml_walk(answer->body, answer->bytes, what, take_error, &e) != LS_OK) {
        ls_error_clear(); /* an answer without XML: HEAD, a proxy */
    }
    ls_status status = explain_refusal(s, &e, answer->code, what);
    if (status != LS_OK) {
        ls_arena_release(&arena);
        return status;
    }
    if (is_code(&e, "NoSuchBucket")) {
        status = ls_fail(LS_ERR_NOT_FOUND, "%s has no bucket %s", s->host, s->bucket);
    } else if (answer->code == 404) {
        status = ls_fail(LS_ERR_NOT_FOUND, "there is no %s", what);
    } else if (answer->code == 401 || answer->code == 403) {
        status = ls_fail(LS_ERR_FAILED,
                         "%s: access is refused (HTTP %d%s%s): the credentials from %s lack the right to "
                         "%s it, or the key or signature is wrong",
                         what, answer->code, e.code[0] ? " " : "", e.code, s->credentials.source,
                         strcmp(call->method, "GET") == 0 || strcmp(call->method, "HEAD") == 0 ? "read"
                         : strcmp(call->method, "DELETE") == 0                                 ? "remove"
                                                                                               : "write");
    } else if (answer->code == 412) {
        status = ls_fail(LS_ERR_DATA, "%s changed while it was being read", what);
    } else if (answer->code == 416) {
        status = ls_fail(LS_ERR_DATA, "%s is shorter than the part of it that was asked for", what);
    } else {
        status = ls_fail(LS_ERR_FAILED, "%s: %s answered with HTTP %d %s%s%s", what, s->host, answer->code,
                         e.code, e.message[0] ? ": " : "", e.message);
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- trying again ---- */

/* Whether a later try may succeed. */
static bool passes(ls_status status, const ls_http_answer *answer)
{
    if (status != LS_OK) {
        return status == LS_ERR_IO || status == LS_ERR_TIMEOUT;
    }
    const int code = answer->code;
    return code == 408 || code == 429 || code >= 500 ||
           ((code == 400 || code == 409) &&
            (strstr(answer->body, "<Code>RequestTimeout</Code>") ||
             strstr(answer->body, "<Code>OperationAborted</Code>") ||
             strstr(answer->body, "<Code>ConditionalRequestConflict</Code>")));
}

static ls_status real_request(void *context, const ls_http_request *request, ls_http_answer *answer)
{
    (void)context;
    return ls_http_do(request, answer);
}

static double real_monotonic_s(void *context)
{
    (void)context;
    return ls_clock_monotonic_s();
}

static void real_sleep(void *context, double seconds)
{
    (void)context;
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

static uint32_t real_random(void *context)
{
    uint32_t number = 0;
    (void)context;
    (void)!getrandom(&number, sizeof number, 0);
    return number;
}

const struct ls_blob_world ls_blob_real_world = {
    .request = real_request, .monotonic_s = real_monotonic_s, .sleep = real_sleep, .random = real_random};

static double now_of(const ls_blob_store *store)
{
    return store->world->monotonic_s(store->world->context);
}

/* Sleeps, in pieces so that a cancel is seen. */
static void pause_for(const ls_blob_store *store, double seconds)
{
    const double until = now_of(store) + seconds;
    for (double left = seconds; left > 0.0 && !ls_blob_is_cancelled(store); left = until - now_of(store)) {
        store->world->sleep(store->world->context, left < 0.1 ? left : 0.1);
    }
}

/* A pause drawn evenly from 0 to a bound that doubles, at least what the server asks for. */
static double pause_of(const ls_blob_store *store, unsigned tries, const ls_http_answer *answer)
{
    const double bound = fmin(PAUSE_MAX_S, PAUSE_S * pow(2.0, fmin(tries, 16)));
    const uint32_t number = store->world->random(store->world->context);
    const double asked = answer->retry_after[0] ? strtod(answer->retry_after, NULL) : 0.0;
    const double drawn = bound * (double)number / 4294967296.0;
    return asked > drawn && asked <= 60.0 ? asked : drawn;
}

ls_status ls_s3_do(ls_blob_store *store, const ls_s3_call *call, ls_http_answer *answer, unsigned *tries_out)
{
    s3_store *s = (s3_store *)store;
    ls_text path = {0}, query = {0};
    ls_text_append(&path, s->folder);
    ls_text_append(&path, "/");
    ls_sigv4_append_encoded(&path, call->key ? call->key : "", true);
    ls_sigv4_append_query(&query, call->query, call->query_count);
    const double until = now_of(store) + store->patience_s;
    ls_status status = LS_OK;
    for (unsigned tries = 1;; tries++) {
        if (tries_out) {
            *tries_out = tries;
        }
        if (call->begin) {
            call->begin(call->context);
        }
        status = ls_blob_is_cancelled(store)
                     ? LS_STOPPED
                     : send_once(s, call, ls_text_string(&path), ls_text_string(&query), answer);
        const double pause_s = passes(status, answer) ? pause_of(store, tries, answer) : -1.0;
        if (pause_s < 0.0 || now_of(store) + pause_s > until) {
            break;
        }
        pause_for(store, pause_s);
    }
    ls_text_release(&path);
    ls_text_release(&query);
    if (status != LS_OK) {
        return status;
    }
    const bool good =
        (answer->code >= 200 && answer->code <= 206) || (call->also && answer->code == call->also);
    return good ? LS_OK : explain(s, call, answer);
}

/* ---- answers in XML ---- */

typedef struct asked {
    ls_text text;
    s3_error error;
    bool is_error;
    ls_status (*element)(void *context, const char *name, const char *text);
    void *context;
} asked;

static void begin_text(void *context)
{
    ls_text_clear(&((asked *)context)->text);
}

static ls_status take_text(void *context, const ls_http_answer *head, const void *data, size_t bytes)
{
    enum { XML_BYTES_MAX = 64 << 20 };
    (void)head;
    asked *a = context;
    if (a->text.bytes + bytes > XML_BYTES_MAX) {
        return ls_fail(LS_ERR_DATA, "the S3 server sent more than %d bytes of XML", XML_BYTES_MAX);
    }
    ls_text_append_bytes(&a->text, data, bytes);
    return LS_OK;
}

static ls_status look_for_error(void *context, const char *name, const char *text)
{
    asked *a = context;
    a->is_error = a->is_error || strcmp(name, "Error") == 0;
    return take_error(&a->error, name, text);
}

static ls_status ask_once(ls_blob_store *store, const ls_s3_call *call, asked *a, ls_http_answer *answer)
{
    ls_s3_call own = *call;
    own.take = take_text;
    own.begin = begin_text;
    own.context = a;
    a->is_error = false;
    LS_TRY(ls_s3_do(store, &own, answer, NULL));
    return ls_xml_walk(ls_text_string(&a->text), a->text.bytes, ls_s3_bucket(store), look_for_error, a);
}

ls_status ls_s3_ask(ls_blob_store *store, const ls_s3_call *call,
                    ls_status (*element)(void *context, const char *name, const char *text), void *context)
{
    asked a = {.element = element, .context = context};
    ls_http_answer *answer = calloc(1, sizeof *answer);
    ls_status status = answer ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for an answer of S3");
    for (unsigned tries = 0; status == LS_OK && tries < 5; tries++) {
        status = ask_once(store, call, &a, answer);
        if (status != LS_OK || !a.is_error) {
            break;
        }
        pause_for(store, pause_of(store, tries, answer));
    }
    if (status == LS_OK && a.is_error) {
        status = ls_fail(LS_ERR_FAILED, "s3://%s: %s %s", ls_s3_bucket(store), a.error.code, a.error.message);
    } else if (status == LS_OK && element) {
        status = ls_xml_walk(ls_text_string(&a.text), a.text.bytes, ls_s3_bucket(store), element, context);
    }
    ls_text_release(&a.text);
    free(answer);
    return status;
}
