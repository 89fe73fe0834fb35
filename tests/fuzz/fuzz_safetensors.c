// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a safetensors file: refused, or every byte of every tensor is inside them. */
#include "base/assert.h"
#include "storage/safetensors/safetensors.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_safetensors *file = NULL;
    if (ls_safetensors_open_memory(data, bytes, "fuzz", &file) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0');
        return 0;
    }
    uint64_t total = 0;
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const ls_safetensor *tensor = ls_safetensors_at(file, i);
        const uint8_t *at = tensor->data;
        LS_ASSERT(tensor->bytes == 0 || (at >= data && tensor->bytes <= (size_t)(data + bytes - at)));
        LS_ASSERT(ls_safetensors_find(file, tensor->name) == tensor);
        total += tensor->bytes;
    }
    LS_ASSERT(total <= bytes);
    ls_safetensors_close(file);
    return 0;
}
