// SPDX-License-Identifier: Apache-2.0
/*
 * Times every CPU kernel on the shapes of GPT-2 124M (B 4, T 64 and T 1024) and of a 6 x 384 byte
 * model (B 4, T 256).
 *
 *   bench_kernels [threads]          LS_ISA=avx2 bench_kernels 2
 *
 * Prints the best of several calls as GB/s of the bytes the kernel must touch, or GFLOP/s of the
 * useful work (half of the T x T square for attention), beside two limits measured first: the
 * queue's copy rate and its matrix-product rate. Not a test: other load on the machine shows in
 * every figure.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "compute/kernels/activation.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/embedding.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/rotary.h"
#include "compute/queue.h"

#include <stdio.h>
#include <stdlib.h>

enum { CALLS_MAX = 50 };
static const double seconds_per_kernel = 0.3;

typedef struct bench {
    ls_queue *queue;
    int64_t sequences, length, heads, head_dim, vocab;
    float *buffer[6]; /* each large enough for the widest activation */
    int32_t *tokens;
    int32_t *first; /* of records in attention; NULL: none */
} bench;

typedef ls_status (*bench_fn)(const bench *b);

static double best_s(bench_fn fn, const bench *b)
{
    double best = 1e9, spent = 0.0;
    for (int i = 0; i < CALLS_MAX && spent < seconds_per_kernel; i++) {
        const double start = ls_clock_monotonic_s();
        if (fn(b) != LS_OK) {
            fprintf(stderr, "%s\n", ls_error_text());
            abort();
        }
        const double took = ls_clock_monotonic_s() - start;
        spent += took;
        best = took < best ? took : best;
    }
    return best;
}

static int64_t rows(const bench *b)
{
    return b->sequences * b->length;
}

static int64_t width(const bench *b)
{
    return b->heads * b->head_dim;
}

static ls_tensor view(const bench *b, int which, int64_t cols)
{
    return ls_tensor_f32(b->buffer[which], rows(b), cols);
}

static ls_norm layer_norm(const bench *b)
{
    return (ls_norm){.kind = LS_NORM_LAYER,
                     .eps = 1e-5f,
                     .groups = 1,
                     .weight = ls_tensor_f32(b->buffer[5], 1, width(b)),
                     .bias = ls_tensor_f32(b->buffer[5], 1, width(b))};
}

static ls_status run_norm(const bench *b)
{
    const ls_norm norm = layer_norm(b);
    const ls_tensor a = view(b, 0, width(b)), c = view(b, 1, width(b)), sum = view(b, 2, width(b));
    const ls_tensor y = view(b, 3, width(b)), mean = view(b, 4, 1),
                    rstd = ls_tensor_f32(b->buffer[4] + rows(b), rows(b), 1);
    return ls_norm_forward_residual(b->queue, &norm, &a, &c, &sum, &y, &mean, &rstd);
}

static ls_status run_norm_backward(const bench *b)
{
    const ls_norm norm = layer_norm(b);
    const int64_t c = width(b), parts = ls_norm_workspace_floats(NULL, rows(b), c, 1);
    const ls_tensor x = view(b, 0, c), dy = view(b, 1, c), dx = view(b, 2, c), mean = view(b, 4, 1);
    const ls_tensor rstd = ls_tensor_f32(b->buffer[4] + rows(b), rows(b), 1);
    const ls_tensor dw = ls_tensor_f32(b->buffer[3], 1, c), db = ls_tensor_f32(b->buffer[3] + c, 1, c);
    const ls_tensor workspace = ls_tensor_f32(b->buffer[3] + 2 * c, 1, parts);
    return ls_norm_backward(b->queue, &norm, &x, &dy, &mean, &rstd, &dx, true, &dw, &db, true, &workspace);
}

static ls_status run_gelu(const bench *b)
{
    const ls_tensor x = view(b, 0, 4 * width(b)), y = view(b, 1, 4 * width(b));
    return ls_gelu_forward(b->queue, &x, &y);
}

static ls_status run_gelu_backward(const bench *b)
{
    const ls_tensor x = view(b, 0, 4 * width(b)), dy = view(b, 1, 4 * width(b));
    return ls_gelu_backward(b->queue, &x, &dy, &dy);
}

static ls_status run_swiglu(const bench *b)
{
    const ls_tensor x = view(b, 0, 4 * width(b)), y = view(b, 1, 2 * width(b));
    return ls_swiglu_forward(b->queue, &x, &y);
}

static ls_status run_rotary(const bench *b)
{
    const ls_tensor x = view(b, 0, width(b)), table = ls_tensor_f32(b->buffer[5], b->length, b->head_dim / 2);
    return ls_rotary_apply(b->queue, &x, b->heads, b->head_dim, &(ls_positions){.length = b->length}, &table,
                           &table, false);
}

static ls_status run_embedding_backward(const bench *b)
{
    const ls_tensor dout = view(b, 0, width(b)), dtable = ls_tensor_f32(b->buffer[1], 256, width(b));
    const ls_tensor dpositions = ls_tensor_f32(b->buffer[2], b->length, width(b));
    return ls_embedding_backward(b->queue, b->tokens, &dout, &(ls_positions){.length = b->length}, &dtable,
                                 &dpositions);
}

static ls_status run_cross_entropy(const bench *b)
{
    const ls_tensor logits = ls_tensor_f32(b->buffer[0], 64, b->vocab);
    return ls_cross_entropy(b->queue, NULL, &logits, b->tokens, b->buffer[1], true);
}

static ls_status run_add(const bench *b)
{
    const ls_tensor x = view(b, 0, 4 * width(b)), y = view(b, 1, 4 * width(b)), z = view(b, 2, 4 * width(b));
    return ls_add(b->queue, &x, &y, &z);
}

static ls_status run_copy(const bench *b)
{
    const ls_tensor x = view(b, 0, 4 * width(b)), y = view(b, 1, 4 * width(b));
    return ls_copy(b->queue, &x, &y);
}

enum { ADAMW_TILE = 32768 };

typedef struct adamw_bench {
    const bench *b;
    ls_adamw_factors factors;
    int64_t count;
} adamw_bench;

static void run_adamw_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const adamw_bench *a = context;
    const int64_t at = tile * ADAMW_TILE, left = a->count - at;
    float *const *buffer = a->b->buffer;
    const ls_master parameters = {.values = buffer[0] + at};
    const ls_status status = ls_adamw_update(a->b->queue, &a->factors, left < ADAMW_TILE ? left : ADAMW_TILE,
                                             &parameters, buffer[1] + at, buffer[2] + at, buffer[3] + at);
    LS_ASSERT(status == LS_OK);
}

static ls_status run_adamw(const bench *b)
{
    const ls_adamw adamw = {.lr = 1e-3f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .gradient_scale = 1.0f,
                            .step = 3};
    adamw_bench a = {.b = b, .factors = ls_adamw_factors_of(&adamw), .count = 4 * width(b) * rows(b)};
    ls_queue_run_tiles(b->queue, (a.count + ADAMW_TILE - 1) / ADAMW_TILE, run_adamw_tile, &a);
    return LS_OK;
}

static ls_attention attention_shape(const bench *b)
{
    return (ls_attention){.sequences = b->sequences,
                          .length = b->length,
                          .heads = b->heads,
                          .kv_heads = b->heads,
                          .head_dim = b->head_dim,
                          .scale = 0.125f,
                          .first = b->first};
}

static ls_status run_attention(const bench *b)
{
    const ls_attention a = attention_shape(b);
    const ls_tensor qkv = view(b, 0, 3 * width(b)), out = view(b, 1, width(b)), lse = view(b, 2, b->heads);
    const ls_tensor q = ls_tensor_columns(qkv, 0, width(b)), k = ls_tensor_columns(qkv, width(b), width(b));
    const ls_tensor v = ls_tensor_columns(qkv, 2 * width(b), width(b));
    return ls_attention_forward(b->queue, &a, &q, &k, &v, &out, &lse);
}

static ls_status run_attention_backward(const bench *b)
{
    const ls_attention a = attention_shape(b);
    const int64_t c = width(b);
    const ls_tensor qkv = view(b, 0, 3 * c), dqkv = view(b, 3, 3 * c), none = {0};
    const ls_tensor q = ls_tensor_columns(qkv, 0, c), k = ls_tensor_columns(qkv, c, c);
    const ls_tensor v = ls_tensor_columns(qkv, 2 * c, c), out = view(b, 1, c), lse = view(b, 2, b->heads);
    const ls_tensor dq = ls_tensor_columns(dqkv, 0, c), dk = ls_tensor_columns(dqkv, c, c);
    const ls_tensor dv = ls_tensor_columns(dqkv, 2 * c, c), dout = view(b, 4, c);
    return ls_attention_backward(b->queue, &a, &q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv, &none);
}

static void print_rate(const char *name, double work, const char *unit, double seconds, double limit)
{
    printf("  %-22s %9.1f us %8.1f %-8s %5.0f %% of limit\n", name, 1e6 * seconds, 1e-9 * work / seconds,
           unit, 100.0 * work / seconds / limit);
}

static void inputs_fill(bench *b, int64_t floats)
{
    for (int k = 0; k < 6; k++) {
        for (int64_t i = 0; i < floats; i++) {
            b->buffer[k][i] =
                (float)((i * 2654435761u + (uint64_t)k * 40503u) % 1000) * 1e-3f - (k == 3 ? 0.0f : 0.5f);
        }
    }
}

static void bench_shape(bench *b, const char *name, double flops_limit)
{
    const int64_t n = rows(b), c = width(b), floats = 4 * n * c > 64 * b->vocab ? 4 * n * c : 64 * b->vocab;
    for (int k = 0; k < 6; k++) {
        if (ls_device_alloc(b->queue, (size_t)floats * sizeof(float), (void **)&b->buffer[k]) != LS_OK) {
            fprintf(stderr, "%s\n", ls_error_text());
            abort();
        }
    }
    b->tokens = calloc((size_t)(n > 64 ? n : 64), sizeof *b->tokens);
    inputs_fill(b, floats);
    for (int64_t i = 0; i < n; i++) {
        b->tokens[i] = (int32_t)(i * 37 % 256);
    }
    const double wide = 4.0 * (double)(n * c); /* bytes of one activation */
    const double copy = 8.0 * wide / best_s(run_copy, b);
    printf("%s: copy %.1f GB/s, matrix products %.1f GFLOP/s\n", name, 1e-9 * copy, 1e-9 * flops_limit);
    print_rate("add", 12.0 * wide, "GB/s", best_s(run_add, b), copy);
    print_rate("adamw", 28.0 * wide, "GB/s", best_s(run_adamw, b), copy);
    inputs_fill(b, floats);
    print_rate("norm + residual", 4.0 * wide, "GB/s", best_s(run_norm, b), copy);
    print_rate("norm backward", 4.0 * wide, "GB/s", best_s(run_norm_backward, b), copy);
    inputs_fill(b, floats);
    print_rate("gelu", 8.0 * wide, "GB/s", best_s(run_gelu, b), copy);
    print_rate("gelu backward", 12.0 * wide, "GB/s", best_s(run_gelu_backward, b), copy);
    print_rate("swiglu", 6.0 * wide, "GB/s", best_s(run_swiglu, b), copy);
    print_rate("rotary", 2.0 * wide, "GB/s", best_s(run_rotary, b), copy);
    print_rate("embedding backward", 3.0 * wide, "GB/s", best_s(run_embedding_backward, b), copy);
    print_rate("cross-entropy", 64.0 * 8.0 * (double)b->vocab, "GB/s", best_s(run_cross_entropy, b), copy);
    inputs_fill(b, floats);
    const double pairs =
        0.5 * (double)(b->sequences * b->heads) * (double)b->length * (double)(b->length + 1);
    const double product = 2.0 * pairs * (double)b->head_dim;
    print_rate("attention forward", 2.0 * product, "GFLOP/s", best_s(run_attention, b), flops_limit);
    print_rate("attention backward", 5.0 * product, "GFLOP/s", best_s(run_attention_backward, b),
               flops_limit);
    /* The same windows, each with four records: a quarter of the pairs, and a bit. */
    const int64_t record = b->length / 4;
    b->first = calloc((size_t)n, sizeof *b->first);
    for (int64_t i = 0; i < n; i++) {
        b->first[i] = (int32_t)(i % b->length / record * record);
    }
    const double within = product * (double)(record + 1) / (double)(b->length + 1);
    print_rate("attention of 4 records", 2.0 * within, "GFLOP/s", best_s(run_attention, b), flops_limit);
    print_rate("and its backward", 5.0 * within, "GFLOP/s", best_s(run_attention_backward, b), flops_limit);
    free(b->first);
    for (int k = 0; k < 6; k++) {
        ls_device_free(b->queue, b->buffer[k], (size_t)floats * sizeof(float));
    }
    free(b->tokens);
}

int main(int argc, char **argv)
{
    ls_queue *queue = NULL;
    if (ls_queue_create_cpu(argc > 1 ? (uint32_t)atoi(argv[1]) : 1, &queue) != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
        return 2;
    }
    const double flops = ls_queue_gemm_peak_flops(queue, LS_F32);
    printf("%s, %u threads\n", ls_queue_device_name(queue), ls_queue_threads(queue));
    bench small = {.queue = queue, .sequences = 4, .length = 256, .heads = 6, .head_dim = 64, .vocab = 256};
    bench short_gpt2 = {
        .queue = queue, .sequences = 4, .length = 64, .heads = 12, .head_dim = 64, .vocab = 50257};
    bench long_gpt2 = {
        .queue = queue, .sequences = 4, .length = 1024, .heads = 12, .head_dim = 64, .vocab = 50257};
    bench_shape(&small, "6 x 384, B 4, T 256", flops);
    bench_shape(&short_gpt2, "GPT-2 124M, B 4, T 64", flops);
    bench_shape(&long_gpt2, "GPT-2 124M, B 4, T 1024", flops);
    ls_queue_destroy(queue);
    return 0;
}
