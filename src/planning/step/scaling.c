// SPDX-License-Identifier: Apache-2.0
#include "planning/step/scaling.h"

#include "base/assert.h"

#include <math.h>

#define SECONDS_PER_DAY 86400.0

static void fill_point(const ls_setting *setting, const ls_scaling_options *options, ls_scaling_point *point)
{
    point->goodput = options->goodput ? options->goodput(options->context, setting, &point->estimate) : 1.0;
    point->days = options->tokens / point->estimate.tokens_ps / point->goodput / SECONDS_PER_DAY;
    point->gpu_hours = 24.0 * point->days * (double)point->gpus;
    point->cost_usd = point->gpu_hours * options->price_gpu_hour;
}

/* The term whose share of the step is larger at `later` than at `earlier` by the most. */
static ls_term find_grown_term(const ls_estimate *earlier, const ls_estimate *later)
{
    int most = LS_TERM_BUBBLE;
    double most_growth = 0.0;
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        const double growth =
            later->time.terms_s[i] / later->time.step_s - earlier->time.terms_s[i] / earlier->time.step_s;
        if (growth > most_growth) {
            most_growth = growth;
            most = i;
        }
    }
    return (ls_term)most;
}

/* Fills in what depends on the previous count and on the first. */
static void compare_point(const ls_scaling_point *first, const ls_scaling_point *before,
                          ls_scaling_point *point)
{
    const double speed = point->goodput * point->estimate.tokens_ps;
    const double speed_first = first->goodput * first->estimate.tokens_ps;
    const double speed_before = before->goodput * before->estimate.tokens_ps;
    point->speedup = speed / speed_first;
    point->efficiency = point->speedup * (double)first->gpus / (double)point->gpus;
    point->marginal =
        point == first ? 1.0 : log(speed / speed_before) / log((double)point->gpus / (double)before->gpus);
    point->grew = find_grown_term(&first->estimate, &point->estimate);
}

static bool is_beaten(const ls_scaling *scaling, const ls_scaling_point *point)
{
    for (size_t i = 0; i < scaling->count; i++) {
        const ls_scaling_point *other = &scaling->points[i];
        if (other->fits && other != point && other->days <= point->days &&
            other->gpu_hours <= point->gpu_hours &&
            (other->days < point->days || other->gpu_hours < point->gpu_hours)) {
            return true;
        }
    }
    return false;
}

static void judge(ls_scaling *scaling)
{
    ls_scaling_point *first = NULL, *before = NULL;
    scaling->knee_gpus = 0;
    for (size_t i = 0; i < scaling->count; i++) {
        ls_scaling_point *point = &scaling->points[i];
        if (!point->fits) {
            continue;
        }
        first = first ? first : point;
        compare_point(first, before ? before : point, point);
        point->pareto = !is_beaten(scaling, point);
        if (scaling->knee_gpus == 0) {
            scaling->takes_over = point->grew;
            if (point->marginal < LS_SCALING_KNEE) {
                scaling->knee_gpus = point->gpus;
            }
        }
        before = point;
    }
}

ls_status ls_scaling_compute(const ls_setting *setting, const ls_scaling_options *options,
                             ls_scaling *scaling_out)
{
    LS_ASSERT(options->gpus_min > 0 && options->gpus_max >= options->gpus_min && options->tokens > 0.0);
    ls_search_options search = options->search;
    search.top = 0;
    scaling_out->count = 0;
    ls_status status = LS_OK;
    bool any = false;
    for (int64_t gpus = options->gpus_min;
         gpus <= options->gpus_max && scaling_out->count < LS_SCALING_POINTS_MAX; gpus *= 2) {
        ls_setting one = *setting;
        ls_search_result result;
        one.gpus = gpus;
        ls_scaling_point *point = &scaling_out->points[scaling_out->count++];
        *point = (ls_scaling_point){.gpus = gpus};
        status = ls_search_run(&one, &search, &result);
        if (status == LS_OK) {
            any = point->fits = true;
            point->estimate = result.best;
            fill_point(&one, options, point);
        }
    }
    if (!any) {
        return status;
    }
    judge(scaling_out);
    ls_error_clear();
    return LS_OK;
}
