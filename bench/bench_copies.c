// SPDX-License-Identifier: Apache-2.0
/*
 * N processes copy side by side: what an all-reduce on one host is held against (bench/allreduce_pairs.sh). Usage:
 *
 *   bench_copies RANKS BATCHES BATCH_MS BYTES...
 *
 * A direct all-reduce in place reads all N buffers and writes all N: the traffic of N concurrent copies of one buffer. Each process copies
 * BYTES from one shared mapping (memfd, as the collectives use) to another, with memcpy and with stores past the cache; the faster way
 * counts. A batch's time per copy is that of its slowest process; the median batch counts. Prints one JSON object.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

enum { RANKS_MAX = 64, BATCHES_MAX = 100, ITERATIONS_MAX = 20000 };

typedef struct shared_page {
    pthread_barrier_t barrier;
    double seconds[RANKS_MAX]; /* of a batch, per process */
} shared_page;

typedef void copy_function(uint8_t *to, const uint8_t *from, size_t bytes);

static void copy_plain(uint8_t *to, const uint8_t *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

/* bytes is a multiple of 64, both are aligned to 64. */
static void copy_past_cache(uint8_t *to, const uint8_t *from, size_t bytes)
{
#ifdef __x86_64__
    for (size_t i = 0; i < bytes; i += 64) {
        for (size_t j = i; j < i + 64; j += 16) {
            _mm_stream_si128((__m128i *)(to + j), _mm_load_si128((const __m128i *)(from + j)));
        }
    }
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint8_t *map_memory(size_t bytes)
{
    const int file = memfd_create("copies", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        perror("bench_copies: memfd");
        _exit(1);
    }
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        perror("bench_copies: mmap");
        _exit(1);
    }
    memset(memory, 1, bytes);
    return memory;
}

/* Seconds per copy of the slowest process; the same number in all. */
static double batch(shared_page *page, int rank, int ranks, copy_function *copy, uint8_t *to,
                    const uint8_t *from, size_t bytes, int iterations)
{
    pthread_barrier_wait(&page->barrier);
    const double begun = now_s();
    for (int i = 0; i < iterations; i++) {
        copy(to, from, bytes);
        __asm__ volatile("" ::: "memory");
    }
    page->seconds[rank] = (now_s() - begun) / iterations;
    pthread_barrier_wait(&page->barrier);
    double slowest = 0.0;
    for (int i = 0; i < ranks; i++) {
        slowest = page->seconds[i] > slowest ? page->seconds[i] : slowest;
    }
    pthread_barrier_wait(&page->barrier);
    return slowest;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct plan {
    shared_page *page;
    int rank, ranks, batches;
    double batch_s;
} plan;

static double median_s(const plan *p, copy_function *copy, uint8_t *to, const uint8_t *from, size_t bytes)
{
    batch(p->page, p->rank, p->ranks, copy, to, from, bytes, 2);
    const double wanted = p->batch_s / batch(p->page, p->rank, p->ranks, copy, to, from, bytes, 3);
    const int iterations = wanted < 1 ? 1 : wanted > ITERATIONS_MAX ? ITERATIONS_MAX : (int)wanted;
    double seconds[BATCHES_MAX];
    for (int i = 0; i < p->batches; i++) {
        seconds[i] = batch(p->page, p->rank, p->ranks, copy, to, from, bytes, iterations);
    }
    qsort(seconds, (size_t)p->batches, sizeof *seconds, compare);
    return seconds[p->batches / 2];
}

static void run(const plan *p, int sizes, char **size)
{
    if (p->rank == 0) {
        printf("{\"peer\": \"copies\", \"ranks\": %d, \"results\": [", p->ranks);
    }
    for (int i = 0; i < sizes; i++) {
        const size_t bytes = (strtoull(size[i], NULL, 10) + 63) / 64 * 64;
        uint8_t *from = map_memory(bytes), *to = map_memory(bytes);
        const double plain = median_s(p, copy_plain, to, from, bytes);
        const double past = median_s(p, copy_past_cache, to, from, bytes);
        if (p->rank == 0) {
            printf("%s{\"bytes\": %s, \"us\": %.3f, \"memcpy_us\": %.3f, \"past_cache_us\": %.3f}",
                   i > 0 ? ", " : "", size[i], 1e6 * (plain < past ? plain : past), 1e6 * plain, 1e6 * past);
        }
        munmap(from, bytes);
        munmap(to, bytes);
    }
    if (p->rank == 0) {
        printf("]}\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    plan p = {.ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0,
              .batches = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0,
              .batch_s = argc > 3 ? strtod(argv[3], NULL) / 1e3 : 0.0};
    if (argc < 5 || p.ranks < 1 || p.ranks > RANKS_MAX || p.batches < 1 || p.batches > BATCHES_MAX ||
        p.batch_s <= 0.0) {
        fprintf(stderr, "usage: bench_copies RANKS(1..%d) BATCHES(1..%d) BATCH_MS BYTES...\n", RANKS_MAX,
                BATCHES_MAX);
        return 2;
    }
    p.page = mmap(NULL, sizeof *p.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    if (p.page == MAP_FAILED || pthread_barrierattr_init(&attributes) != 0 ||
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_barrier_init(&p.page->barrier, &attributes, (unsigned)p.ranks) != 0) {
        perror("bench_copies");
        return 1;
    }
    for (int rank = 1; rank < p.ranks; rank++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            p.rank = rank;
            run(&p, argc - 4, argv + 4);
            _exit(0);
        }
    }
    run(&p, argc - 4, argv + 4);
    while (wait(NULL) > 0) {
    }
    return 0;
}
