// SPDX-License-Identifier: Apache-2.0
#include "env/http_client.h"

#ifdef LS_HAVE_CURL

#include "env/library.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the library ---- */

static struct {
    pthread_once_t once;
    bool is_there;
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*easy_perform)(CURL *handle);
    CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
    void (*easy_cleanup)(CURL *handle);
    void (*easy_reset)(CURL *handle);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
} curl = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    const ls_library_symbol symbols[] = {
        {"curl_global_init", &curl.global_init},       {"curl_easy_init", &curl.easy_init},
        {"curl_easy_setopt", &curl.easy_setopt},       {"curl_easy_perform", &curl.easy_perform},
        {"curl_easy_getinfo", &curl.easy_getinfo},     {"curl_easy_cleanup", &curl.easy_cleanup},
        {"curl_easy_strerror", &curl.easy_strerror},   {"curl_slist_append", &curl.slist_append},
        {"curl_slist_free_all", &curl.slist_free_all}, {"curl_easy_reset", &curl.easy_reset},
    };
    curl.is_there = ls_library_load("libcurl.so.4", symbols, sizeof symbols / sizeof symbols[0]) &&
                    curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* ---- connections that are kept ---- */

struct ls_http_session {
    CURL *handle;
};

ls_http_session *ls_http_session_create(void)
{
    pthread_once(&curl.once, load);
    ls_http_session *session = curl.is_there ? calloc(1, sizeof *session) : NULL;
    if (session) {
        session->handle = curl.easy_init();
    }
    return session;
}

void ls_http_session_destroy(ls_http_session *session)
{
    if (session && session->handle) {
        curl.easy_cleanup(session->handle);
    }
    free(session);
}

/* ---- a request ---- */

typedef struct transfer {
    const ls_http_request *request;
    ls_http_answer *answer;
    CURL *handle;
    bool is_too_long;
    uint64_t given;  /* bytes of the body that `give` gave */
    ls_status taken; /* what `take` or `give` returned */
} transfer;

/* Copies the value of a header line if it has this name. */
static void take_header(const char *line, size_t bytes, const char *name, char *value_out, size_t room)
{
    const size_t at = strlen(name);
    if (bytes <= at || strncasecmp(line, name, at) != 0) {
        return;
    }
    const char *from = line + at, *end = line + bytes;
    while (from < end && (*from == ' ' || *from == '\t')) {
        from++;
    }
    while (end > from && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) {
        end--;
    }
    if ((size_t)(end - from) < room) {
        memcpy(value_out, from, (size_t)(end - from));
        value_out[end - from] = '\0';
    }
}

static size_t take_headers(char *line, size_t size, size_t count, void *context)
{
    ls_http_answer *answer = ((transfer *)context)->answer;
    const size_t bytes = size * count;
    take_header(line, bytes, "location:", answer->location, sizeof answer->location);
    take_header(line, bytes, "content-range:", answer->content_range, sizeof answer->content_range);
    take_header(line, bytes, "retry-after:", answer->retry_after, sizeof answer->retry_after);
    take_header(line, bytes, "x-error-message:", answer->error_message, sizeof answer->error_message);
    const char *const *wanted = ((transfer *)context)->request->wanted;
    for (size_t i = 0; wanted && i < LS_HTTP_WANTED_MAX && wanted[i]; i++) {
        take_header(line, bytes, wanted[i], answer->wanted[i], sizeof answer->wanted[i]);
    }
    return bytes;
}

static size_t take_body(char *data, size_t size, size_t count, void *context)
{
    transfer *t = context;
    const size_t bytes = size * count;
    long code = 0;
    curl.easy_getinfo(t->handle, CURLINFO_RESPONSE_CODE, &code);
    t->answer->code = (int)code;
    if (t->request->take && (code == 200 || code == 206)) {
        t->taken = t->request->take(t->request->context, t->answer, data, bytes);
        return t->taken == LS_OK ? bytes : 0;
    }
    if (bytes > LS_HTTP_BODY_BYTES_MAX - t->answer->bytes) {
        t->is_too_long = true;
        return 0; /* any other value ends the transfer */
    }
    memcpy(t->answer->body + t->answer->bytes, data, bytes);
    t->answer->bytes += bytes;
    return bytes;
}

static size_t give_body(char *data, size_t size, size_t count, void *context)
{
    transfer *t = context;
    const uint64_t left = t->request->body_bytes - t->given;
    const size_t bytes = left < size * count ? (size_t)left : size * count;
    t->taken = bytes > 0 ? t->request->give(t->request->context, t->given, data, bytes) : LS_OK;
    t->given += bytes;
    return t->taken == LS_OK ? bytes : CURL_READFUNC_ABORT;
}

/* A kept connection that turns out to be closed: the body is sent once more. */
static int seek_body(void *context, curl_off_t offset, int origin)
{
    ((transfer *)context)->given = (uint64_t)offset;
    return origin == SEEK_SET ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_CANTSEEK;
}

static bool is_cancelled(const ls_http_request *request)
{
    return request->cancel && atomic_load(request->cancel) != 0;
}

static bool has_body(const ls_http_request *request)
{
    return request->body || request->give;
}

static int look(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    const transfer *t = context;
    return is_cancelled(t->request);
}

static void set_up(CURL *handle, transfer *t, struct curl_slist *headers)
{
    const ls_http_request *request = t->request;
    curl.easy_setopt(handle, CURLOPT_URL, request->url);
    curl.easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request->method);
    curl.easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    curl.easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    if (strcmp(request->method, "HEAD") == 0) {
        curl.easy_setopt(handle, CURLOPT_NOBODY, 1L);
    }
    if (has_body(request)) {
        curl.easy_setopt(handle, CURLOPT_POST, 1L);
        curl.easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
        curl.easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
    }
    if (request->give) {
        curl.easy_setopt(handle, CURLOPT_READFUNCTION, give_body);
        curl.easy_setopt(handle, CURLOPT_READDATA, t);
        curl.easy_setopt(handle, CURLOPT_SEEKFUNCTION, seek_body);
        curl.easy_setopt(handle, CURLOPT_SEEKDATA, t);
    } else if (request->body) {
        curl.easy_setopt(handle, CURLOPT_POSTFIELDS, request->body);
    }
    curl.easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, (long)(1e3 * request->connect_timeout_s));
    curl.easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long)(1e3 * request->timeout_s));
    curl.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    if (!request->uses_proxies) {
        curl.easy_setopt(handle, CURLOPT_PROXY, "");
    }
    if (request->take) {
        /* fewer calls for the same bytes */
        curl.easy_setopt(handle, CURLOPT_BUFFERSIZE, 64L << 10);
    }
    if (request->stall_s > 0.0) {
        curl.easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl.easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, (long)(request->stall_s + 1.0));
    }
    curl.easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_headers);
    curl.easy_setopt(handle, CURLOPT_HEADERDATA, t);
    curl.easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    curl.easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl.easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
    curl.easy_setopt(handle, CURLOPT_WRITEDATA, t);
    curl.easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl.easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, look);
    curl.easy_setopt(handle, CURLOPT_XFERINFODATA, t);
}

static ls_status explain(const transfer *t, CURLcode code)
{
    const char *url = t->request->url, *what = curl.easy_strerror(code);
    const double limit_s = t->request->timeout_s, stall_s = t->request->stall_s;
    double took_s = 0.0;
    curl.easy_getinfo(t->handle, CURLINFO_TOTAL_TIME, &took_s);
    if (t->taken != LS_OK) {
        return t->taken; /* its text stays */
    }
    switch (code) {
    case CURLE_OK:
        return LS_OK;
    case CURLE_OPERATION_TIMEDOUT:
        return ls_fail(LS_ERR_TIMEOUT, "%s did not answer within %g s", url,
                       stall_s > 0.0 && (limit_s <= 0.0 || took_s < limit_s) ? stall_s : limit_s);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return ls_fail(LS_ERR_INVALID, "%s is not a valid http:// or https:// address: %s", url, what);
    case CURLE_ABORTED_BY_CALLBACK:
        return LS_STOPPED;
    default:
        return t->is_too_long ? ls_fail(LS_ERR_IO, "the answer of %s is too long; at most %d bytes are read",
                                        url, LS_HTTP_BODY_BYTES_MAX)
                              : ls_fail(LS_ERR_IO, "%s: %s", url, what);
    }
}

static ls_status perform(transfer *t, CURL *handle, struct curl_slist *headers)
{
    set_up(handle, t, headers);
    const ls_status status = explain(t, curl.easy_perform(handle));
    long code = 0;
    curl.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
    t->answer->code = (int)code;
    t->answer->body[t->answer->bytes] = '\0';
    return status;
}

ls_status ls_http_do(const ls_http_request *request, ls_http_answer *answer_out)
{
    pthread_once(&curl.once, load);
    if (!curl.is_there) {
        return ls_fail(LS_ERR_IO, "sending HTTP requests needs libcurl, and libcurl.so.4 can't be loaded "
                                  "(Debian: install libcurl4)");
    }
    const bool is_kept = request->session && request->session->handle;
    CURL *handle = is_kept ? request->session->handle : curl.easy_init();
    struct curl_slist *headers = NULL;
    if (is_kept) {
        curl.easy_reset(handle);
    }
    if (has_body(request)) {
        /* libcurl's own headers of a form */
        headers = curl.slist_append(curl.slist_append(headers, "Expect:"), "Content-Type:");
    }
    for (const char *const *header = request->headers; handle && header && *header; header++) {
        struct curl_slist *more = curl.slist_append(headers, *header);
        headers = more ? more : headers;
    }
    ls_status status = ls_fail(LS_ERR_MEMORY, "no memory for a request to %s", request->url);
    if (handle) {
        ls_error_clear();
        answer_out->code = 0;
        answer_out->bytes = 0;
        answer_out->location[0] = answer_out->content_range[0] = '\0';
        answer_out->retry_after[0] = answer_out->error_message[0] = '\0';
        memset(answer_out->wanted, 0, sizeof answer_out->wanted);
        transfer t = {.request = request, .answer = answer_out, .handle = handle};
        status = perform(&t, handle, headers);
        if (!is_kept) {
            curl.easy_cleanup(handle);
        }
    }
    curl.slist_free_all(headers);
    return status;
}

#else

ls_http_session *ls_http_session_create(void)
{
    return NULL;
}

void ls_http_session_destroy(ls_http_session *session)
{
    (void)session;
}

ls_status ls_http_do(const ls_http_request *request, ls_http_answer *answer_out)
{
    (void)answer_out;
    return ls_fail(LS_ERR_IO, "can't reach %s over HTTP: this program was built without libcurl",
                   request->url);
}

#endif
