// SPDX-License-Identifier: Apache-2.0
/*
 * Samples: token ids with a mark on those that are trained. The sign bit of an id is the mark, so
 * that the mask needs no array of its own.
 */
#ifndef LS_DATA_CONVERSATION_SAMPLES_H
#define LS_DATA_CONVERSATION_SAMPLES_H

#include "base/status.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
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

typedef struct ls_sample_end {
    /* Where the sample ends: in ls_samples.ids, and in the bytes of all their texts together. */
    size_t ids, text;
    /* Its record, for a caller who sets them: the rank (data/held_out.h) and the line. */
    uint64_t rank, line;
} ls_sample_end;

/* Samples one after another. All zero: empty. */
typedef struct ls_samples {
    /* With marks. */
    ls_token_buffer ids;
    ls_sample_end *ends;
    size_t count, capacity;
    /* A generation prompt and a turn differ in white space. */
    bool is_loose;
} ls_samples;

void ls_samples_clear(ls_samples *samples);
void ls_samples_release(ls_samples *samples);

/* Ends a sample of `bytes` of text, whose ids were appended. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_samples_end(ls_samples *samples, size_t bytes);

#endif
