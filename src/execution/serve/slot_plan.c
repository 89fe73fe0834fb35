// SPDX-License-Identifier: Apache-2.0
#include "execution/serve/slot_plan.h"

#include "base/options.h"
#include "execution/train/memory.h"

enum {
    SLOTS = 8,
    SLOTS_LOW = 2, /* before the context gets shorter than the model's */
    CONTEXT_LOW = 2048,
    ROWS = 128,              /* of a forward pass */
    SCORED_BYTES = 32 << 20, /* logits at once, for log-probabilities */
};

static ls_status measure(const ls_model_on_device *model, ls_slot_plan *plan)
{
    uint64_t other = 0;
    LS_TRY(ls_generator_memory(model, &plan->options, &plan->slot_bytes, &other));
    plan->total_bytes = (uint64_t)plan->options.slots * plan->slot_bytes + other;
    return LS_OK;
}

static ls_status fail_memory(const ls_slot_plan *plan, uint64_t available)
{
    char needed[32], there[32];
    return ls_fail(LS_ERR_MEMORY,
                   "%lld answers at once with a context of %lld tokens need %s of memory in addition to the "
                   "model, but only %s are available: choose %sa shorter --context",
                   (long long)plan->options.slots, (long long)plan->options.capacity,
                   ls_memory_text(plan->total_bytes, needed), ls_memory_text(available, there),
                   plan->options.slots > 1 ? "fewer --slots or " : "");
}

ls_status ls_slot_plan_make(const ls_model_on_device *model, uint64_t slots, uint64_t context,
                            ls_slot_plan *plan_out)
{
    const int64_t most = model->config->context, scored = SCORED_BYTES / (4 * model->config->vocab);
    const bool free_slots = slots == LS_AUTO_U64, free_context = context == LS_AUTO_U64;
    const uint64_t available = ls_memory_available() / 10 * 9;
    ls_slot_plan plan = {.options = {.slots = free_slots ? SLOTS : (int64_t)slots,
                                     .capacity = free_context ? most : (int64_t)context,
                                     .keeps_texts = true}};
    ls_generator_options *o = &plan.options;
    if (o->capacity > most) {
        return ls_fail(LS_ERR_INVALID,
                       "--context is %lld, but the model's context length is %lld tokens; use at most that",
                       (long long)o->capacity, (long long)most);
    }
    o->rows = ROWS > o->slots ? ROWS : o->slots;
    o->scored = scored > o->rows ? o->rows : scored > o->slots ? scored : o->slots;
    LS_TRY(measure(model, &plan));
    while (plan.total_bytes > available) {
        if (free_slots && o->slots > SLOTS_LOW) {
            o->slots--;
        } else if (free_context && o->capacity > CONTEXT_LOW) {
            o->capacity /= 2;
        } else if (free_slots && o->slots > 1) {
            o->slots--;
        } else {
            return fail_memory(&plan, available);
        }
        LS_TRY(measure(model, &plan));
    }
    *plan_out = plan;
    return LS_OK;
}
