// SPDX-License-Identifier: Apache-2.0
/* Files of entries: fetched and compared. */
#include "storage/registry/registry.h"

#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ls_status check_digest(const char *path, const ls_file_map *map, const ls_registry_entry_file *file)
{
    char sha256[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(map->data, map->bytes, sha256);
    return strcmp(sha256, file->sha256) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s is not what was registered: its SHA-256 is %.16s..., not %.16s...",
                         path, sha256, file->sha256);
}

static ls_status copy_file(ls_arena *arena, const ls_registry_entry *entry,
                           const ls_registry_entry_file *file, const char *to)
{
    ls_file_map map = {0};
    const char *path = ls_survey_path(arena, entry, file);
    ls_status status = ls_file_map_open(path, &map);
    if (status != LS_OK) {
        return ls_fail_within(
            LS_ERR_INVALID,
            "%s: the registry has only a reference to it, not its bytes ('registry add --store' "
            "keeps them)",
            entry->name);
    }
    status = check_digest(path, &map, file);
    status = status == LS_OK ? ls_file_write_atomic(to, map.data, map.bytes) : status;
    ls_file_map_close(&map);
    return status;
}

static ls_status write_receipt(ls_registry *registry, ls_arena *arena, const ls_registry_found *found,
                               const char *folder)
{
    json_t *root = json_pack("{s:s, s:s, s:i, s:s}", "entry", found->digest, "name", found->name, "version",
                             (int)found->version, "registry", ls_registry_address(registry));
    const ls_status status = ls_json_save(ls_path_join(arena, folder, LS_REGISTRY_RECEIPT), root);
    json_decref(root);
    return status;
}

static ls_status fill(ls_registry *registry, ls_arena *arena, const ls_registry_found *found,
                      const char *folder)
{
    const ls_registry_entry *entry = &found->entry;
    for (size_t i = 0; i < entry->file_count; i++) {
        const ls_registry_entry_file *file = &entry->files[i];
        const char *to = ls_path_join(arena, folder, file->name);
        LS_TRY(ls_dir_create(ls_path_dirname(arena, to)));
        LS_TRY(entry->stored ? ls_chunks_get(ls_registry_chunks(registry), file, to)
                             : copy_file(arena, entry, file, to));
    }
    return write_receipt(registry, arena, found, folder);
}

ls_status ls_registry_get(ls_registry *registry, ls_arena *arena, const ls_registry_found *found,
                          const char *folder)
{
    const char *whole = ls_path_trim(arena, folder);
    /* An empty folder may be there; rmdir refuses any other. */
    if (rmdir(whole) != 0 && errno != ENOENT) {
        return errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR
                   ? ls_fail(LS_ERR_INVALID, "%s is there already; give the name of a new folder", whole)
                   : ls_fail_errno(errno, "can't use %s", whole);
    }
    const char *partial = ls_arena_printf(arena, "%s.partial-%ld", whole, (long)getpid());
    LS_TRY(ls_dir_create(partial));
    ls_status status = fill(registry, arena, found, partial);
    if (status == LS_OK && rename(partial, whole) != 0) {
        status = ls_fail_errno(errno, "can't rename %s to %s", partial, whole);
    }
    if (status != LS_OK) {
        const char *reason = ls_arena_strdup(arena, ls_error_text());
        if (ls_dir_remove(partial) != LS_OK) {
            ls_error_clear();
        }
        return ls_fail(status, "%s", reason);
    }
    return ls_dir_sync(ls_path_dirname(arena, whole));
}

static ls_status verify_reference(ls_arena *arena, const ls_registry_entry *entry,
                                  const ls_registry_entry_file *file, size_t *gone)
{
    ls_file_map map = {0};
    const char *path = ls_survey_path(arena, entry, file);
    if (ls_file_map_open(path, &map) != LS_OK) {
        ls_error_clear();
        (*gone)++;
        return LS_OK;
    }
    const ls_status status = check_digest(path, &map, file);
    ls_file_map_close(&map);
    return status;
}

ls_status ls_registry_verify(ls_registry *registry, ls_arena *arena, const ls_registry_found *found,
                             size_t *gone_out)
{
    const ls_registry_entry *entry = &found->entry;
    *gone_out = 0;
    for (size_t i = 0; i < entry->file_count; i++) {
        const ls_registry_entry_file *file = &entry->files[i];
        if (!entry->stored) {
            LS_TRY(verify_reference(arena, entry, file, gone_out));
        } else if (found->stage == LS_STAGE_RETIRED && !ls_chunks_has(ls_registry_chunks(registry), file)) {
            (*gone_out)++; /* ls_registry_collect removes bytes of retired versions */
        } else {
            LS_TRY(ls_chunks_verify(ls_registry_chunks(registry), file));
        }
    }
    for (size_t i = 0; i < entry->parent_count; i++) {
        ls_registry_found parent;
        const ls_status status = ls_registry_load(registry, arena, entry->parents[i].digest, &parent);
        if (status != LS_OK) {
            return ls_fail_within(status == LS_ERR_NOT_FOUND ? LS_ERR_DATA : status, "a parent of %s",
                                  entry->name);
        }
        ls_registry_entry_release(&parent.entry);
    }
    return LS_OK;
}
