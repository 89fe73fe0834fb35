// SPDX-License-Identifier: Apache-2.0
/*
 * The NVIDIA driver as a table of functions, loaded when it is needed: a program built with or
 * without the CUDA toolkit starts on machines without a driver. Names, arguments and numbers are
 * those of the CUDA driver API; CU_CHECK turns a result into an error with its name.
 *
 * The environment variable LOCKSTEP_CUDA_DRIVER names another library to load. The tests use it to
 * run kernels on the processor (tests/compute/cuda_on_cpu).
 */
#ifndef LS_COMPUTE_CUDA_DRIVER_H
#define LS_COMPUTE_CUDA_DRIVER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

/* A descriptor of the bulk copy engine (TMA). */
typedef struct CUtensorMap {
#ifdef __cplusplus
    alignas(64) uint64_t opaque[16];
#else
    _Alignas(64) uint64_t opaque[16];
#endif
} CUtensorMap;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_LAUNCH_FAILED = 719,

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,

    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTALLOC_DEVICEMAP = 2,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,

    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
};

/* X(function of ls_cuda_driver, symbol of the library, arguments) */
#define LS_CUDA_DRIVER_FUNCTIONS(X)                                                                          \
    X(cuInit, "cuInit", (unsigned flags))                                                                    \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                              \
    X(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **name))                                 \
    X(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text))                             \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                                    \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))                                          \
    X(cuDeviceGetName, "cuDeviceGetName", (char *name, int bytes, CUdevice device))                          \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))            \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice device))                            \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))          \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                          \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext context))                                               \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total_bytes))                          \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * memory, size_t bytes))                                     \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr memory))                                                       \
    X(cuMemHostAlloc, "cuMemHostAlloc", (void **memory, size_t bytes, unsigned flags))                       \
    X(cuMemFreeHost, "cuMemFreeHost", (void *memory))                                                        \
    X(cuMemcpyAsync, "cuMemcpyAsync", (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))     \
    X(cuMemsetD8Async, "cuMemsetD8Async",                                                                    \
      (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                                  \
    X(cuStreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                                 \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                              \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                         \
    X(cuStreamQuery, "cuStreamQuery", (CUstream stream))                                                     \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags))              \
    X(cuEventCreate, "cuEventCreate", (CUevent * event, unsigned flags))                                     \
    X(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                                  \
    X(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                                      \
    X(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                             \
    X(cuEventElapsedTime, "cuEventElapsedTime", (float *ms, CUevent begin, CUevent end))                     \
    X(cuModuleLoadData, "cuModuleLoadData", (CUmodule * module, const void *image))                          \
    X(cuModuleUnload, "cuModuleUnload", (CUmodule module))                                                   \
    X(cuModuleGetFunction, "cuModuleGetFunction",                                                            \
      (CUfunction * function, CUmodule module, const char *name))                                            \
    X(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))             \
    X(cuFuncGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction function))            \
    X(cuLaunchKernel, "cuLaunchKernel",                                                                      \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,             \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,        \
       void **extra))                                                                                        \
    X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                                      \
      (CUtensorMap * map, int type, uint32_t rank, void *address, const uint64_t *dims,                      \
       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,        \
       int swizzle, int l2_promotion, int oob_fill))

typedef struct ls_cuda_driver {
#define LS_CUDA_DRIVER_FIELD(function, symbol, arguments) CUresult(*function) arguments;
    LS_CUDA_DRIVER_FUNCTIONS(LS_CUDA_DRIVER_FIELD)
#undef LS_CUDA_DRIVER_FIELD
    /* The library brings the kernels itself: modules need no image (tests/compute/cuda_on_cpu). */
    bool has_kernels;
} ls_cuda_driver;

/*
 * Loads the driver and initialises it, once per process. *driver_out lives as long as the process.
 * Errors: LS_ERR_DEVICE: there is no driver, it is too old, or it finds no device; the text
 * says which and what to do.
 */
LS_MUST_CHECK ls_status ls_cuda_driver_load(const ls_cuda_driver **driver_out);

/* An error that names the call, the driver's name for `result`, its sentence, and what to do about
 * it. A card that was lost, ECC and launch failures are LS_ERR_DEVICE; missing memory is
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_cuda_fail(const ls_cuda_driver *driver, CUresult result, const char *call);

#define CU_TRY(driver, function, ...)                                                                        \
    do {                                                                                                     \
        const CUresult cu_result_ = (driver)->function(__VA_ARGS__);                                         \
        if (cu_result_ != CUDA_SUCCESS) {                                                                    \
            return ls_cuda_fail(driver, cu_result_, #function);                                              \
        }                                                                                                    \
    } while (0)

#endif
