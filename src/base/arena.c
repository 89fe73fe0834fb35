// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include "base/assert.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_CHUNK_BYTES = 64 * 1024 };

struct ls_arena_chunk {
    ls_arena_chunk *next;
    size_t used_bytes;
    size_t size_bytes;
    size_t unused_; /* keeps the data aligned to 16 bytes */
    unsigned char data[];
};

void ls_arena_init(ls_arena *arena)
{
    *arena = (ls_arena){0};
}

void ls_arena_release(ls_arena *arena)
{
    ls_arena_chunk *chunk = arena->chunk;
    while (chunk) {
        ls_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (ls_arena){0};
}

size_t ls_arena_mul(size_t count, size_t bytes)
{
    size_t product = 0;
    LS_ASSERT(!__builtin_mul_overflow(count, bytes, &product));
    return product;
}

static ls_arena_chunk *chunk_create(size_t at_least_bytes)
{
    const size_t size_bytes = at_least_bytes > ARENA_CHUNK_BYTES ? at_least_bytes : ARENA_CHUNK_BYTES;
    ls_arena_chunk *chunk = malloc(sizeof *chunk + size_bytes);
    LS_ASSERT(chunk && "out of memory for program tables");
    chunk->next = NULL;
    chunk->used_bytes = 0;
    chunk->size_bytes = size_bytes;
    return chunk;
}

void *ls_arena_alloc(ls_arena *arena, size_t bytes)
{
    LS_ASSERT(bytes < SIZE_MAX - 2 * ARENA_ALIGN);
    const size_t rounded = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    ls_arena_chunk *chunk = arena->chunk;
    if (!chunk || chunk->size_bytes - chunk->used_bytes < rounded) {
        ls_arena_chunk *fresh = chunk_create(rounded);
        fresh->next = chunk;
        arena->chunk = chunk = fresh;
    }
    void *memory = chunk->data + chunk->used_bytes;
    chunk->used_bytes += rounded;
    arena->allocated_bytes += rounded;
    return memset(memory, 0, bytes);
}

char *ls_arena_strndup(ls_arena *arena, const char *text, size_t bytes)
{
    char *copy = ls_arena_alloc(arena, bytes + 1);
    memcpy(copy, text, bytes);
    return copy;
}

char *ls_arena_strdup(ls_arena *arena, const char *text)
{
    return ls_arena_strndup(arena, text, strlen(text));
}

char *ls_arena_printf(ls_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    LS_ASSERT(bytes >= 0);
    char *text = ls_arena_alloc(arena, (size_t)bytes + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)bytes + 1, format, args);
    va_end(args);
    return text;
}
