// SPDX-License-Identifier: Apache-2.0
/* Element conversion between the types of a file and float32, bit by bit, so that every machine
 * gets the same result.
 */
#include "storage/safetensors/safetensors.h"

#include "base/half.h"

#include <string.h>

ls_status ls_safetensor_to_f32(const ls_safetensor *tensor, float *out)
{
    const size_t count = (size_t)(tensor->bytes / ls_st_dtype_bytes(tensor->dtype));
    const unsigned char *in = tensor->data;
    if (count == 0) {
        return LS_OK;
    }
    switch (tensor->dtype) {
    case LS_ST_F32:
        memcpy(out, in, count * sizeof *out);
        return LS_OK;
    case LS_ST_BF16:
        for (size_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, in + 2 * i, 2);
            out[i] = ls_f32_from_bf16(half);
        }
        return LS_OK;
    case LS_ST_F16:
        for (size_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, in + 2 * i, 2);
            out[i] = ls_f32_from_f16(half);
        }
        return LS_OK;
    case LS_ST_F64:
        for (size_t i = 0; i < count; i++) {
            double wide;
            memcpy(&wide, in + 8 * i, 8);
            out[i] = (float)wide;
        }
        return LS_OK;
    default:
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: tensor %s has type %s, but only floating-point types can be read",
                       tensor->path ? tensor->path : "memory", tensor->name, ls_st_dtype_name(tensor->dtype));
    }
}

ls_status ls_safetensor_from_f32(ls_st_dtype dtype, const float *in, size_t count, void *out)
{
    unsigned char *to = out;
    switch (dtype) {
    case LS_ST_F32:
        memcpy(to, in, count * sizeof *in);
        return LS_OK;
    case LS_ST_BF16:
    case LS_ST_F16:
        for (size_t i = 0; i < count; i++) {
            const uint16_t half = dtype == LS_ST_F16 ? ls_f16_from_f32(in[i]) : ls_bf16_from_f32(in[i]);
            memcpy(to + 2 * i, &half, 2);
        }
        return LS_OK;
    case LS_ST_F64:
        for (size_t i = 0; i < count; i++) {
            const double wide = in[i];
            memcpy(to + 8 * i, &wide, 8);
        }
        return LS_OK;
    default:
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "float32 values can't be written as %s; allowed are F64, F32, F16 and BF16",
                       ls_st_dtype_name(dtype));
    }
}
