// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/tensor_map.h"

#include "base/assert.h"

#include <assert.h>
#include <string.h>

ls_status ls_cuda_tensor_map(const ls_queue_cuda *queue, const ls_tensor_box *tensor, ls_tensor_map *map_out)
{
    LS_ASSERT(tensor->rank >= 2 && tensor->rank <= 4 && tensor->box[0] == 64);
    const uint32_t ones[4] = {1, 1, 1, 1};
    uint64_t strides_bytes[3] = {0};
    for (uint32_t i = 1; i < tensor->rank; i++) {
        strides_bytes[i - 1] = tensor->strides[i] * 2;
    }
    CUtensorMap map;
    CU_TRY(queue->driver, cuTensorMapEncodeTiled, &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, tensor->rank,
           tensor->data, tensor->dims, strides_bytes, tensor->box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    static_assert(sizeof map == sizeof *map_out, "a tensor map has 128 bytes");
    memcpy(map_out, &map, sizeof map);
    return LS_OK;
}
