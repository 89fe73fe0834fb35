// SPDX-License-Identifier: Apache-2.0
/*
 * Parameter layout: where every tensor of a model lies in one flat float buffer.
 *
 * The buffer is cut in buckets: bucket 0 is the embeddings, bucket 1 + l is layer l, the last is the final
 * norm and (untied) the head. A bucket is padded to LS_BUCKET_PAD floats so that it can be sharded; padding
 * is zero in parameters, gradients and moments. Inside a bucket each tensor (or group of adjacent tensors,
 * below) starts at a multiple of 16 floats, a cache line; the holes are padding too. Gradients and the two
 * moments use the same offsets in buffers of their own.
 *
 * Names, shapes and orientation are Hugging Face's, so import and export are copies. Tensors that one product
 * reads together are adjacent: q, k, v weights (out, in) are one (q + 2 kv, width) matrix, their biases one
 * vector, gate and up one (2 ffn, width) matrix.
 */
#ifndef LS_MODEL_LAYOUT_H
#define LS_MODEL_LAYOUT_H

#include "base/arena.h"
#include "model/config.h"

enum { LS_BUCKET_PAD = 1024 /* floats */ };

typedef enum ls_init_kind {
    LS_INIT_NORMAL,        /* init_std */
    LS_INIT_NORMAL_SCALED, /* init_std / sqrt(2 layers): projections that write to the residual stream */
    LS_INIT_ZERO,
    LS_INIT_ONE
} ls_init_kind;

typedef struct ls_parameter {
    const char *name; /* as in the Hugging Face file, "model.layers.0.self_attn.q_proj.weight" */
    int64_t rows;     /* 1 for vectors */
    int64_t cols;
    int shape_rank; /* 1 or 2: the rank in the file */
    int64_t offset; /* floats from the start of the flat buffer */
    uint32_t bucket;
    bool decay; /* weight decay applies: matrices yes, biases and norms no */
    ls_init_kind init;
} ls_parameter;

typedef struct ls_bucket {
    int64_t offset, count; /* floats, count padded */
} ls_bucket;

typedef struct ls_layout {
    ls_parameter *parameters; /* in buffer order */
    uint32_t parameter_count;
    ls_bucket *buckets;
    uint32_t bucket_count; /* layers + 2 */
    int64_t float_count;   /* with padding: size of the flat buffer */
    int64_t element_count; /* without padding: "the number of parameters" */
} ls_layout;

/* Lays out a checked configuration; the tables live in `arena`. */
void ls_layout_build(ls_arena *arena, const ls_model_config *config, ls_layout *layout_out);

/* The parameter named `name`, or NULL. */
const ls_parameter *ls_layout_find(const ls_layout *layout, const char *name);

/* Indices of the parameters sorted by name (byte order), the order of state_hash; in `arena`. */
uint32_t *ls_layout_by_name(ls_arena *arena, const ls_layout *layout);

/* Fills elements [first, first + count) of parameter `index` with their initial values: element e of tensor t is number e of stream
 * (seed, LS_RANDOM_INIT), sub = t counted in name order, so that neither the layout of the buffer nor who fills what matters. */
void ls_parameter_init(const ls_layout *layout, uint32_t index, uint64_t seed, double init_std,
                       int64_t layers, int64_t first, int64_t count, float *flat_parameters);

#endif
