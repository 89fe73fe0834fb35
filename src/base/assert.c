// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

static _Thread_local const char *assert_note;

void ls_assert_set_note(const char *note)
{
    assert_note = note;
}

_Noreturn void ls_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "lockstep: bug: assertion failed at %s:%d: %s\n", file, line, expression);
    if (assert_note) {
        fprintf(stderr, "lockstep: %s\n", assert_note);
    }
    fflush(stderr);
    abort();
}
