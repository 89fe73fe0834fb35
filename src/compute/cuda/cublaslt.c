// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/cublaslt.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_once_t once;
    ls_cublaslt table;
    bool is_there;
    /* Why not: the last word of the loader. */
    char reason[256];
} blas = {.once = PTHREAD_ONCE_INIT};

static void keep_reason(const char *text)
{
    strncpy(blas.reason, text ? text : "unknown reason", sizeof blas.reason - 1);
}

/* A function's address, as POSIX lets dlsym return it. */
static bool find(void *library, const char *name, void *place)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        keep_reason(dlerror());
        return false;
    }
    memcpy(place, &symbol, sizeof symbol);
    return true;
}

static bool load_file(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        keep_reason(dlerror());
        return false;
    }
#define LS_CUBLASLT_FIND(function, arguments)                                                                \
    if (!find(library, "cublasLt" #function, &blas.table.function)) {                                        \
        return false;                                                                                        \
    }
    LS_CUBLASLT_FUNCTIONS(LS_CUBLASLT_FIND)
#undef LS_CUBLASLT_FIND
    if (!find(library, "cublasLtGetStatusName", &blas.table.GetStatusName) ||
        !find(library, "cublasLtGetVersion", &blas.table.GetVersion)) {
        return false;
    }
    /* Version 11 gives some attributes other numbers. */
    if (blas.table.GetVersion() < LS_CUBLASLT_VERSION_MIN) {
        keep_reason("its version is below 12");
        return false;
    }
    return true;
}

/* The file that the pattern names, the last one of several. */
static bool load_matching(const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) {
        return false;
    }
    const bool is_there = load_file(found.gl_pathv[found.gl_pathc - 1]);
    globfree(&found);
    return is_there;
}

/* NVIDIA's wheels for Python: of the environment that is active, then of the system. */
static bool load_from_python(void)
{
    static const char *const wheels[] = {"nvidia/cu13/lib/libcublasLt.so.13",
                                         "nvidia/cublas/lib/libcublasLt.so.1[23]"};
    const char *active[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), "/usr/local", "/usr"};
    for (size_t i = 0; i < sizeof active / sizeof active[0]; i++) {
        for (size_t j = 0; active[i] && j < sizeof wheels / sizeof wheels[0]; j++) {
            char pattern[512];
            const int length =
                snprintf(pattern, sizeof pattern, "%s/lib/python3*/*-packages/%s", active[i], wheels[j]);
            if (length < (int)sizeof pattern && load_matching(pattern)) {
                return true;
            }
        }
    }
    return false;
}

static void load(void)
{
    const char *named = getenv("LOCKSTEP_CUBLASLT");
    if (named) {
        blas.is_there = load_file(named);
        return;
    }
    blas.is_there = load_file("libcublasLt.so.13") || load_file("libcublasLt.so.12") ||
                    load_file("/usr/local/cuda/lib64/libcublasLt.so.13") ||
                    load_file("/usr/local/cuda/lib64/libcublasLt.so.12") || load_from_python();
}

ls_status ls_cublaslt_load(const ls_cublaslt **blas_out)
{
    const char *products = getenv("LS_CUDA_PRODUCTS");
    const bool must = products && strcmp(products, "cublaslt") == 0;
    if (products && strcmp(products, "own") == 0) {
        *blas_out = NULL;
        return LS_OK;
    }
    if (products && !must) {
        return ls_fail(LS_ERR_INVALID, "LS_CUDA_PRODUCTS is '%s': it can be own or cublaslt", products);
    }
    pthread_once(&blas.once, load);
    const char *named = getenv("LOCKSTEP_CUBLASLT");
    if (named && !blas.is_there) {
        return ls_fail(LS_ERR_NOT_FOUND,
                       "LOCKSTEP_CUBLASLT names '%s', which is not a usable cuBLASLt (12 or later): %s",
                       named, blas.reason);
    }
    if (must && !blas.is_there) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "LS_CUDA_PRODUCTS is cublaslt, and cuBLASLt cannot be loaded: %s; set LOCKSTEP_CUBLASLT to "
            "the path of libcublasLt.so",
            blas.reason);
    }
    *blas_out = blas.is_there ? &blas.table : NULL;
    return LS_OK;
}
