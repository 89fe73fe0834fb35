// SPDX-License-Identifier: Apache-2.0
/*
 * Lives of values and their places in one arena.
 *
 * Placing values with fixed lives in the least memory is NP-hard (dynamic storage allocation).
 * Greedy placement, largest value first, each into the smallest gap between the values it meets,
 * comes close; two other orders are tried too and the best of the three is kept. live_floats says
 * how far from perfect that is.
 */
#include "base/assert.h"
#include "model/plan_internal.h"

#include <stdlib.h>

/* In units of 4 bytes: 256 bytes, as the copy engine of a GPU wants it. */
enum { VALUE_ALIGN = 64 };

/* ---- what a step touches ---- */

typedef struct use_list {
    ls_value_use *uses;
    uint32_t count;
} use_list;

static void touch(use_list *list, int32_t value, uint32_t use)
{
    if (value != LS_NONE) {
        LS_ASSERT(list->count < LS_STEP_USES_MAX);
        list->uses[list->count++] = (ls_value_use){value, use};
    }
}

static void forward_uses(const ls_op *op, use_list *list)
{
    const bool in_place = op->kind == LS_OP_ROTARY || op->kind == LS_OP_ADAPTER || op->kind == LS_OP_ROUTE;
    touch(list, op->in[0], LS_USE_READ);
    touch(list, op->in[1], LS_USE_READ);
    touch(list, op->out[0], in_place ? LS_USE_READ | LS_USE_WRITE : LS_USE_WRITE);
    touch(list, op->out[1], LS_USE_WRITE);
    touch(list, op->stats[0], LS_USE_WRITE);
    touch(list, op->stats[1], LS_USE_WRITE);
    touch(list, op->low, LS_USE_WRITE);
    touch(list, op->routes, op->kind == LS_OP_ROUTE ? LS_USE_WRITE : LS_USE_READ);
    if (op->kind == LS_OP_LINEAR || op->kind == LS_OP_EXPERT_LINEAR || op->kind == LS_OP_HEAD_LOSS ||
        op->kind == LS_OP_SUM) {
        touch(list, op->workspace, LS_USE_SCRATCH);
    }
    if (op->kind == LS_OP_HEAD_LOSS) {
        touch(list, op->din[0], LS_USE_WRITE);
        touch(list, op->dweight, LS_USE_WRITE);
    }
}

/* The values of the forward pass that the input gradient needs: nothing for a linear, the sum
 * for an add_norm, everything for attention. */
static void saved_uses(const ls_op *op, use_list *list)
{
    if (op->kind == LS_OP_LINEAR || op->kind == LS_OP_EXPERT_LINEAR || op->kind == LS_OP_ROTARY ||
        op->kind == LS_OP_ADAPTER || op->kind == LS_OP_DROPOUT || op->kind == LS_OP_DISPATCH ||
        op->kind == LS_OP_GATHER || op->kind == LS_OP_SCATTER || op->kind == LS_OP_TO_EXPERTS ||
        op->kind == LS_OP_FROM_EXPERTS || op->kind == LS_OP_SUM) {
        return;
    }
    if (op->kind == LS_OP_ADD_NORM) {
        touch(list, op->out[0], LS_USE_READ);
    } else {
        touch(list, op->in[0], LS_USE_READ);
        touch(list, op->in[1], LS_USE_READ);
    }
    if (op->kind == LS_OP_ATTENTION) {
        touch(list, op->out[0], LS_USE_READ);
    }
    touch(list, op->stats[0], LS_USE_READ);
    touch(list, op->stats[1], LS_USE_READ);
}

static void backward_input_uses(const ls_op *op, use_list *list)
{
    const bool adds = op->accumulate_din || op->kind == LS_OP_ROTARY;
    saved_uses(op, list);
    touch(list, op->routes, LS_USE_READ);
    touch(list, op->dlow, LS_USE_READ);
    touch(list, op->kind == LS_OP_ADAPTER ? LS_NONE : op->dout[0], LS_USE_READ);
    touch(list, op->dout[1], LS_USE_READ);
    touch(list, op->din[0], adds ? LS_USE_READ | LS_USE_WRITE : LS_USE_WRITE);
    if (op->din[1] != op->din[0]) {
        touch(list, op->din[1], LS_USE_WRITE);
    }
    touch(list, op->workspace, LS_USE_SCRATCH);
}

uint32_t ls_plan_step_uses(const ls_plan *plan, uint32_t step, ls_value_use uses_out[LS_STEP_USES_MAX])
{
    LS_ASSERT(step < plan->step_count);
    const ls_op *op = &plan->ops[plan->steps[step].op];
    use_list list = {.uses = uses_out};
    switch (plan->steps[step].phase) {
    case LS_PHASE_FORWARD:
        forward_uses(op, &list);
        break;
    case LS_PHASE_BACKWARD_INPUT:
        backward_input_uses(op, &list);
        break;
    case LS_PHASE_BACKWARD_WEIGHT:
        touch(&list, op->kind == LS_OP_EMBEDDING ? LS_NONE : op->in[0], LS_USE_READ);
        touch(&list, op->dout[0], LS_USE_READ);
        touch(&list, op->routes, LS_USE_READ);
        touch(&list, op->low, LS_USE_READ);
        touch(&list, op->dlow, LS_USE_WRITE);
        touch(&list, op->dweight, LS_USE_READ);
        break;
    }
    return list.count;
}

/* ---- lives ---- */

/* Passes between which a stage computes other micro-batches. */
static int pass_of(const ls_plan *plan, int32_t step)
{
    return (step >= (int32_t)plan->forward_steps) + (step >= (int32_t)plan->first_weight_step);
}

static void find_slots(ls_plan *plan)
{
    for (uint32_t i = 0; i < plan->value_count; i++) {
        ls_value *value = &plan->values[i];
        value->in_slot = plan->options.slots > 1 && !value->scratch && (int32_t)i != plan->head_gradient &&
                         pass_of(plan, value->first_step) != pass_of(plan, value->last_step);
    }
}

void ls_plan_find_lives(ls_plan *plan)
{
    for (uint32_t step = 0; step < plan->step_count; step++) {
        ls_value_use uses[LS_STEP_USES_MAX];
        const uint32_t count = ls_plan_step_uses(plan, step, uses);
        for (uint32_t i = 0; i < count; i++) {
            ls_value *value = &plan->values[uses[i].value];
            if (value->first_step < 0) {
                value->first_step = (int32_t)step;
            }
            value->last_step = (int32_t)step;
        }
    }
    if (plan->stage.dout != LS_NONE) { /* it arrives before the first backward step */
        plan->values[plan->stage.dout].first_step = (int32_t)plan->forward_steps;
    }
    if (plan->head_gradient != LS_NONE) { /* the next micro-batch adds to it */
        plan->values[plan->head_gradient].first_step = 0;
        plan->values[plan->head_gradient].last_step = (int32_t)plan->step_count - 1;
    }
    find_slots(plan);
}

int64_t ls_value_span(const ls_value *value)
{
    const int64_t elements = value->rows * value->stride;
    const int64_t words = value->dtype == LS_BF16 ? (elements + 1) / 2 : elements;
    return (words + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN;
}

static bool alive_at(const ls_value *value, int32_t step)
{
    if (value->scratch) {
        return step == value->first_step || step == value->last_step;
    }
    return step >= value->first_step && step <= value->last_step;
}

/* Whether both are in memory at the same step. */
static bool meet(const ls_value *a, const ls_value *b)
{
    if (a->first_step < 0 || b->first_step < 0) {
        return false;
    }
    if (a->scratch) {
        return alive_at(b, a->first_step) || alive_at(b, a->last_step);
    }
    if (b->scratch) {
        return alive_at(a, b->first_step) || alive_at(a, b->last_step);
    }
    return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/* Of the values in slots, or of the others. */
static int64_t most_alive(ls_arena *arena, const ls_plan *plan, bool in_slot)
{
    int64_t *change = ls_arena_new(arena, int64_t, (size_t)plan->step_count + 1);
    for (uint32_t i = 0; i < plan->value_count; i++) {
        const ls_value *value = &plan->values[i];
        const int64_t span = ls_value_span(value);
        if (value->first_step < 0 || value->in_slot != in_slot) {
            continue;
        }
        change[value->first_step] += span;
        change[value->last_step + 1] -= span;
        if (value->scratch && value->last_step > value->first_step) {
            change[value->first_step + 1] -= span;
            change[value->last_step] += span;
        }
    }
    int64_t alive = 0, most = 0;
    for (uint32_t step = 0; step < plan->step_count; step++) {
        alive += change[step];
        most = alive > most ? alive : most;
    }
    return most;
}

/* ---- placement ---- */

typedef int (*value_order)(const ls_value *a, const ls_value *b);

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int largest_first(const ls_value *a, const ls_value *b)
{
    return compare(ls_value_span(b), ls_value_span(a));
}

static int longest_first(const ls_value *a, const ls_value *b)
{
    const int by_life = compare(b->last_step - b->first_step, a->last_step - a->first_step);
    return by_life != 0 ? by_life : largest_first(a, b);
}

static int earliest_first(const ls_value *a, const ls_value *b)
{
    const int by_start = compare(a->first_step, b->first_step);
    return by_start != 0 ? by_start : longest_first(a, b);
}

typedef struct placement {
    ls_plan *plan;
    bool in_slot; /* which values are placed */
    value_order order;
    uint32_t *queue;  /* values in the order of placing */
    uint32_t *placed; /* values placed so far, by offset */
    uint32_t placed_count;
} placement;

static int compare_queue(const void *a, const void *b, void *argument)
{
    const placement *p = argument;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int order = p->order(&p->plan->values[i], &p->plan->values[j]);
    return order != 0 ? order : compare(i, j); /* ties by index: the same plan on every machine */
}

/* Offset of the smallest gap that fits `value` among the placed values that are alive at the
 * same time; after all of them if there is no such gap. */
static int64_t best_gap(const placement *p, const ls_value *value)
{
    const int64_t span = ls_value_span(value);
    int64_t end = 0, best = -1, best_gap_floats = INT64_MAX;
    for (uint32_t i = 0; i < p->placed_count; i++) {
        const ls_value *other = &p->plan->values[p->placed[i]];
        if (!meet(value, other)) {
            continue;
        }
        const int64_t gap = other->offset - end;
        if (gap >= span && gap < best_gap_floats) {
            best = end;
            best_gap_floats = gap;
        }
        const int64_t other_end = other->offset + ls_value_span(other);
        end = other_end > end ? other_end : end;
    }
    return best >= 0 ? best : end;
}

static void insert_placed(placement *p, uint32_t value)
{
    const ls_value *values = p->plan->values;
    uint32_t at = p->placed_count++;
    while (at > 0 && values[p->placed[at - 1]].offset > values[value].offset) {
        p->placed[at] = p->placed[at - 1];
        at--;
    }
    p->placed[at] = value;
}

/* Places the values and returns the floats needed. */
static int64_t place_in_order(placement *p, value_order order)
{
    uint32_t count = 0;
    int64_t floats = 0;
    for (uint32_t i = 0; i < p->plan->value_count; i++) {
        if (p->plan->values[i].first_step >= 0 && p->plan->values[i].in_slot == p->in_slot) {
            p->queue[count++] = i;
        }
    }
    p->order = order;
    p->placed_count = 0;
    qsort_r(p->queue, count, sizeof *p->queue, compare_queue, p);
    for (uint32_t i = 0; i < count; i++) {
        ls_value *value = &p->plan->values[p->queue[i]];
        value->offset = best_gap(p, value);
        insert_placed(p, p->queue[i]);
        const int64_t end = value->offset + ls_value_span(value);
        floats = end > floats ? end : floats;
    }
    return floats;
}

/* Places the values in slots, or the others, from offset 0 on. Returns the floats needed; to
 * *live_out the bound for any placement. */
static int64_t place_all(ls_arena *arena, ls_plan *plan, bool in_slot, int64_t *live_out)
{
    static const value_order orders[] = {largest_first, longest_first, earliest_first};
    enum { ORDER_COUNT = sizeof orders / sizeof *orders };
    placement p = {
        .plan = plan,
        .in_slot = in_slot,
        .queue = ls_arena_new(arena, uint32_t, plan->value_count),
        .placed = ls_arena_new(arena, uint32_t, plan->value_count),
    };
    *live_out = most_alive(arena, plan, in_slot);
    int best = 0, last = 0;
    int64_t best_floats = INT64_MAX;
    for (int i = 0; i < ORDER_COUNT && best_floats > *live_out; i++) {
        const int64_t floats = place_in_order(&p, orders[i]);
        last = i;
        if (floats < best_floats) {
            best = i;
            best_floats = floats;
        }
    }
    return best == last ? best_floats : place_in_order(&p, orders[best]);
}

void ls_plan_place(ls_arena *arena, ls_plan *plan)
{
    const int64_t slots = plan->options.slots;
    int64_t live_in_slot = 0, live_beside = 0;
    plan->slot_floats = place_all(arena, plan, true, &live_in_slot);
    const int64_t beside = place_all(arena, plan, false, &live_beside);
    for (uint32_t i = 0; i < plan->value_count; i++) {
        plan->values[i].offset += plan->values[i].in_slot ? 0 : slots * plan->slot_floats;
    }
    plan->arena_floats = slots * plan->slot_floats + beside;
    plan->live_floats = slots * live_in_slot + live_beside;
}

int64_t ls_plan_offset(const ls_plan *plan, int32_t value, uint32_t slot)
{
    LS_DCHECK(slot < plan->options.slots);
    const ls_value *v = &plan->values[value];
    return v->offset + (v->in_slot ? slot * plan->slot_floats : 0);
}

/* ---- checking ---- */

static void check_no_overlap(const ls_plan *plan)
{
    for (uint32_t i = 0; i < plan->value_count; i++) {
        const ls_value *a = &plan->values[i];
        LS_ASSERT(a->offset % VALUE_ALIGN == 0 && a->offset >= 0);
        LS_ASSERT(a->first_step < 0 ||
                  a->offset + ls_value_span(a) <= (a->in_slot ? plan->slot_floats : plan->arena_floats));
        for (uint32_t j = 0; j < i; j++) {
            const ls_value *b = &plan->values[j];
            const bool apart =
                a->offset + ls_value_span(a) <= b->offset || b->offset + ls_value_span(b) <= a->offset;
            LS_ASSERT(apart || a->in_slot != b->in_slot || !meet(a, b));
        }
    }
}

static void check_reads_follow_writes(const ls_plan *plan)
{
    unsigned char *written = calloc(plan->value_count, 1);
    LS_ASSERT(written);
    for (uint32_t step = 0; step < plan->step_count; step++) {
        const int32_t received = step == 0                     ? plan->stage.in
                                 : step == plan->forward_steps ? plan->stage.dout
                                                               : LS_NONE;
        if (received != LS_NONE) {
            written[received] = 1;
        }
        ls_value_use uses[LS_STEP_USES_MAX];
        const uint32_t count = ls_plan_step_uses(plan, step, uses);
        for (uint32_t i = 0; i < count; i++) {
            LS_ASSERT(!(uses[i].use & LS_USE_READ) || written[uses[i].value]);
            LS_ASSERT(alive_at(&plan->values[uses[i].value], (int32_t)step));
        }
        for (uint32_t i = 0; i < count; i++) {
            written[uses[i].value] |= (uses[i].use & LS_USE_WRITE) != 0;
        }
    }
    free(written);
}

static void check_shape(const ls_plan *plan, int32_t value, int64_t rows, int64_t cols)
{
    LS_ASSERT(value == LS_NONE || (plan->values[value].rows == rows && plan->values[value].cols == cols));
}

static void check_linear(const ls_plan *plan, const ls_op *op, int64_t n)
{
    check_shape(plan, op->in[0], n, op->in_features);
    check_shape(plan, op->din[0], n, op->in_features);
    check_shape(plan, op->out[0], n, op->out_features);
    check_shape(plan, op->dout[0], n, op->out_features);
    const ls_parameter *weight = &plan->layout->parameters[op->weight];
    const int64_t parts = op->split == LS_LINEAR_SPLIT_IN ? plan->options.tensor_degree : 1;
    LS_ASSERT((op->weight_in_out ? weight->rows : weight->cols) == op->in_features * parts);
}

static void check_adapter(const ls_plan *plan, const ls_op *op, int64_t n)
{
    int64_t ranks = 0;
    for (uint32_t s = 0; s < op->segment_count; s++) {
        ranks += op->segment_adapted[s] ? plan->layout->adapter->rank : 0;
    }
    check_shape(plan, op->in[0], n, op->in_features);
    check_shape(plan, op->din[0], n, op->in_features);
    check_shape(plan, op->out[0], n, op->out_features);
    check_shape(plan, op->dout[0], n, op->out_features);
    check_shape(plan, op->low, n, ranks);
    check_shape(plan, op->dlow, n, ranks);
    LS_ASSERT(plan->layout->parameters[op->weight].cols == op->in_features);
}

static void check_op_shapes(const ls_plan *plan, const ls_op *op)
{
    const ls_model_config *c = &plan->config;
    const int64_t n = plan->rows;
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    switch (op->kind) {
    case LS_OP_LINEAR:
        check_linear(plan, op, n);
        break;
    case LS_OP_ADAPTER:
        check_adapter(plan, op, n);
        break;
    case LS_OP_ADD:
        check_shape(plan, op->in[0], plan->own_rows, c->width);
        check_shape(plan, op->in[1], plan->own_rows, c->width);
        check_shape(plan, op->out[0], plan->own_rows, c->width);
        break;
    case LS_OP_EXPERT_LINEAR:
        check_linear(plan, op, ls_plan_expert_rows(plan));
        break;
    case LS_OP_TO_EXPERTS:
    case LS_OP_FROM_EXPERTS: {
        const int64_t own = n * c->experts_per_token, here = ls_plan_expert_rows(plan);
        const bool to = op->kind == LS_OP_TO_EXPERTS;
        check_shape(plan, op->in[0], to ? own : here, c->width);
        check_shape(plan, op->out[0], to ? here : own, c->width);
        check_shape(plan, op->din[0], to ? own : here, c->width);
        check_shape(plan, op->dout[0], to ? here : own, c->width);
        break;
    }
    case LS_OP_DISPATCH:
    case LS_OP_COMBINE:
        check_shape(plan, op->in[0], op->kind == LS_OP_DISPATCH ? n : n * c->experts_per_token, c->width);
        check_shape(plan, op->out[0], op->kind == LS_OP_COMBINE ? n : n * c->experts_per_token, c->width);
        break;
    case LS_OP_NORM:
    case LS_OP_ADD_NORM:
        for (int i = 0; i < LS_OP_VALUES_MAX; i++) {
            check_shape(plan, op->in[i], plan->own_rows, c->width);
            check_shape(plan, op->out[i], plan->own_rows, c->width);
            check_shape(plan, op->stats[i], plan->own_rows, 1);
        }
        check_shape(plan, op->din[0], plan->own_rows, c->width);
        break;
    case LS_OP_GATHER:
    case LS_OP_SCATTER:
        check_shape(plan, op->in[0], op->kind == LS_OP_GATHER ? plan->own_rows : n, c->width);
        check_shape(plan, op->out[0], op->kind == LS_OP_GATHER ? n : plan->own_rows, c->width);
        check_shape(plan, op->din[0], op->kind == LS_OP_GATHER ? plan->own_rows : n, c->width);
        check_shape(plan, op->dout[0], op->kind == LS_OP_GATHER ? n : plan->own_rows, c->width);
        break;
    case LS_OP_ATTENTION:
        check_shape(plan, op->in[0], n, op->in[0] == op->in[1] ? q + 2 * kv : q + kv);
        check_shape(plan, op->in[1], n, q + 2 * kv);
        check_shape(plan, op->out[0], n, q);
        check_shape(plan, op->stats[0], n, c->heads);
        break;
    case LS_OP_HEAD_LOSS:
        check_shape(plan, op->in[0], n, c->width);
        check_shape(plan, op->din[0], n, c->width);
        check_shape(plan, op->workspace, op->chunk_rows, c->vocab);
        break;
    default:
        break;
    }
}

void ls_plan_check(const ls_plan *plan)
{
    LS_ASSERT(plan->live_floats <= plan->arena_floats);
    check_no_overlap(plan);
    check_reads_follow_writes(plan);
    for (uint32_t i = 0; i < plan->op_count; i++) {
        check_op_shapes(plan, &plan->ops[i]);
    }
}
