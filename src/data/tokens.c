// SPDX-License-Identifier: Apache-2.0
#include "data/tokens.h"

#include "base/assert.h"
#include "storage/cache/cache.h"

#include <stdlib.h>

void ls_tokens_close(ls_tokens *tokens)
{
    ls_file_map_close(&tokens->map);
    ls_file_map_close(&tokens->index_map);
    ls_cache_close(tokens->pins);
    free(tokens->owned_ids);
    free(tokens->owned_starts);
    free(tokens->block_checked);
    free(tokens->path);
    *tokens = (ls_tokens){0};
}

uint32_t ls_tokens_at(const ls_tokens *tokens, uint64_t index)
{
    LS_DCHECK(index < tokens->count);
    return tokens->id_bytes == 2 ? ((const uint16_t *)tokens->ids)[index]
                                 : ((const uint32_t *)tokens->ids)[index];
}

static ls_status check_block(const ls_tokens *tokens, uint64_t block)
{
    const uint64_t begin = block * LS_TOKENS_BLOCK_BYTES, total = tokens->count * tokens->id_bytes;
    const uint64_t bytes = total - begin < LS_TOKENS_BLOCK_BYTES ? total - begin : LS_TOKENS_BLOCK_BYTES;
    const uint32_t crc = ls_crc32c(0, (const unsigned char *)tokens->ids + begin, bytes);
    if (crc != tokens->block_crcs[block]) {
        return ls_fail(LS_ERR_DATA,
                       "%s: block %llu of tokens has checksum %08x, but %08x was written: the cached file "
                       "has changed or the disk is failing; remove it and it will be made again",
                       tokens->path, (unsigned long long)block, crc, tokens->block_crcs[block]);
    }
    /* The bytes never change, so no ordering is needed, and checking a block twice is harmless. */
    atomic_store_explicit(&tokens->block_checked[block], 1, memory_order_relaxed);
    return LS_OK;
}

static ls_status check_range(const ls_tokens *tokens, uint64_t first, uint64_t count)
{
    if (!tokens->block_crcs || count == 0) {
        return LS_OK;
    }
    const uint64_t last = ((first + count) * tokens->id_bytes - 1) / LS_TOKENS_BLOCK_BYTES;
    for (uint64_t block = first * tokens->id_bytes / LS_TOKENS_BLOCK_BYTES; block <= last; block++) {
        if (!atomic_load_explicit(&tokens->block_checked[block], memory_order_relaxed)) {
            LS_TRY(check_block(tokens, block));
        }
    }
    return LS_OK;
}

/* Return the largest id instead of checking each one, so that the compiler can vectorise the
 * loop. */
static uint32_t copy_u16(const uint16_t *from, uint64_t count, int32_t *to)
{
    uint32_t largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        to[i] = from[i];
        largest = from[i] > largest ? from[i] : largest;
    }
    return largest;
}

static uint32_t copy_u32(const uint32_t *from, uint64_t count, uint32_t bits, int32_t *to)
{
    uint32_t largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t id = from[i] & bits;
        to[i] = (int32_t)from[i];
        largest = id > largest ? id : largest;
    }
    return largest;
}

static ls_status copy(const ls_tokens *tokens, uint64_t first, uint64_t count, int32_t *ids_out,
                      uint32_t *largest_out)
{
    if (tokens->reader) {
        return ls_token_reader_read(tokens->reader, tokens->shard, first, count, ids_out, largest_out);
    }
    LS_TRY(check_range(tokens, first, count));
    const uint32_t bits = tokens->origins ? INT32_MAX : UINT32_MAX;
    *largest_out = tokens->id_bytes == 2
                       ? copy_u16((const uint16_t *)tokens->ids + first, count, ids_out)
                       : copy_u32((const uint32_t *)tokens->ids + first, count, bits, ids_out);
    return LS_OK;
}

ls_status ls_tokens_read(const ls_tokens *tokens, uint64_t first, uint64_t count, int32_t *ids_out)
{
    uint32_t largest = 0;
    LS_ASSERT(count <= tokens->count && first <= tokens->count - count);
    LS_TRY(count > 0 ? copy(tokens, first, count, ids_out, &largest) : LS_OK);
    if (count > 0 && largest >= tokens->vocab_size) {
        return ls_fail(LS_ERR_DATA,
                       "%s: token id %u, at position %llu or later, is beyond the vocabulary of %u: the file "
                       "has changed",
                       tokens->path, largest, (unsigned long long)first, tokens->vocab_size);
    }
    return LS_OK;
}

void ls_tokens_expect(const ls_tokens *tokens, uint64_t first, uint64_t count, bool whole)
{
    if (tokens->reader && count > 0) {
        ls_token_reader_expect(tokens->reader, tokens->shard, first, count, whole);
    }
}

/* The last of the documents that begin at or before `index`. */
static uint64_t document_of(const ls_tokens *tokens, uint64_t index)
{
    uint64_t low = 0, high = tokens->document_count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (tokens->document_starts[middle] <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

ls_status ls_tokens_document(const ls_tokens *tokens, uint64_t index, uint64_t *begin_out, uint64_t *end_out)
{
    LS_ASSERT(index < tokens->count);
    if (tokens->reader) {
        return ls_token_reader_document(tokens->reader, tokens->shard, index, begin_out, end_out);
    }
    const uint64_t document = document_of(tokens, index);
    *begin_out = tokens->document_starts[document];
    *end_out = document + 1 < tokens->document_count ? tokens->document_starts[document + 1] : tokens->count;
    return LS_OK;
}

ls_status ls_tokens_verify(const ls_tokens *tokens)
{
    return check_range(tokens, 0, tokens->count);
}
