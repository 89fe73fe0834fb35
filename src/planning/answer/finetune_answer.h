// SPDX-License-Identifier: Apache-2.0
/*
 * The answer to "what would fine-tuning it take?": memory, speed, time and rent of full, LoRA and
 * QLoRA training on one machine, and which of them fit there.
 *
 * Memory: everything lives in the arena. Not thread-safe for one arena.
 */
#ifndef LS_PLANNING_ANSWER_FINETUNE_ANSWER_H
#define LS_PLANNING_ANSWER_FINETUNE_ANSWER_H

#include "model/adapter.h"
#include "planning/answer/answer.h"
#include "planning/step/finetune.h"

typedef struct ls_finetune_question {
    /* model, gpus, nodes, tokens, seq, global_batch, strategy, stack, optimizer, precision,
     * catalogue; the rest is not read */
    const ls_plan_question *plan;
    ls_finetune_kind kind;
    uint64_t rank;
    /* Bytes of a packed matrix (ls_base), for qlora on this machine. */
    int64_t (*packed_bytes)(ls_base_kind kind, int64_t out, int64_t in);
} ls_finetune_question;

typedef struct ls_finetune_answer {
    ls_plan_answer plan; /* shape, node, setting, assumptions; no estimate */
    ls_finetune_kind kind;
    ls_finetune_estimate estimates[LS_FINETUNE_KINDS];
    double hours[LS_FINETUNE_KINDS]; /* for plan.tokens */
    /* rent of all GPUs for these hours, at the low price; NAN: no price is known */
    double rent_usd[LS_FINETUNE_KINDS];
    const char *refusal; /* why the kind does not fit, and what would; NULL: it fits */
} ls_finetune_answer;

/*
 * Left open: sequences are 2,048 tokens or the model's context, a batch is 16 of them, tokens are
 * a million, and the machine is the GPU of the catalogue with the least memory on which the kind
 * fits. On this machine the figures are those of our own trainer, from the op plan that it would
 * run: adapters on a base in float32 (lora) or nf4 (qlora). Errors: those of
 * ls_plan_answer_compute for a question that can't be understood.
 */
LS_MUST_CHECK ls_status ls_finetune_answer_compute(ls_arena *arena, const ls_finetune_question *question,
                                                   ls_finetune_answer *answer_out);

#endif
