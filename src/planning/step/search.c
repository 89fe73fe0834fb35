// SPDX-License-Identifier: Apache-2.0
#include "planning/step/search.h"

#include "base/assert.h"
#include "planning/step/evidence.h"
#include "planning/step/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GIB             1073741824.0
#define TENSOR_MAX      256 /* matrices are split over no more GPUs than any scale-up domain has */
#define MICRO_BATCH_MAX 4096
/* shortest part of a sequence that is worth the exchange of keys and values */
#define CONTEXT_TOKENS_MIN 1024
#define WHY_LEAST          0.003 /* shares of a step that are worth mentioning */
#define WHY_TERMS          3
#define GPUS_LIMIT         (1 << 20)

/* The walk over all strategies. `at` is the strategy being built, from the outer loops to the inner
 * ones. */
typedef struct walk {
    const ls_setting *setting;
    const ls_search_options *options;
    const ls_evidence *evidence; /* of the stack */
    ls_strategy at;
    /* Of the cut being walked. */
    ls_estimate cut_best;
    bool cut_has;
    /* The best of each cut, fastest first. */
    ls_estimate best[LS_SEARCH_TOP_MAX + 1];
    size_t best_count, best_limit;
    /* The strategy with the least memory so far, to report what would be needed. */
    ls_strategy least_strategy;
    ls_memory_estimate least;
    uint64_t possible, discarded, evaluated;
    bool any_allowed; /* by ls_strategy_check */
    bool first_fit_is_enough, done;
} walk;

static bool divides(int64_t part, int64_t whole)
{
    return whole % part == 0;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The features that a strategy uses although no run has shown them and another strategy could avoid
 * them. */
static unsigned unmeasured(const walk *w, const ls_strategy *strategy)
{
    return ls_evidence_missing(w->evidence, ls_evidence_features(w->setting, strategy)) &
           LS_FEATURES_OPTIONAL;
}

/* The sort key of estimates: the step time, with a small penalty for nearly full memory and a
 * larger one for what was never measured. */
static double order_key(const walk *w, const ls_estimate *estimate)
{
    double key = estimate->time.step_s * (estimate->fit == LS_FIT_TIGHT ? 1.0 + LS_SEARCH_TIGHT_GAIN : 1.0);
    for (unsigned left = unmeasured(w, &estimate->strategy); left; left &= left - 1) {
        key *= 1.0 + LS_SEARCH_UNMEASURED_GAIN;
    }
    return key;
}

/* Computes the memory of walk->at, which is allowed, and keeps the least. */
static ls_fit weigh(walk *w)
{
    ls_memory_estimate memory;
    ls_memory_compute(w->setting, &w->at, &memory);
    if (w->least.total == 0.0 || memory.total < w->least.total) {
        w->least = memory;
        w->least_strategy = w->at;
    }
    return ls_memory_judge(&memory);
}

/* The same for a strategy that may not be allowed: only a bound, never offered to anyone. */
static ls_fit bound(walk *w)
{
    ls_memory_estimate memory;
    ls_memory_compute(w->setting, &w->at, &memory);
    return ls_memory_judge(&memory);
}

/* ---- innermost: ZeRO and recompute ---- */

static ls_fit try_one(walk *w)
{
    w->possible++;
    const ls_fit fit = weigh(w);
    if (fit == LS_FIT_NO) {
        w->discarded++;
        return fit;
    }
    if (w->first_fit_is_enough) {
        w->done = true;
        return fit;
    }
    ls_estimate estimate;
    ls_estimate_compute(w->setting, &w->at, &estimate);
    w->evaluated++;
    if (!w->cut_has || order_key(w, &estimate) < order_key(w, &w->cut_best)) {
        w->cut_best = estimate;
        w->cut_has = true;
    }
    return fit;
}

static void walk_recompute(walk *w)
{
    const ls_strategy_request *request = &w->options->request;
    if (request->has_recompute) {
        w->at.recompute = request->strategy.recompute;
        try_one(w);
        return;
    }
    for (int r = LS_RECOMPUTE_NONE; r <= LS_RECOMPUTE_FULL && !w->done; r++) {
        w->at.recompute = (ls_recompute)r;
        if (try_one(w) == LS_FIT_YES) {
            return; /* recomputing more is never faster */
        }
    }
}

/* In a pipeline, gradients and weights are not split, because they would have to be reduced after
 * every micro-batch. */
static int zero_max(const walk *w)
{
    return w->at.dp * w->at.cp == 1 ? 0 : w->at.pp > 1 ? 1 : 3;
}

/* Stacks without FSDP go from a split optimizer to split weights. */
static bool is_usual_zero(const walk *w, int zero)
{
    return zero != 2 || w->setting->stack->fsdp_overlap > 0.0;
}

static void walk_zero(walk *w)
{
    const ls_strategy_request *request = &w->options->request;
    const int first = request->has_zero ? request->strategy.zero : 0;
    const int last = request->has_zero ? request->strategy.zero : zero_max(w);
    for (w->at.zero = first; w->at.zero <= last && !w->done; w->at.zero++) {
        if (request->has_zero || is_usual_zero(w, w->at.zero)) {
            walk_recompute(w);
        }
    }
}

/* True when even the strategy with the least memory in this branch does not fit, as judged by
 * `judge`. */
static bool is_hopeless(walk *w, ls_fit (*judge)(walk *))
{
    const ls_strategy_request *request = &w->options->request;
    const ls_strategy kept = w->at;
    w->at.zero = request->has_zero ? request->strategy.zero : zero_max(w);
    w->at.recompute = request->has_recompute ? request->strategy.recompute : LS_RECOMPUTE_FULL;
    const bool hopeless = judge(w) == LS_FIT_NO;
    w->at = kept;
    return hopeless;
}

/* ---- the pipeline's schedule and interleaving ---- */

static bool is_allowed(walk *w)
{
    const bool allowed = ls_strategy_check(&w->at, w->setting->shape, w->setting->gpus,
                                           w->setting->global_batch, w->setting->length) == LS_OK;
    w->any_allowed = w->any_allowed || allowed;
    return allowed;
}

static void walk_schedule(walk *w)
{
    const ls_strategy_request *request = &w->options->request;
    const bool open = !request->has_schedule && w->options->any_schedule && w->at.pp > 1 && w->at.vpp == 1;
    const ls_pipeline_schedule given = request->has_schedule ? request->strategy.schedule : LS_PIPELINE_1F1B;
    static const ls_pipeline_schedule all[] = {LS_PIPELINE_1F1B, LS_PIPELINE_ZB_H1, LS_PIPELINE_ZB_H2};
    const size_t count = open ? sizeof all / sizeof all[0] : 1;
    for (size_t i = 0; i < count && !w->done; i++) {
        w->at.schedule = open ? all[i] : given;
        w->at.zero = 0;
        w->at.recompute = LS_RECOMPUTE_NONE;
        if (is_allowed(w) && !is_hopeless(w, weigh)) {
            walk_zero(w);
        }
    }
}

static void walk_interleave(walk *w)
{
    const int64_t given = w->options->request.strategy.vpp, layers = w->setting->shape->config.layers;
    const int64_t last = given > 0 ? given : w->at.pp > 1 ? layers / w->at.pp : 1;
    for (w->at.vpp = given > 0 ? given : 1; w->at.vpp <= last && !w->done; w->at.vpp++) {
        if (given > 0 || ls_strategy_deals_out(layers, w->at.pp, w->at.vpp, false)) {
            walk_schedule(w);
        }
    }
}

/* ---- micro-batch and sequence parallel ---- */

static void walk_sequence_parallel(walk *w)
{
    const ls_strategy_request *request = &w->options->request;
    w->at.sequence_parallel =
        request->has_sequence_parallel ? request->strategy.sequence_parallel : w->at.tp > 1;
    walk_interleave(w);
}

/* Micro-batches grow until even the strategy with the least memory does not fit. */
static void walk_micro_batch(walk *w)
{
    const int64_t given = w->options->request.strategy.micro_batch;
    const int64_t per_rank = w->setting->global_batch / w->at.dp;
    const int64_t last = given > 0 ? given : least_of(per_rank, MICRO_BATCH_MAX);
    for (w->at.micro_batch = given > 0 ? given : 1; w->at.micro_batch <= last && !w->done;
         w->at.micro_batch++) {
        if (given == 0 && !divides(w->at.micro_batch, per_rank)) {
            continue;
        }
        w->at.vpp = 1;
        w->at.sequence_parallel = w->at.tp > 1;
        w->at.schedule = LS_PIPELINE_1F1B;
        if (given == 0 && w->at.micro_batch > 1 && w->any_allowed && is_hopeless(w, bound)) {
            return;
        }
        walk_sequence_parallel(w);
    }
}

/* ---- cuts: (tp, pp), and what is inside them ---- */

static void keep_cut(walk *w)
{
    if (!w->cut_has) {
        return;
    }
    size_t at = w->best_count;
    while (at > 0 && order_key(w, &w->cut_best) < order_key(w, &w->best[at - 1])) {
        at--;
    }
    if (at >= w->best_limit) {
        return;
    }
    const size_t kept = w->best_count < w->best_limit ? w->best_count : w->best_limit - 1;
    memmove(&w->best[at + 1], &w->best[at], (kept - at) * sizeof w->best[0]);
    w->best[at] = w->cut_best;
    w->best_count = kept + 1;
}

/* Where tp and pp are given, a cut is (cp, ep). */
static bool is_fine_cut(const walk *w)
{
    const ls_strategy *given = &w->options->request.strategy;
    return given->tp > 0 && given->pp > 0;
}

static void begin_cut(walk *w, bool is_one)
{
    w->cut_has = w->cut_has && !is_one;
}

static void end_cut(walk *w, bool is_one)
{
    if (is_one) {
        keep_cut(w);
    }
}

static void walk_expert(walk *w)
{
    const int64_t given = w->options->request.strategy.ep;
    const int64_t experts = w->setting->shape->moe.experts, group = w->at.dp * w->at.cp;
    const int64_t last = given > 0 ? given : experts > 0 ? experts : 1;
    for (w->at.ep = given > 0 ? given : 1; w->at.ep <= last && !w->done; w->at.ep++) {
        if (given > 0 || w->at.ep == 1 || (experts % w->at.ep == 0 && group % w->at.ep == 0)) {
            begin_cut(w, is_fine_cut(w));
            walk_micro_batch(w);
            end_cut(w, is_fine_cut(w));
        }
    }
}

/* The remaining GPUs are data parallel. */
static void walk_data(walk *w)
{
    const int64_t given = w->options->request.strategy.dp;
    w->at.dp = w->setting->gpus / (w->at.tp * w->at.pp * w->at.cp);
    if (w->at.dp <= w->setting->global_batch && w->setting->global_batch % w->at.dp == 0 &&
        (given == 0 || given == w->at.dp)) {
        walk_expert(w);
    }
}

static void walk_context(walk *w)
{
    const int64_t given = w->options->request.strategy.cp, length = w->setting->length;
    const int64_t left = w->setting->gpus / (w->at.tp * w->at.pp);
    for (w->at.cp = given > 0 ? given : 1; w->at.cp <= (given > 0 ? given : left) && !w->done; w->at.cp++) {
        if (given == 0 && w->at.cp > 1 && length / w->at.cp < CONTEXT_TOKENS_MIN) {
            return;
        }
        if (divides(w->at.cp, left) && (given > 0 || divides(w->at.cp, length))) {
            walk_data(w);
        }
    }
}

static void walk_pipeline(walk *w)
{
    const int64_t given = w->options->request.strategy.pp, left = w->setting->gpus / w->at.tp;
    const int64_t last = given > 0 ? given : least_of(left, w->setting->shape->config.layers);
    for (w->at.pp = given > 0 ? given : 1; w->at.pp <= last && !w->done; w->at.pp++) {
        if (divides(w->at.pp, left)) {
            begin_cut(w, !is_fine_cut(w));
            walk_context(w);
            end_cut(w, !is_fine_cut(w));
        }
    }
}

static void walk_tensor(walk *w)
{
    const int64_t given = w->options->request.strategy.tp;
    const ls_model_config *config = &w->setting->shape->config;
    const int64_t last = given > 0 ? given : least_of(least_of(w->setting->gpus, config->heads), TENSOR_MAX);
    for (w->at.tp = given > 0 ? given : 1; w->at.tp <= last && !w->done; w->at.tp++) {
        if (divides(w->at.tp, w->setting->gpus) && (given > 0 || divides(w->at.tp, config->heads))) {
            walk_pipeline(w);
        }
    }
}

/* ---- nothing can be run, or nothing fits ---- */

static bool something_fits(const ls_setting *setting, const ls_search_options *options)
{
    walk w = {.setting = setting, .options = options, .first_fit_is_enough = true, .best_limit = 1};
    walk_tensor(&w);
    return w.done;
}

/* The next larger batch that is divisible by the odd part of the GPUs. */
static int64_t round_batch(int64_t batch, int64_t gpus)
{
    int64_t odd = gpus;
    while (odd % 2 == 0) {
        odd /= 2;
    }
    return (batch + odd - 1) / odd * odd;
}

/* The smallest count, doubled from the setting's, on which something fits with what is given, and
 * its batch; 0: none. */
static int64_t find_gpus_that_fit(const ls_setting *setting, const ls_search_options *options,
                                  int64_t *batch_out)
{
    ls_setting larger = *setting;
    for (larger.gpus = setting->gpus * 2; larger.gpus <= GPUS_LIMIT; larger.gpus *= 2) {
        larger.global_batch = round_batch(larger.global_batch, larger.gpus);
        if (something_fits(&larger, options)) {
            *batch_out = larger.global_batch;
            return larger.gpus;
        }
    }
    return 0;
}

static ls_status fail_no_strategy(const walk *w)
{
    const ls_setting *setting = w->setting;
    ls_strategy strategy = w->options->request.strategy;
    int64_t *const parts[] = {&strategy.tp, &strategy.pp,  &strategy.cp,
                              &strategy.ep, &strategy.vpp, &strategy.micro_batch};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i] = *parts[i] > 0 ? *parts[i] : 1;
    }
    const int64_t cut = strategy.tp * strategy.pp * strategy.cp;
    if (strategy.dp == 0) {
        strategy.dp = setting->gpus % cut == 0 ? setting->gpus / cut : 1;
    }
    LS_TRY(
        ls_strategy_check(&strategy, setting->shape, setting->gpus, setting->global_batch, setting->length));
    return ls_fail(LS_ERR_INVALID,
                   "no way to split %s over %" PRId64 " GPUs with a global batch of %" PRId64
                   " sequences: the data-parallel degree (the number of copies of the model) must divide the "
                   "batch; give another --global-batch or GPU count",
                   setting->shape->name, setting->gpus, setting->global_batch);
}

static bool is_open(const ls_strategy_request *request)
{
    const ls_strategy *s = &request->strategy;
    return s->tp == 0 && s->pp == 0 && s->dp == 0 && s->cp == 0 && s->ep == 0 && s->vpp == 0 &&
           s->micro_batch == 0 && !request->has_zero && !request->has_recompute &&
           !request->has_sequence_parallel && !request->has_schedule;
}

/* Suggests more GPUs, with what is given where possible, else without it. */
static bool advise_gpus(const walk *w, char *text, size_t bytes)
{
    const ls_setting *setting = w->setting;
    const ls_search_options open = {0};
    int64_t batch = 0, gpus = find_gpus_that_fit(setting, w->options, &batch);
    const char *with = "";
    if (gpus == 0 && !is_open(&w->options->request)) {
        gpus = find_gpus_that_fit(setting, &open, &batch);
        with = " with another strategy";
    }
    char and_batch[64] = "";
    if (batch != setting->global_batch) {
        snprintf(and_batch, sizeof and_batch, " and --global-batch %" PRId64, batch);
    }
    snprintf(text, bytes, "it fits on %" PRId64 " of them%s%s", gpus, with, and_batch);
    return gpus > 0;
}

/* Suggests what to do, the smallest change first. */
static void advise(const walk *w, char *text, size_t bytes)
{
    const ls_setting *setting = w->setting;
    const ls_search_options open = {0};
    ls_setting other = *setting;
    other.global_batch = round_batch(setting->global_batch, setting->gpus);
    ls_search_result result;
    if (!is_open(&w->options->request) && ls_search_run(setting, &open, &result) == LS_OK) {
        ls_search_offer(&result.best, text, bytes);
    } else if (other.global_batch != setting->global_batch && something_fits(&other, w->options)) {
        snprintf(text, bytes, "it fits with --global-batch %" PRId64 ", which more ranks can share",
                 other.global_batch);
    } else if (!advise_gpus(w, text, bytes)) {
        snprintf(text, bytes, "use more or larger accelerators, a smaller model, or shorter sequences");
    }
}

static ls_status fail_nothing_fits(const walk *w)
{
    const ls_setting *setting = w->setting;
    char strategy[160], advice[LS_SEARCH_OFFER_BYTES];
    ls_strategy_describe(&w->least_strategy, strategy, sizeof strategy);
    advise(w, advice, sizeof advice);
    return ls_fail(LS_ERR_INVALID,
                   "%s does not fit on %" PRId64 " x %s%s: it needs at least %.1f GiB on each GPU, which has "
                   "%.1f GiB (%s), and 95 %% of that may be used; %s",
                   setting->shape->name, setting->gpus, setting->node->accelerator->name,
                   is_open(&w->options->request) ? "" : " with the given part of the strategy",
                   w->least.total / GIB, w->least.capacity / GIB, strategy, advice);
}

void ls_search_offer(const ls_estimate *estimate, char *text, size_t bytes)
{
    char words[160], option[160];
    ls_strategy_describe(&estimate->strategy, words, sizeof words);
    ls_strategy_format(&estimate->strategy, option, sizeof option);
    snprintf(text, bytes, "what fits: %s (%.1f GiB, %.3g s a step): --strategy %s", words,
             estimate->memory.total / GIB, estimate->time.step_s, option);
}

/* ---- why others lose ---- */

void ls_search_why(const ls_estimate *best, const ls_estimate *other, char *text, size_t bytes)
{
    double delta[LS_TERM_COUNT];
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        delta[i] = (other->time.terms_s[i] - best->time.terms_s[i]) / best->time.step_s;
    }
    size_t used = 0;
    text[0] = '\0';
    for (int shown = 0; shown < WHY_TERMS && used < bytes; shown++) {
        int most = 0;
        for (int i = 1; i < LS_TERM_COUNT; i++) {
            most = fabs(delta[i]) > fabs(delta[most]) ? i : most;
        }
        if (fabs(delta[most]) < WHY_LEAST) {
            break;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%+.1f %% %s", used ? ", " : "",
                                 100.0 * delta[most], ls_term_name((ls_term)most));
        delta[most] = 0.0;
    }
    if (used == 0) {
        snprintf(text, bytes, "the same within %.1f %%", 100.0 * WHY_LEAST);
    }
    if (other->fit == LS_FIT_TIGHT && best->fit == LS_FIT_YES && used < bytes) {
        snprintf(text + strlen(text), bytes - strlen(text), "; memory is tight: %.0f of %.0f GiB",
                 other->memory.total / GIB, other->memory.capacity / GIB);
    }
}

/* Appends what a rival uses that was never measured and the best strategy does not. */
static void say_unmeasured(const walk *w, const ls_search_result *result, ls_search_rival *rival)
{
    const unsigned more = unmeasured(w, &rival->estimate.strategy) & ~unmeasured(w, &result->best.strategy);
    const size_t used = strlen(rival->why);
    if (more) {
        char names[128];
        ls_evidence_describe(more, names, sizeof names);
        snprintf(rival->why + used, sizeof rival->why - used, "; never measured: %s", names);
    }
}

static void explain_misfit(const ls_memory_estimate *best, const ls_memory_estimate *other, char *text,
                           size_t bytes)
{
    const struct {
        const char *name;
        double more;
    } parts[] = {{"weights", other->weights - best->weights},
                 {"gradients", other->gradients - best->gradients},
                 {"optimizer", other->optimizer - best->optimizer},
                 {"activations", other->activations - best->activations},
                 {"buffers", other->buffers - best->buffers}};
    size_t most = 0;
    for (size_t i = 1; i < sizeof parts / sizeof parts[0]; i++) {
        most = parts[i].more > parts[most].more ? i : most;
    }
    snprintf(text, bytes, "does not fit: %.0f of %.0f GiB, %s +%.0f", other->total / GIB,
             other->capacity / GIB, parts[most].name, parts[most].more / GIB);
}

/* ---- neighbours: one thing changed ---- */

static void LS_PRINTF(4, 5) add_neighbour(const walk *w, const ls_strategy *strategy,
                                          ls_search_result *result, const char *change, ...)
{
    if (result->neighbour_count == LS_SEARCH_NEIGHBOURS_MAX ||
        ls_strategy_check(strategy, w->setting->shape, w->setting->gpus, w->setting->global_batch,
                          w->setting->length) != LS_OK) {
        return;
    }
    ls_search_rival *rival = &result->neighbours[result->neighbour_count++];
    va_list args;
    va_start(args, change);
    vsnprintf(rival->change, sizeof rival->change, change, args);
    va_end(args);
    ls_estimate_compute(w->setting, strategy, &rival->estimate);
    if (rival->estimate.fit == LS_FIT_NO) {
        explain_misfit(&result->best.memory, &rival->estimate.memory, rival->why, sizeof rival->why);
    } else {
        ls_search_why(&result->best, &rival->estimate, rival->why, sizeof rival->why);
        say_unmeasured(w, result, rival);
    }
}

static void add_memory_neighbours(const walk *w, ls_search_result *result)
{
    const ls_strategy_request *request = &w->options->request;
    const ls_strategy best = result->best.strategy;
    for (int zero = 0; zero <= 3 && best.dp * best.cp > 1 && !request->has_zero; zero++) {
        if (zero != best.zero && (best.pp == 1 || zero <= 1) && is_usual_zero(w, zero)) {
            ls_strategy other = best;
            other.zero = zero;
            add_neighbour(w, &other, result, "ZeRO-%d", zero);
        }
    }
    for (int r = LS_RECOMPUTE_NONE; r <= LS_RECOMPUTE_FULL && !request->has_recompute; r++) {
        if (r != (int)best.recompute) {
            ls_strategy other = best;
            other.recompute = (ls_recompute)r;
            add_neighbour(w, &other, result, "%s recompute",
                          r == LS_RECOMPUTE_NONE ? "no" : ls_recompute_name((ls_recompute)r));
        }
    }
}

/* Without context parallelism; experts over twice and over half as many. */
static void add_cut_neighbours(const walk *w, ls_search_result *result)
{
    const ls_strategy *given = &w->options->request.strategy, best = result->best.strategy;
    ls_strategy other = best;
    if (given->cp == 0 && given->dp == 0 && best.cp > 1) {
        other.dp = best.dp * best.cp;
        other.cp = 1;
        add_neighbour(w, &other, result, "no context parallelism");
    }
    for (int i = 0; i < 2 && given->ep == 0 && w->setting->shape->moe.experts > 0; i++) {
        other = best;
        other.ep = i == 0 ? best.ep * 2 : best.ep / 2;
        add_neighbour(w, &other, result, "experts over %" PRId64, other.ep);
    }
}

static void add_pipeline_neighbours(const walk *w, ls_search_result *result)
{
    const ls_strategy_request *request = &w->options->request;
    const ls_strategy best = result->best.strategy;
    ls_strategy other = best;
    if (request->strategy.micro_batch == 0) {
        other.micro_batch = best.micro_batch * 2;
        add_neighbour(w, &other, result, "micro-batch %" PRId64, other.micro_batch);
        if (best.micro_batch % 2 == 0) {
            other.micro_batch = best.micro_batch / 2;
            add_neighbour(w, &other, result, "micro-batch %" PRId64, other.micro_batch);
        }
    }
    other = best;
    if (request->strategy.vpp == 0 && best.vpp > 1) {
        other.vpp = 1;
        add_neighbour(w, &other, result, "no interleaving");
    }
    other = best;
    other.vpp = 1;
    for (int s = LS_PIPELINE_ZB_H1; s <= LS_PIPELINE_ZB_H2 && best.pp > 1 && !request->has_schedule; s++) {
        if (s != (int)best.schedule) {
            other.schedule = (ls_pipeline_schedule)s;
            add_neighbour(w, &other, result, "schedule %s", ls_pipeline_schedule_name(other.schedule));
        }
    }
}

/* ---- all ---- */

static void write_result(const walk *w, ls_search_result *result)
{
    result->best = w->best[0];
    result->ranked_count = w->best_count - 1;
    for (size_t i = 0; i < result->ranked_count; i++) {
        result->ranked[i].estimate = w->best[i + 1];
        ls_search_why(&result->best, &w->best[i + 1], result->ranked[i].why, sizeof result->ranked[i].why);
        say_unmeasured(w, result, &result->ranked[i]);
    }
    result->neighbour_count = 0;
    add_cut_neighbours(w, result);
    add_memory_neighbours(w, result);
    add_pipeline_neighbours(w, result);
    result->possible = w->possible;
    result->discarded = w->discarded;
    result->evaluated = w->evaluated;
}

bool ls_search_least(const ls_setting *setting, const ls_search_options *options, ls_strategy *strategy_out,
                     ls_memory_estimate *memory_out)
{
    walk w = {.setting = setting, .options = options, .best_limit = 1};
    walk_tensor(&w);
    if (w.least.total > 0.0) {
        *strategy_out = w.least_strategy;
        *memory_out = w.least;
    }
    ls_error_clear();
    return w.least.total > 0.0;
}

ls_status ls_search_run(const ls_setting *setting, const ls_search_options *options,
                        ls_search_result *result_out)
{
    LS_ASSERT(setting->gpus > 0 && setting->global_batch > 0 && setting->length > 0);
    LS_ASSERT(options->top <= LS_SEARCH_TOP_MAX);
    walk w = {.setting = setting,
              .options = options,
              .evidence = ls_evidence_find(setting->stack),
              .best_limit = options->top + 1};
    walk_tensor(&w);
    if (!w.any_allowed) {
        return fail_no_strategy(&w);
    }
    if (w.best_count == 0) {
        return fail_nothing_fits(&w);
    }
    write_result(&w, result_out);
    ls_error_clear(); /* the errors of what the walk tried without success */
    return LS_OK;
}
