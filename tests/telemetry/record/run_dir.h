// SPDX-License-Identifier: Apache-2.0
/* A scratch run directory per test, and what is written to it and found in it. */
#ifndef LS_TESTS_TELEMETRY_RUN_DIR_H
#define LS_TESTS_TELEMETRY_RUN_DIR_H

#include "test.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run_dir {
    char path[64];
    ls_arena arena;
} run_dir;

static inline int run_dir_setup(void **state)
{
    run_dir *run = calloc(1, sizeof *run);
    strcpy(run->path, "/tmp/lockstep-telemetry-XXXXXX");
    if (!mkdtemp(run->path)) {
        return -1;
    }
    *state = run;
    return 0;
}

static inline int run_dir_teardown(void **state)
{
    run_dir *run = *state;
    const ls_status status = ls_dir_remove(run->path);
    ls_arena_release(&run->arena);
    free(run);
    return status == LS_OK ? 0 : -1;
}

static inline void run_dir_write(run_dir *run, const char *name, const char *text)
{
    assert_int_equal(ls_file_write_atomic(ls_path_join(&run->arena, run->path, name), text, strlen(text)),
                     LS_OK);
}

/* The whole file; lives as long as the test. */
static inline char *run_dir_read(run_dir *run, const char *name)
{
    char **text = ls_arena_alloc(&run->arena, sizeof *text);
    size_t bytes = 0;
    const char *path = ls_path_join(&run->arena, run->path, name);
    assert_int_equal(ls_file_read(&run->arena, path, 64u << 20, text, &bytes), LS_OK);
    assert_int_equal(strlen(*text), bytes);
    return *text;
}

static inline size_t count_lines(const char *text)
{
    size_t count = 0;
    for (; *text; text++) {
        count += *text == '\n';
    }
    return count;
}

#endif
