// SPDX-License-Identifier: Apache-2.0
/*
 * Records in the attention kernels (compute/kernels/attention.h): a query sees no key before the
 * first token of its record. Without records all are one that begins at 0.
 *
 * A pair that does not attend has probability 0, exactly, and a tile of such pairs leaves every sum
 * as it was, bit for bit. So tiles in which nothing is visible can be left out.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ATTENTION_RECORDS_H
#define LS_COMPUTE_CUDA_DEVICE_ATTENTION_RECORDS_H

#include "compute/cuda/device/attention.h"
#include "compute/cuda/device/device.h"

/* The first key that query `query` of a sequence sees. Queries from the length on are as the last
 * one. */
LS_DEVICE int record_begin(const ls_attention_args &a, int sequence, int query)
{
    return a.first ? a.first[(int64_t)sequence * a.length + min(query, a.length - 1)] : 0;
}

/* The end of the queries that see key `key`: the next record. */
LS_DEVICE int record_end(const ls_attention_args &a, int sequence, int key)
{
    int low = min(key, a.length - 1), high = a.length;
    while (a.first && high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (record_begin(a, sequence, middle) <= key) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return high;
}

#endif
