// SPDX-License-Identifier: Apache-2.0
/* Activations on spans; outputs may be their inputs. See compute/kernels/activation.h. */
#ifndef LS_COMPUTE_CPU_ISA_ACTIVATION_H
#define LS_COMPUTE_CPU_ISA_ACTIVATION_H

#include <stdint.h>

typedef struct ls_activation_kernels {
    void (*gelu)(const float *x, float *y, int64_t count);
    void (*gelu_backward)(const float *x, const float *dy, float *dx, int64_t count);
    void (*swiglu)(const float *gate, const float *up, float *y, int64_t count);
    void (*swiglu_backward)(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                            int64_t count);
} ls_activation_kernels;

#endif
