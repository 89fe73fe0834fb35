// SPDX-License-Identifier: Apache-2.0
/*
 * Tensors that bitsandbytes packed, in the safetensors of a Hugging Face folder.
 *
 *   int8    NAME.weight I8 (out, in), NAME.SCB F32 (out), NAME.weight_format U8, 0 if present
 *   nf4     NAME.weight U8, two codes in a byte, and
 *           NAME.weight.quant_state.bitsandbytes__nf4   U8: JSON with shape, block size, mean
 *           NAME.weight.absmax                          F32 scales, or U8 codes of scales and
 *           NAME.weight.nested_absmax                   F32
 *           NAME.weight.nested_quant_map, .quant_map    F32: the levels, which must be the usual ones
 *
 * Not read: fp4, other sizes of blocks, int8 weights in the order of old GPUs.
 */
#ifndef LS_MODEL_HUGGINGFACE_PACKED_H
#define LS_MODEL_HUGGINGFACE_PACKED_H

#include "base/bitsandbytes.h"
#include "base/json.h"
#include "model/config.h"
#include "storage/safetensors/safetensors.h"

/* Checks `quantization_config` of a config.json, which messages call `name`. Errors:
 * LS_ERR_UNSUPPORTED for anything but nf4 and int8 of bitsandbytes, and for gpt2, whose matrices it
 * transposes. */
LS_MUST_CHECK ls_status ls_hf_check_quantization(const json_t *quantization, ls_family family,
                                                 const char *name);

/* Whether a tensor of this name describes the packing of another one. */
bool ls_hf_is_packing(const char *name);

/*
 * The packed form of tensor `weight` of `file`; codes are NULL if it is not packed. The result
 * reads the file's memory. Errors: LS_ERR_DATA for parts that are missing, do not fit together or
 * are not finite; LS_ERR_UNSUPPORTED for a form that is not read.
 */
LS_MUST_CHECK ls_status ls_hf_packed_matrix(const ls_safetensors *file, const ls_safetensor *weight,
                                            ls_bnb_matrix *matrix_out);

#endif
