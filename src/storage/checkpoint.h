// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints: a training state on disk that is whole or not there, checked when read, and the same for any
 * rank count.
 *
 *   checkpoints/                      the root; names that are not plain digits are not checkpoints
 *     200/                            the step, plain decimal, no leading zeros; sorted as numbers
 *       model.safetensors             parameters by their Hugging Face names, float32
 *       optimizer-00001-of-00002.safetensors    first moments "m.<name>"
 *       optimizer-00002-of-00002.safetensors    second moments "v.<name>"
 *       config.json, tokenizer.json   attachments: whatever small files the caller sends along
 *       MANIFEST.json                 written last (storage/manifest.h)
 *       PINNED                        optional: ls_checkpoint_prune leaves it alone
 *     600/                            with frozen tensors
 *       model-00001-of-00002.safetensors        parameters that are trained
 *       model-00002-of-00002.safetensors        parameters that are not: the same file as in 200 (a hard link)
 *       model.safetensors.index.json            Hugging Face's index: which is where
 *     400.tmp-1234-5f3a/              being written, or left by a crash: readers don't look, the next save
 * removes it
 *
 * Data files are plain safetensors that any tool reads; the header is padded so that the data start at a
 * multiple of 4,096 bytes. Above `file_bytes_max` they are cut between tensors into
 * model-00001-of-00003.safetensors and so on, with Hugging Face's index beside them. The data of a file are
 * checked in blocks of LS_CHECKPOINT_BLOCK_BYTES: file bytes [header + k * block, header + (k + 1) * block)
 * have the k-th CRC32C of the manifest. Neither depends on ranks or threads: the same state gives the same
 * bytes.
 *
 * Frozen tensors are in files of their own, which are the same in every checkpoint of a run: the first one writes them, later ones link them,
 * once they have read the older file and found in it, byte for byte, what they would have written (storage/share.h). A file is there as
 * long as one checkpoint has it, whatever is removed; where the file system has no links it is written each time. In the manifest, and to whoever
 * reads, such a file is like any other.
 *
 * Commit: everything is written into `<step>.tmp-...` and made durable, then the folder is renamed to `<step>` (storage/commit.h);
 * removal goes the other way (storage/collect.h). A crash at any point leaves the older checkpoints as they were and at most a `.tmp-` folder.
 * One saver per root at a time: the run directory's lock sees to that; two by mistake may make each other fail, and lose nothing.
 *
 * Thread-safety: functions on different roots or checkpoints may run at once; any number of readers beside
 * one saver.
 */
#ifndef LS_STORAGE_CHECKPOINT_H
#define LS_STORAGE_CHECKPOINT_H

#include "base/arena.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "storage/read_calls.h"
#include "storage/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LS_CHECKPOINT_BLOCK_BYTES = 4 << 20, /* what one CRC covers */
    LS_CHECKPOINT_THREADS_MAX = 64,
};

/* ---- what is saved ---- */

/* One parameter and its moments: float32, contiguous, row-major. Read by save and hash, written by load. */
typedef struct ls_checkpoint_tensor {
    const char *name; /* Hugging Face's */
    uint32_t rank;
    uint64_t shape[LS_TENSOR_RANK_MAX];
    float *value;
    float *m;    /* first moments, same shape; save: NULL when there are none (frozen); load: NULL when not
                 wanted */
    float *v;    /* second moments; NULL together with m */
    bool frozen; /* save: the same in all checkpoints of this run, so written once; then without moments */
} ls_checkpoint_tensor;

/* What the run was at that step. */
typedef struct ls_checkpoint_meta {
    uint64_t step;          /* finished steps; <= INT64_MAX, as are the other numbers (JSON) */
    uint64_t data_position; /* samples consumed */
    uint64_t seed;
    uint64_t leaves; /* V */
    const char
        *identity; /* hash of what must not change between resumes (DESIGN I1); "" when unknown (an import) */
    const char *determinism; /* determinism class */
    bool has_parent;         /* a checkpoint this run resumed from or saved before */
    uint64_t parent_step;
    bool has_val_loss;   /* what `best` goes by */
    double val_loss;     /* finite */
    const json_t *extra; /* free form object: model config, run file, curve hash state, ...; NULL: {} */
} ls_checkpoint_meta;

/* A small file that rides along; its SHA-256 goes into the manifest. */
typedef struct ls_checkpoint_attachment {
    const char *name; /* a plain file name: letters, digits, '.', '_', '-', first not '.' */
    const void *data;
    size_t bytes;
} ls_checkpoint_attachment;

typedef struct ls_checkpoint_save_options {
    const char *root; /* created when missing, in a folder that is there */
    const ls_checkpoint_meta *meta;
    const ls_checkpoint_tensor *tensors; /* any order; must not change until save returns */
    size_t tensor_count;
    const ls_checkpoint_attachment *attachments;
    size_t attachment_count;
    /* For gathering, hashing and writing; those that write wait for the disk, so two more than cores keep both busy. 0:
     * ls_block_pool_threads(). Does not change a byte of the result. */
    unsigned threads;
    bool
        bf16_values; /* values rounded to bfloat16, for use and not for going on; then no tensor has moments */
    uint64_t file_bytes_max; /* cut data files above this; 0: 2 GiB */
} ls_checkpoint_save_options;

typedef struct ls_checkpoint_saved {
    uint64_t bytes;        /* of all data files */
    uint64_t linked_bytes; /* of them in files that an older checkpoint had already */
    double wall_s;
} ls_checkpoint_saved;

/*
 * Writes checkpoint `<root>/<meta->step>` and returns when it is durable. Leftovers of crashed saves in
 * `root` are removed first. Memory: threads x 8 MiB. saved_out may be NULL.
 *
 * Errors: LS_ERR_INVALID (names, sizes), LS_ERR_DISK (full or read-only), LS_ERR_IO; then nothing of the new
 * checkpoint is visible, the older ones are untouched and what was written is removed as far as the disk lets
 * us.
 */
LS_MUST_CHECK ls_status ls_checkpoint_save(const ls_checkpoint_save_options *options,
                                           ls_checkpoint_saved *saved_out);

/* saved: only with LS_OK. Valid during the call. */
typedef void (*ls_checkpoint_save_done)(void *context, ls_status status, const ls_checkpoint_saved *saved);

/*
 * The same as a state machine, for loops that have an env already, and for the simulator: `done` is called once, later. Writing the data
 * blocks the loop meanwhile. arena: for everything it needs; it and what `options` points to must live
 * until done. Errors: LS_ERR_INVALID; then nothing follows.
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
    const ls_manifest *manifest; /* everything else: storage/manifest.h */
    bool pinned;
} ls_checkpoint;

/*
 * Opens the checkpoint in folder `path`: reads the manifest, checks it (its own SHA-256, its schema, that
 * files, blocks and tensors fit together) and that every file is there with the size it says. Contents are
 * checked when they are read. Close with ls_checkpoint_close.
 *
 * Errors: LS_ERR_NOT_FOUND when there is no such folder or manifest, LS_ERR_DATA naming file and value,
 * LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_checkpoint_open(const char *path, ls_checkpoint **checkpoint_out);
void ls_checkpoint_close(ls_checkpoint *checkpoint); /* NULL is fine */

/*
 * Finds the folder a user means: a checkpoint itself, a root (its newest good one) or a run directory (that
 * of its `checkpoints/`). path_out: in `arena`. Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA when there are
 * checkpoints but none is good.
 */
LS_MUST_CHECK ls_status ls_checkpoint_resolve(ls_arena *arena, const char *path, const char **path_out);

/* LS_ERR_INVALID, with both identities in the text, unless the checkpoint's is `identity`. */
LS_MUST_CHECK ls_status ls_checkpoint_check_identity(const ls_checkpoint *checkpoint, const char *identity);

/* Number of parameters (elements, not tensors). */
uint64_t ls_checkpoint_parameters(const ls_checkpoint *checkpoint);

/* The shape of parameter `name`. False when the checkpoint has none of that name; outputs are then untouched.
 */
bool ls_checkpoint_find(const ls_checkpoint *checkpoint, const char *name, uint32_t *rank_out,
                        uint64_t shape_out[LS_TENSOR_RANK_MAX]);

/* An attachment, its SHA-256 checked, in `arena`, zero-terminated. Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA,
 * LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_checkpoint_attachment_read(const ls_checkpoint *checkpoint, ls_arena *arena,
                                                      const char *name, char **data_out, size_t *bytes_out);

typedef struct ls_checkpoint_load_options {
    bool allow_partial; /* parameters of the checkpoint that nobody asked for are skipped, not an error */
    unsigned threads;   /* as for saving */
    const ls_read_calls *calls; /* NULL: the system's */
} ls_checkpoint_load_options;

/*
 * Loads into the caller's tensors, found by name; blocks that hold nothing wanted are not read. Every block
 * is checked before a byte of it is handed over. Values stored as bfloat16 become float32, exactly. Moments that are wanted but not in the checkpoint (frozen,
 * or imported) become zeros. options may be NULL.
 *
 * Errors: LS_ERR_DATA for a tensor that is missing or has another shape (naming both), and for a damaged
 * block (naming file, block and offset); LS_ERR_IO. On an error the tensors hold anything.
 */
LS_MUST_CHECK ls_status ls_checkpoint_load(const ls_checkpoint *checkpoint,
                                           const ls_checkpoint_tensor *tensors, size_t tensor_count,
                                           const ls_checkpoint_load_options *options);

/*
 * Reads everything: every block's CRC32C, every file's SHA-256, the safetensors headers against the manifest,
 * the attachments. Errors: LS_ERR_DATA naming file, block and offset of the first damage found; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_checkpoint_verify(const ls_checkpoint *checkpoint, unsigned threads);

/* ---- repair ---- */

#define LS_CHECKPOINT_HEADER                                                                                 \
    UINT64_MAX /* stands for a block number: the file's header; of an attachment, all of it */

/* Something that was bad and is good now. */
typedef struct ls_checkpoint_mend {
    const char *file;    /* its name in the checkpoint */
    uint64_t block;      /* or LS_CHECKPOINT_HEADER */
    const char *problem; /* what was wrong */
    const char *source;  /* the file whose bytes are there now, or "memory" */
} ls_checkpoint_mend;

typedef struct ls_checkpoint_repair_options {
    const ls_checkpoint_tensor *memory; /* a state that may be that of the checkpoint's step; NULL: none */
    size_t memory_count;
    const ls_read_calls *calls; /* NULL: the system's */
} ls_checkpoint_repair_options;

/*
 * Reads all of checkpoint `path`, and writes files that are damaged, torn or missing anew, with good bytes in place of bad ones. Good bytes are
 * those with the CRC of the manifest, from
 *
 *   1. the file itself, block by block
 *   2. a file with the same SHA-256 and length in another checkpoint beside it (`<root>/<step>`) or in `<root>/weights`: frozen
 *      tensors, snapshots of weights of the same step, attachments
 *   3. `memory`
 *
 * The new file is taken only when its SHA-256 is that of the manifest: it replaces the old one by a rename, synced. What has several links
 * is mended under this name alone. The manifest itself can't be mended.
 *
 * mends_out: in `arena`; none when all was good. options may be NULL. Errors: LS_ERR_DATA naming what has no good copy (the files before it
 * stay mended), LS_ERR_NOT_FOUND, LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_checkpoint_repair(ls_arena *arena, const char *path,
                                             const ls_checkpoint_repair_options *options,
                                             ls_checkpoint_mend **mends_out, size_t *count_out);

/* ---- the state hash ---- */

/*
 * SHA-256 over parameters, then first moments, then second moments, each in the byte order of their names,
 * float32 little-endian, then the step as u64 (DESIGN section 6). Missing moments count as zeros of the
 * parameter's shape, so that an imported model and the same model before its first step have one hash.
 * Independent of ranks, threads, files.
 *
 * Errors: LS_ERR_INVALID when a name is given twice or a shape is out of range.
 */
LS_MUST_CHECK ls_status ls_state_hash(const ls_checkpoint_tensor *tensors, size_t tensor_count, uint64_t step,
                                      char hex_out[LS_SHA256_HEX_BYTES]);

/* The same number from a checkpoint, without loading it: 8 MiB of memory per thread. Checks every block on the way. */
LS_MUST_CHECK ls_status ls_checkpoint_state_hash(const ls_checkpoint *checkpoint,
                                                 char hex_out[LS_SHA256_HEX_BYTES]);

/* ---- many checkpoints ---- */

/* A line of `checkpoint ls`. Strings live in the arena of the list. */
typedef struct ls_checkpoint_entry {
    uint64_t step;
    const char *path;
    const char
        *problem; /* why it can't be opened; NULL: good. The fields below are 0 when there is a problem */
    const char *identity;
    uint64_t bytes; /* data files */
    uint64_t parameters;
    bool has_val_loss;
    double val_loss;
    bool pinned;
} ls_checkpoint_entry;

/* All checkpoints of a root, oldest first, opened as by ls_checkpoint_open. A missing root is an empty list.
 */
LS_MUST_CHECK ls_status ls_checkpoint_list(ls_arena *arena, const char *root,
                                           ls_checkpoint_entry **entries_out, size_t *count_out);

typedef struct ls_checkpoint_latest {
    ls_checkpoint *checkpoint; /* to be closed by the caller; NULL when there is none at all */
    const ls_checkpoint_entry
        *skipped; /* newer ones that could not be used, newest first, each with its problem */
    size_t skipped_count;
    const ls_checkpoint_mend
        *mends; /* ls_checkpoint_load_latest: what was repaired in the one that is open */
    size_t mend_count;
} ls_checkpoint_latest;

/*
 * Opens the newest checkpoint of `root` that can be opened; a warning is logged for each skipped one.
 * before_step: only steps below it (UINT64_MAX: any), for falling back after a load has found damage.
 *
 * identity: NULL for any; else the newest good one must have it. Errors: LS_ERR_INVALID when it has another
 * (the run directory belongs to another run), LS_ERR_DATA when there are checkpoints but none can be opened,
 * LS_ERR_IO. No checkpoint at all is LS_OK with checkpoint NULL.
 */
LS_MUST_CHECK ls_status ls_checkpoint_find_latest(ls_arena *arena, const char *root, const char *identity,
                                                  uint64_t before_step, ls_checkpoint_latest *latest_out);

/*
 * find_latest and load in one: tries the newest, and on damage the one before it, until one loads whole. The
 * tensors then hold exactly that checkpoint. One that is damaged is repaired first where that is possible (ls_checkpoint_repair), which is
 * logged and in `mends`. Errors as of both; the damaged ones are in `skipped`.
 */
LS_MUST_CHECK ls_status ls_checkpoint_load_latest(ls_arena *arena, const char *root, const char *identity,
                                                  const ls_checkpoint_tensor *tensors, size_t tensor_count,
                                                  const ls_checkpoint_load_options *options,
                                                  ls_checkpoint_latest *latest_out);

typedef struct ls_checkpoint_prune_options {
    uint64_t keep_last;  /* the newest so many good ones; 0 counts as 1: the newest good one always stays */
    uint64_t keep_best;  /* and so many with the lowest val_loss */
    uint64_t keep_every; /* and those whose step is a multiple of this; 0: none */
    /* Where it is done behind a save: its step. What stands behind it is of a start that this one could not go on from (a bit flipped in it, say): it counts as nobody's
     * newer one, or else the good ones would make way for it. 0: none. */
    uint64_t saved;
    bool dry_run; /* only say what would go */
} ls_checkpoint_prune_options;

/* Why a checkpoint is kept, as bits. None: it would be removed. */
enum {
    LS_KEPT_LAST = 1,    /* one of the newest */
    LS_KEPT_BEST = 2,    /* one of those with the lowest val_loss */
    LS_KEPT_EVERY = 4,   /* a multiple of keep_every */
    LS_KEPT_PINNED = 8,  /* a person said so */
    LS_KEPT_DAMAGED = 16 /* for a person to look at */
};

/* For each entry of a list, oldest first (ls_checkpoint_list). Pure. */
void ls_checkpoint_reasons(const ls_checkpoint_entry *entries, size_t count,
                           const ls_checkpoint_prune_options *options, unsigned *reasons_out);
/* "last, best": in `arena`; "" for none. */
const char *ls_checkpoint_reasons_text(ls_arena *arena, unsigned reasons);

/*
 * Removes good checkpoints that no rule keeps and that are not pinned (storage/collect.h), and what an earlier prune left. Damaged ones
 * are left for a person to look at. removed_out: steps, oldest first, in `arena`. Errors: LS_ERR_IO, LS_ERR_DISK.
 */
LS_MUST_CHECK ls_status ls_checkpoint_prune(ls_arena *arena, const char *root,
                                            const ls_checkpoint_prune_options *options,
                                            uint64_t **removed_out, size_t *removed_count_out);

/* Pins a checkpoint against pruning, or releases it. `path`: its folder. */
LS_MUST_CHECK ls_status ls_checkpoint_pin(const char *path, bool pinned);

#endif
