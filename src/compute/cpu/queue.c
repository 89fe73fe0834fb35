// SPDX-License-Identifier: Apache-2.0
#include "compute/queue.h"

#include "base/assert.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { MEMORY_ALIGN = 64, SCRATCH_GRAIN = 64 * 1024 };
static const size_t huge_page_bytes = (size_t)2 << 20;

/* The address sanitizer can't see past the end of a mapping, so its builds take every block from
 * the heap. */
#if defined(__SANITIZE_ADDRESS__)
static const size_t mapped_bytes_min = SIZE_MAX;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
static const size_t mapped_bytes_min = SIZE_MAX;
#else
static const size_t mapped_bytes_min = (size_t)2 << 20;
#endif
#else
static const size_t mapped_bytes_min = (size_t)2 << 20;
#endif

static size_t round_up(size_t bytes, size_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

/* Zeroed pages, 2 MiB aligned, huge where the kernel has them; NULL when there is no memory. */
static void *pages_map(size_t bytes)
{
    const size_t size = round_up(bytes, huge_page_bytes);
    const size_t room = size + huge_page_bytes;
    unsigned char *base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    unsigned char *start = (unsigned char *)round_up((uintptr_t)base, huge_page_bytes);
    if (start > base) {
        munmap(base, (size_t)(start - base));
    }
    const size_t tail = (size_t)(base + room - (start + size));
    if (tail > 0) {
        munmap(start + size, tail);
    }
    (void)madvise(start, size, MADV_HUGEPAGE); /* a wish: failing costs speed only */
    return start;
}

/* Zeroed and 64-byte aligned; NULL when there is no memory. */
static void *block_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    if (bytes >= mapped_bytes_min) {
        return pages_map(bytes);
    }
    void *memory = NULL;
    if (posix_memalign(&memory, MEMORY_ALIGN, bytes > 0 ? bytes : 1) != 0) {
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

static void block_free(void *memory, size_t bytes)
{
    if (memory && bytes >= mapped_bytes_min) {
        munmap(memory, round_up(bytes, huge_page_bytes));
    } else {
        free(memory);
    }
}

/* The processor's brand string, blanks trimmed; "CPU" when it has none. */
static void brand_read(char brand[49])
{
    memcpy(brand, "CPU", sizeof "CPU");
#if defined(__x86_64__)
    unsigned int words[12] = {0};
    if ((unsigned int)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) {
        return;
    }
    for (unsigned int i = 0; i < 3; i++) {
        __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    }
    char text[49] = {0};
    memcpy(text, words, 48);
    const char *start = text + strspn(text, " ");
    size_t length = strlen(start);
    while (length > 0 && start[length - 1] == ' ') {
        length--;
    }
    if (length > 0) {
        memcpy(brand, start, length);
        brand[length] = 0;
    }
#endif
}

ls_status ls_queue_create_cpu(uint32_t threads, ls_queue **queue_out)
{
    LS_ASSERT(queue_out);
    const ls_cpu_kernels *kernels = NULL;
    ls_pool *pool = NULL;
    LS_TRY(ls_cpu_kernels_select(&kernels));
    LS_TRY(ls_pool_create(threads, &pool));
    ls_queue_cpu *queue = calloc(1, sizeof *queue);
    ls_queue_scratch_block *scratch = block_alloc(threads * sizeof *scratch);
    if (!queue || !scratch) {
        free(queue);
        block_free(scratch, threads * sizeof *scratch);
        ls_pool_destroy(pool);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a queue of %u threads", threads);
    }
    queue->base.backend = &ls_cpu_backend;
    queue->pool = pool;
    queue->kernels = kernels;
    queue->scratch = scratch;
    char brand[49];
    brand_read(brand);
    snprintf(queue->device_name, sizeof queue->device_name, "%s, %s", brand, kernels->isa);
    *queue_out = &queue->base;
    return LS_OK;
}

void ls_cpu_destroy(ls_queue *queue)
{
    ls_queue_cpu *cpu = ls_cpu_of(queue);
    const uint32_t threads = ls_pool_threads(cpu->pool);
    ls_pool_destroy(cpu->pool);
    for (uint32_t i = 0; i < threads; i++) {
        block_free(cpu->scratch[i].memory, cpu->scratch[i].bytes);
    }
    block_free(cpu->scratch, threads * sizeof *cpu->scratch);
    free(cpu);
}

uint32_t ls_cpu_threads(const ls_queue *queue)
{
    return ls_pool_threads(ls_cpu_of(queue)->pool);
}

ls_status ls_cpu_wait(ls_queue *queue)
{
    (void)queue;
    return LS_OK; /* every call has completed before it returned */
}

void ls_queue_run_tiles(ls_queue *queue, int64_t tiles, ls_tile_fn fn, void *context)
{
    LS_ASSERT(ls_queue_device(queue) == LS_DEVICE_CPU);
    ls_pool_run(ls_cpu_of(queue)->pool, tiles, fn, context);
}

static bool scratch_grow(ls_queue_scratch_block *block, size_t bytes)
{
    const size_t size = round_up(bytes, SCRATCH_GRAIN);
    void *memory = block_alloc(size);
    if (!memory) {
        return false;
    }
    block_free(block->memory, block->bytes);
    *block = (ls_queue_scratch_block){.memory = memory, .bytes = size};
    return true;
}

ls_status ls_queue_reserve_scratch(ls_queue *queue, size_t bytes)
{
    LS_ASSERT(ls_queue_device(queue) == LS_DEVICE_CPU);
    const uint32_t threads = ls_cpu_threads(queue);
    for (uint32_t i = 0; i < threads; i++) {
        ls_queue_scratch_block *block = &ls_cpu_of(queue)->scratch[i];
        if (block->bytes < bytes && !scratch_grow(block, bytes)) {
            return ls_fail(LS_ERR_MEMORY,
                           "not enough memory for %zu bytes of temporary memory for each of %u threads",
                           bytes, threads);
        }
    }
    return LS_OK;
}

void *ls_queue_scratch(ls_queue *queue, uint32_t worker, size_t bytes)
{
    LS_ASSERT(ls_queue_device(queue) == LS_DEVICE_CPU && worker < ls_cpu_threads(queue));
    ls_queue_scratch_block *block = &ls_cpu_of(queue)->scratch[worker];
    if (block->bytes < bytes) {
        LS_ASSERT(scratch_grow(block, bytes) && "no memory for scratch that was not reserved");
    }
    return block->memory;
}

ls_status ls_cpu_alloc(ls_queue *queue, size_t bytes, ls_memory_kind kind, void **memory_out)
{
    (void)queue;
    (void)kind; /* the host is the device */
    void *memory = block_alloc(bytes);
    if (!memory) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a buffer of %zu bytes", bytes);
    }
    *memory_out = memory;
    return LS_OK;
}

void ls_cpu_free(ls_queue *queue, void *memory, size_t bytes, ls_memory_kind kind)
{
    (void)queue;
    (void)kind;
    block_free(memory, bytes);
}

ls_status ls_cpu_move(ls_queue *queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    memmove(to, from, bytes);
    return LS_OK;
}

const char *ls_cpu_determinism_class(const ls_queue *queue)
{
    (void)queue;
    return "cpu-fma-3";
}

const char *ls_cpu_device_name(const ls_queue *queue)
{
    return ls_cpu_of(queue)->device_name;
}
