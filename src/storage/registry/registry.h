// SPDX-License-Identifier: Apache-2.0
/*
 * Registry: the models, adapters, data sets, tokenizers and evaluations of a team, with versions,
 * stages and where each came from. It lies in a folder or in S3 (storage/blob/blob.h):
 *
 *   entries/<sha256>.json       documents that never change (storage/registry/entry.h)
 *   names/NAME/00000001.json    versions and stages (storage/registry/names.h)
 *   children/<parent>/<child>   empty: which entries have an entry as parent
 *   places/<sha256>/<entry>     empty: entries made from the path with this digest
 *   files/, chunks/             bytes of entries that are stored (storage/registry/chunks.h)
 *   writers/<number>-<process>-<host>    empty: a writer is at work; removed at its end
 *   collecting                  who collects garbage, while that goes on
 *   serving/<entry>/<mark>      where a model serves now (storage/registry/serving.h)
 *
 * An entry is added in this order: chunks, lists of chunks, children and places, the entry, the
 * record of its name. A process killed anywhere leaves a whole registry, and at most some blobs
 * that nothing names, which ls_registry_collect removes. There is no server and no lock: whoever
 * may write to the folder or bucket may add.
 *
 * Writers and the collector keep out of each other's way: a writer leaves its mark and then looks
 * for a collector; a collector leaves its mark and then looks for writers. Of two that begin at
 * once, at least one sees the other.
 *
 * References: NAME (the newest version that is not retired), NAME@3, NAME@approved (the newest in
 * that stage), or the first 6 or more digits of an entry's digest.
 *
 * Errors of all functions: those of the store, and LS_ERR_DATA naming the blob for damage. One
 * registry object is for one thread.
 */
#ifndef LS_STORAGE_REGISTRY_REGISTRY_H
#define LS_STORAGE_REGISTRY_REGISTRY_H

#include "storage/registry/chunks.h"
#include "storage/registry/names.h"
#include "storage/registry/survey.h"

typedef struct ls_registry ls_registry;

/* address: "" or NULL: $LOCKSTEP_REGISTRY, else registry/ in $LOCKSTEP_HOME. options: of its blobs;
 * NULL: the defaults. A folder need not exist. Errors: LS_ERR_INVALID, also if it is "off". */
LS_MUST_CHECK ls_status ls_registry_open(const char *address, const ls_blob_options *options,
                                         ls_registry **registry_out);
/* Whether $LOCKSTEP_REGISTRY is "off": then nothing is added that nobody asked for. */
bool ls_registry_is_off(void);
void ls_registry_close(ls_registry *registry); /* NULL is allowed */
const char *ls_registry_address(const ls_registry *registry);
ls_blob_store *ls_registry_blobs(const ls_registry *registry);
ls_chunk_store *ls_registry_chunks(const ls_registry *registry);

/* What a reference means. */
typedef struct ls_registry_found {
    char digest[LS_SHA256_HEX_BYTES];
    const char *name;
    uint32_t version;
    ls_registry_stage stage;
    ls_registry_entry entry; /* released by the caller */
} ls_registry_found;

/* Errors: LS_ERR_NOT_FOUND, naming what is close; LS_ERR_INVALID for what is no reference, or a
 * digest that several entries begin with. */
LS_MUST_CHECK ls_status ls_registry_find(ls_registry *registry, ls_arena *arena, const char *reference,
                                         ls_registry_found *found_out);

/* The same by a whole digest. An entry that no name has yet has version 0. */
LS_MUST_CHECK ls_status ls_registry_load(ls_registry *registry, ls_arena *arena, const char *digest,
                                         ls_registry_found *found_out);

/*
 * Calls `hear` for each version of `name`, or with NULL of all names, oldest first. status: of
 * reading its entry; unless that is LS_OK, found->entry is empty. Ends with the first error that
 * `hear` returns, or of reading a name. The entry is released after `hear`, unless that takes its
 * facts away.
 */
typedef ls_status (*ls_registry_hear)(void *context, ls_registry_found *found, ls_status status);
LS_MUST_CHECK ls_status ls_registry_each(ls_registry *registry, ls_arena *arena, const char *name,
                                         ls_registry_hear hear, void *context);

typedef struct ls_registry_add_options {
    const char *path; /* NULL: an entry without files, such as the numbers of an evaluation */
    const char *name; /* NULL: that of the path (ls_registry_name_of) */
    ls_registry_entry_kind kind;
    const ls_survey_source *sources; /* made from these, and what the path tells of itself */
    size_t source_count;
    json_t *facts;              /* added to those of the path; borrowed; NULL: none */
    const char *const *parents; /* references (parent_count) */
    size_t parent_count;
    bool store;       /* keep the bytes; else the entry refers to the path */
    const char *note; /* "" or NULL for none */
} ls_registry_add_options;

typedef struct ls_registry_added {
    ls_registry_found found;
    bool is_new; /* else the name has a version with the same content and parents already */
    ls_chunks_stored stored;
} ls_registry_added;

/*
 * Adds an entry as the next version of its name, in stage candidate. Parents are those given, and
 * those of the sources, and of what the run file of a checkpoint was made from, that are in the
 * registry (ls_registry_find_path). The caller releases added_out->found.entry. Errors: those of
 * ls_survey; LS_ERR_INVALID for a name or a parent; LS_ERR_TIMEOUT when garbage is being collected.
 */
LS_MUST_CHECK ls_status ls_registry_add(ls_registry *registry, ls_arena *arena,
                                        const ls_registry_add_options *options, ls_registry_added *added_out);

/*
 * Which entry the path is: one that was made from it and whose files are the same (those that were
 * written since then are read), or that ls_registry_get made a copy of; for a run, that of its
 * newest checkpoint. is_data: also one made from a folder that it is in. False: none, or it can't
 * be read. The caller releases the entry.
 */
bool ls_registry_find_path(ls_registry *registry, ls_arena *arena, const char *path, bool is_data,
                           ls_registry_found *found_out);

/* The last part of a path as a name of entries: what names cannot hold becomes '-'. In `arena`. */
const char *ls_registry_name_of(ls_arena *arena, const char *path);

/* Puts an entry's files into the new folder `folder`, which appears when all of them are there and
 * checked, with a receipt. Errors: LS_ERR_INVALID if the folder is there and not empty, or the
 * files are neither stored nor at their path; LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_registry_get(ls_registry *registry, ls_arena *arena,
                                        const ls_registry_found *found, const char *folder);

/* Moves a version to a stage. The version that a reference means now. LS_OK if it is there already,
 * without a record. */
LS_MUST_CHECK ls_status ls_registry_promote(ls_registry *registry, ls_arena *arena, const char *reference,
                                            ls_registry_stage stage, const char *note,
                                            ls_registry_found *found_out);

/* Compares everything an entry stands for with its digests. gone_out: how many files that are not
 * stored are not at their path any more, which is no error. Errors: LS_ERR_DATA for the first
 * damage. */
LS_MUST_CHECK ls_status ls_registry_verify(ls_registry *registry, ls_arena *arena,
                                           const ls_registry_found *found, size_t *gone_out);

typedef struct ls_registry_collected {
    uint64_t entries, files, chunks, bytes;
} ls_registry_collected;

/*
 * Removes what no version of a name needs: leftovers of interrupted writers, and with `retired`
 * the bytes of entries all of whose versions are retired (the entries stay, with their lineage).
 * dry_run: only counts. Errors: LS_ERR_FAILED while a writer is at work (not counting marks older
 * than a day, and of processes of this host that have ended), or another process collects.
 */
LS_MUST_CHECK ls_status ls_registry_collect(ls_registry *registry, ls_arena *arena, bool retired,
                                            bool dry_run, ls_registry_collected *collected_out);

/* The end of the key of a mark of this process, "<number>-<process>-<host>", in `arena`. */
const char *ls_registry_mark(ls_arena *arena);
/* Whether a mark, or a key that ends with one, is of a process of this host that has ended. */
bool ls_registry_mark_has_ended(ls_arena *arena, const char *mark);

/* Marks this process as a writer until ls_registry_end; mark_out: in `arena`. */
LS_MUST_CHECK ls_status ls_registry_begin(ls_registry *registry, ls_arena *arena, const char **mark_out);
/* LS_ERR_FAILED if somebody removed the mark: chunks may be gone since. */
LS_MUST_CHECK ls_status ls_registry_check_mark(ls_registry *registry, const char *mark);
LS_MUST_CHECK ls_status ls_registry_end(ls_registry *registry, const char *mark);

#endif
