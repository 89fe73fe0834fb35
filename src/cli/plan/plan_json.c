// SPDX-License-Identifier: Apache-2.0
/* plan: the answer as the JSON of the contract. Keys are added, never changed. */
#include "cli/plan/plan.h"
#include "planning/step/advice.h"

#include <math.h>
#include <stdio.h>

json_t *ls_plan_strategy_to_json(const ls_strategy *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:s, s:b, s:s}", "tp", (json_int_t)s->tp, "pp",
                     (json_int_t)s->pp, "dp", (json_int_t)s->dp, "cp", (json_int_t)s->cp, "ep",
                     (json_int_t)s->ep, "vpp", (json_int_t)s->vpp, "mb", (json_int_t)s->micro_batch, "zero",
                     s->zero, "recompute", ls_recompute_name(s->recompute), "sp", s->sequence_parallel,
                     "schedule", ls_pipeline_schedule_name(s->schedule));
}

json_t *ls_plan_memory_to_json(const ls_memory_estimate *m)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "weights", m->weights / LS_PLAN_GIB, "gradients",
                     m->gradients / LS_PLAN_GIB, "optimizer", m->optimizer / LS_PLAN_GIB, "activations",
                     m->activations / LS_PLAN_GIB, "buffers", m->buffers / LS_PLAN_GIB, "total",
                     m->total / LS_PLAN_GIB, "capacity", m->capacity / LS_PLAN_GIB);
}

static json_t *terms_to_json(const ls_time_estimate *time)
{
    json_t *object = json_object();
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        json_object_set_new(object, ls_term_name((ls_term)i), json_real(time->terms_s[i]));
    }
    return object;
}

static json_t *rivals_to_json(const ls_search_rival *rivals, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const ls_estimate *estimate = &rivals[i].estimate;
        json_t *rival =
            json_pack("{s:o, s:f, s:s, s:b, s:f}", "strategy", ls_plan_strategy_to_json(&estimate->strategy),
                      "step_time_s", estimate->time.step_s, "why_not", rivals[i].why, "fits",
                      estimate->fit != LS_FIT_NO, "memory_gib", estimate->memory.total / LS_PLAN_GIB);
        if (rivals[i].change[0]) {
            json_object_set_new(rival, "change", json_string(rivals[i].change));
        }
        json_array_append_new(list, rival);
    }
    return list;
}

/* What fits in place of a strategy that does not. */
static json_t *instead_to_json(const ls_search_result *instead)
{
    json_t *list = rivals_to_json(instead->ranked, instead->ranked_count);
    ls_search_rival best = {.estimate = instead->best};
    snprintf(best.why, sizeof best.why, "fits: %.1f of %.1f GiB", instead->best.memory.total / LS_PLAN_GIB,
             instead->best.memory.capacity / LS_PLAN_GIB);
    json_t *first = rivals_to_json(&best, 1);
    json_array_extend(first, list);
    json_decref(list);
    return first;
}

static json_t *lines_to_json(const ls_assumptions *list)
{
    json_t *lines = json_array();
    for (size_t i = 0; i < list->count; i++) {
        json_array_append_new(lines, json_string(list->items[i]));
    }
    return lines;
}

/* ---- failures, power, money ---- */

/* null for what is unknown and for "never". */
static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* 0 means: not compared with a rent. */
static json_t *break_even_or_null(double value)
{
    return value > 0.0 ? number_or_null(value) : json_null();
}

static json_t *checkpoint_to_json(const ls_failure_estimate *failure)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "bytes", failure->checkpoint_bytes, "stall_s",
                     failure->stall_s, "interval_s", failure->interval_s, "interval_young_s",
                     failure->interval_young_s, "interval_daly_s", failure->interval_daly_s, "mtbf_s",
                     failure->mtbf_s);
}

/* The parts add up to `run`, which is also `total`; `life` is the cost of all years. An API has no
 * runs: its part is the bill of those years. */
static json_t *cost_to_json(const ls_path_outcome *o)
{
    const bool is_api = o->path->kind == LS_PATH_API;
    const double total_usd = is_api ? o->total_usd : o->run_usd;
    const struct {
        const char *key;
        double usd;
    } rows[] = {
        {"compute", o->compute_usd}, {"storage", o->storage_usd},
        {"egress", o->egress_usd},   {"energy", o->energy_usd},
        {"staff", o->staff_usd},     {"depreciation", o->depreciation_usd},
        {"other", o->other_usd},     {"api", is_api ? total_usd : 0.0},
        {"total", total_usd},        {"run", o->run_usd},
        {"low", o->run_usd_low},     {"high", o->run_usd_high},
        {"slow", o->run_usd_slow},   {"per_gpu_hour", o->usd_per_gpu_hour},
        {"upfront", o->upfront_usd}, {"month", o->month_usd},
        {"life", o->total_usd},      {"max_loss", o->max_loss_usd},
    };
    json_t *cost = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_object_set_new(cost, rows[i].key, number_or_null(rows[i].usd));
    }
    return cost;
}

static json_t *path_to_json(const ls_path_outcome *outcome, bool is_chosen)
{
    const ls_accelerator *accelerator = outcome->path->node ? outcome->path->node->accelerator : NULL;
    json_t *path = json_pack(
        "{s:s, s:s, s:s?, s:b, s:b, s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "path",
        ls_path_kind_name(outcome->path->kind), "name", outcome->name, "accelerator",
        accelerator ? accelerator->name : NULL, "chosen", is_chosen, "possible", outcome->possible, "why_not",
        outcome->why_not, "gpus", (json_int_t)outcome->gpus, "gpus_paid", (json_int_t)outcome->machines,
        "days", number_or_null(outcome->days), "days_p90", number_or_null(outcome->days_slow), "cost_usd",
        cost_to_json(outcome), "max_loss_usd", number_or_null(outcome->max_loss_usd));
    if (outcome->path->kind == LS_PATH_OWNED) {
        json_object_set_new(path, "break_even_months", break_even_or_null(outcome->break_even_months));
        json_object_set_new(path, "break_even_utilization",
                            break_even_or_null(outcome->break_even_utilization));
        json_object_set_new(path, "break_even_usd_per_gpu_hour",
                            break_even_or_null(outcome->break_even_rate));
    }
    return path;
}

static json_t *flip_to_json(const ls_verdict *verdict, const ls_tipping_point *flip)
{
    return json_pack("{s:s, s:o, s:o, s:s, s:s?, s:s}", "lever", ls_lever_name(flip->lever), "from",
                     number_or_null(flip->from), "to", number_or_null(flip->to), "becomes",
                     ls_verdict_kind_name(flip->becomes), "path",
                     flip->path >= 0 ? verdict->outcomes[flip->path].name : NULL, "text", flip->text);
}

static void set_verdict(json_t *root, const ls_plan_answer *answer)
{
    const ls_verdict *verdict = &answer->verdict;
    if (answer->refusal) {
        json_object_set_new(root, "verdict", json_string(ls_verdict_kind_name(LS_VERDICT_DONT)));
        json_object_set_new(root, "reason", json_string(answer->refusal));
        return;
    }
    json_object_set_new(root, "verdict", json_string(ls_verdict_kind_name(verdict->kind)));
    json_object_set_new(root, "reason", json_string(verdict->reason));
}

static void set_money(json_t *root, const ls_plan_answer *answer)
{
    const ls_verdict *verdict = &answer->verdict;
    json_t *paths = json_array(), *flips = json_array();
    for (size_t i = 0; i < verdict->outcome_count; i++) {
        json_array_append_new(paths, path_to_json(&verdict->outcomes[i], (int)i == verdict->chosen));
    }
    for (size_t i = 0; i < verdict->flip_count; i++) {
        json_array_append_new(flips, flip_to_json(verdict, &verdict->flips[i]));
    }
    const bool priced = verdict->outcome_count > 0;
    json_object_set_new(root, "cost_usd", answer->outcome ? cost_to_json(answer->outcome) : json_object());
    json_object_set_new(root, "break_even_months",
                        priced ? break_even_or_null(verdict->break_even_months) : json_null());
    json_object_set_new(root, "break_even_utilization",
                        priced ? break_even_or_null(verdict->break_even_utilization) : json_null());
    json_object_set_new(root, "paths", paths);
    json_object_set_new(root, "flips", flips);
}

static void set_power(json_t *root, const ls_plan_answer *answer)
{
    const ls_power *power = &answer->power;
    json_object_set_new(root, "power_kw", power->known ? json_real(power->facility_kw) : json_null());
    json_object_set_new(root, "cooling", power->known ? json_string(power->cooling->name) : json_null());
    json_object_set_new(root, "racks", power->known ? json_integer(power->racks) : json_null());
}

static void set_risk(json_t *root, const ls_plan_answer *answer)
{
    const ls_failure_estimate *failure = &answer->failure;
    json_object_set_new(root, "goodput", json_real(failure->goodput));
    json_object_set_new(root, "goodput_parts",
                        json_pack("{s:f, s:f, s:f}", "scheduling", failure->scheduling, "runtime",
                                  failure->runtime, "program", failure->program));
    json_object_set_new(root, "checkpoint", checkpoint_to_json(failure));
}

static json_t *advice_to_json(const ls_plan_answer *answer)
{
    const double parameters = (double)answer->shape.active_parameters;
    const double batch = (double)(answer->setting.global_batch * answer->setting.length);
    const double critical = ls_advice_critical_batch_tokens(parameters);
    return json_pack(
        "{s:f, s:s, s:f, s:f, s:f, s:f, s:f}", "tokens_per_parameter", answer->tokens / parameters, "tokens",
        ls_tokens_verdict_text(ls_advice_judge_tokens(parameters, answer->tokens)), "optimal_tokens",
        ls_advice_optimal_tokens(parameters), "expected_loss",
        ls_advice_loss(&ls_loss_law_chinchilla, parameters, answer->tokens), "batch_tokens", batch,
        "critical_batch_tokens", critical, "extra_tokens", ls_advice_tokens_factor(batch, critical) - 1.0);
}

json_t *ls_plan_to_json(const ls_plan_answer *answer)
{
    const ls_estimate *estimate = &answer->estimate;
    const ls_search_result *search = answer->search;
    json_t *root = json_object();
    set_verdict(root, answer);
    json_object_set_new(root, "model", json_string(answer->shape.name));
    json_object_set_new(root, "parameters", json_integer(answer->shape.parameters));
    json_object_set_new(root, "active_parameters", json_integer(answer->shape.active_parameters));
    json_object_set_new(root, "accelerator", json_string(answer->node.accelerator->name));
    json_object_set_new(root, "gpus", json_integer(answer->setting.gpus));
    json_object_set_new(root, "stack", json_string(answer->setting.stack->name));
    json_object_set_new(root, "sequence", json_integer(answer->setting.length));
    json_object_set_new(root, "global_batch", json_integer(answer->setting.global_batch));
    json_object_set_new(root, "tokens", json_real(answer->tokens));
    json_object_set_new(root, "strategy", ls_plan_strategy_to_json(&estimate->strategy));
    json_object_set_new(root, "step_time_s", json_real(estimate->time.step_s));
    json_object_set_new(root, "step_time_band_s",
                        json_pack("[f, f]", answer->band.low_s, answer->band.high_s));
    json_object_set_new(root, "step_time_median_s", json_real(answer->band.middle_s));
    json_object_set_new(root, "band_from", json_string(answer->band.from));
    json_object_set_new(root, "breakdown_s", terms_to_json(&estimate->time));
    json_object_set_new(root, "tokens_per_s", json_real(estimate->tokens_ps));
    json_object_set_new(root, "tflops_per_gpu", json_real(estimate->tflops_per_gpu));
    json_object_set_new(root, "flop_convention",
                        json_string(ls_flop_convention_name(LS_FLOPS_FULL_ATTENTION)));
    json_object_set_new(root, "mfu", json_real(estimate->mfu));
    json_object_set_new(root, "hfu", json_real(estimate->hfu));
    json_object_set_new(root, "memory_gib", ls_plan_memory_to_json(&estimate->memory));
    json_object_set_new(root, "fits", json_boolean(estimate->fit != LS_FIT_NO));
    json_object_set_new(root, "tight", json_boolean(estimate->fit == LS_FIT_TIGHT));
    json_object_set_new(root, "steps", json_real(answer->steps));
    json_object_set_new(root, "days", json_real(answer->days));
    set_risk(root, answer);
    set_power(root, answer);
    set_money(root, answer);
    json_object_set_new(root, "alternatives",
                        search            ? rivals_to_json(search->ranked, search->ranked_count)
                        : answer->instead ? instead_to_json(answer->instead)
                                          : json_array());
    json_object_set_new(root, "neighbours",
                        search ? rivals_to_json(search->neighbours, search->neighbour_count) : json_array());
    json_object_set_new(root, "advice", advice_to_json(answer));
    if (answer->runs) {
        json_object_set_new(root, "portfolio", ls_plan_runs_to_json(answer));
    }
    if (answer->ladder.count > 0) {
        json_object_set_new(root, "ladder", ls_plan_ladder_to_json(&answer->ladder));
    }
    if (answer->links) {
        json_object_set_new(root, "link", ls_plan_links_to_json(answer->links));
    }
    if (answer->curve) {
        json_object_set_new(root, "scaling", ls_plan_scaling_to_json(answer));
    }
    json_object_set_new(root, "assumptions", lines_to_json(&answer->assumptions));
    return root;
}
