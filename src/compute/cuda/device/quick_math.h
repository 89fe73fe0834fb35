// SPDX-License-Identifier: Apache-2.0
/*
 * Functions that a GPU computes in one instruction.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_QUICK_MATH_H
#define LS_COMPUTE_CUDA_DEVICE_QUICK_MATH_H

#include "compute/cuda/device/device.h"

#include <math.h>

/* 2^x with an error of 2^-22 or less; results below the normal numbers are 0. */
LS_DEVICE float quick_exp2(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

#endif
