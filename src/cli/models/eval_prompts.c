// SPDX-License-Identifier: Apache-2.0
/* eval: prompts of records, by the chat template of a model. */
#include "cli/models/eval.h"

#include "base/file.h"
#include "execution/judge/chat_prompt.h"

#include <string.h>

/* The template of a model, from the files beside its weights. */
static ls_status find_in_model(ls_arena *arena, const char *path, ls_template_source *source_out)
{
    ls_model_file *file = NULL;
    LS_TRY(ls_model_file_open(path, &file));
    const ls_status status = ls_template_source_find(arena, file->path, NULL, source_out);
    if (status == LS_OK && file->tokenizer) {
        source_out->tokens = source_out->tokens ? source_out->tokens : json_object();
        ls_template_tokens_complete(file->tokenizer, source_out->tokens);
    }
    ls_model_file_close(file);
    return status;
}

/* Puts the template of --template in place of the model's, whose special tokens stay. */
static ls_status find_named(const ls_invocation *invocation, ls_template_source *source)
{
    const eval_settings *settings = invocation->settings;
    ls_template_source named = {0};
    LS_TRY(ls_template_source_find(invocation->arena, settings->template, NULL, &named));
    if (named.tokens && source->tokens) {
        json_object_update_missing(source->tokens, named.tokens);
    }
    json_decref(named.tokens);
    named.tokens = source->tokens;
    *source = named;
    return named.text ? LS_OK
                      : ls_fail(LS_ERR_INVALID, "--template: %s has no chat template", settings->template);
}

/* --template FILE; else the template of model `index`, else that of the other model. */
static ls_status find_template(const ls_invocation *invocation, size_t index, ls_template_source *source)
{
    const eval_settings *settings = invocation->settings;
    const bool is_auto = strcmp(settings->template, "auto") == 0;
    if (strcmp(settings->template, "none") == 0) {
        return LS_OK;
    }
    const size_t count = is_auto ? invocation->word_count : 1;
    for (size_t i = 0; i < count && !source->text; i++) {
        json_decref(source->tokens);
        *source = (ls_template_source){0};
        const char *path = invocation->words[(index + i) % invocation->word_count];
        LS_TRY(find_in_model(invocation->arena, path, source));
    }
    return is_auto ? LS_OK : find_named(invocation, source);
}

/* The choices of --choices, split at commas. */
static void read_choices(const ls_invocation *invocation, ls_quiz_keys *keys)
{
    const eval_settings *settings = invocation->settings;
    if (settings->choices[0]) {
        const char **choices;
        keys->choice_count = ls_eval_split(invocation->arena, settings->choices, &choices);
        keys->choices = choices;
    }
}

/* The one question of --prompt. */
static ls_status read_prompt(const ls_invocation *invocation, const ls_prompt_maker *maker, ls_quiz *quiz)
{
    const eval_settings *settings = invocation->settings;
    ls_quiz_question *question = ls_arena_new(invocation->arena, ls_quiz_question, 1);
    *quiz = (ls_quiz){.path = "", .items = question, .count = 1, .has_specials = true};
    question->prompt = settings->prompt;
    question->is_rendered = maker != NULL;
    if (!maker) {
        return LS_OK;
    }
    json_t *prompt = json_string(settings->prompt);
    if (!prompt) {
        return ls_fail(LS_ERR_INVALID, "--prompt is not valid UTF-8");
    }
    const ls_status status = maker->make(maker->context, invocation->arena, NULL, prompt, &question->prompt);
    json_decref(prompt);
    return status;
}

ls_status ls_eval_read_records(const ls_invocation *invocation, size_t index, ls_quiz *quiz_out)
{
    const eval_settings *settings = invocation->settings;
    ls_template_source source = {0};
    ls_chat_prompt *chat = NULL;
    ls_prompt_maker maker;
    ls_quiz_keys keys = {.prompt = settings->prompt_field,
                         .label = settings->label,
                         .makes_all = strcmp(settings->template, "auto") != 0};
    ls_status status = find_template(invocation, index, &source);
    if (status == LS_OK && source.text) {
        status = ls_chat_prompt_open(&source, settings->template_date, &chat);
    }
    if (chat) {
        maker = ls_chat_prompt_maker(chat);
        keys.maker = &maker;
    }
    if (status == LS_OK && settings->prompt[0]) {
        status = read_prompt(invocation, keys.maker, quiz_out);
    } else if (status == LS_OK) {
        read_choices(invocation, &keys);
        status = ls_questions_read_records(invocation->arena, settings->records, &keys, quiz_out);
    }
    ls_chat_prompt_close(chat);
    json_decref(source.tokens);
    LS_TRY(status);
    if (settings->limit > 0 && quiz_out->count > settings->limit) {
        quiz_out->count = settings->limit;
    }
    return LS_OK;
}
