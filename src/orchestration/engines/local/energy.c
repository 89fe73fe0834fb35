// SPDX-License-Identifier: Apache-2.0
/*
 * What jobs use of the machine's energy. A job gets the energy of its GPUs, by their own counters,
 * and of the packages (RAPL) the part that it has of the machine's devices, whether it uses them
 * or not. What is left belongs to no job, so that all parts add up to what was measured.
 *
 * It is divided whenever a job begins or ends, so a job is not charged for what others used.
 */
#include "orchestration/engines/local/local_internal.h"

#include <math.h>

/* Of each GPU since the last call, in millijoules; all 0 without GPUs. */
static double take_gpu_energy(local_engine *e, double since_mj[LS_NVML_DEVICES_MAX])
{
    ls_nvml_reading now[LS_NVML_DEVICES_MAX];
    const bool is_known = e->gpus && ls_nvml_read(e->gpus, now);
    const uint32_t count = is_known ? ls_nvml_count(e->gpus) : 0;
    double sum = 0.0;
    for (uint32_t i = 0; i < LS_NVML_DEVICES_MAX; i++) {
        since_mj[i] = i < count ? (double)(now[i].energy_mj - e->gpu_mj[i]) : 0.0;
        e->gpu_mj[i] = i < count ? now[i].energy_mj : e->gpu_mj[i];
        sum += since_mj[i];
    }
    return sum;
}

void ls_local_divide_energy(local_engine *e)
{
    double gpu_mj[LS_NVML_DEVICES_MAX];
    const double packages_mj = e->rapl ? 1e-3 * (double)ls_rapl_take_uj(e->rapl) : 0.0;
    double left_mj = packages_mj + take_gpu_energy(e, gpu_mj);
    for (track *t = e->tracks; t; t = t->next) {
        if (!t->told_started || t->is_hunted) {
            continue;
        }
        double mj = packages_mj * fmin(1.0, (double)t->ranks / e->machine.node.devices);
        for (int bit = 0; bit < LS_NVML_DEVICES_MAX && e->machine.has_gpus; bit++) {
            mj += t->devices >> bit & 1 ? gpu_mj[bit] : 0.0;
        }
        mj = fmin(mj, left_mj);
        t->energy_mj += mj;
        left_mj -= mj;
    }
    e->free_energy_mj += left_mj;
}

uint64_t ls_track_take_energy(track *t)
{
    const uint64_t whole = (uint64_t)t->energy_mj;
    t->energy_mj -= (double)whole;
    return whole;
}

const ls_engine_device *ls_local_read_devices(local_engine *e, uint32_t *count_out)
{
    ls_nvml_reading now[LS_NVML_DEVICES_MAX];
    *count_out = e->gpus && ls_nvml_read(e->gpus, now) ? ls_nvml_count(e->gpus) : 0;
    for (uint32_t i = 0; i < *count_out; i++) {
        e->readings[i] = (ls_engine_device){now[i].utilization, now[i].memory_bytes,  now[i].memory_max_bytes,
                                            now[i].power_w,     now[i].temperature_c, now[i].is_throttled,
                                            now[i].ecc_errors};
    }
    return e->readings;
}
