// SPDX-License-Identifier: Apache-2.0
#include "storage/registry/mlflow.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static ls_status write_text(ls_arena *arena, const char *folder, const char *name, const char *text)
{
    LS_TRY(ls_dir_create(folder));
    return ls_file_write_atomic(ls_path_join(arena, folder, name), text, strlen(text));
}

static void append_member(ls_text *text, const char *key, const char *value)
{
    ls_text_printf(text, "%s: ", key);
    ls_text_append_quoted(text, value);
    ls_text_append(text, "\n");
}

static ls_status write_mlmodel(ls_arena *arena, const ls_registry_found *found, const char *folder)
{
    ls_text text = {0};
    char created[40] = "";
    const time_t seconds = (time_t)found->entry.when_s;
    struct tm parts;
    if (gmtime_r(&seconds, &parts)) {
        strftime(created, sizeof created, "%Y-%m-%d %H:%M:%S.000000", &parts);
    }
    ls_text_append(&text, "artifact_path: model\nflavors:\n  lockstep:\n    ");
    append_member(&text, "kind", ls_registry_entry_kind_names[found->entry.kind]);
    ls_text_append(&text, "    ");
    append_member(&text, "version", found->entry.code);
    ls_text_printf(&text, "model_size_bytes: %" PRIu64 "\nmodel_uuid: %.32s\n",
                   ls_registry_entry_bytes(&found->entry), found->digest);
    append_member(&text, "utc_time_created", created);
    const ls_status status = write_text(arena, folder, "MLmodel", ls_text_string(&text));
    ls_text_release(&text);
    return status;
}

/* Tags are files: what the entry says of its run and metrics. */
static ls_status write_tags(ls_arena *arena, const ls_registry_found *found, const char *folder)
{
    static const char *const groups[] = {"run", "metrics"};
    LS_TRY(write_text(arena, folder, "entry", found->digest));
    LS_TRY(write_text(arena, folder, "kind", ls_registry_entry_kind_names[found->entry.kind]));
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        const char *key;
        json_t *value;
        json_object_foreach(json_object_get(found->entry.facts, groups[g]), key, value)
        {
            char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
            ls_status status = LS_OK;
            if ((text || json_is_string(value)) && ls_registry_entry_check_name(key) == LS_OK) {
                status = write_text(arena, folder, key, text ? text : json_string_value(value));
            }
            free(text);
            LS_TRY(status);
        }
    }
    return LS_OK;
}

/* creation_timestamp and what follows it in both kinds of meta.yaml, in milliseconds. */
static void append_times(ls_text *text, const ls_registry_found *found)
{
    const int64_t created = (int64_t)(1e3 * found->entry.when_s), now = (int64_t)(1e3 * ls_clock_wall_s());
    ls_text_printf(
        text, "creation_timestamp: %" PRId64 "\nlast_updated_timestamp: %" PRId64 "\ndescription: null\n",
        created, now);
    append_member(text, "name", found->name);
}

static ls_status write_version(ls_arena *arena, const ls_registry_found *found, const char *model,
                               const char *artifacts)
{
    static const char *const stages[LS_STAGES] = {"None", "Production", "Archived"};
    const char *folder = ls_arena_printf(arena, "%s/version-%u", model, found->version);
    ls_text text = {0};
    LS_TRY(write_tags(arena, found, ls_path_join(arena, folder, "tags")));
    append_times(&text, found);
    append_member(&text, "source", artifacts);
    append_member(&text, "storage_location", artifacts);
    append_member(&text, "user_id", found->entry.who);
    ls_text_printf(&text,
                   "version: %u\ncurrent_stage: %s\nstatus: READY\nstatus_message: null\nrun_id: "
                   "null\nrun_link: null\naliases: []\n",
                   found->version, stages[found->stage]);
    ls_status status = LS_OK;
    if (found->stage == LS_STAGE_APPROVED) {
        status = write_text(arena, ls_path_join(arena, model, "aliases"), "approved",
                            ls_arena_printf(arena, "%u", found->version));
    }
    status = status == LS_OK ? write_text(arena, folder, "meta.yaml", ls_text_string(&text)) : status;
    ls_text_release(&text);
    return status;
}

ls_status ls_registry_export_mlflow(ls_registry *registry, ls_arena *arena, const ls_registry_found *found,
                                    const char *dir)
{
    ls_text text = {0};
    if (found->version == 0) {
        return ls_fail(LS_ERR_INVALID, "the entry is not a version of %s, and MLflow needs one", found->name);
    }
    LS_TRY(ls_dir_create(dir));
    const char *root = ls_path_real(arena, dir);
    if (!root) {
        return ls_fail_errno(errno, "can't use %s", dir);
    }
    const char *model = ls_arena_printf(arena, "%s/models/%s", root, found->name);
    const char *parent = ls_arena_printf(arena, "%s/artifacts/%s", root, found->name);
    const char *artifacts = ls_arena_printf(arena, "%s/%u", parent, found->version);
    if (ls_path_exists(ls_arena_printf(arena, "%s/version-%u/meta.yaml", model, found->version))) {
        return ls_fail(LS_ERR_INVALID, "%s has version %u of %s already", dir, found->version, found->name);
    }
    LS_TRY(ls_dir_remove(artifacts)); /* of an export that was interrupted */
    LS_TRY(ls_dir_create(parent));
    LS_TRY(ls_registry_get(registry, arena, found, artifacts));
    LS_TRY(write_mlmodel(arena, found, artifacts));
    append_times(&text, found);
    ls_text_append(&text, "tags: {}\naliases: {}\nlatest_versions: []\n");
    const ls_status status = write_text(arena, model, "meta.yaml", ls_text_string(&text));
    ls_text_release(&text);
    return status == LS_OK ? write_version(arena, found, model, artifacts) : status;
}
