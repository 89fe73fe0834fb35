// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/api_internal.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

enum {
    KEPT_EVENTS = 1024,           /* for listeners that reconnect with Last-Event-ID */
    QUEUE_BYTES_MAX = 512 * 1024, /* of one listener; one that reads too slowly is disconnected */
    RUNNING_MAX = 256,            /* training runs whose steps are sent */
    TAIL_BYTES = 8 * 1024,
    LOG_LOOK_MS = 50, /* interval for a log that just grew; doubled while it does not grow */
    LOG_QUIET_MS = 400,
    LOG_PIECE_BYTES = 64 * 1024,
    STEP_LOOK_MS = 100, /* interval for steps of running runs, and what each run adds to it */
    STEP_LOOK_OF_RUN_MS = 4,
    HEARTBEAT_S = 15, /* between comments, by which a listener that is gone is noticed */
};

typedef struct stream {
    struct stream *next, **here;
    ls_api_streams *all;
    ls_http_stream *http;
    ls_caller caller;
    char user[LS_USER_NAME_BYTES];
    uint64_t job; /* 0: all */
    bool is_log, wants_steps;
    uint64_t spoke_ns;
    /* Of a log: the read under way, the bytes read so far, and when to read again. */
    uint64_t question, offset, look_ns, pause_ns;
    uint32_t job_uid;
    bool has_ended;   /* its job has ended: the log does not grow any more */
    bool asked_ended; /* `has_ended` at the time of the read */
    char *name;       /* of the log file */
} stream;

typedef struct event {
    uint64_t number, job; /* job 0: for all listeners */
    /* for callers who may read the job, and for others; bare NULL: not sent to others */
    char *full, *bare;
} event;

/* A run of a job that is running. */
typedef struct runner {
    ls_api_streams *all;
    uint64_t job;
    uint32_t uid, gid, owner;
    char id[192];        /* of the run */
    char *folder, *name; /* of the file it writes to last */
    uint64_t last_step;  /* or bytes of a file that is not metrics.jsonl */
    uint64_t question;   /* read of its newest step; 0: none is under way */
} runner;

struct ls_api_streams {
    ls_api *api;
    stream *first;
    size_t count;
    uint64_t boot, next_number; /* boot: tells numbers of an earlier daemon from these */
    event events[KEPT_EVENTS];
    runner *running[RUNNING_MAX];
    size_t running_count;
    ls_env_id log_timer, step_timer;
    bool is_asking;
    char owner[64];
    ls_caller self;
};

/* ---- one stream ---- */

static void say(stream *s, const char *text)
{
    if (ls_http_stream_is_ending(s->http)) {
        return;
    }
    if (ls_http_stream_waiting(s->http) + strlen(text) > QUEUE_BYTES_MAX) {
        ls_http_stream_end(s->http); /* it reconnects with Last-Event-ID when it can */
        return;
    }
    ls_http_stream_put(s->http, text, strlen(text));
    s->spoke_ns = ls_env_now_ns(s->all->api->env);
}

static void look_at_log(stream *s);

/* What was read is sent: more of a log may be read. */
static void drained(void *context)
{
    stream *s = context;
    if (s->is_log) {
        look_at_log(s);
    }
}

static void release_stream(void *context)
{
    stream *s = context;
    *s->here = s->next;
    if (s->next) {
        s->next->here = s->here;
    }
    s->all->count--;
    if (s->question) {
        ls_user_files_forget(s->all->api->files, s->question);
    }
    free(s->name);
    free(s);
}

/* Answers the exchange with a stream, or with an error (NULL) if there are too many. */
static stream *open_stream(ls_api_exchange *exchange, const char *type)
{
    ls_api_streams *all = exchange->api->streams;
    if (all->count >= LS_API_STREAMS_MAX) {
        const ls_status status =
            ls_fail(LS_ERR_FAILED, "%zu clients already follow events, which is the limit: try again later",
                    all->count);
        ls_api_exchange_error(exchange, 503, status);
        return NULL;
    }
    stream *s = calloc(1, sizeof *s);
    LS_ASSERT(s && "not enough memory for a stream");
    *s = (stream){.next = all->first,
                  .here = &all->first,
                  .all = all,
                  .caller = exchange->caller,
                  .spoke_ns = ls_env_now_ns(all->api->env)};
    memcpy(s->user, exchange->user, sizeof s->user);
    s->caller.user = s->user;
    if (all->first) {
        all->first->here = &s->next;
    }
    all->first = s;
    all->count++;
    s->http = ls_http_exchange_stream(
        exchange->http, type,
        &(ls_http_stream_calls){.context = s, .drained = drained, .closed = release_stream});
    return s;
}

/* ---- events ---- */

static bool is_told(const ls_api_streams *all, const stream *s, const event *e, const char **text_out)
{
    if (s->is_log || (s->job != 0 && s->job != e->job)) {
        return false;
    }
    const ls_api_calls *calls = &all->api->calls;
    *text_out = calls->may_read(calls->context, &s->caller, e->job) ? e->full : e->bare;
    return *text_out != NULL;
}

static char *event_text(const ls_api_streams *all, uint64_t number, const char *name, json_t *data)
{
    char *dump = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(data);
    ls_text text = {0};
    if (number > 0) {
        ls_text_printf(&text, "id: %" PRIu64 "-%" PRIu64 "\n", all->boot, number);
    }
    ls_text_printf(&text, "event: %s\ndata: %s\n\n", name, dump ? dump : "{}");
    free(dump);
    return text.data;
}

void ls_api_streams_tell(ls_api_streams *all, const ls_transition *t, const ls_job *job)
{
    const uint64_t number = all->next_number++;
    event *e = &all->events[number % KEPT_EVENTS];
    free(e->full);
    free(e->bare);
    const char *state = ls_job_state_name(t->to), *from = ls_job_state_name(t->from);
    const json_int_t ranks = job->ranks_now > 0 ? job->ranks_now : job->ranks;
    json_t *bare = json_pack("{s:I, s:s, s:s, s:f, s:s, s:I}", "job", (json_int_t)t->job, "state", state,
                             "from", from, "time", t->time_s, "account", job->account, "ranks", ranks);
    json_t *full = json_deep_copy(bare);
    json_object_set_new(full, "name", json_string(job->spec.name));
    json_object_set_new(full, "epoch", json_integer(t->epoch));
    json_object_set_new(full, "cause", json_string(ls_job_cause_name(t->cause)));
    json_object_set_new(full, "text", json_string(t->text ? t->text : ""));
    *e = (event){.number = number,
                 .job = t->job,
                 .full = event_text(all, number, "job", full),
                 .bare = event_text(all, number, "job", bare)};
    for (stream *s = all->first; s; s = s->next) {
        const char *text = NULL;
        if (is_told(all, s, e, &text)) {
            say(s, text);
        }
        if (s->is_log && s->job == t->job && ls_job_state_is_final(t->to)) {
            s->has_ended = true; /* the rest of the file is still sent */
            s->look_ns = 0;
        }
    }
}

/* Sends what happened after the event that a listener names; if that is no longer known,
 * `reset`. */
static void catch_up(ls_api_streams *all, stream *s, const char *last_id)
{
    char *end_of_boot = NULL;
    const unsigned long long boot = strtoull(last_id, &end_of_boot, 10);
    const unsigned long long last = *end_of_boot == '-' ? strtoull(end_of_boot + 1, NULL, 10) : 0;
    const uint64_t oldest = all->next_number > KEPT_EVENTS ? all->next_number - KEPT_EVENTS : 1;
    if (boot != all->boot || last + 1 < oldest || last >= all->next_number) {
        say(s, "event: reset\ndata: {}\n\n"); /* the listener must fetch everything again */
        return;
    }
    for (uint64_t number = last + 1; number < all->next_number; number++) {
        const char *text = NULL;
        if (is_told(all, s, &all->events[number % KEPT_EVENTS], &text)) {
            say(s, text);
        }
    }
}

/* ---- steps of running jobs ---- */

static void drop_runner(runner *r)
{
    if (r->question) {
        ls_user_files_forget(r->all->api->files, r->question);
    }
    free(r->folder);
    free(r->name);
    free(r);
}

static void forget_running(ls_api_streams *all)
{
    for (size_t i = 0; i < all->running_count; i++) {
        drop_runner(all->running[i]);
    }
    all->running_count = 0;
}

/* The last whole line in the tail of metrics.jsonl, as a new object; NULL: none, or not a step. */
static json_t *last_step(const char *tail, size_t bytes)
{
    const char *end_of_line = bytes > 0 ? memrchr(tail, '\n', bytes) : NULL;
    if (!end_of_line) {
        return NULL;
    }
    const char *before = memrchr(tail, '\n', (size_t)(end_of_line - tail));
    const char *line = before ? before + 1 : tail;
    json_t *step = json_loadb(line, (size_t)(end_of_line - line), 0, NULL);
    if (!json_is_object(step) || !json_is_integer(json_object_get(step, "step"))) {
        json_decref(step);
        return NULL;
    }
    return step;
}

static void tell_step(ls_api_streams *all, runner *r, json_t *step)
{
    json_object_set_new(step, "job", json_integer((json_int_t)r->job));
    json_object_set_new(step, "run", json_string(r->id));
    event e = {.job = r->job, .full = event_text(all, 0, "step", step)};
    for (stream *s = all->first; s; s = s->next) {
        const char *text = NULL;
        if (s->wants_steps && is_told(all, s, &e, &text)) {
            say(s, text);
        }
    }
    free(e.full);
}

static void hear_step(void *context, const ls_user_file_answer *answer)
{
    runner *r = context;
    ls_user_file_answer seen = *answer;
    r->question = 0;
    ls_api_check_owner(&seen, r->owner);
    const bool has_steps = strcmp(r->name, "metrics.jsonl") == 0;
    json_t *step = seen.error ? NULL : has_steps ? last_step(seen.data, seen.bytes) : json_object();
    const uint64_t number =
        has_steps ? (uint64_t)json_integer_value(json_object_get(step, "step")) : seen.file_bytes;
    if (step && number != r->last_step) {
        r->last_step = number;
        tell_step(r->all, r, step);
    } else {
        json_decref(step);
    }
}

static void look_at_steps(ls_api_streams *all)
{
    for (size_t i = 0; i < all->running_count; i++) {
        runner *r = all->running[i];
        const ls_user_file tail = {.folder = r->folder,
                                   .name = r->name,
                                   .uid = r->uid,
                                   .gid = r->gid,
                                   .from_end = true,
                                   .offset = TAIL_BYTES,
                                   .bytes = TAIL_BYTES};
        if (!r->question) {
            r->question = ls_user_files_ask(all->api->files, &tail, hear_step, r);
        }
    }
}

/* Takes a known run out of the list; NULL: it is new. */
static runner *take_known(ls_api_streams *all, uint64_t job, const ls_user_file *file)
{
    for (size_t i = 0; i < all->running_count; i++) {
        runner *r = all->running[i];
        if (r->job == job && strcmp(r->folder, file->folder) == 0 && strcmp(r->name, file->name) == 0) {
            all->running[i] = all->running[--all->running_count];
            return r;
        }
    }
    return NULL;
}

static runner *new_runner(ls_api_streams *all, const json_t *job, uint64_t id, const ls_api_run_file *file)
{
    runner *r = calloc(1, sizeof *r);
    LS_ASSERT(r && "not enough memory for a run");
    *r = (runner){.all = all,
                  .job = id,
                  .uid = file->file.uid,
                  .gid = file->file.gid,
                  .owner = file->owner,
                  .folder = strdup(file->file.folder),
                  .name = strdup(file->file.name)};
    LS_ASSERT(r->folder && r->name);
    const char *name = json_string_value(json_object_get(job, "id"));
    snprintf(r->id, sizeof r->id, "%" PRIu64, id);
    if (name) {
        snprintf(r->id, sizeof r->id, "%s", name);
    }
    return r;
}

static void take_running(ls_api_streams *all, const json_t *jobs)
{
    runner *fresh[RUNNING_MAX];
    size_t count = 0;
    ls_api_run_file file = {0};
    for (size_t i = 0; i < json_array_size(jobs) && count < RUNNING_MAX; i++) {
        const json_t *job = json_array_get(jobs, i);
        const uint64_t id = (uint64_t)json_integer_value(json_object_get(job, "job"));
        if (json_is_integer(json_object_get(job, "uid")) && ls_api_run_file_newest(all->api, job, &file)) {
            runner *known = take_known(all, id, &file.file);
            fresh[count++] = known ? known : new_runner(all, job, id, &file);
        }
    }
    ls_text_release(&file.folder);
    forget_running(all);
    memcpy(all->running, fresh, count * sizeof fresh[0]);
    all->running_count = count;
}

static void hear_running(void *context, int status, const json_t *answer)
{
    ls_api_streams *all = context;
    all->is_asking = false;
    if (status == 200) {
        take_running(all, json_object_get(answer, "jobs"));
    }
}

static bool any_wants_steps(const ls_api_streams *all)
{
    for (const stream *s = all->first; s; s = s->next) {
        if (s->wants_steps && !ls_http_stream_is_ending(s->http)) {
            return true;
        }
    }
    return false;
}

static void ask_for_running(ls_api_streams *all)
{
    if (all->is_asking) {
        return;
    }
    all->is_asking = true;
    json_t *arguments = json_pack("{s:s}", "state", "RUNNING");
    const ls_api_calls *calls = &all->api->calls;
    calls->call(calls->context, &all->self, LS_VERB_LIST, arguments, hear_running, all);
    json_decref(arguments);
}

static void step_tick(void *context)
{
    ls_api_streams *all = context;
    all->step_timer = 0;
    if (!any_wants_steps(all)) {
        forget_running(all);
        return;
    }
    look_at_steps(all);
    const uint64_t more_ms = STEP_LOOK_OF_RUN_MS * all->running_count;
    all->step_timer = ls_env_timer_set(all->api->env, (STEP_LOOK_MS + more_ms) * NS_PER_MS, step_tick, all);
}

void ls_api_streams_open_events(ls_api_exchange *exchange)
{
    stream *s = open_stream(exchange, "text/event-stream");
    if (!s) {
        return;
    }
    ls_api_streams *all = s->all;
    const json_t *job = json_object_get(exchange->arguments, "job"),
                 *metrics = json_object_get(exchange->arguments, "metrics");
    s->job = (uint64_t)json_integer_value(job);
    s->wants_steps = !json_is_false(metrics);
    say(s, "retry: 2000\n\n");
    const char *last_id = ls_http_exchange_header(exchange->http, "Last-Event-ID");
    if (last_id) {
        catch_up(all, s, last_id);
    }
    if (s->wants_steps && !all->step_timer) {
        ask_for_running(all);
        all->step_timer = ls_env_timer_set(all->api->env, STEP_LOOK_MS * NS_PER_MS, step_tick, all);
    }
}

/* ---- logs ---- */

/*
 * Follows a log: read a piece, send it, read on when it was taken (drained). Nothing new: look
 * again after a pause that doubles while the log is quiet. The stream ends with the first empty
 * read that was asked for after the job had ended: a read asked for before may have missed its last
 * lines.
 */
static void hear_log(void *context, const ls_user_file_answer *answer)
{
    stream *s = context;
    ls_user_file_answer seen = *answer;
    s->question = 0;
    ls_api_check_owner(&seen, s->job_uid);
    if (seen.error == 0 && seen.bytes > 0) {
        ls_http_stream_put(s->http, seen.data, seen.bytes);
        s->offset = seen.offset + seen.bytes;
        s->pause_ns = LOG_LOOK_MS * NS_PER_MS;
        return;
    }
    const bool may_come = seen.error == 0 || seen.error == ENOENT || seen.error == ETIMEDOUT ||
                          seen.error == EBUSY || seen.error == EAGAIN;
    if (s->asked_ended || !may_come) {
        ls_http_stream_end(s->http);
        return;
    }
    s->look_ns = s->has_ended ? 0 : ls_env_now_ns(s->all->api->env) + s->pause_ns;
    s->pause_ns = 2 * s->pause_ns < LOG_QUIET_MS * NS_PER_MS ? 2 * s->pause_ns : LOG_QUIET_MS * NS_PER_MS;
}

static void look_at_log(stream *s)
{
    const ls_api *api = s->all->api;
    if (s->question || ls_http_stream_is_ending(s->http) || ls_http_stream_waiting(s->http) > 0 ||
        ls_env_now_ns(api->env) < s->look_ns) {
        return;
    }
    ls_text folder = {0};
    ls_user_file file = ls_api_log_file(api, s->job, s->name, &folder);
    file.offset = s->offset;
    file.bytes = LOG_PIECE_BYTES;
    s->asked_ended = s->has_ended;
    s->question = ls_user_files_ask(api->files, &file, hear_log, s);
    ls_text_release(&folder);
}

static void log_tick(void *context)
{
    ls_api_streams *all = context;
    bool is_one_there = false;
    all->log_timer = 0;
    for (stream *s = all->first; s; s = s->next) {
        if (s->is_log) {
            is_one_there = true;
            look_at_log(s);
        }
    }
    if (is_one_there) {
        all->log_timer = ls_env_timer_set(all->api->env, LOG_LOOK_MS * NS_PER_MS, log_tick, all);
    }
}

void ls_api_streams_open_log(ls_api_exchange *exchange, const json_t *job, const char *name, uint64_t from)
{
    stream *s = open_stream(exchange, "text/plain; charset=utf-8");
    if (!s) {
        return;
    }
    const char *state = json_string_value(json_object_get(job, "state"));
    s->is_log = true;
    s->job = (uint64_t)json_integer_value(json_object_get(job, "job"));
    s->job_uid = (uint32_t)json_integer_value(json_object_get(job, "uid"));
    s->has_ended = state && ls_job_state_is_final(ls_job_state_named(state));
    s->name = strdup(name);
    LS_ASSERT(s->name);
    s->offset = from;
    s->pause_ns = LOG_LOOK_MS * NS_PER_MS;
    if (!s->all->log_timer) {
        s->all->log_timer = ls_env_timer_set(s->all->api->env, LOG_LOOK_MS * NS_PER_MS, log_tick, s->all);
    }
}

/* ---- all ---- */

void ls_api_streams_beat(ls_api_streams *all)
{
    const uint64_t now_ns = ls_env_now_ns(all->api->env);
    for (stream *s = all->first; s; s = s->next) {
        if (!s->is_log && now_ns - s->spoke_ns > HEARTBEAT_S * NS_PER_S) {
            say(s, ": still here\n\n");
        }
    }
    if (any_wants_steps(all)) {
        ask_for_running(all);
    }
}

ls_api_streams *ls_api_streams_create(ls_api *api)
{
    ls_api_streams *all = calloc(1, sizeof *all);
    LS_ASSERT(all && "not enough memory for streams");
    all->api = api;
    all->boot = (uint64_t)ls_env_wall_s(api->env);
    all->next_number = 1;
    snprintf(all->owner, sizeof all->owner, "%" PRIu32, api->owner_uid);
    all->self =
        (ls_caller){.uid = api->owner_uid, .gid = api->owner_gid, .user = all->owner, .is_admin = true};
    return all;
}

void ls_api_streams_close(ls_api_streams *all)
{
    for (stream *s = all->first; s; s = s->next) {
        ls_http_stream_end(s->http);
    }
}

void ls_api_streams_destroy(ls_api_streams *all)
{
    LS_ASSERT(all->count == 0);
    const ls_api_calls *calls = &all->api->calls;
    if (all->is_asking) {
        calls->forget(calls->context, all);
    }
    if (all->log_timer) {
        ls_env_timer_cancel(all->api->env, all->log_timer);
    }
    if (all->step_timer) {
        ls_env_timer_cancel(all->api->env, all->step_timer);
    }
    for (size_t i = 0; i < KEPT_EVENTS; i++) {
        free(all->events[i].full);
        free(all->events[i].bare);
    }
    forget_running(all);
    free(all);
}
