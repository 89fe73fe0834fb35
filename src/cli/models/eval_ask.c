// SPDX-License-Identifier: Apache-2.0
/* eval: asks a model the questions of records and tasks. */
#include "cli/models/eval.h"

#include "base/log.h"
#include "base/math.h"
#include "execution/train/run_recipe.h"
#include "tokenizer/template/template_source.h"

#include <string.h>

enum { SHOWN_DEFAULT = 10, ANSWER_TOKENS_DEFAULT = 256 };

size_t ls_eval_split(ls_arena *arena, const char *list, const char ***parts_out)
{
    size_t count = 1;
    for (const char *at = list; *at; at++) {
        count += *at == ',';
    }
    const char **parts = ls_arena_new(arena, const char *, count);
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = strcspn(list, ",");
        parts[i] = ls_arena_strndup(arena, list, bytes);
        list += bytes + (list[bytes] == ',');
    }
    *parts_out = parts;
    return count;
}

/* ---- prompts ---- */

/* The folder of the other model of the command, if it has a chat template; else NULL. */
static ls_status find_other_template(const ls_invocation *invocation, size_t index, const char **path_out)
{
    ls_model_file *other = NULL;
    ls_template_source source = {0};
    *path_out = NULL;
    LS_TRY(ls_model_file_open_bare(invocation->words[1 - index], &other));
    const ls_status status = ls_template_source_find(invocation->arena, other->path, NULL, &source);
    *path_out = source.text ? ls_arena_strdup(invocation->arena, other->path) : NULL;
    json_decref(source.tokens);
    ls_model_file_close(other);
    return status;
}

/* How the model would be trained on the records. */
static ls_status open_recipe(const ls_invocation *invocation, size_t index, const ls_model_file *file,
                             ls_run_recipe *recipe_out)
{
    ls_arena *arena = invocation->arena;
    const eval_settings *settings = invocation->settings;
    const char *date = settings->template_date, *other = NULL;
    LS_TRY(ls_run_recipe_to_ask(arena, file, settings->template, date, recipe_out));
    if (strcmp(settings->template, "auto") != 0 || recipe_out->template_source ||
        invocation->word_count < 2) {
        return LS_OK;
    }
    LS_TRY(find_other_template(invocation, index, &other));
    if (!other) {
        return LS_OK;
    }
    ls_recipe_destroy(recipe_out->recipe);
    recipe_out->recipe = NULL;
    return ls_run_recipe_to_ask(arena, file, other, date, recipe_out);
}

static ls_status check_labels(const ls_quiz *quiz)
{
    for (size_t i = 0; i < quiz->count; i++) {
        const ls_quiz_question *q = &quiz->items[i];
        if (!q->expected) {
            return ls_fail(
                LS_ERR_INVALID,
                "%s:%llu: the record does not end with an answer of the assistant: give --label KEY to name "
                "the key of the label or expected answer, or use --side-by-side, which needs neither",
                q->path, (unsigned long long)q->line);
        }
    }
    return LS_OK;
}

/* Reads --records, or the one question of --prompt. */
static ls_status read_questions(const ls_invocation *invocation, const ls_recipe *recipe, ls_quiz *quiz_out)
{
    const eval_settings *settings = invocation->settings;
    const char *template = settings->template, **choices = NULL;
    /* Reading two answers is what takes the time, a person's. */
    const bool is_read = settings->side_by_side && !settings->json;
    ls_quiz_keys keys = {.prompt = settings->prompt_field,
                         .label = settings->label,
                         .limit = settings->limit > 0 ? settings->limit
                                  : is_read           ? SHOWN_DEFAULT
                                                      : 0,
                         .recipe = recipe,
                         .makes_all = strcmp(template, "auto") != 0 && strcmp(template, "none") != 0};
    if (settings->prompt[0]) {
        return ls_questions_of_prompt(invocation->arena, recipe, settings->prompt, quiz_out);
    }
    keys.choice_count =
        settings->choices[0] ? ls_eval_split(invocation->arena, settings->choices, &choices) : 0;
    keys.choices = choices;
    LS_TRY(ls_questions_read_records(invocation->arena, settings->records, &keys, quiz_out));
    if (!quiz_out->items[0].is_marked && ls_recipe_has_template(recipe) && strcmp(template, "auto") == 0) {
        ls_log_warn("eval: the prompts of %s are asked as they are; --template %s puts each into the model's "
                    "chat template, as training with data.prompt_field does",
                    settings->records, invocation->words[0]);
    }
    return settings->side_by_side ? LS_OK : check_labels(quiz_out);
}

static ls_status read_records(const ls_invocation *invocation, size_t index, const ls_model_file *file,
                              ls_quiz *quiz_out)
{
    ls_run_recipe recipe = {0};
    ls_status status = open_recipe(invocation, index, file, &recipe);
    status = status == LS_OK ? read_questions(invocation, recipe.recipe, quiz_out) : status;
    ls_recipe_destroy(recipe.recipe);
    return status;
}

/* ---- answers ---- */

static uint64_t answer_tokens(const eval_settings *settings, int64_t context)
{
    const uint64_t half = ls_clamp_u64((uint64_t)context / 2, 1, ANSWER_TOKENS_DEFAULT);
    return settings->max_tokens == LS_AUTO_U64 ? half : settings->max_tokens;
}

static ls_status ask_loaded(const ls_invocation *invocation, size_t index, ls_loaded_model *model,
                            ls_quiz *quizzes, size_t count, ls_quiz_answer **answers_out)
{
    ls_arena *arena = invocation->arena;
    const eval_settings *settings = invocation->settings;
    int32_t stops[LS_MODEL_STOPS_MAX];
    LS_TRY(ls_loaded_model_choose_tokenizer(model, settings->tokenizer));
    LS_TRY(settings->tasks[0] ? LS_OK : read_records(invocation, index, model->file, quizzes));
    const ls_judged_model judged = {.on_device = ls_loaded_model_on_device(model),
                                    .tokenizer = model->file->tokenizer,
                                    .stops = stops,
                                    .stop_count =
                                        ls_model_stops(&model->file->config, model->file->tokenizer, stops)};
    for (size_t i = 0; i < count; i++) {
        answers_out[i] = ls_arena_new(arena, ls_quiz_answer, quizzes[i].count);
        quizzes[i].answer_tokens = answer_tokens(settings, model->file->config.context);
        LS_TRY(ls_judge_answer(arena, &judged, &quizzes[i], answers_out[i]));
    }
    return LS_OK;
}

ls_status ls_eval_ask(const ls_invocation *invocation, size_t index, ls_quiz *quizzes, size_t count,
                      ls_quiz_answer **answers_out)
{
    const eval_settings *settings = invocation->settings;
    const bool is_last = index + 1 == invocation->word_count; /* of two, the one after training */
    const ls_loaded_model_options options = {.path = invocation->words[index],
                                             .adapter = is_last ? settings->adapter : "",
                                             .threads = settings->threads,
                                             .is_bare = settings->tokenizer[0] != '\0'};
    ls_loaded_model model;
    LS_TRY(ls_loaded_model_open(&model, &options));
    const ls_status status = ask_loaded(invocation, index, &model, quizzes, count, answers_out);
    ls_loaded_model_release(&model);
    return status;
}
