// SPDX-License-Identifier: Apache-2.0
/* Opening a bundle: BUNDLE.json and its signature first, then every file against it. */
#include "storage/bundle/bundle.h"

#include "base/file.h"
#include "storage/bundle/bundle_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SIGNATURE_BYTES_MAX = 4096 };

typedef struct opening {
    ls_arena *arena;
    const char *path;
    ls_bundle_source source; /* the archive; else the file of the folder that is being read */
    const char *member;      /* of the archive, that comes next; NULL: none */
    uint64_t member_bytes;
    const ls_public_key *key;
    char *json;
    size_t json_bytes;
    ls_bundle bundle;
    const ls_bundle_file **sorted; /* by name */
    bool *seen;                    /* as sorted */
    ls_bundle_target target;
    ls_bundle_sender *sender;
} opening;

/* ---- what is read ---- */

/* A file of a folder; found_out: false if it is not there. */
static ls_status open_in_folder(opening *o, const char *name, uint64_t *bytes_out, bool *found_out)
{
    struct stat info;
    const char *path = ls_path_join(o->arena, o->path, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    *found_out = fd >= 0;
    if (fd < 0 && errno != ELOOP) {
        return errno == ENOENT || errno == ENOTDIR ? LS_OK : ls_fail_errno(errno, "can't open %s", path);
    }
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        if (fd >= 0) {
            close(fd);
        }
        return ls_fail(LS_ERR_DATA, "%s is not a regular file, so the bundle is refused", path);
    }
    o->source = (ls_bundle_source){.path = path, .fd = fd};
    *bytes_out = (uint64_t)info.st_size;
    return LS_OK;
}

static ls_status next_member(opening *o)
{
    return ls_tar_next(o->source.tar, &o->member, &o->member_bytes);
}

/* The bytes of a small file that is open, or the next one of the archive. */
static ls_status read_small(opening *o, const char *name, uint64_t bytes, uint64_t limit, char **text_out)
{
    if (bytes > limit) {
        return ls_fail(LS_ERR_DATA, "%s: %s has %" PRIu64 " bytes; at most %" PRIu64 " are read", o->path,
                       name, bytes, limit);
    }
    *text_out = ls_arena_alloc(o->arena, (size_t)bytes + 1);
    if (o->source.tar) {
        LS_TRY(ls_tar_read(o->source.tar, *text_out, (size_t)bytes));
        return next_member(o);
    }
    return ls_file_pread_all(o->source.fd, name, *text_out, (size_t)bytes, 0);
}

/* A small file, whole, in the arena; text_out: NULL if it is not there. */
static ls_status read_named(opening *o, const char *name, uint64_t limit, char **text_out, size_t *bytes_out)
{
    uint64_t bytes = o->member_bytes;
    bool found = o->member && strcmp(o->member, name) == 0;
    *text_out = NULL;
    if (!o->source.tar) {
        LS_TRY(open_in_folder(o, name, &bytes, &found));
    }
    if (!found) {
        return LS_OK;
    }
    const ls_status status = read_small(o, name, bytes, limit, text_out);
    if (!o->source.tar) {
        close(o->source.fd);
    }
    *bytes_out = (size_t)bytes;
    return status;
}

/* ---- what is checked ---- */

static ls_status take_signature(opening *o, const char *text, size_t bytes)
{
    ls_bundle_sender *s = o->sender;
    LS_TRY(ls_signature_parse(text, bytes, LS_BUNDLE_SIGNATURE, &s->signature));
    s->is_signed = true;
    if (o->key) {
        LS_TRY(ls_signature_check(&s->signature, o->key, o->json, o->json_bytes));
        s->is_checked = true;
    }
    return LS_OK;
}

static ls_status need_signature(const opening *o)
{
    return o->key && !o->sender->is_checked
               ? ls_fail(LS_ERR_DATA, "%s is not signed; without a key, its digests alone are checked",
                         o->path)
               : LS_OK;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp((*(const ls_bundle_file *const *)a)->name, (*(const ls_bundle_file *const *)b)->name);
}

static ls_status need_room(const opening *o)
{
    struct statvfs disk;
    uint64_t bytes = 0;
    for (size_t i = 0; i < o->bundle.count; i++) {
        bytes += o->bundle.files[i].bytes;
    }
    if (!o->target.folder || statvfs(o->target.folder, &disk) != 0) {
        return LS_OK;
    }
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    return bytes <= room ? LS_OK
                         : ls_fail(LS_ERR_DISK,
                                   "the files of %s have %" PRIu64 " bytes, and %" PRIu64
                                   " are free at the place they go to",
                                   o->path, bytes, room);
}

static ls_status take_json(opening *o)
{
    LS_TRY(ls_bundle_decode(o->arena, o->json, o->json_bytes, LS_BUNDLE_NAME, &o->bundle));
    o->sorted = ls_arena_new(o->arena, const ls_bundle_file *, o->bundle.count);
    o->seen = ls_arena_new(o->arena, bool, o->bundle.count);
    for (size_t i = 0; i < o->bundle.count; i++) {
        o->sorted[i] = &o->bundle.files[i];
    }
    if (o->bundle.count > 1) {
        qsort(o->sorted, o->bundle.count, sizeof *o->sorted, compare_files);
    }
    LS_TRY(need_room(o));
    return ls_bundle_write_file(&o->target, LS_BUNDLE_NAME, o->json, o->json_bytes);
}

/* Reads the whole of a file, writes it to the target, and compares it with what is listed. */
static ls_status take_file(opening *o, const ls_bundle_file *file)
{
    char hex[LS_SHA256_HEX_BYTES];
    LS_TRY(ls_bundle_copy(&o->target, file->name, &o->source, file->bytes, hex));
    return strcmp(hex, file->sha256) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s: %s is damaged: its SHA-256 is %.12s..., and %.12s... is listed",
                         o->path, file->name, hex, file->sha256);
}

static ls_status check_length(const opening *o, const ls_bundle_file *file, uint64_t bytes)
{
    return bytes == file->bytes
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "%s: %s is damaged: it has %" PRIu64 " bytes, and %" PRIu64 " are listed", o->path,
                         file->name, bytes, file->bytes);
}

static ls_status fail_missing(const opening *o, const char *name)
{
    return ls_fail(LS_ERR_DATA, "%s: %s is missing, although it is listed", o->path, name);
}

/* ---- an archive ---- */

static ls_status take_member(opening *o, const char *name, uint64_t bytes)
{
    const ls_bundle_file wanted = {.name = name}, *const key = &wanted;
    const ls_bundle_file **found =
        o->bundle.count > 0 ? bsearch(&key, o->sorted, o->bundle.count, sizeof *o->sorted, compare_files)
                            : NULL;
    bool *seen = found ? &o->seen[found - o->sorted] : NULL;
    if (!found || *seen) {
        ls_text shown = {0};
        ls_text_append_printable(&shown, name, strlen(name), "");
        const ls_status status = ls_fail(LS_ERR_DATA, "%s holds '%s' %s: it is refused", o->path,
                                         ls_text_string(&shown), found ? "twice" : "without listing it");
        ls_text_release(&shown);
        return status;
    }
    *seen = true;
    LS_TRY(check_length(o, *found, bytes));
    return take_file(o, *found);
}

static ls_status read_members(opening *o)
{
    while (o->member) {
        LS_TRY(take_member(o, o->member, o->member_bytes));
        LS_TRY(next_member(o));
    }
    for (size_t i = 0; i < o->bundle.count; i++) {
        if (!o->seen[i]) {
            return fail_missing(o, o->sorted[i]->name);
        }
    }
    return LS_OK;
}

/* ---- a folder ---- */

static ls_status read_folder(opening *o)
{
    for (size_t i = 0; i < o->bundle.count; i++) {
        const ls_bundle_file *file = &o->bundle.files[i];
        uint64_t bytes = 0;
        bool found = false;
        LS_TRY(open_in_folder(o, file->name, &bytes, &found));
        if (!found) {
            return fail_missing(o, file->name);
        }
        ls_status status = check_length(o, file, bytes);
        status = status == LS_OK ? take_file(o, file) : status;
        close(o->source.fd);
        LS_TRY(status);
    }
    return LS_OK;
}

/* ---- both ---- */

/* BUNDLE.json and its signature come first. */
static ls_status read_bundle(opening *o)
{
    char *signature = NULL;
    size_t signature_bytes = 0;
    LS_TRY(read_named(o, LS_BUNDLE_NAME, LS_BUNDLE_JSON_BYTES_MAX, &o->json, &o->json_bytes));
    if (!o->json) {
        return ls_fail(LS_ERR_DATA, "%s is not a bundle: it %s " LS_BUNDLE_NAME, o->path,
                       o->source.tar ? "does not begin with" : "has no");
    }
    LS_TRY(read_named(o, LS_BUNDLE_SIGNATURE, SIGNATURE_BYTES_MAX, &signature, &signature_bytes));
    if (signature) {
        LS_TRY(take_signature(o, signature, signature_bytes));
    }
    LS_TRY(need_signature(o));
    LS_TRY(take_json(o));
    if (signature) {
        LS_TRY(ls_bundle_write_file(&o->target, LS_BUNDLE_SIGNATURE, signature, signature_bytes));
    }
    return o->source.tar ? read_members(o) : read_folder(o);
}

static ls_status read_any(opening *o)
{
    if (ls_path_is_dir(o->path)) {
        return read_bundle(o);
    }
    const int fd = open(o->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open %s", o->path);
    }
    ls_status status = ls_tar_open(fd, o->path, &o->source.tar);
    if (status == LS_OK) {
        status = next_member(o);
        status = status == LS_OK ? read_bundle(o) : status;
        ls_tar_close(o->source.tar);
    }
    close(fd);
    return status;
}

ls_status ls_bundle_open(ls_arena *arena, const char *path, const char *folder, const ls_public_key *key,
                         ls_bundle *bundle_out, ls_bundle_sender *sender_out)
{
    ls_bundle_sender sender = {0};
    opening o = {.arena = arena, .path = path, .key = key, .sender = &sender, .target = {.arena = arena}};
    ls_status status = folder ? ls_bundle_new_folder(arena, folder, &o.target.folder) : LS_OK;
    if (status == LS_OK) {
        status = read_any(&o);
        status = folder ? ls_bundle_keep_folder(o.target.folder, folder, status) : status;
    }
    if (status != LS_OK) {
        json_decref(o.bundle.about);
        return status;
    }
    *bundle_out = o.bundle;
    *sender_out = sender;
    return LS_OK;
}
