// SPDX-License-Identifier: Apache-2.0
/*
 * Packed weights: a frozen matrix in fewer bits, which linear layers multiply without a float copy.
 *
 *   kind   a weight w becomes                                    bytes per weight   it is read as
 *   bf16   the nearest bfloat16                                  2                  that value
 *   int8   code = round(127 w / scale), scale = max |w| of       1 + 4 / cols       code * scale * (1/127)
 *          its row
 *   nf4    the nearest of 16 levels in [-1, 1], times the        0.5158             level * scale
 *          scale of its block of 64 weights
 *
 * Where the table says float32 product, each multiplication rounds once, from left to right. The
 * formats are those of bitsandbytes: LLM.int8 (Dettmers et al., "LLM.int8()", 2022) and NF4 with
 * double quantisation ("QLoRA", 2023). Blocks run over the flattened matrix and the last may be
 * short. The scale of a block is itself packed: max |w| minus the mean of all of these, divided by
 * the largest magnitude among 256 such differences, as the nearest of 256 levels of a table. So
 * scale = level8[code8] * nested + mean, in float32. bitsandbytes takes the mean in float32, this
 * code in float64 and rounds once; nothing else differs (bench/packed_peer.py).
 *
 * A packed matrix is always (out, in), in the order of torch's nn.Linear, whatever the layout of
 * its file. One tensor of a file is packed alone, so its codes do not depend on what it is fused
 * with. Packing and reading are plain IEEE arithmetic: the bits are the same on every processor.
 *
 * The memory is one block, which can lie in a segment that processes share. Codes of 16 rows lie
 * side by side, so that a vector holds one column of 16 outputs:
 *
 *   bf16, int8   codes[row / 16][column][row % 16]
 *   nf4          codes[row / 16][column / 2][row % 16], an even column in the low half of a byte
 *
 * Rows beyond the last, and the odd half of the last column, are zeros.
 */
#ifndef LS_COMPUTE_KERNELS_PACKED_H
#define LS_COMPUTE_KERNELS_PACKED_H

#include "base/bitsandbytes.h"
#include "base/status.h"
#include "compute/tensor.h"

#include <stdint.h>

/* The layout of a weight in its Hugging Face file: (out, in), like torch's nn.Linear, or (in, out),
 * like GPT-2's Conv1D. */
typedef enum ls_weight_layout { LS_WEIGHT_OUT_IN, LS_WEIGHT_IN_OUT } ls_weight_layout;

typedef enum ls_packed_kind {
    LS_PACKED_NONE,
    LS_PACKED_BF16,
    LS_PACKED_INT8,
    LS_PACKED_NF4,
    LS_PACKED_KINDS
} ls_packed_kind;

/* Rows whose codes lie side by side. */
enum { LS_PACKED_GROUP = 16 };

/* A view of a packed matrix; made by ls_packed_of. Never owns its memory. */
typedef struct ls_packed {
    ls_packed_kind kind;
    /* (out, in). */
    int64_t rows, cols;
    uint8_t *codes;
    /* int8: one per row. nf4: the nested scales, one per LS_NF4_NESTED_BLOCK blocks. */
    float *scales;
    /* nf4: the codes of the scales of blocks. */
    uint8_t *scale_codes;
    /* nf4: mean[0] is added to every scale; mean[1] is the level of scale code 0, -0.99296874 or,
     * in tensors that older versions of bitsandbytes packed on a CPU, -1. */
    float *mean;
} ls_packed;

/* Bytes of a packed (rows, cols) matrix; a multiple of 64. kind is not LS_PACKED_NONE. */
int64_t ls_packed_bytes(ls_packed_kind kind, int64_t rows, int64_t cols);

/* The view of a packed (rows, cols) matrix in `memory`: ls_packed_bytes(), 64-byte aligned. Does
 * not touch the memory. */
ls_packed ls_packed_of(ls_packed_kind kind, int64_t rows, int64_t cols, void *memory);

/*
 * Packs a float32 matrix of the host, of shape (rows, cols) of `to` or, with LS_WEIGHT_IN_OUT, its
 * transpose. Writes every byte of the memory of `to`. Errors: LS_ERR_DATA for a weight that is
 * infinite or no number, or that bf16 cannot hold; the text names its place in the file's order.
 */
LS_MUST_CHECK ls_status ls_packed_pack(const ls_packed *to, const ls_tensor *weight, ls_weight_layout layout);

/* Takes the codes and scales of a file as they are, so that every value keeps its bits. `to` is
 * int8 or nf4 like `from`, of its shape, and an nf4 matrix has scale codes. Writes every byte. */
void ls_packed_take(const ls_packed *to, const ls_bnb_matrix *from);

/* Writes the float32 values that products use to a matrix of the host, in that layout. */
void ls_packed_unpack(const ls_packed *from, ls_weight_layout layout, const ls_tensor *weight_out);

/* The value of one weight. */
float ls_packed_value(const ls_packed *packed, int64_t row, int64_t col);

/* nf4: the scale of a block of weights, which begins at flat index row * cols + col = 64 block. */
static inline float ls_packed_scale(const ls_packed *packed, int64_t block)
{
    const uint8_t code = packed->scale_codes[block];
    const float level = code == 0 ? packed->mean[1] : ls_nf4_scale_levels[code];
    return level * packed->scales[block / LS_NF4_NESTED_BLOCK] + packed->mean[0];
}

#endif
