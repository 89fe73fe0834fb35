// SPDX-License-Identifier: Apache-2.0
#include "execution/train/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number in kB on the line of `path` that starts with `key`, in bytes. UINT64_MAX if there is
 * no such line. */
static uint64_t line_bytes(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        return UINT64_MAX;
    }
    char line[256];
    unsigned long long kib = 0;
    uint64_t bytes = UINT64_MAX;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), " %llu kB", &kib) == 1) {
            bytes = (uint64_t)kib * 1024;
            break;
        }
    }
    fclose(file);
    return bytes;
}

/* A file that holds one number; "max" and a missing file are UINT64_MAX. */
static uint64_t number_in(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        return UINT64_MAX;
    }
    unsigned long long value = 0;
    const int got = fscanf(file, "%llu", &value);
    fclose(file);
    return got == 1 ? (uint64_t)value : UINT64_MAX;
}

static uint64_t control_group_left(void)
{
    const uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
    const uint64_t used = number_in("/sys/fs/cgroup/memory.current");
    if (limit == UINT64_MAX || used == UINT64_MAX) {
        return UINT64_MAX;
    }
    return limit > used ? limit - used : 0;
}

static uint64_t address_space_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return UINT64_MAX;
    }
    const uint64_t pages = number_in("/proc/self/statm");
    const uint64_t used = pages == UINT64_MAX ? 0 : pages * 4096;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t ls_memory_available(void)
{
    return smaller(line_bytes("/proc/meminfo", "MemAvailable:"),
                   smaller(control_group_left(), address_space_left()));
}

uint64_t ls_memory_peak(void)
{
    /* Not ru_maxrss: it starts with the memory of the parent at the time of the fork. */
    const uint64_t bytes = line_bytes("/proc/self/status", "VmHWM:");
    return bytes == UINT64_MAX ? 0 : bytes;
}

uint64_t ls_memory_private(void)
{
    const uint64_t own = line_bytes("/proc/self/status", "RssAnon:");
    const uint64_t files = line_bytes("/proc/self/status", "RssFile:");
    return own == UINT64_MAX || files == UINT64_MAX ? 0 : own + files;
}

uint64_t ls_memory_private_peak(void)
{
    const uint64_t now = ls_memory_private(), peak = ls_memory_peak();
    const uint64_t shared = line_bytes("/proc/self/status", "RssShmem:");
    const uint64_t beside = shared < peak ? peak - shared : 0;
    return beside > now ? beside : now;
}

const char *ls_memory_text(uint64_t bytes, char text_out[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024.0;
        unit++;
    }
    snprintf(text_out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text_out;
}
