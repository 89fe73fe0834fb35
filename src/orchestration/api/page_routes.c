// SPDX-License-Identifier: Apache-2.0
/* Pages of runs (telemetry/report/run_page.h), what these pages refer to, and notes. */
#include "orchestration/api/api_internal.h"

#include "base/assert.h"
#include "base/web.h"
#include "telemetry/record/run_notes.h"
#include "telemetry/report/run_page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RUNS_MAX = 200,             /* compared on one page */
    LISTED_MAX = 200,           /* in its table without script */
    FILE_BYTES = 1024 * 1024,   /* of the end of a file of a run */
    METRICS_BYTES = 128 * 1024, /* of the end of metrics.jsonl: some hundred steps, for speeds */
    TIME_BYTES = 4 * 1024 * 1024,
    /* Files that are parsed whole hold up the loop meanwhile; ours have some KiB. */
    YAML_BYTES = 128 * 1024,
    COMPARED_BYTES = 2 * 1024 * 1024, /* of all files of a comparison */
};

/* A run on the page that is made. */
typedef struct shown_run {
    char *id, *name, *status, *dir;
    ls_stored_run *run; /* held; NULL: its metrics are not used */
    ls_report_files files;
    json_t *row; /* of /v1/runs */
} shown_run;

struct ls_api_page {
    shown_run runs[RUNS_MAX];
    size_t count, at;    /* at: in the list of ids */
    json_t *rows;        /* of a comparison: some rows of /v1/runs; NULL: it is a figure */
    size_t run_count;    /* how many there are */
    size_t bytes_left;   /* for the files to come; those that do not fit count as missing */
    ls_report_file file; /* the next to read */
    unsigned wanted;     /* bits of ls_report_file */
    ls_api_next then;
};

void ls_api_page_destroy(ls_api *api, struct ls_api_page *page)
{
    for (size_t i = 0; page && i < page->count; i++) {
        shown_run *run = &page->runs[i];
        free(run->id);
        free(run->name);
        free(run->status);
        free(run->dir);
        ls_api_runs_drop(api->runs, run->run);
        ls_report_files_release(&run->files);
        json_decref(run->row);
    }
    if (page) {
        json_decref(page->rows);
    }
    free(page);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static char *copy_of(const json_t *object, const char *key)
{
    char *copy = strdup(text_of(object, key));
    LS_ASSERT(copy && "not enough memory for a page");
    return copy;
}

static ls_run_view view_of(const shown_run *run)
{
    return (ls_run_view){.id = run->id,
                         .name = run->name,
                         .status = run->status,
                         .dir = run->dir,
                         .metrics = run->run ? &run->run->data : NULL,
                         .files = &run->files,
                         .row = run->row};
}

static void send(ls_api_exchange *exchange, const char *type, ls_text *text)
{
    ls_api_exchange_text(exchange, 200, type, text);
}

#define HTML "text/html; charset=utf-8"
#define SVG  "image/svg+xml"

/* ---- files of a run, one after the other ---- */

static void read_next(ls_api_exchange *exchange);

static void take_file(ls_api_exchange *exchange, const ls_user_file_answer *answer)
{
    struct ls_api_page *page = exchange->page;
    ls_report_files *files = &page->runs[page->count - 1].files;
    const bool lacks_begin = answer->error == 0 && page->file != LS_REPORT_METRICS &&
                             page->file != LS_REPORT_EVENTS && answer->offset > 0;
    if (answer->error == 0 && !lacks_begin) {
        ls_text_append_bytes(&files->texts[page->file], answer->data, answer->bytes);
        page->bytes_left -= answer->bytes;
    }
    if (answer->error == 0 && page->file == LS_REPORT_METRICS) {
        files->newest_s = answer->modified_s;
    }
    page->file++;
    read_next(exchange);
}

static void read_next(ls_api_exchange *exchange)
{
    struct ls_api_page *page = exchange->page;
    const json_t *job = exchange->asks[0].answer;
    while (page->file < LS_REPORT_FILES && !(page->wanted & 1u << page->file)) {
        page->file++;
    }
    if (page->file == LS_REPORT_FILES) {
        page->then(exchange);
        return;
    }
    const size_t most = page->file == LS_REPORT_METRICS    ? METRICS_BYTES
                        : page->file == LS_REPORT_TIME     ? TIME_BYTES
                        : page->file == LS_REPORT_RUN_YAML ? YAML_BYTES
                                                           : FILE_BYTES,
                 bytes = most < page->bytes_left ? most : page->bytes_left;
    const ls_user_file file = {.folder = page->runs[page->count - 1].dir,
                               .name = ls_report_file_name(page->file),
                               .uid = (uint32_t)json_integer_value(json_object_get(job, "uid")),
                               .gid = (uint32_t)json_integer_value(json_object_get(job, "gid")),
                               .from_end = true,
                               .offset = bytes,
                               .bytes = bytes};
    ls_api_exchange_read(exchange, &file, file.uid, take_file);
}

/* ---- one run ---- */

/* Adds the run that asks[0] shows to the page, and reads its files. */
static void show_run(ls_api_exchange *exchange)
{
    struct ls_api_page *page = exchange->page;
    shown_run *run = &page->runs[page->count++];
    json_t *row = ls_api_run_row(exchange->api, exchange->asks[0].answer);
    *run = (shown_run){.id = copy_of(row, "id"),
                       .name = copy_of(row, "name"),
                       .status = copy_of(row, "status"),
                       .dir = copy_of(exchange->asks[0].answer, "run_dir"),
                       .run = exchange->run,
                       .row = row};
    exchange->run = NULL; /* now the page holds it */
    page->file = 0;
    read_next(exchange);
}

static void read_metrics(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_api_read_run(exchange, show_run);
    }
}

static void show_without_metrics(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        show_run(exchange);
    }
}

/* wanted: files of each run; then: when one run has been read. */
static void begin(ls_api_exchange *exchange, unsigned wanted, ls_api_next then)
{
    exchange->page = calloc(1, sizeof *exchange->page);
    LS_ASSERT(exchange->page && "not enough memory for a page");
    exchange->page->wanted = wanted;
    exchange->page->then = then;
    exchange->page->bytes_left = SIZE_MAX;
}

static void finish_run(ls_api_exchange *exchange)
{
    ls_text text = {0};
    const ls_run_view run = view_of(&exchange->page->runs[0]);
    ls_run_page_append(&run, !exchange->api->calls.has_names, &text);
    send(exchange, HTML, &text);
}

void ls_api_page_run(ls_api_exchange *exchange)
{
    begin(exchange, ~0u, finish_run);
    ls_api_run_ask(exchange, text_of(exchange->arguments, "run"), read_metrics);
}

static void finish_chart(ls_api_exchange *exchange)
{
    ls_text text = {0};
    const ls_run_view run = view_of(&exchange->page->runs[0]);
    ls_run_chart_append(&run, 1, text_of(exchange->arguments, "key"), &text);
    send(exchange, SVG, &text);
}

void ls_api_page_chart(ls_api_exchange *exchange)
{
    begin(exchange, 0, finish_chart);
    ls_api_run_ask(exchange, text_of(exchange->arguments, "run"), read_metrics);
}

static void finish_time(ls_api_exchange *exchange)
{
    ls_text text = {0};
    const ls_run_view run = view_of(&exchange->page->runs[0]);
    ls_run_time_append(&run, &text);
    send(exchange, SVG, &text);
}

void ls_api_page_time(ls_api_exchange *exchange)
{
    begin(exchange, 1u << LS_REPORT_TIME | 1u << LS_REPORT_EVENTS, finish_time);
    ls_api_run_ask(exchange, text_of(exchange->arguments, "run"), show_without_metrics);
}

/* ---- several runs ---- */

static void finish_compare(ls_api_exchange *exchange)
{
    const struct ls_api_page *page = exchange->page;
    ls_run_view *views = calloc(page->count + 1, sizeof *views);
    LS_ASSERT(views && "not enough memory for a page");
    for (size_t i = 0; i < page->count; i++) {
        views[i] = view_of(&page->runs[i]);
    }
    ls_text text = {0};
    if (page->rows) {
        ls_compare_page_append(&(ls_compare_view){.rows = page->rows,
                                                  .run_count = page->run_count,
                                                  .chosen = views,
                                                  .chosen_count = page->count,
                                                  .has_queue = !exchange->api->calls.has_names},
                               &text);
        send(exchange, HTML, &text);
    } else {
        ls_run_chart_append(views, page->count, text_of(exchange->arguments, "key"), &text);
        send(exchange, SVG, &text);
    }
    free(views);
}

/* Reads the next run of the list; after the last one, the page is complete. */
static void compare_next(ls_api_exchange *exchange)
{
    struct ls_api_page *page = exchange->page;
    const char *at = text_of(exchange->arguments, "runs") + page->at;
    const size_t bytes = strcspn(at, ",");
    if (bytes == 0 || page->count == RUNS_MAX) {
        finish_compare(exchange);
        return;
    }
    page->at += bytes + (at[bytes] == ',');
    char *id = strndup(at, bytes);
    LS_ASSERT(id && "not enough memory for a name");
    ls_api_run_ask(exchange, id, page->rows ? show_without_metrics : read_metrics);
    free(id);
}

static void take_all(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        struct ls_api_page *page = exchange->page;
        page->rows = ls_api_run_rows(exchange->api, exchange->asks[0].answer, LISTED_MAX, &page->run_count);
        compare_next(exchange);
    }
}

void ls_api_page_compare(ls_api_exchange *exchange)
{
    begin(exchange, 1u << LS_REPORT_RUN_YAML | 1u << LS_REPORT_SUMMARY, compare_next);
    exchange->page->bytes_left = COMPARED_BYTES;
    ls_api_exchange_ask(exchange, LS_VERB_LIST, json_pack("{s:b}", "all", true));
    ls_api_exchange_then(exchange, take_all);
}

void ls_api_page_compare_chart(ls_api_exchange *exchange)
{
    begin(exchange, 0, compare_next);
    compare_next(exchange);
}

/* ---- files of the program ---- */

void ls_api_page_file(ls_api_exchange *exchange)
{
    const char *type = NULL;
    const ls_embedded_file *file = ls_web_find(exchange->route->path, &type);
    ls_text text = {0};
    LS_ASSERT(file);
    ls_text_append_bytes(&text, file->text, file->bytes);
    send(exchange, type, &text);
}

/* ---- notes ---- */

/* The disk of the run has just answered, so writing will not hold up the loop for long. */
static void write_notes(ls_api_exchange *exchange)
{
    const char *dir = exchange->page->runs[0].dir;
    json_t *notes = json_pack("{s:O, s:O}", "note", json_object_get(exchange->arguments, "note"), "tags",
                              json_object_get(exchange->arguments, "tags"));
    const ls_status status = ls_run_notes_save(dir, notes);
    if (status == LS_OK) {
        json_object_set_new(notes, "run", json_string(exchange->page->runs[0].id));
        ls_api_exchange_json(exchange, 200, notes);
        return;
    }
    json_decref(notes);
    ls_api_exchange_error(exchange, status == LS_ERR_INVALID ? 400 : 500, status);
}

static void check_notes(ls_api_exchange *exchange)
{
    if (!ls_api_exchange_is_well(exchange)) {
        return;
    }
    const json_t *uid = json_object_get(exchange->asks[0].answer, "uid");
    if ((uint32_t)json_integer_value(uid) != (uint32_t)geteuid()) {
        ls_api_exchange_error(exchange, 403,
                              ls_fail(LS_ERR_INVALID,
                                      "the folder of this run belongs to another user than the one who runs "
                                      "this server, which therefore writes nothing into it: its owner can "
                                      "write notes with 'lockstep view'"));
        return;
    }
    show_run(exchange);
}

void ls_api_page_notes(ls_api_exchange *exchange)
{
    begin(exchange, 1u << LS_REPORT_NOTES, write_notes);
    ls_api_run_ask(exchange, text_of(exchange->arguments, "run"), check_notes);
}
