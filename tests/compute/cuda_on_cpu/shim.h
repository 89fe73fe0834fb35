// SPDX-License-Identifier: Apache-2.0
/*
 * What a kernel source needs to compile as C++ and run on the processor: the words, types and
 * functions of CUDA C++ that compute/cuda/device uses. No header of the CUDA toolkit is needed.
 *
 * Differences from a GPU that matter to tests:
 *   - memory is sequentially consistent, so a missing __threadfence is not found;
 *   - all lanes of a mask must reach a collective (as on a GPU), or the block reports a deadlock;
 *   - a loop that waits for another thread has to call __nanosleep, and blocks that wait for one
 *     another may not run at the same time;
 *   - a product and a sum are two roundings here; nvcc makes one of them where it can.
 */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_SHIM_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_SHIM_H

#include "compute/cuda_on_cpu/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words of the language ---- */

#define __global__ static
#define __device__
#define __host__
#define __constant__    static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define __cluster_dims__(...)

/* The address sanitizer guards plain static memory only; its builds run one block at a time. */
#ifdef CUDA_ON_CPU_SANITIZED
#define __shared__ static
#else
#define __shared__ static thread_local
#endif

#define LS_SHARED(type, name) type *name = reinterpret_cast<type *>(::cuda_on_cpu::this_block()->shared)
#define LS_KERNEL             __attribute__((unused)) static void
#define LS_KERNEL_EXPORT(kernel)                                                                             \
    static const ::cuda_on_cpu::registration cuda_on_cpu_of_##kernel(                                        \
        __FILE__, #kernel, [](const void *arguments) { ::cuda_on_cpu::call_with(kernel, arguments); },       \
        ::cuda_on_cpu::argument_bytes_of(kernel));

#define threadIdx (::cuda_on_cpu::this_thread()->index)
#define blockIdx  (::cuda_on_cpu::this_block()->index)
#define blockDim  (::cuda_on_cpu::this_block()->threads_shape)
#define gridDim   (::cuda_on_cpu::this_block()->grid_shape)
#define warpSize  32

/* ---- vectors ---- */

#define CUDA_ON_CPU_VECTOR2(name, element, bytes)                                                            \
    struct alignas(bytes) name {                                                                             \
        element x, y;                                                                                        \
    };                                                                                                       \
    inline name make_##name(element x, element y)                                                            \
    {                                                                                                        \
        return name{x, y};                                                                                   \
    }
#define CUDA_ON_CPU_VECTOR3(name, element)                                                                   \
    struct name {                                                                                            \
        element x, y, z;                                                                                     \
    };                                                                                                       \
    inline name make_##name(element x, element y, element z)                                                 \
    {                                                                                                        \
        return name{x, y, z};                                                                                \
    }
#define CUDA_ON_CPU_VECTOR4(name, element, bytes)                                                            \
    struct alignas(bytes) name {                                                                             \
        element x, y, z, w;                                                                                  \
    };                                                                                                       \
    inline name make_##name(element x, element y, element z, element w)                                      \
    {                                                                                                        \
        return name{x, y, z, w};                                                                             \
    }
CUDA_ON_CPU_VECTOR2(uchar2, unsigned char, 2)
CUDA_ON_CPU_VECTOR4(uchar4, unsigned char, 4)
CUDA_ON_CPU_VECTOR2(ushort2, unsigned short, 4)
CUDA_ON_CPU_VECTOR4(ushort4, unsigned short, 8)
CUDA_ON_CPU_VECTOR2(int2, int, 8)
CUDA_ON_CPU_VECTOR3(int3, int)
CUDA_ON_CPU_VECTOR4(int4, int, 16)
CUDA_ON_CPU_VECTOR2(uint2, unsigned, 8)
CUDA_ON_CPU_VECTOR4(uint4, unsigned, 16)
CUDA_ON_CPU_VECTOR2(longlong2, long long, 16)
CUDA_ON_CPU_VECTOR2(ulonglong2, unsigned long long, 16)
CUDA_ON_CPU_VECTOR2(float2, float, 8)
CUDA_ON_CPU_VECTOR3(float3, float)
CUDA_ON_CPU_VECTOR4(float4, float, 16)
CUDA_ON_CPU_VECTOR2(double2, double, 16)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z)
{
    return uint3{x, y, z};
}

/* ---- bits ---- */

template <class to, class from> inline to cuda_on_cpu_bits(from value)
{
    static_assert(sizeof(to) == sizeof(from), "the bits of a value of another size");
    to result;
    memcpy(&result, &value, sizeof result);
    return result;
}
inline unsigned __float_as_uint(float x)
{
    return cuda_on_cpu_bits<unsigned>(x);
}
inline float __uint_as_float(unsigned x)
{
    return cuda_on_cpu_bits<float>(x);
}
inline int __float_as_int(float x)
{
    return cuda_on_cpu_bits<int>(x);
}
inline float __int_as_float(int x)
{
    return cuda_on_cpu_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return cuda_on_cpu_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return cuda_on_cpu_bits<double>(x);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++) {
        result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    }
    return result;
}

/* ---- arithmetic ---- */

#define CUDA_ON_CPU_MIN_MAX(left, right, result)                                                             \
    inline result min(left a, right b)                                                                       \
    {                                                                                                        \
        return (result)a < (result)b ? (result)a : (result)b;                                                \
    }                                                                                                        \
    inline result max(left a, right b)                                                                       \
    {                                                                                                        \
        return (result)a > (result)b ? (result)a : (result)b;                                                \
    }
CUDA_ON_CPU_MIN_MAX(int, int, int)
CUDA_ON_CPU_MIN_MAX(unsigned, unsigned, unsigned)
CUDA_ON_CPU_MIN_MAX(int, unsigned, unsigned)
CUDA_ON_CPU_MIN_MAX(unsigned, int, unsigned)
CUDA_ON_CPU_MIN_MAX(long, long, long)
CUDA_ON_CPU_MIN_MAX(unsigned long, unsigned long, unsigned long)
CUDA_ON_CPU_MIN_MAX(long, unsigned long, unsigned long)
CUDA_ON_CPU_MIN_MAX(unsigned long, long, unsigned long)
CUDA_ON_CPU_MIN_MAX(long long, long long, long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
#define CUDA_ON_CPU_MIN_MAX_FLOAT(left, right, result, suffix)                                               \
    inline result min(left a, right b)                                                                       \
    {                                                                                                        \
        return fmin##suffix((result)a, (result)b);                                                           \
    }                                                                                                        \
    inline result max(left a, right b)                                                                       \
    {                                                                                                        \
        return fmax##suffix((result)a, (result)b);                                                           \
    }
CUDA_ON_CPU_MIN_MAX_FLOAT(float, float, float, f)
CUDA_ON_CPU_MIN_MAX_FLOAT(double, double, double, )
CUDA_ON_CPU_MIN_MAX_FLOAT(float, double, double, )
CUDA_ON_CPU_MIN_MAX_FLOAT(double, float, double, )

/* Macros, because newer C libraries have functions of these names. */
#define rsqrtf(x)        (1.0f / sqrtf(x))
#define rsqrt(x)         (1.0 / sqrt(x))
#define __expf(x)        expf(x)
#define __exp2f(x)       exp2f(x)
#define __exp10f(x)      powf(10.0f, x)
#define __logf(x)        logf(x)
#define __log2f(x)       log2f(x)
#define __log10f(x)      log10f(x)
#define __sinf(x)        sinf(x)
#define __cosf(x)        cosf(x)
#define __tanf(x)        tanf(x)
#define __powf(x, y)     powf(x, y)
#define __fdividef(x, y) ((x) / (y))
inline void __sincosf(float x, float *sine, float *cosine)
{
    *sine = sinf(x);
    *cosine = cosf(x);
}
inline float __saturatef(float x)
{
    return x > 0.0f ? x < 1.0f ? x : 1.0f : 0.0f;
}
inline float __fadd_rn(float x, float y)
{
    return x + y;
}
inline float __fsub_rn(float x, float y)
{
    return x - y;
}
inline float __fmul_rn(float x, float y)
{
    return x * y;
}
inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline float __frsqrt_rn(float x)
{
    return (float)(1.0 / sqrt((double)x));
}
inline double __dadd_rn(double x, double y)
{
    return x + y;
}
inline double __dmul_rn(double x, double y)
{
    return x * y;
}
inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}
inline float __double2float_rn(double x)
{
    return (float)x;
}
inline int __float2int_rn(float x)
{
    return (int)lrintf(x);
}
inline int __float2int_rz(float x)
{
    return (int)x;
}
inline int __float2int_rd(float x)
{
    return (int)floorf(x);
}
inline float __int2float_rn(int x)
{
    return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
inline float __ll2float_rn(long long x)
{
    return (float)x;
}

/* ---- memory: hints to the caches mean nothing here ---- */

#define CUDA_ON_CPU_LOAD(name)                                                                               \
    template <class type> inline type name(const type *from)                                                 \
    {                                                                                                        \
        return *from;                                                                                        \
    }
#define CUDA_ON_CPU_STORE(name)                                                                              \
    template <class type> inline void name(type *to, type value)                                             \
    {                                                                                                        \
        *to = value;                                                                                         \
    }
CUDA_ON_CPU_LOAD(__ldg)
CUDA_ON_CPU_LOAD(__ldca)
CUDA_ON_CPU_LOAD(__ldcg)
CUDA_ON_CPU_LOAD(__ldcs)
CUDA_ON_CPU_LOAD(__ldlu)
/* Of memory that other threads change. */
template <class type> inline type __ldcv(const type *from)
{
    type value;
    __atomic_load(from, &value, __ATOMIC_RELAXED);
    return value;
}
CUDA_ON_CPU_STORE(__stcg)
CUDA_ON_CPU_STORE(__stcs)
CUDA_ON_CPU_STORE(__stwb)
CUDA_ON_CPU_STORE(__stwt)
inline void __threadfence()
{
    std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void __threadfence_block()
{
    __threadfence();
}
inline void __threadfence_system()
{
    __threadfence();
}

#define CUDA_ON_CPU_ATOMIC(name, expression)                                                                 \
    template <class type> inline type name(type *place, type value)                                          \
    {                                                                                                        \
        type old, next;                                                                                      \
        __atomic_load(place, &old, __ATOMIC_SEQ_CST);                                                        \
        do {                                                                                                 \
            next = (type)(expression);                                                                       \
        } while (!__atomic_compare_exchange(place, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
        return old;                                                                                          \
    }
CUDA_ON_CPU_ATOMIC(atomicAdd, old + value)
CUDA_ON_CPU_ATOMIC(atomicSub, old - value)
CUDA_ON_CPU_ATOMIC(atomicMin, old < value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMax, old < value ? value : old)
CUDA_ON_CPU_ATOMIC(atomicAnd, old &value)
CUDA_ON_CPU_ATOMIC(atomicOr, old | value)
CUDA_ON_CPU_ATOMIC(atomicXor, old ^ value)
CUDA_ON_CPU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_ON_CPU_ATOMIC(atomicExch, (void(old), value))
template <class type> inline type atomicCAS(type *place, type wanted, type value)
{
    __atomic_compare_exchange(place, &wanted, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return wanted;
}

/* ---- barriers and collectives ---- */

inline void __syncthreads()
{
    ::cuda_on_cpu::barrier_wait(0, 0);
}
/* bar.sync and bar.arrive: barriers 1 to 15, for `threads` threads. */
inline void cuda_on_cpu_bar_sync(unsigned number, unsigned threads)
{
    ::cuda_on_cpu::barrier_wait(number, threads);
}
inline void cuda_on_cpu_bar_arrive(unsigned number, unsigned threads)
{
    ::cuda_on_cpu::barrier_arrive(number, threads);
}
inline void __nanosleep(unsigned)
{
    ::cuda_on_cpu::spin("__nanosleep");
}
inline void __trap()
{
    ::cuda_on_cpu::die("__trap");
}
inline void __syncwarp(unsigned mask = ~0u)
{
    int nothing = 0;
    ::cuda_on_cpu::collective(mask, nothing, "__syncwarp", [](auto, unsigned) {});
}

namespace cuda_on_cpu
{

inline unsigned lane()
{
    return this_thread()->lane;
}

template <class type> struct shuffle_record {
    type value, result;
    unsigned from;
};

template <class type> inline type shuffle(unsigned mask, type value, unsigned from)
{
    shuffle_record<type> record{value, value, from & 31};
    collective(mask, record, "__shfl_sync", [](auto record_of, unsigned lanes) {
        for (unsigned rest = lanes; rest; rest &= rest - 1) {
            auto &to = record_of((unsigned)__builtin_ctz(rest));
            if (lanes >> to.from & 1) {
                to.result = record_of(to.from).value;
            }
        }
    });
    return record.result;
}

template <class type> struct reduce_record {
    type value, result;
};

template <class type, class function>
inline type reduce(unsigned mask, type value, const char *place, function fn)
{
    reduce_record<type> record{value, value};
    collective(mask, record, place, [fn](auto record_of, unsigned lanes) {
        type all = record_of((unsigned)__builtin_ctz(lanes)).value;
        for (unsigned rest = lanes & (lanes - 1); rest; rest &= rest - 1) {
            all = fn(all, record_of((unsigned)__builtin_ctz(rest)).value);
        }
        for (unsigned rest = lanes; rest; rest &= rest - 1) {
            record_of((unsigned)__builtin_ctz(rest)).result = all;
        }
    });
    return record.result;
}

} // namespace cuda_on_cpu

template <class type> inline type __shfl_sync(unsigned mask, type value, int from, int width = 32)
{
    const unsigned group = ::cuda_on_cpu::lane() & ~((unsigned)width - 1);
    return ::cuda_on_cpu::shuffle(mask, value, group | ((unsigned)from & ((unsigned)width - 1)));
}
template <class type> inline type __shfl_xor_sync(unsigned mask, type value, int bits, int width = 32)
{
    const unsigned own = ::cuda_on_cpu::lane(), other = own ^ (unsigned)bits;
    return ::cuda_on_cpu::shuffle(mask, value, other / (unsigned)width > own / (unsigned)width ? own : other);
}
template <class type> inline type __shfl_down_sync(unsigned mask, type value, unsigned by, int width = 32)
{
    const unsigned own = ::cuda_on_cpu::lane();
    return ::cuda_on_cpu::shuffle(mask, value, own % (unsigned)width + by < (unsigned)width ? own + by : own);
}
template <class type> inline type __shfl_up_sync(unsigned mask, type value, unsigned by, int width = 32)
{
    const unsigned own = ::cuda_on_cpu::lane();
    return ::cuda_on_cpu::shuffle(mask, value, own % (unsigned)width >= by ? own - by : own);
}
inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const unsigned own = predicate ? 1u << ::cuda_on_cpu::lane() : 0;
    return ::cuda_on_cpu::reduce(mask, own, "__ballot_sync", [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
    return ::cuda_on_cpu::reduce(mask, value, "__reduce_add_sync",
                                 [](unsigned a, unsigned b) { return a + b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value)
{
    return ::cuda_on_cpu::reduce(mask, value, "__reduce_or_sync",
                                 [](unsigned a, unsigned b) { return a | b; });
}
template <class type> inline type __reduce_min_sync(unsigned mask, type value)
{
    return ::cuda_on_cpu::reduce(mask, value, "__reduce_min_sync",
                                 [](type a, type b) { return a < b ? a : b; });
}
template <class type> inline type __reduce_max_sync(unsigned mask, type value)
{
    return ::cuda_on_cpu::reduce(mask, value, "__reduce_max_sync",
                                 [](type a, type b) { return a < b ? b : a; });
}
inline int __syncthreads_or(int predicate)
{
    __shared__ int any;
    __syncthreads();
    __atomic_store_n(&any, 0, __ATOMIC_RELAXED);
    __syncthreads();
    if (predicate) {
        __atomic_store_n(&any, 1, __ATOMIC_RELAXED);
    }
    __syncthreads();
    return __atomic_load_n(&any, __ATOMIC_RELAXED);
}

#endif
