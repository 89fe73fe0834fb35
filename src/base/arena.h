// SPDX-License-Identifier: Apache-2.0
/*
 * Arena: allocations that live and die together.
 *
 * There are three lifetimes in the program: the process, the job (an arena) and the step, in which
 * nothing is allocated. An arena hands out memory from chunks and frees all of it at once.
 * Allocation never returns NULL: when the system has no memory left the process stops, because what
 * goes into arenas is small (tables, names, plans); the large buffers whose size the user chose are
 * allocated elsewhere, with an error.
 *
 * Not thread-safe: one owner.
 */
#ifndef LS_BASE_ARENA_H
#define LS_BASE_ARENA_H

#include "base/status.h"

#include <stdarg.h>

typedef struct ls_arena_chunk ls_arena_chunk;

typedef struct ls_arena {
    ls_arena_chunk *chunk; /* private: list of all chunks, newest first */
    size_t allocated_bytes;
} ls_arena;

/* Makes an empty arena. Zero-initialised memory is a valid empty arena too. */
void ls_arena_init(ls_arena *arena);

/* Frees every allocation; the arena is empty and usable again. */
void ls_arena_release(ls_arena *arena);

/* `bytes` of zeroed memory, 16-byte aligned, valid until ls_arena_release. bytes may be 0. */
void *ls_arena_alloc(ls_arena *arena, size_t bytes);

/* `count` zeroed objects of type `type`. */
#define ls_arena_new(arena, type, count)                                                                     \
    ((type *)ls_arena_alloc((arena), ls_arena_mul((count), sizeof(type))))

/* count * bytes; stops the process on overflow. */
size_t ls_arena_mul(size_t count, size_t bytes);

/* Copies of strings, zero-terminated. */
char *ls_arena_strdup(ls_arena *arena, const char *text);
char *ls_arena_strndup(ls_arena *arena, const char *text, size_t bytes);
char *ls_arena_printf(ls_arena *arena, const char *format, ...) LS_PRINTF(2, 3);

#endif
