// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/internal.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"
#include "orchestration/api/openapi.h"
#include "orchestration/api/prometheus.h"
#include "orchestration/page/page.h"
#include "telemetry/metrics_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOG_BYTES_MAX = 1024 * 1024,      /* of one answer: who wants more asks again */
    HISTORY_SLICE_BYTES = 256 * 1024, /* read in one go: a few milliseconds */
    EVENTS_BYTES_MAX = 1024 * 1024,   /* of the end of events.jsonl */
    PAGE_EVENTS = 60,
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

/* A file of its run directory, or of its folder under ours. -ENOENT when it has none. */
static int open_file(const ls_api_exchange *exchange, const char *name, bool of_run, uint64_t *bytes_out)
{
    const json_t *job = exchange->asks[0].answer;
    const uint32_t uid = (uint32_t)json_integer_value(json_object_get(job, "uid"));
    if (of_run) {
        const char *run_dir = text_of(job, "run_dir");
        return run_dir[0] ? ls_api_open_job_file(run_dir, name, uid, bytes_out) : -ENOENT;
    }
    ls_text folder = {0};
    ls_api_job_folder(exchange->api, job_of(exchange), &folder);
    const int fd = ls_api_open_job_file(ls_text_string(&folder), name, uid, bytes_out);
    ls_text_release(&folder);
    return fd;
}

/* ---- log ---- */

static void send_log(ls_api_exchange *exchange, int fd, uint64_t from, uint64_t bytes)
{
    const uint64_t wanted = number(exchange, "bytes", LOG_BYTES_MAX);
    const uint64_t left = bytes > from ? bytes - from : 0;
    const size_t size = (size_t)(left < wanted ? left : wanted);
    char *data = malloc(size + 1);
    LS_ASSERT(data && "out of memory for a log");
    const ssize_t got = fd >= 0 && size > 0 ? pread(fd, data, size, (off_t)from) : 0;
    const ls_microhttpd *mhd = exchange->api->mhd;
    struct MHD_Response *response =
        mhd->create_response_from_buffer(got > 0 ? (size_t)got : 0, data, MHD_RESPMEM_MUST_FREE);
    LS_ASSERT(response);
    char next[32];
    snprintf(next, sizeof next, "%" PRIu64, from + (uint64_t)(got > 0 ? got : 0));
    mhd->add_response_header(response, "Content-Type", "text/plain; charset=utf-8");
    mhd->add_response_header(response, "X-Next", next);
    ls_api_exchange_respond(exchange, 200, response);
}

static void answer_log(ls_api_exchange *exchange)
{
    if (!ls_api_exchange_is_well(exchange)) {
        return;
    }
    char name[32] = "log";
    if (json_object_get(exchange->arguments, "rank")) {
        snprintf(name, sizeof name, "log.%" PRIu64, number(exchange, "rank", 0));
    }
    uint64_t bytes = 0;
    const int fd = open_file(exchange, name, false, &bytes);
    if (fd < 0 && fd != -ENOENT) {
        const ls_status status =
            ls_fail_errno(-fd, "the log of job %" PRIu64 " can't be read", job_of(exchange));
        ls_api_exchange_error(exchange, 500, status);
        return;
    }
    uint64_t from = number(exchange, "from", 0);
    if (fd >= 0 && json_object_get(exchange->arguments, "tail")) {
        from = ls_api_tail_offset(fd, bytes, number(exchange, "tail", 1));
    }
    if (json_is_true(json_object_get(exchange->arguments, "follow"))) {
        ls_api_streams_open_log(exchange, exchange->asks[0].answer, name, fd >= 0 ? fd : -1, from);
        return;
    }
    send_log(exchange, fd, from, bytes);
    if (fd >= 0) {
        close(fd);
    }
}

/* ---- metrics ---- */

static void read_history(void *context)
{
    ls_api_exchange *exchange = context;
    exchange->slice = 0;
    uint64_t bytes = 0;
    bool has_more = false;
    const int fd = open_file(exchange, "metrics.jsonl", true, &bytes);
    const ls_api_history empty = {0};
    const ls_api_history *history = &empty;
    if (fd >= 0) {
        history = ls_api_histories_read(exchange->api->histories, job_of(exchange), fd, HISTORY_SLICE_BYTES,
                                        &has_more);
        close(fd);
    }
    if (has_more) { /* others have their turn between two slices */
        exchange->slice = ls_env_timer_set(exchange->api->env, 0, read_history, exchange);
        return;
    }
    json_t *answer = ls_api_history_json(history, number(exchange, "from_step", 0),
                                         (size_t)number(exchange, "points", 1000));
    json_object_set_new(answer, "job", json_integer((json_int_t)job_of(exchange)));
    ls_api_exchange_json(exchange, 200, answer);
}

static void answer_metrics(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        read_history(exchange);
    }
}

/* ---- events ---- */

/* What the run told, from the end of its events.jsonl. */
static void append_run_events(const ls_api_exchange *exchange, json_t *events)
{
    uint64_t bytes = 0;
    const int fd = open_file(exchange, "events.jsonl", true, &bytes);
    if (fd < 0) {
        return;
    }
    const size_t size = (size_t)(bytes < EVENTS_BYTES_MAX ? bytes : EVENTS_BYTES_MAX);
    char *text = malloc(size + 1);
    LS_ASSERT(text && "out of memory for events");
    const ssize_t got = pread(fd, text, size, (off_t)(bytes - size));
    ls_line_reader reader = {.text = text, .bytes = got > 0 ? (size_t)got : 0};
    json_t *event = NULL;
    for (ls_line_kind kind;
         (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END && kind != LS_LINE_TORN;) {
        if (kind == LS_LINE_GOOD) {
            json_array_append_new(events, event);
        }
    }
    free(text);
    close(fd);
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
    append_run_events(exchange, events);
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

static void answer_events(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_api_exchange_json(exchange, 200, all_events(exchange, (size_t)number(exchange, "limit", 1000)));
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

/* The end of the log, for the page: bytes read into `text`; 0 when there is none. */
static size_t read_log_tail(const ls_api_exchange *exchange, char *text, size_t bytes_max)
{
    enum { LINES = 30 };
    uint64_t bytes = 0;
    const int fd = open_file(exchange, "log", false, &bytes);
    if (fd < 0) {
        return 0;
    }
    uint64_t from = ls_api_tail_offset(fd, bytes, LINES);
    from = bytes - from > bytes_max ? bytes - bytes_max : from;
    const ssize_t got = pread(fd, text, (size_t)(bytes - from), (off_t)from);
    close(fd);
    return got > 0 ? (size_t)got : 0;
}

static void finish_job_page(void *context)
{
    ls_api_exchange *exchange = context;
    exchange->slice = 0;
    uint64_t bytes = 0;
    bool has_more = false;
    json_t *metrics = NULL;
    const int fd = open_file(exchange, "metrics.jsonl", true, &bytes);
    if (fd >= 0) {
        const ls_api_history *history = ls_api_histories_read(exchange->api->histories, job_of(exchange), fd,
                                                              HISTORY_SLICE_BYTES, &has_more);
        metrics = has_more ? NULL : ls_api_history_json(history, 0, 600);
        close(fd);
    }
    if (has_more) {
        exchange->slice = ls_env_timer_set(exchange->api->env, 0, finish_job_page, exchange);
        return;
    }
    char log[8 * 1024];
    const size_t log_bytes = read_log_tail(exchange, log, sizeof log);
    json_t *events = all_events(exchange, PAGE_EVENTS);
    ls_text page = {0};
    ls_page_job(
        &(ls_page_job_answers){.job = exchange->asks[0].answer,
                               .events = events,
                               .why = exchange->asks[2].status == 200 ? exchange->asks[2].answer : NULL,
                               .metrics = metrics,
                               .log = log_bytes > 0 ? log : NULL,
                               .log_bytes = log_bytes},
        ls_env_wall_s(exchange->api->env), &page);
    json_decref(metrics);
    json_decref(events);
    ls_api_exchange_text(exchange, 200, "text/html; charset=utf-8", &page);
}

static void answer_job_page(ls_api_exchange *exchange)
{
    /* Why it waits is asked in any case; of a job that does not wait it may be an error, and is left out. */
    const size_t asked = exchange->ask_count;
    exchange->ask_count = 2;
    const bool is_well = ls_api_exchange_is_well(exchange);
    exchange->ask_count = asked;
    if (is_well) {
        finish_job_page(exchange);
    }
}

static void ask_page(ls_api_exchange *exchange)
{
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
    ls_api_exchange_ask(exchange, LS_VERB_LIST, json_pack("{s:b, s:i}", "all", true, "limit", 200));
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
