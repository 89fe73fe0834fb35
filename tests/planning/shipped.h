// SPDX-License-Identifier: Apache-2.0
/* The catalogue that ships, loaded once for a group of tests: cmocka_run_group_tests(tests,
 * load_shipped, release_shipped). */
#ifndef LS_TESTS_PLANNING_SHIPPED_H
#define LS_TESTS_PLANNING_SHIPPED_H

#include "test.h"

#include "planning/hardware/catalogue.h"

static ls_arena arena;
static ls_catalogue catalogue;

static int load_shipped(void **state)
{
    (void)state;
    ls_arena_init(&arena);
    if (ls_catalogue_load(&arena, NULL, 0, &catalogue) != LS_OK) {
        print_message("%s\n", ls_error_text());
        return -1;
    }
    return 0;
}

static int release_shipped(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

#endif
