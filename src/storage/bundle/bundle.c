// SPDX-License-Identifier: Apache-2.0
#include "storage/bundle/bundle.h"

#include "base/assert.h"
#include "base/file.h"
#include "storage/bundle/bundle_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char format_name[] = "lockstep-bundle";
enum { VERSION = 1, PIECE_BYTES = 1 << 20 };

/* ---- names ---- */

ls_status ls_bundle_check_name(const char *name)
{
    const char *problem = strlen(name) > LS_BUNDLE_NAME_BYTES_MAX ? "it has more than 100 bytes" : NULL;
    if (strcmp(name, LS_BUNDLE_NAME) == 0 || strcmp(name, LS_BUNDLE_SIGNATURE) == 0) {
        problem = "the bundle itself uses it";
    }
    problem = problem ? problem : ls_path_problem(name);
    if (!problem) {
        return LS_OK;
    }
    ls_text shown = {0};
    ls_text_append_printable(&shown, name, strnlen(name, 200), "");
    const ls_status status = ls_fail(LS_ERR_INVALID, "'%s' can't be the name of a file in a bundle: %s",
                                     ls_text_string(&shown), problem);
    ls_text_release(&shown);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ls_status check_names(const ls_bundle *bundle)
{
    ls_arena arena = {0};
    const char **names = ls_arena_new(&arena, const char *, bundle->count);
    ls_status status = bundle->count <= LS_BUNDLE_FILES_MAX
                           ? LS_OK
                           : ls_fail(LS_ERR_INVALID, "a bundle has at most %d files, and this would have %zu",
                                     LS_BUNDLE_FILES_MAX, bundle->count);
    for (size_t i = 0; status == LS_OK && i < bundle->count; i++) {
        names[i] = bundle->files[i].name;
        status = ls_bundle_check_name(names[i]);
    }
    if (status == LS_OK && bundle->count > 1) {
        qsort(names, bundle->count, sizeof *names, compare_names);
    }
    for (size_t i = 1; status == LS_OK && i < bundle->count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = ls_fail(LS_ERR_INVALID, "a bundle can't have two files of the name '%s'", names[i]);
        }
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- BUNDLE.json ---- */

ls_status ls_bundle_encode(const ls_bundle *bundle, ls_text *text)
{
    LS_TRY(check_names(bundle));
    json_t *files = json_array();
    for (size_t i = 0; i < bundle->count; i++) {
        const ls_bundle_file *f = &bundle->files[i];
        json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", f->name, "bytes",
                                               (json_int_t)f->bytes, "sha256", f->sha256));
    }
    json_t *root = json_pack("{s:s, s:i, s:O, s:o}", "format", format_name, "version", VERSION, "about",
                             bundle->about, "files", files);
    char *dumped = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!dumped) {
        return ls_fail(LS_ERR_INVALID, "a name of a file is not UTF-8");
    }
    ls_text_append(text, dumped);
    ls_text_append(text, "\n");
    free(dumped);
    return LS_OK;
}

static ls_status decode_file(const json_t *item, const char *name, ls_bundle_file *file)
{
    const char *file_name = NULL, *sha256 = NULL;
    uint64_t bytes = UINT64_MAX;
    LS_TRY(ls_json_get_string(item, name, "name", NULL, &file_name));
    LS_TRY(ls_json_get_string(item, name, "sha256", NULL, &sha256));
    LS_TRY(ls_json_get_u64(item, name, "bytes", 0, INT64_MAX, UINT64_MAX, &bytes));
    if (!file_name || !sha256 || bytes == UINT64_MAX || !ls_hash_is_hex(sha256, LS_SHA256_HEX_BYTES - 1)) {
        return ls_fail(LS_ERR_DATA, "%s: a file needs a name, a length and a SHA-256 of 64 digits", name);
    }
    *file = (ls_bundle_file){.name = file_name, .bytes = bytes};
    memcpy(file->sha256, sha256, sizeof file->sha256);
    return LS_OK;
}

static ls_status decode_root(ls_arena *arena, const json_t *root, const char *name, ls_bundle *bundle)
{
    const char *format = NULL;
    uint64_t version = 0, total = 0;
    const json_t *files = json_object_get(root, "files");
    if (!json_is_object(root) || !json_is_array(files) || !json_is_object(json_object_get(root, "about")) ||
        ls_json_get_string(root, name, "format", "", &format) != LS_OK || strcmp(format, format_name) != 0) {
        return ls_fail(LS_ERR_DATA, "%s does not describe a bundle", name);
    }
    LS_TRY(ls_json_get_u64(root, name, "version", 1, INT64_MAX, 1, &version));
    if (version != VERSION) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s is of version %" PRIu64 "; this program knows version %d",
                       name, version, VERSION);
    }
    bundle->count = json_array_size(files);
    bundle->files = ls_arena_new(arena, ls_bundle_file, bundle->count);
    for (size_t i = 0; i < bundle->count; i++) {
        ls_bundle_file *file = &bundle->files[i];
        LS_TRY(decode_file(json_array_get(files, i), name, file));
        file->name = ls_arena_strdup(arena, file->name);
        if (file->bytes > INT64_MAX - total) {
            return ls_fail(LS_ERR_DATA, "%s: the files are larger than any disk", name);
        }
        total += file->bytes;
    }
    if (check_names(bundle) != LS_OK) {
        return ls_fail_within(LS_ERR_DATA, "%s", name);
    }
    bundle->about = json_incref(json_object_get(root, "about"));
    return LS_OK;
}

ls_status ls_bundle_decode(ls_arena *arena, const char *text, size_t bytes, const char *name,
                           ls_bundle *bundle_out)
{
    json_t *root = NULL;
    ls_bundle bundle = {0};
    LS_TRY(ls_json_parse(text, bytes, name, &root));
    const ls_status status = decode_root(arena, root, name, &bundle);
    json_decref(root);
    LS_TRY(status);
    *bundle_out = bundle;
    return LS_OK;
}

/* ---- where files go ---- */

static ls_status begin_file(ls_bundle_target *t, const char *name, uint64_t bytes)
{
    if (t->tar) {
        return ls_tar_begin(t->tar, name, bytes);
    }
    if (t->folder) {
        t->path = ls_path_join(t->arena, t->folder, name);
        LS_TRY(ls_dir_create(ls_path_dirname(t->arena, t->path)));
        t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        return t->fd >= 0 ? LS_OK : ls_fail_errno(errno, "can't create %s", t->path);
    }
    return LS_OK;
}

static ls_status write_bytes(ls_bundle_target *t, const void *data, size_t bytes)
{
    return t->tar      ? ls_tar_write(t->tar, data, bytes)
           : t->folder ? ls_file_write_all(t->fd, t->path, data, bytes)
                       : LS_OK;
}

/* Syncs it. failed: what writing it ended with; the result, unless syncing fails. */
static ls_status end_file(ls_bundle_target *t, ls_status failed)
{
    if (!t->folder) {
        return failed;
    }
    if (failed == LS_OK && fsync(t->fd) != 0) {
        failed = ls_fail_errno(errno, "can't sync %s", t->path);
    }
    close(t->fd);
    return failed;
}

ls_status ls_bundle_write_file(ls_bundle_target *t, const char *name, const void *data, size_t bytes)
{
    LS_TRY(begin_file(t, name, bytes));
    return end_file(t, write_bytes(t, data, bytes));
}

ls_status ls_bundle_copy(ls_bundle_target *t, const char *name, const ls_bundle_source *source,
                         uint64_t bytes, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_sha256 hash;
    LS_TRY(begin_file(t, name, bytes));
    void *piece = malloc(PIECE_BYTES);
    ls_status status = piece ? LS_OK : ls_fail(LS_ERR_MEMORY, "not enough memory to read %s", name);
    ls_sha256_init(&hash);
    for (uint64_t at = 0; status == LS_OK && at < bytes; at += PIECE_BYTES) {
        const size_t now = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        status = source->tar ? ls_tar_read(source->tar, piece, now)
                             : ls_file_pread_all(source->fd, source->path, piece, now, at);
        if (status == LS_OK) {
            ls_sha256_update(&hash, piece, now);
            status = write_bytes(t, piece, now);
        }
    }
    ls_sha256_finish(&hash, hex_out);
    free(piece);
    return end_file(t, status);
}

ls_status ls_bundle_new_folder(ls_arena *arena, const char *path, const char **folder_out)
{
    const char *folder = ls_arena_printf(arena, "%s.tmp-%d", path, (int)getpid());
    if (ls_path_exists(path)) {
        return ls_fail(LS_ERR_INVALID, "%s exists; name a folder that does not exist", path);
    }
    LS_TRY(ls_dir_remove(folder)); /* of a process of this number that was killed */
    LS_TRY(ls_dir_create(folder));
    *folder_out = folder;
    return LS_OK;
}

ls_status ls_bundle_keep_folder(const char *folder, const char *path, ls_status failed)
{
    if (failed == LS_OK && rename(folder, path) != 0) {
        failed = ls_fail_errno(errno, "can't rename %s to %s", folder, path);
    }
    if (failed != LS_OK) {
        ls_arena arena = {0};
        const char *why = ls_arena_strdup(&arena, ls_error_text());
        (void)!ls_dir_remove(folder);
        failed = ls_fail(failed, "%s", why);
        ls_arena_release(&arena);
        return failed;
    }
    ls_arena arena = {0};
    const ls_status status = ls_dir_sync(ls_path_dirname(&arena, path));
    ls_arena_release(&arena);
    return status;
}
