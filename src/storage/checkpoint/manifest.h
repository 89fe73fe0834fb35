// SPDX-License-Identifier: Apache-2.0
/*
 * MANIFEST.json of a checkpoint: what the state is and where every byte of it lies.
 *
 *   {"sha256":"<64 hex digits>",             the SHA-256 of all bytes after this first line, as
 *    "format":"lockstep-checkpoint", ...}    tail -n +2 MANIFEST.json | sha256sum  also prints it
 *
 *   format, version                     "lockstep-checkpoint", 1
 *   step, data_position, seed, leaves   numbers
 *   parent_step, val_loss               numbers or null
 *   identity, determinism               strings
 *   block_bytes                         4194304
 *   parameters, data_bytes              totals: elements, bytes of all data files
 *   files[]                             name, bytes, header_bytes, header_crc32c, sha256, blocks[]
 *                                       (CRC32C, 8 hex digits each)
 *   tensors[]                           name (of the parameter), kind ("value", "m", "v",
 *                                       "state"), dtype "F32" (a value without moments may be "BF16"),
 *                                       shape[], file (index), offset (bytes from the start of
 *                                       the file)
 *   attachments[]                       name, bytes, sha256
 *   extra                               free form
 *
 * Keys not listed are ignored within version 1 (a later program may add some); another version is
 * refused.
 *
 * Decoding trusts nothing. It checks that names stay in the folder and offsets in their file, that
 * tensors cover the data of each file exactly and in order, that block counts match sizes and
 * totals match tables.
 */
#ifndef LS_STORAGE_CHECKPOINT_MANIFEST_H
#define LS_STORAGE_CHECKPOINT_MANIFEST_H

#include "storage/checkpoint/checkpoint.h"

#define LS_MANIFEST_NAME "MANIFEST.json"

enum {
    LS_MANIFEST_VERSION = 1,
    /* 256 MiB: a checkpoint of about 80 TB */
    LS_MANIFEST_BYTES_MAX = 1 << 28,
};

typedef enum ls_manifest_kind {
    LS_KIND_VALUE,
    LS_KIND_M,
    LS_KIND_V,
    LS_KIND_STATE, /* further state of the run, not a parameter of the model */
    LS_KIND_COUNT
} ls_manifest_kind;

typedef struct ls_manifest_file {
    const char *name;
    uint64_t bytes; /* of the file */
    /* offset of the data, after length word, JSON and padding; a multiple of 4,096 */
    uint64_t header_bytes;
    uint32_t header_crc;
    char sha256[LS_SHA256_HEX_BYTES];
    uint64_t block_count; /* ceil((bytes - header_bytes) / block_bytes) */
    uint32_t *block_crcs;
} ls_manifest_file;

typedef struct ls_manifest_tensor {
    /* of the parameter; in the data file moments are called "m.<name>" and "v.<name>" */
    const char *name;
    ls_manifest_kind kind;
    uint32_t rank;
    uint64_t shape[LS_TENSOR_RANK_MAX];
    uint64_t bytes;
    ls_st_dtype dtype; /* LS_ST_F32, or LS_ST_BF16 for a value */
    uint32_t file;     /* index into files */
    uint64_t offset;   /* from the start of the file */
} ls_manifest_tensor;

typedef struct ls_manifest_attachment {
    const char *name;
    uint64_t bytes;
    char sha256[LS_SHA256_HEX_BYTES];
} ls_manifest_attachment;

/* Tensors are sorted by (kind, name); by file they are then in order of offset. */
struct ls_manifest {
    ls_checkpoint_meta meta;
    uint64_t parameters;
    uint64_t data_bytes;
    ls_manifest_file *files;
    size_t file_count;
    ls_manifest_tensor *tensors;
    size_t tensor_count;
    ls_manifest_attachment *attachments;
    size_t attachment_count;
    json_t *extra; /* owned when decoded */
};

/* The text of a manifest, checksum line included. text_out: malloc'ed, the caller frees. Errors:
 * LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_manifest_encode(const ls_manifest *manifest, char **text_out, size_t *bytes_out);

/*
 * Reads and checks a manifest. Messages show `name`. Tables go into `arena`; release with
 * ls_manifest_release before the arena. Errors: LS_ERR_DATA; LS_ERR_UNSUPPORTED for another
 * version.
 */
LS_MUST_CHECK ls_status ls_manifest_decode(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                           ls_manifest *manifest_out);
void ls_manifest_release(ls_manifest *manifest);

/* The part of decoding after the checksum line was verified: for tests and the fuzzer. */
LS_MUST_CHECK ls_status ls_manifest_decode_json(ls_arena *arena, const json_t *root, const char *name,
                                                ls_manifest *manifest_out);

/* Whether a name stays in its folder: letters, digits, '.', '_', '-'; first not '.'; 1 to 127
 * long. */
bool ls_manifest_name_is_plain(const char *name);

/* NULL if there is none. O(log tensors). */
const ls_manifest_tensor *ls_manifest_find(const ls_manifest *manifest, ls_manifest_kind kind,
                                           const char *name);

/* Elements of a tensor. */
static inline uint64_t ls_manifest_elements(const ls_manifest_tensor *tensor)
{
    return tensor->bytes / ls_st_dtype_bytes(tensor->dtype);
}

/* "m." for first moments, "v." for second, "" for values and further state. */
const char *ls_manifest_kind_prefix(ls_manifest_kind kind);

#endif
