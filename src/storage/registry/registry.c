// SPDX-License-Identifier: Apache-2.0
/* Opening and finding; stages. */
#include "storage/registry/registry.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, PREFIX_DIGITS_MIN = 6 };

struct ls_registry {
    ls_blob_store *blobs;
    ls_chunk_store *chunks;
};

static const char *chosen_address(void)
{
    const char *chosen = getenv("LOCKSTEP_REGISTRY");
    return chosen ? chosen : "";
}

bool ls_registry_is_off(void)
{
    return strcmp(chosen_address(), "off") == 0;
}

ls_status ls_registry_open(const char *address, const ls_blob_options *options, ls_registry **registry_out)
{
    ls_arena arena = {0};
    const char *chosen = chosen_address();
    address = address && *address ? address : *chosen ? chosen : ls_home_path(&arena, "registry");
    ls_registry *registry = calloc(1, sizeof *registry);
    LS_ASSERT(registry && "not enough memory for a registry");
    const ls_status status =
        !address ? ls_fail(LS_ERR_INVALID, "no folder is known for the registry: set LOCKSTEP_REGISTRY, "
                                           "LOCKSTEP_HOME or HOME")
        : strcmp(address, "off") == 0
            ? ls_fail(LS_ERR_INVALID, "LOCKSTEP_REGISTRY is off: set it to a folder or s3://BUCKET/PREFIX")
            : ls_blob_open(address, options, &registry->blobs);
    ls_arena_release(&arena);
    if (status != LS_OK) {
        free(registry);
        return status;
    }
    registry->chunks = ls_chunk_store_create(registry->blobs, THREADS);
    *registry_out = registry;
    return LS_OK;
}

void ls_registry_close(ls_registry *registry)
{
    if (registry) {
        ls_chunk_store_destroy(registry->chunks);
        ls_blob_close(registry->blobs);
        free(registry);
    }
}

const char *ls_registry_address(const ls_registry *registry)
{
    return ls_blob_address(registry->blobs);
}

ls_blob_store *ls_registry_blobs(const ls_registry *registry)
{
    return registry->blobs;
}

ls_chunk_store *ls_registry_chunks(const ls_registry *registry)
{
    return registry->chunks;
}

/* ---- finding ---- */

static ls_status read_entry(ls_registry *registry, ls_arena *arena, const char *digest,
                            ls_registry_entry *entry_out)
{
    char *text = NULL, sha256[LS_SHA256_HEX_BYTES];
    size_t bytes = 0;
    const char *key = ls_arena_printf(arena, "entries/%s.json", digest);
    const char *where = ls_arena_printf(arena, "%s/%s", ls_registry_address(registry), key);
    LS_TRY(ls_blob_get(registry->blobs, arena, key, LS_ENTRY_BYTES_MAX, &text, &bytes));
    ls_sha256_hex(text, bytes, sha256);
    if (strcmp(sha256, digest) != 0) {
        return ls_fail(LS_ERR_DATA, "%s is damaged: its SHA-256 is %.16s...; bring it back from a copy",
                       where, sha256);
    }
    return ls_registry_entry_decode(arena, text, bytes, where, entry_out);
}

/* The newest version that is this entry. */
static void find_version(const ls_name *name, ls_registry_found *found)
{
    for (uint32_t v = name->version_count; v-- > 0 && found->version == 0;) {
        if (strcmp(name->versions[v].digest, found->digest) == 0) {
            found->version = v + 1;
            found->stage = name->versions[v].stage;
        }
    }
}

ls_status ls_registry_load(ls_registry *registry, ls_arena *arena, const char *digest,
                           ls_registry_found *found_out)
{
    ls_registry_found found = {0};
    ls_name name;
    memcpy(found.digest, digest, sizeof found.digest);
    LS_TRY(read_entry(registry, arena, digest, &found.entry));
    found.name = found.entry.name;
    const ls_status status = ls_name_read(registry->blobs, arena, found.name, &name);
    if (status != LS_OK) {
        ls_registry_entry_release(&found.entry);
        return status;
    }
    find_version(&name, &found);
    *found_out = found;
    return LS_OK;
}

static ls_status each_version(ls_registry *registry, ls_arena *arena, const char *word, ls_registry_hear hear,
                              void *context)
{
    ls_name name;
    ls_status status = ls_name_read(registry->blobs, arena, word, &name);
    LS_TRY(status);
    for (uint32_t v = 0; status == LS_OK && v < name.version_count; v++) {
        ls_registry_found found = {.name = name.name, .version = v + 1, .stage = name.versions[v].stage};
        memcpy(found.digest, name.versions[v].digest, sizeof found.digest);
        const ls_status read = read_entry(registry, arena, found.digest, &found.entry);
        status = hear(context, &found, read);
        ls_registry_entry_release(&found.entry);
    }
    return status;
}

ls_status ls_registry_each(ls_registry *registry, ls_arena *arena, const char *name, ls_registry_hear hear,
                           void *context)
{
    const char **names = NULL;
    size_t count = 0;
    if (name) {
        return each_version(registry, arena, name, hear, context);
    }
    LS_TRY(ls_registry_names(registry->blobs, arena, &names, &count));
    for (size_t i = 0; i < count; i++) {
        LS_TRY(each_version(registry, arena, names[i], hear, context));
    }
    return LS_OK;
}

/* Of a name, the version that `which` (after the @; NULL: none) means; 0: there is none. */
static ls_status choose_version(const ls_name *name, const char *which, uint32_t *version_out)
{
    ls_registry_stage stage = LS_STAGE_CANDIDATE;
    *version_out = 0;
    if (which && strspn(which, "0123456789") == strlen(which)) {
        const unsigned long wanted = strtoul(which, NULL, 10);
        *version_out = wanted <= name->version_count ? (uint32_t)wanted : 0;
        return LS_OK;
    }
    while (which && stage < LS_STAGES && strcmp(which, ls_registry_stage_names[stage]) != 0) {
        stage++;
    }
    if (stage == LS_STAGES) {
        return ls_fail(LS_ERR_INVALID,
                       "%s@%s: after @ comes the number of a version or one of candidate, approved, retired",
                       name->name, which);
    }
    uint32_t v = name->version_count;
    while (v > 0 &&
           (which ? name->versions[v - 1].stage != stage : name->versions[v - 1].stage == LS_STAGE_RETIRED)) {
        v--;
    }
    *version_out = v > 0 || which ? v : name->version_count;
    return LS_OK;
}

static ls_status fail_unknown(ls_registry *registry, ls_arena *arena, const char *name)
{
    const char **names = NULL, *nearest = NULL;
    size_t count = 0, distance = 4;
    LS_TRY(ls_registry_names(registry->blobs, arena, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const size_t d = ls_edit_distance(name, names[i], distance);
        nearest = d < distance ? names[i] : nearest;
        distance = d < distance ? d : distance;
    }
    return ls_fail(LS_ERR_NOT_FOUND, "%s has no '%s'%s%s; 'lockstep registry ls' lists what it has",
                   ls_registry_address(registry), name, nearest ? ", did you mean " : "",
                   nearest ? nearest : "");
}

static ls_status find_prefix(ls_registry *registry, ls_arena *arena, const char *prefix,
                             ls_registry_found *found_out)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_blob_list(registry->blobs, arena, ls_arena_printf(arena, "entries/%s", prefix), true, &entries,
                        &count));
    if (count == 0) {
        return fail_unknown(registry, arena, prefix);
    }
    if (count > 1) {
        return ls_fail(LS_ERR_INVALID, "%zu entries begin with %s, such as %.20s and %.20s: give more digits",
                       count, prefix, entries[0].key + strlen("entries/"),
                       entries[1].key + strlen("entries/"));
    }
    const char *digest =
        ls_arena_strndup(arena, entries[0].key + strlen("entries/"), LS_SHA256_HEX_BYTES - 1);
    if (!ls_hash_is_hex(digest, LS_SHA256_HEX_BYTES - 1)) {
        return ls_fail(LS_ERR_DATA, "%s/%s does not belong there", ls_registry_address(registry),
                       entries[0].key);
    }
    return ls_registry_load(registry, arena, digest, found_out);
}

ls_status ls_registry_find(ls_registry *registry, ls_arena *arena, const char *reference,
                           ls_registry_found *found_out)
{
    const char *at = strchr(reference, '@');
    const char *word = ls_arena_strndup(arena, reference, at ? (size_t)(at - reference) : strlen(reference));
    ls_name name;
    uint32_t version = 0;
    LS_TRY(ls_name_read(registry->blobs, arena, word, &name));
    if (name.version_count == 0) {
        const size_t digits = strlen(word);
        const bool is_digest = !at && digits >= PREFIX_DIGITS_MIN && digits < LS_SHA256_HEX_BYTES &&
                               ls_hash_is_hex(word, digits);
        return is_digest ? find_prefix(registry, arena, word, found_out)
                         : fail_unknown(registry, arena, word);
    }
    LS_TRY(choose_version(&name, at ? at + 1 : NULL, &version));
    if (version == 0) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s: %s has %u version%s, and none is %s", reference, word,
                       name.version_count, name.version_count == 1 ? "" : "s", at ? at + 1 : "");
    }
    ls_registry_found found = {
        .name = name.name, .version = version, .stage = name.versions[version - 1].stage};
    memcpy(found.digest, name.versions[version - 1].digest, sizeof found.digest);
    const ls_status status = read_entry(registry, arena, found.digest, &found.entry);
    if (status == LS_ERR_NOT_FOUND) {
        return ls_fail_within(LS_ERR_DATA, "%s@%u: its record or its entry is damaged; bring it from a copy",
                              word, version);
    }
    LS_TRY(status);
    *found_out = found;
    return LS_OK;
}

/* ---- stages ---- */

typedef struct move {
    const ls_registry_found *found;
    ls_registry_stage stage;
    const char *note;
} move;

static ls_status prepare_move(void *context, const ls_name *name, ls_name_record *record)
{
    const move *m = context;
    (void)name;
    record->version = m->found->version;
    record->stage = m->stage;
    record->note = m->note;
    return LS_OK;
}

ls_status ls_registry_promote(ls_registry *registry, ls_arena *arena, const char *reference,
                              ls_registry_stage stage, const char *note, ls_registry_found *found_out)
{
    ls_registry_found found;
    ls_name_record record;
    LS_TRY(ls_registry_find(registry, arena, reference, &found));
    move m = {&found, stage, note};
    ls_status status = found.version > 0 ? LS_OK
                                         : ls_fail(LS_ERR_INVALID, "%s: the entry is not a version of %s",
                                                   reference, found.name);
    if (status == LS_OK && (found.stage != stage || *note)) {
        status = ls_name_append(registry->blobs, arena, found.name, prepare_move, &m, &record);
    }
    if (status != LS_OK) {
        ls_registry_entry_release(&found.entry);
        return status;
    }
    found.stage = stage;
    *found_out = found;
    return LS_OK;
}
