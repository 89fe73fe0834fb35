// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/internal.h"

#include "base/assert.h"
#include "orchestration/api/openapi.h"
#include "orchestration/api/prometheus.h"
#include "orchestration/page/page.h"
#include "telemetry/metrics_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOG_BYTES_MAX = 1024 * 1024,      /* of one answer: who wants more asks again */
    HISTORY_SLICE_BYTES = 256 * 1024, /* read in one go: a few milliseconds */
    HISTORY_S = 30,                   /* for all of it, and for one that others have */
    EVENTS_BYTES_MAX = 1024 * 1024,   /* of the end of events.jsonl */
    PAGE_EVENTS = 60,
    PAGE_ENDED = 12, /* on the page of the queue; the others have their own */
    PAGE_ENDED_ALL = 100,
};

#define NS_PER_S        UINT64_C(1000000000)
#define HISTORY_WAIT_NS UINT64_C(50000000)

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

/* Of its run directory; without one, `next` hears so at once. */
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

/* Of its folder under ours. */
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
    const ls_microhttpd *mhd = exchange->api->mhd;
    struct MHD_Response *response =
        mhd->create_response_from_buffer(bytes, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
    LS_ASSERT(response && "out of memory for a log");
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, next);
    mhd->add_response_header(response, "Content-Type", "text/plain; charset=utf-8");
    mhd->add_response_header(response, "X-Next", text);
    ls_api_exchange_respond(exchange, 200, response);
}

/* The most ranks it can have. */
static uint64_t ranks_of(const ls_api_exchange *exchange)
{
    const json_t *job = exchange->asks[0].answer;
    const json_int_t now = json_integer_value(json_object_get(job, "ranks")),
                     most = json_integer_value(json_object_get(job, "max_ranks"));
    return (uint64_t)(now > most ? now : most);
}

/* One rank writes no log of its own. */
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

/* What was asked for, or its end, of which the last lines are wanted. */
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

/* A job of R ranks has no log of rank R; those of a training run write one. */
static bool is_rank_right(ls_api_exchange *exchange)
{
    const bool trains = json_is_string(json_object_get(exchange->asks[0].answer, "run_dir"));
    const uint64_t rank = number(exchange, "rank", 0), ranks = ranks_of(exchange);
    if (rank > 0 && trains) {
        ls_api_exchange_error(exchange, 404,
                              ls_fail(LS_ERR_NOT_FOUND,
                                      "job %" PRIu64
                                      " trains, and its ranks write one log: ask without a rank",
                                      job_of(exchange)));
        return false;
    }
    if (rank == 0 || rank < ranks) {
        return true;
    }
    ls_api_exchange_error(exchange, 404,
                          ls_fail(LS_ERR_NOT_FOUND,
                                  "job %" PRIu64 " has no rank %" PRIu64 ", allowed is 0 to %" PRIu64,
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
        /* One byte: is it there, and may it be read? */
        read_log_file(exchange, name, false, number(exchange, "from", 0), 1, take_log);
    } else {
        read_log_file(exchange, name, false, number(exchange, "from", 0),
                      (size_t)number(exchange, "bytes", LOG_BYTES_MAX), take_log);
    }
}

/* ---- metrics ---- */

static void read_history(ls_api_exchange *exchange);

static void wait_for_history(void *context)
{
    ls_api_exchange *exchange = context;
    exchange->again = 0;
    read_history(exchange);
}

/* Read on as far as it goes now, or as there was time for. error: why it could not be read; 0: it was. */
static void history_is_read(ls_api_exchange *exchange, int error, bool is_whole);

static void take_history(ls_api_exchange *exchange, const ls_user_file_answer *part)
{
    ls_api_history *history = exchange->history;
    bool has_more = false;
    if (part->error == ENOENT) {
        ls_api_history_clear(history);
    } else if (part->error == 0) {
        has_more = ls_api_history_take(history, part->offset, part->data, part->bytes, HISTORY_SLICE_BYTES);
    }
    if (has_more && ls_env_now_ns(exchange->api->env) < exchange->give_up_ns) {
        read_history(exchange);
    } else {
        history_is_read(exchange, part->error == ENOENT ? 0 : part->error, !has_more);
    }
}

/* Reads a slice; others have their turn between two. What was read stays, for whoever asks for more of it. */
static void read_history(ls_api_exchange *exchange)
{
    ls_api *api = exchange->api;
    const uint64_t now_ns = ls_env_now_ns(api->env);
    exchange->give_up_ns = exchange->give_up_ns ? exchange->give_up_ns : now_ns + HISTORY_S * NS_PER_S;
    if (!exchange->history) {
        exchange->history = ls_api_histories_hold(api->histories, job_of(exchange));
    }
    if (exchange->history) {
        const ls_user_file file = {.name = "metrics.jsonl",
                                   .offset = ls_api_history_from(exchange->history),
                                   .bytes = HISTORY_SLICE_BYTES};
        read_run_file(exchange, file, take_history);
    } else if (now_ns < exchange->give_up_ns) {
        exchange->again = ls_env_timer_set(api->env, HISTORY_WAIT_NS, wait_for_history, exchange);
    } else {
        history_is_read(exchange, EAGAIN, false);
    }
}

static void answer_history(ls_api_exchange *exchange, int error, bool is_whole)
{
    if (error) {
        ls_api_exchange_file_error(exchange, job_of(exchange), "metrics.jsonl", error);
        return;
    }
    json_t *answer = ls_api_history_json(exchange->history, number(exchange, "from_step", 0),
                                         (size_t)number(exchange, "points", 1000));
    json_object_set_new(answer, "job", json_integer((json_int_t)job_of(exchange)));
    json_object_set_new(answer, "is_whole", json_boolean(is_whole));
    ls_api_exchange_json(exchange, 200, answer);
}

static void answer_metrics(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        read_history(exchange);
    }
}

/* ---- events ---- */

/* What the run told, at the end of its events.jsonl. */
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

/* Of the journal and of the run, by time: the newest `limit`. A new object. */
static json_t *all_events(const ls_api_exchange *exchange, size_t limit)
{
    json_t *events = json_array();
    json_array_extend(events, json_object_get(exchange->asks[1].answer, "events"));
    json_array_extend(events, exchange->run_events);
    const size_t count = json_array_size(events);
    json_t **sorted = calloc(count + 1, sizeof *sorted);
    LS_ASSERT(sorted && "out of memory for events");
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

static void ask_file(ls_api_exchange *exchange)
{
    const char *verb = exchange->route->verb;
    if (strcmp(verb, "wait") == 0) {
        ls_api_wait_begin(exchange);
        return;
    }
    ls_api_exchange_ask(exchange, LS_VERB_SHOW, job_argument(exchange));
    if (strcmp(verb, "log") == 0) {
        ls_api_exchange_then(exchange, answer_log);
    } else if (strcmp(verb, "metrics") == 0) {
        ls_api_exchange_then(exchange, answer_metrics);
    } else {
        ls_api_exchange_ask(exchange, LS_VERB_EVENTS, job_argument(exchange));
        ls_api_exchange_then(exchange, answer_events);
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
                                           .ended = exchange->asks[4].answer},
                  ls_env_wall_s(exchange->api->env), &page);
    ls_api_exchange_text(exchange, 200, "text/html; charset=utf-8", &page);
}

/* A job's page: its history, what its run told, its log, one after the other; what can't be read is left out, and said. */
static void note_trouble(ls_api_exchange *exchange, int error)
{
    exchange->trouble = exchange->trouble || error == ENOENT ? exchange->trouble : error;
}

static void finish_job_page(ls_api_exchange *exchange, const ls_user_file_answer *log)
{
    enum { LINES = 30, BYTES = 8 * 1024 };
    note_trouble(exchange, log->error);
    size_t at = log->bytes > 0 ? ls_api_tail_at(log->data, log->bytes, LINES) : 0;
    at = log->bytes - at > BYTES ? log->bytes - BYTES : at;
    json_t *events = all_events(exchange, PAGE_EVENTS);
    json_t *metrics = exchange->history ? ls_api_history_json(exchange->history, 0, 600) : NULL;
    ls_text page = {0};
    ls_page_job(
        &(ls_page_job_answers){.job = exchange->asks[0].answer,
                               .events = events,
                               .why = exchange->asks[2].status == 200 ? exchange->asks[2].answer : NULL,
                               .metrics = metrics,
                               .log = log->bytes > 0 ? log->data + at : NULL,
                               .log_bytes = log->bytes - at,
                               .trouble = exchange->trouble ? strerror(exchange->trouble) : NULL},
        ls_env_wall_s(exchange->api->env), &page);
    json_decref(metrics);
    json_decref(events);
    ls_api_exchange_text(exchange, 200, "text/html; charset=utf-8", &page);
}

static void take_page_events(ls_api_exchange *exchange, const ls_user_file_answer *file)
{
    enum { LOG_BYTES = 64 * 1024 };
    note_trouble(exchange, file->error);
    keep_run_events(exchange, file);
    read_log_file(exchange, "log", true, LOG_BYTES, LOG_BYTES, finish_job_page);
}

static void history_is_read(ls_api_exchange *exchange, int error, bool is_whole)
{
    if (exchange->route->kind == LS_API_FILE) {
        answer_history(exchange, error, is_whole);
        return;
    }
    note_trouble(exchange, error);
    read_run_events(exchange, take_page_events);
}

static void answer_job_page(ls_api_exchange *exchange)
{
    /* Why it waits is asked in any case; of a job that does not wait it may be an error, and is left out. */
    const size_t asked = exchange->ask_count;
    exchange->ask_count = 2;
    const bool is_well = ls_api_exchange_is_well(exchange);
    exchange->ask_count = asked;
    if (is_well) {
        read_history(exchange);
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

static void ask_page(ls_api_exchange *exchange)
{
    if (strcmp(exchange->route->verb, "ended_page") == 0) {
        json_t *wanted = json_pack("{s:b, s:i}", "ended", true, "limit", PAGE_ENDED_ALL);
        json_object_update(wanted, exchange->arguments); /* before */
        ls_api_exchange_ask(exchange, LS_VERB_LIST, wanted);
        ls_api_exchange_then(exchange, answer_ended_page);
        return;
    }
    if (strcmp(exchange->route->verb, "job_page") == 0) {
        ls_api_exchange_ask(exchange, LS_VERB_SHOW, job_argument(exchange));
        ls_api_exchange_ask(exchange, LS_VERB_EVENTS, job_argument(exchange));
        ls_api_exchange_ask(exchange, LS_VERB_WHY, job_argument(exchange));
        ls_api_exchange_then(exchange, answer_job_page);
        return;
    }
    ls_api_exchange_ask(exchange, LS_VERB_STATUS, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_NODES, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_LIST, json_object());
    ls_api_exchange_ask(exchange, LS_VERB_ACCOUNTS, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_LIST, json_pack("{s:b, s:i}", "ended", true, "limit", PAGE_ENDED));
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

static void ask_prometheus(ls_api_exchange *exchange)
{
    ls_api_exchange_ask(exchange, LS_VERB_STATUS, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_NODES, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_ACCOUNTS, NULL);
    ls_api_exchange_ask(exchange, LS_VERB_USAGE, NULL);
    ls_api_exchange_then(exchange, answer_prometheus);
}

void ls_api_answer(ls_api_exchange *exchange)
{
    switch (exchange->route->kind) {
    case LS_API_VERB:
        ask_verb(exchange);
        break;
    case LS_API_FILE:
        ask_file(exchange);
        break;
    case LS_API_STREAM:
        ls_api_streams_open_events(exchange);
        break;
    case LS_API_PAGE:
        ask_page(exchange);
        break;
    case LS_API_METRICS:
        ask_prometheus(exchange);
        break;
    case LS_API_OPENAPI:
        ls_api_exchange_json(exchange, 200, ls_api_openapi());
        break;
    }
}
