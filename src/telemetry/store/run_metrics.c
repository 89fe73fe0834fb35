// SPDX-License-Identifier: Apache-2.0
#include "telemetry/store/run_metrics.h"

#include "base/assert.h"
#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void ls_run_metrics_release(ls_run_metrics *data)
{
    for (size_t i = 0; i < data->count; i++) {
        ls_series_release(&data->metrics[i].series);
        free(data->metrics[i].name);
    }
    free(data->metrics);
    free(data->table);
    *data = (ls_run_metrics){0};
}

/* ---- names ---- */

static bool has_name(const ls_metric *metric, const char *name, size_t bytes)
{
    return strncmp(metric->name, name, bytes) == 0 && metric->name[bytes] == '\0';
}

/* The place of a name in the table: its own, or the free one where it would go. */
static uint32_t *place_of(const ls_run_metrics *data, const char *name, size_t bytes)
{
    size_t at = (size_t)ls_xxh3(name, bytes, data->seed) & (data->table_size - 1);
    for (;; at = (at + 1) & (data->table_size - 1)) {
        uint32_t *place = &data->table[at];
        if (*place == 0) {
            return place;
        }
        if (has_name(&data->metrics[*place - 1], name, bytes)) {
            return place;
        }
    }
}

static void grow_table(ls_run_metrics *data)
{
    uint32_t *old = data->table;
    if (!old) { /* those who choose the names could give all of them one place, if they knew it */
        (void)!getrandom(&data->seed, sizeof data->seed, 0);
    }
    data->table_size = data->table_size ? 4 * data->table_size : 64;
    data->table = calloc(data->table_size, sizeof *data->table);
    LS_ASSERT(data->table && "not enough memory for the names of metrics");
    for (size_t i = 0; i < data->count; i++) {
        const char *name = data->metrics[i].name;
        *place_of(data, name, strlen(name)) = (uint32_t)i + 1;
    }
    free(old);
}

static ls_metric *new_metric(ls_run_metrics *data, const char *name, size_t bytes)
{
    if (data->count == data->capacity) {
        data->capacity = data->capacity ? 2 * data->capacity : 32;
        data->metrics = realloc(data->metrics, data->capacity * sizeof *data->metrics);
        LS_ASSERT(data->metrics && "not enough memory for metrics");
    }
    ls_metric *metric = &data->metrics[data->count++];
    char *copy = malloc(bytes + 1);
    LS_ASSERT(copy && "not enough memory for the name of a metric");
    memcpy(copy, name, bytes);
    copy[bytes] = '\0';
    *metric = (ls_metric){.name = copy};
    return metric;
}

/* Lines name the same metrics in the same order: the one after the last is tried first. NULL: too
 * many. */
static ls_metric *find_or_make(ls_run_metrics *data, const char *name, size_t name_bytes)
{
    const size_t bytes = strnlen(name, name_bytes); /* a zero byte ends a name */
    if (data->guess < data->count && has_name(&data->metrics[data->guess], name, bytes)) {
        return &data->metrics[data->guess++];
    }
    if (2 * data->count >= data->table_size) {
        grow_table(data);
    }
    uint32_t *place = place_of(data, name, bytes);
    if (*place > 0) {
        data->guess = *place;
        return &data->metrics[*place - 1];
    }
    if (data->count == LS_RUN_METRICS_MAX) {
        return NULL;
    }
    ls_metric *metric = new_metric(data, name, bytes);
    *place = (uint32_t)data->count;
    data->guess = data->count;
    return metric;
}

bool ls_run_metrics_name(ls_run_metrics *data, const char *name, size_t bytes)
{
    return find_or_make(data, name, bytes) != NULL;
}

static const ls_series *find(const ls_run_metrics *data, const char *name, size_t name_bytes)
{
    const size_t bytes = strnlen(name, name_bytes);
    const uint32_t *place = data->table_size > 0 ? place_of(data, name, bytes) : NULL;
    return place && *place > 0 ? &data->metrics[*place - 1].series : NULL;
}

const ls_series *ls_run_metrics_find(const ls_run_metrics *data, const char *name)
{
    return find(data, name, strlen(name));
}

double ls_run_metrics_last(const ls_run_metrics *data, const char *name)
{
    const ls_series *series = ls_run_metrics_find(data, name);
    return series && series->points > 0 ? series->last.value : NAN;
}

/* ---- points ---- */

bool ls_run_metrics_add(ls_run_metrics *data, const char *name, size_t bytes, const ls_point *point)
{
    ls_metric *metric = find_or_make(data, name, bytes);
    if (!metric) {
        data->refused++;
        return false;
    }
    ls_series *series = &metric->series;
    if (series->points > 0 && point->step < series->last.step) {
        data->cut += ls_series_cut(series, point->step > 0 ? point->step - 1 : 0);
    }
    if (series->points > 0 && point->step < series->last.step) {
        data->cut += series->points; /* step 0 again */
        ls_series_release(series);
    }
    ls_series_add(series, point);
    data->points++;
    data->version++;
    data->last_step = point->step;
    data->last_time_s = point->time_s > data->last_time_s ? point->time_s : data->last_time_s;
    return true;
}

static bool is_one_of(const ls_pair *pair, const char *const *names)
{
    for (; *names; names++) {
        if (strlen(*names) == pair->name_bytes && memcmp(*names, pair->name, pair->name_bytes) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_named(const ls_pair *pair, const char *name)
{
    const char *const names[] = {name, NULL};
    return is_one_of(pair, names);
}

/* The sum of a metric of this program so far. */
static void add_sum(ls_run_metrics *data, const char *name, const ls_point *last, double more)
{
    const double before = ls_run_metrics_last(data, name);
    ls_point point = *last;
    point.value = (isfinite(before) ? before : 0.0) + (isfinite(more) ? more : 0.0);
    const ls_series *series = ls_run_metrics_find(data, name);
    if (!series || series->points == 0 || point.step > series->last.step) {
        (void)ls_run_metrics_add(data, name, strlen(name), &point);
    }
}

/* True: the pair says where the line belongs and is no metric. */
static bool take_place(const ls_pair *pair, ls_point *point, bool *has_step)
{
    if (!strchr("_sgitSw", pair->name[0])) {
        return false;
    }
    static const char *const steps[] = {"step", "_step", "global_step", "iteration", "iter", "Step", NULL};
    static const char *const times[] = {"time", "timestamp", "_timestamp", "wall_time", NULL};
    if (is_one_of(pair, steps)) {
        if (!*has_step && pair->value >= 0 && pair->value < 9e15) {
            point->step = (uint64_t)pair->value;
            *has_step = true;
        }
        return true;
    }
    if (is_one_of(pair, times)) {
        point->time_s = pair->value > 0 && pair->value < 1e11 ? pair->value : point->time_s;
        return true;
    }
    return false;
}

void ls_run_metrics_add_line(ls_run_metrics *data, const ls_pairs *pairs)
{
    ls_point point = {.step = data->last_step + (data->points > 0)};
    bool has_step = false;
    size_t others = 0;
    double step_s = NAN, tokens = NAN;
    for (size_t i = 0; i < pairs->count; i++) {
        others += !take_place(&pairs->items[i], &point, &has_step);
    }
    for (size_t i = 0; i < pairs->count && others > 0; i++) {
        const ls_pair *pair = &pairs->items[i];
        ls_point ignored = {0};
        bool ignored_step = true;
        if (take_place(pair, &ignored, &ignored_step)) {
            continue;
        }
        const ls_series *known = pair->is_null ? find(data, pair->name, pair->name_bytes) : NULL;
        if (pair->is_null && (!known || known->points == 0)) {
            continue; /* never measured */
        }
        point.value = pair->value;
        (void)ls_run_metrics_add(data, pair->name, pair->name_bytes, &point);
        step_s = is_named(pair, "step_s") ? pair->value : step_s;
        tokens = is_named(pair, "tokens") ? pair->value : tokens;
    }
    if (!isnan(step_s) && !isnan(tokens)) {
        add_sum(data, "elapsed_s", &point, step_s);
        add_sum(data, "tokens_seen", &point, tokens);
    }
}
