// SPDX-License-Identifier: Apache-2.0
/*
 * The footer: the schema, and where each row group has the pages of its columns.
 *
 *   "PAR1" | pages ... | footer, in Thrift | its bytes: u32 | "PAR1"
 *
 * Row groups are read from it one at a time, so that memory does not depend on their number.
 */
#include "data/parquet/parquet_internal.h"

#include <string.h>

enum { TAIL_BYTES = 8, FOOTER_BYTES_MAX = 256 << 20 };

static ls_status fail_file(const ls_parquet *p, const char *what)
{
    return ls_fail(LS_ERR_DATA, "%s: %s: the file is damaged; fetch or write it again", p->path, what);
}

/* ---- schema ---------------------------------------------------------------------------------- */

/* The kinds of LogicalType that matter, as the older ConvertedType. */
static ls_parquet_meaning meaning_of(ls_thrift *t, const ls_thrift_field *field)
{
    ls_thrift_field kind = {0}, setting = {0};
    ls_parquet_meaning meaning = LS_PARQUET_PLAIN_MEANING;
    if (!ls_thrift_struct(t, field)) {
        return meaning;
    }
    while (ls_thrift_next(t, &kind)) {
        static const ls_parquet_meaning meanings[] = {
            [1] = LS_PARQUET_TEXT,  [2] = LS_PARQUET_MAP,     [3] = LS_PARQUET_LIST,
            [4] = LS_PARQUET_ENUM,  [5] = LS_PARQUET_DECIMAL, [6 ... 11] = LS_PARQUET_PLAIN_MEANING,
            [12] = LS_PARQUET_JSON,
        };
        meaning = kind.id >= 1 && kind.id <= 12 ? meanings[kind.id] : meaning;
        if (kind.id != 10) {
            ls_thrift_skip(t, &kind);
            continue;
        }
        while (ls_thrift_struct(t, &kind) && ls_thrift_next(t, &setting)) {
            if (setting.id == 2 && !ls_thrift_bool(t, &setting)) {
                meaning = LS_PARQUET_UINT64;
            } else if (setting.id != 2) {
                ls_thrift_skip(t, &setting);
            }
        }
    }
    return meaning;
}

static void read_node(ls_parquet *p, ls_thrift *t, ls_parquet_node *node)
{
    ls_thrift_field field = {0};
    size_t bytes = 0;
    int64_t children = 0, type = LS_PARQUET_GROUP, repetition = LS_PARQUET_REQUIRED;
    int64_t older = LS_PARQUET_PLAIN_MEANING;
    int64_t *const numbers[] = {[1] = &type, [3] = &repetition, [5] = &children, [6] = &older};
    node->meaning = LS_PARQUET_PLAIN_MEANING;
    node->name = "";
    while (ls_thrift_next(t, &field)) {
        if (ls_thrift_number(t, &field, numbers, 7)) {
            continue;
        }
        if (field.id == 4) {
            const char *name = ls_thrift_string(t, &field, &bytes);
            t->bad = t->bad || bytes > LS_PARQUET_NAME_BYTES_MAX || memchr(name, 0, bytes);
            node->name = t->bad ? "" : ls_arena_strndup(&p->arena, name, bytes);
        } else if (field.id == 10) {
            node->meaning = meaning_of(t, &field);
        } else {
            ls_thrift_skip(t, &field);
        }
    }
    t->bad = t->bad || children < 0 || children > LS_PARQUET_NODES_MAX || repetition < 0 ||
             repetition > LS_PARQUET_REPEATED || type < 0 || type > LS_PARQUET_GROUP;
    node->meaning = node->meaning == LS_PARQUET_PLAIN_MEANING ? (ls_parquet_meaning)older : node->meaning;
    node->type = children > 0 ? LS_PARQUET_GROUP : (ls_parquet_type)type;
    node->repetition = (ls_parquet_repetition)repetition;
    node->children = (uint32_t)children;
}

static ls_status read_schema(ls_parquet *p, ls_thrift *t, const ls_thrift_field *field)
{
    ls_thrift_field element;
    const uint32_t count = ls_thrift_list(t, field, &element);
    if (count > LS_PARQUET_NODES_MAX) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s has a schema of %u nodes; at most %d are read", p->path, count,
                       LS_PARQUET_NODES_MAX);
    }
    p->nodes = ls_arena_new(&p->arena, ls_parquet_node, count);
    for (; p->node_count < count && ls_thrift_struct(t, &element); p->node_count++) {
        read_node(p, t, &p->nodes[p->node_count]);
    }
    return LS_OK;
}

/* ---- columns --------------------------------------------------------------------------------- */

/* Whether the values of a column have a form in JSON. */
static bool is_value(const ls_parquet_node *node)
{
    return node->type != LS_PARQUET_INT96 && node->type != LS_PARQUET_FIXED_BYTES &&
           node->meaning != LS_PARQUET_DECIMAL;
}

static void add_column(ls_parquet *p, ls_parquet_node *node, const char *path)
{
    ls_parquet_column *column = &p->columns[p->column_count];
    node->column = p->column_count++;
    *column = (ls_parquet_column){.path = path, .node = node};
    node->left_out = !is_value(node);
    if (node->left_out) {
        ls_text_printf(&p->left_out, "%s`%s`", p->left_out.bytes ? ", " : "", path);
    }
}

/* Two members of one name would be one. */
static ls_status check_names(const ls_parquet *p, uint32_t first, uint32_t end)
{
    for (uint32_t a = first; a < end; a = p->nodes[a].end) {
        for (uint32_t b = p->nodes[a].end; b < end; b = p->nodes[b].end) {
            if (strcmp(p->nodes[a].name, p->nodes[b].name) == 0) {
                return ls_fail(LS_ERR_DATA, "%s has two columns named `%s`: rename one of them", p->path,
                               p->nodes[a].name);
            }
        }
    }
    return LS_OK;
}

/* Sets what follows from the place of node `index`, and of all below it. path: of its parent. */
static ls_status place_node(ls_parquet *p, uint32_t index, const ls_parquet_node *parent, const char *path,
                            int depth)
{
    if (index >= p->node_count) {
        return fail_file(p, "a group of its schema has fewer members than it says");
    }
    if (depth > LS_PARQUET_DEPTH_MAX) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: `%s` is nested more than %d deep", p->path, path,
                       LS_PARQUET_DEPTH_MAX);
    }
    ls_parquet_node *node = &p->nodes[index];
    const char *own = !parent   ? ""
                      : path[0] ? ls_arena_printf(&p->arena, "%s.%s", path, node->name)
                                : node->name;
    node->repetition = parent ? node->repetition : LS_PARQUET_REQUIRED;
    node->defined = (uint16_t)((parent ? parent->defined : 0) + (node->repetition != LS_PARQUET_REQUIRED));
    node->repeated = (uint16_t)((parent ? parent->repeated : 0) + (node->repetition == LS_PARQUET_REPEATED));
    node->end = index + 1;
    if (node->type != LS_PARQUET_GROUP) {
        add_column(p, node, own);
        return LS_OK;
    }
    node->left_out = true;
    for (uint32_t i = 0; i < node->children; i++) {
        const uint32_t child = node->end;
        LS_TRY(place_node(p, child, node, own, depth + 1));
        if (node->left_out && !p->nodes[child].left_out) {
            node->left_out = false;
            node->column = p->nodes[child].column;
        }
        node->end = p->nodes[child].end;
    }
    return check_names(p, index + 1, node->end);
}

/* ---- row groups ------------------------------------------------------------------------------ */

/* Fields of ColumnMetaData. */
typedef struct chunk {
    int64_t type, codec, entries, bytes, data_at, dictionary_at, nulls;
    bool has_meta, is_encrypted, is_elsewhere;
} chunk;

static void read_meta(ls_thrift *t, const ls_thrift_field *field, chunk *c)
{
    ls_thrift_field member = {0};
    int64_t *const numbers[] = {[1] = &c->type,  [4] = &c->codec,   [5] = &c->entries,
                                [7] = &c->bytes, [9] = &c->data_at, [11] = &c->dictionary_at};
    c->has_meta = ls_thrift_struct(t, field);
    while (c->has_meta && ls_thrift_next(t, &member)) {
        if (member.id == 12) {
            ls_thrift_numbers(t, &member, (int64_t *[]){[3] = &c->nulls}, 4);
        } else if (!ls_thrift_number(t, &member, numbers, 12)) {
            ls_thrift_skip(t, &member);
        }
    }
}

static chunk read_chunk(ls_thrift *t)
{
    chunk c = {.nulls = -1};
    ls_thrift_field field = {0};
    while (ls_thrift_next(t, &field)) {
        if (field.id == 3) {
            read_meta(t, &field, &c);
        } else {
            c.is_elsewhere = c.is_elsewhere || field.id == 1;
            c.is_encrypted = c.is_encrypted || field.id == 8 || field.id == 9;
            ls_thrift_skip(t, &field);
        }
    }
    return c;
}

static ls_status place_chunk(ls_parquet *p, ls_parquet_column *column, const chunk *c)
{
    const int64_t begin =
        c->dictionary_at > 0 && c->dictionary_at < c->data_at ? c->dictionary_at : c->data_at;
    const bool is_inside = begin >= 4 && c->bytes >= 0 && (uint64_t)begin <= p->data_end &&
                           (uint64_t)c->bytes <= p->data_end - (uint64_t)begin;
    if (column->node->left_out) {
        return LS_OK;
    }
    if (c->is_encrypted) {
        return ls_parquet_fail(p, column, LS_ERR_UNSUPPORTED,
                               "it is encrypted: write the file again without encryption");
    }
    if (c->is_elsewhere) {
        return ls_parquet_fail(p, column, LS_ERR_UNSUPPORTED,
                               "its values are in another file: write the data to one file");
    }
    if (!c->has_meta || c->type != (int64_t)column->node->type || c->entries < 0 || c->codec < 0 ||
        c->codec > 255 || (c->entries > 0 && !is_inside)) {
        return ls_parquet_fail(p, column, LS_ERR_DATA,
                               "the footer places its pages outside the file, or contradicts the schema: the "
                               "file is damaged");
    }
    column->codec = (uint8_t)c->codec;
    column->entry_count = column->entries_left = c->entries;
    column->null_count = c->nulls;
    column->at = (uint64_t)begin;
    column->end = (uint64_t)begin + (uint64_t)c->bytes;
    column->nulls = column->page_left = 0;
    column->dictionary.count = 0;
    column->has_entry = column->has_page = false;
    return LS_OK;
}

static ls_status read_chunks(ls_parquet *p, const ls_thrift_field *field)
{
    ls_thrift_field element;
    const uint32_t count = ls_thrift_list(&p->groups, field, &element);
    if (count != p->column_count) {
        return fail_file(p, "a row group has another number of columns than the schema");
    }
    for (uint32_t i = 0; i < count && ls_thrift_struct(&p->groups, &element); i++) {
        const chunk c = read_chunk(&p->groups);
        LS_TRY(p->groups.bad ? fail_file(p, "its footer cannot be read") : LS_OK);
        LS_TRY(place_chunk(p, &p->columns[i], &c));
    }
    return LS_OK;
}

ls_status ls_parquet_next_group(ls_parquet *parquet)
{
    ls_thrift_field field = {0};
    bool has_chunks = false;
    parquet->group++;
    parquet->groups_left--;
    parquet->rows_left = -1;
    while (ls_thrift_next(&parquet->groups, &field)) {
        if (field.id == 1) {
            LS_TRY(read_chunks(parquet, &field));
            has_chunks = true;
        } else if (field.id == 3) {
            parquet->rows_left = ls_thrift_int(&parquet->groups, &field);
        } else {
            ls_thrift_skip(&parquet->groups, &field);
        }
    }
    if (parquet->groups.bad || !has_chunks || parquet->rows_left < 0 ||
        parquet->rows_left > parquet->row_count - parquet->rows_seen) {
        return fail_file(parquet, "its footer cannot be read");
    }
    parquet->rows_seen += parquet->rows_left;
    return LS_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static ls_status find_footer(ls_parquet *p, ls_thrift *footer_out)
{
    uint32_t bytes = 0;
    const unsigned char *end = p->map.data + p->map.bytes;
    if (p->map.bytes >= 12 && memcmp(end - 4, "PARE", 4) == 0) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s is encrypted: write it again without encryption", p->path);
    }
    if (p->map.bytes < 12 || memcmp(end - 4, "PAR1", 4) != 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s is truncated: a Parquet file ends with PAR1; it has %zu bytes, fetch or write it "
                       "again",
                       p->path, p->map.bytes);
    }
    memcpy(&bytes, end - TAIL_BYTES, sizeof bytes);
    if (bytes > p->map.bytes - TAIL_BYTES - 4 || bytes > FOOTER_BYTES_MAX) {
        return fail_file(p, "the length of its footer is outside the file");
    }
    p->data_end = p->map.bytes - TAIL_BYTES - bytes;
    *footer_out = (ls_thrift){.at = p->map.data + p->data_end, .end = end - TAIL_BYTES};
    return LS_OK;
}

static ls_status read_fields(ls_parquet *p, ls_thrift *t)
{
    ls_thrift_field field = {0}, element;
    while (ls_thrift_next(t, &field)) {
        if (field.id == 2 && !p->nodes) {
            LS_TRY(read_schema(p, t, &field));
        } else if (field.id == 3) {
            p->row_count = ls_thrift_int(t, &field);
        } else if (field.id == 4) {
            ls_thrift copy = *t;
            p->groups_left = ls_thrift_list(&copy, &field, &element);
            copy.bad = copy.bad || (p->groups_left > 0 && !ls_thrift_struct(&copy, &element));
            p->groups = copy;
            ls_thrift_skip(t, &field);
        } else if (field.id == 8) {
            return ls_fail(LS_ERR_UNSUPPORTED, "%s is encrypted: write it again without encryption", p->path);
        } else {
            ls_thrift_skip(t, &field);
        }
    }
    return t->bad || p->groups.bad || p->row_count < 0 ? fail_file(p, "its footer cannot be read") : LS_OK;
}

ls_status ls_parquet_read_footer(ls_parquet *parquet)
{
    ls_thrift footer = {0};
    LS_TRY(find_footer(parquet, &footer));
    LS_TRY(read_fields(parquet, &footer));
    parquet->columns = ls_arena_new(&parquet->arena, ls_parquet_column, parquet->node_count + 1);
    LS_TRY(place_node(parquet, 0, NULL, "", 0));
    if (parquet->nodes[0].type != LS_PARQUET_GROUP || parquet->nodes[0].end != parquet->node_count) {
        return fail_file(parquet, "its schema is not one group");
    }
    if (parquet->nodes[0].left_out) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s has no column that can be read as text or numbers (%s)",
                       parquet->path, ls_text_string(&parquet->left_out));
    }
    return LS_OK;
}
