// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void ls_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "lockstep: bug: assertion failed at %s:%d: %s\n", file, line, expression);
    fflush(stderr);
    abort();
}
