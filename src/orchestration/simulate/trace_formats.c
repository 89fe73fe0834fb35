// SPDX-License-Identifier: Apache-2.0
/* Rows of the own format, of Philly and of Alibaba's cluster. */
#include "orchestration/simulate/trace_internal.h"

#include <string.h>

/* ---- own ---- */

/* Checks the columns: a misspelt one would silently be ignored. */
static ls_status check_own_columns(const ls_csv *csv)
{
    static const char *const known[] = {
        "submit_s",          "duration_s",      "gpus",    "job",        "account",       "priority",
        "min_gpus",          "max_gpus",        "limit_s", "expected_s", "spot",          "level",
        "preemptible",       "serial_fraction", "kind",    "note",       "gpus_per_node", "cpus_per_gpu",
        "memory_gib_per_gpu"};
    for (uint32_t c = 0; c < csv->column_count; c++) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            found = found || strcmp(csv->columns[c], known[i]) == 0;
        }
        if (!found) {
            return ls_fail(LS_ERR_DATA,
                           "%s: column '%.60s' is not known; a trace must have the columns submit_s, "
                           "duration_s, gpus and may have job, account, priority, min_gpus, max_gpus, "
                           "serial_fraction, limit_s, expected_s, preemptible, spot, gpus_per_node, level, "
                           "kind, cpus_per_gpu, memory_gib_per_gpu, note",
                           csv->name, csv->columns[c]);
        }
    }
    return LS_OK;
}

static ls_status read_priority(const ls_trace_reader *reader, const ls_csv_row *row, uint8_t *priority_out)
{
    static const char *const words[] = {"low", "normal", "high"};
    const char *cell = ls_csv_text(reader->csv, row, "priority");
    for (uint8_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(cell, words[i]) == 0) {
            *priority_out = i;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_DATA, "%s:%u: priority is \"%.40s\", allowed is low, normal or high",
                   reader->csv->name, row->line, cell);
}

/* Priority, placement and limits. */
static ls_status read_wishes(ls_trace_reader *reader, const ls_csv_row *row, ls_trace_job *job)
{
    const ls_csv *csv = reader->csv;
    int64_t preemptible = 1, spot = 0, cpus = 0;
    double memory_gib = 0.0;
    if (ls_csv_text(csv, row, "priority")[0]) {
        LS_TRY(read_priority(reader, row, &job->priority));
    }
    const char *level = ls_csv_text(csv, row, "level");
    if (level[0] && ls_level_parse(level, &job->required) != LS_OK) {
        return ls_fail_within(LS_ERR_DATA, "%s:%u: column 'level' is not valid", csv->name, row->line);
    }
    LS_TRY(ls_csv_i64(csv, row, "preemptible", 0, 1, 1, &preemptible));
    LS_TRY(ls_csv_i64(csv, row, "spot", 0, 1, 0, &spot));
    LS_TRY(ls_csv_i64(csv, row, "cpus_per_gpu", 0, 4096, 0, &cpus));
    LS_TRY(ls_csv_f64(csv, row, "memory_gib_per_gpu", 0.0, 65536.0, 0.0, &memory_gib));
    LS_TRY(ls_trace_milliseconds(reader, row, "limit_s", 0, &job->limit_ms));
    LS_TRY(ls_trace_milliseconds(reader, row, "expected_s", 0, &job->expected_ms));
    job->preemptible = preemptible == 1;
    job->spot = spot == 1;
    job->cpus_per_gpu = (uint32_t)cpus;
    job->memory_mib_per_gpu = (uint32_t)(memory_gib * 1024.0);
    job->kind = ls_csv_text(csv, row, "kind");
    return LS_OK;
}

static ls_status read_sizes(ls_trace_reader *reader, const ls_csv_row *row, ls_trace_job *job)
{
    LS_TRY(ls_trace_count(reader, row, "gpus", 1, 0, &job->gpus));
    if (job->gpus == 0) {
        return ls_fail(LS_ERR_DATA, "%s:%u: the column gpus is blank; each job must ask for 1 GPU or more",
                       reader->csv->name, row->line);
    }
    LS_TRY(ls_trace_count(reader, row, "min_gpus", 1, job->gpus, &job->min_gpus));
    LS_TRY(ls_trace_count(reader, row, "max_gpus", 1, job->gpus, &job->max_gpus));
    LS_TRY(ls_trace_count(reader, row, "gpus_per_node", 0, 0, &job->gpus_per_node));
    LS_TRY(ls_csv_f64(reader->csv, row, "serial_fraction", 0.0, 1.0, 0.0, &job->serial_fraction));
    if (job->min_gpus > job->gpus || job->max_gpus < job->gpus) {
        return ls_fail(
            LS_ERR_DATA,
            "%s:%u: gpus is %u, min_gpus %u and max_gpus %u; min_gpus <= gpus <= max_gpus is required",
            reader->csv->name, row->line, job->gpus, job->min_gpus, job->max_gpus);
    }
    return LS_OK;
}

ls_status ls_trace_read_own(ls_trace_reader *reader, const ls_csv_row *row, ls_trace_job *job)
{
    const ls_csv *csv = reader->csv;
    if (row == csv->rows) {
        LS_TRY(check_own_columns(csv));
    }
    if (!ls_csv_text(csv, row, "submit_s")[0] || !ls_csv_text(csv, row, "duration_s")[0]) {
        return ls_fail(LS_ERR_DATA,
                       "%s:%u: the columns submit_s and duration_s are required, but one of them is blank",
                       csv->name, row->line);
    }
    LS_TRY(ls_trace_milliseconds(reader, row, "submit_s", 0, &job->submit_ms));
    LS_TRY(ls_trace_milliseconds(reader, row, "duration_s", 0, &job->run_ms));
    LS_TRY(read_sizes(reader, row, job));
    LS_TRY(read_wishes(reader, row, job));
    const char *account = ls_csv_text(csv, row, "account");
    job->account = ls_trace_account(reader, account[0] ? account : "default");
    job->name = ls_csv_text(csv, row, "job");
    if (!job->name[0]) {
        job->name = ls_arena_printf(reader->arena, "%zu", (size_t)(row - csv->rows) + 1);
    }
    return LS_OK;
}

/* ---- Philly ---- */

/* Days from 1970-01-01 to a date of the Gregorian calendar. Years start in March, so that the leap
 * day is their last day. */
static int64_t days_of_date(int64_t year, int64_t month, int64_t day)
{
    const int64_t y = month <= 2 ? year - 1 : year;
    const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return 365 * y + y / 4 - y / 100 + y / 400 + day_of_year - 719468;
}

/* Takes `digits` decimal digits at *at, followed by `next` (0: the end). */
static bool take_number(const char **at, int digits, char next, int64_t *number_out)
{
    int64_t number = 0;
    for (int i = 0; i < digits; i++) {
        const char c = (*at)[i];
        if (c < '0' || c > '9') {
            return false;
        }
        number = 10 * number + (c - '0');
    }
    if ((*at)[digits] != next) {
        return false;
    }
    *at += digits + (next != 0);
    *number_out = number;
    return true;
}

/* "2017-10-09 07:01:55", UTC. */
static ls_status read_timestamp(const ls_trace_reader *reader, const ls_csv_row *row, uint64_t *ms_out)
{
    const char *cell = ls_csv_text(reader->csv, row, "timestamp"), *at = cell;
    int64_t year, month, day, hour, minute, second;
    if (!take_number(&at, 4, '-', &year) || !take_number(&at, 2, '-', &month) ||
        !take_number(&at, 2, ' ', &day) || !take_number(&at, 2, ':', &hour) ||
        !take_number(&at, 2, ':', &minute) || !take_number(&at, 2, 0, &second) || year < 1970 || month < 1 ||
        month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) {
        return ls_fail(
            LS_ERR_DATA,
            "%s:%u: timestamp is \"%.40s\", a date from 1970 on, as in 2017-10-09 07:01:55, is required",
            reader->csv->name, row->line, cell);
    }
    *ms_out = 1000u * (uint64_t)(86400 * days_of_date(year, month, day) + 3600 * hour + 60 * minute + second);
    return LS_OK;
}

ls_status ls_trace_read_philly(ls_trace_reader *reader, const ls_csv_row *row, ls_trace_job *job)
{
    LS_TRY(read_timestamp(reader, row, &job->submit_ms));
    LS_TRY(ls_trace_milliseconds(reader, row, "duration", 0, &job->run_ms));
    LS_TRY(ls_trace_count(reader, row, "num_gpus", 0, 0, &job->gpus));
    job->min_gpus = job->max_gpus = job->gpus;
    job->account = ls_trace_account(reader, ls_csv_text(reader->csv, row, "cluster"));
    job->name = ls_arena_printf(reader->arena, "%zu", (size_t)(row - reader->csv->rows) + 1);
    return LS_OK;
}

/* ---- Alibaba ---- */

/* Latency-sensitive and guaranteed pods rank above burstable ones, best-effort pods below. */
static uint8_t priority_of_qos(const char *qos)
{
    return strcmp(qos, "LS") == 0 || strcmp(qos, "Guaranteed") == 0 ? 2 : strcmp(qos, "BE") == 0 ? 0 : 1;
}

ls_status ls_trace_read_alibaba(ls_trace_reader *reader, const ls_csv_row *row, ls_trace_job *job)
{
    const ls_csv *csv = reader->csv;
    uint64_t created_ms = 0, deleted_ms = 0, scheduled_ms = 0;
    int64_t cpu_milli = 0, memory_mib = 0;
    LS_TRY(ls_trace_count(reader, row, "num_gpu", 0, 0, &job->gpus));
    LS_TRY(ls_trace_milliseconds(reader, row, "creation_time", 0, &created_ms));
    LS_TRY(ls_trace_milliseconds(reader, row, "deletion_time", 0, &deleted_ms));
    LS_TRY(ls_trace_milliseconds(reader, row, "scheduled_time", created_ms, &scheduled_ms));
    LS_TRY(ls_csv_i64(csv, row, "cpu_milli", 0, 1 << 30, 0, &cpu_milli));
    LS_TRY(ls_csv_i64(csv, row, "memory_mib", 0, 1 << 30, 0, &memory_mib));
    job->submit_ms = created_ms;
    job->run_ms = deleted_ms > scheduled_ms ? deleted_ms - scheduled_ms : 0;
    job->min_gpus = job->max_gpus = job->gpus;
    const char *qos = ls_csv_text(csv, row, "qos"), *kind = ls_csv_text(csv, row, "gpu_spec");
    job->priority = priority_of_qos(qos);
    job->kind = strchr(kind, '|') ? "" : kind; /* one of several kinds: counts as any */
    job->account = ls_trace_account(reader, qos[0] ? qos : "default");
    job->name = ls_csv_text(csv, row, "name");
    if (job->gpus > 0) {
        job->cpus_per_gpu = (uint32_t)((cpu_milli / 1000 + job->gpus - 1) / job->gpus);
        job->memory_mib_per_gpu = (uint32_t)(memory_mib / job->gpus);
    }
    return LS_OK;
}
