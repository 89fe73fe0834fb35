// SPDX-License-Identifier: Apache-2.0
/*
 * What compute capability 9.0 adds, one function per instruction: barriers in shared memory
 * (mbarrier), the bulk copy engine (TMA), matrix products of warp groups (wgmma), named barriers
 * and register quotas. Only files named *_sm90.cu may include it.
 * tests/compute/cuda_on_cpu/hopper_cpu.h has the meaning of each function on the processor;
 * hopper_check_sm90.cu has a kernel for each.
 * Source: NVIDIA, "Parallel Thread Execution ISA", sections on wgmma, mbarrier and cp.async.bulk.
 *
 * Tiles. A tile of bfloat16 lies in shared memory as panels of 64 columns: row r of a panel is the
 * 128 bytes at 128 r, and the 16-byte piece c of the row stands at place c ^ (r % 8), the 128-byte
 * swizzle. A copy of the engine writes one panel; panels begin at multiples of 1024 bytes.
 *
 *        panel 0, rows x 64        panel 1, rows x 64
 *      +---------------------+   +---------------------+
 *      | columns 0 .. 63     |   | columns 64 .. 127   |    rows x 128 bytes each
 *      +---------------------+   +---------------------+
 *
 * Operands. wgmma reads D (64, N) += A (64, 16) B (16, N) through 64-bit operands:
 *   - tile rows are M or N, columns are K ("K-major"): operand_rows(); the next 16 of K are 32
 *     bytes further, within a panel;
 *   - tile rows are K, columns are N ("MN-major"): operand_columns(); the next 16 of K are 16 rows,
 *     2048 bytes, further.
 * operand_advance() moves by bytes.
 *
 * Accumulators. Warp w of the group has rows 16 w .. 16 w + 15. Lane l has in d[4 j + e] the row
 * l / 4 + (e / 2) * 8 and the column 8 j + (l % 4) * 2 + e % 2. A in registers: the words of lane l
 * are the pairs of columns (l % 4) * 2 of rows l / 4 and l / 4 + 8, then the same 8 columns
 * further. Accumulators 8 kk .. 8 kk + 7, packed two by two, are therefore the A of K-step kk.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_HOPPER_H
#define LS_COMPUTE_CUDA_DEVICE_HOPPER_H

#include "compute/cuda/device/device.h"
#include "compute/cuda/device/tensor_map.h"

enum { PANEL_COLUMNS = 64, PANEL_ROW_BYTES = 128 };

/* The order of B in shared memory. */
enum operand_order { TILE_ROWS_ARE_N = 0, TILE_ROWS_ARE_K = 1 };

/* Byte offset of element (row, column) of a panel. */
LS_DEVICE uint32_t panel_offset(uint32_t row, uint32_t column)
{
    return row * PANEL_ROW_BYTES + ((column / 8 ^ row % 8) * 16) + column % 8 * 2;
}

#ifndef __CUDACC__
#include "compute/cuda_on_cpu/hopper_cpu.h"
#else

LS_DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 2^x with a relative error of about 2^-22; results below 2^-126 are 0. */
LS_DEVICE float exp2_approximate(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- barriers in shared memory: 8 bytes each ---- */

/* `arrivals` end a phase. One thread calls it, then mbarrier_init_fence, then all meet. */
LS_DEVICE void mbarrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

LS_DEVICE void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

LS_DEVICE void mbarrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives; the phase also needs `bytes` of copies to have landed. */
LS_DEVICE void mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

/* Waits until the phase of this parity is over: 0 for the first, then 1, 0, ... */
LS_DEVICE void mbarrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!over);
}

/* What this thread wrote to shared memory is seen by wgmma and the copy engine after a barrier. */
LS_DEVICE void shared_fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- the bulk copy engine ---- */

LS_DEVICE void tma_prefetch(const ls_tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

LS_DEVICE void tma_load_2d(void *to, const ls_tensor_map *map, uint64_t *barrier, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
                 : "memory");
}

LS_DEVICE void tma_load_3d(void *to, const ls_tensor_map *map, uint64_t *barrier, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

LS_DEVICE void tma_load_4d(void *to, const ls_tensor_map *map, uint64_t *barrier, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* Copies bytes, a multiple of 16, between 16-byte aligned places. */
LS_DEVICE void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

/* ---- matrix products of warp groups ---- */

/* Before the first wgmma, and before one whose registers other instructions have changed. */
LS_DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a group of products. */
LS_DEVICE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N groups are under way. */
template <int N> LS_DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving accesses of accumulators across this place. */
template <int N> LS_DEVICE void wgmma_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

#define LS_REGISTERS_32                                                                                      \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "  \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define LS_REGISTERS_64                                                                                      \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "  \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "   \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "   \
    "%62, %63}"
#define LS_FLOATS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LS_FLOATS_16(d, i)                                                                                   \
    LS_FLOATS_4(d, i), LS_FLOATS_4(d, i + 4), LS_FLOATS_4(d, i + 8), LS_FLOATS_4(d, i + 12)
#define LS_FLOATS_32(d)   LS_FLOATS_16(d, 0), LS_FLOATS_16(d, 16)
#define LS_FLOATS_64(d)   LS_FLOATS_16(d, 0), LS_FLOATS_16(d, 16), LS_FLOATS_16(d, 32), LS_FLOATS_16(d, 48)
#define LS_WGMMA_BEGIN(p) "{\n.reg .pred p;\nsetp.ne.b32 p, " p ", 0;\nwgmma.mma_async.sync.aligned."

/* D = A B, or D += A B if accumulate; A and B in shared memory, A by tile rows. */
template <int N, operand_order B> struct wgmma_shared;
template <operand_order B> struct wgmma_shared<64, B> {
    static __device__ __forceinline__ void run(float (&d)[32], uint64_t a, uint64_t b, int accumulate)
    {
        asm volatile(LS_WGMMA_BEGIN("%34") "m64n64k16.f32.bf16.bf16 " LS_REGISTERS_32
                                           ", %32, %33, p, 1, 1, 0, %35;\n}"
                     : LS_FLOATS_32(d)
                     : "l"(a), "l"(b), "r"(accumulate), "n"((int)B));
    }
};
template <operand_order B> struct wgmma_shared<128, B> {
    static __device__ __forceinline__ void run(float (&d)[64], uint64_t a, uint64_t b, int accumulate)
    {
        asm volatile(LS_WGMMA_BEGIN("%66") "m64n128k16.f32.bf16.bf16 " LS_REGISTERS_64
                                           ", %64, %65, p, 1, 1, 0, %67;\n}"
                     : LS_FLOATS_64(d)
                     : "l"(a), "l"(b), "r"(accumulate), "n"((int)B));
    }
};

/* The same with A in registers. */
template <int N, operand_order B> struct wgmma_registers;
template <operand_order B> struct wgmma_registers<64, B> {
    static __device__ __forceinline__ void run(float (&d)[32], const uint32_t *a, uint64_t b, int accumulate)
    {
        asm volatile(LS_WGMMA_BEGIN("%37") "m64n64k16.f32.bf16.bf16 " LS_REGISTERS_32
                                           ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
                     : LS_FLOATS_32(d)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"((int)B));
    }
};
template <operand_order B> struct wgmma_registers<128, B> {
    static __device__ __forceinline__ void run(float (&d)[64], const uint32_t *a, uint64_t b, int accumulate)
    {
        asm volatile(LS_WGMMA_BEGIN("%69") "m64n128k16.f32.bf16.bf16 " LS_REGISTERS_64
                                           ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
                     : LS_FLOATS_64(d)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"((int)B));
    }
};

/* ---- warps ---- */

/* Barriers 1 to 15 (0 is that of __syncthreads), for `threads` threads, whole warps. */
LS_DEVICE void named_barrier_sync(uint32_t barrier, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Counts as arrived and goes on. */
LS_DEVICE void named_barrier_arrive(uint32_t barrier, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* The registers of a thread from here on: multiples of 8; all warps of a warp group call it. */
template <int N> LS_DEVICE void registers_grow()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> LS_DEVICE void registers_shrink()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#endif

/*
 * The lower half of an operand; the upper half is the same for all: groups of 8 rows are 1024 bytes
 * apart, 128-byte swizzle. Operands that are the same in all threads should be made from values
 * that the compiler knows to be the same (warp_uniform): it keeps them in uniform registers.
 */
typedef uint32_t operand;
enum { OPERAND_UPPER = 1024 >> 4 | 1 << 30 };

/* Operands whose tile rows are M or N. */
LS_DEVICE operand operand_rows(const void *tile)
{
    return (shared_address(tile) >> 4 & 0x3fff) | 1 << 16;
}

/* Operands whose tile rows are K; the panels of 64 columns are panel_bytes apart. */
LS_DEVICE operand operand_columns(const void *tile, uint32_t panel_bytes)
{
    return (shared_address(tile) >> 4 & 0x3fff) | panel_bytes >> 4 << 16;
}

LS_DEVICE operand operand_advance(operand from, uint32_t bytes)
{
    return from + (bytes >> 4);
}

LS_DEVICE uint64_t operand_whole(operand lower)
{
    return (uint64_t)OPERAND_UPPER << 32 | lower;
}

/* The value of lane 0, for values that are the same in all lanes: the compiler then knows. */
LS_DEVICE int warp_uniform(int x)
{
    return __shfl_sync(~0u, x, 0);
}

/* D (64, N) = A B, or D += A B if accumulate. a: an operand by tile rows. */
template <int N, operand_order B, int DN>
LS_DEVICE void wgmma(float (&d)[DN], operand a, operand b, int accumulate)
{
    static_assert(DN == N / 2, "a thread has N / 2 accumulators");
    wgmma_shared<N, B>::run(d, operand_whole(a), operand_whole(b), accumulate);
}

/* The same with A in registers: 4 words per thread, made anew for each use. ptxas 13.0 gives away
 * the registers of an A that a loop only reads: from the second turn on, the products were
 * wrong. */
template <int N, operand_order B, int DN>
LS_DEVICE void wgmma(float (&d)[DN], const uint32_t *a, operand b, int accumulate)
{
    static_assert(DN == N / 2, "a thread has N / 2 accumulators");
    wgmma_registers<N, B>::run(d, a, operand_whole(b), accumulate);
}

#endif
