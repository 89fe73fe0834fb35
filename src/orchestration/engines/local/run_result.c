// SPDX-License-Identifier: Apache-2.0
/* How good a training run was, from the end of its metrics.jsonl. */
#include "orchestration/engines/local/runner_internal.h"

#include "telemetry/record/metrics_reader.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAIL_BYTES = 64 * 1024, STEPS_MAX = 20 };

/* The end of the file, from the first whole line on. Returns the number of bytes. */
static size_t read_tail(const char *path, char *data)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    ssize_t got = -1;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        const off_t from = info.st_size > TAIL_BYTES ? info.st_size - TAIL_BYTES : 0;
        got = pread(fd, data, TAIL_BYTES, from);
    }
    if (fd >= 0) {
        close(fd);
    }
    return got > 0 ? (size_t)got : 0;
}

ls_job_result ls_local_run_result(const char *run_dir)
{
    char path[LS_JOB_PATH_BYTES_MAX + 32];
    ls_job_result result = {.loss = NAN, .val_loss = NAN};
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    char *data = run_dir[0] ? malloc(TAIL_BYTES) : NULL;
    ls_line_reader lines = {.text = data, .bytes = data ? read_tail(path, data) : 0};
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
    return result;
}
