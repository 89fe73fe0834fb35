// SPDX-License-Identifier: Apache-2.0
/* Published runs: how they were split, and what is chosen where the source does not say. */
#include "planning/accuracy/published_internal.h"
#include "planning/step/memory.h"
#include "planning/step/search.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* ---- strategy ---- */

static bool has_any(const char *text, const char *const *words)
{
    while (*words && !ls_published_has(text, *words)) {
        words++;
    }
    return *words != NULL;
}

/* An unknown word leaves the value open, which is recorded. */
static void read_sharding(ls_published_reader *r)
{
    static const char *const plain[] = {"NO_SHARD", "DDP", "ZeRO-0", "ZeRO0", "ZeRO_0", "replicated", NULL};
    static const char *const first[] = {"ZeRO-1",    "ZeRO1",       "ZeRO_1", "dist-opt",
                                        "optimizer", "distributed", NULL};
    static const char *const second[] = {"SHARD_GRAD_OP", "ZeRO-2", "ZeRO2", "ZeRO_2", NULL};
    static const char *const all[] = {"ZeRO-3", "ZeRO3", "ZeRO_3", "SHARD", "FSDP", "HSDP", NULL};
    const struct {
        const char *const *words;
        int zero;
    } kinds[] = {{plain, 0}, {first, 1}, {second, 2}, {all, 3}};
    const char *text = ls_published_text(r, "sharding");
    r->request.has_zero = *text == '\0' && r->run->setting.gpus == 1;
    const bool digit = text[0] >= '0' && text[0] <= '3' && !text[1];
    if (digit || strcasecmp(text, "none") == 0 || strcasecmp(text, "no") == 0) {
        r->request.has_zero = true;
        r->request.strategy.zero = digit ? text[0] - '0' : 0;
        return;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !r->request.has_zero; i++) {
        r->request.has_zero = has_any(text, kinds[i].words);
        r->request.strategy.zero = r->request.has_zero ? kinds[i].zero : 0;
    }
    if (!r->request.has_zero && *text != '\0') {
        ls_published_assume(r, "sharding \"%s\" is unknown and treated as not given", text);
    }
}

static void read_recompute(ls_published_reader *r)
{
    static const char *const full[] = {"full", "block", "all", NULL};
    static const char *const none[] = {"none", "false", NULL};
    const char *text = ls_published_text(r, "recompute");
    const bool is_selective = ls_published_has(text, "selective"),
               is_full = !is_selective && has_any(text, full);
    r->request.has_recompute = is_selective || is_full || has_any(text, none) ||
                               strcasecmp(text, "no") == 0 || strcasecmp(text, "off") == 0;
    r->request.strategy.recompute = is_selective ? LS_RECOMPUTE_SELECTIVE
                                    : is_full    ? LS_RECOMPUTE_FULL
                                                 : LS_RECOMPUTE_NONE;
    /* Stacks since 2022 split norms along the sequence wherever they split matrices. */
    const bool old = strcmp(r->run->stack.name, "megatron-2021") == 0;
    const bool has_it = ls_published_has(text, "sequence-parallel") || !old;
    /* otherwise it follows tp */
    r->request.has_sequence_parallel = r->request.strategy.tp > 0 || !has_it;
    r->request.strategy.sequence_parallel = r->request.strategy.tp > 1 && has_it;
}

/* torchtitan's batch is that of a rank per step; a pipeline splits it into as many micro-batches as
 * it has stages. The same holds for any program whose "micro-batch" would be the whole step,
 * because a pipeline never runs a single one. */
static void split_local_batch(ls_published_reader *r)
{
    ls_strategy *s = &r->request.strategy;
    const bool is_titan = strncmp(r->run->stack.name, "torchtitan", 10) == 0;
    const bool is_all = s->dp > 0 && s->micro_batch * s->dp == ls_published_count(r, "global_batch");
    if (!(is_titan || is_all) || s->pp <= 1 || s->micro_batch < s->pp) {
        return;
    }
    s->micro_batch /= s->pp;
    ls_published_assume(r, "local batch in %lld micro-batches, torchtitan's default", (long long)s->pp);
    if (s->vpp == 0) {
        s->vpp = ls_published_has(r->run->model, "interleaved") ? 2 : 1;
        ls_published_assume(r, "%lld virtual stages", (long long)s->vpp);
    }
}

void ls_published_check_product(ls_published_reader *r)
{
    const ls_strategy *s = &r->request.strategy;
    const int64_t gpus = r->run->setting.gpus;
    const double product =
        fmax(1, (double)s->tp) * fmax(1, (double)s->pp) * fmax(1, (double)s->cp) * fmax(1, (double)s->dp);
    const bool all = s->tp > 0 && s->pp > 0 && s->cp > 0 && s->dp > 0;
    if (product > (double)gpus || (all && product != (double)gpus)) {
        r->run->left_out =
            ls_arena_printf(r->arena, "tp %lld x pp %lld x cp %lld x dp %lld is %.0f, but it ran on %lld%s",
                            (long long)s->tp, (long long)s->pp, (long long)s->cp, (long long)s->dp, product,
                            (long long)gpus, all ? "" : " (0: not given)");
    }
}

void ls_published_read_strategy(ls_published_reader *r)
{
    ls_strategy *s = &r->request.strategy;
    *s = (ls_strategy){.tp = ls_published_count(r, "tp"),
                       .pp = ls_published_count(r, "pp"),
                       .dp = ls_published_count(r, "dp"),
                       .cp = ls_published_count(r, "cp"),
                       .ep = ls_published_count(r, "ep"),
                       .vpp = ls_published_count(r, "vpp"),
                       .micro_batch = ls_published_count(r, "micro_batch")};
    r->request.has_schedule = true;
    read_sharding(r);
    read_recompute(r);
    if (s->pp == 1) {
        s->vpp = 1;
    }
    if (r->run->shape->moe.experts == 0 && s->ep > 1) {
        r->run->left_out = ls_arena_printf(r->arena, "ep is %lld, but the number of experts of %s is unknown",
                                           (long long)s->ep, r->run->model);
        return;
    }
    if (r->run->shape->moe.experts == 0) {
        s->ep = 1;
    }
    ls_published_check_product(r);
    if (r->run->left_out || r->flaw) {
        return;
    }
    if (s->tp > 0 && s->pp > 0 && s->cp == 0) {
        if (s->dp == 0) {
            ls_published_assume(r, "cp 1");
        }
        const int64_t model = s->tp * s->pp;
        s->cp =
            s->dp > 0 && r->run->setting.gpus > model * s->dp ? r->run->setting.gpus / (model * s->dp) : 1;
    }
    if (s->tp > 0 && s->pp > 0) {
        const int64_t model = s->tp * s->pp * s->cp;
        if (r->run->setting.gpus % model != 0) {
            r->run->left_out = ls_arena_printf(
                r->arena, "tp %lld x pp %lld x cp %lld does not divide the %lld accelerators",
                (long long)s->tp, (long long)s->pp, (long long)s->cp, (long long)r->run->setting.gpus);
            return;
        }
        s->dp = s->dp > 0 ? s->dp : r->run->setting.gpus / model;
        ls_published_check_product(r);
        if (r->run->left_out) {
            return;
        }
    }
    split_local_batch(r);
    if (s->vpp == 0 && strcmp(r->run->stack.name, "megatron-2021") == 0 && s->zero > 0) {
        s->vpp = 1;
        ls_published_assume(r, "no interleaving: sharded means Megatron-DeepSpeed, which has none");
    }
}

/* What other programs count differently: embedding and head as virtual stages, experts also over
 * the tensor parallel ranks. */
static void fit_to_our_rules(ls_published_reader *r)
{
    ls_strategy *s = &r->request.strategy;
    const int64_t layers = r->run->shape->config.layers;
    const int64_t said = s->vpp;
    while (s->pp > 1 && s->pp <= layers && s->vpp > 1 &&
           !ls_strategy_deals_out(layers, s->pp, s->vpp, true)) {
        s->vpp--;
    }
    if (s->vpp < said) {
        ls_published_assume(r, "%lld virtual stages, because %lld cannot divide the layers",
                            (long long)s->vpp, (long long)said);
    }
    if (s->ep > 1 && s->dp > 0 && s->cp > 0 && s->ep > s->dp * s->cp) {
        s->ep = s->dp * s->cp;
        ls_published_assume(r, "experts over %lld", (long long)s->ep);
    }
}

static bool is_open_but_recompute(const ls_strategy_request *request)
{
    ls_strategy_request closed = *request;
    closed.has_recompute = true;
    return !ls_strategy_is_complete(&closed);
}

/* By how much a run that fitted may exceed the memory by our count: our count may be off by a
 * tenth, fp8 keeps inputs of products in one byte, and machines with a Grace CPU (GB200, GB300) can
 * keep activations there. */
static double known_to_fit(const ls_setting *setting)
{
    if (strncmp(setting->node->accelerator->name, "GB", 2) == 0) {
        return 2.5;
    }
    return setting->precision == LS_PLAN_FP8 ? 1.4 : 1.1;
}

/* A run that did fit, and of which only recompute is open, recomputed no more than necessary. */
static void choose_recompute(ls_published_reader *r)
{
    static const ls_recompute kinds[] = {LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL};
    static const char *const names[] = {"no", "selective", "full"};
    for (size_t i = 0; i < 3; i++) {
        ls_memory_estimate memory;
        r->request.strategy.recompute = kinds[i];
        ls_memory_compute(&r->run->setting, &r->request.strategy, &memory);
        if (memory.total <= known_to_fit(&r->run->setting) * memory.capacity || i == 2) {
            ls_published_assume(r, "%s recompute", names[i]);
            break;
        }
    }
    r->request.has_recompute = true;
}

/* False: the row's strategy cannot be run. */
static bool adopt(ls_published_reader *r, const ls_strategy *strategy)
{
    ls_published_run *run = r->run;
    run->strategy = *strategy;
    if (ls_strategy_check(strategy, run->shape, run->setting.gpus, run->setting.global_batch,
                          run->setting.length) != LS_OK) {
        run->left_out = ls_arena_strdup(r->arena, ls_error_text());
    }
    return !run->left_out;
}

static void choose(ls_published_reader *r, const ls_strategy *strategy, const char *why)
{
    char text[160];
    r->run->strategy = *strategy;
    ls_strategy_describe(strategy, text, sizeof text);
    ls_published_assume(r, "%s: %s", why, text);
}

/* By our count it does not fit, and yet it ran, with an unknown split: the fastest strategy within
 * the error of our count, else the one that needs the least memory. */
static void cut_anyway(ls_published_reader *r)
{
    ls_search_result *result = ls_arena_new(r->arena, ls_search_result, 1);
    const ls_search_options options = {.request = r->request};
    const char *why = ls_arena_strdup(r->arena, ls_error_text());
    ls_setting setting = r->run->setting;
    ls_node node = *setting.node;
    ls_accelerator accelerator = *node.accelerator;
    ls_strategy least;
    ls_memory_estimate memory;
    accelerator.memory_bytes *= known_to_fit(&setting) / 0.95;
    node.accelerator = &accelerator;
    setting.node = &node;
    if (ls_search_run(&setting, &options, result) == LS_OK) {
        choose(r, &result->best.strategy, "the fastest that almost fits by our count");
    } else if (ls_search_least(&r->run->setting, &options, &least, &memory)) {
        choose(r, &least, "the one that needs the least memory, because by our count nothing fits");
    } else {
        r->run->left_out = why;
    }
}

/* The same where the split is known: the least memory. */
static void ran_anyway(ls_published_reader *r)
{
    ls_strategy *s = &r->request.strategy;
    if (s->tp == 0 || s->pp == 0 || s->dp == 0) {
        cut_anyway(r);
        return;
    }
    *s = (ls_strategy){.tp = s->tp,
                       .pp = s->pp,
                       .dp = s->dp,
                       .cp = s->cp,
                       .ep = s->ep > 0 ? s->ep : 1,
                       .vpp = s->vpp > 0 ? s->vpp : 1,
                       .micro_batch = s->micro_batch > 0 ? s->micro_batch : 1,
                       .zero = r->request.has_zero ? s->zero : r->run->stack.distributed_optimizer,
                       .recompute = r->request.has_recompute ? s->recompute : LS_RECOMPUTE_FULL,
                       .sequence_parallel = s->sequence_parallel};
    if (!adopt(r, s)) {
        return;
    }
    ls_published_assume(r, "the one that needs the least memory, because by our count nothing fits");
}

/* What is still open is chosen by search: the fastest that fits. */
void ls_published_choose_blanks(ls_published_reader *r)
{
    ls_published_run *run = r->run;
    fit_to_our_rules(r);
    if (!r->request.has_recompute && !is_open_but_recompute(&r->request)) {
        choose_recompute(r);
    }
    if (ls_strategy_is_complete(&r->request)) {
        const ls_strategy given = ls_strategy_resolve(&r->request, run->setting.gpus);
        adopt(r, &given);
        return;
    }
    ls_search_result *result = ls_arena_new(r->arena, ls_search_result, 1);
    const ls_search_options options = {.request = r->request};
    if (ls_search_run(&run->setting, &options, result) != LS_OK) {
        ran_anyway(r);
        return;
    }
    choose(r, &result->best.strategy, "the fastest that fits");
}
