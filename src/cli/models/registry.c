// SPDX-License-Identifier: Apache-2.0
/* registry add|ls|show|get|promote|export */
#include "cli/models/registry.h"

#include "cli/table.h"
#include "storage/registry/mlflow.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

ls_status ls_registry_open_word(const ls_invocation *invocation, const char *address,
                                ls_registry **registry_out, ls_registry_found *found_out)
{
    ls_registry *registry = NULL;
    LS_TRY(ls_registry_open(address, NULL, &registry));
    const ls_status status = ls_registry_find(registry, invocation->arena, invocation->words[0], found_out);
    if (status != LS_OK) {
        ls_registry_close(registry);
        return status;
    }
    if (found_out->stage == LS_STAGE_RETIRED) {
        fprintf(stderr, "lockstep: warning: %s is retired\n",
                ls_registry_label(invocation->arena, found_out));
    }
    *registry_out = registry;
    return LS_OK;
}

const char *ls_registry_time(ls_arena *arena, double seconds)
{
    char text[32] = "";
    const time_t whole = (time_t)seconds;
    struct tm parts;
    if (gmtime_r(&whole, &parts)) {
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
    }
    return ls_arena_strdup(arena, text);
}

/* ---- add ---- */

typedef struct add_settings {
    const char *registry, *name, *note;
    int kind;
    ls_option_strings parent;
    bool store, json;
} add_settings;

static const ls_option add_options[] = {
    LS_ROW_TEXT(add_settings, name, NULL,
                "name under which the new version is added; letters, digits, '.', '_' and '-'",
                .value_needed = true),
    LS_ROW_CHOICE(add_settings, kind, "auto", ls_registry_entry_kind_names,
                  "kind of the entry; auto: found from its files"),
    LS_ROW_TEXTS(add_settings, parent, "REF",
                 "entry that this one was made from, such as base@3; may be repeated. Those of a run's "
                 "checkpoint are found from its run file, if they are in the registry"),
    LS_ROW_BOOL(add_settings, store,
                "store the files in the registry; without it, the entry has only their path and digests"),
    LS_ROW_TEXT(add_settings, note, "TEXT", "remark that is kept with the entry"),
    LS_ROW_REGISTRY(add_settings),
    LS_ROW_JSON(add_settings),
};

static void print_added(const ls_invocation *invocation, const ls_registry_added *added)
{
    const add_settings *settings = invocation->settings;
    const ls_registry_found *f = &added->found;
    const char *label = ls_registry_label(invocation->arena, f);
    if (settings->json) {
        json_t *root = ls_registry_found_to_json(f);
        json_object_set_new(root, "new", json_boolean(added->is_new));
        json_object_set_new(root, "new_bytes", json_integer((json_int_t)added->stored.new_bytes));
        ls_print_json(root);
        json_decref(root);
        return;
    }
    printf("%s %s: %s, %zu file%s, %.1f MB", label, added->is_new ? "added" : "has this content already",
           ls_registry_entry_kind_names[f->entry.kind], f->entry.file_count,
           f->entry.file_count == 1 ? "" : "s", (double)ls_registry_entry_bytes(&f->entry) / 1e6);
    if (settings->store) {
        printf(", %.1f MB of it new to the registry", (double)added->stored.new_bytes / 1e6);
    }
    printf("\n  entry %s\n", f->digest);
    for (size_t i = 0; i < f->entry.parent_count; i++) {
        printf("  %s %.16s\n", f->entry.parents[i].as, f->entry.parents[i].digest);
    }
}

static ls_status run_add(const ls_invocation *invocation)
{
    const add_settings *settings = invocation->settings;
    ls_registry *registry = NULL;
    ls_registry_added added;
    if (!settings->name[0]) {
        return ls_fail(LS_ERR_INVALID, "--name is missing: the name under which %s is to be found",
                       invocation->words[0]);
    }
    LS_TRY(ls_registry_open(settings->registry, NULL, &registry));
    const ls_registry_add_options options = {.path = invocation->words[0],
                                             .name = settings->name,
                                             .kind = (ls_registry_entry_kind)settings->kind,
                                             .parents = settings->parent.items,
                                             .parent_count = (size_t)settings->parent.count,
                                             .store = settings->store,
                                             .note = settings->note};
    const ls_status status = ls_registry_add(registry, invocation->arena, &options, &added);
    if (status == LS_OK) {
        print_added(invocation, &added);
        ls_registry_entry_release(&added.found.entry);
    }
    ls_registry_close(registry);
    return status;
}

const ls_command ls_command_registry_add = {
    .name = "registry add",
    LS_WORDS("PATH", 1, 1),
    .summary = "add a model, data set or evaluation to the registry",
    .details = "PATH is a run directory (its newest checkpoint is added), a checkpoint, a folder or\n"
               "a file. It becomes the next version of --name, in stage candidate. The entry\n"
               "of a checkpoint records the digests of the run file and of the data, the metrics,\n"
               "and the base model and data sets, if they are in the registry.\n"
               "\n"
               "With --store, files are cut into chunks that are kept once: models that share\n"
               "tensors share their bytes.\n"
               "\n"
               "Examples:\n"
               "  lockstep registry add corpus/ --name corpus --kind data\n"
               "  lockstep registry add runs/mine --name assistant --store\n"
               "  lockstep registry add scores.json --name scores --kind evaluation --parent "
               "assistant@3",
    LS_SETTINGS(add_settings, add_options),
    .run = run_add,
};

/* ---- ls ---- */

typedef struct list_settings {
    const char *registry;
    bool json;
} list_settings;

static const ls_option list_options[] = {LS_ROW_REGISTRY(list_settings), LS_ROW_JSON(list_settings)};

typedef struct listed {
    json_t *rows;
    ls_table table;
} listed;

static ls_status list_version(void *context, ls_registry_found *found, ls_status status)
{
    listed *l = context;
    ls_table *table = &l->table;
    const ls_registry_entry *e = &found->entry;
    LS_TRY(status);
    json_array_append_new(l->rows, ls_registry_found_to_json(found));
    ls_table_add(table, ls_registry_label(table->arena, found));
    ls_table_add(table, ls_registry_entry_kind_names[e->kind]);
    ls_table_add(table, ls_registry_stage_names[found->stage]);
    ls_table_printf(table, "%.1f", (double)ls_registry_entry_bytes(e) / 1e6);
    ls_table_add(table, e->stored ? "registry" : "its path");
    ls_table_add(table, ls_registry_time(table->arena, e->when_s));
    ls_table_add(table, e->who);
    ls_table_printf(table, "%.12s", found->digest);
    return LS_OK;
}

static ls_status run_ls(const ls_invocation *invocation)
{
    static const char *const titles[] = {"VERSION",  "KIND",        "STAGE", "MB",
                                         "BYTES IN", "ADDED (UTC)", "BY",    "ENTRY"};
    static const bool right[] = {false, false, false, true, false, false, false, false};
    const list_settings *settings = invocation->settings;
    listed l = {.table = {.titles = titles, .right = right, .columns = 8, .arena = invocation->arena}};
    ls_registry *registry = NULL;
    LS_TRY(ls_registry_open(settings->registry, NULL, &registry));
    l.rows = json_array();
    const ls_status status =
        ls_registry_each(registry, invocation->arena,
                         invocation->word_count > 0 ? invocation->words[0] : NULL, list_version, &l);
    if (status == LS_OK && settings->json) {
        json_t *root = json_pack("{s:s, s:O}", "registry", ls_registry_address(registry), "versions", l.rows);
        ls_print_json(root);
        json_decref(root);
    } else if (status == LS_OK && l.table.count == 0) {
        printf("%s is empty; 'lockstep registry add' adds to it\n", ls_registry_address(registry));
    } else if (status == LS_OK) {
        ls_table_print(&l.table);
    }
    json_decref(l.rows);
    ls_registry_close(registry);
    return status;
}

const ls_command ls_command_registry_ls = {
    .name = "registry ls",
    LS_WORDS("[NAME]", 0, 1),
    .summary = "list what is in the registry",
    .details = "Lists all versions of all names, or those of NAME.\n"
               "\n"
               "Examples:\n"
               "  lockstep registry ls\n"
               "  lockstep registry ls assistant --json",
    LS_SETTINGS(list_settings, list_options),
    .run = run_ls,
};

/* ---- show ---- */

static json_t *history_to_json(const ls_name *name, uint32_t version)
{
    json_t *list = json_array();
    for (size_t i = 0; i < name->record_count; i++) {
        const ls_name_record *r = &name->records[i];
        if (r->version == version) {
            json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:s}", "stage",
                                                  ls_registry_stage_names[r->stage], "who", r->who, "when",
                                                  r->when_s, "note", r->note));
        }
    }
    return list;
}

static void show_json(const ls_registry_found *found, const ls_name *name)
{
    json_t *root = ls_registry_found_to_json(found);
    json_object_set_new(root, "files", ls_registry_entry_files(&found->entry, NULL));
    json_object_set_new(root, "history", history_to_json(name, found->version));
    ls_print_json(root);
    json_decref(root);
}

static void print_safe(const char *before, const char *words)
{
    ls_text text = {0};
    ls_text_append_printable(&text, words, strlen(words), "");
    printf("%s%s\n", before, ls_text_string(&text));
    ls_text_release(&text);
}

static void show_words(ls_arena *arena, const ls_registry_found *found, const ls_name *name)
{
    const char *facts[64];
    const ls_registry_entry *e = &found->entry;
    const size_t count = ls_lineage_facts(arena, e, facts, sizeof facts / sizeof facts[0]);
    printf("%s: %s, %s\n  entry %s\n", ls_registry_label(arena, found), ls_registry_entry_kind_names[e->kind],
           ls_registry_stage_names[found->stage], found->digest);
    print_safe(e->stored ? "  stored; made from " : "  refers to ", e->path);
    print_safe("  by ", ls_arena_printf(arena, "%s, %s UTC", e->who, ls_registry_time(arena, e->when_s)));
    for (size_t i = 0; i < count; i++) {
        print_safe("  ", facts[i]);
    }
    for (size_t i = 0; i < e->file_count; i++) {
        print_safe("  ", ls_arena_printf(arena, "%12" PRIu64 " bytes  sha256 %.16s  %s", e->files[i].bytes,
                                         e->files[i].sha256, e->files[i].name));
    }
    for (size_t i = 0; i < name->record_count; i++) {
        const ls_name_record *r = &name->records[i];
        if (r->version == found->version) {
            print_safe("  ", ls_arena_printf(
                                 arena, "%s UTC  %s by %s%s%s", ls_registry_time(arena, r->when_s),
                                 ls_registry_stage_names[r->stage], r->who, r->note[0] ? ": " : "", r->note));
        }
    }
}

static ls_status run_show(const ls_invocation *invocation)
{
    const list_settings *settings = invocation->settings;
    ls_registry *registry = NULL;
    ls_registry_found found;
    ls_name name;
    LS_TRY(ls_registry_open_word(invocation, settings->registry, &registry, &found));
    const ls_status status = ls_name_read(ls_registry_blobs(registry), invocation->arena, found.name, &name);
    if (status == LS_OK) {
        settings->json ? show_json(&found, &name) : show_words(invocation->arena, &found, &name);
    }
    ls_registry_entry_release(&found.entry);
    ls_registry_close(registry);
    return status;
}

#define REFERENCES                                                                                           \
    "REF is NAME (its newest version that is not retired), NAME@3, NAME@approved (the\n"                     \
    "newest in that stage), or the first 6 or more digits of an entry's digest.\n"

const ls_command ls_command_registry_show = {
    .name = "registry show",
    LS_WORDS("REF", 1, 1),
    .summary = "show an entry of the registry",
    .details = REFERENCES "Shows its files with their digests, the run it came from, and the history of its\n"
                          "stages.\n"
                          "\n"
                          "Example:\n"
                          "  lockstep registry show assistant@approved",
    LS_SETTINGS(list_settings, list_options),
    .run = run_show,
};

/* ---- get ---- */

typedef struct get_settings {
    const char *registry, *output;
} get_settings;

static const ls_option get_options[] = {LS_ROW_OUTPUT_DIR(get_settings), LS_ROW_REGISTRY(get_settings)};

static ls_status run_get(const ls_invocation *invocation)
{
    const get_settings *settings = invocation->settings;
    ls_registry *registry = NULL;
    ls_registry_found found;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "--output DIR is missing: the new folder for the files");
    }
    LS_TRY(ls_registry_open_word(invocation, settings->registry, &registry, &found));
    const ls_status status = ls_registry_get(registry, invocation->arena, &found, settings->output);
    if (status == LS_OK) {
        printf("%s: %s, %zu file%s, %.1f MB\n", settings->output,
               ls_registry_label(invocation->arena, &found), found.entry.file_count,
               found.entry.file_count == 1 ? "" : "s", (double)ls_registry_entry_bytes(&found.entry) / 1e6);
    }
    ls_registry_entry_release(&found.entry);
    ls_registry_close(registry);
    return status;
}

const ls_command ls_command_registry_get = {
    .name = "registry get",
    LS_WORDS("REF", 1, 1),
    .summary = "fetch an entry's files from the registry",
    .details =
        REFERENCES "The folder appears when all files have arrived and match the digests of the entry.\n"
                   "Its file registry.json names the entry, so that a model trained from this folder\n"
                   "gets the entry as its parent.\n"
                   "\n"
                   "Example:\n"
                   "  lockstep registry get assistant@approved -o assistant",
    LS_SETTINGS(get_settings, get_options),
    .run = run_get,
};

/* ---- promote ---- */

typedef struct promote_settings {
    const char *registry, *note;
} promote_settings;

static const ls_option promote_options[] = {
    LS_ROW_TEXT(promote_settings, note, "TEXT", "reason for the change, kept in the history"),
    LS_ROW_REGISTRY(promote_settings),
};

static ls_status run_promote(const ls_invocation *invocation)
{
    const promote_settings *settings = invocation->settings;
    ls_registry_stage stage = LS_STAGE_CANDIDATE;
    ls_registry *registry = NULL;
    ls_registry_found found;
    while (stage < LS_STAGES && strcmp(invocation->words[1], ls_registry_stage_names[stage]) != 0) {
        stage++;
    }
    if (stage == LS_STAGES) {
        return ls_fail(LS_ERR_INVALID, "there is no stage '%s': it is candidate, approved or retired",
                       invocation->words[1]);
    }
    LS_TRY(ls_registry_open(settings->registry, NULL, &registry));
    const ls_status status =
        ls_registry_promote(registry, invocation->arena, invocation->words[0], stage, settings->note, &found);
    if (status == LS_OK) {
        printf("%s is %s\n", ls_registry_label(invocation->arena, &found), ls_registry_stage_names[stage]);
        ls_registry_entry_release(&found.entry);
    }
    ls_registry_close(registry);
    return status;
}

const ls_command ls_command_registry_promote = {
    .name = "registry promote",
    LS_WORDS("REF STAGE", 2, 2),
    .summary = "approve or retire a version in the registry",
    .details =
        REFERENCES "STAGE is candidate, approved or retired. The history keeps who did it, and when.\n"
                   "\n"
                   "Examples:\n"
                   "  lockstep registry promote assistant@3 approved --note 'best of five on our tasks'\n"
                   "  lockstep registry promote assistant@2 retired",
    LS_SETTINGS(promote_settings, promote_options),
    .run = run_promote,
};

/* ---- export ---- */

typedef struct export_settings {
    const char *registry, *mlflow;
} export_settings;

static const ls_option export_options[] = {
    LS_ROW_TEXT(export_settings, mlflow, "DIR",
                "folder of an MLflow model registry, new or with other models and versions"),
    LS_ROW_REGISTRY(export_settings),
};

static ls_status run_export(const ls_invocation *invocation)
{
    const export_settings *settings = invocation->settings;
    ls_registry *registry = NULL;
    ls_registry_found found;
    if (!settings->mlflow[0]) {
        return ls_fail(LS_ERR_INVALID, "--mlflow DIR is missing: the folder to write to");
    }
    LS_TRY(ls_registry_open_word(invocation, settings->registry, &registry, &found));
    const ls_status status = ls_registry_export_mlflow(registry, invocation->arena, &found, settings->mlflow);
    if (status == LS_OK) {
        printf("%s: %s as models:/%s/%u\n", settings->mlflow, ls_registry_label(invocation->arena, &found),
               found.name, found.version);
    }
    ls_registry_entry_release(&found.entry);
    ls_registry_close(registry);
    return status;
}

const ls_command ls_command_registry_export = {
    .name = "registry export",
    LS_WORDS("REF", 1, 1),
    .summary = "write a version for MLflow's model registry",
    .details =
        REFERENCES "Writes the entry's files with an MLmodel file, and the records of a registered model\n"
                   "as MLflow keeps them. Approved versions get the stage Production, retired ones the\n"
                   "stage Archived.\n"
                   "\n"
                   "Example:\n"
                   "  lockstep registry export assistant@approved --mlflow mlruns",
    LS_SETTINGS(export_settings, export_options),
    .run = run_export,
};
