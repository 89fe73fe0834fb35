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
 *              (1 - s) f_i / factor + s f_i between, s = (original_context / wavelength - low) /
 *              (high - low)
 *     dynamic  for a table of more than original_context positions, f_i with another theta:
 *              theta (factor positions / original_context - (factor - 1))^(head_dim /
 *              (head_dim - 2))
 *     yarn     (1 - r) f_i + r f_i / factor, r = (i - low) / (high - low), cut to 0..1
 *              d(beta) = head_dim ln(original_context / (2 pi beta)) / (2 ln theta)
 *              low = floor(d(beta_fast)), at least 0
 *              high = ceil(d(beta_slow)), at most head_dim - 1
 *              (with fractional_bounds neither is rounded)
 *
 * Tables hold cos and sin of position * f_i; with yarn both are multiplied by attention_factor.
 * With dynamic scaling all positions of a table have the frequencies for its length. Rounding
 * follows transformers, where models get their weights from: theta^(2i / head_dim), its reciprocal,
 * the scaling and the product with the position are each rounded to float32. One unit in the last
 * place of f_i turns position 100,000 by 0.006 radians, so this keeps far positions at the angles
 * the model was trained with.
 *
 * Powers, cosines and sines are our own, made of IEEE operations and exact functions (frexp, ldexp,
 * floor), so the bits do not depend on the C library: these tables are part of a run's bits 
 * (invariant I1).
 *
 * Sources: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021; Peng
 * et al., "YaRN: efficient context window extension of large language models", 2023 (yarn, and
 * dynamic in its appendix); the llama3 form is that of Meta's Llama 3.1 reference code. Where these
 * leave something open, transformers' modeling_rope_utils decides.
 *
 * Pure and thread-safe.
 */
#ifndef LS_MODEL_ROPE_H
#define LS_MODEL_ROPE_H

#include "model/config.h"

/* The attention_factor of yarn, from its paper: mscale * 0.1 ln(factor) + 1; 1 for a factor up to
 * 1. mscale is 1 unless a model has its own. */
double ls_rope_attention_factor(double factor, double mscale);

/* Scaling with the numbers of a paper for what a kind needs besides these two. */
ls_rope_scaling ls_rope_scaling_of(ls_rope_scaling_kind kind, double factor, int64_t original_context);

/* The longest context that the scaling was made for: config->context, or factor * original_context
 * if that is more (yarn, dynamic). */
int64_t ls_rope_reach(const ls_model_config *config);

/* frequencies_out: head_dim / 2 numbers, radians per position, for a table of `positions`. config:
 * checked, rotary. */
void ls_rope_frequencies(const ls_model_config *config, int64_t positions, float *frequencies_out);

/*
 * cosine_out, sine_out: (positions, head_dim / 2) float32 for positions 0 .. positions - 1, at most
 * 2^24 of them.
 */
void ls_rope_tables(const ls_model_config *config, int64_t positions, float *cosine_out, float *sine_out);

#endif
