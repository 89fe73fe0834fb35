// SPDX-License-Identifier: Apache-2.0
/*
 * Rotary position embedding, in Hugging Face's rotate-half order: feature i of a head is paired
 * with i + head_dim / 2.
 *
 *   y[i]       = x[i] cos(p f_i) - x[i + d/2] sin(p f_i)
 *   y[i + d/2] = x[i + d/2] cos(p f_i) + x[i] sin(p f_i)        i < d/2, p = position
 *
 * Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021.
 */
#ifndef LS_COMPUTE_KERNELS_ROTARY_H
#define LS_COMPUTE_KERNELS_ROTARY_H

#include "compute/kernels/positions.h"
#include "compute/queue.h"

/*
 * Rotates x (n, heads * head_dim) in place, each row by its position. cosine and sine are tables
 * (positions, head_dim / 2) that hold every position used. With `backward` the rotation is the
 * other way, the transpose, which turns dy into dx.
 */
LS_MUST_CHECK ls_status ls_rotary_apply(ls_queue *queue, const ls_tensor *x, int64_t heads, int64_t head_dim,
                                        const ls_positions *positions, const ls_tensor *cosine,
                                        const ls_tensor *sine, bool backward);

#endif
