// SPDX-License-Identifier: Apache-2.0
/* Reads Slurm's lists of nodes and of counts per node. */
#include "comm/group/environment.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BRACKETS_MAX = 4, DIGITS_MAX = 9 };

/* One name of a list before its brackets are expanded: literals[0] [ranges[0]] literals[1] ...
 * literals[bracket_count]. */
typedef struct name_pattern {
    const char *literals[BRACKETS_MAX + 1];
    size_t literal_bytes[BRACKETS_MAX + 1];
    /* Each ends at the closing bracket. */
    const char *ranges[BRACKETS_MAX];
    uint32_t counts[BRACKETS_MAX];
    uint32_t bracket_count;
} name_pattern;

static ls_status fail_at(const char *list, const char *at, const char *what)
{
    return ls_fail(LS_ERR_INVALID, "node list '%s': %s at character %zu ('%.12s')", list, what,
                   (size_t)(at - list) + 1, at);
}

/* Reads "07" or "007-012" and advances *at_inout past it. width: the digits of the first number. */
static bool read_range(const char **at_inout, uint32_t *first_out, uint32_t *last_out, int *width_out)
{
    const char *at = *at_inout;
    const size_t first_digits = strspn(at, "0123456789");
    if (first_digits == 0 || first_digits > DIGITS_MAX) {
        return false;
    }
    *first_out = *last_out = (uint32_t)strtoul(at, NULL, 10);
    *width_out = (int)first_digits;
    at += first_digits;
    if (*at == '-') {
        const size_t last_digits = strspn(at + 1, "0123456789");
        if (last_digits == 0 || last_digits > DIGITS_MAX) {
            return false;
        }
        *last_out = (uint32_t)strtoul(at + 1, NULL, 10);
        at += 1 + last_digits;
    }
    *at_inout = at;
    return *first_out <= *last_out && *last_out - *first_out < LS_NODES_MAX;
}

/* Counts the numbers of "01-03,7]" and advances *at_inout past the bracket. */
static ls_status count_ranges(const char *list, const char **at_inout, uint32_t *count_out)
{
    uint32_t count = 0, first = 0, last = 0;
    int width = 0;
    for (const char *at = *at_inout;; at++) {
        const char *begin = at;
        if (!read_range(&at, &first, &last, &width) || (*at != ',' && *at != ']')) {
            return fail_at(list, begin, "expected a number or a range such as 01-03");
        }
        count += last - first + 1;
        if (count > LS_NODES_MAX) {
            return ls_fail(LS_ERR_INVALID, "node list '%.100s' names more than %d nodes", list, LS_NODES_MAX);
        }
        if (*at == ']') {
            *at_inout = at + 1;
            *count_out = count;
            return LS_OK;
        }
    }
}

/* Reads one name with its brackets and advances *at_inout to the comma or the end. */
static ls_status read_pattern(const char *list, const char **at_inout, name_pattern *out)
{
    const char *at = *at_inout;
    *out = (name_pattern){.literals[0] = at};
    while (*at && *at != ',') {
        if (*at == '[') {
            if (out->bracket_count == BRACKETS_MAX) {
                return fail_at(list, at, "too many brackets in one name");
            }
            const uint32_t i = out->bracket_count++;
            out->ranges[i] = ++at;
            LS_TRY(count_ranges(list, &at, &out->counts[i]));
            out->literals[i + 1] = at;
        } else if (*at == ']' || *at <= ' ' || *at > '~') {
            return fail_at(list, at, "unexpected character");
        } else {
            out->literal_bytes[out->bracket_count]++;
            at++;
        }
    }
    if (at == *at_inout) {
        return fail_at(list, at, "expected a name");
    }
    *at_inout = at;
    return LS_OK;
}

/* Writes number `index` of ranges that have been checked, with its leading zeros. */
static void write_number(const char *ranges, uint32_t index, char out[DIGITS_MAX + 2])
{
    uint32_t first = 0, last = 0;
    int width = 0;
    const char *at = ranges;
    while (read_range(&at, &first, &last, &width) && index > last - first) {
        index -= last - first + 1;
        at++;
    }
    snprintf(out, DIGITS_MAX + 2, "%0*u", width, first + index);
}

static ls_status write_name(const char *list, const name_pattern *pattern, uint32_t index,
                            char out[LS_NODE_NAME_BYTES])
{
    uint32_t indices[BRACKETS_MAX];
    size_t used = 0;
    for (uint32_t i = pattern->bracket_count; i-- > 0;) {
        indices[i] = index % pattern->counts[i];
        index /= pattern->counts[i];
    }
    for (uint32_t i = 0; i <= pattern->bracket_count; i++) {
        char number[DIGITS_MAX + 2] = "";
        if (i < pattern->bracket_count) {
            write_number(pattern->ranges[i], indices[i], number);
        }
        const int bytes = snprintf(out + used, LS_NODE_NAME_BYTES - used, "%.*s%s",
                                   (int)pattern->literal_bytes[i], pattern->literals[i], number);
        used += (size_t)bytes;
        if (used >= LS_NODE_NAME_BYTES) {
            return ls_fail(LS_ERR_INVALID, "node list '%.100s' has a name of more than %d characters", list,
                           LS_NODE_NAME_BYTES - 1);
        }
    }
    return LS_OK;
}

ls_status ls_node_list_read(const char *list, uint32_t index, char name_out[LS_NODE_NAME_BYTES],
                            uint32_t *count_out)
{
    uint64_t count = 0;
    char name[LS_NODE_NAME_BYTES] = "";
    for (const char *at = list;; at++) {
        name_pattern pattern;
        uint64_t here = 1;
        LS_TRY(read_pattern(list, &at, &pattern));
        for (uint32_t i = 0; i < pattern.bracket_count; i++) {
            here *= pattern.counts[i];
        }
        if (count + here > LS_NODES_MAX) {
            return ls_fail(LS_ERR_INVALID, "node list '%.100s' names more than %d nodes", list, LS_NODES_MAX);
        }
        if (index >= count && index - count < here) {
            LS_TRY(write_name(list, &pattern, (uint32_t)(index - count), name));
        }
        count += here;
        if (*at == '\0') {
            break;
        }
    }
    if (name_out && index >= count) {
        return ls_fail(LS_ERR_NOT_FOUND,
                       "node list '%.100s' has only %u names, but node number %u was asked for", list,
                       (uint32_t)count, index);
    }
    if (name_out) {
        memcpy(name_out, name, sizeof name);
    }
    if (count_out) {
        *count_out = (uint32_t)count;
    }
    return LS_OK;
}

ls_status ls_node_counts_read(const char *counts, uint32_t index, uint32_t *count_out)
{
    uint64_t node = 0;
    uint32_t found = 0;
    for (const char *at = counts;;) {
        char *end = NULL;
        const bool is_number = *at >= '0' && *at <= '9';
        const unsigned long count = strtoul(at, &end, 10);
        unsigned long times = 1;
        if (is_number && end[0] == '(' && end[1] == 'x' && end[2] >= '0' && end[2] <= '9') {
            times = strtoul(end + 2, &end, 10);
            /* A missing bracket must not pass for the end of a number. */
            end = *end == ')' ? end + 1 : end - 1;
        }
        if (!is_number || (*end != ',' && *end != '\0') || count > LS_NODES_MAX || times > LS_NODES_MAX) {
            return ls_fail(LS_ERR_INVALID,
                           "'%.100s' is not a list of processes per node such as 2(x3),1, which means 2 on "
                           "each of three nodes and 1 on the next",
                           counts);
        }
        found = index >= node && index - node < times ? (uint32_t)count : found;
        node += times;
        if (*end == '\0' && index < node) {
            *count_out = found;
            return LS_OK;
        }
        if (*end == '\0') {
            return ls_fail(
                LS_ERR_NOT_FOUND,
                "the list of counts '%.100s' covers only %llu nodes, but node number %u was asked for",
                counts, (unsigned long long)node, index);
        }
        at = end + 1;
    }
}
