// SPDX-License-Identifier: Apache-2.0
#include "cli/registered.h"

#include "storage/registry/lineage.h"

#include <stdio.h>

/* Of an S3 server that does not answer: the work is done, and its result does not wait long. */
static const double patience_s = 10.0;

static void warn(const ls_registry_add_options *options)
{
    fprintf(stderr, "lockstep: warning: the result was not added to the registry: %s; ", ls_error_text());
    if (options->path) {
        fprintf(stderr, "'lockstep registry add %s --name NAME' does it later\n", options->path);
    } else {
        fprintf(stderr, "give this command with --json, and its output to 'lockstep registry add'\n");
    }
    ls_error_clear();
}

void ls_registered(ls_arena *arena, ls_registry_add_options options, json_t *made)
{
    ls_registry *registry = NULL;
    ls_registry_added added;
    json_t *facts = options.facts ? json_incref(options.facts) : json_object();
    json_object_set_new(facts, "made", made);
    options.facts = facts;
    if (!ls_registry_is_off()) {
        ls_status status = ls_registry_open(NULL, &(ls_blob_options){.patience_s = patience_s}, &registry);
        status = status == LS_OK ? ls_registry_add(registry, arena, &options, &added) : status;
        if (status == LS_OK) {
            fprintf(stderr, "in the registry as %s\n", ls_registry_label(arena, &added.found));
            ls_registry_entry_release(&added.found.entry);
        } else {
            warn(&options);
        }
        ls_registry_close(registry);
    }
    json_decref(facts);
}
