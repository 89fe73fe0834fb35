// SPDX-License-Identifier: Apache-2.0
/* Counts the allocations of a test program, which includes this once. */
#ifndef LS_TESTS_COUNT_ALLOCATIONS_H
#define LS_TESTS_COUNT_ALLOCATIONS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
static atomic_long allocations; /* the sanitizer owns malloc: not counted */
#define COUNTS_ALLOCATIONS 0
#else
/* Every allocation of this program comes through here. */
static atomic_long allocations;
#define COUNTS_ALLOCATIONS 1
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes)
{
    allocations++;
    return __libc_realloc(memory, bytes);
}
#endif

#endif
