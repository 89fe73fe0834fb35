// SPDX-License-Identifier: Apache-2.0
#include "data/conversation/conversation.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *format;
} forms[LS_RECORD_FORMS] = {
    [LS_RECORD_TEXT] = {"text", "text"},
    [LS_RECORD_PROMPT] = {"prompt and completion, joined as they are", "prompt_completion"},
    [LS_RECORD_PROMPT_LISTS] = {"prompt and completion as messages", "prompt_completion"},
    [LS_RECORD_QUESTION] = {"question and answer", "prompt_completion"},
    [LS_RECORD_ALPACA] = {"Alpaca's instruction, input and output", "prompt_completion"},
    [LS_RECORD_MESSAGES] = {"OpenAI's messages", "messages"},
    [LS_RECORD_SHAREGPT] = {"ShareGPT's conversations", "messages"},
};

const char *ls_record_form_name(ls_record_form form)
{
    return forms[form].name;
}

const char *ls_record_format_name(ls_record_form form)
{
    return forms[form].format;
}

bool ls_message_is_answer(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* ---- the form -------------------------------------------------------------------------------- */

static bool has(const json_t *record, const char *key)
{
    return key && key[0] && json_object_get(record, key) != NULL;
}

static bool has_custom(const ls_form_keys *keys)
{
    return keys->prompt && keys->prompt[0];
}

/* A list, or in a table the text of one. */
static bool has_list(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    return json_is_array(value) || (json_is_string(value) && json_string_value(value)[0] == '[');
}

/* The same for a text that may be an answer: "[1, 2]" is one, a list of messages is not. */
static bool has_messages(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    const char *text = json_string_value(value);
    if (!text || text[0] != '[') {
        return json_is_array(value);
    }
    return text[1 + strspn(text + 1, " \t\r\n")] == '{' && strstr(text, "\"role\"");
}

static bool is_form(const json_t *record, const ls_form_keys *keys, ls_record_form form)
{
    const bool prompted = has(record, "prompt") && has(record, "completion");
    const bool listed = prompted && has_messages(record, "completion");
    switch (form) {
    case LS_RECORD_TEXT:
        return has(record, keys->text);
    case LS_RECORD_PROMPT:
        return prompted && !listed && !has_custom(keys);
    case LS_RECORD_PROMPT_LISTS:
        return listed && !has_custom(keys);
    case LS_RECORD_QUESTION:
        return has_custom(keys) ? has(record, keys->prompt) && has(record, keys->completion)
                                : has(record, "question") && has(record, "answer");
    case LS_RECORD_ALPACA:
        return !has_custom(keys) && has(record, "instruction") &&
               (has(record, "output") || has_list(record, "instances"));
    case LS_RECORD_MESSAGES:
        return has_list(record, "messages");
    case LS_RECORD_SHAREGPT:
        return has_list(record, "conversations");
    case LS_RECORD_FORMS:
        break;
    }
    return false;
}

static bool is_allowed(const ls_form_keys *keys, ls_record_form form)
{
    static const char *const formats[] = {"", "text", "prompt_completion", "messages"};
    if (has_custom(keys) && keys->format == LS_FORMAT_AUTO) {
        return form == LS_RECORD_QUESTION;
    }
    return keys->format == LS_FORMAT_AUTO || strcmp(forms[form].format, formats[keys->format]) == 0;
}

static const char *needed_keys(const ls_form_keys *keys)
{
    switch (keys->format) {
    case LS_FORMAT_PROMPT_COMPLETION:
        return "prompt and completion, question and answer, or instruction and output";
    case LS_FORMAT_MESSAGES:
        return "messages (role and content) or conversations (from and value)";
    default:
        return "messages, conversations, prompt and completion, question and answer, instruction and "
               "output, or text";
    }
}

void ls_record_keys(const json_t *record, ls_text *text)
{
    enum { KEYS_MAX = 8 };
    const char *key;
    json_t *value;
    size_t count = 0;
    json_object_foreach((json_t *)(uintptr_t)record, key, value)
    {
        if (count++ < KEYS_MAX) {
            ls_text_append(text, count > 1 ? ", " : "");
            ls_text_append_printable(text, key, strnlen(key, 40), "");
        }
    }
    ls_text_append(text, count == 0 ? "none" : count > KEYS_MAX ? ", ..." : "");
}

static ls_status fail_without_form(const json_t *record, const ls_form_keys *keys)
{
    ls_text seen = {0};
    ls_record_keys(record, &seen);
    const ls_status status =
        has_custom(keys) ? ls_fail(LS_ERR_DATA,
                                   "the record does not have both `%s` (data.prompt_field) and `%s` "
                                   "(data.completion_field); its keys: %s",
                                   keys->prompt, keys->completion ? keys->completion : "", seen.data)
        : has(record, "chosen") && has(record, "rejected")
            ? ls_fail(LS_ERR_DATA, "the record is a pair of a chosen and a rejected answer, which training "
                                   "on answers cannot use; give `prompt` and `completion`")
            : ls_fail(LS_ERR_DATA,
                      "the record is of no known form: it needs %s; its keys: %s. Name other keys with "
                      "data.prompt_field and data.completion_field, or data.field for plain text",
                      needed_keys(keys), seen.data);
    ls_text_release(&seen);
    return status;
}

ls_status ls_record_form_of(const json_t *record, const ls_form_keys *keys, ls_record_form *form_out)
{
    ls_record_form found = LS_RECORD_FORMS;
    if (!json_is_object(record)) {
        return ls_fail(LS_ERR_DATA, "a record must be one JSON object");
    }
    for (int form = 0; form < LS_RECORD_FORMS; form++) {
        if (!is_allowed(keys, (ls_record_form)form) || !is_form(record, keys, (ls_record_form)form)) {
            continue;
        }
        if (found != LS_RECORD_FORMS) {
            return ls_fail(LS_ERR_DATA,
                           "the record is both %s and %s: say which is meant with data.format, or remove the "
                           "keys of the other",
                           forms[found].name, forms[form].name);
        }
        found = (ls_record_form)form;
    }
    if (found == LS_RECORD_FORMS) {
        return fail_without_form(record, keys);
    }
    *form_out = found;
    return LS_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Names of roles, ShareGPT's and other writers' among them, and OpenAI's for each. */
static const struct {
    const char *from, *role;
} roles[] = {
    {"system", "system"},           {"user", "user"},
    {"assistant", "assistant"},     {"tool", "tool"},
    {"developer", "developer"},     {"function", "function"},
    {"ipython", "ipython"},         {"human", "user"},
    {"gpt", "assistant"},           {"chatgpt", "assistant"},
    {"bing", "assistant"},          {"bard", "assistant"},
    {"model", "assistant"},         {"bot", "assistant"},
    {"observation", "tool"},        {"function_response", "tool"},
    {"function_call", "assistant"},
};

static ls_status set_role(json_t *message, const char *from)
{
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(from, roles[i].from) == 0) {
            json_object_set_new(message, "role", json_string(roles[i].role));
            return LS_OK;
        }
    }
    ls_text name = {0};
    ls_text_append_printable(&name, from, strnlen(from, 40), "");
    const ls_status status =
        ls_fail(LS_ERR_DATA, "the role is \"%s\"; allowed are system, developer, user, assistant and tool",
                ls_text_string(&name));
    ls_text_release(&name);
    return status;
}

/* Content given as a list of parts becomes their text. */
static ls_status join_parts(json_t *message, const json_t *parts)
{
    ls_text text = {0};
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *string = json_string_value(json_is_string(part) ? part : json_object_get(part, "text"));
        if (!string || (type && strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 &&
                        strcmp(type, "output_text") != 0)) {
            ls_text_release(&text);
            return ls_fail(LS_ERR_DATA,
                           "part %zu of the content is %.40s%s; only parts of text are supported", i + 1,
                           type ? "of type " : "not text", type ? type : "");
        }
        ls_text_append(&text, string);
    }
    json_object_set_new(message, "content", json_string(ls_text_string(&text)));
    ls_text_release(&text);
    return LS_OK;
}

static ls_status set_content(json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    if (json_is_array(content)) {
        return join_parts(message, content);
    }
    if (!content || json_is_null(content)) {
        json_object_set_new(message, "content", json_string(""));
        return json_object_get(message, "tool_calls") || json_is_null(content)
                   ? LS_OK
                   : ls_fail(LS_ERR_DATA, "there is no content");
    }
    return json_is_string(content) ? LS_OK : ls_fail(LS_ERR_DATA, "the content must be a string");
}

/* Replaces a text that is JSON by what it says: OpenAI writes the arguments of a call so, and
 * templates would quote them a second time. */
static void parse_member(json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    json_t *parsed = json_is_string(value) ? json_loads(json_string_value(value), 0, NULL) : NULL;
    if (parsed) {
        json_object_set_new(object, key, parsed);
    }
}

static ls_status check_calls(json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    if (json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0)) {
        json_object_del(message, "tool_calls");
        return LS_OK;
    }
    if (calls && !json_is_array(calls)) {
        return ls_fail(LS_ERR_DATA, "tool_calls must be a list");
    }
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");
        function = function ? function : call;
        if (!json_is_string(json_object_get(function, "name"))) {
            return ls_fail(LS_ERR_DATA, "tool call %zu has no function name", i + 1);
        }
        parse_member(function, "arguments");
    }
    return LS_OK;
}

/* ShareGPT writes a call as a turn whose value is {"name", "arguments"}. */
static void take_call(json_t *message)
{
    const json_t *value = json_object_get(message, "value");
    json_t *call = json_is_string(value) ? json_loads(json_string_value(value), 0, NULL) : NULL;
    if (json_is_string(json_object_get(call, "name"))) {
        json_object_set_new(message, "tool_calls",
                            json_pack("[{s:s, s:o}]", "type", "function", "function", call));
        json_object_set_new(message, "content", json_string(""));
    } else {
        json_decref(call);
    }
}

/* OpenAI's weight: 0 for an answer that is not trained, 1 for one that is. */
static ls_status check_weight(const json_t *message)
{
    const json_t *weight = json_object_get(message, "weight");
    const double value = json_number_value(weight);
    if (!weight || json_is_null(weight) || (json_is_number(weight) && (value == 0.0 || value == 1.0))) {
        return LS_OK;
    }
    char *text = json_dumps(weight, JSON_ENCODE_ANY | JSON_COMPACT);
    const ls_status status =
        ls_fail(LS_ERR_DATA, "the weight is %.40s; it must be the number 0 (not trained) or 1 (trained)",
                text ? text : "?");
    free(text);
    return status;
}

ls_status ls_message_complete(json_t *message)
{
    LS_TRY(set_content(message));
    return check_calls(message);
}

static ls_status read_message(json_t *message)
{
    if (!json_is_object(message)) {
        return ls_fail(LS_ERR_DATA, "it must be an object with a role and content");
    }
    const json_t *role = json_object_get(message, "role");
    const char *from = json_string_value(role ? role : json_object_get(message, "from"));
    if (!from) {
        return ls_fail(LS_ERR_DATA, "there is no role");
    }
    if (strcmp(from, "function_call") == 0) {
        take_call(message);
    }
    LS_TRY(set_role(message, from));
    if (!json_object_get(message, "content")) {
        json_object_set(message, "content", json_object_get(message, "value"));
    }
    LS_TRY(ls_message_complete(message));
    LS_TRY(ls_message_is_answer(message) ? check_weight(message) : LS_OK);
    json_object_del(message, "from");
    json_object_del(message, "value");
    const char *content = json_string_value(json_object_get(message, "content"));
    const bool is_empty = content[strspn(content, " \t\r\n")] == '\0';
    return is_empty && ls_message_is_answer(message) && !json_object_get(message, "tool_calls")
               ? ls_fail(LS_ERR_DATA, "the answer is empty")
               : LS_OK;
}

static ls_status read_messages(json_t *messages)
{
    size_t i, answers = 0, systems = 0;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        const ls_status status = read_message(message);
        if (status != LS_OK) {
            return ls_fail_within(status, "message %zu", i + 1);
        }
        const char *role = json_string_value(json_object_get(message, "role"));
        answers += ls_message_is_answer(message);
        systems += strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
    }
    if (answers == 0) {
        return ls_fail(LS_ERR_DATA, "%s: there is nothing to learn from it",
                       json_array_size(messages) == 0 ? "the conversation has no messages"
                       : systems == json_array_size(messages)
                           ? "the conversation has only a system turn"
                           : "the conversation has no answer of the assistant");
    }
    return LS_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

static json_t *message_of(const char *role, const char *content)
{
    return json_pack("{s:s, s:s}", "role", role, "content", content);
}

/* A list or an object under a key; in a table it is text. */
static json_t *list_of(json_t *record, const char *key)
{
    parse_member(record, key);
    return json_object_get(record, key);
}

/* What a record gives its template under a key; NULL if that is absent or empty. */
static ls_status given_of(json_t *record, const char *key, json_type type, const json_t **given_out)
{
    const json_t *value = list_of(record, key);
    const bool is_empty = !value || json_is_null(value) ||
                          (json_is_array(value) && !json_array_size(value)) ||
                          (json_is_string(value) && !json_string_value(value)[0]);
    const bool is_type = value && json_typeof(value) == type;
    *given_out = is_type ? value : NULL;
    return is_type || is_empty
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "`%s` must be %s, or in a table the JSON text of one: chat templates read this key, "
                         "so correct the value, or rename the key if it means something else",
                         key, type == JSON_ARRAY ? "a list" : "an object");
}

/* A whole number, such as a label, becomes its text. */
static ls_status string_of(json_t *record, const char *key, const char **string_out)
{
    const json_t *value = json_object_get(record, key);
    if (json_is_integer(value)) {
        json_object_set_new(record, key, json_sprintf("%lld", (long long)json_integer_value(value)));
        value = json_object_get(record, key);
    }
    if (!json_is_string(value)) {
        return ls_fail(LS_ERR_DATA, "the value of `%s` must be a string or a whole number%s", key,
                       json_is_null(value) ? ", and is null" : "");
    }
    *string_out = json_string_value(value);
    return LS_OK;
}

static void add_pair(json_t *conversations, const json_t *record, const char *prompt, const char *input,
                     const char *completion)
{
    ls_text question = {0};
    const char *system = json_string_value(json_object_get(record, "system"));
    json_t *messages = json_array();
    if (system && system[0]) {
        json_array_append_new(messages, message_of("system", system));
    }
    ls_text_append(&question, prompt);
    if (input && input[0]) {
        ls_text_printf(&question, "\n%s", input);
    }
    json_array_append_new(messages, message_of("user", ls_text_string(&question)));
    json_array_append_new(messages, message_of("assistant", completion));
    json_array_append_new(conversations, messages);
    ls_text_release(&question);
}

static ls_status read_question(json_t *record, const ls_form_keys *keys, json_t *conversations)
{
    const bool custom = has_custom(keys);
    const char *question = NULL, *answer = NULL;
    LS_TRY(string_of(record, custom ? keys->prompt : "question", &question));
    LS_TRY(string_of(record, custom ? keys->completion : "answer", &answer));
    add_pair(conversations, record, question, NULL, answer);
    return LS_OK;
}

static ls_status read_alpaca(json_t *record, json_t *conversations)
{
    const char *instruction = NULL, *output = NULL;
    LS_TRY(string_of(record, "instruction", &instruction));
    const bool is_one = has(record, "output");
    const json_t *instances = is_one ? NULL : list_of(record, "instances");
    if (!is_one && json_array_size(instances) == 0) {
        return ls_fail(LS_ERR_DATA,
                       "the record has no answer: the value of `instances` must be a list that is "
                       "not empty, or in a table the JSON text of one");
    }
    for (size_t i = 0; i == 0 || i < json_array_size(instances); i++) {
        json_t *instance = is_one ? record : json_array_get(instances, i);
        const json_t *given = json_object_get(instance, "input");
        const char *input = NULL;
        LS_TRY(given && !json_is_null(given) ? string_of(instance, "input", &input) : LS_OK);
        LS_TRY(string_of(instance, "output", &output));
        add_pair(conversations, record, instruction, input, output);
    }
    return LS_OK;
}

static ls_status read_list(json_t *record, const char *key, json_t *conversations)
{
    json_t *list = list_of(record, key);
    if (!json_is_array(list)) {
        return ls_fail(LS_ERR_DATA, "the value of `%s` must be a list of messages", key);
    }
    json_t *messages = json_array();
    const char *system = json_string_value(json_object_get(record, "system"));
    const json_t *first = json_array_get(list, 0), *role = json_object_get(first, "role");
    const char *from = json_string_value(role ? role : json_object_get(first, "from"));
    if (system && system[0] && !(from && strcmp(from, "system") == 0)) {
        json_array_append_new(messages, message_of("system", system));
    }
    json_array_extend(messages, list);
    json_array_append_new(conversations, messages);
    return LS_OK;
}

static ls_status read_prompt_lists(json_t *record, json_t *conversations)
{
    json_t *prompt = list_of(record, "prompt"), *completion = list_of(record, "completion");
    json_t *messages = json_array();
    if (json_is_array(prompt)) {
        json_array_extend(messages, prompt);
    } else if (json_is_string(prompt)) {
        json_array_append_new(messages, message_of("user", json_string_value(prompt)));
    }
    json_array_extend(messages, completion);
    json_array_append_new(conversations, messages);
    return json_is_array(prompt) || json_is_string(prompt)
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "the value of `prompt` must be a string or a list of messages");
}

static ls_status read_prompt(json_t *record, ls_conversation *out)
{
    LS_TRY(string_of(record, "prompt", &out->prompt));
    LS_TRY(string_of(record, "completion", &out->completion));
    return out->completion[0] ? LS_OK : ls_fail(LS_ERR_DATA, "the completion is empty");
}

static ls_status read_form(json_t *record, const ls_form_keys *keys, ls_record_form form,
                           ls_conversation *out)
{
    switch (form) {
    case LS_RECORD_PROMPT:
        return read_prompt(record, out);
    case LS_RECORD_PROMPT_LISTS:
        return read_prompt_lists(record, out->conversations);
    case LS_RECORD_QUESTION:
        return read_question(record, keys, out->conversations);
    case LS_RECORD_ALPACA:
        return read_alpaca(record, out->conversations);
    default:
        return read_list(record, form == LS_RECORD_MESSAGES ? "messages" : "conversations",
                         out->conversations);
    }
}

ls_status ls_conversation_read_given(json_t *record, ls_conversation *out)
{
    json_t *tools = list_of(record, "tools");
    const bool is_none = json_is_null(tools) || (json_is_string(tools) && !json_string_value(tools)[0]);
    if (tools && !is_none && !json_is_array(tools)) {
        return ls_fail(LS_ERR_DATA, "`tools` must be a list");
    }
    out->tools = json_is_array(tools) && json_array_size(tools) > 0 ? tools : NULL;
    LS_TRY(given_of(record, "chat_template_kwargs", JSON_OBJECT, &out->variables));
    return given_of(record, "documents", JSON_ARRAY, &out->documents);
}

static ls_status read_all(json_t *record, const ls_form_keys *keys, ls_record_form form, ls_conversation *out)
{
    LS_TRY(read_form(record, keys, form, out));
    size_t i;
    json_t *messages;
    json_array_foreach(out->conversations, i, messages)
    {
        LS_TRY(read_messages(messages));
    }
    /* No template sees a prompt that is joined as it is. */
    return form == LS_RECORD_PROMPT ? LS_OK : ls_conversation_read_given(record, out);
}

ls_status ls_conversation_read(json_t *record, const ls_form_keys *keys, ls_record_form form,
                               ls_conversation *conversation_out)
{
    ls_conversation conversation = {.conversations = json_array()};
    const ls_status status = read_all(record, keys, form, &conversation);
    if (status != LS_OK) {
        ls_conversation_release(&conversation);
        return status;
    }
    *conversation_out = conversation;
    return LS_OK;
}

void ls_conversation_release(ls_conversation *conversation)
{
    json_decref(conversation->conversations);
    *conversation = (ls_conversation){0};
}
