// SPDX-License-Identifier: Apache-2.0
#include "telemetry/store/block.h"

#include "base/assert.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are written as they lie in memory");

enum { HEAD_BYTES = 24 };
enum { STRIDE = 1, WIDE_STEPS = 2, TIMES = 4, NARROW_VALUES = 8, FLAGS = 15 };

typedef struct head {
    uint32_t count, flags;
    uint64_t first_step;
    double first_time_s;
} head;
static_assert(sizeof(head) == HEAD_BYTES, "the head of a block");

/* ---- writing ---- */

static bool is_narrow(double value)
{
    if (isfinite(value) && fabs(value) > FLT_MAX) {
        return false;
    }
    const double back = (double)(float)value;
    return memcmp(&back, &value, sizeof value) == 0;
}

static uint32_t flags_of(const ls_point *points, size_t count)
{
    const uint64_t first = points[0].step;
    const uint64_t stride = count > 1 ? points[1].step - first : 0;
    uint32_t flags = STRIDE | NARROW_VALUES;
    for (size_t i = 0; i < count; i++) {
        flags &= points[i].step == first + i * stride ? ~0u : ~(uint32_t)STRIDE;
        flags &= is_narrow(points[i].value) ? ~0u : ~(uint32_t)NARROW_VALUES;
        flags |= points[i].time_s > 0 ? TIMES : 0;
        flags |= points[i].step - first > UINT32_MAX ? WIDE_STEPS : 0;
    }
    return flags;
}

static unsigned char *put(unsigned char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

static unsigned char *put_steps(unsigned char *at, uint32_t flags, const ls_point *points, size_t count)
{
    if (flags & STRIDE) {
        const uint64_t stride = count > 1 ? points[1].step - points[0].step : 0;
        return put(at, &stride, sizeof stride);
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t wide = points[i].step - points[0].step;
        const uint32_t narrow = (uint32_t)wide;
        at = flags & WIDE_STEPS ? put(at, &points[i].step, 8) : put(at, &narrow, 4);
    }
    return at;
}

static unsigned char *put_times(unsigned char *at, const ls_point *points, size_t count)
{
    uint32_t newest = 0;
    for (size_t i = 0; i < count; i++) {
        const double ms = 1000.0 * (points[i].time_s - points[0].time_s);
        const uint32_t offset = ms > 0 && ms < (double)UINT32_MAX ? (uint32_t)ms : 0;
        newest = offset > newest ? offset : newest;
        at = put(at, &newest, sizeof newest);
    }
    return at;
}

size_t ls_points_encode(const ls_point *points, size_t count, unsigned char out[LS_BLOCK_BYTES_MAX])
{
    LS_ASSERT(count > 0 && count <= LS_SERIES_BLOCK_POINTS);
    const head h = {.count = (uint32_t)count,
                    .flags = flags_of(points, count),
                    .first_step = points[0].step,
                    .first_time_s = points[0].time_s};
    unsigned char *at = put(out, &h, sizeof h);
    at = put_steps(at, h.flags, points, count);
    at = h.flags & TIMES ? put_times(at, points, count) : at;
    for (size_t i = 0; i < count; i++) {
        const float narrow = (float)points[i].value;
        at = h.flags & NARROW_VALUES ? put(at, &narrow, 4) : put(at, &points[i].value, 8);
    }
    return (size_t)(at - out);
}

/* ---- reading ---- */

static size_t bytes_of(const head *h)
{
    const size_t steps = h->flags & STRIDE       ? 8
                         : h->flags & WIDE_STEPS ? 8 * (size_t)h->count
                                                 : 4 * (size_t)h->count;
    return HEAD_BYTES + steps + (h->flags & TIMES ? 4 * (size_t)h->count : 0) +
           (h->flags & NARROW_VALUES ? 4 : 8) * (size_t)h->count;
}

static const unsigned char *take_steps(const unsigned char *at, const head *h, ls_point *points)
{
    if (h->flags & STRIDE) {
        uint64_t stride;
        memcpy(&stride, at, sizeof stride);
        for (size_t i = 0; i < h->count; i++) {
            points[i].step = h->first_step + i * stride;
        }
        return at + 8;
    }
    for (size_t i = 0; i < h->count; i++) {
        uint32_t narrow;
        memcpy(&narrow, at + 4 * i, sizeof narrow);
        points[i].step = h->first_step + narrow;
        if (h->flags & WIDE_STEPS) {
            memcpy(&points[i].step, at + 8 * i, 8);
        }
    }
    return at + (h->flags & WIDE_STEPS ? 8 : 4) * (size_t)h->count;
}

static const unsigned char *take_times(const unsigned char *at, const head *h, ls_point *points)
{
    for (size_t i = 0; i < h->count; i++) {
        uint32_t ms = 0;
        if (h->flags & TIMES) {
            memcpy(&ms, at + 4 * i, sizeof ms);
        }
        points[i].time_s = h->first_time_s + 0.001 * ms;
    }
    return at + (h->flags & TIMES ? 4 : 0) * (size_t)h->count;
}

static void take_values(const unsigned char *at, const head *h, ls_point *points)
{
    for (size_t i = 0; i < h->count; i++) {
        float narrow;
        if (h->flags & NARROW_VALUES) {
            memcpy(&narrow, at + 4 * i, sizeof narrow);
            points[i].value = (double)narrow;
        } else {
            memcpy(&points[i].value, at + 8 * i, 8);
        }
    }
}

static bool steps_rise(const ls_point *points, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (points[i].step < points[i - 1].step) {
            return false;
        }
    }
    return true;
}

size_t ls_points_decode(const unsigned char *data, size_t bytes, ls_point points_out[LS_SERIES_BLOCK_POINTS])
{
    head h;
    if (bytes < HEAD_BYTES) {
        return 0;
    }
    memcpy(&h, data, sizeof h);
    if (h.count == 0 || h.count > LS_SERIES_BLOCK_POINTS || h.flags > FLAGS || bytes != bytes_of(&h)) {
        return 0;
    }
    const unsigned char *at = take_steps(data + HEAD_BYTES, &h, points_out);
    at = take_times(at, &h, points_out);
    take_values(at, &h, points_out);
    return steps_rise(points_out, h.count) ? h.count : 0;
}
