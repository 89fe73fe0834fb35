// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/values.h"

#include <string.h>

/* `width` bits, 0 to 64, that begin `bit` bits after `from`; the caller knows that they are there
 * before `end`. */
static uint64_t bits_at(const unsigned char *from, const unsigned char *end, uint64_t bit, unsigned width)
{
    const unsigned char *at = from + bit / 8;
    const unsigned shift = (unsigned)(bit % 8);
    const size_t left = (size_t)(end - at);
    uint64_t low = 0;
    if (width == 0) {
        return 0;
    }
    memcpy(&low, at, left < 8 ? left : 8);
    uint64_t value = low >> shift;
    if (shift + width > 64) {
        value |= (uint64_t)at[8] << (64 - shift);
    }
    return width == 64 ? value : value & ((UINT64_C(1) << width) - 1);
}

static size_t left_of(const ls_thrift *bytes)
{
    return (size_t)(bytes->end - bytes->at);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool begin_run(ls_parquet_runs *r)
{
    const uint64_t head = ls_thrift_varint(&r->bytes);
    const size_t value_bytes = (r->width + 7) / 8;
    if (r->bytes.bad || head < 2 || head > UINT64_C(1) << 40) {
        return false;
    }
    r->is_packed = head & 1;
    if (r->is_packed) {
        /* Groups of eight; writers may cut off the last one of a page. */
        const uint64_t whole = (head >> 1) * 8;
        const uint64_t held = r->width ? (uint64_t)left_of(&r->bytes) * 8 / r->width : whole;
        r->run_left = whole < held ? whole : held;
        r->packed_bit = 0;
        return r->run_left > 0;
    }
    if (left_of(&r->bytes) < value_bytes) {
        return false;
    }
    r->run_left = head >> 1;
    r->value = 0;
    memcpy(&r->value, r->bytes.at, value_bytes);
    r->bytes.at += value_bytes;
    return true;
}

bool ls_parquet_runs_next(ls_parquet_runs *runs, uint32_t *value_out)
{
    if (runs->width == 0) {
        *value_out = 0;
        return true;
    }
    if (runs->run_left == 0 && !begin_run(runs)) {
        return false;
    }
    runs->run_left--;
    if (!runs->is_packed) {
        *value_out = runs->value;
        return true;
    }
    *value_out = (uint32_t)bits_at(runs->bytes.at, runs->bytes.end, runs->packed_bit, runs->width);
    runs->packed_bit += runs->width;
    if (runs->run_left == 0) {
        const uint64_t bytes = (runs->packed_bit + 7) / 8;
        runs->bytes.at += bytes;
    }
    return true;
}

bool ls_parquet_runs_are_done(const ls_parquet_runs *runs)
{
    /* Programs fill up a run of values side by side to eight, or to many more. */
    const uint64_t padded = runs->is_packed ? runs->run_left : 0;
    const uint64_t bits = padded > 0 ? runs->packed_bit + padded * runs->width : 0;
    return runs->width == 0 || (runs->run_left == padded && left_of(&runs->bytes) == (bits + 7) / 8);
}

/* ---- differences ----------------------------------------------------------------------------- */

static bool begin_deltas(ls_parquet_deltas *d, ls_thrift bytes)
{
    *d = (ls_parquet_deltas){.bytes = bytes, .is_first = true};
    d->block_values = ls_thrift_varint(&d->bytes);
    const uint64_t mini_count = ls_thrift_varint(&d->bytes);
    d->left = ls_thrift_varint(&d->bytes);
    d->value = ls_thrift_zigzag(&d->bytes);
    if (d->bytes.bad || mini_count < 1 || mini_count > 4096 || d->block_values > 1 << 20 ||
        d->block_values % mini_count != 0 || d->block_values / mini_count % 32 != 0 || d->block_values == 0 ||
        d->left > INT32_MAX) {
        return false;
    }
    d->mini_count = d->mini = (uint32_t)mini_count;
    d->mini_values = d->block_values / mini_count;
    return true;
}

static bool begin_block(ls_parquet_deltas *d)
{
    d->delta_min = ls_thrift_zigzag(&d->bytes);
    if (d->bytes.bad || left_of(&d->bytes) < d->mini_count) {
        return false;
    }
    d->widths = d->bytes.at;
    d->bytes.at += d->mini_count;
    d->mini = 0;
    return true;
}

/* At the end of a part: moves past its bytes and to the next, of this block or of another. */
static bool begin_mini(ls_parquet_deltas *d)
{
    if (d->mini == d->mini_count && !begin_block(d)) {
        return false;
    }
    d->bit = 0;
    d->mini_left = d->mini_values;
    return d->widths[d->mini] <= 64 && left_of(&d->bytes) >= d->mini_values / 8 * d->widths[d->mini];
}

static void end_mini(ls_parquet_deltas *d)
{
    d->bytes.at += d->mini_values / 8 * d->widths[d->mini];
    d->mini++;
    d->mini_left = 0;
}

static bool next_delta(ls_parquet_deltas *d, int64_t *value_out)
{
    if (d->left == 0) {
        return false;
    }
    d->left--;
    if (d->is_first) {
        d->is_first = false;
        *value_out = d->value;
        return true;
    }
    if (d->mini_left == 0 && !begin_mini(d)) {
        return false;
    }
    const unsigned width = d->widths[d->mini];
    const uint64_t delta = bits_at(d->bytes.at, d->bytes.end, d->bit, width);
    d->bit += width;
    d->value = (int64_t)((uint64_t)d->value + (uint64_t)d->delta_min + delta);
    *value_out = d->value;
    if (--d->mini_left == 0) {
        end_mini(d);
    }
    return true;
}

/* The bytes that follow all differences. */
static bool after_deltas(const ls_parquet_deltas *deltas, ls_thrift *after_out)
{
    ls_parquet_deltas d = *deltas;
    for (uint64_t left = d.left > 0 ? d.left - 1 : 0; left > 0;) {
        if (!begin_mini(&d)) {
            return false;
        }
        end_mini(&d);
        left -= left < d.mini_values ? left : d.mini_values;
    }
    *after_out = d.bytes;
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool begin_dictionary(ls_parquet_values *v)
{
    if (!v->dictionary || (left_of(&v->bytes) > 0 && v->bytes.at[0] > 32)) {
        return false;
    }
    /* A page without values may be without a width. */
    const unsigned width = left_of(&v->bytes) > 0 ? *v->bytes.at++ : 0;
    v->runs = (ls_parquet_runs){.bytes = v->bytes, .width = width};
    return true;
}

/* Booleans as runs, after the number of their bytes. */
static bool begin_booleans(ls_parquet_values *v)
{
    uint32_t bytes = 0;
    if (v->value_bits != 1 || left_of(&v->bytes) < sizeof bytes) {
        return false;
    }
    memcpy(&bytes, v->bytes.at, sizeof bytes);
    v->bytes.at += sizeof bytes;
    v->runs = (ls_parquet_runs){.bytes = v->bytes, .width = 1};
    v->runs.bytes.end = v->bytes.at + bytes;
    return bytes <= left_of(&v->bytes);
}

static bool begin_lengths(ls_parquet_values *v)
{
    return v->value_bits == 0 && begin_deltas(&v->deltas, v->bytes) && after_deltas(&v->deltas, &v->bytes);
}

static bool begin_prefixes(ls_parquet_values *v)
{
    ls_text_clear(&v->previous);
    return v->value_bits == 0 && begin_deltas(&v->prefixes, v->bytes) &&
           after_deltas(&v->prefixes, &v->bytes) && begin_lengths(v);
}

bool ls_parquet_values_begin(ls_parquet_values *values, ls_parquet_encoding encoding, unsigned value_bits,
                             const ls_parquet_dictionary *dictionary, ls_thrift bytes)
{
    values->encoding = encoding;
    values->value_bits = value_bits;
    values->dictionary = dictionary;
    values->bytes = bytes;
    values->bit = 0;
    switch (encoding) {
    case LS_PARQUET_PLAIN:
        return true;
    case LS_PARQUET_PLAIN_DICTIONARY:
    case LS_PARQUET_RLE_DICTIONARY:
        return begin_dictionary(values);
    case LS_PARQUET_RLE:
        return begin_booleans(values);
    case LS_PARQUET_BYTE_STREAM_SPLIT:
        values->split_count = value_bits >= 32 ? left_of(&bytes) / (value_bits / 8) : 0;
        values->split_at = 0;
        return value_bits >= 32;
    case LS_PARQUET_DELTA_BINARY_PACKED:
        return value_bits >= 32 && begin_deltas(&values->deltas, bytes);
    case LS_PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        return begin_lengths(values);
    case LS_PARQUET_DELTA_BYTE_ARRAY:
        return begin_prefixes(values);
    default:
        return false;
    }
}

static bool next_bytes(ls_parquet_values *v, uint64_t bytes, ls_parquet_value *value_out)
{
    if (bytes > left_of(&v->bytes)) {
        return false;
    }
    *value_out = (ls_parquet_value){.data = v->bytes.at, .bytes = bytes};
    v->bytes.at += bytes;
    return true;
}

static bool next_plain(ls_parquet_values *v, ls_parquet_value *value_out)
{
    ls_parquet_value raw;
    if (v->value_bits == 1) {
        if (v->bit / 8 >= left_of(&v->bytes)) {
            return false;
        }
        *value_out = (ls_parquet_value){.bits = bits_at(v->bytes.at, v->bytes.end, v->bit++, 1)};
        return true;
    }
    if (!next_bytes(v, v->value_bits ? v->value_bits / 8 : sizeof(uint32_t), &raw)) {
        return false;
    }
    uint64_t bits = 0;
    memcpy(&bits, raw.data, raw.bytes);
    *value_out = (ls_parquet_value){.bits = bits};
    return v->value_bits > 0 || next_bytes(v, bits, value_out);
}

static bool next_indexed(ls_parquet_values *v, ls_parquet_value *value_out)
{
    uint32_t index = 0;
    if (!ls_parquet_runs_next(&v->runs, &index) || index >= v->dictionary->count) {
        return false;
    }
    *value_out = v->dictionary->values[index];
    return true;
}

static bool next_with_length(ls_parquet_values *v, ls_parquet_value *value_out)
{
    int64_t length = 0;
    return next_delta(&v->deltas, &length) && length >= 0 && next_bytes(v, (uint64_t)length, value_out);
}

static bool next_with_prefix(ls_parquet_values *v, ls_parquet_value *value_out)
{
    int64_t prefix = 0;
    ls_parquet_value suffix;
    if (!next_delta(&v->prefixes, &prefix) || prefix < 0 || (uint64_t)prefix > v->previous.bytes ||
        !next_with_length(v, &suffix)) {
        return false;
    }
    v->previous.bytes = (size_t)prefix;
    ls_text_append_bytes(&v->previous, suffix.data, suffix.bytes);
    *value_out = (ls_parquet_value){.data = (const unsigned char *)ls_text_string(&v->previous),
                                    .bytes = v->previous.bytes};
    return true;
}

static bool next_split(ls_parquet_values *v, ls_parquet_value *value_out)
{
    if (v->split_at == v->split_count) {
        return false;
    }
    *value_out = (ls_parquet_value){0};
    for (unsigned i = 0; i < v->value_bits / 8; i++) {
        value_out->bits |= (uint64_t)v->bytes.at[i * v->split_count + v->split_at] << 8 * i;
    }
    v->split_at++;
    return true;
}

bool ls_parquet_values_next(ls_parquet_values *values, ls_parquet_value *value_out)
{
    int64_t number = 0;
    uint32_t bit = 0;
    switch (values->encoding) {
    case LS_PARQUET_PLAIN:
        return next_plain(values, value_out);
    case LS_PARQUET_PLAIN_DICTIONARY:
    case LS_PARQUET_RLE_DICTIONARY:
        return next_indexed(values, value_out);
    case LS_PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        return next_with_length(values, value_out);
    case LS_PARQUET_DELTA_BYTE_ARRAY:
        return next_with_prefix(values, value_out);
    case LS_PARQUET_BYTE_STREAM_SPLIT:
        return next_split(values, value_out);
    case LS_PARQUET_RLE:
        if (!ls_parquet_runs_next(&values->runs, &bit)) {
            return false;
        }
        *value_out = (ls_parquet_value){.bits = bit};
        return true;
    default:
        if (!next_delta(&values->deltas, &number)) {
            return false;
        }
        *value_out = (ls_parquet_value){.bits = (uint64_t)number};
        return true;
    }
}

bool ls_parquet_values_are_done(const ls_parquet_values *values)
{
    switch (values->encoding) {
    case LS_PARQUET_DELTA_BINARY_PACKED:
        return values->deltas.left == 0;
    case LS_PARQUET_DELTA_LENGTH_BYTE_ARRAY:
    case LS_PARQUET_DELTA_BYTE_ARRAY:
        return values->deltas.left == 0 && left_of(&values->bytes) == 0;
    default:
        return true;
    }
}
