// SPDX-License-Identifier: Apache-2.0
#include "data/content_hash.h"

#include "base/arena.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SETTLED_S = 2, NOTE_BYTES_MAX = 4096 };

/* Where a note is, and the line that it must repeat. */
typedef struct note {
    const char *path;
    const char *line;
} note;

/* Writes what must be unchanged as one line of text, which the note repeats. what: "content" or
 * "unpacked content". Returns false if the file must not be remembered. */
static bool describe(ls_arena *arena, const char *folder, const char *path, ls_file_map map, const char *what,
                     note *note_out)
{
    struct stat info;
    struct timespec now;
    if (!folder[0] || stat(path, &info) != 0 || (size_t)info.st_size != map.bytes ||
        clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return false;
    }
    if (now.tv_sec - info.st_mtim.tv_sec < SETTLED_S || now.tv_sec - info.st_ctim.tv_sec < SETTLED_S) {
        return false;
    }
    note_out->line = ls_arena_printf(
        arena, "lockstep %s 1 device %llu inode %llu bytes %llu modified %lld.%09ld changed %lld.%09ld", what,
        (unsigned long long)info.st_dev, (unsigned long long)info.st_ino, (unsigned long long)info.st_size,
        (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec, (long long)info.st_ctim.tv_sec,
        info.st_ctim.tv_nsec);
    const uint64_t place[2] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino};
    note_out->path = ls_path_join(
        arena, folder,
        ls_arena_printf(arena, "%016llx.sha256", (unsigned long long)ls_xxh3(place, sizeof place, 0)));
    return true;
}

/* A note is "<line> sha256 <64 digits> <crc32c of all before>\n". */
static char *make_note(ls_arena *arena, const char *line, const char *hex)
{
    char *body = ls_arena_printf(arena, "%s sha256 %s", line, hex);
    return ls_arena_printf(arena, "%s %08x\n", body, ls_crc32c(0, body, strlen(body)));
}

/* Reads a note. It must belong to this user or root, because a note decides what a file is said to
 * hold. */
static ssize_t read_note(const char *path, char text[NOTE_BYTES_MAX])
{
    struct stat info;
    ssize_t bytes = -1;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_uid == geteuid() || info.st_uid == 0)) {
        bytes = read(fd, text, NOTE_BYTES_MAX - 1);
    }
    if (fd >= 0) {
        close(fd);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes;
}

static bool recall(ls_arena *arena, const note *n, char hex_out[LS_SHA256_HEX_BYTES])
{
    char text[NOTE_BYTES_MAX];
    const ssize_t bytes = read_note(n->path, text);
    const size_t hex_at = strlen(n->line) + strlen(" sha256 ");
    if (bytes < 0 || (size_t)bytes < hex_at + LS_SHA256_HEX_BYTES) {
        return false;
    }
    const char *hex = ls_arena_strndup(arena, text + hex_at, LS_SHA256_HEX_BYTES - 1);
    /* If they differ, the note is for another file or an older state of it, or it is damaged. */
    if (strcmp(text, make_note(arena, n->line, hex)) != 0) {
        return false;
    }
    memcpy(hex_out, hex, LS_SHA256_HEX_BYTES);
    return true;
}

static void remember(ls_arena *arena, const char *folder, const note *n, const char *hex)
{
    const char *text = make_note(arena, n->line, hex);
    if (ls_dir_create(folder) != LS_OK || ls_file_write_atomic(n->path, text, strlen(text)) != LS_OK) {
        ls_log_debug("data: can't remember a content hash: %s", ls_error_text());
    }
}

void ls_content_hash(const char *folder, const char *path, ls_file_map map, size_t remember_bytes,
                     char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_arena arena = {0};
    note n = {0};
    const bool known = map.bytes >= remember_bytes && describe(&arena, folder, path, map, "content", &n);
    if (!known || !recall(&arena, &n, hex_out)) {
        ls_sha256_hex(map.data, map.bytes, hex_out);
        if (known) {
            remember(&arena, folder, &n, hex_out);
        }
    }
    ls_arena_release(&arena);
}

bool ls_content_recall_unpacked(const char *folder, const char *path, ls_file_map packed,
                                char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_arena arena = {0};
    note n = {0};
    const bool found =
        describe(&arena, folder, path, packed, "unpacked content", &n) && recall(&arena, &n, hex_out);
    ls_arena_release(&arena);
    return found;
}

void ls_content_remember_unpacked(const char *folder, const char *path, ls_file_map packed, const char *hex)
{
    ls_arena arena = {0};
    note n = {0};
    if (describe(&arena, folder, path, packed, "unpacked content", &n)) {
        remember(&arena, folder, &n, hex);
    }
    ls_arena_release(&arena);
}

/* The note of an object has one place for all of its versions. */
static note note_of_shard(ls_arena *arena, const char *folder, const ls_shard *shard)
{
    const char *name = ls_arena_printf(
        arena, "%016llx.sha256", (unsigned long long)ls_xxh3(shard->address, strlen(shard->address), 1));
    return (note){.path = ls_path_join(arena, folder, name),
                  .line = ls_arena_printf(arena, "lockstep shard 1 %s etag %s bytes %llu", shard->address,
                                          shard->etag, (unsigned long long)shard->bytes)};
}

bool ls_content_recall_shard(const char *folder, const ls_shard *shard, char hex_out[LS_SHA256_HEX_BYTES])
{
    char text[NOTE_BYTES_MAX];
    ls_arena arena = {0};
    const note n = note_of_shard(&arena, folder, shard);
    const bool found = folder[0] && recall(&arena, &n, hex_out);
    if (folder[0] && !found && read_note(n.path, text) > 0) {
        ls_log_warn("data: %s has changed since it was last read here", shard->address);
    }
    ls_arena_release(&arena);
    return found;
}

void ls_content_remember_shard(const char *folder, const ls_shard *shard, const char *hex)
{
    ls_arena arena = {0};
    const note n = note_of_shard(&arena, folder, shard);
    if (folder[0]) {
        remember(&arena, folder, &n, hex);
    }
    ls_arena_release(&arena);
}
