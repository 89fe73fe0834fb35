// SPDX-License-Identifier: Apache-2.0
/* How each term of the memory is computed, in words and numbers. */
#include "planning/step/memory.h"

#include <string.h>

static const double GIB = 1073741824.0;

typedef struct explainer {
    const ls_setting *setting;
    const ls_strategy *strategy;
    ls_memory_estimate memory;
    ls_memory_parts parts;
    ls_text *text;
} explainer;

static void explain_parameters(const explainer *e)
{
    const ls_memory_parts *p = &e->parts;
    const ls_strategy *s = e->strategy;
    ls_text_printf(e->text, "parameters on the GPU, stage %lld of %lld, %.0f layers, tensor parallel %lld:\n",
                   (long long)p->stage + 1, (long long)s->pp, p->layers, (long long)s->tp);
    ls_text_printf(e->text, "  matrices %.4g + norms and biases %.4g + embedding and head %.4g",
                   p->matrix_parameters, p->vector_parameters, p->embedding_parameters);
    if (p->expert_parameters > 0.0) {
        ls_text_printf(e->text, " + experts %.4g (over %lld GPUs)", p->expert_parameters, (long long)s->ep);
    }
    ls_text_printf(e->text, " = %.4g\n",
                   p->matrix_parameters + p->vector_parameters + p->embedding_parameters +
                       p->expert_parameters);
}

static void explain_state(const explainer *e, const char *term, double bytes, int zero_from, double result)
{
    const bool sharded = e->strategy->zero >= zero_from;
    explain_parameters(e);
    ls_text_printf(e->text, "%s = parameters x %g B", term, bytes);
    if (sharded) {
        ls_text_printf(e->text, " / %.0f GPUs that share them (ZeRO-%d)", e->parts.shards, e->strategy->zero);
        if (e->parts.expert_parameters > 0.0) {
            ls_text_printf(e->text, ", experts / %.0f", e->parts.expert_shards);
        }
    }
    ls_text_printf(e->text, " = %.2f GiB\n", result / GIB);
}

static void explain_weights(const explainer *e)
{
    explain_state(e, "weights", e->parts.weight_bytes, 3, e->memory.weights);
}

static void explain_gradients(const explainer *e)
{
    explain_state(e, "gradients", e->parts.gradient_bytes, 2, e->memory.gradients);
}

static void explain_optimizer(const explainer *e)
{
    static const char *const what[] = {
        [LS_PLAN_ADAMW] = "AdamW: master 4, m 4, v 4",
        [LS_PLAN_ADAMW_NO_MASTER] = "AdamW without master: m 4, v 4",
        [LS_PLAN_ADAMW_8BIT] = "8-bit AdamW: master 4, m 1, v 1",
        [LS_PLAN_SGD_MOMENTUM] = "SGD: master 4, momentum 4",
        [LS_PLAN_MUON] = "Muon: master 4, momentum 4; AdamW for embeddings and norms: 12",
    };
    explain_state(e, "optimizer", e->parts.optimizer_bytes, 1, e->memory.optimizer);
    ls_text_printf(e->text, "  %s B a parameter%s\n", what[e->setting->optimizer],
                   e->parts.weight_bytes == 4.0 ? "; fp32 weights need no separate master copy" : "");
}

static void explain_saved(const explainer *e)
{
    const ls_shape *shape = e->setting->shape;
    const double tp = (double)e->strategy->tp, whole = e->strategy->sequence_parallel ? tp : 1.0;
    for (uint32_t i = 0; i < shape->saved_count; i++) {
        const ls_shape_saved *v = &shape->saved[i];
        const double share = v->cut ? tp : whole;
        if (v->statistic && v->attention && !e->setting->stack->flash) {
            continue;
        }
        ls_text_printf(e->text, "    %-18s %8.0f values x %g B", v->name, v->cols,
                       v->statistic ? 4.0 : e->parts.weight_bytes);
        if (share > 1.0) {
            ls_text_printf(e->text, " / %g", share);
        }
        ls_text_append(e->text, "\n");
    }
    if (e->setting->stack->saved_factor != 1.0) {
        ls_text_printf(e->text, "  %s keeps %g times these values, except the residual stream\n",
                       e->setting->stack->name, e->setting->stack->saved_factor);
    }
}

static void explain_activations(const explainer *e)
{
    const ls_memory_parts *p = &e->parts;
    const ls_strategy *s = e->strategy;
    ls_text_printf(
        e->text,
        "tokens of a micro-batch on this GPU: %lld sequences x %lld / %lld (context parallel) = %.0f\n",
        (long long)s->micro_batch, (long long)e->setting->length, (long long)s->cp, p->tokens);
    ls_text_append(e->text, "one layer keeps for its backward, per token:\n");
    explain_saved(e);
    ls_text_printf(
        e->text, "  values %.3f + statistics %.3f + dropout masks %.3f + softmax %.3f = %.3f GiB a layer\n",
        p->layer_values / GIB, p->layer_statistics / GIB, p->layer_masks / GIB, p->layer_softmax / GIB,
        (p->layer_values + p->layer_statistics + p->layer_masks + p->layer_softmax) / GIB);
    if (s->recompute == LS_RECOMPUTE_SELECTIVE && e->setting->stack->selective_matmul > 0.0) {
        ls_text_printf(
            e->text,
            "  %s keeps the residual stream, the output of attention and %g %% of the products' outputs\n",
            e->setting->stack->name, 100.0 * (1.0 - e->setting->stack->selective_matmul));
    }
    if (s->recompute != LS_RECOMPUTE_NONE) {
        ls_text_printf(e->text,
                       "  %s recompute keeps %.3f GiB of it; %.3f GiB are recomputed, one layer at a time\n",
                       ls_recompute_name(s->recompute), p->layer_kept / GIB, p->layer_again / GIB);
    }
    ls_text_printf(e->text, "micro-batches in flight on stage %lld of %lld: %.4g\n", (long long)p->stage + 1,
                   (long long)s->pp, p->in_flight);
    ls_text_printf(e->text, "activations = %.0f layers x %.4g x %.3f", p->layers, p->in_flight,
                   p->layer_kept / GIB);
    if (p->layer_again > 0.0) {
        ls_text_printf(e->text, " + %.3f", p->layer_again / GIB);
    }
    if (p->loss > 0.0) {
        ls_text_printf(e->text, " + logits and loss %.3f", p->loss / GIB);
    }
    ls_text_printf(e->text, " = %.2f GiB\n", e->memory.activations / GIB);
}

static void explain_buffers(const explainer *e)
{
    const ls_memory_parts *p = &e->parts;
    const ls_stack *stack = e->setting->stack;
    ls_text_printf(e->text,
                   "gathered layers %.3f + unsharded gradients %.3f + exchanges %.3f + temporary values of "
                   "the backward %.3f GiB\n",
                   p->gathered / GIB, p->bucket / GIB, p->exchange / GIB, p->transient / GIB);
    const double own = p->gathered + p->bucket + p->exchange + p->transient;
    ls_text_printf(e->text,
                   "+ context of %s %.3f GiB + allocator slack, %g %% of all allocations, %.3f GiB\n",
                   stack->name, stack->context_bytes / GIB, 100.0 * stack->allocator_slack,
                   (e->memory.buffers - own - stack->context_bytes) / GIB);
    ls_text_printf(e->text, "buffers = %.2f GiB\n", e->memory.buffers / GIB);
}

static void explain_all(const explainer *e)
{
    const ls_memory_estimate *m = &e->memory;
    ls_text_printf(
        e->text,
        "memory = weights %.2f + gradients %.2f + optimizer %.2f + activations %.2f + buffers %.2f = %.2f "
        "GiB of %.2f (%.0f %%), the fullest GPU is on stage %lld\n",
        m->weights / GIB, m->gradients / GIB, m->optimizer / GIB, m->activations / GIB, m->buffers / GIB,
        m->total / GIB, m->capacity / GIB, 100.0 * m->total / m->capacity, (long long)m->stage + 1);
}

/* For Lockstep's own trainer: not a formula, but the sizes it will allocate. */
static void explain_own(const explainer *e)
{
    ls_text_append(e->text,
                   "Lockstep allocates exactly its op plan, before the first step (ls_plan_memory):\n");
    explain_all(e);
}

bool ls_memory_explain(const ls_setting *setting, const ls_strategy *strategy, const char *term,
                       ls_text *text)
{
    static const struct {
        const char *term;
        void (*explain)(const explainer *e);
    } terms[] = {
        {"weights", explain_weights},     {"gradients", explain_gradients},
        {"optimizer", explain_optimizer}, {"activations", explain_activations},
        {"buffers", explain_buffers},     {"memory", explain_all},
    };
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        if (strcmp(term, terms[i].term) != 0) {
            continue;
        }
        explainer e = {.setting = setting, .strategy = strategy, .text = text};
        ls_memory_compute(setting, strategy, &e.memory);
        ls_memory_parts_compute(setting, strategy, e.memory.stage, &e.parts);
        const bool own = strcmp(setting->stack->name, "lockstep") == 0;
        (own ? explain_own : terms[i].explain)(&e);
        return true;
    }
    return false;
}
