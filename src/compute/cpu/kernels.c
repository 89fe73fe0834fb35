// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/kernels.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE_GENERIC(op) extern const struct ls_##op##_kernels ls_##op##_kernels_generic;
#define DECLARE_AVX2(op)    extern const struct ls_##op##_kernels ls_##op##_kernels_avx2;
#define DECLARE_AVX512(op)  extern const struct ls_##op##_kernels ls_##op##_kernels_avx512;
#define FIELD_GENERIC(op)   .op = &ls_##op##_kernels_generic,
#define FIELD_AVX2(op)      .op = &ls_##op##_kernels_avx2,
#define FIELD_AVX512(op)    .op = &ls_##op##_kernels_avx512,

static bool cpu_has_generic(void)
{
    return true;
}

LS_KERNEL_OPS(DECLARE_GENERIC)
static const ls_cpu_kernels kernels_generic = {.isa = "generic", LS_KERNEL_OPS(FIELD_GENERIC)};

#ifdef LS_HAVE_AVX2
static bool cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

LS_KERNEL_OPS(DECLARE_AVX2)
static const ls_cpu_kernels kernels_avx2 = {.isa = "avx2", LS_KERNEL_OPS(FIELD_AVX2)};
#endif

#ifdef LS_HAVE_AVX512
static bool cpu_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

LS_KERNEL_OPS(DECLARE_AVX512)
static const ls_cpu_kernels kernels_avx512 = {.isa = "avx512", LS_KERNEL_OPS(FIELD_AVX512)};
#endif

/* Best first. */
static const struct {
    const ls_cpu_kernels *kernels;
    bool (*cpu_has)(void);
} choices[] = {
#ifdef LS_HAVE_AVX512
    {&kernels_avx512, cpu_has_avx512},
#endif
#ifdef LS_HAVE_AVX2
    {&kernels_avx2, cpu_has_avx2},
#endif
    {&kernels_generic, cpu_has_generic},
};

enum { CHOICE_COUNT = sizeof choices / sizeof choices[0] };

static ls_status select_named(const char *name, const ls_cpu_kernels **kernels_out)
{
    for (int i = 0; i < CHOICE_COUNT; i++) {
        if (strcmp(name, choices[i].kernels->isa) != 0) {
            continue;
        }
        if (!choices[i].cpu_has()) {
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "LS_ISA=%s names instructions that this processor lacks: unset LS_ISA", name);
        }
        *kernels_out = choices[i].kernels;
        return LS_OK;
    }
    if (strcmp(name, "avx2") == 0 || strcmp(name, "avx512") == 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "LS_ISA=%s names instructions that this build was made without: unset LS_ISA", name);
    }
    return ls_fail(LS_ERR_INVALID, "LS_ISA=%s is unknown; allowed are generic, avx2, avx512, or unset", name);
}

ls_status ls_cpu_kernels_select(const ls_cpu_kernels **kernels_out)
{
    const char *name = getenv("LS_ISA");
    if (name && *name) {
        return select_named(name, kernels_out);
    }
    int i = 0;
    while (!choices[i].cpu_has()) {
        i++; /* the last choice always says yes */
    }
    *kernels_out = choices[i].kernels;
    return LS_OK;
}
