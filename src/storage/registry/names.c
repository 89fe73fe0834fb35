// SPDX-License-Identifier: Apache-2.0
#include "storage/registry/names.h"

#include "base/clock.h"
#include "env/user/user.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_BYTES_MAX = 1 << 16, TRIES_MAX = 1000, RECORDS_MAX = 1000000 };

const char *const ls_registry_stage_names[LS_STAGES + 1] = {"candidate", "approved", "retired", NULL};

const char *ls_registry_who(ls_arena *arena)
{
    char user[LS_USER_NAME_BYTES], host[256] = "";
    ls_user_name((uint32_t)getuid(), user);
    if (gethostname(host, sizeof host - 1) != 0) {
        host[0] = '\0';
    }
    return ls_arena_printf(arena, "%s@%s", user, host);
}

static const char *record_key(ls_arena *arena, const char *name, size_t number)
{
    return ls_arena_printf(arena, "names/%s/%08zu.json", name, number);
}

/* ---- reading ---- */

static ls_status read_event(const json_t *root, const char *where, ls_name_record *record)
{
    const char *event = NULL, *stage = NULL, *digest = NULL;
    LS_TRY(ls_json_get_string(root, where, "event", "", &event));
    LS_TRY(ls_json_get_string(root, where, "stage", "candidate", &stage));
    LS_TRY(ls_json_get_string(root, where, "entry", "", &digest));
    record->is_version = strcmp(event, "version") == 0;
    if (!record->is_version && strcmp(event, "stage") != 0) {
        return ls_fail(LS_ERR_DATA, "%s: there is no event '%.40s'", where, event);
    }
    while (record->stage < LS_STAGES && strcmp(stage, ls_registry_stage_names[record->stage]) != 0) {
        record->stage++;
    }
    if (record->stage == LS_STAGES) {
        return ls_fail(LS_ERR_DATA, "%s: there is no stage '%.40s'", where, stage);
    }
    if (record->is_version) {
        if (!ls_hash_is_hex(digest, LS_SHA256_HEX_BYTES - 1) || record->stage != LS_STAGE_CANDIDATE) {
            return ls_fail(LS_ERR_DATA,
                           "%s: a version needs the digest of its entry, and begins as candidate", where);
        }
        memcpy(record->digest, digest, LS_SHA256_HEX_BYTES);
    }
    return LS_OK;
}

static ls_status read_record(ls_arena *arena, const json_t *root, const char *where, ls_name_record *record)
{
    uint64_t version = 0;
    const char *who = NULL, *note = NULL;
    LS_TRY(read_event(root, where, record));
    LS_TRY(ls_json_get_u64(root, where, "version", 1, RECORDS_MAX, 0, &version));
    LS_TRY(ls_json_get_string(root, where, "who", "", &who));
    LS_TRY(ls_json_get_string(root, where, "note", "", &note));
    LS_TRY(ls_json_get_f64(root, where, "when", 0.0, 1e12, 0.0, &record->when_s));
    if (version == 0) {
        return ls_fail(LS_ERR_DATA, "%s: version is missing", where);
    }
    record->version = (uint32_t)version;
    record->who = ls_arena_strdup(arena, who);
    record->note = ls_arena_strdup(arena, note);
    return LS_OK;
}

/* The SHA-256 of a record as it is written, without its sum. False: no memory, or not UTF-8. */
static bool sum_of(const json_t *root, char hex_out[LS_SHA256_HEX_BYTES])
{
    char *text = json_dumps(root, JSON_COMPACT);
    if (text) {
        ls_sha256_hex(text, strlen(text), hex_out);
    }
    free(text);
    return text != NULL;
}

static ls_status check_sum(json_t *root, const char *where)
{
    char hex[LS_SHA256_HEX_BYTES] = "";
    json_t *sum = json_incref(json_object_get(root, "sum"));
    if (!sum) {
        return LS_OK;
    }
    json_object_del(root, "sum");
    const bool same = json_is_string(sum) && sum_of(root, hex) && strcmp(hex, json_string_value(sum)) == 0;
    json_decref(sum);
    return same ? LS_OK
                : ls_fail(LS_ERR_DATA, "%s is damaged: its sum differs; bring it back from a copy", where);
}

ls_status ls_name_record_decode(ls_arena *arena, const char *text, size_t bytes, const char *where,
                                ls_name_record *record_out)
{
    json_t *root = NULL;
    ls_name_record record = {0};
    LS_TRY(ls_json_parse(text, bytes, where, &root));
    ls_status status = check_sum(root, where);
    status = status == LS_OK ? read_record(arena, root, where, &record) : status;
    json_decref(root);
    LS_TRY(status);
    *record_out = record;
    return LS_OK;
}

/* Takes a record into the versions. */
static ls_status apply(ls_name *name, const ls_name_record *record, const char *where)
{
    if (record->version != name->version_count + 1 && record->is_version) {
        return ls_fail(LS_ERR_DATA, "%s: version %u follows version %u", where, record->version,
                       name->version_count);
    }
    if (record->version > name->version_count && !record->is_version) {
        return ls_fail(LS_ERR_DATA, "%s: the stage of version %u changes, which is not there", where,
                       record->version);
    }
    ls_named_version *version = &name->versions[record->version - 1];
    if (record->is_version) {
        name->version_count++;
        memcpy(version->digest, record->digest, sizeof version->digest);
        version->who = record->who;
        version->when_s = record->when_s;
    }
    version->stage = record->stage;
    return LS_OK;
}

static ls_status read_records(ls_blob_store *store, ls_arena *arena, size_t count, ls_name *name)
{
    name->records = ls_arena_new(arena, ls_name_record, count + 1);
    name->versions = ls_arena_new(arena, ls_named_version, count + 1);
    for (size_t i = 0; i < count; i++) {
        char *text = NULL;
        size_t bytes = 0;
        const char *key = record_key(arena, name->name, i + 1);
        const char *where = ls_arena_printf(arena, "%s/%s", ls_blob_address(store), key);
        const ls_status status = ls_blob_get(store, arena, key, RECORD_BYTES_MAX, &text, &bytes);
        if (status == LS_ERR_NOT_FOUND) {
            return ls_fail(LS_ERR_DATA,
                           "%s is missing, of %zu records of this name: bring it back from a copy", where,
                           count);
        }
        LS_TRY(status);
        LS_TRY(ls_name_record_decode(arena, text, bytes, where, &name->records[i]));
        LS_TRY(apply(name, &name->records[i], where));
        name->record_count++;
    }
    return LS_OK;
}

ls_status ls_name_read(ls_blob_store *store, ls_arena *arena, const char *name, ls_name *name_out)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_registry_entry_check_name(name));
    LS_TRY(ls_blob_list(store, arena, ls_arena_printf(arena, "names/%s/", name), true, &entries, &count));
    ls_name read = {.name = ls_arena_strdup(arena, name)};
    LS_TRY(read_records(store, arena, count, &read));
    *name_out = read;
    return LS_OK;
}

ls_status ls_registry_names(ls_blob_store *store, ls_arena *arena, const char ***names_out, size_t *count_out)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0, kept = 0;
    LS_TRY(ls_blob_list(store, arena, "names/", false, &entries, &count));
    const char **names = ls_arena_new(arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        const char *key = entries[i].key + strlen("names/");
        const char *name = ls_arena_strndup(arena, key, strcspn(key, "/"));
        if (entries[i].is_folder && ls_registry_entry_check_name(name) == LS_OK) {
            names[kept++] = name;
        }
    }
    ls_error_clear();
    *names_out = names;
    *count_out = kept;
    return LS_OK;
}

/* ---- writing ---- */

static ls_status put_record(ls_blob_store *store, ls_arena *arena, const ls_name *name,
                            const ls_name_record *record, bool *stored_out)
{
    json_t *root =
        record->is_version
            ? json_pack("{s:s, s:i, s:s, s:s, s:f}", "event", "version", "version", (int)record->version,
                        "entry", record->digest, "who", record->who, "when", record->when_s)
            : json_pack("{s:s, s:i, s:s, s:s, s:f, s:s}", "event", "stage", "version", (int)record->version,
                        "stage", ls_registry_stage_names[record->stage], "who", record->who, "when",
                        record->when_s, "note", record->note);
    char sum[LS_SHA256_HEX_BYTES];
    const bool is_summed =
        root && sum_of(root, sum) && json_object_set_new(root, "sum", json_string(sum)) == 0;
    char *text = is_summed ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text || strlen(text) > RECORD_BYTES_MAX) {
        free(text);
        return ls_fail(LS_ERR_INVALID,
                       "the note of a change of stage must be UTF-8 and shorter than %d bytes",
                       RECORD_BYTES_MAX);
    }
    const ls_status status = ls_blob_put_new(store, record_key(arena, name->name, name->record_count + 1),
                                             text, strlen(text), stored_out);
    free(text);
    return status;
}

/* The record of an earlier try, if that arrived after all: a network may deliver it late. */
static const ls_name_record *find_own(const ls_name *now, const ls_name_record *record)
{
    for (size_t i = now->record_count; i-- > 0;) {
        const ls_name_record *r = &now->records[i];
        if (r->when_s == record->when_s && strcmp(r->who, record->who) == 0 &&
            r->is_version == record->is_version && strcmp(r->digest, record->digest) == 0) {
            return r;
        }
    }
    return NULL;
}

ls_status ls_name_append(ls_blob_store *store, ls_arena *arena, const char *name, ls_name_prepare prepare,
                         void *context, ls_name_record *record_out)
{
    const ls_name_record empty = {.who = ls_registry_who(arena), .note = "", .when_s = ls_clock_wall_s()};
    ls_name_record record = empty;
    for (int i = 0; i < TRIES_MAX; i++) {
        ls_name now;
        bool stored = false;
        LS_TRY(ls_name_read(store, arena, name, &now));
        const ls_name_record *own = i > 0 ? find_own(&now, &record) : NULL;
        record = own ? *own : empty;
        if (!own) {
            LS_TRY(prepare(context, &now, &record));
            LS_TRY(put_record(store, arena, &now, &record, &stored));
        }
        if (own || stored) {
            *record_out = record;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_TIMEOUT, "other writers took %d records of %s in a row; run the command again",
                   TRIES_MAX, name);
}
