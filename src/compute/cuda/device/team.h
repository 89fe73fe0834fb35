// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over a team of threads, in an order that depends on its size only. A team is 8, 16 or 32
 * neighbouring threads of a warp, or, if it is larger, the whole block.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_TEAM_H
#define LS_COMPUTE_CUDA_DEVICE_TEAM_H

#include "compute/cuda/device/device.h"

enum { TEAM_WARPS_MAX = 32 };

/* Where the warps of a block put their sums. Two sums in a row use different halves, so one barrier
 * for each is enough. */
struct team_scratch {
    float2 sums[2][TEAM_WARPS_MAX];
};

LS_DEVICE float2 warp_sum(float2 value, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2) {
        value.x += __shfl_xor_sync(0xffffffffu, value.x, step);
        value.y += __shfl_xor_sync(0xffffffffu, value.y, step);
    }
    return value;
}

/* The sums of two values; `half` is 0 and 1 in turn. All threads of the block call it. */
LS_DEVICE float2 team_sum(float2 value, int team, team_scratch *scratch, int half)
{
    if (team <= 32) {
        return warp_sum(value, team);
    }
    value = warp_sum(value, 32);
    if (threadIdx.x % 32 == 0) {
        scratch->sums[half][threadIdx.x / 32] = value;
    }
    __syncthreads();
    float2 sum = scratch->sums[half][0];
    for (int warp = 1; warp < team / 32; warp++) {
        sum.x += scratch->sums[half][warp].x;
        sum.y += scratch->sums[half][warp].y;
    }
    return sum;
}

#endif
