// SPDX-License-Identifier: Apache-2.0
#include "env/rapl.h"

#include "base/assert.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PACKAGES_MAX = 64, PATH_BYTES = 512 };

typedef struct package {
    char path[PATH_BYTES]; /* of its energy_uj */
    uint64_t last_uj, range_uj;
} package;

struct ls_rapl {
    package packages[PACKAGES_MAX];
    uint32_t count;
};

static bool read_u64(const char *path, uint64_t *value_out)
{
    char text[32], *end = text;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text) {
        return false;
    }
    *value_out = value;
    return true;
}

ls_rapl *ls_rapl_open(const char *folder)
{
    const char *other = getenv("LOCKSTEP_POWERCAP");
    ls_rapl *rapl = calloc(1, sizeof *rapl);
    LS_ASSERT(rapl && "not enough memory for the energy counters");
    folder = folder ? folder : other && other[0] ? other : "/sys/class/powercap";
    /* intel-rapl:0, intel-rapl:1, ...; parts of a package have a second number, and are in it */
    for (uint32_t i = 0; i < PACKAGES_MAX; i++) {
        package *p = &rapl->packages[rapl->count];
        char range[PATH_BYTES];
        const int bytes = snprintf(p->path, sizeof p->path, "%s/intel-rapl:%u/energy_uj", folder, i);
        snprintf(range, sizeof range, "%s/intel-rapl:%u/max_energy_range_uj", folder, i);
        if (bytes < (int)sizeof p->path && read_u64(p->path, &p->last_uj) && read_u64(range, &p->range_uj)) {
            rapl->count++;
        }
    }
    if (rapl->count == 0) {
        ls_rapl_close(rapl);
        return NULL;
    }
    return rapl;
}

uint64_t ls_rapl_take_uj(ls_rapl *rapl)
{
    uint64_t sum = 0, now = 0;
    for (uint32_t i = 0; i < rapl->count; i++) {
        package *p = &rapl->packages[i];
        if (!read_u64(p->path, &now)) {
            continue;
        }
        sum += now >= p->last_uj          ? now - p->last_uj
               : p->range_uj > p->last_uj ? now + p->range_uj - p->last_uj
                                          : now;
        p->last_uj = now;
    }
    return sum;
}

void ls_rapl_close(ls_rapl *rapl)
{
    free(rapl);
}
