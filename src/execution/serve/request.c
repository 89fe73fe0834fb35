// SPDX-License-Identifier: Apache-2.0
#include "execution/serve/request.h"

#include "base/text.h"

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

static ls_status check_whole(const char *key, const json_t *value, double min, double max)
{
    const double number = (double)json_integer_value(value);
    return json_is_integer(value) && number >= min && number <= max
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "%s must be a whole number from %.0f to %.0f", key, min, max);
}

/* ---- fields with forms of their own ---- */

static ls_status read_model(reader *r, const json_t *value)
{
    const char *name = json_string_value(value);
    return name && strcmp(name, r->model->name) == 0
               ? LS_OK
               : ls_fail(LS_ERR_NOT_FOUND, "the model %.100s is not served here: its name is %s",
                         name ? name : "of that name", r->model->name);
}

/* -1 means all, as in vLLM. */
static ls_status read_top_k(reader *r, const json_t *value)
{
    LS_TRY(check_whole("top_k", value, -1, 1 << 24));
    r->request->sampling.top_k = json_integer_value(value) < 0 ? 0 : (uint32_t)json_integer_value(value);
    return LS_OK;
}

static ls_status read_stop(reader *r, const json_t *value)
{
    ls_serve_request *request = r->request;
    const char *text = json_string_value(value);
    const size_t bytes = json_string_length(value);
    if (!request->stops) {
        request->stops = ls_arena_new(&request->arena, const char *, LS_SERVE_STOPS_MAX);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        LS_TRY(read_stop(r, json_is_array(item) ? NULL : item));
    }
    if (json_is_array(value)) {
        return LS_OK;
    }
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

static ls_status read_stream_options(reader *r, const json_t *value)
{
    const json_t *usage = json_object_get(value, "include_usage");
    const char *key = NULL;
    json_t *item = NULL;
    if (!json_is_object(value) || !r->request->streams || (usage && !json_is_boolean(usage))) {
        return ls_fail(LS_ERR_INVALID,
                       "stream_options must be {\"include_usage\": true}, and needs stream: true");
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        if (strcmp(key, "include_usage") != 0 && strcmp(key, "include_obfuscation") != 0) {
            return ls_fail(LS_ERR_INVALID, "stream_options.%.60s is not known", key);
        }
    }
    r->request->includes_usage = json_is_true(usage);
    return LS_OK;
}

static ls_status read_format(reader *r, const json_t *value)
{
    (void)r;
    const char *type = json_string_value(json_object_get(value, "type"));
    return type && strcmp(type, "text") == 0
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "response_format is not supported: only {\"type\": \"text\"} is");
}

/* ---- which fields there are ---- */

enum field_kind {
    FIELD_WHOLE,   /* uint64_t at `offset`, from min to max */
    FIELD_NUMBER,  /* double at `offset`, from min to max */
    FIELD_TRUTH,   /* bool at `offset` */
    FIELD_READ,    /* by `read`, or, without it, by the functions for prompts and lengths */
    FIELD_ONLY,    /* only with the value `min`, which changes nothing */
    FIELD_EMPTY,   /* only empty: "", [] or {} */
    FIELD_IGNORED, /* does not change the answer */
};
enum where { BOTH, CHAT, COMPLETION };

#define AT(member) offsetof(ls_serve_request, member)
/* In the order in which they are read. */
static const struct rule {
    const char *key;
    enum field_kind kind;
    enum where where;
    size_t offset;
    double min, max;
    ls_status (*read)(reader *r, const json_t *value);
} rules[] = {
    {"model", FIELD_READ, BOTH, .read = read_model},
    {"n", FIELD_WHOLE, BOTH, AT(n), 1, LS_SERVE_ANSWERS_MAX},
    {"temperature", FIELD_NUMBER, BOTH, AT(sampling.temperature), 0, 100},
    {"top_p", FIELD_NUMBER, BOTH, AT(sampling.top_p), 1e-6, 1},
    {"top_k", FIELD_READ, BOTH, .read = read_top_k},
    {"seed", FIELD_WHOLE, BOTH, AT(sampling.seed), -0x1p63, 0x1p63},
    {"stop", FIELD_READ, BOTH, .read = read_stop},
    {"logprobs", FIELD_WHOLE, COMPLETION, AT(top_count), 0, LS_TEXT_TOP_MAX},
    {"logprobs", FIELD_TRUTH, CHAT, AT(scores)},
    {"top_logprobs", FIELD_WHOLE, CHAT, AT(top_count), 0, LS_TEXT_TOP_MAX},
    {"stream", FIELD_TRUTH, BOTH, AT(streams)},
    {"stream_options", FIELD_READ, BOTH, .read = read_stream_options},
    {"echo", FIELD_TRUTH, COMPLETION, AT(echo)},
    {"response_format", FIELD_READ, BOTH, .read = read_format},
    {"prompt", FIELD_READ, COMPLETION},
    {"messages", FIELD_READ, CHAT},
    {"max_tokens", FIELD_READ, BOTH},
    {"max_completion_tokens", FIELD_READ, CHAT},
    {"tools", FIELD_READ, CHAT},
    {"tool_choice", FIELD_READ, CHAT},
    {"chat_template_kwargs", FIELD_READ, CHAT},
    {"frequency_penalty", FIELD_ONLY, BOTH, .min = 0},
    {"presence_penalty", FIELD_ONLY, BOTH, .min = 0},
    {"repetition_penalty", FIELD_ONLY, BOTH, .min = 1},
    {"min_p", FIELD_ONLY, BOTH, .min = 0},
    {"best_of", FIELD_ONLY, COMPLETION, .min = 1},
    {"logit_bias", FIELD_EMPTY, BOTH},
    {"suffix", FIELD_EMPTY, COMPLETION},
    {"user", FIELD_IGNORED, BOTH},
    {"metadata", FIELD_IGNORED, BOTH},
    {"store", FIELD_IGNORED, BOTH},
    {"service_tier", FIELD_IGNORED, BOTH},
    {"parallel_tool_calls", FIELD_IGNORED, CHAT},
    {"safety_identifier", FIELD_IGNORED, BOTH},
    {"prompt_cache_key", FIELD_IGNORED, BOTH},
};
enum { RULES = sizeof rules / sizeof rules[0] };
#undef AT

static bool applies(const struct rule *rule, bool is_chat)
{
    return rule->where == BOTH || (rule->where == CHAT) == is_chat;
}

static ls_status check_known(reader *r, const char *key)
{
    const char *nearest = NULL;
    size_t best = strlen(key) / 3 + 2;
    for (size_t i = 0; i < RULES; i++) {
        if (applies(&rules[i], r->request->is_chat) && strcmp(rules[i].key, key) == 0) {
            return LS_OK;
        }
        const size_t distance = ls_edit_distance(key, rules[i].key, best);
        if (rules[i].kind <= FIELD_READ && distance < best) {
            best = distance;
            nearest = rules[i].key;
        }
    }
    r->param = ls_arena_strdup(&r->request->arena, key);
    return ls_fail(LS_ERR_INVALID, "the field %.60s is not known to /v1/%s%s%s%s", key,
                   r->request->is_chat ? "chat/completions" : "completions", nearest ? ", did you mean " : "",
                   nearest ? nearest : "", nearest ? "?" : "");
}

static bool is_empty(const json_t *value)
{
    return (json_is_string(value) || json_is_array(value) || json_is_object(value)) &&
           json_string_length(value) + json_array_size(value) + json_object_size(value) == 0;
}

static ls_status read_field(reader *r, const struct rule *rule, const json_t *value)
{
    char *at = (char *)r->request + rule->offset;
    const double number = json_number_value(value);
    switch (rule->kind) {
    case FIELD_WHOLE:
        LS_TRY(check_whole(rule->key, value, rule->min, rule->max));
        *(uint64_t *)(void *)at = (uint64_t)json_integer_value(value);
        break;
    case FIELD_NUMBER:
        if (!json_is_number(value) || !(number >= rule->min && number <= rule->max)) {
            return ls_fail(LS_ERR_INVALID, "%s must be a number from %g to %g", rule->key, rule->min,
                           rule->max);
        }
        *(double *)(void *)at = number;
        break;
    case FIELD_TRUTH:
        if (!json_is_boolean(value)) {
            return ls_fail(LS_ERR_INVALID, "%s must be true or false", rule->key);
        }
        *(bool *)at = json_is_true(value);
        break;
    case FIELD_READ:
        return rule->read ? rule->read(r, value) : LS_OK;
    case FIELD_ONLY:
        if (!json_is_number(value) || number < rule->min || number > rule->min) {
            return ls_fail(LS_ERR_INVALID,
                           "%s is supported only with the value %g: send this value, or leave the field out",
                           rule->key, rule->min);
        }
        break;
    case FIELD_EMPTY:
        return is_empty(value) ? LS_OK
                               : ls_fail(LS_ERR_INVALID, "%s is not supported: leave it out", rule->key);
    case FIELD_IGNORED:
        break;
    }
    return LS_OK;
}

static ls_status read_fields(reader *r)
{
    ls_serve_request *request = r->request;
    const char *key = NULL;
    json_t *any = NULL;
    json_object_foreach(r->body, key, any)
    {
        LS_TRY(check_known(r, key));
    }
    for (size_t i = 0; i < RULES; i++) {
        const json_t *value = applies(&rules[i], request->is_chat) ? field(r, rules[i].key) : NULL;
        if (value) {
            LS_TRY(read_field(r, &rules[i], value));
        }
    }
    request->has_seed = field(r, "seed") != NULL;
    request->scores = request->scores || (!request->is_chat && field(r, "logprobs"));
    r->param = "top_logprobs";
    return request->top_count > 0 && !request->scores
               ? ls_fail(LS_ERR_INVALID, "top_logprobs needs logprobs: true")
               : LS_OK;
}

/* ---- prompts ---- */

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
        return ls_tokenizer_encode(r->model->tokenizer, NULL, json_string_value(value),
                                   json_string_length(value), true, ids);
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

static ls_status check_message(json_t *message)
{
    return json_is_string(json_object_get(message, "role"))
               ? ls_message_complete(message)
               : ls_fail(LS_ERR_INVALID, "a message must be an object with a role");
}

static ls_status read_tools(reader *r, ls_conversation *asked)
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
        asked->tools = r->request->tools = json_incref((json_t *)(uintptr_t)tools);
    }
    return LS_OK;
}

/* The prompt is made by what made the samples that the model was trained on. */
static ls_status read_chat(reader *r)
{
    const json_t *messages = field(r, "messages");
    ls_conversation asked = {0};
    if (!ls_recipe_has_template(r->model->recipe)) {
        return ls_fail(LS_ERR_INVALID, "the model has no chat template: start the server with --template "
                                       "FILE, or use /v1/completions");
    }
    if (json_array_size(messages) == 0) {
        return ls_fail(LS_ERR_INVALID, "messages must be a list of at least one message");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const ls_status status = check_message(json_array_get(messages, i));
        LS_TRY(status == LS_OK ? LS_OK : ls_fail_within(status, "messages[%zu]", i));
    }
    asked.variables = field(r, "chat_template_kwargs");
    if (asked.variables && !json_is_object(asked.variables)) {
        return ls_fail(LS_ERR_INVALID, "chat_template_kwargs must be an object");
    }
    LS_TRY(read_tools(r, &asked));
    LS_TRY(take_prompts(r, 1));
    r->param = "messages";
    return ls_recipe_prompt(r->model->recipe, &asked, messages, &r->request->prompts[0]);
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
    const json_t *given = field(r, key);
    if (given) {
        LS_TRY(check_whole(key, given, may_be_none ? 0 : 1, INT32_MAX));
        request->max_tokens = (uint64_t)json_integer_value(given);
    }
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

/* Scores are kept until the answer is sent: one of each token, or those of the likeliest there. */
static ls_status check_scored(reader *r)
{
    const ls_serve_request *request = r->request;
    const uint64_t each = request->top_count > 1 ? request->top_count : 1;
    uint64_t tokens = 0;
    for (size_t i = 0; i < request->prompt_count; i++) {
        tokens += request->n * (request->max_tokens + (request->echo ? request->prompts[i].count : 0));
    }
    r->param = "logprobs";
    return request->scores && tokens * each > LS_SERVE_SCORED_MAX
               ? ls_fail(
                     LS_ERR_INVALID,
                     "the request asks for log-probabilities of up to %llu tokens, %llu for each, in %llu "
                     "answers%s; at most %d are allowed: send fewer prompts at once, or ask for fewer tokens",
                     (unsigned long long)tokens, (unsigned long long)each,
                     (unsigned long long)(request->prompt_count * request->n),
                     request->echo ? " with their prompts" : "", LS_SERVE_SCORED_MAX)
               : LS_OK;
}

static ls_status read_all(reader *r)
{
    if (!json_is_object(r->body)) {
        return ls_fail(LS_ERR_INVALID, "the body of the request must be a JSON object");
    }
    LS_TRY(read_fields(r));
    LS_TRY(r->request->is_chat ? read_chat(r) : read_prompts(r));
    LS_TRY(read_length(r));
    return check_scored(r);
}

ls_status ls_serve_request_read(const ls_serve_model *model, bool is_chat, const char *body, size_t bytes,
                                ls_serve_request *request, const char **param_out)
{
    *request = (ls_serve_request){.is_chat = is_chat, .n = 1, .sampling = {.temperature = 1.0, .top_p = 1.0}};
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
