// SPDX-License-Identifier: Apache-2.0
/* plan --explain: how a number of the answer is computed. Terms of the step and of memory are
 * explained by planning/step/estimate.h; the others are here. */
#include "cli/plan/plan.h"
#include "planning/step/advice.h"

#include <inttypes.h>
#include <math.h>
#include <strings.h>

typedef ls_status explain_function(const ls_plan_answer *answer, ls_text *text);

static ls_status explain_goodput(const ls_plan_answer *answer, ls_text *text)
{
    ls_failure_explain(&answer->failure_setting, text);
    return LS_OK;
}

static ls_status explain_power(const ls_plan_answer *answer, ls_text *text)
{
    if (!answer->power.known) {
        return ls_fail(
            LS_ERR_INVALID,
            "the hardware catalogue does not say how much power %s draws: add it with --catalogue FILE",
            answer->node.accelerator->name);
    }
    const ls_node powered = ls_plan_powered_node(answer);
    ls_power_explain(&answer->catalogue, &powered, answer->setting.gpus, &answer->site, text);
    return LS_OK;
}

static ls_status explain_constants(const ls_plan_answer *answer, ls_text *text)
{
    ls_stack_explain(answer->setting.stack, text);
    return LS_OK;
}

static ls_status explain_break_even(const ls_plan_answer *answer, ls_text *text)
{
    const ls_verdict *verdict = &answer->verdict;
    const ls_path_outcome *owned =
        verdict->outcome_count > 0 && verdict->owned >= 0 ? &verdict->outcomes[verdict->owned] : NULL;
    if (!owned || !(owned->rent_usd_per_gpu_hour > 0.0)) {
        return ls_fail(LS_ERR_INVALID,
                       "--explain break-even compares owning with renting, but no price is known for %s %s: "
                       "give one with --quote FILE or --catalogue FILE",
                       owned ? "renting" : "owning", answer->node.accelerator->name);
    }
    const ls_question *question = &answer->question;
    const ls_ownership ownership = ls_path_ownership(owned->path, owned->machines, question->buy_factor,
                                                     question->energy_factor, question->staff_factor);
    ls_cost_explain_break_even(&ownership, owned->utilization, owned->rent_usd_per_gpu_hour, text);
    return LS_OK;
}

static ls_status explain_batch(const ls_plan_answer *answer, ls_text *text)
{
    const double parameters = (double)answer->shape.active_parameters;
    const double critical = ls_advice_critical_batch_tokens(parameters);
    const double batch = (double)(answer->setting.global_batch * answer->setting.length);
    ls_text_printf(text, "critical batch B_c = 3e6 (N / 7e9)^0.412 tokens   (a fit to published runs; "
                         "measure your own noise scale)\n");
    ls_text_printf(text, "  = 3e6 (%.4g / 7e9)^0.412 = %.3g tokens\n", parameters, critical);
    ls_text_printf(text, "this batch B = %" PRId64 " sequences of %" PRId64 " = %.3g tokens, %.2f B_c\n",
                   answer->setting.global_batch, answer->setting.length, batch, batch / critical);
    ls_text_printf(text, "steps S / S_min = 1 + B_c / B = %.2f\n", ls_advice_steps_factor(batch, critical));
    ls_text_printf(text, "tokens E / E_min = 1 + B / B_c = %.2f   (McCandlish and others, 2018)\n",
                   ls_advice_tokens_factor(batch, critical));
    return LS_OK;
}

static void append_loss(const ls_loss_law *law, double parameters, double tokens, ls_text *text)
{
    ls_text_printf(text, "loss L = %.4g + %.4g / N^%.4g + %.4g / D^%.4g = %.3f nats per token   %s\n", law->e,
                   law->a, law->alpha, law->b, law->beta, ls_advice_loss(law, parameters, tokens), law->name);
}

static ls_status explain_tokens(const ls_plan_answer *answer, ls_text *text)
{
    const double parameters = (double)answer->shape.active_parameters;
    const double flops = 6.0 * parameters * answer->tokens;
    ls_text_printf(text, "tokens per parameter = D / N = %.4g / %.4g = %.1f: %s\n", answer->tokens,
                   parameters, answer->tokens / parameters,
                   ls_tokens_verdict_text(ls_advice_judge_tokens(parameters, answer->tokens)));
    ls_text_printf(text, "20 per parameter are %.3g tokens\n", ls_advice_optimal_tokens(parameters));
    const double optimal = ls_advice_optimal_parameters(flops);
    ls_text_printf(
        text,
        "compute C = 6 N D = %.3g FLOPs; optimal are N = sqrt(C / 120) = %.3g parameters and %.3g tokens\n",
        flops, optimal, ls_advice_optimal_tokens(optimal));
    append_loss(&ls_loss_law_chinchilla, parameters, answer->tokens, text);
    append_loss(&ls_loss_law_epoch, parameters, answer->tokens, text);
    return LS_OK;
}

static ls_status explain_mfu(const ls_plan_answer *answer, ls_text *text)
{
    const ls_estimate *estimate = &answer->estimate;
    const ls_setting *setting = &answer->setting;
    const ls_flop_convention conventions[] = {LS_FLOPS_FULL_ATTENTION, LS_FLOPS_CAUSAL, LS_FLOPS_6N};
    ls_text_printf(text,
                   "MFU = model FLOPs of a step / (step time * GPUs * peak) = %.4g / (%.4g s * %" PRId64
                   " * %.4g) = %.1f %%\n",
                   estimate->model_flops, estimate->time.step_s, setting->gpus,
                   estimate->model_flops / estimate->mfu / estimate->time.step_s / (double)setting->gpus,
                   100.0 * estimate->mfu);
    ls_text_printf(text, "HFU = the same with recomputed operations, %.4g FLOPs: %.1f %%\n",
                   estimate->hardware_flops, 100.0 * estimate->hfu);
    for (size_t i = 0; i < sizeof conventions / sizeof conventions[0]; i++) {
        const double flops = 3.0 * (double)setting->global_batch *
                             ls_shape_forward_flops(&answer->shape, setting->length, conventions[i]);
        ls_text_printf(text, "counted as %s: %.4g FLOPs, %.4g TFLOP/s per GPU\n",
                       ls_flop_convention_name(conventions[i]), flops,
                       1e-12 * flops / estimate->time.step_s / (double)setting->gpus);
    }
    return LS_OK;
}

static ls_status explain_step(const ls_plan_answer *answer, ls_text *text)
{
    const ls_time_estimate *time = &answer->estimate.time;
    ls_text_append(text, "step = sum of its terms; --explain knows each of them\n");
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        if (time->terms_s[i] > 0.0) {
            ls_text_printf(text, "  %-12s %10.4g s  %5.1f %%\n", ls_term_name((ls_term)i), time->terms_s[i],
                           100.0 * time->terms_s[i] / time->step_s);
        }
    }
    ls_text_printf(
        text, "= %.4g s; of ten similar runs one measured less than %.4g s and one more than %.4g s (%s)\n",
        time->step_s, answer->band.low_s, answer->band.high_s, answer->band.from);
    return LS_OK;
}

static ls_status explain_band(const ls_plan_answer *answer, ls_text *text)
{
    const double step_s = answer->estimate.time.step_s;
    const ls_band *band = &answer->band;
    ls_text_append(text, "measured = predicted / (1 + error); errors are those of similar runs, independent "
                         "ones added as squares\n");
    ls_text_printf(text,
                   "of ten runs one took less than %.4g s, five less than %.4g s, nine less than %.4g s; "
                   "predicted are %.4g s\n",
                   band->low_s, band->middle_s, band->high_s, step_s);
    ls_text_printf(text, "= %+.1f to %+.1f %%: %s\n", 100.0 * (band->low_s / step_s - 1.0),
                   100.0 * (band->high_s / step_s - 1.0), band->from);
    return LS_OK;
}

static ls_status explain_plan(const ls_plan_answer *answer, ls_text *text)
{
    const ls_strategy *s = &answer->estimate.strategy;
    char words[192], option[192];
    ls_strategy_describe(s, words, sizeof words);
    ls_strategy_format(s, option, sizeof option);
    ls_text_printf(text, "%s: --strategy %s\n", words, option);
    ls_text_printf(text,
                   "GPUs = tp * pp * dp * cp = %" PRId64 " * %" PRId64 " * %" PRId64 " * %" PRId64
                   " = %" PRId64 "\n",
                   s->tp, s->pp, s->dp, s->cp, answer->setting.gpus);
    ls_text_printf(
        text, "micro-batches = batch / dp / mb = %" PRId64 " / %" PRId64 " / %" PRId64 " = %" PRId64 "\n",
        answer->setting.global_batch, s->dp, s->micro_batch, answer->estimate.time.micro_batches);
    if (answer->search) {
        ls_text_printf(text,
                       "the fastest that fits of %" PRIu64 " examined; %" PRIu64 " of them did not fit\n",
                       answer->search->possible, answer->search->discarded);
    }
    return LS_OK;
}

static ls_status explain_days(const ls_plan_answer *answer, ls_text *text)
{
    const ls_setting *setting = &answer->setting;
    ls_text_printf(
        text, "tokens per second = batch * sequence / step = %" PRId64 " * %" PRId64 " / %.4g s = %.4g\n",
        setting->global_batch, setting->length, answer->estimate.time.step_s, answer->estimate.tokens_ps);
    ls_text_printf(
        text, "days = tokens / tokens per second / goodput / 86400 = %.4g / %.4g / %.4f / 86400 = %.4g\n",
        answer->tokens, answer->estimate.tokens_ps, answer->failure.goodput, answer->days);
    return LS_OK;
}

static ls_status explain_cost(const ls_plan_answer *answer, ls_text *text)
{
    const ls_path_outcome *o = answer->outcome;
    if (!o) {
        return ls_fail(LS_ERR_INVALID,
                       "no price is known for %s: give one with --quote FILE or --catalogue FILE",
                       answer->node.accelerator->name);
    }
    ls_text_printf(text, "%s: %" PRId64 " GPUs, %.4g GPU-hours a run, %.4g USD per GPU and hour\n",
                   o->path->name, o->gpus, o->gpu_hours, o->usd_per_gpu_hour);
    const struct {
        const char *name;
        double usd;
    } parts[] = {{"compute", o->compute_usd},
                 {"depreciation", o->depreciation_usd},
                 {"energy", o->energy_usd},
                 {"staff", o->staff_usd},
                 {"storage", o->storage_usd},
                 {"egress", o->egress_usd},
                 {"interest, maintenance, space", o->other_usd}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].usd > 0.0) {
            ls_text_printf(text, "  %-28s %14.2f USD\n", parts[i].name, parts[i].usd);
        }
    }
    ls_text_printf(text, "a run = %.2f USD; between the ends of the price range %.2f to %.2f\n", o->run_usd,
                   o->run_usd_low, o->run_usd_high);
    return LS_OK;
}

static const struct {
    const char *name;
    explain_function *explain;
} terms[] = {
    {"goodput", explain_goodput},
    {"checkpoint", explain_goodput},
    {"power", explain_power},
    {"cooling", explain_power},
    {"break-even", explain_break_even},
    {"batch", explain_batch},
    {"tokens", explain_tokens},
    {"mfu", explain_mfu},
    {"step", explain_step},
    {"other", explain_step},
    {"band", explain_band},
    {"plan", explain_plan},
    {"days", explain_days},
    {"cost", explain_cost},
    {"constants", explain_constants},
};

/* Labels of the answer, and words close to a term, as other names of it. */
static const char *find_synonym(const char *word)
{
    static const char *const synonyms[][2] = {
        {"tokens/s", "days"},     {"tflop/s", "mfu"},  {"hfu", "mfu"},
        {"memory/gpu", "memory"}, {"risk", "goodput"}, {"training", "tokens"},
        {"buying", "break-even"}, {"run", "days"},     {"strategy", "plan"},
    };
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++) {
        if (strcasecmp(word, synonyms[i][0]) == 0) {
            return synonyms[i][1];
        }
    }
    return word;
}

ls_status ls_plan_explain(const ls_plan_answer *answer, const char *word, ls_text *text)
{
    const char *term = find_synonym(word);
    if (answer->own && ls_plan_explain_here(answer, term, text)) {
        return LS_OK;
    }
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
        if (strcasecmp(term, terms[i].name) == 0) {
            return terms[i].explain(answer, text);
        }
    }
    const ls_status status = ls_estimate_explain(&answer->setting, &answer->estimate.strategy, term, text);
    if (status == LS_ERR_NOT_FOUND) {
        ls_text others = {0};
        for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
            ls_text_printf(&others, ", %s", terms[i].name);
        }
        ls_fail(status, "--explain: %s%s", ls_error_text(), ls_text_string(&others));
        ls_text_release(&others);
    }
    return status;
}
