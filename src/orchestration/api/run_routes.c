// SPDX-License-Identifier: Apache-2.0
/* /v1/runs, /v1/runs/ID, /v1/runs/ID/metrics, /v1/compare: runs as the page shows them. */
#include "orchestration/api/api_internal.h"

#include "base/assert.h"
#include "telemetry/record/metrics_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SLICE_BYTES = 512 * 1024, /* of one read: about two milliseconds of the loop */
    READ_S = 20,              /* to read all of a run's metrics, and to wait for a free place */
    COMPARED_MAX = 200,
    PART_BYTES = 1024 * 1024, /* of a summary, a run file, and the end of the events */
    EVENTS_MAX = 1000,
};

#define NS_PER_S UINT64_C(1000000000)
#define WAIT_NS  UINT64_C(20000000)
#define LIST_NS  UINT64_C(300000000) /* for the newest numbers of runs */

static const json_t *shown_job(const ls_api_exchange *exchange)
{
    return exchange->asks[0].answer;
}

static uint64_t number_of(const json_t *object, const char *key, uint64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (uint64_t)json_integer_value(value) : otherwise;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- reading a run's metrics ---- */

/* The file that is read, and how far; false: there are no more. */
static bool find_feed(const ls_api_exchange *exchange, ls_api_run_file *file_out)
{
    if (!ls_api_run_file_at(exchange->api, shown_job(exchange), exchange->named, exchange->file_at,
                            file_out)) {
        return false;
    }
    file_out->file.offset = ls_feed_from(ls_stored_run_feed(exchange->run, file_out->key));
    file_out->file.bytes = SLICE_BYTES;
    return true;
}

static void read_slice(ls_api_exchange *exchange);

static void finish_reading(ls_api_exchange *exchange, int error, bool is_whole)
{
    const ls_api_next then = exchange->then_run;
    exchange->trouble = error;
    exchange->is_whole = is_whole;
    then(exchange);
}

/* True: read on in this file. */
static bool take_part(ls_api_exchange *exchange, const ls_api_run_file *file, const ls_user_file_answer *part)
{
    ls_stored_run *run = exchange->run;
    if (part->offset != file->file.offset) {
        return true; /* another request has read on */
    }
    const ls_feed_next next = ls_feed_take(ls_stored_run_feed(run, file->key), &run->data, part->offset,
                                           part->data ? part->data : "", part->bytes, SLICE_BYTES);
    if (next == LS_FEED_REWOUND) {
        ls_stored_run_clear(run); /* cut back by a resume */
        exchange->file_at = 0;
    }
    return next != LS_FEED_END;
}

static void take_slice(ls_api_exchange *exchange, const ls_user_file_answer *part)
{
    ls_api_run_file file = {0};
    const bool has_file = find_feed(exchange, &file);
    LS_ASSERT(has_file);
    const bool has_more = part->error == 0 && take_part(exchange, &file, part);
    const bool has_time = ls_env_now_ns(exchange->api->env) < exchange->give_up_ns;
    const bool may_go_on = ls_api_runs_have_room(exchange->api->runs, exchange->run) && has_time;
    if (part->error == ENOENT && file.file.offset > 0) {
        ls_stored_run_clear(exchange->run); /* the run was started over */
    }
    exchange->file_at += !has_more;
    ls_stored_run_keep(exchange->run);
    /* A pattern may match links, and files of others: they are passed over. */
    const bool is_left_out = part->error == ENOENT || (part->error == EPERM && file.key[0] == '/');
    if (part->error && !is_left_out) {
        finish_reading(exchange, part->error, false);
    } else if (may_go_on && find_feed(exchange, &file)) {
        read_slice(exchange);
    } else {
        finish_reading(exchange, 0, may_go_on);
    }
    ls_text_release(&file.folder);
}

static void try_again(void *context)
{
    ls_api_exchange *exchange = context;
    exchange->again = 0;
    read_slice(exchange);
}

/* Reads one slice, so that other requests have their turn between two. */
static void read_slice(ls_api_exchange *exchange)
{
    ls_api *api = exchange->api;
    const uint64_t now_ns = ls_env_now_ns(api->env);
    if (!exchange->run) {
        const json_t *job = shown_job(exchange);
        exchange->run = ls_api_runs_hold(api->runs, number_of(job, "job", 0),
                                         (uint32_t)number_of(job, "uid", 0), text_of(job, "run_dir"));
    }
    if (exchange->run) {
        ls_api_run_file file = {0};
        const bool has_file = find_feed(exchange, &file);
        LS_ASSERT(has_file);
        ls_api_exchange_read(exchange, &file.file, file.owner, take_slice);
        ls_text_release(&file.folder);
    } else if (now_ns < exchange->give_up_ns) {
        exchange->again = ls_env_timer_set(api->env, WAIT_NS, try_again, exchange);
    } else {
        finish_reading(exchange, EAGAIN, false);
    }
}

static void read_named(ls_api_exchange *exchange)
{
    if (exchange->trouble) {
        finish_reading(exchange, exchange->trouble, false);
    } else {
        read_slice(exchange);
    }
}

void ls_api_read_run(ls_api_exchange *exchange, ls_api_next then)
{
    exchange->then_run = then;
    exchange->give_up_ns = ls_env_now_ns(exchange->api->env) + READ_S * NS_PER_S;
    ls_api_runs_drop(exchange->api->runs, exchange->run);
    exchange->run = NULL;
    ls_api_run_files_name(exchange, read_named);
}

/* ---- a run in a few numbers ---- */

static json_t *member_or_null(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value ? json_incref(value) : json_null();
}

static double cost_of(const json_t *job)
{
    const json_t *cost = json_object_get(job, "cost"); /* of the queue; usage: of one job */
    cost = cost ? cost : json_object_get(json_object_get(job, "usage"), "cost");
    return json_is_number(cost) ? json_number_value(cost) : NAN;
}

/* What is known of a run: all of its metrics if they were read, else the newest numbers. */
static ls_run_head head_of(const ls_api *api, const json_t *job)
{
    ls_run_head head = ls_run_head_none();
    const ls_stored_run *run = ls_api_runs_find(api->runs, number_of(job, "job", 0));
    if (api->home && (text_of(job, "run_dir")[0] || json_object_get(job, "uid"))) {
        const ls_run_head *known = ls_api_heads_find(api->heads, job);
        head = known ? *known : head;
    }
    if (run && run->data.count > 0) {
        const double val_loss = ls_run_metrics_last(&run->data, "val_loss");
        head.step = (double)run->data.last_step;
        head.loss = ls_run_metrics_last(&run->data, "loss");
        head.val_loss = isfinite(val_loss) ? val_loss : head.val_loss;
        head.tokens_per_s = ls_run_metrics_last(&run->data, "tokens_per_s");
    }
    const double cost = cost_of(job);
    head.cost_usd = isfinite(cost) ? cost : head.cost_usd;
    return head;
}

json_t *ls_api_run_row(const ls_api *api, const json_t *job)
{
    static const char *const taken[] = {"step",         "steps",   "loss",    "val_loss",
                                        "tokens_per_s", "started", "cost_usd"};
    char id[32];
    snprintf(id, sizeof id, "%" PRIu64, number_of(job, "job", 0));
    json_t *row = json_pack("{s:s, s:O?, s:s}", "id", text_of(job, "id")[0] ? text_of(job, "id") : id, "name",
                            json_object_get(job, "name"), "status", text_of(job, "state"));
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        json_object_set_new(row, taken[i], member_or_null(job, taken[i]));
    }
    const ls_run_head head = head_of(api, job);
    ls_run_head_to_row(&head, row);
    return row;
}

/* A training run, or a program with metrics; of other users' jobs, no uid is shown. */
static bool is_run(const ls_api *api, const json_t *job)
{
    if (json_array_size(json_object_get(job, "metrics")) > 0) {
        return true;
    }
    if (!json_object_get(job, "uid") || text_of(job, "run_dir")[0] || !api->home) {
        return text_of(job, "run_dir")[0] != '\0';
    }
    ls_text folder = {0};
    char name[32];
    const ls_user_file file = ls_api_logged_file(api, number_of(job, "job", 0), &folder, name);
    ls_text_printf(&folder, "/%s", file.name);
    const bool is_there = access(ls_text_string(&folder), F_OK) == 0;
    ls_text_release(&folder);
    return is_there;
}

json_t *ls_api_run_rows(const ls_api *api, const json_t *list, size_t most, size_t *count_out)
{
    json_t *rows = json_array();
    const json_t *jobs = json_object_get(list, "jobs");
    *count_out = 0;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        if (is_run(api, job) && (*count_out)++ < most) {
            json_array_append_new(rows, ls_api_run_row(api, job));
        }
    }
    return rows;
}

static void answer_runs(ls_api_exchange *exchange);

static void list_again(void *context)
{
    ls_api_exchange *exchange = context;
    exchange->again = 0;
    answer_runs(exchange);
}

/* One row after the other: ten thousand of them as one object would take longer to make than to
 * send. */
static void append_rows(const ls_api *api, const json_t *list, ls_text *text)
{
    const json_t *jobs = json_object_get(list, "jobs");
    const char *before = "{\"runs\":[";
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        if (is_run(api, json_array_get(jobs, i))) {
            json_t *row = ls_api_run_row(api, json_array_get(jobs, i));
            char *dump = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
            ls_text_append(text, before);
            ls_text_append(text, dump ? dump : "{}");
            free(dump);
            json_decref(row);
            before = ",";
        }
    }
    ls_text_append(text, before[0] == ',' ? "]}\n" : "{\"runs\":[]}\n");
}

/* The newest numbers of runs are waited for, but not for long. */
static void answer_runs(ls_api_exchange *exchange)
{
    ls_api *api = exchange->api;
    if (!ls_api_exchange_is_well(exchange)) {
        return;
    }
    ls_text text = {0};
    append_rows(api, shown_job(exchange), &text);
    if (ls_api_heads_wait(api->heads) && ls_env_now_ns(api->env) < exchange->give_up_ns) {
        ls_text_release(&text);
        exchange->again = ls_env_timer_set(api->env, WAIT_NS, list_again, exchange);
    } else {
        ls_api_exchange_text(exchange, 200, "application/json", &text);
    }
}

void ls_api_run_list(ls_api_exchange *exchange)
{
    exchange->give_up_ns = ls_env_now_ns(exchange->api->env) + LIST_NS;
    ls_api_exchange_ask(exchange, LS_VERB_LIST, json_pack("{s:b}", "all", true));
    ls_api_exchange_then(exchange, answer_runs);
}

/* ---- one run ---- */

void ls_api_run_ask(ls_api_exchange *exchange, const char *id, ls_api_next then)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(id, &end, 10);
    const bool is_number = errno == 0 && id[0] >= '0' && id[0] <= '9' && *end == '\0' && number < INT64_MAX;
    if (!is_number && !exchange->api->calls.has_names) {
        ls_api_exchange_error(exchange, 404,
                              ls_fail(LS_ERR_NOT_FOUND,
                                      "there is no run '%.64s': the id of a run is the number of its job, as "
                                      "/v1/runs lists them",
                                      id));
        return;
    }
    ls_api_exchange_clear(exchange);
    ls_api_exchange_ask(exchange, LS_VERB_SHOW,
                        exchange->api->calls.has_names ? json_pack("{s:s}", "run", id)
                                                       : json_pack("{s:I}", "job", (json_int_t)number));
    ls_api_exchange_then(exchange, then);
}

/* Answers with an error if the run could not be read. */
static bool is_read(ls_api_exchange *exchange)
{
    if (exchange->trouble) {
        ls_api_exchange_file_error(exchange, number_of(shown_job(exchange), "job", 0),
                                   "a file with the metrics", exchange->trouble);
        return false;
    }
    return true;
}

/* "1,2,3" */
static size_t count_ids(const char *ids)
{
    size_t count = 1;
    for (; *ids; ids++) {
        count += *ids == ',';
    }
    return count;
}

static ls_metrics_question question_of(const ls_api_exchange *exchange, size_t points)
{
    const char *keys = text_of(exchange->arguments, "keys");
    return (ls_metrics_question){.from = number_of(exchange->arguments, "from", 0),
                                 .to = number_of(exchange->arguments, "to", UINT64_MAX),
                                 .points = (size_t)number_of(exchange->arguments, "points", points),
                                 .keys = keys[0] ? keys : NULL,
                                 .runs = count_ids(text_of(exchange->arguments, "runs"))};
}

/* {"run": ..., "keys": {...}, ... */
static void append_head(const ls_api_exchange *exchange, ls_text *text)
{
    const ls_run_metrics *data = &exchange->run->data;
    json_t *row = ls_api_run_row(exchange->api, shown_job(exchange));
    char *id = json_dumps(json_object_get(row, "id"), JSON_ENCODE_ANY);
    ls_text_printf(text,
                   "{\"run\":%s,\"is_whole\":%s,\"refused\":%" PRIu64 ",\"cut\":%" PRIu64 ",\"keys\":", id,
                   exchange->is_whole ? "true" : "false", data->refused, data->cut);
    free(id);
    json_decref(row);
}

static void answer_run_metrics(ls_api_exchange *exchange)
{
    if (!is_read(exchange)) {
        return;
    }
    const ls_metrics_question question = question_of(exchange, 1000);
    ls_text text = {0};
    append_head(exchange, &text);
    ls_run_metrics_append_metrics(&exchange->run->data, &question, &text);
    ls_text_append(&text, "}\n");
    ls_api_exchange_text(exchange, 200, "application/json", &text);
}

static void read_then_answer_metrics(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_api_read_run(exchange, answer_run_metrics);
    }
}

void ls_api_run_metrics(ls_api_exchange *exchange)
{
    ls_api_run_ask(exchange, text_of(exchange->arguments, "run"), read_then_answer_metrics);
}

/* Files of a run that are shown as they are; what can't be read is null. */
static const struct {
    const char *file, *key;
} parts[] = {{"summary.json", "summary"}, {"run.yaml", "config"}, {"events.jsonl", "events"}};

static void read_part(ls_api_exchange *exchange);

/* The newest events, as far as the end of the file has them. */
static json_t *events_of(const char *text, size_t bytes)
{
    json_t *events = json_array(), *event = NULL;
    ls_line_reader reader = {.text = text, .bytes = bytes};
    for (ls_line_kind kind; (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD) {
            json_array_append_new(events, event);
        }
        if (json_array_size(events) > EVENTS_MAX) {
            json_array_remove(events, 0);
        }
    }
    return events;
}

/* As text: files of a megabyte may need a hundred times as much as objects, and the next one may
 * take its time. */
static void append_part(ls_api_exchange *exchange, json_t *part)
{
    char *dump = json_dumps(part, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    ls_text_printf(&exchange->text, ",\"%s\":%s", parts[exchange->file_at++].key, dump ? dump : "null");
    free(dump);
    json_decref(part);
}

static void take_run_part(ls_api_exchange *exchange, const ls_user_file_answer *file)
{
    const size_t at = exchange->file_at;
    json_t *part = NULL;
    if (file->error == 0 && file->data) {
        part = at == 0   ? json_loadb(file->data, file->bytes, 0, NULL)
               : at == 1 ? json_stringn(file->data, file->bytes)
                         : events_of(file->data, file->bytes);
    }
    append_part(exchange, part);
    read_part(exchange);
}

static void read_part(ls_api_exchange *exchange)
{
    const json_t *job = shown_job(exchange);
    if (exchange->file_at == sizeof parts / sizeof parts[0]) {
        ls_text_append(&exchange->text, "}\n");
        ls_api_exchange_text(exchange, 200, "application/json", &exchange->text);
        return;
    }
    const ls_user_file file = {.folder = text_of(job, "run_dir"),
                               .name = parts[exchange->file_at].file,
                               .uid = (uint32_t)number_of(job, "uid", 0),
                               .gid = (uint32_t)number_of(job, "gid", 0),
                               .from_end = exchange->file_at == 2,
                               .offset = exchange->file_at == 2 ? PART_BYTES : 0,
                               .bytes = PART_BYTES};
    ls_api_exchange_read(exchange, &file, file.uid, take_run_part);
}

static void answer_run(ls_api_exchange *exchange)
{
    if (!is_read(exchange)) {
        return;
    }
    json_t *row = ls_api_run_row(exchange->api, shown_job(exchange));
    ls_text names = {0};
    ls_run_metrics_append_names(&exchange->run->data, &names);
    json_object_set_new(row, "metrics", json_loads(ls_text_string(&names), 0, NULL));
    ls_text_release(&names);
    json_object_set_new(row, "run_dir", json_string(text_of(shown_job(exchange), "run_dir")));
    char *dump = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
    LS_ASSERT(dump && "not enough memory for a run");
    ls_text_append_bytes(&exchange->text, dump, strlen(dump) - 1); /* more members follow */
    free(dump);
    json_decref(row);
    exchange->file_at = 0;
    read_part(exchange);
}

static void read_then_answer_run(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_api_read_run(exchange, answer_run);
    }
}

void ls_api_run_show(ls_api_exchange *exchange)
{
    ls_api_run_ask(exchange, text_of(exchange->arguments, "run"), read_then_answer_run);
}

/* ---- several runs ---- */

static void compare_next(ls_api_exchange *exchange);

static void answer_compared(ls_api_exchange *exchange)
{
    if (!is_read(exchange)) {
        return;
    }
    const ls_metrics_question question = question_of(exchange, 500);
    ls_text *text = &exchange->text;
    ls_text_append(text, exchange->compared_count > 1 ? "," : "");
    append_head(exchange, text);
    ls_run_metrics_append_metrics(&exchange->run->data, &question, text);
    ls_text_append(text, "}");
    compare_next(exchange);
}

static void read_compared(ls_api_exchange *exchange)
{
    if (ls_api_exchange_is_well(exchange)) {
        ls_api_read_run(exchange, answer_compared);
    }
}

/* The next id of the list; when there is none, the answer is complete. */
static void compare_next(ls_api_exchange *exchange)
{
    const char *at = text_of(exchange->arguments, "runs") + exchange->compared;
    const size_t bytes = strcspn(at, ",");
    if (bytes == 0) {
        ls_text_append(&exchange->text, "]}\n");
        ls_api_exchange_text(exchange, 200, "application/json", &exchange->text);
        return;
    }
    if (++exchange->compared_count > COMPARED_MAX) {
        ls_api_exchange_error(
            exchange, 400,
            ls_fail(LS_ERR_INVALID, "more than %d runs are compared at once: name fewer", COMPARED_MAX));
        return;
    }
    exchange->compared += bytes + (at[bytes] == ',');
    char *id = strndup(at, bytes);
    LS_ASSERT(id && "not enough memory for a name");
    ls_api_run_ask(exchange, id, read_compared);
    free(id);
}

void ls_api_run_compare(ls_api_exchange *exchange)
{
    ls_text_append(&exchange->text, "{\"runs\":[");
    compare_next(exchange);
}
