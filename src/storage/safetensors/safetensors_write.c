// SPDX-License-Identifier: Apache-2.0
#include "storage/safetensors/safetensors.h"

#include "base/assert.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing text; compact JSON is written by hand here because its bytes must equal those of
 * Hugging Face's writer. */
typedef struct text {
    ls_arena *arena;
    char *data;
    size_t bytes, capacity;
} text;

static void text_add(text *out, const char *data, size_t bytes)
{
    if (out->bytes + bytes > out->capacity) {
        out->capacity = 2 * (out->bytes + bytes) + 256;
        char *larger = ls_arena_alloc(out->arena, out->capacity);
        if (out->bytes) {
            memcpy(larger, out->data, out->bytes);
        }
        out->data = larger;
    }
    memcpy(out->data + out->bytes, data, bytes);
    out->bytes += bytes;
}

static void text_puts(text *out, const char *data)
{
    text_add(out, data, strlen(data));
}

static void text_number(text *out, uint64_t value)
{
    char digits[24];
    text_add(out, digits, (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value));
}

/* A JSON string: only the quote, the backslash and control characters are escaped. */
static void text_string(text *out, const char *value)
{
    static const char SHORT[] = "btnvfr"; /* 8 to 13; \v has no short form in JSON */
    text_puts(out, "\"");
    for (const char *at = value; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        char escape[8] = {'\\', (char)c};
        if (c == '"' || c == '\\') {
            text_add(out, escape, 2);
        } else if (c >= 8 && c <= 13 && c != 11) {
            escape[1] = SHORT[c - 8];
            text_add(out, escape, 2);
        } else if (c < 32) {
            text_add(out, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
        } else {
            text_add(out, at, 1);
        }
    }
    text_puts(out, "\"");
}

static int compare_order(const void *a, const void *b, void *context)
{
    const ls_safetensor *tensors = context;
    const ls_safetensor *x = &tensors[*(const size_t *)a], *y = &tensors[*(const size_t *)b];
    return x->dtype != y->dtype ? (x->dtype < y->dtype ? -1 : 1) : strcmp(x->name, y->name);
}

static int compare_name_order(const void *a, const void *b, void *context)
{
    const ls_safetensor *tensors = context;
    return strcmp(tensors[*(const size_t *)a].name, tensors[*(const size_t *)b].name);
}

static ls_status check_names(const ls_safetensor *tensors, size_t count, size_t *order)
{
    qsort_r(order, count, sizeof *order, compare_name_order, (void *)(uintptr_t)tensors);
    for (size_t i = 0; i < count; i++) {
        const ls_safetensor *tensor = &tensors[order[i]];
        if (tensor->name[0] == '\0' || strcmp(tensor->name, "__metadata__") == 0) {
            return ls_fail(LS_ERR_INVALID,
                           "\"%s\" can't be the name of a tensor: a name must not be empty or __metadata__",
                           tensor->name);
        }
        if (i > 0 && strcmp(tensor->name, tensors[order[i - 1]].name) == 0) {
            return ls_fail(LS_ERR_INVALID, "tensor %s is given twice", tensor->name);
        }
    }
    return LS_OK;
}

static ls_status tensor_bytes(const ls_safetensor *tensor, uint64_t *bytes_out)
{
    uint64_t bytes = 0;
    const ls_status status = ls_shape_elements(tensor->name, tensor->shape, tensor->rank, &bytes);
    if (status != LS_OK || __builtin_mul_overflow(bytes, ls_st_dtype_bytes(tensor->dtype), &bytes)) {
        return ls_fail(LS_ERR_INVALID, "tensor %s: its shape is too large or has too many dimensions",
                       tensor->name);
    }
    *bytes_out = bytes;
    return LS_OK;
}

static void add_tensor(text *out, const ls_safetensor *tensor, uint64_t begin, uint64_t end)
{
    text_string(out, tensor->name);
    text_puts(out, ":{\"dtype\":\"");
    text_puts(out, ls_st_dtype_name(tensor->dtype));
    text_puts(out, "\",\"shape\":[");
    for (uint32_t i = 0; i < tensor->rank; i++) {
        text_puts(out, i ? "," : "");
        text_number(out, tensor->shape[i]);
    }
    text_puts(out, "],\"data_offsets\":[");
    text_number(out, begin);
    text_puts(out, ",");
    text_number(out, end);
    text_puts(out, "]}");
}

ls_status ls_safetensors_header(ls_arena *arena, const ls_safetensor *tensors, size_t tensor_count,
                                size_t alignment_bytes, ls_st_header *header_out)
{
    LS_ASSERT(alignment_bytes >= 8 && (alignment_bytes & (alignment_bytes - 1)) == 0);
    size_t *order = ls_arena_new(arena, size_t, tensor_count);
    for (size_t i = 0; i < tensor_count; i++) {
        order[i] = i;
    }
    LS_TRY(check_names(tensors, tensor_count, order));
    qsort_r(order, tensor_count, sizeof *order, compare_order, (void *)(uintptr_t)tensors);

    text out = {.arena = arena};
    uint64_t at = 0;
    text_add(&out, "\0\0\0\0\0\0\0\0", 8);
    text_puts(&out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < tensor_count; i++) {
        uint64_t bytes = 0;
        LS_TRY(tensor_bytes(&tensors[order[i]], &bytes));
        text_puts(&out, ",");
        add_tensor(&out, &tensors[order[i]], at, at + bytes);
        at += bytes;
    }
    text_puts(&out, "}");
    while (out.bytes & (alignment_bytes - 1)) {
        text_puts(&out, " ");
    }
    const uint64_t header_bytes = out.bytes - sizeof header_bytes;
    if (header_bytes > LS_SAFETENSORS_HEADER_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "the header of a safetensors file with %zu tensors would have %llu bytes; at most %d are allowed",
            tensor_count, (unsigned long long)header_bytes, LS_SAFETENSORS_HEADER_MAX);
    }
    memcpy(out.data, &header_bytes, sizeof header_bytes);
    *header_out = (ls_st_header){out.data, out.bytes, order};
    return LS_OK;
}

typedef struct content {
    const ls_safetensor *tensors;
    size_t count;
    /* The data are floats, to be converted. */
    bool floats;
} content;

static ls_status write_floats(const ls_safetensor *tensor, uint64_t bytes, int fd, const char *path)
{
    enum { BLOCK = 8192 };
    double block[BLOCK]; /* aligned, and large enough for every type */
    const size_t each = ls_st_dtype_bytes(tensor->dtype), count = (size_t)bytes / each;
    const float *at = tensor->data;
    for (size_t left = count; left > 0;) {
        const size_t now = left < BLOCK ? left : BLOCK;
        LS_TRY(ls_safetensor_from_f32(tensor->dtype, at, now, block));
        LS_TRY(ls_file_write_all(fd, path, block, now * each));
        at += now;
        left -= now;
    }
    return LS_OK;
}

static ls_status write_body(void *context, int fd, const char *path)
{
    const ls_safetensor *tensors = ((const content *)context)->tensors;
    const size_t count = ((const content *)context)->count;
    const bool floats = ((const content *)context)->floats;
    ls_arena arena = {0};
    ls_st_header header = {0};
    ls_status status = ls_safetensors_header(&arena, tensors, count, 8, &header);
    if (status == LS_OK) {
        status = ls_file_write_all(fd, path, header.data, header.bytes);
    }
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        uint64_t bytes = 0;
        const ls_safetensor *tensor = &tensors[header.order[i]];
        status = tensor_bytes(tensor, &bytes);
        if (status == LS_OK && bytes) {
            status = floats ? write_floats(tensor, bytes, fd, path)
                            : ls_file_write_all(fd, path, tensor->data, (size_t)bytes);
        }
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_safetensors_write(const char *path, const ls_safetensor *tensors, size_t tensor_count)
{
    LS_ASSERT(path && (tensors || tensor_count == 0));
    return ls_file_write_atomic_by(path, write_body, &(content){tensors, tensor_count, false});
}

ls_status ls_safetensors_write_floats(const char *path, const ls_safetensor *tensors, size_t tensor_count)
{
    LS_ASSERT(path && (tensors || tensor_count == 0));
    return ls_file_write_atomic_by(path, write_body, &(content){tensors, tensor_count, true});
}
