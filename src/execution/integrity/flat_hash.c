// SPDX-License-Identifier: Apache-2.0
#include "execution/integrity/flat_hash.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t tiles_of(int64_t count)
{
    return (count + LS_HASH_TILE - 1) / LS_HASH_TILE;
}

ls_status ls_flat_hasher_init(ls_flat_hasher *hasher, const ls_flat_piece *pieces, uint32_t piece_count)
{
    *hasher = (ls_flat_hasher){.piece_count = piece_count};
    int64_t tiles = 0;
    for (uint32_t i = 0; i < piece_count; i++) {
        tiles += tiles_of(pieces[i].count);
    }
    hasher->pieces = calloc(piece_count + 1, sizeof *hasher->pieces);
    hasher->first_tile = calloc((size_t)piece_count + 1, sizeof *hasher->first_tile);
    hasher->tiles = calloc((size_t)tiles + 1, sizeof *hasher->tiles);
    if (!hasher->pieces || !hasher->first_tile || !hasher->tiles) {
        ls_flat_hasher_release(hasher);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the hashes of %u pieces of the training state",
                       piece_count);
    }
    for (uint32_t i = 0; i < piece_count; i++) {
        hasher->pieces[i] = pieces[i];
        hasher->first_tile[i + 1] = hasher->first_tile[i] + tiles_of(pieces[i].count);
    }
    return LS_OK;
}

ls_status ls_flat_hasher_init_buckets(ls_flat_hasher *hasher, const ls_layout *layout)
{
    ls_arena arena = {0};
    ls_flat_piece *pieces = ls_arena_new(&arena, ls_flat_piece, layout->bucket_count);
    for (uint32_t i = 0; i < layout->bucket_count; i++) {
        pieces[i] = (ls_flat_piece){layout->buckets[i].offset, layout->buckets[i].count};
    }
    const ls_status status = ls_flat_hasher_init(hasher, pieces, layout->bucket_count);
    ls_arena_release(&arena);
    return status;
}

void ls_flat_hasher_release(ls_flat_hasher *hasher)
{
    free(hasher->pieces);
    free(hasher->first_tile);
    free(hasher->tiles);
    *hasher = (ls_flat_hasher){0};
}

void ls_flat_hasher_run(ls_flat_hasher *hasher, ls_queue *queue, const ls_master *flat,
                        ls_hash128 *hashes_out)
{
    hasher->status = LS_OK;
    for (uint32_t i = 0; i < hasher->piece_count && hasher->status == LS_OK; i++) {
        const ls_flat_piece *piece = &hasher->pieces[i];
        const ls_master floats = ls_master_from(*flat, piece->offset);
        hasher->status = ls_hash_tiles(queue, &floats, piece->count, hasher->tiles + hasher->first_tile[i]);
    }
    for (uint32_t i = 0; i < hasher->piece_count; i++) {
        const int64_t first = hasher->first_tile[i], count = hasher->first_tile[i + 1] - first;
        hashes_out[i] = ls_xxh3_128(hasher->tiles + first, (size_t)count * sizeof *hasher->tiles);
    }
}

const char *ls_bucket_name(const ls_layout *layout, uint32_t bucket, char text_out[32])
{
    const uint32_t section = layout->buckets[bucket].section;
    const char *frozen = bucket < layout->bucket_count ? "" : "frozen ";
    if (section == 0) {
        snprintf(text_out, 32, "%sembeddings", frozen);
    } else if (section + 1 < layout->section_count) {
        snprintf(text_out, 32, "%slayer %u", frozen, section - 1);
    } else {
        const bool has_head = ls_layout_find(layout, "lm_head.weight") != NULL;
        snprintf(text_out, 32, "%sfinal norm%s", frozen, has_head ? " and head" : "");
    }
    return text_out;
}
