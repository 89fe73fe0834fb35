// SPDX-License-Identifier: Apache-2.0
/* Making a bundle: files are read twice, for their digests and to be packed. */
#include "storage/bundle/bundle.h"

#include "base/file.h"
#include "storage/bundle/bundle_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ls_status ls_bundle_measure(ls_bundle *bundle)
{
    for (size_t i = 0; i < bundle->count; i++) {
        ls_bundle_file *file = &bundle->files[i];
        int fd = -1;
        ls_status status = LS_OK;
        if (file->path) {
            size_t bytes = 0;
            LS_TRY(ls_file_open(file->path, &fd, &bytes));
            file->bytes = bytes;
            status =
                ls_bundle_copy(&(ls_bundle_target){0}, file->name,
                               &(ls_bundle_source){.path = file->path, .fd = fd}, file->bytes, file->sha256);
            close(fd);
        } else {
            ls_sha256_hex(file->data, (size_t)file->bytes, file->sha256);
        }
        LS_TRY(status);
    }
    return LS_OK;
}

static ls_status pack_path(const ls_bundle_file *file, ls_bundle_target *target)
{
    int fd = -1;
    size_t bytes = 0;
    char hex[LS_SHA256_HEX_BYTES] = "";
    LS_TRY(ls_file_open(file->path, &fd, &bytes));
    const ls_bundle_source source = {.path = file->path, .fd = fd};
    const ls_status status =
        bytes == file->bytes ? ls_bundle_copy(target, file->name, &source, bytes, hex) : LS_OK;
    close(fd);
    LS_TRY(status);
    return strcmp(hex, file->sha256) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "%s has changed while it was packed; stop what writes to it, and try again",
                         file->path);
}

typedef struct packing {
    const ls_bundle *bundle;
    ls_text json, signature;
    const char *path;
} packing;

static ls_status pack_into(const packing *p, ls_bundle_target *target)
{
    LS_TRY(ls_bundle_write_file(target, LS_BUNDLE_NAME, p->json.data, p->json.bytes));
    if (p->signature.bytes > 0) {
        LS_TRY(ls_bundle_write_file(target, LS_BUNDLE_SIGNATURE, p->signature.data, p->signature.bytes));
    }
    for (size_t i = 0; i < p->bundle->count; i++) {
        const ls_bundle_file *file = &p->bundle->files[i];
        LS_TRY(file->path ? pack_path(file, target)
                          : ls_bundle_write_file(target, file->name, file->data, (size_t)file->bytes));
    }
    return LS_OK;
}

static ls_status pack_archive(void *context, int fd, const char *path)
{
    const packing *p = context;
    ls_bundle_target target = {0};
    LS_TRY(ls_tar_create(fd, path, ls_path_has_suffix(p->path, ".zst"), &target.tar));
    ls_status status = pack_into(p, &target);
    status = status == LS_OK ? ls_tar_finish(target.tar) : status;
    ls_tar_destroy(target.tar);
    return status;
}

static ls_status pack_folder(const packing *p)
{
    ls_arena arena = {0};
    ls_bundle_target target = {.arena = &arena};
    ls_status status = ls_bundle_new_folder(&arena, p->path, &target.folder);
    if (status == LS_OK) {
        status = ls_bundle_keep_folder(target.folder, p->path, pack_into(p, &target));
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status pack(packing *p, const ls_signing_key *key)
{
    LS_TRY(ls_bundle_encode(p->bundle, &p->json));
    if (p->json.bytes > LS_BUNDLE_JSON_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID, "the list of files of %s has more than %d MB", p->path,
                       LS_BUNDLE_JSON_BYTES_MAX >> 20);
    }
    if (key) {
        LS_TRY(ls_signature_make(key, p->json.data, p->json.bytes, "file:" LS_BUNDLE_NAME " hashed",
                                 &p->signature));
    }
    if (!ls_path_has_suffix(p->path, ".tar.zst") && !ls_path_has_suffix(p->path, ".tar")) {
        return pack_folder(p);
    }
    return ls_path_exists(p->path)
               ? ls_fail(LS_ERR_INVALID, "%s exists; remove it, or name a file that does not exist", p->path)
               : ls_file_write_atomic_by(p->path, pack_archive, p);
}

ls_status ls_bundle_pack(const ls_bundle *bundle, const char *path, const ls_signing_key *key)
{
    packing p = {.bundle = bundle, .path = path};
    const ls_status status = pack(&p, key);
    ls_text_release(&p.json);
    ls_text_release(&p.signature);
    return status;
}
