// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints: a training state on disk that is either complete or absent, is checked when read,
 * and does not depend on the number of ranks.
 *
 *   checkpoints/                      the root; names that are not plain digits are not checkpoints
 *     200/                            the step, plain decimal, no leading zeros; sorted as numbers
 *       model.safetensors             parameters by their Hugging Face names, float32
 *       optimizer-00001-of-00002.safetensors    first moments "m.<name>"
 *       optimizer-00002-of-00002.safetensors    second moments "v.<name>"
 *       state.safetensors             optional: further state of the run, such as that of workers
 *       config.json, tokenizer.json   attachments: small files that the caller adds
 *       MANIFEST.json                 written last (storage/checkpoint/manifest.h)
 *       PINNED                        optional: ls_checkpoint_prune leaves it alone
 *     600/                            with frozen tensors
 *       model-00001-of-00002.safetensors        parameters that are trained
 *       model-00002-of-00002.safetensors        parameters that are not: the same file as in 200 (a
 *                                               hard link)
 *       model.safetensors.index.json            Hugging Face's index: which is where
 *     400.tmp-1234-5f3a/              being written, or left by a crash: readers ignore it, the
 *                                     next save removes it
 *
 * Data files are plain safetensors that any tool reads; the header is padded so that the data start
 * at a multiple of 4,096 bytes. Above `file_bytes_max` they are cut between tensors into
 * model-00001-of-00003.safetensors and so on, with Hugging Face's index beside them. The data of a
 * file are checked in blocks of LS_CHECKPOINT_BLOCK_BYTES: file bytes [header + k * block, header +
 * (k + 1) * block) have the k-th CRC32C of the manifest. Neither depends on ranks or threads: the
 * same state gives the same bytes.
 *
 * Frozen tensors are in files of their own, which are the same in every checkpoint of a run. The
 * first checkpoint writes them; later ones link them after comparing the older file, byte for byte,
 * with what they would write (storage/checkpoint/share.h). A linked file exists until the last
 * checkpoint that has it is removed; on a file system without hard links it is written each time.
 * For the manifest and for readers such a file is like any other.
 *
 * Commit: everything is written into `<step>.tmp-...` and made durable, then the folder is renamed
 * to `<step>` (storage/checkpoint/commit.h); removal goes the other way
 * (storage/checkpoint/collect.h). A crash at any point leaves the older checkpoints as they were
 * and at most a `.tmp-` folder. Only one process may save to a root at a time, which the lock of
 * the run directory ensures; two by mistake can make each other fail, but lose nothing.
 *
 * Thread-safety: functions on different roots or checkpoints may run at once; any number of readers
 * may run beside one saver.
 */
#ifndef LS_STORAGE_CHECKPOINT_CHECKPOINT_H
#define LS_STORAGE_CHECKPOINT_CHECKPOINT_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "env/env.h"
#include "storage/checkpoint/read_calls.h"
#include "storage/safetensors/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LS_CHECKPOINT_BLOCK_BYTES = 4 << 20, /* what one CRC covers */
    LS_CHECKPOINT_THREADS_MAX = 64,
};

/* ---- what is saved ---- */

/* One parameter and its moments: float32, contiguous, row-major. Read by save and hash, written by
 * load. */
typedef struct ls_checkpoint_tensor {
    const char *name; /* Hugging Face's */
    uint32_t rank;
    uint64_t shape[LS_TENSOR_RANK_MAX];
    float *value;
    /* first moments, same shape; save: NULL if there are none (frozen); load: NULL if not wanted */
    float *m;
    float *v; /* second moments; NULL together with m */
    /* Further state of the run that is not a parameter of the model: then value, m and v are NULL,
     * and the name is the caller's own. */
    float *state;
    /* save: the tensor is the same in all checkpoints of this run, so it is written once; it has
     * no moments */
    bool frozen;
} ls_checkpoint_tensor;

/* State of the run at that step. */
typedef struct ls_checkpoint_meta {
    uint64_t step;          /* finished steps; <= INT64_MAX, as are the other numbers (JSON) */
    uint64_t data_position; /* samples consumed */
    uint64_t seed;
    uint64_t leaves; /* V */
    /* hash of what must not change between resumes (invariant I1); "" if unknown (an import) */
    const char *identity;
    const char *determinism; /* determinism class */
    bool has_parent;         /* a checkpoint this run resumed from or saved before */
    uint64_t parent_step;
    bool has_val_loss; /* validation loss, by which `best` is chosen */
    double val_loss;   /* finite */
    /* free-form object: model config, run file, curve hash state, ...; NULL: {} */
    const json_t *extra;
} ls_checkpoint_meta;

/* A small file stored with the checkpoint; the manifest has its SHA-256. */
typedef struct ls_checkpoint_attachment {
    const char *name; /* a plain file name: letters, digits, '.', '_', '-', first not '.' */
    const void *data;
    size_t bytes;
} ls_checkpoint_attachment;

typedef struct ls_checkpoint_save_options {
    const char *root; /* created if missing; its parent must exist */
    const ls_checkpoint_meta *meta;
    const ls_checkpoint_tensor *tensors; /* any order; must not change until save returns */
    size_t tensor_count;
    const ls_checkpoint_attachment *attachments;
    size_t attachment_count;
    /* For gathering, hashing and writing; those that write wait for the disk, so two more than
     * cores keep both busy. 0: ls_block_pool_threads(). Does not change a byte of the result. */
    unsigned threads;
    /* values rounded to bfloat16: for using the model, not for resuming; no tensor may have
     * moments */
    bool bf16_values;
    uint64_t file_bytes_max; /* size limit of a data file; 0: 2 GiB */
} ls_checkpoint_save_options;

typedef struct ls_checkpoint_saved {
    uint64_t bytes;        /* of all data files */
    uint64_t linked_bytes; /* bytes in files linked from an older checkpoint */
    double wall_s;
} ls_checkpoint_saved;

/*
 * Writes checkpoint `<root>/<meta->step>` and returns when it is durable. Leftovers of crashed
 * saves in `root` are removed first. Memory: threads x 8 MiB. saved_out may be NULL.
 *
 * Errors: LS_ERR_INVALID (names, sizes), LS_ERR_DISK (full or read-only), LS_ERR_IO; then nothing
 * of the new checkpoint is visible, the older ones are untouched and what was written is removed as
 * far as the disk permits.
 */
LS_MUST_CHECK ls_status ls_checkpoint_save(const ls_checkpoint_save_options *options,
                                           ls_checkpoint_saved *saved_out);

/* saved: only with LS_OK. Valid during the call. */
typedef void (*ls_checkpoint_save_done)(void *context, ls_status status, const ls_checkpoint_saved *saved);

/*
 * The same as a state machine, for loops that already have an env, and for the simulator: `done` is
 * called once, later. Writing the data blocks the loop. `arena` and everything `options` points to
 * must live until then. Errors: LS_ERR_INVALID; `done` is then never called.
 */
LS_MUST_CHECK ls_status ls_checkpoint_save_start(ls_env *env, ls_arena *arena,
                                                 const ls_checkpoint_save_options *options,
                                                 ls_checkpoint_save_done done, void *context);

/* ---- one checkpoint, open ---- */

typedef struct ls_manifest ls_manifest;

typedef struct ls_checkpoint {
    ls_arena arena;
    const char *path;            /* its folder */
    ls_checkpoint_meta meta;     /* strings and extra belong to the checkpoint */
    const ls_manifest *manifest; /* everything else: storage/checkpoint/manifest.h */
    bool pinned;
} ls_checkpoint;

/*
 * Opens the checkpoint in folder `path`: reads the manifest, checks it (its own SHA-256, its
 * schema, that files, blocks and tensors fit together) and that every file exists and has the size
 * given there. Contents are checked when they are read. Close with ls_checkpoint_close.
 *
 * Errors: LS_ERR_NOT_FOUND if there is no such folder or manifest, LS_ERR_DATA naming file and
 * value, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_checkpoint_open(const char *path, ls_checkpoint **checkpoint_out);
void ls_checkpoint_close(ls_checkpoint *checkpoint); /* NULL is allowed */

/*
 * Finds the checkpoint that a user's path means: a checkpoint itself, a root (its newest good one)
 * or a run directory (that of its `checkpoints/`). path_out: in `arena`. Errors: LS_ERR_NOT_FOUND,
 * LS_ERR_DATA when there are checkpoints but none is good.
 */
LS_MUST_CHECK ls_status ls_checkpoint_resolve(ls_arena *arena, const char *path, const char **path_out);

/* The same for the best one (ls_checkpoint_find_best) of a root or a run directory. Errors:
 * LS_ERR_NOT_FOUND, also when no checkpoint has a validation loss. */
LS_MUST_CHECK ls_status ls_checkpoint_resolve_best(ls_arena *arena, const char *path, const char **path_out);

/* LS_ERR_INVALID, with both identities in the text, unless the checkpoint's identity is
 * `identity`. */
LS_MUST_CHECK ls_status ls_checkpoint_check_identity(const ls_checkpoint *checkpoint, const char *identity);

/* Number of parameters (elements, not tensors). */
uint64_t ls_checkpoint_parameters(const ls_checkpoint *checkpoint);

/* An attachment, its SHA-256 checked, in `arena`, zero-terminated. Errors: LS_ERR_NOT_FOUND,
 * LS_ERR_DATA, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_checkpoint_attachment_read(const ls_checkpoint *checkpoint, ls_arena *arena,
                                                      const char *name, char **data_out, size_t *bytes_out);

typedef struct ls_checkpoint_load_options {
    /* parameters of the checkpoint that are not requested are skipped, not an error */
    bool allow_partial;
    unsigned threads;           /* as for saving */
    const ls_read_calls *calls; /* NULL: the system's */
} ls_checkpoint_load_options;

/*
 * Loads into the caller's tensors, found by name; blocks without any wanted tensor are not read.
 * Every block is checked before any of its bytes is used. Values stored as bfloat16 become float32,
 * exactly. Wanted moments that the checkpoint lacks (frozen, or imported) become zeros. options may
 * be NULL.
 *
 * Errors: LS_ERR_DATA for a tensor that is missing or has another shape (naming both), and for a
 * damaged block (naming file, block and offset); LS_ERR_IO. On an error the content of the tensors
 * is undefined.
 */
LS_MUST_CHECK ls_status ls_checkpoint_load(const ls_checkpoint *checkpoint,
                                           const ls_checkpoint_tensor *tensors, size_t tensor_count,
                                           const ls_checkpoint_load_options *options);

/*
 * Reads everything: every block's CRC32C, every file's SHA-256, the safetensors headers against the
 * manifest, the attachments. Errors: LS_ERR_DATA naming file, block and offset of the first damage
 * found; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_checkpoint_verify(const ls_checkpoint *checkpoint, unsigned threads);

/* ---- repair ---- */

/* in place of a block number: the header of a file, or a whole attachment */
#define LS_CHECKPOINT_HEADER UINT64_MAX

/* A part that was damaged and is good now. */
typedef struct ls_checkpoint_mend {
    const char *file;    /* its name in the checkpoint */
    uint64_t block;      /* or LS_CHECKPOINT_HEADER */
    const char *problem; /* what was wrong */
    const char *source;  /* the file that the good bytes came from, or "memory" */
} ls_checkpoint_mend;

typedef struct ls_checkpoint_repair_options {
    /* a state that may equal the checkpoint's; NULL: none */
    const ls_checkpoint_tensor *memory;
    size_t memory_count;
    const ls_read_calls *calls; /* NULL: the system's */
} ls_checkpoint_repair_options;

/*
 * Reads all of checkpoint `path`, and rewrites files that are damaged, torn or missing, with good
 * bytes in place of bad ones. Good bytes are those that match the CRC of the manifest. They come
 * from
 *
 *   1. the file itself, block by block
 *   2. a file with the same SHA-256 and length in another checkpoint beside it (`<root>/<step>`) or
 *      in `<root>/weights`: frozen tensors, snapshots of weights of the same step, attachments
 *   3. `memory`
 *
 * The new file is accepted only if its SHA-256 matches the manifest; it is synced and replaces the
 * old one by a rename. A file with several links is repaired under this name only. The manifest
 * itself can't be repaired.
 *
 * mends_out: in `arena`; empty if everything was good. options may be NULL. Errors: LS_ERR_DATA
 * naming the part without a good copy (files repaired before it stay repaired), LS_ERR_NOT_FOUND,
 * LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_checkpoint_repair(ls_arena *arena, const char *path,
                                             const ls_checkpoint_repair_options *options,
                                             ls_checkpoint_mend **mends_out, size_t *count_out);

/* ---- the state hash ---- */

/*
 * SHA-256 over parameters, then first moments, then second moments, each in the byte order of their
 * names, float32 little-endian, then the step as u64. Missing moments count as
 * zeros of the parameter's shape, so that an imported model and the same model before its first
 * step have the same hash. It does not depend on ranks, threads or files.
 *
 * base: the 64 digits of the digest of what the tensors are an adapter of, which follow the step;
 * NULL: nothing. Further state follows at the end, in the byte order of its names.
 *
 * Errors: LS_ERR_INVALID when a name is given twice or a shape is out of range.
 */
LS_MUST_CHECK ls_status ls_state_hash(const ls_checkpoint_tensor *tensors, size_t tensor_count, uint64_t step,
                                      const char *base, char hex_out[LS_SHA256_HEX_BYTES]);

/* The digest of the base of an adapter (meta.extra: "base_digest"), or NULL if the checkpoint has
 * none. */
const char *ls_checkpoint_base_digest(const ls_checkpoint *checkpoint);

/* The same hash from a checkpoint, without loading it: 8 MiB of memory per thread. Checks every
 * block. */
LS_MUST_CHECK ls_status ls_checkpoint_state_hash(const ls_checkpoint *checkpoint,
                                                 char hex_out[LS_SHA256_HEX_BYTES]);

/* ---- many checkpoints ---- */

/* A line of `checkpoint ls`. Strings live in the arena of the list. */
typedef struct ls_checkpoint_entry {
    uint64_t step;
    const char *path;
    const char
        /* why it can't be opened; NULL: it is good. With a problem the fields below are 0 */
        *problem;
    const char *identity;
    uint64_t bytes; /* data files */
    uint64_t parameters;
    bool has_val_loss;
    double val_loss;
    bool pinned;
} ls_checkpoint_entry;

/* All checkpoints of a root, oldest first, checked as by ls_checkpoint_open. A missing root gives
 * an empty list.
 */
LS_MUST_CHECK ls_status ls_checkpoint_list(ls_arena *arena, const char *root,
                                           ls_checkpoint_entry **entries_out, size_t *count_out);

/* Of the good checkpoints of a root, the one with the lowest validation loss, and of equal ones the
 * newest; its strings are in `arena`. Errors: LS_ERR_NOT_FOUND when none has a validation loss. */
LS_MUST_CHECK ls_status ls_checkpoint_find_best(ls_arena *arena, const char *root,
                                                ls_checkpoint_entry *best_out);

typedef struct ls_checkpoint_latest {
    ls_checkpoint *checkpoint; /* closed by the caller; NULL if there is no checkpoint */
    const ls_checkpoint_entry
        *skipped; /* newer ones that could not be used, newest first, each with its problem */
    size_t skipped_count;
    /* ls_checkpoint_load_latest: repairs of the opened checkpoint */
    const ls_checkpoint_mend *mends;
    size_t mend_count;
} ls_checkpoint_latest;

/*
 * Opens the newest checkpoint of `root` that can be opened; a warning is logged for each skipped
 * one. before_step: only steps below it (UINT64_MAX: any), for falling back after a load has found
 * damage.
 *
 * identity: NULL for any; otherwise the newest good one must have it. Errors: LS_ERR_INVALID if it
 * has another (the run directory belongs to another run), LS_ERR_DATA if there are checkpoints but
 * none can be opened, LS_ERR_IO. If there is no checkpoint, the result is LS_OK with checkpoint
 * NULL.
 */
LS_MUST_CHECK ls_status ls_checkpoint_find_latest(ls_arena *arena, const char *root, const char *identity,
                                                  uint64_t before_step, ls_checkpoint_latest *latest_out);

/*
 * find_latest and load in one: tries the newest checkpoint and, if it is damaged, the one before
 * it, until one loads completely. The tensors then hold exactly that checkpoint. A damaged one is
 * first repaired if possible (ls_checkpoint_repair), which is logged and listed in `mends`. Errors:
 * those of both; damaged checkpoints are listed in `skipped`.
 */
LS_MUST_CHECK ls_status ls_checkpoint_load_latest(ls_arena *arena, const char *root, const char *identity,
                                                  const ls_checkpoint_tensor *tensors, size_t tensor_count,
                                                  const ls_checkpoint_load_options *options,
                                                  ls_checkpoint_latest *latest_out);

typedef struct ls_checkpoint_prune_options {
    /* number of newest good checkpoints to keep; 0 counts as 1: the newest good one always stays */
    uint64_t keep_last;
    uint64_t keep_best;  /* number of those with the lowest val_loss to keep as well */
    uint64_t keep_every; /* also keep those whose step is a multiple of this; 0: none */
    uint64_t bytes_max;  /* of all together, which has the last word; 0: no limit */
    /* If the prune follows a save: the step just saved. Checkpoints of later steps were written
     * by an earlier start of the run that this one could not resume from (because of damage,
     * say). They do not count as newer checkpoints, otherwise the good ones would be removed in
     * favour of them. 0: none. */
    uint64_t saved;
    bool dry_run; /* only report what would be removed */
} ls_checkpoint_prune_options;

/* Why a checkpoint is kept, as bits. No bit: it would be removed. */
enum {
    LS_KEPT_LAST = 1,    /* one of the newest */
    LS_KEPT_BEST = 2,    /* one of those with the lowest val_loss */
    LS_KEPT_EVERY = 4,   /* a multiple of keep_every */
    LS_KEPT_PINNED = 8,  /* pinned by a person */
    LS_KEPT_DAMAGED = 16 /* damaged: left for a person to look at */
};

/* For each entry of a list, oldest first (ls_checkpoint_list). Pure. */
void ls_checkpoint_reasons(const ls_checkpoint_entry *entries, size_t count,
                           const ls_checkpoint_prune_options *options, unsigned *reasons_out);
/* Takes the reasons of the oldest ones away, while those that are kept have more than bytes_max
 * together; never of the newest good one, of pinned and of damaged ones. ls_checkpoint_reasons has
 * done so. */
void ls_checkpoint_fit(const ls_checkpoint_entry *entries, size_t count,
                       const ls_checkpoint_prune_options *options, unsigned *reasons);
/* "last, best": in `arena`; "" for none. */
const char *ls_checkpoint_reasons_text(ls_arena *arena, unsigned reasons);

/*
 * Removes good checkpoints that no rule keeps and that are not pinned
 * (storage/checkpoint/collect.h), and what an earlier prune left. Damaged ones are left for a
 * person to look at. removed_out: steps, oldest first, in `arena`. Errors: LS_ERR_IO, LS_ERR_DISK.
 */
LS_MUST_CHECK ls_status ls_checkpoint_prune(ls_arena *arena, const char *root,
                                            const ls_checkpoint_prune_options *options,
                                            uint64_t **removed_out, size_t *removed_count_out);

/* Pins a checkpoint against pruning, or releases it. `path`: its folder. */
LS_MUST_CHECK ls_status ls_checkpoint_pin(const char *path, bool pinned);

#endif
