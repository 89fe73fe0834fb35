// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW. The same pass scales the gradient, for the mean over tokens and for clipping.
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
    /* t, the number of this update. The first is 1. */
    uint64_t step;
} ls_adamw;

/* The factors of one step. */
typedef struct ls_adamw_factors {
    float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    /* lr / (1 - beta1^t). */
    float step_size;
    /* 1 / sqrt(1 - beta2^t). */
    float inverse_root_v;
    /* 1 - lr weight_decay. */
    float one_minus_decay;
} ls_adamw_factors;

/* Computes the factors in float64 and rounds each once. 0 <= beta < 1 and step >= 1 are
 * asserted. */
ls_adamw_factors ls_adamw_factors_of(const ls_adamw *adamw);

/*
 * Updates `count` elements in place, in one pass with 28 bytes of memory traffic per element. A
 * slice of the buffers gives the same bits as the whole. Runs on the calling thread, also inside a
 * tile; execution/train/update.h cuts large buffers into tiles. CPU queues only.
 */
void ls_adamw_update(const ls_queue *queue, const ls_adamw_factors *factors, int64_t count, float *parameters,
                     const float *gradients, float *m, float *v);

#endif
