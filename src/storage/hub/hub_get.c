// SPDX-License-Identifier: Apache-2.0
/* Requests to a hub: where the token may go, redirects, trying again, continuing a file. */
#include "base/file.h"
#include "env/http_client.h"
#include "storage/hub/hub_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { REDIRECTS_MAX = 5, ATTEMPTS_MAX = 5, TEXT_BYTES_MAX = 32 << 20 };
enum { UNLISTED_BYTES_MAX = 256 << 20 }; /* of a file whose size is not listed: may never end */
static const double CONNECT_S = 30.0, STALL_S = 60.0, TEXT_S = 120.0, WAIT_MAX_S = 300.0;

/* ---- where a request goes ---- */

/* The length of scheme and host: "https://a.b:443" of "https://a.b:443/c". 0: not such an URL. */
static size_t origin_bytes(const char *url)
{
    const char *host = strncmp(url, "https://", 8) == 0  ? url + 8
                       : strncmp(url, "http://", 7) == 0 ? url + 7
                                                         : NULL;
    return host && *host && *host != '/' ? (size_t)(host - url) + strcspn(host, "/?#") : 0;
}

static bool same_origin(const char *a, const char *b)
{
    const size_t bytes = origin_bytes(a);
    return bytes > 0 && bytes == origin_bytes(b) && strncasecmp(a, b, bytes) == 0;
}

/* Whether a secret can be sent there: encrypted, or within this machine. */
static bool is_private(const char *url)
{
    static const char *const here[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++) {
        const size_t bytes = strlen(here[i]);
        if (strncmp(url, here[i], bytes) == 0 && strchr(":/", url[bytes])) {
            return true;
        }
    }
    return strncmp(url, "https://", 8) == 0;
}

/* The address that `location` means, seen from `url`; in `arena`, NULL if it is none. */
static const char *redirected(ls_arena *arena, const char *url, const char *location)
{
    if (location[0] == '/' && location[1] != '/') {
        return ls_arena_printf(arena, "%.*s%s", (int)origin_bytes(url), url, location);
    }
    const bool encrypted = strncmp(url, "https://", 8) != 0 || strncmp(location, "https://", 8) == 0;
    return origin_bytes(location) > 0 && encrypted ? ls_arena_strdup(arena, location) : NULL;
}

/* What takes an answer. */
typedef struct taker {
    ls_status (*take)(void *context, const ls_http_answer *head, const void *data, size_t bytes);
    void *context;
    double timeout_s; /* for the whole answer; 0: no limit */
} taker;

/* One request from byte `from` on, with its redirects. */
static ls_status get(const ls_hub_options *o, const char *url, uint64_t from, const taker *to,
                     ls_http_answer *answer)
{
    ls_arena arena = {0};
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i <= REDIRECTS_MAX; i++) {
        const char *headers[4] = {"User-Agent: lockstep"};
        size_t count = 1;
        if (from > 0) {
            headers[count++] = ls_arena_printf(&arena, "Range: bytes=%" PRIu64 "-", from);
        }
        if (o->token && same_origin(url, o->endpoint)) {
            headers[count++] = ls_arena_printf(&arena, "Authorization: Bearer %s", o->token);
        }
        const ls_http_request request = {.method = "GET",
                                         .url = url,
                                         .headers = headers,
                                         .connect_timeout_s = CONNECT_S,
                                         .timeout_s = to->timeout_s,
                                         .stall_s = STALL_S,
                                         .take = to->take,
                                         .context = to->context,
                                         /* a proxy reads what is not encrypted: the token too */
                                         .uses_proxies = strncmp(url, "https://", 8) == 0};
        status = ls_http_do(&request, answer);
        if (status != LS_OK || answer->code < 301 || answer->code > 308 || !answer->location[0]) {
            ls_arena_release(&arena);
            return status;
        }
        const char *next = redirected(&arena, url, answer->location);
        status = next ? LS_OK
                      : ls_fail(LS_ERR_DATA, "%s redirects to %s, which is not a safe address", url,
                                answer->location);
        url = next;
    }
    ls_arena_release(&arena);
    return status != LS_OK ? status : ls_fail(LS_ERR_DATA, "%s redirects in a circle", o->endpoint);
}

/* ---- trying again ---- */

static ls_status explain(const ls_hub_options *o, const ls_http_answer *answer, const char *what)
{
    switch (answer->code) {
    case 401:
        return ls_fail(
            LS_ERR_FAILED,
            o->token ? "%s: %s does not accept the token for it (HTTP 401): the token is wrong or has "
                       "expired, or there is no such model"
                     : "%s: %s shows it only to people who are logged in, or there is no such model (HTTP "
                       "401): check the name, and put a token into HF_TOKEN or ~/.cache/huggingface/token",
            what, o->endpoint);
    case 403:
        return ls_fail(
            LS_ERR_FAILED,
            "%s: access is refused (HTTP 403)%s%s: accept the licence of the model at %s/%s with the "
            "account of the token, and give a token that may read it in HF_TOKEN",
            what, answer->error_message[0] ? ": " : "", answer->error_message, o->endpoint, o->repository);
    case 404:
        return ls_fail(LS_ERR_NOT_FOUND,
                       "%s: %s does not have it (HTTP 404): check the name and --revision %s", what,
                       o->endpoint, o->revision);
    default:
        return ls_fail(LS_ERR_IO, "%s: %s answers with HTTP %d%s%s", what, o->endpoint, answer->code,
                       answer->error_message[0] ? ": " : "", answer->error_message);
    }
}

static bool is_passing(int code)
{
    return code == 408 || code == 429 || (code >= 500 && code <= 504);
}

static void wait_before(int attempt, const ls_http_answer *answer)
{
    double seconds = 0.5 * (double)(1 << (attempt < 6 ? attempt : 6));
    char *end = NULL;
    const double asked = answer ? strtod(answer->retry_after, &end) : 0.0;
    if (asked > 0.0 && end && *end == '\0') {
        seconds = asked < WAIT_MAX_S ? asked : WAIT_MAX_S;
    }
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&time, NULL);
}

/* Decides after a request: LS_OK and *again_out, or the error that ends it. */
static ls_status judge(const ls_hub_options *o, const char *what, ls_status status,
                       const ls_http_answer *answer, int *attempt, bool *again_out)
{
    const bool answered = status == LS_OK;
    *again_out = false;
    if (answered && (answer->code == 200 || answer->code == 206)) {
        return LS_OK;
    }
    const bool passing =
        answered ? is_passing(answer->code) : status == LS_ERR_IO || status == LS_ERR_TIMEOUT;
    if (!passing || *attempt >= ATTEMPTS_MAX) {
        return answered ? explain(o, answer, what) : ls_fail_within(status, "%s", what);
    }
    wait_before((*attempt)++, answered ? answer : NULL);
    *again_out = true;
    return LS_OK;
}

/* ---- texts ---- */

static ls_status take_text(void *context, const ls_http_answer *head, const void *data, size_t bytes)
{
    (void)head;
    ls_text *text = context;
    if (text->bytes + bytes > TEXT_BYTES_MAX) {
        return ls_fail(LS_ERR_DATA, "the answer of the hub is longer than %d bytes", TEXT_BYTES_MAX);
    }
    ls_text_append_bytes(text, data, bytes);
    return LS_OK;
}

ls_status ls_hub_get_text(const ls_hub_options *options, const char *url, const char *what, ls_text *text_out)
{
    ls_http_answer answer;
    if (options->token && !is_private(options->endpoint)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is not encrypted, and the token would be sent there: give an https:// "
                       "address, or unset HF_TOKEN",
                       options->endpoint);
    }
    const taker to = {.take = take_text, .context = text_out, .timeout_s = TEXT_S};
    bool again = true;
    for (int attempt = 0; again;) {
        ls_text_clear(text_out);
        const ls_status status = get(options, url, 0, &to, &answer);
        LS_TRY(judge(options, what, status, &answer, &attempt, &again));
    }
    return LS_OK;
}

/* ---- files ---- */

typedef struct download {
    const ls_hub_options *options;
    const ls_hub_file *file;
    const char *path; /* of the part */
    int fd;
    uint64_t from, at; /* bytes that were there, and that are there */
    bool begun;        /* this answer has brought bytes */
} download;

/* The first bytes of an answer: they must be those that were asked for. */
static ls_status begin(download *d, const ls_http_answer *head)
{
    uint64_t first = 0;
    d->begun = true;
    if (head->code == 206) {
        if (sscanf(head->content_range, "bytes %" SCNu64 "-", &first) != 1 || first != d->from) {
            return ls_fail(LS_ERR_DATA, "%s: bytes from %" PRIu64 " on were asked for, and %s came",
                           d->file->name, d->from,
                           head->content_range[0] ? head->content_range : "no Content-Range");
        }
        return LS_OK;
    }
    d->at = 0; /* the server sends all of it */
    return ftruncate(d->fd, 0) == 0 ? LS_OK : ls_fail_errno(errno, "can't empty %s", d->path);
}

static ls_status take_file(void *context, const ls_http_answer *head, const void *data, size_t bytes)
{
    download *d = context;
    if (!d->begun) {
        LS_TRY(begin(d, head));
    }
    if (d->file->size == UINT64_MAX && d->at + bytes > UNLISTED_BYTES_MAX) {
        return ls_fail(LS_ERR_DATA,
                       "%s is longer than %d MiB, and the hub lists no size for it: use a hub that does",
                       d->file->name, UNLISTED_BYTES_MAX >> 20);
    }
    if (d->file->size != UINT64_MAX && d->at + bytes > d->file->size) {
        return ls_fail(LS_ERR_DATA, "%s is longer than the %" PRIu64 " bytes that the hub lists",
                       d->file->name, d->file->size);
    }
    LS_TRY(ls_file_pwrite_all(d->fd, d->path, data, bytes, d->at));
    d->at += bytes;
    if (d->options->progress) {
        d->options->progress(d->options->context, d->file->name, d->at, d->file->size);
    }
    return LS_OK;
}

/* Gets what is missing. */
static ls_status complete(download *d, const char *url)
{
    ls_http_answer answer;
    const taker to = {.take = take_file, .context = d};
    bool again = true;
    for (int attempt = 0; again && d->at != d->file->size;) {
        const uint64_t before = d->at;
        d->from = d->at;
        d->begun = false;
        ls_status status = get(d->options, url, d->from, &to, &answer);
        if (status == LS_OK && answer.code == 416 && d->from > 0) {
            d->at = 0; /* the part is not of this file */
            status = ls_fail(LS_ERR_IO, "the interrupted download of %s can't be continued", d->file->name);
        } else if (status == LS_OK && answer.code / 100 == 2 && d->file->size != UINT64_MAX &&
                   d->at < d->file->size) {
            status = ls_fail(LS_ERR_IO, "%s ended after %" PRIu64 " of %" PRIu64 " bytes", d->file->name,
                             d->at, d->file->size);
        }
        attempt = d->at > before ? 0 : attempt;
        LS_TRY(judge(d->options, d->file->name, status, &answer, &attempt, &again));
    }
    return LS_OK;
}

static ls_status check_hash(const download *d)
{
    char hex[LS_SHA256_HEX_BYTES];
    LS_TRY(ls_file_sha256(d->fd, d->path, d->at, hex));
    return strcmp(hex, d->file->sha256) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s has SHA-256 %.16s, but the hub lists %.16s: what came is damaged",
                         d->file->name, hex, d->file->sha256);
}

/* Fetches and checks; a file that is wrong is fetched once more from its beginning. */
static ls_status fetch(download *d, const char *url, uint64_t *reused_out)
{
    struct stat info;
    if (fstat(d->fd, &info) != 0) {
        return ls_fail_errno(errno, "can't read %s", d->path);
    }
    d->at =
        (uint64_t)info.st_size <= d->file->size && d->file->size != UINT64_MAX ? (uint64_t)info.st_size : 0;
    *reused_out = d->at;
    ls_status status = LS_OK;
    for (int i = 0; i < 2; i++) {
        status = complete(d, url);
        if (status == LS_OK && d->file->sha256) {
            status = check_hash(d);
        }
        if (status != LS_ERR_DATA) {
            break;
        }
        d->at = *reused_out = 0;
        if (ftruncate(d->fd, 0) != 0) {
            return ls_fail_errno(errno, "can't empty %s", d->path);
        }
    }
    LS_TRY(status);
    return ftruncate(d->fd, (off_t)d->at) == 0 && fsync(d->fd) == 0
               ? LS_OK
               : ls_fail_errno(errno, "can't write %s", d->path);
}

ls_status ls_hub_get_file(const ls_hub_options *options, const char *url, const ls_hub_file *file,
                          const char *path, uint64_t *reused_out)
{
    ls_arena arena = {0};
    download d = {.options = options, .file = file, .path = ls_arena_printf(&arena, "%s.part", path)};
    d.fd = open(d.path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    ls_status status =
        d.fd >= 0 ? fetch(&d, url, reused_out) : ls_fail_errno(errno, "can't write %s", d.path);
    if (status == LS_OK && rename(d.path, path) != 0) {
        status = ls_fail_errno(errno, "can't rename %s", d.path);
    }
    if (d.fd >= 0) {
        (void)close(d.fd);
    }
    ls_arena_release(&arena);
    return status;
}
