// SPDX-License-Identifier: Apache-2.0
/* No machine was named: which machines are compared, under a desk and in data centres, and in which
 * sizes. */
#include "planning/answer/answer_internal.h"

#include <math.h>

#define GPUS_MOST 32768 /* of the sizes that are compared */
/* Twice the GPUs must be this much faster, else larger sizes are not examined */
#define GAIN_LEAST  1.05
#define KINDS_MOST  4      /* kinds that are compared, besides those of own offers */
#define KIND_ALWAYS "h100" /* always compared: most constants were measured on it */

/* ---- sizes ---- */

/* The next size: doubled, and in whole nodes from one node upwards: 1, 2, 4, ... 64, 72, 144,
 * ... */
static int64_t next_size(const ls_node *node, int64_t gpus)
{
    return gpus < node->count && 2 * gpus > node->count ? node->count : 2 * gpus;
}

/* Adds sizes, doubling until they are hardly faster. */
static void add_sizes(ls_plan_money *money, size_t first, const ls_node *node)
{
    double before = 0.0;
    for (int64_t gpus = 1; gpus <= GPUS_MOST && first < money->path_count; gpus = next_size(node, gpus)) {
        const double speed = ls_plan_money_add_size(money, first, node, gpus);
        if (before > 0.0 && speed < GAIN_LEAST * before && gpus > node->count) {
            return; /* the last size may have been less than doubled */
        }
        before = speed;
    }
}

/* ---- no machine was named: under a desk ---- */

static const ls_node *usual_node(ls_plan_answer *answer, const ls_accelerator *accelerator)
{
    return ls_catalogue_usual_node(&answer->catalogue, answer->arena, accelerator);
}

/* Whether an own offer is for this accelerator. */
static bool has_own_offer(const ls_plan_money *money, const ls_node *node)
{
    const ls_quote *quote = money->prices.quote;
    for (size_t i = 0; quote && i < quote->count; i++) {
        if (ls_offer_is_for(&quote->offers[i], &money->answer->catalogue, node)) {
            return true;
        }
    }
    return false;
}

static ls_status add_desk(ls_plan_money *money, const ls_node *node, bool is_rented)
{
    const size_t first = money->path_count;
    LS_TRY(ls_plan_money_add_path(money, LS_PATH_LOCAL, node, false));
    if (is_rented) {
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_RENTED, node, false));
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_CLOUD, node, false));
    }
    ls_plan_money_add_size(money, first, node, 1);
    return LS_OK;
}

static ls_status add_local_paths(ls_plan_money *money)
{
    static const char *const cards[] = {"RTX-5090-32GB", "Mac-Studio-M3-Ultra-512"};
    enum { CARDS = sizeof cards / sizeof cards[0] };
    ls_plan_answer *answer = money->answer;
    const ls_accelerator *usual[CARDS] = {NULL};
    const ls_node *here = ls_plan_describe_here(answer);
    if (here) {
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_LOCAL, here, true));
        ls_plan_money_add_size(money, 0, here, 1);
    }
    for (size_t i = 0; i < CARDS; i++) {
        const ls_node *node = NULL;
        if (ls_catalogue_find_node(&answer->catalogue, cards[i], &node) != LS_OK) {
            LS_TRY(ls_catalogue_find_accelerator(&answer->catalogue, cards[i], &usual[i]));
            node = usual_node(answer, usual[i]);
        }
        ls_error_clear();
        usual[i] = node->accelerator;
        LS_TRY(add_desk(money, node, has_own_offer(money, node)));
    }
    for (size_t i = 0; i < answer->catalogue.accelerator_count; i++) {
        const ls_accelerator *accelerator = &answer->catalogue.accelerators[i];
        const ls_node *node = usual_node(answer, accelerator);
        const bool is_usual = accelerator == usual[0] || accelerator == usual[1];
        if (!is_usual && node->count == 1 && ls_plan_is_workstation(node, 1) && has_own_offer(money, node)) {
            LS_TRY(add_desk(money, node, true));
        }
    }
    return LS_OK;
}

/* ---- no machine was named: in a hall ---- */

/* A kind of accelerator that could be compared. */
typedef struct candidate {
    const ls_node *node;
    /* rent for an hour of 1e15 FLOP/s in bf16; INFINITY: it cannot be rented */
    double usd_by_peak;
    bool is_measured; /* the stack's constants were measured on its own generation */
    bool is_own;      /* there are own offers for it */
    bool is_compared;
} candidate;

static bool is_measured(const ls_plan_answer *answer, const ls_accelerator *accelerator)
{
    const char *from = NULL;
    ls_stack stack;
    const ls_status found =
        ls_stack_find(ls_plan_stack_name(answer, accelerator), accelerator, &stack, &from);
    ls_error_clear();
    return found == LS_OK && !from;
}

/* Finds the accelerators that are sold in servers, in the catalogue's order. */
static size_t find_candidates(const ls_plan_money *money, candidate *candidates)
{
    ls_plan_answer *answer = money->answer;
    size_t count = 0;
    for (size_t i = 0; i < answer->catalogue.accelerator_count; i++) {
        const ls_accelerator *a = &answer->catalogue.accelerators[i];
        const ls_node *node = usual_node(answer, a);
        const bool is_served = (a->class == LS_CLASS_GPU || a->class == LS_CLASS_TPU) && node->count > 1;
        ls_offer offer;
        if (is_served) {
            const bool is_rented = ls_offer_rented(node, &offer) && a->bf16_flops > 0.0;
            candidates[count++] =
                (candidate){.node = node,
                            .usd_by_peak = is_rented ? offer.usd * 1e15 / a->bf16_flops : INFINITY,
                            .is_measured = is_measured(answer, a),
                            .is_own = has_own_offer(money, node)};
        }
    }
    return count;
}

/* Chooses those of own offers, KIND_ALWAYS, and the cheapest by peak FLOP/s. */
static void choose_candidates(const ls_accelerator *always, candidate *candidates, size_t count)
{
    size_t chosen = 1;
    for (size_t i = 0; i < count; i++) {
        candidates[i].is_compared = candidates[i].is_own || candidates[i].node->accelerator == always;
    }
    while (chosen < KINDS_MOST) {
        candidate *best = NULL;
        for (size_t i = 0; i < count; i++) {
            candidate *one = &candidates[i];
            if (!one->is_compared && one->is_measured && isfinite(one->usd_by_peak) &&
                (!best || one->usd_by_peak < best->usd_by_peak)) {
                best = one;
            }
        }
        if (!best) {
            return;
        }
        best->is_compared = true;
        chosen++;
    }
}

/* Why a candidate is compared, or not. */
typedef enum candidate_group { COMPARED, DEARER, NOT_MEASURED, NO_RENT } candidate_group;

static candidate_group group_of(const candidate *one)
{
    return one->is_compared              ? COMPARED
           : !isfinite(one->usd_by_peak) ? NO_RENT
           : !one->is_measured           ? NOT_MEASURED
                                         : DEARER;
}

/* Adds an assumption with the names of a group, and what an hour of their peak costs. */
static void append_group(ls_plan_answer *answer, const candidate *candidates, size_t count,
                         candidate_group group, const char *what, const char *hint)
{
    ls_text text = {0};
    for (size_t i = 0; i < count; i++) {
        const candidate *one = &candidates[i];
        if (group_of(one) == group) {
            ls_text_printf(&text, "%s%s", text.bytes > 0 ? ", " : "", one->node->accelerator->name);
            if (isfinite(one->usd_by_peak)) {
                ls_text_printf(&text, " %.2f", one->usd_by_peak);
            }
        }
    }
    if (text.bytes > 0) {
        ls_assumptions_add(&answer->assumptions, "%s: %s (%s)", what, ls_text_string(&text), hint);
    }
    ls_text_release(&text);
}

static void assume_candidates(ls_plan_answer *answer, const candidate *candidates, size_t count)
{
    append_group(answer, candidates, count, COMPARED,
                 "compared: H100, the accelerators of own offers, and the cheapest by peak FLOP/s",
                 "USD to rent 1 PFLOP/s of bf16 for an hour");
    append_group(answer, candidates, count, DEARER, "not compared because their peak costs more",
                 "--gpus KIND:COUNT plans one");
    append_group(answer, candidates, count, NOT_MEASURED,
                 "not compared because the software was never measured on them",
                 "--gpus KIND:COUNT plans one anyway");
    append_group(answer, candidates, count, NO_RENT, "not compared because no price to rent them is known",
                 "--quote FILE gives one");
}

static ls_status add_hall_paths(ls_plan_money *money)
{
    ls_plan_answer *answer = money->answer;
    const ls_accelerator *always = NULL;
    candidate *candidates = ls_arena_new(answer->arena, candidate, answer->catalogue.accelerator_count);
    const size_t count = find_candidates(money, candidates);
    LS_TRY(ls_catalogue_find_accelerator(&answer->catalogue, KIND_ALWAYS, &always));
    choose_candidates(always, candidates, count);
    assume_candidates(answer, candidates, count);
    for (size_t i = 0; i < count; i++) {
        money->kinds_left += candidates[i].is_compared ? 3 : 0; /* rented, cloud, owned */
    }
    for (size_t i = 0; i < count; i++) {
        const ls_node *node = candidates[i].node;
        const size_t first = money->path_count;
        if (!candidates[i].is_compared) {
            continue;
        }
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_RENTED, node, false));
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_CLOUD, node, false));
        LS_TRY(ls_plan_money_add_path(money, LS_PATH_OWNED, node, false));
        add_sizes(money, first, node);
    }
    return LS_OK;
}

/* A model outside the portfolio may need more GPUs than were chosen for the portfolio's runs. */
static void make_room(ls_plan_answer *answer)
{
    const ls_plan_work own = ls_plan_own_work(answer);
    ls_setting setting;
    ls_estimate estimate;
    if (answer->portfolio.count == 0 || answer->examined) {
        return;
    }
    while (answer->setting.gpus < GPUS_MOST &&
           !ls_plan_estimate_on(answer, &own, &answer->node, answer->setting.gpus, &setting, &estimate)) {
        answer->setting.gpus *= 2;
    }
}

/* Nothing fits anywhere. Takes the largest number of GPUs of the usual node over which the work can
 * be split at all, so that the answer has numbers. */
static ls_status choose_largest(ls_plan_answer *answer)
{
    const ls_plan_work work = ls_plan_own_work(answer);
    const ls_search_options options = {.request = answer->request};
    ls_strategy strategy;
    ls_memory_estimate memory;
    for (int64_t gpus = answer->node.count; gpus <= GPUS_MOST; gpus *= 2) {
        ls_setting setting;
        LS_TRY(ls_plan_setting_on(answer, &work, &answer->node, gpus, &setting));
        if (ls_search_least(&setting, &options, &strategy, &memory)) {
            answer->setting.gpus = gpus;
        }
    }
    return answer->setting.gpus > 0 ? LS_OK : ls_fail(LS_ERR_INVALID, "%s", answer->refusal);
}

ls_status ls_plan_compare(ls_plan_answer *answer)
{
    ls_plan_money *money = NULL;
    LS_TRY(ls_plan_money_begin(answer, &money));
    LS_TRY(add_local_paths(money));
    LS_TRY(add_hall_paths(money));
    LS_TRY(ls_plan_money_decide(money));
    if (!answer->outcome) {
        const char *strategy = answer->asked->strategy;
        answer->refusal = ls_arena_printf(
            answer->arena, "%s does not fit on any machine that was compared, up to %d x %s%s%s%s",
            answer->shape.name, GPUS_MOST, answer->node.accelerator->name,
            strategy[0] ? ", with --strategy " : "", strategy,
            strategy[0] ? ": leave zero, tp and pp open to let the search find what fits (ZeRO-3 shares "
                          "weights, gradients and optimizer; tp and pp split the model)"
                        : "");
        return choose_largest(answer);
    }
    answer->node = *answer->outcome->path->node;
    answer->setting.gpus = answer->outcome->gpus;
    make_room(answer);
    return LS_OK;
}
