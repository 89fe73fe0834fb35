// SPDX-License-Identifier: Apache-2.0
#include "execution/setup/branches.h"

#include "base/file.h"
#include "base/text.h"
#include "config/run_file.h"
#include "data/content_hash.h"
#include "data/corpus.h"
#include "execution/train/model_reader.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS_OF_OURS = 4, DEPTH_MOST = 8 };

/* A key of a run file and its value as YAML. */
typedef struct entry {
    const char *key, *value;
} entry;

typedef struct branch {
    const char *name, *data, *run_file, *run_dir;
    ls_corpus_file *files;
    size_t file_count;
} branch;

/* The path as it stays valid in any folder; patterns too. */
static const char *everywhere(ls_arena *arena, const char *path)
{
    char folder[PATH_MAX];
    char *real = realpath(path, NULL);
    const char *whole = ls_arena_strdup(arena, real ? real : path);
    free(real);
    const bool is_whole = whole[0] == '/' || whole[0] == '~' || strstr(whole, "://");
    return is_whole || !getcwd(folder, sizeof folder) ? whole : ls_path_join(arena, folder, whole);
}

/* ---- a run file from keys ---- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->key, ((const entry *)b)->key);
}

/* Bytes of the first `depth` parts of a dotted key, with the dot after each. */
static size_t prefix_bytes(const char *key, size_t depth)
{
    const char *at = key;
    for (size_t i = 0; i < depth; i++) {
        const char *dot = strchr(at, '.');
        if (!dot) {
            return 0;
        }
        at = dot + 1;
    }
    return (size_t)(at - key);
}

/* Writes sorted entries as nested YAML: sections are opened where the key before had others. */
static void append_entries(const entry *entries, size_t count, ls_text *text)
{
    for (size_t i = 0; i < count; i++) {
        const char *key = entries[i].key;
        size_t depth = 0;
        for (; depth < DEPTH_MOST; depth++) {
            const size_t bytes = prefix_bytes(key, depth + 1);
            if (bytes == 0) {
                break;
            }
            const size_t before = prefix_bytes(key, depth);
            if (i == 0 || strncmp(entries[i - 1].key, key, bytes) != 0) {
                ls_text_printf(text, "%*s%.*s:\n", (int)(2 * depth), "", (int)(bytes - before - 1),
                               key + before);
            }
        }
        ls_text_printf(text, "%*s%s: %s\n", (int)(2 * depth), "", key + prefix_bytes(key, depth),
                       entries[i].value);
    }
}

static const char *quoted(ls_arena *arena, const char *value)
{
    ls_text text = {0};
    ls_text_append_quoted(&text, value);
    return ls_text_keep(&text, arena);
}

/* A value of --set as YAML: texts are quoted. */
static const char *yaml_of(ls_arena *arena, const char *key, const char *value)
{
    const ls_option_table *table = ls_run_file_table();
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->options[i].key, key) == 0 && table->options[i].type == LS_OPTION_STRING) {
            return quoted(arena, value);
        }
    }
    return value;
}

static void put(entry *entries, size_t *count, const char *key, const char *value)
{
    size_t i = 0;
    while (i < *count && strcmp(entries[i].key, key) != 0) {
        i++;
    }
    entries[i] = (entry){key, value};
    *count += i == *count;
}

static ls_status write_run_file(ls_arena *arena, const ls_branches_options *o, const branch *b)
{
    entry *entries = ls_arena_new(arena, entry, KEYS_OF_OURS + o->set_count);
    size_t count = 0;
    put(entries, &count, "name", quoted(arena, b->name));
    put(entries, &count, "model.from", quoted(arena, everywhere(arena, o->model)));
    put(entries, &count, "data.train", ls_arena_printf(arena, "[%s]", quoted(arena, b->data)));
    if (o->steps > 0) {
        put(entries, &count, "train.steps", ls_arena_printf(arena, "%" PRIu64, o->steps));
    }
    for (size_t i = 0; i < o->set_count; i++) {
        const char *equals = strchr(o->sets[i], '=');
        if (!equals) {
            return ls_fail(LS_ERR_INVALID, "--set is '%s', allowed is KEY=VALUE", o->sets[i]);
        }
        const char *key = ls_arena_strndup(arena, o->sets[i], (size_t)(equals - o->sets[i]));
        put(entries, &count, key, yaml_of(arena, key, equals + 1));
    }
    qsort(entries, count, sizeof *entries, compare_keys);
    ls_text text = {0};
    ls_run_file run;
    ls_text_printf(
        &text, "# A branch of %s: 'lockstep branch' wrote this file, and 'lockstep merge' joins branches.\n",
        o->model);
    append_entries(entries, count, &text);
    ls_status status = ls_run_file_parse(text.data, text.bytes, b->run_file, NULL, 0, arena, &run);
    status = status == LS_OK ? ls_file_write_atomic(b->run_file, text.data, text.bytes) : status;
    ls_text_release(&text);
    return status;
}

/* ---- names and data ---- */

/* The name of a file or pattern up to its first dot or star. */
static const char *name_of(ls_arena *arena, const char *data)
{
    const char *base = ls_path_basename(ls_path_trim(arena, data));
    return ls_arena_strndup(arena, base, strcspn(base, ".*?[{"));
}

static ls_status check_name(const ls_branches_options *o, const branch *branches, size_t index)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const branch *b = &branches[index];
    if (!b->name[0] || b->name[0] == '.' || b->name[0] == '-' || b->name[strspn(b->name, plain)]) {
        return ls_fail(
            LS_ERR_INVALID,
            "the branch for %s has the name '%s', allowed are letters, digits, '-', '_' and '.'; give "
            "names with --name, one for each --data",
            o->data[index], b->name);
    }
    for (size_t i = 0; i < index; i++) {
        if (strcmp(branches[i].name, b->name) == 0) {
            return ls_fail(LS_ERR_INVALID,
                           "two branches have the name %s: give names with --name, one for each --data",
                           b->name);
        }
    }
    return ls_path_exists(b->run_file) || ls_path_exists(b->run_dir)
               ? ls_fail(LS_ERR_INVALID, "%s already has a branch named %s: choose another --name or -o",
                         o->dir, b->name)
               : LS_OK;
}

static ls_status find_branch(ls_arena *arena, const ls_branches_options *o, branch *branches, size_t index)
{
    branch *b = &branches[index];
    b->data = everywhere(arena, o->data[index]);
    b->name = o->names ? o->names[index] : name_of(arena, o->data[index]);
    b->run_dir = ls_path_join(arena, o->dir, b->name);
    b->run_file = ls_arena_printf(arena, "%s.yaml", b->run_dir);
    LS_TRY(check_name(o, branches, index));
    if (strstr(b->data, "://")) {
        return LS_OK; /* looked at when it is trained on */
    }
    const ls_corpus_query query = {.patterns = &b->data, .pattern_count = 1};
    return ls_corpus_expand(arena, &query, &b->files, &b->file_count);
}

/* ---- what is written down ---- */

static ls_status files_json(const branch *b, json_t *list)
{
    for (size_t i = 0; i < b->file_count; i++) {
        ls_file_map map;
        char digest[LS_SHA256_HEX_BYTES];
        LS_TRY(ls_file_map_open(b->files[i].path, &map));
        ls_content_hash("", b->files[i].path, map, LS_CONTENT_HASH_REMEMBER_BYTES, digest);
        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "path", b->files[i].path, "bytes",
                                              (json_int_t)map.bytes, "sha256", digest));
        ls_file_map_close(&map);
    }
    return LS_OK;
}

static ls_status base_json(ls_arena *arena, const char *path, json_t **base_out)
{
    ls_model_file *file = NULL;
    ls_model_reader reader;
    char digest[LS_SHA256_HEX_BYTES];
    LS_TRY(ls_model_file_open_bare(path, &file));
    ls_status status =
        !file->adapter ? ls_model_reader_open(file, false, &reader)
                       : ls_fail(LS_ERR_UNSUPPORTED,
                                 "%s is an adapter; branches train whole models: merge it into its base with "
                                 "'lockstep export %s -o DIR', and give DIR",
                                 path, path);
    if (status == LS_OK) {
        status = ls_model_reader_digest(&reader, digest);
        ls_model_reader_close(&reader);
    }
    if (status == LS_OK) {
        *base_out = json_pack("{s:s, s:s, s:I}", "path", everywhere(arena, path), "digest", digest, "step",
                              (json_int_t)file->step);
    }
    ls_model_file_close(file);
    return status;
}

static ls_status describe(const ls_branches_options *o, const branch *branches, json_t *list)
{
    for (size_t i = 0; i < o->count; i++) {
        const branch *b = &branches[i];
        json_t *files = json_array();
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", b->name, "run_file", b->run_file,
                                        "run_dir", b->run_dir, "data", b->data, "files", files));
        LS_TRY(files_json(b, files));
    }
    return LS_OK;
}

ls_status ls_branches_make(ls_arena *arena, const ls_branches_options *o, json_t **result_out)
{
    branch *branches = ls_arena_new(arena, branch, o->count);
    const char *notes = ls_path_join(arena, o->dir, "branch.json");
    json_t *base = NULL, *list = json_array();
    if (ls_path_exists(notes)) {
        json_decref(list);
        return ls_fail(LS_ERR_INVALID, "%s already has branches; choose another -o", o->dir);
    }
    ls_status status = base_json(arena, o->model, &base);
    for (size_t i = 0; i < o->count && status == LS_OK; i++) {
        status = find_branch(arena, o, branches, i);
    }
    status = status == LS_OK ? describe(o, branches, list) : status;
    status = status == LS_OK ? ls_dir_create(o->dir) : status;
    for (size_t i = 0; i < o->count && status == LS_OK; i++) {
        status = write_run_file(arena, o, &branches[i]);
    }
    json_t *result =
        json_pack("{s:s, s:o*, s:o}", "format", "lockstep-branches", "base", base, "branches", list);
    status = status == LS_OK ? ls_json_save(notes, result) : status;
    if (status != LS_OK) {
        json_decref(result);
        return status;
    }
    *result_out = result;
    return LS_OK;
}
