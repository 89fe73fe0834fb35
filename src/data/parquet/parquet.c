// SPDX-License-Identifier: Apache-2.0
/*
 * Rows. Each column is a list of entries with two levels: how much of the path from the root is
 * there (defined), and which list the entry continues (repeated; 0 begins a row). A row is put
 * together by walking down the schema: the first column below a node says whether it is there and
 * whether its list has another element, and the others must say the same.
 *
 * Source: Melnik and others, "Dremel: Interactive Analysis of Web-Scale Datasets", 2010.
 */
#include "data/parquet/parquet.h"

#include "base/log.h"
#include "data/parquet/parquet_internal.h"
#include "tokenizer/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

bool ls_parquet_has_magic(const void *data, size_t bytes)
{
    /* The header of the first page ends with a zero. */
    return bytes >= 12 && (memcmp(data, "PAR1", 4) == 0 || memcmp(data, "PARE", 4) == 0) &&
           memchr(data, 0, bytes < 4096 ? bytes : 4096);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The fewest digits that read back as the same number of its type, and what makes it a real. */
static void append_real(ls_text *lines, ls_parquet_type type, uint64_t bits)
{
    const bool is_single = type == LS_PARQUET_FLOAT;
    const uint32_t low = (uint32_t)bits;
    char text[32];
    float single;
    double real;
    memcpy(&single, &low, sizeof single);
    memcpy(&real, &bits, sizeof real);
    real = is_single ? (double)single : real;
    if (!isfinite(real)) {
        ls_text_append(lines, "null");
        return;
    }
    for (int digits = is_single ? 6 : 15; digits <= (is_single ? 9 : 17); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, real);
        if (is_single ? strtof(text, NULL) == single : strtod(text, NULL) == real) {
            break;
        }
    }
    ls_text_append(lines, text);
    ls_text_append(lines, strpbrk(text, ".e") ? "" : ".0");
}

static void append_integer(ls_text *lines, const ls_parquet_node *node, uint64_t bits)
{
    const bool is_unsigned = node->meaning >= LS_PARQUET_UINT8 && node->meaning <= LS_PARQUET_UINT64;
    const bool is_short = node->type == LS_PARQUET_INT32;
    if (is_unsigned) {
        ls_text_printf(lines, "%llu", (unsigned long long)(is_short ? (uint32_t)bits : bits));
    } else {
        ls_text_printf(lines, "%lld", is_short ? (long long)(int32_t)bits : (long long)bits);
    }
}

static void append_value(ls_parquet *p, const ls_parquet_node *node, const ls_parquet_value *value,
                         ls_text *lines)
{
    const bool is_text = node->meaning == LS_PARQUET_TEXT || node->meaning == LS_PARQUET_JSON ||
                         node->meaning == LS_PARQUET_ENUM;
    switch (node->type) {
    case LS_PARQUET_BYTES:
        if (!is_text && ls_utf8_valid_prefix((const char *)value->data, value->bytes) < value->bytes) {
            p->binary_count++;
            ls_text_append(lines, "null");
        } else {
            ls_text_append_json(lines, value->data, value->bytes);
        }
        break;
    case LS_PARQUET_BOOLEAN:
        ls_text_append(lines, value->bits ? "true" : "false");
        break;
    case LS_PARQUET_FLOAT:
    case LS_PARQUET_DOUBLE:
        append_real(lines, node->type, value->bits);
        break;
    default:
        append_integer(lines, node, value->bits);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Where the walk is: the list that the next entries must continue, and how much is there above. */
typedef struct place {
    uint32_t repeated, defined;
} place;

static ls_status fail_row(const ls_parquet *p, const ls_parquet_node *node)
{
    return ls_parquet_fail(p, &p->columns[node->column], LS_ERR_DATA,
                           "its rows are not those of the columns beside it: the file is damaged; fetch or "
                           "write it again");
}

/* The next entry of the first column below a node, which must fit the place. */
static ls_status look(ls_parquet *p, const ls_parquet_node *node, place at, uint32_t *defined_out)
{
    ls_parquet_column *column = &p->columns[node->column];
    LS_TRY(ls_parquet_peek(p, column));
    if (!column->has_entry || column->entry_repeated != at.repeated || column->entry_defined < at.defined) {
        return fail_row(p, node);
    }
    *defined_out = column->entry_defined;
    return LS_OK;
}

/* Takes the entry that every column below an absent node has. */
static ls_status take_absent(ls_parquet *p, const ls_parquet_node *node, place at, uint32_t defined)
{
    ls_parquet_value ignored;
    const ls_parquet_node *end = &p->nodes[node->end];
    for (; node < end; node++) {
        if (node->type == LS_PARQUET_GROUP || node->left_out) {
            continue;
        }
        uint32_t own = 0;
        LS_TRY(look(p, node, at, &own));
        LS_TRY(own == defined ? ls_parquet_take(p, &p->columns[node->column], &ignored) : fail_row(p, node));
    }
    return LS_OK;
}

static ls_status append_node(ls_parquet *p, const ls_parquet_node *node, place at, ls_text *lines);

/* The members of a group as an object; of several names, those that are not left out. */
static ls_status append_object(ls_parquet *p, const ls_parquet_node *group, place at, ls_text *lines)
{
    const ls_parquet_node *end = &p->nodes[group->end];
    bool is_first = true;
    ls_text_append(lines, "{");
    for (const ls_parquet_node *child = group + 1; child < end; child = &p->nodes[child->end]) {
        if (child->left_out) {
            continue;
        }
        ls_text_append(lines, is_first ? "" : ",");
        ls_text_append_json(lines, child->name, strlen(child->name));
        ls_text_append(lines, ":");
        LS_TRY(append_node(p, child, at, lines));
        is_first = false;
    }
    ls_text_append(lines, "}");
    return LS_OK;
}

/* A list as programs write it: a group of one repeated group of one member, which is the
 * element. Older ones: the repeated group is. */
static const ls_parquet_node *element_of(const ls_parquet_node *list, const ls_parquet_node *repeated)
{
    const char *name = repeated->name;
    const size_t bytes = strlen(name), list_bytes = strlen(list->name);
    const bool is_old =
        strcmp(name, "array") == 0 || (bytes == list_bytes + 6 && memcmp(name, list->name, list_bytes) == 0 &&
                                       strcmp(name + list_bytes, "_tuple") == 0);
    const bool is_wrapper = list->meaning == LS_PARQUET_LIST && repeated->type == LS_PARQUET_GROUP &&
                            repeated->children == 1 && !is_old;
    return is_wrapper ? repeated + 1 : repeated;
}

/* What a node holds when it is there. */
static ls_status append_content(ls_parquet *p, const ls_parquet_node *node, place at, ls_text *lines);

/* list: the group around `repeated`, or `repeated` itself. */
static ls_status append_list(ls_parquet *p, const ls_parquet_node *list, const ls_parquet_node *repeated,
                             place at, ls_text *lines)
{
    uint32_t defined = 0;
    const ls_parquet_node *element = element_of(list, repeated);
    ls_parquet_column *column = &p->columns[repeated->column];
    LS_TRY(look(p, repeated, at, &defined));
    if (defined < repeated->defined) {
        ls_text_append(lines, "[]");
        return take_absent(p, repeated, at, defined);
    }
    const char *before = "[";
    place inside = {.repeated = at.repeated, .defined = repeated->defined};
    do {
        ls_text_append(lines, before);
        before = ",";
        LS_TRY(element == repeated ? append_content(p, element, inside, lines)
                                   : append_node(p, element, inside, lines));
        inside.repeated = repeated->repeated;
        LS_TRY(ls_parquet_peek(p, column));
    } while (column->has_entry && column->entry_repeated >= repeated->repeated);
    ls_text_append(lines, "]");
    return LS_OK;
}

static ls_status append_content(ls_parquet *p, const ls_parquet_node *node, place at, ls_text *lines)
{
    const ls_parquet_node *child = node + 1;
    const bool is_list = (node->meaning == LS_PARQUET_LIST || node->meaning == LS_PARQUET_MAP ||
                          node->meaning == LS_PARQUET_MAP_KEY_VALUE) &&
                         node->children == 1 && child->repetition == LS_PARQUET_REPEATED;
    if (node->type == LS_PARQUET_GROUP) {
        return is_list ? append_list(p, node, child, at, lines) : append_object(p, node, at, lines);
    }
    uint32_t defined = 0;
    ls_parquet_value value = {0};
    LS_TRY(look(p, node, at, &defined));
    LS_TRY(defined == node->defined ? ls_parquet_take(p, &p->columns[node->column], &value)
                                    : fail_row(p, node));
    append_value(p, node, &value, lines);
    return LS_OK;
}

static ls_status append_node(ls_parquet *p, const ls_parquet_node *node, place at, ls_text *lines)
{
    uint32_t defined = 0;
    if (node->repetition == LS_PARQUET_REPEATED) {
        return append_list(p, node, node, at, lines);
    }
    LS_TRY(look(p, node, at, &defined));
    if (defined < node->defined) {
        ls_text_append(lines, "null");
        return take_absent(p, node, at, defined);
    }
    return append_content(p, node, (place){.repeated = at.repeated, .defined = node->defined}, lines);
}

/* ---- the whole ------------------------------------------------------------------------------- */

ls_status ls_parquet_open(const char *path, ls_file_map content, ls_parquet **parquet_out)
{
    ls_parquet *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to read %s", path);
    }
    p->path = path;
    p->map = content;
    const ls_status status = ls_parquet_read_footer(p);
    if (status != LS_OK) {
        ls_parquet_close(p);
        return status;
    }
    *parquet_out = p;
    return LS_OK;
}

void ls_parquet_close(ls_parquet *parquet)
{
    if (!parquet) {
        return;
    }
    for (uint32_t i = 0; i < parquet->column_count; i++) {
        free(parquet->columns[i].page);
        free(parquet->columns[i].dictionary_page);
        free(parquet->columns[i].dictionary.values);
        ls_text_release(&parquet->columns[i].values.previous);
    }
    ZSTD_freeDCtx(parquet->zstd);
    ls_text_release(&parquet->left_out);
    ls_arena_release(&parquet->arena);
    free(parquet);
}

static ls_status end_group(ls_parquet *p)
{
    for (uint32_t i = 0; i < p->column_count && p->group > 0; i++) {
        LS_TRY(p->columns[i].node->left_out ? LS_OK : ls_parquet_end_column(p, &p->columns[i]));
    }
    return LS_OK;
}

ls_status ls_parquet_read(ls_parquet *parquet, size_t enough_bytes, ls_text *lines, bool *done_out)
{
    *done_out = false;
    while (lines->bytes < enough_bytes) {
        if (parquet->rows_left > 0) {
            parquet->rows_left--;
            LS_TRY(append_object(parquet, &parquet->nodes[0], (place){0}, lines));
            ls_text_append(lines, "\n");
            continue;
        }
        LS_TRY(end_group(parquet));
        if (parquet->groups_left > 0) {
            LS_TRY(ls_parquet_next_group(parquet));
        } else if (parquet->rows_seen != parquet->row_count) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: its row groups have %lld rows, but the footer says %lld: the file is damaged; "
                "fetch or write it again",
                parquet->path, (long long)parquet->rows_seen, (long long)parquet->row_count);
        } else {
            *done_out = true;
            return LS_OK;
        }
    }
    return LS_OK;
}

void ls_parquet_tell(const ls_parquet *parquet)
{
    if (parquet->left_out.bytes > 0) {
        ls_log_warn("data: left out of %s: %s, of a type that JSON does not have", parquet->path,
                    ls_text_string(&parquet->left_out));
    }
    if (parquet->binary_count > 0) {
        ls_log_warn("data: %llu values of %s are bytes that are not UTF-8, and count as null",
                    (unsigned long long)parquet->binary_count, parquet->path);
    }
}
