// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include "data/text.h"
#include "data/token_file.h"
#include "storage/blob/blob.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { FOLDER_DEPTH_MAX = 32, FIELD_BYTES_MAX = 128 };

static const char field_default[] = "text";

typedef struct entry {
    char *path;
    const char *field;
    const ls_shard *shard, *index;
} entry;

typedef struct expansion {
    ls_arena *arena;
    const ls_corpus_query *query;
    entry *entries;
    size_t count, capacity;
    /* Files of a folder that are not of a known kind. */
    size_t skipped_count;
    const char *skipped;
} expansion;

const char *ls_corpus_kind_name(ls_corpus_kind kind)
{
    static const char *const names[] = {"text", "JSON lines", "token file", "JSON", "CSV", "TSV"};
    return names[kind];
}

const char *ls_corpus_field(const ls_corpus_file *file)
{
    return file->field && file->field[0] ? file->field : field_default;
}

bool ls_corpus_has_records(ls_corpus_kind kind)
{
    return kind != LS_CORPUS_TEXT && kind != LS_CORPUS_TOKENS;
}

bool ls_corpus_field_matters(const ls_corpus_file *file)
{
    return ls_corpus_has_records(file->kind) && file->form == LS_RECORD_TEXT &&
           strcmp(ls_corpus_field(file), field_default) != 0;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

/* The kind that a name stands for. Returns false if its suffix is not a known one: it is then
 * read as text when it is named, and skipped in a folder. */
static bool kind_of_name(const char *path, ls_corpus_kind *kind_out)
{
    static const struct {
        const char *suffix;
        ls_corpus_kind kind;
    } known[] = {
        {".jsonl", LS_CORPUS_JSONL}, {".ndjson", LS_CORPUS_JSONL}, {".json", LS_CORPUS_JSON},
        {".csv", LS_CORPUS_CSV},     {".tsv", LS_CORPUS_TSV},      {".bin", LS_CORPUS_TOKENS},
        {".idx", LS_CORPUS_TOKENS},  {".txt", LS_CORPUS_TEXT},     {".text", LS_CORPUS_TEXT},
        {".md", LS_CORPUS_TEXT},     {".rst", LS_CORPUS_TEXT},
    };
    size_t stem_bytes = 0;
    const ls_packing packing = ls_packing_suffix(path, &stem_bytes);
    *kind_out = packing == LS_PACKING_PARQUET ? LS_CORPUS_JSONL : LS_CORPUS_TEXT;
    if (packing == LS_PACKING_PARQUET) {
        return true;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t bytes = strlen(known[i].suffix);
        if (stem_bytes >= bytes && strncasecmp(path + stem_bytes - bytes, known[i].suffix, bytes) == 0) {
            *kind_out = known[i].kind;
            return true;
        }
    }
    return false;
}

static ls_status check_packed(const ls_corpus_file *file, ls_packing promised)
{
    if (promised != LS_PACKING_NONE && promised != file->packing) {
        return ls_fail(LS_ERR_DATA,
                       "%s does not hold %s data, although its suffix says so: rename or remove it",
                       file->path, ls_packing_name(promised));
    }
    if (file->kind == LS_CORPUS_TOKENS && file->packing != LS_PACKING_NONE) {
        return ls_fail(LS_ERR_DATA,
                       "%s is a compressed token file; token files are read in place, so decompress it first",
                       file->path);
    }
    return LS_OK;
}

static ls_status look_at(ls_corpus_file *file, ls_file_map map)
{
    if (map.bytes == 0) {
        return ls_fail(LS_ERR_DATA, "%s is empty: remove it or fill it", file->path);
    }
    size_t stem_bytes = 0;
    const ls_packing promised = ls_packing_suffix(file->path, &stem_bytes);
    kind_of_name(file->path, &file->kind);
    file->packing = file->kind == LS_CORPUS_TOKENS && promised == LS_PACKING_NONE
                        ? LS_PACKING_NONE
                        : ls_packing_of(map.data, map.bytes);
    LS_TRY(check_packed(file, promised));
    file->kind = file->packing == LS_PACKING_PARQUET ? LS_CORPUS_JSONL : file->kind;
    if (ls_token_file_has_magic(map.data, map.bytes)) {
        file->kind = LS_CORPUS_TOKENS;
    }
    return file->kind == LS_CORPUS_TOKENS || file->packing == LS_PACKING_PARQUET
               ? LS_OK
               : ls_text_check_format(map.data, map.bytes, file->path);
}

/* Looking into a shard would fetch it. */
static ls_status find_kind_by_name(ls_corpus_file *file)
{
    size_t stem_bytes = 0;
    kind_of_name(file->path, &file->kind);
    file->packing = ls_packing_suffix(file->path, &stem_bytes);
    return file->shard->bytes == 0 ? ls_fail(LS_ERR_DATA, "%s is empty: remove it or fill it", file->path)
                                   : check_packed(file, file->packing);
}

static ls_status find_kind(ls_corpus_file *file)
{
    ls_file_map map;
    if (file->shard) {
        return find_kind_by_name(file);
    }
    LS_TRY(ls_file_map_open(file->path, &map));
    const ls_status status = look_at(file, map);
    ls_file_map_close(&map);
    return status;
}

static ls_status check_shard(const ls_corpus_file *file, ls_file_map map)
{
    ls_corpus_file seen = *file;
    LS_TRY(look_at(&seen, map));
    return seen.kind == file->kind && seen.packing == file->packing
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "%s holds %s%s, and its name does not say so: give it the suffix of its kind",
                         file->path, seen.packing != file->packing ? ls_packing_name(seen.packing) : "",
                         seen.packing != file->packing ? " data" : "tokens of llm.c");
}

ls_status ls_corpus_map(const ls_corpus_file *file, ls_file_map *map_out)
{
    if (file->streamed) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s belongs to a set of tokens, which has no text: name the files it was made from",
                       file->path);
    }
    if (!file->shard) {
        return ls_file_map_open(file->path, map_out);
    }
    ls_file_map map = {0};
    LS_TRY(ls_shard_map(file->shard, NULL, &map));
    const ls_status status = check_shard(file, map);
    if (status != LS_OK) {
        ls_file_map_close(&map);
        return status;
    }
    *map_out = map;
    return LS_OK;
}

ls_status ls_corpus_unpack(const ls_corpus_file *file, const ls_unpack_options *options, ls_file_map *map)
{
    if (file->packing == LS_PACKING_NONE) {
        return LS_OK;
    }
    ls_file_map content = {0};
    LS_TRY(ls_unpack(file->path, *map, options, &content));
    ls_file_map_close(map);
    *map = content;
    return ls_text_check_format(map->data, map->bytes, file->path);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static entry *add_path(expansion *x, char *path, const char *field)
{
    if (x->count == x->capacity) {
        const size_t capacity = x->capacity ? x->capacity * 2 : 16;
        entry *entries = ls_arena_new(x->arena, entry, capacity);
        if (x->count > 0) {
            memcpy(entries, x->entries, x->count * sizeof *entries);
        }
        x->entries = entries;
        x->capacity = capacity;
    }
    x->entries[x->count] = (entry){.path = path, .field = field};
    return &x->entries[x->count++];
}

/* "x.idx" beside "x.bin" becomes "x.bin". */
static char *data_path_of(ls_arena *arena, char *path)
{
    if (!ls_path_has_suffix(path, ".idx")) {
        return path;
    }
    char *data = ls_arena_printf(arena, "%.*s.bin", (int)(strlen(path) - 4), path);
    return ls_path_exists(data) ? data : path;
}

static void add_file_of_folder(expansion *x, char *path, const char *field)
{
    ls_corpus_kind kind;
    if (kind_of_name(path, &kind)) {
        add_path(x, data_path_of(x->arena, path), field);
    } else {
        x->skipped = x->skipped_count++ ? x->skipped : path;
    }
}

static ls_status add_folder(expansion *x, const char *folder, const char *field, int depth)
{
    if (depth > FOLDER_DEPTH_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: folders are nested more than %d deep; is one a link to its parent?", folder,
                       FOLDER_DEPTH_MAX);
    }
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(x->arena, folder, &names, &count));
    const char *index = ls_path_join(x->arena, folder, LS_TOKEN_SET_INDEX);
    if (ls_path_exists(index)) {
        add_path(x, ls_arena_strdup(x->arena, index), field);
        return LS_OK;
    }
    for (size_t i = 0; i < count; i++) {
        char *path = ls_path_join(x->arena, folder, names[i]);
        if (names[i][0] == '.') {
            continue;
        }
        if (ls_path_is_dir(path)) {
            LS_TRY(add_folder(x, path, field, depth + 1));
        } else {
            add_file_of_folder(x, path, field);
        }
    }
    return LS_OK;
}

static ls_status expand_folder(expansion *x, const char *folder, const char *field)
{
    const size_t before = x->count;
    x->skipped_count = 0;
    LS_TRY(add_folder(x, folder, field, 1));
    if (x->count == before) {
        return ls_fail(
            LS_ERR_NOT_FOUND,
            "folder %s holds no data: files named .txt, .md, .rst, .jsonl, .json, .csv, .tsv (also with "
            ".gz or .zst), .parquet or .bin are looked for, in its folders too",
            folder);
    }
    if (x->skipped_count > 0 && x->query->tell) {
        const bool one = x->skipped_count == 1;
        x->query->tell(x->query->context,
                       ls_arena_printf(x->arena, "%s: %zu file%s of other kinds %s not read, for example %s",
                                       folder, x->skipped_count, one ? "" : "s", one ? "is" : "are",
                                       x->skipped));
    }
    return LS_OK;
}

static ls_status fail_without_match(const char *pattern)
{
    char here[PATH_MAX];
    const bool relative = pattern[0] != '/' && getcwd(here, sizeof here);
    return ls_fail(LS_ERR_NOT_FOUND, "no file matches %s%s%s", pattern, relative ? " in " : "",
                   relative ? here : "");
}

/* ---- shards ---------------------------------------------------------------------------------- */

static int compare_address(const void *address, const void *shard)
{
    return strcmp(address, ((const ls_shard *)shard)->address);
}

/* The shard beside `shard` that has the other one of the suffixes .bin and .idx. NULL: none. */
static const ls_shard *shard_beside(ls_arena *arena, const ls_shard *shards, size_t count,
                                    const ls_shard *shard, const char *suffix)
{
    const int stem_bytes = (int)(strlen(shard->address) - strlen(suffix));
    const char *other = ls_arena_printf(arena, "%.*s%s", stem_bytes, shard->address, suffix);
    return bsearch(other, shards, count, sizeof *shards, compare_address);
}

static ls_status add_shards(expansion *x, const char *pattern, const char *field, bool is_folder,
                            const ls_shard *shards, size_t count)
{
    const size_t before = x->count;
    for (size_t i = 0; i < count && is_folder; i++) {
        if (ls_token_set_is_index(shards[i].address)) {
            add_path(x, ls_arena_strdup(x->arena, shards[i].address), field);
            return LS_OK;
        }
    }
    for (size_t i = 0; i < count; i++) {
        ls_corpus_kind kind;
        const ls_shard *shard = &shards[i];
        const bool is_index = ls_path_has_suffix(shard->address, ".idx");
        if ((is_folder && !kind_of_name(shard->address, &kind)) ||
            (is_index && shard_beside(x->arena, shards, count, shard, ".bin"))) {
            continue;
        }
        entry *added = add_path(x, ls_arena_strdup(x->arena, shard->address), field);
        added->shard = shard;
        added->index = ls_path_has_suffix(shard->address, ".bin")
                           ? shard_beside(x->arena, shards, count, shard, ".idx")
                           : NULL;
    }
    return x->count > before
               ? LS_OK
               : ls_fail(LS_ERR_NOT_FOUND, "%s holds no data: %zu objects of other kinds lie below it",
                         pattern, count);
}

static ls_status expand_remote(expansion *x, const char *pattern, const char *field)
{
    bool is_object = false;
    ls_shard *shards = NULL;
    size_t count = 0;
    LS_TRY(ls_shards_list(x->arena, pattern, x->query->cache_folder, &shards, &count, &is_object));
    const bool is_folder = !is_object && !strpbrk(pattern, "*?[");
    if (is_object && ls_path_has_suffix(pattern, ".bin")) {
        /* With the index that may be beside it. */
        const char *both =
            ls_arena_printf(x->arena, "%.*s.[bi][id][nx]", (int)(strlen(pattern) - 4), pattern);
        LS_TRY(ls_shards_list(x->arena, both, x->query->cache_folder, &shards, &count, &is_object));
    }
    return add_shards(x, pattern, field, is_folder, shards, count);
}

static ls_status expand_pattern(expansion *x, const char *named, const char *field)
{
    if (ls_blob_is_remote(named)) {
        return expand_remote(x, named, field);
    }
    char *pattern = ls_path_expand_home(x->arena, named);
    char **paths = &pattern;
    size_t count = 1;
    /* A pattern that is the name of a file means that file, even if it holds a * or [. */
    if (!ls_path_exists(pattern) && ls_path_glob(x->arena, pattern, &paths, &count) != LS_OK) {
        return fail_without_match(pattern);
    }
    for (size_t i = 0; i < count; i++) {
        if (ls_path_is_dir(paths[i])) {
            LS_TRY(expand_folder(x, paths[i], field));
        } else {
            add_path(x, data_path_of(x->arena, paths[i]), field);
        }
    }
    return LS_OK;
}

typedef struct ranked_path {
    char *path;
    size_t rank;
} ranked_path;

static int compare_by_path(const void *a, const void *b)
{
    const ranked_path *x = a, *y = b;
    const int order = strcmp(x->path, y->path);
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Sets repeated paths to NULL, keeping the first of each. */
static void drop_repeated(expansion *x)
{
    ranked_path *sorted = ls_arena_new(x->arena, ranked_path, x->count);
    for (size_t i = 0; i < x->count; i++) {
        sorted[i] = (ranked_path){.path = x->entries[i].path, .rank = i};
    }
    qsort(sorted, x->count, sizeof *sorted, compare_by_path);
    for (size_t i = 1; i < x->count; i++) {
        if (strcmp(sorted[i - 1].path, sorted[i].path) == 0) {
            x->entries[sorted[i].rank].path = NULL;
        }
    }
}

static const char *field_for(const ls_corpus_query *query, size_t index)
{
    const char *own = query->fields ? query->fields[index] : NULL;
    return own && own[0] ? own : query->field;
}

static ls_status expand_all(expansion *x)
{
    const ls_corpus_query *query = x->query;
    if (query->pattern_count == 0) {
        return ls_fail(LS_ERR_INVALID, "no data files are named: give at least one path or pattern");
    }
    for (size_t i = 0; i < query->pattern_count; i++) {
        const char *field = field_for(query, i);
        if (field && strlen(field) > FIELD_BYTES_MAX) {
            return ls_fail(LS_ERR_INVALID, "the field name '%.40s...' has %zu bytes; at most %d are allowed",
                           field, strlen(field), FIELD_BYTES_MAX);
        }
        LS_TRY(expand_pattern(x, query->patterns[i], field));
    }
    drop_repeated(x);
    return LS_OK;
}

static ls_corpus_file *add_file(ls_arena *arena, ls_corpus_file **files, size_t *count, size_t *capacity)
{
    if (*count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 64;
        ls_corpus_file *more = ls_arena_new(arena, ls_corpus_file, *capacity);
        if (*count > 0) {
            memcpy(more, *files, *count * sizeof *more);
        }
        *files = more;
    }
    return &(*files)[(*count)++];
}

/* The files of a token set. */
static ls_status add_streamed(expansion *x, const char *address, ls_corpus_file **files, size_t *count,
                              size_t *capacity)
{
    ls_token_shard *shards = NULL;
    size_t shard_count = 0;
    LS_TRY(ls_token_set_read(x->arena, address, &shards, &shard_count));
    for (size_t i = 0; i < shard_count; i++) {
        const ls_token_shard *shard = &shards[i];
        ls_corpus_file *file = add_file(x->arena, files, count, capacity);
        if (shard->kind > LS_CORPUS_KIND_LAST) {
            return ls_fail(LS_ERR_DATA, "%s: the kind of %s is %u, allowed is 0 to %d", address, shard->key,
                           shard->kind, (int)LS_CORPUS_KIND_LAST);
        }
        *file = (ls_corpus_file){.path = ls_path_join(x->arena, shard->set, shard->key),
                                 .kind = (ls_corpus_kind)shard->kind,
                                 .field = shard->field,
                                 .streamed = shard};
    }
    return LS_OK;
}

ls_status ls_corpus_expand(ls_arena *arena, const ls_corpus_query *query, ls_corpus_file **files_out,
                           size_t *count_out)
{
    expansion x = {.arena = arena, .query = query};
    LS_TRY(expand_all(&x));
    ls_corpus_file *files = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < x.count; i++) {
        const entry *e = &x.entries[i];
        if (e->path && ls_token_set_is_index(e->path)) {
            LS_TRY(add_streamed(&x, e->path, &files, &count, &capacity));
        } else if (e->path) {
            ls_corpus_file *file = add_file(arena, &files, &count, &capacity);
            *file =
                (ls_corpus_file){.path = e->path, .field = e->field, .shard = e->shard, .index = e->index};
            LS_TRY(find_kind(file));
        }
    }
    *files_out = files;
    *count_out = count;
    return LS_OK;
}
