// SPDX-License-Identifier: Apache-2.0
/*
 * Attention for generation on an NVIDIA GPU: the time of one call for one new token, and the rate at
 * which it reads keys and values.
 *
 *   gpu_bench_decode [--small]
 *
 * The calls take turns with the caches of as many layers as exceed the L2 cache. Times come from
 * device events around all calls of a round, so gaps between launches count; the best of five
 * rounds. --small shortens everything, to try the program where there is no GPU.
 *
 * Exit code: 0; 1 for an error; 77 without a GPU.
 */
#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/elementwise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, CALLS = 64, LAYERS_MAX = 64, EXIT_SKIPPED = 77 };
static const int64_t cache_bytes_all = 512 << 20;

typedef struct shape {
    const char *name;
    ls_dtype dtype;
    int64_t positions, heads, kv_heads, head_dim;
} shape;

static const shape shapes[] = {
    {"GPT-2 124M", LS_BF16, 1024, 12, 12, 64},  {"GPT-2 124M", LS_F32, 1024, 12, 12, 64},
    {"Llama 1B", LS_BF16, 4096, 32, 8, 64},     {"Llama 8B", LS_BF16, 8192, 32, 8, 128},
    {"Llama 8B", LS_BF16, 65536, 32, 8, 128},   {"heads of 256", LS_BF16, 8192, 16, 8, 256},
    {"heads of 80", LS_BF16, 2048, 32, 32, 80},
};

static void must(ls_status status)
{
    if (status != LS_OK) {
        fprintf(stderr, "gpu_bench_decode: %s\n", ls_error_text());
        exit(1);
    }
}

static ls_tensor matrix_make(ls_queue *queue, ls_dtype dtype, int64_t rows, int64_t cols)
{
    ls_tensor t = ls_tensor_of(NULL, dtype, rows, cols);
    must(ls_device_alloc(queue, (size_t)(rows * cols * ls_dtype_bytes(dtype)), &t.data));
    must(ls_fill(queue, &t, 0.01f));
    return t;
}

static void matrix_free(ls_queue *queue, ls_tensor *t)
{
    ls_device_free(queue, t->data, (size_t)(t->rows * t->cols * ls_dtype_bytes(t->dtype)));
}

typedef struct bench {
    ls_queue *queue;
    CUevent begin, end;
    ls_attention attention;
    ls_tensor q, out, keys[LAYERS_MAX], values[LAYERS_MAX];
    int64_t layers, positions, calls;
} bench;

static float round_ms(bench *b)
{
    const ls_queue_cuda *queue = ls_cuda_of(b->queue);
    float ms = 0.0f;
    (void)queue->driver->cuEventRecord(b->begin, queue->stream);
    for (int64_t i = 0; i < b->calls; i++) {
        must(ls_attention_decode(b->queue, &b->attention, &b->q, &b->keys[i % b->layers],
                                 &b->values[i % b->layers], b->positions - 1, &b->out));
    }
    (void)queue->driver->cuEventRecord(b->end, queue->stream);
    must(ls_queue_wait(b->queue));
    (void)queue->driver->cuEventElapsedTime(&ms, b->begin, b->end);
    return ms;
}

static void measure(bench *b, const shape *s, bool small)
{
    b->positions = small ? s->positions / 16 : s->positions;
    b->attention = (ls_attention){.sequences = 1,
                                  .length = 1,
                                  .heads = s->heads,
                                  .kv_heads = s->kv_heads,
                                  .head_dim = s->head_dim,
                                  .scale = (float)(1.0 / sqrt((double)s->head_dim))};
    const int64_t narrow = s->kv_heads * s->head_dim, wide = s->heads * s->head_dim;
    const int64_t bytes = 2 * b->positions * narrow * ls_dtype_bytes(s->dtype);
    b->calls = small ? 1 : CALLS;
    b->layers = small ? 1 : cache_bytes_all / bytes + 1;
    b->layers = b->layers < LAYERS_MAX ? b->layers : LAYERS_MAX;
    b->q = matrix_make(b->queue, s->dtype, 1, wide);
    b->out = matrix_make(b->queue, s->dtype, 1, wide);
    for (int64_t i = 0; i < b->layers; i++) {
        b->keys[i] = matrix_make(b->queue, s->dtype, b->positions, narrow);
        b->values[i] = matrix_make(b->queue, s->dtype, b->positions, narrow);
    }
    float best = round_ms(b);
    for (int i = 0; i < (small ? 0 : ROUNDS); i++) {
        best = fminf(best, round_ms(b));
    }
    const double us = (double)best * 1e3 / (double)b->calls;
    printf("%-14s %-8s heads %2lld/%-2lld dim %3lld positions %6lld %9.1f us %7.0f GB/s\n", s->name,
           s->dtype == LS_BF16 ? "bf16" : "float32", (long long)s->heads, (long long)s->kv_heads,
           (long long)s->head_dim, (long long)b->positions, us, (double)bytes * 1e-3 / us);
    (void)fflush(stdout);
    for (int64_t i = 0; i < b->layers; i++) {
        matrix_free(b->queue, &b->keys[i]);
        matrix_free(b->queue, &b->values[i]);
    }
    matrix_free(b->queue, &b->q);
    matrix_free(b->queue, &b->out);
}

int main(int argc, char **argv)
{
    static bench b;
    const ls_status status = ls_queue_create_cuda(&(ls_cuda_options){0}, &b.queue);
    if (status == LS_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", ls_error_text());
        return EXIT_SKIPPED;
    }
    must(status);
    (void)ls_cuda_of(b.queue)->driver->cuEventCreate(&b.begin, CU_EVENT_DEFAULT);
    (void)ls_cuda_of(b.queue)->driver->cuEventCreate(&b.end, CU_EVENT_DEFAULT);
    printf("%s\n", ls_queue_device_name(b.queue));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        measure(&b, &shapes[i], argc > 1 && strcmp(argv[1], "--small") == 0);
    }
    ls_queue_destroy(b.queue);
    return 0;
}
