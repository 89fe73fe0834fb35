// SPDX-License-Identifier: Apache-2.0
/*
 * The CUDA driver API of compute/cuda/driver.h, over the processor: LOCKSTEP_CUDA_DRIVER names this
 * library, and every program of this tree then computes with it as with a GPU of capability 9.0.
 *
 * What is enqueued on a stream runs when the program waits for it (a stream, an event, a query, a
 * call that waits by itself), and not earlier: who reads a result without waiting reads old bytes.
 *
 * Environment (that of runtime.h and memory.h, and):
 *   LS_CUDA_LAZY=0           what is enqueued runs at once
 *   LS_CUDA_FAIL=NAME:K:CODE the K-th call of a function, for example cuMemAlloc_v2:3:2, counted from
 *                            1, returns CODE and does nothing; NAME "any" counts all calls. A code of
 *                            700 and above is returned by all calls from then on, as by a GPU.
 *                            Counting begins anew whenever the variable changes.
 *   LS_CUDA_DEVICES          devices there are; default 1
 *   LS_CUDA_MEMORY_MIB       memory of the device; default 4096
 */
#include "compute/cuda/driver.h"
#include "compute/cuda_on_cpu/hopper_map.h"
#include "compute/cuda_on_cpu/memory.h"
#include "compute/cuda_on_cpu/runtime.h"
#include "compute/cuda_on_cpu/stream.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

using namespace cuda_on_cpu;

#define CUDA_API extern "C" __attribute__((visibility("default")))

enum {
    ERROR_DEINITIALIZED = 4,
    ERROR_INVALID_CONTEXT = 201,
    ERROR_INVALID_HANDLE = 400,
    ERROR_NOT_FOUND = 500,
    ERROR_NOT_READY = 600,
    FIRST_STICKY_ERROR = 700,
};

struct CUctx_st {
    int device;
};

struct CUmod_st {
    std::string file;
};

struct CUevent_st {
    uint64_t asked, done;
    std::chrono::steady_clock::time_point at;
    CUstream stream;
};

struct CUstream_st {
    std::deque<std::function<CUresult()>> calls;
    bool is_running;
};

/* The functions of a module are the kernels themselves. */
static kernel *kernel_of(CUfunction function)
{
    return reinterpret_cast<kernel *>(function);
}

namespace
{

/* Guards everything below. It is held while kernels run. */
std::recursive_mutex lock;
bool is_initialised;
CUresult sticky;
std::set<CUstream> streams;
std::map<std::string, std::unique_ptr<CUmod_st>> modules;
std::map<void *, size_t> host_blocks;
CUctx_st contexts[16];
thread_local CUcontext current_context;

unsigned environment_number(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, nullptr, 10) : otherwise;
}

/* ---- injected failures ---- */

std::string failure;
unsigned failure_calls;

/* What this call of `name` has to return, CUDA_SUCCESS: it may go on. */
CUresult injected(const char *name)
{
    const char *text = getenv("LS_CUDA_FAIL");
    if (failure != (text ? text : "")) {
        failure = text ? text : "";
        failure_calls = 0;
        sticky = CUDA_SUCCESS;
    }
    if (sticky != CUDA_SUCCESS) {
        return sticky;
    }
    if (failure.empty()) {
        return CUDA_SUCCESS;
    }
    char wanted[64] = "";
    unsigned number = 0, code = 0;
    if (sscanf(failure.c_str(), "%63[^:]:%u:%u", wanted, &number, &code) != 3) {
        die("LS_CUDA_FAIL is NAME:K:CODE");
    }
    if ((strcmp(wanted, name) != 0 && strcmp(wanted, "any") != 0) || ++failure_calls != number) {
        return CUDA_SUCCESS;
    }
    if (code >= FIRST_STICKY_ERROR) {
        sticky = (CUresult)code;
    }
    return (CUresult)code;
}

/* What every function begins with. */
#define ENTER(name)                                                                                          \
    std::lock_guard<std::recursive_mutex> hold(lock);                                                        \
    do {                                                                                                     \
        const CUresult injected_ = injected(name);                                                           \
        if (injected_ != CUDA_SUCCESS) {                                                                     \
            return injected_;                                                                                \
        }                                                                                                    \
        if (!is_initialised && strcmp(name, "cuInit") != 0) {                                                \
            return ERROR_DEINITIALIZED;                                                                      \
        }                                                                                                    \
    } while (0)
#define ENTER_CONTEXT(name)                                                                                  \
    ENTER(name);                                                                                             \
    if (!current_context) {                                                                                  \
        return ERROR_INVALID_CONTEXT;                                                                        \
    }

/* What functions begin with that undo something: they do so whatever they return. */
#define ENTER_UNDO(name)                                                                                     \
    std::lock_guard<std::recursive_mutex> hold(lock);                                                        \
    const CUresult injected_ = is_initialised ? injected(name) : (CUresult)ERROR_DEINITIALIZED;
#define LEAVE_UNDO(result) return injected_ != CUDA_SUCCESS ? injected_ : (CUresult)(result)

/* ---- streams ---- */

/* Runs the first call of a stream. */
CUresult run_one(CUstream stream)
{
    const std::function<CUresult()> call = std::move(stream->calls.front());
    stream->calls.pop_front();
    stream->is_running = true;
    const CUresult result = call();
    stream->is_running = false;
    if (result != CUDA_SUCCESS && sticky == CUDA_SUCCESS) {
        sticky = result;
    }
    return result;
}

/* Device memory is open for all calls at once: to open and close it takes time for each of its pages. */
CUresult run_all(CUstream stream)
{
    if (stream->calls.empty()) {
        return sticky;
    }
    const device_memory_open open;
    while (!stream->calls.empty() && sticky == CUDA_SUCCESS) {
        run_one(stream);
    }
    stream->calls.clear();
    return sticky;
}

CUresult run_everything()
{
    for (CUstream stream : streams) {
        run_all(stream);
    }
    return sticky;
}

CUresult run_until(CUevent event, uint64_t wanted)
{
    CUstream stream = event->stream;
    while (event->done < wanted && stream && !stream->calls.empty() && !stream->is_running &&
           sticky == CUDA_SUCCESS) {
        run_one(stream);
    }
    if (event->done < wanted && sticky == CUDA_SUCCESS) {
        die("streams wait for each other, or for an event whose stream is gone");
    }
    return sticky;
}

CUresult enqueue(CUstream stream, std::function<CUresult()> call)
{
    static const bool is_lazy = environment_number("LS_CUDA_LAZY", 1) != 0;
    enum { PENDING_MAX = 4096 };
    if (!streams.count(stream)) {
        return ERROR_INVALID_HANDLE;
    }
    stream->calls.push_back(std::move(call));
    return is_lazy && stream->calls.size() < PENDING_MAX ? CUDA_SUCCESS : run_all(stream);
}

size_t device_bytes()
{
    return (size_t)environment_number("LS_CUDA_MEMORY_MIB", 4096) << 20;
}

} // namespace

int cuda_on_cpu::injected_result(const char *name)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    return injected(name);
}

int cuda_on_cpu::enqueue_work(void *stream, std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> hold(lock);
    return enqueue((CUstream)stream, [=]() -> CUresult {
        const device_memory_open open;
        work();
        return CUDA_SUCCESS;
    });
}

/* ---- the driver and its devices ---- */

CUDA_API const int lockstep_cuda_has_kernels = 1;

CUDA_API CUresult cuInit(unsigned)
{
    ENTER("cuInit");
    is_initialised = true;
    watch_faults();
    return environment_number("LS_CUDA_DEVICES", 1) > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUDA_API CUresult cuDriverGetVersion(int *version)
{
    *version = (int)environment_number("LS_CUDA_VERSION", 13000);
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuGetErrorName(CUresult error, const char **name)
{
    switch (error) {
    case CUDA_SUCCESS:
        *name = "CUDA_SUCCESS";
        break;
    case CUDA_ERROR_INVALID_VALUE:
        *name = "CUDA_ERROR_INVALID_VALUE";
        break;
    case CUDA_ERROR_OUT_OF_MEMORY:
        *name = "CUDA_ERROR_OUT_OF_MEMORY";
        break;
    case CUDA_ERROR_NO_DEVICE:
        *name = "CUDA_ERROR_NO_DEVICE";
        break;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        *name = "CUDA_ERROR_ECC_UNCORRECTABLE";
        break;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
        *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
        break;
    case CUDA_ERROR_LAUNCH_FAILED:
        *name = "CUDA_ERROR_LAUNCH_FAILED";
        break;
    case ERROR_INVALID_CONTEXT:
        *name = "CUDA_ERROR_INVALID_CONTEXT";
        break;
    case ERROR_INVALID_HANDLE:
        *name = "CUDA_ERROR_INVALID_HANDLE";
        break;
    case ERROR_NOT_FOUND:
        *name = "CUDA_ERROR_NOT_FOUND";
        break;
    default:
        *name = nullptr;
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuGetErrorString(CUresult, const char **text)
{
    *text = "a failure of the CUDA driver that runs on the processor";
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuDeviceGetCount(int *count)
{
    ENTER("cuDeviceGetCount");
    *count = (int)environment_number("LS_CUDA_DEVICES", 1);
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= (int)environment_number("LS_CUDA_DEVICES", 1) || ordinal >= 16) {
        return 101; /* invalid device */
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuDeviceGetName(char *name, int bytes, CUdevice)
{
    ENTER("cuDeviceGetName");
    snprintf(name, (size_t)bytes, "CUDA on the processor");
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice)
{
    ENTER("cuDeviceGetAttribute");
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 4;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = (int)environment_number("LS_CUDA_CAPABILITY", 90) / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = (int)environment_number("LS_CUDA_CAPABILITY", 90) % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = SHARED_BYTES_MAX;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = 50 << 20;
        break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        *value = 1980000;
        break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        *value = 2619000;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice)
{
    ENTER("cuDeviceTotalMem_v2");
    *bytes = device_bytes();
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER("cuDevicePrimaryCtxRetain");
    contexts[device].device = device;
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice)
{
    ENTER("cuDevicePrimaryCtxRelease_v2");
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER("cuCtxSetCurrent");
    current_context = context;
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

CUDA_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER_CONTEXT("cuMemGetInfo_v2");
    *total_bytes = device_bytes();
    *free_bytes = device_bytes() - device_memory_used();
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes)
{
    ENTER_CONTEXT("cuMemAlloc_v2");
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes > device_bytes() - device_memory_used()) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *block = device_memory_take(bytes);
    if (!block) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (CUdeviceptr)block;
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuMemFree_v2(CUdeviceptr memory)
{
    ENTER_UNDO("cuMemFree_v2");
    const CUresult result = run_everything();
    const bool is_block = device_memory_give((void *)memory);
    LEAVE_UNDO(is_block ? result : CUDA_ERROR_INVALID_VALUE);
}

CUDA_API CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned)
{
    ENTER_CONTEXT("cuMemHostAlloc");
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (posix_memalign(memory, 4096, bytes) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(*memory, 0xa5, bytes);
    host_blocks[*memory] = bytes;
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuMemFreeHost(void *memory)
{
    ENTER_UNDO("cuMemFreeHost");
    const CUresult result = run_everything();
    if (!host_blocks.erase(memory)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    free(memory);
    LEAVE_UNDO(result);
}

CUDA_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER_CONTEXT("cuMemcpyAsync");
    return enqueue(stream, [=]() -> CUresult {
        const device_memory_open open;
        memmove((void *)to, (const void *)from, bytes);
        return CUDA_SUCCESS;
    });
}

CUDA_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    ENTER_CONTEXT("cuMemsetD8Async");
    return enqueue(stream, [=]() -> CUresult {
        const device_memory_open open;
        memset((void *)to, value, count);
        return CUDA_SUCCESS;
    });
}

/* ---- streams and events ---- */

CUDA_API CUresult cuStreamCreate(CUstream *stream, unsigned)
{
    ENTER_CONTEXT("cuStreamCreate");
    *stream = new CUstream_st{};
    streams.insert(*stream);
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER_UNDO("cuStreamDestroy_v2");
    if (!streams.count(stream)) {
        return ERROR_INVALID_HANDLE;
    }
    const CUresult result = run_all(stream);
    streams.erase(stream);
    delete stream;
    LEAVE_UNDO(result);
}

CUDA_API CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER_CONTEXT("cuStreamSynchronize");
    return streams.count(stream) ? run_all(stream) : (CUresult)ERROR_INVALID_HANDLE;
}

CUDA_API CUresult cuStreamQuery(CUstream stream)
{
    ENTER_CONTEXT("cuStreamQuery");
    if (!streams.count(stream)) {
        return ERROR_INVALID_HANDLE;
    }
    if (!stream->calls.empty()) {
        run_one(stream);
    }
    return sticky != CUDA_SUCCESS ? sticky : stream->calls.empty() ? CUDA_SUCCESS : (CUresult)ERROR_NOT_READY;
}

CUDA_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned)
{
    ENTER_CONTEXT("cuStreamWaitEvent");
    const uint64_t wanted = event->asked;
    return enqueue(stream, [=]() -> CUresult { return run_until(event, wanted); });
}

CUDA_API CUresult cuEventCreate(CUevent *event, unsigned)
{
    ENTER_CONTEXT("cuEventCreate");
    *event = new CUevent_st{};
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER_UNDO("cuEventDestroy_v2");
    const CUresult result = run_everything();
    delete event;
    LEAVE_UNDO(result);
}

CUDA_API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER_CONTEXT("cuEventRecord");
    event->stream = stream;
    const uint64_t number = ++event->asked;
    return enqueue(stream, [=]() -> CUresult {
        event->done = number;
        event->at = std::chrono::steady_clock::now();
        return CUDA_SUCCESS;
    });
}

CUDA_API CUresult cuEventSynchronize(CUevent event)
{
    ENTER_CONTEXT("cuEventSynchronize");
    return run_until(event, event->asked);
}

CUDA_API CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    ENTER_CONTEXT("cuEventElapsedTime");
    if (begin->done < begin->asked || end->done < end->asked) {
        return ERROR_NOT_READY;
    }
    *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
    return CUDA_SUCCESS;
}

/* ---- kernels ---- */

/* The image of a module is the name of its source. */
CUDA_API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER_CONTEXT("cuModuleLoadData");
    const std::string file = (const char *)image;
    std::unique_ptr<CUmod_st> &place = modules[file];
    if (!place) {
        place.reset(new CUmod_st{file});
    }
    *module = place.get();
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuModuleUnload(CUmodule)
{
    ENTER_CONTEXT("cuModuleUnload");
    return CUDA_SUCCESS;
}

/* ".../device/norm.cu" is the source of the module "norm". */
static bool is_source_of(const char *path, const std::string &module)
{
    const char *slash = strrchr(path, '/');
    return module + ".cu" == (slash ? slash + 1 : path);
}

CUDA_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER_CONTEXT("cuModuleGetFunction");
    for (kernel *k = first_kernel; k; k = k->next) {
        if (strcmp(k->name, name) == 0 && is_source_of(k->file, module->file)) {
            *function = reinterpret_cast<CUfunction>(k);
            return CUDA_SUCCESS;
        }
    }
    return ERROR_NOT_FOUND;
}

CUDA_API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    ENTER_CONTEXT("cuFuncSetAttribute");
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > (int)SHARED_BYTES_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    kernel_of(function)->shared_bytes_max = (unsigned)value;
    return CUDA_SUCCESS;
}

CUDA_API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    ENTER_CONTEXT("cuFuncGetAttribute");
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = (int)kernel_of(function)->shared_bytes_max;
    return CUDA_SUCCESS;
}

static bool is_launchable(const kernel &what, dim3 grid, dim3 threads, unsigned shared_bytes)
{
    const uint64_t count = (uint64_t)threads.x * threads.y * threads.z;
    return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
           grid.z <= 65535 && count >= 1 && count <= BLOCK_THREADS_MAX && threads.z <= 64 &&
           shared_bytes <= what.shared_bytes_max;
}

CUDA_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 CUstream stream, void **parameters, void **)
{
    ENTER_CONTEXT("cuLaunchKernel");
    const kernel *what = kernel_of(function);
    const dim3 grid(grid_x, grid_y, grid_z), threads(block_x, block_y, block_z);
    if (!is_launchable(*what, grid, threads, shared_bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Structures with a descriptor of the copy engine are 64-byte aligned. */
    struct alignas(64) argument_line {
        unsigned char bytes[64];
    };
    std::shared_ptr<argument_line[]> arguments(new argument_line[what->argument_bytes / 64 + 1]);
    memcpy(arguments.get(), parameters[0], what->argument_bytes);
    return enqueue(stream, [=]() -> CUresult {
        const device_memory_open open;
        run_grid(*what, grid, threads, shared_bytes, arguments.get());
        return CUDA_SUCCESS;
    });
}

CUDA_API CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, uint32_t rank, void *address,
                                         const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                         const uint32_t *element_strides, int interleave, int swizzle,
                                         int /* l2_promotion */, int oob_fill)
{
    ENTER("cuTensorMapEncodeTiled");
    if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || rank < 1 || rank > 5 || interleave != 0 ||
        oob_fill != 0 || (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && swizzle != CU_TENSOR_MAP_SWIZZLE_128B) ||
        (uintptr_t)address % 16 != 0 || box[0] * 2 % 16 != 0 ||
        (swizzle == CU_TENSOR_MAP_SWIZZLE_128B && box[0] * 2 > 128)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tensor_map m{};
    m.address = (uint64_t)address;
    m.rank = (uint8_t)rank;
    m.swizzle = (uint8_t)swizzle;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 1 || dims[i] > 0x100000000ull || box[i] < 1 || box[i] > 256 ||
            element_strides[i] != 1 ||
            (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= 1ull << 40))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        m.dims[i] = dims[i];
        m.strides[i] = i == 0 ? 2 : strides[i - 1];
        m.box[i] = (uint16_t)box[i];
    }
    static_assert(sizeof m <= sizeof *map, "a descriptor is 128 bytes");
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}
