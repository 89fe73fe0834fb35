// SPDX-License-Identifier: Apache-2.0
/*
 * Safetensors: the file format of Hugging Face for tensors, read and written. It is plain data: no
 * code is ever run.
 *
 *   +--------+----------------------------------+--------------------------------------------+
 *   | N: u64 | header: N bytes of JSON, padded  | data: tensors one after another, no holes  |
 *   | little | with spaces                      | ^ data_offsets count from here             |
 *   +--------+----------------------------------+--------------------------------------------+
 *
 * The reader maps the file and trusts nothing in it. Refused, with the file and the tensor named: a
 * header longer than LS_SAFETENSORS_HEADER_MAX or than the file, JSON that is not an object or has
 * a duplicate key, an unknown dtype or field, offsets that run backwards, overlap, leave a hole or
 * end before or after the data (the format forbids holes and a tail, and so does Hugging Face's
 * reader), and a shape whose size does not match the offsets.
 *
 * A model may be cut into shards: `model.safetensors.index.json` maps each tensor name to the file
 * that has it.
 *
 * Source of the format: https://huggingface.co/docs/safetensors, "Format".
 *
 * Thread-safety: an open ls_safetensors is read-only, any number of threads may use it. The file
 * must not be shortened while it is open (that is a bus error, as with any map).
 */
#ifndef LS_STORAGE_SAFETENSORS_SAFETENSORS_H
#define LS_STORAGE_SAFETENSORS_SAFETENSORS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_TENSOR_RANK_MAX = 8, /* dimensions of one tensor */
    /* bytes of header JSON; the limit of Hugging Face's reader */
    LS_SAFETENSORS_HEADER_MAX = 100000000,
};

/* Element types, ordered as they are laid out in a file: widest first, so that every tensor stays
 * aligned. */
typedef enum ls_st_dtype {
    LS_ST_I64,
    LS_ST_F64,
    LS_ST_F32,
    LS_ST_I32,
    LS_ST_BF16,
    LS_ST_F16,
    LS_ST_I16,
    LS_ST_I8,
    LS_ST_U8,
    LS_ST_BOOL,
} ls_st_dtype;

/* One tensor. From the reader, everything belongs to the open file; for the writer, to the
 * caller. */
typedef struct ls_safetensor {
    const char *name; /* UTF-8 */
    ls_st_dtype dtype;
    uint32_t rank; /* 0 (a scalar) to LS_TENSOR_RANK_MAX */
    uint64_t shape[LS_TENSOR_RANK_MAX];
    /* row-major, little-endian, may be unaligned; NULL when the tensor is empty */
    const void *data;
    /* product of shape * size of dtype; the writer computes it and ignores what is here */
    uint64_t bytes;
    const char *path; /* the file it was read from; the writer ignores it */
} ls_safetensor;

/* "F32", "BF16", ...; never NULL. */
const char *ls_st_dtype_name(ls_st_dtype dtype);
/* Bytes of one element: 8, 4, 2 or 1. */
size_t ls_st_dtype_bytes(ls_st_dtype dtype);

/* Product of a shape; 1 for rank 0. Errors: LS_ERR_DATA naming `name` when it overflows or rank is
 * too large.
 */
LS_MUST_CHECK ls_status ls_shape_elements(const char *name, const uint64_t *shape, uint32_t rank,
                                          uint64_t *elements_out);
/* "[2, 3]" in `arena`, for messages. */
const char *ls_shape_text(ls_arena *arena, const uint64_t *shape, uint32_t rank);

/* ---- reading ---- */

typedef struct ls_safetensors ls_safetensors;

/*
 * Opens a `.safetensors` file, a `.safetensors.index.json` with its shards beside it, or a folder
 * that has `model.safetensors` or `model.safetensors.index.json`. Close with ls_safetensors_close.
 *
 * Shards named by an index are plain names in its folder: one with a slash is refused. Tensors of a
 * shard that the index does not map to it are ignored, as Hugging Face does.
 *
 * Errors: LS_ERR_NOT_FOUND when `path` is missing, LS_ERR_DATA as described above (a missing shard
 * too), LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_safetensors_open(const char *path, ls_safetensors **file_out);
/* Unmaps and frees; NULL is allowed. */
void ls_safetensors_close(ls_safetensors *file);

/* The same over bytes in memory, which must outlive the result. Messages show `name` in place of
 * the path.
 */
LS_MUST_CHECK ls_status ls_safetensors_open_memory(const void *data, size_t bytes, const char *name,
                                                   ls_safetensors **file_out);

/* Tensors, sorted by the bytes of their names. */
size_t ls_safetensors_count(const ls_safetensors *file);
const ls_safetensor *ls_safetensors_at(const ls_safetensors *file, size_t index);
/* NULL if there is none of that name. O(log count). */
const ls_safetensor *ls_safetensors_find(const ls_safetensors *file, const char *name);

/* ---- conversion ---- */

/*
 * The elements of `tensor` as float32. out: (product of shape) floats.
 * F32, F16 and BF16 are exact; F64 is rounded to nearest even. Errors: LS_ERR_UNSUPPORTED for
 * integers, naming the tensor.
 */
LS_MUST_CHECK ls_status ls_safetensor_to_f32(const ls_safetensor *tensor, float *out);

/*
 * `count` floats as `dtype`, rounded to nearest even (F64 and F32 exact; what is too large for F16
 * becomes infinity; NaN stays NaN). out: count * ls_st_dtype_bytes(dtype) bytes, not overlapping
 * `in`. Errors: LS_ERR_UNSUPPORTED for integers.
 */
LS_MUST_CHECK ls_status ls_safetensor_from_f32(ls_st_dtype dtype, const float *in, size_t count, void *out);

/* ---- writing ---- */

/* The first bytes of a file (length word and header), and the order of the data after them. */
typedef struct ls_st_header {
    char *data;
    size_t bytes;
    size_t *order; /* indices of the tensors */
} ls_st_header;

/*
 * Makes the header of a file with `tensors` and `__metadata__` {"format":"pt"}, which the
 * transformers library asks for. The order is by dtype as in ls_st_dtype, then by the bytes of the
 * name. That is the order of Hugging Face's writer, so with alignment_bytes 8 the whole file equals
 * what it writes.
 *
 * alignment_bytes: the data start at a multiple of this, a power of two >= 8.
 * header_out: its memory is in `arena`.
 * Errors: LS_ERR_INVALID for an empty name, a name twice, `__metadata__` or too many dimensions.
 */
LS_MUST_CHECK ls_status ls_safetensors_header(ls_arena *arena, const ls_safetensor *tensors,
                                              size_t tensor_count, size_t alignment_bytes,
                                              ls_st_header *header_out);

/* Writes a file, atomically (temporary name, fsync, rename). */
LS_MUST_CHECK ls_status ls_safetensors_write(const char *path, const ls_safetensor *tensors,
                                             size_t tensor_count);
/* The same for tensors whose data are floats, whatever their dtype says (F32, F16, BF16, F64): they
 * are converted while they are written (ls_safetensor_from_f32). */
LS_MUST_CHECK ls_status ls_safetensors_write_floats(const char *path, const ls_safetensor *tensors,
                                                    size_t tensor_count);

#endif
