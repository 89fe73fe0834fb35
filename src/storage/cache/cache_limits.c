// SPDX-License-Identifier: Apache-2.0
/* Limits of a cache folder: its cache.yaml, and the defaults without one. */
#include "base/yaml.h"
#include "storage/cache/cache_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILE_NAME "cache.yaml"
enum { QUOTA_PART = 5, FREE_PART = 20, FILE_BYTES_MAX = 65536 };
static const uint64_t FREE_BYTES_MAX = UINT64_C(10) << 30;

/* clang-format off */
static const ls_option options[] = {
    {.key = "quota", .type = LS_OPTION_BYTES, .offset = offsetof(ls_cache_limits, quota_bytes), .default_text = "auto", .allow_auto = true, .min = 0, .max = LS_OPTION_U64_MAX, .help = "largest total size of the cached datasets; beyond it, datasets that are not in use are removed, least recently used first; auto: a fifth of the disk"},
    {.key = "keep_free", .type = LS_OPTION_BYTES, .offset = offsetof(ls_cache_limits, keep_free_bytes), .default_text = "auto", .allow_auto = true, .min = 0, .max = LS_OPTION_U64_MAX, .help = "disk space to keep free: cached datasets are removed to free it, and no large dataset is stored that would use it; auto: a twentieth of the disk, 10 GiB at most"},
    {.key = "group", .type = LS_OPTION_STRING, .offset = offsetof(ls_cache_limits, group), .default_text = "\"\"", .help = "name of a group of users who trust each other's cached datasets; \"\": each user trusts only their own and those of root"},
};
/* clang-format on */

const ls_option_table *ls_cache_limits_table(void)
{
    static const ls_option_table table = {.options = options, .count = sizeof options / sizeof options[0]};
    return &table;
}

/* Whoever can write this file decides whose entries are trusted, so its owner and mode are
 * checked. *text_out is NULL if there is no file. */
static ls_status read_file(ls_arena *arena, const char *path, char **text_out, size_t *bytes_out)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR ? LS_OK : ls_fail_errno(errno, "can't open %s", path);
    }
    struct stat info = {0};
    ls_status status = LS_OK;
    if (fstat(fd, &info) != 0 || !ls_cache_is_believed(&info, (gid_t)-1) || (info.st_mode & S_IWOTH)) {
        status = ls_fail(
            LS_ERR_INVALID,
            "%s is not trusted: it must belong to this user or root (it belongs to user %u) and must not "
            "be writable by others",
            path, (unsigned)info.st_uid);
    } else if (info.st_size > FILE_BYTES_MAX) {
        status = ls_fail(LS_ERR_INVALID, "%s is too long: a file of cache limits can have at most %d bytes",
                         path, FILE_BYTES_MAX);
    } else {
        *bytes_out = (size_t)info.st_size;
        *text_out = ls_arena_alloc(arena, *bytes_out + 1);
        status = ls_file_pread_all(fd, path, *text_out, *bytes_out, 0);
    }
    close(fd);
    return status;
}

ls_status ls_cache_limits_read(ls_arena *arena, const char *folder, ls_cache_limits *limits_out)
{
    const char *path = ls_path_join(arena, folder, FILE_NAME);
    char *text = NULL;
    size_t bytes = 0;
    ls_cache_limits limits;
    ls_options_defaults(ls_cache_limits_table(), &limits, arena);
    LS_TRY(read_file(arena, path, &text, &bytes));
    if (text) {
        ls_document doc;
        LS_TRY(ls_yaml_parse(text, bytes, path, &doc));
        const ls_status status = ls_options_apply_document(ls_cache_limits_table(), &limits, &doc, arena);
        ls_document_release(&doc);
        LS_TRY(status);
    }
    *limits_out = limits;
    return LS_OK;
}

/* Size of the disk of the nearest existing parent folder. */
static bool look_at_disk(ls_arena *arena, const char *folder, struct statvfs *disk_out)
{
    const char *path = folder;
    while (statvfs(path, disk_out) != 0) {
        const char *above = ls_path_dirname(arena, path);
        if (strcmp(above, path) == 0) {
            return false;
        }
        path = above;
    }
    return true;
}

ls_status ls_cache_limits_load(ls_arena *arena, const char *folder, ls_cache_limits *limits_out)
{
    ls_cache_limits limits;
    LS_TRY(ls_cache_limits_read(arena, folder, &limits));
    struct statvfs disk;
    const uint64_t bytes =
        look_at_disk(arena, folder, &disk) ? (uint64_t)disk.f_blocks * disk.f_frsize : UINT64_MAX;
    if (limits.quota_bytes == LS_AUTO_U64) {
        limits.quota_bytes = bytes / QUOTA_PART;
    }
    if (limits.keep_free_bytes == LS_AUTO_U64) {
        const uint64_t part = bytes / FREE_PART;
        limits.keep_free_bytes = bytes == UINT64_MAX ? 0 : part < FREE_BYTES_MAX ? part : FREE_BYTES_MAX;
    }
    *limits_out = limits;
    return LS_OK;
}

ls_status ls_cache_limits_write(const char *folder, const ls_cache_limits *limits)
{
    ls_arena arena = {0};
    ls_text text = {0};
    ls_options_append_yaml(ls_cache_limits_table(), limits, false, &text);
    ls_status status = ls_dir_create(folder);
    if (status == LS_OK) {
        status =
            ls_file_write_atomic(ls_path_join(&arena, folder, FILE_NAME), ls_text_string(&text), text.bytes);
    }
    ls_text_release(&text);
    ls_arena_release(&arena);
    return status;
}
