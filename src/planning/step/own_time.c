// SPDX-License-Identifier: Apache-2.0
#include "planning/step/own_time.h"

#include "base/assert.h"
#include "model/plan_stage.h"

#include <math.h>
#include <string.h>

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

/* Whether a step of the plan is a matrix product, attention, or neither. */
typedef struct subject {
    const machine *machine;
    const ls_plan *plan;
    const ls_op *op;
    ls_phase phase;
    bool accumulate;
    double rows; /* of a piece of the sequences */
} subject;

/* A product in `pieces` of its inner dimension, which are added up. */
static double cut_product_s(const machine *m, ls_work form, double rows, double columns, double inner,
                            uint32_t pieces)
{
    const double pieces_s = pieces * work_s(m, form, rows, columns, inner / pieces);
    return pieces_s + (pieces > 1 ? (pieces - 1) * work_s(m, LS_WORK_ADD, rows * columns, 0, 0) : 0.0);
}

/* The gradient (out, in) of a weight; later micro-batches of a leaf add theirs to the first's. */
static double weight_gradient_s(const subject *s, double out, double in, double rows)
{
    return work_s(s->machine, s->accumulate ? LS_WORK_GEMM_TN_ADD : LS_WORK_GEMM_TN, out, in, rows);
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
        op->weight_in_out ? weight_gradient_s(s, in, out, s->rows) : weight_gradient_s(s, out, in, s->rows);
    return product_s + (op->bias != LS_NONE ? work_s(m, LS_WORK_COLUMN_SUMS, s->rows * out, out, 0) : 0.0);
}

/* Rows of the MLP: with experts, the visits of all tokens. */
static double visits_of(const subject *s)
{
    return s->rows * (double)ls_model_config_mlp_rows(&s->plan->config);
}

/* One product for each expert, on equal shares of the visits. */
static double expert_linear_s(const subject *s)
{
    const double experts = (double)s->plan->config.experts;
    subject share = *s;
    share.rows = fmax(1.0, visits_of(s) / experts);
    return experts * linear_s(&share);
}

/* Two products for each gradient and for the outputs, one of them for each segment. */
static double adapter_s(const subject *s)
{
    const machine *m = s->machine;
    const ls_op *op = s->op;
    const double rank = (double)s->plan->layout->adapter->rank, in = (double)op->in_features;
    const bool forward = s->phase == LS_PHASE_FORWARD, weight = s->phase == LS_PHASE_BACKWARD_WEIGHT;
    double ranks = 0.0, seconds = 0.0;
    for (uint32_t i = 0; i < op->segment_count; i++) {
        const double out = (double)op->segment[i];
        if (!op->segment_adapted[i]) {
            continue;
        }
        ranks += rank;
        seconds += forward ? work_s(m, LS_WORK_GEMM_NT, s->rows, out, rank) : 0.0;
        seconds +=
            weight ? weight_gradient_s(s, out, rank, s->rows) + work_s(m, LS_WORK_GEMM_NN, s->rows, rank, out)
                   : 0.0;
    }
    return seconds + (forward  ? work_s(m, LS_WORK_GEMM_NT, s->rows, ranks, in)
                      : weight ? weight_gradient_s(s, ranks, in, s->rows)
                               : work_s(m, LS_WORK_GEMM_NN, s->rows, in, ranks));
}

/* The products of a chunk; to *elementwise_s the rest of `times` such chunks. */
static double head_chunk_s(const subject *s, double rows, double times, double *elementwise_s)
{
    const machine *m = s->machine;
    const double vocab = (double)s->plan->config.vocab, width = (double)s->plan->config.width;
    double product_s = work_s(m, LS_WORK_GEMM_NT, rows, vocab, width);
    *elementwise_s += times * work_s(m, LS_WORK_CROSS_ENTROPY, rows * vocab, vocab, 0);
    if (s->plan->options.training) {
        const bool is_trained = !s->plan->layout->parameters[s->op->weight].frozen;
        product_s += work_s(m, LS_WORK_GEMM_NN, rows, width, vocab);
        product_s += is_trained ? weight_gradient_s(s, vocab, width, rows) : 0.0;
    }
    return product_s;
}

/* Chunk by chunk: logits, losses and their gradient, then both gradients of the product. There may
 * be very many chunks, all but the last of one size. */
static double head_s(const subject *s, double *elementwise_s)
{
    const double most = (double)s->op->chunk_rows, whole = floor(s->rows / most);
    double product_s = 0.0;
    *elementwise_s = 0.0;
    if (whole > 0.0) {
        product_s = whole * head_chunk_s(s, most, whole, elementwise_s);
    }
    if (s->rows > whole * most) {
        product_s += head_chunk_s(s, s->rows - whole * most, 1.0, elementwise_s);
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

/* Backward has a tile for each head of each sequence: the last round of tiles may leave threads
 * idle. */
static double rounds(double tiles, uint32_t threads)
{
    const double count = (double)(((int64_t)tiles + threads - 1) / threads);
    return count * threads;
}

/* Of the queries of a piece, which have an equal share of the pairs; before it, keys and values of
 * all tokens are brought together, and after it the gradients that all pieces made are added up. */
static double attention_s(const subject *s)
{
    const ls_model_config *c = &s->plan->config;
    const machine *m = s->machine;
    const double length = (double)s->plan->options.length;
    const double heads = (double)(c->heads * s->plan->options.sequences);
    const double share = window_share(s->plan->options.length, s->op->window) / s->plan->options.sequence_cut;
    const double keys = (double)(s->plan->options.sequences * s->plan->context.cols) * length;
    const double keys_s = keys > 0.0 ? work_s(m, LS_WORK_COPY, keys, 0, 0) / s->plan->pieces : 0.0;
    if (s->phase == LS_PHASE_FORWARD) {
        return keys_s + share * heads * work_s(m, LS_WORK_ATTENTION_FORWARD, length, (double)c->head_dim, 0);
    }
    const double sums_s = keys > 0.0 ? work_s(m, LS_WORK_ADD, keys, 0, 0) : 0.0;
    const double combine_s =
        c->kv_heads == c->heads
            ? 0.0
            : 2.0 * work_s(m, LS_WORK_ADD, s->rows * (double)(c->heads * c->head_dim) / 2.0, 0, 0);
    return keys_s + sums_s + combine_s +
           share * rounds(heads, m->threads) *
               work_s(m, LS_WORK_ATTENTION_BACKWARD, length, (double)c->head_dim, 0);
}

static double norm_s(const subject *s, ls_work forward)
{
    const double width = (double)s->plan->config.width;
    const double rows = (double)s->plan->own_rows;
    return work_s(s->machine, s->phase == LS_PHASE_FORWARD ? forward : LS_WORK_NORM_BACKWARD, rows * width,
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
    if (!s->accumulate) { /* once per leaf, and so is the sum with the head's gradient */
        seconds += work_s(m, LS_WORK_FILL, (double)c->vocab * width, 0, 0);
        seconds += c->tied ? work_s(m, LS_WORK_ADD, (double)c->vocab * width, 0, 0) : 0.0;
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
    case LS_OP_GATHER: /* what they exchange is counted by add_plan_step */
    case LS_OP_SCATTER:
    case LS_OP_SUM:
    case LS_OP_TO_EXPERTS:
    case LS_OP_FROM_EXPERTS:
        break;
    case LS_OP_ADD:
    case LS_OP_DROPOUT: /* about as much as an addition of this size */
        elementwise_s = work_s(m, LS_WORK_ADD, s->rows * (double)s->plan->values[s->op->out[0]].cols, 0, 0);
        break;
    case LS_OP_ADAPTER:
        terms_s[LS_TERM_MATMUL] += adapter_s(s);
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
                               visits_of(s) * (double)ls_model_config_mlp_ffn(c), 0, 0);
        break;
    case LS_OP_EXPERT_LINEAR:
        terms_s[LS_TERM_MATMUL] += expert_linear_s(s);
        return;
    case LS_OP_DISPATCH: /* each moves or adds the rows of all visits once */
    case LS_OP_COMBINE:
        elementwise_s = work_s(m, LS_WORK_ADD, visits_of(s) * (double)c->width, 0, 0);
        break;
    case LS_OP_ROUTE:
        elementwise_s = work_s(m, LS_WORK_CROSS_ENTROPY, s->rows * (double)c->experts, (double)c->experts, 0);
        break;
    case LS_OP_KIND_COUNT:
        break;
    }
    terms_s[LS_TERM_ELEMENTWISE] += elementwise_s;
}

static void add_times(double to_s[LS_TERM_COUNT], const double terms_s[LS_TERM_COUNT], double times)
{
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        to_s[term] += times * terms_s[term];
    }
}

static bool is_crowded(const machine *m)
{
    return m->ranks * m->threads > m->calibration->cores;
}

/* `members` of the ranks wait for each other. Where ranks share cores, those that are waited for
 * must be given one first, as when all meet. */
static double meeting_s(const machine *m, uint32_t members)
{
    enum { MEETING_BYTES = 64 };
    return ls_calibration_exchange_s(m->calibration, is_crowded(m) ? m->ranks : members, MEETING_BYTES);
}

/* Members of a crew copy what they give into shared memory, meet, and take what they need; of each
 * piece of the sequences apart. */
static double crew_exchange_s(const machine *m, uint32_t degree, double bytes, uint32_t pieces)
{
    return 2.0 * work_s(m, LS_WORK_COPY, bytes / sizeof(float), 0, 0) + pieces * meeting_s(m, degree);
}

static void add_plan_step(const machine *m, const ls_plan *plan, uint32_t step, bool accumulate,
                          double terms_s[LS_TERM_COUNT])
{
    const subject s = {.machine = m,
                       .plan = plan,
                       .op = &plan->ops[plan->steps[step].op],
                       .phase = plan->steps[step].phase,
                       .accumulate = accumulate,
                       .rows = (double)plan->rows};
    const ls_plan_options *o = &plan->options;
    const double tensor_bytes = (double)(ls_plan_exchanged_floats(plan, step) * sizeof(float));
    const double context_bytes = (double)(ls_plan_context_floats(plan, step) * sizeof(float));
    /* of each member, on average */
    const double crossing = visits_of(&s) * (o->expert_degree - 1) / o->expert_degree;
    const double visit_bytes = (double)(ls_plan_visit_floats(plan, step, (uint64_t)crossing) * sizeof(float));
    double piece_s[LS_TERM_COUNT] = {0};
    add_step(&s, piece_s);
    add_times(terms_s, piece_s, plan->pieces);
    if (tensor_bytes > 0.0) {
        terms_s[LS_TERM_TENSOR] += crew_exchange_s(m, o->tensor_degree, tensor_bytes, plan->pieces);
    }
    if (context_bytes > 0.0) {
        terms_s[LS_TERM_CONTEXT] +=
            crew_exchange_s(m, o->context_degree, context_bytes * o->context_degree, 1);
    }
    if (visit_bytes > 0.0) {
        terms_s[LS_TERM_TENSOR] += ls_calibration_exchange_s(m->calibration, o->expert_degree, visit_bytes);
    }
}

double ls_own_plan_step_s(const ls_calibration *calibration, const ls_plan *plan, uint32_t step,
                          uint32_t threads, bool accumulate, ls_term *term_out)
{
    const machine m = {calibration, threads, 1};
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

/* Ranks that compute a leaf together, and how many such groups there are. */
static uint32_t crew_of(const ls_own_run *run)
{
    const ls_plan_options *o = &run->plan->options;
    return o->tensor_degree * o->context_degree * (run->pipeline ? run->pipeline->stages : 1);
}

static uint32_t crews_of(const ls_own_run *run)
{
    return run->ranks / crew_of(run);
}

/* Leaves of the fullest rank. */
static uint32_t leaves_of_rank(const ls_own_run *run)
{
    return (run->leaves + crews_of(run) - 1) / crews_of(run);
}

/* The inputs of all merges that a rank makes while it computes `leaves` leaves, and the number of
 * calls: before leaf i + 1 the waiting nodes become one. */
static double merged_inputs(uint32_t leaves, double *calls_out)
{
    const uint32_t calls = (leaves - 1) / 2; /* before leaf 2 i, 2 + (factors of two in i) nodes */
    *calls_out = calls;
    return 3.0 * calls - __builtin_popcount(calls);
}

/* Nodes that a rank hands over. */
static uint32_t handed_over(uint32_t leaves)
{
    return 1 + (uint32_t)__builtin_popcount(leaves - 1);
}

/* Work on the rank's part of each bucket; those of layers that are alike have one size. */
static double buckets_s(const machine *m, const ls_own_run *run, ls_work work, double inputs)
{
    const ls_layout *layout = run->plan->layout;
    double seconds = 0.0, bucket_s = 0.0;
    for (uint32_t i = 0; i < layout->bucket_count; i++) {
        if (i == 0 || layout->buckets[i].count != layout->buckets[i - 1].count) {
            bucket_s = work_s(m, work, (double)layout->buckets[i].count / run->ranks, inputs, 0);
        }
        seconds += bucket_s;
    }
    return seconds;
}

static double tree_s(const machine *m, const ls_own_run *run)
{
    const uint32_t leaves = leaves_of_rank(run), pieces = run->plan->options.sequence_cut;
    const double share = (double)run->plan->layout->float_count / crew_of(run);
    double calls = 0.0;
    const double inputs = merged_inputs(leaves, &calls);
    double seconds = calls > 0.0 ? calls * work_s(m, LS_WORK_TREE_SUM, share, inputs / calls, 0) : 0.0;
    seconds += pieces > 1 ? leaves * work_s(m, LS_WORK_TREE_SUM, share, pieces, 0) : 0.0;
    const double nodes = (double)crews_of(run) * handed_over(leaves);
    return seconds + buckets_s(m, run, LS_WORK_TREE_SUM, nodes);
}

/* Parameters and both moments are hashed after an update, and before the next one. */
static double guard_s(const machine *m, const ls_own_run *run)
{
    const double share = (double)run->plan->layout->float_count / run->ranks;
    return run->hash_every_steps == 0
               ? 0.0
               : 2.0 * STATE_FLATS * work_s(m, LS_WORK_HASH, share, 0, 0) / (double)run->hash_every_steps;
}

static double update_s(const machine *m, const ls_own_run *run)
{
    return buckets_s(m, run, LS_WORK_ADAMW, 0) + guard_s(m, run);
}

/* Ranks wait for each other when they agree on the sums, begin the update, and end it. */
static double agreeing_s(const machine *m)
{
    enum { MEETINGS = 3 };
    return m->ranks > 1 ? MEETINGS * meeting_s(m, m->ranks) : 0.0;
}

/* A checkpoint written in the background costs the copy that the update makes; otherwise training
 * waits for all of it. */
static double stall_s(const machine *m, const ls_own_run *run)
{
    const double floats = STATE_FLATS * (double)run->plan->layout->float_count;
    if (run->saves_behind) {
        return work_s(m, LS_WORK_COPY, floats / m->ranks, 0, 0);
    }
    const double bytes_ps = m->calibration->disk_write_bytes_ps;
    return bytes_ps > 0.0 ? floats * sizeof(float) / bytes_ps : 0.0;
}

/* A step that was timed, and its times: most layers have the same. */
typedef struct seen_step {
    const ls_op *op;
    ls_phase phase;
    double first_s[LS_TERM_COUNT], later_s[LS_TERM_COUNT];
} seen_step;

enum { SEEN_MAX = 64 };

static bool takes_as_long(const seen_step *seen, const ls_op *op, ls_phase phase)
{
    const ls_op *a = seen->op;
    return a->kind == op->kind && seen->phase == phase && a->in_features == op->in_features &&
           a->out_features == op->out_features && a->weight_in_out == op->weight_in_out &&
           (a->bias == LS_NONE) == (op->bias == LS_NONE) && a->forward_cut == op->forward_cut &&
           a->backward_input_cut == op->backward_input_cut && a->window == op->window &&
           a->chunk_rows == op->chunk_rows && a->alike == op->alike;
}

/* The time of the plan's steps for a leaf's first micro-batch, and for each later one, which adds
 * its gradients to the first's. */
static void add_micro_batches(const machine *m, const ls_own_run *run, double first_s[LS_TERM_COUNT],
                              double later_s[LS_TERM_COUNT])
{
    seen_step seen[SEEN_MAX];
    uint32_t count = 0;
    const ls_plan *plan = run->plan;
    for (uint32_t step = 0; step < plan->step_count; step++) {
        const ls_op *op = &plan->ops[plan->steps[step].op];
        const ls_phase phase = plan->steps[step].phase;
        uint32_t at = 0;
        while (at < count && !takes_as_long(&seen[at], op, phase)) {
            at++;
        }
        if (at == count) {
            at = count < SEEN_MAX ? count++ : SEEN_MAX - 1;
            seen[at] = (seen_step){.op = op, .phase = phase};
            add_plan_step(m, plan, step, false, seen[at].first_s);
            add_plan_step(m, plan, step, true, seen[at].later_s);
        }
        const double times =
            op->layer == LS_OWN_MIDDLE_LAYER && run->middle_layers > 1 ? run->middle_layers : 1;
        add_times(first_s, seen[at].first_s, times);
        add_times(later_s, seen[at].later_s, times);
    }
}

/* ---- stages ---- */

/* What a stage does for one micro-batch, by pass and term. */
typedef struct stage_work {
    double pass_s[LS_PIPELINE_BACKWARD_WEIGHT + 1], terms_s[LS_TERM_COUNT];
} stage_work;

static ls_pipeline_pass pass_of(const ls_plan *plan, uint32_t step)
{
    return step < plan->forward_steps                            ? LS_PIPELINE_FORWARD
           : plan->steps[step].phase == LS_PHASE_BACKWARD_WEIGHT ? LS_PIPELINE_BACKWARD_WEIGHT
                                                                 : LS_PIPELINE_BACKWARD_INPUT;
}

/* The run of layers that a step belongs to; the embedding is in the first, the head in the last. */
static uint32_t run_of(const ls_plan *plan, const uint32_t *first, uint32_t runs, uint32_t step)
{
    const ls_op *op = &plan->ops[plan->steps[step].op];
    uint32_t run = op->kind == LS_OP_EMBEDDING ? 0 : runs - 1;
    while (op->layer >= 0 && first[run] > (uint32_t)op->layer) {
        run--;
    }
    return run;
}

static void add_work(stage_work *work, ls_pipeline_pass pass, const double terms_s[LS_TERM_COUNT])
{
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        work->pass_s[pass] += terms_s[term];
        work->terms_s[term] += terms_s[term];
    }
}

/* Each run but the last sends the stream to the next one, which receives it, and gradients come
 * back. Both sides copy. */
static void add_copies(const machine *m, const ls_own_run *run, stage_work *works)
{
    const uint32_t stages = run->pipeline->stages, runs = stages * run->pipeline->chunks;
    const ls_plan *plan = run->plan;
    double terms_s[LS_TERM_COUNT] = {0};
    terms_s[LS_TERM_PIPELINE] =
        work_s(m, LS_WORK_COPY, (double)(plan->own_rows * plan->pieces * plan->config.width), 0, 0);
    for (uint32_t r = 0; r + 1 < runs; r++) {
        add_work(&works[r % stages], LS_PIPELINE_FORWARD, terms_s);
        add_work(&works[r % stages], LS_PIPELINE_BACKWARD_INPUT, terms_s);
        add_work(&works[(r + 1) % stages], LS_PIPELINE_FORWARD, terms_s);
        add_work(&works[(r + 1) % stages], LS_PIPELINE_BACKWARD_INPUT, terms_s);
    }
}

static ls_status find_works(const machine *m, const ls_own_run *run, stage_work *works)
{
    const ls_plan *plan = run->plan;
    const uint32_t stages = run->pipeline->stages, runs = stages * run->pipeline->chunks;
    uint32_t *first = ls_arena_new(run->scratch, uint32_t, runs + 1);
    LS_TRY(ls_plan_cut_layers(run->scratch, run->whole ? run->whole : plan, runs, first));
    for (uint32_t step = 0; step < plan->step_count; step++) {
        double terms_s[LS_TERM_COUNT] = {0};
        add_plan_step(m, plan, step, true, terms_s);
        add_work(&works[run_of(plan, first, runs, step) % stages], pass_of(plan, step), terms_s);
    }
    add_copies(m, run, works);
    return LS_OK;
}

/* The machine for `ranks` that compute: never more than have a core each. */
static machine uncrowded(const machine *m, uint32_t ranks)
{
    const uint32_t fit = m->calibration->cores / m->threads;
    return (machine){m->calibration, m->threads, ranks < fit || fit == 0 ? ranks : fit};
}

/* A leaf, as the stages of `crews` follow their lists. */
static void add_stages(const machine *crowded, const ls_own_run *run, uint32_t crews,
                       double leaf_s[LS_TERM_COUNT])
{
    const uint32_t stages = run->pipeline->stages, ranks = crews * crew_of(run);
    const machine alone = uncrowded(crowded, ranks), *m = &alone;
    stage_work *works = ls_arena_new(run->scratch, stage_work, stages);
    ls_pipeline_costs *costs = ls_arena_new(run->scratch, ls_pipeline_costs, stages);
    LS_ASSERT(run->pipeline->micro_batches == run->micro_batches && run->middle_layers <= 1);
    const ls_status status = find_works(m, run, works);
    LS_ASSERT(status == LS_OK && "more stages than layers");
    uint32_t fullest = 0;
    double most_s = 0.0;
    for (uint32_t s = 0; s < stages; s++) {
        const double *pass_s = works[s].pass_s;
        costs[s] = (ls_pipeline_costs){.forward_s = pass_s[LS_PIPELINE_FORWARD],
                                       .input_s = pass_s[LS_PIPELINE_BACKWARD_INPUT],
                                       .weight_s = pass_s[LS_PIPELINE_BACKWARD_WEIGHT]};
        const double all_s = costs[s].forward_s + costs[s].input_s + costs[s].weight_s;
        fullest = all_s > most_s ? s : fullest;
        most_s = all_s > most_s ? all_s : most_s;
    }
    add_times(leaf_s, works[fullest].terms_s, run->micro_batches);
    /* of this crew, for a member of each stage */
    const double cores = (double)m->ranks * stages / ranks;
    leaf_s[LS_TERM_BUBBLE] += ls_pipeline_run(run->scratch, run->pipeline, costs, cores).idle_s;
}

/* A leaf of each of `crews` at once. */
static void add_leaf(const ls_calibration *calibration, const ls_own_run *run, uint32_t crews,
                     double leaf_s[LS_TERM_COUNT])
{
    const machine m = {calibration, run->threads, crews * crew_of(run)};
    double later_s[LS_TERM_COUNT] = {0};
    if (run->pipeline) {
        add_stages(&m, run, crews, leaf_s);
        return;
    }
    add_micro_batches(&m, run, leaf_s, later_s);
    add_times(leaf_s, later_s, run->micro_batches - 1);
}

void ls_own_time_compute(const ls_calibration *calibration, const ls_own_run *run, ls_own_time *time_out)
{
    LS_ASSERT(run->ranks >= 1 && crews_of(run) >= 1 && crews_of(run) <= run->leaves);
    LS_ASSERT(run->threads >= 1 && run->micro_batches >= 1);
    const machine m = {calibration, run->threads, run->ranks};
    const uint32_t crews = crews_of(run), more = run->leaves % crews;
    double leaf_s[LS_TERM_COUNT] = {0};
    ls_own_time time = {0};
    add_leaf(calibration, run, crews, leaf_s);
    add_times(time.terms_s, leaf_s, run->leaves / crews);
    if (more > 0) { /* of these the others have no more, and leave them their cores */
        add_leaf(calibration, run, more, time.terms_s);
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

/* ---- in words ---- */

static const char *const op_names[LS_OP_KIND_COUNT] = {[LS_OP_EMBEDDING] = "embedding",
                                                       [LS_OP_NORM] = "norm",
                                                       [LS_OP_ADD_NORM] = "add and norm",
                                                       [LS_OP_LINEAR] = "linear",
                                                       [LS_OP_QK_NORM] = "norm of queries and keys",
                                                       [LS_OP_ROTARY] = "rotary",
                                                       [LS_OP_ATTENTION] = "attention",
                                                       [LS_OP_GELU] = "gelu",
                                                       [LS_OP_SWIGLU] = "swiglu",
                                                       [LS_OP_HEAD_LOSS] = "head and loss",
                                                       [LS_OP_ADAPTER] = "adapter",
                                                       [LS_OP_DROPOUT] = "dropout",
                                                       [LS_OP_ADD] = "add",
                                                       [LS_OP_GATHER] = "gather",
                                                       [LS_OP_SCATTER] = "scatter",
                                                       [LS_OP_SUM] = "sum of visits",
                                                       [LS_OP_TO_EXPERTS] = "to experts",
                                                       [LS_OP_FROM_EXPERTS] = "from experts"};

/* Explains a term for a later micro-batch: calls and seconds of each kind of op, forward and
 * backward. */
static void explain_ops(const machine *m, const ls_plan *plan, ls_term term, ls_text *text)
{
    for (int kind = 0; kind < LS_OP_KIND_COUNT; kind++) {
        for (int backward = 0; backward < 2; backward++) {
            double terms_s[LS_TERM_COUNT] = {0};
            uint32_t calls = 0;
            for (uint32_t step = 0; step < plan->step_count; step++) {
                const bool is_backward = plan->steps[step].phase != LS_PHASE_FORWARD;
                if (plan->ops[plan->steps[step].op].kind == (ls_op_kind)kind &&
                    is_backward == (backward == 1)) {
                    add_plan_step(m, plan, step, true, terms_s);
                    calls++;
                }
            }
            if (terms_s[term] > 0.0) {
                ls_text_printf(text, "  %-8s %-24s %4u times, together %.6g s\n",
                               backward ? "backward" : "forward", op_names[kind], calls, terms_s[term]);
            }
        }
    }
}

static void explain_micro_batches(const machine *m, const ls_own_run *run, ls_term term, ls_text *text)
{
    double first_s[LS_TERM_COUNT] = {0}, later_s[LS_TERM_COUNT] = {0};
    const ls_plan_options *options = &run->plan->options;
    add_micro_batches(m, run, first_s, later_s);
    ls_text_printf(text,
                   "kernels of the op plan, with the times that `lockstep calibrate` measured, for a "
                   "micro-batch of %lld sequences of %lld tokens on %u ranks of %u threads:\n",
                   (long long)options->sequences, (long long)options->length, run->ranks, run->threads);
    explain_ops(m, run->plan, term, text);
    const uint32_t crews = crews_of(run), more = run->leaves % crews;
    ls_text_printf(text,
                   "leaves per rank x (first micro-batch + (micro-batches per leaf - 1) x later micro-batch, "
                   "which adds to the gradients)\n%u x (%.6g s + (%u - 1) x %.6g s)\n",
                   run->leaves / crews, first_s[term], run->micro_batches, later_s[term]);
    if (more > 0) {
        double last_s[LS_TERM_COUNT] = {0};
        add_leaf(m->calibration, run, more, last_s);
        ls_text_printf(text,
                       "+ %.6g s for the leaf that %u rank%s more than the others, which are idle then\n",
                       last_s[term], more, more == 1 ? " has" : "s have");
    }
}

bool ls_own_time_explain(const ls_calibration *calibration, const ls_own_run *run, const char *name,
                         ls_text *text)
{
    const machine m = {calibration, run->threads, run->ranks};
    int term = 0;
    while (term < LS_TERM_COUNT && strcmp(name, ls_term_name((ls_term)term)) != 0) {
        term++;
    }
    if (term == LS_TERM_COUNT) {
        return false;
    }
    ls_own_time time;
    ls_own_time_compute(calibration, run, &time);
    switch ((ls_term)term) {
    case LS_TERM_MATMUL:
    case LS_TERM_ATTENTION:
    case LS_TERM_ELEMENTWISE:
        explain_micro_batches(&m, run, (ls_term)term, text);
        break;
    case LS_TERM_DATA:
        ls_text_printf(
            text,
            "%u leaves on %u ranks: leaves are merged first; then the %u nodes that each rank hands over are "
            "added up bucket by bucket, together with the squares for the norm; as measured\n",
            run->leaves, run->ranks, handed_over(leaves_of_rank(run)));
        break;
    case LS_TERM_OPTIMIZER:
        ls_text_printf(text,
                       "AdamW over %.6g million parameters / %u ranks, %u buckets, as measured; the check of "
                       "the state for silent data corruption takes %.6g s of it (train.hash_every_steps)\n",
                       1e-6 * (double)run->plan->layout->float_count, run->ranks,
                       run->plan->layout->bucket_count, guard_s(&m, run));
        break;
    case LS_TERM_FIXED:
        ls_text_append(
            text, "the ranks agree three times per step, as measured; a single rank needs no agreement\n");
        break;
    default:
        ls_text_append(
            text,
            "a single machine that runs the op plan has no such term: its time is part of the other terms\n");
        break;
    }
    ls_text_printf(text, "= %.6g s of a step of %.6g s, %.1f %%\n", time.terms_s[term], time.step_s,
                   100.0 * time.terms_s[term] / time.step_s);
    return true;
}
