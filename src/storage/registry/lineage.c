// SPDX-License-Identifier: Apache-2.0
#include "storage/registry/lineage.h"

#include "base/file.h"
#include "base/svg.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the graph ---- */

typedef struct search {
    ls_registry *registry;
    ls_arena *arena;
    ls_lineage *lineage;
    size_t edge_capacity;
} search;

/* The number of an entry, which is read and added if it is new. */
static ls_status node_of(search *s, const char *digest, int generation, size_t *node_out, bool *is_new_out)
{
    ls_lineage *l = s->lineage;
    *is_new_out = false;
    for (size_t i = 0; i < l->node_count; i++) {
        if (strcmp(l->nodes[i].found.digest, digest) == 0) {
            *node_out = i;
            return LS_OK;
        }
    }
    l->cut = l->cut || l->node_count == LS_LINEAGE_NODES_MAX;
    *node_out = l->node_count;
    if (l->cut) {
        return LS_OK;
    }
    ls_lineage_node *node = &l->nodes[l->node_count];
    *node = (ls_lineage_node){.generation = generation};
    memcpy(node->found.digest, digest, sizeof node->found.digest);
    const ls_status status = ls_registry_load(s->registry, s->arena, digest, &node->found);
    if (status != LS_OK && status != LS_ERR_NOT_FOUND) {
        return status;
    }
    node->is_missing = status != LS_OK;
    *is_new_out = true;
    l->node_count++;
    return ls_serving_list(s->registry, s->arena, digest, &node->served, &node->served_count);
}

static ls_status add_parents(search *s, size_t node)
{
    const ls_lineage_node *of = &s->lineage->nodes[node];
    for (size_t i = 0; i < of->found.entry.parent_count; i++) {
        const ls_registry_entry_parent *parent = &of->found.entry.parents[i];
        size_t number = 0;
        bool is_new = false;
        LS_TRY(node_of(s, parent->digest, of->generation - 1, &number, &is_new));
    }
    return LS_OK;
}

/* From the parents of a node that are in the lineage. */
static void add_edges(search *s, size_t child)
{
    ls_lineage *l = s->lineage;
    const ls_registry_entry *entry = &l->nodes[child].found.entry;
    for (size_t i = 0; i < entry->parent_count; i++) {
        for (size_t n = 0; n < l->node_count && l->edge_count < s->edge_capacity; n++) {
            if (strcmp(l->nodes[n].found.digest, entry->parents[i].digest) == 0) {
                l->edges[l->edge_count++] = (ls_lineage_edge){n, child, entry->parents[i].as};
            }
        }
    }
}

static ls_status add_children(search *s, size_t node)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    const ls_lineage_node *of = &s->lineage->nodes[node];
    const char *prefix = ls_arena_printf(s->arena, "children/%s/", of->found.digest);
    LS_TRY(ls_blob_list(ls_registry_blobs(s->registry), s->arena, prefix, true, &entries, &count));
    for (size_t i = 0; i < count; i++) {
        const char *digest = entries[i].key + strlen(prefix);
        size_t number = 0;
        bool is_new = false;
        if (!ls_hash_is_hex(digest, LS_SHA256_HEX_BYTES - 1)) {
            continue;
        }
        LS_TRY(node_of(s, digest, of->generation + 1, &number, &is_new));
        if (is_new && s->lineage->nodes[number].is_missing) {
            s->lineage->node_count--; /* its writer was interrupted */
            ls_error_clear();
        }
    }
    return LS_OK;
}

/* Ancestors, nearest first, then descendants; then all edges between them. */
static ls_status find_all(search *s, const char *digest)
{
    size_t first = 0, begin = 0;
    bool is_new = false;
    ls_lineage *l = s->lineage;
    LS_TRY(node_of(s, digest, 0, &first, &is_new));
    for (; begin < l->node_count; begin++) {
        LS_TRY(add_parents(s, begin));
    }
    const size_t ancestors = l->node_count;
    LS_TRY(add_children(s, 0));
    for (size_t i = ancestors; i < l->node_count; i++) {
        LS_TRY(add_children(s, i));
    }
    for (size_t i = 0; i < l->node_count; i++) {
        add_edges(s, i);
    }
    return LS_OK;
}

/* A parent is at least one generation before each of its children, also where ways of different
 * length lead to it. */
static void settle_generations(ls_lineage *lineage)
{
    bool moves = true;
    for (size_t round = 0; moves && round < lineage->node_count; round++) {
        moves = false;
        for (size_t i = 0; i < lineage->edge_count; i++) {
            ls_lineage_node *parent = &lineage->nodes[lineage->edges[i].parent];
            ls_lineage_node *child = &lineage->nodes[lineage->edges[i].child];
            if (parent->generation >= child->generation) {
                *(child->generation > 0 ? &child->generation : &parent->generation) =
                    child->generation > 0 ? parent->generation + 1 : child->generation - 1;
                moves = true;
            }
        }
    }
}

ls_status ls_lineage_find(ls_registry *registry, ls_arena *arena, const char *digest, ls_lineage *lineage_out)
{
    search s = {registry, arena, lineage_out, 8 * (size_t)LS_LINEAGE_NODES_MAX};
    *lineage_out = (ls_lineage){.nodes = ls_arena_new(arena, ls_lineage_node, LS_LINEAGE_NODES_MAX),
                                .edges = ls_arena_new(arena, ls_lineage_edge, s.edge_capacity)};
    const ls_status status = find_all(&s, digest);
    if (status != LS_OK) {
        ls_lineage_release(lineage_out);
        return status;
    }
    settle_generations(lineage_out);
    ls_error_clear();
    return LS_OK;
}

void ls_lineage_release(ls_lineage *lineage)
{
    for (size_t i = 0; i < lineage->node_count; i++) {
        ls_registry_entry_release(&lineage->nodes[i].found.entry);
    }
    lineage->node_count = 0;
}

/* ---- words ---- */

const char *ls_registry_label(ls_arena *arena, const ls_registry_found *found)
{
    return found->version > 0 ? ls_arena_printf(arena, "%s@%u", found->name, found->version)
                              : ls_arena_printf(arena, "%.12s", found->digest);
}

typedef struct lines {
    const char **lines;
    size_t count, room;
} lines;

static void add_line(lines *l, const char *line)
{
    if (l->count < l->room) {
        l->lines[l->count++] = line;
    }
}

static void add_run_lines(ls_arena *arena, const json_t *run, lines *l)
{
    const char *name = json_string_value(json_object_get(run, "name"));
    const char *file = json_string_value(json_object_get(run, "file"));
    const char *data = json_string_value(json_object_get(run, "data_hash"));
    if (name) {
        add_line(l, ls_arena_printf(arena, "run %s, step %" JSON_INTEGER_FORMAT, name,
                                    json_integer_value(json_object_get(run, "step"))));
    }
    if (file) {
        add_line(l, ls_arena_printf(arena, "run file %.12s", file));
    }
    if (data) {
        add_line(l, ls_arena_printf(arena, "data %.12s", data));
    }
}

/* "180 of 200 documents kept", "by normalise, quality" */
static void add_preparation_line(ls_arena *arena, const json_t *made, lines *l)
{
    const json_t *steps = json_object_get(made, "steps");
    ls_text names = {0};
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const char *name = json_string_value(json_array_get(steps, i));
        ls_text_printf(&names, "%s%s", i > 0 ? ", " : "by ", name ? name : "?");
    }
    if (made) {
        add_line(l,
                 ls_arena_printf(arena, "%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " documents kept",
                                 json_integer_value(json_object_get(made, "kept")),
                                 json_integer_value(json_object_get(made, "documents"))));
        add_line(l, ls_arena_strdup(arena, ls_text_string(&names)));
    }
    ls_text_release(&names);
}

/* All numbers of an evaluation; of others, the losses. */
static void add_metric_lines(ls_arena *arena, const ls_registry_entry *entry, lines *l)
{
    const bool is_evaluation = entry->kind == LS_ENTRY_EVALUATION;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(entry->facts, "metrics"), key, value)
    {
        if (json_is_number(value) && (is_evaluation || ls_path_has_suffix(key, "loss"))) {
            add_line(l, ls_arena_printf(arena, "%s %.6g", key, json_number_value(value)));
        }
    }
}

/* "by merge, method average": how a command made it. */
static void add_made_line(ls_arena *arena, const json_t *made, lines *l)
{
    const char *key, *comma = "";
    json_t *value;
    ls_text text = {0};
    json_object_foreach((json_t *)made, key, value)
    {
        if (json_is_string(value) && json_string_length(value) > 0) {
            ls_text_printf(&text, "%s%s %s", comma, key, json_string_value(value));
            comma = ", ";
        }
    }
    if (text.bytes > 0) {
        add_line(l, ls_arena_strdup(arena, ls_text_string(&text)));
    }
    ls_text_release(&text);
}

size_t ls_lineage_facts(ls_arena *arena, const ls_registry_entry *entry, const char **texts, size_t count)
{
    lines l = {texts, 0, count};
    const json_t *sources = json_object_get(entry->facts, "sources");
    add_run_lines(arena, json_object_get(entry->facts, "run"), &l);
    add_made_line(arena, json_object_get(entry->facts, "made"), &l);
    add_preparation_line(arena, json_object_get(entry->facts, "preparation"), &l);
    if (!json_object_get(entry->facts, "run") && entry->file_count > 0) {
        add_line(&l, ls_arena_printf(arena, "%zu file%s, %.1f MB", entry->file_count,
                                     entry->file_count == 1 ? "" : "s",
                                     (double)ls_registry_entry_bytes(entry) / 1e6));
    }
    add_metric_lines(arena, entry, &l);
    add_line(&l, entry->code);
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const json_t *source = json_array_get(sources, i);
        const char *as = json_string_value(json_object_get(source, "as"));
        const char *path = json_string_value(json_object_get(source, "path"));
        add_line(&l, ls_arena_printf(arena, "%s %s (not registered)", as ? as : "", path ? path : ""));
    }
    return l.count;
}

json_t *ls_registry_found_to_json(const ls_registry_found *f)
{
    const ls_registry_entry *e = &f->entry;
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:b, s:I, s:s, s:f, s:s, s:O, s:o}", "entry", f->digest,
                     "name", f->name, "version", (int)f->version, "stage", ls_registry_stage_names[f->stage],
                     "kind", ls_registry_entry_kind_names[e->kind], "path", e->path, "stored", e->stored,
                     "bytes", (json_int_t)ls_registry_entry_bytes(e), "who", e->who, "when", e->when_s,
                     "code", e->code, "facts", e->facts, "parents", ls_registry_entry_parents(e));
}

static json_t *served_to_json(const ls_served *served, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, json_pack("{s:s, s:s, s:f}", "address", served[i].address, "who",
                                              served[i].who, "since", served[i].since_s));
    }
    return list;
}

ls_status ls_registry_row(ls_registry *registry, ls_arena *arena, const ls_registry_found *found,
                          json_t **row_out)
{
    enum { LINES = 6 };
    const char *texts[LINES];
    const ls_served *served = NULL;
    size_t served_count = 0;
    LS_TRY(ls_serving_list(registry, arena, found->digest, &served, &served_count));
    const size_t count = ls_lineage_facts(arena, &found->entry, texts, LINES);
    json_t *row = ls_registry_found_to_json(found), *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, json_string(texts[i]));
    }
    json_object_set_new(row, "label", json_string(ls_registry_label(arena, found)));
    json_object_set_new(row, "lines", list);
    json_object_set_new(row, "serving", served_to_json(served, served_count));
    *row_out = row;
    return LS_OK;
}

static json_t *node_to_json(const ls_lineage_node *node)
{
    json_t *object = node->is_missing ? json_pack("{s:s, s:b}", "entry", node->found.digest, "missing", true)
                                      : ls_registry_found_to_json(&node->found);
    json_object_set_new(object, "generation", json_integer(node->generation));
    json_object_set_new(object, "serving", served_to_json(node->served, node->served_count));
    return object;
}

json_t *ls_lineage_to_json(const ls_lineage *lineage)
{
    json_t *nodes = json_array(), *edges = json_array();
    for (size_t i = 0; i < lineage->node_count; i++) {
        json_array_append_new(nodes, node_to_json(&lineage->nodes[i]));
    }
    for (size_t i = 0; i < lineage->edge_count; i++) {
        const ls_lineage_edge *e = &lineage->edges[i];
        json_array_append_new(edges,
                              json_pack("{s:s, s:s, s:s}", "parent", lineage->nodes[e->parent].found.digest,
                                        "child", lineage->nodes[e->child].found.digest, "as", e->as));
    }
    return json_pack("{s:s, s:b, s:o, s:o}", "entry", lineage->nodes[0].found.digest, "cut", lineage->cut,
                     "nodes", nodes, "edges", edges);
}

/* ---- the picture ---- */

enum {
    BOX_WIDTH = 210,
    BOX_LINES = 7,
    LINE_HEIGHT = 16,
    GAP_X = 60,
    GAP_Y = 18,
    MARGIN = 12,
    CHARACTERS = 30
};
#define BOX_HEIGHT (14.0 + LINE_HEIGHT * BOX_LINES)

static int color_of(const ls_lineage_node *node)
{
    static const int colors[LS_ENTRY_KINDS] = {[LS_ENTRY_MODEL] = 0,
                                               [LS_ENTRY_ADAPTER] = 3,
                                               [LS_ENTRY_DATA] = 2,
                                               [LS_ENTRY_TOKENIZER] = 5,
                                               [LS_ENTRY_EVALUATION] = 1};
    return node->is_missing || node->found.stage == LS_STAGE_RETIRED ? 7 : colors[node->found.entry.kind];
}

static void draw_line(ls_text *svg, double x, double y, bool is_title, const char *words)
{
    const size_t bytes = strlen(words);
    ls_text cut = {0};
    ls_text_append_printable(&cut, words, bytes <= CHARACTERS ? bytes : CHARACTERS - 1, "");
    ls_text_append(&cut, bytes <= CHARACTERS ? "" : "\u2026");
    ls_svg_label(svg, x, y, LS_SVG_START, is_title ? 0 : -1, ls_text_string(&cut));
    ls_text_release(&cut);
}

static void draw_node(ls_arena *arena, const ls_lineage_node *node, double x, double y, ls_text *svg)
{
    const char *facts[BOX_LINES - 2];
    size_t count = 0;
    const ls_registry_found *f = &node->found;
    /* An arrow to another column may pass behind. */
    ls_text_printf(svg, "<rect class=\"ls-back\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>\n", x,
                   y, BOX_WIDTH, BOX_HEIGHT);
    ls_svg_box(svg, (ls_svg_rect){x, y, BOX_WIDTH, BOX_HEIGHT}, color_of(node), NULL);
    draw_line(svg, x + 10, y + 20, true, ls_registry_label(arena, f));
    if (node->is_missing || node->is_hidden) {
        draw_line(svg, x + 10, y + 20 + LINE_HEIGHT, false,
                  node->is_missing ? "not in this registry" : "added by another user");
        return;
    }
    draw_line(svg, x + 10, y + 20 + LINE_HEIGHT, false,
              ls_arena_printf(arena, "%s, %s", ls_registry_entry_kind_names[f->entry.kind],
                              ls_registry_stage_names[f->stage]));
    for (size_t i = 0; i < node->served_count && count < BOX_LINES - 2; i++) {
        const char *address = node->served[i].address, *host = strstr(address, "://");
        facts[count++] = ls_arena_printf(arena, "serves at %s", host ? host + 3 : address);
    }
    count += ls_lineage_facts(arena, &f->entry, facts + count, BOX_LINES - 2 - count);
    for (size_t i = 0; i < count; i++) {
        draw_line(svg, x + 10, y + 20 + LINE_HEIGHT * (double)(i + 2), false, facts[i]);
    }
}

void ls_lineage_draw(const ls_lineage *lineage, ls_text *svg)
{
    ls_arena arena = {0};
    int oldest = 0, youngest = 0;
    size_t rows = 0;
    double *x = ls_arena_new(&arena, double, lineage->node_count),
           *y = ls_arena_new(&arena, double, lineage->node_count);
    for (size_t i = 0; i < lineage->node_count; i++) {
        oldest = lineage->nodes[i].generation < oldest ? lineage->nodes[i].generation : oldest;
        youngest = lineage->nodes[i].generation > youngest ? lineage->nodes[i].generation : youngest;
    }
    size_t *used = ls_arena_new(&arena, size_t, (size_t)(youngest - oldest) + 1);
    for (size_t i = 0; i < lineage->node_count; i++) {
        const size_t column = (size_t)(lineage->nodes[i].generation - oldest), row = used[column]++;
        x[i] = MARGIN + (double)column * (BOX_WIDTH + GAP_X);
        y[i] = MARGIN + (double)row * (BOX_HEIGHT + GAP_Y);
        rows = row + 1 > rows ? row + 1 : rows;
    }
    ls_svg_begin(
        svg, 2 * MARGIN + (youngest - oldest + 1) * (BOX_WIDTH + GAP_X) - GAP_X,
        2 * MARGIN + (int)((double)rows * (BOX_HEIGHT + GAP_Y)) - GAP_Y,
        ls_arena_printf(&arena, "lineage of %s", ls_registry_label(&arena, &lineage->nodes[0].found)));
    for (size_t i = 0; i < lineage->edge_count; i++) {
        const ls_lineage_edge *e = &lineage->edges[i];
        ls_svg_arrow(svg, x[e->parent] + BOX_WIDTH, y[e->parent] + BOX_HEIGHT / 2, x[e->child],
                     y[e->child] + BOX_HEIGHT / 2);
    }
    for (size_t i = 0; i < lineage->node_count; i++) {
        draw_node(&arena, &lineage->nodes[i], x[i], y[i], svg);
    }
    ls_svg_end(svg);
    ls_arena_release(&arena);
}
