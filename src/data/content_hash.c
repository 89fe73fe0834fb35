// SPDX-License-Identifier: Apache-2.0
#include "data/content_hash.h"

#include "base/arena.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SETTLED_S = 2, NOTE_BYTES_MAX = 4096 };

/* What must be as it was: one line of text, so that a note is its own proof. */
static bool describe(ls_arena *arena, const char *path, ls_file_map map, const char **line_out,
                     const char **name_out)
{
    struct stat info;
    struct timespec now;
    if (stat(path, &info) != 0 || (size_t)info.st_size != map.bytes ||
        clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return false;
    }
    if (now.tv_sec - info.st_mtim.tv_sec < SETTLED_S || now.tv_sec - info.st_ctim.tv_sec < SETTLED_S) {
        return false;
    }
    *line_out = ls_arena_printf(
        arena, "lockstep content 1 device %llu inode %llu bytes %llu modified %lld.%09ld changed %lld.%09ld",
        (unsigned long long)info.st_dev, (unsigned long long)info.st_ino, (unsigned long long)info.st_size,
        (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec, (long long)info.st_ctim.tv_sec,
        info.st_ctim.tv_nsec);
    const uint64_t place[2] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino};
    *name_out = ls_arena_printf(arena, "%016llx.sha256", (unsigned long long)ls_xxh3(place, sizeof place, 0));
    return true;
}

/* A note is "<line> sha256 <64 digits> <crc32c of all before>\n". */
static char *make_note(ls_arena *arena, const char *line, const char *hex)
{
    char *body = ls_arena_printf(arena, "%s sha256 %s", line, hex);
    return ls_arena_printf(arena, "%s %08x\n", body, ls_crc32c(0, body, strlen(body)));
}

/* Of this user or root alone: whoever writes a note says what a file holds. */
static ssize_t read_note(const char *path, char note[NOTE_BYTES_MAX])
{
    struct stat info;
    ssize_t bytes = -1;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_uid == geteuid() || info.st_uid == 0)) {
        bytes = read(fd, note, NOTE_BYTES_MAX - 1);
    }
    if (fd >= 0) {
        close(fd);
    }
    note[bytes > 0 ? bytes : 0] = '\0';
    return bytes;
}

static bool recall(ls_arena *arena, const char *note_path, const char *line,
                   char hex_out[LS_SHA256_HEX_BYTES])
{
    char note[NOTE_BYTES_MAX];
    const ssize_t bytes = read_note(note_path, note);
    const size_t hex_at = strlen(line) + strlen(" sha256 ");
    if (bytes < 0 || (size_t)bytes < hex_at + LS_SHA256_HEX_BYTES) {
        return false;
    }
    const char *hex = ls_arena_strndup(arena, note + hex_at, LS_SHA256_HEX_BYTES - 1);
    if (strcmp(note, make_note(arena, line, hex)) != 0) { /* another file, an older state of it, or damage */
        return false;
    }
    memcpy(hex_out, hex, LS_SHA256_HEX_BYTES);
    return true;
}

void ls_content_hash(const char *folder, const char *path, ls_file_map map, size_t remember_bytes,
                     char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_arena arena = {0};
    const char *line = NULL, *name = NULL;
    const bool remember =
        folder[0] && map.bytes >= remember_bytes && describe(&arena, path, map, &line, &name);
    const char *note_path = remember ? ls_path_join(&arena, folder, name) : NULL;
    if (!remember || !recall(&arena, note_path, line, hex_out)) {
        ls_sha256_hex(map.data, map.bytes, hex_out);
        if (remember) {
            const char *note = make_note(&arena, line, hex_out);
            if (ls_dir_create(folder) != LS_OK ||
                ls_file_write_atomic(note_path, note, strlen(note)) != LS_OK) {
                ls_log_debug("data: can't remember a content hash: %s", ls_error_text());
            }
        }
    }
    ls_arena_release(&arena);
}
