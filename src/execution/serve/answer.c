// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "execution/serve/serve_internal.h"
#include "execution/serve/tool_calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- log-probabilities ---- */

static void count_characters(ls_serve_answer *a, const ls_text_buffer *text, size_t before)
{
    for (; a->counted_bytes < before + text->bytes; a->counted_bytes++) {
        a->counted += ((unsigned char)text->data[a->counted_bytes - before] & 0xc0) != 0x80;
    }
}

void ls_serve_answer_keep_scores(ls_serve_answer *a, int32_t token, const ls_text_scores *scores)
{
    if (a->scored_count == a->scored_capacity) {
        a->scored_capacity = 2 * a->scored_capacity + 16;
        a->scored = realloc(a->scored, a->scored_capacity * sizeof *a->scored);
        LS_ASSERT(a->scored && "not enough memory for log-probabilities");
    }
    count_characters(a, &a->echo.text, 0);
    count_characters(a, &a->text.text, a->echo.text.bytes);
    a->scored[a->scored_count++] = (ls_scored_token){
        .token = token,
        .has_scores = scores != NULL,
        .offset = a->counted,
        .scores = scores ? *scores : (ls_text_scores){0},
    };
}

static json_t *name_of(const ls_serve_answer *a, int32_t token)
{
    ls_text name = {0};
    ls_answer_token_name(a->job->model->tokenizer, token, &name);
    json_t *text = json_stringn(ls_text_string(&name), name.bytes);
    ls_text_release(&name);
    return text ? text : json_string("?");
}

/* {"the": -0.1, ...}: the likeliest tokens and the one that came. */
static json_t *top_map(const ls_serve_answer *a, const ls_scored_token *t)
{
    json_t *map = json_object();
    for (uint32_t i = 0; i < t->scores.top_count; i++) {
        json_t *name = name_of(a, t->scores.top[i]);
        json_object_set_new(map, json_string_value(name), json_real(t->scores.top_logprob[i]));
        json_decref(name);
    }
    json_t *own = name_of(a, t->token);
    json_object_set_new(map, json_string_value(own), json_real(t->scores.logprob));
    json_decref(own);
    return map;
}

static json_t *completion_logprobs(const ls_serve_answer *a, size_t from)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    for (size_t i = from; i < a->scored_count; i++) {
        const ls_scored_token *t = &a->scored[i];
        json_array_append_new(tokens, name_of(a, t->token));
        json_array_append_new(logprobs, t->has_scores ? json_real(t->scores.logprob) : json_null());
        json_array_append_new(tops,
                              t->has_scores && a->job->request.top_count > 0 ? top_map(a, t) : json_null());
        json_array_append_new(offsets, json_integer((json_int_t)t->offset));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs",
                     tops, "text_offset", offsets);
}

static json_t *chat_token(const ls_serve_answer *a, int32_t token, double logprob)
{
    ls_text_buffer text = {0};
    json_t *bytes = json_array();
    const bool has_bytes = ls_tokenizer_decode(a->job->model->tokenizer, &token, 1, false, &text) == LS_OK;
    for (size_t i = 0; has_bytes && i < text.bytes; i++) {
        json_array_append_new(bytes, json_integer((unsigned char)text.data[i]));
    }
    ls_text_buffer_release(&text);
    return json_pack("{s:o, s:f, s:o}", "token", name_of(a, token), "logprob", logprob, "bytes", bytes);
}

static json_t *chat_logprobs(const ls_serve_answer *a, size_t from)
{
    json_t *content = json_array();
    for (size_t i = from; i < a->scored_count; i++) {
        const ls_scored_token *t = &a->scored[i];
        json_t *entry = chat_token(a, t->token, t->scores.logprob), *tops = json_array();
        for (uint32_t k = 0; k < t->scores.top_count; k++) {
            json_array_append_new(tops, chat_token(a, t->scores.top[k], t->scores.top_logprob[k]));
        }
        json_object_set_new(entry, "top_logprobs", tops);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o}", "content", content);
}

/* Of the tokens from number `from` on. */
static json_t *logprobs_of(const ls_serve_answer *a, size_t from)
{
    const ls_serve_request *request = &a->job->request;
    if (!request->scores) {
        return json_null();
    }
    return request->is_chat ? chat_logprobs(a, from) : completion_logprobs(a, from);
}

/* ---- pieces ---- */

static json_t *text_of(const char *text, size_t bytes)
{
    json_t *value = json_stringn(text ? text : "", bytes);
    LS_ASSERT(value && "an answer is valid UTF-8");
    return value;
}

/* One of the choices; `value` and `logprobs` are taken over. */
static json_t *choice_of(const ls_serve_answer *a, const char *key, json_t *value, json_t *logprobs,
                         const char *finish)
{
    return json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)a->index, key, value, "logprobs", logprobs,
                     "finish_reason", finish);
}

/* What every response and event has; `choices` is taken over. */
static json_t *envelope(const ls_serve_job *job, const char *object, json_t *choices)
{
    char id[48];
    snprintf(id, sizeof id, "%s-%" PRIu64, job->request.is_chat ? "chatcmpl" : "cmpl", job->number);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", object, "created",
                     (json_int_t)job->created_s, "model", job->model->name, "choices", choices);
}

static json_t *usage_of(const ls_serve_job *job)
{
    json_int_t prompt = 0, answers = 0;
    for (size_t i = 0; i < job->request.prompt_count; i++) {
        prompt += (json_int_t)job->request.prompts[i].count;
    }
    for (size_t i = 0; i < job->answer_count; i++) {
        answers += (json_int_t)job->answers[i].new_tokens;
    }
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", answers, "total_tokens",
                     prompt + answers);
}

/* ---- calls of tools ---- */

/* The calls in an answer that has ended, with ids; NULL: none. */
static json_t *find_calls(const ls_serve_answer *a, size_t *content_bytes)
{
    const ls_text_buffer *text = &a->text.text;
    const json_t *tools = a->job->request.tools;
    json_t *calls =
        tools && text->bytes > 0 ? ls_tool_calls_find(tools, text->data, text->bytes, content_bytes) : NULL;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        char id[64];
        snprintf(id, sizeof id, "call_%" PRIu64 "_%u_%zu", a->job->number, a->index, i);
        json_object_set_new(json_array_get(calls, i), "id", json_string(id));
        json_object_set_new(json_array_get(calls, i), "index", json_integer((json_int_t)i));
    }
    return calls;
}

/* ---- a whole response ---- */

static json_t *chat_choice(const ls_serve_answer *a)
{
    size_t bytes = a->text.text.bytes;
    json_t *calls = find_calls(a, &bytes);
    json_t *content = calls && bytes == 0 ? json_null() : text_of(a->text.text.data, bytes);
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
    if (calls) {
        json_object_set_new(message, "tool_calls", calls);
    }
    return choice_of(a, "message", message, logprobs_of(a, 0), calls ? "tool_calls" : a->finish);
}

static json_t *completion_choice(const ls_serve_answer *a)
{
    ls_text text = {0};
    ls_text_append_bytes(&text, a->echo.text.data ? a->echo.text.data : "", a->echo.text.bytes);
    ls_text_append_bytes(&text, a->text.text.data ? a->text.text.data : "", a->text.text.bytes);
    json_t *choice =
        choice_of(a, "text", text_of(ls_text_string(&text), text.bytes), logprobs_of(a, 0), a->finish);
    ls_text_release(&text);
    return choice;
}

json_t *ls_serve_answer_response(const ls_serve_job *job)
{
    const bool is_chat = job->request.is_chat;
    json_t *choices = json_array();
    for (size_t i = 0; i < job->answer_count; i++) {
        const ls_serve_answer *a = &job->answers[i];
        json_array_append_new(choices, is_chat ? chat_choice(a) : completion_choice(a));
    }
    json_t *root = envelope(job, is_chat ? "chat.completion" : "text_completion", choices);
    json_object_set_new(root, "usage", usage_of(job));
    return root;
}

/* ---- streams ---- */

static void append_event(json_t *root, ls_text *events)
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    LS_ASSERT(text && "not enough memory for an event");
    ls_text_printf(events, "data: %s\n\n", text);
    free(text);
    json_decref(root);
}

/* One event with one choice: `key` is "text" or "delta", `value` and `logprobs` are taken over. */
static void append_choice(const ls_serve_answer *a, const char *key, json_t *value, json_t *logprobs,
                          bool is_last, ls_text *events)
{
    const ls_serve_job *job = a->job;
    json_t *choice = choice_of(a, key, value, logprobs, is_last ? a->finish : NULL);
    json_t *root = envelope(job, job->request.is_chat ? "chat.completion.chunk" : "text_completion",
                            json_pack("[o]", choice));
    if (job->request.includes_usage) {
        json_object_set_new(root, "usage", json_null());
    }
    append_event(root, events);
}

/* With tools, nothing is known of an answer before its end. */
static void append_tool_answer(ls_serve_answer *a, ls_text *events)
{
    size_t bytes = a->text.text.bytes;
    json_t *calls = find_calls(a, &bytes);
    json_t *delta = json_object();
    if (bytes > 0) {
        json_object_set_new(delta, "content", text_of(a->text.text.data, bytes));
    }
    if (calls) {
        json_object_set_new(delta, "tool_calls", calls);
        a->finish = "tool_calls";
    }
    append_choice(a, "delta", delta, logprobs_of(a, 0), true, events);
}

static void append_piece(ls_serve_answer *a, const char *text, size_t bytes, bool is_last, ls_text *events)
{
    json_t *logprobs = logprobs_of(a, a->sent_scored);
    json_t *value = text_of(text, bytes);
    a->sent_scored = a->scored_count;
    if (!a->job->request.is_chat) {
        append_choice(a, "text", value, logprobs, is_last, events);
        return;
    }
    json_t *delta = json_object();
    if (bytes > 0) {
        json_object_set(delta, "content", value);
    }
    json_decref(value);
    append_choice(a, "delta", delta, logprobs, is_last, events);
}

void ls_serve_answer_append_events(ls_serve_answer *a, ls_text *events)
{
    const ls_serve_request *request = &a->job->request;
    if (!a->has_begun && request->is_chat) {
        append_choice(a, "delta", json_pack("{s:s, s:s}", "role", "assistant", "content", ""), json_null(),
                      false, events);
    }
    a->has_begun = true;
    if (request->tools) {
        if (a->finish) {
            append_tool_answer(a, events);
        }
        return;
    }
    if (a->echo.shown_bytes > a->sent_echo) {
        append_piece(a, a->echo.text.data + a->sent_echo, a->echo.shown_bytes - a->sent_echo, false, events);
        a->sent_echo = a->echo.shown_bytes;
    }
    if (a->text.shown_bytes > a->sent_text || a->finish) {
        const size_t bytes = a->text.shown_bytes - a->sent_text;
        append_piece(a, bytes > 0 ? a->text.text.data + a->sent_text : "", bytes, a->finish != NULL, events);
        a->sent_text = a->text.shown_bytes;
    }
}

void ls_serve_answer_append_end(const ls_serve_job *job, ls_text *events)
{
    if (job->request.includes_usage) {
        json_t *root =
            envelope(job, job->request.is_chat ? "chat.completion.chunk" : "text_completion", json_array());
        json_object_set_new(root, "usage", usage_of(job));
        append_event(root, events);
    }
    ls_text_append(events, "data: [DONE]\n\n");
}

/* ---- errors ---- */

json_t *ls_serve_answer_error(unsigned code, const char *message, const char *param)
{
    const char *type = code == 401   ? "authentication_error"
                       : code == 403 ? "permission_error"
                       : code == 404 ? "not_found_error"
                       : code == 429 ? "rate_limit_error"
                       : code >= 500 ? "server_error"
                                     : "invalid_request_error";
    return json_pack("{s:{s:s#, s:s, s:s?, s:I}}", "error", "message", message, (int)strlen(message), "type",
                     type, "param", param, "code", (json_int_t)code);
}
