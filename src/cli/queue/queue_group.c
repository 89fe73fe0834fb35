// SPDX-License-Identifier: Apache-2.0
/* The jobs of a sweep side by side. */
#include "cli/queue/queue.h"
#include "cli/table.h"
#include "orchestration/client/client.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The values that distinguish this job in its sweep: "train.optimizer.lr=3e-4". */
static void append_values(const json_t *job, ls_text *text)
{
    const json_t *set = json_object_get(job, "set");
    for (size_t i = 0; i < json_array_size(set); i++) {
        const char *assignment = json_string_value(json_array_get(set, i));
        if (assignment && strncmp(assignment, "job.group.", 10) != 0) {
            ls_text_printf(text, "%s%s", text->bytes > 0 ? "  " : "", assignment);
        }
    }
}

/* The newest step of a training job; null for other jobs. The caller drops it. */
static json_t *last_step(const json_t *job)
{
    json_t *metrics = NULL;
    if (!ls_queue_string(job, "run_dir") || ls_queue_get(&metrics, "/v1/jobs/%" PRId64 "/metrics?points=1",
                                                         ls_queue_integer(job, "job")) != LS_OK) {
        return json_null();
    }
    json_t *last = json_incref(json_object_get(metrics, "last"));
    json_decref(metrics);
    return last ? last : json_null();
}

static void add_member(ls_table *table, const json_t *job)
{
    json_t *last = last_step(job);
    const double loss = ls_queue_number(last, "loss");
    ls_text values = {0};
    append_values(job, &values);
    ls_table_printf(table, "%" PRId64, ls_queue_integer(job, "job"));
    ls_table_add(table, ls_queue_string(job, "state"));
    if (isfinite(loss)) {
        ls_table_printf(table, "%" PRId64, ls_queue_integer(last, "step"));
        ls_table_printf(table, "%.4f", loss);
    } else {
        ls_table_add(table, NULL);
        ls_table_add(table, NULL);
    }
    ls_table_add(table, ls_text_string(&values));
    ls_text_release(&values);
    json_decref(last);
}

/* "2 RUNNING, 3 QUEUED" */
static void append_states(const json_t *members, ls_text *text)
{
    json_t *counts = json_object();
    for (size_t i = 0; i < json_array_size(members); i++) {
        const char *state = ls_queue_string(json_array_get(members, i), "state");
        const json_int_t before = json_integer_value(json_object_get(counts, state ? state : "?"));
        json_object_set_new(counts, state ? state : "?", json_integer(before + 1));
    }
    const char *state = NULL, *separator = "";
    json_t *count = NULL;
    json_object_foreach(counts, state, count)
    {
        ls_text_printf(text, "%s%" PRId64 " %s", separator, (int64_t)json_integer_value(count), state);
        separator = ", ";
    }
    json_decref(counts);
}

/* members_out: the caller drops it. */
static ls_status find_members(const char *group, json_t **members_out)
{
    json_t *answer = NULL, *members = json_array();
    ls_text path = {0};
    ls_text_append(&path, "/v1/jobs?all=true&group=");
    ls_client_append_escaped(&path, group);
    ls_status status = ls_queue_get(&answer, "%s", ls_text_string(&path));
    ls_text_release(&path);
    const json_t *jobs = json_object_get(answer, "jobs");
    for (size_t i = 0; status == LS_OK && i < json_array_size(jobs); i++) {
        json_t *whole = NULL;
        status = ls_queue_get(&whole, "/v1/jobs/%" PRId64, ls_queue_integer(json_array_get(jobs, i), "job"));
        json_array_append_new(members, whole ? whole : json_null());
    }
    json_decref(answer);
    if (status == LS_OK && json_array_size(members) == 0) {
        status = ls_fail(LS_ERR_NOT_FOUND, "no job that you may see belongs to a sweep or group '%s'", group);
    }
    if (status != LS_OK) {
        json_decref(members);
        return status;
    }
    *members_out = members;
    return LS_OK;
}

ls_status ls_queue_append_group(const char *group, ls_arena *arena, size_t width, ls_text *text)
{
    static const char *const titles[] = {"JOB", "STATE", "STEP", "LOSS", "VALUES"};
    static const bool right[] = {true, false, true, true, false};
    json_t *members = NULL;
    LS_TRY(find_members(group, &members));
    ls_table table = {.titles = titles, .right = right, .columns = 5, .arena = arena};
    for (size_t i = 0; i < json_array_size(members); i++) {
        add_member(&table, json_array_get(members, i));
    }
    ls_text_append_printable(text, group, strlen(group), "");
    ls_text_printf(text, ": %zu job%s, ", json_array_size(members), json_array_size(members) == 1 ? "" : "s");
    append_states(members, text);
    ls_text_append(text, "\n");
    ls_table_append(&table, width, text);
    json_decref(members);
    return LS_OK;
}
