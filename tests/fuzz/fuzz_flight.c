// SPDX-License-Identifier: Apache-2.0
/*
 * A flight file that somebody damaged: readers get errors or nonsense, never a fault, and what they
 * hand out is in range.
 *
 * A whole file has half a megabyte, so the input is a list of changes to an empty good one: the
 * bytes kept of it (4), then offset (3), length (1) and that many bytes, again and again. Offsets
 * wrap at the file's size.
 */
#include "comm/flight/flight_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Alignas(4096) unsigned char file[sizeof(ls_flight_file)];

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void make_good(void)
{
    ls_flight_file *good = (ls_flight_file *)file;
    memset(file, 0, sizeof file);
    memcpy(good->header.magic, LS_FLIGHT_MAGIC, sizeof good->header.magic);
    good->header.version = LS_FLIGHT_VERSION;
    good->header.file_bytes = sizeof *good;
    good->header.size = 4;
    good->record_head = 3;
    good->span_head = 3;
    good->site_count = 2;
    for (uint64_t i = 0; i < 3; i++) {
        good->records[i].begin_ns = i + 1;
    }
}

static size_t apply(const uint8_t *data, size_t size)
{
    uint32_t kept = 0;
    if (size < sizeof kept) {
        return sizeof file;
    }
    memcpy(&kept, data, sizeof kept);
    for (size_t at = sizeof kept; at + 4 <= size;) {
        const size_t offset =
            (data[at] | (size_t)data[at + 1] << 8 | (size_t)data[at + 2] << 16) % sizeof file;
        size_t bytes = data[at + 3];
        at += 4;
        bytes = bytes < size - at ? bytes : size - at;
        bytes = bytes < sizeof file - offset ? bytes : sizeof file - offset;
        memcpy(file + offset, data + at, bytes);
        at += bytes;
    }
    return kept < sizeof file ? kept : sizeof file;
}

static void check_text(const char *text, size_t room)
{
    check(strnlen(text, room) < room);
}

static void walk(ls_flight_reader *reader)
{
    static ls_flight_entry entries[LS_FLIGHT_RECORDS];
    static ls_flight_span spans[LS_FLIGHT_SPANS];
    static ls_flight_comm comms[LS_FLIGHT_COMMS];
    ls_flight_header header;
    ls_flight_now now;
    char site[LS_FLIGHT_SITE_BYTES], words[LS_FLIGHT_TEXT_BYTES];
    uint32_t count = 0;
    uint64_t next = 0;
    if (ls_flight_reader_header(reader, &header) == LS_OK) {
        check(header.rank < header.size);
        check_text(header.host, sizeof header.host);
    }
    if (ls_flight_reader_now(reader, &now, NULL) == LS_OK) {
        check_text(ls_activity_name((ls_activity)now.activity), 32);
    }
    if (ls_flight_reader_records(reader, 0, LS_FLIGHT_RECORDS, entries, &count, &next) == LS_OK) {
        check(count <= LS_FLIGHT_RECORDS);
        for (uint32_t i = 0; i < count; i++) {
            check(entries[i].number < next && entries[i].record.begin_ns != 0);
            check_text(ls_comm_kind_name((ls_comm_kind)entries[i].record.kind), 32);
            if (ls_flight_reader_site(reader, entries[i].record.site, site) == LS_OK) {
                check_text(site, sizeof site);
            }
        }
    }
    if (ls_flight_reader_spans(reader, spans, &count) == LS_OK) {
        check(count <= LS_FLIGHT_SPANS);
    }
    if (ls_flight_reader_comms(reader, comms) == LS_OK) {
        check_text(comms[LS_FLIGHT_COMMS - 1].name, LS_FLIGHT_COMM_NAME_BYTES);
    }
    if (ls_flight_reader_last_words(reader, words) == LS_OK) {
        check_text(words, sizeof words);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_good();
    const size_t kept = apply(data, size);
    const int fd = memfd_create("flight", MFD_CLOEXEC);
    check(fd >= 0 && write(fd, file, kept) == (ssize_t)kept);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ls_flight_reader *reader = NULL;
    if (ls_flight_reader_open(path, &reader) == LS_OK) {
        walk(reader);
        ls_flight_reader_close(reader);
    }
    close(fd);
    return 0;
}
