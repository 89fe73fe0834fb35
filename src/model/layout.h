// SPDX-License-Identifier: Apache-2.0
/*
 * Parameter layout: where every tensor of a model lies in one flat float buffer.
 *
 * The buffer is cut in buckets: bucket 0 is the embeddings, bucket 1 + l is layer l, the last is
 * the final norm and (untied) the head. A bucket is padded to LS_BUCKET_PAD floats so that it can
 * be sharded; padding is zero in parameters, gradients and moments. Inside a bucket each tensor (or
 * group of adjacent tensors, below) starts at a multiple of 16 floats, a cache line; the holes are
 * padding too. Gradients and the two moments use the same offsets in buffers of their own.
 *
 * Frozen tensors (train.freeze) follow all trained ones, in buckets of their own. Gradients,
 * moments and everything that ranks do with buckets end at float_count; only the parameter buffer
 * is longer. Empty buckets are left out. So a run that freezes nothing has the plain layout.
 *
 *                 trained                                     frozen
 *   parameters   | embeddings | layer 0 | ... | final |  embeddings | layer 0 | ... |
 *                |<------------ float_count ----------->|
 *                |<------------ parameter_floats ----------------------------------->|
 *
 * With an adapter (model/adapter.h) all parameters of the model, the base, are frozen, and what is
 * trained are the matrices A and B of the adapter, in the section of their layer. The matrices A of
 * linear layers that one product reads together are adjacent too; their matrices B follow, each in
 * a group of its own, in the same order.
 *
 * Names, shapes and orientation are Hugging Face's, so import and export are copies. Tensors that
 * one product reads together are adjacent: q, k, v weights (out, in) are one (q + 2 kv, width)
 * matrix, their biases one vector, gate and up one (2 ffn, width) matrix. Of a layer with experts,
 * gate and up of expert 0, those of expert 1, ... are one matrix, (experts 2 expert_ffn, width),
 * and the down projections another, (experts width, expert_ffn).
 */
#ifndef LS_MODEL_LAYOUT_H
#define LS_MODEL_LAYOUT_H

#include "base/arena.h"
#include "model/adapter.h"
#include "model/config.h"

enum { LS_BUCKET_PAD = 1024 /* floats */ };

typedef enum ls_init_kind {
    LS_INIT_NORMAL, /* init_std */
    /* init_std / sqrt(2 layers): projections that write to the residual stream */
    LS_INIT_NORMAL_SCALED,
    LS_INIT_ZERO,
    LS_INIT_ONE,
    LS_INIT_UNIFORM /* uniform in +-1 / sqrt(cols): A of an adapter */
} ls_init_kind;

typedef struct ls_parameter {
    const char *name; /* as in the Hugging Face file, "model.layers.0.self_attn.q_proj.weight" */
    int64_t rows;     /* 1 for vectors */
    int64_t cols;
    int shape_rank; /* 1 or 2: the rank in the file */
    int64_t offset; /* floats from the start of the flat buffer */
    uint32_t bucket;
    uint32_t section; /* 0: embeddings, 1 + l: layer l, the last: final norm and head */
    uint32_t group;   /* adjacent tensors, which one product reads together, have the same */
    bool decay;       /* weight decay applies: matrices yes, biases and norms no */
    bool frozen;      /* never updated; offset >= float_count */
    /* floats of room in the flat buffer: rows * cols, or what its packed form needs */
    int64_t room;
    bool packed; /* the room has the packed form of the matrix, layout->base */
    ls_init_kind init;
} ls_parameter;

typedef struct ls_bucket {
    int64_t offset, count; /* floats, count padded */
    uint32_t section;      /* whose parameters it has */
} ls_bucket;

typedef struct ls_layout {
    ls_parameter *parameters; /* in buffer order: first trained, then frozen parameters */
    uint32_t parameter_count;
    uint32_t trained_count; /* parameters that are trained */
    uint32_t table;         /* index of the table of embeddings */
    uint32_t section_count; /* layers + 2 */
    ls_bucket *buckets;     /* trained buckets, then `frozen_buckets` more */
    uint32_t bucket_count;  /* buckets that are trained; section_count if nothing is frozen */
    uint32_t frozen_buckets;
    int64_t float_count;      /* with padding: size of flat gradients and moments */
    int64_t parameter_floats; /* size of flat parameters: the frozen ones too */
    int64_t element_count;    /* without padding: "the number of parameters" */
    int64_t frozen_elements;  /* parameters that are frozen */
    /* what is trained beside a frozen base, in the arena of the layout; NULL: no adapter */
    const ls_adapter *adapter;
    ls_base_kind base; /* of what is `packed` */
} ls_layout;

/* Lays out a checked configuration with all tensors trained; the tables live in `arena`. */
void ls_layout_build(ls_arena *arena, const ls_model_config *config, ls_layout *layout_out);

/*
 * The same, but tensors that match one of `patterns` are frozen. These are shell patterns (*, ?,
 * [...]) for a tensor's name, such as "model.layers.0.self_attn.q_proj.weight", with or without the
 * family's prefix ("model.", "transformer."). A pattern that matches only the beginning of a name,
 * "layers.0", means all tensors below it.
 * Errors: LS_ERR_INVALID for a pattern that matches nothing (naming the nearest names), when
 * nothing is left to train, and when tensors that one product reads together (q, k and v; gate and
 * up) are not all frozen or all trained; layout_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_layout_build_frozen(ls_arena *arena, const ls_model_config *config,
                                               const char *const *patterns, size_t pattern_count,
                                               ls_layout *layout_out);

/*
 * The layout of an adapter and its base, whose linear layers are packed as `base` says; a packed
 * matrix begins at a multiple of 64 bytes. Errors: LS_ERR_INVALID for a target that matches no
 * linear layer, naming those there are, and for a packed base of a model with experts; layout_out
 * is then untouched. Routers and experts get no adapter.
 */
LS_MUST_CHECK ls_status ls_layout_build_adapter(ls_arena *arena, const ls_model_config *config,
                                                const ls_adapter *adapter, const ls_base *base,
                                                ls_layout *layout_out);

/* The trained buckets cut into `runs` runs of whole buckets, as nearly equal as these allow: the
 * first float of run `index`, and how many it has. runs: 1 to bucket_count. */
int64_t ls_layout_run(const ls_layout *layout, uint32_t runs, uint32_t index, int64_t *count_out);
/* The floats of the largest run. */
int64_t ls_layout_largest_run(const ls_layout *layout, uint32_t runs);

/* The parameter named `name`, or NULL. */
const ls_parameter *ls_layout_find(const ls_layout *layout, const char *name);

/* Indices of the parameters sorted by name (byte order), the order of state_hash; in `arena`. */
uint32_t *ls_layout_by_name(ls_arena *arena, const ls_layout *layout);

/* How fresh weights are drawn; std and layers as in the configuration. */
typedef struct ls_init_rule {
    uint64_t seed;
    double std;
    int64_t layers; /* >= 1 */
} ls_init_rule;

/* Fills elements [first, first + count) of parameter `index` with their initial values: element
 * e of tensor t is number e of stream (seed, LS_RANDOM_INIT), sub = t counted in name order, so
 * the result depends neither on the layout of the buffer nor on which rank fills which part. */
void ls_parameter_init(const ls_layout *layout, uint32_t index, const ls_init_rule *rule, int64_t first,
                       int64_t count, float *flat_parameters);

#endif
