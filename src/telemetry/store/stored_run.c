// SPDX-License-Identifier: Apache-2.0
#include "telemetry/store/stored_run.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "telemetry/store/block.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 1, BLOCK = 2, COMMIT = 3 };
enum { HEAD_BYTES = 16, KEEP_BYTES = 4 << 20, REWRITES_MAX = 3, FILES_MAX = 10000, FILE_NAME_MAX = 4096 };

static const char magic[8] = "LSMETRS1";

typedef struct record {
    uint32_t kind, series, bytes, crc;
} record;

/* ---- files of the run ---- */

ls_feed *ls_stored_run_feed(ls_stored_run *run, const char *name)
{
    for (size_t i = 0; i < run->file_count; i++) {
        if (strcmp(run->files[i].name, name) == 0) {
            return &run->files[i].feed;
        }
    }
    run->files = realloc(run->files, (run->file_count + 1) * sizeof *run->files);
    char *copy = strdup(name);
    LS_ASSERT(run->files && copy && "not enough memory for the files of a run");
    ls_stored_file *file = &run->files[run->file_count++];
    *file = (ls_stored_file){.name = copy, .feed.kind = ls_feed_kind_of(name)};
    return &file->feed;
}

static void forget_all(ls_stored_run *run)
{
    ls_run_metrics_release(&run->data);
    for (size_t i = 0; i < run->file_count; i++) {
        free(run->files[i].name);
    }
    free(run->files);
    free(run->blocks_kept);
    run->files = NULL;
    run->blocks_kept = NULL;
    run->file_count = run->names_kept = 0;
    run->read_kept = run->cut_kept = 0;
}

static uint64_t read_bytes(const ls_stored_run *run)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < run->file_count; i++) {
        bytes += run->files[i].feed.offset;
    }
    return bytes;
}

/* ---- reading a store file ---- */

typedef struct reader {
    const unsigned char *at;
    size_t left;
} reader;

static bool take(reader *r, void *out, size_t bytes)
{
    if (r->left < bytes) {
        return false;
    }
    memcpy(out, r->at, bytes);
    r->at += bytes;
    r->left -= bytes;
    return true;
}

static bool take_counters(reader *r, ls_run_metrics *data)
{
    return take(r, &data->refused, 8) && take(r, &data->cut, 8) && take(r, &data->damaged, 8) &&
           take(r, &data->last_step, 8) && take(r, &data->last_time_s, 8) && isfinite(data->last_time_s);
}

static bool take_file(ls_stored_run *run, reader *r)
{
    char name[FILE_NAME_MAX + 1];
    uint32_t name_bytes = 0, kind = 0, tail_bytes = 0, is_broken = 0;
    uint64_t offset = 0;
    if (!take(r, &name_bytes, 4) || name_bytes > FILE_NAME_MAX || !take(r, name, name_bytes) ||
        !take(r, &offset, 8) || !take(r, &kind, 4) || !take(r, &is_broken, 4) || !take(r, &tail_bytes, 4)) {
        return false;
    }
    name[name_bytes] = '\0';
    ls_feed *feed = ls_stored_run_feed(run, name);
    feed->offset = offset;
    feed->is_broken = is_broken != 0;
    feed->tail_bytes = tail_bytes;
    return kind == (uint32_t)feed->kind && tail_bytes <= sizeof feed->tail && tail_bytes <= offset &&
           take(r, feed->tail, tail_bytes);
}

static bool take_commit(ls_stored_run *run, reader r)
{
    uint32_t count = 0;
    if (!take_counters(&r, &run->data) || !take(&r, &count, 4) || count > FILES_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!take_file(run, &r)) {
            return false;
        }
    }
    return r.left == 0;
}

static bool take_record(ls_stored_run *run, const record *head, const unsigned char *payload)
{
    ls_point points[LS_SERIES_BLOCK_POINTS];
    switch (head->kind) {
    case NAME: {
        const char *name = (const char *)payload;
        return head->bytes > 0 && head->bytes <= LS_LINE_NAME_BYTES_MAX && !memchr(name, 0, head->bytes) &&
               head->series == run->data.count && ls_run_metrics_name(&run->data, name, head->bytes) &&
               run->data.count == head->series + (size_t)1;
    }
    case BLOCK: {
        const size_t count = ls_points_decode(payload, head->bytes, points);
        ls_series *series = head->series < run->data.count ? &run->data.metrics[head->series].series : NULL;
        if (!series || count == 0 || (series->points > 0 && points[0].step < series->last.step)) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            ls_series_add(series, &points[i]);
        }
        ls_series_close(series);
        run->data.points += count;
        return true;
    }
    case COMMIT:
        return take_commit(run, (reader){payload, head->bytes});
    default:
        return false;
    }
}

/* The whole record at the beginning of what is left, with its right sum. */
static bool next_record(reader *r, record *head, const unsigned char **payload_out)
{
    if (!take(r, head, sizeof *head) || head->bytes > r->left) {
        return false;
    }
    const uint32_t crc = ls_crc32c(ls_crc32c(0, head, 12), r->at, head->bytes);
    *payload_out = r->at;
    r->at += head->bytes;
    r->left -= head->bytes;
    return crc == head->crc;
}

static bool take_header(reader *r, const char *identity)
{
    char seen[8];
    uint32_t crc = 0, bytes = 0;
    const size_t wanted = strlen(identity);
    if (!take(r, seen, 8) || memcmp(seen, magic, 8) != 0 || !take(r, &crc, 4) || !take(r, &bytes, 4) ||
        bytes != wanted || r->left < bytes || memcmp(r->at, identity, bytes) != 0 ||
        crc != ls_crc32c(0, r->at, bytes)) {
        return false;
    }
    r->at += bytes;
    r->left -= bytes;
    return true;
}

/* Where the last COMMIT ends; 0: there is none. */
static size_t find_end(reader r)
{
    const unsigned char *begin = r.at, *payload = NULL;
    size_t end = 0;
    record head;
    while (next_record(&r, &head, &payload)) {
        end = head.kind == COMMIT ? (size_t)(r.at - begin) : end;
    }
    return end;
}

bool ls_stored_run_parse(ls_stored_run *run, const unsigned char *data, size_t bytes, const char *identity,
                         uint64_t *end_out)
{
    reader r = {data, bytes};
    if (!take_header(&r, identity)) {
        return false;
    }
    r.left = find_end(r);
    record head;
    const unsigned char *payload = NULL;
    while (next_record(&r, &head, &payload)) {
        if (!take_record(run, &head, payload)) {
            return false;
        }
    }
    *end_out = (uint64_t)(r.at - data);
    run->data.version++;
    return run->data.count > 0;
}

/* ---- writing it ---- */

static void put_record(ls_text *text, uint32_t kind, uint32_t series, const void *payload, size_t bytes)
{
    record head = {.kind = kind, .series = series, .bytes = (uint32_t)bytes};
    head.crc = ls_crc32c(ls_crc32c(0, &head, 12), payload, bytes);
    ls_text_append_bytes(text, &head, sizeof head);
    ls_text_append_bytes(text, payload, bytes);
}

static void put_commit(const ls_stored_run *run, ls_text *text)
{
    ls_text payload = {0};
    const ls_run_metrics *data = &run->data;
    const uint64_t counters[] = {data->refused, data->cut, data->damaged, data->last_step};
    const uint32_t count = (uint32_t)run->file_count;
    ls_text_append_bytes(&payload, counters, sizeof counters);
    ls_text_append_bytes(&payload, &data->last_time_s, 8);
    ls_text_append_bytes(&payload, &count, 4);
    for (size_t i = 0; i < run->file_count; i++) {
        const ls_stored_file *file = &run->files[i];
        const uint32_t name_bytes = (uint32_t)strlen(file->name);
        const uint32_t rest[] = {(uint32_t)file->feed.kind, file->feed.is_broken,
                                 (uint32_t)file->feed.tail_bytes};
        ls_text_append_bytes(&payload, &name_bytes, 4);
        ls_text_append_bytes(&payload, file->name, name_bytes);
        ls_text_append_bytes(&payload, &file->feed.offset, 8);
        ls_text_append_bytes(&payload, rest, sizeof rest);
        ls_text_append_bytes(&payload, file->feed.tail, file->feed.tail_bytes);
    }
    put_record(text, COMMIT, 0, payload.data, payload.bytes);
    ls_text_release(&payload);
}

/* What the store file does not have yet. Open blocks are closed: they are short then. */
static void put_new(ls_stored_run *run, ls_text *text)
{
    for (size_t i = 0; i < run->data.count; i++) {
        ls_metric *metric = &run->data.metrics[i];
        if (i >= run->names_kept) {
            put_record(text, NAME, (uint32_t)i, metric->name, strlen(metric->name));
        }
        ls_series_close(&metric->series);
        for (size_t at = i < run->names_kept ? run->blocks_kept[i] : 0; at < metric->series.counts[0]; at++) {
            const ls_series_block *block = &metric->series.blocks[at];
            put_record(text, BLOCK, (uint32_t)i, block->data, block->bytes);
        }
    }
    put_commit(run, text);
}

static void note_kept(ls_stored_run *run)
{
    run->blocks_kept = realloc(run->blocks_kept, (run->data.count + 1) * sizeof *run->blocks_kept);
    LS_ASSERT(run->blocks_kept && "not enough memory for the metrics of a run");
    for (size_t i = 0; i < run->data.count; i++) {
        run->blocks_kept[i] = run->data.metrics[i].series.counts[0];
    }
    run->names_kept = run->data.count;
    run->read_kept = read_bytes(run);
    run->cut_kept = run->data.cut;
}

/* From now on the run is in memory alone. */
static void give_up(ls_stored_run *run, const char *what)
{
    if (run->fd_plus_1 > 0) {
        ls_log_debug("%s is not kept: %s", run->path, what);
        unlink(run->path);
        close(run->fd_plus_1 - 1);
        run->fd_plus_1 = 0;
    }
}

/* The file is empty but for its header. */
static void start_over(ls_stored_run *run)
{
    const int fd = run->fd_plus_1 - 1;
    const uint32_t bytes = (uint32_t)strlen(run->identity), crc = ls_crc32c(0, run->identity, bytes);
    ls_text header = {0};
    ls_text_append_bytes(&header, magic, sizeof magic);
    ls_text_append_bytes(&header, &crc, 4);
    ls_text_append_bytes(&header, &bytes, 4);
    ls_text_append_bytes(&header, run->identity, bytes);
    if (ftruncate(fd, 0) != 0 || ls_file_pwrite_all(fd, run->path, header.data, header.bytes, 0) != LS_OK) {
        give_up(run, ls_error_text());
        ls_error_clear();
    }
    run->end = header.bytes;
    run->names_kept = 0;
    ls_text_release(&header);
}

void ls_stored_run_keep(ls_stored_run *run)
{
    if (run->fd_plus_1 == 0 || read_bytes(run) < run->read_kept + KEEP_BYTES) {
        return;
    }
    if (run->data.cut != run->cut_kept) { /* some of the blocks that were kept have changed */
        if (run->rewrites++ == REWRITES_MAX) {
            give_up(run, "its steps go back again and again");
            return;
        }
        start_over(run);
    }
    ls_text text = {0};
    put_new(run, &text);
    if (run->fd_plus_1 > 0 &&
        ls_file_pwrite_all(run->fd_plus_1 - 1, run->path, text.data, text.bytes, run->end) == LS_OK) {
        run->end += text.bytes;
        note_kept(run);
    } else {
        give_up(run, ls_error_text());
        ls_error_clear();
    }
    ls_text_release(&text);
}

/* ---- life ---- */

static bool load(ls_stored_run *run)
{
    ls_file_map map = {0};
    if (ls_file_map_open(run->path, &map) != LS_OK) {
        ls_error_clear();
        return false;
    }
    const bool good = ls_stored_run_parse(run, map.data, map.bytes, run->identity, &run->end);
    ls_file_map_close(&map);
    return good;
}

void ls_stored_run_open(ls_stored_run *run, const char *path, const char *identity)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat info;
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ls_log_debug("%s is not used: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    run->fd_plus_1 = fd + 1;
    run->path = strdup(path);
    run->identity = strdup(identity);
    LS_ASSERT(run->path && run->identity && "not enough memory for a path");
    if (info.st_size > 0 && load(run)) {
        note_kept(run);
        return;
    }
    forget_all(run);
    start_over(run);
}

void ls_stored_run_clear(ls_stored_run *run)
{
    forget_all(run);
    if (run->fd_plus_1 > 0) {
        start_over(run);
    }
}

void ls_stored_run_release(ls_stored_run *run)
{
    forget_all(run);
    if (run->fd_plus_1 > 0) {
        close(run->fd_plus_1 - 1);
    }
    free(run->path);
    free(run->identity);
    *run = (ls_stored_run){0};
}

/* ---- limits ---- */

typedef struct kept_file {
    char *path;
    double modified_s, bytes;
} kept_file;

static int by_age(const void *a, const void *b)
{
    const double x = ((const kept_file *)a)->modified_s, y = ((const kept_file *)b)->modified_s;
    return (x < y) - (x > y);
}

void ls_stored_runs_trim(const char *folder)
{
    ls_arena arena = {0};
    char **names = NULL;
    size_t count = 0;
    if (ls_dir_list(&arena, folder, &names, &count) != LS_OK) {
        ls_error_clear();
        return;
    }
    kept_file *files = ls_arena_new(&arena, kept_file, count);
    for (size_t i = 0; i < count; i++) {
        struct stat info = {0};
        files[i].path = ls_path_join(&arena, folder, names[i]);
        (void)stat(files[i].path, &info);
        files[i].modified_s = (double)info.st_mtime;
        files[i].bytes = (double)info.st_size;
    }
    qsort(files, count, sizeof *files, by_age);
    const double oldest_s = (double)time(NULL) - 86400.0 * LS_STORED_AGE_DAYS;
    double bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += files[i].bytes;
        if (ls_path_has_suffix(files[i].path, ".metrics") &&
            (files[i].modified_s < oldest_s || bytes > 1048576.0 * LS_STORED_FOLDER_MIB)) {
            unlink(files[i].path);
        }
    }
    ls_arena_release(&arena);
}
