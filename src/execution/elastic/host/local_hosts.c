// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/local_hosts.h"

#include "comm/transport/tree.h"
#include "compute/kernels/compress.h"
#include "compute/kernels/shape.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 18, /* floats of each rank's share that are exchanged at a time */
    NUMBERS = 3,     /* of a worker's step: loss, norm, tokens */
};

struct ls_local_hosts {
    ls_comm *comm;
    const ls_state *state;
    uint32_t rank, ranks, workers;
    ls_leaf_range own; /* workers */
    ls_compression form;
    ls_outer_sum *sum;
    int64_t share; /* floats that a rank adds up, the last ones fewer: whole blocks */
    unsigned char *out, *in, *own_sum;
    double *numbers; /* NUMBERS of each worker, and whether to stop */
    uint64_t *counts;
    uint64_t sent_bytes;
};

static ls_leaf_range workers_of(const ls_local_hosts *h, uint32_t rank)
{
    return ls_leaves_of_rank(h->workers, h->ranks, rank);
}

static ls_status alloc(ls_local_hosts *h)
{
    const ls_compression whole = {.kind = LS_COMPRESSION_NONE}; /* the largest form */
    const size_t piece = ls_compressed_bytes(&whole, (uint64_t)ls_min64(PIECE, h->share));
    const size_t ranks = h->ranks, workers = h->workers;
    h->out = malloc(ranks * h->own.count * piece);
    h->in = malloc((ranks > workers ? ranks : workers) * piece);
    h->own_sum = malloc(piece);
    h->numbers = calloc(NUMBERS * workers + 1, sizeof *h->numbers);
    h->counts = calloc(4 * ranks, sizeof *h->counts);
    return h->out && h->in && h->own_sum && h->numbers && h->counts
               ? LS_OK
               : ls_fail(LS_ERR_MEMORY,
                         "not enough memory for the outer steps of %zu workers on several hosts", workers);
}

ls_status ls_local_hosts_create(ls_comm *comm, const ls_state *state, const ls_local *local,
                                ls_local_hosts **hosts_out)
{
    ls_local_hosts *h = calloc(1, sizeof *h);
    if (!h) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for local steps on several hosts");
    }
    *h = (ls_local_hosts){.comm = comm,
                          .state = state,
                          .form = local->form,
                          .rank = ls_comm_rank(comm),
                          .ranks = ls_comm_size(comm),
                          .workers = state->worker_count};
    const int64_t blocks = ls_ceil_div(state->layout->float_count, LS_COMPRESSION_BLOCK);
    h->own = workers_of(h, h->rank);
    h->share = LS_COMPRESSION_BLOCK * ls_ceil_div(blocks, h->ranks);
    ls_status status = alloc(h);
    if (status == LS_OK) {
        status = ls_outer_sum_create(state, local, &h->sum);
    }
    if (status != LS_OK) {
        ls_local_hosts_destroy(h);
        return status;
    }
    *hosts_out = h;
    return LS_OK;
}

void ls_local_hosts_destroy(ls_local_hosts *h)
{
    if (h) {
        ls_outer_sum_destroy(h->sum);
        free(h->out);
        free(h->in);
        free(h->own_sum);
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

/* Where rank `rank` has piece `piece` of its share of the parameters: PIECE floats, fewer or none
 * at the end. */
static int64_t part_of(const ls_local_hosts *h, int64_t piece, uint32_t rank, int64_t *count_out)
{
    const int64_t begin = rank * h->share, at = begin + piece * PIECE;
    const int64_t past = ls_min64(begin + h->share, h->state->layout->float_count);
    *count_out = at >= past ? 0 : ls_min64(past - at, PIECE);
    return at;
}

static uint64_t bytes_of(const ls_local_hosts *h, int64_t count)
{
    return ls_compressed_bytes(&h->form, (uint64_t)count);
}

static ls_status swap(ls_local_hosts *h, const unsigned char *out, unsigned char *in)
{
    const ls_comm_blocks blocks = {h->counts, h->counts + h->ranks, h->counts + 2 * h->ranks,
                                   h->counts + 3 * h->ranks};
    for (uint32_t q = 0; q < h->ranks; q++) {
        h->sent_bytes += q == h->rank ? 0 : h->counts[q];
    }
    return ls_comm_all_to_all_blocks(h->comm, out, in, &blocks, LS_U8, NULL);
}

/* Sends the differences of this rank's workers, and receives those of all workers for its own
 * part. */
static ls_status swap_differences(ls_local_hosts *h, int64_t piece)
{
    uint64_t *const sent = h->counts, *const from = sent + h->ranks, *const got = from + h->ranks,
                    *const to = got + h->ranks, out = 0;
    int64_t count;
    (void)part_of(h, piece, h->rank, &count);
    const uint64_t own = bytes_of(h, count);
    for (uint32_t q = 0; q < h->ranks; q++) {
        const int64_t at = part_of(h, piece, q, &count);
        const ls_leaf_range theirs = workers_of(h, q);
        from[q] = out;
        for (uint32_t i = 0; i < h->own.count; i++) {
            LS_TRY(ls_outer_sum_pack(h->sum, h->own.first + i, at, count, h->out + out));
            out += bytes_of(h, count);
        }
        sent[q] = out - from[q];
        got[q] = theirs.count * own;
        to[q] = theirs.first * own;
    }
    return swap(h, h->out, h->in);
}

/* Sends the sum of this rank's part to all, and receives those of all parts. */
static ls_status swap_sums(ls_local_hosts *h, int64_t piece, float *sum)
{
    uint64_t *const sent = h->counts, *const from = sent + h->ranks, *const got = from + h->ranks,
                    *const to = got + h->ranks, in = 0;
    int64_t count;
    for (uint32_t q = 0; q < h->ranks; q++) {
        (void)part_of(h, piece, q, &count);
        got[q] = bytes_of(h, count);
        to[q] = in;
        in += got[q];
        from[q] = 0;
    }
    for (uint32_t q = 0; q < h->ranks; q++) {
        sent[q] = got[h->rank];
    }
    LS_TRY(swap(h, h->own_sum, h->in));
    for (uint32_t q = 0; q < h->ranks; q++) {
        const int64_t at = part_of(h, piece, q, &count);
        ls_decompress(h->state->queue, &h->form, h->in + to[q], count, sum + at, false);
    }
    return LS_OK;
}

static ls_status add_workers(void *context, float *sum)
{
    ls_local_hosts *h = context;
    for (int64_t piece = 0; piece * PIECE < h->share; piece++) {
        int64_t count;
        const int64_t at = part_of(h, piece, h->rank, &count);
        LS_TRY(swap_differences(h, piece));
        LS_TRY(ls_outer_sum_add(h->sum, at, count, h->in, NULL, h->own_sum));
        LS_TRY(swap_sums(h, piece, sum));
    }
    return LS_OK;
}

static ls_status find_worker(void *context, uint32_t *worker_out)
{
    ls_local_hosts *h = context;
    int64_t first = ls_local_not_finite(h->state, h->own.first, h->own.count);
    LS_TRY(ls_comm_all_reduce(h->comm, &first, &first, 1, LS_I64, LS_COMM_MIN, NULL));
    *worker_out = (uint32_t)first;
    return LS_OK;
}

void ls_local_hosts_enter(ls_local_hosts *h, ls_step_settings *settings)
{
    if (h) {
        settings->should_stop = NULL;
        settings->add_workers = add_workers;
        settings->find_worker = find_worker;
        settings->workers_context = h;
    }
}

uint64_t ls_local_hosts_sent(ls_local_hosts *h)
{
    const uint64_t bytes = h->sent_bytes;
    h->sent_bytes = 0;
    return bytes;
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
