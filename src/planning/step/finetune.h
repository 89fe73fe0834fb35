// SPDX-License-Identifier: Apache-2.0
/*
 * Fine-tuning on GPUs: what training a model further needs, whole (full), by low-rank adapters on
 * all linear layers of a frozen bf16 base (LoRA), or of a base in 4 bits (QLoRA).
 *
 *   weights      full: as planning/step/memory.h. LoRA: 2 B a parameter. QLoRA: 4.127 bits a
 *                parameter of the layers' matrices (NF4 in blocks of 64; their scales in 8 bits,
 *                and one float32 for 256 scales), 2 B for embedding, head and norms
 *   adapters     rank (in + out) parameters for each linear, q, k, v, gate and up apart; weights,
 *                gradients and two moments in float32, 16 B each
 *   gradients, optimizer   full: as planning/step/memory.h; else of the adapters alone
 *   activations  as planning/step/memory.h, with the logits of an eighth of the tokens at a time:
 *                programs for fine-tuning compute the loss in chunks
 *   buffers      the same; QLoRA: also the largest matrix in bf16, while it is multiplied
 *
 * Several GPUs share weights, gradients and optimizer (ZeRO-3), each with its own micro-batches.
 *
 * Time: a frozen base has no weight gradients. Of a product's three parts (forward, gradient of
 * the input, gradient of the weight) two are left; with full recompute three of four. The
 * adapters' own products are rank / width of that and not counted. QLoRA reads the packed base,
 * writes it as bf16 and reads it again for each of these products.
 *
 * Sources: Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs", 2023 (formats); Hu et
 * al., "LoRA", 2021. Pure.
 */
#ifndef LS_PLANNING_STEP_FINETUNE_H
#define LS_PLANNING_STEP_FINETUNE_H

#include "planning/step/estimate.h"

typedef enum ls_finetune_kind {
    LS_FINETUNE_FULL,
    LS_FINETUNE_LORA,
    LS_FINETUNE_QLORA,
    LS_FINETUNE_KINDS
} ls_finetune_kind;

/* "full", "lora", "qlora"; NULL at the end. */
extern const char *const ls_finetune_names[LS_FINETUNE_KINDS + 1];

typedef struct ls_finetune_estimate {
    ls_finetune_kind kind;
    double adapter_parameters; /* 0: full */
    ls_strategy strategy;      /* micro-batch and recompute; dp over all GPUs */
    ls_memory_estimate memory; /* weights: the base and its adapters */
    ls_fit fit;
    double tokens_ps; /* all GPUs */
} ls_finetune_estimate;

/* Parameters of adapters of `rank` on all linear layers. */
double ls_finetune_adapter_parameters(const ls_shape *shape, int64_t rank);

/*
 * The estimate with the micro-batch and recompute of `request`; what it leaves open is chosen: no
 * recompute where 2,048 tokens or more fit at once, else the largest micro-batch up to 8 with full
 * recompute. When nothing fits, the estimate is that of one sequence with full recompute. rank: of
 * the adapters, >= 1.
 */
void ls_finetune_compute(const ls_setting *setting, ls_finetune_kind kind, int64_t rank,
                         const ls_strategy_request *request, ls_finetune_estimate *estimate_out);

#endif
