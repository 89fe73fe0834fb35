// SPDX-License-Identifier: Apache-2.0
#include "telemetry/store/tensorboard_reader.h"

#include "base/half.h"
#include "base/hash.h"

#include <string.h>

enum {
    HEAD_BYTES = 12,
    FOOT_BYTES = 4,
    RECORD_BYTES_MAX = 64 * 1024, /* a longer one holds no scalars worth showing: it is skipped */
};

/* ---- protobuf ---- */

typedef struct message {
    const unsigned char *at, *end;
} message;

typedef struct field {
    uint32_t number, wire;
    uint64_t value; /* of a varint or fixed number, as bits */
    message body;   /* of bytes */
} field;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static bool take_varint(message *m, uint64_t *value_out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        const unsigned char byte = *m->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

static bool take_fixed(message *m, size_t bytes, uint64_t *value_out)
{
    if ((size_t)(m->end - m->at) < bytes) {
        return false;
    }
    *value_out = 0;
    memcpy(value_out, m->at, bytes);
    m->at += bytes;
    return true;
}

/* The next field; false at the end, and for what is no field. */
static bool take_field(message *m, field *f)
{
    uint64_t key = 0;
    if (!take_varint(m, &key)) {
        return false;
    }
    *f = (field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    switch (f->wire) {
    case VARINT:
        return take_varint(m, &f->value);
    case FIXED64:
        return take_fixed(m, 8, &f->value);
    case FIXED32:
        return take_fixed(m, 4, &f->value);
    case BYTES:
        if (!take_varint(m, &f->value) || f->value > (uint64_t)(m->end - m->at)) {
            return false;
        }
        f->body = (message){m->at, m->at + f->value};
        m->at += f->value;
        return true;
    default:
        return false;
    }
}

static double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double as_float(uint64_t bits)
{
    const uint32_t narrow = (uint32_t)bits;
    float value;
    memcpy(&value, &narrow, sizeof value);
    return (double)value;
}

/* ---- tensors of one element ---- */

enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_INT32 = 3, DT_INT64 = 9, DT_BFLOAT16 = 14, DT_HALF = 19 };

static bool element_of(uint64_t type, uint64_t bits, double *value_out)
{
    switch (type) {
    case DT_FLOAT:
        *value_out = as_float(bits);
        return true;
    case DT_DOUBLE:
        *value_out = as_double(bits);
        return true;
    case DT_INT32:
        *value_out = (double)(int32_t)(uint32_t)bits;
        return true;
    case DT_INT64:
        *value_out = (double)(int64_t)bits;
        return true;
    case DT_BFLOAT16:
        *value_out = as_float((bits & 0xffff) << 16);
        return true;
    case DT_HALF:
        *value_out = (double)ls_f32_from_f16((uint16_t)bits);
        return true;
    default:
        return false;
    }
}

static size_t element_bytes(uint64_t type)
{
    return type == DT_DOUBLE || type == DT_INT64 ? 8 : type == DT_HALF || type == DT_BFLOAT16 ? 2 : 4;
}

/* The bits of a packed list with one number of this type. */
static bool only_item(const field *f, uint64_t type, bool is_varint, uint64_t *bits_out)
{
    message list = f->body;
    if (f->wire != BYTES) {
        *bits_out = f->value;
        return true;
    }
    const bool good =
        is_varint ? take_varint(&list, bits_out) : take_fixed(&list, element_bytes(type), bits_out);
    return good && list.at == list.end;
}

static bool take_tensor(message m, double *value_out)
{
    enum { TYPE = 1, CONTENT = 4, FLOATS = 5, DOUBLES = 6, INTS = 7, INT64S = 10, HALVES = 13 };
    uint64_t type = 0, bits = 0;
    size_t items = 0;
    for (field f; take_field(&m, &f);) {
        if (f.number == TYPE) {
            type = f.value;
        } else if (f.number == CONTENT || (f.number >= FLOATS && f.number <= INTS) || f.number == INT64S ||
                   f.number == HALVES) {
            const bool is_varint = f.number == INTS || f.number == INT64S || f.number == HALVES;
            const bool is_empty = f.wire == BYTES && f.body.at == f.body.end;
            items += is_empty ? 0 : only_item(&f, type, is_varint, &bits) ? 1 : 2;
        }
    }
    return items == 1 && element_of(type, bits, value_out);
}

/* ---- events ---- */

static void take_value(ls_run_metrics *data, message m, ls_point *point)
{
    enum { TAG = 1, SIMPLE = 2, TENSOR = 8 };
    message tag = {0};
    bool has_value = false;
    for (field f; take_field(&m, &f);) {
        if (f.number == TAG && f.wire == BYTES) {
            tag = f.body;
        } else if (f.number == SIMPLE && f.wire == FIXED32) {
            point->value = as_float(f.value);
            has_value = true;
        } else if (f.number == TENSOR && f.wire == BYTES) {
            has_value = take_tensor(f.body, &point->value) || has_value;
        }
    }
    const size_t bytes = (size_t)(tag.end - tag.at);
    if (has_value && bytes > 0 && bytes <= LS_LINE_NAME_BYTES_MAX) {
        (void)ls_run_metrics_add(data, (const char *)tag.at, bytes, point);
    }
}

static void take_event(ls_run_metrics *data, message m)
{
    enum { WALL_TIME = 1, STEP = 2, SUMMARY = 5, VALUE = 1 };
    ls_point point = {0};
    message summary = {0};
    for (field f; take_field(&m, &f);) {
        if (f.number == WALL_TIME && f.wire == FIXED64) {
            const double time_s = as_double(f.value);
            point.time_s = time_s > 0 && time_s < 1e11 ? time_s : 0;
        } else if (f.number == STEP && f.wire == VARINT) {
            point.step = f.value < (uint64_t)1 << 53 ? f.value : 0;
        } else if (f.number == SUMMARY && f.wire == BYTES) {
            summary = f.body;
        }
    }
    for (field f; take_field(&summary, &f);) {
        if (f.number == VALUE && f.wire == BYTES) {
            take_value(data, f.body, &point);
        }
    }
}

/* ---- records ---- */

static bool sum_is_right(const char *text, size_t bytes)
{
    const uint32_t crc = ls_crc32c(0, text, bytes);
    const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
    uint32_t written;
    memcpy(&written, text + bytes, sizeof written);
    return masked == written;
}

ls_tensorboard_part ls_tensorboard_take(ls_run_metrics *data, const char *text, size_t bytes)
{
    ls_tensorboard_part r = {0};
    while (bytes - r.taken >= HEAD_BYTES) {
        const char *record = text + r.taken;
        uint64_t length;
        memcpy(&length, record, sizeof length);
        if (!sum_is_right(record, sizeof length) || length > (uint64_t)1 << 40) {
            r.is_broken = true;
            break;
        }
        if (length > RECORD_BYTES_MAX) {
            r.ahead = HEAD_BYTES + length + FOOT_BYTES;
            break;
        }
        if (bytes - r.taken < HEAD_BYTES + length + FOOT_BYTES) {
            break; /* not complete yet */
        }
        if (!sum_is_right(record + HEAD_BYTES, (size_t)length)) {
            r.is_broken = true;
            break;
        }
        const unsigned char *begin = (const unsigned char *)record + HEAD_BYTES;
        take_event(data, (message){begin, begin + length});
        r.taken += HEAD_BYTES + (size_t)length + FOOT_BYTES;
    }
    return r;
}
