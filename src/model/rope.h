// SPDX-License-Identifier: Apache-2.0
/*
 * Rotary positions: the frequencies of a model and the tables that kernels read.
 *
 *   f_i = theta^(-2i / head_dim), i < head_dim / 2, then by rope_scaling:
 *     none     f_i
 *     linear   f_i / factor
 *     llama3   wavelength = 2 pi / f_i
 *              f_i                          wavelength < original_context / high_freq_factor
 *              f_i / factor                 wavelength > original_context / low_freq_factor
 *              (1 - s) f_i / factor + s f_i between, s = (original_context / wavelength - low) / (high - low)
 *
 * Tables hold cos and sin of position * f_i. Rounding follows transformers, where models get their weights
 * from: theta^(2i / head_dim), its reciprocal, the scaling and the product with the position are each rounded
 * to float32. One unit in the last place of f_i turns position 100,000 by 0.006 radians, so this keeps far
 * positions at the angles the model was trained with.
 *
 * Powers, cosines and sines are our own, made of IEEE operations and exact functions (frexp, ldexp, floor),
 * so the bits do not depend on the C library: these tables are part of a run's bits (DESIGN I1).
 *
 * Sources: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021; the llama3 form
 * is that of Meta's Llama 3.1 reference code and of transformers' modeling_rope_utils.
 *
 * Pure and thread-safe.
 */
#ifndef LS_MODEL_ROPE_H
#define LS_MODEL_ROPE_H

#include "model/config.h"

/* frequencies_out: head_dim / 2 numbers, radians per position. config: checked,
 * rotary. */
void ls_rope_frequencies(const ls_model_config *config, float *frequencies_out);

/*
 * cosine_out, sine_out: (positions, head_dim / 2) float32 for positions 0 .. positions - 1, at most
 * 2^24 of them.
 */
void ls_rope_tables(const ls_model_config *config, int64_t positions, float *cosine_out, float *sine_out);

#endif
