// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/snappy.h"

#include "data/parquet/thrift.h"

#include <string.h>

typedef struct unpacker {
    const unsigned char *at, *end;
    unsigned char *to;
    size_t done, bytes;
} unpacker;

/* A number of `bytes` bytes, the lowest first; false at the end. */
static bool read_number(unpacker *u, unsigned bytes, size_t *value_out)
{
    if ((size_t)(u->end - u->at) < bytes) {
        return false;
    }
    *value_out = 0;
    memcpy(value_out, u->at, bytes);
    u->at += bytes;
    return true;
}

static bool put_literal(unpacker *u, unsigned tag)
{
    size_t length = tag >> 2;
    if (length >= 60 && !read_number(u, (unsigned)length - 59, &length)) {
        return false;
    }
    length++;
    if (length > (size_t)(u->end - u->at) || length > u->bytes - u->done) {
        return false;
    }
    memcpy(u->to + u->done, u->at, length);
    u->at += length;
    u->done += length;
    return true;
}

/* Repeats what was put `offset` bytes before; the two may overlap. */
static bool put_copy(unpacker *u, unsigned tag)
{
    const bool is_short = (tag & 3) == 1;
    const size_t length = is_short ? 4 + (tag >> 2 & 7) : 1 + (tag >> 2);
    size_t offset = 0;
    if (!read_number(u, is_short ? 1 : (tag & 3) == 2 ? 2 : 4, &offset)) {
        return false;
    }
    offset |= is_short ? (size_t)(tag >> 5) << 8 : 0;
    if (offset == 0 || offset > u->done || length > u->bytes - u->done) {
        return false;
    }
    unsigned char *to = u->to + u->done;
    const unsigned char *from = to - offset;
    if (offset >= length) {
        memcpy(to, from, length);
    } else {
        for (size_t i = 0; i < length; i++) {
            to[i] = from[i];
        }
    }
    u->done += length;
    return true;
}

bool ls_snappy_unpack(const unsigned char *packed, size_t packed_bytes, unsigned char *to, size_t bytes)
{
    ls_thrift head = {.at = packed, .end = packed + packed_bytes};
    if (ls_thrift_varint(&head) != bytes || head.bad) {
        return false;
    }
    unpacker u = {.at = head.at, .end = head.end, .to = to, .bytes = bytes};
    while (u.at < u.end) {
        const unsigned tag = *u.at++;
        if (!((tag & 3) == 0 ? put_literal(&u, tag) : put_copy(&u, tag))) {
            return false;
        }
    }
    return u.done == bytes;
}
