// SPDX-License-Identifier: Apache-2.0
/*
 * A new run: looks at data, model and machine, and writes a commented run file that fits.
 *
 *   finetune   trains a model further on prompts and completions, or on text
 *   chat       trains a model further on conversations, by its chat template
 *   scratch    trains a model from nothing on text
 *
 * What is chosen, and from what:
 *
 *   context        the longest record, or eight of the usual length up to 2,048 tokens so that
 *                  packing fills, rounded up to 64, within the model's context; text: 1,024
 *   batch          a twentieth of the sequences of an epoch, a power of two from 4 to 32
 *   epochs         10 below 2,000 samples for models below 20 million parameters; else 5 below 1,000
 *                  samples, 3 below 10,000, 2 below 100,000, 1; text: 3 below 10 million tokens, 1
 *   learning rate  2e-5 sqrt(1e9 / parameters), within 2e-5 and 5e-4; ten times that for adapters, at
 *                  most 1e-3
 *   way            the first of these whose memory plan is at most 60 % of what is available: all
 *                  weights; adapters on a base in float32, bf16, nf4; the last also with full
 *                  recompute
 *   size           from nothing: the largest of a list with at most one parameter for two tokens,
 *                  trained on 20 tokens for each parameter, at most 10 epochs
 *
 * Each way is tried by the dry run of the trainer (execution/run/trainer.h), so that memory is what
 * the run will allocate.
 */
#ifndef LS_EXECUTION_SETUP_NEW_RUN_H
#define LS_EXECUTION_SETUP_NEW_RUN_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"

typedef enum ls_new_kind { LS_NEW_FINETUNE, LS_NEW_CHAT, LS_NEW_SCRATCH, LS_NEW_KINDS } ls_new_kind;

/* "finetune", "chat", "scratch"; NULL at the end. */
extern const char *const ls_new_names[LS_NEW_KINDS + 1];

typedef struct ls_new_options {
    ls_new_kind kind;
    const char *dir;   /* made; it must not exist, or be empty */
    const char *data;  /* file, folder or pattern */
    const char *model; /* checkpoint, run or Hugging Face directory; "": none, for scratch */
    /* "data.KEY=VALUE": keys of the run file that the user decides about */
    const char *const *set;
    size_t set_count;
} ls_new_options;

/*
 * Writes DIR/train.yaml, and DIR/chat_template.jinja for conversations with a model that has no
 * template. The run is named after DIR.
 *
 * result_out: the object of `new --json` (docs/finetuning.md); the caller drops it. Errors:
 * LS_ERR_INVALID for a DIR that is not empty or a model that is missing or too much, LS_ERR_MEMORY
 * when no way fits; those of the data, the model and the trainer. After an error nothing is left
 * behind.
 */
LS_MUST_CHECK ls_status ls_new_run(ls_arena *arena, const ls_new_options *options, json_t **result_out);

#endif
