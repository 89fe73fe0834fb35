// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/api_internal.h"

#include "base/assert.h"
#include "orchestration/api/openapi.h"
#include "orchestration/api/prometheus.h"
#include "orchestration/page/page.h"
#include "telemetry/record/metrics_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOG_BYTES_MAX = 1024 * 1024,    /* of one answer; a client asks again for more */
    EVENTS_BYTES_MAX = 1024 * 1024, /* from the end of events.jsonl */
    PAGE_EVENTS = 60,               /* rows on the page of a job */
    PAGE_ENDED = 12,                /* ended jobs on the page of the queue */
    PAGE_ENDED_ALL = 100,           /* on one of their own pages */
};

static uint64_t number(const ls_api_exchange *exchange, const char *key, uint64_t otherwise)
{
    const json_t *value = json_object_get(exchange->arguments, key);
    return json_is_integer(value) ? (uint64_t)json_integer_value(value) : otherwise;
}

static uint64_t job_of(const ls_api_exchange *exchange)
{
    return number(exchange, "job", 0);
}

static json_t *job_argument(const ls_api_exchange *exchange)
{
    return json_pack("{s:I}", "job", (json_int_t)job_of(exchange));
}

/* ---- verbs as they are ---- */

static void pass_answer(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_api_exchange_json(exchange, (unsigned)exchange->asks[0].status,
                             json_incref(exchange->asks[0].answer));
    }
}

static void ask_verb(ls_api_exchange *exchange)
{
    ls_api_exchange_ask(exchange, exchange->route->call, json_incref(exchange->arguments));
    ls_api_exchange_then(exchange, pass_answer);
}

/* ---- files of a job ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static uint32_t owner_of(const ls_api_exchange *exchange)
{
    return (uint32_t)json_integer_value(json_object_get(exchange->asks[0].answer, "uid"));
}

/* Reads a file of the run directory; a job without one answers ENOENT at once. */
static void read_run_file(ls_api_exchange *exchange, ls_user_file file, ls_api_hear_file next)
{
    const json_t *job = exchange->asks[0].answer;
    file.folder = text_of(job, "run_dir");
    file.uid = owner_of(exchange);
    file.gid = (uint32_t)json_integer_value(json_object_get(job, "gid"));
    if (file.folder[0]) {
        ls_api_exchange_read(exchange, &file, owner_of(exchange), next);
    } else {
        next(exchange, &(ls_user_file_answer){.error = ENOENT});
    }
}

/* Reads a log in the job's folder under $LOCKSTEP_HOME. */
static void read_log_file(ls_api_exchange *exchange, const char *name, bool from_end, uint64_t offset,
                          size_t bytes, ls_api_hear_file next)
{
    ls_text folder = {0};
    ls_user_file file = ls_api_log_file(exchange->api, job_of(exchange), name, &folder);
    file.from_end = from_end;
    file.offset = offset;
    file.bytes = bytes;
    ls_api_exchange_read(exchange, &file, owner_of(exchange), next);
    ls_text_release(&folder);
}

/* ---- log ---- */

static void send_log(ls_api_exchange *exchange, const char *data, size_t bytes, uint64_t next)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, next);
    ls_http_exchange_reply(exchange->http, &(ls_http_reply){.code = 200,
                                                            .type = "text/plain; charset=utf-8",
                                                            .data = data,
                                                            .bytes = bytes,
                                                            .header = "X-Next",
                                                            .value = text});
}

/* The most ranks the job can have. */
static uint64_t ranks_of(const ls_api_exchange *exchange)
{
    const json_t *job = exchange->asks[0].answer;
    const json_int_t now = json_integer_value(json_object_get(job, "ranks")),
                     most = json_integer_value(json_object_get(job, "max_ranks"));
    return (uint64_t)(now > most ? now : most);
}

/* The single rank of a job writes `log`; several write log.RANK too. */
static void name_log(const ls_api_exchange *exchange, char name[32])
{
    if (json_object_get(exchange->arguments, "rank") && ranks_of(exchange) > 1) {
        snprintf(name, 32, "log.%" PRIu64, number(exchange, "rank", 0));
    } else {
        snprintf(name, 32, "log");
    }
}

static void follow_log(ls_api_exchange *exchange, uint64_t from)
{
    char name[32];
    name_log(exchange, name);
    ls_api_streams_open_log(exchange, exchange->asks[0].answer, name, from);
}

/* Sends the part that was asked for, or the last lines of it. */
static void take_log(ls_api_exchange *exchange, const ls_user_file_answer *log)
{
    if (log->error && log->error != ENOENT) {
        ls_api_exchange_file_error(exchange, job_of(exchange), "the log", log->error);
        return;
    }
    const uint64_t lines = number(exchange, "tail", 0), asked = number(exchange, "from", 0);
    const size_t at = lines > 0 && log->bytes > 0 ? ls_api_tail_at(log->data, log->bytes, lines) : 0;
    const uint64_t from = (log->error ? asked : log->offset) + at;
    if (json_is_true(json_object_get(exchange->arguments, "follow"))) {
        follow_log(exchange, from);
        return;
    }
    const uint64_t wanted = number(exchange, "bytes", LOG_BYTES_MAX);
    const size_t left = log->bytes - at, bytes = left < wanted ? left : (size_t)wanted;
    send_log(exchange, bytes > 0 ? log->data + at : "", bytes, from + bytes);
}

/* Refuses a rank the job does not have, and any rank of a training run, whose ranks write one
 * log. */
static bool is_rank_right(ls_api_exchange *exchange)
{
    const bool trains = json_is_string(json_object_get(exchange->asks[0].answer, "run_dir"));
    const uint64_t rank = number(exchange, "rank", 0), ranks = ranks_of(exchange);
    if (rank > 0 && trains) {
        ls_api_exchange_error(
            exchange, 404,
            ls_fail(LS_ERR_NOT_FOUND,
                    "job %" PRIu64
                    " is a training run, whose ranks all write to the same log: leave out `rank`",
                    job_of(exchange)));
        return false;
    }
    if (rank == 0 || rank < ranks) {
        return true;
    }
    ls_api_exchange_error(exchange, 404,
                          ls_fail(LS_ERR_NOT_FOUND,
                                  "job %" PRIu64 " has no rank %" PRIu64 "; its ranks are 0 to %" PRIu64,
                                  job_of(exchange), rank, ranks > 0 ? ranks - 1 : 0));
    return false;
}

static void answer_log(ls_api_exchange *exchange)
{
    if (!ls_api_exchange_is_well(exchange) || !is_rank_right(exchange)) {
        return;
    }
    char name[32];
    name_log(exchange, name);
    if (json_object_get(exchange->arguments, "tail")) {
        read_log_file(exchange, name, true, LOG_BYTES_MAX, LOG_BYTES_MAX, take_log);
    } else if (json_is_true(json_object_get(exchange->arguments, "follow"))) {
        /* One byte is enough to see whether the file is there and may be read. */
        read_log_file(exchange, name, false, number(exchange, "from", 0), 1, take_log);
    } else {
        read_log_file(exchange, name, false, number(exchange, "from", 0),
                      (size_t)number(exchange, "bytes", LOG_BYTES_MAX), take_log);
    }
}

/* ---- metrics ---- */

typedef struct job_column {
    const char *name, *metric;
    enum { MEAN, LOW, HIGH } which;
} job_column;

static const job_column job_columns[] = {
    {"loss", "loss", MEAN},           {"loss_min", "loss", LOW},
    {"loss_max", "loss", HIGH},       {"lr", "lr", MEAN},
    {"grad_norm", "grad_norm", MEAN}, {"tokens_per_s", "tokens_per_s", MEAN},
    {"step_s", "step_s", MEAN},       {"mfu", "mfu", MEAN},
};
enum { JOB_COLUMNS = sizeof job_columns / sizeof job_columns[0] };

static json_t *job_cell(const ls_steps_span *span, const job_column *column)
{
    const double value = column->which == LOW    ? span->low
                         : column->which == HIGH ? span->high
                                                 : span->sum / (double)span->count;
    return span->count > 0 ? json_real(value) : json_null();
}

/* One point for each column of steps that has a loss. */
static json_t *job_points(const ls_run_metrics *data, uint64_t from, uint64_t to, size_t points)
{
    const uint64_t width = ls_columns_width(from, to, points);
    const size_t count = ls_columns_count(from, to, width);
    ls_steps_span *spans = calloc(JOB_COLUMNS * count, sizeof *spans);
    LS_ASSERT(spans && "not enough memory for points");
    for (size_t i = 0; i < JOB_COLUMNS; i++) {
        const ls_series *series = ls_run_metrics_find(data, job_columns[i].metric);
        if (series) {
            ls_series_columns(series, from, to, width, spans + i * count);
        }
    }
    json_t *rows = json_array();
    for (size_t at = 0; at < count; at++) {
        if (spans[at].count == 0) {
            continue;
        }
        json_t *row = json_pack("[I]", (json_int_t)spans[at].last_step);
        for (size_t i = 0; i < JOB_COLUMNS; i++) {
            json_array_append_new(row, job_cell(&spans[i * count + at], &job_columns[i]));
        }
        json_array_append_new(rows, row);
    }
    free(spans);
    return rows;
}

/* What the run wrote about its newest step. */
static json_t *newest_step(const ls_run_metrics *data, uint64_t step)
{
    json_t *last = json_pack("{s:I}", "step", (json_int_t)step);
    for (size_t i = 0; i < data->count; i++) {
        const ls_series *series = &data->metrics[i].series;
        if (series->points > 0 && series->last.step == step) {
            json_t *value = isfinite(series->last.value) ? json_real(series->last.value) : json_null();
            json_object_set_new(last, data->metrics[i].name, value);
        }
    }
    return last;
}

static void answer_job_metrics(ls_api_exchange *exchange)
{
    if (exchange->trouble) {
        ls_api_exchange_file_error(exchange, job_of(exchange), "metrics.jsonl", exchange->trouble);
        return;
    }
    const ls_run_metrics *data = &exchange->run->data;
    const ls_series *loss = ls_run_metrics_find(data, "loss");
    const uint64_t from = number(exchange, "from_step", 0) + 1;
    const bool has_steps = loss && loss->points > 0, is_newer = has_steps && loss->last.step >= from;
    json_t *names = json_pack("[s]", "step");
    for (size_t i = 0; i < JOB_COLUMNS; i++) {
        json_array_append_new(names, json_string(job_columns[i].name));
    }
    json_t *points =
        is_newer ? job_points(data, from > ls_series_first_step(loss) ? from : ls_series_first_step(loss),
                              loss->last.step, (size_t)number(exchange, "points", 1000))
                 : json_array();
    ls_api_exchange_json(exchange, 200,
                         json_pack("{s:I, s:o, s:o, s:o, s:b}", "job", (json_int_t)job_of(exchange),
                                   "columns", names, "points", points, "last",
                                   has_steps ? newest_step(data, loss->last.step) : json_null(), "is_whole",
                                   exchange->is_whole));
}

static void answer_metrics(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_api_read_run(exchange, answer_job_metrics);
    }
}

/* ---- events ---- */

/* Keeps the events at the end of the run's events.jsonl. */
static void keep_run_events(ls_api_exchange *exchange, const ls_user_file_answer *file)
{
    exchange->run_events = json_array();
    ls_line_reader reader = {.text = file->data ? file->data : "", .bytes = file->bytes};
    json_t *event = NULL;
    for (ls_line_kind kind;
         (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END && kind != LS_LINE_TORN;) {
        if (kind == LS_LINE_GOOD) {
            json_array_append_new(exchange->run_events, event);
        }
    }
}

static void read_run_events(ls_api_exchange *exchange, ls_api_hear_file next)
{
    const ls_user_file file = {
        .name = "events.jsonl", .from_end = true, .offset = EVENTS_BYTES_MAX, .bytes = EVENTS_BYTES_MAX};
    read_run_file(exchange, file, next);
}

static double time_of(const json_t *event)
{
    return json_number_value(json_object_get(event, "time"));
}

static int by_time(const void *a, const void *b)
{
    const double x = time_of(*(json_t *const *)a), y = time_of(*(json_t *const *)b);
    return (x > y) - (x < y);
}

/* The newest `limit` events of journal and run, ordered by time. A new object. */
static json_t *all_events(const ls_api_exchange *exchange, size_t limit)
{
    json_t *events = json_array();
    json_array_extend(events, json_object_get(exchange->asks[1].answer, "events"));
    json_array_extend(events, exchange->run_events);
    const size_t count = json_array_size(events);
    json_t **sorted = calloc(count + 1, sizeof *sorted);
    LS_ASSERT(sorted && "not enough memory for events");
    for (size_t i = 0; i < count; i++) {
        sorted[i] = json_array_get(events, i);
    }
    qsort(sorted, count, sizeof *sorted, by_time);
    json_t *newest = json_array();
    for (size_t i = count > limit ? count - limit : 0; i < count; i++) {
        json_array_append(newest, sorted[i]);
    }
    free(sorted);
    json_decref(events);
    return json_pack("{s:I, s:o}", "job", (json_int_t)job_of(exchange), "events", newest);
}

static void take_events(ls_api_exchange *exchange, const ls_user_file_answer *file)
{
    if (file->error && file->error != ENOENT) {
        ls_api_exchange_file_error(exchange, job_of(exchange), "events.jsonl", file->error);
        return;
    }
    keep_run_events(exchange, file);
    ls_api_exchange_json(exchange, 200, all_events(exchange, (size_t)number(exchange, "limit", 1000)));
}

static void answer_events(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        read_run_events(exchange, take_events);
    }
}

/* ---- pages ---- */

static void answer_page(ls_api_exchange *exchange)
{
    if (!ls_api_exchange_is_well(exchange)) {
        return;
    }
    ls_text page = {0};
    ls_page_queue(&(ls_page_queue_answers){.status = exchange->asks[0].answer,
                                           .nodes = exchange->asks[1].answer,
                                           .jobs = exchange->asks[2].answer,
                                           .accounts = exchange->asks[3].answer,
                                           .ended = exchange->asks[4].answer,
                                           .usage = exchange->asks[5].answer,
                                           .alerts = exchange->asks[6].answer,
                                           .sweeps = exchange->asks[7].answer},
                  ls_env_wall_s(exchange->api->env), &page);
    ls_api_exchange_text(exchange, 200, "text/html; charset=utf-8", &page);
}

/* A job's page reads log and events one after the other; what can't be read is left out, and the
 * page says so. Events come last: as objects, they may need a hundred times as much as the file. */
static void note_trouble(ls_api_exchange *exchange, int error)
{
    exchange->trouble = exchange->trouble || error == ENOENT ? exchange->trouble : error;
}

static void finish_job_page(ls_api_exchange *exchange, const ls_user_file_answer *file)
{
    enum { LINES = 30, BYTES = 8 * 1024 };
    const ls_text *log = &exchange->text;
    note_trouble(exchange, file->error);
    keep_run_events(exchange, file);
    size_t at = log->bytes > 0 ? ls_api_tail_at(log->data, log->bytes, LINES) : 0;
    at = log->bytes - at > BYTES ? log->bytes - BYTES : at;
    json_t *events = all_events(exchange, PAGE_EVENTS);
    ls_text page = {0};
    ls_page_job(
        &(ls_page_job_answers){.job = exchange->asks[0].answer,
                               .events = events,
                               .why = exchange->asks[2].status == 200 ? exchange->asks[2].answer : NULL,
                               .sweep = exchange->asks[3].status == 200 ? exchange->asks[3].answer : NULL,
                               .log = log->bytes > 0 ? log->data + at : NULL,
                               .log_bytes = log->bytes - at,
                               .trouble = exchange->trouble ? strerror(exchange->trouble) : NULL},
        ls_env_wall_s(exchange->api->env), &page);
    json_decref(events);
    ls_api_exchange_text(exchange, 200, "text/html; charset=utf-8", &page);
}

static void take_page_log(ls_api_exchange *exchange, const ls_user_file_answer *log)
{
    note_trouble(exchange, log->error);
    ls_text_append_bytes(&exchange->text, log->data ? log->data : "", log->bytes);
    read_run_events(exchange, finish_job_page);
}

static void answer_job_page(ls_api_exchange *exchange)
{
    /* `why` fails for a job that does not wait, and the sweep for one that is in none: they are
     * left out then. */
    const size_t asked = exchange->ask_count;
    exchange->ask_count = 2;
    const bool is_well = ls_api_exchange_is_well(exchange);
    exchange->ask_count = asked;
    if (is_well) {
        enum { LOG_BYTES = 64 * 1024 };
        read_log_file(exchange, "log", true, LOG_BYTES, LOG_BYTES, take_page_log);
    }
}

static void answer_ended_page(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_text page = {0};
        ls_page_ended(exchange->asks[0].answer, ls_env_wall_s(exchange->api->env), &page);
        ls_api_exchange_text(exchange, 200, "text/html; charset=utf-8", &page);
    }
}

static void ask_ended_page(ls_api_exchange *exchange)
{
    json_t *wanted = json_pack("{s:b, s:i}", "ended", true, "limit", PAGE_ENDED_ALL);
    json_object_update(wanted, exchange->arguments); /* before */
    ls_api_exchange_ask(exchange, LS_VERB_LIST, wanted);
    ls_api_exchange_then(exchange, answer_ended_page);
}

static void ask_page(ls_api_exchange *exchange)
{
    if (exchange->api->calls.has_names) {
        ls_api_page_compare(exchange); /* there is no queue */
        return;
    }
    ls_api_exchange_ask(exchange, LS_VERB_STATUS, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_NODES, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_LIST, json_object());
    ls_api_exchange_ask(exchange, LS_VERB_ACCOUNTS, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_LIST, json_pack("{s:b, s:i}", "ended", true, "limit", PAGE_ENDED));
    ls_api_exchange_ask(exchange, LS_VERB_USAGE, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_ALERTS, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_SWEEPS, NULL);
    ls_api_exchange_then(exchange, answer_page);
}

/* ---- the rest ---- */

static void answer_prometheus(ls_api_exchange *exchange)
{
    if (!ls_api_exchange_is_well(exchange)) {
        return;
    }
    ls_text text = {0};
    ls_prometheus_append(&(ls_prometheus_answers){.status = exchange->asks[0].answer,
                                                  .nodes = exchange->asks[1].answer,
                                                  .accounts = exchange->asks[2].answer,
                                                  .usage = exchange->asks[3].answer},
                         &text);
    ls_api_counters_append(&exchange->api->counters, &text);
    ls_prometheus_append_process(&text);
    ls_api_exchange_text(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}

static void answer_openapi(ls_api_exchange *exchange)
{
    ls_api_exchange_json(exchange, 200, ls_api_openapi());
}

/* ---- which route does what ---- */

/* How a route that is not one verb is answered: `begin` alone, or the verbs that are asked, each
 * with the job of the request if there is one, and then `then`. */
typedef struct recipe {
    const char *route; /* its name in the table of routes */
    ls_api_next begin;
    ls_verb asks[LS_API_ASKS_MAX];
    size_t ask_count;
    ls_api_next then;
} recipe;

static const recipe recipes[] = {
    {"wait", .begin = ls_api_wait_begin},
    {"stream", .begin = ls_api_streams_open_events},
    {"page", .begin = ask_page},
    {"ended_page", .begin = ask_ended_page},
    {"openapi", .begin = answer_openapi},
    {"token", .begin = ls_api_token_make},
    {"tokens", .begin = ls_api_token_list},
    {"revoke", .begin = ls_api_token_revoke},
    {"runs", .begin = ls_api_run_list},
    {"run", .begin = ls_api_run_show},
    {"run_metrics", .begin = ls_api_run_metrics},
    {"compare", .begin = ls_api_run_compare},
    {"run_log", .begin = ls_api_run_log},
    {"notes", .begin = ls_api_page_notes},
    {"run_page", .begin = ls_api_page_run},
    {"run_chart", .begin = ls_api_page_chart},
    {"run_time", .begin = ls_api_page_time},
    {"compare_page", .begin = ls_api_page_compare},
    {"compare_chart", .begin = ls_api_page_compare_chart},
    {"models_page", .begin = ls_api_models},
    {"lineage", .begin = ls_api_models},
    {"style", .begin = ls_api_page_file},
    {"script", .begin = ls_api_page_file},
    {"log", NULL, {LS_VERB_SHOW}, 1, answer_log},
    {"metrics", NULL, {LS_VERB_SHOW}, 1, answer_metrics},
    {"events", NULL, {LS_VERB_SHOW, LS_VERB_EVENTS}, 2, answer_events},
    {"job_page", NULL, {LS_VERB_SHOW, LS_VERB_EVENTS, LS_VERB_WHY, LS_VERB_SWEEP_OF}, 4, answer_job_page},
    {"prometheus",
     NULL,
     {LS_VERB_STATUS, LS_VERB_NODES, LS_VERB_ACCOUNTS, LS_VERB_USAGE},
     4,
     answer_prometheus},
};

static void follow_recipe(ls_api_exchange *exchange, const recipe *r)
{
    if (r->begin) {
        r->begin(exchange);
        return;
    }
    const bool has_job = json_object_get(exchange->arguments, "job") != NULL;
    for (size_t i = 0; i < r->ask_count; i++) {
        ls_api_exchange_ask(exchange, r->asks[i], has_job ? job_argument(exchange) : NULL);
    }
    ls_api_exchange_then(exchange, r->then);
}

void ls_api_answer(ls_api_exchange *exchange)
{
    if (exchange->route->kind == LS_API_TOKEN && !exchange->api->tokens) {
        ls_api_exchange_error(exchange, 404,
                              ls_fail(LS_ERR_NOT_FOUND,
                                      "'lockstep view' has no access tokens: it answers only "
                                      "processes of its own user"));
        return;
    }
    if (exchange->route->kind == LS_API_VERB) {
        ask_verb(exchange);
        return;
    }
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        if (strcmp(recipes[i].route, exchange->route->verb) == 0) {
            follow_recipe(exchange, &recipes[i]);
            return;
        }
    }
    LS_ASSERT(!"a route that nothing answers");
}
