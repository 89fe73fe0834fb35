// SPDX-License-Identifier: Apache-2.0
/*
 * Where models serve. A process that answers with a model leaves a note and renews it:
 *
 *   serving/<entry>/<number>-<process>-<host>    {"address","who","since"}
 *
 * A note counts for LS_SERVING_FRESH_S after it was written, by the clock of the store and of the
 * reader, and not once its process of this host has ended; ls_registry_collect removes the others.
 * Nothing but what people are shown depends on it.
 */
#ifndef LS_STORAGE_REGISTRY_SERVING_H
#define LS_STORAGE_REGISTRY_SERVING_H

#include "storage/registry/registry.h"

enum { LS_SERVING_FRESH_S = 300 };

typedef struct ls_serving ls_serving;

/*
 * Notes that the model at `path` serves at `address` ("http://127.0.0.1:8000"), from a thread: the
 * caller does not wait for the registry. Nothing is noted of a model that the registry does not
 * have, or when LOCKSTEP_REGISTRY is off; a failure is a warning. End it.
 */
ls_serving *ls_serving_begin(const char *path, const char *address);
void ls_serving_end(ls_serving *serving); /* removes the note; NULL is allowed */

typedef struct ls_served {
    const char *address, *who; /* who: "user@host" */
    double since_s;            /* seconds since 1970 */
} ls_served;

/* Whether a note in a list of blobs counts. */
bool ls_serving_is_fresh(ls_arena *arena, const ls_blob_entry *note);

/* The notes about an entry that count now, in `arena`. A damaged one does not count. */
LS_MUST_CHECK ls_status ls_serving_list(ls_registry *registry, ls_arena *arena, const char *digest,
                                        const ls_served **served_out, size_t *count_out);

#endif
