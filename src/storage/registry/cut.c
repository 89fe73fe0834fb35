// SPDX-License-Identifier: Apache-2.0
/* Where files are cut, and the text of a list of chunks. */
#include "storage/registry/chunks.h"

#include "base/text.h"
#include "storage/safetensors/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "lockstep-chunks 1\n"

/* ---- where to cut ---- */

typedef struct cutter {
    ls_chunk *chunks; /* with room for all */
    size_t count;
    uint64_t gear[256];
} cutter;

/* Numbers without a pattern: splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static void fill_gear(uint64_t gear[256])
{
    uint64_t state = 0x6c6f636b73746570;
    for (int i = 0; i < 256; i++) {
        state += 0x9e3779b97f4a7c15;
        uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        gear[i] = z ^ (z >> 31);
    }
}

/* Bytes of the first chunk of `data`. */
static size_t first_cut(const uint64_t gear[256], const unsigned char *data, size_t bytes)
{
    /* 22 and 18 bits: a chunk is four times rarer to end, and then four times likelier, than one of
     * 20 bits would be, which keeps sizes near 2^20. They are the high ones, which depend on most
     * of the last 64 bytes. */
    static const uint64_t hard = 0xfffffc0000000000, easy = 0xffffc00000000000;
    uint64_t hash = 0;
    if (bytes <= LS_CHUNK_BYTES_MIN) {
        return bytes;
    }
    const size_t most = bytes < LS_CHUNK_BYTES_MAX ? bytes : LS_CHUNK_BYTES_MAX;
    const size_t usual = most < LS_CHUNK_BYTES_USUAL ? most : LS_CHUNK_BYTES_USUAL;
    size_t at = LS_CHUNK_BYTES_MIN - 64;
    for (; at < LS_CHUNK_BYTES_MIN; at++) {
        hash = (hash << 1) + gear[data[at]];
    }
    for (; at < usual; at++) {
        hash = (hash << 1) + gear[data[at]];
        if (!(hash & hard)) {
            return at + 1;
        }
    }
    for (; at < most; at++) {
        hash = (hash << 1) + gear[data[at]];
        if (!(hash & easy)) {
            return at + 1;
        }
    }
    return most;
}

static void cut_part(cutter *c, const unsigned char *data, size_t begin, size_t end)
{
    while (begin < end) {
        const size_t bytes = first_cut(c->gear, data + begin, end - begin);
        c->chunks[c->count++] = (ls_chunk){.offset = begin, .bytes = bytes};
        begin += bytes;
    }
}

static int by_place(const void *a, const void *b)
{
    const ls_safetensor *x = *(ls_safetensor *const *)a, *y = *(ls_safetensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

static void cut_tensors(cutter *c, ls_arena *arena, const ls_safetensors *file, const unsigned char *data,
                        size_t bytes)
{
    const size_t count = ls_safetensors_count(file);
    const ls_safetensor **tensors = ls_arena_new(arena, const ls_safetensor *, count + 1);
    size_t kept = 0, begin = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_safetensor *tensor = ls_safetensors_at(file, i);
        if (tensor->bytes > 0) {
            tensors[kept++] = tensor;
        }
    }
    /* Each part that is cut by itself may end with a chunk below the least size. */
    c->chunks = ls_arena_new(arena, ls_chunk, bytes / LS_CHUNK_BYTES_MIN + 2 * kept + 2);
    qsort(tensors, kept, sizeof *tensors, by_place);
    for (size_t i = 0; i < kept; i++) {
        const size_t at = (size_t)((const unsigned char *)tensors[i]->data - data);
        if (i == 0 || tensors[i]->bytes >= LS_CHUNK_TENSOR_BYTES) {
            cut_part(c, data, begin, at);
            begin = at;
        }
        if (tensors[i]->bytes >= LS_CHUNK_TENSOR_BYTES) {
            cut_part(c, data, at, at + (size_t)tensors[i]->bytes);
            begin = at + (size_t)tensors[i]->bytes;
        }
    }
    cut_part(c, data, begin, bytes);
}

void ls_chunks_cut(ls_arena *arena, const unsigned char *data, size_t bytes, ls_chunk_list *list_out)
{
    cutter c = {0};
    ls_safetensors *file = NULL;
    fill_gear(c.gear);
    /* The length of the header of a .safetensors file is below 2^32, and then comes a brace. */
    if (bytes > 9 && data[4] == 0 && data[8] == '{' &&
        ls_safetensors_open_memory(data, bytes, "chunks", &file) == LS_OK) {
        cut_tensors(&c, arena, file, data, bytes);
        ls_safetensors_close(file);
    } else {
        ls_error_clear();
        c.chunks = ls_arena_new(arena, ls_chunk, bytes / LS_CHUNK_BYTES_MIN + 1);
        cut_part(&c, data, 0, bytes);
    }
    *list_out = (ls_chunk_list){c.chunks, c.count};
}

/* ---- lists ---- */

const char *ls_chunks_encode(ls_arena *arena, const ls_chunk_list *list)
{
    ls_text text = {0};
    ls_text_append(&text, HEADER);
    for (size_t i = 0; i < list->count; i++) {
        ls_text_printf(&text, "%s %" PRIu64 "\n", list->chunks[i].sha256, list->chunks[i].bytes);
    }
    char *copy = ls_arena_strndup(arena, ls_text_string(&text), text.bytes);
    ls_text_release(&text);
    return copy;
}

/* One line; *at moves past it. */
static bool read_line(const char **at, ls_chunk *chunk)
{
    enum { DIGITS = LS_SHA256_HEX_BYTES - 1 };
    const char *text = *at;
    if (strnlen(text, DIGITS + 1) <= DIGITS || text[DIGITS] != ' ') {
        return false;
    }
    memcpy(chunk->sha256, text, DIGITS);
    chunk->sha256[DIGITS] = '\0';
    uint64_t bytes = 0;
    for (text += DIGITS + 1; *text >= '0' && *text <= '9' && bytes <= LS_CHUNK_BYTES_MAX; text++) {
        bytes = 10 * bytes + (uint64_t)(*text - '0');
    }
    chunk->bytes = bytes;
    *at = text + 1;
    return *text == '\n' && bytes > 0 && bytes <= LS_CHUNK_BYTES_MAX && ls_hash_is_hex(chunk->sha256, DIGITS);
}

ls_status ls_chunks_decode(ls_arena *arena, const char *text, uint64_t bytes, const char *where,
                           ls_chunk_list *list_out)
{
    const size_t head = strlen(HEADER);
    if (strncmp(text, HEADER, head) != 0) {
        return ls_fail(LS_ERR_DATA, "%s is not a list of chunks of version 1", where);
    }
    size_t lines = 0;
    for (const char *at = text + head; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    ls_chunk_list list = {.chunks = ls_arena_new(arena, ls_chunk, lines + 1)};
    uint64_t sum = 0;
    for (const char *at = text + head; *at; list.count++) {
        ls_chunk *chunk = &list.chunks[list.count];
        if (list.count >= lines || !read_line(&at, chunk)) {
            return ls_fail(LS_ERR_DATA, "%s: line %zu is not a digest and a size of 1 to %d", where,
                           list.count + 2, LS_CHUNK_BYTES_MAX);
        }
        chunk->offset = sum;
        sum += chunk->bytes;
    }
    if (sum != bytes) {
        return ls_fail(LS_ERR_DATA, "%s: its chunks have %" PRIu64 " bytes, the file %" PRIu64, where, sum,
                       bytes);
    }
    *list_out = list;
    return LS_OK;
}
