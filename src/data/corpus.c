// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include "base/file.h"
#include "data/token_file.h"

#include <stdlib.h>
#include <string.h>

typedef struct path_list {
    char **paths;
    size_t count, capacity;
} path_list;

const char *ls_corpus_kind_name(ls_corpus_kind kind)
{
    static const char *const names[] = {"text", "JSON lines", "token file"};
    return names[kind];
}

static void path_list_add(ls_arena *arena, path_list *list, char *path)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? list->capacity * 2 : 16;
        char **paths = ls_arena_new(arena, char *, capacity);
        if (list->count > 0) {
            memcpy(paths, list->paths, list->count * sizeof *paths);
        }
        list->paths = paths;
        list->capacity = capacity;
    }
    list->paths[list->count++] = path;
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

static ls_status expand_pattern(ls_arena *arena, const char *pattern, path_list *list)
{
    char *literal = ls_arena_strdup(arena, pattern);
    char **paths = &literal;
    size_t count = 1;
    if (!ls_path_exists(pattern)) { /* a file whose name has a * or [ in it is taken by its name */
        LS_TRY(ls_path_glob(arena, pattern, &paths, &count));
    }
    for (size_t i = 0; i < count; i++) {
        path_list_add(arena, list, data_path_of(arena, paths[i]));
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
static void drop_repeated(ls_arena *arena, path_list *list)
{
    ranked_path *sorted = ls_arena_new(arena, ranked_path, list->count);
    for (size_t i = 0; i < list->count; i++) {
        sorted[i] = (ranked_path){.path = list->paths[i], .rank = i};
    }
    qsort(sorted, list->count, sizeof *sorted, compare_by_path);
    for (size_t i = 1; i < list->count; i++) {
        if (strcmp(sorted[i - 1].path, sorted[i].path) == 0) {
            list->paths[sorted[i].rank] = NULL;
        }
    }
}

static ls_status kind_of(const char *path, ls_corpus_kind *kind_out)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    ls_status status = LS_OK;
    if (map.bytes == 0) {
        status = ls_fail(LS_ERR_DATA, "%s is empty: remove it or fill it", path);
    } else if (ls_path_has_suffix(path, ".bin") || ls_path_has_suffix(path, ".idx") ||
               ls_token_file_has_magic(map.data, map.bytes)) {
        *kind_out = LS_CORPUS_TOKENS;
    } else if (ls_path_has_suffix(path, ".jsonl") || ls_path_has_suffix(path, ".ndjson")) {
        *kind_out = LS_CORPUS_JSONL;
    } else {
        *kind_out = LS_CORPUS_TEXT;
    }
    ls_file_map_close(&map);
    return status;
}

ls_status ls_corpus_expand(ls_arena *arena, const char *const *patterns, size_t pattern_count,
                           ls_corpus_file **files_out, size_t *count_out)
{
    path_list list = {0};
    if (pattern_count == 0) {
        return ls_fail(LS_ERR_INVALID, "no data files are named: give at least one path or pattern");
    }
    for (size_t i = 0; i < pattern_count; i++) {
        LS_TRY(expand_pattern(arena, patterns[i], &list));
    }
    drop_repeated(arena, &list);
    ls_corpus_file *files = ls_arena_new(arena, ls_corpus_file, list.count);
    size_t count = 0;
    for (size_t i = 0; i < list.count; i++) {
        if (list.paths[i]) {
            files[count].path = list.paths[i];
            LS_TRY(kind_of(list.paths[i], &files[count].kind));
            count++;
        }
    }
    *files_out = files;
    *count_out = count;
    return LS_OK;
}
