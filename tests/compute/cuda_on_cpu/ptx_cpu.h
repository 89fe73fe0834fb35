// SPDX-License-Identifier: Apache-2.0
/*
 * What the wrappers of compute/cuda/device/ptx.h mean, on the processor; described there.
 *
 * A tensor core adds its products in an order of its own and rounds differently, so bits differ from those of a
 * GPU. Whether a copy of cp_async_16 arrives at once or only when it is waited for is left to a coin, so that
 * a forgotten wait, or a buffer that is used again too early, shows.
 */
#ifndef LS_TESTS_COMPUTE_CUDA_ON_CPU_PTX_CPU_H
#define LS_TESTS_COMPUTE_CUDA_ON_CPU_PTX_CPU_H

#include "compute/cuda_on_cpu/shim.h"

#include <utility>

namespace cuda_on_cpu
{

inline float bf16_at(uint32_t pair, unsigned half)
{
    const uint32_t bits = half ? pair & 0xffff0000u : pair << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

struct mma_record {
    float *d;
    const uint32_t *a, *b;
};

template <class records> inline void mma_16816(records record_of)
{
    alignas(64) float a[16][16], b[16][8], d[16][8];
    for (unsigned l = 0; l < 32; l++) {
        const mma_record &r = record_of(l);
        const unsigned g = l / 4, t = l % 4 * 2;
        for (unsigned h = 0; h < 2; h++) {
            a[g][t + h] = bf16_at(r.a[0], h);
            a[g + 8][t + h] = bf16_at(r.a[1], h);
            a[g][t + 8 + h] = bf16_at(r.a[2], h);
            a[g + 8][t + 8 + h] = bf16_at(r.a[3], h);
            b[t + h][g] = bf16_at(r.b[0], h);
            b[t + 8 + h][g] = bf16_at(r.b[1], h);
            d[g][t + h] = r.d[h];
            d[g + 8][t + h] = r.d[2 + h];
        }
    }
    for (unsigned m = 0; m < 16; m++) {
        for (unsigned k = 0; k < 16; k++) {
            for (unsigned n = 0; n < 8; n++) {
                d[m][n] += a[m][k] * b[k][n];
            }
        }
    }
    for (unsigned l = 0; l < 32; l++) {
        const mma_record &r = record_of(l);
        const unsigned g = l / 4, t = l % 4 * 2;
        for (unsigned h = 0; h < 2; h++) {
            r.d[h] = d[g][t + h];
            r.d[2 + h] = d[g + 8][t + h];
        }
    }
}

struct ldmatrix_record {
    uint32_t *r;
    uint16_t row[8];
};

template <unsigned count, bool is_transposed> inline void ldmatrix(uint32_t *r, const void *row)
{
    ldmatrix_record record{r, {}};
    if (lane() < 8 * count) {
        if ((uintptr_t)row % 16 != 0) {
            die("ldmatrix: a row is not 16-byte aligned");
        }
        memcpy(record.row, row, 16);
    }
    collective(~0u, record, "ldmatrix", [](auto record_of, unsigned) {
        for (unsigned i = 0; i < count; i++) {
            for (unsigned l = 0; l < 32; l++) {
                const unsigned g = l / 4, t = l % 4 * 2;
                const uint32_t first =
                    is_transposed ? record_of(8 * i + t).row[g] : record_of(8 * i + g).row[t];
                const uint32_t second =
                    is_transposed ? record_of(8 * i + t + 1).row[g] : record_of(8 * i + g).row[t + 1];
                record_of(l).r[i] = first | second << 16;
            }
        }
    });
}

/* Does a copy of cp.async. */
inline void finish(const pending_copy &copy)
{
    memcpy(copy.to, copy.from, copy.bytes);
    memset((char *)copy.to + copy.bytes, 0, 16 - copy.bytes);
}

} // namespace cuda_on_cpu

inline void mma_bf16_16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    ::cuda_on_cpu::mma_record record{d, a, b};
    ::cuda_on_cpu::collective(~0u, record, "mma_bf16_16816",
                              [](auto record_of, unsigned) { ::cuda_on_cpu::mma_16816(record_of); });
}

inline void ldmatrix_x4(uint32_t r[4], const void *row)
{
    ::cuda_on_cpu::ldmatrix<4, false>(r, row);
}
inline void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    ::cuda_on_cpu::ldmatrix<4, true>(r, row);
}
inline void ldmatrix_x2(uint32_t r[2], const void *row)
{
    ::cuda_on_cpu::ldmatrix<2, false>(r, row);
}
inline void ldmatrix_x2_trans(uint32_t r[2], const void *row)
{
    ::cuda_on_cpu::ldmatrix<2, true>(r, row);
}

inline void cp_async_16_part(void *shared, const void *global, int bytes)
{
    using namespace ::cuda_on_cpu;
    if (((uintptr_t)shared | (uintptr_t)global) % 16 != 0) {
        die("cp_async_16: an address is not 16-byte aligned");
    }
    const pending_copy copy{shared, global, (unsigned)bytes};
    if (coin()) {
        finish(copy);
    } else {
        this_thread()->open_copies.push_back(copy);
    }
}
inline void cp_async_16(void *shared, const void *global, bool is_valid)
{
    cp_async_16_part(shared, global, is_valid ? 16 : 0);
}
inline void cp_async_commit()
{
    auto *me = ::cuda_on_cpu::this_thread();
    me->copy_groups.push_back(std::move(me->open_copies));
    me->open_copies.clear();
}
template <int N> inline void cp_async_wait()
{
    auto &groups = ::cuda_on_cpu::this_thread()->copy_groups;
    while (groups.size() > (size_t)N) {
        for (const auto &copy : groups.front()) {
            ::cuda_on_cpu::finish(copy);
        }
        groups.erase(groups.begin());
    }
}

inline void named_barrier_sync(int number, int threads)
{
    ::cuda_on_cpu::barrier_wait((unsigned)number, (unsigned)threads);
}
inline void named_barrier_arrive(int number, int threads)
{
    ::cuda_on_cpu::barrier_arrive((unsigned)number, (unsigned)threads);
}

#endif
