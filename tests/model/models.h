// SPDX-License-Identifier: Apache-2.0
/* Small configurations of every family, for the tests of this layer. */
#ifndef LS_TESTS_MODEL_MODELS_H
#define LS_TESTS_MODEL_MODELS_H

#include "model/config.h"

/* 3 layers, 4 heads of 8 (2 key heads unless gpt2), width 32, ffn 96, context 64, vocab 70; 4 experts,
 * 2 for each token. */
static inline ls_model_config small_config(ls_family family)
{
    ls_model_config config;
    ls_model_config_defaults(family, &config);
    config.layers = 3;
    config.heads = 4;
    config.kv_heads = family == LS_FAMILY_GPT2 ? 4 : 2;
    config.head_dim = 8;
    config.width = 32;
    config.ffn = 96;
    config.context = 64;
    config.vocab = 70;
    if (ls_family_has_experts(family)) {
        config.experts = 4;
        config.experts_per_token = 2;
        config.expert_ffn = config.ffn;
    }
    return config;
}

#endif
