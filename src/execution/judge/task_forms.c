// SPDX-License-Identifier: Apache-2.0
/* Public multiple-choice files: their forms, and the prompts that are made of them. */
#include "base/text.h"
#include "execution/judge/questions.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum { CHOICES_MAX = 26 }; /* as many as there are letters */

/* ---- parts of a record ---- */

static ls_status text_of(const ls_question_line *line, const char *key, const char **text_out)
{
    const json_t *value = json_object_get(line->record, key);
    const char *text = value ? ls_question_text(line->arena, value) : NULL;
    if (!text) {
        return ls_question_without(line, key, "a text");
    }
    *text_out = text;
    return LS_OK;
}

/* The list of texts in `list`, each after a space. */
static ls_status endings_of(const ls_question_line *line, const json_t *list, const char *key,
                            ls_quiz_question *question)
{
    const size_t count = json_array_size(list);
    if (count < 2 || count > CHOICES_MAX) {
        return ls_question_without(line, key, "a list of 2 to 26 texts");
    }
    const char **endings = ls_arena_new(line->arena, const char *, count);
    for (size_t i = 0; i < count; i++) {
        const char *text = ls_question_text(line->arena, json_array_get(list, i));
        if (!text || !text[0]) {
            return ls_question_without(line, key, "texts that are not empty");
        }
        endings[i] = ls_arena_printf(line->arena, " %s", text);
    }
    question->endings = endings;
    question->ending_count = count;
    return LS_OK;
}

/* The label under `key`: a number from `first`, a letter from A, or the text of an ending. */
static ls_status right_of(const ls_question_line *line, const char *key, long first,
                          ls_quiz_question *question)
{
    const char *label = "";
    LS_TRY(text_of(line, key, &label));
    char *end;
    const long number = strtol(label, &end, 10) - first;
    size_t right = question->ending_count;
    if (end != label && !*end && number >= 0) {
        right = (size_t)number;
    } else if (label[0] >= 'A' && label[0] <= 'Z' && !label[1]) {
        right = (size_t)(label[0] - 'A');
    }
    for (size_t i = 0; i < question->ending_count && right >= question->ending_count; i++) {
        right = strcmp(question->endings[i] + 1, label) == 0 ? i : right;
    }
    if (right >= question->ending_count) {
        return ls_fail(LS_ERR_DATA,
                       "%s:%llu: `%s` is '%.40s', which is not one of the %zu choices: write the choice's "
                       "number (the first is %ld), its letter (the first is A) or its text",
                       line->path, (ull)line->number, key, label, question->ending_count, first);
    }
    question->right = right;
    return LS_OK;
}

static const char *asked(const ls_question_line *line, const char *question)
{
    return ls_arena_printf(line->arena, "Question: %s\nAnswer:", question);
}

/* ---- forms ---- */

static void replace_all(ls_text *text, const char *from, const char *to)
{
    ls_text out = {0};
    const char *at = ls_text_string(text);
    for (const char *hit; (hit = strstr(at, from)); at = hit + strlen(from)) {
        ls_text_append_bytes(&out, at, (size_t)(hit - at));
        ls_text_append(&out, to);
    }
    ls_text_append(&out, at);
    ls_text_release(text);
    *text = out;
}

/* Without the marks of WikiHow: "[title]", "[step]" and other remarks in brackets. */
static const char *hellaswag_clean(ls_arena *arena, const char *raw)
{
    ls_text text = {0};
    ls_text_append(&text, ls_text_trim(ls_arena_strdup(arena, raw)));
    replace_all(&text, " [title]", ". ");
    char *to = text.data;
    for (const char *at = text.data; at && *at;) {
        const char *close = *at == '[' ? strchr(at, ']') : NULL;
        if (close) {
            at = close + 1;
        } else {
            *to++ = *at++;
        }
    }
    if (to) {
        *to = '\0';
        text.bytes = (size_t)(to - text.data);
    }
    replace_all(&text, "  ", " ");
    return ls_text_keep(&text, arena);
}

static const char *capitalised(ls_arena *arena, const char *raw)
{
    char *text = ls_arena_strdup(arena, raw);
    for (char *at = text; *at; at++) {
        *at = (char)(at == text ? toupper((unsigned char)*at) : tolower((unsigned char)*at));
    }
    return text;
}

static ls_status read_hellaswag(const ls_question_line *line, ls_quiz_question *q)
{
    const char *context = "";
    const json_t *a = json_object_get(line->record, "ctx_a"), *b = json_object_get(line->record, "ctx_b");
    const json_t *activity = json_object_get(line->record, "activity_label");
    if (json_is_string(a) && json_is_string(b) && json_is_string(activity)) {
        context = ls_arena_printf(line->arena, "%s: %s %s", json_string_value(activity), json_string_value(a),
                                  capitalised(line->arena, json_string_value(b)));
    } else {
        LS_TRY(text_of(line, "ctx", &context));
    }
    q->prompt = hellaswag_clean(line->arena, context);
    LS_TRY(endings_of(line, json_object_get(line->record, "endings"), "endings", q));
    const char **endings = ls_arena_new(line->arena, const char *, q->ending_count);
    for (size_t i = 0; i < q->ending_count; i++) {
        endings[i] = ls_arena_printf(line->arena, " %s", hellaswag_clean(line->arena, q->endings[i]));
    }
    q->endings = endings;
    return right_of(line, "label", 0, q);
}

static ls_status read_arc(const ls_question_line *line, ls_quiz_question *q)
{
    const char *question = "", *key = "";
    LS_TRY(text_of(line, "question", &question));
    LS_TRY(text_of(line, "answerKey", &key));
    q->prompt = asked(line, question);
    const json_t *choices = json_object_get(line->record, "choices");
    LS_TRY(endings_of(line, json_object_get(choices, "text"), "choices.text", q));
    const json_t *labels = json_object_get(choices, "label");
    for (size_t i = 0; i < q->ending_count; i++) {
        const char *label = json_string_value(json_array_get(labels, i));
        if (label && strcmp(label, key) == 0) {
            q->right = i;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_DATA, "%s:%llu: `answerKey` is '%.40s', which is not in choices.label", line->path,
                   (ull)line->number, key);
}

static ls_status two_endings(const ls_question_line *line, const char *first, const char *second,
                             ls_quiz_question *q)
{
    const char **endings = ls_arena_new(line->arena, const char *, 2);
    LS_TRY(text_of(line, first, &endings[0]));
    LS_TRY(text_of(line, second, &endings[1]));
    for (size_t i = 0; i < 2; i++) {
        endings[i] = ls_arena_printf(line->arena, " %s", endings[i]);
    }
    q->endings = endings;
    q->ending_count = 2;
    return LS_OK;
}

static ls_status read_piqa(const ls_question_line *line, ls_quiz_question *q)
{
    const char *goal = "";
    LS_TRY(text_of(line, "goal", &goal));
    LS_TRY(two_endings(line, "sol1", "sol2", q));
    q->prompt = asked(line, goal);
    return right_of(line, "label", 0, q);
}

static ls_status read_winogrande(const ls_question_line *line, ls_quiz_question *q)
{
    const char *sentence = "";
    LS_TRY(text_of(line, "sentence", &sentence));
    const char *gap = strchr(sentence, '_');
    if (!gap) {
        return ls_question_without(line, "sentence", "a _ for what is missing");
    }
    LS_TRY(two_endings(line, "option1", "option2", q));
    LS_TRY(right_of(line, "answer", 1, q));
    const char **prompts = ls_arena_new(line->arena, const char *, 2);
    const char **rest = ls_arena_new(line->arena, const char *, 2);
    for (size_t i = 0; i < 2; i++) {
        prompts[i] =
            ls_arena_printf(line->arena, "%.*s%s", (int)(gap - sentence), sentence, q->endings[i] + 1);
        rest[i] = ls_arena_printf(line->arena, " %s", ls_text_trim(ls_arena_strdup(line->arena, gap + 1)));
    }
    q->prompt = prompts[q->right];
    q->prompts = prompts;
    q->endings = rest;
    return LS_OK;
}

static ls_status read_lambada(const ls_question_line *line, ls_quiz_question *q)
{
    const char *text = "";
    LS_TRY(text_of(line, "text", &text));
    const char *gap = strrchr(text, ' ');
    if (!gap || gap == text || !gap[1]) {
        return ls_question_without(line, "text", "at least two words");
    }
    const char **endings = ls_arena_new(line->arena, const char *, 1);
    endings[0] = ls_arena_strdup(line->arena, gap);
    q->prompt = ls_arena_strndup(line->arena, text, (size_t)(gap - text));
    q->endings = endings;
    q->ending_count = 1;
    return LS_OK;
}

static ls_status read_mmlu(const ls_question_line *line, ls_quiz_question *q)
{
    const char *question = "";
    LS_TRY(text_of(line, "question", &question));
    LS_TRY(endings_of(line, json_object_get(line->record, "choices"), "choices", q));
    LS_TRY(right_of(line, "answer", 0, q));
    const char **letters = ls_arena_new(line->arena, const char *, q->ending_count);
    ls_text prompt = {0};
    ls_text_printf(&prompt, "%s\n", ls_text_trim(ls_arena_strdup(line->arena, question)));
    for (size_t i = 0; i < q->ending_count; i++) {
        ls_text_printf(&prompt, "%c.%s\n", (char)('A' + (int)i), q->endings[i]);
        letters[i] = ls_arena_printf(line->arena, " %c", (char)('A' + (int)i));
    }
    ls_text_append(&prompt, "Answer:");
    q->prompt = ls_arena_strdup(line->arena, ls_text_string(&prompt));
    q->endings = letters;
    ls_text_release(&prompt);
    return LS_OK;
}

/* The first of `keys` that the record has, or the first of all. */
static const char *first_key(const ls_question_line *line, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (json_object_get(line->record, keys[i])) {
            return keys[i];
        }
    }
    return keys[0];
}

static ls_status read_choices(const ls_question_line *line, ls_quiz_question *q)
{
    static const char *const prompts[] = {"question", "prompt", "query", "context"};
    static const char *const labels[] = {"answer", "label", "gold"};
    const char *key = first_key(line, prompts, 4), *prompt = "";
    LS_TRY(text_of(line, key, &prompt));
    LS_TRY(endings_of(line, json_object_get(line->record, "choices"), "choices", q));
    LS_TRY(right_of(line, first_key(line, labels, 3), 0, q));
    q->prompt = strcmp(key, "question") == 0 ? asked(line, prompt) : prompt;
    return LS_OK;
}

static const struct task_form {
    const char *name;
    /* keys by which a record shows its form */
    const char *keys[2];
    ls_status (*read)(const ls_question_line *line, ls_quiz_question *question);
} forms[] = {
    {"hellaswag", {"endings", "endings"}, read_hellaswag},
    {"piqa", {"sol1", "sol2"}, read_piqa},
    {"winogrande", {"option1", "sentence"}, read_winogrande},
    {"arc", {"answerKey", "choices"}, read_arc},
    {"mmlu", {"subject", "choices"}, read_mmlu},
    {"choices", {"choices", "choices"}, read_choices},
    {"lambada", {"text", "text"}, read_lambada},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

/* ---- a file ---- */

typedef struct task_reader {
    const char *name;
    const struct task_form *form; /* found at the first record, then the same for all */
} task_reader;

static const struct task_form *find_form(const char *name, const json_t *record)
{
    for (size_t i = 0; i < FORMS; i++) {
        if (strncmp(name, forms[i].name, strlen(forms[i].name)) == 0) {
            return &forms[i];
        }
    }
    for (size_t i = 0; i < FORMS; i++) {
        if (json_object_get(record, forms[i].keys[0]) && json_object_get(record, forms[i].keys[1])) {
            return &forms[i];
        }
    }
    return NULL;
}

static ls_status read_task_line(void *context, const ls_question_line *line, ls_quiz *questions)
{
    task_reader *reader = context;
    if (!reader->form) {
        reader->form = find_form(reader->name, line->record);
    }
    if (!reader->form) {
        return ls_question_without(
            line, "choices",
            "a list of texts, nor the keys of hellaswag, arc, piqa, winogrande, lambada "
            "or mmlu");
    }
    ls_quiz_question *question = ls_question_add(line, questions);
    LS_TRY(reader->form->read(line, question));
    question->expected = question->endings[question->right];
    return LS_OK;
}

/* Puts the first records as examples before the prompts of the others, and leaves them out. */
static void add_shots(ls_arena *arena, uint64_t shots, ls_quiz *questions)
{
    ls_text examples = {0};
    for (uint64_t i = 0; i < shots; i++) {
        const ls_quiz_question *q = &questions->items[i];
        ls_text_printf(&examples, "%s%s\n\n", q->prompt, q->endings[q->right]);
    }
    questions->items += shots;
    questions->count -= shots;
    for (size_t i = 0; i < questions->count; i++) {
        ls_quiz_question *q = &questions->items[i];
        q->prompt = ls_arena_printf(arena, "%s%s", ls_text_string(&examples), q->prompt);
        if (!q->prompts) {
            continue;
        }
        const char **prompts = ls_arena_new(arena, const char *, q->ending_count);
        for (size_t j = 0; j < q->ending_count; j++) {
            prompts[j] = ls_arena_printf(arena, "%s%s", ls_text_string(&examples), q->prompts[j]);
        }
        q->prompts = prompts;
    }
    ls_text_release(&examples);
}

ls_status ls_questions_read_task(ls_arena *arena, const char *name, const char *path, uint64_t shots,
                                 uint64_t limit, ls_quiz *questions_out)
{
    task_reader reader = {.name = name};
    ls_quiz questions = {0};
    const uint64_t wanted = limit > 0 && limit < UINT64_MAX - shots ? limit + shots : 0;
    LS_TRY(ls_questions_read_lines(arena, path, wanted, read_task_line, &reader, &questions));
    if (shots >= questions.count) {
        return ls_fail(LS_ERR_INVALID,
                       "--shots is %llu, but %s has %zu records, and at least one must be left "
                       "to ask",
                       (ull)shots, path, questions.count);
    }
    questions.form = reader.form->name;
    if (shots > 0) {
        add_shots(arena, shots, &questions);
    }
    *questions_out = questions;
    return LS_OK;
}
