// SPDX-License-Identifier: Apache-2.0
/*
 * Low-rank adapters (LoRA) on the linear layers of a model whose own parameters are frozen.
 *
 *   y = x W^T + scale * dropout(x) A^T B^T      A: (rank, in), B: (out, rank)
 *
 * scale is alpha / rank, or alpha / sqrt(rank) with rsLoRA. A begins uniform in +-1 / sqrt(in) and
 * B at zero, so that a fresh adapter changes nothing. Names and shapes are those of the library
 * PEFT: "base_model.model." + the name of the linear layer + ".lora_A.weight" or ".lora_B.weight".
 * Sources: Hu et al., "LoRA: low-rank adaptation of large language models", 2021; Kalajdzievski, "A
 * rank stabilization scaling factor for fine-tuning with LoRA", 2023.
 *
 * The linear layers are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj of each
 * layer, for gpt2 c_attn, c_proj (of attention and MLP) and c_fc; embeddings and head have none.
 *
 * Pure; any thread.
 */
#ifndef LS_MODEL_ADAPTER_H
#define LS_MODEL_ADAPTER_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "model/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_ADAPTER_PREFIX "base_model.model."

enum { LS_ADAPTER_RANK_MAX = 1024 };

/* Number format of the frozen weights of linear layers, the base (compute/kernels/packed.h). The
 * rest of the base, embeddings, head, norms and biases, is float32. */
typedef enum ls_base_kind { LS_BASE_FP32, LS_BASE_BF16, LS_BASE_INT8, LS_BASE_NF4 } ls_base_kind;

typedef struct ls_base {
    ls_base_kind kind;
    /* Bytes of a packed (out, in) matrix, a multiple of 64; not called for LS_BASE_FP32. */
    int64_t (*packed_bytes)(ls_base_kind kind, int64_t out, int64_t in);
} ls_base;

/* "fp32", "bf16", "int8", "nf4". */
extern const char *const ls_base_names[LS_BASE_NF4 + 2];

typedef struct ls_adapter {
    uint32_t rank; /* 1 to LS_ADAPTER_RANK_MAX */
    double alpha;  /* > 0 */
    bool rslora;
    double dropout; /* 0 to below 1, while training */
    /* Which linear layers: each a pattern (*, ?, [...]) for the name of a layer, such as
     * "model.layers.3.self_attn.q_proj", for the end of it after a dot ("q_proj"), or for a part of
     * the model that contains it ("layers.3"). "all-linear" means all; so does no target at all. */
    const char *const *targets;
    size_t target_count;
} ls_adapter;

/* The factor of the product. */
float ls_adapter_scale(const ls_adapter *adapter);

/* Whether one of the targets matches the linear layer whose tensor is `weight`
 * ("model.layers.0.self_attn.q_proj.weight"). */
bool ls_adapter_wants(const ls_adapter *adapter, const char *weight);

/* The name of A (part 'A') or B (part 'B') of the linear layer with tensor `weight`; in `arena`. */
const char *ls_adapter_name(ls_arena *arena, const char *weight, char part);

/*
 * The object of PEFT's adapter_config.json; the caller drops it. base: path of the base model.
 * targets: names of the layers that have the adapter, in place of adapter->targets.
 */
json_t *ls_adapter_config_json(const ls_adapter *adapter, const ls_model_config *config, const char *base,
                               const char *const *targets, size_t target_count);

/*
 * From the text of an adapter_config.json: everything but the targets, which are taken from the
 * tensors of the adapter. base_out: base_model_name_or_path, "" if it has none. Strings are in
 * `arena`; messages show `name` for the file.
 *
 * Errors: LS_ERR_DATA for wrong values; LS_ERR_UNSUPPORTED, naming key and value, for adapters
 * other than plain LoRA (DoRA, rank_pattern, trained biases, modules_to_save, ...).
 */
LS_MUST_CHECK ls_status ls_adapter_config_parse(ls_arena *arena, const char *text, size_t bytes,
                                                const char *name, ls_adapter *adapter_out,
                                                const char **base_out);

#endif
