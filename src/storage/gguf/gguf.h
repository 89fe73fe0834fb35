// SPDX-License-Identifier: Apache-2.0
/*
 * GGUF: the file format of llama.cpp and of programs built on it, written.
 *
 *   +------------------------+-----------+---------------+--------------------------------------+
 *   | "GGUF", version 3,     | keys with | names, shapes | data: one tensor after another, each |
 *   | counts (little-endian) | values    | of tensors    | at a multiple of 32 bytes            |
 *   +------------------------+-----------+---------------+--------------------------------------+
 *
 * Keys, values and the list of tensors are gathered first; their sizes are known then, so the data
 * are written as they come, and no tensor need be in memory as a whole.
 *
 * Source of the format: the document docs/gguf.md of the project ggml.
 *
 * One thread per file.
 */
#ifndef LS_STORAGE_GGUF_GGUF_H
#define LS_STORAGE_GGUF_GGUF_H

#include "base/text.h"
#include "storage/gguf/blocks.h"

typedef struct ls_gguf {
    ls_text keys;    /* private: as in the file */
    ls_text tensors; /* private: as in the file */
    uint64_t key_count, tensor_count;
    uint64_t data_bytes; /* of all tensors so far, with the space between them */
} ls_gguf;

void ls_gguf_release(ls_gguf *gguf);

void ls_gguf_add_u32(ls_gguf *gguf, const char *key, uint32_t value);
void ls_gguf_add_f32(ls_gguf *gguf, const char *key, float value);
void ls_gguf_add_bool(ls_gguf *gguf, const char *key, bool value);
void ls_gguf_add_string(ls_gguf *gguf, const char *key, const char *value);
void ls_gguf_add_strings(ls_gguf *gguf, const char *key, const char *const *values, size_t count);
void ls_gguf_add_f32s(ls_gguf *gguf, const char *key, const float *values, size_t count);
void ls_gguf_add_i32s(ls_gguf *gguf, const char *key, const int32_t *values, size_t count);

/* Adds a matrix (rows, cols), or with rank 1 a vector of `cols`, to the list. Its data come in the
 * same order. cols: a multiple of ls_block_elements(type). */
void ls_gguf_add_tensor(ls_gguf *gguf, const char *name, ls_block_type type, uint32_t rank, uint64_t rows,
                        uint64_t cols);

/* Writes everything before the data. Errors: LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_gguf_write_header(const ls_gguf *gguf, int fd, const char *path);
/* Writes the zeros that follow a tensor of `bytes`. */
LS_MUST_CHECK ls_status ls_gguf_write_padding(int fd, const char *path, uint64_t bytes);

#endif
