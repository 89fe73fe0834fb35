// SPDX-License-Identifier: Apache-2.0
/* eval A B --side-by-side: the answers of two models in two columns. */
#include "cli/models/eval.h"
#include "cli/table.h"

#include "base/math.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH_DEFAULT = 100, WIDTH_LEAST = 40 };

/* Takes the next line of at most `width` characters from *at, cut at a space if there is one. */
static void next_line(const char **at, size_t width, ls_text *line)
{
    const char *start = *at, *space = NULL, *end = start;
    size_t shown = 0;
    while (*end && *end != '\n' && shown < width) {
        space = *end == ' ' ? end : space;
        end++;
        while (((unsigned char)*end & 0xC0) == 0x80) {
            end++;
        }
        shown++;
    }
    if (*end && *end != '\n' && *end != ' ' && space && space > start) {
        end = space;
    }
    ls_text_append_bytes(line, start, (size_t)(end - start));
    *at = *end == '\n' || *end == ' ' ? end + 1 : end;
}

static size_t shown_width(const ls_text *line)
{
    size_t width = 0;
    for (size_t i = 0; i < line->bytes; i++) {
        width += ((unsigned char)line->data[i] & 0xC0) != 0x80;
    }
    return width;
}

static void print_columns(const char *left, const char *right, size_t width)
{
    ls_text texts[2] = {{0}, {0}}, line = {0};
    ls_text_append_printable(&texts[0], left, strlen(left), "\n");
    ls_text_append_printable(&texts[1], right, strlen(right), "\n");
    const char *at[2] = {ls_text_string(&texts[0]), ls_text_string(&texts[1])};
    const size_t column = (width - 3) / 2;
    do {
        ls_text_clear(&line);
        next_line(&at[0], column, &line);
        printf("%s%*s | ", ls_text_string(&line), (int)(column - shown_width(&line)), "");
        ls_text_clear(&line);
        next_line(&at[1], column, &line);
        puts(ls_text_string(&line));
    } while (*at[0] || *at[1]);
    ls_text_release(&texts[0]);
    ls_text_release(&texts[1]);
    ls_text_release(&line);
}

static void print_quoted(const char *what, const char *text)
{
    ls_text shown = {0};
    ls_text_append_printable(&shown, text, strlen(text), "\n");
    printf("%s%s\n", what, ls_text_string(&shown));
    ls_text_release(&shown);
}

static void print_answers(const ls_invocation *invocation, const ls_quiz *questions,
                          ls_quiz_answer *const *answers)
{
    const size_t terminal = ls_terminal_width();
    const size_t width = terminal == 0 ? WIDTH_DEFAULT : ls_max_u64(terminal, WIDTH_LEAST);
    for (size_t i = 0; i < questions->count; i++) {
        const ls_quiz_question *q = &questions->items[i];
        if (q->line > 0) {
            printf("%s:%llu\n", q->path, (unsigned long long)q->line);
        }
        print_quoted("prompt: ", q->prompt);
        if (q->expected) {
            print_quoted("expected: ", q->expected);
        }
        print_columns(invocation->words[0], invocation->words[1], width);
        print_columns(answers[0][i].text, answers[1][i].text, width);
        print_columns(answers[0][i].has_stopped ? "" : "(no end within --max-tokens)",
                      answers[1][i].has_stopped ? "" : "(no end within --max-tokens)", width);
        putchar('\n');
    }
}

static void print_json(const ls_invocation *invocation, const ls_quiz *questions,
                       ls_quiz_answer *const *answers)
{
    json_t *list = json_array();
    for (size_t i = 0; i < questions->count; i++) {
        const ls_quiz_question *q = &questions->items[i];
        const ls_quiz_answer *a = &answers[0][i], *b = &answers[1][i];
        json_array_append_new(list, json_pack("{s:o, s:s, s:s?, s:[s, s], s:[b, b]}", "line",
                                              q->line ? json_integer((json_int_t)q->line) : json_null(),
                                              "prompt", q->prompt, "expected", q->expected, "answers",
                                              a->text, b->text, "stopped", a->has_stopped, b->has_stopped));
    }
    json_t *root =
        json_pack("{s:[s, s], s:o}", "models", invocation->words[0], invocation->words[1], "answers", list);
    ls_print_json(root);
    json_decref(root);
}

ls_status ls_eval_side_by_side(const ls_invocation *invocation)
{
    const eval_settings *settings = invocation->settings;
    ls_quiz quiz = {0};
    ls_quiz_answer *answers[2];
    if (settings->choices[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "--side-by-side shows answers that the models write: leave out --choices");
    }
    for (size_t i = 0; i < 2; i++) {
        LS_TRY(ls_eval_ask(invocation, i, &quiz, 1, &answers[i]));
    }
    (settings->json ? print_json : print_answers)(invocation, &quiz, answers);
    return LS_OK;
}
