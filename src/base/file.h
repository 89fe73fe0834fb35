// SPDX-License-Identifier: Apache-2.0
/*
 * Files and folders: whole reads, maps, atomic writes, and the durable commit sequence (I4).
 *
 * These are the plain blocking calls of commands and loaders. The control plane (checkpoint commit,
 * membership) goes through env/env.h instead, so that it can be simulated and made to fail.
 *
 * Every error text names the path. Thread-safe unless said otherwise.
 */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file mapped read-only, or bytes owned by the caller's arena. `data` is NULL when bytes is 0. */
typedef struct ls_file_map {
    const unsigned char *data;
    size_t bytes;
} ls_file_map;

/* Maps a regular file read-only. Errors: LS_ERR_NOT_FOUND, LS_ERR_IO, LS_ERR_INVALID for a folder
 * or device. */
LS_MUST_CHECK ls_status ls_file_map_open(const char *path, ls_file_map *map_out);
void ls_file_map_close(ls_file_map *map);

/* Reads a whole file into `arena`, zero-terminated (the zero is not counted). limit_bytes: larger
 * is LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_file_read(ls_arena *arena, const char *path, size_t limit_bytes, char **text_out,
                                     size_t *bytes_out);

/* Writes `path` so that a reader sees the old bytes or the new ones, never half: temporary file
 * beside it, fsync, rename, fsync of the folder. */
LS_MUST_CHECK ls_status ls_file_write_atomic(const char *path, const void *data, size_t bytes);

/* The same with a function that writes the content to `fd`. If it fails, its error is returned
 * and the old bytes stay. */
typedef ls_status (*ls_file_writer)(void *context, int fd, const char *path);
LS_MUST_CHECK ls_status ls_file_write_atomic_by(const char *path, ls_file_writer write, void *context);

/* Opens a regular file to read; the caller closes fd_out. Errors: as for ls_file_map_open. */
LS_MUST_CHECK ls_status ls_file_open(const char *path, int *fd_out, size_t *bytes_out);
/* Opens an empty file without a name in `folder`; if that is "" or allows none, in $TMPDIR or /tmp.
 * The caller closes it. */
LS_MUST_CHECK ls_status ls_file_open_temporary(const char *folder, int *fd_out);

/* SHA-256 of the first `bytes` bytes of an open file, in 64 digits. It is read: the pages of a map
 * would count as memory of the process. */
LS_MUST_CHECK ls_status ls_file_sha256(int fd, const char *path, uint64_t bytes, char *hex_out);

/* write(2) and pwrite(2), repeated until everything is written. `path` is for the error text. */
LS_MUST_CHECK ls_status ls_file_write_all(int fd, const char *path, const void *data, size_t bytes);
LS_MUST_CHECK ls_status ls_file_pwrite_all(int fd, const char *path, const void *data, size_t bytes,
                                           uint64_t offset);
/* pread(2), repeated until everything is read; a file that is too short is LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_file_pread_all(int fd, const char *path, void *data, size_t bytes,
                                          uint64_t offset);

/* mkdir -p; the new names are durable on return. */
LS_MUST_CHECK ls_status ls_dir_create(const char *path);
/* fsync of a folder, which makes renames in it durable. */
LS_MUST_CHECK ls_status ls_dir_sync(const char *path);
/* rm -r; a missing path is fine. Never follows symbolic links. */
LS_MUST_CHECK ls_status ls_dir_remove(const char *path);
/* Names in a folder without . and .., sorted by byte order, in `arena`. */
LS_MUST_CHECK ls_status ls_dir_list(ls_arena *arena, const char *path, char ***names_out, size_t *count_out);

bool ls_path_exists(const char *path);
bool ls_path_is_dir(const char *path);
/* "a" + "b" -> "a/b"; an absolute `name` is returned alone. */
char *ls_path_join(ls_arena *arena, const char *folder, const char *name);
/* Where a daemon of root has its socket for users who don't set LOCKSTEP_HOME. */
#define LS_SHARED_HOME "/run/lockstep"

/* Path of user data that outlives runs: $LOCKSTEP_HOME/name, else $HOME/.lockstep/name; NULL if
 * neither is set. A LOCKSTEP_HOME of another user names that user's daemon (name ""), not a place
 * for our own data. */
char *ls_home_path(ls_arena *arena, const char *name);
/* "~" and "~/x" with $HOME for the tilde; other paths as they are. What a shell would have done,
 * for paths in files. */
char *ls_path_expand_home(ls_arena *arena, const char *path);
/* The absolute path without links; NULL with errno if there is nothing at the path. */
char *ls_path_real(ls_arena *arena, const char *path);
/* What is wrong with a relative path that others chose ("it has a part . or .."); NULL: nothing.
 * Parts that are empty, "." or "..", control characters and backslashes are. */
const char *ls_path_problem(const char *path);
/* A copy without slashes at its end; "/" keeps its only one. */
char *ls_path_trim(ls_arena *arena, const char *path);
/* The folder of a path ("." if it has none), and the name after the last slash. */
char *ls_path_dirname(ls_arena *arena, const char *path);
const char *ls_path_basename(const char *path);
/* True when `path` ends with `suffix` (".jsonl"). */
bool ls_path_has_suffix(const char *path, const char *suffix);

/* Expands a pattern with * ? [] to sorted paths. A pattern that matches nothing is
 * LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_path_glob(ls_arena *arena, const char *pattern, char ***paths_out,
                                     size_t *count_out);

#endif
