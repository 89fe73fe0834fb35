// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "compute/cpu/ops.h"
#include "compute/queue.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TILES_MAX = 4096 };

typedef struct count_job {
    _Atomic int runs[TILES_MAX];
    uint32_t threads;
    _Atomic int bad_workers;
    uint32_t nap_us; /* each tile sleeps this long */
} count_job;

static void tile_count(void *context, int64_t tile, uint32_t worker)
{
    count_job *job = context;
    atomic_fetch_add(&job->runs[tile], 1);
    if (worker >= job->threads) {
        atomic_fetch_add(&job->bad_workers, 1);
    }
    if (job->nap_us) {
        usleep(job->nap_us);
    }
}

static void check_runs(count_job *job, int64_t tiles, int expected)
{
    for (int64_t i = 0; i < TILES_MAX; i++) {
        assert_int_equal(job->runs[i], i < tiles ? expected : 0);
    }
    assert_int_equal(job->bad_workers, 0);
}

static void queue_run_tiles_runs_each_tile_once(void **state)
{
    (void)state;
    const uint32_t threads[] = {1, 2, 3, 4, 9};
    const int64_t counts[] = {0, 1, 2, 3, 17, TILES_MAX};
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        ls_queue *queue = NULL;
        assert_int_equal(ls_queue_create_cpu(threads[t], &queue), LS_OK);
        assert_int_equal(ls_queue_threads(queue), threads[t]);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            count_job job = {.threads = threads[t]};
            ls_queue_run_tiles(queue, counts[c], tile_count, &job);
            check_runs(&job, counts[c], 1);
        }
        ls_queue_destroy(queue);
    }
}

/* Many small jobs in a row: late workers of one job must never touch the next; gaps make workers
 * fall asleep.
 */
static void queue_run_tiles_survives_short_jobs(void **state)
{
    (void)state;
    for (uint32_t threads = 2; threads <= 4; threads++) {
        ls_queue *queue = NULL;
        assert_int_equal(ls_queue_create_cpu(threads, &queue), LS_OK);
        count_job job = {.threads = threads};
        const int rounds = 3000;
        for (int i = 0; i < rounds; i++) {
            ls_queue_run_tiles(queue, 5, tile_count, &job);
            if (i % 100 == 0) {
                usleep(200);
            }
        }
        check_runs(&job, 5, rounds);
        ls_queue_destroy(queue);
    }
}

/* Tiles that sleep: the caller runs out of work first and has to be woken. */
static void queue_run_tiles_waits_for_slow_tiles(void **state)
{
    (void)state;
    ls_queue *queue = NULL;
    assert_int_equal(ls_queue_create_cpu(3, &queue), LS_OK);
    count_job job = {.threads = 3, .nap_us = 300};
    for (int i = 0; i < 50; i++) {
        ls_queue_run_tiles(queue, 3, tile_count, &job);
    }
    check_runs(&job, 3, 50);
    ls_queue_destroy(queue);
}

static void queue_create_refuses_bad_thread_counts(void **state)
{
    (void)state;
    ls_queue *queue = (ls_queue *)state;
    assert_int_equal(ls_queue_create_cpu(0, &queue), LS_ERR_INVALID);
    assert_int_equal(ls_queue_create_cpu(257, &queue), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "257"));
    assert_ptr_equal(queue, state);
}

static void queue_create_follows_ls_isa(void **state)
{
    (void)state;
    ls_queue *queue = NULL;
    setenv("LS_ISA", "generic", 1);
    assert_int_equal(ls_queue_create_cpu(1, &queue), LS_OK);
    assert_non_null(strstr(ls_queue_device_name(queue), "generic"));
    ls_queue_destroy(queue);
    queue = NULL;
    setenv("LS_ISA", "avx3", 1);
    assert_int_equal(ls_queue_create_cpu(1, &queue), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "avx3"));
    assert_null(queue);
    unsetenv("LS_ISA");
}

static void queue_scratch_is_aligned_and_per_worker(void **state)
{
    (void)state;
    ls_queue *queue = NULL;
    assert_int_equal(ls_queue_create_cpu(2, &queue), LS_OK);
    unsigned char *small = ls_queue_scratch(queue, 0, 100);
    assert_ptr_equal(ls_queue_scratch(queue, 0, 50), small);
    const size_t large = (size_t)5 << 20;
    assert_int_equal(ls_queue_reserve_scratch(queue, large), LS_OK);
    unsigned char *first = ls_queue_scratch(queue, 0, large), *second = ls_queue_scratch(queue, 1, large);
    assert_int_equal((uintptr_t)first % 64, 0);
    assert_true(first + large <= second || second + large <= first);
    memset(first, 1, large);
    memset(second, 2, large);
    ls_queue_destroy(queue);
}

static void device_alloc_is_zeroed_and_aligned(void **state)
{
    (void)state;
    ls_queue *queue = NULL;
    assert_int_equal(ls_queue_create_cpu(1, &queue), LS_OK);
    const size_t sizes[] = {0, 1, 100, (2u << 20) - 1, 2u << 20, (6u << 20) + 12345};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        void *memory = NULL;
        assert_int_equal(ls_device_alloc(queue, sizes[s], &memory), LS_OK);
        assert_int_equal((uintptr_t)memory % 64, 0);
        unsigned char any = 0;
        for (size_t i = 0; i < sizes[s]; i++) {
            any |= ((unsigned char *)memory)[i];
        }
        assert_int_equal(any, 0);
        memset(memory, 0xff, sizes[s]);
        ls_device_free(queue, memory, sizes[s]);
    }
    void *memory = state;
    assert_int_equal(ls_device_alloc(queue, SIZE_MAX / 2 + 1, &memory), LS_ERR_MEMORY);
    assert_ptr_equal(memory, state);
    ls_queue_destroy(queue);
}

/* A backend is its device and then only functions. The CPU leaves out the optional free_memory. */
static void backend_has_every_function(void **state)
{
    (void)state;
    const size_t first = offsetof(ls_backend, destroy);
    assert_int_equal(ls_cpu_backend.device, LS_DEVICE_CPU);
    for (size_t at = first; at < sizeof(ls_backend); at += sizeof(void *)) {
        const void *function = NULL;
        memcpy(&function, (const char *)&ls_cpu_backend + at, sizeof function);
        assert_true(function || at == offsetof(ls_backend, free_memory));
    }
}

static void shared_memory_and_move_copy_bytes(void **state)
{
    (void)state;
    ls_queue *queue = NULL;
    assert_int_equal(ls_queue_create_cpu(1, &queue), LS_OK);
    assert_int_equal(ls_queue_device(queue), LS_DEVICE_CPU);
    enum { BYTES = 100003 };
    unsigned char *host = malloc(BYTES), *back = malloc(BYTES);
    void *shared = NULL, *device = NULL;
    assert_int_equal(ls_shared_alloc(queue, BYTES, &shared), LS_OK);
    assert_int_equal(ls_device_alloc(queue, BYTES, &device), LS_OK);
    for (size_t i = 0; i < BYTES; i++) {
        host[i] = (unsigned char)(i * 7 + i / 256);
        assert_int_equal(((unsigned char *)shared)[i], 0);
    }
    assert_int_equal(ls_queue_move(queue, shared, host, BYTES), LS_OK);
    assert_int_equal(ls_queue_move(queue, device, shared, BYTES), LS_OK);
    assert_int_equal(ls_queue_move(queue, back, device, BYTES), LS_OK);
    assert_int_equal(ls_queue_move(queue, NULL, NULL, 0), LS_OK);
    assert_int_equal(ls_queue_wait(queue), LS_OK);
    assert_memory_equal(back, host, BYTES);
    ls_shared_free(queue, shared, BYTES);
    ls_shared_free(queue, NULL, BYTES);
    ls_device_free(queue, device, BYTES);
    free(host);
    free(back);
    ls_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_run_tiles_runs_each_tile_once),
        cmocka_unit_test(queue_run_tiles_survives_short_jobs),
        cmocka_unit_test(queue_run_tiles_waits_for_slow_tiles),
        cmocka_unit_test(queue_create_refuses_bad_thread_counts),
        cmocka_unit_test(queue_create_follows_ls_isa),
        cmocka_unit_test(queue_scratch_is_aligned_and_per_worker),
        cmocka_unit_test(device_alloc_is_zeroed_and_aligned),
        cmocka_unit_test(backend_has_every_function),
        cmocka_unit_test(shared_memory_and_move_copy_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
