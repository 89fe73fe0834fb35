// SPDX-License-Identifier: Apache-2.0
#include "orchestration/folders/folders.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "telemetry/record/metrics_reader.h"
#include "telemetry/store/run_head.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUMMARY_BYTES_MAX = 4 << 20, SCAN_S = 3, LOOK_ALL_S = 10, QUIET_S = 120 };

typedef struct folder_run {
    char *id, *path;
    json_t *files;                /* in `path`: those that hold metrics */
    bool is_file;                 /* one of several runs in its folder */
    double modified_s, summary_s; /* of metrics.jsonl and summary.json, when they were read */
    off_t bytes;
    uint32_t uid, gid; /* of metrics.jsonl */
    ls_run_head head;
    json_t *row; /* as it was answered last; NULL: something has changed since */
} folder_run;

typedef struct known_key {
    char *key;    /* NULL: free */
    size_t index; /* of the run */
} known_key;

struct ls_folders {
    const char *const *paths;
    size_t path_count;
    const char *logs; /* pattern of names; "": none */
    folder_run *runs;
    size_t count, capacity;
    known_key *table;
    size_t table_size, key_count;
    double scanned_s, looked_s, looked_all_s; /* looked: at those that are written to */
};

/* ---- what is known, by name ---- */

/* The place of a key, or the free one where it would go. */
static known_key *place_of(const ls_folders *f, const char *key)
{
    size_t at = (size_t)ls_xxh3(key, strlen(key), 0) & (f->table_size - 1);
    while (f->table[at].key && strcmp(f->table[at].key, key) != 0) {
        at = (at + 1) & (f->table_size - 1);
    }
    return &f->table[at];
}

static void grow_table(ls_folders *f)
{
    known_key *old = f->table;
    const size_t old_size = f->table_size;
    f->table_size = old_size ? 4 * old_size : 256;
    f->table = calloc(f->table_size, sizeof *f->table);
    LS_ASSERT(f->table && "not enough memory for the names of runs");
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].key) {
            *place_of(f, old[i].key) = old[i];
        }
    }
    free(old);
}

/* A key is a kind (i: id, p: path) and a name. */
static void add_key(ls_folders *f, char kind, const char *name, size_t index)
{
    char *key = NULL;
    LS_ASSERT(asprintf(&key, "%c%s", kind, name) > 0);
    *place_of(f, key) = (known_key){.key = key, .index = index};
    f->key_count++;
    if (2 * f->key_count >= f->table_size) {
        grow_table(f);
    }
}

/* NULL: unknown. */
static folder_run *find_run(const ls_folders *f, char kind, const char *name)
{
    char *key = NULL;
    LS_ASSERT(asprintf(&key, "%c%s", kind, name) > 0);
    const known_key *place = place_of(f, key);
    free(key);
    return place->key ? &f->runs[place->index] : NULL;
}

static void forget_row(folder_run *run)
{
    json_decref(run->row);
    run->row = NULL;
}

/* ---- finding runs ---- */

static char *make_id(const ls_folders *f, const char *from)
{
    char name[128], id[160];
    snprintf(name, sizeof name, "%s", from);
    for (char *c = name; *c; c++) {
        const bool good = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                          *c == '_' || *c == '-' || (*c == '.' && c > name);
        *c = (char)(good ? *c : '_');
    }
    snprintf(id, sizeof id, "%s", name[0] ? name : "run");
    for (int number = 2; find_run(f, 'i', id); number++) {
        snprintf(id, sizeof id, "%s-%d", name, number);
    }
    return strdup(id);
}

/* Takes over `files`. name: what its id is made of. is_file: the folder has other runs, too. */
static void add_run(ls_folders *f, const char *path, const char *name, json_t *files, bool is_file)
{
    if (json_array_size(files) == 0) { /* names that are not UTF-8 */
        json_decref(files);
        return;
    }
    char place[PATH_MAX];
    snprintf(place, sizeof place, "%s%s%s", path, is_file ? "/" : "", is_file ? name : "");
    folder_run *known = find_run(f, 'p', place);
    if (known) {
        if (!json_equal(known->files, files)) {
            forget_row(known); /* a program that was started again writes another file */
        }
        json_decref(known->files);
        known->files = files;
        return;
    }
    if (f->count == LS_FOLDERS_RUNS_MAX) {
        json_decref(files);
        return;
    }
    if (f->count == f->capacity) {
        f->capacity = f->capacity ? 2 * f->capacity : 64;
        f->runs = realloc(f->runs, f->capacity * sizeof *f->runs);
    }
    LS_ASSERT(f->runs && "not enough memory for runs");
    f->runs[f->count] =
        (folder_run){.id = make_id(f, name), .path = strdup(path), .files = files, .is_file = is_file};
    LS_ASSERT(f->runs[f->count].id && f->runs[f->count].path && "not enough memory for a run");
    add_key(f, 'i', f->runs[f->count].id, f->count);
    add_key(f, 'p', place, f->count);
    f->count++;
}

/* Files of TensorBoard, in the order in which they were begun: their names tell. */
static json_t *event_files(char **names, size_t count)
{
    json_t *files = json_array();
    for (size_t i = 0; i < count; i++) {
        if (strstr(names[i], ".tfevents.")) {
            json_array_append_new(files, json_string(names[i]));
        }
    }
    return files;
}

/* True: the folder is a run, and what lies below it is its own. */
static bool take_folder(ls_folders *f, const char *path, char **names, size_t count)
{
    json_t *own = json_array(); /* in this order */
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], "logged.jsonl") == 0 || strcmp(names[i], "metrics.jsonl") == 0) {
            json_array_insert_new(own, names[i][0] == 'm' ? 0 : json_array_size(own), json_string(names[i]));
        }
    }
    const bool is_own = json_array_size(own) > 0;
    add_run(f, path, ls_path_basename(path), own, false);
    if (is_own) {
        return true;
    }
    add_run(f, path, ls_path_basename(path), event_files(names, count), false);
    for (size_t i = 0; i < count && f->logs[0]; i++) {
        if (fnmatch(f->logs, names[i], 0) == 0) {
            add_run(f, path, names[i], json_pack("[s]", names[i]), true);
        }
    }
    return false;
}

static void scan(ls_folders *f, ls_arena *arena, const char *path, int depth)
{
    char **names = NULL;
    size_t count = 0;
    if (ls_dir_list(arena, path, &names, &count) != LS_OK) {
        ls_error_clear(); /* a folder that others keep to themselves, or that has gone */
        return;
    }
    if (take_folder(f, path, names, count)) {
        return;
    }
    for (size_t i = 0; i < count && depth > 0; i++) {
        char *below = ls_path_join(arena, path, names[i]);
        if (names[i][0] != '.' && ls_path_is_dir(below)) {
            scan(f, arena, below, depth - 1);
        }
    }
}

/* ---- what a table shows of a run ---- */

static double modified_s(const struct stat *info)
{
    return (double)info->st_mtim.tv_sec + 1e-9 * (double)info->st_mtim.tv_nsec;
}

/* Reads up to `bytes` at the beginning, or at the end; returns how many, zero-terminated. */
static size_t read_piece(const char *path, bool from_end, char *out, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    ssize_t got = 0;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        const off_t at = from_end && info.st_size >= (off_t)bytes ? info.st_size - (off_t)bytes + 1 : 0;
        got = pread(fd, out, bytes - 1, at);
    }
    if (fd >= 0) {
        close(fd);
    }
    out[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* "  steps: 1000" in the section `train` of run.yaml, which is written by this program. */
static double steps_of(const char *path)
{
    char text[16384];
    read_piece(path, false, text, sizeof text);
    const char *section = strstr(text, "\ntrain:");
    const char *steps = section ? strstr(section, "\n  steps: ") : NULL;
    return steps ? strtod(steps + strlen("\n  steps: "), NULL) : NAN;
}

static double started_of(const char *path)
{
    char text[4096];
    ls_line_reader reader = {.text = text};
    reader.bytes = read_piece(path, false, text, sizeof text);
    json_t *event = NULL;
    if (ls_event_reader_next(&reader, &event) != LS_LINE_GOOD) {
        return NAN;
    }
    const double time_s = ls_json_number(event, "time");
    json_decref(event);
    return time_s;
}

/* The newest of its files. */
static const char *metrics_path(const folder_run *run, ls_arena *arena)
{
    const json_t *last = json_array_get(run->files, json_array_size(run->files) - 1);
    return ls_path_join(arena, run->path, json_string_value(last));
}

static void read_head(folder_run *run, ls_arena *arena)
{
    char tail[LS_RUN_TAIL_BYTES + 1];
    json_t *summary = NULL;
    ls_run_head *head = &run->head;
    *head = ls_run_head_none();
    head->steps = steps_of(ls_path_join(arena, run->path, "run.yaml"));
    head->started_s = started_of(ls_path_join(arena, run->path, "events.jsonl"));
    if (ls_json_load(ls_path_join(arena, run->path, "summary.json"), SUMMARY_BYTES_MAX, &summary) != LS_OK) {
        ls_error_clear(); /* the run has not ended */
    }
    ls_run_head_take_summary(head, summary); /* first, because it may be of an earlier start */
    json_decref(summary);
    const char *const tails[] = {metrics_path(run, arena), ls_path_join(arena, run->path, "events.jsonl")};
    for (size_t i = 0; i < 2; i++) {
        const size_t bytes = read_piece(tails[i], true, tail, sizeof tail);
        ls_run_head_take_tail(head, tail, bytes, bytes == LS_RUN_TAIL_BYTES);
    }
}

/* Reads what has changed since the last look. */
static void look_at(folder_run *run, ls_arena *arena)
{
    struct stat metrics = {0}, summary = {0};
    (void)stat(metrics_path(run, arena), &metrics);
    (void)stat(ls_path_join(arena, run->path, "summary.json"), &summary);
    if (modified_s(&metrics) != run->modified_s || modified_s(&summary) != run->summary_s ||
        metrics.st_size != run->bytes) {
        run->modified_s = modified_s(&metrics);
        run->summary_s = modified_s(&summary);
        run->bytes = metrics.st_size;
        run->uid = metrics.st_uid;
        run->gid = metrics.st_gid;
        read_head(run, arena);
        forget_row(run);
    }
}

static void refresh(ls_folders *f)
{
    ls_arena arena = {0};
    const double now_s = ls_clock_wall_s();
    if (fabs(now_s - f->scanned_s) > SCAN_S) {
        for (size_t i = 0; i < f->path_count; i++) {
            scan(f, &arena, f->paths[i], LS_FOLDERS_DEPTH);
        }
        f->scanned_s = now_s;
    }
    const bool is_due = fabs(now_s - f->looked_s) > 1.0;
    const bool all = is_due && fabs(now_s - f->looked_all_s) > LOOK_ALL_S;
    for (size_t i = 0; i < f->count; i++) {
        const folder_run *run = &f->runs[i];
        const bool is_new = run->modified_s == 0.0; /* its owner is not known yet */
        if (all || is_new || (is_due && (run->bytes == 0 || now_s - run->modified_s < QUIET_S))) {
            look_at(&f->runs[i], &arena);
        }
    }
    f->looked_s = is_due ? now_s : f->looked_s;
    f->looked_all_s = all ? now_s : f->looked_all_s;
    ls_arena_release(&arena);
}

/* ---- answers ---- */

/* Written to lately, and after the end that its summary tells of. */
static bool is_running(const folder_run *run)
{
    return run->modified_s > run->summary_s && ls_clock_wall_s() - run->modified_s < QUIET_S;
}

static const char *state_of(const folder_run *run)
{
    const char *status = run->head.status;
    return is_running(run)                        ? "RUNNING"
           : strcmp(status, "finished") == 0      ? "SUCCEEDED"
           : strcmp(status, "stopped_early") == 0 ? "SUCCEEDED"
           : strcmp(status, "failed") == 0        ? "FAILED"
                                                  : "STOPPED";
}

/* Others may hold a row, so it is made anew, never changed. */
static json_t *make_row(const ls_folders *f, size_t index)
{
    const folder_run *run = &f->runs[index];
    const char *name = run->is_file ? run->id : ls_path_basename(run->path);
    json_t *row = json_pack("{s:I, s:s, s:s, s:s, s:I, s:I}", "job", (json_int_t)index + 1, "id", run->id,
                            "state", state_of(run), "run_dir", run->path, "uid", (json_int_t)run->uid, "gid",
                            (json_int_t)run->gid);
    json_t *text = json_string(name);
    json_object_set_new(row, "name", text ? text : json_string(run->id)); /* not UTF-8 */
    json_object_set(row, "files", run->files);
    ls_run_head_to_row(&run->head, row);
    return row;
}

static json_t *row_of(const ls_folders *f, size_t index)
{
    folder_run *run = &f->runs[index];
    const char *state = json_string_value(json_object_get(run->row, "state"));
    if (!state || strcmp(state, state_of(run)) != 0) {
        forget_row(run);
        run->row = make_row(f, index);
    }
    return json_incref(run->row);
}

static json_t *list(const ls_folders *f, const json_t *arguments)
{
    const char *state = json_string_value(json_object_get(arguments, "state"));
    json_t *jobs = json_array();
    for (size_t i = 0; i < f->count; i++) {
        if (!state || strcmp(state, state_of(&f->runs[i])) == 0) {
            json_array_append_new(jobs, row_of(f, i));
        }
    }
    return json_pack("{s:o, s:n}", "jobs", jobs, "before");
}

static json_t *show(const ls_folders *f, const json_t *arguments)
{
    const char *id = json_string_value(json_object_get(arguments, "run"));
    const json_int_t number = json_integer_value(json_object_get(arguments, "job"));
    const folder_run *run = id ? find_run(f, 'i', id) : NULL;
    const size_t index = run ? (size_t)(run - f->runs) : (size_t)number - 1;
    return run || (!id && number >= 1 && index < f->count) ? row_of(f, index) : NULL;
}

static json_t *error_json(const char *text)
{
    return json_pack("{s:s}", "error", text);
}

void ls_folders_call(void *folders, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                     ls_controller_reply reply, void *reply_context)
{
    (void)caller;
    ls_folders *f = folders;
    int status = 200;
    json_t *answer = NULL;
    refresh(f);
    if (verb == LS_VERB_LIST) {
        answer = list(f, arguments);
    } else if (verb == LS_VERB_SHOW) {
        answer = show(f, arguments);
        status = answer ? 200 : 404;
        answer = answer ? answer : error_json("there is no such run: /v1/runs lists all");
    } else if (verb == LS_VERB_EVENTS) {
        answer = json_pack("{s:[]}", "events");
    } else if (verb == LS_VERB_STATUS || verb == LS_VERB_NODES || verb == LS_VERB_ACCOUNTS) {
        answer =
            json_pack("{s:s, s:s, s:[], s:[]}", "version", LS_VERSION, "engine", "view", "nodes", "accounts");
    } else {
        status = 404;
        answer =
            error_json("'lockstep view' shows run directories and has no queue: 'lockstep up' starts one");
    }
    reply(reply_context, status, answer);
    json_decref(answer);
}

/* ---- metrics that are sent ---- */

static bool is_id(const char *id)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    const size_t bytes = strlen(id);
    return bytes > 0 && bytes <= 100 && strspn(id, letters) == bytes && id[0] != '.' && id[0] != '-';
}

ls_status ls_folders_log_folder(void *folders, const char *run, ls_text *folder_out)
{
    ls_folders *f = folders;
    refresh(f);
    const folder_run *known = find_run(f, 'i', run);
    if (known && !known->is_file) {
        ls_text_append(folder_out, known->path);
        return LS_OK;
    }
    if (!is_id(run)) {
        return ls_fail(
            LS_ERR_INVALID,
            "'%.64s' is no name for a run: use up to 100 letters, digits and ._-, and begin with a "
            "letter, a digit or _",
            run);
    }
    ls_text_printf(folder_out, "%s/%s", f->paths[0], run);
    f->scanned_s = 0; /* it is new: look at once */
    return LS_OK;
}

/* ---- life ---- */

ls_status ls_folders_create(const char *const *paths, size_t count, const char *logs,
                            ls_folders **folders_out)
{
    for (size_t i = 0; i < count; i++) {
        if (!ls_path_is_dir(paths[i])) {
            return ls_path_exists(paths[i])
                       ? ls_fail(LS_ERR_INVALID,
                                 "%s is a file: name run directories, or folders that contain some", paths[i])
                       : ls_fail(LS_ERR_NOT_FOUND, "there is no folder %s", paths[i]);
        }
    }
    ls_folders *f = calloc(1, sizeof *f);
    LS_ASSERT(f && "not enough memory for runs");
    *f = (ls_folders){.paths = paths, .path_count = count, .logs = logs};
    grow_table(f);
    refresh(f);
    *folders_out = f;
    return LS_OK;
}

size_t ls_folders_count(const ls_folders *folders)
{
    return folders->count;
}

void ls_folders_destroy(ls_folders *f)
{
    for (size_t i = 0; f && i < f->count; i++) {
        free(f->runs[i].id);
        free(f->runs[i].path);
        json_decref(f->runs[i].files);
        json_decref(f->runs[i].row);
    }
    for (size_t i = 0; f && i < f->table_size; i++) {
        free(f->table[i].key);
    }
    if (f) {
        free(f->table);
        free(f->runs);
    }
    free(f);
}
