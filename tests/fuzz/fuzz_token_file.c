// SPDX-License-Identifier: Apache-2.0
/*
 * Token files of llm.c, nanoGPT and Megatron. The first two bytes give the length of the .bin; what
 * follows it is the .idx, and 0xffff means there is none. What is accepted must be readable to the
 * last token and have its documents in order.
 */
#include "data/token_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void check_tokens(const ls_tokens *tokens)
{
    int32_t id = 0;
    for (uint64_t i = 0; i < tokens->count; i++) {
        if (ls_tokens_read(tokens, i, 1, &id) != LS_OK || id < 0 || (uint32_t)id >= tokens->vocab_size) {
            abort();
        }
    }
    if (tokens->document_count < 1 || tokens->document_starts[0] != 0) {
        abort();
    }
    for (uint64_t i = 1; i < tokens->document_count; i++) {
        if (tokens->document_starts[i] <= tokens->document_starts[i - 1] ||
            tokens->document_starts[i] >= tokens->count) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const size_t promised = (size_t)(data[0] | data[1] << 8), left = size - 2;
    const bool alone = promised == 0xffff;
    const size_t ids_bytes = alone || promised > left ? left : promised;
    /* Copies of exact length, so that the sanitizer sees every byte too far. */
    unsigned char *ids = malloc(ids_bytes + 1), *index = malloc(left - ids_bytes + 1);
    if (!ids || !index) {
        abort();
    }
    memcpy(ids, data + 2, ids_bytes);
    memcpy(index, data + 2 + ids_bytes, left - ids_bytes);
    ids = realloc(ids, ids_bytes ? ids_bytes : 1);
    index = realloc(index, left - ids_bytes ? left - ids_bytes : 1);
    const ls_token_file_options options = {.vocab_size = 60000, .end_of_text = 7};
    ls_tokens tokens;
    const ls_token_file_bytes file = {.name = "f",
                                      .ids = ids,
                                      .ids_bytes = ids_bytes,
                                      .index = alone ? NULL : index,
                                      .index_bytes = left - ids_bytes};
    if (ls_token_file_parse(&file, &options, &tokens) == LS_OK) {
        check_tokens(&tokens);
        ls_tokens_close(&tokens);
    }
    free(ids);
    free(index);
    return 0;
}
