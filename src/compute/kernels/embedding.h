// SPDX-License-Identifier: Apache-2.0
/*
 * Token and position embeddings.
 */
#ifndef LS_COMPUTE_KERNELS_EMBEDDING_H
#define LS_COMPUTE_KERNELS_EMBEDDING_H

#include "compute/queue.h"

/*
 * out (n, c) = table[token] (+ positions[position]). tokens: n ids, each in [0, table.rows) (checked when
 * read from disk, asserted here). positions (context, c): data NULL for none; row r has position
 * first_position + r % positions_per_sequence.
 */
LS_MUST_CHECK ls_status ls_embedding_forward(ls_queue *queue, const int32_t *tokens, const ls_tensor *table,
                                             const ls_tensor *positions, int64_t positions_per_sequence,
                                             int64_t first_position, const ls_tensor *out);

/* dtable[token] += dout rows in row order, so repeated tokens add in one fixed order; dpositions likewise
 * (absent: skipped). Both are always accumulated into: the caller clears them before the first use. */
LS_MUST_CHECK ls_status ls_embedding_backward(ls_queue *queue, const int32_t *tokens, const ls_tensor *dout,
                                              int64_t positions_per_sequence, const ls_tensor *dtable,
                                              const ls_tensor *dpositions);

#endif
