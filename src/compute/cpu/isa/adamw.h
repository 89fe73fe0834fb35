// SPDX-License-Identifier: Apache-2.0
/* AdamW on a span. See compute/kernels/adamw.h. */
#ifndef LS_COMPUTE_CPU_ISA_ADAMW_H
#define LS_COMPUTE_CPU_ISA_ADAMW_H

#include <stdint.h>

/* The factors of one step, rounded once from float64. */
typedef struct ls_adamw_factors {
    float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    float step_size;       /* lr / (1 - beta1^t) */
    float inverse_root_v;  /* 1 / sqrt(1 - beta2^t) */
    float one_minus_decay; /* 1 - lr weight_decay */
} ls_adamw_factors;

typedef struct ls_adamw_kernels {
    void (*update)(const ls_adamw_factors *factors, float *p, const float *g, float *m, float *v,
                   int64_t count);
} ls_adamw_kernels;

#endif
