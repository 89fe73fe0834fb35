// SPDX-License-Identifier: Apache-2.0
/* version: prints version, processor and determinism class. */
#include "cli/command.h"
#include "compute/queue.h"

#include <stdio.h>

typedef struct version_settings {
    bool json;
} version_settings;

static const ls_option version_options[] = {
    LS_ROW_BOOL(version_settings, json, "print the result as one JSON document"),
};

static ls_status run_version(const ls_invocation *invocation)
{
    const version_settings *settings = invocation->settings;
    ls_queue *queue = NULL;
    LS_TRY(ls_queue_create_cpu(1, &queue));
    if (settings->json) {
        json_t *root =
            json_pack("{s:s, s:s, s:s}", "version", LS_VERSION, "device", ls_queue_device_name(queue),
                      "determinism", ls_queue_determinism_class(queue));
        ls_print_json(root);
        json_decref(root);
    } else {
        printf("lockstep %s on %s, determinism class %s\n", LS_VERSION, ls_queue_device_name(queue),
               ls_queue_determinism_class(queue));
    }
    ls_queue_destroy(queue);
    return LS_OK;
}

const ls_command ls_command_version = {
    .name = "version",
    .words = "",
    .summary = "print version, processor and determinism class",
    .details = "Runs of the same determinism class agree bit for bit.\n"
               "\n"
               "Example:\n"
               "  lockstep version --json",
    LS_SETTINGS(version_settings, version_options),
    .run = run_version,
};
