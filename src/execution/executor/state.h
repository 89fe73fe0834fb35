// SPDX-License-Identifier: Apache-2.0
/*
 * Training state: the flat buffers of a model and its optimizer.
 *
 * parameters, m and v have the layout of model/layout.h; together with the step number they are the
 * complete state of a run (invariant I1). Frozen parameters have no moments and no gradients: only
 * `parameters` continues after layout->float_count. Gradient buffers belong to the fixed tree of
 * leaves: one holds the leaf being computed, the others hold partial sums.
 *
 * The state owns its memory, or borrows it from a segment that ranks share (train/segment.h). Not
 * thread-safe.
 */
#ifndef LS_EXECUTION_EXECUTOR_STATE_H
#define LS_EXECUTION_EXECUTOR_STATE_H

#include "compute/queue.h"
#include "model/layout.h"
#include "storage/checkpoint/checkpoint.h"

enum { LS_GRADIENT_BUFFERS_MAX = 40 };

typedef struct ls_state {
    ls_queue *queue;         /* borrowed */
    const ls_layout *layout; /* borrowed */
    float *parameters;
    /* the frozen parameters: at parameters + float_count, or, for a snapshot, in the original
     * state */
    float *frozen;
    float *m, *v; /* AdamW's moments; NULL without an optimizer */
    float *gradients[LS_GRADIENT_BUFFERS_MAX];
    uint32_t gradient_count;
    bool borrowed; /* the buffers belong to another object */
} ls_state;

/*
 * Allocates the buffers, all zero. gradient_count: 0 for a model that is only evaluated (then m and
 * v are NULL too), else ls_tree_buffers(leaves). Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_state_init(ls_state *state, ls_queue *queue, const ls_layout *layout,
                                      uint32_t gradient_count);
void ls_state_release(ls_state *state);

/* Allocates parameters and moments with the layout of `of`, without gradients, for ls_state_copy.
 * Frozen parameters never change, so the snapshot shares those of `of`. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_state_init_snapshot(ls_state *snapshot, const ls_state *of);
/* Copies parameters and moments, with all threads of the queue. */
LS_MUST_CHECK ls_status ls_state_copy(ls_state *to, const ls_state *from);

/* Sets new weights from `seed` (model/layout.h: ls_parameter_init). */
void ls_state_init_weights(ls_state *state, const ls_model_config *config, uint64_t seed);

/* The state under its Hugging Face names, as storage saves, loads and hashes it: one entry per
 * parameter of the layout, pointing into the buffers; the table lives in `arena`. */
ls_checkpoint_tensor *ls_state_tensors(ls_arena *arena, const ls_state *state);

/* The 64 digits of `state-hash` for this state after `step` updates. */
LS_MUST_CHECK ls_status ls_state_hash_now(const ls_state *state, uint64_t step,
                                          char hex_out[LS_SHA256_HEX_BYTES]);

#endif
