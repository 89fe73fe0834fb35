// SPDX-License-Identifier: Apache-2.0
/*
 * Model configuration: the numbers that define a decoder-only transformer of one of the known
 * families.
 *
 * A configuration is plain data. It comes from a run file (config/run_file.h fills it), from a
 * Hugging Face config.json or from a checkpoint (model/huggingface.h), and is complete: nothing is
 * inferred later.
 */
#ifndef LS_MODEL_CONFIG_H
#define LS_MODEL_CONFIG_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_family {
    LS_FAMILY_GPT2,
    LS_FAMILY_LLAMA,
    LS_FAMILY_MISTRAL,
    LS_FAMILY_QWEN2,
    LS_FAMILY_QWEN3,
    LS_FAMILY_MIXTRAL,
    LS_FAMILY_QWEN3_MOE,
    LS_FAMILY_COUNT
} ls_family;

/* model/rope.h has the formulas. */
typedef enum ls_rope_scaling_kind {
    LS_ROPE_NONE,
    LS_ROPE_LINEAR,
    LS_ROPE_LLAMA3,
    LS_ROPE_DYNAMIC,
    LS_ROPE_YARN,
    LS_ROPE_COUNT
} ls_rope_scaling_kind;

typedef struct ls_rope_scaling {
    ls_rope_scaling_kind kind;
    double factor;            /* > 0 */
    double low_freq_factor;   /* llama3 only, as in config.json */
    double high_freq_factor;  /* llama3 only */
    int64_t original_context; /* all but linear: the context before it was lengthened */
    /* yarn only: rotations within the original context above which a frequency is kept, and below
     * which it is divided by factor */
    double beta_fast, beta_slow;
    double attention_factor; /* yarn only: cosines and sines are multiplied by it */
    bool fractional_bounds;  /* yarn only: `truncate` is false */
} ls_rope_scaling;

enum { LS_MORE_EOS_MAX = 15 };

typedef struct ls_model_config {
    ls_family family;
    int64_t layers;   /* 1..1024 */
    int64_t heads;    /* query heads, 1..1024 */
    int64_t kv_heads; /* divides heads */
    int64_t head_dim; /* even; usually width / heads */
    int64_t width;    /* residual stream */
    int64_t ffn;      /* MLP inner width; with experts only noted in files */
    int64_t context;  /* longest sequence */
    int64_t vocab;    /* rows of the embedding table */

    /* In place of one MLP, each layer of mixtral and qwen3-moe has `experts` of them, of which a
     * token visits those with the highest scores. 0 in the other families. */
    int64_t experts;           /* 1..4096 */
    int64_t experts_per_token; /* 1..experts */
    int64_t expert_ffn;        /* inner width of one expert; mixtral: ffn */
    bool normalise_experts;    /* the weights of a token's experts are divided by their sum */

    bool rms_norm;     /* RMS norm without bias; else layer norm with bias */
    double norm_eps;   /* > 0 */
    bool swiglu;       /* gate|up and silu; else one matrix and tanh-GELU */
    bool rotary;       /* rotary positions; else a learned position table */
    double rope_theta; /* base of the rotary frequencies */
    ls_rope_scaling rope_scaling;
    bool qkv_bias, output_bias, mlp_bias;
    bool qk_norm;   /* RMS norm of each query and key head (qwen3, qwen3-moe) */
    bool tied;      /* the head's weight is the embedding table */
    int64_t window; /* sliding window in positions, 0: none */
    /* layers below it attend to everything (qwen2's max_window_layers); 0: all use the window */
    int64_t window_first_layer;
    double init_std;                /* standard deviation of fresh weights */
    bool quantised;                 /* the files hold packed weights: model/huggingface_packed.h */
    int64_t bos_id, eos_id, pad_id; /* -1: none */
    /* Further ids that end a text; none is eos_id, which is >= 0 if there are any. */
    int64_t more_eos[LS_MORE_EOS_MAX];
    int64_t more_eos_count;
} ls_model_config;

/* As in run files: "gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3-moe". */
const char *ls_family_name(ls_family family);

/* model_type in config.json: the same names, but "qwen3_moe". */
const char *ls_family_model_type(ls_family family);
/* Errors: LS_ERR_INVALID naming the known types. */
LS_MUST_CHECK ls_status ls_family_of_model_type(const char *type, ls_family *family_out);

/* Whether models of the family can have a sliding window. */
bool ls_family_has_window(ls_family family);

/* Whether a layer of the family has experts instead of one MLP. */
bool ls_family_has_experts(ls_family family);

/* rope_type in config.json: "default", "linear", "llama3", "dynamic", "yarn". */
const char *ls_rope_scaling_name(ls_rope_scaling_kind kind);

/* Family defaults for everything that follows from the family; sizes are left 0. */
void ls_model_config_defaults(ls_family family, ls_model_config *config_out);

/* Adds `id` to the ids that end a text, unless it is one of them. Errors: LS_ERR_UNSUPPORTED when
 * there would be more than 1 + LS_MORE_EOS_MAX. */
LS_MUST_CHECK ls_status ls_model_config_add_eos(ls_model_config *config, int64_t id);

/* Copies the ids that end a text to `ids_out` and returns how many there are. */
size_t ls_model_config_eos(const ls_model_config *config, int32_t ids_out[LS_MORE_EOS_MAX + 1]);

/* Checks ranges and combinations; the error names the field, the value and what is allowed. Errors:
 * LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_model_config_check(const ls_model_config *config);

/* Rows of the MLP for one token, 1 or experts_per_token, and its inner width. */
int64_t ls_model_config_mlp_rows(const ls_model_config *config);
int64_t ls_model_config_mlp_ffn(const ls_model_config *config);

/* Window of layer `layer`: 0 if it attends to all earlier positions. */
int64_t ls_model_config_window(const ls_model_config *config, int64_t layer);

/* True if all fields that have a meaning are equal (rotary numbers count only with rotary
 * positions). */
bool ls_model_config_equal(const ls_model_config *a, const ls_model_config *b);

#endif
