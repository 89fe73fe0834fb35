// SPDX-License-Identifier: Apache-2.0
/*
 * The recipe of a run: from the keys data.* of its run file, the files of its model and its
 * tokenizer to what makes samples of records (data/conversation/recipe.h).
 */
#ifndef LS_EXECUTION_TRAIN_RUN_RECIPE_H
#define LS_EXECUTION_TRAIN_RUN_RECIPE_H

#include "base/arena.h"
#include "config/run_file.h"
#include "data/conversation/recipe.h"
#include "data/held_out.h"
#include "execution/train/model_file.h"
#include "model/config.h"
#include "model/huggingface.h"
#include "tokenizer/tokenizer.h"

typedef struct ls_run_recipe_options {
    /* May get data.template_date: today, if the template prints a date and none is set. */
    ls_run_file *run;
    /* The files of model.from, or none. */
    const ls_hf_file *files;
    size_t file_count;
    const ls_tokenizer *tokenizer;
    /* Its eos ids end a text. */
    const ls_model_config *config;
    /* Only prompts are made: without a date, a template that prints one sees the day of each. */
    bool is_for_prompts;
} ls_run_recipe_options;

typedef struct ls_run_recipe {
    /* The caller destroys it. Keys are borrowed from the run file. */
    ls_recipe *recipe;
    /* The chat template and where it comes from, in the arena; NULL: none. */
    const char *template_source, *template_name;
    /* It is in the files of model.from. */
    bool is_carried;
} ls_run_recipe;

/*
 * The chat template is data.template; with auto that of `files`, or with tokenizer.kind file the
 * one beside the tokenizer. chat_template.jinja goes before tokenizer_config.json, which also has
 * the special tokens. Errors: those of ls_recipe_create; LS_ERR_NOT_FOUND, LS_ERR_DATA for a file
 * that is named and holds no template.
 */
LS_MUST_CHECK ls_status ls_run_recipe_open(ls_arena *arena, const ls_run_recipe_options *options,
                                           ls_run_recipe *recipe_out);

/* ---- without a run ---- */

/* The run file of a run that would train on `data`, a path or a pattern, with defaults for what the
 * overrides ("key=value") leave open. `name` is for messages. Errors: those of ls_run_file_parse.
 */
LS_MUST_CHECK ls_status ls_run_file_of_data(ls_arena *arena, const char *name, const char *data,
                                            const char *const *overrides, size_t override_count,
                                            ls_run_file *run_out);

/* The recipe of such a run on `model`, or on none (NULL), with its template and special tokens. */
LS_MUST_CHECK ls_status ls_run_recipe_of_model(ls_arena *arena, ls_run_file *run, const ls_model_file *model,
                                               const ls_tokenizer *tokenizer, ls_run_recipe *recipe_out);

/*
 * How a model is asked: as it would be trained on conversations. template: data.template, "" for
 * auto; date: data.template_date, "" for that of each prompt. The template may be one
 * that can't be used: ls_recipe_check_template says so. Errors: those of ls_run_recipe_open.
 */
LS_MUST_CHECK ls_status ls_run_recipe_to_ask(ls_arena *arena, const ls_model_file *model,
                                             const char *template, const char *date,
                                             ls_run_recipe *recipe_out);

/* ---- what a run keeps ---- */

/*
 * Makes the files that a model of this run carries hold the template it was trained with, as
 * chat_template.jinja, unless they are `files` of the options, which hold it already. `tokenizer`
 * is added if there are no files yet. Everything new is in the arena.
 */
void ls_run_recipe_carry(ls_arena *arena, const ls_run_recipe *recipe, const ls_tokenizer *tokenizer,
                         ls_hf_file **files, size_t *count);

/* What data.format, data.field, data.prompt_field and data.completion_field say. */
ls_form_keys ls_run_form_keys(const ls_run_file *run);

/* What data.split_key and data.split_time say. */
ls_held_out_rule ls_run_held_out_rule(const ls_run_file *run);

#endif
