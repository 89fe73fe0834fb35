// SPDX-License-Identifier: Apache-2.0
/* plan: the whole answer as text (--all), its parts (--why, --assumptions), and the strategies as
 * CSV. The first line is the verdict; every other line begins with the word it is about. */
#include "cli/plan/plan.h"
#include "planning/step/advice.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BAR_CELLS       20
#define TERM_LEAST      0.02 /* share of the step below which a term counts as "other" */
#define SAME            "the same within"
#define NEIGHBOURS_MOST 4
#define FLIPS_MOST      3

/* ---- words for numbers ---- */

static void append_duration(ls_text *text, double seconds)
{
    ls_text_append(text, ls_time_of(seconds).text);
}

const char *ls_plan_fit_name(ls_fit fit)
{
    static const char *const names[] = {"fits", "tight", "does not fit"};
    return names[fit];
}

/* ---- lines ---- */

static void append_heading(ls_text *text, const char *word)
{
    ls_text_printf(text, "%-12s", word);
}

/* The verdict with its reason, then the run of the path it is about. */
static void append_first_line(const ls_plan_answer *answer, ls_text *text)
{
    const ls_verdict *verdict = &answer->verdict;
    if (answer->refusal) {
        ls_text_printf(text, "%s  %s\n", ls_verdict_kind_name(LS_VERDICT_DONT), answer->refusal);
    } else {
        ls_text_printf(text, "%s  %s\n", ls_verdict_kind_name(verdict->kind), verdict->reason);
    }
    ls_plan_append_runs(answer, text);
    append_heading(text, "run");
    ls_text_printf(text, "%s, %s tokens on %" PRId64 " x %s: ", answer->shape.name,
                   ls_quantity_of(answer->tokens).text, answer->setting.gpus, answer->node.accelerator->name);
    append_duration(text, 86400.0 * answer->days);
    ls_text_printf(text, " %+.0f to %+.0f %%",
                   100.0 * (answer->band.low_s / answer->estimate.time.step_s - 1.0),
                   100.0 * (answer->band.high_s / answer->estimate.time.step_s - 1.0));
    double usd;
    if (ls_plan_run_usd(answer, &usd)) {
        const double lead_days = answer->outcome->days - answer->outcome->run_days;
        ls_text_printf(text, ", %s (%s", ls_usd_of(usd).text, answer->outcome->name);
        if (lead_days > 0.0) {
            ls_text_printf(text, ", available after %s", ls_span_of(lead_days).text);
        }
        ls_text_append(text, ")");
    } else if (answer->portfolio.count > 0 && !answer->examined) {
        ls_text_append(text, " (not a run of the portfolio, so the costs do not include it)");
    }
    ls_text_append(text, "\n");
}

static void append_memory(const ls_plan_answer *answer, ls_text *text)
{
    const ls_memory_estimate *memory = &answer->estimate.memory;
    append_heading(text, "memory/GPU");
    ls_text_printf(text,
                   "weights %.1f  gradients %.1f  optimizer %.1f  activations %.1f  buffers %.1f  = %.1f of "
                   "%.0f GiB  [",
                   memory->weights / LS_PLAN_GIB, memory->gradients / LS_PLAN_GIB,
                   memory->optimizer / LS_PLAN_GIB, memory->activations / LS_PLAN_GIB,
                   memory->buffers / LS_PLAN_GIB, memory->total / LS_PLAN_GIB,
                   memory->capacity / LS_PLAN_GIB);
    const double share = memory->total / memory->capacity;
    const size_t full = (size_t)fmin(BAR_CELLS, round(BAR_CELLS * share));
    ls_text_repeat(text, '#', full);
    ls_text_repeat(text, '-', BAR_CELLS - full);
    ls_text_printf(text, "] %s\n", ls_plan_fit_name(answer->estimate.fit));
}

static void append_step(const ls_plan_answer *answer, ls_text *text)
{
    const ls_time_estimate *time = &answer->estimate.time;
    append_heading(text, "step");
    append_duration(text, time->step_s);
    ls_text_append(text, " (");
    append_duration(text, answer->band.low_s);
    ls_text_append(text, " to ");
    append_duration(text, answer->band.high_s);
    ls_text_append(text, ")");
    double other = 0.0;
    bool shown[LS_TERM_COUNT] = {false};
    for (int k = 0; k < LS_TERM_COUNT; k++) {
        int most = -1;
        for (int i = 0; i < LS_TERM_COUNT; i++) {
            if (!shown[i] && (most < 0 || time->terms_s[i] > time->terms_s[most])) {
                most = i;
            }
        }
        shown[most] = true;
        const double share = time->terms_s[most] / time->step_s;
        if (share >= TERM_LEAST) {
            ls_text_printf(text, "  %s %.0f %%", ls_term_name((ls_term)most), 100.0 * share);
        } else {
            other += share;
        }
    }
    if (other >= 0.005) {
        ls_text_printf(text, "  other %.0f %%", 100.0 * other);
    }
    ls_text_printf(text, "   MFU %.1f %% (full attention), %s TFLOP/s per GPU, %s tokens/s\n",
                   100.0 * answer->estimate.mfu, ls_plain_of(answer->estimate.tflops_per_gpu).text,
                   ls_quantity_of(answer->estimate.tokens_ps).text);
}

/* Where the band comes from. */
static void append_band(const ls_plan_answer *answer, ls_text *text)
{
    const ls_band *band = &answer->band;
    const double step_s = answer->estimate.time.step_s;
    append_heading(text, "band");
    ls_text_printf(text, "eight of ten similar runs measured %+.0f to %+.0f %% against the prediction: %s\n",
                   100.0 * (band->low_s / step_s - 1.0), 100.0 * (band->high_s / step_s - 1.0), band->from);
}

static void append_strategy(const ls_plan_answer *answer, ls_text *text)
{
    char strategy[192];
    ls_strategy_describe(&answer->estimate.strategy, strategy, sizeof strategy);
    append_heading(text, "plan");
    ls_text_printf(text,
                   "%s; %" PRId64 " sequences of %" PRId64 " tokens per step, in %" PRId64 " micro-batch%s\n",
                   strategy, answer->setting.global_batch, answer->setting.length,
                   answer->estimate.time.micro_batches, answer->estimate.time.micro_batches == 1 ? "" : "es");
}

/* Prints the heading before the first line. Returns how many lines there are. */
static size_t append_rivals(const char *heading, const ls_search_rival *rivals, size_t count, size_t most,
                            ls_text *text)
{
    size_t shown = 0;
    for (size_t i = 0; i < count && shown < most; i++) {
        char strategy[192];
        if (strncmp(rivals[i].why, SAME, strlen(SAME)) == 0 && rivals[i].change[0]) {
            continue; /* a neighbour that makes no difference */
        }
        append_heading(text, shown++ == 0 ? heading : "");
        if (rivals[i].change[0]) {
            snprintf(strategy, sizeof strategy, "%s", rivals[i].change);
        } else {
            ls_strategy_describe(&rivals[i].estimate.strategy, strategy, sizeof strategy);
        }
        if (rivals[i].estimate.fit == LS_FIT_NO) {
            ls_text_printf(text, "%s: %s\n", strategy, rivals[i].why);
        } else {
            ls_text_printf(text, "%s: ", strategy);
            append_duration(text, rivals[i].estimate.time.step_s);
            ls_text_printf(text, ", %s\n", rivals[i].why);
        }
    }
    return shown;
}

/* Half and twice the GPUs. */
static void append_other_counts(const ls_plan_answer *answer, ls_text *text)
{
    const ls_scaling_point *own = NULL;
    for (size_t i = 0; i < answer->curve->count; i++) {
        own = answer->curve->points[i].gpus == answer->setting.gpus ? &answer->curve->points[i] : own;
    }
    for (size_t i = 0; own && own->fits && i < answer->curve->count; i++) {
        const ls_scaling_point *point = &answer->curve->points[i];
        if (point != own && (point->gpus == 2 * own->gpus || 2 * point->gpus == own->gpus)) {
            append_heading(text, "");
            ls_text_printf(text, "%" PRId64 " GPU%s: ", point->gpus, point->gpus == 1 ? "" : "s");
            if (point->fits) {
                append_duration(text, 86400.0 * point->days);
                ls_text_printf(text, ", %+.1f %% GPU-hours\n",
                               100.0 * (point->gpu_hours / own->gpu_hours - 1.0));
            } else {
                ls_text_append(text, "does not fit\n");
            }
        }
    }
}

static void append_risk(const ls_plan_answer *answer, ls_text *text)
{
    const ls_failure_estimate *failure = &answer->failure;
    append_heading(text, "risk");
    ls_text_append(text, "a failure every ");
    append_duration(text, failure->mtbf_s);
    ls_text_append(text, ", a checkpoint every ");
    append_duration(text, failure->interval_s);
    const bool small = failure->checkpoint_bytes < 1e12;
    ls_text_printf(text, " (%.3g %s), goodput %.1f %%\n", failure->checkpoint_bytes / (small ? 1e9 : 1e12),
                   small ? "GB" : "TB", 100.0 * failure->goodput);
    if (answer->power.known) {
        append_heading(text, "power");
        const bool large = answer->power.facility_kw >= 1000.0;
        ls_text_printf(text, "%s %s at the electricity meter, ",
                       ls_plain_of(answer->power.facility_kw / (large ? 1000.0 : 1.0)).text,
                       large ? "MW" : "kW");
        if (answer->power.racks > 0) {
            ls_text_printf(text, "%" PRId64 " rack%s of %.0f kW, %s\n", answer->power.racks,
                           answer->power.racks == 1 ? "" : "s", answer->power.rack_kw,
                           answer->power.cooling->name);
        } else {
            ls_text_printf(text, "no rack at the site can hold a node of %.0f kW (%s)\n",
                           answer->power.rack_kw, answer->power.cooling->name);
        }
    }
}

/* Where the days come from, in one line of arithmetic: operations over operations per second. */
static void append_days(const ls_plan_answer *answer, ls_text *text)
{
    const ls_estimate *estimate = &answer->estimate;
    const double per_s = 1e12 * estimate->tflops_per_gpu * (double)answer->setting.gpus;
    const double operations = per_s * answer->tokens / estimate->tokens_ps;
    if (!(operations >= 1e15) || !(estimate->mfu > 0.0)) {
        return;
    }
    const int digits = operations >= 1e21 ? 21 : operations >= 1e18 ? 18 : 15;
    append_heading(text, "days");
    ls_text_printf(text, "%s parameters%s x %s tokens need %s x 10^%d operations; ",
                   ls_quantity_of((double)answer->shape.active_parameters).text,
                   answer->shape.active_parameters < answer->shape.parameters ? " active per token" : "",
                   ls_quantity_of(answer->tokens).text, ls_plain_of(operations / pow(10.0, digits)).text,
                   digits);
    ls_text_printf(text, "%" PRId64 " x %s TFLOP/s, %.0f %% of the peak, take ", answer->setting.gpus,
                   ls_plain_of(estimate->tflops_per_gpu).text, 100.0 * estimate->mfu);
    append_duration(text, operations / per_s);
    ls_text_printf(text, "; %.1f %% of the time is left after failures\n", 100.0 * answer->failure.goodput);
}

/* Why buying pays or does not: the cost of a GPU-hour on own machines and on rented ones. */
static void append_buying(const ls_plan_answer *answer, ls_text *text)
{
    const ls_verdict *verdict = &answer->verdict;
    const ls_path_outcome *own = verdict->owned >= 0 ? &verdict->outcomes[verdict->owned] : NULL;
    if (!own || !isfinite(own->days) || !(own->rent_usd_per_gpu_hour > 0.0)) {
        return;
    }
    append_heading(text, "buying");
    ls_text_printf(
        text,
        "%" PRId64 " x %s cost %s to buy and %s a month to run; at %.0f %% use over %.0f years a GPU-hour "
        "costs %.2f USD; the same work rented (%s, with storage and egress) costs %.2f; buying is advised "
        "when it pays back within %.0f months\n",
        own->machines, own->path->short_name, ls_usd_of(own->upfront_usd).text,
        ls_usd_of(own->month_usd).text, 100.0 * own->utilization, own->path->terms.life_years,
        own->usd_per_gpu_hour, verdict->outcomes[verdict->rented].name, own->rent_usd_per_gpu_hour,
        6.0 * own->path->terms.life_years);
}

/* What the abbreviations above mean, and which options show more. */
static void append_words(const ls_plan_answer *answer, ls_text *text)
{
    const ls_strategy *s = &answer->estimate.strategy;
    append_heading(text, "words");
    ls_text_printf(text, "%s%s%s%s%s%s", s->tp > 1 ? "TP: GPUs that share each layer; " : "",
                   s->pp > 1 ? "PP: stages, each with some of the layers; " : "",
                   s->cp > 1 ? "CP: GPUs that share a sequence; " : "",
                   s->ep > 1 ? "EP: GPUs that share the experts; " : "",
                   s->dp > 1 ? "DP: copies of the model that share the batch; " : "",
                   s->zero > 0 ? "ZeRO: copies share state that each would otherwise hold; " : "");
    ls_text_append(
        text, "MFU: share of peak FLOP/s spent on the model; at risk: the most that is lost if the result is "
              "useless\n");
}

static void append_advice(const ls_plan_answer *answer, ls_text *text)
{
    const double parameters = (double)answer->shape.active_parameters;
    const double batch = (double)(answer->setting.global_batch * answer->setting.length);
    append_heading(text, "training");
    ls_text_printf(text, "%s tokens per parameter: %s; the batch is %s x the critical batch\n",
                   ls_plain_of(answer->tokens / parameters).text,
                   ls_tokens_verdict_text(ls_advice_judge_tokens(parameters, answer->tokens)),
                   ls_plain_of(batch / ls_advice_critical_batch_tokens(parameters)).text);
}

static void append_flips(const ls_plan_answer *answer, ls_text *text)
{
    for (size_t i = 0; i < answer->verdict.flip_count && i < FLIPS_MOST; i++) {
        append_heading(text, i == 0 ? "changes to" : "");
        ls_text_printf(text, "%s\n", answer->verdict.flips[i].text);
    }
}

void ls_plan_append_assumptions(const ls_plan_answer *answer, ls_text *text)
{
    for (size_t i = 0; i < answer->assumptions.count; i++) {
        append_heading(text, i == 0 ? "assumed" : "");
        ls_text_printf(text, "%s\n", answer->assumptions.items[i]);
    }
}

/* What lost, and why; then half and twice the GPUs. */
static void append_why_not(const ls_plan_answer *answer, ls_text *text)
{
    if (answer->search) {
        const ls_search_result *search = answer->search;
        const size_t shown =
            append_rivals("why not", search->ranked, search->ranked_count, answer->asked->top, text);
        append_rivals(shown == 0 ? "why not" : "", search->neighbours, search->neighbour_count,
                      NEIGHBOURS_MOST, text);
    }
    if (answer->curve) {
        append_other_counts(answer, text);
    }
}

void ls_plan_append_why(const ls_plan_answer *answer, ls_text *text)
{
    append_strategy(answer, text);
    append_step(answer, text);
    append_memory(answer, text);
    append_why_not(answer, text);
    append_days(answer, text);
    append_band(answer, text);
    append_words(answer, text);
}

void ls_plan_append_text(const ls_plan_answer *answer, ls_text *text)
{
    append_first_line(answer, text);
    append_memory(answer, text);
    append_step(answer, text);
    append_band(answer, text);
    append_strategy(answer, text);
    append_why_not(answer, text);
    append_days(answer, text);
    append_risk(answer, text);
    append_advice(answer, text);
    if (answer->verdict.outcome_count > 0) {
        ls_verdict_append_paths(&answer->verdict, text);
        append_buying(answer, text);
        append_flips(answer, text);
    }
    ls_plan_append_assumptions(answer, text);
    append_words(answer, text);
    append_heading(text, "more");
    ls_text_append(text, "--explain days, cost, break-even, memory, step, goodput, ...; --scaling, --ladder, "
                         "--memo FILE, --html FILE\n");
}

void ls_plan_append_extras(const ls_plan_answer *answer, ls_text *text)
{
    if (answer->ladder.count > 0) {
        ls_text_append(text, "\n");
        ls_ladder_append(&answer->ladder, text);
    }
    if (answer->links && answer->asked->link[0]) {
        ls_plan_append_links(answer, text);
    }
    if (answer->asked->scaling && answer->curve) {
        ls_plan_append_scaling(answer, text);
    } else if (answer->asked->scaling) {
        ls_text_append(text, "\nscaling: only one of this machine exists; --gpus KIND:COUNT plans others\n");
    }
}

/* ---- CSV ---- */

static void append_row(const ls_estimate *estimate, size_t rank, const char *why, ls_text *text)
{
    const ls_strategy *s = &estimate->strategy;
    ls_text_printf(text,
                   "%zu,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                   ",%d,%s,%d,%s,%.6g,%.4f,%.1f,%.2f",
                   rank, s->tp, s->pp, s->dp, s->cp, s->ep, s->vpp, s->micro_batch, s->zero,
                   ls_recompute_name(s->recompute), s->sequence_parallel,
                   ls_pipeline_schedule_name(s->schedule), estimate->time.step_s, estimate->mfu,
                   estimate->tflops_per_gpu, estimate->memory.total / LS_PLAN_GIB);
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        ls_text_printf(text, ",%.6g", estimate->time.terms_s[i]);
    }
    ls_text_printf(text, ",\"%s\"\n", why);
}

void ls_plan_append_csv(const ls_plan_answer *answer, ls_text *text)
{
    ls_text_append(
        text, "rank,tp,pp,dp,cp,ep,vpp,micro_batch,zero,recompute,sequence_parallel,schedule,step_time_s,mfu,"
              "tflops_per_gpu,memory_gib");
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        ls_text_printf(text, ",%s_s", ls_term_name((ls_term)i));
    }
    ls_text_append(text, ",why_not\n");
    append_row(&answer->estimate, 1, "", text);
    for (size_t i = 0; answer->search && i < answer->search->ranked_count; i++) {
        append_row(&answer->search->ranked[i].estimate, i + 2, answer->search->ranked[i].why, text);
    }
}
