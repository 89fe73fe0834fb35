// SPDX-License-Identifier: Apache-2.0
/* registry lineage|verify|gc */
#include "cli/models/registry.h"

#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- lineage ---- */

typedef struct lineage_settings {
    const char *registry, *svg;
    bool json;
} lineage_settings;

static const ls_option lineage_options[] = {
    LS_ROW_TEXT(lineage_settings, svg, "FILE", "file to draw the lineage to, as a picture"),
    LS_ROW_REGISTRY(lineage_settings),
    LS_ROW_JSON(lineage_settings),
};

static void print_node(ls_arena *arena, const ls_lineage_node *node, int depth, const char *as)
{
    const char *facts[16];
    const ls_registry_found *f = &node->found;
    ls_text text = {0};
    ls_text_printf(&text, "%*s%s%s%s", 2 * depth, "", as, *as ? " " : "", ls_registry_label(arena, f));
    if (node->is_missing) {
        ls_text_append(&text, " (not in this registry)");
    } else {
        ls_text_printf(&text, ": %s, %s, %s by %s", ls_registry_entry_kind_names[f->entry.kind],
                       ls_registry_stage_names[f->stage], ls_registry_time(arena, f->entry.when_s),
                       f->entry.who);
        for (size_t i = 0; i < node->served_count; i++) {
            ls_text_printf(&text, "; serves at %s since %s UTC by %s", node->served[i].address,
                           ls_registry_time(arena, node->served[i].since_s), node->served[i].who);
        }
        const size_t count = ls_lineage_facts(arena, &f->entry, facts, 16);
        for (size_t i = 0; i < count; i++) {
            ls_text_printf(&text, "%s%s", i == 0 ? "; " : ", ", facts[i]);
        }
    }
    ls_text safe = {0};
    ls_text_append_printable(&safe, ls_text_string(&text), text.bytes, "");
    puts(ls_text_string(&safe));
    ls_text_release(&safe);
    ls_text_release(&text);
}

/* Those that `node` was made from (or, with `down`, what was made from it), each once. */
static void print_tree(ls_arena *arena, const ls_lineage *l, size_t node, int depth, const char *as,
                       bool down, bool *seen)
{
    print_node(arena, &l->nodes[node], depth, as);
    if (seen[node]) {
        return;
    }
    seen[node] = true;
    for (size_t i = 0; i < l->edge_count; i++) {
        const ls_lineage_edge *e = &l->edges[i];
        if ((down ? e->parent : e->child) == node) {
            print_tree(arena, l, down ? e->child : e->parent, depth + 1, down ? "made:" : e->as, down, seen);
        }
    }
}

static ls_status show_lineage(const ls_invocation *invocation, const ls_lineage *lineage)
{
    const lineage_settings *settings = invocation->settings;
    ls_arena *arena = invocation->arena;
    if (settings->svg[0]) {
        ls_text svg = {0};
        ls_lineage_draw(lineage, &svg);
        const ls_status status = ls_file_write_atomic(settings->svg, ls_text_string(&svg), svg.bytes);
        ls_text_release(&svg);
        LS_TRY(status);
    }
    if (settings->json) {
        json_t *root = ls_lineage_to_json(lineage);
        ls_print_json(root);
        json_decref(root);
        return LS_OK;
    }
    print_tree(arena, lineage, 0, 0, "", false, ls_arena_new(arena, bool, lineage->node_count));
    bool *seen = ls_arena_new(arena, bool, lineage->node_count);
    for (size_t i = 0; i < lineage->edge_count; i++) {
        if (lineage->edges[i].parent == 0) {
            print_tree(arena, lineage, lineage->edges[i].child, 1, "made:", true, seen);
        }
    }
    if (lineage->cut) {
        printf("more than %d entries: the rest is left out\n", LS_LINEAGE_NODES_MAX);
    }
    return LS_OK;
}

static ls_status run_lineage(const ls_invocation *invocation)
{
    const lineage_settings *settings = invocation->settings;
    ls_registry *registry = NULL;
    ls_registry_found found;
    ls_lineage lineage;
    LS_TRY(ls_registry_open_word(invocation, settings->registry, &registry, &found));
    ls_registry_entry_release(&found.entry);
    ls_status status = ls_lineage_find(registry, invocation->arena, found.digest, &lineage);
    if (status == LS_OK) {
        status = show_lineage(invocation, &lineage);
        ls_lineage_release(&lineage);
    }
    ls_registry_close(registry);
    return status;
}

const ls_command ls_command_registry_lineage = {
    .name = "registry lineage",
    LS_WORDS("REF", 1, 1),
    .summary = "show what a model was made from, and what from it",
    .details = "Follows the parents of REF (base models, data sets, tokenizers) back to the first,\n"
               "with run files, data digests, versions of the program and metrics; then what was\n"
               "made from it: fine-tunes, exports and evaluations with their numbers; and where a\n"
               "model serves now. --svg draws it.\n"
               "\n"
               "Examples:\n"
               "  lockstep registry lineage assistant@3\n"
               "  lockstep registry lineage assistant@approved --svg lineage.svg",
    LS_SETTINGS(lineage_settings, lineage_options),
    .run = run_lineage,
};

/* ---- verify ---- */

typedef struct verify_settings {
    const char *registry;
} verify_settings;

static const ls_option verify_options[] = {LS_ROW_REGISTRY(verify_settings)};

typedef struct verified {
    ls_registry *registry;
    ls_arena *arena;
    size_t good, bad, gone;
} verified;

/* Damage is told and counted; the check goes on. */
static ls_status verify_one(void *context, ls_registry_found *found, ls_status status)
{
    size_t gone = 0;
    verified *v = context;
    const char *label = ls_registry_label(v->arena, found);
    if (status == LS_OK) {
        status = ls_registry_verify(v->registry, v->arena, found, &gone);
    } else if (status != LS_ERR_DATA && status != LS_ERR_NOT_FOUND) {
        return status;
    }
    if (status != LS_OK) {
        fprintf(stderr, "lockstep: %s: %s\n", label, ls_error_text());
        v->bad++;
    } else if (gone > 0) {
        printf("%s: %zu of its files are not at their path any more, and are not stored\n", label, gone);
        v->gone++;
    } else {
        v->good++;
    }
    return LS_OK;
}

static ls_status run_verify(const ls_invocation *invocation)
{
    const verify_settings *settings = invocation->settings;
    verified v = {.arena = invocation->arena};
    ls_status status = LS_OK;
    if (invocation->word_count > 0) {
        ls_registry_found found;
        LS_TRY(ls_registry_open_word(invocation, settings->registry, &v.registry, &found));
        status = verify_one(&v, &found, LS_OK);
        ls_registry_entry_release(&found.entry);
    } else {
        LS_TRY(ls_registry_open(settings->registry, NULL, &v.registry));
        status = ls_registry_each(v.registry, v.arena, NULL, verify_one, &v);
    }
    ls_registry_close(v.registry);
    LS_TRY(status);
    printf("%zu good, %zu damaged, %zu gone\n", v.good, v.bad, v.gone);
    return v.bad == 0 ? LS_OK
                      : ls_fail(LS_ERR_DATA, "%zu of %zu %s damaged", v.bad, v.good + v.bad + v.gone,
                                v.bad == 1 ? "is" : "are");
}

const ls_command ls_command_registry_verify = {
    .name = "registry verify",
    LS_WORDS("[REF]", 0, 1),
    .summary = "compare the registry's files with their digests",
    .details = "Reads the files of REF, or of all versions of all names. Files that are not stored\n"
               "in the registry are read at their path; if they are missing there, the command\n"
               "prints a warning and the exit code remains 0.\n"
               "\n"
               "Example:\n"
               "  lockstep registry verify",
    LS_SETTINGS(verify_settings, verify_options),
    .run = run_verify,
};

/* ---- gc ---- */

typedef struct gc_settings {
    const char *registry;
    bool retired, dry_run;
} gc_settings;

static const ls_option gc_options[] = {
    LS_ROW_BOOL(gc_settings, retired,
                "also remove the bytes of retired versions; their entries and lineage stay"),
    LS_ROW_BOOL(gc_settings, dry_run, "print what would be removed, without removing it"),
    LS_ROW_REGISTRY(gc_settings),
};

static ls_status run_gc(const ls_invocation *invocation)
{
    const gc_settings *settings = invocation->settings;
    ls_registry *registry = NULL;
    ls_registry_collected done;
    LS_TRY(ls_registry_open(settings->registry, NULL, &registry));
    const ls_status status =
        ls_registry_collect(registry, invocation->arena, settings->retired, settings->dry_run, &done);
    ls_registry_close(registry);
    LS_TRY(status);
    printf("%s %" PRIu64 " entries, %" PRIu64 " files and %" PRIu64 " chunks, %.1f MB\n",
           settings->dry_run ? "would remove" : "removed", done.entries, done.files, done.chunks,
           (double)done.bytes / 1e6);
    return LS_OK;
}

const ls_command ls_command_registry_gc = {
    .name = "registry gc",
    LS_WORDS("", 0, 0),
    .summary = "remove what no version in the registry needs",
    .details = "Removes the remains of interrupted commands; with --retired, also the files that only\n"
               "retired versions need. Nothing is removed while an entry is being added.\n"
               "\n"
               "Example:\n"
               "  lockstep registry gc --dry-run",
    LS_SETTINGS(gc_settings, gc_options),
    .run = run_gc,
};
