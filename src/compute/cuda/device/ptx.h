// SPDX-License-Identifier: Apache-2.0
/*
 * Instructions of capability 8.0 that CUDA C++ has no name for: products of the tensor cores, loads
 * of their operands, copies that do not wait. On the processor they mean what
 * tests/compute/cuda_on_cpu/ptx_cpu.h says.
 *
 * Lane l of a warp has group g = l / 4 and t = l % 4. Source of all layouts: PTX ISA, "Warp-level
 * matrix instructions".
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_PTX_H
#define LS_COMPUTE_CUDA_DEVICE_PTX_H

#include "compute/cuda/device/device.h"

#ifdef __CUDACC__

LS_DEVICE uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/*
 * d += A B, with A (16, 16) and B (16, 8) of bfloat16, d (16, 8) of float32.
 *   a[0]: A[g][2t, 2t+1]      a[1]: A[g+8][2t, 2t+1]      a[2], a[3]: the same with columns + 8
 *   b[0]: B[2t, 2t+1][g]      b[1]: B[2t+8, 2t+9][g]
 *   d[0], d[1]: D[g][2t, 2t+1]                            d[2], d[3]: D[g+8][2t, 2t+1]
 */
LS_DEVICE void mma_bf16_16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/*
 * Loads four (8, 8) matrices of 16-bit numbers from shared memory. Lane 8 i + r gives the address
 * of row r of matrix i, 16 bytes, 16-byte aligned; r[i] becomes M_i[g][2t, 2t+1], or M_i[2t,
 * 2t+1][g] with _trans. x2: two matrices; the addresses of lanes 16 to 31 are not used.
 */
LS_DEVICE void ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
LS_DEVICE void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
LS_DEVICE void ldmatrix_x2(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
LS_DEVICE void ldmatrix_x2_trans(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}

/*
 * Copies 16 bytes from global to shared memory, both 16-byte aligned, without waiting; not
 * is_valid: writes zeros and reads nothing. Copies since the last commit form a group;
 * cp_async_wait<N> waits until at most the N latest groups of this thread are open. Other threads
 * see the bytes after a barrier.
 */
LS_DEVICE void cp_async_16(void *shared, const void *global, bool is_valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(is_valid ? 16 : 0)
                 : "memory");
}
/* The same of the first `bytes` of 16, then zeros. bytes: 0 to 16. */
LS_DEVICE void cp_async_16_part(void *shared, const void *global, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(bytes)
                 : "memory");
}
LS_DEVICE void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> LS_DEVICE void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Barriers 1 to 15 of a block, for `threads` threads, a multiple of 32: sync waits, arrive does
 * not. */
LS_DEVICE void named_barrier_sync(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
LS_DEVICE void named_barrier_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

#else
#include "compute/cuda_on_cpu/ptx_cpu.h"
#endif

#endif
