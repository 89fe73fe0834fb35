// SPDX-License-Identifier: Apache-2.0
/* A controller in a small world: one node with four devices, an engine that does nothing by itself,
 * and a clock that stands still. Orders are recorded; what happens is reported by hand. */
#ifndef LS_TESTS_ORCHESTRATION_CONTROLLER_WORLD_H
#define LS_TESTS_ORCHESTRATION_CONTROLLER_WORLD_H

#include "test.h"

#include "orchestration/control/controller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDERS_MAX = 64, REPLIES_MAX = 64 };

typedef struct fake_engine {
    ls_engine base;
    ls_engine_node node;
} fake_engine;

static struct world {
    fake_engine engine;
    ls_controller *controller;
    double now_s, ahead_s;
    ls_engine_order_kind orders[ORDERS_MAX];
    uint64_t ordered[ORDERS_MAX];
    uint32_t order_count;
    int status; /* of the last reply */
    json_t *answer;
    uint32_t replies;
    uint32_t rows; /* of the last turn */
    bool disk_is_full;
    json_t *sweeps; /* the rows of the store, by the number of the first job */
    char text[512];
} w;

static inline const ls_engine_node *fake_nodes(ls_engine *engine, uint32_t *count_out)
{
    *count_out = 1;
    return &((fake_engine *)engine)->node;
}

static const ls_engine_calls fake_calls = {.name = "fake", .nodes = fake_nodes};

/* An engine that has a queue of its own, and could never run more than 4 ranks. */
static inline ls_status fake_check(ls_engine *engine, const ls_job *job)
{
    (void)engine;
    return job->ranks <= 4 ? LS_OK : ls_fail(LS_ERR_INVALID, "%u ranks are too many", job->ranks);
}

static const ls_engine_calls deciding_calls = {
    .name = "fake", .decides = true, .nodes = fake_nodes, .check = fake_check};

static inline double fake_ahead_s(void *context)
{
    return ((struct world *)context)->ahead_s;
}

static inline double fake_now_s(void *context)
{
    return ((struct world *)context)->now_s;
}

static inline json_t *fake_journal(void *context, uint64_t job, uint64_t after, uint32_t limit)
{
    (void)context, (void)after, (void)limit;
    return json_pack("[{s:I}]", "job", (json_int_t)job);
}

/* Jobs that are no longer in memory; NULL: none. */
static ls_job *(*w_old_job)(void *context, uint64_t id);

static inline ls_job *old_job(void *context, uint64_t id)
{
    return w_old_job ? w_old_job(context, id) : NULL;
}

static inline ls_job_state old_state(void *context, uint64_t id)
{
    ls_job *job = old_job(context, id);
    const ls_job_state state = job ? job->state : LS_JOB_STATES;
    ls_job_destroy(job);
    return state;
}

static inline bool fake_is_user(void *context, const char *name)
{
    (void)context;
    return strcmp(name, "ann") == 0 || strcmp(name, "bob") == 0 || strcmp(name, "root") == 0;
}

/* The settings of a daemon without a config.yaml. */
static ls_controller_settings default_settings(void)
{
    return (ls_controller_settings){
        .order = "fair",
        .preempt = true,
        .reservations = 8,
        .half_life_s = 7 * 86400.0,
        .min_run_s = 60.0,
        .resize_pause_s = 600.0,
        .idle_s = 600.0,
        .idle_permille = 50,
        .start_timeout_s = 60.0,
        .currency = "USD",
        .jobs_max = 100000,
        .user_jobs_max = 100000,
        .bytes_max = UINT64_C(1) << 30,
        .user_bytes_max = UINT64_C(1) << 30,
        .ended_max = 2000,
    };
}

static inline ls_status create(ls_controller **controller_out)
{
    ls_controller_settings settings = default_settings();
    settings.user_jobs_max = 20;
    settings.user_bytes_max = 64 << 10;
    settings.bytes_max = 96 << 10;
    settings.min_run_s = 0.0;
    settings.jobs_max = 1000;
    settings.idle_s = 30.0;
    settings.price_per_device_h = 2.0;
    const ls_controller_calls calls = {.context = &w,
                                       .now_s = fake_now_s,
                                       .ahead_s = fake_ahead_s,
                                       .journal = fake_journal,
                                       .old_job = old_job,
                                       .old_state = old_state,
                                       .is_user = fake_is_user};
    return ls_controller_create(&settings, &w.engine.base, &calls, controller_out);
}

static inline int set_up(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    w.now_s = 1000000.0;
    w.engine = (fake_engine){
        .base.calls = &fake_calls,
        .node = {
            .name = "here", .kind = "cpu", .devices = 4, .island_devices = 4, .cpus = 4, .memory_mib = 4096}};
    assert_int_equal(create(&w.controller), LS_OK);
    ls_account ann = ls_account_default();
    snprintf(ann.name, sizeof ann.name, "ann");
    assert_int_equal(ls_account_add_user(&ann, "ann"), LS_OK);
    ann.priority_max = LS_PRIORITY_HIGH; /* she may use a higher priority than others */
    assert_int_equal(ls_controller_set_account(w.controller, &ann), LS_OK);
    ls_controller_restored(w.controller, 1);
    return 0;
}

static inline int set_up_deciding(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    w.now_s = 1000000.0;
    w.engine = (fake_engine){.base.calls = &deciding_calls,
                             .node = {.name = "far", .kind = "cpu", .devices = 4, .cpus = 4}};
    assert_int_equal(create(&w.controller), LS_OK);
    ls_controller_restored(w.controller, 1);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    ls_controller_destroy(w.controller);
    json_decref(w.answer);
    json_decref(w.sweeps);
    return 0;
}

/* ---- what is done ---- */

static inline void record(const ls_engine_order *order)
{
    if (w.order_count < ORDERS_MAX) {
        w.orders[w.order_count] = order->kind;
        w.ordered[w.order_count++] = order->job->id;
    }
}

static inline void turn(void)
{
    ls_turn value;
    ls_controller_turn(w.controller, &value);
    w.rows = value.changed_count + value.created_count + value.transition_count;
    if (w.disk_is_full && value.must_be_written) {
        for (uint32_t i = 0; i < value.order_count; i++) {
            if (ls_turn_is_urgent(&value, i)) {
                record(&value.orders[i]);
            }
        }
        ls_controller_turn_failed(w.controller, "the disk is full");
        ls_controller_pause(w.controller, "the disk is full");
        return;
    }
    ls_controller_pause(w.controller, NULL);
    for (size_t i = 0; i < json_array_size(value.sweeps); i++) {
        json_t *row = json_array_get(value.sweeps, i);
        char first[32];
        snprintf(first, sizeof first, "%lld", json_integer_value(json_object_get(row, "first")));
        w.sweeps = w.sweeps ? w.sweeps : json_object();
        json_object_set(w.sweeps, first, row);
    }
    for (uint32_t i = 0; i < value.order_count; i++) {
        record(&value.orders[i]);
    }
    ls_controller_turn_done(w.controller);
}

static inline void take_reply(void *context, int status, const json_t *answer)
{
    struct world *world = context;
    json_decref(world->answer);
    world->status = status;
    world->answer = json_deep_copy(answer);
    world->replies++;
}

/* As user 1000, who is not an administrator. arguments: JSON with ' for ". */
static inline int call_as(uint32_t uid, ls_verb verb, const char *arguments)
{
    char text[2048];
    json_t *object = NULL;
    snprintf(text, sizeof text, "%s", arguments);
    for (char *at = text; *at; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    assert_int_equal(ls_json_parse(text, strlen(text), "arguments", &object), LS_OK);
    const ls_caller caller = {.uid = uid,
                              .gid = uid,
                              .user = uid == 1000   ? "ann"
                                      : uid == 1001 ? "bob"
                                      : uid == 1002 ? "cyd"
                                                    : "root",
                              .is_admin = uid == 0};
    const uint32_t before = w.replies;
    w.status = 0;
    ls_controller_call(w.controller, &caller, verb, object, take_reply, &w);
    json_decref(object);
    turn();
    if (!w.disk_is_full) {
        assert_int_equal(w.replies, before + 1);
    }
    return w.status;
}

static inline int call(ls_verb verb, const char *arguments)
{
    return call_as(1000, verb, arguments);
}

/* more: further lines under job. */
static inline uint64_t submit(uint32_t ranks, const char *more)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{'file': 'name: work\\nparallel: {ranks: %u}\\njob: {command: [run]%s%s}\\n', 'directory': '/tmp'}",
        ranks, more[0] ? ", " : "", more);
    assert_int_equal(call(LS_VERB_SUBMIT, text), 201);
    return (uint64_t)json_integer_value(json_object_get(w.answer, "job"));
}

static inline const ls_job *job(uint64_t id)
{
    const ls_job *found = ls_controller_job(w.controller, id);
    assert_non_null(found);
    return found;
}

/* The number of jobs, which are numbered from 1 without a gap. */
static inline uint32_t count_jobs(void)
{
    uint32_t count = 0;
    while (ls_controller_job(w.controller, count + 1)) {
        count++;
    }
    return count;
}

/* The daemon has died: a new controller gets what is in the store, and as many devices as the
 * engine has now. */
static inline void restart(void)
{
    enum { JOBS_MAX = 64 };
    ls_controller *after = NULL;
    uint64_t newest = 0;
    assert_int_equal(create(&after), LS_OK);
    for (uint64_t id = 1; id <= JOBS_MAX; id++) {
        const ls_job *before = ls_controller_job(w.controller, id);
        newest = before ? id : newest;
        if (!before || ls_job_state_is_final(before->state)) {
            continue;
        }
        ls_job *copy = NULL;
        json_t *record = ls_job_record_json(before);
        assert_int_equal(ls_job_create(before->id, json_deep_copy(before->request), &copy), LS_OK);
        ls_job_set_user(copy, before->uid, before->gid, before->user);
        ls_job_set_account(copy, before->account);
        ls_job_set_run_dir(copy, before->run_dir);
        assert_int_equal(ls_job_record_read(copy, record), LS_OK);
        json_decref(record);
        ls_controller_restore(after, copy);
    }
    const char *first;
    json_t *row;
    json_object_foreach(w.sweeps, first, row)
    {
        assert_int_equal(ls_controller_restore_sweep(after, row), LS_OK);
    }
    ls_controller_destroy(w.controller);
    w.controller = after;
    w.order_count = 0;
    ls_controller_restored(w.controller, newest + 1);
    turn();
}

#define assert_state(id, wanted) assert_string_equal(ls_job_state_name(job(id)->state), #wanted)

static inline void report(uint64_t id, ls_engine_report value)
{
    value.job = id;
    value.epoch = value.epoch ? value.epoch : job(id)->epoch;
    ls_controller_report(w.controller, &value);
    turn();
}

static inline void starts(uint64_t id)
{
    report(id, (ls_engine_report){.kind = LS_ENGINE_STARTED});
}

static inline void ends(uint64_t id, int exit_code)
{
    report(id, (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                  .exit_code = exit_code,
                                  .cause = exit_code ? LS_CAUSE_PROGRAM : LS_CAUSE_NONE});
}

/* How often an order was given to a job. */
static inline uint32_t count_orders(ls_engine_order_kind kind, uint64_t id)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < w.order_count; i++) {
        count += w.orders[i] == kind && w.ordered[i] == id;
    }
    return count;
}

static inline int on(ls_verb verb, uint64_t id)
{
    char text[64];
    snprintf(text, sizeof text, "{'job': %llu}", (unsigned long long)id);
    return call(verb, text);
}

#endif
