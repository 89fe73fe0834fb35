// SPDX-License-Identifier: Apache-2.0
/*
 * Names: what people call entries, with versions and stages. A name is a list of numbered records
 * that only grows:
 *
 *   names/NAME/00000001.json   {"event":"version","version":1,"entry":"<digest>","who","when","sum"}
 *   names/NAME/00000002.json   {"event":"stage","version":1,"stage":"approved","who","when","note",
 *                               "sum"}
 *
 * `sum` is the SHA-256 of the record without it; records of earlier versions of the program have
 * none.
 *
 * A record is put only if its number is free. Whoever loses a number reads the list again and takes
 * the next one, so of two writers both are kept, in one order, without a lock.
 */
#ifndef LS_STORAGE_REGISTRY_NAMES_H
#define LS_STORAGE_REGISTRY_NAMES_H

#include "storage/blob/blob.h"
#include "storage/registry/entry.h"

typedef enum ls_registry_stage {
    LS_STAGE_CANDIDATE,
    LS_STAGE_APPROVED,
    LS_STAGE_RETIRED,
    LS_STAGES
} ls_registry_stage;

/* "candidate", "approved", "retired", NULL. */
extern const char *const ls_registry_stage_names[LS_STAGES + 1];

typedef struct ls_name_record {
    bool is_version;         /* else a change of the stage */
    uint32_t version;        /* from 1 */
    ls_registry_stage stage; /* of a version: candidate */
    char digest[LS_SHA256_HEX_BYTES];
    const char *who, *note; /* note: "" for none */
    double when_s;
} ls_name_record;

typedef struct ls_named_version {
    char digest[LS_SHA256_HEX_BYTES];
    ls_registry_stage stage;
    const char *who;
    double when_s;
} ls_named_version;

typedef struct ls_name {
    const char *name;
    ls_name_record *records; /* oldest first */
    size_t record_count;
    ls_named_version *versions; /* version v is versions[v - 1] */
    uint32_t version_count;
} ls_name;

/* All names, sorted. */
LS_MUST_CHECK ls_status ls_registry_names(ls_blob_store *store, ls_arena *arena, const char ***names_out,
                                          size_t *count_out);

/* A name that nobody has used has no versions. Errors: LS_ERR_INVALID for what is no name;
 * LS_ERR_DATA for a record that is damaged or missing; those of the store. */
LS_MUST_CHECK ls_status ls_name_read(ls_blob_store *store, ls_arena *arena, const char *name,
                                     ls_name *name_out);

/*
 * Appends a record; who and when are put in. prepare: fills in the rest from the name as it is
 * then, and may refuse; it is called again when another writer was faster.
 */
typedef ls_status (*ls_name_prepare)(void *context, const ls_name *name, ls_name_record *record);
LS_MUST_CHECK ls_status ls_name_append(ls_blob_store *store, ls_arena *arena, const char *name,
                                       ls_name_prepare prepare, void *context, ls_name_record *record_out);

/* A record from its text, in `arena`. where: for messages. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_name_record_decode(ls_arena *arena, const char *text, size_t bytes,
                                              const char *where, ls_name_record *record_out);

/* "user@host" of this process, in `arena`. */
const char *ls_registry_who(ls_arena *arena);

#endif
