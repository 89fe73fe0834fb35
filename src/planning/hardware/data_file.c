// SPDX-License-Identifier: Apache-2.0
#include "planning/hardware/data_file.h"

#include "base/assert.h"

const ls_embedded_file *ls_data_file_find(const char *name)
{
    const ls_embedded_file *file = ls_embedded_find(ls_data_files, name);
    LS_ASSERT(file);
    return file;
}
