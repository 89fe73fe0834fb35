// SPDX-License-Identifier: Apache-2.0
/* plan --finetune: what training a model further takes, in full and by adapters. */
#include "cli/plan/plan.h"
#include "cli/table.h"
#include "execution/train/adapter_file.h"
#include "planning/answer/finetune_answer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const char *const fits[] = {
    [LS_FIT_YES] = "fits", [LS_FIT_TIGHT] = "tight", [LS_FIT_NO] = "does not fit"};

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *kind_json(const ls_finetune_answer *a, int kind)
{
    const ls_finetune_estimate *e = &a->estimates[kind];
    json_t *root = json_pack(
        "{s:s, s:b, s:s, s:f, s:o, s:o, s:f, s:f, s:o}", "finetune", ls_finetune_names[kind], "fits",
        e->fit != LS_FIT_NO, "fit", fits[e->fit], "adapter_parameters", e->adapter_parameters, "strategy",
        ls_plan_strategy_to_json(&e->strategy), "memory_gib", ls_plan_memory_to_json(&e->memory),
        "tokens_per_s", e->tokens_ps, "hours", a->hours[kind], "cost_usd", number_or_null(a->rent_usd[kind]));
    return root;
}

static json_t *answer_json(const ls_finetune_answer *a, uint64_t rank)
{
    json_t *root = kind_json(a, a->kind), *others = json_array(), *assumptions = json_array();
    for (int kind = 0; kind < LS_FINETUNE_KINDS; kind++) {
        if (kind != (int)a->kind) {
            json_array_append_new(others, kind_json(a, kind));
        }
    }
    for (size_t i = 0; i < a->plan.assumptions.count; i++) {
        json_array_append_new(assumptions, json_string(a->plan.assumptions.items[i]));
    }
    json_t *question = json_pack(
        "{s:s, s:f, s:s, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:s?}", "model", a->plan.shape.name, "parameters",
        (double)a->plan.shape.parameters, "gpu", a->plan.node.accelerator->name, "gpus",
        (json_int_t)a->plan.setting.gpus, "rank", (json_int_t)rank, "seq", (json_int_t)a->plan.setting.length,
        "global_batch", (json_int_t)a->plan.setting.global_batch, "tokens", a->plan.tokens, "alternatives",
        others, "assumptions", assumptions, "refusal", a->refusal);
    json_object_update(root, question);
    json_decref(question);
    return root;
}

static void append_row(ls_table *table, const ls_finetune_answer *a, int kind)
{
    const ls_finetune_estimate *e = &a->estimates[kind];
    const ls_memory_estimate *m = &e->memory;
    ls_table_printf(table, "%s%s", kind == (int)a->kind ? "> " : "  ", ls_finetune_names[kind]);
    ls_table_printf(table, "%.1f", m->weights / LS_PLAN_GIB);
    ls_table_printf(table, "%.1f", (m->gradients + m->optimizer) / LS_PLAN_GIB);
    ls_table_printf(table, "%.1f", (m->activations + m->buffers) / LS_PLAN_GIB);
    ls_table_printf(table, "%.1f", m->total / LS_PLAN_GIB);
    ls_table_add(table, fits[e->fit]);
    ls_table_printf(table, "%" PRId64 " x %" PRId64 "%s", e->strategy.micro_batch, a->plan.setting.length,
                    e->strategy.recompute == LS_RECOMPUTE_NONE ? "" : ", recompute");
    ls_table_printf(table, "%.0f", e->tokens_ps);
    ls_table_add(table, e->fit == LS_FIT_NO ? "" : ls_time_of(3600.0 * a->hours[kind]).text);
    ls_table_add(table, e->fit != LS_FIT_NO && isfinite(a->rent_usd[kind])
                            ? ls_arena_printf(a->plan.arena, "$%.2f", a->rent_usd[kind])
                            : "");
}

static void append_text(const ls_finetune_answer *a, uint64_t rank, bool all_assumptions, ls_text *text)
{
    static const char *const titles[] = {"", "weights", "training", "passes", "GiB",
                                         "", "batch",   "tokens/s", "time",   "rent"};
    static const bool right[] = {false, true, true, true, true, false, false, true, true, true};
    static const bool whole[] = {true, true, true, true, true, true, true, true, true, true};
    ls_table table = {
        .titles = titles, .right = right, .whole = whole, .columns = 10, .arena = a->plan.arena};
    ls_text_printf(text,
                   "%s, %s parameters, on %" PRId64 " x %s of %.0f GiB: records of up to %" PRId64
                   " tokens, adapters of rank %" PRIu64 ", %s tokens\n\n",
                   a->plan.shape.name, ls_quantity_of((double)a->plan.shape.parameters).text,
                   a->plan.setting.gpus, a->plan.node.accelerator->name,
                   a->estimates[0].memory.capacity / LS_PLAN_GIB, a->plan.setting.length, rank,
                   ls_quantity_of(a->plan.tokens).text);
    for (int kind = 0; kind < LS_FINETUNE_KINDS; kind++) {
        append_row(&table, a, kind);
    }
    ls_table_append(&table, ls_terminal_width(), text);
    ls_text_append(text,
                   "\nGiB on each GPU. training: gradients and moments. passes: activations and buffers.\n");
    for (size_t i = 0; i < a->plan.assumptions.count && all_assumptions; i++) {
        ls_text_printf(text, "%s%s\n", i ? "  " : "assumptions:\n  ", a->plan.assumptions.items[i]);
    }
}

ls_status ls_plan_print_finetune(const ls_invocation *invocation, const ls_plan_question *question)
{
    const ls_plan_settings *settings = invocation->settings;
    const ls_finetune_question asked = {question, (ls_finetune_kind)(settings->finetune - 1), settings->rank,
                                        ls_base_of_kind(LS_BASE_NF4).packed_bytes};
    ls_finetune_answer *answer = ls_arena_new(invocation->arena, ls_finetune_answer, 1);
    LS_TRY(ls_finetune_answer_compute(invocation->arena, &asked, answer));
    if (settings->json) {
        json_t *root = answer_json(answer, settings->rank);
        ls_print_json(root);
        json_decref(root);
    } else {
        ls_text text = {0};
        append_text(answer, settings->rank, settings->assumptions || settings->all, &text);
        fputs(ls_text_string(&text), stdout);
        ls_text_release(&text);
    }
    return answer->refusal ? ls_fail(LS_ERR_INVALID, "%s", answer->refusal) : LS_OK;
}
