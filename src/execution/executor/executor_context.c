// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of sequences that are cut into pieces.
 *
 * Every process brings the keys and values of all tokens into the order of tokens, whoever made
 * them, and then computes the queries of its own pieces, run by run. Backward makes, for each run,
 * the share of its queries in the gradients of the keys; the shares are added in the tree over the
 * pieces.
 */
#include "base/assert.h"
#include "compute/kernels/elementwise.h"
#include "execution/executor/executor_internal.h"

static ls_tensor area(const ls_executor *e, int64_t offset, int64_t rows)
{
    return ls_tensor_f32(e->arena + offset, rows, e->plan->context.cols);
}

/* ---- keys and values of all pieces ---- */

/* Copies runs of one piece between its own rows and `tokens`, which has all, in the order of
 * tokens. */
static ls_status copy_runs(ls_executor *e, const ls_tensor *rows, const ls_tensor *tokens, uint32_t piece,
                           bool to_tokens)
{
    const int64_t run = e->plan->run;
    for (int64_t row = 0; row < rows->rows; row += run) {
        const ls_tensor own = ls_tensor_rows(*rows, row, run);
        const ls_tensor all = ls_tensor_rows(*tokens, ls_plan_token(e->plan, piece, row), run);
        LS_TRY(to_tokens ? ls_copy(e->queue, &own, &all) : ls_copy(e->queue, &all, &own));
    }
    return LS_OK;
}

typedef struct column_pair {
    ls_tensor keys, values;
} column_pair;

static column_pair halves_of(ls_tensor both)
{
    const int64_t cols = both.cols / 2;
    return (column_pair){ls_tensor_columns(both, 0, cols), ls_tensor_columns(both, cols, cols)};
}

/* The keys and values, or their gradients, that piece `piece` has in values value[0] and [1]. */
static column_pair piece_columns(ls_executor *e, const int32_t value[2], uint32_t piece)
{
    ls_tensor q;
    column_pair own;
    e->piece = piece;
    ls_executor_attention_views(e, value, &q, &own.keys, &own.values);
    return own;
}

/* Member `member` of the group has sent the rows of its pieces, one after the other. */
static ls_status place_member(ls_executor *e, const ls_tensor *rows, uint32_t member, const ls_tensor *tokens)
{
    ls_plan there = *e->plan;
    there.options.context_member = member;
    const int64_t run = there.run;
    for (uint32_t piece = 0; piece < there.pieces; piece++) {
        for (int64_t row = 0; row < there.rows; row += run) {
            const ls_tensor from = ls_tensor_rows(*rows, piece * there.rows + row, run);
            const ls_tensor to = ls_tensor_rows(*tokens, ls_plan_token(&there, piece, row), run);
            LS_TRY(ls_copy(e->queue, &from, &to));
        }
    }
    return LS_OK;
}

static ls_status exchange_keys(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                               const ls_tensor *tokens)
{
    const ls_plan *plan = e->plan;
    const ls_crew *crew = batch->crew;
    const uint32_t degree = plan->options.context_degree;
    const int64_t count = plan->rows * plan->pieces;
    const ls_tensor own = area(e, plan->context.own, count);
    const ls_tensor all = area(e, plan->context.gradients, ls_executor_tokens(e));
    LS_ASSERT(crew && crew->context_degree == degree && crew->context_member == plan->options.context_member);
    for (uint32_t piece = 0; piece < plan->pieces; piece++) {
        const column_pair from = piece_columns(e, op->in, piece);
        const column_pair to = halves_of(ls_tensor_rows(own, piece * plan->rows, plan->rows));
        LS_TRY(ls_copy(e->queue, &from.keys, &to.keys));
        LS_TRY(ls_copy(e->queue, &from.values, &to.values));
    }
    LS_TRY(ls_queue_wait(e->queue));
    LS_TRY(crew->gather(crew->context, LS_CREW_CONTEXT, own.data,
                        (size_t)(own.rows * own.cols) * sizeof(float), all.data));
    for (uint32_t member = 0; member < degree; member++) {
        const ls_tensor rows = ls_tensor_rows(all, member * count, count);
        LS_TRY(place_member(e, &rows, member, tokens));
    }
    return LS_OK;
}

/* Brings the keys and values of all tokens together. */
static ls_status gather_keys(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                             const ls_tensor *tokens)
{
    if (e->plan->options.context_degree > 1) {
        return exchange_keys(e, op, batch, tokens);
    }
    const column_pair to = halves_of(*tokens);
    for (uint32_t piece = 0; piece < e->plan->pieces; piece++) {
        const column_pair from = piece_columns(e, op->in, piece);
        LS_TRY(copy_runs(e, &from.keys, &to.keys, piece, true));
        LS_TRY(copy_runs(e, &from.values, &to.values, piece, true));
    }
    return LS_OK;
}

/* ---- runs of queries ---- */

/* A run of queries: `row` in its piece, `past` in its sequence, whose keys are keys.rows tokens. */
typedef struct query_run {
    int64_t row, past;
    ls_attention attention;
    column_pair keys;
} query_run;

/* The run of the current piece that begins at its row `row`. */
static query_run run_at(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, int64_t row,
                        const ls_tensor *tokens)
{
    const ls_plan *plan = e->plan;
    const int64_t token = ls_plan_token(plan, e->piece, row), past = token % plan->options.length;
    query_run run = {.row = row, .past = past, .attention = ls_executor_attention(e, op, batch)};
    run.attention.sequences = 1;
    run.attention.length = plan->run;
    run.attention.past = past;
    run.attention.first = run.attention.first ? run.attention.first + token : NULL;
    run.keys = halves_of(ls_tensor_rows(*tokens, token - past, past + plan->run));
    return run;
}

static ls_tensor run_rows(const ls_executor *e, int32_t value, int64_t row)
{
    return ls_tensor_rows(ls_executor_value(e, value), row, e->plan->run);
}

static ls_status attend(ls_executor *e, const ls_op *op, const query_run *run)
{
    ls_tensor q, k, v;
    ls_executor_attention_views(e, op->in, &q, &k, &v);
    q = ls_tensor_rows(q, run->row, e->plan->run);
    const ls_tensor out = run_rows(e, op->out[0], run->row), lse = run_rows(e, op->stats[0], run->row);
    return ls_attention_forward(e->queue, &run->attention, &q, &run->keys.keys, &run->keys.values, &out,
                                &lse);
}

ls_status ls_executor_context_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_tensor tokens = area(e, e->plan->context.keys, ls_executor_tokens(e));
    LS_TRY(gather_keys(e, op, batch, &tokens));
    for (e->piece = 0; e->piece < e->plan->pieces; e->piece++) {
        for (int64_t row = 0; row < e->rows; row += e->plan->run) {
            const query_run run = run_at(e, op, batch, row, &tokens);
            LS_TRY(attend(e, op, &run));
        }
    }
    return LS_OK;
}

/* ---- backward ---- */

/* The share of a run in the gradients of keys and values, into as many rows of `sum`; dq in place.
 * */
static ls_status differentiate(ls_executor *e, const ls_op *op, const query_run *run, const ls_tensor *sum)
{
    ls_tensor q, k, v, dq, dk, dv;
    ls_executor_attention_views(e, op->in, &q, &k, &v);
    ls_executor_attention_views(e, op->din, &dq, &dk, &dv);
    q = ls_tensor_rows(q, run->row, e->plan->run);
    dq = ls_tensor_rows(dq, run->row, e->plan->run);
    const ls_tensor out = run_rows(e, op->out[0], run->row), lse = run_rows(e, op->stats[0], run->row);
    const ls_tensor dout = run_rows(e, op->dout[0], run->row);
    const ls_tensor workspace = ls_executor_value(e, op->workspace);
    const column_pair to = halves_of(ls_tensor_rows(*sum, 0, run->keys.keys.rows));
    return ls_attention_backward(e->queue, &run->attention, &q, &run->keys.keys, &run->keys.values, &out,
                                 &lse, &dout, &dq, &to.keys, &to.values, &workspace);
}

/* What the queries of a piece of one sequence give: the late run, which sees more keys, then the
 * early one, added to it. sums[1] is spare. */
static ls_status add_piece(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, int64_t sequence,
                           const ls_tensor sums[2])
{
    const ls_tensor tokens = area(e, e->plan->context.keys, ls_executor_tokens(e));
    const int64_t row = 2 * sequence * e->plan->run;
    const query_run early = run_at(e, op, batch, row, &tokens);
    const query_run late = run_at(e, op, batch, row + e->plan->run, &tokens);
    const int64_t seen = late.keys.keys.rows, also = early.keys.keys.rows;
    const ls_tensor unseen = ls_tensor_rows(sums[0], seen, sums[0].rows - seen);
    const ls_tensor both = ls_tensor_rows(sums[0], 0, also), more = ls_tensor_rows(sums[1], 0, also);
    LS_TRY(differentiate(e, op, &late, &sums[0]));
    LS_TRY(unseen.rows > 0 ? ls_fill(e->queue, &unseen, 0.0f) : LS_OK);
    LS_TRY(differentiate(e, op, &early, &sums[1]));
    return ls_add(e->queue, &both, &more, &both);
}

/* Sum number `number` of the stack of a sequence; the first is in the gradients themselves. */
static ls_tensor sum_at(const ls_executor *e, int64_t sequence, int64_t number)
{
    const ls_plan_context *c = &e->plan->context;
    const int64_t length = e->plan->options.length;
    return number == 0 ? area(e, c->gradients + sequence * length * c->cols, length)
                       : area(e, c->sums + (number - 1) * length * c->cols, length);
}

/* The pieces of a sequence, in the tree over those of this process. */
static ls_status add_pieces(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, int64_t sequence)
{
    const ls_tensor spare = sum_at(e, sequence, e->plan->context.sum_count + 1);
    int64_t depth = 0;
    for (uint32_t piece = 0; piece < e->plan->pieces; piece++) {
        const ls_tensor sums[2] = {sum_at(e, sequence, depth++), spare};
        e->piece = piece;
        LS_TRY(add_piece(e, op, batch, sequence, sums));
        for (uint32_t done = piece + 1; done % 2 == 0; done /= 2, depth--) {
            const ls_tensor left = sum_at(e, sequence, depth - 2), right = sum_at(e, sequence, depth - 1);
            LS_TRY(ls_add(e->queue, &left, &right, &left));
        }
    }
    return LS_OK;
}

ls_status ls_executor_context_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_plan_options *o = &e->plan->options;
    const ls_tensor tokens = area(e, e->plan->context.keys, ls_executor_tokens(e));
    const ls_tensor gradients = area(e, e->plan->context.gradients, ls_executor_tokens(e));
    LS_TRY(gather_keys(e, op, batch, &tokens));
    for (int64_t sequence = 0; sequence < o->sequences; sequence++) {
        LS_TRY(add_pieces(e, op, batch, sequence));
    }
    if (o->context_degree > 1) {
        LS_TRY(ls_queue_wait(e->queue));
        LS_TRY(batch->crew->reduce(batch->crew->context, LS_CREW_CONTEXT, LS_CREW_SUM, &gradients));
    }
    const column_pair all = halves_of(gradients);
    for (uint32_t piece = 0; piece < e->plan->pieces; piece++) {
        const column_pair own = piece_columns(e, op->din, piece);
        LS_TRY(copy_runs(e, &own.keys, &all.keys, piece, false));
        LS_TRY(copy_runs(e, &own.values, &all.values, piece, false));
    }
    return LS_OK;
}
