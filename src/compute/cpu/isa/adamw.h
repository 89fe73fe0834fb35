// SPDX-License-Identifier: Apache-2.0
/* AdamW on a span. See compute/kernels/adamw.h. */
#ifndef LS_COMPUTE_CPU_ISA_ADAMW_H
#define LS_COMPUTE_CPU_ISA_ADAMW_H

#include "compute/kernels/adamw.h"

#include <stdint.h>

typedef struct ls_adamw_kernels {
    void (*update)(const ls_adamw_factors *factors, float *p, const float *g, float *m, float *v,
                   int64_t count);
} ls_adamw_kernels;

#endif
