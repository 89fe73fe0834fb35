// SPDX-License-Identifier: Apache-2.0
#include "telemetry/export/tensorboard.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_PREFIX "events.out.tfevents."

struct ls_tensorboard {
    ls_arena arena;
    const char *path;
    int fd;
    /* reused, so that a step allocates nothing once they have grown */
    ls_text records, event, summary;
};

/* ---- protocol buffers: a key is field * 8 + kind ---- */

enum { KIND_VARINT = 0, KIND_F64 = 1, KIND_BYTES = 2, KIND_F32 = 5 };

static void put_varint(ls_text *out, uint64_t value)
{
    while (value >= 0x80) {
        const unsigned char byte = (unsigned char)(value | 0x80);
        ls_text_append_bytes(out, &byte, 1);
        value >>= 7;
    }
    const unsigned char last = (unsigned char)value;
    ls_text_append_bytes(out, &last, 1);
}

static void put_key(ls_text *out, unsigned field, unsigned kind)
{
    put_varint(out, field << 3 | kind);
}

static void put_little_endian(ls_text *out, uint64_t value, int bytes)
{
    unsigned char data[8];
    for (int i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(value >> (8 * i));
    }
    ls_text_append_bytes(out, data, (size_t)bytes);
}

static void put_f64(ls_text *out, unsigned field, double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, field, KIND_F64);
    put_little_endian(out, bits, 8);
}

static void put_f32(ls_text *out, unsigned field, float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, field, KIND_F32);
    put_little_endian(out, bits, 4);
}

static void put_bytes(ls_text *out, unsigned field, const void *data, size_t bytes)
{
    put_key(out, field, KIND_BYTES);
    put_varint(out, bytes);
    ls_text_append_bytes(out, data, bytes);
}

static size_t varint_bytes(uint64_t value)
{
    size_t bytes = 1;
    while (value >= 0x80) {
        value >>= 7;
        bytes++;
    }
    return bytes;
}

/* ---- records ---- */

static uint32_t masked_crc(const void *data, size_t bytes)
{
    const uint32_t crc = ls_crc32c(0, data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* Appends writer->event to writer->records, framed. */
static void put_record(ls_tensorboard *writer)
{
    ls_text *records = &writer->records;
    const ls_text *event = &writer->event;
    put_little_endian(records, event->bytes, 8);
    put_little_endian(records, masked_crc(records->data + records->bytes - 8, 8), 4);
    ls_text_append_bytes(records, event->data, event->bytes);
    put_little_endian(records, masked_crc(event->data, event->bytes), 4);
}

static void begin_event(ls_tensorboard *writer, double wall_s, uint64_t step)
{
    ls_text_clear(&writer->event);
    put_f64(&writer->event, 1, wall_s);
    put_key(&writer->event, 2, KIND_VARINT);
    put_varint(&writer->event, step);
}

/* Summary.Value { 1: tag, 2: simple_value }, as field 1 of the summary. */
static void put_value(ls_text *summary, const char *tag, float value)
{
    const size_t tag_bytes = strlen(tag);
    put_key(summary, 1, KIND_BYTES);
    put_varint(summary, 1 + varint_bytes(tag_bytes) + tag_bytes + 1 + 4);
    put_bytes(summary, 1, tag, tag_bytes);
    put_f32(summary, 2, value);
}

static ls_status write_records(ls_tensorboard *writer)
{
    const ls_status status =
        ls_file_write_all(writer->fd, writer->path, writer->records.data, writer->records.bytes);
    ls_text_clear(&writer->records);
    return status;
}

ls_status ls_tensorboard_write(ls_tensorboard *writer, double wall_s, uint64_t step,
                               const ls_tensorboard_scalar *scalars, size_t count)
{
    ls_text_clear(&writer->summary);
    for (size_t i = 0; i < count; i++) {
        if (isfinite((float)scalars[i].value)) {
            put_value(&writer->summary, scalars[i].tag, (float)scalars[i].value);
        }
    }
    if (writer->summary.bytes == 0) {
        return LS_OK;
    }
    begin_event(writer, wall_s, step);
    put_bytes(&writer->event, 5, writer->summary.data, writer->summary.bytes);
    put_record(writer);
    return write_records(writer);
}

/* ---- files ---- */

/* The time in the name of a new file: now, or one more than in the newest existing name. */
static ls_status choose_time(ls_arena *arena, const char *dir, uint64_t *time_out)
{
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(arena, dir, &names, &count));
    uint64_t time_s = (uint64_t)ls_clock_wall_s();
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], FILE_PREFIX, strlen(FILE_PREFIX)) == 0) {
            const uint64_t other_s = strtoull(names[i] + strlen(FILE_PREFIX), NULL, 10);
            /* Names are sorted as text, which works up to ten digits; a longer number is not a
             * time. */
            if (other_s >= time_s && other_s < 9999999999u) {
                time_s = other_s + 1;
            }
        }
    }
    *time_out = time_s;
    return LS_OK;
}

static ls_status open_file(ls_tensorboard *writer, const char *dir)
{
    char host[256] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    uint64_t time_s = 0;
    LS_TRY(ls_dir_create(dir));
    LS_TRY(choose_time(&writer->arena, dir, &time_s));
    const char *name =
        ls_arena_printf(&writer->arena, FILE_PREFIX "%010" PRIu64 ".%s.%d", time_s, host, (int)getpid());
    writer->path = ls_path_join(&writer->arena, dir, name);
    writer->fd = open(writer->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    return writer->fd >= 0 ? LS_OK : ls_fail_errno(errno, "can't create %s", writer->path);
}

static ls_status write_head(ls_tensorboard *writer, uint64_t first_step)
{
    static const char version[] = "brain.Event:2";
    static const unsigned char session_start[] = {1 << 3 | KIND_VARINT, 1}; /* status: START */
    const double now_s = ls_clock_wall_s();
    begin_event(writer, now_s, 0);
    put_bytes(&writer->event, 3, version, sizeof version - 1);
    put_record(writer);
    begin_event(writer, now_s, first_step);
    put_bytes(&writer->event, 7, session_start, sizeof session_start);
    put_record(writer);
    return write_records(writer);
}

ls_status ls_tensorboard_open(const char *dir, uint64_t first_step, ls_tensorboard **writer_out)
{
    ls_tensorboard *writer = calloc(1, sizeof *writer);
    if (!writer) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for TensorBoard's event file");
    }
    writer->fd = -1;
    ls_status status = open_file(writer, dir);
    if (status == LS_OK) {
        status = write_head(writer, first_step);
    }
    if (status != LS_OK) {
        ls_tensorboard_close(writer);
        return status;
    }
    *writer_out = writer;
    return LS_OK;
}

void ls_tensorboard_close(ls_tensorboard *writer)
{
    if (!writer) {
        return;
    }
    if (writer->fd >= 0) {
        close(writer->fd);
    }
    ls_text_release(&writer->records);
    ls_text_release(&writer->event);
    ls_text_release(&writer->summary);
    ls_arena_release(&writer->arena);
    free(writer);
}
