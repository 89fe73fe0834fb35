// SPDX-License-Identifier: Apache-2.0
/*
 * Mirrors: checkpoints of a run in a second place, so that it outlives the machine.
 *
 *   MIRROR/200/model.safetensors, optimizer-..., config.json, run.yaml    as in the run directory
 *   MIRROR/200/MANIFEST.json                                              put last, only if absent
 *
 * A checkpoint whose manifest is not there is not there. It is removed in the opposite order. So at
 * any moment, whatever process is killed, each checkpoint that a reader sees is whole; what an
 * interrupted copy sent is found by its digest and not sent again. A mirror holds one run.
 *
 * Thread-safe for different steps.
 */
#ifndef LS_STORAGE_MIRROR_MIRROR_H
#define LS_STORAGE_MIRROR_MIRROR_H

#include "storage/blob/blob.h"
#include "storage/checkpoint/checkpoint.h"

/* All checkpoints of a mirror, oldest first, with their manifests read and checked; a bad one has
 * its problem. In `arena`. modified_s_out: when each was completed, seconds since 1970; may be
 * NULL. Errors: those of the store. */
LS_MUST_CHECK ls_status ls_mirror_list(ls_blob_store *store, ls_arena *arena,
                                       ls_checkpoint_entry **entries_out, double **modified_s_out,
                                       size_t *count_out);

/*
 * Copies checkpoint `<root>/<step>`, after reading all of it and checking it. sent_out: bytes that
 * were not there yet. One that is there with the same state is left alone.
 * Errors: LS_ERR_INVALID if the mirror holds another run, LS_ERR_MISMATCH if it holds another state
 * of this step, those of ls_checkpoint_open and _verify, those of the store.
 */
LS_MUST_CHECK ls_status ls_mirror_put(ls_blob_store *store, const char *root, uint64_t step,
                                      uint64_t *sent_out);

/* Fetches a checkpoint to `<root>/<step>`, which appears when it is whole and checked. root exists.
 * Errors: LS_ERR_DATA for damage; those of the store; LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_mirror_get(ls_blob_store *store, uint64_t step, const char *root);

/* A small file of a checkpoint, its digest checked, in `arena`. Errors: LS_ERR_NOT_FOUND if it has
 * none of this name; LS_ERR_DATA; those of the store. */
LS_MUST_CHECK ls_status ls_mirror_attachment(ls_blob_store *store, ls_arena *arena, uint64_t step,
                                             const char *name, char **data_out, size_t *bytes_out);

/* Reads every byte of a checkpoint and compares SHA-256 with the manifest. Errors: LS_ERR_DATA
 * naming the file; those of the store. */
LS_MUST_CHECK ls_status ls_mirror_verify(ls_blob_store *store, uint64_t step);

/* What stays in a mirror. */
typedef struct ls_mirror_rules {
    ls_checkpoint_prune_options keep; /* by number, and bytes_max */
    double keep_for_s;                /* all that are younger */
} ls_mirror_rules;

/*
 * Removes good checkpoints that no rule keeps, then the oldest ones while all together have more
 * than keep.bytes_max, and what interrupted copies left of steps before the newest checkpoint. The
 * newest good one always stays. removed_out: their number. Errors: those of the store.
 */
LS_MUST_CHECK ls_status ls_mirror_prune(ls_blob_store *store, const ls_mirror_rules *rules,
                                        size_t *removed_out);

#endif
