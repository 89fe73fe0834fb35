// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/internal.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

enum {
    KEPT_EVENTS = 1024,           /* for who comes back with Last-Event-ID */
    QUEUE_BYTES_MAX = 512 * 1024, /* of one listener: who reads slower than things happen is sent away */
    BLOCK_BYTES = 16 * 1024,
    RUNNING_MAX = 256, /* training runs whose steps are told */
    TAIL_BYTES = 8 * 1024,
    LOG_LOOK_MS = 50, /* at a log to which something was just added; later and later to one that is quiet */
    LOG_QUIET_MS = 400,
    LOG_PIECE_BYTES = 64 * 1024,
    STEP_LOOK_MS = 500,
    HEARTBEAT_S = 15, /* a comment: a listener that is gone is noticed */
};

typedef struct stream {
    struct stream *next, **here;
    ls_api_streams *all;
    struct MHD_Connection *connection;
    ls_api_door *door;
    int socket;
    ls_caller caller;
    char user[LS_USER_NAME_BYTES];
    uint64_t job; /* 0: all */
    bool is_log, wants_steps;
    bool is_asleep, is_over; /* over: what is queued is sent, then it ends */
    uint64_t spoke_ns;
    ls_text queue;
    size_t sent;
    /* Of a log: the worker's question, what was read, and when to look again. */
    uint64_t question, offset, look_ns, pause_ns;
    uint32_t job_uid;
    bool has_ended;   /* its job: what is there still is all */
    bool asked_ended; /* it had when the question was asked */
    char *name;       /* of the log's file */
} stream;

typedef struct event {
    uint64_t number, job; /* job 0: for all */
    char *full, *bare;    /* for who may read the job, and for others; bare NULL: not for them */
} event;

/* A training run that goes on. */
typedef struct runner {
    ls_api_streams *all;
    uint64_t job;
    uint32_t uid, gid;
    char *run_dir;
    uint64_t last_step;
    uint64_t question; /* its newest step is being read; 0: it is not */
} runner;

struct ls_api_streams {
    ls_api *api;
    stream *first;
    size_t count;
    uint64_t boot, next_number; /* boot: numbers of another life of the daemon mean nothing */
    event events[KEPT_EVENTS];
    runner *running[RUNNING_MAX];
    size_t running_count;
    ls_env_id log_timer, step_timer;
    bool is_asking;
    char owner[64];
    ls_caller self;
};

/* ---- one stream ---- */

static void wake(stream *s)
{
    if (s->is_asleep) {
        s->is_asleep = false;
        s->all->api->mhd->resume_connection(s->connection);
        ls_api_door_kick(s->door);
    }
}

static void end(stream *s)
{
    s->is_over = true;
    wake(s);
}

static void say(stream *s, const char *text)
{
    if (s->is_over) {
        return;
    }
    if (s->queue.bytes - s->sent + strlen(text) > QUEUE_BYTES_MAX) {
        end(s); /* it comes back with Last-Event-ID when it can */
        return;
    }
    ls_text_append(&s->queue, text);
    s->spoke_ns = ls_env_now_ns(s->all->api->env);
    wake(s);
}

static ssize_t take_queue(stream *s, char *out, size_t max)
{
    const size_t left = s->queue.bytes - s->sent, bytes = left < max ? left : max;
    memcpy(out, ls_text_string(&s->queue) + s->sent, bytes);
    s->sent += bytes;
    if (s->sent == s->queue.bytes) {
        ls_text_clear(&s->queue);
        s->sent = 0;
    }
    return (ssize_t)bytes;
}

static void look_at_log(stream *s);

/* The library asks for more. */
static ssize_t read_stream(void *context, uint64_t position, char *out, size_t max)
{
    (void)position;
    stream *s = context;
    const ssize_t bytes = take_queue(s, out, max);
    if (bytes != 0) {
        return bytes;
    }
    if (s->is_over) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (s->is_log) {
        look_at_log(s); /* what was read is sent */
    }
    s->is_asleep = true;
    s->all->api->mhd->suspend_connection(s->connection);
    return 0;
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
    ls_text_release(&s->queue);
    free(s->name);
    free(s);
}

/* Makes the exchange's answer a stream; NULL, and an error for an answer, when there are too many. */
static stream *open_stream(ls_api_exchange *exchange, const char *type)
{
    ls_api_streams *all = exchange->api->streams;
    if (all->count >= LS_API_STREAMS_MAX) {
        const ls_status status =
            ls_fail(LS_ERR_FAILED, "%zu clients listen already, as many as there can be", all->count);
        ls_api_exchange_error(exchange, 503, status);
        return NULL;
    }
    stream *s = calloc(1, sizeof *s);
    LS_ASSERT(s && "out of memory for a stream");
    *s = (stream){.next = all->first,
                  .here = &all->first,
                  .all = all,
                  .connection = exchange->connection,
                  .door = exchange->link->door,
                  .socket = exchange->link->fd,
                  .caller = exchange->caller,
                  .spoke_ns = ls_env_now_ns(all->api->env)};
    memcpy(s->user, exchange->user, sizeof s->user);
    s->caller.user = s->user;
    if (all->first) {
        all->first->here = &s->next;
    }
    all->first = s;
    all->count++;
    const ls_microhttpd *mhd = all->api->mhd;
    struct MHD_Response *response =
        mhd->create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, s, release_stream);
    LS_ASSERT(response);
    mhd->add_response_header(response, "Content-Type", type);
    exchange->is_stream = true;
    ls_api_exchange_respond(exchange, 200, response);
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
            s->has_ended = true; /* what is in the file is still sent */
            s->look_ns = 0;
        }
    }
}

/* Says what happened behind the event that a listener names, or that too much did. */
static void catch_up(ls_api_streams *all, stream *s, const char *last_id)
{
    char *end_of_boot = NULL;
    const unsigned long long boot = strtoull(last_id, &end_of_boot, 10);
    const unsigned long long last = *end_of_boot == '-' ? strtoull(end_of_boot + 1, NULL, 10) : 0;
    const uint64_t oldest = all->next_number > KEPT_EVENTS ? all->next_number - KEPT_EVENTS : 1;
    if (boot != all->boot || last + 1 < oldest || last >= all->next_number) {
        say(s, "event: reset\ndata: {}\n\n"); /* it must ask for all there is */
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
    free(r->run_dir);
    free(r);
}

static void forget_running(ls_api_streams *all)
{
    for (size_t i = 0; i < all->running_count; i++) {
        drop_runner(all->running[i]);
    }
    all->running_count = 0;
}

/* The step of the last whole line of what is the end of metrics.jsonl; NULL when there is none. A new object. */
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
    ls_api_check_owner(&seen, r->uid);
    json_t *step = seen.error ? NULL : last_step(seen.data, seen.bytes);
    const uint64_t number = (uint64_t)json_integer_value(json_object_get(step, "step"));
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
        const ls_user_file tail = {.folder = r->run_dir,
                                   .name = "metrics.jsonl",
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

/* Takes it out of those that were running; NULL: it is new. */
static runner *take_known(ls_api_streams *all, uint64_t job, const char *run_dir)
{
    for (size_t i = 0; i < all->running_count; i++) {
        runner *r = all->running[i];
        if (r->job == job && strcmp(r->run_dir, run_dir) == 0) {
            all->running[i] = all->running[--all->running_count];
            return r;
        }
    }
    return NULL;
}

static runner *new_runner(ls_api_streams *all, const json_t *job, uint64_t id, const char *run_dir)
{
    runner *r = calloc(1, sizeof *r);
    LS_ASSERT(r && "out of memory for a run");
    *r = (runner){.all = all,
                  .job = id,
                  .uid = (uint32_t)json_integer_value(json_object_get(job, "uid")),
                  .gid = (uint32_t)json_integer_value(json_object_get(job, "gid")),
                  .run_dir = strdup(run_dir)};
    LS_ASSERT(r->run_dir);
    return r;
}

static void take_running(ls_api_streams *all, const json_t *jobs)
{
    runner *fresh[RUNNING_MAX];
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(jobs) && count < RUNNING_MAX; i++) {
        const json_t *job = json_array_get(jobs, i);
        const char *run_dir = json_string_value(json_object_get(job, "run_dir"));
        const uint64_t id = (uint64_t)json_integer_value(json_object_get(job, "job"));
        if (run_dir && run_dir[0] && json_is_integer(json_object_get(job, "uid"))) {
            runner *known = take_known(all, id, run_dir);
            fresh[count++] = known ? known : new_runner(all, job, id, run_dir);
        }
    }
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

static bool somebody_wants_steps(const ls_api_streams *all)
{
    for (const stream *s = all->first; s; s = s->next) {
        if (s->wants_steps && !s->is_over) {
            return true;
        }
    }
    return false;
}

static void ask_who_runs(ls_api_streams *all)
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
    if (!somebody_wants_steps(all)) {
        forget_running(all);
        return;
    }
    look_at_steps(all);
    all->step_timer = ls_env_timer_set(all->api->env, STEP_LOOK_MS * NS_PER_MS, step_tick, all);
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
    const char *last_id =
        all->api->mhd->lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "Last-Event-ID");
    if (last_id) {
        catch_up(all, s, last_id);
    }
    if (s->wants_steps && !all->step_timer) {
        ask_who_runs(all);
        all->step_timer = ls_env_timer_set(all->api->env, STEP_LOOK_MS * NS_PER_MS, step_tick, all);
    }
}

/* ---- logs ---- */

static void hear_log(void *context, const ls_user_file_answer *answer)
{
    stream *s = context;
    ls_user_file_answer seen = *answer;
    s->question = 0;
    ls_api_check_owner(&seen, s->job_uid);
    if (seen.error == 0 && seen.bytes > 0) {
        ls_text_append_bytes(&s->queue, seen.data, seen.bytes);
        s->offset = seen.offset + seen.bytes;
        s->pause_ns = LOG_LOOK_MS * NS_PER_MS;
        wake(s);
        return;
    }
    const bool may_come = seen.error == 0 || seen.error == ENOENT || seen.error == ETIMEDOUT ||
                          seen.error == EBUSY || seen.error == EAGAIN;
    if (s->asked_ended || !may_come) {
        end(s);
        return;
    }
    s->look_ns = s->has_ended ? 0 : ls_env_now_ns(s->all->api->env) + s->pause_ns;
    s->pause_ns = 2 * s->pause_ns < LOG_QUIET_MS * NS_PER_MS ? 2 * s->pause_ns : LOG_QUIET_MS * NS_PER_MS;
}

static void look_at_log(stream *s)
{
    const ls_api *api = s->all->api;
    if (s->question || s->is_over || s->queue.bytes > s->sent || ls_env_now_ns(api->env) < s->look_ns) {
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
        if (s->is_asleep && ls_api_is_hung_up(s->socket)) { /* the library does not look while it sleeps */
            end(s);
        } else if (!s->is_log && now_ns - s->spoke_ns > HEARTBEAT_S * NS_PER_S) {
            say(s, ": still here\n\n");
        }
    }
    if (somebody_wants_steps(all)) {
        ask_who_runs(all);
    }
}

ls_api_streams *ls_api_streams_create(ls_api *api)
{
    ls_api_streams *all = calloc(1, sizeof *all);
    LS_ASSERT(all && "out of memory for streams");
    all->api = api;
    all->boot = (uint64_t)ls_env_wall_s(api->env);
    all->next_number = 1;
    snprintf(all->owner, sizeof all->owner, "%" PRIu32, api->guard.owner_uid);
    all->self =
        (ls_caller){.uid = api->guard.owner_uid, .gid = api->owner_gid, .user = all->owner, .is_admin = true};
    return all;
}

void ls_api_streams_close(ls_api_streams *all)
{
    for (stream *s = all->first; s; s = s->next) {
        end(s);
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
