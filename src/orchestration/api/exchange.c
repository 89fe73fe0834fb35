// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/api_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers ---- */

void ls_api_exchange_text(ls_api_exchange *exchange, unsigned code, const char *type, ls_text *text)
{
    ls_http_exchange_reply(exchange->http, &(ls_http_reply){.code = code,
                                                            .type = type,
                                                            .data = ls_text_string(text),
                                                            .bytes = text->bytes,
                                                            .header = exchange->allow[0] ? "Allow" : NULL,
                                                            .value = exchange->allow});
    ls_text_release(text);
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

/* The code as a word, for programs. */
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

static void call_next(ls_api_exchange *exchange)
{
    if (exchange->then && exchange->open_count == 0) {
        const ls_api_next next = exchange->then;
        exchange->then = NULL;
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
    ask->answer = json_incref((json_t *)(uintptr_t)answer);
    exchange->open_count--;
    call_next(exchange);
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
    exchange->then = next;
    call_next(exchange);
}

void ls_api_exchange_clear(ls_api_exchange *exchange)
{
    LS_ASSERT(exchange->open_count == 0);
    for (size_t i = 0; i < exchange->ask_count; i++) {
        json_decref(exchange->asks[i].answer);
    }
    exchange->ask_count = 0;
}

/* Passes on the error of a verb: its text, and the status from which a command's exit code
 * follows. */
static void pass_error(ls_api_exchange *exchange, const ls_api_ask *ask)
{
    const char *text = json_string_value(json_object_get(ask->answer, "error"));
    const bool is_asker = ask->status >= 400 && ask->status < 500;
    const ls_status status = ask->status == 404   ? LS_ERR_NOT_FOUND
                             : ask->status == 507 ? LS_ERR_DISK
                             : is_asker           ? LS_ERR_INVALID
                                                  : LS_ERR_FAILED;
    ls_fail(status, "%s", text ? text : "the request failed without an error text");
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

/* A user whom no account belongs to: who acts with a read-only token of root's. */
#define NO_USER (UINT32_MAX - 1)

static void set_caller(ls_api_exchange *exchange, const ls_http_identity *identity)
{
    /* A token that only reads is for dashboards: it shows nothing because its user administers. */
    const uint32_t uid = identity->only_reads && identity->uid == 0 ? NO_USER : identity->uid;
    const bool is_admin = !identity->only_reads && (uid == exchange->api->owner_uid || uid == 0);
    /* The number stands for the name until that is looked up. */
    snprintf(exchange->user, sizeof exchange->user, "%" PRIu32, uid);
    snprintf(exchange->token_user, sizeof exchange->token_user, "%s",
             identity->name && uid != NO_USER ? identity->name : "");
    exchange->wants_group = !identity->has_gid;
    exchange->is_unix = identity->is_unix;
    exchange->caller =
        (ls_caller){.uid = uid, .gid = identity->gid, .user = exchange->user, .is_admin = is_admin};
}

static bool makes_jobs(const ls_api_route *route)
{
    return route->kind == LS_API_VERB && (route->call == LS_VERB_SUBMIT || route->call == LS_VERB_SWEEP);
}

/* An ordinary user's daemon can't become another user, and must not run root's jobs as that
 * user. */
static bool can_run_jobs_of(const ls_api_exchange *exchange, uint32_t uid)
{
    const uint32_t owner = exchange->api->owner_uid;
    return !makes_jobs(exchange->route) || owner == 0 || uid == owner;
}

static ls_status admit(ls_api_exchange *exchange, const char *method, int *code_out)
{
    const ls_http_exchange *http = exchange->http;
    ls_http_identity identity;
    const ls_status status =
        ls_api_route_of(method, ls_http_exchange_target(http), &exchange->route, code_out);
    if (*code_out == 405) {
        ls_api_allowed_methods(ls_http_exchange_target(http), exchange->allow, sizeof exchange->allow);
    }
    LS_TRY(status);
    if (exchange->route->who == LS_API_OPEN) {
        return LS_OK;
    }
    LS_TRY(ls_http_exchange_admit(http, method, exchange->route->kind == LS_API_PAGE, &identity, code_out));
    set_caller(exchange, &identity);
    const uint32_t uid = identity.uid;
    if (exchange->route->who == LS_API_ADMIN && !exchange->caller.is_admin) {
        *code_out = 403;
        return ls_fail(LS_ERR_INVALID, "user %s may not call %s %s: only root and the daemon's owner may",
                       exchange->user, method, exchange->route->path);
    }
    if (!can_run_jobs_of(exchange, uid)) {
        *code_out = 403;
        return ls_fail(
            LS_ERR_INVALID,
            "this daemon belongs to the user with id %" PRIu32
            " and runs jobs as that user only, not as user %" PRIu32
            ": submit as the daemon's user, or to a daemon started by root, which serves every user",
            exchange->api->owner_uid, uid);
    }
    const char *length = ls_http_exchange_header(http, "Content-Length");
    if (length && strtoull(length, NULL, 10) > LS_API_BODY_BYTES_MAX) {
        *code_out = 413;
        return ls_fail(LS_ERR_INVALID, "the body of the request has %.20s bytes; at most %d are allowed",
                       length, LS_API_BODY_BYTES_MAX);
    }
    return LS_OK;
}

void *ls_api_exchange_begin(void *context, ls_http_exchange *request, const char *method)
{
    ls_api *api = context;
    ls_api_exchange *exchange = calloc(1, sizeof *exchange);
    LS_ASSERT(exchange && "not enough memory for a request");
    *exchange =
        (ls_api_exchange){.api = api, .next = api->exchanges, .here = &api->exchanges, .http = request};
    if (api->exchanges) {
        api->exchanges->here = &exchange->next;
    }
    api->exchanges = exchange;
    int code = 500;
    const ls_status status = admit(exchange, method, &code);
    if (status != LS_OK) {
        ls_api_exchange_error(exchange, (unsigned)code, status);
    } else if (exchange->route->kind == LS_API_HEALTH) {
        ls_api_exchange_json(exchange, 200, json_pack("{s:s}", "status", "ok"));
    } else if (exchange->route->kind == LS_API_PAGE) {
        (void)ls_http_exchange_move_token(request);
    }
    return exchange;
}

/* The header Idempotency-Key, as the member `key` of a submission. False: it is answered. */
static bool take_key(ls_api_exchange *exchange)
{
    const ls_api_route *route = exchange->route;
    const char *key = ls_http_exchange_header(exchange->http, "Idempotency-Key");
    if (!key || route->kind != LS_API_VERB || route->call != LS_VERB_SUBMIT ||
        json_object_get(exchange->arguments, "key")) {
        return true;
    }
    json_t *text = json_string(key);
    if (!text) {
        ls_api_exchange_error(
            exchange, 400,
            ls_fail(LS_ERR_INVALID, "the request's header Idempotency-Key is not valid UTF-8: send a key of "
                                    "ASCII characters"));
        return false;
    }
    json_object_set_new(exchange->arguments, "key", text);
    return true;
}

void ls_api_exchange_handle(void *state)
{
    ls_api_exchange *exchange = state;
    ls_api_request request;
    size_t bytes = 0;
    const char *body = ls_http_exchange_body(exchange->http, &bytes);
    int code = 413;
    const ls_status status =
        ls_http_exchange_is_too_long(exchange->http)
            ? ls_fail(
                  LS_ERR_INVALID,
                  "the body of the request is longer than %d bytes, or the bodies of all requests now being "
                  "received are longer than %d bytes together: send a shorter body, or try again later",
                  LS_API_BODY_BYTES_MAX, LS_HTTP_BODIES_BYTES_MAX)
            : ls_api_request_parse(exchange->route, ls_http_exchange_target(exchange->http), body, bytes,
                                   &request, &code);
    if (status != LS_OK) {
        ls_api_exchange_error(exchange, (unsigned)code, status);
        return;
    }
    exchange->arguments = request.arguments;
    if (!take_key(exchange)) {
        return;
    }
    const char *name = NULL;
    uint32_t gid = UINT32_MAX;
    const bool is_asked = ls_api_names_find(exchange->api->names, exchange->caller.uid, &name, &gid);
    exchange->wants_name = true;
    if (name || !is_asked) {
        ls_api_exchange_named(exchange, name, gid);
    }
}

/* ---- limits, once the user is known ---- */

static bool may_be_long(const ls_api_exchange *exchange)
{
    const json_t *timeout = json_object_get(exchange->arguments, "timeout_s");
    const bool waits = strcmp(exchange->route->verb, "wait") == 0 &&
                       !(timeout && json_integer_value(timeout) == 0); /* 0: only asks */
    return waits || exchange->route->kind == LS_API_STREAM ||
           json_is_true(json_object_get(exchange->arguments, "follow"));
}

/* Requests that stay open leave some connections to short ones, of the same user and of all. */
static bool has_place(ls_api_exchange *exchange)
{
    size_t all = 0, own = 0;
    for (const ls_api_exchange *at = exchange->api->exchanges; at; at = at->next) {
        all += at->is_long;
        own += at->is_long && at->caller.uid == exchange->caller.uid;
    }
    const bool is_owner = exchange->caller.uid == exchange->api->owner_uid;
    if (all < LS_API_LONG_MAX && (is_owner || own < LS_API_LONG_OF_USER_MAX)) {
        exchange->is_long = true;
        return true;
    }
    const bool is_own = all < LS_API_LONG_MAX;
    ls_api_exchange_error(exchange, 429,
                          ls_fail(LS_ERR_INVALID,
                                  "%zu requests that stay open (wait, logs --follow, events) are already "
                                  "open %s%s, which is the limit: end some of them first",
                                  is_own ? own : all, is_own ? "for user " : "for all users",
                                  is_own ? exchange->user : ""));
    return false;
}

/* False: it is answered. */
static bool is_user_right(ls_api_exchange *exchange, uint32_t gid)
{
    if (exchange->token_user[0] && strcmp(exchange->token_user, exchange->user) != 0) {
        ls_api_exchange_error(
            exchange, 401,
            ls_fail(LS_ERR_INVALID,
                    "this access token was made for user %s, but user id %" PRIu32
                    " now has another name, or was removed: make a new token with 'lockstep token'",
                    exchange->token_user, exchange->caller.uid));
        return false;
    }
    if (exchange->wants_group) {
        exchange->caller.gid = gid;
    }
    if (exchange->caller.gid == UINT32_MAX && makes_jobs(exchange->route)) {
        ls_api_exchange_error(exchange, 403,
                              ls_fail(LS_ERR_INVALID,
                                      "user %s has no primary group on this machine, so jobs cannot run as "
                                      "this user: ask an administrator to give the user one",
                                      exchange->user));
        return false;
    }
    return true;
}

void ls_api_exchange_named(ls_api_exchange *exchange, const char *name, uint32_t gid)
{
    exchange->wants_name = false;
    if (ls_http_exchange_is_answered(exchange->http)) {
        return; /* the daemon is stopping */
    }
    if (!name) {
        ls_api_exchange_error(exchange, 503,
                              ls_fail(LS_ERR_FAILED,
                                      "cannot resolve uid %s: the name service (NSS) is not responding; try "
                                      "again",
                                      exchange->user));
        return;
    }
    snprintf(exchange->user, sizeof exchange->user, "%s", name);
    if (is_user_right(exchange, gid) && (!may_be_long(exchange) || has_place(exchange))) {
        ls_api_answer(exchange);
    }
}

void ls_api_exchange_hung_up(void *state)
{
    ls_api_exchange *exchange = state;
    if (exchange->waiting_here) {
        ls_api_wait_forget(exchange);
        ls_api_exchange_error(exchange, 408, ls_fail(LS_ERR_FAILED, "the client has gone"));
    }
}

void ls_api_exchange_stop(void *state)
{
    ls_api_exchange_error(state, 503,
                          ls_fail(LS_ERR_FAILED, "the daemon is stopping: try again when it is back"));
}

void ls_api_exchange_end(void *state)
{
    ls_api_exchange *exchange = state;
    ls_api *api = exchange->api;
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
    ls_api_runs_drop(api->runs, exchange->run);
    ls_api_page_destroy(api, exchange->page);
    ls_api_models_forget(exchange->reading);
    ls_text_release(&exchange->text);
    json_decref(exchange->run_events);
    json_decref(exchange->named);
    ls_api_wait_forget(exchange);
    json_decref(exchange->arguments);
    *exchange->here = exchange->next;
    if (exchange->next) {
        exchange->next->here = exchange->here;
    }
    free(exchange);
}
