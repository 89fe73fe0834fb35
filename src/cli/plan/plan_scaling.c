// SPDX-License-Identifier: Apache-2.0
/* plan: the scaling curve, as a table, as CSV and as JSON. */
#include "cli/plan/plan.h"

#include <inttypes.h>

static void append_point(const ls_scaling *curve, const ls_scaling_point *point, ls_text *text)
{
    char cost[32] = "-", strategy[192];
    if (!point->fits) {
        ls_text_printf(text, "  %7" PRId64 "  does not fit\n", point->gpus);
        return;
    }
    if (point->cost_usd > 0.0) {
        ls_cost_format(point->cost_usd, cost, sizeof cost);
    }
    ls_strategy_describe(&point->estimate.strategy, strategy, sizeof strategy);
    ls_text_printf(text, "  %7" PRId64 "  %9.4g  %9s  %8.0f %%  %7.2f  %5.1f %%  %-10s %s%s%s\n", point->gpus,
                   point->days, cost, 100.0 * point->efficiency, point->marginal, 100.0 * point->estimate.mfu,
                   ls_term_name(point->grew), strategy,
                   point->pareto ? "" : "  (another is faster and cheaper)",
                   point->gpus == curve->knee_gpus ? "  <- knee" : "");
}

void ls_plan_append_scaling(const ls_plan_answer *answer, ls_text *text)
{
    const ls_scaling *curve = answer->curve;
    ls_text_printf(text, "\nscaling, %" PRId64 " sequences per step at every count\n",
                   answer->setting.global_batch);
    ls_text_append(text,
                   "     GPUs       days       cost  efficiency  marginal     MFU  grew most  strategy\n");
    for (size_t i = 0; i < curve->count; i++) {
        append_point(curve, &curve->points[i], text);
    }
    if (curve->knee_gpus > 0) {
        ls_text_printf(text,
                       "knee at %" PRId64
                       " GPUs: beyond it, another GPU adds less than half its worth; %s dominates\n",
                       curve->knee_gpus, ls_term_name(curve->takes_over));
    } else {
        ls_text_printf(text, "no knee up to %" PRId64 " GPUs; %s grows most\n",
                       curve->points[curve->count - 1].gpus, ls_term_name(curve->takes_over));
    }
}

/* ---- CSV and JSON ---- */

void ls_plan_append_scaling_csv(const ls_plan_answer *answer, ls_text *text)
{
    ls_text_append(text, "gpus,fits,days,gpu_hours,cost_usd,step_time_s,efficiency,marginal,mfu,goodput,grew,"
                         "pareto,knee,strategy\n");
    for (size_t i = 0; i < answer->curve->count; i++) {
        const ls_scaling_point *p = &answer->curve->points[i];
        char strategy[192];
        if (!p->fits) {
            ls_text_printf(text, "%" PRId64 ",0,,,,,,,,,,,,\n", p->gpus);
            continue;
        }
        ls_strategy_format(&p->estimate.strategy, strategy, sizeof strategy);
        ls_text_printf(text, "%" PRId64 ",1,%.6g,%.6g,%.6g,%.6g,%.4f,%.4f,%.4f,%.4f,%s,%d,%d,\"%s\"\n",
                       p->gpus, p->days, p->gpu_hours, p->cost_usd, p->estimate.time.step_s, p->efficiency,
                       p->marginal, p->estimate.mfu, p->goodput, ls_term_name(p->grew), p->pareto,
                       p->gpus == answer->curve->knee_gpus, strategy);
    }
}

json_t *ls_plan_scaling_to_json(const ls_plan_answer *answer)
{
    const ls_scaling *curve = answer->curve;
    json_t *points = json_array();
    for (size_t i = 0; i < curve->count; i++) {
        const ls_scaling_point *p = &curve->points[i];
        json_t *point = json_pack("{s:I, s:b}", "gpus", (json_int_t)p->gpus, "fits", p->fits);
        if (p->fits) {
            json_object_update_new(point, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:b, s:o}",
                                                    "days", p->days, "gpu_hours", p->gpu_hours, "cost_usd",
                                                    p->cost_usd, "step_time_s", p->estimate.time.step_s,
                                                    "efficiency", p->efficiency, "marginal", p->marginal,
                                                    "mfu", p->estimate.mfu, "goodput", p->goodput, "grew",
                                                    ls_term_name(p->grew), "pareto", p->pareto, "strategy",
                                                    ls_plan_strategy_to_json(&p->estimate.strategy)));
        }
        json_array_append_new(points, point);
    }
    return json_pack("{s:o, s:o, s:s}", "points", points, "knee_gpus",
                     curve->knee_gpus > 0 ? json_integer(curve->knee_gpus) : json_null(), "takes_over",
                     ls_term_name(curve->takes_over));
}
