// SPDX-License-Identifier: Apache-2.0
#include "planning/step/own_time.h"

#include "base/assert.h"

/* The state of a run as a checkpoint holds it: weights and two moments. */
enum { STATE_FLATS = 3 };

typedef struct machine {
    const ls_calibration *calibration;
    uint32_t threads, ranks;
} machine;

static double work_s(const machine *m, ls_work work, double a, double b, double c)
{
    const double sizes[LS_WORK_AXES_MAX] = {a, b, c};
    return ls_calibration_seconds(m->calibration, m->threads, m->ranks, work, sizes);
}

/* ---- the ops ---- */

/* What a step of the plan is about. */
typedef struct subject {
    const machine *machine;
    const ls_plan *plan;
    const ls_op *op;
    ls_phase phase;
    bool accumulate;
    double rows;
} subject;

/* A product in `pieces` of its inner dimension, which are added up. */
static double cut_product_s(const machine *m, ls_work form, double rows, double columns, double inner,
                            uint32_t pieces)
{
    const double pieces_s = pieces * work_s(m, form, rows, columns, inner / pieces);
    return pieces_s + (pieces > 1 ? (pieces - 1) * work_s(m, LS_WORK_ADD, rows * columns, 0, 0) : 0.0);
}

static double linear_s(const subject *s)
{
    const machine *m = s->machine;
    const ls_op *op = s->op;
    const double in = (double)op->in_features, out = (double)op->out_features;
    switch (s->phase) {
    case LS_PHASE_FORWARD:
        return cut_product_s(m, op->weight_in_out ? LS_WORK_GEMM_NN : LS_WORK_GEMM_NT, s->rows, out, in,
                             op->forward_cut);
    case LS_PHASE_BACKWARD_INPUT:
        return cut_product_s(m, op->weight_in_out ? LS_WORK_GEMM_NT : LS_WORK_GEMM_NN, s->rows, in, out,
                             op->backward_input_cut);
    case LS_PHASE_BACKWARD_WEIGHT:
        break;
    }
    const double product_s =
        work_s(m, LS_WORK_GEMM_TN, op->weight_in_out ? in : out, op->weight_in_out ? out : in, s->rows);
    return product_s + (op->bias != LS_NONE ? work_s(m, LS_WORK_COLUMN_SUMS, s->rows * out, out, 0) : 0.0);
}

/* Chunk by chunk: logits, losses and their gradient, the two gradients of the product. */
static double head_s(const subject *s, double *elementwise_s)
{
    const machine *m = s->machine;
    const double vocab = (double)s->plan->config.vocab, width = (double)s->plan->config.width;
    const double most = (double)s->op->chunk_rows;
    double product_s = 0.0;
    *elementwise_s = 0.0;
    for (double left = s->rows; left > 0.0; left -= most) {
        const double rows = left < most ? left : most;
        product_s += work_s(m, LS_WORK_GEMM_NT, rows, vocab, width);
        *elementwise_s += work_s(m, LS_WORK_CROSS_ENTROPY, rows * vocab, vocab, 0);
        if (s->plan->options.training) {
            product_s += work_s(m, LS_WORK_GEMM_NN, rows, width, vocab);
            product_s += work_s(m, LS_WORK_GEMM_TN, vocab, width, rows);
        }
    }
    return product_s;
}

/* Pairs (query, key) that a window leaves, beside those of plain causal attention. */
static double window_share(int64_t length, int64_t window)
{
    if (window <= 0 || window >= length) {
        return 1.0;
    }
    const double n = (double)length, w = (double)window;
    return (w * (w + 1.0) / 2.0 + (n - w) * w) / (n * (n + 1.0) / 2.0);
}

/* Backward has a tile for each head of each sequence: the last round of tiles may leave threads idle. */
static double rounds(double tiles, uint32_t threads)
{
    const double count = (double)(((int64_t)tiles + threads - 1) / threads);
    return count * threads;
}

static double attention_s(const subject *s)
{
    const ls_model_config *c = &s->plan->config;
    const machine *m = s->machine;
    const double length = (double)s->plan->options.length;
    const double heads = (double)(c->heads * s->plan->options.sequences);
    const double share = window_share(s->plan->options.length, s->op->window);
    if (s->phase == LS_PHASE_FORWARD) {
        return share * heads * work_s(m, LS_WORK_ATTENTION_FORWARD, length, (double)c->head_dim, 0);
    }
    const double combine_s =
        c->kv_heads == c->heads
            ? 0.0
            : 2.0 * work_s(m, LS_WORK_ADD, s->rows * (double)(c->heads * c->head_dim) / 2.0, 0, 0);
    return combine_s + share * rounds(heads, m->threads) *
                           work_s(m, LS_WORK_ATTENTION_BACKWARD, length, (double)c->head_dim, 0);
}

static double norm_s(const subject *s, ls_work forward)
{
    const double width = (double)s->plan->config.width;
    return work_s(s->machine, s->phase == LS_PHASE_FORWARD ? forward : LS_WORK_NORM_BACKWARD, s->rows * width,
                  width, 0);
}

static double qk_norm_s(const subject *s)
{
    const ls_model_config *c = &s->plan->config;
    const ls_work work = s->phase == LS_PHASE_FORWARD ? LS_WORK_NORM_FORWARD : LS_WORK_NORM_BACKWARD;
    const double dim = (double)c->head_dim;
    return work_s(s->machine, work, s->rows * (double)c->heads * dim, dim, 0) +
           work_s(s->machine, work, s->rows * (double)c->kv_heads * dim, dim, 0);
}

static double embedding_s(const subject *s)
{
    const ls_model_config *c = &s->plan->config;
    const machine *m = s->machine;
    const double width = (double)c->width;
    if (s->phase == LS_PHASE_FORWARD) {
        return work_s(m, LS_WORK_EMBEDDING_FORWARD, s->rows * width, width, 0);
    }
    double seconds = work_s(m, LS_WORK_EMBEDDING_BACKWARD, s->rows * width, width, 0);
    if (!s->accumulate && !c->tied) {
        seconds += work_s(m, LS_WORK_FILL, (double)c->vocab * width, 0, 0);
    }
    return seconds;
}

/* Seconds of a step, by term. */
static void add_step(const subject *s, double terms_s[LS_TERM_COUNT])
{
    const machine *m = s->machine;
    const ls_model_config *c = &s->plan->config;
    const bool forward = s->phase == LS_PHASE_FORWARD;
    double elementwise_s = 0.0;
    switch (s->op->kind) {
    case LS_OP_LINEAR:
        terms_s[LS_TERM_MATMUL] += linear_s(s);
        return;
    case LS_OP_HEAD_LOSS:
        terms_s[LS_TERM_MATMUL] += head_s(s, &elementwise_s);
        break;
    case LS_OP_ATTENTION:
        terms_s[LS_TERM_ATTENTION] += attention_s(s);
        return;
    case LS_OP_EMBEDDING:
        elementwise_s = embedding_s(s);
        break;
    case LS_OP_NORM:
        elementwise_s = norm_s(s, LS_WORK_NORM_FORWARD);
        break;
    case LS_OP_ADD_NORM:
        elementwise_s = norm_s(s, LS_WORK_ADD_NORM_FORWARD);
        break;
    case LS_OP_QK_NORM:
        elementwise_s = qk_norm_s(s);
        break;
    case LS_OP_ROTARY:
        elementwise_s =
            work_s(m, LS_WORK_ROTARY, s->rows * (double)((c->heads + c->kv_heads) * c->head_dim), 0, 0);
        break;
    case LS_OP_GELU:
        elementwise_s =
            work_s(m, forward ? LS_WORK_GELU_FORWARD : LS_WORK_GELU_BACKWARD, s->rows * (double)c->ffn, 0, 0);
        break;
    case LS_OP_SWIGLU:
        elementwise_s = work_s(m, forward ? LS_WORK_SWIGLU_FORWARD : LS_WORK_SWIGLU_BACKWARD,
                               s->rows * (double)c->ffn, 0, 0);
        break;
    case LS_OP_KIND_COUNT:
        break;
    }
    terms_s[LS_TERM_ELEMENTWISE] += elementwise_s;
}

static void add_plan_step(const machine *m, const ls_plan *plan, uint32_t step, bool accumulate,
                          double terms_s[LS_TERM_COUNT])
{
    const subject s = {.machine = m,
                       .plan = plan,
                       .op = &plan->ops[plan->steps[step].op],
                       .phase = plan->steps[step].phase,
                       .accumulate = accumulate,
                       .rows = (double)(plan->options.sequences * plan->options.length)};
    add_step(&s, terms_s);
}

double ls_own_plan_step_s(const ls_calibration *calibration, const ls_plan *plan, uint32_t step,
                          uint32_t threads, uint32_t ranks, bool accumulate, ls_term *term_out)
{
    const machine m = {calibration, threads, ranks};
    double terms_s[LS_TERM_COUNT] = {0}, sum_s = 0.0;
    LS_ASSERT(step < plan->step_count);
    add_plan_step(&m, plan, step, accumulate, terms_s);
    *term_out = LS_TERM_FIXED;
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        sum_s += terms_s[term];
        if (*term_out == LS_TERM_FIXED || terms_s[term] > terms_s[*term_out]) {
            *term_out = (ls_term)term;
        }
    }
    return sum_s;
}

/* ---- the step ---- */

/* Leaves of the fullest rank. */
static uint32_t leaves_of_rank(const ls_own_run *run)
{
    return (run->leaves + run->ranks - 1) / run->ranks;
}

/* The inputs of all merges that a rank makes while it computes `leaves` leaves, and how many calls they are: before leaf i + 1 the nodes that
 * stand in line become one. */
static double merged_inputs(uint32_t leaves, double *calls_out)
{
    double inputs = 0.0;
    *calls_out = 0.0;
    for (uint32_t done = 2; done < leaves; done += 2) {
        inputs += 1.0 + __builtin_ctz(done);
        *calls_out += 1.0;
    }
    return inputs;
}

/* Nodes that a rank hands over. */
static uint32_t handed_over(uint32_t leaves)
{
    return 1 + (uint32_t)__builtin_popcount(leaves - 1);
}

static double tree_s(const machine *m, const ls_own_run *run)
{
    const ls_layout *layout = run->plan->layout;
    const uint32_t leaves = leaves_of_rank(run);
    double calls = 0.0;
    const double inputs = merged_inputs(leaves, &calls);
    double seconds = calls > 0.0
                         ? calls * work_s(m, LS_WORK_TREE_SUM, (double)layout->float_count, inputs / calls, 0)
                         : 0.0;
    const double nodes = (double)run->ranks * handed_over(leaves);
    for (uint32_t i = 0; i < layout->bucket_count; i++) {
        seconds += work_s(m, LS_WORK_TREE_SUM, (double)layout->buckets[i].count / run->ranks, nodes, 0);
    }
    return seconds;
}

static double update_s(const machine *m, const ls_own_run *run)
{
    const ls_layout *layout = run->plan->layout;
    double seconds = 0.0;
    for (uint32_t i = 0; i < layout->bucket_count; i++) {
        seconds += work_s(m, LS_WORK_ADAMW, (double)layout->buckets[i].count / run->ranks, 0, 0);
    }
    return seconds;
}

/* Ranks wait for each other when they agree on the sums, begin the update, and end it. */
static double agreeing_s(const machine *m)
{
    enum { MEETINGS = 3, MEETING_BYTES = 64 };
    return m->ranks > 1 ? MEETINGS * ls_calibration_exchange_s(m->calibration, m->ranks, MEETING_BYTES) : 0.0;
}

/* A checkpoint that is written behind the steps costs the copy that the update makes; else all of it is waited for. */
static double stall_s(const machine *m, const ls_own_run *run)
{
    const double floats = STATE_FLATS * (double)run->plan->layout->float_count;
    if (run->saves_behind) {
        return work_s(m, LS_WORK_COPY, floats / m->ranks, 0, 0);
    }
    const double bytes_ps = m->calibration->disk_write_bytes_ps;
    return bytes_ps > 0.0 ? floats * sizeof(float) / bytes_ps : 0.0;
}

void ls_own_time_compute(const ls_calibration *calibration, const ls_own_run *run, ls_own_time *time_out)
{
    LS_ASSERT(run->ranks >= 1 && run->ranks <= run->leaves && run->threads >= 1 && run->micro_batches >= 1);
    const machine m = {calibration, run->threads, run->ranks};
    double first_s[LS_TERM_COUNT] = {0}, later_s[LS_TERM_COUNT] = {0};
    for (uint32_t step = 0; step < run->plan->step_count; step++) {
        add_plan_step(&m, run->plan, step, false, first_s);
        add_plan_step(&m, run->plan, step, true, later_s);
    }
    ls_own_time time = {0};
    const double leaves = leaves_of_rank(run);
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        time.terms_s[term] = leaves * (first_s[term] + (run->micro_batches - 1) * later_s[term]);
    }
    time.terms_s[LS_TERM_DATA] = tree_s(&m, run);
    time.terms_s[LS_TERM_OPTIMIZER] = update_s(&m, run);
    time.terms_s[LS_TERM_FIXED] = agreeing_s(&m);
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        time.step_s += time.terms_s[term];
    }
    const double tokens = (double)(run->plan->options.sequences * run->plan->options.length);
    time.tokens_ps = tokens * run->micro_batches * run->leaves / time.step_s;
    time.checkpoint_stall_s = stall_s(&m, run);
    *time_out = time;
}
