// SPDX-License-Identifier: Apache-2.0
#include "execution/train/local.h"

#include "base/assert.h"

#include <math.h>

static uint64_t turns_of_round(const ls_local *local)
{
    return local->steps * local->workers + 1;
}

ls_local_turn ls_local_turn_at(const ls_local *local, uint64_t turn)
{
    if (local->steps == 0) {
        return (ls_local_turn){.step = turn, .is_first = true};
    }
    const uint64_t round = turn / turns_of_round(local), in_round = turn % turns_of_round(local);
    const uint64_t step = in_round / local->workers;
    if (step == local->steps) {
        return (ls_local_turn){.step = round * local->steps + step - 1, .is_outer = true};
    }
    const uint32_t worker = (uint32_t)(in_round % local->workers);
    return (ls_local_turn){
        .step = round * local->steps + step, .worker = worker, .begins = step == 0, .is_first = worker == 0};
}

uint64_t ls_local_turns(const ls_local *local, uint64_t step)
{
    return local->steps == 0
               ? step
               : step / local->steps * turns_of_round(local) + step % local->steps * local->workers;
}

uint64_t ls_local_adamw_step(const ls_local *local, const ls_local_turn *turn)
{
    return (local->resets ? turn->step % local->steps : turn->step) + 1;
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

enum { PIECE = 256, DEPTH_MAX = 32 }; /* elements; levels of the tree */

typedef struct differences {
    const float *shared, *workers;
    int64_t stride;
    uint32_t not_finite; /* the first worker with such a value; the number of workers: none */
} differences;

/* The node over workers [first, first + count), for n elements from `at`: its right part is added
 * to its left part in out. spare: PIECE elements for each level below. */
static void node(differences *d, uint32_t first, uint32_t count, int64_t at, int64_t n, float *out,
                 float (*spare)[PIECE])
{
    if (count == 1) {
        const float *own = d->workers + first * d->stride + at;
        float check = 0.0f;
        for (int64_t i = 0; i < n; i++) {
            out[i] = d->shared ? d->shared[at + i] - own[i] : own[i];
            check += out[i] * 0.0f;
        }
        if (check != 0.0f || isnan(check)) {
            d->not_finite = first < d->not_finite ? first : d->not_finite;
        }
        return;
    }
    const uint32_t left = split_of(count);
    node(d, first, left, at, n, out, spare + 1);
    node(d, first + left, count - left, at, n, *spare, spare + 1);
    for (int64_t i = 0; i < n; i++) {
        out[i] += (*spare)[i];
    }
}

uint32_t ls_local_differences(const float *shared, const float *workers, int64_t stride,
                              uint32_t worker_count, int64_t count, float *sum_out)
{
    float spare[DEPTH_MAX][PIECE];
    differences d = {.shared = shared, .workers = workers, .stride = stride, .not_finite = worker_count};
    LS_ASSERT(worker_count >= 1);
    for (int64_t at = 0; at < count; at += PIECE) {
        node(&d, 0, worker_count, at, count - at < PIECE ? count - at : PIECE, sum_out + at, spare);
    }
    return d.not_finite;
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
