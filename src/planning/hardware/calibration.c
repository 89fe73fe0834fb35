// SPDX-License-Identifier: Apache-2.0
#include "planning/hardware/calibration.h"

#include "base/assert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FILE_BYTES_MAX = 16 << 20,
    CORES_MAX = 65536,
    SETTINGS_MAX = 64,
    EXCHANGES_MAX = 256,
};
static const double seconds_max = 1e6;

#define ELEMENTS                                                                                             \
    {                                                                                                        \
        "elements", 1.0                                                                                      \
    }
#define ELEMENTS_COLUMNS                                                                                     \
    2,                                                                                                       \
    {                                                                                                        \
        ELEMENTS,                                                                                            \
        {                                                                                                    \
            "columns", 0.0                                                                                   \
        }                                                                                                    \
    }
#define GEMM                                                                                                 \
    3,                                                                                                       \
    {                                                                                                        \
        {"m", 1.0}, {"n", 1.0},                                                                              \
        {                                                                                                    \
            "k", 1.0                                                                                         \
        }                                                                                                    \
    }
#define ATTENTION                                                                                            \
    2,                                                                                                       \
    {                                                                                                        \
        {"length", 2.0},                                                                                     \
        {                                                                                                    \
            "head_dim", 1.0                                                                                  \
        }                                                                                                    \
    }
static const ls_work_info infos[LS_WORK_COUNT] = {
    [LS_WORK_GEMM_NN] = {"gemm_nn", GEMM},
    [LS_WORK_GEMM_NT] = {"gemm_nt", GEMM},
    [LS_WORK_GEMM_TN] = {"gemm_tn", GEMM},
    [LS_WORK_GEMM_TN_ADD] = {"gemm_tn_add", GEMM},
    [LS_WORK_ATTENTION_FORWARD] = {"attention_forward", ATTENTION},
    [LS_WORK_ATTENTION_BACKWARD] = {"attention_backward", ATTENTION},
    [LS_WORK_NORM_FORWARD] = {"norm_forward", ELEMENTS_COLUMNS},
    [LS_WORK_ADD_NORM_FORWARD] = {"add_norm_forward", ELEMENTS_COLUMNS},
    [LS_WORK_NORM_BACKWARD] = {"norm_backward", ELEMENTS_COLUMNS},
    [LS_WORK_CROSS_ENTROPY] = {"cross_entropy", ELEMENTS_COLUMNS},
    [LS_WORK_COLUMN_SUMS] = {"column_sums", ELEMENTS_COLUMNS},
    [LS_WORK_EMBEDDING_FORWARD] = {"embedding_forward", ELEMENTS_COLUMNS},
    [LS_WORK_EMBEDDING_BACKWARD] = {"embedding_backward", ELEMENTS_COLUMNS},
    [LS_WORK_ROTARY] = {"rotary", 1, {ELEMENTS}},
    [LS_WORK_GELU_FORWARD] = {"gelu_forward", 1, {ELEMENTS}},
    [LS_WORK_GELU_BACKWARD] = {"gelu_backward", 1, {ELEMENTS}},
    [LS_WORK_SWIGLU_FORWARD] = {"swiglu_forward", 1, {ELEMENTS}},
    [LS_WORK_SWIGLU_BACKWARD] = {"swiglu_backward", 1, {ELEMENTS}},
    [LS_WORK_ADD] = {"add", 1, {ELEMENTS}},
    [LS_WORK_FILL] = {"fill", 1, {ELEMENTS}},
    [LS_WORK_COPY] = {"copy", 1, {ELEMENTS}},
    [LS_WORK_TREE_SUM] = {"tree_sum", 2, {ELEMENTS, {"inputs", 1.0}}},
    [LS_WORK_ADAMW] = {"adamw", 1, {ELEMENTS}},
    [LS_WORK_HASH] = {"hash", 1, {ELEMENTS}},
};

const ls_work_info *ls_work_info_of(ls_work work)
{
    LS_ASSERT(work < LS_WORK_COUNT);
    return &infos[work];
}

uint32_t ls_work_grid_size(const ls_work_grid *grid)
{
    uint32_t size = 1;
    for (int axis = 0; axis < LS_WORK_AXES_MAX; axis++) {
        size *= grid->counts[axis];
    }
    return size;
}

/* ---- between points ---- */

/* The place of a size on an axis: between points `low` and `low + 1`, at `weight` of the way; times
 * `factor`. */
typedef struct place {
    uint32_t low, high;
    double weight;     /* weight of `high`; below 0 before the first point */
    double log_factor; /* beyond the last point */
} place;

static place place_on(const ls_work_axis *axis, const double *points, uint32_t count, double size)
{
    const double last = points[count - 1];
    if (size >= last || count == 1) {
        return (place){.low = count - 1, .high = count - 1, .log_factor = axis->power * log(size / last)};
    }
    uint32_t low = 0;
    while (low + 2 < count && points[low + 1] <= size) {
        low++;
    }
    const double weight = log(size / points[low]) / log(points[low + 1] / points[low]);
    return (place){.low = low, .high = low + 1, .weight = weight};
}

/* The logarithm of the seconds: linear in the logarithm of each size. */
static double log_seconds(const ls_work_grid *grid, const place *places, int axis, uint32_t offset)
{
    if (axis == LS_WORK_AXES_MAX) {
        return log(grid->seconds[offset]);
    }
    const place *p = &places[axis];
    const uint32_t at = offset * grid->counts[axis];
    const double low = log_seconds(grid, places, axis + 1, at + p->low) + p->log_factor;
    return p->weight == 0.0
               ? low
               : low + p->weight * (log_seconds(grid, places, axis + 1, at + p->high) + p->log_factor - low);
}

double ls_work_grid_seconds(const ls_work_info *info, const ls_work_grid *grid, const double *sizes)
{
    place places[LS_WORK_AXES_MAX] = {0};
    for (uint32_t axis = 0; axis < info->axis_count; axis++) {
        LS_ASSERT(sizes[axis] > 0.0 && grid->counts[axis] >= 1);
        places[axis] = place_on(&info->axes[axis], grid->points[axis], grid->counts[axis], sizes[axis]);
    }
    return exp(log_seconds(grid, places, 0, 0));
}

/* ---- between settings ---- */

/* What is to be timed under a setting. */
typedef struct question {
    const ls_calibration *calibration;
    ls_work work;
    const double *sizes;
} question;

static double setting_seconds(const question *q, const ls_calibration_setting *setting)
{
    const double seconds = ls_work_grid_seconds(&infos[q->work], &setting->work[q->work], q->sizes);
    return seconds > setting->launch_s ? seconds : setting->launch_s;
}

/* Of the settings with exactly `threads` threads: the one with most workers up to `workers`, and
 * the one with fewest above. */
static void around_workers(const ls_calibration *calibration, uint32_t threads, uint32_t workers,
                           const ls_calibration_setting **below, const ls_calibration_setting **above)
{
    *below = *above = NULL;
    for (uint32_t i = 0; i < calibration->setting_count; i++) {
        const ls_calibration_setting *s = &calibration->settings[i];
        if (s->threads != threads) {
            continue;
        }
        if (s->workers <= workers && (!*below || s->workers > (*below)->workers)) {
            *below = s;
        }
        if (s->workers > workers && (!*above || s->workers < (*above)->workers)) {
            *above = s;
        }
    }
}

/* Seconds with a thread count that was measured. */
static double seconds_with_threads(const question *q, uint32_t threads, uint32_t workers)
{
    const ls_calibration_setting *below = NULL, *above = NULL;
    around_workers(q->calibration, threads, workers, &below, &above);
    if (!below) {
        return setting_seconds(q, above);
    }
    const double seconds = setting_seconds(q, below);
    if (above) {
        const double weight = (double)(workers - below->workers) / (double)(above->workers - below->workers);
        return seconds + weight * (setting_seconds(q, above) - seconds);
    }
    const double cores = q->calibration->cores, measured = (double)below->workers * threads,
                 busy = (double)workers * threads;
    return seconds * fmax(1.0, busy / fmax(cores, measured));
}

/* The largest measured thread count up to `threads`, and the smallest above it (0: none). */
static void around_threads(const ls_calibration *calibration, uint32_t threads, uint32_t *below,
                           uint32_t *above)
{
    *below = *above = 0;
    for (uint32_t i = 0; i < calibration->setting_count; i++) {
        const uint32_t t = calibration->settings[i].threads;
        *below = t <= threads && t > *below ? t : *below;
        *above = t > threads && (*above == 0 || t < *above) ? t : *above;
    }
}

static double answer(const question *q, uint32_t threads, uint32_t workers)
{
    uint32_t below = 0, above = 0;
    LS_ASSERT(threads >= 1 && workers >= 1);
    around_threads(q->calibration, threads, &below, &above);
    const double seconds = seconds_with_threads(q, below, workers);
    if (below == threads || above == 0) {
        return seconds;
    }
    const double weight = log((double)threads / below) / log((double)above / below);
    return exp(log(seconds) + weight * (log(seconds_with_threads(q, above, workers)) - log(seconds)));
}

double ls_calibration_seconds(const ls_calibration *calibration, uint32_t threads, uint32_t workers,
                              ls_work work, const double *sizes)
{
    LS_ASSERT(work < LS_WORK_COUNT);
    const question q = {.calibration = calibration, .work = work, .sizes = sizes};
    return answer(&q, threads, workers);
}

/* Of the measured rank count nearest to `ranks`; between sizes linear in the bytes. */
double ls_calibration_exchange_s(const ls_calibration *calibration, uint32_t ranks, double bytes)
{
    const ls_calibration_exchange *below = NULL, *above = NULL;
    uint32_t nearest = 0;
    for (uint32_t i = 0; i < calibration->exchange_count; i++) {
        const uint32_t r = calibration->exchanges[i].ranks;
        if (nearest == 0 || fabs((double)r - ranks) < fabs((double)nearest - ranks)) {
            nearest = r;
        }
    }
    for (uint32_t i = 0; i < calibration->exchange_count; i++) {
        const ls_calibration_exchange *e = &calibration->exchanges[i];
        if (e->ranks == nearest && e->bytes <= bytes && (!below || e->bytes > below->bytes)) {
            below = e;
        }
        if (e->ranks == nearest && e->bytes > bytes && (!above || e->bytes < above->bytes)) {
            above = e;
        }
    }
    if (!below || !above) {
        return below ? below->seconds * bytes / below->bytes : above ? above->seconds : 0.0;
    }
    return below->seconds +
           (above->seconds - below->seconds) * (bytes - below->bytes) / (above->bytes - below->bytes);
}

/* ---- whose it is ---- */

bool ls_calibration_is_of(const ls_calibration *calibration, const char *device, uint32_t cores,
                          const char *kernels, char *why_out, size_t why_bytes)
{
    if (strcmp(calibration->device, device) != 0) {
        snprintf(why_out, why_bytes, "it was measured on %s, this is %s", calibration->device, device);
    } else if (calibration->cores != cores) {
        snprintf(why_out, why_bytes, "it was measured with %u cores, this machine has %u", calibration->cores,
                 cores);
    } else if (strcmp(calibration->kernels, kernels) != 0) {
        snprintf(why_out, why_bytes, "it was measured with the kernels %s, these are %s",
                 calibration->kernels, kernels);
    } else {
        return true;
    }
    return false;
}

/* ---- how good it is ---- */

bool ls_calibration_doubt(const ls_calibration *calibration, char *text_out, size_t text_bytes)
{
    const bool is_busy = calibration->undisturbed < LS_CALIBRATION_QUIET;
    char share[48] = "";
    text_out[0] = '\0';
    if (is_busy) {
        snprintf(share, sizeof share, " (it had %.0f %% of the time)", 100.0 * calibration->undisturbed);
    }
    if (is_busy || calibration->quick) {
        snprintf(text_out, text_bytes, "%scalibration%s%s: calibrate again%s",
                 calibration->quick ? "quick " : "", is_busy ? " on a busy machine" : "", share,
                 is_busy ? " when it is quiet" : "");
    }
    return text_out[0] != '\0';
}

void ls_calibration_spread(const ls_calibration *calibration, double *low_out, double *high_out)
{
    const double few_sizes = calibration->quick ? 1.5 : 1.0, least = 0.05;
    const double share = calibration->undisturbed < LS_CALIBRATION_QUIET ? calibration->undisturbed : 1.0;
    *low_out = fmax(share, least) / few_sizes;
    *high_out = few_sizes;
}

/* ---- reading ---- */

typedef struct reader {
    ls_arena *arena;
    const char *name;
} reader;

static ls_status read_text(const reader *r, const json_t *object, const char *key, const char **out)
{
    const char *text = NULL;
    LS_TRY(ls_json_get_string(object, r->name, key, NULL, &text));
    if (!text) {
        return ls_fail(LS_ERR_DATA, "%s: the key \"%s\" is missing", r->name, key);
    }
    *out = ls_arena_strdup(r->arena, text);
    return LS_OK;
}

static ls_status read_count(const reader *r, const json_t *object, const char *key, uint64_t max,
                            uint32_t *out)
{
    uint64_t value = 0;
    LS_TRY(ls_json_get_u64(object, r->name, key, 1, max, 0, &value));
    if (value == 0) {
        return ls_fail(LS_ERR_DATA, "%s: the key \"%s\" is missing", r->name, key);
    }
    *out = (uint32_t)value;
    return LS_OK;
}

/* Numbers above 0 that an array must have. */
typedef struct number_list {
    const char *key; /* in errors */
    size_t count;
    double max;
    bool ascending; /* each must exceed the one before */
} number_list;

static ls_status read_numbers(const reader *r, const json_t *array, const number_list *list, double *out)
{
    const char *key = list->key;
    const size_t count = list->count;
    const double max = list->max;
    if (json_array_size(array) != count) {
        return ls_fail(LS_ERR_DATA, "%s: the list \"%s\" has %zu numbers instead of %zu", r->name, key,
                       json_array_size(array), count);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        const double value = json_is_number(item) ? json_number_value(item) : NAN;
        if (!(value > 0.0 && value <= max) || (list->ascending && i > 0 && value <= out[i - 1])) {
            return ls_fail(LS_ERR_DATA, "%s: number %zu of %s is %g, allowed is %sabove 0 to %g", r->name,
                           i + 1, key, value, list->ascending ? "ascending, " : "", max);
        }
        out[i] = value;
    }
    return LS_OK;
}

static ls_status read_grid(const reader *r, const json_t *object, const ls_work_info *info,
                           ls_work_grid *grid)
{
    if (!json_is_object(object)) {
        return ls_fail(LS_ERR_DATA, "%s: %s was not measured: run 'lockstep calibrate' again", r->name,
                       info->name);
    }
    for (uint32_t axis = 0; axis < LS_WORK_AXES_MAX; axis++) {
        grid->counts[axis] = 1;
        if (axis >= info->axis_count) {
            continue;
        }
        const json_t *points = json_object_get(object, info->axes[axis].name);
        const size_t count = json_array_size(points);
        if (count < 1 || count > LS_WORK_POINTS_MAX) {
            return ls_fail(LS_ERR_DATA, "%s: %s.%s has %zu points, allowed are 1 to %d", r->name, info->name,
                           info->axes[axis].name, count, LS_WORK_POINTS_MAX);
        }
        grid->counts[axis] = (uint32_t)count;
        const number_list list = {info->axes[axis].name, count, 1e15, true};
        LS_TRY(read_numbers(r, points, &list, grid->points[axis]));
    }
    const uint32_t size = ls_work_grid_size(grid);
    grid->seconds = ls_arena_new(r->arena, double, size);
    const number_list list = {info->name, size, seconds_max, false};
    return read_numbers(r, json_object_get(object, "seconds"), &list, grid->seconds);
}

static ls_status read_setting(const reader *r, const json_t *object, ls_calibration_setting *setting)
{
    LS_TRY(read_count(r, object, "threads", CORES_MAX, &setting->threads));
    LS_TRY(read_count(r, object, "workers", CORES_MAX, &setting->workers));
    LS_TRY(ls_json_get_f64(object, r->name, "launch_s", 0.0, 1.0, 0.0, &setting->launch_s));
    const json_t *work = json_object_get(object, "work");
    for (int w = 0; w < LS_WORK_COUNT; w++) {
        LS_TRY(read_grid(r, json_object_get(work, infos[w].name), &infos[w], &setting->work[w]));
    }
    return LS_OK;
}

static ls_status read_settings(const reader *r, const json_t *root, ls_calibration *c)
{
    const json_t *array = json_object_get(root, "settings");
    const size_t count = json_array_size(array);
    if (count < 1 || count > SETTINGS_MAX) {
        return ls_fail(LS_ERR_DATA, "%s: the list \"settings\" has %zu measurements; allowed are 1 to %d",
                       r->name, count, SETTINGS_MAX);
    }
    c->settings = ls_arena_new(r->arena, ls_calibration_setting, count);
    c->setting_count = (uint32_t)count;
    bool has_one = false;
    for (size_t i = 0; i < count; i++) {
        c->settings[i] = (ls_calibration_setting){0};
        LS_TRY(read_setting(r, json_array_get(array, i), &c->settings[i]));
        has_one = has_one || (c->settings[i].threads == 1 && c->settings[i].workers == 1);
    }
    return has_one ? LS_OK
                   : ls_fail(LS_ERR_DATA,
                             "%s: the measurement with one thread in one process is missing: run 'lockstep "
                             "calibrate' again",
                             r->name);
}

static ls_status read_exchanges(const reader *r, const json_t *root, ls_calibration *c)
{
    const json_t *array = json_object_get(root, "exchanges");
    const size_t count = json_array_size(array);
    if (count > EXCHANGES_MAX) {
        return ls_fail(LS_ERR_DATA, "%s: the list \"exchanges\" has %zu measurements; allowed are up to %d",
                       r->name, count, EXCHANGES_MAX);
    }
    c->exchanges = ls_arena_new(r->arena, ls_calibration_exchange, count + 1);
    c->exchange_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *object = json_array_get(array, i);
        ls_calibration_exchange *e = &c->exchanges[i];
        *e = (ls_calibration_exchange){0};
        LS_TRY(read_count(r, object, "ranks", CORES_MAX, &e->ranks));
        LS_TRY(ls_json_get_f64(object, r->name, "bytes", 1.0, 1e15, 1.0, &e->bytes));
        LS_TRY(ls_json_get_f64(object, r->name, "seconds", 0.0, seconds_max, 0.0, &e->seconds));
    }
    return LS_OK;
}

ls_status ls_calibration_parse(ls_arena *arena, const json_t *root, const char *name,
                               ls_calibration *calibration_out)
{
    const reader r = {.arena = arena, .name = name};
    const char *format = NULL;
    uint64_t version = 0;
    ls_calibration c = {0};
    LS_TRY(ls_json_get_string(root, name, "format", "", &format));
    LS_TRY(ls_json_get_u64(root, name, "version", 0, 1u << 30, 0, &version));
    if (strcmp(format, "lockstep-calibration") != 0 || version != 1) {
        return ls_fail(LS_ERR_DATA,
                       "%s is not a calibration of version 1 (format \"%s\", version %u): run 'lockstep "
                       "calibrate' to make one",
                       name, format, (unsigned)version);
    }
    LS_TRY(read_text(&r, root, "device", &c.device));
    LS_TRY(read_text(&r, root, "kernels", &c.kernels));
    LS_TRY(read_text(&r, root, "program", &c.program));
    LS_TRY(read_text(&r, root, "date", &c.date));
    LS_TRY(read_count(&r, root, "cores", CORES_MAX, &c.cores));
    LS_TRY(ls_json_get_f64(root, name, "took_s", 0.0, seconds_max, 0.0, &c.took_s));
    LS_TRY(ls_json_get_f64(root, name, "undisturbed", 0.0, 1.0, 1.0, &c.undisturbed));
    LS_TRY(ls_json_get_bool(root, name, "quick", false, &c.quick));
    LS_TRY(read_settings(&r, root, &c));
    LS_TRY(read_exchanges(&r, root, &c));
    const json_t *disk = json_object_get(root, "disk");
    if (disk) {
        LS_TRY(ls_json_get_f64(disk, name, "write_bytes_ps", 0.0, 1e15, 0.0, &c.disk_write_bytes_ps));
        LS_TRY(ls_json_get_f64(disk, name, "read_bytes_ps", 0.0, 1e15, 0.0, &c.disk_read_bytes_ps));
    }
    *calibration_out = c;
    return LS_OK;
}

ls_status ls_calibration_load(ls_arena *arena, const char *path, ls_calibration *calibration_out)
{
    json_t *root = NULL;
    LS_TRY(ls_json_load(path, FILE_BYTES_MAX, &root));
    const ls_status status = ls_calibration_parse(arena, root, path, calibration_out);
    json_decref(root);
    return status;
}

/* ---- writing ---- */

/* Four digits exceed the precision of any measurement. */
static double rounded(double value)
{
    char text[32];
    double result = value;
    snprintf(text, sizeof text, "%.4g", value);
    (void)sscanf(text, "%lf", &result);
    return result;
}

static json_t *numbers(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, json_real(rounded(values[i])));
    }
    return array;
}

static json_t *grid_to_json(const ls_work_info *info, const ls_work_grid *grid)
{
    json_t *object = json_object();
    for (uint32_t axis = 0; axis < info->axis_count; axis++) {
        json_object_set_new(object, info->axes[axis].name, numbers(grid->points[axis], grid->counts[axis]));
    }
    json_object_set_new(object, "seconds", numbers(grid->seconds, ls_work_grid_size(grid)));
    return object;
}

static json_t *setting_to_json(const ls_calibration_setting *setting)
{
    json_t *work = json_object();
    for (int w = 0; w < LS_WORK_COUNT; w++) {
        json_object_set_new(work, infos[w].name, grid_to_json(&infos[w], &setting->work[w]));
    }
    return json_pack("{s:i, s:i, s:f, s:o}", "threads", (int)setting->threads, "workers",
                     (int)setting->workers, "launch_s", rounded(setting->launch_s), "work", work);
}

json_t *ls_calibration_to_json(const ls_calibration *c)
{
    json_t *settings = json_array(), *exchanges = json_array();
    for (uint32_t i = 0; i < c->setting_count; i++) {
        json_array_append_new(settings, setting_to_json(&c->settings[i]));
    }
    for (uint32_t i = 0; i < c->exchange_count; i++) {
        const ls_calibration_exchange *e = &c->exchanges[i];
        json_array_append_new(exchanges, json_pack("{s:i, s:f, s:f}", "ranks", (int)e->ranks, "bytes",
                                                   e->bytes, "seconds", rounded(e->seconds)));
    }
    return json_pack("{s:s, s:i, s:s, s:i, s:s, s:s, s:s, s:f, s:f, s:b, s:o, s:o, s:{s:f, s:f}}", "format",
                     "lockstep-calibration", "version", 1, "device", c->device, "cores", (int)c->cores,
                     "kernels", c->kernels, "program", c->program, "date", c->date, "took_s",
                     rounded(c->took_s), "undisturbed", rounded(c->undisturbed), "quick", c->quick,
                     "settings", settings, "exchanges", exchanges, "disk", "write_bytes_ps",
                     rounded(c->disk_write_bytes_ps), "read_bytes_ps", rounded(c->disk_read_bytes_ps));
}
