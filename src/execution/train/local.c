// SPDX-License-Identifier: Apache-2.0
#include "execution/train/local.h"

#include "base/assert.h"
#include "comm/transport/tree.h"
#include "compute/kernels/compress.h"
#include "compute/kernels/shape.h"

#include <math.h>
#include <stdlib.h>

/* From the end of a round of one fragment to that of the next. */
static uint64_t span_of(const ls_local *local)
{
    return local->steps / local->fragments;
}

static uint64_t turns_of_span(const ls_local *local)
{
    return span_of(local) * local->workers + (local->delay > 0 ? 2 : 1);
}

ls_local_turn ls_local_turn_at(const ls_local *local, uint64_t turn)
{
    if (local->steps == 0) {
        return (ls_local_turn){.step = turn, .is_first = true};
    }
    const uint64_t steps = span_of(local), turns = turns_of_span(local);
    const uint64_t span = turn / turns, in_span = turn % turns;
    /* turns before the outer gradient is made */
    const uint64_t apart = (steps - local->delay) * local->workers;
    const uint64_t workers = in_span - (in_span > apart), step = workers / local->workers;
    const bool makes = in_span == apart, applies = step == steps;
    if (makes || applies) {
        return (ls_local_turn){.step = span * steps + step - 1,
                               .is_outer = true,
                               .makes = makes,
                               .applies = applies,
                               .fragment = (uint32_t)(span % local->fragments)};
    }
    const uint32_t worker = (uint32_t)(workers % local->workers);
    return (ls_local_turn){.step = span * steps + step,
                           .worker = worker,
                           .begins = step == 0,
                           .mixes = step == 0 && local->delay > 0 && span > 0,
                           .is_first = worker == 0,
                           .fragment = (uint32_t)((span + local->fragments - 1) % local->fragments)};
}

uint64_t ls_local_turns(const ls_local *local, uint64_t step)
{
    if (local->steps == 0) {
        return step;
    }
    const uint64_t steps = span_of(local), in_span = step % steps;
    const bool is_made = local->delay > 0 && in_span >= steps - local->delay;
    return step / steps * turns_of_span(local) + in_span * local->workers + is_made;
}

uint64_t ls_local_adamw_step(const ls_local *local, const ls_local_turn *turn, uint32_t fragment)
{
    if (!local->resets) {
        return turn->step + 1;
    }
    const uint64_t first = (fragment + 1) * span_of(local);
    return (turn->step < first ? turn->step : (turn->step - first) % local->steps) + 1;
}

uint32_t ls_local_fragment_at(const ls_local *local, const ls_layout *layout, int64_t offset)
{
    uint32_t fragment = 0;
    int64_t count, begin = ls_layout_run(layout, local->fragments, 0, &count);
    while (begin + count <= offset) {
        begin = ls_layout_run(layout, local->fragments, ++fragment, &count);
    }
    return fragment;
}

/* The largest power of two below `count`. */
static uint32_t split_of(uint32_t count)
{
    uint32_t left = 1;
    while (2 * left < count) {
        left *= 2;
    }
    return left;
}

static double tree_sum(const double *values, uint32_t count)
{
    if (count == 1) {
        return values[0];
    }
    const uint32_t left = split_of(count);
    return tree_sum(values, left) + tree_sum(values + left, count - left);
}

double ls_local_mean(const double *values, uint32_t workers)
{
    return tree_sum(values, workers) / workers;
}

/* ---- the outer step ---- */

struct ls_outer_sum {
    const ls_state *state;
    ls_compression form;
    uint16_t program[LS_TREE_PROGRAM_MAX];
    ls_tree_sum order; /* of the workers */
    const float *inputs[LS_LEAVES_MAX];
    ls_compressed_term terms[LS_LEAVES_MAX];
};

ls_status ls_outer_sum_create(const ls_state *state, const ls_local *local, ls_outer_sum **sum_out)
{
    const uint32_t workers = state->worker_count;
    LS_ASSERT(workers >= 1 && workers <= LS_LEAVES_MAX);
    ls_outer_sum *sum = calloc(1, sizeof *sum);
    if (!sum) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to add up the outer gradients of %u workers",
                       workers);
    }
    ls_leaf_range each[LS_LEAVES_MAX];
    for (uint32_t i = 0; i < workers; i++) {
        each[i] = (ls_leaf_range){i, 1};
    }
    sum->state = state;
    sum->form = local->form;
    sum->order.program = sum->program;
    sum->order.input_count = workers;
    sum->order.length = ls_tree_program(workers, each, workers, sum->program, &sum->order.depth);
    *sum_out = sum;
    return LS_OK;
}

void ls_outer_sum_destroy(ls_outer_sum *sum)
{
    free(sum);
}

static const uint16_t FIRST[] = {0};
static const ls_tree_sum ONE = {.program = FIRST, .length = 1, .depth = 1, .input_count = 1};

static ls_compressed_term term_of(ls_outer_sum *sum, uint32_t worker, int64_t at)
{
    sum->inputs[worker] = ls_state_worker(sum->state, worker, 0) + at;
    return (ls_compressed_term){
        .sum = &ONE, .inputs = &sum->inputs[worker], .minuend = sum->state->parameters + at};
}

ls_status ls_outer_sum_pack(ls_outer_sum *sum, uint32_t worker, int64_t at, int64_t count,
                            unsigned char *packed_out)
{
    ls_compressed_term term = term_of(sum, worker, at);
    term.packed_out = packed_out;
    const ls_compressed_sum one = {.compression = sum->form, .terms = &term, .order = &ONE};
    LS_TRY(ls_compressed_sum_run(sum->state->queue, &one, count, NULL, NULL));
    return ls_queue_wait(sum->state->queue);
}

ls_status ls_outer_sum_add(ls_outer_sum *sum, int64_t at, int64_t count, const unsigned char *packed,
                           float *out, unsigned char *packed_out)
{
    const uint64_t bytes = ls_compressed_bytes(&sum->form, (uint64_t)count);
    const ls_compressed_term whole = {.packed_out = packed_out};
    for (uint32_t i = 0; i < sum->order.input_count; i++) {
        sum->terms[i] = packed ? (ls_compressed_term){.packed = packed + i * bytes} : term_of(sum, i, at);
    }
    const ls_compressed_sum all = {.compression = sum->form,
                                   .terms = sum->terms,
                                   .order = &sum->order,
                                   .again = sum->form,
                                   .whole = &whole};
    LS_TRY(ls_compressed_sum_run(sum->state->queue, &all, count, out, NULL));
    return ls_queue_wait(sum->state->queue);
}

int64_t ls_outer_share(int64_t count, uint32_t hosts)
{
    return LS_COMPRESSION_BLOCK * ls_ceil_div(ls_ceil_div(count, LS_COMPRESSION_BLOCK), hosts);
}

ls_outer_buffers ls_outer_buffers_of(const ls_local *local, const ls_layout *layout, uint32_t hosts,
                                     uint32_t own)
{
    const int64_t most = ls_layout_largest_run(layout, local->fragments);
    const uint64_t all = ls_compressed_bytes(&local->form, (uint64_t)most);
    const uint64_t piece =
        ls_compressed_bytes(&local->form, (uint64_t)ls_min64(LS_OUTER_PIECE, ls_outer_share(most, hosts)));
    return (ls_outer_buffers){.out = own * (local->delay > 0 ? all : hosts * piece),
                              .in = (hosts > local->workers ? hosts : local->workers) * piece,
                              .sum = piece};
}

uint32_t ls_local_not_finite(const ls_state *state, uint32_t first, uint32_t count)
{
    for (uint32_t worker = first; worker < first + count; worker++) {
        const float *values = ls_state_worker(state, worker, 0);
        for (int64_t i = 0; i < state->layout->float_count; i++) {
            if (!isfinite(values[i])) {
                return worker;
            }
        }
    }
    return state->worker_count;
}

void ls_local_outer(const ls_local *local, float scale, int64_t count, const float *sum, float *shared,
                    float *momentum)
{
    const float mu = local->outer_momentum, lr = local->outer_lr;
    for (int64_t i = 0; i < count; i++) {
        const float g = sum[i] * scale;
        momentum[i] = mu * momentum[i] + g;
        shared[i] -= lr * (g + mu * momentum[i]);
    }
}
