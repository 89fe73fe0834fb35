// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/local_hosts.h"

#include "base/clock.h"
#include "comm/transport/tree.h"
#include "compute/kernels/compress.h"
#include "compute/kernels/shape.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBERS = 4, /* of a worker's step: loss, norm, tokens, seconds */
};

struct ls_local_hosts {
    ls_comm *comm;    /* of all ranks */
    ls_comm *leaders; /* of the first rank of each host; NULL: this is none of them */
    ls_comm *link;    /* of the leaders, for outer gradients; with a delay a group of its own */
    const ls_state *state;
    ls_state away; /* the same; with a delay, with a queue of its own */
    ls_local local;
    uint32_t rank, ranks, workers; /* rank: of the leaders, of which each host has one */
    ls_leaf_range own;             /* workers */
    ls_outer_sum *sum;
    int64_t at, past; /* floats that are exchanged: a fragment */
    int64_t share;    /* of them those that a leader adds up, the last fewer: whole blocks */
    unsigned char *out, *in, *own_sum;
    double *numbers; /* NUMBERS of each worker, and whether to stop */
    double *busy_s;  /* of each worker, in this round */
    uint32_t *first; /* the leader of each host */
    uint64_t *counts;
    uint64_t sent_bytes;
    double sent_s; /* that sending them took */
    bool (*should_stop)(void *context);
    void *stop_context;
    bool has_stopped;
    _Atomic bool is_cut_off;
    ls_control *control;
    pthread_t watcher;
    bool is_watched;
    _Atomic uint32_t is_over; /* the watcher may end */
    /* of a delay */
    pthread_t carrier;
    bool is_carried;
    ls_status carried;
    char error[512];
};

static ls_leaf_range workers_of(const ls_local_hosts *h, uint32_t rank)
{
    return ls_leaves_of_rank(h->workers, h->ranks, rank);
}

static uint64_t bytes_of(const ls_local_hosts *h, int64_t count)
{
    return ls_compressed_bytes(&h->local.form, (uint64_t)count);
}

/* ---- losses ---- */

/* Notes whether a call to other hosts failed for want of them. */
static ls_status crossed(ls_local_hosts *h, ls_status status)
{
    if (status != LS_OK && status != LS_ERR_MISMATCH) {
        atomic_store(&h->is_cut_off, true);
    }
    return status;
}

bool ls_local_hosts_is_cut_off(const ls_local_hosts *h)
{
    return atomic_load(&h->is_cut_off);
}

static bool is_over(void *context)
{
    return atomic_load(&((ls_local_hosts *)context)->is_over) != 0;
}

/* The ranks of the run are about to change: nothing more comes of calls to other hosts. */
static void *watch(void *context)
{
    ls_local_hosts *h = context;
    const ls_wait wait = {.abort = &h->control->interrupt};
    if (ls_wait_for(&h->control->orders, is_over, h, &wait) == LS_WAIT_ABORTED) {
        ls_comm_abort(h->comm, "a host or a rank was lost");
    }
    return NULL;
}

/* Signals are for the main thread. */
static ls_status start_thread(pthread_t *thread, void *(*run)(void *context), ls_local_hosts *h)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0
               ? LS_OK
               : ls_fail(LS_ERR_FAILED, "no thread can be started for outer gradients: %s", strerror(error));
}

/* ---- life ---- */

/* What the calls below exchange. */
static void choose(ls_local_hosts *h, int64_t at, int64_t count)
{
    h->at = at;
    h->past = at + count;
    h->share = ls_outer_share(count, h->ranks);
}

static ls_status alloc(ls_local_hosts *h)
{
    const size_t ranks = h->ranks, workers = h->workers;
    const ls_outer_buffers buffers = ls_outer_buffers_of(&h->local, h->state->layout, h->ranks, h->own.count);
    h->numbers = calloc(NUMBERS * workers + 1, sizeof *h->numbers);
    h->counts = calloc(4 * ranks, sizeof *h->counts);
    h->busy_s = calloc(workers, sizeof *h->busy_s);
    if (h->leaders) {
        h->out = malloc(buffers.out);
        h->in = malloc(buffers.in);
        h->own_sum = malloc(buffers.sum);
    }
    return h->numbers && h->counts && h->busy_s && (!h->leaders || (h->out && h->in && h->own_sum))
               ? LS_OK
               : ls_fail(LS_ERR_MEMORY,
                         "not enough memory for the outer steps of %zu workers on several hosts", workers);
}

/* Finds the leaders: which ranks are the first of their host. */
static ls_status find_leaders(ls_local_hosts *h, uint32_t first_rank)
{
    int64_t first[LS_COMM_SIZE_MAX], own = first_rank;
    const uint32_t rank = ls_comm_rank(h->comm), size = ls_comm_size(h->comm);
    LS_TRY(ls_comm_all_gather(h->comm, &own, first, 1, LS_I64, NULL));
    h->first = calloc(size, sizeof *h->first);
    if (!h->first) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %u ranks", size);
    }
    h->ranks = 0;
    for (uint32_t i = 0; i < size; i++) {
        h->rank = i == first_rank ? h->ranks : h->rank;
        if (first[i] == i) {
            h->first[h->ranks++] = i;
        }
    }
    return ls_comm_split(h->comm, rank == first_rank ? 0 : -1, (int32_t)rank, &h->leaders);
}

static ls_status open_link(ls_local_hosts *h)
{
    h->link = h->leaders;
    if (h->local.delay > 0) {
        h->link = NULL;
        h->away.queue = NULL;
        LS_TRY(ls_queue_create_cpu(1, &h->away.queue));
        LS_TRY(ls_comm_split(h->leaders, 0, (int32_t)h->rank, &h->link));
        ls_comm_in_background(h->link);
    }
    return ls_outer_sum_create(&h->away, &h->local, &h->sum);
}

static ls_status prepare(ls_local_hosts *h, uint32_t first_rank)
{
    if (h->comm) {
        LS_TRY(start_thread(&h->watcher, watch, h));
        h->is_watched = true;
        LS_TRY(find_leaders(h, first_rank));
    }
    h->own = workers_of(h, h->rank);
    LS_TRY(alloc(h));
    return h->leaders ? open_link(h) : LS_OK;
}

ls_status ls_local_hosts_create(ls_comm *comm, const ls_state *state, const ls_local *local,
                                ls_control *control, uint32_t first_rank, ls_local_hosts **hosts_out)
{
    ls_local_hosts *h = calloc(1, sizeof *h);
    if (!h) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for local steps on several hosts");
    }
    *h = (ls_local_hosts){.comm = comm,
                          .state = state,
                          .away = *state,
                          .local = *local,
                          .control = control,
                          .ranks = 1,
                          .workers = state->worker_count};
    const ls_status status = prepare(h, first_rank);
    if (status != LS_OK) {
        ls_local_hosts_destroy(h);
        return status;
    }
    *hosts_out = h;
    return LS_OK;
}

void ls_local_hosts_destroy(ls_local_hosts *h)
{
    if (!h) {
        return;
    }
    if (h->is_watched) {
        atomic_store(&h->is_over, 1);
        ls_word_wake(&h->control->orders);
        pthread_join(h->watcher, NULL);
    }
    if (h->is_carried) {
        ls_comm_abort(h->link, "this rank ends");
        pthread_join(h->carrier, NULL);
    }
    if (h->leaders && h->local.delay > 0) {
        ls_comm_close(h->link);
        ls_queue_destroy(h->away.queue);
    }
    ls_comm_close(h->leaders);
    ls_outer_sum_destroy(h->sum);
    free(h->out);
    free(h->in);
    free(h->own_sum);
    free(h->numbers);
    free(h->counts);
    free(h->busy_s);
    free(h->first);
    free(h);
}

/* Whether the worker is on this host. */
static bool has_worker(const ls_local_hosts *h, uint32_t worker)
{
    return worker >= h->own.first && worker < h->own.first + h->own.count;
}

/* ---- the numbers of a step ---- */

static void note(ls_local_hosts *h, uint32_t worker, const ls_step_result *result, double seconds)
{
    h->numbers[worker] = (double)result->loss;
    h->numbers[h->workers + worker] = result->grad_norm;
    h->numbers[2 * h->workers + worker] = (double)result->tokens;
    h->numbers[3 * h->workers + worker] = seconds;
}

/* Only one leader has a number of a worker. The others have zero, so that the sum of the bits as
 * whole numbers is that number. */
static ls_status end_step(ls_local_hosts *h, ls_step_result *result)
{
    const uint32_t workers = h->workers;
    const uint64_t count = (uint64_t)NUMBERS * workers + 1;
    int64_t stops = h->should_stop ? h->should_stop(h->stop_context) : false;
    const double begin_s = ls_clock_monotonic_s();
    memcpy(&h->numbers[count - 1], &stops, sizeof stops);
    if (h->comm) {
        LS_TRY(crossed(
            h, ls_comm_all_reduce(h->comm, h->numbers, h->numbers, count, LS_I64, LS_COMM_SUM, NULL)));
    }
    memcpy(&stops, &h->numbers[count - 1], sizeof stops);
    double tokens = 0.0;
    for (uint32_t i = 0; i < workers; i++) {
        tokens += h->numbers[2 * workers + i];
        h->busy_s[i] += h->numbers[3 * workers + i];
    }
    result->loss = (float)ls_local_mean(h->numbers, workers);
    result->grad_norm = ls_local_mean(h->numbers + workers, workers);
    result->tokens = (uint64_t)tokens;
    result->wait_s += ls_clock_monotonic_s() - begin_s;
    result->traffic.dense_bytes =
        2 * sizeof(float) * (uint64_t)h->state->layout->float_count * (h->ranks - 1) / h->ranks;
    h->has_stopped = stops > 0;
    memset(h->numbers, 0, count * sizeof *h->numbers);
    return LS_OK;
}

/* ---- the outer step ---- */

/* Where rank `rank` has piece `piece` of its share: LS_OUTER_PIECE floats, or fewer at the end. */
static int64_t part_of(const ls_local_hosts *h, int64_t piece, uint32_t rank, int64_t *count_out)
{
    const int64_t begin = h->at + rank * h->share, at = begin + piece * LS_OUTER_PIECE;
    const int64_t past = ls_min64(begin + h->share, h->past);
    *count_out = at >= past ? 0 : ls_min64(past - at, LS_OUTER_PIECE);
    return at;
}

static ls_status swap(ls_local_hosts *h, const unsigned char *out, unsigned char *in)
{
    const ls_comm_blocks blocks = {h->counts, h->counts + h->ranks, h->counts + 2 * h->ranks,
                                   h->counts + 3 * h->ranks};
    for (uint32_t q = 0; q < h->ranks; q++) {
        h->sent_bytes += q == h->rank ? 0 : h->counts[q];
    }
    const double begin_s = ls_clock_monotonic_s();
    const ls_status status = ls_comm_all_to_all_blocks(h->link, out, in, &blocks, LS_U8, NULL);
    h->sent_s += ls_clock_monotonic_s() - begin_s;
    return crossed(h, status);
}

/* Packs a piece of what this rank's workers send to all; *out_inout: where in h->out. */
static ls_status pack_piece(ls_local_hosts *h, int64_t piece, uint64_t *out_inout)
{
    for (uint32_t q = 0; q < h->ranks; q++) {
        int64_t count;
        const int64_t at = part_of(h, piece, q, &count);
        for (uint32_t i = 0; i < h->own.count; i++) {
            LS_TRY(ls_outer_sum_pack(h->sum, h->own.first + i, at, count, h->out + *out_inout));
            *out_inout += bytes_of(h, count);
        }
    }
    return LS_OK;
}

/* Sends the packed piece at `out`, and receives the differences of all workers for its own part.
 * Returns the bytes of the piece in *bytes_out. */
static ls_status swap_differences(ls_local_hosts *h, int64_t piece, const unsigned char *out,
                                  uint64_t *bytes_out)
{
    uint64_t *const sent = h->counts, *const from = sent + h->ranks, *const got = from + h->ranks,
                    *const to = got + h->ranks, all = 0;
    int64_t count;
    (void)part_of(h, piece, h->rank, &count);
    const uint64_t own = bytes_of(h, count);
    for (uint32_t q = 0; q < h->ranks; q++) {
        (void)part_of(h, piece, q, &count);
        const ls_leaf_range theirs = workers_of(h, q);
        sent[q] = h->own.count * bytes_of(h, count);
        from[q] = all;
        got[q] = theirs.count * own;
        to[q] = theirs.first * own;
        all += sent[q];
    }
    *bytes_out = all;
    return swap(h, out, h->in);
}

/* Sends the sum of this rank's part to all, and receives those of all parts: `sum`. */
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
        ls_decompress(h->away.queue, &h->local.form, h->in + to[q], count, sum + (at - h->at), false);
    }
    return LS_OK;
}

/* With a delay the pieces are packed already. */
static ls_status add_workers(void *context, int64_t first, int64_t floats, float *sum)
{
    ls_local_hosts *h = context;
    uint64_t out = 0, bytes = 0;
    choose(h, first, floats);
    for (int64_t piece = 0; piece * LS_OUTER_PIECE < h->share; piece++) {
        int64_t count;
        const int64_t at = part_of(h, piece, h->rank, &count);
        if (h->local.delay == 0) {
            out = 0;
            LS_TRY(pack_piece(h, piece, &out));
            out = 0;
        }
        LS_TRY(swap_differences(h, piece, h->out + out, &bytes));
        LS_TRY(ls_outer_sum_add(h->sum, at, count, h->in, NULL, h->own_sum));
        LS_TRY(swap_sums(h, piece, sum));
        out += bytes;
    }
    return LS_OK;
}

/* The thread of an exchange with a delay: makes the outer gradient in v. */
static void *carry(void *context)
{
    ls_local_hosts *h = context;
    const float scale = (float)(1.0 / (double)h->workers);
    float *v = h->state->v;
    h->carried = add_workers(h, h->at, h->past - h->at, v + h->at);
    for (int64_t i = h->at; i < h->past && h->carried == LS_OK; i++) {
        v[i] *= scale;
    }
    if (h->carried != LS_OK) {
        snprintf(h->error, sizeof h->error, "%s", ls_error_text());
    }
    return NULL;
}

static ls_status begin_exchange(ls_local_hosts *h, uint32_t fragment)
{
    uint64_t out = 0;
    int64_t count;
    const int64_t at = ls_layout_run(h->state->layout, h->local.fragments, fragment, &count);
    choose(h, at, count);
    for (int64_t piece = 0; piece * LS_OUTER_PIECE < h->share; piece++) {
        LS_TRY(pack_piece(h, piece, &out));
    }
    LS_TRY(start_thread(&h->carrier, carry, h));
    h->is_carried = true;
    return LS_OK;
}

static ls_status end_exchange(ls_local_hosts *h)
{
    if (!h->is_carried) {
        return LS_OK; /* over, or v came with the state */
    }
    pthread_join(h->carrier, NULL);
    h->is_carried = false;
    return h->carried == LS_OK ? LS_OK : ls_fail(h->carried, "%s", h->error);
}

static ls_status find_worker(void *context, uint32_t *worker_out)
{
    ls_local_hosts *h = context;
    int64_t first = ls_local_not_finite(h->state, h->own.first, h->own.count);
    LS_TRY(crossed(h, ls_comm_all_reduce(h->comm, &first, &first, 1, LS_I64, LS_COMM_MIN, NULL)));
    *worker_out = (uint32_t)first;
    return LS_OK;
}

/* ---- a turn ---- */

void ls_local_hosts_enter(ls_local_hosts *h, ls_step_settings *settings)
{
    if (h && h->comm) {
        h->should_stop = settings->should_stop;
        h->stop_context = settings->stop_context;
        settings->should_stop = NULL;
        settings->add_workers = add_workers;
        settings->find_worker = find_worker;
        settings->workers_context = h;
    }
}

/* A turn in which this rank computes nothing: it says so. */
static void pass(uint64_t turn, ls_part_marks *marks, ls_step_result *result)
{
    atomic_store(&marks->entered, turn + 1);
    atomic_store(&marks->begun, turn + 1);
    atomic_store(&marks->done, turn + 1);
    result->audited = LS_NO_LEAF;
}

/* How long the hosts computed in the round that ends. */
static void compare_hosts(ls_local_hosts *h, ls_step_result *result)
{
    for (uint32_t host = 0; host < h->ranks && h->ranks > 1; host++) {
        const ls_leaf_range own = workers_of(h, host);
        double busy_s = 0.0;
        for (uint32_t i = 0; i < own.count; i++) {
            busy_s += h->busy_s[own.first + i];
        }
        result->fastest_s = host == 0 ? busy_s : fmin(result->fastest_s, busy_s);
        if (busy_s > result->slowest_s) {
            result->slowest_s = busy_s;
            result->slowest_rank = h->first[host];
        }
    }
    memset(h->busy_s, 0, h->workers * sizeof *h->busy_s);
}

static ls_status run_outer(ls_local_hosts *h, ls_stepper *stepper, uint64_t turn, double lr,
                           ls_step_result *result)
{
    const double begin_s = ls_clock_monotonic_s();
    LS_TRY(end_exchange(h));
    const double wait_s = ls_clock_monotonic_s() - begin_s;
    LS_TRY(ls_stepper_run(stepper, turn, lr, result));
    result->wait_s += wait_s;
    compare_hosts(h, result);
    result->traffic.link_bytes = h->sent_bytes;
    result->traffic.link_s = h->sent_s;
    h->sent_bytes = 0;
    h->sent_s = 0.0;
    return LS_OK;
}

ls_status ls_local_hosts_run(ls_local_hosts *h, ls_stepper *stepper, uint64_t turn, double lr,
                             ls_part_marks *marks, ls_step_result *result)
{
    const ls_local_turn which = ls_local_turn_at(&h->local, turn);
    if (which.is_first && h->has_stopped) {
        return ls_fail(LS_STOPPED, "the run is to stop");
    }
    if (which.is_outer && (which.applies || !h->comm)) {
        return run_outer(h, stepper, turn, lr, result);
    }
    if (which.makes) {
        pass(turn, marks, result);
        return h->leaders ? begin_exchange(h, which.fragment) : LS_OK;
    }
    if (has_worker(h, which.worker)) {
        const double begin_s = ls_clock_monotonic_s();
        LS_TRY(ls_stepper_run(stepper, turn, lr, result));
        if (h->leaders || !h->comm) {
            note(h, which.worker, result, ls_clock_monotonic_s() - begin_s);
        }
    } else {
        pass(turn, marks, result);
    }
    result->tokens = 0;
    return which.worker + 1 == h->workers ? end_step(h, result) : LS_OK;
}

/* ---- between steps ---- */

/* Which of `count` hosts has the worker. */
static uint32_t host_with(const ls_local_hosts *h, uint32_t count, uint32_t worker)
{
    uint32_t host = 0;
    while (host + 1 < count && worker >= ls_leaves_of_rank(h->workers, count, host + 1).first) {
        host++;
    }
    return host;
}

/* Moves a worker's parameters and moments from one host to another. */
static ls_status move_worker(ls_local_hosts *h, uint32_t worker, uint32_t source, uint32_t target)
{
    const uint64_t floats = (uint64_t)h->state->layout->float_count;
    for (uint32_t flat = 0; flat < 3 && source != target; flat++) {
        float *own = ls_state_worker(h->state, worker, flat);
        memset(h->counts, 0, 4 * h->ranks * sizeof *h->counts);
        h->counts[target] = h->rank == source ? floats : 0;
        h->counts[2 * h->ranks + source] = h->rank == target ? floats : 0;
        const ls_comm_blocks blocks = {h->counts, h->counts + h->ranks, h->counts + 2 * h->ranks,
                                       h->counts + 3 * h->ranks};
        LS_TRY(crossed(h, ls_comm_all_to_all_blocks(h->leaders, own, own, &blocks, LS_F32, NULL)));
    }
    return LS_OK;
}

/* All ranks of a host go on when its leader has done the moving. */
static ls_status meet(ls_local_hosts *h)
{
    return h->comm ? crossed(h, ls_comm_barrier(h->comm, NULL)) : LS_OK;
}

ls_status ls_local_hosts_distribute(ls_local_hosts *h, const ls_cut *held)
{
    const ls_state *state = h->state;
    const uint64_t floats = (uint64_t)state->layout->float_count;
    float *const flats[] = {state->parameters, state->m, state->v};
    for (uint32_t i = 0; h->leaders && i < (h->local.delay > 0 ? 3 : 2); i++) {
        LS_TRY(crossed(h, ls_comm_broadcast(h->leaders, flats[i], floats, LS_F32, 0, NULL)));
    }
    for (uint32_t worker = 0; h->leaders && worker < h->workers; worker++) {
        const uint32_t source = held ? held->hosts[host_with(h, held->host_count, worker)].holder : 0;
        LS_TRY(move_worker(h, worker, source, host_with(h, h->ranks, worker)));
    }
    return meet(h);
}

ls_status ls_local_hosts_gather(ls_local_hosts *h)
{
    LS_TRY(end_exchange(h));
    for (uint32_t worker = 0; h->leaders && worker < h->workers; worker++) {
        LS_TRY(move_worker(h, worker, host_with(h, h->ranks, worker), 0));
    }
    return meet(h);
}
