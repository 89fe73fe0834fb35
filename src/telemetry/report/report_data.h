// SPDX-License-Identifier: Apache-2.0
/*
 * Report data: the files of a run directory, parsed once, ready to be drawn. Missing and damaged
 * parts are left out. Inside of telemetry/report.
 */
#ifndef LS_TELEMETRY_REPORT_REPORT_DATA_H
#define LS_TELEMETRY_REPORT_REPORT_DATA_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "telemetry/record/goodput.h"
#include "telemetry/record/time_log.h"
#include "telemetry/report/report_files.h"

#include <stddef.h>
#include <stdint.h>

enum { LS_STEP_PARTS = 7 };

/* "waiting for data", "forward", ..., "the rest". */
extern const char *const ls_step_part_names[LS_STEP_PARTS];

typedef struct ls_report_data {
    ls_arena arena;
    const char *dir;
    const char *run_yaml; /* NULL: none */
    const char *name;     /* of the run file; NULL: not known */
    json_t *summary;      /* NULL: none */
    json_t *events;       /* array, in order of the file; never NULL */

    /* One value per good line of metrics; NaN where the line has none. */
    size_t count;
    double *step, *loss, *lr, *grad_norm, *tokens_per_s, *mfu, *step_s, *residual_norm;
    double (*parts_s)[LS_STEP_PARTS]; /* where the time of each step went; sums to its step_s */
    uint64_t tokens;
    uint64_t rss_bytes; /* highest */
    /* as in ls_step_metrics, of all lines that have them; 0: none has */
    uint64_t link_bytes, dense_bytes, link_steps;
    double saved_s;
    uint64_t steps_total; /* of the whole run, from the summary or the run file; 0: not known */

    /* Validation loss, by evaluation. */
    size_t val_count;
    double *val_step, *val_loss;

    double begun_s, newest_s; /* wall clock, seconds since 1970; NaN: not known */
    bool running;             /* no end was recorded since the last start */
    bool has_goodput;
    /* of all starts and the gaps between them; without a time log, from the summary */
    ls_goodput goodput;
    ls_time_history history; /* without starts when there is no time log */
} ls_report_data;

/* Of the files of a run; `dir` is only shown. Release it. */
void ls_report_data_take(const ls_report_files *files, const char *dir, ls_report_data *data);
/* From `dir` itself. Errors: as for ls_report_files_load. Release in any case. */
LS_MUST_CHECK ls_status ls_report_data_load(const char *dir, ls_report_data *data);
void ls_report_data_release(ls_report_data *data);

/*
 * Mean of the finite values among the `half` values on either side. Near the beginning the window
 * shrinks to an eighth of the values before it, so that it follows the steep fall there; at the end
 * it covers what exists. smooth_out: (count), NaN where no value is finite.
 */
void ls_report_smooth(const double *values, size_t count, size_t half, double *smooth_out);

/* Mean of the finite values among the last `last`; NaN when there is none. */
double ls_report_mean(const double *values, size_t count, size_t last);

#endif
