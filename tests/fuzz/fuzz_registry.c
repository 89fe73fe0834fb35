// SPDX-License-Identifier: Apache-2.0
/* Any bytes as an entry, a record of a name or a list of chunks: refused, or all in it is in
 * range. */
#include "base/assert.h"
#include "storage/registry/chunks.h"
#include "storage/registry/names.h"

#include <string.h>

enum { FILE_BYTES = 12035 }; /* of the file that corpus/registry/chunks lists */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void try_entry(ls_arena *arena, const char *text, size_t bytes)
{
    ls_registry_entry entry;
    if (ls_registry_entry_decode(arena, text, bytes, "fuzz", &entry) == LS_OK) {
        const char *again = NULL;
        size_t again_bytes = 0;
        LS_ASSERT(entry.kind < LS_ENTRY_KINDS && ls_registry_entry_check_name(entry.name) == LS_OK);
        for (size_t i = 0; i < entry.file_count; i++) {
            LS_ASSERT(ls_blob_check_key(entry.files[i].name) == LS_OK);
            LS_ASSERT(strlen(entry.files[i].sha256) == LS_SHA256_HEX_BYTES - 1);
        }
        LS_ASSERT(ls_registry_entry_encode(arena, &entry, &again, &again_bytes) == LS_OK);
        ls_registry_entry_release(&entry);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    ls_name_record record;
    ls_chunk_list list;
    const char *text = ls_arena_strndup(&arena, (const char *)data, bytes);
    try_entry(&arena, text, bytes);
    if (ls_name_record_decode(&arena, text, bytes, "fuzz", &record) == LS_OK) {
        LS_ASSERT(record.version > 0 && record.stage < LS_STAGES);
    }
    if (ls_chunks_decode(&arena, text, FILE_BYTES, "fuzz", &list) == LS_OK) {
        uint64_t sum = 0;
        for (size_t i = 0; i < list.count; i++) {
            LS_ASSERT(list.chunks[i].offset == sum && list.chunks[i].bytes <= LS_CHUNK_BYTES_MAX);
            sum += list.chunks[i].bytes;
        }
        LS_ASSERT(sum == FILE_BYTES);
    }
    ls_arena_release(&arena);
    return 0;
}
