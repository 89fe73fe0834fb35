// SPDX-License-Identifier: Apache-2.0
#include "storage/registry/survey.h"

#include "base/file.h"
#include "base/yaml.h"
#include "storage/checkpoint/manifest.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 16, DOCUMENT_BYTES_MAX = 16 << 20, SOURCES_MAX = 256, FILES_NAMED_MAX = 16 };

static void add_file(ls_arena *arena, ls_registry_entry *entry, const ls_registry_entry_file *file)
{
    const size_t count = entry->file_count++;
    if (count == 0 || (count >= 64 && (count & (count - 1)) == 0)) { /* 64 and its doubles: full */
        ls_registry_entry_file *more =
            ls_arena_new(arena, ls_registry_entry_file, count < 64 ? 64 : 2 * count);
        if (count > 0) {
            memcpy(more, entry->files, count * sizeof *more);
        }
        entry->files = more;
    }
    entry->files[count] = *file;
}

ls_status ls_survey_hash(const char *path, ls_registry_entry_file *file)
{
    int fd = -1;
    size_t bytes = 0;
    LS_TRY(ls_file_open(path, &fd, &bytes));
    const ls_status status = ls_file_sha256(fd, path, bytes, file->sha256);
    close(fd);
    file->bytes = bytes;
    return status;
}

/* ---- folders and files ---- */

/* below: "" or "a/b/". hashes: else the files have names alone. */
static ls_status walk(ls_arena *arena, const char *root, const char *below, unsigned depth, bool hashes,
                      ls_registry_entry *entry)
{
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(arena, ls_path_join(arena, root, below), &names, &count));
    for (size_t i = 0; i < count; i++) {
        struct stat info;
        const char *name = ls_arena_printf(arena, "%s%s", below, names[i]);
        const char *path = ls_path_join(arena, root, name);
        if (strcmp(name, LS_REGISTRY_RECEIPT) == 0) {
            continue;
        }
        if (stat(path, &info) != 0) {
            return ls_fail_errno(errno, "can't look at %s", path);
        }
        if (S_ISDIR(info.st_mode)) {
            if (depth >= DEPTH_MAX) {
                return ls_fail(LS_ERR_INVALID, "%s: folders are more than %d deep", path, DEPTH_MAX);
            }
            LS_TRY(walk(arena, root, ls_arena_printf(arena, "%s/", name), depth + 1, hashes, entry));
        } else {
            ls_registry_entry_file file = {.name = name};
            LS_TRY(hashes ? ls_survey_hash(path, &file) : LS_OK);
            add_file(arena, entry, &file);
        }
    }
    return LS_OK;
}

ls_status ls_survey_count(ls_arena *arena, const char *folder, size_t *count_out)
{
    ls_registry_entry entry = {0};
    LS_TRY(walk(arena, folder, "", 0, false, &entry));
    *count_out = entry.file_count;
    return LS_OK;
}

static bool has_file(const ls_registry_entry *entry, const char *suffix)
{
    for (size_t i = 0; i < entry->file_count; i++) {
        if (ls_path_has_suffix(entry->files[i].name, suffix)) {
            return true;
        }
    }
    return false;
}

/* An object with the keys that `eval --json` prints. */
static bool is_evaluation(const json_t *document)
{
    static const char *const keys[] = {"perplexity", "accuracy", "tasks"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (json_object_get(document, keys[i])) {
            return true;
        }
    }
    return false;
}

static ls_registry_entry_kind kind_of(const ls_registry_entry *entry, const json_t *document)
{
    return has_file(entry, "adapter_config.json")                           ? LS_ENTRY_ADAPTER
           : has_file(entry, ".safetensors") || has_file(entry, ".gguf")    ? LS_ENTRY_MODEL
           : has_file(entry, "tokenizer.json") || has_file(entry, ".model") ? LS_ENTRY_TOKENIZER
           : is_evaluation(document)                                        ? LS_ENTRY_EVALUATION
                                                                            : LS_ENTRY_DATA;
}

/* Numbers and short texts of an object, with those of objects in it as "outer.inner". */
static void copy_metrics(json_t *to, const json_t *from, const char *prefix)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        char name[256];
        if (json_object_size(to) >= 200) {
            return;
        }
        snprintf(name, sizeof name, "%s%s", prefix, key);
        if (json_is_number(value)) {
            json_object_set(to, name, value);
        } else if (json_is_object(value) && !*prefix) {
            char inner[128];
            snprintf(inner, sizeof inner, "%.120s.", key);
            copy_metrics(to, value, inner);
        }
    }
}

static void add_source(ls_arena *arena, ls_survey_source *sources, const char *path, const char *as)
{
    size_t count = 0;
    while (sources[count].path) {
        count++;
    }
    if (path && *path && count < SOURCES_MAX) {
        sources[count] = (ls_survey_source){ls_arena_strdup(arena, path), as};
    }
}

/* What report.json of a folder that `data prepare` made says: from which files, by which steps. */
static void add_preparation(ls_arena *arena, ls_registry_entry *entry, ls_survey_source *sources)
{
    json_t *report = NULL, *names = json_array();
    const char *last = "";
    /* DIR/data may be added alone. */
    const char *folder_of_data = strcmp(ls_path_basename(entry->path), "data") == 0
                                     ? ls_path_dirname(arena, entry->path)
                                     : entry->path;
    if (ls_json_load(ls_path_join(arena, folder_of_data, "report.json"), DOCUMENT_BYTES_MAX, &report) !=
        LS_OK) {
        ls_error_clear();
    }
    const json_t *steps = json_object_get(report, "steps"), *files = json_object_get(report, "files");
    for (size_t i = 0; i < json_array_size(steps); i++) {
        json_t *step = json_object_get(json_array_get(steps, i), "step");
        if (json_is_string(step) && strcmp(json_string_value(step), "read") != 0) {
            json_array_append(names, step);
        }
    }
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *input = json_object_get(json_array_get(files, i), "input");
        const char *path = json_string_value(json_object_get(input, "path"));
        const char *folder = ls_path_dirname(arena, path ? path : "");
        if (path && json_array_size(files) <= FILES_NAMED_MAX) {
            add_source(arena, sources, path, "data");
        } else if (path && strcmp(folder, last) != 0) { /* files of one folder follow each other */
            add_source(arena, sources, folder, "data");
            last = folder;
        }
    }
    json_t *identity = json_object_get(report, "identity");
    if (json_is_string(identity)) {
        json_object_set_new(entry->facts, "preparation",
                            json_pack("{s:O, s:O, s:O*, s:O*}", "identity", identity, "steps", names,
                                      "documents", json_object_get(report, "documents"), "kept",
                                      json_object_get(report, "kept")));
    }
    json_decref(names);
    json_decref(report);
}

static ls_status survey_files(ls_arena *arena, ls_registry_entry *entry, ls_survey_source *sources)
{
    json_t *document = NULL;
    if (ls_path_is_dir(entry->path)) {
        LS_TRY(walk(arena, entry->path, "", 0, true, entry));
    } else {
        ls_registry_entry_file file = {.name = ls_path_basename(entry->path)};
        LS_TRY(ls_survey_hash(entry->path, &file));
        add_file(arena, entry, &file);
    }
    if (entry->file_count == 0) {
        return ls_fail(LS_ERR_INVALID, "%s has no files", entry->path);
    }
    if (ls_path_has_suffix(entry->path, ".json") &&
        ls_json_load(entry->path, DOCUMENT_BYTES_MAX, &document) != LS_OK) {
        ls_error_clear();
    }
    entry->kind = entry->kind == LS_ENTRY_AUTO ? kind_of(entry, document) : entry->kind;
    if (entry->kind == LS_ENTRY_EVALUATION && json_is_object(document)) {
        json_t *metrics = json_object();
        copy_metrics(metrics, document, "");
        json_object_set_new(entry->facts, "metrics", metrics);
    }
    json_decref(document);
    if (entry->kind == LS_ENTRY_DATA) {
        add_preparation(arena, entry, sources);
    }
    return LS_OK;
}

/* ---- checkpoints ---- */

/* model.from, adapter.from, tokenizer.file and data.train of a run file. */
static ls_status read_sources(ls_arena *arena, const char *text, size_t bytes, const char *where,
                              ls_survey_source *sources)
{
    static const struct {
        const char *section, *key, *as;
    } single[] = {
        {"model", "from", "base"}, {"adapter", "from", "adapter"}, {"tokenizer", "file", "tokenizer"}};
    ls_document document = {0};
    LS_TRY(ls_yaml_parse(text, bytes, where, &document));
    const json_t *train = json_object_get(json_object_get(document.root, "data"), "train");
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) {
        const json_t *section = json_object_get(document.root, single[i].section);
        add_source(arena, sources, json_string_value(json_object_get(section, single[i].key)), single[i].as);
    }
    for (size_t i = 0; i < json_array_size(train); i++) {
        const json_t *item = json_array_get(train, i);
        const char *path = json_string_value(item);
        add_source(arena, sources, path ? path : json_string_value(json_object_get(item, "path")), "data");
    }
    ls_document_release(&document);
    return LS_OK;
}

/* What summary.json of the run says of this very step. */
static void add_results(ls_arena *arena, const ls_checkpoint *checkpoint, json_t *facts, json_t *run)
{
    static const char *const kept[] = {"loss", "val_loss", "tokens", "wall_s", "cost_usd", "energy_j"};
    const char *folder = ls_path_dirname(arena, ls_path_dirname(arena, checkpoint->path));
    json_t *summary = NULL, *metrics = json_object();
    if (checkpoint->meta.has_val_loss) {
        json_object_set_new(metrics, "val_loss", json_real(checkpoint->meta.val_loss));
    }
    if (ls_json_load(ls_path_join(arena, folder, "summary.json"), DOCUMENT_BYTES_MAX, &summary) != LS_OK) {
        ls_error_clear();
    }
    const json_t *step = json_object_get(summary, "step");
    if (json_is_integer(step) && (uint64_t)json_integer_value(step) == checkpoint->meta.step) {
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            json_t *value = json_object_get(summary, kept[i]);
            if (json_is_number(value)) {
                json_object_set(metrics, kept[i], value);
            }
        }
        json_t *hash = json_object_get(summary, "state_hash");
        if (json_is_string(hash)) {
            json_object_set(run, "state_hash", hash);
        }
    }
    json_decref(summary);
    json_object_set_new(facts, "metrics", metrics);
}

static void add_run(ls_arena *arena, const ls_checkpoint *checkpoint, const char *run_file, json_t *facts)
{
    const json_t *extra = checkpoint->meta.extra;
    const char *name = json_string_value(json_object_get(extra, "run"));
    const char *data = json_string_value(json_object_get(extra, "data_hash"));
    json_t *run =
        json_pack("{s:s, s:s, s:I, s:s*, s:s*, s:s*}", "identity", checkpoint->meta.identity, "determinism",
                  checkpoint->meta.determinism, "step", (json_int_t)checkpoint->meta.step, "name", name,
                  "data_hash", data, "file", run_file);
    add_results(arena, checkpoint, facts, run);
    json_object_set_new(facts, "run", run);
}

/* A file whose digest the manifest has. */
static void add_known(ls_arena *arena, ls_registry_entry *entry, const char *name, uint64_t bytes,
                      const char *sha256)
{
    ls_registry_entry_file file = {.name = ls_arena_strdup(arena, name), .bytes = bytes};
    memcpy(file.sha256, sha256, sizeof file.sha256);
    add_file(arena, entry, &file);
}

static ls_status survey_checkpoint(ls_arena *arena, const ls_checkpoint *checkpoint, ls_registry_entry *entry,
                                   ls_survey_source *sources)
{
    const ls_manifest *m = checkpoint->manifest;
    const char *run_file = NULL;
    for (size_t i = 0; i < m->file_count; i++) {
        add_known(arena, entry, m->files[i].name, m->files[i].bytes, m->files[i].sha256);
    }
    for (size_t i = 0; i < m->attachment_count; i++) {
        const char *name = m->attachments[i].name;
        add_known(arena, entry, name, m->attachments[i].bytes, m->attachments[i].sha256);
        if (strcmp(name, "run.yaml") == 0) {
            char *text = NULL;
            size_t bytes = 0;
            LS_TRY(ls_checkpoint_attachment_read(checkpoint, arena, name, &text, &bytes));
            LS_TRY(read_sources(arena, text, bytes, ls_path_join(arena, checkpoint->path, name), sources));
            run_file = m->attachments[i].sha256;
        }
    }
    ls_registry_entry_file manifest = {.name = LS_MANIFEST_NAME};
    LS_TRY(ls_survey_hash(ls_path_join(arena, checkpoint->path, LS_MANIFEST_NAME), &manifest));
    add_file(arena, entry, &manifest);
    if (entry->kind == LS_ENTRY_AUTO) {
        entry->kind = ls_checkpoint_base_digest(checkpoint) ? LS_ENTRY_ADAPTER : LS_ENTRY_MODEL;
    }
    add_run(arena, checkpoint, run_file, entry->facts);
    return LS_OK;
}

/* ---- all ---- */

const char *ls_survey_path(ls_arena *arena, const ls_registry_entry *entry,
                           const ls_registry_entry_file *file)
{
    return ls_path_is_dir(entry->path) ? ls_path_join(arena, entry->path, file->name) : entry->path;
}

static ls_status real_path(ls_arena *arena, const char *path, const char **real_out)
{
    *real_out = ls_path_real(arena, path);
    return *real_out ? LS_OK : ls_fail_errno(errno, "can't look at %s", path);
}

ls_status ls_survey(ls_arena *arena, const char *path, ls_registry_entry *entry,
                    ls_survey_source **sources_out)
{
    const char *found = NULL;
    ls_checkpoint *checkpoint = NULL;
    ls_survey_source *sources = ls_arena_new(arena, ls_survey_source, SOURCES_MAX + 1);
    LS_TRY(real_path(arena, path, &entry->path));
    entry->file_count = 0;
    ls_status status = LS_ERR_NOT_FOUND;
    if (ls_path_is_dir(entry->path)) {
        status = ls_checkpoint_resolve(arena, entry->path, &found);
    }
    if (status == LS_ERR_NOT_FOUND) {
        ls_error_clear();
        status = survey_files(arena, entry, sources);
    } else if (status == LS_OK) {
        LS_TRY(real_path(arena, found, &entry->path));
        LS_TRY(ls_checkpoint_open(entry->path, &checkpoint));
        status = survey_checkpoint(arena, checkpoint, entry, sources);
        ls_checkpoint_close(checkpoint);
    }
    *sources_out = sources;
    return status;
}
