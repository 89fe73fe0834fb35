// SPDX-License-Identifier: Apache-2.0
/* Files that cmake/embed.cmake builds into the program, so that it needs no other files at run
 * time. */
#ifndef LS_BASE_EMBEDDED_H
#define LS_BASE_EMBEDDED_H

#include <stddef.h>

typedef struct ls_embedded_file {
    const char *name; /* without folders: "hardware.csv" */
    const char *text; /* zero-terminated */
    size_t bytes;
} ls_embedded_file;

/* Finds a file by name in a table whose last entry has no name; NULL: not found. */
const ls_embedded_file *ls_embedded_find(const ls_embedded_file *files, const char *name);

#endif
