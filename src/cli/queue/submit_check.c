// SPDX-License-Identifier: Apache-2.0
/* Checks a run before it is queued, with the rights of the user who submits it. */
#include "base/file.h"
#include "cli/queue/queue.h"
#include "config/run_file.h"
#include "data/corpus.h"
#include "execution/train/model_file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 4096 };

/* ---- files that it reads ---- */

static ls_status check_path(const char *key, const char *path)
{
    return !path[0] || ls_path_exists(path)
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "%s is %s, which does not exist", key, path);
}

static ls_corpus_query query_of(const ls_option_weighted_list *list, ls_arena *arena)
{
    const char **patterns = ls_arena_new(arena, const char *, list->count + 1);
    for (uint64_t i = 0; i < list->count; i++) {
        patterns[i] = list->items[i].path;
    }
    return (ls_corpus_query){.patterns = patterns, .pattern_count = (size_t)list->count};
}

static ls_status check_files(const ls_run_file *run, ls_arena *arena)
{
    const ls_corpus_query train = query_of(&run->data.train, arena),
                          validation = query_of(&run->data.validation, arena);
    ls_corpus_file *files = NULL;
    size_t count = 0;
    if (train.pattern_count > 0 && ls_corpus_expand(arena, &train, &files, &count) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "data.train");
    }
    if (validation.pattern_count > 0 && ls_corpus_expand(arena, &validation, &files, &count) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "data.validation");
    }
    LS_TRY(check_path("tokenizer.file", run->tokenizer.file));
    return check_path("model.from", run->model.from);
}

/* Whether the settings fit the model that they name, as the run itself would find at its start. */
static ls_status check_model(const ls_run_file *run)
{
    ls_run_file adopted = *run;
    ls_model_file *file = NULL;
    if (!run->model.from[0]) {
        ls_model_config config;
        return ls_run_file_adopt_own_vocab(&adopted) ? ls_run_file_model_config(&adopted, &config) : LS_OK;
    }
    LS_TRY(ls_model_file_open_bare(run->model.from, &file));
    const ls_status status = ls_run_file_adopt_model(&adopted, &file->config);
    ls_model_file_close(file);
    return status;
}

/* ---- the folder that it writes to ---- */

/* Names in runs/ that a job of this name could use: NAME and NAME-... */
static json_t *names_of(const char *name, ls_arena *arena)
{
    json_t *list = json_array();
    char **names = NULL;
    size_t count = 0;
    const size_t bytes = strlen(name);
    if (ls_dir_list(arena, "runs", &names, &count) != LS_OK) {
        ls_error_clear();
        return list;
    }
    for (size_t i = 0; i < count && json_array_size(list) < NAMES_MAX; i++) {
        if (strncmp(names[i], name, bytes) == 0 && (names[i][bytes] == '\0' || names[i][bytes] == '-')) {
            json_t *text = json_string(names[i]);
            if (text) {
                json_array_append_new(list, text);
            }
        }
    }
    return list;
}

/* Whether the folder exists and holds something other than this run. text: what differs. */
static bool holds_another(const char *folder, const ls_run_file *run, ls_arena *arena, ls_text *text)
{
    const char *path = ls_path_join(arena, folder, "run.yaml");
    ls_run_file before;
    if (!ls_path_exists(folder)) {
        return false;
    }
    if (!ls_path_exists(path)) {
        char **names = NULL;
        size_t count = 0;
        const bool is_empty = ls_dir_list(arena, folder, &names, &count) == LS_OK && count == 0;
        ls_text_append(text, is_empty ? "" : "not the folder of a run\n");
        return !is_empty;
    }
    if (ls_run_file_load(path, NULL, 0, arena, &before) != LS_OK) {
        ls_text_append(text, "its run.yaml cannot be read\n");
        ls_error_clear();
        return true;
    }
    ls_run_file now = *run;
    if (ls_run_file_adopt_begun(&now, &before) != LS_OK) {
        ls_error_clear(); /* they do not go together with those it began with: they differ */
    }
    return ls_run_file_diff(&before, &now, text) > 0;
}

/* Length of the first line. */
static int line_bytes(const char *text)
{
    return (int)strcspn(text, "\n");
}

static void avoid_others(const ls_run_file *run, const char *name, ls_arena *arena, json_t *request)
{
    ls_text text = {0};
    const char *folder = ls_path_join(arena, "runs", name);
    if (holds_another(folder, run, arena, &text)) {
        json_object_set_new(request, "avoid", names_of(name, arena));
        fprintf(stderr, "%s holds another run (%.*s); this job gets a folder of its own\n", folder,
                line_bytes(ls_text_string(&text)), ls_text_string(&text));
    } else if (ls_path_exists(ls_path_join(arena, folder, "run.yaml"))) {
        fprintf(stderr, "the job continues the run in %s\n", folder);
    }
    ls_text_release(&text);
}

/* ---- all ---- */

static ls_option_strings overrides_of(const json_t *request, ls_arena *arena)
{
    const json_t *set = json_object_get(request, "set");
    ls_option_strings list = {.items = ls_arena_new(arena, const char *, json_array_size(set) + 1)};
    for (size_t i = 0; i < json_array_size(set); i++) {
        list.items[list.count++] = json_string_value(json_array_get(set, i));
    }
    return list;
}

/* Whether a sweep changes the files that its runs read, or the model. */
static bool changes_files(const json_t *request)
{
    static const char *const parts[] = {"data.", "tokenizer.", "model."};
    const char *key;
    json_t *values;
    json_object_foreach(json_object_get(request, "set"), key, values)
    {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            if (strncmp(key, parts[i], strlen(parts[i])) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* A program does not see settings of training: jobs of a sweep over them differ only in their
 * variables. */
static void note_unseen_keys(const json_t *request)
{
    const char *key;
    json_t *values;
    if (!json_is_object(json_object_get(request, "set"))) {
        return;
    }
    json_object_foreach(json_object_get(request, "set"), key, values)
    {
        if (strncmp(key, "job.", 4) != 0 && strncmp(key, "parallel.", 9) != 0 && strcmp(key, "name") != 0) {
            char variable[280];
            size_t at = 0;
            for (; key[at] && at + 1 < sizeof variable; at++) {
                variable[at] = isalnum((unsigned char)key[at]) ? (char)toupper((unsigned char)key[at]) : '_';
            }
            variable[at] = '\0';
            fprintf(stderr,
                    "note: %s has no effect on the program in job.command, so the jobs of this sweep are "
                    "alike unless the program reads $LOCKSTEP_SWEEP_%s\n",
                    key, variable);
        }
    }
}

ls_status ls_queue_check_run(json_t *request, ls_arena *arena)
{
    const char *text = ls_queue_string(request, "file"), *name = ls_queue_string(request, "name");
    const ls_option_strings overrides = overrides_of(request, arena);
    const bool is_sweep = json_is_object(json_object_get(request, "set"));
    ls_run_file run;
    if (ls_run_file_parse(text, strlen(text), ls_queue_string(request, "file_name"), overrides.items,
                          (size_t)overrides.count, arena, &run) != LS_OK) {
        ls_error_clear(); /* the daemon reports it */
        return LS_OK;
    }
    if (run.job.command.count > 0) {
        note_unseen_keys(request);
        return LS_OK;
    }
    /* Files that another job makes first do not exist yet. */
    const bool waits = json_array_size(json_object_get(request, "after")) > 0 || run.job.after.count > 0;
    if (!waits && !changes_files(request)) {
        LS_TRY(check_files(&run, arena));
        LS_TRY(check_model(&run));
    }
    name = name ? name : run.name;
    /* A run that began with such settings continues with them. */
    if (!ls_path_exists(ls_path_join(arena, ls_path_join(arena, "runs", name), "run.yaml"))) {
        LS_TRY(ls_run_file_check_effect(&run));
    }
    if (is_sweep) {
        json_object_set_new(request, "avoid", names_of(name, arena));
    } else {
        avoid_others(&run, name, arena, request);
    }
    return LS_OK;
}
