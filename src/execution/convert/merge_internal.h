// SPDX-License-Identifier: Apache-2.0
/* What the files of a merge share. */
#ifndef LS_EXECUTION_CONVERT_MERGE_INTERNAL_H
#define LS_EXECUTION_CONVERT_MERGE_INTERNAL_H

#include "execution/convert/merge.h"
#include "execution/train/model_file.h"

/* Where a layer of a stitched model comes from. */
typedef struct ls_merge_layer {
    size_t parent;
    int64_t layer;
} ls_merge_layer;

typedef struct ls_merge_work {
    ls_arena *arena;
    const ls_merge_options *options;
    size_t count; /* of `files`: the models, then the base, if any */
    ls_model_file *files[LS_MERGE_MOST + 1];
    double weights[LS_MERGE_MOST];
    const ls_model_file *carrier; /* whose tokenizer the result has */
    ls_model_config config;       /* of the result */
    const ls_merge_layer *layers; /* of a stitched model, config.layers of them */
} ls_merge_work;

/* Checks that the models can be merged as the options say, and fills in weights, carrier, config
 * and layers. Errors: those of ls_merge. */
LS_MUST_CHECK ls_status ls_merge_check(ls_merge_work *work);

/* The adapter of all models, as a directory of PEFT. Errors: those of ls_merge. */
LS_MUST_CHECK ls_status ls_merge_adapters(const ls_merge_work *work);

#endif
