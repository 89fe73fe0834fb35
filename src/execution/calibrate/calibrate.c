// SPDX-License-Identifier: Apache-2.0
#include "execution/calibrate/calibrate.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/math.h"
#include "comm/group/comm_bench.h"
#include "comm/transport/wait.h"
#include "compute/queue.h"
#include "execution/calibrate/probe.h"
#include "execution/train/memory.h"
#include "storage/checkpoint/bench.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 40, ROUNDS_MIN = 3, THREADS_MAX = 256, SETTINGS_MAX = 32 };
static const double sample_s = 1.5e-3; /* least time of one visit of a point */
/* The result has settled when the sum of all times changes by less than this from round to
 * round. */
static const double settled_part = 4e-3;
static const double near = 1.1; /* visits up to this many times the fastest count */

/* ---- the points ---- */

typedef enum axis_kind {
    NONE,
    ROWS,
    FEATURES,
    LENGTHS,
    HEAD_DIMS,
    ELEMENTS,
    FLAT_ELEMENTS, /* elements of gradient buffers */
    COLUMNS,
    VOCABULARIES,
    INPUTS,
    AXIS_KINDS
} axis_kind;

typedef struct axis_points {
    uint32_t count;
    double points[LS_WORK_POINTS_MAX];
} axis_points;

static const axis_points points_of[AXIS_KINDS] = {
    [NONE] = {1, {0}},
    [ROWS] = {4, {32, 64, 128, 1024}},
    [FEATURES] = {5, {64, 192, 384, 768, 1536}},
    [LENGTHS] = {4, {32, 128, 512, 1024}},
    [HEAD_DIMS] = {3, {32, 64, 128}},
    [ELEMENTS] = {4, {16384, 131072, 1048576, 4194304}},
    [FLAT_ELEMENTS] = {4, {16384, 131072, 1048576, 3145728}},
    [COLUMNS] = {3, {64, 256, 1024}},
    [VOCABULARIES] = {2, {256, 8192}},
    [INPUTS] = {4, {1, 2, 3, 4}},
};

static const axis_kind axes_of[LS_WORK_COUNT][LS_WORK_AXES_MAX] = {
    [LS_WORK_GEMM_NN] = {ROWS, FEATURES, FEATURES},
    [LS_WORK_GEMM_NT] = {ROWS, FEATURES, FEATURES},
    [LS_WORK_GEMM_TN] = {FEATURES, FEATURES, ROWS},
    [LS_WORK_GEMM_TN_ADD] = {FEATURES, FEATURES, ROWS},
    [LS_WORK_ATTENTION_FORWARD] = {LENGTHS, HEAD_DIMS},
    [LS_WORK_ATTENTION_BACKWARD] = {LENGTHS, HEAD_DIMS},
    [LS_WORK_NORM_FORWARD] = {ELEMENTS, COLUMNS},
    [LS_WORK_ADD_NORM_FORWARD] = {ELEMENTS, COLUMNS},
    [LS_WORK_NORM_BACKWARD] = {ELEMENTS, COLUMNS},
    [LS_WORK_CROSS_ENTROPY] = {ELEMENTS, VOCABULARIES},
    [LS_WORK_COLUMN_SUMS] = {ELEMENTS, COLUMNS},
    [LS_WORK_EMBEDDING_FORWARD] = {ELEMENTS, COLUMNS},
    [LS_WORK_EMBEDDING_BACKWARD] = {ELEMENTS, COLUMNS},
    [LS_WORK_ROTARY] = {ELEMENTS},
    [LS_WORK_GELU_FORWARD] = {ELEMENTS},
    [LS_WORK_GELU_BACKWARD] = {ELEMENTS},
    [LS_WORK_SWIGLU_FORWARD] = {ELEMENTS},
    [LS_WORK_SWIGLU_BACKWARD] = {ELEMENTS},
    [LS_WORK_ADD] = {ELEMENTS},
    [LS_WORK_FILL] = {ELEMENTS},
    [LS_WORK_COPY] = {ELEMENTS},
    [LS_WORK_TREE_SUM] = {FLAT_ELEMENTS, INPUTS},
    [LS_WORK_ADAMW] = {FLAT_ELEMENTS},
    [LS_WORK_HASH] = {FLAT_ELEMENTS},
};

/* For quick: every other point, counted from the last; of the features, only small ones. */
static axis_points thinned(axis_kind kind)
{
    const axis_points *all = &points_of[kind];
    const uint32_t last = kind == FEATURES ? 2 : all->count - 1;
    axis_points thin = {0};
    for (uint32_t i = last % 2; i <= last; i += 2) {
        thin.points[thin.count++] = all->points[i];
    }
    return thin;
}

static void make_grid(ls_arena *arena, ls_work work, bool quick, ls_work_grid *grid)
{
    *grid = (ls_work_grid){0};
    for (uint32_t axis = 0; axis < LS_WORK_AXES_MAX; axis++) {
        const axis_kind kind = axes_of[work][axis];
        const axis_points p = quick ? thinned(kind) : points_of[kind];
        grid->counts[axis] = p.count;
        memcpy(grid->points[axis], p.points, sizeof p.points);
    }
    grid->seconds = ls_arena_new(arena, double, ls_work_grid_size(grid));
}

static void sizes_of(const ls_work_grid *grid, uint32_t index, double *sizes_out)
{
    for (int axis = LS_WORK_AXES_MAX; axis-- > 0;) {
        sizes_out[axis] = grid->points[axis][index % grid->counts[axis]];
        index /= grid->counts[axis];
    }
}

/* ---- one setting: workers that all time the same points at the same time ---- */

/* The times of all visits of all points of a setting, by one worker. The launch time is the last
 * point. */
typedef struct visits {
    double *seconds; /* (points, ROUNDS_MAX) */
    uint32_t points;
    double undisturbed; /* share in the newest round (ls_probe_undisturbed) */
} visits;

typedef struct setting_crew {
    const ls_calibration_setting *setting;
    uint32_t rounds;      /* finished so far */
    double sum_s;         /* times of all points, added up */
    visits *visits;       /* of each worker */
    pthread_mutex_t gate; /* held until all workers have been started */
    bool is_called_off;   /* not all could be started: those that were do nothing */
    pthread_barrier_t barrier;
} setting_crew;

typedef struct worker {
    setting_crew *crew;
    uint32_t index;
    ls_status status;
    char error[512];
} worker;

static uint32_t point_count(const ls_calibration_setting *setting)
{
    uint32_t count = 1;
    for (int work = 0; work < LS_WORK_COUNT; work++) {
        count += ls_work_grid_size(&setting->work[work]);
    }
    return count;
}

/* Visits one point. All workers begin together, so that the point is timed with all of them busy. A
 * worker that has failed still comes to the barrier: the others would wait for it forever. */
static ls_status visit(ls_probe_bench *bench, setting_crew *crew, ls_work work, uint32_t index,
                       ls_status before, double *seconds_out)
{
    double sizes[LS_WORK_AXES_MAX];
    sizes_of(&crew->setting->work[work], index, sizes);
    const ls_status status = before == LS_OK ? ls_probe_begin(bench, work, sizes) : before;
    pthread_barrier_wait(&crew->barrier);
    return status == LS_OK ? ls_probe_run(bench, sample_s, seconds_out) : status;
}

/* Visits all points once. */
static ls_status visit_all(ls_probe_bench *bench, setting_crew *crew, const visits *v, ls_status status)
{
    uint32_t point = 0;
    for (int work = 0; work < LS_WORK_COUNT; work++) {
        const uint32_t size = ls_work_grid_size(&crew->setting->work[work]);
        for (uint32_t i = 0; i < size; i++, point++) {
            status =
                visit(bench, crew, (ls_work)work, i, status, &v->seconds[point * ROUNDS_MAX + crew->rounds]);
        }
    }
    if (status == LS_OK) {
        v->seconds[point * ROUNDS_MAX + crew->rounds] = ls_probe_launch_s(bench);
    }
    return status;
}

static void *run_worker(void *context)
{
    worker *w = context;
    ls_probe_bench *bench = NULL;
    pthread_mutex_lock(&w->crew->gate);
    pthread_mutex_unlock(&w->crew->gate);
    if (w->crew->is_called_off) {
        return NULL;
    }
    const ls_calibration_setting *setting = w->crew->setting;
    const ls_status status = ls_probe_bench_create(setting->threads, setting->workers > 1, &bench);
    visits *mine = &w->crew->visits[w->index];
    w->status = visit_all(bench, w->crew, mine, status);
    mine->undisturbed = w->status == LS_OK ? ls_probe_undisturbed(bench) : 1.0;
    snprintf(w->error, sizeof w->error, "%s", w->status == LS_OK ? "" : ls_error_text());
    ls_probe_bench_destroy(bench);
    return NULL;
}

/* Starts all workers but the first, which is the calling thread; returns the number of workers. */
static uint32_t start_workers(setting_crew *crew, worker *workers, pthread_t *threads)
{
    uint32_t started = 1;
    workers[0] = (worker){.crew = crew};
    for (; started < crew->setting->workers; started++) {
        workers[started] = (worker){.crew = crew, .index = started};
        if (pthread_create(&threads[started], NULL, run_worker, &workers[started]) != 0) {
            break;
        }
    }
    return started;
}

/*
 * One round of a setting.
 *
 * The barrier counts all workers, so none may reach it before it is certain that all exist: the
 * gate is held while threads are started, and if one cannot be, the others find is_called_off
 * set once the gate opens.
 */
static ls_status run_crew(setting_crew *crew)
{
    worker workers[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    LS_ASSERT(crew->setting->workers <= THREADS_MAX);
    pthread_mutex_init(&crew->gate, NULL);
    pthread_barrier_init(&crew->barrier, NULL, crew->setting->workers);
    pthread_mutex_lock(&crew->gate);
    const uint32_t started = start_workers(crew, workers, threads);
    crew->is_called_off = started < crew->setting->workers;
    pthread_mutex_unlock(&crew->gate);
    run_worker(&workers[0]);
    ls_status status = crew->is_called_off ? ls_fail(LS_ERR_MEMORY, "not enough memory to start %u threads",
                                                     crew->setting->workers)
                                           : workers[0].status;
    for (uint32_t i = 1; i < started; i++) {
        pthread_join(threads[i], NULL);
        if (status == LS_OK && workers[i].status != LS_OK) {
            status = ls_fail(workers[i].status, "%s", workers[i].error);
        }
    }
    pthread_barrier_destroy(&crew->barrier);
    pthread_mutex_destroy(&crew->gate);
    return status;
}

/* ---- from visits to times ---- */

double ls_calibrate_settled_s(const double *times, uint32_t count)
{
    double sorted[ROUNDS_MAX], sum = 0.0;
    uint32_t used = 0;
    LS_ASSERT(count >= 1 && count <= ROUNDS_MAX);
    memcpy(sorted, times, count * sizeof *times);
    ls_sort_f64(sorted, count);
    while (used < count && sorted[used] <= near * sorted[0]) {
        sum += sorted[used++];
    }
    return sum / used;
}

static double point_seconds(const setting_crew *crew, uint32_t point)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < crew->setting->workers; i++) {
        sum += ls_calibrate_settled_s(&crew->visits[i].seconds[point * ROUNDS_MAX], crew->rounds);
    }
    return sum / crew->setting->workers;
}

/* Fills the grids. Returns the sum of all times, which shows whether the result still changes. */
static double settle(const setting_crew *crew, ls_calibration_setting *setting)
{
    uint32_t point = 0;
    double sum_s = 0.0;
    for (int work = 0; work < LS_WORK_COUNT; work++) {
        ls_work_grid *grid = &setting->work[work];
        const uint32_t size = ls_work_grid_size(grid);
        for (uint32_t i = 0; i < size; i++) {
            grid->seconds[i] = point_seconds(crew, point++);
            sum_s += grid->seconds[i];
        }
    }
    setting->launch_s = point_seconds(crew, point);
    return sum_s;
}

/* ---- all settings ---- */

typedef struct calibration_run {
    ls_arena *arena;
    const ls_calibrate_options *options;
    ls_calibration *calibration;
    setting_crew *crews; /* one per setting */
    double start_s;
    double setting_s; /* the longest round of a setting so far */
    /* Undisturbed shares of workers with one thread, added up over all rounds, and their number. */
    double undisturbed;
    uint32_t undisturbed_count;
} calibration_run;

static void report(const calibration_run *run, const char *what)
{
    if (run->options->progress) {
        run->options->progress(run->options->context, what, ls_clock_monotonic_s() - run->start_s,
                               run->options->seconds);
    }
}

static bool has_memory(uint32_t threads, uint32_t workers)
{
    return ls_probe_bench_bytes(threads) * workers <= ls_memory_available() / 2;
}

static void add_setting(calibration_run *run, uint32_t threads, uint32_t workers)
{
    ls_calibration *c = run->calibration;
    while (workers > 1 && !has_memory(threads, workers)) {
        workers /= 2;
    }
    for (uint32_t i = 0; i < c->setting_count; i++) {
        if (c->settings[i].threads == threads && c->settings[i].workers == workers) {
            return;
        }
    }
    LS_ASSERT(c->setting_count < SETTINGS_MAX);
    ls_calibration_setting *setting = &c->settings[c->setting_count];
    setting_crew *crew = &run->crews[c->setting_count++];
    *setting = (ls_calibration_setting){.threads = threads, .workers = workers};
    for (int work = 0; work < LS_WORK_COUNT; work++) {
        make_grid(run->arena, (ls_work)work, run->options->quick, &setting->work[work]);
    }
    crew->setting = setting;
    crew->visits = ls_arena_new(run->arena, visits, workers);
    const uint32_t points = point_count(setting);
    for (uint32_t i = 0; i < workers; i++) {
        crew->visits[i] =
            (visits){.seconds = ls_arena_new(run->arena, double, points *ROUNDS_MAX), .points = points};
    }
}

/* The settings: 1, 2, 4, ... threads and one thread per core; each alone and, as far as memory
 * allows, with as many workers as fill all cores. */
static void add_settings(calibration_run *run)
{
    const uint32_t cores = run->calibration->cores < THREADS_MAX ? run->calibration->cores : THREADS_MAX;
    run->calibration->settings = ls_arena_new(run->arena, ls_calibration_setting, SETTINGS_MAX);
    run->crews = ls_arena_new(run->arena, setting_crew, SETTINGS_MAX);
    for (uint32_t threads = 1; threads < cores; threads *= 2) {
        add_setting(run, threads, 1);
        add_setting(run, threads, cores / threads);
    }
    add_setting(run, cores, 1);
}

static bool is_over(const calibration_run *run)
{
    return ls_clock_monotonic_s() - run->start_s + run->setting_s > run->options->seconds;
}

/* A round of one setting. The first round is always made; later ones only if they will end in time,
 * judging by the longest so far. */
static ls_status run_setting(calibration_run *run, uint32_t index, uint32_t round)
{
    char what[96];
    setting_crew *crew = &run->crews[index];
    ls_calibration_setting *s = &run->calibration->settings[index];
    if (round > 0 && is_over(run)) {
        return LS_OK;
    }
    snprintf(what, sizeof what, "kernels, round %u: %u x %u thread%s", round + 1, s->workers, s->threads,
             s->threads == 1 ? "" : "s");
    report(run, what);
    const double begun_s = ls_clock_monotonic_s();
    LS_TRY(run_crew(crew));
    crew->rounds++;
    run->setting_s = fmax(run->setting_s, ls_clock_monotonic_s() - begun_s);
    crew->sum_s = settle(crew, s);
    for (uint32_t i = 0; s->threads == 1 && i < s->workers; i++) {
        run->undisturbed += crew->visits[i].undisturbed;
        run->undisturbed_count++;
    }
    return LS_OK;
}

static ls_status run_rounds(calibration_run *run)
{
    double before_s = 0.0;
    uint32_t still = 0;
    for (uint32_t round = 0; round < ROUNDS_MAX && still < 2 && (round == 0 || !is_over(run)); round++) {
        double sum_s = 0.0;
        for (uint32_t i = 0; i < run->calibration->setting_count; i++) {
            LS_TRY(run_setting(run, i, round));
            sum_s += run->crews[i].sum_s;
        }
        still = round + 1 >= ROUNDS_MIN && fabs(sum_s - before_s) < settled_part * sum_s ? still + 1 : 0;
        before_s = sum_s;
    }
    return LS_OK;
}

/* ---- collectives and disk ---- */

/* Also of more ranks than cores, which meet in turn. */
static ls_status measure_exchanges(calibration_run *run)
{
    static const uint64_t bytes[] = {64, 65536, 4194304};
    enum { SIZES = sizeof bytes / sizeof bytes[0], RANKS_MAX = 64 };
    ls_calibration *c = run->calibration;
    c->exchanges = ls_arena_new(run->arena, ls_calibration_exchange, 8 * SIZES);
    for (uint32_t ranks = 2; ranks <= 2 * c->cores && ranks <= RANKS_MAX; ranks *= 2) {
        ls_comm_bench_result results[SIZES];
        const ls_comm_bench_options options = {
            .ranks = ranks, .bytes = bytes, .bytes_count = SIZES, .rounds = run->options->quick ? 3 : 9};
        report(run, "all-reduce");
        LS_TRY(ls_comm_bench(&options, results));
        for (int i = 0; i < SIZES; i++) {
            c->exchanges[c->exchange_count++] = (ls_calibration_exchange){
                .ranks = ranks, .bytes = (double)bytes[i], .seconds = 1e-6 * results[i].best_us};
        }
    }
    return LS_OK;
}

static ls_status measure_disk(calibration_run *run)
{
    const ls_checkpoint_bench_options options = {.folder = run->options->folder,
                                                 .bytes = run->options->quick ? 8u << 20 : 64u << 20,
                                                 .rounds = run->options->quick ? 1 : 3};
    ls_checkpoint_bench_result result;
    if (!run->options->folder) {
        return LS_OK;
    }
    report(run, "disk");
    LS_TRY(ls_checkpoint_bench(&options, &result));
    run->calibration->disk_write_bytes_ps = result.write_bytes_ps;
    run->calibration->disk_read_bytes_ps = result.load_bytes_ps;
    return LS_OK;
}

static void warn_if_failed(ls_status status, const char *what)
{
    if (status != LS_OK) {
        ls_log_warn("%s measured: %s", what, ls_error_text());
        ls_error_clear();
    }
}

/* ---- the machine ---- */

static ls_status identify(calibration_run *run)
{
    ls_queue *queue = NULL;
    LS_TRY(ls_queue_create_cpu(1, &queue));
    ls_calibration *c = run->calibration;
    c->device = ls_arena_strdup(run->arena, ls_queue_device_name(queue));
    c->kernels = ls_arena_strdup(run->arena, ls_queue_determinism_class(queue));
    c->program = LS_VERSION;
    c->cores = ls_wait_cores();
    ls_queue_destroy(queue);
    char date[32];
    const time_t now = (time_t)ls_clock_wall_s();
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    c->date = ls_arena_strdup(run->arena, date);
    return LS_OK;
}

ls_status ls_calibrate(ls_arena *arena, const ls_calibrate_options *options, ls_calibration *calibration_out)
{
    ls_calibration calibration = {0};
    calibration_run run = {
        .arena = arena, .options = options, .calibration = &calibration, .start_s = ls_clock_monotonic_s()};
    LS_TRY(identify(&run));
    warn_if_failed(measure_exchanges(&run), "the speed of exchanges between ranks could not be");
    warn_if_failed(measure_disk(&run), "the speed of the disk could not be");
    add_settings(&run);
    LS_TRY(run_rounds(&run));
    calibration.undisturbed = run.undisturbed / run.undisturbed_count;
    calibration.quick = options->quick;
    calibration.took_s = ls_clock_monotonic_s() - run.start_s;
    *calibration_out = calibration;
    return LS_OK;
}

/* ---- the stored calibration ---- */

const char *ls_calibration_path(ls_arena *arena)
{
    return ls_home_path(arena, "calibration.json");
}

bool ls_calibration_find(ls_arena *arena, const ls_queue *queue, ls_calibration *calibration_out,
                         char *why_out, size_t why_bytes)
{
    const char *path = ls_calibration_path(arena);
    char differs[256];
    if (!path || !ls_path_exists(path)) {
        snprintf(why_out, why_bytes,
                 "this machine was never measured: 'lockstep calibrate' measures it in under a minute");
        return false;
    }
    if (ls_calibration_load(arena, path, calibration_out) != LS_OK) {
        snprintf(why_out, why_bytes, "%s", ls_error_text());
        ls_error_clear();
        return false;
    }
    if (!ls_calibration_is_of(calibration_out, ls_queue_device_name(queue), ls_wait_cores(),
                              ls_queue_determinism_class(queue), differs, sizeof differs)) {
        snprintf(why_out, why_bytes, "%s is not used: %s; run 'lockstep calibrate' on this machine", path,
                 differs);
        return false;
    }
    return true;
}
