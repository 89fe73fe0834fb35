// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW. The same pass scales the gradient, for the mean over tokens and for clipping.
 *
 *   g  = gradient * gradient_scale
 *   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *   p  = p - lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p)
 *
 * A gradient that is already such an update: p = p - lr * (g + weight_decay * p), and m = g.
 *
 * Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019 (the form of
 * torch.optim.AdamW).
 */
#ifndef LS_COMPUTE_KERNELS_ADAMW_H
#define LS_COMPUTE_KERNELS_ADAMW_H

#include "compute/queue.h"

#include <stdbool.h>

typedef struct ls_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float gradient_scale;
    /* t, the number of this update. The first is 1. */
    uint64_t step;
    /* the gradient is an update; v is zero and stays so */
    bool is_update;
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
 * Parameters in full precision, in one of two forms:
 *
 *   values           float32
 *   weights, rests   each float32 split in two: the weight is its upper half, rounded half up, as
 *                    bfloat16, and the rest is what is missing:
 *                    weight = (bits + 0x8000) >> 16, bits = (weight << 16) + rest,
 *                    -32768 <= rest <= 32767
 *
 * Kernels compute with the weights as they are; nothing is lost. (Rounding ties to even would need
 * 17 bits for the rest.)
 */
typedef struct ls_master {
    float *values; /* NULL: the other form */
    uint16_t *weights;
    int16_t *rests;
} ls_master;

/* The parameters from element `first` on. */
static inline ls_master ls_master_from(ls_master m, int64_t first)
{
    return (ls_master){m.values ? m.values + first : NULL, m.weights ? m.weights + first : NULL,
                       m.rests ? m.rests + first : NULL};
}

/*
 * Updates `count` elements in place, in one pass with 28 bytes of memory traffic per element. A
 * slice of the buffers gives the same bits as the whole. On the CPU, parameters have the form
 * `values`, and the call runs on the calling thread, also inside a tile, and never fails;
 * execution/train/update.h cuts large buffers into tiles. On a GPU it is enqueued.
 */
LS_MUST_CHECK ls_status ls_adamw_update(ls_queue *queue, const ls_adamw_factors *factors, int64_t count,
                                        const ls_master *parameters, const float *gradients, float *m,
                                        float *v);

/* Between the two forms, on the host. */
static inline float ls_master_join(uint16_t weight, int16_t rest)
{
    const uint32_t bits = ((uint32_t)weight << 16) + (uint32_t)(int32_t)rest;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void ls_master_split(float value, uint16_t *weight_out, int16_t *rest_out)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const uint16_t weight = (uint16_t)((bits + 0x8000u) >> 16);
    *weight_out = weight;
    *rest_out = (int16_t)(uint16_t)(bits - ((uint32_t)weight << 16));
}

#endif
