// SPDX-License-Identifier: Apache-2.0
#include "execution/judge/questions.h"

#include "base/math.h"
#include "data/record_walk.h"
#include "execution/judge/match.h"

#include <string.h>

typedef unsigned long long ull;

/* ---- lines ---- */

ls_status ls_question_without(const ls_question_line *line, const char *key, const char *wanted)
{
    ls_text keys = {0};
    ls_record_keys(line->record, &keys);
    const ls_status status = ls_fail(LS_ERR_DATA, "%s:%llu: the record has no key `%s` with %s; its keys: %s",
                                     line->path, (ull)line->number, key, wanted, ls_text_string(&keys));
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

ls_quiz_question *ls_question_add(const ls_question_line *line, ls_quiz *quiz)
{
    if (quiz->count == quiz->capacity) {
        quiz->capacity = quiz->capacity ? 2 * quiz->capacity : 64;
        ls_quiz_question *items = ls_arena_new(line->arena, ls_quiz_question, quiz->capacity);
        if (quiz->count > 0) {
            memcpy(items, quiz->items, quiz->count * sizeof *items);
        }
        quiz->items = items;
    }
    ls_quiz_question *question = &quiz->items[quiz->count++];
    *question = (ls_quiz_question){.path = line->path, .line = line->number, .bos = -1};
    return question;
}

/* What the walk over a file calls. */
typedef struct lines_reader {
    ls_arena *arena;
    ls_question_reader read;
    void *context;
    ls_quiz *quiz;
    uint64_t limit;
    ls_record_walk *walk;
} lines_reader;

static ls_status read_line(void *context, const ls_walked *walked, ls_status read)
{
    const lines_reader *r = context;
    const ls_question_line line = {r->arena, walked->file->path, walked->line, walked->object};
    LS_TRY(read);
    if (!json_is_object(line.record)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: the line is not a JSON object", line.path, (ull)line.number);
    }
    LS_TRY(r->read(r->context, &line, r->quiz));
    r->walk->is_done = r->limit > 0 && r->quiz->count >= r->limit;
    return LS_OK;
}

ls_status ls_questions_read_lines(ls_arena *arena, const char *path, uint64_t limit, ls_question_reader read,
                                  void *context, ls_quiz *questions_out)
{
    ls_quiz quiz = {.path = path};
    ls_record_walk walk = {.on_record = read_line};
    lines_reader reader = {arena, read, context, &quiz, limit, &walk};
    const ls_corpus_query query = {.patterns = &path, .pattern_count = 1};
    ls_corpus_file *files = NULL;
    size_t count = 0;
    walk.context = &reader;
    LS_TRY(ls_corpus_expand(arena, &query, &files, &count));
    LS_TRY(ls_records_walk(&walk, files, count));
    if (quiz.count == 0) {
        return ls_fail(LS_ERR_DATA, "%s has no records", path);
    }
    *questions_out = quiz;
    return LS_OK;
}

/* ---- records ---- */

static const char *const usual_keys[] = {"messages",    "conversations", "prompt", "question",
                                         "instruction", "input",         "text"};

typedef struct records_reader {
    const ls_quiz_keys *keys;
    const char *prompt_key; /* found in the first record, then the same for all */
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
    return ls_text_keep(&text, arena);
}

/* The text of a prompt, a user's message or a list of messages, by the template. */
static ls_status render(ls_arena *arena, const ls_recipe *recipe, const ls_conversation *given,
                        json_t *prompt, ls_quiz_question *question)
{
    ls_text text = {0};
    json_t *messages = json_is_array(prompt) ? json_incref(prompt)
                                             : json_pack("[{s:s, s:O}]", "role", "user", "content", prompt);
    const ls_status status =
        ls_recipe_render(recipe, given, messages, json_array_size(messages), true, &text);
    if (status == LS_OK) {
        question->prompt = ls_arena_strdup(arena, ls_text_string(&text));
        question->is_marked = true;
        question->bos = -1;
    }
    ls_text_release(&text);
    json_decref(messages);
    return status;
}

/* The same for a prompt of a record with what else it gives its template. */
static ls_status render_given(const records_reader *reader, const ls_question_line *line, json_t *prompt,
                              ls_quiz_question *question)
{
    ls_conversation given = {0};
    LS_TRY(ls_conversation_read_given(line->record, &given));
    return render(line->arena, reader->keys->recipe, &given, prompt, question);
}

/* Takes the expected answer off the end of a conversation: the assistant's last message, with what
 * follows it. A label is the answer to a conversation that ends with another message. */
static const char *take_answer(const records_reader *reader, ls_arena *arena, json_t *messages)
{
    size_t last = json_array_size(messages) - 1;
    if (reader->keys->label[0] && !ls_message_is_answer(json_array_get(messages, last))) {
        return NULL;
    }
    while (last > 0 && !ls_message_is_answer(json_array_get(messages, last))) {
        json_array_remove(messages, last--);
    }
    const json_t *content = json_object_get(json_array_get(messages, last), "content");
    const char *answer = ls_arena_strdup(arena, json_is_string(content) ? json_string_value(content) : "");
    json_array_remove(messages, last);
    return answer;
}

static ls_status read_messages(const records_reader *reader, const ls_question_line *line,
                               const ls_conversation *conversation, ls_quiz *questions)
{
    size_t i;
    json_t *messages;
    const ls_recipe *recipe = reader->keys->recipe;
    json_array_foreach(conversation->conversations, i, messages)
    {
        ls_quiz_question *question = ls_question_add(line, questions);
        question->expected = take_answer(reader, line->arena, messages);
        if (ls_recipe_has_template(recipe)) {
            LS_TRY(render(line->arena, recipe, conversation, messages, question));
        } else {
            question->prompt = join(line->arena, messages);
            question->is_marked = true;
            question->bos = ls_recipe_bos(recipe);
        }
    }
    return LS_OK;
}

/* A prompt and its completion, which training joins as they are. */
static ls_status read_pair(const records_reader *reader, const ls_question_line *line,
                           const ls_conversation *conversation, ls_quiz *questions)
{
    ls_quiz_question *question = ls_question_add(line, questions);
    question->prompt = ls_arena_strdup(line->arena, conversation->prompt);
    question->expected = ls_arena_strdup(line->arena, conversation->completion);
    question->is_marked = true;
    question->bos = ls_recipe_bos(reader->keys->recipe);
    return reader->keys->makes_all
               ? render_given(reader, line, json_object_get(line->record, "prompt"), question)
               : LS_OK;
}

/* Reads a record as training would, if it has one of the forms of training. */
static ls_status read_trained(const records_reader *reader, const ls_question_line *line, ls_quiz *questions,
                              bool *is_read_out)
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
    ls_status status = ls_recipe_check_form(reader->keys->recipe, form);
    LS_TRY(status == LS_OK ? LS_OK : ls_fail_within(status, "%s:%llu", line->path, (ull)line->number));
    status = ls_conversation_read(line->record, &keys, form, &conversation);
    if (status != LS_OK && reader->keys->label[0]) {
        ls_error_clear(); /* a record with a label needs no answer */
        return LS_OK;
    }
    if (status == LS_OK) {
        *is_read_out = true;
        status = conversation.prompt ? read_pair(reader, line, &conversation, questions)
                                     : read_messages(reader, line, &conversation, questions);
        ls_conversation_release(&conversation);
    }
    return status == LS_OK ? LS_OK : ls_fail_within(status, "%s:%llu", line->path, (ull)line->number);
}

/* The text under the prompt's key, or what the template makes of it or of a list of messages. */
static ls_status read_prompt(const records_reader *reader, const ls_question_line *line, ls_quiz *questions)
{
    const ls_quiz_keys *keys = reader->keys;
    json_t *value = json_object_get(line->record, reader->prompt_key);
    ls_quiz_question *question = ls_question_add(line, questions);
    if (json_is_array(value) || (json_is_string(value) && keys->makes_all)) {
        ls_status status = ls_recipe_check_form(keys->recipe, LS_RECORD_MESSAGES);
        status = status == LS_OK ? render_given(reader, line, value, question) : status;
        return status == LS_OK ? LS_OK : ls_fail_within(status, "%s:%llu", line->path, (ull)line->number);
    }
    question->prompt = value ? ls_question_text(line->arena, value) : NULL;
    question->bos = ls_recipe_bos(keys->recipe);
    if (!question->prompt || !question->prompt[0]) {
        return ls_question_without(line, reader->prompt_key,
                                   "a text (--prompt-field names the key of the prompt)");
    }
    return LS_OK;
}

static ls_status read_record(void *context, const ls_question_line *line, ls_quiz *questions)
{
    records_reader *reader = context;
    const char *label_key = reader->keys->label, *label = NULL;
    if (!reader->prompt_key) {
        reader->prompt_key = find_prompt_key(reader, line);
    }
    bool is_read = false;
    if (label_key[0]) { /* before the record is changed */
        const json_t *value = json_object_get(line->record, label_key);
        label = value ? ls_question_text(line->arena, value) : NULL;
        if (!label || !label[0]) {
            return ls_question_without(line, label_key,
                                       "a text or a number (--label names the key of the label)");
        }
    }
    const size_t first = questions->count;
    LS_TRY(read_trained(reader, line, questions, &is_read));
    LS_TRY(is_read ? LS_OK : read_prompt(reader, line, questions));
    for (size_t i = first; i < questions->count && label; i++) {
        questions->items[i].expected = label;
    }
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
                           questions->items[i].path, (ull)questions->items[i].line, CHOICES_MAX);
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
                quiz->items[i].path, (ull)quiz->items[i].line);
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
                           "%s:%llu: the label '%.60s' is not one of the %zu choices of --choices", q->path,
                           (ull)q->line, q->expected, count);
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
    /* The labels of all records are the choices. */
    const bool reads_all = keys->choice_count == 1 && strcmp(keys->choices[0], "auto") == 0;
    LS_TRY(keys->makes_all ? ls_recipe_check_form(keys->recipe, LS_RECORD_MESSAGES) : LS_OK);
    LS_TRY(
        ls_questions_read_lines(arena, path, reads_all ? 0 : keys->limit, read_record, &reader, &questions));
    questions.prompt_key = ls_arena_strdup(arena, reader.prompt_key);
    questions.label_key = keys->label;
    if (keys->choice_count > 0) {
        LS_TRY(check_labels(&questions));
        LS_TRY(set_choices(arena, keys, &questions));
    }
    if (keys->limit > 0) {
        questions.count = ls_min_u64(questions.count, keys->limit);
    }
    *questions_out = questions;
    return LS_OK;
}

ls_status ls_questions_of_prompt(ls_arena *arena, const ls_recipe *recipe, const char *prompt,
                                 ls_quiz *questions_out)
{
    ls_quiz_question *question = ls_arena_new(arena, ls_quiz_question, 1);
    *question = (ls_quiz_question){.path = "", .prompt = prompt, .bos = ls_recipe_bos(recipe)};
    if (ls_recipe_has_template(recipe)) {
        json_t *text = json_string(prompt);
        if (!text) {
            return ls_fail(LS_ERR_INVALID, "--prompt is not valid UTF-8");
        }
        const ls_status status = render(arena, recipe, &(ls_conversation){0}, text, question);
        json_decref(text);
        LS_TRY(status);
    }
    *questions_out = (ls_quiz){.path = "", .items = question, .count = 1};
    return LS_OK;
}
