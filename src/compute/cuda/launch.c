// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "compute/cuda/images.h"
#include "compute/cuda/queue_cuda.h"

#include <stdlib.h>
#include <string.h>

enum { MODULES_MAX = 64, FUNCTIONS = 1024, FUNCTIONS_MAX = 768, SHARED_BYTES_PLAIN = 48 * 1024, SM90 = 90 };

typedef struct loaded_module {
    const char *file;
    CUmodule module;
} loaded_module;

/* A kernel that was found. The key is the two addresses: the strings are literals. */
typedef struct found_function {
    ls_cuda_kernel kernel;
    CUfunction function;
    /* The dynamic shared memory that it may use. */
    uint32_t shared_bytes;
} found_function;

struct ls_cuda_modules {
    loaded_module modules[MODULES_MAX];
    size_t module_count;
    found_function functions[FUNCTIONS];
    size_t function_count;
};

ls_status ls_cuda_modules_create(const ls_cuda_driver *driver, struct ls_cuda_modules **modules_out)
{
    if (!driver->has_kernels && !ls_cuda_images[0].name) {
        return ls_fail(LS_ERR_DEVICE,
                       "this program was built without kernels for GPUs: install the CUDA toolkit "
                       "(nvcc), then build again with -DLS_CUDA=ON");
    }
    struct ls_cuda_modules *modules = calloc(1, sizeof *modules);
    if (!modules) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the list of kernels");
    }
    *modules_out = modules;
    return LS_OK;
}

/* The context of the queue is the thread's. */
void ls_cuda_modules_destroy(const ls_cuda_driver *driver, struct ls_cuda_modules *modules)
{
    for (size_t i = 0; i < modules->module_count; i++) {
        (void)driver->cuModuleUnload(modules->modules[i].module);
    }
    free(modules);
}

/* ---- finding a kernel ---- */

/* What cuModuleLoadData wants: the bed knows modules by the names of their sources. NULL: none. */
static const void *image_of(const ls_cuda_driver *driver, const char *file)
{
    if (driver->has_kernels) {
        return file;
    }
    for (const ls_cuda_image *image = ls_cuda_images; image->name; image++) {
        if (strcmp(image->name, file) == 0) {
            return image->begin;
        }
    }
    return NULL;
}

static ls_status load_module(ls_queue_cuda *queue, const char *file, CUmodule *module_out)
{
    struct ls_cuda_modules *modules = queue->modules;
    for (size_t i = 0; i < modules->module_count; i++) {
        if (strcmp(modules->modules[i].file, file) == 0) {
            *module_out = modules->modules[i].module;
            return LS_OK;
        }
    }
    /* Sources named so are built for capability 9.0 alone: no other GPU has their instructions. */
    const char *ending = strstr(file, "_sm90");
    LS_ASSERT(!ending || queue->capability == SM90);
    LS_ASSERT(modules->module_count < MODULES_MAX);
    const void *image = image_of(queue->driver, file);
    LS_ASSERT(image && "no such file of kernels");
    CU_TRY(queue->driver, cuModuleLoadData, module_out, image);
    modules->modules[modules->module_count++] = (loaded_module){.file = file, .module = *module_out};
    return LS_OK;
}

static found_function *place_of(struct ls_cuda_modules *modules, ls_cuda_kernel kernel)
{
    const uint64_t key = (uint64_t)(uintptr_t)kernel.name * 31 + (uint64_t)(uintptr_t)kernel.file;
    for (size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 54);; at = (at + 1) % FUNCTIONS) {
        found_function *place = &modules->functions[at];
        if (!place->function || (place->kernel.name == kernel.name && place->kernel.file == kernel.file)) {
            return place;
        }
    }
}

static ls_status find_function(ls_queue_cuda *queue, ls_cuda_kernel kernel, found_function **found_out)
{
    found_function *place = place_of(queue->modules, kernel);
    if (!place->function) {
        CUmodule module = NULL;
        CUfunction function = NULL;
        LS_ASSERT(queue->modules->function_count < FUNCTIONS_MAX);
        LS_TRY(load_module(queue, kernel.file, &module));
        CU_TRY(queue->driver, cuModuleGetFunction, &function, module, kernel.name);
        *place = (found_function){.kernel = kernel, .function = function, .shared_bytes = SHARED_BYTES_PLAIN};
        queue->modules->function_count++;
    }
    *found_out = place;
    return LS_OK;
}

/* A kernel must be told that it may use more than 48 KiB. */
static ls_status allow_shared(ls_queue_cuda *queue, found_function *found, uint32_t bytes)
{
    if (bytes <= found->shared_bytes) {
        return LS_OK;
    }
    CU_TRY(queue->driver, cuFuncSetAttribute, found->function,
           CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
    found->shared_bytes = bytes;
    return LS_OK;
}

/* ---- launching ---- */

static ls_status launch(ls_queue_cuda *queue, ls_cuda_kernel kernel, const ls_cuda_grid *grid,
                        const void *arguments)
{
    found_function *found = NULL;
    LS_TRY(ls_cuda_enter(queue));
    LS_TRY(find_function(queue, kernel, &found));
    LS_TRY(allow_shared(queue, found, grid->shared_bytes));
    void *parameters[] = {(void *)arguments};
    CU_TRY(queue->driver, cuLaunchKernel, found->function, grid->x ? grid->x : 1, grid->y ? grid->y : 1,
           grid->z ? grid->z : 1, grid->threads, 1, 1, grid->shared_bytes, queue->stream, parameters, NULL);
    return LS_OK;
}

ls_status ls_cuda_launch(ls_queue_cuda *queue, ls_cuda_kernel kernel, ls_cuda_grid grid,
                         const void *arguments)
{
    LS_ASSERT(grid.threads >= 1 && grid.threads <= 1024);
    const ls_status status = launch(queue, kernel, &grid, arguments);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "kernel %s of %s", kernel.name, kernel.file);
}
