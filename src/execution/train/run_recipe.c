// SPDX-License-Identifier: Apache-2.0
#include "execution/train/run_recipe.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "execution/train/model_file.h"

#include <string.h>
#include <time.h>

enum { FILE_BYTES_MAX = 64 << 20 };

static const char TEMPLATE_FILE[] = "chat_template.jinja", CONFIG_FILE[] = "tokenizer_config.json";

/* Where template and special tokens are looked for. Texts in the arena; NULL: there is none. */
typedef struct sources {
    const char *template, *template_name;
    const char *config, *config_name;
    size_t config_bytes;
} sources;

static const ls_hf_file *find_file(const ls_run_recipe_options *o, const char *name)
{
    for (size_t i = 0; i < o->file_count; i++) {
        if (strcmp(o->files[i].name, name) == 0) {
            return &o->files[i];
        }
    }
    return NULL;
}

static void take_files(ls_arena *arena, const ls_run_recipe_options *o, sources *s)
{
    const ls_hf_file *template = find_file(o, TEMPLATE_FILE), *config = find_file(o, CONFIG_FILE);
    const char *from = o->run->model.from;
    if (template) {
        s->template = ls_arena_strndup(arena, template->data, template->bytes);
        s->template_name = ls_path_join(arena, from, TEMPLATE_FILE);
    }
    if (config) {
        s->config = ls_arena_strndup(arena, config->data, config->bytes);
        s->config_bytes = config->bytes;
        s->config_name = ls_path_join(arena, from, CONFIG_FILE);
    }
}

static ls_status read_if_there(ls_arena *arena, const char *path, const char **text_out, size_t *bytes_out)
{
    char *text = NULL;
    if (!ls_path_exists(path)) {
        return LS_OK;
    }
    LS_TRY(ls_file_read(arena, path, FILE_BYTES_MAX, &text, bytes_out));
    *text_out = text;
    return LS_OK;
}

static ls_status take_folder(ls_arena *arena, const char *folder, sources *s)
{
    size_t bytes = 0;
    s->template_name = ls_path_join(arena, folder, TEMPLATE_FILE);
    s->config_name = ls_path_join(arena, folder, CONFIG_FILE);
    LS_TRY(read_if_there(arena, s->template_name, &s->template, &bytes));
    return read_if_there(arena, s->config_name, &s->config, &s->config_bytes);
}

/* The template of a tokenizer_config.json: a string, or the one called `default` of a list. */
static const char *template_in(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template"), *item;
    const char *found = json_string_value(value);
    size_t i;
    json_array_foreach(value, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0) {
            found = json_string_value(json_object_get(item, "template"));
        }
    }
    return found;
}

/* bos_token and the like: a string, or an object with `content`. */
static void take_specials(const json_t *config, json_t *specials)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        if (ls_path_has_suffix(key, "_token") && json_is_string(text)) {
            json_object_set(specials, key, text);
        }
    }
}

/* Special tokens that the configuration does not name are those of the tokenizer. */
static void add_specials(const ls_tokenizer *tokenizer, json_t *specials)
{
    const struct {
        const char *key;
        int32_t id;
    } known[] = {{"bos_token", ls_tokenizer_bos(tokenizer)}, {"eos_token", ls_tokenizer_eos(tokenizer)}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *piece = known[i].id >= 0 ? ls_tokenizer_piece(tokenizer, known[i].id) : NULL;
        if (piece && !json_object_get(specials, known[i].key)) {
            json_object_set_new(specials, known[i].key, json_string(piece));
        }
    }
}

static ls_status read_config(ls_arena *arena, sources *s, json_t *specials)
{
    json_t *config = NULL;
    if (!s->config) {
        return LS_OK;
    }
    LS_TRY(ls_json_parse(s->config, s->config_bytes, s->config_name, &config));
    const char *template = template_in(config);
    if (!s->template && template) {
        s->template = ls_arena_strdup(arena, template);
        s->template_name = s->config_name;
    }
    take_specials(config, specials);
    json_decref(config);
    return LS_OK;
}

/* The file or folder that data.template names replaces the model's template, not its special
 * tokens. */
static ls_status read_named(ls_arena *arena, const char *path, sources *s)
{
    sources named = {0};
    json_t *ignored = json_object();
    size_t bytes = 0;
    ls_status status = LS_OK;
    if (ls_path_is_dir(path)) {
        status = take_folder(arena, path, &named);
    } else if (ls_path_has_suffix(path, ".json")) {
        named.config_name = path;
        status = read_if_there(arena, path, &named.config, &named.config_bytes);
    } else {
        named.template_name = path;
        status = read_if_there(arena, path, &named.template, &bytes);
    }
    if (status == LS_OK && !named.template) {
        status = read_config(arena, &named, ignored);
    }
    json_decref(ignored);
    if (status == LS_OK && !named.template) {
        return ls_path_exists(path)
                   ? ls_fail(LS_ERR_DATA,
                             "data.template: %s holds no chat template: name a .jinja file, or a "
                             "tokenizer_config.json with the key chat_template",
                             path)
                   : ls_fail(LS_ERR_NOT_FOUND, "data.template: there is no file %s", path);
    }
    s->template = named.template;
    s->template_name = named.template_name;
    return status;
}

static ls_status find_sources(ls_arena *arena, const ls_run_recipe_options *o, sources *s, json_t *specials)
{
    const ls_run_file *run = o->run;
    if (run->tokenizer.kind == LS_TOKENIZER_FILE) {
        const char *file = run->tokenizer.file;
        LS_TRY(take_folder(arena, ls_path_is_dir(file) ? file : ls_path_dirname(arena, file), s));
    } else {
        take_files(arena, o, s);
    }
    LS_TRY(read_config(arena, s, specials));
    add_specials(o->tokenizer, specials);
    if (strcmp(run->data.template, "none") == 0) {
        s->template = NULL;
        return LS_OK;
    }
    return strcmp(run->data.template, "auto") == 0 ? LS_OK : read_named(arena, run->data.template, s);
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

static ls_status create(ls_arena *arena, const ls_run_recipe_options *o, const sources *s,
                        const json_t *specials, ls_recipe **recipe_out)
{
    ls_run_data *data = &o->run->data;
    int32_t stops[LS_MODEL_STOPS_MAX];
    if (s->template && ls_recipe_reads_date(s->template) && !data->template_date[0]) {
        data->template_date = today(arena);
    }
    const ls_recipe_options options = {
        .keys = {.format = (ls_record_format)data->format,
                 .text = data->field[0] ? data->field : "text",
                 .prompt = data->prompt_field,
                 .completion = data->completion_field},
        .loss_on = (ls_loss_on)data->loss_on,
        .skip_bad = data->bad_records == LS_RUN_BAD_SKIP,
        .template_source = s->template,
        .template_name = s->template_name,
        .template_date = data->template_date,
        .special_tokens = specials,
        .stops = stops,
        .stop_count = ls_model_stops(o->config, o->tokenizer, stops),
        .tokenizer = o->tokenizer,
    };
    return ls_recipe_create(&options, recipe_out);
}

ls_status ls_run_recipe_open(ls_arena *arena, const ls_run_recipe_options *options, ls_run_recipe *recipe_out)
{
    sources s = {0};
    ls_run_recipe recipe = {0};
    json_t *specials = json_object();
    ls_status status = find_sources(arena, options, &s, specials);
    if (status == LS_OK) {
        status = create(arena, options, &s, specials, &recipe.recipe);
    }
    json_decref(specials);
    LS_TRY(status);
    recipe.template_source = s.template;
    recipe.template_name = s.template_name;
    recipe.is_carried =
        options->run->tokenizer.kind != LS_TOKENIZER_FILE && strcmp(options->run->data.template, "auto") == 0;
    *recipe_out = recipe;
    return LS_OK;
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
        if (strcmp((*files)[i].name, TEMPLATE_FILE) != 0) {
            list[kept++] = (*files)[i];
        }
    }
    if (kept == 0 && strcmp(ls_tokenizer_kind(tokenizer), "bytes") != 0) {
        const void *data = NULL;
        ls_tokenizer_source(tokenizer, &list[0].name, &data, &list[0].bytes);
        list[kept++].data = data;
    }
    list[kept++] = (ls_hf_file){TEMPLATE_FILE, source, strlen(source)};
    *files = list;
    *count = kept;
}

ls_held_out_rule ls_run_held_out_rule(const ls_run_file *run)
{
    const bool is_time = run->data.split_time[0] != '\0';
    return (ls_held_out_rule){.key = is_time ? run->data.split_time : run->data.split_key,
                              .is_time = is_time};
}
