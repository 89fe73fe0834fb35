// SPDX-License-Identifier: Apache-2.0
#include "base/compression.h"

#include "base/assert.h"

ls_positions_code ls_positions_code_of(uint32_t kept, uint32_t count)
{
    LS_ASSERT(kept >= 1 && kept <= count);
    const uint32_t low_bits = 31 - (uint32_t)__builtin_clz(count / kept);
    const ls_positions_code code = {.low_bits = low_bits,
                                    .low_bytes = (kept * low_bits + 7) / 8,
                                    .high_bytes = (kept + (count >> low_bits) + 1 + 7) / 8};
    const uint32_t bitmap_bytes = (count + 7) / 8;
    return bitmap_bytes <= code.low_bytes + code.high_bytes
               ? (ls_positions_code){.is_bitmap = true, .high_bytes = bitmap_bytes}
               : code;
}

static uint64_t topk_bytes(const ls_compression *compression, uint32_t count)
{
    const uint32_t kept = ls_compression_kept(compression, count);
    const ls_positions_code code = ls_positions_code_of(kept, count);
    return 2 * (uint64_t)kept + code.low_bytes + code.high_bytes;
}

static uint64_t block_bytes(const ls_compression *compression, uint32_t count)
{
    switch (compression->kind) {
    case LS_COMPRESSION_BF16:
        return 2 * (uint64_t)count;
    case LS_COMPRESSION_INT8:
        return count + 4 * (uint64_t)((count + LS_INT8_BLOCK - 1) / LS_INT8_BLOCK);
    case LS_COMPRESSION_INT4:
        return (count + 1) / 2 + 4 * (uint64_t)((count + LS_INT4_BLOCK - 1) / LS_INT4_BLOCK);
    case LS_COMPRESSION_TOPK:
        return topk_bytes(compression, count);
    default:
        return 4 * (uint64_t)count;
    }
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 3) / 4 * 4;
}

uint64_t ls_compressed_bytes(const ls_compression *compression, uint64_t count)
{
    const uint32_t rest = (uint32_t)(count % LS_COMPRESSION_BLOCK);
    const uint64_t whole = count / LS_COMPRESSION_BLOCK;
    return whole * rounded(block_bytes(compression, LS_COMPRESSION_BLOCK)) +
           (rest > 0 ? rounded(block_bytes(compression, rest)) : 0);
}
