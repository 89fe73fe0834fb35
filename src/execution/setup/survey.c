// SPDX-License-Identifier: Apache-2.0
#include "execution/setup/survey.h"

#include "base/math.h"
#include "data/conversation/trained.h"
#include "data/detect.h"
#include "data/records.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX = 20000, BYTES_MAX = 64 << 20 };

typedef struct surveyor {
    ls_arena *arena;
    const ls_survey_options *options;
    const ls_recipe *recipe;
    const ls_tokenizer *tokenizer; /* NULL: bytes */
    ls_tokenizer_scratch *scratch;
    ls_samples samples;
    ls_token_buffer ids;
    double *lengths; /* of samples */
    size_t capacity;
    uint64_t read_bytes;
    ls_survey survey;
} surveyor;

/* ---- one record ---- */

static ls_status add_sample(surveyor *s, uint64_t tokens, uint64_t trained)
{
    ls_survey *v = &s->survey;
    if (v->samples == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 1024;
        double *lengths = realloc(s->lengths, capacity * sizeof *lengths);
        if (!lengths) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory to look at the data");
        }
        s->lengths = lengths;
        s->capacity = capacity;
    }
    s->lengths[v->samples++] = (double)tokens;
    v->tokens += tokens;
    v->trained += trained;
    v->too_long += s->options->limit > 0 && tokens > s->options->limit;
    return LS_OK;
}

/* A document, with the token after it. */
static ls_status add_document(surveyor *s, const char *text, size_t bytes)
{
    uint64_t tokens = bytes;
    if (s->tokenizer) {
        s->ids.count = 0;
        LS_TRY(ls_tokenizer_encode(s->tokenizer, s->scratch, text, bytes, false, &s->ids));
        tokens = s->ids.count + (ls_tokenizer_eos(s->tokenizer) >= 0);
    }
    return add_sample(s, tokens, tokens);
}

static ls_status add_conversation(surveyor *s, const ls_records *records, const ls_record *record)
{
    json_t *object = NULL;
    ls_record_form form = LS_RECORD_TEXT;
    LS_TRY(ls_records_object(records, record, &object));
    ls_samples_clear(&s->samples);
    ls_status status = ls_record_form_of(object, ls_recipe_keys(s->recipe), &form);
    if (status == LS_OK) {
        status = ls_recipe_apply(s->recipe, s->scratch, object, form, &s->samples);
    }
    json_decref(object);
    size_t begin = 0;
    for (size_t i = 0; i < s->samples.count && status == LS_OK; i++) {
        uint64_t trained = 0;
        for (size_t at = begin; at < s->samples.ends[i].ids; at++) {
            trained += ls_token_is_trained(s->samples.ids.ids[at]);
        }
        status = add_sample(s, s->samples.ends[i].ids - begin, trained);
        begin = s->samples.ends[i].ids;
    }
    return status == LS_ERR_DATA
               ? ls_fail_within(status, "%s:%llu", records->file->path, (unsigned long long)record->line)
               : status;
}

static ls_status add_record(surveyor *s, const ls_records *records, const ls_record *record)
{
    ls_record_document document;
    s->survey.records++;
    s->read_bytes += record->bytes;
    if (records->file->form != LS_RECORD_TEXT) {
        return add_conversation(s, records, record);
    }
    LS_TRY(ls_records_read(records, record, &document));
    const ls_status status = document.bytes > 0 ? add_document(s, document.text, document.bytes) : LS_OK;
    ls_record_document_release(&document);
    return status;
}

/* ---- files ---- */

static bool is_enough(const surveyor *s)
{
    return s->survey.records >= RECORDS_MAX || s->read_bytes >= BYTES_MAX;
}

static ls_status read_content(surveyor *s, const ls_corpus_file *file, const ls_file_map *map)
{
    const char *data = (const char *)map->data;
    if (!ls_corpus_has_records(file->kind)) {
        const size_t bytes = ls_min_u64(map->bytes, BYTES_MAX);
        s->survey.records++;
        s->read_bytes += bytes;
        return add_document(s, data, bytes);
    }
    ls_records records;
    ls_record record;
    LS_TRY(ls_records_open(file, data, map->bytes, &records));
    for (ls_record_cursor cursor = records.first; !is_enough(s);) {
        LS_TRY(ls_records_next(&records, &cursor, &record));
        if (!record.data) {
            break;
        }
        LS_TRY(add_record(s, &records, &record));
    }
    return LS_OK;
}

static ls_status read_file(surveyor *s, ls_corpus_file *file)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(file->path, &map));
    ls_status status = ls_corpus_unpack(file, &(ls_unpack_options){.folder = ""}, &map);
    s->survey.bytes += map.bytes;
    if (status == LS_OK && !is_enough(s)) {
        status = read_content(s, file, &map);
    }
    ls_file_map_close(&map);
    return status;
}

static ls_status read_files(surveyor *s, const ls_form_keys *keys, bool *needs_template_out)
{
    const ls_corpus_query query = {.patterns = &s->options->data, .pattern_count = 1};
    ls_corpus_file *files = NULL;
    size_t count = 0;
    LS_TRY(ls_corpus_expand(s->arena, &query, &files, &count));
    s->survey.files = count;
    for (size_t i = 0; i < count; i++) {
        if (files[i].kind == LS_CORPUS_TOKENS) {
            return ls_fail(LS_ERR_INVALID, "%s is a token file; a new run is made for text and records",
                           files[i].path);
        }
        LS_TRY(ls_corpus_detect(&files[i], keys, ""));
        s->survey.form = files[i].form;
        if (files[i].form != LS_RECORD_TEXT && !s->recipe) {
            return ls_fail(LS_ERR_DATA,
                           "%s holds %s, and training from nothing reads text: give --data a file "
                           "of text, or use 'lockstep new chat' with --model",
                           files[i].path, ls_record_form_name(files[i].form));
        }
        const bool is_joined = files[i].form == LS_RECORD_TEXT || files[i].form == LS_RECORD_PROMPT;
        if (!is_joined && !s->survey.template_name) {
            *needs_template_out = true;
            return LS_OK;
        }
        LS_TRY(read_file(s, &files[i]));
    }
    return LS_OK;
}

/* ---- the recipe of the run to come ---- */

static ls_status open_recipe(surveyor *s, ls_run_file *run, ls_run_recipe *recipe)
{
    const ls_survey_options *o = s->options;
    const char *overrides[2];
    size_t count = 0;
    ls_hf_file *files = NULL;
    ls_text text = {0};
    ls_run_recipe_options options = {
        .run = run, .tokenizer = o->model->tokenizer, .config = &o->model->config};
    overrides[count++] = ls_arena_printf(s->arena, "model.from=%s", o->model->path);
    if (o->template[0]) {
        overrides[count++] = ls_arena_printf(s->arena, "data.template=%s", o->template);
    }
    ls_text_append(&text, "name: new\ndata: {train: [");
    ls_text_append_quoted(&text, o->data);
    ls_text_append(&text, "]}\n");
    const ls_status status = ls_run_file_parse(text.data, text.bytes, "new", overrides, count, s->arena, run);
    ls_text_release(&text);
    LS_TRY(status);
    LS_TRY(ls_model_file_carried(o->model, s->arena, &files, &options.file_count));
    options.files = files;
    return ls_run_recipe_open(s->arena, &options, recipe);
}

static void summarise(surveyor *s)
{
    ls_survey *v = &s->survey;
    if (v->samples > 0) {
        ls_sort_f64(s->lengths, v->samples);
        v->median = (uint64_t)ls_quantile_f64(s->lengths, v->samples, 0.5);
        v->high = (uint64_t)ls_quantile_f64(s->lengths, v->samples, 0.95);
        v->longest = (uint64_t)s->lengths[v->samples - 1];
    }
    v->scale = is_enough(s) && s->read_bytes < v->bytes ? (double)v->bytes / (double)s->read_bytes : 1.0;
}

ls_status ls_survey_take(ls_arena *arena, const ls_survey_options *options, ls_survey *survey_out,
                         bool *needs_template_out)
{
    static const ls_form_keys text_keys = {.text = "text"};
    surveyor s = {.arena = arena, .options = options};
    ls_run_file run;
    ls_run_recipe recipe = {0};
    ls_status status = LS_OK;
    *needs_template_out = false;
    if (options->model) {
        s.tokenizer = options->model->tokenizer;
        status = ls_tokenizer_scratch_create(s.tokenizer, &s.scratch);
        status = status == LS_OK ? open_recipe(&s, &run, &recipe) : status;
        s.recipe = recipe.recipe;
        s.survey.template_name = recipe.template_name;
    }
    if (status == LS_OK) {
        status = read_files(&s, s.recipe ? ls_recipe_keys(s.recipe) : &text_keys, needs_template_out);
    }
    if (status == LS_OK) {
        summarise(&s);
        *survey_out = s.survey;
    }
    ls_recipe_destroy(recipe.recipe);
    ls_tokenizer_scratch_destroy(s.scratch);
    ls_samples_release(&s.samples);
    ls_token_buffer_release(&s.ids);
    free(s.lengths);
    return status;
}
