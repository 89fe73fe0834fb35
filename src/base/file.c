// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

ls_status ls_file_open(const char *path, int *fd_out, size_t *bytes_out)
{
    /* A pipe must not be waited for: it is refused below. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    struct stat info;
    if (fstat(fd, &info) != 0) {
        const int error = errno;
        close(fd);
        return ls_fail_errno(error, "can't find out the type and size of %s", path);
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return ls_fail(LS_ERR_INVALID,
                       S_ISDIR(info.st_mode) ? "%s is a folder, and a file is needed"
                                             : "%s is not a regular file",
                       path);
    }
    *fd_out = fd;
    *bytes_out = (size_t)info.st_size;
    return LS_OK;
}

ls_status ls_file_map_open(const char *path, ls_file_map *map_out)
{
    int fd = -1;
    size_t bytes = 0;
    LS_TRY(ls_file_open(path, &fd, &bytes));
    void *data = NULL;
    if (bytes > 0) {
        data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            const int error = errno;
            close(fd);
            return ls_fail_errno(error, "can't map %s (%zu bytes) into memory", path, bytes);
        }
    }
    close(fd);
    *map_out = (ls_file_map){.data = data, .bytes = bytes};
    return LS_OK;
}

void ls_file_map_close(ls_file_map *map)
{
    if (map->data) {
        munmap((void *)(uintptr_t)map->data, map->bytes);
    }
    *map = (ls_file_map){0};
}

ls_status ls_file_read(ls_arena *arena, const char *path, size_t limit_bytes, char **text_out,
                       size_t *bytes_out)
{
    int fd = -1;
    size_t bytes = 0;
    LS_TRY(ls_file_open(path, &fd, &bytes));
    if (bytes > limit_bytes) {
        close(fd);
        return ls_fail(LS_ERR_DATA, "%s has %zu bytes, at most %zu are allowed here", path, bytes,
                       limit_bytes);
    }
    char *text = ls_arena_alloc(arena, bytes + 1);
    const ls_status status = ls_file_pread_all(fd, path, text, bytes, 0);
    close(fd);
    LS_TRY(status);
    *text_out = text;
    *bytes_out = bytes;
    return LS_OK;
}

ls_status ls_file_sha256(int fd, const char *path, uint64_t bytes, char *hex_out)
{
    enum { PIECE_BYTES = 1 << 18 };
    unsigned char *piece = malloc(PIECE_BYTES);
    ls_status status = piece ? LS_OK : ls_fail(LS_ERR_MEMORY, "not enough memory to read %s", path);
    ls_sha256 hash;
    ls_sha256_init(&hash);
    for (uint64_t at = 0; status == LS_OK && at < bytes; at += PIECE_BYTES) {
        const size_t now = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        status = ls_file_pread_all(fd, path, piece, now, at);
        ls_sha256_update(&hash, piece, status == LS_OK ? now : 0);
    }
    ls_sha256_finish(&hash, hex_out);
    free(piece);
    return status;
}

/* Opens a file without a name; -1 with errno if the folder does not allow one. */
static int open_nameless(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && errno != ENOENT) { /* a file system without nameless files */
        ls_arena arena = {0};
        char *path = ls_arena_printf(&arena, "%s/.lockstep-XXXXXX", folder);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) {
            unlink(path);
        }
        ls_arena_release(&arena);
    }
    return fd;
}

ls_status ls_file_open_temporary(const char *folder, int *fd_out)
{
    int fd = folder[0] && ls_dir_create(folder) == LS_OK ? open_nameless(folder) : -1;
    if (fd < 0) {
        const char *named = getenv("TMPDIR");
        const char *other = named && named[0] ? named : "/tmp";
        fd = open_nameless(other);
        if (fd < 0) {
            return ls_fail_errno(errno, "can't create a temporary file in %s", other);
        }
    }
    *fd_out = fd;
    return LS_OK;
}

ls_status ls_file_write_all(int fd, const char *path, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t wrote = write(fd, at, bytes);
        if (wrote < 0) {
            if (errno == EINTR) {
                continue;
            }
            return ls_fail_errno(errno, "can't write %s", path);
        }
        at += wrote;
        bytes -= (size_t)wrote;
    }
    return LS_OK;
}

ls_status ls_file_pwrite_all(int fd, const char *path, const void *data, size_t bytes, uint64_t offset)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t wrote = pwrite(fd, at, bytes, (off_t)offset);
        if (wrote < 0) {
            if (errno == EINTR) {
                continue;
            }
            return ls_fail_errno(errno, "can't write %s", path);
        }
        at += wrote;
        offset += (uint64_t)wrote;
        bytes -= (size_t)wrote;
    }
    return LS_OK;
}

ls_status ls_file_pread_all(int fd, const char *path, void *data, size_t bytes, uint64_t offset)
{
    char *at = data;
    while (bytes > 0) {
        const ssize_t got = pread(fd, at, bytes, (off_t)offset);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return ls_fail_errno(errno, "can't read %s", path);
        }
        if (got == 0) {
            return ls_fail(LS_ERR_DATA, "%s ends %zu bytes too early, at offset %llu", path, bytes,
                           (unsigned long long)offset);
        }
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return LS_OK;
}

ls_status ls_file_write_atomic_by(const char *path, ls_file_writer write, void *context)
{
    ls_arena arena = {0};
    char *temporary = ls_arena_printf(&arena, "%s.tmp.%d", path, (int)getpid());
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        const int error = errno;
        ls_arena_release(&arena);
        return ls_fail_errno(error, "can't create %s", path);
    }
    ls_status status = write(context, fd, path);
    if (status == LS_OK && fsync(fd) != 0) {
        status = ls_fail_errno(errno, "can't flush %s to disk", path);
    }
    if (close(fd) != 0 && status == LS_OK) {
        status = ls_fail_errno(errno, "can't close %s", path);
    }
    if (status == LS_OK && rename(temporary, path) != 0) {
        status = ls_fail_errno(errno, "can't rename %s to its final name", temporary);
    }
    if (status == LS_OK) {
        status = ls_dir_sync(ls_path_dirname(&arena, path));
    } else {
        unlink(temporary);
    }
    ls_arena_release(&arena);
    return status;
}

typedef struct content {
    const void *data;
    size_t bytes;
} content;

static ls_status write_content(void *context, int fd, const char *path)
{
    const content *all = context;
    return ls_file_write_all(fd, path, all->data, all->bytes);
}

ls_status ls_file_write_atomic(const char *path, const void *data, size_t bytes)
{
    return ls_file_write_atomic_by(path, write_content, &(content){data, bytes});
}

ls_status ls_dir_create(const char *path)
{
    ls_arena arena = {0};
    char *partial = ls_arena_strdup(&arena, path);
    ls_status status = LS_OK;
    for (char *at = partial + 1; status == LS_OK; at++) {
        const char here = *at;
        if (here != '/' && here != '\0') {
            continue;
        }
        *at = '\0';
        if (mkdir(partial, 0755) == 0) {
            /* otherwise a power loss could remove the folder with all its content */
            status = ls_dir_sync(ls_path_dirname(&arena, partial));
        } else if (errno != EEXIST) {
            status = ls_fail_errno(errno, "can't create folder %s", partial);
        }
        if (here == '\0') {
            break;
        }
        *at = here;
    }
    if (status == LS_OK && !ls_path_is_dir(path)) {
        status = ls_fail(LS_ERR_INVALID, "%s exists and is not a folder", path);
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_dir_sync(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open folder %s", path);
    }
    const int result = fsync(fd);
    const int error = errno;
    close(fd);
    /* Some file systems have no fsync for folders; their renames are as durable as they can be. */
    if (result != 0 && error != EINVAL) {
        return ls_fail_errno(error, "can't flush folder %s to disk", path);
    }
    return LS_OK;
}

static int remove_visit(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path) != 0 && errno != ENOENT ? errno : 0;
}

ls_status ls_dir_remove(const char *path)
{
    const int result = nftw(path, remove_visit, 32, FTW_DEPTH | FTW_PHYS);
    if (result == 0 || (result == -1 && errno == ENOENT)) {
        return LS_OK;
    }
    return ls_fail_errno(result == -1 ? errno : result, "can't remove %s", path);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ls_status ls_dir_list(ls_arena *arena, const char *path, char ***names_out, size_t *count_out)
{
    DIR *folder = opendir(path);
    if (!folder) {
        return ls_fail_errno(errno, "can't list folder %s", path);
    }
    size_t count = 0, capacity = 16;
    char **names = ls_arena_new(arena, char *, capacity);
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (count == capacity) {
            char **larger = ls_arena_new(arena, char *, capacity * 2);
            memcpy(larger, names, count * sizeof *names);
            names = larger;
            capacity *= 2;
        }
        names[count++] = ls_arena_strdup(arena, entry->d_name);
    }
    closedir(folder);
    qsort(names, count, sizeof *names, compare_names);
    *names_out = names;
    *count_out = count;
    return LS_OK;
}

bool ls_path_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool ls_path_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *ls_path_join(ls_arena *arena, const char *folder, const char *name)
{
    if (name[0] == '/' || folder[0] == '\0') {
        return ls_arena_strdup(arena, name);
    }
    const size_t bytes = strlen(folder);
    return ls_arena_printf(arena, "%s%s%s", folder, folder[bytes - 1] == '/' ? "" : "/", name);
}

static bool is_of_another(const char *folder)
{
    struct stat info;
    return stat(folder, &info) == 0 && info.st_uid != geteuid();
}

char *ls_home_path(ls_arena *arena, const char *name)
{
    const char *lockstep_home = getenv("LOCKSTEP_HOME"), *home = getenv("HOME");
    const bool has_home = home && home[0];
    if (lockstep_home && lockstep_home[0] && !(name[0] && has_home && is_of_another(lockstep_home))) {
        return ls_path_join(arena, lockstep_home, name);
    }
    return has_home ? ls_path_join(arena, ls_path_join(arena, home, ".lockstep"), name) : NULL;
}

char *ls_path_expand_home(ls_arena *arena, const char *path)
{
    const char *home = getenv("HOME");
    const bool tilde = path[0] == '~' && (path[1] == '/' || path[1] == '\0');
    return tilde && home && home[0] ? ls_arena_printf(arena, "%s%s", home, path + 1)
                                    : ls_arena_strdup(arena, path);
}

char *ls_path_dirname(ls_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        return ls_arena_strdup(arena, ".");
    }
    return slash == path ? ls_arena_strdup(arena, "/")
                         : ls_arena_strndup(arena, path, (size_t)(slash - path));
}

char *ls_path_real(ls_arena *arena, const char *path)
{
    char *real = realpath(path, NULL), *kept = real ? ls_arena_strdup(arena, real) : NULL;
    free(real);
    return kept;
}

const char *ls_path_problem(const char *path)
{
    const char *problem = NULL;
    for (const char *part = path; !problem; part += strcspn(part, "/") + 1) {
        const size_t bytes = strcspn(part, "/");
        if (bytes == 0) {
            problem = "it has an empty part";
        } else if (bytes <= 2 && strncmp(part, "..", bytes) == 0) {
            problem = "it has a part . or ..";
        }
        for (size_t i = 0; i < bytes; i++) {
            const unsigned char c = (unsigned char)part[i];
            problem =
                c < 0x20 || c == 0x7f || c == '\\' ? "it has a control character or a backslash" : problem;
        }
        if (!part[bytes]) {
            break;
        }
    }
    return problem;
}

char *ls_path_trim(ls_arena *arena, const char *path)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') {
        bytes--;
    }
    return ls_arena_strndup(arena, path, bytes);
}

const char *ls_path_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool ls_path_has_suffix(const char *path, const char *suffix)
{
    const size_t path_bytes = strlen(path), suffix_bytes = strlen(suffix);
    return path_bytes >= suffix_bytes && strcmp(path + path_bytes - suffix_bytes, suffix) == 0;
}

ls_status ls_path_glob(ls_arena *arena, const char *pattern, char ***paths_out, size_t *count_out)
{
    glob_t matches = {0};
    const int result = glob(pattern, GLOB_BRACE, NULL, &matches);
    if (result != 0) {
        globfree(&matches);
        return ls_fail(LS_ERR_NOT_FOUND, "no file matches %s", pattern);
    }
    char **paths = ls_arena_new(arena, char *, matches.gl_pathc);
    for (size_t i = 0; i < matches.gl_pathc; i++) {
        paths[i] = ls_arena_strdup(arena, matches.gl_pathv[i]);
    }
    *paths_out = paths;
    *count_out = matches.gl_pathc;
    globfree(&matches);
    return LS_OK;
}
