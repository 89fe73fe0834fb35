// SPDX-License-Identifier: Apache-2.0
/*
 * Our matrix product against OpenBLAS, on the products of training, in turn.
 *
 *   bench_gemm [--threads N] [--rounds N] [--peer PATH] [--only TEXT] [--json]
 *
 * --peer is a libopenblas.so (any build); without it only our own product is measured. Each line is
 * one product of a linear layer; own and peer alternate for `rounds` rounds of at least 10 ms, and
 * the best and the median round are given, because noise on a shared machine only ever slows.
 * Weights are taken from a pool larger than the caches, as in a model whose layers follow each
 * other. With one thread, times are CPU time of the thread.
 */
#include "base/clock.h"
#include "base/random.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/kernels/linear.h"

#include "compute/cpu/isa/gemm.h"

#include <dlfcn.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112, ROW_MAJOR = 101 };
static const size_t pool_floats = (size_t)96 << 20;
static const double round_min_s = 0.010;

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

typedef enum product { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, PRODUCTS } product;
static const char *const product_name[PRODUCTS] = {"fwd", "dX", "dW"};

typedef struct shape {
    const char *name;
    int tokens, in, out;
    ls_weight_layout layout;
} shape;

static const shape shapes[] = {
    {"124M B4 T64 qkv", 256, 768, 2304, LS_WEIGHT_IN_OUT},
    {"124M B4 T64 proj", 256, 768, 768, LS_WEIGHT_IN_OUT},
    {"124M B4 T64 up", 256, 768, 3072, LS_WEIGHT_IN_OUT},
    {"124M B4 T64 down", 256, 3072, 768, LS_WEIGHT_IN_OUT},
    {"124M B4 T64 head", 256, 768, 50257, LS_WEIGHT_OUT_IN},
    {"124M B4 T1024 qkv", 4096, 768, 2304, LS_WEIGHT_IN_OUT},
    {"124M B4 T1024 proj", 4096, 768, 768, LS_WEIGHT_IN_OUT},
    {"124M B4 T1024 up", 4096, 768, 3072, LS_WEIGHT_IN_OUT},
    {"124M B4 T1024 down", 4096, 3072, 768, LS_WEIGHT_IN_OUT},
    {"124M 1024 head", 1024, 768, 50257, LS_WEIGHT_OUT_IN},
    {"384 T256 qkv", 1024, 384, 1152, LS_WEIGHT_OUT_IN},
    {"384 T256 proj", 1024, 384, 384, LS_WEIGHT_OUT_IN},
    {"384 T256 up", 1024, 384, 1536, LS_WEIGHT_OUT_IN},
    {"384 T256 down", 1024, 1536, 384, LS_WEIGHT_OUT_IN},
    {"384 T256 head 256", 1024, 384, 256, LS_WEIGHT_OUT_IN},
    {"384 T256 head 50257", 1024, 384, 50257, LS_WEIGHT_OUT_IN},
    {"128 T64 up", 1024, 128, 512, LS_WEIGHT_OUT_IN},
};

typedef struct bench {
    ls_queue *queue;
    sgemm_fn sgemm; /* NULL: no peer */
    int threads, rounds;
    const char *only;
    float *pool; /* weights: taken in turn */
    size_t pool_at;
    float *x, *y;
} bench;

typedef struct rate {
    double best, median; /* GFLOP/s */
} rate;

static float *weight_next(bench *b, const shape *s)
{
    const size_t floats = (size_t)s->in * (size_t)s->out;
    if (b->pool_at + floats > pool_floats) {
        b->pool_at = 0;
    }
    float *weight = b->pool + b->pool_at;
    b->pool_at += (floats + 1023) / 1024 * 1024;
    return weight;
}

static void run_own(bench *b, const shape *s, product p)
{
    float *w = weight_next(b, s);
    const bool out_in = s->layout == LS_WEIGHT_OUT_IN;
    const ls_tensor weight = ls_tensor_f32(w, out_in ? s->out : s->in, out_in ? s->in : s->out);
    const ls_linear linear = {.weight = weight,
                              .layout = s->layout,
                              .forward_cut = 1,
                              .backward_input_cut = 1,
                              .segment_count = 1,
                              .segment = {s->out}};
    const ls_tensor x = ls_tensor_f32(b->x, s->tokens, s->in), y = ls_tensor_f32(b->y, s->tokens, s->out);
    ls_status status = LS_OK;
    switch (p) {
    case FORWARD:
        status = ls_linear_forward(b->queue, &linear, &x, &y);
        break;
    case BACKWARD_INPUT:
        status = ls_linear_backward_input(b->queue, &linear, &y, &x, false);
        break;
    default:
        status = ls_linear_backward_weight(b->queue, &linear, &x, &y, &weight, NULL, false);
    }
    if (status != LS_OK) {
        fprintf(stderr, "bench_gemm: %s\n", ls_error_text());
        exit(1);
    }
}

static void run_peer(bench *b, const shape *s, product p)
{
    float *w = weight_next(b, s);
    const bool out_in = s->layout == LS_WEIGHT_OUT_IN;
    const int ldw = out_in ? s->in : s->out;
    switch (p) {
    case FORWARD:
        b->sgemm(ROW_MAJOR, NO_TRANSPOSE, out_in ? TRANSPOSE : NO_TRANSPOSE, s->tokens, s->out, s->in, 1.0f,
                 b->x, s->in, w, ldw, 0.0f, b->y, s->out);
        break;
    case BACKWARD_INPUT:
        b->sgemm(ROW_MAJOR, NO_TRANSPOSE, out_in ? NO_TRANSPOSE : TRANSPOSE, s->tokens, s->in, s->out, 1.0f,
                 b->y, s->out, w, ldw, 0.0f, b->x, s->in);
        break;
    default:
        if (out_in) {
            b->sgemm(ROW_MAJOR, TRANSPOSE, NO_TRANSPOSE, s->out, s->in, s->tokens, 1.0f, b->y, s->out, b->x,
                     s->in, 0.0f, w, ldw);
        } else {
            b->sgemm(ROW_MAJOR, TRANSPOSE, NO_TRANSPOSE, s->in, s->out, s->tokens, 1.0f, b->x, s->in, b->y,
                     s->out, 0.0f, w, ldw);
        }
    }
}

typedef void (*run_fn)(bench *b, const shape *s, product p);

static double now_s(const bench *b)
{
    struct timespec t;
    clock_gettime(b->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds per call of one round. */
static double round_s(bench *b, run_fn run, const shape *s, product p)
{
    int calls = 0;
    const double start_s = now_s(b);
    double end_s = start_s;
    do {
        run(b, s, p);
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

static rate rate_of(double *seconds, int count, double flop)
{
    qsort(seconds, (size_t)count, sizeof *seconds, compare_doubles);
    return (rate){.best = flop / seconds[0] * 1e-9, .median = flop / seconds[count / 2] * 1e-9};
}

static void measure(bench *b, const shape *s, product p, rate *own_out, rate *peer_out)
{
    double own[ROUNDS_MAX], peer[ROUNDS_MAX];
    const double flop = 2.0 * s->tokens * s->in * s->out;
    run_own(b, s, p); /* grows the scratch */
    for (int i = 0; i < b->rounds; i++) {
        own[i] = round_s(b, run_own, s, p);
        peer[i] = b->sgemm ? round_s(b, run_peer, s, p) : 1.0;
    }
    *own_out = rate_of(own, b->rounds, flop);
    *peer_out = b->sgemm ? rate_of(peer, b->rounds, flop) : (rate){0};
}

/* -- output -- */

static json_t *result_json(const shape *s, product p, rate own, rate peer)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "shape", s->name, "product",
                     product_name[p], "tokens", s->tokens, "in", s->in, "out", s->out, "own_gflops", own.best,
                     "own_median_gflops", own.median, "peer_gflops", peer.best, "peer_median_gflops",
                     peer.median);
}

static json_t *run_all(bench *b, double peak, bool table)
{
    json_t *results = json_array();
    double log_sum[PRODUCTS + 1] = {0}, own_sum[PRODUCTS + 1] = {0};
    int count[PRODUCTS + 1] = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int p = 0; p < PRODUCTS; p++) {
            char name[80];
            snprintf(name, sizeof name, "%s %s", shapes[i].name, product_name[p]);
            if (b->only && !strstr(name, b->only)) {
                continue;
            }
            rate own, peer;
            measure(b, &shapes[i], (product)p, &own, &peer);
            json_array_append_new(results, result_json(&shapes[i], (product)p, own, peer));
            const double ratio = peer.best > 0.0 ? own.best / peer.best : 1.0;
            if (table) {
                printf("%-24s %6.1f (%6.1f)  %6.1f (%6.1f)  %5.3f  %4.1f %%\n", name, own.best, own.median,
                       peer.best, peer.median, ratio, 100.0 * own.best / peak);
                fflush(stdout);
            }
            const int slots[] = {p, PRODUCTS};
            for (int k = 0; k < 2; k++) {
                log_sum[slots[k]] += log(ratio);
                own_sum[slots[k]] += log(own.best);
                count[slots[k]]++;
            }
        }
    }
    for (int p = 0; table && p <= PRODUCTS; p++) {
        if (count[p] > 0) {
            printf("geometric mean %-4s own %.1f GFLOP/s, %.1f %% of peak, own/peer %.3f\n",
                   p < PRODUCTS ? product_name[p] : "all", exp(own_sum[p] / count[p]),
                   100.0 * exp(own_sum[p] / count[p]) / peak, exp(log_sum[p] / count[p]));
        }
    }
    return results;
}

static sgemm_fn peer_load(const char *path, int threads)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "bench_gemm: can't load the peer: %s\n", dlerror());
        exit(2);
    }
    void (*set_threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    char *(*config)(void) = (char *(*)(void))dlsym(library, "openblas_get_config");
    if (set_threads) {
        set_threads(threads);
    }
    fprintf(stderr, "peer %s\n", config ? config() : path);
    return (sgemm_fn)dlsym(library, "cblas_sgemm");
}

static float *floats_create(bench *b, size_t count)
{
    void *memory = NULL;
    if (ls_device_alloc(b->queue, count * sizeof(float), &memory) != LS_OK) {
        fprintf(stderr, "bench_gemm: %s\n", ls_error_text());
        exit(4);
    }
    float *values = memory;
    const ls_random_key key = ls_random_stream(1, LS_RANDOM_TEST);
    for (size_t i = 0; i < count; i++) {
        values[i] = i < 4096 ? ls_random_normal(key, i, 0) : values[i - 4096];
    }
    return values;
}

int main(int argc, char **argv)
{
    bench b = {.threads = 1, .rounds = 9};
    const char *peer = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
            continue;
        }
        if (strcmp(argv[i], "--threads") == 0) {
            b.threads = atoi(value);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            b.rounds = atoi(value);
        } else if (strcmp(argv[i], "--peer") == 0) {
            peer = value;
        } else if (strcmp(argv[i], "--only") == 0) {
            b.only = value;
        } else {
            fprintf(stderr,
                    "usage: bench_gemm [--threads 1..64] [--rounds 1..101] [--peer PATH] [--only TEXT] "
                    "[--json]\n");
            return 2;
        }
        i++;
    }
    if (b.threads < 1 || b.threads > 64 || b.rounds < 1 || b.rounds > ROUNDS_MAX ||
        ls_queue_create_cpu((uint32_t)b.threads, &b.queue) != LS_OK) {
        fprintf(stderr, "bench_gemm: threads 1..64, rounds 1..%d %s\n", ROUNDS_MAX, ls_error_text());
        return 2;
    }
    b.sgemm = peer ? peer_load(peer, b.threads) : NULL;
    b.pool = floats_create(&b, pool_floats);
    b.x = floats_create(&b, (size_t)4096 * 3072);
    b.y = floats_create(&b, (size_t)1024 * 50257);
    const double peak = ls_queue_fma_peak_flops(b.queue) * 1e-9;
    if (!json) {
        printf("%s, %d threads, FMA peak %.1f GFLOP/s\n", ls_queue_device_name(b.queue), b.threads, peak);
        printf("%-24s %15s  %15s  %5s  %s\n", "GFLOP/s: best (median)", "own", "peer", "ratio", "of peak");
    }
    json_t *report =
        json_pack("{s:s, s:s, s:i, s:f, s:o}", "name", "gemm", "machine", ls_queue_device_name(b.queue),
                  "threads", b.threads, "fma_peak_gflops", peak, "results", run_all(&b, peak, !json));
    if (json) {
        json_dumpf(report, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        printf("\n");
    }
    json_decref(report);
    ls_queue_destroy(b.queue);
    return 0;
}
