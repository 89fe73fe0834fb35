// SPDX-License-Identifier: Apache-2.0
#include "storage/registry/entry.h"

#include "storage/blob/blob.h"

#include <stdlib.h>
#include <string.h>

#define FORMAT "lockstep-registry-entry"

const char *const ls_registry_entry_kind_names[LS_ENTRY_KINDS + 2] = {
    "model", "adapter", "data", "tokenizer", "evaluation", "auto", NULL};

void ls_registry_entry_release(ls_registry_entry *entry)
{
    json_decref(entry->facts);
    entry->facts = NULL;
}

uint64_t ls_registry_entry_bytes(const ls_registry_entry *entry)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < entry->file_count; i++) {
        bytes += entry->files[i].bytes;
    }
    return bytes;
}

ls_status ls_registry_entry_check_name(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes > LS_ENTRY_NAME_BYTES_MAX || strspn(name, letters) != bytes ||
        strchr("-_.", name[0])) {
        return ls_fail(LS_ERR_INVALID,
                       "'%.200s' is not a name for the registry: allowed are letters, digits, '.', '_' and "
                       "'-', the first one a letter or digit, %d at most",
                       name, LS_ENTRY_NAME_BYTES_MAX);
    }
    return LS_OK;
}

/* ---- writing ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ls_registry_entry_file *)a)->name, ((const ls_registry_entry_file *)b)->name);
}

json_t *ls_registry_entry_files(const ls_registry_entry *entry, const char **bad_out)
{
    json_t *list = json_array();
    for (size_t i = 0; i < entry->file_count; i++) {
        const ls_registry_entry_file *f = &entry->files[i];
        json_t *row =
            json_pack("{s:s, s:I, s:s}", "name", f->name, "bytes", (json_int_t)f->bytes, "sha256", f->sha256);
        if (!row && bad_out) {
            *bad_out = f->name;
        }
        json_array_append_new(list, row);
    }
    return list;
}

json_t *ls_registry_entry_parents(const ls_registry_entry *entry)
{
    json_t *list = json_array();
    for (size_t i = 0; i < entry->parent_count; i++) {
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "entry", entry->parents[i].digest, "as", entry->parents[i].as));
    }
    return list;
}

ls_status ls_registry_entry_encode(ls_arena *arena, ls_registry_entry *entry, const char **text_out,
                                   size_t *bytes_out)
{
    const char *bad = NULL;
    if (entry->file_count > 0) { /* an evaluation has none */
        qsort(entry->files, entry->file_count, sizeof *entry->files, by_name);
    }
    for (size_t i = 0; i < entry->file_count; i++) {
        LS_TRY(ls_blob_check_key(entry->files[i].name));
    }
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:o, s:o, s:s, s:f, s:s, s:O}", "format", FORMAT, "version",
                  1, "kind", ls_registry_entry_kind_names[entry->kind], "name", entry->name, "path",
                  entry->path, "stored", entry->stored, "files", ls_registry_entry_files(entry, &bad),
                  "parents", ls_registry_entry_parents(entry), "who", entry->who, "when", entry->when_s,
                  "code", entry->code, "facts", entry->facts);
    char *text = root && !bad ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text) {
        return ls_fail(LS_ERR_INVALID, "%s: the name of %s is not UTF-8; rename it", entry->path,
                       bad ? bad : "the folder, of a parent or of the user");
    }
    *bytes_out = strlen(text);
    *text_out = ls_arena_strndup(arena, text, *bytes_out);
    free(text);
    return LS_OK;
}

/* ---- reading ---- */

static ls_status get_text(ls_arena *arena, const json_t *object, const char *name, const char *key,
                          const char **text_out)
{
    const char *text = NULL;
    LS_TRY(ls_json_get_string(object, name, key, NULL, &text));
    if (!text) {
        return ls_fail(LS_ERR_DATA, "%s: %s is missing", name, key);
    }
    *text_out = ls_arena_strdup(arena, text);
    return LS_OK;
}

static ls_status get_digest(const json_t *object, const char *name, const char *key,
                            char digest_out[LS_SHA256_HEX_BYTES])
{
    const char *text = NULL;
    LS_TRY(ls_json_get_string(object, name, key, "", &text));
    if (!ls_hash_is_hex(text, LS_SHA256_HEX_BYTES - 1)) {
        return ls_fail(LS_ERR_DATA, "%s: %s is not a SHA-256 of 64 hexadecimal digits", name, key);
    }
    memcpy(digest_out, text, LS_SHA256_HEX_BYTES);
    return LS_OK;
}

static ls_status read_files(ls_arena *arena, const json_t *list, const char *name, ls_registry_entry *entry)
{
    uint64_t sum = 0;
    entry->file_count = json_array_size(list);
    entry->files = ls_arena_new(arena, ls_registry_entry_file, entry->file_count + 1);
    for (size_t i = 0; i < entry->file_count; i++) {
        const json_t *row = json_array_get(list, i);
        ls_registry_entry_file *f = &entry->files[i];
        LS_TRY(get_text(arena, row, name, "name", &f->name));
        LS_TRY(ls_json_get_u64(row, name, "bytes", 0, INT64_MAX, 0, &f->bytes));
        LS_TRY(get_digest(row, name, "sha256", f->sha256));
        if (ls_blob_check_key(f->name) != LS_OK) {
            return ls_fail_within(LS_ERR_DATA, "%s", name);
        }
        if (i > 0 && strcmp(f[-1].name, f->name) >= 0) {
            return ls_fail(LS_ERR_DATA, "%s: files are not sorted, or %s is there twice", name, f->name);
        }
        sum += f->bytes;
        if (sum > INT64_MAX) {
            return ls_fail(LS_ERR_DATA, "%s: the sizes of the files are out of range", name);
        }
    }
    return LS_OK;
}

static ls_status read_parents(ls_arena *arena, const json_t *list, const char *name, ls_registry_entry *entry)
{
    entry->parent_count = json_array_size(list);
    if (entry->parent_count > LS_ENTRY_PARENTS_MAX) {
        return ls_fail(LS_ERR_DATA, "%s has %zu parents, %d are allowed", name, entry->parent_count,
                       LS_ENTRY_PARENTS_MAX);
    }
    entry->parents = ls_arena_new(arena, ls_registry_entry_parent, entry->parent_count + 1);
    for (size_t i = 0; i < entry->parent_count; i++) {
        const json_t *row = json_array_get(list, i);
        LS_TRY(get_digest(row, name, "entry", entry->parents[i].digest));
        LS_TRY(get_text(arena, row, name, "as", &entry->parents[i].as));
    }
    return LS_OK;
}

static ls_status read_kind(const json_t *root, const char *name, ls_registry_entry_kind *kind_out)
{
    const char *text = NULL;
    LS_TRY(ls_json_get_string(root, name, "kind", "", &text));
    for (int k = 0; k < LS_ENTRY_KINDS; k++) {
        if (strcmp(text, ls_registry_entry_kind_names[k]) == 0) {
            *kind_out = (ls_registry_entry_kind)k;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_DATA, "%s: there is no kind '%.40s'", name, text);
}

static ls_status read_head(const json_t *root, const char *name)
{
    const char *format = NULL;
    uint64_t version = 0;
    LS_TRY(ls_json_get_string(root, name, "format", "", &format));
    if (strcmp(format, FORMAT) != 0) {
        return ls_fail(LS_ERR_DATA, "%s is not an entry of a registry: its format is '%.40s'", name, format);
    }
    LS_TRY(ls_json_get_u64(root, name, "version", 0, INT64_MAX, 0, &version));
    return version == 1 ? LS_OK
                        : ls_fail(LS_ERR_UNSUPPORTED,
                                  "%s has version %llu of the format, this program reads 1; use a newer one",
                                  name, (unsigned long long)version);
}

static ls_status read_entry(ls_arena *arena, const json_t *root, const char *name, ls_registry_entry *e)
{
    LS_TRY(read_head(root, name));
    LS_TRY(read_kind(root, name, &e->kind));
    LS_TRY(get_text(arena, root, name, "name", &e->name));
    if (ls_registry_entry_check_name(e->name) != LS_OK) {
        return ls_fail_within(LS_ERR_DATA, "%s", name);
    }
    LS_TRY(get_text(arena, root, name, "path", &e->path));
    LS_TRY(get_text(arena, root, name, "who", &e->who));
    LS_TRY(get_text(arena, root, name, "code", &e->code));
    LS_TRY(ls_json_get_bool(root, name, "stored", false, &e->stored));
    LS_TRY(ls_json_get_f64(root, name, "when", 0.0, 1e12, 0.0, &e->when_s));
    LS_TRY(read_files(arena, json_object_get(root, "files"), name, e));
    LS_TRY(read_parents(arena, json_object_get(root, "parents"), name, e));
    json_t *facts = json_object_get(root, "facts");
    if (!json_is_object(facts)) {
        return ls_fail(LS_ERR_DATA, "%s: facts is not an object", name);
    }
    e->facts = json_incref(facts);
    return LS_OK;
}

ls_status ls_registry_entry_decode(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                   ls_registry_entry *entry_out)
{
    json_t *root = NULL;
    ls_registry_entry entry = {0};
    LS_TRY(ls_json_parse(text, bytes, name, &root));
    const ls_status status = read_entry(arena, root, name, &entry);
    json_decref(root);
    LS_TRY(status);
    *entry_out = entry;
    return LS_OK;
}
