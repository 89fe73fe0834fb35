// SPDX-License-Identifier: Apache-2.0
#include "execution/judge/questions.h"

#include "base/file.h"
#include "data/conversation/conversation.h"
#include "data/jsonl.h"
#include "execution/judge/match.h"

#include <string.h>

typedef unsigned long long ull;

/* ---- lines ---- */

ls_status ls_question_without(const ls_question_line *line, const char *key, const char *wanted)
{
    enum { KEYS_MAX = 8 };
    const char *name;
    json_t *value;
    size_t count = 0;
    ls_text keys = {0};
    json_object_foreach(line->record, name, value)
    {
        if (count++ < KEYS_MAX) {
            ls_text_append(&keys, keys.bytes ? ", " : "");
            ls_text_append_printable(&keys, name, strnlen(name, 40), "");
        }
    }
    const ls_status status =
        ls_fail(LS_ERR_DATA, "%s:%llu: the record has no key `%s` with %s; its keys: %s%s", line->path,
                (ull)line->number, key, wanted, count ? ls_text_string(&keys) : "none",
                count > KEYS_MAX ? ", ..." : "");
    ls_text_release(&keys);
    return status;
}

const char *ls_question_text(ls_arena *arena, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return ls_arena_strdup(arena, json_string_value(value));
    case JSON_INTEGER:
        return ls_arena_printf(arena, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return ls_arena_printf(arena, "%.15g", json_real_value(value));
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return NULL;
    }
}

static ls_status read_line(ls_arena *arena, const ls_jsonl_line *line, ls_question_reader read, void *context,
                           ls_quiz_question *question)
{
    const char *name = ls_arena_printf(arena, "%s:%llu", line->path, (ull)line->number);
    json_t *root = NULL;
    LS_TRY(ls_jsonl_check(line));
    LS_TRY(ls_json_parse(line->data, line->bytes, name, &root));
    const ls_question_line given = {arena, line->path, line->number, root};
    question->line = line->number;
    const ls_status status = json_is_object(root)
                                 ? read(context, &given, question)
                                 : ls_fail(LS_ERR_DATA, "%s: the line is not a JSON object", name);
    json_decref(root);
    return status;
}

static size_t count_lines(const ls_file_map *map)
{
    size_t lines = 1;
    for (size_t i = 0; i < map->bytes; i++) {
        lines += map->data[i] == '\n';
    }
    return lines;
}

static ls_status read_map(ls_arena *arena, const ls_file_map *map, ls_question_reader read, void *context,
                          ls_quiz *questions)
{
    questions->items = ls_arena_new(arena, ls_quiz_question, count_lines(map));
    ls_jsonl_line line = {.path = questions->path, .data = (const char *)map->data};
    for (size_t at = 0; at < map->bytes; at += line.bytes + 1) {
        line.number++;
        line.data = (const char *)map->data + at;
        const char *end = memchr(line.data, '\n', map->bytes - at);
        line.bytes = end ? (size_t)(end - line.data) : map->bytes - at;
        if (!ls_jsonl_is_blank(line.data, line.bytes)) {
            LS_TRY(read_line(arena, &line, read, context, &questions->items[questions->count]));
            questions->count++;
        }
    }
    return questions->count > 0 ? LS_OK : ls_fail(LS_ERR_DATA, "%s has no records", questions->path);
}

ls_status ls_questions_read_lines(ls_arena *arena, const char *path, ls_question_reader read, void *context,
                                  ls_quiz *questions_out)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    ls_quiz questions = {.path = ls_arena_strdup(arena, path)};
    const ls_status status = read_map(arena, &map, read, context, &questions);
    ls_file_map_close(&map);
    if (status == LS_OK) {
        *questions_out = questions;
    }
    return status;
}

/* ---- records ---- */

static const char *const usual_keys[] = {"messages",    "conversations", "prompt", "question",
                                         "instruction", "input",         "text"};

typedef struct records_reader {
    const ls_quiz_keys *keys;
    const char *prompt_key; /* found in the first record, then the same for all */
    bool is_made;           /* by the prompt maker */
} records_reader;

static const char *find_prompt_key(const records_reader *reader, const ls_question_line *line)
{
    if (reader->keys->prompt[0]) {
        return reader->keys->prompt;
    }
    for (size_t i = 0; i < sizeof usual_keys / sizeof usual_keys[0]; i++) {
        if (json_object_get(line->record, usual_keys[i]) && strcmp(usual_keys[i], reader->keys->label) != 0) {
            return usual_keys[i];
        }
    }
    return usual_keys[0];
}

/* The contents of messages, a line each, as records are joined without a template. */
static const char *join(ls_arena *arena, const json_t *messages)
{
    ls_text text = {0};
    const json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        ls_text_printf(&text, "%s\n", json_string_value(json_object_get(message, "content")));
    }
    const char *joined = ls_arena_strdup(arena, ls_text_string(&text));
    ls_text_release(&text);
    return joined;
}

/* Messages up to the assistant's last one, which is the answer that is expected. */
static ls_status read_messages(records_reader *reader, const ls_question_line *line,
                               const ls_conversation *conversation, ls_quiz_question *question)
{
    const ls_prompt_maker *maker = reader->keys->maker;
    json_t *messages = json_array_get(conversation->conversations, 0);
    const size_t last = json_array_size(messages) - 1;
    const json_t *content = json_object_get(json_array_get(messages, last), "content");
    question->expected =
        ls_arena_strdup(line->arena, json_is_string(content) ? json_string_value(content) : "");
    json_array_remove(messages, last);
    if (maker) {
        reader->is_made = true;
        return maker->make(maker->context, line->arena, line->record, messages, &question->prompt);
    }
    if (!conversation->may_join) {
        return ls_fail(LS_ERR_DATA,
                       "the prompt is a list of messages, and the model has no chat template: give "
                       "one with --template FILE");
    }
    question->prompt = join(line->arena, messages);
    return LS_OK;
}

/* A prompt and its completion, which training joins as they are. */
static ls_status read_pair(records_reader *reader, const ls_question_line *line,
                           const ls_conversation *conversation, ls_quiz_question *question)
{
    const ls_quiz_keys *keys = reader->keys;
    question->prompt = ls_arena_strdup(line->arena, conversation->prompt);
    question->expected = ls_arena_strdup(line->arena, conversation->completion);
    if (!keys->maker || !keys->makes_all) {
        return LS_OK;
    }
    reader->is_made = true;
    json_t *prompt = json_object_get(line->record, "prompt");
    return keys->maker->make(keys->maker->context, line->arena, line->record, prompt, &question->prompt);
}

/* Reads a record as training would, if it has one of the forms of training. */
static ls_status read_trained(records_reader *reader, const ls_question_line *line,
                              ls_quiz_question *question, bool *is_read_out)
{
    static const ls_form_keys keys = {.text = "text"};
    ls_record_form form = LS_RECORD_TEXT;
    ls_conversation conversation;
    *is_read_out = false;
    if (reader->keys->prompt[0] || ls_record_form_of(line->record, &keys, &form) != LS_OK ||
        form == LS_RECORD_TEXT) {
        ls_error_clear();
        return LS_OK;
    }
    ls_status status = ls_conversation_read(line->record, &keys, form, &conversation);
    if (status != LS_OK && reader->keys->label[0]) {
        ls_error_clear(); /* a record with a label needs no answer */
        return LS_OK;
    }
    if (status == LS_OK) {
        *is_read_out = true;
        status = conversation.prompt ? read_pair(reader, line, &conversation, question)
                                     : read_messages(reader, line, &conversation, question);
        ls_conversation_release(&conversation);
    }
    return status == LS_OK ? LS_OK : ls_fail_within(status, "%s:%llu", line->path, (ull)line->number);
}

/* The text under the prompt's key, or what the template makes of a list of messages. */
static ls_status read_prompt(records_reader *reader, const ls_question_line *line, ls_quiz_question *question)
{
    const ls_quiz_keys *keys = reader->keys;
    json_t *value = json_object_get(line->record, reader->prompt_key);
    const bool is_list = json_is_array(value);
    if (is_list && !keys->maker) {
        return ls_fail(LS_ERR_DATA,
                       "%s:%llu: the prompt is a list of messages, and the model has no chat "
                       "template: give one with --template FILE",
                       line->path, (ull)line->number);
    }
    if (is_list || (value && keys->maker && keys->makes_all)) {
        reader->is_made = true;
        const ls_status status =
            keys->maker->make(keys->maker->context, line->arena, line->record, value, &question->prompt);
        return status == LS_OK ? LS_OK : ls_fail_within(status, "%s:%llu", line->path, (ull)line->number);
    }
    question->prompt = value ? ls_question_text(line->arena, value) : NULL;
    if (!question->prompt || !question->prompt[0]) {
        return ls_question_without(line, reader->prompt_key,
                                   "a text (--prompt-field names the key of the prompt)");
    }
    return LS_OK;
}

static ls_status read_record(void *context, const ls_question_line *line, ls_quiz_question *question)
{
    records_reader *reader = context;
    const char *label_key = reader->keys->label;
    if (!reader->prompt_key) {
        reader->prompt_key = find_prompt_key(reader, line);
    }
    bool is_read = false;
    if (label_key[0]) { /* before the record is changed */
        const json_t *label = json_object_get(line->record, label_key);
        question->expected = label ? ls_question_text(line->arena, label) : NULL;
        if (!question->expected || !question->expected[0]) {
            return ls_question_without(line, label_key,
                                       "a text or a number (--label names the key of the label)");
        }
    }
    const char *label = question->expected;
    LS_TRY(read_trained(reader, line, question, &is_read));
    LS_TRY(is_read ? LS_OK : read_prompt(reader, line, question));
    question->expected = label ? label : question->expected;
    return LS_OK;
}

static bool match(const char *a, const char *b)
{
    ls_text x = {0}, y = {0};
    ls_answer_normalise(a, strlen(a), &x);
    ls_answer_normalise(b, strlen(b), &y);
    const bool equal = strcmp(ls_text_string(&x), ls_text_string(&y)) == 0;
    ls_text_release(&x);
    ls_text_release(&y);
    return equal;
}

/* Index of the choice that is the label, by its bytes or else in its normal form; count: none. */
static size_t find_choice(const char *const *choices, size_t count, const char *label)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(choices[i], label) == 0) {
            return i;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (match(choices[i], label)) {
            return i;
        }
    }
    return count;
}

enum { CHOICES_MAX = 1000 };

/* The different labels of the records, in the order of their first occurrence. */
static ls_status collect_labels(ls_arena *arena, const ls_quiz *questions, const char ***choices_out,
                                size_t *count_out)
{
    const char **labels = ls_arena_new(arena, const char *, CHOICES_MAX);
    size_t count = 0;
    for (size_t i = 0; i < questions->count; i++) {
        const char *label = questions->items[i].expected;
        if (find_choice(labels, count, label) < count) {
            continue;
        }
        if (count == CHOICES_MAX) {
            return ls_fail(LS_ERR_DATA,
                           "%s:%llu: more than %d different labels: name the choices in --choices, or leave "
                           "out --choices, and the model writes its answers",
                           questions->path, (ull)questions->items[i].line, CHOICES_MAX);
        }
        labels[count++] = label;
    }
    *choices_out = labels;
    *count_out = count;
    return LS_OK;
}

static ls_status check_labels(const ls_quiz *quiz)
{
    for (size_t i = 0; i < quiz->count; i++) {
        if (!quiz->items[i].expected) {
            return ls_fail(
                LS_ERR_DATA,
                "%s:%llu: no label found in this record: give the key that holds the label with --label",
                quiz->path, (ull)quiz->items[i].line);
        }
    }
    return LS_OK;
}

static ls_status set_choices(ls_arena *arena, const ls_quiz_keys *keys, ls_quiz *questions)
{
    const char *const *choices = keys->choices;
    size_t count = keys->choice_count;
    if (count == 1 && strcmp(choices[0], "auto") == 0) {
        const char **labels;
        LS_TRY(collect_labels(arena, questions, &labels, &count));
        choices = labels;
    }
    if (count < 2) {
        return ls_fail(LS_ERR_INVALID,
                       "the number of labels in --choices is %zu, but at least 2 are needed: separate them "
                       "with commas, or give auto for all labels of the file",
                       count);
    }
    for (size_t i = 0; i < questions->count; i++) {
        ls_quiz_question *q = &questions->items[i];
        q->right = find_choice(choices, count, q->expected);
        if (q->right == count) {
            return ls_fail(LS_ERR_DATA,
                           "%s:%llu: the label '%.60s' is not one of the %zu choices of --choices",
                           questions->path, (ull)q->line, q->expected, count);
        }
        q->endings = choices;
        q->ending_count = count;
    }
    return LS_OK;
}

ls_status ls_questions_read_records(ls_arena *arena, const char *path, const ls_quiz_keys *keys,
                                    ls_quiz *questions_out)
{
    records_reader reader = {.keys = keys};
    ls_quiz questions = {0};
    LS_TRY(ls_questions_read_lines(arena, path, read_record, &reader, &questions));
    questions.prompt_key = ls_arena_strdup(arena, reader.prompt_key);
    questions.label_key = keys->label;
    questions.has_specials = !reader.is_made;
    if (keys->choice_count > 0) {
        LS_TRY(check_labels(&questions));
        LS_TRY(set_choices(arena, keys, &questions));
    }
    *questions_out = questions;
    return LS_OK;
}
