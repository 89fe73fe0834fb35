// SPDX-License-Identifier: Apache-2.0
/*
 * A shape: a model as planning sees it, with the number and place of its parameters and the ops of
 * a layer with their sizes per token.
 *
 * Dense models are derived from the op plan (model/plan.h) and the parameter layout
 * (model/layout.h) that the runtime uses, so that planning and execution cannot drift apart: a
 * shape is a digest of the plan of a few layers. Mixtures of experts, of which the runtime trains
 * those without shared experts and dense layers, add their own lines.
 *
 * Symbols of the formulas below and of planning/step/memory.h, planning/step/step_time.h: L layers,
 * h width, a heads, g kv heads, d head size, f MLP width, V vocabulary, s sequence, E experts, k
 * experts that a token visits.
 */
#ifndef LS_PLANNING_MODEL_SHAPE_H
#define LS_PLANNING_MODEL_SHAPE_H

#include "model/plan.h"

/* One matrix product of a layer's forward: (tokens, in) x (in, out). Attention's own products are
 * not among them. */
typedef struct ls_shape_linear {
    const char *name; /* "qkv", "output", "up", "down", "router", "expert up", ... */
    int64_t in, out;
    /* under tensor parallelism `in` is cut (Megatron's row-parallel), else `out` */
    bool row_cut;
    bool replicated; /* not split at all: routers, the compressions of latent attention */
    bool expert;     /* one of E experts; a token visits k */
} ls_shape_linear;

/* One value of a layer that its backward reads and that is therefore kept: elements per token of
 * the micro-batch. */
typedef struct ls_shape_saved {
    const char *name; /* "normed 1", "qkv", ... */
    double cols;      /* experts: all k of them together */
    bool cut;         /* split over tp; else only sequence parallelism splits it */
    bool statistic;   /* 4 bytes, whatever the precision: softmax and norm statistics */
    bool attention;   /* read by attention's core alone (queries, keys, values) */
    bool cheap;       /* made again by the runtime's selective recompute: norms and activations */
    bool entry;       /* the stream at the layer's entry: what full recompute keeps */
    bool expert;
} ls_shape_saved;

enum { LS_SHAPE_LINEARS_MAX = 12, LS_SHAPE_SAVED_MAX = 24 };

/* Mixture of experts; experts 0: dense. */
typedef struct ls_shape_moe {
    int64_t experts;        /* E routed ones per layer */
    int64_t active;         /* k */
    int64_t shared;         /* further experts that every token visits */
    int64_t ffn;            /* of one expert */
    int64_t dense_layers;   /* the first ones have no experts, but an MLP of config.ffn */
    int64_t expert_vectors; /* biases of one expert */
} ls_shape_moe;

/* Latent attention (DeepSeek): queries, keys and values go through narrow matrices; kv_rank 0:
 * none. */
typedef struct ls_shape_latent {
    int64_t query_rank; /* 0: queries are not compressed */
    int64_t kv_rank;
    int64_t nope_dim, rope_dim, value_dim; /* of a head: queries and keys are nope + rope wide */
} ls_shape_latent;

typedef struct ls_shape {
    const char *name;       /* preset, path, or "layers=..." with every default filled in */
    ls_model_config config; /* with the experts if the runtime can train them */
    ls_shape_moe moe;
    ls_shape_latent latent;
    double dropout; /* > 0: masks of one byte are kept */

    /* Parameters, exact. total = embedding + head + final_norm + sum over layers. */
    int64_t parameters, active_parameters;
    int64_t embedding, head, final_norm; /* embedding: positions included; head 0 when tied */
    /* of one layer; experts: all E, in addition to layer_matrices */
    int64_t layer_matrices, layer_vectors, layer_experts;
    int64_t dense_layer_matrices; /* of a layer without experts, when moe.dense_layers > 0 */

    /* of one layer (with experts, when there are any) */
    ls_shape_linear linears[LS_SHAPE_LINEARS_MAX];
    uint32_t linear_count;
    ls_shape_saved saved[LS_SHAPE_SAVED_MAX]; /* of the same layer */
    uint32_t saved_count;

    /* attention's core: 4 s^2 * this FLOPs per layer; heads * d unless latent */
    int64_t attention_width;
    int64_t kv_width; /* elements of keys and values of one token: 2 g d unless latent */
} ls_shape;

/*
 * From what a person writes: a preset (ls_shape_presets), the path of a Hugging Face config.json or
 * of a folder with one, a run file (*.yaml), or
 * "layers=96,hidden=12288,heads=96,kv_heads=96,ffn=49152,vocab=51200,mlp=gelu
 * [,head_dim=..][,seq=2048][,tied=1][,dropout=0.1]
 * [,experts=8,active=2,expert_ffn=..,shared=..,dense_layers=..]".
 * Only layers, hidden and heads must be there; kv_heads = heads, mlp = swiglu unless ffn is 4
 * hidden and kv_heads = heads, ffn = 4 hidden (gelu) or 8/3 hidden rounded up to a multiple of 64,
 * vocab = 50257 (gelu) or 32000, seq = 2048, tied with gelu, dropout = 0.1 with gelu and kv_heads =
 * heads, as GPTs were trained, else 0.
 *
 * config.json: the families of model/huggingface.h, and others that can be planned but not yet
 * trained: qwen2_moe, gpt_oss, deepseek_v2 and _v3, kimi_k2, glm4_moe, phi3,
 * gemma, granite, smollm3, gpt_neox, starcoder2, and of models with several parts the text_config.
 * A type that is not known is read as a Llama of its sizes, and the shape's name then says so. How
 * positions are stretched and weights quantised does not matter to a plan. A run file whose
 * vocabulary comes with a tokenizer file must say model.vocab. Errors: LS_ERR_NOT_FOUND with the
 * nearest presets, LS_ERR_INVALID with field, value, range.
 */
LS_MUST_CHECK ls_status ls_shape_parse(ls_arena *arena, const char *text, ls_shape *shape_out);

/* From a checked configuration. Errors: LS_ERR_INVALID of
 * ls_model_config_check. */
LS_MUST_CHECK ls_status ls_shape_from_config(ls_arena *arena, const char *name, const ls_model_config *config,
                                             ls_shape *shape_out);

/* The presets' names, NULL at the end. */
const char *const *ls_shape_presets(void);

/* Which pairs attention counts. Papers count all s^2 (chi = 1); a causal kernel computes half of
 * them. Where a layer sees only a window, neither convention counts pairs outside it: nothing
 * computes them, and a utilisation that counted them could exceed 100 %. */
typedef enum ls_flop_convention { LS_FLOPS_FULL_ATTENTION, LS_FLOPS_CAUSAL, LS_FLOPS_6N } ls_flop_convention;
const char *ls_flop_convention_name(ls_flop_convention convention);

/* Pairs of query and key that causal attention computes for one sequence, all layers together: s (s
 * + 1) / 2 each, fewer where a layer has a window. */
double ls_shape_causal_pairs(const ls_shape *shape, int64_t length);

/* Forward FLOPs of one sequence of `length` tokens: 2 s W L + 4 s^2 h L chi + 2 s h V (W: matrices
 * a token visits). Training is 3 of it: model FLOPs, as in MFU; what recompute adds counts in HFU
 * only. 6N: 2 * active parameters * s. */
double ls_shape_forward_flops(const ls_shape *shape, int64_t length, ls_flop_convention convention);

#endif
