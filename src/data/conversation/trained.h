// SPDX-License-Identifier: Apache-2.0
/*
 * Ids with a mark: the sign bit of a token id says that the token is trained, so that the mask
 * needs no array of its own.
 */
#ifndef LS_DATA_CONVERSATION_TRAINED_H
#define LS_DATA_CONVERSATION_TRAINED_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_TOKEN_TRAINED = INT32_MIN };

static inline int32_t ls_token_id(int32_t marked)
{
    return marked & INT32_MAX;
}

static inline bool ls_token_is_trained(int32_t marked)
{
    return marked < 0;
}

#endif
