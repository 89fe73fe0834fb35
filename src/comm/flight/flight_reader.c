// SPDX-License-Identifier: Apache-2.0
#include "comm/flight/flight_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* CHUNK: records copied at once. */
enum { CHUNK = 256, NOW_TRIES = 50 };
/* No counter gets this far; larger numbers could overflow in sums. */
static const uint64_t number_max = 1ull << 62;

struct ls_flight_reader {
    int fd;
    char *path;
    ls_flight_record first[CHUNK], second[CHUNK];
};

static ls_status read_at(ls_flight_reader *reader, size_t offset, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(reader->fd, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return ls_fail_errno(errno, "can't read the flight recorder's file %s", reader->path);
        }
        if (n == 0) {
            return ls_fail(LS_ERR_DATA,
                           "the flight recorder's file %s ends after %zu bytes; it must have %zu",
                           reader->path, offset + done, sizeof(ls_flight_file));
        }
        done += (size_t)n;
    }
    return LS_OK;
}

#define READ_FIELD(reader, field, out)                                                                       \
    read_at((reader), offsetof(ls_flight_file, field), (out), sizeof *(out))

/* Replaces what terminals and JSON documents cannot show. keep_lines: line ends and tabs stay. */
static void make_printable(char *text, size_t bytes, bool keep_lines)
{
    text[bytes - 1] = 0;
    for (char *at = text; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        if ((c < 0x20 && !(keep_lines && (c == '\n' || c == '\t'))) || c >= 0x7f) {
            *at = '?';
        }
    }
}

/* ---- open ---- */

static ls_status check_header(const ls_flight_reader *reader, const ls_flight_header *header)
{
    const char *path = reader->path;
    if (memcmp(header->magic, LS_FLIGHT_MAGIC, sizeof header->magic) != 0) {
        return ls_fail(LS_ERR_DATA, "%s is not a flight recorder's file: it does not begin with %s", path,
                       LS_FLIGHT_MAGIC);
    }
    if (header->version != LS_FLIGHT_VERSION) {
        return ls_fail(LS_ERR_DATA,
                       "the flight recorder's file %s has version %u, but this lockstep reads version %d: "
                       "use the lockstep that wrote it",
                       path, header->version, LS_FLIGHT_VERSION);
    }
    if (header->file_bytes != sizeof(ls_flight_file)) {
        return ls_fail(LS_ERR_DATA,
                       "the flight recorder's file %s gives its size as %u bytes; in version %d it is %zu",
                       path, header->file_bytes, LS_FLIGHT_VERSION, sizeof(ls_flight_file));
    }
    if (header->size < 1 || header->size > LS_COMM_SIZE_MAX || header->rank >= header->size) {
        return ls_fail(LS_ERR_DATA,
                       "the flight recorder's file %s is damaged: it names rank %u of %u, but a run has 1 to "
                       "%d ranks, counted from 0",
                       path, header->rank, header->size, LS_COMM_SIZE_MAX);
    }
    return LS_OK;
}

static ls_status check_file(ls_flight_reader *reader)
{
    struct stat stat;
    if (fstat(reader->fd, &stat) != 0) {
        return ls_fail_errno(errno, "can't get the size of the flight recorder's file %s", reader->path);
    }
    if (!S_ISREG(stat.st_mode)) {
        return ls_fail(LS_ERR_DATA, "%s is not a flight recorder's file: it is not a regular file",
                       reader->path);
    }
    ls_flight_header header;
    LS_TRY(ls_flight_reader_header(reader, &header));
    if (stat.st_size < (off_t)sizeof(ls_flight_file)) {
        return ls_fail(LS_ERR_DATA,
                       "the flight recorder's file %s has %lld bytes instead of %zu: it was cut short",
                       reader->path, (long long)stat.st_size, sizeof(ls_flight_file));
    }
    return LS_OK;
}

ls_status ls_flight_reader_open(const char *path, ls_flight_reader **reader_out)
{
    ls_flight_reader *reader = calloc(1, sizeof *reader);
    char *copy = strdup(path);
    if (!reader || !copy) {
        free(reader);
        free(copy);
        return ls_fail(LS_ERR_MEMORY, "not enough memory to read the flight recorder's file %s", path);
    }
    reader->path = copy;
    reader->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ls_status status = reader->fd < 0
                                 ? ls_fail_errno(errno, "can't open the flight recorder's file %s", path)
                                 : check_file(reader);
    if (status != LS_OK) {
        ls_flight_reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return LS_OK;
}

void ls_flight_reader_close(ls_flight_reader *reader)
{
    if (!reader) {
        return;
    }
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    free(reader->path);
    free(reader);
}

/* ---- parts that are written once or rarely ---- */

ls_status ls_flight_reader_header(ls_flight_reader *reader, ls_flight_header *header_out)
{
    ls_flight_header header;
    LS_TRY(READ_FIELD(reader, header, &header));
    LS_TRY(check_header(reader, &header));
    make_printable(header.host, sizeof header.host, false);
    make_printable(header.boot_id, sizeof header.boot_id, false);
    *header_out = header;
    return LS_OK;
}

ls_status ls_flight_reader_comms(ls_flight_reader *reader, ls_flight_comm comms_out[LS_FLIGHT_COMMS])
{
    LS_TRY(read_at(reader, offsetof(ls_flight_file, comms), comms_out,
                   sizeof(ls_flight_comm) * LS_FLIGHT_COMMS));
    for (uint32_t slot = 0; slot < LS_FLIGHT_COMMS; slot++) {
        make_printable(comms_out[slot].name, sizeof comms_out[slot].name, false);
    }
    return LS_OK;
}

ls_status ls_flight_reader_site(ls_flight_reader *reader, uint32_t index, char name_out[LS_FLIGHT_SITE_BYTES])
{
    uint32_t count = 0;
    char name[LS_FLIGHT_SITE_BYTES] = "?";
    LS_TRY(READ_FIELD(reader, site_count, &count));
    if (index < count && index < LS_FLIGHT_SITES) {
        LS_TRY(read_at(reader, offsetof(ls_flight_file, sites) + (size_t)index * sizeof name, name,
                       sizeof name));
        make_printable(name, sizeof name, false);
    }
    memcpy(name_out, name, sizeof name);
    return LS_OK;
}

ls_status ls_flight_reader_last_words(ls_flight_reader *reader, char text_out[LS_FLIGHT_TEXT_BYTES])
{
    uint32_t bytes = 0;
    LS_TRY(READ_FIELD(reader, text_bytes, &bytes));
    if (bytes >= LS_FLIGHT_TEXT_BYTES) {
        return ls_fail(LS_ERR_DATA,
                       "the flight recorder's file %s is damaged: its last message has %u bytes; at most %d "
                       "are possible",
                       reader->path, bytes, LS_FLIGHT_TEXT_BYTES - 1);
    }
    LS_TRY(read_at(reader, offsetof(ls_flight_file, text), text_out, bytes));
    text_out[bytes] = 0;
    make_printable(text_out, bytes + 1, true);
    return LS_OK;
}

/* ---- now ---- */

ls_status ls_flight_reader_now(ls_flight_reader *reader, ls_flight_now *now_out, bool *torn_out)
{
    bool torn = true;
    for (int i = 0; i < NOW_TRIES && torn; i++) {
        uint64_t before = 0, after = 0;
        LS_TRY(READ_FIELD(reader, now.version, &before));
        LS_TRY(READ_FIELD(reader, now, now_out));
        LS_TRY(READ_FIELD(reader, now.version, &after));
        torn = before != after || (before & 1) != 0;
    }
    if (torn_out) {
        *torn_out = torn;
    }
    return LS_OK;
}

/* ---- rings ---- */

ls_status ls_flight_reader_head(ls_flight_reader *reader, uint64_t *head_out)
{
    uint64_t head = 0;
    LS_TRY(READ_FIELD(reader, record_head, &head));
    if (head > number_max) {
        return ls_fail(
            LS_ERR_DATA,
            "the flight recorder's file %s is damaged: it counts %llu operations, which is not possible",
            reader->path, (unsigned long long)head);
    }
    *head_out = head;
    return LS_OK;
}

/* Copies `count` consecutive slots. */
static ls_status read_slots(ls_flight_reader *reader, uint64_t from, uint32_t count, ls_flight_record *out)
{
    return read_at(reader, offsetof(ls_flight_file, records) + from % LS_FLIGHT_RECORDS * sizeof *out, out,
                   count * sizeof *out);
}

/*
 * The writer sets begin_ns after all fields that describe the operation. So if a first copy has
 * begin_ns, a second copy made later has all of them, unless the ring has come round in between; a
 * changed head or begin_ns shows that.
 */
static bool is_whole(const ls_flight_record *first, const ls_flight_record *second, uint64_t number,
                     uint64_t head_after)
{
    return first->begin_ns != 0 && first->begin_ns == second->begin_ns &&
           second->turn == (uint8_t)(number / LS_FLIGHT_RECORDS) && number + LS_FLIGHT_RECORDS >= head_after;
}

/* Reads the complete records of [from, from + count), which is at most CHUNK and does not wrap
 * around the end of the ring. */
static ls_status read_chunk(ls_flight_reader *reader, uint64_t from, uint32_t count,
                            ls_flight_entry *entries_out, uint32_t *count_out)
{
    uint64_t head_after = 0;
    LS_TRY(read_slots(reader, from, count, reader->first));
    LS_TRY(read_slots(reader, from, count, reader->second));
    LS_TRY(ls_flight_reader_head(reader, &head_after));
    for (uint32_t i = 0; i < count; i++) {
        if (is_whole(&reader->first[i], &reader->second[i], from + i, head_after)) {
            entries_out[(*count_out)++] = (ls_flight_entry){.number = from + i, .record = reader->second[i]};
        }
    }
    return LS_OK;
}

ls_status ls_flight_reader_records(ls_flight_reader *reader, uint64_t from, uint32_t room,
                                   ls_flight_entry *entries_out, uint32_t *count_out, uint64_t *next_out)
{
    uint64_t head = 0;
    uint32_t count = 0;
    LS_TRY(ls_flight_reader_head(reader, &head));
    const uint64_t oldest = head > LS_FLIGHT_RECORDS ? head - LS_FLIGHT_RECORDS : 0;
    uint64_t at = from < oldest ? oldest : from;
    while (at < head && count < room) {
        uint64_t chunk = LS_FLIGHT_RECORDS - at % LS_FLIGHT_RECORDS;
        chunk = chunk < CHUNK ? chunk : CHUNK;
        chunk = chunk < head - at ? chunk : head - at;
        chunk = chunk < room - count ? chunk : room - count;
        LS_TRY(read_chunk(reader, at, (uint32_t)chunk, entries_out, &count));
        at += chunk;
    }
    *count_out = count;
    *next_out = at < head ? at : head;
    return LS_OK;
}

ls_status ls_flight_reader_spans(ls_flight_reader *reader, ls_flight_span *spans_out, uint32_t *count_out)
{
    uint64_t before = 0, after = 0;
    LS_TRY(READ_FIELD(reader, span_head, &before));
    LS_TRY(read_at(reader, offsetof(ls_flight_file, spans), spans_out, sizeof *spans_out * LS_FLIGHT_SPANS));
    LS_TRY(READ_FIELD(reader, span_head, &after));
    if (before > number_max || after > number_max || after < before) {
        return ls_fail(LS_ERR_DATA,
                       "the flight recorder's file %s is damaged: it counts %llu measured spans of time, "
                       "which is not possible",
                       reader->path, (unsigned long long)before);
    }
    /* Span n may be overwritten as soon as the head is n + LS_FLIGHT_SPANS. */
    uint64_t from = after >= LS_FLIGHT_SPANS ? after - LS_FLIGHT_SPANS + 1 : 0;
    from = from < before ? from : before;
    const uint32_t count = (uint32_t)(before - from);
    /* Rotates the ring in place, by three reversals, so that the oldest span comes first. */
    const uint32_t room = LS_FLIGHT_SPANS, shift = (uint32_t)(from % LS_FLIGHT_SPANS);
    for (uint32_t part = 0; part < 3 && shift > 0; part++) {
        uint32_t low = part == 1 ? shift : 0, high = part == 0 ? shift : room;
        while (low + 1 < high) {
            high--;
            const ls_flight_span kept = spans_out[low];
            spans_out[low++] = spans_out[high];
            spans_out[high] = kept;
        }
    }
    *count_out = count;
    return LS_OK;
}
