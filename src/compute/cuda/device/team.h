// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over a team of threads, in an order that depends on its size only. A team is 4, 8, 16 or
 * 32 neighbouring threads of a warp, or, if it is larger, the whole block.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_TEAM_H
#define LS_COMPUTE_CUDA_DEVICE_TEAM_H

#include "compute/cuda/device/device.h"

enum { TEAM_WARPS_MAX = 32 };

/* Where the warps of a block put their sums. Two sums in a row use different halves, so one barrier
 * for each is enough. */
template <class V> struct team_scratch {
    V sums[2][TEAM_WARPS_MAX];
};

LS_DEVICE void add_lane(float &value, int step)
{
    value += __shfl_xor_sync(0xffffffffu, value, step);
}

LS_DEVICE void add_lane(float2 &value, int step)
{
    value.x += __shfl_xor_sync(0xffffffffu, value.x, step);
    value.y += __shfl_xor_sync(0xffffffffu, value.y, step);
}

LS_DEVICE void add_to(float &sum, float value)
{
    sum += value;
}

LS_DEVICE void add_to(float2 &sum, float2 value)
{
    sum.x += value.x;
    sum.y += value.y;
}

/* The sum of a float, or of both parts of a float2; `half` is 0 and 1 in turn. All threads of the
 * block call it. */
template <class V> LS_DEVICE V team_sum(V value, int team, team_scratch<V> *scratch, int half)
{
    if (team >= 32) {
        add_lane(value, 16);
    }
    if (team >= 16) {
        add_lane(value, 8);
    }
    if (team >= 8) {
        add_lane(value, 4);
    }
    add_lane(value, 2);
    add_lane(value, 1);
    if (team <= 32) {
        return value;
    }
    if (threadIdx.x % 32 == 0) {
        scratch->sums[half][threadIdx.x / 32] = value;
    }
    __syncthreads();
    V sum = scratch->sums[half][0];
    for (int warp = 1; warp < team / 32; warp++) {
        add_to(sum, scratch->sums[half][warp]);
    }
    return sum;
}

#endif
