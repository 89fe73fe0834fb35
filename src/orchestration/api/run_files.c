// SPDX-License-Identifier: Apache-2.0
/*
 * The files that hold the metrics of a run, in the order in which they are read. Their keys tell
 * them apart in the store:
 *
 *   names in the folder of the run   those that its row names (`files`), else metrics.jsonl
 *   "12.jsonl"                       what programs have sent for job 12, in the daemon's home
 *   "stdout", absolute paths         what job.metrics names (`metrics` in the row)
 */
#include "orchestration/api/api_internal.h"

#include "base/assert.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST_BYTES = 1024 * 1024, MATCHES_MAX = 1000 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static uint64_t job_of(const json_t *row)
{
    return (uint64_t)json_integer_value(json_object_get(row, "job"));
}

ls_user_file ls_api_logged_file(const ls_api *api, uint64_t job, ls_text *folder, char name[32])
{
    ls_text_printf(folder, "%s/logged", api->home);
    snprintf(name, 32, "%" PRIu64 ".jsonl", job);
    return (ls_user_file){.folder = ls_text_string(folder),
                          .name = name,
                          .uid = (uint32_t)geteuid(),
                          .gid = (uint32_t)getegid()};
}

/* ---- which file a key names ---- */

/* FOLDER/NAME of a path. */
static void take_path(const char *path, ls_api_run_file *file)
{
    const char *last = strrchr(path, '/');
    LS_ASSERT(last);
    ls_text_append_bytes(&file->folder, path, last > path ? (size_t)(last - path) : 1);
    file->file.folder = ls_text_string(&file->folder);
    file->file.name = last + 1;
}

static void take_key(const ls_api *api, const json_t *row, const char *key, ls_api_run_file *file)
{
    file->owner = (uint32_t)json_integer_value(json_object_get(row, "uid"));
    file->file = (ls_user_file){.folder = text_of(row, "run_dir"),
                                .name = key,
                                .uid = file->owner,
                                .gid = (uint32_t)json_integer_value(json_object_get(row, "gid"))};
    if (key[0] == '/') {
        take_path(key, file);
    } else if (strcmp(key, "stdout") == 0 && api->home) {
        file->file = ls_api_log_file(api, job_of(row), "log", &file->folder);
    }
    file->key = key;
}

bool ls_api_run_file_at(const ls_api *api, const json_t *row, const json_t *named, size_t index,
                        ls_api_run_file *file)
{
    const json_t *files = json_object_get(row, "files");
    const bool is_trained = text_of(row, "run_dir")[0] != '\0';
    ls_text_clear(&file->folder);
    if (!files && index == is_trained) {
        file->file = ls_api_logged_file(api, job_of(row), &file->folder, file->name);
        file->owner = file->file.uid;
        file->key = file->name;
        return true;
    }
    const char *key = files ? json_string_value(json_array_get(files, index))
                      : is_trained && index == 0
                          ? "metrics.jsonl"
                          : json_string_value(json_array_get(named, index - is_trained - 1));
    if (key) {
        take_key(api, row, key, file);
    }
    return key;
}

bool ls_api_run_file_newest(const ls_api *api, const json_t *row, ls_api_run_file *file)
{
    const json_t *files = json_object_get(row, "files");
    if (files || text_of(row, "run_dir")[0]) {
        return ls_api_run_file_at(api, row, NULL, files ? json_array_size(files) - 1 : 0, file);
    }
    const ls_stored_run *run = ls_api_runs_find(api->runs, job_of(row));
    ls_text_clear(&file->folder);
    for (size_t i = run ? run->file_count : 0; i > 0; i--) {
        const ls_stored_file *stored = &run->files[i - 1];
        if (stored->feed.offset > 0 && (stored->name[0] == '/' || strcmp(stored->name, "stdout") == 0)) {
            take_key(api, row, stored->name, file);
            return true;
        }
    }
    return run && ls_api_run_file_at(api, row, NULL, 0, file); /* what was sent */
}

/* ---- which files there are ---- */

static void list_next(ls_api_exchange *exchange);

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds the names of a folder that match, in the order of their names: those of event files begin
 * with the time. */
static void add_matches(json_t *named, const char *pattern, const char *names, size_t bytes)
{
    const char *last = strrchr(pattern, '/') + 1, *matches[MATCHES_MAX];
    size_t count = 0;
    for (size_t at = 0; at < bytes && count < MATCHES_MAX; at += strlen(names + at) + 1) {
        if (fnmatch(last, names + at, FNM_PERIOD) == 0) {
            matches[count++] = names + at;
        }
    }
    qsort(matches, count, sizeof *matches, by_name);
    for (size_t i = 0; i < count; i++) {
        json_t *path = json_sprintf("%.*s%s", (int)(last - pattern), pattern, matches[i]);
        if (path) { /* UTF-8 */
            json_array_append_new(named, path);
        }
    }
}

static const char *pattern_of(const ls_api_exchange *exchange)
{
    const json_t *patterns = json_object_get(exchange->asks[0].answer, "metrics");
    return json_string_value(json_array_get(patterns, exchange->file_at));
}

static void take_names(ls_api_exchange *exchange, const ls_user_file_answer *answer)
{
    if (answer->error == 0 && answer->data) {
        add_matches(exchange->named, pattern_of(exchange), answer->data, answer->bytes);
    } else if (answer->error && answer->error != ENOENT) {
        exchange->trouble = answer->error;
    }
    exchange->file_at++;
    list_next(exchange);
}

static void list_next(ls_api_exchange *exchange)
{
    const json_t *row = exchange->asks[0].answer;
    const char *pattern = NULL;
    while ((pattern = pattern_of(exchange)) && !strpbrk(pattern, "*?[")) {
        json_array_append_new(exchange->named, json_string(pattern));
        exchange->file_at++;
    }
    if (!pattern) {
        exchange->file_at = 0;
        exchange->then_named(exchange);
        return;
    }
    ls_api_run_file file = {0};
    take_key(exchange->api, row, pattern, &file);
    file.file.name = ".";
    file.file.is_folder = true;
    file.file.bytes = LIST_BYTES;
    ls_api_exchange_read(exchange, &file.file, file.owner, take_names);
    ls_text_release(&file.folder);
}

void ls_api_run_files_name(ls_api_exchange *exchange, ls_api_next then)
{
    json_decref(exchange->named);
    exchange->named = json_array();
    exchange->file_at = 0;
    exchange->trouble = 0;
    exchange->then_named = then;
    list_next(exchange);
}
