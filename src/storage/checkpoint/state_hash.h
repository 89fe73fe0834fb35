// SPDX-License-Identifier: Apache-2.0
/* Shared by the save and by the state hash over memory and over a checkpoint. Public part:
 * storage/checkpoint/checkpoint.h. */
#ifndef LS_STORAGE_CHECKPOINT_STATE_HASH_H
#define LS_STORAGE_CHECKPOINT_STATE_HASH_H

#include "storage/checkpoint/checkpoint.h"

/* Adds `bytes` zero bytes. */
void ls_state_hash_zeros(ls_sha256 *hash, uint64_t bytes);

/* Pointers to the tensors in the byte order of their names, in `arena`. LS_ERR_INVALID for a name
 * given twice or a shape whose bytes do not fit in 63 bits. */
LS_MUST_CHECK ls_status ls_checkpoint_sort(ls_arena *arena, const ls_checkpoint_tensor *tensors,
                                           size_t tensor_count, const ls_checkpoint_tensor ***sorted_out);

/* Bytes of one of its members; the shape must have passed ls_checkpoint_sort. */
uint64_t ls_checkpoint_tensor_bytes(const ls_checkpoint_tensor *tensor);

#endif
