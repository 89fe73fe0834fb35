// SPDX-License-Identifier: Apache-2.0
/* The values and ops of a layer while a plan is built: shared by plan.c, plan_ends.c, plan_group.c
 * and plan_experts.c. */
#ifndef LS_MODEL_PLAN_LAYER_H
#define LS_MODEL_PLAN_LAYER_H

#include "model/plan_builder.h"

/* The linears of a layer. */
enum { QKV, PROJECT, UP, DOWN, LINEAR_COUNT };

/* Of a layer with experts; LS_NONE in others. The rows of experts are experts_per_token for each
 * token. */
typedef struct expert_values {
    int32_t scores;  /* logits of the router, then probabilities: (n, experts) */
    int32_t weights; /* of the experts that a token visits: (n, experts_per_token) */
    int32_t routes;
    int32_t dispatched, returned; /* rows as the experts take them, and as they give them back */
    /* the same where the experts are; in an expert group those of all members' tokens */
    int32_t arrived, given;
} expert_values;

typedef struct expert_ops {
    int32_t router, route, dispatch, combine;
    int32_t to_experts, from_experts; /* LS_NONE without an expert group */
    int32_t gather, sum, scatter;     /* LS_NONE without a tensor group */
} expert_ops;

/* The values of one layer; with recompute there are two sets that share what is kept. */
typedef struct layer_values {
    int32_t stream; /* residual stream that the first norm reads */
    int32_t normed_1, mean_1, rstd_1;
    int32_t qkv, qk, qk_rstd; /* qk: after qk_norm, else qkv */
    int32_t attended, lse;
    int32_t projected; /* attention's branch */
    int32_t middle;    /* stream + projected */
    int32_t normed_2, mean_2, rstd_2;
    int32_t up, activated;
    int32_t down; /* the MLP's branch */
    expert_values experts;
    /* of the adapters of qkv, project, up and down */
    int32_t low[LINEAR_COUNT], dropped[LINEAR_COUNT];
} layer_values;

/* A linear and the adapter on it. copy: of the gradient of its output, with split_backward. In a
 * tensor group, gather makes its input, or scatter takes its output. */
typedef struct linear_ops {
    int32_t linear, dropout, adapter, copy, gather, scatter;
} linear_ops;

typedef struct layer_ops {
    int32_t norm_1, qk_norm, rotary, attention, norm_2, activate;
    expert_ops experts;
    linear_ops linears[LINEAR_COUNT];
} layer_ops;

typedef struct layer_parameters {
    int32_t norm_1, norm_1_bias, qkv, qkv_bias, q_norm, k_norm, project, project_bias;
    int32_t norm_2, norm_2_bias, up, up_bias, down, down_bias;
    int32_t router;
} layer_parameters;

/* ---- adding ops ---- */

static inline int32_t add_linear(builder *b, int32_t in, int32_t out, int32_t weight, int32_t bias)
{
    const int32_t index = add_op(b, LS_OP_LINEAR);
    ls_op *op = op_at(b, index);
    op->in[0] = in;
    op->out[0] = out;
    op->weight = weight;
    op->bias = bias;
    op->in_features = b->plan->values[in].cols;
    op->out_features = b->plan->values[out].cols;
    op->weight_in_out = b->config->family == LS_FAMILY_GPT2;
    op->segment_count = 1;
    op->segment[0] = op->out_features;
    return index;
}

static inline void set_segments(builder *b, int32_t index, uint32_t count, const int64_t widths[])
{
    ls_op *op = op_at(b, index);
    op->segment_count = count;
    int64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        op->segment[i] = widths[i];
        total += widths[i];
    }
    LS_ASSERT(total == op->out_features);
}

/* Cuts the sums of a linear, or of that of each expert: over its inputs in forward
 * (LS_LINEAR_SPLIT_IN), or over its outputs in BACKWARD_INPUT. In plan.c. */
void ls_plan_set_cut(builder *b, int32_t index, ls_linear_split split);

static inline void set_pair(builder *b, int32_t index, int32_t din, int32_t dout)
{
    if (index != LS_NONE) {
        op_at(b, index)->din[0] = din;
        op_at(b, index)->dout[0] = dout;
    }
}

static inline linear_ops linear_alone(int32_t linear)
{
    return (linear_ops){linear, LS_NONE, LS_NONE, LS_NONE, LS_NONE, LS_NONE};
}

/* ---- norms: plan.c ---- */

typedef struct norm_values {
    int32_t normed, mean, rstd; /* what the norm makes */
    int32_t weight, bias;       /* parameters */
} norm_values;

/* Adds the norm of value `sum`, which the same op computes as the sum of two values if addends is
 * not NULL. */
int32_t ls_plan_add_norm(builder *b, int32_t sum, const int32_t addends[2], norm_values n);

/* Sets its gradients: that of the stream becomes, or with accumulate gets added, the norm's. */
void ls_plan_norm_gradients(builder *b, int32_t index, int32_t dnormed, bool accumulate);

/* ---- the tensor group: plan_group.c ---- */

/* Adds the op that makes all rows of `own`, of which each member has some, and returns their value;
 * in a process alone nothing, and `own`. */
int32_t ls_plan_gather(builder *b, int32_t own, int32_t *op_out);

/* Adds the op that makes `own` of the sum over the members of the value that is returned, plus a
 * bias (or LS_NONE); in a process alone nothing, and returns `own`. */
int32_t ls_plan_scatter(builder *b, int32_t own, int32_t bias, int32_t *op_out);

/* ---- the ends of the model, or of a stage: plan_ends.c ---- */

/* LS_NONE where a stage has none of them; embedded, gathered: what they exchange in a tensor
 * group. */
typedef struct plan_ends {
    int32_t embedding, embedded, final_norm, gathered, head;
} plan_ends;

/* Adds what is before the layers; returns the stream. */
int32_t ls_plan_begin(builder *b, plan_ends *ends);
/* Adds what follows the layers. last: values of the last one. */
void ls_plan_end(builder *b, const layer_values *last, plan_ends *ends);
void ls_plan_end_backward(builder *b, const plan_ends *ends);
void ls_plan_begin_backward(builder *b, const plan_ends *ends);

/* ---- layers with experts: plan_experts.c ---- */

/* Adds the values that a layer with experts has more than others; LS_NONE for those without. */
expert_values ls_plan_expert_values(builder *b);

/* Puts other values in the place of the dispatched rows, here and where the experts are. */
void ls_plan_expert_dispatch_again(builder *b, expert_values *v);

/* Adds the ops from the second norm to the MLP's branch. */
void ls_plan_expert_ops(builder *b, const layer_values *v, const layer_parameters *p, layer_ops *ops);

/* Adds the gradients of these ops; the one of the second norm's output is the result. */
int32_t ls_plan_expert_gradients(builder *b, const layer_values *v, const layer_ops *ops);

/* Adds their forward steps, up to the experts' outputs or to the branch. */
void ls_plan_expert_forward(builder *b, const layer_ops *ops, bool with_branch);

/* Adds their backward steps; lazily: norm, dispatch and activation run again when needed. */
void ls_plan_expert_backward(builder *b, const layer_ops *ops, bool lazily);

#endif
