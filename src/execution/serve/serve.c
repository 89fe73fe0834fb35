// SPDX-License-Identifier: Apache-2.0
#include "execution/serve/serve.h"

#include "base/assert.h"
#include "env/http/http_listen.h"
#include "env/http/http_server.h"
#include "execution/serve/serve_internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BODY_BYTES_MAX = 8 * 1024 * 1024,
    ANSWERS_MAX = 1024,         /* under way and in the queue */
    UNREAD_BYTES_MAX = 1 << 20, /* of a stream: a client that does not read is disconnected */
    IDLE_WAIT_S = 1,
};

typedef struct server {
    ls_env *env;
    const ls_serve_settings *settings;
    ls_http_server *http;
    ls_serve_answer *first, **last; /* the queue */
    size_t answers;                 /* under way and in the queue */
    struct exchange *exchanges;
    uint64_t next_number;
    bool is_stopping, is_over;
} server;

/* A request. Its job lives until neither the exchange nor the stream needs it. */
typedef struct exchange {
    struct exchange *next, **here; /* all of the server */
    server *server;
    ls_http_exchange *http; /* NULL: it has ended */
    ls_http_stream *stream; /* NULL: none, or it has ended */
    unsigned route;
    ls_serve_job job;
} exchange;

/* ---- replies ---- */

static void reply_json(exchange *x, unsigned code, json_t *root, const char *allow)
{
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    const char *data = text ? text : "{\"error\":{\"message\":\"the request is not valid\"}}";
    ls_http_exchange_reply(x->http, &(ls_http_reply){.code = code,
                                                     .type = "application/json",
                                                     .data = data,
                                                     .bytes = strlen(data),
                                                     .header = allow ? "Allow" : NULL,
                                                     .value = allow});
    free(text);
    json_decref(root);
}

/* Answers with this thread's error. */
static void reply_error(exchange *x, unsigned code, const char *param)
{
    reply_json(x, code, ls_serve_answer_error(code, ls_error_text(), param), NULL);
}

/* ---- the queue ---- */

static exchange *exchange_of(ls_serve_job *job)
{
    return (exchange *)(void *)((char *)job - offsetof(exchange, job));
}

static void enqueue(server *s, ls_serve_answer *a)
{
    a->next = NULL;
    *s->last = a;
    s->last = &a->next;
    s->answers++;
}

static void dequeue(server *s, const ls_serve_answer *a)
{
    for (ls_serve_answer **at = &s->first; *at; at = &(*at)->next) {
        if (*at == a) {
            *at = a->next;
            s->last = a->next ? s->last : at;
            return;
        }
    }
}

/* Ends the answers of a job that nobody waits for. Not during a step. */
static void cancel_job(exchange *x)
{
    server *s = x->server;
    for (size_t i = 0; i < x->job.answer_count; i++) {
        ls_serve_answer *a = &x->job.answers[i];
        if (a->finish) {
            continue;
        }
        if (a->is_running) {
            ls_generator_cancel(s->settings->generator, a->slot);
        } else {
            dequeue(s, a);
        }
        a->finish = "cancelled";
        s->answers--;
    }
    x->job.open_count = 0;
}

static void release_job(ls_serve_job *job)
{
    for (size_t i = 0; i < job->answer_count; i++) {
        ls_answer_text_release(&job->answers[i].echo);
        ls_answer_text_release(&job->answers[i].text);
        free(job->answers[i].scored);
    }
    free(job->answers);
    ls_serve_request_release(&job->request);
}

static void drop_exchange(exchange *x)
{
    if (x->http || x->stream) {
        return;
    }
    cancel_job(x);
    release_job(&x->job);
    *x->here = x->next;
    if (x->next) {
        x->next->here = x->here;
    }
    free(x);
}

/* ---- what a text says ---- */

/* Sends what is new. False: the client does not read it. */
static bool send_events(exchange *x, ls_serve_answer *a)
{
    ls_text events = {0};
    if (!x->stream || ls_http_stream_is_ending(x->stream)) {
        return false; /* the client has gone */
    }
    ls_serve_answer_append_events(a, &events);
    ls_http_stream_put(x->stream, ls_text_string(&events), events.bytes);
    ls_text_release(&events);
    return ls_http_stream_waiting(x->stream) <= UNREAD_BYTES_MAX;
}

static bool take_prompt_token(ls_serve_answer *a, int32_t token, const ls_text_scores *scores)
{
    ls_serve_answer_keep_scores(a, token, scores);
    a->prompt_seen++;
    LS_ASSERT(ls_answer_text_add(&a->echo, token) == LS_OK && "not enough memory for an answer");
    if (a->prompt_seen == a->prompt->count) {
        LS_ASSERT(ls_answer_text_end(&a->echo) == LS_OK && "not enough memory for an answer");
    }
    return true;
}

/* Ids that end the answers of a request. */
static size_t count_stops(const exchange *x)
{
    const ls_serve_settings *settings = x->server->settings;
    return x->job.request.is_chat ? settings->chat_stop_count : settings->stop_count;
}

/* The id that ends an answer has no part in its text, special or not. */
static bool is_stop(const exchange *x, int32_t token)
{
    for (size_t i = 0; i < count_stops(x); i++) {
        if (x->server->settings->stops[i] == token) {
            return true;
        }
    }
    return false;
}

static bool on_token(void *context, int32_t token, const ls_text_scores *scores)
{
    ls_serve_answer *a = context;
    exchange *x = exchange_of(a->job);
    const ls_serve_request *request = &a->job->request;
    if (request->echo && request->scores && a->prompt_seen < a->prompt->count) {
        return take_prompt_token(a, token, scores);
    }
    a->new_tokens++;
    if (request->scores) {
        ls_serve_answer_keep_scores(a, token, scores);
    }
    LS_ASSERT((is_stop(x, token) || ls_answer_text_add(&a->text, token) == LS_OK) &&
              "not enough memory for an answer");
    if (a->text.is_stopped) {
        return false;
    }
    return !request->streams || send_events(x, a);
}

static void finish_job(exchange *x)
{
    if (!x->job.request.streams) {
        reply_json(x, 200, ls_serve_answer_response(&x->job), NULL);
        return;
    }
    ls_text events = {0};
    ls_serve_answer_append_end(&x->job, &events);
    ls_http_stream_put(x->stream, ls_text_string(&events), events.bytes);
    ls_http_stream_end(x->stream);
    ls_text_release(&events);
}

static void on_end(void *context, ls_text_end end)
{
    ls_serve_answer *a = context;
    exchange *x = exchange_of(a->job);
    const bool is_gone = a->job->request.streams && (!x->stream || ls_http_stream_is_ending(x->stream));
    a->finish = end == LS_TEXT_FULL ? "length" : "stop";
    a->is_running = false;
    x->server->answers--;
    a->job->open_count--;
    LS_ASSERT(ls_answer_text_end(&a->text) == LS_OK && "not enough memory for an answer");
    if (is_gone) {
        return;
    }
    if (end == LS_TEXT_REFUSED && !a->text.is_stopped) { /* it does not read */
        ls_http_stream_end(x->stream);
        return;
    }
    if (a->job->request.streams) {
        (void)send_events(x, a);
    }
    if (a->job->open_count == 0) {
        finish_job(x);
    }
}

static ls_status start_answer(server *s, ls_serve_answer *a)
{
    const ls_serve_request *r = &a->job->request;
    ls_text_request text = {
        .prompt = a->prompt->ids,
        .prompt_count = a->prompt->count,
        .count = r->max_tokens,
        .stops = s->settings->stops,
        .stop_count = count_stops(exchange_of(a->job)),
        .reports_stop = true,
        .sampling = r->sampling,
        .scores = r->scores,
        .scores_prompt = r->scores && r->echo,
        .top_count = (uint32_t)r->top_count,
        .on_token = on_token,
        .on_end = on_end,
        .context = a,
    };
    text.sampling.seed += r->has_seed ? a->index % r->n : a->index;
    a->is_running = true;
    return ls_generator_start(s->settings->generator, &text, &a->slot);
}

/* ---- a new job ---- */

static void init_answer(exchange *x, size_t index)
{
    ls_serve_job *job = &x->job;
    const ls_serve_request *r = &job->request;
    ls_serve_answer *a = &job->answers[index];
    *a = (ls_serve_answer){
        .job = job,
        .index = (uint32_t)index,
        .prompt = &r->prompts[index / r->n],
        .echo = {.tokenizer = job->model->tokenizer},
        .text = {.tokenizer = job->model->tokenizer, .stops = r->stops, .stop_count = r->stop_count}};
    if (r->is_chat) {
        return;
    }
    ls_status status = ls_answer_text_follow(&a->text, a->prompt->ids, a->prompt->count);
    for (size_t i = 0; r->echo && !r->scores && i < a->prompt->count && status == LS_OK; i++) {
        status = ls_answer_text_add(&a->echo, a->prompt->ids[i]);
    }
    LS_ASSERT(status == LS_OK && ls_answer_text_end(&a->echo) == LS_OK && "not enough memory for an answer");
}

static void stream_closed(void *context)
{
    exchange *x = context;
    x->stream = NULL;
    cancel_job(x);
    drop_exchange(x);
}

static void start_job(exchange *x)
{
    server *s = x->server;
    ls_serve_job *job = &x->job;
    job->number = s->next_number++;
    job->created_s = ls_env_wall_s(s->env);
    job->answer_count = job->open_count = job->request.prompt_count * job->request.n;
    job->answers = calloc(job->answer_count, sizeof *job->answers);
    LS_ASSERT(job->answers && "not enough memory for a request");
    if (!job->request.has_seed) {
        job->request.sampling.seed = ls_env_random_u64(s->env) >> 1;
    }
    for (size_t i = 0; i < job->answer_count; i++) {
        init_answer(x, i);
        enqueue(s, &job->answers[i]);
    }
    if (job->request.streams) {
        x->stream = ls_http_exchange_stream(x->http, "text/event-stream",
                                            &(ls_http_stream_calls){.context = x, .closed = stream_closed});
    }
}

static unsigned code_of(ls_status status)
{
    return status == LS_ERR_NOT_FOUND ? 404 : 400;
}

static void handle_post(exchange *x, bool is_chat)
{
    server *s = x->server;
    size_t bytes = 0;
    const char *body = ls_http_exchange_body(x->http, &bytes), *param = NULL;
    x->job.model = &s->settings->model;
    const ls_status status =
        ls_serve_request_read(&s->settings->model, is_chat, body, bytes, &x->job.request, &param);
    if (status != LS_OK) {
        reply_error(x, code_of(status), param);
        return;
    }
    if (s->answers + x->job.request.prompt_count * x->job.request.n > ANSWERS_MAX) {
        (void)ls_fail(LS_ERR_FAILED,
                      "%zu answers are under way or wait for a slot already, and at most %d "
                      "may: try again later",
                      s->answers, ANSWERS_MAX);
        reply_error(x, 429, NULL);
        return;
    }
    start_job(x);
}

/* ---- routes ---- */

enum { ROUTE_HEALTH, ROUTE_MODELS, ROUTE_COMPLETIONS, ROUTE_CHAT, ROUTES };

static const struct {
    const char *path, *method;
} routes[ROUTES] = {
    [ROUTE_HEALTH] = {"/health", "GET"},
    [ROUTE_MODELS] = {"/v1/models", "GET"},
    [ROUTE_COMPLETIONS] = {"/v1/completions", "POST"},
    [ROUTE_CHAT] = {"/v1/chat/completions", "POST"},
};

static ls_status find_route(const char *target, const char *method, unsigned *route_out, unsigned *code_out)
{
    const size_t bytes = strcspn(target, "?");
    for (unsigned i = 0; i < ROUTES; i++) {
        if (strlen(routes[i].path) == bytes && strncmp(routes[i].path, target, bytes) == 0) {
            *route_out = i;
            *code_out = 405;
            return strcmp(routes[i].method, method) == 0
                       ? LS_OK
                       : ls_fail(LS_ERR_INVALID, "%s takes %s requests only", routes[i].path,
                                 routes[i].method);
        }
    }
    *code_out = 404;
    return ls_fail(LS_ERR_NOT_FOUND,
                   "there is nothing at %.100s: the server has /v1/completions, "
                   "/v1/chat/completions, /v1/models and /health",
                   target);
}

static ls_status admit(exchange *x, const char *method, unsigned *code_out)
{
    int code = 0;
    ls_http_identity identity;
    LS_TRY(find_route(ls_http_exchange_target(x->http), method, &x->route, code_out));
    if (x->route == ROUTE_HEALTH) {
        return LS_OK;
    }
    const ls_status status = ls_http_exchange_admit(x->http, method, false, &identity, &code);
    *code_out = (unsigned)code;
    if (status != LS_OK && code == 401) {
        return ls_fail(LS_ERR_INVALID,
                       x->server->settings->token
                           ? "the access token of this server is missing or wrong: send it as "
                             "'Authorization: Bearer TOKEN'"
                           : "only processes of the user who started this server may use it: start it with "
                             "--token-file FILE and send that token");
    }
    LS_TRY(status);
    const char *length = ls_http_exchange_header(x->http, "Content-Length");
    *code_out = 413;
    return length && strtoull(length, NULL, 10) > BODY_BYTES_MAX
               ? ls_fail(LS_ERR_INVALID, "the body of the request has %.20s bytes; at most %d are allowed",
                         length, BODY_BYTES_MAX)
               : LS_OK;
}

static void *begin(void *context, ls_http_exchange *http, const char *method)
{
    server *s = context;
    exchange *x = calloc(1, sizeof *x);
    LS_ASSERT(x && "not enough memory for a request");
    *x = (exchange){.next = s->exchanges, .here = &s->exchanges, .server = s, .http = http};
    if (s->exchanges) {
        s->exchanges->here = &x->next;
    }
    s->exchanges = x;
    unsigned code = 500;
    if (s->is_stopping) {
        (void)ls_fail(LS_ERR_FAILED, "the server is stopping");
        reply_error(x, 503, NULL);
    } else if (admit(x, method, &code) != LS_OK) {
        reply_json(x, code, ls_serve_answer_error(code, ls_error_text(), NULL),
                   code == 405 ? routes[x->route].method : NULL);
    }
    return x;
}

static void handle(void *state)
{
    exchange *x = state;
    const ls_serve_settings *settings = x->server->settings;
    if (ls_http_exchange_is_too_long(x->http)) {
        (void)ls_fail(LS_ERR_INVALID,
                      "the body of the request is longer than %d bytes, or too many requests "
                      "are being received: send a shorter body, or try again later",
                      BODY_BYTES_MAX);
        reply_error(x, 413, NULL);
    } else if (x->route == ROUTE_HEALTH) {
        reply_json(x, 200, json_pack("{s:s}", "status", "ok"), NULL);
    } else if (x->route == ROUTE_MODELS) {
        json_t *model =
            json_pack("{s:s, s:s, s:s, s:I}", "id", settings->model.name, "object", "model", "owned_by",
                      "lockstep", "max_model_len", (json_int_t)settings->model.context);
        reply_json(x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model), NULL);
    } else {
        handle_post(x, x->route == ROUTE_CHAT);
    }
}

static void hung_up(void *state)
{
    exchange *x = state;
    cancel_job(x);
    (void)ls_fail(LS_ERR_FAILED, "the client has gone");
    reply_error(x, 408, NULL);
}

static void stop_exchange(void *state)
{
    exchange *x = state;
    cancel_job(x);
    (void)ls_fail(LS_ERR_FAILED, "the server is stopping");
    reply_error(x, 503, NULL);
}

static void end_exchange(void *state)
{
    exchange *x = state;
    x->http = NULL;
    if (!x->stream) {
        cancel_job(x);
    }
    drop_exchange(x);
}

static void beat(void *context)
{
    (void)context;
}

/* ---- the loop ---- */

static ls_status start_waiting(server *s)
{
    while (s->first && ls_generator_texts(s->settings->generator) < s->settings->slots) {
        ls_serve_answer *a = s->first;
        dequeue(s, a);
        LS_TRY(start_answer(s, a));
    }
    return LS_OK;
}

static void on_signal(void *context)
{
    server *s = context;
    s->is_over = s->is_stopping; /* the second one does not wait */
    s->is_stopping = true;
}

static ls_status run_loop(server *s)
{
    uint64_t end_ns = 0;
    while (!s->is_over) {
        LS_TRY(start_waiting(s));
        const bool is_busy = ls_generator_texts(s->settings->generator) > 0;
        if (is_busy) {
            LS_TRY(ls_generator_step(s->settings->generator));
        }
        ls_env_poll(s->env, is_busy ? 0 : IDLE_WAIT_S * UINT64_C(1000000000));
        if (s->is_stopping) {
            const uint64_t now_ns = ls_env_now_ns(s->env);
            end_ns = end_ns ? end_ns : now_ns + (uint64_t)(1e9 * s->settings->grace_s);
            s->is_over = s->is_over || s->answers == 0 || now_ns >= end_ns;
        }
    }
    return LS_OK;
}

/* Streams that the end of the server cuts off are told so. */
static void end_streams(server *s)
{
    for (exchange *x = s->exchanges; x; x = x->next) {
        if (x->stream && !ls_http_stream_is_ending(x->stream)) {
            json_t *error = ls_serve_answer_error(503, "the server is stopping", NULL);
            char *text = json_dumps(error, JSON_COMPACT);
            ls_text event = {0};
            ls_text_printf(&event, "data: %s\n\n", text ? text : "{}");
            ls_http_stream_put(x->stream, ls_text_string(&event), event.bytes);
            ls_http_stream_end(x->stream);
            ls_text_release(&event);
            free(text);
            json_decref(error);
        }
    }
}

static bool find_token(void *tokens, const char *token, ls_http_identity *identity_out)
{
    /* both have LS_HTTP_TOKEN_BYTES; compared in a time that does not depend on what differs */
    const char *own = tokens;
    unsigned difference = 0;
    for (size_t i = 0; i < LS_HTTP_TOKEN_BYTES; i++) {
        difference |= (unsigned char)own[i] ^ (unsigned char)token[i];
    }
    *identity_out = (ls_http_identity){.uid = (uint32_t)geteuid()};
    return difference == 0;
}

static ls_status open_http(server *s)
{
    const ls_serve_settings *settings = s->settings;
    return ls_http_server_create(
        &(ls_http_settings){
            .env = s->env,
            .listen = settings->listen,
            .find_token = settings->token ? find_token : NULL,
            .tokens = (void *)(uintptr_t)settings->token,
            .admits_owner = settings->token == NULL,
            .body_bytes_max = BODY_BYTES_MAX,
            .certificate = settings->certificate,
            .key = settings->key,
            .tls_settings = "--tls-certificate and --tls-key",
            .handler = {.context = s,
                        .begin = begin,
                        .handle = handle,
                        .hung_up = hung_up,
                        .stop = stop_exchange,
                        .end = end_exchange,
                        .beat = beat},
        },
        &s->http);
}

ls_status ls_serve_run(ls_env *env, const ls_serve_settings *settings)
{
    server s = {.env = env, .settings = settings, .next_number = 1};
    s.last = &s.first;
    ls_env_signal_watch(env, SIGINT, on_signal, &s);
    ls_env_signal_watch(env, SIGTERM, on_signal, &s);
    LS_TRY(open_http(&s));
    settings->started(settings->context, ls_http_server_address(s.http));
    const ls_status status = run_loop(&s);
    end_streams(&s);
    ls_http_server_destroy(s.http);
    LS_ASSERT(!s.exchanges && s.answers == 0);
    return status;
}
