// SPDX-License-Identifier: Apache-2.0
/*
 * Causal attention with grouped queries, without the T x T matrix: scores exist only as tiles in cache.
 *
 * q (n, heads * head_dim), k and v (n, kv_heads * head_dim), out like q; n = sequences * length, rows of one
 * sequence adjacent. Query head h reads key head h / (heads / kv_heads). Position i sees positions max(0, i -
 * window + 1) .. i; window 0: all up to i.
 *
 *   out_i = sum_j softmax_j(scale q_i . k_j) v_j          lse_i = log sum_j exp(scale q_i . k_j)
 *
 * Backward recomputes the probabilities from lse (Dao et al., "FlashAttention", 2022). q, k, v may be columns
 * of one fused (n, (heads + 2 kv_heads) head_dim) tensor; so may dq, dk, dv.
 */
#ifndef LS_COMPUTE_KERNELS_ATTENTION_H
#define LS_COMPUTE_KERNELS_ATTENTION_H

#include "compute/queue.h"

typedef struct ls_attention {
    int64_t sequences, length; /* n = sequences * length */
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
    float scale;    /* usually 1 / sqrt(head_dim) */
} ls_attention;

/*
 * lse (n, heads) is kept for backward. Work is cut in blocks of 64 queries of one head; longer than 2^24 positions
 * or heads wider than 256 are not supported (asserted); head_dim is even, and multiples of 16 waste nothing.
 * Errors: LS_ERR_MEMORY when scratch can't be grown (first call only).
 */
LS_MUST_CHECK ls_status ls_attention_forward(ls_queue *queue, const ls_attention *attention,
                                             const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                             const ls_tensor *out, const ls_tensor *lse);

/*
 * dq, dk, dv are written (not accumulated). workspace: float32, ls_attention_workspace_floats() elements, which is 0
 * (and workspace may be absent) when every query head has its own key head. One head of one sequence is one tile;
 * scratch is about 16 * length * head_dim bytes per thread. Errors: as forward.
 */
LS_MUST_CHECK ls_status ls_attention_backward(ls_queue *queue, const ls_attention *attention,
                                              const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                              const ls_tensor *out, const ls_tensor *lse,
                                              const ls_tensor *dout, const ls_tensor *dq, const ls_tensor *dk,
                                              const ls_tensor *dv, const ls_tensor *workspace);
int64_t ls_attention_workspace_floats(const ls_attention *attention);

/*
 * Generation: q (n, heads * head_dim) are the newest n positions of one sequence; k_cache and v_cache
 * (capacity, kv_heads * head_dim) hold positions 0 .. past + n - 1, the newest already written. Row i is
 * position past + i. attention->sequences is 1, length is n. The bits are those that ls_attention_forward gives
 * for the same positions of the whole sequence, however it is cut into calls.
 */
LS_MUST_CHECK ls_status ls_attention_decode(ls_queue *queue, const ls_attention *attention,
                                            const ls_tensor *q, const ls_tensor *k_cache,
                                            const ls_tensor *v_cache, int64_t past, const ls_tensor *out);

#endif
