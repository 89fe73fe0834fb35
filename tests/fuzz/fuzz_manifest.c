// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes as a manifest, past its checksum (which would stop nearly everything): refused, or
 * every table in it is in range.
 */
#include "base/assert.h"
#include "storage/checkpoint/manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const ls_manifest *manifest)
{
    uint64_t parameters = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const ls_manifest_tensor *tensor = &manifest->tensors[i];
        LS_ASSERT(tensor->file < manifest->file_count && tensor->rank <= LS_TENSOR_RANK_MAX);
        const ls_manifest_file *file = &manifest->files[tensor->file];
        LS_ASSERT(tensor->offset >= file->header_bytes && tensor->offset <= file->bytes &&
                  tensor->bytes <= file->bytes - tensor->offset);
        LS_ASSERT(ls_manifest_find(manifest, tensor->kind, tensor->name) == tensor);
        parameters += tensor->kind == LS_KIND_VALUE ? tensor->bytes / 4 : 0;
    }
    LS_ASSERT(parameters == manifest->parameters);
    for (size_t i = 0; i < manifest->file_count; i++) {
        LS_ASSERT(ls_manifest_name_is_plain(manifest->files[i].name));
        LS_ASSERT(!strchr(manifest->files[i].name, '/') && strlen(manifest->files[i].sha256) == 64);
    }
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        LS_ASSERT(ls_manifest_name_is_plain(manifest->attachments[i].name));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    ls_manifest manifest;
    if (ls_manifest_decode(&arena, (const char *)data, bytes, "fuzz", &manifest) == LS_OK) {
        check(&manifest);
        ls_manifest_release(&manifest);
    }
    json_t *root = NULL;
    if (ls_json_parse((const char *)data, bytes, "fuzz", &root) == LS_OK) {
        if (ls_manifest_decode_json(&arena, root, "fuzz", &manifest) == LS_OK) {
            check(&manifest);
            ls_manifest_release(&manifest);
        }
        json_decref(root);
    }
    ls_arena_release(&arena);
    return 0;
}
