// SPDX-License-Identifier: Apache-2.0
#include "data/held_out.h"

#include "base/assert.h"
#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A time as a number that grows with it. */
static bool read_time(const json_t *value, uint64_t *time_out)
{
    enum { DIGITS = 14, DATE_DIGITS = 8 };
    uint64_t number = 0;
    size_t digits = 0;
    if (json_is_number(value)) {
        const double real = json_number_value(value);
        *time_out = (uint64_t)(real * 1e3);
        return isfinite(real) && real >= 0.0 && real < 1e15;
    }
    const char *text = json_string_value(value);
    for (; text && *text && digits < DIGITS; text++) {
        if (*text >= '0' && *text <= '9') {
            number = number * 10 + (uint64_t)(*text - '0');
            digits++;
        } else if (!strchr("-/:. T", *text)) {
            break;
        }
    }
    if (digits < DATE_DIGITS) {
        return false;
    }
    for (; digits < DIGITS; digits++) {
        number *= 10;
    }
    *time_out = number;
    return true;
}

ls_status ls_held_out_rank(const ls_held_out_rule *rule, const json_t *object, const char *data, size_t bytes,
                           uint64_t *rank_out)
{
    if (!rule->key || !rule->key[0]) {
        *rank_out = ls_xxh3(data, bytes, LS_HELD_OUT_VERSION);
        return LS_OK;
    }
    const json_t *value = json_object_get(object, rule->key);
    if (!value || json_is_null(value)) {
        return ls_fail(LS_ERR_DATA, "the record has no `%s` (%s)", rule->key,
                       rule->is_time ? "data.split_time" : "data.split_key");
    }
    uint64_t time = 0;
    if (rule->is_time) {
        if (!read_time(value, &time)) {
            return ls_fail(LS_ERR_DATA,
                           "the value of `%s` (data.split_time) is no time: it must be a number, or begin as "
                           "2024-05-31",
                           rule->key);
        }
        *rank_out = UINT64_MAX - time;
        return LS_OK;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the value of `%s`", rule->key);
    }
    *rank_out = ls_xxh3(text, strlen(text), LS_HELD_OUT_VERSION);
    free(text);
    return LS_OK;
}

enum { DIGITS = 256 };

/* Samples whose rank begins with the bits of `prefix` above `shift + 8`, by the next 8 bits. */
static void count_ranks(const ls_tokens *files, size_t file_count, uint64_t prefix, int shift,
                        uint64_t counts[DIGITS])
{
    memset(counts, 0, DIGITS * sizeof *counts);
    for (size_t f = 0; f < file_count; f++) {
        for (uint64_t i = 0; i < files[f].document_count; i++) {
            const uint64_t rank = files[f].origins[i].rank;
            if (shift == 56 || rank >> (shift + 8) == prefix >> (shift + 8)) {
                counts[rank >> shift & (DIGITS - 1)]++;
            }
        }
    }
}

bool ls_held_out_threshold(const ls_tokens *files, size_t file_count, double fraction,
                           uint64_t *threshold_out)
{
    uint64_t total = 0, threshold = 0, below = 0;
    for (size_t f = 0; f < file_count; f++) {
        LS_ASSERT(files[f].origins);
        total += files[f].document_count;
    }
    if (fraction <= 0.0 || total < 2) {
        return false;
    }
    const uint64_t rounded = (uint64_t)((double)total * fraction + 0.5), wanted = rounded > 0 ? rounded : 1;
    for (int shift = 56; shift >= 0; shift -= 8) {
        uint64_t counts[DIGITS];
        count_ranks(files, file_count, threshold, shift, counts);
        uint64_t digit = 0;
        while (below + counts[digit] < wanted) {
            below += counts[digit++];
        }
        threshold |= digit << shift;
        below += shift == 0 ? counts[digit] : 0;
    }
    *threshold_out = threshold;
    return below < total;
}
