// SPDX-License-Identifier: Apache-2.0
#include "storage/gguf/gguf.h"

#include "base/assert.h"
#include "base/file.h"

#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32 };

/* The numbers of value types in the file. */
enum { VALUE_U32 = 4, VALUE_I32 = 5, VALUE_F32 = 6, VALUE_BOOL = 7, VALUE_STRING = 8, VALUE_ARRAY = 9 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

static void put_u32(ls_text *out, uint32_t value)
{
    ls_text_append_bytes(out, &value, sizeof value);
}

static void put_u64(ls_text *out, uint64_t value)
{
    ls_text_append_bytes(out, &value, sizeof value);
}

static void put_string(ls_text *out, const char *value)
{
    put_u64(out, strlen(value));
    ls_text_append(out, value);
}

static void put_key(ls_gguf *gguf, const char *key, uint32_t type)
{
    gguf->key_count++;
    put_string(&gguf->keys, key);
    put_u32(&gguf->keys, type);
}

static void put_array(ls_gguf *gguf, const char *key, uint32_t type, size_t count)
{
    put_key(gguf, key, VALUE_ARRAY);
    put_u32(&gguf->keys, type);
    put_u64(&gguf->keys, count);
}

void ls_gguf_release(ls_gguf *gguf)
{
    ls_text_release(&gguf->keys);
    ls_text_release(&gguf->tensors);
}

void ls_gguf_add_u32(ls_gguf *gguf, const char *key, uint32_t value)
{
    put_key(gguf, key, VALUE_U32);
    put_u32(&gguf->keys, value);
}

void ls_gguf_add_f32(ls_gguf *gguf, const char *key, float value)
{
    put_key(gguf, key, VALUE_F32);
    ls_text_append_bytes(&gguf->keys, &value, sizeof value);
}

void ls_gguf_add_bool(ls_gguf *gguf, const char *key, bool value)
{
    put_key(gguf, key, VALUE_BOOL);
    ls_text_append_bytes(&gguf->keys, value ? "\1" : "\0", 1);
}

void ls_gguf_add_string(ls_gguf *gguf, const char *key, const char *value)
{
    put_key(gguf, key, VALUE_STRING);
    put_string(&gguf->keys, value);
}

void ls_gguf_add_strings(ls_gguf *gguf, const char *key, const char *const *values, size_t count)
{
    put_array(gguf, key, VALUE_STRING, count);
    for (size_t i = 0; i < count; i++) {
        put_string(&gguf->keys, values[i]);
    }
}

void ls_gguf_add_f32s(ls_gguf *gguf, const char *key, const float *values, size_t count)
{
    put_array(gguf, key, VALUE_F32, count);
    ls_text_append_bytes(&gguf->keys, values, count * sizeof *values);
}

void ls_gguf_add_i32s(ls_gguf *gguf, const char *key, const int32_t *values, size_t count)
{
    put_array(gguf, key, VALUE_I32, count);
    ls_text_append_bytes(&gguf->keys, values, count * sizeof *values);
}

void ls_gguf_add_tensor(ls_gguf *gguf, const char *name, ls_block_type type, uint32_t rank, uint64_t rows,
                        uint64_t cols)
{
    LS_ASSERT(rank == 1 || rank == 2);
    put_string(&gguf->tensors, name);
    put_u32(&gguf->tensors, rank);
    put_u64(&gguf->tensors, cols); /* the fastest dimension comes first */
    if (rank == 2) {
        put_u64(&gguf->tensors, rows);
    }
    put_u32(&gguf->tensors, (uint32_t)type);
    put_u64(&gguf->tensors, gguf->data_bytes);
    const uint64_t bytes = (rank == 2 ? rows : 1) * ls_block_row_bytes(type, cols);
    gguf->data_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    gguf->tensor_count++;
}

ls_status ls_gguf_write_padding(int fd, const char *path, uint64_t bytes)
{
    static const char zeros[ALIGNMENT];
    return ls_file_write_all(fd, path, zeros, (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT);
}

ls_status ls_gguf_write_header(const ls_gguf *gguf, int fd, const char *path)
{
    ls_text head = {0};
    ls_text_append(&head, "GGUF");
    put_u32(&head, VERSION);
    put_u64(&head, gguf->tensor_count);
    put_u64(&head, gguf->key_count);
    ls_text_append_bytes(&head, gguf->keys.data, gguf->keys.bytes);
    ls_text_append_bytes(&head, gguf->tensors.data, gguf->tensors.bytes);
    ls_status status = ls_file_write_all(fd, path, head.data, head.bytes);
    if (status == LS_OK) {
        status = ls_gguf_write_padding(fd, path, head.bytes);
    }
    ls_text_release(&head);
    return status;
}
