// SPDX-License-Identifier: Apache-2.0
/*
 * Products with packed weights against the same products with float32 weights, in turn.
 *
 *   bench_packed [--threads N] [--rounds N] [--only TEXT]
 *
 * Each line is a linear layer (rows; in x out), forward or input gradient. Float32, bf16, int8 and
 * nf4 alternate for `rounds` rounds of at least 10 ms; the medians of the rounds are compared,
 * because noise meets all four alike. Weights are taken from pools larger than the caches, as in a
 * model whose layers follow each other. With one thread, times are CPU time of the thread.
 */
#include "base/random.h"
#include "compute/kernels/linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 101, KINDS = LS_PACKED_KINDS, ROWS_MAX = 2048, WIDTH_MAX = 4096 };
static const size_t pool_bytes = (size_t)96 << 20;
static const double round_min_s = 0.010;
static const char *const kind_name[KINDS] = {"fp32", "bf16", "int8", "nf4"};

typedef struct bench {
    ls_queue *queue;
    int threads, rounds;
    const char *only;
    float *x, *y;
} bench;

/* Copies of one weight in one kind. */
typedef struct pool {
    char *memory;
    size_t bytes; /* of a copy */
    int copies, next;
} pool;

static void *memory_of(bench *b, size_t bytes)
{
    void *memory = NULL;
    if (ls_device_alloc(b->queue, bytes, &memory) != LS_OK) {
        fprintf(stderr, "bench_packed: %s\n", ls_error_text());
        exit(4);
    }
    return memory;
}

static float *floats_create(bench *b, size_t count)
{
    const ls_random_key key = ls_random_stream(1, LS_RANDOM_TEST);
    float *values = memory_of(b, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        values[i] = i < 65536 ? ls_random_normal(key, i, 0) : values[i - 65521];
    }
    return values;
}

static double now_s(const bench *b)
{
    struct timespec t;
    clock_gettime(b->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(ls_status status)
{
    if (status != LS_OK) {
        fprintf(stderr, "bench_packed: %s\n", ls_error_text());
        exit(1);
    }
}

static pool pool_create(bench *b, int kind, const ls_tensor *weight)
{
    pool p = {.bytes = (size_t)(weight->rows * weight->cols) * sizeof(float)};
    if (kind != LS_PACKED_NONE) {
        p.bytes = (size_t)ls_packed_bytes((ls_packed_kind)kind, weight->rows, weight->cols);
    }
    p.copies = (int)(pool_bytes / p.bytes) + 1;
    p.memory = memory_of(b, p.bytes * (size_t)p.copies);
    if (kind == LS_PACKED_NONE) {
        memcpy(p.memory, weight->data, p.bytes);
    } else {
        const double start_s = now_s(b);
        const ls_packed packed = ls_packed_of((ls_packed_kind)kind, weight->rows, weight->cols, p.memory);
        check(ls_packed_pack(&packed, weight, LS_WEIGHT_OUT_IN));
        printf("  packing %s: %.0f million weights/s\n", kind_name[kind],
               (double)(weight->rows * weight->cols) / (now_s(b) - start_s) * 1e-6);
    }
    for (int i = 1; i < p.copies; i++) {
        memcpy(p.memory + p.bytes * (size_t)i, p.memory, p.bytes);
    }
    return p;
}

/* Seconds of one call. */
static double round_s(bench *b, pool *p, int kind, const ls_tensor *weight, int64_t n, bool forward)
{
    ls_linear linear = {.weight = *weight,
                        .forward_cut = 1,
                        .backward_input_cut = 1,
                        .segment_count = 1,
                        .segment = {weight->rows}};
    const ls_tensor x = ls_tensor_f32(b->x, n, weight->cols), y = ls_tensor_f32(b->y, n, weight->rows);
    int calls = 0;
    const double start_s = now_s(b);
    double end_s = start_s;
    do {
        char *memory = p->memory + p->bytes * (size_t)p->next;
        p->next = (p->next + 1) % p->copies;
        ls_packed packed = {0};
        linear.weight.data = memory;
        if (kind != LS_PACKED_NONE) {
            packed = ls_packed_of((ls_packed_kind)kind, weight->rows, weight->cols, memory);
            linear.weight.data = NULL;
            linear.packed = &packed;
            linear.packed_count = 1;
        }
        check(forward ? ls_linear_forward(b->queue, &linear, &x, &y)
                      : ls_linear_backward_input(b->queue, &linear, &y, &x, false));
        calls++;
        end_s = now_s(b);
    } while (end_s - start_s < round_min_s);
    return (end_s - start_s) / calls;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(bench *b, pool *pools, const ls_tensor *weight, int64_t n, bool forward)
{
    char name[80];
    snprintf(name, sizeof name, "%5lld; %4lld x %4lld %s", (long long)n, (long long)weight->cols,
             (long long)weight->rows, forward ? "fwd" : "dX");
    if (b->only && !strstr(name, b->only)) {
        return;
    }
    static double seconds[KINDS][ROUNDS_MAX];
    for (int round = 0; round < b->rounds; round++) {
        for (int kind = 0; kind < KINDS; kind++) {
            seconds[kind][round] = round_s(b, &pools[kind], kind, weight, n, forward);
        }
    }
    printf("%-26s", name);
    for (int kind = 0; kind < KINDS; kind++) {
        qsort(seconds[kind], (size_t)b->rounds, sizeof(double), compare_doubles);
        const double median = seconds[kind][b->rounds / 2];
        if (kind == 0) {
            printf(" %9.1f us", 1e6 * median);
        } else {
            printf("  %6.3f", seconds[0][b->rounds / 2] / median);
        }
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bench b = {.threads = 1, .rounds = 9};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0) {
            b.threads = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            b.rounds = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--only") == 0) {
            b.only = argv[i + 1];
        } else {
            argc = 0;
        }
    }
    if (argc % 2 == 0 || b.threads < 1 || b.threads > 64 || b.rounds < 1 || b.rounds > ROUNDS_MAX ||
        ls_queue_create_cpu((uint32_t)b.threads, &b.queue) != LS_OK) {
        fprintf(stderr, "usage: bench_packed [--threads 1..64] [--rounds 1..%d] [--only TEXT]\n", ROUNDS_MAX);
        return 2;
    }
    b.x = floats_create(&b, (size_t)ROWS_MAX * WIDTH_MAX);
    b.y = floats_create(&b, (size_t)ROWS_MAX * WIDTH_MAX);
    printf("%s, %d threads; speed against float32\n", ls_queue_device_name(b.queue), b.threads);
    printf("%-26s %12s  %6s  %6s  %6s\n", "rows; in x out", "float32", "bf16", "int8", "nf4");
    static const int64_t shapes[][2] = {{1024, 1024}, {4096, 1024}, {2048, 2048}},
                         rows[] = {1, 8, 64, 512, 2048};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t out = shapes[s][0], in = shapes[s][1];
        const ls_tensor weight = ls_tensor_f32(floats_create(&b, (size_t)(in * out)), out, in);
        pool pools[KINDS];
        for (int kind = 0; kind < KINDS; kind++) {
            pools[kind] = pool_create(&b, kind, &weight);
        }
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            measure(&b, pools, &weight, rows[i], true);
            measure(&b, pools, &weight, rows[i], false);
        }
        for (int kind = 0; kind < KINDS; kind++) {
            ls_device_free(b.queue, pools[kind].memory, pools[kind].bytes * (size_t)pools[kind].copies);
        }
        ls_device_free(b.queue, weight.data, (size_t)(in * out) * sizeof(float));
    }
    ls_queue_destroy(b.queue);
    return 0;
}
