// SPDX-License-Identifier: Apache-2.0
/*
 * The GPUs of this machine as NVIDIA's management library (NVML, part of the driver) reports them:
 * how many there are, their model, how busy each one is, and what its sensors say.
 *
 * libnvidia-ml.so.1 is loaded when it is first needed; without it a machine has no GPUs here. A
 * call into the library can take long, and can hang when a device is lost, so one thread per
 * ls_nvml makes all calls. The functions below never wait for it, except open and close, which give
 * up after 10 s and 1 s. GPUs are numbered by PCI bus, as CUDA does with
 * CUDA_DEVICE_ORDER=PCI_BUS_ID.
 *
 * Open one ls_nvml per process and use it from one thread.
 */
#ifndef LS_ENV_NVML_H
#define LS_ENV_NVML_H

#include <stdbool.h>
#include <stdint.h>

/* GPUs beyond this number are ignored. */
enum { LS_NVML_DEVICES_MAX = 64 };

typedef struct ls_nvml ls_nvml;

/* NULL: there is no GPU, no library, or no answer within 10 s. */
ls_nvml *ls_nvml_open(void);

/* 1 to LS_NVML_DEVICES_MAX. */
uint32_t ls_nvml_count(const ls_nvml *nvml);

/* The model of the first GPU ("NVIDIA H200"), "" when it is not known. Lives as long as nvml. */
const char *ls_nvml_name(const ls_nvml *nvml);

/*
 * The mean utilisation of each GPU since the last call, in thousandths. While keep_sampling is true
 * the thread takes a sample each second; otherwise it rests. permille_out: ls_nvml_count values.
 * false, and zeros: there was no sample since the last call, or a GPU does not report utilisation
 * (one that is partitioned does not).
 */
bool ls_nvml_take_utilization(ls_nvml *nvml, bool keep_sampling, uint32_t *permille_out);

/* What one GPU reported last. What it does not report is NAN, or 0 for energy_mj. */
typedef struct ls_nvml_reading {
    double utilization; /* 0 to 1 */
    double memory_bytes, memory_max_bytes;
    double power_w, temperature_c;
    /* 1: its clock is held down by heat, power or hardware; 0: it is not */
    double is_throttled;
    double ecc_errors; /* double-bit errors since the driver was loaded */
    /* since the first sample; from the GPU's counter, or power times time between samples */
    uint64_t energy_mj;
} ls_nvml_reading;

/* The newest sample, at most a second old while the thread samples. out: ls_nvml_count values.
 * false: there is none yet. */
bool ls_nvml_read(ls_nvml *nvml, ls_nvml_reading *out);

/* NULL is allowed. When a call into the library hangs, the thread and its memory stay behind. */
void ls_nvml_close(ls_nvml *nvml);

#endif
