// SPDX-License-Identifier: Apache-2.0
/* data show: prints records as the model will see them. */
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "data/record_walk.h"
#include "execution/train/run_recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* Of a text file, which is one document, only the beginning is shown. */
enum { DOCUMENT_BYTES_MAX = 1 << 16 };

typedef struct show_settings {
    const char *model;
    ls_option_strings set;
    uint64_t count;
    bool json;
} show_settings;

static const ls_option show_options[] = {
    LS_ROW_TEXT(show_settings, model, "DIR",
                "model whose tokenizer and chat template are used: a Hugging Face directory, a checkpoint or "
                "a run directory"),
    LS_ROW_U64(show_settings, count, "20", 1, 1000000, "number of records to show", .letter = 'n'),
    LS_ROW_TEXTS(show_settings, set, "KEY=VALUE",
                 "set a key of the run file, such as data.loss_on=last; may be given several times"),
    LS_ROW_JSON(show_settings),
};

typedef struct show {
    const show_settings *settings;
    ls_arena *arena;
    ls_run_file run;
    ls_model_file *model;
    ls_tokenizer *tokenizer;
    ls_run_recipe recipe;
    ls_samples samples; /* of the record at hand */
    ls_record_walk walk;
    json_t *records, *problems;
    ls_record_form form;
    bool is_colored;
    uint64_t shown, tokens, trained, truncated;
} show;

/* ---- what was found -------------------------------------------------------------------------- */

/* Notes the current error as a problem of a record. */
static void note_problem(show *s, const char *path, uint64_t line)
{
    (void)ls_record_fail(LS_ERR_DATA, path, line);
    json_array_append_new(s->problems, json_string(ls_error_text()));
    ls_error_clear();
}

/* One sample, cut to what fits into a training sequence. */
typedef struct piece {
    const char *path;
    uint64_t line;
    const int32_t *ids;
    size_t count, trained;
    bool is_truncated;
    const char *roles;
} piece;

static ls_status decode(const show *s, const piece *p, ls_text_buffer *text)
{
    ls_tokenizer_stream stream = {0};
    for (size_t i = 0; i < p->count; i++) {
        LS_TRY(ls_tokenizer_stream_next(s->tokenizer, &stream, ls_token_id(p->ids[i]), false, text));
    }
    return ls_tokenizer_stream_end(&stream, text);
}

static ls_status add_json(show *s, const piece *p)
{
    ls_text_buffer text = {0};
    json_t *tokens = json_array(), *mask = json_array();
    for (size_t i = 0; i < p->count; i++) {
        json_array_append_new(tokens, json_integer(ls_token_id(p->ids[i])));
        json_array_append_new(mask, json_integer(ls_token_is_trained(p->ids[i])));
    }
    const ls_status status = decode(s, p, &text);
    json_array_append_new(s->records, json_pack("{s:s, s:I, s:s, s:o, s:o, s:o, s:I, s:b}", "file", p->path,
                                                "line", (json_int_t)p->line, "roles", p->roles, "text",
                                                json_stringn(text.data ? text.data : "", text.bytes),
                                                "tokens", tokens, "mask", mask, "trained",
                                                (json_int_t)p->trained, "truncated", p->is_truncated));
    ls_text_buffer_release(&text);
    return status;
}

static void change_mark(const show *s, bool is_trained, ls_text *out)
{
    ls_text_append(out, s->is_colored ? (is_trained ? "\033[32;1m" : "\033[0m") : is_trained ? "⟦" : "⟧");
}

/* The text with what is trained in colour, or between brackets. */
static ls_status print_text(const show *s, const piece *p, ls_text *out)
{
    ls_tokenizer_stream stream = {0};
    ls_text_buffer text = {0};
    bool is_trained = false;
    ls_status status = LS_OK;
    for (size_t i = 0; i < p->count && status == LS_OK; i++) {
        if (ls_token_is_trained(p->ids[i]) != is_trained) {
            is_trained = !is_trained;
            change_mark(s, is_trained, out);
        }
        text.bytes = 0;
        status = ls_tokenizer_stream_next(s->tokenizer, &stream, ls_token_id(p->ids[i]), false, &text);
        if (text.bytes > 0) {
            ls_text_append_printable(out, text.data, text.bytes, "\n\t");
        }
    }
    ls_text_buffer_release(&text);
    if (is_trained) {
        change_mark(s, false, out);
    }
    return status;
}

static ls_status print_piece(const show *s, const piece *p)
{
    ls_text out = {0};
    ls_text_printf(&out, "%s--- %s:%" PRIu64 "%s%s: %zu tokens, %zu trained%s%s\n",
                   s->is_colored ? "\033[1m" : "", p->path, p->line, p->roles[0] ? ", " : "", p->roles,
                   p->count, p->trained, p->is_truncated ? ", cut off at model.context" : "",
                   s->is_colored ? "\033[0m" : "");
    const ls_status status = print_text(s, p, &out);
    ls_text_append(&out, "\n");
    fwrite(out.data, 1, out.bytes, stdout);
    ls_text_release(&out);
    return status;
}

static ls_status show_piece(show *s, piece p)
{
    const size_t most = (size_t)s->run.model.context + 1;
    p.is_truncated = p.count > most;
    p.count = p.is_truncated ? most : p.count;
    for (size_t i = 0; i < p.count; i++) {
        p.trained += ls_token_is_trained(p.ids[i]);
    }
    if (p.trained == 0) {
        (void)ls_fail(LS_ERR_DATA,
                      "the record is longer than model.context (%zu tokens), and nothing that is trained "
                      "lies within it: raise model.context, or shorten the record",
                      most - 1);
        note_problem(s, p.path, p.line);
    }
    s->tokens += p.count;
    s->trained += p.trained;
    s->truncated += p.is_truncated;
    return s->settings->json ? add_json(s, &p) : print_piece(s, &p);
}

/* ---- records --------------------------------------------------------------------------------- */

/* "system, user, assistant", of the last conversation of a record that was read. */
static const char *roles_of(show *s, const json_t *record)
{
    ls_text roles = {0};
    const json_t *list = json_object_get(record, "messages"), *message;
    list = list ? list : json_object_get(record, "conversations");
    size_t i;
    json_array_foreach(list, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        ls_text_printf(&roles, "%s%s", i > 0 ? ", " : "", role ? role : "?");
    }
    return ls_text_keep(&roles, s->arena);
}

static ls_status show_samples(show *s, const ls_walked *w, const char *roles)
{
    size_t begin = 0;
    for (size_t i = 0; i < s->samples.count; i++) {
        const size_t end = s->samples.ends[i].ids;
        LS_TRY(show_piece(s, (piece){.path = w->file->path,
                                     .line = w->line,
                                     .ids = s->samples.ids.ids + begin,
                                     .count = end - begin,
                                     .roles = roles}));
        begin = end;
    }
    return LS_OK;
}

/* A document: every token is trained, and the end-of-text token after it. */
static ls_status show_document(show *s, const ls_walked *w)
{
    const int32_t eos = ls_tokenizer_eos(s->tokenizer);
    ls_token_buffer *ids = &s->samples.ids;
    LS_TRY(ls_tokenizer_encode(s->tokenizer, NULL, w->text, w->bytes, false, ids));
    LS_TRY(ls_token_buffer_reserve(ids, 1));
    if (eos >= 0) {
        ids->ids[ids->count++] = eos;
    }
    for (size_t i = 0; i < ids->count; i++) {
        ids->ids[i] |= LS_TOKEN_TRAINED;
    }
    LS_TRY(ls_samples_end(&s->samples, w->bytes));
    return show_samples(s, w, "");
}

static ls_status show_conversation(show *s, const ls_walked *w)
{
    LS_TRY(ls_walked_samples(s->recipe.recipe, NULL, w, &s->samples));
    return show_samples(s, w, roles_of(s, w->object));
}

static ls_status show_record(void *context, const ls_walked *walked, ls_status read)
{
    show *s = context;
    ls_status status = read;
    ls_samples_clear(&s->samples);
    if (status == LS_OK) {
        status = (walked->text ? show_document : show_conversation)(s, walked);
    }
    if (status == LS_ERR_DATA) {
        note_problem(s, walked->file->path, walked->line);
        status = LS_OK;
    }
    s->walk.is_done = ++s->shown == s->settings->count;
    return status;
}

static ls_status show_file(void *context, const ls_corpus_file *file, uint64_t bytes)
{
    show *s = context;
    (void)bytes;
    s->form = file->form;
    LS_TRY(ls_recipe_check_form(s->recipe.recipe, file->form));
    if (!s->settings->json) {
        const bool is_rendered =
            s->recipe.template_name && file->form != LS_RECORD_TEXT && file->form != LS_RECORD_PROMPT;
        printf("%s: %s%s%s\n", file->path, ls_record_form_name(file->form),
               is_rendered ? ", chat template " : "", is_rendered ? s->recipe.template_name : "");
    }
    return LS_OK;
}

static ls_status show_files(show *s)
{
    const ls_option_weighted_list *list = &s->run.data.train;
    const char **patterns = ls_arena_new(s->arena, const char *, list->count);
    const char **fields = ls_arena_new(s->arena, const char *, list->count);
    for (uint64_t i = 0; i < list->count; i++) {
        patterns[i] = list->items[i].path;
        fields[i] = list->items[i].field;
    }
    const ls_corpus_query query = {
        .patterns = patterns, .pattern_count = list->count, .field = s->run.data.field, .fields = fields};
    ls_corpus_file *files = NULL;
    size_t count = 0;
    LS_TRY(ls_corpus_expand(s->arena, &query, &files, &count));
    s->walk = (ls_record_walk){.keys = ls_recipe_keys(s->recipe.recipe),
                               .on_file = show_file,
                               .on_record = show_record,
                               .context = s,
                               .text_bytes_max = DOCUMENT_BYTES_MAX};
    return ls_records_walk(&s->walk, files, count);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* A run file, or one made for a file of data. */
static ls_status load_run(show *s, const char *path)
{
    const show_settings *settings = s->settings;
    const bool is_run = ls_path_has_suffix(path, ".yaml") || ls_path_has_suffix(path, ".yml");
    const char **overrides = ls_arena_new(s->arena, const char *, settings->set.count + 1);
    size_t count = 0;
    if (settings->model[0]) {
        overrides[count++] = ls_arena_printf(s->arena, "model.from=%s", settings->model);
    }
    for (uint64_t i = 0; i < settings->set.count; i++) {
        overrides[count++] = settings->set.items[i];
    }
    return is_run ? ls_run_file_load(path, overrides, count, s->arena, &s->run)
                  : ls_run_file_of_data(s->arena, "show", path, overrides, count, &s->run);
}

static ls_status open_tokenizer(show *s)
{
    switch (s->run.tokenizer.kind) {
    case LS_TOKENIZER_FILE:
        return ls_tokenizer_load(s->run.tokenizer.file, &s->tokenizer);
    case LS_TOKENIZER_MODEL:
        s->tokenizer = s->model->tokenizer;
        s->model->tokenizer = NULL;
        return s->tokenizer
                   ? LS_OK
                   : ls_fail(LS_ERR_INVALID, "%s has no tokenizer; set tokenizer.file", s->run.model.from);
    case LS_TOKENIZER_TRAIN:
        return ls_fail(LS_ERR_INVALID,
                       "the run trains its tokenizer, which does not exist yet; show the records "
                       "with another one, as in --set tokenizer.kind=bytes");
    default:
        return ls_tokenizer_create_bytes(&s->tokenizer);
    }
}

static ls_status open_run(show *s, const char *path)
{
    LS_TRY(load_run(s, path));
    if (s->run.model.from[0]) {
        LS_TRY(ls_model_file_open(s->run.model.from, &s->model));
        LS_TRY(ls_run_file_adopt_model(&s->run, &s->model->config));
    }
    LS_TRY(open_tokenizer(s));
    return ls_run_recipe_of_model(s->arena, &s->run, s->model, s->tokenizer, &s->recipe);
}

static void print_result(const show *s)
{
    const size_t problems = json_array_size(s->problems);
    if (s->settings->json) {
        json_t *root =
            json_pack("{s:s, s:s, s:s?, s:I, s:O, s:O}", "format", ls_record_format_name(s->form), "form",
                      ls_record_form_name(s->form), "template", s->recipe.template_name, "context",
                      (json_int_t)s->run.model.context, "records", s->records, "problems", s->problems);
        ls_print_json(root);
        json_decref(root);
        return;
    }
    printf("%" PRIu64 " record%s: %" PRIu64 " tokens, %" PRIu64 " trained (%.0f %%), %" PRIu64 " cut off\n",
           s->shown, s->shown == 1 ? "" : "s", s->tokens, s->trained,
           s->tokens ? 100.0 * (double)s->trained / (double)s->tokens : 0.0, s->truncated);
    for (size_t i = 0; i < problems; i++) {
        fprintf(stderr, "%s\n", json_string_value(json_array_get(s->problems, i)));
    }
}

static ls_status run_show(const ls_invocation *invocation)
{
    show s = {.settings = invocation->settings,
              .arena = invocation->arena,
              .records = json_array(),
              .problems = json_array(),
              .is_colored = isatty(STDOUT_FILENO) != 0};
    ls_status status = open_run(&s, invocation->words[0]);
    if (status == LS_OK) {
        status = show_files(&s);
    }
    if (status == LS_OK) {
        print_result(&s);
        const size_t problems = json_array_size(s.problems);
        if (problems > 0) {
            status = ls_fail(LS_ERR_DATA, "%zu of the records shown cannot be used", problems);
        }
    }
    json_decref(s.records);
    json_decref(s.problems);
    ls_samples_release(&s.samples);
    ls_recipe_destroy(s.recipe.recipe);
    ls_tokenizer_destroy(s.tokenizer);
    ls_model_file_close(s.model);
    return status;
}

const ls_command ls_command_data_show = {
    .name = "data show",
    LS_WORDS("FILE|CONFIG", 1, 1),
    .summary = "show records as the model will see them",
    .details = "FILE holds records (.jsonl, .json, .csv, .tsv, each also .gz or .zst; .parquet) or\n"
               "text; --model names the model whose tokenizer and chat template are used. CONFIG is\n"
               "a run file (.yaml), which names both. Prints the text of each sample as the chat\n"
               "template writes it; what is trained is in colour, or between ⟦ and ⟧ where there\n"
               "are no colours. If the template rewrites earlier answers of a conversation, each\n"
               "answer is a sample of its own. Records that cannot be used are named with line\n"
               "and reason, and the exit code is then 3.\n"
               "\n"
               "Examples:\n"
               "  lockstep data show chats.jsonl --model models/smol\n"
               "  lockstep data show finetune.yaml -n 3",
    LS_SETTINGS(show_settings, show_options),
    .run = run_show,
};
