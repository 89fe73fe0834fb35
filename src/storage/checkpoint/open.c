// SPDX-License-Identifier: Apache-2.0
/* Opening a checkpoint: manifest, sizes, attachments, content. */
#include "base/assert.h"
#include "base/file.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/files.h"
#include "storage/checkpoint/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ls_checkpoint, with private members after the public part. */
typedef struct checkpoint_owner {
    ls_checkpoint base;
    ls_manifest manifest;
} checkpoint_owner;

static ls_status check_size(const ls_checkpoint *checkpoint, ls_arena *arena, const char *name,
                            uint64_t bytes)
{
    const char *path = ls_path_join(arena, checkpoint->path, name);
    struct stat info;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT
                   ? ls_fail(LS_ERR_DATA, "%s is missing, although the checkpoint's manifest lists it", path)
                   : ls_fail_errno(errno, "can't look at %s", path);
    }
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != bytes) {
        return ls_fail(
            LS_ERR_DATA,
            "%s was truncated or replaced: it has %lld bytes, but the checkpoint's manifest lists %llu", path,
            (long long)info.st_size, (unsigned long long)bytes);
    }
    return LS_OK;
}

static ls_status check_sizes(ls_checkpoint *checkpoint)
{
    const ls_manifest *manifest = checkpoint->manifest;
    for (size_t i = 0; i < manifest->file_count; i++) {
        LS_TRY(check_size(checkpoint, &checkpoint->arena, manifest->files[i].name, manifest->files[i].bytes));
    }
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        LS_TRY(check_size(checkpoint, &checkpoint->arena, manifest->attachments[i].name,
                          manifest->attachments[i].bytes));
    }
    return LS_OK;
}

static ls_status read_manifest(checkpoint_owner *owner)
{
    ls_arena *arena = &owner->base.arena;
    const char *path = ls_path_join(arena, owner->base.path, LS_MANIFEST_NAME);
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(arena, path, LS_MANIFEST_BYTES_MAX, &text, &bytes));
    LS_TRY(ls_manifest_decode(arena, text, bytes, path, &owner->manifest));
    owner->base.manifest = &owner->manifest;
    owner->base.meta = owner->manifest.meta;
    return LS_OK;
}

ls_status ls_checkpoint_open(const char *path, ls_checkpoint **checkpoint_out)
{
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(ls_checkpoint_open_manifest(path, &checkpoint));
    const ls_status status = check_sizes(checkpoint);
    if (status != LS_OK) {
        ls_checkpoint_close(checkpoint);
        return status;
    }
    *checkpoint_out = checkpoint;
    return LS_OK;
}

ls_status ls_checkpoint_open_manifest(const char *path, ls_checkpoint **checkpoint_out)
{
    LS_ASSERT(path && checkpoint_out);
    checkpoint_owner *owner = calloc(1, sizeof *owner);
    LS_ASSERT(owner);
    ls_checkpoint *checkpoint = &owner->base;
    checkpoint->path = ls_arena_strdup(&checkpoint->arena, path);
    const ls_status status = read_manifest(owner);
    if (status != LS_OK) {
        ls_checkpoint_close(checkpoint);
        return status;
    }
    checkpoint->pinned = ls_path_exists(ls_path_join(&checkpoint->arena, path, LS_CHECKPOINT_PIN_NAME));
    *checkpoint_out = checkpoint;
    return LS_OK;
}

void ls_checkpoint_close(ls_checkpoint *checkpoint)
{
    if (!checkpoint) {
        return;
    }
    checkpoint_owner *owner = (checkpoint_owner *)checkpoint; /* base is its first member */
    ls_manifest_release(&owner->manifest);
    ls_arena_release(&checkpoint->arena);
    free(owner);
}

ls_status ls_checkpoint_check_identity(const ls_checkpoint *checkpoint, const char *identity)
{
    if (strcmp(checkpoint->meta.identity, identity) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%s belongs to another run: its identity is %.16s, this run's is %.16s (seed, data, "
                       "model, optimizer, precision or train.leaves differ); use another run directory, or "
                       "--fresh to start over",
                       checkpoint->path, checkpoint->meta.identity[0] ? checkpoint->meta.identity : "(none)",
                       identity);
    }
    return LS_OK;
}

uint64_t ls_checkpoint_parameters(const ls_checkpoint *checkpoint)
{
    return checkpoint->manifest->parameters;
}

ls_status ls_checkpoint_attachment_read(const ls_checkpoint *checkpoint, ls_arena *arena, const char *name,
                                        char **data_out, size_t *bytes_out)
{
    const ls_manifest *manifest = checkpoint->manifest;
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        const ls_manifest_attachment *entry = &manifest->attachments[i];
        if (strcmp(entry->name, name) != 0) {
            continue;
        }
        char *data = NULL, hex[LS_SHA256_HEX_BYTES];
        size_t bytes = 0;
        const char *path = ls_path_join(arena, checkpoint->path, name);
        LS_TRY(ls_file_read(arena, path, (size_t)entry->bytes, &data, &bytes));
        ls_sha256_hex(data, bytes, hex);
        if (bytes != entry->bytes || strcmp(hex, entry->sha256) != 0) {
            return ls_fail(LS_ERR_DATA,
                           "%s was damaged or edited: its SHA-256 is %.12s..., but the checkpoint's manifest "
                           "lists %.12s...",
                           path, hex, entry->sha256);
        }
        *data_out = data;
        *bytes_out = bytes;
        return LS_OK;
    }
    return ls_fail(LS_ERR_NOT_FOUND, "checkpoint %s has no attached file named %s", checkpoint->path, name);
}
