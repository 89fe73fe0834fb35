// SPDX-License-Identifier: Apache-2.0
/*
 * Model configuration: the numbers that make a decoder-only transformer of one of the known families.
 *
 * A configuration is plain data. It comes from a run file (planning/run_file.h fills it), from a Hugging Face
 * config.json or from a checkpoint (model/huggingface.h), and is complete: nothing is inferred later.
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
    LS_FAMILY_COUNT
} ls_family;

typedef enum ls_rope_scaling_kind { LS_ROPE_NONE, LS_ROPE_LINEAR, LS_ROPE_LLAMA3 } ls_rope_scaling_kind;

typedef struct ls_rope_scaling {
    ls_rope_scaling_kind kind;
    double factor;            /* > 0 */
    double low_freq_factor;   /* llama3 only, as in config.json */
    double high_freq_factor;  /* llama3 only */
    int64_t original_context; /* llama3 only: original_max_position_embeddings */
} ls_rope_scaling;

typedef struct ls_model_config {
    ls_family family;
    int64_t layers;   /* 1..1024 */
    int64_t heads;    /* query heads, 1..1024 */
    int64_t kv_heads; /* divides heads */
    int64_t head_dim; /* even; usually width / heads */
    int64_t width;    /* residual stream */
    int64_t ffn;      /* MLP inner width */
    int64_t context;  /* longest sequence */
    int64_t vocab;    /* rows of the embedding table */

    bool rms_norm;     /* RMS norm without bias; else layer norm with bias */
    double norm_eps;   /* > 0 */
    bool swiglu;       /* gate|up and silu; else one matrix and tanh-GELU */
    bool rotary;       /* rotary positions; else a learned position table */
    double rope_theta; /* base of the rotary frequencies */
    ls_rope_scaling rope_scaling;
    bool qkv_bias, output_bias, mlp_bias;
    bool qk_norm;               /* RMS norm of each query and key head (qwen3) */
    bool tied;                  /* the head's weight is the embedding table */
    int64_t window;             /* sliding window in positions, 0: none */
    int64_t window_first_layer; /* layers below it attend to everything (qwen2's max_window_layers); 0: all
                                   use the window */
    double init_std;            /* standard deviation of fresh weights */
    int64_t bos_id, eos_id;     /* -1: none */
} ls_model_config;

/* "gpt2", "llama", "mistral", "qwen2", "qwen3". */
const char *ls_family_name(ls_family family);
/* Errors: LS_ERR_INVALID naming the known families. */
LS_MUST_CHECK ls_status ls_family_parse(const char *name, ls_family *family_out);

/* Family defaults for everything that follows from the family; sizes are left 0. */
void ls_model_config_defaults(ls_family family, ls_model_config *config_out);

/* Checks ranges and combinations; the error names the field, the value and what is allowed. Errors:
 * LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_model_config_check(const ls_model_config *config);

/* Window of layer `layer`: 0 when it attends to every position before it. */
int64_t ls_model_config_window(const ls_model_config *config, int64_t layer);

/* True when every field that has a meaning is equal (rotary numbers count only with rotary positions). */
bool ls_model_config_equal(const ls_model_config *a, const ls_model_config *b);

#endif
