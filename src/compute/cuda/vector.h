// SPDX-License-Identifier: Apache-2.0
/*
 * Whether the kernels that use device/eight.h may move eight elements of a view at once.
 */
#ifndef LS_COMPUTE_CUDA_VECTOR_H
#define LS_COMPUTE_CUDA_VECTOR_H

#include "compute/tensor.h"

/* 16-byte aligned rows, and rows of a multiple of eight elements. An absent view is no obstacle. */
static inline bool ls_cuda_is_vector(const ls_tensor *t)
{
    if (!t || !t->data) {
        return true;
    }
    return (uintptr_t)t->data % 16 == 0 && t->cols % 8 == 0 && (t->rows <= 1 || t->stride % 8 == 0);
}

#endif
