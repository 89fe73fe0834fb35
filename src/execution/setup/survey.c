// SPDX-License-Identifier: Apache-2.0
#include "execution/setup/survey.h"

#include "base/list.h"
#include "base/math.h"
#include "data/detect.h"
#include "data/record_walk.h"

#include <stdlib.h>

enum { RECORDS_MAX = 20000, BYTES_MAX = 64 << 20 };

typedef struct surveyor {
    const ls_survey_options *options;
    ls_arena *arena;
    const ls_recipe *recipe;
    const char *template_name;     /* of the recipe */
    const ls_tokenizer *tokenizer; /* NULL: bytes */
    ls_tokenizer_scratch *scratch;
    ls_samples samples; /* of the record at hand */
    double *lengths;    /* of samples */
    size_t capacity;
    uint64_t read_bytes;
    ls_record_walk walk;
    bool needs_template;
    ls_survey survey;
} surveyor;

/* ---- one record ---- */

static ls_status add_sample(surveyor *s, uint64_t tokens, uint64_t trained)
{
    ls_survey *v = &s->survey;
    LS_TRY(ls_list_grow(&s->lengths, v->samples, &s->capacity, sizeof *s->lengths));
    s->lengths[v->samples++] = (double)tokens;
    v->tokens += tokens;
    v->trained += trained;
    v->too_long += s->options->limit > 0 && tokens > s->options->limit;
    return LS_OK;
}

/* What a document of an object has besides its text: labels, say, that nothing will learn. */
static void note_unread(surveyor *s, const ls_walked *w)
{
    ls_text keys = {0};
    json_object_del(w->object, ls_corpus_field(w->file));
    if (json_object_size(w->object) > 0) {
        ls_record_keys(w->object, &keys);
        s->survey.unread = ls_text_keep(&keys, s->arena);
    }
}

/* A document, with the token after it. */
static ls_status add_document(surveyor *s, const ls_walked *w)
{
    uint64_t tokens = w->bytes;
    if (s->tokenizer) {
        ls_token_buffer *ids = &s->samples.ids;
        LS_TRY(ls_tokenizer_encode(s->tokenizer, s->scratch, w->text, w->bytes, false, ids));
        tokens = ids->count + (ls_tokenizer_eos(s->tokenizer) >= 0);
    }
    if (w->object && !s->survey.unread) {
        note_unread(s, w);
    }
    return add_sample(s, tokens, tokens);
}

static ls_status add_conversation(surveyor *s, const ls_walked *w)
{
    size_t begin = 0;
    LS_TRY(ls_walked_samples(s->recipe, s->scratch, w, &s->samples));
    for (size_t i = 0; i < s->samples.count; i++) {
        const size_t end = s->samples.ends[i].ids;
        uint64_t trained = 0;
        const size_t seen = s->options->limit > 0 ? ls_min_u64(end, begin + s->options->limit) : end;
        for (size_t at = begin; at < seen; at++) {
            trained += ls_token_is_trained(s->samples.ids.ids[at]);
        }
        s->survey.bad += trained == 0;
        LS_TRY(trained > 0 ? add_sample(s, end - begin, trained) : LS_OK);
        begin = end;
    }
    return LS_OK;
}

static ls_status add_record(void *context, const ls_walked *walked, ls_status read)
{
    surveyor *s = context;
    ls_samples_clear(&s->samples);
    const ls_status status =
        read == LS_OK ? (walked->text ? add_document : add_conversation)(s, walked) : read;
    if (status == LS_ERR_DATA) {
        s->survey.bad++;
        ls_error_clear();
    } else {
        LS_TRY(status);
    }
    s->survey.records++;
    s->read_bytes += walked->file_bytes;
    s->walk.is_full = s->survey.records >= RECORDS_MAX || s->read_bytes >= BYTES_MAX;
    return LS_OK;
}

/* ---- files ---- */

static ls_status add_file(void *context, const ls_corpus_file *file, uint64_t bytes)
{
    surveyor *s = context;
    const ls_record_form form = file->form;
    s->survey.form = form;
    s->survey.bytes += bytes;
    if (form != LS_RECORD_TEXT && !s->recipe) {
        return ls_fail(LS_ERR_DATA,
                       "%s holds %s, and training from nothing reads text: give --data a file "
                       "of text, or use 'lockstep new chat' with --model",
                       file->path, ls_record_form_name(form));
    }
    const bool is_rendered = form != LS_RECORD_TEXT && form != LS_RECORD_PROMPT;
    s->survey.template_name = is_rendered ? s->template_name : NULL;
    s->needs_template = is_rendered && !s->template_name;
    s->walk.is_done = s->needs_template;
    return LS_OK;
}

static ls_status read_files(surveyor *s, ls_arena *arena, const ls_form_keys *keys)
{
    const ls_corpus_query query = {.patterns = &s->options->data, .pattern_count = 1, .field = keys->text};
    ls_corpus_file *files = NULL;
    size_t count = 0;
    LS_TRY(ls_corpus_expand(arena, &query, &files, &count));
    s->walk = (ls_record_walk){.keys = keys,
                               .on_file = add_file,
                               .on_record = add_record,
                               .context = s,
                               .text_bytes_max = BYTES_MAX};
    return ls_records_walk(&s->walk, files, count);
}

/* The recipe of the run to come. */
static ls_status open_recipe(surveyor *s, ls_arena *arena, ls_run_file *run, ls_run_recipe *recipe)
{
    const ls_survey_options *o = s->options;
    s->tokenizer = o->model->tokenizer;
    LS_TRY(ls_tokenizer_scratch_create(s->tokenizer, &s->scratch));
    run->model.from = o->model->path;
    run->data.template = o->template[0] ? o->template : run->data.template;
    LS_TRY(ls_run_recipe_of_model(arena, run, o->model, s->tokenizer, recipe));
    s->recipe = recipe->recipe;
    s->template_name = recipe->template_name;
    return LS_OK;
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
    v->scale = s->walk.is_full && s->read_bytes < v->bytes ? (double)v->bytes / (double)s->read_bytes : 1.0;
}

ls_status ls_survey_take(ls_arena *arena, const ls_survey_options *options, ls_survey *survey_out,
                         bool *needs_template_out)
{
    surveyor s = {.options = options, .arena = arena};
    ls_run_recipe recipe = {0};
    ls_run_file run;
    LS_TRY(ls_run_file_of_data(arena, "new", options->data, options->set, options->set_count, &run));
    const ls_form_keys keys = ls_run_form_keys(&run);
    ls_status status = options->model ? open_recipe(&s, arena, &run, &recipe) : LS_OK;
    if (status == LS_OK) {
        status = read_files(&s, arena, &keys);
    }
    if (status == LS_OK) {
        summarise(&s);
        *survey_out = s.survey;
        *needs_template_out = s.needs_template;
    }
    ls_recipe_destroy(recipe.recipe);
    ls_tokenizer_scratch_destroy(s.scratch);
    ls_samples_release(&s.samples);
    free(s.lengths);
    return status;
}
