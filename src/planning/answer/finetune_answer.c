// SPDX-License-Identifier: Apache-2.0
#include "planning/answer/finetune_answer.h"

#include "planning/answer/answer_internal.h"

#include <inttypes.h>
#include <math.h>

#define SEQUENCE_DEFAULT 2048
#define BATCH_DEFAULT    16
#define TOKENS_DEFAULT   "1M"

static void estimate_kinds(ls_finetune_answer *a, const ls_finetune_question *question)
{
    for (int kind = 0; kind < LS_FINETUNE_KINDS; kind++) {
        ls_finetune_compute(&a->plan.setting, (ls_finetune_kind)kind, (int64_t)question->rank,
                            &a->plan.request, &a->estimates[kind]);
    }
}

/* The same on this machine: what our own trainer would run. */
static ls_status estimate_here(ls_finetune_answer *a, const ls_finetune_question *question)
{
    const ls_adapter adapter = {.rank = (uint32_t)question->rank, .alpha = 1.0};
    const ls_model_config *config = &a->plan.shape.config;
    for (int kind = 0; kind < LS_FINETUNE_KINDS; kind++) {
        const bool is_full = kind == LS_FINETUNE_FULL;
        const ls_base base = {.kind = kind == LS_FINETUNE_QLORA ? LS_BASE_NF4 : LS_BASE_FP32,
                              .packed_bytes = question->packed_bytes};
        ls_layout *layout = ls_arena_new(a->plan.arena, ls_layout, 1);
        ls_plan_own own;
        ls_estimate e;
        LS_TRY(is_full ? LS_OK : ls_layout_build_adapter(a->plan.arena, config, &adapter, &base, layout));
        a->plan.trained = is_full ? NULL : layout;
        LS_TRY(ls_plan_estimate_here(&a->plan, &a->plan.setting, &own, &e));
        a->estimates[kind] = (ls_finetune_estimate){
            .kind = (ls_finetune_kind)kind,
            .adapter_parameters = is_full ? 0.0 : (double)(layout->element_count - layout->frozen_elements),
            .strategy = e.strategy,
            .memory = e.memory,
            .fit = e.fit,
            .tokens_ps = e.tokens_ps};
    }
    return LS_OK;
}

/* ---- a machine, where none was named ---- */

/* Whether the kind fits on one accelerator, which then becomes the answer's machine. */
static bool try_accelerator(ls_finetune_answer *a, const ls_finetune_question *question,
                            const ls_accelerator *accelerator)
{
    const size_t assumed = a->plan.assumptions.count;
    a->plan.node = *ls_catalogue_usual_node(&a->plan.catalogue, a->plan.arena, accelerator);
    a->plan.setting.gpus = 1;
    if (ls_plan_settle(&a->plan) != LS_OK) {
        ls_error_clear();
        a->plan.assumptions.count = assumed;
        return false;
    }
    ls_finetune_estimate estimate;
    ls_finetune_compute(&a->plan.setting, question->kind, (int64_t)question->rank, &a->plan.request,
                        &estimate);
    if (estimate.fit == LS_FIT_NO) {
        a->plan.assumptions.count = assumed;
    }
    return estimate.fit != LS_FIT_NO;
}

/* The next accelerator by memory after `last`; NULL: there is none. Of equals, the first listed. */
static const ls_accelerator *next_larger(const ls_catalogue *catalogue, const ls_accelerator *last)
{
    const ls_accelerator *best = NULL;
    for (size_t i = 0; i < catalogue->accelerator_count; i++) {
        const ls_accelerator *c = &catalogue->accelerators[i];
        const bool is_later = !last || c->memory_bytes > last->memory_bytes ||
                              (c->memory_bytes == last->memory_bytes && c > last);
        const bool is_gpu =
            c->class != LS_CLASS_CPU && c->class != LS_CLASS_APPLE && ls_accelerator_has_bf16(c);
        if (is_gpu && is_later && (!best || c->memory_bytes < best->memory_bytes)) {
            best = c;
        }
    }
    return best;
}

static ls_status choose_accelerator(ls_finetune_answer *a, const ls_finetune_question *question)
{
    const ls_accelerator *candidate = NULL, *last = NULL;
    while ((candidate = next_larger(&a->plan.catalogue, candidate))) {
        if (try_accelerator(a, question, candidate)) {
            ls_assumptions_add(&a->plan.assumptions,
                               "the machine: the least memory of one GPU on which %s fits "
                               "(--gpus KIND:COUNT)",
                               ls_finetune_names[question->kind]);
            return LS_OK;
        }
        last = candidate;
    }
    if (!last) {
        return ls_fail(LS_ERR_INVALID, "the catalogue has no GPU with bf16: give --gpus KIND:COUNT");
    }
    a->plan.node = *ls_catalogue_usual_node(&a->plan.catalogue, a->plan.arena, last);
    a->plan.setting.gpus = 1;
    return ls_plan_settle(&a->plan);
}

/* ---- the answer ---- */

static void refuse(ls_finetune_answer *a)
{
    const ls_memory_estimate *m = &a->estimates[a->kind].memory;
    const char *offer = "";
    for (int kind = LS_FINETUNE_KINDS; kind-- > 0;) {
        const ls_finetune_estimate *e = &a->estimates[kind];
        if (e->fit != LS_FIT_NO) {
            offer = ls_arena_printf(a->plan.arena, "%s%s--finetune %s fits with %.1f GiB", offer,
                                    offer[0] ? ", and " : "; ", ls_finetune_names[kind],
                                    e->memory.total / LS_PLAN_GIB);
        }
    }
    if (!offer[0]) {
        offer =
            "; none of full, lora and qlora fits: use a smaller model, shorter records (--seq), or more GPUs "
            "(--gpus KIND:COUNT)";
    }
    a->refusal =
        ls_arena_printf(a->plan.arena,
                        "%s of %s does not fit: it needs %.1f GiB on each GPU, which has %.1f GiB, and "
                        "95 %% of that may be used%s",
                        ls_finetune_names[a->kind], a->plan.shape.name, m->total / LS_PLAN_GIB,
                        m->capacity / LS_PLAN_GIB, offer);
}

/* The question with what a fine-tuning usually has where the person said nothing. */
static ls_plan_question *complete(ls_arena *arena, const ls_plan_question *given)
{
    ls_plan_question *q = ls_arena_new(arena, ls_plan_question, 1);
    *q = *given;
    q->global_batch = q->global_batch ? q->global_batch : BATCH_DEFAULT;
    q->tokens = q->tokens[0] ? q->tokens : TOKENS_DEFAULT;
    return q;
}

ls_status ls_finetune_answer_compute(ls_arena *arena, const ls_finetune_question *question,
                                     ls_finetune_answer *answer_out)
{
    ls_finetune_answer *a = answer_out;
    ls_plan_question *plan = complete(arena, question->plan);
    *a = (ls_finetune_answer){
        .kind = question->kind,
        .plan = {.arena = arena, .given = question->plan, .asked = plan, .assumptions = {.arena = arena}}};
    LS_TRY(ls_plan_read_question(&a->plan));
    if (plan->seq == 0 && a->plan.asked == plan) {
        const int64_t context = a->plan.shape.config.context;
        plan->seq = (uint64_t)(context < SEQUENCE_DEFAULT ? context : SEQUENCE_DEFAULT);
    }
    LS_TRY(a->plan.setting.gpus == 0 ? choose_accelerator(a, question) : ls_plan_settle(&a->plan));
    if (ls_plan_is_here(&a->plan, &a->plan.node)) {
        LS_TRY(estimate_here(a, question));
    } else {
        estimate_kinds(a, question);
    }
    const ls_price *rent = &a->plan.node.rent_hour;
    for (int kind = 0; kind < LS_FINETUNE_KINDS; kind++) {
        a->hours[kind] = a->plan.tokens / a->estimates[kind].tokens_ps / 3600.0;
        a->rent_usd[kind] = rent->low > 0.0 ? a->hours[kind] * rent->low * (double)a->plan.setting.gpus : NAN;
    }
    if (a->estimates[a->kind].fit == LS_FIT_NO) {
        refuse(a);
    }
    return LS_OK;
}
