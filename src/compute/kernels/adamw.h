// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW, with gradient scaling (mean over tokens, clipping) folded into the same pass.
 *
 *   g  = gradient * gradient_scale
 *   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *   p  = p - lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p)
 *
 * Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019 (the form of
 * torch.optim.AdamW).
 */
#ifndef LS_COMPUTE_KERNELS_ADAMW_H
#define LS_COMPUTE_KERNELS_ADAMW_H

#include "compute/queue.h"

typedef struct ls_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float gradient_scale;
    uint64_t step; /* t, >= 1: number of this update */
} ls_adamw;

/* The factors of one step, computed in float64 and rounded once. 0 <= beta < 1 and step >= 1 are asserted. */
typedef struct ls_adamw_factors {
    float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    float step_size;       /* lr / (1 - beta1^t) */
    float inverse_root_v;  /* 1 / sqrt(1 - beta2^t) */
    float one_minus_decay; /* 1 - lr weight_decay */
} ls_adamw_factors;
ls_adamw_factors ls_adamw_factors_of(const ls_adamw *adamw);

/*
 * Updates `count` elements in place, one pass, 28 bytes of memory traffic per element; any slice of the buffers gives the same bits as the
 * whole. On the calling thread, from inside a tile as well: who has many cuts them in tiles (execution/train/update.h). CPU queues only.
 */
void ls_adamw_update(const ls_queue *queue, const ls_adamw_factors *factors, int64_t count, float *parameters,
                     const float *gradients, float *m, float *v);

#endif
