// SPDX-License-Identifier: Apache-2.0
/* The entry of a finished run in the registry. */
#include "base/log.h"
#include "execution/run/trainer_internal.h"
#include "storage/registry/lineage.h"

#include <inttypes.h>

/* Of an S3 server that does not answer: the run is finished, and does not wait long. */
static const double patience_s = 10.0;

/* [{"as","name","entry"}] of what it was made from. */
static json_t *parents_of(ls_trainer *trainer, ls_registry *registry, const ls_registry_entry *entry)
{
    json_t *list = json_array();
    for (size_t i = 0; i < entry->parent_count; i++) {
        ls_registry_found parent;
        if (ls_registry_load(registry, &trainer->arena, entry->parents[i].digest, &parent) == LS_OK) {
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "as", entry->parents[i].as, "name",
                                                  ls_registry_label(&trainer->arena, &parent), "entry",
                                                  parent.digest));
            ls_registry_entry_release(&parent.entry);
        }
    }
    return list;
}

static ls_status add(ls_trainer *trainer, ls_registry *registry)
{
    const ls_run_file *run = &trainer->session.run;
    const ls_registry_add_options options = {
        .path = ls_arena_printf(&trainer->arena, "%s/%" PRIu64, trainer->dir.checkpoints, trainer->loop.step),
        .name = run->registry.name[0] ? run->registry.name : ls_registry_name_of(&trainer->arena, run->name),
        .kind = LS_ENTRY_AUTO,
        .store = run->registry.store};
    ls_registry_added added;
    LS_TRY(ls_registry_add(registry, &trainer->arena, &options, &added));
    const ls_registry_found *f = &added.found;
    ls_emit_event("registered",
                  json_pack("{s:s, s:s, s:i, s:s, s:o}", "entry", f->digest, "name", f->name, "version",
                            (int)f->version, "kind", ls_registry_entry_kind_names[f->entry.kind], "parents",
                            parents_of(trainer, registry, &f->entry)));
    ls_progress_print(trainer->books.progress, "in the registry as %s",
                      ls_registry_label(&trainer->arena, f));
    ls_registry_entry_release(&added.found.entry);
    return LS_OK;
}

void ls_trainer_register(ls_trainer *trainer)
{
    ls_registry *registry = NULL;
    if (!trainer->session.run.registry.add || ls_registry_is_off()) {
        return;
    }
    ls_progress_activity(trainer->books.progress, "adding to the registry");
    const ls_blob_options options = {.patience_s = patience_s};
    ls_status status = ls_registry_open(trainer->session.run.registry.address, &options, &registry);
    status = status == LS_OK ? add(trainer, registry) : status;
    if (status != LS_OK) {
        ls_log_warn("the finished model was not added to the registry: %s", ls_error_text());
        ls_emit_event("register_failed", json_pack("{s:s}", "text", ls_error_text()));
        ls_error_clear();
    }
    ls_registry_close(registry);
    ls_progress_activity(trainer->books.progress, NULL);
}
