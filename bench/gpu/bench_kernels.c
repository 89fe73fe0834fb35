// SPDX-License-Identifier: Apache-2.0
/*
 * Times every memory-bound kernel of a GPU on the shapes of a training step, beside the rate of a
 * copy on the same card.
 *
 *   gpu_bench_kernels [--small] [WORD]       WORD: only ops whose names contain it
 *
 * Shapes are those of GPT-2 124M with 65536 tokens and of a 1B Llama with 32768 tokens, in bfloat16.
 * A figure is the median of several calls, timed by events on the card. The calls take turns with
 * several sets of buffers, so that no input is left in the cache by the call before. GB/s counts
 * the bytes that a call must move: each input read once, each output written once. Ops that this
 * build can't do are left out. --small takes small shapes, to see that it runs.
 *
 * Exit code: 0; 1 for an error; 77 without a GPU.
 */
#include "base/half.h"
#include "base/random.h"
#include "compute/cuda/column_sums.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/activation.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/embedding.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/rotary.h"
#include "compute/kernels/tree_sum.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNS = 15,
    WARM_UPS = 3,
    SETS_MAX = 4,
    EXIT_SKIPPED = 77,
    /* Random bytes made on the host; the pool is filled with copies of them. */
    SEED_BYTES = 8 << 20,
    SUM_INPUTS = 4,
};

typedef struct shape {
    const char *name;
    int64_t rows, width, ffn, heads, kv_heads, head_dim;
    int64_t positions, vocab, head_rows;
    /* Elements of the buffers of the optimizer and of the tree. */
    int64_t flat;
    ls_norm_kind norm;
} shape;

static const shape shapes[] = {
    {"GPT-2 124M", 65536, 768, 3072, 12, 12, 64, 1024, 50257, 8192, 124 << 20, LS_NORM_LAYER},
    {"Llama 1B", 32768, 2048, 8192, 32, 8, 64, 4096, 128256, 8192, 256 << 20, LS_NORM_RMS},
};

typedef struct bench {
    ls_queue *queue;
    ls_queue_cuda *cuda;
    shape s;
    /* Device memory for the buffers of all sets. */
    char *pool;
    size_t pool_bytes;
    /* Where the next buffer of the call goes; what the call must move, so far. */
    size_t cursor, traffic_bytes;
    /* Ids in memory of the host, and how many of them differ. */
    int32_t *tokens;
    int64_t distinct_tokens;
    float *losses;
    double copy_gbps;
} bench;

/* ---- buffers of a call ---- */

static void *take(bench *b, size_t bytes)
{
    char *memory = b->pool + b->cursor;
    b->cursor += (bytes + 4095) / 4096 * 4096;
    return memory;
}

/* A matrix that the call passes over `times` times: 1 for an input or output, 2 for what it adds to. */
static ls_tensor matrix(bench *b, ls_dtype dtype, int64_t rows, int64_t cols, int times)
{
    const size_t bytes = (size_t)(rows * cols * ls_dtype_bytes(dtype));
    b->traffic_bytes += bytes * (size_t)times;
    return ls_tensor_of(take(b, bytes), dtype, rows, cols);
}

/* (rows, cols) of bfloat16. */
static ls_tensor activation(bench *b, int64_t cols, int times)
{
    return matrix(b, LS_BF16, b->s.rows, cols, times);
}

/* ---- the calls ---- */

static ls_norm norm_of(bench *b, int64_t width, int64_t groups)
{
    ls_norm norm = {.kind = b->s.norm, .eps = 1e-5f, .groups = groups};
    norm.weight = matrix(b, LS_BF16, 1, width, 1);
    if (norm.kind == LS_NORM_LAYER) {
        norm.bias = matrix(b, LS_BF16, 1, width, 1);
    }
    return norm;
}

static ls_tensor mean_of(bench *b)
{
    return b->s.norm == LS_NORM_LAYER ? matrix(b, LS_F32, b->s.rows, 1, 1) : (ls_tensor){0};
}

static ls_status norm_forward(bench *b)
{
    const ls_norm norm = norm_of(b, b->s.width, 1);
    const ls_tensor x = activation(b, b->s.width, 1), y = activation(b, b->s.width, 1);
    const ls_tensor mean = mean_of(b), rstd = matrix(b, LS_F32, b->s.rows, 1, 1);
    return ls_norm_forward(b->queue, &norm, &x, &y, &mean, &rstd);
}

static ls_status norm_forward_residual(bench *b)
{
    const ls_norm norm = norm_of(b, b->s.width, 1);
    const ls_tensor x = activation(b, b->s.width, 1), more = activation(b, b->s.width, 1);
    const ls_tensor sum = activation(b, b->s.width, 1), y = activation(b, b->s.width, 1);
    const ls_tensor mean = mean_of(b), rstd = matrix(b, LS_F32, b->s.rows, 1, 1);
    return ls_norm_forward_residual(b->queue, &norm, &x, &more, &sum, &y, &mean, &rstd);
}

static ls_tensor norm_workspace(bench *b, int64_t cols, int64_t groups)
{
    const int64_t floats = ls_norm_workspace_floats(b->queue, b->s.rows, cols, groups);
    return ls_tensor_f32(take(b, (size_t)floats * sizeof(float)), 1, floats);
}

static ls_status norm_backward_into(bench *b, bool accumulate)
{
    const int64_t width = b->s.width;
    const ls_norm norm = norm_of(b, width, 1);
    const ls_tensor x = activation(b, width, 1), dy = activation(b, width, 1);
    const ls_tensor dx = activation(b, width, accumulate ? 2 : 1);
    const ls_tensor mean = mean_of(b), rstd = matrix(b, LS_F32, b->s.rows, 1, 1);
    const ls_tensor dweight = matrix(b, LS_F32, 1, width, 2), dbias = matrix(b, LS_F32, 1, width, 2);
    const ls_tensor workspace = norm_workspace(b, width, 1), absent = {0};
    return ls_norm_backward(b->queue, &norm, &x, &dy, &mean, &rstd, &dx, accumulate, &dweight,
                            norm.kind == LS_NORM_LAYER ? &dbias : &absent, true, &workspace);
}

static ls_status norm_backward(bench *b)
{
    return norm_backward_into(b, false);
}

static ls_status norm_backward_accumulate(bench *b)
{
    return norm_backward_into(b, true);
}

/* The columns of q in the fused q, k and v, passed over `times` times. */
static ls_tensor queries(bench *b, int times)
{
    const int64_t cols = b->s.heads * b->s.head_dim;
    const int64_t all = (b->s.heads + 2 * b->s.kv_heads) * b->s.head_dim;
    b->traffic_bytes += (size_t)(b->s.rows * cols * 2 * times);
    const ls_tensor qkv = ls_tensor_of(take(b, (size_t)(b->s.rows * all * 2)), LS_BF16, b->s.rows, all);
    return ls_tensor_columns(qkv, 0, cols);
}

/* RMS norm of each head. */
static ls_status qk_norm_forward(bench *b)
{
    ls_norm norm = norm_of(b, b->s.head_dim, b->s.heads);
    norm.kind = LS_NORM_RMS;
    norm.bias.data = NULL;
    const ls_tensor q = queries(b, 1), y = activation(b, q.cols, 1), absent = {0};
    const ls_tensor rstd = matrix(b, LS_F32, b->s.rows, b->s.heads, 1);
    return ls_norm_forward(b->queue, &norm, &q, &y, &absent, &rstd);
}

static ls_status qk_norm_backward(bench *b)
{
    ls_norm norm = norm_of(b, b->s.head_dim, b->s.heads);
    norm.kind = LS_NORM_RMS;
    norm.bias.data = NULL;
    const ls_tensor q = queries(b, 1), dq = queries(b, 2), absent = {0};
    const ls_tensor rstd = matrix(b, LS_F32, b->s.rows, b->s.heads, 1);
    const ls_tensor dweight = matrix(b, LS_F32, 1, b->s.head_dim, 2);
    const ls_tensor workspace = norm_workspace(b, q.cols, b->s.heads);
    return ls_norm_backward(b->queue, &norm, &q, &dq, &absent, &rstd, &dq, false, &dweight, &absent, true,
                            &workspace);
}

static ls_status rotary(bench *b)
{
    const ls_tensor q = queries(b, 2);
    const ls_tensor cosine = matrix(b, LS_F32, b->s.positions, b->s.head_dim / 2, 1);
    const ls_tensor sine = matrix(b, LS_F32, b->s.positions, b->s.head_dim / 2, 1);
    return ls_rotary_apply(b->queue, &q, b->s.heads, b->s.head_dim, &(ls_positions){.length = b->s.positions},
                           &cosine, &sine, false);
}

static ls_status gelu_forward(bench *b)
{
    const ls_tensor x = activation(b, b->s.ffn, 1), y = activation(b, b->s.ffn, 1);
    return ls_gelu_forward(b->queue, &x, &y);
}

static ls_status gelu_backward(bench *b)
{
    const ls_tensor x = activation(b, b->s.ffn, 1), dy = activation(b, b->s.ffn, 2);
    return ls_gelu_backward(b->queue, &x, &dy, &dy);
}

static ls_status swiglu_forward(bench *b)
{
    const ls_tensor gate_up = activation(b, 2 * b->s.ffn, 1), y = activation(b, b->s.ffn, 1);
    return ls_swiglu_forward(b->queue, &gate_up, &y);
}

static ls_status swiglu_backward(bench *b)
{
    const ls_tensor gate_up = activation(b, 2 * b->s.ffn, 2), dy = activation(b, b->s.ffn, 1);
    return ls_swiglu_backward(b->queue, &gate_up, &dy, &gate_up);
}

static ls_status column_sums(bench *b)
{
    const ls_tensor dy = activation(b, b->s.width, 1), sum = matrix(b, LS_F32, 1, b->s.width, 2);
    return ls_cuda_column_sums(b->cuda, &dy, &sum, true);
}

static ls_status column_sums_wide(bench *b)
{
    const ls_tensor dy = activation(b, b->s.ffn, 1), sum = matrix(b, LS_F32, 1, b->s.ffn, 2);
    return ls_cuda_column_sums(b->cuda, &dy, &sum, true);
}

static ls_status add(bench *b)
{
    const ls_tensor x = activation(b, b->s.width, 2), y = activation(b, b->s.width, 1);
    return ls_add(b->queue, &x, &y, &x);
}

static ls_status copy(bench *b)
{
    const ls_tensor x = activation(b, b->s.ffn, 1), y = activation(b, b->s.ffn, 1);
    return ls_copy(b->queue, &x, &y);
}

static ls_status fill(bench *b)
{
    const ls_tensor x = activation(b, b->s.ffn, 1);
    return ls_fill(b->queue, &x, 1.0f);
}

/* A chunk of logits whose rows are padded to 64 elements, as the head's weight is. */
static ls_status cross_entropy_with(bench *b, bool with_gradient)
{
    const int64_t padded = (b->s.vocab + 63) / 64 * 64;
    ls_tensor logits = matrix(b, LS_BF16, b->s.head_rows, padded, with_gradient ? 2 : 1);
    logits.cols = b->s.vocab;
    return ls_cross_entropy(b->queue, NULL, &logits, b->tokens, b->losses, with_gradient);
}

static ls_status cross_entropy(bench *b)
{
    return cross_entropy_with(b, true);
}

static ls_status cross_entropy_loss(bench *b)
{
    return cross_entropy_with(b, false);
}

/* Rows of the table that tokens name, passed over `times` times. */
static ls_tensor table_of(bench *b, ls_dtype dtype, int times)
{
    const ls_tensor table = matrix(b, dtype, b->s.vocab, b->s.width, 0);
    b->traffic_bytes += (size_t)(b->distinct_tokens * b->s.width * ls_dtype_bytes(dtype) * times);
    return table;
}

static ls_status embedding_forward(bench *b)
{
    const ls_tensor table = table_of(b, LS_BF16, 1), out = activation(b, b->s.width, 1);
    const ls_tensor absent = {0};
    return ls_embedding_forward(b->queue, b->tokens, &table, &absent,
                                &(ls_positions){.length = b->s.positions}, &out);
}

static ls_status embedding_backward(bench *b)
{
    const ls_tensor dtable = table_of(b, LS_F32, 2), dout = activation(b, b->s.width, 1);
    const ls_tensor absent = {0};
    return ls_embedding_backward(b->queue, b->tokens, &dout, &(ls_positions){.length = b->s.positions},
                                 &dtable, &absent);
}

static ls_status adamw_of(bench *b, ls_master master)
{
    const ls_adamw_factors factors = ls_adamw_factors_of(&(ls_adamw){.lr = 1e-4f,
                                                                     .beta1 = 0.9f,
                                                                     .beta2 = 0.95f,
                                                                     .eps = 1e-8f,
                                                                     .weight_decay = 0.1f,
                                                                     .gradient_scale = 1.0f,
                                                                     .step = 10});
    const ls_tensor gradients = matrix(b, LS_F32, 1, b->s.flat, 1);
    const ls_tensor m = matrix(b, LS_F32, 1, b->s.flat, 2), v = matrix(b, LS_F32, 1, b->s.flat, 2);
    return ls_adamw_update(b->queue, &factors, b->s.flat, &master, gradients.data, m.data, v.data);
}

static ls_status adamw_values(bench *b)
{
    const ls_tensor values = matrix(b, LS_F32, 1, b->s.flat, 2);
    return adamw_of(b, (ls_master){.values = values.data});
}

static ls_status adamw_split(bench *b)
{
    const ls_tensor weights = matrix(b, LS_BF16, 1, b->s.flat, 2),
                    rests = matrix(b, LS_BF16, 1, b->s.flat, 2);
    return adamw_of(b, (ls_master){.weights = weights.data, .rests = rests.data});
}

/* ((0 + 1) + (2 + 3)) with the sums of squares. */
static ls_status tree_sum(bench *b)
{
    static const uint16_t program[] = {0, 1, LS_TREE_SUM_ADD, 2, 3, LS_TREE_SUM_ADD, LS_TREE_SUM_ADD};
    const ls_tree_sum sum = {.program = program, .length = 7, .depth = 3, .input_count = SUM_INPUTS};
    const float *inputs[SUM_INPUTS];
    for (int i = 0; i < SUM_INPUTS; i++) {
        inputs[i] = matrix(b, LS_F32, 1, b->s.flat, 1).data;
    }
    float *out = matrix(b, LS_F32, 1, b->s.flat, 1).data;
    const int64_t blocks = (b->s.flat + LS_NORM_BLOCK - 1) / LS_NORM_BLOCK;
    double *squares = matrix(b, LS_I64, 1, blocks, 1).data;
    return ls_tree_sum_run(b->queue, &sum, inputs, b->s.flat, out, squares);
}

/* ---- timing ---- */

typedef struct timed_op {
    const char *name;
    /* For the table: rows x cols of one of its matrices; 0: elements of the flat buffers. */
    int64_t (*cols)(const shape *s);
    ls_status (*call)(bench *b);
} timed_op;

static int64_t cols_width(const shape *s)
{
    return s->width;
}

static int64_t cols_ffn(const shape *s)
{
    return s->ffn;
}

static int64_t cols_gate_up(const shape *s)
{
    return 2 * s->ffn;
}

static int64_t cols_queries(const shape *s)
{
    return s->heads * s->head_dim;
}

static int64_t cols_vocab(const shape *s)
{
    return s->vocab;
}

static int64_t cols_flat(const shape *s)
{
    (void)s;
    return 0;
}

static const timed_op ops[] = {
    {"copy", cols_ffn, copy},
    {"fill", cols_ffn, fill},
    {"add", cols_width, add},
    {"norm_forward", cols_width, norm_forward},
    {"norm_forward_residual", cols_width, norm_forward_residual},
    {"norm_backward", cols_width, norm_backward},
    {"norm_backward, accumulate", cols_width, norm_backward_accumulate},
    {"norm_forward per head", cols_queries, qk_norm_forward},
    {"norm_backward per head", cols_queries, qk_norm_backward},
    {"rotary", cols_queries, rotary},
    {"gelu_forward", cols_ffn, gelu_forward},
    {"gelu_backward", cols_ffn, gelu_backward},
    {"swiglu_forward", cols_gate_up, swiglu_forward},
    {"swiglu_backward", cols_gate_up, swiglu_backward},
    {"column_sums", cols_width, column_sums},
    {"column_sums", cols_ffn, column_sums_wide},
    {"embedding_forward", cols_width, embedding_forward},
    {"embedding_backward", cols_width, embedding_backward},
    {"cross_entropy", cols_vocab, cross_entropy},
    {"cross_entropy, loss only", cols_vocab, cross_entropy_loss},
    {"adamw, float32", cols_flat, adamw_values},
    {"adamw, weights and rests", cols_flat, adamw_split},
    {"tree_sum of 4", cols_flat, tree_sum},
};

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Fills the first `bytes` of the pool with the random block at its start, doubling it. */
static ls_status fill_pool(bench *b, size_t bytes)
{
    bytes = bytes < b->pool_bytes ? bytes : b->pool_bytes;
    for (size_t done = SEED_BYTES; done < bytes;) {
        const size_t more = done < bytes - done ? done : bytes - done;
        LS_TRY(ls_queue_move(b->queue, b->pool + done, b->pool, more));
        done += more;
    }
    return LS_OK;
}

/* The random block goes to the start of the pool again, since the calls have written there. */
static ls_status seed_pool(bench *b, const void *seed)
{
    return ls_queue_move(b->queue, b->pool, seed, SEED_BYTES);
}

/* Median of the times between events around `RUNS` calls that use `sets` sets of buffers. */
static ls_status time_calls(bench *b, ls_status (*call)(bench *), size_t set_bytes, int sets, double *us_out)
{
    const ls_cuda_driver *driver = b->cuda->driver;
    CUevent events[RUNS + 1];
    float ms[RUNS];
    for (int i = 0; i <= RUNS; i++) {
        CU_TRY(driver, cuEventCreate, &events[i], CU_EVENT_DEFAULT);
    }
    for (int i = -WARM_UPS; i < RUNS; i++) {
        b->cursor = (size_t)((i + WARM_UPS) % sets) * set_bytes;
        LS_TRY(call(b));
        if (i >= -1) {
            CU_TRY(driver, cuEventRecord, events[i + 1], b->cuda->stream);
        }
    }
    LS_TRY(ls_queue_wait(b->queue));
    for (int i = 0; i < RUNS; i++) {
        CU_TRY(driver, cuEventElapsedTime, &ms[i], events[i], events[i + 1]);
    }
    for (int i = 0; i <= RUNS; i++) {
        CU_TRY(driver, cuEventDestroy, events[i]);
    }
    qsort(ms, RUNS, sizeof ms[0], compare_floats);
    *us_out = 1e3 * ms[RUNS / 2];
    return LS_OK;
}

static void print_row(const bench *b, const timed_op *op, double us)
{
    char text[48];
    const int64_t cols = op->cols(&b->s);
    if (cols == 0) {
        snprintf(text, sizeof text, "%lld", (long long)b->s.flat);
    } else {
        const int64_t rows = cols == b->s.vocab ? b->s.head_rows : b->s.rows;
        snprintf(text, sizeof text, "%lld x %lld", (long long)rows, (long long)cols);
    }
    const double gbps = (double)b->traffic_bytes / (us * 1e3);
    printf("%-12s %-26s %-16s %10.1f %8.0f %6.0f\n", b->s.name, op->name, text, us, gbps,
           100.0 * gbps / b->copy_gbps);
    fflush(stdout);
}

/* Times one op and prints its row. Skips it if it is not there, or needs more memory than there is. */
static ls_status time_op(bench *b, const timed_op *op, const void *seed)
{
    b->cursor = b->traffic_bytes = 0;
    LS_TRY(seed_pool(b, seed));
    const ls_status status = op->call(b);
    if (status == LS_ERR_UNSUPPORTED) {
        return LS_OK;
    }
    LS_TRY(status);
    LS_TRY(ls_queue_wait(b->queue));
    const size_t set_bytes = b->cursor, traffic_bytes = b->traffic_bytes;
    const size_t fit = b->pool_bytes / set_bytes;
    const int sets = fit < SETS_MAX ? (int)fit : SETS_MAX;
    LS_TRY(seed_pool(b, seed));
    LS_TRY(fill_pool(b, set_bytes * (size_t)sets));
    double us;
    LS_TRY(time_calls(b, op->call, set_bytes, sets, &us));
    b->traffic_bytes = traffic_bytes;
    print_row(b, op, us);
    return LS_OK;
}

/* One copy of half of the pool, at most 2 GiB, to the other half. */
static ls_status copy_once(bench *b)
{
    const size_t half = b->pool_bytes / 2, most = (size_t)2 << 30, bytes = half < most ? half : most;
    b->cursor = 0;
    b->traffic_bytes = 2 * bytes;
    return ls_queue_move(b->queue, b->pool + half, b->pool, bytes);
}

static ls_status measure_copy(bench *b)
{
    double us;
    LS_TRY(time_calls(b, copy_once, 0, 1, &us));
    b->copy_gbps = (double)b->traffic_bytes / (us * 1e3);
    printf("%s\ncopy of %.1f GiB on the card: %.0f us, %.0f GB/s\n\n", ls_queue_device_name(b->queue),
           (double)b->traffic_bytes / 2 / (1 << 30), us, b->copy_gbps);
    printf("%-12s %-26s %-16s %10s %8s %6s\n", "model", "op", "shape", "us", "GB/s", "% copy");
    return LS_OK;
}

/* ---- inputs ---- */

/* Ids whose frequency falls with 1 / id, as that of words does. */
static void make_tokens(bench *b)
{
    const ls_random_key key = ls_random_stream(1, LS_RANDOM_TEST);
    char *seen = calloc((size_t)b->s.vocab, 1);
    b->distinct_tokens = 0;
    for (int64_t i = 0; i < b->s.rows; i++) {
        const double id = exp(ls_random_uniform64(key, (uint64_t)i, 1) * log((double)b->s.vocab)) - 1.0;
        b->tokens[i] = (int32_t)id;
        if (seen && !seen[b->tokens[i]]) {
            seen[b->tokens[i]] = 1;
            b->distinct_tokens++;
        }
    }
    free(seen);
}

/* bfloat16 numbers between -2 and 2; as pairs, they are float32 numbers of the same range. */
static uint16_t *make_seed(void)
{
    const ls_random_key key = ls_random_stream(1, LS_RANDOM_TEST);
    uint16_t *seed = malloc(SEED_BYTES);
    for (size_t i = 0; seed && i < SEED_BYTES / 2; i++) {
        seed[i] = ls_bf16_from_f32((float)(4.0 * ls_random_uniform64(key, i, 0) - 2.0));
    }
    return seed;
}

static shape scaled(shape s, bool is_small)
{
    if (is_small) {
        s.rows /= 512;
        s.head_rows /= 1024;
        s.flat /= 1024;
        s.vocab /= 64;
        s.positions = s.rows / 2;
    }
    return s;
}

static ls_status run(bench *b, const uint16_t *seed, bool is_small, const char *word)
{
    LS_TRY(seed_pool(b, seed));
    LS_TRY(fill_pool(b, b->pool_bytes));
    LS_TRY(measure_copy(b));
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        b->s = scaled(shapes[k], is_small);
        make_tokens(b);
        for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
            if (strstr(ops[i].name, word)) {
                LS_TRY(time_op(b, &ops[i], seed));
            }
        }
    }
    return ls_queue_wait(b->queue);
}

int main(int argc, char **argv)
{
    const bool is_small = argc > 1 && strcmp(argv[1], "--small") == 0;
    const char *word = argc > 1 + is_small ? argv[1 + is_small] : "";
    bench b = {.pool_bytes = is_small ? (size_t)256 << 20 : (size_t)16 << 30};
    if (ls_queue_create_cuda(&(ls_cuda_options){0}, &b.queue) != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
        return EXIT_SKIPPED;
    }
    b.cuda = ls_cuda_of(b.queue);
    uint16_t *seed = make_seed();
    const size_t shared_bytes = (size_t)shapes[0].rows * sizeof(int32_t);
    void *pool = NULL, *tokens = NULL, *losses = NULL;
    ls_status status = seed ? LS_OK : LS_ERR_MEMORY;
    LS_TRY_GOTO(status, ls_device_alloc(b.queue, b.pool_bytes, &pool), done);
    LS_TRY_GOTO(status, ls_shared_alloc(b.queue, shared_bytes, &tokens), done);
    LS_TRY_GOTO(status, ls_shared_alloc(b.queue, shared_bytes, &losses), done);
    b.pool = pool;
    b.tokens = tokens;
    b.losses = losses;
    status = run(&b, seed, is_small, word);
done:
    if (status != LS_OK) {
        fprintf(stderr, "%s: %s\n", ls_status_name(status), ls_error_text());
    }
    ls_shared_free(b.queue, losses, shared_bytes);
    ls_shared_free(b.queue, tokens, shared_bytes);
    ls_device_free(b.queue, pool, b.pool_bytes);
    ls_queue_destroy(b.queue);
    free(seed);
    return status == LS_OK ? 0 : 1;
}
