// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/queue_clock.h"

#include "base/file.h"
#include "orchestration/job/job.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BOOT_BYTES = 64 };

/* The name of this boot of the machine; "": not known. */
static void read_boot(char boot[BOOT_BYTES])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    boot[0] = '\0';
    if (file && fscanf(file, "%63s", boot) != 1) {
        boot[0] = '\0';
    }
    if (file) {
        fclose(file);
    }
}

static double boot_s(ls_env *env)
{
    return 1e-9 * (double)ls_env_boot_ns(env);
}

ls_queue_clock ls_queue_clock_open(ls_env *env, const char *home)
{
    char path[LS_JOB_PATH_BYTES_MAX + 8], boot[BOOT_BYTES], kept[BOOT_BYTES] = "", text[BOOT_BYTES + 40];
    ls_queue_clock clock = {.env = env, .offset_s = ls_env_wall_s(env) - boot_s(env)};
    double offset_s = 0.0;
    read_boot(boot);
    snprintf(path, sizeof path, "%s/clock", home);
    FILE *file = fopen(path, "re");
    const bool is_kept = file && fscanf(file, "%63s %lf", kept, &offset_s) == 2 && boot[0] &&
                         strcmp(kept, boot) == 0 && isfinite(offset_s);
    if (file) {
        fclose(file);
    }
    if (is_kept) {
        clock.offset_s = offset_s;
        return clock;
    }
    const int bytes = snprintf(text, sizeof text, "%s %.3f\n", boot, clock.offset_s);
    if (ls_file_write_atomic(path, text, (size_t)bytes) != LS_OK) {
        ls_error_clear(); /* only the next daemon would have needed it */
    }
    return clock;
}

double ls_queue_clock_now_s(const ls_queue_clock *clock)
{
    return boot_s(clock->env) + clock->offset_s;
}

double ls_queue_clock_ahead_s(const ls_queue_clock *clock)
{
    const double ahead_s = ls_env_wall_s(clock->env) - ls_queue_clock_now_s(clock);
    return fabs(ahead_s) < 1.0 ? 0.0 : ahead_s;
}
