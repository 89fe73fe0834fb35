// SPDX-License-Identifier: Apache-2.0
#include "execution/executor/executor_internal.h"

#include "base/assert.h"
#include "base/pieces.h"
#include "compute/kernels/activation.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/embedding.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/rotary.h"

#include <math.h>

/* ---- views ---- */

ls_tensor ls_executor_value(const ls_executor *e, int32_t value)
{
    if (value == LS_NONE) {
        return (ls_tensor){0};
    }
    const ls_value *v = &e->plan->values[value];
    const bool is_per_token = v->rows % e->plan->rows == 0;
    const int64_t rows = is_per_token ? v->rows / e->plan->rows * e->rows : v->rows;
    float *piece = e->arena + e->piece * e->plan->piece_floats;
    ls_tensor t = ls_tensor_of(piece + ls_plan_offset(e->plan, value, e->slot), v->dtype, rows, v->cols);
    t.stride = v->stride;
    return t;
}

static const ls_parameter *parameter_of(const ls_executor *e, int32_t index)
{
    return &e->plan->layout->parameters[index];
}

ls_flat ls_executor_weights(const ls_executor *e, const void *weights)
{
    return (ls_flat){(void *)(uintptr_t)weights, e->plan->options.activations};
}

ls_flat ls_executor_gradients(const ls_executor_batch *batch)
{
    return (ls_flat){batch->gradients, LS_F32};
}

ls_tensor ls_executor_flat_view(const ls_executor *e, ls_flat from, int32_t index, int64_t rows, int64_t cols)
{
    if (index == LS_NONE || !from.data) {
        return (ls_tensor){0};
    }
    const int64_t first = parameter_of(e, index)->offset * ls_dtype_bytes(from.dtype);
    return ls_tensor_of((char *)from.data + first, from.dtype, rows, cols);
}

ls_tensor ls_executor_parameter_view(const ls_executor *e, ls_flat from, int32_t index)
{
    if (index == LS_NONE) {
        return (ls_tensor){0};
    }
    const ls_parameter *p = parameter_of(e, index);
    return ls_executor_flat_view(e, from, index, p->rows, p->cols);
}

ls_tensor ls_executor_gradient_view(const ls_executor *e, const ls_executor_batch *batch, int32_t index)
{
    const bool is_there = index != LS_NONE && !parameter_of(e, index)->frozen;
    return is_there ? ls_executor_parameter_view(e, ls_executor_gradients(batch), index) : (ls_tensor){0};
}

ls_tensor ls_executor_common_gradient_view(const ls_executor *e, const ls_executor_batch *batch,
                                           int32_t index)
{
    const bool writes = e->plan->options.tensor_member == 0;
    return writes ? ls_executor_gradient_view(e, batch, index) : (ls_tensor){0};
}

ls_tensor ls_executor_vocabulary_rows(const ls_executor *e, ls_tensor matrix)
{
    return matrix.data ? ls_tensor_rows(matrix, e->plan->vocab_first, e->plan->config.vocab) : matrix;
}

/* ---- the tensor group ---- */

ls_status ls_executor_reduce(ls_executor *e, const ls_executor_batch *batch, ls_crew_reduction reduction,
                             const ls_tensor *values)
{
    const ls_plan_options *o = &e->plan->options;
    if (o->tensor_degree == 1) {
        return LS_OK;
    }
    const ls_crew *crew = batch->crew;
    LS_ASSERT(crew && crew->tensor_degree == o->tensor_degree && crew->tensor_member == o->tensor_member);
    LS_TRY(ls_queue_wait(e->queue));
    return crew->reduce(crew->context, LS_CREW_TENSOR, reduction, values);
}

const int32_t *ls_executor_local_ids(ls_executor *e, const int32_t *ids, int64_t count, int32_t elsewhere)
{
    if (!e->local) {
        return ids;
    }
    const int64_t first = e->plan->vocab_first, end = first + e->plan->config.vocab;
    for (int64_t i = 0; i < count; i++) {
        const bool here = ids[i] >= first && ids[i] < end;
        e->local[i] = here ? (int32_t)(ids[i] - first) : ids[i] < 0 ? ids[i] : elsewhere;
    }
    return e->local;
}

/* Rows of a pass that an op treats alike: the whole sequences of a micro-batch; with a cache, those
 * that continue one text; or a run of tokens of a cut sequence. */
typedef struct text_rows {
    int64_t first, count;
    int64_t token; /* of row `first` */
    ls_positions positions;
    int64_t slot;
} text_rows;

/* Where records begin, in memory of the device. NULL: the batch has none. */
int32_t *ls_executor_first(const ls_executor *e, const ls_executor_batch *batch)
{
    return batch->first ? e->first + (int64_t)e->slot * ls_executor_tokens(e) : NULL;
}

/* Before the first step of a micro-batch. */
static ls_status bring_first(ls_executor *e, const ls_executor_batch *batch)
{
    if (!batch->first) {
        return LS_OK;
    }
    LS_DCHECK(ls_first_is_valid(batch->first, ls_executor_tokens(e), e->plan->options.length));
    return ls_queue_move(e->queue, ls_executor_first(e, batch), batch->first,
                         (size_t)ls_executor_tokens(e) * sizeof *e->first);
}

ls_executor_batch ls_executor_piece(ls_executor *e, const ls_executor_batch *batch, uint32_t piece)
{
    ls_executor_batch own = *batch;
    LS_DCHECK(piece < e->plan->pieces);
    e->piece = piece;
    own.gradients = batch->piece_gradients ? batch->piece_gradients[piece] : batch->gradients;
    own.member_gradients = batch->member_gradients ? batch->member_gradients + piece : NULL;
    return own;
}

typedef ls_status (*text_fn)(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                             const text_rows *text);

static ls_status each_run(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, text_fn run)
{
    const ls_plan *plan = e->plan;
    const int32_t *first = ls_executor_first(e, batch);
    text_rows text = {.count = plan->run};
    for (text.first = 0; text.first < e->rows; text.first += plan->run) {
        text.token = ls_plan_token(plan, e->piece, text.first);
        text.positions = (ls_positions){.length = plan->run,
                                        .past = text.token % plan->options.length,
                                        .first = first ? first + text.token : NULL};
        LS_TRY(run(e, op, batch, &text));
    }
    return LS_OK;
}

static ls_status each_text(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, text_fn run)
{
    text_rows text = {.count = e->rows,
                      .positions = {.length = e->plan->options.length, .first = ls_executor_first(e, batch)}};
    if (e->plan->options.sequence_cut > 1) {
        return each_run(e, op, batch, run);
    }
    if (!e->cache) {
        return run(e, op, batch, &text);
    }
    for (size_t i = 0; i < batch->span_count; i++) {
        const ls_text_span *span = &batch->spans[i];
        text.count = span->count;
        text.positions = (ls_positions){.length = span->count, .past = span->past};
        text.slot = span->slot;
        LS_TRY(run(e, op, batch, &text));
        text.token = text.first += span->count;
    }
    return LS_OK;
}

/* ---- embedding ---- */

static ls_status embed_text(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                            const text_rows *text)
{
    const ls_flat weights = ls_executor_weights(e, batch->weights);
    const ls_tensor table =
        ls_executor_vocabulary_rows(e, ls_executor_parameter_view(e, weights, op->weight));
    const ls_tensor positions = ls_executor_parameter_view(e, weights, op->bias);
    const ls_tensor out = ls_tensor_rows(ls_executor_value(e, op->out[0]), text->first, text->count);
    const int32_t *tokens =
        ls_executor_local_ids(e, batch->tokens + text->token, text->count, LS_TOKEN_ELSEWHERE);
    return ls_embedding_forward(e->queue, tokens, &table, &positions, &text->positions, &out);
}

static ls_status embedding_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return each_text(e, op, batch, embed_text);
}

static ls_status scatter_text(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                              const text_rows *text)
{
    const ls_tensor dtable = ls_executor_vocabulary_rows(e, ls_executor_gradient_view(e, batch, op->weight));
    const ls_tensor dpositions = ls_executor_common_gradient_view(e, batch, op->bias);
    const ls_tensor dout = ls_tensor_rows(ls_executor_value(e, op->dout[0]), text->first, text->count);
    const int32_t *tokens =
        ls_executor_local_ids(e, batch->tokens + text->token, text->count, LS_TOKEN_ELSEWHERE);
    return ls_embedding_backward(e->queue, tokens, &dout, &text->positions, &dtable, &dpositions);
}

static ls_status embedding_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_tensor dtable = ls_executor_vocabulary_rows(e, ls_executor_gradient_view(e, batch, op->weight));
    const ls_tensor dpositions = ls_executor_common_gradient_view(e, batch, op->bias);
    if (!batch->accumulate) {
        if (dtable.data) {
            LS_TRY(ls_fill(e->queue, &dtable, 0.0f));
        }
        if (dpositions.data) {
            LS_TRY(ls_fill(e->queue, &dpositions, 0.0f));
        }
    }
    LS_TRY(each_text(e, op, batch, scatter_text));
    if (op->dweight == LS_NONE || batch->more) {
        return LS_OK;
    }
    const ls_tensor head = ls_executor_value(e, op->dweight);
    e->has_ended = true;
    return ls_add(e->queue, &dtable, &head, &dtable);
}

/* ---- linear ---- */

/* Members of the tensor group that divide the outputs, or the inputs, of a linear. */
static int64_t divided_by(const ls_executor *e, const ls_op *op, ls_linear_split split)
{
    return op->split == split ? e->plan->options.tensor_degree : 1;
}

/* All outputs of a linear, and the inputs of this member. */
ls_tensor ls_executor_linear_weight(const ls_executor *e, const ls_op *op, ls_flat from)
{
    const int64_t member = e->plan->options.tensor_member, in = op->in_features;
    const int64_t out = op->out_features * divided_by(e, op, LS_LINEAR_SPLIT_OUT);
    const int64_t all_in = in * divided_by(e, op, LS_LINEAR_SPLIT_IN);
    const ls_tensor all = op->weight_in_out ? ls_executor_flat_view(e, from, op->weight, all_in, out)
                                            : ls_executor_flat_view(e, from, op->weight, out, all_in);
    if (all_in == in) {
        return all;
    }
    return op->weight_in_out ? ls_tensor_rows(all, member * in, in) : ls_tensor_columns(all, member * in, in);
}

static ls_tensor linear_bias(const ls_executor *e, const ls_op *op, ls_flat from)
{
    return ls_executor_flat_view(e, from, op->bias, 1,
                                 op->out_features * divided_by(e, op, LS_LINEAR_SPLIT_OUT));
}

/* The packed matrices of a linear, one per tensor of the file; returns how many, 0 if it is not
 * packed. */
static uint32_t packed_of(const ls_executor *e, const ls_op *op, const void *weights,
                          ls_packed packed_out[LS_LINEAR_SEGMENTS_MAX])
{
    if (!parameter_of(e, op->weight)->packed) {
        return 0;
    }
    const uint32_t count = op->weight_in_out ? 1 : op->segment_count;
    for (uint32_t i = 0; i < count; i++) {
        const ls_parameter *p = parameter_of(e, op->weight + (int32_t)i);
        float *memory = (float *)(uintptr_t)weights + p->offset;
        packed_out[i] = ls_packed_of((ls_packed_kind)e->plan->layout->base,
                                     op->weight_in_out ? p->cols : p->rows, op->in_features, memory);
    }
    return count;
}

ls_linear ls_executor_linear(const ls_executor *e, const ls_op *op, const void *weights,
                             ls_packed packed[LS_LINEAR_SEGMENTS_MAX])
{
    ls_linear linear = {
        .packed = packed,
        .packed_count = packed_of(e, op, weights, packed),
        .weight = ls_executor_linear_weight(e, op, ls_executor_weights(e, weights)),
        .bias = linear_bias(e, op, ls_executor_weights(e, weights)),
        .layout = op->weight_in_out ? LS_WEIGHT_IN_OUT : LS_WEIGHT_OUT_IN,
        .forward_cut = op->forward_cut,
        .backward_input_cut = op->backward_input_cut,
        .segment_count = op->segment_count,
        .workspace = ls_executor_value(e, op->workspace),
    };
    const int64_t degree = divided_by(e, op, LS_LINEAR_SPLIT_OUT), member = e->plan->options.tensor_member;
    for (uint32_t i = 0; i < op->segment_count && i < LS_LINEAR_SEGMENTS_MAX; i++) {
        linear.segment[i] = op->segment[i];
        if (degree > 1) {
            const int64_t rest = i > 0 ? (degree - 1 - member) * op->segment[i - 1] : 0;
            linear.skip[i] = rest + member * op->segment[i];
        }
    }
    if (linear.packed_count > 0) {
        linear.weight.data = NULL;
    }
    return linear;
}

static ls_status linear_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    ls_packed packed[LS_LINEAR_SEGMENTS_MAX];
    ls_linear linear = ls_executor_linear(e, op, batch->weights, packed);
    const ls_tensor x = ls_executor_value(e, op->in[0]), y = ls_executor_value(e, op->out[0]);
    if (op->split == LS_LINEAR_SPLIT_IN) {
        linear.bias = (ls_tensor){0}; /* LS_OP_SCATTER adds it to the sum */
    }
    return ls_linear_forward(e->queue, &linear, &x, &y);
}

static ls_status linear_backward_input(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    ls_packed packed[LS_LINEAR_SEGMENTS_MAX];
    const ls_linear linear = ls_executor_linear(e, op, batch->weights, packed);
    const ls_tensor dy = ls_executor_value(e, op->dout[0]), dx = ls_executor_value(e, op->din[0]);
    return ls_linear_backward_input(e->queue, &linear, &dy, &dx, op->accumulate_din);
}

static ls_status linear_backward_weight(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    ls_packed packed[LS_LINEAR_SEGMENTS_MAX];
    const ls_linear linear = ls_executor_linear(e, op, batch->weights, packed);
    const ls_tensor x = ls_executor_value(e, op->in[0]), dy = ls_executor_value(e, op->dout[0]);
    /* what all members of a tensor group compute alike: a weight that is not split, and its bias */
    const ls_tensor weight = op->split == LS_LINEAR_SPLIT_NONE
                                 ? ls_executor_common_gradient_view(e, batch, op->weight)
                                 : ls_executor_gradient_view(e, batch, op->weight);
    const ls_tensor bias = op->split == LS_LINEAR_SPLIT_OUT
                               ? ls_executor_gradient_view(e, batch, op->bias)
                               : ls_executor_common_gradient_view(e, batch, op->bias);
    const bool has_weight = weight.data != NULL, has_bias = bias.data != NULL;
    const ls_tensor dweight =
        has_weight ? ls_executor_linear_weight(e, op, ls_executor_gradients(batch)) : (ls_tensor){0};
    const ls_tensor dbias = has_bias ? linear_bias(e, op, ls_executor_gradients(batch)) : (ls_tensor){0};
    return ls_linear_backward_weight(e->queue, &linear, &x, &dy, &dweight, &dbias, batch->accumulate);
}

/* ---- rotary and attention ---- */

typedef struct qk_columns {
    int64_t q_cols, k_cols;
} qk_columns;

static qk_columns qk_columns_of(const ls_executor *e)
{
    const ls_model_config *config = &e->plan->config;
    return (qk_columns){config->heads * config->head_dim, config->kv_heads * config->head_dim};
}

static ls_status rotate_text(ls_executor *e, int32_t value, const text_rows *text, bool backward)
{
    const ls_model_config *config = &e->plan->config;
    const int64_t heads = config->heads + config->kv_heads;
    const ls_tensor qk = ls_tensor_columns(ls_executor_value(e, value), 0, heads * config->head_dim);
    const ls_tensor rows = ls_tensor_rows(qk, text->first, text->count);
    return ls_rotary_apply(e->queue, &rows, heads, config->head_dim, &text->positions, &e->cosine, &e->sine,
                           backward);
}

static ls_status rotate_text_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                                     const text_rows *text)
{
    (void)batch;
    return rotate_text(e, op->in[0], text, false);
}

static ls_status rotate_text_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                                      const text_rows *text)
{
    (void)batch;
    return rotate_text(e, op->din[0], text, true);
}

static ls_status rotary_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return each_text(e, op, batch, rotate_text_forward);
}

static ls_status rotary_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return each_text(e, op, batch, rotate_text_backward);
}

ls_attention ls_executor_attention(const ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_model_config *config = &e->plan->config;
    return (ls_attention){
        .sequences = e->plan->options.sequences,
        .length = e->plan->options.length,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .window = op->window,
        .scale = (float)(1.0 / sqrt((double)config->head_dim)),
        .first = ls_executor_first(e, batch),
    };
}

/* in[0] (or din[0]) holds queries and keys; in[1] (or din[1]) is the fused projection, where the
 * values follow the queries and keys. */
void ls_executor_attention_views(const ls_executor *e, const int32_t value[2], ls_tensor *q, ls_tensor *k,
                                 ls_tensor *v)
{
    const qk_columns c = qk_columns_of(e);
    const ls_tensor qk = ls_executor_value(e, value[0]), qkv = ls_executor_value(e, value[1]);
    *q = ls_tensor_columns(qk, 0, c.q_cols);
    *k = ls_tensor_columns(qk, c.q_cols, c.k_cols);
    *v = ls_tensor_columns(qkv, c.q_cols + c.k_cols, c.k_cols);
}

/* Puts keys and values of new rows into the cache, then lets these rows attend to all of their
 * text. */
static ls_status attend_text(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                             const text_rows *text)
{
    ls_attention attention = ls_executor_attention(e, op, batch);
    attention.sequences = 1;
    attention.length = text->count;
    ls_tensor q, k, v;
    ls_executor_attention_views(e, op->in, &q, &k, &v);
    q = ls_tensor_rows(q, text->first, text->count);
    k = ls_tensor_rows(k, text->first, text->count);
    v = ls_tensor_rows(v, text->first, text->count);
    const ls_tensor out = ls_tensor_rows(ls_executor_value(e, op->out[0]), text->first, text->count);
    const int64_t capacity = e->cache->capacity, row = text->slot * capacity;
    const ls_tensor keys = ls_tensor_rows(e->cache->keys[op->layer], row, capacity);
    const ls_tensor values = ls_tensor_rows(e->cache->values[op->layer], row, capacity);
    const ls_tensor new_keys = ls_tensor_rows(keys, text->positions.past, text->count);
    const ls_tensor new_values = ls_tensor_rows(values, text->positions.past, text->count);
    LS_TRY(ls_copy(e->queue, &k, &new_keys));
    LS_TRY(ls_copy(e->queue, &v, &new_values));
    return ls_attention_decode(e->queue, &attention, &q, &keys, &values, text->positions.past, &out);
}

static ls_status attention_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    if (e->cache) {
        return each_text(e, op, batch, attend_text);
    }
    const ls_attention attention = ls_executor_attention(e, op, batch);
    ls_tensor q, k, v;
    ls_executor_attention_views(e, op->in, &q, &k, &v);
    const ls_tensor out = ls_executor_value(e, op->out[0]), lse = ls_executor_value(e, op->stats[0]);
    return ls_attention_forward(e->queue, &attention, &q, &k, &v, &out, &lse);
}

static ls_status attention_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_attention attention = ls_executor_attention(e, op, batch);
    ls_tensor q, k, v, dq, dk, dv;
    ls_executor_attention_views(e, op->in, &q, &k, &v);
    ls_executor_attention_views(e, op->din, &dq, &dk, &dv);
    const ls_tensor out = ls_executor_value(e, op->out[0]), lse = ls_executor_value(e, op->stats[0]);
    const ls_tensor dout = ls_executor_value(e, op->dout[0]), workspace = ls_executor_value(e, op->workspace);
    return ls_attention_backward(e->queue, &attention, &q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv,
                                 &workspace);
}

/* ---- activations ---- */

static ls_status gelu_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_tensor x = ls_executor_value(e, op->in[0]), y = ls_executor_value(e, op->out[0]);
    return ls_gelu_forward(e->queue, &x, &y);
}

static ls_status gelu_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_tensor x = ls_executor_value(e, op->in[0]), dy = ls_executor_value(e, op->dout[0]);
    const ls_tensor dx = ls_executor_value(e, op->din[0]);
    return ls_gelu_backward(e->queue, &x, &dy, &dx);
}

static ls_status swiglu_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_tensor x = ls_executor_visited(e, op, op->in[0]), y = ls_executor_visited(e, op, op->out[0]);
    return ls_swiglu_forward(e->queue, &x, &y);
}

static ls_status swiglu_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_tensor x = ls_executor_visited(e, op, op->in[0]), dy = ls_executor_visited(e, op, op->dout[0]);
    const ls_tensor dx = ls_executor_visited(e, op, op->din[0]);
    return ls_swiglu_backward(e->queue, &x, &dy, &dx);
}

/* ---- exchanges of a tensor group ---- */

static ls_status gather_rows(ls_executor *e, const ls_executor_batch *batch, int32_t from, int32_t to)
{
    const ls_tensor own = ls_executor_value(e, from), all = ls_executor_value(e, to);
    LS_TRY(ls_queue_wait(e->queue));
    return batch->crew->gather_rows(batch->crew->context, &own, &all);
}

/* The own rows of the sum of what the members have, or of what all have alike. */
static ls_status scatter_rows(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, int32_t from,
                              int32_t to)
{
    const ls_tensor partial = ls_executor_value(e, from), own = ls_executor_value(e, to);
    const ls_plan_options *o = &e->plan->options;
    if (op->alike) {
        const int64_t first = ls_piece_first(partial.rows, o->tensor_degree, o->tensor_member);
        const ls_tensor rows = ls_tensor_rows(partial, first, own.rows);
        return ls_copy(e->queue, &rows, &own);
    }
    LS_TRY(ls_queue_wait(e->queue));
    return batch->crew->scatter_rows(batch->crew->context, &partial, &own);
}

static ls_status gather_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return gather_rows(e, batch, op->in[0], op->out[0]);
}

static ls_status gather_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return scatter_rows(e, op, batch, op->dout[0], op->din[0]);
}

static ls_status scatter_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_tensor out = ls_executor_value(e, op->out[0]);
    const ls_tensor bias = ls_executor_parameter_view(e, ls_executor_weights(e, batch->weights), op->bias);
    LS_TRY(scatter_rows(e, op, batch, op->in[0], op->out[0]));
    return bias.data ? ls_add(e->queue, &out, &bias, &out) : LS_OK;
}

static ls_status scatter_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return gather_rows(e, batch, op->dout[0], op->din[0]);
}

static ls_status sum_rows(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, int32_t value)
{
    const ls_plan_options *o = &e->plan->options;
    const ls_tensor all = ls_executor_value(e, value), scratch = ls_executor_value(e, op->workspace);
    const int64_t first = ls_piece_first(all.rows, o->tensor_degree, o->tensor_member);
    const int64_t past = ls_piece_first(all.rows, o->tensor_degree, o->tensor_member + 1);
    const ls_tensor own = ls_tensor_f32(scratch.data, past - first, all.cols);
    LS_TRY(ls_queue_wait(e->queue));
    LS_TRY(batch->crew->scatter_rows(batch->crew->context, &all, &own));
    return batch->crew->gather_rows(batch->crew->context, &own, &all);
}

static ls_status sum_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return sum_rows(e, op, batch, op->out[0]);
}

static ls_status sum_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return sum_rows(e, op, batch, op->din[0]);
}

/* ---- add ---- */

static ls_status add_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_tensor a = ls_executor_value(e, op->in[0]), b = ls_executor_value(e, op->in[1]);
    const ls_tensor out = ls_executor_value(e, op->out[0]);
    return b.data ? ls_add(e->queue, &a, &b, &out) : ls_copy(e->queue, &a, &out);
}

/* ---- steps ---- */

typedef ls_status (*op_fn)(ls_executor *e, const ls_op *op, const ls_executor_batch *batch);

static const struct {
    const char *name;
    op_fn phase[3]; /* by ls_phase */
} op_table[LS_OP_KIND_COUNT] = {
    [LS_OP_EMBEDDING] = {"embedding", {embedding_forward, NULL, embedding_backward}},
    [LS_OP_NORM] = {"norm", {ls_executor_norm_forward, ls_executor_norm_backward, NULL}},
    [LS_OP_ADD_NORM] = {"add and norm", {ls_executor_norm_forward, ls_executor_norm_backward, NULL}},
    [LS_OP_LINEAR] = {"linear", {linear_forward, linear_backward_input, linear_backward_weight}},
    [LS_OP_QK_NORM] = {"query-key norm", {ls_executor_qk_norm_forward, ls_executor_qk_norm_backward, NULL}},
    [LS_OP_ROTARY] = {"rotary", {rotary_forward, rotary_backward, NULL}},
    [LS_OP_ATTENTION] = {"attention", {attention_forward, attention_backward, NULL}},
    [LS_OP_GELU] = {"gelu", {gelu_forward, gelu_backward, NULL}},
    [LS_OP_SWIGLU] = {"swiglu", {swiglu_forward, swiglu_backward, NULL}},
    [LS_OP_HEAD_LOSS] = {"head and loss", {ls_executor_head_forward, NULL, NULL}},
    [LS_OP_ADD] = {"add", {add_forward, NULL, NULL}},
    [LS_OP_GATHER] = {"gather", {gather_forward, gather_backward, NULL}},
    [LS_OP_SCATTER] = {"scatter", {scatter_forward, scatter_backward, NULL}},
    [LS_OP_SUM] = {"sum", {sum_forward, sum_backward, NULL}},
    [LS_OP_DROPOUT] = {"dropout", {ls_executor_dropout_forward, ls_executor_dropout_backward, NULL}},
    [LS_OP_ROUTE] = {"route", {ls_executor_route_forward, ls_executor_route_backward, NULL}},
    [LS_OP_DISPATCH] = {"dispatch", {ls_executor_dispatch_forward, ls_executor_dispatch_backward, NULL}},
    [LS_OP_EXPERT_LINEAR] = {"expert linear",
                             {ls_executor_expert_linear_forward, ls_executor_expert_linear_backward_input,
                              ls_executor_expert_linear_backward_weight}},
    [LS_OP_COMBINE] = {"combine", {ls_executor_combine_forward, ls_executor_combine_backward, NULL}},
    [LS_OP_TO_EXPERTS] = {"to experts",
                          {ls_executor_to_experts_forward, ls_executor_to_experts_backward, NULL}},
    [LS_OP_FROM_EXPERTS] = {"from experts",
                            {ls_executor_from_experts_forward, ls_executor_from_experts_backward, NULL}},
    [LS_OP_ADAPTER] = {"adapter",
                       {ls_executor_adapter_forward, ls_executor_adapter_backward_input,
                        ls_executor_adapter_backward_weight}},
};

const char *ls_op_kind_name(ls_op_kind kind)
{
    return kind < LS_OP_KIND_COUNT ? op_table[kind].name : "unknown";
}

ls_status ls_executor_step(ls_executor *e, const ls_executor_batch *batch, uint32_t index)
{
    const ls_plan_step step = e->plan->steps[index];
    const ls_op *op = &e->plan->ops[step.op];
    const op_fn run = op_table[op->kind].phase[step.phase];
    LS_ASSERT(run && "the plan has a phase that this op does not have");
    LS_ASSERT(e->plan->options.sequence_cut == 1 || batch->piece_gradients);
    LS_DCHECK(batch->slot < e->plan->options.slots);
    e->slot = batch->slot;
    if (index == 0) {
        LS_TRY(bring_first(e, batch));
    }
    if (e->plan->options.sequence_cut > 1 && op->kind == LS_OP_ATTENTION) {
        return step.phase == LS_PHASE_FORWARD ? ls_executor_context_forward(e, op, batch)
                                              : ls_executor_context_backward(e, op, batch);
    }
    for (uint32_t piece = 0; piece < e->plan->pieces; piece++) {
        const ls_executor_batch own = ls_executor_piece(e, batch, piece);
        LS_TRY(run(e, op, &own));
    }
    return LS_OK;
}
