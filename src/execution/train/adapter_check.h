// SPDX-License-Identifier: Apache-2.0
/*
 * Whether a merge is right: the logits of the merged model against those of base and adapter apart,
 * on the same tokens.
 */
#ifndef LS_EXECUTION_TRAIN_ADAPTER_CHECK_H
#define LS_EXECUTION_TRAIN_ADAPTER_CHECK_H

#include "execution/train/adapter_file.h"

/* Attachment of the checkpoints of an adapter: ids from the run's own data, a JSON list. */
#define LS_MERGE_TOKENS_NAME "merge_tokens.json"
enum { LS_MERGE_TOKENS_MAX = 256 };

typedef struct ls_merge_check {
    /* largest difference of a logit, and the largest magnitude of one */
    double difference, logit;
    int64_t positions, same; /* compared; with the same most likely token */
    bool from_run;           /* on tokens of the run's data; otherwise on random ids */
} ls_merge_check;

/*
 * Compares. merged: weights in the plain layout of file->config, rounded as they were stored. Needs
 * memory for the base beside them. Errors: LS_ERR_MEMORY; those of ls_model_file_load.
 */
LS_MUST_CHECK ls_status ls_adapter_check_merge(const ls_model_file *file, ls_queue *queue,
                                               const float *merged, ls_merge_check *check_out);

#endif
