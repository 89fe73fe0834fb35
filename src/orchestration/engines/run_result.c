// SPDX-License-Identifier: Apache-2.0
/* How good a training run was, from the end of its metrics.jsonl; what it keeps on the disk, and
 * what it sent to its mirror. */
#include "orchestration/engines/run_result.h"

#include "telemetry/record/metrics_reader.h"

#include <fcntl.h>
#include <fts.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAIL_BYTES = 64 * 1024, EVENTS_BYTES = 16 * 1024 * 1024, STEPS_MAX = 20, FILES_MAX = 1 << 20 };

/* The end of the file, at most `limit` bytes. Returns the number of bytes. */
static size_t read_tail(const char *path, char *data, size_t limit)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    ssize_t got = -1;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        const off_t from = info.st_size > (off_t)limit ? info.st_size - (off_t)limit : 0;
        got = pread(fd, data, limit, from);
    }
    if (fd >= 0) {
        close(fd);
    }
    return got > 0 ? (size_t)got : 0;
}

/* A file with several names, as frozen tensors of checkpoints have, counts once. */
static uint64_t stored_bytes(const char *run_dir)
{
    char *const roots[] = {(char *)(uintptr_t)run_dir, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    double sum = 0.0;
    uint32_t files = 0;
    for (const FTSENT *at; tree && files < FILES_MAX && (at = fts_read(tree));) {
        if (at->fts_info == FTS_F) {
            sum += (double)at->fts_statp->st_size / (double)at->fts_statp->st_nlink;
            files++;
        }
    }
    if (tree) {
        fts_close(tree);
    }
    return (uint64_t)sum;
}

/* What was sent to its mirror since `from_s`, from the end of its events.jsonl. */
static uint64_t sent_bytes(const char *run_dir, double from_s)
{
    char path[LS_JOB_PATH_BYTES_MAX + 32];
    snprintf(path, sizeof path, "%s/events.jsonl", run_dir);
    char *data = malloc(EVENTS_BYTES);
    ls_line_reader lines = {.text = data, .bytes = data ? read_tail(path, data, EVENTS_BYTES) : 0};
    json_t *event = NULL;
    uint64_t sum = 0, bytes = 0;
    for (ls_line_kind kind; (kind = ls_event_reader_next(&lines, &event)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD) {
            const char *what = json_string_value(json_object_get(event, "event"));
            const bool counts = strcmp(what, "mirrored") == 0 && ls_json_number(event, "time") >= from_s;
            sum += counts && ls_json_count(event, "sent_bytes", &bytes) ? bytes : 0;
            json_decref(event);
        }
    }
    free(data);
    return sum;
}

ls_job_result ls_run_result_read(const char *run_dir, double from_s)
{
    char path[LS_JOB_PATH_BYTES_MAX + 32];
    ls_job_result result = {.loss = NAN, .val_loss = NAN};
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    char *data = run_dir[0] ? malloc(TAIL_BYTES) : NULL;
    ls_line_reader lines = {.text = data, .bytes = data ? read_tail(path, data, TAIL_BYTES) : 0};
    double losses[STEPS_MAX], sum = 0.0;
    uint64_t count = 0;
    ls_step_metrics row;
    /* a first line that is cut counts as damaged, and is skipped */
    for (ls_line_kind kind; (kind = ls_metrics_reader_next(&lines, &row)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD) {
            losses[count++ % STEPS_MAX] = row.loss;
            result.step = row.step;
            result.val_loss = row.has_val_loss ? row.val_loss : NAN;
        }
    }
    const uint64_t kept = count < STEPS_MAX ? count : STEPS_MAX;
    for (uint64_t i = 0; i < kept; i++) {
        sum += losses[i];
    }
    result.loss = kept > 0 ? sum / (double)kept : NAN;
    free(data);
    if (run_dir[0]) {
        result.stored_bytes = stored_bytes(run_dir);
        result.sent_bytes = sent_bytes(run_dir, from_s);
    }
    return result;
}
