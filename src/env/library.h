// SPDX-License-Identifier: Apache-2.0
/*
 * Shared libraries that are loaded when they are first needed: if they were linked to the program,
 * every process would pay their load time, and the program would not start where they are not
 * installed.
 */
#ifndef LS_ENV_LIBRARY_H
#define LS_ENV_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ls_library_symbol {
    const char *name;
    void *place; /* address of a pointer to the function; written if the library has it */
} ls_library_symbol;

/*
 * Loads `file` ("libcurl.so.4") and finds all its symbols. false: it is missing, or lacks one of
 * them; then none of the pointers may be used. It stays loaded for the life of the process, because
 * others may have pointers into it. Call it once (pthread_once).
 */
bool ls_library_load(const char *file, const ls_library_symbol *symbols, size_t count);

#endif
