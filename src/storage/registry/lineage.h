// SPDX-License-Identifier: Apache-2.0
/*
 * Lineage: what an entry was made from, back to the first, and what was made from it.
 *
 * The picture has a column for each generation, oldest on the left:
 *
 *   corpus@1 ──▶ base@1 ──▶ assistant@3 ──▶ score@3
 *                ▲ helpful@2 ┘
 */
#ifndef LS_STORAGE_REGISTRY_LINEAGE_H
#define LS_STORAGE_REGISTRY_LINEAGE_H

#include "base/text.h"
#include "storage/registry/serving.h"

/* Entries in one lineage at most; more are left out, which `cut` tells. */
enum { LS_LINEAGE_NODES_MAX = 500 };

typedef struct ls_lineage_node {
    ls_registry_found found; /* without an entry if it is missing: kind, name, ... are then 0 */
    bool is_missing;         /* named as a parent, but not in the registry */
    bool is_hidden;          /* the picture shows its kind alone; set by the caller */
    const ls_served *served; /* where it serves now */
    size_t served_count;
    int generation; /* 0: the entry asked for; -1: a parent; 1: a child; ... */
} ls_lineage_node;

typedef struct ls_lineage_edge {
    size_t parent, child; /* nodes */
    const char *as;
} ls_lineage_edge;

typedef struct ls_lineage {
    ls_lineage_node *nodes; /* the entry asked for is the first */
    size_t node_count;
    ls_lineage_edge *edges;
    size_t edge_count;
    bool cut;
} ls_lineage;

/* In `arena`; release in any case after LS_OK. */
LS_MUST_CHECK ls_status ls_lineage_find(ls_registry *registry, ls_arena *arena, const char *digest,
                                        ls_lineage *lineage_out);
void ls_lineage_release(ls_lineage *lineage);

/* "assistant@3"; the first digits of the digest without a version. In `arena`. */
const char *ls_registry_label(ls_arena *arena, const ls_registry_found *found);

/* Facts of an entry in a line each, in `arena`: "run file 1f0c...", "data 73ef...", "val_loss
 * 2.31", "by merge, method average". Returns their number, at most `count`. */
size_t ls_lineage_facts(ls_arena *arena, const ls_registry_entry *entry, const char **lines, size_t count);

/* {"entry","name","version","stage","kind","path","stored","bytes","who","when","code","facts",
 * "parents":[{"entry","as"}]}; the caller drops it. */
json_t *ls_registry_found_to_json(const ls_registry_found *found);

/* The same with "label", "lines" (facts, a few) and "serving":[{"address","who","since"}], for a
 * table that people read; the caller drops it. */
LS_MUST_CHECK ls_status ls_registry_row(ls_registry *registry, ls_arena *arena,
                                        const ls_registry_found *found, json_t **row_out);

/* {"entry","cut","nodes":[...],"edges":[{"parent","child","as"}]}; a node is as above with
 * "generation" and "serving":[{"address","who","since"}]. The caller drops it. */
json_t *ls_lineage_to_json(const ls_lineage *lineage);

/* Appends an <svg>. */
void ls_lineage_draw(const ls_lineage *lineage, ls_text *svg);

#endif
