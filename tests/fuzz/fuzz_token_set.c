// SPDX-License-Identifier: Apache-2.0
/* Any bytes as the index of a token set: refused with a text that names it, or each file's counts fit
 * together and its key stays below the set. */
#include "base/assert.h"
#include "base/file.h"
#include "data/stream/token_set.h"
#include "storage/blob/blob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char folder[] = "/dev/shm/lockstep-fuzz-XXXXXX", path[64];

static void remove_folder(void)
{
    (void)unlink(path);
    (void)rmdir(folder);
}

static void write_index(const uint8_t *data, size_t bytes)
{
    if (!path[0]) {
        LS_ASSERT(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
        snprintf(path, sizeof path, "%s/" LS_TOKEN_SET_INDEX, folder);
    }
    FILE *file = fopen(path, "we");
    LS_ASSERT(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    ls_token_shard *shards = NULL;
    size_t count = 0;
    write_index(data, bytes);
    ls_error_clear();
    if (ls_token_set_read(&arena, path, &shards, &count) != LS_OK) {
        LS_ASSERT(strlen(ls_error_text()) > 0);
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        const ls_token_shard *s = &shards[i];
        const uint64_t most = ls_token_block_ids(s->id_bytes);
        LS_ASSERT(ls_blob_check_key(s->key) == LS_OK && strlen(s->content_hash) == LS_SHA256_HEX_BYTES - 1);
        LS_ASSERT(s->tokens > 0 && s->documents > 0 && s->id_max <= INT32_MAX);
        LS_ASSERT(s->bytes == (s->tokens + most - 1) / most * LS_TOKEN_BLOCK_BYTES);
    }
    ls_arena_release(&arena);
    return 0;
}
