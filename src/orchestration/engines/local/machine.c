// SPDX-License-Identifier: Apache-2.0
/* What this machine offers. */
#include "orchestration/engines/local/local_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* /dev/nvidia0, nvidia1, ... */
static uint32_t count_gpus(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/dev");
    if (!folder) {
        return 0;
    }
    for (const struct dirent *item; (item = readdir(folder));) {
        count += strncmp(item->d_name, "nvidia", 6) == 0 && isdigit((unsigned char)item->d_name[6]);
    }
    closedir(folder);
    return count;
}

static void set_kind(char kind[64], const char *model)
{
    snprintf(kind, 64, "%s", strncmp(model, "NVIDIA ", 7) == 0 ? model + 7 : model);
}

/* "Model: NVIDIA H200" of the first GPU, without the maker. */
static void read_gpu_kind(char kind[64])
{
    snprintf(kind, 64, "gpu");
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    for (const struct dirent *item; folder && (item = readdir(folder));) {
        char path[400], line[200];
        snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", item->d_name);
        FILE *file = item->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (file && fgets(line, sizeof line, file)) {
            char model[64];
            if (sscanf(line, "Model: %63[^\n]", model) == 1) {
                set_kind(kind, model);
            }
        }
        if (file) {
            fclose(file);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

/* The number of cores that this process may use. */
static uint32_t count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

ls_status ls_local_machine_read(uint32_t slots, const ls_nvml *asked, ls_local_machine *machine_out)
{
    if (slots > LS_LOCAL_SLOTS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "the daemon's setting slots is %u; a machine can offer at most %d devices", slots,
                       LS_LOCAL_SLOTS_MAX);
    }
    const uint32_t gpus = slots > 0 ? 0 : asked ? ls_nvml_count(asked) : count_gpus();
    const uint32_t cores = count_cores();
    ls_local_machine *m = machine_out;
    *m = (ls_local_machine){.has_gpus = gpus > 0};
    if (gethostname(m->name, sizeof m->name - 1) != 0) {
        snprintf(m->name, sizeof m->name, "localhost");
    }
    snprintf(m->kind, sizeof m->kind, "cpu");
    if (gpus > 0 && asked && ls_nvml_name(asked)[0]) {
        set_kind(m->kind, ls_nvml_name(asked));
    } else if (gpus > 0) {
        read_gpu_kind(m->kind);
    }
    uint32_t devices = gpus > 0 ? gpus : slots > 0 ? slots : cores;
    devices = devices > LS_LOCAL_SLOTS_MAX ? LS_LOCAL_SLOTS_MAX : devices;
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    m->node = (ls_engine_node){
        .name = m->name,
        .kind = m->kind,
        .devices = devices,
        .island_devices = devices,
        .cpus = cores,
        .memory_mib = pages > 0 ? (uint32_t)(((uint64_t)pages * (uint64_t)page_bytes) >> 20) : 1024,
    };
    return LS_OK;
}
