// SPDX-License-Identifier: Apache-2.0
/* A folder for the files of a test program of planning, and an arena. */
#ifndef LS_TESTS_PLANNING_FOLDER_H
#define LS_TESTS_PLANNING_FOLDER_H

#include "test.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static ls_arena arena;
static char folder[] = "/tmp/ls-planning-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = ls_path_join(&arena, folder, name);
    assert_int_equal(ls_file_write_atomic(path, text, strlen(text)), LS_OK);
    return path;
}

#endif
