// SPDX-License-Identifier: Apache-2.0
#include "planning/hardware/data_file.h"

#include "base/assert.h"

#include <string.h>

const ls_data_file *ls_data_file_find(const char *name)
{
    const ls_data_file *file = ls_data_files;
    while (file->name && strcmp(file->name, name) != 0) {
        file++;
    }
    LS_ASSERT(file->name);
    return file;
}
