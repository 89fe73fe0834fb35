// SPDX-License-Identifier: Apache-2.0
/*
 * What a job may be asked to be, and what the database may say of one. The first byte chooses: a
 * run file that is submitted, a whole request, a record. A job that is accepted is within its
 * limits, and its record comes back as it was.
 */
#include "base/assert.h"
#include "orchestration/job/job.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_spec(const ls_job_spec *spec)
{
    LS_ASSERT(spec->name && spec->name[0] && strlen(spec->name) <= LS_JOB_NAME_BYTES_MAX);
    LS_ASSERT(!strchr(spec->name, '/') && spec->name[0] != '.' && spec->name[0] != '-');
    LS_ASSERT(strlen(spec->account) <= LS_JOB_ACCOUNT_BYTES_MAX && spec->directory[0] == '/');
    LS_ASSERT(spec->ranks >= 1 && spec->ranks <= LS_JOB_RANKS_MAX && spec->min_ranks >= 1);
    LS_ASSERT(spec->min_ranks <= spec->ranks && spec->ranks <= spec->max_ranks);
    LS_ASSERT(spec->after_count <= LS_JOB_AFTER_MAX && spec->command.count <= LS_JOB_LIST_MAX);
    LS_ASSERT(spec->grace_s >= 0 && spec->time_limit_s >= 0 && spec->begin_s >= 0);
    for (uint64_t i = 0; i < spec->variables.count; i++) {
        LS_ASSERT(strchr(spec->variables.items[i], '='));
    }
}

static ls_job *small_job(void)
{
    ls_job *job = NULL;
    json_t *request = json_pack("{s:s, s:s}", "file", "job: {command: [run]}", "directory", "/tmp");
    LS_ASSERT(ls_job_create(7, request, &job) == LS_OK);
    return job;
}

/* Takes over the request. */
static void submit(json_t *request)
{
    ls_job *job = NULL;
    if (ls_job_create(7, request, &job) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] && !job);
        ls_error_clear();
        return;
    }
    check_spec(&job->spec);
    ls_job_destroy(job);
}

static void restore(const json_t *record)
{
    ls_job *job = small_job(), *again = small_job();
    if (ls_job_record_read(job, record) == LS_OK) {
        json_t *first = ls_job_record_json(job);
        LS_ASSERT(ls_job_record_read(again, first) == LS_OK);
        json_t *second = ls_job_record_json(again);
        LS_ASSERT(json_equal(first, second));
        json_decref(first);
        json_decref(second);
    } else {
        LS_ASSERT(ls_error_text()[0]);
        ls_error_clear();
    }
    ls_job_destroy(job);
    ls_job_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    const char kind = (char)data[0];
    json_t *json = NULL;
    data++, bytes--;
    if (kind == 'f') {
        json_t *file = json_stringn((const char *)data, bytes); /* NULL: no UTF-8 */
        if (file) {
            submit(json_pack("{s:o, s:s}", "file", file, "directory", "/tmp"));
        }
    } else if (ls_json_parse((const char *)data, bytes, "input", &json) != LS_OK) {
        ls_error_clear();
    } else if (kind == 'q') {
        submit(json);
    } else {
        restore(json);
        json_decref(json);
    }
    return 0;
}
