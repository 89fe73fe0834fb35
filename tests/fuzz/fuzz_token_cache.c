// SPDX-License-Identifier: Apache-2.0
/*
 * Files of the token cache. The checksums are made right first, as a forger would, so that the
 * checks behind them are reached.
 */
#include "data/token_format.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void forge(unsigned char *file, size_t bytes)
{
    ls_token_header header;
    memcpy(&header, file, sizeof header);
    memcpy(header.magic, "LSTOKENS", 8);
    header.version = LS_TOKEN_FORMAT_VERSION;
    header.file_bytes = bytes;
    if (header.starts_offset <= bytes) {
        header.tail_crc = ls_crc32c(0, file + header.starts_offset, bytes - header.starts_offset);
    }
    header.header_crc = ls_crc32c(0, &header, sizeof header - 4);
    memcpy(file, &header, sizeof header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    /* Mapped, because closing unmaps. */
    unsigned char *file = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file == MAP_FAILED) {
        return 0;
    }
    memcpy(file, data, size);
    if (size >= LS_TOKEN_HEADER_BYTES) {
        forge(file, size);
    }
    ls_file_map map = {.data = file, .bytes = size};
    ls_tokens tokens;
    if (ls_token_format_open(map, "f", NULL, 1000, &tokens) != LS_OK) {
        ls_file_map_close(&map);
        return 0;
    }
    int32_t *ids = malloc((tokens.count + 1) * sizeof *ids);
    const ls_status status = ls_tokens_read(&tokens, 0, tokens.count, ids);
    for (uint64_t i = 0; status == LS_OK && i < tokens.count; i++) {
        if (ids[i] < 0 || ids[i] >= 1000) {
            abort();
        }
    }
    free(ids);
    ls_tokens_close(&tokens);
    return 0;
}
