// SPDX-License-Identifier: Apache-2.0
/*
 * Run page: a run while it trains and afterwards, as `lockstep up` and `lockstep view` serve it
 * (web/run.html), and several runs over each other (web/compare.html).
 *
 * The pages hold what a table or a text says; the script draws the charts from /v1/runs/ID/metrics.
 * For browsers without script, each chart is a figure that ls_run_chart_append drew from the same
 * columns.
 *
 * Names, notes, logs and metric names may be hostile: the templates escape them (base/template.h).
 * Pure; thread-safe.
 */
#ifndef LS_TELEMETRY_REPORT_RUN_PAGE_H
#define LS_TELEMETRY_REPORT_RUN_PAGE_H

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "telemetry/report/report_files.h"
#include "telemetry/store/run_metrics.h"

typedef struct ls_run_view {
    const char *id;                /* as in /v1/runs */
    const char *name, *status;     /* as there; used where the directory says nothing */
    const char *dir;               /* the run directory, or the folder of another program */
    const ls_run_metrics *metrics; /* what was read so far; NULL: nothing */
    const ls_report_files *files;  /* of its directory */
    const json_t *row;             /* its results, as in /v1/runs; NULL: not known */
} ls_run_view;

/* has_queue: a daemon serves the page, which links to its queue. Without files of this program, the
 * page has the charts alone. */
void ls_run_page_append(const ls_run_view *run, bool has_queue, ls_text *page);

/* The figure of a metric of some runs (1 or more), over each other; `files` is not used. */
void ls_run_chart_append(const ls_run_view *runs, size_t count, const char *key, ls_text *svg);

/* Where the time of a run went, as a figure; `metrics` is not used. */
void ls_run_time_append(const ls_run_view *run, ls_text *svg);

typedef struct ls_compare_view {
    /* of /v1/runs, an array: what a browser without script sees of all */
    const json_t *rows;
    size_t run_count; /* how many runs there are */
    /* what is compared (chosen_count); of `files`, only run.yaml is used */
    const ls_run_view *chosen;
    size_t chosen_count;
    bool has_queue;
} ls_compare_view;

/* All runs, and what differs between the settings and results of the chosen ones. */
void ls_compare_page_append(const ls_compare_view *view, ls_text *page);

/* ---- what these pages share ---- */

/* An id or a name in an address: all but letters, digits and -_.~ as %XX. */
void ls_run_id_append(ls_text *text, const char *id);
/* The address of a part of a run: "/runs/ID" and `rest`. */
void ls_run_address_append(ls_text *text, const char *id, const char *rest);

#endif
