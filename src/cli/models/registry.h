// SPDX-License-Identifier: Apache-2.0
/* What the commands of the registry share. */
#ifndef LS_CLI_MODELS_REGISTRY_H
#define LS_CLI_MODELS_REGISTRY_H

#include "cli/command.h"
#include "storage/registry/lineage.h"

#define LS_ROW_REGISTRY(record)                                                                              \
    LS_ROW_TEXT(record, registry, "ADDRESS",                                                                 \
                "address of the registry: a folder or s3://BUCKET/PREFIX; default: LOCKSTEP_REGISTRY, or "   \
                "registry/ in LOCKSTEP_HOME")

/* Opens the registry at `address` and finds what the first word of the command refers to; a retired
 * version is told on stderr. The caller closes and releases, only after LS_OK. */
LS_MUST_CHECK ls_status ls_registry_open_word(const ls_invocation *invocation, const char *address,
                                              ls_registry **registry_out, ls_registry_found *found_out);

/* "2026-11-23 12:00" in `arena`. */
const char *ls_registry_time(ls_arena *arena, double seconds);

#endif
