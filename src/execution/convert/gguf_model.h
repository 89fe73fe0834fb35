// SPDX-License-Identifier: Apache-2.0
/*
 * A model in the terms of llama.cpp: which architecture it is, how its tensors are called, ordered
 * and stored, and the keys that describe it.
 *
 *   family          architecture   differences of the tensors
 *   gpt2            gpt2           matrices transposed, to (out, in)
 *   llama, mistral  llama          rows of q and k reordered within each head: llama.cpp rotates
 *                                  neighbours (2j, 2j + 1), Hugging Face rotates (j, j + half)
 *   qwen2           qwen2          none
 *   qwen3           qwen3          none
 *
 * What llama.cpp has no key for is refused, or, where the model computes the same up to some
 * position, the context ends there and a note says so.
 *
 * Source: convert_hf_to_gguf.py and llama-quant.cpp of llama.cpp (names, order, mixtures).
 *
 * Pure.
 */
#ifndef LS_EXECUTION_CONVERT_GGUF_MODEL_H
#define LS_EXECUTION_CONVERT_GGUF_MODEL_H

#include "model/layout.h"
#include "storage/gguf/gguf.h"

/* What `--quant` chooses. The last two mix: Q6_K where llama.cpp has it (values and the second
 * matrix of the MLP in some layers, the output), otherwise Q5_K or Q4_K. */
typedef enum ls_gguf_quant {
    LS_GGUF_F32,
    LS_GGUF_F16,
    LS_GGUF_BF16,
    LS_GGUF_Q8_0,
    LS_GGUF_Q6_K,
    LS_GGUF_Q5_K_M,
    LS_GGUF_Q4_K_M,
} ls_gguf_quant;

/* Where row r of a tensor in the file comes from. */
typedef enum ls_gguf_order {
    LS_GGUF_ROWS,    /* row r of the parameter */
    LS_GGUF_COLUMNS, /* column r of the parameter */
    LS_GGUF_HEADS,   /* rows reordered within heads of head_dim rows */
} ls_gguf_order;

typedef struct ls_gguf_tensor {
    const char *name;
    uint32_t parameter; /* index in the layout; UINT32_MAX: `values` */
    const float *values;
    ls_block_type type, wanted; /* wanted: differs if rows are no multiple of its block */
    ls_gguf_order order;
    uint32_t rank;
    int64_t rows, cols; /* in the file; a vector is one row */
} ls_gguf_tensor;

/* Texts for the user, in the arena of the export. */
typedef struct ls_gguf_notes {
    ls_arena *arena;
    const char *texts[16];
    size_t count;
} ls_gguf_notes;
void ls_gguf_note(ls_gguf_notes *notes, const char *format, ...) LS_PRINTF(2, 3);

/* "gpt2", "llama", "qwen2", "qwen3" */
const char *ls_gguf_architecture(ls_family family);

/* The positions for which llama.cpp computes what we do, the file's context_length. A note says why
 * they are fewer than the model's. */
int64_t ls_gguf_context(const ls_model_config *config, ls_gguf_notes *notes);

/* Adds the keys of the model. Errors: LS_ERR_UNSUPPORTED naming the property that llama.cpp does
 * not know for this architecture. */
LS_MUST_CHECK ls_status ls_gguf_model_keys(ls_gguf *gguf, const ls_model_config *config, ls_gguf_quant quant,
                                           ls_gguf_notes *notes);

/* The tensors in the order of the file; a note says which got another type than `quant` means.
 * tensors_out: in `arena`. */
void ls_gguf_model_tensors(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                           ls_gguf_quant quant, ls_gguf_tensor **tensors_out, size_t *count_out);

#endif
