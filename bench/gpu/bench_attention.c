// SPDX-License-Identifier: Apache-2.0
/*
 * Attention on an NVIDIA GPU: how fast, do the two ways agree, and do they repeat?
 *
 *   bench_attention [--small]
 *
 * Per shape a line for each way: "sm90", the kernels for compute capability 9.0, and "mma", those
 * for 8.0 and later. TFLOP/s count the products that causal attention needs: 4 head_dim per pair of
 * a query and a key that it sees, 2.5 times that for backward. Times come from device events around
 * at least 100 ms of calls; data are random normal numbers. Under a line are the times of the
 * launches of one forward and one backward call.
 *
 * "differs" is ||a - b|| / ||b|| of the two ways for out and for the gradients of the first and the
 * last sequence (1e-3 to 5e-3 is rounding); "repeats" says whether 5 calls gave the same bits.
 *
 * --small shortens everything, to try the program where there is no GPU.
 */
#include "base/random.h"
#include "compute/cuda/attention_sm90.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 5, LAUNCHES_MAX = 16, CALLS_MAX = 1000 };
static const int64_t pool_elements = 4 << 20;
static float round_min_ms = 100.0f;

typedef struct shape {
    const char *name;
    ls_attention attention;
} shape;

static const shape shapes[] = {
    {"GPT-2 T 1024", {.sequences = 64, .length = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64}},
    {"d 64 T 4096", {.sequences = 16, .length = 4096, .heads = 12, .kv_heads = 12, .head_dim = 64}},
    {"d 128 T 2048", {.sequences = 16, .length = 2048, .heads = 32, .kv_heads = 8, .head_dim = 128}},
    {"d 128 T 4096", {.sequences = 8, .length = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128}},
    {"d 128 T 8192", {.sequences = 2, .length = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128}},
    {"same, window 1024",
     {.sequences = 2, .length = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128, .window = 1024}},
    {"d 96 T 2048", {.sequences = 16, .length = 2048, .heads = 32, .kv_heads = 32, .head_dim = 96}},
    {"d 256 T 2048", {.sequences = 16, .length = 2048, .heads = 16, .kv_heads = 8, .head_dim = 256}},
};

typedef enum way { WAY_SM90, WAY_MMA, WAYS } way;
static const char *const way_name[WAYS] = {"sm90", "mma"};

typedef struct bench {
    ls_queue *queue;
    ls_attention attention;
    ls_tensor qkv, out, lse, dout, dqkv, workspace;
    CUevent begin, end;
} bench;

static void must(ls_status status)
{
    if (status != LS_OK) {
        fprintf(stderr, "bench_attention: %s\n", ls_error_text());
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

/* ---- the times of launches: the driver's function, with events around it ---- */

static const ls_cuda_driver *real_driver;
static CUevent launch_events[LAUNCHES_MAX + 1];
static int launch_count = -1;

static CUresult launch_timed(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                             CUstream stream, void **parameters, void **extra)
{
    const CUresult result = real_driver->cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                                        block_z, shared_bytes, stream, parameters, extra);
    if (result == CUDA_SUCCESS && launch_count >= 0 && launch_count < LAUNCHES_MAX) {
        return real_driver->cuEventRecord(launch_events[++launch_count], stream);
    }
    return result;
}

static void watch_launches(bench *b)
{
    static ls_cuda_driver watched;
    ls_queue_cuda *queue = ls_cuda_of(b->queue);
    real_driver = queue->driver;
    watched = *real_driver;
    watched.cuLaunchKernel = launch_timed;
    queue->driver = &watched;
    for (int i = 0; i <= LAUNCHES_MAX; i++) {
        CUDA(b, cuEventCreate, &launch_events[i], CU_EVENT_DEFAULT);
    }
}

/* ---- data ---- */

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

static ls_tensor tensor_make(bench *b, ls_dtype dtype, int64_t rows, int64_t cols, const uint16_t *pool)
{
    void *memory = NULL;
    const int64_t bytes = rows * cols * ls_dtype_bytes(dtype), pool_bytes = pool_elements * 2;
    must(ls_device_alloc(b->queue, (size_t)(bytes > 0 ? bytes : 1), &memory));
    for (int64_t done = 0; pool && done < bytes; done += pool_bytes) {
        const int64_t count = bytes - done < pool_bytes ? bytes - done : pool_bytes;
        must(ls_queue_move(b->queue, (char *)memory + done, pool, (size_t)count));
    }
    must(ls_queue_wait(b->queue));
    return ls_tensor_of(memory, dtype, rows, cols);
}

static void tensor_free(bench *b, const ls_tensor *t)
{
    const int64_t bytes = t->rows * t->cols * ls_dtype_bytes(t->dtype);
    ls_device_free(b->queue, t->data, (size_t)(bytes > 0 ? bytes : 1));
}

static void data_make(bench *b, ls_attention a, const uint16_t *pool)
{
    const int64_t n = a.sequences * a.length, wide = a.heads * a.head_dim,
                  cols = wide + 2 * a.kv_heads * a.head_dim;
    a.scale = (float)(1.0 / sqrt((double)a.head_dim));
    b->attention = a;
    b->qkv = tensor_make(b, LS_BF16, n, cols, pool);
    b->out = tensor_make(b, LS_BF16, n, wide, NULL);
    b->lse = tensor_make(b, LS_F32, n, a.heads, NULL);
    b->dout = tensor_make(b, LS_BF16, n, wide, pool);
    b->dqkv = tensor_make(b, LS_BF16, n, cols, NULL);
    /* What "mma" needs; "sm90" needs none. */
    const int capability = ls_cuda_of(b->queue)->capability;
    ls_cuda_of(b->queue)->capability = 80;
    const int64_t floats =
        b->queue->backend->attention_workspace ? ls_attention_workspace_floats(b->queue, &a) : 0;
    ls_cuda_of(b->queue)->capability = capability;
    b->workspace = tensor_make(b, LS_F32, 1, floats, NULL);
}

static void data_free(bench *b)
{
    const ls_tensor *all[] = {&b->qkv, &b->out, &b->lse, &b->dout, &b->dqkv, &b->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tensor_free(b, all[i]);
    }
}

/* q, k and v, or their gradients. */
static ls_tensor part(const ls_tensor *fused, const ls_attention *a, int which)
{
    const int64_t wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    return ls_tensor_columns(*fused, which == 0 ? 0 : wide + (which - 1) * narrow,
                             which == 0 ? wide : narrow);
}

/* ---- calls ---- */

static void call(bench *b, way w, bool backward)
{
    const ls_attention *a = &b->attention;
    const ls_tensor q = part(&b->qkv, a, 0), k = part(&b->qkv, a, 1), v = part(&b->qkv, a, 2);
    const ls_tensor dq = part(&b->dqkv, a, 0), dk = part(&b->dqkv, a, 1), dv = part(&b->dqkv, a, 2);
    if (w == WAY_SM90) {
        must(backward ? ls_cuda_attention_backward_sm90(b->queue, a, &q, &k, &v, &b->out, &b->lse, &b->dout,
                                                        &dq, &dk, &dv, &b->workspace)
                      : ls_cuda_attention_forward_sm90(b->queue, a, &q, &k, &v, &b->out, &b->lse));
        return;
    }
    /* As on a device of capability 8.0. */
    const int capability = ls_cuda_of(b->queue)->capability;
    ls_cuda_of(b->queue)->capability = 80;
    must(backward ? ls_attention_backward(b->queue, a, &q, &k, &v, &b->out, &b->lse, &b->dout, &dq, &dk, &dv,
                                          &b->workspace)
                  : ls_attention_forward(b->queue, a, &q, &k, &v, &b->out, &b->lse));
    ls_cuda_of(b->queue)->capability = capability;
}

static bool has_way(const bench *b, way w)
{
    const ls_queue_cuda *queue = ls_cuda_of(b->queue);
    return w == WAY_SM90 ? ls_cuda_attention_sm90_takes(queue, &b->attention, LS_BF16)
                         : b->queue->backend->attention_forward && b->queue->backend->attention_backward;
}

static float run_ms(bench *b, way w, bool backward, int count)
{
    float ms = 0.0f;
    CUDA(b, cuEventRecord, b->begin, ls_cuda_of(b->queue)->stream);
    for (int i = 0; i < count; i++) {
        call(b, w, backward);
    }
    CUDA(b, cuEventRecord, b->end, ls_cuda_of(b->queue)->stream);
    must(ls_queue_wait(b->queue));
    CUDA(b, cuEventElapsedTime, &ms, b->begin, b->end);
    return ms / (float)count;
}

/* Milliseconds of a call: the better of two rounds. */
static float time_ms(bench *b, way w, bool backward)
{
    const float first = run_ms(b, w, backward, 2);
    const float wanted = round_min_ms / (first > 1e-4f ? first : 1e-4f) + 1.0f;
    const int count = wanted < (float)CALLS_MAX ? (int)wanted : CALLS_MAX;
    const float one = run_ms(b, w, backward, count), two = run_ms(b, w, backward, count);
    return one < two ? one : two;
}

static void print_launches(bench *b, way w, bool backward)
{
    printf("%s", backward ? "  backward" : "    forward");
    launch_count = 0;
    CUDA(b, cuEventRecord, launch_events[0], ls_cuda_of(b->queue)->stream);
    call(b, w, backward);
    must(ls_queue_wait(b->queue));
    for (int i = 0; i < launch_count; i++) {
        float ms = 0.0f;
        CUDA(b, cuEventElapsedTime, &ms, launch_events[i], launch_events[i + 1]);
        printf(" %.3f", (double)ms);
    }
    launch_count = -1;
    printf(" ms");
}

/* ---- results ---- */

/* Rows of the first and of the last sequence. */
static unsigned char *result_read(bench *b, const ls_tensor *t, size_t *bytes_out)
{
    const size_t bytes = (size_t)(b->attention.length * t->cols) * 2;
    unsigned char *result = malloc(2 * bytes);
    must(ls_queue_move(b->queue, result, t->data, bytes));
    must(ls_queue_move(b->queue, result + bytes, ls_tensor_at(t, t->rows - b->attention.length, 0), bytes));
    must(ls_queue_wait(b->queue));
    *bytes_out = 2 * bytes;
    return result;
}

static double difference(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    double square = 0.0, error = 0.0;
    for (size_t i = 0; i < bytes; i += 2) {
        uint32_t word_a = 0, word_b = 0;
        float x, y;
        memcpy((char *)&word_a + 2, a + i, 2);
        memcpy((char *)&word_b + 2, b + i, 2);
        memcpy(&x, &word_a, 4);
        memcpy(&y, &word_b, 4);
        square += (double)y * (double)y;
        error += ((double)x - (double)y) * ((double)x - (double)y);
    }
    return sqrt(error / square);
}

static bool repeats(bench *b, way w, bool backward, const unsigned char *first, const ls_tensor *t)
{
    bool same = true;
    for (int i = 1; i < REPEATS; i++) {
        size_t bytes;
        call(b, w, backward);
        unsigned char *again = result_read(b, t, &bytes);
        same = same && memcmp(first, again, bytes) == 0;
        free(again);
    }
    return same;
}

static double flops_of(const ls_attention *a)
{
    const double all = (double)a->length * (double)(a->length + 1) / 2.0;
    const double left = (double)(a->length - a->window);
    const double pairs = a->window > 0 && a->window < a->length ? all - left * (left + 1.0) / 2.0 : all;
    return 4.0 * pairs * (double)(a->head_dim * a->heads * a->sequences);
}

static void measure(bench *b, const char *name)
{
    const double flops = flops_of(&b->attention);
    unsigned char *results[WAYS][2] = {{NULL}};
    size_t bytes[2] = {0};
    for (way w = 0; w < WAYS; w++) {
        if (!has_way(b, w)) {
            continue;
        }
        call(b, w, false);
        results[w][0] = result_read(b, &b->out, &bytes[0]);
        const bool forward_repeats = repeats(b, w, false, results[w][0], &b->out);
        call(b, w, true);
        results[w][1] = result_read(b, &b->dqkv, &bytes[1]);
        const bool backward_repeats = repeats(b, w, true, results[w][1], &b->dqkv);
        const double forward_ms = (double)time_ms(b, w, false), backward_ms = (double)time_ms(b, w, true);
        printf("%-18s %-5s %8.3f ms %6.0f TFLOP/s %8.3f ms %6.0f TFLOP/s   %s\n", name, way_name[w],
               forward_ms, flops / forward_ms * 1e-9, backward_ms, 2.5 * flops / backward_ms * 1e-9,
               forward_repeats && backward_repeats ? "repeats" : "DOES NOT REPEAT");
        print_launches(b, w, false);
        print_launches(b, w, true);
        printf("\n");
    }
    if (results[0][0] && results[1][0]) {
        printf("    differs: out %.1e, gradients %.1e\n", difference(results[0][0], results[1][0], bytes[0]),
               difference(results[0][1], results[1][1], bytes[1]));
    }
    for (int i = 0; i < 2 * WAYS; i++) {
        free(results[i / 2][i % 2]);
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    const bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    bench b = {0};
    must(ls_queue_create_cuda(&(ls_cuda_options){0}, &b.queue));
    watch_launches(&b);
    CUDA(&b, cuEventCreate, &b.begin, CU_EVENT_DEFAULT);
    CUDA(&b, cuEventCreate, &b.end, CU_EVENT_DEFAULT);
    uint16_t *pool = random_pool();
    round_min_ms = small ? 0.0f : round_min_ms;
    printf("%s\n%-18s %-5s %11s %14s %11s %14s\n", ls_queue_device_name(b.queue), "shape", "way", "forward",
           "", "backward", "");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ls_attention a = shapes[i].attention;
        if (small) {
            a.sequences = 1;
            a.heads /= a.kv_heads;
            a.kv_heads = 1;
            a.length /= 16;
            a.window /= 16;
        }
        data_make(&b, a, pool);
        measure(&b, shapes[i].name);
        data_free(&b);
    }
    free(pool);
    ls_queue_destroy(b.queue);
    return 0;
}
