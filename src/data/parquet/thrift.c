// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/thrift.h"

enum { NONE, YES, NO, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, DEPTH_MAX = 32 };

static uint8_t next_byte(ls_thrift *t)
{
    if (t->bad || t->at == t->end) {
        t->bad = true;
        return 0;
    }
    return *t->at++;
}

uint64_t ls_thrift_varint(ls_thrift *thrift)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = next_byte(thrift);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return thrift->bad ? 0 : value;
        }
    }
    thrift->bad = true;
    return 0;
}

int64_t ls_thrift_zigzag(ls_thrift *thrift)
{
    const uint64_t value = ls_thrift_varint(thrift);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

bool ls_thrift_next(ls_thrift *thrift, ls_thrift_field *field)
{
    const uint8_t head = next_byte(thrift);
    if (thrift->bad || head == NONE) {
        return false;
    }
    const int64_t id = head >> 4 ? field->id + (head >> 4) : ls_thrift_zigzag(thrift);
    field->type = head & 15;
    thrift->bad = thrift->bad || id < 0 || id > INT16_MAX || field->type > STRUCT;
    field->id = thrift->bad ? 0 : (int32_t)id;
    return !thrift->bad;
}

int64_t ls_thrift_int(ls_thrift *thrift, const ls_thrift_field *field)
{
    if (field->type == BYTE) {
        return (int8_t)next_byte(thrift);
    }
    thrift->bad = thrift->bad || field->type < I16 || field->type > I64;
    return ls_thrift_zigzag(thrift);
}

bool ls_thrift_bool(ls_thrift *thrift, const ls_thrift_field *field)
{
    thrift->bad = thrift->bad || (field->type != YES && field->type != NO);
    return field->type == YES;
}

const char *ls_thrift_string(ls_thrift *thrift, const ls_thrift_field *field, size_t *bytes_out)
{
    thrift->bad = thrift->bad || field->type != BINARY;
    const uint64_t bytes = ls_thrift_varint(thrift);
    thrift->bad = thrift->bad || bytes > (uint64_t)(thrift->end - thrift->at);
    const char *string = (const char *)thrift->at;
    *bytes_out = thrift->bad ? 0 : bytes;
    thrift->at += *bytes_out;
    return string;
}

bool ls_thrift_struct(ls_thrift *thrift, const ls_thrift_field *field)
{
    thrift->bad = thrift->bad || field->type != STRUCT;
    return !thrift->bad;
}

uint32_t ls_thrift_list(ls_thrift *thrift, const ls_thrift_field *field, ls_thrift_field *element_out)
{
    thrift->bad = thrift->bad || (field->type != LIST && field->type != SET);
    const uint8_t head = next_byte(thrift);
    const uint64_t count = head >> 4 == 15 ? ls_thrift_varint(thrift) : head >> 4;
    *element_out = (ls_thrift_field){.type = head & 15};
    thrift->bad = thrift->bad || count > (uint64_t)(thrift->end - thrift->at) || count > UINT32_MAX;
    return thrift->bad ? 0 : (uint32_t)count;
}

/* ---- what is not of interest ---- */

static void skip(ls_thrift *t, const ls_thrift_field *field, bool in_list, unsigned depth);

static void skip_list(ls_thrift *t, const ls_thrift_field *field, unsigned depth)
{
    ls_thrift_field element;
    for (uint32_t left = ls_thrift_list(t, field, &element); left > 0 && !t->bad; left--) {
        skip(t, &element, true, depth + 1);
    }
}

static void skip_map(ls_thrift *t, unsigned depth)
{
    const uint64_t count = ls_thrift_varint(t);
    const uint8_t types = count > 0 ? next_byte(t) : 0;
    const ls_thrift_field key = {.type = types >> 4}, value = {.type = types & 15};
    for (uint64_t i = 0; i < count && !t->bad; i++) {
        skip(t, &key, true, depth + 1);
        skip(t, &value, true, depth + 1);
    }
}

static void skip_string(ls_thrift *t, const ls_thrift_field *field)
{
    size_t ignored;
    (void)ls_thrift_string(t, field, &ignored);
}

static void skip_bytes(ls_thrift *t, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        (void)next_byte(t);
    }
}

static void skip(ls_thrift *t, const ls_thrift_field *field, bool in_list, unsigned depth)
{
    ls_thrift_field inner = {0};
    if (depth > DEPTH_MAX) {
        t->bad = true;
        return;
    }
    switch (field->type) {
    case YES:
    case NO:
        skip_bytes(t, in_list); /* outside lists the type is the value */
        break;
    case BYTE:
        skip_bytes(t, 1);
        break;
    case I16:
    case I32:
    case I64:
        (void)ls_thrift_varint(t);
        break;
    case DOUBLE:
        skip_bytes(t, 8);
        break;
    case BINARY:
        skip_string(t, field);
        break;
    case LIST:
    case SET:
        skip_list(t, field, depth);
        break;
    case MAP:
        skip_map(t, depth);
        break;
    case STRUCT:
        while (ls_thrift_next(t, &inner)) {
            skip(t, &inner, false, depth + 1);
        }
        break;
    default:
        t->bad = true;
    }
}

void ls_thrift_skip(ls_thrift *thrift, const ls_thrift_field *field)
{
    skip(thrift, field, false, 0);
}

/* ---- numbers --------------------------------------------------------------------------------- */

bool ls_thrift_number(ls_thrift *thrift, const ls_thrift_field *field, int64_t *const *numbers, int count)
{
    if (field->id >= count || !numbers[field->id]) {
        return false;
    }
    *numbers[field->id] = field->type <= NO ? ls_thrift_bool(thrift, field) : ls_thrift_int(thrift, field);
    return true;
}

void ls_thrift_numbers(ls_thrift *thrift, const ls_thrift_field *field, int64_t *const *numbers, int count)
{
    ls_thrift_field member = {0};
    while (ls_thrift_struct(thrift, field) && ls_thrift_next(thrift, &member)) {
        if (!ls_thrift_number(thrift, &member, numbers, count)) {
            ls_thrift_skip(thrift, &member);
        }
    }
}
