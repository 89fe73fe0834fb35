// SPDX-License-Identifier: Apache-2.0
/*
 * Token and position embeddings on a GPU (kernels/embedding.h). Tokens are shared memory.
 */
#ifndef LS_COMPUTE_CUDA_EMBEDDING_H
#define LS_COMPUTE_CUDA_EMBEDDING_H

#include "compute/kernels/positions.h"
#include "compute/queue.h"

/* table, positions and out are float32 or bfloat16, all alike. */
LS_MUST_CHECK ls_status ls_cuda_embedding_forward(ls_queue *queue, const int32_t *tokens,
                                                  const ls_tensor *table, const ls_tensor *position_table,
                                                  const ls_positions *positions, const ls_tensor *out);

/*
 * dout is float32 or bfloat16, the gradients are float32. The rows of a token are added in order in
 * tiles, and the tiles in order. The sum is then added to dtable.
 */
LS_MUST_CHECK ls_status ls_cuda_embedding_backward(ls_queue *queue, const int32_t *tokens,
                                                   const ls_tensor *dout, const ls_positions *positions,
                                                   const ls_tensor *dtable, const ls_tensor *dpositions);

#endif
