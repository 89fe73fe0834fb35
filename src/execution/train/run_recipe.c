// SPDX-License-Identifier: Apache-2.0
#include "execution/train/run_recipe.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "storage/checkpoint/checkpoint.h"
#include "tokenizer/template/template_source.h"

#include <string.h>
#include <time.h>

/* Template and special tokens of the model, or those beside the run's own tokenizer; data.template
 * may name another template. */
static ls_status find_template(ls_arena *arena, const ls_run_recipe_options *o, ls_template_source *found)
{
    const ls_run_file *run = o->run;
    const char *named = run->data.template, *file = run->tokenizer.file;
    LS_TRY(run->tokenizer.kind == LS_TOKENIZER_FILE
               ? ls_template_source_find(arena, ls_path_is_dir(file) ? file : ls_path_dirname(arena, file),
                                         NULL, found)
               : ls_model_template(arena, run->model.from, o->files, o->file_count, found));
    ls_template_tokens_complete(o->tokenizer, found->tokens);
    if (strcmp(named, "none") == 0) {
        found->text = NULL;
    }
    if (strcmp(named, "none") == 0 || strcmp(named, "auto") == 0) {
        return LS_OK;
    }
    if (ls_path_is_dir(ls_path_join(arena, named, "checkpoints"))) {
        LS_TRY(ls_checkpoint_resolve(arena, named, &named));
    }
    const ls_status status = ls_template_source_replace(arena, named, found);
    return status == LS_OK ? LS_OK
                           : ls_fail_within(status, o->is_for_prompts ? "--template" : "data.template");
}

ls_form_keys ls_run_form_keys(const ls_run_file *run)
{
    const ls_run_data *data = &run->data;
    return (ls_form_keys){.format = (ls_record_format)data->format,
                          .text = data->field[0] ? data->field : "text",
                          .prompt = data->prompt_field,
                          .completion = data->completion_field};
}

static const char *today(ls_arena *arena)
{
    const time_t now = (time_t)ls_clock_wall_s();
    struct tm day;
    char text[16];
    localtime_r(&now, &day);
    strftime(text, sizeof text, "%Y-%m-%d", &day);
    return ls_arena_strdup(arena, text);
}

static ls_status create(ls_arena *arena, const ls_run_recipe_options *o, const ls_template_source *s,
                        ls_recipe **recipe_out)
{
    ls_run_data *data = &o->run->data;
    int32_t stops[LS_MODEL_STOPS_MAX];
    if (s->text && ls_recipe_reads_date(s->text) && !data->template_date[0] && !o->is_for_prompts) {
        data->template_date = today(arena);
    }
    const ls_recipe_options options = {
        .keys = ls_run_form_keys(o->run),
        .loss_on = (ls_loss_on)data->loss_on,
        .skip_bad = data->bad_records == LS_RUN_BAD_SKIP,
        .template_source = s->text,
        .template_name = s->where,
        .template_date = data->template_date,
        .special_tokens = s->tokens,
        .stops = stops,
        .stop_count = ls_model_stops(o->config, o->tokenizer, stops),
        .tokenizer = o->tokenizer,
    };
    return ls_recipe_create(&options, recipe_out);
}

ls_status ls_run_recipe_open(ls_arena *arena, const ls_run_recipe_options *options, ls_run_recipe *recipe_out)
{
    ls_template_source s = {0};
    ls_run_recipe recipe = {0};
    ls_status status = find_template(arena, options, &s);
    if (status == LS_OK) {
        status = create(arena, options, &s, &recipe.recipe);
    }
    json_decref(s.tokens);
    LS_TRY(status);
    recipe.template_source = s.text;
    recipe.template_name = s.where;
    recipe.is_carried =
        options->run->tokenizer.kind != LS_TOKENIZER_FILE && strcmp(options->run->data.template, "auto") == 0;
    *recipe_out = recipe;
    return LS_OK;
}

ls_status ls_run_file_of_data(ls_arena *arena, const char *name, const char *data,
                              const char *const *overrides, size_t override_count, ls_run_file *run_out)
{
    ls_text text = {0};
    ls_text_printf(&text, "name: %s\ndata: {train: [", name);
    ls_text_append_quoted(&text, data);
    ls_text_append(&text, "]}\n");
    const ls_status status =
        ls_run_file_parse(text.data, text.bytes, name, overrides, override_count, arena, run_out);
    ls_text_release(&text);
    return status;
}

static ls_status open_of_model(ls_arena *arena, const ls_model_file *model, ls_run_recipe_options *options,
                               ls_run_recipe *recipe_out)
{
    static const ls_model_config none = {.bos_id = -1, .eos_id = -1, .pad_id = -1};
    ls_hf_file *files = NULL;
    LS_TRY(model ? ls_model_file_carried(model, arena, &files, &options->file_count) : LS_OK);
    options->files = files;
    options->config = model ? &model->config : &none;
    return ls_run_recipe_open(arena, options, recipe_out);
}

ls_status ls_run_recipe_of_model(ls_arena *arena, ls_run_file *run, const ls_model_file *model,
                                 const ls_tokenizer *tokenizer, ls_run_recipe *recipe_out)
{
    ls_run_recipe_options options = {.run = run, .tokenizer = tokenizer};
    return open_of_model(arena, model, &options, recipe_out);
}

ls_status ls_run_recipe_to_ask(ls_arena *arena, const ls_model_file *model, const char *template,
                               const char *date, ls_run_recipe *recipe_out)
{
    const char *override = ls_arena_printf(arena, "data.template_date=%s", date);
    ls_run_file run;
    ls_run_recipe_options options = {.run = &run, .tokenizer = model->tokenizer, .is_for_prompts = true};
    const ls_status status =
        ls_run_file_of_data(arena, "prompts", "records", &override, date[0] ? 1 : 0, &run);
    LS_TRY(status == LS_OK ? LS_OK : ls_fail_within(status, "--template-date"));
    run.model.from = model->path;
    run.data.template = template[0] ? template : "auto";
    return open_of_model(arena, model, &options, recipe_out);
}

void ls_run_recipe_carry(ls_arena *arena, const ls_run_recipe *recipe, const ls_tokenizer *tokenizer,
                         ls_hf_file **files, size_t *count)
{
    const char *source = recipe->template_source;
    ls_hf_file *list = ls_arena_new(arena, ls_hf_file, *count + 2);
    size_t kept = 0;
    if (!source || recipe->is_carried) {
        return;
    }
    for (size_t i = 0; i < *count; i++) {
        if (strcmp((*files)[i].name, "chat_template.jinja") != 0) {
            list[kept++] = (*files)[i];
        }
    }
    if (kept == 0 && strcmp(ls_tokenizer_kind(tokenizer), "bytes") != 0) {
        const void *data = NULL;
        ls_tokenizer_source(tokenizer, &list[0].name, &data, &list[0].bytes);
        list[kept++].data = data;
    }
    list[kept++] = (ls_hf_file){"chat_template.jinja", source, strlen(source)};
    *files = list;
    *count = kept;
}

ls_held_out_rule ls_run_held_out_rule(const ls_run_file *run)
{
    const bool is_time = run->data.split_time[0] != '\0';
    return (ls_held_out_rule){.key = is_time ? run->data.split_time : run->data.split_key,
                              .is_time = is_time};
}
