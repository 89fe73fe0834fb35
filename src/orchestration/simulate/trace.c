// SPDX-License-Identifier: Apache-2.0
#include "orchestration/simulate/trace.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "orchestration/simulate/trace_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How a format is recognised, and the reader of its rows. */
static const struct {
    const char *name;
    const char *columns[5]; /* ends with NULL */
    ls_trace_row_reader *read;
    const char *left_out_why;
} formats[] = {
    [LS_TRACE_AUTO] = {.name = "auto"},
    [LS_TRACE_OWN] = {"own", {"submit_s", "duration_s", "gpus"}, ls_trace_read_own, "take no time"},
    [LS_TRACE_PHILLY] = {"philly",
                         {"timestamp", "duration", "num_gpus", "cluster"},
                         ls_trace_read_philly,
                         "take no time or no GPU"},
    [LS_TRACE_ALIBABA] = {"alibaba",
                          {"num_gpu", "gpu_milli", "creation_time", "deletion_time"},
                          ls_trace_read_alibaba,
                          "ask for no GPU or did not end"},
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

const char *ls_trace_format_name(ls_trace_format format)
{
    return formats[format].name;
}

/* ---- cells ---- */

ls_status ls_trace_milliseconds(const ls_trace_reader *reader, const ls_csv_row *row, const char *column,
                                uint64_t blank_ms, uint64_t *ms_out)
{
    double seconds = 0.0;
    LS_TRY(ls_csv_f64(reader->csv, row, column, 0.0, LS_TRACE_SECONDS_MAX, -1.0, &seconds));
    *ms_out = seconds < 0.0 ? blank_ms : (uint64_t)llround(1000.0 * seconds);
    return LS_OK;
}

ls_status ls_trace_count(const ls_trace_reader *reader, const ls_csv_row *row, const char *column,
                         uint32_t least, uint32_t blank, uint32_t *count_out)
{
    int64_t count = 0;
    LS_TRY(ls_csv_i64(reader->csv, row, column, least, LS_TRACE_GPUS_MAX, blank, &count));
    *count_out = (uint32_t)count;
    return LS_OK;
}

/* ---- accounts ---- */

static uint32_t *account_slot(ls_trace_reader *reader, const char *name)
{
    uint32_t slot = (uint32_t)ls_xxh3(name, strlen(name), 0) & (reader->account_slots - 1);
    while (reader->account_ids[slot] &&
           strcmp(reader->trace->accounts[reader->account_ids[slot] - 1], name) != 0) {
        slot = (slot + 1) & (reader->account_slots - 1);
    }
    return &reader->account_ids[slot];
}

/* Doubles the table and puts everything in its new place. */
static void grow_accounts(ls_trace_reader *reader)
{
    const uint32_t count = reader->trace->account_count;
    reader->account_slots = reader->account_slots ? 2 * reader->account_slots : 64;
    reader->account_ids = ls_arena_new(reader->arena, uint32_t, reader->account_slots);
    const char **accounts = ls_arena_new(reader->arena, const char *, reader->account_slots / 2);
    for (uint32_t i = 0; i < count; i++) {
        accounts[i] = reader->trace->accounts[i];
    }
    reader->trace->accounts = accounts;
    for (uint32_t i = 0; i < count; i++) {
        *account_slot(reader, accounts[i]) = i + 1;
    }
}

uint32_t ls_trace_account(ls_trace_reader *reader, const char *name)
{
    if (2 * (reader->trace->account_count + 1) > reader->account_slots) {
        grow_accounts(reader);
    }
    uint32_t *id = account_slot(reader, name);
    if (*id == 0) {
        reader->trace->accounts[reader->trace->account_count] = name;
        *id = ++reader->trace->account_count;
    }
    return *id - 1;
}

/* ---- the whole table ---- */

static bool has_columns(const ls_csv *csv, ls_trace_format format)
{
    for (size_t i = 0; formats[format].columns[i]; i++) {
        if (ls_csv_column(csv, formats[format].columns[i]) < 0) {
            return false;
        }
    }
    return true;
}

static ls_status find_format(const ls_csv *csv, ls_trace_format *format)
{
    if (*format != LS_TRACE_AUTO) {
        for (size_t i = 0; formats[*format].columns[i]; i++) {
            if (ls_csv_column(csv, formats[*format].columns[i]) < 0) {
                return ls_fail(LS_ERR_DATA,
                               "%s: a trace in format %s must have a column '%s', which is missing",
                               csv->name, formats[*format].name, formats[*format].columns[i]);
            }
        }
        return LS_OK;
    }
    for (ls_trace_format f = LS_TRACE_OWN; (int)f < FORMAT_COUNT; f++) {
        if (has_columns(csv, f)) {
            *format = f;
            return LS_OK;
        }
    }
    return ls_fail(
        LS_ERR_DATA,
        "%s: the columns do not match any known format: own (submit_s, duration_s, gpus), philly (timestamp, "
        "duration, num_gpus, cluster), alibaba (num_gpu, gpu_milli, creation_time, deletion_time)",
        csv->name);
}

typedef struct order_entry {
    uint64_t submit_ms;
    size_t index;
} order_entry;

static int by_submission(const void *a, const void *b)
{
    const order_entry *x = a, *y = b;
    return x->submit_ms != y->submit_ms ? (x->submit_ms > y->submit_ms) - (x->submit_ms < y->submit_ms)
                                        : (x->index > y->index) - (x->index < y->index);
}

/* Sorts by submission and makes the first one time 0. */
static void sort_jobs(ls_arena *arena, ls_trace *trace)
{
    order_entry *order = ls_arena_new(arena, order_entry, trace->job_count);
    ls_trace_job *jobs = ls_arena_new(arena, ls_trace_job, trace->job_count);
    for (size_t i = 0; i < trace->job_count; i++) {
        order[i] = (order_entry){trace->jobs[i].submit_ms, i};
    }
    qsort(order, trace->job_count, sizeof order[0], by_submission);
    for (size_t i = 0; i < trace->job_count; i++) {
        jobs[i] = trace->jobs[order[i].index];
        jobs[i].submit_ms -= order[0].submit_ms;
    }
    trace->jobs = jobs;
}

static ls_status read_jobs(ls_trace_reader *reader)
{
    const ls_csv *csv = reader->csv;
    ls_trace *trace = reader->trace;
    ls_trace_row_reader *read = formats[trace->format].read;
    if (csv->row_count > LS_TRACE_JOBS_MAX) {
        return ls_fail(LS_ERR_DATA, "%s has %zu rows; a trace can have at most %d", csv->name, csv->row_count,
                       LS_TRACE_JOBS_MAX);
    }
    trace->jobs = ls_arena_new(reader->arena, ls_trace_job, csv->row_count);
    for (size_t i = 0; i < csv->row_count; i++) {
        ls_trace_job job = {.preemptible = true, .priority = 1, .required = LS_LEVEL_CLUSTER, .kind = ""};
        LS_TRY(read(reader, &csv->rows[i], &job));
        if (job.gpus > 0 && job.run_ms > 0) {
            trace->jobs[trace->job_count++] = job;
        }
    }
    trace->left_out = csv->row_count - trace->job_count;
    trace->left_out_why = trace->left_out ? formats[trace->format].left_out_why : NULL;
    if (trace->job_count == 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s has no job that can be simulated: it has %zu rows, and all of them %s", csv->name,
                       csv->row_count, trace->left_out_why ? trace->left_out_why : "are left out");
    }
    sort_jobs(reader->arena, trace);
    return LS_OK;
}

ls_status ls_trace_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                         ls_trace_format format, ls_trace *trace_out)
{
    ls_csv csv;
    ls_trace trace = {.name = name};
    ls_trace_reader reader = {.arena = arena, .csv = &csv, .trace = &trace};
    LS_TRY(ls_csv_parse(arena, text, bytes, name, &csv));
    LS_TRY(find_format(&csv, &format));
    trace.format = format;
    LS_TRY(read_jobs(&reader));
    *trace_out = trace;
    return LS_OK;
}

ls_status ls_trace_load(ls_arena *arena, const char *path, ls_trace_format format, ls_trace *trace_out)
{
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(arena, path, LS_TRACE_BYTES_MAX, &text, &bytes));
    return ls_trace_parse(arena, text, bytes, path, format, trace_out);
}

/* ---- speed ---- */

uint64_t ls_trace_job_run_ms(const ls_trace_job *job, uint32_t gpus, uint32_t nodes)
{
    LS_ASSERT(gpus >= 1 && nodes >= 1);
    if (job->speed) {
        const uint32_t g = gpus < job->speed->gpus_most ? gpus : job->speed->gpus_most;
        const uint32_t n = nodes < job->speed->nodes_most ? nodes : job->speed->nodes_most;
        const uint64_t run_ms = job->speed->run_ms[(size_t)(g - 1) * job->speed->nodes_most + n - 1];
        return run_ms ? run_ms : job->run_ms;
    }
    if (gpus == job->gpus) {
        return job->run_ms;
    }
    const double s = job->serial_fraction;
    const double ratio = (s + (1.0 - s) / gpus) / (s + (1.0 - s) / job->gpus);
    const double run_ms = ceil((double)job->run_ms * ratio);
    return run_ms < 1.0 ? 1 : (uint64_t)run_ms;
}
