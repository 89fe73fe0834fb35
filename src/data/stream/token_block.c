// SPDX-License-Identifier: Apache-2.0
#include "data/stream/token_block.h"

#include "base/assert.h"
#include "base/hash.h"

#include <string.h>

uint32_t ls_token_block_ids(uint32_t id_bytes)
{
    LS_ASSERT(id_bytes == 2 || id_bytes == 4);
    return LS_TOKEN_BLOCK_PAYLOAD * 8 / (8 * id_bytes + 1);
}

static uint64_t check_of(const ls_token_block *block, uint64_t uid, uint64_t index)
{
    const uint64_t place[2] = {uid, index};
    return ls_xxh3(&block->first_begin, LS_TOKEN_BLOCK_BYTES - sizeof block->check,
                   ls_xxh3(place, sizeof place, 0));
}

static uint64_t document_end(const ls_token_block_source *from, uint64_t document)
{
    return document + 1 < from->document_count ? from->document_starts[document + 1] : from->count;
}

void ls_token_block_make(const ls_token_block_source *from, uint64_t index, uint64_t *document,
                         ls_token_block *block_out)
{
    const uint32_t most = ls_token_block_ids(from->id_bytes);
    const uint64_t first = index * most, left = from->count - first;
    const uint32_t count = left < most ? (uint32_t)left : most;
    unsigned char *bits = block_out->payload + (size_t)most * from->id_bytes;
    memset(block_out, 0, sizeof *block_out);
    memcpy(block_out->payload, (const unsigned char *)from->ids + first * from->id_bytes,
           (size_t)count * from->id_bytes);
    block_out->first_begin = from->document_starts[*document];
    for (uint32_t i = 0; i < count; i++) {
        *document += document_end(from, *document) == first + i;
        if (from->document_starts[*document] == first + i) {
            bits[i / 8] |= (unsigned char)(1 << i % 8);
            block_out->first_begin = i == 0 ? first : block_out->first_begin;
        }
    }
    block_out->last_end = document_end(from, *document);
    block_out->check = check_of(block_out, from->uid, index);
}

bool ls_token_block_is_good(const ls_token_block *block, uint64_t uid, uint64_t index)
{
    return block->check == check_of(block, uid, index);
}

uint32_t ls_token_block_copy(const ls_token_block *block, uint32_t id_bytes, uint32_t first, uint32_t count,
                             int32_t *ids_out)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = 0;
        memcpy(&id, block->payload + (size_t)(first + i) * id_bytes, id_bytes);
        largest = id > largest ? id : largest;
        ids_out[i] = (int32_t)id;
    }
    return largest;
}

void ls_token_block_document(const ls_token_block *block, uint32_t id_bytes, uint64_t index, uint64_t at,
                             uint64_t *begin_out, uint64_t *end_out)
{
    const uint32_t most = ls_token_block_ids(id_bytes);
    const unsigned char *bits = block->payload + (size_t)most * id_bytes;
    const uint64_t first = index * most;
    const uint32_t inside = (uint32_t)(at - first);
    *begin_out = block->first_begin;
    *end_out = block->last_end;
    for (uint32_t i = inside + 1; i-- > 0;) {
        if (bits[i / 8] >> i % 8 & 1) {
            *begin_out = first + i;
            break;
        }
    }
    for (uint32_t i = inside + 1; i < most; i++) {
        if (bits[i / 8] >> i % 8 & 1) {
            *end_out = first + i;
            break;
        }
    }
}
