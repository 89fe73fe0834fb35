// SPDX-License-Identifier: Apache-2.0
/* The changing part of a job, as the store keeps it. */
#include "orchestration/job/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARES_MAX = 1 << 17 };
static const uint64_t BYTES_MAX = UINT64_C(1) << 50; /* of one run */

static json_t *shares_json(const ls_job *job)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->share_count; i++) {
        /* As text: other programs' JSON does not keep 64 bits. */
        char mask[24];
        snprintf(mask, sizeof mask, "%llx", (unsigned long long)job->shares[i].devices);
        json_array_append_new(list, json_pack("[i,s]", (int)job->shares[i].node, mask));
    }
    return list;
}

/* Times and sums; those that are 0 are left out. */
static void add_numbers(json_t *record, const ls_job *job)
{
    const ls_job_foresight *seen = &job->foresight;
    const struct {
        const char *key;
        double value;
    } times[] = {
        {"submitted_s", job->submitted_s},
        {"queued_s", job->queued_s},
        {"started_s", job->started_s},
        {"ended_s", job->ended_s},
        {"run_s", job->run_s},
        {"booked_s", job->booked_s},
        {"saved_s", job->saved_s},
        {"left_s", job->left_s},
        {"left_at_s", job->left_at_s},
        {"start_s", seen->start_s},
        {"start_said_s", seen->start_said_s},
        {"seen_started_s", seen->started_s},
        {"end_s", seen->end_s},
        {"end_said_s", seen->end_said_s},
    };
    const struct {
        const char *key;
        uint64_t value;
    } sums[] = {
        {"epoch", job->epoch},
        {"ranks", job->ranks},
        {"ranks_max", job->ranks_max},
        {"ranks_now", job->ranks_now},
        {"ranks_next", job->ranks_next},
        {"restarts", job->restarts},
        {"preemptions", job->preemptions},
        {"allocated", job->allocated_device_ms},
        {"idle", job->idle_device_ms},
        {"waiting", job->waiting_device_ms},
        {"lost", job->lost_device_ms},
        {"priced", job->priced_device_ms},
        {"energy", job->energy_mj},
        {"step", job->step},
        {"steps", job->steps},
        {"hold", job->hold},
        {"stop_step", job->stop_step},
        {"alerts", job->alerts},
        {"alerts_heard", job->alerts_heard},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (times[i].value > 0.0) {
            json_object_set_new(record, times[i].key, json_real(times[i].value));
        }
    }
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        if (sums[i].value > 0) {
            json_object_set_new(record, sums[i].key, json_integer((json_int_t)sums[i].value));
        }
    }
}

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *ls_job_result_json(const ls_job_result *result)
{
    return result->step > 0
               ? json_pack("{s:I, s:o, s:o, s:I, s:I}", "step", (json_int_t)result->step, "loss",
                           number_or_null(result->loss), "val_loss", number_or_null(result->val_loss),
                           "stored_bytes", (json_int_t)result->stored_bytes, "sent_bytes",
                           (json_int_t)result->sent_bytes)
               : NULL;
}

static void add_plan(json_t *record, const ls_job_plan *plan)
{
    if (plan->curve_count == 0) {
        return;
    }
    json_t *curve = json_array();
    for (uint32_t i = 0; i < plan->curve_count; i++) {
        json_array_append_new(curve, json_integer(plan->curve[i]));
    }
    json_object_set_new(record, "plan",
                        json_pack("{s:f, s:f, s:f, s:o, s:s}", "run_s", plan->run_s, "low", plan->low, "high",
                                  plan->high, "curve", curve, "source", plan->source));
}

json_t *ls_job_record_json(const ls_job *job)
{
    json_t *record =
        json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:s, s:i, s:o, s:s*, s:s*, s:s}", "state",
                  ls_job_state_name(job->state), "cause", ls_job_cause_name(job->cause), "held", job->held,
                  "paused", job->paused, "cancelled", job->cancelled, "handed_over", job->handed_over,
                  "priority", ls_priority_name(job->priority), "exit_code", job->exit_code, "shares",
                  shares_json(job), "text", job->text, "engine_ref", job->engine_ref, "kind", job->kind);
    add_numbers(record, job);
    add_plan(record, &job->plan);
    json_object_set_new(record, "result", ls_job_result_json(&job->result)); /* NULL: no member */
    return record;
}

/* ---- reading ---- */

typedef struct reader {
    const json_t *record;
    char name[32]; /* "job 12" */
    ls_status status;
} reader;

static uint64_t read_u64(reader *r, const char *key, uint64_t max)
{
    uint64_t value = 0;
    if (r->status == LS_OK) {
        r->status = ls_json_get_u64(r->record, r->name, key, 0, max, 0, &value);
    }
    return value;
}

static double read_f64(reader *r, const char *key)
{
    double value = 0.0;
    if (r->status == LS_OK) {
        r->status = ls_json_get_f64(r->record, r->name, key, 0.0, 1e15, 0.0, &value);
    }
    return value;
}

static bool read_bool(reader *r, const char *key)
{
    bool value = false;
    if (r->status == LS_OK) {
        r->status = ls_json_get_bool(r->record, r->name, key, false, &value);
    }
    return value;
}

static const char *read_text(reader *r, const char *key, const char *absent)
{
    const char *value = absent;
    if (r->status == LS_OK) {
        r->status = ls_json_get_string(r->record, r->name, key, absent, &value);
    }
    return value;
}

static void read_shares(reader *r, ls_job *job)
{
    const json_t *list = json_object_get(r->record, "shares");
    const size_t count = json_array_size(list);
    if (r->status != LS_OK || count == 0) {
        return;
    }
    ls_job_share *shares = count <= SHARES_MAX ? calloc(count, sizeof *shares) : NULL;
    bool is_good = shares != NULL;
    for (size_t i = 0; is_good && i < count; i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t node = json_integer_value(json_array_get(item, 0));
        const char *mask = json_string_value(json_array_get(item, 1));
        char *end = NULL;
        is_good = mask && mask[0] && node >= 0 && node < SHARES_MAX;
        if (is_good) {
            shares[i] = (ls_job_share){.node = (uint32_t)node, .devices = strtoull(mask, &end, 16)};
            is_good = *end == '\0' && shares[i].devices != 0;
        }
    }
    if (is_good) {
        ls_job_set_shares(job, shares, (uint32_t)count);
    } else {
        r->status = ls_fail(LS_ERR_DATA, "%s: the list of the job's devices is damaged", r->name);
    }
    free(shares);
}

static void read_plan(reader *r, ls_job_plan *plan)
{
    const json_t *object = json_object_get(r->record, "plan"), *curve = json_object_get(object, "curve");
    if (r->status != LS_OK || !object) {
        return;
    }
    plan->run_s = fmax(0.0, json_number_value(json_object_get(object, "run_s")));
    plan->low = fmax(0.0, json_number_value(json_object_get(object, "low")));
    plan->high = fmax(0.0, json_number_value(json_object_get(object, "high")));
    for (size_t i = 0; i < json_array_size(curve) && i < LS_JOB_CURVE_MAX; i++) {
        const json_int_t value = json_integer_value(json_array_get(curve, i));
        plan->curve[i] = value > 0 && value < 1 << 30 ? (uint32_t)value : 1;
        plan->curve_count = (uint32_t)i + 1;
    }
    const char *source = json_string_value(json_object_get(object, "source"));
    snprintf(plan->source, sizeof plan->source, "%s", source ? source : "");
}

static uint64_t count_of(const json_t *object, const char *key)
{
    const json_int_t count = json_integer_value(json_object_get(object, key));
    return count > 0 ? (uint64_t)count : 0;
}

ls_job_result ls_job_result_read(const json_t *object)
{
    const json_t *loss = json_object_get(object, "loss"), *val_loss = json_object_get(object, "val_loss");
    const uint64_t stored_bytes = count_of(object, "stored_bytes"),
                   sent_bytes = count_of(object, "sent_bytes");
    /* A job's user can write anything: sums over all jobs must not overflow. */
    return (ls_job_result){.step = count_of(object, "step"),
                           .stored_bytes = stored_bytes < BYTES_MAX ? stored_bytes : BYTES_MAX,
                           .sent_bytes = sent_bytes < BYTES_MAX ? sent_bytes : BYTES_MAX,
                           .loss = json_is_number(loss) ? json_number_value(loss) : NAN,
                           .val_loss = json_is_number(val_loss) ? json_number_value(val_loss) : NAN};
}

static ls_priority read_priority(reader *r)
{
    const char *name = read_text(r, "priority", "normal");
    ls_priority priority = LS_PRIORITY_NORMAL;
    if (!ls_priority_parse(name, &priority)) {
        r->status = ls_fail(LS_ERR_DATA, "%s: the job's priority is '%.20s'; it must be low, normal or high",
                            r->name, name);
    }
    return priority;
}

ls_status ls_job_record_read(ls_job *job, const json_t *record)
{
    reader r = {.record = record};
    snprintf(r.name, sizeof r.name, "job %llu", (unsigned long long)job->id);
    const char *state = read_text(&r, "state", "");
    job->state = ls_job_state_named(state);
    if (r.status == LS_OK && job->state == LS_JOB_STATES) {
        job->state = LS_JOB_FAILED;
        return ls_fail(LS_ERR_DATA, "%s: the job's state is '%.20s', which is not a state of a job", r.name,
                       state);
    }
    job->cause = ls_job_cause_named(read_text(&r, "cause", "none"));
    job->epoch = (uint32_t)read_u64(&r, "epoch", UINT32_MAX / 2);
    job->held = read_bool(&r, "held");
    job->hold = (ls_job_hold)read_u64(&r, "hold", LS_HOLDS - 1);
    job->paused = read_bool(&r, "paused");
    job->alerts = (uint32_t)read_u64(&r, "alerts", UINT32_MAX);
    job->alerts_heard = (uint32_t)read_u64(&r, "alerts_heard", UINT32_MAX);
    job->cancelled = read_bool(&r, "cancelled");
    job->handed_over = read_bool(&r, "handed_over");
    job->priority = read_priority(&r);
    job->ranks = (uint32_t)read_u64(&r, "ranks", LS_JOB_RANKS_MAX);
    job->ranks_max = (uint32_t)read_u64(&r, "ranks_max", LS_JOB_RANKS_MAX);
    job->ranks_now = (uint32_t)read_u64(&r, "ranks_now", LS_JOB_RANKS_MAX);
    job->ranks_next = (uint32_t)read_u64(&r, "ranks_next", LS_JOB_RANKS_MAX);
    read_shares(&r, job);
    const json_t *exit_code = json_object_get(record, "exit_code");
    job->exit_code = json_is_integer(exit_code) ? (int)json_integer_value(exit_code) : -1;
    job->restarts = (uint32_t)read_u64(&r, "restarts", UINT32_MAX / 2);
    job->preemptions = (uint32_t)read_u64(&r, "preemptions", UINT32_MAX / 2);
    job->submitted_s = read_f64(&r, "submitted_s");
    job->queued_s = read_f64(&r, "queued_s");
    job->started_s = read_f64(&r, "started_s");
    job->ended_s = read_f64(&r, "ended_s");
    job->run_s = read_f64(&r, "run_s");
    job->booked_s = read_f64(&r, "booked_s");
    job->saved_s = read_f64(&r, "saved_s");
    job->step = read_u64(&r, "step", INT64_MAX);
    job->steps = read_u64(&r, "steps", INT64_MAX);
    job->stop_step = read_u64(&r, "stop_step", INT64_MAX);
    job->result = ls_job_result_read(json_object_get(record, "result"));
    read_plan(&r, &job->plan);
    job->left_s = read_f64(&r, "left_s");
    job->left_at_s = read_f64(&r, "left_at_s");
    job->foresight = (ls_job_foresight){.start_s = read_f64(&r, "start_s"),
                                        .start_said_s = read_f64(&r, "start_said_s"),
                                        .started_s = read_f64(&r, "seen_started_s"),
                                        .end_s = read_f64(&r, "end_s"),
                                        .end_said_s = read_f64(&r, "end_said_s")};
    job->allocated_device_ms = read_u64(&r, "allocated", INT64_MAX);
    job->idle_device_ms = read_u64(&r, "idle", INT64_MAX);
    job->waiting_device_ms = read_u64(&r, "waiting", INT64_MAX);
    job->lost_device_ms = read_u64(&r, "lost", INT64_MAX);
    job->priced_device_ms = json_object_get(record, "priced")
                                ? read_u64(&r, "priced", INT64_MAX)
                                : job->allocated_device_ms; /* an older version */
    job->energy_mj = read_u64(&r, "energy", INT64_MAX);
    ls_job_set_text(job, read_text(&r, "text", NULL));
    ls_job_set_engine_ref(job, read_text(&r, "engine_ref", NULL));
    snprintf(job->kind, sizeof job->kind, "%s", read_text(&r, "kind", ""));
    return r.status;
}
