// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/pipeline.h"

#include "base/log.h"
#include "data/preparation/private_data.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char *const utf8_choices[] = {"replace", "drop", NULL};
static const char *const long_choices[] = {"drop", "cut", NULL};

#define ROW(field_, type_, default_, help_, ...)                                                             \
    {                                                                                                        \
        .key = #field_, .type = type_, .offset = offsetof(ls_data_pipeline, field_),                         \
        .default_text = default_, .help = help_, __VA_ARGS__                                                 \
    }
static const ls_option rows[] = {
    ROW(input, LS_OPTION_STRINGS, "[]", "files, folders or patterns of the documents"),
    ROW(field, LS_OPTION_STRING, "text", "key or column that holds the document", .value_needed = true),
    ROW(invalid_utf8, LS_OPTION_CHOICE, "replace",
        "replace bytes that are not UTF-8 by the replacement character, or drop the document",
        .choices = utf8_choices),
    ROW(document_bytes_max, LS_OPTION_BYTES, "64MiB", "longer documents are dropped or cut", .min = 1024,
        .max = 1 << 30),
    ROW(long_documents, LS_OPTION_CHOICE, "drop", "drop longer documents, or keep their beginning",
        .choices = long_choices),
};
static const ls_option_table table = {.options = rows, .count = sizeof rows / sizeof rows[0]};

static ls_status fail_kind(const char *place, const char *name)
{
    ls_text names = {0};
    ls_step_kinds_append(&names);
    const char *nearest = NULL;
    size_t best = strlen(name) / 2 + 1;
    for (int kind = LS_STEP_READ + 1; kind < LS_STEP_KINDS; kind++) {
        const size_t distance = ls_edit_distance(name, ls_step_kind_name((ls_step_kind)kind), best);
        if (distance < best) {
            best = distance;
            nearest = ls_step_kind_name((ls_step_kind)kind);
        }
    }
    const ls_status status =
        ls_fail(LS_ERR_INVALID, "%s: unknown step %.60s%s%s. Steps: %s", place, name,
                nearest ? ", did you mean " : "", nearest ? nearest : "", ls_text_string(&names));
    ls_text_release(&names);
    return status;
}

/* Checks what a table cannot. */
static ls_status check_step(const ls_step *step, const char *place)
{
    if (step->kind == LS_STEP_LANGUAGE && (!step->language.model[0] || step->language.keep.count == 0)) {
        return ls_fail(LS_ERR_INVALID, "%s: the step language needs the keys model and keep", place);
    }
    if (step->kind == LS_STEP_DECONTAMINATE && step->decontaminate.against.count == 0) {
        return ls_fail(LS_ERR_INVALID, "%s: the step decontaminate needs the key against", place);
    }
    if (step->kind == LS_STEP_DEDUP_MINHASH &&
        step->minhash.bands * step->minhash.rows > LS_MINHASH_HASHES_MAX) {
        return ls_fail(LS_ERR_INVALID, "%s: bands x rows is %llu, allowed is 1 to %d", place,
                       (unsigned long long)(step->minhash.bands * step->minhash.rows), LS_MINHASH_HASHES_MAX);
    }
    uint32_t kinds;
    return step->kind == LS_STEP_PII ? ls_private_kinds(step, place, &kinds) : LS_OK;
}

static ls_status read_step(ls_arena *arena, const ls_document *doc, size_t index, ls_step *step)
{
    const json_t *item = json_array_get(json_object_get(doc->root, "steps"), index);
    const char *place = ls_arena_printf(arena, "%s:%d", doc->name,
                                        ls_document_line(doc, ls_arena_printf(arena, "steps.%zu", index)));
    const char *name = json_string_value(json_object_get(item, "step"));
    if (!name) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: item %zu of steps must begin with its name: \"- step: normalise\"", place,
                       index + 1);
    }
    step->kind = ls_step_kind_find(name);
    if (step->kind == LS_STEP_KINDS) {
        return fail_kind(place, name);
    }
    ls_options_defaults(ls_step_table(step->kind), step, arena);
    LS_TRY(ls_options_apply_item(ls_step_table(step->kind), step, doc, "steps", index, arena));
    return check_step(step, place);
}

ls_status ls_data_pipeline_read(ls_arena *arena, const ls_document *doc, ls_data_pipeline *pipeline)
{
    const json_t *list = json_object_get(doc->root, "steps");
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count >= LS_PIPELINE_STEPS_MAX) {
        return ls_fail(LS_ERR_INVALID, "%s: a pipeline needs the key steps, a list of 1 to %d steps",
                       doc->name, LS_PIPELINE_STEPS_MAX - 1);
    }
    pipeline->steps = ls_arena_new(arena, ls_step, count + 1);
    pipeline->step_count = count + 1;
    pipeline->steps[0] = (ls_step){.kind = LS_STEP_READ, .name = ls_step_kind_name(LS_STEP_READ)};
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_step(arena, doc, i, &pipeline->steps[i + 1]));
    }
    ls_options_defaults(&table, pipeline, arena);
    json_object_del(doc->root, "steps"); /* Already read; the other keys follow. */
    LS_TRY(ls_options_apply_document(&table, pipeline, doc, arena));
    return pipeline->input.count > 0
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "%s: the key input must name the files to prepare", doc->name);
}

static void tell_skipped(void *context, const char *text)
{
    (void)context;
    ls_log_warn("data: %s", text);
}

static ls_status find_files(ls_arena *arena, ls_data_pipeline *pipeline)
{
    const ls_corpus_query query = {.patterns = pipeline->input.items,
                                   .pattern_count = pipeline->input.count,
                                   .field = pipeline->field,
                                   .tell = tell_skipped};
    LS_TRY(ls_corpus_expand(arena, &query, &pipeline->files, &pipeline->file_count));
    for (size_t i = 0; i < pipeline->file_count; i++) {
        if (pipeline->files[i].kind == LS_CORPUS_TOKENS || pipeline->files[i].streamed) {
            return ls_fail(LS_ERR_UNSUPPORTED, "%s is a token file, which has no text to prepare",
                           pipeline->files[i].path);
        }
    }
    for (size_t i = 1; i < pipeline->step_count; i++) {
        ls_step *step = &pipeline->steps[i];
        const ls_corpus_query against = {.patterns = step->decontaminate.against.items,
                                         .pattern_count = step->decontaminate.against.count};
        if (step->kind == LS_STEP_DECONTAMINATE) {
            LS_TRY(ls_corpus_expand(arena, &against, &step->decontaminate.files,
                                    &step->decontaminate.file_count));
        }
    }
    return LS_OK;
}

void ls_data_pipeline_append_step(const ls_step *step, ls_text *text)
{
    ls_options_append_yaml(ls_step_table(step->kind), step, false, text);
}

static ls_status identify_path(const char *path, ls_text *text)
{
    struct stat at;
    if (stat(path, &at) != 0) {
        return ls_fail_errno(errno, "can't look at %s", path);
    }
    ls_text_printf(text, "%s %lld %lld.%09ld\n", path, (long long)at.st_size, (long long)at.st_mtim.tv_sec,
                   at.st_mtim.tv_nsec);
    return LS_OK;
}

static ls_status identify_files(const ls_corpus_file *files, size_t count, ls_text *text)
{
    for (size_t i = 0; i < count; i++) {
        const ls_shard *shard = files[i].shard;
        if (shard) {
            ls_text_printf(text, "%s %llu %s\n", files[i].path, (unsigned long long)shard->bytes,
                           shard->etag);
        } else {
            LS_TRY(identify_path(files[i].path, text));
        }
    }
    return LS_OK;
}

/* The settings, and the files that they name. */
static ls_status identify_step(const ls_step *step, ls_text *text)
{
    ls_data_pipeline_append_step(step, text);
    if (step->kind == LS_STEP_LANGUAGE) {
        return identify_path(step->language.model, text);
    }
    return identify_files(step->decontaminate.files, step->decontaminate.file_count, text);
}

static ls_status identify(ls_data_pipeline *pipeline)
{
    ls_text text = {0};
    ls_status status = LS_OK;
    ls_text_append(&text, "preparation 2\n");
    ls_options_append_yaml(&table, pipeline, false, &text);
    for (size_t i = 1; i < pipeline->step_count && status == LS_OK; i++) {
        status = identify_step(&pipeline->steps[i], &text);
    }
    if (status == LS_OK) {
        status = identify_files(pipeline->files, pipeline->file_count, &text);
    }
    ls_hash128_hex(ls_xxh3_128(text.data, text.bytes), pipeline->identity);
    ls_text_release(&text);
    return status;
}

ls_status ls_data_pipeline_load(ls_arena *arena, const char *path, ls_data_pipeline **pipeline_out)
{
    ls_document doc;
    ls_data_pipeline *pipeline = ls_arena_new(arena, ls_data_pipeline, 1);
    LS_TRY(ls_yaml_load(path, &doc));
    ls_status status = ls_data_pipeline_read(arena, &doc, pipeline);
    ls_document_release(&doc);
    status = status == LS_OK ? find_files(arena, pipeline) : status;
    LS_TRY(status);
    LS_TRY(identify(pipeline));
    *pipeline_out = pipeline;
    return LS_OK;
}
