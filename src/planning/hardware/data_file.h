// SPDX-License-Identifier: Apache-2.0
/*
 * The files of data/, built into the program, so that it needs nothing beside itself. cmake/embed.cmake makes the table.
 */
#ifndef LS_PLANNING_HARDWARE_DATA_FILE_H
#define LS_PLANNING_HARDWARE_DATA_FILE_H

#include <stddef.h>

typedef struct ls_data_file {
    const char *name; /* "hardware.csv" */
    const char *text; /* zero-terminated */
    size_t bytes;
} ls_data_file;

/* All of them; the last has no name. */
extern const ls_data_file ls_data_files[];

/* The file of that name; stops the process when the program was built without it. */
const ls_data_file *ls_data_file_find(const char *name);

#endif
