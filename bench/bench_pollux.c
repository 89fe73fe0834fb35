// SPDX-License-Identifier: Apache-2.0
/*
 * The queue's policy on the workloads of Pollux (OSDI 2021), in its simulated cluster of 16 nodes
 * with 4 GPUs each: bench_pollux DATA. bench/simulate.sh runs it.
 *
 * DATA holds profiles/ and the folders of the workloads, from petuum/adaptdl, branch
 * osdi21-artifact, Apache-2.0. Printed, for each load: the mean job completion time of its
 * workloads in seconds, for our reading of Tiresias (`las`) and for `fair`, beside what the paper's
 * simulator gave. Each start and each resize costs 30 s.
 *
 * How long a job takes follows from its profile, a folder per application (cifar10, bert, ...):
 * placements.csv and scalability.csv hold the seconds of a step and of its synchronisation by
 * placement and batch per GPU; validation-BATCH.csv holds progress and gradient noise by epoch. A
 * job keeps the batch it asked for on any number of GPUs (it accumulates as many micro-batches as
 * its memory requires), so a run takes
 *
 *   steps(batch) x step_s(gpus, nodes, batch / gpus)
 *   steps = sum over epochs of progress(epoch) / gain(batch, epoch)
 *   gain  = (var + sqr) / (var / scale + sqr),   scale = batch / smallest batch
 *
 * (McCandlish et al. 2018; Pollux, section 3.2). Epochs and the largest batch per GPU are those of
 * the published simulator. The workloads do not say how elastic a job is: here it may run on a
 * quarter of the GPUs it asks for up to twice as many. Placements that were not measured are
 * interpolated between the nearest that were.
 */
#include "base/csv.h"
#include "base/file.h"
#include "base/text.h"
#include "orchestration/simulate/cluster.h"
#include "orchestration/simulate/simulator.h"
#include "orchestration/simulate/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GPUS_PER_NODE = 4, /* of the cluster that was measured */
    NODES_MOST = 16,
    GPUS_MOST = 64,
    BATCHES_MOST = 16,
    BATCH_MAX = 1 << 20,
    EPOCHS_MOST = 1000,
    FILE_BYTES_MAX = 16 << 20,
    START_MS = 30000
};

/* One measured point: a step at a batch per GPU, on so many GPUs of so many nodes. */
typedef struct point {
    uint32_t nodes, gpus;
    double batch, step_s, sync_s;
} point;

/* What training with one batch size did, epoch by epoch. */
typedef struct validation {
    uint32_t batch, epochs;
    double *progress, *grad_sqr, *grad_var;
} validation;

typedef struct application {
    const char *name;
    point *points; /* by nodes, GPUs, batch */
    size_t point_count;
    validation batches[BATCHES_MOST]; /* by batch */
    uint32_t batch_count, epochs;
    double local_least, local_most; /* batch per GPU */
    struct application *next;
} application;

typedef struct known_speed {
    const application *app;
    uint32_t batch;
    ls_speed speed;
    struct known_speed *next;
} known_speed;

typedef struct profiles {
    ls_arena *arena;
    const char *folder;
    application *applications;
    known_speed *speeds;
} profiles;

/* How long the published simulator trains each, and the largest batch it gives one GPU (0: the
 * largest measured). */
static const struct {
    const char *name;
    uint32_t epochs, local_most;
} published[] = {{"bert", 2, 0},      {"cifar10", 100, 0},    {"ncf", 10, 0},
                 {"imagenet", 90, 0}, {"deepspeech2", 80, 0}, {"yolov3", 50, 8}};

/* The fewest nodes that hold so many GPUs. */
static uint32_t nodes_for(uint32_t gpus)
{
    return (gpus + GPUS_PER_NODE - 1) / GPUS_PER_NODE;
}

/* ---- reading ---- */

static ls_status load_table(profiles *pollux, const char *path, ls_csv *csv)
{
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(pollux->arena, path, FILE_BYTES_MAX, &text, &bytes));
    return ls_csv_parse(pollux->arena, text, bytes, path, csv);
}

/* A placement is written as a digit per node: 124 is one GPU on the first node, two on the second,
 * four on the third. */
static void read_placement(int64_t placement, point *to)
{
    for (; placement > 0; placement /= 10) {
        to->nodes++;
        to->gpus += (uint32_t)(placement % 10);
    }
}

static ls_status append_points(profiles *pollux, application *app, const char *file, bool by_placement)
{
    ls_csv csv;
    LS_TRY(load_table(pollux, ls_arena_printf(pollux->arena, "%s/%s/%s", pollux->folder, app->name, file),
                      &csv));
    point *points = ls_arena_new(pollux->arena, point, app->point_count + csv.row_count);
    for (size_t i = 0; i < app->point_count; i++) {
        points[i] = app->points[i];
    }
    app->points = points;
    for (size_t i = 0; i < csv.row_count; i++) {
        const ls_csv_row *row = &csv.rows[i];
        point p = {0};
        int64_t nodes = 0, gpus = 0, placement = 0;
        if (by_placement) {
            LS_TRY(ls_csv_i64(&csv, row, "placement", 1, 4444, 0, &placement));
            read_placement(placement, &p);
        } else {
            LS_TRY(ls_csv_i64(&csv, row, "num_nodes", 1, NODES_MOST, 0, &nodes));
            LS_TRY(ls_csv_i64(&csv, row, "num_replicas", 1, GPUS_MOST, 0, &gpus));
            p.nodes = (uint32_t)nodes;
            p.gpus = (uint32_t)gpus;
        }
        LS_TRY(ls_csv_f64(&csv, row, "local_bsz", 1.0, 1e7, 0.0, &p.batch));
        LS_TRY(ls_csv_f64(&csv, row, "step_time", 0.0, 1e5, 0.0, &p.step_s));
        LS_TRY(ls_csv_f64(&csv, row, "sync_time", 0.0, 1e5, 0.0, &p.sync_s));
        if (p.gpus == 0 || p.batch == 0.0 || p.step_s == 0.0) {
            return ls_fail(LS_ERR_DATA, "%s:%u: a blank cell", csv.name, row->line);
        }
        app->points[app->point_count++] = p;
    }
    return LS_OK;
}

static int compare_points(const void *a, const void *b)
{
    const point *x = a, *y = b;
    if (x->nodes != y->nodes) {
        return x->nodes < y->nodes ? -1 : 1;
    }
    if (x->gpus != y->gpus) {
        return x->gpus < y->gpus ? -1 : 1;
    }
    return (x->batch > y->batch) - (x->batch < y->batch);
}

/* Sorts the points, and makes one of those that differ in the order of their nodes alone (13 and
 * 22). */
static void merge_points(application *app)
{
    size_t kept = 0;
    qsort(app->points, app->point_count, sizeof app->points[0], compare_points);
    for (size_t i = 0, end; i < app->point_count; i = end) {
        point mean = app->points[i];
        for (end = i + 1; end < app->point_count && compare_points(&app->points[i], &app->points[end]) == 0;
             end++) {
            mean.step_s += app->points[end].step_s;
            mean.sync_s += app->points[end].sync_s;
        }
        mean.step_s /= (double)(end - i);
        mean.sync_s /= (double)(end - i);
        app->points[kept++] = mean;
    }
    app->point_count = kept;
}

static ls_status read_validation(profiles *pollux, const char *path, uint32_t batch, validation *out)
{
    ls_csv csv;
    LS_TRY(load_table(pollux, path, &csv));
    if (csv.row_count > EPOCHS_MOST || csv.row_count == 0) {
        return ls_fail(LS_ERR_DATA, "%s has %zu epochs; 1 to %d are expected", path, csv.row_count,
                       EPOCHS_MOST);
    }
    *out = (validation){.batch = batch, .epochs = (uint32_t)csv.row_count};
    out->progress = ls_arena_new(pollux->arena, double, csv.row_count);
    out->grad_sqr = ls_arena_new(pollux->arena, double, csv.row_count);
    out->grad_var = ls_arena_new(pollux->arena, double, csv.row_count);
    for (size_t i = 0; i < csv.row_count; i++) {
        LS_TRY(ls_csv_f64(&csv, &csv.rows[i], "progress", 0.0, 1e12, 0.0, &out->progress[i]));
        LS_TRY(ls_csv_f64(&csv, &csv.rows[i], "grad_sqr", 0.0, 1e30, 0.0, &out->grad_sqr[i]));
        LS_TRY(ls_csv_f64(&csv, &csv.rows[i], "grad_var", 0.0, 1e30, 0.0, &out->grad_var[i]));
    }
    return LS_OK;
}

static int compare_validations(const void *a, const void *b)
{
    const validation *x = a, *y = b;
    return (x->batch > y->batch) - (x->batch < y->batch);
}

static ls_status load_validations(profiles *pollux, application *app)
{
    char **paths = NULL;
    size_t count = 0;
    LS_TRY(ls_path_glob(pollux->arena,
                        ls_arena_printf(pollux->arena, "%s/%s/validation-*.csv", pollux->folder, app->name),
                        &paths, &count));
    for (size_t i = 0; i < count && app->batch_count < BATCHES_MOST; i++) {
        const unsigned long batch = strtoul(strrchr(paths[i], '-') + 1, NULL, 10);
        if (batch < 1 || batch > BATCH_MAX) {
            return ls_fail(LS_ERR_DATA, "%s: its name says a batch of %lu", paths[i], batch);
        }
        LS_TRY(read_validation(pollux, paths[i], (uint32_t)batch, &app->batches[app->batch_count]));
        app->batch_count++;
    }
    qsort(app->batches, app->batch_count, sizeof app->batches[0], compare_validations);
    app->epochs = app->batches[0].epochs;
    for (uint32_t i = 1; i < app->batch_count; i++) {
        app->epochs = app->batches[i].epochs < app->epochs ? app->batches[i].epochs : app->epochs;
    }
    return LS_OK;
}

static void apply_published(application *app)
{
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        if (strcmp(published[i].name, app->name) == 0) {
            app->epochs = published[i].epochs < app->epochs ? published[i].epochs : app->epochs;
            app->local_most = published[i].local_most ? published[i].local_most : app->local_most;
        }
    }
}

static ls_status load_application(profiles *pollux, const char *name, application **app_out)
{
    for (application *app = pollux->applications; app; app = app->next) {
        if (strcmp(app->name, name) == 0) {
            *app_out = app;
            return LS_OK;
        }
    }
    if (!name[0] || strpbrk(name, "/.*?[") ||
        !ls_path_is_dir(ls_path_join(pollux->arena, pollux->folder, name))) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s has no profile of '%.40s'", pollux->folder, name);
    }
    application *app = ls_arena_new(pollux->arena, application, 1);
    app->name = name;
    LS_TRY(append_points(pollux, app, "placements.csv", true));
    app->local_least = 1e9;
    for (size_t i = 0; i < app->point_count; i++) {
        app->local_least = fmin(app->local_least, app->points[i].batch);
        app->local_most = fmax(app->local_most, app->points[i].batch);
    }
    LS_TRY(append_points(pollux, app, "scalability.csv", false));
    merge_points(app);
    LS_TRY(load_validations(pollux, app));
    apply_published(app);
    app->next = pollux->applications;
    pollux->applications = app;
    *app_out = app;
    return LS_OK;
}

/* ---- a step ---- */

static double between(double x, double x0, double y0, double x1, double y1)
{
    return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y0;
}

/* The points of one placement, at a batch per GPU; ends are not extrapolated. False: it was not
 * measured. */
static bool measured_step(const application *app, uint32_t nodes, uint32_t gpus, double batch, double *step_s,
                          double *sync_s)
{
    const point *low = NULL, *high = NULL;
    for (size_t i = 0; i < app->point_count; i++) {
        const point *p = &app->points[i];
        if (p->nodes == nodes && p->gpus == gpus) {
            low = p->batch <= batch || !low ? p : low;
            high = p->batch >= batch && !high ? p : high;
        }
    }
    if (!low) {
        return false;
    }
    high = high ? high : low;
    *step_s = between(batch, low->batch, low->step_s, high->batch, high->step_s);
    *sync_s = between(batch, low->batch, low->sync_s, high->batch, high->sync_s);
    return true;
}

/* On `nodes` nodes that were measured with other numbers of GPUs: between the nearest. */
static bool step_on_nodes(const application *app, uint32_t nodes, uint32_t gpus, double batch, double *step_s,
                          double *sync_s)
{
    double low_step = 0.0, low_sync = 0.0, high_step = 0.0, high_sync = 0.0;
    uint32_t low = gpus, high = gpus;
    while (low >= 1 && !measured_step(app, nodes, low, batch, &low_step, &low_sync)) {
        low--;
    }
    while (high <= GPUS_MOST && !measured_step(app, nodes, high, batch, &high_step, &high_sync)) {
        high++;
    }
    if (low < 1 && high > GPUS_MOST) {
        return false;
    }
    if (low < 1 || high > GPUS_MOST) {
        *step_s = low < 1 ? high_step : low_step;
        *sync_s = low < 1 ? high_sync : low_sync;
        return true;
    }
    *step_s = between(gpus, low, low_step, high, high_step);
    *sync_s = between(gpus, low, low_sync, high, high_sync);
    return true;
}

/* Any placement: between the nearest numbers of nodes that were measured. */
static void step_anywhere(const application *app, uint32_t nodes, uint32_t gpus, double batch, double *step_s,
                          double *sync_s)
{
    double low_step = 0.0, low_sync = 0.0, high_step = 0.0, high_sync = 0.0;
    uint32_t low = nodes, high = nodes;
    while (low >= 1 && !step_on_nodes(app, low, gpus, batch, &low_step, &low_sync)) {
        low--;
    }
    while (high <= NODES_MOST && !step_on_nodes(app, high, gpus, batch, &high_step, &high_sync)) {
        high++;
    }
    if (low < 1 || high > NODES_MOST) {
        *step_s = low < 1 ? high_step : low_step;
        *sync_s = low < 1 ? high_sync : low_sync;
        return;
    }
    *step_s = between(nodes, low, low_step, high, high_step);
    *sync_s = between(nodes, low, low_sync, high, high_sync);
}

/* ---- a run ---- */

static void gradient_noise(const application *app, double batch, uint32_t epoch, double *sqr, double *var)
{
    uint32_t high = 0;
    while (high + 1 < app->batch_count && app->batches[high].batch < batch) {
        high++;
    }
    const validation *b = &app->batches[high];
    const validation *a = high > 0 && b->batch > batch ? &app->batches[high - 1] : b;
    *sqr = between(batch, a->batch, a->grad_sqr[epoch], b->batch, b->grad_sqr[epoch]);
    *var = between(batch, a->batch, a->grad_var[epoch], b->batch, b->grad_var[epoch]);
}

/* An epoch is done when the slowest of all batch sizes would have done it. */
static double progress_after(const application *app, uint32_t epochs)
{
    double least = epochs ? INFINITY : 0.0;
    for (uint32_t i = 0; i < app->batch_count && epochs; i++) {
        least = fmin(least, app->batches[i].progress[epochs - 1]);
    }
    return least;
}

static double steps_of_run(const application *app, double batch)
{
    const double scale = batch / app->batches[0].batch;
    double steps = 0.0;
    for (uint32_t epoch = 0; epoch < app->epochs; epoch++) {
        double sqr, var;
        gradient_noise(app, batch, epoch, &sqr, &var);
        const double gain = (var + sqr) / (var / scale + sqr);
        steps += (progress_after(app, epoch + 1) - progress_after(app, epoch)) / gain;
    }
    return steps;
}

/* Milliseconds of a whole run, 0 when the batch can't be cut so. */
static uint64_t run_ms(const application *app, uint32_t batch, uint32_t gpus, uint32_t nodes)
{
    const double smallest = app->batches[0].batch, largest = app->batches[app->batch_count - 1].batch;
    const double local = ceil((double)batch / gpus - 1e-8);
    double accumulated = ceil(local / app->local_most - 1e-8) - 1.0;
    if (gpus == 1 && batch > smallest) {
        accumulated = fmax(1.0, accumulated);
    }
    double micro = ceil(local / (accumulated + 1.0) - 1e-8);
    micro = fmin(micro, floor(largest / (gpus * (accumulated + 1.0))));
    if (micro < app->local_least || nodes > gpus) {
        return 0;
    }
    double step_s = 0.0, sync_s = 0.0;
    step_anywhere(app, nodes, gpus, micro, &step_s, &sync_s);
    const double whole_step_s = step_s + accumulated * fmax(0.0, step_s - sync_s);
    const double seconds = steps_of_run(app, gpus * micro * (accumulated + 1.0)) * whole_step_s;
    return isfinite(seconds) && seconds < 1e10 ? (uint64_t)fmax(1.0, llround(1000.0 * seconds)) : 0;
}

static ls_status find_speed(profiles *pollux, const char *name, uint32_t batch, const ls_speed **speed_out)
{
    application *app = NULL;
    LS_TRY(load_application(pollux, name, &app));
    for (known_speed *known = pollux->speeds; known; known = known->next) {
        if (known->app == app && known->batch == batch) {
            *speed_out = &known->speed;
            return LS_OK;
        }
    }
    if (batch < app->batches[0].batch || batch > app->batches[app->batch_count - 1].batch) {
        return ls_fail(LS_ERR_DATA, "%s was measured with batches of %u to %u, not with %u", name,
                       app->batches[0].batch, app->batches[app->batch_count - 1].batch, batch);
    }
    uint64_t *table = ls_arena_new(pollux->arena, uint64_t, GPUS_MOST * NODES_MOST);
    for (uint32_t gpus = 1; gpus <= GPUS_MOST; gpus++) {
        for (uint32_t nodes = 1; nodes <= NODES_MOST; nodes++) {
            /* Nodes with more GPUs than those that were measured count as the fewest that were. */
            const uint32_t least = nodes_for(gpus);
            table[(gpus - 1) * NODES_MOST + nodes - 1] = run_ms(app, batch, gpus,
                                                                nodes < least  ? least
                                                                : nodes > gpus ? gpus
                                                                               : nodes);
        }
    }
    known_speed *known = ls_arena_new(pollux->arena, known_speed, 1);
    *known = (known_speed){.app = app,
                           .batch = batch,
                           .speed = {.gpus_most = GPUS_MOST, .nodes_most = NODES_MOST, .run_ms = table},
                           .next = pollux->speeds};
    pollux->speeds = known;
    *speed_out = &known->speed;
    return LS_OK;
}

/* ---- a workload ---- */

/* From a quarter of the GPUs it asks for to twice as many, as far as the batch can be divided so
 * and each size is faster than the ones below it. */
static void find_sizes(const ls_speed *speed, uint32_t gpus, uint32_t *least_out, uint32_t *most_out)
{
    uint64_t best_ms = UINT64_MAX;
    *least_out = *most_out = gpus;
    for (uint32_t n = (gpus + 3) / 4; n <= 2 * gpus && n <= GPUS_MOST; n++) {
        const uint64_t ms = speed->run_ms[(n - 1) * NODES_MOST + nodes_for(n) - 1];
        if (ms > 0 && ms < best_ms) {
            best_ms = ms;
            *least_out = n < *least_out ? n : *least_out;
            *most_out = n > *most_out ? n : *most_out;
        }
    }
}

/* One row as a row of our own trace format, whose jobs are named by the number of their row. */
static ls_status convert_row(profiles *pollux, const ls_csv *csv, size_t index, const ls_speed **speeds,
                             ls_text *own)
{
    const ls_csv_row *row = &csv->rows[index];
    const char *name = ls_csv_text(csv, row, "application");
    int64_t gpus = 0, batch = 0;
    uint32_t least = 0, most = 0;
    LS_TRY(ls_csv_i64(csv, row, "num_replicas", 1, GPUS_MOST, 1, &gpus));
    LS_TRY(ls_csv_i64(csv, row, "batch_size", 1, BATCH_MAX, 1, &batch));
    LS_TRY(find_speed(pollux, name, (uint32_t)batch, &speeds[index]));
    const uint32_t nodes = nodes_for((uint32_t)gpus);
    const uint64_t run_ms = speeds[index]->run_ms[(gpus - 1) * NODES_MOST + nodes - 1];
    if (run_ms == 0) {
        return ls_fail(LS_ERR_DATA, "%s:%u: %s can't train a batch of %d on %d GPUs", csv->name, row->line,
                       name, (int)batch, (int)gpus);
    }
    find_sizes(speeds[index], (uint32_t)gpus, &least, &most);
    ls_text_printf(own, "%zu,%s,%.3f,%d,%u,%u\n", index, ls_csv_text(csv, row, "time"), 1e-3 * (double)run_ms,
                   (int)gpus, least, most);
    return LS_OK;
}

static ls_status load_workload(profiles *pollux, const char *path, ls_trace *trace_out)
{
    ls_arena *arena = pollux->arena;
    ls_csv csv;
    LS_TRY(load_table(pollux, path, &csv));
    const ls_speed **speeds = ls_arena_new(arena, const ls_speed *, csv.row_count);
    ls_text own = {0};
    ls_status status = LS_OK;
    ls_text_append(&own, "job,submit_s,duration_s,gpus,min_gpus,max_gpus\n");
    for (size_t i = 0; i < csv.row_count && status == LS_OK; i++) {
        status = convert_row(pollux, &csv, i, speeds, &own);
    }
    if (status == LS_OK) {
        const char *text = ls_arena_strdup(arena, ls_text_string(&own));
        status = ls_trace_parse(arena, text, own.bytes, path, LS_TRACE_OWN, trace_out);
    }
    ls_text_release(&own);
    for (size_t i = 0; status == LS_OK && i < trace_out->job_count; i++) {
        ls_trace_job *job = &trace_out->jobs[i];
        job->speed = speeds[strtoul(job->name, NULL, 10)];
    }
    return status;
}

/* ---- the table ---- */

/*
 * Tiresias as published: attained service in two queues, and nothing that protects a running job.
 */
static ls_policy_settings tiresias(void)
{
    ls_policy_settings settings = ls_policy_settings_default();
    settings.order = LS_ORDER_LAS;
    settings.elastic = false;
    settings.min_run_ms = 60 * 1000;
    settings.preemptions_max = 1000;
    settings.patience_ms = 30ull * 86400 * 1000;
    memset(settings.las_thresholds_device_ms, 0, sizeof settings.las_thresholds_device_ms);
    settings.las_thresholds_device_ms[0] = 16ull * 3600 * 1000;
    return settings;
}

/* The mean completion time over all workloads of a load, seconds. */
static ls_status mean_jct_s(const char *data, const char *load, const ls_policy_settings *settings,
                            double *seconds_out)
{
    ls_arena arena = {0};
    profiles pollux = {.arena = &arena, .folder = ls_path_join(&arena, data, "profiles")};
    ls_policy_cluster cluster;
    char **paths = NULL;
    size_t count = 0;
    double sum = 0.0;
    ls_status status = ls_cluster_parse(&arena, "16x4", &cluster);
    if (status == LS_OK) {
        status = ls_path_glob(&arena, ls_arena_printf(&arena, "%s/%s/*.csv", data, load), &paths, &count);
    }
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        const ls_simulator_options options = {
            .settings = *settings, .start_cost_ms = START_MS, .restart_cost_ms = START_MS};
        ls_trace trace;
        ls_sim_run run;
        ls_sim_summary summary;
        status = load_workload(&pollux, paths[i], &trace);
        status = status != LS_OK ? status : ls_simulator_run(&arena, &trace, &cluster, &options, &run);
        if (status == LS_OK) {
            ls_sim_summarise(&arena, &run, &summary);
            sum += 3600.0 * summary.all.jct_h;
        }
    }
    ls_arena_release(&arena);
    *seconds_out = sum / (double)count;
    return status;
}

/* Seconds, from the artifact of the paper. */
static const struct {
    const char *load, *folder;
    double tiresias, optimus, pollux;
} published_jct[] = {{"x0.5", "workloads-0.5", 2091, 2395, 1534},
                     {"x1", "workloads", 4038, 5682, 2751},
                     {"x1.5", "workloads-1.5", 6182, 7235, 3685},
                     {"x2", "workloads-2.0", 10040, 9721, 5289}};

int main(int argc, char **argv)
{
    const ls_policy_settings baseline = tiresias(), fair = ls_policy_settings_default();
    if (argc != 2) {
        fprintf(stderr, "usage: bench_pollux DATA\n");
        return 2;
    }
    printf("%-6s %10s %10s %10s | %14s %10s %14s\n", "load", "Tiresias", "Optimus", "Pollux", "our Tiresias",
           "our fair", "over Tiresias");
    for (size_t i = 0; i < sizeof published_jct / sizeof published_jct[0]; i++) {
        double baseline_s = 0.0, fair_s = 0.0;
        ls_status status = mean_jct_s(argv[1], published_jct[i].folder, &baseline, &baseline_s);
        status = status != LS_OK ? status : mean_jct_s(argv[1], published_jct[i].folder, &fair, &fair_s);
        if (status != LS_OK) {
            fprintf(stderr, "bench_pollux: %s\n", ls_error_text());
            return 1;
        }
        printf("%-6s %10.0f %10.0f %10.0f | %14.0f %10.0f %13.2fx\n", published_jct[i].load,
               published_jct[i].tiresias, published_jct[i].optimus, published_jct[i].pollux, baseline_s,
               fair_s, fair_s / published_jct[i].tiresias);
    }
    return 0;
}
