// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

void ls_crash_point(void)
{
    static long left = -1; /* until the crash; -1: not looked yet, 0: never */
    if (left < 0) {
        const char *text = getenv("LS_TEST_CRASH");
        left = text ? strtol(text, NULL, 10) : 0;
        left = left > 0 ? left : 0;
    }
    if (left > 0 && --left == 0) {
        kill(getpid(), SIGKILL);
    }
}
