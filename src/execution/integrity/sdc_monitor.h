// SPDX-License-Identifier: Apache-2.0
/*
 * Monitor for silent data corruption (SDC): the audit of leaves, the guard of the state and the
 * comparison of replicas, as one step uses them.
 *
 *   begin              prepares the step
 *   begin_part         in a step that is due, the checker computes the audited leaf into its
 *                      gradient buffer 0, before its own leaves
 *   leaf               the owner hashes the audited leaf, before anything is added to it
 *   before_agreement   each rank compares its slices of the state with what the last update left;
 *                      the two hashes of the leaf, and those of each host's weights, travel with
 *                      the agreement
 *   after_agreement    all ranks see whether the hashes differ; if so, a judge computes the leaf
 *                      too, and all ranks fail with the same text
 *   before_update      the guard forgets its hashes, because the state will change
 *   after_update       the guard takes new hashes if the step is due
 *
 * Owner, checker and judge are parts. Their results are in the exchange area, so that a process
 * that takes over a part continues with them.
 *
 * Memory for hashes only: every computation uses gradient buffers that are free at that moment. A
 * single rank plays all roles itself. A step allocates nothing.
 */
#ifndef LS_EXECUTION_INTEGRITY_SDC_MONITOR_H
#define LS_EXECUTION_INTEGRITY_SDC_MONITOR_H

#include "execution/executor/state.h"
#include "execution/parallel/data_parallel.h"
#include "execution/team/bit_flip.h"

typedef struct ls_sdc_monitor_options {
    const ls_state *state;      /* borrowed */
    ls_data_parallel *parallel; /* borrowed */
    uint64_t seed, audit_every_steps, hash_every_steps;
    uint32_t leaves;
    ls_bit_flip *flip; /* borrowed; NULL: none */
    /* Computes a single leaf into gradient buffer 0 of part `index`. Its errors end the step. */
    ls_status (*compute)(void *context, uint32_t index, uint64_t step, uint32_t leaf, double *loss_sum_out,
                         uint64_t *tokens_out);
    void *context;
} ls_sdc_monitor_options;

typedef struct ls_sdc_monitor ls_sdc_monitor;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_sdc_monitor_create(const ls_sdc_monitor_options *options,
                                              ls_sdc_monitor **monitor_out);
void ls_sdc_monitor_destroy(ls_sdc_monitor *monitor); /* NULL allowed */

/* To be called after the parts of this process changed (ls_data_parallel_assign). Forgets the
 * hashes of the state. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_sdc_monitor_assign(ls_sdc_monitor *monitor);

/* Step `step` (0-based) begins or is continued. */
LS_MUST_CHECK ls_status ls_sdc_monitor_begin(ls_sdc_monitor *monitor, uint64_t step);
/* Part `index` of this process begins or continues its leaves. Errors: those of computing the
 * audited leaf. */
LS_MUST_CHECK ls_status ls_sdc_monitor_begin_part(ls_sdc_monitor *monitor, uint32_t index);

/* Whether leaf `leaf` of a part of this process will be hashed; if so, nothing may be added into
 * its buffer before ls_sdc_monitor_leaf. */
bool ls_sdc_monitor_wants(const ls_sdc_monitor *monitor, uint32_t leaf);
/* To be called for every leaf, after it is computed and before it counts as finished. */
void ls_sdc_monitor_leaf(ls_sdc_monitor *monitor, uint32_t index, uint32_t leaf, float *gradient,
                         double loss_sum, uint64_t tokens);

/* Errors: LS_ERR_MISMATCH if owned slices of the state changed since the last update: give the step
 * up with ls_sdc_monitor_fault. */
LS_MUST_CHECK ls_status ls_sdc_monitor_before_agreement(ls_sdc_monitor *monitor);
/* Collective, after a successful agreement. Errors, the same on all ranks: LS_ERR_MISMATCH if the
 * bits of the audited leaf or of the weights differ. Errors of waiting. */
LS_MUST_CHECK ls_status ls_sdc_monitor_after_agreement(ls_sdc_monitor *monitor);

void ls_sdc_monitor_before_update(ls_sdc_monitor *monitor);
void ls_sdc_monitor_after_update(ls_sdc_monitor *monitor);

/* Whether the guard took hashes after the last update; *sum_out: their hash (ls_guard_sum). */
bool ls_sdc_monitor_state_sum(const ls_sdc_monitor *monitor, ls_hash128 *sum_out);

/* Compares the state with what the last update left, as far as it was hashed. Errors:
 * LS_ERR_MISMATCH. */
LS_MUST_CHECK ls_status ls_sdc_monitor_check_state(ls_sdc_monitor *monitor);

/* Details of the last error. */
const ls_step_fault *ls_sdc_monitor_fault(const ls_sdc_monitor *monitor);
/* The leaf that was audited in this step; LS_NO_LEAF: none. */
uint32_t ls_sdc_monitor_audited(const ls_sdc_monitor *monitor);

#endif
