// SPDX-License-Identifier: Apache-2.0
/*
 * Training state: the flat buffers of a model and its optimizer, in the memory of a device.
 *
 * parameters, m and v have the layout of model/layout.h; together with the step number they are the
 * complete state of a run (invariant I1). Frozen parameters have no moments and no gradients: only
 * the parameters continue after layout->float_count. Gradient buffers belong to the fixed tree of
 * leaves: one holds the leaf being computed, the others hold partial sums.
 *
 * On the CPU all buffers are float32 and the host reads them. On a GPU the host can't: it sees the
 * state through its mirror (ls_state_to_host, ls_state_from_host), float32 in host memory. There,
 * with bfloat16 weights, a parameter is kept as weight and rest (compute/kernels/adamw.h), which
 * the mirror puts together; so checkpoints and hashes are the same for every device.
 *
 * The state owns its memory, or borrows it from a segment that ranks share (train/segment.h). Not
 * thread-safe.
 */
#ifndef LS_EXECUTION_EXECUTOR_STATE_H
#define LS_EXECUTION_EXECUTOR_STATE_H

#include "base/compression.h"
#include "compute/kernels/adamw.h"
#include "compute/queue.h"
#include "model/layout.h"
#include "storage/checkpoint/checkpoint.h"

enum { LS_GRADIENT_BUFFERS_MAX = 40, LS_RESIDUALS_MAX = 3 * LS_COMPRESSION_GROUPS_MAX + 1 };

typedef struct ls_state {
    ls_queue *queue;         /* borrowed */
    const ls_layout *layout; /* borrowed */
    /* NULL with bfloat16 weights, which are in `split` */
    float *parameters;
    ls_master split;
    /* the frozen parameters: at parameters + float_count, or, for a snapshot, in the original
     * state */
    float *frozen;
    float *m, *v; /* AdamW's moments; NULL without an optimizer */
    /* Of a run with local steps (train/local.h): parameters, m and v of each worker, one flat
     * buffer after the other, flat_stride floats from one to the next. `parameters` above are then
     * the shared ones, m is the outer momentum, and v, if has_gradient, an outer gradient that is
     * not yet applied. NULL: no workers */
    float *workers;
    uint32_t worker_count;
    bool has_gradient;
    int64_t flat_stride;
    float *gradients[LS_GRADIENT_BUFFERS_MAX];
    uint32_t gradient_count;
    /* With compression (parallel/compressed.h): what is left over of each group and of the whole,
     * and the moments of each group if they are normalised (ls_compression_flats). Those of the
     * state after n steps are in residuals[n % 2], and step n writes the others: so it can be given
     * up, or continued by another process, at any point. */
    float *residuals[2][LS_RESIDUALS_MAX];
    uint32_t groups, residual_count; /* 0: no compression */
    uint64_t residual_step;          /* those after so many steps are the ones that count now */
    bool borrowed;                   /* the buffers belong to another object */
    struct ls_state *mirror;         /* what the host sees; NULL: this state itself */
} ls_state;

/*
 * Allocates the buffers, all zero. weights: LS_F32, or LS_BF16 on a GPU. gradient_count: 0 for a
 * model that is only evaluated (then m and v are NULL too), else tree_buffers of ls_plan_memory. On
 * a GPU the mirror takes 4 bytes of host memory per parameter, 12 with an optimizer. Errors:
 * LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_state_init(ls_state *state, ls_queue *queue, ls_dtype weights,
                                      const ls_layout *layout, uint32_t gradient_count);
/* Adds the residuals of that compression, all zero; once, on the CPU. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_state_add_residuals(ls_state *state, ls_compression_kind kind, uint32_t groups);
/* After residuals were loaded, by ls_state_tensors: makes them those after `step` steps. */
void ls_state_turn_residuals(ls_state *state, uint64_t step);
void ls_state_release(ls_state *state);

/* Adds the buffers of workers, all zero; on the CPU, without frozen parameters. Errors:
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_state_add_workers(ls_state *state, uint32_t workers);
/* Flat buffer `flat` of a worker: 0 parameters, 1 m, 2 v. */
float *ls_state_worker(const ls_state *state, uint32_t worker, uint32_t flat);

/* What kernels compute with: flat, float32 or bfloat16, in device memory. */
const void *ls_state_weights(const ls_state *state);
/* Parameters as the optimizer updates them. */
ls_master ls_state_master(const ls_state *state);

/* All of them as one row. */
ls_tensor ls_state_weights_view(const ls_state *state);

/* Device memory to what the host sees, and back. They do nothing on the CPU, and wait for the
 * queue. *host_out is the mirror, or the state itself; it stays valid and unchanged until the next
 * of these calls. Errors: those of the device. */
LS_MUST_CHECK ls_status ls_state_to_host(const ls_state *state, const ls_state **host_out);
LS_MUST_CHECK ls_status ls_state_from_host(ls_state *state);
/* The state that the host writes to before ls_state_from_host. */
ls_state *ls_state_host(ls_state *state);

/* Allocates parameters and moments with the layout of `of`, without gradients, for ls_state_copy.
 * Frozen parameters never change, so the snapshot shares those of `of`. On a GPU the snapshot is in
 * host memory. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_state_init_snapshot(ls_state *snapshot, const ls_state *of);
/* Copies parameters and moments, with all threads of the queue. */
LS_MUST_CHECK ls_status ls_state_copy(ls_state *to, const ls_state *from);

/* Sets new weights from `seed` (model/layout.h: ls_parameter_init). threads: a queue of the CPU.
 * Errors: those of the device. */
LS_MUST_CHECK ls_status ls_state_init_weights(ls_state *state, ls_queue *threads,
                                              const ls_model_config *config, uint64_t seed);

/* Parameters that storage saves, loads and hashes: all of the layout, or with an adapter those that
 * are trained, because the base stays where it came from. */
uint32_t ls_state_tensor_count(const ls_layout *layout);

/*
 * The state under its Hugging Face names, as storage saves, loads and hashes it: one entry for each
 * of the first ls_state_tensor_count() parameters of the layout, pointing into the buffers of a
 * state that the host sees; the table lives in `arena`. Further state follows
 * (storage/checkpoint/checkpoint.h). With workers, these entries have no moments, and it is, for
 * each parameter, "outer_momentum.<name>", with a delay "outer_gradient.<name>", and
 * "worker_<w>.<name>", "worker_<w>.m.<name>", "worker_<w>.v.<name>", the worker with five digits.
 * With compression it is "residual_<group>", two digits, and "residual_whole", those after
 * residual_step steps, each a whole flat buffer.
 * *count_out: all entries; NULL allowed without further state.
 */
ls_checkpoint_tensor *ls_state_tensors(ls_arena *arena, const ls_state *host, size_t *count_out);

/* The 64 digits of `state-hash` for this state after `step` updates. base: of an adapter, the
 * digest of its base; else NULL. */
LS_MUST_CHECK ls_status ls_state_hash_now(const ls_state *state, uint64_t step, const char *base,
                                          char hex_out[LS_SHA256_HEX_BYTES]);

#endif
