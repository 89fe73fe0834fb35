// SPDX-License-Identifier: Apache-2.0
/*
 * Run data: all metrics of one run, as they are read from the files that the run writes.
 *
 *   metrics.jsonl, *.jsonl   one object of numbers per line       ls_feed ──▶ ls_run_metrics ──▶ JSON for the page
 *   *.log, *.txt             name=value pairs                     (one for      (series.h)
 *   events.out.tfevents.*    scalars of TensorBoard                each file)
 *
 * A feed remembers how far its file was read. Its owner reads from the byte that ls_feed_from names
 * and gives what it got to ls_feed_take, as often as it likes: nothing is taken twice, and a line
 * or record that is not complete yet is waited for. A file that was cut back and has grown again (a
 * resume does that) is noticed by the last bytes that were read.
 *
 * The step of a line is its number `step`, `_step`, `global_step`, `iteration` or `iter`; without
 * one, a line is one step after the line before. `time`, `timestamp`, `_timestamp` and `wall_time`
 * are its time in seconds since 1970. Every other number is a point of the metric of that name.
 * Null is a point (drawn as a gap) only where the metric had a number before. If a metric gets a
 * step below its newest one, its program was restored: the points after it are dropped, and
 * counted in `cut`. Of a run of this program, whose lines have step_s and tokens, two more metrics
 * are kept: elapsed_s and tokens_seen, the sums so far.
 *
 * One owner; when the system has no memory left the process stops.
 */
#ifndef LS_TELEMETRY_STORE_RUN_METRICS_H
#define LS_TELEMETRY_STORE_RUN_METRICS_H

#include "base/text.h"
#include "telemetry/store/metric_line.h"
#include "telemetry/store/series.h"

enum {
    LS_RUN_METRICS_MAX = 10000, /* names of one run; more are refused, and counted */
    LS_RUN_POINTS_MAX = 10000,  /* columns of one answer for each metric */
    LS_RUN_CELLS_MAX = 1 << 18, /* columns of one answer for all metrics; each has its share */
};

typedef struct ls_metric {
    char *name;
    ls_series series;
} ls_metric;

typedef struct ls_run_metrics {
    ls_metric *metrics; /* in the order in which they appeared */
    size_t count, capacity;
    uint32_t *table; /* by the hash of the name: index + 1; 0: free */
    size_t table_size;
    uint64_t seed;    /* of those hashes */
    size_t guess;     /* the metric that is expected next */
    uint64_t points;  /* taken in all */
    uint64_t version; /* changes whenever points are added or dropped */
    uint64_t refused; /* points of metrics beyond the limit of names */
    uint64_t cut;     /* points dropped because their program was restored to an earlier step */
    uint64_t damaged; /* lines and records that could not be read */
    uint64_t last_step;
    double last_time_s; /* of the newest point; never falls; 0: unknown */
} ls_run_metrics;

/* Zero-initialised run data are empty and valid. Frees what it holds; it is empty again. */
void ls_run_metrics_release(ls_run_metrics *data);

/* NULL: there is no such metric. */
const ls_series *ls_run_metrics_find(const ls_run_metrics *data, const char *name);
/* The newest value of a metric; NaN: none. */
double ls_run_metrics_last(const ls_run_metrics *data, const char *name);

/* Makes a metric without points, unless it is there. False: the run has too many names. */
bool ls_run_metrics_name(ls_run_metrics *data, const char *name, size_t name_bytes);
/* Adds a point; false: refused, because the run has too many names. */
bool ls_run_metrics_add(ls_run_metrics *data, const char *name, size_t name_bytes, const ls_point *point);
/* Adds the pairs of a line, as described above. */
void ls_run_metrics_add_line(ls_run_metrics *data, const ls_pairs *pairs);

/* ---- files that grow ---- */

typedef enum ls_feed_kind { LS_FEED_JSON, LS_FEED_TEXT, LS_FEED_TENSORBOARD } ls_feed_kind;

typedef enum ls_feed_next {
    LS_FEED_END,    /* all there is was taken */
    LS_FEED_MORE,   /* read on */
    LS_FEED_REWOUND /* the file was cut back: clear the run's data and all its feeds, read again */
} ls_feed_next;

typedef struct ls_feed {
    ls_feed_kind kind;
    uint64_t offset; /* bytes of the file that were taken */
    char tail[64];   /* the last of them */
    size_t tail_bytes;
    bool is_broken; /* what follows can't be read: nothing more is taken */
} ls_feed;

/* What the name of a file says about its kind: *.tfevents.*, *.jsonl, anything else is text. */
ls_feed_kind ls_feed_kind_of(const char *name);

/* The byte of the file to read on from: a little before the end of what was taken. */
uint64_t ls_feed_from(const ls_feed *feed);
/* Takes `bytes` that were read at `offset` when `wanted` were asked for. */
ls_feed_next ls_feed_take(ls_feed *feed, ls_run_metrics *data, uint64_t offset, const char *text,
                          size_t bytes, size_t wanted);

/* ---- answers ---- */

typedef struct ls_metrics_question {
    uint64_t from, to; /* steps; to: UINT64_MAX for the newest */
    size_t points;     /* columns at most, 1 to LS_RUN_POINTS_MAX */
    const char *keys;  /* "loss,lr"; NULL: all */
    size_t runs;       /* that share one answer; 0: this one alone */
} ls_metrics_question;

/*
 * Appends {"loss": {"step": [], "mean": [], "low": [], "high": []}, ...}: for each metric the
 * columns that have points, with the last step of each. Columns whose values are not all finite are
 * listed in "odd", too: [[column, "nan" | "inf" | "-inf"], ...]. Where none is finite, mean, low
 * and high are null.
 */
void ls_run_metrics_append_metrics(const ls_run_metrics *data, const ls_metrics_question *question,
                                   ls_text *text);

/* Appends ["loss", "lr", ...]. */
void ls_run_metrics_append_names(const ls_run_metrics *data, ls_text *text);

#endif
