// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VERSION_MIN = 12000,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_UNKNOWN = 999,
};

static ls_cuda_driver driver;

/* The result of loading, and its text: loading happens once, and every caller gets the same. */
static ls_status load_status;
static char load_error[512];

static const char *library_name(void)
{
    const char *name = getenv("LOCKSTEP_CUDA_DRIVER");
    return name && *name ? name : "libcuda.so.1";
}

static ls_status find_symbols(void *library, const char *name)
{
    const struct {
        const char *symbol;
        void *place;
    } functions[] = {
#define ENTRY(function, symbol, arguments) {symbol, &driver.function},
        LS_CUDA_DRIVER_FUNCTIONS(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *symbol = dlsym(library, functions[i].symbol);
        if (!symbol) {
            return ls_fail(LS_ERR_DEVICE,
                           "%s is too old: it has no %s; install an NVIDIA driver for CUDA 12.0 or newer "
                           "(525 or newer)",
                           name, functions[i].symbol);
        }
        /* a function's address, as POSIX lets it be */
        memcpy(functions[i].place, &symbol, sizeof symbol);
    }
    driver.has_kernels = dlsym(library, "lockstep_cuda_has_kernels") != NULL;
    return LS_OK;
}

static ls_status check_version(const char *name)
{
    int version = 0;
    CU_TRY(&driver, cuDriverGetVersion, &version);
    if (version < VERSION_MIN) {
        return ls_fail(LS_ERR_DEVICE,
                       "%s supports CUDA %d.%d, and 12.0 is needed: install NVIDIA driver 525 or newer", name,
                       version / 1000, version % 1000 / 10);
    }
    return LS_OK;
}

static ls_status initialise(void)
{
    const CUresult result = driver.cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        return ls_fail(LS_ERR_DEVICE,
                       "the NVIDIA driver finds no GPU: see nvidia-smi, and CUDA_VISIBLE_DEVICES (%s)",
                       getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    }
    if (result != CUDA_SUCCESS) {
        return ls_cuda_fail(&driver, result, "cuInit");
    }
    int count = 0;
    CU_TRY(&driver, cuDeviceGetCount, &count);
    if (count == 0) {
        return ls_fail(LS_ERR_DEVICE, "the NVIDIA driver finds no GPU: see nvidia-smi");
    }
    return LS_OK;
}

static ls_status load(void)
{
    const char *name = library_name();
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return ls_fail(LS_ERR_DEVICE, "no NVIDIA driver: %s; install one, or use the device cpu", dlerror());
    }
    LS_TRY(find_symbols(library, name));
    LS_TRY(check_version(name));
    return initialise();
}

static void load_once(void)
{
    load_status = load();
    if (load_status != LS_OK) {
        snprintf(load_error, sizeof load_error, "%s", ls_error_text());
    }
}

ls_status ls_cuda_driver_load(const ls_cuda_driver **driver_out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_once);
    if (load_status != LS_OK) {
        return ls_fail(load_status, "%s", load_error);
    }
    *driver_out = &driver;
    return LS_OK;
}

/* ---- errors ---- */

static ls_status fail_memory(const ls_cuda_driver *cuda, const char *call)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (cuda->cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
        return ls_fail(LS_ERR_MEMORY, "%s: not enough memory", call);
    }
    return ls_fail(
        LS_ERR_MEMORY,
        "%s: not enough memory; %zu of the GPU's %zu MiB are free. A smaller micro batch or context "
        "needs less, and nvidia-smi shows what else uses the GPU",
        call, free_bytes >> 20, total_bytes >> 20);
}

/* What to do about an error. */
static const char *advice(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        return "the hardware has a fault: run on another GPU, and see nvidia-smi -q";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case 715: /* illegal instruction */
    case 716: /* misaligned address */
    case 717: /* invalid address space */
    case 718: /* invalid program counter */
        return "a kernel failed: run again; if it fails on another GPU too, it is a defect of this program";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
        return "a kernel took too long: the GPU also serves a display; use another one";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
        return "another process holds the GPU in exclusive mode: see nvidia-smi -q -d COMPUTE";
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return "the kernels of this program do not fit the GPU or its driver: install a newer driver, or "
               "build "
               "again with an older CUDA toolkit";
    case CUDA_ERROR_SYSTEM_NOT_READY:
        return "the machine's GPU services have not started: see systemctl status nvidia-fabricmanager";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "the library and the kernel module of the driver differ: restart the machine";
    case CUDA_ERROR_NOT_PERMITTED:
        return "the process may not use the GPU: see the rights of /dev/nvidia*";
    case CUDA_ERROR_INVALID_DEVICE:
        return "there is no such GPU: see nvidia-smi";
    case CUDA_ERROR_UNKNOWN:
        return "see dmesg for messages of NVRM (Xid)";
    default:
        return "see nvidia-smi and dmesg";
    }
}

ls_status ls_cuda_fail(const ls_cuda_driver *cuda, CUresult result, const char *call)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return fail_memory(cuda, call);
    }
    const char *name = NULL, *text = NULL;
    if (cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) {
        name = "an unknown error";
    }
    if (cuda->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) {
        text = "no description";
    }
    return ls_fail(LS_ERR_DEVICE, "%s: %s (%d, %s); %s", call, name, result, text, advice(result));
}
