// SPDX-License-Identifier: Apache-2.0
#include "execution/serve/request.h"

#include "base/assert.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

enum { COMPLETION_TOKENS = 16 }; /* of /v1/completions without max_tokens, as in OpenAI's API */

typedef struct reader {
    const ls_serve_model *model;
    json_t *body;
    ls_serve_request *request;
    const char *param; /* the field being read */
} reader;

/* The value of a field; NULL: absent. */
static const json_t *field(reader *r, const char *key)
{
    const json_t *value = json_object_get(r->body, key);
    r->param = key;
    return value && !json_is_null(value) ? value : NULL;
}

/* ---- numbers ---- */

static ls_status read_number(reader *r, const char *key, double min, double max, double *value_out)
{
    const json_t *value = field(r, key);
    if (!value) {
        return LS_OK;
    }
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= min && number <= max)) {
        return ls_fail(LS_ERR_INVALID, "%s must be a number from %g to %g", key, min, max);
    }
    *value_out = number;
    return LS_OK;
}

static ls_status read_whole(reader *r, const char *key, int64_t min, int64_t max, uint64_t *value_out)
{
    const json_t *value = field(r, key);
    if (!value) {
        return LS_OK;
    }
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < min || number > max) {
        return ls_fail(LS_ERR_INVALID, "%s must be a whole number from %lld to %lld", key, (long long)min,
                       (long long)max);
    }
    *value_out = (uint64_t)number;
    return LS_OK;
}

static ls_status read_bool(reader *r, const char *key, bool *value_out)
{
    const json_t *value = field(r, key);
    if (value && !json_is_boolean(value)) {
        return ls_fail(LS_ERR_INVALID, "%s must be true or false", key);
    }
    *value_out = value ? json_is_true(value) : *value_out;
    return LS_OK;
}

/* ---- which fields there are ---- */

typedef enum field_kind {
    FIELD_READ,    /* by one of the functions below */
    FIELD_IGNORED, /* does not change the answer */
    FIELD_NUMBER,  /* only with one value, which changes nothing */
    FIELD_EMPTY,   /* only empty: "", [] or {} */
} field_kind;

static const struct field_rule {
    const char *key;
    field_kind kind;
    double only; /* FIELD_NUMBER */
    bool no_chat, no_completion;
} rules[] = {
    {"model", FIELD_READ, 0, false, false},
    {"prompt", FIELD_READ, 0, true, false},
    {"messages", FIELD_READ, 0, false, true},
    {"max_tokens", FIELD_READ, 0, false, false},
    {"max_completion_tokens", FIELD_READ, 0, false, true},
    {"n", FIELD_READ, 0, false, false},
    {"temperature", FIELD_READ, 0, false, false},
    {"top_p", FIELD_READ, 0, false, false},
    {"top_k", FIELD_READ, 0, false, false},
    {"seed", FIELD_READ, 0, false, false},
    {"stop", FIELD_READ, 0, false, false},
    {"stream", FIELD_READ, 0, false, false},
    {"stream_options", FIELD_READ, 0, false, false},
    {"logprobs", FIELD_READ, 0, false, false},
    {"top_logprobs", FIELD_READ, 0, false, true},
    {"echo", FIELD_READ, 0, true, false},
    {"tools", FIELD_READ, 0, false, true},
    {"tool_choice", FIELD_READ, 0, false, true},
    {"chat_template_kwargs", FIELD_READ, 0, false, true},
    {"response_format", FIELD_READ, 0, false, false},
    {"user", FIELD_IGNORED, 0, false, false},
    {"metadata", FIELD_IGNORED, 0, false, false},
    {"store", FIELD_IGNORED, 0, false, false},
    {"service_tier", FIELD_IGNORED, 0, false, false},
    {"parallel_tool_calls", FIELD_IGNORED, 0, false, true},
    {"safety_identifier", FIELD_IGNORED, 0, false, false},
    {"prompt_cache_key", FIELD_IGNORED, 0, false, false},
    {"frequency_penalty", FIELD_NUMBER, 0, false, false},
    {"presence_penalty", FIELD_NUMBER, 0, false, false},
    {"repetition_penalty", FIELD_NUMBER, 1, false, false},
    {"min_p", FIELD_NUMBER, 0, false, false},
    {"best_of", FIELD_NUMBER, 1, true, false},
    {"logit_bias", FIELD_EMPTY, 0, false, false},
    {"suffix", FIELD_EMPTY, 0, true, false},
};

static const struct field_rule *find_rule(const char *key)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(rules[i].key, key) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

static ls_status fail_unknown(const char *key, bool is_chat)
{
    const char *nearest = NULL;
    size_t best = strlen(key) / 3 + 2;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const size_t distance = ls_edit_distance(key, rules[i].key, best);
        if (rules[i].kind == FIELD_READ && distance < best) {
            best = distance;
            nearest = rules[i].key;
        }
    }
    return ls_fail(LS_ERR_INVALID, "the field %.60s is not known to /v1/%s%s%s%s", key,
                   is_chat ? "chat/completions" : "completions", nearest ? ", did you mean " : "",
                   nearest ? nearest : "", nearest ? "?" : "");
}

static bool is_empty(const json_t *value)
{
    return (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static ls_status check_fields(reader *r)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(r->body, key, value)
    {
        const struct field_rule *rule = find_rule(key);
        r->param = ls_arena_strdup(&r->request->arena, key);
        if (!rule || (r->request->is_chat ? rule->no_chat : rule->no_completion)) {
            return fail_unknown(key, r->request->is_chat);
        }
        if (rule->kind == FIELD_NUMBER && !json_is_null(value) &&
            !(json_is_number(value) && fabs(json_number_value(value) - rule->only) == 0.0)) {
            return ls_fail(LS_ERR_INVALID,
                           "%s is supported only with the value %g: send this value, or leave the field out",
                           key, rule->only);
        }
        if (rule->kind == FIELD_EMPTY && !json_is_null(value) && !is_empty(value)) {
            return ls_fail(LS_ERR_INVALID, "%s is not supported: leave it out", key);
        }
    }
    return LS_OK;
}

/* ---- settings ---- */

static ls_status read_stop(reader *r, const json_t *value)
{
    ls_serve_request *request = r->request;
    const char *text = json_string_value(value);
    const size_t bytes = json_string_length(value);
    if (!text || bytes == 0 || bytes > LS_SERVE_STOP_BYTES_MAX || strlen(text) != bytes ||
        request->stop_count == LS_SERVE_STOPS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "stop must be a text, or a list of at most %d texts, each with 1 to %d bytes and "
                       "without a zero byte",
                       LS_SERVE_STOPS_MAX, LS_SERVE_STOP_BYTES_MAX);
    }
    request->stops[request->stop_count++] = ls_arena_strdup(&request->arena, text);
    return LS_OK;
}

static ls_status read_stops(reader *r)
{
    const json_t *value = field(r, "stop");
    r->request->stops = ls_arena_new(&r->request->arena, const char *, LS_SERVE_STOPS_MAX);
    if (!json_is_array(value)) {
        return value ? read_stop(r, value) : LS_OK;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        LS_TRY(read_stop(r, json_array_get(value, i)));
    }
    return LS_OK;
}

/* In completions `logprobs` is a number; in chat it is true or false, with a number beside it. */
static ls_status read_logprobs(reader *r)
{
    ls_serve_request *request = r->request;
    uint64_t top = 0;
    if (!request->is_chat) {
        request->scores = field(r, "logprobs") != NULL;
        LS_TRY(read_whole(r, "logprobs", 0, LS_TEXT_TOP_MAX, &top));
    } else {
        LS_TRY(read_bool(r, "logprobs", &request->scores));
        LS_TRY(read_whole(r, "top_logprobs", 0, LS_TEXT_TOP_MAX, &top));
        if (top > 0 && !request->scores) {
            return ls_fail(LS_ERR_INVALID, "top_logprobs needs logprobs: true");
        }
    }
    request->top_count = (uint32_t)top;
    return LS_OK;
}

static ls_status read_stream(reader *r)
{
    ls_serve_request *request = r->request;
    LS_TRY(read_bool(r, "stream", &request->streams));
    const json_t *options = field(r, "stream_options");
    const json_t *usage = json_object_get(options, "include_usage");
    const char *key = NULL;
    json_t *value = NULL;
    if (options && (!json_is_object(options) || !request->streams || (usage && !json_is_boolean(usage)))) {
        return ls_fail(LS_ERR_INVALID,
                       "stream_options must be {\"include_usage\": true}, and needs stream: true");
    }
    json_object_foreach((json_t *)(uintptr_t)options, key, value)
    {
        if (strcmp(key, "include_usage") != 0 && strcmp(key, "include_obfuscation") != 0) {
            return ls_fail(LS_ERR_INVALID, "stream_options.%.60s is not known", key);
        }
    }
    request->includes_usage = json_is_true(usage);
    return LS_OK;
}

static ls_status read_format(reader *r)
{
    const json_t *value = field(r, "response_format");
    const char *type = json_string_value(json_object_get(value, "type"));
    return value && !(type && strcmp(type, "text") == 0)
               ? ls_fail(LS_ERR_INVALID, "response_format is not supported: only {\"type\": \"text\"} is")
               : LS_OK;
}

static ls_status read_settings(reader *r)
{
    ls_serve_request *request = r->request;
    const json_t *name = field(r, "model");
    if (name && !(json_is_string(name) && strcmp(json_string_value(name), r->model->name) == 0)) {
        return ls_fail(LS_ERR_NOT_FOUND, "the model %.100s is not served here: its name is %s",
                       json_is_string(name) ? json_string_value(name) : "of that name", r->model->name);
    }
    uint64_t n = 1, top_k = 0, seed = 0;
    LS_TRY(read_whole(r, "n", 1, LS_SERVE_ANSWERS_MAX, &n));
    LS_TRY(read_number(r, "temperature", 0, 100, &request->sampling.temperature));
    LS_TRY(read_number(r, "top_p", 1e-6, 1, &request->sampling.top_p));
    LS_TRY(read_whole(r, "top_k", -1, 1 << 24, &top_k));
    LS_TRY(read_whole(r, "seed", INT64_MIN, INT64_MAX, &seed));
    request->has_seed = field(r, "seed") != NULL;
    request->n = (uint32_t)n;
    request->sampling.top_k = top_k > 1 << 24 ? 0 : (uint32_t)top_k; /* -1 means all, as in vLLM */
    request->sampling.seed = seed;
    LS_TRY(read_stops(r));
    LS_TRY(read_logprobs(r));
    LS_TRY(read_stream(r));
    LS_TRY(read_bool(r, "echo", &request->echo));
    return read_format(r);
}

/* ---- prompts ---- */

static ls_status read_text_prompt(reader *r, const json_t *value, ls_token_buffer *ids)
{
    return ls_tokenizer_encode(r->model->tokenizer, NULL, json_string_value(value), json_string_length(value),
                               true, ids);
}

static ls_status read_id_prompt(const json_t *value, ls_token_buffer *ids)
{
    const size_t count = json_array_size(value);
    LS_TRY(ls_token_buffer_reserve(ids, count));
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX) {
            return ls_fail(LS_ERR_INVALID, "prompt: element %zu of a list of token ids is not an id", i);
        }
        ids->ids[ids->count++] = (int32_t)json_integer_value(id);
    }
    return LS_OK;
}

static ls_status read_prompt(reader *r, const json_t *value, ls_token_buffer *ids)
{
    if (json_is_string(value)) {
        return read_text_prompt(r, value, ids);
    }
    return json_is_array(value) ? read_id_prompt(value, ids)
                                : ls_fail(LS_ERR_INVALID, "prompt must be a text, a list of token ids, or a "
                                                          "list of texts or of such lists");
}

static ls_status take_prompts(reader *r, size_t count)
{
    ls_serve_request *request = r->request;
    if (count == 0 || count * request->n > LS_SERVE_ANSWERS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "the request asks for %zu answers (prompts times n); 1 to %d are "
                       "allowed",
                       count * request->n, LS_SERVE_ANSWERS_MAX);
    }
    request->prompts = ls_arena_new(&request->arena, ls_token_buffer, count);
    request->prompt_count = count;
    return LS_OK;
}

static ls_status read_prompts(reader *r)
{
    const json_t *value = field(r, "prompt");
    const json_t *first = json_array_get(value, 0);
    const bool is_batch = first && !json_is_integer(first);
    LS_TRY(take_prompts(r, is_batch ? json_array_size(value) : 1));
    for (size_t i = 0; i < r->request->prompt_count; i++) {
        LS_TRY(read_prompt(r, is_batch ? json_array_get(value, i) : value, &r->request->prompts[i]));
    }
    return LS_OK;
}

/* ---- chat ---- */

/* Parts of type text become one text: that is what templates take. */
static ls_status join_parts(json_t *message, const json_t *parts, size_t number)
{
    ls_text text = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; i < json_array_size(parts) && status == LS_OK; i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *value = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(value)) {
            status =
                ls_fail(LS_ERR_INVALID, "messages[%zu].content[%zu] is of type %.40s; only text is supported",
                        number, i, type ? type : "?");
        } else {
            ls_text_append_bytes(&text, json_string_value(value), json_string_length(value));
        }
    }
    if (status == LS_OK) {
        json_object_set_new(message, "content", json_stringn(ls_text_string(&text), text.bytes));
    }
    ls_text_release(&text);
    return status;
}

/* Arguments of a call come as the text of a JSON object; templates take the object. */
static void parse_arguments(const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *text = json_object_get(function, "arguments");
        json_t *object = json_is_string(text)
                             ? json_loadb(json_string_value(text), json_string_length(text), 0, NULL)
                             : NULL;
        if (json_is_object(object)) {
            json_object_set(function, "arguments", object);
        }
        json_decref(object);
    }
}

static ls_status check_message(json_t *message, size_t number)
{
    const json_t *content = json_object_get(message, "content");
    const json_t *role = json_object_get(message, "role");
    if (!json_is_object(message) || !json_is_string(role)) {
        return ls_fail(LS_ERR_INVALID, "messages[%zu] must be an object with a role", number);
    }
    if (json_is_array(content)) {
        LS_TRY(join_parts(message, content, number));
    } else if (content && !json_is_string(content) && !json_is_null(content)) {
        return ls_fail(LS_ERR_INVALID, "messages[%zu].content must be a text or a list of parts", number);
    }
    parse_arguments(json_object_get(message, "tool_calls"));
    return LS_OK;
}

static ls_status read_tools(reader *r, json_t *variables)
{
    const json_t *tools = field(r, "tools");
    const json_t *choice = field(r, "tool_choice");
    const char *word = json_string_value(choice);
    const bool is_none = word && strcmp(word, "none") == 0;
    if (choice && !is_none && !(word && strcmp(word, "auto") == 0)) {
        return ls_fail(LS_ERR_INVALID, "tool_choice must be \"auto\" or \"none\": others are not supported");
    }
    r->param = "tools";
    if (tools && !json_is_array(tools)) {
        return ls_fail(LS_ERR_INVALID, "tools must be a list");
    }
    if (json_array_size(tools) > 0 && !is_none) {
        json_object_set(variables, "tools", (json_t *)(uintptr_t)tools);
        r->request->tools = json_incref((json_t *)(uintptr_t)tools);
    }
    return LS_OK;
}

static ls_status read_messages(reader *r, json_t *variables)
{
    const json_t *messages = field(r, "messages");
    if (!r->model->chat->template) {
        return ls_fail(LS_ERR_INVALID, "the model has no chat template: start the server with --template "
                                       "FILE, or use /v1/completions");
    }
    if (json_array_size(messages) == 0) {
        return ls_fail(LS_ERR_INVALID, "messages must be a list of at least one message");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        LS_TRY(check_message(json_array_get(messages, i), i));
    }
    const json_t *more = field(r, "chat_template_kwargs");
    if (more && !json_is_object(more)) {
        return ls_fail(LS_ERR_INVALID, "chat_template_kwargs must be an object");
    }
    json_object_update(variables, (json_t *)(uintptr_t)more);
    json_object_set(variables, "messages", (json_t *)(uintptr_t)messages);
    LS_TRY(read_tools(r, variables));
    LS_TRY(take_prompts(r, 1));
    r->param = "messages";
    return ls_chat_format_prompt(r->model->chat, variables, &r->request->prompts[0]);
}

static ls_status read_chat(reader *r)
{
    json_t *variables = json_object();
    const ls_status status = read_messages(r, variables);
    json_decref(variables);
    return status;
}

/* ---- length ---- */

static ls_status check_ids(const reader *r, const ls_token_buffer *prompt, size_t number)
{
    if (prompt->count == 0) {
        return ls_fail(LS_ERR_INVALID, "prompt %zu is empty: at least one token is needed", number);
    }
    for (size_t i = 0; i < prompt->count; i++) {
        if (prompt->ids[i] < 0 || prompt->ids[i] >= r->model->vocab) {
            return ls_fail(
                LS_ERR_INVALID,
                "prompt %zu has the token id %d, which is outside the model's vocabulary, 0 to %lld", number,
                prompt->ids[i], (long long)r->model->vocab - 1);
        }
    }
    return LS_OK;
}

static ls_status read_length(reader *r)
{
    ls_serve_request *request = r->request;
    const char *key =
        request->is_chat && field(r, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    const int64_t context = r->model->context;
    size_t longest = 0;
    for (size_t i = 0; i < request->prompt_count; i++) {
        r->param = request->is_chat ? "messages" : "prompt";
        LS_TRY(check_ids(r, &request->prompts[i], i));
        longest = request->prompts[i].count > longest ? request->prompts[i].count : longest;
    }
    const int64_t left = context - (int64_t)longest;
    const bool may_be_none = request->echo && request->scores;
    request->max_tokens = !request->is_chat ? COMPLETION_TOKENS : left > 0 ? (uint64_t)left : 1;
    LS_TRY(read_whole(r, key, may_be_none ? 0 : 1, INT32_MAX, &request->max_tokens));
    if ((int64_t)request->max_tokens > left) {
        r->param = request->is_chat ? "messages" : "prompt";
        return ls_fail(LS_ERR_INVALID,
                       "the context of %lld tokens is too short: the prompt has %zu, and %s is %llu. Shorten "
                       "the prompt, ask for fewer tokens, or start the server with a larger --context if "
                       "the model has one",
                       (long long)context, longest, key, (unsigned long long)request->max_tokens);
    }
    return LS_OK;
}

/* Scores are kept until the answer is sent. */
static ls_status check_scored(reader *r)
{
    const ls_serve_request *request = r->request;
    uint64_t scored = 0;
    for (size_t i = 0; i < request->prompt_count; i++) {
        scored += request->n * (request->max_tokens + (request->echo ? request->prompts[i].count : 0));
    }
    r->param = "logprobs";
    return request->scores && scored > LS_SERVE_SCORED_MAX
               ? ls_fail(LS_ERR_INVALID,
                         "the request asks for log-probabilities of up to %llu tokens, in %zu answers%s; at "
                         "most %d are allowed: send fewer prompts at once, or ask for fewer tokens",
                         (unsigned long long)scored, request->prompt_count * request->n,
                         request->echo ? " with their prompts" : "", LS_SERVE_SCORED_MAX)
               : LS_OK;
}

static ls_status read_all(reader *r)
{
    if (!json_is_object(r->body)) {
        return ls_fail(LS_ERR_INVALID, "the body of the request must be a JSON object");
    }
    LS_TRY(check_fields(r));
    LS_TRY(read_settings(r));
    LS_TRY(r->request->is_chat ? read_chat(r) : read_prompts(r));
    LS_TRY(read_length(r));
    return check_scored(r);
}

ls_status ls_serve_request_read(const ls_serve_model *model, bool is_chat, const char *body, size_t bytes,
                                ls_serve_request *request, const char **param_out)
{
    *request = (ls_serve_request){.is_chat = is_chat, .sampling = {.temperature = 1.0, .top_p = 1.0}};
    *param_out = NULL;
    reader r = {.model = model, .request = request};
    if (ls_json_parse(body, bytes, "the body of the request", &r.body) != LS_OK) {
        return LS_ERR_INVALID; /* with the parser's text */
    }
    const ls_status status = read_all(&r);
    *param_out = r.param;
    json_decref(r.body);
    return status;
}

void ls_serve_request_release(ls_serve_request *request)
{
    for (size_t i = 0; i < request->prompt_count; i++) {
        ls_token_buffer_release(&request->prompts[i]);
    }
    json_decref(request->tools);
    ls_arena_release(&request->arena);
    *request = (ls_serve_request){0};
}
