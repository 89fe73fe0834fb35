// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/elementwise.h"

#include "compute/cuda/device/device.h"

template <class T> LS_DEVICE void fill(const ls_cuda_fill_args &args)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < args.rows * args.cols) {
        ((T *)args.out)[i / args.cols * args.stride + i % args.cols] = from_float<T>(args.value);
    }
}

LS_KERNEL fill_f32(const ls_cuda_fill_args args)
{
    fill<float>(args);
}
LS_KERNEL_EXPORT(fill_f32)

LS_KERNEL fill_bf16(const ls_cuda_fill_args args)
{
    fill<bf16>(args);
}
LS_KERNEL_EXPORT(fill_bf16)
