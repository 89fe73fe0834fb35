// SPDX-License-Identifier: Apache-2.0
/* The files of data/, built into the program. */
#ifndef LS_PLANNING_HARDWARE_DATA_FILE_H
#define LS_PLANNING_HARDWARE_DATA_FILE_H

#include "base/embedded.h"

/* All of them; the last has no name. */
extern const ls_embedded_file ls_data_files[];

/* The file of that name; stops the process when the program was built without it. */
const ls_embedded_file *ls_data_file_find(const char *name);

#endif
