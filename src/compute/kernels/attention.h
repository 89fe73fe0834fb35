// SPDX-License-Identifier: Apache-2.0
/*
 * Causal attention with grouped queries. There is no T x T matrix: scores exist only as tiles in
 * the cache, or in the registers and the shared memory of a GPU.
 *
 * q and out are (n, heads * head_dim), k and v (n, kv_heads * head_dim), with n = sequences *
 * length. The rows of a sequence are adjacent. Query head h reads key head h / (heads / kv_heads).
 * Position i attends to positions max(0, i - window + 1) .. i, or to all up to i if window is 0.
 * With `first`, it attends to those of its record only. What the other records hold changes no bit
 * of a record's results; on the CPU, they are also those of the record as a sequence of its own.
 *
 *   out_i = sum_j softmax_j(scale q_i . k_j) v_j          lse_i = log sum_j exp(scale q_i . k_j)
 *
 * Backward recomputes the probabilities from lse (Dao et al., "FlashAttention", 2022). q, k and v
 * may be columns of one fused (n, (heads + 2 kv_heads) head_dim) tensor, and so may dq, dk and dv.
 */
#ifndef LS_COMPUTE_KERNELS_ATTENTION_H
#define LS_COMPUTE_KERNELS_ATTENTION_H

#include "compute/kernels/positions.h"
#include "compute/queue.h"

typedef struct ls_attention {
    /* n = sequences * length. */
    int64_t sequences, length;
    int64_t heads, kv_heads, head_dim;
    /* 0: no window. */
    int64_t window;
    /* Usually 1 / sqrt(head_dim). */
    float scale;
    /* As in compute/kernels/positions.h, n entries. NULL: every sequence is one record. Decode
     * takes no records. */
    const int32_t *first;
    /* Of one sequence, forward and backward may compute a part of the queries: rows of q are
     * positions past, past + 1, ..., and k, v, dk and dv have past + length rows, from position 0
     * on. On a GPU only 0. */
    int64_t past;
} ls_attention;

/*
 * Computes out, and lse (n, heads), in float32, for backward. At most 2^24 positions and a head_dim
 * of at most 256 are supported (asserted). head_dim is even; multiples of 16 are fastest, because
 * others are padded. On the CPU, a tile is a block of 64 queries of one head. Errors: LS_ERR_MEMORY
 * if scratch can't grow, which only the first call can return.
 */
LS_MUST_CHECK ls_status ls_attention_forward(ls_queue *queue, const ls_attention *attention,
                                             const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                             const ls_tensor *out, const ls_tensor *lse);

/*
 * Writes dq, dk and dv; it does not add to them. workspace: ls_attention_workspace_floats()
 * elements of float32; it may be absent if that is 0. With `past`, dk and dv are the shares of
 * these queries: zeros where none of them looks. On the CPU the workspace is 0 if every query head
 * has its own key head; a tile is one head of one sequence, and scratch is about 16 * length *
 * head_dim bytes per thread. Errors: as for ls_attention_forward.
 */
LS_MUST_CHECK ls_status ls_attention_backward(ls_queue *queue, const ls_attention *attention,
                                              const ls_tensor *q, const ls_tensor *k, const ls_tensor *v,
                                              const ls_tensor *out, const ls_tensor *lse,
                                              const ls_tensor *dout, const ls_tensor *dq, const ls_tensor *dk,
                                              const ls_tensor *dv, const ls_tensor *workspace);

/* Floats of workspace that ls_attention_backward needs. queue NULL: on a queue of the CPU. */
int64_t ls_attention_workspace_floats(const ls_queue *queue, const ls_attention *attention);

/*
 * Attention for generation. q (n, heads * head_dim) holds the newest n positions of one sequence:
 * row i is position past + i. k_cache and v_cache (capacity, kv_heads * head_dim) hold positions 0
 * .. past + n - 1, with the newest already written. attention->sequences is 1, length is n. The
 * bits are those of ls_attention_forward for the same positions of the whole sequence, whatever n
 * each call has.
 */
LS_MUST_CHECK ls_status ls_attention_decode(ls_queue *queue, const ls_attention *attention,
                                            const ls_tensor *q, const ls_tensor *k_cache,
                                            const ls_tensor *v_cache, int64_t past, const ls_tensor *out);

#endif
