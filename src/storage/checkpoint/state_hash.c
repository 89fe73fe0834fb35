// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/state_hash.h"
#include "base/assert.h"
#include "storage/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

void ls_state_hash_zeros(ls_sha256 *hash, uint64_t bytes)
{
    static const unsigned char ZEROS[65536];
    while (bytes > 0) {
        const size_t part = bytes < sizeof ZEROS ? (size_t)bytes : sizeof ZEROS;
        ls_sha256_update(hash, ZEROS, part);
        bytes -= part;
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const ls_checkpoint_tensor *const *)a)->name,
                  (*(const ls_checkpoint_tensor *const *)b)->name);
}

ls_status ls_checkpoint_sort(ls_arena *arena, const ls_checkpoint_tensor *tensors, size_t tensor_count,
                             const ls_checkpoint_tensor ***sorted_out)
{
    const ls_checkpoint_tensor **sorted = ls_arena_new(arena, const ls_checkpoint_tensor *, tensor_count);
    for (size_t i = 0; i < tensor_count; i++) {
        uint64_t elements = 0;
        if (ls_shape_elements(tensors[i].name, tensors[i].shape, tensors[i].rank, &elements) != LS_OK ||
            elements > INT64_MAX / sizeof(float)) {
            return ls_fail(LS_ERR_INVALID, "tensor %s: its shape is too large or has too many dimensions",
                           tensors[i].name);
        }
        sorted[i] = &tensors[i];
    }
    qsort(sorted, tensor_count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < tensor_count; i++) {
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) == 0) {
            return ls_fail(LS_ERR_INVALID, "tensor %s is given twice", sorted[i]->name);
        }
    }
    *sorted_out = sorted;
    return LS_OK;
}

uint64_t ls_checkpoint_tensor_bytes(const ls_checkpoint_tensor *tensor)
{
    uint64_t elements = 0;
    LS_ASSERT(ls_shape_elements(tensor->name, tensor->shape, tensor->rank, &elements) == LS_OK);
    return elements * sizeof(float);
}

static void hash_all(ls_sha256 *hash, const ls_checkpoint_tensor *const *sorted, size_t count,
                     size_t member_offset)
{
    for (size_t i = 0; i < count; i++) {
        const float *data;
        memcpy(&data, (const char *)sorted[i] + member_offset, sizeof data);
        const uint64_t bytes = ls_checkpoint_tensor_bytes(sorted[i]);
        if (data) {
            ls_sha256_update(hash, data, (size_t)bytes);
        } else if (!sorted[i]->state) {
            ls_state_hash_zeros(hash, bytes);
        }
    }
}

const char *ls_checkpoint_base_digest(const ls_checkpoint *checkpoint)
{
    return json_string_value(json_object_get(checkpoint->meta.extra, "base_digest"));
}

ls_status ls_state_hash(const ls_checkpoint_tensor *tensors, size_t tensor_count, uint64_t step,
                        const char *base, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_arena arena = {0};
    const ls_checkpoint_tensor **sorted = NULL;
    const ls_status status = ls_checkpoint_sort(&arena, tensors, tensor_count, &sorted);
    if (status == LS_OK) {
        ls_sha256 hash;
        ls_sha256_init(&hash);
        hash_all(&hash, sorted, tensor_count, offsetof(ls_checkpoint_tensor, value));
        hash_all(&hash, sorted, tensor_count, offsetof(ls_checkpoint_tensor, m));
        hash_all(&hash, sorted, tensor_count, offsetof(ls_checkpoint_tensor, v));
        ls_sha256_update(&hash, &step, sizeof step);
        if (base) {
            ls_sha256_update(&hash, base, strlen(base));
        }
        for (size_t i = 0; i < tensor_count; i++) {
            if (sorted[i]->state) {
                ls_sha256_update(&hash, sorted[i]->state, (size_t)ls_checkpoint_tensor_bytes(sorted[i]));
            }
        }
        ls_sha256_finish(&hash, hex_out);
    }
    ls_arena_release(&arena);
    return status;
}
