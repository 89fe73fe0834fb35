// SPDX-License-Identifier: Apache-2.0
/* The measured rates that a run is held against: matrix products (MFU) and bare arithmetic. */
#include "base/clock.h"
#include "compute/cpu/gemm.h"
#include "compute/cpu/isa/gemm.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"

enum { PEAK_SIZE = 1024, PEAK_CALLS = 5 };

/* For so long after a measurement there is no other. */
static const double PEAK_PAUSE_S = 5.0;

/* Best rate of a few products of PEAK_SIZE cubed, FLOP/s; 0 if there is no memory for them. */
static double measure(ls_queue *queue)
{
    const size_t matrix_bytes = (size_t)PEAK_SIZE * PEAK_SIZE * sizeof(float);
    void *memory = NULL;
    if (ls_device_alloc(queue, 3 * matrix_bytes, &memory) != LS_OK) {
        return 0.0;
    }
    float *a = memory, *b = a + PEAK_SIZE * PEAK_SIZE, *c = b + PEAK_SIZE * PEAK_SIZE;
    const ls_gemm gemm = {.m = PEAK_SIZE,
                          .n = PEAK_SIZE,
                          .range = {{0, PEAK_SIZE}},
                          .range_count = 1,
                          .a = {.data = a, .stride = PEAK_SIZE},
                          .b = {.data = b, .stride = PEAK_SIZE},
                          .c = c,
                          .c_stride = PEAK_SIZE};
    double best_s = 0.0;
    for (int call = 0; call < PEAK_CALLS; call++) {
        const double start_s = ls_clock_monotonic_s();
        if (ls_gemm_run(queue, &gemm) != LS_OK) {
            break;
        }
        const double spent_s = ls_clock_monotonic_s() - start_s;
        best_s = best_s == 0.0 || spent_s < best_s ? spent_s : best_s;
    }
    ls_device_free(queue, memory, 3 * matrix_bytes);
    return best_s > 0.0 ? 2.0 * PEAK_SIZE * PEAK_SIZE * PEAK_SIZE / best_s : 0.0;
}

double ls_cpu_gemm_peak_flops(ls_queue *queue, ls_dtype dtype)
{
    (void)dtype; /* float32 only */
    ls_queue_cpu *cpu = ls_cpu_of(queue);
    if (cpu->gemm_peak_flops > 0.0 && ls_clock_monotonic_s() - cpu->gemm_peak_s < PEAK_PAUSE_S) {
        return cpu->gemm_peak_flops;
    }
    const double now = measure(queue);
    cpu->gemm_peak_s = ls_clock_monotonic_s();
    if (now > cpu->gemm_peak_flops) {
        cpu->gemm_peak_flops = now;
    }
    return cpu->gemm_peak_flops;
}

/* ---- bare multiply-adds ---- */

enum { BURST_ROUNDS = 300000, BURST_CALLS = 20, BURST_THREADS_MAX = 256 };

typedef struct burst_job {
    const ls_cpu_kernels *kernels;
    float sink[BURST_THREADS_MAX][16];
    double flop[BURST_THREADS_MAX];
} burst_job;

static void burst_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    burst_job *job = context;
    job->sink[tile][0] = 0.5f;
    job->flop[tile] = job->kernels->gemm->burst(BURST_ROUNDS, &job->sink[tile][0]);
}

double ls_queue_fma_peak_flops(ls_queue *queue)
{
    static burst_job job;
    LS_ASSERT(ls_queue_device(queue) == LS_DEVICE_CPU);
    job.kernels = ls_queue_kernels(queue);
    const uint32_t threads = ls_queue_threads(queue);
    double best = 0.0;
    for (int call = 0; call < BURST_CALLS; call++) {
        const double start_s = ls_clock_monotonic_s();
        ls_queue_run_tiles(queue, threads, burst_tile, &job);
        const double rate = threads * job.flop[0] / (ls_clock_monotonic_s() - start_s);
        best = rate > best ? rate : best;
    }
    return best;
}
