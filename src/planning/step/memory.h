// SPDX-License-Identifier: Apache-2.0
/*
 * What a step needs of a GPU's memory.
 *
 *   weights      2 B a parameter (4 in fp32 and tf32)
 *   gradients    2 or 4 B, depending on the stack
 *   optimizer    12 B for AdamW: master, m, v; others in planning/step/estimate.h. No master where
 *                the weights are fp32 themselves
 *   sharding     ZeRO-1 splits the optimizer over dp * cp, ZeRO-2 gradients too, ZeRO-3 weights
 *                too; experts over dp * cp / ep
 *   activations  what the backward reads of each layer, from the op plan's own list
 *                (ls_shape.saved), times the micro-batches in flight; and the loss
 *   buffers      gathered layers and unsharded gradients (ZeRO-2 and 3: two layers and one layer;
 *                in a pipeline the whole stage), exchanges, temporary values of the backward, the
 *                runtime's context, the allocator's slack
 *
 * Parameters of a GPU: matrices / tp (routers and latent compressions whole), norms and biases
 * whole, experts / (tp ep), the embedding on the first stage, the head on the last; a tied head is
 * a copy when the first stage is not the last. A stage has layers / pp layers; the first stages
 * take the remainder.
 *
 * One layer and micro-batch of T = b s / c tokens keeps (Korthikanti et al. 2022, arXiv 2205.05198)
 *
 *   values       2 B each (times saved_factor of stacks that keep copies); those between column-cut
 *                and row-cut products / tp, the others / tp with sequence parallelism only
 *   masks        1 B, two of width h, with dropout
 *   softmax      attention that is not one kernel: 2 a s B, with dropout 5 a s B a token, / tp. A
 *                kernel keeps 4 a B of statistics instead
 *
 * which is s b h (34 + 5 a s / h) for GPT with dropout. Of that, recompute keeps
 *
 *   selective    all but the softmax (Megatron's); under stacks that recompute a share of the
 *                products (selective_matmul): the stream at the layer's entry, attention's output,
 *                and what the other products give
 *   full         the stream at the layer's entry, / tp with sequence parallelism; one layer at a
 *                time is recomputed as a whole
 *
 * Micro-batches in flight on stage i of p: 1F1B and ZB-H1 min(p - i, m); interleaved (2 (p - i - 1)
 * + (v - 1) p + 1) / v, at most m; GPipe m; ZB-H2 min(2 (p - i) - 1, m). The first and the last
 * stage are computed, and the fuller one counts.
 *
 * For the stack "lockstep" memory is not modelled: it is the runtime's own plan
 * (ls_plan_memory), which the trainer allocates to the byte. That takes tens of microseconds and a
 * temporary arena; everything else here is pure, allocates nothing, and takes well below a
 * microsecond.
 */
#ifndef LS_PLANNING_STEP_MEMORY_H
#define LS_PLANNING_STEP_MEMORY_H

#include "planning/step/estimate.h"

/* What the estimate of one stage is put together from. Bytes on one GPU unless said otherwise. */
typedef struct ls_memory_parts {
    int64_t stage;
    double layers;                       /* on this stage */
    double in_flight;                    /* micro-batches whose activations are held, >= 1 */
    double tokens;                       /* T */
    double matrix_parameters;            /* of the layers, experts not included */
    double vector_parameters;            /* of the layers, and the final norm */
    double expert_parameters;            /* of the layers */
    double embedding_parameters;         /* embedding, head, or both */
    double weight_bytes, gradient_bytes; /* per parameter */
    double optimizer_bytes;              /* per parameter; Muon: of matrices */
    double vector_optimizer_bytes;       /* the same but for Muon */
    double shards, expert_shards;        /* GPUs that share what ZeRO splits */
    /* of one layer, nothing recomputed */
    double layer_values, layer_statistics, layer_masks, layer_softmax;
    double layer_kept;  /* of the sum of these, with the strategy's recompute */
    double layer_again; /* what is whole again while one layer is recomputed */
    double loss;        /* logits and what belongs to them: last stage */
    double gathered, bucket, exchange, transient;
} ls_memory_parts;

void ls_memory_parts_compute(const ls_setting *setting, const ls_strategy *strategy, int64_t stage,
                             ls_memory_parts *parts_out);

/* Micro-batches whose activations stage `stage` holds, of `micro_batches`. */
double ls_memory_in_flight(const ls_strategy *strategy, int64_t stage, double micro_batches);

/* What a training program can have of an accelerator's memory: of unified memory three quarters,
 * else all. */
double ls_memory_capacity(const ls_accelerator *accelerator);

/* A GPU of stage `stage`, by the general formulas. */
ls_memory_estimate ls_memory_of_stage(const ls_setting *setting, const ls_strategy *strategy, int64_t stage);

/* The fullest GPU. `strategy` has passed ls_strategy_check for this setting. */
void ls_memory_compute(const ls_setting *setting, const ls_strategy *strategy,
                       ls_memory_estimate *memory_out);

/* The explanation of weights, gradients, optimizer, activations, buffers or memory (all of them);
 * see ls_estimate_explain. False when it is no such term. */
bool ls_memory_explain(const ls_setting *setting, const ls_strategy *strategy, const char *term,
                       ls_text *text);

#endif
