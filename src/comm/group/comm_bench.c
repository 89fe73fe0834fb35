// SPDX-License-Identifier: Apache-2.0
#include "comm/group/comm_bench.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/math.h"
#include "comm/transport/reduce.h"
#include "compute/cpu/isa/reduce.h"
#include "lockstep/comm.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 64, ROUNDS_DEFAULT = 9, TEXT_BYTES = 1024 };
/* Duration of one measurement, which has at least one call. */
static const double batch_s = 0.01;

/* The results of rank 0, and how each rank ended, in memory shared by the processes. */
typedef struct shared {
    ls_status status[RANKS_MAX];
    char text[RANKS_MAX][TEXT_BYTES];
    ls_comm_bench_result results[];
} shared;

typedef struct bench {
    const ls_comm_bench_options *options;
    ls_comm *comm;
    /* Reduced in place. */
    float *data;
    /* Source and destination of the copies. */
    char *from, *to;
    /* The size being measured. */
    uint64_t bytes;
} bench;

typedef enum contender { REDUCE, COPY, STREAM, CONTENDERS } contender;

/* ---- one batch ---- */

static ls_status run_once(const bench *b, contender who)
{
    switch (who) {
    case REDUCE:
        return ls_comm_all_reduce(b->comm, b->data, b->data, b->bytes / sizeof(float), LS_F32, LS_COMM_SUM,
                                  NULL);
    case COPY:
        memcpy(b->to, b->from, b->bytes);
        break;
    default:
        ls_comm_kernels()->copy(b->from, b->to, (int64_t)b->bytes);
        break;
    }
    /* Keeps the compiler from removing the copy. */
    __asm__ volatile("" : : "r"(b->to) : "memory");
    return LS_OK;
}

/* Microseconds of one call on the slowest rank. */
static ls_status run_batch(const bench *b, contender who, uint64_t times, double *us_out)
{
    LS_TRY(ls_comm_barrier(b->comm, NULL));
    const double start_s = ls_clock_monotonic_s();
    for (uint64_t i = 0; i < times; i++) {
        LS_TRY(run_once(b, who));
    }
    float took_us = (float)(1e6 * (ls_clock_monotonic_s() - start_s) / (double)times);
    LS_TRY(ls_comm_all_reduce(b->comm, &took_us, &took_us, 1, LS_F32, LS_COMM_MAX, NULL));
    *us_out = (double)took_us;
    return LS_OK;
}

/* The number of calls that fill a batch. It is the same on all ranks, because run_batch gives all
 * of them the same time. */
static ls_status choose_times(const bench *b, contender who, uint64_t *times_out)
{
    double us = 0.0;
    uint64_t times = 1;
    LS_TRY(run_batch(b, who, 1, &us)); /* touches every page for the first time */
    for (;; times *= 4) {
        LS_TRY(run_batch(b, who, times, &us));
        const double took_s = 1e-6 * us * (double)times;
        if (took_s >= 0.25 * batch_s || times >= 100000) {
            *times_out = took_s < batch_s ? (uint64_t)((double)times * batch_s / (took_s + 1e-9)) + 1 : times;
            return LS_OK;
        }
    }
}

/* ---- sums ---- */

static float value_of(uint64_t i, uint32_t rank)
{
    return (float)((i * 7 + rank * 13) % 1009) - 500.25f;
}

/* Sums of small multiples of 1/4 are exact in any order. (The tests check the order itself.) */
static ls_status check_sums(const bench *b, const char *when)
{
    const uint64_t count = b->bytes / sizeof(float);
    for (uint64_t i = 0; i < count; i++) {
        b->data[i] = value_of(i, ls_comm_rank(b->comm));
    }
    LS_TRY(run_once(b, REDUCE));
    for (uint64_t i = 0; i < count; i++) {
        float expected = 0.0f;
        for (uint32_t rank = 0; rank < b->options->ranks; rank++) {
            expected += value_of(i, rank);
        }
        if (b->data[i] != expected) {
            return ls_fail(LS_ERR_FAILED,
                           "%s, the sum of element %" PRIu64 " of %" PRIu64 " is %g; expected was %g", when,
                           i, count, (double)b->data[i], (double)expected);
        }
    }
    memset(b->data, 0, b->bytes); /* so that sums of sums stay finite */
    return LS_OK;
}

/* ---- one size ---- */

static ls_status measure(const bench *b, ls_comm_bench_result *result)
{
    const uint32_t rounds = b->options->rounds ? b->options->rounds : ROUNDS_DEFAULT;
    double us[CONTENDERS][LS_COMM_BENCH_ROUNDS_MAX];
    uint64_t times[CONTENDERS];
    LS_TRY(check_sums(b, "before the measurement"));
    for (int who = 0; who < CONTENDERS; who++) {
        LS_TRY(choose_times(b, (contender)who, &times[who]));
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (int who = 0; who < CONTENDERS; who++) {
            LS_TRY(run_batch(b, (contender)who, times[who], &us[who][round]));
        }
    }
    LS_TRY(check_sums(b, "after the measurement"));
    const double copy = ls_median_f64(us[COPY], rounds), stream = ls_median_f64(us[STREAM], rounds);
    /* Sorts the times, so that the first is the best. */
    const double reduce = ls_median_f64(us[REDUCE], rounds);
    *result = (ls_comm_bench_result){.bytes = b->bytes,
                                     .median_us = reduce,
                                     .best_us = us[REDUCE][0],
                                     .copy_limit_us = copy < stream ? copy : stream};
    return LS_OK;
}

/* ---- a rank ---- */

static void *allocate(const bench *b, uint64_t bytes)
{
    void *memory = b->options->ordinary_memory ? aligned_alloc(64, (bytes + 63) / 64 * 64)
                                               : ls_comm_alloc(b->comm, bytes);
    if (memory) {
        memset(memory, 0, bytes);
    }
    return memory;
}

static ls_status measure_all(bench *b, shared *out)
{
    const ls_comm_bench_options *options = b->options;
    uint64_t most = 64;
    for (uint32_t i = 0; i < options->bytes_count; i++) {
        most = options->bytes[i] > most ? options->bytes[i] : most;
    }
    most = (most + 63) / 64 * 64;
    b->data = allocate(b, most);
    b->from = aligned_alloc(64, most);
    b->to = aligned_alloc(64, most);
    if (!b->data || !b->from || !b->to) {
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory for three buffers of %" PRIu64 " bytes in each of %" PRIu32
                       " processes",
                       most, options->ranks);
    }
    memset(b->from, 1, most);
    for (uint32_t i = 0; i < options->bytes_count; i++) {
        ls_comm_bench_result result;
        b->bytes = options->bytes[i];
        LS_TRY(measure(b, &result));
        if (ls_comm_rank(b->comm) == 0) {
            out->results[i] = result;
        }
    }
    return LS_OK;
}

static ls_status run_rank(const ls_comm_bench_options *options, const char *address, uint32_t rank,
                          shared *out)
{
    bench b = {.options = options};
    ls_comm_options open = {.rank = rank,
                            .size = options->ranks,
                            .local_rank = rank,
                            .local_size = options->ranks,
                            .serve_store = true,
                            .flags = (options->without_shm ? LS_COMM_NO_SHM : 0) |
                                     (options->any_order ? LS_COMM_ANY_ORDER : 0)};
    snprintf(open.coordinator, sizeof open.coordinator, "%s", address);
    LS_TRY(ls_comm_open(&open, &b.comm));
    const ls_status status = measure_all(&b, out);
    if (options->ordinary_memory) {
        free(b.data);
    }
    free(b.from);
    free(b.to);
    ls_comm_close(b.comm);
    return status;
}

/* ---- the processes ---- */

static pid_t start_rank(const ls_comm_bench_options *options, const char *address, uint32_t rank, shared *out)
{
    const pid_t parent = getpid(), pid = fork();
    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    out->status[rank] = run_rank(options, address, rank, out);
    if (out->status[rank] != LS_OK) {
        snprintf(out->text[rank], TEXT_BYTES, "%s", ls_error_text());
    }
    _exit(out->status[rank] == LS_OK ? 0 : 1);
}

/* When one rank fails, the others fail too, because they lose it. So the reason is that of a rank
 * that reports anything but lost ranks. */
static ls_status join_ranks(const pid_t *pids, uint32_t count, const shared *out)
{
    ls_status status = LS_OK;
    for (uint32_t i = 0; i < count; i++) {
        int state = 0;
        while (waitpid(pids[i], &state, 0) < 0 && errno == EINTR) {
        }
        if (WIFSIGNALED(state) && status == LS_OK) {
            status = ls_fail(LS_ERR_FAILED, "rank %" PRIu32 " was killed by signal %d (%s)", i,
                             WTERMSIG(state), strsignal(WTERMSIG(state)));
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (out->status[i] != LS_OK && (status == LS_OK || out->status[i] != LS_ERR_RANKS_LOST)) {
            status = ls_fail(out->status[i], "rank %" PRIu32 ": %s", i, out->text[i]);
        }
    }
    return status;
}

static ls_status run_ranks(const ls_comm_bench_options *options, const char *address, shared *out)
{
    pid_t pids[RANKS_MAX];
    uint32_t started = 0;
    while (started < options->ranks) {
        pids[started] = start_rank(options, address, started, out);
        if (pids[started] < 0) {
            break;
        }
        started++;
    }
    if (started < options->ranks) {
        const int error = errno;
        for (uint32_t i = 0; i < started; i++) {
            kill(pids[i], SIGKILL);
        }
        (void)join_ranks(pids, started, out);
        return ls_fail_errno(error, "can't start process %" PRIu32 " of %" PRIu32, started + 1,
                             options->ranks);
    }
    return join_ranks(pids, started, out);
}

static ls_status check_options(const ls_comm_bench_options *options)
{
    if (options->ranks < 1 || options->ranks > RANKS_MAX) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " ranks were asked for; allowed are 1 to %d",
                       options->ranks, (int)RANKS_MAX);
    }
    if (options->rounds > LS_COMM_BENCH_ROUNDS_MAX) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " rounds were asked for; allowed are 1 to %d",
                       options->rounds, (int)LS_COMM_BENCH_ROUNDS_MAX);
    }
    for (uint32_t i = 0; i < options->bytes_count; i++) {
        if (options->bytes[i] < 4 || options->bytes[i] % 4 != 0) {
            return ls_fail(LS_ERR_INVALID,
                           "one of the message sizes is %" PRIu64
                           " bytes; each must be a multiple of 4 (float32) and at least 4",
                           options->bytes[i]);
        }
    }
    return LS_OK;
}

ls_status ls_comm_bench(const ls_comm_bench_options *options, ls_comm_bench_result *results_out)
{
    LS_TRY(check_options(options));
    const size_t bytes = sizeof(shared) + options->bytes_count * sizeof(ls_comm_bench_result);
    const char *temporary = getenv("TMPDIR");
    char folder[80], address[96]; /* the path of a socket may have at most 108 bytes */
    const bool fits = temporary && temporary[0] == '/' && strlen(temporary) < 48;
    snprintf(folder, sizeof folder, "%s/lockstep-bench-XXXXXX", fits ? temporary : "/tmp");
    shared *out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (out == MAP_FAILED) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the results of the benchmark");
    }
    ls_status status = LS_OK;
    if (!mkdtemp(folder)) {
        status = ls_fail_errno(errno, "can't create the temporary folder %s", folder);
    } else {
        snprintf(address, sizeof address, "unix:%s/store", folder);
        status = run_ranks(options, address, out);
        char text[TEXT_BYTES];
        snprintf(text, sizeof text, "%s", ls_error_text());
        const ls_status removed = ls_dir_remove(folder);
        status = status != LS_OK ? ls_fail(status, "%s", text) : removed;
    }
    if (status == LS_OK) {
        memcpy(results_out, out->results, options->bytes_count * sizeof *results_out);
    }
    munmap(out, bytes);
    return status;
}
