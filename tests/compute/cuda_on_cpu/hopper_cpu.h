// SPDX-License-Identifier: Apache-2.0
/*
 * compute/cuda/device/hopper.h on the processor.
 *
 * The engine and the tensor cores work at another time than the thread that asks them: a copy lands
 * at once or when the block has nothing else to do, and a product is computed at once or not before
 * the wait for its group. Which of both is drawn by the block's seed, so a forgotten wait, or a
 * tile that is overwritten too early, gives wrong numbers.
 */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_HOPPER_CPU_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_HOPPER_CPU_H

#include "compute/cuda_on_cpu/hopper_map.h"

#include <math.h>
#include <string.h>
#include <vector>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define LS_TSAN(call) call
#else
#define LS_TSAN(call)
#endif

LS_DEVICE uint32_t shared_address(const void *p)
{
    const ::cuda_on_cpu::block *block = ::cuda_on_cpu::this_block();
    const ptrdiff_t offset = (const unsigned char *)p - block->shared;
    if (offset < 0 || (size_t)offset >= block->shared_bytes) {
        ::cuda_on_cpu::die("an address outside of the block's dynamic shared memory");
    }
    return (uint32_t)offset;
}

LS_DEVICE float exp2_approximate(float x)
{
    return x < -126.0f ? 0.0f : exp2f(x);
}

/* ---- barriers in shared memory ---- */

namespace cuda_on_cpu
{

/* pending: arrivals missing in this phase; bytes: of copies that have not landed, may be negative
 * for a while; phase: parity of the phase that is going on. */
struct mbarrier {
    int16_t pending, arrivals;
    int32_t bytes_and_phase;
};
static_assert(sizeof(mbarrier) == 8, "as large as on a GPU");

inline void mbarrier_end_phase(mbarrier *b)
{
    if (b->pending == 0 && b->bytes_and_phase >> 1 == 0) {
        b->pending = b->arrivals;
        b->bytes_and_phase ^= 1;
    }
}

inline void mbarrier_add_bytes(uint64_t *barrier, int bytes)
{
    mbarrier *b = (mbarrier *)barrier;
    LS_TSAN(__tsan_release(barrier));
    b->bytes_and_phase += 2 * bytes;
    mbarrier_end_phase(b);
}

} // namespace cuda_on_cpu

LS_DEVICE void mbarrier_init(uint64_t *barrier, uint32_t arrivals)
{
    ::cuda_on_cpu::unwatched guard;
    const ::cuda_on_cpu::mbarrier fresh = {(int16_t)arrivals, (int16_t)arrivals, 0};
    if (shared_address(barrier) % 8) {
        ::cuda_on_cpu::die("mbarrier: the address is no multiple of 8");
    }
    memcpy(barrier, &fresh, sizeof fresh);
}

LS_DEVICE void mbarrier_init_fence()
{
}

LS_DEVICE void mbarrier_arrive(uint64_t *barrier)
{
    ::cuda_on_cpu::unwatched guard;
    ::cuda_on_cpu::mbarrier *b = (::cuda_on_cpu::mbarrier *)barrier;
    LS_TSAN(__tsan_release(barrier));
    if (b->pending <= 0) {
        ::cuda_on_cpu::die("mbarrier: more arrivals than it was made for");
    }
    b->pending--;
    ::cuda_on_cpu::mbarrier_end_phase(b);
}

LS_DEVICE void mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    {
        ::cuda_on_cpu::unwatched guard;
        ((::cuda_on_cpu::mbarrier *)barrier)->bytes_and_phase += 2 * (int)bytes;
    }
    mbarrier_arrive(barrier);
}

LS_DEVICE void mbarrier_wait(uint64_t *barrier, uint32_t parity)
{
    ::cuda_on_cpu::unwatched guard;
    while ((uint32_t)(((volatile ::cuda_on_cpu::mbarrier *)barrier)->bytes_and_phase & 1) == parity) {
        ::cuda_on_cpu::spin("mbarrier_wait");
    }
    LS_TSAN(__tsan_acquire(barrier));
}

LS_DEVICE void shared_fence_async()
{
}

/* ---- the bulk copy engine ---- */

namespace cuda_on_cpu
{

struct engine_copy {
    tensor_map map;
    int at[5];
    unsigned char *to;
    uint32_t to_offset;
    uint64_t *barrier;
};

__attribute__((always_inline)) inline uint32_t swizzle_128(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

/* Copies row by row of the innermost dimension; what is outside of the tensor is 0. */
inline void engine_copy_run(void *context)
{
    engine_copy *c = (engine_copy *)context;
    LS_TSAN(__tsan_acquire(c));
    const tensor_map *m = &c->map;
    uint32_t rows = 1;
    for (uint32_t k = 1; k < m->rank; k++) {
        rows *= m->box[k];
    }
    for (uint32_t row = 0; row < rows; row++) {
        const unsigned char *from = (const unsigned char *)m->address;
        bool row_inside = true;
        for (uint32_t k = 1, rest = row; k < m->rank; rest /= m->box[k], k++) {
            const int64_t index = (int64_t)c->at[k] + rest % m->box[k];
            row_inside = row_inside && index >= 0 && index < (int64_t)m->dims[k];
            from += index * (int64_t)m->strides[k];
        }
        for (uint32_t column = 0; column < m->box[0]; column++) {
            const int64_t index = (int64_t)c->at[0] + column;
            uint16_t value = 0;
            if (row_inside && index >= 0 && index < (int64_t)m->dims[0]) {
                memcpy(&value, from + index * 2, 2);
            }
            const uint32_t place = c->to_offset + (row * m->box[0] + column) * 2;
            memcpy(c->to + ((int64_t)(m->swizzle ? swizzle_128(place) : place) - c->to_offset), &value, 2);
        }
    }
    mbarrier_add_bytes(c->barrier, -(int)(rows * m->box[0]) * 2);
    delete c;
}

inline void engine_load(void *to, const ls_tensor_map *map, uint64_t *barrier, uint32_t rank, const int *at)
{
    unwatched guard;
    engine_copy *c = new engine_copy;
    memcpy(&c->map, map, sizeof c->map);
    if (c->map.rank != rank) {
        die("tma_load_%ud: a map of rank %u", rank, c->map.rank);
    }
    if ((uintptr_t)map % 64) {
        die("tma_load: the map is not at a multiple of 64 bytes");
    }
    c->to_offset = shared_address(to);
    if (c->to_offset % (c->map.swizzle ? 1024 : 128)) {
        die("tma_load: a swizzled box has to begin at a multiple of 1024 bytes, any other of 128");
    }
    memcpy(c->at, at, rank * sizeof *at);
    c->to = (unsigned char *)to;
    c->barrier = barrier;
    LS_TSAN(__tsan_release(c));
    engine_call(engine_copy_run, c);
}

struct engine_bulk {
    void *to;
    const void *from;
    uint32_t bytes;
    uint64_t *barrier;
};

inline void engine_bulk_run(void *context)
{
    engine_bulk *c = (engine_bulk *)context;
    LS_TSAN(__tsan_acquire(c));
    memcpy(c->to, c->from, c->bytes);
    mbarrier_add_bytes(c->barrier, -(int)c->bytes);
    delete c;
}

} // namespace cuda_on_cpu

LS_DEVICE void tma_prefetch(const ls_tensor_map *)
{
}

LS_DEVICE void tma_load_2d(void *to, const ls_tensor_map *map, uint64_t *barrier, int x, int y)
{
    const int at[4] = {x, y, 0, 0};
    ::cuda_on_cpu::engine_load(to, map, barrier, 2, at);
}

LS_DEVICE void tma_load_3d(void *to, const ls_tensor_map *map, uint64_t *barrier, int x, int y, int z)
{
    const int at[4] = {x, y, z, 0};
    ::cuda_on_cpu::engine_load(to, map, barrier, 3, at);
}

LS_DEVICE void tma_load_4d(void *to, const ls_tensor_map *map, uint64_t *barrier, int x, int y, int z, int w)
{
    const int at[4] = {x, y, z, w};
    ::cuda_on_cpu::engine_load(to, map, barrier, 4, at);
}

LS_DEVICE void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    ::cuda_on_cpu::unwatched guard;
    if (((uintptr_t)from | shared_address(to) | bytes) % 16) {
        ::cuda_on_cpu::die("bulk_load: addresses and bytes have to be multiples of 16");
    }
    ::cuda_on_cpu::engine_bulk *c = new ::cuda_on_cpu::engine_bulk{to, from, bytes, barrier};
    LS_TSAN(__tsan_release(c));
    ::cuda_on_cpu::engine_call(::cuda_on_cpu::engine_bulk_run, c);
}

/* ---- matrix products of warp groups ---- */

/* For what the bed does element by element: sanitizers would make it a hundred times as slow, and
 * addresses are checked anyway. */
#define CUDA_ON_CPU_FAST __attribute__((no_sanitize("address", "undefined", "thread"), optimize("O3")))

namespace cuda_on_cpu
{

/* A product that a warp has asked for: its 16 rows of D. */
struct product {
    float *d[WARP_LANES];
    uint32_t a_words[WARP_LANES][4];
    bool a_in_registers;
    uint64_t a, b;
    int columns, order, accumulate;
    /* The tile rows of A are K. */
    bool a_by_columns;
    unsigned warp_of_group, group;
};

/* What the warps of the block have under way. group: number of the group that is open. */
struct products {
    std::vector<product> waiting;
    unsigned group;
};
inline thread_local products warp_products[BLOCK_THREADS_MAX / WARP_LANES];

/* What a lane brings. */
struct product_record {
    float *d;
    const uint32_t *a_words;
    uint64_t a, b;
    int accumulate;
};

CUDA_ON_CPU_FAST inline float bf16_at(const unsigned char *shared, size_t shared_bytes, uint32_t address)
{
    const uint32_t place = swizzle_128(address);
    if (place + 2 > shared_bytes) {
        die("wgmma: an operand outside of the block's shared memory");
    }
    uint16_t upper;
    __builtin_memcpy(&upper, shared + place, sizeof upper);
    const uint32_t bits = (uint32_t)upper << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

CUDA_ON_CPU_FAST inline void product_read_a(const product &p, float (&a)[16][16])
{
    const unsigned char *shared = this_block()->shared;
    const size_t bytes = this_block()->shared_bytes;
    for (unsigned row = 0; row < 16; row++) {
        for (unsigned k = 0; k < 16; k++) {
            if (p.a_in_registers) {
                const uint32_t word = p.a_words[row % 8 * 4 + k % 8 / 2][k / 8 * 2 + row / 8];
                const uint32_t bits = k % 2 ? word & 0xffff0000u : word << 16;
                __builtin_memcpy(&a[row][k], &bits, sizeof bits);
            } else {
                const unsigned m = p.warp_of_group * 16 + row;
                const uint32_t start = (uint32_t)(p.a & 0x3fff) * 16,
                               eight = (uint32_t)(p.a >> 32 & 0x3fff) * 16;
                const uint32_t at = p.a_by_columns ? k / 8 * eight + k % 8 * 128 + m * 2
                                                   : m / 8 * eight + m % 8 * 128 + k * 2;
                a[row][k] = bf16_at(shared, bytes, start + at);
            }
        }
    }
}

CUDA_ON_CPU_FAST inline void product_read_b(const product &p, float (&b)[16][256])
{
    const unsigned char *shared = this_block()->shared;
    const size_t bytes = this_block()->shared_bytes;
    const uint32_t start = (uint32_t)(p.b & 0x3fff) * 16, leading = (uint32_t)(p.b >> 16 & 0x3fff) * 16;
    const uint32_t eight = (uint32_t)(p.b >> 32 & 0x3fff) * 16;
    for (unsigned n = 0; n < (unsigned)p.columns; n++) {
        for (unsigned k = 0; k < 16; k++) {
            b[k][n] = p.order == 0
                          ? bf16_at(shared, bytes, start + n / 8 * eight + n % 8 * 128 + k * 2)
                          : bf16_at(shared, bytes,
                                    start + n / 64 * leading + k / 8 * eight + k % 8 * 128 + n % 64 * 2);
        }
    }
}

CUDA_ON_CPU_FAST inline void product_run(const product &p)
{
    static thread_local float a[16][16], b[16][256], sums[256];
    product_read_a(p, a);
    product_read_b(p, b);
    for (unsigned m = 0; m < 16; m++) {
        for (unsigned n = 0; n < (unsigned)p.columns; n++) {
            sums[n] = p.accumulate ? p.d[m % 8 * 4 + n % 8 / 2][n / 8 * 4 + m / 8 * 2 + n % 2] : 0.0f;
        }
        for (unsigned k = 0; k < 16; k++) {
            for (unsigned n = 0; n < (unsigned)p.columns; n++) {
                sums[n] += a[m][k] * b[k][n];
            }
        }
        for (unsigned n = 0; n < (unsigned)p.columns; n++) {
            p.d[m % 8 * 4 + n % 8 / 2][n / 8 * 4 + m / 8 * 2 + n % 2] = sums[n];
        }
    }
}

/* Runs those of the groups before `group`, in order. */
inline void products_run(products *all, unsigned group)
{
    size_t count = 0;
    while (count < all->waiting.size() && all->waiting[count].group < group) {
        product_run(all->waiting[count++]);
    }
    all->waiting.erase(all->waiting.begin(), all->waiting.begin() + (long)count);
}

inline products *products_of_warp()
{
    return &warp_products[this_thread()->number / WARP_LANES];
}

template <int columns, int order, bool a_by_columns = false>
inline void product_ask(float *d, const uint32_t *a_words, uint64_t a, uint64_t b, int accumulate)
{
    product_record record{d, a_words, a, b, accumulate};
    collective(~0u, record, "wgmma", [](auto record_of, unsigned) {
        products *all = products_of_warp();
        const product_record &first = record_of(0);
        product p = {};
        for (unsigned lane = 0; lane < WARP_LANES; lane++) {
            const product_record &r = record_of(lane);
            if (r.a != first.a || r.b != first.b || r.accumulate != first.accumulate) {
                die("wgmma: the operands differ between lanes");
            }
            p.d[lane] = r.d;
            if (r.a_words) {
                memcpy(p.a_words[lane], r.a_words, sizeof p.a_words[lane]);
            }
        }
        p.a_in_registers = first.a_words != nullptr;
        p.a = first.a;
        p.b = first.b;
        p.columns = columns;
        p.order = order;
        p.a_by_columns = a_by_columns;
        p.accumulate = first.accumulate;
        p.warp_of_group = this_thread()->number / WARP_LANES % 4;
        p.group = all->group;
        all->waiting.push_back(p);
        if (coin()) {
            products_run(all, all->group + 1);
        }
    });
}

} // namespace cuda_on_cpu

LS_DEVICE void wgmma_fence()
{
    __syncwarp();
}

LS_DEVICE void wgmma_commit()
{
    int nothing = 0;
    ::cuda_on_cpu::collective(~0u, nothing, "wgmma_commit",
                              [](auto, unsigned) { ::cuda_on_cpu::products_of_warp()->group++; });
}

template <int N> LS_DEVICE void wgmma_wait()
{
    int nothing = 0;
    ::cuda_on_cpu::collective(~0u, nothing, "wgmma_wait", [](auto, unsigned) {
        ::cuda_on_cpu::products *all = ::cuda_on_cpu::products_of_warp();
        ::cuda_on_cpu::products_run(all, all->group > N ? all->group - N : 0);
    });
}

template <int N> LS_DEVICE void wgmma_hold(float (&)[N])
{
}

template <int N, operand_order B> struct wgmma_shared {
    static void run(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)
    {
        ::cuda_on_cpu::product_ask<N, B>(d, nullptr, a, b, accumulate);
    }
};

template <int N, operand_order B> struct wgmma_registers {
    static void run(float (&d)[N / 2], const uint32_t *a, uint64_t b, int accumulate)
    {
        ::cuda_on_cpu::product_ask<N, B>(d, a, 0, b, accumulate);
    }
};

/* ---- warps ---- */

LS_DEVICE void named_barrier_sync(uint32_t barrier, uint32_t threads)
{
    cuda_on_cpu_bar_sync(barrier, threads);
}

LS_DEVICE void named_barrier_arrive(uint32_t barrier, uint32_t threads)
{
    cuda_on_cpu_bar_arrive(barrier, threads);
}

template <int N> LS_DEVICE void registers_grow()
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "a multiple of 8");
    __syncwarp();
}

template <int N> LS_DEVICE void registers_shrink()
{
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "a multiple of 8");
    __syncwarp();
}

#endif
