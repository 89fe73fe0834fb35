// SPDX-License-Identifier: Apache-2.0
/*
 * The matrix products of training on an NVIDIA GPU: how fast, and do they repeat?
 *
 *   bench_matmul [--only TEXT] [--small] [--no-repeats] [--sm90]
 *
 * One line per product of a linear layer: forward, gradient of the input (dgrad) and of the weight
 * (wgrad, float32). TFLOP/s for each way to compute it: cuBLASLt with the inner dimension whole
 * ("whole"), with pieces where its own ranking prefers that ("ranked"), with our pieces of a long
 * inner dimension ("default": what training uses), our own kernels ("own"), and with --sm90 our own
 * kernels for capability 9.0 ("own90").
 * Data are random normal numbers, because a GPU clocks higher on zeros; times come from device
 * events around at least 20 ms of products.
 *
 * "equal" is the admission test: of 20 results of each way, computed beside a second queue that is
 * busy with other products, how many equal the first one bit for bit.
 *
 * --small divides all sizes by 32, to try the program where there is no GPU.
 */
#include "base/random.h"
#include "compute/cuda/matmul.h"
#include "compute/cuda/matmul_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 20, WAYS = 5, PASSES = 3, NOISE_SIZE = 4096 };
static const int64_t pool_elements = 12 << 20;
static const float round_min_ms = 20.0f;

typedef struct shape {
    const char *name;
    int64_t n, in, out;
    /* Elements from row to row of the output. */
    int64_t out_stride;
    /* In memory (in, out), as GPT-2 has its weights. */
    bool in_out;
    bool bias;
} shape;

static const shape shapes[] = {
    {"124M qkv", 65536, 768, 2304, 2304, true, true},
    {"124M proj", 65536, 768, 768, 768, true, true},
    {"124M up", 65536, 768, 3072, 3072, true, true},
    {"124M down", 65536, 3072, 768, 768, true, true},
    {"124M head", 8192, 768, 50257, 50304, false, false},
    {"1B qkv", 32768, 2048, 3072, 3072, false, false},
    {"1B proj", 32768, 2048, 2048, 2048, false, false},
    {"1B gate|up", 32768, 2048, 16384, 16384, false, false},
    {"1B down", 32768, 8192, 2048, 2048, false, false},
    {"8192^3", 8192, 8192, 8192, 8192, false, false},
};

static const char *const pass_name[PASSES] = {"forward", "dgrad", "wgrad"};
static const ls_matmul_way ways[WAYS] = {LS_MATMUL_CUBLASLT_WHOLE, LS_MATMUL_CUBLASLT_RANKED,
                                         LS_MATMUL_CUBLASLT, LS_MATMUL_OWN, LS_MATMUL_OWN_SM90};

typedef struct bench {
    ls_queue *queue, *noise_queue;
    CUevent begin, end;
    /* Operands, a result, and the result it is compared with. */
    void *a, *b, *c, *first;
    void *noise[3];
    uint32_t *differences;
    int64_t divisor;
    bool repeats, sm90;
} bench;

static void must(ls_status status)
{
    if (status != LS_OK) {
        fprintf(stderr, "bench_matmul: %s\n", ls_error_text());
        exit(1);
    }
}

static void must_cuda(const bench *b, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        must(ls_cuda_fail(ls_cuda_of(b->queue)->driver, result, call));
    }
}

#define CUDA(b, function, ...) must_cuda(b, ls_cuda_of((b)->queue)->driver->function(__VA_ARGS__), #function)

/* -- data -- */

/* `elements` bf16 numbers on the device: a pool of random ones again and again. */
static void *random_block(bench *b, const uint16_t *pool, int64_t elements)
{
    void *memory = NULL;
    must(ls_device_alloc(b->queue, (size_t)elements * 2, &memory));
    for (int64_t done = 0; done < elements; done += pool_elements) {
        const int64_t count = elements - done < pool_elements ? elements - done : pool_elements;
        must(ls_queue_move(b->queue, (uint16_t *)memory + done, pool, (size_t)count * 2));
    }
    must(ls_queue_wait(b->queue));
    return memory;
}

static uint16_t *random_pool(void)
{
    float *values = malloc((size_t)pool_elements * sizeof *values);
    uint16_t *pool = malloc((size_t)pool_elements * sizeof *pool);
    if (!values || !pool) {
        must(ls_fail(LS_ERR_MEMORY, "no memory for random numbers"));
    }
    ls_random_normals(ls_random_stream(1, LS_RANDOM_TEST), 0, 0, (size_t)pool_elements, values);
    for (int64_t i = 0; i < pool_elements; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        pool[i] = (uint16_t)(bits >> 16);
    }
    free(values);
    return pool;
}

/* -- a product -- */

static shape divided(const bench *b, shape s)
{
    s.n = s.n / b->divisor;
    s.in = s.in / b->divisor;
    s.out_stride = s.out_stride / b->divisor;
    s.out = s.out < s.out_stride * b->divisor ? s.out_stride - 1 : s.out_stride;
    return s;
}

/* As compute/cuda/linear.c has them; x or dy lies in a, the weight or dy in b. */
static ls_matmul product_of(const bench *b, const shape *s, int pass)
{
    const int64_t weight_stride = s->in_out ? s->out_stride : s->in;
    if (pass == 0) {
        return (ls_matmul){.m = s->n,
                           .n = s->out,
                           .k = s->in,
                           .dtype = LS_BF16,
                           .c_dtype = LS_BF16,
                           .a = {b->a, s->in, false},
                           .b = {b->b, weight_stride, !s->in_out},
                           .c = b->c,
                           .c_stride = s->out_stride,
                           .bias = s->bias ? b->a : NULL};
    }
    if (pass == 1) {
        return (ls_matmul){.m = s->n,
                           .n = s->in,
                           .k = s->out,
                           .dtype = LS_BF16,
                           .c_dtype = LS_BF16,
                           .a = {b->a, s->out_stride, false},
                           .b = {b->b, weight_stride, s->in_out},
                           .c = b->c,
                           .c_stride = s->in};
    }
    const ls_matmul_operand x = {s->in_out ? b->a : b->b, s->in, s->in_out};
    const ls_matmul_operand dy = {s->in_out ? b->b : b->a, s->out_stride, !s->in_out};
    return (ls_matmul){.m = s->in_out ? s->in : s->out,
                       .n = s->in_out ? s->out : s->in,
                       .k = s->n,
                       .dtype = LS_BF16,
                       .c_dtype = LS_F32,
                       .a = s->in_out ? x : dy,
                       .b = s->in_out ? dy : x,
                       .c = b->c,
                       .c_stride = weight_stride};
}

static float run_ms(bench *b, const ls_matmul *p, int count)
{
    ls_queue_cuda *queue = ls_cuda_of(b->queue);
    CUDA(b, cuEventRecord, b->begin, queue->stream);
    for (int i = 0; i < count; i++) {
        must(ls_cuda_matmul(queue, p));
    }
    CUDA(b, cuEventRecord, b->end, queue->stream);
    CUDA(b, cuEventSynchronize, b->end);
    float ms = 0.0f;
    CUDA(b, cuEventElapsedTime, &ms, b->begin, b->end);
    return ms;
}

static double tflops(bench *b, const ls_matmul *p)
{
    run_ms(b, p, 1);
    const float once_ms = run_ms(b, p, 2) / 2;
    const int count = b->divisor > 1 || once_ms > round_min_ms ? 1 : (int)(round_min_ms / once_ms) + 1;
    const float ms = run_ms(b, p, count) / (float)count;
    return 2.0 * (double)p->m * (double)p->n * (double)p->k / ((double)ms * 1e9);
}

/* -- the admission test -- */

/* Keeps the other queue busy for a while. */
static void make_noise(bench *b)
{
    const int64_t size = NOISE_SIZE / b->divisor;
    const ls_matmul noise = {.m = size,
                             .n = size,
                             .k = size,
                             .dtype = LS_BF16,
                             .c_dtype = LS_BF16,
                             .a = {b->noise[0], size, false},
                             .b = {b->noise[1], size, true},
                             .c = b->noise[2],
                             .c_stride = size};
    for (int i = 0; i < 4; i++) {
        must(ls_cuda_matmul(ls_cuda_of(b->noise_queue), &noise));
    }
}

static int equal_results(bench *b, ls_matmul p)
{
    ls_queue_cuda *queue = ls_cuda_of(b->queue);
    const size_t bytes = (size_t)(p.m * p.c_stride * ls_dtype_bytes(p.c_dtype)) / 4 * 4;
    int equal = 0;
    /* Elements between the rows keep what they had. */
    must(ls_queue_move(b->queue, b->first, b->c, bytes));
    p.c = b->first;
    must(ls_cuda_matmul(queue, &p));
    must(ls_queue_wait(b->queue));
    p.c = b->c;
    for (int i = 0; i < REPEATS; i++) {
        make_noise(b);
        *b->differences = 0;
        must(ls_cuda_matmul(queue, &p));
        must(ls_cuda_matmul_compare(queue, b->first, b->c, bytes, b->differences));
        must(ls_queue_wait(b->queue));
        equal += *b->differences == 0;
    }
    must(ls_queue_wait(b->noise_queue));
    return equal;
}

/* -- the table -- */

static bool is_possible(const bench *b, ls_matmul_way way)
{
    const ls_queue_cuda *queue = ls_cuda_of(b->queue);
    if (way == LS_MATMUL_OWN_SM90) {
        return b->sm90 && queue->capability == 90;
    }
    return way == LS_MATMUL_OWN || queue->blas;
}

static void bench_product(bench *b, const shape *s, int pass)
{
    const shape size = divided(b, *s);
    ls_matmul p = product_of(b, &size, pass);
    printf("%-11s %-8s %6lld %6lld %6lld", s->name, pass_name[pass], (long long)p.m, (long long)p.n,
           (long long)p.k);
    char equal[64] = "";
    for (int i = 0; i < WAYS; i++) {
        p.way = ways[i];
        if (!is_possible(b, p.way)) {
            printf(" %8s", "-");
            continue;
        }
        printf(" %8.1f", tflops(b, &p));
        if (b->repeats) {
            snprintf(equal + strlen(equal), sizeof equal - strlen(equal), " %d", equal_results(b, p));
        }
    }
    printf("  %6lld  %s\n", (long long)ls_matmul_own_cut(&p).pieces, equal);
    fflush(stdout);
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void bench_open(bench *b)
{
    const ls_cuda_options options = {0};
    must(ls_queue_create_cuda(&options, &b->queue));
    must(ls_queue_create_cuda(&options, &b->noise_queue));
    CUDA(b, cuEventCreate, &b->begin, CU_EVENT_DEFAULT);
    CUDA(b, cuEventCreate, &b->end, CU_EVENT_DEFAULT);
    int64_t elements = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape s = divided(b, shapes[i]);
        /* A float32 gradient has twice the bytes. */
        elements = max64(elements, max64(s.n, 2 * s.in) * s.out_stride);
        elements = max64(elements, s.n * s.in);
    }
    uint16_t *pool = random_pool();
    b->a = random_block(b, pool, elements);
    b->b = random_block(b, pool, elements);
    b->c = random_block(b, pool, elements);
    b->first = random_block(b, pool, elements);
    for (int i = 0; i < 3; i++) {
        b->noise[i] = random_block(b, pool, NOISE_SIZE / b->divisor * (NOISE_SIZE / b->divisor));
    }
    free(pool);
    void *shared = NULL;
    must(ls_shared_alloc(b->queue, sizeof *b->differences, &shared));
    b->differences = shared;
}

int main(int argc, char **argv)
{
    bench b = {.divisor = 1, .repeats = true};
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--small") == 0) {
            b.divisor = 32;
        } else if (strcmp(argv[i], "--sm90") == 0) {
            b.sm90 = true;
        } else if (strcmp(argv[i], "--no-repeats") == 0) {
            b.repeats = false;
        } else {
            fprintf(stderr, "usage: bench_matmul [--only TEXT] [--small] [--no-repeats] [--sm90]\n");
            return 2;
        }
    }
    bench_open(&b);
    char class[64];
    ls_cuda_matmuls_class(ls_cuda_of(b.queue), class, sizeof class);
    printf("%s, products %s\n\n", ls_queue_device_name(b.queue), class);
    printf("%-11s %-8s %6s %6s %6s %8s %8s %8s %8s %8s  %6s  equal of %d\n", "TFLOP/s", "", "m", "n", "k",
           "whole", "ranked", "default", "own", "own90", "pieces", REPEATS);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int pass = 0; pass < PASSES && (!only || strstr(shapes[i].name, only)); pass++) {
            bench_product(&b, &shapes[i], pass);
        }
    }
    printf("\nalgorithms %016llx\n", (unsigned long long)ls_cuda_matmuls_digest(ls_cuda_of(b.queue)));
    return 0;
}
