// SPDX-License-Identifier: Apache-2.0
/*
 * Token and position embeddings.
 */
#ifndef LS_COMPUTE_KERNELS_EMBEDDING_H
#define LS_COMPUTE_KERNELS_EMBEDDING_H

#include "compute/kernels/positions.h"
#include "compute/queue.h"

/* With a part of the table, on a CPU: another part has the token's row. */
enum { LS_TOKEN_ELSEWHERE = -1 };

/*
 * out (n, c) = table[token], plus position_table[position] if present. tokens holds n ids, each in
 * [0, table.rows), which the CPU asserts; it may be shared memory (compute/queue.h).
 * position_table is (context, c), or has data NULL for none. The row of a token that is elsewhere
 * becomes -0: added to that of the part which has the token, it changes no bit.
 */
LS_MUST_CHECK ls_status ls_embedding_forward(ls_queue *queue, const int32_t *tokens, const ls_tensor *table,
                                             const ls_tensor *position_table, const ls_positions *positions,
                                             const ls_tensor *out);

/* dtable[token] += dout, row by row, so a repeated token adds in one fixed order; a token that is
 * elsewhere adds nothing. dpositions is the same for positions. Either is skipped if absent. Both
 * are float32 and always added to, so the caller clears them before the first use. */
LS_MUST_CHECK ls_status ls_embedding_backward(ls_queue *queue, const int32_t *tokens, const ls_tensor *dout,
                                              const ls_positions *positions, const ls_tensor *dtable,
                                              const ls_tensor *dpositions);

#endif
