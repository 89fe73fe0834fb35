// SPDX-License-Identifier: Apache-2.0
/*
 * Questions: what a model is judged by, read from files of records (data/records.h).
 *
 * Records are a team's own: a prompt, and the label or answer that was expected. Tasks are public
 * multiple-choice files, whose form is known by the name of the task or by the keys of the records:
 *
 *   form        keys                                     prompt and endings
 *   hellaswag   ctx (activity_label, ctx_a, ctx_b),      the context, with the activity's name and
 *               endings, label                           without the remarks in brackets
 *   arc         question, choices {text, label},         "Question: ...\nAnswer:", the choices
 *               answerKey
 *   piqa        goal, sol1, sol2, label                  the same with the goal
 *   winogrande  sentence, option1, option2, answer       the sentence up to _ with an option in its
 *                                                        place; what follows is scored
 *   lambada     text                                     all but the last word; the last word
 *   mmlu        question, choices, answer (subject)      the choices with letters; a letter
 *   choices     question, prompt, query or context;      "Question: ...\nAnswer:", or the prompt as
 *               choices; answer, label or gold           it is
 *
 * Prompts are those of lm-evaluation-harness, so that numbers can be compared. A label is a number
 * from 0, a letter, or the text of a choice; winogrande's and numbered ARC labels begin with 1.
 *
 * Nothing here computes. All texts live in the arena that is passed.
 */
#ifndef LS_EXECUTION_JUDGE_QUESTIONS_H
#define LS_EXECUTION_JUDGE_QUESTIONS_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "data/conversation/recipe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_quiz_question {
    /* file and line, from 1; 0: from no file */
    const char *path;
    uint64_t line;
    /* what the model continues; with `prompts`, that of the right ending */
    const char *prompt;
    /* (ending_count) a prompt for each ending; NULL: `prompt` for all */
    const char *const *prompts;
    /* (ending_count) what may follow, with the space before it; NULL: an answer is generated */
    const char *const *endings;
    size_t ending_count;
    /* index of the right ending */
    size_t right;
    /* the label or answer of the record; NULL for a record without one */
    const char *expected;
    /* As in training on the record: special tokens that the texts name are those tokens. */
    bool is_marked;
    /* Goes before a text that does not begin with it; -1: nothing. */
    int32_t bos;
} ls_quiz_question;

typedef struct ls_quiz {
    const char *path;
    ls_quiz_question *items;
    size_t count, capacity;
    const char *form; /* of a task: "hellaswag", ... */
    /* keys the records were read by; NULL for a task */
    const char *prompt_key, *label_key;
    uint64_t answer_tokens; /* the most that a generated answer may have */
} ls_quiz;

typedef struct ls_quiz_keys {
    /* "": records of the forms of training (data/conversation/conversation.h) are read as there; of
     * others the first of prompt, question, instruction, input, text */
    const char *prompt;
    /* "": the answer of a record of those forms; else none is needed */
    const char *label;
    /* what may be answered; NULL: anything. One name "auto": the labels of the file */
    const char *const *choices;
    size_t choice_count;
    /* How the model was trained: its template makes prompts of conversations, and with `makes_all`
     * of any text. Without one, conversations of one question are joined, as in training; others
     * can't be asked. */
    const ls_recipe *recipe;
    bool makes_all;
    /* questions, from the beginning of the file; what follows them is not read, except for the
     * labels of choices "auto". 0: all */
    uint64_t limit;
} ls_quiz_keys;

/*
 * Reads labelled or answered records. The last answer of a conversation and what follows it are not
 * part of its prompt; with a label, a conversation that does not end with an answer is the prompt.
 * A record of several conversations gives a question for each. With choices, each record's label
 * must be one of them; the endings of all questions are then one list, in the order of the choices.
 *
 * Errors, with path and line: LS_ERR_DATA for a record that is no JSON object, a record without the
 * prompt or the label, a label that is no choice, a file without records; LS_ERR_NOT_FOUND.
 */
LS_MUST_CHECK ls_status ls_questions_read_records(ls_arena *arena, const char *path, const ls_quiz_keys *keys,
                                                  ls_quiz *questions_out);

/* The one question `prompt`, as a user's message if the recipe has a template. Errors:
 * LS_ERR_INVALID for text that is not UTF-8; those of ls_recipe_render. */
LS_MUST_CHECK ls_status ls_questions_of_prompt(ls_arena *arena, const ls_recipe *recipe, const char *prompt,
                                               ls_quiz *questions_out);

/*
 * Reads a task. name: of the task; where it begins with the name of a form, it decides about the
 * form ("arc_easy"). shots: the first records of the file become examples before each prompt, with
 * their right endings, and are not asked. limit: as in ls_quiz_keys. Errors as above;
 * LS_ERR_INVALID for more shots than records.
 */
LS_MUST_CHECK ls_status ls_questions_read_task(ls_arena *arena, const char *name, const char *path,
                                               uint64_t shots, uint64_t limit, ls_quiz *questions_out);

/* ---- for the two readers ---- */

/* One record of a file. */
typedef struct ls_question_line {
    ls_arena *arena;
    const char *path;
    uint64_t number;
    json_t *record;
} ls_question_line;

/* Adds the questions of a record to the quiz. */
typedef ls_status (*ls_question_reader)(void *context, const ls_question_line *line, ls_quiz *quiz);

/* Adds a question of the line, valid until the next one is added. */
ls_quiz_question *ls_question_add(const ls_question_line *line, ls_quiz *quiz);

/* Reads the records of a file, a folder or a pattern, until there are `limit` questions (0: all).
 * Errors: those of `read`; LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_questions_read_lines(ls_arena *arena, const char *path, uint64_t limit,
                                                ls_question_reader read, void *context,
                                                ls_quiz *questions_out);

/* Fails with LS_ERR_DATA: the record has no usable `key`; names its keys. wanted: "a text", ... */
LS_MUST_CHECK ls_status ls_question_without(const ls_question_line *line, const char *key,
                                            const char *wanted);

/* The text of a string, number or boolean; NULL for another type. */
const char *ls_question_text(ls_arena *arena, const json_t *value);

#endif
