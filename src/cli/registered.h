// SPDX-License-Identifier: Apache-2.0
/*
 * What commands make is added to the registry without being asked for, as finished runs are:
 * evaluations, merges, imports, exports, fetched models, tokenizers and prepared data. With
 * LOCKSTEP_REGISTRY=off, nothing is.
 */
#ifndef LS_CLI_REGISTERED_H
#define LS_CLI_REGISTERED_H

#include "storage/registry/registry.h"

/*
 * Adds an entry and says so on stderr. made: how it was made, an object whose "by" is the command,
 * kept as a fact; dropped. If that fails, a warning names the command that does it later: the work
 * is done all the same.
 */
void ls_registered(ls_arena *arena, ls_registry_add_options options, json_t *made);

#endif
