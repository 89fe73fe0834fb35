// SPDX-License-Identifier: Apache-2.0
/*
 * Merges models of the same shape and tokenizer, typically branches that were trained from one
 * model on different data. A value of the result is a sum over the models, in float64 and in their
 * order, rounded once:
 *
 *   average           sum of w_i x_i, the weights w_i adding up to 1
 *   task arithmetic   b + s * sum of w_i (x_i - b), b being the value of the base
 *   stitch            layers of several models, one after another; the embeddings come from the
 *                     model of the first layer, final norm and head from that of the last
 *   experts           the MLP of each model becomes an expert of every layer of a mixture; all other
 *                     tensors are averaged; the routers are new, drawn from counters with a tenth of
 *                     the usual deviation, and have to be trained
 *
 * Sources: Wortsman and others, "Model soups", 2022; Ilharco and others, "Editing models with task
 * arithmetic", 2023; Sukhbaatar and others, "Branch-Train-MiX", 2024.
 *
 * The result is written tensor by tensor. Memory: 12 bytes for each value of the largest tensor;
 * the result itself lies in a file that is mapped, and that the kernel can write out.
 *
 * Adapters of one base are merged without it: the result is one adapter whose product is the
 * weighted sum of theirs. Its rank is the sum of their ranks.
 */
#ifndef LS_EXECUTION_CONVERT_MERGE_H
#define LS_EXECUTION_CONVERT_MERGE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_MERGE_MOST = 26 /* models, which --layers calls A to Z */ };

typedef enum ls_merge_method {
    LS_MERGE_AVERAGE,
    LS_MERGE_TASK_ARITHMETIC,
    LS_MERGE_STITCH,
    LS_MERGE_EXPERTS,
    LS_MERGE_METHODS
} ls_merge_method;

/* "average", "task-arithmetic", "stitch", "experts"; NULL at the end. */
extern const char *const ls_merge_names[LS_MERGE_METHODS + 1];

typedef struct ls_merge_options {
    ls_merge_method method;
    /* checkpoints, run directories, Hugging Face directories, adapters */
    const char *const *paths;
    size_t count; /* 2 to LS_MERGE_MOST; task arithmetic: 1 at least */
    /* one for each model; NULL: equal ones, or 1 for task arithmetic */
    const double *weights;
    const char *base;           /* of task arithmetic; else "" */
    double scale;               /* of task arithmetic */
    const char *layers;         /* of stitch: "A:0-3,B:4-7"; else "" */
    uint64_t experts_per_token; /* of experts; 0: 2 */
    bool is_adapter;            /* the models are adapters, and so is the result */
    const char *output;         /* the checkpoint becomes OUTPUT/0; an adapter OUTPUT */
    /* Experts: what the routers are to be trained on; none: what the models were trained on, as far
     * as they are run directories. */
    const char *const *data;
    size_t data_count;
} ls_merge_options;

/*
 * Merges, and for experts also writes OUTPUT/router.yaml, the run file that trains the routers and
 * nothing else.
 *
 * result_out: {"output", "method", "family", "parameters", "digest", "parents": [{"path", "step",
 * "weight", "digest"}], "base", "scale", "layers", "run_file"}; the caller drops it. The manifest
 * of the checkpoint has the same under "merge". A digest is SHA-256 over the SHA-256 (64 digits) of
 * each tensor, float32, in the order of their names.
 *
 * Errors: LS_ERR_INVALID for options that do not fit the method, models that differ (naming what
 * differs, and what can still be merged), layers with gaps, and an output that exists;
 * LS_ERR_DATA for a missing tensor and a result that is not finite; LS_ERR_UNSUPPORTED for a family
 * that no mixture has the shape of; those of ls_model_file_open; LS_ERR_DISK, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_merge(ls_arena *arena, const ls_merge_options *options, json_t **result_out);

#endif
