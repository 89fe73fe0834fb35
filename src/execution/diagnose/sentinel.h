// SPDX-License-Identifier: Apache-2.0
/*
 * Sentinel: the audit of leaves and the guard of the state, as a step has them.
 *
 *   begin                 the checker of a step that is due computes the audited leaf, into its gradient buffer 0, before its own leaves
 *   leaf                  its owner hashes it, before anything is added to it
 *   before_agreement      each rank compares its slices of the state with what the last update left; the two hashes of the leaf, and those
 *                         of each host's copy of the weights, go along with the agreement
 *   after_agreement       all see whether they differ; if so a judge computes the leaf too, and all fail with one text
 *   before_, after_update the guard looks away, and hashes anew when that is due
 *
 * Owner, checker and judge are parts; what each found lies in the exchange area, so that a part that is taken over goes on with it.
 *
 * No memory but hashes: all computing goes into gradient buffers that are free at that moment. One rank plays all parts by itself. Allocates
 * nothing in a step.
 */
#ifndef LS_EXECUTION_DIAGNOSE_SENTINEL_H
#define LS_EXECUTION_DIAGNOSE_SENTINEL_H

#include "execution/diagnose/flip.h"
#include "execution/parallel/data_parallel.h"
#include "execution/state.h"

typedef struct ls_sentinel_options {
    const ls_state *state;      /* borrowed */
    ls_data_parallel *parallel; /* borrowed */
    uint64_t seed, audit_every_steps, hash_every_steps;
    uint32_t leaves;
    ls_flip *flip; /* borrowed; NULL: none */
    /* Computes a leaf alone into gradient buffer 0 of part `index`. Its errors end the step. */
    ls_status (*compute)(void *context, uint32_t index, uint64_t step, uint32_t leaf, double *loss_sum_out,
                         uint64_t *tokens_out);
    void *context;
} ls_sentinel_options;

typedef struct ls_sentinel ls_sentinel;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_sentinel_create(const ls_sentinel_options *options, ls_sentinel **sentinel_out);
void ls_sentinel_destroy(ls_sentinel *sentinel); /* NULL allowed */

/* This process runs other parts than before (ls_data_parallel_assign). What was hashed of the state is forgotten. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_sentinel_assign(ls_sentinel *sentinel);

/* Step `step` (0-based) begins, or goes on. */
LS_MUST_CHECK ls_status ls_sentinel_begin(ls_sentinel *sentinel, uint64_t step);
/* Part `index` of this process begins, or goes on with its leaves. Errors: of computing the audited leaf. */
LS_MUST_CHECK ls_status ls_sentinel_begin_part(ls_sentinel *sentinel, uint32_t index);

/* Whether leaf `leaf`, of a part of this process, will be hashed: nothing may be added into its buffer before ls_sentinel_leaf. */
bool ls_sentinel_wants(const ls_sentinel *sentinel, uint32_t leaf);
/* Every leaf, as soon as it is computed and before it counts as finished. */
void ls_sentinel_leaf(ls_sentinel *sentinel, uint32_t index, uint32_t leaf, float *gradient, double loss_sum,
                      uint64_t tokens);

/* Errors: LS_ERR_MISMATCH when own slices of the state changed since the last update: give the step up with ls_sentinel_fault. */
LS_MUST_CHECK ls_status ls_sentinel_before_agreement(ls_sentinel *sentinel);
/* After a successful agreement; called by all ranks. Errors, the same on all ranks: LS_ERR_MISMATCH when the audited leaf's bits differ. Errors
 * of waiting. */
LS_MUST_CHECK ls_status ls_sentinel_after_agreement(ls_sentinel *sentinel);

void ls_sentinel_before_update(ls_sentinel *sentinel);
void ls_sentinel_after_update(ls_sentinel *sentinel);

/* Whether the guard hashed behind the last update; *sum_out: what it came to (ls_guard_sum). */
bool ls_sentinel_state_sum(const ls_sentinel *sentinel, ls_hash128 *sum_out);

/* Compares the state with what the last update left, as far as it was hashed. Errors: LS_ERR_MISMATCH. */
LS_MUST_CHECK ls_status ls_sentinel_check_state(ls_sentinel *sentinel);

/* What the last error was about. */
const ls_step_fault *ls_sentinel_fault(const ls_sentinel *sentinel);
/* The leaf that was audited in this step; LS_NO_LEAF. */
uint32_t ls_sentinel_audited(const ls_sentinel *sentinel);

#endif
