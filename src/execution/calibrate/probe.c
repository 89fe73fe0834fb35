// SPDX-License-Identifier: Apache-2.0
#include "execution/calibrate/probe.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "compute/kernels/activation.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/embedding.h"
#include "compute/kernels/hash.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/rotary.h"
#include "compute/kernels/tree_sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    REGION_FLOATS = 12 << 20,  /* size of a region of activations */
    THREAD_FLOATS = 512 << 10, /* and this much more per thread */
    /* several times the last cache, which keeps a part of what is just larger */
    STATE_FLOATS = 32 << 20,
    TOKENS = 64 << 10,
    /* calls until operands are used again, if the region is large enough */
    WINDOW_CALLS = 4,
    /* the same for weights of products and their gradients: a step uses those of all other layers
     * first. Ten layers have about so many matrices of the width, so those of small models stay in
     * the cache and those of large ones come from memory, as in a step */
    WINDOW_WEIGHTS = 100,
    VOCAB = 256, /* rows of the embedding table; all tokens are smaller */
    TREE_INPUTS_MAX = 16,
};

/* Memory from which operands are cut one after the other. */
typedef struct region {
    float *floats;
    bool is_shared;
    int64_t count, at;
    int64_t first, past; /* the operands of all calls lie between these */
    int64_t call;        /* what one call takes */
} region;

struct ls_probe_bench {
    ls_queue *queue;
    /* activations that kernels read, and those that they write, where some read, too; weights,
     * gradients and moments */
    region in, out, state;
    int32_t *tokens;
    /* Of all timed calls: the time that the thread ran, and the time that passed. */
    double ran_s, passed_s;
    ls_work work;
    double sizes[LS_WORK_AXES_MAX];
};

/* ---- operands ---- */

static int64_t region_floats(uint32_t threads)
{
    return REGION_FLOATS + (int64_t)threads * THREAD_FLOATS;
}

uint64_t ls_probe_bench_bytes(uint32_t threads)
{
    return (2 * (uint64_t)region_floats(threads) + STATE_FLOATS) * sizeof(float) + TOKENS * sizeof(int32_t);
}

static float *cut(region *r, int64_t floats)
{
    const int64_t count = ls_round_up_i64(floats, 16);
    LS_ASSERT(r->at + count <= r->count);
    float *floats_at = r->floats + r->at;
    r->at += count;
    return floats_at;
}

static ls_tensor in(ls_probe_bench *b, int64_t rows, int64_t cols)
{
    return ls_tensor_f32(cut(&b->in, rows * cols), rows, cols);
}

static ls_tensor out(ls_probe_bench *b, int64_t rows, int64_t cols)
{
    return ls_tensor_f32(cut(&b->out, rows * cols), rows, cols);
}

static ls_tensor state(ls_probe_bench *b, int64_t rows, int64_t cols)
{
    return ls_tensor_f32(cut(&b->state, rows * cols), rows, cols);
}

/* Values between -1 and 1, so that no kernel meets special cases such as zeros or infinities. */
static void fill_random(float *floats, int64_t count)
{
    enum { BLOCK = 16384 };
    for (int64_t i = 0; i < count && i < BLOCK; i++) {
        const uint32_t mixed = (uint32_t)i * 2654435761u;
        floats[i] = ((float)(mixed >> 8) + 0.5f) * (1.0f / 8388608.0f) - 1.0f;
    }
    for (int64_t at = BLOCK; at < count; at += BLOCK) {
        memcpy(floats + at, floats, (size_t)(count - at < BLOCK ? count - at : BLOCK) * sizeof *floats);
    }
}

/* ---- the probes ---- */

static int64_t size_of(const ls_probe_bench *b, int axis)
{
    return (int64_t)b->sizes[axis];
}

static int64_t rows_of(const ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / size_of(b, 1);
    return rows > 0 ? rows : 1;
}

static ls_linear linear_of(ls_tensor weight, ls_weight_layout layout, int64_t out_features)
{
    return (ls_linear){.weight = weight,
                       .layout = layout,
                       .forward_cut = 1,
                       .backward_input_cut = 1,
                       .segment_count = 1,
                       .segment = {out_features}};
}

static ls_status run_gemm_nn(ls_probe_bench *b)
{
    const int64_t m = size_of(b, 0), n = size_of(b, 1), k = size_of(b, 2);
    const ls_linear linear = linear_of(state(b, k, n), LS_WEIGHT_IN_OUT, n);
    const ls_tensor x = in(b, m, k), y = out(b, m, n);
    return ls_linear_forward(b->queue, &linear, &x, &y);
}

static ls_status run_gemm_nt(ls_probe_bench *b)
{
    const int64_t m = size_of(b, 0), n = size_of(b, 1), k = size_of(b, 2);
    const ls_linear linear = linear_of(state(b, n, k), LS_WEIGHT_OUT_IN, n);
    const ls_tensor x = in(b, m, k), y = out(b, m, n);
    return ls_linear_forward(b->queue, &linear, &x, &y);
}

static ls_status run_gemm_tn(ls_probe_bench *b)
{
    const int64_t m = size_of(b, 0), n = size_of(b, 1), k = size_of(b, 2);
    const ls_tensor dweight = state(b, m, n), dy = in(b, k, m), x = in(b, k, n), none = {0};
    const ls_linear linear = linear_of(dweight, LS_WEIGHT_OUT_IN, m);
    return ls_linear_backward_weight(b->queue, &linear, &x, &dy, &dweight, &none,
                                     b->work == LS_WORK_GEMM_TN_ADD);
}

enum { HEADS = 4, BATCH_FLOATS = 512 << 10 };

/* The number of sequences computed at once: enough for the tensors of a micro-batch, at least
 * one per thread, and no more than fit in the region. */
static int64_t sequences_of(const ls_probe_bench *b)
{
    const int64_t threads = ls_queue_threads(b->queue), each = HEADS * size_of(b, 0) * size_of(b, 1);
    const int64_t room = b->in.count / (6 * each),
                  wanted = threads * ((BATCH_FLOATS - 1) / (each * threads) + 1);
    return wanted <= room ? wanted : room > threads ? room / threads * threads : room > 0 ? room : 1;
}

static ls_attention attention_of(const ls_probe_bench *b)
{
    return (ls_attention){.sequences = sequences_of(b),
                          .length = size_of(b, 0),
                          .heads = HEADS,
                          .kv_heads = HEADS,
                          .head_dim = size_of(b, 1),
                          .scale = 1.0f / sqrtf((float)size_of(b, 1))};
}

/* Queries, keys and values lie side by side, as the fused projection writes them. */
static void split_qkv(ls_tensor qkv, ls_tensor parts_out[3])
{
    for (int i = 0; i < 3; i++) {
        parts_out[i] = ls_tensor_columns(qkv, i * qkv.cols / 3, qkv.cols / 3);
    }
}

static ls_status run_attention_forward(ls_probe_bench *b)
{
    const ls_attention a = attention_of(b);
    const int64_t n = a.sequences * a.length, wide = HEADS * a.head_dim;
    ls_tensor x[3];
    split_qkv(in(b, n, 3 * wide), x);
    const ls_tensor y = out(b, n, wide), lse = out(b, n, HEADS);
    return ls_attention_forward(b->queue, &a, &x[0], &x[1], &x[2], &y, &lse);
}

static ls_status run_attention_backward(ls_probe_bench *b)
{
    const ls_attention a = attention_of(b);
    const int64_t n = a.sequences * a.length, wide = HEADS * a.head_dim;
    ls_tensor x[3], dx[3];
    split_qkv(in(b, n, 3 * wide), x);
    split_qkv(out(b, n, 3 * wide), dx);
    const ls_tensor y = in(b, n, wide), dy = in(b, n, wide), lse = in(b, n, HEADS), none = {0};
    return ls_attention_backward(b->queue, &a, &x[0], &x[1], &x[2], &y, &lse, &dy, &dx[0], &dx[1], &dx[2],
                                 &none);
}

static ls_norm norm_of(ls_probe_bench *b, int64_t cols)
{
    return (ls_norm){
        .kind = LS_NORM_LAYER, .eps = 1e-5f, .groups = 1, .weight = in(b, 1, cols), .bias = in(b, 1, cols)};
}

static ls_status run_norm_forward(ls_probe_bench *b)
{
    const int64_t rows = rows_of(b), cols = size_of(b, 1);
    const ls_norm norm = norm_of(b, cols);
    const ls_tensor x = in(b, rows, cols), y = out(b, rows, cols), mean = out(b, rows, 1),
                    rstd = out(b, rows, 1);
    return ls_norm_forward(b->queue, &norm, &x, &y, &mean, &rstd);
}

static ls_status run_add_norm_forward(ls_probe_bench *b)
{
    const int64_t rows = rows_of(b), cols = size_of(b, 1);
    const ls_norm norm = norm_of(b, cols);
    const ls_tensor a = in(b, rows, cols), c = in(b, rows, cols), sum = out(b, rows, cols),
                    y = out(b, rows, cols);
    const ls_tensor mean = out(b, rows, 1), rstd = out(b, rows, 1);
    return ls_norm_forward_residual(b->queue, &norm, &a, &c, &sum, &y, &mean, &rstd);
}

static ls_status run_norm_backward(ls_probe_bench *b)
{
    const int64_t rows = rows_of(b), cols = size_of(b, 1);
    const ls_norm norm = norm_of(b, cols);
    const ls_tensor x = in(b, rows, cols), dy = in(b, rows, cols), mean = in(b, rows, 1),
                    rstd = in(b, rows, 1);
    const ls_tensor dx = out(b, rows, cols), dweight = out(b, 1, cols), dbias = out(b, 1, cols);
    const ls_tensor workspace = out(b, 1, ls_norm_workspace_floats(NULL, rows, cols, 1));
    return ls_norm_backward(b->queue, &norm, &x, &dy, &mean, &rstd, &dx, true, &dweight, &dbias, true,
                            &workspace);
}

static ls_status run_cross_entropy(ls_probe_bench *b)
{
    const int64_t rows = rows_of(b), cols = size_of(b, 1);
    const ls_tensor logits = out(b, rows, cols), losses = out(b, rows, 1);
    return ls_cross_entropy(b->queue, NULL, &logits, b->tokens, losses.data, true);
}

/* Column sums (bias gradients) are only computed together with a weight gradient. So they are timed
 * with that of a layer with one input, and the time of the same call without sums is subtracted. */
static ls_status weight_gradient(ls_probe_bench *b, bool with_sums)
{
    const int64_t rows = rows_of(b), cols = size_of(b, 1);
    const ls_tensor dy = in(b, rows, cols), x = in(b, rows, 1), dweight = out(b, cols, 1), none = {0};
    const ls_tensor dbias = out(b, 1, cols);
    const ls_linear linear = linear_of(dweight, LS_WEIGHT_OUT_IN, cols);
    return ls_linear_backward_weight(b->queue, &linear, &x, &dy, &dweight, with_sums ? &dbias : &none, true);
}

static ls_status run_column_sums(ls_probe_bench *b)
{
    return weight_gradient(b, true);
}

static ls_status run_without_sums(ls_probe_bench *b)
{
    return weight_gradient(b, false);
}

static ls_status run_embedding_forward(ls_probe_bench *b)
{
    const int64_t rows = rows_of(b), cols = size_of(b, 1);
    const ls_tensor table = in(b, VOCAB, cols), none = {0}, y = out(b, rows, cols);
    return ls_embedding_forward(b->queue, b->tokens, &table, &none, &(ls_positions){.length = rows}, &y);
}

static ls_status run_embedding_backward(ls_probe_bench *b)
{
    const int64_t rows = rows_of(b), cols = size_of(b, 1);
    const ls_tensor dtable = out(b, VOCAB, cols), none = {0}, dy = in(b, rows, cols);
    return ls_embedding_backward(b->queue, b->tokens, &dy, &(ls_positions){.length = rows}, &dtable, &none);
}

enum { HEAD_DIM = 64, LENGTH = 256, WIDTH = 1024 };

/* Applied to queries and keys, in rows that also hold the values. */
static ls_status run_rotary(ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / WIDTH;
    const ls_tensor x = ls_tensor_columns(out(b, rows, WIDTH * 3 / 2), 0, WIDTH);
    const ls_tensor cosine = in(b, LENGTH, HEAD_DIM / 2), sine = in(b, LENGTH, HEAD_DIM / 2);
    return ls_rotary_apply(b->queue, &x, WIDTH / HEAD_DIM, HEAD_DIM, &(ls_positions){.length = LENGTH},
                           &cosine, &sine, false);
}

static ls_status run_gelu_forward(ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / WIDTH;
    const ls_tensor x = in(b, rows, WIDTH), y = out(b, rows, WIDTH);
    return ls_gelu_forward(b->queue, &x, &y);
}

/* In place, as in a step. */
static ls_status run_gelu_backward(ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / WIDTH;
    const ls_tensor x = in(b, rows, WIDTH), dy = out(b, rows, WIDTH);
    return ls_gelu_backward(b->queue, &x, &dy, &dy);
}

static ls_status run_swiglu_forward(ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / WIDTH;
    const ls_tensor x = in(b, rows, 2 * WIDTH), y = out(b, rows, WIDTH);
    return ls_swiglu_forward(b->queue, &x, &y);
}

static ls_status run_swiglu_backward(ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / WIDTH;
    const ls_tensor x = out(b, rows, 2 * WIDTH), dy = in(b, rows, WIDTH);
    return ls_swiglu_backward(b->queue, &x, &dy, &x);
}

static ls_status run_add(ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / WIDTH;
    const ls_tensor x = in(b, rows, WIDTH), y = out(b, rows, WIDTH);
    return ls_add(b->queue, &x, &y, &y);
}

static ls_status run_fill(ls_probe_bench *b)
{
    const ls_tensor y = out(b, size_of(b, 0) / WIDTH, WIDTH);
    return ls_fill(b->queue, &y, 0.5f);
}

static ls_status run_copy(ls_probe_bench *b)
{
    const int64_t rows = size_of(b, 0) / WIDTH;
    const ls_tensor x = in(b, rows, WIDTH), y = out(b, rows, WIDTH);
    return ls_copy(b->queue, &x, &y);
}

/* In place: the sum replaces the first input. */
static ls_status run_tree_sum(ls_probe_bench *b)
{
    const int64_t count = size_of(b, 0);
    const uint32_t inputs = (uint32_t)size_of(b, 1);
    const float *from[TREE_INPUTS_MAX];
    uint16_t program[2 * TREE_INPUTS_MAX];
    LS_ASSERT(inputs >= 1 && inputs <= TREE_INPUTS_MAX);
    const ls_tensor sum = state(b, 1, count), squares = out(b, 1, 2 * (count / LS_NORM_BLOCK + 1));
    from[0] = sum.data;
    for (uint32_t i = 1; i < inputs; i++) {
        from[i] = state(b, 1, count).data;
    }
    for (uint32_t i = 0; i < inputs; i++) { /* i0 + (i1 + (i2 + ...)) */
        program[i] = (uint16_t)i;
        program[inputs + i] = LS_TREE_SUM_ADD;
    }
    const ls_tree_sum tree = {
        .program = program, .length = 2 * inputs - 1, .depth = inputs, .input_count = inputs};
    return ls_tree_sum_run(b->queue, &tree, from, count, sum.data, squares.data);
}

typedef struct adamw_job {
    ls_queue *queue;
    ls_adamw_factors factors;
    float *flats[3];
    const float *gradients;
    int64_t count;
} adamw_job;

enum { ADAMW_TILE = 8 * LS_NORM_BLOCK }; /* the same tiles as in execution/train/update.c */

static void tile_adamw(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const adamw_job *job = context;
    const int64_t first = tile * ADAMW_TILE,
                  count = job->count - first < ADAMW_TILE ? job->count - first : ADAMW_TILE;
    const ls_master parameters = {.values = job->flats[0] + first};
    const ls_status status =
        ls_adamw_update(job->queue, &job->factors, count, &parameters, job->gradients + first,
                        job->flats[1] + first, job->flats[2] + first);
    LS_ASSERT(status == LS_OK); /* always, on the CPU */
}

static ls_status run_adamw(ls_probe_bench *b)
{
    const int64_t count = size_of(b, 0);
    const ls_adamw adamw = {.lr = 1e-4f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .gradient_scale = 1.0f,
                            .step = 100};
    adamw_job job = {.queue = b->queue,
                     .factors = ls_adamw_factors_of(&adamw),
                     .gradients = state(b, 1, count).data,
                     .count = count};
    for (int flat = 0; flat < 3; flat++) {
        job.flats[flat] = state(b, 1, count).data;
    }
    ls_queue_run_tiles(b->queue, (count + ADAMW_TILE - 1) / ADAMW_TILE, tile_adamw, &job);
    return LS_OK;
}

/* Of a flat of the state, as it is guarded between steps. */
static ls_status run_hash(ls_probe_bench *b)
{
    ls_hash128 hashes[64];
    const int64_t count = size_of(b, 0);
    const ls_master flat = {.values = state(b, 1, count).data};
    LS_ASSERT(count <= 64 * (int64_t)LS_HASH_TILE);
    return ls_hash_tiles(b->queue, &flat, count, hashes);
}

typedef struct probe {
    ls_status (*run)(ls_probe_bench *bench);
    bool reads_out; /* also what others have left there, or its own output: filled anew */
    /* The same call without what is to be measured, to be subtracted; NULL: nothing to subtract. */
    ls_status (*without)(ls_probe_bench *bench);
    int64_t state_window; /* of calls, until the same state is used again; 0: WINDOW_CALLS */
} probe;

static const probe probes[LS_WORK_COUNT] = {
    [LS_WORK_GEMM_NN] = {run_gemm_nn, .state_window = WINDOW_WEIGHTS},
    [LS_WORK_GEMM_NT] = {run_gemm_nt, .state_window = WINDOW_WEIGHTS},
    [LS_WORK_GEMM_TN] = {run_gemm_tn, .state_window = WINDOW_WEIGHTS},
    [LS_WORK_GEMM_TN_ADD] = {run_gemm_tn, .state_window = WINDOW_WEIGHTS},
    [LS_WORK_ATTENTION_FORWARD] = {run_attention_forward},
    [LS_WORK_ATTENTION_BACKWARD] = {run_attention_backward},
    [LS_WORK_NORM_FORWARD] = {run_norm_forward},
    [LS_WORK_ADD_NORM_FORWARD] = {run_add_norm_forward},
    [LS_WORK_NORM_BACKWARD] = {run_norm_backward},
    [LS_WORK_CROSS_ENTROPY] = {run_cross_entropy},
    [LS_WORK_COLUMN_SUMS] = {run_column_sums, false, run_without_sums},
    [LS_WORK_EMBEDDING_FORWARD] = {run_embedding_forward},
    [LS_WORK_EMBEDDING_BACKWARD] = {run_embedding_backward},
    [LS_WORK_ROTARY] = {run_rotary},
    [LS_WORK_GELU_FORWARD] = {run_gelu_forward},
    [LS_WORK_GELU_BACKWARD] = {run_gelu_backward, true},
    [LS_WORK_SWIGLU_FORWARD] = {run_swiglu_forward},
    [LS_WORK_SWIGLU_BACKWARD] = {run_swiglu_backward, true},
    [LS_WORK_ADD] = {run_add},
    [LS_WORK_FILL] = {run_fill},
    [LS_WORK_COPY] = {run_copy},
    [LS_WORK_TREE_SUM] = {run_tree_sum},
    [LS_WORK_ADAMW] = {run_adamw},
    [LS_WORK_HASH] = {run_hash},
};

/* ---- calls ---- */

static void rewind_region(region *r)
{
    r->at = r->at + r->call > r->past ? r->first : r->at;
}

static ls_status call(ls_probe_bench *bench, ls_status (*run)(ls_probe_bench *bench))
{
    rewind_region(&bench->in);
    rewind_region(&bench->out);
    rewind_region(&bench->state);
    LS_TRY(run(bench));
    return ls_queue_wait(bench->queue);
}

/* The first call begins at `at`, or at the start when less than half of the region follows. */
static void begin_region(region *r, int64_t at)
{
    r->at = r->first = at > r->count / 2 ? 0 : at;
    r->past = r->count;
    r->call = 0;
}

/* After the first call: a window of so many of them, or as many as the region has room for. */
static void measure_region(region *r, int64_t calls)
{
    r->call = r->at - r->first;
    r->first = calls * r->call > r->count - r->first ? 0 : r->first;
    r->past = ls_min_i64(r->first + calls * r->call, r->count);
}

/* Reads a window of weights that stays in the last cache of most machines, beside the gradients. */
static void warm_small(const region *r)
{
    const volatile float *floats = r->floats;
    enum { LINE_FLOATS = 16 };
    for (int64_t i = r->first; i < r->past && r->past - r->first <= STATE_FLOATS / 8; i += LINE_FLOATS) {
        (void)floats[i];
    }
}

ls_status ls_probe_begin(ls_probe_bench *bench, ls_work work, const double *sizes)
{
    bench->work = work;
    memcpy(bench->sizes, sizes, ls_work_info_of(work)->axis_count * sizeof *sizes);
    begin_region(&bench->in, 0);
    begin_region(&bench->out, 0);
    begin_region(&bench->state, bench->state.at); /* what the last calls used is in the cache */
    LS_TRY(call(bench, probes[work].run));
    measure_region(&bench->in, WINDOW_CALLS);
    measure_region(&bench->out, WINDOW_CALLS);
    measure_region(&bench->state, probes[work].state_window > 0 ? probes[work].state_window : WINDOW_CALLS);
    warm_small(&bench->state);
    if (probes[work].reads_out) {
        fill_random(bench->out.floats, bench->out.past);
    }
    return LS_OK;
}

/* With one thread, its processor time, which other work on the machine hardly changes. With several
 * threads only wall time is meaningful. */
static double clock_s(const ls_probe_bench *bench)
{
    struct timespec now;
    if (ls_queue_threads(bench->queue) > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) {
        return ls_clock_monotonic_s();
    }
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static ls_status time_calls(ls_probe_bench *bench, ls_status (*run)(ls_probe_bench *bench), double least_s,
                            double *seconds_out)
{
    const double start_s = ls_clock_monotonic_s(), begun_s = clock_s(bench);
    uint64_t calls = 0;
    do {
        LS_TRY(call(bench, run));
        calls++;
    } while (ls_clock_monotonic_s() - start_s < least_s);
    const double ran_s = clock_s(bench) - begun_s;
    bench->ran_s += ran_s;
    bench->passed_s += ls_clock_monotonic_s() - start_s;
    *seconds_out = ran_s / (double)calls;
    return LS_OK;
}

ls_status ls_probe_run(ls_probe_bench *bench, double least_s, double *seconds_out)
{
    static const double least_share = 0.02; /* what remains after the subtraction, at least */
    const probe *p = &probes[bench->work];
    double seconds = 0.0, without_s = 0.0;
    LS_TRY(time_calls(bench, p->run, least_s, &seconds));
    if (p->without) {
        LS_TRY(time_calls(bench, p->without, least_s, &without_s));
        seconds = fmax(seconds - without_s, least_share * seconds);
    }
    if (bench->work == LS_WORK_ATTENTION_FORWARD || bench->work == LS_WORK_ATTENTION_BACKWARD) {
        seconds /= (double)(HEADS * sequences_of(bench));
    }
    *seconds_out = seconds;
    return LS_OK;
}

double ls_probe_undisturbed(const ls_probe_bench *bench)
{
    const double share = bench->passed_s > 0.0 ? bench->ran_s / bench->passed_s : 1.0;
    return share < 1.0 ? share : 1.0;
}

static void tile_nothing(void *context, int64_t tile, uint32_t worker)
{
    (void)context, (void)tile, (void)worker;
}

double ls_probe_launch_s(ls_probe_bench *bench)
{
    enum { CALLS = 200 };
    const double start_s = ls_clock_monotonic_s();
    for (int i = 0; i < CALLS; i++) {
        ls_queue_run_tiles(bench->queue, ls_queue_threads(bench->queue), tile_nothing, NULL);
    }
    return (ls_clock_monotonic_s() - start_s) / CALLS;
}

/* ---- life ---- */

static const char no_memory[] = "not enough memory to measure the speed of this machine";

static ls_status region_init(ls_probe_bench *bench, region *r, int64_t count, bool is_shared)
{
    const size_t bytes = (size_t)count * sizeof(float);
    void *memory = NULL;
    if (is_shared) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return ls_fail(LS_ERR_MEMORY, no_memory);
        }
    } else {
        LS_TRY(ls_device_alloc(bench->queue, bytes, &memory));
    }
    *r = (region){.floats = memory, .is_shared = is_shared, .count = count, .past = count};
    fill_random(r->floats, count);
    return LS_OK;
}

static void region_release(const ls_probe_bench *bench, region *r)
{
    const size_t bytes = (size_t)r->count * sizeof(float);
    if (r->is_shared) {
        munmap(r->floats, bytes);
    } else {
        ls_device_free(bench->queue, r->floats, bytes);
    }
}

static ls_status bench_init(ls_probe_bench *bench, uint32_t threads, bool as_rank)
{
    LS_TRY(ls_queue_create_cpu(threads, &bench->queue));
    LS_TRY(region_init(bench, &bench->in, region_floats(threads), false));
    LS_TRY(region_init(bench, &bench->out, region_floats(threads), false));
    LS_TRY(region_init(bench, &bench->state, STATE_FLOATS, as_rank));
    bench->tokens = calloc(TOKENS, sizeof *bench->tokens);
    if (!bench->tokens) {
        return ls_fail(LS_ERR_MEMORY, no_memory);
    }
    for (uint32_t i = 0; i < TOKENS; i++) {
        bench->tokens[i] = (int32_t)(i * 2654435761u >> 8) % VOCAB;
    }
    return LS_OK;
}

ls_status ls_probe_bench_create(uint32_t threads, bool as_rank, ls_probe_bench **bench_out)
{
    ls_probe_bench *bench = calloc(1, sizeof *bench);
    if (!bench) {
        return ls_fail(LS_ERR_MEMORY, no_memory);
    }
    const ls_status status = bench_init(bench, threads, as_rank);
    if (status != LS_OK) {
        ls_probe_bench_destroy(bench);
        return status;
    }
    *bench_out = bench;
    return LS_OK;
}

void ls_probe_bench_destroy(ls_probe_bench *bench)
{
    if (!bench) {
        return;
    }
    if (bench->queue) {
        region_release(bench, &bench->in);
        region_release(bench, &bench->out);
        region_release(bench, &bench->state);
    }
    ls_queue_destroy(bench->queue);
    free(bench->tokens);
    free(bench);
}
