// SPDX-License-Identifier: Apache-2.0
/* Adding an entry: its parents, its bytes, its name. */
#include "storage/registry/registry.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "storage/checkpoint/checkpoint.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

/* ---- parents ---- */

static void add_parent(ls_registry_entry *entry, const ls_registry_found *found, const char *as)
{
    const char *digest = found->digest;
    if (found->stage == LS_STAGE_RETIRED) {
        ls_log_warn("%s@%u, which %s was made from, is retired", found->name, found->version, entry->name);
    }
    for (size_t i = 0; i < entry->parent_count; i++) {
        if (strcmp(entry->parents[i].digest, digest) == 0) {
            return;
        }
    }
    if (entry->parent_count < LS_ENTRY_PARENTS_MAX) {
        ls_registry_entry_parent *parent = &entry->parents[entry->parent_count++];
        memcpy(parent->digest, digest, sizeof parent->digest);
        parent->as = as;
    }
}

static const char *place_of(ls_arena *arena, const char *path)
{
    char sha256[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(path, strlen(path), sha256);
    return ls_arena_printf(arena, "places/%s/", sha256);
}

/* A file's time is coarser than the entry's. */
static bool is_older(const struct stat *info, double when_s)
{
    return (double)info->st_mtim.tv_sec + 1e-9 * (double)info->st_mtim.tv_nsec + 0.1 < when_s;
}

/* Whether the files of an entry are at its path, and for data no others. One that was written since
 * then is read. */
static bool is_as_it_was(ls_arena *arena, const ls_registry_entry *entry)
{
    size_t count = entry->file_count;
    bool same = entry->kind != LS_ENTRY_DATA || !ls_path_is_dir(entry->path) ||
                (ls_survey_count(arena, entry->path, &count) == LS_OK && count == entry->file_count);
    for (size_t i = 0; same && i < entry->file_count; i++) {
        const ls_registry_entry_file *file = &entry->files[i];
        const char *path = ls_survey_path(arena, entry, file);
        ls_registry_entry_file now;
        struct stat info;
        same = stat(path, &info) == 0 && (uint64_t)info.st_size == file->bytes &&
               (is_older(&info, entry->when_s) ||
                (ls_survey_hash(path, &now) == LS_OK && strcmp(now.sha256, file->sha256) == 0));
    }
    return same;
}

/* The newest entry made from this very path whose files are what they were. */
static bool find_place(ls_registry *registry, ls_arena *arena, const char *path, ls_registry_found *best)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    const char *place = place_of(arena, path);
    *best = (ls_registry_found){0};
    if (ls_blob_list(ls_registry_blobs(registry), arena, place, true, &entries, &count) != LS_OK) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        ls_registry_found found;
        const char *digest = entries[i].key + strlen(place);
        if (ls_hash_is_hex(digest, LS_SHA256_HEX_BYTES - 1) &&
            ls_registry_load(registry, arena, digest, &found) == LS_OK) {
            const bool better = found.version > 0 && found.entry.when_s > best->entry.when_s &&
                                is_as_it_was(arena, &found.entry);
            ls_registry_entry_release(better ? &best->entry : &found.entry);
            *best = better ? found : *best;
        }
    }
    return best->version > 0;
}

/* The receipt in a folder that ls_registry_get made. */
static bool find_receipt(ls_registry *registry, ls_arena *arena, const char *folder, ls_registry_found *found)
{
    json_t *receipt = NULL;
    bool is_found = false;
    if (ls_json_load(ls_path_join(arena, folder, LS_REGISTRY_RECEIPT), 1 << 20, &receipt) == LS_OK) {
        const char *digest = json_string_value(json_object_get(receipt, "entry"));
        is_found = digest && ls_hash_is_hex(digest, LS_SHA256_HEX_BYTES - 1) &&
                   ls_registry_load(registry, arena, digest, found) == LS_OK;
        json_decref(receipt);
    }
    return is_found;
}

bool ls_registry_find_path(ls_registry *registry, ls_arena *arena, const char *path, bool is_data,
                           ls_registry_found *found)
{
    const char *checkpoint = NULL;
    const char *real = ls_path_real(arena, path), *whole = real ? real : path;
    bool is_found = find_place(registry, arena, whole, found) || find_receipt(registry, arena, whole, found);
    if (!is_found && ls_path_is_dir(whole) && ls_checkpoint_resolve(arena, whole, &checkpoint) == LS_OK) {
        is_found = find_place(registry, arena, checkpoint, found);
    }
    /* Of data, the folder they are in, or one around that (`data prepare`). */
    for (int level = 0; level < 3 && !is_found && is_data; level++) {
        whole = ls_path_dirname(arena, whole);
        const char *folder = ls_path_real(arena, whole);
        is_found = folder && (find_place(registry, arena, folder, found) ||
                              find_receipt(registry, arena, folder, found));
    }
    ls_error_clear();
    return is_found;
}

/* Those of the sources that the registry knows; the others go to `unknown`. */
static void add_sources(ls_registry *registry, ls_arena *arena, const ls_survey_source *sources, size_t count,
                        ls_registry_entry *entry, json_t *unknown)
{
    ls_registry_found found;
    for (size_t i = 0; i < count && sources[i].path; i++) {
        const ls_survey_source *s = &sources[i];
        if (ls_registry_find_path(registry, arena, s->path, strcmp(s->as, "data") == 0, &found)) {
            add_parent(entry, &found, s->as);
            ls_registry_entry_release(&found.entry);
        } else {
            json_array_append_new(unknown, json_pack("{s:s, s:s}", "path", s->path, "as", s->as));
        }
    }
}

/* Those that were asked for, then those that it was made from and the registry knows. */
static ls_status find_parents(ls_registry *registry, ls_arena *arena, const ls_registry_add_options *options,
                              const ls_survey_source *sources, ls_registry_entry *entry)
{
    ls_registry_found found;
    json_t *unknown = json_array();
    entry->parents = ls_arena_new(arena, ls_registry_entry_parent, LS_ENTRY_PARENTS_MAX);
    json_object_set_new(entry->facts, "sources", unknown);
    for (size_t i = 0; i < options->parent_count; i++) {
        const ls_status status = ls_registry_find(registry, arena, options->parents[i], &found);
        LS_TRY(status == LS_OK ? LS_OK : ls_fail_within(status, "parent %s", options->parents[i]));
        add_parent(entry, &found, found.entry.kind == LS_ENTRY_DATA ? "data" : "parent");
        ls_registry_entry_release(&found.entry);
    }
    add_sources(registry, arena, sources, SIZE_MAX, entry, unknown);
    add_sources(registry, arena, options->sources, options->source_count, entry, unknown);
    return LS_OK;
}

/* ---- adding ---- */

static bool same_content(const ls_registry_entry *a, const ls_registry_entry *b)
{
    bool same = a->kind == b->kind && a->stored == b->stored && a->file_count == b->file_count &&
                a->parent_count == b->parent_count && strcmp(a->path, b->path) == 0 &&
                (a->file_count > 0 ||
                 json_equal(json_object_get(a->facts, "metrics"), json_object_get(b->facts, "metrics")));
    for (size_t i = 0; same && i < a->file_count; i++) {
        same = strcmp(a->files[i].name, b->files[i].name) == 0 &&
               strcmp(a->files[i].sha256, b->files[i].sha256) == 0;
    }
    for (size_t i = 0; same && i < a->parent_count; i++) {
        same = strcmp(a->parents[i].digest, b->parents[i].digest) == 0;
    }
    return same;
}

typedef struct sought {
    const ls_registry_entry *entry;
    ls_registry_found *newest; /* the newest version that has its content; 0: none */
} sought;

static ls_status hear_same(void *context, ls_registry_found *found, ls_status status)
{
    const sought *s = context;
    if (status == LS_OK && same_content(s->entry, &found->entry)) {
        ls_registry_entry_release(&s->newest->entry);
        *s->newest = *found;
        found->entry.facts = NULL;
    }
    return status;
}

static ls_status put_mark(ls_registry *registry, const char *key)
{
    bool stored = false;
    return ls_blob_put_new(ls_registry_blobs(registry), key, "", 0, &stored);
}

static ls_status prepare_version(void *context, const ls_name *name, ls_name_record *record)
{
    record->is_version = true;
    record->version = name->version_count + 1;
    memcpy(record->digest, context, sizeof record->digest);
    return LS_OK;
}

static ls_status put_entry(ls_registry *registry, ls_arena *arena, ls_registry_entry *entry,
                           ls_registry_found *found)
{
    const char *text = NULL;
    size_t bytes = 0;
    bool stored = false;
    ls_name_record record;
    LS_TRY(ls_registry_entry_encode(arena, entry, &text, &bytes));
    ls_sha256_hex(text, bytes, found->digest);
    for (size_t i = 0; i < entry->parent_count; i++) {
        LS_TRY(put_mark(registry,
                        ls_arena_printf(arena, "children/%s/%s", entry->parents[i].digest, found->digest)));
    }
    if (entry->path[0]) {
        LS_TRY(
            put_mark(registry, ls_arena_printf(arena, "%s%s", place_of(arena, entry->path), found->digest)));
    }
    LS_TRY(ls_blob_put_new(ls_registry_blobs(registry),
                           ls_arena_printf(arena, "entries/%s.json", found->digest), text, bytes, &stored));
    LS_TRY(ls_name_append(ls_registry_blobs(registry), arena, entry->name, prepare_version, found->digest,
                          &record));
    found->name = entry->name;
    found->version = record.version;
    found->stage = record.stage;
    found->entry = *entry;
    return LS_OK;
}

static ls_status store_files(ls_registry *registry, ls_arena *arena, const ls_registry_entry *entry,
                             ls_chunks_stored *stored)
{
    for (size_t i = 0; i < entry->file_count; i++) {
        const ls_registry_entry_file *file = &entry->files[i];
        LS_TRY(ls_chunks_put(ls_registry_chunks(registry), ls_survey_path(arena, entry, file), file, stored));
    }
    return LS_OK;
}

const char *ls_registry_name_of(ls_arena *arena, const char *path)
{
    const char *whole = ls_path_trim(arena, path), *last = ls_path_basename(whole);
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        const char *real = ls_path_real(arena, whole);
        last = ls_path_basename(real ? real : last);
    }
    char *name = ls_arena_printf(arena, "%.*s", LS_ENTRY_NAME_BYTES_MAX, last);
    for (char *at = name; *at; at++) {
        *at = isalnum((unsigned char)*at) || strchr("-_.", *at) ? *at : '-';
    }
    return isalnum((unsigned char)name[0]) ? name : ls_arena_printf(arena, "x%.100s", name);
}

/* mark: of this process as a writer. */
static ls_status add(ls_registry *registry, ls_arena *arena, const ls_registry_add_options *options,
                     const char *mark, ls_registry_entry *entry, ls_registry_added *added)
{
    const char *text = NULL;
    size_t bytes = 0;
    ls_survey_source none = {0}, *sources = &none;
    LS_TRY(options->path ? ls_survey(arena, options->path, entry, &sources) : LS_OK);
    LS_TRY(find_parents(registry, arena, options, sources, entry));
    json_object_update(entry->facts, options->facts);
    if (options->note && *options->note) {
        json_object_set_new(entry->facts, "note", json_string(options->note));
    }
    /* Sorts the files, and refuses bad names early. */
    LS_TRY(ls_registry_entry_encode(arena, entry, &text, &bytes));
    if (entry->stored) {
        LS_TRY(store_files(registry, arena, entry, &added->stored));
        LS_TRY(ls_registry_check_mark(registry, mark));
    }
    LS_TRY(ls_registry_each(registry, arena, entry->name, hear_same, &(sought){entry, &added->found}));
    added->is_new = added->found.version == 0;
    if (!added->is_new) {
        ls_registry_entry_release(entry);
        return LS_OK;
    }
    return put_entry(registry, arena, entry, &added->found);
}

ls_status ls_registry_add(ls_registry *registry, ls_arena *arena, const ls_registry_add_options *options,
                          ls_registry_added *added_out)
{
    const char *mark = NULL;
    ls_registry_added added = {0};
    const char *name = options->name ? options->name : ls_registry_name_of(arena, options->path);
    LS_TRY(ls_registry_entry_check_name(name));
    LS_TRY(ls_registry_begin(registry, arena, &mark));
    ls_registry_entry entry = {.kind = options->kind,
                               .name = name,
                               .path = "",
                               .stored = options->store,
                               .who = ls_registry_who(arena),
                               .code = "lockstep " LS_VERSION,
                               .when_s = ls_clock_wall_s(),
                               .facts = json_object()};
    const ls_status status = add(registry, arena, options, mark, &entry, &added);
    const char *reason = ls_arena_strdup(arena, ls_error_text());
    const ls_status ended = ls_registry_end(registry, mark);
    if (status == LS_OK && ended == LS_OK) {
        *added_out = added;
        return LS_OK;
    }
    ls_registry_entry_release(&added.found.entry);
    if (status == LS_OK) {
        return ended;
    }
    ls_registry_entry_release(&entry);
    return ls_fail(status, "%s", reason);
}
