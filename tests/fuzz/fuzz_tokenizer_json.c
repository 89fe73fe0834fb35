// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a tokenizer.json: refused, or a tokenizer that encodes and decodes within its
 * vocabulary. */
#include "fuzz/tokenizer_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_tokenizer *tokenizer;
    if (ls_tokenizer_parse(data, bytes, "fuzz", &tokenizer) == LS_OK) {
        walk_tokenizer(tokenizer);
        ls_tokenizer_destroy(tokenizer);
    }
    return 0;
}
