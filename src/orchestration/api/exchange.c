// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

/* ---- answers ---- */

static const char page_policy[] = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
                                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void wake(ls_api_exchange *exchange)
{
    if (exchange->is_asleep && exchange->response) {
        exchange->is_asleep = false;
        exchange->api->mhd->resume_connection(exchange->connection);
        ls_api_door_kick(exchange->link->door);
    }
}

void ls_api_exchange_respond(ls_api_exchange *exchange, unsigned code, struct MHD_Response *response)
{
    LS_ASSERT(response && "out of memory for an answer");
    LS_ASSERT(!exchange->response);
    const ls_microhttpd *mhd = exchange->api->mhd;
    mhd->add_response_header(response, "X-Content-Type-Options", "nosniff");
    mhd->add_response_header(response, "X-Frame-Options", "DENY");
    mhd->add_response_header(response, "Referrer-Policy", "no-referrer");
    mhd->add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    mhd->add_response_header(response, "Content-Security-Policy", page_policy);
    mhd->add_response_header(response, "Cache-Control", "no-store");
    if (code == 401) {
        mhd->add_response_header(response, "WWW-Authenticate", "Bearer");
    }
    if (code == 503) {
        mhd->add_response_header(response, "Retry-After", "2");
    }
    exchange->code = code;
    exchange->response = response;
    wake(exchange);
}

void ls_api_exchange_text(ls_api_exchange *exchange, unsigned code, const char *type, ls_text *text)
{
    const ls_microhttpd *mhd = exchange->api->mhd;
    struct MHD_Response *response = mhd->create_response_from_buffer(
        text->bytes, (void *)(uintptr_t)ls_text_string(text), MHD_RESPMEM_MUST_COPY);
    ls_text_release(text);
    LS_ASSERT(response && "out of memory for an answer");
    mhd->add_response_header(response, "Content-Type", type);
    ls_api_exchange_respond(exchange, code, response);
}

void ls_api_exchange_json(ls_api_exchange *exchange, unsigned code, json_t *root)
{
    char *dump = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    ls_text text = {0};
    ls_text_append(&text, dump ? dump : "{}");
    ls_text_append(&text, "\n");
    free(dump);
    json_decref(root);
    ls_api_exchange_text(exchange, code, "application/json", &text);
}

/* A word for the code: what a program looks at. */
static const char *word_of(unsigned code, ls_status status)
{
    static const struct {
        unsigned code;
        const char *word;
    } words[] = {{400, "invalid"},   {401, "unauthorized"}, {403, "forbidden"}, {404, "not found"},
                 {405, "method"},    {408, "timeout"},      {409, "conflict"},  {413, "too large"},
                 {414, "too large"}, {415, "media type"},   {429, "limit"},     {503, "unavailable"},
                 {504, "timeout"},   {507, "disk"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].code == code) {
            return words[i].word;
        }
    }
    return ls_status_name(status);
}

void ls_api_exchange_error(ls_api_exchange *exchange, unsigned code, ls_status status)
{
    ls_api_exchange_json(exchange, code,
                         json_pack("{s:s#, s:s}", "error", ls_error_text(), (int)strlen(ls_error_text()),
                                   "status", word_of(code, status)));
}

/* ---- verbs ---- */

static void go_on(ls_api_exchange *exchange)
{
    if (exchange->next && exchange->open_count == 0) {
        const ls_api_next next = exchange->next;
        exchange->next = NULL;
        next(exchange);
    }
}

static void hear(void *context, int status, const json_t *answer)
{
    ls_api_ask *ask = context;
    ls_api_exchange *exchange = ask->exchange;
    LS_ASSERT(exchange);
    ask->exchange = NULL;
    ask->status = status;
    ask->answer = json_deep_copy(answer);
    exchange->open_count--;
    go_on(exchange);
}

void ls_api_exchange_ask(ls_api_exchange *exchange, ls_verb verb, json_t *arguments)
{
    LS_ASSERT(exchange->ask_count < LS_API_ASKS_MAX);
    ls_api_ask *ask = &exchange->asks[exchange->ask_count++];
    *ask = (ls_api_ask){.exchange = exchange};
    exchange->open_count++;
    const ls_api_calls *calls = &exchange->api->calls;
    calls->call(calls->context, &exchange->caller, verb, arguments, hear, ask);
    json_decref(arguments);
}

void ls_api_exchange_then(ls_api_exchange *exchange, ls_api_next next)
{
    exchange->next = next;
    go_on(exchange);
}

void ls_api_exchange_clear(ls_api_exchange *exchange)
{
    LS_ASSERT(exchange->open_count == 0);
    for (size_t i = 0; i < exchange->ask_count; i++) {
        json_decref(exchange->asks[i].answer);
    }
    exchange->ask_count = 0;
}

/* What a verb says when it can't: its text with the status that a command's exit code follows from. */
static void pass_error(ls_api_exchange *exchange, const ls_api_ask *ask)
{
    const char *text = json_string_value(json_object_get(ask->answer, "error"));
    const bool is_asker = ask->status >= 400 && ask->status < 500;
    const ls_status status = ask->status == 404   ? LS_ERR_NOT_FOUND
                             : ask->status == 507 ? LS_ERR_DISK
                             : is_asker           ? LS_ERR_INVALID
                                                  : LS_ERR_FAILED;
    ls_fail(status, "%s", text ? text : "the request failed, without a word");
    ls_api_exchange_error(exchange, (unsigned)ask->status, status);
}

bool ls_api_exchange_is_well(ls_api_exchange *exchange)
{
    for (size_t i = 0; i < exchange->ask_count; i++) {
        const int status = exchange->asks[i].status;
        if (status < 200 || status > 299 || !exchange->asks[i].answer) {
            pass_error(exchange, &exchange->asks[i]);
            return false;
        }
    }
    return true;
}

/* ---- what comes in ---- */

void *ls_api_exchange_begin(void *context, const char *uri, struct MHD_Connection *connection)
{
    ls_api_door *door = context;
    const union MHD_ConnectionInfo *info =
        door->api->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ls_api_exchange *exchange = calloc(1, sizeof *exchange);
    char *target = strdup(uri);
    LS_ASSERT(exchange && target && info && info->socket_context && "out of memory for a request");
    exchange->api = door->api;
    exchange->link = info->socket_context;
    exchange->connection = connection;
    exchange->target = target;
    exchange->link->exchange = exchange;
    door->api->open_exchanges++;
    return exchange;
}

static const char *header(const ls_api_exchange *exchange, const char *name)
{
    return exchange->api->mhd->lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

static void set_caller(ls_api_exchange *exchange, uint32_t uid)
{
    const ls_api *api = exchange->api;
    const bool is_owner = uid == api->guard.owner_uid;
    snprintf(exchange->user, sizeof exchange->user, "%" PRIu32, uid); /* its name: once all of it is there */
    exchange->caller = (ls_caller){
        .uid = uid,
        .gid = exchange->link->door->is_unix ? exchange->link->gid : api->owner_gid,
        .user = exchange->user,
        .is_admin = is_owner || uid == 0,
    };
}

/* The value of `token` in the query, taken out of the target; false: there is none. */
static bool take_token(char *target, char *token, size_t bytes)
{
    char *query = strchr(target, '?');
    char *at = query ? strstr(query, "token=") : NULL;
    if (!at || (at[-1] != '?' && at[-1] != '&')) {
        return false;
    }
    const char *value = at + strlen("token=");
    const size_t length = strcspn(value, "&#");
    snprintf(token, bytes, "%.*s", (int)(length < bytes ? length : bytes - 1), value);
    const char *rest = value + length;
    rest += *rest == '&';
    memmove(at, rest, strlen(rest) + 1);
    if (at[0] == '\0') { /* nothing behind it: the ? or & before it goes too */
        at[-1] = '\0';
    }
    return true;
}

/* A page that was opened with the token: it goes into a cookie, and out of the address that browsers keep. */
static void move_token_to_cookie(ls_api_exchange *exchange)
{
    const ls_microhttpd *mhd = exchange->api->mhd;
    struct MHD_Response *response = mhd->create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    LS_ASSERT(response);
    char cookie[LS_API_TOKEN_BYTES + 96];
    snprintf(cookie, sizeof cookie, "lockstep_token=%s; HttpOnly; SameSite=Strict; Path=/%s",
             exchange->api->guard.token, strcmp(exchange->api->guard.scheme, "https") == 0 ? "; Secure" : "");
    mhd->add_response_header(response, "Set-Cookie", cookie);
    mhd->add_response_header(response, "Location", exchange->target);
    ls_api_exchange_respond(exchange, 303, response);
}

/* A user's daemon can't become another user, and root's jobs are not to run as somebody else. */
static bool can_run_jobs_of(const ls_api_exchange *exchange, uint32_t uid)
{
    const ls_api_route *route = exchange->route;
    const uint32_t owner = exchange->api->guard.owner_uid;
    const bool is_new_job =
        route->kind == LS_API_VERB && (route->call == LS_VERB_SUBMIT || route->call == LS_VERB_SWEEP);
    return !is_new_job || owner == 0 || uid == owner;
}

static ls_status admit(ls_api_exchange *exchange, const char *method, const char *token, int *code_out)
{
    LS_TRY(ls_api_route_of(method, exchange->target, &exchange->route, code_out));
    const ls_api_link *link = exchange->link;
    const ls_api_visitor visitor = {
        .is_unix = link->door->is_unix,
        .is_peer_known = link->is_peer_known,
        .peer_uid = link->uid,
        .changes_something = strcmp(method, "POST") == 0,
        .is_page = exchange->route->kind == LS_API_PAGE,
        .host = header(exchange, "Host"),
        .origin = header(exchange, "Origin"),
        .fetch_site = header(exchange, "Sec-Fetch-Site"),
        .fetch_mode = header(exchange, "Sec-Fetch-Mode"),
        .authorization = header(exchange, "Authorization"),
        .cookie = header(exchange, "Cookie"),
        .content_type = header(exchange, "Content-Type"),
        .token = token,
    };
    uint32_t uid = 0;
    LS_TRY(ls_api_guard_admit(&exchange->api->guard, &visitor, &uid, code_out));
    set_caller(exchange, uid);
    if (exchange->route->who == LS_API_ADMIN && !exchange->caller.is_admin) {
        *code_out = 403;
        return ls_fail(LS_ERR_INVALID, "%s %s is for root and for who runs the daemon, not for user %s",
                       method, exchange->route->path, exchange->user);
    }
    if (!can_run_jobs_of(exchange, uid)) {
        *code_out = 403;
        return ls_fail(LS_ERR_INVALID,
                       "this daemon is user %" PRIu32 "'s and runs jobs as that user alone, not as user "
                       "%" PRIu32 "; submit as that user, or to a daemon of root's, which serves everybody",
                       exchange->api->guard.owner_uid, uid);
    }
    const char *length = header(exchange, "Content-Length");
    if (length && strtoull(length, NULL, 10) > LS_API_BODY_BYTES_MAX) {
        *code_out = 413;
        return ls_fail(LS_ERR_INVALID, "the body has %.20s bytes, allowed are %d", length,
                       LS_API_BODY_BYTES_MAX);
    }
    return LS_OK;
}

/* The request line and headers are there. */
static void take_head(ls_api_exchange *exchange, const char *method)
{
    int code = 500;
    char token[2 * LS_API_TOKEN_BYTES];
    const bool has_token = take_token(exchange->target, token, sizeof token);
    const ls_status status = admit(exchange, method, has_token ? token : NULL, &code);
    if (status != LS_OK) {
        ls_api_exchange_error(exchange, (unsigned)code, status);
    } else if (has_token && exchange->route->kind == LS_API_PAGE) {
        move_token_to_cookie(exchange);
    }
}

static void take_body(ls_api_exchange *exchange, const char *data, size_t bytes)
{
    ls_api *api = exchange->api;
    if (exchange->is_too_long || exchange->body.bytes + bytes > LS_API_BODY_BYTES_MAX ||
        api->body_bytes + bytes > LS_API_BODIES_BYTES_MAX) {
        exchange->is_too_long = true; /* the rest is read, for the deadline's while, and thrown away */
        return;
    }
    ls_text_append_bytes(&exchange->body, data, bytes);
    api->body_bytes += bytes;
}

static void release_body(ls_api_exchange *exchange)
{
    exchange->api->body_bytes -= exchange->body.bytes;
    ls_text_release(&exchange->body);
}

/* All of it is there. */
static void handle(ls_api_exchange *exchange)
{
    ls_api_request request;
    int code = 413;
    ls_status status =
        exchange->is_too_long
            ? ls_fail(LS_ERR_INVALID,
                      "the body has more than %d bytes, or others fill the %d there are for all: "
                      "send less, or again later",
                      LS_API_BODY_BYTES_MAX, LS_API_BODIES_BYTES_MAX)
            : ls_api_request_parse(exchange->route, exchange->target, ls_text_string(&exchange->body),
                                   exchange->body.bytes, &request, &code);
    release_body(exchange);
    if (status != LS_OK) {
        ls_api_exchange_error(exchange, (unsigned)code, status);
        return;
    }
    exchange->arguments = request.arguments;
    const char *name = NULL;
    const bool is_asked = ls_api_names_find(exchange->api->names, exchange->caller.uid, &name);
    exchange->wants_name = true;
    if (name || !is_asked) {
        ls_api_exchange_named(exchange, name);
    }
}

void ls_api_exchange_named(ls_api_exchange *exchange, const char *name)
{
    exchange->wants_name = false;
    if (exchange->response) {
        return; /* the daemon ends */
    }
    if (!name) {
        ls_api_exchange_error(exchange, 503,
                              ls_fail(LS_ERR_FAILED,
                                      "what user %s is called can't be learned now: whoever knows the names "
                                      "of users here (NSS) does not answer",
                                      exchange->user));
        return;
    }
    snprintf(exchange->user, sizeof exchange->user, "%s", name);
    ls_api_answer(exchange);
}

static enum MHD_Result queue(ls_api_exchange *exchange)
{
    const ls_microhttpd *mhd = exchange->api->mhd;
    struct MHD_Response *response = exchange->response;
    const enum MHD_Result result = mhd->queue_response(exchange->connection, exchange->code, response);
    mhd->destroy_response(response); /* the library holds it as long as it takes */
    exchange->link->deadline_ns =
        exchange->is_stream ? 0 : ls_env_now_ns(exchange->api->env) + LS_API_ANSWER_S * NS_PER_S;
    return result;
}

enum MHD_Result ls_api_exchange_take(void *context, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *data, size_t *bytes,
                                     void **state)
{
    (void)context, (void)connection, (void)url, (void)version;
    ls_api_exchange *exchange = *state;
    if (exchange->response) { /* it was asleep */
        return queue(exchange);
    }
    exchange->is_inside = true;
    if (!exchange->has_begun) {
        exchange->has_begun = true;
        take_head(exchange, method);
    } else if (*bytes > 0) {
        take_body(exchange, data, *bytes);
        *bytes = 0;
    } else if (!exchange->is_handled) {
        exchange->is_handled = true;
        exchange->link->deadline_ns = 0; /* now it is we who take time */
        handle(exchange);
        if (!exchange->response) {
            exchange->is_asleep = true;
            exchange->api->mhd->suspend_connection(exchange->connection);
        }
    }
    exchange->is_inside = false;
    return exchange->response ? queue(exchange) : MHD_YES;
}

void ls_api_exchange_end(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
    (void)context, (void)connection, (void)how;
    ls_api_exchange *exchange = *state;
    if (!exchange) {
        return;
    }
    ls_api *api = exchange->api;
    exchange->link->deadline_ns = ls_env_now_ns(api->env) + api->request_ns; /* for the next one */
    exchange->link->exchange = NULL;
    for (size_t i = 0; i < exchange->ask_count; i++) {
        if (exchange->asks[i].exchange) {
            api->calls.forget(api->calls.context, &exchange->asks[i]);
        }
        json_decref(exchange->asks[i].answer);
    }
    if (exchange->question) {
        ls_user_files_forget(api->files, exchange->question);
    }
    if (exchange->again) {
        ls_env_timer_cancel(api->env, exchange->again);
    }
    ls_api_histories_drop(api->histories, exchange->history);
    json_decref(exchange->run_events);
    ls_api_wait_forget(exchange);
    release_body(exchange);
    json_decref(exchange->arguments);
    api->open_exchanges--;
    free(exchange->target);
    free(exchange);
    *state = NULL;
}
