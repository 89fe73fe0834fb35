// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/local_hosts.h"

#include "comm/transport/tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 15, /* floats of each rank's interval that are exchanged at a time */
    NUMBERS = 3,     /* of a worker's step: loss, norm, tokens */
};

struct ls_local_hosts {
    ls_comm *comm;
    const ls_state *state;
    uint32_t rank, ranks, workers;
    ls_leaf_range own; /* workers */
    float *out, *in, *sums;
    double *numbers; /* NUMBERS of each worker, and whether to stop */
    uint64_t *counts;
};

static ls_leaf_range workers_of(const ls_local_hosts *h, uint32_t rank)
{
    return ls_leaves_of_rank(h->workers, h->ranks, rank);
}

ls_status ls_local_hosts_create(ls_comm *comm, const ls_state *state, ls_local_hosts **hosts_out)
{
    ls_local_hosts *h = calloc(1, sizeof *h);
    if (h) {
        *h = (ls_local_hosts){.comm = comm,
                              .state = state,
                              .rank = ls_comm_rank(comm),
                              .ranks = ls_comm_size(comm),
                              .workers = state->worker_count};
        h->own = workers_of(h, h->rank);
        const size_t ranks = h->ranks, workers = h->workers;
        h->out = calloc(ranks * h->own.count * PIECE, sizeof *h->out);
        h->in = calloc(workers * PIECE, sizeof *h->in);
        h->sums = calloc((ranks + 1) * PIECE, sizeof *h->sums);
        h->numbers = calloc(NUMBERS * workers + 1, sizeof *h->numbers);
        h->counts = calloc(4 * ranks, sizeof *h->counts);
    }
    if (!h || !h->out || !h->in || !h->sums || !h->numbers || !h->counts) {
        ls_local_hosts_destroy(h);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the outer steps of %u workers on several hosts",
                       state->worker_count);
    }
    *hosts_out = h;
    return LS_OK;
}

void ls_local_hosts_destroy(ls_local_hosts *h)
{
    if (h) {
        free(h->out);
        free(h->in);
        free(h->sums);
        free(h->numbers);
        free(h->counts);
        free(h);
    }
}

bool ls_local_hosts_has(const ls_local_hosts *h, uint32_t worker)
{
    return worker >= h->own.first && worker < h->own.first + h->own.count;
}

/* ---- the numbers of a step ---- */

void ls_local_hosts_note(ls_local_hosts *h, uint32_t worker, const ls_step_result *result)
{
    h->numbers[worker] = (double)result->loss;
    h->numbers[h->workers + worker] = result->grad_norm;
    h->numbers[2 * h->workers + worker] = (double)result->tokens;
}

/* Only one rank has a number of a worker. The others have zero, so that the sum of the bits as
 * whole numbers is that number. */
ls_status ls_local_hosts_end_step(ls_local_hosts *h, ls_step_result *result, bool *stop)
{
    const uint32_t workers = h->workers;
    const uint64_t count = (uint64_t)NUMBERS * workers + 1;
    int64_t stops = *stop;
    memcpy(&h->numbers[count - 1], &stops, sizeof stops);
    LS_TRY(ls_comm_all_reduce(h->comm, h->numbers, h->numbers, count, LS_I64, LS_COMM_SUM, NULL));
    memcpy(&stops, &h->numbers[count - 1], sizeof stops);
    double tokens = 0.0;
    for (uint32_t i = 0; i < workers; i++) {
        tokens += h->numbers[2 * workers + i];
    }
    result->loss = (float)ls_local_mean(h->numbers, workers);
    result->grad_norm = ls_local_mean(h->numbers + workers, workers);
    result->tokens = (uint64_t)tokens;
    *stop = stops > 0;
    memset(h->numbers, 0, count * sizeof *h->numbers);
    return LS_OK;
}

/* ---- the outer step ---- */

/* Where rank `rank` has its part of the piece that begins at `base`: `each` floats, fewer or none
 * at the end of the buffers. */
static int64_t part_of(const ls_local_hosts *h, int64_t base, int64_t each, uint32_t rank, int64_t *count_out)
{
    const int64_t at = base + rank * each, left = h->state->layout->float_count - at;
    *count_out = left < 0 ? 0 : left < each ? left : each;
    return at;
}

/* Sends the differences of this rank's workers, and receives those of all workers for its own
 * part. */
static ls_status swap_differences(ls_local_hosts *h, int64_t base, int64_t each, uint32_t *not_finite)
{
    const ls_state *state = h->state;
    uint64_t *const sent = h->counts, *const from = sent + h->ranks, *const got = from + h->ranks,
                    *const to = got + h->ranks;
    for (uint32_t q = 0; q < h->ranks; q++) {
        int64_t count;
        const int64_t at = part_of(h, base, each, q, &count);
        float *out = h->out + (int64_t)q * h->own.count * each;
        for (uint32_t i = 0; i < h->own.count; i++) {
            const float *own = ls_state_worker(state, h->own.first + i, 0);
            if (ls_local_differences(state->parameters + at, own + at, 0, 1, count, out + i * each) == 0 &&
                h->own.first + i < *not_finite) {
                *not_finite = h->own.first + i;
            }
        }
        const ls_leaf_range theirs = workers_of(h, q);
        sent[q] = (uint64_t)(h->own.count * each);
        from[q] = q * sent[q];
        got[q] = (uint64_t)(theirs.count * each);
        to[q] = (uint64_t)(theirs.first * each);
    }
    const ls_comm_blocks blocks = {sent, from, got, to};
    return ls_comm_all_to_all_blocks(h->comm, h->out, h->in, &blocks, LS_F32, NULL);
}

static ls_status add_piece(ls_local_hosts *h, int64_t base, int64_t each, float *sum, uint32_t *not_finite)
{
    LS_TRY(swap_differences(h, base, each, not_finite));
    (void)ls_local_differences(NULL, h->in, each, h->workers, each, h->sums);
    float *all = h->sums + PIECE;
    LS_TRY(ls_comm_all_gather(h->comm, h->sums, all, (uint64_t)each, LS_F32, NULL));
    for (uint32_t q = 0; q < h->ranks; q++) {
        int64_t count;
        const int64_t at = part_of(h, base, each, q, &count);
        memcpy(sum + at, all + q * each, (size_t)count * sizeof *sum);
    }
    return LS_OK;
}

ls_status ls_local_hosts_add(void *context, float *sum, uint32_t *not_finite_out)
{
    ls_local_hosts *h = context;
    const int64_t floats = h->state->layout->float_count;
    uint32_t not_finite = h->workers;
    for (int64_t base = 0; base < floats; base += (int64_t)h->ranks * PIECE) {
        const int64_t left = (floats - base + h->ranks - 1) / h->ranks;
        LS_TRY(add_piece(h, base, left < PIECE ? left : PIECE, sum, &not_finite));
    }
    int64_t first = not_finite;
    LS_TRY(ls_comm_all_reduce(h->comm, &first, &first, 1, LS_I64, LS_COMM_MIN, NULL));
    *not_finite_out = (uint32_t)first;
    return LS_OK;
}

/* ---- between steps ---- */

/* Moves a worker's parameters and moments between the first host and its own. */
static ls_status move_worker(ls_local_hosts *h, uint32_t worker, bool back)
{
    const uint64_t floats = (uint64_t)h->state->layout->float_count;
    uint32_t owner = 0;
    while (worker >= workers_of(h, owner).first + workers_of(h, owner).count) {
        owner++;
    }
    if (owner == 0) {
        return LS_OK;
    }
    const uint32_t source = back ? owner : 0, target = back ? 0 : owner;
    for (uint32_t flat = 0; flat < 3; flat++) {
        float *own = ls_state_worker(h->state, worker, flat);
        memset(h->counts, 0, 4 * h->ranks * sizeof *h->counts);
        h->counts[target] = h->rank == source ? floats : 0;
        h->counts[2 * h->ranks + source] = h->rank == target ? floats : 0;
        const ls_comm_blocks blocks = {h->counts, h->counts + h->ranks, h->counts + 2 * h->ranks,
                                       h->counts + 3 * h->ranks};
        LS_TRY(ls_comm_all_to_all_blocks(h->comm, own, own, &blocks, LS_F32, NULL));
    }
    return LS_OK;
}

ls_status ls_local_hosts_distribute(ls_local_hosts *h)
{
    const ls_state *state = h->state;
    const uint64_t floats = (uint64_t)state->layout->float_count;
    LS_TRY(ls_comm_broadcast(h->comm, state->parameters, floats, LS_F32, 0, NULL));
    LS_TRY(ls_comm_broadcast(h->comm, state->m, floats, LS_F32, 0, NULL));
    for (uint32_t worker = 0; worker < h->workers; worker++) {
        LS_TRY(move_worker(h, worker, false));
    }
    return LS_OK;
}

ls_status ls_local_hosts_gather(ls_local_hosts *h)
{
    for (uint32_t worker = 0; worker < h->workers; worker++) {
        LS_TRY(move_worker(h, worker, true));
    }
    return LS_OK;
}
