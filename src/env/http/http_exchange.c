// SPDX-License-Identifier: Apache-2.0
#include "env/http/http_server.h"

#include "base/assert.h"
#include "base/json.h"
#include "env/http/http_framing.h"
#include "env/http/http_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_BLOCK_BYTES = 16 * 1024 }; /* size of one read of a stream by the library */

/* ---- answers ---- */

/* A page loads style sheet, script, figures and data from here alone. A figure (SVG) has its style
 * inside, and loads and runs nothing. */
static const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
static const char figure_policy[] = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
                                    "form-action 'none'; frame-ancestors 'none'";

static void respond(ls_http_exchange *r, unsigned code, const char *policy, struct MHD_Response *response)
{
    LS_ASSERT(response && "not enough memory for an answer");
    LS_ASSERT(!r->response);
    const ls_microhttpd *mhd = r->server->mhd;
    mhd->add_response_header(response, "X-Content-Type-Options", "nosniff");
    mhd->add_response_header(response, "X-Frame-Options", "DENY");
    mhd->add_response_header(response, "Referrer-Policy", "no-referrer");
    mhd->add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    mhd->add_response_header(response, "Content-Security-Policy", policy);
    mhd->add_response_header(response, "Cache-Control", "no-store");
    if (code == 401) {
        mhd->add_response_header(response, "WWW-Authenticate", "Bearer");
    }
    if (code == 503 || code == 429) {
        mhd->add_response_header(response, "Retry-After", "2");
    }
    r->code = code;
    r->response = response;
    if (r->is_asleep) {
        r->is_asleep = false;
        ls_http_listener_resume(r->connection->listener, r->library);
    }
}

void ls_http_exchange_reply(ls_http_exchange *r, const ls_http_reply *reply)
{
    const ls_microhttpd *mhd = r->server->mhd;
    struct MHD_Response *response = mhd->create_response_from_buffer(
        reply->bytes, (void *)(uintptr_t)(reply->data ? reply->data : ""), MHD_RESPMEM_MUST_COPY);
    LS_ASSERT(response && "not enough memory for an answer");
    if (reply->type) {
        mhd->add_response_header(response, "Content-Type", reply->type);
    }
    if (reply->header) {
        mhd->add_response_header(response, reply->header, reply->value);
    }
    const bool is_figure = reply->type && strncmp(reply->type, "image/svg", 9) == 0;
    respond(r, reply->code, is_figure ? figure_policy : page_policy, response);
}

bool ls_http_exchange_move_token(ls_http_exchange *r)
{
    if (!r->has_token) {
        return false;
    }
    const ls_http_guard *guard = &r->server->guard;
    const ls_microhttpd *mhd = r->server->mhd;
    struct MHD_Response *response = mhd->create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    LS_ASSERT(response && "not enough memory for an answer");
    char cookie[2 * LS_HTTP_TOKEN_BYTES + 96];
    snprintf(cookie, sizeof cookie, "lockstep_token=%s; HttpOnly; SameSite=Strict; Path=/%s", r->token,
             strcmp(guard->scheme, "https") == 0 ? "; Secure" : "");
    mhd->add_response_header(response, "Set-Cookie", cookie);
    mhd->add_response_header(response, "Location", r->target);
    respond(r, 303, page_policy, response);
    return true;
}

/* ---- streams ---- */

static void wake_stream(ls_http_stream *s)
{
    if (s->is_asleep) {
        s->is_asleep = false;
        ls_http_listener_resume(s->listener, s->library);
    }
}

void ls_http_stream_end(ls_http_stream *s)
{
    s->is_ending = true;
    wake_stream(s);
}

bool ls_http_stream_is_ending(const ls_http_stream *s)
{
    return s->is_ending;
}

size_t ls_http_stream_waiting(const ls_http_stream *s)
{
    return s->queue.bytes - s->sent;
}

void ls_http_stream_put(ls_http_stream *s, const void *data, size_t bytes)
{
    ls_text_append_bytes(&s->queue, data, bytes);
    wake_stream(s);
}

static size_t take_queue(ls_http_stream *s, char *out, size_t max)
{
    const size_t left = ls_http_stream_waiting(s), bytes = left < max ? left : max;
    memcpy(out, ls_text_string(&s->queue) + s->sent, bytes);
    s->sent += bytes;
    if (s->sent == s->queue.bytes) {
        ls_text_clear(&s->queue);
        s->sent = 0;
    }
    return bytes;
}

/* The library asks for more bytes. */
static ssize_t read_stream(void *context, uint64_t position, char *out, size_t max)
{
    (void)position;
    ls_http_stream *s = context;
    const size_t bytes = take_queue(s, out, max);
    if (bytes != 0) {
        return (ssize_t)bytes;
    }
    if (s->is_ending) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (s->calls.drained) {
        s->calls.drained(s->calls.context);
    }
    s->is_asleep = true;
    s->server->mhd->suspend_connection(s->library);
    return 0;
}

static void release_stream(void *context)
{
    ls_http_stream *s = context;
    s->calls.closed(s->calls.context);
    ls_text_release(&s->queue);
    free(s);
}

ls_http_stream *ls_http_exchange_stream(ls_http_exchange *r, const char *type,
                                        const ls_http_stream_calls *calls)
{
    ls_http_stream *s = calloc(1, sizeof *s);
    LS_ASSERT(s && "not enough memory for a stream");
    *s = (ls_http_stream){
        .server = r->server, .listener = r->connection->listener, .library = r->library, .calls = *calls};
    const ls_microhttpd *mhd = r->server->mhd;
    struct MHD_Response *response = mhd->create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                                       read_stream, s, release_stream);
    LS_ASSERT(response && "not enough memory for a stream");
    mhd->add_response_header(response, "Content-Type", type);
    r->stream = s;
    respond(r, 200, page_policy, response);
    return s;
}

/* ---- one request ---- */

const char *ls_http_exchange_target(const ls_http_exchange *r)
{
    return r->target;
}

const char *ls_http_exchange_header(const ls_http_exchange *r, const char *name)
{
    return r->server->mhd->lookup_connection_value(r->library, MHD_HEADER_KIND, name);
}

const char *ls_http_exchange_body(ls_http_exchange *r, size_t *bytes_out)
{
    *bytes_out = r->body.bytes;
    return ls_text_string(&r->body);
}

bool ls_http_exchange_is_too_long(const ls_http_exchange *r)
{
    return r->is_too_long;
}

bool ls_http_exchange_is_answered(const ls_http_exchange *r)
{
    return r->response != NULL;
}

ls_status ls_http_exchange_admit(const ls_http_exchange *r, const char *method, bool is_page,
                                 ls_http_identity *identity_out, int *code_out)
{
    const ls_http_connection *c = r->connection;
    const ls_http_visitor visitor = {
        .is_unix = c->listener->is_unix,
        .is_peer_known = c->is_peer_known,
        .peer_uid = c->uid,
        .peer_gid = c->gid,
        .changes_something = strcmp(method, "POST") == 0,
        .is_page = is_page,
        .host = ls_http_exchange_header(r, "Host"),
        .origin = ls_http_exchange_header(r, "Origin"),
        .fetch_site = ls_http_exchange_header(r, "Sec-Fetch-Site"),
        .fetch_mode = ls_http_exchange_header(r, "Sec-Fetch-Mode"),
        .authorization = ls_http_exchange_header(r, "Authorization"),
        .cookie = ls_http_exchange_header(r, "Cookie"),
        .content_type = ls_http_exchange_header(r, "Content-Type"),
        .token = r->has_token ? r->token : NULL,
    };
    return ls_http_guard_admit(&r->server->guard, &visitor, identity_out, code_out);
}

/* Takes the value of `token` out of the query. */
static void take_token(ls_http_exchange *r)
{
    char *query = strchr(r->target, '?');
    char *at = query ? strstr(query, "token=") : NULL;
    if (!at || (at[-1] != '?' && at[-1] != '&')) {
        return;
    }
    const char *value = at + strlen("token=");
    const size_t length = strcspn(value, "&#"), room = sizeof r->token;
    snprintf(r->token, room, "%.*s", (int)(length < room ? length : room - 1), value);
    r->has_token = true;
    const char *rest = value + length;
    rest += *rest == '&';
    memmove(at, rest, strlen(rest) + 1);
    if (at[0] == '\0') { /* nothing follows: the ? or & before it goes too */
        at[-1] = '\0';
    }
}

/* The library has read the request line. */
void *ls_http_exchange_began(void *context, const char *uri, struct MHD_Connection *library)
{
    ls_http_listener *l = context;
    const union MHD_ConnectionInfo *info =
        l->server->mhd->get_connection_info(library, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ls_http_exchange *r = calloc(1, sizeof *r);
    char *target = strdup(uri);
    LS_ASSERT(r && target && info && info->socket_context && "not enough memory for a request");
    *r = (ls_http_exchange){
        .server = l->server,
        .connection = info->socket_context,
        .library = library,
        .target = target,
        .target_at = (uintptr_t)uri,
        .target_bytes = strlen(uri),
    };
    r->connection->request = r;
    l->server->open_requests++;
    return r;
}

static void take_body(ls_http_exchange *r, const char *data, size_t bytes)
{
    ls_http_server *server = r->server;
    if (r->is_too_long || r->body.bytes + bytes > server->body_bytes_max ||
        server->body_bytes + bytes > LS_HTTP_BODIES_BYTES_MAX) {
        /* The rest is read, until the deadline, and thrown away: a client that is still writing
         * would not see the answer. */
        r->is_too_long = true;
        return;
    }
    ls_text_append_bytes(&r->body, data, bytes);
    server->body_bytes += bytes;
}

static void release_body(ls_http_exchange *r)
{
    r->server->body_bytes -= r->body.bytes;
    ls_text_release(&r->body);
}

static enum MHD_Result send_response(ls_http_exchange *r)
{
    ls_http_server *server = r->server;
    struct MHD_Response *response = r->response;
    const enum MHD_Result result = server->mhd->queue_response(r->library, r->code, response);
    r->connection->deadline_ns =
        r->stream ? 0 : ls_env_now_ns(server->env) + LS_HTTP_ANSWER_S * LS_HTTP_NS_PER_S;
    server->mhd->destroy_response(response); /* the library keeps it as long as it needs it */
    return result;
}

/* ---- requests that no handler sees ---- */

/* Answers with this thread's error, and closes the connection. */
static void refuse(ls_http_exchange *r, unsigned code, const char *word)
{
    json_t *root = json_pack("{s:s, s:s}", "error", ls_error_text(), "status", word);
    char *text = json_dumps(root, JSON_COMPACT);
    LS_ASSERT(text && "not enough memory for an answer");
    ls_http_exchange_reply(r, &(ls_http_reply){.code = code,
                                               .type = "application/json",
                                               .data = text,
                                               .bytes = strlen(text),
                                               .header = "Connection",
                                               .value = "close"});
    free(text);
    json_decref(root);
}

/*
 * A zero byte in the request line: the library's text of the target ends there, but the version,
 * which the library takes from the same buffer, begins later. A library that keeps the version
 * elsewhere is not understood, and then nothing is refused.
 */
static bool has_zero(const ls_http_exchange *r, const char *version)
{
    const uintptr_t at = (uintptr_t)version;
    return at > r->target_at + r->target_bytes + 1 && at < r->target_at + LS_HTTP_HEADER_BYTES_MAX;
}

static bool is_refused(ls_http_exchange *r, const char *version)
{
    unsigned code = 400;
    if (r->connection->is_beyond_limit) {
        (void)ls_fail(LS_ERR_INVALID,
                      "the user with id %lu has reached the limit of %d open connections to the daemon (such "
                      "as wait and logs --follow): end some of them, and try again",
                      (unsigned long)r->connection->uid, LS_HTTP_CONNECTIONS_OF_USER_MAX);
        refuse(r, 429, "limit");
    } else if (has_zero(r, version)) {
        (void)ls_fail(LS_ERR_INVALID, "the address (URL) of the request holds a zero byte");
        refuse(r, code, "invalid");
    } else if (ls_http_framing_check(r->server->mhd, r->library, &code) != LS_OK) {
        refuse(r, code, code == 501 ? "unsupported" : "invalid");
    }
    return r->response != NULL;
}

/*
 * The library calls this once with the headers, once for each piece of the body, once at the end of
 * the request, and once more when a sleeping request was resumed.
 */
enum MHD_Result ls_http_exchange_continues(void *context, struct MHD_Connection *library, const char *url,
                                           const char *method, const char *version, const char *data,
                                           size_t *bytes, void **state)
{
    (void)context, (void)library, (void)url;
    ls_http_exchange *r = *state;
    const ls_http_handler *handler = &r->server->handler;
    if (r->response) { /* it was asleep */
        return send_response(r);
    }
    if (!r->has_begun) {
        if (is_refused(r, version)) {
            return send_response(r);
        }
        r->has_begun = true;
        take_token(r);
        r->state = handler->begin(handler->context, r, method);
    } else if (*bytes > 0) {
        take_body(r, data, *bytes);
        *bytes = 0;
    } else if (!r->is_complete) {
        r->is_complete = true;
        r->connection->deadline_ns = 0; /* from here on the server takes the time, not the client */
        handler->handle(r->state);
        release_body(r);
        if (!r->response) {
            r->is_asleep = true;
            r->server->mhd->suspend_connection(r->library);
        }
    }
    return r->response ? send_response(r) : MHD_YES;
}

void ls_http_exchange_ended(void *context, struct MHD_Connection *library, void **state,
                            enum MHD_RequestTerminationCode how)
{
    (void)context, (void)library, (void)how;
    ls_http_exchange *r = *state;
    if (!r) {
        return;
    }
    ls_http_server *server = r->server;
    /* for the next request */
    r->connection->deadline_ns = ls_env_now_ns(server->env) + server->request_ns;
    r->connection->request = NULL;
    if (r->has_begun) {
        server->handler.end(r->state);
    }
    release_body(r);
    server->open_requests--;
    free(r->target);
    free(r);
    *state = NULL;
}
