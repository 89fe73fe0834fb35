// SPDX-License-Identifier: Apache-2.0
/* Adding to the tables of a plan that is being built, and finding parameters; for the files that
 * build plans. */
#ifndef LS_MODEL_PLAN_BUILDER_H
#define LS_MODEL_PLAN_BUILDER_H

#include "base/assert.h"
#include "base/file.h"
#include "model/plan_internal.h"

typedef struct builder {
    ls_arena *arena;
    ls_plan *plan;
    const ls_model_config *config; /* of the plan */
    int64_t vocab;                 /* of the model */
    uint32_t pieces;               /* of the cut, in this plan */
    int64_t n;                     /* rows: tokens of a micro-batch */
    int64_t own;                   /* rows of the stream that this member has */
    int64_t q, kv;                 /* columns of queries, of keys (and of values) */
    int32_t layer;                 /* -1: outside */
    const char *suffix;            /* " again" while clones are made */
    int32_t dstream;               /* gradient of the residual stream, LS_NONE until it exists */
    uint32_t capacity_ops, capacity_values, capacity_steps;
} builder;

/* ---- adding to the tables ---- */

static inline int32_t add_value(builder *b, const char *name, int64_t rows, int64_t cols)
{
    ls_plan *plan = b->plan;
    LS_ASSERT(plan->value_count < b->capacity_values && rows >= 1 && cols >= 1);
    char *full = b->layer >= 0 ? ls_arena_printf(b->arena, "layer %d %s%s", b->layer, name, b->suffix)
                               : ls_arena_printf(b->arena, "%s%s", name, b->suffix);
    plan->values[plan->value_count] = (ls_value){.name = full,
                                                 .dtype = plan->options.activations,
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .stride = cols,
                                                 .first_step = -1,
                                                 .last_step = -1};
    return (int32_t)plan->value_count++;
}

/* A value that is float32 whatever the activations are: statistics and workspaces. */
static inline int32_t add_float_value(builder *b, const char *name, int64_t rows, int64_t cols)
{
    const int32_t value = add_value(b, name, rows, cols);
    b->plan->values[value].dtype = LS_F32;
    return value;
}

static inline int32_t add_scratch(builder *b, const char *name, int64_t floats)
{
    if (floats <= 0) {
        return LS_NONE;
    }
    const int32_t value = add_float_value(b, name, 1, floats);
    b->plan->values[value].scratch = true;
    return value;
}

static inline int32_t add_op(builder *b, ls_op_kind kind)
{
    ls_plan *plan = b->plan;
    LS_ASSERT(plan->op_count < b->capacity_ops);
    plan->ops[plan->op_count] = (ls_op){
        .kind = kind,
        .layer = b->layer,
        .in = {LS_NONE, LS_NONE},
        .out = {LS_NONE, LS_NONE},
        .stats = {LS_NONE, LS_NONE},
        .din = {LS_NONE, LS_NONE},
        .dout = {LS_NONE, LS_NONE},
        .workspace = LS_NONE,
        .weight = LS_NONE,
        .bias = LS_NONE,
        .routes = LS_NONE,
        .low = LS_NONE,
        .dlow = LS_NONE,
        .dweight = LS_NONE,
        .forward_cut = 1,
        .backward_input_cut = 1,
    };
    return (int32_t)plan->op_count++;
}

static inline void add_step(builder *b, ls_phase phase, int32_t op)
{
    ls_plan *plan = b->plan;
    if (op == LS_NONE) {
        return; /* an op that this family lacks */
    }
    LS_ASSERT(plan->step_count < b->capacity_steps);
    plan->steps[plan->step_count++] = (ls_plan_step){phase, op};
}

static inline ls_op *op_at(builder *b, int32_t op)
{
    return &b->plan->ops[op];
}

/* ---- parameters ---- */

static inline int32_t find_parameter(const builder *b, const char *name)
{
    const ls_parameter *p = ls_layout_find(b->plan->layout, name);
    return p ? (int32_t)(p - b->plan->layout->parameters) : LS_NONE;
}

/* The first parameter of [low, high) whose section is not below `section`. */
static inline uint32_t section_first(const ls_layout *layout, uint32_t low, uint32_t high, uint32_t section)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (layout->parameters[middle].section < section) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static inline int32_t layer_parameter_in(const builder *b, uint32_t low, uint32_t high, const char *name)
{
    const ls_layout *layout = b->plan->layout;
    const uint32_t section = (uint32_t)b->layer + 1;
    for (uint32_t i = section_first(layout, low, high, section);
         i < high && layout->parameters[i].section == section; i++) {
        if (ls_path_has_suffix(layout->parameters[i].name, name)) {
            return (int32_t)i;
        }
    }
    return LS_NONE;
}

/* Parameter `name` of the builder's layer; only that layer is searched, so that deep models build
 * fast. */
static inline int32_t layer_parameter(const builder *b, const char *name)
{
    const ls_layout *layout = b->plan->layout;
    const int32_t trained = layer_parameter_in(b, 0, layout->trained_count, name);
    return trained != LS_NONE ? trained
                              : layer_parameter_in(b, layout->trained_count, layout->parameter_count, name);
}

#endif
